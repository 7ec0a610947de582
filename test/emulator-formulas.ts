// Single instructions and the formulas of the ISA documents for them.
import { fromF16Bits, toF16Bits } from '../src/base/float.js';

export type T = 'u32' | 'i32' | 'f32' | 'u64' | 'i64' | 'f64' | 'f16' | 'u16' | 'i16';
export type V = number | bigint;
interface Row {
  readonly asm: string;
  readonly to: T;
  readonly from: readonly T[];
  readonly f: (...v: never[]) => V | boolean;
  /** Allowed error in units of the last place. */
  readonly ulp?: number;
  readonly only?: RegExp;
}

const fr = Math.fround;
const f64view = new DataView(new ArrayBuffer(8));
export const rows: Row[] = [];
const row = (asm: string, to: T, from: string, f: (...v: never[]) => V | boolean, extra: Partial<Row> = {}): void => {
  rows.push({
    asm: asm.includes('%')
      ? asm
      : `${asm} %0, ${from
          .split(' ')
          .map((_, k) => `%${k + 1}`)
          .join(', ')}`,
    to,
    from: from.split(' ') as T[],
    f,
    ...extra,
  });
};
const rne = (x: number): number => {
  if (!(Math.abs(x) < 2 ** 52)) return x;
  const f = Math.floor(x);
  const d = x - f;
  const r = d > 0.5 || (d === 0.5 && f % 2 !== 0) ? f + 1 : f;
  return r === 0 && (x < 0 || Object.is(x, -0)) ? -0 : r;
};
const less = (a: number, b: number): boolean => a < b || (a === b && Object.is(a, -0) && !Object.is(b, -0));
const minNum = (a: number, b: number): number => (a !== a ? b : b !== b ? a : less(a, b) ? a : b);
const maxNum = (a: number, b: number): number => (a !== a ? b : b !== b ? a : less(a, b) ? b : a);
const big = BigInt;
const u32 = (x: bigint): number => Number(BigInt.asUintN(32, x));
const shift = (n: number): bigint => big(n & 31);
const old = /gfx9/;
const rdna = /gfx1/;

