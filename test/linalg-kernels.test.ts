// Factorizations by a GPU's own kernels, beside the CPU engine: sizes on both sides of every border, matrices that lie
// in any way, batches, those that have no factors, and gradients.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Device, type DType, eye, full, randn, type Tensor, tensor, zeros } from '../src/index.js';
import { standInCalls } from '../src/stand-ins/library.js';

const T = (x: Tensor): Tensor => x.transpose(-2, -1);
/** The largest difference beside the largest element. */
function apart(a: Tensor, b: Tensor): number {
  assert.deepEqual(a.shape, b.shape);
  assert.equal(a.dtype, b.dtype);
  const [x, y] = [a, b].map((t) => t.to('cpu').cast('f64'));
  return x.sub(y).abs().max().item() / (y.abs().max().item() || 1);
}
/** Kernels compute matrices of up to 16 rows in doubles, larger ones as they are stored. */
const BOUND: Readonly<Record<string, number>> = { f32: 1e-6, f64: 1e-10 };
const LARGE: typeof BOUND = { f32: 1e-4, f64: 1e-10 };
function near(what: string, got: readonly Tensor[], want: readonly Tensor[], bound = BOUND): void {
  got.forEach((t, i) => {
    const worst = apart(t, want[i]);
    assert.ok(worst <= (bound[t.dtype] ?? 0), `part ${i} of ${what}: ${worst}`);
  });
}
const many = (f: (x: Tensor) => Tensor | readonly Tensor[], x: Tensor): readonly Tensor[] => [f(x)].flat();
const definite = (x: Tensor): Tensor => {
  const n = x.shape[x.rank - 1];
  return x
    .matmul(T(x))
    .div(n)
    .add(eye(n, { dtype: x.dtype, device: x.device }));
};
/** Whether the device itself runs what f asks for: nothing of it is read. */
function staysHere(device: Device, f: () => unknown): void {
  const backend = device.backend as unknown as { readSync: (...args: unknown[]) => void };
  const { readSync } = backend;
  backend.readSync = (): void => assert.fail('numbers were brought to the host');
  try {
    f();
  } finally {
    backend.readSync = readSync;
  }
}

const OPS: Readonly<Record<string, (x: Tensor) => Tensor | readonly Tensor[]>> = {
  inv: (x) => x.inv(),
  'solve of as many columns and one more': (x) => x.solve(x.cat([x.narrow(-1, 0, 1)], x.rank - 1)),
  slogdet: (x) => x.slogdet(),
  lu: (x) => x.lu(),
  luFactor: (x) => x.luFactor(),
  cholesky: (x) => definite(x).cholesky(),
};
const TRIANGLES = [false, true].flatMap((upper) =>
  [false, true].flatMap((transpose) => [false, true].map((unit) => ({ upper, transpose, unit }))),
);
const SMALL: Readonly<Record<string, (x: Tensor) => Tensor | readonly Tensor[]>> = {
  det: (x) => x.det(),
  qr: (x) => x.qr(),
  'qr of a taller one': (x) => x.narrow(-1, 0, Math.max(1, x.shape[x.rank - 1] - 2)).qr(),
  svd: (x) => x.svd(),
  pinv: (x) => x.pinv(),
  'pinv of a wide one': (x) => x.narrow(-2, 0, Math.max(1, x.shape[x.rank - 1] - 2)).pinv(),
  luSolve: (x) => {
    const [lu, pivots] = x.luFactor();
    return lu.luSolve(pivots, x.narrow(-1, 0, 1).sin());
  },
  'svd of a wide one': (x) => x.narrow(-2, 0, Math.max(1, x.shape[x.rank - 1] - 2)).svd(),
  'lu of a taller one': (x) => x.narrow(-1, 0, Math.max(1, x.shape[x.rank - 1] - 2)).lu(),
  'lu of a wide one': (x) => x.narrow(-2, 0, Math.max(1, x.shape[x.rank - 1] - 2)).lu(),
  eigh: (x) => definite(x).eigh(),
  'eigh of one with eigenvalues on both sides of 0': (x) => x.add(T(x)).eigh(),
};

