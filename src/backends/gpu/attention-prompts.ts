// Attention of a step that reads prompts: any number of sequences over pages in one launch.
import { UnsupportedError } from '../../base/errors.js';
import type { View } from '../backend.js';
import { PROMPT_PIECE } from '../generation.js';
import { type AttentionCall, type AttentionDType, forwardLaunch } from './attention-kernels.js';
import type { GpuContext } from './context.js';
import { addressOf } from './plan.js';
import { enqueue } from './run-plan.js';

/** New tokens of several sequences, one sequence after another; all dense. */
export interface PagedPrompts {
  /** (tokens, heads, dim), and what becomes of them; tokens past the last sequence's are left as they are. */
  readonly q: View;
  readonly out: View;
  /** (pages, rows, kvHeads, dim) */
  readonly keys: View;
  readonly values: View;
  /** i32: the first token of each sequence, then the end of the last one. */
  readonly starts: View;
  /** i32: keys of each sequence, those of its new tokens counted. */
  readonly lengths: View;
  /** i32 (sequences, n): the pages of each. */
  readonly tables: View;
  readonly scale: number;
  /** Keys that a query sees, itself counted. */
  readonly window?: number;
  readonly softcap?: number;
  /** f32, a number for each head. */
  readonly sinks?: View;
  readonly slopes?: View;
}

/** Causal attention that can be recorded: which sequences there are, and where they begin, is data. */
export function attendPrompts(
  context: GpuContext,
  { q, out, keys, values, starts, tables, window, ...o }: PagedPrompts,
) {
  const [tokens, heads, dim] = q.layout.shape;
  const [pagesThere, pageRows, kvHeads] = keys.layout.shape;
  const [batch, pageTable] = tables.layout.shape;
  const ofTokens = [0, dim, heads * dim];
  const ofPages = [pageRows * kvHeads * dim, dim, kvHeads * dim];
  const call: AttentionCall = {
    ...o,
    ...{ q, out, k: keys, v: values, qStarts: starts, pages: tables, batch, heads, kvHeads, dim },
    ...{ tq: PROMPT_PIECE, qRows: tokens, tk: pageTable * pageRows, pageRows, pageTable, pagesThere },
    ...{ qStrides: ofTokens, outStrides: ofTokens, kStrides: ofPages, vStrides: ofPages },
    ...{ left: window === undefined ? -1 : window - 1, right: 0 },
  };
  const none = (): never => {
    throw new UnsupportedError('attendPrompts: its launch names no buffers');
  };
  const launch = forwardLaunch(call, q.dtype as AttentionDType, context.device.info);
  enqueue(context, launch, none, (v) => addressOf(v as View));
}
