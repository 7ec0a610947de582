// The vector arithmetic table: for each instruction its result type, operand types and formula, as the ISA documents
// state them.
import type { Helpers } from './numeric.js';
import type { OpType } from './operands.js';
import { choose, f32, f64, i32, i64, or, select, type Expr, type F32, type F64, type I32, type I64 } from './wasm.js';

export interface Rule {
  readonly to: OpType;
  readonly from: readonly OpType[];
  // Formulas of different operand types share one table, so their parameters are checked by the table's tests, not by
  // types.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly f: (h: Helpers, ...args: any[]) => Expr;
  /** Float results rounded by the rule itself (already half bits). */
  readonly halfBits?: boolean;
  /** Moves: no denormal handling, no modifiers on results. */
  readonly exact?: boolean;
}

const rules: Record<string, Rule> = {};
const types = (s: string): OpType[] => s.split(' ') as OpType[];
function rule(names: string, to: OpType, from: string, f: Rule['f'], extra: Partial<Rule> = {}): void {
  for (const n of names.split(' ')) rules[`v_${n}`] = { to, from: types(from), f, ...extra };
}
const k = i32.const;
const byte = (x: I32, n: number) => i32.and(i32.shr_u(x, k(8 * n)), k(255));
const smin = (a: I32, b: I32) => select(i32.lt_s(a, b), a, b);
const smax = (a: I32, b: I32) => select(i32.gt_s(a, b), a, b);
const umin = (a: I32, b: I32) => select(i32.lt_u(a, b), a, b);
const umax = (a: I32, b: I32) => select(i32.gt_u(a, b), a, b);
const u24 = (x: I32) => i32.and(x, k(0xffffff));
const i24 = (x: I32) => i32.shr_s(i32.shl(x, k(8)), k(8));
const hi = (q: I64) => i32.wrap(i64.shr_u(q, i64.const(32)));
const neg1 = (found: I32, none: I32) => select(none, k(-1), found);