for (const name of ['sim:32', 'sim:64']) {
  const device = Device.get(name);
  for (const n of [1, 2, 4, 5, 8, 9, 16, 17, 32, 33])
    test(`${name}: factors of ${n} x ${n} are those of the CPU`, () => {
      for (const dtype of ['f32', 'f64'] satisfies DType[]) {
        const x = randn([2, 2, n, n], { dtype, seed: n });
        for (const [what, f] of Object.entries({ ...OPS, ...SMALL }))
          near(what, many(f, x.to(device)), many(f, x), n > 16 ? LARGE : BOUND);
      }
    });
  for (const n of [64, 65, 130])
    test(`${name}: LU and Cholesky factors of ${n} x ${n} and what triangles solve are those of the CPU`, () => {
      const x = randn([2, n, n], { dtype: 'f64', seed: n });
      for (const [what, f] of Object.entries(OPS)) near(what, many(f, x.to(device)), many(f, x));
    });
  test(`${name}: LU factors of 600 rows are those of the CPU`, () => {
    const x = randn([600, 40], { dtype: 'f64', seed: 1 });
    near('lu', x.to(device).lu(), x.lu());
  });
  for (const n of [3, 32, 70])
    test(`${name}: triangles of ${n} x ${n} solve as on the CPU, whichever counts`, () => {
      for (const dtype of ['f32', 'f64'] satisfies DType[]) {
        const a = definite(randn([3, n, n], { dtype, seed: 1 })).add(T(randn([n, n], { dtype, seed: 2 })).div(n));
        const b = randn([n, 11], { dtype, seed: 3 });
        const vector = randn([n], { dtype, seed: 4 });
        for (const how of TRIANGLES)
          for (const right of [b, vector, T(randn([5, n], { dtype, seed: 5 }))])
            near(
              JSON.stringify(how),
              [a.to(device).solveTriangular(right.to(device), how)],
              [a.solveTriangular(right, how)],
            );
      }
    });

  test(`${name}: views are taken as they lie, and batches by their first bad matrix`, () => {
    const x = randn([6, 5, 7], { dtype: 'f64', seed: 1 });
    const view = (t: Tensor): Tensor => t.permute([2, 0, 1]).narrow(1, 1, 5);
    for (const [what, f] of Object.entries({ ...OPS, ...SMALL }))
      near(what, many(f, view(x.to(device))), many(f, view(x)));
    const one = randn([4, 4], { dtype: 'f64', seed: 2 });
    const alike = (t: Tensor): Tensor => t.broadcastTo([3, 4, 4]).inv();
    near('a matrix many times', [alike(one.to(device))], [alike(one)]);
    for (const n of [6, 70]) {
      const batch = eye(n, { device }).broadcastTo([40, n, n]).contiguous();
      const holes = (at: number): Tensor => full([n], 1).sub(eye(n).get(at)).to(device);
      const bad = batch
        .at([33, 34])
        .mul(holes(4))
        .cat([batch.at([0, 1])], 0);
      const singular = batch.at([0, 20]).cat([bad], 0);
      assert.throws(() => singular.inv(), {
        code: 'E_ARGUMENT',
        message: new RegExp(`singular: pivot 5 of ${n} is 0`),
      });
      assert.throws(() => singular.solve(batch.get(0)), /^.*solve: the matrix is singular: pivot 5 of/);
      assert.throws(() => singular.solveTriangular(batch.get(0)), /solve: the matrix is singular: pivot 5 of/);
      assert.throws(
        () => singular.cholesky(),
        /cholesky: the matrix is not positive definite: its leading minor of order 5/,
      );
      assert.equal(singular.det().get(0).item(), 1);
      assert.equal(bad.get(0).det().item(), 0);
      assert.deepEqual([bad.get(0).slogdet()[0].item(), bad.get(0).slogdet()[1].item()], [0, -Infinity]);
    }
  });

  test(`${name}: numbers that are none are refused, or seen in the result`, () => {
    for (const bad of [NaN, Infinity])
      for (const n of [3, 20, 70]) {
        const values = randn([n, n], { dtype: 'f64', seed: 4 }).flatten(0, -1).toArray() as number[];
        values[n + 1] = bad;
        const x = tensor(values, { dtype: 'f64', device }).reshape([n, n]);
        for (const op of ['eigh', 'svd', 'pinv'] as const)
          assert.throws(() => x[op](), {
            code: 'E_ARGUMENT',
            message: new RegExp(`${op}: the matrix holds NaN or inf`),
          });
        assert.throws(() => x.cholesky(), /cholesky: the matrix is not positive definite/);
        if (Number.isNaN(bad)) assert.ok((x.inv().flatten(0, -1).toArray() as number[]).some(Number.isNaN), 'inv');
        assert.ok(!Number.isFinite(x.det().item()), 'det');
        assert.ok(
          (x.qr()[1].flatten(0, -1).toArray() as number[]).some((v) => !Number.isFinite(v)),
          'qr',
        );
      }
  });

  test(`${name}: matrices without full rank have orthonormal vectors, and tiny and huge elements factors`, () => {
    for (const rank of [0, 1, 3]) {
      const low = rank === 0 ? zeros([9, 6], { dtype: 'f64' }) : randn([9, rank], { dtype: 'f64', seed: 1 });
      const x = rank === 0 ? low : low.matmul(randn([rank, 6], { dtype: 'f64', seed: 2 }));
      const [u, s, vt] = x.to(device).svd();
      near('U S V^T', [u.mul(s).matmul(vt)], [x]);
      near('U^T U', [T(u).matmul(u)], [eye(6, { dtype: 'f64' })]);
      near('V^T V', [vt.matmul(T(vt))], [eye(6, { dtype: 'f64' })]);
    }
    for (const size of [1e-200, 1e200]) {
      const x = randn([12, 12], { dtype: 'f64', seed: 3 }).mul(full([1], size, { dtype: 'f64' }));
      for (const what of ['qr', 'svd', 'eigh of one with eigenvalues on both sides of 0'])
        near(what, many(SMALL[what], x.to(device)), many(SMALL[what], x));
    }
  });

  test(`${name}: gradients are those of the CPU`, () => {
    const gradient = (f: (x: Tensor) => Tensor | readonly Tensor[], x: Tensor): Tensor => {
      const leaf = x.detach().requireGrad();
      return many(f, leaf)
        .map((t) => t.sin().sum())
        .reduce((a, b) => a.add(b))
        .backward()
        .of(leaf);
    };
    const x = definite(randn([2, 5, 5], { dtype: 'f64', seed: 6 })).add(
      randn([5, 5], { dtype: 'f64', seed: 7 }).div(9),
    );
    for (const [what, f] of Object.entries({ ...OPS, ...SMALL }))
      if (what !== 'luFactor') near(`gradient of ${what}`, [gradient(f, x.to(device))], [gradient(f, x)]);
    for (const how of TRIANGLES) {
      const f = (t: Tensor): Tensor => t.solveTriangular(t.add(1), how);
      near(`gradient of ${JSON.stringify(how)}`, [gradient(f, x.to(device))], [gradient(f, x)]);
    }
  });

  test(`${name}: what is asked for runs on the device, and determinants may be recorded`, () => {
    const x = randn([3, 6, 6], { seed: 8, device });
    const s = definite(x);
    staysHere(device, () => {
      void [x.inv(), x.det(), x.slogdet(), x.lu(), x.qr(), x.svd()];
      void [s.cholesky(), s.eigh(), x.solve(x), s.solveTriangular(x), s.get(0).choleskySolve(s.get(0).cholesky())];
    });
  });
}

test('a library is not asked for what kernels of our own factor', () => {
  const device = Device.get('sim:32+cusolver');
  const before = [...standInCalls.values()].reduce((a, b) => a + b, 0);
  const x = definite(randn([130, 130], { seed: 9, device }));
  void [x.inv(), x.cholesky(), x.det()];
  const after = [...standInCalls.entries()]
    .filter(([name]) => name.startsWith('cusolver'))
    .reduce((a, [, b]) => a + b, 0);
  assert.equal(after, before);
});
