// Fields that would change the answer and are not served: they are refused by name, with what to do instead.
import { z } from 'zod';

/** A field that may only be null, or say what its absence means. */
export const refused = (instead: string, ...harmless: readonly unknown[]) =>
  z
    .custom<unknown>((v) => v == null || harmless.some((h) => JSON.stringify(h) === JSON.stringify(v)), {
      error: `is not served: ${instead}`,
    })
    .optional();

const FORMAT = 'use response_format of /v1/chat/completions';
const DRAWS = 'tokens are drawn by temperature, top_k, top_p, min_p and typical_p';

/** What other servers take beside OpenAI's fields: their clients would not notice that nothing came of it. */
export const fieldsElsewhere = {
  guided_json: refused(FORMAT),
  guided_regex: refused(FORMAT),
  guided_choice: refused(FORMAT),
  guided_grammar: refused(FORMAT),
  structured_outputs: refused(FORMAT),
  grammar: refused(FORMAT),
  json_schema: refused(FORMAT),
  regex: refused(FORMAT),
  ebnf: refused(FORMAT),
  best_of: refused('only 1', 1),
  use_beam_search: refused('tokens are drawn one by one', false),
  length_penalty: refused('tokens are drawn one by one', 1),
  bad_words: refused('use logit_bias', []),
  logits_processors: refused('use logit_bias', []),
  include_stop_str_in_output: refused('answers end before the stop text', false),
  skip_special_tokens: refused('special tokens are not shown', true),
  truncate_prompt_tokens: refused('prompts are read whole'),
  prompt_logprobs: refused('use echo and logprobs of /v1/completions'),
  mirostat: refused(DRAWS, 0),
  dry_multiplier: refused(DRAWS, 0),
  xtc_probability: refused(DRAWS, 0),
  samplers: refused(DRAWS),
  top_a: refused(DRAWS, 0),
  tfs_z: refused(DRAWS, 1),
  dynatemp_range: refused(DRAWS, 0),
  no_repeat_ngram_size: refused('use repetition_penalty', 0),
  repeat_penalty: refused('use repetition_penalty', 1),
  enable_thinking: refused('use chat_template_kwargs of /v1/chat/completions'),
  thinking: refused('/v1/chat/completions has it'),
  thinking_budget: refused('use reasoning_effort, or chat_template_kwargs, of /v1/chat/completions'),
  reasoning: refused('use reasoning_effort of /v1/chat/completions', {}),
  n_predict: refused('use max_tokens', -1),
  max_new_tokens: refused('use max_tokens'),
  max_length: refused('use max_tokens'),
  typ_p: refused('use typical_p', 1),
  random_seed: refused('use seed'),
  top_n_sigma: refused(DRAWS, -1),
  stop_regex: refused('use stop'),
  documents: refused('put them into a message', []),
  options: refused('its members are fields of the request itself', {}),
  lora: refused('a server has one model', []),
  lora_path: refused('a server has one model'),
} as const;

const CHAT = '/v1/chat/completions has it';
/** Fields of OpenAI's chat that its newer API and Anthropic's lack: who sends them there expects something of them. */
export const fieldsOfChat = {
  n: refused(CHAT, 1),
  seed: refused(CHAT),
  stop: refused(CHAT, []),
  max_completion_tokens: refused(CHAT),
  response_format: refused(CHAT, { type: 'text' }),
  logit_bias: refused(CHAT, {}),
  logprobs: refused(CHAT, false),
  frequency_penalty: refused(CHAT, 0),
  presence_penalty: refused(CHAT, 0),
} as const;
