// Matrix instructions (MFMA, WMMA): which lane and register holds which element, and products accumulated in order of
// k.
import { UnsupportedError } from '../base/errors.js';
import { fromBf16Bits, fromF16Bits, toBf16Bits, toF16Bits } from '../base/float.js';
import type { Instruction, Operand } from './instruction.js';
import { WAVE } from './layout.js';

type Element = 'f16' | 'bf16' | 'f32' | 'f64' | 'i8' | 'u8' | 'i4' | 'u4' | 'xf32' | 'fp8' | 'bf8';
const BITS: Record<Element, number> = {
  f16: 16,
  bf16: 16,
  f32: 32,
  f64: 64,
  i8: 8,
  u8: 8,
  i4: 4,
  u4: 4,
  xf32: 32,
  fp8: 8,
  bf8: 8,
};

/** An operand: a register, or a constant for C. */
interface Place {
  readonly reg: number;
  readonly constant?: number;
}

/** One matrix instruction of a program, run by the host on a whole wave. */
export interface MatrixOp {
  readonly text: string;
  readonly unit: 'mfma' | 'wmma';
  /** WMMA of generation 11 gives both halves of the wave all of k. */
  readonly replicated: boolean;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly blocks: number;
  readonly a: Element;
  readonly b: Element;
  readonly result: 'f32' | 'f16' | 'bf16' | 'i32' | 'f64';
  /** Elements of A a lane holds. */
  readonly perLane: number;
  readonly d: Place;
  readonly av: Place;
  readonly bv: Place;
  readonly c: Place;
}

const NAME =
  /^v_(mfma|wmma)_(f32|f16|bf16|i32|f64)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(f16|bf16|f32|f64|i8|iu8|iu4|xf32|fp8|bf8)(?:_(fp8|bf8))?(_1k)?$/;

/** Recognises a matrix instruction by name; the function it gives reads one's operands. */
export function matrixHandler(name: string): ((i: Instruction, generation: number) => MatrixOp) | undefined {
  const m = name[0] === 'v' && (name[2] === 'm' || name[2] === 'w') ? NAME.exec(name) : undefined;
  if (!m) return undefined;
  const [, unit, result, M, N, K, , input, second] = m;
  return (i, generation) => {
    for (const key of ['cbsz', 'abid', 'blgp', 'op_sel', 'neg_hi'])
      if (i.mods[key] && !/^(0|\[0(,0)*\])$/.test(i.mods[key]))
        throw new UnsupportedError(`emulator: ${key} on a matrix instruction: ${i.text}`);
    const signs = (i.mods.neg_lo ?? '[0,0,0]').replace(/[[\]]/g, '').split(',').map(Number);
    if (signs.some((s) => s) && !input.startsWith('iu'))
      throw new UnsupportedError(`emulator: neg_lo on a matrix instruction: ${i.text}`);
    // The iu forms say by neg_lo which operand is signed.
    const element = (k: number): Element =>
      input.startsWith('iu')
        ? (`${signs[k] ? 'i' : 'u'}${input.slice(2)}` as Element)
        : ((k === 1 && second ? second : input) as Element);
    const perLane = (i.ops[1].n * 32) / BITS[element(0)];
    const replicated = unit === 'wmma' && generation === 11;
    const lanes = unit === 'wmma' ? 32 : 64;
    const blocks = unit === 'wmma' ? 1 : (lanes * perLane) / (Number(M) * Number(K));
    const place = (o: Operand): Place =>
      o.kind === 'v' ? { reg: o.reg } : { reg: 0, constant: o.float ?? Number(o.int ?? 0n) };
    return {
      text: i.text,
      unit: unit as 'mfma',
      replicated,
      m: Number(M),
      n: Number(N),
      k: Number(K),
      blocks,
      a: element(0),
      b: element(1),
      result: result as 'f32',
      perLane,
      d: place(i.ops[0]),
      av: place(i.ops[1]),
      bv: place(i.ops[2]),
      c: place(i.ops[3]),
    };
  };
}

/** Where element r of a lane lies in the result: block, row, column. */
function resultAt(op: MatrixOp, lane: number, r: number, wave: number): [number, number, number] {
  if (op.unit === 'wmma') {
    const groups = wave / 16;
    return [
      0,
      op.replicated ? r * groups + Math.floor(lane / 16) : Math.floor(lane / 16) * (16 / groups) + r,
      lane % 16,
    ];
  }
  if (op.result === 'f64')
    return op.m === 16
      ? [0, Math.floor(lane / 16) + 4 * r, lane % 16]
      : [Math.floor(lane / 4) % 4, Math.floor(lane / 16), lane % 4];
  if (op.m === 32) return [r >> 4, 8 * ((r & 15) >> 2) + 4 * Math.floor(lane / 32) + (r & 3), lane % 32];
  if (op.m === 16) return [r >> 2, 4 * Math.floor(lane / 16) + (r & 3), lane % 16];
  return [Math.floor(lane / 4), r, lane % 4];
}

/** Row (or column), block and first k of a lane's share of an operand. */
function operandAt(op: MatrixOp, lane: number, side: number): { row: number; block: number; k: number } {
  if (op.unit === 'wmma')
    return { row: lane % 16, block: 0, k: op.replicated ? 0 : Math.floor(lane / 16) * op.perLane };
  const rest = Math.floor(lane / side);
  return { row: lane % side, block: rest % op.blocks, k: Math.floor(rest / op.blocks) * op.perLane };
}

