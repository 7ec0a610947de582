// What the launches of a decoding step share: how rows are tiled, and norms by name.
import { bytesOf, type DType } from '../../base/dtype.js';
import { CTYPE } from '../../kernels/declare.js';
import type { DecodeType } from '../generation.js';

export const BLOCK = 256;
export const DECODE_THREADS = { constant: 'DECODE_THREADS', threads: BLOCK } as const;
/**
 * Rows a block makes by words of each under way a thread: many short rows, or much of a few long ones; and blocks that
 * share a multiprocessor.
 */
export const TILES = { '8x1': { rows: 8, words: 1, beside: 4 }, '4x4': { rows: 4, words: 4, beside: 2 } } as const;
export const TILE_NAMES = ['8x1', '4x4'] as const;
export type Tile = keyof typeof TILES;
/** Words a thread has of a row that is short. */
const SHORT = 2;
/** Threads and tile for rows of k: no more threads than words, and as many words for each. */
export function tileFor(
  dtype: DType,
  k: number,
  warp: number,
): { readonly tile: Tile; readonly rows: number; readonly threads: number } {
  const words = (k * bytesOf(dtype)) / 16;
  const tile = words <= SHORT * BLOCK ? '8x1' : '4x4';
  return { tile, rows: TILES[tile].rows, threads: threadsFor(words, TILES[tile].words, warp) };
}
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
