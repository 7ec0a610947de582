// Writes C++ from elementwise rows: a function template a row, compiled by GPU compilers, the host simulation and the CPU engine.
import { DTYPE } from '../base/dtype.js';
import type { ElementwiseRow, Row } from '../ops/op.js';

const OPERANDS = ['x', 'y', 'z'] as const;
const SCALARS = ['a', 'b'] as const;
const HEADER = '// Generated from the op table by src/kernels/expressions.ts; edits are lost.\n';

/** The first operand of a masked row (where) is a truth value, not a number. */
export const isMasked = (row: ElementwiseRow<any>): boolean => (row as { masked?: boolean }).masked === true;

export const elementwiseRows = (table: Iterable<Row>): ElementwiseRow<any>[] =>
  [...table].filter((r): r is ElementwiseRow<any> => r.family === 'elementwise');

/** Which of a row's two expressions a text needs: that for small floats, that for all others. */
export interface Forms {
  readonly small: boolean;
  readonly general: boolean;
}

/** One row: `C(v)` becomes a constant of T; a row that answers truth values returns whatever a comparison gives. */
export function rowFunction(
  row: ElementwiseRow<any>,
  { small, general }: Forms = { small: true, general: true },
): string {
  const masked = isMasked(row);
  const operands = OPERANDS.slice(0, row.arity).map((name, i) => `${masked && i === 0 ? 'M' : 'T'} ${name}`);
  const scalars = SCALARS.slice(0, row.scalars.length).map((name) => `T ${name}`);
  const text = (expression: string): string => `return ${expression.replace(/\bC\(/g, 'T(')};`;
  const body =
    !row.small || !small
      ? text(row.kernel)
      : general
        ? `if constexpr (is_small_float<S>) ${text(row.small)} else ${text(row.kernel)}`
        : text(row.small);
  return (
    `template <class S, class T${masked ? ', class M' : ''}> WICK_FN ${row.result === 'same' ? 'T' : 'auto'} ` +
    `op_${row.name}(${[...operands, ...scalars].join(', ')}) { ${body} }`
  );
}

/** table.h of the CPU engine: the functions alone; its vectors have mathematics of their own. */
export const expressionTable = (table: Iterable<Row>): string =>
  HEADER +
  elementwiseRows(table)
    .map((row) => rowFunction(row, { small: false, general: true }) + '\n')
    .join('');

/** rows.h: what the CPU engine must know of each row to build its kernels, and their names in order. */
export function nativeRows(table: Iterable<Row>): string {
  const list = elementwiseRows(table);
  const describe = (row: ElementwiseRow<any>): string => {
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
      `  template <class S, class T${masked ? ', class M' : ''}> WICK_FN auto apply(${taken.join(', ')}) {`,
      `    ${masked ? '' : '(void)a; (void)b; '}return op_${row.name}<S, T>(${[...operands, ...scalars].join(', ')});`,
      '  }',
      '};',
    ].join('\n');
  };
  const bits = (row: ElementwiseRow<any>): number => row.dtypes.reduce((m, d) => m | (1 << DTYPE[d].id), 0);
  return (
    HEADER +
    '#ifndef WICK_NAMES_ONLY\n' +
    list.map((r) => describe(r) + '\n').join('') +
    '#endif\n' +
    `#define WICK_ROWS(X, S, ID) ${list.map((r) => `\\\n  X(S, ID, ${r.name}, ${bits(r)})`).join(' ')}\n`
  );
}
