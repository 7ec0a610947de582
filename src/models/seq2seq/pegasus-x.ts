// Pegasus X reads long texts in blocks: tokens see their own block and some learnt tokens, which see all of the text.
import { type Embedding, type LayerNorm, layerNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type FeedForward, type MultiHead, rowTable } from '../parts.js';

export interface BlocksConfig {
  /** Tokens of a block. */
  readonly size: number;
  /** Learnt tokens that see all. */
  readonly count: number;
  /** In every second layer blocks begin half a block earlier. */
  readonly staggered: boolean;
}
/** The parts of a layer that both kinds of tokens go through. */
interface ReadingBlock {
  readonly norm1: LayerNorm;
  readonly self: MultiHead;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
}

export class Everywhere extends Module {
  readonly tokens: Embedding;
  readonly norms: LayerNorm[];
  readonly #config: BlocksConfig;
  constructor(vb: VarBuilder, c: BlocksConfig, width: number, layers: number) {
    super();
    this.#config = c;
    this.tokens = rowTable(c.count, width, vb.pp('embed_global'));
    this.norms = Array.from({ length: layers }, (_, i) =>
      layerNorm(width, vb.pp('layers', i, 'global_self_attn_layer_norm')),
    );
  }
  /** What each token sees, the learnt ones first: u8 (b or 1, 1, count + t, count + t). */
  #seen(t: number, shift: number, mask: Tensor | undefined, like: Tensor): Tensor {
    const { count, size } = this.#config;
    const all = count + t;
    const block = (at: number): number => Math.floor((at - count + shift) / size);
    const near = Uint8Array.from({ length: all * all }, (_, i) => {
      const [from, to] = [Math.floor(i / all), i % all];
      return Number(from < count || to < count || block(from) === block(to));
    });
    const seen = tensor(near, { shape: [1, 1, all, all], device: like.device });
    if (!mask) return seen;
    const real = mask.ne(0).cast('u8');
    const keys = real.narrow(1, 0, 1).onesLike().broadcastTo([mask.shape[0], count]).cat([real], 1);
    return seen.mul(keys.reshape([mask.shape[0], 1, 1, all])).contiguous();
  }
  /** A text's vectors (b, t, width) through all layers. */
  through(x: Tensor, blocks: readonly ReadingBlock[], mask: Tensor | undefined): Tensor {
    const [b, t, width] = x.shape;
    const { count, size, staggered } = this.#config;
    const places = [0, staggered ? Math.floor(size / 2) : 0].map((shift) => this.#seen(t, shift, mask, x));
    const own = this.tokens.weight.unsqueeze(0).broadcastTo([b, count, width]);
    const last = blocks.reduce(
      (h, block, i) => {
        const learnt = this.norms[i].forward(h.narrow(1, 0, count).contiguous());
        const normed = learnt.cat([block.norm1.forward(h.narrow(1, count, t).contiguous())], 1);
        const y = h.add(block.self.forward(normed, { mask: places[i % 2] }));
        return y.add(block.mlp.forward(block.norm2.forward(y)));
      },
      own.cat([x], 1),
    );
    return last.narrow(1, count, t);
  }
}
