// ONNX's operators as calls of tensors, for the node tests of the onnx package: a thin adapter, no part of the product. One
// table and what its longer entries call: kept together, though long, since nothing else uses it.
import type { DType } from '../src/base/dtype.js';
import { cat, einsum, Tensor } from '../src/index.js';

/** An attribute as scripts/golden-onnx.py writes it; tensors were resolved. */
export type Attribute = number | string | readonly number[] | readonly string[] | Tensor | undefined;
export interface Node {
  readonly op: string;
  readonly inputs: readonly (Tensor | undefined)[];
  readonly attributes: Readonly<Record<string, Attribute>>;
  readonly opset: number;
  /** How many results are asked for. */
  readonly results: number;
}
type Handler = (n: Node) => Tensor | readonly (Tensor | undefined)[];
export class NotServed extends Error {}

// ---- reading nodes ----
const DTYPES: Readonly<Record<number, DType>> = {
  1: 'f32',
  2: 'u8',
  5: 'i16',
  6: 'i32',
  7: 'i64',
  9: 'bool',
  10: 'f16',
  11: 'f64',
  12: 'u32',
  16: 'bf16',
  17: 'f8e4m3',
  19: 'f8e5m2',
  3: 'i8',
};
const dtypeOf = (code: number): DType => {
  const d = DTYPES[code];
  if (!d) throw new NotServed(`dtype number ${code}`);
  return d;
};
const RANGES: Readonly<Partial<Record<DType, readonly [number, number]>>> = {
  u8: [0, 255],
  i8: [-128, 127],
  i16: [-32768, 32767],
};
/** A cast as ONNX has it: 8-bit floats take their largest value for what is beyond, unless a node says otherwise. */
function saturating(x: Tensor, to: DType, n: Node): Tensor {
  if (to === 'bool') return x.dtype === 'bool' ? x : x.ne(0);
  const bounded = to === 'f8e5m2' && int(n, 'saturate', 1) === 1;
  return (bounded ? x.clamp(-57344, 57344) : x).cast(to);
}
const has = (n: Node, i: number): boolean => n.inputs[i] !== undefined;
const input = (n: Node, i: number): Tensor => {
  const t = n.inputs[i];
  if (!t) throw new NotServed(`${n.op} without input ${i}`);
  return t;
};
const int = (n: Node, name: string, otherwise: number): number =>
  (n.attributes[name] as number | undefined) ?? otherwise;
const text = (n: Node, name: string, otherwise: string): string =>
  (n.attributes[name] as string | undefined) ?? otherwise;
const ints = (n: Node, name: string): number[] | undefined =>
  n.attributes[name] === undefined ? undefined : [...(n.attributes[name] as readonly number[])];
/** The numbers of a small tensor. */
export const list = (t: Tensor): number[] => Array.from(t.flatten().dataSync() as ArrayLike<number | bigint>, Number);
const listAt = (n: Node, i: number): number[] | undefined => (has(n, i) ? list(input(n, i)) : undefined);
/** Axes by attribute, or by the input that newer versions have. */
const axesOf = (n: Node, i = 1): number[] | undefined => listAt(n, i) ?? ints(n, 'axes');
const whole = (x: Tensor): boolean => !/^(f|bf)/.test(x.dtype);
const same = (x: Tensor, y: Tensor): Tensor => y.cast(x.dtype);
const inFloat = (x: Tensor, f: (x: Tensor) => Tensor): Tensor =>
  x.dtype === 'f32' || x.dtype === 'f64' ? f(x) : f(x.cast('f32')).cast(x.dtype);

// ---- shapes of handlers ----
const unary =
  (f: (x: Tensor, n: Node) => Tensor): Handler =>
  (n) =>
    f(input(n, 0), n);
const binary =
  (f: (x: Tensor, y: Tensor, n: Node) => Tensor): Handler =>
  (n) =>
    f(input(n, 0), input(n, 1), n);
const many =
  (f: (x: Tensor, y: Tensor) => Tensor): Handler =>
  (n) =>
    n.inputs.map((t) => t as Tensor).reduce(f);
const reduce =
  (f: (x: Tensor, dims: number[], keep: boolean) => Tensor): Handler =>
  (n) => {
    const x = input(n, 0);
    const keep = int(n, 'keepdims', 1) === 1;
    const axes = axesOf(n);
    if ((axes === undefined || axes.length === 0) && int(n, 'noop_with_empty_axes', 0) === 1)
      return n.op === 'ReduceSumSquare'
        ? x.mul(x)
        : n.op.includes('Log') || /L[12]/.test(n.op)
          ? f(x.unsqueeze(-1), [x.rank], false)
          : x;
    return f(x, axes && axes.length > 0 ? axes : x.shape.map((_, i) => i), keep);
  };
const windowed = (x: Tensor, n: Node, kernel: readonly number[]) => {
  const rank = x.rank - 2;
  const stride = ints(n, 'strides') ?? new Array<number>(rank).fill(1);
  const dilation = ints(n, 'dilations') ?? new Array<number>(rank).fill(1);
  const auto = text(n, 'auto_pad', 'NOTSET');
  let pads = ints(n, 'pads') ?? new Array<number>(2 * rank).fill(0);
  if (auto === 'VALID') pads = pads.map(() => 0);
  if (auto.startsWith('SAME')) {
    const total = kernel.map((k, i) => {
      const size = x.shape[i + 2];
      return Math.max(0, (Math.ceil(size / stride[i]) - 1) * stride[i] + (k - 1) * dilation[i] + 1 - size);
    });
    const less = total.map((t) => Math.floor(t / 2));
    const more = total.map((t, i) => t - less[i]);
    pads = auto === 'SAME_UPPER' ? [...less, ...more] : [...more, ...less];
  }
  return { rank, stride, dilation, begin: pads.slice(0, rank), end: pads.slice(rank) };
};
/** Padding of the last dimensions as `pad` takes it: last dimension first. */
const padList = (begin: readonly number[], end: readonly number[]): number[] =>
  begin
    .map((b, i) => [b, end[i]])
    .reverse()
    .flat();
const one = <T>(v: readonly T[]): T | readonly T[] => (v.length === 1 ? v[0] : v);

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

