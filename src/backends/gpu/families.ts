// The families of ops a GPU runs, each in a file of its own: how they run, and the kernel modules they launch.
import type { DType } from '../../base/dtype.js';
import type { DeviceInfo } from '../../driver/driver.js';
import type { KernelModule } from '../../kernels/declare.js';
import type { Params, RunRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import { ELEMENTWISE } from '../../kernels/elementwise.js';
import {
  ATTENTION,
  ATTENTION_BACKWARD,
  ATTENTION_BACKWARD_MATRIX,
  ATTENTION_BACKWARD_HOPPER,
  ATTENTION_DENSE_HOPPER,
  ATTENTION_HOPPER,
  ATTENTION_MATRIX,
} from './attention-kernels.js';
import { planAttention } from './attention.js';
import { CHOOSE, planSort } from './choose.js';
import { CONV, planConv } from './conv.js';
import { COUNT, planCount } from './count.js';
import { planCustom } from './custom.js';
import { LU } from './lu.js';
import { REFLECTIONS, ROTATIONS } from './spectra.js';
import { TRIANGLES } from './triangles.js';
import { planElementwiseRow } from './elementwise.js';
import { EXTREMES } from './extremes.js';
import { INDEXING, planIndex } from './indexing.js';
import { GEMM, GEMM_HOPPER, planMatmul } from './matmul.js';
import { EXPERTS, planExperts } from './experts.js';
import { WEIGHTS, planQuantized } from './quantized.js';
import { FILL, planCast, planCopy, planFill } from './movement.js';
import { DISTANCE, planDistance } from './distance.js';
import { FOURIER, planFourier } from './fourier.js';
import { GRID } from './grid.js';
import { NORM, planNorm } from './norm.js';
import type { Served } from './libraries.js';
import { PICK, planPick } from './pick.js';
import { PLANE_NORM, planPlaneNorm } from './plane-norm.js';
import { type FamilyPlan, type Plan, Planner } from './plan.js';
import { POOL, planPool } from './pool.js';
import { RANDOM, planRandom } from './random.js';
import { RECURRENT, planRecurrent } from './recurrent.js';
import { REDUCE, planReduce } from './reduce.js';
import { RESAMPLE, planResample } from './resample.js';
import { ROPE, planRope } from './rope.js';
import { RUNNING, planRunning } from './running.js';
import { SCATTER } from './scatter.js';
import { SCAN, planScan } from './scan.js';
import { SEARCH, planSearch } from './search.js';
import { SOFTMAX, planSoftmax } from './softmax.js';
import { RADIX } from './radix.js';
import { SORT } from './sort.js';
import { TRAINING, planTraining } from './training.js';

/** How each family's ops run. */
const PLANS: Readonly<Record<RunRow['family'], FamilyPlan<any, any>>> = {
  elementwise: planElementwiseRow,
  cast: planCast,
  copy: planCopy,
  matmul: planMatmul,
  conv: planConv,
  quantized: planQuantized,
  custom: planCustom,
  fill: planFill,
  reduce: planReduce,
  scan: planScan,
  running: planRunning,
  softmax: planSoftmax,
  norm: planNorm,
  planes: planPlaneNorm,
  rope: planRope,
  index: planIndex,
  sort: planSort,
  pick: planPick,
  count: planCount,
  search: planSearch,
  fourier: planFourier,
  distance: planDistance,
  random: planRandom,
  pool: planPool,
  attention: planAttention,
  resample: planResample,
  experts: planExperts,
  training: planTraining,
  recurrent: planRecurrent,
};

export const PLANNED = Object.keys(PLANS) as readonly RunRow['family'][];

/**
 * The steps that run a row on operands: a pure function of layouts, dtypes, addresses, the device's description and
 * what libraries serve.
 */
export function planRow(
  row: RunRow,
  inputs: readonly View[],
  outputs: readonly View[],
  params: Params,
  device: DeviceInfo,
  served?: Served,
): Plan {
  const planner = new Planner(device, served);
  PLANS[row.family](planner, row, inputs, outputs, params);
  return planner.steps;
}

/** What the families launch: for builds ahead of time, signatures and tests. */
export const FAMILY_MODULES: readonly KernelModule[] = [
  ATTENTION,
  ATTENTION_BACKWARD,
  ATTENTION_BACKWARD_MATRIX,
  ATTENTION_BACKWARD_HOPPER,
  ATTENTION_DENSE_HOPPER,
  ATTENTION_HOPPER,
  ATTENTION_MATRIX,
  CONV,
  DISTANCE,
  FILL,
  FOURIER,
  GEMM,
  GEMM_HOPPER,
  POOL,
  RESAMPLE,
  GRID,
  INDEXING,
  SCATTER,
  EXTREMES,
  LU,
  NORM,
  PLANE_NORM,
  RANDOM,
  REDUCE,
  REFLECTIONS,
  ROPE,
  ROTATIONS,
  SCAN,
  RUNNING,
  SOFTMAX,
  SORT,
  RADIX,
  CHOOSE,
  PICK,
  COUNT,
  SEARCH,
  TRAINING,
  TRIANGLES,
  RECURRENT,
  WEIGHTS,
  EXPERTS,
  ELEMENTWISE,
];

export function supportsRow(row: RunRow, _dtype: DType): true | string {
  if (row.custom && row.family === 'custom' && !row.custom.kernel) return 'it was defined without a GPU kernel';
  return row.family in PLANS ? true : `there is no GPU kernel for the family '${row.family}'`;
}
