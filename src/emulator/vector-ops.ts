// Vector arithmetic: applies the rule table under every encoding, plus compares, carries, selects, division steps and
// mixed precision.
import type { Context } from './context.js';
import { dppSource, laneEnabled, type DppLane } from './cross-lane.js';
import { modList, SREG, type Instruction, type Operand } from './instruction.js';
import { finishFloat, merge16, mergeSelected, readVector, widthOf, type OpType, type Source } from './operands.js';
import { floatCompare, type Handler } from './scalar-ops.js';
import { VECTOR_RULES, type Rule } from './vector-rules.js';
import { and, choose, f32, f64, i32, i64, select, type Expr, type F32, type F64, type I32, type I64 } from './wasm.js';

/** Registers to write once all sources are read. */
type Writes = { readonly o: Operand; readonly v: Expr }[];

/** Instructions whose destination is also the last source. */
const ACCUMULATES = new Set(['v_fmac_f32', 'v_fmac_f16', 'v_fmac_f64', 'v_mac_f32', 'v_mac_f16', 'v_mac_legacy_f32']);
/** Integer instructions that saturate under clamp. */
const SATURATES: Record<string, { wide: (a: I64, b: I64) => I64; signed: boolean; bits: number }> = {};
for (const [op, wide] of [
  ['add', i64.add],
  ['sub', i64.sub],
] as const) {
  for (const t of ['u32', 'i32', 'u16', 'i16'])
    SATURATES[`v_${op}_${t}`] = { wide, signed: t[0] === 'i', bits: Number(t.slice(1)) };
}

/** Reads operand k (0 is the first source) with the modifiers of the encoding. */
class Reader {
  readonly c: Context;
  readonly i: Instruction;
  readonly dpp: DppLane | undefined;
  private readonly opSel: number[];
  constructor(c: Context, i: Instruction, dpp?: DppLane) {
    this.c = c;
    this.i = i;
    this.dpp = dpp;
    this.opSel = modList(i, 'op_sel', 0, 4);
  }
  source(k: number): Source {
    return {
      ...(k === 0 && this.dpp && { raw: this.dpp.value }),
      ...(this.opSel[k] === 1 && { high: true }),
      ...(this.i.form === 'sdwa' && { select: this.i.mods[`src${k}_sel`] }),
    };
  }
  read(o: Operand, t: OpType, k: number): Expr {
    let e = readVector(this.c, o, t, this.source(k));
    if (t === 'f32' && !(this.c.mode.denorm32 & 1)) e = this.c.h.call('flush32', e);
    return this.c.f.let(e);
  }
}

/** Result value to the bits of a register. */
function resultBits(
  c: Context,
  i: Instruction,
  o: Operand,
  to: OpType,
  v: Expr,
  halfBits: boolean,
  exact: boolean,
): Expr {
  if (to === 'f16') {
    let bits: I32;
    if (halfBits && !i.mods.clamp && !i.mods.mul && !i.mods.div) bits = v as I32;
    else bits = c.h.call('f2h', finishFloat(c, i, halfBits ? c.h.call('h2f', v) : (v as F32)));
    return i.form === 'sdwa' ? mergeSelected(c, i, o, bits) : merge16(c, i, o, bits);
  }
  if (widthOf(to) === 16) {
    const bits = i32.and(v as I32, i32.const(65535));
    return i.form === 'sdwa' ? mergeSelected(c, i, o, bits) : merge16(c, i, o, bits);
  }
  if (to === 'f32') {
    let x = finishFloat(c, i, v as F32);
    if (!(c.mode.denorm32 & 2) && !exact) x = c.h.call('flush32', x);
    return i.form === 'sdwa' && i.mods.dst_sel !== 'DWORD' ? mergeSelected(c, i, o, i32.fromBits(x)) : x;
  }
  if (to === 'f64') return finishFloat(c, i, v as F64);
  return i.form === 'sdwa' ? mergeSelected(c, i, o, v as I32) : v;
}

