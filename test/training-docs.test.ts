// The snippets of docs/training.md run, one after another, and those of the README's section on training.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../src/base/paths.js';

/** The TypeScript of a page's part; its snippets are plain JavaScript too. */
const snippets = (page: string, from = ''): string => {
  const text = readFileSync(join(packageRoot, page), 'utf8');
  const start = text.indexOf(from);
  assert.ok(start >= 0, `${page} has no ${from}`);
  const end = from ? text.indexOf('\n## ', start + from.length) : text.length;
  return [...text.slice(start, end).matchAll(/```ts\n([^]*?)```/g)].map((m) => m[1]).join('\n');
};
function runs(code: string): string {
  // Inside the package, so that it finds itself by its name.
  const dir = mkdtempSync(join(packageRoot, 'dist', 'snippets-'));
  try {
    writeFileSync(join(dir, 'page.mjs'), code);
    const { status, stdout, stderr } = spawnSync(process.execPath, ['page.mjs'], { cwd: dir, encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    return stdout;
  } finally {
    rmSync(dir, { recursive: true });
  }
}

test('docs/training.md', () => {
  const out = runs(snippets('docs/training.md'));
  assert.match(out, /259 parameters/);
  assert.match(out, /\[ 2, 5, 16 \]\n\[\] \[\]/);
  assert.match(out, /'validation.accuracy': [\d.]+/);
  assert.match(out, /sqrt gave NaN; it was called\n.*page\.mjs/);
});
test('the README on training', () => {
  assert.match(runs(snippets('README.md', '## Training')), /loss/);
});
