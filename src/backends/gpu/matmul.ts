// Matrix products: the vendor's library where there is one and it takes the layout, else kernels/gemm.hip, which take
// any.
import { bytesOf, type DType } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { sizeOf } from '../../base/shape.js';
import type { GemmDType, GemmPlan, MatrixLayout } from '../../driver/blas.js';
import type { DeviceInfo } from '../../driver/driver.js';
import {
  type Axes,
  CTYPE,
  type Kernel,
  KernelModule,
  REAL_TYPES,
  Struct,
  type VariantOf,
  typed,
} from '../../kernels/declare.js';
import type { View } from '../backend.js';
import type { Served } from './libraries.js';
import { inType } from './movement.js';
import {
  alignmentOf,
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  launch,
  type Launches,
  permuted,
  places,
  type Plan,
  Planner,
  single,
  strideGrid,
  type Target,
  viewOf,
} from './plan.js';

/** Whether a target multiplies 16-bit tiles in hardware; the simulation does it lane by lane. */
export const hasMatrixUnits = ({ arch }: Pick<Target, 'arch'>): boolean =>
  arch === 'sim' ||
  /^gfx(90a|94[012]|950|11\d\d|12\d\d)$/.test(arch) ||
  (/^(sm|compute)_(\d+)/.exec(arch)?.[2] ?? '0').padStart(3, '0') >= '080';

// ---- kernels ----

export const GEMM = new KernelModule('gemm');
export const GEMM_HOPPER = new KernelModule('gemm-hopper', { needs: 'sm_90a' });
/** Strides of an operand, and sizes of the product. */
const OPERAND = new Struct('Operand', { row: 'i64', k: 'i64', batch: ['i64', 3] });
const PRODUCT = new Struct('Product', { m: 'i64', n: 'i64', k: 'i64', batch1: 'i64', batch2: 'i64', split: 'i64' });
const params = (S: string) =>
  ({
    a: `const ${S}*`,
    b: `const ${S}*`,
    c: `${S}*`,
    part: `product_t<${S}>*`,
    bias: `const ${S}*`,
    oa: OPERAND,
    ob: OPERAND,
    p: PRODUCT,
  }) as const;
type GemmKernel<A extends Axes> = Kernel<A, ReturnType<typeof params>>;
/** Four waves. */
export const MMA_THREADS = { constant: 'MMA_THREADS', threads: 256, byWaves: true } as const;
/** Which dimension of each operand is contiguous: k, or its rows. */
const ORDERS = ['kk', 'kr', 'rk', 'rr'] as const;
const along = (order: (typeof ORDERS)[number]): string => `${order[0] === 'k'}, ${order[1] === 'k'}`;

/** Every dtype on every target, any strides. */
const byProducts = GEMM.forTypes(REAL_TYPES, 'gemm_fma', (T) => ({
  threads: 256,
  params: params(T),
  call: 'gemm_any<false>',
}));
/** Joins partial sums over k. */
const merge = GEMM.forTypes(REAL_TYPES, 'gemm_merge', (T) => ({
  threads: 256,
  params: { part: `const product_t<${T}>*`, c: `${T}*`, bias: `const ${T}*`, ...typed('i64', 'size', 'splits', 'n') },
  call: `gemm_merge<${T}>`,
}));
/** One number of two long vectors. */
const dotted = GEMM.forTypes(REAL_TYPES, 'dot_part', (T) => ({
  threads: 256,
  params: { a: `const ${T}*`, b: `const ${T}*`, part: `product_t<${T}>*`, k: 'i64' },
  call: 'dot_part',
}));
const dotEnd = GEMM.forTypes(REAL_TYPES, 'dot_end', (T) => ({
  threads: 256,
  params: { part: `const product_t<${T}>*`, c: `${T}*`, count: 'u32' },
  call: 'dot_end',
}));
/** Few rows against contiguous columns, at copy speed. */
const fewRows = GEMM.declare({
  each: { rows: [1, 2, 3, 4, 5, 6, 7, 8], dtype: REAL_TYPES },
  symbol: ({ rows, dtype }) => `matvec_${dtype}_rows${rows}`,
  body: ({ rows, dtype }) => ({ threads: 128, params: params(CTYPE[dtype]), call: `matvec_part<${rows}>` }),
});
/** Through the matrix units, any strides. */
const byMatrixUnits = GEMM.declare({
  each: { dtype: ['f16', 'bf16'] },
  symbol: ({ dtype }) => `gemm_mma_${dtype}`,
  body: ({ dtype }) => ({ threads: MMA_THREADS, params: params(CTYPE[dtype]), call: 'gemm_any<true>' }),
  launchedOn: (_, arch) => hasMatrixUnits({ arch }),
});
/** Tiles of the kernels with asynchronous copies; large ones ask for more shared memory than AMD's GPUs have. */
const TILES = {
  small: { constant: 'SMALL_THREADS', threads: 256, tile: '128, 128, SMALL_K, SMALL_STAGES' },
  large: { constant: 'LARGE_THREADS', threads: 512, tile: '128, 256, LARGE_K, LARGE_STAGES' },
} as const;
/** A tile as launches see it: its columns, the elements of k in a stage, stages and waves. */
type Staged = readonly [columns: number, k: number, stages: number, waves: number];
const LARGE_TILE: Staged = [256, 64, 3, 8];
const byCopies = GEMM.declare({
  each: { size: ['small', 'large'], order: ORDERS, dtype: ['f16', 'bf16'] },
  symbol: ({ size, order, dtype }) => `gemm_async_${dtype}_${order}_${size}`,
  body: ({ size, order, dtype }) => {
    const { constant, threads, tile } = TILES[size];
    return {
      threads: { constant, threads, byWaves: true },
      params: params(CTYPE[dtype]),
      call: `gemm_async_tile<${constant}, ${CTYPE[dtype]}, ${along(order)}, ${tile}>`,
    };
  },
  launchedOn: ({ size }, arch) => hasMatrixUnits({ arch }) && (size === 'small' || !arch.startsWith('gfx')),
});
const onHopper = GEMM_HOPPER.declare({
  each: { order: ORDERS, dtype: ['f16', 'bf16'] },
  symbol: ({ order, dtype }) => `gemm_hopper_${dtype}_${order}`,
  body: ({ order, dtype }) => ({
    threads: 384,
    params: params(CTYPE[dtype]),
    call: `gemm_hopper_tile<${CTYPE[dtype]}, ${along(order)}>`,
  }),
});

