// Who computes what in the next step. There are no phases: every running sequence has tokens that are known and not yet
// computed; new tokens of all answers come first, then pieces of prompts, as many as the budget allows.
import { Pages } from './pages.js';
import { byTurn, type Sequence } from './sequence.js';

export interface SchedulerLimits {
  readonly pages: number;
  readonly pageTokens: number;
  /** Tokens of one step. */
  readonly stepTokens: number;
  readonly maxRunning: number;
  /** What is left of a step's tokens for prompts is a multiple of this, where it is as many; default 1. */
  readonly grain?: number;
  /** Whether pages that hold a known beginning are used again. */
  readonly reuse: boolean;
  /**
   * Keys depend on how many tokens were computed with them: prompts are never cut, and what was written is computed a
   * token at a time, also again.
   */
  readonly whole?: boolean;
}
/** A run of tokens of one sequence in a step. */
export interface Item {
  readonly sequence: Sequence;
  readonly start: number;
  /** Known tokens from `start` on, and after them guesses. */
  readonly tokens: readonly number[];
  readonly guesses: number;
  /** Whether the model's answer after these tokens is wanted. */
  readonly draws: boolean;
}

/**
 * Steps are shorter while few sequences run or wait, so that new ones have their first token sooner; with many of them
 * long steps cost less in all.
 */
const BRIEF_STEP = 1024;
const TOKENS_FOR_EACH = 8;
/** Pages that are named in a turn to see whether they are known: some 3 milliseconds; long prompts take several. */
const NAMES_A_TURN = 1024;

export class Scheduler {
  readonly pages: Pages;
  readonly limits: SchedulerLimits;
  #waiting: Sequence[] = [];
  #running: Sequence[] = [];
  /** Pages that may still be named in this turn. */
  #nameable = NAMES_A_TURN;
  /** Tokens of prompts found in pages, and sequences that lost theirs, since the start. */
  prefixHits = 0;
  preemptions = 0;