function evaluate(c: Context, i: Instruction, rule: Rule, dpp?: DppLane): Writes {
  const [d, ...given] = i.ops;
  const sources = ACCUMULATES.has(i.name) ? [...given.slice(0, 2), d] : given;
  const r = new Reader(c, i, dpp);
  if (sources.length < rule.from.length) c.unsupported(i, `expected ${rule.from.length} sources`);
  const args = rule.from.map((t, k) => r.read(sources[k], t, k));
  let v: Expr;
  const sat = i.mods.clamp ? SATURATES[i.name] : undefined;
  if (sat) v = saturate(c, sat, args as I32[]);
  else {
    if (i.mods.clamp && rule.to[0] !== 'f') c.unsupported(i, 'integer clamp');
    const directedRule = directedRules(c, i, rule);
    if (directedRule) v = directedRule(args);
    else v = rule.f(c.h, ...args);
  }
  const bits = c.f.let(resultBits(c, i, d, rule.to, v, rule.halfBits ?? false, rule.exact ?? false));
  return [{ o: d, v: bits }];
}

const sumOf = (name: string): 'add' | 'sub' | 'subrev' | 'mul' | 'fma' | 'cvt' | undefined => {
  const m = /^v_(add|sub|subrev|mul|fma|fmac|cvt)_(f32|f64|f16)/.exec(name);
  return m ? ((m[1] === 'fmac' ? 'fma' : m[1]) as 'add') : undefined;
};
/** Instructions whose results follow the rounding mode. */
const ROUNDS =
  /^v_(add|sub|subrev|mul|fma|fmac|fmamk|fmaak|mad|mac|madmk|madak|cvt|ldexp|div_fmas|div_fixup|sqrt|dot)\w*_f(16|32|64)/;
const EXACT = /^v_cvt_(f32_f16|f64_\w+|f32_ubyte\d)$|^v_cvt_[iu]/;

/**
 * How an instruction computes when its type is not rounded to nearest; undefined where the mode changes nothing. What
 * is not modelled is refused.
 */
function directedRules(c: Context, i: Instruction, rule: Rule): ((args: Expr[]) => Expr) | undefined {
  const mode = rule.to === 'f32' ? c.mode.round32 : rule.to === 'f64' || rule.to === 'f16' ? c.mode.round64 : 0;
  if (mode === 0 || !ROUNDS.test(i.name) || EXACT.test(i.name)) return undefined;
  const op = sumOf(i.name);
  if (!op || (op === 'cvt' && !/^v_cvt_f(32_f64|16_f32)$/.test(i.name)) || i.mods.mul || i.mods.div)
    c.unsupported(i, `rounding mode ${mode}`);
  return (args) => {
    const [a, b, z] = args.map((x) => (x.t === 'f32' ? f64.promote(x as F32) : x)) as F64[];
    if (rule.to === 'f64') {
      const one = f64.const(1);
      const terms: Record<string, () => readonly [F64, F64, F64]> = {
        add: () => [a, one, b],
        mul: () => [a, b, zeroLike(c, a, b)],
        fma: () => [a, b, z],
      };
      if (!terms[op!]) c.unsupported(i, `rounding mode ${mode}`);
      return c.h.import('fmaDirected64', ...terms[op!](), i32.const(mode)) as F64;
    }
    return directed(c, mode, rule.to === 'f16', op!, a, b, z, rule.halfBits ?? false);
  };
}

/** A zero with the sign of the product: adding it changes nothing, in any mode. */
const zeroLike = (c: Context, a: F64, b: F64): F64 =>
  f64.fromBits(c.f.let(i64.and(i64.xor(i64.fromBits(a), i64.fromBits(b)), i64.const(-(2n ** 63n)))));

/**
 * Sums and products of floats and halves rounded up, down or toward zero: exact in double with a sticky bit, rounded to
 * nearest, then stepped.
 */
