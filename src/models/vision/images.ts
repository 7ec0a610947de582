// Pictures as vision models want them: resized, cropped and brought to a scale, as a folder's files say.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { readJsonFile } from '../../io/json-file.js';
import { MOST_PIXELS, type Picture } from '../../media/pictures.js';
import { centerCrop, resize, resizeNumbers, SMOOTH_FILTERS } from '../../media/resize.js';
import { Config, isObject } from '../files/config.js';
import type { Fitting } from './page-pictures.js';
import { squared, zoomed } from './square-pictures.js';
import { multipleSizing, type Sizing } from './picture-sizes.js';
import { type ColourScale, type Processor, PROCESSORS, type Size, square } from './processors.js';

const EDGES = ['height', 'width', 'shortest_edge', 'longest_edge'] as const satisfies (keyof Size)[];
/** One number stands for all that it may mean; a list is height and width. */
export function sizeOf(c: Config, name: string, fallback: Size): Size {
  if (!c.has(name)) return fallback;
  const given = c.get(name);
  if (Array.isArray(given)) {
    const [height, width] = c.numbers(name, 2);
    return sizeOf(new Config({ [name]: { height, width } }, c.where), name, fallback);
  }
  const one = typeof given === 'number' ? c : (c.inner(name) as Config);
  const names = one === c ? [name] : EDGES.filter((edge) => one.has(edge));
  const sizes = names.map((edge) => one.count(edge, undefined, 1));
  if (sizes.some((n) => n * n > MOST_PIXELS))
    throw new UnsupportedError(`${c.where}: ${name} asks for more than ${MOST_PIXELS / 1e6} million pixels`);
  return Object.fromEntries((one === c ? EDGES.slice(0, 3) : names).map((edge, i) => [edge, sizes[i] ?? sizes[0]]));
}

