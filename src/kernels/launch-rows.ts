// Launches of reductions, softmax, norms, rotary embeddings and running sums over contiguous operands.
import { type DType, sumDType } from '../base/dtype.js';
import {
  at,
  ceilDiv,
  clamp,
  heldVectors,
  launch,
  packOf,
  type Plan,
  powerAbove,
  rowGrid,
  rowStream,
  rowVariant,
  single,
  strideGrid,
  suffixOf,
  type Target,
} from './launch-plan.js';

const isWide = (d: DType): boolean => d === 'f64' || d === 'i64';

/** Softmax (or its logarithm) over [rows, cols]. Buffers: src, dst. `aligned`: both are 16-byte aligned. */
export function softmaxLaunch(
  log: boolean,
  dtype: DType,
  rows: number,
  cols: number,
  target: Target,
  aligned: boolean,
): Plan {
  const stem = log ? 'log_softmax' : 'softmax';
  const { ending, lanes } = rowVariant(dtype, cols, aligned);
  if (rows < target.multiprocessors && rows <= 65535 && cols >= 32768) {
    const chunks = clamp(ceilDiv(2 * target.multiprocessors, rows), 1, Math.min(256, Math.floor(cols / 4096)));
    const size = ceilDiv(cols, chunks);
    const grid = [ceilDiv(cols, size), rows];
    const part = launch('softmax', `softmax_part_${dtype}`, grid, 512, [at('src'), at('scratch'), cols, size]);
    const apply = launch('softmax', `${stem}_apply_${dtype}`, grid, 512, [
      at('src'),
      at('scratch'),
      at('dst'),
      cols,
      size,
    ]);
    return { launches: [part, apply], scratch: rows * grid[0] * (dtype === 'f64' ? 16 : 8) };
  }
  // Where exponentials need all the registers, arithmetic and memory take turns unless the next rows are on their way.
  const stream =
    dtype === 'f32' && ending.startsWith('vp') && cols > 8192 ? rowStream(dtype, rows, cols, target) : undefined;
  if (stream)
    return single(
      launch(
        'softmax',
        `${stem}_stream_${dtype}`,
        [stream.grid],
        stream.block,
        [at('src'), at('dst'), rows, cols],
        stream.shared,
      ),
    );
  const { grid, block } = rowGrid(rows, lanes);
  return single(
    launch('softmax', `${stem}_rows_${dtype}_${ending}`, [grid], block, [at('src'), at('dst'), rows, cols, lanes]),
  );
}
/** Its gradient from the output. Buffers: out, grad, dx, all contiguous and 16-byte aligned where `aligned`. */
export function softmaxGradLaunch(
  log: boolean,
  dtype: DType,
  rows: number,
  cols: number,
  target: Target,
  aligned: boolean,
): Plan {
  const { ending, lanes } = rowVariant(dtype, cols, aligned, heldVectors(target));
  const { grid, block } = rowGrid(rows, lanes);
  const symbol = `${log ? 'log_softmax' : 'softmax'}_grad_rows_${dtype}_${ending}`;
  return single(launch('softmax', symbol, [grid], block, [at('out'), at('grad'), at('dx'), rows, cols, lanes]));
}

export interface NormOptions {
  readonly kind: 'layer' | 'rms';
  readonly eps: number;
  readonly weight: boolean;
  /** Of layer norms alone. */
  readonly bias: boolean;
}
/** Layer or RMS norm of [rows, cols]. Buffers: src, dst, weight, bias (the last two where given). */
export function normLaunch(
  o: NormOptions,
  dtype: DType,
  rows: number,
  cols: number,
  target: Target,
  aligned: boolean,
): Plan {
  const { ending, lanes } = rowVariant(dtype, cols, aligned, heldVectors(target));
  const args = [at('src'), at('dst'), o.weight ? at('weight') : 0, o.bias ? at('bias') : 0, rows, cols];
  const packs = cols / packOf(dtype);
  if ((dtype === 'f16' || dtype === 'bf16') && ending.startsWith('vp') && packs > 4 && packs <= 64) {
    const few = powerAbove(ceilDiv(packs, 2));
    const blocks = ceilDiv(rows, 2 * (256 / few));
    if (blocks <= 2 ** 22)
      return single(launch('norm', `${o.kind}norm_short${few}_${dtype}`, [blocks], 256, [...args, o.eps]));
  }
  // Weights of long rows cost as much as the rows unless they stay in registers.
  const stream = ending.startsWith('vp') && cols > 8192 ? rowStream(dtype, rows, cols, target) : undefined;
  if (stream)
    return single(
      launch('norm', `${o.kind}norm_stream_${dtype}`, [stream.grid], stream.block, [...args, o.eps], stream.shared),
    );
  const { grid, block } = rowGrid(rows, lanes);
  return single(launch('norm', `${o.kind}norm_rows_${dtype}_${ending}`, [grid], block, [...args, lanes, o.eps]));
}
/** Gradients. Buffers: src, grad, weight (where given), dx, and dweight, dbias where `o` has them and `weights` asks for them. */
export function normGradLaunch(
  o: NormOptions,
  dtype: DType,
  rows: number,
  cols: number,
  target: Target,
  aligned: boolean,
  weights: boolean,
): Plan {
  const { ending, lanes } = rowVariant(dtype, cols, aligned, heldVectors(target, true));
  const { grid, block } = rowGrid(rows, lanes);
  const wide = dtype === 'f64' ? 8 : 4;
  const wanted = weights && (o.weight || o.bias);
  const tiles = ceilDiv(cols, 32);
  const chunks = clamp(
    ceilDiv(4 * target.multiprocessors, tiles),
    1,
    Math.max(1, Math.min(512, Math.floor(rows / 32))),
  );
  const size = ceilDiv(rows, chunks);
  const used = ceilDiv(rows, size);
  const stats = rows * 2 * wide;
  const part = used * cols * wide;
  const launches = [
    launch('norm', `${o.kind}norm_grad_rows_${dtype}_${ending}`, [grid], block, [
      at('src'),
      at('grad'),
      o.weight ? at('weight') : 0,
      at('dx'),
      wanted ? at('scratch') : 0,
      rows,
      cols,
      lanes,
      o.eps,
    ]),
  ];
  if (wanted) {
    launches.push(
      launch(
        'norm',
        `norm_grad_weights_${dtype}`,
        [tiles, used],
        [32, 8],
        [
          at('src'),
          at('grad'),
          at('scratch'),
          o.weight ? at('scratch', stats) : 0,
          o.bias ? at('scratch', stats + part) : 0,
          rows,
          cols,
          size,
        ],
      ),
    );
    const merge = (offset: number, to: string): void => {
      launches.push(
        launch('norm', `norm_merge_${dtype}`, [strideGrid(cols)], 256, [at('scratch', offset), at(to), used, cols]),
      );
    };
    if (o.weight) merge(stats, 'dweight');
    if (o.bias) merge(stats + part, 'dbias');
  }
  return { launches, scratch: wanted ? stats + 2 * part : 0 };
}

