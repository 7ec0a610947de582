// A library's attention is believed once it agrees with our own kernels on what it is first asked for, and used where
// it is quicker.
import { bytesOf, DTYPE, type DType } from '../../base/dtype.js';
import { DriverError, OutOfMemoryError } from '../../base/errors.js';
import type { Address } from '../../driver/driver.js';
import type { GpuContext } from './context.js';
import { OWN_WAY } from './libraries.js';

/** A result in memory: so many numbers side by side. */
export interface Written {
  readonly address: Address;
  readonly count: number;
  readonly dtype: DType;
}
/** Numbers compared from either end of a result, and how far apart they may be by the largest of them. */
const SEEN = 1 << 15;
const APART = 1 / 32;
const ROUNDS = 3;
/** Milliseconds of a round, and the most runs in one: the host, slow at first, must not be what is timed. */
const ROUND = 5;
const MOST_RUNS = 32;
/** A library must be this much quicker: a near tie would fall now this way, now that. */
const QUICKER = 0.95;

function numbers({ device, stream }: GpuContext, { address, count, dtype }: Written): Float64Array {
  const { bytes, Raw, decode } = DTYPE[dtype];
  const ends =
    count <= 2 * SEEN
      ? [[0, count]]
      : [
          [0, SEEN],
          [count - SEEN, SEEN],
        ];
  const raw = new Uint8Array(Math.min(count, 2 * SEEN) * bytes);
  let to = 0;
  for (const [from, length] of ends) {
    device.copyOut(raw.subarray(to, (to += length * bytes)), address + from * bytes, stream);
  }
  return Float64Array.from(new Raw(raw.buffer, 0, raw.length / bytes) as Iterable<number>, (r) => Number(decode(r)));
}

const largest = (values: Float64Array): number => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
/** How far apart two results are by the largest of the first; infinitely far where one is not finite. */
function apart(mine: Float64Array, theirs: Float64Array): number {
  let most = 0;
  for (let i = 0; i < mine.length; i++) most = Math.max(most, Math.abs(mine[i] - theirs[i]));
  return Number.isFinite(most) && theirs.every(Number.isFinite) ? most / largest(mine) : Infinity;
}

/** Milliseconds of a run, one after another: another one goes before, so that the device has its hands full. */
function milliseconds({ device, stream }: GpuContext, run: () => void, runs: number): number {
  const [start, end] = [device.createEvent(true), device.createEvent(true)];
  try {
    run();
    device.record(start, stream);
    for (let i = 0; i < runs; i++) run();
    device.record(end, stream);
    device.synchronizeEvent(end);
    return device.elapsed(start, end) / runs;
  } finally {
    device.destroyEvent(start);
    device.destroyEvent(end);
  }
}

/** Of ways that answer alike the quickest: ours, the first, unless another is quicker by more than a whim. */
function quickest(gpu: GpuContext, ways: readonly number[], run: (way: number) => void): number {
  const best = ways.map((way) => milliseconds(gpu, () => run(way), 1));
  const runs = Math.min(MOST_RUNS, Math.ceil(ROUND / Math.min(...best)));
  // In turns: a device that grows warm is as slow for each. Where a run is a round by itself, one tells enough.
  for (let round = 0; round < ROUNDS && runs > 1; round++)
    ways.forEach(
      (way, i) =>
        (best[i] = Math.min(
          best[i],
          milliseconds(gpu, () => run(way), runs),
        )),
    );
  best[0] *= QUICKER;
  return ways[best.indexOf(Math.min(...best))];
}

/**
 * The quickest of our own kernels and the library's ways that agree with them; undefined where these numbers cannot
 * tell (all of a result are 0, or one is not finite). Results are overwritten.
 */
export function tryWays(
  gpu: GpuContext,
  count: number,
  written: readonly Written[],
  run: (way: number) => void,
): number | undefined {
  run(OWN_WAY);
  const mine = written.map((w) => numbers(gpu, w));
  if (mine.some((m) => largest(m) === 0 || !m.every(Number.isFinite))) return undefined;
  const agrees = (way: number): boolean => {
    for (const { address, count: n, dtype } of written)
      gpu.device.memset(address, 0xff, n * bytesOf(dtype), gpu.stream); // what is not written is no number
    try {
      run(way);
      const far = Math.max(...written.map((w, i) => apart(mine[i], numbers(gpu, w))));
      if (far <= APART) return true;
      process.emitWarning(
        `a library's attention differs from wick's own by ${far.toExponential(1)}; it is not used for this shape`,
        'WickWarning',
      );
    } catch (e) {
      if (!(e instanceof DriverError || e instanceof OutOfMemoryError)) throw e; // one that fails is passed over
    }
    return false;
  };
  const ways = Array.from({ length: count }, (_, way) => way).filter(agrees);
  return ways.length === 0 ? OWN_WAY : quickest(gpu, [OWN_WAY, ...ways], run);
}
