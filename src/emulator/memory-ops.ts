// Vector memory: global, generic, private and LDS loads, stores and atomics.
import { flatAddress, globalAddress, ldsAddress, privateAddress } from './address.js';
import type { Context } from './context.js';
import { modNumber, type Instruction, type Operand } from './instruction.js';
import { ACCESS, FAIL, SCRATCH_MARK } from './layout.js';
import type { Handler } from './scalar-ops.js';
import {
  callVoid,
  cmpxchg,
  f32,
  f64,
  i32,
  i64,
  rmw,
  RMW,
  select,
  store,
  store16,
  store8,
  type Expr,
  type F32,
  type F64,
  type I32,
  type I64,
} from './wasm.js';

type Space = 'global' | 'flat' | 'private' | 'lds';
const K = i32.const;

/** Value kinds: bytes in memory and how they fill registers. */
interface Shape {
  readonly bytes: number;
  readonly words: number;
  readonly signed?: boolean;
  readonly half?: 'low' | 'high';
}
const SHAPES: Record<string, Shape> = {
  u8: { bytes: 1, words: 1 },
  i8: { bytes: 1, words: 1, signed: true },
  u16: { bytes: 2, words: 1 },
  i16: { bytes: 2, words: 1, signed: true },
  b8: { bytes: 1, words: 1 },
  b16: { bytes: 2, words: 1 },
  b32: { bytes: 4, words: 1 },
  b64: { bytes: 8, words: 2 },
  b96: { bytes: 12, words: 3 },
  b128: { bytes: 16, words: 4 },
  d16_u8: { bytes: 1, words: 1, half: 'low' },
  d16_i8: { bytes: 1, words: 1, signed: true, half: 'low' },
  d16_b16: { bytes: 2, words: 1, half: 'low' },
  d16_hi_u8: { bytes: 1, words: 1, half: 'high' },
  d16_hi_i8: { bytes: 1, words: 1, signed: true, half: 'high' },
  d16_hi_b16: { bytes: 2, words: 1, half: 'high' },
  d16_hi_b8: { bytes: 1, words: 1, half: 'high' },
};

function report(c: Context, kind: number, at: I32, bytes: number): void {
  if (c.checked) c.f.emit(callVoid(c.h.index('access'), K(kind), at, K(bytes), K(c.site), c.lane.get, c.w));
}
const kindOf = (space: Space, action: 'READ' | 'WRITE' | 'ATOMIC'): number =>
  space === 'lds' ? ACCESS[`LDS_${action}`] : ACCESS[action];

function loadValue(p: I32, s: Shape, word: number): I32 {
  if (s.bytes === 1) return s.signed ? i32.load8_s(p) : i32.load8_u(p);
  if (s.bytes === 2) return s.signed ? i32.load16_s(p) : i32.load16_u(p);
  return i32.load(p, 4 * word);
}

function loadInto(c: Context, d: Operand, p: I32, s: Shape): void {
  const values = Array.from({ length: s.words }, (_, k) => c.f.let(loadValue(p, s, k)));
  if (s.half || d.half !== undefined) {
    const bits =
      s.half === 'high' || d.half === 1
        ? i32.or(i32.and(c.vget(d.reg), K(65535)), i32.shl(values[0], K(16)))
        : i32.or(i32.and(c.vget(d.reg), K(0xffff0000 | 0)), i32.and(values[0], K(65535)));
    c.vset(d.reg, bits);
  } else values.forEach((v, k) => c.vset(d.reg + k, v));
}

function storeFrom(c: Context, o: Operand, p: I32, s: Shape): void {
  for (let k = 0; k < s.words; k++) {
    let v = c.vget(o.reg + k);
    if (s.half === 'high' || o.half === 1) v = i32.shr_u(v, K(16));
    c.f.emit(s.bytes === 1 ? store8(p, v) : s.bytes === 2 ? store16(p, v) : store(p, v, 4 * k));
  }
}

/** A 32-bit scalar operand inside the loop. */
const uniform32 = (c: Context, o: Operand): I32 =>
  o.kind === 's' ? (c.uniform(o.reg, 'i32') as I32) : K(Number(BigInt.asIntN(32, o.int ?? 0n)));

