// Random streams: a seed and a counter, so that the same seed gives the same numbers on every device.
import type { DType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { checkShape, type Shape, sizeOf } from '../base/shape.js';

/** A seed as 64 bits: a whole number that is exact, negative ones in two's complement. */
function asSeed(seed: number | bigint): bigint {
  const isWhole = typeof seed === 'bigint' || Number.isSafeInteger(seed);
  const wide = isWhole ? BigInt(seed) : 2n ** 64n;
  if (wide < -(2n ** 63n) || wide >= 2n ** 64n)
    throw new ArgumentError(`seed: ${String(seed)}; it takes a whole number of 64 bits, beyond 2^53 as a bigint`);
  return BigInt.asUintN(64, wide);
}

/** A seed and how many numbers were drawn; plain data to save and restore. */
export class Generator {
  /** What tells this stream of numbers from others. */
  seed: bigint;
  /** How many numbers were drawn. */
  offset: bigint;
  /** A stream that begins at `offset`; the same seed and offset give the same numbers everywhere. */
  constructor(seed: number | bigint, offset: number | bigint = 0) {
    this.seed = asSeed(seed);
    this.offset = asSeed(offset);
  }
  /**
   * The counter's start for n numbers, which are then spent. Draws begin at multiples of four, the generator's block.
   */
  take(n: number): bigint {
    const at = this.offset;
    this.offset += BigInt(Math.ceil(n / 4) * 4);
    return at;
  }
}

/** The stream that random numbers come from where no generator is given; `manualSeed` starts it anew. */
export const defaultGenerator = new Generator(299792458);
/** Starts the default generator anew. */
export function manualSeed(seed: number | bigint): void {
  defaultGenerator.seed = asSeed(seed);
  defaultGenerator.offset = 0n;
}

export interface DrawParams extends Record<string, unknown> {
  shape: Shape;
  dtype: DType;
  seed: bigint;
  offset: bigint;
}
export function draw(shape: Shape, dtype: DType, generator: Generator = defaultGenerator): DrawParams {
  checkShape('rand', shape);
  return { shape, dtype, seed: generator.seed, offset: generator.take(sizeOf(shape)) };
}
