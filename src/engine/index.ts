// The engine: models that write text.
export { END_OF_TEXT, trainBpe } from './bpe.js';
export { builtinModel } from './builtin-model.js';
export { type Decoder, PlainDecoder } from './decoder.js';
export { GraphDecoder } from './steps/graph-decoder.js';
export { LanguageModel } from './language-model.js';
export type {
  GenerateOptions,
  GenerateStats,
  ModelOptions,
  RequestOptions,
  Score,
} from './language-model-options.js';
export { type MemoryOptions, type MemoryPlan, planMemory } from './memory-plan.js';
export { type Perplexity, perplexity, type PerplexityOptions } from './perplexity.js';
export type { StepChannel, StepGroup } from './ranks.js';
export type { EngineOptions, StepTimes } from './engine-options.js';
export { TextEngine } from './text-engine.js';
export { loadEngine } from './load-engine.js';
export { type Completion, Reply } from './reply.js';
export { Sampler, type SamplingOptions } from './sampler.js';
export { TextStream, Tokenizer } from '../tokenizers/index.js';
export {
  ContextError,
  type Engine,
  type EngineLimits,
  type EngineStatus,
  type FinishReason,
  type Generation,
  type GenerationRequest,
  type Grammar,
  type LikelyToken,
  type Piece,
  QueueFullError,
  type TokenLogprob,
  type Usage,
} from './request.js';