// ---- moves and bits
rule('mov_b32 accvgpr_read_b32 accvgpr_write_b32 accvgpr_mov_b32', 'b32', 'b32', (_, a) => a, { exact: true });
rule('mov_b64', 'b64', 'b64', (_, a) => a, { exact: true });
rule('mov_b16', 'b16', 'b16', (_, a) => a, { exact: true });
rule('and_b32', 'b32', 'b32 b32', (_, a, b) => i32.and(a, b));
rule('or_b32', 'b32', 'b32 b32', (_, a, b) => i32.or(a, b));
rule('xor_b32', 'b32', 'b32 b32', (_, a, b) => i32.xor(a, b));
rule('xnor_b32', 'b32', 'b32 b32', (_, a, b) => i32.xor(i32.xor(a, b), k(-1)));
rule('and_b16', 'b16', 'b16 b16', (_, a, b) => i32.and(a, b));
rule('or_b16', 'b16', 'b16 b16', (_, a, b) => i32.or(a, b));
rule('xor_b16', 'b16', 'b16 b16', (_, a, b) => i32.xor(a, b));
rule('not_b32', 'b32', 'b32', (_, a) => i32.xor(a, k(-1)));
rule('not_b16', 'b16', 'b16', (_, a) => i32.xor(a, k(-1)));
rule('bfrev_b32', 'b32', 'b32', (h, a) => h.call('brev', a));
rule('ctz_i32_b32', 'b32', 'b32', (_, a) => neg1(i32.ctz(a), i32.eqz(a)));
rule('clz_i32_u32', 'b32', 'b32', (_, a) => neg1(i32.clz(a), i32.eqz(a)));
rule('cls_i32', 'b32', 'b32', (_, a) => {
  const x = i32.xor(a, i32.shr_s(a, k(31)));
  return neg1(i32.clz(x), i32.eqz(x));
});
rule('bcnt_u32_b32', 'b32', 'b32 b32', (_, a, b) => i32.add(i32.popcnt(a), b));
rule('lshlrev_b32', 'b32', 'b32 b32', (_, a, b) => i32.shl(b, a));
rule('lshrrev_b32', 'b32', 'b32 b32', (_, a, b) => i32.shr_u(b, a));
rule('ashrrev_i32', 'b32', 'b32 b32', (_, a, b) => i32.shr_s(b, a));
rule('lshlrev_b64', 'b64', 'b32 b64', (_, a, b) => i64.shl(b, i64.extend_u(a)));
rule('lshrrev_b64', 'b64', 'b32 b64', (_, a, b) => i64.shr_u(b, i64.extend_u(a)));
rule('ashrrev_i64', 'b64', 'b32 i64', (_, a, b) => i64.shr_s(b, i64.extend_u(a)));
rule('lshlrev_b16', 'b16', 'b16 b16', (_, a, b) => i32.shl(b, i32.and(a, k(15))));
rule('lshrrev_b16', 'b16', 'b16 b16', (_, a, b) => i32.shr_u(b, i32.and(a, k(15))));
rule('ashrrev_i16', 'b16', 'b16 i16', (_, a, b) => i32.shr_s(b, i32.and(a, k(15))));
rule('bfm_b32', 'b32', 'b32 b32', (_, a, b) => i32.shl(i32.sub(i32.shl(k(1), a), k(1)), b));
rule('bfi_b32', 'b32', 'b32 b32 b32', (_, s, a, b) => i32.or(i32.and(s, a), i32.and(i32.xor(s, k(-1)), b)));
rule('bfe_u32', 'b32', 'b32 b32 b32', (_, a, o, w) => {
  const x = i64.extend_u(i32.shr_u(a, o));
  return i32.wrap(i64.and(x, i64.sub(i64.shl(i64.const(1), i64.extend_u(i32.and(w, k(31)))), i64.const(1))));
});
rule('bfe_i32', 'b32', 'b32 b32 b32', (_, a, o, w) => {
  const up = i64.extend_u(i32.sub(k(64), i32.and(w, k(31))));
  return select(i32.eqz(i32.and(w, k(31))), k(0), i32.wrap(i64.shr_s(i64.shl(i64.extend_s(i32.shr_s(a, o)), up), up)));
});
rule('alignbit_b32', 'b32', 'b32 b32 b32', (_, a, b, n) =>
  i32.wrap(
    i64.shr_u(i64.or(i64.shl(i64.extend_u(a), i64.const(32)), i64.extend_u(b)), i64.extend_u(i32.and(n, k(31)))),
  ),
);
rule('alignbyte_b32', 'b32', 'b32 b32 b32', (_, a, b, n) =>
  i32.wrap(
    i64.shr_u(
      i64.or(i64.shl(i64.extend_u(a), i64.const(32)), i64.extend_u(b)),
      i64.extend_u(i32.shl(i32.and(n, k(3)), k(3))),
    ),
  ),
);
rule('perm_b32', 'b32', 'b32 b32 b32', (h, a, b, s) => h.call('perm', a, b, s));
rule('lshl_add_u32', 'b32', 'b32 b32 b32', (_, a, n, b) => i32.add(i32.shl(a, n), b));
rule('add_lshl_u32', 'b32', 'b32 b32 b32', (_, a, b, n) => i32.shl(i32.add(a, b), n));
rule('lshl_or_b32', 'b32', 'b32 b32 b32', (_, a, n, b) => i32.or(i32.shl(a, n), b));
rule('and_or_b32', 'b32', 'b32 b32 b32', (_, a, b, c) => i32.or(i32.and(a, b), c));
rule('or3_b32', 'b32', 'b32 b32 b32', (_, a, b, c) => i32.or(i32.or(a, b), c));
rule('xor3_b32', 'b32', 'b32 b32 b32', (_, a, b, c) => i32.xor(i32.xor(a, b), c));
rule('add3_u32', 'b32', 'b32 b32 b32', (_, a, b, c) => i32.add(i32.add(a, b), c));
rule('xad_u32', 'b32', 'b32 b32 b32', (_, a, b, c) => i32.add(i32.xor(a, b), c));
rule('lshl_add_u64', 'b64', 'b64 b32 b64', (_, a, n, b) => i64.add(i64.shl(a, i64.extend_u(i32.and(n, k(7)))), b));
rule('add_u64', 'b64', 'b64 b64', (_, a, b) => i64.add(a, b));
rule('mul_u64', 'b64', 'b64 b64', (_, a, b) => i64.mul(a, b));

