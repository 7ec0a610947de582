// A model with its tokenizer: a prompt in, text out piece by piece.
import type { DType } from '../base/dtype.js';
import { ArgumentError, DisposedError, IndexError } from '../base/errors.js';
import type { CausalLM, ExpertDivision, ShardGroup, StageGroup } from '../models/index.js';
import { loadModel } from '../models/load.js';
import { BatchStep } from '../models/decoder/step.js';
import { type HubOptions, modelPath } from '../hub/index.js';
import type { CacheType } from '../nn/kv-cache.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { Device } from '../tensor/device.js';
import { scope } from '../tensor/scope.js';
import {
  type ChatMessage,
  type ChatOptions,
  ChatTemplates,
  loadTokenizer,
  StopWatch,
  TextStream,
  type Tokenizer,
} from '../tokenizers/index.js';
import type { BeamOptions } from '../models/seq2seq/beams.js';
import { checkGenerateOptions } from './check-request.js';
import { builtinModel } from './builtin-model.js';
import { beamSearch } from './beam-search.js';
import { type Decoder, PlainDecoder } from './decoder.js';
import { GraphDecoder } from './steps/graph-decoder.js';
import { LoopTurns, offThread } from './off-thread.js';
import { PagedDecoder } from './paged-decoder.js';
import { type Completion, Reply } from './reply.js';
import type { GenerationRequest, TokenLogprob } from './request.js';
import { Sampler, type SamplingOptions } from './sampler.js';
import type { EngineOptions } from './engine-options.js';
import { TextEngine } from './text-engine.js';

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
  /** Default: what the file says, f32 on the CPU. */
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

/** What a chat's options say to the template. */
const TEMPLATE_OPTIONS: readonly (keyof ChatOptions)[] = [
  ...(['addGenerationPrompt', 'continueFinalMessage', 'tools', 'documents', 'enableThinking', 'template'] as const),
  ...(['variables', 'now'] as const),
];

/** By recorded steps where the device can, else op by op. */
const fastest = (model: CausalLM): Decoder =>
  GraphDecoder.serves(model)
    ? new GraphDecoder(model)
    : PagedDecoder.serves(model)
      ? new PagedDecoder(model)
      : new PlainDecoder(model);

/**
 * A language model for one answer at a time: `LanguageModel.load(path)`, then `for await (const text of
 * model.generate(prompt))`. `TextEngine` serves many at once.
 */
