// From a chat request to the engine's: messages by the model's template, tools, grammar, limits.
import type { GenerationRequest, Grammar } from '../engine/request.js';
import type { ChatMessage } from '../tokenizers/index.js';
import { AnswerParser, type ParserOptions } from './answer-parser.js';
import { ApiError, badRequest } from './errors.js';
import type { ChatRequest, ChatTurn, Tool } from './schemas/chat.js';
import { samplingOf } from './sampling.js';
import type { Chatter } from './served.js';
import { ArgumentsReader, JsonCallsReader } from './tools/readers.js';
import type { ToolSchemas } from './tools/call.js';
import { HERMES } from './tools/formats.js';

export type GrammarField = 'tools' | 'response_format';
export interface PreparedChat {
  readonly request: GenerationRequest;
  /** The field of a chat request that its grammar comes from. */
  readonly grammarFrom?: GrammarField;
  /** A parser for each answer. */
  readonly parser: () => AnswerParser;
}

/** Where in the request the content of a turn stands. */
type Place = (turn: number) => string;
const inMessages: Place = (turn) => `messages[${turn}].content`;

/** The words of a message; pictures, sounds and files are refused by name, so that no address is ever opened. */
function textOf(turn: ChatTurn, where: string): string {
  if (turn.content == null) return turn.refusal ?? '';
  if (typeof turn.content === 'string') return turn.content;
  return turn.content
    .map((part, i) => {
      const refuse = (why: string): ApiError => badRequest(`${where}[${i}]${why}`, /^\w+/.exec(where)?.[0]);
      if (!/(^|_)text$|^refusal$/.test(part.type))
        throw refuse(`: parts of type ${JSON.stringify(part.type.slice(0, 40))} are not served; only text is`);
      const text = part.text ?? part.refusal;
      if (text == null) throw refuse('.text: is missing; a string is expected');
      return text;
    })
    .join('');
}

/** Arguments as templates want them: an object. What is none, for a model once wrote it so, stays as it is. */
function objectOf(json: string): unknown {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null ? value : json;
  } catch {
    return json;
  }
}

/** Messages as templates read them. */
function templateMessages(turns: readonly ChatTurn[], { template = '', tools }: Chatter, place: Place): ChatMessage[] {
  const callId = tools?.callId ?? ((id?: string): string => id ?? '');
  const names = new Map<string, string>();
  return turns.map((turn, i) => {
    for (const call of turn.tool_calls ?? []) names.set(call.id, call.function.name);
    const reasoning = turn.reasoning_content ?? turn.reasoning;
    const name = turn.name ?? (turn.tool_call_id != null ? names.get(turn.tool_call_id) : undefined);
    return {
      role: turn.role === 'developer' && !template.includes('developer') ? 'system' : turn.role,
      content: textOf(turn, place(i)),
      ...(name !== undefined && { name }),
      ...(reasoning != null && { reasoning_content: reasoning }),
      ...(turn.tool_call_id != null && { tool_call_id: callId(turn.tool_call_id) }),
      ...(turn.tool_calls?.length && {
        tool_calls: turn.tool_calls.map((c) => ({
          id: callId(c.id),
          type: 'function',
          function: { name: c.function.name, arguments: objectOf(c.function.arguments) },
        })),
      }),
    };
  });
}

const NO_PARAMETERS = { type: 'object', properties: {} };
const schemasOf = (tools: readonly Tool[]): ToolSchemas =>
  new Map(tools.map((t) => [t.function.name, t.function.parameters ?? NO_PARAMETERS]));

function formatGrammar(format: NonNullable<ChatRequest['response_format']>): Grammar | undefined {
  switch (format.type) {
    case 'text':
      return undefined;
    case 'json_object':
      return { kind: 'json' };
    case 'json_schema':
      return { kind: 'schema', schema: format.json_schema.schema };
    case 'regex':
      return { kind: 'regex', pattern: format.pattern };
    case 'grammar':
      return { kind: 'ebnf', grammar: format.grammar };
  }
}

