// Cholesky factors, and what triangles solve: kernels/triangles.hip.
import { bytesOf, type DType } from '../../base/dtype.js';
import { CTYPE, KernelModule, typed } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import {
  BLOCK,
  computedIn,
  FLOATS,
  type Float,
  fromTheEnd,
  givenArgs,
  givenParams,
  heldBy,
  type Matrices,
  matricesOf,
  room,
  sidesOf,
  type Tile,
  TILES,
  tileFor,
  together,
  troubleWord,
  turnedMatrices,
} from './matrices.js';
import { at, ceilDiv, launch, type Planner, places } from './plan.js';

export const TRIANGLES = new KernelModule('triangles');
/** Tiles of large matrices. */
const LARGE = '16x4';
const choleskyStep = TRIANGLES.declare({
  each: { tile: TILES, lone: [true, false], dtype: FLOATS },
  only: ({ tile, lone }) => lone || tile === LARGE,
  symbol: ({ tile, lone, dtype }) => `cholesky_${lone ? '' : 'step_'}${tile}_${dtype}`,
  body: ({ tile, lone, dtype }) => ({
    threads: BLOCK,
    params: {
      ...givenParams('a', CTYPE[dtype]),
      ...typed(`${computedIn(tile, dtype)}*`, 'work', 'low'),
      ...{ out: `${CTYPE[dtype]}*`, trouble: 'u64*' },
      ...{ n: 'i32', step: 'i32', batch: 'i64' },
    },
    call: `cholesky<${CTYPE[dtype]}, ${computedIn(tile, dtype)}, ${[...sidesOf(tile), lone].join(', ')}>`,
  }),
});
const triangular = TRIANGLES.forTypes(FLOATS, 'triangular', (T) => ({
  threads: BLOCK,
  params: {
    ...{ ...givenParams('a', T), ...givenParams('b', T), x: `${T}*`, x_step: 'i64', x_row: 'i64', trouble: 'u64*' },
    ...{ n: 'i32', columns: 'i32', unit: 'u32' },
  },
  call: `triangular<${T}>`,
}));

/** Columns of a right-hand side that a block solves. */
const COLUMNS = 8;
/** Elements of a triangle that a block holds beside them: a corner of 32 rows, and 128 below it. */
const HELD = (32 + 128) * 33;
/** Bytes that they and the right-hand sides of triangles of n rows take in shared memory. */
const triangleBytes = (n: number, dtype: DType): number => (HELD + n * COLUMNS) * bytesOf(dtype);
/** Whether a block has the room for them. */
export const solvesTriangles = (n: number, dtype: DType, shared: number): boolean => triangleBytes(n, dtype) <= shared;

/** L of L L^T = A, a symmetric one; answers where trouble is told. */
export function planCholesky(p: Planner, a: View, out: View): View {
  const given = matricesOf(p, a);
  const { n, batch } = given;
  const dtype = a.dtype as Float;
  const trouble = troubleWord(p);
  const tile: Tile = tileFor(n) ?? LARGE;
  const size = heldBy(tile);
  const steps = ceilDiv(n, size);
  const [work, low] = steps > 1 ? [room(p, batch * n * n, dtype), room(p, batch * n * n, dtype)] : [];
  const buffers = { a: given.view, work, low, out, trouble };
  const launches = Array.from({ length: steps }, (_, step) =>
    launch(
      choleskyStep,
      { tile, lone: steps === 1, dtype },
      [ceilDiv(batch, together(tile)), steps - step, steps - step],
      BLOCK,
      {
        ...givenArgs('a', given),
        ...(steps > 1 ? places('work', 'low') : { work: 0, low: 0 }),
        ...places('out', 'trouble'),
        ...{ n, step, batch },
      },
    ),
  );
  p.run({ launches, scratch: 0 }, buffers);
  return trouble;
}

/** Which triangle counts, and how. */
export interface Triangle {
  readonly upper: boolean;
  readonly transpose: boolean;
  readonly unit: boolean;
}

/** X of A X = B into `x`, contiguous matrices; trouble is told at a word that is there. */
export function planTriangle(
  p: Planner,
  a: Matrices,
  b: Matrices,
  x: View,
  trouble: View,
  { upper, transpose, unit }: Triangle,
): void {
  const turned = transpose ? turnedMatrices(a) : a;
  const down = upper === transpose;
  const [n, columns] = [a.n, b.n];
  const [left, right] = down ? [turned, b] : [fromTheEnd(turned, true), fromTheEnd(b, false)];
  const whole = matricesOf(p, x);
  const to = down ? whole : fromTheEnd(whole, false);
  const dtype = x.dtype as Float;
  const grid = [b.batch, ceilDiv(columns, COLUMNS)];
  const args = {
    ...givenArgs('a', left),
    ...givenArgs('b', right),
    ...{ x: at('x'), x_step: to.step, x_row: to.row, trouble: at('trouble') },
    ...{ n, columns, unit: Number(unit) },
  };
  p.run(
    { launches: [launch(triangular, { dtype }, grid, BLOCK, args, triangleBytes(n, dtype))], scratch: 0 },
    { a: left.view, b: right.view, x: to.view, trouble },
  );
}
