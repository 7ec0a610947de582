// ONNX operators over windows: convolutions, pooling, resizing, grids.
import { arange, Tensor } from '../../src/index.js';
import {
  type Node,
  type Handler,
  NotServed,
  has,
  input,
  int,
  text,
  ints,
  list,
  listAt,
  whole,
  unary,
  windowed,
  padList,
  one,
} from './node.js';

function conv(n: Node): Tensor {
  const [x, w] = [input(n, 0), input(n, 1)];
  const { rank, stride, dilation, begin, end } = windowed(x, n, w.shape.slice(2));
  const even = begin.every((b, i) => b === end[i]);
  const padded = even ? x : x.pad(padList(begin, end));
  const options = {
    stride: one(stride),
    dilation: one(dilation),
    padding: one(even ? begin : begin.map(() => 0)),
    groups: int(n, 'group', 1),
    ...(has(n, 2) && { bias: input(n, 2) }),
  } as never;
  return rank === 1 ? padded.conv1d(w, options) : rank === 2 ? padded.conv2d(w, options) : padded.conv3d(w, options);
}

function convTranspose(n: Node): Tensor {
  const [x, w] = [input(n, 0), input(n, 1)];
  const rank = x.rank - 2;
  const kernel = w.shape.slice(2);
  const stride = ints(n, 'strides') ?? kernel.map(() => 1);
  const dilation = ints(n, 'dilations') ?? kernel.map(() => 1);
  const extra = ints(n, 'output_padding') ?? kernel.map(() => 0);
  const shape = ints(n, 'output_shape')?.slice(-rank);
  const reach = kernel.map((k, i) => (x.shape[i + 2] - 1) * stride[i] + (k - 1) * dilation[i] + 1 + extra[i]);
  let pads = ints(n, 'pads') ?? new Array<number>(2 * rank).fill(0);
  const auto = text(n, 'auto_pad', 'NOTSET');
  const wanted = shape ?? (auto.startsWith('SAME') ? kernel.map((_, i) => x.shape[i + 2] * stride[i]) : undefined);
  const full = reach.map((f, i) => Math.max(f, wanted?.[i] ?? 0));
  if (wanted) {
    const total = full.map((f, i) => f - wanted[i]);
    const less = total.map((t) => Math.floor(t / 2));
    const more = total.map((t, i) => t - less[i]);
    pads = auto === 'SAME_UPPER' ? [...less, ...more] : [...more, ...less];
  }
  const options = {
    stride: one(stride),
    dilation: one(dilation),
    groups: int(n, 'group', 1),
    ...(has(n, 2) && { bias: input(n, 2) }),
  } as never;
  let y =
    rank === 1
      ? x.convTranspose1d(w, options)
      : rank === 2
        ? x.convTranspose2d(w, options)
        : x.convTranspose3d(w, options);
  const grown = full.map((f, i) => f - y.shape[i + 2]);
  if (grown.some((g) => g > 0)) {
    const bias = has(n, 2) ? input(n, 2).reshape([1, -1, ...kernel.map(() => 1)]) : undefined;
    y = bias
      ? y
          .sub(bias)
          .pad(
            padList(
              kernel.map(() => 0),
              grown,
            ),
          )
          .add(bias)
      : y.pad(
          padList(
            kernel.map(() => 0),
            grown,
          ),
        );
  }
  for (let i = 0; i < rank; i++) y = y.narrow(i + 2, pads[i], full[i] - pads[i] - pads[i + rank]);
  return y;
}

