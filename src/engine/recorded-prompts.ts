// Steps in which some sequences write and others read their prompts, recorded by size: sequences that write, tokens of
// prompts, pieces that these come in. Which tokens, sequences and pages these are is data, so a recording serves every
// mix that fits it.
import { PROMPT_PIECE } from '../backends/gpu/attention-prompts.js';
import type { Tensor } from '../tensor/tensor.js';
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
import { NOT_READ, type Sequence } from './sequence.js';

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
/** Pieces of a step, and recordings, at most: what goes beyond is enqueued op by op. */
const MOST_PIECES = 256;
const MOST_RECORDINGS = 96;
/** Tokens up to which a step takes as long as reading the weights does, whatever their number. */
const FEW_TOKENS = 64;

const upTo = (n: number, grain: number): number => grain * Math.ceil(n / grain);
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
   * Logits of the tokens that `chosen` names, in the model's dtype; `writing` has tables and state of the sequences that
   * have one token each.
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
  /** Rooms that were asked for: what comes once only is not worth a recording. */
  readonly #asked = new Set<string>();
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
    const found = this.#known(need) ?? (await this.#recorded(this.#roomFor(need)));
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
  #roomFor({ writing, tokens, pieces, rows, width }: Room): Room {
    const most = bucketOf(this.#o.most);
    const writers = Math.min(most, writing <= 8 ? 8 * Math.ceil(writing / 8) : upTo(writing, writing <= 64 ? 32 : 64));
    const room = { writing: writers, tokens: tokens <= 16 ? 16 : tokens <= 32 ? 32 : upTo(tokens, PROMPT_GRAIN) };
    // Sequences that write have a row each, and so may those whose prompts end.
    return { ...room, pieces: bucketOf(pieces), rows: Math.min(most, writers + bucketOf(rows)), width };
  }
  /** The smallest that serves; a step with much more room than is needed would take longer. */
  #known(need: Room): Known | undefined {
    const most = Math.max(FEW_TOKENS, 1.0625 * volume(this.#roomFor(need)));
    const fit = this.#steps.filter(({ room }) => holds(room, need) && volume(room) <= most);
    return fit.reduce<Known | undefined>((a, b) => (a && volume(a.room) <= volume(b.room) ? a : b), undefined);
  }
  async #recorded(room: Room): Promise<Known | undefined> {
    const key = Object.values(room).join();
    if (!this.#asked.has(key) || this.#steps.length >= MOST_RECORDINGS) {
      this.#asked.add(key);
      return undefined;
    }
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
