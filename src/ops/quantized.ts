// Weights in ggml's blocks: a tensor of bytes whose last dimension holds the blocks of one row. Products, rows by
// number, and back to floats.
import { dequantize } from '../base/blocks/decode.js';
import { quantize } from '../base/blocks/encode.js';
import { type GgmlType, ggmlType } from '../base/blocks/types.js';
import { INDEX_DTYPES, maxInt, REALS, type DType } from '../base/dtype.js';
import { DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { requireExperts } from './experts.js';
import { placeOf } from './index-places.js';
import { kernel, numbers, requireOptions, requireRank } from './kernel-row.js';
import {
  type Call,
  type ErrorSample,
  type GradContext,
  type Grads,
  type InputSpec,
  type RefTensor,
  rows,
  type Sample,
  type Sig,
} from './op.js';

/** Types that products, rows and decoding take, in the order kernels are listed. */
export const BLOCK_TYPES = [
  'Q4_0',
  'Q4_1',
  'Q5_0',
  'Q5_1',
  'Q8_0',
  'Q2_K',
  'Q3_K',
  'Q4_K',
  'Q5_K',
  'Q6_K',
  'Q8_K',
  'IQ4_NL',
  'IQ4_XS',
  'MXFP4',
  'NVFP4',
] as const;
/** A type of quantized blocks that products take: 'q4_k', 'q8_0' and others, as ggml names them. */
export type BlockType = (typeof BLOCK_TYPES)[number];

export interface BlockParams extends Record<string, unknown> {
  readonly type: BlockType;
}
export interface DecodeParams extends BlockParams {
  readonly dtype: DType;
}
export interface ProductParams extends BlockParams {
  /** Activations are rounded to 8 bits a value with a scale for every 32, and products are of whole numbers. */
  readonly quick: boolean;
}

/** How products with blocks are computed. */
export interface ProductOptions {
  /**
   * Rounds activations to 8 bits a value where that is faster (on GPUs up to 64 rows), which is off by some
   * thousandths; default false.
   */
  readonly quick?: boolean;
}

/** The option, where it is the only one given. */
function quickOf(op: string, options: ProductOptions): boolean {
  requireOptions(op, options, ['quick']);
  return options.quick ?? false;
}

const noKernel = {
  none: 'Candle has it as a quantized storage type; its kernels by name are in kernels/candle/quantized.hip',
};
const ANY_FLOAT: readonly string[] = REALS;
/** Values of a row of 8-bit floats that share a scale. */
export const F8_GROUP = 128;
/** Activations rounded to whole numbers share a scale this long. */
const QUICK_GROUP = 32;

export const isBlockType = (name: string): name is BlockType => (BLOCK_TYPES as readonly string[]).includes(name);
/** A type by its name in any case, among those that products take. */
export function blockType(op: string, name: string): BlockType {
  const { name: known } = ggmlType(name);
  if (isBlockType(known)) return known;
  throw new DTypeError(`${op}: weights in ${known} are not computed with; those in ${BLOCK_TYPES.join(', ')} are`);
}

/** Values in a row of blocks; the blocks are bytes. */
function rowLength(op: string, blocks: Sig, type: GgmlType): number {
  const bytes = blocks.shape.at(-1);
  if (blocks.dtype !== 'u8' || bytes === undefined)
    throw new DTypeError(
      `${op}: blocks are bytes (u8) with rows last, not ${blocks.dtype} ${formatShape(blocks.shape)}`,
    );
  if (bytes % type.bytes)
    throw new ShapeError(
      `${op}: rows of ${bytes} bytes in ${formatShape(blocks.shape)} are not whole blocks of ${type.name}, ` +
        `which have ${type.bytes}`,
    );
  return (bytes / type.bytes) * type.block;
}

function requireReal(op: string, what: string, dtype: DType): void {
  if (!ANY_FLOAT.includes(dtype)) throw new DTypeError(`${op}: ${what} ${dtype}; it takes ${ANY_FLOAT.join(', ')}`);
}
function requireIndex(op: string, ids: Sig): void {
  if (!INDEX_DTYPES.some((d) => d === ids.dtype))
    throw new DTypeError(`${op}: indices are ${ids.dtype}; they must be one of ${INDEX_DTYPES.join(', ')}`);
}

const decoded = (blocks: RefTensor, type: BlockType): Float32Array =>
  dequantize(ggmlType(type), Uint8Array.from(blocks.data as bigint[], Number));

/** Rounds the values of one row to whole numbers times a scale a group; what is not finite makes its group NaN. */
function rounded(x: readonly number[], from: number, n: number): number[] {
  const { fround, abs } = Math;
  const out = new Array<number>(n);
  for (let g = 0; g < n; g += QUICK_GROUP) {
    let largest = 0;
    for (let i = g; i < g + QUICK_GROUP; i++) {
      const v = abs(x[from + i]);
      if (v > largest || v !== v) largest = v;
      if (v !== v || v === Infinity) {
        largest = NaN;
        break;
      }
    }
    const scale = fround(largest / 127);
    const inverse = largest > 0 ? fround(127 / largest) : 0;
    for (let i = g; i < g + QUICK_GROUP; i++)
      out[i] = largest !== largest ? NaN : scale * toEven(fround(x[from + i] * inverse));
  }
  return out;
}
/** To the nearest whole number, ties to even. */
function toEven(x: number): number {
  const r = Math.round(x);
  return r - x === 0.5 && r % 2 !== 0 ? r - 1 : r;
}

/** out[i] = sum over k of x[at + k] w[row * n + k], in double. */
function product(x: readonly number[], at: number, w: Float32Array, row: number, n: number): number {
  let sum = 0;
  for (let k = 0; k < n; k++) sum += x[at + k] * w[row * n + k];
  return sum;
}
const activations = (x: RefTensor, at: number, n: number, quick: boolean): readonly number[] =>
  quick && x.dtype !== 'f64' ? rounded(numbers(x), at, n) : numbers(x).slice(at, at + n);

const bytesFor = (type: BlockType, values: number): number => (values / ggmlType(type).block) * ggmlType(type).bytes;
/** A test's weights: numbers of the row's domain, encoded. */
const blocksOf = (type: BlockType, leading: Shape, values: number): InputSpec => ({
  shape: [...leading, bytesFor(type, values)],
  dtype: 'u8',
  blocks: type,
});
const ids = (shape: Shape, n: number, dtype: DType = 'u32'): InputSpec => ({ shape, dtype, ints: [0, n - 1] });
const perType = <P extends BlockParams>(sample: (type: BlockType, i: number) => Sample<P>): Sample<P>[] =>
  BLOCK_TYPES.map(sample);
const badRow = (params: BlockParams & Record<string, unknown>, first: InputSpec[]): ErrorSample<any> => ({
  inputs: [...first, { shape: [3, 17], dtype: 'u8', ints: [0, 0] }],
  params,
  code: 'E_SHAPE',
  says: /rows of 17 bytes in \[3, 17\] are not whole blocks of Q4_0, which have 18/,
});
const OUTPUTS = ['f32', 'f16', 'bf16', 'f64'] as const;
/** Sums of a few hundred products in f32, by blocks. */
const PRODUCT_ULP = { f32: 16, f64: 32, f16: 1, bf16: 1 };

export const quantized = rows({
  dequantize: kernel<[type: string, dtype?: DType], DecodeParams>({
    family: 'quantized',
    formula: 'the values that blocks stand for',
    dtypes: ['u8'],
    without: 'blocks are bytes',
    ulp: 1,
    candle: noKernel,
    noGrad: 'blocks are whole numbers; gradients flow to activations, see qmatmul',
    args: (x: Tensor, type: string, dtype: DType = 'f32'): Call<DecodeParams> => ({
      inputs: [x],
      params: { type: blockType('dequantize', type), dtype },
    }),
    infer: ([blocks], { type, dtype }) => {
      requireReal('dequantize', 'the result cannot be', dtype);
      return [{ shape: [...blocks.shape.slice(0, -1), rowLength('dequantize', blocks, ggmlType(type))], dtype }];
    },
    reference: ([blocks], [out], { type }) => decoded(blocks, type).forEach((v, i) => (out.data[i] = v)),
    samples: () => [
      ...perType<DecodeParams>((type, i) => ({
        inputs: [blocksOf(type, [3], 512)],
        params: { type, dtype: OUTPUTS[i % 4] },
      })),
      { inputs: [blocksOf('Q4_K', [2, 1], 256)], params: { type: 'Q4_K', dtype: 'f32' } },
      { inputs: [blocksOf('Q8_0', [0], 32)], params: { type: 'Q8_0', dtype: 'f32' } },
    ],
    errors: () => [badRow({ type: 'Q4_0', dtype: 'f32' }, [])],
  }),

  q8Blocks: kernel<[], BlockParams>({
    family: 'quantized',
    formula: 'rows as blocks of Q8_0, 8 bits a value with a scale for every 32: how caches keep keys and values',
    dtypes: REALS,
    without: 'floats become blocks',
    domain: [-3, 3],
    ulp: 0,
    candle: { none: 'Candle encodes on the CPU' },
    noGrad: 'blocks are whole numbers',
    args: (x: Tensor): Call<BlockParams> => ({ inputs: [x], params: { type: 'Q8_0' } }),
    infer: ([x]) => {
      const { block, bytes } = ggmlType('Q8_0');
      const n = x.shape.at(-1);
      if (n === undefined || n % block !== 0)
        throw new ShapeError(`q8Blocks: rows of ${formatShape(x.shape)} are not whole blocks of ${block} values`);
      return [{ shape: [...x.shape.slice(0, -1), (n / block) * bytes], dtype: 'u8' }];
    },
    reference: ([x], [out]) =>
      quantize(ggmlType('Q8_0'), Float32Array.from(numbers(x))).forEach((v, i) => (out.data[i] = BigInt(v))),
    samples: () => [
      { inputs: [{ shape: [3, 64] }], params: { type: 'Q8_0' } },
      { inputs: [{ shape: [2, 5, 32] }], params: { type: 'Q8_0' } },
      { inputs: [{ shape: [0, 32] }], params: { type: 'Q8_0' } },
      { inputs: [{ shape: [2, 32], ints: [0, 0] }], params: { type: 'Q8_0' } },
    ],
    errors: () => [
      {
        inputs: [{ shape: [2, 48] }],
        params: { type: 'Q8_0' },
        code: 'E_SHAPE',
        says: /rows of \[2, 48\] are not whole blocks of 32 values/,
      },
    ],
  }),

  qrows: kernel<[indices: Tensor, type: string, dtype?: DType], DecodeParams>({
    family: 'quantized',
    mixed: true,
    formula: 'rows of blocks by number, as floats: an embedding whose table is quantized',
    dtypes: ['u8'],
    without: 'blocks are bytes',
    ulp: 1,
    candle: noKernel,
    noGrad: 'blocks are whole numbers',
    args: (x: Tensor, indices: Tensor, type: string, dtype: DType = 'f32'): Call<DecodeParams> => ({
      inputs: [x, indices],
      params: { type: blockType('qrows', type), dtype },
    }),
    infer: ([blocks, indices], { type, dtype }) => {
      requireRank('qrows', 'blocks', blocks.shape, 2, 'rows, bytes');
      requireReal('qrows', 'the result cannot be', dtype);
      requireIndex('qrows', indices);
      return [{ shape: [...indices.shape, rowLength('qrows', blocks, ggmlType(type))], dtype }];
    },
    reference: ([blocks, indices], [out], { type }) => {
      const w = decoded(blocks, type);
      const n = out.shape.at(-1) as number;
      indices.data.forEach((id, i) => {
        const row = placeOf('qrows', id, i, blocks.shape[0], maxInt(indices.dtype));
        for (let k = 0; k < n; k++) out.data[i * n + k] = row < 0 ? 0 : w[row * n + k];
      });
    },
    samples: () => [
      ...perType<DecodeParams>((type, i) => ({
        inputs: [blocksOf(type, [5], 256), ids([2, 3], 5, i % 2 ? 'i64' : 'u32')],
        params: { type, dtype: OUTPUTS[(i + 1) % 4] },
      })),
      { inputs: [blocksOf('Q6_K', [4], 512), ids([0], 4)], params: { type: 'Q6_K', dtype: 'f32' } },
    ],
    errors: () => [
      {
        inputs: [blocksOf('Q4_0', [3], 32), { shape: [2], dtype: 'f32' }],
        params: { type: 'Q4_0', dtype: 'f32' },
        code: 'E_DTYPE',
        says: /indices are f32/,
      },
    ],
  }),

  qmatmul: kernel<[blocks: Tensor, type: string, options?: ProductOptions], ProductParams>({
    family: 'quantized',
    mixed: true,
    formula:
      'x times the transpose of quantized weights; quick: x rounded to 8 bits a value, a scale for every 32 ' +
      '(GPUs: up to 64 rows)',
    dtypes: REALS,
    without: 'activations are floats',
    ulp: { ...PRODUCT_ULP, f32: 32 },
    domain: [-1, 1],
    candle: noKernel,
    args: (x: Tensor, blocks: Tensor, type: string, options: ProductOptions = {}): Call<ProductParams> => ({
      inputs: [x, blocks],
      params: { type: blockType('qmatmul', type), quick: quickOf('qmatmul', options) },
    }),
    infer: ([x, blocks], { type }) => {
      requireRank('qmatmul', 'weights', blocks.shape, 2, 'rows, bytes');
      const n = rowLength('qmatmul', blocks, ggmlType(type));
      if (x.shape.length === 0 || x.shape.at(-1) !== n)
        throw new ShapeError(
          `qmatmul: inner dimensions differ: lhs ${formatShape(x.shape)} has ${x.shape.at(-1) ?? 'none'}, ` +
            `rows of ${type} ${formatShape(blocks.shape)} have ${n}`,
        );
      return [{ shape: [...x.shape.slice(0, -1), blocks.shape[0]], dtype: x.dtype }];
    },
    reference: ([x, blocks], [out], { type, quick }) => {
      const w = decoded(blocks, type);
      const n = x.shape.at(-1) as number;
      const outputs = blocks.shape[0];
      for (let m = 0; m * n < x.data.length; m++) {
        const a = activations(x, m * n, n, quick);
        for (let j = 0; j < outputs; j++) out.data[m * outputs + j] = product(a, 0, w, j, n);
      }
    },
    // Rounded activations count as what they were rounded from.
    grad: ({ y, grad, params, needs }: GradContext<ProductParams>): Grads => [
      needs(0) ? grad.matmul(y.dequantize(params.type, grad.dtype)) : undefined,
      undefined,
    ],
    samples: () => [
      ...perType<ProductParams>((type) => ({
        inputs: [{ shape: [3, 256] }, blocksOf(type, [5], 256)],
        params: { type, quick: false },
      })),
      ...perType<ProductParams>((type, i) => ({
        inputs: [{ shape: [1 + (i % 9), 512] }, blocksOf(type, [7], 512)],
        params: { type, quick: true },
      })),
      { inputs: [{ shape: [2, 3, 32] }, blocksOf('Q8_0', [4], 32)], params: { type: 'Q8_0', quick: true } },
      { inputs: [{ shape: [32] }, blocksOf('Q4_0', [4], 32)], params: { type: 'Q4_0', quick: false } },
      { inputs: [{ shape: [0, 32] }, blocksOf('Q4_0', [4], 32)], params: { type: 'Q4_0', quick: true } },
    ],
    errors: () => [
      badRow({ type: 'Q4_0', quick: false }, [{ shape: [2, 32] }]),
      {
        inputs: [{ shape: [2, 64] }, blocksOf('Q4_0', [3], 32)],
        params: { type: 'Q4_0', quick: false },
        code: 'E_SHAPE',
        says: /inner dimensions differ: lhs \[2, 64\] has 64, rows of Q4_0 \[3, 18\] have 32/,
      },
    ],
  }),

  f8matmul: kernel<[values: Tensor, scales: Tensor], {}>({
    family: 'quantized',
    mixed: true,
    formula: 'x times the transpose of 8-bit floats (e4m3), every 128 of whose rows are multiplied by a scale',
    dtypes: REALS,
    without: 'activations are floats of 16 bits and more; cast first',
    ulp: PRODUCT_ULP,
    domain: [-1, 1],
    candle: { none: 'Candle has no products with scaled 8-bit floats' },
    args: (x: Tensor, values: Tensor, scales: Tensor): Call<{}> => ({ inputs: [x, values, scales], params: {} }),
    infer: ([x, values, scales]) => {
      requireRank('f8matmul', 'weights', values.shape, 2, 'rows, values');
      const [outputs, n] = values.shape;
      if (values.dtype !== 'f8e4m3' || scales.dtype !== 'f32')
        throw new DTypeError(`f8matmul: it takes f8e4m3 with scales of f32, not ${values.dtype} with ${scales.dtype}`);
      if (n % F8_GROUP || formatShape(scales.shape) !== formatShape([outputs, n / F8_GROUP]))
        throw new ShapeError(
          `f8matmul: scales ${formatShape(scales.shape)} are not one for every ${F8_GROUP} values of rows ` +
            formatShape(values.shape),
        );
      if (x.shape.length === 0 || x.shape.at(-1) !== n)
        throw new ShapeError(
          `f8matmul: inner dimensions differ: lhs ${formatShape(x.shape)} has ${x.shape.at(-1) ?? 'none'}, ` +
            `rows of ${formatShape(values.shape)} have ${n}`,
        );
      return [{ shape: [...x.shape.slice(0, -1), outputs], dtype: x.dtype }];
    },
    reference: ([x, values, scales], [out]) => {
      const [a, w, s] = [numbers(x), numbers(values), numbers(scales)];
      const [outputs, n] = values.shape;
      for (let m = 0; m * n < a.length; m++)
        for (let j = 0; j < outputs; j++) {
          let sum = 0;
          for (let k = 0; k < n; k++) sum += a[m * n + k] * w[j * n + k] * s[Math.floor((j * n + k) / F8_GROUP)];
          out.data[m * outputs + j] = sum;
        }
    },
    grad: ({ inputs: [, values, scales], grad, needs }: GradContext<{}>): Grads => {
      if (!needs(0)) return [undefined, undefined, undefined];
      const [outputs, n] = values.shape;
      const scaled = values
        .cast('f32')
        .reshape([outputs, n / F8_GROUP, F8_GROUP])
        .mul(scales.unsqueeze(-1));
      return [grad.matmul(scaled.reshape([outputs, n]).cast(grad.dtype)), undefined, undefined];
    },
    samples: () =>
      [
        [[1, 256], 9],
        [[128], 3],
        [[2, 3, 128], 5],
        [[5, 384], 17],
        [[0, 128], 4],
      ].map(([shape, outputs]) => ({
        inputs: [
          { shape: shape as number[] },
          { shape: [outputs as number, (shape as number[]).at(-1) as number], dtype: 'f8e4m3' as const },
          { shape: [outputs as number, ((shape as number[]).at(-1) as number) / F8_GROUP], dtype: 'f32' as const },
        ],
        params: {},
      })),
    errors: () => [
      {
        inputs: [{ shape: [2, 128] }, { shape: [3, 128], dtype: 'f8e4m3' }, { shape: [3, 2], dtype: 'f32' }],
        params: {},
        code: 'E_SHAPE',
        says: /scales \[3, 2\] are not one for every 128 values of rows \[3, 128\]/,
      },
      {
        inputs: [{ shape: [2, 128] }, { shape: [3, 128], dtype: 'f32' }, { shape: [3, 1], dtype: 'f32' }],
        params: {},
        code: 'E_DTYPE',
        says: /it takes f8e4m3 with scales of f32, not f32 with f32/,
      },
    ],
  }),

  qmatmulExperts: kernel<[blocks: Tensor, indices: Tensor, type: string, options?: ProductOptions], ProductParams>({
    family: 'quantized',
    mixed: true,
    formula: 'out[t, j] = x[t, j or 0] times the transpose of the quantized weights of expert ids[t, j]',
    dtypes: REALS,
    without: 'activations are floats',
    ulp: { ...PRODUCT_ULP, f64: 28 },
    domain: [-1, 1],
    candle: noKernel,
    args: (
      x: Tensor,
      blocks: Tensor,
      indices: Tensor,
      type: string,
      options: ProductOptions = {},
    ): Call<ProductParams> => ({
      inputs: [x, blocks, indices],
      params: { type: blockType('qmatmulExperts', type), quick: quickOf('qmatmulExperts', options) },
    }),
    infer: ([x, blocks, indices], { type }) => {
      const op = 'qmatmulExperts';
      requireExperts(op, [x, blocks, indices], rowLength(op, blocks, ggmlType(type)));
      return [{ shape: [...indices.shape, blocks.shape[1]], dtype: x.dtype }];
    },
    reference: ([x, blocks, indices], [out], { type, quick }) => {
      const w = decoded(blocks, type);
      const [, chosen] = indices.shape;
      const [experts, outputs] = blocks.shape;
      const [, given, n] = x.shape;
      indices.data.forEach((id, i) => {
        const expert = placeOf('qmatmulExperts', id, i, experts, maxInt(indices.dtype));
        const at = (Math.floor(i / chosen) * given + (given === 1 ? 0 : i % chosen)) * n;
        const a = activations(x, at, n, quick);
        for (let j = 0; j < outputs; j++)
          out.data[i * outputs + j] = expert < 0 ? 0 : product(a, 0, w, expert * outputs + j, n);
      });
    },
    grad: ({ inputs: [x, blocks, indices], grad, params, needs }: GradContext<ProductParams>): Grads => {
      if (!needs(0)) return [undefined, undefined, undefined];
      const [tokens, chosen, outputs] = grad.shape;
      const n = x.shape[2];
      // The chosen experts' weights, one matrix a choice.
      const w = blocks.dequantize(params.type, grad.dtype).indexSelect(0, indices.reshape([tokens * chosen]));
      const each = grad
        .reshape([tokens * chosen, 1, outputs])
        .matmul(w)
        .reshape([tokens, chosen, n]);
      return [x.shape[1] === 1 ? each.sum(1, true) : each, undefined, undefined];
    },
    samples: () => [
      ...perType<ProductParams>((type, i) => ({
        inputs: [{ shape: [3, i % 2 ? 1 : 2, 256] }, blocksOf(type, [4, 3], 256), ids([3, 2], 4)],
        params: { type, quick: i % 2 === 0 },
      })),
      {
        inputs: [{ shape: [4, 1, 32] }, blocksOf('Q8_0', [3, 5], 32), ids([4, 2], 3, 'i64')],
        params: { type: 'Q8_0', quick: false },
      },
    ],
    errors: () => [
      {
        inputs: [{ shape: [4, 3, 32] }, blocksOf('Q8_0', [3, 5], 32), ids([4, 2], 3)],
        params: { type: 'Q8_0', quick: false },
        code: 'E_SHAPE',
        says: /activations \[4, 3, 32\] do not fit indices \[4, 2\]/,
      },
    ],
  }),
});