/** The address operands of each instruction family, as a checked offset in linear memory. */
function address(
  c: Context,
  i: Instruction,
  space: Space,
  vaddr: Operand,
  saddr: Operand | undefined,
  bytes: number,
): I32 {
  const offset = modNumber(i, 'offset');
  if (space === 'private') {
    let at: I32 = K(offset);
    if (vaddr.kind === 'v') at = i32.add(at, c.vget(vaddr.reg));
    if (saddr && saddr.kind === 's') at = i32.add(at, uniform32(c, saddr));
    return privateAddress(c, at, bytes);
  }
  let at: I64 = i64.const(offset);
  if (saddr && saddr.kind === 's')
    at = i64.add(i64.add(c.uniform(saddr.reg, 'i64') as I64, i64.extend_u(c.vget(vaddr.reg))), at);
  else at = i64.add(c.vget64(vaddr.reg), at);
  return space === 'flat' ? flatAddress(c, at, bytes) : globalAddress(c, at, bytes, c.lane.get);
}

/** Scratch through the buffer path: the scalar offset counts bytes of the whole wave, the rest bytes of the lane. */
function bufferAddress(
  c: Context,
  i: Instruction,
  vaddr: Operand,
  resource: Operand,
  soffset: Operand,
  bytes: number,
): I32 {
  const mark = c.uniform(resource.reg + 3, 'i32') as I32;
  c.f.when(i32.ne(mark, K(SCRATCH_MARK)), () => c.fail(FAIL.BUFFER, mark));
  const shift = c.target.wave === 64 ? 6 : 5;
  let at: I32 = i32.add(i32.shr_u(uniform32(c, soffset), K(shift)), K(modNumber(i, 'offset')));
  if (vaddr.kind === 'v') at = i32.add(at, c.vget(vaddr.reg));
  return privateAddress(c, at, bytes);
}

const SPACE: Record<string, Space> = { global: 'global', flat: 'flat', scratch: 'private', buffer: 'private' };

function vectorMemory(family: string, action: string, shape: Shape): Handler {
  const space = SPACE[family];
  return (c, i) => {
    if (i.mods.lds) c.unsupported(i, 'direct loads to LDS');
    if (space !== 'private') c.order(space, action === 'store');
    c.lanes(i, () => {
      let p: I32;
      let data: Operand;
      if (family === 'buffer') {
        const [d, v, r, s] = i.ops;
        data = d;
        p = bufferAddress(c, i, v, r, s, shape.bytes);
      } else if (action === 'load') {
        data = i.ops[0];
        p = address(c, i, space, i.ops[1], i.ops[2], shape.bytes);
      } else {
        data = i.ops[1];
        p = address(c, i, space, i.ops[0], i.ops[2], shape.bytes);
      }
      const at = c.f.let(p);
      if (space !== 'private') report(c, kindOf(space, action === 'load' ? 'READ' : 'WRITE'), at, shape.bytes);
      if (action === 'load') loadInto(c, data, at, shape);
      else storeFrom(c, data, at, shape);
    });
    if (space !== 'private') c.traffic(action === 'load' ? shape.bytes : 0, action === 'load' ? 0 : shape.bytes);
  };
}

// ---- atomics ------------------------------------------------------------------------------------

