// Scalar instructions: arithmetic, logic, compares, exec-mask updates, scalar floats and scalar loads.
import { UnsupportedError } from '../base/errors.js';
import type { Context } from './context.js';
import { SREG, modNumber, type Instruction } from './instruction.js';
import { scalarRead } from './operands.js';
import { f32, i32, i64, select, type Expr, type F32, type I32, type I64, and, or } from './wasm.js';
import { globalAddress } from './address.js';

type Handler = (c: Context, i: Instruction) => void;
const nonZero = (v: Expr): I32 => (v.t === 'i64' ? i64.ne(v as I64, i64.const(0)) : i32.ne(v as I32, i32.const(0)));

/** Result and SCC of a two-operand instruction; SCC is kept where none is given. */
const logic = (r: I32) => ({ r, scc: 'nonzero' as const });
const plain = (r: I32) => ({ r });

const carry = (a: I32, r: I32) => i32.lt_u(r, a);
const BINARY: Record<string, (a: I32, b: I32, c: Context) => { r: I32; scc?: I32 | 'nonzero' }> = {
  s_add_u32: (a, b, c) => {
    const r = c.f.let(i32.add(a, b));
    return { r, scc: carry(a, r) };
  },
  s_sub_u32: (a, b) => ({ r: i32.sub(a, b), scc: i32.lt_u(a, b) }),
  s_addc_u32: (a, b, c) => {
    const sum = c.f.let(i64.add(i64.add(i64.extend_u(a), i64.extend_u(b)), i64.extend_u(c.scc)));
    return { r: i32.wrap(sum), scc: i32.wrap(i64.shr_u(sum, i64.const(32))) };
  },
  s_subc_u32: (a, b, c) => {
    const d = c.f.let(i64.sub(i64.sub(i64.extend_u(a), i64.extend_u(b)), i64.extend_u(c.scc)));
    return { r: i32.wrap(d), scc: i64.lt_s(d, i64.const(0)) };
  },
  s_add_i32: (a, b, c) => {
    const r = c.f.let(i32.add(a, b));
    return { r, scc: i32.lt_s(i32.and(i32.xor(a, r), i32.xor(b, r)), i32.const(0)) };
  },
  s_sub_i32: (a, b, c) => {
    const r = c.f.let(i32.sub(a, b));
    return { r, scc: i32.lt_s(i32.and(i32.xor(a, b), i32.xor(a, r)), i32.const(0)) };
  },
  s_min_i32: (a, b) => ({ r: select(i32.lt_s(a, b), a, b), scc: i32.lt_s(a, b) }),
  s_min_u32: (a, b) => ({ r: select(i32.lt_u(a, b), a, b), scc: i32.lt_u(a, b) }),
  s_max_i32: (a, b) => ({ r: select(i32.gt_s(a, b), a, b), scc: i32.gt_s(a, b) }),
  s_max_u32: (a, b) => ({ r: select(i32.gt_u(a, b), a, b), scc: i32.gt_u(a, b) }),
  s_cselect_b32: (a, b, c) => plain(select(c.scc, a, b)),
  s_lshl_b32: (a, b) => logic(i32.shl(a, b)),
  s_lshr_b32: (a, b) => logic(i32.shr_u(a, b)),
  s_ashr_i32: (a, b) => logic(i32.shr_s(a, b)),
  s_bfm_b32: (a, b) => plain(i32.shl(i32.sub(i32.shl(i32.const(1), a), i32.const(1)), b)),
  s_mul_i32: (a, b) => plain(i32.mul(a, b)),
  s_mul_hi_u32: (a, b) => plain(i32.wrap(i64.shr_u(i64.mul(i64.extend_u(a), i64.extend_u(b)), i64.const(32)))),
  s_mul_hi_i32: (a, b) => plain(i32.wrap(i64.shr_u(i64.mul(i64.extend_s(a), i64.extend_s(b)), i64.const(32)))),
  s_bfe_u32: (a, b, c) => logic(bitField(c, a, b, false)),
  s_bfe_i32: (a, b, c) => logic(bitField(c, a, b, true)),
  s_absdiff_i32: (a, b, c) => {
    const d = c.f.let(i32.sub(a, b));
    return logic(select(i32.lt_s(d, i32.const(0)), i32.sub(i32.const(0), d), d));
  },
  ...Object.fromEntries(
    [1, 2, 3, 4].map((n) => [
      `s_lshl${n}_add_u32`,
      (a: I32, b: I32, c: Context) => {
        const sum = c.f.let(i64.add(i64.shl(i64.extend_u(a), i64.const(n)), i64.extend_u(b)));
        return { r: i32.wrap(sum), scc: i64.gt_u(sum, i64.const(0xffffffff)) };
      },
    ]),
  ),
  s_pack_ll_b32_b16: (a, b) => plain(i32.or(i32.and(a, i32.const(0xffff)), i32.shl(b, i32.const(16)))),
  s_pack_lh_b32_b16: (a, b) => plain(i32.or(i32.and(a, i32.const(0xffff)), i32.and(b, i32.const(0xffff0000 | 0)))),
  s_pack_hh_b32_b16: (a, b) => plain(i32.or(i32.shr_u(a, i32.const(16)), i32.and(b, i32.const(0xffff0000 | 0)))),
  s_pack_hl_b32_b16: (a, b) => plain(i32.or(i32.shr_u(a, i32.const(16)), i32.shl(b, i32.const(16)))),
};

