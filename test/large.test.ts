// Tensors beyond 4 GiB and beyond the device's memory. They need a real GPU: WICK_TEST_DEVICES=cuda:0, as `npm run
// test:gpu` sets it.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { OutOfMemoryError } from '../src/base/errors.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { arange, Device, full, scope, tensor, zeros } from '../src/index.js';

const GIB = 2 ** 30;
const names = (process.env.WICK_TEST_DEVICES ?? '').split(',').filter((n) => /^(cuda|rocm):/.test(n));
const skip =
  names.length === 0 && 'no GPU is named in WICK_TEST_DEVICES: 5 GiB are too much for the engines of the host';
/** Rows of the large tensors, all of them 5 GiB. */
const ROWS = 5120;

describe('tensors larger than 4 GiB', { skip }, () => {
  for (const name of names) {
    test(`f32 on ${name}: elementwise, row sums, rows picked and a transposed copy`, () => {
      const device = Device.get(name);
      scope(() => {
        const cols = (5 * GIB) / 4 / ROWS;
        // Every element is its row's number, so that what lands in a wrong place shows.
        const x = arange(0, ROWS, 1, { device }).unsqueeze(1).broadcastTo([ROWS, cols]).copy();
        const sums = x.affine(2, 1).sum(-1).dataSync();
        for (let r = 0; r < ROWS; r++) assert.equal(sums[r], (2 * r + 1) * cols, `row ${r}`);
        const picked = [5119, 0, 4097, 4096, 2048, 5000];
        const rows = x.indexSelect(0, tensor(picked, { dtype: 'u32', device }));
        assert.deepEqual([...rows.max(-1).dataSync()], picked);
        assert.deepEqual([...rows.min(-1).dataSync()], picked);
        device.trim();
        const turned = x.t().copy();
        assert.deepEqual(
          [...turned.narrow(0, cols - 1, 1).dataSync()],
          Array.from({ length: ROWS }, (_, i) => i),
        );
      });
      device.trim();
    });

    test(`u8 on ${name}: more than 2^32 elements`, () => {
      const device = Device.get(name);
      scope(() => {
        const cols = (5 * GIB) / ROWS;
        const x = full([ROWS, cols], 3, { dtype: 'u8', device });
        x.narrow(0, ROWS - 1, 1)
          .narrow(1, cols - 1, 1)
          .assign(full([1, 1], 9, { dtype: 'u8', device }));
        const y = x.add(x);
        assert.equal(y.flatten().min(0).dataSync()[0], 6);
        const tops = y.max(-1).dataSync();
        for (let r = 0; r < ROWS; r++) assert.equal(tops[r], r === ROWS - 1 ? 18 : 6, `row ${r}`);
        assert.equal(y.argmax(-1).dataSync()[ROWS - 1], cols - 1);
        assert.deepEqual(
          [
            ...y
              .indexSelect(0, tensor([ROWS - 1, 4096], { dtype: 'u32', device }))
              .max(-1)
              .dataSync(),
          ],
          [18, 6],
        );
        const strided = y.narrow(1, 1, cols - 1).eq(y.narrow(1, 0, cols - 1));
        assert.equal(strided.flatten().min(0).dataSync()[0], 0);
        assert.deepEqual([...strided.min(-1).dataSync()].indexOf(0), ROWS - 1);
      });
      device.trim();
    });

    test(`f16 on ${name}: a convolution along a dimension of more than 2^31`, () => {
      const device = Device.get(name);
      scope(() => {
        const length = 2 ** 31 + 1000;
        const x = zeros([1, 1, length], { dtype: 'f16', device });
        const marks = [0, 7, 2 ** 30, length - 500, length - 1];
        marks.forEach((m, i) => x.narrow(2, m, 1).assign(full([1, 1, 1], i + 1, { dtype: 'f16', device })));
        const y = x.conv1d(tensor([[[1, 2, 3]]], { dtype: 'f16', device }), { padding: 1 });
        const near = (m: number): number[] =>
          [m - 1, m, m + 1].map((at) =>
            at < 0 || at >= length ? NaN : Number(y.narrow(2, at, 1).castTo('f32').dataSync()[0]),
          );
        marks.forEach((m, i) =>
          assert.deepEqual(
            near(m),
            [3, 2, 1].map((w, k) => (m + k - 1 < 0 || m + k - 1 >= length ? NaN : w * (i + 1))),
            `around ${m}`,
          ),
        );
      });
      device.trim();
    });

    test(`an allocation beyond the memory of ${name} is a typed error with sizes, and work goes on`, () => {
      const device = Device.get(name);
      const { total } = (device.backend as GpuBackend).context.device.memory();
      const want = Math.ceil(total / GIB) + 8;
      assert.throws(
        () => zeros([want, GIB], { dtype: 'u8', device }),
        (e) => {
          assert.ok(e instanceof OutOfMemoryError, String(e));
          assert.match(
            e.message,
            new RegExp(`no room for ${want * GIB} bytes \\(${want}\\.00 GiB\\): .* GiB of .* GiB are free`),
          );
          return true;
        },
      );
      scope(() => {
        // What is kept for reuse gives way: each of these fits only after the one before was given back.
        const most = Math.floor((total / GIB) * 0.6);
        for (let i = 0; i < 3; i++)
          scope(() =>
            assert.equal(
              full([most + 8 * i, GIB], i, { dtype: 'u8', device })
                .narrow(0, most - 1, 1)
                .flatten()
                .max(0)
                .dataSync()[0],
              i,
            ),
          );
        assert.deepEqual([...arange(0, 4, 1, { device }).add(1).dataSync()], [1, 2, 3, 4]);
      });
      device.trim();
    });

    test(`layouts seen before on ${name} upload nothing`, () => {
      const device = Device.get(name);
      const low = (device.backend as GpuBackend).context.device;
      scope(() => {
        const x = arange(0, 24, 1, { device }).reshape([2, 3, 4]);
        const ids = tensor([1, 0, 2, 1, 1, 0], { dtype: 'u32', device }).reshape([1, 3, 2]);
        const work = (): unknown[] => [
          ...x.permute([0, 2, 1]).add(1).dataSync(),
          ...x.gather(2, ids).dataSync(),
          ...x.flip([1]).dataSync(),
        ];
        const first = work();
        const copyIn = low.copyIn.bind(low);
        let uploads = 0;
        low.copyIn = (...args) => (uploads++, copyIn(...args));
        try {
          assert.deepEqual(work(), first);
        } finally {
          low.copyIn = copyIn;
        }
        assert.equal(uploads, 0);
      });
    });
  }
});
