// Rows of a stored tensor in another type, with what that loses: the work of one piece, done by worker threads.
import { dequantize } from '../base/blocks/decode.js';
import { quantize } from '../base/blocks/encode.js';
import { ggmlType, type GgmlType } from '../base/blocks/types.js';
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { fromBf16Bits, fromF16Bits, toBf16Bits, toF16Bits } from '../base/float.js';

export interface Piece {
  /** Types by name: a thread's messages carry no objects of ours. */
  readonly from: string;
  readonly to: string;
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

/** A typed array over bytes that may begin anywhere. */
const view = <T>(
  bytes: Uint8Array,
  Raw: new (buffer: ArrayBufferLike, at: number, length: number) => T,
  n: number,
): T =>
  bytes.byteOffset % n === 0
    ? new Raw(bytes.buffer, bytes.byteOffset, bytes.length / n)
    : new Raw(bytes.slice().buffer, 0, bytes.length / n);

/** How plain types become f32 and come from it. */
interface Plain {
  readonly read: (bytes: Uint8Array) => Float32Array;
  readonly write: (x: Float32Array) => ArrayBufferView;
}
const PLAIN: Readonly<Record<string, Plain | undefined>> = {
  F32: { read: (b) => view(b, Float32Array, 4), write: (x) => x },
  F16: {
    read: (b) => Float32Array.from(view(b, Uint16Array, 2), fromF16Bits),
    write: (x) => Uint16Array.from(x, toF16Bits),
  },
  BF16: {
    read: (b) => Float32Array.from(view(b, Uint16Array, 2), fromBf16Bits),
    write: (x) => Uint16Array.from(x, toBf16Bits),
  },
};

function decode(type: GgmlType, bytes: Uint8Array): Float32Array {
  if (!type.plain) return dequantize(type, bytes);
  const plain = PLAIN[type.name];
  if (!plain) throw new UnsupportedError(`${type.name} holds no weights that can be encoded`);
  return plain.read(bytes);
}

export function encodePiece({ from, to, bytes, rowLength, importance, first }: Piece): EncodedPiece {
  const target = ggmlType(to);
  const x = decode(ggmlType(from), bytes);
  const bad = x.findIndex((v) => !Number.isFinite(v));
  if (bad >= 0) throw new ArgumentError(`element ${first + bad} is ${x[bad]}; only finite weights are encoded`);
  const plain = target.plain && PLAIN[target.name]?.write(x);
  const out = plain
    ? new Uint8Array(plain.buffer, plain.byteOffset, plain.byteLength).slice()
    : quantize(target, x, { rowLength, ...(importance && { importance }) });
  const y = decode(target, out);
  let [lost, whole] = [0, 0];
  for (let i = 0; i < x.length; i++) {
    if (!Number.isFinite(y[i]))
      throw new ArgumentError(`element ${first + i} is ${x[i]}, which ${target.name} does not hold`);
    lost += (x[i] - y[i]) ** 2;
    whole += x[i] ** 2;
  }
  return { bytes: out, lost, whole };
}
