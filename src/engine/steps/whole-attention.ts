// Attention of a recorded step from the product that makes queries, keys and values: one launch turns, stores and
// weighs, for one token of each of any number of sequences over pages.
import { decodes, gpuOf } from '../../backends/generation.js';
import type { CausalLM } from '../../models/index.js';
import { AttentionMixer } from '../../models/decoder/mixers.js';
import type { RopeTable } from '../../models/decoder/rope.js';
import type { WholeAttend, WholeMixer } from '../../models/decoder/step.js';
import { zeros } from '../../tensor/create.js';
import { keep } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';
import { attends } from './fused-fit.js';
import type { LayerPages } from './paged-step.js';

export interface WholeOptions {
  readonly pageTokens: number;
  readonly contextTokens: number;
  /** Sequences that a step has at most. */
  readonly sequences: number;
}

export class WholeAttention {
  readonly #model: CausalLM;
  readonly #layers: readonly (LayerPages | undefined)[];
  readonly #o: WholeOptions;
  /** Whether it does all layers. */
  #all: boolean | undefined;
  /** A zero for every head of each sequence. It never moves: recorded steps know where it is. */
  #arrived: Tensor | undefined;
  /** Norms of queries and keys in floats, where they are kept in less. */
  readonly #wide = new Map<Tensor, Tensor>();

  static serves(
    model: CausalLM,
    layers: readonly (LayerPages | undefined)[],
    { pageTokens }: Pick<WholeOptions, 'pageTokens'>,
  ): boolean {
    return (
      decodes(model.device.backend, model.dtype) &&
      Number.isInteger(Math.log2(pageTokens)) &&
      layers.every((l) => !l || l[0].dtype === model.dtype)
    );
  }
  constructor(model: CausalLM, layers: readonly (LayerPages | undefined)[], options: WholeOptions) {
    this.#model = model;
    this.#layers = layers;
    this.#o = options;
  }
  /** Whether it does all layers of the model, for so many sequences. */
  takes(sequences: number): boolean {
    const { blocks, config } = this.#model;
    const all = (this.#all ??=
      !config.learntPositions &&
      blocks.every(({ mixer: m }) => {
        const rope = m instanceof AttentionMixer && m.feature.rope;
        return rope && this.#takes(m, this.#model.tables(rope, this.#o.contextTokens));
      }));
    return all && sequences <= this.#o.sequences;
  }
  /**
   * For a step whose state has tokens, positions, slots and lengths of the first n sequences, one after another, and
   * whose products begin with the rows of these; `table` has their pages.
   */
  of(table: Tensor, state: Tensor): WholeAttend {
    const { device, dtype } = this.#model;
    const { pageTokens, contextTokens: room, sequences } = this.#o;
    const n = state.size / 4;
    const steps = gpuOf(device.backend, 'decoding by graph').decodeSteps(dtype, n);
    return (layer, qkv, mixer, tables) => {
      const [pages, { feature: a }] = [this.#layers[layer], mixer];
      if (!pages || n > sequences || !this.#takes(mixer, tables)) return undefined;
      const { heads, kvHeads, headDim, scale, window, softcap } = a;
      const size = steps.partialSize({ heads, kvHeads, dim: headDim, room, paged: true });
      this.#arrived ??= keep(zeros([sequences * this.#mostHeads], { dtype: 'i32', device }));
      const partial = Tensor.empty([size], 'f32', device);
      const all = Tensor.empty([1, qkv.shape[1], heads * headDim], dtype, device);
      const norm = (weight: Tensor | undefined): Tensor | undefined => weight && this.#floats(weight);
      steps.attend({
        ...{ qkv: qkv.narrow(1, 0, n).contiguous(), out: all.narrow(1, 0, n).reshape([n, heads, 1, headDim]) },
        ...{ ...tables, state, keys: pages[0], values: pages[1], partial },
        ...{ arrived: this.#arrived, scale, window, softcap },
        ...{ qNorm: norm(mixer.qNorm?.inner.weight), kNorm: norm(mixer.kNorm?.inner.weight) },
        ...{ eps: a.qkNorm?.norm.eps, paged: { table, pageTokens, room } },
      });
      return { all, count: n };
    };
  }
  get #mostHeads(): number {
    return Math.max(...this.#model.config.layers.map(({ mixer: m }) => (m.kind === 'attention' ? m.heads : 0)));
  }
  #takes({ feature: a }: WholeMixer, { cos }: RopeTable): boolean {
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
