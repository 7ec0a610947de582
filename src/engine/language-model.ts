// A model with its tokenizer: a prompt in, text out piece by piece.
import type { DType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';
import { loadBy } from '../models/load-by.js';
import { byDecoders } from '../models/load-decoder.js';
import { modelPath } from '../hub/index.js';
import { Device } from '../tensor/device.js';
import { wholeOrNothing } from '../tensor/scope.js';
import {
  type ChatMessage,
  type ChatOptions,
  ChatTemplates,
  loadTokenizer,
  type Tokenizer,
} from '../tokenizers/index.js';
import { TURN } from '../tokenizers/encode-later.js';
import type { BeamOptions } from '../models/seq2seq/beams.js';
import { checkGenerateOptions, checkRequest } from './check-request.js';
import { builtinModel } from './builtin-model.js';
import { beamSearch } from './beam-search.js';
import { type Decoder, PlainDecoder } from './decoder.js';
import { embedText } from './embed-text.js';
import { GraphDecoder } from './steps/graph-decoder.js';
import type {
  BeamAnswer,
  GenerateOptions,
  GenerateStats,
  ModelOptions,
  RequestOptions,
  Score,
} from './language-model-options.js';
import { LateGeneration } from './late-generation.js';
import { checkPrompt, LoneAnswers } from './lone-answers.js';
import { ModelLife } from './model-life.js';
import { PagedDecoder } from './paged-decoder.js';
import { type Completion, Reply } from './reply.js';
import type { Generation, GenerationRequest, TokenLogprob } from './request.js';
import type { EngineOptions } from './engine-options.js';
import { TextEngine } from './text-engine.js';

/** What a chat's options say to the template. */
const TEMPLATE_OPTIONS: readonly (keyof ChatOptions)[] = [
  ...(['addGenerationPrompt', 'continueFinalMessage', 'tools', 'documents', 'enableThinking', 'template'] as const),
  ...(['variables', 'now'] as const),
];

/** What a request has and an answer of its own does not. */
function refuseOthers(options: Partial<GenerationRequest>): void {
  for (const name of ['prompt', 'n'] as const)
    if (options[name] !== undefined)
      throw new ArgumentError(`generate: there is no option ${name} here; engine().submit has it`);
}

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
  readonly #life: ModelLife;
  readonly #alone: LoneAnswers;
  #engine: TextEngine | undefined;

  constructor(model: CausalLM, tokenizer: Tokenizer, decoder: (model: CausalLM) => Decoder = fastest) {
    this.model = model;
    this.tokenizer = tokenizer;
    const life = (this.#life = new ModelLife(model));
    const mayDraw = (): void => this.#alike('generate');
    this.#alone = new LoneAnswers({ model, tokenizer, life, make: decoder, mayDraw });
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
      keepFloats: device.name === 'cpu' && options.dtype === undefined,
      ...(onProgress && { onProgress }),
      ...(shard && { shard }),
      ...(experts && { experts }),
      ...(stages && { stages }),
    };
    return byDecoders((find) =>
      wholeOrNothing(() => {
        const { model } = loadBy<CausalLM>(find, path, { ...how, kind: 'decoder' });
        model.cacheType = options.cacheType;
        return new LanguageModel(model, loadTokenizer(path), options.decoder);
      }),
    );
  }
  /** Where its weights are. */
  get device(): Device {
    return this.model.device;
  }

  /** Token numbers, one by one, until an end token or the limit. */
  tokens(prompt: readonly number[], options: GenerateOptions = {}): AsyncGenerator<number, GenerateStats> {
    return this.#alone.tokens(prompt, options);
  }

  /**
   * Text, piece by piece: `for await (const piece of model.generate(prompt)) ...`. Who breaks out of the loop ends it:
   * memory goes at once.
   */
  async *generate(prompt: string, options: GenerateOptions = {}): AsyncGenerator<string, GenerateStats> {
    checkGenerateOptions(options);
    return yield* this.#alone.text(await this.#encodeLater(prompt), options);
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
    this.#life.check('beamSearch');
    checkPrompt(this.model, ids, maxTokens);
    this.#alike('beamSearch');
    const limit = Math.min(maxTokens, this.model.config.maxPositions - ids.length);
    return beamSearch(this.model, ids, options, limit).map(({ row, score }) => {
      const tokens = row.slice(ids.length);
      return { text: this.tokenizer.decode(tokens), tokens, score };
    });
  }
  /** The engine behind chat, batch and score: made at first use, or here with options of one's own. */
  engine(options: EngineOptions = {}): TextEngine {
    this.#life.check('engine');
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
   * One answer to a prompt or to token numbers, with everything a request may ask for. What is wrong with a long text
   * is told where the answer is read, for such a text is encoded while the event loop goes on.
   */
  reply(prompt: string | readonly number[], options: RequestOptions = {}): Reply {
    refuseOthers(options);
    if (typeof prompt === 'string') return this.#replyTo(prompt, true, options);
    return new Reply(this.#submit(prompt, options));
  }
  #submit(prompt: readonly number[], options: RequestOptions): Generation {
    return this.engine().submit({ maxTokens: 256, ...options, prompt });
  }
  /** `special`: with the tokens that belong around a text. */
  #replyTo(text: string, special: boolean, options: RequestOptions): Reply {
    const begun = (ids: number[]): number[] => (special ? this.#begun(ids) : ids);
    if (text.length <= TURN) return new Reply(this.#submit(begun(this.tokenizer.encode(text, { special })), options));
    this.#life.check('reply');
    checkRequest({ maxTokens: 256, ...options, prompt: [0] }, this.model.config.vocabSize);
    const encode = async (signal: AbortSignal): Promise<number[]> =>
      begun(await this.tokenizer.encodeLater(text, { special, signal }));
    return new Reply(new LateGeneration(encode, (ids) => this.#submit(ids, options), options.signal));
  }
  /** The next message of a conversation, by the model's own chat template. */
  chat(messages: readonly ChatMessage[], options: RequestOptions & ChatOptions = {}): Reply {
    const own = options.template === undefined ? undefined : new ChatTemplates(new Map(), {});
    const templates = this.tokenizer.chatTemplates ?? own;
    if (!templates) throw new ArgumentError('chat: the model has no chat template; give one as `template`');
    const ofTemplate: readonly string[] = TEMPLATE_OPTIONS;
    const ofRequest = Object.fromEntries(Object.entries(options).filter(([name]) => !ofTemplate.includes(name)));
    refuseOthers(ofRequest);
    // Templates write special tokens themselves.
    return this.#replyTo(templates.render(messages, options), false, ofRequest);
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
    if (pieces.length < ids.length - 1) this.#life.check('score'); // who ends an engine ends its answers, too
    const mine = pieces.slice(Math.max(0, before - 1));
    const logprobs = mine.map((l) => l.logprob);
    return { tokens: mine.map((l) => l.token), logprobs, total: logprobs.reduce((a, b) => a + b, 0) };
  }
  /** Texts as vectors of length 1: the last token's hidden state after the final norm. */
  async embed(texts: readonly string[]): Promise<Float32Array[]> {
    this.#alike('embed');
    const vectors: Float32Array[] = [];
    for (const [i, text] of texts.entries()) {
      const ids = await this.#encodeLater(text);
      const { maxPositions } = this.model.config;
      if (ids.length === 0) throw new ArgumentError(`embed: text ${i} is empty, and the model has no start token`);
      if (ids.length > maxPositions)
        throw new ArgumentError(`embed: text ${i} has ${ids.length} tokens, the model has ${maxPositions} positions`);
      this.#life.check('embed');
      vectors.push(await this.#life.during(() => embedText(this.model, ids)));
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
    if (this.#life.ended) return;
    this.#life.end();
    this.#alone.dispose();
    const engine = this.#engine;
    this.#engine = undefined;
    // An engine under way finishes its step first: it reads the weights.
    if (engine) void engine.dispose().then(() => this.#life.free());
    else this.#life.free();
  }
}
