// Every route of the server, a row each.
import type { z } from 'zod';
import { chatCompletions } from './dialects/chat.js';
import { completions } from './dialects/completions.js';
import { embeddings, rerank } from './dialects/embeddings.js';
import { countPrompt, messages } from './dialects/messages.js';
import { describeModel, listModels } from './dialects/models.js';
import { responses } from './dialects/responses.js';
import { detokenize, tokenize } from './dialects/tokens.js';
import type { ServerContext } from './exchange.js';
import { page } from './pages.js';
import { chatRequest } from './schemas/chat.js';
import {
  completionRequest,
  detokenizeRequest,
  embeddingRequest,
  rerankRequest,
  tokenizeRequest,
} from './schemas/completions.js';
import { countTokensRequest, messagesRequest } from './schemas/messages.js';
import { responsesRequest } from './schemas/responses.js';
import type { ServerParts } from './server-parts.js';

export interface Route {
  readonly method: 'get' | 'post';
  readonly path: string;
  readonly summary: string;
  readonly request?: z.ZodType;
  /** Answers without a key: it tells nothing of anyone's requests. */
  readonly open?: true;
  /** Whose body errors have. */
  readonly dialect?: 'anthropic';
  readonly handle: (c: ServerContext, parts: ServerParts) => Promise<Response> | Response;
}

const post = (path: string, summary: string, request: z.ZodType, handle: Route['handle']): Route => ({
  method: 'post',
  path,
  summary,
  request,
  handle,
});
const get = (path: string, summary: string, handle: Route['handle'], open?: true): Route => ({
  method: 'get',
  path,
  summary,
  handle,
  ...(open && { open }),
});

function health(c: ServerContext, parts: ServerParts): Response {
  return parts.closing ? c.json({ status: 'closing' }, 503) : c.json({ status: 'ok' });
}
function status(c: ServerContext, parts: ServerParts): Response {
  const { engine, embedder } = parts.served.models;
  return c.json({
    version: parts.version,
    model: engine?.name ?? null,
    embedding_model: embedder?.name ?? null,
    limits: engine?.limits ?? null,
    status: engine?.status() ?? null,
    memory: process.memoryUsage.rss(),
    uptime: process.uptime(),
  });
}

export const ROUTES: readonly Route[] = [
  post('/v1/chat/completions', 'the answer to a conversation', chatRequest, chatCompletions),
  post('/v1/completions', 'a text that goes on', completionRequest, completions),
  post('/v1/embeddings', 'vectors of texts', embeddingRequest, embeddings),
  post('/v1/responses', "the answer to a conversation, in OpenAI's newer API", responsesRequest, responses),
  {
    ...post('/v1/messages', "the answer to a conversation, in Anthropic's API", messagesRequest, messages),
    dialect: 'anthropic',
  },
  {
    ...post('/v1/messages/count_tokens', 'tokens of a conversation', countTokensRequest, countPrompt),
    dialect: 'anthropic',
  },
  post('/rerank', 'documents by their likeness to a question', rerankRequest, rerank),
  post('/v1/rerank', 'documents by their likeness to a question', rerankRequest, rerank),
  post('/tokenize', 'token numbers of a text', tokenizeRequest, tokenize),
  post('/detokenize', 'the text of token numbers', detokenizeRequest, detokenize),
  get('/v1/models', 'the models that are served', listModels),
  get('/v1/models/:name{.+}', 'one of the models', describeModel),
  get('/status.json', 'what the engine does now', status),
  get('/health', 'whether the server takes requests', health, true),
  get(
    '/metrics',
    'counters for Prometheus',
    (c, { metrics }) => c.body(metrics.text(), 200, { 'content-type': metrics.contentType }),
    true,
  ),
  get('/', 'a page to chat with the model', page('chat.html'), true),
  get('/status', 'a page that shows what the engine does', page('status.html'), true),
  get('/assets/:name', 'what the pages are made of', page(), true),
];
