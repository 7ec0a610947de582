// Distributions of wick/nn beyond the common ones, cdf, icdf and mode: numbers are PyTorch's, draws have their mean and
// variance.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError, type Tensor, tensor, UnsupportedError } from '../src/index.js';
import { distributions } from '../src/nn/index.js';

const d = distributions;
type Read = 'logProb' | 'entropy' | 'mean' | 'variance' | 'mode' | 'cdf' | 'icdf';
type Case = readonly [distributions.Distribution, Tensor, Readonly<Partial<Record<Read, readonly number[]>>>];

const x = tensor([0.25, 0.75]);
const [loc, scale] = [tensor([0, 1]), tensor([1, 0.5])];
const counts = tensor([0, 3]);
const two = (a: number[], b: number[]): Tensor => tensor([a, b]);
const coins = { probs: tensor([0.3, 0.8]) };
const logits = two([0, 1, 2], [1, 1, 0]);
const pulls = two([1, 2.5, 0.5], [3, 1, 1]);
const apart = new d.Normal(two([-1, 2], [0, 1]), two([0.5, 1], [1, 2]));
const chances = new d.Categorical({ probs: tensor([0.3, 0.7]) });
const sent = (...transforms: distributions.Transform[]): distributions.TransformedDistribution =>
  new d.TransformedDistribution(new d.Normal(loc, scale), transforms);
const INF = Infinity;

