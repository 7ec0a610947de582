// Ops whose results' sizes are in the data ask the device for one number, others that pick, count and order for none.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Device, tensor, type Tensor } from '../src/index.js';

/** How often the host reads memory while f runs. */
function readsOf(f: () => unknown): number {
  const { backend } = Device.cpu();
  const read = backend.readSync.bind(backend);
  let count = 0;
  backend.readSync = (...args) => {
    count++;
    read(...args);
  };
  try {
    f();
  } finally {
    backend.readSync = read;
  }
  return count;
}

const x = tensor([3, 0, 2, 3, 1, 0]);
const ids = x.cast('i64');
const mask = x.gt(1);
const READS: Readonly<Record<string, readonly [reads: number, f: () => Tensor | readonly Tensor[]]>> = {
  nonzero: [1, () => x.nonzero()],
  'at(mask)': [1, () => x.at(mask)],
  maskedSelect: [1, () => x.maskedSelect(mask)],
  unique: [1, () => x.unique()],
  'unique({ dim })': [1, () => x.reshape([3, 2]).unique({ dim: 0 })],
  uniqueConsecutive: [1, () => x.uniqueConsecutive()],
  bincount: [1, () => ids.bincount()],
  histc: [1, () => x.histc(4)],
  'histc with bounds': [0, () => x.histc(4, { min: 0, max: 3 })],
  multinomial: [1, () => x.multinomial(4, { replacement: true, seed: 1 })],
  searchsorted: [0, () => x.sort()[0].searchsorted(x)],
  bucketize: [0, () => x.bucketize(x.sort()[0])],
  topk: [0, () => x.topk(2)],
  kthvalue: [0, () => x.kthvalue(2)],
  sort: [0, () => x.sort()],
};
for (const [name, [reads, f]] of Object.entries(READS))
  test(`the host reads ${reads === 0 ? 'nothing' : 'once'} for ${name}`, () => {
    assert.equal(readsOf(f), reads);
  });
