// Resizing of pictures: kernels/resample.hip.
import type { DType } from '../../base/dtype.js';
import { bytesOf } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { computeDType, CTYPE, KernelModule, REAL_TYPES, typed, WORDS } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { GridParams } from '../../ops/grid.js';
import { axesOf, type ResampledParams, tapsAlong } from '../../ops/resampled.js';
import { showsOne, type TapAxis, type Taps, tapsOf } from '../../ops/taps.js';
import type { View } from '../backend.js';
import { planGrid } from './grid.js';
import { CONV_TYPES } from './conv.js';
import {
  aligned16,
  ceilDiv,
  clamp,
  type FamilyPlan,
  launch,
  type Launches,
  packOf,
  places,
  type Planner,
  single,
  strideGrid,
  type Target,
} from './plan.js';

export const RESAMPLE = new KernelModule('resample');
const picture = (T: string) => ({ info: 'const size_t*', src: `const ${T}*`, dst: `${T}*` }) as const;
/** Candle's; info: dims then strides of the source. */
const nearest2d = RESAMPLE.forTypes(CONV_TYPES, 'upsample_nearest2d', (T) => ({
  threads: 1024,
  params: { w_out: 'size_t', h_out: 'size_t', w_scale: 'double', h_scale: 'double', ...picture(T) },
  call: 'nearest2d',
}));
const nearest1d = RESAMPLE.forTypes(CONV_TYPES, 'upsample_nearest1d', (T) => ({
  threads: 1024,
  params: { l_out: 'size_t', l_scale: 'double', ...picture(T) },
  call: 'nearest1d',
}));
/** Candle's. */
const bilinear = RESAMPLE.forTypes(CONV_TYPES, 'upsample_bilinear2d', (T) => ({
  threads: 1024,
  params: {
    ...{ w_out: 'size_t', h_out: 'size_t', align_corners: 'bool' },
    ...{ has_scale_h: 'bool', scale_h_factor: 'double', has_scale_w: 'bool', scale_w_factor: 'double' },
    ...picture(T),
  },
  call: 'bilinear',
  given:
    'w_out, h_out, align_corners, resize_step(info[2], h_out, align_corners, has_scale_h, scale_h_factor),' +
    ' resize_step(info[3], w_out, align_corners, has_scale_w, scale_w_factor), (const u64*)info, src, dst',
}));
const bilinearGrad = RESAMPLE.forTypes(REAL_TYPES, 'bilinear_grad', (T) => ({
  threads: 256,
  params: {
    ...{ grad: `const ${T}*`, dx: `${T}*`, planes: 'u64', ...typed('i64', 'h', 'w', 'h_out', 'w_out') },
    ...{ corners: 'u32', step_h: 'double', step_w: 'double' },
  },
  call: 'bilinear_grad',
  given: 'grad, dx, planes, h, w, h_out, w_out, corners != 0, step_h, step_w',
}));

/** What is read, and what is written where that is another type. */
const TAP_TYPES = ['f32', 'f64', 'f16', 'bf16', 'f16_f32', 'bf16_f32', 'f32_f16', 'f32_bf16'] as const;
const WIDTHS = ['one', 'packs'] as const;
const taps = RESAMPLE.declare({
  each: { types: TAP_TYPES, width: WIDTHS },
  symbol: ({ types, width }) => `taps_${width}_${types}`,
  body: ({ types, width }) => {
    const [from, to = from] = types.split('_') as (typeof REAL_TYPES)[number][];
    return {
      threads: 256,
      params: {
        ...{ src: `const ${CTYPE[from]}*`, dst: `${CTYPE[to]}*`, table: 'const i64*' },
        ...typed('u64', 'left', 'n', 'out', 'right'),
      },
      // Packs are of one type.
      call: `taps<${width === 'packs' && from === to ? packOf(from) : 1}>`,
    };
  },
});
const tapsLines = RESAMPLE.declare({
  each: { dtype: REAL_TYPES, width: WIDTHS },
  symbol: ({ dtype, width }) => `taps_lines_${width}_${dtype}`,
  body: ({ dtype: d, width }) => ({
    threads: 256,
    params: {
      ...{ src: `const ${CTYPE[d]}*`, dst: `${CTYPE[d]}*`, ...typed('const i64*', 'rows', 'cols') },
      ...{ lines: 'u64', h: 'u64', w: 'u32', h_out: 'u64', w_out: 'u32', some: 'u32' },
    },
    call: `taps_lines<${width === 'packs' ? packOf(d) : 1}>`,
  }),
});
const placed = RESAMPLE.declare({
  each: { bytes: [2, 4, 8], width: WIDTHS },
  symbol: ({ bytes, width }) => `placed_${width}_${WORDS[bytes]}`,
  body: ({ bytes, width }) => ({
    threads: 256,
    params: {
      ...{ src: `const ${WORDS[bytes]}*`, dst: `${WORDS[bytes]}*` },
      ...typed('const i64*', 'rows', 'cols'),
      ...typed('u64', 'planes', 'plane', 'h', 'w'),
    },
    call: `placed<${width === 'packs' ? 16 / bytes : 1}>`,
  }),
});