// ---- recurrent layers ----
const ACTIVATIONS: Readonly<Record<string, (x: Tensor, a: number, b: number) => Tensor>> = {
  Sigmoid: (x) => x.sigmoid(),
  Tanh: (x) => x.tanh(),
  Relu: (x) => x.relu(),
  Affine: (x, a, b) => x.affine(a, b),
  LeakyRelu: (x, a) => x.leakyRelu(a),
  HardSigmoid: (x, a, b) => x.affine(a, b).clamp(0, 1),
};
function recurrent(
  n: Node,
  gates: number,
  step: (
    n: Node,
    x: Tensor,
    h: Tensor,
    c: Tensor | undefined,
    part: (t: Tensor | undefined, g: number) => Tensor | undefined,
    d: number,
  ) => [Tensor, Tensor?],
): Tensor[] {
  const turned = int(n, 'layout', 0) === 1;
  const x = turned ? input(n, 0).transpose(0, 1) : input(n, 0);
  const [w] = [input(n, 1)];
  const hidden = int(n, 'hidden_size', w.shape[1] / gates);
  const direction = text(n, 'direction', 'forward');
  const [steps, batch] = x.shape;
  const lengths = listAt(n, 4);
  if (lengths && lengths.some((l) => l !== steps)) throw new NotServed('sequences of several lengths');
  const state = (i: number, d: number): Tensor => {
    if (!has(n, i)) return x.newZeros([batch, hidden]);
    const s = turned ? input(n, i).transpose(0, 1) : input(n, i);
    return s.narrow(0, d, 1).squeeze(0);
  };
  const outs: Tensor[] = [];
  const lasts: Tensor[] = [];
  const cells: Tensor[] = [];
  for (let d = 0; d < w.shape[0]; d++) {
    const back = direction === 'reverse' || d === 1;
    const part = (t: Tensor | undefined, g: number): Tensor | undefined =>
      t
        ?.narrow(0, d, 1)
        .squeeze(0)
        .narrow(0, g * hidden, hidden);
    let h = state(5, d);
    let c: Tensor | undefined = n.op === 'LSTM' ? state(6, d) : undefined;
    const ys: Tensor[] = [];
    for (let t = 0; t < steps; t++) {
      [h, c] = step(n, x.narrow(0, back ? steps - 1 - t : t, 1).squeeze(0), h, c, part, d);
      ys.push(h);
    }
    const [first, ...rest] = back ? ys.reverse() : ys;
    outs.push(first.stack(rest, 0));
    lasts.push(h);
    if (c) cells.push(c);
  }
  const [o0, ...o] = outs;
  const [h0, ...hs] = lasts;
  const y = o0.stack(o, 1);
  const h = h0.stack(hs, 0);
  const c = cells.length > 0 ? cells[0].stack(cells.slice(1), 0) : undefined;
  return (turned ? [y.permute([2, 0, 1, 3]), h.transpose(0, 1), c?.transpose(0, 1)] : [y, h, c]) as Tensor[];
}
const activation = (n: Node, i: number, otherwise: string): ((x: Tensor) => Tensor) => {
  const name = (n.attributes.activations as readonly string[] | undefined)?.[i] ?? otherwise;
  const f = ACTIVATIONS[name];
  if (!f) throw new NotServed(`activation ${name}`);
  const alpha = (n.attributes.activation_alpha as readonly number[] | undefined)?.[i] ?? 0.01;
  const beta = (n.attributes.activation_beta as readonly number[] | undefined)?.[i] ?? 0;
  return (x) => f(x, alpha, beta);
};
const clipped = (n: Node, x: Tensor): Tensor => {
  const c = n.attributes.clip as number | undefined;
  return c ? x.clamp(-c, c) : x;
};
const plus = (x: Tensor, y: Tensor | undefined): Tensor => (y ? x.add(y) : x);

// ---- indexing ----
const positive = (ids: Tensor, size: number): Tensor => {
  const wide = ids.cast('i64');
  return wide.lt(0).where(wide.add(size), wide);
};
function gather(n: Node): Tensor {
  const [x, ids] = [input(n, 0), input(n, 1)];
  const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
  const found = x.indexSelect(axis, positive(ids, x.shape[axis]).flatten());
  return found.reshape([...x.shape.slice(0, axis), ...ids.shape, ...x.shape.slice(axis + 1)]);
}
function scatterElements(n: Node): Tensor {
  const [x, ids, updates] = [input(n, 0), input(n, 1), input(n, 2)];
  const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
  const places = positive(ids, x.shape[axis]);
  const kind = text(n, 'reduction', 'none');
  if (kind === 'none') return x.scatter(axis, places, updates);
  const ours = { add: 'sum', mul: 'prod', max: 'amax', min: 'amin' }[kind] as 'sum';
  return x.scatterReduce(axis, places, updates, ours);
}
/** Tuples of indices as places in the flattened leading dimensions. */
function flatPlaces(x: Tensor, ids: Tensor, batch = 0): Tensor {
  const depth = ids.shape[ids.rank - 1];
  let at: Tensor | undefined;
  for (let d = 0; d < depth; d++) {
    const size = x.shape[batch + d];
    const part = positive(ids.narrow(ids.rank - 1, d, 1).squeeze(-1), size);
    at = at ? at.mul(size).add(part) : part;
  }
  return at as Tensor;
}
function scatterNd(n: Node): Tensor {
  const [x, ids, updates] = [input(n, 0), input(n, 1), input(n, 2)];
  const depth = ids.shape[ids.rank - 1];
  const rest = x.shape.slice(depth).reduce((a, b) => a * b, 1);
  const flat = x.reshape([-1, rest]);
  const places = flatPlaces(x, ids)
    .flatten()
    .unsqueeze(1)
    .broadcastTo([ids.size / depth, rest]);
  const values = updates.reshape([-1, rest]);
  const kind = text(n, 'reduction', 'none');
  const ours = { add: 'sum', mul: 'prod', max: 'amax', min: 'amin' }[kind] as 'sum' | undefined;
  return (ours ? flat.scatterReduce(0, places, values, ours) : flat.scatter(0, places.contiguous(), values)).reshape(
    x.shape,
  );
}
function gatherNd(n: Node): Tensor {
  const [x, ids] = [input(n, 0), input(n, 1)];
  const batch = int(n, 'batch_dims', 0);
  const depth = ids.shape[ids.rank - 1];
  const heads = x.shape.slice(0, batch).reduce((a, b) => a * b, 1);
  const rest = x.shape.slice(batch + depth);
  const inner = x.shape.slice(batch, batch + depth).reduce((a, b) => a * b, 1);
  const places = flatPlaces(x, ids, batch).reshape([heads, -1]);
  const flat = x.reshape([heads * inner, ...rest]);
  const first = Tensor.from(
    Array.from({ length: heads }, (_, i) => i * inner),
    { dtype: 'i64' },
  ).unsqueeze(1);
  return flat.indexSelect(0, places.add(first).flatten()).reshape([...ids.shape.slice(0, -1), ...rest]);
}
function slice(n: Node): Tensor {
  let x = input(n, 0);
  const starts = listAt(n, 1) ?? (ints(n, 'starts') as number[]);
  const ends = listAt(n, 2) ?? (ints(n, 'ends') as number[]);
  const axes = listAt(n, 3) ?? ints(n, 'axes') ?? starts.map((_, i) => i);
  const steps = listAt(n, 4) ?? starts.map(() => 1);
  axes.forEach((axis, i) => {
    const a = (axis + x.rank) % x.rank;
    const size = x.shape[a];
    const inside = (v: number, low: number, high: number): number =>
      Math.min(high, Math.max(low, v < 0 ? v + size : v));
    const step = steps[i];
    const places: number[] = [];
    const [begin, end] =
      step > 0
        ? [inside(starts[i], 0, size), inside(ends[i], 0, size)]
        : [inside(starts[i], 0, size - 1), inside(ends[i], -1, size - 1)];
    for (let p = begin; step > 0 ? p < end : p > end; p += step) places.push(p);
    x = places.length === 0 ? x.narrow(a, 0, 0) : x.indexSelect(a, Tensor.from(places, { dtype: 'i64' }));
  });
  return x;
}

