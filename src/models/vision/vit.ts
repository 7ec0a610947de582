// Vision transformers: an image in patches, a class token, blocks. ViT (MSN's and MAE's, too), DeiT (a token more),
// DINOv2 (factors, pictures of any size), BEiT (scores by distance), I-JEPA (no token but the patches); the vision
// halves of CLIP and SigLIP share parts.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import { chunks, feedForward, GatedFeedForward, multiHead, type MultiHeadNames, PreNormBlock } from '../parts.js';
import { PlaceDistances, stretched } from './places.js';
import type { ModelSource } from '../files/source.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';

export interface TowerConfig {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
}
export interface TowerNames {
  readonly norm1: string;
  readonly attention: MultiHeadNames;
  readonly norm2: string;
  readonly mlp: readonly [up: string, down: string];
  /** Tensors by which what is added is multiplied. */
  readonly scales?: readonly [attended: string, fed: string];
  /** The feed-forward is gated: its first product holds the gate, then the rest. */
  readonly gated?: boolean;
}
export const blocksOf = (vb: VarBuilder, c: TowerConfig, names: TowerNames): PreNormBlock[] =>
  Array.from({ length: c.layers }, (_, i) => {
    const at = vb.pp(i);
    const norm = (name: string): LayerNorm => layerNorm(c.width, at.pp(name), { eps: c.eps });
    const scale = (name: string): Tensor => at.get([c.width], name);
    return new PreNormBlock(
      norm(names.norm1),
      multiHead(at, names.attention, c.width, c.heads),
      norm(names.norm2),
      names.gated ? gatedMlp(at, names.mlp, c) : feedForward(at, names.mlp, c.width, c.inner, c.activation),
      names.scales ? [scale(names.scales[0]), scale(names.scales[1])] : [],
    );
  });
function gatedMlp(vb: VarBuilder, [up, down]: readonly [string, string], c: TowerConfig): GatedFeedForward {
  const [gate, rest] = chunks(linear(c.width, 2 * c.inner, vb.pp(up)), 2);
  return new GatedFeedForward(gate, rest, linear(c.inner, c.width, vb.pp(down)), 'silu');
}

/** An image (b, channels, h, w) cut into patches, each a vector: (b, patches, width). */
export class Patches extends Module {
  readonly conv: Conv2d;
  readonly imageSize: readonly [height: number, width: number];
  constructor(
    vb: VarBuilder,
    channels: number,
    width: number,
    image: readonly [number, number],
    patch: readonly [number, number],
    bias: boolean,
    stride = patch,
    made?: Conv2d,
  ) {
    super();
    this.conv = made ?? conv2d(channels, width, patch, vb, { stride, useBias: bias });
    this.imageSize = image;
  }
  /** Pictures of any size. */
  ofAny(pixels: Tensor): Tensor {
    checkPixels(pixels, this.conv.weight.shape[1]);
    const y = this.conv.forward(pixels);
    return y.reshape([y.shape[0], y.shape[1], -1]).transpose(1, 2);
  }
  forward(pixels: Tensor): Tensor {
    const [h, w] = this.imageSize;
    const [, channels, ...size] = pixels.shape;
    if (pixels.rank !== 4 || channels !== this.conv.weight.shape[1] || size[0] !== h || size[1] !== w)
      throw new ArgumentError(
        `vision: pixels have shape [${pixels.shape.join(', ')}]; the model takes (batch, ` +
          `${this.conv.weight.shape[1]}, ${h}, ${w})`,
      );
    return this.ofAny(pixels);
  }
}
/** A number for both sides, or one each. */
export function sideLengths(c: Config, name: string): readonly [number, number] {
  if (Array.isArray(c.get(name))) return c.numbers(name, 2) as unknown as readonly [number, number];
  const n = c.count(name, undefined, 1);
  return [n, n];
}

