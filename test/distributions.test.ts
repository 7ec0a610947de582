// Distributions of wick/nn: densities, entropies and divergences are PyTorch's, draws have their mean and variance.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ArgumentError,
  manualSeed,
  randn,
  ShapeError,
  type Tensor,
  tensor,
  UnsupportedError,
  zeros,
} from '../src/index.js';
import { distributions } from '../src/nn/index.js';

const { Normal, Uniform, Bernoulli, Categorical, klDivergence } = distributions;
const { Beta, Exponential, Gamma, Gumbel, Independent, Laplace, LogNormal, MultivariateNormal } = distributions;
function near(got: Tensor, want: readonly number[], bound = 2e-6): void {
  const numbers = got.flatten().toArray<number[]>();
  assert.equal(numbers.length, want.length);
  for (const [i, w] of want.entries())
    assert.ok(numbers[i] === w || Math.abs(numbers[i] - w) <= bound * (1 + Math.abs(w)), `${numbers} for ${want}`);
}
const rows = (...list: number[][]): Tensor => tensor(list);

test('logarithms of densities, entropies and divergences are those of PyTorch', () => {
  const normal = new Normal(tensor([0, 1]), tensor([1, 2]));
  near(normal.logProb(tensor([0.5, -1])), [-1.043939, -2.112086]);
  near(normal.entropy(), [1.418939, 2.112086]);
  near(klDivergence(normal, new Normal(tensor([0.5, 0]), tensor([2, 1]))), [0.349397, 1.306853]);
  const uniform = new Uniform(tensor([0, 1]), tensor([2, 4]));
  near(uniform.logProb(tensor([1, 0])), [-0.693147, -Infinity]);
  near(uniform.entropy(), [0.693147, 1.098612]);
  const coin = new Bernoulli({ logits: tensor([0, 2]) });
  near(coin.logProb(tensor([1, 0])), [-0.693147, -2.126928]);
  near(coin.entropy(), [0.693147, 0.365334]);
  near(klDivergence(coin, new Bernoulli({ logits: tensor([1, -1]) })), [0.120114, 0.828725]);
  const classes = new Categorical({ logits: rows([0, 1, 2], [1, 1, 1]) });
  near(classes.logProb(tensor([2, 0])), [-0.407606, -1.098612]);
  near(classes.entropy(), [0.832395, 1.098612]);
  near(klDivergence(classes, new Categorical({ logits: rows([1, 0, 0], [0, 2, 1]) })), [0.629019, 0.308994]);
  near(new Categorical({ probs: tensor([0.5, 0.5, 0]) }).entropy(), [0.693147]);
  assert.throws(() => klDivergence(normal, uniform), UnsupportedError);
  assert.throws(() => new Normal(tensor([0, 1]), tensor([1, 2, 3])), ShapeError);
});

test('draws have the mean and the variance, and the shape asked for before that of the parameters', () => {
  manualSeed(11);
  for (const d of [
    new Normal(tensor([0, 5]), tensor([1, 0.5])),
    new Uniform(tensor([0, -3]), tensor([2, 4])),
    new Bernoulli({ probs: tensor([0.2, 0.9]) }),
  ]) {
    const drawn = d.sample([200, 100]);
    assert.deepEqual(drawn.shape, [200, 100, 2]);
    const flat = drawn.reshape([-1, 2]);
    near(flat.mean(0), d.mean.toArray<number[]>(), 0.02);
    near(flat.variance(0), d.variance.toArray<number[]>(), 0.03);
    assert.deepEqual(d.sample([3], { seed: 1 }).toArray(), d.sample([3], { seed: 1 }).toArray());
  }
  const classes = new Categorical({ probs: rows([0.7, 0.3, 0], [0.1, 0.1, 0.8]) });
  const drawn = classes.sample([10_000]);
  assert.deepEqual(drawn.shape, [10_000, 2]);
  near(drawn.oneHot(3).mean(0), [0.7, 0.3, 0, 0.1, 0.1, 0.8], 0.02);
  assert.deepEqual(classes.sample().shape, [2]);
});

test('gradients flow through rsample and logProb, and not through sample', () => {
  const mean = tensor([1, 2]).requireGrad();
  const scale = tensor([0.5, 2]).requireGrad();
  const normal = new Normal(mean, scale);
  const drawn = normal.rsample([3], { seed: 5 });
  const noise = drawn.detach().sub(mean.detach()).div(scale.detach());
  const grads = drawn.sum().backward();
  near(grads.of(mean), [3, 3]);
  near(grads.of(scale), noise.sum(0).toArray<number[]>(), 1e-5);
  assert.equal(normal.sample().requiresGrad, false);
  const logits = tensor([1, 0, 2]).requireGrad();
  near(new Categorical({ logits }).logProb(tensor(1)).backward().of(logits), [-0.244728, 0.909969, -0.665241]);
});

