// Swin and Swin v2: attention within windows of a picture, which move by half a window from layer to layer, in stages
// of fewer and wider places.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { CosineAttention, DistanceNetwork } from './cosine-windows.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, type MultiHead, multiHead } from '../parts.js';
import type { ModelSource } from '../files/source.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';
import { sideLengths } from './vit.js';
import { fromWindows, padded, type Size, windowsOf } from './windows.js';

export interface SwinConfig {
  /** The second version: cosines as scores, norms behind what is added, windows that do not depend on the picture. */
  readonly second: boolean;
  readonly window: number;
  readonly eps: number;
  readonly activation: string;
  readonly ratio: number;
  readonly biases: boolean;
  /** Windows move where a picture is not larger than one, too, and may reach past its edges. */
  readonly reaching?: boolean;
}

/** Rows of the table of distances for each pair of places in a window. */
function distances(window: number): Uint32Array {
  const area = window * window;
  return Uint32Array.from({ length: area * area }, (_, i) => {
    const [from, to] = [Math.floor(i / area), i % area];
    const down = Math.floor(from / window) - Math.floor(to / window) + window - 1;
    const across = (from % window) - (to % window) + window - 1;
    return down * (2 * window - 1) + across;
  });
}
/** What the blocks of a stage have in common. */
export interface SwinWidth {
  readonly width: number;
  readonly heads: number;
  readonly window: number;
  /** By how much every second block's windows move. */
  readonly shift: number;
  /** The window that the network for distances was trained with. */
  readonly trained: number;
}
const PRODUCTS = { q: 'self.query', k: 'self.key', v: 'self.value', out: 'output.dense' };

