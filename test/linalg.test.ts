// Factorizations beyond the small samples of the table: sizes on both sides of every block's border, matrices without
// full rank or nearly so, numbers that are none, and batches and matrices without elements.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arange, Device, type DType, full, grad, hessian, randn, type Tensor, tensor, zeros } from '../src/index.js';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { standInCalls } from '../src/stand-ins/library.js';
import * as host from '../src/ops/linalg-host.js';
import type { NestedInput } from '../src/tensor/create.js';

const T = (x: Tensor): Tensor => x.transpose(-2, -1);
const eye = (n: number, dtype: DType = 'f64'): Tensor => arange(n).unsqueeze(1).eq(arange(n)).cast(dtype);
const most = (x: Tensor): number => (x.size === 0 ? 0 : x.abs().max().item());
/** The largest difference beside the largest element, in units of the dtype's rounding. */
const roundings = (a: Tensor, b: Tensor): number =>
  most(a.sub(b)) / (most(b) || 1) / (a.dtype === 'f64' ? 2 ** -53 : 2 ** -24);
function near(what: string, a: Tensor, b: Tensor, bound: number): void {
  assert.deepEqual(a.shape, b.shape, what);
  const worst = roundings(a, b);
  assert.ok(worst <= bound, `${what}: ${worst} roundings, at most ${bound}`);
}
const flat = (x: Tensor): number[] => Array.from(x.flatten(0, -1).toArray() as number[]);
/** A random matrix with singular values from 1 down to `least`, evenly in their logarithms. */
function graded(n: number, least: number): Tensor {
  const [q] = randn([n, n], { dtype: 'f64', seed: 5 }).qr();
  const [p] = randn([n, n], { dtype: 'f64', seed: 6 }).qr();
  const values = tensor(
    Array.from({ length: n }, (_, i) => least ** (i / (n - 1))),
    { dtype: 'f64' },
  );
  return q.mul(values).matmul(T(p));
}

// Borders: 12 and 32 (rotations), 16 and 32 (plain loops), 32 (panels, strips), 96 (triangles of products).
for (const n of [1, 2, 12, 13, 16, 17, 31, 32, 33, 34, 64, 65, 97, 130])
  test(`factors of ${n} x ${n} and taller matrices put together give them back`, () => {
    const a = randn([n, n], { dtype: 'f64', seed: n });
    const condition = most(a.svd()[1]) / a.svd()[1].min().item();
    near('A A^-1', a.matmul(a.inv()), eye(n), 4 * n * condition);
    near('A^T X', T(a).matmul(T(a).solve(a)), a, 4 * n * condition);
    const spd = a.matmul(T(a)).add(eye(n));
    const l = spd.cholesky();
    near('L L^T', l.matmul(T(l)), spd, 4 * n);
    assert.equal(most(l.triu(1)), 0);
    const [values, vectors] = spd.eigh();
    near('V L V^T', vectors.mul(values).matmul(T(vectors)), spd, 16 * n + 16);
    near('V^T V', T(vectors).matmul(vectors), eye(n), 16 * n + 16);
    assert.deepEqual(
      flat(values),
      flat(values).sort((x, y) => x - y),
    );
    const [sign, size] = spd.slogdet();
    assert.equal(sign.item(), 1);
    near('ln det', size, l.diagonal().log().sum().mul(2), 64 * n);
    for (const x of [a, randn([n + 7, n], { dtype: 'f64', seed: n + 1 })]) {
      const [q, r] = x.qr();
      near('Q R', q.matmul(r), x, 16 * n);
      near('Q^T Q', T(q).matmul(q), eye(n), 16 * n);
      assert.equal(most(r.tril(-1)), 0);
      for (const y of [x, T(x)]) {
        const [p, lower, upper] = y.lu();
        near('P L U', p.matmul(lower).matmul(upper), y, 16 * n);
        assert.equal(most(lower.triu(1)) + most(upper.tril(-1)), 0);
        assert.ok(most(lower) <= 1, 'pivots are the largest of their column');
      }
      const [u, s, vt] = x.svd();
      near('U S V^T', u.mul(s).matmul(vt), x, 16 * n + 32);
      near('U^T U', T(u).matmul(u), eye(n), 16 * n + 32);
      near('V^T V', vt.matmul(T(vt)), eye(n), 16 * n + 32);
      assert.deepEqual(
        flat(s),
        flat(s).sort((p, q) => q - p),
      );
    }
  });

