// The table of PyTorch's names: every answer exists, every op of the issue's kind is in it, and the page is its text.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as distributed from '../src/distributed/index.js';
import * as wick from '../src/index.js';
import * as io from '../src/io/index.js';
import * as nn from '../src/nn/index.js';
import { NO_NAMES, OTHER_NAMES } from '../scripts/pytorch-others.js';
import { NAME_GROUPS, torchNames, whyNot } from '../scripts/pytorch-table.js';

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

test("every public name of PyTorch has an answer or a reason, and every reason is some name's", () => {
  const reasons = Object.values(torchNames()).flatMap((names) => names.map((name) => ({ name, why: whyNot(name) })));
  assert.ok(reasons.length > 1700);
  assert.deepEqual(
    reasons.filter(({ why }) => why === 'no answer').map(({ name }) => name),
    [],
  );
  const used = new Set(reasons.map(({ why }) => why));
  for (const [, why] of NO_NAMES) assert.ok(used.has(why), why);
});

/** Of every tensor, not of the prototype. */
const FIELDS = new Set(['layout', 'dtype', 'device', 'requiresGrad', 'shape', 'rank', 'size']);

const ROOMS: Readonly<Record<string, object>> = { nn, io, distributed };

test('other names are of methods, functions and losses that exist', () => {
  const missing = Object.values(OTHER_NAMES).flatMap((ours) => [
    ...[...ours.matchAll(/\b(?:x|q|mask)\.([a-z]\w*)/g)].flatMap(([, m]) =>
      m in wick.Tensor.prototype || FIELDS.has(m) ? [] : [m],
    ),
    ...[...ours.matchAll(/(\w+) of wick\/(\w+)/g)].flatMap(([text, m, room]) => (m in ROOMS[room] ? [] : [text])),
    ...[...ours.matchAll(/losses\.(\w+)/g)].flatMap(([, m]) => (m in nn.losses ? [] : [`losses.${m}`])),
  ]);
  assert.deepEqual(missing, []);
});
