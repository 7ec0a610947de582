// Pictures to text: an encoder-decoder that sees, with its tokenizer and the processor of its pictures.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { keep, scope, wholeOrNothing } from '../../tensor/scope.js';
import { loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import type { Json } from '../files/config.js';
import { readGeneration } from '../files/generation-config.js';
import { loadModel } from '../load.js';
import { answerRules } from '../seq2seq/answer-rules.js';
import type { BeamOptions } from '../seq2seq/beams.js';
import { type ImageInput, pixels, processorOf } from '../vision/image-models.js';
import type { PictureProcessor } from '../vision/images.js';
import type { PictureWriter } from './picture-writer.js';
import { type TaggedFields, taggedFields } from './tagged-fields.js';

/** Options of `ImageToText.generate`. */
export interface ImageToTextOptions extends Partial<BeamOptions> {
  /** What the text begins with, which is not part of the answer: Donut is told its task so. */
  readonly prompt?: string;
  /** The longest answer; default 128 tokens, or what the model has positions for. */
  readonly maxTokens?: number;
  /** Keep special tokens in the text, the end among them; default false. */
  readonly special?: boolean;
}
/** What an answer begins and ends with, and the rules between. */
interface Writing {
  readonly start: number;
  readonly end: readonly number[];
  readonly rules: ReturnType<typeof answerRules>;
  /** A prompt stands in the start token's place (Donut's). */
  readonly replaces: boolean;
}
/** By generation_config.json; where there is none by config.json, and what it leaves out by that of the decoder. */
function readWriting(dir: string): Writing {
  const said = readGeneration(dir);
  const { decoder = {}, encoder = {} } = said as { readonly decoder?: Json; readonly encoder?: Json };
  const unsaid = existsSync(join(dir, 'generation_config.json')) ? {} : decoder;
  const g = { ...unsaid, ...Object.fromEntries(Object.entries(said).filter(([, value]) => value !== null)) } as Json;
  const start = g.decoder_start_token_id ?? g.bos_token_id;
  if (typeof start !== 'number') throw new UnsupportedError(`${dir}: no decoder_start_token_id is given`);
  const end = [g.eos_token_id].flat().filter((id): id is number => typeof id === 'number');
  return { start, end, rules: answerRules(g, dir), replaces: encoder.model_type === 'donut-swin' };
}

/**
 * Pictures to text (TrOCR, Donut, captions of ViT and GPT-2). What generation_config.json says about tokens and beams is
 * followed; without beams an answer takes the likeliest token each time.
 */
export class ImageToText {
  /** The network itself. */
  readonly model: PictureWriter;
  /** How tokens become text. */
  readonly tokenizer: Tokenizer;
  /** How pictures become numbers; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  readonly #writing: Writing;
  constructor(model: PictureWriter, tokenizer: Tokenizer, processor: PictureProcessor | undefined, writing: Writing) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.processor = processor;
    this.#writing = writing;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<ImageToText> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel<PictureWriter>(dir, { ...options, kind: 'image-to-text' });
      return new ImageToText(model, loadTokenizer(dir), processorOf(dir), readWriting(dir));
    });
  }
  /** The text of each picture; beams are those that the model's files ask for, or of one's own. */
  async generate(images: readonly ImageInput[], options: ImageToTextOptions = {}): Promise<string[]> {
    const { prompt, maxTokens, special = false, ...beams } = options;
    const { model, tokenizer } = this;
    const { end, rules } = this.#writing;
    const start = this.#start(prompt);
    const free = model.writer.room - start.length;
    if (free < 1 || (maxTokens ?? 1) > free)
      throw new ArgumentError(
        `image-to-text: ${start.length} tokens of the beginning leave ${Math.max(free, 0)} of the ` +
          `${model.writer.room} that the model has positions for`,
      );
    const { dtype, device } = model.parameters()[0];
    const seen = keep(scope(() => noGrad(() => pixels(images, this.processor, device).cast(dtype))));
    try {
      const about = { start, end, maxTokens: maxTokens ?? Math.min(128, free) };
      const rows = model.answer(seen, { ...about, ...rules(about), ...beams });
      return rows.map((row) => {
        const answer = row.slice(start.length);
        // Rows that ended before others go on with their end token.
        const at = answer.findIndex((id) => end.includes(id));
        return tokenizer.decode(at < 0 ? answer : answer.slice(0, at + 1), { special }).trim();
      });
    } finally {
      seen.dispose();
    }
  }
  /**
   * What a model that writes with tags says of each picture (Donut), by the tags' names; several where `<sep/>` parts
   * them. A text without tags is { text_sequence }.
   */
  async fields(
    images: readonly ImageInput[],
    options: Omit<ImageToTextOptions, 'special'> = {},
  ): Promise<(TaggedFields | readonly TaggedFields[])[]> {
    const texts = await this.generate(images, { ...options, special: true });
    const { tokenizer } = this;
    const pad = tokenizer.role('pad');
    const marks = [...this.#writing.end.map((id) => tokenizer.token(id)), pad].filter((mark) => mark !== undefined);
    const bare = (text: string): string => marks.reduce((t, mark) => t.replaceAll(mark, ''), text).trim();
    return texts.map((text) => taggedFields(bare(text), (token) => tokenizer.id(token) !== undefined));
  }
  #start(prompt: string | undefined): number[] {
    const { start, replaces } = this.#writing;
    const told = prompt === undefined ? [] : this.tokenizer.encode(prompt, { special: false });
    const whole = told.length > 0 && (replaces || told[0] === start);
    return whole ? told : [start, ...told];
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
