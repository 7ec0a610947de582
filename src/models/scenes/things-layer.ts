// A layer that asks maps for things, and the boxes that the things begin with: of RT-DETR and Deformable DETR.
import { type LayerNorm, layerNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type FeedForward, feedForward, type MultiHead, multiHead } from '../parts.js';
import { DeformableAttention, type DeformableConfig, type Maps } from './deformable.js';
import { DETR_NAMES, type LayerConfig } from './map-mixer.js';

/** Things look at each other, and then at few places of several maps around where each is thought to be. */
export class ThingsLayer extends Module {
  readonly own: MultiHead;
  readonly ownNorm: LayerNorm;
  readonly seen: DeformableAttention;
  readonly seenNorm: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, c: LayerConfig, looks: DeformableConfig) {
    super();
    const norm = (name: string): LayerNorm => layerNorm(c.width, vb.pp(name), { eps: c.eps });
    this.own = multiHead(vb.pp('self_attn'), DETR_NAMES, c.width, c.heads);
    this.ownNorm = norm('self_attn_layer_norm');
    this.seen = new DeformableAttention(vb.pp('encoder_attn'), looks);
    this.seenNorm = norm('encoder_attn_layer_norm');
    this.mlp = feedForward(vb, ['fc1', 'fc2'], c.width, c.inner, c.activation);
    this.norm = norm('final_layer_norm');
  }
  forward(x: Tensor, at: Tensor, boxes: Tensor, maps: Maps): Tensor {
    const y = this.ownNorm.forward(x.add(this.own.forward(x.add(at), { values: x })));
    const z = this.seenNorm.forward(y.add(this.seen.forward(y.add(at), boxes, maps)));
    return this.norm.forward(z.add(this.mlp.forward(z)));
  }
}

/** Boxes that places of maps begin with, before the sigmoid; those at the rim are as far off as numbers go. */
export function firstBoxes(sizes: Maps['sizes'], like: Tensor): readonly [boxes: Tensor, inside: Tensor] {
  const rows = sizes.flatMap(([h, w], level) =>
    Array.from({ length: h * w }, (_, i) => {
      const side = 0.05 * 2 ** level;
      return [((i % w) + 0.5) / w, (Math.floor(i / w) + 0.5) / h, side, side];
    }),
  );
  const inside = rows.map((row) => row.every((v) => v > 0.01 && v < 0.99));
  const boxes = rows.flatMap((row, i) => row.map((v) => (inside[i] ? Math.log(v / (1 - v)) : 3.4028234663852886e38)));
  const of = (data: readonly number[], width: number): Tensor =>
    tensor(Float32Array.from(data), { shape: [1, rows.length, width], device: like.device }).cast(like.dtype);
  return [of(boxes, 4), of(inside.map(Number), 1)];
}
/** What a sigmoid made of it, as far as numbers go. */
export const unsigmoid = (x: Tensor): Tensor => {
  const inside = x.clamp(0, 1);
  return inside.maximum(1e-5).div(inside.affine(-1, 1).maximum(1e-5)).log();
};
