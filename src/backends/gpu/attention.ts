// Attention on a GPU: operands and options become the struct its kernels take; which kernel serves is src/kernels/attention.ts's choice.
import type { DType } from '../../base/dtype.js';
import type { Layout } from '../../base/layout.js';
import {
  type AttentionCall,
  type AttentionDType,
  type AttentionLaunch,
  backwardLaunches,
  forwardLaunch,
  packAttention,
  splitLaunches,
  splitsFor,
} from '../../kernels/attention.js';
import { launch } from '../../kernels/launch-plan.js';
import { type Extra, extent, extrasOf, type SdpaParams, sizesOf } from '../../ops/attention-reference.js';
import type { KernelRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { runCast } from './movement.js';
import { addressOf, permuted, runPlan, type Temporaries, withTemporaries } from './plans.js';

/** A few queries over many keys: blocks for parts of the keys, joined afterwards. */
const SPLIT_QUERIES = 4;

type Triple = readonly [number, number, number];
type Extras = { readonly [K in Extra]?: View };

/** (batch, heads, rows, dim) whatever the layout. */
const turned = (v: View, layout: SdpaParams['layout']): View => (layout === 'bhtd' ? v : permuted(v, [0, 2, 1, 3]));
const unitRows = (l: Layout): boolean => l.strides[3] === 1 || l.shape[3] === 1;
/** Rows with unit stride, copied where they have none. */
const rowsOf = (t: Temporaries, v: View, layout: SdpaParams['layout']): View =>
  turned(unitRows(v.layout) ? v : t.dense(v), layout);

/** Strides of dimensions of one element do not matter; 0 is a multiple of everything. Packed sequences have no batch. */
const strides = ({ layout: { shape, strides: s } }: View, packed: boolean): Triple => [
  packed || shape[0] === 1 ? 0 : s[0],
  shape[1] === 1 ? 0 : s[1],
  shape[2] === 1 ? 0 : s[2],
];

/** Sizes, options and small inputs: what all kernels need. Slopes, sinks, starts, lengths and page numbers are read by index. */
function common(
  gpu: GpuContext,
  t: Temporaries,
  [q, k]: readonly View[],
  extra: Extras,
  outputs: readonly View[],
  p: SdpaParams,
): AttentionCall {
  const guided = extra.qStarts || extra.lengths || extra.pages;
  const sig = (v: View): { shape: readonly number[]; dtype: DType } => ({ shape: v.layout.shape, dtype: v.dtype });
  const sigs = Object.fromEntries(Object.entries(extra).map(([name, v]) => [name, sig(v)]));
  const [qs, ks] = [sizesOf(q.layout.shape, p.layout), sizesOf(k.layout.shape, p.layout)];
  const dense = Object.fromEntries(
    Object.entries(extra)
      .filter(([name]) => name !== 'mask')
      .map(([name, v]) => [name, addressOf(t.dense(v))]),
  );
  return {
    ...extent(sig(q), sig(k), p, sigs),
    ...dense,
    ...(guided && { fault: gpu.fault('sdpa', outputs) }),
    heads: qs.heads,
    kvHeads: ks.heads,
    dim: qs.dim,
    scale: p.scale,
    softcap: p.softcap,
    left: p.left,
    right: p.right,
    ...(extra.mask && {
      mask: addressOf(extra.mask),
      maskKind: extra.mask.dtype === 'u8' ? 1 : 2,
      maskStrides: extra.mask.layout.strides as unknown as [number, number, number, number],
    }),
    ...(extra.pages && { pageRows: ks.rows, pageTable: extra.pages.layout.shape[1], pagesThere: ks.batch }),
    ...(extra.qStarts && { qRows: qs.rows, kRows: ks.rows }),
  };
}

const lseStrides = (lse: View, packed: boolean): readonly [number, number] => [
  packed ? 0 : lse.layout.strides[0],
  lse.layout.strides[1],
];

function enqueue(gpu: GpuContext, call: AttentionCall, launches: readonly AttentionLaunch[]): void {
  const bytes = packAttention(call);
  runPlan(
    gpu,
    { launches: launches.map((l) => launch(l.module, l.symbol, l.grid, l.block, [bytes], l.shared)), scratch: 0 },
    {},
  );
}

function forward(
  gpu: GpuContext,
  t: Temporaries,
  inputs: readonly View[],
  [out, lse]: readonly View[],
  p: SdpaParams,
): void {
  const extra = extrasOf(inputs.slice(3), p.extras);
  const packed = extra.qStarts !== undefined;
  const dtype = inputs[0].dtype as AttentionDType;
  const [q, k, v] = inputs.slice(0, 3).map((x) => rowsOf(t, x, p.layout));
  const o = turned(out, p.layout);
  const call: AttentionCall = {
    ...common(gpu, t, inputs, extra, [out, lse], p),
    q: addressOf(q),
    k: addressOf(k),
    v: addressOf(v),
    out: addressOf(out),
    lse: addressOf(lse),
    qStrides: strides(q, packed),
    kStrides: strides(k, packed),
    vStrides: strides(v, packed),
    outStrides: strides(o, packed),
    lseStrides: lseStrides(lse, packed),
  };
  if (call.tq === 0 || call.batch === 0) return;
  if (packed) gpu.fill(out, 0); // rows that belong to no sequence
  const { info } = gpu.device;
  if (call.tq > SPLIT_QUERIES || dtype === 'f64' || packed)
    return enqueue(gpu, call, [forwardLaunch(call, dtype, info)]);
  const splits = splitsFor(call, info);
  const [partial, partialLse] = [
    t.make([call.batch, call.heads, call.tq, splits, call.dim], 'f32'),
    t.make([call.batch, call.heads, call.tq, splits], 'f32'),
  ];
  const whole = { ...call, splits, partial: addressOf(partial), partialLse: addressOf(partialLse) };
  enqueue(gpu, whole, splitLaunches(whole, dtype));
}

/** A wide copy where the values are stored in something else. */
function wide(gpu: GpuContext, t: Temporaries, v: View, dtype: DType): View {
  if (v.dtype === dtype) return t.dense(v);
  const out = t.make(v.layout.shape, dtype);
  runCast(gpu, undefined as never, [v], [out], { dtype });
  return out;
}

function backward(
  gpu: GpuContext,
  t: Temporaries,
  inputs: readonly View[],
  outputs: readonly View[],
  p: SdpaParams,
): void {
  const extra = extrasOf(inputs.slice(6), p.extras);
  const packed = extra.qStarts !== undefined;
  const dtype = inputs[0].dtype as AttentionDType;
  const sums: DType = dtype === 'f64' ? 'f64' : 'f32';
  const [q, k, v, dout] = inputs.slice(0, 4).map((x) => rowsOf(t, x, p.layout));
  const [lse, delta] = [wide(gpu, t, inputs[4], sums), wide(gpu, t, inputs[5], sums)];
  const [dq, dk, dv] = outputs.map((x) => turned(x, p.layout));
  if (packed) for (const o of outputs) gpu.fill(o, 0);
  const call: AttentionCall = {
    ...common(gpu, t, inputs, extra, outputs, p),
    lse: addressOf(lse),
    delta: addressOf(delta),
    lseStrides: lseStrides(lse, packed),
    q: addressOf(q),
    k: addressOf(k),
    v: addressOf(v),
    dout: addressOf(dout),
    dq: addressOf(dq),
    dk: addressOf(dk),
    dv: addressOf(dv),
    qStrides: strides(q, packed),
    kStrides: strides(k, packed),
    vStrides: strides(v, packed),
    doutStrides: strides(dout, packed),
    dqStrides: strides(dq, packed),
    dkStrides: strides(dk, packed),
    dvStrides: strides(dv, packed),
  };
  enqueue(
    gpu,
    call,
    backwardLaunches(call, dtype, gpu.device.info).filter((l) => !l.symbol.startsWith('attention_delta')),
  );
}

function delta(
  gpu: GpuContext,
  t: Temporaries,
  inputs: readonly View[],
  [sums]: readonly View[],
  { layout }: Pick<SdpaParams, 'layout'>,
): void {
  const [out, dout] = inputs.map((x) => rowsOf(t, x, layout));
  const [batch, heads, tq, dim] = out.layout.shape;
  const call: AttentionCall = {
    batch,
    heads,
    kvHeads: heads,
    tq,
    tk: tq,
    dim,
    scale: 1,
    out: addressOf(out),
    dout: addressOf(dout),
    delta: addressOf(sums),
    outStrides: strides(out, false),
    doutStrides: strides(dout, false),
    lseStrides: lseStrides(sums, false), // rows of delta lie as those of lse
  };
  enqueue(
    gpu,
    call,
    backwardLaunches(call, out.dtype as AttentionDType, gpu.device.info).filter((l) =>
      l.symbol.startsWith('attention_delta'),
    ),
  );
}

const MEMBERS: Readonly<Record<string, typeof forward>> = {
  sdpaRun: forward,
  sdpaBackward: backward,
  sdpaDelta: delta,
};
export function runAttention(
  gpu: GpuContext,
  row: KernelRow,
  inputs: readonly View[],
  outputs: readonly View[],
  params: SdpaParams,
): void {
  withTemporaries(gpu, (t) => MEMBERS[row.name](gpu, t, inputs, outputs, params));
}
