// Datasets, loaders and readers: orders from seeds, batches of the right shape and dtype, files that say what is wrong.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { PNG as Declared } from 'pngjs';
import { arange, FormatError, Tensor } from '../src/index.js';
import {
  DataLoader,
  Dataset,
  loadPicture,
  parseCsv,
  permutation,
  PictureFolder,
  readCsv,
  readIdx,
  readJsonLines,
  readMnist,
  TensorDataset,
  weightedSampler,
} from '../src/data/index.js';

/** The library writes too; the product only reads. */
const PNG = Declared as unknown as {
  new (size: { width: number; height: number }): { data: Buffer };
  sync: { write(png: object): Buffer };
};

async function inFolder(f: (dir: string) => unknown): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'wick-data-'));
  try {
    await f(dir);
  } finally {
    rmSync(dir, { recursive: true });
  }
}
async function all<B>(loader: AsyncIterable<B>): Promise<B[]> {
  const out: B[] = [];
  for await (const b of loader) out.push(b);
  return out;
}
const numbers = (t: Tensor): number[] => t.flatten().toArray() as number[];

test('a permutation holds each number once, and a seed and a round say which', () => {
  const p = permutation(100, 7);
  assert.deepEqual(
    [...p].sort((a, b) => a - b),
    Array.from({ length: 100 }, (_, i) => i),
  );
  assert.deepEqual(permutation(100, 7), p);
  assert.notDeepEqual(permutation(100, 8), p);
  assert.notDeepEqual(permutation(100, 7, 1), p);
});

test('a loader gives every sample once an epoch, in an order of its seed and epoch', async () => {
  const set = Dataset.of(
    Array.from({ length: 10 }, (_, i) => ({ x: [i, -i], y: i, name: `n${i}` })),
    { y: 'i64' },
  );
  const make = () => new DataLoader(set, { batch: 4, shuffle: true, seed: 3 });
  const [a, b] = [make(), make()];
  const first = await all(a);
  assert.deepEqual(
    first.map(({ x }) => x.shape),
    [
      [4, 2],
      [4, 2],
      [2, 2],
    ],
  );
  assert.equal(a.length, 3);
  assert.equal(first[0].y.dtype, 'i64');
  const seen = first.flatMap(({ y }) => numbers(y));
  assert.deepEqual(
    [...seen].sort((p, q) => p - q),
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
  );
  assert.deepEqual(
    first.flatMap((f) => f.name),
    seen.map((i) => `n${i}`),
  );
  const second = (await all(a)).flatMap(({ y }) => numbers(y));
  assert.notDeepEqual(second, seen, 'another epoch, another order');
  b.epoch = 1;
  assert.deepEqual(
    (await all(b)).flatMap(({ y }) => numbers(y)),
    second,
    'the order of an epoch does not depend on those before',
  );
  assert.equal((await all(new DataLoader(set, { batch: 4, dropLast: true }))).length, 2);
});

test('a sampler says which samples an epoch takes; a weighted one draws the rare as often as the common', async () => {
  const dataset = { length: 10, get: (i: number) => ({ i }) };
  const loader = new DataLoader(dataset, { batch: 2, sampler: (epoch) => [9, 3, epoch] });
  assert.equal(loader.length, 2);
  const seen: unknown[] = [];
  for (const _ of [0, 1]) for await (const { i } of loader) seen.push(...i.toArray<number[]>());
  assert.deepEqual(seen, [9, 3, 0, 9, 3, 1]);
  assert.throws(
    () => new DataLoader(dataset, { sampler: () => [10] }).order(0),
    /the sampler answers 10, and there are/,
  );
  assert.throws(() => new DataLoader(dataset, { sampler: () => [1], shuffle: true }), /takes the place of shuffle/);

  const weights = Array.from({ length: 100 }, (_, i) => (i === 7 ? 99 : i === 50 ? 0 : 1));
  const sampler = weightedSampler(weights, { count: 20_000, seed: 3 });
  const drawn = sampler(0);
  const share = drawn.filter((i) => i === 7).length / drawn.length;
  assert.ok(Math.abs(share - 99 / 197) < 0.02, `${share}`);
  assert.ok(!drawn.includes(50));
  assert.deepEqual(sampler(0), drawn);
  assert.notDeepEqual(sampler(1), drawn);
  const once = weightedSampler(weights, { count: 99, replacement: false })(0);
  assert.equal(new Set(once).size, 99);
  assert.ok(!once.includes(50) && once.indexOf(7) < 5);
  assert.throws(() => weightedSampler(weights, { replacement: false }), /to the 99 weights above 0/);
  assert.throws(() => weightedSampler([1, -1]), /none negative/);
});