/** Offset in bits 0-4, width in bits 16-22. */
function bitField(c: Context, a: I32, spec: I32, signed: boolean): I32 {
  const offset = c.f.let(i32.and(spec, i32.const(31)));
  const width = c.f.let(i32.and(i32.shr_u(spec, i32.const(16)), i32.const(127)));
  const x = c.f.let(signed ? i64.extend_s(i32.shr_s(a, offset)) : i64.extend_u(i32.shr_u(a, offset)));
  const up = i64.sub(i64.const(64), i64.extend_u(width));
  const cut = signed ? i64.shr_s(i64.shl(x, up), up) : i64.shr_u(i64.shl(x, up), up);
  return c.f.let(select(i32.eqz(width), i32.const(0), i32.wrap(cut)));
}

const LOGIC: Record<string, (a: Expr, b: Expr) => Expr> = {};
{
  const not32 = (x: I32) => i32.xor(x, i32.const(-1));
  const not64 = (x: I64) => i64.xor(x, i64.const(-1));
  const both = (name: string, f: (o: typeof i32, n: (x: I32) => I32, a: I32, b: I32) => I32) => {
    LOGIC[`${name}_b32`] = (a, b) => f(i32, not32, a as I32, b as I32);
    LOGIC[`${name}_b64`] = (a, b) => f(i64 as never, not64 as never, a as never, b as never);
  };
  both('and', (o, _, a, b) => o.and(a, b));
  both('or', (o, _, a, b) => o.or(a, b));
  both('xor', (o, _, a, b) => o.xor(a, b));
  both('and_not1', (o, n, a, b) => o.and(a, n(b)));
  both('or_not1', (o, n, a, b) => o.or(a, n(b)));
  both('and_not0', (o, n, a, b) => o.and(n(a), b));
  both('or_not0', (o, n, a, b) => o.or(n(a), b));
  both('nand', (o, n, a, b) => n(o.and(a, b)));
  both('nor', (o, n, a, b) => n(o.or(a, b)));
  both('xnor', (o, n, a, b) => n(o.xor(a, b)));
}

