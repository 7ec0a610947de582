// POST /v1/responses: OpenAI's newer API without its memory of conversations, translated to the chat request and back.
import { randomBytes } from 'node:crypto';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Usage } from '../../engine/request.js';
import { Answers } from '../answers.js';
import { countTokens, prepareChat } from '../chat-prompt.js';
import { ApiError, badRequest, toApiError } from '../errors.js';
import { readBody, type ServerContext } from '../exchange.js';
import type { ChatRequest, ChatTurn } from '../schemas/chat.js';
import { type ResponsesRequest, responsesRequest, type WholeItem, wholeItem } from '../schemas/responses.js';
import type { ServerParts } from '../server-parts.js';
import { EventStream } from '../sse.js';
import { OutputItems } from './response-items.js';

/** A message, and where in the request its content stands. */
type PlacedTurn = ChatTurn & { readonly place: string };

type Recall = (id: string) => unknown;

/** An item as it stands in the input, or the one of an earlier answer that it names. */
function itemOf(item: Exclude<ResponsesRequest['input'], string>[number], at: number, recall: Recall): WholeItem {
  if (item.type !== 'item_reference') return item;
  const kept = recall(item.id);
  if (kept !== undefined) return wholeItem.parse(kept);
  throw new ApiError(
    404,
    `input[${at}]: there is no item ${JSON.stringify(item.id.slice(0, 100))}: items are kept a while, unless store ` +
      'is false, by the process that answered; send the item itself',
    { code: 'item_not_found', param: 'input' },
  );
}

/** Templates know functions: the text that a custom tool took is the one argument of such a call. */
const argumentsOf = (item: Extract<WholeItem, { readonly call_id: string; readonly name: string }>): string =>
  item.type === 'function_call' ? item.arguments : JSON.stringify({ input: item.input });

/** Items of the input as messages; calls that follow one another are one message of the assistant. */
function turnsOf(input: ResponsesRequest['input'], recall: Recall): PlacedTurn[] {
  if (typeof input === 'string') return [{ role: 'user', content: input, place: 'input' }];
  const turns: PlacedTurn[] = [];
  let reasoning: string | undefined;
  for (const [i, given] of input.entries()) {
    const item = itemOf(given, i, recall);
    if (item.type === 'reasoning') {
      reasoning = [...(item.content ?? []), ...(item.summary ?? [])].map((p) => p.text ?? '').join('');
      continue;
    }
    if (item.type === 'function_call_output' || item.type === 'custom_tool_call_output') {
      turns.push({ role: 'tool', tool_call_id: item.call_id, content: item.output, place: `input[${i}].output` });
      continue;
    }
    const thought = reasoning ? { reasoning_content: reasoning } : {};
    reasoning = undefined;
    if (item.type !== 'function_call' && item.type !== 'custom_tool_call') {
      const place = `input[${i}].content`;
      turns.push({ role: item.role, content: item.content, place, ...(item.role === 'assistant' && thought) });
      continue;
    }
    const call = {
      id: item.call_id,
      type: 'function' as const,
      function: { name: item.name, arguments: argumentsOf(item) },
    };
    const last = turns.at(-1);
    if (last?.role === 'assistant')
      turns[turns.length - 1] = { ...last, tool_calls: [...(last.tool_calls ?? []), call] };
    else turns.push({ role: 'assistant', content: null, tool_calls: [call], place: `input[${i}]`, ...thought });
  }
  return turns;
}

function choiceOf(choice: ResponsesRequest['tool_choice']): ChatRequest['tool_choice'] {
  if (choice == null || typeof choice === 'string') return choice;
  const named = ({ name }: { readonly name: string }) => ({ type: 'function' as const, function: { name } });
  if (choice.type === 'function') return named(choice);
  return { type: 'allowed_tools', allowed_tools: { mode: choice.mode, tools: choice.tools.map(named) } };
}

const isRule = ({ role }: ChatTurn): boolean => role === 'system' || role === 'developer';
const partsOf = ({ content }: ChatTurn): { readonly type: string; readonly text?: string | null | undefined }[] =>
  typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
/**
 * Instructions and the rules that follow them are one message: many templates know a system message in the first place
 * only, and pass over others or refuse them.
 */
function withInstructions(instructions: string, turns: readonly PlacedTurn[]): PlacedTurn[] {
  const first: PlacedTurn = { role: 'system', content: instructions, place: 'instructions' };
  const others = turns.findIndex((turn) => !isRule(turn) || partsOf(turn).some(({ text }) => text == null));
  const rules = turns.slice(0, others < 0 ? turns.length : others);
  const content = [first, ...rules]
    .map((turn) =>
      partsOf(turn)
        .map(({ text }) => text)
        .join(''),
    )
    .join('\n\n');
  return [{ ...first, content }, ...turns.slice(rules.length)];
}