/** Two parameters each of p and of q, and what PyTorch has of p at [0.25, 0.75]; gradients of the sum of logProb. */
interface Held {
  readonly make: (...parameters: Tensor[]) => distributions.Distribution;
  readonly p: readonly number[][];
  readonly q: readonly number[][];
  readonly logProb: readonly number[];
  readonly entropy: readonly number[];
  readonly mean: readonly number[];
  readonly variance: readonly number[];
  readonly grads: readonly number[][];
  readonly kl?: readonly number[];
}
const LOCATED = { p: [[0, 1], [1, 0.5]], q: [[0.5, 0], [2, 1]] }; // biome-ignore format: a line
const PULLED = { p: [[1, 2.5], [1, 0.5]], q: [[0.5, 2], [2, 1]] }; // biome-ignore format: a line
const HELD: Readonly<Record<string, Held>> = {
  LogNormal: {
    make: (a, b) => new LogNormal(a, b),
    ...LOCATED,
    logProb: [-0.49355, -3.254359],
    entropy: [1.418939, 1.725791],
    mean: [1.648721, 3.080217],
    variance: [4.670774, 2.694758],
    grads: [
      [-1.386294, -5.150728],
      [0.921812, 11.265],
    ],
    kl: [0.349397, 0.818147],
  },
  Exponential: {
    make: (a) => new Exponential(a),
    p: [[0.5, 2]],
    q: [[1, 1]],
    logProb: [-0.818147, -0.806853],
    entropy: [1.693147, 0.306853],
    mean: [2, 0.5],
    variance: [4, 0.25],
    grads: [[1.75, -0.25]],
    kl: [0.306853, 0.193147],
  },
  Laplace: {
    make: (a, b) => new Laplace(a, b),
    ...LOCATED,
    logProb: [-0.943147, -0.5],
    entropy: [1.693147, 1],
    mean: [0, 1],
    variance: [2, 0.5],
    grads: [
      [1, -2],
      [-0.75, -1],
    ],
    kl: [0.246413, 0.760815],
  },
  Gumbel: {
    make: (a, b) => new Gumbel(a, b),
    ...LOCATED,
    logProb: [-1.028801, -0.455574],
    entropy: [1.577216, 0.884068],
    mean: [0.577216, 1.288608],
    variance: [1.644934, 0.411234],
    grads: [
      [0.221199, -1.297442],
      [-0.9447, -1.351279],
    ],
  },
  Gamma: {
    make: (a, b) => new Gamma(a, b),
    ...PULLED,
    logProb: [-0.25, -2.824074],
    entropy: [1, 2.423095],
    mean: [1, 5],
    variance: [1, 10],
    grads: [
      [-0.809078, -1.683986], // at a concentration of 1 too, where the factor of the logarithm is 0
      [0.75, 4.25],
    ],
    kl: [0.937183, 1.180601],
  },
  Beta: {
    make: (a, b) => new Beta(a, b),
    ...PULLED,
    logProb: [0, 0.097723],
    entropy: [0, -0.949806],
    mean: [0.5, 0.833333],
    variance: [0.083333, 0.034722],
    grads: [
      [-0.386294, -0.068055],
      [0.712318, 1.500001],
    ],
    kl: [0.787682, 0.476286],
  },
};
for (const [name, held] of Object.entries(HELD))
  test(`${name} is that of PyTorch, and its draws have its mean and variance`, () => {
    const own = held.p.map((list) => tensor(list).requireGrad());
    const d = held.make(...own);
    const at = d.logProb(tensor([0.25, 0.75]));
    near(at, held.logProb, 4e-6);
    near(d.entropy(), held.entropy, 4e-6);
    near(d.mean, held.mean, 4e-6);
    near(d.variance, held.variance, 4e-6);
    const grads = at.sum().backward();
    for (const [i, p] of own.entries()) near(grads.of(p), held.grads[i], 8e-6);
    const plain = held.make(...held.p.map((list) => tensor(list)));
    if (held.kl) near(klDivergence(plain, held.make(...held.q.map((list) => tensor(list)))), held.kl, 8e-6);
    else assert.throws(() => klDivergence(plain, plain), UnsupportedError);
    manualSeed(5);
    const drawn = plain.sample([40_000]);
    assert.equal(drawn.requiresGrad, false);
    const off = drawn.mean(0).sub(plain.mean).div(plain.stddev).abs();
    assert.ok(off.max().item() < 0.03, `means off by ${off.toArray()} deviations`);
    const ratio = drawn.variance(0).div(plain.variance);
    // A log-normal variance is decided by few large draws.
    const bound = name === 'LogNormal' ? 0.3 : 0.06;
    assert.ok(ratio.sub(1).abs().max().item() < bound, `variances ${ratio.toArray()} times what they should be`);
    assert.deepEqual(plain.sample([3], { seed: 1 }).toArray(), plain.sample([3], { seed: 1 }).toArray());
    assert.notDeepEqual(plain.sample([3], { seed: 1 }).toArray(), plain.sample([3], { seed: 2 }).toArray());
  });

