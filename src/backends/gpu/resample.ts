// Resizing of pictures: kernels/resample.hip.
import type { DType } from '../../base/dtype.js';
import { KernelModule, REAL_TYPES, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { CONV_TYPES } from './conv.js';
import { ceilDiv, type FamilyPlan, launch, type Launches, places, single, strideGrid } from './plan.js';

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

interface Params {
  readonly alignCorners?: boolean;
  readonly scale?: readonly number[] | null;
}
export const planResample: FamilyPlan<RowOf<'resample'>, Params> = (p, { kernel: { kind } }, [x], [out], params) => {
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
