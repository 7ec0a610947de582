// Pictures that are asked by words: things with their boxes, and pixels, for classes that nobody trained a network on.
import { ArgumentError } from '../../base/errors.js';
import type { HubOptions } from '../../hub/index.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import { type ImageInput, pixels, textTokens } from '../vision/image-models.js';
import type { PictureProcessor } from '../vision/images.js';
import type { ClipSegmenter } from './clip-seg.js';
import { GroundingDino } from './grounding-dino.js';
import type { OwlDetector } from './owl.js';
import { boxOf, type Detected, opened, seen } from './scene-models.js';

function requireTexts(what: string, texts: readonly unknown[]): void {
  if (texts.length === 0) throw new ArgumentError(`${what}: the list is empty; ask for one thing at least`);
}
function requireShare(what: string, name: string, n: number): void {
  if (!(n >= 0 && n <= 1)) throw new ArgumentError(`${what}: ${name} is ${n}, not a number from 0 to 1`);
}

/** Things that texts name, with their boxes (OWL-ViT, OWLv2, Grounding DINO). */
export class ZeroShotDetector {
  /** The network itself. */
  readonly model: OwlDetector | GroundingDino;
  /** How texts become tokens. */
  readonly tokenizer: Tokenizer;
  /** How pictures become numbers; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  constructor(model: OwlDetector | GroundingDino, tokenizer: Tokenizer, processor: PictureProcessor | undefined) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.processor = processor;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<ZeroShotDetector> {
    return opened(
      name,
      'zero-shot-detection',
      options,
      (model: OwlDetector | GroundingDino, processor, dir) =>
        new ZeroShotDetector(model, loadTokenizer(dir), processor),
    );
  }
  /**
   * Each thing by the text that fits it best ("a photo of a cat"), those likelier than `threshold`, the likeliest
   * first. Grounding DINO reads all texts as one, "a cat. a dog.", and calls a thing by the words of it that fit.
   */
  async detect(
    image: ImageInput,
    texts: readonly string[],
    options: {
      /** From 0 to 1; 0.1 unless it is said, 0.25 for Grounding DINO. */
      readonly threshold?: number;
      /** From where on a word fits, from 0 to 1; of Grounding DINO alone, 0.25 unless it is said. */
      readonly wordThreshold?: number;
    } = {},
  ): Promise<Detected[]> {
    const { model } = this;
    const grounded = model instanceof GroundingDino;
    const { threshold = grounded ? 0.25 : 0.1, wordThreshold } = options;
    requireShare('detect', 'threshold', threshold);
    requireTexts('detect: texts', texts);
    if (grounded) return this.#grounded(model, image, texts, threshold, wordThreshold ?? 0.25);
    if (wordThreshold !== undefined)
      throw new ArgumentError('detect: wordThreshold is for Grounding DINO, which fits words one by one');
    const { input, height, width } = seen(image);
    const { clip } = model;
    const { dtype, device } = clip.logitScale;
    let found: { readonly rows: number[][]; readonly boxes: number[][] } = { rows: [], boxes: [] };
    scope(() =>
      noGrad(() => {
        const { ids, mask } = textTokens(clip, this.tokenizer, texts);
        const x = pixels([input], this.processor, device).cast(dtype);
        const { logits, boxes } = model.forward(x, clip.embedText(ids, mask));
        const lists = (t: Tensor): number[][] => t.cast('f32').squeeze(0).toArray() as number[][];
        found = { rows: lists(logits.cast('f32').sigmoid()), boxes: lists(boxes) };
      }),
    );
    // Where a picture was made square, boxes are shares of the square.
    const side = Math.max(width, height);
    const [wide, tall] = this.processor?.squares ? [side, side] : [width, height];
    return found.rows
      .map((row, thing) => ({ thing, id: row.indexOf(Math.max(...row)) }))
      .map(({ thing, id }) => ({
        label: texts[id],
        score: found.rows[thing][id],
        box: boxOf(found.boxes[thing], wide, tall),
      }))
      .filter(({ score }) => score > threshold)
      .sort((a, b) => b.score - a.score);
  }
  #grounded(
    model: GroundingDino,
    image: ImageInput,
    texts: readonly string[],
    threshold: number,
    wordThreshold: number,
  ): Detected[] {
    requireShare('detect', 'wordThreshold', wordThreshold);
    // Texts that are several phrases already stay as they are.
    const phrases = texts.some((t) => t.includes('.'))
      ? texts.join(' ')
      : `${texts.map((t) => t.trim().toLowerCase()).join('. ')}.`;
    const read = this.tokenizer.encode(phrases, { maxLength: model.maxTokens });
    const { input, height, width } = seen(image);
    const { dtype, device } = model.levels;
    let found: { readonly rows: number[][]; readonly boxes: number[][] } = { rows: [], boxes: [] };
    scope(() =>
      noGrad(() => {
        const x = pixels([input], this.processor, device).cast(dtype);
        const { logits, boxes } = model.forward(x, tensor([read], { dtype: 'i32', device }));
        const lists = (t: Tensor): number[][] => t.cast('f32').squeeze(0).toArray() as number[][];
        found = { rows: lists(logits.cast('f32').sigmoid()), boxes: lists(boxes) };
      }),
    );
    const fitting = (row: readonly number[]): number[] => read.filter((_, i) => i > 0 && row[i] > wordThreshold);
    return found.rows
      .map((row, thing) => ({ row, box: found.boxes[thing], score: Math.max(...row) }))
      .filter(({ score }) => score > threshold)
      .sort((a, b) => b.score - a.score)
      .map(({ row, box, score }) => ({
        label: this.tokenizer.decode(fitting(row), { special: true }),
        score,
        box: boxOf(box, width, height),
      }));
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}

