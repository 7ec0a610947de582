// Candle's cases as calls on our tensors: one line an op, with the row whose bounds hold.
import type { DType } from '../base/dtype.js';
import { dequantize } from '../base/blocks/decode.js';
import { ggmlType } from '../base/blocks/types.js';
import { type OpName, OPS } from '../ops/table.js';
import { tensor } from '../tensor/create.js';
import type { Tensor } from '../tensor/tensor.js';
import type { GoldenCase } from './golden.js';

type Inputs = Readonly<Record<string, Tensor>>;
/** Parameters of a case are JSON; a call knows which it takes. */
type P = any;
export interface CandleCall {
  /** The row whose dtypes, bound and reasons speak for this case. */
  readonly row: OpName | undefined;
  readonly run: (inputs: Inputs, params: P, c: GoldenCase) => Tensor;
}

const call = (row: OpName, run: CandleCall['run']): CandleCall => ({ row, run });
const camel = (name: string): string => name.replace(/_(\w)/g, (_, c: string) => c.toUpperCase());
const method = (t: Tensor, name: OpName): ((...args: unknown[]) => Tensor) =>
  (t as unknown as Record<string, (...a: unknown[]) => Tensor>)[name].bind(t);

/** The stored input is the base; the op ran on the base permuted. */
const seen = (x: Tensor, p: P): Tensor => (p.layout === 'permute' ? x.permute(p.perm) : x);
const unary = (name: string): CandleCall =>
  call(camel(name) as OpName, ({ x }, p) => method(seen(x, p), camel(name) as OpName)());
const binary = (name: string): CandleCall => call(name as OpName, ({ x, y }) => method(x, name as OpName)(y));
const reduce = (name: OpName): CandleCall => call(name, ({ x }, p) => method(x, name)(p.dim));
const each = (make: (name: string) => CandleCall, names: string): Record<string, CandleCall> =>
  Object.fromEntries(names.split(' ').map((n) => [n, make(n)]));
const convOptions = (p: P): P => ({
  stride: p.stride,
  padding: p.padding,
  dilation: p.dilation,
  groups: p.groups,
  ...(p.output_padding !== undefined && { outputPadding: p.output_padding }),
});

const CANDLE_CALLS: Readonly<Record<string, CandleCall>> = {
  ...each(
    unary,
    'copy neg recip exp log sin cos tanh erf ceil floor round normcdf abs sqr sqrt gelu gelu_erf relu silu sign ' +
      'sigmoid',
  ),
  ...each(binary, 'add sub mul div minimum maximum eq ne lt le gt ge'),
  ...each((n) => reduce(n as OpName), 'sum min max argmin argmax softmax'),
  elu: call('elu', ({ x }, p) => x.elu(p.param)),
  powf: call('powf', ({ x }, p) => x.powf(p.param)),
  affine: call('affine', ({ x }, p) => x.affine(p.mul, p.add)),
  cast: call('castTo', ({ x }, p) => x.castTo(p.to as DType)),
  where_cond: call('where', ({ c, t, f }) => c.where(t, f)),
  index_select: call('indexSelect', ({ x, ids }, p) => x.indexSelect(p.dim, ids)),
  gather: call('gather', ({ x, ids }, p) => x.gather(p.dim, ids)),
  index_add: call('indexAdd', ({ x, ids, src }, p) => x.indexAdd(p.dim, ids, src)),
  scatter_add: call('scatterAdd', ({ x, ids, src }, p) => x.scatterAdd(p.dim, ids, src)),
  scatter_set: call('scatter', ({ x, ids, src }, p) => x.scatter(p.dim, ids, src)),
  rms_norm: call('rmsNorm', ({ x, alpha }, p) => x.rmsNorm(alpha, { eps: p.eps })),
  layer_norm: call('layerNorm', ({ x, alpha, beta }, p) => x.layerNorm(alpha, beta, { eps: p.eps })),
  rope_i: call('ropeI', ({ x, cos, sin }) => x.ropeI(cos, sin)),
  rope: call('rope', ({ x, cos, sin }) => x.rope(cos, sin)),
  rope_thd: call('ropeThd', ({ x, cos, sin }) => x.ropeThd(cos, sin)),
  arg_sort: call('argsort', ({ x }, p) => x.argsort(-1, { descending: !p.asc })),
  conv1d: call('conv1d', ({ x, w }, p) => x.conv1d(w, convOptions(p))),
  conv2d: call('conv2d', ({ x, w }, p) => x.conv2d(w, convOptions(p))),
  conv_transpose1d: call('convTranspose1d', ({ x, w }, p) => x.convTranspose1d(w, convOptions(p))),
  conv_transpose2d: call('convTranspose2d', ({ x, w }, p) => x.convTranspose2d(w, convOptions(p))),
  avg_pool2d: call('avgPool2d', ({ x }, p) => x.avgPool2d(p.kernel, p.stride)),
  max_pool2d: call('maxPool2d', ({ x }, p) => x.maxPool2d(p.kernel, p.stride)),
  upsample_nearest2d: call('upsampleNearest2d', ({ x }, p) => x.upsampleNearest2d(p.size)),
  upsample_bilinear2d: call('upsampleBilinear2d', ({ x }, p) =>
    x.upsampleBilinear2d(p.size, { alignCorners: p.align_corners }),
  ),
  // Blocks are decoded on the host, as the loader does it; the device only casts.
  dequantize: {
    row: undefined,
    run: ({ blocks }, p, c) =>
      tensor(dequantize(ggmlType(p.quant), blocks.bytesSync()), { device: blocks.device }).cast(c.dtype),
  },
};

/** Elementwise rows without parameters need no line of their own: another golden set may hold any of them. */
function plainCall(op: string): CandleCall | undefined {
  const name = camel(op);
  const row = Object.hasOwn(OPS, name) ? OPS[name as OpName] : undefined;
  if (row?.family !== 'elementwise' || row.scalars.length > 0 || row.masked || row.arity > 2) return undefined;
  return row.arity === 1 ? unary(op) : call(name as OpName, ({ x, y }) => method(x, name as OpName)(y));
}
export const candleCall = (op: string): CandleCall | undefined =>
  Object.hasOwn(CANDLE_CALLS, op) ? CANDLE_CALLS[op] : plainCall(op);

export const rowOfCall = (c: CandleCall): (typeof OPS)[OpName] | undefined => (c.row ? OPS[c.row] : undefined);
