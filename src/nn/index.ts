// wick/nn: layers, losses' options, caches, optimizers and what training needs.
import '../tensor/methods.js';

export { type MakeOptions } from './fresh.js';
export * from './init.js';
export { type Cache, CACHE_TYPES, type CacheType, KvCache, PagedKvCache, RotatingKvCache } from './kv-cache.js';
export * from './layers.js';
export { addLora, hasLooseAdapters, LoraAdapters, LoraLinear, type LoraOptions, loadLora } from './lora.js';
export {
  type BackwardHook,
  type BeforeForwardHook,
  type Field,
  type ForwardHook,
  Layer,
  type LoadOptions,
  type LoadReport,
  Module,
} from './module.js';
export { flowSummary } from './flow-summary.js';
export { clipGradNorm, clipGradValue, gradNorm } from './clip.js';
export { functionalCall, type NamedTensors, stackModuleState } from './functional-call.js';
export { EMA, type EmaOptions } from './ema.js';
export { type GumbelOptions, gumbelSoftmax, padSequence, type PadSequenceOptions } from './functions.js';
export * as distributions from './distributions/index.js';
export * as losses from './losses.js';
export * from './loss-modules.js';
export {
  Adam,
  AdamW,
  type AdamOptions,
  type ClipOptions,
  type Defaults,
  type GradSource,
  Lion,
  type LionOptions,
  Optimizer,
  type OptimizerOptions,
  type ParameterGroup,
  RMSprop,
  type RmsPropOptions,
  SGD,
  type SgdOptions,
  type Trained,
} from './optim.js';
export * from './optim-adaptive.js';
export * from './optim-matrix.js';
export {
  parametrize,
  removeParametrization,
  spectralNorm,
  type SpectralNormOptions,
  weightNorm,
  type WeightNormOptions,
} from './parametrize.js';
export { QEmbedding, QLinear, quantize, type QuantizeOptions, type QuantizeReport } from './quantize.js';
export { type Recomputable, recompute, recomputing } from './recompute.js';
export * from './rnn.js';
export * from './rnn-cells.js';
export * from './schedule.js';
export * from './scheduler.js';
export {
  type Checkpoint,
  type CheckpointParts,
  FlatParameters,
  GradAccumulator,
  GradScaler,
  loadCheckpoint,
  saveCheckpoint,
} from './train.js';
export { type BuilderOptions, type Shard, VarBuilder, VarMap, type VarOptions, type VarSource } from './var-builder.js';
export type { PagedOptions, SdpaOptions, VarlenOptions } from '../ops/attention-calls.js';
export type {
  BceOptions,
  CrossEntropyOptions,
  HuberOptions,
  LossOptions,
  NllOptions,
  OneHotOptions,
  PadMode,
  Reduction,
} from '../ops/functional.js';