const f = (x: I32): F32 => f32.fromBits(x);
const d = (x: I64): F64 => f64.fromBits(x);
type Update = (old: never, data: never, c: Context) => Expr;
/** New memory value from the old one and the operand, for those that are not a single host instruction. */
const UPDATES: Record<string, Update> = {
  min_i32: (a: I32, b: I32) => select(i32.lt_s(a, b), a, b),
  max_i32: (a: I32, b: I32) => select(i32.gt_s(a, b), a, b),
  min_u32: (a: I32, b: I32) => select(i32.lt_u(a, b), a, b),
  max_u32: (a: I32, b: I32) => select(i32.gt_u(a, b), a, b),
  min_i64: (a: I64, b: I64) => select(i64.lt_s(a, b), a, b),
  max_i64: (a: I64, b: I64) => select(i64.gt_s(a, b), a, b),
  min_u64: (a: I64, b: I64) => select(i64.lt_u(a, b), a, b),
  max_u64: (a: I64, b: I64) => select(i64.gt_u(a, b), a, b),
  inc_u32: (a: I32, b: I32) => select(i32.ge_u(a, b), K(0), i32.add(a, K(1))),
  dec_u32: (a: I32, b: I32) => select(i32.eqz(a), b, select(i32.gt_u(a, b), b, i32.sub(a, K(1)))),
  inc_u64: (a: I64, b: I64) => select(i64.ge_u(a, b), i64.const(0), i64.add(a, i64.const(1))),
  dec_u64: (a: I64, b: I64) => select(i64.eqz(a), b, select(i64.gt_u(a, b), b, i64.sub(a, i64.const(1)))),
  add_f32: (a: I32, b: I32) => i32.fromBits(f32.add(f(a), f(b))),
  add_f64: (a: I64, b: I64) => i64.fromBits(f64.add(d(a), d(b))),
  min_f32: (a: I32, b: I32, c) => i32.fromBits(c.h.call('min32', f(a), f(b))),
  max_f32: (a: I32, b: I32, c) => i32.fromBits(c.h.call('max32', f(a), f(b))),
  min_f64: (a: I64, b: I64, c) => i64.fromBits(c.h.call('min64', d(a), d(b))),
  max_f64: (a: I64, b: I64, c) => i64.fromBits(c.h.call('max64', d(a), d(b))),
  pk_add_f16: (a: I32, b: I32, c) => {
    const half = (x: I32, n: number) => c.h.call('h2f', n ? i32.shr_u(x, K(16)) : x);
    const sum = (n: number) => c.h.call('f2h', f32.add(half(a, n), half(b, n)));
    return i32.or(i32.and(sum(0), K(65535)), i32.shl(sum(1), K(16)));
  },
};
const DIRECT: Record<string, keyof typeof RMW> = {
  add_u: 'add',
  sub_u: 'sub',
  and_b: 'and',
  or_b: 'or',
  xor_b: 'xor',
  swap_b: 'swap',
};

/** Performs an atomic at an offset and gives the value before it. `compare` is set for compare-and-swap. */
function atomic(c: Context, op: string, at: I32, data: Expr, compare?: Expr): Expr {
  const wide = data.t === 'i64';
  c.f.when(i32.and(at, K(wide ? 7 : 3)), () => c.fail(FAIL.MISALIGNED, at));
  if (compare)
    return c.f.let(wide ? cmpxchg(at, compare as I64, data as I64) : cmpxchg(at, compare as I32, data as I32));
  const direct = DIRECT[op.replace(/(32|64)$/, '')];
  if (direct) return c.f.let(wide ? rmw(direct, at, data as I64) : rmw(direct, at, data as I32));
  const update = UPDATES[op];
  const old = c.f.local(wide ? 'i64' : 'i32');
  const seen = c.f.local(wide ? 'i64' : 'i32');
  c.f.emit((seen as typeof old).set((wide ? i64.load(at) : i32.load(at)) as never));
  c.f.repeat(() => {
    c.f.emit((old as typeof seen).set(seen.get as never));
    const next = c.f.let(update(old.get as never, data as never, c));
    c.f.emit(
      (seen as typeof old).set(
        (wide ? cmpxchg(at, old.get as I64, next as I64) : cmpxchg(at, old.get as I32, next as I32)) as never,
      ),
    );
    return wide ? i64.ne(seen.get as I64, old.get as I64) : i32.ne(seen.get as I32, old.get as I32);
  });
  return old.get;
}

const knownAtomic = (op: string): boolean =>
  op in UPDATES || op.replace(/(32|64)$/, '') in DIRECT || /^cmpswap_b(32|64)$/.test(op);

function vectorAtomic(family: string, op: string): Handler {
  const space = SPACE[family];
  const wide = op.endsWith('64');
  const bytes = wide ? 8 : 4;
  return (c, i) => {
    c.order(space, true);
    c.lanes(i, () => {
      // A result register comes first when there is one more operand than address, data and (global) scalar base.
      const expected = space === 'global' ? 3 : 2;
      const returns = i.ops.length > expected;
      const [v, o, s] = returns ? i.ops.slice(1) : i.ops;
      const at = c.f.let(address(c, i, space, v, space === 'global' ? s : undefined, bytes));
      report(c, kindOf(space, 'ATOMIC'), at, bytes);
      const value = (reg: number): Expr => (wide ? c.vget64(reg) : c.vget(reg));
      const old = atomic(c, op, at, value(o.reg), op.startsWith('cmpswap') ? value(o.reg + (wide ? 2 : 1)) : undefined);
      if (returns) c.vset(i.ops[0].reg, old);
    });
    c.traffic(bytes, bytes);
  };
}

