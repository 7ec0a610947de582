// A small WebAssembly assembler: typed expressions as byte sequences, functions with locals, and the module encoding.

export type Type = 'i32' | 'i64' | 'f32' | 'f64';
/** Bytes in order, nested as they were put together: flattened once, when emitted. */
export type Code = readonly (number | Code)[];
/** An expression: its type and the code that leaves its value on the stack. */
export interface Expr<T extends Type = Type> {
  readonly t: T;
  readonly b: Code;
}
export type I32 = Expr<'i32'>;
export type I64 = Expr<'i64'>;
export type F32 = Expr<'f32'>;
export type F64 = Expr<'f64'>;

const TYPE_BYTE: Record<Type, number> = { i32: 0x7f, i64: 0x7e, f32: 0x7d, f64: 0x7c };

function leb(n: number): number[] {
  const out: number[] = [];
  do {
    const low = n % 128;
    n = Math.floor(n / 128);
    out.push(n ? low | 128 : low);
  } while (n);
  return out;
}

function sleb(v: bigint): number[] {
  for (const out: number[] = []; ; ) {
    const low = Number(v & 127n);
    v >>= 7n;
    if ((v === 0n && !(low & 64)) || (v === -1n && low & 64)) return [...out, low];
    out.push(low | 128);
  }
}

const view = new DataView(new ArrayBuffer(8));
const bytesOf = (n: number): number[] => Array.from({ length: n }, (_, i) => view.getUint8(i));

function op<T extends Type>(t: T, code: number | readonly number[], ...args: readonly Expr[]): Expr<T> {
  const b: (number | Code)[] = args.map((a) => a.b);
  b.push(code);
  return { t, b };
}

type Unary<A extends Type, R extends Type> = (a: Expr<A>) => Expr<R>;
type Binary<A extends Type, R extends Type> = (a: Expr<A>, b: Expr<A>) => Expr<R>;

/** Consecutive opcodes with the names given, from a first code. */
function family<N extends string, A extends Type, R extends Type, F>(
  first: number,
  names: readonly N[],
  r: R,
): Record<N, F> {
  return Object.fromEntries(names.map((n, i) => [n, (...args: Expr<A>[]) => op(r, first + i, ...args)])) as Record<
    N,
    F
  >;
}

const INT_CMP = ['eq', 'ne', 'lt_s', 'lt_u', 'gt_s', 'gt_u', 'le_s', 'le_u', 'ge_s', 'ge_u'] as const;
const INT_UN = ['clz', 'ctz', 'popcnt'] as const;
const INT_BIN = [
  'add',
  'sub',
  'mul',
  'div_s',
  'div_u',
  'rem_s',
  'rem_u',
  'and',
  'or',
  'xor',
  'shl',
  'shr_s',
  'shr_u',
  'rotl',
  'rotr',
] as const;
const FLT_CMP = ['eq', 'ne', 'lt', 'gt', 'le', 'ge'] as const;
const FLT_UN = ['abs', 'neg', 'ceil', 'floor', 'trunc', 'nearest', 'sqrt'] as const;
const FLT_BIN = ['add', 'sub', 'mul', 'div', 'min', 'max', 'copysign'] as const;

function ints<T extends 'i32' | 'i64'>(t: T, cmp: number, un: number, eqz: number) {
  return {
    eqz: ((a) => op('i32', eqz, a)) as Unary<T, 'i32'>,
    ...family<(typeof INT_CMP)[number], T, 'i32', Binary<T, 'i32'>>(cmp, INT_CMP, 'i32'),
    ...family<(typeof INT_UN)[number], T, T, Unary<T, T>>(un, INT_UN, t),
    ...family<(typeof INT_BIN)[number], T, T, Binary<T, T>>(un + 3, INT_BIN, t),
  };
}
function floats<T extends 'f32' | 'f64'>(t: T, cmp: number, un: number) {
  return {
    ...family<(typeof FLT_CMP)[number], T, 'i32', Binary<T, 'i32'>>(cmp, FLT_CMP, 'i32'),
    ...family<(typeof FLT_UN)[number], T, T, Unary<T, T>>(un, FLT_UN, t),
    ...family<(typeof FLT_BIN)[number], T, T, Binary<T, T>>(un + 7, FLT_BIN, t),
  };
}
const conv =
  <A extends Type, R extends Type>(r: R, ...code: number[]) =>
  (a: Expr<A>): Expr<R> =>
    op(r, code, a);
