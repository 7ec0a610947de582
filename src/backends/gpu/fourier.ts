// Discrete Fourier transforms of rows in shared memory: kernels/fourier.hip.
import { bytesOf } from '../../base/dtype.js';
import { KernelModule, typed } from '../../kernels/declare.js';
import { type DftParams, primesOf } from '../../ops/fourier.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import { at, ceilDiv, clamp, type FamilyPlan, launch, type Launches, places, type Target } from './plan.js';

export const FOURIER = new KernelModule('fourier');
const FLOATS = ['f32', 'f64'] as const;
type Float = (typeof FLOATS)[number];
/** cos and -sin of 2 pi k / n. */
const factors = FOURIER.forTypes(FLOATS, 'fourier_factors', (T) => ({
  threads: 256,
  params: { table: `Complex<${T}>*`, n: 'u32' },
  call: 'fourier_factors',
}));
const rows = FOURIER.forTypes(FLOATS, 'fourier_rows', (T) => ({
  threads: 512,
  params: {
    ...typed(`const ${T}*`, 're', 'im'),
    ...typed(`${T}*`, 'out_re', 'out_im'),
    table: `const Complex<${T}>*`,
    ...typed('i64', 'rows', 'length', 'keep'),
    scale: 'double',
    ...typed('u32', 'n', 'together', 'pad'),
    radices: 'u64',
  },
  call: 'fourier_rows',
}));

/** Elements a block works on at least, where there are as many. */
const FULL = 1024;
/** One place is left free after every 2 ** PAD elements of a row, where there is room. */
const [PAD, NO_PAD, ROOM] = [4, 31, 65536];

/** Steps of a transform: eights and fours of the twos, then the other primes; a byte each, first to last. */
export function radicesOf(n: number): bigint {
  const primes = primesOf(n);
  const twos = primes.filter((p) => p === 2).length;
  const eights = twos % 3 === 1 && twos > 1 ? (twos - 4) / 3 : Math.floor(twos / 3);
  const rest = twos - 3 * eights;
  const fours = Math.floor(rest / 2);
  const steps = [
    ...new Array<number>(eights).fill(8),
    ...new Array<number>(fours).fill(4),
    ...new Array<number>(rest - 2 * fours).fill(2),
    ...primes.filter((p) => p !== 2),
  ];
  return steps.reduceRight((word, r) => (word << 8n) | BigInt(r), 0n);
}

/** Rows of `length` elements; null parts are 0 or not wanted. Buffers: re, im, outRe, outIm. */
export function fourierLaunches(
  dtype: Float,
  count: number,
  length: number,
  { n, keep, scale }: DftParams,
  parts: Readonly<Record<'re' | 'im' | 'outRe' | 'outIm', boolean>>,
  { multiprocessors }: Target,
): Launches {
  const pair = 2 * bytesOf(dtype);
  const together = clamp(Math.floor(FULL / n), 1, Math.max(1, ceilDiv(count, multiprocessors)));
  const threads = n * together <= FULL ? 128 : n <= 2 * FULL ? 256 : 512;
  const bytes = (pad: number): number => 2 * together * (n + Math.floor(n / 2 ** pad)) * pair;
  const pad = bytes(PAD) <= ROOM ? PAD : NO_PAD;
  const part = (name: keyof typeof parts) => (parts[name] ? at(name) : 0);
  const args = {
    re: part('re'),
    im: part('im'),
    out_re: part('outRe'),
    out_im: part('outIm'),
    table: at('scratch'),
    ...{ rows: count, length, keep, scale, n, together, pad, radices: radicesOf(n) },
  };
  const grid = clamp(ceilDiv(count, together), 1, 2 ** 22);
  return {
    launches: [
      launch(factors, { dtype }, ceilDiv(n, 256), 256, { ...places('table'), table: at('scratch'), n }),
      launch(rows, { dtype }, grid, threads, args, bytes(pad)),
    ],
    scratch: n * pair,
  };
}

export const planFourier: FamilyPlan<RowOf<'fourier'>, DftParams> = (p, _row, inputs, outputs, params) => {
  const { shape, size } = inputs[0].layout;
  const length = shape[shape.length - 1];
  if (size === 0) return outputs.forEach((out) => p.fill(out, 0));
  const [re, im] = inputs.map((v) => p.dense(v)) as (View | undefined)[];
  const [outRe, outIm] = outputs as (View | undefined)[];
  // With real and imaginary parts exchanged on both sides, the forward transform is the other one.
  const sides = params.inverse ? { re: im, im: re, outRe: outIm, outIm: outRe } : { re, im, outRe, outIm };
  const there = { re: !!sides.re, im: !!sides.im, outRe: !!sides.outRe, outIm: !!sides.outIm };
  p.run(fourierLaunches(inputs[0].dtype as Float, size / length, length, params, there, p.device), sides);
};
