// Gathers, scatters, sorts and random numbers on a GPU.
import { bytesOf } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { gatherLaunch, indexAddLaunch, scatterLaunch, selectRowsLaunch, sortLaunch } from '../../kernels/launch.js';
import type { KernelRow } from '../../ops/op.js';
import { type NormalParams, type UniformParams, uniformRange } from '../../ops/random.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { runCopy } from './movement.js';
import { addressOf, infoAddress, permuted, runPlan, viewOf, withTemporaries } from './plans.js';

type Run<P> = (gpu: GpuContext, row: KernelRow, inputs: readonly View[], out: View, params: P) => void;
const without = <T>(list: readonly T[], dim: number): T[] => list.filter((_, i) => i !== dim);

/** Whole rows along the last kept dimensions move at copy speed; other layouts go through the general gather. */
const select: Run<{ dim: number }> = (gpu, row, [x, ids], out, { dim }) =>
  withTemporaries(gpu, (t) => {
    const dense = t.dense(x);
    const { shape } = x.layout;
    const rowBytes = sizeOf(shape.slice(dim + 1)) * bytesOf(x.dtype);
    const [src, dst] = [addressOf(dense), addressOf(out)];
    const align = [16, 8, 4, 2, 1].find((w) => src % w === 0 && dst % w === 0) as number;
    const plan = selectRowsLaunch(
      ids.dtype,
      sizeOf(shape.slice(0, dim)),
      shape[dim],
      ids.layout.size,
      rowBytes,
      ids.layout.strides[0] ?? 1,
      align,
    );
    runPlan(gpu, plan, { ids: addressOf(ids), src, dst, fault: gpu.fault(row.name, [out]) });
  });

const gather: Run<{ dim: number }> = (gpu, row, [x, ids], out, { dim }) => {
  const { shape, strides } = ids.layout;
  const info = infoAddress(gpu, [...shape, ...strides, ...x.layout.strides.map((s, i) => (i === dim ? 0 : s))]);
  const plan = gatherLaunch(
    ids.dtype,
    x.dtype,
    shape.length,
    x.layout.shape[dim],
    x.layout.strides[dim],
    ids.layout.size,
  );
  runPlan(gpu, plan, {
    ids: addressOf(ids),
    src: addressOf(x),
    dst: addressOf(out),
    fault: gpu.fault(row.name, [out]),
    info,
  });
};

const scatter: Run<{ dim: number }> = (gpu, row, [x, ids, src], out, { dim }) => {
  runCopy(gpu, row, [x], [out]);
  const dims = without(ids.layout.shape, dim);
  if (ids.layout.size === 0) return;
  const info = infoAddress(gpu, [
    ...dims,
    ...without(ids.layout.strides, dim),
    ...without(src.layout.strides, dim),
    ...without(out.layout.strides, dim),
  ]);
  const plan = scatterLaunch(row.name === 'scatterAdd', ids.dtype, x.dtype, {
    rank: dims.length,
    lanes: sizeOf(dims),
    count: ids.layout.shape[dim],
    idsStep: ids.layout.strides[dim],
    srcStep: src.layout.strides[dim],
    dstDim: out.layout.shape[dim],
    dstStep: out.layout.strides[dim],
  });
  runPlan(gpu, plan, {
    ids: addressOf(ids),
    src: addressOf(src),
    dst: addressOf(out),
    fault: gpu.fault(row.name, [out]),
    info,
  });
};

const indexAdd: Run<{ dim: number }> = (gpu, row, [x, ids, src], out, { dim }) =>
  withTemporaries(gpu, (t) => {
    runCopy(gpu, row, [x], [out]);
    if (src.layout.size === 0) return;
    const dense = t.dense(src);
    const { shape } = out.layout;
    const plan = indexAddLaunch(
      ids.dtype,
      x.dtype,
      sizeOf(shape.slice(0, dim)),
      shape[dim],
      ids.layout.size,
      sizeOf(shape.slice(dim + 1)),
      ids.layout.strides[0] ?? 1,
    );
    runPlan(gpu, plan, {
      ids: addressOf(ids),
      src: addressOf(dense),
      dst: addressOf(out),
      fault: gpu.fault(row.name, [out]),
    });
  });

const sliceScatter: Run<{ dim: number; start: number }> = (gpu, row, [x, src], out, { dim, start }) => {
  runCopy(gpu, row, [x], [out]);
  if (src.layout.size > 0)
    runCopy(gpu, row, [src], [{ ...viewOf(out), layout: out.layout.slice(dim, start, src.layout.shape[dim]) }]);
};

const INDEX_OPS: Readonly<Record<string, Run<any>>> = {
  indexSelect: select,
  gather,
  scatter,
  scatterAdd: scatter,
  indexAdd,
  sliceScatter,
};
export function runIndex(
  gpu: GpuContext,
  row: KernelRow,
  inputs: readonly View[],
  [out]: readonly View[],
  params: unknown,
): void {
  INDEX_OPS[row.name](gpu, row, inputs, out, params);
}

/** Indices that sort along a dimension. */
export function runSort(
  gpu: GpuContext,
  _row: KernelRow,
  [x]: readonly View[],
  [out]: readonly View[],
  params: { dim: number; descending: boolean },
): void {
  withTemporaries(gpu, (t) => {
    const { shape, rank } = x.layout;
    const last = rank === 0 || params.dim === rank - 1;
    const order = last ? [] : [...shape.map((_, i) => i).filter((i) => i !== params.dim), params.dim];
    const src = t.dense(last ? x : permuted(x, order));
    const target = last ? out : permuted(out, order);
    const indices = last ? out : t.make(target.layout.shape, 'u32');
    const cols = rank === 0 ? 1 : shape[params.dim];
    runPlan(gpu, sortLaunch(x.dtype, x.layout.size / cols, cols, cols, params.descending), {
      src: addressOf(src),
      indices: addressOf(indices),
    });
    if (!last) runCopy(gpu, undefined as never, [indices], [target]);
  });
}

const BLOCK = 256;
export function runRandom(
  gpu: GpuContext,
  row: KernelRow,
  _inputs: readonly View[],
  [out]: readonly View[],
  p: UniformParams | NormalParams,
): void {
  const n = out.layout.size;
  gpu.args.reset().u64(n).bigint(p.seed).bigint(p.offset);
  if ('lo' in p) {
    const { lo, up } = p as UniformParams;
    const { bottom, top } = uniformRange(out.dtype, lo, up);
    gpu.args
      .f64(lo)
      .f64(up - lo)
      .f64(bottom)
      .f64(top);
  } else gpu.args.f64((p as NormalParams).mean).f64((p as NormalParams).std);
  gpu.args.pointer(addressOf(out));
  const stem = row.name === 'randUniform' ? 'rand_uniform' : 'rand_normal';
  gpu.launch(
    gpu.functions.ofModule('random', `${stem}_${out.dtype}`),
    Math.min(65536, Math.ceil(n / BLOCK)),
    1,
    1,
    BLOCK,
  );
}
