// Ops of one's own on the reference, the CPU engine and a simulated GPU: values, layouts, gradients, refusals; and
// recorded work.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  ArgumentError,
  customGrad,
  DTypeError,
  defineOp,
  Device,
  grad,
  hessian,
  noGrad,
  scope,
  Tensor,
  tensor,
  UnsupportedError,
} from '../src/index.js';
import { probe } from '../src/testing/devices.js';

const softclip = defineOp({
  name: 'softclip',
  inputs: 2,
  dtypes: ['f32'],
  scalars: ['slope'],
  cpu: (x, y, a) => (x > y ? y + (x - y) * a : x),
  gpu: 'select(x > y, y + (x - y) * a, x)',
  grad: ({ x, y, grad, params }) => {
    const above = x.gt(y).cast('f32');
    const slope = params.slope as number;
    return [grad.mul(above.affine(slope - 1, 1)), grad.mul(above.affine(1 - slope, 0))];
  },
});

/** Sums of neighbours along the last dimension, with a kernel of its own that is launched twice, once a half. */
const pairSum = defineOp({
  name: 'pairSum',
  inputs: 1,
  dtypes: ['f32', 'i32'],
  infer: ([x]) => [{ shape: [...x.shape.slice(0, -1), (x.shape.at(-1) as number) / 2], dtype: x.dtype }],
  cpu: ([x], [out], { scale }) => {
    for (let i = 0; i < out.data.length; i++)
      out.data[i] = ((Number(x.data[2 * i]) + Number(x.data[2 * i + 1])) * ((scale as number) ?? 1)) as never;
  },
  gpu: {
    source: `
      template <class S> WICK_FN void pair(const S* x, S* out, u32 first, u32 n, S scale) {
        const u32 i = first + blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[i] = (x[2 * i] + x[2 * i + 1]) * scale;
      }
      KERNEL(64) fill_f32(const ELEMENT* x, ELEMENT* out, u32 first, u32 n, ELEMENT scale) { pair(x, out, first, n, scale); }`,
    launch: ({ inputs: [x], outputs: [out], params }) => {
      const half = Math.ceil(out.size / 2);
      const part = (first: number, n: number) => ({
        kernel: 'fill_f32',
        grid: Math.ceil(half / 64),
        block: 64,
        args: [x, out, first, n, (params.scale as number) ?? 1],
      });
      return [part(0, half), part(half, out.size)];
    },
  },
  grad: ({ grad, x, params }) =>
    grad
      .mul((params.scale as number) ?? 1)
      .unsqueeze(-1)
      .repeat([...grad.shape.map(() => 1), 2])
      .reshape(x.shape),
});

const hostOnly = defineOp({
  name: 'hostOnly',
  inputs: 1,
  dtypes: ['f32', 'i64'],
  infer: ([x]) => [x, { shape: [], dtype: 'i64' }],
  cpu: ([x], [out, count]) => {
    for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[x.data.length - 1 - i] as never;
    count.data[0] = BigInt(x.data.length) as never;
  },
});

