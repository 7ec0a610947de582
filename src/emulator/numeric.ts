// Number helpers that generated code calls: half and fused arithmetic with single rounding, division steps, classes.
// Each is a WebAssembly function made on demand.
import {
  call,
  choose,
  f32,
  f64,
  Func,
  i32,
  i64,
  and,
  or,
  not,
  select,
  type Expr,
  type F32,
  type F64,
  type I32,
  type I64,
  type ModuleBuilder,
  type Type,
} from './wasm.js';

/** Functions of the host, in the order every module imports them. */
const IMPORTS = {
  /** address low, high, bytes, site, lane, wave -> offset in memory, or throws. */
  resolve: [['i32', 'i32', 'i32', 'i32', 'i32', 'i32'], ['i32']],
  /** code address low, high, wave -> block, or throws. */
  jump: [['i32', 'i32', 'i32'], ['i32']],
  /** what went wrong, site, lane, wave, detail; throws. */
  fail: [['i32', 'i32', 'i32', 'i32', 'i32'], []],
  /** kind, offset, bytes, site, lane, wave: a memory access, in checked mode only. */
  access: [['i32', 'i32', 'i32', 'i32', 'i32', 'i32'], []],
  exp2: [['f64'], ['f64']],
  log2: [['f64'], ['f64']],
  sin: [['f64'], ['f64']],
  cos: [['f64'], ['f64']],
  fma64: [['f64', 'f64', 'f64'], ['f64']],
  /** (a*b+c) * 2^n with one rounding. */
  fmaScaled64: [['f64', 'f64', 'f64', 'i32'], ['f64']],
  fmaDirected64: [['f64', 'f64', 'f64', 'i32'], ['f64']],
  trigPreop: [['f64', 'i32'], ['f64']],
  /** Which matrix instruction, wave: whole-wave products. */
  matrix: [['i32', 'i32'], []],
  clock: [[], ['i64']],
} as const satisfies Record<string, readonly [readonly Type[], readonly Type[]]>;
export type ImportName = keyof typeof IMPORTS;

interface Helper<R extends Type = Type> {
  readonly params: readonly Type[];
  readonly result: R;
  build(f: Func, h: Helpers): void;
}
const helper = <R extends Type>(
  params: readonly Type[],
  result: R,
  build: (f: Func, h: Helpers) => void,
): Helper<R> => ({ params, result, build });

const ABS = 0x7fffffff;
const isNaN32 = (x: F32): I32 => f32.ne(x, x);
const isNaN64 = (x: F64): I32 => f64.ne(x, x);
const exp32 = (bits: I32): I32 => i32.and(i32.shr_u(bits, i32.const(23)), i32.const(255));
const exp64 = (bits: I64): I32 => i32.and(i32.wrap(i64.shr_u(bits, i64.const(52))), i32.const(2047));
const pow2 = (n: I32): F64 => f64.fromBits(i64.shl(i64.extend_s(i32.add(n, i32.const(1023))), i64.const(52)));
/** IEEE minNum and maxNum: a NaN loses, -0 is below +0. */
const minMax = <T extends 'f32' | 'f64'>(
  t: T,
  ops: { min: Function; max: Function; ne: Function },
  which: 'min' | 'max',
) =>
  helper([t, t], t, (f) => {
    const [a, b] = [f.param<T>(0), f.param<T>(1)];
    f.emit(select(ops.ne(a, a) as I32, b, select(ops.ne(b, b) as I32, a, ops[which](a, b) as Expr<T>)).b);
  });

