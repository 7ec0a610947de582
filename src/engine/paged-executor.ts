// Steps over pages: keys and values of all sequences in one pool a layer. Steps with one new token a sequence are
// recorded; where the device can, it draws the tokens too.
import type { Memory } from '../backends/backend.js';
import type { CausalLM } from '../models/index.js';
import { keyed, remembers } from '../models/decoder/features.js';
import { cacheDType } from '../nn/kv-cache.js';
import { noGrad } from '../tensor/autograd.js';
import { zeros } from '../tensor/create.js';
import { keep } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { DrawSizes } from '../backends/generation.js';
import { DeviceDraws } from './steps/device-draws.js';
import { type Executor, type Flight, readRows, type Rows, rowWidths, type Work } from './executor.js';
import { FewLaunches } from './steps/few-launches.js';
import { LateForgetting } from './late-forgetting.js';
import { offThread } from './off-thread.js';
import { PagedRows } from './steps/paged-rows.js';
import type { LayerPages, PagedLayout } from './steps/paged-step.js';
import { PROMPT_GRAIN, RecordedPrompts } from './steps/recorded-prompts.js';
import { RecordedSteps } from './steps/recorded-steps.js';
import { bucketOf, type Placed, Recorder } from './steps/recorder.js';
import type { Sequence } from './sequence.js';
import { StepRuns } from './steps/step-runs.js';

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
  /** Where the weights lie and how often they were written to, when somebody looked last. */
  #weights: readonly { readonly memory: Memory; readonly at: number }[] = [];
  /** Draws on the device; none where its memory is the host's. */
  readonly #draws: DeviceDraws | undefined;
  /** Rows of the step that was enqueued last, by sequence. */
  #last = new Map<Sequence, number>();
  readonly #launches: FewLaunches;
  readonly #rows: PagedRows;
  /** Layers that are read by the places of one sequence, or remember columns of one. */
  readonly #single: boolean;

  constructor(model: CausalLM, options: PagedOptions) {
    this.#model = model;
    this.#o = options;
    const { layers } = model.config;
    const places = options.pages * options.pageTokens;
    this.#layers = layers.map(({ mixer: m }, i) => {
      const widths = model.stage && !model.stage.holds(i) ? [] : rowWidths(m, model.cacheType);
      if (widths.length === 0) return undefined;
      const [k, v] = widths.map((w) => keep(room(model, [places, w])));
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
    const joins = gpu !== undefined && this.#layers.every((l) => !l || l[0].dtype === model.dtype);
    this.#launches = new FewLaunches(model, this.#layers, options, this.#draws !== undefined);
    const [layerPages, launches, { pageTokens }] = [this.#layers, this.#launches, options];
    const runs = new StepRuns({
      ...{ pageTokens, single: this.#single, joins },
      columnsOf: (sequence, start) => this.#columnsOf(sequence, start),
    });
    const rows = new PagedRows({ model, layers: layerPages, pageTokens, contextTokens, runs, launches });
    this.#rows = rows;
    const [draws, slotOf] = [this.#draws, (pages: readonly number[], at: number) => runs.slot(pages, at)];
    // Steps with prompts may have more sequences than recorded ones without.
    const recorder = (this.#recorder = new Recorder(model, draws, drawing || maxRecorded));
    const run = (ids: Tensor, layout: PagedLayout, state: Tensor): Tensor => rows.recorded(ids, layout, state);
    this.#recorded = new RecordedSteps({ recorder, draws, slotOf, run });
    if (draws && joins)
      this.#prompts = new RecordedPrompts({
        ...{ recorder, draws, most: drawing, slotOf },
        run: (ids, layout, chosen, writing) => rows.withPrompts(ids, layout, chosen, writing),
      });
    this.changed();
    this.shares = !layers.some(({ mixer: m }) => remembers(m));
  }

  #dropRecorded(): void {
    this.#recorder.drop();
    this.#recorded.forget();
    this.#prompts?.forget();
  }
  changed(): boolean {
    const now = [...this.#model.stateDict().values()].map(({ memory, storage }) => ({ memory, at: storage.version }));
    const before = this.#weights;
    this.#weights = now;
    const moved = now.length !== before.length || now.some(({ memory }, i) => memory !== before[i].memory);
    const changed = moved || now.some(({ at }, i) => at !== before[i].at);
    // Steps in few launches have norms of their own beside the model's.
    if (moved || (changed && this.#launches.haveNorms)) {
      this.#dropRecorded();
      this.#launches.renew();
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
    return this.#records(work.length) && this.#launches.whole?.takes(writing) === true;
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
      const logits = this.#rows.atOnce(work, this.#last);
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
    const logits = recorded ? recorded.logits : this.#rows.atOnce(work, this.#last, draws);
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
    this.#launches.renew();
    for (const pair of this.#layers) pair?.forEach((t) => t.dispose());
  }
}
