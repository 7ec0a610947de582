// The page of language models is what was measured: every type of the table, and no other.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../src/base/paths.js';
import { MODELS } from '../src/models/index.js';
import { KINDS } from '../src/models/model-row.js';
import { families, skipFamilies } from './models-support.js';

const page = readFileSync(join(packageRoot, 'docs', 'models.md'), 'utf8');
const rows = new Map(Array.from(page.matchAll(/^\| ([\w-]+) \| (\d+) \|/gm), ([, type, n]) => [type, Number(n)]));
const decoders = MODELS.filter((r) => r.kind === 'decoder').flatMap((r) => r.types);
/** The names in backticks from a phrase up to the end of its sentence. */
const named = (phrase: string): readonly string[] => {
  const from = page.indexOf(phrase);
  assert.ok(from >= 0, `docs/models.md says nothing of "${phrase}"`);
  const end = page.indexOf('.\n', from);
  return Array.from(page.slice(from, end).matchAll(/`([\w-]+)`/g), ([, name]) => name);
};

test('docs/models.md has a line for every type with golden models, and counts their configs', {
  skip: skipFamilies,
}, () => {
  const counts = new Map<string, number>();
  for (const { config } of Object.values(families)) {
    const type = config.model_type as string;
    counts.set(type, (counts.get(type) ?? 0) + 1);
  }
  assert.deepEqual([...rows].sort(), [...counts].sort(), 'node dist/scripts/model-docs.js --sim --only TYPE,...');
});
test('docs/models.md names every type of the other kinds', () => {
  for (const kind of KINDS.filter((k) => k !== 'decoder')) {
    const line = page.split('\n').find((l) => l.startsWith(`| ${kind} |`)) ?? '';
    const types = MODELS.filter((r) => r.kind === kind).flatMap((r) => r.types);
    assert.deepEqual(
      Array.from(line.matchAll(/`([\w-]+)`/g), ([, name]) => name),
      types.sort(),
    );
  }
});
test('docs/models.md names every decoder that is served, once, and none that is not', () => {
  const told = [...rows.keys(), ...named('Further types that these rows serve')];
  assert.deepEqual(told.sort(), [...decoders].sort());
  for (const type of named('Not served')) assert.ok(!decoders.includes(type), `${type} is served`);
});
