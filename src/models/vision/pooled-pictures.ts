// Pictures in stages that shrink, whose blocks mix places by means of their surroundings (PoolFormer) or by attention
// to a smaller picture, with filters in the feed-forward (SegFormer's encoder).
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type GroupNorm, groupNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import { type MultiHead, multiHead } from '../parts.js';
import type { ModelSource } from '../files/source.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';

const scaled = (x: Tensor, by: Tensor | undefined): Tensor => (by ? x.mul(by.reshape([-1, 1, 1])) : x);
/** (b, channels, h, w) to (b, places, channels), and back. */
const asPlaces = (x: Tensor): Tensor => x.reshape([x.shape[0], x.shape[1], -1]).transpose(1, 2);
const asPicture = (x: Tensor, h: number, w: number): Tensor =>
  x.transpose(1, 2).reshape([x.shape[0], x.shape[2], h, w]).contiguous();

class PoolBlock extends Module {
  readonly before: GroupNorm;
  readonly after: GroupNorm;
  readonly up: Conv2d;
  readonly down: Conv2d;
  readonly scales: readonly (Tensor | undefined)[];
  readonly #size: number;
  readonly #f: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, width: number, inner: number, size: number, f: string) {
    super();
    this.before = groupNorm(1, width, vb.pp('before_norm'));
    this.after = groupNorm(1, width, vb.pp('after_norm'));
    this.up = conv2d(width, inner, 1, vb.pp('output.conv1'));
    this.down = conv2d(inner, width, 1, vb.pp('output.conv2'));
    const scale = (name: string): Tensor | undefined => (vb.has(name) ? vb.get([width], name) : undefined);
    this.scales = [scale('layer_scale_1'), scale('layer_scale_2')];
    this.#size = size;
    this.#f = activation(f);
  }
  /** The mean of what lies around each place, less the place itself. */
  #around(x: Tensor): Tensor {
    const sums = (y: Tensor): Tensor => y.avgPool2d(this.#size, { stride: 1, padding: Math.floor(this.#size / 2) });
    // Beyond the rim there is nothing, and nothing counts.
    return sums(x)
      .div(sums(x.narrow(0, 0, 1).narrow(1, 0, 1).onesLike()))
      .sub(x);
  }
  forward(x: Tensor): Tensor {
    const y = x.add(scaled(this.#around(this.before.forward(x)), this.scales[0]));
    return y.add(scaled(this.down.forward(this.#f(this.up.forward(this.after.forward(y)))), this.scales[1]));
  }
}

interface Step {
  forward(x: Tensor): Tensor;
}
class StagedPictures extends VisionModel {
  readonly stages: readonly (Step & Module)[];
  readonly norm: GroupNorm | undefined;
  readonly channels: number;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  constructor(
    stages: readonly (Step & Module)[],
    channels: number,
    head: ReturnType<typeof pictureHead>,
    norm?: GroupNorm,
  ) {
    super();
    this.stages = stages;
    this.channels = channels;
    this.norm = norm;
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  hidden(pixels: Tensor): Tensor {
    checkPixels(pixels, this.channels);
    return this.stages.reduce((x, stage) => stage.forward(x), pixels);
  }
  pooled(hidden: Tensor): Tensor {
    return (this.norm ? this.norm.forward(hidden) : hidden).mean([2, 3]);
  }
}

function poolFormer(c: Config, source: ModelSource): StagedPictures {
  ignoreStages(c);
  c.ignore('patch_size', 'stride', 'use_layer_scale');
  const [sizes, depths] = [c.numbers('hidden_sizes'), c.numbers('depths')];
  const n = sizes.length;
  c.only('num_encoder_blocks', n);
  const [patches, strides, rims] = ['patch_sizes', 'strides', 'padding'].map((name) => c.numbers(name, n));
  const [size, ratio, f] = [c.count('pool_size', 3, 1), c.number('mlp_ratio', 4), c.activation('hidden_act', 'gelu')];
  const channels = c.count('num_channels', 3, 1);
  const inside = source.names.some((name) => name.startsWith('poolformer.'));
  const vb = (inside ? source.builder.pp('poolformer') : source.builder).pp('encoder');
  const stages = sizes.flatMap((to, i): (Step & Module)[] => [
    conv2d(i === 0 ? channels : sizes[i - 1], to, patches[i], vb.pp('patch_embeddings', i, 'projection'), {
      ...{ stride: strides[i], padding: rims[i] },
    }),
    ...Array.from(
      { length: depths[i] },
      (_, k) => new PoolBlock(vb.pp('block', i, k), to, Math.trunc(to * ratio), size, f),
    ),
  ]);
  const norm = source.has('norm.weight') ? groupNorm(1, sizes[n - 1], source.builder.pp('norm')) : undefined;
  return new StagedPictures(stages, channels, pictureHead(c, source, sizes[n - 1]), norm);
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
class PlaceNorm extends Module {
  readonly norm: LayerNorm;
  constructor(norm: LayerNorm) {
    super();
    this.norm = norm;
  }
  forward(x: Tensor): Tensor {
    return asPicture(this.norm.forward(asPlaces(x)), x.shape[2], x.shape[3]);
  }
}
function segFormer(c: Config, source: ModelSource): StagedPictures {
  ignoreStages(c);
  // Only how the last stage is laid out, and what the head for segments is like.
  c.ignore('reshape_last_stage', 'decoder_hidden_size', 'semantic_loss_ignore_index', 'layer_norm_eps', 'image_size');
  c.ignore('downsampling_rates');
  const [sizes, depths] = [c.numbers('hidden_sizes'), c.numbers('depths')];
  const n = sizes.length;
  c.only('num_encoder_blocks', n);
  const lists = ['patch_sizes', 'strides', 'num_attention_heads', 'sr_ratios', 'mlp_ratios'];
  const [patches, strides, heads, smaller, ratios] = lists.map((name) => c.numbers(name, n));
  const [channels, f] = [c.count('num_channels', 3, 1), c.activation('hidden_act', 'gelu')];
  const inside = source.names.some((name) => name.startsWith('segformer.'));
  const vb = (inside ? source.builder.pp('segformer') : source.builder).pp('encoder');
  const stages = sizes.flatMap((to, i): (Step & Module)[] => {
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
  return new StagedPictures(stages, channels, pictureHead(c, source, sizes[n - 1]));
}

const BUILT = { poolformer: poolFormer, segformer: segFormer };
export const POOLED_PICTURE_FAMILIES: readonly ModelRow[] = Object.entries(BUILT).map(([type, build]) => ({
  kind: 'vision',
  types: [type],
  build,
}));