export class LanguageModel {
  /** The network itself. */
  readonly model: CausalLM;
  /** How text becomes tokens and back. */
  readonly tokenizer: Tokenizer;
  readonly #make: (model: CausalLM) => Decoder;
  /** A decoder that no answer uses at the moment: what it captured serves the next one. */
  #idle: Decoder | undefined;
  #engine: TextEngine | undefined;
  #disposed = false;
  /** Steps outside of the engine that are under way, and what waits for them. */
  #steps = 0;
  #whenQuiet: (() => void) | undefined;

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
    const { shard, experts, stages } = options;
    const how = {
      device,
      dtype,
      quick,
      ...(onProgress && { onProgress }),
      ...(shard && { shard }),
      ...(experts && { experts }),
      ...(stages && { stages }),
    };
    const { model } = loadModel<CausalLM>(path, { ...how, kind: 'decoder' });
    try {
      model.cacheType = options.cacheType;
    } catch (e) {
      model.dispose();
      throw e;
    }
    return new LanguageModel(model, loadTokenizer(path), options.decoder);
  }
  /** Where its weights are. */
  get device(): Device {
    return this.model.device;
  }

  /** Token numbers, one by one, until an end token or the limit. */
  async *tokens(prompt: readonly number[], options: GenerateOptions = {}): AsyncGenerator<number, GenerateStats> {
    const tally = new Tally(prompt.length);
    yield* this.#draw(prompt, options, tally);
    return tally.stats();
  }

  /** Runs what reads the weights, perhaps on another thread; a model disposed of meanwhile keeps them until the end. */
  async #step<T>(f: () => Promise<T>): Promise<T> {
    this.#steps++;
    try {
      return await f();
    } finally {
      if (--this.#steps === 0) this.#whenQuiet?.();
    }
  }
  #alive(what: string): void {
    if (this.#disposed) throw new DisposedError(`${what}: the model ${this.model.config.family} was disposed of`);
  }
  /** Refuses prompts and limits that make no sense. */
  #check(prompt: readonly number[], maxTokens: number): void {
    const { maxPositions, vocabSize } = this.model.config;
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
  }
  async *#draw(prompt: readonly number[], options: GenerateOptions, tally: Tally): AsyncGenerator<number, void> {
    const { maxTokens = 256, signal } = options;
    const { eosTokenIds, maxPositions } = this.model.config;
    this.#alive('generate');
    checkGenerateOptions(options);
    this.#check(prompt, maxTokens);
    this.#alike('generate');
    const sampler = new Sampler(options);
    const decoder = this.#idle ?? this.#make(this.model);
    this.#idle = undefined;
    const history = [...prompt];
    const limit = Math.min(maxTokens, maxPositions - prompt.length);
    const turns = new LoopTurns();
    tally.begin();
    try {
      let next: readonly number[] = prompt;
      while (tally.tokens < limit) {
        await turns.next();
        this.#alive('generate');
        if (signal?.aborted) {
          tally.reason = 'aborted';
          break;
        }
        const token = await this.#step(() =>
          sampler.plainGreedy ? decoder.runGreedy(next) : decoder.runSampled(next, sampler, history),
        );
        this.#alive('generate');
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
      if (this.#idle || this.#disposed) decoder.dispose();
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
    checkGenerateOptions(options);
    const ids = await this.#encodeLater(prompt);
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
   * The likeliest answers as a whole that so many beams find, the best first: scores, ends and choices are those of
   * transformers.
   */
  async beamSearch(
    prompt: string | readonly number[],
    options: BeamOptions & {
      /** The longest answer; default 256 tokens. */
      readonly maxTokens?: number;
    },
  ): Promise<BeamAnswer[]> {
    const { maxTokens = 256 } = options;
    const ids = typeof prompt === 'string' ? await this.#encodeLater(prompt) : prompt;
    this.#alive('beamSearch');
    this.#check(ids, maxTokens);
    this.#alike('beamSearch');
    const limit = Math.min(maxTokens, this.model.config.maxPositions - ids.length);
    return beamSearch(this.model, ids, options, limit).map(({ row, score }) => {
      const tokens = row.slice(ids.length);
      return { text: this.tokenizer.decode(tokens), tokens, score };
    });
  }
  /** The engine behind chat, batch and score: made at first use, or here with options of one's own. */
  engine(options: EngineOptions = {}): TextEngine {
    this.#alive('engine');
    this.#engine ??= new TextEngine(this.model, this.tokenizer, options);
    return this.#engine;
  }
  /**
   * On a model that ranks share, chat, batch, reply and score are called on rank 0; the other ranks follow its steps by
   * this, until rank 0 disposes of the model or its program ends.
   */
  follow(): Promise<void> {
    return this.engine().follow();
  }
  /** What every rank calls alike cannot be called while the others follow the engine's steps. */
  #alike(what: string): void {
    const { shard, stage } = this.model;
    if (this.#engine && (shard || stage))
      throw new ArgumentError(
        `${what}: the ranks that share this model follow its engine, and would not take part; use reply, chat or batch`,
      );
  }
  /**
   * One answer to a prompt or to token numbers, with everything a request may ask for. A text is encoded at once: for
   * one of a megabyte, which takes a second, give what `tokenizer.encodeLater` answers.
   */
  reply(prompt: string | readonly number[], options: RequestOptions = {}): Reply {
    for (const name of ['prompt', 'n'] as const)
      if ((options as Partial<GenerationRequest>)[name] !== undefined)
        throw new ArgumentError(`generate: there is no option ${name} here; engine().submit has it`);
    const ids = typeof prompt === 'string' ? this.encode(prompt) : prompt;
    return new Reply(this.engine().submit({ maxTokens: 256, ...options, prompt: ids }));
  }
  /** The next message of a conversation, by the model's own chat template. */
  chat(messages: readonly ChatMessage[], options: RequestOptions & ChatOptions = {}): Reply {
    const own = options.template === undefined ? undefined : new ChatTemplates(new Map(), {});
    const templates = this.tokenizer.chatTemplates ?? own;
    if (!templates) throw new ArgumentError('chat: the model has no chat template; give one as `template`');
    // Templates write special tokens themselves.
    const prompt = this.tokenizer.encode(templates.render(messages, options), { special: false });
    const ofTemplate: readonly string[] = TEMPLATE_OPTIONS;
    return this.reply(
      prompt,
      Object.fromEntries(Object.entries(options).filter(([name]) => !ofTemplate.includes(name))),
    );
  }
  /** Answers to many prompts, computed together, in their order. */
  async batch(prompts: readonly string[], options: RequestOptions = {}): Promise<Completion[]> {
    const replies: Reply[] = [];
    try {
      for (const prompt of prompts) replies.push(this.reply(await this.#encodeLater(prompt), options));
      return await Promise.all(replies.map(({ done }) => done));
    } finally {
      for (const reply of replies) reply.cancel(); // where one failed, nobody waits for the others
    }
  }
  /** How likely the model holds a continuation of a prompt to be, token by token. */
  async score(prompt: string, continuation: string): Promise<Score> {
    const before = (await this.#encodeLater(prompt)).length;
    const ids = await this.#encodeLater(prompt + continuation);
    const pieces: TokenLogprob[] = [];
    for await (const p of this.engine().submit({ prompt: ids, promptLogprobs: true, maxTokens: 0 }))
      pieces.push(...(p.promptLogprobs ?? []));
    if (pieces.length < ids.length - 1) this.#alive('score'); // who ends an engine ends its answers, too
    const mine = pieces.slice(Math.max(0, before - 1));
    const logprobs = mine.map((l) => l.logprob);
    return { tokens: mine.map((l) => l.token), logprobs, total: logprobs.reduce((a, b) => a + b, 0) };
  }
  /** Texts as vectors of length 1: the last token's hidden state after the final norm. */
  async embed(texts: readonly string[]): Promise<Float32Array[]> {
    this.#alike('embed');
    const { device } = this.model;
    const vectors: Float32Array[] = [];
    for (const [i, text] of texts.entries()) {
      const ids = await this.#encodeLater(text);
      const { maxPositions } = this.model.config;
      if (ids.length === 0) throw new ArgumentError(`embed: text ${i} is empty, and the model has no start token`);
      if (ids.length > maxPositions)
        throw new ArgumentError(`embed: text ${i} has ${ids.length} tokens, the model has ${maxPositions} positions`);
      this.#alive('embed');
      const y = await this.#step(() =>
        offThread(this.model, () =>
          scope(() =>
            noGrad(() => {
              const given = tensor(Int32Array.from(ids), { shape: [1, ids.length], device });
              const x = this.model.hidden(given, new BatchStep(device, ids.length, undefined, undefined));
              return this.model.norm
                .forward(x.narrow(1, ids.length - 1, 1))
                .reshape([-1])
                .cast('f32');
            }),
          ),
        ),
      );
      const data = (await y.data()) as Float32Array;
      y.dispose();
      const length = Math.hypot(...data) || 1;
      vectors.push(data.map((v) => v / length));
    }
    return vectors;
  }

  /**
   * The prompt's tokens with those that the tokenizer puts around a text; of no text, the start token where the model
   * has one.
   */
  encode(prompt: string): number[] {
    return this.#begun(this.tokenizer.encode(prompt));
  }
  /** The same while the event loop goes on. */
  async #encodeLater(prompt: string): Promise<number[]> {
    return this.#begun(await this.tokenizer.encodeLater(prompt));
  }
  #begun(ids: number[]): number[] {
    const { bosTokenId } = this.model.config;
    return ids.length === 0 && bosTokenId !== undefined ? [bosTokenId] : ids;
  }
  /** Gives weights and caches back, after the steps that are under way; answers end by a DisposedError. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#idle?.dispose();
    this.#idle = undefined;
    const engine = this.#engine;
    this.#engine = undefined;
    const free = (): void => {
      if (this.#steps === 0) this.model.dispose();
      else this.#whenQuiet = () => this.model.dispose();
    };
    // An engine under way finishes its step first: it reads the weights.
    if (engine) void engine.dispose().then(free);
    else free();
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
