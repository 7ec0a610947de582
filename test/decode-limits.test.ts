// What decoding's kernels have room for, and how many threads share the work of experts: speed alone shows the second.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { choiceFits, latentFits } from '../src/backends/generation.js';
import { type Chosen, sumLaunch } from '../src/backends/gpu/decode-experts.js';
import { threadsFor } from '../src/backends/gpu/decode-tiles.js';
import { drawBytes } from '../src/backends/gpu/sample.js';
import type { View } from '../src/backends/backend.js';
import { Layout } from '../src/base/layout.js';

test('as many experts fit as a block has room for, and no more are chosen than there are', () => {
  const fits = [
    [1024, 32],
    [128, 8],
    [4, 4],
  ];
  const none = [
    [1025, 8],
    [1024, 33],
    [4, 5],
  ];
  for (const [experts, chosen] of fits) assert.equal(choiceFits({ experts, chosen }), true, `${chosen} of ${experts}`);
  for (const [experts, chosen] of none) assert.equal(choiceFits({ experts, chosen }), false, `${chosen} of ${experts}`);
});

test('compressed keys fit in whole words of 16 bytes, up to the room of a block', () => {
  const fits = (rank: number, turned: number): boolean =>
    latentFits('bf16', { heads: 16, nope: 128, values: 128, rank, turned });
  assert.equal(fits(512, 64), true);
  assert.equal(fits(256, 32), true);
  for (const [rank, turned] of [
    [516, 64],
    [508, 64],
    [512, 60],
    [4096, 64],
    [512, 4096],
  ])
    assert.equal(fits(rank, turned), false, `${rank} and ${turned}`);
});

test("the chosen experts' sum is shared by threads that go through all of their values in equal rounds", () => {
  const view = (shape: readonly number[]): View => ({
    memory: { address: 4096 } as View['memory'],
    layout: Layout.contiguous(shape),
    dtype: 'bf16',
  });
  const threads = (chosen: number, k: number): number => {
    const choice = { experts: 128, chosen, score: 'softmax', weights: 'kept' } as const;
    const c = {
      choice,
      logits: 0,
      x: view([chosen, k]),
      weight: view([128, 64, k]),
      out: view([64]),
    } as unknown as Chosen;
    return sumLaunch('bf16', c, 0, { warp: 32 } as never).block[0];
  };
  // 8 bf16 numbers are a word of 16 bytes.
  const words = (chosen: number, k: number): number => (chosen * k) / 8;
  for (const [chosen, k] of [
    [8, 768],
    [2, 1408],
    [6, 1408],
    [4, 64],
  ]) {
    const each = words(chosen, k) / threads(chosen, k);
    assert.ok(Math.ceil(each) * threads(chosen, k) >= words(chosen, k));
    assert.ok(threads(chosen, k) <= 256 && threads(chosen, k) % 32 === 0);
    assert.ok(threads(chosen, k) >= Math.min(128, words(chosen, k) / 4), `${threads(chosen, k)} threads`);
  }
});

test('threads share words out in as few rounds as can be, each of them in whole warps', () => {
  const of = (words: number, each: number): number => threadsFor(words, each, 32);
  assert.deepEqual([of(8192, 4), of(1024, 4), of(1025, 4), of(96, 1), of(257, 1)], [256, 256, 160, 96, 160]);
});

test('room for draws counts every array of a row', () => {
  const of = (rows: number): number => drawBytes({ rows, vocabSize: 1024, slots: 4, context: 16 });
  // Logits 4096, sums and tops of one stretch 28, its likely tokens 256, bins 4104, the list 98304, the token twice 8,
  // what is told 528, how it is drawn 128.
  assert.equal(of(256) - of(128), 128 * (4096 + 28 + 256 + 4104 + 98304 + 8 + 528 + 128));
});
