// Steps in which some sequences write and others read their prompts, recorded by size: sequences that write, tokens of
// prompts, pieces that these come in. Which tokens, sequences and pages these are is data, so a recording serves every
// mix that fits it.
import { PROMPT_PIECE } from '../../backends/generation.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type DeviceDraws, DrawRows } from './device-draws.js';
import type { PagedLayout } from './paged-step.js';
import {
  bucketOf,
  DRAW_WORDS,
  NOWHERE,
  type Placed,
  type RecordedStep,
  type Recorder,
  type Results,
} from './recorder.js';
import { NOT_READ, type Sequence } from '../sequence.js';

/** Room of a recorded step. */
interface Room {
  /** Sequences with one token each, which come first; their rows take part in everything, filled or not. */
  readonly writing: number;
  /** Tokens of prompts, after them. */
  readonly tokens: number;
  /** Pieces that these come in. */
  readonly pieces: number;
  /** Rows of logits. */
  readonly rows: number;
  /** Pages of a table's row. */
  readonly width: number;
}
interface Known {
  readonly room: Room;
  readonly step: RecordedStep;
}
/** Tokens of prompts in a step are multiples of this: products have tiles of as many rows. */
export const PROMPT_GRAIN = 64;
/**
 * Tokens of prompts that a recorded step has room for, and sequences that write: multiples of `by`, up to `to`. Steps
 * that are full have a multiple of the grain, so the largest sizes are finer than those before them.
 */
const TOKEN_SIZES = [
  { to: 32, by: 16 },
  { to: 256, by: PROMPT_GRAIN },
  { to: 768, by: 128 },
  { to: 1536, by: 256 },
  { to: Infinity, by: PROMPT_GRAIN },
] as const;
const WRITING_SIZES = [
  { to: 8, by: 8 },
  { to: 64, by: 32 },
  { to: Infinity, by: 64 },
] as const;
/** Prompts that begin or end within a step, beside whole pieces. */
const SPARE_PIECES = 8;
/** Pieces of a step, and recordings, at most: what goes beyond is enqueued op by op. */
const MOST_PIECES = 256;
const MOST_RECORDINGS = 128;
/** Tokens up to which a step takes as long as reading the weights does, whatever their number. */
const FEW_TOKENS = 64;
/** How often a size is asked for before it is recorded: with none that serves, and with a larger one in its place. */
const ASKED_BEFORE = { alone: 1, served: 4 } as const;
/** Such a one has room for so many times the tokens: op by op takes longer still. */
const MAKESHIFT = 1.5;

const sizeOf = (n: number, sizes: readonly { readonly to: number; readonly by: number }[]): number => {
  const { by } = sizes.find(({ to }) => n <= to) as (typeof sizes)[number];
  return by * Math.ceil(n / by);
};
const piecesOf = ({ tokens }: Placed): number => Math.ceil(tokens.length / PROMPT_PIECE);
const volume = ({ writing, tokens }: Room): number => writing + tokens;
const holds = (a: Room, b: Room): boolean =>
  a.writing >= b.writing && a.tokens >= b.tokens && a.pieces >= b.pieces && a.rows >= b.rows && a.width >= b.width;

/** Where the numbers of a step lie, in words. */
function placesOf({ writing, tokens, pieces, rows, width }: Room) {
  const sizes = {
    ...{ draws: rows * DRAW_WORDS, fed: writing * DRAW_WORDS },
    ...{ ids: writing + tokens, state: 4 * writing, writingTables: writing * width },
    ...{ positions: tokens, slots: tokens, starts: pieces + 1, lengths: pieces },
    ...{ tables: pieces * width, chosen: rows },
  };
  let end = 0;
  const from = {} as Record<keyof typeof sizes, number>;
  for (const name of Object.keys(sizes) as (keyof typeof sizes)[]) {
    from[name] = end;
    end += sizes[name];
  }
  return { from, sizes, words: end };
}

export interface RecordedPromptsOptions {
  readonly recorder: Recorder;
  readonly draws: DeviceDraws;
  /** Sequences that run at a time, at most. */
  readonly most: number;
  readonly slotOf: (pages: readonly number[], position: number) => number;
  /**
   * Logits of the tokens that `chosen` names, in the model's dtype; `writing` has tables and state of the sequences
   * that have one token each.
   */
  readonly run: (ids: Tensor, layout: PagedLayout, chosen: Tensor, writing?: Writing) => Tensor;
}
/** Tokens, positions, slots and lengths of sequences with one token each, and the pages of these. */
export interface Writing {
  readonly state: Tensor;
  readonly tables: Tensor;
}

