// PyTorch's cases as calls on our tensors: one line an op; inputs keep PyTorch's names.
import { Adam, AdamW, type Optimizer, RMSprop, SGD } from '../nn/optim.js';
import { type OpName, OPS } from '../ops/table.js';
import { GRU, LSTM } from '../nn/rnn.js';
import { einsum } from '../tensor/einsum.js';
import { cat, stack } from '../tensor/create.js';
import type { Tensor } from '../tensor/tensor.js';

type Inputs = Readonly<Record<string, Tensor>>;
/** Parameters of a case are JSON; a call knows which it takes. */
type P = any;
/** Results by PyTorch's output names, in order. */
export type TorchCall = (inputs: Inputs, params: P) => Tensor | readonly Tensor[];

const camel = (name: string): string => name.replace(/_(\w)/g, (_, c: string) => c.toUpperCase());
const method = (t: Tensor, name: string): ((...args: unknown[]) => Tensor) =>
  (t as unknown as Record<string, (...a: unknown[]) => Tensor>)[name].bind(t);
const each = (make: (name: string) => TorchCall, names: string): Record<string, TorchCall> =>
  Object.fromEntries(names.split(' ').map((n) => [n, make(n)]));
const unary =
  (name: string): TorchCall =>
  ({ x }) =>
    method(x, camel(name))();
const binary =
  (name: string): TorchCall =>
  ({ x, y }) =>
    method(x, name)(y);
const overDims =
  (name: string): TorchCall =>
  ({ x }, p) =>
    method(x, camel(name))(p.dims, p.keepdim);
const alongDim =
  (name: string): TorchCall =>
  ({ x }, p) =>
    method(x, camel(name))(p.dim);
const sized =
  (name: string): TorchCall =>
  ({ x }, p) =>
    method(x, camel(name))(p.size);
const pool =
  (name: string): TorchCall =>
  ({ x }, p) =>
    method(x, camel(name))(p.kernel, p.stride);
const scatter = (name: string, ours: string): Record<string, TorchCall> => ({
  [name]: ({ x, ids, src }, p) => method(x, ours)(p.dim, ids, src),
});
const conv =
  (name: string): TorchCall =>
  ({ x, w, b }, p) =>
    method(x, camel(name))(w, {
      stride: p.stride,
      padding: p.padding,
      dilation: p.dilation,
      groups: p.groups,
      ...(p.output_padding !== undefined && { outputPadding: p.output_padding }),
      ...(b && { bias: b }),
    });

const sgd = (params: Tensor[], h: P): Optimizer =>
  new SGD(params, {
    learningRate: h.lr,
    momentum: h.momentum,
    dampening: h.dampening,
    nesterov: h.nesterov,
    weightDecay: h.weight_decay,
  });
/** PyTorch's optimizers, with its hyperparameters by our names. */
export const OPTIMIZERS: Readonly<Record<string, (params: Tensor[], h: P) => Optimizer>> = {
  sgd,
  sgd_momentum: sgd,
  adam: (params, h) =>
    new Adam(params, {
      learningRate: h.lr,
      beta1: h.betas[0],
      beta2: h.betas[1],
      eps: h.eps,
      weightDecay: h.weight_decay,
    }),
  adamw: (params, h) =>
    new AdamW(params, {
      learningRate: h.lr,
      beta1: h.betas[0],
      beta2: h.betas[1],
      eps: h.eps,
      weightDecay: h.weight_decay,
    }),
  rmsprop: (params, h) =>
    new RMSprop(params, {
      learningRate: h.lr,
      alpha: h.alpha,
      eps: h.eps,
      momentum: h.momentum,
      weightDecay: h.weight_decay,
    }),
};
/** The parameter after each step with the gradients given. */
function trained(optimizer: Optimizer, p: Tensor, grads: Tensor): Tensor {
  return stack(
    Array.from({ length: grads.shape[0] }, (_, i) => {
      optimizer.step({ get: () => grads.get(i) });
      return p.copy();
    }),
  );
}

