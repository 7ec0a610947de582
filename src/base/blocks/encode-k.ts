// f32 to ggml's K blocks: 256 values in groups of 16 or 32, whose scales (and minima) are themselves quantized.
import { fromF16Bits, toF16Bits } from '../float.js';
import { affine, EPSILON, nearest, positive, type Steps, symmetric, symmetricByMoves } from './search.js';

/** One block from x[o..] to bytes at p; `w` holds the importance of the same places, or is undefined. */
export type EncodeBlock = (x: Float32Array, o: number, out: Uint8Array, p: number, w: Float32Array | undefined) => void;

const { fround, abs, sqrt, min: least, max: most } = Math;
const BLOCK = 256;

function putF16(out: Uint8Array, p: number, v: number): number {
  const bits = toF16Bits(v);
  out[p] = bits & 255;
  out[p + 1] = bits >> 8;
  return fromF16Bits(bits);
}

function meanSquare(x: Float32Array, factor: number): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum = fround(sum + fround(x[i] * x[i]));
  return fround(fround(factor * sum) / x.length);
}

/** Importance times the root of the block's mean square plus the value's own: what ggml weighs errors with. */
export function importanceWeights(x: Float32Array, w: Float32Array, sigma2: number, into: Float32Array): void {
  for (let i = 0; i < x.length; i++) into[i] = fround(w[i] * fround(sqrt(fround(sigma2 + fround(x[i] * x[i])))));
}

function total(w: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < w.length; i++) sum = fround(sum + w[i]);
  return sum;
}

// ---- Q2_K, Q4_K, Q5_K: value = d * scale * level - dmin * min ----

interface AffineForm {
  readonly group: 16 | 32;
  /** Largest level, and largest quantized scale and minimum. */
  readonly top: number;
  readonly scaleTop: number;
  readonly steps: Steps;
  /** Weights of a group where no importance is known. */
  readonly plainWeights: (x: Float32Array, into: Float32Array) => void;
  /** Writes scales and minima, then reads what was written: the block's two f16 factors. */
  readonly head: (
    out: Uint8Array,
    p: number,
    scales: Uint8Array,
    mins: Uint8Array,
    d: number,
    m: number,
  ) => [number, number];
  readonly pack: (out: Uint8Array, p: number, levels: Uint8Array) => void;
  /** What sigma^2 counts the mean square with. */
  readonly sigma: 1 | 2;
}
const IMPORTANT: Steps = { from: fround(-0.9), by: fround(0.05), count: 36 };

function encodeAffine(form: AffineForm): EncodeBlock {
  const { group, top, scaleTop } = form;
  const groups = BLOCK / group;
  const levels = new Uint8Array(BLOCK);
  const scales = new Float32Array(groups);
  const mins = new Float32Array(groups);
  const sums = new Float32Array(groups);
  const weights = new Float32Array(group);
  const scaleLevels = new Uint8Array(groups);
  const minLevels = new Uint8Array(groups);
  const uniform = (v: Float32Array, into: Uint8Array): number => {
    const largest = v.reduce((m, s) => most(m, s), 0);
    const inverse = largest > 0 ? fround(scaleTop / largest) : 0;
    for (let j = 0; j < groups; j++) into[j] = least(scaleTop, nearest(fround(inverse * v[j])));
    return fround(largest / scaleTop);
  };
  return (x, o, out, p, w) => {
    const block = x.subarray(o, o + BLOCK);
    const sigma2 = w ? meanSquare(block, form.sigma) : 0;
    for (let j = 0; j < groups; j++) {
      const xs = block.subarray(j * group, (j + 1) * group);
      if (w) importanceWeights(xs, w.subarray(o + j * group, o + (j + 1) * group), sigma2, weights);
      else form.plainWeights(xs, weights);
      sums[j] = total(weights);
      const into = levels.subarray(j * group, (j + 1) * group);
      scales[j] = affine(xs, group, top, into, weights, w ? IMPORTANT : form.steps, mins.subarray(j, j + 1));
    }
    const d = w ? positive(scales, groups, scaleTop, scaleLevels, sums) : uniform(scales, scaleLevels);
    const m = w ? positive(mins, groups, scaleTop, minLevels, sums) : uniform(mins, minLevels);
    const [dRead, mRead] = form.head(out, p, scaleLevels, minLevels, d, m);
    for (let j = 0; j < groups; j++) {
      const scale = fround(dRead * scaleLevels[j]);
      if (scale === 0) continue;
      const base = fround(mRead * minLevels[j]);
      for (let i = j * group; i < (j + 1) * group; i++)
        levels[i] = most(0, least(top, nearest(fround(fround(block[i] + base) / scale))));
    }
    form.pack(out, p, levels);
  };
}

