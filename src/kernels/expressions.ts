// Writes C++ from elementwise rows: a function template a row, compiled by GPU compilers, the host simulation and the
// CPU engine.
import type { ElementwiseRow } from '../ops/op.js';

export const OPERANDS = ['x', 'y', 'z'] as const;
export const SCALARS = ['a', 'b'] as const;

/** The first operand of a masked row (where) is a truth value, not a number. */
export const isMasked = (row: ElementwiseRow<any>): boolean => (row as { masked?: boolean }).masked === true;

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