function toChat(body: ResponsesRequest, recall: Recall): ChatRequest & { readonly messages: PlacedTurn[] } {
  const { instructions } = body;
  const format = body.text?.format;
  const turns = turnsOf(body.input, recall);
  const messages = instructions ? withInstructions(instructions, turns) : turns;
  if (messages.length === 0) throw badRequest('input: there is nothing to answer', 'input');
  return {
    model: body.model,
    messages,
    max_tokens: body.max_output_tokens,
    temperature: body.temperature,
    top_p: body.top_p,
    tools: body.tools
      ?.filter((t) => t.type === 'function' && t.name !== undefined)
      .map(({ name = '', description, parameters, strict }) => ({
        type: 'function' as const,
        function: { name, description, parameters, strict },
      })),
    tool_choice: choiceOf(body.tool_choice),
    parallel_tool_calls: body.parallel_tool_calls,
    reasoning_effort: body.reasoning?.effort,
    verbosity: body.text?.verbosity,
    response_format:
      format?.type === 'json_schema'
        ? { type: 'json_schema', json_schema: { name: format.name, schema: format.schema } }
        : format,
  };
}

const usageOf = (u: Usage, reasoningTokens: number): object => ({
  input_tokens: u.promptTokens,
  input_tokens_details: { cached_tokens: u.cachedTokens },
  output_tokens: u.tokens,
  output_tokens_details: { reasoning_tokens: Math.min(u.tokens, reasoningTokens) },
  total_tokens: u.promptTokens + u.tokens,
});

/** What every form of a response repeats of its request. */
const headOf = (body: ResponsesRequest, model: string): object => ({
  id: `resp_${randomBytes(16).toString('hex')}`,
  object: 'response',
  created_at: Math.floor(Date.now() / 1000),
  model,
  instructions: body.instructions ?? null,
  max_output_tokens: body.max_output_tokens ?? null,
  metadata: body.metadata ?? {},
  parallel_tool_calls: body.parallel_tool_calls ?? true,
  previous_response_id: null,
  reasoning: { effort: body.reasoning?.effort ?? null, summary: null },
  store: false,
  temperature: body.temperature ?? 1,
  text: { format: body.text?.format ?? { type: 'text' }, verbosity: body.text?.verbosity ?? 'medium' },
  tool_choice: body.tool_choice ?? 'auto',
  tools: body.tools ?? [],
  top_p: body.top_p ?? 1,
  truncation: 'disabled',
  background: false,
  error: null,
  ...(body.user != null && { user: body.user }),
});

export async function responses(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, responsesRequest, parts.limits.bodyBytes);
  const chatter = parts.served.chatter(body.model);
  const { caller } = c.var;
  const chat = toChat(body, (id) => parts.items.find(caller, id));
  const place = (turn: number): string => chat.messages[turn].place;
  const { request, parser, grammarFrom } = await prepareChat(chat, chatter, c.var.ending.signal, place);
  const field = grammarFrom === 'response_format' ? 'text' : grammarFrom;
  const answers = new Answers(c, chatter.engine, request, parts, field);
  const head = headOf(body, body.model ?? chatter.engine.name);
  const open = { incomplete_details: null, output: [], usage: null };
  const steps = body.stream ? await answers.streamed(parser, parts.limits.pingSeconds) : answers.steps(parser);
  const stream = body.stream ? new EventStream(c.env.outgoing, parts.streaming(c)) : undefined;
  let sequence = 0;
  const tell = (type: string, fields: object): void =>
    stream?.event(type, { type, sequence_number: sequence++, ...fields });
  const items = new OutputItems(tell);
  try {
    tell('response.created', { response: { ...head, ...open, status: 'in_progress' } });
    tell('response.in_progress', { response: { ...head, ...open, status: 'in_progress' } });
    let cut = false;
    for await (const step of steps) {
      for (const part of step.parts) items.add(part);
      cut ||= step.finish === 'length';
      await stream?.ready();
    }
    items.close(cut);
    if (body.store !== false) parts.items.keep(caller, items.output);
    const response = {
      ...head,
      status: cut ? 'incomplete' : 'completed',
      incomplete_details: cut ? { reason: 'max_output_tokens' } : null,
      output: items.output,
      usage: usageOf(await answers.usage, await countTokens(items.reasoning, chatter.engine.tokenizer)),
    };
    tell(cut ? 'response.incomplete' : 'response.completed', { response });
    return stream ? RESPONSE_ALREADY_SENT : c.json({ ...response, output_text: items.text });
  } catch (error) {
    if (!stream) throw error;
    parts.failed(c, error);
    const { message, code } = toApiError(error);
    tell('response.failed', {
      response: { ...head, ...open, status: 'failed', error: { code: code ?? 'server_error', message } },
    });
    return RESPONSE_ALREADY_SENT;
  } finally {
    stream?.end();
  }
}
