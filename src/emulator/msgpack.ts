// Decodes MessagePack, the encoding of a code object's metadata note.
import { FormatError } from '../base/errors.js';

export type Msgpack = null | boolean | number | string | Uint8Array | Msgpack[] | MsgpackMap;
export interface MsgpackMap {
  [key: string]: Msgpack;
}

export function decodeMsgpack(bytes: Uint8Array): MsgpackMap {
  const dv = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const unsigned = (n: 1 | 2 | 4 | 8): number => {
    const v =
      n === 1 ? dv.getUint8(at) : n === 2 ? dv.getUint16(at) : n === 4 ? dv.getUint32(at) : Number(dv.getBigUint64(at));
    at += n;
    return v;
  };
  const signed = (n: 1 | 2 | 4 | 8): number => {
    const v =
      n === 1 ? dv.getInt8(at) : n === 2 ? dv.getInt16(at) : n === 4 ? dv.getInt32(at) : Number(dv.getBigInt64(at));
    at += n;
    return v;
  };
  const raw = (n: number): Uint8Array => bytes.subarray(at, (at += n));
  const text = (n: number): string => Buffer.from(raw(n)).toString();
  const list = (n: number): Msgpack[] => Array.from({ length: n }, value);
  const map = (n: number): MsgpackMap => {
    const out: MsgpackMap = {};
    for (let i = 0; i < n; i++) {
      const key = String(value());
      out[key] = value();
    }
    return out;
  };
  const SIZES = [1, 2, 4, 8] as const;
  function value(): Msgpack {
    const c = bytes[at++];
    if (c < 0x80) return c;
    if (c < 0x90) return map(c & 15);
    if (c < 0xa0) return list(c & 15);
    if (c < 0xc0) return text(c & 31);
    if (c >= 0xe0) return c - 256;
    if (c === 0xc0) return null;
    if (c === 0xc2 || c === 0xc3) return c === 0xc3;
    if (c >= 0xc4 && c <= 0xc6) return raw(unsigned(SIZES[c - 0xc4]));
    if (c === 0xca || c === 0xcb) return c === 0xca ? dv.getFloat32((at += 4) - 4) : dv.getFloat64((at += 8) - 8);
    if (c >= 0xcc && c <= 0xcf) return unsigned(SIZES[c - 0xcc]);
    if (c >= 0xd0 && c <= 0xd3) return signed(SIZES[c - 0xd0]);
    if (c >= 0xd9 && c <= 0xdb) return text(unsigned(SIZES[c - 0xd9]));
    if (c >= 0xdc && c <= 0xdd) return list(unsigned(SIZES[c - 0xdb]));
    if (c >= 0xde && c <= 0xdf) return map(unsigned(SIZES[c - 0xdd]));
    throw new FormatError(`msgpack: byte 0x${c?.toString(16)} at ${at - 1} starts no value used in metadata`);
  }
  const out = value();
  if (out === null || typeof out !== 'object' || Array.isArray(out) || out instanceof Uint8Array)
    throw new FormatError('msgpack: the top value is not a map');
  return out;
}
