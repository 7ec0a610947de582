// Encoders that answer for every token of a text: the word behind a mask, names and other classes of tokens, and the
// part of a passage that answers a question.
import { ArgumentError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { scope, wholeOrNothing } from '../../tensor/scope.js';
import { type Encoded, loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import type { TextEncoder } from './encoder.js';
import { loadModel } from '../load.js';
import { encodedBatch, parted, softmax, type TextOrPair } from './text-classifier.js';
import type { TokenTask } from './token-head.js';

/** What the head of a text's tokens answers: a row a token, special ones included. */
export interface TokenLogits {
  /** The text's tokens. */
  readonly ids: readonly number[];
  /** A row of numbers for each of them. */
  readonly logits: readonly (readonly number[])[];
}
/** A word that may stand behind a mask. */
export interface FilledMask {
  /** Its number in the vocabulary. */
  readonly id: number;
  /** Its text. */
  readonly token: string;
  /** How likely it is, among all words. */
  readonly score: number;
}
/** The class of a token. */
export interface TokenClass {
  /** The token's number in the vocabulary. */
  readonly id: number;
  /** Its text. */
  readonly token: string;
  /** The likeliest class. */
  readonly label: string;
  /** How likely that is. */
  readonly score: number;
}
/** The part of a passage that answers a question. */
export interface Answer {
  /** The answer, as the tokenizer writes it. */
  readonly text: string;
  /** The numbers of its first and its last token, among all tokens of question and passage. */
  readonly span: readonly [first: number, last: number];
  /** How likely it is, among all pairs of a beginning and an end. */
  readonly score: number;
}

const likeliest = (row: readonly number[]): number => row.indexOf(Math.max(...row));

/** What the three have in common: an encoder with a head for one task, and its tokenizer. */
abstract class TokenModel {
  /** The network itself. */
  readonly encoder: TextEncoder;
  /** How texts become tokens. */
  readonly tokenizer: Tokenizer;
  constructor(encoder: TextEncoder, tokenizer: Tokenizer, task: TokenTask) {
    if (encoder.tokens?.task !== task)
      throw new ArgumentError(
        `model: the files have no head for ${task}${encoder.tokens ? `, but one for ${encoder.tokens.task}` : ''}`,
      );
    this.encoder = encoder;
    this.tokenizer = tokenizer;
  }
  /** Rows of numbers for the tokens of each text or pair; texts that are too long are cut. */
  async logits(
    texts: readonly TextOrPair[],
    options: {
      /** Texts at once; default 8. */
      readonly batchSize?: number;
    } = {},
  ): Promise<TokenLogits[]> {
    const { batchSize = 8 } = options;
    const rows = parted(this.encoder, this.tokenizer, texts);
    const out: TokenLogits[] = [];
    for (let at = 0; at < rows.length; at += batchSize) {
      const batch = rows.slice(at, at + batchSize);
      const found = this.#run(batch);
      batch.forEach(({ ids }, i) => out.push({ ids, logits: found[i].slice(0, ids.length) }));
    }
    return out;
  }
  #run(batch: readonly Encoded[]): number[][][] {
    return scope(() =>
      noGrad(() => {
        const input = encodedBatch(this.encoder, this.tokenizer, batch);
        return this.encoder.tokenLogits(input).cast('f32').toArray() as number[][][];
      }),
    );
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.encoder.dispose();
  }
}

async function opened<T>(
  name: string,
  options: BuilderOptions & HubOptions,
  make: (encoder: TextEncoder, tokenizer: Tokenizer) => T,
): Promise<T> {
  const dir = await modelPath(name, options);
  return wholeOrNothing(() => {
    const { model } = loadModel<TextEncoder>(dir, { ...options, kind: 'encoder' });
    return make(model, loadTokenizer(dir));
  });
}

/** Words behind masks: BERT and its kin as they were trained first. */
export class MaskedLanguageModel extends TokenModel {
  constructor(encoder: TextEncoder, tokenizer: Tokenizer) {
    super(encoder, tokenizer, 'words');
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<MaskedLanguageModel> {
    return opened(name, options, (encoder, tokenizer) => new MaskedLanguageModel(encoder, tokenizer));
  }
  /** The likeliest words for every mask of a text, masks in their order. */
  async fill(text: string, top = 5): Promise<FilledMask[][]> {
    const mask = this.tokenizer.roleId('mask');
    if (mask === undefined) throw new ArgumentError('fill: the tokenizer has no token that stands for a mask');
    const [{ ids, logits }] = await this.logits([text]);
    if (!ids.includes(mask))
      throw new ArgumentError(`fill: the text has no ${JSON.stringify(this.tokenizer.token(mask))}`);
    return ids.flatMap((id, i) => {
      if (id !== mask) return [];
      const scores = softmax(logits[i]).map((score, word) => ({ score, id: word }));
      const best = scores.sort((a, b) => b.score - a.score).slice(0, top);
      return [best.map((b) => ({ ...b, token: this.tokenizer.decode([b.id]).trim() }))];
    });
  }
}

/** Classes of tokens: names of people and places, parts of speech. */
export class TokenClassifier extends TokenModel {
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  constructor(encoder: TextEncoder, tokenizer: Tokenizer) {
    super(encoder, tokenizer, 'classes');
    this.labels = encoder.tokens?.labels ?? [];
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<TokenClassifier> {
    return opened(name, options, (encoder, tokenizer) => new TokenClassifier(encoder, tokenizer));
  }
  /** The class of every token of each text, without special tokens. */
  async classify(texts: readonly string[]): Promise<TokenClass[][]> {
    return (await this.logits(texts)).map(({ ids, logits }) =>
      ids.flatMap((id, i) => {
        if (this.tokenizer.isSpecial(id)) return [];
        const shares = softmax(logits[i]);
        const best = likeliest(shares);
        return [{ id, token: this.tokenizer.token(id) ?? '', label: this.labels[best], score: shares[best] }];
      }),
    );
  }
}

/** Questions about a passage, answered by a part of it. */
export class QuestionAnswerer extends TokenModel {
  constructor(encoder: TextEncoder, tokenizer: Tokenizer) {
    super(encoder, tokenizer, 'spans');
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<QuestionAnswerer> {
    return opened(name, options, (encoder, tokenizer) => new QuestionAnswerer(encoder, tokenizer));
  }
  /** The likeliest answer to a question in a passage, of at most so many tokens. */
  async answer(question: string, passage: string, longest = 15): Promise<Answer> {
    const [{ ids, logits }] = await this.logits([[question, passage]]);
    // The passage lies behind the question and the special tokens around that.
    const own = this.tokenizer.encode(passage, { special: false }).length;
    const tail = ids.length - 1 - [...ids].reverse().findIndex((id) => !this.tokenizer.isSpecial(id));
    const inside = (i: number): boolean => i <= tail && i > tail - own;
    const side = (k: number): number[] => softmax(logits.map((row, i) => (inside(i) ? row[k] : -Infinity)));
    const [begins, ends] = [side(0), side(1)];
    let [first, last, score] = [Math.max(0, tail - own + 1), tail, -1];
    for (let i = 0; i < ids.length; i++)
      for (let j = i; j < Math.min(ids.length, i + longest); j++)
        if (begins[i] * ends[j] > score) [first, last, score] = [i, j, begins[i] * ends[j]];
    return { text: this.tokenizer.decode(ids.slice(first, last + 1)).trim(), span: [first, last], score };
  }
}
