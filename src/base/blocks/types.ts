// ggml's element types: names, ids, block lengths and bytes, and which of them are plain numbers.
import { FormatError } from '../errors.js';

/** The element types ggml stores one number at a time. */
export type PlainType = 'f32' | 'f16' | 'bf16' | 'f64' | 'i8' | 'i16' | 'i32' | 'i64';

/** A type of ggml: floats, integers or quantized blocks. */
export interface GgmlType {
  /** Its number in files. */
  readonly id: number;
  /** Its name: 'Q4_K'. */
  readonly name: string;
  /** Elements in a block, and the bytes the block takes. */
  readonly block: number;
  /** Bytes of a block. */
  readonly bytes: number;
  /** The element type where a block is one number; undefined for quantized types. */
  readonly plain?: PlainType;
}

const type = (id: number, name: string, block: number, bytes: number, plain?: PlainType): GgmlType => ({
  id,
  name,
  block,
  bytes,
  plain,
});

/** All types of ggml, by their numbers in files. */
export const GGML_TYPES: readonly GgmlType[] = [
  type(0, 'F32', 1, 4, 'f32'),
  type(1, 'F16', 1, 2, 'f16'),
  type(30, 'BF16', 1, 2, 'bf16'),
  type(28, 'F64', 1, 8, 'f64'),
  type(24, 'I8', 1, 1, 'i8'),
  type(25, 'I16', 1, 2, 'i16'),
  type(26, 'I32', 1, 4, 'i32'),
  type(27, 'I64', 1, 8, 'i64'),
  type(2, 'Q4_0', 32, 18),
  type(3, 'Q4_1', 32, 20),
  type(6, 'Q5_0', 32, 22),
  type(7, 'Q5_1', 32, 24),
  type(8, 'Q8_0', 32, 34),
  type(9, 'Q8_1', 32, 36),
  type(10, 'Q2_K', 256, 84),
  type(11, 'Q3_K', 256, 110),
  type(12, 'Q4_K', 256, 144),
  type(13, 'Q5_K', 256, 176),
  type(14, 'Q6_K', 256, 210),
  type(15, 'Q8_K', 256, 292),
  type(16, 'IQ2_XXS', 256, 66),
  type(17, 'IQ2_XS', 256, 74),
  type(18, 'IQ3_XXS', 256, 98),
  type(19, 'IQ1_S', 256, 50),
  type(20, 'IQ4_NL', 32, 18),
  type(21, 'IQ3_S', 256, 110),
  type(22, 'IQ2_S', 256, 82),
  type(23, 'IQ4_XS', 256, 136),
  type(29, 'IQ1_M', 256, 56),
  type(34, 'TQ1_0', 256, 54),
  type(35, 'TQ2_0', 256, 66),
  type(39, 'MXFP4', 32, 17),
  type(40, 'NVFP4', 64, 36),
];

const BY_ID = new Map(GGML_TYPES.map((t) => [t.id, t]));
/** A type of ours that no file of ggml's holds: 8-bit floats, their scales (an f32 for every 128) kept beside them. */
export const F8_E4M3 = type(-1, 'F8_E4M3', 128, 132);
const BY_NAME = new Map([...GGML_TYPES, F8_E4M3].map((t) => [t.name.toLowerCase(), t]));

/** The type of a number in a file; undefined where it is not known. */
export const ggmlTypeById = (id: number): GgmlType | undefined => BY_ID.get(id);

/** By name, in any case: 'Q4_K', 'q4_k'. */
export function ggmlType(name: string): GgmlType {
  const found = BY_NAME.get(name.toLowerCase());
  if (found) return found;
  throw new FormatError(
    `ggml type ${JSON.stringify(name)} is not known; known are ${GGML_TYPES.map((t) => t.name).join(', ')}`,
  );
}
