// A kernel is declared once, here in types and in the family's file in values: its symbols, parameters, block and the
// template it instantiates. The `extern "C"` text, the packing of arguments, the list for builds ahead of time and the
// signature check follow from it.
import { type DType, DTYPE } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { ArgBuffer } from '../driver/args.js';

/** Element types as the kernels name them. */
export const CTYPE: { readonly [D in DType]: string } = {
  bool: 'u8',
  u8: 'u8',
  u32: 'u32',
  i8: 'i8',
  i16: 'i16',
  i32: 'i32',
  i64: 'i64',
  f8e4m3: 'fp8',
  f8e5m2: 'bf8',
  bf16: 'bfloat',
  f16: 'half',
  f32: 'float',
  f64: 'double',
};
/** Floats with arithmetic of their own, integers, and all element types, in the order in which kernels are listed. */
export const REAL_TYPES = ['f32', 'f64', 'f16', 'bf16'] as const satisfies readonly DType[];
export const INT_TYPES = ['u8', 'u32', 'i16', 'i32', 'i64'] as const satisfies readonly DType[];
export const ALL_TYPES = [...REAL_TYPES, ...INT_TYPES, 'f8e4m3'] as const satisfies readonly DType[];
/** Unsigned words by their bytes, for kernels that move bits. */
export const WORDS = { 1: 'u8', 2: 'u16', 4: 'u32', 8: 'u64' } as const;
/** A dtype as Candle's symbols spell it. */
export const suffixOf = (dtype: DType): string => (dtype === 'f8e4m3' ? 'f8_e4m3' : dtype);
/** What an element type is computed in, and scalars are passed as. */
export const computeDType = (d: DType): DType => (DTYPE[d].kind === 'float' && DTYPE[d].bytes < 4 ? 'f32' : d);

// ---- parameters ----

type Write = (a: ArgBuffer, v: number) => void;
const pointer: Write = (a, v) => a.pointer(v);
/** Scalars that may be passed by value: size, and how they are written. Small floats are given as their bits. */
const SCALARS: Readonly<Record<string, { readonly size: number; readonly write: Write }>> = {
  u8: { size: 1, write: (a, v) => a.u8(v) },
  fp8: { size: 1, write: (a, v) => a.u8(v) },
  bool: { size: 1, write: (a, v) => a.u8(v) },
  u16: { size: 2, write: (a, v) => a.u16(v) },
  half: { size: 2, write: (a, v) => a.u16(v) },
  bfloat: { size: 2, write: (a, v) => a.u16(v) },
  i16: { size: 2, write: (a, v) => a.i16(v) },
  u32: { size: 4, write: (a, v) => a.u32(v) },
  unsigned: { size: 4, write: (a, v) => a.u32(v) },
  i32: { size: 4, write: (a, v) => a.i32(v) },
  int: { size: 4, write: (a, v) => a.i32(v) },
  float: { size: 4, write: (a, v) => a.f32(v) },
  u64: { size: 8, write: (a, v) => a.u64(v) },
  size_t: { size: 8, write: (a, v) => a.u64(v) },
  i64: { size: 8, write: (a, v) => a.i64(v) },
  double: { size: 8, write: (a, v) => a.f64(v) },
};
/** Writes a scalar of a C type. */
export const writeScalar = (args: ArgBuffer, type: string, value: number): void => SCALARS[type].write(args, value);

export type FieldType = 'pointer' | 'i32' | 'u32' | 'i64' | 'float' | 'double';
export type Fields = Readonly<Record<string, FieldType | readonly [FieldType, number]>>;
/** Values of a struct's fields by name; what is left out is 0. */
export type FieldValues<F, Pointer> = {
  readonly [K in keyof F]?: F[K] extends readonly unknown[]
    ? readonly number[]
    : F[K] extends 'pointer'
      ? number | Pointer
      : number;
};