for (const name of ['reference', 'cpu', 'sim:32']) {
  const { device, missing } = probe(name);
  describe(name, { skip: missing ?? false }, () => {
    const on = device as Device;
    const make = (data: number[] | number[][], dtype: 'f32' | 'i32' = 'f32'): Tensor =>
      tensor(data, { device: on, dtype });

    test('an elementwise op broadcasts, takes any layout, numbers and scalars', () => {
      const x = make([
        [1, -2],
        [3, 4],
        [0.5, 9],
      ]);
      assert.deepEqual(softclip(x, make([1, 2]), { slope: 0.5 }).toArray(), [
        [1, -2],
        [2, 3],
        [0.5, 5.5],
      ]);
      assert.deepEqual(softclip(x.t(), 2, { slope: 0 }).toArray(), [
        [1, 2, 0.5],
        [-2, 2, 2],
      ]);
    });
    test('its gradient flows, through broadcasting too, and noGrad cuts it', () => {
      const x = make([
        [1, -2],
        [3, 4],
      ]).requireGrad();
      const y = make([1, 2]).requireGrad();
      const g = softclip(x, y, { slope: 0.25 }).sum().backward();
      assert.deepEqual(g.of(x).toArray(), [
        [1, 1],
        [0.25, 0.25],
      ]);
      assert.deepEqual(g.of(y).toArray(), [0.75, 0.75]);
      assert.equal(noGrad(() => softclip(x, y, { slope: 1 })).requiresGrad, false);
    });
    test('an op with a kernel of its own runs on each dtype, and on strided input', () => {
      assert.deepEqual(
        pairSum(
          make([
            [1, 2, 3, 4],
            [5, 6, 7, 8],
          ]),
        )[0].toArray(),
        [
          [3, 7],
          [11, 15],
        ],
      );
      assert.deepEqual(
        pairSum(
          make([
            [1, 2],
            [3, 4],
          ]).t(),
          { scale: 2 },
        )[0].toArray(),
        [[8], [12]],
      );
      assert.deepEqual(pairSum(make([1, 2, 3, 4, -9, 1], 'i32'))[0].toArray(), [3, 7, -8]);
    });
    test('and has a gradient', () => {
      const x = make([
        [1, 2, 3, 4],
        [5, 6, 7, 8],
      ]).requireGrad();
      const [out] = pairSum(x, { scale: 3 });
      const g = out
        .mul(
          make([
            [1, 2],
            [3, 4],
          ]),
        )
        .sum()
        .backward();
      assert.deepEqual(g.of(x).toArray(), [
        [3, 3, 6, 6],
        [9, 9, 12, 12],
      ]);
    });
    test('results belong to the running scope', () => {
      let inner: Tensor | undefined;
      scope(() => {
        [inner] = pairSum(make([1, 2]));
      });
      assert.equal(inner?.isDisposed, true);
    });
    test('an op without GPU source says so on GPUs, and runs elsewhere', () => {
      if (name.startsWith('sim')) {
        assert.throws(
          () => hostOnly(make([1, 2])),
          (e) => e instanceof UnsupportedError && /hostOnly: it was defined without a GPU kernel/.test(e.message),
        );
      } else {
        const [reversed, count] = hostOnly(make([1, 2, 3]));
        assert.deepEqual([reversed.toArray(), count.item()], [[3, 2, 1], 3]);
      }
    });
    test('wrong calls are refused by name', () => {
      const x = make([1, 2]);
      assert.throws(
        () => softclip(x),
        (e) => e instanceof ArgumentError && /softclip: takes 2 tensors and an object of parameters/.test(e.message),
      );
      assert.throws(
        () => softclip(x, x),
        (e) => e instanceof ArgumentError && /softclip: the parameter slope is undefined, not a number/.test(e.message),
      );
      assert.throws(() => softclip(x.cast('f64'), x.cast('f64'), { slope: 1 }), DTypeError);
      assert.throws(
        () => pairSum(x.cast('f64')),
        (e) => e instanceof DTypeError && /pairSum: does not take f64 \(it takes f32, i32\)/.test(e.message),
      );
      assert.throws(() => pairSum(x, x), ArgumentError);
    });
  });
}

describe('definitions', () => {
  const base = { inputs: 1, dtypes: ['f32'], cpu: (x: number) => x, gpu: 'x' } as const;
  assert.throws(
    () => defineOp({ ...base, name: 'c', gpu: 'abs(x)' }),
    /c: the expression calls abs\(\); write absg\(\)/,
  );
  test('a name is taken once and is a word', () => {
    for (const [name, says] of [
      ['softclip', /already an op/],
      ['tanh', /already an op/],
      ['a b', /begins with a letter/],
      ['', /begins with a letter/],
    ] as const) {
      assert.throws(
        () => defineOp({ ...base, name }),
        (e) => e instanceof ArgumentError && says.test(e.message),
      );
    }
  });
  test('what cannot work is refused when it is defined', () => {
    assert.throws(() => defineOp({ ...base, name: 'bad1', dtypes: ['i32'] }), /it takes i32, so it needs `int`/);
    assert.throws(() => defineOp({ ...base, name: 'bad2', inputs: 4 }), /up to 3 tensors/);
    assert.throws(() => defineOp({ ...base, name: 'bad3', dtypes: [] }), /dtypes is empty/);
    assert.throws(() => defineOp({ ...base, name: 'bad4', dtypes: ['f31' as 'f32'] }), /no dtype "f31"/);
  });
});

