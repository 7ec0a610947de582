// Attention on a GPU: operands and options become the struct its kernels take (attention-kernels.ts).
import type { DType } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import {
  type Extra,
  extent,
  extrasOf,
  headDim,
  isResult,
  type SdpaParams,
  sizesOf,
} from '../../ops/attention-reference.js';
import { indexing } from '../../ops/indexing.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import {
  type AttentionCall,
  type AttentionDType,
  backwardLaunches,
  deltaLaunch,
  forwardLaunches,
  splitLaunches,
  splitsFor,
  type Stored,
} from './attention-kernels.js';
import { libraryAttention } from './attention-library.js';
import { planIndex } from './indexing.js';
import { inType } from './movement.js';
import {
  addressOf,
  FAULT,
  type FamilyPlan,
  inTurns,
  type Launch,
  MOST_BLOCKS,
  permuted,
  Planner,
  rowsFrom,
  viewOf,
} from './plan.js';
import { planDecode } from './quantized.js';

/** A few queries over many keys: blocks for parts of the keys, joined afterwards. */
const SPLIT_QUERIES = 4;

type Triple = readonly [number, number, number];
type Extras = { readonly [K in Extra]?: View };

/** (batch, heads, rows, dim) whatever the layout. */
const turned = (v: View, layout: SdpaParams['layout']): View => (layout === 'bhtd' ? v : permuted(v, [0, 2, 1, 3]));
const unitRows = (l: Layout): boolean => l.strides[3] === 1 || l.shape[3] === 1;
/** Rows with unit stride, copied where they have none. */
const rowsOf = (p: Planner, v: View, layout: SdpaParams['layout']): View =>
  turned(unitRows(v.layout) ? v : p.dense(v), layout);

/**
 * Strides of dimensions of one element do not matter; 0 is a multiple of everything. Packed sequences have no batch.
 */
const strides = ({ layout: { shape, strides: s } }: View, packed: boolean): Triple => [
  packed || shape[0] === 1 ? 0 : s[0],
  shape[1] === 1 ? 0 : s[1],
  shape[2] === 1 ? 0 : s[2],
];

/**
 * Sizes, options and small inputs: what all kernels need. Slopes, sinks, starts, lengths and page numbers are read by
 * index.
 */
function common(p: Planner, [q, k]: readonly View[], extra: Extras, o: SdpaParams): AttentionCall {
  const sig = (v: View): { shape: readonly number[]; dtype: DType } => ({ shape: v.layout.shape, dtype: v.dtype });
  const sigs = Object.fromEntries(Object.entries(extra).map(([name, v]) => [name, sig(v)]));
  const [qs, ks] = [sizesOf(q.layout.shape, o.layout), sizesOf(k.layout.shape, o.layout)];
  const dense = Object.fromEntries(
    Object.entries(extra)
      .filter(([name]) => name !== 'mask')
      .map(([name, v]) => [name, p.dense(v)]),
  );
  const guided = extra.qStarts || extra.lengths || extra.pages;
  return {
    ...extent(sig(q), sig(k), o, sigs),
    ...dense,
    ...(guided && { fault: FAULT }),
    heads: qs.heads,
    kvHeads: ks.heads,
    dim: qs.dim,
    scale: o.scale,
    softcap: o.softcap,
    left: o.left,
    right: o.right,
    ...(extra.mask && {
      mask: extra.mask,
      maskKind: extra.mask.dtype === 'u8' ? 1 : 2,
      maskStrides: extra.mask.layout.strides,
    }),
    ...(extra.pages && { pageRows: ks.rows, pageTable: extra.pages.layout.shape[1], pagesThere: ks.batch }),
    ...(extra.qStarts && { qRows: qs.rows, kRows: ks.rows }),
  };
}

const lseStrides = (lse: View, packed: boolean): readonly [number, number] => [
  packed ? 0 : lse.layout.strides[0],
  lse.layout.strides[1],
];

// ---- keys and values in 8 bits ----