// ---- losses ----
function nll(n: Node, logs: Tensor): Tensor {
  const [target, weight] = [input(n, 1), n.inputs[2]];
  const last = logs.rank > 2 ? logs.movedim(1, logs.rank - 1) : logs;
  const ignore = n.attributes.ignore_index as number | undefined;
  return last.nll(target.cast('i64'), {
    reduction: text(n, 'reduction', 'mean') as 'mean',
    ...(weight && { weight }),
    ...(ignore !== undefined && { ignoreIndex: ignore }),
  });
}

// ---- normalisation ----
function layerNorm(n: Node): readonly Tensor[] {
  const x = input(n, 0);
  const axis = (int(n, 'axis', -1) + x.rank) % x.rank;
  const dims = x.shape.map((_, i) => i).slice(axis);
  const eps = (n.attributes.epsilon as number | undefined) ?? 1e-5;
  const w = x.cast(x.dtype === 'f64' ? 'f64' : 'f32');
  const mean = w.mean(dims, true);
  const centred = w.sub(mean);
  const inverse = centred.sqr().mean(dims, true).add(eps).rsqrt();
  const y = centred.mul(inverse).cast(x.dtype).mul(input(n, 1));
  return [has(n, 2) ? y.add(input(n, 2)) : y, mean, inverse];
}
const perChannel = (x: Tensor, t: Tensor): Tensor => t.reshape([1, -1, ...new Array<number>(x.rank - 2).fill(1)]);
function groupNorm(n: Node, groups: number): Tensor {
  const x = input(n, 0);
  const eps = (n.attributes.epsilon as number | undefined) ?? 1e-5;
  const flat = x.reshape([x.shape[0], groups, -1]);
  const centred = flat.sub(flat.mean(2, true));
  const y = centred.mul(centred.sqr().mean(2, true).add(eps).rsqrt()).reshape(x.shape);
  return y.mul(perChannel(x, input(n, 1))).add(perChannel(x, input(n, 2)));
}

const INTEGER_DIVISION: Handler = binary((x, y) =>
  whole(x) ? x.cast('f64').div(y.cast('f64')).trunc().cast(x.dtype) : x.div(y),
);

