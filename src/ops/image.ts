// Pictures and volumes resampled: interpolation to a size, and reading at places that a grid gives.
import { REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { wide } from './composites.js';
import { alike, composite, requireDType, requireOptions, requireWhole } from './kernel-row.js';
import { type CompositeSample, type InputSpec, rows, ulps } from './op.js';
import { GRID_DTYPES } from './grid.js';
import { type ReadAt, readerOf, mirrored } from './grid-places.js';
import { resampledBy } from './resampled.js';
import { nearestPlace, type TapAxis, type TapRule, tapsOf } from './taps.js';
import { type Sizes, sizesOf } from './window.js';

const MODES = ['nearest', 'nearest-exact', 'linear', 'bilinear', 'trilinear', 'bicubic', 'area'] as const;
export type InterpolateMode = (typeof MODES)[number];
export interface InterpolateOptions {
  /** The result's spatial sizes; or `scale`. */
  readonly size?: Sizes;
  /** Factors by which sizes grow, rounded down. */
  readonly scale?: Sizes;
  /** Default 'nearest'. */
  readonly mode?: InterpolateMode;
  /** Corner pixels stay where they are (linear and cubic modes). */
  readonly alignCorners?: boolean;
  /** Smooth before making smaller (bilinear and bicubic). */
  readonly antialias?: boolean;
}
export interface GridSampleOptions {
  /** Default 'bilinear'; over volumes it is trilinear. Bicubic is for pictures. */
  readonly mode?: 'bilinear' | 'nearest' | 'bicubic';
  /** What lies outside: zeros (default), the border repeated, or the picture mirrored. */
  readonly paddingMode?: 'zeros' | 'border' | 'reflection';
  /** Whether -1 and 1 are the middles of corner pixels, not their outer edges. */
  readonly alignCorners?: boolean;
}

const s = (...shape: number[]): InputSpec => ({ shape });
/** What these rows have in common. */
const row = alike({
  dtypes: REALS,
  without: 'it takes floats of 16 bits and more; cast first',
  ulp: ulps(16),
  domain: [0.25, 4],
  candle: { none: 'Candle has none of it' },
});

/** One dimension made of weighted elements: a sum over taps, every one a choice of elements times their weights. */
function resized(x: Tensor, d: number, axis: TapAxis): Tensor {
  const { starts, places, weights } = tapsOf(axis);
  let most = 1;
  for (let i = 0; i < axis.to; i++) most = Math.max(most, starts[i + 1] - starts[i]);
  const along = (t: Tensor): Tensor => t.reshape(x.shape.map((_, i) => (i === d ? axis.to : 1)));
  let sum: Tensor | undefined;
  for (let k = 0; k < most; k++) {
    const at = new BigInt64Array(axis.to);
    const weight = new Float64Array(axis.to);
    // Places are below 2^32: the lower half of each number is all of it, and bigints would take most of the time.
    const halves = new Uint32Array(at.buffer);
    for (let i = 0; i < axis.to; i++) {
      // A weight of 0 beside an element that counts anyway: NaN elsewhere stays there.
      const tap = Math.min(starts[i] + k, starts[i + 1] - 1);
      halves[2 * i] = places[tap];
      if (tap === starts[i] + k) weight[i] = weights[tap];
    }
    const chosen = x.indexSelect(d, x.newTensor(at, { dtype: 'i64' }));
    if (most === 1) return chosen;
    const part = chosen.mul(along(x.newTensor(weight)));
    sum = sum ? sum.add(part) : part;
  }
  return sum as Tensor;
}

const LINEAR: Readonly<Record<string, number>> = { linear: 1, bilinear: 2, trilinear: 3, bicubic: 2 };

/** Refuses modes that do not exist, and alignCorners where the mode has no use for it. */
export function requireMode(op: string, { mode = 'nearest', alignCorners = false }: InterpolateOptions): void {
  if (!MODES.includes(mode))
    throw new ArgumentError(`${op}: unknown mode ${JSON.stringify(mode)}; known are ${MODES.join(', ')}`);
  if (alignCorners && LINEAR[mode] === undefined)
    throw new ArgumentError(`${op}: alignCorners is for linear and cubic modes, not ${mode}`);
}
const ruleOf = (mode: InterpolateMode): TapRule =>
  mode === 'bilinear' || mode === 'trilinear' ? 'linear' : (mode as TapRule);
/** Whether upsampleNearest2d, which finds places by the ratio of the sizes in double precision, shows the same. */
function byRatio({ from, to, step }: TapAxis): boolean {
  for (let i = 0; i < to; i++)
    if (Math.min(Math.floor(i * (from / to)), from - 1) !== nearestPlace(i, from, step, false)) return false;
  return true;
}
function interpolateOf(x: Tensor, o: InterpolateOptions): Tensor {
  const op = 'interpolate';
  requireOptions(op, o, ['size', 'scale', 'mode', 'alignCorners', 'antialias']);
  requireDType(op, x, REALS);
  const { mode = 'nearest', alignCorners = false, antialias = false } = o;
  const rank = x.rank - 2;
  if (rank < 1 || rank > 3)
    throw new ShapeError(`${op}: input ${formatShape(x.shape)} must have a batch, channels and 1 to 3 dimensions`);
  requireMode(op, o);
  if (LINEAR[mode] !== undefined && LINEAR[mode] !== rank)
    throw new ArgumentError(
      `${op}: mode ${mode} is for ${LINEAR[mode]} dimensions, ${formatShape(x.shape)} has ${rank}`,
    );
  if (antialias && mode !== 'bilinear' && mode !== 'bicubic')
    throw new ArgumentError(`${op}: antialias is for bilinear and bicubic, not ${mode}`);
  if ((o.size === undefined) === (o.scale === undefined)) throw new ArgumentError(`${op}: takes either size or scale`);
  const scale =
    o.scale === undefined ? undefined : typeof o.scale === 'number' ? new Array<number>(rank).fill(o.scale) : o.scale;
  if (scale && (scale.length !== rank || scale.some((v) => !(v > 0 && Number.isFinite(v)))))
    throw new ArgumentError(`${op}: scale ${formatShape(scale)} must be ${rank} positive numbers`);
  const size = scale
    ? sizesOf(
        op,
        'size',
        scale.map((f, i) => Math.floor(x.shape[i + 2] * f)),
        rank,
        1,
      )
    : sizesOf(op, 'size', o.size as Sizes, rank, 1);
  if (mode === 'area')
    return rank === 1
      ? x.adaptiveAvgPool1d(size[0])
      : rank === 2
        ? x.adaptiveAvgPool2d(size as [number, number])
        : x.adaptiveAvgPool3d(size);
  // With a kernel of its own, which its gradient has, too; on GPUs one that serves all modes is quicker.
  if (mode === 'bilinear' && !antialias && !x.device.backend.gpu)
    return x.upsampleBilinear2d(size as [number, number], {
      alignCorners,
      ...(scale && { scale: scale as [number, number] }),
    });
  const rule: TapRule = antialias ? `smooth-${mode === 'bicubic' ? mode : 'linear'}` : ruleOf(mode);
  const axes = size.map((to, i): TapAxis => {
    const from = x.shape[i + 2];
    const step = alignCorners ? (to > 1 ? (from - 1) / (to - 1) : 0) : scale ? 1 / scale[i] : from / to;
    // Of pictures alone PyTorch shows axes of the same size as they are, whatever the step.
    const still = rule === 'nearest' && rank === 2 && from === to;
    return { rule: still ? 'same' : rule, from, to, step, align: alignCorners };
  });
  if (x.device.backend.gpu) return x.resampled(resampledBy(axes));
  if (mode === 'nearest' && rank === 2 && axes.every(byRatio)) return x.upsampleNearest2d(size as [number, number]);
  const run = (w: Tensor): Tensor => axes.reduce((t, axis, i) => resized(t, i + 2, axis), w);
  return mode.startsWith('nearest') ? run(x) : wide(x, run);
}

/** Keys' cubic of distances up to 1, or from 1 to 2. */
function cubicWeight(t: Tensor, near: boolean): Tensor {
  const a = -0.75;
  return near
    ? t
        .affine(a + 2, -(a + 3))
        .mul(t.sqr())
        .affine(1, 1)
    : t
        .affine(a, -5 * a)
        .mul(t)
        .affine(1, 8 * a)
        .mul(t)
        .affine(1, -4 * a);
}

type GridMode = NonNullable<GridSampleOptions['mode']>;

function checkGrid(x: Tensor, grid: Tensor, mode: GridMode, paddingMode: string): void {
  requireDType('gridSample', x, REALS);
  if (mode !== 'bilinear' && mode !== 'nearest' && mode !== 'bicubic')
    throw new ArgumentError(`gridSample: unknown mode ${JSON.stringify(mode)}; known are bilinear, nearest, bicubic`);
  if (mode === 'bicubic' && x.rank !== 4)
    throw new ArgumentError(`gridSample: bicubic is for pictures, not ${formatShape(x.shape)}`);
  if (!['zeros', 'border', 'reflection'].includes(paddingMode))
    throw new ArgumentError(
      `gridSample: unknown paddingMode ${JSON.stringify(paddingMode)}; known are zeros, border, reflection`,
    );
  const rank = x.rank - 2;
  if (
    (rank !== 2 && rank !== 3) ||
    grid.rank !== x.rank ||
    grid.shape[rank + 1] !== rank ||
    grid.shape[0] !== x.shape[0]
  )
    throw new ShapeError(
      `gridSample: grid ${formatShape(grid.shape)} does not fit ${formatShape(x.shape)}: a place of as many numbers ` +
        'as there are spatial dimensions for each element of the result',
    );
}

/** How each mode reads at places (n, count) by dimension; `within` brings a place into its dimension. */
const GRID_MODES: Readonly<
  Record<GridMode, (read: ReadAt, at: readonly Tensor[], within: (place: Tensor, i: number) => Tensor) => Tensor>
> = {
  nearest: (read, at, within) => read(at.map((t, i) => within(t, i).roundEven())),
  bilinear: (read, places, within) => {
    const at = places.map(within);
    const low = at.map((t) => t.detach().floor());
    const high = low.map((t) => t.affine(1, 1));
    const share = at.map((t, i) => t.sub(low[i]));
    const rest = share.map((t) => t.affine(-1, 1));
    const corners = Array.from({ length: 2 ** at.length }, (_, corner) => {
      const isHigh = (i: number): boolean => ((corner >> i) & 1) === 1;
      const weight = share.map((t, i) => (isHigh(i) ? t : rest[i])).reduce((a, b) => a.mul(b));
      return read(
        low.map((t, i) => (isHigh(i) ? high[i] : t)),
        weight,
      );
    });
    return corners.reduce((a, b) => a.add(b));
  },
  bicubic: (read, at, within) => {
    const low = at.map((t) => t.detach().floor());
    const taps = [-1, 0, 1, 2];
    const places = low.map((t, i) => taps.map((k) => within(t.affine(1, k), i).roundEven()));
    const weights = at.map((t, i) =>
      taps.map((k) => cubicWeight(t.sub(low[i]).affine(1, -k).abs(), k === 0 || k === 1)),
    );
    const parts = taps.flatMap((_, i) =>
      taps.map((_, j) => read([places[0][i], places[1][j]], weights[0][i].mul(weights[1][j]))),
    );
    return parts.reduce((a, b) => a.add(b));
  },
};

function gridSampleOf(x: Tensor, grid: Tensor, o: GridSampleOptions): Tensor {
  requireOptions('gridSample', o, ['mode', 'paddingMode', 'alignCorners']);
  const { mode = 'bilinear', paddingMode = 'zeros', alignCorners = false } = o;
  checkGrid(x, grid, mode, paddingMode);
  const [n, c, ...sizes] = x.shape;
  const places = grid.shape.slice(1, -1);
  const count = places.reduce((a, b) => a * b, 1);
  const within = (place: Tensor, i: number): Tensor => {
    if (paddingMode === 'zeros') return place;
    return (paddingMode === 'border' ? place : mirrored(place, sizes[i], alignCorners)).clamp(0, sizes[i] - 1);
  };
  // In one pass where a kernel serves it, in the dtype of x.
  const served = x.device.backend.gpu && GRID_DTYPES.some((d) => d === x.dtype);
  if (served && sizes.length === 2 && mode !== 'bicubic' && sizes[0] * sizes[1] < 2 ** 30)
    return x.gridSampled(grid.cast('f32'), { mode, padding: paddingMode, align: alignCorners, size: sizes });
  return wide(x, (w) => {
    const at = sizes.map((size, i) => {
      // Grids name the last dimension first.
      const told = grid
        .cast(w.dtype)
        .get(sizes.length - 1 - i, -1)
        .reshape([n, count]);
      return alignCorners ? told.affine((size - 1) / 2, (size - 1) / 2) : told.affine(size / 2, (size - 1) / 2);
    });
    return GRID_MODES[mode](readerOf(w), at, within).reshape([n, c, ...places]);
  });
}

function affineGridOf(theta: Tensor, size: readonly number[], o: { readonly alignCorners?: boolean }): Tensor {
  requireOptions('affineGrid', o, ['alignCorners']);
  requireWhole('affineGrid', 'size', size, 1);
  const rank = size.length - 2;
  if (
    (rank !== 2 && rank !== 3) ||
    theta.rank !== 3 ||
    theta.shape[0] !== size[0] ||
    theta.shape[1] !== rank ||
    theta.shape[2] !== rank + 1
  )
    throw new ShapeError(
      `affineGrid: matrices ${formatShape(theta.shape)} must be [${size[0]}, ${rank}, ${rank + 1}] for size ` +
        `${formatShape(size)}`,
    );
  const spatial = size.slice(2);
  return wide(theta, (t) => {
    const axis = (i: number): Tensor => {
      const n = spatial[i];
      const line = Array.from({ length: n }, (_, k) =>
        o.alignCorners ? (n > 1 ? (2 * k) / (n - 1) - 1 : 0) : (2 * k + 1) / n - 1,
      );
      return t
        .newTensor(line)
        .reshape(spatial.map((_, k) => (k === i ? n : 1)))
        .broadcastTo(spatial)
        .flatten();
    };
    const axes = spatial.map((_, i) => axis(rank - 1 - i));
    const base = axes[0].stack([...axes.slice(1), axes[0].onesLike()], 1);
    return base
      .unsqueeze(0)
      .matmul(t.transpose(1, 2))
      .reshape([size[0], ...spatial, rank]);
  });
}

const picture = (options: InterpolateOptions): CompositeSample => ({ inputs: [s(1, 2, 4, 5)], args: [options] });
export const imageOps = rows({
  interpolate: composite({
    ...row(
      'x with other spatial sizes, by size or scale: nearest, nearest-exact, linear, bilinear, trilinear, ' +
        'bicubic or area, bilinear and bicubic with antialias',
      [
        { inputs: [s(2, 3, 5)], args: [{ size: 8, mode: 'linear' }] },
        picture({ size: [7, 3] }),
        picture({ scale: 1.7, mode: 'nearest-exact' }),
        picture({ size: [7, 8], mode: 'bicubic' }),
        picture({ size: [2, 3], mode: 'bicubic', antialias: true }),
        picture({ size: [3, 9], mode: 'bilinear', alignCorners: true }),
        { inputs: [s(1, 1, 3, 2, 4)], args: [{ scale: 2, mode: 'trilinear' }] },
      ],
      {
        ulp: ulps(4),
        errors: [
          {
            ...picture({ size: 3, mode: 'linear' }),
            code: 'E_ARGUMENT',
            says: /interpolate: mode linear is for 1 dimensions/,
          },
          { ...picture({}), code: 'E_ARGUMENT', says: /interpolate: takes either size or scale/ },
        ],
      },
    ),
    compose: (x: Tensor, options: InterpolateOptions): Tensor => interpolateOf(x, options),
  }),
  gridSample: composite({
    ...row(
      'x read at the places of a grid, -1 and 1 being its edges (or corner pixels); last dimension first',
      [
        { inputs: [s(1, 2, 4, 5), { shape: [1, 3, 2, 2], domain: [-0.9, 0.9] }], args: [{ input: 1 }] },
        {
          inputs: [s(1, 2, 4, 5), { shape: [1, 3, 2, 2], domain: [-0.9, 0.9] }],
          args: [{ input: 1 }, { mode: 'nearest', alignCorners: true }],
        },
        {
          inputs: [s(1, 1, 3, 4, 2), { shape: [1, 2, 2, 1, 3], domain: [-0.9, 0.9] }],
          args: [{ input: 1 }, { paddingMode: 'border' }],
        },
      ],
      {
        ulp: ulps(8),
        errors: [
          {
            inputs: [s(1, 2, 4, 5), s(1, 3, 2, 3)],
            args: [{ input: 1 }],
            code: 'E_SHAPE',
            says: /gridSample: grid \[1, 3, 2, 3\] does not fit/,
          },
        ],
      },
    ),
    compose: (x: Tensor, grid: Tensor, options: GridSampleOptions = {}): Tensor => gridSampleOf(x, grid, options),
  }),
  affineGrid: composite({
    ...row(
      'the grid for gridSample of (batch, channels, ...sizes) that applies a matrix to each place',
      [
        { inputs: [s(2, 2, 3)], args: [[2, 1, 3, 4]] },
        { inputs: [s(1, 3, 4)], args: [[1, 1, 2, 3, 2], { alignCorners: true }] },
      ],
      { ulp: ulps(4) },
    ),
    compose: (theta: Tensor, size: readonly number[], options: { readonly alignCorners?: boolean } = {}): Tensor =>
      affineGridOf(theta, size, options),
  }),
});
