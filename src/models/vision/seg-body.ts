// SegFormer's encoder, which GLPN has, too: stages that shrink a picture, whose places look at a smaller one of
// themselves, with filters in the feed-forward.
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { type MultiHead, multiHead } from '../parts.js';
import { checkPixels, ignoreStages } from './vision-model.js';

/** (b, channels, h, w) to (b, places, channels), and back. */
export const asPlaces = (x: Tensor): Tensor => x.reshape([x.shape[0], x.shape[1], -1]).transpose(1, 2);
export const asPicture = (x: Tensor, h: number, w: number): Tensor =>
  x.transpose(1, 2).reshape([x.shape[0], x.shape[2], h, w]).contiguous();

export interface Step {
  forward(x: Tensor): Tensor;
}
/** Places look at those of a picture that a convolution made smaller. */
class SegBlock extends Module {
  readonly norm1: LayerNorm;
  readonly attention: MultiHead;
  readonly shrink: Conv2d | undefined;
  readonly shrunk: LayerNorm | undefined;
  readonly norm2: LayerNorm;
  readonly up: Linear;
  readonly filter: Conv2d;
  readonly down: Linear;
  readonly #f: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, width: number, o: { heads: number; smaller: number; inner: number; f: string }) {
    super();
    const { heads, smaller, inner, f } = o;
    const own = vb.pp('attention.self');
    this.norm1 = layerNorm(width, vb.pp('layer_norm_1'));
    const names = { q: 'self.query', k: 'self.key', v: 'self.value', out: 'output.dense' };
    this.attention = multiHead(vb.pp('attention'), names, width, heads);
    this.shrink = smaller > 1 ? conv2d(width, width, smaller, own.pp('sr'), { stride: smaller }) : undefined;
    this.shrunk = smaller > 1 ? layerNorm(width, own.pp('layer_norm')) : undefined;
    this.norm2 = layerNorm(width, vb.pp('layer_norm_2'));
    this.up = linear(width, inner, vb.pp('mlp.dense1'));
    this.filter = conv2d(inner, inner, 3, vb.pp('mlp.dwconv.dwconv'), { padding: 1, groups: inner });
    this.down = linear(inner, width, vb.pp('mlp.dense2'));
    this.#f = activation(f);
  }
  forward(x: Tensor): Tensor {
    const [, , h, w] = x.shape;
    const places = asPlaces(x);
    const normed = this.norm1.forward(places);
    const context = this.shrink && this.shrunk?.forward(asPlaces(this.shrink.forward(asPicture(normed, h, w))));
    const y = places.add(this.attention.forward(normed, context ? { context } : {}));
    const wide = asPlaces(this.filter.forward(asPicture(this.up.forward(this.norm2.forward(y)), h, w)));
    return asPicture(y.add(this.down.forward(this.#f(wide))), h, w);
  }
}
/** A norm of each place's channels. */
export class PlaceNorm extends Module {
  readonly norm: LayerNorm;
  constructor(norm: LayerNorm) {
    super();
    this.norm = norm;
  }
  forward(x: Tensor): Tensor {
    return asPicture(this.norm.forward(asPlaces(x)), x.shape[2], x.shape[3]);
  }
}
/** What a SegFormer's encoder is made of: for each of its sizes the stages that lead to it. */
export interface SegBody {
  readonly levels: readonly (readonly (Step & Module)[])[];
  readonly sizes: readonly number[];
  readonly channels: number;
}
export function segBody(c: Config, vb: VarBuilder): SegBody {
  ignoreStages(c);
  c.ignore('reshape_last_stage', 'layer_norm_eps', 'image_size', 'downsampling_rates');
  const [sizes, depths] = [c.numbers('hidden_sizes'), c.numbers('depths')];
  const n = sizes.length;
  c.only('num_encoder_blocks', n);
  const lists = ['patch_sizes', 'strides', 'num_attention_heads', 'sr_ratios', 'mlp_ratios'];
  const [patches, strides, heads, smaller, ratios] = lists.map((name) => c.numbers(name, n));
  const [channels, f] = [c.count('num_channels', 3, 1), c.activation('hidden_act', 'gelu')];
  const levels = sizes.map((to, i): (Step & Module)[] => {
    const at = vb.pp('patch_embeddings', i);
    const o = { heads: heads[i], smaller: smaller[i], inner: Math.trunc(to * ratios[i]), f };
    return [
      conv2d(i === 0 ? channels : sizes[i - 1], to, patches[i], at.pp('proj'), {
        ...{ stride: strides[i], padding: Math.floor(patches[i] / 2) },
      }),
      new PlaceNorm(layerNorm(to, at.pp('layer_norm'))),
      ...Array.from({ length: depths[i] }, (_, k) => new SegBlock(vb.pp('block', i, k), to, o)),
      new PlaceNorm(layerNorm(to, vb.pp('layer_norm', i))),
    ];
  });
  return { levels, sizes, channels };
}
/** The maps that come out of each of its sizes. */
export function segMaps({ levels, channels }: SegBody, pixels: Tensor): Tensor[] {
  checkPixels(pixels, channels);
  let x = pixels;
  return levels.map((stages) => (x = stages.reduce((h, stage) => stage.forward(h), x)));
}
