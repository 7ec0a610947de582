// Steps over pages: keys and values of all sequences in one pool a layer. Steps with one new token a sequence are
// recorded; where the device can, it draws the tokens too.
import type { Memory } from '../backends/backend.js';
import type { CausalLM, WholeAttend } from '../models/index.js';
import { keyed, remembers } from '../models/decoder/features.js';
import { cacheDType } from '../nn/kv-cache.js';
import { noGrad } from '../tensor/autograd.js';
import { zeros } from '../tensor/create.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { type DrawSizes, PROMPT_PIECE } from '../backends/generation.js';
import { DeviceDraws, DrawRows } from './steps/device-draws.js';
import { type Executor, type Flight, readRows, type Rows, rowWidths, type Work } from './executor.js';
import { LateForgetting } from './late-forgetting.js';
import { LoneStep } from './steps/lone-step.js';
import { offThread } from './off-thread.js';
import { type LayerPages, type PagedLayout, PagedStep, type Run } from './steps/paged-step.js';
import { PROMPT_GRAIN, RecordedPrompts, type Writing } from './steps/recorded-prompts.js';
import { RecordedSteps } from './steps/recorded-steps.js';
import { bucketOf, DRAW_WORDS, type Placed, Recorder } from './steps/recorder.js';
import { NOT_READ, type Sequence } from './sequence.js';
import { StepNumbers } from './steps/step-numbers.js';
import { WholeAttention } from './steps/whole-attention.js';

export interface PagedOptions {
  readonly pages: number;
  readonly pageTokens: number;
  readonly contextTokens: number;
  /** Steps with at most so many sequences are recorded; 0: none. */
  readonly maxRecorded: number;
  /** Sequences that the device draws tokens for at a time, where it can; default 0: the host draws. */
  readonly drawing?: number;
}
/** The system's own memory comes as it is written to; a GPU's is cleared, so that it holds no NaN. */
const room = (model: CausalLM, shape: number[]): Tensor => {
  const { device } = model;
  const dtype = cacheDType(model.dtype, model.cacheType);
  return device.backend.elsewhere ? Tensor.empty(shape, dtype, device) : zeros(shape, { dtype, device });
};

/** What drawing on a device is made for. */
export const drawSizes = ({ config }: CausalLM, sequences: number, context: number): DrawSizes => ({
  ...{ rows: bucketOf(sequences), vocabSize: config.vocabSize, slots: sequences, context },
});

/** A layout less its first tokens, which are a run of their own. */
function withoutFirst({ positions, slots, runs }: PagedLayout, n: number): PagedLayout {
  const rest = slots.size - n;
  if (rest === 0) return { positions, slots, runs };
  return {
    positions: positions.narrow(1, n, rest),
    slots: slots.narrow(0, n, rest),
    runs: runs.slice(1).map((run) => ({ ...run, from: run.from - n })),
  };
}

async function rowOf(logits: Tensor, i: number): Promise<Float32Array> {
  const row = logits.get(i);
  const data = (await row.data()) as Float32Array;
  row.dispose();
  return data;
}

