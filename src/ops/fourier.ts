// The discrete Fourier transform of rows as one op: what fits in a GPU's shared memory, or is made in two passes of
// such lengths, or as a convolution where the length has a large prime. spectral.ts makes longer ones of it, and on
// CPUs those with large primes.
import type { DType } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { type Kernel, kernel, numbers, requireWhole } from './kernel-row.js';
import { exactSum } from './reduce.js';
import {
  rows,
  type Call,
  type ErrorSample,
  type GradContext,
  type Grads,
  type InputSpec,
  type RefTensor,
  type Sample,
  type Sig,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    fourier: undefined;
  }
}

export interface DftParams extends Record<string, unknown> {
  /** Length of the transform; a row is continued by zeros up to it. */
  readonly n: number;
  /** How many of the n results are wanted: the first. */
  readonly keep: number;
  /** Angles are positive. Nothing is divided by n. */
  readonly inverse: boolean;
  /** The real parts are all that is wanted. */
  readonly real: boolean;
  /** What results are multiplied by. */
  readonly scale: number;
  /** Of real results: the elements are the first half of n, n/2 + 1 of them or fewer, and the others mirror them. */
  readonly half: boolean;
}
/** How often an element counts: those that have a mirror image twice. */
const timesOf = ({ n, half }: DftParams, j: number): number => (half && j > 0 && 2 * j !== n ? 2 : 1);
/**
 * The longest rows that any device transforms at once; the largest prime divisor that CPUs take one by one, and GPUs.
 */
export const longestDft = (dtype: DType): number => (dtype === 'f64' ? 2048 : 4096);
export const LARGEST_PRIME = 251;
export const LARGEST_RADIX_PRIME = 13;
/** The longest convolution that a GPU makes of a transform whose length has larger ones. */
const LONGEST_CHIRP = 2 ** 22;
export function primesOf(n: number): number[] {
  const found: number[] = [];
  let left = n;
  for (let p = 2; p * p <= left; p++) for (; left % p === 0; left /= p) found.push(p);
  return left > 1 ? [...found, left] : found;
}

/** The largest divisor of n up to `most` that leaves as few parts as there can be, near the root where that is two. */
export function divisorOf(n: number, most: number): number {
  let found = 1;
  for (let d = Math.min(most, Math.floor(n / 2)); d > 1; d--)
    if (n % d === 0) {
      if (n / d > most) return found > 1 ? found : d;
      found = d;
      if (d * d <= n) break;
    }
  return found;
}
/** Lengths a and b, n being a * b, whose transforms make one of n; [n, 1] where any device takes all of it. */
export function partsOfDft(n: number, dtype: DType): readonly [a: number, b: number] | undefined {
  const most = longestDft(dtype);
  if (n <= most) return [n, 1];
  if (n > most * most) return undefined;
  const a = divisorOf(n, most);
  return n / a <= most ? [a, n / a] : undefined;
}
/** Length of the convolution that makes a transform of a length with a large prime. */
export const chirpOf = (n: number): number => 2 ** Math.ceil(Math.log2(2 * n - 1));
/** What was found out about a length, as lengths come again: of so many at most. */
function remembered<A extends readonly [n: number, dtype?: DType], R>(found: (...args: A) => R): (...args: A) => R {
  const known = new Map<unknown, R>();
  return (...args) => {
    const key = args[1] === undefined ? args[0] : `${args[0]} ${args[1]}`;
    let result = known.get(key);
    if (result === undefined) {
      if (known.size >= 1024) known.clear();
      known.set(key, (result = found(...args)));
    }
    return result;
  };
}
export const isRough = remembered((n: number): boolean => primesOf(n).some((p) => p > LARGEST_RADIX_PRIME));
/** Whether one op makes a transform of n elements. */
export const isOneDft = remembered((n: number, dtype: DType): boolean =>
  isRough(n) ? chirpOf(n) <= LONGEST_CHIRP : partsOfDft(n, dtype) !== undefined,
);

function inferDft(inputs: readonly Sig[], { n, keep, real, half }: DftParams): Sig[] {
  const [{ shape, dtype }, im] = inputs;
  if (shape.length === 0) throw new ShapeError('dft: takes rows, not []');
  if (im && !sameShape(im.shape, shape))
    throw new ShapeError(`dft: the imaginary part ${formatShape(im.shape)} must be ${formatShape(shape)}`);
  requireWhole('dft', 'n and keep', [n, keep], 1);
  const m = shape[shape.length - 1];
  if (m > n || keep > n) throw new ShapeError(`dft: ${m} elements and ${keep} results of a transform of ${n}`);
  if (half && (!real || m > Math.floor(n / 2) + 1))
    throw new ShapeError(`dft: half of ${n} is at most ${Math.floor(n / 2) + 1} elements, of real results, not ${m}`);
  if (!isOneDft(n, dtype))
    throw new ArgumentError(
      `dft: ${n} is not one of the lengths up to ${longestDft(dtype)}, or a product of two of them, with primes up ` +
        `to ${LARGEST_RADIX_PRIME}, or one of those up to ${LONGEST_CHIRP / 2}`,
    );
  const out = { shape: [...shape.slice(0, -1), keep], dtype };
  return real ? [out] : [out, out];
}