function directed(
  c: Context,
  mode: number,
  half: boolean,
  op: NonNullable<ReturnType<typeof sumOf>>,
  a: F64,
  b: F64,
  z: F64,
  halfBits: boolean,
): Expr {
  const pairs: Partial<Record<typeof op, () => readonly [F64, F64]>> = {
    add: () => [a, b],
    sub: () => [a, f64.neg(b)],
    subrev: () => [b, f64.neg(a)],
    fma: () => [c.f.let(f64.mul(a, b)), z],
  };
  const pair = pairs[op]?.();
  const s = c.f.let(pair ? c.h.call('sumOdd', ...pair) : op === 'mul' ? f64.mul(a, b) : a);
  const near = c.f.let(half ? c.h.call('d2h', s) : i32.fromBits(f32.demote(s)));
  const value = (bits: I32): F64 => f64.promote(half ? c.h.call('h2f', bits) : f32.fromBits(bits));
  const back = c.f.let(value(near));
  const sign = i32.and(near, i32.const(half ? 0x8000 : -0x80000000));
  const up = select(sign, i32.const(-1), i32.const(1)); // the next number above, as a step of the bits
  const zero = i32.const(0);
  const step =
    mode === 1
      ? select(f64.lt(back, s), up, zero)
      : mode === 2
        ? select(f64.gt(back, s), i32.sub(zero, up), zero)
        : select(f64.gt(f64.abs(back), f64.abs(s)), i32.const(-1), zero);
  let bits: I32 = c.f.let(i32.add(near, step));
  if (mode === 2 && pair) {
    const plus = (x: F64): I32 => i64.eqz(i64.fromBits(x));
    bits = c.f.let(
      select(
        and(f64.eq(s, f64.const(0)), i32.eqz(and(plus(pair[0]), plus(pair[1])))),
        i32.const(half ? 0x8000 : -0x80000000),
        bits,
      ),
    );
  }
  return half ? (halfBits ? bits : c.h.call('h2f', bits)) : f32.fromBits(bits);
}

function saturate(c: Context, s: (typeof SATURATES)[string], [a, b]: I32[]): I32 {
  const ext = (x: I32): I64 => (s.signed ? i64.extend_s(s.bits === 16 ? i32.extend16(x) : x) : i64.extend_u(x));
  const r = c.f.let(s.wide(ext(a), ext(b)));
  const [lo, hi] = s.signed
    ? [-(2n ** BigInt(s.bits - 1)), 2n ** BigInt(s.bits - 1) - 1n]
    : [0n, 2n ** BigInt(s.bits) - 1n];
  const top = select(i64.gt_s(r, i64.const(hi)), i64.const(hi), r);
  return i32.wrap(select(i64.lt_s(r, i64.const(lo)), i64.const(lo), top));
}

function apply(c: Context, writes: Writes, enabled?: I32): void {
  for (const { o, v } of writes) {
    if (!enabled) {
      c.vset(o.reg, v);
      continue;
    }
    // Lanes that DPP masks off keep their value.
    if (v.t === 'i64' || v.t === 'f64') {
      const q = v.t === 'f64' ? i64.fromBits(v as F64) : (v as I64);
      c.vset(o.reg, select(enabled, q, c.vget64(o.reg)));
    } else c.vset(o.reg, select(enabled, v.t === 'f32' ? i32.fromBits(v as F32) : (v as I32), c.vget(o.reg)));
  }
}

const ruleHandler =
  (rule: Rule): Handler =>
  (c, i) => {
    if (i.dual) return dualIssue(c, i);
    const dpp = dppSource(c, i, 1);
    c.lanes(i, () => {
      const lane = dpp?.();
      apply(c, evaluate(c, i, rule, lane), lane && laneEnabled(c, i, lane));
    });
  };

