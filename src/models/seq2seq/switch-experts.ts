// Switch's mixtures: of many feed-forwards a token has the one its router likes best, as long as that one has room.
import { Linear, linear } from '../../nn/layers.js';
import { Layer } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { FeedForward } from '../parts.js';

export interface SwitchConfig {
  readonly count: number;
  /** Tokens of a text that an expert takes in one run; those that come later are left as they are. */
  readonly capacity: number;
  readonly bias: boolean;
  /** Which layers of the encoder and of the decoder are mixtures. */
  readonly sparse: readonly [(layer: number) => boolean, (layer: number) => boolean];
}
/** So many of the layers, spread evenly: every one, or the second of each run. */
export function sparseLayers(layers: number, sparse: number): (layer: number) => boolean {
  const step = sparse > 0 ? Math.floor(layers / sparse) : layers;
  return (i) => step > 0 && (step === 1 || i % step === 1);
}

export class SwitchExperts extends Layer {
  readonly router: Linear;
  readonly experts: FeedForward[];
  readonly #capacity: number;
  constructor(vb: VarBuilder, c: SwitchConfig, width: number, inner: number, activation: string) {
    super();
    this.#capacity = c.capacity;
    this.router = linear(width, c.count, vb.pp('router.classifier'), { bias: c.bias });
    this.experts = Array.from({ length: c.count }, (_, i) => {
      const at = vb.pp('experts', `expert_${i}`);
      const product = (from: number, to: number, name: string): Linear =>
        linear(from, to, at.pp(name), { bias: false });
      return new FeedForward(product(width, inner, 'wi'), product(inner, width, 'wo'), activation);
    });
  }
  /** The tokens (numbers among all of the batch) of each expert that still had room for them. */
  #routes(chosen: readonly (readonly number[])[]): number[][] {
    const routes = this.experts.map((): number[] => []);
    chosen.forEach((row, b) => {
      const taken = this.experts.map(() => 0);
      row.forEach((expert, t) => {
        if (taken[expert]++ < this.#capacity) routes[expert].push(b * row.length + t);
      });
    });
    return routes;
  }
  forward(x: Tensor): Tensor {
    const [b, t, width] = x.shape;
    const { device } = x;
    const probabilities = this.router.forward(x).cast('f32').softmax(-1);
    const routes = this.#routes(probabilities.argmax(-1).toArray() as number[][]);
    const flat = x.reshape([b * t, width]);
    const made = routes.flatMap((rows, i) =>
      rows.length === 0
        ? []
        : [this.experts[i].forward(flat.indexSelect(0, tensor(Uint32Array.from(rows), { device })))],
    );
    // Tokens in the order of experts and back; those without one are the row of zeros behind all.
    const order = new Uint32Array(b * t).fill(routes.flat().length);
    routes.flat().forEach((token, i) => (order[token] = i));
    const rows = flat.narrow(0, 0, 1).zerosLike();
    const all = (made.length > 0 ? made[0].cat([...made.slice(1), rows], 0) : rows).indexSelect(
      0,
      tensor(order, { device }),
    );
    return all.reshape([b, t, width]).mul(probabilities.max(-1, true).cast(x.dtype));
  }
}
