// Linear algebra. Factorizations run on the host in double precision, whatever the device: tensors of a GPU go there
// and back, and their gradients are products and solutions of the same kind, of any order.
import { type DType, REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { broadcastShapes, formatShape, sizeOf, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { composite, requireDType, requireSameDType } from './kernel-row.js';
import * as host from './linalg-host.js';
import {
  type Call,
  type CompositeErrorSample,
  type CompositeRow,
  type CompositeSample,
  type GradContext,
  type Grads,
  type InputSpec,
  type KernelRow,
  type RefTensor,
  rows,
  type Sig,
  ulps,
} from './op.js';

const numbers = (t: RefTensor): number[] => t.data as number[];
/** Matrices of a batch one by one: their elements, and where results go. */
function each(
  inputs: readonly RefTensor[],
  outputs: readonly RefTensor[],
  ranks: readonly number[],
  f: (...matrices: number[][]) => number[][],
): void {
  const inner = [...inputs, ...outputs].map((t, i) => sizeOf(t.shape.slice(t.shape.length - ranks[i])));
  const count = inputs[0].shape.slice(0, inputs[0].shape.length - ranks[0]).reduce((a, b) => a * b, 1);
  for (let b = 0; b < count; b++) {
    const given = inputs.map((t, i) => numbers(t).slice(b * inner[i], (b + 1) * inner[i]));
    f(...given).forEach((values, k) => {
      const size = inner[inputs.length + k];
      for (let i = 0; i < size; i++) numbers(outputs[k])[b * size + i] = values[i];
    });
  }
}

type HostDef = Pick<KernelRow, 'infer' | 'reference' | 'grad'>;
/** A row without GPU kernels: the CPU engine's function of its name runs; the one in the row is the oracle. */
const hostRow = (name: string, def: HostDef): KernelRow => ({
  name,
  family: 'custom',
  custom: { native: true },
  mixed: true,
  formula: `${name}, on the host`,
  dtypes: ['f32', 'f64'],
  candle: { none: 'Candle has none of it' },
  ulp: ulps(16),
  args: (x: Tensor): Call => ({ inputs: [x], params: {} }),
  samples: () => [],
  errors: () => [],
  ...def,
});
const lead = (s: Shape): Shape => s.slice(0, -2);
const tall = (s: Shape): { m: number; n: number } => ({ m: s[s.length - 2], n: s[s.length - 1] });
const T = (x: Tensor): Tensor => x.transpose(-2, -1);
const eye = (x: Tensor, n: number): Tensor => {
  const i = x.newArange(n, 'i32');
  return i.unsqueeze(1).eq(i).cast(x.dtype);
};
/** diag(d) times x, and x times diag(d). */
const rowsBy = (d: Tensor, x: Tensor): Tensor => x.mul(d.unsqueeze(-1));
const columnsBy = (x: Tensor, d: Tensor): Tensor => x.mul(d.unsqueeze(-2));
const orZero = (g: Tensor | undefined, like: Tensor): Tensor => g ?? like.zerosLike();

const SOLVE = hostRow('solve', {
  infer: ([, b]: readonly Sig[]): readonly Sig[] => [b],
  reference: (inputs, outputs): void => {
    const n = tall(inputs[0].shape).n;
    const k = tall(inputs[1].shape).n;
    each(inputs, outputs, [2, 2, 2], (a, b) => [host.solve('solve', a, b, n, k)]);
  },
  grad: ({ x, out, grad, needs }: GradContext): Grads => {
    const back = solved(T(x), grad);
    return [needs(0) ? back.matmul(T(out)).neg() : undefined, back];
  },
});
const solved = (a: Tensor, b: Tensor): Tensor => a.onHost(SOLVE, [a, b])[0];

const DET = hostRow('det', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => [{ shape: lead(a.shape), dtype: a.dtype }],
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 0], (a) => {
      const { lu, sign } = host.lu(a, n);
      let product = sign;
      for (let i = 0; i < n; i++) product *= lu[i * n + i];
      return [[product]];
    });
  },
  // Of a singular matrix the solution below says that there is none.
  grad: ({ x, out, grad }: GradContext): Grads => [
    T(solved(x, eye(x, tall(x.shape).n).broadcastTo(x.shape))).mul(grad.mul(out).unsqueeze(-1).unsqueeze(-1)),
  ],
});
const SLOGDET = hostRow('slogdet', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => [0, 1].map(() => ({ shape: lead(a.shape), dtype: a.dtype })),
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 0, 0], (a) => {
      const { lu, sign } = host.lu(a, n);
      let [side, sum] = [sign, 0];
      for (let i = 0; i < n; i++) {
        side *= Math.sign(lu[i * n + i]);
        sum += Math.log(Math.abs(lu[i * n + i]));
      }
      return [[side], [sum]];
    });
  },
  grad: ({ x, grads }: GradContext): Grads => {
    const g = grads[1];
    if (!g) return [x.zerosLike()];
    return [T(solved(x, eye(x, tall(x.shape).n).broadcastTo(x.shape))).mul(g.unsqueeze(-1).unsqueeze(-1))];
  },
});

