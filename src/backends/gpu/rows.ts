// Reductions, running sums, softmax, norms and rotary embeddings: work along rows of contiguous operands.
import { sizeOf } from '../../base/shape.js';
import {
  normGradLaunch,
  normLaunch,
  type NormOptions,
  ropeLaunch,
  type RopeShape,
  scanLaunch,
  softmaxGradLaunch,
  softmaxLaunch,
} from '../../kernels/launch.js';
import type { KernelRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { runCopy } from './movement.js';
import { addressOf, aligned16, permuted, runPlan, viewOf, withTemporaries } from './plans.js';

export function runScan(
  gpu: GpuContext,
  _row: KernelRow,
  [x]: readonly View[],
  [out]: readonly View[],
  params: { dim: number; reverse: boolean; exclusive: boolean },
): void {
  withTemporaries(gpu, (t) => {
    const dense = t.dense(x);
    const { shape } = x.layout;
    const outer = sizeOf(shape.slice(0, params.dim));
    const inner = sizeOf(shape.slice(params.dim + 1));
    const plan = scanLaunch(
      x.dtype,
      outer,
      shape[params.dim],
      inner,
      params.reverse,
      params.exclusive,
      gpu.device.info,
    );
    runPlan(gpu, plan, { src: addressOf(dense), dst: addressOf(out) });
  });
}

/** Runs f on operands whose dimension `dim` is last and contiguous; its result goes where `out` wants it. */
function alongLast(
  gpu: GpuContext,
  views: readonly View[],
  out: View,
  dim: number,
  f: (dense: readonly View[], out: View) => void,
): void {
  withTemporaries(gpu, (t) => {
    const rank = out.layout.rank;
    const last = dim === rank - 1;
    const order = [...out.layout.shape.map((_, i) => i).filter((i) => i !== dim), dim];
    const turn = (v: View): View => (last ? v : permuted(v, order));
    const dense = views.map((v) => t.dense(turn(v)));
    if (last) return f(dense, out);
    const target = turn(out);
    const result = t.make(target.layout.shape, out.dtype);
    f(dense, result);
    runCopy(gpu, undefined as never, [result], [target]);
  });
}

export function runSoftmax(
  gpu: GpuContext,
  row: KernelRow,
  inputs: readonly View[],
  [out]: readonly View[],
  { dim }: { dim: number },
): void {
  const log = row.name.startsWith('log');
  const cols = out.layout.rank === 0 ? 1 : out.layout.shape[dim];
  const rows = out.layout.size / cols;
  alongLast(gpu, inputs, viewOf(out), dim, ([a, b], o) => {
    if (b)
      runPlan(gpu, softmaxGradLaunch(log, o.dtype, rows, cols, gpu.device.info, aligned16(a, b, o)), {
        out: addressOf(a),
        grad: addressOf(b),
        dx: addressOf(o),
      });
    else
      runPlan(gpu, softmaxLaunch(log, o.dtype, rows, cols, gpu.device.info, aligned16(a, o)), {
        src: addressOf(a),
        dst: addressOf(o),
      });
  });
}

export function runNorm(
  gpu: GpuContext,
  row: KernelRow,
  inputs: readonly View[],
  [out]: readonly View[],
  params: { eps: number; weight: boolean; bias: boolean },
): void {
  const backward = row.name.endsWith('Backward');
  const kind: NormOptions['kind'] = row.name.startsWith('layer') ? 'layer' : 'rms';
  const options: NormOptions = {
    kind,
    eps: params.eps,
    weight: params.weight,
    bias: backward ? false : (params.bias ?? false),
  };
  const { shape } = out.layout;
  const cols = shape[shape.length - 1];
  const rows = out.layout.size / cols;
  withTemporaries(gpu, (t) => {
    const [x, ...rest] = inputs.map((v) => t.dense(v));
    const grad = backward ? rest.shift() : undefined;
    const weight = params.weight ? rest.shift() : undefined;
    const bias = options.bias ? rest.shift() : undefined;
    const given = [x, out, grad, weight, bias].filter((v): v is View => v !== undefined);
    const buffers = {
      src: addressOf(x),
      dst: addressOf(out),
      dx: addressOf(out),
      grad: grad ? addressOf(grad) : 0,
      weight: weight ? addressOf(weight) : 0,
      bias: bias ? addressOf(bias) : 0,
    };
    const plan = backward
      ? normGradLaunch(options, x.dtype, rows, cols, gpu.device.info, aligned16(...given), false)
      : normLaunch(options, x.dtype, rows, cols, gpu.device.info, aligned16(...given));
    runPlan(gpu, plan, buffers);
  });
}

const ROPE_KIND: Readonly<Record<string, RopeShape['kind']>> = { rope: 'halves', ropeI: 'pairs', ropeThd: 'thd' };
export function runRope(gpu: GpuContext, row: KernelRow, [x, cos, sin]: readonly View[], [out]: readonly View[]): void {
  const kind = ROPE_KIND[row.name];
  const [b, p, q, d] = x.layout.shape;
  const [h, time] = kind === 'thd' ? [q, p] : [p, q];
  const batched = cos.layout.rank === 3;
  // Tables longer than the sequence are cut to it, so that batches lie where the kernel looks.
  const cut = (v: View): View => ({ ...viewOf(v), layout: v.layout.slice(batched ? 1 : 0, 0, time) });
  withTemporaries(gpu, (t) => {
    const [dx, dc, ds] = [t.dense(x), t.dense(cut(cos)), t.dense(cut(sin))];
    const plan = ropeLaunch({ kind, b, h, t: time, d, batched, inverse: false }, x.dtype, aligned16(dx, dc, ds, out));
    runPlan(gpu, plan, { src: addressOf(dx), cos: addressOf(dc), sin: addressOf(ds), dst: addressOf(out) });
  });
}
