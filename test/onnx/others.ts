// ONNX's layers that are loops over other ops here: attention with a state, boxes, windows that move, optimizers.
import { arange, cat, stack, Tensor, tensor } from '../../src/index.js';
import { type Handler, has, input, int, list, listAt, type Node, NotServed, text, windowed } from './node.js';
import { WINDOWS } from './windows.js';

const float = (n: Node, name: string, otherwise: number): number => int(n, name, otherwise);
/** (batch, time, heads * size) as (batch, heads, time, size), in f32 at least. */
const byHeads = (x: Tensor, heads: number): Tensor => {
  const wide = x.dtype === 'f16' ? x.cast('f32') : x;
  return wide.reshape([x.shape[0], x.shape[1], heads, x.shape[2] / heads]).transpose(1, 2);
};

function flexAttention(n: Node): Tensor {
  if (Object.keys(n.attributes).some((name) => name.endsWith('_mod'))) throw new NotServed('a graph inside');
  const [q, k, v] = [0, 1, 2].map((i) => input(n, i));
  const scale = float(n, 'scale', 1 / Math.sqrt(q.shape[3]));
  const groups = q.shape[1] / k.shape[1];
  const shared = (x: Tensor): Tensor => (groups > 1 ? x.repeatInterleave(groups, 1) : x);
  return q.mul(scale).matmul(shared(k).transpose(2, 3)).softmax(-1).matmul(shared(v));
}

/** S = decay S + k (v - S^T k, or v)^T; the answer is scale S^T q, a step after another. */
function linearAttention(n: Node): readonly Tensor[] {
  const rule = text(n, 'update_rule', 'gated_delta');
  const [heads, queries] = [int(n, 'kv_num_heads', 1), int(n, 'q_num_heads', 1)];
  const dtype = input(n, 0).dtype;
  const q = byHeads(input(n, 0), queries);
  const [k, v] = [1, 2].map((i) => byHeads(input(n, i), heads).repeatInterleave(queries / heads, 1));
  const [batch, , time, size] = q.shape;
  const wide = (x: Tensor): Tensor => (x.dtype === 'f16' ? x.cast('f32') : x);
  const past = has(n, 3) ? wide(input(n, 3)) : q.newZeros([batch, heads, size, v.shape[3]], q.dtype);
  let state = past.repeatInterleave(queries / heads, 1);
  const perHead = (i: number): Tensor | undefined => {
    if (!has(n, i)) return undefined;
    const x = wide(input(n, i));
    const split = x.reshape([batch, time, -1]);
    const own = split.shape[2] % heads === 0 ? byHeads(split, heads) : byHeads(split, 1);
    return own.shape[1] === 1 ? own : own.repeatInterleave(queries / heads, 1);
  };
  const [decay, beta] = [perHead(4), perHead(5)];
  const scale = float(n, 'scale', 0) || 1 / Math.sqrt(size);
  const out: Tensor[] = [];
  for (let t = 0; t < time; t++) {
    const at = (x: Tensor): Tensor => x.narrow(2, t, 1).transpose(2, 3); // (batch, heads, size, 1)
    if (rule.includes('gated') && decay) state = state.mul(at(decay).exp());
    const [key, value] = [at(k), v.narrow(2, t, 1)];
    const seen = rule.includes('delta') ? value.sub(key.transpose(2, 3).matmul(state)) : value;
    state = state.add(key.matmul(rule.includes('delta') && beta ? seen.mul(at(beta)) : seen));
    out.push(q.narrow(2, t, 1).matmul(state).mul(scale));
  }
  const y = cat(out, 2).transpose(1, 2).reshape([batch, time, -1]);
  const kept = state.reshape([batch, heads, queries / heads, size, v.shape[3]]).get(0, 2);
  return [y.cast(dtype), kept.cast(dtype)];
}

/** Each channel convolved with what came before it; the state is the last of that. */
function causalConv(n: Node): readonly Tensor[] {
  const [x, w] = [input(n, 0), input(n, 1)];
  const [batch, channels] = x.shape;
  const before = w.shape[2] - 1;
  const past = has(n, 3) ? input(n, 3) : x.newZeros([batch, channels, before], x.dtype);
  const whole = before > 0 ? cat([past, x], 2) : x;
  const bias = has(n, 2) ? { bias: input(n, 2) } : {};
  const y = whole.conv1d(w, { groups: channels, ...bias });
  const activation = text(n, 'activation', 'none');
  const state = whole.narrow(2, whole.shape[2] - before, before);
  return [activation === 'silu' || activation === 'swish' ? y.silu() : y, state];
}