const { fround } = Math;
/** Numbers (3, height, width) by a table of 256 for each colour. */
function planes({ width, height, rgb }: Picture, table: Float32Array): Float32Array {
  const size = width * height;
  const data = new Float32Array(3 * size);
  for (let c = 0; c < 3; c++) for (let i = 0; i < size; i++) data[c * size + i] = table[256 * c + rgb[3 * i + c]];
  return data;
}
/** How bytes of colours become the numbers that a model was trained on: float32 after every step, as NumPy does it. */
export class Colours {
  /** What becomes of each byte of each colour before the mean is taken away. */
  readonly #scaled: Float32Array;
  /** And after all steps. */
  readonly #whole: Float32Array;
  readonly mean: readonly number[];
  readonly #std: readonly number[];
  /** Divided by once more (EfficientNet). */
  readonly #again: readonly number[] | undefined;
  /**
   * `unsaid` holds where files do not say. Of `how`, `centred` reads EfficientNet's fields, and `single` takes the
   * factor as a float32; `raw` takes no mean away, whatever files say.
   */
  constructor(
    c: Config,
    unsaid: ColourScale,
    how: Readonly<Partial<Record<'centred' | 'single' | 'unnormed' | 'raw', boolean>>> = {},
  ) {
    const rescaled = c.flag('do_rescale', true);
    const said = c.number('rescale_factor', 1 / 255);
    const factor = rescaled ? (how.single ? fround(said) : said) : 1;
    const offset = how.centred && c.flag('rescale_offset', false) && rescaled ? 1 : 0;
    this.#scaled = Float32Array.from({ length: 768 }, (_, v) => fround((v % 256) * factor) - offset);
    const normalized = !how.raw && c.flag('do_normalize', !how.unnormed);
    const list = (name: string, fallback: readonly number[]): readonly number[] =>
      c.has(name) ? c.numbers(name, 3) : fallback;
    const [mean, std] = [list('image_mean', unsaid.mean), list('image_std', unsaid.std)];
    this.mean = normalized ? mean : [0, 0, 0];
    this.#std = normalized ? std : [1, 1, 1];
    this.#again = how.centred && c.flag('include_top', true) ? std : undefined;
    this.#whole = this.normalized(this.#scaled.slice());
  }
  /** Numbers (3, height, width). */
  of(picture: Picture): Float32Array {
    return planes(picture, this.#whole);
  }
  /** The first step alone. */
  scaled(picture: Picture): Float32Array {
    return planes(picture, this.#scaled);
  }
  /** The other steps, in place. */
  normalized(data: Float32Array): Float32Array {
    const size = data.length / 3;
    for (let c = 0; c < 3; c++) {
      const [mean, std, again] = [fround(this.mean[c]), fround(this.#std[c]), fround(this.#again?.[c] ?? 1)];
      for (let i = c * size; i < (c + 1) * size; i++) data[i] = fround(fround(data[i] - mean) / std) / again;
    }
    return data;
  }
}

/** The name that files give an image processor, without what its classes have in common; else a type of model's. */
export function processorName(c: Config, modelType?: unknown): string {
  const unnamed = Object.entries(PROCESSORS).find(([, { models }]) => models?.includes(modelType as string))?.[0];
  return c
    .text('image_processor_type', c.has('feature_extractor_type') ? c.text('feature_extractor_type') : unnamed)
    .replace(/(ImageProcessor|FeatureExtractor)(Fast|Pil)?$/, '')
    .replace(/^ConvNeXT$/i, 'ConvNext')
    .replace(/^(ConditionalDetr|DeformableDetr|GroundingDino)$/, 'Detr')
    .replace(/^MaskFormer$/, 'Mask2Former');
}
/** Fields of processors without effect on their numbers. */
export function ignoreBookkeeping(c: Config): void {
  c.ignore('processor_class', 'do_convert_rgb', 'data_format', 'input_data_format', 'device', 'disable_grouping');
  c.ignore('return_tensors', 'default_to_square', 'image_processor_type', 'feature_extractor_type');
  c.ignore('_valid_processor_keys');
}

/**
 * What a folder says of its pictures: a part of processor_config.json, as newer folders have it, else
 * preprocessor_config.json; nothing where neither does.
 */
export function processorConfig(dir: string): Config | undefined {
  const [both, own] = ['processor_config.json', 'preprocessor_config.json'].map((name) => join(dir, name));
  const inside = existsSync(both) ? new Config(readJsonFile(both), both).get('image_processor') : undefined;
  if (isObject(inside)) return new Config(inside, `${both}: image_processor`);
  return existsSync(own) ? new Config(readJsonFile(own), own) : undefined;
}

/** A picture as a model takes it. */
export interface Pixels {
  /** (3, height, width). */
  readonly data: Float32Array;
  readonly height: number;
  readonly width: number;
  /** What is not zeros around it. */
  readonly shown: readonly [height: number, width: number];
}

/** By a folder's preprocessor_config.json. */
export class PictureProcessor {
  readonly #kind: Processor;
  readonly #size: Size | undefined;
  readonly #sizing: Sizing | undefined;
  readonly #fitting: Fitting | undefined;
  /** How much of a picture's side is kept. */
  readonly #share: number | undefined;
  readonly #resample: number;
  readonly #crop: Required<Pick<Size, 'height' | 'width'>> | undefined;
  readonly #colours: Colours;
  readonly #flips: boolean;
  /** Pictures become square, with nothing below or right of them: what a model says of shares is said of the square. */
  readonly squares: boolean;
  /** Zeros lie around a picture up to this size. */
  readonly #fill: Required<Pick<Size, 'height' | 'width'>> | undefined;

  /** `modelType` tells the processor where the files do not. */
  constructor(c: Config, modelType?: unknown) {
    const name = processorName(c, modelType);
    if (!Object.hasOwn(PROCESSORS, name))
      throw new UnsupportedError(
        `${c.where}: the image processor ${name} is not known; ${Object.keys(PROCESSORS).join(', ')} are`,
      );
    const kind = (this.#kind = PROCESSORS[name]);
    ignoreBookkeeping(c);
    // Where a picture is to be larger than it is, zeros would lie around it.
    if (kind.fills) this.#fill = this.#fillSaid(c, kind.fills);
    else c.only('pad_size', null, false);
    if (kind.pads) c.ignore('do_pad', 'pad_and_return_pixel_mask', 'format', 'do_convert_annotations');
    else if (!kind.fitting && !kind.fills && !kind.squares) c.only('do_pad', false);
    // An older word of OWL-ViT's files.
    if (name.startsWith('Owl')) c.only('rescale', true);
    if (kind.sizing === multipleSizing) c.ignore('size_divisor');
    if (kind.flips) c.ignore('do_normalize', 'image_mean', 'image_std');
    else c.only('do_flip_channel_order', false);
    this.#flips = kind.flips === true && c.flag('do_flip_channel_order', true);
    // About maps of labels, which stand beside pictures in training.
    c.ignore('do_reduce_labels', 'reduce_labels', 'ignore_index', 'num_labels');
    // PoolFormer's older files say in one word what it does anyway.
    if (kind.shareOf === 'edges') c.only('do_resize_and_center_crop', true);
    // Gemma 3 may cut long pictures up, where it is asked to; PaliGemma's folders say how many tokens follow.
    c.only('do_pan_and_scan', false);
    c.ignore('pan_and_scan_min_crop_size', 'pan_and_scan_max_num_crops', 'pan_and_scan_min_ratio_to_activate');
    c.ignore('image_seq_length');
    // Null is PoolFormer's word for no share.
    const unshared = kind.share === undefined || (kind.shareOf === 'edges' && c.json.crop_pct === null);
    this.#share = unshared ? undefined : c.number('crop_pct', kind.share);
    this.#sizing = kind.sizing && c.flag('do_resize', true) ? kind.sizing(c) : undefined;
    this.#fitting = kind.fitting?.(c);
    if (kind.fitting) c.only('do_center_crop', false);
    else if (kind.sizing) c.ignore('size', 'max_size', 'ensure_multiple_of', 'keep_aspect_ratio', 'size_divisor');
    else this.#size = this.#sizeSaid(c);
    this.#resample = c.count('resample', kind.resample);
    if (kind.numbers) this.#requireNumbers(c);
    if (kind.squares) {
      if (!c.flag('do_rescale', true))
        throw new UnsupportedError(`${c.where}: do_rescale is ${c.json.do_rescale}; this processor is served with it`);
      if (this.#size && this.#size.height === undefined)
        throw new UnsupportedError(`${c.where}: size is ${JSON.stringify(c.get('size'))}; served are height and width`);
    }
    this.squares = kind.squares === true && c.flag('do_pad', true);
    this.#crop = this.#cropSaid(c);
    this.#colours = new Colours(c, kind.colours, {
      ...{ centred: kind.centred ?? false, single: kind.numbers ?? false, unnormed: kind.unnormed ?? false },
      raw: kind.flips ?? false,
    });
  }
  #fillSaid(c: Config, unsaid: Size): Required<Pick<Size, 'height' | 'width'>> | undefined {
    // About maps of labels, which stand beside pictures in training.
    c.ignore('mask_size', 'mask_pad_size');
    c.only('do_center_crop', false);
    const { height, width } = sizeOf(c, 'pad_size', unsaid);
    if (!c.flag('do_pad', true)) return undefined;
    if (height === undefined || width === undefined)
      throw new UnsupportedError(
        `${c.where}: pad_size is ${JSON.stringify(c.get('pad_size'))}; served are height and width`,
      );
    return { height, width };
  }
  #square(picture: Picture): Pixels {
    const { width: w, height: h } = picture;
    const scaled = this.#colours.scaled(picture);
    const { data, side } = this.squares ? squared(scaled, [h, w]) : { data: scaled, side: 0 };
    const from = this.squares ? ([side, side] as const) : ([h, w] as const);
    if (!this.#size) return { data: this.#colours.normalized(data), height: from[0], width: from[1], shown: from };
    const to = [this.#size.height as number, this.#size.width as number] as const;
    return { data: this.#colours.normalized(zoomed(data, from, to)), height: to[0], width: to[1], shown: to };
  }
  /** Numbers (3, h, w) with zeros below and right of them. */
  #filled(
    data: Float32Array,
    [h, w]: readonly [number, number],
    { height, width }: Required<Pick<Size, 'height' | 'width'>>,
  ): Float32Array {
    if (h > height || w > width)
      throw new ArgumentError(`image: ${w} x ${h} pixels do not fit into pad_size, ${width} x ${height}`);
    const wide = new Float32Array(3 * height * width);
    for (let c = 0; c < 3; c++)
      for (let y = 0; y < h; y++)
        wide.set(data.subarray((c * h + y) * w, (c * h + y + 1) * w), (c * height + y) * width);
    return wide;
  }
  /** What PyTorch does to bytes, or in another way than Pillow, is not served where numbers are resized. */
  #requireNumbers(c: Config): void {
    c.only('resample', ...SMOOTH_FILTERS);
    c.only('do_center_crop', false);
    if (!c.flag('do_rescale', true))
      throw new UnsupportedError(`${c.where}: do_rescale is ${c.json.do_rescale}; this processor is served with it`);
  }
  #sizeSaid(c: Config): Size | undefined {
    const given = sizeOf(c, 'size', this.#kind.size);
    const meant = c.flag('default_to_square', this.#kind.square ?? true)
      ? { height: given.height, width: given.width }
      : { shortest_edge: given.shortest_edge };
    const size = typeof c.get('size') === 'number' ? (meant as Size) : given;
    if (!c.flag('do_resize', true)) return undefined;
    const [sides, edge] = [size.height !== undefined && size.width !== undefined, size.shortest_edge !== undefined];
    if (size.longest_edge !== undefined || sides === edge || (this.#kind.shareOf === 'small' && !edge))
      throw new UnsupportedError(
        `${c.where}: size is ${JSON.stringify(c.get('size'))}; served is ` +
          (this.#kind.shareOf === 'small' ? 'shortest_edge' : 'either height and width or shortest_edge'),
      );
    const share = this.#share ?? 1;
    const shared = [size.height, size.width, size.shortest_edge].filter((n) => n !== undefined).map((n) => n / share);
    if (shared.some((n) => !(n >= 1 && n ** 2 <= MOST_PIXELS)))
      throw new UnsupportedError(
        `${c.where}: crop_pct is ${share}, which asks for no pixel or more than ${MOST_PIXELS / 1e6} million`,
      );
    return size;
  }
  #cropSaid(c: Config): Required<Pick<Size, 'height' | 'width'>> | undefined {
    const { crop, crops, whole } = this.#kind;
    const { height, width } = sizeOf(c, 'crop_size', crop === undefined ? {} : square(crop));
    if (!c.flag('do_center_crop', crops ?? false) || whole) return undefined;
    if (height === undefined || width === undefined)
      throw new UnsupportedError(
        `${c.where}: crop_size is ${JSON.stringify(c.get('crop_size')) ?? 'missing'}; served are height and width`,
      );
    return { height, width };
  }
  /** The size that a picture gets first. */
  #target(p: Picture): readonly [height: number, width: number] {
    const { height, width, shortest_edge: edge } = this.#size as Size;
    if (this.#kind.shareOf === 'small' && (edge as number) >= 384) return [edge as number, edge as number];
    const larger = (n: number): number => Math.trunc(n / (this.#share ?? 1));
    const square = this.#kind.shareOf === 'edges' && this.#share !== undefined && height === width;
    const side = edge ?? (square ? height : undefined);
    if (side === undefined) return [larger(height as number), larger(width as number)];
    const short = this.#kind.grows === undefined ? larger(side) : Math.trunc(this.#kind.grows * side);
    const long = Math.trunc((short * Math.max(p.width, p.height)) / Math.min(p.width, p.height));
    if (short * long > MOST_PIXELS)
      throw new ArgumentError(
        `image: ${p.width} x ${p.height} pixels; with ${short} on the shorter side they would be more than ` +
          `${MOST_PIXELS / 1e6} million`,
      );
    return p.width <= p.height ? [long, short] : [short, long];
  }
  #resized(p: Picture): Picture {
    if (this.#fitting) return this.#fitting(p, this.#resample);
    if (this.#sizing) {
      const [tall, wide] = this.#sizing(p.height, p.width);
      if (!(tall >= 1 && wide >= 1 && tall * wide <= MOST_PIXELS))
        throw new ArgumentError(
          `image: ${p.width} x ${p.height} pixels would become ${wide} x ${tall}, which are none or more than ` +
            `${MOST_PIXELS / 1e6} million`,
        );
      return resize(p, wide, tall, this.#resample);
    }
    if (!this.#size) return p;
    const [height, width] = this.#target(p);
    const resized = resize(p, width, height, this.#resample);
    const edge = this.#size.shortest_edge;
    return this.#kind.shareOf === 'small' && edge !== undefined ? centerCrop(resized, edge, edge) : resized;
  }
  /** Numbers (3, height, width), their size, and how much of that the picture takes up, down and across. */
  of(picture: Picture): Pixels {
    if (this.#kind.numbers && this.#size) {
      const [height, width] = this.#target(picture);
      const scaled = this.#colours.scaled(picture);
      const sized = resizeNumbers(scaled, [picture.height, picture.width], [height, width], this.#resample);
      return { data: this.#colours.normalized(sized), height, width, shown: [height, width] };
    }
    if (this.#kind.squares) return this.#square(picture);
    const resized = this.#resized(picture);
    const sized = this.#crop ? centerCrop(resized, this.#crop.width, this.#crop.height) : resized;
    const data = this.#colours.of(sized);
    if (this.#flips) {
      const plane = data.length / 3;
      const [first, last] = [data.slice(0, plane), data.slice(2 * plane)];
      data.set(last, 0);
      data.set(first, 2 * plane);
    }
    const shown = [sized.height, sized.width] as const;
    if (!this.#fill) return { data, width: sized.width, height: sized.height, shown };
    return { data: this.#filled(data, shown, this.#fill), ...this.#fill, shown };
  }
}