const BINARY64: Record<string, (a: I64, b: I64 | I32, c: Context) => { r: I64; scc?: 'nonzero' }> = {
  s_lshl_b64: (a, b) => ({ r: i64.shl(a, i64.extend_u(b as I32)), scc: 'nonzero' }),
  s_lshr_b64: (a, b) => ({ r: i64.shr_u(a, i64.extend_u(b as I32)), scc: 'nonzero' }),
  s_ashr_i64: (a, b) => ({ r: i64.shr_s(a, i64.extend_u(b as I32)), scc: 'nonzero' }),
  s_bfe_u64: (a, b, c) => ({ r: bitField64(c, a, b as I32, false), scc: 'nonzero' }),
  s_bfe_i64: (a, b, c) => ({ r: bitField64(c, a, b as I32, true), scc: 'nonzero' }),
  s_cselect_b64: (a, b, c) => ({ r: select(c.scc, a, b as I64) }),
  s_add_u64: (a, b) => ({ r: i64.add(a, b as I64) }),
  s_sub_u64: (a, b) => ({ r: i64.sub(a, b as I64) }),
  s_mul_u64: (a, b) => ({ r: i64.mul(a, b as I64) }),
};
function bitField64(c: Context, a: I64, spec: I32, signed: boolean): I64 {
  const offset = i64.extend_u(i32.and(spec, i32.const(63)));
  const width = c.f.let(i64.extend_u(i32.and(i32.shr_u(spec, i32.const(16)), i32.const(127))));
  const x = c.f.let(signed ? i64.shr_s(a, offset) : i64.shr_u(a, offset));
  const up = i64.sub(i64.const(64), width);
  const cut = signed ? i64.shr_s(i64.shl(x, up), up) : i64.shr_u(i64.shl(x, up), up);
  return c.f.let(select(i64.eqz(width), i64.const(0), select(i64.ge_u(width, i64.const(64)), x, cut)));
}

/** -1 where no bit is found. */
const orMinus = (found: Expr, none: I32): I32 =>
  select(none, i32.const(-1), found.t === 'i64' ? i32.wrap(found as I64) : (found as I32));
const UNARY: Record<string, { in: 32 | 64; f: (a: never, c: Context) => Expr; scc?: boolean }> = {
  s_mov_b32: { in: 32, f: (a: I32) => a },
  s_mov_b64: { in: 64, f: (a: I64) => a },
  s_not_b32: { in: 32, f: (a: I32) => i32.xor(a, i32.const(-1)), scc: true },
  s_not_b64: { in: 64, f: (a: I64) => i64.xor(a, i64.const(-1)), scc: true },
  s_brev_b32: { in: 32, f: (a: I32, c) => c.h.call('brev', a) },
  s_brev_b64: {
    in: 64,
    f: (a: I64, c) =>
      i64.or(
        i64.shl(i64.extend_u(c.h.call('brev', i32.wrap(a))), i64.const(32)),
        i64.extend_u(c.h.call('brev', i32.wrap(i64.shr_u(a, i64.const(32))))),
      ),
  },
  s_bcnt0_i32_b32: { in: 32, f: (a: I32) => i32.popcnt(i32.xor(a, i32.const(-1))), scc: true },
  s_bcnt1_i32_b32: { in: 32, f: (a: I32) => i32.popcnt(a), scc: true },
  s_bcnt0_i32_b64: { in: 64, f: (a: I64) => i32.wrap(i64.popcnt(i64.xor(a, i64.const(-1)))), scc: true },
  s_bcnt1_i32_b64: { in: 64, f: (a: I64) => i32.wrap(i64.popcnt(a)), scc: true },
  s_ctz_i32_b32: { in: 32, f: (a: I32) => orMinus(i32.ctz(a), i32.eqz(a)) },
  s_ctz_i32_b64: { in: 64, f: (a: I64) => orMinus(i64.ctz(a), i64.eqz(a)) },
  s_clz_i32_u32: { in: 32, f: (a: I32) => orMinus(i32.clz(a), i32.eqz(a)) },
  s_clz_i32_u64: { in: 64, f: (a: I64) => orMinus(i64.clz(a), i64.eqz(a)) },
  s_clz_i32_u32_b32: { in: 32, f: (a: I32) => orMinus(i32.clz(a), i32.eqz(a)) },
  s_cls_i32: {
    in: 32,
    f: (a: I32, c) => {
      const x = c.f.let(i32.xor(a, i32.shr_s(a, i32.const(31))));
      return orMinus(i32.clz(x), i32.eqz(x));
    },
  },
  s_sext_i32_i8: { in: 32, f: (a: I32) => i32.extend8(a) },
  s_sext_i32_i16: { in: 32, f: (a: I32) => i32.extend16(a) },
  s_abs_i32: { in: 32, f: (a: I32) => select(i32.lt_s(a, i32.const(0)), i32.sub(i32.const(0), a), a), scc: true },
};

