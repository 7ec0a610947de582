// More optimizers with a rate for every element: Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop, Adafactor.
import type { Tensor } from '../tensor/tensor.js';
import { type AdamOptions, decayed, type Defaults, Optimizer, type OptimizerOptions, type Trained } from './optim.js';

/** Options of Adagrad. */
export interface AdagradOptions extends OptimizerOptions {
  /** How much the rate shrinks with every step; default 0. */
  readonly learningRateDecay?: number;
  /** Default 0. */
  readonly weightDecay?: number;
  /** What sums of squares begin at; default 0. */
  readonly initialAccumulator?: number;
  /** Added to the divisor; default 1e-10. */
  readonly eps?: number;
}
/** Gradients divided by the root of the sum of all their squares. */
export class Adagrad extends Optimizer<AdagradOptions> {
  protected override readonly kept = ['sum'];
  constructor(params: Trained<AdagradOptions>, options: AdagradOptions = {}) {
    const defaults = { learningRate: 1e-2, learningRateDecay: 0, weightDecay: 0, initialAccumulator: 0, eps: 1e-10 };
    super(params, options, defaults);
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<AdagradOptions>): Tensor {
    const g = decayed(grad, p, o.weightDecay);
    const before = this.state('sum', i, () => p.newFull(p.shape, o.initialAccumulator));
    const sum = this.keepState('sum', i, before.add(g.sqr()));
    const rate = o.learningRate / (1 + (this.stepsOf(i) - 1) * o.learningRateDecay);
    return p.adamStep(g, sum, rate, o.eps);
  }
}

/** Options of Adadelta. */
export interface AdadeltaOptions extends OptimizerOptions {
  /** How long squares are averaged; default 0.9. */
  readonly rho?: number;
  /** Added to both averages; default 1e-6. */
  readonly eps?: number;
  /** Default 0. */
  readonly weightDecay?: number;
}
/** Steps in the unit of the parameter: averages of squared steps over averages of squared gradients. */
export class Adadelta extends Optimizer<AdadeltaOptions> {
  protected override readonly kept = ['v', 'delta'];
  constructor(params: Trained<AdadeltaOptions>, options: AdadeltaOptions = {}) {
    super(params, options, { learningRate: 1, rho: 0.9, eps: 1e-6, weightDecay: 0 });
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<AdadeltaOptions>): Tensor {
    const g = decayed(grad, p, o.weightDecay);
    const v = this.keepState('v', i, this.state('v', i).emaSqr(g, o.rho));
    const before = this.state('delta', i);
    const delta = before.affine(1, o.eps).sqrt().div(v.affine(1, o.eps).sqrt()).mul(g);
    this.keepState('delta', i, before.emaSqr(delta, o.rho));
    return p.sub(delta.affine(o.learningRate, 0));
  }
}

/** Options of Rprop. */
export interface RpropOptions extends OptimizerOptions {
  /** What an element's step is multiplied by where its gradient changed sign; default 0.5. */
  readonly slower?: number;
  /** What it is multiplied by where the sign stayed; default 1.2. */
  readonly faster?: number;
  /** The least step; default 1e-6. */
  readonly least?: number;
  /** The largest step; default 50. */
  readonly most?: number;
}
/** Steps by the signs of gradients alone, each element with a step of its own, which begins at the learning rate. */
export class Rprop extends Optimizer<RpropOptions> {
  protected override readonly kept = ['before', 'step'];
  constructor(params: Trained<RpropOptions>, options: RpropOptions = {}) {
    super(params, options, { learningRate: 1e-2, slower: 0.5, faster: 1.2, least: 1e-6, most: 50 });
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<RpropOptions>): Tensor {
    const same = grad.mul(this.state('before', i)).sign();
    const factor = same.gt(0).where(o.faster, same.lt(0).where(o.slower, same.onesLike()));
    const step = this.state('step', i, () => p.newFull(p.shape, o.learningRate))
      .mul(factor)
      .clamp(o.least, o.most);
    this.keepState('step', i, step);
    const g = this.keepState('before', i, same.lt(0).where(0, grad));
    return p.sub(g.sign().mul(step));
  }
}

