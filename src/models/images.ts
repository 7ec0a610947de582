// Pictures for vision models: PNG and JPEG files to pixels, resized as Pillow does it, cropped and brought to the scale
// a model wants.
import { readFileSync } from 'node:fs';
import { inflateSync } from 'node:zlib';
import jpeg from 'jpeg-js';
import { PNG } from 'pngjs';
import { ArgumentError, FormatError, UnsupportedError } from '../base/errors.js';
import type { Config } from './config.js';

/** Red, green and blue of every pixel, row by row. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly rgb: Uint8Array;
}

/** What a picture may have, so that a small file cannot fill the memory; jpeg-js has the same bound. */
const MOST_PIXELS = 100e6;
/** Channels of a pixel by PNG's kinds of color. */
const CHANNELS: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
/** The pictures that an interlaced PNG is made of: where each begins, and its steps, across and down. */
const PASSES = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const;
/** Refuses a header that promises more than a picture may have or than the data holds: pngjs would fill in anything. */
function checkPng(bytes: Buffer): void {
  const type = (at: number): string => bytes.toString('latin1', at + 4, at + 8);
  if (bytes.length < 33 || type(8) !== 'IHDR') throw new FormatError('PNG: it does not begin with a whole header');
  const [width, height, bits] = [bytes.readUInt32BE(16), bytes.readUInt32BE(20), bytes[24] * CHANNELS[bytes[25]]];
  const parts: Buffer[] = [];
  for (let at = 8; at + 8 <= bytes.length; at += 12 + bytes.readUInt32BE(at))
    if (type(at) === 'IDAT') parts.push(bytes.subarray(at + 8, at + 8 + bytes.readUInt32BE(at)));
  if (!(width * height > 0 && width * height <= MOST_PIXELS))
    throw new FormatError(`PNG: ${width}x${height} pixels are none, or more than ${MOST_PIXELS / 1e6} million`);
  const need = (bytes[28] === 0 ? [[0, 0, 1, 1] as const] : PASSES).reduce((sum, [left, top, across, down]) => {
    const [w, h] = [Math.ceil((width - left) / across), Math.ceil((height - top) / down)];
    return w > 0 && h > 0 ? sum + h * (1 + Math.ceil((w * bits) / 8)) : sum;
  }, 0);
  const { length } = inflateSync(Buffer.concat(parts), { maxOutputLength: need + 65536 });
  if (!(length >= need))
    throw new FormatError(`PNG: ${width}x${height} pixels need ${need} bytes, there are ${length}`);
}

/** Marks of a JPEG file that stand alone, without a length behind them: those inside a scan, and its beginning. */
const standsAlone = (mark: number): boolean => mark === 0x01 || (mark >= 0xd0 && mark <= 0xd8);
/** Refuses a file that stops before its end mark: jpeg-js would fill what is missing with grey, and say nothing. */
function checkJpeg(bytes: Buffer): void {
  let at = 2;
  while (at + 1 < bytes.length) {
    // Between a scan's header and the next mark lies its data, where 0xff is followed by 0.
    if (bytes[at] !== 0xff || bytes[at + 1] === 0 || bytes[at + 1] === 0xff) {
      at++;
      continue;
    }
    const mark = bytes[at + 1];
    if (mark === 0xd9) return;
    at += 2;
    if (!standsAlone(mark)) at += at + 1 < bytes.length ? Math.max(2, bytes.readUInt16BE(at)) : 2;
  }
  throw new FormatError(`JPEG: the file is cut off: its ${bytes.length} bytes hold no end of the picture`);
}

/** A PNG or JPEG file, by its path or its bytes. */
export function readPicture(from: string | Uint8Array): Picture {
  const bytes = typeof from === 'string' ? readFileSync(from) : Buffer.from(from);
  const name = typeof from === 'string' ? from : 'picture';
  const isPng = bytes.subarray(0, 8).toString('latin1') === '\x89PNG\r\n\x1a\n';
  const isJpeg = bytes[0] === 0xff && bytes[1] === 0xd8;
  if (!isPng && !isJpeg) throw new FormatError(`${name}: is neither PNG nor JPEG`);
  try {
    (isPng ? checkPng : checkJpeg)(bytes);
    const { width, height, data } = isPng
      ? PNG.sync.read(bytes)
      : jpeg.decode(bytes, { useTArray: true, formatAsRGBA: true });
    const rgb = new Uint8Array(width * height * 3);
    for (let i = 0; i < width * height; i++) for (let c = 0; c < 3; c++) rgb[3 * i + c] = data[4 * i + c];
    return { width, height, rgb };
  } catch (cause) {
    throw new FormatError(`${name}: ${(cause as Error).message}`, { cause });
  }
}

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
    // Whole numbers, as Pillow has them for eight bits a channel.
    const weights = raw.map((w) => Math.trunc((w / sum) * 2 ** BITS + (w < 0 ? -0.5 : 0.5)));
    return { start, weights };
  });
}
const byte = (sum: number): number => Math.min(255, Math.max(0, Math.floor((sum + 2 ** (BITS - 1)) / 2 ** BITS)));

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

