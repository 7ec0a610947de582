// SwiftFormer: filters, and in each stage's last block an attention that adds all queries up to one.
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type Bend, NormedConv } from './normed-conv.js';
import { asPicture, asPlaces } from './seg-body.js';
import { type Stage, within } from './staged-net.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';

interface SwiftConfig {
  readonly eps: number;
  readonly ratio: number;
  readonly bend: Bend;
  readonly scaled: boolean;
}
/** What filters make of surroundings, added. */
class LocalBranch extends Module {
  readonly filter: NormedConv;
  readonly up: Conv2d;
  readonly down: Conv2d;
  readonly scale: Tensor;
  constructor(vb: VarBuilder, width: number, inner: number, eps: number) {
    super();
    this.filter = new NormedConv(vb, [width, width], {
      ...{ kernel: 3, groups: width, eps, bias: true, names: ['depth_wise_conv', 'norm'] },
    });
    this.up = conv2d(width, inner, 1, vb.pp('point_wise_conv1'));
    this.down = conv2d(inner, width, 1, vb.pp('point_wise_conv2'));
    this.scale = vb.get([width, 1, 1], 'layer_scale');
  }
  forward(x: Tensor): Tensor {
    return x.add(this.down.forward(this.up.forward(this.filter.forward(x)).geluErf()).mul(this.scale));
  }
}
const unit = (x: Tensor): Tensor => x.div(x.sqr().sum(-1, true).sqrt().clamp(1e-12, Infinity));