/** The best boxes one after another, without those that overlap one that was taken. */
function suppressed(n: Node): Tensor {
  const [boxes, scores] = [input(n, 0), input(n, 1)].map((x) => x.toArray() as unknown as number[][][]);
  const [most = 0, overlap = 0, least = -Infinity] = [2, 3, 4].map((i) => listAt(n, i)?.[0]);
  const corners = ([a, b, c, d]: number[]): number[] =>
    int(n, 'center_point_box', 0) === 1
      ? [b - d / 2, a - c / 2, b + d / 2, a + c / 2]
      : [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)];
  const area = ([a, b, c, d]: number[]): number => Math.max(0, c - a) * Math.max(0, d - b);
  const share = (p: number[], q: number[]): number => {
    const both = area([0, 1, 2, 3].map((i) => (i < 2 ? Math.max(p[i], q[i]) : Math.min(p[i], q[i]))));
    return both / (area(p) + area(q) - both);
  };
  const found: number[][] = [];
  scores.forEach((classes, batch) => {
    const placed = boxes[batch].map(corners);
    classes.forEach((row, kind) => {
      const taken: number[] = [];
      const order = row.map((_, i) => i).sort((i, j) => row[j] - row[i]);
      for (const i of order)
        if (taken.length < most && row[i] > least && taken.every((j) => share(placed[i], placed[j]) <= overlap))
          taken.push(i);
      found.push(...taken.map((i) => [batch, kind, i]));
    });
  });
  return found.length > 0 ? tensor(found, { dtype: 'i64' }) : tensor(0, { dtype: 'i64' }).newZeros([0, 3], 'i64');
}

/** Pixels between pixels: pictures (channels, height, width) at places, with what `outside` says beyond the border. */
function between(x: Tensor, ys: Tensor, xs: Tensor, outside: 'zeros' | 'border'): Tensor {
  const [, h, w] = x.shape;
  const norm = (at: Tensor, size: number): Tensor =>
    at
      .add(0.5)
      .mul(2 / size)
      .sub(1);
  const grid = stack([norm(xs, w), norm(ys, h)], -1).reshape([1, 1, -1, 2]);
  const options = { mode: 'bilinear', paddingMode: outside, alignCorners: false } as const;
  return x
    .unsqueeze(0)
    .gridSample(grid, options)
    .reshape([x.shape[0], ...ys.shape]);
}

function roiAlign(n: Node): Tensor {
  const [x, boxes] = [input(n, 0), input(n, 1).toArray() as unknown as number[][]];
  const [h, w] = [int(n, 'output_height', 1), int(n, 'output_width', 1)];
  const scale = float(n, 'spatial_scale', 1);
  const half = text(n, 'coordinate_transformation_mode', 'half_pixel') === 'half_pixel';
  const largest = text(n, 'mode', 'avg') === 'max';
  const each = boxes.map((box, b) => {
    const [left, top, right, bottom] = box.map((v) => v * scale - (half ? 0.5 : 0));
    const size = (a: number): number => (half ? a : Math.max(1, a));
    const [height, width] = [size(bottom - top), size(right - left)];
    const counts = [height / h, width / w].map((s) => int(n, 'sampling_ratio', 0) || Math.ceil(s));
    const places = (begin: number, whole: number, out: number, count: number): Tensor =>
      arange(out * count, { dtype: x.dtype })
        .add(0.5)
        .mul(whole / out / count)
        .add(begin);
    const [rows, columns] = [places(top, height, h, counts[0]), places(left, width, w, counts[1])];
    const shape = [h * counts[0], w * counts[1]];
    const picture = x.get(list(input(n, 2))[b]);
    const [ys, xs] = [rows.unsqueeze(1).broadcastTo(shape), columns.broadcastTo(shape)];
    const windows = (t: Tensor): Tensor => t.reshape([-1, h, counts[0], w, counts[1]]);
    if (!largest) return windows(between(picture, ys, xs, 'border')).mean([2, 4]);
    return windows(corners(picture, ys, xs)).max([2, 4]);
  });
  return stack(each, 0);
}
/** The largest of the four weighed pixels around each place, as ONNX's maximum has it. */
function corners(x: Tensor, ys: Tensor, xs: Tensor): Tensor {
  const [c, h, w] = x.shape;
  const [y, z] = [ys.clamp(0, h - 1), xs.clamp(0, w - 1)];
  const flat = x.reshape([c, h * w]);
  const at = (row: Tensor, column: Tensor): Tensor =>
    flat.indexSelect(1, row.mul(w).add(column).cast('i64').flatten()).reshape([c, ...ys.shape]);
  const [y0, x0] = [y.floor(), z.floor()];
  const [y1, x1] = [y0.add(1).clamp(0, h - 1), x0.add(1).clamp(0, w - 1)];
  const [dy, dx] = [y.sub(y0), z.sub(x0)];
  const rest = (d: Tensor): Tensor => d.affine(-1, 1);
  return [
    at(y0, x0).mul(rest(dy).mul(rest(dx))),
    at(y0, x1).mul(rest(dy).mul(dx)),
    at(y1, x0).mul(dy.mul(rest(dx))),
    at(y1, x1).mul(dy.mul(dx)),
  ].reduce((a, b) => a.maximum(b));
}

