// POST /v1/messages: Anthropic's API, translated to the chat request and back.
import { randomBytes } from 'node:crypto';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Usage } from '../../engine/request.js';
import { Answers, type AnswerStep } from '../answers.js';
import type { AnswerPart } from '../answer-parser.js';
import { countTokens, prepareChat } from '../chat-prompt.js';
import { anthropicError, ApiError, badRequest, toApiError } from '../errors.js';
import { readBody, type ServerContext } from '../exchange.js';
import type { ChatRequest, ChatTurn } from '../schemas/chat.js';
import { type Block, countTokensRequest, type MessagesRequest, messagesRequest } from '../schemas/messages.js';
import type { Chatter } from '../served.js';
import type { ServerParts } from '../server-parts.js';
import { EventStream } from '../sse.js';
import { wholeMembers } from '../tools/json-call.js';
import { wholeAnswers } from './chat.js';

const texts = (content: unknown, where: string): string => {
  if (content == null) return '';
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw badRequest(`${where}: neither a text nor a list of blocks`, 'messages');
  return (content as Block[])
    .map((b) => {
      if (b?.type !== 'text')
        throw badRequest(
          `${where}: blocks of type ${JSON.stringify(String(b?.type).slice(0, 40))} are not served`,
          'messages',
        );
      if (typeof b.text !== 'string') throw badRequest(`${where}: a block of type text has a text`, 'messages');
      return b.text;
    })
    .join('\n');
};

/** One message of theirs may be several of ours: results of tools stand alone, before what the user says. */
function turnsOf(message: MessagesRequest['messages'][number], at: number): ChatTurn[] {
  const where = `messages[${at}]`;
  if (typeof message.content === 'string') return [{ role: message.role, content: message.content }];
  const results: ChatTurn[] = [];
  const calls: NonNullable<ChatTurn['tool_calls']> = [];
  const said: Block[] = [];
  let reasoning = '';
  for (const b of message.content) {
    if (b.type === 'tool_result') {
      if (b.tool_use_id === undefined) throw badRequest(`${where}: a tool_result names its tool_use_id`, 'messages');
      results.push({ role: 'tool', tool_call_id: b.tool_use_id, content: texts(b.content, where) });
    } else if (b.type === 'tool_use') {
      if (!b.id || !b.name) throw badRequest(`${where}: a tool_use has an id and a name`, 'messages');
      calls.push({ id: b.id, type: 'function', function: { name: b.name, arguments: JSON.stringify(b.input ?? {}) } });
    } else if (b.type === 'thinking') reasoning += b.thinking ?? '';
    else if (b.type !== 'redacted_thinking') said.push(b);
  }
  const text = texts(said, where);
  if (text === '' && calls.length === 0 && results.length > 0) return results;
  return [
    ...results,
    {
      role: message.role,
      content: text,
      ...(calls.length > 0 && { tool_calls: calls }),
      ...(reasoning !== '' && { reasoning_content: reasoning }),
    },
  ];
}

const CHOICES = { auto: 'auto', any: 'required', none: 'none' } as const;

function toChat(body: Omit<MessagesRequest, 'max_tokens'> & { max_tokens?: number | null }): ChatRequest {
  if (body.thread?.type === 'continue')
    throw new ApiError(404, 'thread: the server keeps no conversations; send all messages', {
      code: 'thread_not_found',
    });
  const system = texts(body.system, 'system');
  const choice = body.tool_choice;
  if (choice?.type === 'tool' && !choice.name) throw badRequest('tool_choice: the tool has a name', 'tool_choice');
  const last = body.messages.at(-1);
  const effort = body.output_config?.effort;
  const format = body.output_config?.format ?? body.output_format;
  return {
    model: body.model,
    messages: [...(system ? [{ role: 'system' as const, content: system }] : []), ...body.messages.flatMap(turnsOf)],
    max_tokens: body.max_tokens,
    stop: body.stop_sequences,
    temperature: body.temperature,
    top_p: body.top_p,
    top_k: body.top_k,
    tools: body.tools
      ?.filter((t) => t.input_schema !== undefined)
      .map((t) => ({
        type: 'function' as const,
        function: { name: t.name, description: t.description, parameters: t.input_schema },
      })),
    tool_choice:
      choice == null
        ? undefined
        : choice.type === 'tool'
          ? { type: 'function', function: { name: choice.name ?? '' } }
          : CHOICES[choice.type],
    parallel_tool_calls: choice?.disable_parallel_tool_use ? false : undefined,
    reasoning_effort: effort,
    response_format: format && { type: 'json_schema', json_schema: { schema: format.schema } },
    chat_template_kwargs: body.thinking && { enable_thinking: body.thinking.type !== 'disabled' },
    // An answer that the client has begun is gone on with.
    continue_final_message: last?.role === 'assistant',
  };
}

const usageOf = async (u: Usage, thoughts: string, { engine }: Chatter): Promise<object> => ({
  input_tokens: u.promptTokens - u.cachedTokens,
  cache_read_input_tokens: u.cachedTokens,
  cache_creation_input_tokens: 0,
  output_tokens: u.tokens,
  output_tokens_details: { thinking_tokens: Math.min(u.tokens, await countTokens(thoughts, engine.tokenizer)) },
});
const stopReason = (step: Pick<AnswerStep, 'finish' | 'stopText'>): string =>
  step.finish === 'length'
    ? 'max_tokens'
    : step.finish === 'tool_calls'
      ? 'tool_use'
      : step.stopText !== undefined
        ? 'stop_sequence'
        : 'end_turn';

