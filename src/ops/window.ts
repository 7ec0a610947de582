// Sliding windows in one to three dimensions, as views: pooling with dilation and partial windows, adaptive maxima,
// columns of windows and back; and convolutions over volumes as sums of those over pictures.
import { REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sizeOf } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { wide } from './composites.js';
import type { ConvOptions, ConvTransposeOptions } from './conv.js';
import { alike, composite, requireDType, requireOptions, requireRank, requireWhole } from './kernel-row.js';
import { type InputSpec, rows, ulps } from './op.js';

/** A number for every spatial dimension, or one each. */
export type Sizes = number | readonly number[];
export interface WindowOptions {
  /** Steps between windows, unless given after the size; default their size. */
  readonly stride?: Sizes;
  /** Added on each side: zeros for averages, nothing for maxima; at most half the kernel. */
  readonly padding?: Sizes;
  /** Distance between the elements of a window; for maxima only. */
  readonly dilation?: Sizes;
  /** Windows that only begin inside count too. */
  readonly ceilMode?: boolean;
  /** Whether averages count what padding added; default true. */
  readonly countIncludePad?: boolean;
  /** What the sum of a window is divided by, instead of the number of its elements. */
  readonly divisorOverride?: number;
}
export type MaxWindowOptions = Omit<WindowOptions, 'countIncludePad' | 'divisorOverride'>;
export type AvgWindowOptions = Omit<WindowOptions, 'dilation'>;
export interface FoldOptions {
  /** Steps between windows; 1 unless given. */
  readonly stride?: Sizes;
  /** What was added around the picture; 0 unless given. */
  readonly padding?: Sizes;
  /** Distance between the elements of a window; 1 unless given. */
  readonly dilation?: Sizes;
}

const s = (...shape: number[]): InputSpec => ({ shape });
const FLOATS_ONLY = 'it takes floats of 16 bits and more; cast first';
/** What these rows have in common. */
const row = alike({
  dtypes: REALS,
  without: FLOATS_ONLY,
  ulp: ulps(4),
  domain: [0.25, 4],
  candle: { none: 'Candle has none of it' },
});

/** Sizes beyond this are mistakes, and loops over them would not end. */
const LARGEST = 2 ** 24;
/** A list of one number for each of `rank` dimensions. */
export function sizesOf(op: string, name: string, v: Sizes, rank: number, min: number): number[] {
  const list = typeof v === 'number' ? new Array<number>(rank).fill(v) : [...v];
  if (list.length !== rank) throw new ArgumentError(`${op}: ${name} ${formatShape(list)} must have ${rank} numbers`);
  requireWhole(op, name, list, min);
  if (list.some((n) => n > LARGEST))
    throw new ArgumentError(`${op}: ${name} ${formatShape(list)} is beyond ${LARGEST}, more than any picture has`);
  return list;
}

/**
 * A pool's arguments: window, stride and padding one after another, or by name from any of them on, as in
 * `maxPool2d(3, { stride: 2, padding: 1 })`.
 */
export function poolArguments<O extends WindowOptions>(
  op: string,
  rank: number,
  known: readonly string[],
  size: Sizes,
  second: Sizes | O = {} as O,
  third?: Sizes | O,
): { readonly kernel: number[]; readonly stride: number[]; readonly options: O } {
  const isSizes = (v: Sizes | O | undefined): v is Sizes => typeof v === 'number' || Array.isArray(v);
  if (!isSizes(second) && third !== undefined) {
    requireOptions(op, second, known);
    throw new ArgumentError(`${op}: options stand last, and nothing follows them`);
  }
  const named = (isSizes(second) ? (isSizes(third) ? ({ padding: third } as O) : third) : second) ?? ({} as O);
  requireOptions(op, named, known);
  const { stride: own, ...options } = named;
  if (own !== undefined && isSizes(second)) throw new ArgumentError(`${op}: stride is given twice`);
  const kernel = sizesOf(op, 'kernel', size, rank, 1);
  const stride = sizesOf(op, 'stride', isSizes(second) ? second : (own ?? kernel), rank, 1);
  const { padding, dilation } = options as WindowOptions;
  if (padding !== undefined) sizesOf(op, 'padding', padding, rank, 0);
  if (dilation !== undefined) sizesOf(op, 'dilation', dilation, rank, 1);
  return { kernel, stride, options: options as O };
}
/** The options of each kind of pool. */
export const POOL_OPTIONS = {
  max: ['stride', 'padding', 'dilation', 'ceilMode'],
  avg: ['stride', 'padding', 'ceilMode', 'countIncludePad', 'divisorOverride'],
} as const;

