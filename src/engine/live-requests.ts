// Requests under way and their answers: who takes part in steps, who waits for a grammar, and how each of them ends.
import { Answer, type AnswerShared } from './answer.js';
import type { Executor } from './executor.js';
import type { Rates } from './rates.js';
import type { GenerationRequest } from './request.js';
import { Request } from './running-request.js';
import type { Item, Scheduler } from './scheduler.js';
import { Sequence } from './sequence.js';
import type { PieceSink } from './stream.js';

export interface LiveRequestsParts {
  readonly scheduler: Scheduler;
  readonly executor: Executor;
  readonly shared: AnswerShared;
  readonly rates: Rates;
  readonly contextTokens: number;
  /** Told when there is something to compute. */
  readonly wake: () => void;
}

export class LiveRequests {
  readonly #scheduler: Scheduler;
  readonly #executor: Executor;
  readonly #shared: AnswerShared;
  readonly #rates: Rates;
  readonly #contextTokens: number;
  readonly #wake: () => void;
  readonly #requests = new Map<number, Request<Answer>>();
  readonly #answers = new Map<Sequence, Answer>();
  /** The next request's number. */
  #next = 0;
  #finished = 0;

  constructor({ scheduler, executor, shared, rates, contextTokens, wake }: LiveRequestsParts) {
    this.#scheduler = scheduler;
    this.#executor = executor;
    this.#shared = shared;
    this.#rates = rates;
    this.#contextTokens = contextTokens;
    this.#wake = wake;
  }
  get next(): number {
    return this.#next;
  }
  /** Requests that ended since the start. */
  get finished(): number {
    return this.#finished;
  }
  /** Whose tokens a sequence has; none where its answer is over. */
  answerOf(sequence: Sequence): Answer | undefined {
    return this.#answers.get(sequence);
  }

  /** Takes a request in; the number by which it is cancelled. */
  add(request: GenerationRequest, sink: PieceSink): number {
    const { prompt, n = 1, priority = 0, cacheSalt, promptLogprobs = false } = request;
    const { reuse, pageTokens } = this.#scheduler.limits;
    const running = new Request<Answer>(this.#next, request, sink);
    const seed = request.seed ?? Math.floor(Math.random() * 2 ** 32);
    const maxLength = Math.min(this.#contextTokens, prompt.length + (request.maxTokens ?? Infinity));
    let first: Sequence | undefined;
    for (let choice = 0; choice < n; choice++) {
      const sequence = new Sequence({
        id: this.#next++,
        prompt,
        maxLength,
        priority,
        pageTokens,
        ...(cacheSalt !== undefined && { salt: cacheSalt }),
        ...(first && reuse && { after: first }),
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
    this.#wake();
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
        this.#wake();
      },
      (e: unknown) => {
        if (!answer.finished) this.fail(answer, e);
      },
    );
  }
  /** Others do not wait for the mask of a grammar that is late: its answer takes part again when the mask is there. */
  withdraw(answer: Answer, prepared: Promise<void>): void {
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
  /** Ends all of them. */
  cancelAll(): void {
    for (const id of [...this.#requests.keys()]) this.cancel(id);
  }
  #finish(answer: Answer, reason: Parameters<Answer['end']>[0]): void {
    answer.end(reason);
    this.close(answer);
  }
  /** An answer is over: its pages are free, and with the last one its request ends. */
  close(answer: Answer, error?: unknown): void {
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
  /** One request ends by the error, the others of the step are computed again. */
  failed(items: readonly Item[], error: unknown): void {
    const live = items.filter(({ sequence }) => this.#answers.has(sequence));
    const last = live.reduce<Item | undefined>((a, b) => (a && a.sequence.id > b.sequence.id ? a : b), undefined);
    for (const { sequence } of live) {
      sequence.giveUpPending();
      this.#executor.forget(sequence);
      this.#scheduler.restart(sequence);
    }
    const answer = last && this.#answers.get(last.sequence);
    if (answer) this.fail(answer, error);
  }
  /** The request of an answer ends by an error. */
  fail(answer: Answer, error: unknown): void {
    answer.finished = true;
    this.close(answer, error);
  }
}