const SFLOAT2: Record<string, (a: F32, b: F32, c: Context) => F32> = {
  add: (a, b) => f32.add(a, b),
  sub: (a, b) => f32.sub(a, b),
  mul: (a, b) => f32.mul(a, b),
  min: (a, b, c) => c.h.call('min32', a, b),
  max: (a, b, c) => c.h.call('max32', a, b),
};
const SFLOAT1: Record<string, (a: F32) => F32> = {
  ceil: f32.ceil,
  floor: f32.floor,
  trunc: f32.trunc,
  rndne: f32.nearest,
};

const COMPARE: Record<string, { f: keyof typeof f32 | 'o' | 'u' | 'lg'; not?: boolean }> = {
  lt: { f: 'lt' },
  eq: { f: 'eq' },
  le: { f: 'le' },
  gt: { f: 'gt' },
  lg: { f: 'lg' },
  ge: { f: 'ge' },
  o: { f: 'o' },
  u: { f: 'u' },
  nge: { f: 'ge', not: true },
  nlg: { f: 'lg', not: true },
  ngt: { f: 'gt', not: true },
  nle: { f: 'le', not: true },
  neq: { f: 'eq', not: true },
  nlt: { f: 'lt', not: true },
};
type FloatOps = { lt: Function; eq: Function; ne: Function; gt: Function; le: Function; ge: Function };
export function floatCompare(ops: FloatOps, name: string, a: Expr, b: Expr): I32 | undefined {
  const spec = COMPARE[name];
  if (!spec) return undefined;
  let r: I32;
  if (spec.f === 'lg') r = or(ops.lt(a, b) as I32, ops.gt(a, b) as I32);
  else if (spec.f === 'o') r = and(ops.eq(a, a) as I32, ops.eq(b, b) as I32);
  else if (spec.f === 'u') r = or(ops.ne(a, a) as I32, ops.ne(b, b) as I32);
  else r = (ops as unknown as Record<string, Function>)[spec.f](a, b) as I32;
  return spec.not ? i32.eqz(r) : r;
}
const intCompare = (name: string, sign: string): string =>
  name === 'eq' || name === 'ne' ? name : `${name}_${sign === 'i' ? 's' : 'u'}`;

const sext16 = (i: Instruction, k: number): number => (Number(i.ops[k].int!) << 16) >> 16;

/** Instructions that a table has: one result of two operands or of one. */
function fromTables(name: string): Handler | undefined {
  if (name in BINARY) {
    return (c, i) =>
      c.scalar(() => {
        const { r, scc } = BINARY[name](
          c.f.let(scalarRead(c, i.ops[1], 'b32')),
          c.f.let(scalarRead(c, i.ops[2], 'b32')),
          c,
        );
        const v = c.f.let(r);
        if (scc === 'nonzero') c.setScc(nonZero(v));
        else if (scc) c.setScc(scc);
        c.sset(i.ops[0].reg, v);
      });
  }
  if (name in BINARY64) {
    const shift = /^s_(lsh|ash|bfe)/.test(name);
    return (c, i) =>
      c.scalar(() => {
        const { r, scc } = BINARY64[name](
          c.f.let(scalarRead(c, i.ops[1], 'b64')),
          c.f.let(scalarRead(c, i.ops[2], shift ? 'b32' : 'b64') as I64),
          c,
        );
        const v = c.f.let(r);
        if (scc) c.setScc(nonZero(v));
        c.sset(i.ops[0].reg, v);
      });
  }
  if (name in UNARY) {
    const u = UNARY[name];
    return (c, i) =>
      c.scalar(() => {
        const a = c.f.let(u.in === 64 ? scalarRead(c, i.ops[1], 'b64') : scalarRead(c, i.ops[1], 'b32'));
        const v = c.f.let(u.f(a as never, c));
        if (u.scc) c.setScc(nonZero(v));
        c.sset(i.ops[0].reg, v);
      });
  }
  return undefined;
}

