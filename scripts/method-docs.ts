// Documentation comments for Tensor's methods, written into the compiled declarations after tsc: an editor then shows
// what a row of the op table says. Rows that serve other ops are left out there, so that no editor offers them.
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Layout } from '../src/base/layout.js';
import { formatShape, type Shape } from '../src/base/shape.js';
import type { InputSpec, Row, Sample, Sig } from '../src/ops/op.js';
import { opList } from '../src/ops/table.js';

export const DECLARATIONS = join(dirname(fileURLToPath(import.meta.url)), '..', 'src', 'ops', 'table.d.ts');

export const isPublic = (row: Row): boolean => !row.internal && row.serves === undefined;

const shapesOf = (list: readonly { readonly shape: Shape }[]): string =>
  list.map((s) => formatShape(s.shape)).join(' and ');
const OPERANDS = ['x', 'y', 'z', 'u', 'v', 'w'];

/** The names that a function's source gives its parameters, those with destructuring left out. */
function parameterNames(f: (...args: never[]) => unknown): string[] {
  const list = /^\(?([^)]*?)\)?\s*=>/.exec(f.toString())?.[1] ?? '';
  return list.split(',').flatMap((p) => /^\s*(\w+)\s*(?:=.*)?$/.exec(p)?.[1] ?? []);
}
/** A value as source text; `{ input: n }` stands for an operand of the sample. */
function literal(v: unknown): string {
  if (typeof v === 'string') return `'${v}'`;
  if (Array.isArray(v)) return `[${v.map(literal).join(', ')}]`;
  if (typeof v !== 'object' || v === null) return String(v);
  if ('input' in v) return OPERANDS[v.input as number];
  const fields = Object.entries(v).map(([name, value]) => `${name}: ${literal(value)}`);
  return fields.length > 0 ? `{ ${fields.join(', ')} }` : '{}';
}

/** A call as the row's first sample would be made, with parameters by the names of its `args`. */
export function call(row: Row): string {
  if (row.example) return row.example;
  if (row.family === 'composite') {
    const [sample] = row.samples();
    return `x.${row.name}(${sample.args.map(literal).join(', ')})`;
  }
  if (row.family === 'elementwise' && row.scalars.length === 0)
    return `x.${row.name}(${OPERANDS.slice(1, row.arity).join(', ')})`;
  const params = row.samples?.()[0]?.params ?? {};
  const [, ...names] = parameterNames(row.args as (...args: never[]) => unknown);
  // What is false is the default; what is true stands for an operand that is there.
  const given = names.filter((n) => n !== 'options' && params[n] !== false);
  const valueOf = (n: string): string => (n in params && params[n] !== true ? literal(params[n]) : n);
  return `x.${row.name}(${given.map(valueOf).join(', ')})`;
}

/** Shapes of the first sample and of what it gives, as far as the row tells without running. */
function shapes(row: Row): string | undefined {
  if (row.family === 'elementwise') return row.arity > 1 ? 'operands of any shapes that broadcast' : 'any';
  const sample = row.samples()[0] as Sample | undefined;
  if (!sample || sample.inputs.length === 0) return undefined;
  const inputs: Sig[] = sample.inputs.map((s: InputSpec) => ({ shape: s.shape, dtype: s.dtype ?? row.dtypes[0] }));
  const from = shapesOf(inputs);
  if (row.family === 'composite') return `${from}, for instance`;
  const params = sample.params as never;
  const results =
    row.family === 'view' ? [row.layout(Layout.contiguous(inputs[0].shape), params)] : row.infer(inputs, params);
  return `${from} give ${shapesOf(results)}`;
}

/** What an editor shows for a row's method. */
export function methodDoc(row: Row): string[] {
  const where = shapes(row);
  const sentence = row.formula.replace(/\*\//g, '* /');
  return [
    sentence,
    '',
    ...(where ? [`Shapes: ${where}.`] : []),
    `Dtypes: ${row.dtypes.join(', ')}${row.without ? `; ${row.without}` : ''}.`,
    `Gradient: ${row.noGrad ? `none, ${row.noGrad}` : 'yes'}.`,
    '@example',
    `const out = ${call(row)};`,
  ];
}

const comment = (lines: readonly string[]): string =>
  ['  /**', ...lines.map((l) => (l ? `   * ${l}` : '   *')), '   */'].join('\n');
const PLAIN = /(?:\/\*\*[^*]*\*\/\s*)?export type TableMethods = MethodsOf<typeof OPS>;/;
/** What stands there once methods are documented: a build that finds the table unchanged does not write it anew. */
const DOCUMENTED = /type Methods = MethodsOf<typeof OPS>;\n[^\n]*\nexport interface TableMethods \{[\s\S]*?\n\}/;
/** The compiled declarations of the table with a documented interface in the place of the computed type. */
export function withDocs(declarations: string): string {
  const place = [PLAIN, DOCUMENTED].find((p) => p.test(declarations));
  if (!place) throw new Error('table.d.ts does not declare TableMethods as expected');
  const methods = opList.filter(isPublic).map((r) => `${comment(methodDoc(r))}\n  ${r.name}: Methods['${r.name}'];`);
  return declarations.replace(place, () =>
    ['type Methods = MethodsOf<typeof OPS>;', '/** The methods that rows of the op table give Tensor. */']
      .concat('export interface TableMethods {', ...methods, '}')
      .join('\n'),
  );
}

if (import.meta.url === pathToFileURL(process.argv[1]).href)
  writeFileSync(DECLARATIONS, withDocs(readFileSync(DECLARATIONS, 'utf8')));
