// The families of ops a GPU runs, each in a file of its own.
import type { DType } from '../../base/dtype.js';
import type { RunRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { runElementwise } from './elementwise.js';
import { runCast, runCopy, runFill } from './movement.js';

export type Runner = (gpu: GpuContext, row: any, inputs: readonly View[], outputs: readonly View[], params: any) => void;

export const FAMILIES: Partial<Record<RunRow['family'], Runner>> = {
  elementwise: runElementwise,
  cast: runCast,
  copy: runCopy,
  fill: runFill,
};

export function supportsRow(row: RunRow, _dtype: DType): true | string {
  return FAMILIES[row.family] ? true : `there is no GPU kernel for the family '${row.family}'`;
}
