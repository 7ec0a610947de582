// Steps with one new token a sequence, recorded once for each size of batch and repeated with other numbers in the same
// places. Where the device draws, tokens come from the step before and the draws are part of the recording.
import type { Recorded } from '../backends/backend.js';
import { DRAW_ROW } from '../backends/gpu/sample.js';
import type { HostBuffer } from '../driver/driver.js';
import type { CausalLM } from '../models/index.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { castInto } from '../tensor/dispatch.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { type DeviceDraws, DrawRows } from './device-draws.js';
import type { Work } from './executor.js';
import { offThread } from './off-thread.js';
import type { PagedLayout } from './paged-step.js';
import { NOT_READ, type Sequence } from './sequence.js';

/** Work with the pages its sequence held when the step was planned: one that is cancelled meanwhile holds none. */
export interface Placed extends Work {
  readonly pages: readonly number[];
}
/** Where nothing is stored. */
const NOWHERE = 2 ** 31 - 1;
/** Words that say how a row is drawn. */
const DRAW_WORDS = DRAW_ROW.bytes / 4;
/** Sizes of recorded batches: 1, 2, 4, 8, then every 8. */
export const bucketOf = (n: number): number =>
  n <= 8 ? 2 ** Math.ceil(Math.log2(Math.max(1, n))) : 8 * Math.ceil(n / 8);

/** What a step leaves behind. */
interface Results {
  readonly logits: Tensor;
  /** Numbers of the largest, where the host draws. */
  readonly best: Tensor | undefined;
}
/** A recorded step and its numbers: how rows are drawn, tokens, positions, slots, lengths, then tables. */
interface Bucket extends Results {
  readonly size: number;
  readonly width: number;
  readonly numbers: Tensor;
  /** Where the host writes them: two for a device that fetches them by itself, since one may be on its way. */
  readonly words: readonly Int32Array[];
  readonly sent: readonly HostBuffer[];
  turn: number;
  readonly recorded: Recorded;
}
export interface RecordedOptions {
  readonly model: CausalLM;
  /** Sequences of the largest step. */
  readonly most: number;
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
  readonly #buckets = new Map<string, Bucket>();
  /** Where the device draws, one place for the logits of all steps: nobody reads them once the next one runs. */
  #logits: Tensor | undefined;
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
    const { draws, model } = this.#o;
    const words = bucket.words[bucket.turn];
    this.#write(words, bucket, work, last);
    if (draws) {
      draws.device.send(bucket.numbers, bucket.sent[bucket.turn]);
      bucket.turn ^= 1;
    } else model.device.backend.write(bucket.numbers.memory, 0, new Uint8Array(words.buffer));
    await bucket.recorded.launch();
    return bucket;
  }
  /**
   * A step that was recorded for so many sequences or, to record takes as long as several steps, for up to a quarter
   * more: rows that nobody asked for cost little where there are many.
   */
  #known(n: number, width: number): Bucket | undefined {
    const most = n <= 8 ? bucketOf(n) : Math.max(bucketOf(n), Math.floor(n * 1.25));
    const fit = [...this.#buckets.values()].filter((b) => b.size >= n && b.size <= most && b.width >= width);
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
    { size: n, width }: Pick<Bucket, 'size' | 'width'>,
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
    const { model, draws, run } = this.#o;
    const { device } = model;
    const before = this.#before * n;
    const count = before + 4 * n + n * width;
    const sent = draws ? [0, 1].map(() => draws.device.hostBuffer(4 * count)) : [];
    const words = draws
      ? sent.map(({ bytes }) => new Int32Array(bytes.buffer, bytes.byteOffset, count))
      : [new Int32Array(count)];
    this.#write(words[0], { size: n, width }, [], new Map());
    const numbers = keep(tensor(words[0], { device }));
    const part = (from: number, size: number): Tensor => numbers.narrow(0, before + from, size);
    const step = (): Results =>
      scope(() =>
        noGrad(() => {
          const ids = part(0, n);
          draws?.device.feed(numbers, ids, n);
          const tables = part(4 * n, n * width).reshape([n, width]);
          const runs = [{ from: 0, sequences: n, count: 1, tables, lengths: part(3 * n, n) }];
          const positions = part(n, n).reshape([1, n]);
          const made = run(ids.reshape([1, n]), { positions, slots: part(2 * n, n), runs }, part(0, 4 * n));
          if (!draws) {
            const logits = made.cast('f32').contiguous();
            return { logits, best: logits.argmax(1) };
          }
          const logits = this.#place(n);
          castInto(logits, made);
          draws.device.draw(logits, numbers, n);
          return { logits, best: undefined };
        }),
      );
    try {
      // Everything runs once before it is recorded: tables are made, kernels are compiled and loaded.
      const trial = (): Promise<Results> => offThread(model, step);
      const first = draws ? await draws.device.trial(trial) : await trial();
      first.logits.dispose();
      first.best?.dispose();
      const made: Results[] = [];
      const [other] = this.#buckets.values();
      const { backend } = device;
      const recorded = (backend.capture as NonNullable<typeof backend.capture>).call(
        backend,
        () => void made.push(step()),
        other?.recorded,
      );
      const [{ logits, best }] = made;
      const kept = { logits: keep(logits), best: best && keep(best) };
      const bucket = { size: n, width, numbers, words, sent, turn: 0, recorded, ...kept };
      this.#buckets.set(`${n} ${width}`, bucket);
      return bucket;
    } catch (e) {
      numbers.dispose();
      for (const buffer of sent) draws?.device.freeHost(buffer);
      throw e;
    }
  }
  #place(n: number): Tensor {
    const { model, most } = this.#o;
    this.#logits ??= keep(Tensor.empty([bucketOf(most), model.config.vocabSize], 'f32', model.device));
    return this.#logits.narrow(0, 0, n);
  }
  /** Recorded steps read weights where they were: when those move, all are recorded again. */
  drop(): void {
    for (const { numbers, logits, best, recorded, sent } of this.#buckets.values()) {
      recorded.dispose(); // waits for its last run
      for (const t of [numbers, logits, best]) t?.dispose();
      for (const buffer of sent) this.#o.draws?.device.freeHost(buffer);
    }
    this.#buckets.clear();
    this.#logits?.dispose();
    this.#logits = undefined;
  }
}
