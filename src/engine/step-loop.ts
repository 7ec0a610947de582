// The engine's loop: a step is planned, enqueued and read, one after another, or the next one while the last one's
// tokens are on their way.
import type { Answer } from './answer.js';
import type { EngineOptions, StepTimes } from './engine-options.js';
import type { Executor, Rows, Work } from './executor.js';
import type { LiveRequests } from './live-requests.js';
import type { Rates } from './rates.js';
import type { Request } from './running-request.js';
import type { Item, Scheduler } from './scheduler.js';
import type { Sequence } from './sequence.js';

/** Milliseconds that a step, once computed, waits for the masks of its grammars. */
const LATE_MASK = 100;
async function withinMilliseconds(ms: number, all: Promise<unknown>): Promise<void> {
  let clock: NodeJS.Timeout | undefined;
  await Promise.race([all, new Promise<void>((resolve) => (clock = setTimeout(resolve, ms)))]);
  clearTimeout(clock);
}

/** A step that was begun. */
interface Step {
  readonly items: readonly Item[];
  readonly answers: readonly Answer[];
  readonly preparing: readonly (Promise<void> | undefined)[];
  /** Whether places are kept for its tokens, so that the next one may begin before they are read. */
  readonly closed: boolean;
  /** What comes of each item. */
  readonly read: () => Promise<readonly Rows[]>;
  readonly begun: Pick<StepTimes, 'ahead' | 'plan' | 'enqueue' | 'tell'>;
}
export interface StepLoopParts {
  readonly live: LiveRequests;
  readonly scheduler: Scheduler;
  readonly executor: Executor;
  readonly rates: Rates;
  readonly vocabSize: number;
  readonly mayGoAhead: boolean;
  readonly onStep: EngineOptions['onStep'];
  /** Told after every step, with what it wrote. */
  readonly after: () => void;
}

export class StepLoop {
  readonly #live: LiveRequests;
  readonly #scheduler: Scheduler;
  readonly #executor: Executor;
  readonly #rates: Rates;
  readonly #vocabSize: number;
  readonly #mayGoAhead: boolean;
  readonly #onStep: EngineOptions['onStep'];
  readonly #after: () => void;
  /** The step whose tokens are not read yet. */
  #flying: Step | undefined;
  /** Requests with tokens that nobody was told of yet. */
  readonly #untold = new Set<Request<Answer>>();
  #loop: Promise<void> | undefined;
  #stopped = false;

