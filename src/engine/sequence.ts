// One answer being written: its tokens, how many of them the model has seen, and where their keys lie.
import { PageNames } from './pages.js';

export interface SequenceOptions {
  readonly id: number;
  readonly prompt: readonly number[];
  /** Prompt and answer together have no more tokens than this. */
  readonly maxLength: number;
  readonly priority: number;
  readonly pageTokens: number;
  readonly salt?: string;
  /** Another answer to the same prompt, whose pages this one waits for. */
  readonly after?: Sequence;
  /** Every token of the prompt must be seen anew, for what is asked about each of them. */
  readonly fresh?: boolean;
}

/** Stands for a token that only the device knows yet. */
export const NOT_READ = -1;

export class Sequence {
  readonly id: number;
  readonly promptLength: number;
  readonly maxLength: number;
  readonly priority: number;
  readonly after: Sequence | undefined;
  readonly fresh: boolean;
  readonly names: PageNames;
  /** Prompt and answer. */
  readonly tokens: number[];
  /** Tokens after these that are only guessed. */
  guesses: readonly number[] = [];
  /** Tokens whose keys and values lie in pages. */
  computed = 0;
  /** Of the prompt, found in pages that others had computed, when it was first admitted. */
  cached: number | undefined;
  pages: number[] = [];
  /** Pages that have been given their name. */
  named = 0;
  state: 'waiting' | 'running' | 'finished' = 'waiting';
  /** Times it lost its pages to others. */
  preemptions = 0;

  constructor(o: SequenceOptions) {
    this.id = o.id;
    this.promptLength = o.prompt.length;
    this.tokens = [...o.prompt];
    this.maxLength = o.maxLength;
    this.priority = o.priority;
    this.after = o.after;
    this.fresh = o.fresh ?? false;
    this.names = new PageNames(o.pageTokens, o.salt);
  }
  /** Tokens at the end that are drawn on the device and not yet read; NOT_READ stands in their places. */
  pending = 0;

  /** Keeps a place for a token that is being drawn. */
  expect(): void {
    this.tokens.push(NOT_READ);
    this.pending++;
  }
  /** The token at a place that was kept, or the next one. */
  put(at: number, token: number): void {
    if (at < this.tokens.length) this.pending--;
    this.tokens[at] = token;
  }
  /** Nothing will come for the places that are kept. */
  giveUpPending(): void {
    this.tokens.length -= this.pending;
    this.pending = 0;
  }
  /** Tokens known and not yet computed; one of them at least, since the last one drawn is always new. */
  get due(): number {
    return this.tokens.length - this.computed;
  }
  get written(): number {
    return this.tokens.length - this.pending - this.promptLength;
  }
  /** Whether the token that is being drawn is its last. */
  get ending(): boolean {
    return this.pending > 0 && this.tokens.length >= this.maxLength;
  }
  /** Whether the next step draws a token for it without anything left of its prompt. */
  get decoding(): boolean {
    return this.due === 1;
  }
}

/** Smaller numbers go first, among equals who came first. */
export const byTurn = (a: Sequence, b: Sequence): number => a.priority - b.priority || a.id - b.id;