const TORCH_CALLS: Readonly<Record<string, TorchCall>> = {
  ...each(
    unary,
    'neg exp sin cos tanh erf abs sqr relu silu sigmoid gelu gelu_erf mish hard_swish hard_sigmoid softplus log ' +
      'sqrt recip selu norm',
  ),
  ...each(binary, 'add sub mul div minimum maximum pow'),
  ...each(overDims, 'sum mean log_sum_exp'),
  ...each(alongDim, 'max min cumsum softmax log_softmax'),
  ...each(sized, 'upsample_nearest1d upsample_nearest2d'),
  ...each(pool, 'avg_pool2d max_pool2d'),
  ...each(conv, 'conv1d conv2d conv_transpose1d conv_transpose2d'),
  ...scatter('index_add', 'indexAdd'),
  ...scatter('scatter_add', 'scatterAdd'),
  ...scatter('scatter_set', 'scatter'),
  var: ({ x }, p) => x.variance(p.dim),
  argmax: ({ x }, p) => x.argmax(p.dim).cast('i64'),
  argmin: ({ x }, p) => x.argmin(p.dim).cast('i64'),
  powf: ({ x }, p) => x.powf(p.exponent),
  elu: ({ x }, p) => x.elu(p.alpha),
  leaky_relu: ({ x }, p) => x.leakyRelu(p.slope),
  affine: ({ x }, p) => x.affine(p.mul, p.add),
  clamp: ({ x }, p) => x.clamp(p.min, p.max),
  matmul: ({ x, y }, p) => (p.transpose_x ? x.t() : x).matmul(p.transpose_y ? y.t() : y),
  einsum: (inputs, p) => einsum(p.equation, ...Object.values(inputs)),
  upsample_bilinear2d: ({ x }, p) => x.upsampleBilinear2d(p.size, { alignCorners: p.align_corners }),
  gather: ({ x, ids }, p) => x.gather(p.dim, ids),
  index_select: ({ x, ids }, p) => x.indexSelect(p.dim, ids),
  where_cond: ({ c, t, f }) => c.where(t, f),
  masked_fill: ({ x, mask }, p) => x.maskedFill(mask, p.value),
  cat: (inputs, p) => cat(Object.values(inputs), p.dim),
  stack: (inputs, p) => stack(Object.values(inputs), p.dim),
  permute: ({ x }, p) => x.permute(p.dims),
  narrow: ({ x }, p) => x.narrow(p.dim, p.start, p.len),
  roll: ({ x }, p) => x.roll(p.shift, p.dim),
  flip: ({ x }, p) => x.flip(p.dims),
  pad: ({ x }, p) => x.pad(p.pads_last_dim_first),
  repeat: ({ x }, p) => x.repeat(p.repeats),
  slice_step: ({ x }, p) => x.slice(p.dim, p.start, p.end, p.step),
  broadcast_as: ({ x }, p) => x.broadcastTo(p.shape),
  topk: ({ x }, p) => x.topk(p.k, p.dim),
  sort: ({ x }, p) => x.sort(-1, { descending: !p.asc }),
  layer_norm: ({ x, w, b }, p) => x.layerNorm(w, b, { eps: p.eps }),
  rms_norm: ({ x, w }, p) => x.rmsNorm(w, { eps: p.eps }),
  group_norm: ({ x, w, b }, p) => x.groupNorm(p.groups, w, b, { eps: p.eps }),
  batch_norm: ({ x, w, b }, p) => x.batchNorm(w, b, { eps: p.eps }),
  sdpa: ({ q, k, v, mask }, p) =>
    q.sdpa(k, v, {
      causal: p.causal,
      layout: p.layout,
      ...(p.scale !== null && { scale: p.scale }),
      ...(mask && { mask }),
    }),
  cross_entropy: ({ x, t, w }, p) =>
    x.crossEntropy(t, {
      labelSmoothing: p.label_smoothing ?? 0,
      ...(p.ignore_index !== undefined && { ignoreIndex: p.ignore_index }),
      ...(w && { weight: w }),
    }),
  nll: ({ x, t }) => x.nll(t),
  mse: ({ x, y }) => x.mse(y),
  huber: ({ x, y }, p) => x.huber(y, { delta: p.delta }),
  bce_with_logits: ({ x, y }) => x.bceWithLogits(y),
  lstm: ({ x, ...w }) => new LSTM(w.weight_ih_l0, w.weight_hh_l0, w.bias_ih_l0, w.bias_hh_l0).forward(x),
  gru: ({ x, ...w }) => new GRU(w.weight_ih_l0, w.weight_hh_l0, w.bias_ih_l0, w.bias_hh_l0).forward(x),
  optimizer: ({ p, g_ }, { name, hyper }) => trained(OPTIMIZERS[name]([p], hyper), p, g_),
};

/** Elementwise rows without parameters need no line of their own: another golden set may hold any of them. */
function plainCall(op: string): TorchCall | undefined {
  const name = camel(op);
  const row = Object.hasOwn(OPS, name) ? OPS[name as OpName] : undefined;
  if (row?.family !== 'elementwise' || row.scalars.length > 0 || row.masked || row.arity > 2) return undefined;
  return row.arity === 1 ? unary(op) : binary(name);
}
export const torchCall = (op: string): TorchCall | undefined =>
  Object.hasOwn(TORCH_CALLS, op) ? TORCH_CALLS[op] : plainCall(op);
