// A module as text: the tree of its parts with shapes and counts.
import { DTYPE, type DType } from '../base/dtype.js';
import { formatShape } from '../base/shape.js';
import { QTensor } from '../tensor/qtensor.js';
import { Tensor } from '../tensor/tensor.js';

/** What is asked of a module. */
interface Part {
  describe(): string;
  fields(): Iterable<{ readonly name: string; readonly value: unknown }>;
  children(): Iterable<readonly [name: string, child: Part]>;
  parameters(): readonly Tensor[];
  stateDict(): ReadonlyMap<string, Tensor>;
}

/** A number with commas between thousands. */
export const count = (n: number): string => n.toLocaleString('en-US');
const bytesText = (n: number): string => {
  const power = n < 1024 ? 0 : Math.min(3, Math.floor(Math.log2(n) / 10));
  return `${power === 0 ? n : (n / 1024 ** power).toFixed(1)} ${['bytes', 'KiB', 'MiB', 'GiB'][power]}`;
};
const bytesOf = (t: Tensor): number => t.size * DTYPE[t.dtype as DType].bytes;

/** `Linear(3, 4)`, and the shapes of the tensors it holds itself. */
function line(name: string, module: Part): { text: string; shapes: string; own: number } {
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
export function summary(module: Part): string {
  const rows: { text: string; shapes: string; own: number }[] = [];
  const walk = (m: Part, name: string, depth: number): void => {
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
