// Matrix instructions (MFMA, WMMA): which lane and register holds which element, as the matrix calculator of the vendor documents.
import type { Instruction } from './instruction.js';

/** One matrix instruction of a program, run by the host on a whole wave. */
export interface MatrixOp {
  readonly text: string;
  readonly name: string;
  readonly registers: readonly number[];
}
export function matrixHandler(name: string): ((i: Instruction) => MatrixOp) | undefined {
  if (!/^v_(mfma|wmma)_/.test(name)) return undefined;
  return (i) => ({ text: i.text, name, registers: i.ops.map((o) => o.reg) });
}

export function runMatrix(op: MatrixOp, _memory: ArrayBufferLike, _wave: number, _lanes: number): void {
  throw new Error(`matrix ${op.name}`);
}
