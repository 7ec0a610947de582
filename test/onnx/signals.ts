// ONNX attention, Fourier transforms, windows of signals and quantized numbers.
import type { DType } from '../../src/base/dtype.js';
import { cat, Tensor } from '../../src/index.js';
import {
  type Node,
  type Handler,
  NotServed,
  dtypeOf,
  RANGES,
  saturating,
  has,
  input,
  int,
  list,
  listAt,
  unary,
  binary,
  padList,
} from './node.js';

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

export const SIGNALS: Readonly<Record<string, Handler>> = {
  MatMulInteger: (n) => {
    const zero = (i: number, x: Tensor): Tensor => {
      if (!has(n, i)) return x.cast('f64');
      return x.cast('f64').sub(input(n, i).cast('f64'));
    };
    return zero(2, input(n, 0))
      .matmul(zero(3, input(n, 1)))
      .cast('i32');
  },
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
  SwiGLU: binary((x, y, n) => x.mul(x.affine((n.attributes.alpha as number | undefined) ?? 1, 0).sigmoid()).mul(y)),
  QLinearMatMul: (n) => qlinear(n),
  Binarizer: unary((x, n) => x.gt((n.attributes.threshold as number | undefined) ?? 0).cast(x.dtype)),
};
