// Which kernel runs a structured op, and how it is launched: pure functions from shapes to plans.
export { type Launch, type LaunchArg, type Plan, type Pointer, type Target, type Triple } from './launch-plan.js';
export {
  normGradLaunch,
  normLaunch,
  type NormOptions,
  ropeLaunch,
  type RopeShape,
  scanLaunch,
  softmaxGradLaunch,
  softmaxLaunch,
} from './launch-rows.js';
export {
  gatherLaunch,
  indexAddLaunch,
  scatterLaunch,
  type ScatterShape,
  selectRowsLaunch,
  sortInBlock,
  sortLaunch,
  transposeLaunch,
} from './launch-indexing.js';
export {
  bilinearGradLaunch,
  bilinearLaunch,
  convLaunch,
  type ConvShape,
  gemmLaunch,
  hasMatrixUnits,
  nearestLaunch,
  type Operand,
  poolLaunch,
  type Product,
} from './launch-matrix.js';
