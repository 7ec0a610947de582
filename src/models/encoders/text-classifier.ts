// Texts to classes, and pairs of texts to how well they fit: encoders with a head for a text as a whole.
import { ArgumentError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { scope, wholeOrNothing } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type Encoded, loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import type { EncoderInput, TextEncoder } from './encoder.js';
import type { Classified } from '../vision/image-models.js';
import { loadModel } from '../load.js';

/** A text, or two that are read as one: a question and what may answer it. */
export type TextOrPair = string | readonly [first: string, second: string];

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
/** Shares that sum to 1. */
export const softmax = (row: readonly number[]): number[] => {
  const most = Math.max(...row);
  const powers = row.map((x) => Math.exp(x - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / sum);
};

/** Texts and pairs as tokens. Texts that are too long are cut; of a pair the longer one gives way. */
export function parted(encoder: TextEncoder, tokenizer: Tokenizer, texts: readonly TextOrPair[]): Encoded[] {
  const maxLength = Math.min(tokenizer.maxLength ?? Infinity, encoder.maxTokens);
  return texts.map((t) =>
    typeof t === 'string'
      ? tokenizer.encodeParts(t, { maxLength })
      : tokenizer.encodeParts(t[0], { pair: t[1], maxLength }),
  );
}
/** Rows of tokens as an encoder reads them, padded behind. */
export function encodedBatch(encoder: TextEncoder, tokenizer: Tokenizer, rows: readonly Encoded[]): EncoderInput {
  const { device } = encoder.parameters()[0];
  const time = Math.max(1, ...rows.map((r) => r.ids.length));
  const filled = (of: (r: Encoded) => readonly number[], rest: number): Tensor => {
    const all = rows.flatMap((r) => [...of(r), ...Array<number>(time - r.ids.length).fill(rest)]);
    return tensor(Int32Array.from(all), { shape: [rows.length, time], device });
  };
  return {
    ids: filled((r) => r.ids, tokenizer.roleId('pad') ?? 0),
    mask: filled((r) => r.ids.map(() => 1), 0),
    typeIds: filled((r) => r.typeIds, 0),
  };
}

/**
 * Texts to classes (sentiment, topics) and pairs to scores (rerankers): BERT and its kin with a classifier, and
 * decoders whose head reads the last token (reward models).
 */
export class TextClassifier {
  /** The network itself. */
  readonly encoder: TextEncoder;
  /** How texts become tokens. */
  readonly tokenizer: Tokenizer;
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  constructor(encoder: TextEncoder, tokenizer: Tokenizer) {
    if (!encoder.classifier) throw new ArgumentError('classifier: the model has no head for sequence classification');
    this.encoder = encoder;
    this.tokenizer = tokenizer;
    this.labels = encoder.classifier.labels;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<TextClassifier> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel<TextEncoder>(dir, { ...options, kind: 'encoder' });
      return new TextClassifier(model, loadTokenizer(dir));
    });
  }
  /** What the head answers, a row a text. Texts that are too long are cut; of a pair the longer one gives way. */
  async logits(
    texts: readonly TextOrPair[],
    options: {
      /** Texts at once; default 32. */
      readonly batchSize?: number;
    } = {},
  ): Promise<number[][]> {
    const { batchSize = 32 } = options;
    const rows = parted(this.encoder, this.tokenizer, texts);
    const out: number[][] = [];
    for (let at = 0; at < rows.length; at += batchSize) {
      const batch = rows.slice(at, at + batchSize);
      out.push(...scope(() => noGrad(() => this.#run(batch).cast('f32').toArray() as number[][])));
    }
    return out;
  }
  #run(rows: readonly Encoded[]): Tensor {
    return this.encoder.forward(encodedBatch(this.encoder, this.tokenizer, rows)).logits as Tensor;
  }
  /**
   * The likeliest classes of each text, the best first: shares that sum to 1, or one by one where a text may have
   * several.
   */
  async classify(texts: readonly TextOrPair[], top = 5): Promise<Classified[][]> {
    const alone = this.encoder.classifier?.several || this.labels.length === 1;
    return (await this.logits(texts)).map((row) =>
      (alone ? row.map(sigmoid) : softmax(row))
        .map((score, i) => ({ label: this.labels[i], score }))
        .sort((a, b) => b.score - a.score)
        .slice(0, top),
    );
  }
  /**
   * How well the two texts of each pair fit, by a model of one class (a reranker): between 0 and 1, or the logit itself
   * where the model's files say so.
   */
  async score(pairs: readonly (readonly [first: string, second: string])[]): Promise<number[]> {
    if (this.labels.length !== 1)
      throw new ArgumentError(`score: the model has ${this.labels.length} classes, not one; use classify()`);
    const plain = this.encoder.classifier?.plainScores;
    return (await this.logits(pairs)).map(([x]) => (plain ? x : sigmoid(x)));
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.encoder.dispose();
  }
}