type Type = (typeof CONV_TYPES)[number];
/** A thread makes one pixel of so many planes: PLANES. */
const PLANES = 8;
const planeGrid = (planes: number, pixels: number): number => strideGrid(ceilDiv(planes, PLANES) * pixels);
const PICTURE = places('info', 'src', 'dst');

/** Nearest neighbour. Buffers: src, dst (contiguous), info: dims then strides of src. */
export function nearestLaunch(d: DType, planes: number, input: readonly number[], output: readonly number[]): Launches {
  const dtype = d as Type;
  const [first, second] = input.map((n, i) => n / output[i]);
  if (output.length === 1)
    return single(
      launch(nearest1d, { dtype }, strideGrid(planes * output[0]), 256, {
        l_out: output[0],
        l_scale: first,
        ...PICTURE,
      }),
    );
  // Candle says width for the first of the two.
  const args = { w_out: output[0], h_out: output[1], w_scale: first, h_scale: second, ...PICTURE };
  return single(launch(nearest2d, { dtype }, planeGrid(planes, output[0] * output[1]), 256, args));
}

/** Bilinear. Buffers: src, dst (contiguous), info: dims then strides of src. */
export function bilinearLaunch(
  d: DType,
  planes: number,
  [h, w]: readonly number[],
  alignCorners: boolean,
  scale: readonly number[] | null,
): Launches {
  const has = scale ? 1 : 0;
  return single(
    launch(bilinear, { dtype: d as Type }, planeGrid(planes, h * w), 256, {
      w_out: w,
      h_out: h,
      align_corners: alignCorners ? 1 : 0,
      has_scale_h: has,
      scale_h_factor: scale?.[0] ?? 1,
      has_scale_w: has,
      scale_w_factor: scale?.[1] ?? 1,
      ...PICTURE,
    }),
  );
}
/** Its gradient over contiguous planes. Buffers: grad, dx. */
export function bilinearGradLaunch(
  d: DType,
  planes: number,
  input: readonly number[],
  output: readonly number[],
  alignCorners: boolean,
  scale: readonly number[] | null,
): Launches {
  const step = (i: number): number =>
    alignCorners ? (output[i] > 1 ? (input[i] - 1) / (output[i] - 1) : 0) : scale ? 1 / scale[i] : input[i] / output[i];
  const dtype = d as (typeof REAL_TYPES)[number];
  return single(
    launch(bilinearGrad, { dtype }, planeGrid(planes, input[0] * input[1]), 256, {
      ...places('grad', 'dx'),
      planes,
      h: input[0],
      w: input[1],
      h_out: output[0],
      w_out: output[1],
      corners: alignCorners ? 1 : 0,
      step_h: step(0),
      step_w: step(1),
    }),
  );
}

type Real = (typeof REAL_TYPES)[number];
/**
 * Planes [planes, h, w] shown at other places: numbers of rows and columns of the source. Buffers: src, dst, rows,
 * cols.
 */