const magnitudes = (x: Float32Array, into: Float32Array): void => {
  for (let i = 0; i < x.length; i++) into[i] = abs(x[i]);
};
const aroundMean = (x: Float32Array, into: Float32Array): void => {
  const mean = fround(sqrt(meanSquare(x, 1)));
  for (let i = 0; i < x.length; i++) into[i] = fround(mean + abs(x[i]));
};

/** Eight pairs of six bits in twelve bytes, after the two f16 factors. */
function sixBitHead(
  out: Uint8Array,
  p: number,
  s: Uint8Array,
  m: Uint8Array,
  d: number,
  dmin: number,
): [number, number] {
  for (let j = 0; j < 4; j++) {
    out[p + 4 + j] = s[j] | ((s[j + 4] >> 4) << 6);
    out[p + 8 + j] = m[j] | ((m[j + 4] >> 4) << 6);
    out[p + 12 + j] = (s[j + 4] & 15) | ((m[j + 4] & 15) << 4);
  }
  return [putF16(out, p, d), putF16(out, p + 2, dmin)];
}

/** Two bits a value: four values 32 apart share a byte. */
function packTwoBits(out: Uint8Array, p: number, l: Uint8Array): void {
  for (let half = 0; half < 2; half++)
    for (let i = 0; i < 32; i++) {
      const at = half * 128 + i;
      out[p + half * 32 + i] =
        (l[at] & 3) | ((l[at + 32] & 3) << 2) | ((l[at + 64] & 3) << 4) | ((l[at + 96] & 3) << 6);
    }
}
function packNibbles(out: Uint8Array, p: number, l: Uint8Array): void {
  for (let j = 0; j < 4; j++)
    for (let i = 0; i < 32; i++) out[p + j * 32 + i] = (l[j * 64 + i] & 15) | ((l[j * 64 + 32 + i] & 15) << 4);
}

const q2K = encodeAffine({
  group: 16,
  top: 3,
  scaleTop: 15,
  sigma: 1,
  steps: { from: -0.5, by: fround(0.1), count: 15, magnitude: true },
  plainWeights: magnitudes,
  head: (out, p, s, m, d, dmin) => {
    for (let j = 0; j < 16; j++) out[p + j] = s[j] | (m[j] << 4);
    return [putF16(out, p + 80, d), putF16(out, p + 82, dmin)];
  },
  pack: (out, p, l) => packTwoBits(out, p + 16, l),
});
const q4K = encodeAffine({
  group: 32,
  top: 15,
  scaleTop: 63,
  sigma: 2,
  steps: { from: -1, by: fround(0.1), count: 20 },
  plainWeights: aroundMean,
  head: sixBitHead,
  pack: (out, p, l) => packNibbles(out, p + 16, l),
});
const q5K = encodeAffine({
  group: 32,
  top: 31,
  scaleTop: 63,
  sigma: 2,
  steps: { from: -0.5, by: fround(0.1), count: 15 },
  plainWeights: aroundMean,
  head: sixBitHead,
  pack: (out, p, l) => {
    for (let i = 0; i < 32; i++) {
      let high = 0;
      for (let j = 0; j < 8; j++) high |= (l[j * 32 + i] >> 4) << j;
      out[p + 16 + i] = high;
    }
    packNibbles(out, p + 48, l);
  },
});

// ---- Q3_K, Q6_K: value = d * scale * (level - half) ----

const levels = new Uint8Array(BLOCK);
const scales = new Float32Array(16);
const sums = new Float32Array(16);
const weights = new Float32Array(16);

function levelsBy(x: Float32Array, scale: (j: number) => number, half: number): void {
  for (let j = 0; j < 16; j++) {
    const d = scale(j);
    if (d === 0) continue;
    for (let i = j * 16; i < j * 16 + 16; i++)
      levels[i] = most(-half, least(half - 1, nearest(fround(x[i] / d)))) + half;
  }
}