// ---- integers
rule('add_u32', 'b32', 'b32 b32', (_, a, b) => i32.add(a, b));
rule('sub_u32', 'b32', 'b32 b32', (_, a, b) => i32.sub(a, b));
rule('subrev_u32', 'b32', 'b32 b32', (_, a, b) => i32.sub(b, a));
rule('add_i32', 'b32', 'b32 b32', (_, a, b) => i32.add(a, b));
rule('sub_i32', 'b32', 'b32 b32', (_, a, b) => i32.sub(a, b));
rule('add_u16 add_i16', 'b16', 'b16 b16', (_, a, b) => i32.add(a, b));
rule('sub_u16 sub_i16', 'b16', 'b16 b16', (_, a, b) => i32.sub(a, b));
rule('subrev_u16', 'b16', 'b16 b16', (_, a, b) => i32.sub(b, a));
rule('mul_lo_u16', 'b16', 'b16 b16', (_, a, b) => i32.mul(a, b));
rule('mad_u16 mad_i16 mad_legacy_u16 mad_legacy_i16', 'b16', 'b16 b16 b16', (_, a, b, c) => i32.add(i32.mul(a, b), c));
rule('mad_u32_u16', 'b32', 'u16 u16 b32', (_, a, b, c) => i32.add(i32.mul(a, b), c));
rule('mad_i32_i16', 'b32', 'i16 i16 b32', (_, a, b, c) => i32.add(i32.mul(a, b), c));
rule('mul_lo_u32 mul_lo_i32', 'b32', 'b32 b32', (_, a, b) => i32.mul(a, b));
rule('mul_hi_u32', 'b32', 'b32 b32', (_, a, b) => hi(i64.mul(i64.extend_u(a), i64.extend_u(b))));
rule('mul_hi_i32', 'b32', 'b32 b32', (_, a, b) => hi(i64.mul(i64.extend_s(a), i64.extend_s(b))));
rule('mul_u32_u24', 'b32', 'b32 b32', (_, a, b) => i32.mul(u24(a), u24(b)));
rule('mul_i32_i24', 'b32', 'b32 b32', (_, a, b) => i32.mul(i24(a), i24(b)));
rule('mul_hi_u32_u24', 'b32', 'b32 b32', (_, a, b) => hi(i64.mul(i64.extend_u(u24(a)), i64.extend_u(u24(b)))));
rule('mul_hi_i32_i24', 'b32', 'b32 b32', (_, a, b) => hi(i64.mul(i64.extend_s(i24(a)), i64.extend_s(i24(b)))));
rule('mad_u32_u24', 'b32', 'b32 b32 b32', (_, a, b, c) => i32.add(i32.mul(u24(a), u24(b)), c));
rule('mad_i32_i24', 'b32', 'b32 b32 b32', (_, a, b, c) => i32.add(i32.mul(i24(a), i24(b)), c));
for (const [t, min, max] of [
  ['i32', smin, smax],
  ['u32', umin, umax],
  ['i16', smin, smax],
  ['u16', umin, umax],
] as const) {
  rule(`min_${t}`, t, `${t} ${t}`, (_, a, b) => min(a, b));
  rule(`max_${t}`, t, `${t} ${t}`, (_, a, b) => max(a, b));
  rule(`min3_${t}`, t, `${t} ${t} ${t}`, (_, a, b, c) => min(min(a, b), c));
  rule(`max3_${t}`, t, `${t} ${t} ${t}`, (_, a, b, c) => max(max(a, b), c));
  rule(`med3_${t}`, t, `${t} ${t} ${t}`, (_, a, b, c) => max(min(a, b), min(max(a, b), c)));
  rule(`minmax_${t}`, t, `${t} ${t} ${t}`, (_, a, b, c) => max(min(a, b), c));
  rule(`maxmin_${t}`, t, `${t} ${t} ${t}`, (_, a, b, c) => min(max(a, b), c));
}
const absDiff = (a: I32, b: I32) => select(i32.gt_u(a, b), i32.sub(a, b), i32.sub(b, a));
rule('sad_u8', 'b32', 'b32 b32 b32', (_, a, b, c) =>
  [0, 1, 2, 3].reduce((s: I32, n) => i32.add(s, absDiff(byte(a, n), byte(b, n))), c),
);
rule('sad_u16', 'b32', 'b32 b32 b32', (_, a, b, c) =>
  [0, 16].reduce(
    (s: I32, n) => i32.add(s, absDiff(i32.and(i32.shr_u(a, k(n)), k(65535)), i32.and(i32.shr_u(b, k(n)), k(65535)))),
    c,
  ),
);
rule('sad_u32', 'b32', 'b32 b32 b32', (_, a, b, c) => i32.add(absDiff(a, b), c));