/** How kernels name them, and what their rows' beginnings are multiples of, in bytes. */
const STORED: { readonly [D in DType]?: { readonly name: Stored; readonly multiple: number } } = {
  f8e4m3: { name: 'f8', multiple: 8 },
  u8: { name: 'q8', multiple: 2 },
};
const SELECT = indexing.indexSelect as unknown as RowOf<'index'>;
const reshaped = (v: View, shape: readonly number[]): View => ({
  ...viewOf(v),
  layout: Layout.contiguous(shape, v.layout.offset),
});
/** In the queries' dtype; of pages those that the table names, one sequence after another in place of the pages. */
function decodedKeys(
  p: Planner,
  kept: View,
  dtype: DType,
  pages: View | undefined,
  layout: SdpaParams['layout'],
): View {
  const chosen = pages ? gatheredPages(p, kept, pages, layout) : kept;
  if (chosen.dtype !== 'u8') return inType(p, chosen, dtype);
  const { shape } = chosen.layout;
  const out = p.make([...shape.slice(0, -1), headDim({ shape, dtype: 'u8' }, shape[3])], dtype);
  planDecode(p, chosen, out, 'Q8_0');
  return out;
}
function gatheredPages(p: Planner, kept: View, pages: View, layout: SdpaParams['layout']): View {
  const [count, ...page] = kept.layout.shape;
  const [batch, width] = pages.layout.shape;
  const ids = reshaped(p.dense(pages), [batch * width]);
  const each = page.reduce((a, b) => a * b, 1);
  const flat = p.make([batch * width, each], kept.dtype);
  planIndex(p, SELECT, [reshaped(p.dense(kept), [count, each]), ids], [flat], { dim: 0 });
  if (layout === 'bthd') return reshaped(flat, [batch, width * page[0], page[1], page[2]]);
  const [heads, rows, last] = page;
  const inOrder = p.dense(permuted(reshaped(flat, [batch, width, heads, rows, last]), [0, 2, 1, 3, 4]));
  return reshaped(inOrder, [batch, heads, width * rows, last]);
}
/** Rows that kernels for 8 bits can read, copied where they begin elsewhere. */
const keptRows = (p: Planner, v: View, multiple: number, layout: SdpaParams['layout']): View => {
  const fits = v.layout.strides.slice(0, 3).every((s) => s % multiple === 0) && addressOf(v) % multiple === 0;
  return turned(fits && unitRows(v.layout) ? v : p.dense(v, 16), layout);
};

/** `filled`: results of packed sequences are there, for some of them at a time. */
type Plan = FamilyPlan<RowOf<'attention'>, SdpaParams & { readonly filled?: boolean }>;
const enqueue = (p: Planner, launches: readonly Launch[]): void => p.run({ launches, scratch: 0 });
/** The library's attention where it serves, with our own kernels beside it; else those alone. */
function served(
  p: Planner,
  kind: 'forward' | 'backward',
  c: AttentionCall,
  o: SdpaParams,
  own: (p: Planner) => void,
): void {
  const library = libraryAttention(p.served, kind, c, o);
  if (!library) return own(p);
  const otherwise = (): Planner['steps'] => {
    const alone = new Planner(p.device);
    own(alone);
    return alone.steps;
  };
  p.steps.push({ ...library, otherwise });
}

const forward: Plan = (p, row, inputs, [out, lse], o) => {
  const extra = extrasOf(inputs.slice(3), o.extras);
  const packed = extra.qStarts !== undefined;
  const dtype = inputs[0].dtype as AttentionDType;
  const stored = inputs[1].dtype === dtype ? undefined : STORED[inputs[1].dtype];
  const { rows, dim: width } = sizesOf(inputs[0].layout.shape, o.layout);
  const few = rows <= SPLIT_QUERIES && dtype !== 'f64' && !packed;
  if (stored && !(few && width % 8 === 0)) {
    const kept = inputs.slice(1, 3).map((x) => decodedKeys(p, x, dtype, extra.pages, o.layout));
    const extras = o.extras.filter((name) => name !== 'pages');
    const rest = extras.map((name) => extra[name] as View);
    return forward(p, row, [inputs[0], ...kept, ...rest], [out, lse], { ...o, extras });
  }
  const [q, k, v] = inputs
    .slice(0, 3)
    .map((x, i) => (stored && i > 0 ? keptRows(p, x, stored.multiple, o.layout) : rowsOf(p, x, o.layout)));
  const call: AttentionCall = {
    ...common(p, inputs, extra, o),
    q,
    k,
    v,
    out,
    lse,
    qStrides: strides(q, packed),
    kStrides: strides(k, packed),
    vStrides: strides(v, packed),
    outStrides: strides(turned(out, o.layout), packed),
    lseStrides: lseStrides(lse, packed),
  };
  const { batch, heads, tq, dim } = call;
  if (tq === 0 || batch === 0) return;
  if (packed && !o.filled) p.fill(out, 0); // rows that belong to no sequence
  if (tq > SPLIT_QUERIES || dtype === 'f64' || packed)
    return served(p, 'forward', { ...call, out: turned(out, o.layout) }, o, (own) =>
      own.run(forwardLaunches(call, dtype, p.device)),
    );
  const splits = splitsFor(call, p.device);
  const partial = p.make([batch, heads, tq, splits, dim], 'f32');
  const partialLse = p.make([batch, heads, tq, splits], 'f32');
  enqueue(p, splitLaunches({ ...call, splits, partial, partialLse }, dtype, stored?.name));
};

