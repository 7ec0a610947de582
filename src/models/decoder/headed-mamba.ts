// The first Mamba in heads (Zamba): what steps, keys and queries come from is read by each head of its own channels.
import { activation } from '../../nn/activation.js';
import type { Init } from '../../nn/init.js';
import type { AnyLinear as Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { HeadedMamba } from './features.js';
import type { MixerContext } from './mixers.js';
import { convolved } from './recurrent-mixers.js';
import { selectiveScan } from './selective-scan.js';
import type { Weights } from './weights.js';

export class HeadedMambaMixer extends Module {
  readonly feature: HeadedMamba;
  /** What the convolution reads, and the output's gate; files have them channel by channel. */
  readonly input: Linear;
  readonly weight: Tensor;
  readonly bias: Tensor | undefined;
  /** (heads, rank + 2 state, channels of a head) */
  readonly parts: Tensor;
  /** (heads, channels of a head, rank) */
  readonly steps: Tensor;
  readonly shift: Tensor | undefined;
  /** (inner, state) */
  readonly decay: Tensor;
  readonly skip: Tensor;
  readonly out: Linear;
  constructor(w: Weights, f: HeadedMamba, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { inner, heads, stateDim, rank } = f;
    const each = inner / heads;
    const order = Array.from({ length: 2 * inner }, (_, i) => (i < inner ? 2 * i : 2 * (i - inner) + 1));
    this.input = w.linear([{ role: 'stateIn', outputs: 2 * inner, order }], hidden);
    this.weight = w.tensor('stateConv', [inner, 1, f.width]);
    this.bias = w.bias('stateConv', [inner]);
    this.parts = w.tensor('stateParts', [heads, rank + 2 * stateDim, each]);
    this.steps = w.tensor('stateSteps', [heads, each, rank]);
    this.shift = w.bias('stateSteps', [heads, each]);
    this.decay = w.tensor('stateDecay', [heads, each, stateDim], undefined, 'weight', 'f32');
    this.skip = w.tensor('stateSkip', [heads, each], undefined, 'weight', 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], inner, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { inner, heads, stateDim, rank, activation: name } = this.feature;
    const { step, layer } = context;
    const [b, t] = x.shape;
    const each = inner / heads;
    const all = this.input.forward(step.withoutPads(x)); // (b, t, 2 inner)
    const conv = convolved(all.narrow(2, 0, inner), context, this.weight, this.bias);
    const value = step.withoutPads(activation(name)(conv)); // (b, t, inner)
    const rows = value.reshape([b * t, heads, each]).transpose(0, 1); // (heads, tokens, channels of a head)
    const parts = rows.matmul(this.parts.transpose(1, 2));
    const made = parts.narrow(2, 0, rank).matmul(this.steps.transpose(1, 2)).cast('f32');
    const steps = (this.shift ? made.add(this.shift.cast('f32').unsqueeze(1)) : made)
      .softplus()
      .transpose(0, 1)
      .reshape([b, t, inner]);
    /** A head's keys or queries, for each of its channels: (b, t, inner, state). */
    const shared = (from: number): Tensor =>
      parts
        .narrow(2, from, stateDim)
        .cast('f32')
        .transpose(0, 1)
        .reshape([b, t, heads, 1, stateDim])
        .broadcastTo([b, t, heads, each, stateDim])
        .reshape([b, t, inner, stateDim]);
    const rates = this.decay.exp().neg().reshape([inner, stateDim]);
    const wide = value.cast('f32');
    const inputs = [wide, steps, shared(rank), shared(rank + stateDim)];
    const y = step
      .overState(layer, inputs, ([value, steps, k, q], state) => selectiveScan({ value, steps, k, q, rates }, state))
      .add(wide.mul(this.skip.reshape([inner])));
    const gate = all.narrow(2, inner, inner).cast('f32').silu();
    return this.out.forward(y.mul(gate).cast(x.dtype));
  }
}
