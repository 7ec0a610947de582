// Places of patches in a picture: positions for pictures of other sizes than the one they were learnt for, and scores
// by the distance of two places.
import { UnsupportedError } from '../../base/errors.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';

/** The cubic through neighbours, as steep as `a` says. */
const cubic = (x: number, a: number): number => {
  const d = Math.abs(x);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
};
/** For each of `to` places between `from` ones, how much each of those counts: (to, from). */
function shares(from: number, to: number, how: 'cubic' | 'smoothed' | 'linear' | 'smoothly linear'): Float32Array {
  const data = new Float32Array(to * from);
  const scale = from / to;
  const smoothed = how.startsWith('smooth');
  const weight = (x: number): number =>
    how.endsWith('linear') ? Math.max(0, 1 - Math.abs(x)) : cubic(x, smoothed ? -0.5 : -0.75);
  // Smoothed, a smaller picture sees all places that it covers; else four neighbours, past an edge its last.
  const wide = smoothed ? Math.max(scale, 1) : 1;
  for (let i = 0; i < to; i++) {
    const center = (i + 0.5) * scale - 0.5;
    const [first, last] = [Math.floor(center - 2 * wide) - 1, Math.ceil(center + 2 * wide) + 1];
    const inside = Array.from({ length: last - first + 1 }, (_, k) => k + first).filter(
      (at) => !smoothed || (at >= 0 && at < from),
    );
    const weights = inside.map((at) => weight((at - center) / wide));
    const sum = smoothed ? weights.reduce((a, b) => a + b, 0) : 1;
    inside.forEach((at, k) => {
      data[i * from + Math.min(from - 1, Math.max(0, at))] += weights[k] / sum;
    });
  }
  return data;
}
/** Positions (1, 1 + square, width) for a picture of h * w patches; the first one stays. */
export function stretched(positions: Tensor, [h, w]: readonly number[], how: 'cubic' | 'smoothed' | 'linear'): Tensor {
  const [, count, width] = positions.shape;
  const side = Math.sqrt(count - 1);
  if (!Number.isInteger(side))
    throw new UnsupportedError(`vision: ${count - 1} learnt positions are no square, and cannot be stretched`);
  const of = (n: number): Tensor => tensor(shares(side, n, how), { shape: [n, side], device: positions.device });
  const grid = positions
    .narrow(1, 1, count - 1)
    .cast('f32')
    .reshape([side, side * width]);
  const down = of(h)
    .matmul(grid)
    .reshape([h, side, width])
    .transpose(0, 1)
    .reshape([side, h * width]);
  const both = of(w)
    .matmul(down)
    .reshape([w, h, width])
    .transpose(0, 1)
    .reshape([1, h * w, width]);
  return positions.narrow(1, 0, 1).cat([both.cast(positions.dtype)], 1);
}

/** Positions (side * side, width) for a picture of h * w patches: (h * w, width). */
export function smoothPlaces(positions: Tensor, [h, w]: readonly number[]): Tensor {
  const [count, width] = positions.shape;
  const side = Math.sqrt(count);
  const of = (n: number): Tensor =>
    tensor(shares(side, n, 'smoothly linear'), { shape: [n, side], device: positions.device });
  const wide = positions.dtype === 'f64' ? positions : positions.cast('f32');
  const cast = (t: Tensor): Tensor => t.cast(wide.dtype);
  const down = cast(of(h)).matmul(wide.reshape([side, side * width]));
  const across = down
    .reshape([h, side, width])
    .transpose(0, 1)
    .reshape([side, h * width]);
  const both = cast(of(w)).matmul(across).reshape([w, h, width]).transpose(0, 1);
  return both.reshape([h * w, width]).cast(positions.dtype);
}

/** Which of `side` learnt places in a row each of `count` patches is nearest to, by transformers' own rounding. */
function nearestInRow(count: number, side: number): number[] {
  const edges = Array.from({ length: side - 1 }, (_, k) => Math.fround(1 / side + k * (1 / side)));
  const step = Math.fround(1 / count);
  return Array.from({ length: count }, (_, i) => {
    const at = Math.min(Math.fround(i * step), Math.fround(1 - 1e-6));
    return edges.filter((edge) => edge <= at).length;
  });
}
/** Of positions (side * side, width), those that patches of a picture of h * w are nearest to. */
export function nearestPlaces(positions: Tensor, [h, w]: readonly number[]): Tensor {
  const side = Math.sqrt(positions.shape[0]);
  const [down, across] = [nearestInRow(h, side), nearestInRow(w, side)];
  const ids = Uint32Array.from(down.flatMap((y) => across.map((x) => y * side + x)));
  return positions.indexSelect(0, tensor(ids, { device: positions.device }));
}

/** What scores are added for two places' distance; those with the class token have three rows of their own. */
export class PlaceDistances extends Module {
  readonly table: Tensor;
  readonly #grid: readonly [number, number];
  constructor(vb: VarBuilder, grid: readonly [number, number], heads: number) {
    super();
    if (grid[0] !== grid[1])
      throw new UnsupportedError(`vision: distances in a picture of ${grid.join(' x ')} patches; squares are served`);
    this.#grid = grid;
    const rows = (2 * grid[0] - 1) * (2 * grid[1] - 1) + 3;
    this.table = vb.get([rows, heads], 'relative_position_bias_table');
  }
  /** (1, heads, places, places). */
  forward(): Tensor {
    const [h, w] = this.#grid;
    const [all, rows] = [h * w + 1, this.table.shape[0]];
    const ids = Uint32Array.from({ length: all * all }, (_, i) => {
      const [from, to] = [Math.floor(i / all) - 1, (i % all) - 1];
      if (from < 0 && to < 0) return rows - 1;
      if (to < 0) return rows - 2;
      if (from < 0) return rows - 3;
      const down = Math.floor(from / w) - Math.floor(to / w) + h - 1;
      return down * (2 * w - 1) + (from % w) - (to % w) + w - 1;
    });
    const picked = this.table.indexSelect(0, tensor(ids, { device: this.table.device }));
    return picked.reshape([all, all, -1]).permute([2, 0, 1]).unsqueeze(0).contiguous();
  }
}
