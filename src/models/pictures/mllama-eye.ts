// Llama 3.2's tower: a picture's tiles in one row, whose places are told by the shape that they make; all of its tiles
// are looked at by layers of the text, and one token stands for the picture.
import { ArgumentError, FormatError, UnsupportedError } from '../../base/errors.js';
import {
  type Conv2d,
  conv2d,
  type Embedding,
  type LayerNorm,
  layerNorm,
  type Linear,
  linear,
} from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor, zeros } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { Eye, type Places, type Seen } from './eye.js';
import { type FeedForward, feedForward, type MultiHead, multiHead, rowTable } from '../parts.js';
import { sideOf } from './qwen-eye.js';
import type { TowerConfig } from '../vision/vit.js';

interface MllamaVision extends TowerConfig {
  readonly globalLayers: number;
  readonly side: number;
  readonly patch: number;
  readonly channels: number;
  /** The most tiles of a picture. */
  readonly tiles: number;
  /** Layers whose vectors are read beside the last one's. */
  readonly between: readonly number[];
}
const NAMES = {
  q: 'self_attn.q_proj',
  k: 'self_attn.k_proj',
  v: 'self_attn.v_proj',
  out: 'self_attn.o_proj',
  biases: [],
} as const;

class MllamaBlock extends Module {
  readonly norm1: LayerNorm;
  readonly attention: MultiHead;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
  /** How much of each branch is added: their tanh; all of it where there are none. */
  readonly attendedGate: Tensor | undefined;
  readonly fedGate: Tensor | undefined;
  constructor(vb: VarBuilder, c: MllamaVision, gated: boolean) {
    super();
    this.norm1 = layerNorm(c.width, vb.pp('input_layernorm'), { eps: c.eps });
    this.attention = multiHead(vb, NAMES, c.width, c.heads);
    this.norm2 = layerNorm(c.width, vb.pp('post_attention_layernorm'), { eps: c.eps });
    this.mlp = feedForward(vb, ['mlp.fc1', 'mlp.fc2'], c.width, c.inner, c.activation);
    this.attendedGate = gated ? vb.get([1], 'gate_attn') : undefined;
    this.fedGate = gated ? vb.get([1], 'gate_ffn') : undefined;
  }
  forward(x: Tensor, mask: Tensor): Tensor {
    const part = (y: Tensor, gate: Tensor | undefined): Tensor => (gate ? y.mul(gate.tanh()) : y);
    const y = x.add(part(this.attention.forward(this.norm1.forward(x), { mask }), this.attendedGate));
    return y.add(part(this.mlp.forward(this.norm2.forward(y)), this.fedGate));
  }
}

/** Shapes that so many tiles make, rows and columns, in the order of their numbers from 1 on. */
export const shapesOf = (tiles: number): (readonly [rows: number, columns: number])[] =>
  Array.from({ length: tiles }, (_, r) =>
    Array.from({ length: Math.floor(tiles / (r + 1)) }, (_, c) => [r + 1, c + 1] as const),
  ).flat();

