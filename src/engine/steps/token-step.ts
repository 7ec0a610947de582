// One token's work and the choice of the next, recorded once and launched again: the token and its place lie in device
// memory, in few launches a layer where the model's features allow it, op by op otherwise.
import { decodes, gpuOf, SAMPLE } from '../../backends/generation.js';
import type { DecodeSteps } from '../../backends/gpu/decode.js';
import type { Draw, DrawBuffers } from '../../backends/gpu/decode-sample.js';
import type { Replay } from '../../backends/gpu/gpu.js';
import { bytesOf, type DType } from '../../base/dtype.js';
import { IndexError } from '../../base/errors.js';
import { type Attention, keepsKeys, WIDEST_HEAD } from '../../models/decoder/features.js';
import type { CausalLM, DecoderCache } from '../../models/index.js';
import { hasLooseAdapters } from '../../nn/lora.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor, zeros } from '../../tensor/create.js';
import { floats, QTensor } from '../../tensor/qtensor.js';
import { keep, scope } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';
import { FusedStep, type KeysAndValues } from './fused-step.js';
import { GraphStep } from './graph-step.js';

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
export type Choice = 'logits' | 'greedy' | Draw;
/** A draw that has no choice. */
const BEST: Draw = {
  ...{ temperature: 1, topK: 1, topP: 1, minP: 0 },
  ...{ repetitionPenalty: 1, repetitionWindow: 0 },
};

/** Whether a model's step can be recorded: a GPU, a dtype and layers that can be. */
export function recordable(model: CausalLM): boolean {
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

export class TokenStep {
  readonly steps: DecodeSteps;
  readonly #model: CausalLM;
  readonly #cache: DecoderCache;
  readonly #capacity: number;
  readonly #tableLength: () => number;
  readonly #b: Buffers;
  readonly #fused: FusedStep | undefined;
  readonly #places: Tensor;
  #drawing: DrawBuffers | undefined;
  readonly #graphs = new Map<string, Replay>();

  /** `tableLength` says how many positions the tables of ropes cover now. */
  constructor(model: CausalLM, cache: DecoderCache, capacity: number, tableLength: () => number) {
    this.#model = model;
    this.#cache = cache;
    this.#capacity = capacity;
    this.#tableLength = tableLength;
    this.steps = gpuOf(model.device.backend, 'decoding by graph').decodeSteps(model.dtype);
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
    if (FusedStep.serves(model)) this.#fused = new FusedStep(model, this.steps, capacity);
  }

  /** Whether a layer is a few launches. */
  get few(): boolean {
    return this.#fused !== undefined;
  }
  /** Those after the last step. */
  get logits(): Tensor {
    return this.#b.logits;
  }
  /** All tokens by position, where a step leaves the next one. */
  get tokens(): Tensor {
    return this.#b.tokens;
  }
  /** One token and the choice of the next. */
  run(choice: Choice): void {
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
    if (marked) this.steps.advance(best, state, tokens);
    else if (choice !== 'logits') this.steps.draw(this.#drawBuffers(), greedy ? BEST : choice);
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
        const step = new GraphStep(this.steps, this.#cache, state, this.#places, this.#tableLength());
        const x = m.hidden(step.token, step);
        // The largest logit stays the largest under a cap and a positive factor.
        if (marked)
          this.steps.product({
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
  /** Tokens that ran otherwise. */
  writeTokens(at: number, tokens: readonly number[]): void {
    this.#write(this.#b.tokens, at, Int32Array.from(tokens));
  }
  /** Random numbers for the draws at these positions. */
  writeUniforms(at: number, numbers: Float64Array): void {
    this.#write(this.#drawBuffers().uniforms as Tensor, at, numbers);
  }
  /** Puts a token and its position where the graph reads them. */
  place(token: number, position: number): void {
    const { vocabSize } = this.#model.config;
    if (!Number.isSafeInteger(token) || token < 0 || token >= vocabSize)
      throw new IndexError(`decoder: token ${token} is none of the model's ${vocabSize}`);
    this.#write(this.#b.state, 0, Int32Array.of(token, position, position + 1));
    this.#write(this.#b.tokens, position, Int32Array.of(token));
  }
  /** The step with that choice, recorded. */
  graph(choice: Choice): Replay {
    const key = JSON.stringify([choice, this.#tableLength()]);
    const known = this.#graphs.get(key);
    if (known) return known;
    // Everything runs once before it is captured: compiling and loading must not happen inside.
    const { state, tokens } = this.#b;
    const before = [state, tokens].map((t) => t.bytesSync());
    this.run(choice);
    [state, tokens].forEach((t, i) => this.#model.device.backend.write(t.memory, 0, before[i]));
    const graph = this.steps.capture(() => this.run(choice));
    this.#graphs.set(key, graph);
    return graph;
  }
  dispose(): void {
    for (const g of this.#graphs.values()) g.dispose();
    this.#places.dispose();
    this.#fused?.dispose();
    const { logits: _, tokens: __, state: ___, ...own } = this.#drawing ?? ({} as Partial<DrawBuffers>);
    for (const t of [this.#b, own].flatMap((x) => Object.values(x) as Tensor[])) t.dispose();
  }
}
