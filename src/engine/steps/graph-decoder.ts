// Decoding on a GPU: one token's work captured once as a graph and replayed; the host reads one number a token, one
// step behind.
import { ArgumentError } from '../../base/errors.js';
import type { Slot } from '../../backends/gpu/decode.js';
import { keepsKeys } from '../../models/decoder/features.js';
import { ropeRegime } from '../../models/decoder/rope.js';
import type { CausalLM, DecoderCache } from '../../models/index.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Decoder } from '../decoder.js';
import type { Sampler } from '../sampler.js';
import { type Choice, recordable, TokenStep } from './token-step.js';

interface Ahead {
  readonly position: number;
  readonly choice: string;
  readonly slot: Slot;
}
/** Random numbers brought to the device at a time. */
const UNIFORMS = 256;

/**
 * Weights of a model whose prompts need no library of products: the built-in one reads a prompt in a tenth of a second
 * less for it, once, and is a tenth of a millisecond slower with every later one.
 */
const FEW_WEIGHTS = 2 ** 22;

/** A decoder for GPUs: a step is recorded once and launched again for every token. */
export class GraphDecoder implements Decoder {
  readonly #model: CausalLM;
  readonly #cache: DecoderCache;
  readonly #capacity: number;
  readonly #step: TokenStep;
  readonly #small: boolean;
  readonly #slots: readonly Slot[];
  #turn = 0;
  /** Which random numbers lie on the device, and up to which position. */
  #uniforms = { key: '', until: 0 };
  /** Tokens whose keys are in the cache and known to the host. */
  #length = 0;
  /** The tokens themselves, to run them anew past a rope's border. */
  #history: number[] = [];
  /** A step that runs before its turn, on the token chosen last. */
  #ahead: Ahead | undefined;
  #chosen = -1;

  /** Whether a model can be decoded so. */
  static serves(model: CausalLM): boolean {
    return recordable(model);
  }
  constructor(model: CausalLM, asked = Math.min(model.config.maxPositions, 8192)) {
    const capacity = Math.min(asked, model.config.mostKeys ?? Infinity);
    this.#model = model;
    this.#capacity = capacity;
    this.#cache = model.newCache(capacity, true);
    this.#step = new TokenStep(model, this.#cache, capacity, () => this.#tableLength());
    this.#small = model.weightCount() <= FEW_WEIGHTS;
    this.#slots = [this.#step.steps.slot(), this.#step.steps.slot()];
  }

  /** Tokens run so far. */
  get length(): number {
    return this.#length;
  }

