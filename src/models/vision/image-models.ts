// Pictures to classes, and pictures beside texts: vision models with what their folders say about pictures and words.
import { join } from 'node:path';
import { ArgumentError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import { readJsonFile } from '../../io/json-file.js';
import { type Picture, readPicture } from '../../media/pictures.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import { keep, scope, wholeOrNothing } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';
import { loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import type { ImageText } from './clip.js';
import { PictureProcessor, processorConfig } from './images.js';
import { loadModel } from '../load.js';
import type { VisionModel } from './vision-model.js';

/** A file's path or bytes, its pixels, or numbers (3, height, width) that are ready for the model. */
export type ImageInput = string | Uint8Array | Picture | Tensor;

/** None where the folder does not say how pictures become numbers: such a model takes tensors alone. */
export function processorOf(dir: string): PictureProcessor | undefined {
  const c = processorConfig(dir);
  if (!c) return undefined;
  const processor = new PictureProcessor(c, readJsonFile(join(dir, 'config.json')).model_type);
  c.refuseUnread();
  return processor;
}
/** A picture's pixels; those that are given as such are checked. */
export function pictureOf(image: string | Uint8Array | Picture): Picture {
  if (typeof image === 'string' || image instanceof Uint8Array) return readPicture(image);
  const { width, height, rgb } = (image ?? {}) as Partial<Picture>;
  const whole = [width, height].every((n) => Number.isSafeInteger(n) && (n as number) > 0);
  if (!whole || !(rgb instanceof Uint8Array) || rgb.length !== 3 * (width as number) * (height as number))
    throw new ArgumentError(
      'images: a picture is the path or the bytes of a PNG or JPEG file, a tensor, or { width, height, rgb } with ' +
        'three bytes a pixel',
    );
  return image;
}
/** Several pictures as one tensor (b, 3, height, width). */
export function pixels(images: readonly ImageInput[], processor: PictureProcessor | undefined, device: Device): Tensor {
  if (images.length === 0) throw new ArgumentError('images: the list is empty; give one picture at least');
  const list = images.map((image) => {
    if (image instanceof Tensor) return (image.rank === 3 ? image.unsqueeze(0) : image).to(device);
    const picture = pictureOf(image);
    if (!processor)
      throw new ArgumentError(
        'images: neither preprocessor_config.json nor processor_config.json of the folder tells how pictures become ' +
          'numbers; give a tensor (3, height, width) of those that the model takes',
      );
    const { data, width, height } = processor.of(picture);
    return tensor(data, { shape: [1, 3, height, width], device });
  });
  return list[0].cat(list.slice(1), 0);
}
const rowsOf = (t: Tensor): number[][] => t.cast('f32').toArray() as number[][];

export interface Classified {
  readonly label: string;
  readonly score: number;
}

/** Pictures to classes (ViT, DINOv2, Swin, ResNet and others). */
export class ImageClassifier {
  /** The network itself. */
  readonly model: VisionModel;
  /** How pictures become numbers: size, mean, spread; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  constructor(model: VisionModel, processor: PictureProcessor | undefined) {
    this.model = model;
    this.processor = processor;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<ImageClassifier> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel<VisionModel>(dir, { ...options, kind: 'vision' });
      if (!model.classifier) throw new ArgumentError(`${dir}: the model has no classifier`);
      return new ImageClassifier(model, processorOf(dir));
    });
  }
  /** The likeliest classes of a picture, the best first. */
  async classify(image: ImageInput, top = 5): Promise<Classified[]> {
    if (!(Number.isSafeInteger(top) && top > 0)) throw new ArgumentError(`classify: top is ${top}, not a count from 1`);
    const { dtype, device } = this.model.parameters()[0];
    const [scores] = scope(() =>
      noGrad(() => rowsOf(this.model.forward(pixels([image], this.processor, device).cast(dtype)).softmax(-1))),
    );
    return scores
      .map((score, i) => ({ label: this.model.labels[i], score }))
      .sort((a, b) => b.score - a.score)
      .slice(0, top);
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}

/** Texts as tokens (texts, time), and where they are. */
export function textTokens(
  model: ImageText,
  tokenizer: Tokenizer,
  texts: readonly string[],
): Record<'ids' | 'mask', Tensor> {
  const limit = model.text.maxTokens;
  const small = (t: string): string => (model.lowers ? Array.from(t, (letter) => letter.toLowerCase()).join('') : t);
  const rows = texts.map((t) => tokenizer.encode(small(t), { maxLength: limit }));
  // SigLIP was trained on texts padded to their full length, and looks at the padding.
  const time = model.pairwise ? limit : Math.max(...rows.map((r) => r.length));
  const pad = tokenizer.roleId('pad') ?? 0;
  const o = { shape: [rows.length, time], device: model.logitScale.device };
  const ids = Int32Array.from(rows.flatMap((r) => [...r, ...Array<number>(time - r.length).fill(pad)]));
  const mask = Float32Array.from(rows.flatMap((r) => Array.from({ length: time }, (_, i) => Number(i < r.length))));
  return { ids: tensor(ids, o), mask: tensor(mask, o) };
}

/** Pictures and texts as vectors of one space (CLIP, SigLIP, SigLIP 2). */
export class ImageTextModel {
  /** The network itself. */
  readonly model: ImageText;
  /** How texts become tokens. */
  readonly tokenizer: Tokenizer;
  /** How pictures become numbers: size, mean, spread; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  constructor(model: ImageText, tokenizer: Tokenizer, processor: PictureProcessor | undefined) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.processor = processor;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<ImageTextModel> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel<ImageText>(dir, { ...options, kind: 'image-text' });
      return new ImageTextModel(model, loadTokenizer(dir), processorOf(dir));
    });
  }
  #device(): Device {
    return this.model.logitScale.device;
  }
  #texts(texts: readonly string[]): Tensor {
    const { ids, mask } = textTokens(this.model, this.tokenizer, texts);
    return this.model.embedText(ids, mask);
  }
  #images(images: readonly ImageInput[]): Tensor {
    const embed = (some: readonly ImageInput[]): Tensor =>
      this.model.embedImage(pixels(some, this.processor, this.#device()).cast(this.model.logitScale.dtype));
    if (!this.model.vision.anySize || images.length < 2) return embed(images);
    const [first, ...rest] = images.map((image) => embed([image]));
    return first.cat(rest, 0);
  }
  /** Vectors of length 1. */
  async embedTexts(texts: readonly string[]): Promise<Float32Array[]> {
    return this.#vectors(() => this.#texts(texts));
  }
  /** Vectors of length 1, one a picture. */
  async embedImages(images: readonly ImageInput[]): Promise<Float32Array[]> {
    return this.#vectors(() => this.#images(images));
  }
  async #vectors(make: () => Tensor): Promise<Float32Array[]> {
    const t = keep(scope(() => noGrad(() => make().cast('f32').contiguous())));
    const data = (await t.data()) as Float32Array;
    const [n, width] = t.shape;
    t.dispose();
    return Array.from({ length: n }, (_, i) => data.slice(i * width, (i + 1) * width));
  }
  /** How well each picture fits each text: shares that sum to 1 (CLIP), or a probability a pair (SigLIP). */
  async scores(images: readonly ImageInput[], texts: readonly string[]): Promise<number[][]> {
    return scope(() => noGrad(() => rowsOf(this.model.scores(this.#images(images), this.#texts(texts)))));
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