export class PagedExecutor implements Executor {
  readonly shares: boolean;
  readonly cuts = true;
  readonly #model: CausalLM;
  readonly #o: PagedOptions;
  readonly #layers: readonly (LayerPages | undefined)[];
  readonly #columns = new Map<Sequence, Map<string, Tensor>>();
  readonly #forgetting = new LateForgetting((sequence) => this.#forgetNow(sequence));
  readonly #recorder: Recorder;
  readonly #recorded: RecordedSteps;
  /** Recorded steps with prompts; none where the host draws. */
  readonly #prompts: RecordedPrompts | undefined;
  /** Prompts of several sequences are attended in one launch. */
  readonly #joins: boolean;
  /** Where the weights lie and how often they were written to, when somebody looked last. */
  #weights: readonly { readonly memory: Memory; readonly at: number }[] = [];
  /** Draws on the device; none where its memory is the host's. */
  readonly #draws: DeviceDraws | undefined;
  /** Rows of the step that was enqueued last, by sequence. */
  #last = new Map<Sequence, number>();
  /** One sequence alone, or a few, in few launches, where the model's features allow it: by their number. */
  readonly #few = new Map<number, LoneStep | undefined>();
  /** Attention of recorded steps in one launch, where the device has it. */
  #whole: WholeAttention | undefined;
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
    for (const { mixer } of layers) {
      const rope = keyed(mixer)?.rope;
      if (rope) model.tables(rope, options.contextTokens);
    }
    const { drawing = 0, contextTokens, maxRecorded } = options;
    const { gpu } = model.device.backend;
    if (drawing > 0 && gpu) this.#draws = new DeviceDraws(gpu, drawSizes(model, drawing, contextTokens));
    else this.begin = undefined;
    this.#joins = gpu !== undefined && this.#layers.every((l) => !l || l[0].dtype === model.dtype);
    const [draws, slotOf] = [this.#draws, (pages: readonly number[], at: number) => this.#slot(pages, at)];
    // Steps with prompts may have more sequences than recorded ones without.
    const recorder = (this.#recorder = new Recorder(model, draws, drawing || maxRecorded));
    const run = (ids: Tensor, layout: PagedLayout, state: Tensor): Tensor => this.#recordedRows(ids, layout, state);
    this.#recorded = new RecordedSteps({ recorder, draws, slotOf, run });
    if (draws && this.#joins)
      this.#prompts = new RecordedPrompts({
        ...{ recorder, draws, most: drawing, slotOf },
        run: (ids, layout, chosen, writing) => this.#promptRows(ids, layout, chosen, writing),
      });
    this.changed();
    this.shares = !layers.some(({ mixer: m }) => remembers(m));
  }