interface Windows {
  readonly kernel: readonly number[];
  readonly stride: readonly number[];
  readonly padding: readonly number[];
  readonly dilation: readonly number[];
  /** Positions of windows in each dimension, and padding that they need behind. */
  readonly count: readonly number[];
  readonly after: readonly number[];
}

const DIMS = ['length', 'height, width', 'depth, height, width'];
function windowsOf(
  op: string,
  x: Tensor,
  rank: number,
  size: Sizes,
  stride: Sizes | undefined,
  o: WindowOptions,
): Windows {
  requireRank(op, 'input', x.shape, rank + 2, `(batch, channels, ${DIMS[rank - 1]})`);
  const kernel = sizesOf(op, 'kernel', size, rank, 1);
  const steps = sizesOf(op, 'stride', stride ?? kernel, rank, 1);
  const padding = sizesOf(op, 'padding', o.padding ?? 0, rank, 0);
  const dilation = sizesOf(op, 'dilation', o.dilation ?? 1, rank, 1);
  const after: number[] = [];
  const count = kernel.map((k, i) => {
    const [n, p, step, reach] = [x.shape[i + 2], padding[i], steps[i], (k - 1) * dilation[i] + 1];
    if (2 * p > k)
      throw new ArgumentError(
        `${op}: padding ${p} is more than half the kernel ${k}, so a window could hold nothing else`,
      );
    if (n + 2 * p < reach)
      throw new ShapeError(
        `${op}: kernel ${formatShape(kernel)} reaches over ${reach} elements, the padded input ` +
          `${formatShape(x.shape)} has ${n + 2 * p}`,
      );
    let windows = Math.floor((n + 2 * p - reach) / step) + 1;
    // A partial window must begin inside the input or the padding before it.
    if (o.ceilMode && (n + 2 * p - reach) % step !== 0 && windows * step < n + p) windows++;
    after.push(Math.max(0, (windows - 1) * step + reach - n - p));
    return windows;
  });
  return { kernel, stride: steps, padding, dilation, count, after };
}

/** x padded and seen as (batch, channels, ...windows, ...kernel): a view of the padded x. */
function windowed(x: Tensor, w: Windows, value: number): Tensor {
  const rank = w.kernel.length;
  const pads = w.kernel.map((_, i) => [w.padding[rank - 1 - i], w.after[rank - 1 - i]]).flat();
  let out = pads.some((p) => p > 0) ? x.pad(pads, value) : x;
  for (let i = 0; i < rank; i++) {
    const reach = (w.kernel[i] - 1) * w.dilation[i] + 1;
    const room = (w.count[i] - 1) * w.stride[i] + reach;
    out = out.narrow(i + 2, 0, room).unfold(i + 2, reach, w.stride[i]);
    if (w.dilation[i] > 1) out = out.slice(-1, 0, undefined, w.dilation[i]);
  }
  return out;
}
const flatWindows = (t: Tensor, rank: number): Tensor => t.flatten(2 + rank, -1);