// ---- the choice ----

/** Strides in elements: along rows (m for a, n for b), along k, and over three batch dimensions. */
export interface Operand {
  readonly row: number;
  readonly k: number;
  readonly batch: readonly [number, number, number];
}
export interface Product {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Sizes of the batch dimensions, 1 where there is none. */
  readonly batch: readonly [number, number, number];
  readonly a: Operand;
  readonly b: Operand;
  readonly bias: boolean;
  /** What the addresses of a and b are multiples of, in bytes. */
  readonly align: number;
}

/** How a kernel covers a product: tiles over m and n, threads of a block, what parts of k are multiples of. */
interface Cover {
  readonly tiles: readonly [number, number];
  readonly threads: number;
  readonly unit: number;
  readonly shared?: number;
}
const batchOf = ({ batch }: Product): number => batch[0] * batch[1] * batch[2];

function covered<A extends Axes>(
  kernel: GemmKernel<A>,
  variant: VariantOf<A> & { readonly dtype: (typeof REAL_TYPES)[number] },
  { tiles: [tilesM, tilesN], threads, unit, shared = 0 }: Cover,
  p: Product,
  { multiprocessors }: Target,
): Launches {
  // Small results of long sums leave the device idle: then k is split, and partial sums are joined in a fixed order.
  const batch = batchOf(p);
  const blocks = tilesM * tilesN * batch;
  const splits =
    blocks < multiprocessors
      ? clamp(Math.floor((2 * multiprocessors) / blocks), 1, Math.max(1, Math.min(64, Math.floor(p.k / 512))))
      : 1;
  const split = splits > 1 ? ceilDiv(ceilDiv(p.k, splits), unit) * unit : Math.max(p.k, 1);
  const used = Math.max(1, ceilDiv(p.k, split));
  const bias = p.bias ? at('bias') : 0;
  const sizes = { m: p.m, n: p.n, k: p.k, batch1: p.batch[1], batch2: p.batch[2], split };
  const part = used > 1 ? at('scratch') : 0;
  const args = { ...places('a', 'b', 'c'), part, bias, oa: p.a, ob: p.b, p: sizes };
  const main = launch(kernel, variant, [tilesM * tilesN, batch, used], threads, args, shared);
  if (used === 1) return single(main);
  const [{ dtype }, size] = [variant, batch * p.m * p.n];
  const sums = { part: at('scratch'), c: at('c'), bias, size, splits: used, n: p.n };
  return {
    launches: [main, launch(merge, { dtype }, strideGrid(size), 256, sums)],
    scratch: used * size * (dtype === 'f64' ? 8 : 4),
  };
}

