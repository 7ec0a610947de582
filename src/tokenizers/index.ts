// wick/tokenizers: text to token numbers and back, streams of text, chat templates.
export type { AddedToken } from './added-tokens.js';
export { type ChatMessage, type ChatOptions, ChatTemplates } from './chat-template.js';
export type { EncodeLaterOptions, EncodeOptions } from './encode-options.js';
export { tokenizerFromGguf } from './from-gguf.js';
export { tokenizerFromJson } from './from-json.js';
export { loadTokenizer } from './load.js';
export type { Encoded } from './post-processors.js';
export { tokenizerFromSentencePiece } from './sentencepiece.js';
export { StopWatch, TextStream } from './text-stream.js';
export { type DecodeOptions, Tokenizer } from './tokenizer.js';
