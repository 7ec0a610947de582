// The side of a threaded engine that computes: an engine in a thread of its own, which reads requests from a port and
// sends one message a step.
import type { MessagePort } from 'node:worker_threads';
import type { EngineFacts } from './admission.js';
import type { GenerationRequest, Piece, Usage } from './request.js';
import { sendError, type SentError } from '../base/sent-error.js';
import { Outbox, type StepMessage } from './step-message.js';
import { NOTHING_USED } from './stream.js';
import type { TextEngine } from './text-engine.js';

/**
 * To the thread. A request's signal stays behind: it is cancelled by its number. A prompt's numbers are moved, since
 * copying a list of them takes a hundred times as long.
 */
export type EngineOrder =
  | {
      readonly id: number;
      readonly prompt: Int32Array<ArrayBuffer>;
      readonly request: Omit<GenerationRequest, 'signal' | 'prompt'>;
    }
  | { readonly cancel: number }
  | { readonly dispose: true };
/** From it. */
export type EngineNews<Told = unknown> =
  | { readonly progress: readonly [done: number, all: number, what: string] }
  | { readonly ready: EngineFacts; readonly told: Told }
  | { readonly step: StepMessage }
  /** It cannot begin, or no request is answered any more. */
  | { readonly broken: SentError };

/** What opens an engine in its thread, and what else there is to say of it. */
export interface OpenedEngine<Told> {
  readonly engine: TextEngine;
  readonly told: Told;
  dispose(): Promise<void>;
}
export interface OpenHooks {
  readonly progress: (done: number, all: number, what: string) => void;
  readonly broken: (error: Error) => void;
}

/** Answers what comes over a port, until it is told to dispose of the engine. */
export async function runEngineThread<Told>(
  port: MessagePort,
  open: (hooks: OpenHooks) => Promise<OpenedEngine<Told>>,
): Promise<void> {
  const send = (news: EngineNews<Told>, move: ArrayBuffer[] = []): void => port.postMessage(news, move);
  const broken = (error: unknown): void => send({ broken: sendError(error) });
  try {
    const opened = await open({ progress: (...how) => send({ progress: how }), broken });
    const answers = new PortAnswers(opened.engine, (step) => send({ step }, [step.words.buffer]));
    send({ ready: opened.engine.facts, told: opened.told });
    await new Promise<void>((over) =>
      port.on('message', (order: EngineOrder) => ('dispose' in order ? over() : answers.take(order))),
    );
    await opened.dispose();
    answers.flush();
  } catch (error) {
    broken(error);
  }
  port.close();
}

/** Requests of a port, answered by an engine. */
class PortAnswers {
  readonly #engine: TextEngine;
  readonly #outbox = new Outbox();
  readonly #send: (step: StepMessage) => void;
  /** What ends requests, by their numbers. */
  readonly #cancels = new Map<number, () => void>();
  #scheduled = false;

  constructor(engine: TextEngine, send: (step: StepMessage) => void) {
    this.#engine = engine;
    this.#send = send;
    engine.afterStep = () => this.#later();
  }
  take(order: Exclude<EngineOrder, { dispose: true }>): void {
    if ('cancel' in order) return this.#cancels.get(order.cancel)?.();
    const { id, prompt, request } = order;
    let over = false;
    const end = (usage: Usage, error?: unknown): void => {
      over = true;
      this.#cancels.delete(id);
      this.#outbox.end({ request: id, usage, ...(error !== undefined && { error: sendError(error) }) });
      this.#later();
    };
    const push = (piece: Piece): void => {
      this.#outbox.piece(id, piece);
      this.#later();
    };
    try {
      const known = this.#engine.answer({ ...request, prompt: Array.from(prompt) }, { push, end });
      if (!over) this.#cancels.set(id, () => this.#engine.cancel(known));
    } catch (error) {
      end(NOTHING_USED, error);
    }
    this.#later(); // one more waits
  }
  /** What a step tells, it tells at once: when it has, all of it is one message. */
  #later(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(this.flush);
  }
  readonly flush = (): void => {
    if (this.#scheduled) this.#send(this.#outbox.take(this.#engine.status()));
    this.#scheduled = false;
  };
}