/** What a product must know of its device. */
export type GemmTarget = Target & Pick<DeviceInfo, 'sharedPerBlockOptin'>;
/** c[batch, m, n] = a b + bias, c contiguous. Buffers: a, b, c, bias. k may be 0. */
export function gemmLaunch(d: DType, p: Product, target: GemmTarget): Launches {
  const dtype = d as (typeof REAL_TYPES)[number];
  const batch = batchOf(p);
  if (batch > 65535) throw new RangeError(`gemmLaunch: a batch of ${batch} does not fit one launch; split it`);
  const pack = 16 / bytesOf(dtype);
  const fits = (o: Operand, contiguous: boolean, line: number): boolean =>
    contiguous && [line, ...o.batch].every((s) => s % pack === 0);
  const aligned = p.align % 16 === 0;
  const tiles = (m: number, n: number): readonly [number, number] => [ceilDiv(p.m, m), ceilDiv(p.n, n)];

  const aK = fits(p.a, p.a.k === 1, p.a.row);
  const bK = fits(p.b, p.b.k === 1, p.b.row);
  if (p.m <= 8 && aligned && aK && bK && p.k % pack === 0 && p.k > 0) {
    const cover = { tiles: [ceilDiv(p.n, 4), 1], threads: 128, unit: 32 * pack } as const;
    return covered(fewRows, { rows: p.m as 1, dtype }, cover, p, target);
  }
  if ((dtype === 'f16' || dtype === 'bf16') && hasMatrixUnits(target)) {
    const aR = fits(p.a, p.a.row === 1, p.a.k);
    const bR = fits(p.b, p.b.row === 1, p.b.k);
    if (!aligned || !(aK || aR) || !(bK || bR)) {
      const cover = { tiles: tiles(64, 64), threads: 4 * target.warp, unit: 32 };
      return covered(byMatrixUnits, { dtype }, cover, p, target);
    }
    const order = `${aK ? 'k' : 'r'}${bK ? 'k' : 'r'}` as const;
    const nvidia = /^(sm|compute)_/.test(target.arch);
    const held = (rows: number, k: boolean, kt: number): number => (k ? rows * (kt + 8) : kt * (rows + 8));
    const sharedOf = ([bn, kt, stages]: Staged): number => stages * (held(128, aK, kt) + held(bn, bK, kt)) * 2;
    const many = ceilDiv(p.m, 128) * ceilDiv(p.n, 256) * batch >= target.multiprocessors;
    const large = nvidia && many && sharedOf(LARGE_TILE) <= target.sharedPerBlockOptin;
    if (large && target.arch === 'sm_90') {
      const cover = { tiles: tiles(128, 256), threads: 384, unit: 64, shared: 1024 + 4 * (48 << 10) };
      return covered(onHopper, { order, dtype }, cover, p, target);
    }
    const staged: Staged = large ? LARGE_TILE : nvidia ? [128, 32, 4, 8] : [128, 32, 2, 4];
    const [bn, , , waves] = staged;
    const variant = { size: large ? 'large' : 'small', order, dtype } as const;
    return covered(
      byCopies,
      variant,
      { tiles: tiles(128, bn), threads: waves * target.warp, unit: 64, shared: sharedOf(staged) },
      p,
      target,
    );
  }
  const tile = dtype === 'f64' ? 64 : 128;
  return covered(byProducts, { dtype }, { tiles: tiles(tile, tile), threads: 256, unit: 16 }, p, target);
}

// ---- layouts and libraries ----

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

