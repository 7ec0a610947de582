// Rows of logits of a step over pages: the model run over the step's layout, as it is recorded or op by op.
import type { CausalLM, WholeAttend } from '../../models/index.js';
import { noGrad } from '../../tensor/autograd.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Sequence } from '../sequence.js';
import type { DeviceDraws } from './device-draws.js';
import { drawRows, feedRows } from './draw-words.js';
import type { FewLaunches } from './few-launches.js';
import { type LayerPages, type PagedLayout, PagedStep } from './paged-step.js';
import type { Writing } from './recorded-prompts.js';
import { DRAW_WORDS, type Placed } from './recorder.js';
import { StepNumbers } from './step-numbers.js';
import { type StepRuns, withoutFirst } from './step-runs.js';

export interface PagedRowsParts {
  readonly model: CausalLM;
  readonly layers: readonly (LayerPages | undefined)[];
  readonly pageTokens: number;
  readonly contextTokens: number;
  readonly runs: StepRuns;
  readonly launches: FewLaunches;
}

export class PagedRows {
  readonly #model: CausalLM;
  readonly #layers: readonly (LayerPages | undefined)[];
  readonly #o: Pick<PagedRowsParts, 'pageTokens' | 'contextTokens'>;
  readonly #runs: StepRuns;
  readonly #launches: FewLaunches;

  constructor(parts: PagedRowsParts) {
    this.#model = parts.model;
    this.#layers = parts.layers;
    this.#o = parts;
    this.#runs = parts.runs;
    this.#launches = parts.launches;
  }
  /** Logits of a recorded step, in as few launches as the model's features and the number of sequences allow. */
  recorded(ids: Tensor, layout: PagedLayout, state: Tensor): Tensor {
    const n = layout.slots.size;
    const whole = this.#launches.whole?.of(layout.runs[0].tables, state);
    const few = this.#launches.of(n)?.run(layout.runs[0].tables, state);
    return few ?? this.#answers(this.#hidden(ids, layout, whole), n);
  }
  /** The same of a step with prompts, which come after the sequences that write. */
  withPrompts(ids: Tensor, layout: PagedLayout, chosen: Tensor, writing?: Writing): Tensor {
    const whole = writing && this.#launches.whole?.of(writing.tables, writing.state);
    return this.#answers(this.#hidden(ids, layout, whole).indexSelect(1, chosen), chosen.size);
  }
  /**
   * Any step, op by op: rows of logits, with tokens drawn from them where `draws` does so. All numbers of the step are
   * one upload; `last` has the rows of the step before.
   */
  atOnce(work: readonly Placed[], last: ReadonlyMap<Sequence, number>, draws?: DeviceDraws): Tensor | undefined {
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
    const drawn = draws && drawRows(work, draws);
    const fed = draws && feedRows(flat, last);
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
      each((w, p) => this.#runs.slot(w.pages, p)),
      [total],
    );
    // Sequences that write and do not read a prompt: where one launch a layer does their attention, the rest has the
    // ops.
    const short = this.#runs.shared(flat);
    const first = short > 0 && this.#launches.whole?.takes(short) ? short : 0;
    const state = first > 0 ? numbers.put(this.#runs.stateOf(flat.slice(0, first)), [4 * first]) : undefined;
    // Also where all of them are wanted: they lie in another order than the work.
    const asTheyLie = wanted.length === total && wanted.every((row, i) => row === i);
    const chosen = asTheyLie ? undefined : numbers.put(Int32Array.from(wanted), [wanted.length]);
    const runs = this.#runs.of(flat, (words, shape) => numbers.put(words, shape));
    return scope(() =>
      noGrad(() => {
        numbers.send();
        const tokens = ids();
        if (rows.fed) draws?.device.feed(rows.fed(), tokens, (fed as Int32Array).length / DRAW_WORDS);
        const all = { positions: positions(), slots: slots(), runs: runs.map((run) => run()) };
        const x = state
          ? this.#hidden(tokens, withoutFirst(all, first), this.#launches.whole?.of(all.runs[0].tables, state()))
          : this.#hidden(tokens, all);
        if (wanted.length === 0) return undefined;
        const last = chosen ? x.indexSelect(1, chosen()) : x;
        const logits = this.#answers(last, wanted.length).cast('f32').contiguous();
        if (rows.drawn) draws?.device.draw(logits, rows.drawn(), wanted.length);
        return logits;
      }),
    );
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
}