const HELPERS = {
  /** Half bits (low 16) to float. */
  h2f: helper(['i32'], 'f32', (f) => {
    const h = f.param<'i32'>(0);
    const em = f.let(i32.and(h, i32.const(0x7fff)));
    const scaled = i32.fromBits(f32.mul(f32.fromBits(i32.shl(em, i32.const(13))), f32.const(2 ** 112)));
    const special = i32.or(i32.shl(em, i32.const(13)), i32.const(0x7f800000));
    const sign = i32.shl(i32.and(h, i32.const(0x8000)), i32.const(16));
    f.emit(f32.fromBits(i32.or(sign, select(i32.ge_u(em, i32.const(0x7c00)), special, scaled))).b);
  }),
  /** Float to half bits, nearest even. */
  f2h: helper(['f32'], 'i32', (f) => {
    const bits = f.let(i32.fromBits(f.param<'f32'>(0)));
    const u = f.let(i32.and(bits, i32.const(ABS)));
    const sign = i32.and(i32.shr_u(bits, i32.const(16)), i32.const(0x8000));
    const nan = i32.or(i32.const(0x7e00), i32.and(i32.shr_u(u, i32.const(13)), i32.const(0x3ff)));
    const big = select(i32.gt_u(u, i32.const(0x7f800000)), nan, i32.const(0x7c00));
    const small = i32.sub(i32.fromBits(f32.add(f32.fromBits(u), f32.const(0.5))), i32.const(0x3f000000));
    const odd = i32.and(i32.shr_u(u, i32.const(13)), i32.const(1));
    const normal = i32.shr_u(i32.add(i32.add(u, i32.const(0xc8000fff | 0)), odd), i32.const(13));
    const magnitude = select(
      i32.ge_u(u, i32.const(0x47800000)),
      big,
      select(i32.lt_u(u, i32.const(0x38800000)), small, normal),
    );
    f.emit(i32.or(sign, magnitude).b);
  }),
  /** Float to half bits, toward zero. */
  f2hz: helper(['f32'], 'i32', (f, h) => {
    const x = f.param<'f32'>(0);
    const r = f.let(h.call('f2h', x));
    const m = i32.and(r, i32.const(0x7fff));
    // One step back where rounding went away from zero; infinity from a finite value becomes the largest half.
    const away = and(f32.gt(f32.abs(h.call('h2f', r)), f32.abs(x)), i32.gt_u(m, i32.const(0)));
    f.emit(i32.sub(r, away).b);
  }),
  /** Double to float, rounded to odd: a later rounding to fewer bits is then exact. */
  odd32: helper(['f64'], 'f32', (f) => {
    const s = f.param<'f64'>(0);
    const r = f.let(f32.demote(s));
    const back = f.let(f64.promote(r));
    const bits = f.let(i32.fromBits(r));
    const down = i32.sub(bits, f64.gt(f64.abs(back), f64.abs(s))); // toward zero
    f.emit(choose(or(f64.eq(back, s), isNaN64(s)), r, f32.fromBits(i32.or(down, i32.const(1)))).b);
  }),
  /** p + c as a double rounded to odd. */
  sumOdd: helper(['f64', 'f64'], 'f64', (f) => {
    const [p, c] = [f.param<'f64'>(0), f.param<'f64'>(1)];
    const s = f.let(f64.add(p, c));
    const bb = f.let(f64.sub(s, p));
    const e = f.let(f64.add(f64.sub(p, f64.sub(s, bb)), f64.sub(c, bb)));
    const bits = f.let(i64.fromBits(s));
    const inexact = and(
      f64.ne(e, f64.const(0)),
      i64.eqz(i64.and(bits, i64.const(1))),
      f64.lt(f64.abs(s), f64.const(Infinity)),
      f64.eq(e, e),
    );
    const step = select(i32.eq(f64.gt(e, f64.const(0)), f64.gt(s, f64.const(0))), i64.const(1), i64.const(-1));
    f.emit(choose(inexact, f64.fromBits(i64.add(bits, step)), s).b);
  }),
  /** a*b+c with one rounding: the product of two floats is exact in double. */
  fma32: helper(['f32', 'f32', 'f32'], 'f32', (f, h) => {
    const [a, b, c] = [0, 1, 2].map((i) => f64.promote(f.param<'f32'>(i)));
    f.emit(f32.demote(h.call('sumOdd', f64.mul(a, b), c)).b);
  }),
  /** The same for halves held as floats; half bits. */
  fma16: helper(['f32', 'f32', 'f32'], 'i32', (f, h) => {
    const [a, b, c] = [0, 1, 2].map((i) => f64.promote(f.param<'f32'>(i)));
    f.emit(h.call('f2h', h.call('odd32', h.call('sumOdd', f64.mul(a, b), c))).b);
  }),
  d2h: helper(['f64'], 'i32', (f, h) => f.emit(h.call('f2h', h.call('odd32', f.param<'f64'>(0))).b)),
  /**
   * Dekker's exact product and a sum rounded once, where no exponent is extreme; the host's exact integers elsewhere.
   */
  fma64: helper(['f64', 'f64', 'f64'], 'f64', (f, h) => {
    const [a, b, c] = [f.param<'f64'>(0), f.param<'f64'>(1), f.param<'f64'>(2)];
    const p = f.let(f64.mul(a, b));
    const inRange = (x: F64, lo: number, hi: number) => {
      const m = f.let(f64.abs(x));
      return and(f64.gt(m, f64.const(lo)), f64.lt(m, f64.const(hi)));
    };
    const safe = and(
      inRange(a, 2 ** -400, 2 ** 400),
      inRange(b, 2 ** -400, 2 ** 400),
      inRange(c, 2 ** -700, 2 ** 900),
      inRange(p, 2 ** -700, 2 ** 900),
    );
    f.when(not(safe), () => f.ret(h.import('fma64', a, b, c) as F64));
    const split = (x: F64) => {
      const t = f.let(f64.mul(x, f64.const(134217729)));
      const hi = f.let(f64.sub(t, f64.sub(t, x)));
      return [hi, f.let(f64.sub(x, hi))];
    };
    const twoSum = (x: F64, y: F64) => {
      const s = f.let(f64.add(x, y));
      const v = f.let(f64.sub(s, x));
      return [s, f.let(f64.add(f64.sub(x, f64.sub(s, v)), f64.sub(y, v)))];
    };
    const [ah, al] = split(a);
    const [bh, bl] = split(b);
    const err = f.let(
      f64.sub(f64.mul(al, bl), f64.sub(f64.sub(f64.sub(p, f64.mul(ah, bh)), f64.mul(al, bh)), f64.mul(ah, bl))),
    );
    const [th, tl] = twoSum(c, err);
    const [vh, vl] = twoSum(p, th);
    f.emit(f64.add(vh, h.call('sumOdd', tl, vl)).b);
  }),
  min32: minMax('f32', f32, 'min'),
  max32: minMax('f32', f32, 'max'),
  min64: minMax('f64', f64, 'min'),
  max64: minMax('f64', f64, 'max'),
  med32: helper(['f32', 'f32', 'f32'], 'f32', (f, h) => {
    const [a, b, c] = [f.param<'f32'>(0), f.param<'f32'>(1), f.param<'f32'>(2)];
    f.when(or(isNaN32(a), isNaN32(b), isNaN32(c)), () => f.ret(h.call('min32', h.call('min32', a, b), c)));
    f.emit(f32.max(f32.min(a, b), f32.min(f32.max(a, b), c)).b);
  }),
  /** Denormals to zero of the same sign. */
  flush32: helper(['f32'], 'f32', (f) => {
    const x = f.param<'f32'>(0);
    f.emit(choose(f32.lt(f32.abs(x), f32.const(2 ** -126)), f32.copysign(f32.const(0), x), x).b);
  }),
  /** x times 2^n, rounded once. */
  ldexp32: helper(['f32', 'i32'], 'f32', (f) => {
    const n = f.param<'i32'>(1);
    const low = f.let(select(i32.lt_s(n, i32.const(-600)), i32.const(-600), n));
    const clamped = f.let(select(i32.gt_s(low, i32.const(600)), i32.const(600), low));
    f.emit(f32.demote(f64.mul(f64.promote(f.param<'f32'>(0)), pow2(clamped))).b);
  }),
  ldexp64: helper(['f64', 'i32'], 'f64', (f) => {
    const y = f.local('f64');
    const n = f.local('i32');
    f.emit(y.set(f.param<'f64'>(0)));
    f.emit(n.set(f.param<'i32'>(1)));
    for (let k = 0; k < 2; k++) {
      f.when(i32.gt_s(n.get, i32.const(1023)), () => {
        f.emit(y.set(f64.mul(y.get, f64.const(2 ** 1023))));
        f.emit(n.set(i32.sub(n.get, i32.const(1023))));
      });
      // Steps of 2^-969 keep 53 bits above the denormals until the last product rounds.
      f.when(i32.lt_s(n.get, i32.const(-1022)), () => {
        f.emit(y.set(f64.mul(y.get, f64.const(2 ** -969))));
        f.emit(n.set(i32.add(n.get, i32.const(969))));
      });
    }
    f.emit(n.set(select(i32.gt_s(n.get, i32.const(1023)), i32.const(1023), n.get)));
    f.emit(n.set(select(i32.lt_s(n.get, i32.const(-1022)), i32.const(-1022), n.get)));
    f.emit(f64.mul(y.get, pow2(n.get)).b);
  }),
  frexpExp32: helper(['f32'], 'i32', (f) => {
    const b = f.let(i64.fromBits(f64.promote(f.param<'f32'>(0)))); // doubles have no float denormals
    const e = f.let(exp64(b));
    f.emit(
      select(
        or(i32.eq(e, i32.const(2047)), i64.eqz(i64.shl(b, i64.const(1)))),
        i32.const(0),
        i32.sub(e, i32.const(1022)),
      ).b,
    );
  }),
  frexpMant32: helper(['f32'], 'f32', (f, h) => {
    const x = f.param<'f32'>(0);
    const e = h.call('frexpExp32', x);
    f.emit(h.call('ldexp32', x, i32.sub(i32.const(0), e)).b);
  }),
  frexpExp64: helper(['f64'], 'i32', (f) => {
    const x = f.param<'f64'>(0);
    const scaled = f.let(i64.fromBits(f64.mul(x, f64.const(2 ** 60))));
    const e = f.let(exp64(i64.fromBits(x)));
    const denormal = i32.sub(exp64(scaled), i32.const(1022 + 60));
    const zero = f64.eq(x, f64.const(0));
    f.emit(
      select(
        or(i32.eq(e, i32.const(2047)), zero),
        i32.const(0),
        select(i32.eqz(e), denormal, i32.sub(e, i32.const(1022))),
      ).b,
    );
  }),
  frexpMant64: helper(['f64'], 'f64', (f, h) => {
    const x = f.param<'f64'>(0);
    f.emit(h.call('ldexp64', x, i32.sub(i32.const(0), h.call('frexpExp64', x))).b);
  }),
  /** Class mask of a value: bit 0 signalling NaN ... bit 9 +infinity, against the asked ones. */
  class32: helper(['i32', 'i32'], 'i32', (f) => classify(f, 23, 255)),
  class16: helper(['i32', 'i32'], 'i32', (f) => classify(f, 10, 31)),
  class64: helper(['i64', 'i32'], 'i32', (f, h) => {
    // The high word classifies as a float would with 20 mantissa bits, the low word only says whether the mantissa is
    // 0.
    const q = f.param<'i64'>(0);
    const hi = i32.wrap(i64.shr_u(q, i64.const(32)));
    const sticky = i32.ne(i32.wrap(q), i32.const(0));
    f.emit(h.call('class64w', i32.or(hi, sticky), f.param<'i32'>(1)).b);
  }),
  class64w: helper(['i32', 'i32'], 'i32', (f) => classify(f, 20, 2047)),
  /** v_div_scale: bit 32 of the result is the VCC bit. */
  divScale32: helper(['f32', 'f32', 'f32'], 'i64', (f, h) => {
    const [x, d, n] = [f.param<'f32'>(0), f.param<'f32'>(1), f.param<'f32'>(2)];
    const done = (r: F32, vcc: number) => f.ret(i64.or(i64.extend_u(i32.fromBits(r)), i64.const(BigInt(vcc) << 32n)));
    const denormal = (v: F32) => and(f32.gt(f32.abs(v), f32.const(0)), f32.lt(f32.abs(v), f32.const(2 ** -126)));
    const scaled = (k: number) => h.call('ldexp32', x, i32.const(k));
    const same = (y: F32) => i32.eq(i32.fromBits(x), i32.fromBits(y));
    const en = f.let(exp32(i32.fromBits(n)));
    const ed = f.let(exp32(i32.fromBits(d)));
    const q = f.let(f32.div(n, d));
    const r = f.let(f32.demote(f64.div(f64.const(1), f64.promote(d))));
    f.when(or(f32.eq(n, f32.const(0)), f32.eq(d, f32.const(0))), () => done(f32.const(NaN), 0));
    f.when(i32.ge_s(i32.sub(en, ed), i32.const(96)), () => done(choose(same(d), scaled(64), x), 1));
    f.when(denormal(d), () => done(scaled(64), 0));
    // Down, so that a huge denominator stays finite and the scaled quotient is large enough.
    f.when(and(denormal(r), or(denormal(q), f32.eq(q, f32.const(0)))), () => done(choose(same(d), scaled(-64), x), 1));
    f.when(denormal(r), () => done(scaled(-64), 0));
    // A quotient below half the smallest denormal rounds to 0 but is as tiny.
    f.when(or(denormal(q), f32.eq(q, f32.const(0))), () => done(choose(same(n), scaled(64), x), 1));
    f.when(i32.le_s(en, i32.const(23)), () => done(scaled(64), 0));
    done(x, 0);
    f.emit([0x00]);
  }),
  /** Value in the first result; VCC from divScaleFlag64, since the value fills 64 bits. */
  divScale64: helper(['f64', 'f64', 'f64'], 'f64', (f, h) => divScale64(f, h, false)),
  divScaleFlag64: helper(['f64', 'f64', 'f64'], 'i32', (f, h) => divScale64(f, h, true)),
  divFixup32: helper(['f32', 'f32', 'f32'], 'f32', (f) => {
    const [q, d, n] = [f.param<'f32'>(0), f.param<'f32'>(1), f.param<'f32'>(2)];
    const sign = i32.and(i32.xor(i32.fromBits(d), i32.fromBits(n)), i32.const(1 << 31));
    const signed = (bits: I32) => f32.fromBits(i32.or(bits, sign));
    const quiet = (x: F32) => f32.fromBits(i32.or(i32.fromBits(x), i32.const(0x400000)));
    const inf = (x: F32) => f32.eq(f32.abs(x), f32.const(Infinity));
    const zero = (x: F32) => f32.eq(x, f32.const(0));
    const gap = i32.sub(exp32(i32.fromBits(n)), exp32(i32.fromBits(d)));
    f.when(isNaN32(n), () => f.ret(quiet(n)));
    f.when(isNaN32(d), () => f.ret(quiet(d)));
    f.when(or(and(zero(d), zero(n)), and(inf(d), inf(n))), () => f.ret(f32.bits(0xffc00000)));
    f.when(or(zero(d), inf(n)), () => f.ret(signed(i32.const(0x7f800000))));
    f.when(or(inf(d), zero(n), i32.lt_s(gap, i32.const(-150))), () => f.ret(signed(i32.const(0))));
    // A quotient that overflowed on the way is NaN by now: infinity minus infinity in the refinement.
    f.when(isNaN32(q), () => f.ret(signed(i32.const(0x7f800000))));
    f.emit(signed(i32.and(i32.fromBits(q), i32.const(ABS))).b);
  }),
  divFixup64: helper(['f64', 'f64', 'f64'], 'f64', (f) => {
    const [q, d, n] = [f.param<'f64'>(0), f.param<'f64'>(1), f.param<'f64'>(2)];
    const sign = i64.and(i64.xor(i64.fromBits(d), i64.fromBits(n)), i64.const(1n << 63n));
    const signed = (bits: I64) => f64.fromBits(i64.or(bits, sign));
    const inf = (x: F64) => f64.eq(f64.abs(x), f64.const(Infinity));
    const zero = (x: F64) => f64.eq(x, f64.const(0));
    const quiet = (x: F64) => f64.fromBits(i64.or(i64.fromBits(x), i64.const(1n << 51n)));
    const gap = i32.sub(exp64(i64.fromBits(n)), exp64(i64.fromBits(d)));
    f.when(isNaN64(n), () => f.ret(quiet(n)));
    f.when(isNaN64(d), () => f.ret(quiet(d)));
    f.when(or(and(zero(d), zero(n)), and(inf(d), inf(n))), () => f.ret(f64.fromBits(i64.const(0xfff8000000000000n))));
    f.when(or(zero(d), inf(n)), () => f.ret(signed(i64.const(0x7ff0000000000000n))));
    f.when(or(inf(d), zero(n), i32.lt_s(gap, i32.const(-1075))), () => f.ret(signed(i64.const(0))));
    f.when(isNaN64(q), () => f.ret(signed(i64.const(0x7ff0000000000000n))));
    f.emit(signed(i64.and(i64.fromBits(q), i64.const(0x7fffffffffffffffn))).b);
  }),
  /** Bytes of {a, b} picked by selector bytes; 8 to 11 replicate signs, 12 is 0, above is 0xff. */
  perm: helper(['i32', 'i32', 'i32'], 'i32', (f) => {
    const all = f.let(i64.or(i64.shl(i64.extend_u(f.param<'i32'>(0)), i64.const(32)), i64.extend_u(f.param<'i32'>(1))));
    const sel = f.param<'i32'>(2);
    const out = f.local('i32');
    const byte = f.local('i32');
    for (let k = 0; k < 4; k++) {
      const s = f.let(i32.and(i32.shr_u(sel, i32.const(8 * k)), i32.const(255)));
      const picked = i32.and(
        i32.wrap(i64.shr_u(all, i64.extend_u(i32.shl(i32.and(s, i32.const(7)), i32.const(3))))),
        i32.const(255),
      );
      // 8..11: the sign of byte 1, 3, 5, 7.
      const signAt = i32.add(i32.shl(i32.and(s, i32.const(3)), i32.const(4)), i32.const(15));
      const sign = i32.mul(i32.and(i32.wrap(i64.shr_u(all, i64.extend_u(signAt))), i32.const(1)), i32.const(255));
      f.emit(
        byte.set(
          select(
            i32.lt_u(s, i32.const(8)),
            picked,
            select(i32.lt_u(s, i32.const(12)), sign, select(i32.eq(s, i32.const(12)), i32.const(0), i32.const(255))),
          ),
        ),
      );
      f.emit(out.set(i32.or(out.get, i32.shl(byte.get, i32.const(8 * k)))));
    }
    f.emit(out.get.b);
  }),
  brev: helper(['i32'], 'i32', (f) => {
    const x = f.local('i32');
    f.emit(x.set(f.param<'i32'>(0)));
    for (const [mask, n] of [
      [0x55555555, 1],
      [0x33333333, 2],
      [0x0f0f0f0f, 4],
      [0x00ff00ff, 8],
      [0x0000ffff, 16],
    ]) {
      f.emit(
        x.set(
          i32.or(
            i32.and(i32.shr_u(x.get, i32.const(n)), i32.const(mask)),
            i32.shl(i32.and(x.get, i32.const(mask)), i32.const(n)),
          ),
        ),
      );
    }
    f.emit(x.get.b);
  }),
  /** Host transcendental, rounded once to float; denormal arguments and results are zero as the hardware's. */
  ...(Object.fromEntries(
    (
      [
        ['exp2_32', 'exp2'],
        ['log2_32', 'log2'],
      ] as const
    ).map(([name, host]) => [
      name,
      helper(['f32'], 'f32', (f, h) => {
        f.emit(
          h.call('flush32', f32.demote(h.import(host, f64.promote(h.call('flush32', f.param<'f32'>(0)))) as F64)).b,
        );
      }),
    ]),
  ) as Record<'exp2_32' | 'log2_32', Helper<'f32'>>),
  ...(Object.fromEntries(
    (['sin', 'cos'] as const).map((host) => [
      `${host}_32`,
      helper(['f32'], 'f32', (f, h) => {
        // The argument is in turns; beyond 256 turns the hardware gives sin 0 and cos 1.
        const x = f.let(f64.promote(f.param<'f32'>(0)));
        const turn = f.let(f64.sub(x, f64.nearest(x)));
        const r = h.import(host, f64.mul(turn, f64.const(2 * Math.PI))) as F64;
        f.emit(
          choose(
            f64.le(f64.abs(x), f64.const(256)),
            f32.demote(r),
            choose(f64.lt(f64.abs(x), f64.const(Infinity)), f32.const(host === 'sin' ? 0 : 1), f32.const(NaN)),
          ).b,
        );
      }),
    ]),
  ) as Record<'sin_32' | 'cos_32', Helper<'f32'>>),
  rcp32: helper(['f32'], 'f32', (f, h) =>
    f.emit(h.call('flush32', f32.demote(f64.div(f64.const(1), f64.promote(h.call('flush32', f.param<'f32'>(0)))))).b),
  ),
  rsq32: helper(['f32'], 'f32', (f, h) =>
    f.emit(f32.demote(f64.div(f64.const(1), f64.sqrt(f64.promote(h.call('flush32', f.param<'f32'>(0)))))).b),
  ),
  sqrt32: helper(['f32'], 'f32', (f) => f.emit(f32.sqrt(f.param<'f32'>(0)).b)),
  /** The double helpers are seeds: 26 bits are kept, within the documented 2^29 ULP, so that code must refine them. */
  seed64: helper(['f64'], 'f64', (f) => {
    const x = f.param<'f64'>(0);
    const usual = f64.lt(f64.abs(x), f64.const(Infinity));
    f.emit(choose(usual, f64.fromBits(i64.and(i64.fromBits(x), i64.const(-1n << 26n))), x).b);
  }),
} as const;