/** What tells the families apart. */
interface VitKind {
  /** Tensors of a classifier begin with this. */
  readonly prefix: string;
  /** Learnt tokens before the patches, in order. */
  readonly tokens: readonly string[];
  readonly names: Omit<TowerNames, 'scales' | 'gated'>;
  /** The tensors by which what is added is multiplied, where files have them. */
  readonly scales?: readonly [string, string];
  /**
   * The vector of a picture: of its first token, of that and the mean of patches for a classifier, of the mean, or of
   * the mean of what was normed.
   */
  readonly pools?: 'first and mean' | 'mean' | 'normed mean';
  /** Keys have no bias. */
  readonly bareKeys?: boolean;
  /** Pictures of other sizes have positions between those that were learnt. */
  readonly stretches?: 'cubic' | 'smoothed' | 'linear';
  /** Of its norms where a config does not say; default 1e-12. */
  readonly eps?: number;
}
/** Where the layers of ViT, and of what is made like it, keep their weights. */
export const VIT_NAMES = {
  norm1: 'layernorm_before',
  attention: {
    q: 'attention.attention.query',
    k: 'attention.attention.key',
    v: 'attention.attention.value',
    out: 'attention.output.dense',
  },
  norm2: 'layernorm_after',
  mlp: ['intermediate.dense', 'output.dense'],
} as const satisfies VitKind['names'];
const DINO: VitKind = {
  prefix: 'dinov2',
  tokens: ['cls_token'],
  names: { ...VIT_NAMES, norm1: 'norm1', norm2: 'norm2', mlp: ['mlp.fc1', 'mlp.fc2'] },
  scales: ['layer_scale1.lambda1', 'layer_scale2.lambda1'],
  pools: 'first and mean',
  stretches: 'cubic',
  eps: 1e-6,
};
const BEIT: VitKind = {
  prefix: 'beit',
  tokens: ['cls_token'],
  names: VIT_NAMES,
  scales: ['lambda_1', 'lambda_2'],
  bareKeys: true,
};
const KINDS: Readonly<Record<string, VitKind>> = {
  vit: { prefix: 'vit', tokens: ['cls_token'], names: VIT_NAMES },
  ijepa: { prefix: 'ijepa', tokens: [], names: VIT_NAMES, pools: 'normed mean' },
  vit_msn: { prefix: 'vit', tokens: ['cls_token'], names: VIT_NAMES, eps: 1e-6 },
  // All patches are seen: hiding some is a matter of training, and so is what draws them again.
  vit_mae: { prefix: 'vit', tokens: ['cls_token'], names: VIT_NAMES },
  deit: { prefix: 'deit', tokens: ['cls_token', 'distillation_token'], names: VIT_NAMES },
  dinov2: DINO,
  dinov2_with_registers: { ...DINO, prefix: 'dinov2_with_registers', stretches: 'smoothed' },
  beit: BEIT,
  'data2vec-vision': { ...BEIT, prefix: 'data2vec_vision' },
  dpt: { prefix: 'dpt', tokens: ['cls_token'], names: VIT_NAMES, stretches: 'linear' },
};

interface VitConfig extends TowerConfig, Record<'image' | 'patch', readonly [number, number]> {
  readonly pooled: [number, string];
  readonly channels: number;
  readonly qkvBias: boolean;
  readonly gated: boolean;
  readonly registers: number;
  /** A table of distances for all layers, or one each. */
  readonly distances: 'shared' | 'each' | undefined;
  readonly positions: boolean;
}