/** Both halves read before either writes. */
function dualIssue(c: Context, i: Instruction): void {
  c.lanes(i, () => {
    const writes = [i, i.dual!].flatMap((half) => {
      if (half.name === 'v_cndmask_b32') return cndmask(c, half);
      const rule = VECTOR_RULES[half.name];
      if (!rule) c.unsupported(i, `unknown instruction ${half.name}`);
      return evaluate(c, half, rule);
    });
    apply(c, writes);
  }, []);
}

function cndmask(c: Context, i: Instruction, dpp?: DppLane): Writes {
  const wide = i.name.endsWith('b16') ? 'b16' : 'b32';
  const r = new Reader(c, i, dpp);
  const [d, a, b, m] = i.ops;
  const mask = c.f.let(c.maskBit(m?.reg ?? SREG.VCC));
  const v = select(mask, r.read(b, wide, 1), r.read(a, wide, 0)) as I32;
  const bits = i.form === 'sdwa' ? mergeSelected(c, i, d, v) : wide === 'b16' ? merge16(c, i, d, v) : v;
  return [{ o: d, v: c.f.let(bits) }];
}

const cndmaskHandler: Handler = (c, i) => {
  if (i.dual) return dualIssue(c, i);
  const dpp = dppSource(c, i, 1);
  c.lanes(i, () => {
    const lane = dpp?.();
    apply(c, cndmask(c, i, lane), lane && laneEnabled(c, i, lane));
  }, [3]);
};

/** v_cmp and v_cmpx: a bit per lane to a mask, and to EXEC for v_cmpx. */
function compareHandler(toExec: boolean, test: (r: Reader, a: Operand, b: Operand) => I32): Handler {
  return (c, i) => {
    const hasDest = i.ops.length === 3;
    const [a, b] = hasDest ? i.ops.slice(1) : i.ops;
    const dpp = dppSource(c, i, hasDest ? 1 : 0);
    c.lanes(
      i,
      () => {
        const lane = dpp?.();
        const bit = c.f.let(test(new Reader(c, i, lane), a, b));
        const enabled = lane ? i32.and(bit, laneEnabled(c, i, lane)) : bit;
        if (!toExec || c.target.generation === 9) c.setMaskBit(hasDest ? i.ops[0].reg : SREG.VCC, enabled);
        if (toExec) c.setMaskBit(SREG.EXEC, enabled);
      },
      hasDest ? [0] : [],
    );
    if (toExec) c.flush();
  };
}

const CARRY: Record<string, { rev?: boolean; sub?: boolean; carryIn?: boolean }> = {
  v_add_co_u32: {},
  v_sub_co_u32: { sub: true },
  v_subrev_co_u32: { sub: true, rev: true },
  v_add_co_ci_u32: { carryIn: true },
  v_sub_co_ci_u32: { sub: true, carryIn: true },
  v_subrev_co_ci_u32: { sub: true, rev: true, carryIn: true },
};
function carryHandler(spec: (typeof CARRY)[string]): Handler {
  return (c, i) => {
    const dpp = dppSource(c, i, 2);
    c.lanes(
      i,
      () => {
        const lane = dpp?.();
        const r = new Reader(c, i, lane);
        const [d, m, a, b, ci] = i.ops;
        let [x, y] = [r.read(a, 'b32', 0), r.read(b, 'b32', 1)].map((v) => i64.extend_u(v as I32));
        if (spec.rev) [x, y] = [y, x];
        let sum = spec.sub ? i64.sub(x, y) : i64.add(x, y);
        if (spec.carryIn)
          sum = spec.sub
            ? i64.sub(sum, i64.extend_u(c.maskBit(ci.reg)))
            : i64.add(sum, i64.extend_u(c.maskBit(ci.reg)));
        const q = c.f.let(sum);
        const out = i32.and(i32.wrap(i64.shr_u(q, i64.const(32))), i32.const(1));
        let v = i32.wrap(q);
        if (i.form === 'sdwa') v = mergeSelected(c, i, d, v);
        if (i.mods.clamp) v = select(out, i32.const(spec.sub ? 0 : -1), v);
        const bits = c.f.let(v);
        c.setMaskBit(m.reg, out);
        apply(c, [{ o: d, v: bits }], lane && laneEnabled(c, i, lane));
      },
      spec.carryIn ? [1, 4] : [1],
    );
  };
}

