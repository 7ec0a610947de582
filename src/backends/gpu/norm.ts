// Layer and RMS norms over the last dimension, forward and backward: kernels/norm.hip.
import type { DType } from '../../base/dtype.js';
import { CTYPE, KernelModule, REAL_TYPES, typed } from '../../kernels/declare.js';
import { binaryOps } from '../../ops/binary.js';
import type { ElementwiseRow, RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import { planElementwiseRow } from './elementwise.js';
import {
  aligned16,
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  type Launch,
  launch,
  type Launches,
  packOf,
  places,
  powerAbove,
  single,
  type Target,
} from './plan.js';
import { heldVectors, ROW_WIDTHS, rowGrid, rowStream, rowWidth, WIDTH_NAMES, widthArguments } from './row-shapes.js';

export const NORM = new KernelModule('norm');
const KINDS = ['layer', 'rms'] as const;
const centred = (kind: (typeof KINDS)[number]): boolean => kind === 'layer';
const operands = (S: string) =>
  ({ src: `const ${S}*`, dst: `${S}*`, weight: `const ${S}*`, bias: `const ${S}*`, rows: 'i64', cols: 'i64' }) as const;

const rows = NORM.declare({
  each: { kind: KINDS, width: WIDTH_NAMES, dtype: REAL_TYPES },
  symbol: ({ kind, width, dtype }) => `${kind}norm_rows_${dtype}_${width}`,
  body: ({ kind, width, dtype }) => ({
    threads: ROW_WIDTHS[width].threads,
    params: { ...operands(CTYPE[dtype]), lanes: 'u32', eps: 'double' },
    call: `norm_rows<${centred(kind)}, ${CTYPE[dtype]}, ${widthArguments(width, dtype)}>`,
  }),
  launchedOn: ({ width }, arch) => width !== 'packs8' || heldVectors({ arch }) === 8,
});
/** Short rows of 16-bit floats, two at a time, so many lanes a row. */
const short = NORM.declare({
  each: { kind: KINDS, lanes: [4, 8, 16, 32], dtype: ['f16', 'bf16'] },
  symbol: ({ kind, lanes, dtype }) => `${kind}norm_short${lanes}_${dtype}`,
  body: ({ kind, lanes, dtype }) => ({
    threads: 256,
    params: { ...operands(CTYPE[dtype]), eps: 'double' },
    call: `norm_short<${centred(kind)}, ${lanes}>`,
  }),
});
/** Long rows through shared memory, weights staying in registers. */
export const stream = NORM.declare({
  each: { kind: KINDS, dtype: ['f32', 'f16', 'bf16'] },
  symbol: ({ kind, dtype }) => `${kind}norm_stream_${dtype}`,
  body: ({ kind, dtype }) => ({
    threads: 512,
    params: { ...operands(CTYPE[dtype]), eps: 'double' },
    call: `norm_stream<${centred(kind)}>`,
  }),
  launchedOn: (_, arch) => !arch.startsWith('gfx'),
});
const gradRows = NORM.declare({
  each: { kind: KINDS, width: WIDTH_NAMES, dtype: REAL_TYPES },
  symbol: ({ kind, width, dtype }) => `${kind}norm_grad_rows_${dtype}_${width}`,
  body: ({ kind, width, dtype: d }) => ({
    threads: ROW_WIDTHS[width].threads,
    params: {
      ...typed(`const ${CTYPE[d]}*`, 'src', 'grad', 'weight'),
      dx: `${CTYPE[d]}*`,
      stats: `Stats<compute_t<${CTYPE[d]}>>*`,
      rows: 'i64',
      cols: 'i64',
      lanes: 'u32',
      eps: 'double',
    },
    call: `norm_grad_rows<${centred(kind)}, ${CTYPE[d]}, ${widthArguments(width, d)}>`,
  }),
  launchedOn: ({ width }, arch) => width !== 'packs8' || heldVectors({ arch }, true) === 8,
});
const weightParts = (T: string) =>
  ({
    ...typed(`const ${T}*`, 'src', 'grad'),
    stats: `const Stats<compute_t<${T}>>*`,
    ...typed(`compute_t<${T}>*`, 'dw', 'db'),
    ...typed('i64', 'rows', 'cols', 'size'),
  }) as const;
/** Gradients of weight and bias: parts over some rows each, then the parts together. */
const gradWeights = NORM.forTypes(REAL_TYPES, 'norm_grad_weights', (T) => ({
  threads: 256,
  params: weightParts(T),
  call: 'norm_grad_weights',
}));
/** The same with 16 bytes of neighbouring columns a thread. */
const PACKED_WEIGHTS = ['f32', 'f16', 'bf16'] as const;
const gradWeightPacks = NORM.forTypes(PACKED_WEIGHTS, 'norm_grad_weight_packs', (T) => ({
  threads: 256,
  params: weightParts(T),
  call: 'norm_grad_weight_packs',
}));
/**
 * All gradients in one pass: rows of at most so many vectors a thread, or of one in a small block, which reads ahead.
 */
const HELD = [1, 2, 4] as const;
const GRADS_BLOCK = 256;
const AHEAD_BLOCK = 128;
const grads = NORM.declare({
  each: { kind: KINDS, held: [...HELD, 'ahead'], dtype: PACKED_WEIGHTS },
  symbol: ({ kind, held, dtype }) => `${kind}norm_grads${held === 'ahead' ? '_ahead' : held}_${dtype}`,
  body: ({ kind, held, dtype: d }) => ({
    threads: held === 'ahead' ? AHEAD_BLOCK : GRADS_BLOCK,
    params: {
      ...typed(`const ${CTYPE[d]}*`, 'src', 'grad', 'weight', 'plus'),
      dx: `${CTYPE[d]}*`,
      dw: 'float*',
      db: 'float*',
      rows: 'i64',
      cols: 'i64',
      eps: 'double',
    },
    call: `norm_grads<${centred(kind)}, ${CTYPE[d]}, ${held === 'ahead' ? 1 : held}, ${held === 'ahead'}>`,
  }),
});
const mergeParts = NORM.forTypes(REAL_TYPES, 'norm_merge', (T) => ({
  threads: 1024,
  params: { part: `const compute_t<${T}>*`, dst: `${T}*`, chunks: 'i64', cols: 'i64' },
  call: 'norm_merge',
}));

export interface NormOptions {
  readonly kind: 'layer' | 'rms';
  readonly eps: number;
  readonly weight: boolean;
  /** Of layer norms alone. */
  readonly bias: boolean;
}
type Real = (typeof REAL_TYPES)[number];
/** Rows to a multiprocessor up to which they are few. */
const FEW_ROWS = 2;

/** Layer or RMS norm of [rows, cols]. Buffers: src, dst, weight, bias (the last two where given). */
export function normLaunch(
  { kind, eps, weight, bias }: NormOptions,
  d: DType,
  rowCount: number,
  cols: number,
  target: Target,
  aligned: boolean,
): Launches {
  const dtype = d as Real;
  const { width, lanes } = rowWidth(dtype, cols, aligned, heldVectors(target));
  const args = {
    ...places('src', 'dst'),
    weight: weight ? at('weight') : 0,
    bias: bias ? at('bias') : 0,
    rows: rowCount,
    cols,
  };
  const packs = cols / packOf(dtype);
  if ((dtype === 'f16' || dtype === 'bf16') && width === 'packs4' && packs > 4 && packs <= 64) {
    const few = powerAbove(ceilDiv(packs, 2)) as 4 | 8 | 16 | 32;
    const blocks = ceilDiv(rowCount, 2 * (256 / few));
    if (blocks <= 2 ** 22) return single(launch(short, { kind, lanes: few, dtype }, blocks, 256, { ...args, eps }));
  }
  // Weights of long rows cost as much as the rows unless they stay in registers.
  if (dtype !== 'f64' && cols > 8192 && (width === 'packs8' || width === 'packs_loop')) {
    const s = rowStream(dtype, rowCount, cols, target);
    if (s) return single(launch(stream, { kind, dtype }, s.grid, s.block, { ...args, eps }, s.shared));
  }
  // Of few rows the time is latency: each thread has one vector, and one of weights.
  const few =
    !target.arch.startsWith('gfx') && width === 'block_packs4' && rowCount <= FEW_ROWS * target.multiprocessors;
  const spread = few ? Math.min(ROW_WIDTHS[width].threads, powerAbove(packs)) : lanes;
  const { grid, block } = rowGrid(rowCount, spread);
  return single(launch(rows, { kind, width, dtype }, grid, block, { ...args, lanes: spread, eps }));
}

/** Partial sums of so many chunks to a gradient. */
const merged = (dtype: Real, part: ReturnType<typeof at>, to: string, chunks: number, cols: number): Launch =>
  launch(mergeParts, { dtype }, ceilDiv(cols, 32), [32, 32], { part, dst: at(to), chunks, cols });

/** All gradients in one pass, where a block holds a row; buffers as below, and plus, which is added to dx. */
function gradsLaunch(
  { kind, eps, bias }: NormOptions,
  dtype: Real,
  rows: number,
  cols: number,
  target: Target,
  plus: boolean,
): Launches | undefined {
  const packed = PACKED_WEIGHTS.find((x) => x === dtype && cols % packOf(x) === 0);
  if (!packed) return undefined;
  const packs = cols / packOf(packed);
  const block = clamp(powerAbove(packs), target.warp, GRADS_BLOCK);
  const held = block <= AHEAD_BLOCK ? 'ahead' : HELD.find((n) => n * block >= packs);
  if (!held) return undefined;
  const chunks = clamp(ceilDiv(rows, 8), 1, 4 * target.multiprocessors);
  const part = 4 * chunks * cols;
  const [dw, db] = [at('scratch'), at('scratch', part)];
  const args = { src: at('src'), grad: at('grad'), weight: at('weight'), plus: plus ? at('plus') : 0, dx: at('dx') };
  const launches = [
    launch(grads, { kind, held, dtype: packed }, chunks, block, { ...args, dw, db: bias ? db : 0, rows, cols, eps }),
    merged(dtype, dw, 'dweight', chunks, cols),
  ];
  if (bias) launches.push(merged(dtype, db, 'dbias', chunks, cols));
  return { launches, scratch: 2 * part };
}

/**
 * Gradients. Buffers: src, grad, weight (where given), dx, and dweight, dbias where `o` has them and `weights` asks for
 * them.
 */
export function normGradLaunch(
  o: NormOptions,
  d: DType,
  rowCount: number,
  cols: number,
  target: Target,
  aligned: boolean,
  weights: boolean,
): Launches {
  const dtype = d as Real;
  const { width, lanes } = rowWidth(dtype, cols, aligned, heldVectors(target, true));
  const { grid, block } = rowGrid(rowCount, lanes);
  const wide = dtype === 'f64' ? 8 : 4;
  const wanted = weights && (o.weight || o.bias);
  const packed = PACKED_WEIGHTS.find((x) => x === dtype && aligned && cols % packOf(x) === 0);
  const tiles = ceilDiv(cols, 32 * (packed ? packOf(packed) : 1));
  const most = Math.max(1, Math.min(512, Math.floor(rowCount / 32)));
  const size = ceilDiv(rowCount, clamp(ceilDiv(4 * target.multiprocessors, tiles), 1, most));
  const chunks = ceilDiv(rowCount, size);
  const stats = rowCount * 2 * wide;
  const part = chunks * cols * wide;
  const [src, grad, scratch] = [at('src'), at('grad'), at('scratch')];
  const launches: Launch[] = [
    launch(gradRows, { kind: o.kind, width, dtype }, grid, block, {
      src,
      grad,
      weight: o.weight ? at('weight') : 0,
      dx: at('dx'),
      stats: wanted ? scratch : 0,
      rows: rowCount,
      cols,
      lanes,
      eps: o.eps,
    }),
  ];
  if (wanted) {
    const [dw, db] = [at('scratch', stats), at('scratch', stats + part)];
    const sums = { dw: o.weight ? dw : 0, db: o.bias ? db : 0, rows: rowCount, cols, size };
    const args = { src, grad, stats: scratch, ...sums };
    launches.push(
      packed
        ? launch(gradWeightPacks, { dtype: packed }, [tiles, chunks], [32, 8], args)
        : launch(gradWeights, { dtype }, [tiles, chunks], [32, 8], args),
    );
    if (o.weight) launches.push(merged(dtype, dw, 'dweight', chunks, cols));
    if (o.bias) launches.push(merged(dtype, db, 'dbias', chunks, cols));
  }
  return { launches, scratch: wanted ? stats + 2 * part : 0 };
}

interface Params {
  readonly eps: number;
  readonly weight: boolean;
  readonly bias?: boolean;
  /** Of gradients: something is added to that of x. */
  readonly plus?: boolean;
}
export const planNorm: FamilyPlan<RowOf<'norm'>, Params> = (p, { kernel }, inputs, [out, dweight, dbias], params) => {
  const { kind, backward, weights = false } = kernel;
  const bias = (weights || !backward) && (params.bias ?? false);
  const options: NormOptions = { kind, eps: params.eps, weight: params.weight, bias };
  const cols = out.layout.shape[out.layout.rank - 1];
  const rowCount = out.layout.size / cols;
  const [src, ...rest] = inputs.map((v) => p.dense(v));
  const grad = backward ? rest.shift() : undefined;
  const weight = params.weight ? rest.shift() : undefined;
  const biasView = bias && !backward ? rest.shift() : undefined;
  const plus = params.plus ? rest.shift() : undefined;
  const aligned = aligned16(...[src, out, grad, weight, biasView, plus].filter((v): v is View => v !== undefined));
  const all =
    weights && weight && aligned
      ? gradsLaunch(options, src.dtype as Real, rowCount, cols, p.device, plus !== undefined)
      : undefined;
  if (all) return p.run(all, { src, dx: out, grad, weight, plus, dweight, dbias });
  p.run(
    backward
      ? normGradLaunch(options, src.dtype, rowCount, cols, p.device, aligned, weights)
      : normLaunch(options, src.dtype, rowCount, cols, p.device, aligned),
    { src, dst: out, dx: out, grad, weight, bias: biasView, dweight, dbias },
  );
  if (plus) planElementwiseRow(p, binaryOps.add as unknown as ElementwiseRow<any>, [out, plus], [out], {});
};