interface Size {
  readonly height?: number;
  readonly width?: number;
  readonly shortest_edge?: number;
  readonly longest_edge?: number;
}
const EDGES = ['height', 'width', 'shortest_edge', 'longest_edge'] as const satisfies (keyof Size)[];
function sizeOf(c: Config, name: string, fallback: Size): Size {
  if (!c.has(name)) return fallback;
  const one = typeof c.get(name) === 'number' ? c : (c.inner(name) as Config);
  const names = one === c ? [name] : EDGES.filter((edge) => one.has(edge));
  const sizes = names.map((edge) => one.count(edge, undefined, 1));
  if (sizes.some((n) => n * n > MOST_PIXELS))
    throw new UnsupportedError(`${c.where}: ${name} asks for more than ${MOST_PIXELS / 1e6} million pixels`);
  return Object.fromEntries((one === c ? EDGES.slice(0, 3) : names).map((edge, i) => [edge, sizes[i] ?? sizes[0]]));
}

/** Processors by the names that files give them. */
const PROCESSORS = ['CLIP', 'Bit', 'ViT', 'Siglip', 'Deit', 'DeiT', 'Beit', 'ConvNext'];
/** By a folder's preprocessor_config.json. */
export class PictureProcessor {
  readonly #size: Size | undefined;
  readonly #square: boolean;
  /** How much of a picture's side is kept (ConvNeXt). */
  readonly #share: number | undefined;
  readonly #resample: number;
  readonly #crop: Size | undefined;
  readonly #factor: number;
  readonly #mean: readonly number[];
  readonly #std: readonly number[];

  constructor(c: Config) {
    const kind = c
      .text('image_processor_type', c.text('feature_extractor_type', 'ViTImageProcessor'))
      .replace(/(ImageProcessor|FeatureExtractor)(Fast|Pil)?$/, '')
      .replace(/^ConvNeXT$/i, 'ConvNext');
    if (!PROCESSORS.includes(kind))
      throw new UnsupportedError(`${c.where}: the image processor ${kind} is not known; ${PROCESSORS.join(', ')} are`);
    c.ignore(
      'processor_class',
      'do_convert_rgb',
      'data_format',
      'input_data_format',
      'device',
      'disable_grouping',
      'return_tensors',
      'default_to_square',
    );
    for (const padding of ['do_pad', 'pad_size']) c.only(padding, false, null);
    if (kind === 'Beit') c.ignore('do_reduce_labels', 'reduce_labels');
    const clip = kind === 'CLIP' || kind === 'Bit';
    const share = kind === 'ConvNext' ? c.number('crop_pct', 224 / 256) : undefined;
    this.#square = !clip && share === undefined;
    const usual = clip ? { shortest_edge: 224 } : { height: 224, width: 224 };
    this.#size = c.flag('do_resize', true)
      ? sizeOf(c, 'size', share === undefined ? usual : { shortest_edge: 384 })
      : undefined;
    this.#share = share;
    this.#resample = c.count('resample', kind === 'ViT' ? 2 : 3);
    const crop = sizeOf(c, 'crop_size', { height: 224, width: 224 });
    this.#crop = c.flag('do_center_crop', clip) ? crop : undefined;
    const rescaled = c.flag('do_rescale', true);
    const factor = c.number('rescale_factor', 1 / 255);
    this.#factor = rescaled ? factor : 1;
    const normalized = c.flag('do_normalize', true);
    const list = (name: string, fallback: readonly number[]): readonly number[] =>
      c.has(name) ? c.numbers(name, 3) : fallback;
    const mean = list('image_mean', clip ? [0.48145466, 0.4578275, 0.40821073] : [0.5, 0.5, 0.5]);
    const std = list('image_std', clip ? [0.26862954, 0.26130258, 0.27577711] : [0.5, 0.5, 0.5]);
    this.#mean = normalized ? mean : [0, 0, 0];
    this.#std = normalized ? std : [1, 1, 1];
  }
  #resized(p: Picture): Picture {
    const s = this.#size;
    if (!s) return p;
    if (this.#share !== undefined) return this.#middle(p, s.shortest_edge, this.#share);
    if (s.height !== undefined && s.width !== undefined && (this.#square || s.shortest_edge === undefined))
      return resize(p, s.width, s.height, this.#resample);
    if (s.shortest_edge === undefined) throw new ArgumentError(`image: the size ${JSON.stringify(s)} is not known`);
    return this.#byShortest(p, s.shortest_edge);
  }
  #byShortest(p: Picture, edge: number): Picture {
    const [short, long] = [Math.min(p.width, p.height), Math.max(p.width, p.height)];
    const other = Math.trunc((edge * long) / short);
    const [w, h] = p.width <= p.height ? [edge, other] : [other, edge];
    return resize(p, w, h, this.#resample);
  }
  /** ConvNeXt's way: a share of the picture's middle where it is small, all of it where it is 384 or more a side. */
  #middle(p: Picture, edge: number | undefined, share: number): Picture {
    if (edge === undefined) throw new ArgumentError('image: this processor takes a size of shortest_edge');
    if (edge >= 384) return resize(p, edge, edge, this.#resample);
    return centerCrop(this.#byShortest(p, Math.trunc(edge / share)), edge, edge);
  }
  /** Numbers (3, height, width) and their size. */
  of(picture: Picture): { readonly data: Float32Array; readonly height: number; readonly width: number } {
    const resized = this.#resized(picture);
    const crop = this.#crop;
    const { width, height, rgb } = crop
      ? centerCrop(resized, crop.width ?? (crop.shortest_edge as number), crop.height ?? (crop.shortest_edge as number))
      : resized;
    const data = new Float32Array(3 * width * height);
    for (let c = 0; c < 3; c++)
      for (let i = 0; i < width * height; i++)
        data[c * width * height + i] = (rgb[3 * i + c] * this.#factor - this.#mean[c]) / this.#std[c];
    return { data, width, height };
  }
}
