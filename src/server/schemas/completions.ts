// What POST /v1/completions, /v1/embeddings, /rerank, /tokenize and /detokenize take.
import { z } from 'zod';
import { textsOrTokens, tokenList } from './prompts.js';
import { samplingFields } from './sampling.js';
import { fieldsElsewhere, refused } from './unserved.js';

export const completionRequest = z.object({
  model: z.string().nullish(),
  prompt: textsOrTokens(256),
  ...samplingFields,
  ...fieldsElsewhere,
  max_tokens: z.int().min(0).nullish(),
  logprobs: z.int().min(0).max(20).nullish(),
  echo: z.boolean().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  suffix: refused('text goes on at its end', ''),
  response_format: refused('/v1/chat/completions has it', { type: 'text' }),
});
export type CompletionRequest = z.output<typeof completionRequest>;

export const embeddingRequest = z.object({
  model: z.string().nullish(),
  input: textsOrTokens(2048),
  encoding_format: z.enum(['float', 'base64']).nullish(),
  dimensions: z.int().min(1).nullish(),
  /** Texts that are longer than the model reads are cut; they are refused unless this is said. */
  truncate: z.boolean().nullish(),
  user: z.string().nullish(),
});

export const rerankRequest = z.object({
  model: z.string().nullish(),
  query: z.string().min(1),
  documents: z
    .array(z.union([z.string(), z.object({ text: z.string() })]))
    .min(1)
    .max(2048),
  top_n: z.int().min(1).nullish(),
  return_documents: z.boolean().nullish(),
  rank_fields: refused('documents are texts, or objects with a text', ['text']),
  max_tokens_per_doc: refused('what the model reads of a text is its own'),
  max_chunks_per_doc: refused('documents are read in one piece', 1),
});

export const tokenizeRequest = z.object({
  model: z.string().nullish(),
  /** The text; llama.cpp's clients call it content, and say add_special. */
  prompt: z.string().nullish(),
  content: z.string().nullish(),
  add_special_tokens: z.boolean().nullish(),
  add_special: z.boolean().nullish(),
  messages: refused('/v1/messages/count_tokens counts the tokens of a conversation'),
  with_pieces: refused('/detokenize has the text of tokens', false),
  return_token_strs: refused('/detokenize has the text of tokens', false),
});
export const detokenizeRequest = z.object({ model: z.string().nullish(), tokens: tokenList });
