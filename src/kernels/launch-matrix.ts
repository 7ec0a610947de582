// Launches of our own matrix products, convolutions, pooling and resizing.
import { bytesOf, type DType } from '../base/dtype.js';
import {
  at,
  ceilDiv,
  clamp,
  launch,
  type Launch,
  type Plan,
  single,
  strideGrid,
  structBytes,
  type Target,
} from './launch-plan.js';

/** Whether a target multiplies 16-bit tiles in hardware; the simulation does it lane by lane. */
export const hasMatrixUnits = ({ arch }: Pick<Target, 'arch'>): boolean =>
  arch === 'sim' ||
  /^gfx(90a|94[012]|950|11\d\d|12\d\d)$/.test(arch) ||
  (/^(sm|compute)_(\d+)/.exec(arch)?.[2] ?? '0').padStart(3, '0') >= '080';

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

const operandBytes = (o: Operand): Uint8Array => structBytes([{ i64: [o.row, o.k, ...o.batch] }]);

/** c[batch, m, n] = a b + bias, c contiguous. Buffers: a, b, c, bias. k may be 0. */
export function gemmLaunch(dtype: DType, p: Product, target: Target): Plan {
  const batch = p.batch[0] * p.batch[1] * p.batch[2];
  if (batch > 65535) throw new RangeError(`gemmLaunch: a batch of ${batch} does not fit one launch; split it`);
  const bytes = bytesOf(dtype);
  const pack = 16 / bytes;
  const wide = dtype === 'f64' ? 8 : 4;
  const fits = (o: Operand, contiguous: boolean, line: number): boolean =>
    contiguous && [line, ...o.batch].every((s) => s % pack === 0);
  const aligned = p.align % 16 === 0;
  const plan = (
    symbol: string,
    tilesM: number,
    tilesN: number,
    threads: number,
    shared: number,
    unit: number,
  ): Plan => {
    // Small results of long sums leave the device idle: then k is split, and partial sums are joined in a fixed order.
    const blocks = tilesM * tilesN * batch;
    const splits =
      blocks < target.multiprocessors
        ? clamp(Math.floor((2 * target.multiprocessors) / blocks), 1, Math.max(1, Math.min(64, Math.floor(p.k / 512))))
        : 1;
    const split = splits > 1 ? ceilDiv(ceilDiv(p.k, splits), unit) * unit : Math.max(p.k, 1);
    const used = Math.max(1, ceilDiv(p.k, split));
    const size = batch * p.m * p.n;
    const args = [
      at('a'),
      at('b'),
      at('c'),
      used > 1 ? at('scratch') : 0,
      p.bias ? at('bias') : 0,
      operandBytes(p.a),
      operandBytes(p.b),
      structBytes([{ i64: [p.m, p.n, p.k, p.batch[1], p.batch[2], split] }]),
    ];
    const main = launch(
      symbol.startsWith('gemm_hopper') ? 'gemm-hopper' : 'gemm',
      symbol,
      [tilesM * tilesN, batch, used],
      threads,
      args,
      shared,
    );
    if (used === 1) return single(main);
    const merge: Launch = launch('gemm', `gemm_merge_${dtype}`, [strideGrid(size)], 256, [
      at('scratch'),
      at('c'),
      p.bias ? at('bias') : 0,
      size,
      used,
      p.n,
    ]);
    return { launches: [main, merge], scratch: used * size * wide };
  };

  const aK = fits(p.a, p.a.k === 1, p.a.row);
  const bK = fits(p.b, p.b.k === 1, p.b.row);
  if (p.m <= 8 && aligned && aK && bK && p.k % pack === 0 && p.k > 0)
    return plan(`matvec_${dtype}_r${p.m}`, ceilDiv(p.n, 4), 1, 128, 0, 32 * pack);
  if ((dtype === 'f16' || dtype === 'bf16') && hasMatrixUnits(target)) {
    const aR = fits(p.a, p.a.row === 1, p.a.k);
    const bR = fits(p.b, p.b.row === 1, p.b.k);
    if (aligned && (aK || aR) && (bK || bR)) {
      const order = `${aK ? 'k' : 'r'}${bK ? 'k' : 'r'}`;
      const nvidia = /^(sm|compute)_/.test(target.arch);
      const tiles = (bn: number): number => ceilDiv(p.m, 128) * ceilDiv(p.n, bn) * batch;
      const large = nvidia && tiles(256) >= target.multiprocessors;
      if (large && target.arch === 'sm_90')
        return plan(
          `gemm_hopper_${dtype}_${order}`,
          ceilDiv(p.m, 128),
          ceilDiv(p.n, 256),
          384,
          1024 + 4 * (48 << 10),
          64,
        );
      const [bn, kt, stages, waves] = large ? [256, 64, 3, 8] : nvidia ? [128, 32, 4, 8] : [128, 32, 2, 4];
      const tile = (rows: number, k: boolean): number => (k ? rows * (kt + 8) : kt * (rows + 8));
      const shared = stages * (tile(128, aK) + tile(bn, bK)) * 2;
      return plan(
        `gemm_async_${dtype}_${order}_${large ? 'large' : 'small'}`,
        ceilDiv(p.m, 128),
        ceilDiv(p.n, bn),
        waves * target.warp,
        shared,
        64,
      );
    }
    return plan(`gemm_mma_${dtype}`, ceilDiv(p.m, 64), ceilDiv(p.n, 64), 4 * target.warp, 0, 32);
  }
  const tile = dtype === 'f64' ? 64 : 128;
  return plan(`gemm_fma_${dtype}`, ceilDiv(p.m, tile), ceilDiv(p.n, tile), 256, 0, 16);
}

