// An engine in a thread of its own, as the thread that serves it sees it: requests go there one by one, what they write
// comes back once a step. Sockets, texts of prompts and JSON take no time from whoever launches the steps.
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { DisposedError } from '../base/errors.js';
import type { ChatTemplates, Tokenizer } from '../tokenizers/index.js';
import { checkAdmission, type EngineFacts } from './admission.js';
import type { EngineNews, EngineOrder } from './engine-thread.js';
import { Rates } from './rates.js';
import type { Engine, EngineLimits, EngineStatus, Generation, GenerationRequest } from './request.js';
import { receiveError } from '../base/sent-error.js';
import { readPieces, type StepMessage } from './step-message.js';
import { NOTHING_USED, PieceStream } from './stream.js';

export interface ThreadOptions {
  /** The module that calls `runEngineThread`. */
  readonly module: URL;
  /** What it reads as `workerData`. */
  readonly data: unknown;
  /** The model's, for this thread. */
  readonly tokenizer: Tokenizer;
  readonly onProgress?: (done: number, all: number, what: string) => void;
  /** Told when no request is answered any more: ranks that it works with have ended, or its thread has. */
  readonly onBroken?: (error: Error) => void;
}
/** A request under way, and how many of its answers are not over. */
interface Live {
  readonly stream: PieceStream;
  readonly begin: number;
  left: number;
}

const IDLE: EngineStatus = {
  ...{ running: 0, waiting: 0, pagesUsed: 0, pagesTotal: 0, tokensPerSecond: 0, promptTokensPerSecond: 0 },
  ...{ tokens: 0, promptTokens: 0, prefixHits: 0, preemptions: 0, finished: 0 },
};

export class ThreadedEngine<Told = unknown> implements Engine {
  readonly name: string;
  readonly tokenizer: Tokenizer;
  readonly limits: EngineLimits;
  /** What the module says of what it opened. */
  readonly told: Told;
  readonly #worker: Worker;
  readonly #facts: EngineFacts;
  readonly #rates = new Rates();
  readonly #live = new Map<number, Live>();
  readonly #onBroken: (error: Error) => void;
  #status: EngineStatus;
  /** Answers that are not over. */
  #answers = 0;
  #next = 0;
  #ended: Promise<void> | undefined;
  #error: Error | undefined;

  /** Starts the thread and waits until its engine is there. */
  static start<Told>(options: ThreadOptions): Promise<ThreadedEngine<Told>> {
    const worker = new Worker(options.module, { workerData: options.data, name: 'wick: engine' });
    return new Promise((resolve, reject) => {
      const fail = (error: unknown): void => {
        void worker.terminate();
        reject(error);
      };
      const first = (news: EngineNews<Told>): void => {
        if ('progress' in news) options.onProgress?.(...news.progress);
        else if ('broken' in news) fail(receiveError(news.broken));
        else if ('ready' in news) {
          worker.off('message', first).off('error', fail);
          resolve(new ThreadedEngine(worker, news.ready, news.told, options));
        }
      };
      worker.on('message', first).on('error', fail);
    });
  }
  private constructor(worker: Worker, facts: EngineFacts, told: Told, { tokenizer, onBroken }: ThreadOptions) {
    this.#worker = worker;
    this.#facts = facts;
    this.told = told;
    this.name = facts.name;
    this.limits = facts.limits;
    this.tokenizer = tokenizer;
    this.#status = { ...IDLE, pagesTotal: facts.limits.pages };
    this.#onBroken = onBroken ?? (() => {});
    worker.on('message', (news: EngineNews<Told>) => {
      if ('step' in news) this.#take(news.step);
      else if ('broken' in news) this.#broke(receiveError(news.broken));
    });
    worker.on('error', (e) => this.#died(e instanceof Error ? e : new Error(String(e))));
    worker.on('exit', () => {
      if (!this.#ended) this.#died(new Error(`engine ${this.name}: its thread has ended`));
    });
  }
  get chatTemplate(): ChatTemplates | undefined {
    return this.tokenizer.chatTemplates;
  }

  submit(request: GenerationRequest): Generation {
    if (this.#ended) throw new DisposedError(`engine ${this.name}: it was disposed of`);
    if (this.#error) throw this.#error;
    const { running } = this.#status;
    const waiting = Math.max(0, this.#answers - running);
    checkAdmission(request, this.#facts, { running, waiting, secondsPerAnswer: this.#rates.secondsPerAnswer() });
    const { signal, prompt, n = 1, ...rest } = request;
    const id = this.#next++;
    const stream = new PieceStream(id, () => this.#order({ cancel: id }));
    const words = Int32Array.from(prompt);
    this.#order({ id, prompt: words, request: { ...rest, n } }, [words.buffer]);
    this.#live.set(id, { stream, begin: performance.now(), left: n });
    this.#answers += n;
    stream.listen(signal);
    return stream;
  }
  #order(order: EngineOrder, move: ArrayBuffer[] = []): void {
    this.#worker.postMessage(order, move);
  }

  #take(step: StepMessage): void {
    const before = this.#status;
    this.#status = step.status;
    if (step.status.tokens > before.tokens) this.#rates.wrote(step.status.tokens - before.tokens);
    if (step.status.promptTokens > before.promptTokens)
      this.#rates.computed(step.status.promptTokens - before.promptTokens);
    readPieces(step, (request, piece) => {
      const live = this.#live.get(request) as Live;
      if (piece.finish) {
        live.left--;
        this.#answers--;
      }
      live.stream.push(piece);
    });
    for (const { request, usage, error } of step.ends) {
      const { stream, left, begin } = this.#live.get(request) as Live;
      this.#live.delete(request);
      this.#answers -= left;
      this.#rates.answered((performance.now() - begin) / 1000);
      stream.end(usage, error && receiveError(error));
    }
  }
  /** Before its end, who serves is told of it; at the end, who asked for that. */
  #broke(error: Error): void {
    if (this.#ended) this.#error ??= error;
    else this.#onBroken(error);
  }
  /** Nobody computes any more: who waits is told why. */
  #died(error: Error): void {
    if (this.#error) return; // told already: after an error comes its end
    this.#error = error;
    for (const { stream } of this.#live.values()) stream.end(NOTHING_USED, error);
    this.#live.clear();
    this.#onBroken(error);
  }

  status(): EngineStatus {
    return { ...this.#status, ...this.#rates.now() };
  }
  /** Ends all requests, the engine and its thread. */
  dispose(): Promise<void> {
    this.#ended ??= this.#end();
    return this.#ended;
  }
  async #end(): Promise<void> {
    if (this.#error) return void (await this.#worker.terminate());
    const exit = once(this.#worker, 'exit');
    this.#order({ dispose: true });
    const [code] = (await exit) as [number];
    for (const { stream } of this.#live.values()) stream.end(NOTHING_USED);
    if (this.#error) throw this.#error;
    if (code !== 0) throw new Error(`engine ${this.name}: its thread ended with ${code}`);
  }
}
