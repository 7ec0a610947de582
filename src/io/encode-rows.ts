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

/** Numbers one by one: typed arrays' own `from` takes ten times as long. */
function mapped<Out extends Float32Array | Uint16Array>(
  x: Float32Array | Uint16Array,
  out: Out,
  f: (v: number) => number,
): Out {
  for (let i = 0; i < x.length; i++) out[i] = f(x[i]);
  return out;
}
const halves = (b: Uint8Array): Uint16Array => view(b, Uint16Array, 2);
const F16 = mapped(
  Uint16Array.from({ length: 65536 }, (_, i) => i),
  new Float32Array(65536),
  fromF16Bits,
);

/** How plain types become f32 and come from it. */
interface Plain {
  readonly read: (bytes: Uint8Array) => Float32Array;
  readonly write: (x: Float32Array) => ArrayBufferView;
}
const PLAIN: Readonly<Record<string, Plain | undefined>> = {
  F32: { read: (b) => view(b, Float32Array, 4), write: (x) => x },
  F16: {
    read: (b) => mapped(halves(b), new Float32Array(b.length / 2), (v) => F16[v]),
    write: (x) => mapped(x, new Uint16Array(x.length), toF16Bits),
  },
  BF16: {
    read: (b) => mapped(halves(b), new Float32Array(b.length / 2), fromBf16Bits),
    write: (x) => mapped(x, new Uint16Array(x.length), toBf16Bits),
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
  for (let i = 0; i < x.length; i++)
    if (!Number.isFinite(x[i]))
      throw new ArgumentError(`element ${first + i} is ${x[i]}; only finite weights are encoded`);
  const plain = target.plain && PLAIN[target.name]?.write(x);
  const out = plain
    ? new Uint8Array(plain.buffer, plain.byteOffset, plain.byteLength).slice()
    : quantize(target, x, { rowLength, ...(importance && { importance }) });
  const y = decode(target, out);
  let [lost, whole] = [0, 0];
  for (let i = 0; i < x.length; i++) {
    if (!Number.isFinite(y[i]))
      throw new ArgumentError(`element ${first + i} is ${x[i]}, which ${target.name} does not hold`);
    lost += (x[i] - y[i]) * (x[i] - y[i]);
    whole += x[i] * x[i];
  }
  return { bytes: out, lost, whole };
}
