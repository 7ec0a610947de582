// Feed-forward branches: dense ones, gated or not, and mixtures of experts of which a router chooses a few for each
// token.
import { activation } from '../../nn/activation.js';
import type { Init } from '../../nn/init.js';
import { keepFloats } from '../../nn/kept-floats.js';
import { type AnyLinear, Linear } from '../../nn/layers.js';
import { Layer } from '../../nn/module.js';
import type { Weight } from '../../tensor/qtensor.js';
import { tensor } from '../../tensor/create.js';
import { keep } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { trainedSwiglu } from '../../tensor/training.js';
import { DeepRouter } from './deep-router.js';
import { amongHeld, expertProduct } from './experts.js';
import type { ClampedGate, DenseAndExperts, DenseMlp, Experts, NormFeature } from './features.js';
import { addedTo, type Norm, norm } from './mixers.js';
import type { ShardGroup } from './shard.js';
import type { Step } from './step.js';
import type { Role } from './roles.js';
import type { Weights } from './weights.js';

/** Gate and up side by side in the last dimension: act(gate) * up. */
function gatedBy(name: string, x: Tensor): Tensor {
  if (name === 'silu' || name === 'swish') return trainedSwiglu(x) ?? x.swiglu();
  const last = x.rank - 1;
  const half = x.shape[last] / 2;
  return activation(name)(x.narrow(last, 0, half)).mul(x.narrow(last, half, half));
}

/** xIELU: a curve with two learnt slopes. */
class Xielu extends Layer {
  alphaP: Tensor;
  alphaN: Tensor;
  beta: Tensor;
  eps: Tensor;
  constructor(alphaP: Tensor, alphaN: Tensor, beta: Tensor, eps: Tensor) {
    super();
    this.alphaP = alphaP;
    this.alphaN = alphaN;
    this.beta = beta;
    this.eps = eps;
  }
  forward(x: Tensor): Tensor {
    const positive = this.alphaP.softplus();
    const negative = this.alphaN.softplus().add(this.beta);
    const bend = x.minimum(this.eps).expm1().sub(x).mul(negative);
    return x.gt(0).where(x.sqr().mul(positive), bend).add(x.mul(this.beta));
  }
}

/** What lies above so many deviations from the mean of a row, and 0 below. */
function fewest(x: Tensor, deviations: number): Tensor {
  const mean = x.mean([x.rank - 1], true);
  const away = x.sub(mean);
  const deviation = away
    .sqr()
    .mean([x.rank - 1], true)
    .sqrt();
  return away.sub(deviation.affine(deviations, 0)).relu();
}

export class Dense extends Layer {
  /** Gate and up in one product; up alone where there is no gate. */
  readonly gateUp: AnyLinear;
  readonly down: AnyLinear;
  readonly feature: DenseMlp;
  readonly xielu: Xielu | undefined;
  readonly innerNorm: Norm | undefined;
  constructor(gateUp: AnyLinear, down: AnyLinear, feature: DenseMlp, xielu?: Xielu, innerNorm?: Norm) {
    super();
    this.gateUp = gateUp;
    this.down = down;
    this.feature = feature;
    this.xielu = xielu;
    this.innerNorm = innerNorm;
  }
  /** The branch, added to a sum where there is one. */
  forward(x: Tensor, sum?: Tensor, step?: Step): Tensor {
    const h = this.gateUp.forward(x);
    const { gated, activation: name, outFactor } = this.feature;
    const inner = gated ? this.#gated(name, h) : this.xielu ? this.xielu.forward(h) : activation(name)(h);
    const last = this.innerNorm ? this.innerNorm.forward(inner) : inner;
    if (outFactor === undefined) return addedTo(sum, last, this.down, step);
    const y = this.down.forward(last).affine(outFactor, 0);
    return sum ? sum.add(y) : y;
  }
  #gated(name: string, h: Tensor): Tensor {
    const { gateFactor, inner, sparse, clamped, limit } = this.feature;
    if (clamped) return clampedGate(h, clamped);
    if (limit !== undefined) return limitedGate(name, h, limit);
    if (gateFactor === undefined && sparse === undefined) return gatedBy(name, h);
    const last = h.rank - 1;
    const gate = h.narrow(last, 0, inner);
    const given = sparse === undefined ? gate.affine(gateFactor as number, 0) : fewest(gate, sparse);
    return activation(name)(given).mul(h.narrow(last, inner, inner));
  }
}

