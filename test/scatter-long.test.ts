// Scatters and sums by index over lanes long enough for kernels of their own: the serial loop's bits on every device,
// whoever meets at a place.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DType, randn, scope, type Tensor, tensor } from '../src/index.js';
import { Device } from '../src/tensor/device.js';
import { testDevices } from '../src/testing/devices.js';

const DTYPES: readonly DType[] = ['f32', 'f64', 'f16', 'f8e4m3', 'u8', 'i16', 'i64'];
/** Lanes, indices of a lane, places of a lane, and the scattered dimension: a part of the places and several, crowds. */
const SHAPES = [
  { lanes: 3, count: 300, places: 40, dim: 1 },
  { lanes: 2, count: 700, places: 9001, dim: 1 },
  { lanes: 3, count: 513, places: 5, dim: 0 },
] as const;
const home = Device.reference();
const put = (t: Tensor, d: Device): Tensor => t.to(d);

for (const { name, device: found, missing } of testDevices('cpu,sim:32,sim:64')) {
  const run = (what: string, f: (d: Device) => void): void =>
    void test(`${what} on ${name}`, { skip: missing }, () => scope(() => f(found as Device)));
  for (const { lanes, count, places, dim } of SHAPES) {
    const lay = (n: number): number[] => (dim === 1 ? [lanes, n] : [n, lanes]);
    const values = (n: number, dtype: DType, seed: number): Tensor =>
      randn(lay(n), { device: home, seed }).abs().affine(3, 0).cast(dtype);
    // The middle index is the largest of its dtype, which writes nothing.
    const numbers = Array.from({ length: lanes * count }, (_, i) =>
      i === 150 ? 2 ** 31 - 1 : ((i * 7919) % 10007) % places,
    );
    const ids = tensor(numbers, { dtype: 'i32', device: home }).reshape(lay(count));
    const one = tensor(numbers.slice(0, count), { dtype: 'i32', device: home });
    for (const dtype of DTYPES)
      run(`${count} of ${dtype} to ${places} places along ${dim}`, (d) => {
        const [x, src] = [values(places, dtype, 1), values(count, dtype, 2)];
        const wide = dim === 1 ? one.reshape([1, count]) : one.reshape([count, 1]);
        for (const at of [ids, wide.broadcastTo(ids.shape)]) {
          assert.deepEqual(
            put(x, d).scatter(dim, put(at, d), put(src, d)).bytesSync(),
            x.scatter(dim, at, src).bytesSync(),
          );
          // The CPU rounds small floats once a call.
          if (name === 'cpu' && ['f16', 'f8e4m3'].includes(dtype)) continue;
          // Short lanes are added up by a thread each, in their order: pieces of a long one give its serial loop.
          let want = put(x, d);
          for (let from = 0; from < count; from += 200) {
            const part = (t: Tensor): Tensor => put(t.narrow(dim, from, Math.min(200, count - from)).copy(), d);
            want = want.scatterAdd(dim, part(at), part(src));
          }
          assert.deepEqual(put(x, d).scatterAdd(dim, put(at, d), put(src, d)).bytesSync(), want.bytesSync());
        }
        assert.deepEqual(
          put(x, d).indexCopy(dim, put(one, d), put(src, d)).bytesSync(),
          x.scatter(dim, wide.broadcastTo(src.shape), src).bytesSync(),
          'indexCopy',
        );
      });
    for (const dtype of ['f32', 'i64'] as const)
      run(`sums of ${count} of ${dtype} by index to ${places} places along ${dim}`, (d) => {
        const [x, src] = [values(places, dtype, 1), values(count, dtype, 2)];
        const got = put(x, d).indexAdd(dim, put(one, d), put(src, d)).to(home);
        const want = x.indexAdd(dim, one, src);
        if (dtype === 'i64') assert.deepEqual(got.bytesSync(), want.bytesSync());
        else assert.ok(got.sub(want).abs().div(want.abs().affine(1, 1)).max().item() < 2 ** -20);
      });
  }
  // A thread an index, and lanes whose places blocks hold, all of them or a part.
  for (const [lanes, count, places, dim] of [
    [3, 300, 40, 1],
    [70, 300, 40, 1],
    [65, 260, 4999, 0],
    [3, 40, 9001, 0],
  ] as const) {
    const lay = (n: number): number[] => (dim === 1 ? [lanes, n] : [n, lanes]);
    const ids = tensor(
      Array.from({ length: lanes * count }, (_, i) => (i === 150 ? 2 ** 31 - 1 : ((i * 7919) % 10007) % places)),
      { dtype: 'i32', device: home },
    ).reshape(lay(count));
    for (const dtype of DTYPES)
      run(`the largest and smallest of ${count} ${dtype} at each of ${places} places of ${lanes} lanes`, (d) => {
        const values = (n: number, seed: number): Tensor => {
          const v = randn(lay(n), { device: home, seed }).affine(3, 0);
          return (dtype === 'u8' ? v.abs() : v).cast(dtype);
        };
        const [x, src] = [values(places, 1), values(count, 2)];
        for (const reduce of ['amax', 'amin'] as const)
          for (const includeSelf of [true, false])
            assert.deepEqual(
              put(x, d).scatterReduce(dim, put(ids, d), put(src, d), reduce, { includeSelf }).bytesSync(),
              x.scatterReduce(dim, ids, src, reduce, { includeSelf }).bytesSync(),
              `${reduce}${includeSelf ? '' : ' without x'}`,
            );
      });
  }
  run('NaN is the largest and the smallest wherever it comes, 0 is above -0, integers reach their ends', (d) => {
    for (const lanes of [1, 64]) {
      const rows = (list: readonly number[], dtype: DType, n: number): Tensor =>
        tensor(
          Array.from({ length: lanes }, () => Array.from({ length: n }, (_, i) => list[i % list.length])),
          {
            dtype,
            device: d,
          },
        );
      const ids = rows([0, 1, 2, 3], 'i64', 300);
      const src = rows([1, -0, 5, NaN], 'f32', 300);
      const x = rows([NaN, 0, -Infinity, 2, 7], 'f32', 5);
      const first = (t: Tensor): unknown =>
        t
          .narrow(0, lanes - 1, 1)
          .flatten()
          .toArray();
      assert.deepEqual(first(x.scatterReduce(1, ids, src, 'amax')), [NaN, 0, 5, NaN, 7]);
      assert.deepEqual(first(x.scatterReduce(1, ids, src, 'amin')), [NaN, -0, -Infinity, NaN, 7]);
      assert.deepEqual(first(x.scatterReduce(1, ids, src, 'amin', { includeSelf: false })), [1, -0, 5, NaN, 7]);
      const ends = rows([-(2 ** 31), 2 ** 31 - 1], 'i32', 300);
      const [none, place] = [rows([5, 6, 9], 'i32', 3), rows([0, 1], 'i64', 300)];
      for (const reduce of ['amax', 'amin'] as const)
        assert.deepEqual(first(none.scatterReduce(1, place, ends, reduce, { includeSelf: false })), [
          -(2 ** 31),
          2 ** 31 - 1,
          9,
        ]);
    }
  });
}
