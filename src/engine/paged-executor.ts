// Steps over pages: keys and values of all sequences in one pool a layer; steps with one new token a sequence are
// recorded once for each size of batch and repeated with other numbers in the same places.
import type { Memory, Recorded } from '../backends/backend.js';
import type { CausalLM } from '../models/index.js';
import { LONE_ROWS } from '../models/experts.js';
import { cacheDType } from '../nn/kv-cache.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor, zeros } from '../tensor/create.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { type Executor, readRows, type Rows, rowWidths, type Work } from './executor.js';
import { offThread } from './off-thread.js';
import { type LayerPages, PagedStep, type Run } from './paged-step.js';
import type { Sequence } from './sequence.js';

export interface PagedOptions {
  readonly pages: number;
  readonly pageTokens: number;
  readonly contextTokens: number;
  /** Steps with at most so many sequences are recorded; 0: none. */
  readonly maxRecorded: number;
}
/** Where nothing is stored. */
const NOWHERE = 2 ** 31 - 1;
/** Sizes of recorded batches: 1, 2, 4, 8, then every 8. */
export const bucketOf = (n: number): number =>
  n <= 8 ? 2 ** Math.ceil(Math.log2(Math.max(1, n))) : 8 * Math.ceil(n / 8);

/** A recorded step and the places of its numbers: tokens, positions, slots, lengths, then tables. */
interface Bucket {
  readonly numbers: Tensor;
  readonly words: Int32Array;
  readonly width: number;
  readonly logits: Tensor;
  readonly best: Tensor;
  readonly recorded: Recorded;
}

/** The system's own memory comes as it is written to; a GPU's is cleared, so that nothing in it is no number. */
const room = (model: CausalLM, shape: number[]): Tensor => {
  const { device } = model;
  const dtype = cacheDType(model.dtype, model.cacheType);
  return device.backend.elsewhere ? Tensor.empty(shape, dtype, device) : zeros(shape, { dtype, device });
};

/** Work with the pages its sequence held when the step was planned: one that is cancelled meanwhile holds none. */
interface Placed extends Work {
  readonly pages: readonly number[];
}

export class PagedExecutor implements Executor {
  readonly shares: boolean;
  readonly cuts = true;
  readonly #model: CausalLM;
  readonly #o: PagedOptions;
  readonly #layers: readonly (LayerPages | undefined)[];
  readonly #columns = new Map<Sequence, Map<number, Tensor>>();
  readonly #buckets = new Map<string, Bucket>();
  /** Where the weights lie and how often they were written to, when somebody looked last. */
  #weights: readonly { readonly memory: Memory; readonly at: number }[] = [];
  /** Layers that are read by the places of one sequence, or remember columns of one. */
  readonly #single: boolean;

