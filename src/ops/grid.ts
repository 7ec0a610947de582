// Pictures read at the places of a grid, as GPUs do it in one pass, and its two gradients.
import type { DType } from '../base/dtype.js';
import { DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { movedGrads } from './grid-places.js';
import { kernel, numbers } from './kernel-row.js';
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
  ulps,
} from './op.js';

/** As gridSample takes them; their order is what kernels know. */
export const GRID_PADDINGS = ['zeros', 'border', 'reflection'] as const;
export interface GridParams extends Record<string, unknown> {
  readonly mode: 'bilinear' | 'nearest';
  readonly padding: (typeof GRID_PADDINGS)[number];
  /** Whether -1 and 1 are the middles of corner pixels. */
  readonly align: boolean;
  /** [height, width] of the picture. */
  readonly size: readonly number[];
}

/** Pictures that are read in one pass. */
export const GRID_DTYPES = ['f32', 'f16', 'bf16'] as const satisfies readonly DType[];
const s = (...shape: number[]): InputSpec => ({ shape });
/** Places in the picture, near its edges and beyond. */
const at = (...shape: number[]): InputSpec => ({ shape, dtype: 'f32', domain: [-1.4, 1.4] });

/** Where a number lies along n pixels, and how it moves with it. */
function along(told: number, n: number, { padding, align }: GridParams): { at: number; slope: number } {
  const last = n - 1;
  const half = (align ? last : n) / 2;
  let [place, slope] = [told * half + last / 2, half];
  if (padding === 'reflection') {
    const [low, span] = align ? [0, last] : [-0.5, n];
    const away = Math.abs(place - low);
    const back = span !== 0 && Math.floor(away / span) % 2 === 1;
    if (place < low !== back) slope = -slope;
    place = span === 0 ? 0 : back ? span + low - (away % span) : (away % span) + low;
    if (span === 0) slope = 0;
  }
  if (padding !== 'zeros') {
    if (!(place >= 0 && place <= last)) slope = 0;
    place = place < 0 ? 0 : place > last ? last : place;
  }
  return { at: place, slope };
}
interface Corner {
  readonly y: number;
  readonly x: number;
  readonly share: number;
  /** How the share moves with the two numbers of the grid, x first. */
  readonly moves: readonly [number, number];
}
/** Even ones of two that are equally near. */
const nearest = (v: number): number => {
  const low = Math.floor(v);
  return v - low > 0.5 || (v - low === 0.5 && low % 2 !== 0) ? low + 1 : low;
};
function corners(tx: number, ty: number, p: GridParams): Corner[] {
  const [h, w] = p.size;
  const [y, x] = [along(ty, h, p), along(tx, w, p)];
  if (p.mode === 'nearest') return [{ y: nearest(y.at), x: nearest(x.at), share: 1, moves: [0, 0] }];
  const [v, u] = [Math.floor(y.at), Math.floor(x.at)];
  const [fy, fx] = [y.at - v, x.at - u];
  return [0, 1, 2, 3].map((k) => {
    const [low, left] = [(k & 1) === 0, (k & 2) === 0];
    const [a, b] = [low ? 1 - fy : fy, left ? 1 - fx : fx];
    const moves = [(left ? -1 : 1) * a * x.slope, (low ? -1 : 1) * b * y.slope] as const;
    return { y: low ? v : v + 1, x: left ? u : u + 1, share: a * b, moves };
  });
}
/** Calls visit(place in the result, place in the picture or -1, corner, which place of the grid) for every plane. */
function eachCorner(
  grid: RefTensor,
  channels: number,
  p: GridParams,
  visit: (to: number, from: number, corner: Corner, place: number) => void,
): void {
  const [h, w] = p.size;
  const [n, ...places] = grid.shape.slice(0, -1);
  const count = places.reduce((a, b) => a * b, 1);
  const told = numbers(grid);
  for (let b = 0; b < n; b++)
    for (let i = 0; i < count; i++) {
      const place = b * count + i;
      for (const corner of corners(told[2 * place], told[2 * place + 1], p)) {
        const inside = corner.y >= 0 && corner.y < h && corner.x >= 0 && corner.x < w;
        for (let c = 0; c < channels; c++) {
          const plane = b * channels + c;
          visit(plane * count + i, inside ? (plane * h + corner.y) * w + corner.x : -1, corner, place);
        }
      }
    }
}

function requireGrid(x: Sig, grid: Sig): void {
  if (grid.dtype !== 'f32') throw new DTypeError(`gridSample: a grid of ${grid.dtype}; this takes f32`);
  if (x.shape.length !== 4 || grid.shape.length !== 4 || grid.shape[3] !== 2 || grid.shape[0] !== x.shape[0])
    throw new ShapeError(`gridSample: grid ${formatShape(grid.shape)} does not fit ${formatShape(x.shape)}`);
}
const resultShape = (x: Sig, grid: Sig): number[] => [x.shape[0], x.shape[1], grid.shape[1], grid.shape[2]];
function requireResult(x: Sig, grid: Sig, grad: Sig): void {
  requireGrid(x, grid);
  const shape = resultShape(x, grid);
  if (!sameShape(grad.shape, shape))
    throw new ShapeError(`gridSample: gradient ${formatShape(grad.shape)} is not of shape ${formatShape(shape)}`);
}
const FACTS = {
  internal: true,
  serves: 'gridSample',
  family: 'resample',
  mixed: true,
  dtypes: GRID_DTYPES,
  without: 'places are told in f32, and f64 asks for more',
  candle: { none: 'Candle has none of it' },
  domain: [0.25, 4],
} as const;
/** The nearest pixel stays the same. */
const moved = (x: Tensor, grid: Tensor, grad: Tensor, p: GridParams): Tensor =>
  p.mode === 'nearest' ? grid.zerosLike() : x.gridSampledMoved(grid, grad, p);
