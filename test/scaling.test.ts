// The formulas of expected scaling do what they say.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allReduceSeconds, decodeStep, trainingStep } from '../scripts/scaling.js';

const link = { bytesPerSecond: 1e9, latency: 1e-3 };
test('formulas: rings, hidden talk, divided reading', () => {
  assert.equal(allReduceSeconds(1e9, 1, link), 0);
  assert.ok(Math.abs(allReduceSeconds(1e9, 4, link) - 1.501) < 1e-9);
  const work = { parameters: 1e9, tokens: 1000, rate: 1e12 }; // six seconds a step, four of them backward
  assert.equal(trainingStep(work, 1, link).exposed, 0);
  const hidden = trainingStep(work, 2, link); // two seconds of talk: all but the last bucket hidden
  assert.ok(hidden.exposed > 0 && hidden.exposed < 0.05);
  const bare = trainingStep({ ...work, tokens: 100 }, 2, link); // 0.4 s of backward
  assert.ok(Math.abs(bare.exposed - (2.001 - 0.4)) < 1e-9);
  const model = { parameters: 8e9, hidden: 4096, layers: 32, vocabulary: 1000 };
  const [one, two] = [1, 2].map((n) => decodeStep(model, n, link));
  assert.equal(one.talk, 0);
  assert.equal(two.reading, one.reading / 2);
  assert.ok(two.talk > 64 * link.latency);
});
