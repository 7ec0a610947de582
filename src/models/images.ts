// Pictures as vision models want them: resized, cropped and brought to a scale, as a folder's files say.
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { MOST_PIXELS, type Picture } from '../media/pictures.js';
import { centerCrop, resize } from '../media/resize.js';
import type { Config } from './config.js';

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
