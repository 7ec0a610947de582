// Index data that points outside: named by the CPU engines before anything is read, clamped and reported by GPU
// kernels.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { IndexError, ones, type Tensor, tensor, WickError } from '../src/index.js';
import { testDevices } from '../src/testing/devices.js';

for (const { name, device, missing } of testDevices('cpu,reference,sim:32')) {
  const gpu = device?.backend instanceof GpuBackend;
  /** CPU engines say at once what is wrong; a GPU says which op it was when the result is read, and says it again. */
  const refused = (op: RegExp, says: RegExp, f: () => Tensor): void => {
    const bad = (e: unknown): boolean => {
      assert.ok(e instanceof IndexError, String(e));
      assert.match(e.message, op);
      if (!gpu) assert.match(e.message, says);
      return true;
    };
    if (!gpu) return assert.throws(f, bad);
    const result = f();
    assert.throws(() => result.dataSync(), bad);
    assert.throws(() => result.dataSync(), bad, 'the second read gave numbers');
    assert.equal(ones([2], { device }).sum().item(), 2, 'another tensor is void too');
  };
  const i32 = (v: number | number[] | number[][]): Tensor => tensor(v, { dtype: 'i32', device });
  const x = (...shape: number[]): Tensor => ones(shape, { device });

  test(`attention with lengths beyond the cache on ${name}`, { skip: missing }, () => {
    for (const n of [2e9, 6, -1, -2e9]) {
      const says = new RegExp(`length ${n} at position 1 is out of range; there is room for 0 to 5 keys`);
      refused(/sdpa/, says, () => x(2, 2, 1, 4).sdpa(x(2, 1, 5, 4), x(2, 1, 5, 4), { lengths: i32([5, n]) }));
    }
    const fine = x(2, 2, 1, 4).sdpa(x(2, 1, 5, 4), x(2, 1, 5, 4), { lengths: i32([5, 0]) });
    assert.deepEqual(fine.at(0, 0, 0).toArray(), [1, 1, 1, 1]);
  });

  test(`attention with bad pages or lengths on ${name}`, { skip: missing }, () => {
    const run = (pages: number[][], lengths: number[]) => (): Tensor =>
      x(2, 2, 1, 4).sdpaPaged(x(5, 1, 3, 4), x(5, 1, 3, 4), i32(pages), { lengths: i32(lengths) });
    const table = [
      [4, 0, 2],
      [1, 3, 0],
    ];
    for (const page of [5, -1, 2e9, -2e9])
      refused(/sdpa/, new RegExp(`page ${page} at position \\[1, 1\\].* there are 5 pages`), run([[4, 0, 2], [1, page, 0]], [8, 4])); // biome-ignore format: one line a case
    for (const n of [10, -1, 2e9]) refused(/sdpa/, new RegExp(`length ${n} at position 0`), run(table, [n, 4]));
    // What lies behind the length is not looked at.
    assert.equal(run([[4, 0, -7], [1, 99, 99]], [6, 3])().at(1, 0, 0, 0).item(), 1); // biome-ignore format: one line a case
    const needed = x(1, 2, 1, 4).sdpaPaged.bind(x(1, 2, 1, 4), x(5, 1, 3, 4), x(5, 1, 3, 4), i32([[1, 2]]));
    assert.throws(() => needed({} as never), /pages need lengths/);
  });

  test(`attention with bad starts on ${name}`, { skip: missing }, () => {
    const run =
      (q: number[], k: number[], maxQueries = 6, maxKeys = 9) =>
      (): Tensor =>
        x(6, 2, 4).sdpaVarlen(x(9, 1, 4), x(9, 1, 4), i32(q), i32(k), { maxQueries, maxKeys });
    const good = [0, 2, 6];
    assert.equal(run(good, [0, 4, 9])().at(5, 0, 0).item(), 1);
    for (const bad of [[0, 2, 7], [0, 7, 6], [-1, 2, 6], [0, 2e9, 6]]) // biome-ignore format: one line
      refused(/sdpa/, /qStarts runs from/, run(bad, [0, 4, 9]));
    for (const bad of [[0, 4, 10], [0, 10, 9], [-4, 4, 9], [0, 4, 2e9]]) // biome-ignore format: one line
      refused(/sdpa/, /kStarts runs from/, run(good, bad));
    refused(/sdpa/, /qStarts holds a sequence of 4 rows at position 1, longer than the 3/, run(good, [0, 4, 9], 3));
    refused(/sdpa/, /kStarts holds a sequence of 5 rows at position 1, longer than the 4/, run(good, [0, 4, 9], 6, 4));
    for (const bad of [-1, 1.5, Number.NaN])
      assert.throws(run(good, [0, 4, 9], bad), (e) => e instanceof WickError && e.code === 'E_ARGUMENT');
  });

  test(`indices outside a dimension on ${name}`, { skip: missing }, () => {
    const table = x(3, 4);
    for (const id of [3, -1, 2e9, -2e9]) {
      const says = new RegExp(`index ${id} at position 1 is out of range for a dimension of size 3`);
      refused(/indexSelect/, says, () => table.indexSelect(0, i32([0, id])));
      refused(/indexSelect/, says, () => table.embedding(i32([0, id])));
      refused(/gather/, says, () => table.gather(0, i32([[0, id]])));
      refused(/scatter/, says, () => table.scatter(0, i32([[0, id]]), x(1, 2)));
      refused(/scatterAdd/, says, () => table.scatterAdd(0, i32([[0, id]]), x(1, 2)));
      refused(/indexAdd/, says, () => table.indexAdd(0, i32([0, id]), x(2, 4)));
    }
  });

  test(`a bad index is not taken for zeros on ${name}`, {
    skip: missing ?? (gpu ? false : 'a GPU reports later'),
  }, () => {
    const rows = ones([3, 4], { device }).indexSelect(0, i32([1, 9]));
    const sums = rows.add(1).sum(1);
    const other = ones([2], { device });
    // An unrelated read is told which op it was; what was computed from the result is NaN, not a plausible number.
    assert.throws(() => other.dataSync(), /indexSelect: an index was out of range/);
    assert.deepEqual(other.toArray(), [1, 1]);
    assert.deepEqual(sums.toArray(), [8, Number.NaN]);
    assert.throws(() => rows.dataSync(), /indexSelect: an index was out of range/);
    const picked = ones([3, 4], { device })
      .gather(1, i32([[0, 7]]))
      .mul(2);
    assert.throws(() => ones([1], { device }).item(), /gather: an index/);
    assert.deepEqual(picked.toArray(), [[2, Number.NaN]]);
  });

  test(`what a bad index writes voids its lane, and nothing else, on ${name}`, {
    skip: missing ?? (gpu ? false : 'a GPU reports later'),
  }, () => {
    const told = (op: RegExp): void => assert.throws(() => ones([1], { device }).item(), op);
    const { NaN: void_ } = Number;
    for (const op of ['scatter', 'scatterAdd'] as const) {
      const made = x(3, 4)
        [op](0, i32([[0, 9]]), x(1, 2))
        .mul(2);
      told(new RegExp(`${op}: an index`));
      const first = op === 'scatter' ? 2 : 4;
      const rest = [2, void_, 2, 2];
      assert.deepEqual(made.toArray(), [[first, void_, 2, 2], rest, rest], op);
      // Long lanes are sorted first; the other lane is as it should be.
      const ids = Array.from({ length: 2 }, (_, l) => Array.from({ length: 300 }, (_, j) => (l && j === 7 ? 400 : j)));
      const long = x(2, 400)[op](1, i32(ids), x(2, 300)).mul(1);
      told(new RegExp(`${op}: an index`));
      const [good, bad] = long.toArray() as number[][];
      assert.deepEqual(
        good,
        Array.from({ length: 400 }, (_, k) => (op === 'scatterAdd' && k < 300 ? 2 : 1)),
        op,
      );
      assert.ok(bad.every(Number.isNaN), op);
    }
    const rows = x(3, 2)
      .indexAdd(0, i32([1, 9, 1]), x(3, 2))
      .mul(1);
    told(/indexAdd: an index/);
    assert.ok((rows.toArray() as number[][]).flat().every(Number.isNaN));
    const none = 2 ** 31 - 1; // the index that means no element
    assert.deepEqual(
      x(3, 1)
        .indexAdd(0, i32([1, none]), x(2, 1))
        .toArray(),
      [[1], [2], [1]],
    );
  });
}