export function placedLaunch(
  d: DType,
  planes: number,
  [h, w]: readonly number[],
  [rows, cols]: readonly (readonly number[])[],
  aligned: boolean,
): Launches {
  const bytes = bytesOf(d) as 2 | 4 | 8;
  const packs = aligned && cols.length % (16 / bytes) === 0;
  const threads = ceilDiv(planes, packs ? 4 : 8) * rows.length * (cols.length / (packs ? 16 / bytes : 1));
  const sizes = { planes, plane: h * w, h: rows.length, w: cols.length };
  const args = { ...places('src', 'dst', 'rows', 'cols'), ...sizes };
  return single(launch(placed, { bytes, width: packs ? 'packs' : 'one' }, strideGrid(threads), 256, args));
}
/** Lines [left, n, right] made of weighted elements: [left, out, right]. Buffers: src, dst, table. */
export function tapsLaunch(
  from: Real,
  to: Real,
  left: number,
  n: number,
  out: number,
  right: number,
  aligned: boolean,
): Launches {
  const types = (from === to ? from : `${from}_${to}`) as (typeof TAP_TYPES)[number];
  const packs = aligned && from === to && right % packOf(from) === 0;
  const threads = ceilDiv(left, packs ? 4 : 8) * out * (right / (packs ? packOf(from) : 1));
  const args = { ...places('src', 'dst', 'table'), left, n, out, right };
  return single(launch(taps, { types, width: packs ? 'packs' : 'one' }, strideGrid(threads), 256, args));
}
/** Lines that a thread makes at once (LINE_GROUP), and bytes of those that a block holds. */
const LINE_GROUP = 8;
const LINE_BYTES = 32 << 10;
/**
 * Planes resized along both axes at once; undefined where a block cannot hold lines of that width. Buffers: src, dst,
 * rows, cols.
 */
export function tapsLinesLaunch(
  dtype: Real,
  planes: number,
  [h, w]: readonly number[],
  [hOut, wOut]: readonly number[],
  aligned: boolean,
  target: Target,
): Launches | undefined {
  const bytes = bytesOf(computeDType(dtype)) * w;
  if (LINE_GROUP * bytes > LINE_BYTES) return undefined;
  const lines = planes * hOut;
  // Many lines share what they read; few are spread over the device.
  const most = Math.floor(LINE_BYTES / bytes / LINE_GROUP);
  const some = LINE_GROUP * clamp(Math.floor(lines / LINE_GROUP / (4 * target.multiprocessors)), 1, Math.min(most, 8));
  const width = aligned && w % packOf(dtype) === 0 ? 'packs' : 'one';
  const sizes = { lines, h, w, h_out: hOut, w_out: wOut, some };
  const args = { ...places('src', 'dst', 'rows', 'cols'), ...sizes };
  const grid = Math.min(ceilDiv(lines, some), 2 ** 20);
  return single(launch(tapsLines, { dtype, width }, grid, 256, args, Math.ceil((some * bytes) / 16) * 16));
}
/** The table that the kernel reads. */
export function tableOf({ starts, places: at, weights }: Taps, wide: boolean): number[] {
  if (!wide) return [...starts, ...at, ...new Uint32Array(Float32Array.from(weights).buffer)];
  const halves = new Uint32Array(Float64Array.from(weights).buffer);
  return [...starts, ...at, ...weights.map((_, i) => halves[2 * i + 1]), ...weights.map((_, i) => halves[2 * i])];
}

