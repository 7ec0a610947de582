// wick/models: models of every registered family, loaded from Hugging Face folders and GGUF files.
export type { BeamOptions } from './beams.js';
export { Config } from './config.js';
export { Block } from './block.js';
export { CausalLM, type ForwardOptions } from './decoder.js';
export { newDecoder } from './families/row.js';
export type { Features } from './features.js';
export { Llama, llamaJson, type LlamaConfig } from './llama.js';
export { familyOf, loadModel, type LoadedModel, type LoadModelOptions } from './load.js';
export { KINDS, type ModelKind, type ModelRow } from './model-row.js';
export { MODELS, rowFor } from './registry.js';
export { inverseFrequencies, readRope, type RopeFeature, type RopeType } from './rope.js';
export { EXPERT_DIVISIONS, type ExpertDivision } from './expert-divisions.js';
export { Shard, type ShardGroup } from './shard.js';
export { Stage, type StageGroup } from './stage.js';
export { ModelSource, openModel } from './source.js';
export {
  type AttendOptions,
  BatchStep,
  DecoderCache,
  type LatentRun,
  type Scan,
  seen,
  type Step,
  type WholeAttend,
} from './step.js';
export type { SoundInput } from './audio.js';
export { readWav } from '../media/wav.js';
export { EmbeddingModel, type EmbedOptions } from './embedding-model.js';
export { ImageClassifier, type ImageInput, ImageTextModel } from './image-models.js';
export { PictureChat, type PictureChatOptions, type PictureInput } from './picture-chat.js';
export { LetterSpeech, SoundClassifier } from './sound-models.js';
export { SpeechModel, type TranscribeOptions } from './speech-model.js';
export { TextClassifier, type TextOrPair } from './text-classifier.js';
export { TextToText } from './text-to-text.js';
export {
  type Answer,
  type FilledMask,
  MaskedLanguageModel,
  QuestionAnswerer,
  type TokenClass,
  TokenClassifier,
  type TokenLogits,
} from './token-models.js';
export { type HubOptions, type HubProgress, modelPath } from '../hub/index.js';
