// What stands against a request before it is taken: asked by an engine, and by who passes requests on to its thread.
import { ArgumentError } from '../base/errors.js';
import { checkRequest } from './check-request.js';
import { ContextError, type EngineLimits, type GenerationRequest, QueueFullError } from './request.js';

/** What of an engine stays as it is. */
export interface EngineFacts {
  readonly name: string;
  readonly limits: EngineLimits;
  readonly vocabSize: number;
  /** Whether it has a draft model. */
  readonly drafts: boolean;
}
/** What it has to do. */
export interface EngineLoad {
  readonly running: number;
  readonly waiting: number;
  readonly secondsPerAnswer: number;
}

/** Throws where a request can never be answered, or not now. */
export function checkAdmission(request: GenerationRequest, facts: EngineFacts, load: EngineLoad): void {
  const { name, limits, vocabSize, drafts } = facts;
  const { contextTokens, maxWaiting, maxRunning } = limits;
  checkRequest(request, vocabSize);
  if (request.speculate === 'draft' && !drafts)
    throw new ArgumentError(`engine ${name}: it has no draft model to speculate with`);
  const { prompt, n = 1 } = request;
  if (prompt.length >= contextTokens) throw new ContextError(prompt.length, contextTokens);
  const { running, waiting, secondsPerAnswer } = load;
  if (waiting + n <= maxWaiting + maxRunning - running || waiting === 0) return;
  throw new QueueFullError(
    `engine ${name}: ${waiting} answers wait and at most ${maxWaiting} may; try again later`,
    Math.min(60, Math.max(1, Math.ceil((waiting * secondsPerAnswer) / maxRunning))),
  );
}