  constructor({ live, scheduler, executor, rates, vocabSize, mayGoAhead, onStep, after }: StepLoopParts) {
    this.#live = live;
    this.#scheduler = scheduler;
    this.#executor = executor;
    this.#rates = rates;
    this.#vocabSize = vocabSize;
    this.#mayGoAhead = mayGoAhead;
    this.#onStep = onStep;
    this.#after = after;
  }
  /** Whether nothing is computed and nobody waits for it. */
  get idle(): boolean {
    return !this.#busy && !this.#flying;
  }
  /** Takes no further step. Resolves when the one under way has ended; undefined where there is none to wait for. */
  stop(): Promise<void> | undefined {
    this.#stopped = true;
    return this.#loop;
  }
  /** Goes on until nothing is left to do. */
  start(): void {
    this.#loop ??= this.#run().finally(() => {
      this.#loop = undefined;
      if (this.#busy) this.start();
    });
  }
  get #busy(): boolean {
    const { running, waiting } = this.#scheduler;
    return !this.#stopped && running.length + waiting.length > 0;
  }
  async #run(): Promise<void> {
    while (this.#busy || this.#flying) {
      // Timers, sockets and signals have their turn before every step.
      await new Promise<void>((r) => setImmediate(r));
      const last = this.#flying;
      const ahead = last !== undefined && this.#busy && this.#goesAhead(last);
      if (last && !ahead) {
        await this.#end(last);
        this.#flying = undefined;
      }
      const next = this.#busy ? await this.#begin() : undefined;
      this.#flying = last && ahead && !(await this.#end(last, next)) ? undefined : next;
    }
    this.#tell();
  }
  /** Whether the next step needs nothing that only the last one's tokens tell. */
  #goesAhead(last: Step): boolean {
    if (!this.#mayGoAhead || !last.closed || !this.#executor.follows) return false;
    const { running, waiting } = this.#scheduler;
    const foreseen = (s: Sequence): boolean => this.#live.answerOf(s)?.foreseen === true;
    if (!running.every(foreseen) || !waiting.every(foreseen)) return false;
    return running.some((s) => !s.ending) || this.#scheduler.admits;
  }
  /** The next step, under way; none where nothing can run or it failed to begin. */
  async #begin(): Promise<Step | undefined> {
    const from = performance.now();
    await this.#guess();
    const items = this.#ready(this.#scheduler.plan());
    if (items.length === 0) return undefined;
    try {
      return await this.#enqueue(items, performance.now() - from);
    } catch (e) {
      this.#live.failed(items, e);
      return undefined;
    }
  }
  /** Guesses for the next step. Whose guesses fail ends by that, and the others go on. */
  async #guess(): Promise<void> {
    const { running, limits } = this.#scheduler;
    if (running.some((s) => s.pending > 0)) return;
    for (const sequence of [...running]) {
      const answer = this.#live.answerOf(sequence);
      try {
        await answer?.guess(limits.stepTokens);
      } catch (e) {
        if (answer && !answer.finished) this.#live.fail(answer, e);
      }
    }
  }
  /** Takes what a step drew. Where that fails, the one that has begun after it is of no use either. */
  async #end(step: Step, next?: Step): Promise<boolean> {
    try {
      await this.#take(step);
      return true;
    } catch (e) {
      this.#live.failed([...step.items, ...(next?.items ?? [])], e);
      return false;
    }
  }
  /** Text of tokens that were drawn, made while the next step runs. A stop text among it ends its answer. */
  #tell(): void {
    for (const request of this.#untold) {
      request.flush();
      for (const answer of request.answers)
        if (answer.finished && this.#live.answerOf(answer.sequence)) this.#live.close(answer);
    }
    this.#untold.clear();
    this.#after();
  }
  #ready(items: Item[]): Item[] {
    const now = performance.now();
    for (const { sequence } of items) this.#live.answerOf(sequence)?.request.begin(now);
    return items;
  }
  async #enqueue(items: readonly Item[], plan: number): Promise<Step> {
    const ahead = this.#flying !== undefined;
    const from = performance.now();
    /** Enqueued now: what was drawn before is told while the step runs. */
    const told = (): Step['begun'] => {
      const enqueued = performance.now();
      this.#tell();
      return { ahead, plan, enqueue: enqueued - from, tell: performance.now() - enqueued };
    };
    const answers = items.map(({ sequence }) => this.#live.answerOf(sequence) as Answer);
    const work: Work[] = items.map((item, i) => ({ ...item, rows: answers[i].rowsOf(item), draw: answers[i].rule }));
    const preparing = answers.map((a, i) => (items[i].draws ? a.prepare() : undefined));
    if (this.#executor.begin && work.every(({ rows }) => rows <= 1)) {
      const { closed, read } = await this.#executor.begin(work);
      const begun = told();
      for (const item of closed ? items : []) {
        if (item.sequence.state !== 'running') continue; // cancelled while the step was recorded, or by its text
        this.#scheduler.begun(item);
        if (item.draws) item.sequence.expect();
      }
      return { items, answers, preparing, closed, read, begun };
    }
    const bestOnly = work.every(({ rows }, i) => rows === 0 || answers[i].plain);
    const running = this.#executor.run(work, bestOnly);
    running.catch(() => {}); // who reads it is told
    const begun = told();
    const vocabSize = this.#vocabSize;
    const read = async (): Promise<Rows[]> => {
      const rows = await running;
      let at = 0;
      return work.map(({ rows: n }) => {
        const from = at;
        at += n;
        return {
          ...(rows.best && { best: rows.best.subarray(from, at) }),
          ...(rows.logits && { logits: rows.logits.subarray(from * vocabSize, at * vocabSize) }),
        };
      });
    };
    return { items, answers, preparing, closed: false, read, begun };
  }
  async #take({ items, answers, preparing, read, begun }: Step): Promise<void> {
    const from = performance.now();
    const rows = await read();
    if (answers.some((a) => a.unprepared)) await withinMilliseconds(LATE_MASK, Promise.all(preparing));
    const there = performance.now();
    let [computed, written] = [0, 0];
    items.forEach((item, i) => {
      const answer = answers[i];
      this.#untold.add(answer.request);
      const before = item.sequence.promptLength - item.start;
      computed += Math.max(0, Math.min(before, item.tokens.length));
      if (answer.finished) return; // cancelled while it was computed, or ended by the token before
      const prepared = preparing[i];
      if (answer.unprepared && prepared) return this.#live.withdraw(answer, prepared);
      try {
        const accepted = answer.take(item, rows[i]);
        written += accepted.written;
        this.#scheduler.done(item, accepted.computed);
        if (answer.finished) this.#live.close(answer);
      } catch (e) {
        this.#live.fail(answer, e);
      }
    });
    this.#rates.computed(computed);
    this.#rates.wrote(written);
    if (!this.#onStep) return;
    const [tokens, at] = [items.reduce((n, i) => n + i.tokens.length, 0), performance.now()];
    try {
      this.#onStep({ sequences: items.length, tokens, ...begun, wait: there - from, take: at - there, at });
    } catch (e) {
      // No request is at fault: the program hears of it as of every error that nobody catches.
      queueMicrotask(() => {
        throw e;
      });
    }
  }
}
