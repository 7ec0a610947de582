// Guesses by a smaller model of the same vocabulary: it writes a few tokens greedily, the large model checks them all
// in one step. What is written is what the large model alone would write.
import { ArgumentError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';
import { LateForgetting } from './late-forgetting.js';
import { PagedDecoder } from './paged-decoder.js';
import type { Sequence } from './sequence.js';

/** Tokens guessed at a time. */
const GUESSES = 4;

export class DraftModel {
  readonly #model: CausalLM;
  readonly #decoders = new Map<Sequence, PagedDecoder>();
  readonly #forgetting = new LateForgetting((sequence) => {
    this.#decoders.get(sequence)?.dispose();
    this.#decoders.delete(sequence);
  });
  constructor(model: CausalLM, vocabSize: number) {
    if (model.config.vocabSize !== vocabSize)
      throw new ArgumentError(
        `engine: the draft model has ${model.config.vocabSize} tokens, the model ${vocabSize}; they must have one ` +
          'vocabulary',
      );
    if (!PagedDecoder.reads(model))
      throw new ArgumentError(
        `engine: a draft model of family ${model.config.family} keeps keys that pages cannot hold`,
      );
    this.#model = model;
  }
  guess(sequence: Sequence, most: number): Promise<number[]> {
    return this.#forgetting.during(() => this.#guess(sequence, most));
  }
  async #guess(sequence: Sequence, most: number): Promise<number[]> {
    const { tokens } = sequence;
    const count = Math.min(GUESSES, most, this.#model.config.maxPositions - tokens.length);
    if (count <= 0) return [];
    let decoder = this.#decoders.get(sequence);
    if (!decoder) this.#decoders.set(sequence, (decoder = new PagedDecoder(this.#model)));
    // Wrong guesses of the last step go; at least one token is computed for the first new guess.
    decoder.rewind(Math.min(decoder.agreement(tokens), tokens.length - 1));
    const guesses = [await decoder.runGreedy(tokens.slice(decoder.length))];
    while (guesses.length < count && sequence.state === 'running')
      guesses.push(await decoder.runGreedy(guesses.slice(-1)));
    return guesses;
  }
  forget(sequence: Sequence): void {
    this.#forgetting.forget(sequence);
  }
  dispose(): void {
    for (const sequence of [...this.#decoders.keys()]) this.forget(sequence);
  }
}
