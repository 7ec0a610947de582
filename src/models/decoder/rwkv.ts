// RWKV: instead of attention a mean of all values so far, each weighed by its key and fading by channel; and a
// feed-forward that looks one token back. Both read mixes of a token and the one before it.
import { activation } from '../../nn/activation.js';
import type { Init } from '../../nn/init.js';
import type { AnyLinear as Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { FadingMean, FedBack } from './features.js';
import type { MixerContext } from './mixers.js';
import type { Role } from './roles.js';
import type { Weights } from './weights.js';

/** Tokens that go through at once: each looks at all of them before it, channel by channel. */
const CHUNK = 16;
/** The logarithm of no weight at all. */
const NONE = -1e30;

/** The vectors of the tokens before, (b, t, width); before the first there is nothing. */
const before = (x: Tensor, { layer, step }: MixerContext): Tensor =>
  step
    .overColumns(layer, x.transpose(1, 2), 1, (columns) => columns.narrow(2, 0, columns.shape[2] - 1))
    .transpose(1, 2);
/** So much of x, and the rest of what came before. */
const between = (x: Tensor, last: Tensor, share: Tensor): Tensor => last.add(x.sub(last).mul(share));

/**
 * Means of values (b, t, channels) by weights e^key that fade by e^rate from token to token, a token's own times
 * e^bonus: what is left of those before is a mean and the logarithm of its weight, (b, 2, channels).
 */
function fadingMeans(
  { keys, values, rates, bonus }: Readonly<Record<'keys' | 'values' | 'rates' | 'bonus', Tensor>>,
  state: Tensor | undefined,
): { readonly y: Tensor; readonly state: Tensor } {
  const [b, t, channels] = keys.shape;
  const start = keys.newZeros([b, 1, channels], 'f32');
  let [mean, weight] = state ? [state.narrow(1, 0, 1), state.narrow(1, 1, 1)] : [start, start.affine(1, NONE)];
  const parts: Tensor[] = [];
  for (let from = 0; from < t; from += CHUNK) {
    const n = Math.min(CHUNK, t - from);
    const [k, v] = [keys, values].map((x) => x.narrow(1, from, n));
    const table = (f: (row: number, column: number) => number): Tensor => {
      const data = Float32Array.from({ length: (n + 1) * (n + 1) }, (_, i) => f(Math.floor(i / (n + 1)), i % (n + 1)));
      return tensor(data, { shape: [1, n + 1, n + 1, 1], device: keys.device });
    };
    // Rows are tokens and, last, what is left for those behind; columns what was before, then the tokens.
    const steps = table((row, column) => (column === 0 ? row : Math.max(0, row - column)));
    const closed = table((row, column) => (column > row + (row < n ? 1 : 0) ? NONE : 0));
    const own = table((row, column) => (row < n && column === row + 1 ? 1 : 0));
    const given = weight.cat([k], 1).unsqueeze(1); // (b, 1, n + 1, channels)
    const scores = given.add(steps.mul(rates)).add(own.mul(bonus)).add(closed);
    const shares = scores.softmax(2);
    const means = shares.mul(mean.cat([v], 1).unsqueeze(1)).sum([2]); // (b, n + 1, channels)
    parts.push(means.narrow(1, 0, n));
    const last = scores.narrow(1, n, 1).squeeze([1]); // (b, n + 1, channels)
    const most = last.max([1], true);
    weight = last.sub(most).exp().sum([1], true).log().add(most);
    mean = means.narrow(1, n, 1);
  }
  return { y: parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 1), state: mean.cat([weight], 1) };
}

export class FadingMeanMixer extends Module {
  readonly feature: FadingMean;
  readonly shares: readonly Tensor[];
  readonly key: Linear;
  readonly value: Linear;
  readonly gate: Linear;
  readonly rate: Tensor;
  readonly bonus: Tensor;
  readonly out: Linear;
  constructor(w: Weights, f: FadingMean, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const product = (role: Role): Linear => w.linear([{ role, outputs: f.inner }], hidden);
    this.shares = (['mixKey', 'mixValue', 'mixGate'] as const).map((role) => w.tensor(role, [1, 1, hidden]));
    [this.key, this.value, this.gate] = (['stateKey', 'stateValue', 'stateGate'] as const).map(product);
    this.rate = w.tensor('stateDecay', [f.inner], undefined, 'weight', 'f32');
    this.bonus = w.tensor('stateSkip', [f.inner], undefined, 'weight', 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], f.inner, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { step, layer } = context;
    const real = step.withoutPads(x);
    const last = before(real, context);
    const [k, v, r] = [this.key, this.value, this.gate].map((p, i) => p.forward(between(real, last, this.shares[i])));
    // Padding weighs nothing.
    const closed =
      real === x
        ? undefined
        : step
            .withoutPads(x.narrow(2, 0, 1).onesLike())
            .cast('f32')
            .affine(-NONE, NONE);
    const wide = k.cast('f32');
    const [rates, bonus] = [this.rate.cast('f32').exp().neg(), this.bonus.cast('f32')];
    const inputs = [closed ? wide.add(closed) : wide, v.cast('f32')];
    const y = step.overState(layer, inputs, ([keys, values], state) =>
      fadingMeans({ keys, values, rates, bonus }, state),
    );
    return this.out.forward(r.sigmoid().mul(y.cast(x.dtype)));
  }
}

export class FedBackMixer extends Module {
  readonly feature: FedBack;
  readonly shares: readonly Tensor[];
  readonly up: Linear;
  readonly gate: Linear;
  readonly down: Linear;
  constructor(w: Weights, f: FedBack, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    this.shares = (['mixUp', 'mixOpen'] as const).map((role) => w.tensor(role, [1, 1, hidden]));
    this.up = w.linear([{ role: 'up', outputs: f.inner }], hidden);
    this.gate = w.linear([{ role: 'gate', outputs: hidden }], hidden);
    this.down = w.linear([{ role: 'down', outputs: hidden }], f.inner, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const real = context.step.withoutPads(x);
    const last = before(real, context);
    const [up, open] = this.shares.map((share) => between(real, last, share));
    const fed = this.down.forward(activation('relu2')(this.up.forward(up)));
    return this.gate.forward(open).sigmoid().mul(fed);
  }
}