/** A struct that kernels take by value, its fields in C's order. */
export class Struct<F extends Fields = Fields> {
  /** As the kernels call it. */
  readonly name: string;
  readonly size: number;
  readonly align: number;
  readonly fields: readonly {
    readonly name: string;
    readonly type: FieldType;
    readonly count: number;
    readonly offset: number;
  }[];
  constructor(name: string, fields: F) {
    this.name = name;
    let [at, most] = [0, 1];
    this.fields = Object.entries(fields).map(([field, f]) => {
      const [type, count] = typeof f === 'string' ? [f, 1] : f;
      const size = type === 'pointer' ? 8 : SCALARS[type].size;
      const offset = Math.ceil(at / size) * size;
      at = offset + size * count;
      most = Math.max(most, size);
      return { name: field, type, count, offset };
    });
    this.align = most;
    this.size = Math.ceil(at / most) * most;
  }

  /** The struct's bytes; `resolve` turns what stands for a pointer, so many bytes in, into an address. */
  pack<P>(values: FieldValues<F, P>, resolve: (p: P, at: number) => number): Uint8Array {
    const view = new DataView(new ArrayBuffer(this.size));
    for (const { name, type, count, offset } of this.fields) {
      const value = values[name as keyof F] as number | readonly number[] | P | undefined;
      if (value === undefined) continue;
      const given = Array.isArray(value) ? value.length : 1;
      if (given !== count)
        throw new ArgumentError(`struct ${this.name}: field ${name} has ${count} values, ${given} were given`);
      const write = FIELD_WRITERS[type];
      if (typeof value === 'number') write(view, offset, 0, value);
      else if (Array.isArray(value)) for (let i = 0; i < count; i++) write(view, offset, i, value[i]);
      else write(view, offset, 0, resolve(value as P, offset));
    }
    return new Uint8Array(view.buffer);
  }
}
const write64 = (view: DataView, at: number, i: number, v: number): void => {
  view.setUint32(at + 8 * i, v, true); // the low 32 bits: conversion is modulo 2^32
  view.setInt32(at + 8 * i + 4, Math.floor(v / 0x100000000), true);
};
const FIELD_WRITERS: Readonly<Record<FieldType, (view: DataView, at: number, i: number, v: number) => void>> = {
  pointer: write64,
  i64: write64,
  i32: (view, at, i, v) => view.setInt32(at + 4 * i, v, true),
  u32: (view, at, i, v) => view.setUint32(at + 4 * i, v, true),
  float: (view, at, i, v) => view.setFloat32(at + 4 * i, v, true),
  double: (view, at, i, v) => view.setFloat64(at + 8 * i, v, true),
};

/** Parameters or fields of one type, in a row. */
export const typed = <T extends string, K extends string>(type: T, ...names: readonly K[]) =>
  Object.fromEntries(names.map((name) => [name, type])) as { readonly [N in K]: T };

/** A C type ('const float*', 'i64') or a struct. Scalars become const by themselves. */
export type ParamType = string | Struct<any>;
export interface Param {
  readonly name: string;
  /** The C type without const: 'float', 'u64*'. */
  readonly type: string;
  readonly pointer: boolean;
  /** Whether what it points to may be written; pointers of structs may. */
  readonly written: boolean;
  readonly struct?: Struct;
  readonly size: number;
  readonly align: number;
  /** Where the packed arguments hold it. */
  readonly offset: number;
  /** How a number is packed; structs have their fields instead. */
  readonly write?: Write;
}
/**
 * The largest block a kernel takes: a number, or a constant of the source with the number it stands for (in waves of 64
 * where it goes by waves).
 */
export type Threads = number | { readonly constant: string; readonly threads: number; readonly byWaves?: boolean };

/** What compilers and launches must know of one kernel. */
export interface Entry {
  readonly symbol: string;
  /** The largest block it takes; with waves of 64 where it goes by waves. */
  readonly threads: number;
  /** A number of waves, not of threads: written `256 / 64 * WICK_WAVE`. */
  readonly byWaves: boolean;
  readonly params: readonly Param[];
  /** Bytes of all parameters. */
  readonly size: number;
  /** The kernel's own source text. */
  readonly text: string;
}

