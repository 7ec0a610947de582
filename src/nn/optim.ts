// Optimizers: each is a rule for one parameter and its state; steps run on the device, in place, with nothing read
// back.
import type { DType } from '../base/dtype.js';
import { ArgumentError, ShapeError, UnsupportedError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import type { AdamRates } from '../ops/training.js';
import { noGrad } from '../tensor/autograd.js';
import type { Gradients } from '../tensor/backward.js';
import { keep, scope } from '../tensor/scope.js';
import { type StepRecording, stepRecording } from '../tensor/step-recording.js';
import { adamInPlace } from '../tensor/training.js';
import { Tensor } from '../tensor/tensor.js';
import { answerNames } from './answers.js';
import { clipGradNorm, clipGradValue } from './clip.js';
import { checkOptions, given } from './optim-options.js';

/** Anything that knows the gradient of a parameter. */
export interface GradSource {
  /** The gradient of a tensor, or undefined where none flowed. */
  get(t: Tensor): Tensor | undefined;
}

/** What every optimizer takes. */
export interface OptimizerOptions {
  /** The size of a step. */
  readonly learningRate?: number;
  /** Climbs instead of descending: gradients count with the opposite sign; default false. */
  readonly maximize?: boolean;
}
/** An optimizer's defaults: all its options but those that every optimizer has alike. */
export type Defaults<O> = Required<Omit<O, 'maximize'>>;
/** Parameters with options of their own; what a group does not say, the optimizer's options do. */
export type ParameterGroup<O> = {
  /** The tensors that these options are for. */
  readonly params: readonly Tensor[];
} & O;
/** What an optimizer trains: tensors, or groups of them. */
export type Trained<O> = readonly Tensor[] | readonly ParameterGroup<O>[];
/** How gradients are made smaller before a step. */
export interface ClipOptions {
  /** The joint norm of all gradients is at most this. */
  readonly clipNorm?: number;
  /** Each element of a gradient lies between minus this and this. */
  readonly clipValue?: number;
}

/** What a step does on the way, in the same pass where the device has one. */
export interface StepOptions {
  /** A number on the device, 0-d f32, that every gradient is multiplied by: clipping without a copy of them. */
  readonly scale?: Tensor;
  /** Where a parameter is copied to in another dtype after its step. */
  readonly copy?: (parameter: Tensor) => Tensor | undefined;
}

/** A group with all its options filled in; its rate is `share` times the optimizer's. */
interface Group<O> {
  readonly params: readonly Tensor[];
  readonly options: Required<O>;
  readonly share: number;
}

/** The base of all optimizers that step by a rule for one parameter at a time. */
export abstract class Optimizer<O extends OptimizerOptions = OptimizerOptions> {
  /** Every parameter, group by group. */
  readonly params: readonly Tensor[];
  /** The groups of parameters with their own options. */
  readonly groups: readonly Group<O>[];
  /** The size of a step; groups with a rate of their own keep their ratio to it. Schedules change it. */
  learningRate: number;
  /** Steps taken. */
  steps = 0;
  readonly #state = new Map<string, Tensor>();
  readonly #groupOf: readonly Group<O>[];
  /** Steps that a parameter had no gradient in: it counts its own, as a layer that is trained later begins anew. */
  readonly #missed: number[];

  constructor(params: Trained<O>, options: O, defaults: Defaults<O>) {
    const name = new.target.name;
    const known = [...Object.keys(defaults), 'maximize'];
    requireOptions(name, options, known);
    if (!Array.isArray(params))
      throw new ArgumentError(`${name}: takes a list of parameters, as model.parameters(), or of groups of them`);
    if (params.length === 0) throw new ArgumentError(`${name}: there are no parameters to train`);
    const filled = { ...defaults, maximize: false, ...given(options) };
    this.learningRate = checkedRate(name, (filled as OptimizerOptions).learningRate as number);
    const trained = params[0] instanceof Tensor ? [{ params }] : params;
    this.groups = (trained as readonly ParameterGroup<O>[]).map((group) => {
      const { params: own, ...rest } = group;
      if (!Array.isArray(own) || own.length === 0 || own.some((p) => !(p instanceof Tensor)))
        throw new ArgumentError(`${name}: a group is { params: [tensors], ...options } with a tensor at least`);
      requireOptions(`${name} (a group's options)`, rest, known);
      const more = given(rest);
      if ((own as readonly Tensor[]).some((p) => p.node))
        throw new ArgumentError(
          `${name}: a parameter is the result of an op, so a step on it would not be seen; it must be a leaf`,
        );
      checkOptions(name, { ...filled, ...more });
      const rate = checkedRate(name, (more as OptimizerOptions).learningRate ?? this.learningRate);
      if (this.learningRate === 0 && rate !== 0)
        throw new ArgumentError(`${name}: a group's rate of ${rate} has no ratio to the optimizer's, which is 0`);
      return {
        params: own as readonly Tensor[],
        options: Object.freeze({ ...filled, ...more }) as unknown as Required<O>,
        share: rate === this.learningRate ? 1 : rate / this.learningRate,
      };
    });
    this.params = this.groups.flatMap((g) => g.params);
    this.#groupOf = this.groups.flatMap((g) => g.params.map(() => g));
    this.#missed = this.params.map(() => 0);
    if (new Set(this.params).size !== this.params.length)
      throw new ArgumentError(`${name}: a parameter stands twice among its groups`);
  }

  /** Names of the tensors that it keeps for a parameter, where it tells: a state with others is another optimizer's. */
  protected readonly kept: readonly string[] | undefined;
  /** Those of them without which a parameter's state is not whole. */
  protected needed(_options: Required<O>, _shape: readonly number[]): readonly string[] {
    return this.kept ?? [];
  }
  /** The shape of one of them, for a parameter of some shape. */
  protected stateShape(_name: string, shape: readonly number[]): readonly number[] {
    return shape;
  }

  /** Steps that parameter i has taken: those of the optimizer in which it had a gradient. */
  protected stepsOf(i: number): number {
    return this.steps - this.#missed[i];
  }
  /** Whether an element's step depends on that element alone, so that a parameter may be stepped in parts. */
  get elementwise(): boolean {
    return true;
  }
  /** The new value of parameter i; the options are those of its group, with the rate of this step. */
  protected abstract update(p: Tensor, grad: Tensor, i: number, options: Required<O>): Tensor;
  /** Takes the step of parameter i in place and in one pass, or answers false: then `update` makes the new value. */
  protected updateInPlace(_t: StepTensors, _i: number, _options: Required<O>): boolean {
    return false;
  }

  /** One step; parameters without a gradient stay as they are. */
  step(grads: GradSource, options: StepOptions = {}): void {
    if (typeof (grads as GradSource | undefined)?.get !== 'function' || (grads as unknown) instanceof Tensor)
      throw new ArgumentError(
        `${this.constructor.name}: step takes the gradients that loss.backward() gives, which tensors do not keep; ` +
          'backwardStep(loss) does both, and there is nothing to set to zero',
      );
    requireOptions(this.constructor.name, options, ['scale', 'copy']);
    const { scale, copy } = options;
    const recorded = stepRecording();
    if (recorded) recorded.before(() => this.steps++);
    else this.steps++;
    noGrad(() => {
      this.params.forEach((p, i) => {
        const g = grads.get(p);
        const group = this.#groupOf[i];
        const now = this.#optionsOf(group);
        if (!g) {
          const miss = (): void => void this.#missed[i]++;
          return recorded ? recorded.before(miss) : miss();
        }
        scope(() => {
          const into = copy?.(p);
          const grad = now.maximize ? g.neg() : g;
          const tensors = { p, grad, ...(scale && { scale }), ...(into && { copy: into }) };
          const key = this.#missed[i] ? p : group;
          const later = recorded && { step: recorded, key, options: () => this.#optionsOf(group) };
          if (this.updateInPlace({ ...tensors, ...(later && { later }) }, i, now)) return;
          if (recorded) this.#refuseRecording(p);
          const wide = p.cast(steppedIn(p));
          const own = grad.cast(wide.dtype);
          p.assign(this.update(wide, scale ? own.mul(scale.cast(wide.dtype)) : own, i, now).cast(p.dtype));
          into?.assign(p.cast(into.dtype));
        });
      });
    });
  }
  #optionsOf({ options, share }: Group<O>): Required<O> {
    if (!Number.isFinite(this.learningRate))
      throw new ArgumentError(`${this.constructor.name}: learningRate is ${String(this.learningRate)}, not a number`);
    return { ...options, learningRate: this.learningRate * share };
  }
  #refuseRecording({ shape, dtype, device }: Tensor): never {
    const name = this.constructor.name;
    throw new UnsupportedError(
      `${name}: its step of a parameter ${dtype} ${formatShape(shape)} on ${device.name} cannot be recorded, ` +
        `since the rate ` +
        `would stay what it was; Adam and AdamW of f32 parameters, without amsgrad, can (captured)`,
    );
  }
  /**
   * Gradients of a loss, clipped if wanted, then a step with them. Answers the joint norm before clipping where
   * `clipNorm` is given.
   */
  backwardStep(loss: Tensor, clip: ClipOptions = {}): Tensor | undefined {
    requireOptions('backwardStep', clip, ['clipNorm', 'clipValue']);
    const grads: Gradients = loss.backward();
    let norm: Tensor | undefined;
    if (clip.clipNorm !== undefined || clip.clipValue !== undefined) {
      const own = this.params.filter((p) => grads.get(p));
      let list = own.map((p) => grads.of(p));
      if (clip.clipValue !== undefined) list = clipGradValue(list, clip.clipValue);
      if (clip.clipNorm !== undefined) ({ grads: list, norm } = clipGradNorm(list, clip.clipNorm));
      const clipped = new Map(own.map((p, i) => [p, list[i]]));
      this.step(clipped);
      for (const g of list) g.dispose();
    } else this.step(grads);
    grads.dispose();
    return norm;
  }

  /** A state tensor of parameter i; zeros of its shape at first, or of another. */
  protected state(name: string, i: number, first?: () => Tensor): Tensor {
    const key = `${i}.${name}`;
    const known = this.#state.get(key);
    if (known) return known;
    const p = this.params[i];
    const made = keep(first?.() ?? p.newZeros(p.shape, steppedIn(p)));
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

  /** Averages and momenta by '<number of the parameter>.<name>', and the steps that a parameter missed, if any. */
  stateDict(): Map<string, Tensor> {
    const missed = [...this.#missed.entries()].filter(([, count]) => count > 0);
    return new Map([
      ...this.#state,
      ...missed.map(([i, count]) => [`${i}.${MISSED}`, this.params[i].newFull([], count, 'i64')] as const),
    ]);
  }
  /** Takes up the state of an earlier run. */
  loadStateDict(from: ReadonlyMap<string, Tensor>, steps: number): void {
    const name = this.constructor.name;
    for (const [key, value] of from) this.#checkState(name, key, value);
    this.#checkWhole(name, from);
    this.steps = steps;
    this.#missed.fill(0);
    for (const [key, value] of from) {
      const [i, what] = parsedKey(key);
      if (what === MISSED) {
        this.#missed[i] = Number(value.item());
        continue;
      }
      const p = this.params[i];
      const given = value.to(p.device).cast(value.dtype === 'f16' ? steppedIn(p) : value.dtype);
      const known = this.#state.get(key);
      // In place where it can be: a recorded step goes on with the tensor that it knows.
      if (known && known.dtype === given.dtype && sameShape(known.shape, given.shape)) {
        noGrad(() => known.assign(given));
        continue;
      }
      known?.dispose();
      this.#state.set(key, keep(given.copy()));
    }
  }
  /** Gives the memory of averages and momenta back: a step after it begins anew. */
  dispose(): void {
    for (const t of this.#state.values()) t.dispose();
    this.#state.clear();
    this.#missed.fill(0);
    this.steps = 0;
  }
  /** A state of another parameter's shape would be spread over this one, which nothing after it would notice. */
  #checkState(name: string, key: string, value: Tensor): void {
    const [i, what] = parsedKey(key);
    const p = this.params[i];
    if (!p) throw new ArgumentError(`${name}: the state ${JSON.stringify(key)} belongs to no parameter`);
    if (what === MISSED) return;
    if (this.kept && !this.kept.includes(what))
      throw new ArgumentError(
        `${name}: the state ${JSON.stringify(key)} is another optimizer's; its own are ${this.kept.join(', ')}`,
      );
    const want = this.kept || this.elementwise ? this.stateShape(what, p.shape) : undefined;
    if (want && !(value.rank === 0 && !this.kept) && !sameShape(value.shape, want))
      throw new ShapeError(
        `${name}: the state ${JSON.stringify(key)} is ${formatShape(value.shape)}, ` +
          `${sameShape(want, p.shape) ? '' : `not ${formatShape(want)}; `}its parameter ` +
          `${formatShape(p.shape)}; a state belongs to the same parameters in the same order`,
      );
  }
  /** Half of a state, as another optimizer keeps it, would go on with zeros where there should be averages. */
  #checkWhole(name: string, from: ReadonlyMap<string, Tensor>): void {
    const begun = new Set([...from.keys()].map(parsedKey).flatMap(([i, what]) => (what === MISSED ? [] : [i])));
    for (const i of begun) {
      const lacking = this.needed(this.#groupOf[i].options, this.params[i].shape).filter(
        (what) => !from.has(`${i}.${what}`),
      );
      if (lacking.length > 0)
        throw new ArgumentError(
          `${name}: the state has no ${lacking.map((what) => JSON.stringify(`${i}.${what}`)).join(', ')} beside what ` +
            'it has of that parameter: it is of another optimizer, or of other options',
        );
    }
  }
}
const MISSED = 'missed';
function parsedKey(key: string): readonly [parameter: number, what: string] {
  const dot = key.indexOf('.');
  return [Number(key.slice(0, dot)), key.slice(dot + 1)];
}
/**
 * The dtype that a parameter's step and its averages are computed in. f16 holds neither the square of a gradient of
 * 1e-4 nor an eps of 1e-8: a step would divide by nothing.
 */
const steppedIn = ({ dtype }: Tensor): DType => (dtype === 'f16' ? 'f32' : dtype);
/** A parameter, its gradient and what a step folds in. */
interface StepTensors {
  readonly p: Tensor;
  readonly grad: Tensor;
  readonly scale?: Tensor;
  readonly copy?: Tensor;
  /** There while a step is recorded: what gives the options of the day, and for whom they are the same. */
  readonly later?: { readonly step: StepRecording; readonly key: object; readonly options: () => any };
}
function checkedRate(name: string, rate: number): number {
  if (!(rate >= 0 && rate < Infinity))
    throw new ArgumentError(`${name}: learningRate ${rate} is not a number of at least 0`);
  return rate;
}
/** The gradient with a share of the parameter added. */
export const decayed = (grad: Tensor, p: Tensor, weightDecay: number): Tensor =>
  weightDecay ? grad.add(p.affine(weightDecay, 0)) : grad;

/** Options of SGD. */
export interface SgdOptions extends OptimizerOptions {
  /** The share of the last step that goes on; default 0. */
  readonly momentum?: number;
  /** Takes this share off every gradient but the first as it joins the momentum. */
  readonly dampening?: number;
  /** Looks ahead along the momentum. */
  readonly nesterov?: boolean;
  /** A share of the parameter that is added to its gradient; default 0. */
  readonly weightDecay?: number;
}
/** Gradient descent, with momentum if wanted. */
export class SGD extends Optimizer<SgdOptions> {
  protected override readonly kept = ['momentum'];
  constructor(params: Trained<SgdOptions>, options: SgdOptions = {}) {
    super(params, options, { learningRate: 1e-3, momentum: 0, dampening: 0, nesterov: false, weightDecay: 0 });
    if (this.groups.some(({ options: o }) => o.nesterov && (o.momentum === 0 || o.dampening !== 0)))
      throw new ArgumentError('SGD: nesterov looks ahead along a momentum, which must be above 0, without dampening');
  }
  protected override needed({ momentum }: Required<SgdOptions>): readonly string[] {
    return momentum === 0 ? [] : this.kept;
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<SgdOptions>): Tensor {
    const g = decayed(grad, p, o.weightDecay);
    if (o.momentum === 0) return p.sub(g.affine(o.learningRate, 0));
    const joining = o.dampening && this.hasState('momentum', i) ? g.affine(1 - o.dampening, 0) : g;
    const m = this.keepState('momentum', i, this.state('momentum', i).affine(o.momentum, 0).add(joining));
    return p.sub((o.nesterov ? g.add(m.affine(o.momentum, 0)) : m).affine(o.learningRate, 0));
  }
}

/** Options of Adam and its relatives. */
export interface AdamOptions extends OptimizerOptions {
  /** How long gradients are averaged; default 0.9. */
  readonly beta1?: number;
  /** How long their squares are averaged; default 0.999. */
  readonly beta2?: number;
  /** Added to the divisor; default 1e-8. */
  readonly eps?: number;
  /** Default 0; of AdamW 0.01. */
  readonly weightDecay?: number;
  /** Divide by the largest average of squares so far; default false. */
  readonly amsgrad?: boolean;
}
const ADAM = { learningRate: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0, amsgrad: false };
/** What a recorded step is given anew, in the order in which the kernel takes it. */
const RATES = ['shrink', 'rate', 'eps'] as const;
const ADAMW = { ...ADAM, weightDecay: 0.01 };
/**
 * One kernel a parameter where the device has it, else three: both averages and the step with its bias corrections
 * folded into two numbers.
 */
export class Adam extends Optimizer<AdamOptions> {
  protected override readonly kept = ['m', 'v', 'top'];
  constructor(params: Trained<AdamOptions>, options: AdamOptions = {}, defaults: Defaults<AdamOptions> = ADAM) {
    super(params, options, defaults);
  }
  protected override needed({ amsgrad }: Required<AdamOptions>): readonly string[] {
    return amsgrad ? this.kept : ['m', 'v'];
  }
  /** Whether the decay shrinks the parameter itself instead of adding to its gradient. */
  protected decoupled(): boolean {
    return false;
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<AdamOptions>): Tensor {
    const { beta1, beta2, weightDecay } = o;
    const g = this.decoupled() ? grad : decayed(grad, p, weightDecay);
    const m = this.keepState('m', i, this.state('m', i).ema(g, beta1));
    const v = this.keepState('v', i, this.state('v', i).emaSqr(g, beta2));
    const top = o.amsgrad ? this.keepState('top', i, this.state('top', i).maximum(v)) : v;
    const { rate, eps: least, shrink } = this.#rates(o, i);
    return (shrink === 1 ? p : p.affine(shrink, 0)).adamStep(m, top, rate, least);
  }
  protected override updateInPlace(t: StepTensors, i: number, o: Required<AdamOptions>): boolean {
    if (o.amsgrad || (o.weightDecay && !this.decoupled())) return false;
    const { later, ...tensors } = t;
    const fed = later?.step.numbers(later.key, RATES.length, () => {
      const rates = this.#rates(later.options(), i);
      return RATES.map((name) => rates[name]);
    });
    return adamInPlace(
      { ...tensors, m: this.state('m', i), v: this.state('v', i), ...(fed && { fed }) },
      this.#rates(o, i),
    );
  }
  #rates({ beta1, beta2, eps, weightDecay, learningRate }: Required<AdamOptions>, i: number): AdamRates {
    const steps = this.stepsOf(i);
    const correction = Math.sqrt(1 - beta2 ** steps);
    const rate = (learningRate * correction) / (1 - beta1 ** steps);
    const shrink = weightDecay && this.decoupled() ? 1 - learningRate * weightDecay : 1;
    return { beta1, beta2, shrink, rate, eps: eps * correction };
  }
}
/** Adam whose decay shrinks the parameter itself. */
export class AdamW extends Adam {
  constructor(params: Trained<AdamOptions>, options: AdamOptions = {}) {
    super(params, options, ADAMW);
  }
  protected override decoupled(): boolean {
    return true;
  }
}

