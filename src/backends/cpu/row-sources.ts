// Elementwise rows as C++ for the CPU engine: a few rows in each source file, and the list of their names.
import { DTYPE } from '../../base/dtype.js';
import { isMasked, OPERANDS, rowFunction, SCALARS } from '../../kernels/expressions.js';
import type { ElementwiseRow } from '../../ops/op.js';

const HEADER = '// Generated from the op table by src/backends/cpu/row-sources.ts; edits are lost.\n';
/** Compiling a row takes half a second, and what every file includes somewhat less. */
const PARTS = 16;

type AnyRow = ElementwiseRow<any>;

/** By the name alone, so that a new row leaves the others where they are. */
function partOf(name: string): number {
  let h = 0;
  for (let i = 0; i < name.length; i++) h = (Math.imul(h, 31) + name.charCodeAt(i)) >>> 0;
  return h % PARTS;
}

/** Whether a row calls functions, and computes alike whichever float is stored. */
const callsAlike = ({ kernel }: AnyRow): boolean => /\w+g\(/.test(kernel) && !/\bS\b/.test(kernel);

/** What the loops of native/vector/elementwise.h must know of a row, around the row's function. */
function rowStruct(row: AnyRow): string {
  const masked = isMasked(row);
  const scalars = SCALARS.slice(0, row.scalars.length);
  const operands = OPERANDS.slice(0, row.arity);
  const taken = [
    ...operands.map((name, i) => `${masked && i === 0 ? 'M' : 'T'} ${name}`),
    ...(masked ? [] : ['T a', 'T b']),
  ];
  return [
    `struct Row_${row.name} {`,
    `  static constexpr int ARITY = ${row.arity}, SCALARS = ${scalars.length};`,
    `  static constexpr bool MASKED = ${masked}, TRUTH = ${row.result === 'bool'};`,
    `  static constexpr bool CALLS = ${callsAlike(row)};`,
    `  template <class S, class T${masked ? ', class M' : ''}> WICK_FN auto apply(${taken.join(', ')}) {`,
    `    ${masked ? '' : '(void)a; (void)b; '}return op_${row.name}<S, T>(${[...operands, ...scalars].join(', ')});`,
    '  }',
    '};',
  ].join('\n');
}
/** Other ways of the row for vectors of f32. */
const otherWays = ({ name, byExp, far }: AnyRow): string[] => [
  ...(byExp
    ? [
        `template <> struct ByExp<Row_${name}> {`,
        `  static constexpr bool ON = true, FINE = ${byExp.fine};`,
        `  WICK_FN F power(F x) { return ${byExp.power}; }`,
        `  WICK_FN F result(F x, F e) { (void)x; return ${byExp.result}; }`,
        '};',
      ]
    : []),
  ...(far
    ? [
        `template <> struct Far<Row_${name}> {`,
        '  static constexpr bool ON = true;',
        `  template <class V> static inline __attribute__((always_inline)) V apply(V x) { ${far} }`,
        '};',
      ]
    : []),
];
const dtypeBits = (row: AnyRow): number => row.dtypes.reduce((m, d) => m | (1 << DTYPE[d].id), 0);

function partSource(part: string, rows: readonly AnyRow[]): string {
  const list = rows.map((r) => `WICK_ROW(${r.name}, ${dtypeBits(r)})`).join(' ');
  return [
    `${HEADER}#include "vector/elementwise.h"\n\nnamespace {`,
    // The engine's vectors have mathematics of their own: no forms for small floats.
    ...rows.flatMap((r) => [rowFunction(r, { small: false, general: true }), rowStruct(r), ...otherWays(r)]),
    `}  // namespace\n\nWICK_ELEMENTWISE(${part}, ${list})\n`,
  ].join('\n');
}

/**
 * All generated files by name: elementwise-N.cpp, and names.h with the rows' names in order, the parts there are, and
 * the files that list other ops.
 */
export function rowSources(rows: readonly AnyRow[], opFiles: readonly string[]): Record<string, string> {
  const parts = new Map<string, AnyRow[]>();
  for (const row of rows) {
    const part = String(partOf(row.name));
    parts.set(part, [...(parts.get(part) ?? []), row]);
  }
  const names = [...parts.keys()].sort((a, b) => Number(a) - Number(b));
  return {
    'names.h':
      `${HEADER}#define WICK_ROWS(X) ${rows.map((r) => `X(${r.name})`).join(' ')}\n` +
      `#define WICK_ROW_PARTS(X, SUFFIX) ${names.map((p) => `X(${p}, SUFFIX)`).join(' ')}\n` +
      `#define WICK_OP_FILES(X) ${opFiles.map((f) => `X(${f})`).join(' ')}\n`,
    ...Object.fromEntries(names.map((p) => [`elementwise-${p}.cpp`, partSource(p, parts.get(p)!)])),
  };
}
