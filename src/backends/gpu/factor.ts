// Factorizations: by kernels of our own (factor-own.ts), and of matrices beyond those by a vendor's library: which rows
// that serves, and what stands before and after its calls. Matrices lie row after row here and column after column
// there: a symmetric one is itself, others are turned.
import type { DType } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { sizeOf } from '../../base/shape.js';
import type { DeviceInfo } from '../../driver/driver.js';
import type { Factor, Float } from '../../driver/solver.js';
import type { Params } from '../../ops/op.js';
import type { Factors, View } from '../backend.js';
import { factorsItself, NOT_DEFINITE, planOwn, SINGULAR } from './factor-own.js';
import type { Libraries } from './libraries.js';
import { permuted, type Planner } from './plan.js';

const PLANS: Readonly<Record<string, (p: Planner, inputs: readonly View[], outputs: readonly View[]) => void>> = {
  cholesky: (p, [a], [out]) => {
    p.copy(a, out);
    step(p, 'cholesky', 0, a, [out]);
  },
  solve: (p, [a, right], [out]) => {
    const [matrices, columns] = [p.make(a.layout.shape, a.dtype), turnedCopy(p, right)];
    p.copy(a, matrices);
    step(p, 'solve', right.layout.shape[right.layout.shape.length - 1], a, [matrices, columns]);
    p.copy(turned(columns), out);
  },
  eigh: (p, [a], [values, vectors]) => {
    const matrices = p.make(a.layout.shape, a.dtype);
    p.copy(a, matrices);
    step(p, 'eigh', 0, a, [matrices, values]);
    p.copy(turned(matrices), vectors);
  },
  qr: (p, [a], [q, r]) => {
    const { shape } = a.layout;
    const [m, n] = shape.slice(-2);
    const matrices = turnedCopy(p, a);
    const tau = p.make([...shape.slice(0, -2), n], a.dtype);
    step(p, 'reflect', m, a, [matrices, tau]);
    const whole = turned(matrices);
    p.copy({ ...whole, layout: new Layout(r.layout.shape, whole.layout.strides, whole.layout.offset) }, r);
    step(p, 'orthogonal', m, a, [matrices, tau]);
    p.copy(turned(matrices), q);
  },
  svd: (p, [a], [u, values, v]) => {
    const { shape } = a.layout;
    const [m, n] = shape.slice(-2);
    const [left, right] = [p.make([...shape.slice(0, -2), n, m], a.dtype), p.make(v.layout.shape, a.dtype)];
    step(p, 'svd', m, a, [turnedCopy(p, a), values, left, right]);
    p.copy(turned(left), u);
    p.copy(turned(right), v);
  },
};

/** What a library has found, from the number that it answers. */
export const FAULTS: Readonly<Record<Factor, (at: number, n: number) => string>> = {
  cholesky: NOT_DEFINITE,
  solve: SINGULAR,
  eigh: () => 'no convergence',
  reflect: (at) => `the library refuses parameter ${-at}`,
  orthogonal: (at) => `the library refuses parameter ${-at}`,
  svd: () => 'no convergence',
};

/** From this size of a matrix on a call of a library is worth it. */
const LIBRARY_FROM = 128;
/** Who runs a row of m x n on a device. */
export function factorsOf(
  device: DeviceInfo,
  libraries: Libraries,
  name: string,
  m: number,
  n: number,
  dtype: DType,
): Factors {
  if (libraries.ownFactors && factorsItself(device, name, m, n, dtype)) return 'itself';
  const library = n >= LIBRARY_FROM && Object.hasOwn(PLANS, name) && typeof libraries.solver !== 'string';
  return library ? 'by library' : 'elsewhere';
}

export function planFactor(
  p: Planner,
  name: string,
  inputs: readonly View[],
  outputs: readonly View[],
  params: Params,
): void {
  const { shape } = inputs[0].layout;
  const [m, n] = shape.slice(-2);
  if (p.served.ownFactors !== false && factorsItself(p.device, name, m, n, inputs[0].dtype))
    planOwn(p, name, inputs, outputs, params);
  else PLANS[name](p, inputs, outputs);
}

function step(p: Planner, factor: Factor, m: number, of: View, at: readonly View[]): void {
  const { shape } = of.layout;
  const batch = sizeOf(shape.slice(0, -2));
  p.steps.push({ factor, m, n: shape[shape.length - 1], batch, dtype: of.dtype as Float, at });
}
/** The last two dimensions exchanged. */
function turned(v: View): View {
  const last = v.layout.shape.length - 1;
  return permuted(v, [...Array.from({ length: last - 1 }, (_, i) => i), last, last - 1]);
}
function turnedCopy(p: Planner, v: View): View {
  const from = turned(v);
  const to = p.make(from.layout.shape, v.dtype);
  p.copy(from, to);
  return to;
}
