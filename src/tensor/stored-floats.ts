// Weights kept in the 16 bits they are stored in, beside activations of f32: half the memory, and half of what a product
// reads. Answers have the bits of those with weights that were cast first.
import { ggmlType } from '../base/blocks/types.js';
import type { DType } from '../base/dtype.js';
import { gradEnabled } from './autograd.js';
import { expertRows } from './dispatch.js';
import type { Tensor } from './tensor.js';

/** Values [..., rows, n] of f16 or bf16. */
export interface FloatRows {
  /** The values. */
  readonly blocks: Tensor;
}

/** ggml's name for what such values are kept in; undefined for other dtypes. */
export const floatType = (dtype: DType): string | undefined =>
  dtype === 'f16' || dtype === 'bf16' ? dtype.toUpperCase() : undefined;
/** Whether a type's values are floats of 16 bits, each by itself. */
export const isFloatType = (type: string): boolean => floatType(ggmlType(type).plain as DType) !== undefined;

/** The values in another dtype. */
export const decodeFloats = ({ blocks }: FloatRows, dtype: DType): Tensor => blocks.cast(dtype);

/** x (..., n) times the transpose of rows (rows, n). */
export const multiplyFloats = (x: Tensor, { blocks }: FloatRows): Tensor =>
  x.dtype === 'f32' ? x.matmulWidened(blocks.t()) : x.matmul(blocks.cast(x.dtype).t());

/** x (tokens, 1 or chosen, n) times the matrices (experts, rows, n) that `experts` (tokens, chosen) names. */
export function multiplyFloatExperts(x: Tensor, { blocks }: FloatRows, experts: Tensor): Tensor {
  const [tokens, chosen] = experts.shape;
  const [, rows, n] = blocks.shape;
  const widens = x.dtype === 'f32' && x.device.backend.elsewhere !== undefined;
  if (!widens || (gradEnabled() && x.requiresGrad)) return x.matmulExperts(blocks.cast(x.dtype), experts);
  const given = x.broadcastTo([tokens, chosen, n]).reshape([tokens * chosen, n]);
  return expertRows(given, blocks, experts.reshape([tokens * chosen])).reshape([tokens, chosen, rows]);
}

/** Rows by number, as an embedding looks them up. */
export const lookUpFloats = ({ blocks }: FloatRows, ids: Tensor, dtype: DType): Tensor =>
  blocks.embedding(ids).cast(dtype);