test('rows of tensors are gathered at once, through subsets and splits', async () => {
  const set = Dataset.fromTensors({ x: arange(0, 12).reshape([6, 2]), y: arange(0, 6, 1, { dtype: 'i64' }) });
  const [one, two] = set.split([0.5, 0.5], 1);
  const rows = (await all(new DataLoader(one.concat(two), { batch: 6 })))[0];
  for (const [i, k] of numbers(rows.y).entries())
    assert.deepEqual((rows.x.toArray() as number[][])[i], [2 * k, 2 * k + 1]);
  const half = await all(new DataLoader(set.slice(4), { batch: 2, transform: (b) => ({ ...b, x: b.x.mul(10) }) }));
  assert.deepEqual(half[0].x.toArray(), [
    [80, 90],
    [100, 110],
  ]);
  assert.throws(() => set.split([5, 5]), /neither shares below 1 nor sizes that fit 6 samples/);
  assert.throws(() => Dataset.fromTensors({ x: arange(3), y: arange(4) }), /y \[4\] has not as many rows as x \[3\]/);
});

test('a collate function gives tensors, or is told what it may give', async () => {
  const ragged = Dataset.of([{ x: [1] }, { x: [1, 2] }]);
  const padded = new DataLoader(ragged, {
    batch: 2,
    collate: (samples) => ({ x: Tensor.from(samples.map(({ x }) => [...(x as number[]), 0].slice(0, 2))) }),
  });
  assert.deepEqual((await all(padded))[0].x.toArray(), [
    [1, 0],
    [1, 2],
  ]);
  const odd = new DataLoader(ragged, { batch: 2, collate: () => ({ x: new Float32Array(2) as never }) });
  await assert.rejects(all(odd), /collate: x is none of tensors, blocks of elements/);
});

test('samples that do not fit together are refused by name; a failing sample fails its batch', async () => {
  const ragged = new DataLoader(Dataset.of([{ x: [1] }, { x: [1, 2] }]), { batch: 2 });
  await assert.rejects(all(ragged), /collate: x is f32 \[1\] in the first sample of a batch and f32 \[2\] in sample 1/);
  const failing = Dataset.of([{ x: 1 }, { x: 2 }]).map(({ x }) => {
    if (x === 2) throw new Error('no such sample');
    return { x };
  });
  await assert.rejects(all(new DataLoader(failing)), /no such sample/);
  await assert.rejects(
    all(new DataLoader(Dataset.of([{ y: 0.5 }], { y: 'i64' }))),
    /collate: y holds 0.5, which is not whole; it is i64/,
  );
  assert.throws(() => new DataLoader(failing, { batchSize: 3 } as never), /unknown option "batchSize"/);
});

