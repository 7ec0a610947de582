// ConvNeXt, its second version and DINOv3's: wide convolutions of each channel by itself, then feed-forwards of each
// place.
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import type { ModelSource } from '../files/source.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';

const EPS = 1e-6;
const channelsLast = (x: Tensor): Tensor => x.permute([0, 2, 3, 1]).contiguous();
const channelsFirst = (x: Tensor): Tensor => x.permute([0, 3, 1, 2]).contiguous();

class ConvNextLayer extends Module {
  readonly conv: Conv2d;
  readonly norm: LayerNorm;
  readonly up: Linear;
  readonly down: Linear;
  /** The second version's: how strong channels are beside each other. */
  readonly response: readonly [weight: Tensor, bias: Tensor] | undefined;
  /** The first version's: what is added is multiplied by this. */
  readonly scale: Tensor | undefined;
  readonly #bend: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, width: number, f: string, second: boolean) {
    super();
    const inner = 4 * width;
    this.conv = conv2d(width, width, 7, vb.pp('dwconv'), { padding: 3, groups: width });
    this.norm = layerNorm(width, vb.pp('layernorm'), { eps: EPS });
    this.up = linear(width, inner, vb.pp('pwconv1'));
    this.down = linear(inner, width, vb.pp('pwconv2'));
    const of = (name: string): Tensor => vb.get([1, 1, 1, inner], `grn.${name}`);
    this.response = second ? [of('weight'), of('bias')] : undefined;
    this.scale = vb.has('layer_scale_parameter') ? vb.get([width], 'layer_scale_parameter') : undefined;
    this.#bend = activation(f);
  }
  #respond(x: Tensor, [weight, bias]: readonly [Tensor, Tensor]): Tensor {
    const strength = x.sqr().sum([1, 2], true).sqrt(); // (b, 1, 1, inner)
    const beside = strength.div(strength.mean([3], true).affine(1, EPS));
    return x.mul(beside).mul(weight).add(bias).add(x);
  }
  forward(x: Tensor): Tensor {
    const normed = this.norm.forward(channelsLast(this.conv.forward(x)));
    const made = this.#bend(this.up.forward(normed));
    const y = this.down.forward(this.response ? this.#respond(made, this.response) : made);
    return x.add(channelsFirst(this.scale ? y.mul(this.scale) : y));
  }
}
class ConvNextStage extends Module {
  readonly norm: LayerNorm | undefined;
  readonly shrink: Conv2d | undefined;
  readonly layers: ConvNextLayer[];
  constructor(vb: VarBuilder, [from, to]: readonly [number, number], layers: ConvNextLayer[], first: boolean) {
    super();
    const shrinks = !first || from !== to;
    const at = vb.pp('downsampling_layer');
    this.norm = shrinks ? layerNorm(from, at.pp(0), { eps: EPS }) : undefined;
    this.shrink = shrinks ? conv2d(from, to, first ? 1 : 2, at.pp(1), { stride: first ? 1 : 2 }) : undefined;
    this.layers = layers;
  }
  forward(x: Tensor): Tensor {
    const normed = this.norm ? channelsFirst(this.norm.forward(channelsLast(x))) : x;
    const smaller = this.shrink ? this.shrink.forward(normed) : normed;
    return this.layers.reduce((h, layer) => layer.forward(h), smaller);
  }
}

