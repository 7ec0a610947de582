// Softmax and its logarithm along a dimension, forward and backward: kernels/softmax.hip.
import type { DType } from '../../base/dtype.js';
import { CTYPE, KernelModule, REAL_TYPES } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { SoftmaxParams } from '../../ops/softmax.js';
import type { View } from '../backend.js';
import {
  aligned16,
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  launch,
  type Launches,
  permuted,
  places,
  single,
  type Target,
} from './plan.js';
import { heldVectors, ROW_WIDTHS, rowGrid, rowStream, rowWidth, WIDTH_NAMES, widthArguments } from './row-shapes.js';

export const SOFTMAX = new KernelModule('softmax');
const stemOf = ({ log }: { readonly log: boolean }): string => (log ? 'log_softmax' : 'softmax');

const rows = SOFTMAX.declare({
  each: { log: [false, true], width: WIDTH_NAMES, dtype: REAL_TYPES },
  symbol: (v) => `${stemOf(v)}_rows_${v.dtype}_${v.width}`,
  body: ({ log, width, dtype }) => ({
    // On NVIDIA a larger bound keeps the forward pass at 64 registers a thread, two such blocks a multiprocessor.
    threads: width === 'packs8' ? { constant: 'FORWARD_BOUND', threads: 512 } : ROW_WIDTHS[width].threads,
    params: { src: `const ${CTYPE[dtype]}*`, dst: `${CTYPE[dtype]}*`, rows: 'i64', cols: 'i64', lanes: 'u32' },
    call: `softmax_rows<${log}, ${CTYPE[dtype]}, ${widthArguments(width, dtype)}>`,
  }),
});
/** Long rows through shared memory, where copies run beside arithmetic. */
export const stream = SOFTMAX.declare({
  each: { log: [false, true], dtype: ['f32'] },
  symbol: (v) => `${stemOf(v)}_stream_${v.dtype}`,
  body: ({ log, dtype }) => ({
    threads: 512,
    params: { src: `const ${CTYPE[dtype]}*`, dst: `${CTYPE[dtype]}*`, rows: 'i64', cols: 'i64' },
    call: `softmax_stream<${log}>`,
  }),
  launchedOn: (_, arch) => !arch.startsWith('gfx'),
});
const gradRows = SOFTMAX.declare({
  each: { log: [false, true], width: WIDTH_NAMES, dtype: REAL_TYPES },
  symbol: (v) => `${stemOf(v)}_grad_rows_${v.dtype}_${v.width}`,
  body: ({ log, width, dtype: d }) => ({
    threads: ROW_WIDTHS[width].threads,
    params: {
      out: `const ${CTYPE[d]}*`,
      grad: `const ${CTYPE[d]}*`,
      dx: `${CTYPE[d]}*`,
      rows: 'i64',
      cols: 'i64',
      lanes: 'u32',
    },
    call: `softmax_grad_rows<${log}, ${CTYPE[d]}, ${widthArguments(width, d)}>`,
  }),
  launchedOn: ({ width }, arch) => width !== 'packs8' || heldVectors({ arch }) === 8,
});
/** Few long rows: each block leaves the largest value and the sum of a part, then all parts of a row are applied. */
const part = SOFTMAX.forTypes(REAL_TYPES, 'softmax_part', (T) => ({
  threads: 1024,
  params: { src: `const ${T}*`, part: `Online<compute_t<${T}>>*`, cols: 'i64', size: 'i64' },
  call: 'softmax_part',
}));
const apply = SOFTMAX.declare({
  each: { log: [false, true], dtype: REAL_TYPES },
  symbol: (v) => `${stemOf(v)}_apply_${v.dtype}`,
  body: ({ log, dtype: d }) => ({
    threads: 1024,
    params: {
      src: `const ${CTYPE[d]}*`,
      part: `const Online<compute_t<${CTYPE[d]}>>*`,
      dst: `${CTYPE[d]}*`,
      cols: 'i64',
      size: 'i64',
    },
    call: `softmax_apply<${log}>`,
  }),
});

type Real = (typeof REAL_TYPES)[number];

/** Softmax (or its logarithm) over [rows, cols]. Buffers: src, dst. `aligned`: both are 16-byte aligned. */
export function softmaxLaunch(
  log: boolean,
  d: DType,
  rowCount: number,
  cols: number,
  target: Target,
  aligned: boolean,
): Launches {
  const dtype = d as Real;
  const [src, dst, scratch] = [at('src'), at('dst'), at('scratch')];
  if (rowCount < target.multiprocessors && rowCount <= 65535 && cols >= 32768) {
    const chunks = clamp(ceilDiv(2 * target.multiprocessors, rowCount), 1, Math.min(256, Math.floor(cols / 4096)));
    const size = ceilDiv(cols, chunks);
    const grid = [ceilDiv(cols, size), rowCount];
    return {
      launches: [
        launch(part, { dtype }, grid, 512, { src, part: scratch, cols, size }),
        launch(apply, { log, dtype }, grid, 512, { src, part: scratch, dst, cols, size }),
      ],
      scratch: rowCount * grid[0] * (dtype === 'f64' ? 16 : 8),
    };
  }
  const { width, lanes } = rowWidth(dtype, cols, aligned);
  // Where exponentials need all the registers, arithmetic and memory take turns unless the next rows are on their way.
  if (dtype === 'f32' && cols > 8192 && (width === 'packs8' || width === 'packs_loop')) {
    const s = rowStream(dtype, rowCount, cols, target);
    if (s) return single(launch(stream, { log, dtype }, s.grid, s.block, { src, dst, rows: rowCount, cols }, s.shared));
  }
  const { grid, block } = rowGrid(rowCount, lanes);
  return single(launch(rows, { log, width, dtype }, grid, block, { src, dst, rows: rowCount, cols, lanes }));
}

/** Its gradient from the output. Buffers: out, grad, dx, all contiguous and 16-byte aligned where `aligned`. */
export function softmaxGradLaunch(
  log: boolean,
  d: DType,
  rowCount: number,
  cols: number,
  target: Target,
  aligned: boolean,
): Launches {
  const { width, lanes } = rowWidth(d, cols, aligned, heldVectors(target));
  const { grid, block } = rowGrid(rowCount, lanes);
  const args = { ...places('out', 'grad', 'dx'), rows: rowCount, cols, lanes };
  return single(launch(gradRows, { log, width, dtype: d as Real }, grid, block, args));
}

export const planSoftmax: FamilyPlan<RowOf<'softmax'>, SoftmaxParams> = (p, { kernel }, inputs, [out], { dim }) => {
  const { rank, shape } = out.layout;
  const cols = rank === 0 ? 1 : shape[dim];
  const rowCount = out.layout.size / cols;
  const last = dim === rank - 1;
  const order = [...shape.map((_, i) => i).filter((i) => i !== dim), dim];
  const turn = (v: View): View => (last ? v : permuted(v, order));
  const [a, b] = inputs.map((v) => p.dense(turn(v)));
  const result = last ? out : p.make(turn(out).layout.shape, out.dtype);
  if (kernel.backward)
    p.run(softmaxGradLaunch(kernel.log, out.dtype, rowCount, cols, p.device, aligned16(a, b, result)), {
      out: a,
      grad: b,
      dx: result,
    });
  else
    p.run(softmaxLaunch(kernel.log, out.dtype, rowCount, cols, p.device, aligned16(a, result)), {
      src: a,
      dst: result,
    });
  if (!last) p.copy(result, turn(out));
};
