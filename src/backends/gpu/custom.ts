// Ops that users define with kernels of their own: compiled with portable.h in front, once a dtype, and launched as
// they say.
import type { DType } from '../../base/dtype.js';
import { ArgumentError, CompileError } from '../../base/errors.js';
import { CTYPE, type Entry } from '../../kernels/declare.js';
import { customUnit, type Unit } from '../../kernels/source.js';
import { sizeOf } from '../../base/shape.js';
import type { CustomKernel, CustomLaunch, CustomOperand, KernelRow, Params, RunRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import { type CustomRun, type FactorRun, type FamilyPlan, permuted, type Planner, triple } from './plan.js';

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

/** Factorizations that a vendor's library serves, for what each has wrong the sentence. */
export const FACTOR_FAULTS: Readonly<Record<FactorRun['factor'], (at: number, n: number) => string>> = {
  cholesky: (at) => `the matrix is not positive definite: its leading minor of order ${at} is not above 0`,
  solve: (at, n) => `the matrix is singular: pivot ${at} of ${n} is 0`,
};
export const isFactored = (row: RunRow): boolean =>
  row.family === 'custom' && row.custom?.native === true && Object.hasOwn(FACTOR_FAULTS, row.name);

/** Matrices row after row, as libraries see them column after column: a symmetric one is itself, others transposed. */
function planFactor(
  p: Planner,
  factor: FactorRun['factor'],
  [a, right]: readonly View[],
  [out]: readonly View[],
): void {
  const n = a.layout.shape[a.layout.shape.length - 1];
  const batch = sizeOf(a.layout.shape.slice(0, -2));
  if (factor === 'cholesky') {
    p.copy(a, out);
    p.steps.push({ factor, n, columns: 0, batch, a: out });
    return;
  }
  const last = right.layout.shape.length - 1;
  const order = [...Array.from({ length: last - 1 }, (_, i) => i), last, last - 1];
  const [matrices, columns] = [p.make(a.layout.shape, a.dtype), permuted(right, order)];
  const turned = p.make(columns.layout.shape, right.dtype);
  p.copy(a, matrices);
  p.copy(columns, turned);
  p.steps.push({ factor, n, columns: columns.layout.shape[last - 1], batch, a: matrices, b: turned });
  p.copy(permuted(turned, order), out);
}

export const planCustom: FamilyPlan<KernelRow, Params> = (p, row, inputs, outputs, params) => {
  if (isFactored(row)) return planFactor(p, row.name as FactorRun['factor'], inputs, outputs);
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
