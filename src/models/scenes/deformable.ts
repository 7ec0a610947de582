// Attention to few places of several maps: each head tells where it looks around a thing's box, and how much each place
// counts.
import { type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';

/** Maps (b, h * w, width), one behind the other, and their sizes. */
export interface Maps {
  readonly places: Tensor;
  readonly sizes: readonly (readonly [height: number, width: number])[];
}
export interface DeformableConfig {
  readonly width: number;
  readonly heads: number;
  readonly levels: number;
  /** Places that a head looks at in each map. */
  readonly points: number;
  /** How far from a box's middle, in its sides, the outermost place of all is; one half as a rule. */
  readonly reach: number;
}
export class DeformableAttention extends Module {
  readonly offsets: Linear;
  readonly shares: Linear;
  readonly value: Linear;
  readonly out: Linear;
  readonly #c: DeformableConfig;
  constructor(vb: VarBuilder, c: DeformableConfig) {
    super();
    const looks = c.heads * c.levels * c.points;
    this.offsets = linear(c.width, 2 * looks, vb.pp('sampling_offsets'));
    this.shares = linear(c.width, looks, vb.pp('attention_weights'));
    this.value = linear(c.width, c.width, vb.pp('value_proj'));
    this.out = linear(c.width, c.width, vb.pp('output_proj'));
    this.#c = c;
  }
  /** Width and height of the map that each look is at. */
  #sidesOf(sizes: Maps['sizes'], like: Tensor): Tensor {
    const { points } = this.#c;
    const sides = sizes.flatMap(([h, w]) => Array.from({ length: points }, () => [w, h]).flat());
    return tensor(Float32Array.from(sides), { shape: [1, 1, 1, sides.length / 2, 2], device: like.device }).cast(
      like.dtype,
    );
  }
  /**
   * Of questions (b, q, width) about boxes (b, q, 4), middle and size, as shares of the picture; or about places
   * (b or 1, q, 2), around which steps are those of each map.
   */
  forward(x: Tensor, boxes: Tensor, { places, sizes }: Maps): Tensor {
    const { heads, levels, points, reach } = this.#c;
    const [b, q, width] = x.shape;
    const d = width / heads;
    const shares = this.shares
      .forward(x)
      .reshape([b, q, heads, levels * points])
      .softmax(-1)
      .transpose(1, 2)
      .reshape([b * heads, 1, q, levels * points]);
    const [rows, , numbers] = boxes.shape;
    const around = boxes.reshape([rows, q, 1, 1, numbers]);
    const steps = this.offsets.forward(x).reshape([b, q, heads, levels * points, 2]);
    const far =
      numbers === 4 ? steps.mul(around.narrow(4, 2, 2)).affine(reach / points, 0) : steps.div(this.#sidesOf(sizes, x));
    const at = far
      .add(around.narrow(4, 0, 2))
      .affine(2, -1)
      .transpose(1, 2)
      .reshape([b * heads, q, levels * points, 2]);
    const values = this.value.forward(places);
    let from = 0;
    const seen = sizes.map(([h, w], level) => {
      const map = values
        .narrow(1, from, h * w)
        .transpose(1, 2)
        .reshape([b * heads, d, h, w]);
      from += h * w;
      return map.gridSample(at.narrow(2, level * points, points).contiguous());
    });
    const sum = seen[0].cat(seen.slice(1), 3).mul(shares).sum([3]);
    return this.out.forward(sum.reshape([b, width, q]).transpose(1, 2).contiguous());
  }
}
