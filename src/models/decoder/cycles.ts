// Two stacks of layers that take turns, each with a vector of its own for every token (HRM).
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Features } from './features.js';
import { type Norm, norm } from './mixers.js';
import type { Weights } from './weights.js';

type Feature = NonNullable<Features['cycles']>;

/** How the stacks hand their vectors to each other. */
export class Cycles extends Module {
  /** The fast stack's vector at first, of every token (hidden). */
  readonly begin: Tensor;
  /** Behind each stack. */
  readonly norm: Norm;
  readonly #feature: Feature;
  constructor(w: Weights, f: Feature, { hiddenSize, norm: kind }: Features) {
    super();
    this.#feature = f;
    this.begin = w.tensor('fastBegin', [hiddenSize]);
    this.norm = norm(w, 'finalNorm', kind, hiddenSize);
  }
  /** The embedding (b, t, hidden) to the slow stack's last answer; `layer` runs the layers by their number. */
  through(x: Tensor, layer: (y: Tensor, i: number) => Tensor): Tensor {
    const { slow: times, fast: each, layers } = this.#feature;
    let done = 0;
    const stack = (y: Tensor): Tensor => {
      let made = y;
      for (const end = done + layers; done < end; done++) made = layer(made, done);
      return this.norm.forward(made);
    };
    let [slow, fast] = [x, this.begin.broadcastTo(x.shape)];
    for (let i = 0; i < times; i++) {
      for (let j = 0; j < each; j++) fast = stack(fast.add(slow));
      slow = stack(slow.add(fast));
    }
    return slow;
  }
}