/** Calls are read by programs: tokens for more blanks than one, which some models write many of, would be lost. */
const callGrammar = (schema: unknown): Grammar => ({ kind: 'schema', schema, loose: true, blanks: 1 });
/** Calls that must come: the grammar that binds the answer to them, and who reads it. */
function forcedCalls(
  choice: 'required' | { readonly name: string },
  schemas: ToolSchemas,
  parallel: boolean,
): { grammar: Grammar; reader: () => ArgumentsReader | JsonCallsReader } {
  if (choice !== 'required') {
    const schema = schemas.get(choice.name);
    if (!schema) throw noTool(choice.name);
    return { grammar: callGrammar(schema), reader: () => new ArgumentsReader(choice.name) };
  }
  const calls = [...schemas].map(([name, parameters]) => ({
    type: 'object',
    properties: { name: { const: name }, arguments: parameters },
    required: ['name', 'arguments'],
    additionalProperties: false,
  }));
  const items = calls.length === 1 ? calls[0] : { anyOf: calls };
  const schema = { type: 'array', items, minItems: 1, ...(!parallel && { maxItems: 1 }) };
  return { grammar: callGrammar(schema), reader: () => new ListReader() };
}
/** The model chooses between calls and an answer of the format; what cannot be told apart or written is refused. */
function callsOrAnswer(answer: Grammar, schemas: ToolSchemas, parallel: boolean, chatter: Chatter): Grammar {
  const { tokenizer } = chatter.engine;
  const { name: format, written, marks, bare } = chatter.tools ?? HERMES;
  const refuse = (why: string): ApiError =>
    badRequest(
      `tools beside response_format: ${why}; leave out one of them, or say tool_choice`,
      'tools',
      'unsupported',
    );
  const special = bare ? undefined : marks.find((mark) => tokenizer.isSpecial(tokenizer.id(mark) ?? -1));
  if (!written) throw refuse(`no grammar writes calls in the format ${format}`);
  if (special) throw refuse(`no grammar writes ${special}, which opens a call`);
  if (bare && !isNameless(answer))
    throw refuse(`calls in the format ${format} are objects with a name, and so might the answer be`);
  const { begin, end, separator } = written;
  const texts = [...schemas].map(([name, schema]) => ({
    begin: begin(name),
    content: { kind: 'schema', schema, loose: true } as const,
    end,
  }));
  return { kind: 'either', of: [answer, { kind: 'marked', texts, ...(parallel && { separator }) }] };
}
/** Whether an answer is an object that has no member called name. */
function isNameless(answer: Grammar): boolean {
  const schema = answer.kind === 'schema' ? (answer.schema as { type?: unknown; properties?: object }) : {};
  return schema.type === 'object' && schema.properties !== undefined && !Object.hasOwn(schema.properties, 'name');
}
/** A list of calls from its bracket on. */
class ListReader extends JsonCallsReader {
  #begun = false;
  constructor() {
    super({ separators: ',', list: true });
  }
  override push(text: string): ReturnType<JsonCallsReader['push']> {
    const rest = this.#begun ? text : text.trimStart().replace(/^\[/, '');
    this.#begun ||= text.trim() !== '';
    return super.push(rest);
  }
}

/** Characters of a token, as a rough guess: texts that are longer for their context are looked at piece by piece. */
const PER_TOKEN = 8;
/** Tokens of a prompt, refused by its length before much work is done: others wait for their answers meanwhile. */
export async function promptTokens(
  text: string,
  special: boolean,
  { engine, longestToken }: Chatter,
  signal?: AbortSignal,
): Promise<number[]> {
  const { contextTokens } = engine.limits;
  const refuse = (length: string): ApiError =>
    badRequest(
      `the prompt has ${length}, which the context of ${contextTokens} tokens has no room for`,
      undefined,
      'context_length_exceeded',
    );
  if (text.length > contextTokens * longestToken) throw refuse(`${text.length} characters`);
  const encode = (part: string): Promise<number[]> => engine.tokenizer.encodeLater(part, { special, signal });
  for (let length = contextTokens * PER_TOKEN; length < text.length; length *= 2) {
    const known = (await encode(text.slice(0, length))).length;
    // Where it is cut, a token or two may be others.
    if (known > contextTokens + longestToken) throw refuse(`more than ${contextTokens} tokens`);
  }
  return encode(text);
}

/** How many tokens a part of an answer has. */
export const countTokens = async (text: string, tokenizer: Chatter['engine']['tokenizer']): Promise<number> =>
  text === '' ? 0 : (await tokenizer.encodeLater(text, { special: false })).length;

/** Variables of templates that other fields of a request say. */
const SAID_ELSEWHERE = ['messages', 'tools', 'add_generation_prompt', 'continue_final_message'];

function renderChat(body: ChatRequest, chatter: Chatter, place: Place): string {
  const { engine } = chatter;
  if (!engine.chatTemplate)
    throw new ApiError(400, `the model ${engine.name} has no chat template; it completes texts at /v1/completions`, {
      code: 'no_chat_template',
    });
  const { tools } = body;
  const open = body.continue_final_message ?? false;
  const taken = SAID_ELSEWHERE.find((name) => Object.hasOwn(body.chat_template_kwargs ?? {}, name));
  if (taken)
    throw badRequest(`chat_template_kwargs: ${taken} is a field of the request itself`, 'chat_template_kwargs');
  if (open && body.messages.at(-1)?.tool_calls?.length)
    throw badRequest(
      'messages: the last one calls tools, whose results are missing: nothing goes on from there',
      'messages',
    );
  return engine.chatTemplate.render(templateMessages(body.messages, chatter, place), {
    continueFinalMessage: open,
    addGenerationPrompt: body.add_generation_prompt ?? !open,
    ...(tools?.length && { tools }),
    variables: {
      ...(body.reasoning_effort != null && { reasoning_effort: body.reasoning_effort }),
      ...(body.reasoning_effort === 'none' && { enable_thinking: false }),
      ...(body.thinking != null && { enable_thinking: body.thinking.type !== 'disabled' }),
      ...(body.verbosity != null && { verbosity: body.verbosity }),
      ...body.chat_template_kwargs,
    },
  });
}

