// Gradients made smaller: by their joint norm, or element by element; nothing is read back.
import { ArgumentError } from '../base/errors.js';
import { noGrad } from '../tensor/autograd.js';
import type { Tensor } from '../tensor/tensor.js';
import { squaredNorm } from '../tensor/training.js';

/** The norm of all gradients together, as a 0-d f32 tensor. */
export const gradNorm = (grads: readonly Tensor[]): Tensor =>
  noGrad(() =>
    grads
      .map((g) => squaredNorm(g))
      .reduce((a, b) => a.add(b))
      .sqrt(),
  );

/** Gradients as a list; what backward() answers holds them, and parameters are none. */
function asList(op: string, grads: readonly Tensor[]): readonly Tensor[] {
  if (!Array.isArray(grads))
    throw new ArgumentError(`${op}: takes a list of gradients, as [...loss.backward().values()]`);
  if (grads.some((g: Tensor) => g.requiresGrad && !g.node))
    throw new ArgumentError(
      `${op}: these are parameters, not gradients, which backward() answers and no tensor keeps; ` +
        'backwardStep(loss, { clipNorm }) of an optimizer does it all',
    );
  return grads;
}

/** What gradients are multiplied by so that their joint norm is at most `max`, a 0-d f32 tensor, and that norm. */
export function clipFactor(grads: readonly Tensor[], max: number): { factor: Tensor; norm: Tensor } {
  if (!(max > 0)) throw new ArgumentError(`clipGradNorm: the largest norm is ${max}; it takes a number above 0`);
  if (grads.length === 0) throw new ArgumentError('clipGradNorm: there are no gradients');
  return noGrad(() => {
    const norm = gradNorm(grads);
    return { norm, factor: norm.affine(1, 1e-6).recip().affine(max, 0).clamp(0, 1) };
  });
}
/** Gradients scaled down so that their joint norm is at most `max`; nothing is read back. */
export function clipGradNorm(
  grads: readonly Tensor[],
  max: number,
  ...more: never[]
): { grads: Tensor[]; norm: Tensor } {
  if (more.length > 0)
    throw new ArgumentError(
      'clipGradNorm: takes gradients and the largest norm; the norm is the root of squares alone',
    );
  const { norm, factor } = clipFactor(asList('clipGradNorm', grads), max);
  return noGrad(() => ({ norm, grads: grads.map((g) => g.mul(factor.cast(g.dtype))) }));
}

/** Gradients whose elements lie between -max and max. */
export function clipGradValue(grads: readonly Tensor[], max: number): Tensor[] {
  if (!(max > 0)) throw new ArgumentError(`clipGradValue: the largest value is ${max}; it takes a number above 0`);
  return noGrad(() => asList('clipGradValue', grads).map((g) => g.clamp(-max, max)));
}
