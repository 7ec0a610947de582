// POST /tokenize and /detokenize: a text's token numbers, and back.
import { badRequest } from '../errors.js';
import { promptTokens } from '../chat-prompt.js';
import { readBody, type ServerContext } from '../exchange.js';
import { detokenizeRequest, tokenizeRequest } from '../schemas/completions.js';
import type { ServerParts } from '../server-parts.js';

export async function tokenize(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, tokenizeRequest, parts.limits.bodyBytes);
  const chatter = parts.served.chatter(body.model);
  const text = body.prompt ?? body.content;
  if (text == null) throw badRequest('prompt: a text is needed', 'prompt');
  const special = body.add_special_tokens ?? body.add_special ?? true;
  const tokens = await promptTokens(text, special, chatter, c.var.ending.signal);
  return c.json({ count: tokens.length, max_model_len: chatter.engine.limits.contextTokens, tokens });
}

export async function detokenize(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, detokenizeRequest, parts.limits.bodyBytes);
  const { tokenizer, limits } = parts.served.chatter(body.model).engine;
  if (body.tokens.length > limits.contextTokens)
    throw badRequest(
      `tokens: ${body.tokens.length} of them are more than the context of ${limits.contextTokens}`,
      'tokens',
    );
  const unknown = body.tokens.find((id) => id >= tokenizer.vocabSize);
  if (unknown !== undefined)
    throw badRequest(`tokens: ${unknown} is none of the ${tokenizer.vocabSize} tokens`, 'tokens');
  return c.json({ prompt: tokenizer.decode(body.tokens, { special: true }) });
}
