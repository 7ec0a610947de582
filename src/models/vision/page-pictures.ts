// Pages as Donut takes them: turned as the paper lies, as large as fits in it, and in the middle of black.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { MOST_PIXELS, type Picture } from '../../media/pictures.js';
import { resize } from '../../media/resize.js';
import type { Config } from '../files/config.js';

/** The paper that a config names: 2560 rows of 1920 where it does not; older files say width and height. */
function paperOf(c: Config): readonly [height: number, width: number] {
  const given = c.get('size');
  const old = Array.isArray(given) ? [...c.numbers('size', 2)].reverse() : undefined;
  const side = typeof given === 'number' ? c.count('size', undefined, 1) : undefined;
  const inner = old || side ? undefined : c.inner('size');
  const of = (name: string, unsaid: number): number => (inner ? inner.count(name, undefined, 1) : (side ?? unsaid));
  const [height, width] = old ?? [of('height', 2560), of('width', 1920)];
  if (!(Number.isInteger(height) && Number.isInteger(width) && height >= 1 && width >= 1))
    throw new UnsupportedError(`${c.where}: size is ${JSON.stringify(given)}; served are a width and a height`);
  if (height * width > MOST_PIXELS)
    throw new UnsupportedError(`${c.where}: size asks for more than ${MOST_PIXELS / 1e6} million pixels`);
  return [height, width];
}
/** Turned to the right by a quarter. */
function turned({ width, height, rgb }: Picture): Picture {
  const to = new Uint8Array(rgb.length);
  for (let y = 0; y < width; y++)
    for (let x = 0; x < height; x++) {
      const from = 3 * ((height - 1 - x) * width + y);
      to.set(rgb.subarray(from, from + 3), 3 * (y * height + x));
    }
  return { width: height, height: width, rgb: to };
}
/** In the middle of black; the odd row and column is below and right. */
function inBlack(p: Picture, height: number, width: number): Picture {
  if (p.height > height || p.width > width)
    throw new ArgumentError(
      `image: ${p.width} x ${p.height} pixels do not fit in the ${width} x ${height} of the model`,
    );
  const [top, left] = [Math.floor((height - p.height) / 2), Math.floor((width - p.width) / 2)];
  const rgb = new Uint8Array(3 * height * width);
  for (let y = 0; y < p.height; y++)
    rgb.set(p.rgb.subarray(3 * y * p.width, 3 * (y + 1) * p.width), 3 * ((top + y) * width + left));
  return { width, height, rgb };
}
function sized(p: Picture, height: number, width: number, resample: number): Picture {
  if (!(height >= 1 && width >= 1 && height * width <= MOST_PIXELS))
    throw new ArgumentError(
      `image: ${p.width} x ${p.height} pixels would become ${width} x ${height}, which are none or more than ` +
        `${MOST_PIXELS / 1e6} million`,
    );
  return resize(p, width, height, resample);
}

/** What becomes of a picture before its colours do. */
export type Fitting = (p: Picture, resample: number) => Picture;
export function pageFitting(c: Config): Fitting {
  const [height, width] = paperOf(c);
  const turns = c.flag('do_align_long_axis', false);
  const [resizes, shrinks, pads] = ['do_resize', 'do_thumbnail', 'do_pad'].map((name) => c.flag(name, true));
  c.only('random_padding', false);
  const shorter = Math.min(height, width);
  const steps: readonly (Fitting | false)[] = [
    turns &&
      ((p) => ((width < height && p.width > p.height) || (width > height && p.width < p.height) ? turned(p) : p)),
    resizes &&
      ((p, resample) => {
        const longer = Math.trunc((shorter * Math.max(p.width, p.height)) / Math.min(p.width, p.height));
        return p.width <= p.height ? sized(p, longer, shorter, resample) : sized(p, shorter, longer, resample);
      }),
    shrinks &&
      ((p, resample) => {
        let [tall, wide] = [Math.min(p.height, height), Math.min(p.width, width)];
        if (tall === p.height && wide === p.width) return p;
        if (p.height > p.width) wide = Math.trunc((p.width * tall) / p.height);
        else if (p.width > p.height) tall = Math.trunc((p.height * wide) / p.width);
        return sized(p, tall, wide, resample);
      }),
    pads && ((p) => inBlack(p, height, width)),
  ];
  return (p, resample) => steps.reduce((q, step) => (step ? step(q, resample) : q), p);
}
