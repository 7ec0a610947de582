// Mixers that remember a state instead of all keys: gated delta nets, Mamba, Mamba 2, the gated recurrence of
// RecurrentGemma and MiniMax's attention that fades. All but the last begin with a short causal convolution by channel,
// whose last inputs are remembered too.
import type { Shape } from '../../base/shape.js';
import { activation } from '../../nn/activation.js';
import type { Init } from '../../nn/init.js';
import type { AnyLinear as Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { tensor } from '../../tensor/create.js';
import { keep } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Beside, ChannelDelta, DeltaNet, FadingAttention, GatedRecurrence, Mamba1, Mamba2 } from './features.js';
import { type FadeTables, scan, scanByTables, scanChannels } from './linear-attention.js';
import { AttentionMixer, type MixerContext, type Norm, norm } from './mixers.js';
import { recurrence, selectiveScan } from './selective-scan.js';
import type { Shard } from './shard.js';
import type { Role } from './roles.js';
import type { Weights } from './weights.js';

/** x (b, t, channels) through the convolution and the activation. */
export function convolved(x: Tensor, { layer, step }: MixerContext, weight: Tensor, bias?: Tensor): Tensor {
  const channels = x.shape[2];
  const y = step.overColumns(layer, x.permute([0, 2, 1]), weight.shape[2] - 1, (columns) =>
    columns.conv1d(weight, { groups: channels, ...(bias && { bias }) }),
  );
  return y.permute([0, 2, 1]);
}
/** Heads that share a key: each one `times` over, (b, t, heads * times, width), or all of them `times` over. */
function repeated(x: Tensor, times: number, tiled = false): Tensor {
  if (times === 1) return x;
  const [b, t, heads, width] = x.shape;
  return x
    .unsqueeze(tiled ? 2 : 3)
    .broadcastTo(tiled ? [b, t, times, heads, width] : [b, t, heads, times, width])
    .reshape([b, t, heads * times, width]);
}
/** What states are multiplied by, as logarithms of one step. */
const ratesOf = (decay: Tensor, { ratesStored }: { readonly ratesStored?: boolean }): Tensor =>
  ratesStored ? decay : decay.exp().neg();
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
    const parts = [
      { role: 'stateQuery' as const, outputs: keys },
      { role: 'stateKey' as const, outputs: keys },
      { role: 'stateValue' as const, outputs: values },
    ];
    this.input = w.linear(
      [
        ...(f.apart ? parts : [{ role: 'stateIn' as const, outputs: 2 * keys + values }]),
        { role: 'stateGate', outputs: values },
        { role: 'stateRate', outputs: f.valueHeads },
        { role: 'stateStep', outputs: f.valueHeads },
      ],
      hidden,
    );
    this.weight = f.apart
      ? w.pieces('stateConv', ['q', 'k', 'v'], [2 * keys + values, 1, f.width])
      : w.tensor('stateConv', [2 * keys + values, 1, f.width]);
    this.decay = w.tensor('stateDecay', [f.valueHeads], undefined, 'weight', 'f32');
    this.shift = w.tensor('stateShift', [f.valueHeads], undefined, 'weight', 'f32');
    this.normWeight = w.normWeight('stateNorm', [f.valueDim], 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], values, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { keyHeads, valueHeads, keyDim, valueDim, eps, tiled, activation: name, mostWritten } = this.feature;
    const { step, layer } = context;
    const [b, t] = x.shape;
    const [keys, values] = [keyHeads * keyDim, valueHeads * valueDim];
    const all = this.input.forward(step.withoutPads(x));
    const wide = 2 * keys + values;
    const mixed = activation(name)(convolved(all.narrow(2, 0, wide), context, this.weight)).cast('f32');
    const part = (from: number, heads: number, dim: number): Tensor =>
      mixed.narrow(2, from, heads * dim).reshape([b, t, heads, dim]);
    const times = valueHeads / keyHeads;
    const q = repeated(unitLength(part(0, keyHeads, keyDim)), times, tiled).affine(1 / Math.sqrt(keyDim), 0);
    const k = repeated(unitLength(part(keys, keyHeads, keyDim)), times, tiled);
    const v = part(2 * keys, valueHeads, valueDim);
    const share = all
      .narrow(2, wide + values, valueHeads)
      .sigmoid()
      .cast('f32');
    const rate = mostWritten === undefined ? share : share.affine(mostWritten, 0);
    const steps = all.narrow(2, wide + values + valueHeads, valueHeads).cast('f32');
    const decay = steps.add(this.shift).softplus().mul(ratesOf(this.decay, this.feature));
    const y = step.overState(layer, [q, k, v, decay, rate], ([q, k, v, decay, rate], state) =>
      scan({ q, k, v, decay, rate }, state),
    );
    const gate = all.narrow(2, wide, values).reshape([b, t, valueHeads, valueDim]).cast('f32').silu();
    const normed = y.rmsNorm(this.normWeight, { eps }).mul(gate);
    return this.out.forward(normed.reshape([b, t, values]).cast(x.dtype));
  }
}