export const HANDLERS: Readonly<Record<string, Handler>> = {
  Abs: unary((x) => (x.dtype.startsWith('u') ? x : x.abs())),
  Neg: unary((x) => x.neg()),
  Sign: unary((x) => x.sign()),
  Floor: unary((x) => x.floor()),
  Ceil: unary((x) => x.ceil()),
  Round: unary((x) => x.roundEven()),
  Sqrt: unary((x) => x.sqrt()),
  Reciprocal: unary((x) => x.recip()),
  Exp: unary((x) => x.exp()),
  Log: unary((x) => x.log()),
  Sin: unary((x) => x.sin()),
  Cos: unary((x) => x.cos()),
  Tan: unary((x) => x.tan()),
  Asin: unary((x) => x.asin()),
  Acos: unary((x) => x.acos()),
  Atan: unary((x) => x.atan()),
  Sinh: unary((x) => x.sinh()),
  Cosh: unary((x) => x.cosh()),
  Tanh: unary((x) => x.tanh()),
  Asinh: unary((x) => x.asinh()),
  Acosh: unary((x) => x.acosh()),
  Atanh: unary((x) => x.atanh()),
  Erf: unary((x) => x.erf()),
  Relu: unary((x) => (whole(x) ? x.maximum(x.zerosLike()) : x.relu())),
  Sigmoid: unary((x) => x.sigmoid()),
  Softplus: unary((x) => x.softplus()),
  Softsign: unary((x) => x.softsign()),
  Elu: unary((x, n) => x.elu((n.attributes.alpha as number | undefined) ?? 1)),
  Celu: unary((x, n) => x.celu((n.attributes.alpha as number | undefined) ?? 1)),
  Selu: unary((x, n) => {
    const alpha = (n.attributes.alpha as number | undefined) ?? 1.67326319217681884765625;
    const gamma = (n.attributes.gamma as number | undefined) ?? 1.05070102214813232421875;
    return x.elu(alpha).affine(gamma, 0);
  }),
  LeakyRelu: unary((x, n) => x.leakyRelu((n.attributes.alpha as number | undefined) ?? 0.01)),
  ThresholdedRelu: unary((x, n) => x.threshold((n.attributes.alpha as number | undefined) ?? 1, 0)),
  HardSigmoid: unary((x, n) =>
    x
      .affine((n.attributes.alpha as number | undefined) ?? 0.2, (n.attributes.beta as number | undefined) ?? 0.5)
      .clamp(0, 1),
  ),
  HardSwish: unary((x) => x.hardSwish()),
  Mish: unary((x) => x.mish()),
  Swish: unary((x, n) => x.mul(x.affine((n.attributes.alpha as number | undefined) ?? 1, 0).sigmoid())),
  Gelu: unary((x, n) => (text(n, 'approximate', 'none') === 'tanh' ? x.gelu() : x.geluErf())),
  Shrink: unary((x, n) => {
    const [l, b] = [(n.attributes.lambd as number | undefined) ?? 0.5, (n.attributes.bias as number | undefined) ?? 0];
    return x.lt(-l).where(x.affine(1, b), x.gt(l).where(x.affine(1, -b), x.zerosLike()));
  }),
  PRelu: binary((x, s) => x.lt(0).where(x.mul(s), x)),
  Not: unary((x) => x.logicalNot()),
  IsNaN: unary((x) => x.isNan()),
  IsInf: unary((x, n) => {
    const [low, high] = [int(n, 'detect_negative', 1), int(n, 'detect_positive', 1)];
    const found = x.isInf();
    return low && high
      ? found
      : low
        ? found.logicalAnd(x.lt(0))
        : high
          ? found.logicalAnd(x.gt(0))
          : found.logicalAnd(found.logicalNot());
  }),
  Identity: unary((x) => x),
  BitwiseNot: unary((x) => x.bitwiseNot()),
  Add: binary((x, y) => x.add(y)),
  Sub: binary((x, y) => x.sub(y)),
  Mul: binary((x, y) => x.mul(y)),
  Div: INTEGER_DIVISION,
  Pow: binary((x, y) => (whole(x) || whole(y) ? x.cast('f64').pow(y.cast('f64')).cast(x.dtype) : x.pow(same(x, y)))),
  Mod: binary((x, y, n) => (int(n, 'fmod', 0) === 1 ? x.fmod(y) : x.remainder(y))),
  Equal: binary((x, y) => x.eq(y)),
  Less: binary((x, y) => x.lt(y)),
  LessOrEqual: binary((x, y) => x.le(y)),
  Greater: binary((x, y) => x.gt(y)),
  GreaterOrEqual: binary((x, y) => x.ge(y)),
  And: binary((x, y) => x.logicalAnd(y)),
  Or: binary((x, y) => x.logicalOr(y)),
  Xor: binary((x, y) => x.logicalXor(y)),
  BitwiseAnd: binary((x, y) => x.bitwiseAnd(y)),
  BitwiseOr: binary((x, y) => x.bitwiseOr(y)),
  BitwiseXor: binary((x, y) => x.bitwiseXor(y)),
  BitShift: (n) => {
    const [x, by] = [input(n, 0), list(input(n, 1))];
    const data = list(x).map((v, i) =>
      text(n, 'direction', '') === 'LEFT' ? v * 2 ** by[i] : Math.floor(v / 2 ** by[i]),
    );
    return Tensor.from(
      data.map((v) => v % 2 ** (x.dtype === 'u8' ? 8 : 32)),
      { dtype: 'i64' },
    )
      .cast(x.dtype)
      .reshape(x.shape);
  },
  Max: many((x, y) => x.maximum(y)),
  Min: many((x, y) => x.minimum(y)),
  Sum: many((x, y) => x.add(y)),
  Mean: (n) => (HANDLERS.Sum(n) as Tensor).affine(1 / n.inputs.length, 0),
  Where: (n) => input(n, 0).where(input(n, 1), input(n, 2)),
  Clip: (n) => {
    let x = input(n, 0);
    const bound = (i: number, name: string): Tensor | undefined =>
      n.inputs[i] ?? (n.attributes[name] === undefined ? undefined : x.fullLike(n.attributes[name] as number));
    const [low, high] = [bound(1, 'min'), bound(2, 'max')];
    if (low) x = x.maximum(low);
    return high ? x.minimum(high) : x;
  },
  Cast: unary((x, n) => saturating(x, dtypeOf(int(n, 'to', 1)), n)),
  CastLike: binary((x, y, n) => saturating(x, y.dtype, n)),
  BitCast: unary((x, n) => x.bitcast(dtypeOf(int(n, 'to', 1)))),
  Constant: (n) => {
    const { value, value_float, value_floats, value_int, value_ints } = n.attributes;
    if (value instanceof Tensor) return value;
    if (value_float !== undefined) return Tensor.from(value_float as number, { dtype: 'f32' });
    if (value_floats !== undefined) return Tensor.from(value_floats as number[], { dtype: 'f32' });
    if (value_int !== undefined) return Tensor.from(value_int as number, { dtype: 'i64' });
    if (value_ints !== undefined) return Tensor.from(value_ints as number[], { dtype: 'i64' });
    throw new NotServed('a constant of another kind');
  },
  ConstantOfShape: (n) => {
    const value = n.attributes.value as Tensor | undefined;
    return (value ?? Tensor.from([0])).reshape([]).broadcastTo(list(input(n, 0)));
  },
  Shape: unary((x, n) =>
    Tensor.from(
      x.shape.slice(int(n, 'start', 0), n.attributes.end === undefined ? undefined : int(n, 'end', 0)) as number[],
      { dtype: 'i64' },
    ),
  ),
  Size: unary((x) => Tensor.from(x.size, { dtype: 'i64' })),
  Range: (n) => {
    const [start, end, step] = [0, 1, 2].map((i) => list(input(n, i))[0]);
    const count = Math.max(0, Math.ceil((end - start) / step));
    return Tensor.from(
      Array.from({ length: count }, (_, i) => start + i * step),
      { dtype: 'f64' },
    ).cast(input(n, 0).dtype);
  },
  EyeLike: unary((x, n) => {
    const d = n.attributes.dtype === undefined ? x.dtype : dtypeOf(int(n, 'dtype', 1));
    const ones = x.newFull(x.shape, 1, 'f32');
    const k = int(n, 'k', 0);
    return ones.tril(k).triu(k).cast(d);
  }),
  Reshape: (n) => {
    const x = input(n, 0);
    const zero = int(n, 'allowzero', 0) === 1;
    return x.reshape(list(input(n, 1)).map((s, i) => (s === 0 && !zero ? x.shape[i] : s)));
  },
  Flatten: unary((x, n) => {
    const axis = int(n, 'axis', 1);
    const a = axis < 0 ? axis + x.rank : axis;
    return x.reshape([x.shape.slice(0, a).reduce((p, q) => p * q, 1), -1]);
  }),
  Transpose: unary((x, n) => x.permute(ints(n, 'perm') ?? x.shape.map((_, i) => x.rank - 1 - i))),
  Squeeze: unary((x, n) => x.squeeze(axesOf(n) ?? x.shape.flatMap((s, i) => (s === 1 ? [i] : [])))),
  Unsqueeze: unary((x, n) => {
    const axes = axesOf(n) as number[];
    const rank = x.rank + axes.length;
    return axes
      .map((a) => (a + rank) % rank)
      .sort((a, b) => a - b)
      .reduce((y, a) => y.unsqueeze(a), x);
  }),
  Expand: binary((x, s) => {
    const want = list(s);
    const rank = Math.max(want.length, x.rank);
    const at = (v: readonly number[], i: number): number => v[i - (rank - v.length)] ?? 1;
    return x.broadcastTo(Array.from({ length: rank }, (_, i) => (at(want, i) === 1 ? at(x.shape, i) : at(want, i))));
  }),
  Tile: binary((x, times) => x.repeat(list(times))),
  Concat: (n) => (n.inputs.length === 1 ? input(n, 0) : cat(n.inputs as Tensor[], int(n, 'axis', 0))),
  Split: (n) => {
    const x = input(n, 0);
    const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
    const size = Math.ceil(x.shape[axis] / n.results);
    const given = listAt(n, 1) ?? ints(n, 'split');
    const sizes = given ?? Array.from({ length: n.results }, (_, i) => Math.min(size, x.shape[axis] - i * size));
    let at = 0;
    return sizes.map((s) => x.narrow(axis, (at += s) - s, s));
  },
  Slice: slice,
  Gather: gather,
  GatherND: gatherNd,
  ScatterElements: scatterElements,
  Scatter: scatterElements,
  ScatterND: scatterNd,
  GatherElements: (n) => {
    const x = input(n, 0);
    const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
    return x.gather(axis, positive(input(n, 1), x.shape[axis]));
  },
  Pad: (n) => {
    const x = input(n, 0);
    const pads = listAt(n, 1) ?? (ints(n, 'pads') as number[]);
    const axes = listAt(n, 3)?.map((a) => (a + x.rank) % x.rank) ?? x.shape.map((_, i) => i);
    const mode = text(n, 'mode', 'constant');
    const begin = x.shape.map(() => 0);
    const end = x.shape.map(() => 0);
    axes.forEach((a, i) => {
      begin[a] = pads[i];
      end[a] = pads[i + axes.length];
    });
    const fill = has(n, 2) ? list(input(n, 2))[0] : 0;
    if (mode === 'constant') {
      let y = x;
      begin.forEach((b, i) => {
        if (b < 0) y = y.narrow(i, -b, y.shape[i] + b);
      });
      end.forEach((e, i) => {
        if (e < 0) y = y.narrow(i, 0, y.shape[i] + e);
      });
      return y.pad(
        padList(
          begin.map((b) => Math.max(b, 0)),
          end.map((e) => Math.max(e, 0)),
        ),
        fill,
      );
    }
    return x.padMode(
      padList(begin, end),
      { edge: 'replicate', reflect: 'reflect', wrap: 'circular' }[mode] as 'reflect',
    );
  },
  Trilu: unary((x, n) => {
    const k = has(n, 1) ? list(input(n, 1))[0] : 0;
    return int(n, 'upper', 1) === 1 ? x.triu(k) : x.tril(k);
  }),
  OneHot: (n) => {
    const [ids, depth, values] = [input(n, 0), list(input(n, 1))[0], input(n, 2)];
    const codes = positive(ids, depth)
      .unsqueeze(-1)
      .eq(
        Tensor.from(
          Array.from({ length: depth }, (_, i) => i),
          { dtype: 'i64' },
        ),
      );
    const axis = (int(n, 'axis', -1) + ids.rank + 1) % (ids.rank + 1);
    return codes.where(values.narrow(0, 1, 1).squeeze(0), values.narrow(0, 0, 1).squeeze(0)).movedim(ids.rank, axis);
  },
  NonZero: unary((x) => x.nonzero().t().cast('i64')),
  Compress: (n) => {
    const x = n.attributes.axis === undefined ? input(n, 0).flatten() : input(n, 0);
    const at = list(input(n, 1)).flatMap((v, i) => (v ? [i] : []));
    return x.indexSelect((int(n, 'axis', 0) + x.rank) % x.rank, Tensor.from(at, { dtype: 'i64' }));
  },
  DepthToSpace: unary((x, n) => {
    const [b, c, h, w] = x.shape;
    const s = int(n, 'blocksize', 1);
    return text(n, 'mode', 'DCR') === 'DCR'
      ? x
          .reshape([b, s, s, c / (s * s), h, w])
          .permute([0, 3, 4, 1, 5, 2])
          .reshape([b, c / (s * s), h * s, w * s])
      : x.pixelShuffle(s);
  }),
  SpaceToDepth: unary((x, n) => {
    const [b, c, h, w] = x.shape;
    const s = int(n, 'blocksize', 1);
    if (text(n, 'mode', 'DCR') === 'CRD') return x.pixelUnshuffle(s);
    return x
      .reshape([b, c, h / s, s, w / s, s])
      .permute([0, 3, 5, 1, 2, 4])
      .reshape([b, c * s * s, h / s, w / s]);
  }),
  ReverseSequence: (n) => {
    const [x, lengths] = [input(n, 0), list(input(n, 1))];
    const [time, batch] = [int(n, 'time_axis', 0), int(n, 'batch_axis', 1)];
    const turned = lengths.map((l, i) => {
      const row = x.narrow(batch, i, 1);
      return cat([row.narrow(time, 0, l).flip(time), row.narrow(time, l, x.shape[time] - l)], time);
    });
    return cat(turned, batch);
  },
  CenterCropPad: (n) => {
    let x = input(n, 0);
    const want = list(input(n, 1));
    const axes = ints(n, 'axes') ?? want.map((_, i) => i);
    axes.forEach((axis, i) => {
      const a = (axis + x.rank) % x.rank;
      const more = want[i] - x.shape[a];
      if (more < 0) x = x.narrow(a, Math.floor(-more / 2), want[i]);
      else if (more > 0) {
        const [b, e] = [x.shape.map(() => 0), x.shape.map(() => 0)];
        b[a] = Math.floor(more / 2);
        e[a] = more - b[a];
        x = x.pad(padList(b, e));
      }
    });
    return x;
  },
  ReduceSum: reduce((x, d, k) => x.sum(d, k).cast(x.dtype)),
  ReduceMean: reduce((x, d, k) => x.mean(d, k)),
  ReduceMax: reduce((x, d, k) => (x.dtype === 'bool' ? x.cast('u8').max(d, k).ne(0) : x.max(d, k))),
  ReduceMin: reduce((x, d, k) => (x.dtype === 'bool' ? x.cast('u8').min(d, k).ne(0) : x.min(d, k))),
  ReduceProd: reduce((x, d, k) => x.prod(d, k).cast(x.dtype)),
  ReduceL1: reduce((x, d, k) => x.abs().sum(d, k)),
  ReduceL2: reduce((x, d, k) => x.sqr().sum(d, k).sqrt()),
  ReduceSumSquare: reduce((x, d, k) => x.sqr().sum(d, k)),
  ReduceLogSum: reduce((x, d, k) => x.sum(d, k).log()),
  ReduceLogSumExp: reduce((x, d, k) => x.logSumExp(d, k)),
  ArgMax: unary((x, n) => argExtreme(x, n, (t, d) => t.argmax(d))),
  ArgMin: unary((x, n) => argExtreme(x, n, (t, d) => t.argmin(d))),
  CumSum: (n) => scan(n, (x, d) => x.cumsum(d).cast(x.dtype)),
  CumProd: (n) => scan(n, (x, d) => x.cumprod(d).cast(x.dtype), 1),
  TopK: (n) => {
    const [x, k] = [input(n, 0), list(input(n, 1))[0]];
    const axis = (int(n, 'axis', -1) + x.rank) % x.rank;
    const order = int(n, 'largest', 1) === 1 ? x.argsort(axis, { descending: true }) : x.argsort(axis);
    const ids = order.narrow(axis, 0, k);
    return [x.gather(axis, ids), ids.cast('i64')];
  },
  Unique: (n) => {
    if (n.attributes.axis !== undefined) throw new NotServed('unique rows');
    if (int(n, 'sorted', 1) === 0) throw new NotServed('unique elements in order of appearance');
    const [values, inverse, counts] = input(n, 0).unique();
    const seen = list(inverse);
    const first = list(values).map((_, i) => seen.indexOf(i));
    return [values, Tensor.from(first, { dtype: 'i64' }), inverse.flatten().cast('i64'), counts.cast('i64')];
  },
  Softmax: unary((x, n) => softmaxOf(x, n, (t, d) => t.softmax(d))),
  LogSoftmax: unary((x, n) => softmaxOf(x, n, (t, d) => t.logSoftmax(d))),
  Hardmax: unary((x, n) =>
    softmaxOf(x, n, (t, d) => {
      const at = t.argmax(d).unsqueeze(d);
      return t.zerosLike().scatter(d, at, at.onesLike().cast(t.dtype));
    }),
  ),
  MatMul: binary((x, y) => (whole(x) ? x.cast('f64').matmul(y.cast('f64')).cast(x.dtype) : x.matmul(y))),
  MatMulInteger: (n) => {
    const zero = (i: number, x: Tensor): Tensor => {
      if (!has(n, i)) return x.cast('f64');
      return x.cast('f64').sub(input(n, i).cast('f64'));
    };
    return zero(2, input(n, 0))
      .matmul(zero(3, input(n, 1)))
      .cast('i32');
  },
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
  Gemm: (n) => {
    const side = (i: number, name: string): Tensor => (int(n, name, 0) === 1 ? input(n, i).t() : input(n, i));
    const product = side(0, 'transA')
      .matmul(side(1, 'transB'))
      .affine((n.attributes.alpha as number | undefined) ?? 1, 0);
    return has(n, 2) ? product.add(input(n, 2).affine((n.attributes.beta as number | undefined) ?? 1, 0)) : product;
  },
  Einsum: (n) => einsum(text(n, 'equation', '').replaceAll(' ', ''), ...(n.inputs as Tensor[])),
  Det: unary((x) => x.det()),
  Conv: conv,
  ConvTranspose: convTranspose,
  MaxPool: (n) => {
    if (n.results > 1) throw new NotServed('places of maxima');
    const x = input(n, 0);
    const kernel = ints(n, 'kernel_shape') as number[];
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
    if (size.length !== 2) throw new NotServed('Col2Im of other than two dimensions');
    const pads = ints(n, 'pads') ?? [0, 0, 0, 0];
    if (pads[0] !== pads[2] || pads[1] !== pads[3]) throw new NotServed('uneven padding');
    return input(n, 0).fold(size as [number, number], list(input(n, 2)) as [number, number], {
      stride: (ints(n, 'strides') ?? [1, 1]) as [number, number],
      dilation: (ints(n, 'dilations') ?? [1, 1]) as [number, number],
      padding: [pads[0], pads[1]],
    });
  },
  BatchNormalization: (n) => {
    if (int(n, 'training_mode', 0) === 1) {
      const x = input(n, 0);
      const dims = x.shape.map((_, i) => i).filter((i) => i !== 1);
      const m = (n.attributes.momentum as number | undefined) ?? 0.9;
      const [mean, variance] = [x.mean(dims), x.variance(dims, false, 0)];
      const y = x
        .sub(perChannel(x, mean))
        .mul(perChannel(x, variance.add((n.attributes.epsilon as number | undefined) ?? 1e-5).rsqrt()));
      return [
        y.mul(perChannel(x, input(n, 1))).add(perChannel(x, input(n, 2))),
        input(n, 3)
          .affine(m, 0)
          .add(mean.affine(1 - m, 0)),
        input(n, 4)
          .affine(m, 0)
          .add(variance.affine(1 - m, 0)),
      ];
    }
    const x = input(n, 0);
    const [scale, bias, mean, variance] = [1, 2, 3, 4].map((i) => perChannel(x, input(n, i)));
    return x
      .sub(mean)
      .mul(variance.add((n.attributes.epsilon as number | undefined) ?? 1e-5).rsqrt())
      .mul(scale)
      .add(bias);
  },
  LayerNormalization: (n) => layerNorm(n).slice(0, n.results),
  RMSNormalization: (n) => {
    const x = input(n, 0);
    const axis = (int(n, 'axis', -1) + x.rank) % x.rank;
    const dims = x.shape.map((_, i) => i).slice(axis);
    return inFloat(x, (w) =>
      w.mul(
        w
          .sqr()
          .mean(dims, true)
          .add((n.attributes.epsilon as number | undefined) ?? 1e-5)
          .rsqrt(),
      ),
    ).mul(input(n, 1));
  },
  InstanceNormalization: (n) => groupNorm(n, input(n, 0).shape[1]),
  GroupNormalization: (n) => groupNorm(n, int(n, 'num_groups', 1)),
  LRN: unary((x, n) => {
    const size = int(n, 'size', 1);
    const alpha = (n.attributes.alpha as number | undefined) ?? 1e-4;
    // ONNX puts the longer half behind, PyTorch before: only odd sizes are one.
    if (size % 2 === 0) throw new NotServed('an even window');
    return x.localResponseNorm(size, {
      alpha,
      beta: (n.attributes.beta as number | undefined) ?? 0.75,
      k: (n.attributes.bias as number | undefined) ?? 1,
    });
  }),
  LpNormalization: unary((x, n) => x.normalize({ p: int(n, 'p', 2), dim: int(n, 'axis', -1), eps: 1e-38 })),
  MeanVarianceNormalization: unary((x, n) => {
    const axes = ints(n, 'axes') ?? [0, 2, 3];
    return x.sub(x.mean(axes, true)).div(x.std(axes, true, 0).add(1e-9));
  }),
  Dropout: (n) => {
    const [ratio, training] = [
      listAt(n, 1)?.[0] ?? (n.attributes.ratio as number | undefined) ?? 0.5,
      listAt(n, 2)?.[0] ?? 0,
    ];
    if (training && ratio > 0) throw new NotServed('random numbers of another generator');
    return [input(n, 0), input(n, 0).onesLike().ne(0)].slice(0, n.results);
  },
  NegativeLogLikelihoodLoss: (n) => nll(n, input(n, 0)),
  SoftmaxCrossEntropyLoss: (n) => {
    const logs = input(n, 0).logSoftmax(1);
    return [nll(n, logs), logs].slice(0, n.results);
  },
  RNN: (n) =>
    recurrent(n, 1, (m, x, h, _c, part, d) => {
      const b = m.inputs[3];
      const sum = plus(
        plus(
          x.matmul((part(input(m, 1), 0) as Tensor).t()).add(h.matmul((part(input(m, 2), 0) as Tensor).t())),
          part(b, 0),
        ),
        part(b, 1),
      );
      return [activation(m, d, 'Tanh')(clipped(m, sum))];
    }),
  GRU: (n) =>
    recurrent(n, 3, (m, x, h, _c, part, d) => {
      const b = m.inputs[3];
      const [f, g] = [activation(m, 2 * d, 'Sigmoid'), activation(m, 2 * d + 1, 'Tanh')];
      const wx = (i: number): Tensor => plus(x.matmul((part(input(m, 1), i) as Tensor).t()), part(b, i));
      const rh = (i: number, s: Tensor): Tensor => plus(s.matmul((part(input(m, 2), i) as Tensor).t()), part(b, 3 + i));
      const z = f(clipped(m, wx(0).add(rh(0, h))));
      const r = f(clipped(m, wx(1).add(rh(1, h))));
      const late = int(m, 'linear_before_reset', 0) === 1;
      const fresh = g(clipped(m, wx(2).add(late ? r.mul(rh(2, h)) : rh(2, r.mul(h)))));
      return [fresh.add(z.mul(h.sub(fresh)))];
    }),
  LSTM: (n) =>
    recurrent(n, 4, (m, x, h, c, part, d) => {
      const b = m.inputs[3];
      const [f, g, o] = ['Sigmoid', 'Tanh', 'Tanh'].map((name, i) => activation(m, 3 * d + i, name));
      const gate = (i: number): Tensor =>
        plus(
          plus(
            x.matmul((part(input(m, 1), i) as Tensor).t()).add(h.matmul((part(input(m, 2), i) as Tensor).t())),
            part(b, i),
          ),
          part(b, 4 + i),
        );
      const peep = (i: number, s: Tensor): Tensor | undefined => part(m.inputs[7], i)?.mul(s);
      const cell = c as Tensor;
      const i = f(clipped(m, plus(gate(0), peep(0, cell))));
      const forget = f(clipped(m, plus(gate(2), peep(2, cell))));
      const next = forget.mul(cell).add(i.mul(g(clipped(m, gate(3)))));
      const out = f(clipped(m, plus(gate(1), peep(1, next))));
      return [out.mul(o(next)), next];
    }),
  HannWindow: (n) => cosines(n, [0.5, 0.5]),
  HammingWindow: (n) => cosines(n, [25 / 46, 1 - 25 / 46]),
  BlackmanWindow: (n) => cosines(n, [0.42, 0.5, 0.08]),
  DynamicQuantizeLinear: (n) => {
    const x = input(n, 0);
    const [low, high] = [Math.min(0, x.min().item() as number), Math.max(0, x.max().item() as number)];
    const scale = Math.fround(Math.fround(high - low) / 255);
    const zero = Math.min(255, Math.max(0, roundEven(-low / scale)));
    const y = x.div(x.fullLike(scale)).roundEven().add(zero).clamp(0, 255).cast('u8');
    return [y, Tensor.from(scale, { dtype: 'f32' }), Tensor.from(zero, { dtype: 'u8' })];
  },
  QuantizeLinear: (n) => {
    const x = input(n, 0);
    const zero = n.inputs[2];
    const to = zero?.dtype ?? (n.attributes.output_dtype ? dtypeOf(int(n, 'output_dtype', 2)) : 'u8');
    const range = RANGES[to];
    if (!range && !to.startsWith('f8')) throw new NotServed(`quantizing to ${to}`);
    const scaled = x.cast('f32').div(spread(n, x, input(n, 1)).cast('f32'));
    if (!range) return saturating(scaled, to, n);
    const rounded = scaled.roundEven();
    return (zero ? rounded.add(spread(n, x, zero).cast('f32')) : rounded).clamp(...range).cast(to);
  },
  DequantizeLinear: (n) => {
    const [x, scale] = [input(n, 0), input(n, 1)];
    const shifted = has(n, 2) ? x.cast('f32').sub(spread(n, x, input(n, 2)).cast('f32')) : x.cast('f32');
    return shifted.mul(spread(n, x, scale).cast('f32')).cast(scale.dtype);
  },
  RotaryEmbedding: (n) => rotary(n),
  Attention: (n) => attend(n),
  DFT: (n) => fourier(n),
  STFT: (n) => shortFourier(n),
  TensorScatter: (n) => tensorScatter(n),
  SwiGLU: binary((x, y, n) => x.mul(x.affine((n.attributes.alpha as number | undefined) ?? 1, 0).sigmoid()).mul(y)),
  QLinearMatMul: (n) => qlinear(n),
  Binarizer: unary((x, n) => x.gt((n.attributes.threshold as number | undefined) ?? 0).cast(x.dtype)),
};
const roundEven = (v: number): number => (Math.abs(v % 1) === 0.5 ? 2 * Math.round(v / 2) : Math.round(v));

