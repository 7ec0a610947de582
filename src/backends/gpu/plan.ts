// What a family's plan answers: launches with their arguments by name, and the copies around them. Plans touch no
// device.
import { bytesOf, DTYPE, type DType, type Value } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { sizeOf, type Shape } from '../../base/shape.js';
import type { AttentionAddresses, AttentionPlan } from '../../driver/attention.js';
import type { GemmPlan } from '../../driver/blas.js';
import type { ConvPlan } from '../../driver/dnn.js';
import type { DeviceInfo, Triple } from '../../driver/driver.js';
import type { Factoring } from '../../driver/solver.js';
import type { Axes, Entry, FieldValues, Kernel, ParamType, Struct, VariantOf } from '../../kernels/declare.js';
import type { Unit } from '../../kernels/source.js';
import type { Memory, View } from '../backend.js';
import type { Prepared } from './elementwise.js';
import { NOTHING_SERVED, type Served } from './libraries.js';

/** A place in a named buffer, in bytes; null pointers are the number 0. */
export interface Pointer {
  readonly buffer: string;
  readonly offset: number;
}
/** What a struct's pointer may be given as, besides an address. */
export type Operand = View | typeof FAULT;
/** Numbers and bigints for scalars, fields by name for structs. */
export type LaunchArg = number | bigint | Pointer | FieldValues<any, Operand>;
type ArgOf<T> = T extends Struct<infer F> ? FieldValues<F, Operand> : number | bigint | Pointer;
export type ArgsOf<P> = { readonly [K in keyof P]: ArgOf<P[K]> };
export interface Launch {
  readonly kernel: Kernel;
  readonly variant: VariantOf<Axes>;
  readonly symbol: string;
  readonly grid: Triple;
  readonly block: Triple;
  /** Bytes of dynamic shared memory. */
  readonly shared: number;
  readonly args: Readonly<Record<string, LaunchArg>>;
  /** The kernel waits by itself for the launch before (begin_in_turn), so that it may begin early. */
  readonly early?: boolean;
  /** The parameter that it reads before its turn: it begins early only behind a launch that does not write there. */
  readonly ahead?: string;
}
/** Launches in order, and bytes of the buffer 'scratch' they share; it needs no initial contents. */
export interface Launches {
  readonly launches: readonly Launch[];
  readonly scratch: number;
}

export const triple = (v: number | readonly number[]): Triple => {
  if (typeof v === 'number') return [v, 1, 1];
  const [x, y = 1, z = 1] = v;
  return [x, y, z];
};
/** What drivers take: blocks along x, and along y and z. */
export const MOST_BLOCKS: Triple = [2 ** 31 - 1, 65535, 65535];
/** A launch of one variant of a kernel. */
export const launch = <A extends Axes, P extends Readonly<Record<string, ParamType>>>(
  kernel: Kernel<A, P>,
  variant: VariantOf<A>,
  grid: number | readonly number[],
  block: number | readonly number[],
  args: ArgsOf<P>,
  shared = 0,
): Launch => {
  const blocks = triple(grid);
  const symbol = kernel.spec.symbol(variant);
  if (blocks.some((n, i) => n > MOST_BLOCKS[i]))
    throw new RangeError(`${symbol}: a grid of [${blocks}] blocks is more than a launch takes, [${MOST_BLOCKS}]`);
  return { kernel, variant, symbol, grid: blocks, block: triple(block), shared, args: args as Launch['args'] };
};
export const at = (buffer: string, offset = 0): Pointer => ({ buffer, offset });
/** Where buffers begin that arguments are named after. */
export const places = <K extends string>(...names: readonly K[]) =>
  Object.fromEntries(names.map((name) => [name, at(name)])) as { readonly [N in K]: Pointer };
export const single = (l: Launch): Launches => ({ launches: [l], scratch: 0 });

/** A launch's arguments in the order of the parameters, as the packer wants them. */
export function valuesOf(
  { symbol, args }: Pick<Launch, 'symbol' | 'args'>,
  entry: Entry,
  buffer: (name: string) => number,
  address: (v: Operand) => number,
): (number | bigint | Uint8Array)[] {
  return entry.params.map((p) => {
    const v = args[p.name];
    if (v === undefined) throw new TypeError(`${symbol}: no argument for parameter ${p.name}`);
    if (typeof v !== 'object') return v;
    if (p.struct) return p.struct.pack(v as FieldValues<any, Operand>, address);
    const { buffer: name, offset } = v as Pointer;
    return buffer(name) + offset;
  });
}

// ---- plans ----

/** Memory for the time of one plan. Blocks are aligned to 256 bytes, so that 0 tells the truth about its alignment. */
export class Temporary implements Memory {
  readonly bytes: number;
  readonly address = 0;
  constructor(bytes: number) {
    this.bytes = bytes;
  }
}
/** An operand of a plan that is kept: the plan knows its number and how its address is aligned, and no more. */
export class Slot implements Memory {
  readonly bytes = 0;
  readonly address: number;
  readonly operand: number;
  constructor(operand: number, address: number) {
    this.operand = operand;
    this.address = address;
  }
}
/** Words in device memory that kernels set when an index is out of range. */
export const FAULT = { fault: true } as const;
/** Numbers that a kernel reads from device memory, 64 bits each; uploaded once per content. */
export interface Uploaded {
  readonly upload: readonly (number | bigint)[];
  /** What they are known by, where they are so many that comparing them takes time. */
  readonly name?: string;
}
/** Bytes that kernels read from device memory, made and uploaded once per name. */
export interface Constants {
  readonly constants: string;
  readonly make: () => Uint8Array;
}
/** What a named buffer is; undefined is null. */
export type Buffers = Readonly<Record<string, View | Uploaded | Constants | typeof FAULT | undefined>>;

