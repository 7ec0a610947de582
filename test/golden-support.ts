// Candle's own CUDA results as kernel tests read them: the cases, and the tensors they name.
import { type DType, DTYPE, type RawArray } from '../src/base/dtype.js';
import { goldenFolder, hasGolden, readGolden } from '../src/parity/golden.js';

const folder = goldenFolder() ?? '';
const present = hasGolden(folder, 'candle-cuda.json');
/** Why tests of golden numbers are skipped, where they are. */
export const skip: string | false = present ? false : 'no golden numbers here; WICK_GOLDEN names their folder';

export interface GoldenCase {
  readonly id: string;
  readonly op: string;
  readonly kernel: string;
  readonly dtype: DType;
  readonly params: Readonly<Record<string, any>>;
  readonly inputs: Readonly<Record<string, string>>;
  readonly outputs: Readonly<Record<string, string>>;
}
export interface Stored {
  readonly dtype: DType;
  readonly shape: number[];
  readonly raw: RawArray;
}
const NAMES: Readonly<Record<string, DType>> = {
  U8: 'u8',
  U32: 'u32',
  I16: 'i16',
  I32: 'i32',
  I64: 'i64',
  F8_E4M3: 'f8e4m3',
  BF16: 'bf16',
  F16: 'f16',
  F32: 'f32',
  F64: 'f64',
};

function readStored(file: Buffer): Map<string, Stored> {
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + length)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  return new Map(
    Object.entries(header)
      .filter(([name]) => name !== '__metadata__')
      .map(([name, t]) => {
        const bytes = new Uint8Array(file.subarray(8 + length + t.data_offsets[0], 8 + length + t.data_offsets[1]));
        const dtype = NAMES[t.dtype];
        return [
          name,
          { dtype, shape: t.shape, raw: new DTYPE[dtype].Raw(bytes.buffer, 0, bytes.length / DTYPE[dtype].bytes) },
        ];
      }),
  );
}

export const goldenCases: readonly GoldenCase[] = present
  ? (JSON.parse(Buffer.from(readGolden(folder, 'candle-cuda.json')).toString()) as { cases: GoldenCase[] }).cases
  : [];
export const goldenTensors: ReadonlyMap<string, Stored> = present
  ? readStored(Buffer.from(readGolden(folder, 'candle-cuda.safetensors')))
  : new Map();