test('the engine agrees with the plain loops that are its oracle', () => {
  for (const n of [3, 20, 40]) {
    const a = randn([n, n], { dtype: 'f64', seed: n });
    const spd = a.matmul(T(a)).add(eye(n));
    const numbers = flat(a);
    const of = (values: readonly number[], like: Tensor): Tensor =>
      tensor([...values], { dtype: 'f64' }).reshape([...like.shape]);
    const bound = 1e5; // of unit roundings, relative to the largest element: conditions are in the thousands
    near('solve', a.inv(), of(host.solve('inv', numbers, flat(eye(n)), n, n), a), bound);
    const [lu, pivots] = a.luFactor();
    near('lu', lu, of(Array.from(host.lu(numbers, n).lu), a), bound);
    assert.deepEqual(
      flat(pivots),
      host.lu(numbers, n).swaps.map((i) => i + 1),
    );
    near('luSolve', lu.luSolve(pivots, eye(n)), a.inv(), bound);
    near('cholesky', spd.cholesky(), of(host.cholesky(flat(spd), n), a), bound);
    const [q, r] = a.qr();
    const plain = host.qr(numbers, n, n);
    near('q', q, of(plain.q, q), bound);
    near('r', r, of(plain.r, r), bound);
    const eigen = host.eigh(flat(spd), n);
    near('eigenvalues', spd.eigh()[0], of(eigen.values, spd.eigh()[0]), bound);
    near('eigenvectors', spd.eigh()[1], of(eigen.vectors, a), bound);
    const [u, s, vt] = a.svd();
    const singular = host.svd(numbers, n, n);
    near('left vectors', u, of(singular.u, u), bound);
    near('singular values', s, of(singular.s, s), bound);
    near('right vectors', vt, T(of(singular.v, vt)), bound);
    near('pinv', a.pinv(), of(host.pinv(numbers, n, n, 1e-14), a), bound);
  }
});

for (const [n, rank] of [
  [8, 3],
  [40, 0],
  [40, 1],
  [65, 64],
  [100, 37],
])
  test(`a matrix of ${n} columns and rank ${rank} has orthonormal singular vectors and a pseudo-inverse`, () => {
    const a =
      rank === 0
        ? zeros([n + 5, n], { dtype: 'f64' })
        : randn([n + 5, rank], { dtype: 'f64', seed: 1 }).matmul(randn([rank, n], { dtype: 'f64', seed: 2 }));
    const [u, s, vt] = a.svd();
    near('U S V^T', u.mul(s).matmul(vt), a, 16 * n);
    near('U^T U', T(u).matmul(u), eye(n), 32 * n);
    near('V^T V', vt.matmul(T(vt)), eye(n), 32 * n);
    assert.equal(a.matrixRank().item(), rank);
    const p = a.pinv();
    near('A P A', a.matmul(p).matmul(a), a, 1e5);
    near('P A P', p.matmul(a).matmul(p), p, 1e5);
    near('P A', p.matmul(a), T(p.matmul(a)), 1e5);
    near('wide', T(a).pinv(), T(p), 1e5);
    const square = a.narrow(0, 0, n);
    const gram = T(a).matmul(a);
    const [values, vectors] = gram.eigh();
    near('V L V^T', vectors.mul(values).matmul(T(vectors)), gram, 32 * n);
    near('eigenvectors', T(vectors).matmul(vectors), eye(n), 32 * n);
    const [q, r] = square.qr();
    near('Q R', q.matmul(r), square, 16 * n);
    near('Q^T Q', T(q).matmul(q), eye(n), 16 * n);
  });

