// One server for many ranks: what several ranks write together is what one writes alone, and they end together.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { runLocal } from '../src/distributed/index.js';
import { builtinModel } from '../src/engine/index.js';
import { ranksOf } from '../src/engine/ranks.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { answersOf, byHand, byMpi, freePort, programArgs, skipMpi } from './distributed-support.js';
import { familyFolder, skipFamilies } from './models-support.js';

const ranks = new URL('./distributed-engine-ranks.js', import.meta.url);

test('many requests at once: 2 ranks write what one writes', async () => {
  const [[one], two] = [await runLocal(1, ranks, 'served'), await runLocal(2, ranks, 'served')];
  assert.equal((one as string[]).length, 12);
  assert.deepEqual(two, [one, 'followed']);
  const bySocket = answersOf(...(await byHand(2, programArgs('served'))));
  assert.deepEqual(bySocket, [one, 'followed']);
});
test('the same under mpirun', { skip: skipMpi }, async () => {
  const [[one], two] = [await runLocal(1, ranks, 'served'), answersOf(await byMpi(2, programArgs('served')))];
  assert.deepEqual(two, [one, 'followed']);
});

// Keys in pages, latents, experts, convolutions, and keys that cannot stand in pages.
const HF = ['llama', 'deepseek_v3', 'qwen3_moe-b', 'lfm2', 'phi3-longrope'];
const missing = HF.map((m) => missingGolden(`hf/${m}`)).find((m) => m);
const paths = missing ? [] : HF.map((m) => findGolden('hf', m) as string);
test('every kind of layer through the engine: rows, layers and both divided', { skip: missing }, async () => {
  const asked = (way: string, of: readonly string[] = paths): { data: unknown; timeoutMs: number } => ({
    data: { paths: of, way, count: 6 },
    timeoutMs: 120_000,
  });
  const [one] = (await runLocal(1, ranks, 'engineTokens', asked('shard'))) as unknown[][];
  for (const [size, way, models] of [
    [2, 'shard', paths],
    [2, 'stages', paths.slice(0, 2)],
    [4, 'both', paths.slice(0, 1)],
  ] as const) {
    const [first, ...others] = await runLocal(size, ranks, 'engineTokens', asked(way, models));
    assert.deepEqual(first, one.slice(0, models.length), way);
    for (const other of others) assert.deepEqual(other, []);
  }
  const [recorded] = await runLocal(2, ranks, 'engineTokens', asked('recorded', paths.slice(0, 1)));
  assert.deepEqual(recorded, one.slice(0, 1), 'recorded steps with collectives inside');
});

test('calls that do not fit the rank are refused', async () => {
  const [first, second] = (await runLocal(2, ranks, 'wrongCalls')) as string[][];
  assert.match(first[0], /only ranks other than the first of a shared model follow/);
  assert.match(second[0], /rank 1 takes no requests: rank 0 does, and the others call follow\(\)/);
  for (const [, generated] of [first, second])
    assert.match(generated, /generate: the ranks that share this model follow/);
  const group = { rank: 0, size: 2 };
  assert.throws(() => ranksOf({ shard: { group } } as never), /have no channel; give a Group as `ranks`/);
  assert.throws(() => ranksOf({ shard: { group }, stage: { group } } as never), /give all ranks together as `ranks`/);
});

test('a model that is disposed of at last lets the other ranks go, whatever its engine is doing', async () => {
  for (const when of ['at rest', 'writing'])
    assert.deepEqual(await runLocal(2, ranks, 'disposedOf', { data: when, timeoutMs: 20_000 }), [when, when]);
});

for (const [which, sentence] of [
  [0, /said: rank 0 of 2: a step of the engine failed: the device has gone; ranks that share a model end together/],
  [1, /wick: rank 0 of 2 ends: rank 1 failed in a step of the engine: the device has gone/],
] as const)
  test(`a step that fails on rank ${which} ends all ranks with a sentence`, async () => {
    const ends = await byHand(2, programArgs('failingStep', { data: which }));
    for (const { code } of ends) assert.notEqual(code, 0);
    assert.match(ends[0].err, sentence);
    if (which === 0) assert.match(ends[1].err, /wick: rank 1 of 2 ends: rank 0 a step of the engine failed/);
  });