/** A batch dimension: its size, and its strides in a and b. */
interface BatchPart {
  readonly size: number;
  readonly a: number;
  readonly b: number;
}
/** Batch dimensions, merged where both sides allow it. */
function mergeBatch(shape: readonly number[], a: readonly number[], b: readonly number[]): BatchPart[] {
  const merged: BatchPart[] = [];
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

/** One product of matrices in a batch. */
interface Operands {
  readonly a: View;
  readonly b: View;
  readonly out: View;
  /** Numbers added to every row. */
  readonly bias: View | undefined;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** The batch's merged dimensions. */
  readonly parts: readonly BatchPart[];
}

/** A side in the result's type; a matrix that lies turned stays so, since kernels are chosen by how sides lie. */
function widened(p: Planner, v: View, dtype: DType): View {
  if (v.dtype === dtype) return v;
  const { rank, strides } = v.layout;
  const turn = [...Array.from({ length: rank - 2 }, (_, i) => i), rank - 1, rank - 2];
  return strides[rank - 2] === 1 ? permuted(inType(p, permuted(v, turn), dtype), turn) : inType(p, v, dtype);
}

/**
 * A side of which neither dimension is dense, like the gradient of a sum, which is one number everywhere: copied where
 * the other side has rows enough to make up for it, since libraries and the faster kernels take dense ones alone.
 */
function laidOut(p: Planner, v: View, across: number): View {
  const { rank, shape, strides } = v.layout;
  const dense = [rank - 2, rank - 1].some((i) => strides[i] === 1 || shape[i] === 1);
  return dense || across < 64 ? v : p.dense(v, 16);
}

/** Elements of vectors that are worth a kernel of their own. */
const DOT_FROM = 2 ** 15;
const isLine = ({ layout }: View, dim: number): boolean => layout.strides[layout.rank + dim] === 1;
function dotLaunch(dtype: (typeof REAL_TYPES)[number], k: number, { multiprocessors }: Target): Launches {
  const blocks = clamp(ceilDiv(k, 256 * 4 * (16 / bytesOf(dtype))), 1, 8 * Math.max(1, multiprocessors));
  const part = at('scratch');
  return {
    launches: [
      launch(dotted, { dtype }, blocks, 256, { ...places('a', 'b'), part, k }),
      launch(dotEnd, { dtype }, 1, 256, { part, c: at('c'), count: blocks }),
    ],
    scratch: blocks * (dtype === 'f64' ? 8 : 4),
  };
}

export const planMatmul: FamilyPlan<unknown, unknown> = (p, _row, [lhs, rhs, added], [out]) => {
  const batch = out.layout.shape.slice(0, -2);
  const [m, n] = out.layout.shape.slice(-2);
  const k = lhs.layout.shape[lhs.layout.rank - 1];
  if (k === 0) return p.fill(out, 0);
  const a = broadcastBatch(laidOut(p, lhs, n), batch);
  const b = broadcastBatch(laidOut(p, widened(p, rhs, out.dtype), m), batch);
  if (!added && k >= DOT_FROM && sizeOf(out.layout.shape) === 1 && isLine(a, -1) && isLine(b, -2))
    return p.run(dotLaunch(out.dtype as (typeof REAL_TYPES)[number], k, p.device), { a, b, c: out });
  const bias = added && p.dense(added, 16);
  const product = { a, b, out, bias, m, n, k, parts: mergeBatch(batch, a.layout.strides, b.layout.strides) };
  const library = libraryProduct(p.served, product);
  if (!library) return planOwn(p, product);
  const otherwise = (): Plan => {
    const own = new Planner(p.device);
    planOwn(own, product);
    return own.steps;
  };
  p.steps.push({ product: library, a, b, to: out, bias, otherwise });
};

function libraryProduct(served: Served, { a, b, out, bias, m, n, k, parts }: Operands): GemmPlan | undefined {
  if (parts.length > 1) return undefined;
  const [batch] = parts;
  const la = matrixLayout(a.layout, batch?.a ?? 0);
  const lb = matrixLayout(b.layout, batch?.b ?? 0);
  if (!la || !lb) return undefined;
  const d = { order: 'row', ld: n, batchStride: m * n } as const;
  return served.product({
    dtype: out.dtype as GemmDType,
    batch: batch?.size ?? 1,
    m,
    n,
    k,
    a: la,
    b: lb,
    d,
    bias: bias !== undefined,
  });
}

/** A launch takes three batch dimensions and 65535 batches: more are done in turns. */
const LARGEST_BATCH = 65535;

function planOwn(p: Planner, product: Operands): void {
  const { a, b, out, bias, m, n, k, parts } = product;
  if (parts.length > 3 || sizeOf(parts.map((part) => part.size)) > LARGEST_BATCH) return byBatches(p, product);
  const lastThree = (list: readonly number[], fill: number): [number, number, number] =>
    [fill, fill, fill, ...list].slice(-3) as [number, number, number];
  const operand = (v: View, row: number, kDim: number, side: 'a' | 'b'): Operand => ({
    row: v.layout.strides[v.layout.rank + row],
    k: v.layout.strides[v.layout.rank + kDim],
    batch: lastThree(
      parts.map((part) => part[side]),
      0,
    ),
  });
  const batch = lastThree(
    parts.map((part) => part.size),
    1,
  );
  const sides = { a: operand(a, -2, -1, 'a'), b: operand(b, -1, -2, 'b') };
  const shape = { m, n, k, batch, ...sides, bias: bias !== undefined, align: alignmentOf(a, b) };
  p.run(gemmLaunch(out.dtype, shape, p.device), { a, b, c: out, bias });
}

function byBatches(p: Planner, product: Operands): void {
  const [first, ...rest] = product.parts;
  const batches = sizeOf(rest.map((part) => part.size));
  const step = rest.length >= 3 ? 1 : Math.max(1, Math.floor(LARGEST_BATCH / Math.max(1, batches)));
  const moved = (v: View, by: number): View => {
    const { shape, strides, offset } = v.layout;
    return { ...viewOf(v), layout: new Layout(shape, strides, offset + by) };
  };
  for (let i = 0; i < first.size; i += step) {
    const size = Math.min(step, first.size - i);
    planOwn(p, {
      ...product,
      a: moved(product.a, i * first.a),
      b: moved(product.b, i * first.b),
      out: moved(product.out, i * batches * product.m * product.n),
      parts: [...(size > 1 ? [{ ...first, size }] : []), ...rest],
    });
  }
}
