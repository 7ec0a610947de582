// Attention of a recorded step from the product that makes queries, keys and values: one launch turns, stores and
// weighs, for one token of each of any number of sequences over pages.
import { DecodeSteps } from '../backends/gpu/decode.js';
import type { CausalLM } from '../models/index.js';
import type { AttentionMixer } from '../models/mixers.js';
import type { RopeTable } from '../models/rope.js';
import type { WholeAttend } from '../models/step.js';
import { zeros } from '../tensor/create.js';
import { keep } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { attends } from './fused-step.js';
import type { LayerPages, PagedLayout } from './paged-step.js';

export interface WholeOptions {
  readonly pageTokens: number;
  readonly contextTokens: number;
}

export class WholeAttention {
  readonly #model: CausalLM;
  readonly #layers: readonly (LayerPages | undefined)[];
  readonly #o: WholeOptions;
  /** A zero for every head of each sequence. */
  #arrived: Tensor | undefined;
  /** Norms of queries and keys in floats, where they are kept in less. */
  readonly #wide = new Map<Tensor, Tensor>();

  static serves(model: CausalLM, layers: readonly (LayerPages | undefined)[], { pageTokens }: WholeOptions): boolean {
    return (
      DecodeSteps.serves(model.device.backend, model.dtype) &&
      Number.isInteger(Math.log2(pageTokens)) &&
      layers.every((l) => !l || l[0].dtype === model.dtype)
    );
  }
  constructor(model: CausalLM, layers: readonly (LayerPages | undefined)[], options: WholeOptions) {
    this.#model = model;
    this.#layers = layers;
    this.#o = options;
  }
  /** For a step whose state has tokens, positions, slots and lengths, one after another. */
  of({ slots, runs }: PagedLayout, state: Tensor): WholeAttend {
    const { device, dtype } = this.#model;
    const { pageTokens, contextTokens: room } = this.#o;
    const n = slots.size;
    const steps = new DecodeSteps(device.backend, dtype, n);
    return (layer, qkv, mixer, tables) => {
      const [pages, { feature: a }] = [this.#layers[layer], mixer];
      if (!pages || !this.#takes(mixer, tables)) return undefined;
      const { heads, kvHeads, headDim, scale, window, softcap } = a;
      const size = n * heads * steps.splits(heads, kvHeads, room) * (headDim + 1);
      if ((this.#arrived?.size ?? 0) < n * heads) {
        this.#arrived?.dispose();
        this.#arrived = keep(zeros([n * heads], { dtype: 'i32', device }));
      }
      const partial = Tensor.empty([size], 'f32', device);
      const out = Tensor.empty([n, heads, 1, headDim], dtype, device);
      const norm = (weight: Tensor | undefined): Tensor | undefined => weight && this.#floats(weight);
      steps.attend({
        ...{ qkv: qkv.contiguous(), ...tables, state, keys: pages[0], values: pages[1], out, partial },
        ...{ arrived: this.#arrived as Tensor, scale, window, softcap },
        ...{ qNorm: norm(mixer.qNorm?.inner.weight), kNorm: norm(mixer.kNorm?.inner.weight) },
        ...{ eps: a.qkNorm?.norm.eps, paged: { table: runs[0].tables, pageTokens, room } },
      });
      return out.reshape([1, n, heads * headDim]);
    };
  }
  #takes({ feature: a }: AttentionMixer, { cos }: RopeTable): boolean {
    return attends(a, a) && 2 * cos.shape[1] === a.headDim;
  }
  #floats(weight: Tensor): Tensor {
    if (weight.dtype === 'f32') return weight;
    let wide = this.#wide.get(weight);
    if (!wide) this.#wide.set(weight, (wide = keep(weight.cast('f32'))));
    return wide;
  }
  /** Whether it has norms of its own beside the model's. */
  get hasNorms(): boolean {
    return this.#wide.size > 0;
  }
  dispose(): void {
    this.#arrived?.dispose();
    for (const t of this.#wide.values()) t.dispose();
  }
}
