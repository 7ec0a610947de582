// Random streams: a seed and a counter, so that the same seed gives the same numbers on every device.
import type { DType } from '../base/dtype.js';
import { type Shape, sizeOf } from '../base/shape.js';

/** A seed and how many numbers were drawn; plain data to save and restore. */
export class Generator {
  seed: bigint;
  offset: bigint;
  constructor(seed: number | bigint, offset: number | bigint = 0) {
    this.seed = BigInt.asUintN(64, BigInt(seed));
    this.offset = BigInt(offset);
  }
  /** The counter's start for n numbers, which are then spent. Draws begin at multiples of four, the generator's block. */
  take(n: number): bigint {
    const at = this.offset;
    this.offset += BigInt(Math.ceil(n / 4) * 4);
    return at;
  }
}

export const defaultGenerator = new Generator(299792458);
/** Starts the default generator anew. */
export function manualSeed(seed: number | bigint): void {
  defaultGenerator.seed = BigInt.asUintN(64, BigInt(seed));
  defaultGenerator.offset = 0n;
}

export interface DrawParams extends Record<string, unknown> {
  shape: Shape;
  dtype: DType;
  seed: bigint;
  offset: bigint;
}
export const draw = (shape: Shape, dtype: DType, generator: Generator = defaultGenerator): DrawParams => ({
  shape,
  dtype,
  seed: generator.seed,
  offset: generator.take(sizeOf(shape)),
});