const params = (
  size: readonly number[],
  mode: GridParams['mode'] = 'bilinear',
  padding: GridParams['padding'] = 'zeros',
  align = false,
): GridParams => ({ mode, padding, align, size });
const calls: readonly GridParams[] = [
  params([4, 5]),
  params([4, 5], 'nearest', 'border', true),
  params([4, 5], 'bilinear', 'reflection'),
  params([4, 5], 'bilinear', 'border', true),
];
const notFit = (inputs: readonly InputSpec[]): readonly ErrorSample<GridParams>[] => [
  { inputs, params: params([4, 5]), code: 'E_SHAPE', says: /gridSample: grid \[2, 3, 2, 2\] does not fit/ },
];

export const gridOps = rows({
  gridSampled: kernel({
    ...FACTS,
    kernel: { kind: 'grid' },
    formula: 'x (n, c, height, width) read at the places of a grid (n, h, w, 2), one or four pixels a place',
    ulp: ulps(64),
    loose: 'a unit of a place in the grid is many of what stands there',
    infer: ([x, grid]: readonly Sig[]): readonly Sig[] => {
      requireGrid(x, grid);
      return [{ shape: resultShape(x, grid), dtype: x.dtype }];
    },
    reference: ([x, grid]: readonly RefTensor[], [out]: readonly RefTensor[], p: GridParams): void => {
      out.data.fill(0);
      eachCorner(grid, x.shape[1], p, (to, from, { share }) => {
        numbers(out)[to] += from < 0 ? 0 : numbers(x)[from] * share;
      });
    },
    grad: ({ x, y: grid, grad, params: p, needs }: GradContext<GridParams>): Grads => [
      needs(0) ? grid.gridSampledInput(grad, p) : undefined,
      needs(1) ? moved(x, grid, grad, p) : undefined,
    ],
    args: (x: Tensor, grid: Tensor, p: GridParams): Call<GridParams> => ({ inputs: [x, grid], params: p }),
    samples: (): readonly Sample<GridParams>[] =>
      calls.map((p) => ({ inputs: [s(2, 5, 4, 5), at(2, 3, 4, 2)], params: p })),
    errors: (): readonly ErrorSample<GridParams>[] => notFit([s(1, 2, 4, 5), at(2, 3, 2, 2)]),
  }),
  gridSampledInput: kernel({
    ...FACTS,
    kernel: { kind: 'gridInput' },
    formula: 'what flows back to the pixels: each adds up its shares of the places around it',
    ulp: ulps(64),
    loose: 'a unit of a place in the grid is many of what stands there',
    infer: ([grid, grad]: readonly Sig[], { size }: GridParams): readonly Sig[] => {
      const like = { shape: [...grad.shape.slice(0, 2), ...size], dtype: grad.dtype };
      requireResult(like, grid, grad);
      return [like];
    },
    reference: ([grid, grad]: readonly RefTensor[], [out]: readonly RefTensor[], p: GridParams): void => {
      out.data.fill(0);
      eachCorner(grid, grad.shape[1], p, (to, from, { share }) => {
        if (from >= 0) numbers(out)[from] += numbers(grad)[to] * share;
      });
    },
    grad: ({ x: grid, y: flow, grad, params: p, needs }: GradContext<GridParams>): Grads => [
      needs(0) ? moved(grad, grid, flow, p) : undefined,
      needs(1) ? grad.gridSampled(grid, p) : undefined,
    ],
    args: (grid: Tensor, grad: Tensor, p: GridParams): Call<GridParams> => ({ inputs: [grid, grad], params: p }),
    samples: (): readonly Sample<GridParams>[] =>
      calls.map((p) => ({ inputs: [at(2, 3, 4, 2), s(2, 5, 3, 4)], params: p })),
    errors: (): readonly ErrorSample<GridParams>[] => notFit([at(2, 3, 2, 2), s(1, 2, 3, 2)]),
  }),
  gridSampledMoved: kernel({
    ...FACTS,
    kernel: { kind: 'gridMoved' },
    formula: 'what flows back to the numbers of the grid, over all channels',
    grad: ({ inputs: [x, grid, flow], grad, params: p }: GradContext<GridParams>): Grads =>
      movedGrads(x, grid, flow, grad, p),
    ulp: 256,
    loose: 'sums of differences of neighbours cancel, and a unit of a place in the grid is many of what stands there',
    infer: ([x, grid, grad]: readonly Sig[]): readonly Sig[] => {
      requireResult(x, grid, grad);
      return [grid];
    },
    reference: ([x, grid, grad]: readonly RefTensor[], [out]: readonly RefTensor[], p: GridParams): void => {
      out.data.fill(0);
      eachCorner(grid, x.shape[1], p, (to, from, { moves }, place) => {
        if (from < 0) return;
        moves.forEach((m, i) => {
          numbers(out)[2 * place + i] += numbers(x)[from] * numbers(grad)[to] * m;
        });
      });
    },
    args: (x: Tensor, grid: Tensor, grad: Tensor, p: GridParams): Call<GridParams> => ({
      inputs: [x, grid, grad],
      params: p,
    }),
    samples: (): readonly Sample<GridParams>[] =>
      calls
        .filter(({ mode }) => mode === 'bilinear')
        .map((p) => ({ inputs: [s(2, 5, 4, 5), at(2, 3, 4, 2), s(2, 5, 3, 4)], params: p })),
    errors: (): readonly ErrorSample<GridParams>[] => notFit([s(1, 2, 4, 5), at(2, 3, 2, 2), s(1, 2, 3, 2)]),
  }),
});
