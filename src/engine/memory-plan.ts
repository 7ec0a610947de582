// What an engine will need, added up before anything is taken: weights, pages of keys and values, room to work in.
import { ArgumentError, OutOfMemoryError } from '../base/errors.js';
import { freemem } from 'node:os';
import { bytesOf } from '../base/dtype.js';
import type { CausalLM } from '../models/index.js';
import { cacheDType } from '../nn/kv-cache.js';
import { rowWidths, tokenBytes } from './executor.js';
import { drawSizes } from './paged-executor.js';

/** What an engine may take of the memory, and how it divides it. */
export interface MemoryOptions {
  /** Tokens of prompt and answer together; default what the model was made for, or what there is room for. */
  readonly contextTokens?: number;
  /** Sequences that run at a time; default 256 on GPUs, 32 on the CPU. */
  readonly maxRunning?: number;
  /** Tokens of a page; default 16. */
  readonly pageTokens?: number;
  /** Pages; default: as many as the share of memory has room for, no more than all sequences can use. */
  readonly pages?: number;
  /** Tokens of one step; default 2048 on GPUs, 256 on the CPU. */
  readonly stepTokens?: number;
  /** Share of the free memory that pages may take; default 0.85 on GPUs, 0.25 on the CPU. */
  readonly memoryShare?: number;
}
/** What an engine will take, added up before anything is taken. */
export interface MemoryPlan {
  /** Tokens of prompt and answer together. */
  readonly contextTokens: number;
  /** Sequences that run at a time. */
  readonly maxRunning: number;
  /** Pages of keys and values. */
  readonly pages: number;
  /** Tokens of a page. */
  readonly pageTokens: number;
  /** Bytes of the weights, which are there already, of all pages, and of the largest step. */
  readonly weightBytes: number;
  /** Bytes of all pages. */
  readonly pageBytes: number;
  /** Bytes that the largest step works in. */
  readonly scratchBytes: number;
  /** Bytes free on the device before pages are taken. */
  readonly freeBytes: number;
}

const gib = (n: number): string => `${(n / 2 ** 30).toFixed(2)} GiB`;
function wholeFrom(what: string, v: number, least: number): number {
  if (!Number.isSafeInteger(v) || v < least)
    throw new ArgumentError(`engine: ${what} ${v} is not a whole number from ${least}`);
  return v;
}

/** Bytes free where the model is. */
function freeBytes({ device: { backend } }: CausalLM): number {
  const { gpu } = backend;
  if (gpu) return gpu.context.device.memory().free + gpu.memory().cachedBytes;
  return process.availableMemory?.() ?? freemem();
}

/** Tokens of a step where nobody says otherwise. */
export const stepTokensOf = (model: CausalLM): number => (model.device.backend.elsewhere ? 256 : 2048);

/** Bytes of the largest step: a layer's vectors of every token, and logits of every sequence. */
function stepBytes(model: CausalLM, maxRunning: number, stepTokens: number, drawing: number): number {
  const { vocabSize, hiddenSize, layers } = model.config;
  const inner = (m: (typeof layers)[number]['mlp']): number => {
    if (m.kind === 'none') return 0;
    if (m.kind === 'both') return inner(m.dense) + inner(m.experts);
    return m.kind === 'dense' ? m.inner : m.chosen * m.inner + (m.shared?.inner ?? 0);
  };
  // Four of the inner vectors and some sixteen of the others are there at a time, for steps op by op and for recorded
  // ones: these have memory of their own.
  const vectors = 4 * Math.max(...layers.map((l) => inner(l.mlp) + (l.late ? inner(l.late) : 0))) + 16 * hiddenSize;
  const own = bytesOf(model.dtype);
  const logits = maxRunning * vocabSize * (4 + own);
  return 2 * (Math.max(maxRunning, stepTokens) * vectors * own + logits) + drawing;
}
/** Bytes that so many pages really take. */
function pageBytes(model: CausalLM, pages: number, pageTokens: number): number {
  const { layers } = model.config;
  const bytes = pages * pageTokens * bytesOf(cacheDType(model.dtype, model.cacheType));
  const widths = layers.flatMap(({ mixer }, i) =>
    (model.stage?.holds(i) ?? true) ? rowWidths(mixer, model.cacheType) : [],
  );
  const { gpu } = model.device.backend;
  const taken = (n: number): number => gpu?.blockBytes(n) ?? n;
  return widths.reduce((n, w) => n + taken(bytes * w), 0);
}
/** The most pages that fit. */
function pagesIn(room: number, model: CausalLM, pageTokens: number): number {
  let [fits, tooMany] = [0, Math.floor(room / (pageTokens * tokenBytes(model))) + 1];
  while (tooMany - fits > 1) {
    const half = Math.floor((fits + tooMany) / 2);
    if (pageBytes(model, half, pageTokens) <= room) fits = half;
    else tooMany = half;
  }
  return fits;
}

