// f32 to ggml's quantized blocks, in ggml's order of rounding; the simple types (Q4_0 to Q8_1) live here.
import { ArgumentError, ShapeError, UnsupportedError } from '../errors.js';
import { toF16Bits } from '../float.js';
import { type EncodeBlock, ENCODE_K, importanceWeights } from './encode-k.js';
import { ENCODE_NONLINEAR } from './encode-nonlinear.js';
import { affine, type Steps, symmetric } from './search.js';
import type { GgmlType } from './types.js';

export interface EncodeOptions {
  /** How many values a row has; the whole of x where it is left out. Importance and ggml's weights are by row. */
  readonly rowLength?: number;
  /** How much the error of each column counts (an importance matrix): one number a column of the row. */
  readonly importance?: Float32Array;
}
/** A block of a simple type: what an importance matrix weighs with depends on the whole row's mean square. */
type EncodeSimple = (
  x: Float32Array,
  o: number,
  out: DataView,
  p: number,
  w: Float32Array | undefined,
  rowMeanSquare: number,
) => void;

const { fround } = Math;
const f16 = (out: DataView, p: number, v: number): void => out.setUint16(p, toF16Bits(v), true);
const invert = (d: number): number => (d === 0 ? 0 : fround(1 / d));

/** The value of largest magnitude, sign kept; the first of equals. */
function extreme(x: Float32Array, o: number): number {
  let best = 0;
  for (let j = 0; j < 32; j++) if (Math.abs(x[o + j]) > Math.abs(best)) best = x[o + j];
  return best;
}

function range(x: Float32Array, o: number): [min: number, max: number] {
  let [min, max] = [Infinity, -Infinity];
  for (let j = 0; j < 32; j++) {
    if (x[o + j] < min) min = x[o + j];
    if (x[o + j] > max) max = x[o + j];
  }
  return [min, max];
}

/** 32 codes of 4 or 5 bits: fifth bits first where there are any, then nibbles, element j with element j + 16. */
function pack(out: DataView, p: number, bits: 4 | 5, code: (j: number) => number): void {
  let high = 0;
  const nibblesAt = bits === 5 ? p + 4 : p;
  for (let j = 0; j < 16; j++) {
    const a = code(j);
    const b = code(j + 16);
    out.setUint8(nibblesAt + j, (a & 15) | ((b & 15) << 4));
    high |= ((a >> 4) << j) | ((b >> 4) << (j + 16));
  }
  if (bits === 5) out.setUint32(p, high >>> 0, true);
}

const weights = new Float32Array(32);
const levels = new Uint8Array(32);
const minimum = new Float32Array(1);
const IMPORTANT: Steps = { from: fround(-0.9), by: fround(0.05), count: 36 };

/** Codes around zero: the extreme value gets the lowest code, or the scale is searched for. */
const signed =
  (bits: 4 | 5): EncodeSimple =>
  (x, o, out, p, w, rowMeanSquare) => {
    const half = 2 ** (bits - 1);
    if (w) {
      const block = x.subarray(o, o + 32);
      importanceWeights(block, w, rowMeanSquare, weights);
      f16(out, p, symmetric(block, 32, half, levels, weights));
      return pack(out, p + 2, bits, (j) => levels[j]);
    }
    const d = fround(extreme(x, o) / -half);
    const id = invert(d);
    f16(out, p, d);
    pack(out, p + 2, bits, (j) => Math.min(2 * half - 1, Math.trunc(fround(fround(x[o + j] * id) + (half + 0.5)))));
  };

/** Codes from the smallest to the largest value, or from a minimum that is searched for. */
const offset =
  (bits: 4 | 5): EncodeSimple =>
  (x, o, out, p, w, rowMeanSquare) => {
    if (w) {
      const block = x.subarray(o, o + 32);
      importanceWeights(block, w, rowMeanSquare, weights);
      f16(out, p, affine(block, 32, 2 ** bits - 1, levels, weights, IMPORTANT, minimum));
      f16(out, p + 2, -minimum[0]);
      return pack(out, p + 4, bits, (j) => levels[j]);
    }
    const [min, max] = range(x, o);
    const d = fround(fround(max - min) / (2 ** bits - 1));
    const id = invert(d);
    f16(out, p, d);
    f16(out, p + 2, min);
    pack(out, p + 4, bits, (j) =>
      Math.min(2 ** bits - 1, Math.trunc(fround(fround(fround(x[o + j] - min) * id) + 0.5))),
    );
  };