const ROLES = { gate: 'gate', up: 'up', down: 'down' } as const;
const SHARED = { gate: 'sharedGate', up: 'sharedUp', down: 'sharedDown' } as const;
export function dense(
  w: Weights,
  f: DenseMlp,
  hidden: number,
  deep?: Init,
  roles: { readonly gate: Role; readonly up: Role; readonly down: Role } = ROLES,
): Dense {
  const up = { role: roles.up, outputs: f.inner };
  const xielu = f.activation === 'xielu';
  const one = (name: string, i: number): Tensor =>
    f.curve
      ? keep(tensor(Float32Array.of(f.curve[i]), { device: w.builder.device }).cast(w.builder.dtype))
      : w.builder.get(undefined, `${w.nameOf('activation')}.${name}`);
  const [alphaP, alphaN, beta, eps] = xielu ? ['alpha_p', 'alpha_n', 'beta', 'eps'].map(one) : [];
  return new Dense(
    w.linear(f.gated ? [{ role: roles.gate, outputs: f.inner }, up] : [up], hidden),
    w.linear([{ role: roles.down, outputs: hidden }], f.inner, deep),
    f,
    xielu ? new Xielu(alphaP, alphaN, beta, eps) : undefined,
    f.innerNorm && norm(w, 'innerNorm', f.innerNorm, f.inner),
  );
}

const SCORES: { readonly [S in Experts['score']]: (logits: Tensor) => Tensor } = {
  softmax: (logits) => logits.softmax(-1),
  sigmoid: (logits) => logits.sigmoid(),
  logits: (logits) => logits,
  'root of softplus': (logits) => logits.softplus().sqrt(),
};

/** Which experts a token goes to, and with what weight: both (tokens, chosen). */
export interface Route {
  readonly ids: Tensor;
  readonly weights: Tensor;
}

export class Mixture extends Layer {
  readonly feature: Experts;
  /** What stands in front of the router's product, where it is a net. */
  readonly deep: DeepRouter | undefined;
  /** Always f32: a rounding here would choose another expert. */
  readonly router: Linear;
  readonly routerNorm: Norm | undefined;
  readonly choiceBias: Tensor | undefined;
  /** The experts of every token of the vocabulary (tokens, chosen), where a table says which. */
  readonly byToken: Tensor | undefined;
  /** What each expert's weight is multiplied by. */
  readonly scales: Tensor | undefined;
  /** (experts, 2 inner, hidden), gates over ups or ups alone, and (experts, hidden, inner). */
  readonly gateUp: Weight;
  readonly gateUpBias: Tensor | undefined;
  readonly down: Weight;
  readonly downBias: Tensor | undefined;
  readonly shared: Dense | undefined;
  readonly sharedSwitch: AnyLinear | undefined;
  /** Where experts work on a narrower vector: to it and back. */
  readonly input: AnyLinear | undefined;
  readonly output: AnyLinear | undefined;
  /** What is added to the experts' sum. */
  readonly sumBias: Tensor | undefined;
  readonly #group: ShardGroup | undefined;

  constructor(w: Weights, f: Experts, hidden: number) {
    super();
    this.feature = f;
    this.#group = w.shard?.group;
    const { inner, ungated } = f;
    const all = f.count + (f.idle?.count ?? 0);
    const count = f.held?.count ?? f.count;
    const width = f.latent ?? hidden;
    if (f.latent !== undefined) {
      this.input = w.linear([{ role: 'expertsIn', outputs: width }], hidden);
      this.output = w.linear([{ role: 'expertsOut', outputs: hidden }], width);
    }
    const { deepRouter } = f;
    if (deepRouter) this.deep = new DeepRouter(w, deepRouter, hidden);
    const read = deepRouter?.width ?? hidden;
    this.router = keepFloats(
      new Linear(w.tensor('router', [all, read], undefined, 'weight', 'f32'), w.bias('router', [all], 'f32')),
      'experts are chosen in f32',
    );
    if (f.routerNorm) this.routerNorm = norm(w, 'routerNorm', { kind: 'rms', eps: f.routerNorm.eps }, hidden);
    if (f.summed) this.sumBias = w.tensor('expertsSum', [hidden]);
    if (f.scaled) this.scales = w.tensor('expertScale', [all], undefined, 'weight', 'f32');
    if (f.byToken) this.byToken = w.tensor('tokenExperts', [f.byToken.vocabSize, f.chosen], undefined, 'weight', 'i64');
    if (f.choiceBias) this.choiceBias = w.tensor('choiceBias', [all], undefined, 'weight', 'f32');
    const gateUp = ['expertGate', 'expertUp'] as const;
    this.gateUp = ungated ? w.matrix('expertUp', [count, inner, width]) : w.expertRows(gateUp, [count, inner, width]);
    this.down = w.matrix('expertDown', [count, width, inner]);
    this.gateUpBias = ungated ? undefined : w.expertBias(gateUp, [count, inner]);
    this.downBias = w.bias('expertDown', [count, width]);
    if (f.shared) {
      const { inner, factor: outFactor, limit, activation = f.activation } = f.shared;
      const { clamped } = f;
      const part: DenseMlp = { kind: 'dense', inner, gated: !ungated, activation, outFactor, clamped, limit };
      this.shared = dense(w, part, hidden, undefined, SHARED);
      if (f.shared.gated) this.sharedSwitch = w.linear([{ role: 'sharedSwitch', outputs: 1 }], hidden);
    }
  }

