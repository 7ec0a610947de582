// Load for a running server, from a process of its own: node dist/bench/serve.js --url http://127.0.0.1:8080
// Seeded prompts of a given length, so many at a time or so many a second (Poisson), streamed; what is told: requests
// and tokens a second, time to the first token (TTFT), time per token after it (TPOT), time between pieces (ITL), and
// goodput: requests within both limits. --json FILE keeps all numbers.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { table } from '../src/cli/table.js';
import { randomStream } from '../src/engine/sampler.js';
import { CYCLE, WORDS } from './random-model.js';

const { values: v } = parseArgs({
  options: {
    url: { type: 'string', default: 'http://127.0.0.1:8080' },
    model: { type: 'string' },
    key: { type: 'string' },
    requests: { type: 'string', default: '64' },
    concurrency: { type: 'string', default: '8' },
    /** Requests a second; without it, `concurrency` at all times. */
    rate: { type: 'string' },
    'prompt-tokens': { type: 'string', default: '128' },
    'max-tokens': { type: 'string', default: '64' },
    /** Words that all prompts begin with. */
    shared: { type: 'string', default: '0' },
    'ttft-limit': { type: 'string', default: '0.5' },
    'tpot-limit': { type: 'string', default: '0.05' },
    seed: { type: 'string', default: '1' },
    /** Prompts that a model of bench/random-server.js --copying goes on with by repeating them. */
    copying: { type: 'boolean', default: false },
    /** prompt-lookup: answers guess from the text before them. */
    speculate: { type: 'string' },
    /** Seconds to wait for the server to be there. */
    wait: { type: 'string', default: '0' },
    json: { type: 'string' },
  },
});
const number = (name: 'requests' | 'concurrency' | 'prompt-tokens' | 'max-tokens' | 'shared' | 'seed'): number =>
  Number(v[name]);
const random = randomStream(number('seed'));
const words = (n: number): string =>
  Array.from({ length: n }, () => WORDS[Math.floor(random() * WORDS.length)]).join(' ');

interface Told {
  readonly begin: number;
  readonly first: number;
  readonly end: number;
  readonly gaps: readonly number[];
  readonly promptTokens: number;
  readonly tokens: number;
  readonly error?: string;
}
const headers = { 'content-type': 'application/json', ...(v.key && { authorization: `Bearer ${v.key}` }) };

type Prompt = string | readonly number[];
/** Token numbers of one cycle after another, from some place in it. */
const repeating = (n: number): number[] => {
  const from = CYCLE * Math.floor(8 + random() * 40);
  return Array.from({ length: n }, (_, i) => from + (i % CYCLE));
};

async function one(model: string, prompt: Prompt, seed: number): Promise<Told> {
  const begin = performance.now();
  let [first, last, pieces] = [0, 0, 0];
  let usage = { prompt_tokens: 0, completion_tokens: 0 };
  const gaps: number[] = [];
  const failed = (error: string): Told => ({
    begin,
    first: 0,
    end: performance.now(),
    gaps,
    promptTokens: 0,
    tokens: 0,
    error,
  });
  try {
    const response = await fetch(`${v.url}/v1/completions`, {
      method: 'POST',
      headers,
      body: JSON.stringify({
        ...{ model, prompt, max_tokens: number('max-tokens'), temperature: 0, seed, stream: true, ignore_eos: true },
        ...{ stream_options: { include_usage: true }, ...(v.speculate && { speculate: v.speculate }) },
      }),
    });
    if (!response.ok || !response.body)
      return failed(`HTTP ${response.status}: ${(await response.text()).slice(0, 200)}`);
    let held = '';
    const decoder = new TextDecoder();
    for await (const bytes of response.body) {
      held += decoder.decode(bytes as Uint8Array, { stream: true });
      const lines = held.split('\n');
      held = lines.pop() as string;
      for (const line of lines) {
        if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
        const data = JSON.parse(line.slice(6)) as {
          error?: { message: string };
          usage?: typeof usage | null;
          choices?: { text?: string }[];
        };
        if (data.error) return failed(data.error.message);
        if (data.usage) usage = data.usage;
        if (!data.choices?.[0]?.text) continue;
        const now = performance.now();
        if (pieces++ === 0) first = now;
        else gaps.push((now - last) / 1000);
        last = now;
      }
    }
  } catch (e) {
    return failed(e instanceof Error ? e.message : String(e));
  }
  const tokens = usage.completion_tokens || pieces;
  return { begin, first: first || last, end: performance.now(), gaps, promptTokens: usage.prompt_tokens, tokens };
}

