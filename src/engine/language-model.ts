// A model with its tokenizer: a prompt in, text out piece by piece.
import { fileURLToPath } from 'node:url';
import type { DType } from '../base/dtype.js';
import { ArgumentError, IndexError } from '../base/errors.js';
import { type CausalLM, loadModel, type ShardGroup } from '../models/index.js';
import { type HubOptions, modelPath } from '../hub/index.js';
import { Device } from '../tensor/device.js';
import { loadTokenizer, StopWatch, TextStream, type Tokenizer } from '../tokenizers/index.js';
import { type Decoder, PlainDecoder } from './decoder.js';
import { GraphDecoder } from './graph-decoder.js';
import { PagedDecoder } from './paged-decoder.js';
import { Sampler, type SamplingOptions } from './sampler.js';

export interface GenerateOptions extends SamplingOptions {
  /** Default 256. */
  readonly maxTokens?: number;
  /** Stops at the next token when it is aborted; what was written stays. */
  readonly signal?: AbortSignal;
  /** Texts that end the answer and are left out of it. */
  readonly stop?: readonly string[];
  /** Told at the end, also when the reader stops early ('aborted'); not when an error ends it. */
  readonly onDone?: (stats: GenerateStats) => void;
}
export interface GenerateStats {
  readonly promptTokens: number;
  readonly tokens: number;
  readonly prefillSeconds: number;
  readonly decodeSeconds: number;
  readonly reason: 'length' | 'end' | 'stop' | 'aborted';
}
export interface ModelOptions extends HubOptions {
  /** Told how many bytes of tensors are on the device, and how many there are. */
  readonly onProgress?: (done: number, total: number) => void;
  readonly device?: Device | string;
  /** Default: what the file says, f32 on the CPU. */
  readonly dtype?: DType;
  /** Products with quantized weights take activations as they are, which is slower; default: rounded to 8 bits. */
  readonly exact?: boolean;
  /** The ranks that the model is shared out among; all of them run the same program on the same prompts and seeds. */
  readonly shard?: ShardGroup;
  /** Makes a decoder; for measuring and tests. */
  readonly decoder?: (model: CausalLM) => Decoder;
}

/** The folder of the model that comes with the package. */
export const builtinModel = fileURLToPath(new URL('../../../models/builtin', import.meta.url));

/** By recorded steps where the device can, else op by op. */
export const fastest = (model: CausalLM): Decoder =>
  GraphDecoder.serves(model)
    ? new GraphDecoder(model)
    : PagedDecoder.serves(model)
      ? new PagedDecoder(model)
      : new PlainDecoder(model);

export class LanguageModel {
  readonly model: CausalLM;
  readonly tokenizer: Tokenizer;
  readonly #make: (model: CausalLM) => Decoder;
  /** A decoder that no answer uses at the moment: what it captured serves the next one. */
  #idle: Decoder | undefined;