/** Bitwise logic, also on the execution mask. */
function bitwise(name: string): Handler | undefined {
  let m: RegExpExecArray | null;
  if ((m = /^s_(\w+?)_(saveexec|wrexec)_(b32|b64)$/.exec(name)) && `${m[1]}_${m[3]}` in LOGIC) {
    const [, op, kind, t] = m;
    return (c, i) =>
      c.scalar(() => {
        const exec = c.f.let(t === 'b64' ? c.sget64(SREG.EXEC) : c.sget(SREG.EXEC));
        const r = c.f.let(LOGIC[`${op}_${t}`](c.f.let(scalarRead(c, i.ops[1], t as 'b32')), exec));
        c.sset(i.ops[0].reg, kind === 'saveexec' ? exec : r);
        c.sset(SREG.EXEC, r);
        c.setScc(nonZero(r));
      });
  }
  if ((m = /^s_(\w+)$/.exec(name)) && m[1] in LOGIC) {
    const t = name.endsWith('64') ? 'b64' : 'b32';
    return (c, i) =>
      c.scalar(() => {
        const r = c.f.let(LOGIC[m![1]](scalarRead(c, i.ops[1], t as 'b32'), scalarRead(c, i.ops[2], t as 'b32')));
        c.setScc(nonZero(r));
        c.sset(i.ops[0].reg, r);
      });
  }
  return undefined;
}

function comparison(name: string): Handler | undefined {
  let m: RegExpExecArray | null;
  if ((m = /^s_cmp(k?)_(\w+)_([iu])(32|64)$/.exec(name))) {
    const [, k, cond, sign, width] = m;
    const op = intCompare(cond === 'lg' ? 'ne' : cond, sign) as 'eq';
    return (c, i) =>
      c.scalar(() => {
        if (width === '64') c.setScc(i64[op](scalarRead(c, i.ops[0], 'b64'), scalarRead(c, i.ops[1], 'b64')));
        else {
          const b = k
            ? i32.const(sign === 'i' ? sext16(i, 1) : Number(i.ops[1].int!) & 0xffff)
            : scalarRead(c, i.ops[1], 'b32');
          c.setScc(i32[op](scalarRead(c, i.ops[0], 'b32'), b));
        }
      });
  }
  if ((m = /^s_cmp_(\w+)_f32$/.exec(name))) {
    return (c, i) =>
      c.scalar(() =>
        c.setScc(
          floatCompare(f32, m![1], c.f.let(scalarRead(c, i.ops[0], 'f32')), c.f.let(scalarRead(c, i.ops[1], 'f32')))!,
        ),
      );
  }
  return undefined;
}

/** Single bits, looked at or set. */
function singleBit(name: string): Handler | undefined {
  let m: RegExpExecArray | null;
  if ((m = /^s_bitcmp([01])_b(32|64)$/.exec(name))) {
    return (c, i) =>
      c.scalar(() => {
        const at = scalarRead(c, i.ops[1], 'b32');
        const bit =
          m![2] === '64'
            ? i32.wrap(i64.shr_u(scalarRead(c, i.ops[0], 'b64'), i64.extend_u(at)))
            : i32.shr_u(scalarRead(c, i.ops[0], 'b32'), at);
        c.setScc(i32.eq(i32.and(bit, i32.const(1)), i32.const(Number(m![1]))));
      });
  }
  if ((m = /^s_bitset([01])_b(32|64)$/.exec(name))) {
    return (c, i) =>
      c.scalar(() => {
        const d = i.ops[0].reg;
        const at = scalarRead(c, i.ops[1], 'b32');
        if (m![2] === '64') {
          const bit = i64.shl(i64.const(1), i64.extend_u(at));
          c.sset(d, m![1] === '1' ? i64.or(c.sget64(d), bit) : i64.and(c.sget64(d), i64.xor(bit, i64.const(-1))));
        } else {
          const bit = i32.shl(i32.const(1), at);
          c.sset(d, m![1] === '1' ? i32.or(c.sget(d), bit) : i32.and(c.sget(d), i32.xor(bit, i32.const(-1))));
        }
      });
  }
  return undefined;
}