class SwiftBlock extends Module {
  readonly local: LocalBranch;
  readonly query: Linear;
  readonly key: Linear;
  readonly weights: Tensor;
  readonly project: Linear;
  readonly last: Linear;
  readonly norm: BatchNorm;
  readonly up: Conv2d;
  readonly down: Conv2d;
  /** What is added is multiplied by these, where a config asks for it. */
  readonly scales: readonly Tensor[];
  readonly #bend: Bend;
  constructor(vb: VarBuilder, width: number, c: SwiftConfig) {
    super();
    const inner = Math.trunc(width * c.ratio);
    this.#bend = c.bend;
    this.local = new LocalBranch(vb.pp('local_representation'), width, width, c.eps);
    const at = vb.pp('attn');
    const product = (name: string): Linear => linear(width, width, at.pp(name));
    [this.query, this.key] = [product('to_query'), product('to_key')];
    this.weights = at.get([width, 1], 'w_g');
    [this.project, this.last] = [product('proj'), product('final')];
    const own = vb.pp('linear');
    this.norm = batchNorm(width, own.pp('norm1'), { eps: c.eps });
    this.up = conv2d(width, inner, 1, own.pp('fc1'));
    this.down = conv2d(inner, width, 1, own.pp('fc2'));
    this.scales = c.scaled ? [1, 2].map((i) => vb.get([width, 1, 1], `layer_scale_${i}`)) : [];
  }
  #attend(x: Tensor): Tensor {
    const [q, k] = [unit(this.query.forward(x)), unit(this.key.forward(x))];
    // One weight a place, shared out among itself: all places count alike.
    const counted = q
      .matmul(this.weights)
      .affine(x.shape[2] ** -0.5, 0)
      .softmax(-1);
    const all = counted.mul(q).sum(1, true);
    return this.last.forward(this.project.forward(all.mul(k)).add(q));
  }
  forward(given: Tensor): Tensor {
    const x = this.local.forward(given);
    const [, , h, w] = x.shape;
    const scaled = (y: Tensor, i: number): Tensor => (this.scales.length > 0 ? y.mul(this.scales[i]) : y);
    const y = x.add(scaled(asPicture(this.#attend(asPlaces(x).contiguous()), h, w), 0));
    return y.add(scaled(this.down.forward(this.#bend(this.up.forward(this.norm.forward(y)))), 1));
  }
}
class SwiftFormer extends VisionModel {
  readonly stages: readonly (Stage & Module)[];
  readonly norm: BatchNorm | undefined;
  readonly classifier: Linear | undefined;
  /** A second head, which learnt from a teacher. */
  readonly second: Linear | undefined;
  readonly labels: readonly string[];
  readonly #channels: number;
  constructor(
    parts: Pick<SwiftFormer, 'stages' | 'norm' | 'second'>,
    channels: number,
    head: ReturnType<typeof pictureHead>,
  ) {
    super();
    this.stages = parts.stages;
    this.norm = parts.norm;
    this.second = parts.second;
    this.classifier = head.classifier;
    this.labels = head.labels;
    this.#channels = channels;
  }
  hidden(pixels: Tensor): Tensor {
    checkPixels(pixels, this.#channels);
    return this.stages.reduce((x, stage) => stage.forward(x), pixels);
  }
  pooled(hidden: Tensor): Tensor {
    return (this.norm ? this.norm.forward(hidden) : hidden).mean([2, 3]);
  }
  override forward(pixels: Tensor): Tensor {
    if (!this.classifier || !this.second) return super.forward(pixels);
    const vector = this.pooled(this.hidden(pixels));
    return this.classifier.forward(vector).add(this.second.forward(vector)).affine(0.5, 0);
  }
}

function swiftFormer(c: Config, source: ModelSource): SwiftFormer {
  ignoreStages(c);
  c.ignore('image_size', 'drop_mlp_rate', 'drop_conv_encoder_rate');
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name) : fallback;
  const [widths, depths] = [listed('embed_dims', [48, 56, 112, 220]), listed('depths', [3, 3, 6, 4])];
  const config: SwiftConfig = {
    eps: c.number('batch_norm_eps', 1e-5),
    ratio: c.number('mlp_ratio', 4),
    bend: activation(c.activation('hidden_act', 'gelu')),
    scaled: c.flag('use_layer_scale', true),
  };
  const { eps } = config;
  const [kernel, stride] = [c.count('down_patch_size', 3, 1), c.count('down_stride', 2, 1)];
  const padding = c.count('down_pad', 1);
  const channels = c.count('num_channels', 3, 1);
  const given = c.get('downsamples') ?? depths.map(() => true);
  const shrinks = Array.isArray(given) ? (given as unknown[]) : [];
  const vb = within(source, 'swiftformer');
  const stem = vb.pp('patch_embed.patch_embedding');
  const conv = (i: number, sizes: readonly [number, number]): NormedConv => {
    const names = [String(3 * i), String(3 * i + 1)] as const;
    return new NormedConv(stem, sizes, { kernel: 3, stride: 2, eps, bias: true, names, bend: activation('relu') });
  };
  const half = Math.floor(widths[0] / 2);
  const stages: (Stage & Module)[] = [conv(0, [channels, half]), conv(1, [half, widths[0]])];
  let at = 0;
  depths.forEach((depth, i) => {
    const blocks = vb.pp('encoder.network', at++, 'blocks');
    for (let k = 0; k < depth; k++)
      stages.push(
        k === depth - 1
          ? new SwiftBlock(blocks.pp(k), widths[i], config)
          : new LocalBranch(blocks.pp(k), widths[i], Math.trunc(widths[i] * config.ratio), eps),
      );
    if (i === depths.length - 1 || !(shrinks[i] === true || widths[i] !== widths[i + 1])) return;
    stages.push(
      new NormedConv(vb.pp('encoder.network', at++), [widths[i], widths[i + 1]], {
        ...{ kernel, stride, padding, eps, bias: true, names: ['proj', 'norm'] },
      }),
    );
  });
  const last = widths.at(-1) as number;
  const norm = source.has('norm.weight') ? batchNorm(last, source.builder.pp('norm'), { eps }) : undefined;
  const second = source.has('dist_head.weight') ? pictureHead(c, source, last, 'dist_head').classifier : undefined;
  return new SwiftFormer({ stages, norm, second }, channels, pictureHead(c, source, last, 'head'));
}
export const SWIFTFORMER_FAMILIES: readonly ModelRow[] = [
  { kind: 'vision', types: ['swiftformer'], build: swiftFormer },
];