for (const least of [1e-4, 1e-9, 1e-14])
  test(`singular values from 1 to ${least} are found as exactly as rounding lets them be`, () => {
    const n = 60;
    const a = graded(n, least);
    const [u, s, vt] = a.svd();
    near('U S V^T', u.mul(s).matmul(vt), a, 16 * n);
    near('U^T U', T(u).matmul(u), eye(n), 16 * n);
    near('V^T V', vt.matmul(T(vt)), eye(n), 16 * n);
    const expected = Array.from({ length: n }, (_, i) => least ** (i / (n - 1)));
    flat(s).forEach((value, i) => assert.ok(Math.abs(value - expected[i]) < 1e-14, `${i}: ${value}`));
    const x = a.solve(full([n, 1], 1, { dtype: 'f64' }));
    // Solutions may be far off; what they leave of the right-hand side is small beside A and X.
    assert.ok(most(a.matmul(x).sub(full([n, 1], 1, { dtype: 'f64' }))) <= 1e-14 * n * most(x));
  });

for (const n of [12, 40])
  test(`tiny and huge elements of ${n} x ${n} neither vanish nor overflow on the way`, () => {
    for (const size of [1e-200, 1e200]) {
      const a = randn([n, n], { dtype: 'f64', seed: 3 }).mul(full([1], size, { dtype: 'f64' }));
      const [q, r] = a.qr();
      near('Q R', q.matmul(r), a, 640);
      const [u, s, vt] = a.svd();
      near('U S V^T', u.mul(s).matmul(vt), a, 640);
      const [values, vectors] = a.add(T(a)).eigh();
      near('V L V^T', vectors.mul(values).matmul(T(vectors)), a.add(T(a)), 640);
      const plain = host.eigh(flat(a.add(T(a))), n);
      near('the oracle', values, tensor(plain.values, { dtype: 'f64' }), 640);
    }
  });

for (const bad of [NaN, Infinity])
  for (const n of [3, 40])
    test(`${bad} in a matrix of ${n} is refused, or seen in the result`, () => {
      const a = randn([n, n], { dtype: 'f64', seed: 4 });
      const values = flat(a);
      values[n + 1] = bad;
      const x = tensor(values, { dtype: 'f64' }).reshape([n, n]);
      for (const op of ['eigh', 'svd', 'pinv'] as const)
        assert.throws(() => x[op](), { code: 'E_ARGUMENT', message: new RegExp(`${op}: the matrix holds NaN or inf`) });
      assert.throws(() => x.cholesky(), {
        code: 'E_ARGUMENT',
        message: /cholesky: the matrix is not positive definite/,
      });
      if (Number.isNaN(bad)) assert.ok(flat(x.inv()).some(Number.isNaN), 'inv');
      assert.ok(!Number.isFinite(x.det().item()), 'det');
      assert.ok(
        flat(x.qr()[1]).some((v) => !Number.isFinite(v)),
        'qr',
      );
    });

test('a batch is refused for its first bad matrix, by the pivot or minor that failed', () => {
  const batch = eye(40).broadcastTo([9, 40, 40]).contiguous();
  const singular = batch.mul(arange(9).ne(5).cast('f64').reshape([9, 1, 1]));
  assert.throws(() => singular.inv(), { code: 'E_ARGUMENT', message: /the matrix is singular: pivot 1 of 40 is 0/ });
  const rank = eye(40).mul(arange(40).ne(33).cast('f64'));
  assert.throws(() => rank.solve(rank), { code: 'E_ARGUMENT', message: /solve: .* pivot 34 of 40 is 0/ });
  assert.throws(() => rank.cholesky(), { code: 'E_ARGUMENT', message: /leading minor of order 34/ });
  assert.equal(rank.det().item(), 0);
  assert.deepEqual([rank.slogdet()[0].item(), rank.slogdet()[1].item()], [0, -Infinity]);
});

