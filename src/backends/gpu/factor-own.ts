// Factorizations by kernels of our own: which rows and sizes, and what they take and give.
import type { DType } from '../../base/dtype.js';
import type { DeviceInfo } from '../../driver/driver.js';
import type { Params } from '../../ops/op.js';
import type { View } from '../backend.js';
import { MOST_ROWS, planLu, planRowOrder } from './lu.js';
import { matricesOf, tileFor, troubleWord } from './matrices.js';
import type { Planner } from './plan.js';
import { planQr, planRotations, rotates } from './spectra.js';
import { planCholesky, planTriangle, solvesTriangles, type Triangle } from './triangles.js';

type Says = (at: number, n: number) => string;
export const NOT_DEFINITE: Says = (at) =>
  `the matrix is not positive definite: its leading minor of order ${at} is not above 0`;
export const SINGULAR: Says = (at, n) => `the matrix is singular: pivot ${at} of ${n} is 0`;

/** What of a singular value counts as nothing beside the largest: LAPACK's rule. */
const cutOf = ({ layout: { shape }, dtype }: View): number =>
  Math.max(...shape.slice(-2)) * (dtype === 'f64' ? 2 ** -52 : 2 ** -23);

interface Own {
  /** Whether matrices of m x n are taken on a device. */
  readonly takes: (m: number, n: number, device: DeviceInfo, dtype: DType) => boolean;
  readonly plan: (p: Planner, inputs: readonly View[], outputs: readonly View[], params: Params) => void;
}
const held: Own['takes'] = (m, n) => m <= MOST_ROWS && n <= MOST_ROWS;
const rotated: Own['takes'] = (m, n, device) => rotates(m, n, device.sharedPerBlockOptin);
const solved: Own['takes'] = (_, n, { sharedPerBlockOptin }, dtype) =>
  n <= MOST_ROWS && solvesTriangles(n, dtype, sharedPerBlockOptin);
const check = (p: Planner, trouble: View | undefined, of: View, says: Says): void => {
  const { shape } = of.layout;
  if (trouble) p.steps.push({ trouble, n: shape[shape.length - 1], says });
};
/** Inverses and triangles are told of as what they are made of elsewhere. */
const singular: Says = (at, n) => `solve: ${SINGULAR(at, n)}`;
const indefinite: Says = (at, n) => `cholesky: ${NOT_DEFINITE(at, n)}`;
const NO_ROW: Says = (at, n) => `rowOrder: pivot ${at} is none of the rows ${at} to ${n}`;
const unlessFinite = (p: Planner, op: string, trouble: View): void =>
  void p.steps.push({ trouble, n: 1, says: () => `${op}: the matrix holds NaN or infinities` });

const OWN: Readonly<Record<string, Own>> = {
  solve: { takes: solved, plan: (p, [a, b], [x]) => check(p, planLu(p, a, { b, x }), a, singular) },
  inverse: { takes: solved, plan: (p, [a], [x]) => check(p, planLu(p, a, { x }), a, singular) },
  det: { takes: held, plan: (p, [a], [value]) => void planLu(p, a, { value }) },
  slogdet: { takes: held, plan: (p, [a], [value, size]) => void planLu(p, a, { value, size }) },
  lu: { takes: held, plan: (p, [a], [lu, swaps, order]) => void planLu(p, a, { lu, swaps, order }) },
  cholesky: { takes: held, plan: (p, [a], [out]) => check(p, planCholesky(p, a, out), a, indefinite) },
  qr: { takes: (m) => tileFor(m) !== undefined, plan: (p, [a], [q, r]) => planQr(p, a, q, r) },
  rowOrder: {
    takes: (_, n) => n <= MOST_ROWS,
    plan: (p, [swaps], [order]) => check(p, planRowOrder(p, swaps, order), swaps, NO_ROW),
  },
  eigh: {
    takes: rotated,
    plan: (p, [a], [values, v]) => unlessFinite(p, 'eigh', planRotations(p, 'eigh', a, { values, v })),
  },
  svd: {
    takes: rotated,
    plan: (p, [a], [u, values, v]) => unlessFinite(p, 'svd', planRotations(p, 'svd', a, { u, values, v })),
  },
  pinv: {
    takes: rotated,
    plan: (p, [a], [u]) => unlessFinite(p, 'pinv', planRotations(p, 'pinv', a, { u }, cutOf(a))),
  },
  triangular: {
    takes: solved,
    plan: (p, [a, b], [x], params) => {
      const trouble = troubleWord(p);
      planTriangle(p, matricesOf(p, a), matricesOf(p, b), x, trouble, params as unknown as Triangle);
      check(p, trouble, a, singular);
    },
  },
};

/** Whether kernels of our own serve a row of matrices of m x n. */
export const factorsItself = (device: DeviceInfo, name: string, m: number, n: number, dtype: DType): boolean =>
  Object.hasOwn(OWN, name) && m > 0 && n > 0 && OWN[name].takes(m, n, device, dtype);

export const planOwn = (
  p: Planner,
  name: string,
  inputs: readonly View[],
  outputs: readonly View[],
  params: Params,
): void => OWN[name].plan(p, inputs, outputs, params);
