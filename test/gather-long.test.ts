// Gathers along lanes long enough for a kernel of their own, against the reference: every dimension and layout, indices
// that are none, and indices out of range.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DType, randn, scope, type Tensor, tensor } from '../src/index.js';
import { Device } from '../src/tensor/device.js';
import { testDevices } from '../src/testing/devices.js';

const home = Device.reference();
const SENTINEL = 2 ** 31 - 1;
/** Index numbers below n, of which one reads nothing. */
const idsOf = (shape: readonly number[], n: number, dtype: DType): Tensor => {
  const numbers = Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => ((i * 7919) % 10007) % n);
  if (dtype === 'i32') numbers[Math.min(150, numbers.length - 1)] = SENTINEL;
  return tensor(numbers, { dtype, device: home }).reshape([...shape]);
};

for (const { name, device: found, missing } of testDevices('cpu,sim:32,sim:64'))
  for (const dtype of ['f32', 'f64', 'bf16', 'u8'] as const)
    test(`long lanes of ${dtype} are read at indices on ${name}`, { skip: missing }, () =>
      scope(() => {
        const d = found as Device;
        const values = (shape: readonly number[]): Tensor =>
          randn([...shape], { device: home, seed: 1 })
            .abs()
            .affine(30, 0)
            .cast(dtype);
        const same = (what: string, got: Tensor, want: Tensor): void =>
          assert.deepEqual(got.bytesSync(), want.bytesSync(), what);
        const gathers: readonly (readonly [x: readonly number[], ids: readonly number[], dim: number])[] = [
          [[300], [1500], 0],
          [[3, 40], [3, 2100], 1],
          [[7, 300], [5, 257], 0],
          [[2, 9, 400], [2, 4, 400], 1],
          [[4, 3, 300], [6, 2, 299], 0],
        ];
        for (const [shape, at, dim] of gathers)
          for (const kind of ['i64', 'i32'] as const) {
            const [x, ids] = [values(shape), idsOf(at, shape[dim], kind)];
            same(`${shape} at ${at} along ${dim}`, x.to(d).gather(dim, ids.to(d)), x.gather(dim, ids));
          }
        // Operands that do not lie row by row, and one index for all channels.
        const x = values([300, 5]).t();
        const ids = idsOf([1000, 5], 300, 'i64').t();
        same('transposed', x.to(d).gather(1, ids.to(d)), x.gather(1, ids));
        const wide = (t: Tensor): Tensor => t.broadcastTo([2, 3, 400]);
        const [planes, one] = [values([2, 3, 70]), idsOf([2, 1, 400], 70, 'i64')];
        same('spread', planes.to(d).gather(2, wide(one.to(d))), planes.gather(2, wide(one)));
        const selects: readonly (readonly [x: readonly number[], dim: number])[] = [
          [[1000], 0],
          [[3, 50], 1],
        ];
        for (const [shape, dim] of selects) {
          const [from, list] = [values(shape), idsOf([1200], shape[dim], 'i32')];
          same(`select of ${shape}`, from.to(d).indexSelect(dim, list.to(d)), from.indexSelect(dim, list));
          const every = idsOf([1200, 2], shape[dim], 'i64').narrow(1, 1, 1).squeeze([1]);
          same('select by strided indices', from.to(d).indexSelect(dim, every.to(d)), from.indexSelect(dim, every));
        }
        const far = idsOf([3, 400], 40, 'i64').add(
          tensor(
            Array.from({ length: 400 }, (_, i) => (i === 399 ? 99 : 0)),
            { dtype: 'i64', device: home },
          ),
        );
        assert.throws(() => values([3, 40]).to(d).gather(1, far.to(d)).bytesSync(), /gather.*out of range/);
      }),
    );
