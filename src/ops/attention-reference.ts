// Attention in double precision, one query at a time: the oracle, and where rows of packed and paged sequences lie.
import { type DType, isFloat } from '../base/dtype.js';
import { ArgumentError, IndexError, ShapeError } from '../base/errors.js';
import { formatShape, type Shape } from '../base/shape.js';
import { dequantize } from '../base/blocks/decode.js';
import { ggmlType } from '../base/blocks/types.js';
import { numbers } from './kernel-row.js';
import type { RefTensor, Sig } from './op.js';

/** Optional inputs in the order they follow the others. */
export const EXTRAS = ['mask', 'slopes', 'sinks', 'qStarts', 'kStarts', 'lengths', 'pages'] as const;
export type Extra = (typeof EXTRAS)[number];

export interface SdpaParams extends Record<string, unknown> {
  readonly layout: 'bhtd' | 'bthd';
  readonly scale: number;
  /** 0: none. */
  readonly softcap: number;
  /** A query at position x sees keys x - left .. x + right; -1: no bound. Causal is right = 0. */
  readonly left: number;
  readonly right: number;
  /** Which optional inputs there are. */
  readonly extras: readonly Extra[];
  /** Longest packed sequence of queries and of keys; 0 where nothing is packed. */
  readonly longest: readonly [number, number];
  /** A gradient will be asked for, so that the same shapes come again; the result does not depend on it. */
  readonly trained?: boolean;
}

/** Why the rows leave the 8-bit dtypes out. */
export const WITHOUT = 'attention is defined for floats of 16 bits and more; cast first';
/** What sums are kept in. */
export const wideOf = (d: DType): DType => (d === 'f64' ? 'f64' : 'f32');

export function extrasOf<T>(rest: readonly T[], extras: readonly Extra[]): { readonly [K in Extra]?: T } {
  return Object.fromEntries(extras.map((name, i) => [name, rest[i]])) as { readonly [K in Extra]?: T };
}

/**
 * Keys and values may be kept in 8 bits: numbers of f8e4m3, or blocks of Q8_0 as bytes, which answer another head
 * dimension than their last one.
 */
const BLOCKS = ggmlType('Q8_0');
const isBlocks = (k: Sig): boolean => k.dtype === 'u8';
export const headDim = (k: Sig, dim: number): number => (isBlocks(k) ? (dim / BLOCKS.bytes) * BLOCKS.block : dim);
const decodedKeys = (k: RefTensor): RefTensor =>
  isBlocks(k)
    ? {
        shape: [...k.shape.slice(0, -1), headDim(k, k.shape[3])],
        dtype: 'f32',
        data: [...dequantize(BLOCKS, Uint8Array.from(k.data as bigint[], Number))],
      }
    : k;

/** Sizes by name, whatever the layout; `rows` are those of one entry of the batch (or page) dimension. */
export interface Sizes {
  readonly batch: number;
  readonly heads: number;
  readonly rows: number;
  readonly dim: number;
}
export const sizesOf = (shape: Shape, layout: SdpaParams['layout']): Sizes =>
  layout === 'bhtd'
    ? { batch: shape[0], heads: shape[1], rows: shape[2], dim: shape[3] }
    : { batch: shape[0], heads: shape[2], rows: shape[1], dim: shape[3] };
export const shapeOf = ({ batch, heads, rows, dim }: Sizes, layout: SdpaParams['layout']): number[] =>
  layout === 'bhtd' ? [batch, heads, rows, dim] : [batch, rows, heads, dim];

/** Sequences of a call: how many, and the longest of queries and keys. */
export function extent(
  q: Sig,
  k: Sig,
  p: SdpaParams,
  extra: { readonly [K in Extra]?: Sig },
): { batch: number; tq: number; tk: number } {
  const [qs, ks] = [sizesOf(q.shape, p.layout), sizesOf(k.shape, p.layout)];
  if (extra.qStarts) return { batch: extra.qStarts.shape[0] - 1, tq: p.longest[0], tk: p.longest[1] };
  if (extra.pages) return { batch: qs.batch, tq: qs.rows, tk: extra.pages.shape[1] * ks.rows };
  return { batch: qs.batch, tq: qs.rows, tk: ks.rows };
}

