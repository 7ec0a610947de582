// Elementwise rows on a GPU: straight to the flat kernel where all is contiguous, else by a plan kept per layout.
import type { DType, Value } from '../../base/dtype.js';
import type { Layout } from '../../base/layout.js';
import { type ElementwisePlan, packElementwise, packScalar, planElementwise } from '../../kernels/elementwise-plan.js';
import {
  chain,
  type Chain,
  type Step,
  elementwiseUnit,
  flatShape,
  flatTile,
  kernelDTypes,
  rowChain,
  symbolFor,
  type Variant,
  variantsOf,
} from '../../kernels/elementwise.js';
import type { ElementwiseRow, Params } from '../../ops/op.js';
import { elementwiseRows } from '../../ops/table.js';
import type { ChainStep, View } from '../backend.js';
import type { GpuContext } from './context.js';
import type { Fn } from '../../driver/driver.js';

const PLANS_KEPT = 4096;

/** A chain with what was worked out for it: the flat kernel, and plans by layout. */
export interface Prepared {
  readonly chain: Chain;
  readonly tile: number;
  readonly block: number;
  flat?: Fn;
  readonly plans: Map<string, ElementwisePlan>;
}
export const prepare = (chain: Chain): Prepared => ({
  chain,
  tile: flatTile(chain),
  block: flatShape(chain).block,
  plans: new Map(),
});

const byRow = new WeakMap<ElementwiseRow<any>, Map<DType, Prepared>>();
function preparedRow(row: ElementwiseRow<any>, dtype: DType): Prepared {
  let byDType = byRow.get(row);
  if (!byDType) byRow.set(row, (byDType = new Map()));
  let p = byDType.get(dtype);
  if (!p) byDType.set(dtype, (p = prepare(rowChain(row, dtype))));
  return p;
}
/** Functions belong to a device, so the quick way to the flat one is kept by device. */
const flatFns = new WeakMap<GpuContext, Map<Prepared, Fn>>();

/** Variants for more than 2^32 elements, which few runs need, are compiled apart from the others. */
const together = (c: Chain, variant: Variant): readonly Variant[] =>
  variantsOf(c).filter((v) => v.endsWith('64') === variant.endsWith('64'));
/** The simulation's compiler is given all dtypes of a row at once. */
function fnOf(gpu: GpuContext, p: Prepared, variant: Variant, siblings: () => readonly Chain[]): Fn {
  return gpu.functions.get(symbolFor(p.chain, variant), () =>
    gpu.functions.grouped
      ? elementwiseUnit(siblings(), together(p.chain, variant))
      : elementwiseUnit([p.chain], [variant]),
  );
}

const isConstant = (l: Layout): boolean => {
  for (let i = 0; i < l.strides.length; i++) if (l.strides[i] !== 0 && l.shape[i] !== 1) return false;
  return true;
};
const layoutKey = (views: readonly View[]): string =>
  views.map((v) => `${v.layout.strides.join()}@${v.layout.offset}`).join(';') + `/${views[0].layout.shape.join()}`;

/** Launches a prepared chain on operands of one shape. */
export function launchChain(
  gpu: GpuContext,
  p: Prepared,
  inputs: readonly View[],
  out: View,
  scalars: readonly Value[],
  siblings: () => readonly Chain[],
): void {
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
    if (fn === undefined) fns.set(p, (fn = fnOf(gpu, p, 'flat', siblings)));
    const { size } = out.layout;
    args
      .reset()
      .u64(size)
      .u32(splats)
      .pointer(out.memory.address + out.layout.offset * bytes(p.chain.output));
    for (let i = 0; i < inputs.length; i++)
      args.pointer(inputs[i].memory.address + inputs[i].layout.offset * bytes(p.chain.inputs[i]));
    for (let i = 0; i < scalars.length; i++) packScalar(args, p.chain.scalars[i], scalars[i]);
    gpu.launch(fn, Math.ceil(size / p.tile), 1, 1, p.block);
    return;
  }
  const key = layoutKey([out, ...inputs]);
  let plan = p.plans.get(key);
  if (!plan) {
    if (p.plans.size >= PLANS_KEPT) p.plans.clear();
    p.plans.set(
      key,
      (plan = planElementwise(
        p.chain,
        out.layout,
        inputs.map((v) => v.layout),
      )),
    );
  }
  packElementwise(args, p.chain, plan, [out.memory.address, ...inputs.map((v) => v.memory.address)], scalars);
  gpu.launch(fnOf(gpu, p, plan.variant, siblings), plan.grid, 1, 1, plan.block);
}

const SIZES: Readonly<Record<DType, number>> = {
  bool: 1,
  u8: 1,
  u32: 4,
  i16: 2,
  i32: 4,
  i64: 8,
  f8e4m3: 1,
  bf16: 2,
  f16: 2,
  f32: 4,
  f64: 8,
};
const bytes = (d: DType): number => SIZES[d];

export function runElementwise(
  gpu: GpuContext,
  row: ElementwiseRow<any>,
  inputs: readonly View[],
  outputs: readonly View[],
  params: Params,
): void {
  const { dtype } = inputs[inputs.length - 1];
  const p = preparedRow(row, dtype);
  const scalars: Value[] = [];
  for (const name of row.scalars) scalars.push(params[name] as Value);
  launchChain(gpu, p, inputs, outputs[0], scalars, () => kernelDTypes(row).map((d) => preparedRow(row, d).chain));
}

/** A traced chain, with its kernel's scalars. */
const chains = new WeakMap<readonly ChainStep[], { readonly prepared: Prepared; readonly scalars: readonly Value[] }>();
export function runSteps(gpu: GpuContext, steps: readonly ChainStep[], inputs: readonly View[], out: View): void {
  let known = chains.get(steps);
  if (!known) {
    const prepared = prepare(
      chain(
        inputs.map((v) => v.dtype),
        steps.map(
          (s): Step =>
            s.row.family === 'elementwise'
              ? { row: s.row, dtype: s.dtype, args: s.args }
              : { cast: s.dtype, args: [s.args[0]] },
        ),
      ),
    );
    const scalars = steps.flatMap((s) =>
      s.row.family === 'elementwise' ? s.row.scalars.map((n) => s.params[n] as Value) : [],
    );
    chains.set(steps, (known = { prepared, scalars }));
  }
  const { prepared, scalars } = known;
  launchChain(gpu, prepared, inputs, out, scalars, () => [prepared.chain]);
}

/** A row by name, for steps inside other families. */
export function launchRow(gpu: GpuContext, name: string, inputs: readonly View[], out: View): void {
  const row = elementwiseRows.find((r) => r.name === name) as ElementwiseRow<any>;
  runElementwise(gpu, row, inputs, [out], {});
}
