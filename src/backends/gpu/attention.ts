// Attention on a GPU: which of the kernels serves a call, and the struct that tells it where everything lies.
import type { DType } from '../../base/dtype.js';
import type { Layout } from '../../base/layout.js';
import { type Launch, launch } from '../../kernels/launch-plan.js';
import { type Extra, extent, extrasOf, type SdpaParams, sizesOf } from '../../ops/attention-reference.js';
import type { KernelRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { runCast } from './movement.js';
import { addressOf, permuted, runPlan, type Temporaries, withTemporaries } from './plans.js';

/** Members of struct Attention in kernels/attention.h, in order. */
const POINTERS = [
  'q', 'k', 'v', 'out', 'lse', 'mask', 'slopes', 'sinks', 'qStarts', 'kStarts', 'lengths', 'pages', 'dout', 'delta', 'dq', 'dk', 'dv', 'partial', 'partialLse',
] as const;
const STRIDED = ['q', 'k', 'v', 'out', 'dout', 'dq', 'dk', 'dv'] as const;
type Name = (typeof POINTERS)[number];
type Views = { readonly [K in Name]?: View };
const STRUCT_BYTES = 456;

interface Sizes {
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly tq: number;
  readonly tk: number;
  readonly dim: number;
}

function pack(views: Views, p: SdpaParams, s: Sizes, splits = 0): Uint8Array {
  const bytes = new Uint8Array(STRUCT_BYTES);
  const data = new DataView(bytes.buffer);
  let at = 0;
  const i64 = (v: number): void => { data.setBigInt64(at, BigInt(v), true); at += 8; };
  const i32 = (v: number): void => { data.setInt32(at, v, true); at += 4; };
  const strides = (v: View | undefined): readonly number[] => {
    if (!v) return [0, 0, 0];
    const [b, h, t] = v.layout.strides;
    return [views.qStarts ? 0 : b, h, t];
  };
  for (const name of POINTERS) i64(views[name] ? addressOf(views[name]) : 0);
  for (const name of STRIDED) strides(views[name]).forEach(i64);
  [views.qStarts ? 0 : (views.lse?.layout.strides[0] ?? 0), views.lse?.layout.strides[1] ?? 0].forEach(i64);
  (views.mask ? views.mask.layout.strides : [0, 0, 0, 0]).forEach(i64);
  data.setFloat64(at, p.scale, true);
  data.setFloat64(at + 8, p.softcap, true);
  at += 16;
  const maskKind = !views.mask ? 0 : views.mask.dtype === 'u8' ? 1 : 2;
  const pageRows = views.pages && views.k ? views.k.layout.shape[2] : 0;
  [s.heads, s.kvHeads, s.tq, s.tk, s.dim, p.left, p.right, maskKind, pageRows, views.pages?.layout.shape[1] ?? 0, splits].forEach(i32);
  return bytes;
}

/** (batch, heads, rows, dim) whatever the layout. */
const turned = (v: View, layout: SdpaParams['layout']): View => (layout === 'bhtd' ? v : permuted(v, [0, 2, 1, 3]));
const unitRows = (l: Layout): boolean => l.strides[3] === 1 || l.shape[3] === 1;
/** Rows with unit stride, copied where they have none. */
const rowsOf = (t: Temporaries, v: View, layout: SdpaParams['layout']): View => turned(unitRows(v.layout) ? v : t.dense(v), layout);

const width = (dim: number): 64 | 128 | 256 => (dim <= 64 ? 64 : dim <= 128 ? 128 : 256);
const tileOf = (dtype: DType): number => (dtype === 'f64' ? 32 : 64);
const isHalf = (d: DType): boolean => d === 'f16' || d === 'bf16';
/** Whether all rows begin at multiples of 16 bytes. */
const aligned = (views: readonly View[], dim: number): boolean =>
  dim % 8 === 0 && views.every((v) => addressOf(v) % 16 === 0 && v.layout.strides.slice(0, 3).every((st, i) => st % 8 === 0 || v.layout.shape[i] === 1));

const MATRIX: Readonly<Record<64 | 128 | 256, { rows: number; shared: number; ending: string }>> = {
  64: { rows: 128, shared: 55296, ending: '64' }, 128: { rows: 64, shared: 52224, ending: '128' }, 256: { rows: 64, shared: 50688, ending: '256' },
};
const MATRIX_LARGE: Partial<Readonly<Record<64 | 128 | 256, { rows: number; shared: number; ending: string }>>> = {
  128: { rows: 128, shared: 104448, ending: '128_large' }, 256: { rows: 64, shared: 101376, ending: '256_large' },
};
/** NVIDIA GPUs from sm_80 on give a block enough shared memory for the large tiles. */
const roomy = (arch: string): boolean => /^sm_(80|87|90|10\d)/.test(arch);

/** A few queries over many keys: blocks for parts of the keys, joined afterwards. */
const SPLIT_QUERIES = 4;
const SPLIT_THREADS = 128;

function forward(gpu: GpuContext, t: Temporaries, views: Views, p: SdpaParams, s: Sizes, dtype: DType): Launch[] {
  const { info } = gpu.device;
  const w = width(s.dim);
  if (s.tq <= SPLIT_QUERIES && dtype !== 'f64' && !views.qStarts) {
    const group = s.heads / s.kvHeads;
    const together = [8, 4, 2, 1].find((g) => group % g === 0) as number;
    const blocks = s.batch * s.tq * (s.heads / together);
    const step = (SPLIT_THREADS / (w / 8)) * 4;
    const splits = Math.max(1, Math.min(Math.ceil(s.tk / step), Math.ceil((4 * info.multiprocessors) / blocks), 128));
    const partial = t.make([s.batch, s.heads, s.tq, splits, s.dim], 'f32');
    const partialLse = t.make([s.batch, s.heads, s.tq, splits], 'f32');
    const bytes = pack({ ...views, partial, partialLse }, p, s, splits);
    return [
      launch('attention', `attention_split_${dtype}_${w}_${together}`, [splits, s.heads / together, s.batch * s.tq], SPLIT_THREADS, [bytes]),
      launch('attention', `attention_combine_${dtype}`, [s.tq, s.heads, s.batch], SPLIT_THREADS, [bytes]),
    ];
  }
  const bytes = pack(views, p, s);
  const { q, k, v, out } = views as Required<Pick<Views, 'q' | 'k' | 'v' | 'out'>>;
  if (isHalf(dtype) && aligned([q, k, v, out], s.dim)) {
    const m = (roomy(info.arch) && MATRIX_LARGE[w]) || MATRIX[w];
    return [launch('attention-matrix', `attention_matrix_${dtype}_${m.ending}`, [Math.ceil(s.tq / m.rows), s.heads, s.batch], 4 * info.warp, [bytes], m.shared)];
  }
  return [launch('attention', `attention_${dtype}_${w}`, [Math.ceil(s.tq / tileOf(dtype)), s.heads, s.batch], 256, [bytes])];
}

function sizes(q: View, k: View, p: SdpaParams, extra: { readonly [K in Extra]?: View }): Sizes {
  const sig = (v: View): { shape: readonly number[]; dtype: DType } => ({ shape: v.layout.shape, dtype: v.dtype });
  const extras = Object.fromEntries(Object.entries(extra).map(([name, v]) => [name, sig(v)]));
  const [qs, ks] = [sizesOf(q.layout.shape, p.layout), sizesOf(k.layout.shape, p.layout)];
  return { ...extent(sig(q), sig(k), p, extras), heads: qs.heads, kvHeads: ks.heads, dim: qs.dim };
}

/** A wide copy where the values are stored in something else. */
function wide(gpu: GpuContext, t: Temporaries, v: View, dtype: DType): View {
  if (v.dtype === dtype) return t.dense(v);
  const out = t.make(v.layout.shape, dtype);
  runCast(gpu, undefined as never, [v], [out]);
  return out;
}

export function runAttention(gpu: GpuContext, row: KernelRow, inputs: readonly View[], outputs: readonly View[], params: SdpaParams): void {
  withTemporaries(gpu, (t) => {
    const launches = row.name === 'sdpaRun' ? planForward(gpu, t, inputs, outputs, params)
      : row.name === 'sdpaBackward' ? planBackward(gpu, t, inputs, outputs, params)
      : planDelta(t, inputs, outputs, params);
    runPlan(gpu, { launches, scratch: 0 }, {});
  });
}

/** Small inputs are read by index: slopes, sinks, starts, lengths and the block table. The mask keeps its strides. */
const extraViews = (t: Temporaries, extra: { readonly [K in Extra]?: View }): Views =>
  Object.fromEntries(Object.entries(extra).map(([name, v]) => [name, name === 'mask' ? v : t.dense(v)]));

function planForward(gpu: GpuContext, t: Temporaries, inputs: readonly View[], [out, lse]: readonly View[], p: SdpaParams): Launch[] {
  const extra = extrasOf(inputs.slice(3), p.extras);
  const s = sizes(inputs[0], inputs[1], p, extra);
  const [q, k, v] = inputs.slice(0, 3).map((x) => rowsOf(t, x, p.layout));
  if (s.tq === 0 || s.batch === 0) return [];
  // Rows that belong to no sequence, and queries without keys, are zeros.
  if (extra.qStarts) gpu.fill(out, 0);
  return forward(gpu, t, { q, k, v, out: turned(out, p.layout), lse, ...extraViews(t, extra) }, p, s, inputs[0].dtype);
}

function planBackward(gpu: GpuContext, t: Temporaries, inputs: readonly View[], outputs: readonly View[], p: SdpaParams): Launch[] {
  const extra = extrasOf(inputs.slice(6), p.extras);
  const s = sizes(inputs[0], inputs[1], p, extra);
  const { dtype } = inputs[0];
  const sums: DType = dtype === 'f64' ? 'f64' : 'f32';
  const [q, k, v, dout] = inputs.slice(0, 4).map((x) => rowsOf(t, x, p.layout));
  const [lse, delta] = [wide(gpu, t, inputs[4], sums), wide(gpu, t, inputs[5], sums)];
  const [dq, dk, dv] = outputs.map((x) => turned(x, p.layout));
  if (extra.qStarts) for (const o of outputs) gpu.fill(o, 0);
  const bytes = pack({ q, k, v, dout, lse, delta, dq, dk, dv, ...extraViews(t, extra) }, p, s);
  const [w, tile] = [width(s.dim), tileOf(dtype)];
  return [
    launch('attention-backward', `attention_backward_query_${dtype}_${w}`, [Math.ceil(s.tq / tile), s.heads, s.batch], 256, [bytes]),
    launch('attention-backward', `attention_backward_key_${dtype}_${w}`, [Math.ceil(s.tk / tile), s.kvHeads, s.batch], 256, [bytes]),
  ];
}

function planDelta(t: Temporaries, inputs: readonly View[], [delta]: readonly View[], { layout }: Pick<SdpaParams, 'layout'>): Launch[] {
  const [out, dout] = inputs.map((x) => rowsOf(t, x, layout));
  const [batch, heads, tq, dim] = out.layout.shape;
  const p: SdpaParams = { layout, scale: 1, softcap: 0, left: -1, right: -1, extras: [], longest: [0, 0] };
  // The kernel finds rows of delta by the strides of lse.
  const bytes = pack({ out, dout, delta, lse: delta }, p, { batch, heads, kvHeads: heads, tq, tk: tq, dim });
  return [launch('attention-backward', `attention_delta_${out.dtype}`, [Math.ceil(tq / 8), heads, batch], 256, [bytes])];
}