const load =
  <T extends Type>(t: T, code: number, align = 0) =>
  (at: I32, offset = 0): Expr<T> =>
    op(t, [code, align, ...leb(offset)], at);

export const i32 = {
  const: (v: number): I32 => ({ t: 'i32', b: [0x41, ...sleb(BigInt(v | 0))] }),
  ...ints('i32', 0x46, 0x67, 0x45),
  wrap: conv<'i64', 'i32'>('i32', 0xa7),
  fromBits: conv<'f32', 'i32'>('i32', 0xbc),
  extend8: conv<'i32', 'i32'>('i32', 0xc0),
  extend16: conv<'i32', 'i32'>('i32', 0xc1),
  sat_f32_s: conv<'f32', 'i32'>('i32', 0xfc, 0),
  sat_f32_u: conv<'f32', 'i32'>('i32', 0xfc, 1),
  sat_f64_s: conv<'f64', 'i32'>('i32', 0xfc, 2),
  sat_f64_u: conv<'f64', 'i32'>('i32', 0xfc, 3),
  load: load('i32', 0x28),
  load8_s: load('i32', 0x2c),
  load8_u: load('i32', 0x2d),
  load16_s: load('i32', 0x2e),
  load16_u: load('i32', 0x2f),
};
export const i64 = {
  const: (v: bigint | number): I64 => ({ t: 'i64', b: [0x42, ...sleb(BigInt.asIntN(64, BigInt(v)))] }),
  ...ints('i64', 0x51, 0x79, 0x50),
  extend_s: conv<'i32', 'i64'>('i64', 0xac),
  extend_u: conv<'i32', 'i64'>('i64', 0xad),
  fromBits: conv<'f64', 'i64'>('i64', 0xbd),
  load: load('i64', 0x29),
};
export const f32 = {
  const: (v: number): F32 => {
    view.setFloat32(0, v, true);
    return { t: 'f32', b: [0x43, ...bytesOf(4)] };
  },
  bits: (v: number): F32 => {
    view.setUint32(0, v, true);
    return { t: 'f32', b: [0x43, ...bytesOf(4)] };
  },
  ...floats('f32', 0x5b, 0x8b),
  fromBits: conv<'i32', 'f32'>('f32', 0xbe),
  convert_i32_s: conv<'i32', 'f32'>('f32', 0xb2),
  convert_i32_u: conv<'i32', 'f32'>('f32', 0xb3),
  demote: conv<'f64', 'f32'>('f32', 0xb6),
  load: load('f32', 0x2a),
};
export const f64 = {
  const: (v: number): F64 => {
    view.setFloat64(0, v, true);
    return { t: 'f64', b: [0x44, ...bytesOf(8)] };
  },
  ...floats('f64', 0x61, 0x99),
  fromBits: conv<'i64', 'f64'>('f64', 0xbf),
  convert_i32_s: conv<'i32', 'f64'>('f64', 0xb7),
  convert_i32_u: conv<'i32', 'f64'>('f64', 0xb8),
  promote: conv<'f32', 'f64'>('f64', 0xbb),
};

/** Both are evaluated; a where the condition is not 0. */
export const select = <T extends Type>(cond: I32, a: Expr<T>, b: Expr<T>): Expr<T> => op(a.t, 0x1b, a, b, cond);
/** Only one is evaluated. */
export const choose = <T extends Type>(cond: I32, a: Expr<T>, b: Expr<T>): Expr<T> => ({
  t: a.t,
  b: [cond.b, 0x04, TYPE_BYTE[a.t], a.b, 0x05, b.b, 0x0b],
});
export const and = (...conds: I32[]): I32 => conds.reduce((a, b) => i32.and(a, b));
export const or = (...conds: I32[]): I32 => conds.reduce((a, b) => i32.or(a, b));
export const not = (c: I32): I32 => i32.eqz(c);

