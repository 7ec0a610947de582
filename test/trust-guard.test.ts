// What once killed the process from plain JavaScript, or read memory of others: each is a typed error or the right
// answer now.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Layout } from '../src/base/layout.js';
import { type DType, REALS } from '../src/base/dtype.js';
import { einsum, full, ones, randn, tensor, type Tensor, WickError, zeros } from '../src/index.js';
import { Linear } from '../src/nn/index.js';
import { testDevices } from '../src/testing/devices.js';

const refused = (f: () => unknown, code: string, says: RegExp): void => {
  assert.throws(f, (e: unknown) => {
    assert.ok(e instanceof WickError, `untyped: ${String(e)}`);
    assert.equal(e.code, code, e.message);
    assert.match(e.message, says);
    return true;
  });
};
/** Arguments of the wrong type on purpose. */
const wrong = (v: unknown): never => v as never;

for (const { name, device, missing } of testDevices('cpu,reference,sim:32')) {
  test(`products of two dtypes are refused on ${name}`, { skip: missing }, () => {
    const make = (shape: number[], dtype: DType): Tensor => ones(shape, { dtype, device });
    for (const a of REALS) {
      for (const b of REALS) {
        if (a === b) continue;
        const both = new RegExp(`${a} .* and ${b} `);
        refused(() => make([3, 4], a).matmul(make([4, 2], b)), 'E_DTYPE', both);
        refused(() => make([4], a).dot(make([4], b)), 'E_DTYPE', /.*/);
        refused(() => einsum('ij,jk->ik', make([3, 4], a), make([4, 2], b)), 'E_DTYPE', /.*/);
      }
    }
    refused(() => make([300, 400], 'f64').matmul(make([400, 400], 'u8')), 'E_DTYPE', /f64 \[300, 400\] and u8/);
    const layer = new Linear(make([2, 4], 'bf16'), undefined);
    refused(() => layer.forward(make([3, 4], 'f32')), 'E_DTYPE', /f32 .* and bf16 /);
    refused(() => make([1, 2, 3], 'f32').conv1d(make([2, 2, 1], 'f64')), 'E_DTYPE', /conv1d/);
    refused(() => make([2, 3], 'f32').layerNorm(make([3], 'f64')), 'E_DTYPE', /layerNorm/);
    const q = make([1, 1, 2, 4], 'f32');
    refused(() => q.sdpa(make([1, 1, 2, 4], 'f16'), q), 'E_DTYPE', /sdpa/);
    refused(() => make([3], 'f32').cat([make([3], 'f64')], 0), 'E_SHAPE', /cat/);
  });

  test(`a tensor where a number is expected is refused on ${name}`, { skip: missing }, () => {
    const t = ones([3, 3], { device }).t();
    refused(() => full([4], wrong(t), { device }), 'E_ARGUMENT', /value is/);
    refused(() => t.newFull([4], wrong(t)), 'E_ARGUMENT', /value is/);
    refused(() => full([4], wrong('5'), { device }), 'E_ARGUMENT', /value is string/);
    refused(() => t.newArange(4, 'f32', wrong(t)), 'E_ARGUMENT', /start is/);
    refused(() => randn([4], { mean: wrong(t), device }), 'E_ARGUMENT', /mean is/);
    refused(() => t.place([5, 5], [0, 0], [1, 1], wrong(t)), 'E_ARGUMENT', /value is/);
    refused(() => t.affine(wrong(t), 0), 'E_ARGUMENT', /not a number/);
    refused(() => t.softmax(wrong(t)), 'E_SHAPE', /dimension/);
    let asked = 0;
    const sly = { valueOf: () => (asked++, t.add(1).sum().item()) };
    refused(() => full([4], wrong(sly), { device }), 'E_ARGUMENT', /value is/);
    assert.equal(asked, 0, 'the object was asked for a number');
  });

  test(`shapes belong to the tensor on ${name}`, { skip: missing }, () => {
    const s = [4];
    const made = [
      zeros(s, { device }),
      randn(s, { device }),
      tensor(new Float32Array(4), { shape: s, device }),
      ones([1], { device }).broadcastTo(s),
      zeros([4], { device }).reshape(s),
    ];
    s[0] = 2 ** 20;
    for (const t of made) {
      assert.deepEqual(t.shape, [4]);
      assert.equal(t.sum().shape.length, 0);
      (t.shape as number[])[0] = 2 ** 20;
      assert.deepEqual(t.shape, [4]);
      assert.equal((t.exp().toArray() as number[]).length, 4);
    }
    // Whoever reaches further in is stopped in front of the call.
    const t = zeros([4], { device });
    (t.layout.shape as number[])[0] = 2 ** 20;
    refused(() => t.exp(), 'E_SHAPE', /./);
    refused(() => t.sum(), 'E_SHAPE', /does not lie within its 16 bytes/);
    const u = zeros([4], { device });
    (u.layout.strides as number[])[0] = -(2 ** 20);
    refused(() => u.sum(), 'E_SHAPE', /does not lie within/);
  });

  test(`layouts beyond their memory are refused on ${name}`, { skip: missing }, () => {
    const t = ones([16], { device });
    refused(() => t.withLayout(new Layout([16], [1], 1)), 'E_SHAPE', /does not lie within the 64 bytes/);
    refused(() => t.withLayout(new Layout([4], [-1], 2)), 'E_SHAPE', /does not lie within/);
    refused(() => t.withLayout(new Layout([2 ** 20], [1])), 'E_SHAPE', /does not lie within/);
    refused(() => t.withLayout(new Layout([1.5], [1])), 'E_SHAPE', /does not lie within/);
    assert.deepEqual(t.withLayout(new Layout([4], [-1], 3)).toArray(), [1, 1, 1, 1]);
    refused(() => t.place([16], [15], [-16]), 'E_ARGUMENT', /steps -16/);
    refused(() => t.place([16], [0.5], [1]), 'E_ARGUMENT', /starts 0.5/);
    refused(() => t.place([16], [0, 0], [1]), 'E_SHAPE', /does not lie within/);
    for (const bad of [-1, 2 ** 60, Number.NaN, 1.5, Number.POSITIVE_INFINITY, wrong('3'), wrong(null)]) {
      refused(() => ones([1], { device }).broadcastTo([bad]).sum(), 'E_SHAPE', /broadcastTo/);
      refused(() => zeros([bad], { device }), 'E_SHAPE', /./);
      refused(() => t.reshape([bad, 2, 3]), 'E_SHAPE', /./);
    }
    refused(() => zeros(wrong(null), { device }), 'E_SHAPE', /the shape is null/);
    refused(() => zeros([2 ** 30, 2 ** 30], { device }), 'E_SHAPE', /more than 2\^50/);
  });

  test(`assigning across devices is refused on ${name}`, { skip: missing }, () => {
    const other = name === 'reference' ? 'cpu' : 'reference';
    const here = zeros([4], { device });
    const there = ones([4], { device: other });
    refused(() => here.assign(there), 'E_DEVICE', /assign: operands are on different devices/);
    refused(() => here.add(there), 'E_DEVICE', /different devices/);
    refused(() => here.assign(wrong('5')), 'E_ARGUMENT', /assign: operand 1 is string/);
    assert.deepEqual(here.toArray(), [0, 0, 0, 0]);
  });
}