/** Maxima of windows; of equal elements the first takes the gradient. */
export function maxWindows(
  op: string,
  x: Tensor,
  rank: number,
  size: Sizes,
  stride?: Sizes,
  o: WindowOptions = {},
): Tensor {
  requireDType(op, x, REALS, FLOATS_ONLY);
  const flat = flatWindows(windowed(x, windowsOf(op, x, rank, size, stride, o), -Infinity), rank);
  return flat.gather(-1, flat.detach().argmax(flat.rank - 1, true)).squeeze(-1);
}

function divisorOf(op: string, divisor: number): number {
  if (!Number.isFinite(divisor) || divisor === 0)
    throw new ArgumentError(`${op}: divisorOverride ${String(divisor)} is no number but 0`);
  return divisor;
}
/** Averages of windows. A partial window counts what lies in the input and its padding. */
export function avgWindows(
  op: string,
  x: Tensor,
  rank: number,
  size: Sizes,
  stride?: Sizes,
  o: WindowOptions = {},
): Tensor {
  requireDType(op, x, REALS, FLOATS_ONLY);
  return wide(x, (t) => {
    const w = windowsOf(op, t, rank, size, stride, o);
    const dims = w.kernel.map((_, i) => 2 + rank + i);
    const sum = windowed(t, w, 0).sum(dims, false);
    const inside = (i: number, k: number): number => {
      const begin = k * w.stride[i] - w.padding[i];
      const [from, to] =
        o.countIncludePad === false ? [0, t.shape[i + 2]] : [-w.padding[i], t.shape[i + 2] + w.padding[i]];
      return Math.min(begin + w.kernel[i], to) - Math.max(begin, from);
    };
    if (o.divisorOverride !== undefined) return sum.div(divisorOf(op, o.divisorOverride));
    return w.count.reduce((out, n, i) => {
      const counts = t.newTensor(Array.from({ length: n }, (_, k) => inside(i, k)));
      return out.div(counts.reshape(out.shape.map((_, d) => (d === i + 2 ? n : 1))));
    }, sum);
  });
}

/** Maxima of windows from floor(i * in / out) to ceil((i + 1) * in / out), dimension after dimension. */
function adaptiveMax(op: string, x: Tensor, rank: number, size: Sizes): Tensor {
  requireRank(op, 'input', x.shape, rank + 2, `(batch, channels, ${DIMS[rank - 1]})`);
  requireDType(op, x, REALS, FLOATS_ONLY);
  return sizesOf(op, 'size', size, rank, 1).reduce((t, out, i) => {
    const n = t.shape[i + 2];
    const parts = Array.from({ length: out }, (_, k) => {
      const begin = Math.floor((k * n) / out);
      const part = t.narrow(i + 2, begin, Math.ceil(((k + 1) * n) / out) - begin);
      return part.gather(i + 2, part.detach().argmax(i + 2, true));
    });
    return parts[0].cat(parts.slice(1), i + 2);
  }, x);
}
function adaptiveAvg(op: string, x: Tensor, rank: number, size: Sizes): Tensor {
  requireRank(op, 'input', x.shape, rank + 2, `(batch, channels, ${DIMS[rank - 1]})`);
  requireDType(op, x, REALS, FLOATS_ONLY);
  return wide(x, (w) =>
    sizesOf(op, 'size', size, rank, 1).reduce((t, out, i) => {
      const n = t.shape[i + 2];
      const parts = Array.from({ length: out }, (_, k) => {
        const begin = Math.floor((k * n) / out);
        return t.narrow(i + 2, begin, Math.ceil(((k + 1) * n) / out) - begin).mean([i + 2], true);
      });
      return parts[0].cat(parts.slice(1), i + 2);
    }, w),
  );
}

/** Depth i of a kernel over a volume, as a convolution of pictures: depths of the volume join the batch. */
const asPictures = (x: Tensor): Tensor => {
  const [n, c, d, h, w] = x.shape;
  return x.permute([0, 2, 1, 3, 4]).reshape([n * d, c, h, w]);
};
const asVolume = (x: Tensor, n: number): Tensor =>
  x.reshape([n, x.shape[0] / n, ...x.shape.slice(1)]).permute([0, 2, 1, 3, 4]);
