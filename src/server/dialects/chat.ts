// POST /v1/chat/completions: answers as OpenAI's clients read them, whole or in chunks.
import { randomBytes } from 'node:crypto';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { TokenLogprob, Usage } from '../../engine/request.js';
import { Answers, type AnswerStep } from '../answers.js';
import type { AnswerPart } from '../answer-parser.js';
import { countTokens, prepareChat } from '../chat-prompt.js';
import { openaiError, toApiError } from '../errors.js';
import { readBody, type ServerContext } from '../exchange.js';
import { type ChatRequest, chatRequest } from '../schemas/chat.js';
import type { Chatter } from '../served.js';
import type { ServerParts } from '../server-parts.js';
import { EventStream } from '../sse.js';

const likely = (t: { text: string; bytes: readonly number[]; logprob: number }): object => ({
  token: t.text,
  logprob: t.logprob,
  bytes: t.bytes,
});
const logprobsOf = (list: readonly TokenLogprob[] | undefined): object | null =>
  list ? { content: list.map((t) => ({ ...likely(t), top_logprobs: t.top.map(likely) })), refusal: null } : null;

export const usageOf = (u: Usage): object => ({
  prompt_tokens: u.promptTokens,
  completion_tokens: u.tokens,
  total_tokens: u.promptTokens + u.tokens,
  prompt_tokens_details: { cached_tokens: u.cachedTokens },
});
/** The same with what of the answers was thought, which is counted by its text. */
const chatUsage = async (u: Usage, thoughts: readonly string[], { engine }: Chatter): Promise<object> => {
  let tokens = 0;
  for (const text of thoughts) tokens += await countTokens(text, engine.tokenizer);
  return { ...usageOf(u), completion_tokens_details: { reasoning_tokens: Math.min(u.tokens, tokens) } };
};

/** Both names of the reasoning: some clients read one, some the other. */
const delta = (part: AnswerPart): object => {
  if ('text' in part) return { content: part.text };
  if ('reasoning' in part) return { reasoning: part.reasoning, reasoning_content: part.reasoning };
  if ('arguments' in part)
    return { tool_calls: [{ index: part.arguments.index, function: { arguments: part.arguments.text } }] };
  const { index, id, name } = part.call;
  return { tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] };
};

/** One answer, put together from its parts. */
class WholeAnswer {
  text = '';
  reasoning = '';
  readonly calls: { id: string; name: string; arguments: string }[] = [];
  readonly logprobs: TokenLogprob[] = [];
  finish: AnswerStep['finish'];
  stopText: string | undefined;
  add(step: AnswerStep): void {
    for (const part of step.parts) {
      if ('text' in part) this.text += part.text;
      else if ('reasoning' in part) this.reasoning += part.reasoning;
      else if ('call' in part) this.calls.push({ id: part.call.id, name: part.call.name, arguments: '' });
      else this.calls[part.arguments.index].arguments += part.arguments.text;
    }
    this.logprobs.push(...(step.logprobs ?? []));
    this.finish ??= step.finish;
    this.stopText ??= step.stopText;
  }
  message(): object {
    return {
      role: 'assistant',
      content: this.text === '' && this.calls.length > 0 ? null : this.text,
      refusal: null,
      ...(this.reasoning !== '' && { reasoning: this.reasoning, reasoning_content: this.reasoning }),
      ...(this.calls.length > 0 && {
        tool_calls: this.calls.map((c) => ({
          id: c.id,
          type: 'function',
          function: { name: c.name, arguments: c.arguments },
        })),
      }),
    };
  }
}

/** Reads all answers to their end. */
export async function wholeAnswers(
  answers: Answers,
  steps: AsyncIterable<AnswerStep>,
  n: number,
): Promise<WholeAnswer[]> {
  const whole = Array.from({ length: n }, () => new WholeAnswer());
  for await (const step of steps) whole[step.choice].add(step);
  await answers.usage;
  return whole;
}

export async function chatCompletions(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, chatRequest, parts.limits.bodyBytes);
  const chatter = parts.served.chatter(body.model);
  const { request, parser, grammarFrom } = await prepareChat(body, chatter, c.var.ending.signal);
  const answers = new Answers(c, chatter.engine, request, parts, grammarFrom);
  const head = {
    id: `chatcmpl-${randomBytes(12).toString('hex')}`,
    created: Math.floor(Date.now() / 1000),
    model: body.model ?? chatter.engine.name,
    system_fingerprint: parts.fingerprint,
  };
  const n = body.n ?? 1;
  if (body.stream) {
    const steps = await answers.streamed(parser, parts.limits.pingSeconds);
    await streamChat(c, parts, body, chatter, answers, steps, head);
    return RESPONSE_ALREADY_SENT;
  }
  const whole = await wholeAnswers(answers, answers.steps(parser), n);
  return c.json({
    ...head,
    object: 'chat.completion',
    choices: whole.map((answer, index) => ({
      index,
      message: answer.message(),
      logprobs: body.logprobs ? logprobsOf(answer.logprobs) : null,
      finish_reason: answer.finish ?? 'stop',
    })),
    usage: await chatUsage(
      await answers.usage,
      whole.map((answer) => answer.reasoning),
      chatter,
    ),
  });
}

async function streamChat(
  c: ServerContext,
  parts: ServerParts,
  body: ChatRequest,
  chatter: Chatter,
  answers: Answers,
  steps: AsyncIterable<AnswerStep>,
  head: object,
): Promise<void> {
  const n = body.n ?? 1;
  const stream = new EventStream(c.env.outgoing, parts.streaming(c));
  const usage = body.stream_options?.include_usage ? { usage: null } : {};
  const base = JSON.stringify({ ...head, object: 'chat.completion.chunk', ...usage }).slice(0, -1);
  // Only what changes from chunk to chunk is put into text anew.
  const chunk = (index: number, change: object, finish: string | null, logprobs: object | null = null): void =>
    stream.send(
      'data: ' +
        `${base},"choices":[{"index":${index},"delta":${JSON.stringify(change)},` +
        `"logprobs":${JSON.stringify(logprobs)},"finish_reason":${JSON.stringify(finish)}}]}\n\n`,
    );
  try {
    for (let i = 0; i < n; i++) chunk(i, { role: 'assistant', content: '' }, null);
    const waiting: TokenLogprob[][] = Array.from({ length: n }, () => []);
    const thoughts: string[] = Array.from({ length: n }, () => '');
    for await (const step of steps) {
      waiting[step.choice].push(...(step.logprobs ?? []));
      const due = (): object | null =>
        body.logprobs && waiting[step.choice].length > 0 ? logprobsOf(waiting[step.choice].splice(0)) : null;
      for (const part of step.parts) {
        if ('reasoning' in part) thoughts[step.choice] += part.reasoning;
        chunk(step.choice, delta(part), null, due());
      }
      if (step.finish) chunk(step.choice, { content: '' }, step.finish, due());
      await stream.ready();
    }
    if ('usage' in usage) {
      const used = await chatUsage(await answers.usage, thoughts, chatter);
      stream.data({ ...head, object: 'chat.completion.chunk', choices: [], usage: used });
    }
    stream.send('data: [DONE]\n\n');
  } catch (error) {
    parts.failed(c, error);
    stream.data(openaiError(toApiError(error)));
  } finally {
    stream.end();
  }
}
