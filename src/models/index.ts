// wick/models: language models, one family a file.
export {
  inverseFrequencies,
  Llama,
  LlamaAttention,
  LlamaBlock,
  llamaConfig,
  type LlamaConfig,
  llamaJson,
  LlamaMlp,
  type RopeScaling,
  Rotary,
} from './llama.js';