const CASES: Readonly<Record<string, Case>> = {
  Normal: [new d.Normal(loc, scale), x, { mode: [0, 1], cdf: [0.598706, 0.308538], icdf: [-0.67449, 1.337245] }],
  LogNormal: [
    new d.LogNormal(loc, scale),
    x,
    { mode: [0.367879, 2.117], cdf: [0.082829, 0.005007], icdf: [0.509416, 3.808536] },
  ],
  Uniform: [new d.Uniform(loc, loc.add(2)), x, { cdf: [0.125, 0], icdf: [0.5, 2.5] }],
  Exponential: [new d.Exponential(scale), x, { mode: [0, 0], cdf: [0.221199, 0.312711], icdf: [0.287682, 2.772589] }],
  Laplace: [new d.Laplace(loc, scale), x, { mode: [0, 1], cdf: [0.6106, 0.303265], icdf: [-0.693147, 1.346574] }],
  Gumbel: [new d.Gumbel(loc, scale), x, { mode: [0, 1], cdf: [0.458956, 0.192296], icdf: [-0.326634, 1.622949] }],
  Cauchy: [
    new d.Cauchy(loc, scale),
    x,
    {
      logProb: [-1.205354, -0.674726],
      entropy: [2.531024, 1.837877],
      mean: [NaN, NaN],
      variance: [INF, INF],
      mode: [0, 1],
      cdf: [0.577979, 0.352416],
      icdf: [-1, 1.5],
    },
  ],
  HalfNormal: [
    new d.HalfNormal(scale),
    x,
    {
      logProb: [-0.257041, -0.657644],
      entropy: [0.725791, 0.032644],
      mean: [0.797885, 0.398942],
      variance: [0.36338, 0.090845],
      mode: [0, 0],
      cdf: [0.197413, 0.866386],
      icdf: [0.318639, 0.575175],
    },
  ],
  StudentT: [
    new d.StudentT(tensor([1.5, 5]), loc, scale),
    x,
    {
      logProb: [-1.127678, -0.421843],
      entropy: [2.149659, 0.934355],
      mean: [0, 1],
      variance: [INF, 0.416667],
      mode: [0, 1],
    },
  ],
  Poisson: [
    new d.Poisson(tensor([0.5, 4])),
    counts,
    { logProb: [-0.5, -1.632876], mean: [0.5, 4], variance: [0.5, 4], mode: [0, 4] },
  ],
  Geometric: [
    new d.Geometric(coins),
    counts,
    {
      logProb: [-1.203973, -5.051457],
      entropy: [2.036214, 0.625503],
      mean: [2.333333, 0.25],
      variance: [7.777777, 0.3125],
      mode: [0, 0],
    },
  ],
  Binomial: [
    new d.Binomial(5, coins),
    counts,
    {
      logProb: [-1.783375, -1.585721],
      entropy: [1.413615, 1.243024],
      mean: [1.5, 4],
      variance: [1.05, 0.8],
      mode: [1, 4],
    },
  ],
  Categorical: [new d.Categorical({ logits }), counts, { mode: [2, 0] }],
  OneHotCategorical: [
    new d.OneHotCategorical({ logits }),
    two([0, 1, 0], [0, 0, 1]),
    {
      logProb: [-1.407606, -1.861995],
      entropy: [0.832395, 1.017357],
      mean: [0.090031, 0.244728, 0.665241, 0.422319, 0.422319, 0.155362],
      variance: [0.081925, 0.184836, 0.222695, 0.243966, 0.243966, 0.131225],
      mode: [0, 0, 1, 1, 0, 0],
    },
  ],
  Dirichlet: [
    new d.Dirichlet(pulls),
    two([0.2, 0.3, 0.5], [0.6, 0.1, 0.3]),
    {
      logProb: [-0.524674, 1.463255],
      entropy: [-1.715085, -1.31824],
      mean: [0.25, 0.625, 0.125, 0.6, 0.2, 0.2],
      variance: [0.0375, 0.046875, 0.021875, 0.04, 0.026667, 0.026667],
    },
  ],
  'MixtureSameFamily of numbers': [
    new d.MixtureSameFamily(chances, apart),
    x,
    { logProb: [-2.646328, -1.474538], mean: [1.1, 0.7], variance: [2.665, 3.31], cdf: [0.326178, 0.547195] },
  ],
  'MixtureSameFamily of vectors': [
    new d.MixtureSameFamily(chances, new d.Independent(apart, 1)),
    x,
    { logProb: [-2.891532], mean: [-0.3, 1.3], variance: [0.985, 3.31] },
  ],
  TanhTransform: [
    sent(new d.TanhTransform()),
    x,
    { logProb: [-0.887018, 0.599424], cdf: [0.600798, 0.478432], icdf: [-0.587925, 0.871009] },
  ],
  'SigmoidTransform, then AffineTransform': [
    sent(new d.SigmoidTransform(), new d.AffineTransform(-1, 2)),
    x,
    { logProb: [-0.291724, -0.495458], cdf: [0.695263, 0.970743], icdf: [-0.325015, 0.584073] },
  ],
  'AffineTransform, then ExpTransform': [
    sent(new d.AffineTransform(0.5, tensor([2, 2])), new d.ExpTransform()),
    x,
    { logProb: [-0.670555, -4.516842], cdf: [0.172803, 0.002654], icdf: [0.427851, 23.914614] },
  ],
  'a transform of numbers drawn together': [
    new d.TransformedDistribution(new d.Independent(new d.Normal(loc, scale), 1), new d.TanhTransform()),
    x,
    { logProb: [-0.287593] },
  ],
};
function near(got: Tensor, want: readonly number[], bound: number): void {
  const numbers = got.flatten().toArray<number[]>();
  assert.equal(numbers.length, want.length);
  for (const [i, w] of want.entries())
    assert.ok(
      Object.is(numbers[i], w) || numbers[i] === w || Math.abs(numbers[i] - w) <= bound * (1 + Math.abs(w)),
      `${numbers} for ${want}`,
    );
}
for (const [name, [held, at, want]] of Object.entries(CASES))
  test(`${name} is that of PyTorch`, () => {
    for (const [read, numbers] of Object.entries(want) as [Read, readonly number[]][]) {
      const got =
        read === 'logProb' || read === 'cdf' || read === 'icdf'
          ? held[read](at)
          : read === 'entropy'
            ? held.entropy()
            : held[read];
      near(got, numbers, 4e-6);
    }
  });

