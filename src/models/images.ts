// Pictures as vision models want them: resized, cropped and brought to a scale, as a folder's files say.
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { MOST_PIXELS, type Picture } from '../media/pictures.js';
import { centerCrop, resize } from '../media/resize.js';
import type { Config } from './config.js';

export interface Size {
  readonly height?: number;
  readonly width?: number;
  readonly shortest_edge?: number;
  readonly longest_edge?: number;
}
const EDGES = ['height', 'width', 'shortest_edge', 'longest_edge'] as const satisfies (keyof Size)[];
export function sizeOf(c: Config, name: string, fallback: Size): Size {
  if (!c.has(name)) return fallback;
  const one = typeof c.get(name) === 'number' ? c : (c.inner(name) as Config);
  const names = one === c ? [name] : EDGES.filter((edge) => one.has(edge));
  const sizes = names.map((edge) => one.count(edge, undefined, 1));
  if (sizes.some((n) => n * n > MOST_PIXELS))
    throw new UnsupportedError(`${c.where}: ${name} asks for more than ${MOST_PIXELS / 1e6} million pixels`);
  return Object.fromEntries((one === c ? EDGES.slice(0, 3) : names).map((edge, i) => [edge, sizes[i] ?? sizes[0]]));
}

const CLIP_COLOURS = {
  mean: [0.48145466, 0.4578275, 0.40821073],
  std: [0.26862954, 0.26130258, 0.27577711],
};
const HALVES = { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] };
/** How bytes of colours become the numbers that a model was trained on. */
export class Colours {
  readonly #factor: number;
  readonly mean: readonly number[];
  readonly #std: readonly number[];
  /** `clip`: CLIP's colours where files do not say; else halves. */
  constructor(c: Config, clip: boolean) {
    const rescaled = c.flag('do_rescale', true);
    const factor = c.number('rescale_factor', 1 / 255);
    this.#factor = rescaled ? factor : 1;
    const normalized = c.flag('do_normalize', true);
    const list = (name: string, fallback: readonly number[]): readonly number[] =>
      c.has(name) ? c.numbers(name, 3) : fallback;
    const unsaid = clip ? CLIP_COLOURS : HALVES;
    const [mean, std] = [list('image_mean', unsaid.mean), list('image_std', unsaid.std)];
    this.mean = normalized ? mean : [0, 0, 0];
    this.#std = normalized ? std : [1, 1, 1];
  }
  /** Numbers (3, height, width). */
  of({ width, height, rgb }: Picture): Float32Array {
    const data = new Float32Array(3 * width * height);
    for (let c = 0; c < 3; c++)
      for (let i = 0; i < width * height; i++)
        data[c * width * height + i] = (rgb[3 * i + c] * this.#factor - this.mean[c]) / this.#std[c];
    return data;
  }
}
/** The name that files give an image processor, without what its classes have in common. */
export const processorName = (c: Config): string =>
  c
    .text('image_processor_type', c.text('feature_extractor_type', 'ViTImageProcessor'))
    .replace(/(ImageProcessor|FeatureExtractor)(Fast|Pil)?$/, '')
    .replace(/^ConvNeXT$/i, 'ConvNext');
/** Fields of processors without effect on their numbers. */
export function ignoreBookkeeping(c: Config): void {
  c.ignore('processor_class', 'do_convert_rgb', 'data_format', 'input_data_format', 'device', 'disable_grouping');
  c.ignore('return_tensors', 'default_to_square', 'image_processor_type', 'feature_extractor_type');
}

/** Processors by the names that files give them. */
const PROCESSORS = ['CLIP', 'Bit', 'ViT', 'Siglip', 'Deit', 'DeiT', 'Beit', 'ConvNext', 'Gemma3'];
/** By a folder's preprocessor_config.json. */
export class PictureProcessor {
  readonly #size: Size | undefined;
  readonly #square: boolean;
  /** How much of a picture's side is kept (ConvNeXt). */
  readonly #share: number | undefined;
  readonly #resample: number;
  readonly #crop: Size | undefined;
  readonly #colours: Colours;

  constructor(c: Config) {
    const kind = processorName(c);
    if (!PROCESSORS.includes(kind))
      throw new UnsupportedError(`${c.where}: the image processor ${kind} is not known; ${PROCESSORS.join(', ')} are`);
    ignoreBookkeeping(c);
    for (const padding of ['do_pad', 'pad_size']) c.only(padding, false, null);
    if (kind === 'Beit') c.ignore('do_reduce_labels', 'reduce_labels');
    // Gemma 3 may cut long pictures up, where it is asked to; PaliGemma's folders say how many tokens follow.
    c.only('do_pan_and_scan', false);
    c.ignore('pan_and_scan_min_crop_size', 'pan_and_scan_max_num_crops', 'pan_and_scan_min_ratio_to_activate');
    c.ignore('image_seq_length');
    const clip = kind === 'CLIP' || kind === 'Bit';
    const share = kind === 'ConvNext' ? c.number('crop_pct', 224 / 256) : undefined;
    this.#square = !clip && share === undefined;
    const usual = clip ? { shortest_edge: 224 } : { height: 224, width: 224 };
    this.#size = c.flag('do_resize', true)
      ? sizeOf(c, 'size', share === undefined ? usual : { shortest_edge: 384 })
      : undefined;
    this.#share = share;
    this.#resample = c.count('resample', kind === 'ViT' || kind === 'Gemma3' ? 2 : 3);
    const crop = sizeOf(c, 'crop_size', { height: 224, width: 224 });
    this.#crop = c.flag('do_center_crop', clip) ? crop : undefined;
    this.#colours = new Colours(c, clip);
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
    const sized = crop
      ? centerCrop(resized, crop.width ?? (crop.shortest_edge as number), crop.height ?? (crop.shortest_edge as number))
      : resized;
    return { data: this.#colours.of(sized), width: sized.width, height: sized.height };
  }
}
