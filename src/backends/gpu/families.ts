// The families of ops a GPU runs, each in a file of its own: how they run, and the kernel modules they launch.
import type { DType } from '../../base/dtype.js';
import type { DeviceInfo } from '../../driver/driver.js';
import type { KernelModule } from '../../kernels/declare.js';
import type { Params, RunRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { ELEMENTWISE } from '../../kernels/elementwise.js';
import {
  ATTENTION,
  ATTENTION_BACKWARD,
  ATTENTION_BACKWARD_MATRIX,
  ATTENTION_HOPPER,
  ATTENTION_MATRIX,
} from './attention-kernels.js';
import { planAttention } from './attention.js';
import { CONV, runConv } from './conv.js';
import { runCustom } from './custom.js';
import { runElementwise } from './elementwise.js';
import { INDEXING, planIndex } from './indexing.js';
import { GEMM, GEMM_HOPPER, runMatmul } from './matmul.js';
import { WEIGHTS, runQuantized } from './quantized.js';
import { FILL, planFill, runCast, runCopy } from './movement.js';
import { NORM, planNorm } from './norm.js';
import { type FamilyPlan, type Plan, Planner } from './plan.js';
import { POOL, planPool } from './pool.js';
import { RANDOM, planRandom } from './random.js';
import { REDUCE, planReduce } from './reduce.js';
import { RESAMPLE, planResample } from './resample.js';
import { ROPE, planRope } from './rope.js';
import { runPlan } from './run-plan.js';
import { SCAN, planScan } from './scan.js';
import { SOFTMAX, planSoftmax } from './softmax.js';
import { SORT, planSort } from './sort.js';

export type Runner = (
  gpu: GpuContext,
  row: any,
  inputs: readonly View[],
  outputs: readonly View[],
  params: any,
) => void;

/** Families whose ops are planned first and then run. */
const PLANS: Partial<Record<RunRow['family'], FamilyPlan<any, any>>> = {
  fill: planFill,
  reduce: planReduce,
  scan: planScan,
  softmax: planSoftmax,
  norm: planNorm,
  rope: planRope,
  index: planIndex,
  sort: planSort,
  random: planRandom,
  pool: planPool,
  attention: planAttention,
  resample: planResample,
};

export const PLANNED = Object.keys(PLANS) as readonly RunRow['family'][];

/** The steps that run a row on operands: a pure function of layouts, dtypes, addresses and the device's description. */
export function planRow(
  row: RunRow,
  inputs: readonly View[],
  outputs: readonly View[],
  params: Params,
  device: DeviceInfo,
): Plan {
  const planner = new Planner(device);
  (PLANS[row.family] as FamilyPlan<any, any>)(planner, row, inputs, outputs, params);
  return planner.steps;
}
const planned: Runner = (gpu, row, inputs, outputs, params) =>
  runPlan(gpu, planRow(row, inputs, outputs, params, gpu.device.info), row.name, outputs);

export const FAMILIES: Partial<Record<RunRow['family'], Runner>> = {
  ...Object.fromEntries(Object.keys(PLANS).map((family) => [family, planned])),
  elementwise: runElementwise,
  cast: runCast,
  copy: runCopy,
  matmul: runMatmul,
  conv: runConv,
  quantized: runQuantized,
  custom: runCustom,
};

/** What the families launch: for builds ahead of time, signatures and tests. */
export const FAMILY_MODULES: readonly KernelModule[] = [
  ATTENTION,
  ATTENTION_BACKWARD,
  ATTENTION_BACKWARD_MATRIX,
  ATTENTION_HOPPER,
  ATTENTION_MATRIX,
  CONV,
  FILL,
  GEMM,
  GEMM_HOPPER,
  POOL,
  RESAMPLE,
  INDEXING,
  NORM,
  RANDOM,
  REDUCE,
  ROPE,
  SCAN,
  SOFTMAX,
  SORT,
  WEIGHTS,
  ELEMENTWISE,
];

export function supportsRow(row: RunRow, _dtype: DType): true | string {
  if (row.custom && row.family === 'custom' && !row.custom.kernel) return 'it was defined without a GPU kernel';
  return FAMILIES[row.family] ? true : `there is no GPU kernel for the family '${row.family}'`;
}
