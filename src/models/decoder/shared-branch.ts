// Zamba's layers: Mamba in heads or Mamba 2, and in some of them, before it, a transformer block that several layers
// share. It reads the layer's input beside the embedding; of Zamba 2 each layer that shares it adds narrow products of
// its own.
import { activation } from '../../nn/activation.js';
import type { Init } from '../../nn/init.js';
import { type AnyLinear, Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { keep } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { SharedBlock, SharedMamba } from './features.js';
import { HeadedMambaMixer } from './headed-mamba.js';
import { type MixerContext, Norm, norm } from './mixers.js';
import { MambaMixer } from './recurrent-mixers.js';
import { madeOf } from '../parts.js';
import { rowOrder } from './rope.js';
import { reorderHeads } from '../files/stored-rows.js';
import type { Weights } from './weights.js';

class SharedBranch extends Module {
  readonly feature: SharedBlock;
  readonly norm1: Norm;
  readonly qkv: Linear;
  readonly out: Linear;
  readonly norm2: Norm;
  readonly gateUp: Linear;
  readonly down: Linear;
  readonly last: AnyLinear;
  constructor(w: Weights, f: SharedBlock, hidden: number, eps: number) {
    super();
    this.feature = f;
    const { heads, kvHeads, headDim, rope } = f.attention;
    const at = f.stored.find((name) => w.builder.has(`${name}.input_layernorm.weight`)) ?? f.stored[0];
    const vb = w.builder.pp(at);
    const wide = 2 * hidden;
    const norm = (name: string, width: number): Norm =>
      new Norm({ kind: 'rms', eps }, vb.get([width], `${name}.weight`));
    /** A stored product with the layer's own narrow one added. */
    const product = (name: string, outputs: number, inputs: number, own?: string): Tensor =>
      madeOf(vb, (read) => {
        const weight = read([outputs, inputs], `${name}.weight`);
        if (own === undefined) return weight.copy();
        const narrow = read([f.rank, inputs], `${own}.${f.use}.0.weight`);
        return weight.add(read([outputs, f.rank], `${own}.${f.use}.1.weight`).matmul(narrow));
      });
    const parts = [
      ['q', heads],
      ['k', kvHeads],
      ['v', kvHeads],
    ] as const;
    const weights = parts.map(([part, n]) => {
      const own = f.attentionAdapters ? `self_attn.linear_${part}_adapter_list` : undefined;
      const made = product(`self_attn.${part}_proj`, n * headDim, wide, own);
      const moved = part === 'v' ? made : reorderHeads(made, rowOrder(rope));
      if (moved !== made) made.dispose();
      return moved;
    });
    this.qkv = new Linear(keep(weights[0].cat(weights.slice(1), 0)));
    for (const t of weights) t.dispose();
    this.out = new Linear(product('self_attn.o_proj', hidden, heads * headDim));
    this.norm1 = norm('input_layernorm', wide);
    this.norm2 = norm('pre_ff_layernorm', hidden);
    const bias = (name: string, n: number): Tensor | undefined => (f.biases ? vb.get([n], `${name}.bias`) : undefined);
    const [up, down] = ['feed_forward.gate_up_proj', 'feed_forward.down_proj'];
    const own = 'feed_forward.gate_up_proj_adapter_list';
    const both = (): Tensor => {
      const halves = ['gate_proj', 'up_proj'].map((name) => product(`feed_forward.${name}`, f.inner, hidden));
      const joined = keep(halves[0].cat([halves[1]], 0));
      for (const t of halves) t.dispose();
      return joined;
    };
    const gateUp = f.apart ? both() : product(up, 2 * f.inner, hidden, f.rank > 0 ? own : undefined);
    this.gateUp = new Linear(gateUp, bias(up, 2 * f.inner));
    this.down = new Linear(product(down, hidden, f.inner), bias(down, hidden));
    this.last = linear(hidden, hidden, w.builder.pp(f.last), { bias: false });
  }
  forward(x: Tensor, { step, layer, tables, embedded }: MixerContext): Tensor {
    const { attention, inner, activation: name } = this.feature;
    const { heads, kvHeads, headDim, rope, scale } = attention;
    const [b, t] = x.shape;
    const all = this.qkv.forward(this.norm1.forward(x.cat([embedded as Tensor], 2)));
    const part = (from: number, n: number): Tensor =>
      all.narrow(2, from * headDim, n * headDim).reshape([b, t, n, headDim]);
    let [q, k] = [part(0, heads), part(heads, kvHeads)];
    if (rope) {
      const { cos, sin } = tables(rope);
      const [c, s] = [step.rows(cos), step.rows(sin)];
      [q, k] = [q.ropeThd(c, s), k.ropeThd(c, s)];
    }
    const y = step.attend(layer, q, k, part(heads + kvHeads, kvHeads), { scale });
    const mixed = this.norm2.forward(this.out.forward(y.reshape([b, t, heads * headDim])));
    const h = this.gateUp.forward(mixed);
    const fed = activation(name)(h.narrow(2, 0, inner)).mul(h.narrow(2, inner, inner));
    return this.last.forward(this.down.forward(fed));
  }
}

/** A Mamba behind its norm, which reads the sum of the layer's input and what the shared block makes of it. */
export class SharedMambaMixer extends Module {
  readonly feature: SharedMamba;
  readonly norm: Norm;
  readonly state: MambaMixer | HeadedMambaMixer;
  readonly branch: SharedBranch | undefined;
  constructor(w: Weights, f: SharedMamba, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    this.norm = norm(w, 'beforeMixer', { kind: 'rms', eps: f.eps }, hidden);
    const { state } = f;
    this.state =
      state.kind === 'mamba2' ? new MambaMixer(w, state, hidden, deep) : new HeadedMambaMixer(w, state, hidden, deep);
    if (f.block) this.branch = new SharedBranch(w, f.block, hidden, f.eps);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const given = this.branch ? x.add(this.branch.forward(x, context)) : x;
    return this.state.forward(this.norm.forward(given), context);
  }
}