  protected override buffers(): readonly string[] {
    return ['byToken'];
  }
  /** The choice for every row of x (tokens, hidden), whose tokens' numbers are `tokens`. */
  route(x: Tensor, tokens?: Tensor): Route {
    const f = this.feature;
    const { weight, bias } = this.router;
    // In f32 even where the whole module was cast to something smaller.
    const plain = this.routerNorm ? this.routerNorm.forward(x).affine(f.routerNorm?.factor ?? 1, 0) : x;
    const read = this.deep ? this.deep.forward(plain) : plain;
    const scored = read.cast('f32').matmul(weight.cast('f32').t());
    const whole = bias ? scored.add(bias.cast('f32')) : scored; // (tokens, experts)
    const logits =
      f.cap === undefined
        ? whole
        : whole
            .affine(1 / f.cap, 0)
            .tanh()
            .affine(f.cap, 0);
    if (f.sparseMixer !== undefined) return sparseMixer(logits, f.sparseMixer);
    const scores = SCORES[f.score](logits);
    let choice = this.choiceBias ? scores.add(this.choiceBias.cast('f32')) : scores;
    if (f.groups && f.groups.count > 1) choice = withinGroups(choice, f.groups);
    const ids = this.byToken
      ? this.byToken.indexSelect(0, (tokens as Tensor).reshape([-1]))
      : choice.topk(f.chosen, -1)[1];
    const kept = scores.gather(1, ids);
    const weights = this.#weigh(kept);
    return { ids, weights: this.scales ? weights.mul(this.scales.broadcastTo(logits.shape).gather(1, ids)) : weights };
  }
  #weigh(kept: Tensor): Tensor {
    const { weights, factor = 1, sumGuard = {} } = this.feature;
    const scaled = (t: Tensor): Tensor => (factor === 1 ? t : t.affine(factor, 0));
    if (weights === 'softmax') return scaled(kept.softmax(-1));
    if (weights === 'sigmoid') return scaled(kept.sigmoid());
    if (weights === 'kept') return scaled(kept);
    let sum = kept.sum([1], true);
    if (sumGuard.add) sum = sum.affine(1, sumGuard.add);
    if (sumGuard.least) sum = sum.clamp(sumGuard.least, Infinity);
    return scaled(kept.div(sum));
  }

  /** x (b, t, hidden) through its experts, chosen by what the router makes of `asked`, or by the tokens' numbers. */
  forward(x: Tensor, asked = x, tokens?: Tensor): Tensor {
    const [b, t, hidden] = x.shape;
    const { chosen, held, idle, count, latent: width = hidden } = this.feature;
    const given = x.reshape([b * t, hidden]);
    const route = this.route(asked === x ? given : asked.reshape([b * t, asked.shape[2]]), tokens);
    const { ids, weights } = idle ? working(route, count) : route;
    const rows = this.input ? this.input.forward(given) : given;
    const by = weights.unsqueeze(2).cast(x.dtype); // (tokens, chosen, 1)
    const alone = (rows: Tensor, ids: Tensor, by: Tensor): Tensor =>
      this.#through(rows.unsqueeze(1), ids.unsqueeze(1), by.unsqueeze(1)).squeeze([1]);
    const each = (): Tensor =>
      rows
        .unsqueeze(1)
        .broadcastTo([b * t, chosen, width])
        .reshape([b * t * chosen, width]);
    const out = held
      ? amongHeld(held, { rows: each(), ids: ids.reshape([-1]), by: by.reshape([-1, 1]) }, alone)
      : this.#through(rows.unsqueeze(1), ids, by);
    const own = out.reshape([b, t, chosen, width]).sum([2], false);
    const sum = this.#group ? this.#group.allReduce(own) : own;
    const made = this.output ? this.output.forward(sum) : sum;
    const worked = this.sumBias ? made.add(this.sumBias) : made;
    const kept = idle?.answer === 'input' && route.weights.sub(weights).sum([1], true).cast(x.dtype);
    const y = kept ? worked.add(given.mul(kept).reshape(x.shape)) : worked;
    if (!this.shared) return y;
    const s = this.shared.forward(x);
    return y.add(this.sharedSwitch ? s.mul(this.sharedSwitch.forward(x).sigmoid()) : s);
  }
  /** Rows (tokens, 1 or chosen, hidden) through the experts (tokens, chosen), weighed by (tokens, chosen, 1). */
  #through(rows: Tensor, ids: Tensor, by: Tensor): Tensor {
    const { clamped, activation: name, onInput, ungated, limit } = this.feature;
    const h = expertProduct(onInput ? rows.mul(by) : rows, this.gateUp, ids, this.gateUpBias);
    const opened = (): Tensor => {
      if (clamped) return clampedGate(h, clamped);
      return limit === undefined ? gatedBy(name, h) : limitedGate(name, h, limit);
    };
    const inner = ungated ? activation(name)(h) : opened();
    const out = expertProduct(inner, this.down, ids, this.downBias);
    return onInput ? out : out.mul(by);
  }
}