export interface RopeShape {
  /** halves: (x[i], x[i + d/2]) turn together, over [b, h, t, d]; pairs: (x[2i], x[2i+1]); thd: halves over [b, t, h, d]. */
  readonly kind: 'halves' | 'pairs' | 'thd';
  readonly b: number;
  readonly h: number;
  readonly t: number;
  readonly d: number;
  /** cos and sin are [b, t, d / 2] rather than [t, d / 2]. */
  readonly batched: boolean;
  /** Turns back: the gradient. */
  readonly inverse: boolean;
}
/** Buffers: src, cos, sin, dst. */
export function ropeLaunch(s: RopeShape, dtype: DType, aligned: boolean): Plan {
  const pack = aligned && (s.d / 2) % packOf(dtype) === 0 ? packOf(dtype) : 1;
  const rows = s.b * s.h * s.t;
  const symbol = `${s.kind === 'pairs' ? 'rope_pairs' : 'rope_rows'}_${dtype}_${pack === 1 ? 'v1' : 'v'}`;
  return single(
    launch('rope', symbol, [strideGrid((rows * s.d) / 2 / pack)], 256, [
      at('src'),
      at('cos'),
      at('sin'),
      at('dst'),
      rows,
      s.h,
      s.t,
      s.d,
      s.kind === 'thd' ? 1 : 0,
      s.batched ? 1 : 0,
      s.inverse ? -1 : 1,
    ]),
  );
}

/** Running sums of [outer, n, inner] along n. Buffers: src, dst. */
export function scanLaunch(
  dtype: DType,
  outer: number,
  n: number,
  inner: number,
  reverse: boolean,
  exclusive: boolean,
  target: Target,
): Plan {
  const name = suffixOf(dtype);
  const flags = [reverse ? 1 : 0, exclusive ? 1 : 0];
  if (inner > 1 || outer > 65535) {
    return single(
      launch('scan', `cumsum_cols_${name}`, [strideGrid(outer * inner)], 256, [
        at('src'),
        at('dst'),
        outer,
        n,
        inner,
        ...flags,
      ]),
    );
  }
  const chunks =
    outer < 2 * target.multiprocessors
      ? clamp(ceilDiv(4 * target.multiprocessors, outer), 1, Math.max(1, Math.floor(n / 4096)))
      : 1;
  const size = chunks > 1 ? ceilDiv(ceilDiv(n, chunks), 1024) * 1024 : n;
  const used = Math.max(1, ceilDiv(n, size));
  const rows = launch('scan', `cumsum_rows_${name}`, [used, outer], 256, [
    at('src'),
    at('dst'),
    used > 1 ? at('scratch') : 0,
    n,
    size,
    ...flags,
  ]);
  if (used === 1) return single(rows);
  const total = sumDType(dtype);
  const spine = total === 'i64' ? 'u64' : total === 'f64' ? 'f64' : 'f32';
  return {
    launches: [
      launch('scan', `cumsum_sums_${name}`, [used, outer], 256, [at('src'), at('scratch'), n, size, flags[0]]),
      launch('scan', `cumsum_spine_${spine}`, [1, outer], 256, [at('scratch'), used]),
      rows,
    ],
    scratch: outer * used * (isWide(total) ? 8 : 4),
  };
}
