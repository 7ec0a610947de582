// What the launches of a decoding step share: how rows are tiled, and norms by name.
import { bytesOf, type DType } from '../../base/dtype.js';
import { CTYPE } from '../../kernels/declare.js';
import type { DecodeType } from '../generation.js';

export const BLOCK = 256;
export const DECODE_THREADS = { constant: 'DECODE_THREADS', threads: BLOCK } as const;
/**
 * Rows a block makes by words of each under way a thread, and blocks that share a multiprocessor. Long rows in several
 * rounds of many small blocks read faster than more of each row at once by few.
 */
export const TILE = { name: '8x1', rows: 8, words: 1, beside: 4 } as const;
/** Threads for rows of k: no more than words, and as many words for each. */
export const rowThreads = (dtype: DType, k: number, warp: number): number =>
  threadsFor((k * bytesOf(dtype)) / 16, TILE.words, warp);
/** Threads that share out `words`, `each` of them under way a thread, in as few rounds as can be. */
export function threadsFor(words: number, each: number, warp: number): number {
  const rounds = Math.ceil(words / (BLOCK * each));
  return Math.ceil(words / (rounds * each) / warp) * warp;
}

/** What norms are kept in: the type of vectors, or floats. */
export const NORMS = ['own', 'f32'] as const;
export type NormKind = (typeof NORMS)[number];
export const normType = (dtype: DecodeType, norm: NormKind): string => CTYPE[norm === 'own' ? dtype : 'f32'];
export const normName = (norm: NormKind): string => (norm === 'own' ? '' : '_f32_norm');
export const wanted = ({ dtype, norm }: { readonly dtype: string; readonly norm: string }): boolean =>
  norm === 'own' || dtype !== 'f32';
