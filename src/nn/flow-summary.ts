// The shapes that flow through a module, part by part.
import { formatShape } from '../base/shape.js';
import { noGrad } from '../tensor/autograd.js';
import { scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { Module } from './module.js';
import { count } from './summary.js';

/** The summary with the shape of every part's output for a given input: the model runs once, recording nothing. */
export function flowSummary(module: Module & { forward(...inputs: never[]): unknown }, ...inputs: unknown[]): string {
  const rows: [name: string, shape: string][] = [];
  const undo = [...module.namedModules()]
    .filter(([, m]) => 'forward' in m)
    .map(([name, m]) =>
      m.onForward((_, given, output) => {
        const shapes = (v: unknown): string => (v instanceof Tensor ? formatShape(v.shape) : typeof v);
        rows.push([
          `${name || 'the whole'}: ${m.constructor.name}(${m.describe()})`,
          `${given.map(shapes).join(', ')} -> ${shapes(output)}`,
        ]);
      }),
    );
  const training = [...module.namedModules()].map(([, m]) => [m, m.training] as const);
  try {
    module.eval(); // looking at a model teaches it nothing
    scope(() => noGrad(() => void module.forward(...(inputs as never[]))));
  } finally {
    for (const off of undo) off();
    for (const [m, on] of training) m.training = on;
  }
  const width = Math.max(...rows.map(([name]) => name.length));
  return [
    ...rows.map(([name, shape]) => `${name.padEnd(width)}  ${shape}`),
    `${count(module.parameterCount())} parameters`,
  ].join('\n');
}