// ---- LDS ----------------------------------------------------------------------------------------

function ldsMemory(action: string, shape: Shape): Handler {
  return (c, i) => {
    c.order('lds', action === 'store');
    c.lanes(i, () => {
      const a = action === 'load' ? i.ops[1] : i.ops[0];
      const at = c.f.let(ldsAddress(c, i32.add(c.vget(a.reg), K(modNumber(i, 'offset'))), shape.bytes));
      report(c, kindOf('lds', action === 'load' ? 'READ' : 'WRITE'), at, shape.bytes);
      if (action === 'load') loadInto(c, i.ops[0], at, shape);
      else storeFrom(c, i.ops[1], at, shape);
    });
  };
}

/** Two values at offsets counted in elements, or in 64 elements. */
function ldsPair(action: string, stride64: boolean, shape: Shape): Handler {
  return (c, i) => {
    c.order('lds', action === 'store');
    c.lanes(i, () => {
      const unit = shape.bytes * (stride64 ? 64 : 1);
      const base = c.vget((action === 'load' ? i.ops[1] : i.ops[0]).reg);
      const at = ['offset0', 'offset1'].map((k) => {
        const p = c.f.let(ldsAddress(c, i32.add(base, K(modNumber(i, k) * unit)), shape.bytes));
        report(c, kindOf('lds', action === 'load' ? 'READ' : 'WRITE'), p, shape.bytes);
        return p;
      });
      if (action === 'load') {
        const values = at.flatMap((p) => Array.from({ length: shape.words }, (_, k) => c.f.let(i32.load(p, 4 * k))));
        values.forEach((v, k) => c.vset(i.ops[0].reg + k, v));
      } else at.forEach((p, k) => storeFrom(c, i.ops[1 + k], p, shape));
    });
  };
}

function ldsAtomic(op: string, returns: boolean): Handler {
  const wide = op.endsWith('64');
  const bytes = wide ? 8 : 4;
  return (c, i) => {
    c.order('lds', true);
    c.lanes(i, () => {
      const [a, x, y] = returns ? i.ops.slice(1) : i.ops;
      const at = c.f.let(ldsAddress(c, i32.add(c.vget(a.reg), K(modNumber(i, 'offset'))), bytes));
      report(c, kindOf('lds', 'ATOMIC'), at, bytes);
      const value = (o: Operand): Expr => (wide ? c.vget64(o.reg) : c.vget(o.reg));
      let old: Expr;
      if (op.startsWith('cmpstoreold'))
        old = atomic(c, op, at, value(y), value(x)); // before generation 11 the comparand came first
      else if (op.startsWith('cmpstore')) old = atomic(c, op, at, value(x), value(y));
      else old = atomic(c, op.replace('storexchg', 'swap'), at, value(x));
      if (returns) c.vset(i.ops[0].reg, old);
    });
  };
}

export function memoryHandler(name: string): Handler | undefined {
  let m = /^(global|flat|scratch|buffer)_(load|store)_(\w+)$/.exec(name);
  if (m && m[3] in SHAPES) return vectorMemory(m[1], m[2], SHAPES[m[3]]);
  m = /^(global|flat)_atomic_(\w+)$/.exec(name);
  if (m && knownAtomic(m[2])) return vectorAtomic(m[1], m[2]);
  m = /^ds_(load|store)_2addr_(stride64_)?(b32|b64)$/.exec(name);
  if (m) return ldsPair(m[1], m[2] !== undefined, SHAPES[m[3]]);
  m = /^ds_(load|store)_(\w+)$/.exec(name);
  if (m && m[2] in SHAPES) return ldsMemory(m[1], SHAPES[m[2]]);
  m =
    /^ds_(add|sub|min|max|inc|dec|and|or|xor|storexchg|cmpstoreold|cmpstore|pk_add)_(rtn_)?([buif](?:16|32|64))$/.exec(
      name,
    );
  if (m) {
    const op = `${m[1]}_${m[3]}`;
    const known = op.startsWith('cmpstore') || op.startsWith('storexchg') || knownAtomic(op);
    if (known) return ldsAtomic(op, m[2] !== undefined);
  }
  return undefined;
}
