// Structured kernels under the sanitizers: one op of each kind here; scripts/sanitize-kernels.ts runs all of them, for
// longer than a suite may take.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../src/base/paths.js';

const { NODE_TEST_CONTEXT: _, ...env } = process.env; // the children are not tests
const sanitize = (root: string, ops: string, waves: string): { status: number | null; text: string } => {
  const r = spawnSync(
    process.execPath,
    [join(root, 'dist/scripts/sanitize-kernels.js'), '--ops', ops, '--waves', waves],
    { encoding: 'utf8', env },
  );
  return { status: r.status, text: r.stdout + r.stderr };
};

test(
  'softmax, sorting, products, convolution and attention are clean under the address, undefined-behaviour and ' +
    'thread sanitizers',
  (t) => {
    const { status, text } = sanitize(packageRoot, 'softmax,argsort,bmm,conv2d,sdpaRun', '64');
    if (text.startsWith('skipped')) return t.skip(text.trim());
    assert.equal(status, 0, text.slice(-3000));
    assert.match(text, /sim:64: 10 cases of 5 ops/);
    assert.match(text, /softmax_rows_\w+.* sort_block\w+/);
    assert.match(text, /\n0 problems/);
  },
);

test('a kernel that has lost a barrier is reported as a race, in a copy of the package', (t) => {
  const copy = mkdtempSync(join(tmpdir(), 'wick-race-'));
  t.after(() => rmSync(copy, { recursive: true, force: true }));
  mkdirSync(join(copy, 'dist'));
  for (const part of ['dist/src', 'dist/scripts', 'kernels', 'native', 'package.json'])
    cpSync(join(packageRoot, part), join(copy, part), { recursive: true, filter: (f) => !f.endsWith('.map') });
  symlinkSync(join(packageRoot, 'node_modules'), join(copy, 'node_modules'));
  // Where a block joins its waves: between what they write and what all of them read.
  const [path, written, barrier] = [
    join(copy, 'kernels/block.h'),
    'mine[lane / WICK_WAVE] = v;\n',
    '    __syncthreads();\n',
  ];
  const text = readFileSync(path, 'utf8');
  const at = text.indexOf(written) + written.length;
  assert.ok(at > written.length && text.startsWith(barrier, at), 'the barrier is there');
  writeFileSync(path, text.slice(0, at) + text.slice(at + barrier.length));
  const ran = sanitize(copy, 'softmax', '32');
  if (/^skipped|does not run here|did not run/m.test(ran.text)) return t.skip(ran.text.trim());
  assert.equal(ran.status, 1, ran.text.slice(-3000));
  assert.match(ran.text, /softmax on sim:32, thread sanitizer[\s\S]*WARNING: ThreadSanitizer: data race[\s\S]*join/);
});
