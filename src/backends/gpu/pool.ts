// Pooling: kernels/pool.hip.
import type { DType } from '../../base/dtype.js';
import { CTYPE, KernelModule, REAL_TYPES, Struct } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { PoolParams } from '../../ops/pool.js';
import { CONV_TYPES } from './conv.js';
import { ceilDiv, type FamilyPlan, launch, type Launches, places, single, strideGrid } from './plan.js';

export const POOL = new KernelModule('pool');
/** Pairs are height then width. */
const SHAPE = new Struct('Pool', {
  input: ['i64', 2],
  output: ['i64', 2],
  kernel: ['i64', 2],
  stride: ['i64', 2],
  padding: ['i64', 2],
});
type Pair = readonly number[];
/** What counts the elements of a plane. */
const COUNTS = ['i32', 'i64'] as const;
function countOf(size: Pair, kernel: Pair, stride: Pair, padding: Pair): 'i32' | 'i64' {
  const [h, w] = size.map((n, i) => n + 2 * padding[i] + kernel[i]);
  return Math.max(h * w, ...stride) < 2 ** 31 ? 'i32' : 'i64';
}
const KINDS = ['avg', 'max', 'argmax'] as const;
/** A thread has so many planes: POOL_PLANES. */
const PLANES = 4;
const windows = POOL.declare({
  each: { kind: KINDS, count: COUNTS, dtype: CONV_TYPES },
  symbol: ({ kind, count, dtype }) => `pool_${kind}_${count === 'i64' ? 'large_' : ''}${dtype}`,
  body: ({ kind, count, dtype: d }) => ({
    threads: 256,
    params: { src: `const ${CTYPE[d]}*`, dst: kind === 'argmax' ? 'u32*' : `${CTYPE[d]}*`, planes: 'u64', p: SHAPE },
    call: `pool_${kind}<${count}>`,
  }),
});

/** What flows back from windows to the places of their largest elements. */
const spread = POOL.declare({
  each: { count: COUNTS, dtype: REAL_TYPES },
  symbol: ({ count, dtype }) => `pool_spread_${count === 'i64' ? 'large_' : ''}${dtype}`,
  body: ({ count, dtype: d }) => ({
    threads: 256,
    params: {
      ...{ places: 'const u32*', grad: `const ${CTYPE[d]}*`, dst: `${CTYPE[d]}*` },
      planes: 'u64',
      p: SHAPE,
    },
    call: `pool_spread<${count}>`,
  }),
});

/** Windows over `planes` contiguous planes; pairs are [height, width]. Buffers: src, dst (u32 for argmax). */
export function poolLaunch(
  kind: (typeof KINDS)[number],
  d: DType,
  planes: number,
  input: readonly number[],
  output: readonly number[],
  kernel: Pair,
  stride: Pair,
  padding: Pair,
): Launches {
  const dtype = d as (typeof CONV_TYPES)[number];
  const threads = ceilDiv(planes, PLANES) * output[0] * output[1];
  const args = { ...places('src', 'dst'), planes, p: { input, output, kernel, stride, padding } };
  return single(
    launch(windows, { kind, count: countOf(input, kernel, stride, padding), dtype }, strideGrid(threads), 256, args),
  );
}

export const planPool: FamilyPlan<RowOf<'pool'>, PoolParams> = (p, row, inputs, [out], params) => {
  const [[x, ids], { kernel, stride, padding }] = [inputs, params];
  if (row.kernel.kind === 'spread') {
    const [n, c, h, w] = out.layout.shape;
    const dtype = out.dtype as (typeof REAL_TYPES)[number];
    const sizes = { input: [h, w], output: x.layout.shape.slice(2), kernel, stride, padding };
    const args = { ...places('places', 'grad', 'dst'), planes: n * c, p: sizes };
    const threads = strideGrid(ceilDiv(n * c, PLANES) * h * w);
    return p.run(
      single(launch(spread, { count: countOf([h, w], kernel, stride, padding), dtype }, threads, 256, args)),
      {
        ...{ places: p.dense(ids), grad: p.dense(x), dst: out },
      },
    );
  }
  const [n, c, h, w] = x.layout.shape;
  const output = out.layout.shape.slice(2);
  const { kind } = row.kernel;
  const launches = poolLaunch(kind, x.dtype, n * c, [h, w], output, kernel, stride, padding);
  p.run(launches, { src: p.dense(x), dst: out });
};
