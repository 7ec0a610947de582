// Packs kernel arguments into one preallocated native buffer, at the offsets the compiler gives a parameter list.
import { ArgumentError } from '../base/errors.js';
import type { Arguments } from './driver.js';
import { nativeBlock } from './ffi.js';

/** Kernel parameters end at 4 KiB on both vendors. */
const CAPACITY = 4096;

/**
 * Written front to back: `args.reset().pointer(p).u32(n)`. Makes no garbage; one serves every launch, since launches
 * copy it.
 */
export class ArgBuffer implements Arguments {
  readonly address: number;
  size = 0;
  readonly #view: DataView;
  readonly #bytes: Uint8Array;

  constructor() {
    const block = nativeBlock(CAPACITY);
    this.address = block.address;
    this.#view = new DataView(block.buffer);
    this.#bytes = new Uint8Array(block.buffer);
  }

  reset(): this {
    this.size = 0;
    return this;
  }

  /** A copy of what was packed, and the buffer as it was then. */
  bytes(): Uint8Array {
    return this.#bytes.slice(0, this.size);
  }
  refill(bytes: Uint8Array): this {
    this.#bytes.set(bytes);
    this.size = bytes.length;
    return this;
  }

  /** Writes an address over the 8 bytes at a place. */
  setPointer(at: number, address: number): void {
    this.#view.setUint32(at, address, true); // the low 32 bits: conversion is modulo 2^32
    this.#view.setUint32(at + 4, address / 0x100000000, true);
  }

  /** Where the next value of so many bytes goes. */
  #place(align: number, bytes: number): number {
    const at = (this.size + align - 1) & -align;
    if (at + bytes > CAPACITY)
      throw new ArgumentError(`kernel arguments: ${at + bytes} bytes; at most ${CAPACITY} are allowed`);
    this.size = at + bytes;
    return at;
  }

  /** A device address or any whole number from 0 to 2^53. */
  pointer(address: number): this {
    return this.u64(address);
  }
  u64(value: number): this {
    this.setPointer(this.#place(8, 8), value);
    return this;
  }
  /** A signed whole number within 2^53. */
  i64(value: number): this {
    const at = this.#place(8, 8);
    this.#view.setUint32(at, value, true);
    this.#view.setInt32(at + 4, Math.floor(value / 0x100000000), true);
    return this;
  }
  /** All 64 bits, for scalars of 64-bit tensors. */
  bigint(value: bigint): this {
    this.#view.setBigInt64(this.#place(8, 8), value, true);
    return this;
  }
  f64(value: number): this {
    this.#view.setFloat64(this.#place(8, 8), value, true);
    return this;
  }
  u32(value: number): this {
    this.#view.setUint32(this.#place(4, 4), value, true);
    return this;
  }
  i32(value: number): this {
    this.#view.setInt32(this.#place(4, 4), value, true);
    return this;
  }
  f32(value: number): this {
    this.#view.setFloat32(this.#place(4, 4), value, true);
    return this;
  }
  /** Also the raw bits of f16 and bf16. */
  u16(value: number): this {
    this.#view.setUint16(this.#place(2, 2), value, true);
    return this;
  }
  i16(value: number): this {
    this.#view.setInt16(this.#place(2, 2), value, true);
    return this;
  }
  u8(value: number): this {
    this.#view.setUint8(this.#place(1, 1), value);
    return this;
  }
  /** A struct passed by value. */
  struct(data: Uint8Array, align: 1 | 2 | 4 | 8 | 16): this {
    this.#bytes.set(data, this.#place(align, data.length));
    return this;
  }
}
