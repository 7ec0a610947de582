// Packed arithmetic: two halves or two floats at a time, and dot products.
import type { Context } from './context.js';
import { modList, type Operand } from './instruction.js';
import { constantBits, readVector } from './operands.js';
import type { Handler } from './scalar-ops.js';
import { f32, i32, i64, select, type Expr, type F32, type I32 } from './wasm.js';

const K = i32.const;
const smin = (a: I32, b: I32) => select(i32.lt_s(a, b), a, b);
const smax = (a: I32, b: I32) => select(i32.gt_s(a, b), a, b);
const umin = (a: I32, b: I32) => select(i32.lt_u(a, b), a, b);
const umax = (a: I32, b: I32) => select(i32.gt_u(a, b), a, b);

type Half = 'f16' | 'u16' | 'i16';
interface Packed {
  readonly t: Half;
  readonly n: number;
  readonly f: (c: Context, a: never, b: never, z: never) => Expr;
  readonly halfBits?: boolean;
}
const PACKED: Record<string, Packed> = {
  v_pk_add_f16: { t: 'f16', n: 2, f: (_, a: F32, b: F32) => f32.add(a, b) },
  v_pk_mul_f16: { t: 'f16', n: 2, f: (_, a: F32, b: F32) => f32.mul(a, b) },
  v_pk_fma_f16: { t: 'f16', n: 3, f: (c, a: F32, b: F32, z: F32) => c.h.call('fma16', a, b, z), halfBits: true },
  v_pk_min_f16: { t: 'f16', n: 2, f: (c, a: F32, b: F32) => c.h.call('min32', a, b) },
  v_pk_max_f16: { t: 'f16', n: 2, f: (c, a: F32, b: F32) => c.h.call('max32', a, b) },
  v_pk_minimum_f16: { t: 'f16', n: 2, f: (_, a: F32, b: F32) => f32.min(a, b) },
  v_pk_maximum_f16: { t: 'f16', n: 2, f: (_, a: F32, b: F32) => f32.max(a, b) },
  v_pk_add_u16: { t: 'u16', n: 2, f: (_, a: I32, b: I32) => i32.add(a, b) },
  v_pk_add_i16: { t: 'i16', n: 2, f: (_, a: I32, b: I32) => i32.add(a, b) },
  v_pk_sub_u16: { t: 'u16', n: 2, f: (_, a: I32, b: I32) => i32.sub(a, b) },
  v_pk_sub_i16: { t: 'i16', n: 2, f: (_, a: I32, b: I32) => i32.sub(a, b) },
  v_pk_mul_lo_u16: { t: 'u16', n: 2, f: (_, a: I32, b: I32) => i32.mul(a, b) },
  v_pk_mad_u16: { t: 'u16', n: 3, f: (_, a: I32, b: I32, z: I32) => i32.add(i32.mul(a, b), z) },
  v_pk_mad_i16: { t: 'i16', n: 3, f: (_, a: I32, b: I32, z: I32) => i32.add(i32.mul(a, b), z) },
  v_pk_min_i16: { t: 'i16', n: 2, f: (_, a: I32, b: I32) => smin(a, b) },
  v_pk_max_i16: { t: 'i16', n: 2, f: (_, a: I32, b: I32) => smax(a, b) },
  v_pk_min_u16: { t: 'u16', n: 2, f: (_, a: I32, b: I32) => umin(a, b) },
  v_pk_max_u16: { t: 'u16', n: 2, f: (_, a: I32, b: I32) => umax(a, b) },
  v_pk_lshlrev_b16: { t: 'u16', n: 2, f: (_, a: I32, b: I32) => i32.shl(b, i32.and(a, K(15))) },
  v_pk_lshrrev_b16: { t: 'u16', n: 2, f: (_, a: I32, b: I32) => i32.shr_u(b, i32.and(a, K(15))) },
  v_pk_ashrrev_i16: { t: 'i16', n: 2, f: (_, a: I32, b: I32) => i32.shr_s(b, i32.and(a, K(15))) },
};