/** Eight bits a value around zero; halves go away from zero. Answers the scale and the sum of the codes. */
function eightBits(x: Float32Array, o: number, out: DataView, p: number): { d: number; sum: number } {
  const d = fround(Math.abs(extreme(x, o)) / 127);
  const id = invert(d);
  let sum = 0;
  for (let j = 0; j < 32; j++) {
    const v = fround(x[o + j] * id);
    const code = Math.sign(v) * Math.floor(Math.abs(v) + 0.5);
    out.setInt8(p + j, code);
    sum += code;
  }
  return { d, sum };
}

const SIMPLE: Readonly<Record<string, EncodeSimple | undefined>> = {
  Q4_0: signed(4),
  Q4_1: offset(4),
  Q5_0: signed(5),
  Q5_1: offset(5),
  Q8_0: (x, o, out, p) => f16(out, p, eightBits(x, o, out, p + 2).d),
  Q8_1: (x, o, out, p) => {
    const { d, sum } = eightBits(x, o, out, p + 4);
    f16(out, p, d);
    f16(out, p + 2, fround(sum * d));
  },
};
const BLOCKS: Readonly<Record<string, EncodeBlock>> = { ...ENCODE_K, ...ENCODE_NONLINEAR };

/** Types that are encoded, by name. */
export const ENCODED: readonly string[] = [...Object.keys(SIMPLE), ...Object.keys(BLOCKS)];
/** Whether floats can be encoded in blocks of this type here. */
export const canQuantize = (type: GgmlType): boolean => ENCODED.includes(type.name);

function meanSquare(x: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum = fround(sum + fround(x[i] * x[i]));
  return fround(sum / x.length);
}

/** Refuses what cannot be encoded, whoever does the encoding: `values` values in rows, and what their errors count. */
export function requireEncodable(type: GgmlType, values: number, rowLength: number, importance?: Float32Array): void {
  if (!canQuantize(type))
    throw new UnsupportedError(`quantize: ${type.name} is not encoded; encoded are ${ENCODED.join(', ')}`);
  if (values % type.block || rowLength % type.block || (rowLength > 0 && values % rowLength))
    throw new ShapeError(
      `quantize: ${values} elements in rows of ${rowLength} are not whole blocks of ${type.name}, ` +
        `which have ${type.block}`,
    );
  if (importance && importance.length !== rowLength)
    throw new ShapeError(`quantize: the importance has ${importance.length} numbers, a row has ${rowLength}`);
  if (importance?.some((v) => !(v >= 0 && v < Infinity)))
    throw new ArgumentError('quantize: the importance holds a number that is negative or not finite');
}
/** Columns that share a scale at least: those of the smallest parts of blocks. */
const SHARED = 16;
/**
 * Importances by which every scale has something to go by. Columns that nothing ever came through count nothing, and
 * where all of a scale's do, any scale is right: values would become 0, and answer wrongly the first time that
 * something does. Such columns count as the least that any does.
 */
export function feltImportance(importance: Float32Array): Float32Array {
  const least = importance.reduce((a, v) => (v > 0 && v < a ? v : a), Infinity);
  const out = importance.slice();
  for (let i = 0; i < out.length; i += SHARED) {
    const shared = out.subarray(i, i + SHARED);
    if (shared.every((v) => v === 0)) shared.fill(least < Infinity ? least : 1);
  }
  return out;
}
/** Values must be finite: a scale cannot be chosen for the others. */
export function requireFinite(type: GgmlType, x: Float32Array): void {
  const bad = x.findIndex((v) => !Number.isFinite(v));
  if (bad >= 0)
    throw new ArgumentError(`quantize: element ${bad} is ${x[bad]}; ${type.name} blocks hold finite values only`);
}

/**
 * Rows of whole blocks. The CPU engine does the same many times faster (native/vector/encode.cpp); this says what must
 * come out.
 */
export function quantize(type: GgmlType, x: Float32Array, options: EncodeOptions = {}): Uint8Array {
  const rowLength = options.rowLength ?? x.length;
  const { importance } = options;
  requireEncodable(type, x.length, rowLength, importance);
  requireFinite(type, x);
  const out = new Uint8Array((x.length / type.block) * type.bytes);
  const view = new DataView(out.buffer);
  const simple = SIMPLE[type.name];
  const block = BLOCKS[type.name];
  for (let row = 0, p = 0; row < x.length; row += rowLength) {
    const xs = x.subarray(row, row + rowLength);
    const square = simple && importance ? meanSquare(xs) : 0;
    for (let o = 0; o < rowLength; o += type.block, p += type.bytes) {
      if (simple) simple(xs, o, view, p, importance?.subarray(o, o + 32), square);
      else block(xs, o, out, p, importance);
    }
  }
  return out;
}