  constructor(model: CausalLM, options: PagedOptions) {
    this.#model = model;
    this.#o = options;
    const { layers } = model.config;
    const rows = options.pages * options.pageTokens;
    this.#layers = layers.map(({ mixer: m }, i) => {
      const widths = model.stage && !model.stage.holds(i) ? [] : rowWidths(m, model.cacheType);
      if (widths.length === 0) return undefined;
      const [k, v] = widths.map((w) => keep(room(model, [rows, w])));
      return [k, v] as const;
    });
    this.#single = layers.some(({ mixer: m }) => m.kind !== 'attention');
    // Tables that all steps read are there before the first one runs on another thread.
    for (const { mixer: m } of layers) if (m.kind !== 'conv' && m.rope) model.tables(m.rope, options.contextTokens);
    this.changed();
    this.shares = layers.every(({ mixer: m }) => m.kind !== 'conv');
  }

  changed(): boolean {
    const now = [...this.#model.stateDict().values()].map(({ memory, storage }) => ({ memory, at: storage.version }));
    const before = this.#weights;
    this.#weights = now;
    const moved = now.length !== before.length || now.some(({ memory }, i) => memory !== before[i].memory);
    if (moved) this.#drop(); // recorded steps read weights where they were
    return moved || now.some(({ at }, i) => at !== before[i].at);
  }
  /** Whether a step of so many sequences can be recorded: nothing in it may ask the host. */
  #records(n: number): boolean {
    const { device, config } = this.#model;
    if (n > this.#o.maxRecorded || this.#single || !device.backend.capture || this.#model.talks) return false;
    if (device.backend.elsewhere) return true;
    // On GPUs many rows are sorted by their experts on the host.
    return config.layers.every(({ mlp: m }) => m.kind === 'dense' || bucketOf(n) * m.chosen <= LONE_ROWS);
  }

  async run(asked: readonly Work[], bestOnly: boolean): Promise<Rows> {
    const work: Placed[] = asked.map((w) => ({ ...w, pages: w.sequence.pages }));
    const short = work.every((w) => w.tokens.length === 1 && w.rows === 1);
    if (short && this.#records(work.length)) return this.#repeat(work, bestOnly);
    const made = await offThread(this.#model, () => this.#atOnce(work));
    if (!made) return {};
    const rows = await readRows(made.logits, made.best, bestOnly);
    made.logits.dispose();
    made.best.dispose();
    return rows;
  }

  // ---- any step, op by op ----
  #atOnce(work: readonly Placed[]): { logits: Tensor; best: Tensor } | undefined {
    const { device } = this.#model;
    // Sequences with one new token share a call of attention; others have one each.
    const order = work
      .map((w, i) => ({ w, i }))
      .sort((a, b) => Number(a.w.tokens.length > 1) - Number(b.w.tokens.length > 1));
    const starts: number[] = [];
    let total = 0;
    for (const { w, i } of order) {
      starts[i] = total;
      total += w.tokens.length;
    }
    const flat = order.map(({ w }) => w);
    const wanted = work.flatMap((w, i) =>
      Array.from({ length: w.rows }, (_, r) => starts[i] + w.tokens.length - w.rows + r),
    );
    return scope(() =>
      noGrad(() => {
        const on = (words: Int32Array, shape: number[]): Tensor => tensor(words, { shape, device });
        const ids = on(Int32Array.from(flat.flatMap((w) => w.tokens)), [1, total]);
        const each = <T>(f: (w: Placed, position: number) => T): T[] =>
          flat.flatMap((w) => w.tokens.map((_, i) => f(w, w.start + i)));
        const layout = {
          positions: on(Int32Array.from(each((_, p) => p)), [1, total]),
          slots: on(Int32Array.from(each((w, p) => this.#slot(w.pages, p))), [total]),
          runs: this.#runs(flat, on),
        };
        const x = this.#hidden(ids, layout);
        if (wanted.length === 0) return undefined;
        const chosen = wanted.length === total ? x : x.indexSelect(1, on(Int32Array.from(wanted), [wanted.length]));
        return this.#answers(chosen, wanted.length);
      }),
    );
  }
  #hidden(ids: Tensor, layout: ConstructorParameters<typeof PagedStep>[1]): Tensor {
    const { pageTokens, contextTokens } = this.#o;
    const step = new PagedStep(this.#layers, layout, pageTokens, contextTokens, (columns, layer, last) => {
      columns.get(layer)?.dispose();
      columns.set(layer, keep(last));
    });
    return this.#model.hidden(ids, step);
  }
  #answers(x: Tensor, rows: number): { logits: Tensor; best: Tensor } {
    const y = this.#model.logits(x).reshape([rows, this.#model.config.vocabSize]).cast('f32');
    const logits = y.contiguous();
    return { logits, best: logits.argmax(1) };
  }
  #slot(pages: readonly number[], position: number): number {
    const { pageTokens } = this.#o;
    return pages[Math.floor(position / pageTokens)] * pageTokens + (position % pageTokens);
  }
  #runs(flat: readonly Placed[], on: (words: Int32Array, shape: number[]) => Tensor): Run[] {
    const run = (members: readonly Placed[], from: number): Run => {
      const lengths = members.map((w) => w.start + w.tokens.length);
      const width = Math.ceil(Math.max(...lengths) / this.#o.pageTokens);
      const tables = new Int32Array(members.length * width);
      members.forEach((w, i) => tables.set(w.pages.slice(0, width), i * width));
      const single = this.#single && members.length === 1 ? members[0] : undefined;
      return {
        from,
        sequences: members.length,
        count: members[0].tokens.length,
        tables: on(tables, [members.length, width]),
        lengths: on(Int32Array.from(lengths), [members.length]),
        ...(single && {
          places: on(
            Int32Array.from({ length: lengths[0] }, (_, p) => this.#slot(single.pages, p)),
            [lengths[0]],
          ),
          columns: this.#columnsOf(single.sequence, single.start),
        }),
      };
    };
    const short = this.#single ? 0 : flat.filter((w) => w.tokens.length === 1).length;
    const runs = short > 0 ? [run(flat.slice(0, short), 0)] : [];
    let at = short;
    for (const w of flat.slice(short)) {
      runs.push(run([w], at));
      at += w.tokens.length;
    }
    return runs;
  }
  #columnsOf(sequence: Sequence, start: number): Map<number, Tensor> {
    if (start === 0) this.forget(sequence); // computed from the beginning, perhaps again
    let columns = this.#columns.get(sequence);
    if (!columns) this.#columns.set(sequence, (columns = new Map()));
    return columns;
  }

  // ---- one new token a sequence: recorded ----
  async #repeat(work: readonly Placed[], bestOnly: boolean): Promise<Rows> {
    const { backend } = this.#model.device;
    const n = bucketOf(work.length);
    const longest = Math.max(...work.map((w) => w.pages.length));
    const wide = this.#width(longest);
    // A known step begins at once: the caller has other things to do meanwhile.
    const bucket = this.#buckets.get(`${n} ${wide}`) ?? (await this.#record(n, wide));
    const { words, width, numbers } = bucket;
    words.fill(0);
    words.fill(NOWHERE, 2 * n, 3 * n);
    words.fill(1, 3 * n, 4 * n);
    work.forEach(({ pages, start, tokens }, i) => {
      words[i] = tokens[0];
      words[n + i] = start;
      words[2 * n + i] = this.#slot(pages, start);
      words[3 * n + i] = start + 1;
      words.set(pages, 4 * n + i * width);
    });
    backend.write(numbers.memory, 0, new Uint8Array(words.buffer));
    await bucket.recorded.launch();
    const rows = await readRows(bucket.logits, bucket.best, bestOnly);
    return bestOnly
      ? { best: rows.best?.subarray(0, work.length) }
      : { logits: rows.logits?.subarray(0, work.length * this.#model.config.vocabSize) };
  }
  /** Tables of recorded steps are as wide as the longest sequence needs, in powers of four pages. */
  #width(pages: number): number {
    const most = Math.ceil(this.#o.contextTokens / this.#o.pageTokens);
    if (this.#model.device.backend.elsewhere) return most; // its attention looks at lengths alone
    return Math.min(most, 4 ** Math.max(2, Math.ceil(Math.log2(pages) / 2)));
  }
  async #record(n: number, width: number): Promise<Bucket> {
    const { device } = this.#model;
    const words = new Int32Array(4 * n + n * width);
    words.fill(NOWHERE, 2 * n, 3 * n);
    words.fill(1, 3 * n, 4 * n);
    const numbers = keep(tensor(words, { device }));
    const step = (): { logits: Tensor; best: Tensor } =>
      scope(() =>
        noGrad(() => {
          const part = (from: number, count: number): Tensor => numbers.narrow(0, from, count);
          const tables = part(4 * n, n * width).reshape([n, width]);
          const runs = [{ from: 0, sequences: n, count: 1, tables, lengths: part(3 * n, n) }];
          const positions = part(n, n).reshape([1, n]);
          const x = this.#hidden(part(0, n).reshape([1, n]), { positions, slots: part(2 * n, n), runs });
          return this.#answers(x, n);
        }),
      );
    // Everything runs once before it is recorded: tables are made, kernels are compiled and loaded.
    const first = await offThread(this.#model, step);
    first.logits.dispose();
    first.best.dispose();
    const made: { logits: Tensor; best: Tensor }[] = [];
    const recorded = (device.backend.capture as NonNullable<typeof device.backend.capture>)(() => {
      made.push(step());
    });
    const [{ logits, best }] = made;
    const bucket = { numbers, words, width, logits: keep(logits), best: keep(best), recorded };
    this.#buckets.set(`${n} ${width}`, bucket);
    return bucket;
  }

  forget(sequence: Sequence): void {
    for (const t of this.#columns.get(sequence)?.values() ?? []) t.dispose();
    this.#columns.delete(sequence);
  }
  #drop(): void {
    for (const { numbers, logits, best, recorded } of this.#buckets.values()) {
      for (const t of [numbers, logits, best]) t.dispose();
      recorded.dispose();
    }
    this.#buckets.clear();
  }
  dispose(): void {
    for (const sequence of [...this.#columns.keys()]) this.forget(sequence);
    this.#drop();
    for (const pair of this.#layers) pair?.forEach((t) => t.dispose());
  }
}