export class ConvNext extends VisionModel {
  readonly patches: Conv2d;
  readonly patchNorm: LayerNorm;
  readonly stages: ConvNextStage[];
  /** Of what all places are in the mean; none where another model reads the maps. */
  readonly norm: LayerNorm | undefined;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  constructor(
    parts: Pick<ConvNext, 'patches' | 'patchNorm' | 'stages' | 'norm'>,
    head: ReturnType<typeof pictureHead>,
  ) {
    super();
    this.patches = parts.patches;
    this.patchNorm = parts.patchNorm;
    this.stages = parts.stages;
    this.norm = parts.norm;
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  hidden(pixels: Tensor): Tensor {
    return this.maps(pixels).at(-1) as Tensor;
  }
  /** What the stages begin with, and what comes out of each. */
  maps(pixels: Tensor): Tensor[] {
    checkPixels(pixels, this.patches.weight.shape[1]);
    const maps = [channelsFirst(this.patchNorm.forward(channelsLast(this.patches.forward(pixels))))];
    for (const stage of this.stages) maps.push(stage.forward(maps.at(-1) as Tensor));
    return maps;
  }
  pooled(hidden: Tensor): Tensor {
    const mean = hidden.mean([2, 3]);
    return this.norm?.forward(mean) ?? mean;
  }
}

type Parts = Pick<ConvNext, 'patches' | 'patchNorm' | 'stages' | 'norm'>;
function partsOf(c: Config, vb: VarBuilder, type: string, normed: boolean): Parts {
  ignoreStages(c);
  c.ignore('image_size');
  const [sizes, depths] = [c.numbers('hidden_sizes'), c.numbers('depths')];
  c.only('num_stages', sizes.length);
  const [patch, f] = [c.count('patch_size', 4, 1), c.activation('hidden_act', 'gelu')];
  const stages = sizes.map((to, i) => {
    const at = vb.pp('encoder.stages', i);
    const layers = Array.from(
      { length: depths[i] },
      (_, k) => new ConvNextLayer(at.pp('layers', k), to, f, type === 'convnextv2'),
    );
    return new ConvNextStage(at, [i === 0 ? to : sizes[i - 1], to], layers, i === 0);
  });
  const eps = c.number('layer_norm_eps', 1e-12);
  return {
    patches: conv2d(c.count('num_channels', 3), sizes[0], patch, vb.pp('embeddings.patch_embeddings'), {
      stride: patch,
    }),
    patchNorm: layerNorm(sizes[0], vb.pp('embeddings.layernorm'), { eps: EPS }),
    stages,
    norm: normed ? layerNorm(sizes.at(-1) as number, vb.pp('layernorm'), { eps }) : undefined,
  };
}
/** The network whose maps another model reads, and a norm of channels for one of them. */
export const convNextMapsAt = (c: Config, vb: VarBuilder, type: string): ConvNext =>
  new ConvNext(partsOf(c, vb, type, false), { classifier: undefined, labels: [] });
export class ChannelNorm extends Module {
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, width: number) {
    super();
    this.norm = layerNorm(width, vb, { eps: EPS });
  }
  forward(x: Tensor): Tensor {
    return channelsFirst(this.norm.forward(channelsLast(x)));
  }
}
function convNext(c: Config, source: ModelSource): ConvNext {
  const type = c.text('model_type');
  const vb = source.names.some((n) => n.startsWith(`${type}.`)) ? source.builder.pp(type) : source.builder;
  return new ConvNext(partsOf(c, vb, type, true), pictureHead(c, source, c.numbers('hidden_sizes').at(-1) as number));
}
/** DINOv3's: the mean of all places stands before them, and all are normed. */
class DinoConvNext extends ConvNext {
  override hidden(pixels: Tensor): Tensor {
    const places = super.hidden(pixels).flatten(2).transpose(1, 2); // (b, places, width)
    const all = places.mean([1], true).cat([places], 1);
    return this.norm?.forward(all) ?? all;
  }
  override pooled(hidden: Tensor): Tensor {
    return hidden.narrow(1, 0, 1).squeeze(1);
  }
}
/** ConvNeXt's names as DINOv3 has them. */
const dinoName = (name: string): string =>
  name
    .replace(/^embeddings\.patch_embeddings\./, 'stages.0.downsample_layers.0.')
    .replace(/^embeddings\.layernorm\./, 'stages.0.downsample_layers.1.')
    .replace(/^layernorm\./, 'layer_norm.')
    .replace(/^encoder\./, '')
    .replace('.downsampling_layer.', '.downsample_layers.')
    .replace('.dwconv.', '.depthwise_conv.')
    .replace('.layernorm.', '.layer_norm.')
    .replace('.pwconv', '.pointwise_conv')
    .replace(/\.layer_scale_parameter$/, '.gamma');
function dinoConvNext(c: Config, source: ModelSource): ConvNext {
  c.only('layer_norm_eps', EPS);
  c.only('patch_size', 4);
  const vb = source.builder.rename((n) => (source.has(`model.${dinoName(n)}`) ? `model.${dinoName(n)}` : dinoName(n)));
  const parts = partsOf(c, vb, 'convnext', false);
  const norm = layerNorm(c.numbers('hidden_sizes').at(-1) as number, vb.pp('layernorm'), { eps: EPS });
  return new DinoConvNext({ ...parts, norm }, { classifier: undefined, labels: [] });
}
export const CONVNEXT_FAMILIES: readonly ModelRow[] = [
  { kind: 'vision', types: ['convnext', 'convnextv2'], build: convNext },
  { kind: 'vision', types: ['dinov3_convnext'], build: dinoConvNext },
];
