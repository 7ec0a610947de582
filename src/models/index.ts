// wick/models: models of every registered family, loaded from Hugging Face folders and GGUF files.
export type { BeamOptions } from './seq2seq/beams.js';
export { Config } from './files/config.js';
export { Block } from './decoder/block.js';
export { CausalLM, type ForwardOptions } from './decoder/decoder.js';
export { newDecoder } from './families/row.js';
export type { Features } from './decoder/features.js';
export { Llama, llamaJson, type LlamaConfig } from './llama.js';
export { familyOf, loadModel, type LoadedModel, type LoadModelOptions } from './load.js';
export { KINDS, type ModelKind, type ModelRow } from './model-row.js';
export { MODELS, rowFor } from './registry.js';
export { inverseFrequencies, readRope, type RopeFeature, type RopeType } from './decoder/rope.js';
export { EXPERT_DIVISIONS, type ExpertDivision } from './decoder/expert-divisions.js';
export { Shard, type ShardGroup } from './decoder/shard.js';
export { Stage, type StageGroup } from './decoder/stage.js';
export { ModelSource, openModel } from './files/source.js';
export {
  type AttendOptions,
  BatchStep,
  DecoderCache,
  type LatentRun,
  type Scan,
  seen,
  type Step,
  type WholeAttend,
} from './decoder/step.js';
export type { SoundInput } from './sound/audio.js';
export { readWav } from '../media/wav.js';
export { EmbeddingModel, type EmbedOptions } from './encoders/embedding-model.js';
export { ImageClassifier, type ImageInput, ImageTextModel } from './vision/image-models.js';
export { ImageToText, type ImageToTextOptions } from './pictures/image-to-text.js';
export { taggedFields, type TaggedFields, type TaggedValue } from './pictures/tagged-fields.js';
export { PictureChat, type PictureChatOptions, type PictureInput } from './pictures/picture-chat.js';
export {
  type Box,
  DepthEstimator,
  type Depths,
  type Detected,
  ImageSegmenter,
  ObjectDetector,
  type Segment,
  type Segmented,
} from './scenes/scene-models.js';
export type { MaskedThing, Panoptic, PanopticSegment } from './scenes/segments.js';
export { type FoundMask, type MaskPrompt, PromptedSegmenter, SeenPicture } from './scenes/prompted-segmenter.js';
export { type WordedMask, ZeroShotDetector, ZeroShotSegmenter } from './scenes/worded-scenes.js';
export { LetterSpeech, SoundClassifier } from './sound/sound-models.js';
export { SoundTextModel } from './sound/sound-text.js';
export { SpeechModel, type TranscribeOptions } from './sound/speech-model.js';
export { TextClassifier, type TextOrPair } from './encoders/text-classifier.js';
export { TextToText } from './seq2seq/text-to-text.js';
export {
  type Answer,
  type FilledMask,
  MaskedLanguageModel,
  QuestionAnswerer,
  type TokenClass,
  TokenClassifier,
  type TokenLogits,
} from './encoders/token-models.js';
export { type HubOptions, type HubProgress, modelPath } from '../hub/index.js';