interface Sequence {
  readonly nq: number;
  readonly nk: number;
  readonly qRow: number;
  readonly kRow: number;
}

/** A key that a query sees: where its row begins, and its logit from the product of the two. */
interface SeenKey {
  readonly k: number;
  readonly logit: (product: number) => number;
}
/** What a mask adds to the score of key j for query i; -Infinity where the key is hidden. */
function maskedBy(mask: RefTensor | undefined, heads: number, b: number, h: number, i: number, j: number): number {
  if (!mask) return 0;
  const m = ((b * heads + h) * mask.shape[2] + i) * mask.shape[3] + j;
  if (isFloat(mask.dtype)) return numbers(mask)[m];
  return Number(mask.data[m]) === 0 ? -Infinity : 0;
}

/** Calls visit for every query with the offsets of its rows and of the keys it sees. */
function eachQuery(
  inputs: readonly RefTensor[],
  p: SdpaParams,
  visit: (at: { q: number; lse: number; head: number; seen: readonly SeenKey[] }) => void,
): void {
  const [q, k, , ...rest] = inputs;
  const extra = extrasOf(rest, p.extras);
  const [qs, ks] = [sizesOf(q.shape, p.layout), sizesOf(k.shape, p.layout)];
  const { batch } = extent(q, k, p, extra);
  const ints = (t: RefTensor | undefined): number[] | undefined => t?.data.map(Number);
  const [qStarts, kStarts, lengths, pages] = [
    ints(extra.qStarts),
    ints(extra.kStarts),
    ints(extra.lengths),
    ints(extra.pages),
  ];
  const place = (s: Sizes, b: number, h: number, i: number): number =>
    (p.layout === 'bhtd' ? (b * s.heads + h) * s.rows + i : (b * s.rows + i) * s.heads + h) * s.dim;
  const sequence = (b: number): Sequence =>
    qStarts && kStarts
      ? { qRow: qStarts[b], nq: qStarts[b + 1] - qStarts[b], kRow: kStarts[b], nk: kStarts[b + 1] - kStarts[b] }
      : { qRow: 0, kRow: 0, nq: qs.rows, nk: lengths ? lengths[b] : ks.rows };
  checkPlaces(p, { qStarts, kStarts, lengths, pages }, batch, qs, ks, extra.pages?.shape[1] ?? 0);
  for (let b = 0; b < batch; b++) {
    const s = sequence(b);
    const offset = s.nk - s.nq;
    const entry = qStarts ? 0 : b;
    for (let h = 0; h < qs.heads; h++) {
      const kvHead = Math.floor(h / (qs.heads / ks.heads));
      for (let i = 0; i < s.nq; i++) {
        const x = i + offset;
        const from = p.left < 0 ? 0 : Math.max(0, x - p.left);
        const to = p.right < 0 ? s.nk - 1 : Math.min(s.nk - 1, x + p.right);
        const seen: SeenKey[] = [];
        for (let j = from; j <= to; j++) {
          const added = maskedBy(extra.mask, qs.heads, b, h, i, j);
          if (added === -Infinity) continue;
          const bias = added - (extra.slopes ? numbers(extra.slopes)[h] * Math.abs(x - j) : 0);
          const row =
            pages && extra.pages
              ? place(ks, pages[b * extra.pages.shape[1] + Math.floor(j / ks.rows)], kvHead, j % ks.rows)
              : place(ks, entry, kvHead, s.kRow + j);
          seen.push({
            k: row,
            logit: (z) => (p.softcap === 0 ? z * p.scale : p.softcap * Math.tanh((z * p.scale) / p.softcap)) + bias,
          });
        }
        visit({
          q: place(qs, entry, h, s.qRow + i),
          lse: (entry * qs.heads + h) * qs.rows + s.qRow + i,
          head: h,
          seen,
        });
      }
    }
  }
}

type Places = { readonly [K in 'qStarts' | 'kStarts' | 'lengths' | 'pages']?: readonly number[] };
/**
 * Row numbers, lengths and page numbers are data: one that points outside its tensor is named before anything is read
 * by it.
 */
