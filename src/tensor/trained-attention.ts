// Attention of a net that is trained, from the product that queries, keys and values are parts of: its gradient is
// written as one tensor, where each part belongs, and turned back in place.
import { attention } from '../ops/attention.js';
import type { SdpaParams } from '../ops/attention-reference.js';
import { rope } from '../ops/rope.js';
import type { GradContext, Grads, KernelRow } from '../ops/op.js';
import { gradEnabled, noGrad } from './autograd.js';
import { record } from './dispatch.js';
import { launch } from './guard.js';
import { innermost } from './levels.js';
import { scope } from './scope.js';
import { Tensor } from './tensor.js';

/** Heads of a product (b, t, (heads + 2 kvHeads) dim), and how many earlier tokens each token sees; -1: all. */
export interface HeadSizes {
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly scale: number;
  readonly left: number;
}

const BACKWARD = attention.sdpaBackward as unknown as KernelRow<any>;
const TURN = rope.ropeThd as unknown as KernelRow<any>;

const sdpaParams = ({ scale, left }: HeadSizes): SdpaParams => ({
  ...{ layout: 'bthd', scale, softcap: 0, left, right: 0, extras: [], longest: [0, 0], trained: true },
});
/** Heads `from` to `from + count` of a product, (b, t, count, dim). */
function headsOf(product: Tensor, from: number, count: number, dim: number): Tensor {
  const [b, t] = product.shape;
  return product.narrow(2, from * dim, count * dim).reshape([b, t, count, dim]);
}

/** The gradient by ops that have gradients themselves. */
function gradByOps([product, cos, sin]: readonly Tensor[], dout: Tensor, o: HeadSizes): Tensor {
  const { heads, kvHeads, dim } = o;
  const p = sdpaParams(o);
  const [q, k] = [headsOf(product, 0, heads, dim), headsOf(product, heads, kvHeads, dim)].map((x) =>
    x.ropeThd(cos, sin),
  );
  const v = headsOf(product, heads + kvHeads, kvHeads, dim);
  const [out, lse] = q.sdpaRun(k, v, p, []);
  const [dq, dk, dv] = q.sdpaBackward(k, v, dout, lse, out.sdpaDelta(dout, p.layout), p, []);
  const back = sin.neg();
  const parts = [dq.ropeThd(cos, back), dk.ropeThd(cos, back), dv].map((x) => x.flatten(2, 3));
  return parts[0].cat(parts.slice(1), 2);
}

function grad({ inputs, outputs, grad: dout, params }: GradContext<any>): Grads {
  const [product, cos, sin] = inputs;
  const [out, lse] = outputs;
  const o = params as HeadSizes;
  if (gradEnabled() || innermost()) return [gradByOps(inputs, dout, o)];
  const { heads, kvHeads, dim } = o;
  const { backend } = product.device;
  const all = Tensor.empty(product.shape, product.dtype, product.device);
  const part = (t: Tensor, from: number, count: number): Tensor => headsOf(t, from, count, dim);
  const turned = part(product, 0, heads + kvHeads).ropeThd(cos, sin); // again: quicker than it is large
  const [q, k] = [turned.narrow(2, 0, heads), turned.narrow(2, heads, kvHeads)];
  const v = part(product, heads + kvHeads, kvHeads);
  const parts = [part(all, 0, heads), part(all, heads, kvHeads), part(all, heads + kvHeads, kvHeads)];
  launch(backend, BACKWARD, [q, k, v, dout, lse, out], parts, sdpaParams(o));
  const both = part(all, 0, heads + kvHeads);
  launch(backend, TURN, [both, cos, sin], [both], { back: true });
  return [all];
}
const ROW: KernelRow<any> = {
  ...(attention.sdpaRun as unknown as KernelRow<any>),
  name: 'trainedAttention',
  formula: 'causal attention of the turned parts of a product',
  grad,
};

/**
 * Causal attention from a product (b, t, (heads + 2 kvHeads) dim) whose queries and keys are turned by the tables, to
 * (b, t, heads dim), while a net is trained; undefined where that is not to be had.
 */
export function trainedAttention(product: Tensor, cos: Tensor, sin: Tensor, o: HeadSizes): Tensor | undefined {
  const { heads, kvHeads, dim } = o;
  const [b, t] = product.shape;
  const plain = product.layout.isContiguous && [cos, sin].every((x) => x.dtype === product.dtype && !x.requiresGrad);
  if (!gradEnabled() || innermost() || !product.requiresGrad || !plain || !product.device.backend.gpu) return undefined;
  const made = (): Tensor[] => {
    const given = product.detach();
    const both = headsOf(given, 0, heads + kvHeads, dim).ropeThd(cos, sin);
    const v = headsOf(given, heads + kvHeads, kvHeads, dim);
    const [q, k] = [both.narrow(2, 0, heads), both.narrow(2, heads, kvHeads)];
    return q.sdpaRun(k, v, sdpaParams(o), []);
  };
  const outs = scope(() => noGrad(made)); // what was turned goes at once
  record(ROW, [product, cos, sin], outs, o as never);
  return outs[0].reshape([b, t, heads * dim]);
}
