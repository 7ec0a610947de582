// Elementwise rows on a GPU: the flat kernel where all is contiguous, else one chosen by layout and kept for it.
import { bytesOf, type DType, type Value } from '../../base/dtype.js';
import type { Layout } from '../../base/layout.js';
import { sameShape } from '../../base/shape.js';
import type { Fn, Triple } from '../../driver/driver.js';
import { type ElementwisePlan, packElementwise, packScalar, planElementwise } from '../../kernels/elementwise-plan.js';
import {
  chain,
  type Chain,
  elementwiseUnit,
  flatShape,
  flatTile,
  kernelDTypes,
  rowChain,
  type Step,
  symbolFor,
  type Variant,
  variantsOf,
} from '../../kernels/elementwise.js';
import type { ElementwiseRow, Params } from '../../ops/op.js';
import type { ChainStep, View } from '../backend.js';
import type { GpuContext } from './context.js';
import type { ChainRun, FamilyPlan } from './plan.js';

const PLANS_KEPT = 4096;

/** A chain with what was worked out for it: its flat kernel's shape, and choices by layout. */
export interface Prepared {
  readonly chain: Chain;
  /** Chains that the simulation's compiler is given together with this one. */
  readonly siblings: () => readonly Chain[];
  readonly tile: number;
  readonly block: Triple;
  /** By a number made of the layouts, which are compared again: two may share a number. */
  readonly plans: Map<number, KeptPlan>;
}
interface KeptPlan {
  readonly layouts: readonly Layout[];
  readonly plan: ElementwisePlan;
}
export const prepare = (chain: Chain, siblings: () => readonly Chain[] = () => [chain]): Prepared => ({
  chain,
  siblings,
  tile: flatTile(chain),
  block: [flatShape(chain).block, 1, 1],
  plans: new Map(),
});

const byRow = new WeakMap<ElementwiseRow<any>, Map<DType, Prepared>>();
function preparedRow(row: ElementwiseRow<any>, dtype: DType): Prepared {
  let byDType = byRow.get(row);
  if (!byDType) byRow.set(row, (byDType = new Map()));
  let p = byDType.get(dtype);
  if (!p) {
    const siblings = (): readonly Chain[] => kernelDTypes(row).map((d) => preparedRow(row, d).chain);
    byDType.set(dtype, (p = prepare(rowChain(row, dtype), siblings)));
  }
  return p;
}

export const planElementwiseRow: FamilyPlan<ElementwiseRow<any>, Params> = (p, row, inputs, [out], params) => {
  const scalars: Value[] = [];
  for (const name of row.scalars) scalars.push(params[name] as Value);
  p.chain(preparedRow(row, inputs[inputs.length - 1].dtype), inputs, out, scalars);
};

/** A traced chain, with its kernel's scalars. */
const traced = new WeakMap<readonly ChainStep[], Pick<ChainRun, 'chain' | 'scalars'>>();
export function tracedChain(steps: readonly ChainStep[], inputs: readonly View[]): Pick<ChainRun, 'chain' | 'scalars'> {
  let known = traced.get(steps);
  if (!known) {
    const parts = steps.map(
      (s): Step =>
        s.row.family === 'elementwise'
          ? { row: s.row, dtype: s.dtype, args: s.args }
          : { cast: s.dtype, args: [s.args[0]] },
    );
    const whole = chain(
      inputs.map((v) => v.dtype),
      parts,
    );
    const scalars = steps.flatMap((s) =>
      s.row.family === 'elementwise' ? s.row.scalars.map((n) => s.params[n] as Value) : [],
    );
    traced.set(steps, (known = { chain: prepare(whole), scalars }));
  }
  return known;
}

// ---- running ----

/** Functions belong to a device, so the quick way to the flat one is kept by device. */
const flatFns = new WeakMap<GpuContext, Map<Prepared, Fn>>();