test('vectors that depend on each other, and dimensions that belong together', () => {
  const x = tensor([0.25, 0.75]);
  const factor = rows([2, 0], [0.5, 1]);
  const vector = new MultivariateNormal(tensor([0, 1]), { scaleTril: factor });
  near(vector.logProb(x), [-2.587665]);
  near(vector.entropy(), [3.531024]);
  near(vector.variance, [4, 1.25]);
  const covariance = factor.matmul(factor.t());
  near(new MultivariateNormal(tensor([0, 1]), { covariance }).logProb(x), [-2.587665]);
  const drawn = vector.sample([20_000], { seed: 2 });
  near(drawn.t().cov(), covariance.flatten().toArray<number[]>(), 0.05);
  const base = new Normal(rows([0, 1], [2, 3]), tensor([1, 2]));
  const together = new Independent(base, 1);
  near(together.logProb(x), [-2.570087, -4.695087]);
  near(together.entropy(), [3.531024, 3.531024]);
  near(klDivergence(together, new Independent(new Normal(zeros([2, 2]), 1), 1)), [1.306853, 7.306853]);
  assert.deepEqual([together.shape, together.event, together.rsample([5]).shape], [[2], [2], [5, 2, 2]]);
  assert.throws(() => new Independent(new Gamma(zeros([2]).add(1)), 1).rsample(), /draws of Gamma have no gradient/);
});

test('a probability of 0 has a logarithm and a gradient to leave by, and an infinite divergence, as in PyTorch', () => {
  const probs = tensor([0, 0.5, 0.5]).requireGrad();
  const d = new Categorical({ probs });
  near(d.logProb(0), [-15.942385]);
  near(d.entropy().backward().of(probs), [16.249237, 0, 0], 1e-5);
  const other = new Categorical({ probs: tensor([0.2, 0.3, 0.5]) });
  near(klDivergence(new Categorical({ probs: probs.detach() }), other), [0.255413]);
  near(klDivergence(other, d), [Infinity]);
  const coin = new Bernoulli({ probs: tensor([0, 0.3]) });
  const fair = new Bernoulli({ probs: tensor([0.5, 0.5]) });
  near(coin.logProb(tensor([1, 0])), [-15.942385, -0.356675]);
  near(klDivergence(fair, coin), [Infinity, 0.087177]);
  near(klDivergence(coin, fair), [0.693147, 0.082283]);
  // A class that a mask rules out: logits of -Infinity.
  const logits = tensor([1, 2, -Infinity]).requireGrad();
  const masked = new Categorical({ logits });
  near(masked.entropy().backward().of(logits), [0.196612, -0.196612, 0], 1e-5);
});

test('a distribution of numbers goes with tensors of any dtype', () => {
  const mean = tensor([[0.5, -1]], { dtype: 'f64' });
  const kl = klDivergence(new Normal(mean, 0.5), new Normal(0, 1));
  assert.equal(kl.dtype, 'f64');
  near(kl, [0.443147, 0.818147]);
  near(new Normal(0, 1).logProb(mean), [-1.043939, -1.418939]);
  near(new Normal(0, 1).logProb(0.5), [-1.043939]);
});

const REFUSED: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  'a tensor that may be either': [
    () => new Categorical(randn([3]) as never),
    /^Categorical: say what is given: new Categorical\(\{ probs \}\) or/,
  ],
  'a number that may be either': [() => new Bernoulli(0.5 as never), /^Bernoulli: say what is given/],
  'both at once': [
    () => new Bernoulli({ probs: 0.5, logits: 0 }),
    /^Bernoulli: takes either \{ probs \} or \{ logits \}/,
  ],
  'another name': [() => new Bernoulli({ prob: 0.5 } as never), /^Bernoulli: unknown option "prob"/],
  'what is no probability': [
    () => new Bernoulli({ probs: tensor([0.5, 1.5]) }),
    /^Bernoulli: 1.5 is not a probability/,
  ],
  'a negative weight': [() => new Categorical({ probs: tensor([0.5, -1]) }), /^Categorical: -1 is not a weight/],
  'weights of nothing': [() => new Categorical({ probs: tensor([0, 0]) }), /^Categorical: 0 is not a sum of weights/],
  'a deviation below 0': [() => new Normal(0, -1), /^Normal: -1 is not a standard deviation above 0/],
  'a rate that is not a number': [() => new Exponential(NaN), /^Exponential: NaN is not a rate above 0/],
  'bounds the wrong way': [() => new Uniform(2, 1), /^Uniform: -1 is not a width above 0/],
  'a parameter of another kind': [
    () => new Normal([0] as never, 1),
    /^Normal: a parameter is a tensor or a number, not a/,
  ],
  'a toss that is neither': [() => new Bernoulli({ probs: 0.5 }).logProb(2), /^Bernoulli: 2 is not 0 or 1/],
  'half a class': [
    () => new Categorical({ logits: randn([3]) }).logProb(1.5),
    /^Categorical: 1.5 is not the number of a class/,
  ],
  'a number as a shape': [
    () => new Normal(0, 1).sample(3 as never),
    /^Normal: a shape to draw is a list, as sample\(\[3\]\)/,
  ],
  'a value of another kind': [
    () => new Normal(0, 1).logProb('1' as never),
    /^Normal: a value to look up is a tensor or a number, not string/,
  ],
};
for (const [what, [call, says]] of Object.entries(REFUSED))
  test(`refused: ${what}`, () => assert.throws(call, (e) => e instanceof ArgumentError && says.test(e.message)));
