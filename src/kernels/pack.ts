// Packs a kernel's arguments by its own parameter list, which was read from its source.
import { ArgumentError } from '../base/errors.js';
import type { ArgBuffer } from '../driver/args.js';
import type { Entry, Param } from './entries.js';

/** Numbers, bigints for 64-bit values, bytes for structs; small floats are given as their bits. */
export type ArgValue = number | bigint | Uint8Array;

const writers: Readonly<Record<string, (a: ArgBuffer, v: number) => void>> = {
  u8: (a, v) => a.u8(v),
  i8: (a, v) => a.u8(v),
  bool: (a, v) => a.u8(v),
  fp8: (a, v) => a.u8(v),
  u16: (a, v) => a.u16(v),
  half: (a, v) => a.u16(v),
  bfloat: (a, v) => a.u16(v),
  i16: (a, v) => a.i16(v),
  u32: (a, v) => a.u32(v),
  unsigned: (a, v) => a.u32(v),
  i32: (a, v) => a.i32(v),
  int: (a, v) => a.i32(v),
  float: (a, v) => a.f32(v),
  u64: (a, v) => a.u64(v),
  size_t: (a, v) => a.u64(v),
  i64: (a, v) => a.i64(v),
  double: (a, v) => a.f64(v),
};

function packParam(args: ArgBuffer, symbol: string, p: Param, v: ArgValue): void {
  if (v instanceof Uint8Array) {
    if (v.length !== p.size)
      throw new ArgumentError(`${symbol}: parameter ${p.name} (${p.type}) has ${p.size} bytes, ${v.length} were given`);
    args.struct(v, p.align as 1 | 2 | 4 | 8 | 16);
  } else if (typeof v === 'bigint') args.bigint(v);
  else if (p.pointer) args.pointer(v);
  else {
    const write = writers[p.type];
    if (!write) throw new ArgumentError(`${symbol}: parameter ${p.name} is a ${p.type}; give its bytes`);
    write(args, v);
  }
}

export function packEntry(args: ArgBuffer, entry: Entry, values: readonly ArgValue[]): ArgBuffer {
  if (values.length !== entry.params.length) {
    throw new ArgumentError(
      `${entry.symbol}: ${entry.params.length} arguments are needed (${entry.params.map((p) => p.name).join(', ')}), ${values.length} were given`,
    );
  }
  args.reset();
  entry.params.forEach((p, i) => packParam(args, entry.symbol, p, values[i]));
  return args;
}