  /** Tables cover the whole cache; where a rope has a border, those of the side that the next token is on. */
  #tableLength(): number {
    const border = this.#border();
    return border !== undefined && this.#length < border ? Math.min(border, this.#capacity) : this.#capacity;
  }
  /** The length past which keys are turned by another table. */
  #border(): number | undefined {
    const ropes = this.#model.config.layers.map(({ mixer: m }) => (keepsKeys(m) ? m.rope : undefined));
    return ropes.find((r) => r?.type === 'longrope' && ropeRegime(r, this.#capacity) === 1)?.original;
  }
  #check(count: number): void {
    if (this.#length + count > this.#capacity)
      throw new ArgumentError(`decoder: ${this.#length + count} tokens do not fit its cache of ${this.#capacity}`);
  }

  /** A prompt, or a token that crosses a rope's border, where everything runs anew. */
  #atOnce(tokens: readonly number[]): boolean {
    return tokens.length > 1 || this.#length === 0 || this.#length === this.#border();
  }
  /** The next step's kernels are compiled while those of the prompt are waited for. */
  #foresee(choice: Choice): void {
    const step = this.#step;
    if (!step.few || this.#length >= this.#capacity) return;
    step.steps.foresee(() => {
      step.place(this.#history[this.#length - 1], this.#length - 1);
      step.run(choice);
    });
  }
  /** By the model alone, so that a prompt has the same numbers whatever else ran. */
  #withItsProducts<T>(f: () => T): T {
    const { gpu } = this.#model.device.backend;
    return gpu && this.#step.few && this.#small ? gpu.withOwnProducts(f) : f();
  }
  /** Several tokens at once, op by op; answers the last one's logits. */
  #prefill(added: readonly number[]): Tensor {
    this.#check(added.length);
    const border = this.#border() ?? Infinity;
    const crossed = this.#length > 0 && this.#length <= border && this.#length + added.length > border;
    const tokens = crossed ? [...this.#history.slice(0, this.#length), ...added] : added;
    if (crossed) {
      this.#cache.reset();
      this.#length = 0;
    } else this.#cache.truncate(this.#length);
    const logits = this.#withItsProducts(() =>
      scope(() =>
        noGrad(() => {
          const ids = tensor(Int32Array.from(tokens), { shape: [1, tokens.length], device: this.#model.device });
          return this.#model.forward(ids, this.#cache, { last: true }).reshape([-1]).cast('f32');
        }),
      ),
    );
    this.#step.writeTokens(this.#length, tokens);
    this.#ahead = undefined;
    this.#history = [...this.#history.slice(0, this.#length), ...tokens];
    this.#length += tokens.length;
    return logits;
  }

  /** Runs tokens; answers the logits after the last one. */
  async run(tokens: readonly number[]): Promise<Float32Array> {
    if (this.#atOnce(tokens)) return this.#runPrompt(tokens, 'logits');
    this.#check(1);
    this.#ahead = undefined;
    this.#step.place(tokens[0], this.#length);
    this.#step.graph('logits').launch();
    this.#history[this.#length] = tokens[0];
    this.#length++;
    this.#follow();
    return Float32Array.from((await this.#step.logits.data()) as Float32Array);
  }

  async #runPrompt(tokens: readonly number[], next: Choice): Promise<Float32Array> {
    const logits = this.#prefill(tokens);
    this.#foresee(next);
    const data = (await logits.data()) as Float32Array;
    logits.dispose();
    return data;
  }

  /** Runs tokens; answers the token with the largest logit, found on the device. */
  async runGreedy(tokens: readonly number[]): Promise<number> {
    if (this.#atOnce(tokens)) {
      const best = scope(() => this.#prefill(tokens).argmax(0));
      this.#foresee('greedy');
      const token = Number((await best.data())[0]);
      best.dispose();
      return token;
    }
    return this.#choose(tokens[0], 'greedy');
  }

  /** Runs tokens; answers the token that the sampler draws. */
  async runSampled(tokens: readonly number[], sampler: Sampler, history: readonly number[]): Promise<number> {
    const { temperature, topK, topP, minP, repetitionPenalty, repetitionWindow } = sampler.options;
    const penalty = { repetitionPenalty, repetitionWindow };
    const choice = sampler.greedy
      ? { temperature: 1, topK: 1, topP: 1, minP: 0, ...penalty }
      : { temperature, topK, topP, minP, ...penalty };
    if (this.#atOnce(tokens)) return sampler.sample(await this.#runPrompt(tokens, choice), history);
    const position = this.#length;
    const token = await this.#choose(tokens[0], choice, (at) => this.#bringUniforms(sampler, position, at));
    if (token >= 0) {
      if (!sampler.greedy) sampler.drawn++;
      return token;
    }
    // Too many tokens can be drawn for the device's list: the step again, and the draw here.
    this.#length = position;
    this.#follow();
    return sampler.sample(await this.run(tokens), history);
  }
  /** Random numbers of the step at `at` and those that follow; the next draw is that of `position`. */
  #bringUniforms(sampler: Sampler, position: number, at: number): void {
    const key = `${sampler.options.seed} ${sampler.drawn - position}`;
    if (key === this.#uniforms.key && at < this.#uniforms.until) return;
    const until = Math.min(at + UNIFORMS, this.#capacity);
    const numbers = Float64Array.from({ length: until - at }, (_, i) =>
      sampler.uniform(sampler.drawn + at - position + i),
    );
    this.#step.writeUniforms(at, numbers);
    this.#uniforms = { key, until };
  }

  /**
   * One step and the choice after it. A step that ran before its turn counts only if it ran this token and chose in
   * this way.
   */
  async #choose(token: number, choice: Choice, before: (position: number) => void = () => {}): Promise<number> {
    this.#check(1);
    const position = this.#length;
    const key = JSON.stringify(choice);
    if (this.#ahead?.position !== position || this.#ahead.choice !== key || this.#chosen !== token) {
      this.#step.place(token, position);
      before(position);
      this.#launch(choice, key, position);
    }
    const { slot } = this.#ahead as Ahead;
    // The next step needs nothing from the host: it starts while this one's result travels.
    this.#ahead = undefined;
    if (position + 1 < this.#capacity && position + 1 !== this.#border()) {
      before(position + 1);
      this.#launch(choice, key, position + 1);
    }
    this.#chosen = await this.#step.steps.arrived(slot);
    this.#history[position] = token;
    this.#length = position + 1;
    this.#follow();
    return this.#chosen;
  }
  #launch(choice: Choice, key: string, position: number): void {
    this.#step.graph(choice).launch();
    this.#turn ^= 1;
    const slot = this.#slots[this.#turn];
    this.#step.steps.fetch(this.#step.tokens, position + 1, slot);
    this.#ahead = { position, choice: key, slot };
  }
  /** The caches count what the graph appended. */
  #follow(): void {
    this.#cache.follow(this.#length);
  }

  /** Forgets all tokens; recordings stay. */
  reset(): void {
    this.#step.steps.finish();
    this.#ahead = undefined;
    this.#chosen = -1;
    this.#length = 0;
    this.#history = [];
    this.#cache.reset();
  }
  /** Gives recordings and memory back. */
  dispose(): void {
    const { steps } = this.#step;
    steps.finish();
    this.#step.dispose();
    this.#cache.dispose();
    for (const s of this.#slots) steps.freeSlot(s);
    steps.dispose();
  }
}