/** A convolution whose windows are taken where the offsets say. */
function deformConv(n: Node): Tensor {
  const [x, w, offsets] = [input(n, 0), input(n, 1), input(n, 2)];
  const [kh, kw] = w.shape.slice(2);
  const { stride, dilation, begin } = windowed(x, n, [kh, kw]);
  const [groups, fields] = [int(n, 'group', 1), int(n, 'offset_group', 1)];
  const [batch, channels] = x.shape;
  const [oh, ow] = offsets.shape.slice(2);
  const moved = offsets.reshape([batch, fields, kh * kw, 2, oh, ow]);
  const masks = has(n, 4) ? input(n, 4).reshape([batch, fields, kh * kw, oh, ow]) : undefined;
  const [rows, columns] = [oh, ow].map((size, i) => arange(size, { dtype: x.dtype }).mul(stride[i]).sub(begin[i]));
  const per = channels / fields;
  const pictures = Array.from({ length: batch }, (_, b) => {
    const parts = Array.from({ length: fields }, (_unused, f) => {
      const field = x.get(b).narrow(0, f * per, per);
      const taps = Array.from({ length: kh * kw }, (_none, k) => {
        const move = moved.get(b).get(f).get(k);
        const ys = rows
          .unsqueeze(1)
          .add(Math.floor(k / kw) * dilation[0])
          .add(move.get(0));
        const xs = columns.add((k % kw) * dilation[1]).add(move.get(1));
        const taken = between(field, ys, xs, 'zeros');
        return masks ? taken.mul(masks.get(b).get(f).get(k)) : taken;
      });
      return stack(taps, 1);
    });
    return cat(parts, 0); // (channels, kernel, height, width)
  });
  const windows = stack(pictures, 0).reshape([batch, groups, (channels / groups) * kh * kw, oh * ow]);
  const y = w
    .reshape([1, groups, w.shape[0] / groups, (channels / groups) * kh * kw])
    .matmul(windows)
    .reshape([batch, w.shape[0], oh, ow]);
  return has(n, 3) ? y.add(input(n, 3).reshape([1, -1, 1, 1])) : y;
}

