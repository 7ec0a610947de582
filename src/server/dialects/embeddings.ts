// POST /v1/embeddings and /rerank: vectors of texts, and texts in the order of their likeness to a question.
import { badRequest } from '../errors.js';
import { readBody, type ServerContext } from '../exchange.js';
import { embeddingRequest, rerankRequest } from '../schemas/completions.js';
import type { Embedder } from '../served.js';
import type { ServerParts } from '../server-parts.js';

/** Texts of a request; token numbers are turned back into text. */
function textsOf(input: string | readonly (string | number)[] | readonly (readonly number[])[], e: Embedder): string[] {
  const list = Array.isArray(input) && typeof input[0] !== 'number' ? input : [input];
  return (list as (string | number[])[]).map((item) => {
    const text = typeof item === 'string' ? item : e.tokenizer.decode(item);
    if (text === '') throw badRequest('input: an empty text has no vector', 'input');
    return text;
  });
}

/** One batch at a time: the next one waits, so that memory stays bounded and nobody waits for all of a long list. */
const AT_ONCE = 64;
const turns = new WeakMap<Embedder, Promise<unknown>>();
async function vectorsOf(c: ServerContext, model: Embedder, texts: readonly string[]): Promise<Float32Array[]> {
  const vectors: Float32Array[] = [];
  for (let at = 0; at < texts.length; at += AT_ONCE) {
    const batch = (): Promise<Float32Array[]> => {
      c.var.ending.signal.throwIfAborted();
      return model.embed(texts.slice(at, at + AT_ONCE));
    };
    const run = (turns.get(model) ?? Promise.resolve()).catch(() => {}).then(batch);
    turns.set(model, run);
    vectors.push(...(await run));
  }
  return vectors;
}

/** Tokens of all texts, of each as far as the model reads it; `whole`: a longer one is refused. */
async function tokensOf(
  { tokenizer, maxTokens }: Embedder,
  texts: readonly string[],
  signal: AbortSignal,
  whole = false,
): Promise<number> {
  let tokens = 0;
  for (const [i, text] of texts.entries()) {
    const { length } = await tokenizer.encodeLater(text, { signal });
    if (whole && length > maxTokens)
      throw badRequest(
        `input: ${texts.length > 1 ? `text ${i} has` : 'the text has'} ${length} tokens, and the model reads ` +
          `${maxTokens}; shorten it, or say truncate: true`,
        'input',
        'context_length_exceeded',
      );
    tokens += Math.min(length, maxTokens);
  }
  return tokens;
}

/** Shorter vectors are the first numbers, brought back to length 1: models trained for it lose little. */
function shortened(v: Float32Array, dimensions: number): Float32Array {
  if (dimensions > v.length)
    throw badRequest(`dimensions: vectors of this model have ${v.length} numbers, not ${dimensions}`, 'dimensions');
  if (dimensions === v.length) return v;
  const short = v.subarray(0, dimensions);
  const length = Math.hypot(...short) || 1;
  return short.map((x) => x / length);
}
const base64 = (v: Float32Array): string => Buffer.from(v.buffer, v.byteOffset, v.byteLength).toString('base64');

export async function embeddings(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, embeddingRequest, parts.limits.bodyBytes);
  const { name, model } = parts.served.embedder(body.model);
  const texts = textsOf(body.input, model);
  const tokens = await tokensOf(model, texts, c.var.ending.signal, !body.truncate);
  const vectors = (await vectorsOf(c, model, texts)).map((v) => shortened(v, body.dimensions ?? v.length));
  Object.assign(c.var.tally, { model: name, promptTokens: tokens });
  return c.json({
    object: 'list',
    data: vectors.map((v, index) => ({
      object: 'embedding',
      index,
      embedding: body.encoding_format === 'base64' ? base64(v) : Array.from(v),
    })),
    model: body.model ?? name,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  });
}

/** The cosine of the angle between two vectors. */
function cosine(a: Float32Array, b: Float32Array): number {
  let [dot, aa, bb] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return aa > 0 && bb > 0 ? dot / Math.sqrt(aa * bb) : 0;
}

/** Documents by the cosine of their vectors with the question's. */
export async function rerank(c: ServerContext, parts: ServerParts): Promise<Response> {
  const body = await readBody(c, rerankRequest, parts.limits.bodyBytes);
  const { name, model } = parts.served.embedder(body.model);
  const documents = body.documents.map((d) => (typeof d === 'string' ? d : d.text));
  const texts = [body.query, ...documents];
  const [query, ...vectors] = await vectorsOf(c, model, texts);
  const tokens = await tokensOf(model, texts, c.var.ending.signal);
  Object.assign(c.var.tally, { model: name, promptTokens: tokens });
  const results = vectors
    .map((v, index) => ({
      index,
      relevance_score: cosine(query, v),
      ...((body.return_documents ?? true) && { document: { text: documents[index] } }),
    }))
    .sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index)
    .slice(0, body.top_n ?? documents.length);
  return c.json({
    id: c.var.requestId,
    object: 'rerank',
    model: body.model ?? name,
    results,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  });
}