// Floats: correctly rounded.
row('v_add_f32', 'f32', 'f32 f32', (a: number, b: number) => fr(a + b));
row('v_sub_f32', 'f32', 'f32 f32', (a: number, b: number) => fr(a - b));
row('v_subrev_f32', 'f32', 'f32 f32', (a: number, b: number) => fr(b - a));
row('v_mul_f32', 'f32', 'f32 f32', (a: number, b: number) => fr(a * b));
row('v_min_f32', 'f32', 'f32 f32', minNum);
row('v_max_f32', 'f32', 'f32 f32', maxNum);
row('v_add_f32_e64 %0, |%1|, -%2', 'f32', 'f32 f32', (a: number, b: number) => fr(Math.abs(a) - b));
row('v_add_f32_e64 %0, %1, %2 clamp', 'f32', 'f32 f32', (a: number, b: number) => {
  const x = fr(a + b);
  return x > 0 ? Math.min(x, 1) : 0;
});
row('v_floor_f32', 'f32', 'f32', Math.floor);
row('v_ceil_f32', 'f32', 'f32', Math.ceil);
row('v_trunc_f32', 'f32', 'f32', Math.trunc);
row('v_rndne_f32', 'f32', 'f32', rne);
row('v_fract_f32', 'f32', 'f32', (a: number) => Math.min(fr(a - Math.floor(a)), fr(1 - 2 ** -24)));
row('v_ldexp_f32', 'f32', 'f32 i32', (a: number, n: number) => {
  const k = Math.max(-400, Math.min(400, n));
  return fr(a * 2 ** k);
});
row('v_frexp_exp_i32_f32', 'i32', 'f32', (a: number) => {
  if (a === 0 || !Number.isFinite(a)) return 0;
  let e = 0;
  let x = Math.abs(a);
  while (x >= 1) [x, e] = [x / 2, e + 1];
  while (x < 0.5) [x, e] = [x * 2, e - 1];
  return e;
});
// The document gives 1 ULP; denormal arguments and results are zero.
const flush = (x: number): number => (Math.abs(x) < 2 ** -126 ? (x < 0 || Object.is(x, -0) ? -0 : 0) : x);
row('v_rcp_f32', 'f32', 'f32', (a: number) => flush(fr(1 / flush(a))), { ulp: 1 });
row('v_rsq_f32', 'f32', 'f32', (a: number) => fr(1 / Math.sqrt(flush(a))), { ulp: 1 });
row('v_sqrt_f32', 'f32', 'f32', (a: number) => fr(Math.sqrt(a)), { ulp: 1 });
row('v_exp_f32', 'f32', 'f32', (a: number) => flush(fr(2 ** flush(a))), { ulp: 1 });
row('v_log_f32', 'f32', 'f32', (a: number) => flush(fr(Math.log2(flush(a)))), { ulp: 1 });
row('v_max3_f32', 'f32', 'f32 f32 f32', (a: number, b: number, c: number) => maxNum(maxNum(a, b), c));
row('v_min3_f32', 'f32', 'f32 f32 f32', (a: number, b: number, c: number) => minNum(minNum(a, b), c));
row('v_add_f64', 'f64', 'f64 f64', (a: number, b: number) => a + b);
row('v_mul_f64', 'f64', 'f64 f64', (a: number, b: number) => a * b);
row('v_min_f64', 'f64', 'f64 f64', minNum);
row('v_max_f64', 'f64', 'f64 f64', maxNum);
row('v_floor_f64', 'f64', 'f64', Math.floor);
row('v_rndne_f64', 'f64', 'f64', rne);
row('v_rcp_f64', 'f64', 'f64', (a: number) => 1 / a, { ulp: 2 ** 29 });
row('v_rsq_f64', 'f64', 'f64', (a: number) => 1 / Math.sqrt(a), { ulp: 2 ** 29 });
row('v_sqrt_f64', 'f64', 'f64', (a: number) => Math.sqrt(a), { ulp: 2 ** 29 });
const h = (x: number): number => fromF16Bits(toF16Bits(x));
row('v_add_f16', 'f16', 'f16 f16', (a: number, b: number) => h(a + b));
row('v_mul_f16', 'f16', 'f16 f16', (a: number, b: number) => h(a * b));
row('v_min_f16', 'f16', 'f16 f16', minNum);
row('v_max_f16', 'f16', 'f16 f16', maxNum);
row('v_rcp_f16', 'f16', 'f16', (a: number) => h(1 / a), { ulp: 1 });
row('v_sqrt_f16', 'f16', 'f16', (a: number) => h(Math.sqrt(a)), { ulp: 1 });
row('v_exp_f16', 'f16', 'f16', (a: number) => h(2 ** a), { ulp: 1 });
// Products of halves are exact in double and the sum has at most 80 bits: doubled rounding shows in none of these
// values.
row('v_fma_f16', 'f16', 'f16 f16 f16', (a: number, b: number, c: number) => h(a * b + c), { ulp: 1 });

// Conversions: truncation, saturation, NaN is 0.
const sat =
  (lo: number, hi: number) =>
  (a: number): number =>
    a !== a ? 0 : Math.min(hi, Math.max(lo, Math.trunc(a)));
row('v_cvt_i32_f32', 'i32', 'f32', sat(-(2 ** 31), 2 ** 31 - 1));
row('v_cvt_u32_f32', 'u32', 'f32', sat(0, 2 ** 32 - 1));
row('v_cvt_f32_i32', 'f32', 'i32', (a: number) => fr(a));
row('v_cvt_f32_u32', 'f32', 'u32', (a: number) => fr(a));
row('v_cvt_f64_i32', 'f64', 'i32', (a: number) => a);
row('v_cvt_f64_u32', 'f64', 'u32', (a: number) => a);
row('v_cvt_i32_f64', 'i32', 'f64', sat(-(2 ** 31), 2 ** 31 - 1));
row('v_cvt_u32_f64', 'u32', 'f64', sat(0, 2 ** 32 - 1));
row('v_cvt_f32_f64', 'f32', 'f64', (a: number) => fr(a));
row('v_cvt_f64_f32', 'f64', 'f32', (a: number) => a);
row('v_cvt_f16_f32', 'f16', 'f32', h);
row('v_cvt_f32_f16', 'f32', 'f16', (a: number) => a);
row('v_cvt_f32_ubyte0', 'f32', 'u32', (a: number) => a & 255);
row('v_cvt_f32_ubyte3', 'f32', 'u32', (a: number) => a >>> 24);

