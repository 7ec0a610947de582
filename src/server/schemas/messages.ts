// What POST /v1/messages takes: Anthropic's API.
import { z } from 'zod';
import { toolName } from './chat.js';
import { fieldsOfChat, refused } from './unserved.js';

/** Blocks of all kinds; those that are not served are refused where they are read, by their type. */
const block = z.looseObject({
  type: z.string(),
  text: z.string().optional(),
  thinking: z.string().optional(),
  id: z.string().optional(),
  name: z.string().optional(),
  input: z.record(z.string(), z.unknown()).optional(),
  tool_use_id: z.string().optional(),
  content: z.unknown().optional(),
});
export type Block = z.output<typeof block>;

const format = z.object({ type: z.literal('json_schema'), schema: z.record(z.string(), z.unknown()) });
/** Thoughts of earlier turns are the chat template's to show or not; other edits would change the conversation. */
const edits = z.array(z.looseObject({ type: z.string().regex(/^clear_thinking_/, 'is not served: messages stay') }));

export const messagesRequest = z.object({
  model: z.string().nullish(),
  max_tokens: z.int().min(1),
  messages: z
    .array(z.object({ role: z.enum(['user', 'assistant', 'system']), content: z.union([z.string(), z.array(block)]) }))
    .min(1),
  system: z.union([z.string(), z.array(block)]).nullish(),
  stop_sequences: z.array(z.string().min(1).max(1024)).max(64).nullish(),
  stream: z.boolean().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_k: z.int().min(-1).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  // Tools that Anthropic runs itself have a type and no schema; they are passed over.
  tools: z
    .array(
      z
        .looseObject({
          type: z.string().nullish(),
          name: toolName,
          description: z.string().nullish(),
          input_schema: z.record(z.string(), z.unknown()).optional(),
        })
        .superRefine((tool, context) => {
          if ((tool.type ?? 'custom') !== 'custom' || tool.input_schema !== undefined) return;
          context.addIssue({ code: 'custom', path: ['input_schema'], message: 'is missing; an object is expected' });
        }),
    )
    .max(512)
    .nullish(),
  tool_choice: z
    .object({
      type: z.enum(['auto', 'any', 'tool', 'none']),
      name: z.string().nullish(),
      disable_parallel_tool_use: z.boolean().nullish(),
    })
    .nullish(),
  thinking: z.looseObject({ type: z.enum(['enabled', 'disabled', 'adaptive', 'between_tools']) }).nullish(),
  output_config: z
    .looseObject({
      effort: z.enum(['low', 'medium', 'high', 'xhigh', 'max']).nullish(),
      format: format.nullish(),
    })
    .nullish(),
  /** What output_config.format was called first. */
  output_format: format.nullish(),
  context_management: z.looseObject({ edits: edits.nullish() }).nullish(),
  ...fieldsOfChat,
  stop: refused('use stop_sequences', []),
  max_completion_tokens: refused('use max_tokens'),
  mcp_servers: refused('the server reaches no network', []),
  container: refused('the server runs no programs'),
  compaction: refused('messages stay'),
  /** Conversations that a server keeps: clients begin them unasked, and send all messages where one is not found. */
  thread: z.looseObject({ type: z.enum(['create', 'continue']) }).nullish(),
});
export type MessagesRequest = z.output<typeof messagesRequest>;
export const countTokensRequest = messagesRequest.extend({ max_tokens: z.int().min(1).nullish() });
