// Pictures of other sizes: resized as Pillow does it, and cropped.
import { UnsupportedError } from '../base/errors.js';
import type { Picture } from './pictures.js';

interface Filter {
  readonly support: number;
  readonly weight: (x: number, round: Round) => number;
}
/** Keeps numbers to a format's precision. */
type Round = (x: number) => number;
const cubic = (x: number, round: Round): number => {
  const [a, d] = [-0.5, Math.abs(x)];
  if (d < 1) return round(round(round((a + 2) * d - (a + 3)) * d) * d + 1);
  return d < 2 ? round(round(round(d - 5) * d + 8) * d - 4) * a : 0;
};
const sinc = (x: number): number => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
/** By Pillow's numbers of resampling filters. */
const FILTERS: Readonly<Record<number, Filter>> = {
  1: { support: 3, weight: (x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0) },
  2: { support: 1, weight: (x) => Math.max(0, 1 - Math.abs(x)) },
  3: { support: 2, weight: cubic },
};
/** Bits behind the point of a weight, as Pillow has them for eight bits a channel. */
const BITS = 22;

/** Where a place of a row begins to look in another row, and with which weights. */
interface Look {
  readonly start: number;
  readonly weights: readonly number[];
}
/** For every place of a row of `to` pixels, in a row of `from`; `last` is done to each weight. */
function looks(from: number, to: number, filter: Filter, round: Round, last: Round): Look[] {
  const scale = round(from / to);
  const wide = Math.max(scale, 1);
  const support = round(filter.support * wide);
  const narrow = round(1 / wide);
  return Array.from({ length: to }, (_, i) => {
    const center = round((i + 0.5) * scale);
    const start = Math.max(0, Math.trunc(round(center - support) + 0.5));
    const end = Math.min(from, Math.trunc(round(center + support) + 0.5));
    const raw = Array.from({ length: end - start }, (_, k) =>
      round(filter.weight(round((round(k + start - center) + 0.5) * narrow), round)),
    );
    const sum = raw.reduce((a, b) => round(a + b), 0);
    return { start, weights: raw.map((w) => last(w / sum)) };
  });
}
const same: Round = (x) => x;
/** A weight as a whole number, as Pillow has it. */
const whole: Round = (w) => Math.trunc(w * 2 ** BITS + (w < 0 ? -0.5 : 0.5));
const byte = (sum: number): number => Math.min(255, Math.max(0, Math.floor((sum + 2 ** (BITS - 1)) / 2 ** BITS)));

/** A picture of another size, bit for bit as Pillow makes it with the filter of that number. */
export function resize(p: Picture, width: number, height: number, resample: number): Picture {
  if (p.width === width && p.height === height) return p;
  if (resample === 0) return nearest(p, width, height);
  if (!Object.hasOwn(FILTERS, resample))
    throw new UnsupportedError(
      `image: the resampling filter ${resample} is not known; 0 (nearest), 1 (Lanczos), 2 (bilinear) and 3 (bicubic) ` +
        'are',
    );
  const filter = FILTERS[resample];
  let { rgb } = p;
  if (p.width !== width) {
    const across = looks(p.width, width, filter, same, whole);
    const out = new Uint8Array(width * p.height * 3);
    for (let y = 0; y < p.height; y++)
      for (let x = 0; x < width; x++)
        for (let c = 0; c < 3; c++) {
          const { start, weights } = across[x];
          let sum = 0;
          for (let k = 0; k < weights.length; k++) sum += rgb[(y * p.width + start + k) * 3 + c] * weights[k];
          out[(y * width + x) * 3 + c] = byte(sum);
        }
    rgb = out;
  }
  if (p.height !== height) {
    const down = looks(p.height, height, filter, same, whole);
    const out = new Uint8Array(width * height * 3);
    for (let y = 0; y < height; y++) {
      const { start, weights } = down[y];
      for (let x = 0; x < width * 3; x++) {
        let sum = 0;
        for (let k = 0; k < weights.length; k++) sum += rgb[(start + k) * width * 3 + x] * weights[k];
        out[y * width * 3 + x] = byte(sum);
      }
    }
    rgb = out;
  }
  return { width, height, rgb };
}
/** Filters that PyTorch has, too, and takes wider where pictures shrink. */
export const SMOOTH_FILTERS: readonly number[] = [2, 3];
/** Numbers (3, height, width) of another size, as PyTorch makes them of floats with one of these filters. */
export function resizeNumbers(
  data: Float32Array,
  [height, width]: readonly [number, number],
  [tall, wide]: readonly [number, number],
  resample: number,
): Float32Array {
  const filter = FILTERS[resample];
  const [across, down] = [
    looks(width, wide, filter, Math.fround, Math.fround),
    looks(height, tall, filter, Math.fround, Math.fround),
  ];
  const rows = new Float32Array(3 * height * wide);
  for (let y = 0; y < 3 * height; y++)
    for (let x = 0; x < wide; x++) {
      const { start, weights } = across[x];
      let sum = 0;
      for (let k = 0; k < weights.length; k++) sum = Math.fround(sum + data[y * width + start + k] * weights[k]);
      rows[y * wide + x] = sum;
    }
  const out = new Float32Array(3 * tall * wide);
  for (let y = 0; y < 3 * tall; y++) {
    const { start, weights } = down[y % tall];
    const first = Math.floor(y / tall) * height + start;
    for (let x = 0; x < wide; x++) {
      let sum = 0;
      for (let k = 0; k < weights.length; k++) sum = Math.fround(sum + rows[(first + k) * wide + x] * weights[k]);
      out[y * wide + x] = sum;
    }
  }
  return out;
}
function nearest(p: Picture, width: number, height: number): Picture {
  const rgb = new Uint8Array(width * height * 3);
  // Places are summed up step by step, rounding included, as Pillow does it.
  const places = (from: number, to: number): number[] => {
    let at = (from / to) * 0.5;
    return Array.from({ length: to }, () => {
      const place = Math.floor(at);
      at += from / to;
      return Math.min(place, from - 1);
    });
  };
  const [across, down] = [places(p.width, width), places(p.height, height)];
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const from = down[y] * p.width + across[x];
      for (let c = 0; c < 3; c++) rgb[(y * width + x) * 3 + c] = p.rgb[from * 3 + c];
    }
  return { width, height, rgb };
}

/** The middle of a picture; what lies beyond its edges is black. */
export function centerCrop(p: Picture, width: number, height: number): Picture {
  const rgb = new Uint8Array(width * height * 3);
  const [left, top] = [Math.floor((p.width - width) / 2), Math.floor((p.height - height) / 2)];
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [sx, sy] = [x + left, y + top];
      if (sx < 0 || sy < 0 || sx >= p.width || sy >= p.height) continue;
      for (let c = 0; c < 3; c++) rgb[(y * width + x) * 3 + c] = p.rgb[(sy * p.width + sx) * 3 + c];
    }
  return { width, height, rgb };
}
