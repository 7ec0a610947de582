// Functions of functions: all derivatives of a function of tensors, and a function of one example over a whole batch.
import { ArgumentError, GradError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim } from '../base/shape.js';
import { enableGrad } from './autograd.js';
import { gradOf } from './backward.js';
import { stack } from './create.js';
import { Tensor } from './tensor.js';

/** What jacobian and hessian take. */
export interface DerivativeOptions {
  /** Whether the result can be differentiated again; default false. */
  readonly createGraph?: boolean;
}

/** The gradient of every element of y by x, one after another: (elements of y, ...shape of x). */
function rowsOf(y: Tensor, x: Tensor, createGraph: boolean): Tensor {
  if (y.size === 0) return x.newZeros([0, ...x.shape]);
  if (!y.requiresGrad) return x.newZeros([y.size, ...x.shape]);
  const flat = y.reshape([y.size]);
  const rows = Array.from({ length: y.size }, (_, i) => {
    try {
      return gradOf(flat.get(i), [x], { retainGraph: true, createGraph })[0];
    } catch (e) {
      // A result that does not depend on x has the gradient 0, as in PyTorch.
      if (e instanceof GradError && e.message.includes('does not depend')) return x.zerosLike();
      throw e;
    }
  });
  return stack(rows);
}

/**
 * All first derivatives of f at x, of shape (...shape of f(x), ...shape of x): a backward pass for each element of
 * f(x).
 */
export function jacobian(f: (x: Tensor) => Tensor, x: Tensor, options: DerivativeOptions = {}): Tensor {
  return enableGrad(() => {
    const createGraph = options.createGraph ?? false;
    const leaf = createGraph && x.requiresGrad ? x : x.detach().requireGrad();
    const y = f(leaf);
    if (!(y instanceof Tensor)) throw new ArgumentError('jacobian: the function must answer a tensor');
    return rowsOf(y, leaf, createGraph).reshape([...y.shape, ...x.shape]);
  });
}

/** All second derivatives of a function that answers one number, of shape (...shape of x, ...shape of x). */
export function hessian(f: (x: Tensor) => Tensor, x: Tensor, options: DerivativeOptions = {}): Tensor {
  const slope = (at: Tensor): Tensor => {
    const y = f(at);
    if (!(y instanceof Tensor) || y.size !== 1)
      throw new ShapeError(
        `hessian: the function must answer one number, not ${y instanceof Tensor ? formatShape(y.shape) : typeof y}`,
      );
    return rowsOf(y, at, true).reshape(at.shape);
  };
  return jacobian(slope, x, options);
}

/** What vmap takes. */
export interface VmapOptions {
  /** The dimension of each argument that counts examples; null for one that all examples share. Default 0 for all. */
  readonly inDims?: number | readonly (number | null)[];
  /** Where results have that dimension; default 0. */
  readonly outDim?: number;
}

/**
 * A function of one example as a function of a batch: called once for each example, results joined; gradients flow.
 * Ops take leading batch dimensions themselves, which is quicker where a function is written for it.
 *
 * ```ts
 * const distances = vmap((a, b) => a.sub(b).norm());
 * distances(randn([8, 3]), randn([8, 3])).shape; // [8]
 * ```
 */
export function vmap(
  f: (...examples: Tensor[]) => Tensor,
  { inDims = 0, outDim = 0 }: VmapOptions = {},
): (...inputs: Tensor[]) => Tensor {
  return (...inputs) => {
    const given = typeof inDims === 'number' ? inputs.map(() => inDims) : inDims;
    if (given.length !== inputs.length)
      throw new ArgumentError(`vmap: inDims has ${given.length} entries for ${inputs.length} arguments`);
    const dims = inputs.map((t, i) => {
      const dim = given[i];
      return dim === null ? undefined : normalizeDim('vmap', dim, t.rank);
    });
    const sizes = inputs.flatMap((t, i) => (dims[i] === undefined ? [] : [t.shape[dims[i]]]));
    if (sizes.length === 0) throw new ArgumentError('vmap: inDims names no argument that is taken apart');
    if (sizes.some((n) => n !== sizes[0] || n === 0))
      throw new ShapeError(
        `vmap: arguments ${inputs.map((t) => formatShape(t.shape)).join(', ')} have ${formatShape(sizes)} examples; ` +
          'all must have the same number, one at least',
      );
    const example = (t: Tensor, dim: number | undefined, k: number): Tensor =>
      dim === undefined ? t : t.narrow(dim, k, 1).squeeze(dim);
    const results = Array.from({ length: sizes[0] }, (_, k) => {
      const y = f(...inputs.map((t, i) => example(t, dims[i], k)));
      if (!(y instanceof Tensor)) throw new ArgumentError('vmap: the function must answer a tensor');
      return y;
    });
    return stack(results, outDim);
  };
}
