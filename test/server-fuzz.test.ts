// Requests that nobody would send: the server answers each with the right kind of status and goes on.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { env } from '../src/base/environment.js';
import { fuzz, fuzzedServer } from './server-fuzzing.js';
import { type Fixture, noModel } from './server-support.js';

describe('fuzzed requests', { skip: noModel }, () => {
  let s: Fixture;
  before(async () => {
    s = await fuzzedServer();
  });
  after(() => s?.server.close(0));

  test('are answered with a status that fits, and the server goes on', async () => {
    const runs = Number(env('WICK_FUZZ') ?? 1000);
    const counts = await fuzz(s.server.url, runs, 16);
    assert.ok((counts.get(200) ?? 0) > runs / 20 && (counts.get(400) ?? 0) > runs / 10, JSON.stringify([...counts]));
    assert.equal(s.engine.running, 0);
    assert.equal((await fetch(`${s.server.url}/health`)).status, 200);
    console.log(`# statuses of ${runs} requests: ${[...counts].map(([k, n]) => `${k} ${n}`).join(', ')}`);
  });
});
