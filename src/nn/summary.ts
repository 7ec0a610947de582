// A module as text: the tree of its parts with shapes and counts, and the shapes that flow through it.
import { DTYPE, type DType } from '../base/dtype.js';
import { formatShape } from '../base/shape.js';
import { noGrad } from '../tensor/autograd.js';
import { QTensor } from '../tensor/qtensor.js';
import { scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { Module } from './module.js';

const count = (n: number): string => n.toLocaleString('en-US');
const bytesText = (n: number): string => {
  const power = n < 1024 ? 0 : Math.min(3, Math.floor(Math.log2(n) / 10));
  return `${power === 0 ? n : (n / 1024 ** power).toFixed(1)} ${['bytes', 'KiB', 'MiB', 'GiB'][power]}`;
};
const bytesOf = (t: Tensor): number => t.size * DTYPE[t.dtype as DType].bytes;

/** `Linear(3, 4)`, and the shapes of the tensors it holds itself. */
function line(name: string, module: Module): { text: string; shapes: string; own: number } {
  const held = [...module.fields()].flatMap(({ name: field, value }) =>
    (Array.isArray(value) ? value : [value])
      .filter((v): v is Tensor | QTensor => v instanceof Tensor || v instanceof QTensor)
      .map((v) => ({ field, v })),
  );
  const own = module.parameters().reduce((n, p) => n + p.size, 0);
  return {
    text: `${name === '' ? '' : `${name}: `}${module.constructor.name}(${module.describe()})`,
    shapes: held
      .filter(({ v }) => v.shape.length > 0)
      .map(({ field, v }) => `${field} ${formatShape(v.shape)}`)
      .join(', '),
    own,
  };
}

/** What console.log(module) shows. */
export function summary(module: Module): string {
  const rows: { text: string; shapes: string; own: number }[] = [];
  const walk = (m: Module, name: string, depth: number): void => {
    const row = line(name, m);
    rows.push({ ...row, text: '  '.repeat(depth) + row.text });
    for (const [key, child] of m.children()) walk(child, key, depth + 1);
  };
  walk(module, '', 0);
  const width = Math.min(60, Math.max(...rows.map((r) => r.text.length)));
  const middle = Math.min(72, Math.max(...rows.map((r) => r.shapes.length)));
  const params = module.parameters();
  const all = [...new Set(module.stateDict().values())];
  const kinds = [...new Set(all.map((t) => `${t.dtype} on ${t.device.name}`))];
  const trained = params.filter((p) => p.requiresGrad).reduce((n, p) => n + p.size, 0);
  const total = params.reduce((n, p) => n + p.size, 0);
  return [
    ...rows.map((r) => `${r.text.padEnd(width)}  ${r.shapes.padEnd(middle)}  ${r.own ? count(r.own) : ''}`.trimEnd()),
    `${count(total)} parameters${
      trained === total ? '' : `, ${count(trained)} of them trained`
    }, ${bytesText(all.reduce((n, t) => n + bytesOf(t), 0))}${kinds.length ? `, ${kinds.join(', ')}` : ''}`,
  ].join('\n');
}

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
