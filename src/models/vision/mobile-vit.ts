// MobileViT, both versions: MobileNet's branches, and stages in which every patch's first place looks at the first place
// of all patches, its second at all second ones, and so on.
import { ArgumentError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type GroupNorm, groupNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelKind, ModelRow } from '../model-row.js';
import type { PreNormBlock } from '../parts.js';
import { atrousSegmenter } from '../scenes/atrous.js';
import { type Bend, NormedConv, still } from './normed-conv.js';
import { rounded } from './picture-sizes.js';
import { Branch, ConvNet, divisible, type Stage, within } from './staged-net.js';
import { pictureHead } from './vision-model.js';
import { blocksOf, VIT_NAMES } from './vit.js';

type Staged = Stage & Module;
interface MobileConfig {
  readonly patch: number;
  readonly kernel: number;
  readonly expands: number;
  readonly activation: string;
  readonly eps: number;
}
/** Of a map (b, c, h, w) whose sides are multiples of the patch, rows down, rows across and the patches' places. */
const split = (x: Tensor, p: number): Tensor => {
  const [b, c, h, w] = x.shape;
  return x.reshape([b, c, h / p, p, w / p, p]);
};

/** The first version: attention of many heads. */
class MobileAttention extends Module {
  readonly blocks: PreNormBlock[];
  readonly norm: LayerNorm;
  readonly #patch: number;
  constructor(blocks: PreNormBlock[], norm: LayerNorm, patch: number) {
    super();
    this.blocks = blocks;
    this.norm = norm;
    this.#patch = patch;
  }
  forward(x: Tensor): Tensor {
    const p = this.#patch;
    const [b, c, ...size] = x.shape;
    const [h, w] = size.map((n) => Math.ceil(n / p) * p);
    const fits = h === size[0] && w === size[1];
    const whole = fits ? x : x.interpolate({ size: [h, w], mode: 'bilinear' });
    const patches = split(whole, p)
      .permute([0, 3, 5, 2, 4, 1])
      .reshape([b * p * p, (h * w) / (p * p), c]);
    const seen = this.norm.forward(this.blocks.reduce((y, block) => block.forward(y), patches));
    const map = seen
      .reshape([b, p, p, h / p, w / p, c])
      .permute([0, 5, 3, 1, 4, 2])
      .reshape([b, c, h, w]);
    return fits ? map : map.interpolate({ size: [...size], mode: 'bilinear' });
  }
}