// Integers.
row('v_add_u32', 'u32', 'u32 u32', (a: number, b: number) => (a + b) >>> 0, { only: old });
row('v_add_nc_u32', 'u32', 'u32 u32', (a: number, b: number) => (a + b) >>> 0, { only: rdna });
row('v_sub_u32', 'u32', 'u32 u32', (a: number, b: number) => (a - b) >>> 0, { only: old });
row('v_add_u32_e64 %0, %1, %2 clamp', 'u32', 'u32 u32', (a: number, b: number) => Math.min(a + b, 2 ** 32 - 1), {
  only: old,
});
row('v_add_nc_u32_e64 %0, %1, %2 clamp', 'u32', 'u32 u32', (a: number, b: number) => Math.min(a + b, 2 ** 32 - 1), {
  only: rdna,
});
row(
  'v_add_nc_i32 %0, %1, %2 clamp',
  'i32',
  'i32 i32',
  (a: number, b: number) => Math.max(-(2 ** 31), Math.min(a + b, 2 ** 31 - 1)),
  { only: rdna },
);
row('v_mul_lo_u32', 'u32', 'u32 u32', (a: number, b: number) => Math.imul(a, b) >>> 0);
row('v_mul_hi_u32', 'u32', 'u32 u32', (a: number, b: number) => u32((big(a) * big(b)) >> 32n));
row('v_mul_hi_i32', 'i32', 'i32 i32', (a: number, b: number) => Number((big(a) * big(b)) >> 32n));
row('v_mul_u32_u24', 'u32', 'u32 u32', (a: number, b: number) => u32(big(a & 0xffffff) * big(b & 0xffffff)));
row('v_mul_i32_i24', 'i32', 'i32 i32', (a: number, b: number) => Math.imul((a << 8) >> 8, (b << 8) >> 8));
row('v_mad_u32_u24', 'u32', 'u32 u32 u32', (a: number, b: number, c: number) =>
  u32(big(a & 0xffffff) * big(b & 0xffffff) + big(c)),
);
row('v_min_i32', 'i32', 'i32 i32', Math.min);
row('v_max_i32', 'i32', 'i32 i32', Math.max);
row('v_min_u32', 'u32', 'u32 u32', Math.min);
row('v_max_u32', 'u32', 'u32 u32', Math.max);
row('v_med3_i32', 'i32', 'i32 i32 i32', (a: number, b: number, c: number) => [a, b, c].sort((x, y) => x - y)[1]);
row('v_med3_u32', 'u32', 'u32 u32 u32', (a: number, b: number, c: number) => [a, b, c].sort((x, y) => x - y)[1]);
row('v_lshlrev_b32', 'u32', 'u32 u32', (a: number, b: number) => (b << (a & 31)) >>> 0);
row('v_lshrrev_b32', 'u32', 'u32 u32', (a: number, b: number) => b >>> (a & 31));
row('v_ashrrev_i32', 'i32', 'u32 i32', (a: number, b: number) => b >> (a & 31));
row('v_lshlrev_b64', 'u64', 'u32 u64', (a: number, b: bigint) => BigInt.asUintN(64, b << big(a & 63)));
row('v_lshrrev_b64', 'u64', 'u32 u64', (a: number, b: bigint) => b >> big(a & 63));
row('v_ashrrev_i64', 'i64', 'u32 i64', (a: number, b: bigint) => b >> big(a & 63));
row('v_bfe_u32', 'u32', 'u32 u32 u32', (a: number, o: number, w: number) =>
  u32((big(a) >> shift(o)) & ((1n << shift(w)) - 1n)),
);
row('v_bfe_i32', 'i32', 'i32 u32 u32', (a: number, o: number, w: number) =>
  (w & 31) === 0 ? 0 : Number(BigInt.asIntN(w & 31, big(a) >> shift(o))),
);
row('v_bfi_b32', 'u32', 'u32 u32 u32', (s: number, a: number, b: number) => ((s & a) | (~s & b)) >>> 0);
row('v_bfm_b32', 'u32', 'u32 u32', (a: number, b: number) => u32(((1n << shift(a)) - 1n) << shift(b)));
row('v_alignbit_b32', 'u32', 'u32 u32 u32', (a: number, b: number, n: number) =>
  u32(((big(a) << 32n) | big(b)) >> shift(n)),
);
row('v_alignbyte_b32', 'u32', 'u32 u32 u32', (a: number, b: number, n: number) =>
  u32(((big(a) << 32n) | big(b)) >> big(8 * (n & 3))),
);
row('v_perm_b32', 'u32', 'u32 u32 u32', (a: number, b: number, s: number) => {
  const all = (big(a) << 32n) | big(b);
  let out = 0;
  for (let k = 0; k < 4; k++) {
    const x = (s >>> (8 * k)) & 255;
    const v =
      x < 8
        ? Number((all >> big(8 * x)) & 255n)
        : x < 12
          ? Number((all >> big(16 * (x - 8) + 15)) & 1n) * 255
          : x === 12
            ? 0
            : 255;
    out |= v << (8 * k);
  }
  return out >>> 0;
});
row('v_bfrev_b32', 'u32', 'u32', (a: number) => parseInt([...a.toString(2).padStart(32, '0')].reverse().join(''), 2));
row('v_ffbh_u32', 'i32', 'u32', (a: number) => (a === 0 ? -1 : Math.clz32(a)), { only: /gfx9|gfx10/ });
row('v_ffbl_b32', 'i32', 'u32', (a: number) => (a === 0 ? -1 : 31 - Math.clz32(a & -a)), { only: /gfx9|gfx10/ });
row(
  'v_bcnt_u32_b32',
  'u32',
  'u32 u32',
  (a: number, b: number) => ([...a.toString(2)].filter((x) => x === '1').length + b) >>> 0,
);
row('v_not_b32', 'u32', 'u32', (a: number) => ~a >>> 0);
row('v_lshl_add_u32', 'u32', 'u32 u32 u32', (a: number, n: number, b: number) => ((a << (n & 31)) + b) >>> 0);
row('v_add_lshl_u32', 'u32', 'u32 u32 u32', (a: number, b: number, n: number) => (((a + b) >>> 0) << (n & 31)) >>> 0);
row('v_lshl_or_b32', 'u32', 'u32 u32 u32', (a: number, n: number, b: number) => ((a << (n & 31)) | b) >>> 0);
row('v_and_or_b32', 'u32', 'u32 u32 u32', (a: number, b: number, c: number) => ((a & b) | c) >>> 0);
row('v_or3_b32', 'u32', 'u32 u32 u32', (a: number, b: number, c: number) => (a | b | c) >>> 0);
row('v_add3_u32', 'u32', 'u32 u32 u32', (a: number, b: number, c: number) => (a + b + c) % 2 ** 32);
row('v_xad_u32', 'u32', 'u32 u32 u32', (a: number, b: number, c: number) => (((a ^ b) >>> 0) + c) % 2 ** 32);
row(
  'v_sad_u8',
  'u32',
  'u32 u32 u32',
  (a: number, b: number, c: number) =>
    [0, 8, 16, 24].reduce((s, k) => s + Math.abs(((a >>> k) & 255) - ((b >>> k) & 255)), c) % 2 ** 32,
);
row(
  'v_cvt_pk_u16_u32',
  'u32',
  'u32 u32',
  (a: number, b: number) => (Math.min(a, 65535) | (Math.min(b, 65535) << 16)) >>> 0,
);
row('v_cvt_pk_i16_i32', 'u32', 'i32 i32', (a: number, b: number) => {
  const c = (x: number) => Math.max(-32768, Math.min(32767, x)) & 65535;
  return (c(a) | (c(b) << 16)) >>> 0;
});
// Compares and carries through the mask register.
const select = '\n v_cndmask_b32 %0, 0, 1, {vcc}';
for (const [t, list] of [
  ['f32', ['lt', 'eq', 'le', 'gt', 'lg', 'ge', 'o', 'u', 'nge', 'nlg', 'ngt', 'nle', 'neq', 'nlt']],
  ['i32', ['lt', 'eq', 'le', 'gt', 'ne', 'ge']],
  ['u32', ['lt', 'gt']],
  ['u64', ['lt', 'eq']],
  ['i64', ['lt', 'ge']],
  ['f64', ['lt', 'nge', 'u']],
] as const) {
  const test: Record<string, (a: never, b: never) => boolean> = {
    lt: (a, b) => a < b,
    eq: (a, b) => a === b,
    le: (a, b) => a <= b,
    gt: (a, b) => a > b,
    ge: (a, b) => a >= b,
    ne: (a, b) => a !== b,
    lg: (a, b) => a < b || a > b,
    o: (a, b) => a === a && b === b,
    u: (a, b) => a !== a || b !== b,
    nge: (a, b) => !(a >= b),
    nlg: (a, b) => !(a < b || a > b),
    ngt: (a, b) => !(a > b),
    nle: (a, b) => !(a <= b),
    neq: (a, b) => !(a === b),
    nlt: (a, b) => !(a < b),
  };
  for (const op of list) row(`v_cmp_${op}_${t} {vcc}, %1, %2${select}`, 'u32', `${t} ${t}`, test[op] as never);
}
row(`v_add_co_u32 %0, {vcc}, %1, %2${select}`, 'u32', 'u32 u32', (a: number, b: number) => a + b >= 2 ** 32);
row(`v_sub_co_u32 %0, {vcc}, %1, %2${select}`, 'u32', 'u32 u32', (a: number, b: number) => a < b);
// Classes: bits from signalling NaN (0) to +infinity (9), tested against the mask.
row(`v_cmp_class_f32 {vcc}, %1, %2${select}`, 'u32', 'u32 u32', (x: number, m: number) => {
  const [neg, e, f] = [x >>> 31, (x >>> 23) & 255, x & 0x7fffff];
  const bit = e === 255 ? (f ? (f >>> 22 ? 1 : 0) : neg ? 2 : 9) : e ? (neg ? 3 : 8) : f ? (neg ? 4 : 7) : neg ? 5 : 6;
  return ((m >>> bit) & 1) === 1;
});
// Packed integers.
const pku =
  (f: (a: number, b: number) => number) =>
  (a: number, b: number): number =>
    ((f(a & 65535, b & 65535) & 65535) | (f(a >>> 16, b >>> 16) << 16)) >>> 0;