/** Options of RMSprop. */
export interface RmsPropOptions extends OptimizerOptions {
  /** How long squares are averaged; default 0.99. */
  readonly alpha?: number;
  /** Added to the divisor; default 1e-8. */
  readonly eps?: number;
  /** Default 0. */
  readonly momentum?: number;
  /** Default 0. */
  readonly weightDecay?: number;
  /** Divides by the root of the variance: the average gradient's square is taken off first; default false. */
  readonly centered?: boolean;
}
/** Gradients divided by the root of the average of their squares. */
export class RMSprop extends Optimizer<RmsPropOptions> {
  protected override readonly kept = ['v', 'mean', 'momentum'];
  constructor(params: Trained<RmsPropOptions>, options: RmsPropOptions = {}) {
    const defaults = { learningRate: 1e-2, alpha: 0.99, eps: 1e-8, momentum: 0, weightDecay: 0, centered: false };
    super(params, options, defaults);
  }
  protected override needed({ centered, momentum }: Required<RmsPropOptions>): readonly string[] {
    return ['v', ...(centered ? ['mean'] : []), ...(momentum === 0 ? [] : ['momentum'])];
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<RmsPropOptions>): Tensor {
    const g = decayed(grad, p, o.weightDecay);
    const squares = this.keepState('v', i, this.state('v', i).emaSqr(g, o.alpha));
    const v = o.centered
      ? squares.sub(this.keepState('mean', i, this.state('mean', i).ema(g, o.alpha)).sqr())
      : squares;
    if (o.momentum === 0) return p.adamStep(g, v, o.learningRate, o.eps);
    const joining = g.div(v.sqrt().affine(1, o.eps));
    const m = this.keepState('momentum', i, this.state('momentum', i).affine(o.momentum, 0).add(joining));
    return p.sub(m.affine(o.learningRate, 0));
  }
}