/** Windows of x as last dimensions, with `fill` where padding and the last window go beyond. */
function windows(n: Node, x: Tensor, kernel: readonly number[], fill: number): Tensor {
  const { rank, stride, dilation, begin, end } = windowed(x, n, kernel);
  const ceil = int(n, 'ceil_mode', 0) === 1;
  const more = kernel.map((k, i) => {
    const size = x.shape[i + 2] + begin[i] + end[i];
    const reach = (k - 1) * dilation[i] + 1;
    let count = (ceil ? Math.ceil : Math.floor)((size - reach) / stride[i]) + 1;
    if (ceil && (count - 1) * stride[i] >= x.shape[i + 2] + begin[i]) count--;
    return end[i] + Math.max(0, (count - 1) * stride[i] + reach - size);
  });
  let y = x.pad(padList(begin, more), fill);
  for (let i = 0; i < rank; i++) {
    y = y.unfold(i + 2, (kernel[i] - 1) * dilation[i] + 1, stride[i]);
    if (dilation[i] > 1) y = y.at('...', [undefined, undefined, dilation[i]]);
  }
  return y;
}

const lastDims = (x: Tensor, count: number): number[] => Array.from({ length: count }, (_, i) => x.rank - count + i);

function resize(n: Node): Tensor {
  const x = input(n, 0);
  const mode = text(n, 'mode', 'nearest');
  const coordinates = text(n, 'coordinate_transformation_mode', 'half_pixel');
  const axes = ints(n, 'axes') ?? x.shape.map((_, i) => i);
  const policy = text(n, 'keep_aspect_ratio_policy', 'stretch');
  const scalesIn = n.op === 'Upsample' ? listAt(n, 1) : listAt(n, 2);
  const sizesIn = n.op === 'Upsample' ? undefined : listAt(n, 3);
  const roi = listAt(n, 1) ?? [];
  const scales = x.shape.map(() => 1);
  const sizes = [...x.shape];
  if (scalesIn && scalesIn.length > 0)
    axes.forEach((a, i) => {
      scales[a] = scalesIn[i];
      sizes[a] = Math.floor(x.shape[a] * scalesIn[i]);
    });
  else if (sizesIn) {
    const ratio = axes.map((a, i) => sizesIn[i] / x.shape[a]);
    const common = policy === 'not_larger' ? Math.min(...ratio) : Math.max(...ratio);
    axes.forEach((a, i) => {
      if (policy === 'stretch') {
        sizes[a] = sizesIn[i];
        scales[a] = ratio[i];
      } else {
        scales[a] = common;
        sizes[a] = Math.floor(x.shape[a] * common + 0.5);
      }
    });
  }
  const exclude = int(n, 'exclude_outside', 0) === 1;
  const antialias = int(n, 'antialias', 0) === 1;
  const cubic = (n.attributes.cubic_coeff_a as number | undefined) ?? -0.75;
  const extrapolated = (n.attributes.extrapolation_value as number | undefined) ?? 0;
  const nearest = text(n, 'nearest_mode', n.op === 'Upsample' ? 'floor' : 'round_prefer_floor');
  let y = x.cast('f64');
  // One dimension after another: a matrix of weights each.
  axes.forEach((a, k) => {
    const [from, to, scale] = [x.shape[a], sizes[a], scales[a]];
    if (from === to && scale === 1 && coordinates !== 'tf_crop_and_resize') return;
    const weights: number[] = new Array<number>(to * from).fill(0);
    const outside: number[] = new Array<number>(to).fill(0);
    for (let o = 0; o < to; o++) {
      const ways: Readonly<Record<string, () => number>> = {
        half_pixel: () => (o + 0.5) / scale - 0.5,
        half_pixel_symmetric: () => {
          const adjust = to / (scale * from);
          return (from / 2) * (1 - adjust) + (o + 0.5) / scale - 0.5;
        },
        pytorch_half_pixel: () => (to > 1 ? (o + 0.5) / scale - 0.5 : 0),
        align_corners: () => (to === 1 ? 0 : (o * (from - 1)) / (scale * from - 1)),
        asymmetric: () => o / scale,
        tf_crop_and_resize: () => {
          const [start, end] = [roi[k], roi[k + axes.length]];
          return to > 1
            ? start * (from - 1) + (o * (end - start) * (from - 1)) / (to - 1)
            : 0.5 * (start + end) * (from - 1);
        },
      };
      const at = ways[n.op === 'Upsample' ? 'asymmetric' : coordinates]?.();
      if (at === undefined) throw new NotServed(`coordinates ${coordinates}`);
      if (coordinates === 'tf_crop_and_resize' && (at < 0 || at > from - 1)) {
        outside[o] = 1;
        continue;
      }
      if (mode === 'nearest') {
        const i = {
          round_prefer_floor: Math.ceil(at - 0.5),
          round_prefer_ceil: Math.floor(at + 0.5),
          floor: Math.floor(at),
          ceil: Math.ceil(at),
        }[nearest] as number;
        weights[o * from + Math.min(from - 1, Math.max(0, i))] = 1;
        continue;
      }
      const stretch = antialias && scale < 1 ? scale : 1;
      const reach = (mode === 'cubic' ? 2 : 1) / stretch;
      const kernel = (d: number): number => {
        const v = Math.abs(d * stretch);
        if (mode !== 'cubic') return Math.max(0, 1 - v);
        if (v <= 1) return ((cubic + 2) * v - (cubic + 3)) * v * v + 1;
        return v < 2 ? cubic * (((v - 5) * v + 8) * v - 4) : 0;
      };
      const found: [number, number][] = [];
      for (let i = Math.floor(at - reach) + (antialias ? 0 : 0); i <= Math.ceil(at + reach); i++) {
        const w = kernel(i - at);
        if (w === 0) continue;
        if (exclude && (i < 0 || i > from - 1)) continue;
        found.push([Math.min(from - 1, Math.max(0, i)), w]);
      }
      const sum = exclude || antialias ? found.reduce((s, [, w]) => s + w, 0) : 1;
      for (const [i, w] of found) weights[o * from + i] += w / sum;
    }
    const matrix = Tensor.from(weights, { dtype: 'f64' }).reshape([to, from]);
    const last = y
      .movedim(a, y.rank - 1)
      .matmul(matrix.t())
      .movedim(y.rank - 1, a);
    const hole = Tensor.from(outside, { dtype: 'f64' })
      .ne(0)
      .reshape(y.shape.map((_, i) => (i === a ? to : 1)));
    y = hole.where(extrapolated, last);
  });
  return (whole(x) ? y.roundEven() : y).cast(x.dtype);
}