  /** Logits of a recorded step, in as few launches as the model's features and the number of sequences allow. */
  #recordedRows(ids: Tensor, layout: PagedLayout, state: Tensor): Tensor {
    const n = layout.slots.size;
    const whole = this.#whole?.of(layout.runs[0].tables, state);
    const few = this.#fewStep(n)?.run(layout.runs[0].tables, state);
    return few ?? this.#answers(this.#hidden(ids, layout, whole), n);
  }
  /** The same of a step with prompts, which come after the sequences that write. */
  #promptRows(ids: Tensor, layout: PagedLayout, chosen: Tensor, writing?: Writing): Tensor {
    const whole = writing && this.#whole?.of(writing.tables, writing.state);
    return this.#answers(this.#hidden(ids, layout, whole).indexSelect(1, chosen), chosen.size);
  }
  #fewStep(sequences: number): LoneStep | undefined {
    if (this.#few.has(sequences)) return this.#few.get(sequences);
    const [model, layers] = [this.#model, this.#layers as LayerPages[]];
    const serves =
      this.#draws !== undefined &&
      layers.every((l) => l?.[0].dtype === model.dtype) &&
      LoneStep.serves(model, this.#o.pageTokens, sequences);
    const made = serves ? new LoneStep(model, layers, this.#o, sequences) : undefined;
    this.#few.set(sequences, made);
    return made;
  }
  #dropRecorded(): void {
    this.#recorder.drop();
    this.#recorded.forget();
    this.#prompts?.forget();
  }
  #forgetLaunches(): void {
    this.#whole?.dispose();
    const { maxRecorded, drawing = 0 } = this.#o;
    this.#whole = WholeAttention.serves(this.#model, this.#layers, this.#o)
      ? new WholeAttention(this.#model, this.#layers, { ...this.#o, sequences: bucketOf(drawing || maxRecorded) })
      : undefined;
    for (const step of this.#few.values()) step?.dispose();
    this.#few.clear();
  }
  changed(): boolean {
    const now = [...this.#model.stateDict().values()].map(({ memory, storage }) => ({ memory, at: storage.version }));
    const before = this.#weights;
    this.#weights = now;
    const moved = now.length !== before.length || now.some(({ memory }, i) => memory !== before[i].memory);
    const changed = moved || now.some(({ at }, i) => at !== before[i].at);
    // Steps in few launches have norms of their own beside the model's.
    if (moved || (changed && ([...this.#few.values()].some(Boolean) || this.#whole?.hasNorms))) {
      this.#dropRecorded();
      this.#forgetLaunches();
    }
    return changed;
  }
  /** Whether a step of so many sequences can be recorded: nothing in it may ask the host. */
  #records(n: number): boolean {
    const { device, talks } = this.#model;
    return n <= this.#o.maxRecorded && !this.#single && device.backend.capture !== undefined && !talks;
  }

  /** The same for a step with prompts, of which sequences that write are attended by the launch that does all of it. */
  #recordsPrompts(work: readonly Placed[]): boolean {
    const writing = work.filter((w) => w.tokens.length === 1).length;
    return this.#records(work.length) && this.#whole?.takes(writing) === true;
  }

  get grain(): number {
    return this.#prompts ? PROMPT_GRAIN : 1;
  }
  /** Steps op by op take tokens from where the last one drew them, too. */
  get follows(): boolean {
    return this.#draws !== undefined;
  }

  run(asked: readonly Work[], bestOnly: boolean): Promise<Rows> {
    return this.#forgetting.during(() => this.#run(asked, bestOnly));
  }
  async #run(asked: readonly Work[], bestOnly: boolean): Promise<Rows> {
    const work: Placed[] = asked.map((w) => ({ ...w, pages: w.sequence.pages }));
    const short = work.every((w) => w.tokens.length === 1 && w.rows === 1);
    if (short && this.#records(work.length)) {
      const { logits, best } = await this.#recorded.launch(work, this.#width(work), this.#last);
      const rows = await readRows(logits, bestOnly ? best : undefined);
      const { vocabSize } = this.#model.config;
      return rows.best
        ? { best: rows.best.subarray(0, work.length) }
        : { logits: rows.logits?.subarray(0, work.length * vocabSize) };
    }
    const made = await offThread(this.#model, () => {
      const logits = this.#atOnce(work);
      return logits && { logits, best: bestOnly ? noGrad(() => logits.argmax(1)) : undefined };
    });
    if (!made) return {};
    const rows = await readRows(made.logits, made.best);
    made.logits.dispose();
    made.best?.dispose();
    return rows;
  }
  begin? = async (asked: readonly Work[]): Promise<Flight> => {
    const draws = this.#draws as DeviceDraws;
    const work: Placed[] = asked.map((w) => ({ ...w, pages: w.sequence.pages }));
    const wanted = work.filter((w) => w.rows > 0);
    const short = work.every((w) => w.tokens.length === 1 && w.rows === 1) && this.#records(work.length);
    const width = this.#width(work);
    const recorded = short
      ? await this.#recorded.launch(work, width, this.#last)
      : this.#recordsPrompts(work)
        ? await this.#prompts?.launch(work, width, this.#last)
        : undefined;
    const logits = recorded ? recorded.logits : this.#atOnce(work, draws);
    this.#last = new Map(wanted.map(({ sequence }, i) => [sequence, i]));
    const told = wanted.some((w) => w.draw?.logprobs !== undefined);
    const fetched = draws.device.fetch(wanted.length, told);
    // Rows that the host draws from are read at once: the next step has the same place for its own.
    const given = await Promise.all(wanted.map((w, i) => (w.draw ? undefined : rowOf(logits as Tensor, i))));
    if (!recorded) logits?.dispose();
    const read = async (): Promise<readonly Rows[]> => {
      await draws.device.arrived(fetched);
      const tokens = draws.device.tokensOf(fetched);
      let row = 0;
      return work.map((w) => {
        if (w.rows === 0) return {};
        const i = row++;
        if (!w.draw) return { logits: given[i] as Float32Array };
        const { logprobs } = w.draw;
        return {
          drawn: { token: tokens[i], told: logprobs === undefined ? [] : draws.device.toldOf(fetched, i, logprobs) },
        };
      });
    };
    return { closed: wanted.every((w) => w.draw), read };
  };
  // ---- any step, op by op ----
  /** Rows of logits, with tokens drawn from them where `draws` does so. All numbers of the step are one upload. */
  #atOnce(work: readonly Placed[], draws?: DeviceDraws): Tensor | undefined {
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
    const numbers = new StepNumbers(this.#model.device);
    const drawn = draws && this.#drawRows(work, draws);
    const fed = draws && this.#feedRows(flat);
    const rows = { drawn: drawn && numbers.put(drawn, [drawn.length]), fed: fed && numbers.put(fed, [fed.length]) };
    const each = (f: (w: Placed, position: number) => number): Int32Array => {
      const words = new Int32Array(total);
      let at = 0;
      for (const w of flat) for (let i = 0; i < w.tokens.length; i++) words[at++] = f(w, w.start + i);
      return words;
    };
    const ids = numbers.put(
      each((w, p) => w.tokens[p - w.start]),
      [1, total],
    );
    const positions = numbers.put(
      each((_, p) => p),
      [1, total],
    );
    const slots = numbers.put(
      each((w, p) => this.#slot(w.pages, p)),
      [total],
    );
    // Sequences that write and do not read a prompt: where one launch a layer does their attention, the rest has the
    // ops.
    const short = this.#single ? 0 : flat.filter((w) => w.tokens.length === 1).length;
    const first = short > 0 && this.#whole?.takes(short) ? short : 0;
    const state = first > 0 ? numbers.put(this.#stateOf(flat.slice(0, first)), [4 * first]) : undefined;
    // Also where all of them are wanted: they lie in another order than the work.
    const asTheyLie = wanted.length === total && wanted.every((row, i) => row === i);
    const chosen = asTheyLie ? undefined : numbers.put(Int32Array.from(wanted), [wanted.length]);
    const runs = this.#runs(flat, (words, shape) => numbers.put(words, shape));
    return scope(() =>
      noGrad(() => {
        numbers.send();
        const tokens = ids();
        if (rows.fed) draws?.device.feed(rows.fed(), tokens, (fed as Int32Array).length / DRAW_WORDS);
        const all = { positions: positions(), slots: slots(), runs: runs.map((run) => run()) };
        const x = state
          ? this.#hidden(tokens, withoutFirst(all, first), this.#whole?.of(all.runs[0].tables, state()))
          : this.#hidden(tokens, all);
        if (wanted.length === 0) return undefined;
        const last = chosen ? x.indexSelect(1, chosen()) : x;
        const logits = this.#answers(last, wanted.length).cast('f32').contiguous();
        if (rows.drawn) draws?.device.draw(logits, rows.drawn(), wanted.length);
        return logits;
      }),
    );
  }
  /** Tokens, positions, slots and lengths of sequences with one new token each. */
  #stateOf(work: readonly Placed[]): Int32Array {
    const n = work.length;
    const words = new Int32Array(4 * n);
    work.forEach(({ tokens: [token], start, pages }, i) => {
      [words[i], words[n + i], words[3 * n + i]] = [token, start, start + 1];
      words[2 * n + i] = this.#slot(pages, start);
    });
    return words;
  }
  /** How the rows that are wanted are drawn. */
  #drawRows(work: readonly Placed[], draws: DeviceDraws): Int32Array | undefined {
    const wanted = work.filter((w) => w.rows > 0);
    if (wanted.length === 0) return undefined;
    const words = new Int32Array(wanted.length * DRAW_WORDS);
    const rows = new DrawRows(words.buffer, 0, wanted.length);
    wanted.forEach(({ sequence, start, tokens, draw }, i) => {
      rows.clear(i);
      if (draw) draws.place(rows, i, { rule: draw, sequence, length: start + tokens.length });
    });
    return words;
  }
  /** Which of the first tokens only the device knows: those that the last step drew. */
  #feedRows(flat: readonly Placed[]): Int32Array | undefined {
    const n = flat.filter((w) => w.tokens.length === 1).length;
    if (!flat.some((w) => w.tokens[0] === NOT_READ)) return undefined;
    const words = new Int32Array(n * DRAW_WORDS);
    const rows = new DrawRows(words.buffer, 0, n);
    for (let i = 0; i < n; i++) {
      const { sequence, tokens } = flat[i];
      rows.clear(i);
      rows.begin(i, tokens[0], tokens[0] === NOT_READ ? this.#last.get(sequence) : undefined);
    }
    return words;
  }
  #hidden(ids: Tensor, layout: PagedLayout, attendWhole?: WholeAttend): Tensor {
    const { pageTokens, contextTokens } = this.#o;
    const keepLast = (columns: Map<string, Tensor>, key: string, last: Tensor): void => {
      columns.get(key)?.dispose();
      columns.set(key, keep(last));
    };
    const step = new PagedStep(this.#layers, layout, pageTokens, contextTokens, keepLast, attendWhole);
    return this.#model.hidden(ids, step);
  }
  #answers(x: Tensor, rows: number): Tensor {
    return this.#model.logits(x).reshape([rows, this.#model.config.vocabSize]);
  }
  #slot(pages: readonly number[], position: number): number {
    const { pageTokens } = this.#o;
    return pages[Math.floor(position / pageTokens)] * pageTokens + (position % pageTokens);
  }
  #runs(flat: readonly Placed[], put: (words: Int32Array, shape: number[]) => () => Tensor): (() => Run)[] {
    const run = (members: readonly Placed[], from: number): (() => Run) => {
      const lengths = members.map((w) => w.start + w.tokens.length);
      const single = this.#single && members.length === 1 ? members[0] : undefined;
      const read = this.#read(members, lengths, put);
      const slots = (w: Placed): Int32Array =>
        Int32Array.from({ length: lengths[0] }, (_, p) => this.#slot(w.pages, p));
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
    const short = this.#single ? 0 : flat.filter((w) => w.tokens.length === 1).length;
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
  #read(
    members: readonly Placed[],
    lengths: readonly number[],
    put: (words: Int32Array, shape: number[]) => () => Tensor,
  ): () => Pick<Run, 'tables' | 'lengths'> {
    const n = members.length;
    const width = Math.ceil(Math.max(...lengths) / this.#o.pageTokens);
    const words = new Int32Array(n * width);
    members.forEach((w, i) => words.set(w.pages.slice(0, width), i * width));
    const [tables, all] = [put(words, [n, width]), put(Int32Array.from(lengths), [n])];
    return () => ({ tables: tables(), lengths: all() });
  }
  #columnsOf(sequence: Sequence, start: number): Map<string, Tensor> {
    if (start === 0) this.#forgetNow(sequence); // computed from the beginning, perhaps again
    let columns = this.#columns.get(sequence);
    if (!columns) this.#columns.set(sequence, (columns = new Map()));
    return columns;
  }

  /** Tables of recorded steps are as wide as the longest sequence needs, in powers of four pages. */
  #width(work: readonly Placed[]): number {
    const most = Math.ceil(this.#o.contextTokens / this.#o.pageTokens);
    if (this.#model.device.backend.elsewhere) return most; // its attention looks at lengths alone
    const longest = Math.max(...work.map((w) => w.pages.length));
    return Math.min(most, 4 ** Math.max(2, Math.ceil(Math.log2(longest) / 2)));
  }

  forget(sequence: Sequence): void {
    this.#forgetting.forget(sequence);
  }
  #forgetNow(sequence: Sequence): void {
    for (const t of this.#columns.get(sequence)?.values() ?? []) t.dispose();
    this.#columns.delete(sequence);
    this.#draws?.forget(sequence);
  }
  dispose(): void {
    for (const sequence of [...this.#columns.keys()]) this.#forgetNow(sequence);
    this.#recorder.drop();
    this.#draws?.dispose();
    this.#forgetLaunches();
    for (const pair of this.#layers) pair?.forEach((t) => t.dispose());
  }
}
