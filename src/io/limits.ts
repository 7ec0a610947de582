// What a file may ask for: the rules against archives and views that claim to be far larger than they are.
import { FormatError } from '../base/errors.js';

/** Below this any growth is harmless. */
const FREE_BYTES = 64 * 2 ** 20;
/** Above it, at most this many bytes of memory for a byte of file. */
export const MAX_GROWTH = 100;

export function checkGrowth(where: string, bytes: number, stored: number, maxGrowth = MAX_GROWTH): void {
  if (bytes <= Math.max(FREE_BYTES, stored * maxGrowth)) return;
  throw new FormatError(
    `${where}: ${stored} bytes of file claim to be ${bytes} bytes of data; beyond ${FREE_BYTES} bytes at most ${maxGrowth} for 1 are believed`,
  );
}

/** The most dimensions of a tensor in any format; NumPy's and PyTorch's own limit. */
export const MAX_RANK = 64;