/** Options of Adamax, NAdam and RAdam. */
export type AdamLikeOptions = Omit<AdamOptions, 'amsgrad'>;
const ADAM_LIKE = { learningRate: 2e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0 };

/** Adam with the largest gradient in place of the root of squares. */
export class Adamax extends Optimizer<AdamLikeOptions> {
  protected override readonly kept = ['m', 'top'];
  constructor(params: Trained<AdamLikeOptions>, options: AdamLikeOptions = {}) {
    super(params, options, ADAM_LIKE);
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<AdamLikeOptions>): Tensor {
    const g = decayed(grad, p, o.weightDecay);
    const m = this.keepState('m', i, this.state('m', i).ema(g, o.beta1));
    const top = this.state('top', i).affine(o.beta2, 0).maximum(g.abs().affine(1, o.eps));
    this.keepState('top', i, top);
    return p.sub(m.div(top).affine(o.learningRate / (1 - o.beta1 ** this.stepsOf(i)), 0));
  }
}

/** Options of NAdam. */
export interface NAdamOptions extends AdamLikeOptions {
  /** How fast the momentum reaches its full share; default 4e-3. */
  readonly momentumDecay?: number;
  /** The decay shrinks the parameter itself; default false. */
  readonly decoupled?: boolean;
}
/** Adam that looks ahead along its momentum. */
export class NAdam extends Optimizer<NAdamOptions> {
  protected override readonly kept = ['m', 'v'];
  readonly #product = new Map<number, { readonly steps: number; readonly value: number }>();
  /** The product of the momentum's shares of all steps so far: one more factor a step, all of them after a load. */
  #shares(i: number, steps: number, share: (step: number) => number): number {
    const known = this.#product.get(i);
    let { steps: done, value } = known && known.steps < steps ? known : { steps: 0, value: 1 };
    while (done < steps) value *= share(++done);
    this.#product.set(i, { steps, value });
    return value;
  }
  constructor(params: Trained<NAdamOptions>, options: NAdamOptions = {}) {
    super(params, options, { ...ADAM_LIKE, momentumDecay: 4e-3, decoupled: false });
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<NAdamOptions>): Tensor {
    const g = o.decoupled ? grad : decayed(grad, p, o.weightDecay);
    const base = o.decoupled && o.weightDecay ? p.affine(1 - o.learningRate * o.weightDecay, 0) : p;
    const mu = (step: number): number => o.beta1 * (1 - 0.5 * 0.96 ** (step * o.momentumDecay));
    const steps = this.stepsOf(i);
    const product = this.#shares(i, steps, mu);
    const [now, next] = [mu(steps), mu(steps + 1)];
    const m = this.keepState('m', i, this.state('m', i).ema(g, o.beta1));
    const v = this.keepState('v', i, this.state('v', i).emaSqr(g, o.beta2));
    const divisor = v
      .affine(1 / (1 - o.beta2 ** steps), 0)
      .sqrt()
      .affine(1, o.eps);
    const fromGrad = g.affine((o.learningRate * (1 - now)) / (1 - product), 0);
    const fromMomentum = m.affine((o.learningRate * next) / (1 - product * next), 0);
    return base.sub(fromGrad.div(divisor)).sub(fromMomentum.div(divisor));
  }
}

