// Truth values: what gives bool, what takes it, what sums of it and of small integers are, and how it is stored.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type DType, fuse, ones, Tensor, zeros } from '../src/index.js';
import { DTypeError } from '../src/base/errors.js';
import { loadTensors, saveTensors } from '../src/io/index.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import { testDevices } from '../src/testing/devices.js';

for (const { name, device, missing } of testDevices('cpu,sim:32,reference')) {
  const on = (values: readonly (number | boolean)[], dtype?: DType): Tensor =>
    Tensor.from(values as number[], { dtype, device: device as Device });
  const check = (title: string, body: () => void): void => {
    test(`${title} on ${name}`, { skip: missing }, () => {
      scope(() => {
        body();
      });
    });
  };
  const is = (t: Tensor, dtype: DType, values: unknown): void => {
    assert.equal(t.dtype, dtype);
    assert.deepEqual(t.toArray(), values);
  };

  check('comparisons, predicates and logic give bool', () => {
    const x = on([0, 1, 2, NaN]);
    is(x.gt(1), 'bool', [0, 0, 1, 0]);
    is(x.ne(x), 'bool', [0, 0, 0, 1]);
    is(x.isNan(), 'bool', [0, 0, 0, 1]);
    is(x.logicalNot(), 'bool', [1, 0, 0, 0]);
    is(x.gt(0).logicalAnd(x.lt(2)), 'bool', [0, 1, 0, 0]);
    is(x.gt(0).logicalXor(x.lt(2)), 'bool', [1, 0, 1, 0]);
    is(x.gt(0).eq(x.lt(2)), 'bool', [0, 1, 0, 1]);
    is(x.gt(0).any(), 'bool', 1);
    is(x.gt(0).all(), 'bool', 0);
    is(x.gt(0).max(), 'bool', 1);
    is(on([true, false]), 'bool', [1, 0]);
  });

  check('casts to bool ask whether there is anything', () => {
    is(on([0.25, -0, 0, NaN, -3, 256]).cast('bool'), 'bool', [1, 0, 0, 1, 1, 1]);
    is(on([0, 256, 65536], 'i32').cast('bool'), 'bool', [0, 1, 1]);
    is(on([0, 2, 255], 'u8').cast('bool'), 'bool', [0, 1, 1]);
    is(on([0.25, 0, NaN], 'bf16').cast('bool'), 'bool', [1, 0, 1]);
    is(on([true, false]).cast('f16'), 'f16', [1, 0]);
    is(on([true, false]).cast('i64'), 'i64', [1, 0]);
  });

  check('sums, products and running sums of bool and small integers are i64', () => {
    const options = { device: device as Device };
    is(ones([1000], options).gt(0).sum(), 'i64', 1000);
    is(ones([3, 1000], options).gt(0).sum(0).sum(), 'i64', 3000);
    is(ones([70000], options).gt(0).cumsum(0).get(69999), 'i64', 70000);
    is(ones([300, 9], options).gt(0).cumsum(0).get(299).get(8), 'i64', 300);
    is(on([200, 100], 'u8').sum(), 'i64', 300);
    is(on([200, 200], 'u8').prod(), 'i64', 40000);
    is(on([-30000, -30000], 'i16').sum(), 'i64', -60000);
    is(on([-30000, -30000], 'i16').cumsum(0, { reverse: true }), 'i64', [-60000, -30000]);
    is(on([-(2 ** 31), -(2 ** 31)], 'i32').sum(), 'i64', -(2 ** 32));
    is(on([2 ** 32 - 1, 2], 'u32').sum(), 'i64', 2 ** 32 + 1);
    is(on([2 ** 32 - 1, 2], 'u32').prod(), 'i64', 2 * (2 ** 32 - 1));
    is(on([true, true, false]).prod(), 'i64', 0);
    is(zeros([0], { dtype: 'bool', ...options }).sum(), 'i64', 0);
    is(on([1, 2]).sum(), 'f32', 3);
  });

  check('masks choose, fill and index, as bool or as u8', () => {
    const x = on([1, 2, 3]);
    for (const mask of [on([true, false, true]), on([1, 0, 7], 'u8')]) {
      is(mask.where(x, x.neg()), 'f32', [1, -2, 3]);
      is(x.maskedFill(mask, 9), 'f32', [9, 2, 9]);
      is(x.at(mask), 'f32', [1, 3]);
      is(x.maskedSelect(mask), 'f32', [1, 3]);
    }
    const q = on([0.1, 0.2, 0.3, 0.4]).reshape([1, 1, 2, 2]);
    const seen = on([true, false, true, true]).reshape([1, 1, 2, 2]);
    assert.deepEqual(q.sdpa(q, q, { mask: seen }).toArray(), q.sdpa(q, q, { mask: seen.cast('u8') }).toArray());
    is(seen.where(seen, seen.logicalNot()).reshape([4]), 'bool', [1, 1, 1, 1]);
    is(seen.reshape([4]).cat([seen.reshape([4])], 0), 'bool', [1, 0, 1, 1, 1, 0, 1, 1]);
  });

  check('arithmetic on truth values is refused with what to do instead', () => {
    const m = on([true, false]);
    for (const f of [
      () => m.add(m),
      () => m.mul(m),
      () => m.neg(),
      () => m.mean(),
      () => m.affine(2, 1),
      () => m.relu(),
    ])
      assert.throws(f, DTypeError);
    assert.throws(() => m.add(m), /truth values have no arithmetic; use logicalAnd/);
    assert.throws(() => m.indexSelect(0, m), /indices are bool/);
    assert.throws(() => m.requireGrad(), /only floats have gradients/);
  });

  check('fused chains pass through bool', () => {
    const f = fuse((a: Tensor, b: Tensor) => a.gt(0).logicalAnd(b.cast('bool')).where(a, b));
    is(f(on([-1, 2, 3]), on([5, 0, 7])), 'f32', [5, 0, 3]);
    is(fuse((a: Tensor) => a.cast('bool').cast('f32'))(on([0.5, 0, NaN])), 'f32', [1, 0, 1]);
    is(fuse((a: Tensor) => a.logicalNot())(on([true, false])), 'bool', [0, 1]);
  });

  check('bool prints as words', () => {
    assert.match(on([true, false]).toString(), /^\[ true, false\]\nTensor \[2\] bool/);
  });
}

test('bool survives safetensors and npz', () => {
  const dir = mkdtempSync(join(tmpdir(), 'wick-bool-'));
  try {
    for (const file of ['m.safetensors', 'm.npz']) {
      saveTensors(join(dir, file), { mask: Tensor.from([[true, false, true]]) });
      const back = loadTensors(join(dir, file)).get('mask') as Tensor;
      assert.deepEqual([back.dtype, back.toArray()], ['bool', [[1, 0, 1]]]);
    }
  } finally {
    rmSync(dir, { recursive: true });
  }
});
