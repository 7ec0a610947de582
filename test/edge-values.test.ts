// Values at and beyond the edges of dtypes and arguments: the same answer on every device, or a refusal that says why.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  arange,
  type DType,
  einsum,
  eye,
  full,
  linspace,
  ones,
  rand,
  randint,
  randn,
  Tensor,
  zeros,
} from '../src/index.js';
import { DTypeError, ArgumentError } from '../src/base/errors.js';
import { testDevices } from '../src/testing/devices.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';

const INFINITE = Infinity;
const FLOATS = [-1.5, -0.5, 0.5, 300, NaN, INFINITE, -INFINITE, 40000, -40000, 255.9, 3e9, -3e9, 5e9, 1e30];
/** What each integer dtype makes of them: truncated, saturated, NaN is 0. */
const CASTS: Readonly<Partial<Record<DType, readonly number[]>>> = {
  u8: [0, 0, 0, 255, 0, 255, 0, 255, 0, 255, 255, 0, 255, 255],
  i16: [-1, 0, 0, 300, 0, 32767, -32768, 32767, -32768, 255, 32767, -32768, 32767, 32767],
  u32: [0, 0, 0, 300, 0, 2 ** 32 - 1, 0, 40000, 0, 255, 3e9, 0, 2 ** 32 - 1, 2 ** 32 - 1],
  i32: [
    -1,
    0,
    0,
    300,
    0,
    2 ** 31 - 1,
    -(2 ** 31),
    40000,
    -40000,
    255,
    2 ** 31 - 1,
    -(2 ** 31),
    2 ** 31 - 1,
    2 ** 31 - 1,
  ],
};

