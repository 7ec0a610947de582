// Matrix products: the vendor's library where there is one and it takes the layout, else our own kernel, which takes any.
import { bytesOf } from '../../base/dtype.js';
import { UnsupportedError } from '../../base/errors.js';
import type { Layout } from '../../base/layout.js';
import { sizeOf } from '../../base/shape.js';
import type { Blas, GemmDType, GemmPlan, GemmSpec, MatrixLayout } from '../../driver/blas.js';
import { gemmLaunch, type Operand } from '../../kernels/launch.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { addressOf, runPlan, viewOf, withTemporaries } from './plans.js';

/** How a matrix lies in memory as libraries see it, or undefined where neither of its dimensions is dense. */
function matrixLayout(l: Layout, batchStride: number): MatrixLayout | undefined {
  const r = l.rank;
  const [rows, cols] = [l.shape[r - 2], l.shape[r - 1]];
  const [rs, cs] = [l.strides[r - 2], l.strides[r - 1]];
  if ((cs === 1 || cols === 1) && (rs >= cols || rows === 1))
    return { order: 'row', ld: rows === 1 ? Math.max(cols, 1) : rs, batchStride };
  if ((rs === 1 || rows === 1) && (cs >= rows || cols === 1))
    return { order: 'col', ld: cols === 1 ? Math.max(rows, 1) : cs, batchStride };
  return undefined;
}

/** Batch dimensions merged to at most three (size, stride of a, stride of b); undefined where they do not merge. */
function mergeBatch(
  shape: readonly number[],
  a: readonly number[],
  b: readonly number[],
): { size: number; a: number; b: number }[] {
  const merged: { size: number; a: number; b: number }[] = [];
  shape.forEach((size, i) => {
    if (size === 1) return;
    const last = merged[merged.length - 1];
    if (last && last.a === a[i] * size && last.b === b[i] * size)
      Object.assign(last, { size: last.size * size, a: a[i], b: b[i] });
    else merged.push({ size, a: a[i], b: b[i] });
  });
  return merged;
}

const broadcastBatch = (v: View, batch: readonly number[]): View => {
  const r = v.layout.rank;
  return {
    ...viewOf(v),
    layout: v.layout.broadcastTo('matmul', [...batch, v.layout.shape[r - 2], v.layout.shape[r - 1]]),
  };
};

export function runMatmul(gpu: GpuContext, _row: unknown, [lhs, rhs]: readonly View[], [out]: readonly View[]): void {
  const batch = out.layout.shape.slice(0, -2);
  const [m, n] = out.layout.shape.slice(-2);
  const k = lhs.layout.shape[lhs.layout.rank - 1];
  if (k === 0) return gpu.fill(out, 0);
  const a = broadcastBatch(lhs, batch);
  const b = broadcastBatch(rhs, batch);
  const parts = mergeBatch(batch, a.layout.strides, b.layout.strides);
  if (parts.length <= 1 && byLibrary(gpu, a, b, out, m, n, k, parts[0])) return;
  ownProduct(gpu, a, b, out, m, n, k, parts);
}

const plans = new WeakMap<Blas, Map<string, GemmPlan | undefined>>();
const keyOf = ({ a, b, ...spec }: GemmSpec): string =>
  `${spec.dtype},${spec.batch},${spec.m},${spec.n},${spec.k},${a.order}${a.ld},${a.batchStride},${b.order}${b.ld},${b.batchStride},${spec.tf32 ? 1 : 0}`;
const forgetPlan = (blas: Blas, spec: GemmSpec): unknown => plans.get(blas)?.set(keyOf(spec), undefined);
function planOf(blas: Blas, spec: GemmSpec): GemmPlan | undefined {
  let known = plans.get(blas);
  if (!known) plans.set(blas, (known = new Map()));
  const key = keyOf(spec);
  if (!known.has(key)) known.set(key, blas.supports(spec) === true ? blas.plan(spec) : undefined);
  return known.get(key);
}