const scaleLevels3 = new Uint8Array(16);
const q3K: EncodeBlock = (x, o, out, p, w) => {
  const block = x.subarray(o, o + BLOCK);
  const sigma2 = w ? meanSquare(block, 2) : 0;
  for (let j = 0; j < 16; j++) {
    const xs = block.subarray(j * 16, j * 16 + 16);
    const into = levels.subarray(j * 16, j * 16 + 16);
    if (w) {
      importanceWeights(xs, w.subarray(o + j * 16, o + j * 16 + 16), sigma2, weights);
      sums[j] = total(weights);
      scales[j] = symmetric(xs, 16, 4, into, weights);
    } else scales[j] = symmetricByMoves(xs, 16, 4, into);
  }
  let d: number;
  if (w) d = symmetric(scales, 16, 32, scaleLevels3, sums);
  else {
    const extreme = scales.reduce((m, s) => (abs(s) > abs(m) ? s : m), 0);
    const inverse = extreme === 0 ? 0 : fround(-32 / extreme);
    for (let j = 0; j < 16; j++)
      scaleLevels3[j] = extreme === 0 ? 0 : most(-32, least(31, nearest(fround(inverse * scales[j])))) + 32;
    d = extreme === 0 ? 0 : fround(1 / inverse);
  }
  out.fill(0, p, p + 110);
  for (let j = 0; j < 16; j++) {
    out[p + 96 + (j & 7)] |= (scaleLevels3[j] & 15) << (j < 8 ? 0 : 4);
    out[p + 104 + (j & 3)] |= (scaleLevels3[j] >> 4) << (2 * (j >> 2));
  }
  const dRead = putF16(out, p + 108, d);
  levelsBy(block, (j) => fround(dRead * (scaleLevels3[j] - 32)), 4);
  for (let i = 0; i < BLOCK; i++) out[p + (i & 31)] |= (levels[i] >> 2) << (i >> 5);
  packTwoBits(out, p + 32, levels);
};

const q6K: EncodeBlock = (x, o, out, p, w) => {
  const block = x.subarray(o, o + BLOCK);
  let extreme = 0;
  for (let j = 0; j < 16; j++) {
    const own = w?.subarray(o + j * 16, o + j * 16 + 16);
    scales[j] = symmetric(block.subarray(j * 16, j * 16 + 16), 16, 32, levels.subarray(j * 16, j * 16 + 16), own);
    if (abs(scales[j]) > abs(extreme)) extreme = scales[j];
  }
  out.fill(0, p, p + 210);
  if (abs(extreme) < EPSILON) return;
  const inverse = fround(-128 / extreme);
  const d = putF16(out, p + 208, fround(1 / inverse));
  const quantized = new Int8Array(out.buffer, out.byteOffset + p + 192, 16);
  for (let j = 0; j < 16; j++) quantized[j] = least(127, nearest(fround(inverse * scales[j])));
  levelsBy(block, (j) => fround(d * quantized[j]), 32);
  for (let half = 0; half < 2; half++)
    for (let i = 0; i < 32; i++) {
      const l = (part: number): number => levels[half * 128 + part * 32 + i];
      out[p + half * 64 + i] = (l(0) & 15) | ((l(2) & 15) << 4);
      out[p + half * 64 + 32 + i] = (l(1) & 15) | ((l(3) & 15) << 4);
      out[p + 128 + half * 32 + i] = (l(0) >> 4) | ((l(1) >> 4) << 2) | ((l(2) >> 4) << 4) | ((l(3) >> 4) << 6);
    }
};

/** 256 whole numbers from -128 (the extreme) up, an f32 scale, and the sums of each 16. */
const q8K: EncodeBlock = (x, o, out, p) => {
  const view = new DataView(out.buffer, out.byteOffset + p, 292);
  out.fill(0, p, p + 292);
  let extreme = 0;
  for (let i = 0; i < BLOCK; i++) if (abs(x[o + i]) > abs(extreme)) extreme = x[o + i];
  if (extreme === 0) return;
  const inverse = fround(-127 / extreme);
  const groupSums = new Int16Array(16);
  for (let i = 0; i < BLOCK; i++) {
    const l = least(127, nearest(fround(inverse * x[o + i])));
    view.setInt8(4 + i, l);
    groupSums[i >> 4] += l;
  }
  groupSums.forEach((s, j) => view.setInt16(260 + 2 * j, s, true));
  view.setFloat32(0, fround(1 / inverse), true);
};

export const ENCODE_K: Readonly<Record<string, EncodeBlock>> = {
  Q2_K: q2K,
  Q3_K: q3K,
  Q4_K: q4K,
  Q5_K: q5K,
  Q6_K: q6K,
  Q8_K: q8K,
};
