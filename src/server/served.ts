// What a server serves: a language model with what its chat template says about it, a model of embeddings, or both.
import type { Engine } from '../engine/request.js';
import type { Tokenizer } from '../tokenizers/index.js';
import { ApiError, badRequest } from './errors.js';
import { type ReasoningMarks, reasoningMarks, type ToolFormat, toolFormat } from './tools/formats.js';

/** Texts to vectors; EmbeddingModel of wick/models is one. */
export interface Embedder {
  /** How texts become tokens, which usage counts. */
  readonly tokenizer: Tokenizer;
  /** Tokens of a text that count. */
  readonly maxTokens: number;
  /** One vector a text. */
  embed(texts: readonly string[]): Promise<Float32Array[]>;
}
/** The models behind a server: one that writes, one that makes vectors, or both. */
export interface ServedModels {
  /** What answers chats and completions. */
  readonly engine?: Engine;
  /** What answers requests for embeddings. */
  readonly embedder?: {
    /** What the API calls it. */
    readonly name: string;
    /** The model. */
    readonly model: Embedder;
  };
  /** Further names under which the language model answers. */
  readonly aliases?: readonly string[];
  /** The way in which the model calls tools, where its template does not tell. */
  readonly toolFormat?: string;
}

/** The language model, with what follows from its template once and for all. */
export interface Chatter {
  readonly engine: Engine;
  /** The template's source, or nothing: such a model completes texts only. */
  readonly template: string | undefined;
  readonly tools: ToolFormat | undefined;
  /** Whether a request's tools reach the model, or somebody says that it knows how to call them. */
  readonly showsTools: boolean;
  readonly reasoning: ReasoningMarks | undefined;
  /** The longest text of one token: longer prompts than the context times this are refused before they are read. */
  readonly longestToken: number;
}

function chatter(engine: Engine, named?: string): Chatter {
  const { tokenizer, chatTemplate } = engine;
  const template = chatTemplate?.source();
  // Some families write calls by a template of their own.
  const forTools = chatTemplate?.source({ tools: [] }) ?? '';
  let longestToken = 1;
  for (let id = 0; id < tokenizer.vocabSize; id++)
    longestToken = Math.max(longestToken, tokenizer.token(id)?.length ?? 0);
  const tools = toolFormat(forTools, named);
  if (named !== undefined && !tools) throw badRequest(`there is no tool format ${JSON.stringify(named)}`);
  const showsTools = named !== undefined || /\btools\b/.test(forTools);
  const reasoning = template ? reasoningMarks(template) : undefined;
  return { engine, template, tools, showsTools, reasoning, longestToken };
}

export interface ListedModel {
  readonly id: string;
  readonly object: 'model';
  readonly created: number;
  readonly owned_by: string;
  readonly max_model_len: number;
}

export class Served {
  readonly models: ServedModels;
  readonly created = Math.floor(Date.now() / 1000);
  readonly #chatter: Chatter | undefined;
  constructor(models: ServedModels) {
    this.models = models;
    this.#chatter = models.engine && chatter(models.engine, models.toolFormat);
  }
  /** The language model by the name in a request; a request may leave it out. */
  chatter(name: string | null | undefined): Chatter {
    const found = this.#chatter;
    if (!found) throw new ApiError(404, 'this server serves no language model', { code: 'model_not_found' });
    if (name == null || name === found.engine.name || this.models.aliases?.includes(name)) return found;
    throw this.#unknown(name);
  }
  embedder(name: string | null | undefined): { name: string; model: Embedder } {
    const found = this.models.embedder;
    if (!found)
      throw new ApiError(404, 'this server serves no embedding model; start it with --embedding-model', {
        code: 'model_not_found',
      });
    if (name == null || name === found.name) return found;
    throw this.#unknown(name);
  }
  #unknown(name: string): ApiError {
    const known = this.list().map((m) => m.id);
    const shown = JSON.stringify(name.slice(0, 100));
    return new ApiError(404, `there is no model ${shown}; there is ${known.join(', ')}`, {
      code: 'model_not_found',
      param: 'model',
    });
  }
  /** One of those that are listed. */
  described(name: string): ListedModel {
    const found = this.list().find(({ id }) => id === name);
    if (!found) throw this.#unknown(name);
    return found;
  }
  /** As GET /v1/models lists them. */
  list(): ListedModel[] {
    const entry = (id: string, length: number) =>
      ({ id, object: 'model', created: this.created, owned_by: 'wick', max_model_len: length }) as const;
    const { engine, aliases = [], embedder } = this.models;
    return [
      ...(engine ? [engine.name, ...aliases].map((name) => entry(name, engine.limits.contextTokens)) : []),
      ...(embedder ? [entry(embedder.name, embedder.model.maxTokens)] : []),
    ];
  }
}