export class MllamaEye extends Eye {
  readonly patches: Conv2d;
  readonly classToken: Tensor;
  /** By a picture's shape: what is added to its tiles in front of the layers and between them. */
  readonly before: Embedding;
  readonly beforeGate: Tensor;
  readonly between: Embedding;
  readonly betweenGate: Tensor;
  /** Of patches in a tile, and by a picture's shape in all of it. */
  readonly positions: Tensor;
  readonly tilePositions: Embedding;
  readonly positionGate: Tensor;
  readonly preNorm: LayerNorm;
  readonly blocks: MllamaBlock[];
  readonly postNorm: LayerNorm;
  readonly globalBlocks: MllamaBlock[];
  readonly project: Linear;
  /** The vector of the token for pictures. */
  readonly token: Tensor;
  readonly #config: MllamaVision;
  constructor(vb: VarBuilder, c: MllamaVision, project: Linear, token: Tensor) {
    super();
    this.#config = c;
    const { width, tiles, patch } = c;
    const places = this.#places;
    const shapes = shapesOf(tiles).length + 1;
    this.patches = conv2d(c.channels, width, [patch, patch], vb.pp('patch_embedding'), {
      stride: [patch, patch],
      useBias: false,
    });
    this.classToken = vb.get([width], 'class_embedding');
    const table = (name: string, columns: number): Embedding => rowTable(shapes, columns, vb.pp(name));
    this.before = table('pre_tile_positional_embedding.embedding', tiles * width);
    this.beforeGate = vb.get([1], 'pre_tile_positional_embedding.gate');
    this.between = table('post_tile_positional_embedding.embedding', tiles * width);
    this.betweenGate = vb.get([1], 'post_tile_positional_embedding.gate');
    this.positions = vb.get([places, width], 'gated_positional_embedding.embedding');
    this.tilePositions = table('gated_positional_embedding.tile_embedding', tiles * places * width);
    this.positionGate = vb.get([1], 'gated_positional_embedding.gate');
    const norm = (name: string): LayerNorm => layerNorm(width, vb.pp(name));
    const blocks = (name: string, count: number, gated: boolean): MllamaBlock[] =>
      Array.from({ length: count }, (_, i) => new MllamaBlock(vb.pp(name, 'layers', i), c, gated));
    this.preNorm = norm('layernorm_pre');
    this.blocks = blocks('transformer', c.layers, false);
    this.postNorm = norm('layernorm_post');
    this.globalBlocks = blocks('global_transformer', c.globalLayers, true);
    this.project = project;
    this.token = token;
  }
  /** Patches of a tile, and its class token. */
  get #places(): number {
    return Math.floor(this.#config.side / this.#config.patch) ** 2 + 1;
  }
  tokensOf(): number {
    return 1;
  }
  #check(pixels: Tensor, pictures: Places): void {
    const { side, channels, tiles } = this.#config;
    const shapes = shapesOf(tiles);
    const bad = pictures.find(([id, count], i) => {
      const shape = pictures[i].length === 2 ? shapes[id - 1] : undefined;
      return !shape || shape[0] * shape[1] !== count;
    });
    if (bad)
      throw new ArgumentError(
        `pictures: one is [${bad.join(', ')}]; it must be the number of a shape, from 1 to ${shapes.length}, and how ` +
          'many tiles make it',
      );
    const want = [pictures.length * tiles, channels, side, side];
    if (pictures.length === 0 || pixels.rank !== 4 || pixels.shape.some((n, i) => n !== want[i]))
      throw new ArgumentError(
        `pictures: tiles have shape [${pixels.shape.join(', ')}]; those of ${pictures.length} pictures are ` +
          `(${want.join(', ')})`,
      );
  }
  /** Tiles (pictures * most tiles, channels, side, side); of each picture the number of its shape, and its tiles. */
  forward(pixels: Tensor, pictures: Places = []): Seen {
    this.#check(pixels, pictures);
    const { width, tiles, between } = this.#config;
    const [n, places, { device }] = [pictures.length, this.#places, pixels];
    const ids = tensor(
      Uint32Array.from(pictures, ([id]) => id),
      { device },
    );
    const told = (table: Embedding, gate: Tensor, rows: number): Tensor =>
      table.forward(ids).reshape([n, tiles, rows, width]).mul(gate.tanh());
    const seen = this.patches.forward(pixels);
    const patches = seen.reshape([n, tiles, width, places - 1]).transpose(2, 3);
    const first = this.classToken.reshape([1, 1, 1, width]).broadcastTo([n, tiles, 1, width]);
    const own = this.positions.mul(this.positionGate.tanh().affine(-1, 1));
    const placed = first
      .cat([patches.add(told(this.before, this.beforeGate, 1))], 2)
      .add(own)
      .add(told(this.tilePositions, this.positionGate, places));
    // Tiles are filled to whole eights (a square and one are never that); what is filled in, and tiles that are not
    // there, see the others alone, and are seen.
    const whole = Math.ceil(places / 8) * 8;
    const filler = zeros([n, tiles, whole - places, width], { device, dtype: pixels.dtype });
    let x = this.preNorm
      .forward(placed)
      .cat([filler], 2)
      .reshape([n, tiles * whole, width]);
    const there = Uint8Array.from({ length: n * tiles * whole }, (_, i) => {
      const [picture, within] = [Math.floor(i / (tiles * whole)), i % (tiles * whole)];
      return Number(Math.floor(within / whole) < pictures[picture][1] && within % whole < places);
    });
    const real = tensor(there, { shape: [n, 1, tiles * whole, 1], device });
    const mask = real.add(real.transpose(2, 3)).ne(0).cast('u8');
    const made = this.blocks.map((block) => (x = block.forward(x, mask)));
    const tiled = (y: Tensor): Tensor => y.reshape([n, tiles, whole, width]);
    x = tiled(this.postNorm.forward(x))
      .add(told(this.between, this.betweenGate, 1))
      .reshape([n, tiles * whole, width]);
    for (const block of this.globalBlocks) x = block.forward(x, mask);
    const others = between.map((i) => tiled(made[i]).unsqueeze(4));
    const beside = others[0].cat(others.slice(1), 4).reshape([n, tiles, whole, width * between.length]);
    const all = tiled(x).cat([beside], 3).narrow(2, 0, places).contiguous();
    const tokens = this.token.reshape([1, -1]).broadcastTo([n, this.token.shape[0]]).contiguous();
    return { tokens, watched: { pictures: this.project.forward(all), tiles: pictures.map((p) => p[1]) } };
  }
}