/** Parameters at the offsets that compilers give them. */
export function layOut(symbol: string, params: Readonly<Record<string, ParamType>>): { params: Param[]; size: number } {
  let at = 0;
  const list = Object.entries(params).map(([name, given]): Param => {
    const struct = typeof given === 'string' ? undefined : given;
    const type = struct ? struct.name : (given as string).replace(/^const /, '');
    const isPointer = type.endsWith('*');
    const size = struct?.size ?? (isPointer ? 8 : SCALARS[type]?.size);
    if (size === undefined)
      throw new ArgumentError(
        `kernel ${symbol}: parameter ${name} is a ${type}; scalars, pointers and declared structs are known`,
      );
    const align = struct?.align ?? size;
    const offset = Math.ceil(at / align) * align;
    at = offset + size;
    const write = isPointer ? pointer : SCALARS[type]?.write;
    const written = struct !== undefined || type === given;
    return { name, type, pointer: isPointer, written, struct, size, align, offset, write };
  });
  return { params: list, size: at };
}

/** One kernel's text: its head, and a call of the template that does the work. */
export interface Body<P extends Readonly<Record<string, ParamType>> = Readonly<Record<string, ParamType>>> {
  readonly threads: Threads;
  /** Blocks that are to fit on a multiprocessor, which bounds their registers on NVIDIA (decode.h says how). */
  readonly beside?: number;
  /** Blocks along x that see each other's shared memory; `beside` is given, too. */
  readonly cluster?: number;
  readonly params: P;
  /** The function with its template arguments; it is given all parameters in order unless `given` says what. */
  readonly call: string;
  readonly given?: string;
}
function entryOf(symbol: string, { threads, beside, cluster, params, call, given }: Body): Entry {
  const bound = typeof threads === 'number' ? { constant: `${threads}`, threads, byWaves: false } : threads;
  const head = Object.entries(params).map(([name, type]) => {
    const c = typeof type === 'string' ? type : type.name;
    return `${typeof type !== 'string' || c.endsWith('*') ? c : `const ${c}`} ${name}`;
  });
  const bounds = [bound.constant, beside, cluster].filter((b) => b !== undefined).join(', ');
  return {
    symbol,
    threads: bound.threads,
    byWaves: bound.byWaves ?? false,
    ...layOut(symbol, params),
    text:
      `KERNEL${cluster ? '_CLUSTER' : beside ? '_BESIDE' : ''}(${bounds}) ${symbol}(${head.join(', ')}) { ` +
      `${call}(${given ?? Object.keys(params).join(', ')}); }`,
  };
}

// ---- packing ----

/** Numbers, bigints for 64-bit values, bytes of structs; small floats are given as their bits. */
export type ArgValue = number | bigint | Uint8Array;

function packParam(args: ArgBuffer, symbol: string, p: Param, v: ArgValue): void {
  if (v instanceof Uint8Array) {
    if (v.length !== p.size)
      throw new ArgumentError(`${symbol}: parameter ${p.name} (${p.type}) has ${p.size} bytes, ${v.length} were given`);
    args.struct(v, p.align as 1 | 2 | 4 | 8 | 16);
  } else if (typeof v === 'bigint') args.bigint(v);
  else if (p.write) p.write(args, v);
  else throw new ArgumentError(`${symbol}: parameter ${p.name} is a ${p.type}; give its fields`);
}

/** Packs values in the order of the parameters. */
export function packEntry(args: ArgBuffer, entry: Entry, values: readonly ArgValue[]): ArgBuffer {
  if (values.length !== entry.params.length) {
    throw new ArgumentError(
      `${entry.symbol}: ${entry.params.length} arguments are needed (${entry.params.map((p) => p.name).join(', ')}), ` +
        `${values.length} were given`,
    );
  }
  args.reset();
  for (let i = 0; i < values.length; i++) packParam(args, entry.symbol, entry.params[i], values[i]);
  return args;
}

// ---- kernels and modules ----

export type Axes = Readonly<Record<string, readonly unknown[]>>;
export type VariantOf<A extends Axes> = { readonly [K in keyof A]: A[K][number] };
type Params = Readonly<Record<string, ParamType>>;

