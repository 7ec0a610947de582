// Several vectors a token, of which each layer works on one: the others are predicted before it and corrected after it
// by what it changed (AltUp, Gemma 3n). Beside attention stands a narrow branch (LAuReL).
import type { AnyLinear as Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Features } from './features.js';
import { type Norm, norm } from './mixers.js';
import type { Weights } from './weights.js';

type Feature = NonNullable<Features['streams']>;
const meanSquare = (x: Tensor): Tensor => x.sqr().mean([x.rank - 1], true);
/** x (n, b, t, hidden) with the length of `like` (b, t, hidden). */
const asLongAs = (x: Tensor, like: Tensor): Tensor =>
  x.mul(meanSquare(like).sqrt()).div(meanSquare(x).maximum(1e-5).sqrt());

/** From a token's vector to several and back. */
export class Streams extends Module {
  /** (count - 1, hidden, hidden) */
  readonly into: Tensor;
  readonly from: Tensor;
  constructor(w: Weights, { count }: Feature, hidden: number) {
    super();
    this.into = w.tensor('streamsIn', [count - 1, hidden, hidden]);
    this.from = w.tensor('streamsOut', [count - 1, hidden, hidden]);
  }
  /** x (b, t, hidden) to (count, b, t, hidden). */
  begin(x: Tensor): Tensor {
    const one = x.unsqueeze(0);
    return one.cat([asLongAs(one.matmul(this.into.unsqueeze(1).t()), x)], 0);
  }
  end(all: Tensor): Tensor {
    const first = all.narrow(0, 0, 1);
    const others = all.narrow(0, 1, all.shape[0] - 1).matmul(this.from.unsqueeze(1).t());
    return first.cat([asLongAs(others, first.squeeze([0]))], 0).mean([0], false);
  }
}

/** How a layer predicts and corrects them. */
export class StreamBlock extends Module {
  readonly norm: Norm;
  readonly router: Linear;
  readonly prediction: Linear;
  readonly correction: Linear;
  readonly scale: Tensor | undefined;
  readonly #feature: Feature;
  constructor(w: Weights, f: Feature, { hiddenSize, norm: kind }: Features) {
    super();
    this.#feature = f;
    this.norm = norm(w, 'streamNorm', kind, hiddenSize);
    this.router = w.linear([{ role: 'streamRouter', outputs: f.count }], hiddenSize);
    this.prediction = w.linear([{ role: 'streamPredict', outputs: f.count ** 2 }], f.count);
    this.correction = w.linear([{ role: 'streamCorrect', outputs: f.count }], f.count);
    const scale = w.tensor('streamScale', [hiddenSize]); // files hold it, used or not
    if (f.scaled) this.scale = scale;
    else scale.dispose();
  }
  /** (count, b, t, hidden) to the one that layers work on. */
  active(all: Tensor): Tensor {
    return all.narrow(0, this.#feature.active, 1).squeeze([0]);
  }
  #modes(x: Tensor): Tensor {
    const hidden = x.shape[2];
    return this.router.forward(this.norm.forward(x).affine(1 / hidden, 0)).tanh(); // (b, t, count)
  }
  predict(all: Tensor): Tensor {
    const { count } = this.#feature;
    const [, b, t] = all.shape;
    const by = this.prediction.forward(this.#modes(this.active(all))).reshape([b, t, count, count]);
    // Each stream's prediction adds up all of them: (b, t, count, count) by (b, t, count, hidden).
    return by
      .matmul(all.permute([1, 2, 0, 3]))
      .permute([2, 0, 1, 3])
      .add(all);
  }
  correct(predicted: Tensor, activated: Tensor): Tensor {
    const by = this.correction.forward(this.#modes(activated)).affine(1, 1); // (b, t, count)
    const news = activated.sub(this.active(predicted)).unsqueeze(0);
    return news.mul(by.permute([2, 0, 1]).unsqueeze(3)).add(predicted);
  }
  scaled(x: Tensor): Tensor {
    return this.scale ? x.mul(this.scale) : x;
  }
  addBehindFirst(all: Tensor, x: Tensor): Tensor {
    const others = all.narrow(0, 1, all.shape[0] - 1);
    return all.narrow(0, 0, 1).cat([others.add(x)], 0);
  }
}

/** x + norm(up(down(x))), beside attention. */
export class Laurel extends Module {
  readonly down: Linear;
  readonly up: Linear;
  readonly norm: Norm;
  constructor(w: Weights, { rank }: Feature, { hiddenSize, norm: kind }: Features) {
    super();
    this.down = w.linear([{ role: 'besideDown', outputs: rank }], hiddenSize);
    this.up = w.linear([{ role: 'besideUp', outputs: hiddenSize }], rank);
    this.norm = norm(w, 'besideNorm', kind, hiddenSize);
  }
  forward(x: Tensor): Tensor {
    return x.add(this.norm.forward(this.up.forward(this.down.forward(x))));
  }
}
