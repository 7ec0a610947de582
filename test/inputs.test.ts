// What callers may hand over by mistake: each is a typed error that names it, never a bare one and never a crash.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { LanguageModel } from '../src/engine/index.js';
import * as wick from '../src/index.js';
import { loadTensors, openTensors, readJsonFile, saveTensors } from '../src/io/index.js';
import { loadTokenizer } from '../src/tokenizers/index.js';
import { scratch } from './io-support.js';

type Any = any;
const { tensor, zeros, ones, full, rand, randn, cat, stack, einsum, manualSeed, Generator, WickError } = wick as Any;

const itself: unknown[] = [];
itself.push(itself);
let deep: unknown = 1;
for (let i = 0; i < 20_000; i++) deep = [deep];
const gone = new Float32Array(4);
structuredClone(gone.buffer, { transfer: [gone.buffer] });

const CALLS: Record<string, () => unknown> = {
  'an array that holds itself': () => tensor(itself),
  'an array twenty thousand deep': () => tensor(deep),
  'an array 65 deep': () => tensor(Array.from({ length: 65 }).reduce((inner) => [inner], 1)),
  'a typed array whose buffer went elsewhere': () => tensor(gone),
  'the same with a shape': () => tensor(gone, { shape: [4] }),
  'a text in place of a number': () => tensor(['1']),
  'zeros of null': () => zeros(null),
  'ones of nothing': () => ones(),
  'full of a text': () => full('3', 1),
  'rand of null': () => rand(null),
  'randn of nothing': () => randn(),
  'assign of a list': () => zeros([1]).assign([5]),
  'cat of null': () => cat(null),
  'cat of a number': () => cat([5]),
  'stack of nothing': () => stack([]),
  'einsum of null': () => einsum(null),
  'einsum of a number': () => einsum('i->i', 5),
  'tensors from null': () => openTensors(null as Any),
  'tensors from a number': () => loadTensors(5 as Any),
  'tensors saved nowhere': () => saveTensors(undefined as Any, {}),
  'no tensors saved': () => saveTensors('a.npz', null as Any),
  'a number saved as a tensor': () => saveTensors('a.npz', { a: 5 } as Any),
};
for (const seed of [NaN, 1.5, Infinity, '1', null, 2 ** 70, 2n ** 64n, -(2n ** 64n), {}]) {
  const name = typeof seed === 'object' ? JSON.stringify(seed) : String(seed);
  CALLS[`rand with the seed ${name}`] = () => rand([2], { seed });
  CALLS[`manualSeed of ${name}`] = () => manualSeed(seed);
  CALLS[`a Generator of ${name}`] = () => new Generator(seed);
}

for (const [name, call] of Object.entries(CALLS)) test(`refused: ${name}`, () => assert.throws(call, WickError));

test("seeds of 64 bits are taken, negative ones in two's complement", () => {
  assert.equal(new Generator(-1).seed, 2n ** 64n - 1n);
  assert.equal(new Generator(2n ** 64n - 1n).seed, 2n ** 64n - 1n);
  assert.equal(new Generator(2 ** 53 - 1).seed, 2n ** 53n - 1n);
});

test('broken JSON beside a model is a FormatError that names the file', async () => {
  const dir = scratch();
  for (const [i, text] of ['', '{', '[]', '"text"', 'null', '{"a": 1,}', '\u0000', '\ufeff{}'].entries()) {
    const folder = join(dir, String(i));
    mkdirSync(folder);
    for (const file of ['config.json', 'tokenizer.json']) writeFileSync(join(folder, file), text);
    for (const read of [() => readJsonFile(join(folder, 'config.json')), () => loadTokenizer(folder)])
      assert.throws(
        read,
        (e: Error) => e instanceof wick.FormatError && e.message.includes(folder),
        JSON.stringify(text),
      );
    await assert.rejects(LanguageModel.load(folder), wick.FormatError);
  }
  assert.throws(() => readJsonFile(join(dir, 'absent')), wick.FormatError);
  assert.throws(() => readJsonFile(dir), wick.FormatError);
});
