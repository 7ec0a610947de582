// Nomic's mixture (nomic-embed-text-v2-moe): every token goes through the few experts that its router likes best.
import { activation } from '../../nn/activation.js';
import { type Linear, linear } from '../../nn/layers.js';
import { Layer } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import { expertProduct } from '../decoder/experts.js';
import { madeOf } from '../parts.js';

export interface NomicMixture {
  readonly count: number;
  readonly chosen: number;
  /** Which layers are mixtures. */
  readonly sparse: (layer: number) => boolean;
}

export class NomicExperts extends Layer {
  readonly router: Linear;
  /** (experts, inner, width) and (experts, width, inner). */
  readonly up: Tensor;
  readonly down: Tensor;
  /** Added to what all make together; GGUF files leave it out. */
  readonly bias: Tensor | undefined;
  readonly #chosen: number;
  readonly #bend: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, { count, chosen }: NomicMixture, width: number, inner: number, act: string) {
    super();
    this.#chosen = chosen;
    this.#bend = activation(act);
    this.router = linear(width, count, vb.pp('router.layer'), { bias: false });
    const e = vb.pp('experts');
    // Folders keep the rows of all experts below each other, those of the second product turned round.
    const flat = e.has('mlp.w1');
    this.up = flat
      ? madeOf(e, (read) =>
          read([count * inner, width], 'mlp.w1')
            .reshape([count, inner, width])
            .copy(),
        )
      : e.get([count, inner, width], 'up.weight');
    this.down = flat
      ? madeOf(e, (read) =>
          read([count * inner, width], 'mlp.w2')
            .reshape([count, inner, width])
            .transpose(1, 2)
            .contiguous()
            .copy(),
        )
      : e.get([count, width, inner], 'down.weight');
    if (e.has('bias')) this.bias = e.get([width], 'bias');
  }
  forward(x: Tensor): Tensor {
    const [b, t, width] = x.shape;
    const rows = x.reshape([b * t, width]);
    const [weights, ids] = this.router.forward(rows).cast('f32').softmax(-1).topk(this.#chosen, -1);
    const inside = this.#bend(expertProduct(rows.unsqueeze(1), this.up, ids));
    const made = expertProduct(inside, this.down, ids).mul(weights.cast(x.dtype).unsqueeze(2)).sum([1]);
    return (this.bias ? made.add(this.bias) : made).reshape([b, t, width]);
  }
}
