// Hiera: places in the order of the squares that they lie in, at every scale; attention within squares or of all, and
// on the way to wider stages the largest of each square stands for it.
import { ArgumentError, FormatError } from '../../base/errors.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward } from '../parts.js';
import { asPlaces } from './seg-body.js';
import { within } from './staged-net.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';
import { sideLengths } from './vit.js';

interface LayerConfig {
  readonly from: number;
  readonly to: number;
  readonly heads: number;
  /** Of so many places one goes on. */
  readonly joins: number;
  /** Places of a square that look at each other; none where all do. */
  readonly square: number | undefined;
  readonly inner: number;
  readonly activation: string;
  readonly eps: number;
}
/** (b, places, width) to the largest of each `n` places that a square is made of. */
const largest = (x: Tensor, n: number): Tensor =>
  n > 1 ? x.reshape([x.shape[0], n, x.shape[1] / n, x.shape[2]]).max(1) : x;

class HieraLayer extends Module {
  readonly norm1: LayerNorm;
  readonly joined: Linear;
  readonly out: Linear;
  /** To a wider stage. */
  readonly widen: Linear | undefined;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
  readonly #config: LayerConfig;
  constructor(vb: VarBuilder, c: LayerConfig) {
    super();
    this.#config = c;
    this.norm1 = layerNorm(c.from, vb.pp('layernorm_before'), { eps: c.eps });
    this.joined = linear(c.from, 3 * c.to, vb.pp('attn.qkv'));
    this.out = linear(c.to, c.to, vb.pp('attn.proj'));
    this.widen = c.from === c.to ? undefined : linear(c.from, c.to, vb.pp('proj'));
    this.norm2 = layerNorm(c.to, vb.pp('layernorm_after'), { eps: c.eps });
    this.mlp = feedForward(vb, ['mlp.fc1', 'mlp.fc2'], c.to, c.inner, c.activation);
  }
  #attend(x: Tensor): Tensor {
    const { to, heads, joins, square } = this.#config;
    const [b, t] = x.shape;
    const each = square === undefined ? t : joins * square;
    const [squares, d] = [t / each, to / heads];
    const joined = this.joined.forward(x).reshape([b, each, squares, 3, heads, d]).permute([3, 0, 4, 2, 1, 5]);
    const [q, k, v] = [0, 1, 2].map((i) => joined.narrow(0, i, 1).reshape([b * heads, squares, each, d]));
    const asking = joins > 1 ? q.reshape([b * heads, squares, joins, each / joins, d]).max(2) : q;
    const seen = asking.sdpa(k, v).reshape([b, heads, squares, each / joins, d]);
    return this.out.forward(seen.permute([0, 3, 2, 1, 4]).reshape([b, t / joins, to]));
  }
  forward(x: Tensor): Tensor {
    const normed = this.norm1.forward(x);
    const y = (this.widen ? largest(this.widen.forward(normed), this.#config.joins) : x).add(this.#attend(normed));
    return y.add(this.mlp.forward(this.norm2.forward(y)));
  }
}

type Pair = readonly [number, number];
interface HieraConfig {
  readonly channels: number;
  readonly width: number;
  readonly kernel: Pair;
  readonly stride: Pair;
  readonly padding: Pair;
  readonly grid: Pair;
  /** The sides of a square's parts, and how often squares are made of smaller ones. */
  readonly parts: Pair;
  readonly scales: number;
}
class Hiera extends VisionModel {
  readonly patches: Conv2d;
  readonly positions: Tensor;
  readonly layers: readonly HieraLayer[];
  readonly norm: LayerNorm;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  readonly #config: HieraConfig;
  constructor(
    vb: VarBuilder,
    c: HieraConfig,
    parts: Pick<Hiera, 'layers' | 'norm'>,
    head: ReturnType<typeof pictureHead>,
  ) {
    super();
    this.#config = c;
    const e = vb.pp('embeddings');
    this.patches = conv2d(c.channels, c.width, c.kernel, e.pp('patch_embeddings.projection'), {
      ...{ stride: c.stride, padding: c.padding },
    });
    this.positions = e.get([1, c.grid[0] * c.grid[1], c.width], 'position_embeddings');
    this.layers = parts.layers;
    this.norm = parts.norm;
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  hidden(pixels: Tensor): Tensor {
    checkPixels(pixels, this.patches.weight.shape[1]);
    const { grid, parts, scales, width } = this.#config;
    const cut = this.patches.forward(pixels);
    const [b, , ...size] = cut.shape;
    if (size[0] !== grid[0] || size[1] !== grid[1])
      throw new ArgumentError(`vision: ${size.join(' x ')} places; the model has learnt ${grid.join(' x ')} of them`);
    let x = asPlaces(cut)
      .add(this.positions)
      .reshape([b, ...size, width]);
    for (let i = 0; i < scales; i++) {
      const [n, h, w] = x.shape;
      const small = [h / parts[0], w / parts[1]];
      x = x
        .reshape([n, small[0], parts[0], small[1], parts[1], width])
        .permute([0, 2, 4, 1, 3, 5])
        .reshape([n * parts[0] * parts[1], ...small, width]);
    }
    return this.layers.reduce((y, layer) => layer.forward(y), x.reshape([b, grid[0] * grid[1], width]));
  }
  pooled(hidden: Tensor): Tensor {
    return this.norm.forward(hidden.mean([1]));
  }
}

function hiera(c: Config, source: ModelSource): Hiera {
  ignoreStages(c);
  // Of what draws hidden squares while training, and of how norms begin.
  c.ignore('mask_ratio', 'normalize_pixel_loss', 'layer_norm_init', 'hidden_size');
  c.ignore('decoder_hidden_size', 'decoder_depth', 'decoder_num_heads');
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name) : fallback;
  const pair = (name: string, n: number): Pair => (c.has(name) ? sideLengths(c, name) : [n, n]);
  const [depths, heads] = [listed('depths', [2, 3, 16, 3]), listed('num_heads', [1, 2, 4, 8])];
  const [image, stride, parts] = [pair('image_size', 224), pair('patch_stride', 4), pair('query_stride', 2)];
  const grid: Pair = [Math.floor(image[0] / stride[0]), Math.floor(image[1] / stride[1])];
  const scales = depths.length - 1;
  if (grid.some((n, i) => n % parts[i] ** scales !== 0))
    throw new FormatError(
      `${c.where}: ${grid.join(' x ')} places (image_size, patch_stride) do not divide into squares of ` +
        `${parts.join(' x ')} parts (query_stride), ${scales} times`,
    );
  const area = parts[0] * parts[1];
  const [first, times] = [c.count('embed_dim', 96, 1), c.number('embed_dim_multiplier', 2)];
  const widthOf = (i: number): number => Math.trunc(first * times ** i);
  const pools = c.count('num_query_pool', 3);
  const unit = pair('masked_unit_size', 8);
  const given = c.get('masked_unit_attention') ?? [true, true, false, false];
  if (!Array.isArray(given) || given.length < depths.length || !given.every((v) => typeof v === 'boolean'))
    throw new FormatError(
      `${c.where}: masked_unit_attention is ${JSON.stringify(given)}, not true or false for each stage`,
    );
  const inSquares = given as readonly boolean[];
  const [ratio, activation] = [c.number('mlp_ratio', 4), c.activation('hidden_act', 'gelu')];
  const eps = c.number('layer_norm_eps', 1e-6);
  const vb = within(source, 'hiera');
  const layers = depths.flatMap((depth, i) =>
    Array.from({ length: depth }, (_, k) => {
      const [from, to] = [k === 0 && i > 0 ? widthOf(i - 1) : widthOf(i), widthOf(i)];
      // The first layer of a stage still looks as the stage before did.
      const squares = inSquares[i] || (k === 0 && inSquares[Math.max(0, i - 1)]);
      const joins = k === 0 && i > 0 && i <= pools ? area : 1;
      const square = squares ? Math.trunc(unit[0] * unit[1] * area ** -i) : undefined;
      const o = { from, to, heads: heads[i], joins, square, inner: Math.trunc(to * ratio), activation, eps };
      return new HieraLayer(vb.pp('encoder.stages', i, 'layers', k), o);
    }),
  );
  const width = widthOf(scales);
  const config: HieraConfig = {
    ...{ channels: c.count('num_channels', 3, 1), width: first, stride, grid, parts, scales },
    kernel: pair('patch_size', 7),
    padding: pair('patch_padding', 3),
  };
  const norm = layerNorm(width, vb.pp('pooler.layernorm'), { eps });
  return new Hiera(vb, config, { layers, norm }, pictureHead(c, source, width));
}
export const HIERA_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['hiera'], build: hiera }];
