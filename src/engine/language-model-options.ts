// What a language model is asked for and what it answers, as callers of the library say it.
import type { DType } from '../base/dtype.js';
import type { HubOptions } from '../hub/index.js';
import type { CausalLM, ExpertDivision, ShardGroup, StageGroup } from '../models/index.js';
import type { CacheType } from '../nn/kv-cache.js';
import type { Device } from '../tensor/device.js';
import type { Decoder } from './decoder.js';
import type { GenerationRequest } from './request.js';
import type { SamplingOptions } from './sampler.js';

/** Options of `generate` and `tokens`: how tokens are drawn, and when to end. */
export interface GenerateOptions extends SamplingOptions {
  /** Default 256. */
  readonly maxTokens?: number;
  /** Stops at the next token when it is aborted; what was written stays. */
  readonly signal?: AbortSignal;
  /** Texts that end the answer and are left out of it. */
  readonly stop?: readonly string[];
  /** Called once when generation ends, also if the reader stops early ('aborted'), but not if an error ends it. */
  readonly onDone?: (stats: GenerateStats) => void;
}
/** What an answer took. */
export interface GenerateStats {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens written. */
  readonly tokens: number;
  /** Time for the prompt. */
  readonly prefillSeconds: number;
  /** Time for all tokens after the first. */
  readonly decodeSeconds: number;
  /** Why it ended: the limit, an end token, a stop text, or someone who stopped it. */
  readonly reason: 'length' | 'end' | 'stop' | 'aborted';
}
/** What else an answer may be asked for. */
export type RequestOptions = Omit<GenerationRequest, 'prompt' | 'n'>;
/** Log-probabilities of a continuation's tokens, and their sum. */
export interface Score {
  /** The continuation's tokens. */
  readonly tokens: readonly number[];
  /** The natural log-probability of each. */
  readonly logprobs: readonly number[];
  /** Their sum: the log-probability of the whole continuation. */
  readonly total: number;
}
/** An answer that beam search found. */
export interface BeamAnswer {
  /** Its text. */
  readonly text: string;
  /** Its tokens, without those of the prompt. */
  readonly tokens: readonly number[];
  /** Its log-probability, divided by its length to the power of the penalty. */
  readonly score: number;
}
/** Options of `LanguageModel.load`: where and as what the model is loaded. */
export interface ModelOptions extends HubOptions {
  /** Called with how many bytes of tensors are on the device, and how many there are in all. */
  readonly onProgress?: (done: number, total: number) => void;
  /** A device or its name; default `Device.default`. */
  readonly device?: Device | string;
  /**
   * Default: what the file says; on the CPU f32, beside which matrices stored in 16 bits stay so. Whoever trains a model
   * asks for 'f32', here or by `model.to(undefined, 'f32')`.
   */
  readonly dtype?: DType;
  /** What keys and values are kept in: 'q8_0' or 'f8e4m3' for 8 bits a number; default the dtype. */
  readonly cacheType?: CacheType;
  /** Products with quantized weights take activations as they are, which is slower; default: rounded to 8 bits. */
  readonly exact?: boolean;
  /**
   * The ranks that the model is shared out among. `generate`, `tokens` and `embed` are called by all of them alike;
   * `chat`, `reply`, `batch` and `score` by rank 0 alone, while the others call `follow`.
   */
  readonly shard?: ShardGroup;
  /** How `shard` divides mixtures: some rows of every expert (the default, where they divide), or 'whole' experts. */
  readonly experts?: ExpertDivision;
  /** The ranks that its layers are divided among. */
  readonly stages?: StageGroup;
  /** Makes a decoder; for measuring and tests. */
  readonly decoder?: (model: CausalLM) => Decoder;
}