export type HelperName = keyof typeof HELPERS;
type ResultOf<N extends HelperName> = (typeof HELPERS)[N]['result'];

function classify(f: Func, mantissa: number, maxExp: number): void {
  const [x, mask] = [f.param<'i32'>(0), f.param<'i32'>(1)];
  const e = f.let(i32.and(i32.shr_u(x, i32.const(mantissa)), i32.const(maxExp)));
  const m = f.let(i32.and(x, i32.const(2 ** mantissa - 1)));
  const width = mantissa + Math.log2(maxExp + 1);
  const s = f.let(i32.and(i32.shr_u(x, i32.const(width)), i32.const(1)));
  const special = i32.eq(e, i32.const(maxExp));
  const quiet = i32.and(i32.shr_u(m, i32.const(mantissa - 1)), i32.const(1));
  // sNaN, qNaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf
  const nan = select(quiet, i32.const(1), i32.const(0));
  const infinity = select(s, i32.const(2), i32.const(9));
  const normal = select(s, i32.const(3), i32.const(8));
  const denormal = select(s, i32.const(4), i32.const(7));
  const zero = select(s, i32.const(5), i32.const(6));
  const bit = select(special, select(m, nan, infinity), select(e, normal, select(m, denormal, zero)));
  f.emit(i32.and(i32.shr_u(mask, bit), i32.const(1)).b);
}