row(
  'v_pk_add_u16',
  'u32',
  'u32 u32',
  pku((a, b) => a + b),
);
row(
  'v_pk_sub_i16',
  'u32',
  'u32 u32',
  pku((a, b) => a - b),
);
row(
  'v_pk_mul_lo_u16',
  'u32',
  'u32 u32',
  pku((a, b) => a * b),
);
row('v_pk_max_u16', 'u32', 'u32 u32', pku(Math.max));
row(
  'v_pk_lshlrev_b16',
  'u32',
  'u32 u32',
  pku((a, b) => b << (a & 15)),
);

// The mode register: products toward zero, and denormals flushed at both ends.
const mode = (offset: number, value: number) => `s_setreg_imm32_b32 hwreg(HW_REG_MODE, ${offset}, 2), ${value}\n `;
row(`${mode(0, 3)}v_mul_f32 %0, %1, %2\n ${mode(0, 0)}`, 'f32', 'f32 f32', (a: number, b: number) => {
  const r = fr(a * b);
  if (!(Math.abs(r) > Math.abs(a * b))) return r;
  f64view.setFloat32(0, r);
  f64view.setUint32(0, f64view.getUint32(0) - 1);
  return f64view.getFloat32(0);
});
// Directed rounding: the nearest number, moved by one where it lies on the wrong side of the exact result.
type Exact = readonly [bigint, number];
const exact = (x: number): Exact => {
  f64view.setFloat64(0, x);
  const bits = f64view.getBigUint64(0);
  const e = Number((bits >> 52n) & 2047n);
  const m = (bits & (2n ** 52n - 1n)) | (e ? 2n ** 52n : 0n);
  return [bits >> 63n ? -m : m, (e || 1) - 1075];
};
const sumOf = ([m, e]: Exact, [n, g]: Exact): Exact => [
  (m << big(e - Math.min(e, g))) + (n << big(g - Math.min(e, g))),
  Math.min(e, g),
];
const timesOf = ([m, e]: Exact, [n, g]: Exact): Exact => [m * n, e + g];
const compare = (a: Exact, b: Exact): number => {
  const [m] = sumOf(a, [-b[0], b[1]]);
  return m > 0n ? 1 : m < 0n ? -1 : 0;
};
/** Up, down or toward zero; `next` gives a number's neighbour in its type. */
function directed(near: number, want: Exact, way: number, next: (x: number, up: boolean) => number): number {
  if (Number.isNaN(near)) return near;
  const side = near === Infinity ? 1 : near === -Infinity ? -1 : compare(exact(near), want);
  const up = way === 1 || (way === 3 && want[0] < 0n);
  if (want[0] === 0n || side === 0 || side === (up ? 1 : -1)) return near;
  return next(near, up);
}
const step64 = (x: number, up: boolean): number => {
  f64view.setFloat64(0, x);
  f64view.setBigUint64(0, f64view.getBigUint64(0) + (up === x > 0 || Object.is(x, up ? 0 : -0) ? 1n : -1n));
  return f64view.getFloat64(0);
};
const step32 = (x: number, up: boolean): number => {
  f64view.setFloat32(0, x);
  f64view.setUint32(0, f64view.getUint32(0) + (up === x > 0 || Object.is(x, up ? 0 : -0) ? 1 : -1));
  return f64view.getFloat32(0);
};
const step16 = (x: number, up: boolean): number =>
  fromF16Bits(toF16Bits(x) + (up === x > 0 || Object.is(x, up ? 0 : -0) ? 1 : -1));
