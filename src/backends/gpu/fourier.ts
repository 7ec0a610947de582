// Discrete Fourier transforms of rows in shared memory, long ones in two or three launches: kernels/fourier.hip.
import { KernelModule, Struct, typed } from '../../kernels/declare.js';
import { chirpOf, type DftParams, isRough, partsOfDft } from '../../ops/fourier.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import {
  addressOf,
  at,
  type Buffers,
  ceilDiv,
  type FamilyPlan,
  launch,
  type Launch,
  places,
  type Planner,
  type Pointer,
  strideGrid,
} from './plan.js';
import { HELD, LARGE, rowsHeld, sidesHeld, stepsFor, stepsOf, THREADS, wordOf } from './fourier-steps.js';
import { chirp, chirpSpectrum, fineBits, type Float, pairBytes, powers, stepRoots, turns } from './fourier-tables.js';

export const FOURIER = new KernelModule('fourier');
const FLOATS = ['f32', 'f64'] as const;
const SHAPE = new Struct('FourierShape', {
  ...typed('i64', 'rows', 'inner', 'outer_stride', 'inner_stride', 'keep'),
  scale: 'double',
  radices: 'i64',
  ...typed('u32', 'length', 'n', 'whole', 'together', 'lanes', 'pad', 'pitch', 'negative', 'packed', 'half'),
});
const SIDES = new Struct('FourierSides', {
  ...typed('i64', 'rows', 'row_stride', 'out_row_stride', 'step', 'out_step'),
  ...typed('i64', 're_length', 'im_length', 're_keep', 'im_keep'),
  scale: 'double',
  radices: 'i64',
  ...typed('u32', 'n', 'side', 'together', 'lanes', 'fine_bits', 'half', 'whole'),
});
const C_TYPE = { f32: 'float', f64: 'double' } as const;
const KINDS = ['whole', 'halves', 'halves_back'] as const;
type Kind = (typeof KINDS)[number];
/** Any, powers of two, which need fewer kinds of steps, and lengths that compilers are told: their steps are known. */
const KNOWN = [256, 512, 1024, 2048, 4096, 8192, 16384] as const;
type Known = (typeof KNOWN)[number];
const STEPS = ['twos', 'any'] as const;

const rows = FOURIER.declare({
  each: { kind: KINDS, steps: ['any', 'chirp', ...KNOWN], large: [false, true], dtype: FLOATS },
  only: ({ kind, steps, large, dtype }) =>
    (steps !== 'chirp' || kind === 'whole') &&
    (!large || dtype === 'f32') &&
    (typeof steps !== 'number' || (large === steps > THREADS * HELD && (dtype === 'f32' || steps <= THREADS * HELD))),
  symbol: ({ kind, steps, large, dtype }) =>
    `fourier_rows_${kind}_${steps}${large && typeof steps !== 'number' ? '_large' : ''}_${dtype}`,
  body: ({ kind, steps, large, dtype }) => ({
    threads: large ? LARGE : THREADS,
    ...(dtype === 'f32' && !large && { beside: 2 }),
    params: {
      ...typed(`const ${C_TYPE[dtype]}*`, 're', 'im'),
      ...typed(`${C_TYPE[dtype]}*`, 'out_re', 'out_im'),
      ...typed(`const Complex<${C_TYPE[dtype]}>*`, 'roots', 'whole_roots', 'chirp', 'spectrum'),
      s: SHAPE,
    },
    call:
      `fourier_rows<${C_TYPE[dtype]}, ${HELD}, ${steps === 'chirp'}, ${kind.toUpperCase()}, ${steps === 'chirp'}` +
      `${typeof steps === 'number' ? `, ${stepsFor(steps).radices.join(', ')}` : ''}>`,
  }),
  // 64 KiB hold no row that the small block does not.
  launchedOn: ({ large }, arch) => !large || !arch.startsWith('gfx'),
});
const PASSES = ['first', 'spread', 'last'] as const;
const columns = FOURIER.declare({
  each: { pass: PASSES, steps: STEPS, dtype: FLOATS },
  symbol: ({ pass, steps, dtype }) => `fourier_columns_${pass}${steps === 'any' ? '_any' : ''}_${dtype}`,
  body: ({ pass, steps, dtype }) => ({
    threads: THREADS,
    ...(dtype === 'f32' && { beside: 2 }),
    params: {
      ...typed(`const ${C_TYPE[dtype]}*`, 're', 'im'),
      ...typed(`${C_TYPE[dtype]}*`, 'out_re', 'out_im'),
      ...typed(`const Complex<${C_TYPE[dtype]}>*`, 'roots', 'turns', 'chirp'),
      s: SIDES,
    },
    call: `fourier_columns<${C_TYPE[dtype]}, ${HELD}, ${steps === 'twos'}, ${pass.toUpperCase()}>`,
  }),
});
const middle = FOURIER.forTypes(FLOATS, 'fourier_middle', (T, dtype) => ({
  threads: THREADS,
  ...(dtype === 'f32' && { beside: 2 }),
  params: {
    data: `Complex<${T}>*`,
    ...typed(`const Complex<${T}>*`, 'roots', 'turns', 'spectrum'),
    ...typed('i64', 'rows', 'radices'),
    ...typed('u32', 'n', 'a', 'together', 'lanes', 'pad', 'pitch', 'fine_bits'),
  },
  call: `fourier_middle<${T}, ${HELD}>`,
}));
const symmetric = FOURIER.forTypes(FLOATS, 'fourier_symmetric', (T) => ({
  threads: 256,
  params: {
    ...typed(`const ${T}*`, 're', 'im'),
    made: `Complex<${T}>*`,
    whole_roots: `const Complex<${T}>*`,
    s: SHAPE,
  },
  call: 'fourier_symmetric',
}));
const parted = FOURIER.forTypes(FLOATS, 'fourier_parted', (T) => ({
  threads: 256,
  params: {
    made: `const Complex<${T}>*`,
    ...typed(`${T}*`, 'out_re', 'out_im'),
    whole_roots: `const Complex<${T}>*`,
    s: SHAPE,
  },
  call: 'fourier_parted',
}));