/** The second version's layer: one number a place says how much it counts for all. */
class LinearBlock extends Module {
  readonly before: GroupNorm;
  readonly joined: Conv2d;
  readonly out: Conv2d;
  readonly after: GroupNorm;
  readonly up: Conv2d;
  readonly down: Conv2d;
  readonly #f: Bend;
  constructor(vb: VarBuilder, width: number, inner: number, c: MobileConfig) {
    super();
    const conv = (from: number, to: number, name: string): Conv2d => conv2d(from, to, 1, vb.pp(name).pp('convolution'));
    this.before = groupNorm(1, width, vb.pp('layernorm_before'), c.eps);
    this.joined = conv(width, 1 + 2 * width, 'attention.qkv_proj');
    this.out = conv(width, width, 'attention.out_proj');
    this.after = groupNorm(1, width, vb.pp('layernorm_after'), c.eps);
    this.up = conv(width, inner, 'ffn.conv1');
    this.down = conv(inner, width, 'ffn.conv2');
    this.#f = activation(c.activation);
  }
  /** (b, width, places of a patch, patches). */
  forward(x: Tensor): Tensor {
    const width = x.shape[1];
    const joined = this.joined.forward(this.before.forward(x));
    const [weights, keys, values] = [
      joined.narrow(1, 0, 1),
      joined.narrow(1, 1, width),
      joined.narrow(1, 1 + width, width),
    ];
    const context = keys.mul(weights.softmax(-1)).sum(-1, true);
    const y = x.add(this.out.forward(values.relu().mul(context)));
    return y.add(this.down.forward(this.#f(this.up.forward(this.after.forward(y)))));
  }
}
class LinearAttention extends Module {
  readonly blocks: LinearBlock[];
  readonly norm: GroupNorm;
  readonly #patch: number;
  constructor(blocks: LinearBlock[], norm: GroupNorm, patch: number) {
    super();
    this.blocks = blocks;
    this.norm = norm;
    this.#patch = patch;
  }
  forward(x: Tensor): Tensor {
    const p = this.#patch;
    const [b, c, ...size] = x.shape;
    // What does not fill a patch is left out, and nothing comes out there.
    const [h, w] = size.map((n) => n - (n % p));
    if (h * w === 0)
      throw new ArgumentError(`vision: a map of ${size.join(' x ')} places holds no patch of ${p} x ${p}`);
    const patches = split(x.narrow(2, 0, h).narrow(3, 0, w), p)
      .permute([0, 1, 3, 5, 2, 4])
      .reshape([b, c, p * p, (h * w) / (p * p)]);
    const seen = this.norm.forward(this.blocks.reduce((y, block) => block.forward(y), patches));
    const map = seen
      .reshape([b, c, p, p, h / p, w / p])
      .permute([0, 1, 4, 2, 5, 3])
      .reshape([b, c, h, w]);
    return h === size[0] && w === size[1] ? map : map.pad([0, size[1] - w, 0, size[0] - h]);
  }
}

/** A map is filtered, its patches look at each other, and what came of it is brought back to the map's width. */
class MobileViTStage extends Module {
  readonly shrink: Branch;
  readonly filter: NormedConv;
  readonly narrow: Conv2d;
  readonly attention: MobileAttention | LinearAttention;
  readonly widen: NormedConv;
  /** The first version's: of the map and of what came of it. */
  readonly fuse: NormedConv | undefined;
  constructor(parts: Pick<MobileViTStage, 'shrink' | 'filter' | 'narrow' | 'attention' | 'widen' | 'fuse'>) {
    super();
    this.shrink = parts.shrink;
    this.filter = parts.filter;
    this.narrow = parts.narrow;
    this.attention = parts.attention;
    this.widen = parts.widen;
    this.fuse = parts.fuse;
  }
  forward(pixels: Tensor): Tensor {
    const x = this.shrink.forward(pixels);
    const y = this.widen.forward(this.attention.forward(this.narrow.forward(this.filter.forward(x))));
    return this.fuse ? this.fuse.forward(x.cat([y], 1)) : y;
  }
}

/** MobileNet's branch: wider, filtered, narrow again. */
function inverted(
  vb: VarBuilder,
  [from, to]: readonly [number, number],
  c: MobileConfig,
  o: { readonly stride: number; readonly dilation?: number },
): Branch {
  const inner = divisible(rounded(from * c.expands), 8);
  const bend = activation(c.activation);
  const parts = [
    new NormedConv(vb.pp('expand_1x1'), [from, inner], { kernel: 1, bend }),
    new NormedConv(vb.pp('conv_3x3'), [inner, inner], { kernel: 3, groups: inner, bend, ...o }),
    new NormedConv(vb.pp('reduce_1x1'), [inner, to], { kernel: 1 }),
  ];
  return new Branch(parts, { adds: o.stride === 1 && from === to });
}

/** What tells a stage with attention apart: its widths, and what looks at patches. */
interface Sizes {
  readonly widths: readonly [from: number, to: number, inner: number];
  readonly look: (at: VarBuilder) => MobileAttention | LinearAttention;
}
/** The stages that all of them have: two of MobileNet's, then three with attention. */
function stagesOf(
  vb: VarBuilder,
  c: MobileConfig,
  o: {
    readonly channels: number;
    readonly widths: readonly number[];
    readonly repeats: number;
    readonly stride: number;
    readonly attention: readonly Sizes[];
    readonly second: boolean;
  },
): Staged[] {
  const bend = activation(c.activation);
  const [stem, first, next] = o.widths;
  const at = vb.pp('encoder.layer');
  const padding = Math.floor((c.kernel - 1) / 2);
  // Pictures that do not become smaller any more are seen by filters that widen instead.
  const spread = [1, o.stride === 8 ? 2 : 1, o.stride === 8 ? 4 : o.stride === 16 ? 2 : 1];
  return [
    new NormedConv(vb.pp('conv_stem'), [o.channels, stem], { kernel: 3, stride: 2, bend }),
    inverted(at.pp('0.layer.0'), [stem, first], c, { stride: 1 }),
    ...Array.from({ length: o.repeats }, (_, i) =>
      inverted(at.pp('1.layer', i), [i === 0 ? first : next, next], c, { stride: i === 0 ? 2 : 1 }),
    ),
    ...o.attention.map(({ widths: [from, to, inner], look }, i) => {
      const own = at.pp(2 + i);
      const dilation = Math.max(1, Math.floor(spread[i] / 2));
      return new MobileViTStage({
        shrink: inverted(own.pp('downsampling_layer'), [from, to], c, { stride: spread[i] === 1 ? 2 : 1, dilation }),
        filter: new NormedConv(own.pp('conv_kxk'), [to, to], {
          ...{ kernel: c.kernel, padding, bend, groups: o.second ? to : 1 },
        }),
        narrow: conv2d(to, inner, 1, own.pp('conv_1x1.convolution'), { useBias: false }),
        attention: look(own),
        widen: new NormedConv(own.pp('conv_projection'), [inner, to], { kernel: 1, bend: o.second ? still : bend }),
        fuse: o.second
          ? undefined
          : new NormedConv(own.pp('fusion'), [2 * to, to], { kernel: c.kernel, padding, bend }),
      });
    }),
  ];
}

interface Body {
  readonly stages: Staged[];
  readonly channels: number;
  readonly width: number;
}
function commonOf(c: Config): { readonly config: MobileConfig; readonly channels: number; readonly stride: number } {
  // Only a head for segments reads the rates and the width of its parts.
  c.ignore('image_size', 'aspp_out_channels', 'atrous_rates', 'aspp_dropout_prob', 'semantic_loss_ignore_index');
  const second = c.text('model_type') === 'mobilevitv2';
  const config = {
    patch: c.count('patch_size', 2, 1),
    kernel: c.count('conv_kernel_size', 3, 1),
    expands: c.number('expand_ratio', second ? 2 : 4),
    activation: c.activation('hidden_act', 'silu'),
    eps: c.number('layer_norm_eps', 1e-5),
  };
  return { config, channels: c.count('num_channels', 3, 1), stride: c.count('output_stride', 32, 1) };
}
function firstBody(c: Config, vb: VarBuilder): Body {
  const { config, channels, stride } = commonOf(c);
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name, fallback.length) : fallback;
  const inner = listed('hidden_sizes', [144, 192, 240]);
  const widths = listed('neck_hidden_sizes', [16, 32, 64, 96, 128, 160, 640]);
  const [heads, ratio] = [c.count('num_attention_heads', 4, 1), c.number('mlp_ratio', 2)];
  const biases = c.flag('qkv_bias', true) ? (['q', 'k', 'v', 'out'] as const) : (['out'] as const);
  const attention = [2, 4, 3].map((layers, i): Sizes => {
    const width = inner[i];
    const tower = { width, layers, heads, inner: Math.trunc(width * ratio), ...config };
    const names = { ...VIT_NAMES, attention: { ...VIT_NAMES.attention, biases } };
    return {
      widths: [widths[2 + i], widths[3 + i], width],
      look: (at) =>
        new MobileAttention(
          blocksOf(at.pp('transformer.layer'), tower, names),
          layerNorm(width, at.pp('layernorm'), { eps: config.eps }),
          config.patch,
        ),
    };
  });
  const stages = stagesOf(vb, config, { channels, widths, repeats: 3, stride, attention, second: false });
  if (!vb.has('conv_1x1_exp.convolution.weight')) return { stages, channels, width: widths[5] };
  const last = new NormedConv(vb.pp('conv_1x1_exp'), [widths[5], widths[6]], {
    ...{ kernel: 1, bend: activation(config.activation) },
  });
  return { stages: [...stages, last], channels, width: widths[6] };
}
function secondBody(c: Config, vb: VarBuilder): Body {
  c.ignore('attn_dropout', 'ffn_dropout');
  const { config, channels, stride } = commonOf(c);
  const times = c.number('width_multiplier', 1);
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name, 3) : fallback;
  const [layers, units] = [listed('n_attn_blocks', [2, 4, 3]), listed('base_attn_unit_dims', [128, 192, 256])];
  const ratio = c.number('ffn_multiplier', 2);
  const widths = [
    divisible(Math.min(64, Math.max(16, 32 * times)), 8, 16),
    divisible(64 * times, 16),
    ...[128, 256, 384, 512].map((n) => divisible(n * times, 8)),
  ];
  const attention = layers.map((count, i): Sizes => {
    const width = divisible(units[i] * times, 8);
    const inner = Math.floor((ratio * width) / 16) * 16;
    const look = (at: VarBuilder): LinearAttention =>
      new LinearAttention(
        Array.from({ length: count }, (_, k) => new LinearBlock(at.pp('transformer.layer', k), width, inner, config)),
        groupNorm(1, width, at.pp('layernorm'), config.eps),
        config.patch,
      );
    return { widths: [widths[2 + i], widths[3 + i], width], look };
  });
  const stages = stagesOf(vb, config, { channels, widths, repeats: 2, stride, attention, second: true });
  return { stages, channels, width: widths[5] };
}

const BODIES: Readonly<Record<string, (c: Config, vb: VarBuilder) => Body>> = {
  mobilevit: firstBody,
  mobilevitv2: secondBody,
};
function mobileViT(c: Config, source: ModelSource): Module {
  const type = c.text('model_type');
  const { stages, channels, width } = BODIES[type](c, within(source, type));
  if (segmenting(c, source) === 'segmentation') return atrousSegmenter(c, source, { stages, channels, width });
  return new ConvNet(stages, channels, pictureHead(c, source, width));
}
const segmenting = (_: Config, source: ModelSource): ModelKind =>
  source.has('segmentation_head.classifier.convolution.weight') ? 'segmentation' : 'vision';
export const MOBILE_VIT_FAMILIES: readonly ModelRow[] = (['vision', 'segmentation'] as const).map((kind) => ({
  kind,
  types: Object.keys(BODIES),
  kindOf: segmenting,
  build: mobileViT,
}));
