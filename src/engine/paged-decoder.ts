// One answer at a time by recorded steps over pages: on the CPU, where a step then costs no more than its products and
// runs on another thread.
import { ArgumentError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';
import type { Decoder } from './decoder.js';
import { pageable, type Rows } from './executor.js';
import { PagedExecutor } from './paged-executor.js';
import type { Sampler } from './sampler.js';
import { Sequence } from './sequence.js';

const PAGE = 16;
/** Room at first; it doubles, and then everything is computed once more. */
const FIRST = 512;

export class PagedDecoder implements Decoder {
  readonly #model: CausalLM;
  #executor: PagedExecutor;
  #capacity: number;
  #tokens: number[] = [];

  /** Where steps can be recorded and run elsewhere. */
  static serves(model: CausalLM): boolean {
    const { backend } = model.device;
    return !!backend.elsewhere && !!backend.capture && PagedDecoder.reads(model);
  }
  /** Whether every layer's keys may stand in pages and be taken back. */
  static reads(model: CausalLM): boolean {
    const plain = model.config.layers.every(({ mixer: m }) => m.kind === 'attention');
    return plain && !model.shard && !model.stage && pageable(model, model.config.maxPositions);
  }
  constructor(model: CausalLM) {
    this.#model = model;
    this.#capacity = Math.min(FIRST, model.config.maxPositions);
    this.#executor = this.#make();
  }
  #make(): PagedExecutor {
    const pages = Math.ceil(this.#capacity / PAGE);
    return new PagedExecutor(this.#model, {
      pages,
      pageTokens: PAGE,
      contextTokens: this.#capacity,
      maxRecorded: 1,
    });
  }
  get length(): number {
    return this.#tokens.length;
  }
  async #rows(added: readonly number[], bestOnly: boolean): Promise<Rows> {
    let [start, tokens] = [this.#tokens.length, added];
    const { maxPositions } = this.#model.config;
    if (start + added.length > maxPositions)
      throw new ArgumentError(`decoder: ${start + added.length} tokens; the model has ${maxPositions} positions`);
    if (start + added.length > this.#capacity) {
      while (this.#capacity < start + added.length) this.#capacity = Math.min(2 * this.#capacity, maxPositions);
      this.#executor.dispose();
      this.#executor = this.#make();
      [start, tokens] = [0, [...this.#tokens, ...added]];
    }
    if (start === 0) this.#executor.changed();
    // Pages in their order: there is one sequence.
    const sequence = new Sequence({ id: 0, prompt: [], maxLength: this.#capacity, priority: 0, pageTokens: PAGE });
    sequence.pages = Array.from({ length: Math.ceil((start + tokens.length) / PAGE) }, (_, i) => i);
    const rows = await this.#executor.run([{ sequence, start, tokens, rows: 1 }], bestOnly);
    this.#tokens.push(...added);
    return rows;
  }
  async run(tokens: readonly number[]): Promise<Float32Array> {
    return (await this.#rows(tokens, false)).logits as Float32Array;
  }
  async runGreedy(tokens: readonly number[]): Promise<number> {
    return ((await this.#rows(tokens, true)).best as Int32Array)[0];
  }
  async runSampled(tokens: readonly number[], sampler: Sampler, history: readonly number[]): Promise<number> {
    return sampler.sample(await this.run(tokens), history);
  }
  /** How many of its tokens are the first of these. */
  agreement(tokens: readonly number[]): number {
    let n = 0;
    while (n < this.#tokens.length && n < tokens.length && this.#tokens[n] === tokens[n]) n++;
    return n;
  }
  /** Forgets tokens from `length` on. */
  rewind(length: number): void {
    this.#tokens.length = Math.min(length, this.#tokens.length);
  }
  reset(): void {
    this.#tokens = [];
  }
  dispose(): void {
    this.#executor.dispose();
  }
}