function byLibrary(
  gpu: GpuContext,
  a: View,
  b: View,
  out: View,
  m: number,
  n: number,
  k: number,
  batch: { size: number; a: number; b: number } | undefined,
): boolean {
  const { blas } = gpu.libraries;
  if (typeof blas === 'string') return false;
  const la = matrixLayout(a.layout, batch?.a ?? 0);
  const lb = matrixLayout(b.layout, batch?.b ?? 0);
  if (!la || !lb) return false;
  const spec: GemmSpec = {
    dtype: out.dtype as GemmDType,
    batch: batch?.size ?? 1,
    m,
    n,
    k,
    a: la,
    b: lb,
    d: { order: 'row', ld: n, batchStride: m * n },
    bias: false,
    tf32: gpu.tf32,
  };
  const plan = planOf(blas, spec);
  if (!plan) return false;
  try {
    blas.run(plan, addressOf(a), addressOf(b), addressOf(out), 0, 1, 0, gpu.stream);
  } catch (e) {
    if (!(e instanceof UnsupportedError)) throw e;
    forgetPlan(blas, spec); // what a library cannot run is known for the next time
    return false;
  }
  return true;
}

/** A launch takes three batch dimensions and 65535 batches: more are done in turns. */
const LARGEST_BATCH = 65535;

function ownProduct(
  gpu: GpuContext,
  a: View,
  b: View,
  out: View,
  m: number,
  n: number,
  k: number,
  parts: { size: number; a: number; b: number }[],
): void {
  if (parts.length > 3 || sizeOf(parts.map((p) => p.size)) > LARGEST_BATCH)
    return inTurns(gpu, a, b, out, m, n, k, parts);
  const sizes = [1, 1, 1, ...parts.map((p) => p.size)].slice(-3) as [number, number, number];
  const strides = (side: 'a' | 'b'): [number, number, number] =>
    [0, 0, 0, ...parts.map((p) => p[side])].slice(-3) as [number, number, number];
  const operand = (v: View, row: number, kDim: number, side: 'a' | 'b'): Operand => ({
    row: v.layout.strides[v.layout.rank + row],
    k: v.layout.strides[v.layout.rank + kDim],
    batch: strides(side),
  });
  withTemporaries(gpu, () => {
    const [pa, pb] = [addressOf(a), addressOf(b)];
    const align = [16, 8, 4, 2, 1].find((w) => pa % w === 0 && pb % w === 0) as number;
    const plan = gemmLaunch(
      out.dtype,
      { m, n, k, batch: sizes, a: operand(a, -2, -1, 'a'), b: operand(b, -1, -2, 'b'), bias: false, align },
      gpu.device.info,
    );
    runPlan(gpu, plan, { a: pa, b: pb, c: addressOf(out), bias: 0 });
  });
}

function inTurns(
  gpu: GpuContext,
  a: View,
  b: View,
  out: View,
  m: number,
  n: number,
  k: number,
  parts: { size: number; a: number; b: number }[],
): void {
  const [first, ...rest] = parts;
  const inner = sizeOf(rest.map((p) => p.size)) * m * n;
  const step =
    rest.length >= 3 ? 1 : Math.max(1, Math.floor(LARGEST_BATCH / Math.max(1, sizeOf(rest.map((p) => p.size)))));
  const moved = (v: View, by: number): View => ({
    ...viewOf(v),
    memory: { ...v.memory, bytes: v.memory.bytes, address: v.memory.address + by * bytesOf(v.dtype) },
  });
  for (let i = 0; i < first.size; i += step) {
    const size = Math.min(step, first.size - i);
    ownProduct(gpu, moved(a, i * first.a), moved(b, i * first.b), moved(out, i * inner), m, n, k, [
      ...(size > 1 ? [{ ...first, size }] : []),
      ...rest,
    ]);
  }
}