test('draws have their mean and variance, and those of one seed are the same', () => {
  const drawn: readonly distributions.Distribution[] = [
    new d.HalfNormal(scale),
    new d.StudentT(tensor([6, 8]), loc, scale),
    new d.Poisson(tensor([0.5, 40])),
    new d.Geometric(coins),
    new d.Binomial(5, coins),
    new d.OneHotCategorical({ logits }),
    new d.Dirichlet(pulls),
    new d.MixtureSameFamily(chances, apart),
    new d.MixtureSameFamily(chances, new d.Independent(apart, 1)),
  ];
  for (const held of drawn) {
    const { name } = held.constructor;
    const all = held.sample([20_000], { seed: 3 });
    assert.deepEqual(all.shape, [20_000, ...held.shape, ...held.event], name);
    const off = all.mean(0).sub(held.mean).div(held.stddev).abs().max().item();
    assert.ok(off < 0.03, `${name}: means off by ${off} deviations`);
    const ratio = all.variance(0).div(held.variance).sub(1).abs().max().item();
    assert.ok(ratio < 0.1, `${name}: variances off by ${ratio}`);
    assert.equal(all.requiresGrad, false);
    assert.ok(held.sample([4], { seed: 1 }).equal(held.sample([4], { seed: 1 })), name);
  }
  const middle = new d.Cauchy(loc, scale).sample([20_000], { seed: 1 }).median(0)[0];
  near(middle, [0, 1], 0.05);
});

test('a bounded draw keeps what it was made of: its probability and gradient are right where tanh is 1', () => {
  const mean = tensor([9, -9]).requireGrad();
  const bounded = new d.TransformedDistribution(new d.Normal(mean, 1), [new d.TanhTransform()]);
  const action = bounded.rsample([2], { seed: 4 });
  const log = bounded.logProb(action);
  assert.ok(log.isFinite().all().item(), `${log.toArray()}`);
  // -ln(1 - tanh(x)^2) is 2x - 2 ln 2 far from 0, so that each draw has a gradient of 2 by the mean, or -2.
  near(log.sum().backward().of(mean), [4, -4], 1e-5);
  assert.equal(bounded.logProb(action.detach()).isFinite().all().item(), 0);
  assert.throws(() => bounded.entropy(), UnsupportedError);
});

test('divergences of classes as vectors, of shares and of vectors are those of PyTorch', () => {
  const { klDivergence } = d;
  near(klDivergence(new d.Dirichlet(pulls), new d.Dirichlet(pulls.add(1))), [1.041575, 0.501505], 4e-6);
  const [p, q] = [logits, logits.neg()].map((l) => new d.OneHotCategorical({ logits: l }));
  near(klDivergence(p, q), [1.150421, 0.378725], 4e-6);
  const near2 = new d.MultivariateNormal(loc, { covariance: two([2, 0.5], [0.5, 1]) });
  const far = new d.MultivariateNormal(x, { covariance: two([1, 0.2], [0.2, 3]) });
  near(klDivergence(near2, far), [0.457888], 4e-6);
});

const REFUSED: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  'half an event': [() => new d.Poisson(2).logProb(0.5), /^Poisson: 0.5 is not a whole number from 0/],
  'more than all': [
    () => new d.Binomial(2, { probs: 0.5 }).logProb(3),
    /^Binomial: 3 is not a whole number from 0 to 2/,
  ],
  'half a toss': [() => new d.Binomial(1.5, { probs: 0.5 }), /^Binomial: takes how many tosses there are/],
  'no chance at all': [() => new d.Geometric({ probs: 0 }), /^Geometric: 0 is not a probability above 0/],
  'what is no transform': [
    () => new d.TransformedDistribution(new d.Normal(0, 1), [Math.tanh as never]),
    /^TransformedDistribution: takes a distribution, and a list of transforms/,
  ],
  'chances of another number': [
    () => new d.MixtureSameFamily(new d.Categorical({ logits }), apart),
    /^MixtureSameFamily: chances of \[2, 3\] for distributions of \[2, 2\]/,
  ],
  'probs that may be logits': [() => new d.OneHotCategorical(logits as never), /^OneHotCategorical: say what is given/],
};
for (const [what, [call, says]] of Object.entries(REFUSED))
  test(`refused: ${what}`, () => assert.throws(call, (e) => e instanceof ArgumentError && says.test(e.message)));
test('what has no cdf says so', () =>
  assert.throws(
    () => new d.Gamma(1, 1).cdf(0.5),
    (e) => e instanceof UnsupportedError && /^Gamma: no cdf/.test(e.message),
  ));
