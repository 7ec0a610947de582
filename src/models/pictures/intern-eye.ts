// InternVL's tower: a vision transformer whose branches are multiplied by learnt factors, and whose queries and keys
// may have norms.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { type LayerNorm, layerNorm, type Linear, linear, type RmsNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { rmsNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { type FeedForward, feedForward } from '../parts.js';
import { Patches, sideLengths, type TowerConfig } from '../vision/vit.js';

interface InternVision extends TowerConfig, Record<'image' | 'patch', readonly [number, number]> {
  readonly channels: number;
  /** Norms are by mean squares; of queries and keys, there are norms or none. */
  readonly meanSquares: boolean;
  readonly headNorms: boolean;
  readonly qkvBias: boolean;
  readonly positions: boolean;
  /** The last layer's vectors go through a norm. */
  readonly normed: boolean;
}
type Norm = LayerNorm | RmsNorm;
/** Of queries and keys, whatever a config says of the others. */
const HEAD_EPS = 1e-6;

class InternBlock extends Module {
  readonly norm1: Norm;
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly qNorm: RmsNorm | undefined;
  readonly kNorm: RmsNorm | undefined;
  readonly out: Linear;
  readonly norm2: Norm;
  readonly mlp: FeedForward;
  /** What is added is multiplied by these. */
  readonly attendedScale: Tensor;
  readonly fedScale: Tensor;
  readonly #heads: number;
  constructor(vb: VarBuilder, c: InternVision) {
    super();
    this.#heads = c.heads;
    const norm = (name: string): Norm =>
      c.meanSquares ? rmsNorm(c.width, vb.pp(name), c.eps) : layerNorm(c.width, vb.pp(name), { eps: c.eps });
    const at = vb.pp('attention');
    const product = (name: string, bias = c.qkvBias): Linear => linear(c.width, c.width, at.pp(name), { bias });
    this.norm1 = norm('layernorm_before');
    this.q = product('q_proj');
    this.k = product('k_proj');
    this.v = product('v_proj');
    this.qNorm = c.headNorms ? rmsNorm(c.width, at.pp('q_norm'), HEAD_EPS) : undefined;
    this.kNorm = c.headNorms ? rmsNorm(c.width, at.pp('k_norm'), HEAD_EPS) : undefined;
    this.out = product('projection_layer', true);
    this.norm2 = norm('layernorm_after');
    this.mlp = feedForward(vb, ['mlp.fc1', 'mlp.fc2'], c.width, c.inner, c.activation);
    this.attendedScale = vb.get([c.width], 'lambda_1');
    this.fedScale = vb.get([c.width], 'lambda_2');
  }
  /** x is (b, places, width). */
  forward(x: Tensor): Tensor {
    const [b, n, width] = x.shape;
    const normed = this.norm1.forward(x);
    const split = (t: Tensor): Tensor => t.reshape([b, n, this.#heads, width / this.#heads]);
    const [q, k] = [this.q.forward(normed), this.k.forward(normed)];
    const [queries, keys] = [this.qNorm?.forward(q) ?? q, this.kNorm?.forward(k) ?? k];
    const found = split(queries).sdpa(split(keys), split(this.v.forward(normed)), { layout: 'bthd' });
    const y = x.add(this.out.forward(found.reshape([b, n, width])).mul(this.attendedScale));
    return y.add(this.mlp.forward(this.norm2.forward(y)).mul(this.fedScale));
  }
}

export class InternTower extends Module {
  readonly patches: Patches;
  readonly classToken: Tensor;
  readonly positions: Tensor | undefined;
  readonly blocks: InternBlock[];
  readonly norm: LayerNorm | undefined;
  /** Rows and columns of patches of a picture. */
  readonly grid: readonly [rows: number, columns: number];
  readonly #layer: number;
  /** `layer`: whose vectors are read, counted from behind or from what goes into the first. */
  constructor(vb: VarBuilder, c: InternVision, layer: number) {
    super();
    this.#layer = layer;
    this.grid = [Math.floor(c.image[0] / c.patch[0]), Math.floor(c.image[1] / c.patch[1])];
    const e = vb.pp('embeddings');
    this.patches = new Patches(e.pp('patch_embeddings.projection'), c.channels, c.width, c.image, c.patch, true);
    this.classToken = e.get([1, 1, c.width], 'cls_token');
    const places = this.grid[0] * this.grid[1] + 1;
    this.positions = c.positions ? e.get([1, places, c.width], 'position_embeddings') : undefined;
    this.blocks = Array.from({ length: c.layers }, (_, i) => new InternBlock(vb.pp('encoder.layer', i), c));
    this.norm = c.normed ? layerNorm(c.width, vb.pp('layernorm'), { eps: c.eps }) : undefined;
  }
  /** Vectors of a picture's patches, (b, patches, width). */
  hidden(pixels: Tensor): Tensor {
    const patches = this.patches.forward(pixels);
    const [b, n, width] = patches.shape;
    let x = this.classToken.broadcastTo([b, 1, width]).cat([patches], 1);
    if (this.positions) x = x.add(this.positions);
    const all = [x];
    for (const block of this.blocks) all.push((x = block.forward(x)));
    const read = this.#layer === -1 ? (this.norm?.forward(x) ?? x) : (all.at(this.#layer) as Tensor);
    return read.narrow(1, 1, n);
  }
}

/** The half that sees by itself, by its config. */
export function internTower(v: Config, vb: VarBuilder, layer: number): { tower: InternTower; width: number } {
  v.ignoreBooks();
  v.ignore('layer_scale_init_value', 'projection_dropout', 'use_mask_token');
  v.only('model_type', 'internvl_vision');
  v.only('norm_type', 'layer_norm', 'rms_norm');
  const width = v.count('hidden_size', 1024, 1);
  const heads = v.count('num_attention_heads', 16, 1);
  if (width % heads !== 0)
    throw new FormatError(`${v.where}: vision_config: ${width} numbers do not divide by ${heads} heads`);
  const sides = (name: string, unsaid: number): readonly [number, number] =>
    v.has(name) ? sideLengths(v, name) : [unsaid, unsaid];
  const config: InternVision = {
    ...{ width, heads },
    layers: v.count('num_hidden_layers', 24),
    inner: v.count('intermediate_size', 4096, 1),
    eps: v.number('layer_norm_eps', 1e-6),
    activation: v.activation('hidden_act', 'gelu'),
    image: sides('image_size', 448),
    patch: sides('patch_size', 14),
    channels: v.count('num_channels', 3, 1),
    meanSquares: v.text('norm_type', 'layer_norm') === 'rms_norm',
    headNorms: v.flag('use_qk_norm', false),
    qkvBias: v.flag('attention_bias', false),
    positions: v.flag('use_absolute_position_embeddings', true),
    normed: !v.flag('use_mean_pooling', true),
  };
  const tower = new InternTower(vb, config, layer);
  const [rows, columns] = tower.grid;
  if (rows !== columns) {
    tower.dispose();
    throw new UnsupportedError(
      `${v.where}: vision_config: pictures of ${rows} x ${columns} patches; squares are served`,
    );
  }
  return { tower, width };
}
