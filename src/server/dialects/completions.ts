// POST /v1/completions: texts or token numbers that the model goes on with; benchmarks and scorers use it.
import { randomBytes } from 'node:crypto';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Piece, TokenLogprob, Usage } from '../../engine/request.js';
import type { Tokenizer } from '../../tokenizers/index.js';
import { Answers } from '../answers.js';
import { promptTokens } from '../chat-prompt.js';
import { badRequest, openaiError, toApiError } from '../errors.js';
import { readBody, type ServerContext } from '../exchange.js';
import { type CompletionRequest, completionRequest } from '../schemas/completions.js';
import { samplingOf } from '../sampling.js';
import type { Chatter } from '../served.js';
import type { ServerParts } from '../server-parts.js';
import { EventStream } from '../sse.js';
import { usageOf } from './chat.js';

interface Prompt {
  readonly tokens: readonly number[];
  /** What echo shows. */
  readonly text: string;
}
async function promptsOf(body: CompletionRequest, chatter: Chatter, signal: AbortSignal): Promise<Prompt[]> {
  const { prompt } = body;
  const list = Array.isArray(prompt) && typeof prompt[0] !== 'number' ? prompt : [prompt];
  const one = async (p: string | number[]): Promise<Prompt> => {
    if (typeof p !== 'string') return { tokens: p, text: body.echo ? chatter.engine.tokenizer.decode(p) : '' };
    const tokens = await promptTokens(p, true, chatter, signal);
    // A model that begins texts with a start token takes it alone as an empty prompt.
    const start = chatter.engine.tokenizer.roleId('bos');
    return { tokens: tokens.length === 0 && start !== undefined ? [start] : tokens, text: p };
  };
  const prompts: Prompt[] = [];
  for (const p of list as (string | number[])[]) prompts.push(await one(p));
  return prompts;
}

interface LogprobLists {
  tokens: string[];
  token_logprobs: (number | null)[];
  top_logprobs: (Record<string, number> | null)[];
  text_offset: number[];
}
type Shown = Pick<TokenLogprob, 'token' | 'text'>;
/**
 * Log-probabilities as this API has them: four lists side by side. `state.offset` is where the next token's text
 * begins; special tokens have none in the answer.
 */
function logprobLists(list: readonly TokenLogprob[], state: OffsetState, first?: Shown): LogprobLists {
  const out: LogprobLists = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
  const add = ({ token, text }: Shown, logprob: number | null, top: Record<string, number> | null): void => {
    out.tokens.push(text);
    out.token_logprobs.push(logprob);
    out.top_logprobs.push(top);
    out.text_offset.push(state.offset);
    if (!state.tokenizer.isSpecial(token)) state.offset += text.length;
  };
  if (first) add(first, null, null);
  for (const t of list)
    add(t, t.logprob, Object.fromEntries([...t.top, t].map(({ text, logprob }) => [text, logprob])));
  return out;
}
interface OffsetState {
  readonly tokenizer: Tokenizer;
  offset: number;
}