const noTool = (name: string): ApiError =>
  badRequest(`tool_choice: there is no tool ${JSON.stringify(name.slice(0, 100))}`, 'tool_choice');

type ToolChoice = Exclude<ChatRequest['tool_choice'], { type: 'allowed_tools' }>;
/** A request whose tools are those that may be called: the model is shown no others. */
function withAllowedTools(body: ChatRequest): ChatRequest & { tool_choice?: ToolChoice } {
  const { tools, tool_choice: choice } = body;
  if (choice == null || typeof choice === 'string' || choice.type === 'function')
    return { ...body, tool_choice: choice, ...(choice === 'none' && { tools: [] }) };
  const { mode, tools: allowed } = choice.allowed_tools;
  const names = allowed.map((t) => t.function.name);
  const missing = names.find((name) => !tools?.some((t) => t.function.name === name));
  if (missing !== undefined) throw noTool(missing);
  return { ...body, tool_choice: mode, tools: tools?.filter((t) => names.includes(t.function.name)) };
}

/** `signal`: who asks has gone, so that nobody counts the tokens. */
export async function prepareChat(
  asked: ChatRequest,
  chatter: Chatter,
  signal?: AbortSignal,
  place = inMessages,
): Promise<PreparedChat> {
  const { engine, reasoning } = chatter;
  const body = withAllowedTools(asked);
  const tools = body.tools ?? [];
  const choice = body.tool_choice ?? 'auto';
  const parallel = body.parallel_tool_calls ?? true;
  const schemas = schemasOf(tools);
  if (body.top_logprobs && !body.logprobs)
    throw badRequest('top_logprobs: is told with logprobs: true only', 'top_logprobs');
  if (schemas.size < tools.length) {
    const twice = tools.find((t, i) => tools.findIndex((o) => o.function.name === t.function.name) < i);
    throw badRequest(`tools: there are two of the name ${twice?.function.name}`, 'tools');
  }
  if (typeof choice === 'object' || choice === 'required') {
    if (tools.length === 0) throw badRequest('tool_choice: there are no tools to choose from', 'tool_choice');
  } else if (tools.length > 0 && !chatter.showsTools)
    throw badRequest(
      `tools: the chat template of ${engine.name} shows the model none; tool_choice "required" or a named function ` +
        'binds its answer all the same',
      'tools',
      'unsupported',
    );
  const forced =
    choice === 'required' || typeof choice === 'object'
      ? forcedCalls(choice === 'required' ? choice : { name: choice.function.name }, schemas, parallel)
      : undefined;
  const format = body.response_format ? formatGrammar(body.response_format) : undefined;
  const spoken = chatter.tools ?? HERMES;
  const either = !forced && format && tools.length > 0 ? callsOrAnswer(format, schemas, parallel, chatter) : undefined;
  const grammar = forced?.grammar ?? either ?? format;
  const text = renderChat(body, chatter, place);
  const prompt = await promptTokens(text, false, chatter, signal);
  // A grammar leaves no room for marks: the answer is what it describes.
  const marks = grammar ? undefined : reasoning;
  const auto = tools.length > 0 && (either || !grammar) ? spoken : undefined;
  const begun = marks !== undefined && text.trimEnd().endsWith(marks.open);
  const inText = [...(marks ? [marks.open, marks.close] : []), ...(auto?.marks ?? [])];
  const maxTokens = body.max_completion_tokens ?? body.max_tokens;
  const options = (): ParserOptions => ({
    ...(marks && { reasoning: { ...marks, begun } }),
    ...(auto && { tools: { format: auto, schemas, parallel, either: either !== undefined } }),
    ...(forced && { forced: { reader: forced.reader(), callId: () => spoken.callId() } }),
  });
  return {
    ...(grammar && { grammarFrom: forced ? 'tools' : 'response_format' }),
    parser: () => new AnswerParser(options()),
    request: {
      prompt,
      ...samplingOf(body, engine.tokenizer),
      ...(maxTokens != null && { maxTokens }),
      ...(grammar && { grammar }),
      ...(body.logprobs && { logprobs: body.top_logprobs ?? 0 }),
      // Marks that are special tokens would vanish from the text.
      ...(inText.some((mark) => engine.tokenizer.isSpecial(engine.tokenizer.id(mark) ?? -1)) && { keepSpecial: true }),
    },
  };
}
