// A decoding step's products with weights in blocks: rows of two types in one launch are those of two launches, and
// Q6_K's are those of decoded weights.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { areTwo, gpuOf } from '../src/backends/generation.js';
import { ShapeError } from '../src/base/errors.js';
import { QTensor, randn, scope, type Tensor, zeros } from '../src/index.js';
import type { Device } from '../src/tensor/device.js';
import { testDevices } from '../src/testing/devices.js';

const bytesOf = (t: Tensor): Uint8Array => t.contiguous().bytesSync();

for (const { name, device, missing } of testDevices('sim:32,sim:64')) {
  for (const [first, rows, more] of [
    ['Q4_K', 75, 17],
    ['Q5_K', 640, 160],
  ] as const)
    test(`${first} over Q6_K on ${name}: ${rows} and ${more} rows`, { skip: missing }, () =>
      scope(() => {
        const on = device as Device;
        const n = 512;
        const steps = gpuOf(on.backend, 'decoding').decodeSteps('bf16');
        const of = (type: 'Q4_K' | 'Q5_K' | 'Q6_K', count: number, seed: number) =>
          QTensor.fromBytes(
            type,
            [count, n],
            QTensor.quantize(randn([count, n], { seed }), type).parts[0].blocks.bytesSync(),
            on,
          ).parts[0];
        const parts = [of(first, rows, 1), of('Q6_K', more, 2)];
        assert.ok(areTwo(parts) && !areTwo([parts[1], parts[0]]) && !areTwo(parts.slice(0, 1)));
        const given = (size: number, seed: number): Tensor => randn([size], { seed }).to(on).cast('bf16');
        const [x, bias] = [given(n, 3), given(rows + more, 4)];
        for (const norm of [undefined, { weight: given(n, 5), eps: 1e-5 }]) {
          const [one, apart] = [zeros([rows + more], { device: on, dtype: 'bf16' }), given(rows + more, 6)];
          const sides = { x, ...(norm && { norm }) };
          steps.two({ ...sides, bias, out: one, parts: parts.map(({ type, blocks }) => ({ type, blocks })) });
          let from = 0;
          for (const { type, blocks } of parts) {
            const part = (t: Tensor): Tensor => t.narrow(0, from, blocks.shape[0]);
            steps.product({ ...sides, bias: part(bias), out: part(apart), weight: blocks, type });
            from += blocks.shape[0];
          }
          assert.deepEqual(bytesOf(one), bytesOf(apart));
        }
        const narrow = of('Q6_K', more, 2);
        const short = { type: narrow.type, blocks: narrow.blocks.narrow(1, 0, 210) };
        const wrong = () => steps.two({ x, out: bias, parts: [parts[0], short] });
        assert.throws(wrong, (e) => e instanceof ShapeError && /512 values in Q._K over 256 in Q6_K/.test(e.message));
      }),
    );
  for (const [n, rows] of [
    [2048, 67],
    [6144, 150],
    [1024, 70],
    [2048, 20],
  ] as const)
    test(`Q6_K on ${name}: ${rows} rows of ${n} values`, { skip: missing }, () =>
      scope(() => {
        const on = device as Device;
        const steps = gpuOf(on.backend, 'decoding').decodeSteps('bf16');
        const encoded = QTensor.quantize(randn([rows, n], { seed: 7 }), 'Q6_K');
        const weight = QTensor.fromBytes('Q6_K', [rows, n], encoded.parts[0].blocks.bytesSync(), on).parts[0].blocks;
        const given = (size: number, seed: number): Tensor => randn([size], { seed }).to(on).cast('bf16');
        const [x, norm, bias, residual] = [given(n, 8), given(n, 9), given(rows, 10), given(rows, 11)];
        const [out, best] = [zeros([rows], { device: on, dtype: 'bf16' }), zeros([1], { device: on, dtype: 'i64' })];
        steps.product({ x, weight, type: 'Q6_K', norm: { weight: norm, eps: 1e-5 }, bias, residual, out, best });
        const wide = (t: Tensor): Tensor => t.to('cpu').cast('f32');
        const v = wide(x);
        const normed = v.mul(v.mul(v).mean().affine(1, 1e-5).rsqrt()).mul(wide(norm)).reshape([1, n]);
        const product = normed.matmul(encoded.dequantize('f32').t()).reshape([rows]);
        const want = product.add(wide(bias)).add(wide(residual));
        const scale = Math.sqrt(want.mul(want).mean().item());
        const worst = wide(out).sub(want).abs().max().item() / scale;
        assert.ok(worst < 0.04, `off by ${worst} of the root of the mean square`);
        const results = wide(out).toArray() as number[];
        const largest = results.indexOf(Math.max(...results));
        const row = ~Number(BigInt.asIntN(32, new BigInt64Array(best.bytesSync().slice().buffer)[0]));
        assert.equal(row, largest);
      }),
    );
}