// ---- plans ----

/** Rows where they lie: `inner` of them one after another, `outer` times. */
interface Source {
  readonly count: number;
  readonly length: number;
  readonly inner: number;
  readonly outer_stride: number;
  readonly inner_stride: number;
}
type Sides = Readonly<Record<'re' | 'im' | 'outRe' | 'outIm', View | undefined>>;
const part = (sides: Sides, name: keyof Sides): Pointer | 0 => (sides[name] ? at(name) : 0);
const given = (sides: Sides) => ({ re: part(sides, 're'), im: part(sides, 'im') });
const wanted = (sides: Sides) => ({ out_re: part(sides, 'outRe'), out_im: part(sides, 'outIm') });

/** The numbers of a call that every launch of it has. */
function shapeOf(p: DftParams, kind: Kind, dtype: Float, sides: Sides, source: Source) {
  const even = (v: View | undefined, ...strides: number[]): boolean =>
    !!v && addressOf(v) % pairBytes(dtype) === 0 && strides.every((s) => s % 2 === 0);
  const packed =
    kind === 'halves'
      ? even(sides.re, source.length, source.inner_stride, source.outer_stride)
      : kind === 'halves_back' && even(sides.outRe, p.keep);
  return {
    ...{ rows: source.count, inner: source.inner, outer_stride: source.outer_stride },
    ...{ inner_stride: source.inner_stride, length: source.length, keep: p.keep, scale: p.scale, whole: p.n },
    ...{ negative: Number(kind !== 'whole' && p.inverse), packed: Number(packed), half: Number(p.half) },
  };
}

/** Elements of the transform that makes one of a row. */
const lengthOf = (whole: number, kind: Kind): number =>
  isRough(whole) ? chirpOf(whole) : kind === 'whole' ? whole : whole / 2;

/** Rows that a block holds, in one launch. */
function planHeld(
  p: Planner,
  dtype: Float,
  kind: Kind,
  params: DftParams,
  sides: Sides,
  source: Source,
  held: NonNullable<ReturnType<typeof rowsHeld>>,
): void {
  const { n: whole } = params;
  const rough = isRough(whole);
  const n = lengthOf(whole, kind);
  const large = held.threads > THREADS;
  const s = { ...shapeOf(params, kind, dtype, sides, source), ...held.shape, radices: wordOf(held.radices) };
  const args = { ...given(sides), ...wanted(sides), ...places('roots'), s };
  const tables: Record<string, Buffers[string]> = { roots: stepRoots(dtype, held.radices) };
  if (rough) Object.assign(tables, { chirp: chirp(dtype, whole), spectrum: chirpSpectrum(dtype, whole, whole, 1, n) });
  if (kind !== 'whole') tables.whole = powers(dtype, whole, n);
  const of = (name: string) => (tables[name] ? at(name) : 0);
  const known = held.known && (kind === 'whole' || s.packed === 1);
  const launched = launch(
    rows,
    { kind, steps: rough ? 'chirp' : known ? (n as Known) : 'any', large, dtype },
    held.grid,
    held.threads,
    { ...args, whole_roots: of('whole'), chirp: of('chirp'), spectrum: of('spectrum') },
    held.shared,
  );
  p.run({ launches: [launched], scratch: 0 }, { ...sides, ...tables });
}