// ---- floats
for (const [t, o] of [
  ['f32', f32],
  ['f64', f64],
  ['f16', f32],
] as const) {
  const n = t === 'f64' ? '64' : '32';
  const ops = o as typeof f32;
  const tt = `${t} ${t}`;
  const min = (h: Helpers, a: Expr, b: Expr) => h.call(`min${n}`, a, b);
  const max = (h: Helpers, a: Expr, b: Expr) => h.call(`max${n}`, a, b);
  rule(`add_${t}`, t, tt, (_, a, b) => ops.add(a, b));
  rule(`mul_${t}`, t, tt, (_, a, b) => ops.mul(a, b));
  rule(`min_${t}`, t, tt, min);
  rule(`max_${t}`, t, tt, max);
  rule(`floor_${t}`, t, t, (_, a) => ops.floor(a));
  rule(`ceil_${t}`, t, t, (_, a) => ops.ceil(a));
  rule(`trunc_${t}`, t, t, (_, a) => ops.trunc(a));
  rule(`rndne_${t}`, t, t, (_, a) => ops.nearest(a));
  if (t !== 'f64') {
    rule(`sub_${t}`, t, tt, (_, a, b) => ops.sub(a, b));
    rule(`subrev_${t}`, t, tt, (_, a, b) => ops.sub(b, a));
    rule(`min3_${t}`, t, `${tt} ${t}`, (h, a, b, c) => min(h, min(h, a, b), c));
    rule(`max3_${t}`, t, `${tt} ${t}`, (h, a, b, c) => max(h, max(h, a, b), c));
    rule(`med3_${t}`, t, `${tt} ${t}`, (h, a, b, c) => h.call('med32', a, b, c));
    rule(`minmax_${t}`, t, `${tt} ${t}`, (h, a, b, c) => max(h, min(h, a, b), c));
    rule(`maxmin_${t}`, t, `${tt} ${t}`, (h, a, b, c) => min(h, max(h, a, b), c));
    rule(`minimum_${t}`, t, tt, (_, a, b) => f32.min(a, b));
    rule(`maximum_${t}`, t, tt, (_, a, b) => f32.max(a, b));
  }
}
rule('fma_f32 fmac_f32 fmamk_f32 fmaak_f32 fma_dx9_zero_f32', 'f32', 'f32 f32 f32', (h, a, b, c) =>
  h.call('fma32', a, b, c),
);
rule('fma_f64 fmac_f64', 'f64', 'f64 f64 f64', (h, a, b, c) => h.call('fma64', a, b, c));
rule(
  'fma_f16 fmac_f16 fmamk_f16 fmaak_f16 fma_legacy_f16',
  'f16',
  'f16 f16 f16',
  (h, a, b, c) => h.call('fma16', a, b, c),
  { halfBits: true },
);
delete rules.v_fma_dx9_zero_f32; // its zero rule is not modelled
rule('mad_f32 mac_f32 madmk_f32 madak_f32', 'f32', 'f32 f32 f32', (_, a, b, c) => f32.add(f32.mul(a, b), c));
rule('mad_legacy_f32 mac_legacy_f32', 'f32', 'f32 f32 f32', (_, a, b, c) =>
  f32.add(choose(or(f32.eq(a, f32.const(0)), f32.eq(b, f32.const(0))), f32.const(0), f32.mul(a, b)), c),
);
rule('mul_legacy_f32 mul_dx9_zero_f32', 'f32', 'f32 f32', (_, a, b) =>
  choose(or(f32.eq(a, f32.const(0)), f32.eq(b, f32.const(0))), f32.const(0), f32.mul(a, b)),
);
rule('mad_f16 mac_f16 mad_legacy_f16', 'f16', 'f16 f16 f16', (h, a, b, c) =>
  f32.add(h.call('h2f', h.call('f2h', f32.mul(a, b))), c),
);
rule('ldexp_f32', 'f32', 'f32 b32', (h, a, n) => h.call('ldexp32', a, n));
rule('ldexp_f64', 'f64', 'f64 b32', (h, a, n) => h.call('ldexp64', a, n));
rule('ldexp_f16', 'f16', 'f16 i16', (h, a, n) => h.call('ldexp32', a, n));
rule('frexp_exp_i32_f32', 'b32', 'f32', (h, a) => h.call('frexpExp32', a));
rule('frexp_mant_f32', 'f32', 'f32', (h, a) => h.call('frexpMant32', a));
rule('frexp_exp_i32_f64', 'b32', 'f64', (h, a) => h.call('frexpExp64', a));
rule('frexp_mant_f64', 'f64', 'f64', (h, a) => h.call('frexpMant64', a));
rule('frexp_exp_i16_f16', 'b16', 'f16', (h, a) => h.call('frexpExp32', a));
rule('frexp_mant_f16', 'f16', 'f16', (h, a) => h.call('frexpMant32', a));
rule('fract_f32', 'f32', 'f32', (_, a) => f32.min(f32.sub(a, f32.floor(a)), f32.bits(0x3f7fffff)));
rule('fract_f16', 'f16', 'f16', (_, a) => f32.min(f32.sub(a, f32.floor(a)), f32.const(1 - 2 ** -11)));
rule('fract_f64', 'f64', 'f64', (_, a) => f64.min(f64.sub(a, f64.floor(a)), f64.const(1 - 2 ** -53)));
rule('exp_f32', 'f32', 'f32', (h, a) => h.call('exp2_32', a));
rule('log_f32', 'f32', 'f32', (h, a) => h.call('log2_32', a));
rule('sin_f32', 'f32', 'f32', (h, a) => h.call('sin_32', a));
rule('cos_f32', 'f32', 'f32', (h, a) => h.call('cos_32', a));
rule('rcp_f32 rcp_iflag_f32', 'f32', 'f32', (h, a) => h.call('rcp32', a));
rule('rsq_f32', 'f32', 'f32', (h, a) => h.call('rsq32', a));
rule('sqrt_f32', 'f32', 'f32', (h, a) => h.call('sqrt32', a));
const host16 = (name: 'exp2' | 'log2') => (h: Helpers, a: F32) => h.call('d2h', h.import(name, f64.promote(a)) as F64);
rule('exp_f16', 'f16', 'f16', host16('exp2'), { halfBits: true });
rule('log_f16', 'f16', 'f16', host16('log2'), { halfBits: true });
rule('sin_f16', 'f16', 'f16', (h, a) => h.call('sin_32', a));
rule('cos_f16', 'f16', 'f16', (h, a) => h.call('cos_32', a));
rule('rcp_f16', 'f16', 'f16', (h, a) => h.call('d2h', f64.div(f64.const(1), f64.promote(a))), { halfBits: true });
rule('rsq_f16', 'f16', 'f16', (h, a) => h.call('d2h', f64.div(f64.const(1), f64.sqrt(f64.promote(a)))), {
  halfBits: true,
});
rule('sqrt_f16', 'f16', 'f16', (h, a) => h.call('d2h', f64.sqrt(f64.promote(a))), { halfBits: true });
rule('rcp_f64', 'f64', 'f64', (h, a) => h.call('seed64', f64.div(f64.const(1), a)));
rule('rsq_f64', 'f64', 'f64', (h, a) => h.call('seed64', f64.div(f64.const(1), f64.sqrt(a))));
rule('sqrt_f64', 'f64', 'f64', (h, a) => h.call('seed64', f64.sqrt(a)));
rule('trig_preop_f64', 'f64', 'f64 b32', (h, a, n) => h.import('trigPreop', a, n));
rule('div_fixup_f32', 'f32', 'f32 f32 f32', (h, q, d, n) => h.call('divFixup32', q, d, n));
rule('div_fixup_f64', 'f64', 'f64 f64 f64', (h, q, d, n) => h.call('divFixup64', q, d, n));
rule('div_fixup_f16', 'f16', 'f16 f16 f16', (h, q, d, n) => h.call('divFixup32', q, d, n));

