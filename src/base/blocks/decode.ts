// ggml's quantized blocks to f32, in plain TypeScript: the reference the kernels are held against.
import { FormatError, UnsupportedError } from '../errors.js';
import { fromF16Bits } from '../float.js';
import type { GgmlType } from './types.js';

/**
 * One block at byte `p` of b to y from index o on. Scales round to f32; scale * quant + offset rounds once, as a fused
 * multiply-add does.
 */
type Decode = (b: Uint8Array, p: number, y: Float32Array, o: number) => void;

const f16 = (b: Uint8Array, p: number): number => fromF16Bits(b[p] | (b[p + 1] << 8));
const i8 = (b: Uint8Array, p: number): number => (b[p] << 24) >> 24;
const { fround } = Math;

/** Nibbles of 16 bytes: the low ones first, then the high ones. */
function nibbles(b: Uint8Array, p: number, y: Float32Array, o: number, value: (q: number, j: number) => number): void {
  for (let j = 0; j < 16; j++) {
    y[o + j] = value(b[p + j] & 15, j);
    y[o + j + 16] = value(b[p + j] >> 4, j + 16);
  }
}

/** The fifth bit of element j, from the 32 bits at p. */
const fifth = (b: Uint8Array, p: number, j: number): number => ((b[p + (j >> 3)] >> (j & 7)) & 1) << 4;

/** Scale and minimum j (of 8) of a Q4_K or Q5_K block, 6 bits each, packed into 12 bytes. */
function scaleMin(b: Uint8Array, p: number, j: number): [scale: number, min: number] {
  if (j < 4) return [b[p + j] & 63, b[p + j + 4] & 63];
  return [(b[p + j + 4] & 15) | ((b[p + j - 4] >> 6) << 4), (b[p + j + 4] >> 4) | ((b[p + j] >> 6) << 4)];
}

/** Scale j (of 16) of a Q3_K block: 4 low bits in 8 bytes, 2 high bits in 4 more. */
function scale3(b: Uint8Array, p: number, j: number): number {
  const low = j < 8 ? b[p + j] & 15 : b[p + j - 8] >> 4;
  return (low | (((b[p + 8 + (j & 3)] >> (2 * (j >> 2))) & 3) << 4)) - 32;
}

/** The uneven steps of IQ4_NL and IQ4_XS. */
export const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/** Twice the values of a 4-bit float (two bits of exponent, one of mantissa), so that they are whole. */
export const FP4 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
/** Half of the power of two that a byte of exponent stands for: FP4 holds doubled values. */
export const e8m0Half = (e: number): number => 2 ** (e - 128);
/** Half of an unsigned 8-bit float (four bits of exponent, three of mantissa); 0x7F, its NaN, counts as 0. */
export function ue4m3Half(b: number): number {
  const exponent = (b >> 3) & 15;
  const mantissa = b & 7;
  if ((b & 0x7f) === 0x7f) return 0;
  return (exponent === 0 ? mantissa * 2 ** -9 : (1 + mantissa / 8) * 2 ** (exponent - 7)) / 2;
}

const nvfp4: Decode = (b, p, y, o) => {
  for (let s = 0; s < 4; s++) {
    const d = ue4m3Half(b[p + s]);
    for (let j = 0; j < 8; j++) {
      const byte = b[p + 4 + s * 8 + j];
      y[o + s * 16 + j] = d * FP4[byte & 15];
      y[o + s * 16 + j + 8] = d * FP4[byte >> 4];
    }
  }
};

const q2K: Decode = (b, p, y, o) => {
  const d = f16(b, p + 80);
  const min = f16(b, p + 82);
  for (let i = 0; i < 256; i++) {
    const group = b[p + (i >> 4)];
    const q = (b[p + 16 + ((i >> 7) << 5) + (i & 31)] >> (((i >> 5) & 3) * 2)) & 3;
    y[o + i] = fround(d * (group & 15)) * q - fround(min * (group >> 4));
  }
};

const q3K: Decode = (b, p, y, o) => {
  const d = f16(b, p + 108);
  for (let i = 0; i < 256; i++) {
    const low = (b[p + 32 + ((i >> 7) << 5) + (i & 31)] >> (((i >> 5) & 3) * 2)) & 3;
    const high = (b[p + (i & 31)] >> (i >> 5)) & 1; // a set bit means no 4 is taken off
    y[o + i] = fround(d * scale3(b, p + 96, i >> 4)) * (low - (high ? 0 : 4));
  }
};

const q4K: Decode = (b, p, y, o) => {
  const d = f16(b, p);
  const min = f16(b, p + 2);
  for (let j = 0; j < 8; j++) {
    const [scale, least] = scaleMin(b, p + 4, j);
    const [step, base] = [fround(d * scale), fround(min * least)];
    for (let l = 0; l < 32; l++) {
      const q = b[p + 16 + ((j >> 1) << 5) + l];
      y[o + j * 32 + l] = step * (j & 1 ? q >> 4 : q & 15) - base;
    }
  }
};