export class ChannelDeltaMixer extends Module {
  readonly feature: ChannelDelta;
  /** Queries, keys, values and rates; then the narrow halves of steps and gates. */
  readonly input: Linear;
  readonly steps: Linear;
  readonly gate: Linear;
  readonly weight: Tensor;
  readonly decay: Tensor;
  readonly shift: Tensor;
  readonly normWeight: Tensor;
  readonly out: Linear;
  constructor(w: Weights, f: ChannelDelta, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { heads, headDim } = f;
    const width = heads * headDim;
    this.input = w.linear(
      [
        { role: 'stateQuery', outputs: width },
        { role: 'stateKey', outputs: width },
        { role: 'stateValue', outputs: width },
        { role: 'stateRate', outputs: heads },
        { role: 'stateStepIn', outputs: headDim },
        { role: 'stateGateIn', outputs: headDim },
      ],
      hidden,
    );
    this.steps = w.linear([{ role: 'stateStep', outputs: width }], headDim);
    this.gate = w.linear([{ role: 'stateGate', outputs: width }], headDim);
    this.weight = w.pieces('stateConv', ['q', 'k', 'v'], [3 * width, 1, f.width]);
    this.decay = w.tensor('stateDecay', [heads], undefined, 'weight', 'f32');
    this.shift = w.tensor('stateShift', [width], undefined, 'weight', 'f32');
    this.normWeight = w.normWeight('stateNorm', [headDim], 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], width, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { heads, headDim, eps, activation: name } = this.feature;
    const { step, layer } = context;
    const [b, t] = x.shape;
    const width = heads * headDim;
    const all = this.input.forward(step.withoutPads(x));
    const mixed = activation(name)(convolved(all.narrow(2, 0, 3 * width), context, this.weight)).cast('f32');
    const byHead = (y: Tensor): Tensor => y.reshape([b, t, heads, headDim]);
    const [query, key, value] = [0, 1, 2].map((i) => byHead(mixed.narrow(2, i * width, width)));
    const q = unitLength(query).affine(1 / Math.sqrt(headDim), 0);
    const rate = all
      .narrow(2, 3 * width, heads)
      .sigmoid()
      .cast('f32');
    const narrow = (i: 0 | 1): Tensor => all.narrow(2, 3 * width + heads + i * headDim, headDim);
    const speed = byHead(this.steps.forward(narrow(0)).cast('f32').add(this.shift).softplus());
    const decay = speed.mul(ratesOf(this.decay, this.feature).reshape([heads, 1]));
    const y = step.overState(layer, [q, unitLength(key), value, decay, rate], ([q, k, v, decay, rate], state) =>
      scanChannels({ q, k, v, decay, rate }, state),
    );
    const gate = byHead(this.gate.forward(narrow(1)))
      .cast('f32')
      .sigmoid();
    const normed = y.rmsNorm(this.normWeight, { eps }).mul(gate);
    return this.out.forward(normed.reshape([b, t, width]).cast(x.dtype));
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
  readonly normWeight: Tensor | undefined;
  readonly out: Linear;
  /** What the parts of the first product are multiplied by. */
  #factors: Tensor | undefined;
  protected override forget(): void {
    this.#factors?.dispose();
    this.#factors = undefined;
  }
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
    if (f.gating !== 'no norm') this.normWeight = w.normWeight('stateNorm', [this.#width], 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], values, deep);
  }
  /** The first product, its parts multiplied as the family has it. */
  #product(x: Tensor): Tensor {
    const { inFactor = 1, partFactors, heads, headDim, groups, stateDim } = this.feature;
    const made = this.input.forward(inFactor === 1 ? x : x.affine(inFactor, 0));
    if (!partFactors) return made;
    const sizes = [heads * headDim, heads * headDim, groups * stateDim, groups * stateDim, heads];
    const all = sizes.flatMap((n, i) => Array<number>(n).fill(partFactors[i]));
    this.#factors ??= x.device.now(() => keep(tensor(Float32Array.from(all), { device: x.device }).cast(x.dtype)));
    return made.mul(this.#factors);
  }
  /** A row (b, t, values) normed, as a whole or part by part. */
  #normed(row: Tensor): Tensor {
    const { eps, normGroups = 1 } = this.feature;
    const weight = this.normWeight as Tensor;
    if (normGroups === 1) return row.rmsNorm(weight, { eps });
    const [b, t, width] = row.shape;
    const parts = row.reshape([b, t, normGroups, width / normGroups]).rmsNorm(undefined, { eps });
    return parts.reshape(row.shape).mul(weight);
  }
  /** What the scan answered, (b, t, values), with its norm and its gate. */
  #gated(y: Tensor, gate: Tensor): Tensor {
    const { gating = 'norm of both' } = this.feature;
    if (gating === 'no norm') return y.mul(gate);
    const row = gating === 'norm first' ? y : y.mul(gate);
    const made = this.#shard
      ? this.#shard.overWhole((whole) => this.#normed(whole), row, this.#width)
      : this.#normed(row);
    return gating === 'norm first' ? made.mul(gate) : made;
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { heads, headDim, stateDim, groups, limits, activation: name } = this.feature;
    const { step, layer } = context;
    const [b, t] = x.shape;
    const values = heads * headDim;
    const channels = values + 2 * groups * stateDim;
    const all = this.#product(step.withoutPads(x));
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
    const rates = ratesOf(this.decay, this.feature);
    const [k, q] = [shared(values), shared(values + groups * stateDim)];
    const y = step
      .overState(layer, [q, k, value, steps], ([q, k, value, steps], state) => {
        const held = limits && !(state && steps.shape[1] === 1) ? steps.clamp(...limits) : steps;
        return scan({ q, k, v: value.mul(held.unsqueeze(3)), decay: held.mul(rates) }, state);
      })
      .add(value.mul(this.skip.unsqueeze(1)));
    const gate = all.narrow(2, 0, values).cast('f32').silu();
    return this.out.forward(this.#gated(y.reshape([b, t, values]), gate).cast(x.dtype));
  }
}

export class Mamba1Mixer extends Module {
  readonly feature: Mamba1;
  /** What the convolution reads, and the output's gate. */
  readonly input: Linear;
  readonly weight: Tensor;
  readonly bias: Tensor | undefined;
  /** From a channel's value to what its steps come from, keys and queries. */
  readonly parts: Linear;
  readonly steps: Linear;
  readonly stepNorm: Norm | undefined;
  readonly keyNorm: Norm | undefined;
  readonly queryNorm: Norm | undefined;
  /** (inner, state) */
  readonly decay: Tensor;
  readonly skip: Tensor;
  readonly out: Linear;
  constructor(w: Weights, f: Mamba1, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { inner, stateDim, rank, norms } = f;
    this.input = w.linear([{ role: 'stateIn', outputs: 2 * inner }], hidden);
    this.weight = w.tensor('stateConv', [inner, 1, f.width]);
    this.bias = w.bias('stateConv', [inner]);
    this.parts = w.linear([{ role: 'stateParts', outputs: rank + 2 * stateDim }], inner);
    this.steps = w.linear([{ role: 'stateSteps', outputs: inner }], rank);
    if (norms) {
      const kind = { kind: 'rms' as const, ...norms };
      this.stepNorm = norm(w, 'stateStepNorm', kind, rank);
      this.keyNorm = norm(w, 'stateKeyNorm', kind, stateDim);
      this.queryNorm = norm(w, 'stateQueryNorm', kind, stateDim);
    }
    this.decay = w.tensor('stateDecay', [inner, stateDim], undefined, 'weight', 'f32');
    this.skip = w.tensor('stateSkip', [inner], undefined, 'weight', 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], inner, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { inner, stateDim, rank, activation: name } = this.feature;
    const { step, layer } = context;
    const all = this.input.forward(step.withoutPads(x)); // (b, t, 2 inner)
    const conv = convolved(all.narrow(2, 0, inner), context, this.weight, this.bias);
    const value = step.withoutPads(activation(name)(conv)); // (b, t, inner)
    const parts = this.parts.forward(value);
    const part = (from: number, width: number, by: Norm | undefined): Tensor => {
      const own = parts.narrow(2, from, width);
      return by ? by.forward(own) : own;
    };
    const steps = this.steps
      .forward(part(0, rank, this.stepNorm))
      .cast('f32')
      .softplus();
    const [k, q] = [part(rank, stateDim, this.keyNorm), part(rank + stateDim, stateDim, this.queryNorm)];
    const rates = ratesOf(this.decay, this.feature);
    const wide = [value, steps, k, q].map((y) => y.cast('f32'));
    const y = step
      .overState(layer, wide, ([value, steps, k, q], state) => selectiveScan({ value, steps, k, q, rates }, state))
      .add(wide[0].mul(this.skip));
    const gate = all.narrow(2, inner, inner).cast('f32').silu();
    return this.out.forward(y.mul(gate).cast(x.dtype));
  }
}

/** Where a text begins: nothing came before, and the first token counts in full. */
const BEGINNING = {};

/** A gate by blocks of channels, (b, t, inner) to the same. */
class BlockGate extends Module {
  /** (blocks, in, out). */
  readonly weight: Tensor;
  /** (blocks, out). */
  readonly bias: Tensor | undefined;
  constructor(w: Weights, role: 'stateRate' | 'stateStep', blocks: number, each: number) {
    super();
    this.weight = w.tensor(role, [blocks, each, each]);
    this.bias = w.bias(role, [blocks, each]);
  }
  forward(value: Tensor): Tensor {
    const [b, t, inner] = value.shape;
    const [blocks, each] = this.weight.shape;
    const rows = value.reshape([b * t, blocks, each]).permute([1, 0, 2]);
    const made = rows.matmul(this.weight);
    const whole = this.bias ? made.add(this.bias.unsqueeze(1)) : made;
    return whole.permute([1, 0, 2]).reshape([b, t, inner]).cast('f32').sigmoid();
  }
}

export class RecurrenceMixer extends Module {
  readonly feature: GatedRecurrence;
  /** What the convolution reads, and the branch that multiplies the answer. */
  readonly input: Linear;
  readonly weight: Tensor;
  readonly bias: Tensor | undefined;
  /** Gates of the input and of fading. */
  readonly gates: readonly BlockGate[];
  readonly decay: Tensor;
  readonly out: Linear;
  constructor(w: Weights, f: GatedRecurrence, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { inner, blocks } = f;
    const each = inner / blocks;
    this.input = w.linear(
      [
        { role: 'stateIn', outputs: inner },
        { role: 'stateGate', outputs: inner },
      ],
      hidden,
    );
    this.weight = w.tensor('stateConv', [inner, 1, f.width]);
    this.bias = w.bias('stateConv', [inner]);
    this.gates = (['stateRate', 'stateStep'] as const).map((role) => new BlockGate(w, role, blocks, each));
    this.decay = w.tensor('stateDecay', [inner], undefined, 'weight', 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], inner, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { inner, activation: name } = this.feature;
    const { step, layer, column } = context;
    const t = x.shape[1];
    const all = this.input.forward(x);
    const value = convolved(step.withoutPads(all.narrow(2, 0, inner)), context, this.weight, this.bias);
    const [opened, speed] = this.gates.map((gate) => gate.forward(value));
    const rate = speed.mul(this.decay.softplus()).affine(-8, 0);
    const first = step
      .rows(column(BEGINNING, (p) => (p === 0 ? 1 : 0)))
      .reshape([-1, t, 1])
      .cast('f32');
    const later = first.affine(-1, 1);
    const share = rate.affine(2, 0).exp().affine(-1, 1).sqrt().mul(later).add(first);
    const added = value.cast('f32').mul(opened).mul(share);
    const y = step.overState(layer, [rate.exp().mul(later), added], ([fade, added], state) =>
      recurrence(fade, added, state),
    );
    const other = activation(name)(all.narrow(2, inner, inner));
    return this.out.forward(y.cast(x.dtype).mul(other));
  }
}

export class FadingMixer extends Module {
  readonly feature: FadingAttention;
  /** By head its query, key and value. */
  readonly input: Linear;
  readonly gate: Linear;
  readonly normWeight: Tensor;
  readonly out: Linear;
  /** What heads fade to as the file has it, rounded to its dtype: whole prompts are multiplied by these. */
  readonly tables: FadeTables | undefined;
  #rates: Tensor | undefined;
  protected override forget(): void {
    this.#rates?.dispose();
    this.#rates = undefined;
  }
  constructor(w: Weights, f: FadingAttention, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { heads, block } = f;
    const width = heads * f.headDim;
    const table = (role: Role, shape: Shape): Tensor => w.tensor(role, shape, undefined, 'weight', 'f32');
    if (w.stored && w.has('fadeRate'))
      this.tables = [
        table('fadeRate', [heads, 1, 1]),
        table('fadeQuery', [heads, block, 1]),
        table('fadeKey', [heads, block, 1]),
        table('fadePair', [1, heads, block, block]),
      ];
    this.input = w.linear([{ role: 'stateIn', outputs: 3 * width }], hidden);
    this.gate = w.linear([{ role: 'stateGate', outputs: width }], hidden);
    this.normWeight = w.normWeight('stateNorm', [width]);
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], width, deep);
  }
  protected override buffers(): readonly string[] {
    return ['tables'];
  }
  forward(x: Tensor, { layer, step }: MixerContext): Tensor {
    const { heads, headDim, rates, eps, activation: name } = this.feature;
    const [b, t] = x.shape;
    const made = step.withoutPads(activation(name)(this.input.forward(x)));
    const all = made.reshape([b, t, heads, 3 * headDim]).cast('f32');
    const parts = [0, 1, 2].map((i) => all.narrow(3, i * headDim, headDim));
    const { tables } = this;
    this.#rates ??= x.device.now(() =>
      keep(tables ? tables[0].reshape([heads]).neg() : tensor(Float32Array.from(rates), { device: x.device })),
    );
    const decay = this.#rates.broadcastTo([b, t, heads]);
    const y = step.overState(layer, [...parts, decay], ([q, k, v, decay], state) =>
      tables && !state ? scanByTables({ q, k, v }, tables) : scan({ q, k, v, decay }, state),
    );
    const normed = y
      .reshape([b, t, heads * headDim])
      .cast(x.dtype)
      .rmsNorm(this.normWeight, { eps });
    return this.out.forward(normed.mul(this.gate.forward(x).sigmoid()));
  }
}

/** A Mamba 2 layer and attention over the same input. */
export class BesideMixer extends Module {
  readonly feature: Beside;
  readonly state: MambaMixer;
  readonly attention: AttentionMixer;
  constructor(w: Weights, f: Beside, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    this.state = new MambaMixer(w, f.state, hidden, deep);
    this.attention = new AttentionMixer(w, f.attention, hidden, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { stateFactor, inFactor, outFactor } = this.feature;
    const times = (y: Tensor, by: number): Tensor => (by === 1 ? y : y.affine(by, 0));
    const remembered = times(this.state.forward(x, context), stateFactor);
    return remembered.add(times(this.attention.forward(times(x, inFactor), context), outFactor));
  }
}
