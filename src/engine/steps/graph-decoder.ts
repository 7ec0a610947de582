// Decoding on a GPU: one token's work captured once as a graph and replayed; the host reads one number a token, one
// step behind.
import { ArgumentError, IndexError } from '../../base/errors.js';
import { decodes, gpuOf, SAMPLE } from '../../backends/generation.js';
import type { DecodeSteps, Slot } from '../../backends/gpu/decode.js';
import type { Draw, DrawBuffers } from '../../backends/gpu/decode-sample.js';
import type { Replay } from '../../backends/gpu/gpu.js';
import { hasLooseAdapters } from '../../nn/lora.js';
import { bytesOf, type DType } from '../../base/dtype.js';
import type { CausalLM, DecoderCache } from '../../models/index.js';
import { type Attention, keepsKeys, WIDEST_HEAD } from '../../models/decoder/features.js';
import { ropeRegime } from '../../models/decoder/rope.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor, zeros } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import { floats, QTensor } from '../../tensor/qtensor.js';
import { Tensor } from '../../tensor/tensor.js';
import type { Decoder } from '../decoder.js';
import { FusedStep, type KeysAndValues } from './fused-step.js';
import { GraphStep } from './graph-step.js';
import type { Sampler } from '../sampler.js';

/** What every step needs. */
interface Buffers {
  readonly logits: Tensor;
  /** The largest logit. */
  readonly best: Tensor;
  /** token, position, length */
  readonly state: Tensor;
  /** All tokens by position, for the host to fetch and the penalty to look at. */
  readonly tokens: Tensor;
}
/** How the token after a step is chosen: 'logits' leaves it to the host. */
type Choice = 'logits' | 'greedy' | Draw;
interface Ahead {
  readonly position: number;
  readonly choice: string;
  readonly slot: Slot;
}
/** A draw that has no choice. */
const BEST: Draw = {
  ...{ temperature: 1, topK: 1, topP: 1, minP: 0 },
  ...{ repetitionPenalty: 1, repetitionWindow: 0 },
};
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
  readonly #steps: DecodeSteps;
  readonly #cache: DecoderCache;
  readonly #capacity: number;
  readonly #b: Buffers;
  /** Few launches a layer, where the model's features allow it; others are recorded op by op. */
  readonly #fused: FusedStep | undefined;
  readonly #small: boolean;
  readonly #places: Tensor;
  readonly #slots: readonly Slot[];
  #turn = 0;
  #drawing: DrawBuffers | undefined;
  /** Which random numbers lie on the device, and up to which position. */
  #uniforms = { key: '', until: 0 };
  /** Tokens whose keys are in the cache and known to the host. */
  #length = 0;
  /** The tokens themselves, to run them anew past a rope's border. */
  #history: number[] = [];
  readonly #graphs = new Map<string, Replay>();
  /** A step that runs before its turn, on the token chosen last. */
  #ahead: Ahead | undefined;
  #chosen = -1;

  /** Whether a model can be decoded so: a GPU, a dtype and layers that can be recorded. */
  static serves(model: CausalLM): boolean {
    const { hiddenSize, layers, logitFactor = 1, embedWidth } = model.config;
    const aligned = hiddenSize % (16 / bytesOf(model.dtype)) === 0;
    // A convolution's memory or a state moves on with every step, and a step may run before its turn; chunks and very
    // wide heads have no op that reads them by length.
    const read = (m: Attention): boolean => m.chunk === undefined && m.headDim <= WIDEST_HEAD;
    const recorded = layers.every(({ mixer: m }) => keepsKeys(m) && (m.kind !== 'attention' || read(m)));
    // A dynamic rope turns every new token by another table.
    const still = layers.every(
      ({ mixer: m }) => !keepsKeys(m) || m.rope?.type !== 'dynamic' || m.rope.alpha !== undefined,
    );
    // Ranks that talk through the host cannot do so inside a recorded step.
    if (model.talks) return false;
    // The last product reads what the norm answers.
    if (embedWidth !== undefined) return false;
    // Recorded steps read the weights themselves: adapters must be merged into them.
    if (hasLooseAdapters(model)) return false;
    return decodes(model.device.backend, model.dtype) && aligned && recorded && still && logitFactor > 0;
  }
  constructor(model: CausalLM, asked = Math.min(model.config.maxPositions, 8192)) {
    const capacity = Math.min(asked, model.config.mostKeys ?? Infinity);
    this.#model = model;
    this.#capacity = capacity;
    this.#steps = gpuOf(model.device.backend, 'decoding by graph').decodeSteps(model.dtype);
    this.#cache = model.newCache(capacity, true);
    const { vocabSize } = model.config;
    const room = (shape: number[], dtype = model.dtype): Tensor => keep(Tensor.empty(shape, dtype, model.device));
    const zero = (n: number): Tensor => keep(zeros([n], { dtype: 'i32', device: model.device }));
    this.#b = { logits: room([vocabSize]), best: zero(2), state: room([3], 'i32'), tokens: zero(capacity + 1) };
    this.#places = keep(
      tensor(
        Int32Array.from({ length: capacity }, (_, i) => i),
        { device: model.device },
      ),
    );
    if (FusedStep.serves(model)) this.#fused = new FusedStep(model, this.#steps, capacity);
    this.#small = model.weightCount() <= FEW_WEIGHTS;
    this.#slots = [this.#steps.slot(), this.#steps.slot()];
  }

  /** Tokens run so far. */
  get length(): number {
    return this.#length;
  }

  /** One token and the choice of the next. */
  #step(choice: Choice): void {
    const { best, state, tokens } = this.#b;
    const greedy = choice === 'greedy';
    // Recorded op by op, a product with blocks or over a part of the vocabulary remembers no largest result: the best
    // one is drawn then.
    const { head, shard } = this.#model;
    const marked = greedy && (this.#fused !== undefined || !(head.weight instanceof QTensor || shard));
    if (this.#fused)
      this.#fused.run({ ...this.#b, kept: (i) => this.#kept(i) }, marked ? best : undefined, (rope) =>
        this.#model.tables(rope, this.#tableLength()),
      );
    else this.#recordedStep(marked);
    if (marked) this.#steps.advance(best, state, tokens);
    else if (choice !== 'logits') this.#steps.draw(this.#drawBuffers(), greedy ? BEST : choice);
  }
  #kept(layer: number): KeysAndValues {
    const [keys, values] = this.#cache.kv(layer).buffers();
    return { keys, values };
  }
  /** Any other shape: the model's own ops, at the position that state holds. */
  #recordedStep(marked: boolean): void {
    const { logits, state, best } = this.#b;
    const m = this.#model;
    scope(() =>
      noGrad(() => {
        const step = new GraphStep(this.#steps, this.#cache, state, this.#places, this.#tableLength());
        const x = m.hidden(step.token, step);
        // The largest logit stays the largest under a cap and a positive factor.
        if (marked)
          this.#steps.product({
            x: m.headInput(x).contiguous(),
            weight: floats(m.head.weight, 'GraphDecoder'),
            out: logits,
            bias: m.head.bias,
            best,
          });
        else logits.assign(m.logits(x).reshape([-1]));
      }),
    );
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
  #drawBuffers(): DrawBuffers {
    if (this.#drawing) return this.#drawing;
    const { logits, tokens, state } = this.#b;
    const on = (size: number, dtype: DType): Tensor => keep(zeros([size], { dtype, device: this.#model.device }));
    const { parts, bins, most } = SAMPLE;
    return (this.#drawing = {
      logits,
      tokens,
      state,
      work: on(logits.size, 'f32'),
      tops: on(parts, 'f32'),
      masses: on(parts, 'f64'),
      bins: on(bins + 2, 'i32'),
      candidates: on(most, 'f64'),
      uniforms: on(this.#capacity, 'f64'),
    });
  }

  #write(to: Tensor, index: number, words: Int32Array | Float64Array): void {
    this.#model.device.backend.write(to.memory, index * words.BYTES_PER_ELEMENT, new Uint8Array(words.buffer));
  }
  /** Puts a token and its position where the graph reads them. */
  #place(token: number, position: number): void {
    const { vocabSize } = this.#model.config;
    if (!Number.isSafeInteger(token) || token < 0 || token >= vocabSize)
      throw new IndexError(`decoder: token ${token} is none of the model's ${vocabSize}`);
    this.#write(this.#b.state, 0, Int32Array.of(token, position, position + 1));
    this.#write(this.#b.tokens, position, Int32Array.of(token));
  }
  #graph(choice: Choice): Replay {
    const key = JSON.stringify([choice, this.#tableLength()]);
    const known = this.#graphs.get(key);
    if (known) return known;
    // Everything runs once before it is captured: compiling and loading must not happen inside.
    const { state, tokens } = this.#b;
    const before = [state, tokens].map((t) => t.bytesSync());
    this.#step(choice);
    [state, tokens].forEach((t, i) => this.#model.device.backend.write(t.memory, 0, before[i]));
    const graph = this.#steps.capture(() => this.#step(choice));
    this.#graphs.set(key, graph);
    return graph;
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
    if (!this.#fused || this.#length >= this.#capacity) return;
    this.#steps.foresee(() => {
      this.#place(this.#history[this.#length - 1], this.#length - 1);
      this.#step(choice);
    });
  }
  /** By the model alone, so that a prompt has the same numbers whatever else ran. */
  #withItsProducts<T>(f: () => T): T {
    const { gpu } = this.#model.device.backend;
    return gpu && this.#fused && this.#small ? gpu.withOwnProducts(f) : f();
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
    this.#write(this.#b.tokens, this.#length, Int32Array.from(tokens));
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
    this.#place(tokens[0], this.#length);
    this.#graph('logits').launch();
    this.#history[this.#length] = tokens[0];
    this.#length++;
    this.#follow();
    return Float32Array.from((await this.#b.logits.data()) as Float32Array);
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
    this.#drawBuffers();
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
    this.#write(this.#drawBuffers().uniforms as Tensor, at, numbers);
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
      this.#place(token, position);
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
    this.#chosen = await this.#steps.arrived(slot);
    this.#history[position] = token;
    this.#length = position + 1;
    this.#follow();
    return this.#chosen;
  }
  #launch(choice: Choice, key: string, position: number): void {
    this.#graph(choice).launch();
    this.#turn ^= 1;
    const slot = this.#slots[this.#turn];
    this.#steps.fetch(this.#b.tokens, position + 1, slot);
    this.#ahead = { position, choice: key, slot };
  }
  /** The caches count what the graph appended. */
  #follow(): void {
    this.#cache.follow(this.#length);
  }

  /** Forgets all tokens; recordings stay. */
  reset(): void {
    this.#steps.finish();
    this.#ahead = undefined;
    this.#chosen = -1;
    this.#length = 0;
    this.#history = [];
    this.#cache.reset();
  }
  /** Gives recordings and memory back. */
  dispose(): void {
    this.#steps.finish();
    for (const g of this.#graphs.values()) g.dispose();
    this.#cache.dispose();
    this.#places.dispose();
    this.#fused?.dispose();
    for (const s of this.#slots) this.#steps.freeSlot(s);
    const { logits: _, tokens: __, state: ___, ...own } = this.#drawing ?? ({} as Partial<DrawBuffers>);
    for (const t of [this.#b, own].flatMap((x) => Object.values(x) as Tensor[])) t.dispose();
  }
}
