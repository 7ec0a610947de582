// Discrete Fourier transforms of rows in shared memory, long ones in two passes: kernels/fourier.hip.
import { bytesOf } from '../../base/dtype.js';
import { KernelModule, typed } from '../../kernels/declare.js';
import { type DftParams, partsOfDft, primesOf } from '../../ops/fourier.js';
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
    ...typed('u32', 'n', 'together', 'pad', 'pitch'),
    radices: 'u64',
  },
  call: 'fourier_rows',
}));

/** The first pass over rows of n * b elements, and the second over a * n. */
const columns = FOURIER.forTypes(FLOATS, 'fourier_columns', (T) => ({
  threads: 512,
  params: {
    ...typed(`const ${T}*`, 're', 'im'),
    turned: `Complex<${T}>*`,
    table: `const Complex<${T}>*`,
    ...typed('i64', 'rows', 'length'),
    ...typed('u32', 'n', 'b', 'together', 'pad', 'pitch'),
    radices: 'u64',
  },
  call: 'fourier_columns',
}));
const joined = FOURIER.forTypes(FLOATS, 'fourier_joined', (T) => ({
  threads: 512,
  params: {
    turned: `const Complex<${T}>*`,
    ...typed(`${T}*`, 'out_re', 'out_im'),
    table: `const Complex<${T}>*`,
    ...typed('i64', 'rows', 'keep'),
    scale: 'double',
    ...typed('u32', 'n', 'a', 'together', 'pad', 'pitch'),
    radices: 'u64',
  },
  call: 'fourier_joined',
}));

/** Elements a block works on at least, where there are as many. */
const FULL = 1024;
/** One place is left free after every 2 ** PAD elements of a row, where there is room. */
const [PAD, NO_PAD, ROOM] = [4, 31, 65536];
const NEIGHBOURS = 16;
/** Bytes side by side below which rows are rather held without free places than fewer of them. */
const SECTORS = 64;

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

/** How rows lie in shared memory, twice: with free places where there is room, the same ones in different banks. */
interface Held {
  readonly pad: number;
  readonly pitch: number;
  readonly bytes: number;
}
function heldAs(n: number, together: number, pair: number): Held {
  const pitch = (n + Math.floor(n / 2 ** PAD)) | 1;
  const bytes = 2 * together * pitch * pair;
  return bytes <= ROOM ? { pad: PAD, pitch, bytes } : { pad: NO_PAD, pitch: n, bytes: 2 * together * n * pair };
}
/** Neighbours that a block transforms: as many as make whole sectors of memory. */
function neighbours(n: number, pair: number): Held & { readonly together: number; readonly threads: number } {
  let together = NEIGHBOURS;
  const fits = ({ bytes, pad }: Held): boolean => bytes <= ROOM && (pad === PAD || together * pair <= SECTORS);
  while (together > 1 && !fits(heldAs(n, together, pair))) together /= 2;
  const threads = n * together <= FULL ? 128 : n * together <= 2 * FULL ? 256 : 512;
  return { together, threads, ...heldAs(n, together, pair) };
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
  const part = (name: keyof typeof parts) => (parts[name] ? at(name) : 0);
  const from = { re: part('re'), im: part('im') };
  const to = { out_re: part('outRe'), out_im: part('outIm') };
  const table = at('scratch');
  const roots = launch(factors, { dtype }, ceilDiv(n, 256), 256, { ...places('table'), table, n });
  const [a, b] = partsOfDft(n, dtype) ?? [n, 1];
  if (b > 1) {
    const turned = at('scratch', ceilDiv(n * pair, 256) * 256);
    const [first, second] = [neighbours(a, pair), neighbours(b, pair)];
    const blocks = (of: number, { together }: { together: number }): number =>
      clamp(count * ceilDiv(of, together), 1, 2 ** 22);
    return {
      launches: [
        roots,
        launch(
          columns,
          { dtype },
          blocks(b, first),
          first.threads,
          {
            ...{ ...from, turned, table, rows: count, length, n: a, b },
            ...{ together: first.together, pad: first.pad, pitch: first.pitch, radices: radicesOf(a) },
          },
          first.bytes,
        ),
        launch(
          joined,
          { dtype },
          blocks(a, second),
          second.threads,
          {
            ...{ turned, ...to, table, rows: count, keep, scale, n: b, a },
            ...{ together: second.together, pad: second.pad, pitch: second.pitch, radices: radicesOf(b) },
          },
          second.bytes,
        ),
      ],
      scratch: ceilDiv(n * pair, 256) * 256 + count * n * pair,
    };
  }
  const together = clamp(Math.floor(FULL / n), 1, Math.max(1, ceilDiv(count, multiprocessors)));
  const threads = n * together <= FULL ? 128 : n <= 2 * FULL ? 256 : 512;
  const { pad, pitch, bytes } = heldAs(n, together, pair);
  const args = {
    ...{ ...from, ...to, table },
    ...{ rows: count, length, keep, scale, n, together, pad, pitch, radices: radicesOf(n) },
  };
  const grid = clamp(ceilDiv(count, together), 1, 2 ** 22);
  return { launches: [roots, launch(rows, { dtype }, grid, threads, args, bytes)], scratch: n * pair };
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
