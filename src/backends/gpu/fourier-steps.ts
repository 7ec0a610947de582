// Steps of Fourier transforms, the threads that make them, and how elements lie in shared memory meanwhile.
import type { DeviceInfo } from '../../driver/driver.js';
import { type Float, pairBytes } from './fourier-tables.js';
import { ceilDiv, clamp } from './plan.js';

/** Elements that a thread holds. */
export const HELD = 16;
/** Threads of a block; the large one serves lengths that a small one cannot hold. */
export const THREADS = 512;
export const LARGE = 1024;
const RADICES = { twos: [16, 8, 4, 2], any: [16, 15, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2] } as const;
export const stepsOf = (n: number): 'twos' | 'any' => (n >= HELD && (n & (n - 1)) === 0 ? 'twos' : 'any');
const lanesOf = (n: number, radices: readonly number[]): number =>
  Math.max(...radices.map((r) => ceilDiv(n / r, Math.floor(HELD / r))));

interface Steps {
  readonly radices: readonly number[];
  /** Threads that hold all elements. */
  readonly lanes: number;
}
const known = new Map<number, Steps>();
/** What a step too many, and what threads for which a block has none beside it, cost beside a step. */
const costOf = ({ radices, lanes }: Steps): number =>
  radices.length + (lanes > THREADS ? 1.5 : 0) + lanes / 1e4 + radices.reduce((a, b) => a + b, 0) / 1e6;
/** As few steps as there can be, and of those that need the fewest threads; [1] of one element. */
export function stepsFor(n: number): Steps {
  let best = known.get(n);
  if (best) return best;
  const search = (left: number, most: number, radices: readonly number[]): void => {
    if (left === 1) {
      const found = { radices, lanes: lanesOf(n, radices) };
      if (!best || costOf(found) < costOf(best)) best = found;
      return;
    }
    if (best && radices.length >= costOf(best)) return;
    for (const r of RADICES[stepsOf(n)]) if (r <= most && left % r === 0) search(left / r, r, [...radices, r]);
  };
  if (n === 1) best = { radices: [1], lanes: 1 };
  else if (stepsOf(n) === 'twos' && n >= HELD * HELD) search(n / HELD, HELD, [HELD]);
  else search(n, HELD, []);
  // An odd radix first: its results then lie in different banks without free places.
  const { radices, lanes } = best!;
  best = { radices: [...radices.filter((r) => r % 2 === 1), ...radices.filter((r) => r % 2 === 0)], lanes };
  known.set(n, best);
  return best;
}
/** A byte each, first to last. */
export const wordOf = (radices: readonly number[]): number => radices.reduceRight((word, r) => word * 256 + r, 0);

/**
 * One place is left free after every 2 ** PAD elements of a row, where there is room and all distances are multiples
 * of that: of powers of two, whose first step is of 16 elements.
 */
const [PAD, NO_PAD] = [4, 31];
/** Bytes of shared memory that leave room for a block beside. */
const ROOM = 65536;
/** Threads of a block that has many rows. */
const FULL = 256;
const threadsOf = (n: number): number => 32 * ceilDiv(n, 32);

/**
 * How rows of n elements lie in shared memory, and the threads that transform them; undefined where there is no room.
 */
export function rowsHeld(n: number, count: number, dtype: Float, device: DeviceInfo) {
  const { radices, lanes } = stepsFor(n);
  const pair = pairBytes(dtype);
  const padded = (n + Math.floor(n / 2 ** PAD)) | 1;
  const together = clamp(Math.floor(FULL / lanes), 1, Math.max(1, ceilDiv(count, device.multiprocessors)));
  const room = Math.min(device.sharedPerBlockOptin, together > 1 ? ROOM : Infinity);
  const fits = stepsOf(n) === 'twos' && n >= HELD * HELD && together * padded * pair <= room;
  const [pad, pitch] = fits ? [PAD, padded] : [NO_PAD, together > 1 && (n | 1) * together * pair <= room ? n | 1 : n];
  const threads = threadsOf(lanes * together);
  if (together * pitch * pair > room || threads > (dtype === 'f32' ? LARGE : THREADS)) return undefined;
  const shape = { n, together, lanes, pad, pitch };
  return { radices, shape, threads, shared: together * pitch * pair, grid: ceilDiv(count, together), known: fits };
}
/** Neighbours that a block transforms together: as many as make whole sectors of memory. */
export function sidesHeld(n: number, side: number, dtype: Float) {
  const { radices, lanes } = stepsFor(n);
  const pair = pairBytes(dtype);
  let together = 16;
  while (together > 1 && (together * n * pair > ROOM || together * lanes > THREADS)) together /= 2;
  const shape = { n, side, together, lanes, radices: wordOf(radices) };
  return {
    radices,
    shape,
    threads: threadsOf(together * lanes),
    shared: together * n * pair,
    groups: ceilDiv(side, together),
  };
}