/** Rows as long as two launches take, or three that convolve with a chirp. */
function planLong(p: Planner, dtype: Float, kind: Kind, params: DftParams, sides: Sides, source: Source): void {
  const { n: whole, scale, keep } = params;
  const { count } = source;
  const rough = isRough(whole);
  const n = rough ? circleOf(source.length + keep - 1) : lengthOf(whole, kind);
  const parts = rough ? undefined : partsOfDft(n, dtype);
  const [head, tail] = rough ? circleParts(n) : parts && parts[1] > 1 ? parts : partsNear(n);
  const first = sidesHeld(head, tail, dtype);
  const last = rough ? sidesHeld(head, tail, dtype) : sidesHeld(tail, head, dtype);
  const tables: Record<string, Buffers[string]> = {
    turns: turns(dtype, n),
    roots: stepRoots(dtype, first.radices),
    last: stepRoots(dtype, last.radices),
  };
  const bytes = 256 * ceilDiv(count * n * pairBytes(dtype), 256);
  const launches: Launch[] = [];
  const half = kind !== 'whole';
  if (half) tables.whole = powers(dtype, whole, n);
  const shape = {
    ...shapeOf(params, kind, dtype, sides, source),
    n,
    together: 1,
    lanes: 1,
    pad: 0,
    pitch: 0,
    radices: 0,
  };
  // What the first launch reads, and the last one writes: parts of rows, or complex numbers in scratch memory.
  const moved = {
    step: 2,
    out_step: 2,
    row_stride: 2 * n,
    out_row_stride: 2 * n,
    re_length: n,
    im_length: n,
    re_keep: n,
    im_keep: n,
  };
  let read: Record<'re' | 'im', Pointer | 0> = {
    re: at('scratch', bytes),
    im: at('scratch', bytes + pairBytes(dtype) / 2),
  };
  if (kind === 'halves_back') {
    const args = { ...given(sides), made: at('scratch', bytes), whole_roots: at('whole'), s: shape };
    launches.push(launch(symmetric, { dtype }, strideGrid(count * n), 256, args));
  } else if (kind === 'halves') {
    read = { re: at('re'), im: at('re', pairBytes(dtype) / 2) };
    const { length } = source;
    Object.assign(moved, {
      row_stride: source.inner_stride,
      re_length: ceilDiv(length, 2),
      im_length: Math.floor(length / 2),
    });
  } else {
    read = given(sides);
    const { length } = source;
    Object.assign(moved, { step: 1, row_stride: source.inner_stride, re_length: length, im_length: length });
  }
  let write: Record<'out_re' | 'out_im', Pointer | 0>;
  if (kind === 'halves') {
    write = { out_re: at('scratch', bytes), out_im: at('scratch', bytes + pairBytes(dtype) / 2) };
  } else if (kind === 'halves_back') {
    write = { out_re: at('outRe'), out_im: at('outRe', pairBytes(dtype) / 2) };
    Object.assign(moved, { out_row_stride: keep, re_keep: ceilDiv(keep, 2), im_keep: Math.floor(keep / 2) });
  } else {
    write = wanted(sides);
    Object.assign(moved, { out_step: 1, out_row_stride: keep, re_keep: keep, im_keep: keep });
  }
  const doubled = { half: Number(kind === 'whole' && params.half), whole };
  const numbers = { ...moved, ...doubled, rows: count, fine_bits: fineBits(n), scale: kind === 'halves' ? 1 : scale };
  const chirped = rough ? at('chirp') : 0;
  launches.push(
    launch(
      columns,
      { pass: rough ? 'spread' : 'first', steps: stepsOf(head), dtype },
      count * first.groups,
      first.threads,
      {
        ...read,
        out_re: at('scratch'),
        out_im: 0,
        ...places('roots', 'turns'),
        chirp: chirped,
        s: { ...numbers, ...first.shape },
      },
      first.shared,
    ),
  );
  if (rough) {
    Object.assign(tables, { chirp: chirp(dtype, whole), spectrum: chirpSpectrum(dtype, whole, keep, head, tail) });
    const held = rowsHeld(tail, count * head, dtype, p.device);
    if (!held) throw new RangeError(`dft: rows of ${tail} elements are more than a block holds`);
    tables.middle = stepRoots(dtype, held.radices);
    launches.push(
      launch(
        middle,
        { dtype },
        held.grid,
        held.threads,
        {
          ...{ data: at('scratch'), roots: at('middle'), ...places('turns', 'spectrum') },
          ...{ rows: count * head, radices: wordOf(held.radices), a: head, fine_bits: fineBits(n), ...held.shape },
        },
        held.shared,
      ),
    );
  }
  launches.push(
    launch(
      columns,
      { pass: 'last', steps: stepsOf(last.shape.n), dtype },
      count * last.groups,
      last.threads,
      {
        re: at('scratch'),
        im: 0,
        ...write,
        roots: at('last'),
        turns: at('turns'),
        chirp: chirped,
        s: { ...numbers, ...last.shape },
      },
      last.shared,
    ),
  );
  if (kind === 'halves') {
    const args = { made: at('scratch', bytes), ...wanted(sides), whole_roots: at('whole'), s: shape };
    launches.push(launch(parted, { dtype }, strideGrid(count * (n / 2 + 1)), 256, args));
  }
  p.run({ launches, scratch: half ? 2 * bytes : bytes }, { ...sides, ...tables });
}
/** The shortest circle of at least so many elements: a power of two or three of one. */
const circleOf = (least: number): number => {
  const twos = 2 ** Math.ceil(Math.log2(least));
  return twos * 0.75 >= least && twos >= 1024 ? twos * 0.75 : twos;
};
/** The second is a power of two. */
function circleParts(n: number): readonly [number, number] {
  const tail = 2 ** Math.floor(Math.log2(n) / 2);
  return [n / tail, tail];
}
/** A length that any device takes at once but this one. */
function partsNear(n: number): readonly [number, number] {
  let a = Math.ceil(Math.sqrt(n));
  while (n % a !== 0) a++;
  return [a, n / a];
}