const LU = hostRow('lu', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => {
    const { m, n } = tall(a.shape);
    return [a, ...[Math.min(m, n), m].map((k) => ({ shape: [...lead(a.shape), k], dtype: a.dtype }))];
  },
  reference: (inputs, outputs): void => {
    const { m, n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 2, 1, 1], (a) => {
      const { lu, swaps, order } = host.lu(a, m, n);
      return [Array.from(lu), swaps.map((i) => i + 1), order];
    });
  },
  // With the square corners L1 and U1 of L = [L1; L2] and U = [U1 U2]: the rows of A in their new order have the
  // gradient L1^-T (the triangles of L^T gL and gU U^T, less what L2 and U2 owe to the corners) U1^-T in the corner.
  grad: ({ x: a, outputs: [lu, , order], grad: g }: GradContext): Grads => {
    const { m, n } = tall(a.shape);
    const k = Math.min(m, n);
    const corner = (t: Tensor): Tensor => t.narrow(-2, 0, k).narrow(-1, 0, k);
    const lower = corner(lu).tril(-1).add(eye(lu, k));
    const upper = corner(lu).triu();
    let [below, above] = [T(lower).matmul(corner(g).tril(-1)), corner(g).triu().matmul(T(upper))];
    if (n > k) below = below.sub(g.narrow(-1, k, n - k).matmul(T(lu.narrow(-1, k, n - k))));
    if (m > k) above = above.sub(T(lu.narrow(-2, k, m - k)).matmul(g.narrow(-2, k, m - k)));
    // X U1^-T, and L1^-T X.
    const right = (t: Tensor): Tensor => T(solved(upper, T(t)));
    const left = (t: Tensor): Tensor => solved(T(lower), t);
    let rows = left(right(below.tril(-1).add(above.triu())));
    if (n > k) rows = rows.cat([left(g.narrow(-1, k, n - k))], rows.rank - 1);
    if (m > k) rows = rows.cat([right(g.narrow(-2, k, m - k))], rows.rank - 2);
    return [T(orderMatrix(order.detach())).matmul(rows)];
  },
});
const ROW_ORDER = hostRow('rowOrder', {
  infer: ([swaps]: readonly Sig[]): readonly Sig[] => [
    { shape: [...lead(swaps.shape), tall(swaps.shape).n], dtype: swaps.dtype },
  ],
  reference: (inputs, outputs): void => each(inputs, outputs, [2, 1], (swaps) => [host.rowOrder('luSolve', swaps)]),
  grad: (): Grads => [undefined],
});
/** The matrix that puts rows in an order, of which row i is the one of `order[i]`. */
const orderMatrix = (order: Tensor): Tensor => {
  const m = order.shape[order.rank - 1];
  return order.unsqueeze(-1).eq(order.newArange(m, order.dtype)).cast(order.dtype);
};

const CHOLESKY = hostRow('cholesky', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => [a],
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 2], (a) => [host.cholesky(a, n)]);
  },
  grad: ({ out: l, grad }: GradContext): Grads => {
    const inner = T(l).matmul(grad).tril();
    const half = inner.sub(inner.diagonal().affine(0.5, 0).diagEmbed());
    // L^-T S L^-1, of which the symmetric part counts.
    const s = T(solved(T(l), T(solved(T(l), half))));
    return [s.add(T(s)).affine(0.5, 0)];
  },
});

