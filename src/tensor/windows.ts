// More functions that make tensors: windows of signals, places of triangles, logarithmic steps, blocks on a diagonal.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { arange, linspace, type TensorOptions, tensor, zeros } from './create.js';
import { Tensor } from './tensor.js';

/** What windows take. */
export interface WindowOptions extends TensorOptions {
  /** One period of a wave, as transforms want it, rather than a symmetric window; default true. */
  periodic?: boolean;
}

/** Windows are made on the host, number by number. */
const LONGEST = 2 ** 24;
/** f of 0 to 1 at n places, computed in double precision; the end is left out where the window is periodic. */
function windowOf(
  op: string,
  n: number,
  { periodic = true, ...options }: WindowOptions,
  f: (x: number) => number,
): Tensor {
  if (!Number.isSafeInteger(n) || n < 0 || n > LONGEST)
    throw new ArgumentError(`${op}: ${n} elements; it takes a whole number from 0 to ${LONGEST}`);
  const last = periodic ? n : n - 1;
  const values = Array.from({ length: n }, (_, i) => (n === 1 ? 1 : f(i / last)));
  return n === 0 ? zeros([0], options) : tensor(values, options);
}
const wave = (k: number, x: number): number => Math.cos(2 * Math.PI * k * x);

/** A raised cosine that begins and ends at 0. */
export const hannWindow = (n: number, options: WindowOptions = {}): Tensor =>
  windowOf('hannWindow', n, options, (x) => 0.5 - 0.5 * wave(1, x));
/** A raised cosine that begins and ends at 0.08. */
export const hammingWindow = (n: number, options: WindowOptions = {}): Tensor =>
  windowOf('hammingWindow', n, options, (x) => 0.54 - 0.46 * wave(1, x));
/** Two cosines: less leaks into other frequencies than with one. */
export const blackmanWindow = (n: number, options: WindowOptions = {}): Tensor =>
  windowOf('blackmanWindow', n, options, (x) => 0.42 - 0.5 * wave(1, x) + 0.08 * wave(2, x));
/** A triangle from 0 up to 1 and down. */
export const bartlettWindow = (n: number, options: WindowOptions = {}): Tensor =>
  windowOf('bartlettWindow', n, options, (x) => 1 - Math.abs(2 * x - 1));
/** I0(beta sqrt(1 - (2x - 1)^2)) / I0(beta): beta (12) trades width for leaks. */
export function kaiserWindow(n: number, beta = 12, options: WindowOptions = {}): Tensor {
  const arc = (x: number): number => beta * Math.sqrt(Math.max(0, 1 - (2 * x - 1) ** 2));
  return windowOf('kaiserWindow', n, options, (x) => bessel(arc(x)) / bessel(beta));
}
/** I0 by its series, whose terms are all positive. */
function bessel(x: number): number {
  let [sum, term] = [1, 1];
  for (let k = 1; term > sum * 1e-17; k++) sum += term *= (x / (2 * k)) ** 2;
  return sum;
}

/** base^start to base^end in n steps of one ratio, both included. */
export function logspace(start: number, end: number, n: number, base = 10, options: TensorOptions = {}): Tensor {
  if (!(base > 0)) throw new ArgumentError(`logspace: base ${base} is not positive`);
  const { requiresGrad = false, dtype = 'f32', ...rest } = options;
  const values = linspace(start, end, n, { ...rest, dtype: 'f64' })
    .affine(Math.log(base), 0)
    .exp()
    .cast(dtype);
  return requiresGrad ? values.requireGrad() : values;
}

function triangle(
  op: string,
  rows: number,
  columns: number,
  inside: (columnMinusRow: Tensor) => Tensor,
  options: Pick<TensorOptions, 'device'>,
): Tensor {
  if (![rows, columns].every((n) => Number.isSafeInteger(n) && n >= 0))
    throw new ArgumentError(`${op}: ${rows} rows and ${columns} columns; both must be whole numbers from 0`);
  const upTo = (n: number): Tensor => arange(0, n, 1, { ...options, dtype: 'i64' });
  return inside(upTo(columns).sub(upTo(rows).unsqueeze(1)))
    .nonzero()
    .t()
    .contiguous();
}
/** Row and column numbers, (2, count) i64, of a matrix's elements on and below a diagonal. */
export const trilIndices = (
  rows: number,
  columns = rows,
  offset = 0,
  options: Pick<TensorOptions, 'device'> = {},
): Tensor => triangle('trilIndices', rows, columns, (d) => d.le(offset), options);
/** Row and column numbers, (2, count) i64, of a matrix's elements on and above a diagonal. */
export const triuIndices = (
  rows: number,
  columns = rows,
  offset = 0,
  options: Pick<TensorOptions, 'device'> = {},
): Tensor => triangle('triuIndices', rows, columns, (d) => d.ge(offset), options);

/** Matrices along the diagonal of a larger one, 0 elsewhere; vectors are rows. */
export function blockDiag(blocks: readonly Tensor[]): Tensor {
  if (!Array.isArray(blocks) || blocks.length === 0 || !blocks.every((b) => b instanceof Tensor))
    throw new ArgumentError('blockDiag: needs an array of at least one tensor');
  const matrices = (blocks as readonly Tensor[]).map((b) => {
    if (b.rank > 2) throw new ShapeError(`blockDiag: ${formatShape(b.shape)} is no matrix`);
    return b.atLeast(2);
  });
  const columns = matrices.reduce((n, m) => n + m.shape[1], 0);
  let before = 0;
  const rows = matrices.map((m) => {
    const padded = m.pad([before, columns - before - m.shape[1]]);
    before += m.shape[1];
    return padded;
  });
  return rows[0].cat(rows.slice(1), 0);
}

/** The frequencies of fft's results: 0, 1, ... then the negative ones, over n times the time between two samples. */
export function fftfreq(n: number, spacing = 1, options: TensorOptions = {}): Tensor {
  if (!Number.isSafeInteger(n) || n < 1)
    throw new ArgumentError(`fftfreq: ${n} elements; it takes a whole number from 1`);
  const half = Math.ceil(n / 2);
  return tensor(
    Array.from({ length: n }, (_, i) => (i < half ? i : i - n) / (n * spacing)),
    options,
  );
}
/** The frequencies of rfft's results. */
export const rfftfreq = (n: number, spacing = 1, options: TensorOptions = {}): Tensor => {
  if (!Number.isSafeInteger(n) || n < 1)
    throw new ArgumentError(`rfftfreq: ${n} elements; it takes a whole number from 1`);
  return arange(0, Math.floor(n / 2) + 1, 1, { ...options, requiresGrad: false }).affine(1 / (n * spacing), 0);
};
