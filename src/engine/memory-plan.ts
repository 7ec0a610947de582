// What an engine will need, added up before anything is taken: weights, pages of keys and values, room to work in.
import { ArgumentError, OutOfMemoryError } from '../base/errors.js';
import { freemem } from 'node:os';
import type { CausalLM } from '../models/index.js';
import { GpuBackend } from '../backends/gpu/gpu.js';
import { drawBytes } from '../backends/gpu/sample.js';
import { tokenBytes } from './executor.js';
import { drawSizes } from './paged-executor.js';

export interface MemoryOptions {
  /** Tokens of prompt and answer together; default what the model was made for, or what there is room for. */
  readonly contextTokens?: number;
  /** Sequences that run at a time; default 256 on GPUs, 32 on the CPU. */
  readonly maxRunning?: number;
  /** Tokens of a page; default 16. */
  readonly pageTokens?: number;
  /** Pages; default: as many as the share of memory has room for, no more than all sequences can use. */
  readonly pages?: number;
  /** Share of the free memory that pages may take; default 0.85 on GPUs, 0.25 on the CPU. */
  readonly memoryShare?: number;
}
export interface MemoryPlan {
  readonly contextTokens: number;
  readonly maxRunning: number;
  readonly pages: number;
  readonly pageTokens: number;
  /** Bytes of the weights, which are there already, of all pages, and of the largest step. */
  readonly weightBytes: number;
  readonly pageBytes: number;
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
function freeBytes(model: CausalLM): { free: number; onGpu: boolean } {
  const { backend } = model.device;
  if (backend instanceof GpuBackend)
    return { free: backend.context.device.memory().free + backend.memory().cachedBytes, onGpu: true };
  return { free: process.availableMemory?.() ?? freemem(), onGpu: false };
}

export function planMemory(model: CausalLM, o: MemoryOptions = {}): MemoryPlan {
  const { maxPositions, vocabSize, hiddenSize } = model.config;
  const { free, onGpu } = freeBytes(model);
  const pageTokens = wholeFrom('pageTokens', o.pageTokens ?? 16, 1);
  const maxRunning = wholeFrom('maxRunning', o.maxRunning ?? (onGpu ? 256 : 32), 1);
  const weightBytes = [...model.stateDict().values()].reduce((n, t) => n + t.memory.bytes, 0);
  const perPage = pageTokens * tokenBytes(model);
  // Logits of a full batch in f32 twice, and a few vectors of every token of a step.
  const drawing = onGpu ? drawBytes(drawSizes(model, maxRunning, o.contextTokens ?? maxPositions)) : 0;
  const scratchBytes = maxRunning * vocabSize * 8 + 2048 * hiddenSize * 32 + drawing;
  const share = o.memoryShare ?? (onGpu ? 0.85 : 0.25);
  if (!(share > 0 && share <= 1)) throw new ArgumentError(`engine: memoryShare ${share} is not in (0, 1]`);
  const room = Math.max(0, free * share - scratchBytes);
  const fitting = perPage > 0 ? Math.floor(room / perPage) : 2 ** 20;
  const asked = wholeFrom('contextTokens', o.contextTokens ?? maxPositions, 2);
  if (asked > maxPositions)
    throw new ArgumentError(`engine: a context of ${asked} tokens; the model has ${maxPositions} positions`);
  const pagesFor = (tokens: number): number => Math.ceil(tokens / pageTokens);
  if (o.contextTokens !== undefined || o.pages !== undefined) {
    const need = o.pages !== undefined ? wholeFrom('pages', o.pages, 1) : pagesFor(asked);
    if (need > fitting)
      throw new OutOfMemoryError(
        `engine: ${need} pages of ${pageTokens} tokens are ${gib(need * perPage)}; beside weights of ${gib(weightBytes)} ` +
          `and ${gib(scratchBytes)} to work in there is room for ${fitting} (${gib(room)} of ${gib(free)} free): ` +
          `ask for a context of at most ${fitting * pageTokens} tokens`,
      );
  }
  const most = Math.min(maxRunning * pagesFor(asked), onGpu ? Infinity : 2 ** 16);
  const pages = o.pages ?? Math.max(1, Math.min(fitting, most));
  const contextTokens = Math.min(asked, pages * pageTokens);
  if (contextTokens < 2 || (o.contextTokens !== undefined && contextTokens < asked))
    throw new OutOfMemoryError(
      `engine: ${pages} pages of ${pageTokens} tokens hold no context of ${asked} tokens; a page takes ${gib(perPage)}, ${gib(room)} are free for them`,
    );
  return {
    contextTokens,
    maxRunning,
    pages,
    pageTokens,
    weightBytes,
    pageBytes: pages * perPage,
    scratchBytes,
    freeBytes: free,
  };
}
