// Casts and copies, which are elementwise chains without arithmetic, and fills: kernels/fill.hip.
import {
  bytesOf,
  type DType,
  DTYPE,
  DTYPES,
  EVERY_DTYPE,
  isKept,
  KEPT,
  kernelDType,
  type Value,
} from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { ALL_TYPES, KernelModule } from '../../kernels/declare.js';
import { castChain, type Chain, copyChain } from '../../kernels/elementwise.js';
import { castValue } from '../../ops/movement.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { launchChain, prepare, type Prepared } from './elementwise.js';
import { at, ceilDiv, type FamilyPlan, launch, type Launches, packOf, type Planner, single } from './plan.js';

const casts = new Map<string, Prepared>();
const castOf = (from: DType, to: DType): Prepared => {
  const key = `${from}>${to}`;
  let known = casts.get(key);
  if (!known) {
    const group: readonly DType[] = isKept(from) ? EVERY_DTYPE : isKept(to) ? KEPT : DTYPES;
    const siblings = (): readonly Chain[] => group.filter((d) => d !== from).map((d) => castOf(from, d).chain);
    casts.set(key, (known = prepare(castChain(from, to), siblings)));
  }
  return known;
};
const NO_SCALARS: readonly Value[] = [];
export const planCast: FamilyPlan<RowOf<'cast'>, { readonly dtype: DType }> = (p, _row, [x], [out], { dtype }) => {
  if (x.dtype === dtype)
    p.copy(x, out); // the same bits, and no kernel of its own
  else p.chain(castOf(x.dtype, dtype), [x], out, NO_SCALARS);
};
/** A contiguous copy in another type; the dense view itself where it has that type. */
export function inType(p: Planner, v: View, dtype: DType): View {
  if (v.dtype === dtype) return p.dense(v);
  const to = p.make(v.layout.shape, dtype);
  p.chain(castOf(v.dtype, dtype), [v], to, NO_SCALARS);
  return to;
}

const siblings = (): readonly Chain[] => [...copies.values()].map((c) => c.chain);
const copies = new Map<number, Prepared>([1, 2, 4, 8].map((n) => [n, prepare(copyChain(n), siblings)]));
export const planCopy: FamilyPlan<RowOf<'copy'>, unknown> = (p, _row, [x], [out]) => p.copy(x, out);
/** Elements of one type from one layout into another. */
export function runCopy(gpu: GpuContext, x: View, out: View): void {
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
  launchChain(gpu, { chain: copies.get(size) as Prepared, inputs: [x], out, scalars: NO_SCALARS });
}

export const FILL = new KernelModule('fill');
const fill = FILL.forTypes(ALL_TYPES, 'fill', (T) => ({
  threads: 1024,
  params: { buf: `${T}*`, value: T, numel: 'u64' },
  call: 'fill',
}));
const arange = FILL.forTypes(ALL_TYPES, 'arange', (T) => ({
  threads: 256,
  params: { out: `${T}*`, start: 'double', step: 'double', numel: 'u64' },
  call: 'arange',
}));
const blocks = (n: number): number => Math.min(ceilDiv(n, 256), 65536);
/** Fills contiguous memory with one value, given as the element's bits where it is a small float. */
const fillLaunch = (dtype: DType, numel: number, value: Value): Launches =>
  single(
    launch(fill, { dtype: kernelDType(dtype) }, blocks(ceilDiv(numel, packOf(dtype))), 256, {
      buf: at('out'),
      value: DTYPE[dtype].encode(value),
      numel,
    }),
  );

type FillParams = { readonly value: number } | { readonly size: number; readonly start: number; readonly step: number };

export const planFill: FamilyPlan<RowOf<'fill'>, FillParams> = (p, _row, _inputs, [out], params) => {
  if ('value' in params) return p.fill(out, params.value);
  const { start, step } = params;
  const numel = out.layout.size;
  const args = { out: at('out'), start, step, numel };
  p.run(single(launch(arange, { dtype: kernelDType(out.dtype) }, blocks(numel), 256, args)), { out });
};

/**
 * One value in every element, through any layout: where that is not contiguous, one element is filled and copied to
 * all.
 */
export function planFilled(p: Planner, out: View, number: number): void {
  const value = castValue(number, out.dtype);
  if (out.layout.size === 0) return;
  if (out.layout.isContiguous) return p.run(fillLaunch(out.dtype, out.layout.size, value), { out });
  const one = p.make([1], out.dtype);
  p.run(fillLaunch(out.dtype, 1, value), { out: one });
  const still = new Layout(
    out.layout.shape,
    out.layout.shape.map(() => 0),
  );
  p.copy({ ...one, layout: still }, out);
}
