// The engine: requests in, pieces of text out. One loop takes a step at a time: who is due is the scheduler's to say,
// the model's answers are the executor's, and each answer chooses its own next token.
import { ArgumentError, DisposedError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';
import type { ChatTemplates, Tokenizer } from '../tokenizers/index.js';
import { checkAdmission, type EngineFacts } from './admission.js';
import { Answer, type AnswerShared, Request } from './answer.js';
import { DraftModel } from './draft.js';
import type { EngineOptions, StepTimes } from './engine-options.js';
import { type Executor, pageable, type Rows, SoloExecutor, type Work } from './executor.js';
import { GrammarWorker } from './grammar/grammar.js';
import { PagedExecutor } from './paged-executor.js';
import { planMemory, stepTokensOf, type MemoryPlan } from './memory-plan.js';
import { agreedPlan, followSteps, LeadingExecutor, ranksOf, type StepGroup } from './ranks.js';
import { Rates } from './rates.js';
import type { Engine, EngineLimits, EngineStatus, Generation, GenerationRequest } from './request.js';
import { type Item, Scheduler } from './scheduler.js';
import { Sequence } from './sequence.js';
import { type PieceSink, PieceStream, TokenTexts } from './stream.js';

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

/**
 * Answers many requests at once from one model: new ones join while others run, keys and values lie in pages, and
 * prompts share what they begin with.
 */
export class TextEngine implements Engine {
  /** What APIs call the model. */
  readonly name: string;
  /** How text becomes tokens and back. */
  readonly tokenizer: Tokenizer;
  /** How long, how many at a time, how many may wait. */
  readonly limits: EngineLimits;
  /** What it took of the memory. */
  readonly memory: MemoryPlan;
  readonly #model: CausalLM;
  /** The ranks that share the model: requests are taken on the first, the others follow its steps. */
  readonly #ranks: StepGroup | undefined;
  readonly #executor: Executor;
  readonly #scheduler: Scheduler;
  readonly #shared: AnswerShared;
  readonly #requests = new Map<number, Request>();
  readonly #answers = new Map<Sequence, Answer>();
  readonly #rates = new Rates();
  readonly #mayGoAhead: boolean;
  readonly #onStep: EngineOptions['onStep'];
  /** The step whose tokens are not read yet. */
  #flying: Step | undefined;
  /** Requests with tokens that nobody was told of yet. */
  readonly #untold = new Set<Request>();
  #next = 0;
  #finished = 0;
  #loop: Promise<void> | undefined;
  #disposed = false;
  /** A model that ends with the engine. */
  owns: CausalLM | undefined;
  /** Told after every step, with what it wrote, so that others may hear what it is doing. */
  afterStep: (() => void) | undefined;

  constructor(model: CausalLM, tokenizer: Tokenizer, options: EngineOptions = {}) {
    this.#model = model;
    this.#ranks = ranksOf(model, options.ranks);
    this.tokenizer = tokenizer;
    this.name = options.name ?? model.config.family;
    const plan = planMemory(model, options);
    this.memory = this.#ranks ? agreedPlan(plan, this.#ranks, model) : plan;
    const { pages, pageTokens, contextTokens, maxRunning } = this.memory;
    this.#mayGoAhead = options.ahead ?? true;
    this.#onStep = options.onStep;
    this.limits = { contextTokens, maxRunning, maxWaiting: options.maxWaiting ?? 1024, pages, pageTokens };
    const maxRecorded = options.maxRecorded ?? 256;
    // Ranks draw on the host, from logits that all of them have.
    const drawing = this.#ranks ? 0 : maxRunning;
    const own: Executor = pageable(model, contextTokens)
      ? new PagedExecutor(model, { pages, pageTokens, contextTokens, maxRecorded, drawing })
      : new SoloExecutor(model);
    this.#executor = this.#ranks?.rank === 0 ? new LeadingExecutor(own, this.#ranks, options.onBroken) : own;
    this.#scheduler = new Scheduler({
      pages,
      pageTokens,
      maxRunning,
      ...(own.grain !== undefined && { grain: own.grain }),
      stepTokens: Math.max(maxRunning, options.stepTokens ?? stepTokensOf(model)),
      whole: !this.#executor.cuts,
      reuse: (options.reuse ?? true) && this.#executor.shares,
    });
    this.#shared = {
      tokenizer,
      texts: new TokenTexts(tokenizer),
      ends: model.config.eosTokenIds,
      vocabSize: model.config.vocabSize,
      grammars: options.grammars ?? new GrammarWorker(tokenizer, model.config.vocabSize),
      guesses: this.#executor.shares,
      draft: options.draft && new DraftModel(options.draft, model.config.vocabSize),
    };
  }
  /** The model's chat templates; undefined where it has none. */
  get chatTemplate(): ChatTemplates | undefined {
    return this.tokenizer.chatTemplates;
  }

  /** Whether this is a rank other than the first of those that share the model. */
  get follows(): boolean {
    return this.#ranks !== undefined && this.#ranks.rank > 0;
  }
  /** What ranks other than the first do: they take part in the steps of rank 0's engine until that is disposed of. */
  async follow(): Promise<void> {
    if (!this.#ranks || !this.follows)
      throw new ArgumentError(`engine ${this.name}: only ranks other than the first of a shared model follow`);
    if (this.#disposed) throw new DisposedError(`engine ${this.name}: it was disposed of, or has followed to the end`);
    this.#disposed = true;
    try {
      await followSteps(this.#executor, this.#ranks);
    } finally {
      await this.#shared.grammars.dispose();
      this.owns?.dispose();
    }
  }

  /** What of it stays as it is. */
  get facts(): EngineFacts {
    const { name, limits } = this;
    return { name, limits, vocabSize: this.#model.config.vocabSize, drafts: this.#shared.draft !== undefined };
  }

  /** Begins a request; throws at once where it can never be answered. */
  submit(request: GenerationRequest): Generation {
    const stream: PieceStream = new PieceStream(this.#next, () => this.cancel(stream.id));
    this.answer(request, stream);
    stream.listen(request.signal);
    return stream;
  }
  /** The same, with its pieces told to `sink`; the number by which it is cancelled. */
  answer(request: GenerationRequest, sink: PieceSink): number {
    if (this.#disposed) throw new DisposedError(`engine ${this.name}: it was disposed of`);
    if (this.follows)
      throw new ArgumentError(
        `engine ${this.name}: rank ${this.#ranks?.rank} takes no requests: rank 0 does, and the others call follow()`,
      );
    const { running: runs, waiting: waits } = this.#scheduler;
    const secondsPerAnswer = this.#rates.secondsPerAnswer();
    checkAdmission(request, this.facts, { running: runs.length, waiting: waits.length, secondsPerAnswer });
    const { prompt, n = 1, priority = 0, cacheSalt, promptLogprobs = false } = request;
    const { contextTokens, pageTokens } = this.limits;
    // A model may be trained between answers.
    if (!this.#busy && !this.#flying && this.#executor.changed()) this.#scheduler.pages.forget();
    const running = new Request(this.#next, request, sink);
    const seed = request.seed ?? Math.floor(Math.random() * 2 ** 32);
    const maxLength = Math.min(contextTokens, prompt.length + (request.maxTokens ?? Infinity));
    let first: Sequence | undefined;
    for (let choice = 0; choice < n; choice++) {
      const sequence = new Sequence({
        id: this.#next++,
        prompt,
        maxLength,
        priority,
        pageTokens,
        ...(cacheSalt !== undefined && { salt: cacheSalt }),
        ...(first && this.#scheduler.limits.reuse && { after: first }),
        fresh: promptLogprobs && choice === 0,
      });
      first ??= sequence;
      const answer = new Answer(sequence, running, choice, seed + choice, this.#shared);
      running.answers.push(answer);
      this.#answers.set(sequence, answer);
    }
    this.#requests.set(running.id, running);
    if (request.maxTokens === 0 && !promptLogprobs) for (const a of running.answers) this.#finish(a, 'length');
    else for (const a of running.answers) this.#admit(a);
    this.#start();
    return running.id;
  }
  /** A grammar is compiled before its answer takes part in steps, which others are part of. */
  #admit(answer: Answer): void {
    if (!answer.opened) return this.#scheduler.add(answer.sequence);
    this.#admitAfter(answer, answer.opened);
  }
  #admitAfter(answer: Answer, prepared: Promise<void>): void {
    prepared.then(
      () => {
        if (answer.finished) return;
        this.#scheduler.add(answer.sequence);
        this.#start();
      },
      (e: unknown) => {
        if (!answer.finished) this.#fail(answer, e);
      },
    );
  }
  /** Others do not wait for the mask of a grammar that is late: its answer takes part again when the mask is there. */
  #withdraw(answer: Answer, prepared: Promise<void>): void {
    answer.sequence.giveUpPending();
    this.#executor.forget(answer.sequence);
    this.#scheduler.withdraw(answer.sequence);
    this.#admitAfter(answer, prepared);
  }
  /** Ends a request within one token; of one that has ended, nothing. */
  cancel(id: number): void {
    const request = this.#requests.get(id);
    for (const answer of request?.answers ?? []) if (!answer.finished) this.#finish(answer, 'aborted');
  }
  #finish(answer: Answer, reason: Parameters<Answer['end']>[0]): void {
    answer.end(reason);
    this.#close(answer);
  }
  /** An answer is over: its pages are free, and with the last one its request ends. */
  #close(answer: Answer, error?: unknown): void {
    const { sequence, request } = answer;
    this.#scheduler.remove(sequence);
    this.#executor.forget(sequence);
    this.#answers.delete(sequence);
    sequence.giveUpPending();
    answer.close();
    if (error !== undefined) for (const other of request.answers) if (!other.finished) this.#drop(other);
    if (!request.answers.every((a) => a.finished)) return;
    if (!this.#requests.delete(request.id)) return;
    this.#finished++;
    this.#rates.answered(request.seconds);
    request.end(error);
  }
  #drop(answer: Answer): void {
    answer.finished = true;
    this.#scheduler.remove(answer.sequence);
    this.#executor.forget(answer.sequence);
    this.#answers.delete(answer.sequence);
    answer.close();
  }

  #start(): void {
    this.#loop ??= this.#run().finally(() => {
      this.#loop = undefined;
      if (this.#busy) this.#start();
    });
  }
  get #busy(): boolean {
    const { running, waiting } = this.#scheduler;
    return !this.#disposed && running.length + waiting.length > 0;
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
    const foreseen = (s: Sequence): boolean => this.#answers.get(s)?.foreseen === true;
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
      this.#failed(items, e);
      return undefined;
    }
  }
  /** Guesses for the next step. Whose guesses fail ends by that, and the others go on. */
  async #guess(): Promise<void> {
    const { running, limits } = this.#scheduler;
    if (running.some((s) => s.pending > 0)) return;
    for (const sequence of [...running]) {
      const answer = this.#answers.get(sequence);
      try {
        await answer?.guess(limits.stepTokens);
      } catch (e) {
        if (answer && !answer.finished) this.#fail(answer, e);
      }
    }
  }
  /** Takes what a step drew. Where that fails, the one that has begun after it is of no use either. */
  async #end(step: Step, next?: Step): Promise<boolean> {
    try {
      await this.#take(step);
      return true;
    } catch (e) {
      this.#failed([...step.items, ...(next?.items ?? [])], e);
      return false;
    }
  }
  /** Text of tokens that were drawn, made while the next step runs. A stop text among it ends its answer. */
  #tell(): void {
    for (const request of this.#untold) {
      request.flush();
      for (const answer of request.answers)
        if (answer.finished && this.#answers.has(answer.sequence)) this.#close(answer);
    }
    this.#untold.clear();
    this.afterStep?.();
  }
  #ready(items: Item[]): Item[] {
    const now = performance.now();
    for (const { sequence } of items) this.#answers.get(sequence)?.request.begin(now);
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
    const answers = items.map(({ sequence }) => this.#answers.get(sequence) as Answer);
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
    const { vocabSize } = this.#shared;
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
      if (answer.unprepared && prepared) return this.#withdraw(answer, prepared);
      try {
        const accepted = answer.take(item, rows[i]);
        written += accepted.written;
        this.#scheduler.done(item, accepted.computed);
        if (answer.finished) this.#close(answer);
      } catch (e) {
        this.#fail(answer, e);
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
  /** One request ends by the error, the others of the step are computed again. */
  #failed(items: readonly Item[], error: unknown): void {
    const live = items.filter(({ sequence }) => this.#answers.has(sequence));
    const last = live.reduce<Item | undefined>((a, b) => (a && a.sequence.id > b.sequence.id ? a : b), undefined);
    for (const { sequence } of live) {
      sequence.giveUpPending();
      this.#executor.forget(sequence);
      this.#scheduler.restart(sequence);
    }
    const answer = last && this.#answers.get(last.sequence);
    if (answer) this.#fail(answer, error);
  }
  #fail(answer: Answer, error: unknown): void {
    answer.finished = true;
    this.#close(answer, error);
  }

  /** What it is doing, for metrics. */
  status(): EngineStatus {
    const { pages, running, waiting, prefixHits, preemptions } = this.#scheduler;
    return {
      running: running.length,
      waiting: waiting.length,
      pagesUsed: pages.used,
      pagesTotal: pages.count,
      ...this.#rates.now(),
      prefixHits,
      preemptions,
      finished: this.#finished,
    };
  }
  /** Ends all requests; the model is its owner's. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    for (const id of [...this.#requests.keys()]) this.cancel(id);
    this.#disposed = true;
    await this.#loop;
    this.#executor.dispose();
    this.#shared.draft?.dispose();
    await this.#shared.grammars.dispose();
    this.owns?.dispose();
  }
}
