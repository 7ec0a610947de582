// f32 to blocks whose levels are unevenly spaced: IQ4_NL and IQ4_XS by ggml's table, MXFP4 and NVFP4 by 4-bit floats.
import { toF16Bits } from '../float.js';
import { e8m0Half, FP4, IQ4, ue4m3Half } from './decode.js';
import { type EncodeBlock, importanceWeights } from './encode-k.js';
import { extremeOf, nearest } from './search.js';

const { fround, abs, min: least, max: most } = Math;
const TRIES = 7;

/** The level of IQ4 nearest to x; of two as near, the upper. */
function nearestIq4(x: number): number {
  if (x <= IQ4[0]) return 0;
  if (x >= IQ4[15]) return 15;
  let above = 1;
  while (x >= IQ4[above]) above++;
  return fround(x - IQ4[above - 1]) < fround(IQ4[above] - x) ? above - 1 : above;
}

function fit(x: Float32Array, w: Float32Array, inverse: number): { qx: number; q2: number } {
  const sums = { qx: 0, q2: 0 };
  for (let i = 0; i < 32; i++) {
    const q = IQ4[nearestIq4(fround(inverse * x[i]))];
    const wq = fround(w[i] * q);
    sums.qx = fround(sums.qx + fround(wq * x[i]));
    sums.q2 = fround(sums.q2 + fround(wq * q));
  }
  return sums;
}

/** The scale of 32 values: the best of sixteen around the one that maps the extreme to the table's end. */
function scaleOf(x: Float32Array, w: Float32Array): number {
  const extreme = extremeOf(x, 32);
  if (extreme === 0) return 0;
  const first = fit(x, w, fround(1 / fround(-extreme / IQ4[0])));
  let d = first.q2 > 0 ? fround(first.qx / first.q2) : 0;
  let best = fround(d * first.qx);
  for (let step = -TRIES; step <= TRIES; step++) {
    const { qx, q2 } = fit(x, w, fround((step + IQ4[0]) / extreme));
    if (q2 > 0 && fround(qx * qx) > fround(best * q2)) {
      d = fround(qx / q2);
      best = fround(d * qx);
    }
  }
  return d;
}

const weights = new Float32Array(32);
function groupScale(x: Float32Array, w: Float32Array | undefined, sigma2: number): number {
  if (w) importanceWeights(x, w, sigma2, weights);
  else for (let i = 0; i < 32; i++) weights[i] = fround(x[i] * x[i]);
  return scaleOf(x, weights);
}

function twiceMeanSquare(x: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum = fround(sum + fround(x[i] * x[i]));
  return fround(sum * fround(2 / x.length));
}

function put16(out: Uint8Array, p: number, bits: number): void {
  out[p] = bits & 255;
  out[p + 1] = bits >> 8;
}

function putLevels(out: Uint8Array, p: number, x: Float32Array, scale: number): void {
  const inverse = scale === 0 ? 0 : fround(1 / scale);
  const level = (i: number): number => nearestIq4(fround(inverse * x[i]));
  for (let j = 0; j < 16; j++) out[p + j] = level(j) | (level(j + 16) << 4);
}

const iq4Nl: EncodeBlock = (x, o, out, p, w) => {
  const block = x.subarray(o, o + 32);
  const d = groupScale(block, w?.subarray(o, o + 32), w ? twiceMeanSquare(block) : 0);
  put16(out, p, toF16Bits(d));
  putLevels(out, p + 2, block, d);
};

const iq4Xs: EncodeBlock = (x, o, out, p, w) => {
  const block = x.subarray(o, o + 256);
  const sigma2 = w ? twiceMeanSquare(block) : 0;
  const group = (j: number): Float32Array => block.subarray(j * 32, j * 32 + 32);
  const scales = Float32Array.from({ length: 8 }, (_, j) =>
    groupScale(group(j), w?.subarray(o + j * 32, o + j * 32 + 32), sigma2),
  );
  const extreme = scales.reduce((m, s) => (abs(s) > abs(m) ? s : m), 0);
  const d = fround(-extreme / 32);
  const inverse = d === 0 ? 0 : fround(1 / d);
  out.fill(0, p, p + 136);
  put16(out, p, toF16Bits(d));
  let high = 0;
  for (let j = 0; j < 8; j++) {
    const l = most(-32, least(31, nearest(fround(inverse * scales[j]))));
    putLevels(out, p + 8 + j * 16, group(j), fround(d * l));
    out[p + 4 + (j >> 1)] |= ((l + 32) & 15) << (4 * (j & 1));
    high |= ((l + 32) >> 4) << (2 * j);
  }
  put16(out, p + 2, high);
};

/** The 4-bit float nearest to x / d; the first of equals. */
function nearestFp4(x: number, d: number): number {
  let best = 0;
  for (let i = 1; i < 16; i++) {
    if (abs(fround(fround(FP4[i] * d) - x)) < abs(fround(fround(FP4[best] * d) - x))) best = i;
  }
  return best;
}

function largestOf(x: Float32Array, o: number, n: number): number {
  let largest = 0;
  for (let i = o; i < o + n; i++) largest = most(largest, abs(x[i]));
  return largest;
}

const mxfp4: EncodeBlock = (x, o, out, p) => {
  const largest = largestOf(x, o, 32);
  const exponent = largest > 0 ? most(0, Math.floor(Math.log2(largest)) - 2 + 127) : 0;
  const d = e8m0Half(exponent);
  out[p] = exponent;
  for (let j = 0; j < 16; j++) out[p + 1 + j] = nearestFp4(x[o + j], d) | (nearestFp4(x[o + j + 16], d) << 4);
};

/** Unsigned 8-bit float of four bits of exponent and three of mantissa; halves round up, as ggml does. */
function toUe4m3(x: number): number {
  if (!(x > 0)) return 0;
  const v = least(x, 448);
  const exponent = Math.floor(Math.log2(v)) + 7;
  if (exponent <= 0) return least(7, Math.floor(v * 512 + 0.5));
  const code = Math.floor((v / 2 ** (exponent - 7) - 1) * 8 + 0.5) + (exponent << 3);
  return least(code, 0x7e);
}

const nvfp4: EncodeBlock = (x, o, out, p) => {
  for (let s = 0; s < 4; s++) {
    const at = o + s * 16;
    const code = toUe4m3(fround(largestOf(x, at, 16) / 6));
    const d = ue4m3Half(code);
    out[p + s] = code;
    for (let j = 0; j < 8; j++) out[p + 4 + s * 8 + j] = nearestFp4(x[at + j], d) | (nearestFp4(x[at + j + 8], d) << 4);
  }
};

export const ENCODE_NONLINEAR: Readonly<Record<string, EncodeBlock>> = {
  IQ4_NL: iq4Nl,
  IQ4_XS: iq4Xs,
  MXFP4: mxfp4,
  NVFP4: nvfp4,
};