/** 64-bit products with an addend: the carry goes to a mask. */
function mad64(signed: boolean): Handler {
  return (c, i) =>
    c.lanes(i, () => {
      const r = new Reader(c, i);
      const [d, m, a, b, z] = i.ops;
      const ext = signed ? i64.extend_s : i64.extend_u;
      const product = c.f.let(i64.mul(ext(r.read(a, 'b32', 0) as I32), ext(r.read(b, 'b32', 1) as I32)));
      const addend = r.read(z, signed ? 'i64' : 'u64', 2) as I64;
      const sum = c.f.let(i64.add(product, addend));
      const overflow = signed
        ? i64.lt_s(i64.and(i64.xor(product, sum), i64.xor(addend, sum)), i64.const(0))
        : i64.lt_u(sum, product);
      c.setMaskBit(m.reg, overflow);
      c.vset(d.reg, sum);
    }, [1]);
}

const divScale =
  (t: 'f32' | 'f64'): Handler =>
  (c, i) =>
    c.lanes(i, () => {
      const r = new Reader(c, i);
      const [d, m, ...src] = i.ops;
      const args = src.map((o, k) => r.read(o, t, k));
      if (t === 'f32') {
        const q = c.f.let(c.h.call('divScale32', ...args));
        c.setMaskBit(m.reg, i32.wrap(i64.shr_u(q, i64.const(32))));
        c.vset(d.reg, i32.wrap(q));
      } else {
        c.setMaskBit(m.reg, c.h.call('divScaleFlag64', ...args));
        c.vset(d.reg, c.h.call('divScale64', ...args));
      }
    }, [1]);

/** The last step of a division: a fused product whose scale by VCC undoes v_div_scale's. */
const divFmas =
  (t: 'f32' | 'f64'): Handler =>
  (c, i) => {
    c.lanes({ ...i, ops: [...i.ops, { kind: 's', reg: SREG.VCC, n: 2, text: 'vcc' }] }, () => {
      const r = new Reader(c, i);
      const [d, ...src] = i.ops;
      const args = src.map((o, k) => r.read(o, t, k));
      const vcc = c.f.let(c.maskBit(SREG.VCC));
      // One rounding, after the scale: quotients may be denormal.
      if (t === 'f32') {
        const [a, b, z] = args.map((x) => f64.promote(x as F32));
        const sum = c.f.let(c.h.call('sumOdd', f64.mul(a, b), z));
        const scale = select(f32.ge(f32.abs(args[2] as F32), f32.const(2)), f64.const(2 ** 64), f64.const(2 ** -64));
        c.vset(d.reg, finishFloat(c, i, f32.demote(select(vcc, f64.mul(sum, scale), sum))));
      } else {
        const n = select(f64.ge(f64.abs(args[2] as F64), f64.const(2)), i32.const(128), i32.const(-128));
        c.vset(
          d.reg,
          finishFloat(c, i, choose(vcc, c.h.import('fmaScaled64', ...args, n) as F64, c.h.call('fma64', ...args))),
        );
      }
    }, [i.ops.length]);
  };