/** Constants of 16 bits, conditional moves, masks. */
function move(name: string): Handler | undefined {
  if (name === 's_movk_i32') return (c, i) => c.scalar(() => c.sset(i.ops[0].reg, i32.const(sext16(i, 1))));
  if (name === 's_mulk_i32')
    return (c, i) => c.scalar(() => c.sset(i.ops[0].reg, i32.mul(c.sget(i.ops[0].reg), i32.const(sext16(i, 1)))));
  if (name === 's_addk_i32') {
    return (c, i) =>
      c.scalar(() => {
        const { r, scc } = BINARY.s_add_i32(c.f.let(c.sget(i.ops[0].reg)), i32.const(sext16(i, 1)), c);
        c.setScc(scc as I32);
        c.sset(i.ops[0].reg, r);
      });
  }
  if (name === 's_cmov_b32' || name === 's_cmovk_i32') {
    return (c, i) =>
      c.scalar(() => {
        const v = name === 's_cmov_b32' ? scalarRead(c, i.ops[1], 'b32') : i32.const(sext16(i, 1));
        c.sset(i.ops[0].reg, select(c.scc, v, c.sget(i.ops[0].reg)));
      });
  }
  if (name === 's_cmov_b64')
    return (c, i) =>
      c.scalar(() => c.sset(i.ops[0].reg, select(c.scc, scalarRead(c, i.ops[1], 'b64'), c.sget64(i.ops[0].reg))));
  if (name === 's_bfm_b64') {
    return (c, i) =>
      c.scalar(() => {
        const ones = i64.sub(i64.shl(i64.const(1), i64.extend_u(scalarRead(c, i.ops[1], 'b32'))), i64.const(1));
        c.sset(i.ops[0].reg, i64.shl(ones, i64.extend_u(scalarRead(c, i.ops[2], 'b32'))));
      });
  }
  return undefined;
}

export const scalarHandler = (name: string): Handler | undefined =>
  fromTables(name) ??
  bitwise(name) ??
  comparison(name) ??
  singleBit(name) ??
  move(name) ??
  scalarFloat(name) ??
  scalarLoad(name);

