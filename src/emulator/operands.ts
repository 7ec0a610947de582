// Reads and writes instruction operands by type: constants, registers, halves, sub-dword selections and sign modifiers.
import { f32Bits, toF16Bits } from '../base/float.js';
import type { Context } from './context.js';
import { modList, type Instruction, type Operand } from './instruction.js';
import { PRIVATE_HIGH, SHARED_HIGH } from './layout.js';
import { f32, f64, i32, i64, select, type Expr, type F32, type F64, type I32, type I64 } from './wasm.js';

/**
 * b, u, i: bits in an i32 or i64 (16-bit ones extended by u or i); f16 is computed in f32, f32 and f64 as themselves.
 */
const TYPES = ['b16', 'u16', 'i16', 'f16', 'b32', 'u32', 'i32', 'f32', 'b64', 'u64', 'i64', 'f64'] as const;
export type OpType = (typeof TYPES)[number];
export const widthOf = (t: OpType): 16 | 32 | 64 => Number(t.slice(1)) as 16 | 32 | 64;

const doubleBits = (x: number): bigint => {
  const v = new DataView(new ArrayBuffer(8));
  v.setFloat64(0, x);
  return v.getBigUint64(0);
};

function specialBits(o: Operand): bigint {
  const high = {
    shared_base: SHARED_HIGH,
    private_base: PRIVATE_HIGH,
    shared_limit: SHARED_HIGH,
    private_limit: PRIVATE_HIGH,
  }[o.special!];
  if (high === undefined) throw new Error(`special operand ${o.text}`);
  return (BigInt(high) << 32n) | (o.special!.endsWith('limit') ? 0xffffffffn : 0n);
}

/** Bits of a constant operand as its type sees it. */
export function constantBits(o: Operand, t: OpType): bigint {
  if (o.special) {
    const bits = specialBits(o);
    return widthOf(t) === 64 ? bits : bits >> 32n; // a 32-bit read gives the aperture's high word
  }
  if (o.float !== undefined) {
    if (widthOf(t) === 64) return doubleBits(o.float);
    return BigInt(widthOf(t) === 16 ? toF16Bits(o.float) : f32Bits(o.float));
  }
  const v = o.int!;
  if (widthOf(t) !== 64) return BigInt.asUintN(32, v);
  if (!o.literal) return BigInt.asUintN(64, v);
  if (v > 0xffffffffn) return v;
  if (t === 'f64') return v << 32n; // a literal is a double's high word
  return t === 'i64' ? BigInt.asUintN(64, BigInt.asIntN(32, v)) : v;
}

// ---- scalar instructions ------------------------------------------------------------------------

export function scalarRead(c: Context, o: Operand, t: 'b32'): I32;
export function scalarRead(c: Context, o: Operand, t: 'b64' | 'i64'): I64;
export function scalarRead(c: Context, o: Operand, t: 'f32'): F32;
export function scalarRead(c: Context, o: Operand, t: OpType): Expr;
export function scalarRead(c: Context, o: Operand, t: OpType): Expr {
  if (o.special === 'scc') return t === 'b32' ? c.scc : i64.extend_u(c.scc);
  const flags = { vccz: 106, execz: 126 }[o.special ?? ''];
  if (flags) return c.maskIsZero(flags);
  if (widthOf(t) === 64) {
    const q = o.kind === 's' ? c.sget64(o.reg) : i64.const(constantBits(o, t));
    return t === 'f64' ? f64.fromBits(q) : q;
  }
  const v =
    o.kind === 's' ? c.sget(o.reg) : i32.const(Number(BigInt.asIntN(32, constantBits(o, t === 'f16' ? 'f16' : 'b32'))));
  if (t !== 'f32') return v;
  let x: F32 = f32.fromBits(v);
  if (o.abs) x = f32.abs(x);
  return o.neg ? f32.neg(x) : x;
}

// ---- vector instructions ------------------------------------------------------------------------

export interface Source {
  /** Replaces the register read: a value from another lane. */
  readonly raw?: I32;
  /** op_sel bit: the high half of a 16-bit operand. */
  readonly high?: boolean;
  /** Sub-dword selection: 'BYTE_2', 'WORD_1', 'DWORD'. */
  readonly select?: string;
}

const raw32 = (c: Context, o: Operand, t: OpType, s?: Source): I32 => {
  if (s?.raw) return s.raw;
  if (o.kind === 'v') return c.vget(o.reg);
  if (o.special === 'scc') return i32.load(c.w, 512);
  if (o.kind === 's') return c.uniform(o.reg, 'i32') as I32;
  if (o.kind !== 'c') throw new Error(`operand ${o.text}`);
  return i32.const(Number(BigInt.asIntN(32, constantBits(o, t))));
};

function subDword(x: I32, sel: string | undefined, sext: boolean): I32 {
  const m = /^(BYTE|WORD)_(\d)$/.exec(sel ?? 'DWORD');
  if (!m) return x;
  const byte = m[1] === 'BYTE';
  const at = Number(m[2]) * (byte ? 8 : 16);
  const shifted = at ? i32.shr_u(x, i32.const(at)) : x;
  if (sext) return byte ? i32.extend8(shifted) : i32.extend16(shifted);
  return i32.and(shifted, i32.const(byte ? 255 : 65535));
}