/** Options of RAdam. */
export interface RAdamOptions extends AdamLikeOptions {
  /** The decay shrinks the parameter itself; default false. */
  readonly decoupled?: boolean;
}
/** Adam that trusts its average of squares only once it has seen enough of them. */
export class RAdam extends Optimizer<RAdamOptions> {
  protected override readonly kept = ['m', 'v'];
  constructor(params: Trained<RAdamOptions>, options: RAdamOptions = {}) {
    super(params, options, { ...ADAM_LIKE, learningRate: 1e-3, decoupled: false });
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<RAdamOptions>): Tensor {
    const g = o.decoupled ? grad : decayed(grad, p, o.weightDecay);
    const base = o.decoupled && o.weightDecay ? p.affine(1 - o.learningRate * o.weightDecay, 0) : p;
    const m = this.keepState('m', i, this.state('m', i).ema(g, o.beta1));
    const v = this.keepState('v', i, this.state('v', i).emaSqr(g, o.beta2));
    const steps = this.stepsOf(i);
    const correction = 1 - o.beta2 ** steps;
    const longest = 2 / (1 - o.beta2) - 1;
    const length = longest - (2 * steps * o.beta2 ** steps) / correction;
    const rate = o.learningRate / (1 - o.beta1 ** steps);
    if (length <= 5) return base.sub(m.affine(rate, 0));
    const trust = Math.sqrt(((length - 4) * (length - 2) * longest) / ((longest - 4) * (longest - 2) * length));
    return base.adamStep(m, v, rate * trust * Math.sqrt(correction), o.eps);
  }
}

/** Options of Adafactor. */
export interface AdafactorOptions extends OptimizerOptions {
  /** The power of the step number that old squares lose by; default -0.8. */
  readonly beta2Decay?: number;
  /** The least estimate of a square's root; default the dtype's epsilon. */
  readonly eps1?: number | undefined;
  /** The least size of a parameter that steps are measured by; default 1e-3. */
  readonly eps2?: number;
  /** Updates whose root mean square is above this are scaled down to it; default 1. */
  readonly clip?: number;
  /** Default 0. */
  readonly weightDecay?: number;
}
const EPSILON: Readonly<Record<string, number>> = { f64: 2 ** -52, f32: 2 ** -23, f16: 2 ** -10, bf16: 2 ** -7 };
/** Averages of squares kept by row and column: memory for rows and columns instead of elements. */
export class Adafactor extends Optimizer<AdafactorOptions> {
  protected override readonly kept = ['rows', 'columns', 'squares'];
  protected override needed(_: unknown, shape: readonly number[]): readonly string[] {
    return shape.length > 1 ? ['rows', 'columns'] : ['squares'];
  }
  protected override stateShape(name: string, shape: readonly number[]): readonly number[] {
    if (name === 'rows') return [...shape.slice(0, -1), 1];
    return name === 'columns' ? [...shape.slice(0, -2), 1, ...shape.slice(-1)] : shape;
  }
  override get elementwise(): boolean {
    return false;
  }
  constructor(params: Trained<AdafactorOptions>, options: AdafactorOptions = {}) {
    const defaults = { learningRate: 1e-2, beta2Decay: -0.8, eps1: undefined, eps2: 1e-3, clip: 1, weightDecay: 0 };
    super(params, options, defaults as unknown as Defaults<AdafactorOptions>);
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<AdafactorOptions>): Tensor {
    const eps1 = o.eps1 ?? EPSILON[p.dtype];
    const steps = this.stepsOf(i);
    const fresh = steps ** o.beta2Decay;
    const average = (name: string, now: Tensor): Tensor =>
      this.keepState(name, i, this.state(name, i, () => now.zerosLike()).ema(now, 1 - fresh));
    // Sizes stay on the device: nothing is read back.
    const rms = (x: Tensor): Tensor => x.sqr().mean().sqrt();
    const size = rms(p)
      .clamp(o.eps2, Infinity)
      .affine(Math.min(o.learningRate, 1 / Math.sqrt(steps)), 0);
    const base = o.weightDecay ? p.affine(1 - o.learningRate * o.weightDecay, 0) : p;
    let squares: Tensor;
    if (p.rank > 1) {
      const rows = average('rows', grad.sqr().mean([-1], true));
      const columns = average('columns', grad.sqr().mean([-2], true));
      squares = rows.matmul(columns).div(rows.mean([-2], true).clamp(eps1, Infinity));
    } else squares = average('squares', grad.sqr());
    const update = squares
      .clamp(eps1 * eps1, Infinity)
      .rsqrt()
      .mul(grad);
    return base.sub(
      update.mul(
        size.div(
          rms(update)
            .affine(1 / o.clip, 0)
            .clamp(1, Infinity),
        ),
      ),
    );
  }
}