  constructor(limits: SchedulerLimits) {
    this.limits = limits;
    this.pages = new Pages(limits.pages);
  }
  get waiting(): readonly Sequence[] {
    return this.#waiting;
  }
  get running(): readonly Sequence[] {
    return this.#running;
  }
  add(sequence: Sequence): void {
    this.#waiting.push(sequence);
    this.#waiting.sort(byTurn);
  }
  /** Ends a sequence, whatever it does at the moment; a second time does nothing. */
  remove(sequence: Sequence): void {
    if (sequence.state === 'finished') return;
    this.#giveUp(sequence);
    sequence.state = 'finished';
    this.#running = this.#running.filter((s) => s !== sequence);
    this.#waiting = this.#waiting.filter((s) => s !== sequence);
  }
  #giveUp(sequence: Sequence): void {
    this.pages.release(sequence.pages);
    sequence.pages = [];
    sequence.computed = sequence.named = 0;
    sequence.guesses = [];
  }
  /** Takes all pages from a sequence, which is computed again later. */
  #preempt(sequence: Sequence): void {
    this.#giveUp(sequence);
    sequence.state = 'waiting';
    sequence.preemptions++;
    this.preemptions++;
    this.#running = this.#running.filter((s) => s !== sequence);
    this.add(sequence);
  }
  /** After a step that failed nobody knows what pages hold: the sequence is computed again. */
  restart(sequence: Sequence): void {
    if (sequence.state === 'running') this.#preempt(sequence);
  }
  /** The sequence takes no part until it is added again, and is computed again then. */
  withdraw(sequence: Sequence): void {
    this.restart(sequence);
    this.#waiting = this.#waiting.filter((s) => s !== sequence);
  }
  /** Pages for so many tokens of a sequence; others that come later in turn lose theirs for it. */
  #reserve(sequence: Sequence, tokens: number, mayPreempt: boolean): boolean {
    const need = Math.ceil(tokens / this.limits.pageTokens) - sequence.pages.length;
    while (need > this.pages.free) {
      const last = mayPreempt ? [...this.#running].sort(byTurn).pop() : undefined;
      if (!last || last === sequence) return false;
      this.#preempt(last);
    }
    for (let i = 0; i < need; i++) sequence.pages.push(this.pages.take() as number);
    return true;
  }

  /** The next step's work; none where nothing can run, or not before another turn. */
  plan(): Item[] {
    const items: Item[] = [];
    this.#nameable = NAMES_A_TURN;
    const before = this.preemptions;
    const asked = this.#running.length + this.#waiting.length;
    let budget = Math.min(this.limits.stepTokens, Math.max(BRIEF_STEP, TOKENS_FOR_EACH * asked));
    const give = (sequence: Sequence, count: number): void => {
      const known = Math.min(count, sequence.due);
      const guesses = sequence.guesses.slice(0, count - known);
      const tokens = [...sequence.tokens.slice(sequence.computed, sequence.computed + known), ...guesses];
      const draws = known === sequence.due;
      items.push({ sequence, start: sequence.computed, tokens, guesses: guesses.length, draws });
      budget -= count;
    };
    const due = (sequence: Sequence): number => {
      if (!this.limits.whole) return Math.min(sequence.due, budget);
      return sequence.computed < sequence.promptLength ? sequence.promptLength - sequence.computed : 1;
    };
    const advance = (sequence: Sequence): void => {
      // It may have lost its pages to one that was before it.
      if (sequence.state !== 'running' || sequence.ending || budget <= 0) return;
      const guesses = sequence.due === 1 ? sequence.guesses.length : 0;
      const count = guesses === 0 ? due(sequence) : Math.min(1 + guesses, budget);
      if (this.#reserve(sequence, sequence.computed + count, true)) give(sequence, count);
      else if (sequence.state === 'running') this.#preempt(sequence);
    };
    const turns = [...this.#running].sort(byTurn);
    turns.filter((s) => s.decoding).forEach(advance);
    const { grain = 1 } = this.limits;
    if (budget >= grain) budget -= budget % grain;
    turns.filter((s) => !s.decoding).forEach(advance);
    // Who has just made room for others does not take it back from them.
    if (this.preemptions === before) this.#admit(due, give, () => budget > 0);
    return items.filter((i) => i.sequence.state === 'running');
  }
  #admit(
    count: (sequence: Sequence) => number,
    give: (sequence: Sequence, count: number) => void,
    open: () => boolean,
  ): void {
    for (const sequence of [...this.#waiting]) {
      if (!open() || this.#running.length >= this.limits.maxRunning) return;
      if (this.#waitsForOther(sequence)) continue;
      const found = this.#known(sequence);
      // Whoever is first is not overtaken by smaller ones.
      if (!found || !this.#fits(sequence, found)) return;
      found.forEach((page) => this.pages.hold(page));
      sequence.pages = found;
      sequence.computed = found.length * this.limits.pageTokens;
      sequence.named = found.length;
      if (sequence.cached === undefined) {
        sequence.cached = sequence.computed;
        this.prefixHits += sequence.computed;
      }
      this.#waiting = this.#waiting.filter((s) => s !== sequence);
      sequence.state = 'running';
      this.#running.push(sequence);
      const n = count(sequence);
      if (this.#reserve(sequence, sequence.computed + n, false)) give(sequence, n);
    }
  }
  /** Pages that hold the beginning of a sequence; one token at least stays to be computed. None: not all are named. */
  #known(sequence: Sequence): number[] | undefined {
    if (!this.limits.reuse || sequence.fresh) return [];
    const { names, tokens } = sequence;
    const full = Math.floor((tokens.length - 1) / this.limits.pageTokens);
    const found: number[] = [];
    while (found.length < full) {
      if (found.length === names.made && this.#nameable-- <= 0) return undefined;
      const page = this.pages.find(names.of(tokens, found.length));
      if (page === undefined) break;
      found.push(page);
    }
    return found;
  }

  /** Whether somebody who waits could begin now. */
  get admits(): boolean {
    if (this.#running.length >= this.limits.maxRunning) return false;
    const first = this.#waiting.find((s) => !this.#waitsForOther(s));
    const found = first && this.#known(first);
    return found !== undefined && this.#fits(first as Sequence, found);
  }
  /** Until all of the other's prompt is computed, and said to be: pages have their names then. */
  #waitsForOther({ after }: Sequence): boolean {
    if (after === undefined || after.state === 'finished') return false;
    return after.computed < after.promptLength || (after.pending > 0 && after.written === 0);
  }
  /** A prompt begins only when all of it fits. */
  #fits(sequence: Sequence, found: readonly number[]): boolean {
    const whole = Math.ceil((sequence.tokens.length + 1) / this.limits.pageTokens);
    const idle = found.filter((page) => this.pages.holders(page) === 0).length;
    return whole - found.length <= this.pages.free - idle;
  }
  /** A step's work is enqueued, and the next one may be planned before its tokens are read. */
  begun({ sequence, start, tokens }: Item): void {
    sequence.computed = start + tokens.length;
  }
  /** A step's tokens are read: these count as computed, and full pages may be found by others. */
  done(item: Item, accepted = item.tokens.length): void {
    const { sequence } = item;
    if (sequence.state !== 'running') return;
    const computed = item.start + accepted;
    sequence.computed = Math.max(sequence.computed, computed);
    sequence.guesses = [];
    if (!this.limits.reuse) return;
    const full = Math.floor(computed / this.limits.pageTokens);
    if (full <= sequence.named) return;
    for (let i = sequence.named; i < full; i++)
      this.pages.name(sequence.pages[i], sequence.names.of(sequence.tokens, i));
    sequence.named = full;
  }
}