test('batches are their matrices one by one, in f32 too and however they lie', () => {
  for (const dtype of ['f32', 'f64'] as const)
    for (const n of [4, 33]) {
      const a = T(randn([3, 2, n, n], { dtype, seed: 8 }));
      const b = randn([2, n, 5], { dtype, seed: 9 });
      const one = (x: Tensor, i: number, j: number): Tensor => x.get(i).get(j);
      const spd = a.matmul(T(a)).add(eye(n, dtype));
      const wholes = [a.solve(b), spd.cholesky(), ...a.qr(), ...spd.eigh(), ...a.svd(), a.pinv(), a.det()];
      for (let i = 0; i < 3; i++)
        for (let j = 0; j < 2; j++) {
          const [x, s] = [one(a, i, j).contiguous(), one(spd, i, j).contiguous()];
          const parts = [x.solve(b.get(j)), s.cholesky(), ...x.qr(), ...s.eigh(), ...x.svd(), x.pinv(), x.det()];
          parts.forEach((part, k) => assert.ok(part.equal(one(wholes[k], i, j)), `result ${k} of ${i}, ${j}`));
        }
    }
});

test('batches and matrices without elements have results without elements', () => {
  for (const shape of [
    [0, 0],
    [3, 0, 0],
    [0, 5, 5],
    [0, 40, 40],
  ]) {
    const x = zeros(shape, { dtype: 'f32' });
    const [batch, n] = [shape.slice(0, -2), shape[shape.length - 1]];
    for (const same of [x.inv(), x.solve(x), x.cholesky(), ...x.qr(), x.eigh()[1], x.svd()[0], x.svd()[2], x.pinv()])
      assert.deepEqual(same.shape, shape);
    assert.deepEqual(x.eigh()[0].shape, [...batch, n]);
    assert.deepEqual(flat(x.det().reshape([-1])), new Array(x.det().size).fill(1));
    assert.deepEqual(x.slogdet()[1].shape, batch);
  }
  const flatOne = zeros([5, 0]);
  assert.deepEqual(
    flatOne.svd().map((t) => t.shape),
    [[5, 0], [0], [0, 0]],
  );
  assert.deepEqual(flatOne.pinv().shape, [0, 5]);
  assert.deepEqual(
    flatOne.qr().map((t) => t.shape),
    [
      [5, 0],
      [0, 0],
    ],
  );
});

