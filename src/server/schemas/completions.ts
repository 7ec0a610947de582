// What POST /v1/completions, /v1/embeddings, /rerank, /tokenize and /detokenize take.
import { z } from 'zod';
import { samplingFields } from './sampling.js';

const tokens = z.array(z.int().min(0));

export const completionRequest = z.object({
  model: z.string().nullish(),
  /** A text, several, a list of token numbers, or several lists. */
  prompt: z.union([
    z.string(),
    z.array(z.string()).min(1).max(256),
    tokens.min(1),
    z.array(tokens.min(1)).min(1).max(256),
  ]),
  ...samplingFields,
  max_tokens: z.int().min(0).nullish(),
  logprobs: z.int().min(0).max(20).nullish(),
  echo: z.boolean().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  best_of: z.literal(1, 'is not served: only 1').nullish(),
  suffix: z.literal('', 'is not served: text goes on at its end').nullish(),
});
export type CompletionRequest = z.output<typeof completionRequest>;

export const embeddingRequest = z.object({
  model: z.string().nullish(),
  input: z.union([
    z.string(),
    z.array(z.string()).min(1).max(2048),
    tokens.min(1),
    z.array(tokens.min(1)).min(1).max(2048),
  ]),
  encoding_format: z.enum(['float', 'base64']).nullish(),
  dimensions: z.int().min(1).nullish(),
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
});

export const tokenizeRequest = z.object({
  model: z.string().nullish(),
  /** The text; llama.cpp's clients call it content. */
  prompt: z.string().nullish(),
  content: z.string().nullish(),
  add_special_tokens: z.boolean().nullish(),
});
export const detokenizeRequest = z.object({ model: z.string().nullish(), tokens });