function checkPlaces(p: SdpaParams, places: Places, batch: number, q: Sizes, k: Sizes, table: number): void {
  const bad = (what: string): never => {
    throw new IndexError(`sdpa: ${what}`);
  };
  for (const [name, rows, longest] of [
    ['qStarts', q.rows, p.longest[0]],
    ['kStarts', k.rows, p.longest[1]],
  ] as const) {
    places[name]?.slice(0, batch).forEach((from, b, all) => {
      const to = places[name]?.[b + 1] ?? all[b];
      if (from < 0 || to < from || to > rows)
        bad(`${name} runs from ${from} to ${to} at position ${b}; starts ascend from 0 to the ${rows} rows there are`);
      if (to - from > longest)
        bad(
          `${name} holds a sequence of ${to - from} rows at position ${b}, longer than the ${longest} that were said ` +
            'to be the most',
        );
    });
  }
  const room = places.pages ? table * k.rows : k.rows;
  places.lengths?.forEach((n, b) => {
    if (n < 0 || n > room) bad(`length ${n} at position ${b} is out of range; there is room for 0 to ${room} keys`);
    for (let i = 0; places.pages && i * k.rows < n; i++) {
      const page = places.pages[b * table + i];
      if (page < 0 || page >= k.batch)
        bad(`page ${page} at position [${b}, ${i}] is out of range; there are ${k.batch} pages`);
    }
  });
}

const product = (a: readonly number[], x: number, b: readonly number[], y: number, n: number): number => {
  let sum = 0;
  for (let d = 0; d < n; d++) sum += a[x + d] * b[y + d];
  return sum;
};

/** A score of -infinity weighs nothing, even where there is no other. */
const weightAt = (score: number, top: number): number => (score === -Infinity ? 0 : Math.exp(score - top));

/**
 * A row that sees nothing is 0, as is one all of whose scores are -infinity. A score that is NaN or +infinity makes the
 * row NaN, as does NaN in a value that weighs something; nothing else of a key or value is looked at.
 */
export function referenceForward(given: readonly RefTensor[], [out, lse]: readonly RefTensor[], p: SdpaParams): void {
  const inputs = given.map((t, i) => (i === 1 || i === 2 ? decodedKeys(t) : t));
  const [q, k, v] = inputs.slice(0, 3).map(numbers);
  const { sinks } = extrasOf(inputs.slice(3), p.extras);
  const dim = inputs[0].shape[3];
  out.data.fill(0);
  lse.data.fill(-Infinity);
  eachQuery(inputs, p, (at) => {
    const logits = at.seen.map((s) => s.logit(product(q, at.q, k, s.k, dim)));
    const sink = sinks ? numbers(sinks)[at.head] : -Infinity;
    const top = logits.reduce((a, b) => Math.max(a, b), sink);
    const weights = logits.map((l) => weightAt(l, top));
    const sum = weights.reduce((a, b) => a + b, weightAt(sink, top));
    lse.data[at.lse] = sum === 0 ? -Infinity : top + Math.log(sum);
    for (let d = 0; d < dim; d++) {
      const all = at.seen.reduce((a, s, n) => (weights[n] === 0 ? a : a + weights[n] * v[s.k + d]), 0);
      out.data[at.q + d] = sum === 0 ? 0 : all / sum;
    }
  });
}

/**
 * Whether the sixth input of the backward pass is the forward pass's result in the place of delta, which is then what
 * it gives with dout and nothing else: libraries make that themselves.
 */
export const isResult = (given: { readonly shape: Shape }): boolean => given.shape.length === 4;

/** Inputs q, k, v, dout, lse, delta or the forward pass's result, extras; outputs dq, dk, dv. */
export function referenceBackward(inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: SdpaParams): void {
  const [q, k, v, dout, lse, given] = inputs.slice(0, 6).map(numbers);
  const [dq, dk, dv] = outputs.map((o) => (o.data.fill(0), o.data as number[]));
  const dim = inputs[0].shape[3];
  eachQuery([...inputs.slice(0, 3), ...inputs.slice(6)], p, (at) => {
    const delta = isResult(inputs[5]) ? product(given, at.q, dout, at.q, dim) : given[at.lse];
    for (const s of at.seen) {
      const z = product(q, at.q, k, s.k, dim);
      const weight = weightAt(s.logit(z), lse[at.lse]);
      if (weight === 0) continue;
      const slope = p.softcap === 0 ? p.scale : p.scale * (1 - Math.tanh((z * p.scale) / p.softcap) ** 2);
      const g = weight * (product(dout, at.q, v, s.k, dim) - delta) * slope;
      for (let d = 0; d < dim; d++) {
        dv[s.k + d] += weight * dout[at.q + d];
        dq[at.q + d] += g * k[s.k + d];
        dk[s.k + d] += g * q[at.q + d];
      }
    }
  });
}