const backward: Plan = (p, _row, inputs, outputs, o) => {
  const extra = extrasOf(inputs.slice(6), o.extras);
  const packed = extra.qStarts !== undefined;
  const dtype = inputs[0].dtype as AttentionDType;
  const sums: DType = dtype === 'f64' ? 'f64' : 'f32';
  const [q, k, v, dout] = inputs.slice(0, 4).map((x) => rowsOf(p, x, o.layout));
  const lse = inType(p, inputs[4], sums);
  const result = isResult(inputs[5].layout) ? rowsOf(p, inputs[5], o.layout) : undefined;
  const [dq, dk, dv] = outputs.map((x) => turned(x, o.layout));
  if (packed && !o.filled) for (const out of outputs) p.fill(out, 0);
  const call: AttentionCall = {
    ...common(p, inputs, extra, o),
    lse,
    lseStrides: lseStrides(lse, packed),
    q,
    k,
    v,
    dout,
    dq,
    dk,
    dv,
    qStrides: strides(q, packed),
    kStrides: strides(k, packed),
    vStrides: strides(v, packed),
    doutStrides: strides(dout, packed),
    dqStrides: strides(dq, packed),
    dkStrides: strides(dk, packed),
    dvStrides: strides(dv, packed),
  };
  served(p, 'backward', { ...call, ...(result && { out: result }) }, o, (own) => {
    const delta = result ? own.make(lse.layout.shape, sums) : inType(own, inputs[5], sums);
    if (result) planDelta(own, result, dout, delta);
    enqueue(own, backwardLaunches({ ...call, delta }, dtype, p.device));
  });
};

/** Products of rows of the result with those of its gradient, summed. */
function planDelta(p: Planner, out: View, dout: View, sums: View): void {
  const [batch, heads, tq, dim] = out.layout.shape;
  const call: AttentionCall = {
    batch,
    heads,
    kvHeads: heads,
    tq,
    tk: tq,
    dim,
    scale: 1,
    left: -1,
    right: -1,
    out,
    dout,
    delta: sums,
    outStrides: strides(out, false),
    doutStrides: strides(dout, false),
    lseStrides: lseStrides(sums, false), // rows of delta lie as those of lse
  };
  enqueue(p, [deltaLaunch(call, out.dtype as AttentionDType)]);
}
const delta: Plan = (p, _row, inputs, [sums], { layout }) => {
  const [out, dout] = inputs.map((x) => rowsOf(p, x, layout));
  planDelta(p, out, dout, sums);
};

const PASSES: Readonly<Record<RowOf<'attention'>['kernel']['pass'], Plan>> = { forward, backward, delta };
/** Operands before the extras: queries, keys, values, and what a backward pass has besides. */
const OPERANDS: Readonly<Record<keyof typeof PASSES, number>> = { forward: 3, backward: 6, delta: 2 };
export const planAttention: Plan = (p, row, inputs, outputs, params) => {
  const { pass } = row.kernel;
  const count = OPERANDS[pass];
  const [operands, rest] = [inputs.slice(0, count), inputs.slice(count)];
  const extra = extrasOf(rest, params.extras ?? []);
  const { rows, batch } = sizesOf(inputs[0].layout.shape, params.layout);
  const sequences = extra.qStarts ? extra.qStarts.layout.shape[0] - 1 : batch;
  // A block of few queries takes one of them, so that rows of a grid are sequences times queries there.
  const most = Math.floor(MOST_BLOCKS[2] / (pass === 'forward' && rows <= SPLIT_QUERIES ? Math.max(1, rows) : 1));
  if (sequences <= most) return PASSES[pass](p, row, inputs, outputs, params);
  if (extra.qStarts) for (const out of outputs) p.fill(out, 0);
  inTurns(sequences, most, (from, size) => {
    const some = (v: View): View => (extra.qStarts ? v : rowsFrom(v, from, size));
    const kept = (v: View, i: number): View => (extra.pages && (i === 1 || i === 2) ? v : some(v));
    const extras = rest.map((v, i) => rowsFrom(v, ...EXTRA_ROWS[params.extras[i]](from, size, v.layout.shape[0])));
    PASSES[pass](p, row, [...operands.map(kept), ...extras], outputs.map(some), { ...params, filled: true });
  });
};
type Rows = (from: number, size: number, all: number) => [from: number, size: number];
const [own, boundaries, every]: Rows[] = [(f, n) => [f, n], (f, n) => [f, n + 1], (_f, _n, all) => [0, all]];
/** Rows of each extra that speak of sequences `from` .. `from + size`. */
const EXTRA_ROWS: Readonly<Record<Extra, Rows>> = {
  ...{ mask: own, lengths: own, pages: own, qStarts: boundaries, kStarts: boundaries },
  ...{ slopes: every, sinks: every },
};
