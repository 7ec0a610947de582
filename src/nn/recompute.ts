// Gradient checkpointing: what a module computes on the way is not kept for the backward pass but computed again there.
// One more forward pass of the module, for the memory of everything inside it.
import { ArgumentError, GradError } from '../base/errors.js';
import { enableGrad, gradEnabled, type GradRow, noGrad } from '../tensor/autograd.js';
import { refuseInVmap } from '../tensor/levels.js';
import { defaultGenerator } from '../tensor/random.js';
import { scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { GradContext, Grads } from '../ops/op.js';
import type { Module } from './module.js';

/** A module from tensors, and whatever else it is given, to a tensor. */
export type Recomputable<I extends readonly unknown[]> = Module & { forward(...inputs: I): Tensor };

/**
 * module.forward(...inputs), computed again in the backward pass. Dropout repeats its draws; gradients of gradients are
 * refused. What the module uses besides its parameters and inputs gets no gradient.
 */
export function recompute<I extends readonly unknown[]>(module: Recomputable<I>, ...inputs: I): Tensor {
  return rerun(module, (...given) => module.forward(...(given as unknown as I)), inputs);
}
/** Makes every forward() of a module such a call, while it is trained; answers the module. */
export function recomputing<M extends Recomputable<never>>(module: M): M {
  const plain = module.forward as (...inputs: readonly unknown[]) => Tensor;
  const forward = (...inputs: unknown[]): Tensor =>
    module.training
      ? rerun(module, (...given) => plain.apply(module, given as unknown[]), inputs)
      : plain.apply(module, inputs);
  Object.defineProperty(module, 'forward', { value: forward, configurable: true, enumerable: false });
  return module;
}

/** Only named in graphs and errors: nothing runs. */
const ROW = { name: 'recompute', family: 'view', formula: 'module(x)', layout: (l: unknown) => l };

function rerun(module: Module, forward: (...inputs: readonly unknown[]) => Tensor, inputs: readonly unknown[]): Tensor {
  const params = module.parameters().filter((p) => p.requiresGrad);
  const given = inputs.filter((x): x is Tensor => x instanceof Tensor);
  const sources = [...new Set([...given.filter((t) => t.requiresGrad), ...params])];
  if (!gradEnabled() || sources.length === 0) return forward(...inputs);
  refuseInVmap('recompute', 'its results are kept there; leave it out');
  const { seed, offset } = defaultGenerator;
  const out = noGrad(() => forward(...inputs));
  if (!(out instanceof Tensor))
    throw new ArgumentError(`recompute: ${module.constructor.name} answered something other than a tensor`);
  const result = given.includes(out) || params.includes(out) ? out.detach() : out;
  const held = sources.map((t) => t.alias());
  const grad = ({ grad: above }: GradContext): Grads => {
    if (gradEnabled())
      throw new GradError('recompute: gradients of gradients need what was not kept; leave it out for them');
    const later = { seed: defaultGenerator.seed, offset: defaultGenerator.offset };
    Object.assign(defaultGenerator, { seed, offset });
    try {
      return scope(() => {
        // Inputs are leaves here: how they came about is the outer pass's matter.
        const leaves = new Map(
          given.map((t) => [t, t.requiresGrad ? held[sources.indexOf(t)].detach().requireGrad() : t]),
        );
        const again = enableGrad(() => forward(...inputs.map((x) => leaves.get(x as Tensor) ?? x)));
        const grads = again.backward({ grad: above as Tensor, sparing: true });
        return sources.map((t) => grads.get(leaves.get(t) ?? t));
      });
    } finally {
      Object.assign(defaultGenerator, later);
    }
  };
  const row = { ...ROW, grad } as unknown as GradRow;
  result.requiresGrad = true;
  const outputs = [result.alias()];
  const versions = [...held, ...outputs].map((x) => x.storage.version);
  result.node = outputs[0].node = { row, params: {}, inputs: held, outputs, versions };
  return result;
}