/** Floats and halves mixed by op_sel_hi (which are halves) and op_sel (which half). */
const mix =
  (fused: boolean, to: 'f32' | 'f16'): Handler =>
  (c, i) =>
    c.lanes(i, () => {
      const [d, ...src] = i.ops;
      const hi = modList(i, 'op_sel_hi', 0, 3);
      const lo = modList(i, 'op_sel', 0, 3);
      const args = src.map((o, k) => c.f.let(readVector(c, o, hi[k] ? 'f16' : 'f32', { high: lo[k] === 1 }) as F32));
      const x = fused ? c.h.call('fma32', ...args) : f32.add(f32.mul(args[0], args[1]), args[2]);
      if (to === 'f32') c.vset(d.reg, finishFloat(c, i, x));
      else {
        const bits = c.h.call('f2h', finishFloat(c, i, x));
        const old = c.vget(d.reg);
        c.vset(
          d.reg,
          i.name.includes('mixhi')
            ? i32.or(i32.and(old, i32.const(65535)), i32.shl(bits, i32.const(16)))
            : i32.or(i32.and(old, i32.const(0xffff0000 | 0)), bits),
        );
      }
    });

const swap: Handler = (c, i) =>
  c.lanes(i, () => {
    const [a, b] = i.ops;
    const [x, y] = [c.vget(a.reg), c.vget(b.reg)];
    c.vset(a.reg, y);
    c.vset(b.reg, x);
  });

const CLASS: Record<string, (r: Reader, a: Operand, b: Operand) => I32> = {
  f32: (r, a, b) => r.c.h.call('class32', floatBits(r, a), r.read(b, 'b32', 1)),
  f16: (r, a, b) => r.c.h.call('class16', r.c.h.call('f2h', r.read(a, 'f16', 0) as F32), r.read(b, 'b32', 1)),
  f64: (r, a, b) => r.c.h.call('class64', i64.fromBits(r.read(a, 'f64', 0) as F64), r.read(b, 'b32', 1)),
};
const floatBits = (r: Reader, o: Operand): I32 => i32.fromBits(readVector(r.c, o, 'f32', r.source(0)) as F32);

export function vectorHandler(name: string): Handler | undefined {
  if (name in VECTOR_RULES) return ruleHandler(VECTOR_RULES[name]);
  if (name in CARRY) return carryHandler(CARRY[name]);
  if (name === 'v_cndmask_b32' || name === 'v_cndmask_b16') return cndmaskHandler;
  if (name === 'v_nop') return () => undefined;
  if (name === 'v_swap_b32') return swap;
  if (name === 'v_mad_u64_u32') return mad64(false);
  if (name === 'v_mad_i64_i32') return mad64(true);
  let m = /^v_div_(scale|fmas)_(f32|f64)$/.exec(name);
  if (m) return m[1] === 'scale' ? divScale(m[2] as 'f32') : divFmas(m[2] as 'f32');
  m = /^v_(fma|mad)_mix(?:lo|hi)?_(f32|f16)$/.exec(name);
  if (m) return mix(m[1] === 'fma', m[2] as 'f32');
  m = /^v_cmp(x?)_class_(f\d\d)$/.exec(name);
  if (m) return compareHandler(m[1] === 'x', CLASS[m[2]]);
  m = /^v_cmp(x?)_(\w+)_([fiu])(16|32|64)$/.exec(name);
  if (!m) return undefined;
  const [, x, cond, kind, width] = m;
  if (cond === 'f' || cond === 't' || cond === 'tru')
    return compareHandler(x === 'x', () => i32.const(cond === 'f' ? 0 : 1));
  const type = `${kind}${width}` as OpType;
  if (kind === 'f') {
    const ops = width === '64' ? f64 : f32;
    if (!floatCompare(ops, cond, f32.const(0), f32.const(0))) return undefined;
    return compareHandler(x === 'x', (r, a, b) => floatCompare(ops, cond, r.read(a, type, 0), r.read(b, type, 1))!);
  }
  const ops = width === '64' ? i64 : i32;
  const op = cond === 'eq' || cond === 'ne' ? cond : `${cond}_${kind === 'i' ? 's' : 'u'}`;
  if (!(op in ops)) return undefined;
  return compareHandler(x === 'x', (r, a, b) =>
    (ops as typeof i32)[op as 'eq'](r.read(a, type, 0) as I32, r.read(b, type, 1) as I32),
  );
}
