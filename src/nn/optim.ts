// Optimizers: each is a rule for one parameter and its state; steps run on the device, in place, with nothing read
// back.
import { ArgumentError } from '../base/errors.js';
import { type Gradients, noGrad } from '../tensor/autograd.js';
import { keep, scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';

/** Anything that knows the gradient of a parameter. */
export interface GradSource {
  get(t: Tensor): Tensor | undefined;
}

export abstract class Optimizer {
  readonly params: readonly Tensor[];
  learningRate: number;
  /** Steps taken. */
  steps = 0;
  readonly #state = new Map<string, Tensor>();

  constructor(params: readonly Tensor[], learningRate: number) {
    if (params.length === 0) throw new ArgumentError(`${new.target.name}: there are no parameters to train`);
    this.params = params;
    this.learningRate = learningRate;
  }

  /** The new value of parameter i. */
  protected abstract update(p: Tensor, grad: Tensor, i: number): Tensor;

  /** One step; parameters without a gradient stay as they are. */
  step(grads: GradSource): void {
    this.steps++;
    noGrad(() => {
      this.params.forEach((p, i) => {
        const g = grads.get(p);
        if (g) scope(() => void p.assign(this.update(p, g.dtype === p.dtype ? g : g.cast(p.dtype), i)));
      });
    });
  }
  /** Gradients of a loss, then a step with them. */
  backwardStep(loss: Tensor): void {
    const grads: Gradients = loss.backward();
    this.step(grads);
    grads.dispose();
  }

  /** A state tensor of parameter i; zeros at first. */
  protected state(name: string, i: number): Tensor {
    const key = `${i}.${name}`;
    const known = this.#state.get(key);
    if (known) return known;
    const made = keep(this.params[i].zerosLike());
    this.#state.set(key, made);
    return made;
  }
  protected hasState(name: string, i: number): boolean {
    return this.#state.has(`${i}.${name}`);
  }
  /** Puts a new tensor in a state's place. */
  protected keepState(name: string, i: number, value: Tensor): Tensor {
    const key = `${i}.${name}`;
    this.#state.get(key)?.dispose();
    this.#state.set(key, keep(value));
    return value;
  }

  stateDict(): Map<string, Tensor> {
    return new Map(this.#state);
  }
  loadStateDict(from: ReadonlyMap<string, Tensor>, steps: number): void {
    this.steps = steps;
    for (const [key, value] of from) {
      const p = this.params[Number(key.split('.')[0])];
      if (!p)
        throw new ArgumentError(`${this.constructor.name}: the state ${JSON.stringify(key)} belongs to no parameter`);
      this.#state.get(key)?.dispose();
      this.#state.set(key, keep(value.to(p.device).copy()));
    }
  }
}

export interface SgdOptions {
  readonly learningRate?: number;
  readonly momentum?: number;
  /** Takes this share off every gradient but the first as it joins the momentum. */
  readonly dampening?: number;
  readonly nesterov?: boolean;
  readonly weightDecay?: number;
}
export class SGD extends Optimizer {
  readonly options: SgdOptions;
  constructor(params: readonly Tensor[], options: SgdOptions = {}) {
    super(params, options.learningRate ?? 1e-2);
    this.options = options;
  }
  protected update(p: Tensor, grad: Tensor, i: number): Tensor {
    const { momentum = 0, dampening = 0, weightDecay = 0, nesterov = false } = this.options;
    const g = weightDecay ? grad.add(p.affine(weightDecay, 0)) : grad;
    if (momentum === 0) return p.sub(g.affine(this.learningRate, 0));
    const joining = dampening && this.hasState('momentum', i) ? g.affine(1 - dampening, 0) : g;
    const m = this.keepState('momentum', i, this.state('momentum', i).affine(momentum, 0).add(joining));
    return p.sub((nesterov ? g.add(m.affine(momentum, 0)) : m).affine(this.learningRate, 0));
  }
}

export interface AdamOptions {
  readonly learningRate?: number;
  readonly beta1?: number;
  readonly beta2?: number;
  readonly eps?: number;
  readonly weightDecay?: number;
}
/** Three fused kernels a parameter: both averages and the step with its bias corrections folded into two numbers. */
export class Adam extends Optimizer {
  readonly options: Required<Omit<AdamOptions, 'learningRate'>>;
  constructor(params: readonly Tensor[], options: AdamOptions = {}) {
    super(params, options.learningRate ?? 1e-3);
    this.options = {
      beta1: options.beta1 ?? 0.9,
      beta2: options.beta2 ?? 0.999,
      eps: options.eps ?? 1e-8,
      weightDecay: options.weightDecay ?? this.defaultDecay(),
    };
  }
  protected defaultDecay(): number {
    return 0;
  }
  /** Whether the decay shrinks the parameter itself instead of adding to its gradient. */
  protected decoupled(): boolean {
    return false;
  }
  protected update(p: Tensor, grad: Tensor, i: number): Tensor {
    const { beta1, beta2, eps, weightDecay } = this.options;
    const g = weightDecay && !this.decoupled() ? grad.add(p.affine(weightDecay, 0)) : grad;
    const m = this.keepState('m', i, this.state('m', i).ema(g, beta1));
    const v = this.keepState('v', i, this.state('v', i).emaSqr(g, beta2));
    const correction = Math.sqrt(1 - beta2 ** this.steps);
    const rate = (this.learningRate * correction) / (1 - beta1 ** this.steps);
    const base = weightDecay && this.decoupled() ? p.affine(1 - this.learningRate * weightDecay, 0) : p;
    return base.adamStep(m, v, rate, eps * correction);
  }
}
export class AdamW extends Adam {
  protected override defaultDecay(): number {
    return 0.01;
  }
  protected override decoupled(): boolean {
    return true;
  }
}

export interface RmsPropOptions {
  readonly learningRate?: number;
  readonly alpha?: number;
  readonly eps?: number;
  readonly momentum?: number;
  readonly weightDecay?: number;
}
export class RMSprop extends Optimizer {
  readonly options: RmsPropOptions;
  constructor(params: readonly Tensor[], options: RmsPropOptions = {}) {
    super(params, options.learningRate ?? 1e-2);
    this.options = options;
  }
  protected update(p: Tensor, grad: Tensor, i: number): Tensor {
    const { alpha = 0.99, eps = 1e-8, momentum = 0, weightDecay = 0 } = this.options;
    const g = weightDecay ? grad.add(p.affine(weightDecay, 0)) : grad;
    const v = this.keepState('v', i, this.state('v', i).emaSqr(g, alpha));
    if (momentum === 0) return p.adamStep(g, v, this.learningRate, eps);
    const m = this.keepState(
      'momentum',
      i,
      this.state('momentum', i)
        .affine(momentum, 0)
        .add(g.div(v.sqrt().affine(1, eps))),
    );
    return p.sub(m.affine(this.learningRate, 0));
  }
}

export interface LionOptions {
  readonly learningRate?: number;
  readonly beta1?: number;
  readonly beta2?: number;
  readonly weightDecay?: number;
}
/** Steps of one size, by the sign of a mix of momentum and gradient. */
export class Lion extends Optimizer {
  readonly options: LionOptions;
  constructor(params: readonly Tensor[], options: LionOptions = {}) {
    super(params, options.learningRate ?? 1e-4);
    this.options = options;
  }
  protected update(p: Tensor, grad: Tensor, i: number): Tensor {
    const { beta1 = 0.9, beta2 = 0.99, weightDecay = 0 } = this.options;
    const m = this.state('m', i);
    const base = weightDecay ? p.affine(1 - this.learningRate * weightDecay, 0) : p;
    const next = base.sub(m.ema(grad, beta1).sign().affine(this.learningRate, 0));
    this.keepState('m', i, m.ema(grad, beta2));
    return next;
  }
}