/** What was asked for, and where it is. */
export interface WordedMask {
  /** For each pixel, row by row, from 0 to 1: how sure the model is that it is there. */
  readonly shares: Float32Array;
  /** 255 where that is more than the threshold, 0 elsewhere. */
  readonly mask: Uint8Array;
}
/** Pixels of what texts name, or of what other pictures show (CLIPSeg). */
export class ZeroShotSegmenter {
  /** The network itself. */
  readonly model: ClipSegmenter;
  /** How texts become tokens. */
  readonly tokenizer: Tokenizer;
  /** How pictures become numbers; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  constructor(model: ClipSegmenter, tokenizer: Tokenizer, processor: PictureProcessor | undefined) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.processor = processor;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<ZeroShotSegmenter> {
    return opened(
      name,
      'zero-shot-segmentation',
      options,
      (model: ClipSegmenter, processor, dir) => new ZeroShotSegmenter(model, loadTokenizer(dir), processor),
    );
  }
  /** For each text, or each picture of a thing, where it is in the picture. */
  async segment(
    image: ImageInput,
    asked: readonly (string | { readonly image: ImageInput })[],
    options: {
      /** From 0 to 1; 0.5 unless it is said. */
      readonly threshold?: number;
    } = {},
  ): Promise<WordedMask[]> {
    const { threshold = 0.5 } = options;
    requireShare('segment', 'threshold', threshold);
    requireTexts('segment: what is asked for', asked);
    const { input, height, width } = seen(image);
    const { clip } = this.model;
    const { dtype, device } = clip.logitScale;
    const vectorOf = (one: string | { readonly image: ImageInput }): Tensor => {
      if (typeof one !== 'string') return clip.imageVectors(pixels([one.image], this.processor, device).cast(dtype));
      const { ids, mask } = textTokens(clip, this.tokenizer, [one]);
      return clip.textVectors(ids, mask);
    };
    let shares: number[][] = [];
    scope(() =>
      noGrad(() => {
        const [first, ...rest] = asked.map(vectorOf);
        const logits = this.model.forward(pixels([input], this.processor, device).cast(dtype), first.cat(rest, 0));
        const sized = logits
          .cast('f32')
          .unsqueeze(1)
          .interpolate({ size: [height, width], mode: 'bilinear' });
        shares = sized.sigmoid().reshape([asked.length, -1]).toArray() as number[][];
      }),
    );
    return shares.map((row) => ({
      shares: Float32Array.from(row),
      mask: Uint8Array.from(row, (v) => (v > threshold ? 255 : 0)),
    }));
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
