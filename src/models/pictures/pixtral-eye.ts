// What Pixtral and Mistral Small 3.1 see with: patches of pictures of any size in one row, turned by their row and
// column, that look at their own picture. A patch becomes a token, or (Mistral) a square of patches does.
import { ArgumentError, FormatError, UnsupportedError } from '../../base/errors.js';
import { Linear, linear, type RmsNorm } from '../../nn/layers.js';
import { Layer, Module } from '../../nn/module.js';
import { rmsNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { attended, type Run, runsOf } from './eye-runs.js';
import { Eye, type Place, type Places, type Seen } from './eye.js';
import { GatedFeedForward, reshaped } from '../parts.js';
import { sideOf, thetaOf } from './qwen-eye.js';
import type { RopeTable } from '../decoder/rope.js';

interface PixtralVision {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly activation: string;
  readonly channels: number;
  readonly patch: number;
  readonly theta: number;
}
const EPS = 1e-5;

class PixtralBlock extends Module {
  readonly norm1: RmsNorm;
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly out: Linear;
  readonly norm2: RmsNorm;
  readonly mlp: GatedFeedForward;
  readonly #heads: number;
  constructor(vb: VarBuilder, { width, inner, heads, activation }: PixtralVision) {
    super();
    this.#heads = heads;
    const product = (name: string, from = width, to = width): Linear => linear(from, to, vb.pp(name), { bias: false });
    this.norm1 = rmsNorm(width, vb.pp('attention_norm'), EPS);
    this.q = product('attention.q_proj');
    this.k = product('attention.k_proj');
    this.v = product('attention.v_proj');
    this.out = product('attention.o_proj');
    this.norm2 = rmsNorm(width, vb.pp('ffn_norm'), EPS);
    const [gate, up] = ['gate_proj', 'up_proj'].map((name) => product(`feed_forward.${name}`, width, inner));
    this.mlp = new GatedFeedForward(gate, up, product('feed_forward.down_proj', inner, width), activation);
  }
  /** x is (1, patches, width). */
  forward(x: Tensor, rope: RopeTable, runs: readonly Run[]): Tensor {
    const [, n, width] = x.shape;
    const normed = this.norm1.forward(x);
    const [q, k, v] = [this.q, this.k, this.v].map((part) =>
      part.forward(normed).reshape([1, n, this.#heads, width / this.#heads]),
    );
    const turned = (t: Tensor): Tensor => t.cast('f32').contiguous().ropeThd(rope.cos, rope.sin).cast(x.dtype);
    const y = x.add(this.out.forward(attended(turned(q), turned(k), v, runs)));
    return y.add(this.mlp.forward(this.norm2.forward(y)));
  }
}

/** Patches of pictures to vectors. */
export class PixtralTower extends Module {
  /** A patch's numbers to its vector, (width, numbers). */
  readonly patches: Linear;
  readonly norm: RmsNorm;
  readonly blocks: PixtralBlock[];
  readonly #config: PixtralVision;
  constructor(vb: VarBuilder, c: PixtralVision) {
    super();
    this.#config = c;
    const stored = vb.get([c.width, c.channels, c.patch, c.patch], 'patch_conv.weight');
    this.patches = new Linear(reshaped(stored, [c.width, c.channels * c.patch ** 2]));
    this.norm = rmsNorm(c.width, vb.pp('ln_pre'), EPS);
    this.blocks = Array.from({ length: c.layers }, (_, i) => new PixtralBlock(vb.pp('transformer.layers', i), c));
  }
  /** How patches turn: half of a head's pairs by their row, half by their column, at speeds that take turns. */
  #rope(grids: Places, like: Tensor): RopeTable {
    const { width, heads, theta } = this.#config;
    const pairs = width / heads / 2;
    const speed = (i: number): number => Math.fround(1 / theta ** (i / pairs));
    const speeds = [0, 1].map((axis) => Array.from({ length: pairs / 2 }, (_, i) => speed(2 * i + axis)));
    const angles = grids.flatMap(([rows, columns]) =>
      Array.from({ length: rows * columns }, (_, i) =>
        [Math.floor(i / columns), i % columns].flatMap((at, axis) => speeds[axis].map((s) => at * s)),
      ).flat(),
    );
    const table = (f: (x: number) => number): Tensor =>
      tensor(Float32Array.from(angles, f), { shape: [angles.length / pairs, pairs], device: like.device });
    return { cos: table(Math.cos), sin: table(Math.sin) };
  }
  /** Of patches (n, numbers): what goes into the first block and what comes out of each, (n, width). */
  layers(pixels: Tensor, grids: Places): Tensor[] {
    let x = this.norm.forward(this.patches.forward(pixels)).unsqueeze(0);
    const rope = this.#rope(grids, x);
    const runs = runsOf(grids.map(([rows, columns]) => rows * columns));
    const all = [x];
    for (const block of this.blocks) all.push((x = block.forward(x, rope, runs)));
    return all.map((t) => t.squeeze(0));
  }
}

/** Squares of patches side by side, and a product that makes one of them (Mistral). */
export class PatchMerger extends Module {
  readonly norm: RmsNorm;
  readonly product: Linear;
  /** Patches of a token's side. */
  readonly side: number;
  constructor(vb: VarBuilder, width: number, eps: number, side: number) {
    super();
    this.side = side;
    this.norm = rmsNorm(width, vb.pp('norm'), eps);
    this.product = linear(width * side ** 2, width, vb.pp('patch_merger.merging_layer'), { bias: false });
  }
  /** Of the vectors of pictures' patches, row by row. */
  forward(x: Tensor, grids: Places): Tensor {
    const [normed, s, width] = [this.norm.forward(x), this.side, x.shape[1]];
    let from = 0;
    const squares = grids.map(([rows, columns]) => {
      const picture = normed.narrow(0, from, rows * columns);
      from += rows * columns;
      return picture
        .reshape([rows / s, s, columns / s, s, width])
        .permute([0, 2, 4, 1, 3])
        .reshape([(rows * columns) / s ** 2, width * s ** 2]);
    });
    return this.product.forward(squares[0].cat(squares.slice(1), 0));
  }
}

export class PixtralEye extends Eye {
  readonly tower: PixtralTower;
  readonly merger: PatchMerger | undefined;
  readonly project: Layer;
  readonly #layers: readonly number[];
  /** `layers`: whose vectors are read, side by side. */
  constructor(parts: Pick<PixtralEye, 'tower' | 'merger' | 'project'>, layers: readonly number[]) {
    super();
    this.tower = parts.tower;
    this.merger = parts.merger;
    this.project = parts.project;
    this.#layers = layers;
  }
  /** Patches of a token's side. */
  get merge(): number {
    return this.merger?.side ?? 1;
  }
  tokensOf([rows, columns]: Place): number {
    return (rows * columns) / this.merge ** 2;
  }
  #check(pixels: Tensor, grids: Places): void {
    const { merge } = this;
    const bad = grids.find((g) => g.length !== 2 || g.some((n) => !Number.isInteger(n) || n < 1 || n % merge !== 0));
    if (bad)
      throw new ArgumentError(
        `pictures: a grid is [${bad.join(', ')}]; it must be rows and columns of patches` +
          (merge > 1 ? `, both a multiple of ${merge}` : ''),
      );
    const [count, numbers] = [grids.reduce((n, [h, w]) => n + h * w, 0), this.tower.patches.weight.shape[1]];
    if (count === 0 || pixels.rank !== 2 || pixels.shape[0] !== count || pixels.shape[1] !== numbers)
      throw new ArgumentError(
        `pictures: patches have shape [${pixels.shape.join(', ')}]; by their grids they are (${count}, ${numbers})`,
      );
  }
  /** Patches (n, numbers) of pictures of these grids, rows and columns of patches. */
  forward(pixels: Tensor, places: Places = []): Seen {
    this.#check(pixels, places);
    const all = this.tower.layers(pixels, places);
    const [first, ...others] = this.#layers.map((i) => all.at(i) as Tensor);
    const joined = others.length > 0 ? first.cat(others, 1) : first;
    return { tokens: this.project.forward(this.merger ? this.merger.forward(joined, places) : joined) };
  }
}

/** The half that sees by itself, by its config. */
export function pixtralTower(v: Config, vb: VarBuilder): { readonly tower: PixtralTower; readonly width: number } {
  v.ignoreBooks();
  // Turned patches have no learnt places, so that no size of a picture is the largest.
  v.ignore('image_size', 'is_composition', 'tie_word_embeddings');
  v.only('model_type', 'pixtral');
  const [width, heads] = [v.count('hidden_size', 1024, 1), v.count('num_attention_heads', 16, 1)];
  if (width % (4 * heads) !== 0)
    throw new FormatError(
      `${v.where}: vision_config: ${width} numbers of ${heads} heads do not turn by row and column`,
    );
  if (v.has('head_dim') && v.number('head_dim') !== width / heads)
    throw new UnsupportedError(
      `${v.where}: vision_config.head_dim is ${v.number('head_dim')}; ${width} numbers of ${heads} heads are served`,
    );
  const tower = new PixtralTower(vb, {
    ...{ width, heads },
    layers: v.count('num_hidden_layers', 24),
    inner: v.count('intermediate_size', 4096, 1),
    activation: v.activation('hidden_act', 'gelu'),
    channels: v.count('num_channels', 3, 1),
    patch: sideOf(v, 'patch_size', 16),
    theta: thetaOf(v),
  });
  return { tower, width };
}
