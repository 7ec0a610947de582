// Distributions of wick/nn: densities, entropies and divergences are PyTorch's, draws have their mean and variance.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualSeed, ShapeError, type Tensor, tensor, UnsupportedError } from '../src/index.js';
import { distributions } from '../src/nn/index.js';

const { Normal, Uniform, Bernoulli, Categorical, klDivergence } = distributions;
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
  const coin = new Bernoulli(tensor([0, 2]));
  near(coin.logProb(tensor([1, 0])), [-0.693147, -2.126928]);
  near(coin.entropy(), [0.693147, 0.365334]);
  near(klDivergence(coin, new Bernoulli(tensor([1, -1]))), [0.120114, 0.828725]);
  const classes = new Categorical(rows([0, 1, 2], [1, 1, 1]));
  near(classes.logProb(tensor([2, 0])), [-0.407606, -1.098612]);
  near(classes.entropy(), [0.832395, 1.098612]);
  near(klDivergence(classes, new Categorical(rows([1, 0, 0], [0, 2, 1]))), [0.629019, 0.308994]);
  near(Categorical.of(tensor([0.5, 0.5, 0])).entropy(), [0.693147]);
  assert.throws(() => klDivergence(normal, uniform), UnsupportedError);
  assert.throws(() => new Normal(tensor([0, 1]), tensor([1, 2, 3])), ShapeError);
});

test('draws have the mean and the variance, and the shape asked for before that of the parameters', () => {
  manualSeed(11);
  for (const d of [
    new Normal(tensor([0, 5]), tensor([1, 0.5])),
    new Uniform(tensor([0, -3]), tensor([2, 4])),
    Bernoulli.of(tensor([0.2, 0.9])),
  ]) {
    const drawn = d.sample([200, 100]);
    assert.deepEqual(drawn.shape, [200, 100, 2]);
    const flat = drawn.reshape([-1, 2]);
    near(flat.mean(0), d.mean.toArray<number[]>(), 0.02);
    near(flat.variance(0), d.variance.toArray<number[]>(), 0.03);
    assert.deepEqual(d.sample([3], { seed: 1 }).toArray(), d.sample([3], { seed: 1 }).toArray());
  }
  const classes = Categorical.of(rows([0.7, 0.3, 0], [0.1, 0.1, 0.8]));
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
  near(new Categorical(logits).logProb(tensor(1)).backward().of(logits), [-0.244728, 0.909969, -0.665241]);
});
