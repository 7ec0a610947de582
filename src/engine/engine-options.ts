// What may be said of an engine when it is made, and what it tells of its steps.
import type { CausalLM } from '../models/index.js';
import type { GrammarCompiler } from './grammar/grammar.js';
import type { MemoryOptions } from './memory-plan.js';
import type { StepGroup } from './ranks.js';

/** Options of an engine: memory, batches, speculation. */
export interface EngineOptions extends MemoryOptions {
  /** What APIs call the model; default: its family. */
  readonly name?: string;
  /** Requests that may wait before others are refused; default 1024. */
  readonly maxWaiting?: number;
  /** Whether beginnings that were computed are used again; default true. */
  readonly reuse?: boolean;
  /** Steps with at most so many sequences are recorded; default 256. */
  readonly maxRecorded?: number;
  /**
   * Whether a step may begin before the tokens of the one before are read, where the device draws them; default true.
   */
  readonly ahead?: boolean;
  /** A smaller model of the same vocabulary that guesses for requests which ask for it; its owner disposes of it. */
  readonly draft?: CausalLM;
  /** Makes grammars; default: loaded at first use. */
  readonly grammars?: GrammarCompiler;
  /** All ranks that share the model; only where both its layers and its rows are divided. */
  readonly ranks?: StepGroup;
  /**
   * Told on rank 0 when a step failed that ranks computed together: they have ended, and no request is answered now.
   */
  readonly onBroken?: (error: Error) => void;
  /** Told after every step where the host's time went. */
  readonly onStep?: (times: StepTimes) => void;
}
/** Milliseconds that the host spent on a step, and how large it was. */
export interface StepTimes {
  /** Sequences that had tokens in it. */
  readonly sequences: number;
  /** Tokens of all of them. */
  readonly tokens: number;
  /** Whether it began before the tokens of the step before were read. */
  readonly ahead: boolean;
  /** Until it was clear who is due. */
  readonly plan: number;
  /** Until it was enqueued. */
  readonly enqueue: number;
  /** Texts of the step before and handing them out. */
  readonly tell: number;
  /** Waiting for its tokens. */
  readonly wait: number;
  /** Taking them: what ends, what goes on. */
  readonly take: number;
  /** When its tokens were taken, on the clock of `performance.now()`. */
  readonly at: number;
}
