// How tokens are drawn and when an answer ends: from a request's fields to the engine's.
import type { GenerationRequest } from '../engine/request.js';
import type { Tokenizer } from '../tokenizers/index.js';
import { badRequest } from './errors.js';
import type { SamplingFields } from './schemas/sampling.js';

/** 0 leaves the likeliest token: its share is more than this. */
const LEAST_SHARE = 2 ** -30;

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

/** Token numbers of a field, all of them the model's. */
function tokensOf(field: string, given: readonly number[], tokenizer: Tokenizer): readonly number[] {
  const unknown = given.find((id) => id >= tokenizer.vocabSize);
  if (unknown === undefined) return given;
  throw badRequest(`${field}: ${unknown} is none of the ${tokenizer.vocabSize} tokens`, field);
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
    stopTokens: f.stop_token_ids == null ? undefined : tokensOf('stop_token_ids', f.stop_token_ids, tokenizer),
    allowedTokens:
      f.allowed_token_ids == null ? undefined : tokensOf('allowed_token_ids', f.allowed_token_ids, tokenizer),
    priority: f.priority ?? undefined,
    cacheSalt: f.cache_salt ?? undefined,
    speculate: f.speculate ?? undefined,
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}