/** A packed operand's 32 bits: float constants fill the low half, integer ones all bits. */
function packedBits(c: Context, o: Operand): I32 {
  if (o.kind === 'v') return c.vget(o.reg);
  if (o.kind === 's') return c.uniform(o.reg, 'i32') as I32;
  return K(Number(BigInt.asIntN(32, constantBits(o, o.float !== undefined ? 'f16' : 'b32'))));
}
function half(c: Context, o: Operand, t: Half, high: boolean, neg: boolean): Expr {
  const bits = packedBits(c, o);
  const x = high ? i32.shr_u(bits, K(16)) : bits;
  if (t === 'i16') return i32.extend16(x);
  if (t === 'u16') return i32.and(x, K(65535));
  const v = c.h.call('h2f', x);
  return neg ? f32.neg(v) : v;
}

const packedHandler =
  (spec: Packed): Handler =>
  (c, i) =>
    c.lanes(i, () => {
      const sources = i.ops.slice(1, 1 + spec.n);
      const sel = [modList(i, 'op_sel', 0, 3), modList(i, 'op_sel_hi', 1, 3)];
      const neg = [modList(i, 'neg_lo', 0, 3), modList(i, 'neg_hi', 0, 3)];
      const out = [0, 1].map((part) => {
        const args = sources.map((o, k) => c.f.let(half(c, o, spec.t, sel[part][k] === 1, neg[part][k] === 1)));
        let v = spec.f(c, args[0] as never, args[1] as never, args[2] as never);
        if (i.mods.clamp) {
          if (spec.t !== 'f16') {
            if (!/_(add|sub)_/.test(i.name)) c.unsupported(i, 'packed integer clamp');
            const [lo, hi] = spec.t === 'u16' ? [0, 65535] : [-32768, 32767];
            v = smax(smin(v as I32, K(hi)), K(lo));
          } else {
            const x = c.f.let(spec.halfBits ? c.h.call('h2f', v) : (v as F32));
            return c.f.let(c.h.call('f2h', select(f32.gt(x, f32.const(0)), f32.min(x, f32.const(1)), f32.const(0))));
          }
        }
        return c.f.let(spec.t === 'f16' && !spec.halfBits ? c.h.call('f2h', v) : i32.and(v as I32, K(65535)));
      });
      c.vset(i.ops[0].reg, i32.or(i32.and(out[0], K(65535)), i32.shl(out[1], K(16))));
    });

/** A float of a packed pair: op_sel picks the register of the pair. Constants and single scalars serve both. */
function pairFloat(c: Context, o: Operand, high: boolean, neg: boolean): F32 {
  let x: F32;
  if (o.kind === 'v') x = c.vgetF(o.reg + (high ? 1 : 0));
  else if (o.kind === 's') x = c.uniform(o.reg + (high ? 1 : 0), 'f32') as F32;
  else x = readVector(c, o, 'f32') as F32;
  return neg ? f32.neg(x) : x;
}
const PAIRS: Record<string, (c: Context, a: F32, b: F32, z: F32) => F32> = {
  v_pk_add_f32: (_, a, b) => f32.add(a, b),
  v_pk_mul_f32: (_, a, b) => f32.mul(a, b),
  v_pk_fma_f32: (c, a, b, z) => c.h.call('fma32', a, b, z),
};
const pairHandler =
  (f: (typeof PAIRS)[string]): Handler =>
  (c, i) =>
    c.lanes(i, () => {
      const [d, ...sources] = i.ops;
      const sel = [modList(i, 'op_sel', 0, 3), modList(i, 'op_sel_hi', 1, 3)];
      const neg = [modList(i, 'neg_lo', 0, 3), modList(i, 'neg_hi', 0, 3)];
      const out = [0, 1].map((part) => {
        const args = sources.map((o, k) => c.f.let(pairFloat(c, o, sel[part][k] === 1, neg[part][k] === 1)));
        return c.f.let(f(c, args[0], args[1], args[2]));
      });
      out.forEach((v, k) => c.vset(d.reg + k, v));
    });
