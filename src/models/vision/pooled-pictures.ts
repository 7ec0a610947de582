// Pictures in stages that shrink, whose blocks mix places by means of their surroundings (PoolFormer) or by attention
// (SegFormer's classifier).
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type GroupNorm, groupNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import type { ModelSource } from '../files/source.js';
import { segBody, type Step } from './seg-body.js';
import { segmenter } from '../scenes/segmenter.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';

const scaled = (x: Tensor, by: Tensor | undefined): Tensor => (by ? x.mul(by.reshape([-1, 1, 1])) : x);

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

/** What only the head for segments is like. */
const SEGMENT_FIELDS = ['decoder_hidden_size', 'semantic_loss_ignore_index', 'classifier_dropout_prob'];
function segFormer(c: Config, source: ModelSource): Module {
  if (source.has('decode_head.classifier.weight')) return segmenter(c, source);
  c.ignore(...SEGMENT_FIELDS);
  const inside = source.names.some((name) => name.startsWith('segformer.'));
  const { levels, sizes, channels } = segBody(
    c,
    (inside ? source.builder.pp('segformer') : source.builder).pp('encoder'),
  );
  return new StagedPictures(levels.flat(), channels, pictureHead(c, source, sizes.at(-1) as number));
}

const segmenting = (_: Config, source: ModelSource): 'segmentation' | 'vision' =>
  source.has('decode_head.classifier.weight') ? 'segmentation' : 'vision';
export const POOLED_PICTURE_FAMILIES: readonly ModelRow[] = [
  { kind: 'vision', types: ['poolformer'], build: poolFormer },
  { kind: 'vision', types: ['segformer'], kindOf: segmenting, build: segFormer },
  { kind: 'segmentation', types: ['segformer'], kindOf: segmenting, build: segFormer },
];
