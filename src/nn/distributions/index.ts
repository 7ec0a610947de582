// Distributions: numbers drawn from them, the logarithm of their density, entropies and divergences, with gradients.
export { Distribution, type Parameter, Reparametrized, type SampleOptions } from './distribution.js';
export { Exponential, Gumbel, Laplace, LogNormal, Normal, Uniform } from './continuous.js';
export { Beta, Gamma } from './gamma.js';
export { Cauchy, HalfNormal, StudentT } from './curves.js';
export { Binomial, Geometric, Poisson } from './counts.js';
export { Bernoulli, Categorical, OneHotCategorical, type ProbsOrLogits } from './discrete.js';
export { Independent, MultivariateNormal } from './joint.js';
export { Dirichlet, MixtureSameFamily } from './mixture.js';
export {
  AffineTransform,
  ExpTransform,
  SigmoidTransform,
  TanhTransform,
  Transform,
  TransformedDistribution,
} from './transformed.js';
export { klDivergence } from './divergence.js';
