// Functions of tensors with a gradient of one's own: what PyTorch's autograd.Function is for.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import type { GradContext, Grads } from '../ops/op.js';
import { enableGrad, gradEnabled, type GradRow, noGrad } from './autograd.js';
import { refuseInVmap } from './levels.js';
import { Tensor } from './tensor.js';

/** A value, and how its gradient becomes those of what it was made of. */
export interface ValueAndGrad {
  /** The result. */
  readonly value: Tensor;
  /** From the result's gradient to one for each argument: undefined where none flows, the only one as it is. */
  readonly grad: (gradient: Tensor) => Tensor | Grads;
}

/** Only named in graphs and errors: nothing runs. */
const ROW = { name: 'customGrad', family: 'view', formula: 'f(x)', layout: (l: unknown) => l };

/**
 * A function whose gradient is what it says, not what its steps would give: straight-through estimates, gradients that
 * are clipped, scaled or turned around, formulas that stay exact where their steps lose digits. The steps are not
 * recorded. For gradients of gradients it runs again, recorded, so that `grad` may use what it computed on the way.
 *
 * ```ts
 * const roundThrough = customGrad((x) => ({ value: x.round(), grad: (g) => g }));
 * const log1pExp = customGrad((x) => {
 *   const e = x.exp();
 *   return { value: e.log1p(), grad: (g) => g.mul(e.div(e.add(1))) };
 * });
 * ```
 */
export function customGrad<I extends readonly Tensor[]>(f: (...inputs: I) => ValueAndGrad): (...inputs: I) => Tensor {
  if (typeof f !== 'function')
    throw new ArgumentError('customGrad: takes a function that answers { value, grad }, not ' + typeof f);
  return (...inputs) => {
    const odd = inputs.findIndex((t) => !(t instanceof Tensor));
    if (odd >= 0)
      throw new ArgumentError(`customGrad: argument ${odd} is no tensor; give the function what else it needs outside`);
    refuseInVmap('customGrad', 'map a function of plain ops, or call this one on the whole batch');
    const { value, grad } = answered(noGrad(() => f(...inputs)));
    const out = inputs.includes(value) ? value.detach() : value;
    if (!gradEnabled() || !inputs.some((t) => t.requiresGrad)) return out;
    const rule = ({ grad: above }: GradContext): Grads => {
      const again = gradEnabled() ? enableGrad(() => answered(f(...inputs))).grad : grad;
      return fitting(again(above), inputs);
    };
    const [held, outputs] = [inputs.map((t) => t.alias()), [out.alias()]];
    const versions = [...held, ...outputs].map((t) => t.storage.version);
    out.requiresGrad = true;
    const row = { ...ROW, grad: rule } as unknown as GradRow;
    out.node = (outputs[0] as Tensor).node = { row, params: {}, inputs: held, outputs, versions };
    return out;
  };
}

function answered(given: ValueAndGrad): ValueAndGrad {
  if (!(given?.value instanceof Tensor) || typeof given.grad !== 'function')
    throw new ArgumentError(
      'customGrad: the function answers { value, grad }: a tensor, and a function of its gradient',
    );
  return given;
}
function fitting(given: Tensor | Grads, inputs: readonly Tensor[]): Grads {
  const list = given instanceof Tensor ? [given] : given;
  if (!Array.isArray(list) || list.length !== inputs.length)
    throw new ArgumentError(
      `customGrad: grad answers a gradient for each of ${inputs.length} arguments, undefined where none flows`,
    );
  inputs.forEach((x, i) => {
    const g = list[i] as Tensor | undefined;
    if (g && (!sameShape(g.shape, x.shape) || g.dtype !== x.dtype))
      throw new ShapeError(
        `customGrad: the gradient of argument ${i} is ${g.dtype} ${formatShape(g.shape)}, not ${x.dtype} ` +
          formatShape(x.shape),
      );
  });
  return list;
}