/** The parts of one answer: text and log-probabilities, the prompt's before them where it is echoed. */
class Completion {
  readonly #body: CompletionRequest;
  readonly #prompt: Prompt;
  readonly #first: Shown;
  readonly #state: OffsetState;
  #begun = false;
  constructor(body: CompletionRequest, prompt: Prompt, chatter: Chatter) {
    this.#body = body;
    this.#prompt = prompt;
    const { tokenizer } = chatter.engine;
    const [token] = prompt.tokens;
    this.#first = { token, text: tokenizer.decode([token], { special: true }) };
    this.#state = { tokenizer, offset: 0 };
  }
  /** Prompt's log-probabilities come in answer 0's first piece and are those of all. */
  add(piece: Piece, ofPrompt: readonly TokenLogprob[] | undefined): { text: string; logprobs: LogprobLists | null } {
    const echo = this.#body.echo && !this.#begun;
    this.#begun = true;
    const text = (echo ? this.#prompt.text : '') + piece.text;
    if (this.#body.logprobs == null) return { text, logprobs: null };
    const list = [...(echo ? (ofPrompt ?? []) : []), ...(piece.logprobs ?? [])];
    return { text, logprobs: logprobLists(list, this.#state, echo ? this.#first : undefined) };
  }
}
const finishOf = (piece: Piece): string | null =>
  piece.finish === undefined ? null : piece.finish === 'length' ? 'length' : 'stop';

export async function completions(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, completionRequest, parts.limits.bodyBytes);
  const chatter = parts.served.chatter(body.model);
  const n = body.n ?? 1;
  if (body.max_tokens === 0 && !body.echo) throw badRequest('max_tokens: 0 has a meaning only with echo', 'max_tokens');
  const { maxRunning, maxWaiting } = chatter.engine.limits;
  const asked = Array.isArray(body.prompt) && typeof body.prompt[0] !== 'number' ? body.prompt.length : 1;
  if (asked * n > Math.max(maxRunning + maxWaiting, n))
    throw badRequest(
      `prompt: ${asked} prompts with ${n} answers each are more than the ${maxRunning + maxWaiting} answers ` +
        'that may run and wait',
      'prompt',
    );
  const prompts = await promptsOf(body, chatter, c.var.ending.signal);
  const work: Work = {
    head: {
      id: `cmpl-${randomBytes(12).toString('hex')}`,
      object: 'text_completion',
      created: Math.floor(Date.now() / 1000),
      model: body.model ?? chatter.engine.name,
      system_fingerprint: parts.fingerprint,
    },
    choices: prompts.flatMap((prompt) => Array.from({ length: n }, () => new Completion(body, prompt, chatter))),
    running: start(c, parts, body, chatter, prompts),
    perPrompt: n,
  };
  return body.stream
    ? streamed(c, parts, work, body.stream_options?.include_usage ?? false)
    : c.json(await wholeAnswer(work));
}

/** One answer to every prompt is under way; `choices` has `perPrompt` of them for each. */
interface Work {
  readonly head: object;
  readonly choices: readonly Completion[];
  readonly running: readonly Answers[];
  readonly perPrompt: number;
}

function start(
  c: ServerContext,
  parts: ServerParts,
  body: CompletionRequest,
  { engine }: Chatter,
  prompts: readonly Prompt[],
): Answers[] {
  const wants = {
    ...samplingOf(body, engine.tokenizer),
    maxTokens: body.max_tokens ?? 16,
    ...(body.logprobs != null && { logprobs: body.logprobs }),
    ...(body.logprobs != null && body.echo && { promptLogprobs: true }),
  };
  const running: Answers[] = [];
  try {
    for (const prompt of prompts) running.push(new Answers(c, engine, { ...wants, prompt: prompt.tokens }, parts));
  } catch (error) {
    for (const answers of running) answers.cancel();
    throw error;
  }
  return running;
}

/** Every answer to every prompt, piece by piece. */
async function readAll(
  { running, perPrompt }: Work,
  take: (index: number, piece: Piece, ofPrompt?: readonly TokenLogprob[]) => Promise<void> | void,
): Promise<void> {
  const one = async (answers: Answers, at: number): Promise<void> => {
    let ofPrompt: readonly TokenLogprob[] | undefined;
    for await (const piece of answers.pieces()) {
      ofPrompt ??= piece.promptLogprobs;
      await take(at * perPrompt + piece.choice, piece, ofPrompt);
    }
  };
  try {
    await Promise.all(running.map(one));
  } finally {
    for (const answers of running) answers.cancel(); // where one failed, the others end, too
  }
}

const usageOfAll = async ({ running }: Work): Promise<object> =>
  usageOf(sum(await Promise.all(running.map((a) => a.usage))));

async function streamed(c: ServerContext, parts: ServerParts, work: Work, withUsage: boolean): Promise<Response> {
  const stream = new EventStream(c.env.outgoing, parts.streaming(c));
  // Only what changes from chunk to chunk is put into text anew.
  const before = `data: ${JSON.stringify(work.head).slice(0, -1)},"choices":[{"index":`;
  const after = withUsage ? '}],"usage":null}\n\n' : '}]}\n\n';
  try {
    await readAll(work, (index, piece, ofPrompt) => {
      const finish = finishOf(piece);
      const { text, logprobs } = work.choices[index].add(piece, ofPrompt);
      if (text !== '' || finish !== null || logprobs?.tokens.length)
        stream.send(
          `${before}${index},"text":${JSON.stringify(text)},"logprobs":${JSON.stringify(logprobs)},` +
            `"finish_reason":${JSON.stringify(finish)}${after}`,
        );
      return stream.ready();
    });
    if (withUsage) stream.data({ ...work.head, choices: [], usage: await usageOfAll(work) });
    stream.send('data: [DONE]\n\n');
  } catch (error) {
    parts.failed(c, error);
    stream.data(openaiError(toApiError(error)));
  } finally {
    stream.end();
  }
  return RESPONSE_ALREADY_SENT;
}

async function wholeAnswer(work: Work): Promise<object> {
  const choices = work.choices.map((_, index) => ({
    index,
    text: '',
    logprobs: null as LogprobLists | null,
    finish_reason: null as string | null,
  }));
  await readAll(work, (index, piece, ofPrompt) => {
    const { text, logprobs } = work.choices[index].add(piece, ofPrompt);
    const choice = choices[index];
    choice.text += text;
    choice.finish_reason ??= finishOf(piece);
    if (!logprobs) return;
    choice.logprobs ??= { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
    for (const key of Object.keys(logprobs) as (keyof LogprobLists)[])
      (choice.logprobs[key] as unknown[]).push(...logprobs[key]);
  });
  return { ...work.head, choices, usage: await usageOfAll(work) };
}

const sum = (list: readonly Usage[]): Usage =>
  list.reduce((a, b) => ({
    ...a,
    promptTokens: a.promptTokens + b.promptTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    tokens: a.tokens + b.tokens,
  }));
