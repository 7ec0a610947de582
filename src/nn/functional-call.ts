// Modules as functions of their tensors: for gradients of each example, ensembles, steps within steps.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { stack } from '../tensor/create.js';
import type { Tensor } from '../tensor/tensor.js';
import { Module } from './module.js';

/** Tensors by their names in a state dict. */
export type NamedTensors = ReadonlyMap<string, Tensor> | Readonly<Record<string, Tensor>>;
interface Callable<A extends readonly unknown[], R> extends Module {
  forward(...inputs: A): R;
}

/**
 * What a module answers with these tensors in place of its own of the same names; gradients flow to them.
 *
 * ```ts
 * const weights = Object.fromEntries(net.namedParameters());
 * const loss = (w: typeof weights, x: Tensor, y: Tensor) => functionalCall(net, w, x).sub(y).sqr().mean();
 * const ofEachExample = vmap(grad(loss), { inDims: [null, 0, 0] })(weights, xs, ys);
 * ```
 */
export function functionalCall<A extends readonly unknown[], R>(
  module: Callable<A, R>,
  tensors: NamedTensors,
  ...inputs: A
): R {
  if (!(module instanceof Module) || typeof module.forward !== 'function')
    throw new ArgumentError('functionalCall: takes a module with a forward(), then tensors by name, then its inputs');
  return module.withTensors(tensors, () => module.forward(...inputs));
}

/**
 * The tensors of modules of one kind, by name, each with a dimension in front that says whose it is: for `vmap` over an
 * ensemble, with `functionalCall` of one of them.
 */
export function stackModuleState(modules: readonly Module[]): Record<string, Tensor> {
  if (!Array.isArray(modules) || modules.length === 0 || modules.some((m) => !(m instanceof Module)))
    throw new ArgumentError('stackModuleState: takes a list of modules, with one at least');
  const states = modules.map((m: Module) => m.stateDict());
  return Object.fromEntries(
    [...states[0]].map(([name, first]) => {
      const all = states.map((s) => s.get(name));
      const wrong = all.findIndex((t) => t === undefined || !sameShape(t.shape, first.shape));
      if (wrong >= 0)
        throw new ShapeError(
          `stackModuleState: ${name} is ${formatShape(first.shape)} in the first module and ` +
            `${all[wrong] ? formatShape((all[wrong] as Tensor).shape) : 'missing'} in module ${wrong}`,
        );
      return [name, stack(all as Tensor[], 0)];
    }),
  );
}
