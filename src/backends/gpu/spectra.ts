// Q and R, singular values and eigenvalues of small matrices: kernels/reflections.hip and rotations.hip.
import { CTYPE, KernelModule, typed } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import {
  BLOCK,
  FLOATS,
  type Float,
  givenArgs,
  givenParams,
  matricesOf,
  sidesOf,
  type Tile,
  TILES,
  tileFor,
  together,
  troubleWord,
  turnedMatrices,
} from './matrices.js';
import { at, ceilDiv, clamp, launch, type Planner, places, powerAbove, single } from './plan.js';

export const REFLECTIONS = new KernelModule('reflections');
const qr = REFLECTIONS.declare({
  each: { tile: TILES, dtype: FLOATS },
  symbol: ({ tile, dtype }) => `qr_${tile}_${dtype}`,
  body: ({ tile, dtype }) => ({
    threads: BLOCK,
    params: {
      ...givenParams('a', CTYPE[dtype]),
      ...{ ...typed(`${CTYPE[dtype]}*`, 'q', 'r'), ...typed('i32', 'm', 'n'), batch: 'i64' },
    },
    call: `qr_small<${CTYPE[dtype]}, ${sidesOf(tile).join(', ')}>`,
  }),
});
export const ROTATIONS = new KernelModule('rotations');
/** In the order of their numbers in the kernel. */
const ROTATED = ['eigh', 'svd', 'pinv'] as const;
const rotations = ROTATIONS.declare({
  each: { of: ROTATED, dtype: FLOATS },
  symbol: ({ of, dtype }) => `${of}_${dtype}`,
  body: ({ of, dtype }) => ({
    threads: BLOCK,
    params: {
      ...givenParams('a', CTYPE[dtype]),
      ...{ ...typed(`${CTYPE[dtype]}*`, 'u', 'values', 'v'), trouble: 'u64*' },
      ...{ ...typed('i32', 'm', 'n'), lanes: 'u32', cut: 'double', wide: 'u32' },
    },
    call: `rotations<${CTYPE[dtype]}, ${ROTATED.indexOf(of)}>`,
  }),
});

/** Shared memory that a block has besides, counted with what a launch asks for. */
const BESIDE = 1024;
/** Columns whose lengths a block remembers. */
const MOST_COLUMNS = 64;
const rotatedBytes = (m: number, n: number): number => 8 * n * ((m | 1) + (n | 1)) + BESIDE;
/** Whether a block has the room for a matrix and what its columns, or rows where they are fewer, are turned by. */
export const rotates = (m: number, n: number, shared: number): boolean =>
  Math.min(m, n) <= MOST_COLUMNS && rotatedBytes(Math.max(m, n), Math.min(m, n)) <= shared;

export function planQr(p: Planner, of: View, q: View, r: View): void {
  const a = matricesOf(p, of);
  const tile = tileFor(a.m) as Tile;
  const args = { ...givenArgs('a', a), ...places('q', 'r'), m: a.m, n: a.n, batch: a.batch };
  const l = launch(qr, { tile, dtype: of.dtype as Float }, ceilDiv(a.batch, together(tile)), BLOCK, args);
  p.run(single(l), { a: a.view, q, r });
}

/** What comes of rotations: names are those of the kernel's parameters. */
interface Rotated {
  readonly u?: View;
  readonly values?: View;
  readonly v?: View;
}
/** Answers where trouble is told; `cut`: what of the largest singular value counts as nothing, for a pseudo-inverse. */
export function planRotations(p: Planner, of: (typeof ROTATED)[number], x: View, out: Rotated, cut = 0): View {
  const given = matricesOf(p, x);
  const wide = given.n > given.m;
  const a = wide ? turnedMatrices(given) : given;
  const pairs = powerAbove(ceilDiv(a.n, 2));
  const lanes = Math.min(32, clamp(powerAbove(ceilDiv(a.m, 4)), Math.max(1, 64 / pairs), BLOCK / pairs));
  const trouble = troubleWord(p);
  const place = (name: keyof Rotated) => (out[name] ? at(name) : 0);
  const args = {
    ...{ ...givenArgs('a', a), u: place('u'), values: place('values'), v: place('v'), trouble: at('trouble') },
    ...{ m: a.m, n: a.n, lanes, cut, wide: Number(wide) },
  };
  const threads = Math.max(64, pairs * lanes);
  const variant = { of, dtype: x.dtype as Float };
  p.run(single(launch(rotations, variant, a.batch, threads, args, rotatedBytes(a.m, a.n))), {
    ...{ a: a.view, ...out, trouble },
  });
  return trouble;
}
