// Completions, embeddings and reranking against an engine that plays a script.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { events, hello, noModel, scripted, ScriptedEngine } from './server-support.js';

describe('completions', { skip: noModel }, () => {
  test('texts, lists of texts, tokens and lists of them', async () => {
    await using s = await scripted(hello);
    for (const [prompt, count] of [
      ['a b', 1],
      [['a', 'b'], 2],
      [[5, 6, 7], 1],
      [[[5], [6, 7]], 2],
    ] as const) {
      const body = await (await s.post('/v1/completions', { prompt, n: 2, temperature: 0 })).json();
      assert.equal(body.choices.length, count * 2);
      assert.deepEqual(
        body.choices.map((c: { index: number }) => c.index),
        [...Array(count * 2).keys()],
      );
      assert.ok(body.choices.every((c: { text: string }) => c.text === 'Hello'));
      assert.equal(body.usage.completion_tokens, count * 4);
    }
    assert.deepEqual(s.engine.requests[3].prompt, [5, 6, 7]);
    assert.equal(s.engine.requests[0].maxTokens, 16);
  });
  test('prompts that are none, or too many, are told by their place', async () => {
    await using s = await scripted(hello);
    const cases: [unknown, RegExp, number?][] = [
      [undefined, /^prompt: a text or a list is expected/],
      [7, /^prompt: a text or a list is expected/],
      [[], /^prompt: the list is empty/],
      [[[]], /^prompt\[0\]: the list is empty/],
      [[1, 2.5], /^prompt\[1\]: a token number is a whole number from 0/],
      [[[1], [2, -1]], /^prompt\[1\]\[1\]: a token number/],
      [['a', [1]], /^prompt\[1\]: a text is expected/],
      [[[1], 'a'], /^prompt\[1\]: a text or a list of token numbers/],
      [new Array(257).fill('a'), /^prompt: the list has 257 members, and at most 256 are taken/],
      [[5, 6], /^prompt: 2 prompts with 9 answers each are more than the 16/, 9],
    ];
    for (const [given, message, n = 1] of cases) {
      const prompt = n === 1 ? given : ['a', 'b'];
      const response = await s.post('/v1/completions', { prompt, n });
      const { error } = await response.json();
      assert.match(error.message, message);
      assert.deepEqual([response.status, error.param], [400, 'prompt']);
    }
    const { paths } = (await (await fetch(`${s.server.url}/openapi.json`)).json()) as { paths: Record<string, any> };
    const { schema } = paths['/v1/completions'].post.requestBody.content['application/json'];
    assert.equal(schema.properties.prompt.anyOf.length, 4);
    assert.deepEqual(schema.required, ['prompt']);
  });
  test('echo and log-probabilities', async () => {
    await using s = await scripted(hello);
    const prompt = 'What light';
    const ask = { prompt, echo: true, logprobs: 1, max_tokens: 2 };
    const { choices } = await (await s.post('/v1/completions', ask)).json();
    const [{ text, logprobs }] = choices;
    assert.equal(text, 'What lightHello');
    assert.equal(logprobs.tokens.length, s.engine.requests[0].prompt.length + 2);
    assert.equal(logprobs.token_logprobs[0], null);
    assert.deepEqual(logprobs.token_logprobs.slice(-2), [-0.5, -0.5]);
    assert.deepEqual(logprobs.top_logprobs.at(-1), { x: -2, lo: -0.5 });
    // The start token is no part of the text.
    const at = (i: number): string => text.slice(logprobs.text_offset[i], logprobs.text_offset[i + 1]);
    assert.deepEqual(logprobs.tokens, [
      '<|endoftext|>',
      ...logprobs.tokens.slice(1).map((_: string, i: number) => at(i + 1)),
    ]);
    const frames = await events(await s.post('/v1/completions', { ...ask, stream: true }));
    const parts = frames.slice(0, -1).map((f) => JSON.parse(f.data).choices[0]);
    assert.equal(parts.map((p) => p.text).join(''), text);
    assert.deepEqual(
      parts.flatMap((p) => p.logprobs.tokens),
      logprobs.tokens,
    );
    assert.deepEqual(
      parts.flatMap((p) => p.logprobs.text_offset),
      logprobs.text_offset,
    );
  });
  test('fields that are not served are refused', async () => {
    await using s = await scripted(hello);
    for (const more of [
      { best_of: 2 },
      { suffix: 'x' },
      { max_tokens: 0 },
      { prompt: [] },
      { prompt: [99999999999999999999] },
    ])
      assert.equal((await s.post('/v1/completions', { prompt: 'a', ...more })).status, 400, JSON.stringify(more));
  });
});

