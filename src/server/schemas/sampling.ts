// How tokens are drawn and when an answer ends, as chat and completions both say it.
import { z } from 'zod';
import type { GenerationRequest } from '../../engine/request.js';
import type { Tokenizer } from '../../tokenizers/index.js';
import { badRequest } from '../errors.js';

const token = z.int().min(0);
/** 0 leaves the likeliest token: its share is more than this. */
const LEAST_SHARE = 2 ** -30;
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

function biases(given: Readonly<Record<string, number>>, tokenizer: Tokenizer): Map<number, number> {
  return new Map(
    Object.entries(given).map(([key, bias]) => {
      const id = Number(key);
      if (!/^\d+$/.test(key) || id >= tokenizer.vocabSize)
        throw badRequest(
          `logit_bias: ${JSON.stringify(key)} is none of the ${tokenizer.vocabSize} tokens`,
          'logit_bias',
        );
      return [id, bias];
    }),
  );
}

/**
 * The same for the engine; what was not given is left out, so that its defaults hold, but for OpenAI's temperature 1.
 */
export function samplingOf(f: SamplingFields, tokenizer: Tokenizer): Partial<GenerationRequest> {
  const given: Partial<GenerationRequest> = {
    temperature: f.temperature ?? 1,
    topP: f.top_p === 0 ? LEAST_SHARE : (f.top_p ?? undefined),
    topK: f.top_k === -1 ? 0 : (f.top_k ?? undefined),
    minP: f.min_p ?? undefined,
    typicalP: f.typical_p ?? undefined,
    n: f.n ?? undefined,
    stop: f.stop == null ? undefined : typeof f.stop === 'string' ? [f.stop] : f.stop,
    seed: f.seed == null ? undefined : Number(BigInt.asIntN(53, BigInt(f.seed))),
    frequencyPenalty: f.frequency_penalty ?? undefined,
    presencePenalty: f.presence_penalty ?? undefined,
    repetitionPenalty: f.repetition_penalty ?? undefined,
    logitBias: f.logit_bias == null ? undefined : biases(f.logit_bias, tokenizer),
    minTokens: f.min_tokens ?? undefined,
    ignoreEnd: f.ignore_eos ?? undefined,
    stopTokens: f.stop_token_ids ?? undefined,
    allowedTokens: f.allowed_token_ids ?? undefined,
    priority: f.priority ?? undefined,
    cacheSalt: f.cache_salt ?? undefined,
    speculate: f.speculate ?? undefined,
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}
