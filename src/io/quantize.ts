// f32 to ggml's simple quantized blocks (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0), byte for byte as ggml's own reference does.
import { ShapeError, UnsupportedError } from '../base/errors.js';
import { toF16Bits } from '../base/float.js';
import type { GgmlType } from './ggml-types.js';

type Encode = (x: Float32Array, o: number, out: DataView, p: number) => void;

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

/** Codes around zero: the extreme value gets the lowest code. */
const signed =
  (bits: 4 | 5): Encode =>
  (x, o, out, p) => {
    const half = 2 ** (bits - 1);
    const d = fround(extreme(x, o) / -half);
    const id = invert(d);
    f16(out, p, d);
    pack(out, p + 2, bits, (j) => Math.min(2 * half - 1, Math.trunc(fround(fround(x[o + j] * id) + (half + 0.5)))));
  };

/** Codes from the smallest to the largest value. */
const offset =
  (bits: 4 | 5): Encode =>
  (x, o, out, p) => {
    const [min, max] = range(x, o);
    const d = fround(fround(max - min) / (2 ** bits - 1));
    const id = invert(d);
    f16(out, p, d);
    f16(out, p + 2, min);
    pack(out, p + 4, bits, (j) =>
      Math.min(2 ** bits - 1, Math.trunc(fround(fround(fround(x[o + j] - min) * id) + 0.5))),
    );
  };

const q80: Encode = (x, o, out, p) => {
  const d = fround(Math.abs(extreme(x, o)) / 127);
  const id = invert(d);
  f16(out, p, d);
  for (let j = 0; j < 32; j++) {
    const v = fround(x[o + j] * id);
    out.setInt8(p + 2 + j, Math.sign(v) * Math.floor(Math.abs(v) + 0.5)); // halves go away from zero
  }
};

const ENCODE: Record<string, Encode> = {
  Q4_0: signed(4),
  Q4_1: offset(4),
  Q5_0: signed(5),
  Q5_1: offset(5),
  Q8_0: q80,
};

export const canQuantize = (type: GgmlType): boolean => Object.hasOwn(ENCODE, type.name);

export function quantize(type: GgmlType, x: Float32Array): Uint8Array {
  if (!canQuantize(type))
    throw new UnsupportedError(`quantize: ${type.name} is not encoded; encoded are ${Object.keys(ENCODE).join(', ')}`);
  if (x.length % type.block)
    throw new ShapeError(
      `quantize: ${x.length} elements are not whole blocks of ${type.name}, which have ${type.block}`,
    );
  const out = new Uint8Array((x.length / type.block) * type.bytes);
  const view = new DataView(out.buffer);
  for (let o = 0, p = 0; o < x.length; o += type.block, p += type.bytes) ENCODE[type.name](x, o, view, p);
  return out;
}