/** An elementwise chain on operands of one shape; the kernel that serves their layouts is `chainLaunch`'s choice. */
export interface ChainRun {
  readonly chain: Prepared;
  readonly inputs: readonly View[];
  readonly out: View;
  readonly scalars: readonly Value[];
}
/** A launch of a user's kernel, which `key` finds again. */
export interface CustomRun {
  readonly custom: Unit;
  readonly key: string;
  readonly entry: Entry;
  readonly grid: Triple;
  readonly block: Triple;
  readonly shared: number;
  readonly args: readonly (number | bigint | View)[];
}
/** A library's attention, or what our own kernels do in its place; `written` are the results of either. */
export interface AttentionRun {
  readonly attention: AttentionPlan;
  readonly at: { readonly [K in keyof AttentionAddresses]?: View };
  readonly written: readonly View[];
  readonly otherwise: () => Plan;
}
/** What a library's factorization does to matrices, in place. */
export interface FactorRun extends Factoring {
  readonly at: readonly View[];
}
/** What kernels of our own may have found: read when they have run. */
export interface TroubleCheck {
  /** A word: the matrix times n + 1, plus the pivot or minor, counted from 1, that stopped it. */
  readonly trouble: View;
  readonly n: number;
  /** The op, and what is wrong with that pivot of n. */
  readonly says: (at: number, n: number) => string;
}
export type Step =
  | { readonly copy: View; readonly to: View }
  | { readonly fill: View; readonly value: number }
  | ChainRun
  | CustomRun
  | ({ readonly buffers: Buffers } & Launches)
  /** A library's product; `otherwise` is our own, for the case that the library finds that it cannot run it. */
  | {
      readonly product: GemmPlan;
      readonly a: View;
      readonly b: View;
      readonly to: View;
      /** Numbers added to every row. */
      readonly bias?: View | undefined;
      readonly otherwise: () => Plan;
    }
  | { readonly convolution: ConvPlan; readonly x: View; readonly filter: View; readonly y: View }
  | FactorRun
  | TroubleCheck
  | AttentionRun;
/** Steps in order. */
export type Plan = readonly Step[];

/** What a choice of kernel depends on. */
export type Target = Pick<DeviceInfo, 'warp' | 'multiprocessors' | 'arch'>;

/** Collects a plan's steps. */
export class Planner {
  readonly device: DeviceInfo;
  readonly served: Served;
  readonly steps: Step[] = [];
  constructor(device: DeviceInfo, served: Served = NOTHING_SERVED) {
    this.device = device;
    this.served = served;
  }
  /** A fresh contiguous view. */
  make(shape: Shape, dtype: DType): View {
    const memory = new Temporary(Math.max(1, sizeOf(shape) * bytesOf(dtype)));
    return { memory, dtype, layout: Layout.contiguous(shape) };
  }
  /** The view itself where it is contiguous and its address a multiple of `align`, else a contiguous copy. */
  dense(v: View, align = 1): View {
    if (v.layout.isContiguous && addressOf(v) % align === 0) return v;
    const to = this.make(v.layout.shape, v.dtype);
    this.copy(v, to);
    return to;
  }
  copy(from: View, to: View): void {
    this.steps.push({ copy: from, to });
  }
  chain(chain: Prepared, inputs: readonly View[], out: View, scalars: readonly Value[]): void {
    this.steps.push({ chain, inputs, out, scalars });
  }
  fill(view: View, value: number): void {
    this.steps.push({ fill: view, value });
  }
  run({ launches, scratch }: Launches, buffers: Buffers = {}): void {
    this.steps.push({ launches, scratch, buffers });
  }
}

/** One family of ops: from a row and its operands to the steps that run it. */
export type FamilyPlan<R, P> = (
  p: Planner,
  row: R,
  inputs: readonly View[],
  outputs: readonly View[],
  params: P,
) => void;

// ---- views ----

export const addressOf = (v: View): number => v.memory.address + v.layout.offset * bytesOf(v.dtype);
/** Blocks are aligned to 256 bytes or more; what remains is the view's offset. */
export const aligned16 = (...views: readonly View[]): boolean => views.every((v) => addressOf(v) % 16 === 0);
/** The largest power of two up to 16 that divides the addresses of all views. */
export const alignmentOf = (...views: readonly View[]): number =>
  [16, 8, 4, 2].find((w) => views.every((v) => addressOf(v) % w === 0)) ?? 1;
export const viewOf = ({ memory, layout, dtype }: View): View => ({ memory, layout, dtype });
export const permuted = (v: View, dims: readonly number[]): View => ({ ...viewOf(v), layout: v.layout.permute(dims) });

/** The views' rows `from` .. `from + size` of their first dimension. */
export const rowsFrom = (v: View, from: number, size: number): View => ({
  ...viewOf(v),
  layout: v.layout.slice(0, from, size),
});
/** Calls f for parts of n rows, each as many as one launch takes. */
export function inTurns(n: number, most: number, f: (from: number, size: number) => void): void {
  for (let from = 0; from < n; from += most) f(from, Math.min(most, n - from));
}

// ---- sizes ----

/** Elements of 16 bytes. */
export const packOf = (dtype: DType): number => 16 / DTYPE[dtype].bytes;
export const ceilDiv = (a: number, b: number): number => Math.ceil(a / b);
/** The smallest power of two that is not below n. */
export const powerAbove = (n: number): number => 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, n))));
export const clamp = (x: number, low: number, high: number): number => Math.max(low, Math.min(high, x));
/** Blocks for a grid-stride loop over n elements: enough to fill any device, few enough to stay within every limit. */
export const strideGrid = (n: number, block = 256): number => clamp(ceilDiv(n, block), 1, 2 ** 20);
