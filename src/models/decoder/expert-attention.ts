// Attention whose queries and outputs are products of experts that a router chooses for each token; keys and values are
// the same for all of them.
import { keepFloats } from '../../nn/kept-floats.js';
import { type AnyLinear, Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Weight } from '../../tensor/qtensor.js';
import type { Tensor } from '../../tensor/tensor.js';
import { expertProduct } from './experts.js';
import type { Attention } from './features.js';
import type { MixerContext } from './mixers.js';
import { rowOrder } from './rope.js';
import type { Weights } from './weights.js';

export class ExpertAttentionMixer extends Module {
  readonly feature: Attention;
  /** Always f32: a rounding here would choose another expert. */
  readonly router: Linear;
  /** (experts, kvHeads headDim, hidden) and (experts, hidden, kvHeads headDim). */
  readonly queries: Weight;
  readonly outputs: Weight;
  readonly kv: AnyLinear;
  readonly bias: Tensor;
  constructor(w: Weights, f: Attention, hidden: number) {
    super();
    this.feature = f;
    const width = f.kvHeads * f.headDim;
    const count = f.experts?.count as number;
    this.router = keepFloats(
      new Linear(w.tensor('qRouter', [count, hidden], undefined, 'weight', 'f32')),
      'experts are chosen in f32',
    );
    this.queries = w.matrix('q', [count, width, hidden]);
    this.outputs = w.matrix('o', [count, hidden, width]);
    this.kv = w.linear(
      [
        { role: 'k', outputs: width, order: rowOrder(f.rope) },
        { role: 'v', outputs: width },
      ],
      hidden,
    );
    this.bias = w.tensor('oSum', [hidden]);
  }
  forward(x: Tensor, { step, layer, tables }: MixerContext): Tensor {
    const { kvHeads, headDim, heads, scale, rope, window } = this.feature;
    const [b, t, hidden] = x.shape;
    const chosen = heads / kvHeads;
    const given = x.reshape([b * t, hidden]);
    const [best, ids] = given.cast('f32').matmul(this.router.weight.cast('f32').t()).topk(chosen, -1);
    const weights = best.softmax(-1).unsqueeze(2).cast(x.dtype); // (tokens, chosen, 1)
    // An expert has a query for every key head; those of one key stand side by side.
    const asked = expertProduct(given.unsqueeze(1), this.queries, ids).reshape([b, t, chosen, kvHeads, headDim]);
    let q = asked.permute([0, 1, 3, 2, 4]).reshape([b, t, heads, headDim]);
    const both = this.kv.forward(x).reshape([b, t, 2 * kvHeads, headDim]);
    const v = both.narrow(2, kvHeads, kvHeads);
    let k = both.narrow(2, 0, kvHeads);
    if (rope) {
      const { cos, sin } = tables(rope);
      const [c, s] = [step.rows(cos), step.rows(sin)];
      [q, k] = [q.ropeThd(c, s), k.ropeThd(c, s)];
    }
    const y = step.attend(layer, q, k, v, { scale, window });
    const rows = y.reshape([b, t, kvHeads, chosen, headDim]).permute([0, 1, 3, 2, 4]);
    const out = expertProduct(rows.reshape([b * t, chosen, kvHeads * headDim]), this.outputs, ids);
    return out.mul(weights).sum([1], false).reshape([b, t, hidden]).add(this.bias);
  }
}
