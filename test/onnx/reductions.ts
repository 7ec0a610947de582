// ONNX reductions, scans, order and products.
import { cat, einsum, Tensor } from '../../src/index.js';
import { type Node, type Handler, has, input, int, text, list, whole, unary, binary, reduce } from './node.js';

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

export const REDUCTIONS: Readonly<Record<string, Handler>> = {
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
    const dim = n.attributes.axis === undefined ? undefined : int(n, 'axis', 0);
    const [values, inverse, counts] = input(n, 0).unique(dim === undefined ? {} : { dim });
    const seen = list(inverse);
    const first = list(counts).map((_, i) => seen.indexOf(i));
    const found = [Tensor.from(first, { dtype: 'i64' }), inverse.flatten().cast('i64'), counts.cast('i64')] as const;
    if (int(n, 'sorted', 1) !== 0) return [values, ...found];
    // In the order of appearance: sorted by the places of the first ones.
    const order = found[0].argsort(0).cast('i64');
    const places = order.argsort(0).cast('i64');
    const along = (t: Tensor): Tensor => t.indexSelect(0, order);
    return [values.indexSelect(dim ?? 0, order), along(found[0]), places.gather(0, found[1]), along(found[2])];
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
  Gemm: (n) => {
    const side = (i: number, name: string): Tensor => (int(n, name, 0) === 1 ? input(n, i).t() : input(n, i));
    const product = side(0, 'transA')
      .matmul(side(1, 'transB'))
      .affine((n.attributes.alpha as number | undefined) ?? 1, 0);
    return has(n, 2) ? product.add(input(n, 2).affine((n.attributes.beta as number | undefined) ?? 1, 0)) : product;
  },
  Einsum: (n) => einsum(text(n, 'equation', '').replaceAll(' ', ''), ...(n.inputs as Tensor[])),
  Det: unary((x) => x.det()),
};
