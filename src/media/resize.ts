// Pictures of other sizes: resized as Pillow does it, and cropped.
import { UnsupportedError } from '../base/errors.js';
import type { Picture } from './pictures.js';

interface Filter {
  readonly support: number;
  readonly weight: (x: number) => number;
}
const cubic = (x: number): number => {
  const [a, d] = [-0.5, Math.abs(x)];
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
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

/** For every place of a row of `to` pixels: where it begins to look in a row of `from`, and with which weights. */
function weightsOf(from: number, to: number, filter: Filter): { start: number; weights: number[] }[] {
  const scale = from / to;
  const wide = Math.max(scale, 1);
  const support = filter.support * wide;
  return Array.from({ length: to }, (_, i) => {
    const center = (i + 0.5) * scale;
    const start = Math.max(0, Math.trunc(center - support + 0.5));
    const end = Math.min(from, Math.trunc(center + support + 0.5));
    const raw = Array.from({ length: end - start }, (_, k) => filter.weight((k + start - center + 0.5) / wide));
    const sum = raw.reduce((a, b) => a + b, 0);
    const weights = raw.map((w) => Math.trunc((w / sum) * 2 ** BITS + (w < 0 ? -0.5 : 0.5)));
    return { start, weights };
  });
}
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
    const across = weightsOf(p.width, width, filter);
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
    const down = weightsOf(p.height, height, filter);
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