/** Pairs are [height, width]; 1-D is height 1. Channels count within a group. */
export interface ConvShape {
  readonly batch: number;
  readonly groups: number;
  readonly channels: number;
  readonly outputs: number;
  readonly input: readonly [number, number];
  readonly output: readonly [number, number];
  readonly kernel: readonly [number, number];
  readonly stride: readonly [number, number];
  readonly padding: readonly [number, number];
  readonly dilation: readonly [number, number];
  /** Strides of (batch, channel, y, x) and of the kernel's four dimensions, in elements. */
  readonly inputStrides: readonly number[];
  readonly kernelStrides: readonly number[];
  readonly bias: boolean;
}
/** Convolution, or transposed convolution (the kernel's first dimension is then the input channel). Buffers: src, kernel, bias, dst (contiguous). */
export function convLaunch(transposed: boolean, dtype: DType, s: ConvShape, target: Target): Plan {
  const struct = structBytes([
    { i32: [s.batch, s.groups, s.channels, s.outputs, ...s.kernel, ...s.stride, ...s.padding, ...s.dilation] },
    { i64: [...s.input, ...s.output, ...s.inputStrides, ...s.kernelStrides] },
  ]);
  const stem = transposed ? 'conv_transpose' : 'conv';
  const args = [at('src'), at('kernel'), s.bias ? at('bias') : 0, at('dst'), struct];
  const pixels = s.batch * s.output[0] * s.output[1];
  // Places in images as tiles count them: in 32 bits, padding and dilation included.
  const reach = [0, 1].map((i) =>
    Math.max(
      s.input[i] + 2 * s.padding[i],
      s.output[i] + s.padding[i],
      (s.output[i] - 1) * s.stride[i] + (s.kernel[i] - 1) * s.dilation[i] + 1,
    ),
  );
  const wide = pixels >= 2 ** 31 || reach.some((n) => n >= 2 ** 31);
  // Tiles pay when a group fills a good part of one.
  if (wide || s.outputs < 16 || s.channels * s.kernel[0] * s.kernel[1] < 16 || s.groups > 65535) {
    return single(launch('conv', `${stem}_direct_${dtype}`, [strideGrid(pixels * s.groups * s.outputs)], 256, args));
  }
  const units = (dtype === 'f16' || dtype === 'bf16') && hasMatrixUnits(target);
  const tile = units || dtype === 'f64' ? 64 : 128;
  const grid = [ceilDiv(s.outputs, tile) * ceilDiv(pixels, tile), s.groups];
  return single(launch('conv', `${stem}_${units ? 'mma' : 'fma'}_${dtype}`, grid, units ? 4 * target.warp : 256, args));
}

/** Windows over `planes` contiguous planes; pairs are [height, width]. Buffers: src, dst (u32 for argmax). */
export function poolLaunch(
  kind: 'avg' | 'max' | 'argmax',
  dtype: DType,
  planes: number,
  input: readonly number[],
  output: readonly number[],
  kernel: readonly number[],
  stride: readonly number[],
  padding: readonly number[],
): Plan {
  const numel = planes * output[0] * output[1];
  return single(
    launch('conv', `pool_${kind}_${dtype}`, [strideGrid(numel)], 256, [
      at('src'),
      at('dst'),
      numel,
      structBytes([{ i64: [...input, ...output, ...kernel, ...stride, ...padding] }]),
    ]),
  );
}

/** Nearest neighbour. Buffers: src, dst (contiguous), info: dims then strides of src. */
export function nearestLaunch(dtype: DType, planes: number, input: readonly number[], output: readonly number[]): Plan {
  const scales = input.map((n, i) => n / output[i]);
  const numel = planes * output.reduce((a, b) => a * b, 1);
  return single(
    launch('conv', `upsample_nearest${output.length}d_${dtype}`, [strideGrid(numel)], 256, [
      ...output,
      ...scales,
      at('info'),
      at('src'),
      at('dst'),
    ]),
  );
}

/** Bilinear. Buffers: src, dst (contiguous), info: dims then strides of src. */
export function bilinearLaunch(
  dtype: DType,
  planes: number,
  output: readonly number[],
  alignCorners: boolean,
  scale: readonly number[] | null,
): Plan {
  const [h, w] = output;
  const has = scale ? 1 : 0;
  return single(
    launch('conv', `upsample_bilinear2d_${dtype}`, [strideGrid(planes * h * w)], 256, [
      w,
      h,
      alignCorners ? 1 : 0,
      has,
      scale?.[0] ?? 1,
      has,
      scale?.[1] ?? 1,
      at('info'),
      at('src'),
      at('dst'),
    ]),
  );
}
/** Its gradient over contiguous planes. Buffers: grad, dx. */
export function bilinearGradLaunch(
  dtype: DType,
  planes: number,
  input: readonly number[],
  output: readonly number[],
  alignCorners: boolean,
  scale: readonly number[] | null,
): Plan {
  const step = (i: number): number =>
    alignCorners ? (output[i] > 1 ? (input[i] - 1) / (output[i] - 1) : 0) : scale ? 1 / scale[i] : input[i] / output[i];
  return single(
    launch('conv', `bilinear_grad_${dtype}`, [strideGrid(planes * input[0] * input[1])], 256, [
      at('grad'),
      at('dx'),
      planes,
      ...input,
      ...output,
      alignCorners ? 1 : 0,
      step(0),
      step(1),
    ]),
  );
}