/** A family of kernels that differ in a few things, each a named axis: operation, dtype, how memory is read. */
export interface KernelSpec<A extends Axes, P extends Params> {
  readonly each: A;
  /** Combinations that exist; all unless given. */
  readonly only?: (v: VariantOf<A>) => boolean;
  /** The name a profiler shows. */
  readonly symbol: (v: VariantOf<A>) => string;
  readonly body: (v: VariantOf<A>) => Body<P>;
  /** Whether a target ever launches it: builds ahead of time leave out what is not. */
  readonly launchedOn?: (v: VariantOf<A>, arch: string) => boolean;
}

/** Axes of element types: kernels that differ in nothing else are compiled together for the simulation. */
const ELEMENT_AXES = ['dtype', 'ids', 'from', 'to', 'bytes', 'type'];

export class Kernel<A extends Axes = any, P extends Params = any> {
  readonly module: KernelModule;
  readonly spec: KernelSpec<A, P>;
  readonly #entries = new Map<string, Entry>();
  constructor(module: KernelModule, spec: KernelSpec<A, P>) {
    this.module = module;
    this.spec = spec;
  }

  entry(variant: VariantOf<A>): Entry {
    const symbol = this.spec.symbol(variant);
    const known = this.#entries.get(symbol) ?? entryOf(symbol, this.spec.body(variant));
    this.#entries.set(symbol, known);
    return known;
  }
  /** All variants, the first axis slowest; `fixed` keeps some axes still. */
  variants(fixed: Partial<VariantOf<A>> = {}): VariantOf<A>[] {
    let all: Record<string, unknown>[] = [{}];
    for (const [axis, values] of Object.entries(this.spec.each)) {
      const some = axis in fixed ? [fixed[axis]] : values;
      all = all.flatMap((v) => some.map((value) => ({ ...v, [axis]: value })));
    }
    const { only } = this.spec;
    return (all as VariantOf<A>[]).filter((v) => !only || only(v));
  }
  /** A variant and those that differ from it in their element types alone. */
  alike(variant: VariantOf<A>): VariantOf<A>[] {
    const fixed = Object.entries(variant).filter(([axis]) => !ELEMENT_AXES.includes(axis));
    return this.variants(Object.fromEntries(fixed) as Partial<VariantOf<A>>);
  }
}

/** kernels/NAME.hip and the kernels it is instantiated to. */
export class KernelModule {
  readonly name: string;
  /** The only GPU it is for: it is compiled for that target there and refused elsewhere. */
  readonly needs: string | undefined;
  readonly kernels: Kernel[] = [];
  #entries: ReadonlyMap<string, Entry> | undefined;
  constructor(name: string, { needs }: { readonly needs?: string } = {}) {
    this.name = name;
    this.needs = needs;
  }
  declare<const A extends Axes, P extends Params>(spec: KernelSpec<A, P>): Kernel<A, P> {
    const kernel = new Kernel<A, P>(this, spec);
    this.kernels.push(kernel);
    return kernel;
  }
  /** A kernel for each element type, named by its stem; T is the type as kernels name it. */
  forTypes<const D extends DType, P extends Params>(
    dtypes: readonly D[],
    stem: string,
    body: (T: string, dtype: D) => Body<P>,
  ) {
    return this.declare({
      each: { dtype: dtypes },
      symbol: ({ dtype }) => `${stem}_${suffixOf(dtype)}`,
      body: ({ dtype }) => body(CTYPE[dtype], dtype),
    });
  }
  /** All of its kernels by symbol. */
  get entries(): ReadonlyMap<string, Entry> {
    if (!this.#entries) {
      const entries = new Map<string, Entry>();
      for (const k of this.kernels)
        for (const v of k.variants()) {
          const entry = k.entry(v);
          if (entries.has(entry.symbol))
            throw new ArgumentError(`${this.name}.hip: kernel ${entry.symbol} is declared twice`);
          entries.set(entry.symbol, entry);
        }
      this.#entries = entries;
    }
    return this.#entries;
  }
}
