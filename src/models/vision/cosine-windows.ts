// Swin v2's attention within a window: scores are cosines times a factor of each head, and what distances add is made
// by a small network.
import { type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type MultiHead, multiHead, type MultiHeadNames } from '../parts.js';

/** No head's factor is larger. */
const LARGEST = Math.log(100);
/** What the network makes of a distance lies between nothing and this. */
const MOST_ADDED = 16;
/** The width of the network for distances. */
const INNER = 512;
/** Distances at the window's edge lie here before their logarithm. */
const EDGE = 8;

/** Rows of length 1; zeros stay zeros. */
function unit(x: Tensor): Tensor {
  const wide = x.dtype === 'f64' ? x : x.cast('f32');
  return wide.div(wide.sqr().sum([-1], true).clamp(1e-24, Infinity).sqrt()).cast(x.dtype);
}

export class CosineAttention extends Module {
  /** Queries, keys, values and what leads back. */
  readonly parts: MultiHead;
  /** Logarithms of the heads' factors, (heads, 1, 1). */
  readonly factors: Tensor;
  constructor(vb: VarBuilder, names: MultiHeadNames, width: number, heads: number) {
    super();
    this.parts = multiHead(vb, names, width, heads);
    this.factors = vb.get([heads, 1, 1], 'self.logit_scale');
  }
  /** The mask is added to scores, (b or 1, heads, area, area). */
  forward(x: Tensor, { mask }: { readonly mask: Tensor }): Tensor {
    const { q, k, v, out, heads } = this.parts;
    const [b, t, width] = x.shape;
    const [queries, keys, values] = [q, k, v].map((part) =>
      part
        .forward(x)
        .reshape([b, t, heads, width / heads])
        .transpose(1, 2)
        .contiguous(),
    );
    const factor = this.factors.clamp(-Infinity, LARGEST).exp();
    const y = unit(queries).mul(factor).sdpa(unit(keys), values, { mask, scale: 1 });
    return out.forward(y.transpose(1, 2).reshape([b, t, width]));
  }
}

/** A place's distance from another as the network is given it; far ones lie closer together. */
function shrunk(distance: number, window: number): number {
  const share = (EDGE * distance) / Math.max(window - 1, 1);
  return (Math.sign(share) * Math.log2(Math.abs(share) + 1)) / Math.log2(EDGE);
}

/** What distances within a window add to scores. */
export class DistanceNetwork extends Module {
  readonly first: Linear;
  readonly second: Linear;
  readonly #window: number;
  readonly #trained: number;
  /** `trained`: the window that the network was trained with, where it is another. */
  constructor(vb: VarBuilder, heads: number, window: number, trained: number) {
    super();
    this.first = linear(2, INNER, vb.pp('0'));
    this.second = linear(INNER, heads, vb.pp('2'), { bias: false });
    this.#window = window;
    this.#trained = trained || window;
  }
  /** A row a distance, down first: ((2 * window - 1)^2, heads), on the device and of the dtype of `like`. */
  rows(like: Tensor): Tensor {
    const [most, n] = [this.#window - 1, 2 * this.#window - 1];
    const places = Float32Array.from({ length: 2 * n * n }, (_, i) => {
      const at = i >> 1;
      return shrunk((i % 2 === 0 ? Math.floor(at / n) : at % n) - most, this.#trained);
    });
    const given = tensor(places, { shape: [n * n, 2], device: like.device }).cast(like.dtype);
    return this.second.forward(this.first.forward(given).relu()).sigmoid().affine(MOST_ADDED, 0);
  }
}