/** R, T, then parameters, gradients and states, each one after another. */
function optimizer(states: number, step: (n: Node, rate: number, t: number, of: Tensor[]) => Tensor[]): Handler {
  return (n) => {
    const [rate, t, ...rest] = n.inputs as Tensor[];
    const count = rest.length / (2 + states);
    const made = Array.from({ length: count }, (_, i) =>
      step(
        n,
        list(rate)[0],
        list(t)[0],
        Array.from({ length: 2 + states }, (_unused, k) => rest[k * count + i]),
      ),
    );
    return Array.from({ length: 1 + states }, (_, k) => made.map((m) => m[k])).flat();
  };
}
const OPTIMIZERS: Readonly<Record<string, Handler>> = {
  Momentum: optimizer(1, (n, rate, t, [x, g, v]) => {
    const alpha = float(n, 'alpha', 0);
    const gradient = g.add(x.mul(float(n, 'norm_coefficient', 0)));
    const moved = v.mul(alpha).add(gradient.mul(t > 0 ? float(n, 'beta', 1) : 1));
    const ahead = text(n, 'mode', 'standard') === 'nesterov' ? gradient.add(moved.mul(alpha)) : moved;
    return [x.sub(ahead.mul(rate)), moved];
  }),
  Adagrad: optimizer(1, (n, rate, t, [x, g, h]) => {
    const gradient = g.add(x.mul(float(n, 'norm_coefficient', 0)));
    const squares = h.add(gradient.sqr());
    const now = rate / (1 + t * float(n, 'decay_factor', 0));
    return [x.sub(gradient.mul(now).div(squares.sqrt().add(float(n, 'epsilon', 0)))), squares];
  }),
  Adam: optimizer(2, (n, rate, t, [x, g, v, h]) => {
    const [alpha, beta] = [float(n, 'alpha', 0.9), float(n, 'beta', 0.999)];
    const gradient = g.add(x.mul(float(n, 'norm_coefficient', 0)));
    const mean = v.mul(alpha).add(gradient.mul(1 - alpha));
    const squares = h.mul(beta).add(gradient.sqr().mul(1 - beta));
    const now = t > 0 ? (rate * Math.sqrt(1 - beta ** t)) / (1 - alpha ** t) : rate;
    const moved = x.sub(mean.mul(now).div(squares.sqrt().add(float(n, 'epsilon', 0))));
    return [moved.mul(1 - float(n, 'norm_coefficient_post', 0)), mean, squares];
  }),
};

function melMatrix(n: Node): Tensor {
  const [bands, window, rate, low, high] = [0, 1, 2, 3, 4].map((i) => list(input(n, i))[0]);
  const bins = Math.floor(window / 2) + 1;
  const mel = (hz: number): number => 2595 * Math.log10(1 + hz / 700);
  const step = (mel(high) - mel(low)) / (bands + 2);
  const edges = Array.from({ length: bands + 2 }, (_, i) => {
    const hz = 700 * (10 ** ((mel(low) + i * step) / 2595) - 1);
    return Math.floor(((window + 1) * hz) / rate);
  });
  const weight = (bin: number, band: number): number => {
    const [a, b, c] = edges.slice(band, band + 3);
    if (a === b) return bin === b ? 1 : bin > b && bin < c ? (c - bin) / (c - b) : 0;
    return bin >= a && bin <= b ? (bin - a) / (b - a) : bin > b && bin < c ? (c - bin) / (c - b) : 0;
  };
  return tensor(
    Array.from({ length: bins }, (_, bin) => Array.from({ length: bands }, (_unused, band) => weight(bin, band))),
  );
}

function quantizedConv(n: Node): Tensor {
  const [x, xScale, xZero, w, wScale, wZero, yScale, yZero] = n.inputs as Tensor[];
  const exact = (t: Tensor): Tensor => t.cast('f64');
  const perFilter = (t: Tensor): Tensor => exact(t).reshape([-1, 1, 1, 1]);
  const made = WINDOWS.Conv({ ...n, inputs: [exact(x).sub(exact(xZero)), exact(w).sub(perFilter(wZero))] }) as Tensor;
  const scale = exact(xScale).mul(exact(wScale)).div(exact(yScale)).reshape([1, -1, 1, 1]);
  return made.mul(scale).roundEven().add(exact(yZero)).clamp(0, 255).cast(yZero.dtype);
}

export const OTHERS: Readonly<Record<string, Handler>> = {
  ...OPTIMIZERS,
  FlexAttention: flexAttention,
  LinearAttention: linearAttention,
  CausalConvWithState: causalConv,
  NonMaxSuppression: suppressed,
  RoiAlign: roiAlign,
  DeformConv: deformConv,
  MelWeightMatrix: melMatrix,
  QLinearConv: quantizedConv,
  ArrayFeatureExtractor: (n) => input(n, 0).indexSelect(-1, input(n, 1).flatten()),
  OptionalGetElement: (n) => input(n, 0),
  OptionalHasElement: (n) => tensor(n.inputs.length > 0 && n.inputs[0] !== undefined),
};
