// The table of PyTorch's names: every answer exists, every op of the issue's kind is in it, and the page is its text.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import * as wick from '../src/index.js';
import { packageRoot } from '../src/base/paths.js';
import { NAME_GROUPS, namesPage } from '../src/parity/pytorch-names.js';

const answers = Object.values(NAME_GROUPS).flatMap((pairs) => pairs.flatMap(([, ours]) => (ours ? [ours] : [])));

test('every answer is a method of tensors or a function of the package', () => {
  const missing = answers.flatMap((text) =>
    [...text.matchAll(/(?:^|[\s(])(?:(\w+)\.)?([a-z]\w*)\(/g)].flatMap(([, owner, name]) => {
      const there = owner ? name in wick.Tensor.prototype : name in wick;
      return there ? [] : [`${owner ? `${owner}.` : ''}${name}`];
    }),
  );
  assert.deepEqual(missing, []);
  assert.ok(Symbol.iterator in wick.Tensor.prototype);
});

test('docs/pytorch-names.md is the page of the table', () =>
  assert.equal(
    readFileSync(join(packageRoot, 'docs/pytorch-names.md'), 'utf8'),
    namesPage(),
    'run: node dist/scripts/pytorch-names.js',
  ));