const last = (v: readonly number[]): [number, number] => [v[1], v[2]];

/** Up to so many depths of a kernel what it reads is copied as often. */
const MOST_DEPTHS = 8;
const VOLUME = '(batch, channels, depth, height, width)';
function conv3dOf(x: Tensor, weight: Tensor, o: ConvOptions<Sizes>): Tensor {
  requireOptions('conv3d', o, ['stride', 'padding', 'dilation', 'groups', 'bias']);
  requireRank('conv3d', 'input', x.shape, 5, VOLUME);
  requireRank('conv3d', 'kernel', weight.shape, 5, '(out, in / groups, depth, height, width)');
  const stride = sizesOf('conv3d', 'stride', o.stride ?? 1, 3, 1);
  const padding = sizesOf('conv3d', 'padding', o.padding ?? 0, 3, 0);
  const dilation = sizesOf('conv3d', 'dilation', o.dilation ?? 1, 3, 1);
  const padded = padding[0] > 0 ? x.pad([0, 0, 0, 0, padding[0], padding[0]]) : x;
  const reach = (weight.shape[2] - 1) * dilation[0] + 1;
  const depth = Math.floor((padded.shape[2] - reach) / stride[0]) + 1;
  if (depth < 1)
    throw new ShapeError(
      `conv3d: kernel ${formatShape(weight.shape)} reaches over ${reach} elements, the padded input ` +
        `${formatShape(x.shape)} has ${padded.shape[2]}`,
    );
  const { groups = 1, bias } = o;
  const plane = { stride: last(stride), padding: last(padding), dilation: last(dilation), groups };
  // GPUs take all depths of a kernel as channels: one convolution, and one copy of what it reads.
  if (x.device.backend.gpu && weight.shape[2] <= MOST_DEPTHS && x.size > 0) {
    const windows = padded.narrow(2, 0, (depth - 1) * stride[0] + reach).unfold(2, reach, stride[0]);
    const deep = windows.slice(-1, 0, undefined, dilation[0]).permute([0, 2, 1, 5, 3, 4]);
    const [n, d, c, k, h, w] = deep.shape;
    const filter = weight.reshape([weight.shape[0], weight.shape[1] * k, ...weight.shape.slice(3)]);
    return asVolume(deep.reshape([n * d, c * k, h, w]).conv2d(filter, { ...plane, ...(bias && { bias }) }), n);
  }
  let sum: Tensor | undefined;
  for (let i = 0; i < weight.shape[2]; i++) {
    const from = i * dilation[0];
    const part = padded.slice(2, from, from + (depth - 1) * stride[0] + 1, stride[0]);
    const made = asPictures(part).conv2d(weight.get(i, 2), { ...plane, ...(i === 0 && bias ? { bias } : {}) });
    sum = sum ? sum.add(made) : made;
  }
  return asVolume(sum as Tensor, x.shape[0]);
}

