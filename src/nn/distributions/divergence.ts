// How far one distribution is from another.
import { UnsupportedError } from '../../base/errors.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Exponential, Laplace, LogNormal, Normal, Uniform } from './continuous.js';
import { Bernoulli, Categorical, OneHotCategorical } from './discrete.js';
import { beside, Distribution } from './distribution.js';
import { Beta, Gamma, logBeta } from './gamma.js';
import { Independent, MultivariateNormal } from './joint.js';
import { Dirichlet } from './mixture.js';

type Kl<D> = (p: D, q: D) => Tensor;
// biome-ignore lint/suspicious/noExplicitAny: a row's function takes two of the row's own kind
type Kind = abstract new (...args: any[]) => Distribution;
const row = <D extends Distribution>(of: abstract new (...args: never[]) => D, kl: Kl<D>): [Kind, Kl<Distribution>] => [
  of as unknown as Kind,
  kl as unknown as Kl<Distribution>,
];
/** A probability times how much its logarithm lies above the other's: 0 where it is 0, infinite where only q is. */
function share(p: Tensor, q: Tensor, apart: Tensor): Tensor {
  const none = p.eq(0);
  return none.where(0, p.mul(none.where(0, q.eq(0).where(Infinity, apart))));
}
const DIVERGENCES = new Map<Kind, Kl<Distribution>>([
  row(Normal, (p, q) => {
    const [mean, scale] = [beside(q.mean, p.mean), beside(q.scale, p.mean)];
    const ratio = p.scale.div(scale).sqr();
    const apart = p.mean.sub(mean).div(scale).sqr();
    return ratio.add(apart).affine(0.5, -0.5).sub(ratio.log().affine(0.5, 0));
  }),
  row(LogNormal, (p, q) => klDivergence(p.normal, q.normal)),
  row(Uniform, (p, q) => {
    const inside = q.low.le(p.low).logicalAnd(q.high.ge(p.high));
    const ratio = q.entropy().sub(p.entropy());
    return inside.where(ratio, ratio.fullLike(Infinity));
  }),
  row(Exponential, (p, q) => {
    const ratio = q.rate.div(p.rate);
    return ratio.sub(ratio.log()).affine(1, -1);
  }),
  row(Laplace, (p, q) => {
    const ratio = p.scale.div(q.scale);
    const apart = p.mean.sub(q.mean).abs();
    return ratio.mul(apart.div(p.scale).neg().exp()).add(apart.div(q.scale)).sub(ratio.log()).affine(1, -1);
  }),
  row(Gamma, (p, q) =>
    q.concentration
      .mul(p.rate.div(q.rate).log())
      .add(q.concentration.lgamma())
      .sub(p.concentration.lgamma())
      .add(p.concentration.sub(q.concentration).mul(p.concentration.digamma()))
      .add(q.rate.sub(p.rate).mul(p.concentration.div(p.rate))),
  ),
  row(Beta, (p, q) => {
    const [a, b, total] = [p.concentration1, p.concentration0, p.concentration1.add(p.concentration0)];
    const [c, d] = [q.concentration1, q.concentration0];
    return logBeta(c, d)
      .sub(logBeta(a, b))
      .add(a.sub(c).mul(a.digamma()))
      .add(b.sub(d).mul(b.digamma()))
      .add(c.add(d).sub(total).mul(total.digamma()));
  }),
  row(Bernoulli, (p, q) => {
    const [no, otherNo] = [p.probs.affine(-1, 1), q.probs.affine(-1, 1)];
    const of1 = share(p.probs, q.probs, q.logits.neg().softplus().sub(p.logits.neg().softplus()));
    return of1.add(share(no, otherNo, q.logits.softplus().sub(p.logits.softplus())));
  }),
  row(Categorical, (p, q) => share(p.probs, q.probs, p.logProbabilities.sub(q.logProbabilities)).sum([-1], false)),
  row(OneHotCategorical, (p, q) => klDivergence(p.classes, q.classes)),
  row(Dirichlet, (p, q) => {
    const [a, b] = [p.concentration, q.concentration];
    const [all, others] = [a.sum([-1], true), b.sum([-1], true)];
    return a
      .sub(b)
      .mul(a.digamma().sub(all.digamma()))
      .add(b.lgamma())
      .sub(a.lgamma())
      .sum([-1], false)
      .add(all.lgamma().sub(others.lgamma()).squeeze(-1));
  }),
  row(MultivariateNormal, (p, q) => {
    const factor = q.scaleTril.solveTriangular(p.scaleTril);
    const apart = q.scaleTril.solveTriangular(p.mean.sub(q.mean).unsqueeze(-1)).squeeze(-1);
    const logs = q.scaleTril.diagonal().log().sub(p.scaleTril.diagonal().log()).sum([-1], false);
    return factor
      .sqr()
      .sum([-2, -1], false)
      .add(apart.sqr().sum([-1], false))
      .affine(0.5, -0.5 * p.event[0])
      .add(logs);
  }),
  row(Independent, (p, q) => p.summed(klDivergence(p.base, q.base))),
]);

/** How far p is from q, E[ln p - ln q] in nats, of two distributions of one kind. */
export function klDivergence(p: Distribution, q: Distribution): Tensor {
  const kl = p?.constructor === q?.constructor ? DIVERGENCES.get(p?.constructor as Kind) : undefined;
  if (kl) return kl(p, q);
  throw new UnsupportedError(
    `klDivergence: of ${p?.constructor.name} and ${q?.constructor.name}; it takes two of one kind: ` +
      [...DIVERGENCES.keys()].map((k) => k.name).join(', '),
  );
}
