// Ops that users define with kernels of their own: compiled with portable.h in front, once a dtype, and launched as
// they say.
import type { DType } from '../../base/dtype.js';
import { ArgumentError, CompileError } from '../../base/errors.js';
import { CTYPE, type Entry } from '../../kernels/declare.js';
import { customUnit, type Unit } from '../../kernels/source.js';
import type { CustomKernel, CustomLaunch, CustomOperand, KernelRow, Params } from '../../ops/op.js';
import type { View } from '../backend.js';
import { planFactor } from './factor.js';
import { type CustomRun, type FamilyPlan, triple } from './plan.js';

const units = new WeakMap<CustomKernel, Map<DType, Unit>>();
function unitFor(row: KernelRow, kernel: CustomKernel, dtype: DType): Unit {
  let byDType = units.get(kernel);
  if (!byDType) units.set(kernel, (byDType = new Map()));
  let unit = byDType.get(dtype);
  if (!unit) byDType.set(dtype, (unit = customUnit(row.name, kernel.source.replace(/\bELEMENT\b/g, CTYPE[dtype]))));
  return unit;
}

function entryOf(row: KernelRow, unit: Unit, symbol: string): Entry {
  const entry = unit.entries.find((e) => e.symbol === symbol);
  if (entry) return entry;
  const defined = unit.entries.map((e) => e.symbol).join(', ');
  throw new CompileError(
    `${row.name}: its source defines no kernel ${symbol}; it defines ` +
      (defined || 'none: a kernel is KERNEL(threads) name(parameters) { ... }'),
  );
}

export const planCustom: FamilyPlan<KernelRow, Params> = (p, row, inputs, outputs, params) => {
  if (row.custom?.native) return planFactor(p, row.name, inputs, outputs, params);
  const kernel = row.custom?.kernel as CustomKernel; // supportsRow refuses rows without one
  const { dtype } = inputs[0];
  const unit = unitFor(row, kernel, dtype);
  const views = new Map<unknown, View>();
  const operand = (v: View): CustomOperand => {
    const o: CustomOperand = { shape: v.layout.shape, dtype: v.dtype, size: v.layout.size };
    views.set(o, v);
    return o;
  };
  const { warp, multiprocessors, arch } = p.device;
  const launches = kernel.launch({
    inputs: inputs.map((v) => operand(p.dense(v))),
    outputs: outputs.map(operand),
    params,
    device: { warp, multiprocessors, arch },
  });
  const planned = (l: CustomLaunch): CustomRun => ({
    custom: unit,
    key: `${row.name}/${dtype}/${l.kernel}`,
    entry: entryOf(row, unit, l.kernel),
    grid: triple(l.grid),
    block: triple(l.block),
    shared: l.shared ?? 0,
    args: l.args.map((a) => {
      if (typeof a === 'number' || typeof a === 'bigint') return a;
      const view = views.get(a);
      if (view) return view;
      throw new ArgumentError(
        `${row.name}: an argument of ${l.kernel} is neither a number nor one of the call's inputs and outputs`,
      );
    }),
  });
  for (const l of Array.isArray(launches) ? (launches as readonly CustomLaunch[]) : [launches as CustomLaunch])
    p.steps.push(planned(l));
};
