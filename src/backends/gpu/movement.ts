// Casts, copies and fills on a GPU: elementwise chains without arithmetic.
import { bytesOf, type DType, DTYPES, type Value } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { packScalar } from '../../kernels/elementwise-plan.js';
import { castChain, type Chain, copyChain } from '../../kernels/elementwise.js';
import { castValue } from '../../ops/movement.js';
import type { KernelRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { launchChain, prepare, type Prepared } from './elementwise.js';

const casts = new Map<string, Prepared>();
const cast = (from: DType, to: DType): Prepared => {
  const key = `${from}>${to}`;
  const known = casts.get(key) ?? prepare(castChain(from, to));
  casts.set(key, known);
  return known;
};
export function runCast(
  gpu: GpuContext,
  row: unknown,
  [x]: readonly View[],
  [out]: readonly View[],
  { dtype }: { dtype: DType },
): void {
  if (x.dtype === dtype) return runCopy(gpu, row, [x], [out]); // the same bits, and no kernel of its own
  launchChain(gpu, cast(x.dtype, dtype), [x], out, [], () =>
    DTYPES.filter((to) => to !== x.dtype).map((to): Chain => cast(x.dtype, to).chain),
  );
}

const copies = new Map<number, Prepared>([1, 2, 4, 8].map((n) => [n, prepare(copyChain(n))]));
export function runCopy(gpu: GpuContext, _row: unknown, [x]: readonly View[], [out]: readonly View[]): void {
  const size = bytesOf(x.dtype);
  if (x.layout.isContiguous && out.layout.isContiguous) {
    gpu.device.copy(
      out.memory.address + out.layout.offset * size,
      x.memory.address + x.layout.offset * size,
      x.layout.size * size,
      gpu.stream,
    );
    return;
  }
  launchChain(gpu, copies.get(size) as Prepared, [x], out, [], () => [...copies.values()].map((c) => c.chain));
}

/** Names of kernels/fill.hip: Candle spells f8 its own way. */
const suffix = (d: DType): string => (d === 'f8e4m3' ? 'f8_e4m3' : d);
const BLOCK = 256;
const blocks = (n: number): number => Math.min(Math.ceil(n / BLOCK), 65536);

type FillParams = { readonly value: number } | { readonly size: number; readonly start: number; readonly step: number };

export function runFill(
  gpu: GpuContext,
  _row: KernelRow,
  _inputs: readonly View[],
  [out]: readonly View[],
  params: FillParams,
): void {
  const base = out.memory.address + out.layout.offset * bytesOf(out.dtype);
  const n = out.layout.size;
  if ('step' in params) {
    gpu.args.reset().pointer(base).f64(params.start).f64(params.step).u64(n);
    gpu.launch(gpu.functions.ofModule('fill', `arange_${suffix(out.dtype)}`), blocks(n), 1, 1, BLOCK);
    return;
  }
  fillView(gpu, out, params.value);
}

/** One value in every element, through any layout. */
export function fillView(gpu: GpuContext, out: View, number: number): void {
  const value = castValue(number, out.dtype);
  const n = out.layout.size;
  if (n === 0) return;
  const base = out.memory.address + out.layout.offset * bytesOf(out.dtype);
  if (!out.layout.isContiguous) return fillStrided(gpu, out, value);
  gpu.args.reset().pointer(base);
  packScalar(gpu.args, out.dtype, value);
  gpu.args.u64(n);
  gpu.launch(gpu.functions.ofModule('fill', `fill_${suffix(out.dtype)}`), blocks(n), 1, 1, BLOCK);
}

/** Through any layout: one element is filled, then copied to all. */
function fillStrided(gpu: GpuContext, out: View, value: Value): void {
  const one = gpu.allocator.alloc(8);
  gpu.args.reset().pointer(one.address);
  packScalar(gpu.args, out.dtype, value);
  gpu.args.u64(1);
  gpu.launch(gpu.functions.ofModule('fill', `fill_${suffix(out.dtype)}`), 1, 1, 1, BLOCK);
  const everywhere = {
    memory: one,
    dtype: out.dtype,
    layout: new Layout(
      out.layout.shape,
      out.layout.shape.map(() => 0),
    ),
  };
  launchChain(gpu, copies.get(bytesOf(out.dtype)) as Prepared, [everywhere], out, [], () =>
    [...copies.values()].map((c) => c.chain),
  );
  gpu.allocator.free(one);
}
