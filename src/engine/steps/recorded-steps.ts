// Steps with one new token a sequence, recorded once for each size of batch. Where the device draws, tokens come from
// the step before and the draws are part of the recording.
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

/**
 * A recorded step. Its numbers: how rows are drawn, tokens, positions, slots, lengths, then tables of `width` pages.
 */
interface Bucket {
  readonly size: number;
  readonly width: number;
  readonly step: RecordedStep;
}
export interface RecordedOptions {
  readonly recorder: Recorder;
  readonly draws: DeviceDraws | undefined;
  readonly slotOf: (pages: readonly number[], position: number) => number;
  /**
   * Rows of logits of a step, in the model's dtype; `state` has tokens, positions, slots and lengths, one after
   * another.
   */
  readonly run: (ids: Tensor, layout: PagedLayout, state: Tensor) => Tensor;
}

export class RecordedSteps {
  readonly #o: RecordedOptions;
  #buckets: Bucket[] = [];
  constructor(options: RecordedOptions) {
    this.#o = options;
  }
  /**
   * Begins a step with tables of so many pages; what it leaves behind is there until the next one. `last` has the rows
   * of the step before, whose tokens may not be read yet.
   */
  async launch(work: readonly Placed[], width: number, last: ReadonlyMap<Sequence, number>): Promise<Results> {
    // A known step begins at once: the caller has other things to do meanwhile.
    const bucket = this.#known(work.length, width) ?? (await this.#record(bucketOf(work.length), width));
    return bucket.step.launch((words) => this.#write(words, bucket, work, last));
  }
  /**
   * A step that was recorded for so many sequences or, to record takes as long as several steps, for up to a quarter
   * more: rows that nobody asked for cost little where there are many.
   */
  #known(n: number, width: number): Bucket | undefined {
    const most = n <= 8 ? bucketOf(n) : Math.max(bucketOf(n), Math.floor(n * 1.25));
    const fit = this.#buckets.filter((b) => b.size >= n && b.size <= most && b.width >= width);
    return fit.reduce<Bucket | undefined>(
      (a, b) => (a && (a.size < b.size || (a.size === b.size && a.width <= b.width)) ? a : b),
      undefined,
    );
  }
  get #before(): number {
    return this.#o.draws ? DRAW_WORDS : 0;
  }
  /** Numbers of a step; rows that nobody asked for store nothing and are drawn greedily. */
  #write(
    words: Int32Array,
    { size: n, width }: Omit<Bucket, 'step'>,
    work: readonly Placed[],
    last: ReadonlyMap<Sequence, number>,
  ): void {
    const { draws, slotOf } = this.#o;
    const rows = draws && new DrawRows(words.buffer, words.byteOffset, n);
    for (let i = 0; rows && i < n; i++) rows.clear(i);
    const own = words.subarray(this.#before * n);
    own.fill(0);
    own.fill(NOWHERE, 2 * n, 3 * n);
    own.fill(1, 3 * n, 4 * n);
    work.forEach(({ sequence, pages, start, tokens: [token], draw }, i) => {
      own[i] = token;
      own[n + i] = start;
      own[2 * n + i] = slotOf(pages, start);
      own[3 * n + i] = start + 1;
      own.set(pages.length > width ? pages.slice(0, width) : pages, 4 * n + i * width);
      if (!rows) return;
      if (draw) draws.place(rows, i, { rule: draw, sequence, length: start + 1 });
      rows.begin(i, token, token === NOT_READ ? last.get(sequence) : undefined);
    });
  }
  async #record(n: number, width: number): Promise<Bucket> {
    const { recorder, draws, run } = this.#o;
    const before = this.#before * n;
    const size = { size: n, width };
    const step = await recorder.record(
      before + 4 * n + n * width,
      (words) => this.#write(words, size, [], new Map()),
      (numbers) => {
        const part = (from: number, count: number): Tensor => numbers.narrow(0, before + from, count);
        const ids = part(0, n);
        draws?.device.feed(numbers, ids, n);
        const tables = part(4 * n, n * width).reshape([n, width]);
        const runs = [{ from: 0, sequences: n, count: 1, tables, lengths: part(3 * n, n) }];
        const positions = part(n, n).reshape([1, n]);
        const made = run(ids.reshape([1, n]), { positions, slots: part(2 * n, n), runs }, part(0, 4 * n));
        return recorder.leave(made, numbers);
      },
    );
    const bucket = { ...size, step };
    this.#buckets.push(bucket);
    return bucket;
  }
  /** The recorder has dropped all steps. */
  forget(): void {
    this.#buckets = [];
  }
}