function divScale64(f: Func, h: Helpers, flag: boolean): void {
  const [x, d, n] = [f.param<'f64'>(0), f.param<'f64'>(1), f.param<'f64'>(2)];
  const done = (r: F64, vcc: number) => f.ret(flag ? i32.const(vcc) : r);
  const denormal = (v: F64) => and(f64.gt(f64.abs(v), f64.const(0)), f64.lt(f64.abs(v), f64.const(2 ** -1022)));
  const scaled = (k: number) => h.call('ldexp64', x, i32.const(k));
  const same = (y: F64) => i64.eq(i64.fromBits(x), i64.fromBits(y));
  const en = f.let(exp64(i64.fromBits(n)));
  const ed = f.let(exp64(i64.fromBits(d)));
  const q = f.let(f64.div(n, d));
  const r = f.let(f64.div(f64.const(1), d));
  f.when(or(f64.eq(n, f64.const(0)), f64.eq(d, f64.const(0))), () => done(f64.const(NaN), 0));
  f.when(i32.ge_s(i32.sub(en, ed), i32.const(768)), () => done(choose(same(d), scaled(128), x), 1));
  f.when(denormal(d), () => done(scaled(128), 0));
  f.when(and(denormal(r), or(denormal(q), f64.eq(q, f64.const(0)))), () => done(choose(same(d), scaled(-128), x), 1));
  f.when(denormal(r), () => done(scaled(-128), 0));
  f.when(or(denormal(q), f64.eq(q, f64.const(0))), () => done(choose(same(n), scaled(128), x), 1));
  f.when(i32.le_s(en, i32.const(53)), () => done(scaled(128), 0));
  done(x, 0);
  f.emit([0x00]);
}

/** The helpers and host functions of one module. */
export class Helpers {
  private readonly module: ModuleBuilder;
  private readonly made = new Map<HelperName, number>();
  private readonly imported = new Map<ImportName, number>();

  constructor(module: ModuleBuilder) {
    this.module = module;
    for (const [name, [params, results]] of Object.entries(IMPORTS))
      this.imported.set(name as ImportName, module.import(name, params, results));
  }
  call<N extends HelperName>(name: N, ...args: readonly Expr[]): Expr<ResultOf<N>> {
    const spec = HELPERS[name] as Helper;
    let index = this.made.get(name);
    if (index === undefined) {
      const f = new Func(spec.params, [spec.result]);
      spec.build(f, this);
      index = this.module.add(f);
      this.made.set(name, index);
    }
    return call(spec.result as ResultOf<N>, index, ...args);
  }
  index(name: ImportName): number {
    return this.imported.get(name)!;
  }
  import(name: ImportName, ...args: readonly Expr[]): Expr {
    return call(IMPORTS[name][1][0] ?? 'i32', this.index(name), ...args);
  }
}