const q5K: Decode = (b, p, y, o) => {
  const d = f16(b, p);
  const min = f16(b, p + 2);
  for (let j = 0; j < 8; j++) {
    const [scale, least] = scaleMin(b, p + 4, j);
    const [step, base] = [fround(d * scale), fround(min * least)];
    for (let l = 0; l < 32; l++) {
      const q = b[p + 48 + ((j >> 1) << 5) + l];
      y[o + j * 32 + l] = step * ((j & 1 ? q >> 4 : q & 15) + (((b[p + 16 + l] >> j) & 1) << 4)) - base;
    }
  }
};

const q6K: Decode = (b, p, y, o) => {
  const d = f16(b, p + 208);
  for (let i = 0; i < 256; i++) {
    const half = i >> 7;
    const part = (i >> 5) & 3;
    const low = b[p + half * 64 + (part & 1) * 32 + (i & 31)];
    const high = (b[p + 128 + half * 32 + (i & 31)] >> (part * 2)) & 3;
    y[o + i] = fround(d * i8(b, p + 192 + (i >> 4))) * (((part > 1 ? low >> 4 : low & 15) | (high << 4)) - 32);
  }
};

const iq4Xs: Decode = (b, p, y, o) => {
  const d = f16(b, p);
  const high = b[p + 2] | (b[p + 3] << 8);
  for (let j = 0; j < 8; j++) {
    const scale = ((b[p + 4 + (j >> 1)] >> (4 * (j & 1))) & 15) | (((high >> (2 * j)) & 3) << 4);
    const step = fround(d * (scale - 32));
    nibbles(b, p + 8 + j * 16, y, o + j * 32, (q) => step * IQ4[q]);
  }
};

const int8s =
  (scale: (b: Uint8Array, p: number) => number, at: number, count: number): Decode =>
  (b, p, y, o) => {
    const d = scale(b, p);
    for (let j = 0; j < count; j++) y[o + j] = d * i8(b, p + at + j);
  };
const f32At = (b: Uint8Array, p: number): number => new DataView(b.buffer, b.byteOffset + p, 4).getFloat32(0, true);

const DECODE: Record<string, Decode> = {
  Q4_0: (b, p, y, o) => {
    const d = f16(b, p);
    nibbles(b, p + 2, y, o, (q) => d * q - 8 * d);
  },
  Q4_1: (b, p, y, o) => {
    const d = f16(b, p);
    const m = f16(b, p + 2);
    nibbles(b, p + 4, y, o, (q) => d * q + m);
  },
  Q5_0: (b, p, y, o) => {
    const d = f16(b, p);
    nibbles(b, p + 6, y, o, (q, j) => d * ((q | fifth(b, p + 2, j)) - 16));
  },
  Q5_1: (b, p, y, o) => {
    const d = f16(b, p);
    const m = f16(b, p + 2);
    nibbles(b, p + 8, y, o, (q, j) => d * (q | fifth(b, p + 4, j)) + m);
  },
  Q8_0: int8s(f16, 2, 32),
  Q8_1: int8s(f16, 4, 32),
  Q2_K: q2K,
  Q3_K: q3K,
  Q4_K: q4K,
  Q5_K: q5K,
  Q6_K: q6K,
  Q8_K: int8s(f32At, 4, 256),
  IQ4_NL: (b, p, y, o) => {
    const d = f16(b, p);
    nibbles(b, p + 2, y, o, (q) => d * IQ4[q]);
  },
  IQ4_XS: iq4Xs,
  MXFP4: (b, p, y, o) => {
    const d = e8m0Half(b[p]);
    nibbles(b, p + 1, y, o, (q) => d * FP4[q]);
  },
  NVFP4: nvfp4,
};

/** Whether blocks of this type can be decoded to floats here. */
export const canDequantize = (type: GgmlType): boolean => Object.hasOwn(DECODE, type.name);

/** All blocks of a quantized type as f32. */
export function dequantize(type: GgmlType, blocks: Uint8Array): Float32Array {
  if (!canDequantize(type))
    throw new UnsupportedError(
      `dequantize: ${type.name} is not decoded; decoded are ${Object.keys(DECODE).join(', ')}`,
    );
  if (blocks.length % type.bytes)
    throw new FormatError(
      `dequantize: ${blocks.length} bytes are not whole blocks of ${type.name}, which have ${type.bytes}`,
    );
  const y = new Float32Array((blocks.length / type.bytes) * type.block);
  const decode = DECODE[type.name];
  for (let p = 0, o = 0; p < blocks.length; p += type.bytes, o += type.block) decode(blocks, p, y, o);
  return y;
}
