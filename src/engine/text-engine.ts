// The engine: requests in, pieces of text out. One loop (step-loop.ts) takes a step at a time: who is due is the
// scheduler's to say, the model's answers are the executor's, and each answer (live-requests.ts keeps them) chooses its
// own next token.
import { ArgumentError, DisposedError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';
import type { ChatTemplates, Tokenizer } from '../tokenizers/index.js';
import { checkAdmission, type EngineFacts } from './admission.js';
import type { AnswerShared } from './answer.js';
import { DraftModel } from './draft.js';
import type { EngineOptions } from './engine-options.js';
import { type Executor, pageable, SoloExecutor } from './executor.js';
import { GrammarWorker } from './grammar/grammar.js';
import { LiveRequests } from './live-requests.js';
import { PagedExecutor } from './paged-executor.js';
import { planMemory, stepTokensOf, type MemoryPlan } from './memory-plan.js';
import { agreedPlan, followSteps, LeadingExecutor, ranksOf, type StepGroup } from './ranks.js';
import { Rates } from './rates.js';
import type { Engine, EngineLimits, EngineStatus, Generation, GenerationRequest } from './request.js';
import { Scheduler } from './scheduler.js';
import { StepLoop } from './step-loop.js';
import { type PieceSink, PieceStream, TokenTexts } from './stream.js';

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
  readonly #live: LiveRequests;
  readonly #loop: StepLoop;
  readonly #rates = new Rates();
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
    const [scheduler, executor, rates] = [this.#scheduler, this.#executor, this.#rates];
    const { vocabSize } = model.config;
    const wake = (): void => this.#loop.start();
    const live = new LiveRequests({ scheduler, executor, shared: this.#shared, rates, contextTokens, wake });
    this.#live = live;
    this.#loop = new StepLoop({
      ...{ live, scheduler, executor, rates, vocabSize },
      mayGoAhead: options.ahead ?? true,
      onStep: options.onStep,
      after: () => this.afterStep?.(),
    });
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
    const stream: PieceStream = new PieceStream(this.#live.next, () => this.cancel(stream.id));
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
    // A model may be trained between answers.
    if (this.#loop.idle && this.#executor.changed()) this.#scheduler.pages.forget();
    return this.#live.add(request, sink);
  }
  /** Ends a request within one token; of one that has ended, nothing. */
  cancel(id: number): void {
    this.#live.cancel(id);
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
      finished: this.#live.finished,
    };
  }
  /** Ends all requests; the model is its owner's. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#live.cancelAll();
    this.#disposed = true;
    const underWay = this.#loop.stop();
    if (underWay) await underWay; // an engine at rest gives its memory back, and tells its ranks, before this returns
    this.#executor.dispose();
    this.#shared.draft?.dispose();
    await this.#shared.grammars.dispose();
    this.owns?.dispose();
  }
}