/** By its config; `token` is the vector of the token for pictures. */
export function mllamaEye(v: Config, vb: VarBuilder, projector: VarBuilder, token: Tensor): MllamaEye {
  v.ignoreBooks();
  v.only('model_type', 'mllama_vision_model');
  const width = v.count('hidden_size', 1280, 1);
  const heads = v.optional('attention_heads') ?? v.count('num_attention_heads', 16, 1);
  v.only('num_attention_heads', heads);
  const tiles = v.count('max_num_tiles', 4, 1);
  const layers = v.count('num_hidden_layers', 32);
  const between = v.has('intermediate_layers_indices') ? v.numbers('intermediate_layers_indices') : [3, 7, 15, 23, 30];
  const [side, patch] = [sideOf(v, 'image_size', 448), sideOf(v, 'patch_size', 14)];
  const out = v.count('vision_output_dim', 7680);
  if (width % heads !== 0)
    throw new FormatError(`${v.where}: vision_config: ${width} numbers do not divide by ${heads} heads`);
  if (between.length === 0 || between.some((i) => !Number.isInteger(i) || i < 0 || i >= layers))
    throw new FormatError(
      `${v.where}: vision_config.intermediate_layers_indices [${between.join(', ')}] are none of ${layers} layers`,
    );
  if (out !== width * (1 + between.length))
    throw new FormatError(
      `${v.where}: vision_config.vision_output_dim is ${out}; ${between.length + 1} layers of ${width} numbers are read`,
    );
  if (tiles > 64) throw new UnsupportedError(`${v.where}: vision_config.max_num_tiles is ${tiles}; 64 are the most`);
  v.only('supported_aspect_ratios', shapesOf(tiles));
  const config: MllamaVision = {
    ...{ width, heads, tiles, layers, between, side, patch },
    globalLayers: v.count('num_global_layers', 8),
    inner: v.count('intermediate_size', 5120, 1),
    eps: v.number('norm_eps', 1e-5),
    activation: v.activation('hidden_act', 'gelu'),
    channels: v.count('num_channels', 3, 1),
  };
  return new MllamaEye(vb, config, linear(out, token.shape[0], projector), token);
}