// What PyTorch 2 answers for the same matrices, in double precision.
const PLAIN = tensor([[2, 1, 3], [0, 4, 1], [5, 2, 1]], { dtype: 'f64' }); // biome-ignore format: a matrix
const TALL = tensor([[2, 1, 3], [0, 4, 1], [5, 2, 1], [1, 7, 0]], { dtype: 'f64' }); // biome-ignore format: a matrix
const WIDE = tensor(
  [
    [2, 1, 3, 0],
    [4, 1, 5, 2],
  ],
  { dtype: 'f64' },
);
const RIGHT = tensor([[1, 2], [3, -1], [0, 4]], { dtype: 'f64' }); // biome-ignore format: a matrix
/** The gradient of the cubes of L and the squares of U. */
const slope = grad((x: Tensor) => {
  const [, l, u] = x.lu();
  return l.powf(3).sum().add(u.sqr().sum());
});
const CALLS: readonly (readonly [what: string, got: () => Tensor, want: NestedInput])[] = [
  ['matrixNorm(fro)', () => TALL.matrixNorm('fro'), 10.535653752852738],
  ['matrixNorm(nuc)', () => TALL.matrixNorm('nuc'), 16.39614881319891],
  ['matrixNorm(1)', () => TALL.matrixNorm(1), 14.0],
  ['matrixNorm(-1)', () => TALL.matrixNorm(-1), 5.0],
  ['matrixNorm(2)', () => TALL.matrixNorm(2), 8.936431920709689],
  ['matrixNorm(-2)', () => TALL.matrixNorm(-2), 2.442128569974662],
  ['matrixNorm(Infinity)', () => TALL.matrixNorm(Infinity), 8.0],
  ['matrixNorm(-Infinity)', () => TALL.matrixNorm(-Infinity), 5.0],
  ['cond(2)', () => PLAIN.cond(2), 3.0273971578653933],
  ['cond(-2)', () => PLAIN.cond(-2), 0.3303167532551614],
  ['cond(fro)', () => PLAIN.cond('fro'), 4.366565852838378],
  ['cond(1)', () => PLAIN.cond(1), 3.7058823529411757],
  ['cond(Infinity)', () => PLAIN.cond(Infinity), 4.549019607843137],
  [
    'a lower triangle',
    () => PLAIN.solveTriangular(RIGHT),
    [
      [0.5, 1.0],
      [0.75, -0.25],
      [-4.0, -0.5],
    ],
  ],
  [
    'an upper one, transposed',
    () => PLAIN.solveTriangular(RIGHT, { upper: true, transpose: true }),
    [
      [0.5, 1.0],
      [0.625, -0.5],
      [-2.125, 1.5],
    ],
  ],
  [
    'one with ones',
    () => PLAIN.solveTriangular(RIGHT, { upper: true, unit: true }),
    [
      [-2.0, -5.0],
      [3.0, -5.0],
      [0.0, 4.0],
    ],
  ],
  [
    'choleskySolve',
    () => RIGHT.choleskySolve(PLAIN),
    [
      [10.25, 1.75],
      [2.1875, 0.1875],
      [-4.0, -0.5],
    ],
  ],
  ['pivots', () => TALL.luFactor()[1].cast('f64'), [3, 4, 3]],
  [
    'order',
    () => TALL.lu()[0],
    [
      [0, 0, 1, 0],
      [0, 0, 0, 1],
      [1, 0, 0, 0],
      [0, 1, 0, 0],
    ],
  ],
  [
    'L and U',
    () => PLAIN.luFactor()[0],
    [
      [5, 2, 1],
      [0, 4, 1],
      [0.4, 0.05, 2.55],
    ],
  ],
  [
    'luSolve',
    () => PLAIN.luFactor()[0].luSolve(PLAIN.luFactor()[1], RIGHT),
    [
      [-1 / 3, 0.8823529411764707],
      [2 / 3, -0.29411764705882354],
      [1 / 3, 0.17647058823529407],
    ],
  ],
  [
    'gradient of a square L U',
    () => slope(PLAIN),
    [
      [-0.41475, -1.273125, 5.1],
      [-3.5744625, 8.06365625, 1.745],
      [10.1659, 4.50925, -0.04],
    ],
  ],
  [
    'gradient of a tall L U',
    () => slope(TALL),
    [
      [-0.9903224110431705, 0.15558246171140136, 5.12044713179305],
      [-0.11198238827360472, 0.17341582327560745, 0.21308029481680862],
      [11.411171569408085, 1.3197300391167943, 0.08868207472598731],
      [-5.075213024954082, 13.090184880993224, -0.6843046372160371],
    ],
  ],
  [
    'gradient of a wide L U',
    () => slope(WIDE),
    [
      [-0.3125, 1, 1, -2],
      [8.15625, 1.5, 9.5, 5],
    ],
  ],
];
for (const [what, got, want] of CALLS)
  test(`${what} is what PyTorch answers`, () => near(what, got(), tensor(want, { dtype: 'f64' }), 64));

test('a norm has its second derivative at elements that are 0, too', () => {
  // (1 - x x^T / 25) / 5, in 125ths.
  near(
    'hessian',
    hessian((x: Tensor) => x.norm(), tensor([3, 0, 4], { dtype: 'f64' })).affine(125, 0),
    tensor([[16, 0, -12], [0, 25, 0], [-12, 0, 9]], { dtype: 'f64' }), // biome-ignore format: a matrix
    64,
  );
});

