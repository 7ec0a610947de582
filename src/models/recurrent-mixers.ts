// Mixers that remember a state instead of all keys: the gated delta net and Mamba 2. Both begin with a short causal
// convolution by channel, whose last inputs are remembered too.
import { activation } from '../nn/activation.js';
import type { Init } from '../nn/init.js';
import type { AnyLinear as Linear } from '../nn/layers.js';
import { Module } from '../nn/module.js';
import type { Tensor } from '../tensor/tensor.js';
import type { DeltaNet, Mamba2 } from './features.js';
import { scan } from './linear-attention.js';
import type { MixerContext } from './mixers.js';
import type { Shard } from './shard.js';
import type { Weights } from './weights.js';

/** x (b, t, channels) through the convolution and the activation. */
function convolved(x: Tensor, { layer, step }: MixerContext, weight: Tensor, bias?: Tensor): Tensor {
  const channels = x.shape[2];
  const y = step.overColumns(layer, x.permute([0, 2, 1]), weight.shape[2] - 1, (columns) =>
    columns.conv1d(weight, { groups: channels, ...(bias && { bias }) }),
  );
  return y.permute([0, 2, 1]);
}
/** Heads that share a key: each one `times` over, (b, t, heads * times, width). */
function repeated(x: Tensor, times: number): Tensor {
  if (times === 1) return x;
  const [b, t, heads, width] = x.shape;
  return x
    .unsqueeze(3)
    .broadcastTo([b, t, heads, times, width])
    .reshape([b, t, heads * times, width]);
}
const unitLength = (x: Tensor): Tensor => x.div(x.sqr().sum([3], true).affine(1, 1e-6).sqrt());

export class DeltaMixer extends Module {
  readonly feature: DeltaNet;
  /** Queries, keys and values, the output's gate, the rate and the decay in one product. */
  readonly input: Linear;
  readonly weight: Tensor;
  readonly decay: Tensor;
  readonly shift: Tensor;
  readonly normWeight: Tensor;
  readonly out: Linear;
  constructor(w: Weights, f: DeltaNet, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const [keys, values] = [f.keyHeads * f.keyDim, f.valueHeads * f.valueDim];
    this.input = w.linear(
      [
        { role: 'stateIn', outputs: 2 * keys + values },
        { role: 'stateGate', outputs: values },
        { role: 'stateRate', outputs: f.valueHeads },
        { role: 'stateStep', outputs: f.valueHeads },
      ],
      hidden,
    );
    this.weight = w.tensor('stateConv', [2 * keys + values, 1, f.width]);
    this.decay = w.tensor('stateDecay', [f.valueHeads], undefined, 'weight', 'f32');
    this.shift = w.tensor('stateShift', [f.valueHeads], undefined, 'weight', 'f32');
    this.normWeight = w.normWeight('stateNorm', [f.valueDim], 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], values, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { keyHeads, valueHeads, keyDim, valueDim, eps, activation: name } = this.feature;
    const { step, layer } = context;
    const [b, t] = x.shape;
    const [keys, values] = [keyHeads * keyDim, valueHeads * valueDim];
    const all = this.input.forward(step.withoutPads(x));
    const wide = 2 * keys + values;
    const mixed = activation(name)(convolved(all.narrow(2, 0, wide), context, this.weight)).cast('f32');
    const part = (from: number, heads: number, dim: number): Tensor =>
      mixed.narrow(2, from, heads * dim).reshape([b, t, heads, dim]);
    const times = valueHeads / keyHeads;
    const q = repeated(unitLength(part(0, keyHeads, keyDim)), times).affine(1 / Math.sqrt(keyDim), 0);
    const k = repeated(unitLength(part(keys, keyHeads, keyDim)), times);
    const v = part(2 * keys, valueHeads, valueDim);
    const rate = all
      .narrow(2, wide + values, valueHeads)
      .sigmoid()
      .cast('f32');
    const steps = all.narrow(2, wide + values + valueHeads, valueHeads).cast('f32');
    const decay = steps.add(this.shift).softplus().mul(this.decay.exp().neg());
    const y = step.overState(layer, [q, k, v, decay, rate], ([q, k, v, decay, rate], state) =>
      scan({ q, k, v, decay, rate }, state),
    );
    const gate = all.narrow(2, wide, values).reshape([b, t, valueHeads, valueDim]).cast('f32').silu();
    const normed = y.rmsNorm(this.normWeight, { eps }).mul(gate);
    return this.out.forward(normed.reshape([b, t, values]).cast(x.dtype));
  }
}

export class MambaMixer extends Module {
  readonly feature: Mamba2;
  /** The output's gate, what the convolution reads (values, keys, queries) and the steps. */
  readonly input: Linear;
  readonly weight: Tensor;
  readonly bias: Tensor | undefined;
  readonly decay: Tensor;
  readonly shift: Tensor;
  readonly skip: Tensor;
  readonly normWeight: Tensor;
  readonly out: Linear;
  readonly #shard: Shard | undefined;
  /** The width of the norm: that of all ranks' values. */
  readonly #width: number;
  constructor(w: Weights, f: Mamba2, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const values = f.heads * f.headDim;
    const channels = values + 2 * f.groups * f.stateDim;
    this.input = w.linear([{ role: 'stateIn', outputs: values + channels + f.heads }], hidden);
    this.weight = w.tensor('stateConv', [channels, 1, f.width]);
    this.bias = w.bias('stateConv', [channels]);
    this.decay = w.tensor('stateDecay', [f.heads], undefined, 'weight', 'f32');
    this.shift = w.tensor('stateShift', [f.heads], undefined, 'weight', 'f32');
    this.skip = w.tensor('stateSkip', [f.heads], undefined, 'weight', 'f32');
    const whole = w.shard?.stateWidth(w.layer as number);
    this.#shard = whole === undefined ? undefined : w.shard;
    this.#width = whole ?? values;
    this.normWeight = w.normWeight('stateNorm', [this.#width], 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], values, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { heads, headDim, stateDim, groups, eps, activation: name } = this.feature;
    const { step, layer } = context;
    const [b, t] = x.shape;
    const values = heads * headDim;
    const channels = values + 2 * groups * stateDim;
    const all = this.input.forward(step.withoutPads(x));
    const conv = convolved(all.narrow(2, values, channels), context, this.weight, this.bias);
    const mixed = step.withoutPads(activation(name)(conv)).cast('f32');
    const value = mixed.narrow(2, 0, values).reshape([b, t, heads, headDim]);
    const shared = (from: number): Tensor =>
      repeated(mixed.narrow(2, from, groups * stateDim).reshape([b, t, groups, stateDim]), heads / groups);
    const steps = all
      .narrow(2, values + channels, heads)
      .cast('f32')
      .add(this.shift)
      .softplus();
    const decay = steps.mul(this.decay.exp().neg());
    const [k, q] = [shared(values), shared(values + groups * stateDim)];
    const y = step
      .overState(layer, [q, k, value.mul(steps.unsqueeze(3)), decay], ([q, k, v, decay], state) =>
        scan({ q, k, v, decay }, state),
      )
      .add(value.mul(this.skip.unsqueeze(1)));
    const gate = all.narrow(2, 0, values).cast('f32').silu();
    const norm = (row: Tensor): Tensor => row.rmsNorm(this.normWeight, { eps });
    const row = y.reshape([b, t, values]).mul(gate);
    const normed = this.#shard ? this.#shard.overWhole(norm, row, this.#width) : norm(row);
    return this.out.forward(normed.cast(x.dtype));
  }
}
