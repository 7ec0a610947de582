// wick/train: the training loop and its tools.
import '../tensor/methods.js';

export { detectAnomaly } from '../tensor/autograd.js';
export { EarlyStopping, type EarlyStoppingOptions } from './early-stopping.js';
export { crc32c, EventWriter } from './events.js';
export {
  type Batches,
  type CheckpointOptions,
  fit,
  type FitOptions,
  type History,
  type Metric,
  seriesOf,
} from './fit.js';
export { gradCheck, type GradCheckOptions, type GradCheckReport } from './grad-check.js';
export { accuracy, binaryAccuracy, ConfusionMatrix, meanAbsoluteError, rSquared, topAccuracy } from './metrics.js';
export { type PlotOptions, plotSvg, type Series, writePlot } from './plot.js';
export { Progress } from './progress.js';
export type { EpochRecord } from './run-state.js';