export async function messages(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, messagesRequest, parts.limits.bodyBytes);
  const chatter = parts.served.chatter(body.model);
  const { request, parser } = await prepareChat(toChat(body), chatter, c.var.ending.signal);
  const answers = new Answers(c, chatter.engine, request, parts);
  const head = {
    id: `msg_${randomBytes(12).toString('hex')}`,
    type: 'message',
    role: 'assistant',
    model: body.model ?? chatter.engine.name,
  };
  if (body.stream) {
    const steps = await answers.streamed(parser, parts.limits.pingSeconds);
    await streamMessages(c, parts, chatter, answers, steps, head, request.prompt.length);
    return RESPONSE_ALREADY_SENT;
  }
  const [whole] = await wholeAnswers(answers, answers.steps(parser), 1);
  const content = [
    ...(whole.reasoning ? [{ type: 'thinking', thinking: whole.reasoning, signature: '' }] : []),
    ...(whole.text ? [{ type: 'text', text: whole.text }] : []),
    ...whole.calls.map((call) => ({ type: 'tool_use', id: call.id, name: call.name, input: inputOf(call.arguments) })),
  ];
  return c.json({
    ...head,
    content,
    stop_reason: stopReason(whole),
    stop_sequence: whole.finish === 'stop' ? (whole.stopText ?? null) : null,
    usage: await usageOf(await answers.usage, whole.reasoning, chatter),
  });
}
/** Arguments as an object; of those that the limit has cut off, as Anthropic's clients read them, what is whole. */
function inputOf(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return wholeMembers(json) ?? {};
  }
}

/** Blocks of an answer one after another: a part of another kind ends the block before it. */
class Blocks {
  readonly #stream: EventStream;
  #index = -1;
  #kind = '';
  constructor(stream: EventStream) {
    this.#stream = stream;
  }
  add(part: AnswerPart): void {
    if ('text' in part) this.#delta('text', { type: 'text', text: '' }, { type: 'text_delta', text: part.text });
    else if ('reasoning' in part)
      this.#delta(
        'thinking',
        { type: 'thinking', thinking: '', signature: '' },
        { type: 'thinking_delta', thinking: part.reasoning },
      );
    else if ('call' in part)
      this.#open(`call ${part.call.index}`, { type: 'tool_use', id: part.call.id, name: part.call.name, input: {} });
    else this.#send({ type: 'input_json_delta', partial_json: part.arguments.text });
  }
  #delta(kind: string, block: object, delta: object): void {
    if (this.#kind !== kind) this.#open(kind, block);
    this.#send(delta);
  }
  #open(kind: string, block: object): void {
    this.close();
    this.#kind = kind;
    this.#index++;
    this.#stream.event('content_block_start', {
      type: 'content_block_start',
      index: this.#index,
      content_block: block,
    });
  }
  #send(delta: object): void {
    this.#stream.event('content_block_delta', { type: 'content_block_delta', index: this.#index, delta });
  }
  close(): void {
    if (this.#kind !== '') this.#stream.event('content_block_stop', { type: 'content_block_stop', index: this.#index });
    this.#kind = '';
  }
}

async function streamMessages(
  c: ServerContext,
  parts: ServerParts,
  chatter: Chatter,
  answers: Answers,
  steps: AsyncIterable<AnswerStep>,
  head: object,
  promptTokens: number,
): Promise<void> {
  const stream = new EventStream(c.env.outgoing, parts.streaming(c, 'event: ping\ndata: {"type": "ping"}\n\n'));
  const blocks = new Blocks(stream);
  const begin = { ...head, content: [], stop_reason: null, stop_sequence: null };
  stream.event('message_start', {
    type: 'message_start',
    message: { ...begin, usage: { input_tokens: promptTokens, output_tokens: 0 } },
  });
  let thoughts = '';
  let last: Pick<AnswerStep, 'finish' | 'stopText'> = {};
  try {
    for await (const step of steps) {
      for (const part of step.parts) {
        if ('reasoning' in part) thoughts += part.reasoning;
        blocks.add(part);
      }
      if (step.finish) last = step;
      await stream.ready();
    }
    blocks.close();
    stream.event('message_delta', {
      type: 'message_delta',
      delta: { stop_reason: stopReason(last), stop_sequence: last.finish === 'stop' ? (last.stopText ?? null) : null },
      usage: await usageOf(await answers.usage, thoughts, chatter),
    });
    stream.event('message_stop', { type: 'message_stop' });
  } catch (error) {
    parts.failed(c, error);
    stream.event('error', anthropicError(toApiError(error)));
  } finally {
    stream.end();
  }
}

export async function countPrompt(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, countTokensRequest, parts.limits.bodyBytes);
  const chatter = parts.served.chatter(body.model);
  const { request } = await prepareChat(toChat(body), chatter, c.var.ending.signal);
  return c.json({ input_tokens: request.prompt.length });
}