export class Vit extends VisionModel {
  readonly patches: Patches;
  /** The class token, and DeiT's second. */
  readonly tokens: readonly Tensor[];
  readonly registers: Tensor | undefined;
  readonly positions: Tensor | undefined;
  readonly blocks: PreNormBlock[];
  /** What scores are added for the distance of two places, by layer. */
  readonly distances: readonly PlaceDistances[];
  readonly norm: LayerNorm | undefined;
  readonly poolNorm: LayerNorm | undefined;
  readonly pooler: Linear | undefined;
  readonly classifier: Linear | undefined;
  /** DeiT's second head, of its second token. */
  readonly second: Linear | undefined;
  readonly labels: readonly string[];
  readonly #poolerBend: (x: Tensor) => Tensor;
  readonly #kind: VitKind;
  readonly #patch: readonly [number, number];
  constructor(vb: VarBuilder, c: VitConfig, kind: VitKind, head: ReturnType<typeof pictureHead>, second?: Linear) {
    super();
    this.#kind = kind;
    this.#patch = c.patch;
    const e = vb.pp('embeddings');
    const grid = [0, 1].map((i) => Math.floor(c.image[i] / c.patch[i])) as unknown as readonly [number, number];
    const count = grid[0] * grid[1] + kind.tokens.length;
    this.patches = new Patches(e.pp('patch_embeddings.projection'), c.channels, c.width, c.image, c.patch, true);
    this.tokens = kind.tokens.map((name) => e.get([1, 1, c.width], name));
    this.registers = c.registers > 0 ? e.get([1, c.registers, c.width], 'register_tokens') : undefined;
    this.positions = c.positions ? e.get([1, count, c.width], 'position_embeddings') : undefined;
    const layers = vb.pp('encoder.layer');
    const biases = (['q', 'k', 'v', 'out'] as const).filter(
      (p) => p === 'out' || (c.qkvBias && !(p === 'k' && kind.bareKeys)),
    );
    this.blocks = blocksOf(layers, c, {
      ...kind.names,
      attention: { ...kind.names.attention, biases },
      ...(kind.scales && layers.has(`0.${kind.scales[0]}`) && { scales: kind.scales }),
      ...(c.gated && { gated: true, mlp: ['mlp.weights_in', 'mlp.weights_out'] }),
    });
    const table = (at: VarBuilder): PlaceDistances =>
      new PlaceDistances(at.pp('relative_position_bias'), grid, c.heads);
    const shared = c.distances === 'shared' ? table(vb.pp('encoder')) : undefined;
    const each = (_: unknown, i: number): PlaceDistances => shared ?? table(layers.pp(i, 'attention.attention'));
    this.distances = c.distances ? this.blocks.map(each) : [];
    const norm = (at: VarBuilder): LayerNorm => layerNorm(c.width, at, { eps: c.eps });
    this.norm = kind.pools === 'mean' ? undefined : norm(vb.pp('layernorm'));
    const means = kind.pools === 'mean' && vb.has('pooler.layernorm.weight');
    this.poolNorm = means ? norm(vb.pp('pooler.layernorm')) : undefined;
    this.pooler = vb.has('pooler.dense.weight') ? linear(c.width, c.pooled[0], vb.pp('pooler.dense')) : undefined;
    this.#poolerBend = activation(c.pooled[1]);
    this.classifier = head.classifier;
    this.labels = head.labels;
    this.second = second;
  }
  /** Patches with the tokens before them and all their positions, (b, places, width). */
  #begin(pixels: Tensor): Tensor {
    const { stretches } = this.#kind;
    const p = stretches ? this.patches.ofAny(pixels) : this.patches.forward(pixels);
    const [b, , width] = p.shape;
    const tokens = this.tokens.map((t) => t.broadcastTo([b, 1, width]));
    const all = tokens.length > 0 ? tokens[0].cat([...tokens.slice(1), p], 1) : p;
    if (!this.positions) return all;
    const [h, w] = [2, 3].map((i) => Math.floor(pixels.shape[i] / this.#patch[i - 2]));
    const fits = this.positions.shape[1] === all.shape[1] && (h === w || !stretches);
    const x = all.add(fits ? this.positions : stretched(this.positions, [h, w], stretches ?? 'cubic'));
    if (!this.registers) return x;
    const registers = this.registers.broadcastTo([b, this.registers.shape[1], width]);
    return x.narrow(1, 0, 1).cat([registers, x.narrow(1, 1, x.shape[1] - 1)], 1);
  }
  /** What goes into the first block and what comes out of each, without the last norm: (b, places, width). */
  layers(pixels: Tensor): Tensor[] {
    let x = this.#begin(pixels);
    return [
      x,
      ...this.blocks.map((block, i) => {
        const mask = this.distances[i]?.forward();
        return (x = block.forward(x, mask ? { mask } : {}));
      }),
    ];
  }
  /** Vectors of the learnt tokens and the patches, (b, places, width). */
  hidden(pixels: Tensor): Tensor {
    const last = this.layers(pixels).at(-1) as Tensor;
    return this.norm ? this.norm.forward(last) : last;
  }
  pooled(hidden: Tensor): Tensor {
    const [first, patches] = [hidden.narrow(1, 0, 1).squeeze(1), 1 + (this.registers?.shape[1] ?? 0)];
    if (this.#kind.pools === 'normed mean') return hidden.mean([1]);
    const mean = (): Tensor => hidden.narrow(1, patches, hidden.shape[1] - patches).mean([1]);
    if (this.poolNorm) return this.poolNorm.forward(mean());
    if (this.classifier) return this.#kind.pools === 'first and mean' ? first.cat([mean()], 1) : first;
    return this.pooler ? this.#poolerBend(this.pooler.forward(first)) : first;
  }
  override forward(pixels: Tensor): Tensor {
    if (!this.classifier || !this.second) return super.forward(pixels);
    const hidden = this.hidden(pixels);
    const [first, second] = [0, 1].map((i) => hidden.narrow(1, i, 1).squeeze(1));
    return this.classifier.forward(first).add(this.second.forward(second)).affine(0.5, 0);
  }
}

/** BEiT's distances: false, one table for all layers, or one each. */
function distancesOf(c: Config): VitConfig['distances'] {
  const [each, shared] = [
    c.flag('use_relative_position_bias', false),
    c.flag('use_shared_relative_position_bias', false),
  ];
  if (each && shared)
    throw new UnsupportedError(
      `${c.where}: use_relative_position_bias and use_shared_relative_position_bias are both true; one is served`,
    );
  return each ? 'each' : shared ? 'shared' : undefined;
}
function ignoreSegmentation(c: Config): void {
  c.ignore('add_fpn', 'auxiliary_channels', 'auxiliary_concat_input', 'auxiliary_loss_weight', 'auxiliary_num_convs');
  c.ignore('pool_scales', 'semantic_loss_ignore_index', 'use_auxiliary_head', 'use_mask_token', 'vocab_size');
}

function ignoreDrawing(c: Config, source: ModelSource): void {
  c.ignore('mask_ratio', 'norm_pix_loss', 'decoder_hidden_size', 'decoder_intermediate_size');
  c.ignore('decoder_num_attention_heads', 'decoder_num_hidden_layers');
  source.ignore(/^decoder\./);
}

/** What a config says of a family's network, and how it is made. */
function readVit(c: Config, source: ModelSource, type: string): { readonly config: VitConfig; readonly kind: VitKind } {
  ignoreStages(c);
  const beit = type === 'beit' || type === 'data2vec-vision';
  if (beit) ignoreSegmentation(c);
  c.ignore('use_mask_token');
  if (type === 'vit_mae') ignoreDrawing(c, source);
  source.ignore(/(^|\.)embeddings\.mask_token$|\.relative_position_index$/);
  const kind: VitKind = beit && c.flag('use_mean_pooling', true) ? { ...KINDS[type], pools: 'mean' } : KINDS[type];
  const width = c.count('hidden_size');
  const gated = c.flag('use_swiglu_ffn', false);
  const ratio = kind.pools === 'first and mean' ? Math.trunc(width * c.number('mlp_ratio', 4)) : undefined;
  // A gate takes a third of the width, in whole eights.
  const inner = ratio !== undefined && gated ? Math.floor((Math.trunc((ratio * 2) / 3) + 7) / 8) * 8 : ratio;
  const config: VitConfig = {
    width,
    layers: c.count('num_hidden_layers'),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: inner ?? c.count('intermediate_size'),
    eps: c.number('layer_norm_eps', kind.eps ?? 1e-12),
    activation: c.activation('hidden_act', 'gelu'),
    image: sideLengths(c, 'image_size'),
    patch: sideLengths(c, 'patch_size'),
    pooled: [c.count('pooler_output_size', width), c.activation('pooler_act', 'tanh')] as [number, string],
    channels: c.count('num_channels', 3),
    qkvBias: c.flag('qkv_bias', true),
    gated,
    registers: type === 'dinov2_with_registers' ? c.count('num_register_tokens', 4) : 0,
    distances: distancesOf(c),
    positions: !beit || c.flag('use_absolute_position_embeddings', false),
  };
  return { config, kind };
}
/** Names of tensors as transformers has them inside, by which PyTorch's own files are written. */
const within = (name: string, stack: boolean): string =>
  (stack ? name.replace('encoder.layer.', 'layers.') : name)
    .replace(/attention\.attention\.(query|key|value)\./, (_, part: string) => `attention.${part[0]}_proj.`)
    .replace('attention.output.dense.', 'attention.o_proj.')
    .replace('intermediate.dense.', 'mlp.fc1.')
    .replace(/(\d\.)output\.dense\./, '$1mlp.fc2.');
function byName(source: ModelSource, vb: VarBuilder): VarBuilder {
  const { names } = source;
  if (names.some((n) => n.includes('.attention.q_proj.')))
    return vb.rename((n) =>
      within(
        n,
        names.some((m) => /(^|\.)layers\.0\.attention\./.test(m)),
      ),
    );
  // MSN's classifiers leave the prefix out, but for what stands around the layers.
  const bare = source.has('vit.embeddings.cls_token') && names.some((n) => n.startsWith('encoder.layer.'));
  return bare ? vb.rename((n) => n.replace(/^vit\.encoder\./, 'encoder.')) : vb;
}
/** The network alone, of a family and under a name that another model gives it. */
export function vitAt(c: Config, source: ModelSource, vb: VarBuilder, type: string): Vit {
  const { config, kind } = readVit(c, source, type);
  return new Vit(byName(source, vb), config, kind, { classifier: undefined, labels: [] });
}
function vit(c: Config, source: ModelSource): Vit {
  const { config, kind } = readVit(c, source, c.text('model_type'));
  const { width } = config;
  const inside = source.has(`${kind.prefix}.embeddings.patch_embeddings.projection.weight`);
  const teacher = source.has('distillation_classifier.weight');
  const wide = kind.pools === 'first and mean' ? 2 * width : width;
  const head = pictureHead(c, source, wide, teacher ? 'cls_classifier' : 'classifier');
  const second = teacher ? pictureHead(c, source, width, 'distillation_classifier').classifier : undefined;
  const vb = byName(source, source.builder);
  return new Vit(inside ? vb.pp(kind.prefix) : vb, config, kind, head, second);
}
export const VIT_FAMILIES: readonly ModelRow[] = [
  { kind: 'vision', types: Object.keys(KINDS).filter((type) => type !== 'dpt'), build: vit },
];