/** Variants for more than 2^32 elements, which few runs need, are compiled apart from the others. */
const together = (c: Chain, variant: Variant): readonly Variant[] =>
  variantsOf(c).filter((v) => v.endsWith('64') === variant.endsWith('64'));
function fnOf(gpu: GpuContext, p: Prepared, variant: Variant): Fn {
  return gpu.functions.get(symbolFor(p.chain, variant), () =>
    gpu.functions.grouped
      ? elementwiseUnit(p.siblings(), together(p.chain, variant))
      : elementwiseUnit([p.chain], [variant]),
  );
}

const isConstant = (l: Layout): boolean => {
  for (let i = 0; i < l.strides.length; i++) if (l.strides[i] !== 0 && l.shape[i] !== 1) return false;
  return true;
};
/** A 32-bit number made of all that a plan depends on. */
function layoutHash(layouts: readonly Layout[]): number {
  let h = 0;
  const add = (v: number): void => {
    h = Math.imul(h ^ v, 0x01000193) ^ (h >>> 15);
  };
  for (const { shape, strides, offset } of layouts) {
    add(offset);
    for (let i = 0; i < shape.length; i++) {
      add(shape[i]);
      add(strides[i]);
    }
  }
  return h;
}
function sameLayouts(a: readonly Layout[], b: readonly Layout[]): boolean {
  for (let k = 0; k < a.length; k++) {
    if (a[k] === b[k]) continue;
    if (a[k].offset !== b[k].offset || !sameShape(a[k].shape, b[k].shape)) return false;
    if (!sameShape(a[k].strides, b[k].strides)) return false;
  }
  return true;
}

/** The kernel for operands of these layouts, kept by layout: finding it again compares numbers, not texts. */
export function chainLaunch(p: Prepared, out: Layout, inputs: readonly Layout[]): ElementwisePlan {
  const layouts = [out, ...inputs];
  const hash = layoutHash(layouts);
  const kept = p.plans.get(hash);
  if (kept && sameLayouts(kept.layouts, layouts)) return kept.plan;
  if (p.plans.size >= PLANS_KEPT) p.plans.clear();
  const plan = planElementwise(p.chain, out, inputs);
  p.plans.set(hash, { layouts, plan });
  return plan;
}

/** Enqueues a chain. The flat kernel, by far the most frequent, is launched without a plan. */
export function launchChain(gpu: GpuContext, { chain: p, inputs, out, scalars }: ChainRun): void {
  const { args } = gpu;
  let flat = out.layout.isContiguous;
  let splats = 0;
  for (let i = 0; flat && i < inputs.length; i++) {
    const l = inputs[i].layout;
    if (out.layout.size > 1 && isConstant(l)) splats |= 1 << i;
    else if (!l.isContiguous) flat = false;
  }
  if (flat) {
    let fns = flatFns.get(gpu);
    if (!fns) flatFns.set(gpu, (fns = new Map()));
    let fn = fns.get(p);
    if (fn === undefined) fns.set(p, (fn = fnOf(gpu, p, 'flat')));
    const { size } = out.layout;
    args
      .reset()
      .u64(size)
      .u32(splats)
      .pointer(out.memory.address + out.layout.offset * bytesOf(p.chain.output));
    for (let i = 0; i < inputs.length; i++)
      args.pointer(inputs[i].memory.address + inputs[i].layout.offset * bytesOf(p.chain.inputs[i]));
    for (let i = 0; i < scalars.length; i++) packScalar(args, p.chain.scalars[i], scalars[i]);
    gpu.launch(fn, [Math.ceil(size / p.tile), 1, 1], p.block);
    gpu.written = [out.memory];
    return;
  }
  const layouts = inputs.map((v) => v.layout);
  const plan = chainLaunch(p, out.layout, layouts);
  packElementwise(args, p.chain, plan, [out.memory.address, ...inputs.map((v) => v.memory.address)], scalars);
  gpu.launch(fnOf(gpu, p, plan.variant), [plan.grid, 1, 1], [plan.block, 1, 1]);
  gpu.written = [out.memory];
}
