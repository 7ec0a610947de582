// How tokens are drawn and when an answer ends, as chat and completions both say it.
import { z } from 'zod';

const token = z.int().min(0);
/** How much a model is to think, as OpenAI's clients say it. */
export const reasoningEffort = z.enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']);
const stopText = z.string().min(1).max(1024);

/** Fields that clients leave out or set to null have the meaning they have at OpenAI; the last ones are extensions. */
export const samplingFields = {
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  n: z.int().min(1).max(128).nullish(),
  stop: z.union([stopText, z.array(stopText).max(64)]).nullish(),
  seed: z.number().refine(Number.isInteger, 'a whole number').nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  logit_bias: z.record(z.string(), z.number().min(-100).max(100)).nullish(),
  top_k: z.int().min(-1).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  typical_p: z.number().gt(0).max(1).nullish(),
  repetition_penalty: z.number().gt(0).max(100).nullish(),
  min_tokens: z.int().min(0).nullish(),
  ignore_eos: z.boolean().nullish(),
  stop_token_ids: z.array(token).max(1024).nullish(),
  allowed_token_ids: z.array(token).min(1).max(65536).nullish(),
  priority: z.int().nullish(),
  cache_salt: z.string().max(1024).nullish(),
  speculate: z.enum(['prompt-lookup']).nullish(),
  user: z.string().nullish(),
} as const;
export type SamplingFields = z.output<z.ZodObject<typeof samplingFields>>;
