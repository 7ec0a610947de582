// Plans launch what they launched: kernels, grids, shared memory, arguments and temporary memory, beside the lines that
// `node dist/scripts/launches.js` wrote. Which kernel serves and how work is cut shows in no result; it does here.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PLANNED } from '../src/backends/gpu/families.js';
import { familiesOf, launchLines, readLines } from './launch-lines.js';

/** WICK_CASE=sum,conv asks for ops that begin like that. */
const cases = process.env.WICK_CASE?.split(',').map((c) => c.split('/')[0]);
const wanted = (op: string): boolean => cases?.some((c) => op.startsWith(c)) ?? true;
const opOf = (key: string): string => key.split(' ').at(-1) as string;
const before = new Map([...readLines()].filter(([key]) => wanted(opOf(key))));
const now = launchLines(wanted);

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
