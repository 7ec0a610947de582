// Discrete Fourier transforms as pairs of real tensors: one op up to the length that it takes, several joined by
// twiddle factors beyond, and by way of a convolution (Bluestein) where the length has a large prime.
import { type DType, REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { divisorOf, isOneDft, LARGEST_PRIME, longestDft, primesOf } from './fourier.js';
import { alike, composite, requireDType, requireOptions, requireTensor, requireWhole } from './kernel-row.js';
import { type InputSpec, rows } from './op.js';

const NORMS = ['backward', 'ortho', 'forward'] as const;
export interface FftOptions {
  /**
   * Length of the transform: x is cut or padded with zeros; default its own (twice the spectrum less two for irfft).
   */
  readonly n?: number;
  /** Default the last dimension. */
  readonly dim?: number;
  /** Which direction is divided by n; 'ortho' divides both by its root. Default 'backward'. */
  readonly norm?: (typeof NORMS)[number];
}
export interface StftOptions {
  /** Elements between frames; default a quarter of the length. */
  readonly hop?: number;
  /** Weights of a frame, no longer than the transform; default all 1. */
  readonly window?: Tensor;
  /** Frames are centered on their place, x being mirrored at its ends. Default true. */
  readonly center?: boolean;
  /** How x goes on beyond its ends where frames are centered; default 'reflect'. */
  readonly padMode?: 'reflect' | 'constant' | 'replicate';
  /** Divide by the root of the length. */
  readonly normalized?: boolean;
  /** Half of the spectrum, of which the other is the mirror image. Default true. */
  readonly onesided?: boolean;
}

interface Pair {
  readonly re: Tensor;
  readonly im: Tensor;
}
const times = (a: Pair, b: Pair): Pair => ({
  re: a.re.mul(b.re).sub(a.im.mul(b.im)),
  im: a.re.mul(b.im).add(a.im.mul(b.re)),
});
const both = (p: Pair, f: (t: Tensor) => Tensor): Pair => ({ re: f(p.re), im: f(p.im) });
/** cos and sin of sign * 2 pi k / n, whole numbers k below 2^53 given in f64: modulo n, so that angles stay exact. */
function turns(k: Tensor, n: number, sign: number, dtype: DType): Pair {
  const angles = k.fmod(n).affine((sign * 2 * Math.PI) / n, 0);
  return { re: angles.cos().cast(dtype), im: angles.sin().cast(dtype) };
}

/** What is wanted of a transform: the first `keep` results, perhaps their real parts alone, times a scale. */
interface Wanted {
  readonly keep: number;
  readonly real: boolean;
  readonly scale: number;
}
/**
 * Whether one op makes it: GPUs join several passes through their shared memory; for CPUs a long row is better cut into
 * many short ones.
 */
const isOne = (t: Tensor, n: number): boolean =>
  t.device.backend.gpu
    ? isOneDft(n, t.dtype)
    : n <= longestDft(t.dtype) && primesOf(n).every((p) => p <= LARGEST_PRIME);
/** The transform of rows, continued by zeros to n; `re` alone where nothing else is wanted. */
function dft(re: Tensor, im: Tensor | undefined, n: number, sign: number, wanted: Wanted): Pair {
  if (isOne(re, n)) {
    const [a, b] = re.dft(im, { n, inverse: sign > 0, half: false, ...wanted });
    return { re: a, im: b ?? a };
  }
  const finish = (t: Tensor): Tensor => {
    const kept = wanted.keep < n ? t.narrow(-1, 0, wanted.keep) : t;
    return wanted.scale === 1 ? kept : kept.affine(wanted.scale, 0);
  };
  if (primesOf(n).some((p) => p > LARGEST_PRIME)) return both(bluestein(re, im, n, sign), finish);
  const whole = { re: fitted(re, n), im: im ? fitted(im, n) : fitted(re, n).zerosLike() };
  return both(inTwo(whole, n, sign, longestDft(re.dtype)), finish);
}
const every = (n: number): Wanted => ({ keep: n, real: false, scale: 1 });

/** Element j1 * b + j2 goes to k1 + a * k2: transforms of length a, twiddle factors, transforms of length b. */
function inTwo(p: Pair, n: number, sign: number, most: number): Pair {
  const a = divisorOf(n, most);
  const b = n / a;
  const lead = p.re.shape.slice(0, -1);
  const columns = both(p, (t) => t.reshape([...lead, a, b]).transpose(-2, -1));
  const inner = both(dft(columns.re, columns.im, a, sign, every(a)), (t) => t.transpose(-2, -1));
  const factors = turns(p.re.newArange(a, 'f64').unsqueeze(1).mul(p.re.newArange(b, 'f64')), n, sign, p.re.dtype);
  const { re, im } = times(inner, factors);
  return both(dft(re, im, b, sign, every(b)), (t) => t.transpose(-2, -1).reshape([...lead, n]));
}

/** j k = (j^2 + k^2 - (k - j)^2) / 2 makes the sum a convolution, which transforms of a power of two compute. */
function bluestein(re: Tensor, im: Tensor | undefined, n: number, sign: number): Pair {
  const m = 2 ** Math.ceil(Math.log2(2 * n - 1));
  // Around a circle of m, element j is the chirp of its distance from element 0, and 0 where that is n or more.
  const place = re.newArange(m, 'f64');
  const away = place.minimum(place.affine(-1, m));
  const circle = turns(away.sqr(), 2 * n, sign, re.dtype);
  const chirp = both(circle, (t) => t.narrow(-1, 0, n));
  const far = away.ge(n);
  const around = both(circle, (t) => far.where(t.constant(0), t));
  const length = re.shape[re.rank - 1];
  const first = both(chirp, (t) => t.narrow(-1, 0, length));
  const given = im ? times({ re, im }, first) : both(first, (t) => re.mul(t));
  const spread = dft(given.re, given.im, m, -1, every(m));
  const back = dft(around.re, around.im.neg(), m, -1, every(m));
  const { re: a, im: b } = times(spread, back);
  return times(dft(a, b, m, 1, { keep: n, real: false, scale: 1 / m }), chirp);
}

/** Checked options, and the dimension moved to the end and made n long. */
function prepared(
  op: string,
  x: Tensor,
  options: FftOptions,
  n?: number,
): { t: Tensor; n: number; dim: number; norm: string } {
  requireOptions(op, options, ['n', 'dim', 'norm']);
  requireDType(op, x, REALS, 'transforms take floats of 16 bits and more; cast first');
  const dim = normalizeDim(op, options.dim ?? -1, x.rank);
  const length = options.n ?? n ?? x.shape[dim];
  requireWhole(op, 'n', [length], 1);
  const { norm = 'backward' } = options;
  if (!NORMS.includes(norm))
    throw new ArgumentError(`${op}: unknown norm ${JSON.stringify(norm)}; known are ${NORMS.join(', ')}`);
  const wide = x.dtype === 'f64' ? x : x.cast('f32');
  return { t: wide.movedim(dim, -1), n: length, dim, norm };
}
const fitted = (t: Tensor, n: number): Tensor => {
  const have = t.shape[t.rank - 1];
  return have > n ? t.narrow(-1, 0, n) : have < n ? t.pad([0, n - have]) : t;
};
const scaleOf = (norm: string, n: number, forward: boolean): number =>
  norm === 'ortho' ? 1 / Math.sqrt(n) : (norm === 'forward') === forward ? 1 / n : 1;
const finished = (t: Tensor, dim: number, dtype: DType): Tensor => t.movedim(-1, dim).cast(dtype);
/** No more than n of a row. */
const cut = (t: Tensor, n: number): Tensor => (t.shape[t.rank - 1] > n ? t.narrow(-1, 0, n) : t);

function transform(
  op: string,
  x: Tensor,
  im: Tensor | undefined,
  options: FftOptions,
  sign: number,
  half = false,
): readonly [Tensor, Tensor] {
  requireTensor(op, 'the imaginary part', im);
  const { t, n, dim, norm } = prepared(op, x, options);
  if (im && formatShape(im.shape) !== formatShape(x.shape))
    throw new ShapeError(`${op}: the imaginary part ${formatShape(im.shape)} must be ${formatShape(x.shape)}`);
  const other = im && cut(im.cast(t.dtype).movedim(dim, -1), n);
  const keep = half ? Math.floor(n / 2) + 1 : n;
  const out = dft(cut(t, n), other, n, sign, { keep, real: false, scale: scaleOf(norm, n, sign < 0) });
  return [finished(out.re, dim, x.dtype), finished(out.im, dim, x.dtype)];
}

const s = (...shape: number[]): InputSpec => ({ shape });
/** What these rows have in common. */
const row = alike({
  dtypes: REALS,
  without: 'transforms take floats of 16 bits and more; cast first',
  ulp: { f32: 4096, f64: 4096, f16: 4, bf16: 4 },
  loose: 'sums of many terms that cancel to nothing are measured by a single one of them',
  domain: [0.25, 2],
  candle: { none: 'Candle has none of it' },
});

export const spectralOps = rows({
  fft: composite({
    ...row('[real, imaginary] of the sum over j of (x + i im)[j] e^(-2 pi i j k / n); im left out is 0', [
      { inputs: [s(2, 6), s(2, 6)], args: [{ input: 1 }] },
      { inputs: [s(2, 5)], args: [undefined, { n: 7 }] },
    ]),
    compose: (x: Tensor, im?: Tensor, options: FftOptions = {}): readonly [re: Tensor, im: Tensor] =>
      transform('fft', x, im, options, -1),
  }),
  ifft: composite({
    ...row('[real, imaginary] of the sum over k of (x + i im)[k] e^(2 pi i j k / n), divided by n; im left out is 0', [
      { inputs: [s(2, 6), s(2, 6)], args: [{ input: 1 }] },
    ]),
    compose: (x: Tensor, im?: Tensor, options: FftOptions = {}): readonly [re: Tensor, im: Tensor] =>
      transform('ifft', x, im, options, 1),
  }),
  rfft: composite({
    ...row(
      '[real, imaginary] of the first n/2 + 1 frequencies of real x, of which the others are mirror images',
      [
        { inputs: [s(2, 6)], args: [] },
        { inputs: [s(5, 2)], args: [{ dim: 0, norm: 'ortho' }] },
        { inputs: [s(1, 70)], args: [] },
      ],
      { errors: [{ inputs: [s(4)], args: [{ norm: 'none' }], code: 'E_ARGUMENT', says: /rfft: unknown norm "none"/ }] },
    ),
    compose: (x: Tensor, options: FftOptions = {}): readonly [re: Tensor, im: Tensor] =>
      transform('rfft', x, undefined, options, -1, true),
  }),
  irfft: composite({
    ...row('real x of the first half of its spectrum, x + i im: what rfft gives', [
      { inputs: [s(2, 4), s(2, 4)], args: [{ input: 1 }] },
      { inputs: [s(2, 4), s(2, 4)], args: [{ input: 1 }, { n: 7 }] },
    ]),
    compose: (x: Tensor, im: Tensor, options: FftOptions = {}): Tensor => {
      const at = normalizeDim('irfft', options.dim ?? -1, x.rank);
      const { t, n, dim, norm } = prepared('irfft', x, options, 2 * (x.shape[at] - 1));
      if (formatShape(im.shape) !== formatShape(x.shape))
        throw new ShapeError(`irfft: the imaginary part ${formatShape(im.shape)} must be ${formatShape(x.shape)}`);
      const half = Math.floor(n / 2) + 1;
      const wanted = { keep: n, real: true, scale: scaleOf(norm, n, false) };
      const given = im.cast(t.dtype).movedim(dim, -1);
      if (isOne(t, n)) {
        const [out] = cut(t, half).dft(cut(given, half), { n, inverse: true, half: true, ...wanted });
        return finished(out, dim, x.dtype);
      }
      const [re, other] = [fitted(t, half), fitted(given, half)];
      // The other frequencies in descending order, without the first and, of an even length, the middle one. The
      // imaginary parts of those two count nowhere, as in PyTorch.
      const rest = n - half;
      const mirror = (v: Tensor): Tensor => v.narrow(-1, 1, rest).flip(-1);
      const whole = (v: Tensor, tail: Tensor): Tensor => (rest > 0 ? v.cat([tail], v.rank - 1) : v);
      const real = x.newTensor(
        Array.from({ length: half }, (_, k) => (k === 0 || 2 * k === n ? 0 : 1)),
        { dtype: t.dtype },
      );
      const imag = other.mul(real);
      const out = dft(whole(re, mirror(re)), whole(imag, mirror(imag).neg()), n, 1, wanted);
      return finished(out.re, dim, x.dtype);
    },
  }),
  stft: composite({
    ...row(
      '[real, imaginary] spectra of windows of nFft elements every hop, as (..., frequencies, frames)',
      [
        { inputs: [s(2, 20), { shape: [8], domain: [0.1, 1] }], args: [8, { window: { input: 1 }, hop: 3 }] },
        { inputs: [s(19)], args: [6, { center: false, onesided: false, normalized: true }] },
      ],
      {
        errors: [
          {
            inputs: [s(3)],
            args: [8, { center: false }],
            code: 'E_SHAPE',
            says: /stft: 3 elements are fewer than a frame of 8/,
          },
        ],
      },
    ),
    compose: (x: Tensor, nFft: number, options: StftOptions = {}): readonly [re: Tensor, im: Tensor] => {
      requireOptions('stft', options, ['hop', 'window', 'center', 'padMode', 'normalized', 'onesided']);
      requireDType('stft', x, REALS, 'transforms take floats of 16 bits and more; cast first');
      requireWhole('stft', 'length', [nFft], 1);
      const { hop = Math.max(1, Math.floor(nFft / 4)), window, center = true, padMode = 'reflect' } = options;
      requireWhole('stft', 'hop', [hop], 1);
      if (x.rank !== 1 && x.rank !== 2)
        throw new ShapeError(`stft: takes a signal or rows of them, not ${formatShape(x.shape)}`);
      if (window && (window.rank !== 1 || window.size > nFft))
        throw new ShapeError(`stft: the window ${formatShape(window.shape)} must be a vector of at most ${nFft}`);
      const side = Math.floor(nFft / 2);
      const padded = center ? x.padMode([side, side], padMode) : x;
      const n = padded.shape[padded.rank - 1];
      if (n < nFft) throw new ShapeError(`stft: ${n} elements are fewer than a frame of ${nFft}`);
      const frames = padded.unfold(-1, nFft, hop);
      const before = window ? Math.floor((nFft - window.size) / 2) : 0;
      const weighted = window ? frames.mul(window.cast(x.dtype).pad([before, nFft - window.size - before])) : frames;
      const norm = options.normalized ? 'ortho' : 'backward';
      const [re, im] = options.onesided === false ? weighted.fft(undefined, { norm }) : weighted.rfft({ norm });
      return [re.transpose(-2, -1), im.transpose(-2, -1)];
    },
  }),
});