const QR = hostRow('qr', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => {
    const { n } = tall(a.shape);
    return [a, { shape: [...lead(a.shape), n, n], dtype: a.dtype }];
  },
  reference: (inputs, outputs): void => {
    const { m, n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 2, 2], (a) => {
      const { q, r } = host.qr(a, m, n);
      return [q, r];
    });
  },
  grad: ({ outputs: [q, r], grads }: GradContext): Grads => {
    const [gq, gr] = [orZero(grads[0], q), orZero(grads[1], r)];
    const inner = r.matmul(T(gr)).sub(T(gq).matmul(q));
    const low = inner.tril(-1);
    const mirrored = inner.tril().add(T(low));
    return [T(solved(r, T(gq.add(q.matmul(mirrored)))))];
  },
});

/** 1 / (b_j - b_i), 0 on the diagonal. */
function gaps(b: Tensor): Tensor {
  const n = b.shape[b.rank - 1];
  const on = eye(b, n).ne(0);
  const gap = b.unsqueeze(-2).sub(b.unsqueeze(-1));
  return on.where(0, on.where(1, gap).recip());
}

const EIGH = hostRow('eigh', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => [{ shape: a.shape.slice(0, -1), dtype: a.dtype }, a],
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 1, 2], (a) => {
      const { values, vectors } = host.eigh(a, n);
      return [values, vectors];
    });
  },
  grad: ({ outputs: [w, v], grads }: GradContext): Grads => {
    let inner = orZero(grads[0], w).diagEmbed();
    if (grads[1]) inner = inner.add(T(v).matmul(grads[1]).mul(gaps(w)));
    const g = v.matmul(inner).matmul(T(v));
    return [g.add(T(g)).affine(0.5, 0)];
  },
});

const SVD = hostRow('svd', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => {
    const { n } = tall(a.shape);
    return [a, { shape: [...lead(a.shape), n], dtype: a.dtype }, { shape: [...lead(a.shape), n, n], dtype: a.dtype }];
  },
  reference: (inputs, outputs): void => {
    const { m, n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 2, 1, 2], (a) => {
      const { u, s, v } = host.svd(a, m, n);
      return [u, s, v];
    });
  },
  grad: ({ outputs: [u, s, v], grads: [gu, gs, gv] }: GradContext): Grads => {
    const skew = (x: Tensor): Tensor => x.sub(T(x));
    let inner = orZero(gs, s).diagEmbed();
    if (gu) inner = inner.add(columnsBy(skew(T(u).matmul(gu)).mul(gaps(s.sqr())), s));
    if (gv) inner = inner.add(rowsBy(s, skew(T(v).matmul(gv)).mul(gaps(s.sqr()))));
    let g = u.matmul(inner).matmul(T(v));
    if (gu) {
      const rest = columnsBy(gu, s.recip());
      g = g.add(rest.sub(u.matmul(T(u).matmul(rest))).matmul(T(v)));
    }
    return [g];
  },
});

/** What of a singular value counts as nothing beside the largest: LAPACK's rule. */
const lost = (dtype: DType, m: number, n: number): number => Math.max(m, n) * (dtype === 'f64' ? 2 ** -52 : 2 ** -23);

const PINV = hostRow('pinv', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => {
    const { m, n } = tall(a.shape);
    return [{ shape: [...lead(a.shape), n, m], dtype: a.dtype }];
  },
  reference: (inputs, outputs): void => {
    const { m, n } = tall(inputs[0].shape);
    const cut = lost(inputs[0].dtype, m, n);
    each(inputs, outputs, [2, 2], (a) => [host.pinv(a, m, n, cut)]);
  },
  // dP = -P dA P + P P^T dA^T (1 - A P) + (1 - P A) dA^T P^T P.
  grad: ({ x: a, out: p, grad: g }: GradContext): Grads => {
    const first = T(p).matmul(g).matmul(T(p)).neg();
    const left = T(g)
      .sub(a.matmul(p).matmul(T(g)))
      .matmul(p)
      .matmul(T(p));
    const right = T(p)
      .matmul(p)
      .matmul(T(g).sub(T(g).matmul(p).matmul(a)));
    return [first.add(left).add(right)];
  },
});

