// What CI runs of the matrix on emulated targets: a share a day, and all of it in the end.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PARTS, shareOf, TARGETS } from '../scripts/shares.js';

const ops = Array.from({ length: 188 }, (_, i) => `op${i}`);
const models = Array.from({ length: 22 }, (_, i) => `model${i}`);

test('25 days in a row run every op and model on every target once, whenever they begin', () => {
  for (const begin of ['2026-11-16', '2027-02-20', '2028-02-25']) {
    const seen = new Set<string>();
    for (let d = 0; d < TARGETS.length * PARTS; d++) {
      const day = new Date(Date.parse(`${begin}T12:00:00Z`) + d * 86_400_000).toISOString().slice(0, 10);
      const s = shareOf(day, ops, models);
      for (const what of [...s.ops, ...s.models]) {
        assert.ok(!seen.has(`${s.target} ${what}`), `${s.target} ${what} twice`);
        seen.add(`${s.target} ${what}`);
      }
      assert.ok(s.ops.length <= Math.ceil(ops.length / PARTS), 'no more than a fifth');
    }
    assert.equal(seen.size, TARGETS.length * (ops.length + models.length));
  }
});

test('a day has one share, and what is not a day is refused', () => {
  assert.deepEqual(shareOf('2026-11-16', ops, models), shareOf('2026-11-16', ops, models));
  assert.notEqual(shareOf('2026-11-16', ops, models).target, shareOf('2026-11-17', ops, models).target);
  for (const bad of ['today', '2026-13-01', '16.11.2026', ''])
    assert.throws(() => shareOf(bad, ops, models), /is not a day/);
});