export class RecordedPrompts {
  readonly #o: RecordedPromptsOptions;
  #steps: Known[] = [];
  /** How often rooms were asked for: what comes once only is not worth a recording. */
  readonly #asked = new Map<string, number>();
  constructor(options: RecordedPromptsOptions) {
    this.#o = options;
  }
  /** Begins a step, its rows of logits in the order of the work that wants one; undefined where none is recorded. */
  async launch(
    work: readonly Placed[],
    width: number,
    last: ReadonlyMap<Sequence, number>,
  ): Promise<Results | undefined> {
    const need = this.#need(work, width);
    if (need.pieces > MOST_PIECES || work.some((w) => w.rows > 1)) return undefined;
    const found = await this.#serving(need);
    return found?.step.launch((words) => this.#write(words, found.room, work, last));
  }
  #need(work: readonly Placed[], width: number): Room {
    const prompts = work.filter((w) => w.tokens.length > 1);
    return {
      writing: work.length - prompts.length,
      tokens: prompts.reduce((n, w) => n + w.tokens.length, 0),
      pieces: prompts.reduce((n, w) => n + piecesOf(w), 0),
      rows: work.filter((w) => w.rows > 0).length,
      width,
    };
  }
  #roomFor({ writing, tokens, pieces, width }: Room): Room {
    const most = bucketOf(this.#o.most);
    const room = { writing: Math.min(most, sizeOf(writing, WRITING_SIZES)), tokens: sizeOf(tokens, TOKEN_SIZES) };
    const usual = Math.ceil(room.tokens / PROMPT_PIECE) + (tokens > FEW_TOKENS ? SPARE_PIECES : 0);
    const parts = pieces <= usual ? usual : bucketOf(pieces);
    return { ...room, pieces: parts, rows: Math.min(most, bucketOf(room.writing + parts)), width };
  }
  /** The smallest that serves within so many tokens. */
  #known(need: Room, most: number): Known | undefined {
    const fit = this.#steps.filter(({ room }) => holds(room, need) && volume(room) <= most);
    return fit.reduce<Known | undefined>((a, b) => (a && volume(a.room) <= volume(b.room) ? a : b), undefined);
  }
  /** One that is recorded for a need, or as good as that; else a makeshift, or none, until it has been asked for. */
  async #serving(need: Room): Promise<Known | undefined> {
    const room = this.#roomFor(need);
    const found = this.#known(need, Math.max(FEW_TOKENS, volume(room)));
    if (found) return found;
    const makeshift = this.#known(need, MAKESHIFT * volume(room));
    const key = Object.values(room).join();
    const asked = this.#asked.get(key) ?? 0;
    this.#asked.set(key, asked + 1);
    if (asked < ASKED_BEFORE[makeshift ? 'served' : 'alone'] || this.#steps.length >= MOST_RECORDINGS) return makeshift;
    const made = { room, step: await this.#record(room) };
    this.#steps.push(made);
    return made;
  }
  /** Numbers of a step; rows that nobody asked for store nothing, and pieces that nobody asked for have no tokens. */
  #write(words: Int32Array, room: Room, work: readonly Placed[], last: ReadonlyMap<Sequence, number>): void {
    const { draws, slotOf } = this.#o;
    const { writing, rows, width } = room;
    const { from: at, sizes } = placesOf(room);
    const drawRows = new DrawRows(words.buffer, words.byteOffset + 4 * at.draws, rows);
    const fedRows = new DrawRows(words.buffer, words.byteOffset + 4 * at.fed, writing);
    for (let i = 0; i < rows; i++) drawRows.clear(i);
    for (let i = 0; i < writing; i++) fedRows.clear(i);
    words.fill(0, at.ids);
    words.fill(NOWHERE, at.slots, at.slots + sizes.slots);
    words.fill(NOWHERE, at.state + 2 * writing, at.state + 3 * writing);
    words.fill(1, at.state + 3 * writing, at.state + 4 * writing);
    const tableOf = (pages: readonly number[]): readonly number[] =>
      pages.length > width ? pages.slice(0, width) : pages;
    let [writer, piece, token, row] = [0, 0, 0, 0];
    for (const { sequence, pages, start, tokens, draw, rows: wanted } of work) {
      let end = writer;
      if (tokens.length === 1) {
        const numbers = [tokens[0], start, slotOf(pages, start), start + 1];
        numbers.forEach((n, k) => (words[at.state + k * writing + writer] = n));
        words[at.ids + writer] = tokens[0];
        words.set(tableOf(pages), at.writingTables + writer * width);
        fedRows.begin(writer++, tokens[0], tokens[0] === NOT_READ ? last.get(sequence) : undefined);
      } else {
        for (let i = 0; i < tokens.length; i++, token++) {
          words[at.ids + writing + token] = tokens[i];
          words[at.positions + token] = start + i;
          words[at.slots + token] = slotOf(pages, start + i);
        }
        for (let i = 0; i < tokens.length; i += PROMPT_PIECE) {
          const until = Math.min(i + PROMPT_PIECE, tokens.length);
          words.set(tableOf(pages), at.tables + piece * width);
          words[at.lengths + piece++] = start + until;
          words[at.starts + piece] = token - tokens.length + until;
        }
        end = writing + token - 1;
      }
      if (wanted === 0) continue;
      words[at.chosen + row] = end;
      if (draw) draws.place(drawRows, row, { rule: draw, sequence, length: start + tokens.length });
      row++;
    }
    words.fill(token, at.starts + piece + 1, at.starts + sizes.starts);
  }
  #record(room: Room): Promise<RecordedStep> {
    const { recorder, draws, run } = this.#o;
    const { writing, tokens, pieces, width } = room;
    const { from, sizes, words } = placesOf(room);
    const nothing = (w: Int32Array): void => this.#write(w, room, [], new Map());
    return recorder.record(words, nothing, (numbers) => {
      const part = (name: keyof typeof from): Tensor => numbers.narrow(0, from[name], sizes[name]);
      const ids = part('ids');
      if (writing > 0) draws.device.feed(part('fed'), ids, writing);
      const [starts, lengths, tables] = [part('starts'), part('lengths'), part('tables').reshape([pieces, width])];
      const layout: PagedLayout = {
        positions: part('positions').reshape([1, tokens]),
        slots: part('slots'),
        runs: [{ from: 0, sequences: pieces, count: tokens, starts, lengths, tables }],
      };
      const writers = { state: part('state'), tables: part('writingTables').reshape([writing, width]) };
      const all = ids.reshape([1, writing + tokens]);
      const made = run(all, layout, part('chosen'), writing > 0 ? writers : undefined);
      return recorder.leave(made, part('draws'));
    });
  }
  /** The recorder has dropped all steps. */
  forget(): void {
    this.#steps = [];
  }
}