export function readVector(c: Context, o: Operand, t: OpType, s?: Source): Expr {
  const width = widthOf(t);
  if (width === 64) {
    let q: I64;
    if (o.kind === 'v') q = c.vget64(o.reg);
    else if (o.kind === 's') q = c.uniform(o.reg, 'i64') as I64;
    else q = i64.const(constantBits(o, t));
    if (t !== 'f64') return q;
    let d: F64 = f64.fromBits(q);
    if (o.abs) d = f64.abs(d);
    return o.neg ? f64.neg(d) : d;
  }
  if (t === 'f32') {
    let x: F32;
    if (o.kind === 'v' && !s?.raw && !s?.select) x = c.vgetF(o.reg);
    else if (o.kind === 's' && !s?.raw && !s?.select) x = c.uniform(o.reg, 'f32') as F32;
    else x = f32.fromBits(subDword(raw32(c, o, t, s), s?.select, false));
    if (o.abs) x = f32.abs(x);
    return o.neg ? f32.neg(x) : x;
  }
  let v = subDword(raw32(c, o, t, s), s?.select, o.sext ?? false);
  if (width === 16) {
    if (o.half === 1 || (o.half === undefined && s?.high)) v = i32.shr_u(v, i32.const(16));
    if (t === 'f16') {
      let x = c.h.call('h2f', v);
      if (o.abs) x = f32.abs(x);
      return o.neg ? f32.neg(x) : x;
    }
    if (t === 'i16') return i32.extend16(v);
    return i32.and(v, i32.const(65535));
  }
  if (o.abs) v = i32.and(v, i32.const(0x7fffffff));
  return o.neg ? i32.xor(v, i32.const(1 << 31)) : v;
}

/** Instructions that keep the high half of a 16-bit result already on generation 9. */
const KEEPS_HIGH = new Set([
  'v_fma_f16',
  'v_mad_f16',
  'v_mad_u16',
  'v_mad_i16',
  'v_div_fixup_f16',
  'v_fma_mixlo_f16',
  'v_fma_mixhi_f16',
  'v_mad_mixlo_f16',
  'v_mad_mixhi_f16',
]);

/** The register's new bits for a 16-bit result. */
export function merge16(c: Context, i: Instruction, o: Operand, bits: I32): I32 {
  const high =
    o.half !== undefined
      ? o.half === 1
      : i.name.endsWith('mixhi_f16') ||
        modList(i, 'op_sel', 0, 4)[i.mods.op_sel ? i.mods.op_sel.split(',').length - 1 : 3] === 1;
  if (high) return i32.or(i32.and(c.vget(o.reg), i32.const(0xffff)), i32.shl(bits, i32.const(16)));
  const low = i32.and(bits, i32.const(0xffff));
  if (c.target.generation === 9 && !KEEPS_HIGH.has(i.name)) return low;
  return i32.or(i32.and(c.vget(o.reg), i32.const(0xffff0000 | 0)), low);
}

/** A sub-dword destination: where the result goes and what becomes of the rest. */
export function mergeSelected(c: Context, i: Instruction, o: Operand, bits: I32): I32 {
  const m = /^(BYTE|WORD)_(\d)$/.exec(i.mods.dst_sel ?? 'DWORD');
  if (!m) return bits;
  const at = Number(m[2]) * (m[1] === 'BYTE' ? 8 : 16);
  const size = m[1] === 'BYTE' ? 8 : 16;
  const mask = size === 8 ? 255 : 65535;
  const placed = i32.shl(i32.and(bits, i32.const(mask)), i32.const(at));
  const unused = i.mods.dst_unused ?? 'UNUSED_PAD';
  if (unused === 'UNUSED_PRESERVE') return i32.or(i32.and(c.vget(o.reg), i32.const(~(mask << at))), placed);
  if (unused === 'UNUSED_SEXT') {
    const signed = size === 8 ? i32.extend8(bits) : i32.extend16(bits);
    return i32.shl(signed, i32.const(at));
  }
  return placed;
}

/** A float result through output modifier and clamp. */
export function finishFloat<T extends F32 | F64>(c: Context, i: Instruction, x: T): T {
  const scale = i.mods.mul ? Number(i.mods.mul) : i.mods.div ? 1 / Number(i.mods.div) : 1;
  const isF32 = x.t === 'f32';
  let y: F32 | F64 = x;
  if (scale !== 1) y = isF32 ? f32.mul(x as F32, f32.const(scale)) : f64.mul(x as F64, f64.const(scale));
  if (i.mods.clamp) {
    const v = c.f.let(y as Expr) as F32 | F64;
    // NaN clamps to 0.
    y = isF32
      ? select(f32.gt(v as F32, f32.const(0)), f32.min(v as F32, f32.const(1)), f32.const(0))
      : select(f64.gt(v as F64, f64.const(0)), f64.min(v as F64, f64.const(1)), f64.const(0));
  }
  return y as T;
}
