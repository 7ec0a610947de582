// Pooling: kernels/pool.hip.
import { bytesOf, type DType } from '../../base/dtype.js';
import { computeDType, CTYPE, KernelModule, REAL_TYPES, Struct, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { PoolParams } from '../../ops/pool.js';
import type { View } from '../backend.js';
import { CONV_TYPES } from './conv.js';
import {
  ceilDiv,
  clamp,
  type FamilyPlan,
  launch,
  type Launches,
  places,
  type Planner,
  powerAbove,
  single,
  strideGrid,
} from './plan.js';

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

/** Threads of a block that has a plane in shared memory, of which two blocks find place. */
const BACK_BLOCK = 512;
const MOST_SHARED = 112 << 10;
const back = POOL.declare({
  each: { dtype: REAL_TYPES },
  symbol: ({ dtype }) => `pool_back_${dtype}`,
  body: ({ dtype: d }) => ({
    threads: BACK_BLOCK,
    params: { ...typed(`const ${CTYPE[d]}*`, 'src', 'grad'), dst: `${CTYPE[d]}*`, planes: 'u64', p: SHAPE },
    call: 'pool_back',
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

/** Of planes that a block can hold with what flows back to them in a pass, else by the places of largest elements. */
function planBack(p: Planner, src: View, grad: View, out: View, { kernel, stride, padding }: PoolParams): void {
  const [n, c, h, w] = out.layout.shape;
  if (out.layout.size === 0) return;
  const dtype = out.dtype as (typeof REAL_TYPES)[number];
  const [input, output] = [[h, w], grad.layout.shape.slice(2)];
  const planes = n * c;
  const sizes = { input, output, kernel, stride, padding };
  const shared = Math.ceil((h * w * (bytesOf(dtype) + bytesOf(computeDType(dtype)))) / 16) * 16;
  if (
    shared <= Math.min(p.device.sharedPerBlockOptin, MOST_SHARED) &&
    countOf(input, kernel, stride, padding) === 'i32'
  ) {
    const threads = clamp(powerAbove(ceilDiv(h * w, 16)), 64, BACK_BLOCK);
    const args = { ...places('src', 'grad', 'dst'), planes, p: sizes };
    const l = launch(back, { dtype }, Math.min(planes, 2 ** 20), threads, args, shared);
    return p.run(single(l), { src, grad, dst: out });
  }
  const found = p.make(grad.layout.shape, 'u32');
  p.run(poolLaunch('argmax', dtype, planes, input, output, kernel, stride, padding), { src, dst: found });
  const count = countOf(input, kernel, stride, padding);
  const threads = strideGrid(ceilDiv(planes, PLANES) * h * w);
  const args = { ...places('places', 'grad', 'dst'), planes, p: sizes };
  p.run(single(launch(spread, { count, dtype }, threads, 256, args)), { places: found, grad, dst: out });
}

export const planPool: FamilyPlan<RowOf<'pool'>, PoolParams> = (p, row, inputs, [out], params) => {
  const [[x, flow], { kernel, stride, padding }] = [inputs, params];
  if (row.kernel.kind === 'back') return planBack(p, p.dense(x), p.dense(flow), out, params);
  const [n, c, h, w] = x.layout.shape;
  const output = out.layout.shape.slice(2);
  const { kind } = row.kernel;
  const launches = poolLaunch(kind, x.dtype, n * c, [h, w], output, kernel, stride, padding);
  p.run(launches, { src: p.dense(x), dst: out });
};