/** ONNX counts places over all planes, and by columns where it is told to. */
function withPlaces(n: Node, x: Tensor, kernel: readonly number[]): readonly [Tensor, Tensor] {
  const [top, left] = ints(n, 'pads') ?? [0, 0];
  const [down, right] = ints(n, 'strides') ?? [1, 1];
  const [b, c, h, w] = x.shape;
  const size = [kernel[0], kernel[1]] as const;
  const [values, ids] = x.maxPool2dWithIndices(size, [down, right], { padding: [top, left] });
  const at = int(n, 'storage_order', 0) === 0 ? ids : ids.remainder(w).mul(h).add(ids.floorDivide(w));
  return [
    values,
    at.add(
      arange(b * c, { dtype: 'i64' })
        .mul(h * w)
        .reshape([b, c, 1, 1]),
    ),
  ];
}

export const WINDOWS: Readonly<Record<string, Handler>> = {
  ConvInteger: (n) => {
    const zero = (i: number, x: Tensor): Tensor =>
      has(n, i)
        ? x.cast('f64').sub(
            input(n, i)
              .cast('f64')
              .reshape([-1].concat(i === 3 ? x.shape.slice(1).map(() => 1) : [])),
          )
        : x.cast('f64');
    return conv({ ...n, inputs: [zero(2, input(n, 0)), zero(3, input(n, 1))] }).cast('i32');
  },
  Conv: conv,
  ConvTranspose: convTranspose,
  MaxPool: (n) => {
    const x = input(n, 0);
    const kernel = ints(n, 'kernel_shape') as number[];
    if (n.results > 1) return withPlaces(n, x, kernel);
    const y = windows(n, whole(x) ? x.cast('f32') : x, kernel, -Infinity);
    return y.max(lastDims(y, kernel.length)).cast(x.dtype);
  },
  AveragePool: (n) => {
    const x = input(n, 0);
    const kernel = ints(n, 'kernel_shape') as number[];
    const sum = windows(n, x, kernel, 0);
    const dims = lastDims(sum, kernel.length);
    const { begin, end } = windowed(x, n, kernel);
    const ones = int(n, 'count_include_pad', 0) === 1 ? x.onesLike().pad(padList(begin, end), 1) : x.onesLike();
    const plain =
      int(n, 'count_include_pad', 0) === 1
        ? {
            ...n,
            attributes: { ...n.attributes, pads: [...begin.map(() => 0), ...end.map(() => 0)], auto_pad: 'NOTSET' },
          }
        : n;
    const total = sum.sum(dims);
    const counts = windows(plain, ones, kernel, 0).sum(dims);
    return total.div(total.shape.reduce((c, size, d) => c.narrow(d, 0, size), counts));
  },
  LpPool: (n) => {
    const kernel = ints(n, 'kernel_shape') as number[];
    const p = int(n, 'p', 2);
    const y = windows(n, input(n, 0).abs().powf(p), kernel, 0);
    return y.sum(lastDims(y, kernel.length)).powf(1 / p);
  },
  GlobalAveragePool: unary((x) => x.mean(lastDims(x, x.rank - 2), true)),
  GlobalMaxPool: unary((x) => x.max(lastDims(x, x.rank - 2), true)),
  MaxUnpool: (n) => {
    const [x, ids] = [input(n, 0), input(n, 1)];
    const kernel = ints(n, 'kernel_shape') as number[];
    const stride = ints(n, 'strides') ?? kernel.map(() => 1);
    const plain = kernel.map((k, i) => (x.shape[i + 2] - 1) * stride[i] + k);
    const shape = listAt(n, 2) ?? [...x.shape.slice(0, 2), ...plain];
    const inner = [...x.shape.slice(0, 2), ...plain];
    // Indices count in the shape that pooling saw.
    const flat = x
      .newZeros([inner.reduce((a, b) => a * b, 1)])
      .scatter(0, ids.flatten(), x.flatten())
      .reshape(inner);
    return has(n, 2)
      ? flat.pad(
          padList(
            inner.map(() => 0),
            shape.map((v, k) => v - inner[k]),
          ),
        )
      : flat;
  },
  Resize: resize,
  Upsample: resize,
  GridSample: (n) => {
    const mode = { linear: 'bilinear', bilinear: 'bilinear', nearest: 'nearest', cubic: 'bicubic', bicubic: 'bicubic' }[
      text(n, 'mode', 'linear')
    ];
    return input(n, 0).gridSample(input(n, 1), {
      mode,
      paddingMode: text(n, 'padding_mode', 'zeros'),
      alignCorners: int(n, 'align_corners', 0) === 1,
    } as never);
  },
  AffineGrid: (n) => input(n, 0).affineGrid(list(input(n, 1)), { alignCorners: int(n, 'align_corners', 0) === 1 }),
  Col2Im: (n) => {
    const size = list(input(n, 1));
    const pads = ints(n, 'pads') ?? [...size, ...size].map(() => 0);
    const [before, after] = [pads.slice(0, size.length), pads.slice(size.length)];
    if (before.some((p, i) => p !== after[i])) throw new NotServed('uneven padding');
    const [stride, dilation] = ['strides', 'dilations'].map((name) => ints(n, name) ?? 1);
    return input(n, 0).fold(size, list(input(n, 2)), { stride, dilation, padding: before });
  },
};