function spread(n: Node, x: Tensor, t: Tensor): Tensor {
  if (t.size === 1) return t.reshape([]);
  const axis = (int(n, 'axis', 1) + x.rank) % x.rank;
  const block = int(n, 'block_size', 0);
  if (block > 0) return t.repeatInterleave(block, axis).narrow(axis, 0, x.shape[axis]);
  return t.reshape(x.shape.map((_, i) => (i === axis ? t.size : 1)));
}
function cosines(n: Node, terms: readonly number[]): Tensor {
  const size = list(input(n, 0))[0];
  const over = int(n, 'periodic', 1) === 1 ? size : size - 1;
  const values = Array.from({ length: size }, (_, i) =>
    terms.reduce((s, a, k) => s + (k % 2 ? -a : a) * Math.cos((2 * Math.PI * k * i) / over), 0),
  );
  return Tensor.from(values, { dtype: 'f64' }).cast(dtypeOf(int(n, 'output_datatype', 1)));
}
function softmaxOf(x: Tensor, n: Node, f: (x: Tensor, dim: number) => Tensor): Tensor {
  const rank = Math.max(x.rank, 1);
  if (n.opset >= 13) return f(x, (int(n, 'axis', -1) + rank) % rank);
  const axis = (int(n, 'axis', 1) + rank) % rank;
  return f(x.reshape([x.shape.slice(0, axis).reduce((a, b) => a * b, 1), -1]), 1).reshape(x.shape);
}
function argExtreme(x: Tensor, n: Node, f: (x: Tensor, dim: number) => Tensor): Tensor {
  const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
  const last = int(n, 'select_last_index', 0) === 1;
  const found = f(last ? x.flip(axis) : x, axis).cast('i64');
  const at = last ? found.neg().add(x.shape[axis] - 1) : found;
  return int(n, 'keepdims', 1) === 1 ? at.unsqueeze(axis) : at;
}
function scan(n: Node, f: (x: Tensor, dim: number) => Tensor, neutral = 0): Tensor {
  let x = input(n, 0);
  const axis = (list(input(n, 1))[0] + x.rank) % x.rank;
  const reverse = int(n, 'reverse', 0) === 1;
  if (reverse) x = x.flip(axis);
  if (int(n, 'exclusive', 0) === 1) {
    const first = x.narrow(axis, 0, 1).fullLike(neutral);
    x = cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis);
  }
  const y = f(x, axis);
  return reverse ? y.flip(axis) : y;
}
function rotary(n: Node): Tensor {
  const given = input(n, 0);
  const heads = int(n, 'num_heads', 0);
  const x = given.rank === 3 ? given.reshape([given.shape[0], given.shape[1], heads, -1]).transpose(1, 2) : given;
  const [cosAll, sinAll, ids] = [input(n, 1), input(n, 2), n.inputs[3]];
  const size = int(n, 'rotary_embedding_dim', 0) || x.shape[3];
  const pick = (t: Tensor): Tensor => {
    const rowsOf = ids ? t.indexSelect(0, ids.cast('i64').flatten()).reshape([...ids.shape, -1]) : t;
    return rowsOf.narrow(2, 0, size / 2).unsqueeze(1);
  };
  const [cos, sin] = [pick(cosAll), pick(sinAll)];
  const turned = x.narrow(3, 0, size);
  const rest = x.narrow(3, size, x.shape[3] - size);
  const even = int(n, 'interleaved', 0) === 1;
  const [a, b] = even
    ? [turned.at('...', [0, undefined, 2]), turned.at('...', [1, undefined, 2])]
    : [turned.narrow(3, 0, size / 2), turned.narrow(3, size / 2, size / 2)];
  const [p, q] = [a.mul(cos).sub(b.mul(sin)), a.mul(sin).add(b.mul(cos))];
  const joined = even ? p.stack([q], 4).reshape(turned.shape) : cat([p, q], 3);
  const y = rest.shape[3] > 0 ? cat([joined, rest], 3) : joined;
  return given.rank === 3 ? y.transpose(1, 2).reshape(given.shape) : y;
}

