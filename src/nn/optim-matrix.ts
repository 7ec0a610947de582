// Optimizers that look at more than one element at a time: Muon (whole matrices) and L-BFGS (all parameters at once).
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, said } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import { enableGrad, noGrad } from '../tensor/autograd.js';
import { keep, scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { strongWolfe, type Trial } from './line-search.js';
import { checkOptions, given } from './optim-options.js';
import { Optimizer, type OptimizerOptions, type Trained } from './optim.js';

/** Options of Muon. */
export interface MuonOptions extends OptimizerOptions {
  /** Shrinks the parameter itself; default 0.1. */
  readonly weightDecay?: number;
  /** How long gradients are averaged; default 0.95. */
  readonly momentum?: number;
  /** Looks ahead along the momentum; default true. */
  readonly nesterov?: boolean;
  /** Newton-Schulz iterations; default 5. */
  readonly iterations?: number;
  /** Their coefficients. */
  readonly coefficients?: readonly [number, number, number];
  /** The least norm of an update; default 1e-7. */
  readonly eps?: number;
  /** How a matrix's shape changes the rate: 'original' by the root of rows over columns, 'rms' as large as AdamW's. */
  readonly adjust?: 'original' | 'rms';
}
/** Momentum made orthogonal: for the matrices inside a net; vectors, tables and heads go to AdamW. */
export class Muon extends Optimizer<MuonOptions> {
  protected override readonly kept = ['momentum'];
  override get elementwise(): boolean {
    return false;
  }
  constructor(params: Trained<MuonOptions>, options: MuonOptions = {}) {
    super(params, options, {
      learningRate: 1e-3,
      weightDecay: 0.1,
      momentum: 0.95,
      nesterov: true,
      iterations: 5,
      coefficients: [3.4445, -4.775, 2.0315],
      eps: 1e-7,
      adjust: 'original',
    });
    for (const p of this.params)
      if (p.rank !== 2)
        throw new ShapeError(`Muon: trains matrices only, not ${formatShape(p.shape)}; give it to AdamW`);
  }
  protected update(p: Tensor, grad: Tensor, i: number, o: Required<MuonOptions>): Tensor {
    const m = this.keepState('momentum', i, this.state('momentum', i).ema(grad, o.momentum));
    const [rows, columns] = p.shape;
    const factor =
      o.adjust === 'rms' ? 0.2 * Math.sqrt(Math.max(rows, columns)) : Math.sqrt(Math.max(1, rows / columns));
    const straight = orthogonal(o.nesterov ? m.ema(grad, o.momentum) : m, o);
    return p.affine(1 - o.learningRate * o.weightDecay, 0).sub(straight.affine(o.learningRate * factor, 0));
  }
}
/** Near the closest matrix with orthogonal rows or columns, by a polynomial in it that is applied a few times. */
function orthogonal(g: Tensor, { iterations, coefficients: [a, b, c], eps }: Required<MuonOptions>): Tensor {
  const tall = g.shape[0] > g.shape[1];
  let x = tall ? g.t() : g;
  x = x.div(x.norm().clamp(eps, Infinity));
  for (let k = 0; k < iterations; k++) {
    const gram = x.matmul(x.t());
    const bent = gram.affine(b, 0).add(gram.matmul(gram).affine(c, 0));
    x = x.affine(a, 0).add(bent.matmul(x));
  }
  return tall ? x.t() : x;
}

const forget = (pair: { readonly s: Tensor; readonly y: Tensor } | undefined): void => {
  pair?.s.dispose();
  pair?.y.dispose();
};

/** Options of L-BFGS. */
export interface LbfgsOptions {
  /** Default 1. */
  readonly learningRate?: number;
  /** Steps along new directions in one call of step(); default 20. */
  readonly maxIterations?: number;
  /** Evaluations of the loss in one call; default 1.25 times the iterations. */
  readonly maxEvaluations?: number;
  /** Ends where no element of the gradient is larger; default 1e-7. */
  readonly toleranceGrad?: number;
  /** Ends where parameters or loss change by less; default 1e-9. */
  readonly toleranceChange?: number;
  /** How many steps are remembered; default 100. */
  readonly history?: number;
  /** 'strong_wolfe' looks for a good step along each direction; 'none' takes the learning rate. Default 'none'. */
  readonly lineSearch?: 'none' | 'strong_wolfe';
}
/** How often a search along one direction asks for the loss at most. */
const SEARCH_TRIALS = 25;
const LBFGS_OPTIONS: readonly (keyof LbfgsOptions)[] = [
  'learningRate',
  'maxIterations',
  'maxEvaluations',
  'toleranceGrad',
  'toleranceChange',
  'history',
  'lineSearch',
];
/**
 * Limited-memory BFGS, with steps of one size or with a search along each direction: `step` is given a function that computes the loss, because it is asked
 * for several times. For small problems without noise; it reads numbers back.
 */
export class LBFGS {
  /** The tensors that are trained. */
  readonly params: readonly Tensor[];
  /** The options in force, defaults filled in. */
  readonly options: Required<LbfgsOptions>;
  /** The size of a step. */
  learningRate: number;
  #direction: Tensor | undefined;
  #before: Tensor | undefined;
  #size = 1;
  #scale = 1;
  #iterations = 0;
  readonly #history: { readonly s: Tensor; readonly y: Tensor; readonly ro: number }[] = [];
  constructor(params: readonly Tensor[], options: LbfgsOptions = {}) {
    if (params.length === 0) throw new ArgumentError('LBFGS: there are no parameters to train');
    const { maxIterations = 20 } = options;
    this.params = params;
    requireOptions('LBFGS', options, LBFGS_OPTIONS);
    this.options = {
      learningRate: 1,
      maxIterations,
      maxEvaluations: Math.floor((maxIterations * 5) / 4),
      toleranceGrad: 1e-7,
      toleranceChange: 1e-9,
      history: 100,
      lineSearch: 'none',
      ...given(options),
    };
    checkOptions('LBFGS', this.options);
    const { lineSearch } = this.options;
    if (lineSearch !== 'none' && lineSearch !== 'strong_wolfe')
      throw new ArgumentError(`LBFGS: lineSearch is 'none' or 'strong_wolfe', not ${said(lineSearch)}`);
    this.learningRate = this.options.learningRate;
  }
  /** Goes on until a tolerance or a limit is reached; answers the loss at the beginning. */
  step(lossOf: () => Tensor): number {
    const o = this.options;
    const evaluate = (): { loss: number; grad: Tensor } =>
      scope(() => {
        const loss = enableGrad(lossOf);
        const grads = loss.backward();
        const parts = this.params.map((p) => (grads.get(p) ?? p.zerosLike()).reshape([-1]));
        return { loss: loss.item(), grad: parts[0].cat(parts.slice(1), 0) };
      });
    const largest = (t: Tensor): number => t.abs().max().item();
    const descend = (): number => {
      let { loss, grad } = evaluate();
      const first = loss;
      let evaluations = 1;
      for (let k = 1; k <= o.maxIterations && largest(grad) > o.toleranceGrad; k++) {
        this.#direction = this.#nextDirection(grad);
        const d = this.#direction;
        this.#keepBefore(grad);
        this.#size =
          this.#iterations === 1 ? Math.min(1, 1 / grad.abs().sum().item()) * this.learningRate : this.learningRate;
        const slope = grad.dot(d).item();
        if (slope > -o.toleranceChange) break;
        const last = loss;
        if (o.lineSearch === 'strong_wolfe') {
          const longest = largest(d);
          const found = this.#search(d, { t: 0, loss, slope, known: grad }, o.toleranceChange / longest, () => {
            evaluations++;
            return evaluate();
          });
          this.#size = found.t;
          ({ loss, known: grad } = found);
          if (evaluations >= o.maxEvaluations || k === o.maxIterations) break;
        } else {
          this.#move(d, this.#size);
          if (k === o.maxIterations) break;
          ({ loss, grad } = evaluate());
          if (++evaluations >= o.maxEvaluations) break;
        }
        if (largest(d) * this.#size <= o.toleranceChange || Math.abs(loss - last) < o.toleranceChange) break;
      }
      return first;
    };
    return noGrad(() => scope(descend));
  }
  /** Gives the memory of the steps that it remembers back: a step after it begins anew. */
  dispose(): void {
    for (const pair of this.#history.splice(0)) forget(pair);
    this.#direction?.dispose();
    this.#before?.dispose();
    [this.#direction, this.#before, this.#iterations] = [undefined, undefined, 0];
    [this.#size, this.#scale] = [1, 1];
  }
  #keepBefore(grad: Tensor): void {
    this.#before?.dispose();
    this.#before = keep(grad.copy());
  }
  #nextDirection(grad: Tensor): Tensor {
    this.#iterations++;
    const [d, before] = [this.#direction, this.#before];
    if (!d || !before) return keep(grad.neg());
    const y = keep(grad.sub(before));
    const s = keep(d.affine(this.#size, 0));
    const ys = y.dot(s).item();
    if (ys > 1e-10) {
      if (this.#history.length === this.options.history) forget(this.#history.shift());
      this.#history.push({ s, y, ro: 1 / ys });
      this.#scale = ys / y.dot(y).item();
    } else forget({ s, y });
    let q = grad.neg();
    const alphas: number[] = [];
    for (let i = this.#history.length - 1; i >= 0; i--) {
      const h = this.#history[i];
      alphas[i] = h.s.dot(q).item() * h.ro;
      q = q.sub(h.y.affine(alphas[i], 0));
    }
    let r = q.affine(this.#scale, 0);
    this.#history.forEach((h, i) => {
      const beta = h.y.dot(r).item() * h.ro;
      r = r.add(h.s.affine(alphas[i] - beta, 0));
    });
    d.dispose();
    return keep(r);
  }
  /** Goes to where the loss has fallen and the slope become flat; what is known there. */
  #search(
    d: Tensor,
    start: Trial<Tensor>,
    width: number,
    evaluate: () => { readonly loss: number; readonly grad: Tensor },
  ): Trial<Tensor> {
    const before = this.params.map((p) => p.copy());
    const goTo = (t: number): void => {
      for (const [i, p] of this.params.entries()) p.assign(before[i]);
      this.#move(d, t);
    };
    const trial = (t: number): Trial<Tensor> => {
      goTo(t);
      const { loss, grad } = evaluate();
      return { t, loss, slope: grad.dot(d).item(), known: grad };
    };
    const found = strongWolfe(start, this.#size, trial, { trials: SEARCH_TRIALS, width });
    goTo(found.t);
    return found;
  }
  #move(direction: Tensor, size: number): void {
    let at = 0;
    for (const p of this.params) {
      p.assign(p.add(direction.narrow(0, at, p.size).reshape(p.shape).affine(size, 0)));
      at += p.size;
    }
  }
}