/** Plans pages and room to work in for a model on its device; throws with the numbers where they do not fit. */
export function planMemory(model: CausalLM, o: MemoryOptions = {}): MemoryPlan {
  const { maxPositions } = model.config;
  const { gpu } = model.device.backend;
  const free = freeBytes(model);
  const pageTokens = wholeFrom('pageTokens', o.pageTokens ?? 16, 1);
  const maxRunning = wholeFrom('maxRunning', o.maxRunning ?? (gpu ? 256 : 32), 1);
  const weightBytes = [...model.stateDict().values()].reduce((n, t) => n + t.memory.bytes, 0);
  const perPage = pageTokens * tokenBytes(model);
  const drawing = gpu?.drawBytes(drawSizes(model, maxRunning, o.contextTokens ?? maxPositions)) ?? 0;
  const scratchBytes = stepBytes(model, maxRunning, o.stepTokens ?? stepTokensOf(model), drawing);
  const share = o.memoryShare ?? (gpu ? 0.85 : 0.25);
  if (!(share > 0 && share <= 1)) throw new ArgumentError(`engine: memoryShare ${share} is not in (0, 1]`);
  const room = Math.max(0, free * share - scratchBytes);
  const fitting = perPage > 0 ? pagesIn(room, model, pageTokens) : 2 ** 20;
  const asked = wholeFrom('contextTokens', o.contextTokens ?? maxPositions, 2);
  if (asked > maxPositions)
    throw new ArgumentError(`engine: a context of ${asked} tokens; the model has ${maxPositions} positions`);
  const pagesFor = (tokens: number): number => Math.ceil(tokens / pageTokens);
  if (o.contextTokens !== undefined || o.pages !== undefined) {
    const need = o.pages !== undefined ? wholeFrom('pages', o.pages, 1) : pagesFor(asked);
    if (need > fitting)
      throw new OutOfMemoryError(
        `engine: ${need} pages of ${pageTokens} tokens are ${gib(need * perPage)}; beside weights of ` +
          `${gib(weightBytes)} and ${gib(scratchBytes)} to work in there is room for ${fitting} ` +
          `(${gib(room)} of ${gib(free)} free): ` +
          `ask for a context of at most ${fitting * pageTokens} tokens`,
      );
  }
  const most = Math.min(maxRunning * pagesFor(asked), gpu ? Infinity : 2 ** 16);
  const pages = o.pages ?? Math.max(1, Math.min(fitting, most));
  const contextTokens = Math.min(asked, pages * pageTokens);
  if (contextTokens < 2 || (o.contextTokens !== undefined && contextTokens < asked))
    throw new OutOfMemoryError(
      `engine: ${pages} pages of ${pageTokens} tokens hold no context of ${asked} tokens; a page takes ` +
        `${gib(perPage)}, ${gib(room)} are free for them`,
    );
  return {
    contextTokens,
    maxRunning,
    pages,
    pageTokens,
    weightBytes,
    pageBytes: pageBytes(model, pages, pageTokens),
    scratchBytes,
    freeBytes: free,
  };
}