async function there(seconds: number): Promise<void> {
  for (const end = performance.now() + seconds * 1000; performance.now() < end; ) {
    const ok = await fetch(`${v.url}/health`).then(
      (r) => r.ok,
      () => false,
    );
    if (ok) return;
    await new Promise((r) => setTimeout(r, 100));
  }
}
async function load(): Promise<Told[]> {
  await there(Number(v.wait));
  const listed = (await (await fetch(`${v.url}/v1/models`, { headers })).json()) as { data: { id: string }[] };
  const model = v.model ?? listed.data[0].id;
  const beginning = words(number('shared'));
  const prompts = Array.from({ length: number('requests') }, () =>
    v.copying ? repeating(number('prompt-tokens')) : `${beginning} ${words(number('prompt-tokens'))}`.trim(),
  );
  const told: Told[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    for (let i = next++; i < prompts.length; i = next++) told.push(await one(model, prompts[i], i));
  };
  if (v.rate === undefined) await Promise.all(Array.from({ length: number('concurrency') }, work));
  else {
    const under: Promise<void>[] = [];
    for (const [i, prompt] of prompts.entries()) {
      under.push(one(model, prompt, i).then((t) => void told.push(t)));
      await new Promise((r) => setTimeout(r, (-Math.log(1 - random()) / Number(v.rate)) * 1000));
    }
    await Promise.all(under);
  }
  return told;
}

const told = await load();
const good = told.filter((t) => t.error === undefined && t.tokens > 0);
const seconds = (Math.max(...told.map((t) => t.end)) - Math.min(...told.map((t) => t.begin))) / 1000;
const ttft = good.map((t) => (t.first - t.begin) / 1000);
const tpot = good.filter((t) => t.tokens > 1).map((t) => (t.end - t.first) / 1000 / (t.tokens - 1));
const within = good.filter((t) => {
  const per = t.tokens > 1 ? (t.end - t.first) / 1000 / (t.tokens - 1) : 0;
  return (t.first - t.begin) / 1000 <= Number(v['ttft-limit']) && per <= Number(v['tpot-limit']);
});
const sum = (xs: readonly number[]): number => xs.reduce((a, b) => a + b, 0);
const at = (xs: readonly number[], share: number): number =>
  [...xs].sort((a, b) => a - b)[Math.min(xs.length - 1, Math.floor(share * xs.length))] ?? Number.NaN;
const spread = (xs: readonly number[]): Record<string, number> => ({
  mean: (sum(xs) / xs.length) * 1000,
  p50: at(xs, 0.5) * 1000,
  p90: at(xs, 0.9) * 1000,
  p99: at(xs, 0.99) * 1000,
});
const result = {
  requests: told.length,
  failed: told.length - good.length,
  seconds,
  requestsPerSecond: good.length / seconds,
  promptTokensPerSecond: sum(good.map((t) => t.promptTokens)) / seconds,
  tokensPerSecond: sum(good.map((t) => t.tokens)) / seconds,
  goodput: within.length / seconds,
  ttftMs: spread(ttft),
  tpotMs: spread(tpot),
  itlMs: spread(good.flatMap((t) => t.gaps)),
  options: v,
};
const f = (x: number): string => x.toFixed(2);
console.log(
  `${result.requests} requests in ${f(seconds)} s, ${result.failed} failed; ${f(result.requestsPerSecond)} requests/s, ` +
    `${f(result.promptTokensPerSecond)} prompt tokens/s, ${f(result.tokensPerSecond)} tokens/s; goodput ${f(result.goodput)}/s`,
);
console.log(
  table(
    ['milliseconds', 'mean', 'p50', 'p90', 'p99'],
    (['ttftMs', 'tpotMs', 'itlMs'] as const).map((k) => [
      k.slice(0, -2).toUpperCase(),
      ...['mean', 'p50', 'p90', 'p99'].map((p) => f(result[k][p])),
    ]),
  ),
);
for (const e of new Set(told.flatMap((t) => (t.error ? [t.error] : [])))) console.error(`failed: ${e}`);
if (v.json) writeFileSync(v.json, JSON.stringify(result, undefined, 1));
if (good.length === 0) process.exitCode = 1;