// ---- wick serve ----
const cli = fileURLToPath(new URL('../src/cli/main.js', import.meta.url));
interface Served {
  readonly children: ChildProcess[];
  readonly url: string;
  readonly ended: Promise<{ code: number | null; signal: string | null }[]>;
  readonly err: () => string;
}
async function serveOn(size: number): Promise<Served> {
  const master = String(await freePort());
  let err = '';
  const children = Array.from({ length: size }, (_, r) =>
    spawn(process.execPath, [cli, 'serve', builtinModel, '--device', 'cpu', '--port', '0', '--context', '64'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        ...{ WICK_THREADS: '1', RANK: String(r), WORLD_SIZE: String(size), LOCAL_RANK: String(r) },
        ...{ LOCAL_WORLD_SIZE: String(size), MASTER_ADDR: '127.0.0.1', MASTER_PORT: master },
      },
    }),
  );
  for (const c of children) c.stderr?.on('data', (d) => (err += String(d)));
  const ended = Promise.all(
    children.map(
      (c) =>
        new Promise<{ code: number | null; signal: string | null }>((resolve) =>
          c.on('close', (code, signal) => resolve({ code, signal })),
        ),
    ),
  );
  const url = await new Promise<string>((resolve, reject) => {
    let out = '';
    children[0].stdout?.on('data', (d) => {
      out += String(d);
      const found = /API at (http:\S+)\/v1/.exec(out);
      if (found) resolve(found[1]);
    });
    void ended.then(() => reject(new Error(`the ranks ended: ${err}`)));
  });
  return { children, url, ended, err: () => err };
}
const completion = async (url: string): Promise<string> => {
  const answer = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ prompt: 'Once upon a time', max_tokens: 12, temperature: 0 }),
  });
  const { choices } = (await answer.json()) as { choices: { text: string }[] };
  return choices[0].text;
};
/** A small mixture that reads and writes as the built-in model does. */
function mixture(): string {
  const from = JSON.parse(readFileSync(join(builtinModel, 'config.json'), 'utf8')) as { vocab_size: number };
  const dir = familyFolder('qwen3_moe', ({ config, tensors }) => {
    const entries = Object.entries(tensors).map(([name, [shape, ...rest]]) => {
      const [rows, ...others] = shape;
      return [name, [rows === config.vocab_size ? [from.vocab_size, ...others] : shape, ...rest]];
    });
    return { config: { ...config, vocab_size: from.vocab_size }, tensors: Object.fromEntries(entries) };
  });
  for (const name of ['tokenizer.json', 'tokenizer_config.json'])
    copyFileSync(join(builtinModel, name), join(dir, name));
  return dir;
}
test('wick generate on 2 ranks: rank 0 writes the text of one process, with rows of experts and whole ones by rank', {
  skip: skipFamilies,
}, async () => {
  const args = [cli, 'generate', '--model', mixture(), '--device', 'cpu', '--max-tokens', '8', '--seed', '5', 'Once'];
  const [one] = await byHand(1, args);
  assert.equal(one.code, 0, one.err);
  for (const how of ['rows', 'whole']) {
    const [first, second] = await byHand(2, [...args, '--experts', how]);
    assert.deepEqual([first.code, second.code], [0, 0], first.err + second.err);
    assert.deepEqual([first.out, second.out, second.err], [one.out, '', ''], how);
    assert.match(first.err, /parameters of rank 0 of 2 over socket in f32/);
  }
  for (const [size, how, said] of [
    [1, 'whole', /generate: --experts says how several ranks divide a mixture, and this process is alone/],
    [2, 'half', /generate: there is no --experts "half"; there are rows, whole/],
  ] as const)
    for (const { code, err } of await byHand(size, [...args, '--experts', how])) {
      assert.notEqual(code, 0);
      assert.match(err, said);
    }
});
test('wick serve on 2 ranks answers as on one, and a signal to rank 0 ends both in order', async () => {
  const [one, two] = [await serveOn(1), await serveOn(2)];
  assert.equal(await completion(two.url), await completion(one.url));
  for (const { children, ended, err } of [one, two]) {
    children[0].kill('SIGTERM');
    for (const { code } of await ended) assert.equal(code, 0, err());
  }
});
test('wick serve: a killed rank ends the server with a sentence', async () => {
  const { children, url, ended, err } = await serveOn(2);
  await completion(url);
  children[1].kill('SIGKILL');
  const [first] = await ended;
  assert.notEqual(first.code, 0);
  assert.match(err(), /wick: rank 0 of 2 ends: rank 1 has gone: its process ended/);
});
