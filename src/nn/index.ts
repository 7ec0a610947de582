// wick/nn: layers, losses' options, caches, optimizers and what training needs.
import '../tensor/methods.js';

export { Activation, activation, ACTIVATIONS, type ActivationName } from './activation.js';
export * from './init.js';
export { type Cache, KvCache, PagedKvCache, RotatingKvCache } from './kv-cache.js';
export * from './layers.js';
export { addLora, hasLooseAdapters, LoraAdapters, LoraLinear, type LoraOptions, loadLora } from './lora.js';
export { Layer, Module } from './module.js';
export {
  Adam,
  AdamW,
  type AdamOptions,
  type GradSource,
  Lion,
  type LionOptions,
  Optimizer,
  RMSprop,
  type RmsPropOptions,
  SGD,
  type SgdOptions,
} from './optim.js';
export { QEmbedding, QLinear, quantize, type QuantizeOptions, type QuantizeReport } from './quantize.js';
export { GRU, gru, type GruState, LSTM, lstm, type LstmState, type RnnOptions } from './rnn.js';
export * from './schedule.js';
export {
  type Checkpoint,
  type CheckpointParts,
  clipGradNorm,
  FlatParameters,
  GradAccumulator,
  gradNorm,
  GradScaler,
  loadCheckpoint,
  saveCheckpoint,
} from './train.js';
export { type BuilderOptions, type Shard, VarBuilder, VarMap, type VarOptions, type VarSource } from './var-builder.js';
export type { PagedOptions, SdpaOptions, VarlenOptions } from '../ops/attention.js';
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