describe('embeddings', { skip: noModel }, () => {
  const embedder = () => {
    const vectors: Record<string, number[]> = { cat: [1, 0, 0, 0], dog: [0.8, 0.6, 0, 0], car: [0, 0, 1, 0] };
    const engine = new ScriptedEngine(hello);
    return {
      name: 'vectors',
      model: {
        tokenizer: engine.tokenizer,
        maxTokens: 128,
        embed: async (texts: readonly string[]) =>
          texts.map((t) => Float32Array.from(vectors[t] ?? [0.5, 0.5, 0.5, 0.5])),
      },
    };
  };
  test('numbers, base64, fewer dimensions', async () => {
    await using s = await scripted(hello, {}, { embedder: embedder() });
    const post = async (body: object) => (await s.post('/v1/embeddings', body)).json();
    const { data, usage } = await post({ model: 'vectors', input: ['cat', 'dog'] });
    assert.deepEqual(data[0].embedding, [1, 0, 0, 0]);
    assert.ok(usage.prompt_tokens > 0);
    const packed = (await post({ input: 'dog', encoding_format: 'base64' })).data[0].embedding;
    assert.deepEqual(
      [...new Float32Array(new Uint8Array(Buffer.from(packed, 'base64')).buffer)],
      [...Float32Array.from([0.8, 0.6, 0, 0])],
    );
    assert.deepEqual((await post({ input: 'dog', dimensions: 1 })).data[0].embedding, [1]);
    for (const bad of [{ input: 'dog', dimensions: 9 }, { input: '' }, { input: [] }, { model: 'other', input: 'x' }])
      assert.ok((await s.post('/v1/embeddings', bad)).status >= 400, JSON.stringify(bad));
  });
  test('long lists are made in parts, in their order, and end with their time', async () => {
    const sizes: number[] = [];
    const { name, model } = embedder();
    const embed = async (texts: readonly string[]): Promise<Float32Array[]> => {
      sizes.push(texts.length);
      if (texts[0] === 'slow') await new Promise((r) => setTimeout(r, 200));
      return texts.map((t) => Float32Array.of(Number(t), 1));
    };
    await using s = await scripted(
      hello,
      { limits: { requestSeconds: 0.1 } },
      { embedder: { name, model: { ...model, embed } } },
    );
    const input = Array.from({ length: 150 }, (_, i) => String(i));
    const { data } = await (await s.post('/v1/embeddings', { input })).json();
    assert.deepEqual(
      data.map((d: { embedding: number[] }) => d.embedding[0]),
      [...input.keys()],
    );
    assert.deepEqual(sizes, [64, 64, 22]);
    const late = await s.post('/v1/embeddings', { input: ['slow', ...input] });
    assert.deepEqual([late.status, (await late.json()).error.code], [504, 'timeout']);
    assert.deepEqual(sizes.slice(3), [64], 'nothing is made for who is told that it took too long');
  });
  test('texts that are longer than the model reads', async () => {
    await using s = await scripted(hello, {}, { embedder: embedder() });
    const long = 'light '.repeat(200);
    for (const [path, body, status] of [
      ['/v1/embeddings', { input: ['short', long] }, 400],
      ['/v1/embeddings', { input: ['short', long], truncate: true }, 200],
      ['/rerank', { query: 'light', documents: [long] }, 200],
    ] as const) {
      const got = await s.post(path, body);
      const answer = await got.json();
      assert.equal(got.status, status, JSON.stringify(answer));
      if (status === 200) assert.ok(answer.usage.prompt_tokens < 200, 'what was cut off is not counted');
      else {
        assert.deepEqual([answer.error.param, answer.error.code], ['input', 'context_length_exceeded']);
        assert.match(answer.error.message, /text 1 has \d+ tokens, and the model reads \d+/);
      }
    }
  });
  test('documents by their likeness', async () => {
    await using s = await scripted(hello, {}, { embedder: embedder() });
    const { results } = await (
      await s.post('/rerank', { query: 'cat', documents: ['car', { text: 'dog' }, 'cat'], top_n: 2 })
    ).json();
    assert.deepEqual(
      results.map((r: { index: number }) => r.index),
      [2, 1],
    );
    assert.equal(results[1].document.text, 'dog');
    assert.ok(Math.abs(results[1].relevance_score - 0.8) < 1e-6);
  });
  test('without such a model they say so', async () => {
    await using s = await scripted(hello);
    assert.equal((await s.post('/v1/embeddings', { input: 'x' })).status, 404);
  });
});