/** Rows that so many strides, or fewer, tell the beginnings of stay where they are; others are copied. */
function rowsOf(
  p: Planner,
  re: View,
  im: View | undefined,
  most: 1 | 2,
): { re: View; im: View | undefined; source: Source } {
  const { shape, strides, size } = re.layout;
  const length = shape[shape.length - 1];
  const count = size / length;
  const alike = !im || im.layout.strides.every((s, i) => s === strides[i]);
  const outer: { size: number; stride: number }[] = [];
  for (let d = 0; d < shape.length - 1; d++) {
    const last = outer[outer.length - 1];
    if (shape[d] === 1) continue;
    if (last && last.stride === shape[d] * strides[d]) {
      last.size *= shape[d];
      last.stride = strides[d];
    } else outer.push({ size: shape[d], stride: strides[d] });
  }
  if (!alike || outer.length > most || (length > 1 && strides[shape.length - 1] !== 1)) {
    const source = { count, length, inner: count, outer_stride: 0, inner_stride: length };
    return { re: p.dense(re), im: im && p.dense(im), source };
  }
  const [first, second] =
    outer.length === 2 ? outer : [{ size: 1, stride: 0 }, outer[0] ?? { size: 1, stride: length }];
  return {
    re,
    im,
    source: { count, length, inner: second.size, outer_stride: first.stride, inner_stride: second.stride },
  };
}

export const planFourier: FamilyPlan<RowOf<'fourier'>, DftParams> = (p, _row, inputs, outputs, params) => {
  const dtype = inputs[0].dtype as Float;
  const { shape, size } = inputs[0].layout;
  const length = shape[shape.length - 1];
  if (size === 0) return outputs.forEach((out) => p.fill(out, 0));
  const [outRe, outIm] = outputs as (View | undefined)[];
  const even = params.n % 2 === 0 && !isRough(params.n);
  const kind = !even ? 'whole' : params.real ? 'halves_back' : inputs.length > 1 ? 'whole' : 'halves';
  const held = rowsHeld(lengthOf(params.n, kind), size / length, dtype, p.device);
  const { re, im, source } = rowsOf(p, inputs[0], inputs[1] as View | undefined, held ? 2 : 1);
  // With real and imaginary parts exchanged on both sides, the forward transform is the other one.
  const exchanged = kind === 'whole' && params.inverse;
  const sides = exchanged ? { re: im, im: re, outRe: outIm, outIm: outRe } : { re, im, outRe, outIm };
  if (held) planHeld(p, dtype, kind, params, sides, source, held);
  else planLong(p, dtype, kind, params, sides, source);
};