const s = (...shape: number[]): InputSpec => ({ shape });
const HOST = 'computed on the host in double precision, whatever the device';
const row = (
  formula: string,
  samples: readonly CompositeSample[],
  more: { errors?: readonly CompositeErrorSample[] } & Partial<
    Pick<CompositeRow, 'dtypes' | 'ulp' | 'domain' | 'noGrad' | 'without' | 'differs'>
  > = {},
) => ({
  formula,
  dtypes: REALS as readonly DType[],
  without: 'it takes floats of 16 bits and more; cast first',
  ulp: { f32: 16, f64: 256, f16: 2, bf16: 2 } as CompositeRow['ulp'],
  loose: 'engines factor in orders of their own, and what rounding makes of that depends on the matrix',
  candle: { none: 'Candle has none of it' },
  ...more,
  samples: (): readonly CompositeSample[] => samples,
  errors: (): readonly CompositeErrorSample[] => more.errors ?? [],
});

/** 16-bit floats are widened, and results rounded back. */
function widened<R extends readonly Tensor[]>(op: string, x: Tensor, f: (x: Tensor) => R): R {
  requireDType(op, x, REALS, 'it takes floats of 16 bits and more; cast first');
  if (x.dtype === 'f32' || x.dtype === 'f64') return f(x);
  return f(x.cast('f32')).map((t) => t.cast(x.dtype)) as unknown as R;
}
function requireSquare(op: string, x: Tensor): void {
  if (x.rank < 2 || tall(x.shape).m !== tall(x.shape).n)
    throw new ShapeError(`${op}: takes square matrices, not ${formatShape(x.shape)}`);
}
function requireMatrix(op: string, x: Tensor): void {
  if (x.rank < 2) throw new ShapeError(`${op}: takes matrices, not ${formatShape(x.shape)}`);
}
const symmetric = (x: Tensor): Tensor => x.add(T(x)).affine(0.5, 0);

/** A and B with one batch shape, B as matrices. */
function solveOf(op: string, a: Tensor, b: Tensor): Tensor {
  requireSquare(op, a);
  requireSameDType(op, [a, b]);
  const n = tall(a.shape).n;
  const vector = b.rank === 1 || (b.rank === a.rank - 1 && formatShape(b.shape) === formatShape(a.shape.slice(0, -1)));
  const right = vector ? b.unsqueeze(-1) : b;
  if (tall(right.shape).m !== n)
    throw new ShapeError(`${op}: ${formatShape(b.shape)} has not the ${n} rows of ${formatShape(a.shape)}`);
  const batch = broadcastShapes(op, lead(a.shape), lead(right.shape));
  const [x] = widened(op, a, (w) => [
    solved(w.broadcastTo([...batch, n, n]), right.cast(w.dtype).broadcastTo([...batch, ...right.shape.slice(-2)])),
  ]);
  return vector ? x.squeeze(-1) : x;
}

function qrOf(op: string, x: Tensor): readonly [Tensor, Tensor] {
  requireMatrix(op, x);
  return widened(op, x, (w): readonly [Tensor, Tensor] => {
    const { m, n } = tall(w.shape);
    if (m >= n) return w.onHost(QR, [w]) as unknown as readonly [Tensor, Tensor];
    const [q, r] = w.narrow(-1, 0, m).onHost(QR, [w.narrow(-1, 0, m)]);
    return [q, r.cat([T(q).matmul(w.narrow(-1, m, n - m))], r.rank - 1)];
  });
}

const square = (...values: number[]): InputSpec => ({ shape: [3, 3], values });
const SPD = square(4, 1, 0, 1, 5, 2, 0, 2, 6);
const PLAIN = square(2, 1, 3, 0, 4, 1, 5, 2, 1);
const TALL: InputSpec = { shape: [4, 3], values: [2, 1, 3, 0, 4, 1, 5, 2, 1, 1, 7, 0] };

