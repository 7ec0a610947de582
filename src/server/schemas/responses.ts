// What POST /v1/responses takes: OpenAI's newer API, without its memory of conversations: each request brings its whole
// history.
import { z } from 'zod';
import { toolName } from './chat.js';
import { reasoningEffort } from './sampling.js';
import { fieldsOfChat, refused } from './unserved.js';

const part = z.object({ type: z.string(), text: z.string().nullish(), refusal: z.string().nullish() });
const content = z.union([z.string(), z.array(part)]);
const MEMORY = 'the server keeps no conversations; send the whole input';

const named = z.object({ type: z.literal('function'), name: z.string() });
const itself = [
  z.object({ type: z.literal('function_call'), call_id: z.string(), name: z.string().min(1), arguments: z.string() }),
  z.object({ type: z.literal('function_call_output'), call_id: z.string(), output: content }),
  // Calls of tools that take a text instead of arguments: histories that began with another model have them.
  z.object({ type: z.literal('custom_tool_call'), call_id: z.string(), name: z.string().min(1), input: z.string() }),
  z.object({ type: z.literal('custom_tool_call_output'), call_id: z.string(), output: content }),
  z.object({
    type: z.literal('reasoning'),
    content: z.array(part).nullish(),
    summary: z.array(part).nullish(),
  }),
  z.object({
    type: z.literal('message').optional(),
    role: z.enum(['system', 'developer', 'user', 'assistant']),
    content,
  }),
] as const;
/** An item that stands for itself. */
export const wholeItem = z.union(itself);
export type WholeItem = z.output<typeof wholeItem>;
/** The same, or the id of one that an answer had. */
const inputItem = z.union([z.object({ type: z.literal('item_reference'), id: z.string() }), ...itself]);

export const responsesRequest = z.object({
  model: z.string().nullish(),
  input: z.union([z.string(), z.array(inputItem).min(1)]),
  instructions: z.string().nullish(),
  max_output_tokens: z.int().min(1).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  top_logprobs: z.literal(0, 'is not served here; /v1/chat/completions has it').nullish(),
  stream: z.boolean().nullish(),
  // Types of tools that only their vendor can run are passed over.
  tools: z
    .array(
      z
        .looseObject({
          type: z.string(),
          name: toolName.optional(),
          description: z.string().nullish(),
          parameters: z.record(z.string(), z.unknown()).nullish(),
          strict: z.boolean().nullish(),
        })
        .superRefine((tool, context) => {
          const problem = (path: string, message: string): void =>
            context.addIssue({ code: 'custom', path: [path], message });
          if (tool.type === 'custom') problem('type', 'custom tools are not served; give a function that takes a text');
          if (tool.type === 'function' && tool.name === undefined)
            problem('name', 'is missing; here a function has its name and parameters beside its type');
        }),
    )
    .max(512)
    .nullish(),
  tool_choice: z
    .union([
      z.enum(['none', 'auto', 'required']),
      named,
      z.object({
        type: z.literal('allowed_tools'),
        mode: z.enum(['auto', 'required']),
        tools: z.array(named).min(1).max(512),
      }),
    ])
    .nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  text: z
    .object({
      format: z
        .discriminatedUnion('type', [
          z.object({ type: z.literal('text') }),
          z.object({ type: z.literal('json_object') }),
          z.object({
            type: z.literal('json_schema'),
            name: z.string().nullish(),
            schema: z.record(z.string(), z.unknown()),
            strict: z.boolean().nullish(),
          }),
        ])
        .nullish(),
      verbosity: z.enum(['low', 'medium', 'high']).nullish(),
    })
    .nullish(),
  reasoning: z.object({ effort: reasoningEffort.nullish() }).nullish(),
  metadata: z.record(z.string(), z.string()).nullish(),
  store: z.boolean().nullish(),
  ...fieldsOfChat,
  max_tokens: refused('use max_output_tokens'),
  messages: refused('use input'),
  moderation: refused('the server judges no texts'),
  previous_response_id: refused(MEMORY),
  conversation: refused(MEMORY),
  prompt: refused('the server keeps no prompts; send instructions and input'),
  background: refused('answers are not kept', false),
  context_management: refused('what does not fit is refused', []),
  truncation: refused('what does not fit is refused', 'disabled'),
  // Others name what only their vendor's tools and models make: none of it comes up here.
  include: z
    .array(
      z.string().refine((what) => !what.endsWith('logprobs'), 'is not served here; /v1/chat/completions has logprobs'),
    )
    .nullish(),
  user: z.string().nullish(),
});
export type ResponsesRequest = z.output<typeof responsesRequest>;