const TRANS: Record<string, 'exp2_32' | 'log2_32' | 'rcp32' | 'rsq32' | 'sqrt32'> = {
  exp: 'exp2_32',
  log: 'log2_32',
  rcp: 'rcp32',
  rsq: 'rsq32',
  sqrt: 'sqrt32',
};
/** Scalar floats of generations 11.5 and 12. */
function scalarFloat(name: string): Handler | undefined {
  const m = /^s_(\w+?)_f32$/.exec(name);
  if (m && m[1] in SFLOAT2)
    return (c, i) =>
      c.scalar(() =>
        c.sset(
          i.ops[0].reg,
          i32.fromBits(
            SFLOAT2[m[1]](c.f.let(scalarRead(c, i.ops[1], 'f32')), c.f.let(scalarRead(c, i.ops[2], 'f32')), c),
          ),
        ),
      );
  if (m && m[1] in SFLOAT1)
    return (c, i) => c.scalar(() => c.sset(i.ops[0].reg, i32.fromBits(SFLOAT1[m[1]](scalarRead(c, i.ops[1], 'f32')))));
  // Transcendentals of generation 12 on scalar registers, named after the vector unit that computes them.
  const trans = /^v_s_(exp|log|rcp|rsq|sqrt)_f32$/.exec(name);
  if (trans)
    return (c, i) =>
      c.scalar(() => c.sset(i.ops[0].reg, i32.fromBits(c.h.call(TRANS[trans[1]], scalarRead(c, i.ops[1], 'f32')))));
  const h16 = /^s_(add|sub|mul)_f16$/.exec(name);
  if (h16) {
    return (c, i) =>
      c.scalar(() => {
        const [a, b] = [1, 2].map((k) => c.f.let(c.h.call('h2f', scalarRead(c, i.ops[k], 'f16') as I32)));
        c.sset(i.ops[0].reg, c.h.call('f2h', SFLOAT2[h16[1]](a, b, c)));
      });
  }
  const one: Record<string, (c: Context, i: Instruction) => Expr> = {
    s_cvt_f16_f32: (c, i) => c.h.call('f2h', scalarRead(c, i.ops[1], 'f32')),
    s_cvt_f32_f16: (c, i) => i32.fromBits(c.h.call('h2f', scalarRead(c, i.ops[1], 'b32'))),
    s_cvt_hi_f32_f16: (c, i) => i32.fromBits(c.h.call('h2f', i32.shr_u(scalarRead(c, i.ops[1], 'b32'), i32.const(16)))),
    s_cvt_f32_i32: (c, i) => i32.fromBits(f32.convert_i32_s(scalarRead(c, i.ops[1], 'b32'))),
    s_cvt_f32_u32: (c, i) => i32.fromBits(f32.convert_i32_u(scalarRead(c, i.ops[1], 'b32'))),
    s_cvt_i32_f32: (c, i) => i32.sat_f32_s(scalarRead(c, i.ops[1], 'f32')),
    s_cvt_u32_f32: (c, i) => i32.sat_f32_u(scalarRead(c, i.ops[1], 'f32')),
    s_fmac_f32: (c, i) =>
      i32.fromBits(
        c.h.call(
          'fma32',
          scalarRead(c, i.ops[1], 'f32'),
          scalarRead(c, i.ops[2], 'f32'),
          f32.fromBits(c.sget(i.ops[0].reg)),
        ),
      ),
    s_fmamk_f32: (c, i) => i32.fromBits(c.h.call('fma32', ...[1, 2, 3].map((k) => scalarRead(c, i.ops[k], 'f32')))),
    s_fmaak_f32: (c, i) => i32.fromBits(c.h.call('fma32', ...[1, 2, 3].map((k) => scalarRead(c, i.ops[k], 'f32')))),
  };
  if (name in one) return (c, i) => c.scalar(() => c.sset(i.ops[0].reg, one[name](c, i)));
  return undefined;
}

const LOAD_WORDS: Record<string, number> = { b32: 1, b64: 2, b96: 3, b128: 4, b256: 8, b512: 16 };
function scalarLoad(name: string): Handler | undefined {
  const m = /^s_load_(\w+)$/.exec(name);
  if (!m) return undefined;
  const words = LOAD_WORDS[m[1]];
  const small = { u8: i32.load8_u, i8: i32.load8_s, u16: i32.load16_u, i16: i32.load16_s }[m[1]];
  if (!words && !small) return undefined;
  return (c, i) => {
    c.order('global', false);
    c.scalar(() => {
      const [d, base, off] = i.ops;
      let at: I64 = c.sget64(base.reg);
      if (off && off.kind === 's') at = i64.add(at, i64.extend_u(c.sget(off.reg)));
      else if (off?.kind === 'c' && off.int !== undefined)
        at = i64.add(at, i64.const(BigInt.asIntN(off.literal ? 32 : 64, off.int)));
      else if (off && off.kind !== 'off')
        throw new UnsupportedError(`emulator: ${name} with the offset ${off.text} is not known`);
      at = i64.add(at, i64.const(modNumber(i, 'offset')));
      const p = c.f.let(globalAddress(c, at, words ? words * 4 : m[1].endsWith('8') ? 1 : 2, i32.const(-1)));
      if (small) c.sset(d.reg, small(p));
      else {
        // Read all before writing any: the base may be among the destinations.
        const values = Array.from({ length: words }, (_, k) => c.f.let(i32.load(p, 4 * k)));
        values.forEach((v, k) => c.sset(d.reg + k, v));
      }
    });
  };
}
export type { Handler };
