// GET /v1/models and /v1/models/NAME: what is served, as the client's API lists it.
import { isAnthropic } from '../errors.js';
import type { ServerContext } from '../exchange.js';
import type { ListedModel } from '../served.js';
import type { ServerParts } from '../server-parts.js';

/** One as Anthropic's clients read it. */
const anthropicModel = ({ id, created, max_model_len }: ListedModel): object => ({
  ...{ type: 'model', id, display_name: id, created_at: new Date(created * 1000).toISOString() },
  ...{ max_input_tokens: max_model_len, max_tokens: max_model_len },
});

export function listModels(c: ServerContext, { served }: ServerParts): Response {
  const data = served.list();
  if (!isAnthropic(c)) return c.json({ object: 'list', data });
  const [first_id, last_id] = [data.at(0)?.id ?? null, data.at(-1)?.id ?? null];
  return c.json({ data: data.map(anthropicModel), has_more: false, first_id, last_id });
}

export function describeModel(c: ServerContext, { served }: ServerParts): Response {
  const model = served.described(c.req.param('name') ?? '');
  return c.json(isAnthropic(c) ? anthropicModel(model) : model);
}
