// Which kernel runs a structured op, and how it is launched: pure functions from shapes to plans.
export { type Launch, type LaunchArg, type Plan, type Pointer, type Target, type Triple } from './launch-plan.js';
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
