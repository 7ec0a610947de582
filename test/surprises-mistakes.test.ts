// Mistakes that programs are full of, each with an answer that names it.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { DataLoader } from '../src/data/index.js';
import { ArgumentError, arange, DisposedError, meshgrid, scope, type Tensor, tensor, zeros } from '../src/index.js';
import * as nn from '../src/nn/index.js';
import { EventWriter } from '../src/train/index.js';

const x = tensor([1, 2]);
const anything = (v: unknown): never => v as never;
const call = (on: unknown, name: string): unknown => (on as Record<string, unknown>)[name];

const MISTAKES: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  'a promise as an operand': [() => x.add(anything(x.data())), /^add: operand 1 is a promise \(await it first\)/],
  'a promise as a target': [
    () => nn.losses.mse(x, anything(x.data())),
    /^mse: takes tensors .* not a promise \(await it first\)/,
  ],
  'a tensor as a number': [() => x.clamp(anything(x), 1), /^clamp: min is a tensor, not a number/],
  'a list as an operand': [() => x.add(anything([1, 2])), /^add: operand 1 is a list \(tensor\(list\) makes one/],
  'a step with the loss': [
    () => new nn.SGD([zeros([2], { requiresGrad: true })]).step(anything(x.sum())),
    /^SGD: step takes the gradients that loss\.backward\(\) gives/,
  ],
  'options to meshgrid': [
    () => meshgrid([x, x], anything({ indexing: 'xy' })),
    /^meshgrid: indexing is 'ij' or 'xy', as in meshgrid\(\[a, b\], 'xy'\), not object/,
  ],
  'PyTorch’s line search': [
    () => new nn.LBFGS([x], anything({ line_search_fn: 'strong_wolfe' })),
    /^LBFGS: unknown option "line_search_fn"; here it is lineSearch;/,
  ],
  'PyTorch’s history_size': [
    () => new nn.LBFGS([x], anything({ history_size: 5 })),
    /^LBFGS: unknown option "history_size"; here it is history;/,
  ],
  'PyTorch’s key_padding_mask': [
    () => new nn.MultiheadAttention(2, 1).forward(x, x, x, anything({ key_padding_mask: x })),
    /unknown option "key_padding_mask"; here it is keyPadding;/,
  ],
  'a layer that is not there': [
    () => new nn.Sequential(new nn.ReLU()).at(1),
    /^Sequential: there is no layer 1 among 1/,
  ],
  'complex numbers': [() => call(x, 'angle'), /^x\.angle: here it is im\.atan2\(re\)/],
  'transforms of two dimensions': [() => call(x, 'fft2'), /^x\.fft2: here it is x\.fft\(\), then/],
  'eigenvalues of any matrix': [() => call(x, 'eig'), /^x\.eig: here it is x\.eigh\(\), of symmetric matrices/],
  'sparse tensors': [() => call(x, 'to_sparse'), /^x\.to_sparse: here it is scatterAdd/],
};
for (const [what, [f, says]] of Object.entries(MISTAKES))
  test(`${what}: refused with what it is`, () => {
    assert.throws(f, (e: Error) => e instanceof ArgumentError && says.test(e.message));
  });

test('a tensor that a scope took with it says what takes tensors, and what leaves them', () => {
  let inside: Tensor | undefined;
  scope(() => {
    inside = x.mul(2);
  });
  assert.throws(
    () => inside?.add(1),
    (e: Error) =>
      e instanceof DisposedError && /of shape \[2\] was disposed of: .* a scope, which leaves/.test(e.message),
  );
});

test('an event of no numbers or of no step is refused before anything is written', () => {
  const folder = mkdtempSync(join(tmpdir(), 'events-'));
  try {
    using events = new EventWriter(folder);
    assert.throws(
      () => events.scalars(anything(1), anything({ loss: 0.5 })),
      /^ArgumentError.*: scalars takes numbers/s,
    );
    assert.throws(() => events.scalars({ loss: anything('1') }, 1), /scalars takes numbers by their names/);
    assert.throws(() => events.scalars({ loss: 1 }, 0.5), /a step is a whole number from 0, not 0.5/);
    events.scalars({ loss: 0.5 }, 1);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('layers of a Sequential are found by place, from both ends', () => {
  const [first, last] = [new nn.Linear(2, 3), new nn.ReLU()];
  const net = new nn.Sequential(first, last);
  assert.equal(net.at(0), first);
  assert.equal(net.at(-1), last);
});

test('meshgrid turns the first two dimensions with xy alone', () => {
  const [a, b] = [arange(0, 2), arange(0, 3)];
  assert.deepEqual(meshgrid([a, b], 'xy')[0].shape, [3, 2]);
  assert.deepEqual(meshgrid([a, b])[0].shape, [2, 3]);
});

test('a loader’s batches have the type that its collate function answers', async () => {
  const ragged = { length: 2, get: (i: number) => ({ row: Array.from({ length: i + 1 }, () => i), name: `n${i}` }) };
  const loader = new DataLoader(ragged, {
    batch: 2,
    collate: (samples) => ({
      rows: tensor(samples.map(({ row }) => [...row, 0].slice(0, 2))),
      names: samples.map(({ name }) => name),
    }),
    transform: ({ rows, names }) => ({ rows: rows.add(1), names }),
  });
  for await (const { rows, names } of loader) {
    const typed: readonly [Tensor, string[]] = [rows, names]; // a type error where the batch were that of samples
    assert.deepEqual(typed[0].toArray(), [
      [1, 1],
      [2, 2],
    ]);
    assert.deepEqual(typed[1], ['n0', 'n1']);
  }
});
