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
}