function referenceDft(inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: DftParams): void {
  const { n, keep, inverse, scale } = p;
  const { shape } = inputs[0];
  const m = shape[shape.length - 1];
  const [re, im] = inputs.map(numbers);
  const count = outputs[0].data.length / keep;
  const sign = inverse ? 1 : -1;
  for (let row = 0; row < count; row++)
    for (let k = 0; k < keep; k++) {
      const [a, b]: number[][] = [[], []];
      for (let j = 0; j < m; j++) {
        const angle = (sign * 2 * Math.PI * ((j * k) % n)) / n;
        const times = timesOf(p, j);
        const [x, y] = [times * re[row * m + j], im ? times * im[row * m + j] : 0];
        const [c, s] = [Math.cos(angle), Math.sin(angle)];
        a.push(x * c, -y * s);
        b.push(x * s, y * c);
      }
      outputs[0].data[row * keep + k] = Number(exactSum(a)) * scale;
      if (outputs[1]) outputs[1].data[row * keep + k] = Number(exactSum(b)) * scale;
    }
}

const s = (...shape: number[]): InputSpec => ({ shape });
const plain = (n: number, more: Partial<DftParams> = {}): DftParams => ({
  ...{ n, keep: n, inverse: false, real: false, scale: 1, half: false },
  ...more,
});
type Many<A extends readonly unknown[]> = Kernel<A, DftParams> & { readonly many: true };
const many = <A extends readonly unknown[]>(row: Kernel<A, DftParams>): Many<A> => ({ ...kernel(row), many: true });

export const fourierOps = rows({
  dft: many({
    internal: true,
    serves: 'fft',
    family: 'fourier',
    engineParams: ['n', 'keep', 'inverse', 'real', 'scale', 'half'],
    formula: '[real, imaginary] of scale times the sum over j of (x + i im)[j] e^(-2 pi i j k / n) for k below keep',
    dtypes: ['f32', 'f64'],
    without: 'transforms of 16-bit floats are made in f32',
    domain: [0.25, 2],
    ulp: { f32: 4096, f64: 16384 },
    loose: 'sums of many terms that cancel to nothing are measured by a single one of them',
    candle: { none: 'Candle has none of it' },
    infer: inferDft,
    reference: referenceDft,
    // The sum of what flowed back times the conjugate factors: the other direction, of as many elements as came in.
    grad: ({ inputs, grads: [re, im], params }: GradContext<DftParams>): Grads => {
      const { n, inverse, scale } = params;
      const lead = re ?? (im as Tensor).zerosLike();
      const keep = inputs[0].shape[inputs[0].rank - 1];
      const found = lead.dft(im, { n, keep, inverse: !inverse, real: inputs.length === 1, scale, half: false });
      if (!params.half) return found;
      const times = lead.newTensor(
        Array.from({ length: keep }, (_, j) => timesOf(params, j)),
        { dtype: lead.dtype },
      );
      return found.map((t) => t.mul(times));
    },
    gradReads: [],
    args: (x: Tensor, im: Tensor | undefined, params: DftParams): Call<DftParams> => ({
      inputs: im ? [x, im] : [x],
      params,
    }),
    samples: (): readonly Sample<DftParams>[] => [
      { inputs: [s(2, 6), s(2, 6)], params: plain(6) },
      { inputs: [s(3, 1)], params: plain(1) },
      { inputs: [s(2, 5)], params: plain(8, { keep: 5 }) },
      { inputs: [s(1, 64), s(1, 64)], params: plain(64, { inverse: true, scale: 1 / 64 }) },
      { inputs: [s(3, 35), s(3, 35)], params: plain(35, { real: true }) },
      { inputs: [s(2, 20)], params: plain(22, { inverse: true }) },
      { inputs: [s(121)], params: plain(121, { keep: 61 }) },
      { inputs: [s(2, 480)], params: plain(480, { keep: 241 }) },
      { inputs: [s(2, 4), s(2, 4)], params: plain(6, { inverse: true, real: true, half: true }) },
      { inputs: [s(2, 3), s(2, 3)], params: plain(7, { inverse: true, real: true, half: true }) },
      { inputs: [s(2, 4000)], params: plain(4100, { keep: 20, scale: 0.5 }) },
    ],
    errors: (): readonly ErrorSample<DftParams>[] => [
      {
        inputs: [s(2, 6), s(2, 5)],
        params: plain(6),
        code: 'E_SHAPE',
        says: /imaginary part \[2, 5\] must be \[2, 6\]/,
      },
      { inputs: [s(9)], params: plain(8), code: 'E_SHAPE', says: /9 elements and 8 results of a transform of 8/ },
      { inputs: [s(9)], params: plain(2 ** 25), code: 'E_ARGUMENT', says: /33554432 is not one of the lengths/ },
    ],
  }),
});
