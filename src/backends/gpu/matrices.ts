// Batches of matrices as kernels of factorizations take them: any layout of the last two dimensions, and one step from
// matrix to matrix.
import type { DType } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { sizeOf } from '../../base/shape.js';
import { CTYPE, typed } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import { at, type Planner, viewOf } from './plan.js';

export const FLOATS = ['f32', 'f64'] as const;
export type Float = (typeof FLOATS)[number];

/** Parameters `name`, `name_step`, `name_row` and `name_column`. */
export const givenParams = <K extends string>(name: K, T: string) =>
  ({
    [name]: `const ${T}*`,
    ...typed('i64', `${name}_step`, `${name}_row`, `${name}_column`),
  }) as { readonly [N in K | `${K}_step` | `${K}_row` | `${K}_column`]: string };

/** Matrices of a batch in memory. */
export interface Matrices {
  readonly view: View;
  readonly batch: number;
  readonly m: number;
  readonly n: number;
  /** Elements to the next matrix, row and column. */
  readonly step: number;
  readonly row: number;
  readonly column: number;
}

/** The view's matrices; a copy of them where no one step leads from each to the next. */
export function matricesOf(p: Planner, v: View): Matrices {
  const { shape, strides } = v.layout;
  const last = shape.length - 2;
  for (let d = last - 2; d >= 0; d--)
    if (shape[d] !== 1 && strides[d] !== strides[d + 1] * shape[d + 1]) {
      const copy = p.make(shape, v.dtype);
      p.copy(v, copy);
      return matricesOf(p, copy);
    }
  return {
    view: v,
    batch: sizeOf(shape.slice(0, last)),
    ...{ m: shape[last], n: shape[last + 1] },
    ...{ step: last > 0 ? strides[last - 1] : 0, row: strides[last], column: strides[last + 1] },
  };
}
export const turnedMatrices = (a: Matrices): Matrices => ({ ...a, m: a.n, n: a.m, row: a.column, column: a.row });
/** Rows from the last to the first, and columns too where `both`. */
export function fromTheEnd(a: Matrices, both: boolean): Matrices {
  const { shape, strides, offset } = a.view.layout;
  const by = (a.m - 1) * a.row + (both ? (a.n - 1) * a.column : 0);
  const view = { ...viewOf(a.view), layout: new Layout(shape, strides, offset + by) };
  return { ...a, view, row: -a.row, column: both ? -a.column : a.column };
}

/** Arguments of `givenParams`. */
export const givenArgs = <K extends string>(name: K, a: Pick<Matrices, 'step' | 'row' | 'column'>) =>
  ({ [name]: at(name), [`${name}_step`]: a.step, [`${name}_row`]: a.row, [`${name}_column`]: a.column }) as {
    readonly [N in K | `${K}_step` | `${K}_row` | `${K}_column`]: any;
  };
export const noneGiven = <K extends string>(name: K) =>
  ({ [name]: 0, [`${name}_step`]: 0, [`${name}_row`]: 0, [`${name}_column`]: 0 }) as {
    readonly [N in K | `${K}_step` | `${K}_row` | `${K}_column`]: number;
  };

/** How many threads in a square, and how many elements to each, hold a matrix of up to so many rows and columns. */
export const TILES = ['4x1', '8x1', '16x1', '16x2', '16x4'] as const;
export type Tile = (typeof TILES)[number];
export const sidesOf = (tile: Tile): readonly [side: number, each: number] =>
  tile.split('x').map(Number) as unknown as readonly [number, number];
export const heldBy = (tile: Tile): number => sidesOf(tile).reduce((a, b) => a * b);
export const tileFor = (n: number): Tile | undefined => TILES.find((tile) => n <= heldBy(tile));
export const BLOCK = 256;
export const together = (tile: Tile): number => BLOCK / sidesOf(tile)[0] ** 2;

/** What matrices in a tile are computed in: small ones, where it costs nothing, in doubles. */
export const computedIn = (tile: Tile, dtype: Float): string => CTYPE[heldBy(tile) <= 16 ? 'f64' : dtype];

/** Room for so many elements. */
export const room = (p: Planner, count: number, dtype: DType): View => p.make([Math.max(1, count)], dtype);

/** A word that says which matrix stopped, and at which pivot; read when what was launched has run. */
export function troubleWord(p: Planner): View {
  const word = p.make([1], 'i64');
  p.fill(word, NO_TROUBLE);
  return word;
}
/** More than any matrix of a batch and its pivot. */
export const NO_TROUBLE = 2 ** 53 - 1;
