// The families of ops a GPU runs, each in a file of its own.
import type { DType } from '../../base/dtype.js';
import type { RunRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { runAttention } from './attention.js';
import { runCustom } from './custom.js';
import { runElementwise } from './elementwise.js';
import { runIndex, runRandom, runSort } from './indexing.js';
import { runMatmul } from './matmul.js';
import { runCast, runCopy, runFill } from './movement.js';
import { runNorm, runReduce, runRope, runScan, runSoftmax } from './rows.js';
import { runConv, runPool, runResample } from './spatial.js';

export type Runner = (
  gpu: GpuContext,
  row: any,
  inputs: readonly View[],
  outputs: readonly View[],
  params: any,
) => void;

export const FAMILIES: Partial<Record<RunRow['family'], Runner>> = {
  elementwise: runElementwise,
  cast: runCast,
  copy: runCopy,
  fill: runFill,
  reduce: runReduce,
  scan: runScan,
  matmul: runMatmul,
  index: runIndex,
  conv: runConv,
  pool: runPool,
  resample: runResample,
  sort: runSort,
  random: runRandom,
  softmax: runSoftmax,
  norm: runNorm,
  rope: runRope,
  attention: runAttention,
  custom: runCustom,
};

export function supportsRow(row: RunRow, _dtype: DType): true | string {
  if (row.custom && row.family === 'custom' && !row.custom.kernel) return 'it was defined without a GPU kernel';
  return FAMILIES[row.family] ? true : `there is no GPU kernel for the family '${row.family}'`;
}
