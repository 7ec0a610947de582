// Floats to ggml's blocks: a row beside the table. Encoding is done once for a model, on the host: the CPU engine has
// it, other devices' tensors go there and back, and the function that says what must come out is base/blocks/encode.ts.
import { quantize } from '../base/blocks/encode.js';
import { ggmlType } from '../base/blocks/types.js';
import type { Tensor } from '../tensor/tensor.js';
import { numbers } from './kernel-row.js';
import type { Call, KernelRow, Params, RefTensor, Sig } from './op.js';

export interface EncodeParams extends Params {
  /** One of ENCODED. */
  readonly type: string;
}

/** x f32 [..., n], and importances f32 [n] where there are any. The caller has looked at shapes and values. */
export const ENCODE_BLOCKS = {
  name: 'encodeBlocks',
  family: 'quantized',
  mixed: true,
  formula: 'rows as blocks of a type, chosen as ggml chooses them',
  dtypes: ['f32'],
  candle: { none: 'Candle encodes on the CPU' },
  ulp: {},
  noGrad: 'blocks are whole numbers',
  args: (x: Tensor, params: EncodeParams): Call<EncodeParams> => ({ inputs: [x], params }),
  infer: ([x]: readonly Sig[], { type }: EncodeParams): readonly Sig[] => {
    const { block, bytes } = ggmlType(type);
    return [{ shape: [...x.shape.slice(0, -1), ((x.shape.at(-1) as number) / block) * bytes], dtype: 'u8' }];
  },
  reference: ([x, importance]: readonly RefTensor[], [out]: readonly RefTensor[], { type }: EncodeParams): void => {
    const options = {
      rowLength: x.shape.at(-1) as number,
      ...(importance && { importance: Float32Array.from(numbers(importance)) }),
    };
    quantize(ggmlType(type), Float32Array.from(numbers(x)), options).forEach((v, i) => (out.data[i] = BigInt(v)));
  },
  samples: () => [],
  errors: () => [],
} as unknown as KernelRow;
