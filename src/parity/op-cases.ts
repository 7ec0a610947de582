// Cases of ops.json (scripts/golden-ops.py): an op of the table by our name, its arguments as they are, inputs viewed
// as said.
import { ArgumentError } from '../base/errors.js';
import type { Tensor } from '../tensor/tensor.js';
import type { GoldenCase } from './golden.js';
import type { TorchCall } from './torch-calls.js';

/**
 * An argument of JSON as a call takes it: "$name" is an input, { "$number" } and { "$undefined" } what JSON cannot
 * hold.
 */
function argument(value: unknown, inputs: Readonly<Record<string, Tensor>>): unknown {
  if (typeof value === 'string' && value.startsWith('$')) {
    const found = inputs[value.slice(1)];
    if (!found) throw new ArgumentError(`golden: no input ${JSON.stringify(value.slice(1))}`);
    return found;
  }
  if (Array.isArray(value)) return value.map((v) => argument(v, inputs));
  if (typeof value !== 'object' || value === null) return value;
  if ('$undefined' in value) return undefined;
  if ('$number' in value) return Number(value.$number);
  return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, argument(v, inputs)]));
}

function viewed(t: Tensor, layout: NonNullable<GoldenCase['layouts']>[string] | undefined): Tensor {
  if (!layout) return t;
  return layout.permute ? t.permute(layout.permute) : t.slice(layout.dim ?? -1, 0, undefined, layout.step);
}

/** The call of such a case: the first input's method with the arguments given. */
export const opCall =
  (c: GoldenCase): TorchCall =>
  (stored) => {
    const inputs = Object.fromEntries(
      Object.entries(stored).map(([name, t]) => [name, viewed(t, c.layouts?.[name])] as const),
    );
    const [first] = Object.values(inputs);
    const method = (first as unknown as Record<string, unknown>)[c.op];
    if (typeof method !== 'function') throw new ArgumentError(`golden: tensors have no method ${c.op}`);
    return (method as (...args: unknown[]) => Tensor | readonly Tensor[]).apply(
      first,
      (c.args ?? []).map((a) => argument(a, inputs)),
    );
  };