/** A dense branch and experts beside it: Gemma 4's mixtures. */
export class DenseWithExperts extends Layer {
  readonly dense: Dense;
  readonly experts: Mixture;
  readonly afterDense: Norm;
  readonly beforeExperts: Norm;
  readonly afterExperts: Norm;
  constructor(w: Weights, f: DenseAndExperts, hidden: number, kind: NormFeature, deep?: Init) {
    super();
    this.dense = dense(w, f.dense, hidden, deep);
    this.experts = new Mixture(w, f.experts, hidden);
    this.afterDense = norm(w, 'afterDense', kind, hidden);
    this.beforeExperts = norm(w, 'beforeExperts', kind, hidden);
    this.afterExperts = norm(w, 'afterExperts', kind, hidden);
  }
  /** The dense branch reads x, the experts and their router what x was before its norm. */
  forward(x: Tensor, before = x): Tensor {
    const chosen = this.experts.forward(this.beforeExperts.forward(before), before);
    return this.afterDense.forward(this.dense.forward(x)).add(this.afterExperts.forward(chosen));
  }
}

function limitedGate(name: string, h: Tensor, limit: number): Tensor {
  const half = h.shape[2] / 2;
  const gate = h.narrow(2, 0, half).clamp(-Infinity, limit);
  return activation(name)(gate).mul(h.narrow(2, half, half).clamp(-limit, limit));
}
function clampedGate(h: Tensor, { limit, alpha }: ClampedGate): Tensor {
  const half = h.shape[2] / 2;
  const gate = h.narrow(2, 0, half).clamp(-Infinity, limit);
  const up = h.narrow(2, half, half).clamp(-limit, limit);
  return gate.mul(gate.affine(alpha, 0).sigmoid()).mul(up.affine(1, 1));
}

/** A choice in which experts that compute nothing weigh nothing. */
function working({ ids, weights }: Route, count: number): Route {
  const work = ids.cast('i64').lt(count);
  return { ids: work.where(ids, ids.zerosLike()), weights: work.where(weights, weights.zerosLike()) };
}

/** Scores of experts outside the best groups are taken out of the choice. */
function withinGroups(choice: Tensor, { count, kept, worth, closed }: NonNullable<Experts['groups']>): Tensor {
  const [n, experts] = choice.shape;
  const grouped = choice.reshape([n, count, experts / count]);
  const value = worth === 'best' ? grouped.max([2], false) : grouped.topk(2, -1)[0].sum([2], false); // (tokens, groups)
  const [, best] = value.topk(kept, -1);
  const mask = value.zerosLike().scatter(1, best, value.onesLike().narrow(1, 0, kept)); // (tokens, groups)
  const open = mask.unsqueeze(2).broadcastTo(grouped.shape).reshape([n, experts]).ne(0);
  return open.where(choice, choice.constant(closed ?? (worth === 'best' ? 0 : -Infinity)));
}

/** Two choices, each the largest logit, weighed by a softmax over those near it. */
function sparseMixer(logits: Tensor, jitter: number): Route {
  const none = logits.constant(-Infinity);
  const choose = (open: Tensor): readonly [ids: Tensor, weight: Tensor] => {
    const [top, ids] = open.topk(1, -1); // (tokens, 1)
    const distance = top.sub(logits).div(logits.abs().maximum(top.abs().broadcastTo(logits.shape)));
    const near = distance.gt(2 * jitter).where(none, open);
    return [ids, near.softmax(-1).gather(1, ids)];
  };
  const [first, w1] = choose(logits);
  const without = logits.scatter(1, first, none.broadcastTo(logits.shape).narrow(1, 0, 1));
  const [second, w2] = choose(without);
  return { ids: first.cat([second], 1), weights: w1.cat([w2], 1) };
}
