// Ops that users define with kernels of their own: compiled with portable.h in front, once a dtype, and launched as
// they say.
import type { DType } from '../../base/dtype.js';
import { ArgumentError, CompileError } from '../../base/errors.js';
import { CTYPE, packEntry } from '../../kernels/declare.js';
import { customUnit, type Unit } from '../../kernels/source.js';
import type { CustomKernel, CustomLaunch, CustomOperand, KernelRow, Params } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { addressOf } from './plan.js';
import { withCopies } from './run-plan.js';

const units = new WeakMap<CustomKernel, Map<DType, Unit>>();
function unitFor(row: KernelRow, kernel: CustomKernel, dtype: DType): Unit {
  let byDType = units.get(kernel);
  if (!byDType) units.set(kernel, (byDType = new Map()));
  let unit = byDType.get(dtype);
  if (!unit) byDType.set(dtype, (unit = customUnit(row.name, kernel.source.replace(/\bELEMENT\b/g, CTYPE[dtype]))));
  return unit;
}

const three = (v: number | readonly number[]): readonly [number, number, number] => {
  const [x, y = 1, z = 1] = typeof v === 'number' ? [v] : v;
  return [x, y, z];
};
/** What a block may use without asking. */
const SHARED_AS_IS = 48 << 10;

function launchOne(
  gpu: GpuContext,
  row: KernelRow,
  unit: Unit,
  dtype: DType,
  l: CustomLaunch,
  pointers: ReadonlyMap<unknown, number>,
): void {
  const entry = unit.entries.find((e) => e.symbol === l.kernel);
  if (!entry)
    throw new CompileError(
      `${row.name}: its source defines no kernel ${l.kernel}; it defines ${unit.entries.map((e) => e.symbol).join(', ') || 'none: a kernel is KERNEL(threads) name(parameters) { ... }'}`,
    );
  const fn = gpu.functions.own(`${row.name}/${dtype}/${l.kernel}`, l.kernel, () => unit);
  const args = l.args.map((a) => {
    if (typeof a === 'number' || typeof a === 'bigint') return a;
    const address = pointers.get(a);
    if (address === undefined)
      throw new ArgumentError(
        `${row.name}: an argument of ${l.kernel} is neither a number nor one of the call's inputs and outputs`,
      );
    return address;
  });
  packEntry(gpu.args, entry, args);
  if ((l.shared ?? 0) > SHARED_AS_IS) gpu.device.setMaxDynamicShared(fn, l.shared as number);
  gpu.launch(fn, ...three(l.grid), ...three(l.block), l.shared ?? 0);
}

export function runCustom(
  gpu: GpuContext,
  row: KernelRow,
  inputs: readonly View[],
  outputs: readonly View[],
  params: Params,
): void {
  const kernel = row.custom?.kernel as CustomKernel; // supportsRow refuses rows without one
  const { dtype } = inputs[0];
  const unit = unitFor(row, kernel, dtype);
  const contiguous = (v: View): boolean => v.layout.isContiguous;
  withCopies(gpu, inputs, contiguous, (dense) => {
    const pointers = new Map<unknown, number>();
    const operand = (v: View): CustomOperand => {
      const o: CustomOperand = { shape: v.layout.shape, dtype: v.dtype, size: v.layout.size };
      pointers.set(o, addressOf(v));
      return o;
    };
    const { warp, multiprocessors, arch } = gpu.device.info;
    const launches = kernel.launch({
      inputs: dense.map(operand),
      outputs: outputs.map(operand),
      params,
      device: { warp, multiprocessors, arch },
    });
    for (const l of Array.isArray(launches) ? (launches as readonly CustomLaunch[]) : [launches as CustomLaunch])
      launchOne(gpu, row, unit, dtype, l, pointers);
  });
}