function convTranspose3dOf(x: Tensor, weight: Tensor, o: ConvTransposeOptions<Sizes>): Tensor {
  requireOptions('convTranspose3d', o, ['stride', 'padding', 'dilation', 'groups', 'bias', 'outputPadding']);
  requireRank('convTranspose3d', 'input', x.shape, 5, VOLUME);
  requireRank('convTranspose3d', 'kernel', weight.shape, 5, '(in, out / groups, depth, height, width)');
  const take = (name: string, v: Sizes | undefined, or: number, min: number): number[] =>
    sizesOf('convTranspose3d', name, v ?? or, 3, min);
  const stride = take('stride', o.stride, 1, 1);
  const padding = take('padding', o.padding, 0, 0);
  const dilation = take('dilation', o.dilation, 1, 1);
  const extra = take('outputPadding', o.outputPadding, 0, 0);
  if (extra.some((e, i) => e >= Math.max(stride[i], dilation[i])))
    throw new ArgumentError(
      `convTranspose3d: outputPadding ${formatShape(extra)} must be smaller than stride or dilation`,
    );
  const [n, , d] = x.shape;
  const full = (d - 1) * stride[0] + (weight.shape[2] - 1) * dilation[0] + 1 + extra[0];
  const depth = full - 2 * padding[0];
  if (depth < 1)
    throw new ShapeError(`convTranspose3d: padding ${padding[0]} leaves no output of ${formatShape(x.shape)}`);
  const pictures = asPictures(x);
  let sum: Tensor | undefined;
  for (let i = 0; i < weight.shape[2]; i++) {
    const made = asVolume(
      pictures.convTranspose2d(weight.get(i, 2), {
        stride: last(stride),
        padding: last(padding),
        dilation: last(dilation),
        outputPadding: last(extra),
        groups: o.groups ?? 1,
      }),
      n,
    );
    const shape = made.shape.map((v, k) => (k === 2 ? full : v));
    const placed = made.place(
      shape,
      shape.map((_, k) => (k === 2 ? i * dilation[0] : 0)),
      shape.map((_, k) => (k === 2 ? stride[0] : 1)),
    );
    sum = sum ? sum.add(placed) : placed;
  }
  const cut = (sum as Tensor).narrow(2, padding[0], depth);
  return o.bias ? cut.add(o.bias.reshape([o.bias.size, 1, 1, 1])) : cut;
}

/** (batch, channels * kernel, windows) from pictures. */
function unfold2dOf(x: Tensor, size: Sizes, o: FoldOptions): Tensor {
  requireOptions('unfold2d', o, ['stride', 'padding', 'dilation']);
  requireRank('unfold2d', 'input', x.shape, 4, '(batch, channels, height, width)');
  const kernel = sizesOf('unfold2d', 'kernel', size, 2, 1);
  const [ph, pw] = sizesOf('unfold2d', 'padding', o.padding ?? 0, 2, 0);
  const padded = ph + pw > 0 ? x.pad([pw, pw, ph, ph]) : x;
  const w = windowsOf('unfold2d', padded, 2, kernel, o.stride ?? 1, { dilation: o.dilation });
  const [n, c] = x.shape;
  return windowed(padded, w, 0)
    .permute([0, 1, 4, 5, 2, 3])
    .reshape([n, c * kernel[0] * kernel[1], w.count[0] * w.count[1]]);
}

/** Of one to three dimensions: as many as the output's size or the kernel's has numbers, two unless said. */
function foldOf(x: Tensor, output: Sizes, size: Sizes, o: FoldOptions): Tensor {
  requireOptions('fold', o, ['stride', 'padding', 'dilation']);
  requireRank('fold', 'input', x.shape, 3, '(batch, channels * kernel, windows)');
  const rank = [output, size].find((v) => typeof v !== 'number')?.length ?? 2;
  const take = (name: string, v: Sizes, min: number): number[] => sizesOf('fold', name, v, rank, min);
  const [kernel, out] = [take('kernel', size, 1), take('output', output, 1)];
  const stride = take('stride', o.stride ?? 1, 1);
  const padding = take('padding', o.padding ?? 0, 0);
  const dilation = take('dilation', o.dilation ?? 1, 1);
  const full = out.map((v, i) => v + 2 * padding[i]);
  const count = kernel.map((k, i) => Math.floor((full[i] - (k - 1) * dilation[i] - 1) / stride[i]) + 1);
  const [n, ck, windows] = x.shape;
  const taps = sizeOf(kernel);
  if (ck % taps !== 0 || sizeOf(count) !== windows)
    throw new ShapeError(
      `fold: ${formatShape(x.shape)} does not hold ${count.join(' x ')} windows of ${kernel.join(' x ')} ` +
        `elements a channel, which make ${formatShape(out)}`,
    );
  const parts = x.reshape([n, ck / taps, taps, ...count]);
  const shape = [n, ck / taps, ...full];
  let sum: Tensor | undefined;
  for (let tap = 0; tap < taps; tap++) {
    const at = kernel.map((k, i) => Math.floor(tap / sizeOf(kernel.slice(i + 1))) % k);
    const begin = at.map((v, i) => v * dilation[i]);
    const part = parts.get(tap, 2).place(shape, [0, 0, ...begin], [1, 1, ...stride]);
    sum = sum ? sum.add(part) : part;
  }
  return out.reduce((y, length, i) => y.narrow(i + 2, padding[i], length), sum as Tensor);
}