const pairMove: Handler = (c, i) =>
  c.lanes(i, () => {
    const [d, a, b] = i.ops;
    const sel = modList(i, 'op_sel', 0, 2);
    const pick = (o: Operand, high: number): I32 =>
      o.kind === 'v'
        ? c.vget(o.reg + high)
        : o.kind === 's'
          ? (c.uniform(o.reg + high, 'i32') as I32)
          : (readVector(c, o, 'b32') as I32);
    const values = [c.f.let(pick(a, sel[0])), c.f.let(pick(b, sel[1]))];
    values.forEach((v, k) => c.vset(d.reg + k, v));
  });

/** Dot products of packed integers or halves, added to a word; the c forms accumulate into the destination. */
function dot(name: string): Handler | undefined {
  const m = /^v_dot(2|4|8)(c?)_(f32_f16|f32_bf16|i32_i16|u32_u16|i32_i8|u32_u8|i32_i4|u32_u4|i32_iu8|i32_iu4)$/.exec(
    name,
  );
  if (!m) return undefined;
  const n = Number(m[1]);
  const kind = m[3];
  return (c, i) =>
    c.lanes(i, () => {
      const [d, a, b] = i.ops;
      const z = m[2] ? d : i.ops[3];
      const [x, y] = [c.f.let(packedBits(c, a)), c.f.let(packedBits(c, b))];
      if (kind.startsWith('f32')) {
        const value = (v: I32, k: number): F32 => {
          if (kind === 'f32_bf16') return f32.fromBits(k ? i32.and(v, K(0xffff0000 | 0)) : i32.shl(v, K(16)));
          return c.h.call('h2f', k ? i32.shr_u(v, K(16)) : v);
        };
        let sum = readVector(c, z, 'f32') as F32;
        for (let k = 0; k < 2; k++) sum = c.f.let(c.h.call('fma32', value(x, k), value(y, k), sum));
        c.vset(d.reg, sum);
        return;
      }
      const bits = 32 / n;
      // The iu forms say by neg_lo which operand is signed.
      const mixed = kind.includes('iu') ? modList(i, 'neg_lo', 0, 2) : undefined;
      const part = (v: I32, k: number, which: number): I32 => {
        const up = K(32 - bits * (k + 1));
        const signed = mixed ? mixed[which] === 1 : kind[0] === 'i';
        return signed ? i32.shr_s(i32.shl(v, up), K(32 - bits)) : i32.shr_u(i32.shl(v, up), K(32 - bits));
      };
      let sum: I32 = readVector(c, z, 'b32') as I32;
      if (i.mods.clamp) {
        let wide = kind[0] === 'i' ? i64.extend_s(sum) : i64.extend_u(sum);
        for (let k = 0; k < n; k++)
          wide = i64.add(wide, i64.mul(i64.extend_s(part(x, k, 0)), i64.extend_s(part(y, k, 1))));
        const w = c.f.let(wide);
        const [lo, hi] = kind[0] === 'i' ? [-(2n ** 31n), 2n ** 31n - 1n] : [0n, 2n ** 32n - 1n];
        c.vset(
          d.reg,
          i32.wrap(
            select(i64.gt_s(w, i64.const(hi)), i64.const(hi), select(i64.lt_s(w, i64.const(lo)), i64.const(lo), w)),
          ),
        );
        return;
      }
      for (let k = 0; k < n; k++) sum = i32.add(sum, i32.mul(part(x, k, 0), part(y, k, 1)));
      c.vset(d.reg, sum);
    });
}

export function packedHandlerOf(name: string): Handler | undefined {
  if (name in PACKED) return packedHandler(PACKED[name]);
  if (name in PAIRS) return pairHandler(PAIRS[name]);
  if (name === 'v_pk_mov_b32') return pairMove;
  return dot(name);
}