/** Options of Lion. */
export interface LionOptions extends OptimizerOptions {
  /** The share of the momentum in a step; default 0.9. */
  readonly beta1?: number;
  /** How long gradients are averaged; default 0.99. */
  readonly beta2?: number;
  /** Default 0. */
  readonly weightDecay?: number;
}
/** Steps of one size, by the sign of a mix of momentum and gradient. */
export class Lion extends Optimizer<LionOptions> {
  protected override readonly kept = ['m'];
  constructor(params: Trained<LionOptions>, options: LionOptions = {}) {
    super(params, options, { learningRate: 1e-4, beta1: 0.9, beta2: 0.99, weightDecay: 0 });
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<LionOptions>): Tensor {
    const m = this.state('m', i);
    const base = o.weightDecay ? p.affine(1 - o.learningRate * o.weightDecay, 0) : p;
    const next = base.sub(m.ema(grad, o.beta1).sign().affine(o.learningRate, 0));
    this.keepState('m', i, m.ema(grad, o.beta2));
    return next;
  }
}

answerNames(Optimizer.prototype, 'optimizer', {
  zeroGrad: 'nothing: there is nothing to set to zero, since loss.backward() answers new gradients',
  lr: 'optimizer.learningRate',
  paramGroups: 'optimizer.groups, whose rates follow optimizer.learningRate in proportion',
  addParamGroup: 'one of the groups that an optimizer is made with',
  defaults: 'optimizer.groups[0].options',
  state_dict: 'optimizer.stateDict(), or saveCheckpoint(file, { tensors, optimizer })',
  load_state_dict: 'optimizer.loadStateDict(state, steps), or loadCheckpoint(file, { tensors, optimizer })',
});