class SwinBlock extends Module {
  readonly norm1: LayerNorm;
  readonly attention: MultiHead | CosineAttention;
  /** What distances add: as stored, or made. */
  readonly table: Tensor | DistanceNetwork;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
  readonly #second: boolean;
  readonly #reaching: boolean;
  readonly #window: number;
  readonly #shift: number;
  constructor(vb: VarBuilder, c: SwinConfig, { width, heads, window, shift, trained }: SwinWidth, moved: boolean) {
    super();
    this.#second = c.second;
    this.#reaching = c.second || (c.reaching ?? false);
    this.#window = window;
    this.#shift = moved ? shift : 0;
    const biases = c.biases ? (c.second ? (['q', 'v', 'out'] as const) : undefined) : (['out'] as const);
    const names = { ...PRODUCTS, ...(biases && { biases }) };
    const at = vb.pp('attention');
    this.norm1 = layerNorm(width, vb.pp('layernorm_before'), { eps: c.eps });
    this.attention = c.second ? new CosineAttention(at, names, width, heads) : multiHead(at, names, width, heads);
    this.table = c.second
      ? new DistanceNetwork(at.pp('self.continuous_position_bias_mlp'), heads, window, trained)
      : at.get([(2 * window - 1) ** 2, heads], 'self.relative_position_bias_table');
    this.norm2 = layerNorm(width, vb.pp('layernorm_after'), { eps: c.eps });
    this.mlp = feedForward(
      vb,
      ['intermediate.dense', 'output.dense'],
      width,
      Math.trunc(c.ratio * width),
      c.activation,
    );
  }
  /** What scores are added for the distance of two places, (1, heads, area, area). */
  #bias(like: Tensor): Tensor {
    const area = this.#window ** 2;
    const table = this.table instanceof DistanceNetwork ? this.table.rows(like) : this.table;
    const rows = table.indexSelect(0, tensor(distances(this.#window), { device: table.device }));
    return rows.reshape([area, area, -1]).permute([2, 0, 1]).unsqueeze(0);
  }
  /** In windows that moved over an edge, places of the other edge are out of sight: (windows, 1, area, area). */
  #sight([h, w]: Size, shift: number, like: Tensor): Tensor {
    const side = this.#window;
    const region = (at: number, size: number): number => Number(at >= size - side) + Number(at >= size - shift);
    const regions = Float32Array.from({ length: h * w }, (_, i) => region(Math.floor(i / w), h) * 3 + region(i % w, w));
    const places = windowsOf(tensor(regions, { shape: [1, h, w, 1], device: like.device }), side).squeeze(2);
    const same = places.unsqueeze(1).eq(places.unsqueeze(2));
    // Cosines reach a hundred: the second version hides twice.
    const hidden = this.#second ? 200 : 100;
    return same.cast('f32').affine(hidden, -hidden).unsqueeze(1).cast(like.dtype);
  }
  #attend(x: Tensor, size: Size): Tensor {
    const [b, , c] = x.shape;
    const side = this.#window;
    const shift = this.#reaching || Math.min(...size) > side ? this.#shift : 0;
    const whole = size.map((n) => Math.ceil(n / side) * side) as unknown as Size;
    const picture = padded(x.reshape([b, ...size, c]), whole);
    const moved = shift > 0 ? picture.roll([-shift, -shift], [1, 2]) : picture;
    const sight = shift > 0 ? this.#sight(whole, shift, x) : undefined;
    const windows = windowsOf(moved, side);
    const bias = sight ? this.#bias(x).add(sight).repeat([b, 1, 1, 1]) : this.#bias(x);
    const seen = fromWindows(this.attention.forward(windows, { mask: bias.contiguous() }), side, whole);
    const back = shift > 0 ? seen.roll([shift, shift], [1, 2]) : seen;
    return back
      .narrow(1, 0, size[0])
      .narrow(2, 0, size[1])
      .reshape([b, size[0] * size[1], c]);
  }
  forward(x: Tensor, size: Size): Tensor {
    if (this.#second) {
      const y = x.add(this.norm1.forward(this.#attend(x, size)));
      return y.add(this.norm2.forward(this.mlp.forward(y)));
    }
    if (!this.#reaching && Math.min(...size) < this.#window)
      throw new UnsupportedError(`swin: ${size.join(' x ')} places are fewer than window_size ${this.#window} a side`);
    const y = x.add(this.#attend(this.norm1.forward(x), size));
    return y.add(this.mlp.forward(this.norm2.forward(y)));
  }
}

export class SwinStage extends Module {
  readonly blocks: SwinBlock[];
  /** Four places become one of twice their width. */
  readonly norm: LayerNorm | undefined;
  readonly merge: Linear | undefined;
  readonly #second: boolean;
  constructor(
    vb: VarBuilder,
    blocks: SwinBlock[],
    width: number,
    { last, second }: Record<'last' | 'second', boolean>,
  ) {
    super();
    this.blocks = blocks;
    this.#second = second;
    this.norm = last ? undefined : layerNorm((second ? 2 : 4) * width, vb.pp('downsample.norm'));
    this.merge = last ? undefined : linear(4 * width, 2 * width, vb.pp('downsample.reduction'), { bias: false });
  }
  /** What goes on to the next stage, and what the blocks made, `seen`, of the size that was given. */
  forward(x: Tensor, size: Size): { x: Tensor; size: Size; seen: Tensor } {
    const y = this.blocks.reduce((h, block) => block.forward(h, size), x);
    if (!this.norm || !this.merge) return { x: y, size, seen: y };
    const half = size.map((n) => Math.ceil(n / 2)) as unknown as Size;
    const [b, , c] = y.shape;
    const cut = padded(y.reshape([b, ...size, c]), [2 * half[0], 2 * half[1]])
      .reshape([b, half[0], 2, half[1], 2, c])
      .permute([0, 1, 3, 4, 2, 5]); // of four places the left ones come first
    const joined = cut.reshape([b, half[0] * half[1], 4 * c]);
    const merged = this.#second
      ? this.norm.forward(this.merge.forward(joined))
      : this.merge.forward(this.norm.forward(joined));
    return { x: merged, size: half, seen: y };
  }
}

/** A stage's blocks, of which every second one's windows have moved. */
export function swinStage(vb: VarBuilder, c: SwinConfig, own: SwinWidth, depth: number, last: boolean): SwinStage {
  const blocks = Array.from({ length: depth }, (_, k) => new SwinBlock(vb.pp('blocks', k), c, own, k % 2 === 1));
  return new SwinStage(vb, blocks, own.width, { last, second: c.second });
}

type SwinParts = Pick<Swin, 'patches' | 'patchNorm' | 'positions' | 'stages' | 'norm' | 'width'>;
export class Swin extends VisionModel {
  readonly patches: Conv2d;
  readonly patchNorm: LayerNorm;
  readonly positions: Tensor | undefined;
  readonly stages: SwinStage[];
  /** Of the last places; Donut's have none. */
  readonly norm: LayerNorm | undefined;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  /** How wide its vectors are. */
  readonly width: number;
  constructor(parts: SwinParts, head: ReturnType<typeof pictureHead>) {
    super();
    this.patches = parts.patches;
    this.patchNorm = parts.patchNorm;
    this.positions = parts.positions;
    this.stages = parts.stages;
    this.norm = parts.norm;
    this.width = parts.width;
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  hidden(pixels: Tensor): Tensor {
    const { x } = this.walk(pixels);
    return this.norm?.forward(x) ?? x;
  }
  /** What comes out of the last stage, and what the blocks of each stage made, (b, places, width), with its size. */
  walk(pixels: Tensor): { x: Tensor; seen: { places: Tensor; size: Size }[] } {
    checkPixels(pixels, this.patches.weight.shape[1]);
    const [, , ...patch] = this.patches.weight.shape;
    const [, , h, w] = pixels.shape;
    const whole = [h, w].map((n, i) => Math.ceil(n / patch[i]) * patch[i]);
    const filled = whole[0] === h && whole[1] === w ? pixels : pixels.pad([0, whole[1] - w, 0, whole[0] - h]);
    const cut = this.patches.forward(filled);
    const [b, width, ...places] = cut.shape;
    let x = this.patchNorm.forward(cut.reshape([b, width, -1]).transpose(1, 2).contiguous());
    if (this.positions && this.positions.shape[1] !== x.shape[1])
      throw new UnsupportedError(`swin: ${x.shape[1]} places, the model has learnt ${this.positions.shape[1]} of them`);
    if (this.positions) x = x.add(this.positions);
    let size = places as unknown as Size;
    const seen = this.stages.map((stage) => {
      const made = stage.forward(x, size);
      const map = { places: made.seen, size };
      ({ x, size } = made);
      return map;
    });
    return { x, seen };
  }
  pooled(hidden: Tensor): Tensor {
    return hidden.mean([1]);
  }
}

/** Names of tensors as transformers has them inside, by which PyTorch's own files are written. */
const within = (name: string): string =>
  name
    .replace(/attention\.self\.(query|key|value)\./, (_, part: string) => `attention.${part[0]}_proj.`)
    .replace('attention.self.relative_position', 'attention.relative_position_bias.relative_position')
    .replace('attention.output.dense.', 'attention.o_proj.')
    .replace('intermediate.dense.', 'mlp.fc1.')
    .replace(/(\d\.)output\.dense\./, '$1mlp.fc2.');
function readSwin(c: Config, source: ModelSource, own: VarBuilder, type: string, reaching = false): SwinParts {
  ignoreStages(c);
  // Published folders have these; patches and merged places are always normed.
  c.ignore('path_norm', 'patch_norm');
  const [depths, heads] = [c.numbers('depths'), c.numbers('num_heads')];
  const first = c.count('embed_dim', 96, 1);
  const width = first * 2 ** (depths.length - 1);
  c.only('hidden_size', width);
  c.only('num_layers', depths.length);
  const second = type === 'swinv2';
  const config: SwinConfig = {
    second,
    window: c.count('window_size', 7, 1),
    eps: c.number('layer_norm_eps', 1e-5),
    activation: c.activation('hidden_act', 'gelu'),
    ratio: c.number('mlp_ratio', 4),
    biases: c.flag('qkv_bias', true),
    reaching,
  };
  const vb = source.names.some((n) => n.includes('.attention.q_proj.')) ? own.rename(within) : own;
  source.ignore(/\.(relative_position_index|relative_coords_table)$/);
  // With positions that are added, transformers' own second version and Donut's fail.
  if (type !== 'swin') c.only('use_absolute_embeddings', false);
  const trained =
    second && c.has('pretrained_window_sizes') ? c.numbers('pretrained_window_sizes') : depths.map(() => 0);
  if (trained.length < depths.length)
    throw new FormatError(
      `${c.where}: pretrained_window_sizes has ${trained.length} entries for ${depths.length} stages`,
    );
  const [image, patch] = [sideLengths(c, 'image_size'), sideLengths(c, 'patch_size')];
  const stages = depths.map((depth, i) => {
    const side = Math.min(...image.map((n, k) => Math.floor(Math.floor(n / patch[k]) / 2 ** i)));
    const window = second ? Math.min(config.window, side) : config.window;
    const shift = second && side <= window ? 0 : Math.floor(config.window / 2);
    const own: SwinWidth = { width: first * 2 ** i, heads: heads[i], window, shift, trained: trained[i] };
    return swinStage(vb.pp('encoder.layers', i), config, own, depth, i === depths.length - 1);
  });
  const e = vb.pp('embeddings');
  const places = Math.floor(image[0] / patch[0]) * Math.floor(image[1] / patch[1]);
  const channels = c.count('num_channels', 3);
  return {
    patches: conv2d(channels, first, patch, e.pp('patch_embeddings.projection'), { stride: patch }),
    patchNorm: layerNorm(first, e.pp('norm')),
    positions: c.flag('use_absolute_embeddings', false) ? e.get([1, places, first], 'position_embeddings') : undefined,
    stages,
    norm: type === 'donut-swin' || reaching ? undefined : layerNorm(width, vb.pp('layernorm'), { eps: config.eps }),
    width,
  };
}
/** The network alone, of a family and under a name that another model gives it. */
export const swinAt = (c: Config, source: ModelSource, vb: VarBuilder, type: string): Swin =>
  new Swin(readSwin(c, source, vb, type), { classifier: undefined, labels: [] });
/** The same as the network whose maps another model reads. */
export const swinMapsAt = (c: Config, source: ModelSource, vb: VarBuilder): Swin =>
  new Swin(readSwin(c, source, vb, 'swin', true), { classifier: undefined, labels: [] });
function swin(c: Config, source: ModelSource): Swin {
  const type = c.text('model_type');
  const inside = source.names.some((n) => n.startsWith(`${type}.`));
  const parts = readSwin(c, source, inside ? source.builder.pp(type) : source.builder, type);
  return new Swin(parts, pictureHead(c, source, parts.width));
}
export const SWIN_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['swin', 'swinv2'], build: swin }];