const STORE: Record<Type, number> = { i32: 0x36, i64: 0x37, f32: 0x38, f64: 0x39 };
export const store = (at: I32, v: Expr, offset = 0): Code => [at.b, v.b, STORE[v.t], 0, leb(offset)];
export const store8 = (at: I32, v: I32, offset = 0): Code => [at.b, v.b, 0x3a, 0, leb(offset)];
export const store16 = (at: I32, v: I32, offset = 0): Code => [at.b, v.b, 0x3b, 0, leb(offset)];

/** Sequentially consistent read-modify-write on naturally aligned 32- or 64-bit words. */
export const RMW = { add: 0x1e, sub: 0x25, and: 0x2c, or: 0x33, xor: 0x3a, swap: 0x41 } as const;
export function rmw<T extends 'i32' | 'i64'>(kind: keyof typeof RMW, at: I32, v: Expr<T>): Expr<T> {
  const wide = v.t === 'i64' ? 1 : 0;
  return op(v.t, [0xfe, RMW[kind] + wide, 2 + wide, 0], at, v);
}
export function cmpxchg<T extends 'i32' | 'i64'>(at: I32, expected: Expr<T>, v: Expr<T>): Expr<T> {
  const wide = v.t === 'i64' ? 1 : 0;
  return op(v.t, [0xfe, 0x48 + wide, 2 + wide, 0], at, expected, v);
}

function flatten(code: Code, out: number[]): void {
  for (const x of code) {
    if (typeof x === 'number') out.push(x);
    else flatten(x, out);
  }
}

/** One function under construction: locals are numbered after the parameters. */
export class Func {
  readonly params: readonly Type[];
  readonly results: readonly Type[];
  readonly locals: Type[] = [];
  body: number[] = [];
  constructor(params: readonly Type[], results: readonly Type[]) {
    this.params = params;
    this.results = results;
  }
  param<T extends Type>(i: number): Expr<T> {
    return { t: this.params[i] as T, b: [0x20, ...leb(i)] };
  }
  local<T extends Type>(t: T): Local<T> {
    this.locals.push(t);
    return new Local(t, this.params.length + this.locals.length - 1);
  }
  emit(code: Code): void {
    flatten(code, this.body);
  }
  /** Evaluates once into a new local and gives the cheap expression that reads it. */
  let<T extends Type>(e: Expr<T>): Expr<T> {
    const l = this.local(e.t);
    this.emit(l.set(e));
    return l.get;
  }
  /** Runs `then` with the code it emits inside an if. */
  when(cond: I32, then: () => void, otherwise?: () => void): void {
    this.emit([cond.b, 0x04, 0x40]);
    then();
    if (otherwise) {
      this.body.push(0x05);
      otherwise();
    }
    this.body.push(0x0b);
  }
  /** Repeats `body` while the condition it returns is not 0. */
  repeat(body: () => I32): void {
    this.emit([0x03, 0x40]);
    const again = body();
    this.emit([again.b, 0x0d, 0, 0x0b]);
  }
  ret(e: Expr): void {
    this.emit([e.b, 0x0f]);
  }
}

export class Local<T extends Type> {
  readonly t: T;
  readonly index: number;
  readonly get: Expr<T>;
  constructor(t: T, index: number) {
    this.t = t;
    this.index = index;
    this.get = { t, b: [0x20, ...leb(index)] };
  }
  set(e: Expr<T>): Code {
    return [e.b, 0x21, leb(this.index)];
  }
}

interface Import {
  readonly name: string;
  readonly type: number;
}

/**
 * A module with one shared memory and one function table, both imported; functions are exported by name or put in the
 * table.
 */
export class ModuleBuilder {
  private readonly types: string[] = [];
  private readonly typeBytes: number[][] = [];
  private readonly imports: Import[] = [];
  private readonly funcs: { readonly f: Func; readonly type: number }[] = [];
  private readonly exports: { name: string; kind: number; index: number }[] = [];
  private readonly globals: number[] = [];
  private readonly table: number[] = [];