/** Scores that a query may not see count as -Infinity; a query that sees nothing answers zeros. */
function attend(n: Node): readonly Tensor[] {
  const [q0, k0, v0] = [input(n, 0), input(n, 1), input(n, 2)];
  const heads = (x: Tensor, count: number): Tensor =>
    x.rank === 4 ? x : x.reshape([x.shape[0], x.shape[1], count, -1]).transpose(1, 2);
  const q = heads(q0, int(n, 'q_num_heads', 0));
  const joined = (x: Tensor, past: Tensor | undefined): Tensor => (past ? cat([past, x], 2) : x);
  const k = joined(heads(k0, int(n, 'kv_num_heads', 0)), n.inputs[4]);
  const v = joined(heads(v0, int(n, 'kv_num_heads', 0)), n.inputs[5]);
  const [batch, qHeads, rows, dim] = q.shape;
  const columns = k.shape[2];
  const group = qHeads / k.shape[1];
  const spread = (x: Tensor): Tensor => (group > 1 ? x.repeatInterleave(group, 1) : x);
  const compute: DType = q.dtype === 'f64' ? 'f64' : 'f32';
  const scale = (n.attributes.scale as number | undefined) ?? 1 / Math.sqrt(dim);
  const raw = q.cast(compute).matmul(spread(k).cast(compute).transpose(2, 3)).affine(scale, 0);
  const cap = (n.attributes.softcap as number | undefined) ?? 0;
  const capped =
    cap > 0
      ? raw
          .affine(1 / cap, 0)
          .tanh()
          .affine(cap, 0)
      : raw;
  // Which column each row may see, batch by batch.
  const lengths = listAt(n, 6) ?? new Array<number>(batch).fill(columns);
  const [causal, left, right] = [
    int(n, 'is_causal', 0) === 1,
    int(n, 'left_window_size', -1),
    int(n, 'right_window_size', -1),
  ];
  const seen = lengths.flatMap((length) => {
    const offset = n.inputs[4] ? n.inputs[4].shape[2] : has(n, 6) ? length - rows : 0;
    return Array.from({ length: rows * columns }, (_, at) => {
      const [i, j] = [Math.floor(at / columns) + offset, at % columns];
      const near = (left < 0 || j >= i - left) && (right < 0 || j <= i + right);
      return j < length && (!causal || j <= i) && near ? 1 : 0;
    });
  });
  let open = Tensor.from(seen, { dtype: 'u8' }).ne(0).reshape([batch, 1, rows, columns]);
  let scores = capped;
  const mask = n.inputs[3];
  if (mask) {
    const short = columns - mask.shape[mask.rank - 1];
    const wide =
      short > 0
        ? mask.dtype === 'bool'
          ? mask.cast('u8').pad([0, short]).ne(0)
          : mask.cast(compute).pad([0, short], -Infinity)
        : mask;
    if (wide.dtype === 'bool') open = open.logicalAnd(wide);
    else {
      const bias = wide.cast(compute);
      open = open.logicalAnd(bias.ne(-Infinity));
      scores = scores.add(bias.eq(-Infinity).where(0, bias));
    }
  }
  const masked = open.where(scores, scores.fullLike(-Infinity));
  const blind = masked.max(3, true).eq(-Infinity);
  const weights = blind.where(0, blind.where(0, masked).softmax(3));
  const mixed = weights.cast(compute).matmul(spread(v).cast(compute)).cast(q0.dtype);
  const y = q0.rank === 4 ? mixed : mixed.transpose(1, 2).reshape([batch, rows, -1]);
  const shown = [raw, capped, masked, weights][int(n, 'qk_matmul_output_mode', 0)].cast(q0.dtype);
  return [y, k, v, shown];
}
function fourier(n: Node): Tensor {
  const x = input(n, 0);
  const axis = ((listAt(n, 2)?.[0] ?? int(n, 'axis', n.opset >= 20 ? -2 : 1)) + x.rank) % x.rank;
  const length = listAt(n, 1)?.[0] ?? x.shape[axis];
  const [inverse, oneSided] = [int(n, 'inverse', 0) === 1, int(n, 'onesided', 0) === 1];
  const part = (i: number): Tensor =>
    i < x.shape[x.rank - 1]
      ? x.narrow(x.rank - 1, i, 1).squeeze(-1)
      : x
          .narrow(x.rank - 1, 0, 1)
          .squeeze(-1)
          .zerosLike();
  const sized = (t: Tensor): Tensor => {
    const size = t.shape[axis];
    if (size >= length) return t.narrow(axis, 0, length);
    const grow = t.shape.map((_, i) => (i === axis ? length - size : 0));
    return t.pad(
      padList(
        grow.map(() => 0),
        grow,
      ),
    );
  };
  if (inverse && oneSided) {
    const whole = listAt(n, 1)?.[0] ?? 2 * (x.shape[axis] - 1);
    return part(0).irfft(part(1), { n: whole, dim: axis }).unsqueeze(-1);
  }
  const [re, im] = inverse
    ? sized(part(0)).ifft(sized(part(1)), { dim: axis })
    : sized(part(0)).fft(sized(part(1)), { dim: axis });
  const kept = (t: Tensor): Tensor => (oneSided ? t.narrow(axis, 0, Math.floor(length / 2) + 1) : t);
  return kept(re).stack([kept(im)], x.rank - 1);
}
function shortFourier(n: Node): Tensor {
  const signal = input(n, 0).rank === 3 ? input(n, 0).squeeze(-1) : input(n, 0);
  const step = list(input(n, 1))[0];
  const length = listAt(n, 3)?.[0] ?? input(n, 2).size;
  const frames = signal.unfold(1, length, step);
  const shaped = has(n, 2) ? frames.mul(input(n, 2)) : frames;
  const [re, im] = int(n, 'onesided', 1) === 1 ? shaped.rfft() : shaped.fft(shaped.zerosLike());
  return re.stack([im], 3);
}
/** Updates written into each sequence from its own place on, over the end to the beginning if circular. */
function tensorScatter(n: Node): Tensor {
  const [past, update] = [input(n, 0), input(n, 1)];
  const axis = (int(n, 'axis', -2) + past.rank) % past.rank;
  const places = listAt(n, 2) ?? new Array<number>(past.shape[0]).fill(0);
  const written = places.map((first, b) => {
    const [old, fresh] = [past.narrow(0, b, 1), update.narrow(0, b, 1)];
    const at = Array.from({ length: fresh.shape[axis] }, (_, i) => (first + i) % past.shape[axis]);
    const ids = Tensor.from(at, { dtype: 'i64' }).reshape(old.shape.map((_, i) => (i === axis ? at.length : 1)));
    return old.scatter(axis, ids.broadcastTo(fresh.shape).contiguous(), fresh);
  });
  return cat(written, 0);
}
function qlinear(n: Node): Tensor {
  const [a, aScale, aZero, b, bScale, bZero, yScale, yZero] = n.inputs.map((t) => t as Tensor);
  const real = (x: Tensor, scale: Tensor, zero: Tensor): Tensor =>
    x.cast('f64').sub(zero.cast('f64')).mul(scale.cast('f64'));
  const y = real(a, aScale, aZero)
    .matmul(real(b, bScale, bZero))
    .div(yScale.cast('f64'))
    .roundEven()
    .add(yZero.cast('f64'));
  const range = RANGES[yZero.dtype];
  if (!range) throw new NotServed(`results of ${yZero.dtype}`);
  return y.clamp(...range).cast(yZero.dtype);
}
