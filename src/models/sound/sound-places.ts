// Convolutions that tell the places of moments: one whose weight is stored as directions and lengths, which may make
// several moments one (SEW), or several with norms (data2vec).
import { activation } from '../../nn/activation.js';
import { Conv1d, conv1d } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { LayerNorm } from '../../nn/norm.js';

export interface PlacesConfig {
  readonly kernel: number;
  readonly groups: number;
  /** The activation behind each. */
  readonly bend: string;
  /** So many convolutions with norms instead of one without. */
  readonly layers?: number;
  /** So many moments become one. */
  readonly fold?: number;
}

/** A convolution whose weight is stored as directions and, for each place of its kernel, their length. */
function lengthConv(vb: VarBuilder, width: number, { kernel, groups, fold = 1 }: PlacesConfig): Conv1d {
  const old = vb.has('weight_g');
  const [length, direction] = old
    ? ['weight_g', 'weight_v']
    : ['original0', 'original1'].map((n) => `parametrizations.weight.${n}`);
  const [g, v] = [vb.get([1, 1, kernel], length), vb.get([width, width / groups, kernel], direction)];
  const weight = keep(scope(() => v.mul(g.div(v.sqr().sum([0, 1], true).sqrt()))));
  for (const t of [g, v]) t.dispose();
  return new Conv1d(weight, vb.get([width], 'bias'), { padding: Math.floor(kernel / 2), groups, stride: fold });
}

export class SoundPlaces extends Module {
  readonly convs: readonly Conv1d[];
  readonly #config: PlacesConfig;
  readonly #norm: LayerNorm | undefined;
  readonly #bend: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, width: number, c: PlacesConfig) {
    super();
    this.#config = c;
    this.#bend = activation(c.bend);
    const { kernel, groups } = c;
    const config = { padding: Math.floor(kernel / 2), groups };
    this.convs =
      c.layers === undefined
        ? [lengthConv(vb.pp('conv'), width, c)]
        : Array.from({ length: c.layers }, (_, i) => conv1d(width, width, kernel, vb.pp('layers', i, 'conv'), config));
    // Nothing of it is learnt.
    this.#norm = c.layers === undefined ? undefined : new LayerNorm(width, { affine: false });
  }
  /** Vectors of moments (b, t, width) with what tells their places added; of several that become one, their mean. */
  forward(x: Tensor): Tensor {
    const { kernel, fold = 1 } = this.#config;
    const placed = this.convs.reduce((h, conv) => {
      // A kernel of even width makes one moment too many.
      const y = conv.forward(h);
      const cut = kernel % 2 === 0 ? y.narrow(2, 0, y.shape[2] - 1).contiguous() : y;
      const normed = this.#norm ? this.#norm.forward(cut.transpose(1, 2)).transpose(1, 2).contiguous() : cut;
      return this.#bend(normed);
    }, x.transpose(1, 2).contiguous());
    const added = placed.transpose(1, 2);
    if (fold === 1) return x.add(added);
    const [b, t, width] = x.shape;
    const whole = Math.floor(t / fold);
    const means = x
      .narrow(1, 0, whole * fold)
      .reshape([b, whole, fold, width])
      .mean([2]);
    const count = Math.min(whole, added.shape[1]);
    return means.narrow(1, 0, count).add(added.narrow(1, 0, count));
  }
  /** Which of the moments that are left are real, u8 (b, t). */
  folded(real: Tensor): Tensor {
    const { fold = 1 } = this.#config;
    if (fold === 1) return real;
    const [b, t] = real.shape;
    const whole = Math.floor(t / fold);
    return real
      .narrow(1, 0, whole * fold)
      .cast('f32')
      .reshape([b, whole, fold])
      .max([2])
      .gt(0);
  }
}
