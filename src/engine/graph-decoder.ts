// Decoding on a GPU: one token's work captured once as a graph and replayed; the host reads one number a token, one step behind.
import { ArgumentError } from '../base/errors.js';
import { DecodeSteps, type Arrival } from '../backends/gpu/decode.js';
import type { Replay } from '../backends/gpu/gpu.js';
import { bytesOf } from '../base/dtype.js';
import type { Llama } from '../models/llama.js';
import { KvCache } from '../nn/kv-cache.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor, zeros } from '../tensor/create.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { Decoder } from './decoder.js';

/** Vectors of one step; they keep their memory as long as the graph lives. */
interface Buffers {
  readonly x: Tensor;
  readonly qkv: Tensor;
  readonly y: Tensor;
  readonly h: Tensor;
  readonly gated: Tensor;
  readonly logits: Tensor;
  /** Attention's parts and their count, the largest logit. */
  readonly partial: Tensor;
  readonly arrived: Tensor;
  readonly best: Tensor;
  /** token, position, length */
  readonly state: Tensor;
  readonly history: Tensor;
}

export class GraphDecoder implements Decoder {
  readonly #model: Llama;
  readonly #steps: DecodeSteps;
  readonly #cache: KvCache[];
  readonly #capacity: number;
  readonly #b: Buffers;
  readonly #pinned: ReturnType<DecodeSteps['pinned']>[];
  /** Tokens whose keys are in the cache and known to the host. */
  #length = 0;
  /** Position the device's state stands at; ahead of #length while a step runs before its turn. */
  #onDevice = -1;
  #logitsGraph: Replay | undefined;
  #greedyGraph: Replay | undefined;
  #waiting: { readonly position: number; readonly arrival: Arrival } | undefined;
  #turn = 0;

  /** Whether a model can be decoded so: a GPU, a dtype and sizes the kernels take. */
  static serves(model: Llama): boolean {
    const { hiddenSize, intermediateSize, heads, headDim } = model.config;
    const pack = 16 / bytesOf(model.dtype);
    const biased = model.blocks.some((b) => b.mlp.gateUp.bias);
    const widths = [hiddenSize, intermediateSize, heads * headDim];
    return DecodeSteps.serves(model.device.backend, model.dtype) && !biased && widths.every((n) => n % pack === 0);
  }