export const linalgOps = rows({
  solve: composite({
    ...row(
      `X of A X = B for square A; B a vector or columns; ${HOST}`,
      [
        { inputs: [PLAIN, s(3, 2)], args: [{ input: 1 }] },
        { inputs: [PLAIN, s(3)], args: [{ input: 1 }] },
        { inputs: [PLAIN, s(2, 3, 1)], args: [{ input: 1 }] },
      ],
      {
        errors: [
          {
            inputs: [square(1, 2, 3, 2, 4, 6, 1, 0, 1), s(3)],
            args: [{ input: 1 }],
            code: 'E_ARGUMENT',
            says: /solve: the matrix is singular/,
          },
          { inputs: [s(2, 3), s(3)], args: [{ input: 1 }], code: 'E_SHAPE', says: /solve: takes square matrices/ },
        ],
      },
    ),
    compose: (a: Tensor, b: Tensor): Tensor => solveOf('solve', a, b),
  }),
  inv: composite({
    ...row(`the inverse of square matrices; ${HOST}`, [{ inputs: [PLAIN], args: [] }]),
    compose: (x: Tensor): Tensor => {
      requireSquare('inv', x);
      return solveOf('inv', x, eye(x, tall(x.shape).n));
    },
  }),
  det: composite({
    ...row(`determinant; no gradient where it is 0; ${HOST}`, [{ inputs: [PLAIN], args: [] }]),
    compose: (x: Tensor): Tensor => {
      requireSquare('det', x);
      return widened('det', x, (w) => [w.onHost(DET, [w])[0]])[0];
    },
  }),
  logdet: composite({
    ...row(`ln of the determinant, NaN where it is negative; ${HOST}`, [{ inputs: [SPD], args: [] }]),
    compose: (x: Tensor): Tensor => {
      requireSquare('logdet', x);
      const [sign, log] = x.slogdet();
      return sign.lt(0).where(NaN, log);
    },
  }),
  slogdet: composite({
    ...row(`[sign, ln |determinant|]; ${HOST}`, [{ inputs: [PLAIN], args: [] }]),
    compose: (x: Tensor): readonly [sign: Tensor, logabsdet: Tensor] => {
      requireSquare('slogdet', x);
      return widened('slogdet', x, (w): readonly [Tensor, Tensor] => {
        const [sign, log] = w.onHost(SLOGDET, [w]);
        return [sign.detach(), log];
      });
    },
  }),
  lu: composite({
    ...row(
      `[P, L, U]: rows put in order (a matrix of ones and zeros), a lower triangle with ones, an upper one; ${HOST}`,
      [
        { inputs: [PLAIN], args: [] },
        { inputs: [TALL], args: [] },
        { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }], args: [] },
      ],
    ),
    compose: (x: Tensor): readonly [p: Tensor, l: Tensor, u: Tensor] => {
      requireMatrix('lu', x);
      return widened('lu', x, (w): readonly [Tensor, Tensor, Tensor] => {
        const { m, n } = tall(w.shape);
        const k = Math.min(m, n);
        const [both, , order] = w.onHost(LU, [w]);
        const ones = w.newFull([m, k], 1).tril().triu();
        const lower = both.narrow(-1, 0, k).tril(-1).add(ones);
        return [T(orderMatrix(order.detach())), lower, both.narrow(-2, 0, k).triu()];
      });
    },
  }),
  luFactor: composite({
    ...row(
      `[L and U in one matrix, the row (counted from 1, i32) that each row was exchanged with, in turn]; ${HOST}`,
      [
        { inputs: [PLAIN], args: [] },
        { inputs: [TALL], args: [] },
      ],
    ),
    compose: (x: Tensor): readonly [lu: Tensor, pivots: Tensor] => {
      requireMatrix('luFactor', x);
      const wide = widened('luFactor', x, (w): readonly [Tensor, Tensor] => {
        const [both, swaps] = w.onHost(LU, [w]);
        return [both, swaps.detach()];
      });
      return [wide[0], wide[1].cast('i32')];
    },
  }),
  luSolve: composite({
    ...row(
      `X of A X = B, given what luFactor answers of A; B a vector or columns; ${HOST}`,
      [
        {
          inputs: [PLAIN, { shape: [3], dtype: 'i32', values: [3, 2, 3] }, s(3, 2)],
          args: [{ input: 1 }, { input: 2 }],
        },
        { inputs: [PLAIN, { shape: [3], dtype: 'i32', values: [1, 3, 3] }, s(3)], args: [{ input: 1 }, { input: 2 }] },
      ],
      {
        errors: [
          {
            inputs: [PLAIN, { shape: [3], dtype: 'i32', values: [3, 1, 3] }, s(3)],
            args: [{ input: 1 }, { input: 2 }],
            code: 'E_ARGUMENT',
            says: /pivot 2 is none of the rows 2 to 3/,
          },
        ],
      },
    ),
    compose: (x: Tensor, pivots: Tensor, b: Tensor): Tensor => {
      requireSquare('luSolve', x);
      requireSameDType('luSolve', [x, b]);
      if (formatShape(pivots.shape) !== formatShape(x.shape.slice(0, -1)))
        throw new ShapeError(
          `luSolve: the pivots of ${formatShape(x.shape)} are ${formatShape(x.shape.slice(0, -1))}, ` +
            `not ${formatShape(pivots.shape)}`,
        );
      const vector = b.rank === 1;
      const right = vector ? b.unsqueeze(-1) : b;
      const found = widened('luSolve', x, (w) => {
        const [order] = pivots.onHost(ROW_ORDER, [pivots.cast(w.dtype).unsqueeze(-2)]);
        const ordered = orderMatrix(order).matmul(right.cast(w.dtype));
        return [w.solveTriangular(w.solveTriangular(ordered, { unit: true }), { upper: true })];
      })[0];
      return vector ? found.squeeze(-1) : found;
    },
  }),
  cholesky: composite({
    ...row(
      `lower triangular L with L L^T = (A + A^T) / 2, which must be positive definite; ${HOST}`,
      [{ inputs: [SPD], args: [] }],
      {
        errors: [
          {
            inputs: [square(1, 2, 0, 2, 1, 0, 0, 0, 1)],
            args: [],
            code: 'E_ARGUMENT',
            says: /cholesky: the matrix is not positive definite: its leading minor of order 2/,
          },
        ],
      },
    ),
    compose: (x: Tensor): Tensor => {
      requireSquare('cholesky', x);
      return widened('cholesky', x, (w) => [w.onHost(CHOLESKY, [symmetric(w)])[0]])[0];
    },
  }),
  qr: composite({
    ...row(`[Q, R]: orthonormal columns times an upper triangle; ${HOST}`, [
      { inputs: [TALL], args: [] },
      { inputs: [PLAIN], args: [] },
      { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }], args: [] },
    ]),
    compose: (x: Tensor): readonly [q: Tensor, r: Tensor] => qrOf('qr', x),
  }),
  eigh: composite({
    ...row(
      `[ascending eigenvalues, eigenvectors as columns, their largest component positive] of (A + A^T) / 2; ${HOST}`,
      [{ inputs: [SPD], args: [] }],
    ),
    compose: (x: Tensor): readonly [values: Tensor, vectors: Tensor] => {
      requireSquare('eigh', x);
      return widened('eigh', x, (w) => w.onHost(EIGH, [symmetric(w)]) as unknown as readonly [Tensor, Tensor]);
    },
  }),
  svd: composite({
    ...row(`[U, S, V^T] with U diag(S) V^T = A and descending S, reduced; ${HOST}`, [
      { inputs: [TALL], args: [] },
      { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }], args: [] },
    ]),
    compose: (x: Tensor): readonly [u: Tensor, s: Tensor, vt: Tensor] => {
      requireMatrix('svd', x);
      return widened('svd', x, (w): readonly [Tensor, Tensor, Tensor] => {
        const { m, n } = tall(w.shape);
        const [u, values, v] = w.onHost(SVD, [m >= n ? w : T(w)]);
        return m >= n ? [u, values, T(v)] : [v, values, T(u)];
      });
    },
  }),
  pinv: composite({
    ...row(
      `the pseudo-inverse (Moore-Penrose); singular values below max(m, n) eps of the largest count as 0; ${HOST}`,
      [
        { inputs: [TALL], args: [] },
        { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }], args: [] },
        // Without full rank a step in any direction may add to the rank, and there is no derivative to check.
        { inputs: [{ ...square(1, 2, 3, 2, 4, 6, 1, 0, 1), dtype: 'f64' }], args: [] },
      ],
      { ulp: { f32: 64, f64: 1024, f16: 4, bf16: 4 } },
    ),
    compose: (x: Tensor): Tensor => {
      requireMatrix('pinv', x);
      return widened('pinv', x, (w) => w.onHost(PINV, [w]))[0];
    },
  }),
  matrixRank: composite({
    ...row(
      `how many singular values are above max(m, n) eps of the largest (i64); ${HOST}`,
      [
        { inputs: [TALL], args: [] },
        { inputs: [square(1, 2, 3, 2, 4, 6, 1, 0, 1)], args: [] },
      ],
      { ulp: 0, noGrad: 'the result is a count' },
    ),
    compose: (x: Tensor): Tensor => {
      requireMatrix('matrixRank', x);
      const { m, n } = tall(x.shape);
      if (m === 0 || n === 0) return x.newZeros(lead(x.shape), 'i64');
      const [, values] = x.detach().svd();
      const most = values.narrow(-1, 0, 1);
      return values.gt(most.affine(lost(x.dtype, m, n), 0)).sum([-1], false);
    },
  }),
  lstsq: composite({
    ...row(
      `X with the least |A X - B|, of several the shortest; by QR, or the pseudo-inverse where the rank is not ` +
        `full; ${HOST}`,
      [
        { inputs: [TALL, s(4, 2)], args: [{ input: 1 }] },
        { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }, s(2, 1)], args: [{ input: 1 }] },
      ],
      { ulp: { f32: 256, f64: 1024, f16: 4, bf16: 4 } },
    ),
    compose: (a: Tensor, b: Tensor): Tensor => {
      requireMatrix('lstsq', a);
      requireSameDType('lstsq', [a, b]);
      const { m, n } = tall(a.shape);
      if (b.rank < 2 || tall(b.shape).m !== m)
        throw new ShapeError(`lstsq: ${formatShape(b.shape)} has not the ${m} rows of ${formatShape(a.shape)}`);
      return widened('lstsq', a, (w) => {
        const right = b.cast(w.dtype);
        const [q, r] = qrOf('lstsq', m >= n ? w : T(w));
        const ends = r.detach().diagonal().abs();
        const short = ends.le(ends.max([-1], true).affine(lost(w.dtype, m, n), 0));
        if (ends.size > 0 && short.any().item() === 1) return [w.onHost(PINV, [w])[0].matmul(right)];
        if (m >= n) return [solveOf('lstsq', r, T(q).matmul(right))];
        return [q.matmul(solveOf('lstsq', T(r), right))];
      })[0];
    },
  }),
  matrixExp: composite({
    ...row('e^A of square matrices: a series of A / 2^k, squared k times, in double precision', [
      { inputs: [{ shape: [3, 3], domain: [-1, 1] }], args: [] },
      { inputs: [{ shape: [2, 2, 2], domain: [-3, 3] }], args: [] },
    ]),
    compose: (x: Tensor): Tensor => {
      requireSquare('matrixExp', x);
      requireDType('matrixExp', x, REALS, 'it takes floats of 16 bits and more; cast first');
      if (x.size === 0) return x;
      const a = x.cast('f64');
      const size = a.detach().abs().sum([-1], false).max().item();
      if (!Number.isFinite(size)) throw new ArgumentError('matrixExp: the matrix holds NaN or infinities');
      const halvings = Math.max(0, Math.ceil(Math.log2(size / 0.25)));
      const small = a.affine(2 ** -halvings, 0);
      const one = eye(a, tall(a.shape).n).broadcastTo(a.shape);
      // Horner's rule: 1 + A (1 + A/2 (1 + A/3 ...)).
      let sum = one.add(small.affine(1 / 13, 0));
      for (let k = 12; k >= 1; k--) sum = one.add(small.affine(1 / k, 0).matmul(sum));
      for (let k = 0; k < halvings; k++) sum = sum.matmul(sum);
      return sum.cast(x.dtype);
    },
  }),
});