  constructor(model: CausalLM, tokenizer: Tokenizer, decoder: (model: CausalLM) => Decoder = fastest) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.#make = decoder;
  }
  /**
   * A folder in the layout of the Hugging Face hub (config.json, tokenizer.json, safetensors), a .gguf file, or a name
   * of the hub (owner/name), of any registered decoder family; without one, the built-in model.
   */
  static async load(name: string = builtinModel, options: ModelOptions = {}): Promise<LanguageModel> {
    const device = Device.of(options.device);
    const onCpu = device.name === 'cpu' || device.name === 'reference';
    const dtype: DType | 'stored' = options.dtype ?? (onCpu ? 'f32' : 'stored');
    const path = await modelPath(name, options);
    const { onProgress } = options;
    const quick = options.exact !== true;
    const { shard } = options;
    const how = { device, dtype, quick, ...(onProgress && { onProgress }), ...(shard && { shard }) };
    const { model } = loadModel<CausalLM>(path, { ...how, kind: 'decoder' });
    return new LanguageModel(model, loadTokenizer(path), options.decoder);
  }
  get device(): Device {
    return this.model.device;
  }

  /** Token numbers, one by one, until an end token or the limit. */
  async *tokens(prompt: readonly number[], options: GenerateOptions = {}): AsyncGenerator<number, GenerateStats> {
    const tally = new Tally(prompt.length);
    yield* this.#draw(prompt, options, tally);
    return tally.stats();
  }

  async *#draw(prompt: readonly number[], options: GenerateOptions, tally: Tally): AsyncGenerator<number, void> {
    const { maxTokens = 256, signal } = options;
    const { eosTokenIds, maxPositions, vocabSize } = this.model.config;
    if (maxTokens !== Infinity && (!Number.isSafeInteger(maxTokens) || maxTokens < 0))
      throw new ArgumentError(`generate: maxTokens ${String(maxTokens)} is not a whole number from 0, nor Infinity`);
    if (prompt.length === 0) throw new ArgumentError('generate: an empty prompt and no start token; give some text');
    if (prompt.length >= maxPositions)
      throw new ArgumentError(
        `generate: the prompt has ${prompt.length} tokens, the model has ${maxPositions} positions`,
      );
    prompt.forEach((token, i) => {
      if (!Number.isSafeInteger(token) || token < 0 || token >= vocabSize)
        throw new IndexError(`generate: token ${token} at position ${i} is none of the model's ${vocabSize}`);
    });
    const sampler = new Sampler(options);
    const decoder = this.#idle ?? this.#make(this.model);
    this.#idle = undefined;
    const history = [...prompt];
    const limit = Math.min(maxTokens, maxPositions - prompt.length);
    tally.begin();
    try {
      let next: readonly number[] = prompt;
      while (tally.tokens < limit) {
        if (signal?.aborted) {
          tally.reason = 'aborted';
          break;
        }
        const token = sampler.plainGreedy
          ? await decoder.runGreedy(next)
          : await decoder.runSampled(next, sampler, history);
        tally.ran();
        if (eosTokenIds.includes(token)) {
          tally.reason = 'end';
          break;
        }
        tally.tokens++;
        history.push(token);
        yield token;
        next = [token];
      }
    } finally {
      if (this.#idle) decoder.dispose();
      else {
        decoder.reset();
        this.#idle = decoder;
      }
    }
  }

  /**
   * Text, piece by piece: `for await (const piece of model.generate(prompt)) ...`. Who breaks out of the loop ends it:
   * memory goes at once.
   */
  async *generate(prompt: string, options: GenerateOptions = {}): AsyncGenerator<string, GenerateStats> {
    const ids = this.encode(prompt);
    const stream = new TextStream(this.tokenizer, ids);
    const stops = new StopWatch(options.stop ?? []);
    const tally = new Tally(ids.length);
    let over: 'read' | 'left' | 'failed' = 'left';
    try {
      for await (const token of this.#draw(ids, options, tally)) {
        const shown = stops.push(stream.push(token));
        if (shown) yield shown;
        if (stops.found === undefined) continue;
        tally.reason = 'stop';
        break;
      }
      const rest = tally.reason === 'stop' ? '' : stops.push(stream.flush()) + stops.flush();
      if (rest) yield rest;
      over = 'read';
    } catch (e) {
      over = 'failed';
      throw e;
    } finally {
      // The loop above has ended the source, and with it the decoder, whichever way it was left.
      if (over === 'left') tally.reason = 'aborted';
      if (over !== 'failed') options.onDone?.(tally.stats());
    }
    return tally.stats();
  }

  /**
   * The prompt's tokens with those that the tokenizer puts around a text; of no text, the start token where the model
   * has one.
   */
  encode(prompt: string): number[] {
    const ids = this.tokenizer.encode(prompt);
    const { bosTokenId } = this.model.config;
    return ids.length === 0 && bosTokenId !== undefined ? [bosTokenId] : ids;
  }
  dispose(): void {
    this.#idle?.dispose();
    this.#idle = undefined;
    this.model.dispose();
  }
}

/** What one answer took, counted while it is made. */
class Tally {
  readonly #promptTokens: number;
  #begin = 0;
  #prefillEnd = 0;
  #end = 0;
  tokens = 0;
  reason: GenerateStats['reason'] = 'length';

  constructor(promptTokens: number) {
    this.#promptTokens = promptTokens;
  }
  begin(): void {
    this.#begin = this.#prefillEnd = this.#end = performance.now();
  }
  /** A token came. */
  ran(): void {
    this.#end = performance.now();
    if (this.tokens === 0) this.#prefillEnd = this.#end;
  }
  stats(): GenerateStats {
    return {
      promptTokens: this.#promptTokens,
      tokens: this.tokens,
      prefillSeconds: (this.#prefillEnd - this.#begin) / 1000,
      decodeSeconds: (this.#end - this.#prefillEnd) / 1000,
      reason: this.reason,
    };
  }
}
