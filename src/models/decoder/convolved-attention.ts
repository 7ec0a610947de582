// Attention over convolved queries and keys, whose values are half the token before's (ZAYA).
import type { Init } from '../../nn/init.js';
import type { AnyLinear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { tensor } from '../../tensor/create.js';
import { keep } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { ConvolvedAttention } from './features.js';
import type { MixerContext } from './mixers.js';
import { rowOrder } from './rope.js';
import type { Weights } from './weights.js';

/** The shortest that heads count as. */
const SHORTEST = 2 ** -23;

export class ConvolvedAttentionMixer extends Module {
  readonly feature: ConvolvedAttention;
  /** Queries, keys and the values of the token itself. */
  readonly input: AnyLinear;
  /** The values that the next token sees; their bias stands apart, since it counts before a text's first, too. */
  readonly lateValue: AnyLinear;
  readonly lateBias: Tensor | undefined;
  readonly byChannel: Tensor;
  readonly channelBias: Tensor;
  readonly byHead: Tensor;
  readonly headBias: Tensor;
  /** What keys are multiplied by, a number a head. */
  readonly keyScale: Tensor;
  readonly out: AnyLinear;
  #order: Tensor | undefined;
  protected override forget(): void {
    this.#order?.dispose();
    this.#order = undefined;
  }
  constructor(w: Weights, f: ConvolvedAttention, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { heads, kvHeads, headDim } = f.attention;
    const half = (kvHeads * headDim) / 2;
    const channels = (heads + kvHeads) * headDim;
    this.input = w.linear(
      [
        { role: 'q', outputs: heads * headDim },
        { role: 'k', outputs: kvHeads * headDim },
        { role: 'v', outputs: half },
      ],
      hidden,
    );
    this.lateValue = w.linear([{ role: 'lateValue', outputs: half }], hidden);
    if (f.biased) this.lateBias = w.tensor('lateValue', [half], undefined, 'bias');
    this.byChannel = w.tensor('conv', [channels, 1, f.widths[0]]);
    this.channelBias = w.tensor('conv', [channels], undefined, 'bias');
    this.byHead = w.tensor('convByHead', [channels, headDim, f.widths[1]]);
    this.headBias = w.tensor('convByHead', [channels], undefined, 'bias');
    this.keyScale = w.tensor('keyScale', [kvHeads]);
    this.out = w.linear([{ role: 'o', outputs: hidden }], heads * headDim, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { heads, kvHeads, headDim, rope, scale, window } = this.feature.attention;
    const { layer, step, tables } = context;
    const given = step.withoutPads(x);
    const [b, t] = x.shape;
    const read = this.input.forward(given);
    const both = read.narrow(2, 0, (heads + kvHeads) * headDim);
    const { mixed, late } = this.#convolved(both, this.lateValue.forward(given), context);
    // What is convolved is added to queries and keys that each have half of the others'.
    const each = heads / kvHeads;
    const plainQ = both.narrow(2, 0, heads * headDim).reshape([b, t, kvHeads, each, headDim]);
    const plainK = both.narrow(2, heads * headDim, kvHeads * headDim).reshape([b, t, kvHeads, 1, headDim]);
    const mean = plainQ.add(plainK).affine(0.5, 0);
    const q = mixed.narrow(2, 0, heads).add(mean.reshape([b, t, heads, headDim]));
    const k = mixed.narrow(2, heads, kvHeads).add(mean.mean([3], false));
    const long = (y: Tensor): Tensor => {
      const length = y.cast('f32').sqr().sum([3], true).sqrt().clamp(SHORTEST, Infinity);
      return y.mul(length.recip().affine(Math.sqrt(headDim), 0).cast(y.dtype));
    };
    const [longQ, longK] = [long(q), long(k).mul(this.keyScale.reshape([kvHeads, 1]))];
    const turn = (y: Tensor): Tensor => {
      if (!rope) return y;
      const { cos, sin } = tables(rope);
      return this.#ordered(y).ropeThd(step.rows(cos), step.rows(sin));
    };
    const own = read.narrow(2, (heads + kvHeads) * headDim, (kvHeads * headDim) / 2);
    const v = own.cat([late], 2).reshape([b, t, kvHeads, headDim]);
    const y = step.attend(layer, turn(longQ), turn(longK), v, { scale, ...(window !== undefined && { window }) });
    return this.out.forward(y.reshape([b, t, heads * headDim]));
  }
  /** Queries and keys through both convolutions, by head, and the values of the token before. */
  #convolved(both: Tensor, values: Tensor, { step, layer }: MixerContext): { mixed: Tensor; late: Tensor } {
    const { attention, widths } = this.feature;
    const { heads, kvHeads, headDim } = attention;
    const [b, t, channels] = both.shape;
    const half = values.shape[2];
    const before = widths[0] + widths[1] - 2;
    const count = Math.max(before, 1);
    const columns = both.cat([values], 2).permute([0, 2, 1]);
    const made = step.overColumns(layer, columns, count, (all) => {
      const own = all.shape[2] - count; // a run's, where several go together
      const first = all.narrow(1, 0, channels).narrow(2, count - before, before + own);
      const second = first.conv1d(this.byChannel, { groups: channels, bias: this.channelBias });
      const third = second.conv1d(this.byHead, { groups: heads + kvHeads, bias: this.headBias });
      return third.cat([all.narrow(1, channels, half).narrow(2, count - 1, own)], 1);
    });
    const answers = made.permute([0, 2, 1]);
    const late = answers.narrow(2, channels, half);
    return {
      mixed: answers.narrow(2, 0, channels).reshape([b, t, heads + kvHeads, headDim]),
      late: this.lateBias ? late.add(this.lateBias) : late,
    };
  }
  /** Heads (b, t, n, dim) in the order that ropes turn them in: convolutions read the stored one. */
  #ordered(y: Tensor): Tensor {
    const order = rowOrder(this.feature.attention.rope);
    if (!order) return y;
    this.#order ??= y.device.now(() => keep(tensor(Uint32Array.from(order), { device: y.device })));
    return y.indexSelect(3, this.#order);
  }
}