const vol = { inputs: [s(1, 2, 4, 5, 4)], args: [2] };
export const windowOps = rows({
  maxPool3d: composite({
    ...row(
      'largest element of a window of a volume; of equal ones the first takes the gradient',
      [
        { inputs: [{ shape: [1, 2, 4, 5, 4], distinct: true }], args: [2] },
        { inputs: [{ shape: [1, 2, 4, 5, 4], distinct: true }], args: [2, { stride: [1, 2, 1], padding: 1 }] },
        {
          inputs: [{ shape: [1, 1, 4, 4, 5], distinct: true }],
          args: [2, 1, { padding: 1, dilation: [1, 2, 1], ceilMode: true }],
        },
      ],
      { ulp: 0 },
    ),
    compose: (
      x: Tensor,
      size: Sizes,
      stride?: Sizes | MaxWindowOptions,
      options?: Sizes | MaxWindowOptions,
    ): Tensor => {
      const given = poolArguments('maxPool3d', 3, POOL_OPTIONS.max, size, stride, options);
      return maxWindows('maxPool3d', x, 3, given.kernel, given.stride, given.options);
    },
  }),
  avgPool3d: composite({
    ...row('mean of a window of a volume', [
      vol,
      { inputs: [s(1, 1, 4, 4, 5)], args: [3, 2, { padding: 1, ceilMode: true, countIncludePad: false }] },
      { inputs: [s(1, 1, 4, 4, 5)], args: [2, { stride: 1, divisorOverride: 3 }] },
    ]),
    compose: (
      x: Tensor,
      size: Sizes,
      stride?: Sizes | AvgWindowOptions,
      options?: Sizes | AvgWindowOptions,
    ): Tensor => {
      const given = poolArguments('avgPool3d', 3, POOL_OPTIONS.avg, size, stride, options);
      return avgWindows('avgPool3d', x, 3, given.kernel, given.stride, given.options);
    },
  }),
  adaptiveMaxPool1d: composite({
    ...row(
      'largest elements of windows from floor(i * in / out) to ceil((i + 1) * in / out)',
      [{ inputs: [{ shape: [2, 3, 7], distinct: true }], args: [3] }],
      { ulp: 0 },
    ),
    compose: (x: Tensor, size: Sizes): Tensor => adaptiveMax('adaptiveMaxPool1d', x, 1, size),
  }),
  adaptiveMaxPool2d: composite({
    ...row(
      'largest elements of windows from floor(i * in / out) to ceil((i + 1) * in / out)',
      [{ inputs: [{ shape: [1, 2, 7, 5], distinct: true }], args: [[3, 2]] }],
      { ulp: 0 },
    ),
    compose: (x: Tensor, size: Sizes): Tensor => adaptiveMax('adaptiveMaxPool2d', x, 2, size),
  }),
  adaptiveMaxPool3d: composite({
    ...row(
      'largest elements of windows from floor(i * in / out) to ceil((i + 1) * in / out)',
      [{ inputs: [{ shape: [1, 1, 4, 5, 3], distinct: true }], args: [2] }],
      { ulp: 0 },
    ),
    compose: (x: Tensor, size: Sizes): Tensor => adaptiveMax('adaptiveMaxPool3d', x, 3, size),
  }),
  adaptiveAvgPool1d: composite({
    ...row('means of windows from floor(i * in / out) to ceil((i + 1) * in / out)', [
      { inputs: [s(2, 3, 7)], args: [3] },
    ]),
    compose: (x: Tensor, size: Sizes): Tensor => adaptiveAvg('adaptiveAvgPool1d', x, 1, size),
  }),
  adaptiveAvgPool3d: composite({
    ...row('means of windows from floor(i * in / out) to ceil((i + 1) * in / out)', [
      { inputs: [s(1, 1, 4, 5, 3)], args: [2] },
    ]),
    compose: (x: Tensor, size: Sizes): Tensor => adaptiveAvg('adaptiveAvgPool3d', x, 3, size),
  }),
  conv3d: composite({
    ...row(
      'out[n,o,z,y,x] = b[o] + sum over channels and kernel of in * w, as a sum of conv2d',
      [
        { inputs: [s(1, 2, 3, 4, 4), s(2, 2, 2, 2, 3)], args: [{ input: 1 }] },
        {
          inputs: [s(1, 2, 4, 3, 3), s(2, 1, 2, 2, 2), s(2)],
          args: [{ input: 1 }, { stride: [2, 1, 1], padding: 1, dilation: [2, 1, 1], groups: 2, bias: { input: 2 } }],
        },
      ],
      { ulp: ulps(8, 4), domain: [0.25, 2] },
    ),
    compose: (x: Tensor, weight: Tensor, options: ConvOptions<Sizes> = {}): Tensor => conv3dOf(x, weight, options),
  }),
  convTranspose3d: composite({
    ...row(
      'out[n,o,z*s + i*d - p,...] = b[o] + sum of in[n,c,z,y,x] * w[c,o,i,j,k], as a sum of convTranspose2d',
      [
        { inputs: [s(1, 2, 2, 3, 2), s(2, 2, 2, 2, 2)], args: [{ input: 1 }] },
        {
          inputs: [s(1, 2, 2, 2, 3), s(2, 1, 3, 2, 2), s(2)],
          args: [
            { input: 1 },
            { stride: [2, 1, 2], padding: [1, 0, 1], outputPadding: [1, 0, 1], groups: 2, bias: { input: 2 } },
          ],
        },
      ],
      { ulp: ulps(8, 1), domain: [0.25, 2] },
    ),
    compose: (x: Tensor, weight: Tensor, options: ConvTransposeOptions<Sizes> = {}): Tensor =>
      convTranspose3dOf(x, weight, options),
  }),
  unfold2d: composite({
    ...row(
      'windows of pictures as columns: (batch, channels * kernel, windows)',
      [
        { inputs: [s(1, 2, 4, 5)], args: [[2, 3]] },
        { inputs: [s(1, 1, 5, 5)], args: [2, { stride: 2, padding: 1, dilation: [2, 1] }] },
      ],
      { ulp: 0 },
    ),
    compose: (x: Tensor, size: Sizes, options: FoldOptions = {}): Tensor => unfold2dOf(x, size, options),
  }),
  fold: composite({
    ...row(
      'columns of windows over lines, pictures or volumes added up where they overlap: what unfold2d takes apart',
      [
        {
          inputs: [s(1, 12, 9)],
          args: [
            [4, 5],
            [2, 3],
          ],
        },
        { inputs: [s(1, 4, 9)], args: [5, 2, { stride: 2, padding: 1, dilation: [2, 1] }] },
        { inputs: [s(1, 4, 3)], args: [[6], [2], { stride: [2] }] },
        { inputs: [s(1, 8, 4)], args: [[2, 3, 3], 2] },
      ],
      {
        ulp: ulps(1),
        errors: [
          {
            inputs: [s(1, 12, 8)],
            args: [
              [4, 5],
              [2, 3],
            ],
            code: 'E_SHAPE',
            says: /fold: \[1, 12, 8\] does not hold 3 x 3 windows/,
          },
        ],
      },
    ),
    compose: (x: Tensor, output: Sizes, size: Sizes, options: FoldOptions = {}): Tensor =>
      foldOf(x, output, size, options),
  }),
});