/** The last two axes of a picture at once, where both are resized; false where no kernel does it. */
function planTogether(p: Planner, from: View, out: View, [rows, columns]: readonly TapAxis[], back: boolean): boolean {
  const [down, across] = [tapsAlong(rows, back), tapsAlong(columns, back)];
  const sizes = [rows, columns].map((a) => (back ? a.to : a.from));
  const made = [rows, columns].map((a) => (back ? a.from : a.to));
  const planes = out.layout.size / sizeOf(made);
  const launches = tapsLinesLaunch(out.dtype as Real, planes, sizes, made, aligned16(from), p.device);
  if (!launches) return false;
  const [top, side] = [down, across].map((t) => ({ upload: tableOf(t, out.dtype === 'f64') }));
  p.run(launches, { src: from, dst: out, rows: top, cols: side });
  return true;
}
/** Two axes that show elements as they are take one pass; others a pass each, in f32 where elements are smaller. */
function planTaps(p: Planner, x: View, out: View, params: ResampledParams): void {
  if (out.layout.size === 0) return;
  const axes = axesOf(params);
  const lead = x.layout.shape[0] * x.layout.shape[1];
  const shown = !params.backward && axes.slice(-2).every(showsOne) ? axes.slice(-2) : [];
  const isSame = ({ rule, from, to }: TapAxis): boolean => rule === 'same' && from === to;
  const passes = axes.slice(0, axes.length - shown.length).flatMap((axis, i) => (isSame(axis) ? [] : [{ axis, i }]));
  const sizes = axes.map((a) => (params.backward ? a.to : a.from));
  // Pictures take one pass in all.
  if (axes.length === 2 && passes.length === 2 && planTogether(p, p.dense(x), out, axes, params.backward)) return;
  const middle = passes.length + Number(shown.length > 0) > 1 ? (computeDType(x.dtype) as Real) : x.dtype;
  let from = p.dense(x);
  passes.forEach(({ axis, i }, k) => {
    const last = k === passes.length - 1 && shown.length === 0;
    const made = tapsAlong(axis, params.backward);
    const [left, n, right] = [lead * sizeOf(sizes.slice(0, i)), sizes[i], sizeOf(sizes.slice(i + 1))];
    sizes[i] = made.starts.length - 1;
    // What is shown as it is afterwards may be rounded before.
    const dst = last ? out : p.make([left, sizes[i], right], shown.length > 0 ? x.dtype : middle);
    const launches = tapsLaunch(
      ...([from.dtype, dst.dtype] as [Real, Real]),
      ...([left, n, sizes[i], right] as const),
      aligned16(from, dst),
    );
    p.run(launches, { src: from, dst, table: { upload: tableOf(made, x.dtype === 'f64') } });
    from = dst;
  });
  if (shown.length > 0) {
    const [rows, cols] = (shown.length === 1 ? [undefined, shown[0]] : shown).map((a) => (a ? tapsOf(a).places : [0]));
    const [h, w] = [shown.length === 1 ? 1 : shown[0].from, shown[shown.length - 1].from];
    const planes = lead * sizeOf(sizes.slice(0, axes.length - shown.length));
    p.run(placedLaunch(x.dtype, planes, [h, w], [rows, cols], aligned16(out)), {
      ...{ src: from, dst: out, rows: { upload: rows.map((y) => y * w) }, cols: { upload: cols } },
    });
  } else if (passes.length === 0) p.copy(from, out);
}

interface Params {
  readonly alignCorners?: boolean;
  readonly scale?: readonly number[] | null;
}
export const planResample: FamilyPlan<RowOf<'resample'>, Params & ResampledParams & GridParams> = (
  p,
  row,
  inputs,
  outputs,
  params,
) => {
  const { kind } = row.kernel;
  if (kind.startsWith('grid')) return planGrid(p, row, inputs, outputs, params);
  const [[x], [out]] = [inputs, outputs];
  if (kind === 'taps') return planTaps(p, x, out, params);
  const { shape, strides } = x.layout;
  const planes = shape[0] * shape[1];
  const [input, output] = [shape.slice(2), out.layout.shape.slice(2)];
  const [corners, scale] = [params.alignCorners ?? false, params.scale ?? null];
  if (kind === 'bilinearBackward')
    return p.run(bilinearGradLaunch(x.dtype, planes, output, input, corners, scale), { grad: p.dense(x), dx: out });
  const launches =
    kind === 'nearest'
      ? nearestLaunch(x.dtype, planes, input, output)
      : bilinearLaunch(x.dtype, planes, output, corners, scale);
  p.run(launches, { src: x, dst: out, info: { upload: [...shape, ...strides] } });
};
