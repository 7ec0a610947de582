// Attention whose keys have weights of their own beside what a query makes of them: Doge's, made of the values.
import type { Init } from '../../nn/init.js';
import type { AnyLinear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Attention, QkNorm } from './features.js';
import { HeadNorm, type MixerContext } from './mixers.js';
import { rowOrder } from './rope.js';
import type { Weights } from './weights.js';

/** Keys are so much wider than stored ones: a key's own weight is one more number, which queries multiply by one. */
export const WEIGHT_ROOM = 8;

export class WeighedKeysMixer extends Module {
  readonly feature: Attention;
  readonly qkv: AnyLinear;
  readonly out: AnyLinear;
  readonly qNorm: HeadNorm;
  readonly kNorm: HeadNorm;
  /** From all values of a token to a number a key head, and what its steps are multiplied by. */
  readonly steps: AnyLinear;
  readonly rate: Tensor;
  readonly #narrow: number;
  constructor(w: Weights, f: Attention, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const [{ heads, kvHeads }, narrow, order] = [f, f.headDim - WEIGHT_ROOM, rowOrder(f.rope)];
    this.#narrow = narrow;
    this.qkv = w.linear(
      [
        { role: 'q', outputs: heads * narrow, order },
        { role: 'k', outputs: kvHeads * narrow, order },
        { role: 'v', outputs: kvHeads * narrow },
      ],
      hidden,
    );
    this.out = w.linear([{ role: 'o', outputs: hidden }], heads * narrow, deep);
    const norm = f.qkNorm as QkNorm;
    this.qNorm = new HeadNorm(w, 'qNorm', norm, heads, narrow, order);
    this.kNorm = new HeadNorm(w, 'kNorm', norm, kvHeads, narrow, order);
    this.steps = w.linear([{ role: 'keyStep', outputs: kvHeads }], kvHeads * narrow);
    this.rate = w.tensor('keyRate', [kvHeads], undefined, 'weight', 'f32');
  }
  forward(x: Tensor, { step, layer, tables }: MixerContext): Tensor {
    const { heads, kvHeads, scale, rope, window } = this.feature;
    const [b, t] = x.shape;
    const all = this.qkv.forward(x).reshape([b, t, heads + 2 * kvHeads, this.#narrow]);
    let q = this.qNorm.forward(all.narrow(2, 0, heads));
    let k = this.kNorm.forward(all.narrow(2, heads, kvHeads));
    const v = all.narrow(2, heads + kvHeads, kvHeads);
    if (rope) {
      const { cos, sin } = tables(rope);
      const [c, s] = [step.rows(cos), step.rows(sin)];
      [q, k] = [q.ropeThd(c, s), k.ropeThd(c, s)];
    }
    const steps = this.steps.forward(v.reshape([b, t, kvHeads * this.#narrow])).cast('f32');
    // Scores are multiplied by `scale`, and this is not.
    const weight = steps
      .softplus()
      .mul(this.rate)
      .exp()
      .affine(1 / scale, 0)
      .cast(x.dtype);
    const rest = (y: Tensor, n: number, of: number): Tensor => y.newZeros([b, t, of, n], y.dtype);
    const wideQ = q.cat([rest(q, 1, heads).affine(1, 1), rest(q, WEIGHT_ROOM - 1, heads)], 3);
    const wideK = k.cat([weight.unsqueeze(3), rest(k, WEIGHT_ROOM - 1, kvHeads)], 3);
    const wideV = v.cat([rest(v, WEIGHT_ROOM, kvHeads)], 3);
    const y = step.attend(layer, wideQ, wideK, wideV, { scale, window });
    return this.out.forward(y.narrow(3, 0, this.#narrow).reshape([b, t, heads * this.#narrow]));
  }
}
