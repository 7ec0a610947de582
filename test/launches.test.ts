// Plans launch what they launched: kernels, grids, shared memory, arguments and temporary memory; decoding, drawing,
// prompts, streams and uploads ask of a driver what they asked: both as `node dist/scripts/launches.js` wrote it down.
// Which kernel serves, how work is cut and what waits for what shows in no result of a simulation; it does here.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PLANNED } from '../src/backends/gpu/families.js';
import { allLines, familiesOf, readLines } from './launch-lines.js';

/** WICK_CASE=sum,decoding asks for ops and programs that begin like that. */
const cases = process.env.WICK_CASE?.split(',').map((c) => c.split('/')[0]);
const wanted = (op: string): boolean => cases?.some((c) => op.startsWith(c)) ?? true;
const opOf = (key: string): string => key.split(' ').at(-1) as string;
const before = new Map([...readLines()].filter(([key]) => wanted(opOf(key))));
const now = await allLines(wanted);

test('every family has its launches written down', { skip: cases && 'some ops were asked for' }, () => {
  // Elementwise chains have lines of their own; users' ops have no row.
  assert.deepEqual(
    [...familiesOf(new Set([...before.keys()].map(opOf)))].sort(),
    PLANNED.filter((f) => f !== 'custom' && f !== 'elementwise').sort(),
  );
  assert.ok(before.has('elementwise'));
});

for (const [key, lines] of before)
  test(`${key}: the launches are those written down`, () => {
    const found = now.get(key) ?? [];
    const at = lines.findIndex((line, i) => found[i] !== line);
    if (at < 0) return assert.equal(found.length, lines.length);
    const heading = lines.slice(0, at + 1).findLast((line) => line.startsWith('#'));
    assert.equal(found[at], lines[at], `${heading}; where that is meant, node dist/scripts/launches.js writes it down`);
  });