test('a loader in worker threads gives what one without them gives', () =>
  inFolder(async (dir) => {
    const module = join(dir, 'squares.mjs');
    writeFileSync(
      module,
      `import { Dataset } from '${new URL('../src/data/index.js', import.meta.url).href}';
       export const dataset = ({ n }) => Dataset.of(Array.from({ length: n }, (_, i) => {
         return { x: Float32Array.of(i, i * i), get y() { if (i === 99) throw new Error('odd sample'); return i; } };
       }), { y: 'i64' });`,
    );
    const url = new URL(`file://${module}`);
    const loader = await DataLoader.inWorkers(url, { workers: 2, batch: 3, shuffle: true, seed: 5, options: { n: 8 } });
    const batches = await all(loader);
    assert.deepEqual(
      batches.flatMap(({ y }) => numbers(y)),
      permutation(8, 5),
    );
    assert.deepEqual(
      batches.flatMap(({ x }) => (x.toArray() as number[][]).map(([, square]) => square)),
      permutation(8, 5).map((i) => i * i),
    );
    await loader.close();
    await assert.rejects(all(loader), /its workers were closed/);
    const bad = await DataLoader.inWorkers(url, { workers: 1, batch: 100, options: { n: 100 } });
    await assert.rejects(all(bad), /a worker failed: odd sample/);
    await bad.close();
    await assert.rejects(DataLoader.inWorkers(new URL('file:///nowhere.mjs')), /DataLoader: .*nowhere/);
  }));

test('CSV: quotes, line breaks, numbers by column; what is odd is named', () =>
  inFolder((dir) => {
    assert.deepEqual(parseCsv('a,"b ""x""\nc",\r\n\n1,2,3'), [
      ['a', 'b "x"\nc', ''],
      ['1', '2', '3'],
    ]);
    const path = join(dir, 't.csv');
    writeFileSync(path, 'x,name,y\n1,ann,1e-3\n-2.5,"b, c",\n');
    const csv = readCsv(path);
    assert.deepEqual(csv.get(0), { x: 1, name: 'ann', y: 0.001 });
    assert.deepEqual(csv.tensor(['x', 'x']).toArray(), [
      [1, 1],
      [-2.5, -2.5],
    ]);
    assert.ok(Number.isNaN(csv.get(1).y));
    assert.throws(() => csv.tensor('name'), /column name holds "ann" in record 0, no number/);
    assert.throws(() => csv.column('z'), /no column "z"; known are x, name, y/);
    writeFileSync(path, 'a,b\n1\n');
    assert.throws(() => readCsv(path), /record 0 has 1 fields where there are 2 columns/);
    writeFileSync(path, 'a,b\n1,"2\n');
    assert.throws(() => readCsv(path), /line 2: a quote is opened and never closed/);
  }));

test('CSV: long identifiers stay text, another encoding is refused', () =>
  inFolder((folder) => {
    const path = join(folder, 'ids.csv');
    writeFileSync(path, 'id,n\n12345678901234567890,9007199254740991\n7,-3\n');
    assert.deepEqual(readCsv(path).get(0), { id: '12345678901234567890', n: 9007199254740991 });
    writeFileSync(path, Buffer.from('name\ncaf\xe9\n', 'latin1'));
    assert.throws(() => readCsv(path), /ids\.csv: is not in UTF-8; parseCsv\(text\)/);
  }));

test('JSON lines may begin with a byte order mark', () =>
  inFolder((folder) => {
    const path = join(folder, 'marked.jsonl');
    writeFileSync(path, '\ufeff{"a":1}\r\n{"a":2}\r\n');
    assert.deepEqual([readJsonLines(path).length, readJsonLines(path).get(0)], [2, { a: 1 }]);
  }));

test('JSON lines are parsed when asked for, and a broken one is named', () =>
  inFolder((dir) => {
    const path = join(dir, 't.jsonl');
    writeFileSync(path, '{"x":[1,2],"y":"ä"}\n\n{"x":[3,4],"y":"b"}\n{oops\n[1]');
    const lines = readJsonLines(path);
    assert.equal(lines.length, 4);
    assert.deepEqual(
      [lines.get(0), lines.get(1)],
      [
        { x: [1, 2], y: 'ä' },
        { x: [3, 4], y: 'b' },
      ],
    );
    assert.throws(() => lines.get(2), /record 2 is no JSON/);
    assert.throws(() => lines.get(3), /record 3 is no JSON object/);
    writeFileSync(path, Buffer.from('{"x":"\xe4"}', 'latin1'));
    assert.throws(() => readJsonLines(path).get(0), /record 0 is no JSON: .*utf-8/i); // not a letter that is no letter
  }));

