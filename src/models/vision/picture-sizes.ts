// The size that a picture gets before a model sees it, where more is asked than a side's length.
import { UnsupportedError } from '../../base/errors.js';
import { MOST_PIXELS } from '../../media/pictures.js';
import type { Config } from '../files/config.js';

/** Of a picture of one size, the size it gets. */
export type Sizing = (height: number, width: number) => readonly [height: number, width: number];

/** To the nearest whole number; of two that are as near the even one. */
export function rounded(n: number): number {
  const down = Math.floor(n);
  return n - down === 0.5 ? down + (down % 2) : Math.round(n);
}
/** What an object of sizes says under these names, all of them or none. */
function sides(c: Config, first: string, second: string): readonly [number, number] | undefined {
  if (!c.has(first) || !c.has(second)) return undefined;
  const [a, b] = [c.count(first, undefined, 1), c.count(second, undefined, 1)];
  if (a * b > MOST_PIXELS)
    throw new UnsupportedError(`${c.where}: size asks for more than ${MOST_PIXELS / 1e6} million pixels`);
  return [a, b];
}

/** As short as one number says on the shorter side, and no longer than the other on the longer one. */
function between(
  [short, long]: readonly [number, number],
  [height, width]: readonly [number, number],
  always: boolean,
): readonly [number, number] {
  const [least, most] = [Math.min(height, width), Math.max(height, width)];
  const cut = (most / least) * short > long ? (long * least) / most : undefined;
  const side = cut === undefined ? short : rounded(cut);
  // YOLOS reckons with a tall picture that is as wide as asked, too.
  if (least === side && !(always && width < height)) return [height, width];
  const other = Math.trunc(((cut ?? side) * most) / least);
  return width < height ? [other, side] : [side, other];
}
/** DETR's: two edges, or a height and a width, exact or at most; sides are whole multiples of `step`. */
export function edgeSizing(c: Config, step = 1): Sizing {
  const whole = (n: number): number => n - (n % step);
  const old = c.optional('max_size');
  const size = typeof c.get('size') === 'number' ? undefined : c.inner('size');
  const edge = size ? undefined : c.count('size', 800, 1);
  const edges = size ? sides(size, 'shortest_edge', 'longest_edge') : ([edge ?? 800, old ?? 1333] as const);
  if (edges)
    return (height, width) => {
      const [tall, wide] = between(edges, [height, width], step > 1);
      return [whole(tall), whole(wide)];
    };
  const most = size && sides(size, 'max_height', 'max_width');
  if (most)
    return (height, width) => {
      const scale = Math.min(most[0] / height, most[1] / width);
      return [Math.trunc(height * scale), Math.trunc(width * scale)];
    };
  const exact = size && sides(size, 'height', 'width');
  if (exact) return () => exact;
  throw new UnsupportedError(
    `${c.where}: size is ${JSON.stringify(c.get('size'))}; served are shortest_edge and longest_edge, height and ` +
      'width, or max_height and max_width',
  );
}
/** Mask2Former's: DETR's, and then up to whole multiples. */
export function wholeSizing(c: Config): Sizing {
  const step = c.count('size_divisor', 32);
  const sized = edgeSizing(c);
  const whole = (n: number): number => (step > 0 ? Math.ceil(n / step) * step : n);
  return (height, width) => {
    const [tall, wide] = sized(height, width);
    return [whole(tall), whole(wide)];
  };
}
/** DPT's: a height and a width, or what is nearest to them in the picture's own shape; sides are whole multiples. */
export function multipleSizing(c: Config): Sizing {
  const size = typeof c.get('size') === 'number' ? undefined : c.inner('size');
  const side = size ? 384 : c.count('size', 384, 1);
  const wanted = size ? sides(size, 'height', 'width') : ([side, side] as const);
  const [step, keeps] = [c.count('ensure_multiple_of', 1, 1), c.flag('keep_aspect_ratio', false)];
  if (!wanted)
    throw new UnsupportedError(`${c.where}: size is ${JSON.stringify(c.get('size'))}; served are height and width`);
  return (height, width) => {
    let [down, across] = [wanted[0] / height, wanted[1] / width];
    if (keeps) {
      if (Math.abs(1 - across) < Math.abs(1 - down)) down = across;
      else across = down;
    }
    const multiple = (n: number): number => rounded(n / step) * step;
    return [multiple(down * height), multiple(across * width)];
  };
}
/** GLPN's: the picture's own sides, cut down to whole multiples. */
export function divisorSizing(c: Config): Sizing {
  const step = c.count('size_divisor', 32, 1);
  return (height, width) => [Math.floor(height / step) * step, Math.floor(width / step) * step];
}
/** SAM's: as long as one number says on the longer side. */
export function longestSizing(c: Config): Sizing {
  const size = typeof c.get('size') === 'number' || Array.isArray(c.get('size')) ? undefined : c.inner('size');
  if (c.has('size') && !size?.has('longest_edge'))
    throw new UnsupportedError(`${c.where}: size is ${JSON.stringify(c.get('size'))}; served is longest_edge`);
  const edge = size?.count('longest_edge', undefined, 1) ?? 1024;
  return (height, width) => {
    const scale = edge / Math.max(height, width);
    return [Math.trunc(height * scale + 0.5), Math.trunc(width * scale + 0.5)];
  };
}
/** SigLIP 2's: as large as so many patches allow, of nearly the picture's own shape. */
export function patchSizing(c: Config): Sizing {
  const [patch, most] = [c.count('patch_size', 16, 1), c.count('max_num_patches', 256, 1)];
  const whole = (n: number): number => Math.max(patch, Math.ceil(n / patch) * patch);
  return (height, width) => {
    let [low, high] = [1e-5 / 10, 100];
    while (high - low >= 1e-5) {
      const scale = (low + high) / 2;
      if ((whole(height * scale) / patch) * (whole(width * scale) / patch) <= most) low = scale;
      else high = scale;
    }
    return [whole(height * low), whole(width * low)];
  };
}
