// Structured kernels under the sanitizers: one op of each kind here; scripts/sanitize-kernels.ts runs all of them, for longer than a suite may take.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const script = join(dirname(fileURLToPath(import.meta.url)), '../scripts/sanitize-kernels.js');
const { NODE_TEST_CONTEXT: _, ...env } = process.env; // the children are no tests

test('softmax, sorting, products, convolution and attention are clean under the address, undefined-behaviour and thread sanitizers', (t) => {
  const r = spawnSync(process.execPath, [script, '--ops', 'softmax,argsort,bmm,conv2d,sdpaRun', '--waves', '64'], { encoding: 'utf8', env });
  if (r.stdout.startsWith('skipped')) return t.skip(r.stdout.trim());
  assert.equal(r.status, 0, r.stdout.slice(-3000) + r.stderr.slice(-3000));
  assert.match(r.stdout, /sim:64: 10 cases of 5 ops/);
  assert.match(r.stdout, /softmax_rows_\w+.* sort_rows_\w+/);
  assert.match(r.stdout, /\n0 problems/);
});
