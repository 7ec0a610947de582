// What POST /v1/chat/completions takes. Fields nobody knows are ignored, as clients expect; those that would change the
// answer and are not served are refused by name.
import { z } from 'zod';
import { reasoningEffort, samplingFields } from './sampling.js';
import { fieldsElsewhere, refused } from './unserved.js';

const part = z.object({ type: z.string(), text: z.string().nullish(), refusal: z.string().nullish() });
const toolCall = z.object({
  id: z.string(),
  type: z.literal('function').default('function'),
  function: z.object({ name: z.string().min(1), arguments: z.string() }),
});
const chatMessage = z
  .object({
    role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
    content: z.union([z.string(), z.array(part)]).nullish(),
    refusal: z.string().nullish(),
    name: z.string().nullish(),
    tool_calls: z.array(toolCall).nullish(),
    tool_call_id: z.string().nullish(),
    reasoning_content: z.string().nullish(),
    reasoning: z.string().nullish(),
  })
  .superRefine((m, context) => {
    const problem = (path: string, message: string): void =>
      context.addIssue({ code: 'custom', path: [path], message });
    if (m.role === 'tool' && m.tool_call_id == null)
      problem('tool_call_id', 'a tool message names the call it answers');
    if (m.content == null && !(m.role === 'assistant' && (m.tool_calls?.length || m.refusal != null)))
      problem('content', `a message of role ${m.role} has content`);
    if (m.tool_calls?.length && m.role !== 'assistant') problem('tool_calls', 'only the assistant calls tools');
  });
export type ChatTurn = z.output<typeof chatMessage>;

const schemaObject = z.record(z.string(), z.unknown());
/** Names stand in prompts and grammars as they are. */
export const toolName = z.string().regex(/^[\w.:-]{1,128}$/, 'a name of letters, digits, _ . : and -');
const tool = z.object({
  type: z.literal('function'),
  function: z.object({
    name: toolName,
    description: z.string().nullish(),
    parameters: schemaObject.nullish(),
    strict: z.boolean().nullish(),
  }),
});
export type Tool = z.output<typeof tool>;
const named = z.object({ type: z.literal('function'), function: z.object({ name: z.string() }) });

const responseFormat = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text') }),
  z.object({ type: z.literal('json_object') }),
  z.object({
    type: z.literal('json_schema'),
    json_schema: z.object({
      name: z.string().nullish(),
      description: z.string().nullish(),
      schema: schemaObject,
      strict: z.boolean().nullish(),
    }),
  }),
  z.object({ type: z.literal('regex'), pattern: z.string().min(1).max(65536) }),
  z.object({ type: z.literal('grammar'), grammar: z.string().min(1).max(262144) }),
]);

export const chatRequest = z.object({
  model: z.string().nullish(),
  messages: z.array(chatMessage).min(1),
  ...samplingFields,
  ...fieldsElsewhere,
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().min(0).max(20).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  tools: z.array(tool).max(512).nullish(),
  tool_choice: z
    .union([
      z.enum(['none', 'auto', 'required']),
      named,
      z.object({
        type: z.literal('allowed_tools'),
        allowed_tools: z.object({ mode: z.enum(['auto', 'required']), tools: z.array(named).min(1).max(512) }),
      }),
    ])
    .nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  response_format: responseFormat.nullish(),
  reasoning_effort: reasoningEffort.nullish(),
  /** How other vendors' clients turn thoughts on and off. */
  thinking: z.looseObject({ type: z.enum(['enabled', 'disabled', 'adaptive', 'auto']) }).nullish(),
  verbosity: z.enum(['low', 'medium', 'high']).nullish(),
  chat_template_kwargs: z.record(z.string(), z.unknown()).nullish(),
  add_generation_prompt: z.boolean().nullish(),
  continue_final_message: z.boolean().nullish(),
  echo: refused('the answer stands alone', false),
  chat_template: refused("the model's own template is used"),
  functions: refused('use tools'),
  function_call: refused('use tool_choice'),
  audio: refused('answers are text'),
  modalities: z.array(z.literal('text', 'is not served: answers are text')).nullish(),
  web_search_options: refused('the server reaches no network'),
  moderation: refused('the server judges no texts'),
});
export type ChatRequest = z.output<typeof chatRequest>;
