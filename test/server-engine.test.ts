// The server with the real engine and the built-in model: many streams, some left at random.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startEngine } from '../src/cli/served-engine.js';
import { loadEngine } from '../src/engine/index.js';
import { serve } from '../src/server/index.js';
import { noModel, ScriptedEngine } from './server-support.js';
import { soak } from './server-soak.js';

test('every byte is what the request gets alone, and pages come back', { skip: noModel }, async () => {
  const engine = await startEngine({ command: 'test', values: { device: 'cpu' } }, () => {});
  const server = await serve({ engine }, { port: 0 });
  try {
    const report = await soak(server.url, engine, { seconds: 0, least: 80, streams: 6, requests: 8 });
    assert.deepEqual(report.wrong, []);
    assert.ok(report.whole > 0 && report.left > 0, JSON.stringify(report));
    assert.equal(report.pagesUsed, report.pagesUsedBefore);
  } finally {
    await server.close(1);
    await engine.dispose();
  }
});

test('a request that is left while a step is recorded spoils nobody else', { skip: noModel }, async () => {
  const engine = await loadEngine(undefined, { device: 'cpu' });
  try {
    const prompt = engine.tokenizer.encode('ROMEO:\nWhat light is this that breaks? What light is this that breaks?');
    assert.ok(prompt.length > engine.limits.pageTokens, 'it fills a page');
    const answer = async (): Promise<string> => {
      let text = '';
      for await (const piece of engine.submit({ prompt, maxTokens: 12, temperature: 0 })) text += piece.text;
      return text;
    };
    const first = await answer();
    // Each size of batch is recorded at its first step, after the prompts' own.
    for (const size of [2, 3, 5, 9, 17]) {
      const others = Array.from({ length: size }, (_, i) => engine.submit({ prompt: [i + 1, i + 2], maxTokens: 4 }));
      await Promise.all(
        others.map(async (generation, i) => {
          for await (const piece of generation) if (i % 2 === 0 && piece.tokens.length > 0) generation.cancel();
        }),
      );
    }
    assert.equal(await answer(), first);
  } finally {
    await engine.dispose();
  }
});

test('log-probabilities of a prompt add up to what the model says of it', { skip: noModel }, async () => {
  const engine = await loadEngine(undefined, { device: 'cpu' });
  const server = await serve({ engine }, { port: 0 });
  try {
    const post = async (body: object) => {
      const response = await fetch(`${server.url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      assert.equal(response.status, 200, await response.clone().text());
      return (await response.json()) as {
        choices: { text: string; logprobs: { tokens: string[]; token_logprobs: (number | null)[] } }[];
      };
    };
    const prompt = 'ROMEO:\nWhat light';
    const first = (await post({ prompt, max_tokens: 4, temperature: 0, logprobs: 0 })).choices[0];
    const [scored] = (
      await post({ prompt: prompt + first.text, max_tokens: 1, temperature: 0, logprobs: 0, echo: true })
    ).choices;
    assert.ok(scored.text.startsWith(prompt + first.text));
    assert.equal(scored.logprobs.token_logprobs[0], null);
    // Where the text is cut into the same tokens, a token scored is a token drawn.
    const drawn = first.logprobs.tokens;
    const at = scored.logprobs.tokens.length - 1 - drawn.length;
    if (scored.logprobs.tokens.slice(at, at + drawn.length).join('|') === drawn.join('|'))
      for (const [i, p] of first.logprobs.token_logprobs.entries())
        assert.ok(Math.abs((p as number) - (scored.logprobs.token_logprobs[at + i] as number)) < 1e-3, `token ${i}`);
  } finally {
    await server.close(1);
    await engine.dispose();
  }
});

test('others are answered while the server reads a long text', { skip: noModel }, async () => {
  const engine = new ScriptedEngine({ answer: () => [], contextTokens: 100_000 });
  const server = await serve({ engine }, { port: 0 });
  try {
    const text = 'What light is this that breaks? '.repeat(2500);
    const headers = { 'content-type': 'application/json' };
    const post = (path: string, body: object): Promise<Response> =>
      fetch(server.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    const long = post('/tokenize', { prompt: text }).then(async (r) => (await r.json()) as { tokens: number[] });
    const short = post('/tokenize', { prompt: 'What' }).then(() => 'short');
    assert.equal(await Promise.race([long, short]), 'short');
    assert.deepEqual((await long).tokens, engine.tokenizer.encode(text));
    const leave = new AbortController();
    const left = fetch(`${server.url}/v1/completions`, {
      ...{ method: 'POST', headers, body: JSON.stringify({ prompt: text }), signal: leave.signal },
    });
    setTimeout(() => leave.abort(), 20);
    await assert.rejects(left, /abort/i);
    assert.equal((await post('/v1/completions', { prompt: 'a', max_tokens: 1 })).status, 200);
    assert.equal(engine.requests.length, 1, 'nobody answers who has gone');
  } finally {
    await server.close(1);
  }
});