// ---- conversions
rule('cvt_f32_i32', 'f32', 'b32', (_, a) => f32.convert_i32_s(a));
rule('cvt_f32_u32', 'f32', 'b32', (_, a) => f32.convert_i32_u(a));
rule('cvt_i32_f32', 'b32', 'f32', (_, a) => i32.sat_f32_s(a));
rule('cvt_u32_f32', 'b32', 'f32', (_, a) => i32.sat_f32_u(a));
rule('cvt_floor_i32_f32', 'b32', 'f32', (_, a) => i32.sat_f32_s(f32.floor(a)));
rule('cvt_nearest_i32_f32', 'b32', 'f32', (_, a) => i32.sat_f64_s(f64.floor(f64.add(f64.promote(a), f64.const(0.5)))));
rule('cvt_f64_i32', 'f64', 'b32', (_, a) => f64.convert_i32_s(a));
rule('cvt_f64_u32', 'f64', 'b32', (_, a) => f64.convert_i32_u(a));
rule('cvt_i32_f64', 'b32', 'f64', (_, a) => i32.sat_f64_s(a));
rule('cvt_u32_f64', 'b32', 'f64', (_, a) => i32.sat_f64_u(a));
rule('cvt_f64_f32', 'f64', 'f32', (_, a) => f64.promote(a));
rule('cvt_f32_f64', 'f32', 'f64', (_, a) => f32.demote(a));
rule('cvt_f16_f32', 'f16', 'f32', (_, a) => a);
rule('cvt_f32_f16', 'f32', 'f16', (_, a) => a);
rule('cvt_f16_u16', 'f16', 'u16', (_, a) => f32.convert_i32_u(a));
rule('cvt_f16_i16', 'f16', 'i16', (_, a) => f32.convert_i32_s(a));
rule('cvt_u16_f16', 'b16', 'f16', (_, a) => umin(i32.sat_f32_u(a), k(65535)));
rule('cvt_i16_f16', 'b16', 'f16', (_, a) => smax(smin(i32.sat_f32_s(a), k(32767)), k(-32768)));
rule('cvt_i32_i16', 'b32', 'i16', (_, a) => a);
rule('cvt_u32_u16', 'b32', 'u16', (_, a) => a);
for (const n of [0, 1, 2, 3]) rule(`cvt_f32_ubyte${n}`, 'f32', 'b32', (_, a) => f32.convert_i32_u(byte(a, n)));
const pack = (a: I32, b: I32) => i32.or(i32.and(a, k(65535)), i32.shl(b, k(16)));
rule('cvt_pk_rtz_f16_f32', 'b32', 'f32 f32', (h, a, b) => pack(h.call('f2hz', a), h.call('f2hz', b)));
rule('cvt_pk_u16_u32', 'b32', 'b32 b32', (_, a, b) => pack(umin(a, k(65535)), umin(b, k(65535))));
rule('cvt_pk_i16_i32', 'b32', 'b32 b32', (_, a, b) =>
  pack(smax(smin(a, k(32767)), k(-32768)), smax(smin(b, k(32767)), k(-32768))),
);
rule('cvt_pk_u8_f32', 'b32', 'f32 b32 b32', (_, a, n, c) => {
  const at = i32.shl(i32.and(n, k(3)), k(3));
  return i32.or(i32.and(c, i32.xor(i32.shl(k(255), at), k(-1))), i32.shl(umin(i32.sat_f32_u(a), k(255)), at));
});
rule('pack_b32_f16', 'b32', 'b16 b16', (_, a, b) => pack(a, b));
rule('sat_pk_u8_i16', 'b16', 'b32', (_, a) => {
  const clamp = (x: I32) => smax(smin(x, k(255)), k(0));
  return i32.or(clamp(i32.extend16(a)), i32.shl(clamp(i32.shr_s(a, k(16))), k(8)));
});
// Brain floats of generation 9.5 and 12: nearest even, a NaN stays one.
const bf16 = (x: F32): I32 => {
  const u = i32.fromBits(x);
  return select(
    f32.ne(x, x),
    i32.or(i32.shr_u(u, k(16)), k(0x40)),
    i32.shr_u(i32.add(u, i32.add(k(0x7fff), i32.and(i32.shr_u(u, k(16)), k(1)))), k(16)),
  );
};
rule('cvt_pk_bf16_f32', 'b32', 'f32 f32', (_, a, b) => pack(bf16(a), bf16(b)));

export const VECTOR_RULES: Readonly<Record<string, Rule>> = rules;