/** A file in MNIST's format. */
const idx = (type: number, shape: number[], data: number[]): Buffer => {
  const head = Buffer.alloc(4 + 4 * shape.length);
  head[2] = type;
  head[3] = shape.length;
  shape.forEach((n, i) => head.writeUInt32BE(n, 4 + 4 * i));
  return Buffer.concat([head, Buffer.from(data)]);
};
test('IDX files, packed or not, and MNIST of a folder', () =>
  inFolder((dir) => {
    const path = join(dir, 'a');
    writeFileSync(path, idx(0x0b, [2], [0xff, 0xfe, 1, 0]));
    assert.deepEqual(readIdx(path).toArray(), [-2, 256]);
    writeFileSync(path, idx(0x09, [2], [0xff, 7]));
    assert.deepEqual(readIdx(path).toArray(), [-1, 7]);
    writeFileSync(path, idx(0x08, [3, 2], [1, 2, 3]));
    assert.throws(() => readIdx(path), /3x2 elements of 1 bytes need 18 bytes, the file has 15/);
    writeFileSync(path, 'hello');
    assert.throws(() => readIdx(path), /is no IDX file/);
    writeFileSync(join(dir, 'train-images-idx3-ubyte.gz'), gzipSync(idx(0x08, [2, 2, 2], [1, 2, 3, 4, 5, 6, 7, 8])));
    writeFileSync(join(dir, 'train-labels-idx1-ubyte'), idx(0x08, [2], [3, 9]));
    const { image, label } = readMnist(dir, 'train').get(1);
    assert.deepEqual(image.toArray(), [
      [
        [5, 6],
        [7, 8],
      ],
    ]);
    assert.equal(label.item(), 9);
    assert.throws(() => readMnist(dir, 'test'), /has no t10k-images-idx3-ubyte/);
  }));

test('a folder of pictures by class', () =>
  inFolder(async (dir) => {
    for (const [name, value] of [
      ['dark', 0],
      ['light', 255],
    ] as const) {
      mkdirSync(join(dir, name));
      const png = new PNG({ width: 6, height: 4 });
      png.data.fill(value);
      writeFileSync(join(dir, name, 'a.png'), PNG.sync.write(png));
    }
    const set = new PictureFolder(dir, { size: [2, 3], mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] });
    assert.deepEqual(set.classes, ['dark', 'light']);
    const [batch] = await all(new DataLoader(set, { batch: 2 }));
    assert.deepEqual(
      [batch.image.shape, batch.label.toArray()],
      [
        [2, 3, 2, 3],
        [0, 1],
      ],
    );
    assert.deepEqual(batch.image.mean([1, 2, 3], false).toArray(), [-1, 1]);
  }));

test('samples without one set of names, and a loop that does not wait, are refused with a sentence', async () => {
  for (const [samples, says] of [
    [[{ a: 1, b: 2 }, { a: 1 }], /collate: .* b is not in sample 1 of a batch/],
    [[{ a: 1 }, { a: 1, c: 2 }], /collate: .* c is not in sample 0 of a batch/],
  ] as const) {
    const loader = new DataLoader(Dataset.of(samples as never), { batch: 2 });
    await assert.rejects(async () => {
      for await (const batch of loader) void batch;
    }, says);
    assert.throws(() => [...(loader as unknown as Iterable<unknown>)], /for await \(const batch of loader\)/);
  }
});

test('files and folders that are not there are refused by name', () => {
  for (const read of [readCsv, readIdx, readJsonLines, (p: string) => new PictureFolder(p, { size: [2, 2] })])
    assert.throws(
      () => read('/no/such/place'),
      (e) => e instanceof FormatError && /^\/no\/such\/place: cannot be opened: ENOENT/.test(e.message),
    );
  assert.throws(() => loadPicture('/no/such.png', { size: [2, 2] }), /\/no\/such\.png: cannot be opened: ENOENT/);
  assert.throws(() => readCsv(undefined as never), /a path is text, not undefined/);
  assert.throws(() => new TensorDataset({ x: [1, 2] } as never), /TensorDataset: x is no tensor/);
});