const scratch = new DataView(new ArrayBuffer(8));
const f8 =
  (mantissa: number, bias: number) =>
  (b: number): number => {
    // The forms without infinities: 0x80 is the only NaN, and the bias is one larger than the other standard's.
    if (b === 0x80) return NaN;
    const e = (b & 127) >> mantissa;
    const f = b & (2 ** mantissa - 1);
    const v = e ? (1 + f / 2 ** mantissa) * 2 ** (e - bias) : f * 2 ** (1 - bias - mantissa);
    return b & 128 ? -v : v;
  };
const DECODE: Record<Exclude<Element, 'f64'>, (bits: number) => number> = {
  f16: fromF16Bits,
  bf16: fromBf16Bits,
  i8: (b) => (b << 24) >> 24,
  u8: (b) => b,
  i4: (b) => (b << 28) >> 28,
  u4: (b) => b,
  f32: (b) => {
    scratch.setUint32(0, b);
    return scratch.getFloat32(0);
  },
  xf32: (b) => {
    scratch.setUint32(0, b & 0xffffe000); // ten bits of mantissa take part
    return scratch.getFloat32(0);
  },
  fp8: f8(3, 8),
  bf8: f8(2, 16),
};

/** Runs one on the wave at `w`: all lanes take part, whatever EXEC holds. */
export function runMatrix(op: MatrixOp, memory: ArrayBufferLike, w: number, wave: number): void {
  const regs = new Uint32Array(memory, w + WAVE.VREGS);
  const word = (reg: number, lane: number): number => regs[reg * wave + lane];
  const load = (p: Place, t: Element, side: number): Float64Array => {
    const out = new Float64Array(op.blocks * side * op.k);
    const bits = BITS[t];
    for (let lane = 0; lane < wave; lane++) {
      const at = operandAt(op, lane, side);
      for (let e = 0; e < op.perLane; e++) {
        let v: number;
        if (t === 'f64') {
          scratch.setUint32(4, word(p.reg + 2 * e, lane));
          scratch.setUint32(0, word(p.reg + 2 * e + 1, lane));
          v = scratch.getFloat64(0);
        } else {
          const raw = word(p.reg + Math.floor((e * bits) / 32), lane) >>> ((e * bits) % 32);
          v = DECODE[t](bits === 32 ? raw : raw & (2 ** bits - 1));
        }
        out[(at.block * side + at.row) * op.k + at.k + e] = v;
      }
    }
    return out;
  };
  const A = load(op.av, op.a, op.m);
  const B = load(op.bv, op.b, op.n);
  const perLane = (op.m * op.n * op.blocks) / wave;
  // Halves lie in pairs in generation 12, alone in the low half in 11.
  const packed = op.result === 'f16' || op.result === 'bf16' ? (op.replicated ? 1 : 2) : 1;
  const out: { lane: number; r: number; v: number }[] = [];
  for (let lane = 0; lane < wave; lane++) {
    for (let r = 0; r < perLane; r++) {
      const [block, i, j] = resultAt(op, lane, r, wave);
      let acc = op.c.constant ?? readResult(op, regs, op.c.reg, lane, r, wave, packed);
      const a = (block * op.m + i) * op.k;
      const b = (block * op.n + j) * op.k;
      if (op.result === 'i32') for (let k = 0; k < op.k; k++) acc = (acc + A[a + k] * B[b + k]) | 0;
      else if (op.result === 'f64') for (let k = 0; k < op.k; k++) acc += A[a + k] * B[b + k];
      else for (let k = 0; k < op.k; k++) acc = Math.fround(acc + A[a + k] * B[b + k]);
      out.push({ lane, r, v: acc });
    }
  }
  for (const { lane, r, v } of out) writeResult(op, regs, lane, r, v, wave, packed);
}

function readResult(
  op: MatrixOp,
  regs: Uint32Array,
  reg: number,
  lane: number,
  r: number,
  wave: number,
  packed: number,
): number {
  if (op.result === 'f64') {
    scratch.setUint32(4, regs[(reg + 2 * r) * wave + lane]);
    scratch.setUint32(0, regs[(reg + 2 * r + 1) * wave + lane]);
    return scratch.getFloat64(0);
  }
  const raw = regs[(reg + Math.floor(r / packed)) * wave + lane];
  if (op.result === 'i32') return raw | 0;
  if (op.result === 'f32') return DECODE.f32(raw);
  const bits = (raw >>> (16 * (r % packed))) & 65535;
  return op.result === 'f16' ? fromF16Bits(bits) : fromBf16Bits(bits);
}

function writeResult(
  op: MatrixOp,
  regs: Uint32Array,
  lane: number,
  r: number,
  v: number,
  wave: number,
  packed: number,
): void {
  const { reg } = op.d;
  if (op.result === 'f64') {
    scratch.setFloat64(0, v);
    regs[(reg + 2 * r) * wave + lane] = scratch.getUint32(4);
    regs[(reg + 2 * r + 1) * wave + lane] = scratch.getUint32(0);
    return;
  }
  const at = (reg + Math.floor(r / packed)) * wave + lane;
  if (op.result === 'i32') regs[at] = v;
  else if (op.result === 'f32') {
    scratch.setFloat32(0, v);
    regs[at] = scratch.getUint32(0);
  } else {
    const bits = op.result === 'f16' ? toF16Bits(v) : toBf16Bits(v);
    const shift = 16 * (r % packed);
    regs[at] = (regs[at] & ~(65535 << shift)) | (bits << shift);
  }
}
