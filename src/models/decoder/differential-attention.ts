// Attention whose heads come in pairs: of two answers over the same values, a learnt part of the second is taken away.
import type { Init } from '../../nn/init.js';
import type { AnyLinear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Attention } from './features.js';
import type { MixerContext } from './mixers.js';
import { rowOrder } from './rope.js';
import type { Role } from './roles.js';
import type { Weights } from './weights.js';

/** Products of two vectors each: the first pair adds to the part that is taken away, the second takes from it. */
const PAIRS: readonly Role[] = ['pairQuery1', 'pairKey1', 'pairQuery2', 'pairKey2'];

export class DifferentialMixer extends Module {
  readonly feature: Attention;
  readonly qkv: AnyLinear;
  readonly out: AnyLinear;
  readonly pairs: readonly Tensor[];
  readonly #narrow: number;
  constructor(w: Weights, f: Attention, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    // A value is as wide as those of both heads that share it; queries and keys are half of that.
    const narrow = f.headDim / 2;
    this.#narrow = narrow;
    const order = rowOrder(f.rope);
    this.qkv = w.linear(
      [
        { role: 'q', outputs: f.heads * narrow, order },
        { role: 'k', outputs: f.kvHeads * narrow, order },
        { role: 'v', outputs: f.kvHeads * narrow },
      ],
      hidden,
    );
    this.out = w.linear([{ role: 'o', outputs: hidden }], f.heads * narrow, deep);
    this.pairs = PAIRS.map((role) => w.tensor(role, [narrow], undefined, 'weight', 'f32'));
  }
  forward(x: Tensor, { step, layer, tables }: MixerContext): Tensor {
    const { heads, kvHeads, headDim, scale, rope, differential } = this.feature;
    const { begin, eps } = differential as NonNullable<Attention['differential']>;
    const [b, t] = x.shape;
    const all = this.qkv.forward(x).reshape([b, t, heads + 2 * kvHeads, this.#narrow]);
    let q = all.narrow(2, 0, heads);
    let k = all.narrow(2, heads, kvHeads);
    const v = all.narrow(2, heads + kvHeads, kvHeads);
    if (rope) {
      const { cos, sin } = tables(rope);
      const [c, s] = [step.rows(cos), step.rows(sin)];
      [q, k] = [q.ropeThd(c, s), k.ropeThd(c, s)];
    }
    // Zeros make queries and keys as wide as values: they change no score.
    const wide = (y: Tensor): Tensor => y.cat([y.newZeros(y.shape, y.dtype)], 3);
    const half = kvHeads / 2;
    const both = v.narrow(2, 0, half).cat([v.narrow(2, half, half)], 3); // (b, t, half, headDim)
    const y = step.attend(layer, wide(q), wide(k), both.cat([both], 2), { scale });
    const [first, second] = [y.narrow(2, 0, heads / 2), y.narrow(2, heads / 2, heads / 2)];
    const [q1, k1, q2, k2] = this.pairs;
    const grown = (a: Tensor, c: Tensor): Tensor => a.mul(c).sum([0], true).exp().cast(x.dtype);
    const taken = grown(q1, k1).sub(grown(q2, k2)).affine(1, begin);
    const left = first
      .sub(second.mul(taken))
      .rmsNorm(undefined, { eps })
      .affine(1 - begin, 0);
    return this.out.forward(left.reshape([b, t, (heads / 2) * headDim]));
  }
}
