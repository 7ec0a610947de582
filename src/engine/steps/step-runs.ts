// Where the tokens of a step lie that runs op by op: in which rows of the pages, and which of them share a call of
// attention.
import { PROMPT_PIECE } from '../../backends/generation.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Sequence } from '../sequence.js';
import type { PagedLayout, Run } from './paged-step.js';
import type { Placed } from './recorder.js';

/** Words for the step's upload; what it answers gives them as a tensor once they are sent. */
type Put = (words: Int32Array, shape: number[]) => () => Tensor;

export interface StepRunsParts {
  readonly pageTokens: number;
  /** Layers that are read by the places of one sequence, or remember columns of one. */
  readonly single: boolean;
  /** Prompts of several sequences are attended in one launch. */
  readonly joins: boolean;
  /** What such layers remember of a sequence that goes on at `start`. */
  readonly columnsOf: (sequence: Sequence, start: number) => Map<string, Tensor>;
}

/** A layout less its first tokens, which are a run of their own. */
export function withoutFirst({ positions, slots, runs }: PagedLayout, n: number): PagedLayout {
  const rest = slots.size - n;
  if (rest === 0) return { positions, slots, runs };
  return {
    positions: positions.narrow(1, n, rest),
    slots: slots.narrow(0, n, rest),
    runs: runs.slice(1).map((run) => ({ ...run, from: run.from - n })),
  };
}

export class StepRuns {
  readonly #pageTokens: number;
  readonly #single: boolean;
  readonly #joins: boolean;
  readonly #columnsOf: StepRunsParts['columnsOf'];
  constructor({ pageTokens, single, joins, columnsOf }: StepRunsParts) {
    this.#pageTokens = pageTokens;
    this.#single = single;
    this.#joins = joins;
    this.#columnsOf = columnsOf;
  }
  /** The row of the pages where a position's keys lie. */
  slot(pages: readonly number[], position: number): number {
    const pageTokens = this.#pageTokens;
    return pages[Math.floor(position / pageTokens)] * pageTokens + (position % pageTokens);
  }
  /** Tokens, positions, slots and lengths of sequences with one new token each. */
  stateOf(work: readonly Placed[]): Int32Array {
    const n = work.length;
    const words = new Int32Array(4 * n);
    work.forEach(({ tokens: [token], start, pages }, i) => {
      [words[i], words[n + i], words[3 * n + i]] = [token, start, start + 1];
      words[2 * n + i] = this.slot(pages, start);
    });
    return words;
  }
  /** How many sequences, which have one new token each and stand first, share a run. */
  shared(flat: readonly Placed[]): number {
    return this.#single ? 0 : flat.filter((w) => w.tokens.length === 1).length;
  }
  /** Runs of a step's tokens, those of sequences with one new token first. */
  of(flat: readonly Placed[], put: Put): (() => Run)[] {
    const run = (members: readonly Placed[], from: number): (() => Run) => {
      const lengths = members.map((w) => w.start + w.tokens.length);
      const single = this.#single && members.length === 1 ? members[0] : undefined;
      const read = this.#read(members, lengths, put);
      const slots = (w: Placed): Int32Array => Int32Array.from({ length: lengths[0] }, (_, p) => this.slot(w.pages, p));
      const places = single && put(slots(single), [lengths[0]]);
      return () => ({
        ...{ from, sequences: members.length, count: members[0].tokens.length, ...read() },
        ...(single && { places: places?.(), columns: this.#columnsOf(single.sequence, single.start) }),
      });
    };
    /** Prompts in pieces, each as a sequence that ends with it. */
    const joined = (members: readonly Placed[], from: number): (() => Run) => {
      const pieces = members.flatMap((w) =>
        Array.from({ length: Math.ceil(w.tokens.length / PROMPT_PIECE) }, (_, i) => ({
          ...w,
          until: Math.min(w.tokens.length, (i + 1) * PROMPT_PIECE),
          count: Math.min(w.tokens.length - i * PROMPT_PIECE, PROMPT_PIECE),
        })),
      );
      let count = 0;
      const ends = pieces.map((w) => (count += w.count));
      const starts = put(Int32Array.of(0, ...ends), [pieces.length + 1]);
      const read = this.#read(
        pieces,
        pieces.map((w) => w.start + w.until),
        put,
      );
      return () => ({ from, sequences: pieces.length, count, starts: starts(), ...read() });
    };
    const short = this.shared(flat);
    const runs = short > 0 ? [run(flat.slice(0, short), 0)] : [];
    const long = flat.slice(short);
    if (this.#joins && !this.#single && long.length > 0) return [...runs, joined(long, short)];
    let at = short;
    for (const w of long) {
      runs.push(run([w], at));
      at += w.tokens.length;
    }
    return runs;
  }
  /** Tables and lengths of sequences. */
  #read(members: readonly Placed[], lengths: readonly number[], put: Put): () => Pick<Run, 'tables' | 'lengths'> {
    const n = members.length;
    const width = Math.ceil(Math.max(...lengths) / this.#pageTokens);
    const words = new Int32Array(n * width);
    members.forEach((w, i) => words.set(w.pages.slice(0, width), i * width));
    const [tables, all] = [put(words, [n, width]), put(Int32Array.from(lengths), [n])];
    return () => ({ tables: tables(), lengths: all() });
  }
}