const LIBRARIES: readonly (readonly [device: string, prefix: string])[] = [
  ['sim:32+cusolver', 'cusolverDn'],
  ['sim:64+hipsolver', 'hipsolverDn'],
];
/** A device whose library factors what kernels of our own would. */
function byLibrary(name: string): Device {
  const device = Device.get(name);
  (device.backend.gpu as GpuBackend).context.libraries.ownFactors = false;
  return device;
}
for (const [name, prefix] of LIBRARIES)
  test(`${name}: qr, eigh and svd of large matrices are those of the host, signs and gradients included`, () => {
    const device = byLibrary(name);
    const tall = randn([140, 130], { seed: 3, device });
    const square = tall.narrow(0, 0, 130);
    const ops: Readonly<Record<string, readonly [Tensor, (x: Tensor) => readonly Tensor[], string]>> = {
      qr: [tall, (x) => x.qr(), 'Sorgqr'],
      eigh: [square, (x) => x.eigh(), 'Ssyevd'],
      svd: [tall, (x) => x.svd(), 'Sgesvdj'],
      'svd of a wide one': [T(tall), (x) => x.svd(), 'Sgesvdj'],
    };
    for (const [what, [x, f, symbol]] of Object.entries(ops)) {
      const before = standInCalls.get(`${prefix}${symbol}`) ?? 0;
      const [ours, theirs] = [x.to('cpu'), x].map((given) => {
        const leaf = given.detach().requireGrad();
        const parts = f(leaf);
        const loss = parts.map((t) => t.sqr().sin().sum()).reduce((a, b) => a.add(b));
        return [...parts.map((t) => t.to('cpu')), loss.backward().of(leaf).to('cpu')];
      });
      assert.equal(standInCalls.get(`${prefix}${symbol}`), before + 1, what);
      ours.forEach((t, i) => near(`part ${i} of ${what}`, theirs[i], t, 1000));
    }
    const none = tall.mul(NaN).narrow(0, 0, 130);
    for (const f of [() => none.eigh(), () => none.svd()]) assert.throws(f, /the matrix holds NaN or infinities/);
  });
for (const [name, prefix] of LIBRARIES)
  test(`${name}: Cholesky and solve of large matrices by the library, of small ones on the host`, () => {
    const device = byLibrary(name);
    const calls = (): (number | undefined)[] => ['Spotrf', 'Sgetrs'].map((f) => standInCalls.get(`${prefix}${f}`));
    const close = (x: Tensor, y: Tensor, what: string): void => {
      const worst = x.to('cpu').sub(y.to('cpu')).abs().max().item();
      assert.ok(worst < 1e-5, `${what} differs by ${worst}`);
    };
    const n = 130;
    const a = randn([2, n, n], { seed: 1, device }).add(eye(n, 'f32').to(device).mul(20));
    const b = randn([2, n, 3], { seed: 2, device });
    const s = a.matmul(a.transpose(-2, -1)).mul(1 / n);
    const before = calls().map((c) => c ?? 0);
    close(a.solve(b), a.to('cpu').solve(b.to('cpu')), 'solve');
    close(
      a.get(1).solve(b.at(1, ':', 0)),
      a
        .to('cpu')
        .get(1)
        .solve(b.to('cpu').at(1, ':', 0)),
      'solve of a vector',
    );
    close(a.inv(), a.to('cpu').inv(), 'inv');
    close(s.cholesky(), s.to('cpu').cholesky(), 'cholesky');
    close(s.cholesky().triu(1), zeros([2, n, n]), 'the triangle above');
    assert.deepEqual(calls(), [before[0] + 4, before[1] + 5]);
    const gradient = (x: Tensor): Tensor => {
      const leaf = x.detach().requireGrad();
      return leaf.cholesky().sum().backward().of(leaf);
    };
    close(gradient(s), gradient(s.to('cpu')), 'the gradient of cholesky');
    const after = calls();
    const small = s.narrow(-1, 0, 16).narrow(-2, 0, 16);
    close(small.cholesky(), small.to('cpu').cholesky(), 'a small cholesky');
    assert.deepEqual(calls(), after);
    assert.throws(() => zeros([n, n], { device }).cholesky(), /cholesky: .* leading minor of order 1 is not above 0/);
    assert.throws(() => zeros([n, n], { device }).solve(zeros([n], { device })), /singular: pivot 1 of 130 is 0/);
  });