  constructor(model: Llama, capacity = Math.min(model.config.maxPositions, 8192)) {
    this.#model = model;
    this.#capacity = capacity;
    this.#steps = new DecodeSteps(model.device.backend, model.dtype);
    this.#cache = model.blocks.map(() => new KvCache(capacity));
    const { hiddenSize, intermediateSize, heads, kvHeads, headDim, vocabSize } = model.config;
    const room = (shape: number[], dtype = model.dtype): Tensor => keep(Tensor.empty(shape, dtype, model.device));
    const zero = (n: number): Tensor => keep(zeros([n], { dtype: 'i32', device: model.device }));
    this.#b = {
      x: room([hiddenSize]), h: room([hiddenSize]), qkv: room([(heads + 2 * kvHeads) * headDim]), y: room([1, heads, 1, headDim]), gated: room([intermediateSize]),
      logits: room([vocabSize]), partial: room([heads * this.#steps.splits(heads, kvHeads, capacity) * (headDim + 1)], 'f32'), arrived: zero(heads), best: zero(2),
      state: room([3], 'i32'), history: room([capacity], 'i32'),
    };
    this.#pinned = [this.#steps.pinned(64), this.#steps.pinned(64)];
  }

  get length(): number {
    return this.#length;
  }

  /** One token: five launches a layer. */
  #step(greedy: boolean): void {
    const { x, h, qkv, y, gated, logits, state, partial, arrived, best, history } = this.#b;
    const s = this.#steps;
    const m = this.#model;
    const { cos, sin } = m.rotary(this.#capacity);
    s.embed(m.embed.weight, state, x);
    m.blocks.forEach((block, i) => {
      const { attention, mlp, norm1, norm2 } = block;
      const [keys, values] = this.#cache[i].buffers();
      s.product({ x, weight: attention.qkv.weight, out: qkv, norm: norm1, bias: attention.qkv.bias });
      s.attend({ qkv, cos, sin, state, keys, values, out: y, partial, arrived });
      s.product({ x: y, weight: attention.out.weight, out: h, bias: attention.out.bias, residual: x });
      s.gate({ x: h, weight: mlp.gateUp.weight, out: gated, norm: norm2 });
      s.product({ x: gated, weight: mlp.down.weight, out: x, bias: mlp.down.bias, residual: h });
    });
    s.product({ x, weight: m.head.weight, out: logits, norm: m.norm, bias: m.head.bias, best: greedy ? best : undefined });
    if (greedy) s.advance(best, state, history);
  }

  /** Puts a token and its position where the graph reads them. */
  #place(token: number, position: number): void {
    const words = Int32Array.of(token, position, position + 1);
    this.#model.device.backend.write(this.#b.state.memory, 0, new Uint8Array(words.buffer));
    this.#onDevice = position;
  }
  #graph(greedy: boolean): Replay {
    const known = greedy ? this.#greedyGraph : this.#logitsGraph;
    if (known) return known;
    // Everything runs once before it is captured: compiling and loading must not happen inside.
    const before = this.#b.state.bytesSync();
    const work = (): void => this.#step(greedy);
    work();
    this.#model.device.backend.write(this.#b.state.memory, 0, before);
    const graph = this.#steps.capture(work);
    if (greedy) this.#greedyGraph = graph;
    else this.#logitsGraph = graph;
    return graph;
  }
  #check(count: number): void {
    if (this.#length + count > this.#capacity) throw new ArgumentError(`decoder: ${this.#length + count} tokens do not fit its cache of ${this.#capacity}`);
  }

  /** Several tokens at once, op by op; answers the last one's logits. */
  #prefill(tokens: readonly number[]): Tensor {
    this.#check(tokens.length);
    for (const c of this.#cache) c.truncate(this.#length);
    const logits = scope(() => noGrad(() => {
      const ids = tensor(Int32Array.from(tokens), { shape: [1, tokens.length], device: this.#model.device });
      return this.#model.forward(ids, this.#cache, { last: true }).reshape([-1]).cast('f32');
    }));
    this.#length += tokens.length;
    return logits;
  }

  async run(tokens: readonly number[]): Promise<Float32Array> {
    if (tokens.length > 1 || this.#length === 0) {
      const logits = this.#prefill(tokens);
      const data = (await logits.data()) as Float32Array;
      logits.dispose();
      return data;
    }
    this.#check(1);
    this.#waiting = undefined;
    this.#place(tokens[0], this.#length);
    this.#graph(false).launch();
    this.#length++;
    this.#follow();
    return Float32Array.from((await this.#b.logits.data()) as Float32Array);
  }

  async runGreedy(tokens: readonly number[]): Promise<number> {
    if (tokens.length > 1 || this.#length === 0) {
      const best = scope(() => this.#prefill(tokens).argmax(0));
      const token = Number((await best.data())[0]);
      best.dispose();
      return token;
    }
    this.#check(1);
    const position = this.#length;
    if (this.#waiting?.position !== position) {
      if (this.#onDevice !== position) this.#place(tokens[0], position);
      this.#launchGreedy(position);
    }
    const { arrival } = this.#waiting as { arrival: Arrival };
    // The next step needs nothing from the host: it starts while this one's result travels.
    this.#waiting = undefined;
    if (position + 1 < this.#capacity) this.#launchGreedy(position + 1);
    while (!arrival.ready()) await new Promise<void>((r) => setImmediate(r));
    this.#length = position + 1;
    this.#follow();
    return arrival.value();
  }
  #launchGreedy(position: number): void {
    this.#graph(true).launch();
    this.#onDevice = position + 1;
    this.#turn ^= 1;
    this.#waiting = { position, arrival: this.#steps.fetch(this.#b.history, position, this.#pinned[this.#turn]) };
  }
  /** The caches count what the graph appended. */
  #follow(): void {
    for (const c of this.#cache) c.length = this.#length;
  }

  dispose(): void {
    while (this.#waiting && !this.#waiting.arrival.ready()) continue;
    this.#greedyGraph?.dispose();
    this.#logitsGraph?.dispose();
    for (const c of this.#cache) c.dispose();
    for (const p of this.#pinned) this.#steps.freePinned(p);
    for (const t of Object.values(this.#b) as Tensor[]) t.dispose();
  }
}
