// SAM's half that sees: a vision transformer most of whose layers look within windows, with scores by the distance of
// two places down and across, and a few convolutions behind it.
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type FeedForward, feedForward } from '../parts.js';
import { PlaceNorm } from '../vision/seg-body.js';
import { Patches, type TowerConfig } from '../vision/vit.js';
import { fromWindows, padded, windowsOf } from '../vision/windows.js';

export interface SamEyeConfig extends TowerConfig {
  readonly image: number;
  readonly patch: number;
  readonly channels: number;
  readonly out: number;
  readonly window: number;
  /** Layers that look at the whole picture. */
  readonly whole: readonly number[];
  readonly qkvBias: boolean;
  readonly positions: boolean;
  readonly distances: boolean;
}

/** Attention of a square of places; queries say how much each distance counts. */
class SquareAttention extends Module {
  readonly joined: Linear;
  readonly out: Linear;
  /** A vector for each distance down and across, (2 * side - 1, head). */
  readonly down: Tensor | undefined;
  readonly across: Tensor | undefined;
  readonly side: number;
  readonly #heads: number;
  constructor(vb: VarBuilder, c: SamEyeConfig, side: number) {
    super();
    this.side = side;
    this.#heads = c.heads;
    this.joined = linear(c.width, 3 * c.width, vb.pp('qkv'), { bias: c.qkvBias });
    this.out = linear(c.width, c.width, vb.pp('proj'));
    const rows = (name: string): Tensor | undefined =>
      c.distances ? vb.get([2 * side - 1, c.width / c.heads], name) : undefined;
    this.down = rows('rel_pos_h');
    this.across = rows('rel_pos_w');
  }
  /** For each place in a row the vectors of all distances from it, (side, side, head). */
  #distances(table: Tensor): Tensor {
    const n = this.side;
    const ids = Uint32Array.from({ length: n * n }, (_, i) => Math.floor(i / n) - (i % n) + n - 1);
    return table.indexSelect(0, tensor(ids, { device: table.device })).reshape([n, n, -1]);
  }
  /** (b, places, width). */
  forward(x: Tensor): Tensor {
    const [b, t, width] = x.shape;
    const [heads, n] = [this.#heads, this.side];
    const d = width / heads;
    const joined = this.joined.forward(x).reshape([b, t, 3, heads, d]).permute([2, 0, 3, 1, 4]);
    const [q, k, v] = [0, 1, 2].map((i) => joined.narrow(0, i, 1).squeeze(0));
    const { down, across } = this;
    if (!down || !across) return this.out.forward(q.sdpa(k, v).transpose(1, 2).reshape([b, t, width]));
    // What distances add to a score is a product, too: of longer queries and of keys that say where they are.
    const placed = q.reshape([b * heads, n, n, d]);
    const rows = placed.permute([1, 0, 2, 3]).reshape([n, b * heads * n, d]);
    const columns = placed.permute([2, 0, 1, 3]).reshape([n, b * heads * n, d]);
    const far = rows.matmul(this.#distances(down).transpose(1, 2));
    const wide = columns.matmul(this.#distances(across).transpose(1, 2));
    const long = q.affine(d ** -0.5, 0).cat(
      [
        far
          .reshape([n, b * heads, n, n])
          .permute([1, 0, 2, 3])
          .reshape([b, heads, t, n]),
        wide
          .reshape([n, b * heads, n, n])
          .permute([1, 2, 0, 3])
          .reshape([b, heads, t, n]),
      ],
      3,
    );
    const at = Float32Array.from({ length: t * 2 * n }, (_, i) => {
      const [place, column] = [Math.floor(i / (2 * n)), i % (2 * n)];
      return Number(column < n ? Math.floor(place / n) === column : place % n === column - n);
    });
    const where = tensor(at, { shape: [1, 1, t, 2 * n], device: x.device }).cast(x.dtype);
    const keys = k.cat([where.broadcastTo([b, heads, t, 2 * n])], 3);
    const seen = long.sdpa(keys, v.pad([0, 2 * n]), { scale: 1 }).narrow(3, 0, d);
    return this.out.forward(seen.transpose(1, 2).reshape([b, t, width]));
  }
}

class SamLayer extends Module {
  readonly norm1: LayerNorm;
  readonly attention: SquareAttention;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
  readonly #windowed: boolean;
  constructor(vb: VarBuilder, c: SamEyeConfig, windowed: boolean) {
    super();
    this.#windowed = windowed;
    this.norm1 = layerNorm(c.width, vb.pp('layer_norm1'), { eps: c.eps });
    this.attention = new SquareAttention(vb.pp('attn'), c, windowed ? c.window : Math.floor(c.image / c.patch));
    this.norm2 = layerNorm(c.width, vb.pp('layer_norm2'), { eps: c.eps });
    this.mlp = feedForward(vb, ['mlp.lin1', 'mlp.lin2'], c.width, c.inner, c.activation);
  }
  #attend(x: Tensor): Tensor {
    const [b, h, w, c] = x.shape;
    const { side } = this.attention;
    if (!this.#windowed) return this.attention.forward(x.reshape([b, h * w, c])).reshape([b, h, w, c]);
    const whole = [Math.ceil(h / side) * side, Math.ceil(w / side) * side] as const;
    const seen = fromWindows(this.attention.forward(windowsOf(padded(x, whole), side)), side, whole);
    return seen.narrow(1, 0, h).narrow(2, 0, w);
  }
  /** (b, h, w, width). */
  forward(x: Tensor): Tensor {
    const y = x.add(this.#attend(this.norm1.forward(x)));
    return y.add(this.mlp.forward(this.norm2.forward(y)));
  }
}

export class SamEye extends Module {
  readonly patches: Patches;
  readonly positions: Tensor | undefined;
  readonly layers: SamLayer[];
  readonly narrow: Conv2d;
  readonly narrowNorm: PlaceNorm;
  readonly filter: Conv2d;
  readonly filterNorm: PlaceNorm;
  constructor(vb: VarBuilder, c: SamEyeConfig) {
    super();
    const [image, patch] = [[c.image, c.image] as const, [c.patch, c.patch] as const];
    const side = Math.floor(c.image / c.patch);
    this.patches = new Patches(vb.pp('patch_embed.projection'), c.channels, c.width, image, patch, true);
    this.positions = c.positions ? vb.get([1, side, side, c.width], 'pos_embed') : undefined;
    this.layers = Array.from(
      { length: c.layers },
      (_, i) => new SamLayer(vb.pp('layers', i), c, c.window > 0 && !c.whole.includes(i)),
    );
    const neck = vb.pp('neck');
    const norm = (name: string): PlaceNorm => new PlaceNorm(layerNorm(c.out, neck.pp(name), { eps: 1e-6 }));
    this.narrow = conv2d(c.width, c.out, 1, neck.pp('conv1'), { useBias: false });
    this.narrowNorm = norm('layer_norm1');
    this.filter = conv2d(c.out, c.out, 3, neck.pp('conv2'), { padding: 1, useBias: false });
    this.filterNorm = norm('layer_norm2');
  }
  /** (b, width, rows, columns). */
  forward(pixels: Tensor): Tensor {
    const cut = this.patches.forward(pixels);
    const [b, t, width] = cut.shape;
    const side = Math.sqrt(t);
    const places = cut.reshape([b, side, side, width]);
    const seen = this.layers.reduce(
      (x, layer) => layer.forward(x),
      this.positions ? places.add(this.positions) : places,
    );
    const map = this.narrowNorm.forward(this.narrow.forward(seen.permute([0, 3, 1, 2]).contiguous()));
    return this.filterNorm.forward(this.filter.forward(map));
  }
}
