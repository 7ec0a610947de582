// Bounds near what is measured: a bound far above every error seen would let a wrong result through.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import '../src/index.js';
import type { DType } from '../src/base/dtype.js';
import { boundFor } from '../src/ops/op.js';
import { opList } from '../src/ops/table.js';
import { readEvidence } from '../src/parity/evidence.js';

/** A bound may be so many times the worst error seen on any device, or one unit. */
const MOST = 4;
/** f32 and f64 share a bound, and smaller floats, which are rounded once at the end, share one. */
const CLASSES: readonly (readonly DType[])[] = [
  ['f32', 'f64'],
  ['f16', 'bf16', 'f8e4m3'],
];

const worst = new Map<string, number>();
const evidence = readEvidence();
/** How many records tell of an op. */
const told = new Map<string, number>();
for (const { report } of evidence) {
  for (const op of new Set(report.cells.map((c) => c.op))) told.set(op, (told.get(op) ?? 0) + 1);
  for (const c of report.cells)
    if (c.against === 'reference' && c.verdict !== 'failed' && c.error !== null) {
      const key = `${c.op} ${c.dtype}`;
      worst.set(key, Math.max(worst.get(key) ?? 0, c.error));
    }
}

test('no bound is more than four times the worst error that committed evidence has, or its row says why', () => {
  const loose: string[] = [];
  for (const row of opList)
    for (const dtypes of CLASSES) {
      const seen = dtypes.flatMap((d) => worst.get(`${row.name} ${d}`) ?? []);
      // Nothing is measured yet, or on a few devices only: others may err more.
      if (seen.length === 0 || 2 * (told.get(row.name) ?? 0) < evidence.length) continue;
      const most = Math.max(1, Math.ceil(MOST * Math.max(...seen)));
      for (const d of dtypes)
        if (row.dtypes.includes(d) && boundFor(row.ulp, d) > most && !row.loose)
          loose.push(
            `${row.name} ${d}: bound ${boundFor(row.ulp, d)}, worst seen ${Math.max(...seen)}: at most ${most}`,
          );
    }
  assert.deepEqual(loose, []);
});

test('no committed error is above the bound of today', () => {
  const above = opList.flatMap((row) =>
    row.dtypes.flatMap((d) => {
      const seen = worst.get(`${row.name} ${d}`) ?? 0;
      return seen > boundFor(row.ulp, d) ? [`${row.name} ${d}: bound ${boundFor(row.ulp, d)}, worst seen ${seen}`] : [];
    }),
  );
  assert.deepEqual(above, []);
});
