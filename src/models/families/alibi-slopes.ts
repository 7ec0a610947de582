// How fast heads lose sight of what lies far away (ALiBi).

/** Slopes 2^(-8h/n); with a number of heads that is not a power of two, those of the next one in between. */
export function alibiSlopes(heads: number): number[] {
  const power = 2 ** Math.floor(Math.log2(heads));
  const base = 2 ** -(2 ** -(Math.log2(power) - 3));
  const extra = 2 ** -(2 ** -(Math.log2(2 * power) - 3));
  return Array.from({ length: heads }, (_, h) => (h < power ? base ** (h + 1) : extra ** (2 * (h - power) + 1)));
}
