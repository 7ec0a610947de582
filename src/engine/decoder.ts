// How tokens run through a model: a prompt at once, then one at a time over a cache. Any device; GPUs may bring a
// faster one.
import type { CausalLM, DecoderCache } from '../models/index.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { offThread } from './off-thread.js';
import type { Sampler } from './sampler.js';

/** Runs one sequence through a model: a prompt at once, then a token at a time. */
export interface Decoder {
  /** Tokens run so far. */
  readonly length: number;
  /** Runs tokens; answers the logits after the last one. */
  run(tokens: readonly number[]): Promise<Float32Array>;
  /** The same, answering only the token with the largest logit. */
  runGreedy(tokens: readonly number[]): Promise<number>;
  /** The same, answering the token that the sampler draws; `history` is all tokens so far, these included. */
  runSampled(tokens: readonly number[], sampler: Sampler, history: readonly number[]): Promise<number>;
  /** Forgets all tokens; what was made for speed stays. */
  reset(): void;
  /** Gives its memory back. */
  dispose(): void;
}

/** Op by op, with a growing cache. */
export class PlainDecoder implements Decoder {
  readonly #model: CausalLM;
  readonly #cache: DecoderCache;
  constructor(model: CausalLM) {
    this.#model = model;
    this.#cache = model.newCache();
  }
  /** Tokens run so far. */
  get length(): number {
    return this.#cache.length;
  }
  #logits(tokens: readonly number[]): Tensor {
    return noGrad(() => {
      const ids = tensor(Int32Array.from(tokens), { shape: [1, tokens.length], device: this.#model.device });
      return this.#model.forward(ids, this.#cache, { last: true }).reshape([-1]).cast('f32');
    });
  }
  /** The event loop goes on while a device that is this machine's own CPU computes. */
  #off(f: () => Tensor): Promise<Tensor> {
    return offThread(this.#model, () => scope(f));
  }
  /** Runs tokens; answers the logits after the last one. */
  async run(tokens: readonly number[]): Promise<Float32Array> {
    const logits = await this.#off(() => this.#logits(tokens));
    const data = (await logits.data()) as Float32Array;
    logits.dispose();
    return data;
  }
  /** Runs tokens; answers the token with the largest logit. */
  async runGreedy(tokens: readonly number[]): Promise<number> {
    const best = await this.#off(() => this.#logits(tokens).argmax(0));
    const data = await best.data();
    best.dispose();
    return Number(data[0]);
  }
  /** Runs tokens; answers the token that the sampler draws. */
  async runSampled(tokens: readonly number[], sampler: Sampler, history: readonly number[]): Promise<number> {
    return sampler.sample(await this.run(tokens), history);
  }
  /** Forgets all tokens. */
  reset(): void {
    this.#cache.reset();
  }
  /** Gives its memory back. */
  dispose(): void {
    this.#cache.dispose();
  }
}
