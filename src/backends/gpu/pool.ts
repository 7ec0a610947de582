// Pooling: kernels/pool.hip.
import type { DType } from '../../base/dtype.js';
import { CTYPE, KernelModule, Struct } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { PoolParams } from '../../ops/pool.js';
import { CONV_TYPES } from './conv.js';
import { type FamilyPlan, launch, type Launches, places, single, strideGrid } from './plan.js';

export const POOL = new KernelModule('pool');
/** Pairs are height then width. */
const SHAPE = new Struct('Pool', {
  input: ['i64', 2],
  output: ['i64', 2],
  kernel: ['i64', 2],
  stride: ['i64', 2],
  padding: ['i64', 2],
});
const KINDS = ['avg', 'max', 'argmax'] as const;
const windows = POOL.declare({
  each: { kind: KINDS, dtype: CONV_TYPES },
  symbol: ({ kind, dtype }) => `pool_${kind}_${dtype}`,
  body: ({ kind, dtype: d }) => ({
    threads: 256,
    params: { src: `const ${CTYPE[d]}*`, dst: kind === 'argmax' ? 'u32*' : `${CTYPE[d]}*`, numel: 'u64', p: SHAPE },
    call: `pool_${kind}`,
  }),
});

/** Windows over `planes` contiguous planes; pairs are [height, width]. Buffers: src, dst (u32 for argmax). */
export function poolLaunch(
  kind: (typeof KINDS)[number],
  d: DType,
  planes: number,
  input: readonly number[],
  output: readonly number[],
  kernel: readonly number[],
  stride: readonly number[],
  padding: readonly number[],
): Launches {
  const dtype = d as (typeof CONV_TYPES)[number];
  const numel = planes * output[0] * output[1];
  const args = { ...places('src', 'dst'), numel, p: { input, output, kernel, stride, padding } };
  return single(launch(windows, { kind, dtype }, strideGrid(numel), 256, args));
}

export const planPool: FamilyPlan<RowOf<'pool'>, PoolParams> = (p, row, [x], [out], { kernel, stride, padding }) => {
  const [n, c, h, w] = x.layout.shape;
  const output = out.layout.shape.slice(2);
  const launches = poolLaunch(row.kernel.kind, x.dtype, n * c, [h, w], output, kernel, stride, padding);
  p.run(launches, { src: p.dense(x), dst: out });
};