for (const { name, device, missing } of testDevices('cpu,sim:32,reference')) {
  const on = (values: readonly number[], dtype: DType = 'f32'): Tensor =>
    Tensor.from(values as number[], { dtype, device: device as Device });
  const check = (title: string, body: () => void): void => {
    test(`${title} on ${name}`, { skip: missing }, () => {
      scope(() => {
        body();
      });
    });
  };

  check('floats beyond an integer dtype saturate', () => {
    for (const from of ['f32', 'f64'] as const)
      for (const [to, want] of Object.entries(CASTS))
        assert.deepEqual(
          on(FLOATS, from)
            .cast(to as DType)
            .toArray(),
          want,
          `${from} to ${to}`,
        );
    const wide = on(FLOATS, 'f64').cast('i64').dataSync() as BigInt64Array;
    assert.deepEqual([wide[4], wide[5], wide[6], wide[12]], [0n, 2n ** 63n - 1n, -(2n ** 63n), 5000000000n]);
    assert.deepEqual(on([-3, 300, 70000], 'f16').cast('u8').toArray(), [0, 255, 255]);
  });

  check('bounds of clamp beyond an integer dtype bound nothing', () => {
    assert.deepEqual(on([1, 100], 'i32').clamp(0, Infinity).toArray(), [1, 100]);
    assert.deepEqual(on([1, 200], 'u8').clamp(-1, 300).toArray(), [1, 200]);
    assert.deepEqual(on([-7, 7], 'i16').clamp(-1e9, 1e9).toArray(), [-7, 7]);
    assert.deepEqual(on([-7, 7], 'i64').clamp(-Infinity, Infinity).toArray(), [-7, 7]);
    assert.deepEqual(
      on([1, 7], 'u32')
        .clamp(2 ** 40, 2 ** 41)
        .toArray(),
      [2 ** 32 - 1, 2 ** 32 - 1],
    );
    assert.throws(() => on([1], 'i32').clamp(0.5, 2), /clamp: min 0.5 is not a whole number/);
    assert.throws(() => on([1]).clamp(0, NaN), /clamp: max is NaN/);
  });

  check('clamp with its bounds exchanged gives the upper one', () => {
    for (const dtype of ['f32', 'f16', 'i32', 'u8'] as const)
      assert.deepEqual(on([0, 1, 2, 6], dtype).clamp(2, 1).toArray(), [1, 1, 1, 1], dtype);
    assert.ok(Number.isNaN(on([NaN]).clamp(2, 1).item()));
  });

  check('factors of integer tensors are whole and wrap', () => {
    assert.throws(() => on([1, 2], 'i32').affine(0.5, 1.5), DTypeError);
    assert.throws(() => on([1, 2], 'i32').affine(Infinity, 0), DTypeError);
    assert.deepEqual(on([1, 200], 'u8').affine(-1, 255).toArray(), [254, 55]);
    assert.deepEqual(on([1, 2], 'u8').affine(300, -1).toArray(), [43, 87]);
    assert.deepEqual(
      on([1, -2], 'i64')
        .affine(2 ** 40, 1)
        .toArray(),
      [2 ** 40 + 1, -(2 ** 41) + 1],
    );
  });

  check('a value to fill with fits its dtype', () => {
    const options = { dtype: 'u8' as const, device: device as Device };
    assert.throws(() => full([1], 300, options), /full: 300 is no u8 \(whole numbers 0 to 255\)/);
    assert.throws(() => full([1], NaN, options), DTypeError);
    assert.throws(() => on([1], 'u8').newFull([2], -1), DTypeError);
    assert.throws(() => on([1, 2], 'u8').pad([1, 1], 256), DTypeError);
    assert.throws(() => on([1, 2], 'i32').pad([1, 1], 0.5), DTypeError);
    assert.throws(() => on([1, 2], 'u8').maskedFill(on([0, 1], 'u8'), 300), DTypeError);
    assert.throws(() => Tensor.from([1, 300], options), /from: 300 is no u8/);
    assert.throws(() => arange(0, 300, 1, options), /arange: 299 is no u8/);
    assert.throws(() => arange(0, 3, 0.5, options), /both must be whole/);
  });

  check('norms of every order, of large and of small numbers', () => {
    assert.equal(on([-3, 2, 5]).norm(-Infinity).item(), 2);
    assert.equal(on([-3, 2, 5]).norm(Infinity).item(), 5);
    assert.equal(on([0, 1, 2]).norm(0).item(), 2);
    assert.equal(on([0, 2]).norm(-2).item(), 0);
    for (const scale of [1e30, 1e-30, 1])
      assert.ok(
        Math.abs(
          on([3 * scale, -4 * scale])
            .norm()
            .item() /
            (5 * scale) -
            1,
        ) < 1e-6,
        `scale ${scale}`,
      );
    assert.ok(Math.abs(on([3e200, 4e200], 'f64').norm(3).item() / 4.497941445275415e200 - 1) < 1e-14);
    assert.equal(on([0, 0]).norm().item(), 0);
    assert.equal(on([Infinity, 1]).norm().item(), Infinity);
    assert.ok(Number.isNaN(on([NaN, 1]).norm().item()));
    assert.throws(() => on([1]).norm(NaN), ArgumentError);
  });

  check('reductions of nothing, and of numbers whose squares leave the range', () => {
    const none = zeros([0, 2], { device: device as Device });
    assert.deepEqual(none.any(0).toArray(), [0, 0]);
    assert.deepEqual(none.all(0).toArray(), [1, 1]);
    assert.deepEqual(none.logSumExp(0).toArray(), [-Infinity, -Infinity]);
    assert.ok(Math.abs(on([1e30, 3e30]).std().item() / (Math.SQRT2 * 1e30) - 1) < 1e-6);
    assert.ok(Number.isNaN(on([NaN, 1, 7]).norm(Infinity).item()));
    assert.ok(Number.isNaN(on([NaN, 1, 7]).norm(-Infinity).item()));
  });

  check('gradients where functions have corners and zeros', () => {
    const gradient = (values: readonly number[], f: (x: Tensor) => Tensor): unknown => {
      const x = on(values, 'f64').requireGrad();
      return (f(x).sum().backward().of(x).toArray() as number[]).map((v) => v + 0); // -0 is 0 here
    };
    assert.deepEqual(
      gradient([-1, 0, 3, 6, 7], (x) => x.relu6()),
      [0, 0, 1, 0, 0],
    );
    assert.deepEqual(
      gradient([0, 0], (x) => x.norm()),
      [0, 0],
    );
    assert.deepEqual(
      gradient([0, 0], (x) => x.norm(3)),
      [0, 0],
    );
    assert.deepEqual(
      gradient([0, 2], (x) => x.norm(0.5)),
      [0, 1],
    );
    assert.deepEqual(
      gradient([3, 3, 3], (x) => x.std()),
      [0, 0, 0],
    );
    assert.deepEqual(
      gradient([0, 2], (x) => x.pow(x.detach().zerosLike())),
      [0, 0],
    );
    assert.deepEqual(
      gradient([0, 2], (x) => on([0, 0], 'f64').pow(x)),
      [0, 0],
    );
    assert.deepEqual(
      gradient([2, 0, 3], (x) => x.prod()),
      [0, 6, 0],
    );
    assert.deepEqual(
      gradient([2, 0, 3, 0, 5], (x) => x.prod()),
      [0, 0, 0, 0, 0],
    );
    assert.deepEqual(
      gradient([2, 3, 5, 7, 11], (x) => x.prod()),
      [1155, 770, 462, 330, 210],
    );
    assert.deepEqual(
      gradient([0, -1], (x) => x.prelu(on([0.25], 'f64'))),
      [0.25, 0.25],
    );
    assert.deepEqual(
      gradient([1e30, -1e30, 0], (x) => x.silu()),
      [1, 0, 0.5],
    );
    assert.deepEqual(
      gradient([1e30, -1e30, 0], (x) => x.gelu()),
      [1, 0, 0.5],
    );
    assert.deepEqual(
      gradient([Infinity, -Infinity, 3, -3], (x) => x.hardSwish()),
      [1, 0, 1, 0],
    );
    const half = on([300, -300], 'f16').requireGrad();
    const slopes = half.gelu().sum().backward().of(half).toArray() as number[];
    assert.ok(slopes[0] === 1 && slopes[1] === 0, String(slopes));
    // The second derivative of a product at a zero: d2/dx0dx1 of x0 x1 x2 at [2, 0, 3] is 3.
    const x = on([2, 0, 3], 'f64').requireGrad();
    const first = x.prod().backward({ createGraph: true }).of(x);
    assert.deepEqual(first.get(0).backward().of(x).toArray(), [0, 3, 0]);
  });

  check('an infinite gradient of a resized pixel reaches those that it was made of, and no neighbours', () => {
    const x = on([3, 1, 4, 1, 5, 9]).reshape([1, 1, 1, 6]).requireGrad();
    const y = x.interpolate({ size: [1, 12], mode: 'bilinear' });
    const grad = on([1, 1, 1, 1, 1, Infinity, 1, 1, 1, 1, 1, 1]).reshape(y.shape);
    assert.deepEqual(y.backward({ grad }).of(x).flatten().toArray(), [2, 2, Infinity, Infinity, 2, 2]);
    const same = x.interpolate({ size: [1, 6], mode: 'bilinear' });
    const nan = on([1, 1, NaN, 1, 1, 1]).reshape(same.shape);
    assert.deepEqual(same.backward({ grad: nan }).of(x).flatten().toArray(), [1, 1, NaN, 1, 1, 1]);
  });

  check('arguments that would be ignored or cut are refused', () => {
    const x = on([1, 2, 3, 4]);
    const bad = (f: () => unknown, says: RegExp): void =>
      assert.throws(f, (e) => e instanceof ArgumentError && says.test(e.message));
    bad(() => einsum('ij->ji->i', ones([2, 2])), /more than one "->"/);
    bad(() => einsum('i..j->ij', ones([2, 2])), /holds something else/);
    bad(() => eye(1.5), /eye: size 1.5/);
    bad(() => x.split(0), /split: size 0/);
    bad(() => x.split([5, -1]), /split: sizes \[5, -1\]/);
    bad(() => x.at([true, false] as never), /is not a slice/);
    bad(() => x.at([0, 1, 1, 0] as never), /is not a slice/);
    bad(() => x.at('1' as never), /"1" is not an index/);
    bad(() => x.rmsNorm(x, 0.5 as never), /rmsNorm: 0.5 stands where options do/);
    bad(() => x.layerNorm(x, x, x as never), /layerNorm: Tensor stands where options do/);
    bad(() => x.cumsum(0, true as never), /cumsum: true stands where options do/);
    bad(() => x.mse(x, 'sum' as never), /mse: sum stands where options do/);
    bad(() => x.cumsum(0, { reversed: true } as never), /unknown option "reversed"/);
    bad(() => zeros([2], 'f64' as never), /f64 stands where options do/);
    bad(() => ones([2], { dtpye: 'f64' } as never), /unknown option "dtpye"/);
    bad(() => rand([2], { std: 2 } as never), /rand: unknown option "std"/);
    bad(() => randn([2], { lo: 2 } as never), /randn: unknown option "lo"/);
    bad(() => randint(0, 2.5, [2]), /both must be whole/);
    bad(() => linspace(0, Infinity, 3), /both must be finite/);
  });
}

test('odd functions keep the sign of zero on the CPU engine', () => {
  for (const dtype of ['f16', 'bf16', 'f32', 'f64'] as const)
    for (const op of ['tanh', 'sin', 'erf', 'expm1', 'log1p', 'tan'] as const) {
      const y = Tensor.from([-0, 0]).cast(dtype)[op]().cast('f64').dataSync();
      assert.ok(Object.is(y[0], -0) && Object.is(y[1], 0), `${op} of -0 and 0 in ${dtype}: ${Array.from(y, String)}`);
    }
});
