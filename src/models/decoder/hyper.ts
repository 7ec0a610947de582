// Several vectors a token side by side, of which each branch reads a sum; its answer is added to all of them, and a
// matrix that leaves their sum as it is mixes them (hyper-connections, DeepSeek V4).
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Features } from './features.js';
import type { Role } from './roles.js';
import type { Weights } from './weights.js';

/** x (b, t, hidden) `count` times side by side. */
export const spread = (x: Tensor, count: number): Tensor =>
  x.cat(
    Array.from({ length: count - 1 }, () => x),
    2,
  );
/** The vectors of tokens (b, t, count hidden), weighed (b, t, count) and summed up. */
function summed(x: Tensor, weights: Tensor): Tensor {
  const [b, t, count] = weights.shape;
  const apart = x.reshape([b, t, count, x.shape[2] / count]);
  return weights.unsqueeze(2).matmul(apart.cast('f32')).squeeze([2]).cast(x.dtype);
}
const sumsTo = (x: Tensor, dim: number, eps: number): Tensor => x.div(x.sum([dim], true).affine(1, eps));

/** How one branch of a layer reads a token's vectors and adds to them; what weighs them is always f32. */
export class HyperMix extends Module {
  /** (2 count + count², count hidden): what sums, answers and the matrix weigh, where there is one. */
  readonly mix: Tensor;
  readonly base: Tensor;
  readonly scale: Tensor;
  readonly #feature: NonNullable<Features['hyper']>;
  readonly #normEps: number;
  constructor(w: Weights, branch: 'mixer' | 'mlp', { hyper, hiddenSize, norm }: Features) {
    super();
    this.#feature = hyper as NonNullable<Features['hyper']>;
    this.#normEps = norm.eps;
    const { count, unmixed } = this.#feature;
    const numbers = count * (unmixed ? 2 : 2 + count);
    const read = (role: Role, shape: readonly number[]): Tensor => w.tensor(role, shape, undefined, 'weight', 'f32');
    this.mix = read(`${branch}Mix`, [numbers, count * hiddenSize]);
    this.base = read(`${branch}MixBase`, [numbers]);
    this.scale = read(`${branch}MixScale`, [unmixed ? 2 : 3]);
  }
  /** x (b, t, count hidden) with what the branch answers. */
  around(x: Tensor, branch: (y: Tensor) => Tensor): Tensor {
    const { count, eps, unmixed } = this.#feature;
    const [b, t] = x.shape;
    const all = x.cast('f32').rmsNorm(undefined, { eps: this.#normEps }).matmul(this.mix.cast('f32').t());
    const part = (i: number, from: number, n: number): Tensor =>
      all
        .narrow(2, from, n)
        .mul(this.scale.cast('f32').narrow(0, i, 1))
        .add(this.base.cast('f32').narrow(0, from, n));
    const read = part(0, 0, count).sigmoid().affine(1, eps);
    const answered = part(1, count, count)
      .sigmoid()
      .affine(unmixed?.most ?? 2, unmixed ? eps : 0);
    const y = branch(summed(x, read));
    const apart = x.reshape([b, t, count, x.shape[2] / count]);
    const kept = unmixed
      ? apart
      : this.#matrix(part(2, 2 * count, count * count))
          .cast(x.dtype)
          .t()
          .matmul(apart);
    return answered.cast(x.dtype).unsqueeze(3).mul(y.unsqueeze(2)).add(kept).reshape(x.shape);
  }
  /** Numbers (b, t, count²) as matrices whose rows and columns sum to one. */
  #matrix(numbers: Tensor): Tensor {
    const { count, rounds, eps } = this.#feature;
    const [b, t] = numbers.shape;
    const raw = numbers.reshape([b, t, count, count]);
    let mixed = sumsTo(raw.softmax(-1).affine(1, eps), 2, eps);
    for (let i = 1; i < rounds; i++) mixed = sumsTo(sumsTo(mixed, 3, eps), 2, eps);
    return mixed;
  }
}

/** What the head reads of a token's vectors. */
export class HyperEnd extends Module {
  readonly mix: Tensor;
  readonly base: Tensor;
  readonly scale: Tensor;
  /** How many vectors there are. */
  readonly count: number;
  readonly #eps: readonly [own: number, norm: number];
  constructor(w: Weights, { hyper, hiddenSize, norm }: Features) {
    super();
    const { count, eps } = hyper as NonNullable<Features['hyper']>;
    this.count = count;
    this.#eps = [eps, norm.eps];
    this.mix = w.tensor('hyperMix', [count, count * hiddenSize], undefined, 'weight', 'f32');
    this.base = w.tensor('hyperBase', [count], undefined, 'weight', 'f32');
    this.scale = w.tensor('hyperScale', [1], undefined, 'weight', 'f32');
  }
  forward(x: Tensor): Tensor {
    const [own, norm] = this.#eps;
    const all = x.cast('f32').rmsNorm(undefined, { eps: norm }).matmul(this.mix.cast('f32').t());
    const weights = all.mul(this.scale.cast('f32')).add(this.base.cast('f32')).sigmoid().affine(1, own);
    return summed(x, weights);
  }
}