const finite = (...v: number[]): boolean => v.every((x) => Number.isFinite(x));
/** An exact zero of unlike signs is -0 when rounding down. */
const added = (a: number, b: number, way: number, sum: number, next: typeof step64): number =>
  !finite(a, b)
    ? a + b
    : a + b === 0 && compare(sumOf(exact(a), exact(b)), [0n, 0]) === 0
      ? Object.is(a, b)
        ? a
        : way === 2
          ? -0
          : 0
      : directed(sum, sumOf(exact(a), exact(b)), way, next);
const multiplied = (a: number, b: number, way: number, product: number, next: typeof step64): number =>
  finite(a, b) ? directed(product, timesOf(exact(a), exact(b)), way, next) : a * b;
for (const way of [1, 2, 3]) {
  const within = (offset: number, text: string): string => `${mode(offset, way)}${text}\n ${mode(offset, 0)}`;
  row(within(0, 'v_add_f32 %0, %1, %2'), 'f32', 'f32 f32', (a: number, b: number) =>
    added(a, b, way, fr(a + b), step32),
  );
  row(within(0, 'v_mul_f32 %0, %1, %2'), 'f32', 'f32 f32', (a: number, b: number) =>
    multiplied(a, b, way, fr(a * b), step32),
  );
  row(within(2, 'v_add_f64 %0, %1, %2'), 'f64', 'f64 f64', (a: number, b: number) => added(a, b, way, a + b, step64));
  row(within(2, 'v_mul_f64 %0, %1, %2'), 'f64', 'f64 f64', (a: number, b: number) =>
    multiplied(a, b, way, a * b, step64),
  );
  row(within(2, 'v_add_f16 %0, %1, %2'), 'f16', 'f16 f16', (a: number, b: number) =>
    added(a, b, way, fromF16Bits(toF16Bits(a + b)), step16),
  );
  row(within(2, 'v_mul_f16 %0, %1, %2'), 'f16', 'f16 f16', (a: number, b: number) =>
    multiplied(a, b, way, fromF16Bits(toF16Bits(a * b)), step16),
  );
}
row(`${mode(4, 0)}v_mul_f32 %0, %1, %2\n ${mode(4, 3)}`, 'f32', 'f32 f32', (a: number, b: number) =>
  flush(fr(flush(a) * flush(b))),
);
// Sub-dword operands.
const sdwa = /gfx9|gfx10/;
row(
  'v_and_b32_sdwa %0, %1, %2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1',
  'u32',
  'u32 u32',
  (a: number, b: number) => (a >>> 8) & 255 & (b >>> 16),
  { only: sdwa },
);
row(
  'v_or_b32_sdwa %0, %1, sext(%2) dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_3',
  'u32',
  'u32 u32',
  (a: number, b: number) => ((a | (b >> 24)) << 16) >>> 0,
  { only: sdwa },
);
row(
  'v_cvt_f32_f16_sdwa %0, %1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1',
  'f32',
  'u32',
  (a: number) => fromF16Bits(a >>> 16),
  { only: sdwa },
);