  private typeOf(params: readonly Type[], results: readonly Type[]): number {
    const key = `${params.join()}>${results.join()}`;
    let at = this.types.indexOf(key);
    if (at < 0) {
      at = this.types.push(key) - 1;
      const list = (ts: readonly Type[]) => [...leb(ts.length), ...ts.map((t) => TYPE_BYTE[t])];
      this.typeBytes.push([0x60, ...list(params), ...list(results)]);
    }
    return at;
  }
  /** All imports come before the first function, whose numbers follow theirs. */
  import(name: string, params: readonly Type[], results: readonly Type[]): number {
    return this.imports.push({ name, type: this.typeOf(params, results) }) - 1;
  }
  add(f: Func, exportName?: string): number {
    const index = this.imports.length + this.funcs.push({ f, type: this.typeOf(f.params, f.results) }) - 1;
    if (exportName) this.exports.push({ name: exportName, kind: 0, index });
    return index;
  }
  /** A mutable 64-bit counter. */
  counter(name: string): number {
    const index = this.globals.push(0) - 1;
    this.exports.push({ name, kind: 3, index });
    return index;
  }
  setTable(functions: readonly number[]): void {
    this.table.push(...functions);
  }
  callIndirect(type: { params: readonly Type[]; results: readonly Type[] }, index: I32, ...args: Expr[]): Expr {
    return op(type.results[0], [0x11, ...leb(this.typeOf(type.params, type.results)), 0], ...args, index);
  }

  encode(maxPages: number): Uint8Array<ArrayBuffer> {
    const section = (id: number, items: readonly (readonly number[])[]): number[] => {
      if (items.length === 0) return [];
      const body = [...leb(items.length)];
      for (const item of items) for (const x of item) body.push(x);
      const out = [id, ...leb(body.length)];
      for (const x of body) out.push(x);
      return out;
    };
    const str = (s: string): number[] => [...leb(s.length), ...Buffer.from(s, 'latin1')];
    const codes = this.funcs.map(({ f }) => {
      const runs: [number, Type][] = [];
      for (const t of f.locals) {
        if (runs.length && runs[runs.length - 1][1] === t) runs[runs.length - 1][0]++;
        else runs.push([1, t]);
      }
      const body = [...leb(runs.length), ...runs.flatMap(([n, t]) => [...leb(n), TYPE_BYTE[t]])];
      for (const x of f.body) body.push(x);
      body.push(0x0b);
      const out = leb(body.length);
      for (const x of body) out.push(x);
      return out;
    });
    const n = this.table.length;
    const parts = [
      [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
      section(1, this.typeBytes),
      section(2, [
        ...this.imports.map((i) => [...str('env'), ...str(i.name), 0, ...leb(i.type)]),
        [...str('env'), ...str('memory'), 2, 3, 1, ...leb(maxPages)],
      ]),
      section(
        3,
        this.funcs.map(({ type }) => leb(type)),
      ),
      n ? section(4, [[0x70, 0, ...leb(n)]]) : [],
      section(
        6,
        this.globals.map(() => [0x7e, 1, 0x42, 0, 0x0b]),
      ),
      section(
        7,
        this.exports.map((e) => [...str(e.name), e.kind, ...leb(e.index)]),
      ),
      n ? section(9, [[0, 0x41, 0, 0x0b, ...leb(n), ...this.table.flatMap(leb)]]) : [],
      section(10, codes),
    ];
    const out = new Uint8Array(parts.reduce((s, p) => s + p.length, 0));
    let at = 0;
    for (const p of parts) {
      out.set(p, at);
      at += p.length;
    }
    return out;
  }
}

export const call = <T extends Type>(t: T, index: number, ...args: readonly Expr[]): Expr<T> =>
  op(t, [0x10, ...leb(index)], ...args);
export const callVoid = (index: number, ...args: readonly Expr[]): Code => [...args.map((a) => a.b), 0x10, leb(index)];
/** counter += value. */
export const count = (counter: number, v: I64): Code => [0x23, leb(counter), v.b, 0x7c, 0x24, leb(counter)];
/** memory.copy and memory.fill. */
export const copyBytes = (to: I32, from: I32, n: number): Code => [to.b, from.b, i32.const(n).b, 0xfc, 0x0a, 0, 0];