/** out times dout over the head dimension, as (batch, heads, rows). */
export function referenceDelta(
  [out, dout]: readonly RefTensor[],
  [delta]: readonly RefTensor[],
  layout: SdpaParams['layout'],
): void {
  const { batch, heads, rows, dim } = sizesOf(out.shape, layout);
  const [a, b] = [numbers(out), numbers(dout)];
  for (let n = 0, to = 0; n < batch; n++)
    for (let h = 0; h < heads; h++)
      for (let i = 0; i < rows; i++) {
        const at = (layout === 'bhtd' ? (n * heads + h) * rows + i : (n * rows + i) * heads + h) * dim;
        delta.data[to++] = product(a, at, b, at, dim);
      }
}

/** Checks shapes of a call and answers its sizes. */
export function checkCall(
  op: string,
  [q, k, v]: readonly Sig[],
  rest: readonly Sig[],
  p: SdpaParams,
): { q: Sizes; k: Sizes } {
  if (EXTRAS.filter((e) => p.extras.includes(e)).join() !== p.extras.join() || rest.length !== p.extras.length)
    throw new ArgumentError(
      `${op}: ${rest.length} optional inputs for [${p.extras.join(', ')}]; each is named once, in the order ` +
        `${EXTRAS.join(', ')}`,
    );
  const has = (e: Extra): boolean => p.extras.includes(e);
  if (has('qStarts') !== has('kStarts') || (has('pages') && (!has('lengths') || has('qStarts'))))
    throw new ArgumentError(`${op}: starts of queries and of keys go together, and pages need lengths and no starts`);
  if (
    !p.longest.every((n) => Number.isSafeInteger(n) && n >= 0) ||
    (has('qStarts') && (q.shape[0] !== 1 || k.shape[0] !== 1))
  )
    throw new ArgumentError(
      `${op}: packed sequences are one entry of a batch, and the longest of them ${formatShape(p.longest)} are whole ` +
        'numbers',
    );
  for (const [name, t] of [
    ['q', q],
    ['k', k],
    ['v', v],
  ] as const) {
    if (t.shape.length !== 4)
      throw new ShapeError(
        `${op}: ${name} ${formatShape(t.shape)} has ` +
          `rank ${t.shape.length}; it takes rank 4: ${
            p.layout === 'bhtd' ? '(batch, heads, time, ' + 'dim)' : '(batch, time, heads, dim)'
          }`,
      );
  }
  const [qs, ks, vs] = [sizesOf(q.shape, p.layout), sizesOf(k.shape, p.layout), sizesOf(v.shape, p.layout)];
  if (formatShape(k.shape) !== formatShape(v.shape))
    throw new ShapeError(`${op}: keys ${formatShape(k.shape)} and values ${formatShape(v.shape)} must have one shape`);
  if (isBlocks(k) && ks.dim % BLOCKS.bytes !== 0)
    throw new ShapeError(
      `${op}: rows of ${formatShape(k.shape)} are not whole blocks of ${BLOCKS.name}, which have ${BLOCKS.bytes} bytes`,
    );
  if (qs.dim !== headDim(k, ks.dim) || vs.dim < 1)
    throw new ShapeError(
      `${op}: queries ${formatShape(q.shape)} and keys ${formatShape(k.shape)} must have one head dimension`,
    );
  if (qs.dim > 256) throw new ShapeError(`${op}: head dimension ${qs.dim} is beyond 256`);
  if (ks.heads < 1 || qs.heads % ks.heads !== 0)
    throw new ShapeError(`${op}: ${qs.heads} query heads do not divide into groups over ${ks.heads} key heads`);
  if (!p.extras.includes('pages') && qs.batch !== ks.batch)
    throw new ShapeError(
      `${op}: queries ${formatShape(q.shape)} and keys ${formatShape(k.shape)} must have one batch size`,
    );
  return { q: qs, k: ks };
}
