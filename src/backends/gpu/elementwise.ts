// Elementwise rows on a GPU: the kernel for a set of layouts is chosen, its arguments are packed (layouts travel by value,
// so nothing is uploaded) and it is launched; the flat one, where all is contiguous, without a plan.
import { bytesOf, type DType, DTYPE, kernelDType, type Value } from '../../base/dtype.js';
import { UnsupportedError } from '../../base/errors.js';
import { type Layout, mergeDims } from '../../base/layout.js';
import { sameShape } from '../../base/shape.js';
import { ArgBuffer } from '../../driver/args.js';
import type { Fn, Triple } from '../../driver/driver.js';
import { CTYPE, writeScalar } from '../../kernels/declare.js';
import {
  chain,
  type Chain,
  elementwiseUnit,
  flatShape,
  flatTile,
  groupElements,
  kernelDTypes,
  LAYOUT32,
  LAYOUT64,
  MAX_DIMS,
  OPERANDS,
  rowChain,
  type Step,
  symbolFor,
  transposeGroup,
  transposeTile,
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

/** Chains that differ in numbers alone are one. */
const byName = new Map<string, Prepared>();
function preparedChain(steps: readonly ChainStep[], inputs: readonly View[]): Prepared {
  const parts = steps.map((s): Step => {
    if ('constant' in s) return { constant: kernelDType(s.dtype), args: [] };
    return s.row.family === 'elementwise'
      ? { row: s.row, dtype: s.dtype, args: s.args }
      : { cast: s.dtype, args: [s.args[0]] };
  });
  const whole = chain(
    inputs.map((v) => v.dtype),
    parts,
  );
  let prepared = byName.get(whole.name);
  if (!prepared) byName.set(whole.name, (prepared = prepare(whole)));
  return prepared;
}
/** The same by what a chain is made of, which is put together sooner than its name. */
const byParts = new Map<string, Prepared>();
const numbers = new WeakMap<object, number>();
let rowsSeen = 0;
function partsOf(steps: readonly ChainStep[], inputs: readonly View[]): string {
  let key = '';
  for (let i = 0; i < inputs.length; i++) key += inputs[i].dtype + ' ';
  for (let i = 0; i < steps.length; i++) {
    const s = steps[i];
    if ('constant' in s) {
      key += `,${s.dtype}`;
      continue;
    }
    let number = numbers.get(s.row);
    if (number === undefined) numbers.set(s.row, (number = ++rowsSeen));
    key += `,${number} ${s.dtype}`;
    for (let k = 0; k < s.args.length; k++) key += ` ${s.args[k]}`;
  }
  return key;
}
function scalarsOf(steps: readonly ChainStep[]): Value[] {
  const scalars: Value[] = [];
  for (let i = 0; i < steps.length; i++) {
    const s = steps[i];
    if ('constant' in s) scalars.push(s.constant);
    else if (s.row.family === 'elementwise') for (const n of s.row.scalars) scalars.push(s.params[n] as Value);
  }
  return scalars;
}
/** A chain that waits for its kernel's operands, with the kernel's scalars; steps of a traced one are the same list. */
const traced = new WeakMap<readonly ChainStep[], Pick<ChainRun, 'chain' | 'scalars'>>();
export function tracedChain(steps: readonly ChainStep[], inputs: readonly View[]): Pick<ChainRun, 'chain' | 'scalars'> {
  let known = traced.get(steps);
  if (!known) {
    const parts = partsOf(steps, inputs);
    let prepared = byParts.get(parts);
    if (!prepared) byParts.set(parts, (prepared = preparedChain(steps, inputs)));
    traced.set(steps, (known = { chain: prepared, scalars: scalarsOf(steps) }));
  }
  return known;
}

// ---- choosing ----

/** What to launch; it depends on layouts and dtypes only, so callers may keep it by shape. */
export interface ElementwisePlan {
  readonly variant: Variant;
  readonly symbol: string;
  /** Blocks of 256 threads in x. */
  readonly grid: number;
  /** Threads of a block. */
  readonly block: number;
  /** Bytes from an operand's memory to its first element: output, then inputs. */
  readonly offsets: readonly number[];
  /** The arguments before the pointers, packed. */
  readonly head: Uint8Array;
}

const LIMIT = 2 ** 31;

/** Numbers such that n / d = (high32(n * magic) + n) >> shift for n below 2^31. */
export function magicDivisor(d: number): { magic: number; shift: number } {
  let shift = 0;
  while (2 ** shift < d) shift++;
  return { magic: Number((2n ** 32n * (2n ** BigInt(shift) - BigInt(d))) / BigInt(d) + 1n), shift };
}

/** Where the arguments before the pointers are packed; a plan keeps a copy. */
let packed: ArgBuffer | undefined;
const head = (): ArgBuffer => (packed ??= new ArgBuffer()).reset();

/** Layouts as the kernels take them, packed first; numbers from 2^31 on wrap to the same bits. */
function layoutHead(
  wide: boolean,
  count: number,
  shape: readonly number[],
  strides: readonly (readonly number[])[],
): ArgBuffer {
  const sizes = Array.from({ length: MAX_DIMS }, (_, d) => shape[d] ?? 1);
  const steps = Array.from({ length: OPERANDS }, (_, k) => sizes.map((_, d) => strides[k]?.[d] ?? 0)).flat();
  const layout = { count, rank: shape.length, shape: sizes, strides: steps };
  if (wide) return head().struct(LAYOUT64.pack(layout, Number), 8);
  const divisors = sizes.map(magicDivisor);
  const [magic, shift] = [divisors.map((m) => m.magic), divisors.map((m) => m.shift)];
  return head().struct(LAYOUT32.pack({ ...layout, magic, shift }, Number), 4);
}

const isConstant = (l: Layout): boolean => {
  for (let i = 0; i < l.strides.length; i++) if (l.strides[i] !== 0 && l.shape[i] !== 1) return false;
  return true;
};

/**
 * Layouts of the output and the inputs, all of one shape with at least one element; broadcast dimensions have stride 0.
 * `wide` asks for 64 bits.
 */
export function planElementwise(c: Chain, out: Layout, inputs: readonly Layout[], wide = false): ElementwisePlan {
  const all = [out, ...inputs];
  const dtypes = [c.output, ...c.inputs];
  const offsets = all.map((l, i) => l.offset * DTYPE[dtypes[i]].bytes);
  const plan = (variant: Variant, grid: number, before: ArgBuffer): ElementwisePlan => ({
    variant,
    symbol: symbolFor(c, variant),
    grid,
    block: variant === 'flat' ? flatShape(c).block : 256,
    offsets,
    head: before.bytes(),
  });

  if (out.isContiguous && inputs.every((l) => l.isContiguous || isConstant(l))) {
    let scalars = 0;
    inputs.forEach((l, i) => (scalars |= out.size > 1 && isConstant(l) ? 1 << i : 0));
    return plan('flat', Math.ceil(out.size / flatTile(c)), head().u64(out.size).u32(scalars));
  }

  const { shape, strides } = mergeDims(all);
  if (shape.length > MAX_DIMS) {
    throw new UnsupportedError(
      `${c.name}: the layouts do not merge below ${shape.length} dimensions; kernels take ${MAX_DIMS}; make an ` +
        'operand contiguous',
    );
  }
  const last = shape.length - 1;
  const turned = transposed(c, shape, strides, offsets);
  if (turned) return plan(turned.variant, turned.grid, turned.head);

  // Groups of E: the innermost dimension is contiguous (or still) for everyone and everything is aligned to whole
  // groups.
  const e = groupElements(c);
  const inGroups =
    e > 1 &&
    shape[last] % e === 0 &&
    strides[0][last] === 1 &&
    strides.every(
      (s, k) =>
        s[last] <= 1 &&
        s[last] >= 0 &&
        ((k > 0 && s[last] === 0) || s.every((v, d) => d === last || v % e === 0)) &&
        (s[last] === 0 || offsets[k] % Math.min(16, e * DTYPE[dtypes[k]].bytes) === 0),
    );
  const size = inGroups ? shape.map((d, i) => (i === last ? d / e : d)) : shape;
  const step = inGroups ? strides.map((s) => s.map((v, d) => (d === last ? v * e : v))) : strides;
  const count = inGroups ? out.size / e : out.size;
  const span = Math.max(...strides.map((s) => s.reduce((sum, v, d) => sum + Math.abs(v) * (shape[d] - 1), 0)));
  const w64 = wide || out.size >= LIMIT || span >= LIMIT;
  let splats = 0;
  if (inGroups) strides.slice(1).forEach((s, i) => (splats |= s[last] === 0 ? 1 << i : 0));
  const variant = `${inGroups ? 'groups' : 'strided'}${w64 ? '64' : ''}` as Variant;
  return plan(variant, Math.ceil(count / (256 * (inGroups ? 2 : 4))), layoutHead(w64, count, size, step).u32(splats));
}

/** One input that is contiguous along another dimension than the output, both long enough to fill tiles. */
function transposed(
  c: Chain,
  shape: readonly number[],
  strides: readonly (readonly number[])[],
  offsets: readonly number[],
): { variant: Variant; grid: number; head: ArgBuffer } | undefined {
  if (strides.length !== 2) return undefined;
  const [to, from] = strides;
  const column = to.indexOf(1);
  const row = from.findIndex((s, d) => s === 1 && d !== column);
  if (
    column < 0 ||
    row < 0 ||
    from[column] === 1 ||
    shape[row] < 16 ||
    shape[column] < 16 ||
    shape[row] >= LIMIT ||
    shape[column] >= LIMIT
  )
    return undefined;
  const tile = transposeTile(c);
  const rest = shape.map((_, d) => d).filter((d) => d !== row && d !== column);
  const batches = rest.reduce((n, d) => n * shape[d], 1);
  const grid = batches * Math.ceil(shape[row] / tile) * Math.ceil(shape[column] / tile);
  if (grid >= LIMIT) return undefined;
  const e = transposeGroup(c);
  const whole = (v: number): boolean => v % e === 0;
  const inGroups =
    whole(shape[row]) &&
    whole(shape[column]) &&
    to.every((v, d) => d === column || whole(v)) &&
    from.every((v, d) => d === row || whole(v)) &&
    offsets.every((o, k) => o % Math.min(16, e * DTYPE[k === 0 ? c.output : c.inputs[0]].bytes) === 0);
  const layout = layoutHead(
    true,
    batches,
    rest.map((d) => shape[d]),
    [rest.map((d) => to[d]), rest.map((d) => from[d])],
  );
  return {
    variant: inGroups ? 'transposeGroups' : 'transpose',
    grid,
    head: layout.u32(shape[row]).u32(shape[column]).i64(to[row]).i64(from[column]),
  };
}

// ---- packing ----

/** Fills the argument buffer: addresses of the memory of output and inputs, scalars in the chain's order. */
export function packElementwise(
  args: ArgBuffer,
  c: Chain,
  plan: ElementwisePlan,
  addresses: readonly number[],
  scalars: readonly Value[],
): void {
  args.reset().struct(plan.head, 8);
  addresses.forEach((a, i) => args.pointer(a + plan.offsets[i]));
  scalars.forEach((v, i) => packScalar(args, c.scalars[i], v));
}

/** A scalar parameter of an element type, converted as tensors of that type are filled. */
function packScalar(args: ArgBuffer, dtype: DType, value: Value): void {
  const raw = DTYPE[dtype].encode(value);
  if (typeof raw === 'bigint') args.bigint(raw);
  else writeScalar(args, CTYPE[dtype], raw);
}

// ---- running ----

/** Bytes of a result from which launches go by turns from its beginning and from its end (kernels/elementwise.hip). */
const TURNED_FROM = 2 ** 24;
const BACKWARDS = 2 ** 31;
/** Whether the last such launch of a device went backwards. */
const turned = new WeakMap<GpuContext, boolean>();
function direction(gpu: GpuContext, bytes: number): number {
  if (bytes < TURNED_FROM) return 0;
  const now = !(turned.get(gpu) ?? true);
  turned.set(gpu, now);
  return now ? BACKWARDS : 0;
}

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
      .u32(splats + direction(gpu, size * bytesOf(p.chain.output)))
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
