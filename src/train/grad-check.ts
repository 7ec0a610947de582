// Gradient checking: a function's gradients against differences of its values.
import { ArgumentError, GradError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import { enableGrad, noGrad } from '../tensor/autograd.js';
import { randn } from '../tensor/create.js';
import { scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';

/** How closely gradients are compared. */
export interface GradCheckOptions {
  /** The step of the differences; default 1e-6 (with inputs of f64). */
  readonly eps?: number;
  /** The largest error beside a gradient's own size; default 1e-5. */
  readonly tolerance?: number;
}
/** What was compared. */
export interface GradCheckReport {
  /** Elements whose gradient was compared. */
  readonly compared: number;
  /** The largest error beside max(1, |gradient|). */
  readonly worst: number;
}
/**
 * Compares the gradients of a function by its inputs with differences of its values, element by element, and throws
 * where one is off. Inputs are f64, for others hold too few digits; the function may answer any shape.
 */
export function gradCheck(
  f: (...inputs: Tensor[]) => Tensor,
  inputs: readonly Tensor[],
  options: GradCheckOptions = {},
): GradCheckReport {
  requireOptions('gradCheck', options, ['eps', 'tolerance']);
  const { eps = 1e-6, tolerance = 1e-5 } = options;
  for (const t of inputs)
    if (t.dtype !== 'f64')
      throw new ArgumentError(`gradCheck: an input is ${t.dtype}; differences need the digits of f64`);
  return scope(() => {
    const leaves = inputs.map((t) => t.detach().copy().requireGrad());
    // A fixed weight for every element of the answer makes one number of it.
    let weights: Tensor | undefined;
    const value = (...given: Tensor[]): Tensor => {
      const y = f(...given);
      weights ??= randn(y.shape, { dtype: 'f64', device: y.device, seed: 1 });
      return y.cast('f64').mul(weights).sum();
    };
    const grads = enableGrad(() => value(...leaves)).backward();
    let [compared, worst] = [0, 0];
    leaves.forEach((leaf, which) => {
      const found = grads.get(leaf)?.dataSync() as Float64Array | undefined;
      const values = leaf.dataSync() as Float64Array;
      const at = (i: number, by: number): number =>
        scope(() =>
          noGrad(() => {
            const moved = values.slice();
            moved[i] += by;
            const t = Tensor.fromBytes(new Uint8Array(moved.buffer), leaf.shape, 'f64', leaf.device);
            return value(...leaves.map((l, k) => (k === which ? t : l.detach()))).item();
          }),
        );
      for (let i = 0; i < values.length; i++) {
        const slope = (at(i, eps) - at(i, -eps)) / (2 * eps);
        const error = Math.abs(slope - (found?.[i] ?? 0)) / Math.max(1, Math.abs(slope));
        if (!(error <= tolerance))
          throw new GradError(
            `gradCheck: the gradient of input ${which} ${formatShape(leaf.shape)} at element ${i} is ` +
              `${found?.[i] ?? 'missing'}, differences give ${slope}`,
          );
        compared++;
        worst = Math.max(worst, error);
      }
    });
    return { compared, worst };
  });
}