describe('recorded work', () => {
  const { device, missing } = probe('sim:32');
  test('is replayed on the same memory', { skip: missing ?? false }, () => {
    const on = device as Device;
    const x = tensor([1, 2, 3], { device: on });
    let out: Tensor | undefined;
    const work = (): void => {
      out = pairSum(x.cat([x], 0))[0];
    };
    work(); // kernels are compiled now
    const replay = on.capture(work);
    x.assign(tensor([10, 20, 30], { device: on }));
    replay.launch();
    assert.deepEqual(out?.toArray(), [30, 40, 50]);
    x.assign(tensor([0, 1, 2], { device: on }));
    replay.launch();
    assert.deepEqual(out?.toArray(), [1, 2, 3]);
    replay.dispose();
  });
  test('elsewhere is refused with a sentence', () => {
    assert.throws(
      () => Device.reference().capture(() => undefined),
      (e) => e instanceof UnsupportedError && /capture: reference runs everything at once/.test(e.message),
    );
  });
});

describe('customGrad', () => {
  const x = tensor([-2, 0, 1.5], { dtype: 'f64' });
  const near = (got: Tensor, want: Tensor): void => assert.ok(got.allclose(want, { rtol: 1e-12, atol: 1e-12 }));

  test('gives the gradient that it says, not the one of its steps', () => {
    const through = customGrad((a) => ({ value: a.round(), grad: (g) => g.mul(2) }));
    assert.deepEqual(through(x).toArray(), x.round().toArray());
    assert.deepEqual(grad((a: Tensor) => through(a).mul(a.detach()).sum())(x).toArray(), [-4, 0, 3]);
    assert.equal(noGrad(() => through(x)).requiresGrad, false);
    assert.equal(through(x).requiresGrad, false, 'nothing that it was made of requires a gradient');
  });
  test('has gradients of gradients, also through what it computed on the way', () => {
    const softplus = customGrad((a) => {
      const e = a.exp();
      return { value: e.log1p(), grad: (g) => g.mul(e.div(e.add(1))) };
    });
    near(
      hessian((a: Tensor) => softplus(a).sum(), x),
      hessian((a: Tensor) => a.softplus().sum(), x),
    );
  });
  test('takes several tensors, of which some get no gradient', () => {
    const product = customGrad((a, b) => ({ value: a.mul(b), grad: (g) => [g.mul(b), undefined] }));
    const [a, b] = [x.copy().requireGrad(), x.add(1).requireGrad()];
    const grads = product(a, b).sum().backward();
    near(grads.of(a), b);
    assert.equal(grads.get(b), undefined);
  });
  test('refuses gradients that do not fit, and what answers none', () => {
    const back = (g: (g: Tensor) => unknown) => () =>
      customGrad((a) => ({ value: a.exp(), grad: g as never }))(x.copy().requireGrad())
        .sum()
        .backward();
    assert.throws(
      back((g) => g.sum()),
      /customGrad: the gradient of argument 0 is f64 \[\], not f64 \[3\]/,
    );
    assert.throws(
      back((g) => [g, g]),
      /customGrad: grad answers a gradient for each of 1 arguments/,
    );
    assert.throws(() => customGrad((() => x) as never)(x), /customGrad: the function answers \{ value, grad \}/);
    assert.throws(() => customGrad((a) => ({ value: a, grad: (g) => g }))(3 as never), /argument 0 is no tensor/);
  });
});
