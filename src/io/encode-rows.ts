// Rows of a stored tensor in another type, with what that loses: the CPU device decodes, encodes and measures.
import type { GgmlType } from '../base/blocks/types.js';
import type { DType } from '../base/dtype.js';
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { Device } from '../tensor/device.js';
import { encodeBlocks } from '../tensor/encode-blocks.js';
import '../tensor/methods.js'; // gives tensors the methods that are used here
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';

export interface Piece {
  readonly from: GgmlType;
  readonly to: GgmlType;
  /** Whole rows as they are stored. */
  readonly bytes: Uint8Array;
  readonly rowLength: number;
  readonly importance?: Float32Array;
  /** The number of the piece's first element in its tensor, for messages. */
  readonly first: number;
}
export interface EncodedPiece {
  readonly bytes: Uint8Array;
  /** Sums of squares: of what was lost, and of the original. */
  readonly lost: number;
  readonly whole: number;
}

/** Types of single numbers that weights are stored in. */
const PLAIN: Readonly<Record<string, DType | undefined>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' };
function plainOf(type: GgmlType): DType {
  const dtype = PLAIN[type.name];
  if (!dtype) throw new UnsupportedError(`${type.name} holds no weights that can be encoded`);
  return dtype;
}

/** Stored rows as floats. */
function decoded(type: GgmlType, bytes: Uint8Array, rowLength: number): Tensor {
  const device = Device.cpu();
  const rows = bytes.length / ((rowLength / type.block) * type.bytes);
  if (type.plain)
    return tensor(bytes, { shape: [bytes.length], dtype: 'u8', device })
      .bitcast(plainOf(type))
      .cast('f32')
      .reshape([rows, rowLength]);
  return tensor(bytes, { shape: [rows, bytes.length / rows], dtype: 'u8', device }).dequantize(type.name);
}

/** The first value of which `f` holds is named: with it nothing can be encoded. */
function refuse(bad: Tensor, x: Tensor, first: number, rule: string): void {
  if (bad.any().item() === 0) return;
  const at = (bad.dataSync() as Uint8Array).findIndex((v) => v !== 0);
  throw new ArgumentError(`element ${first + at} is ${(x.dataSync() as Float32Array)[at]}${rule}`);
}

export function encodePiece({ from, to, bytes, rowLength, importance, first }: Piece): EncodedPiece {
  return noGrad(() =>
    scope(() => {
      const x = decoded(from, bytes, rowLength);
      refuse(x.isFinite().logicalNot(), x, first, '; only finite weights are encoded');
      const out = to.plain ? x.cast(plainOf(to)).bitcast('u8') : encodeBlocks(x, to, importance ? { importance } : {});
      const made = (out.dataSync() as Uint8Array).slice();
      const y = decoded(to, made, rowLength);
      refuse(y.isFinite().logicalNot(), x, first, `, which ${to.name} does not hold`);
      const exact = x.cast('f64');
      const lost = exact.sub(y.cast('f64'));
      return { bytes: made, lost: lost.mul(lost).sum().item(), whole: exact.mul(exact).sum().item() };
    }),
  );
}
