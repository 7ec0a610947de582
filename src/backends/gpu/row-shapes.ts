// How rows are dealt to threads: what reductions, softmax, norms and sorts of contiguous rows share.
import type { DType } from '../../base/dtype.js';
import { CTYPE } from '../../kernels/declare.js';
import { ceilDiv, clamp, packOf, powerAbove, type Target } from './plan.js';

/** `lanes` threads a row, several rows a block while a row needs no more than a wave. */
export function rowGrid(rows: number, lanes: number): { grid: number; block: number } {
  const block = lanes <= 32 ? 256 : lanes;
  return { grid: clamp(ceilDiv(rows, block / lanes), 1, 2 ** 22), block };
}

/**
 * Vectors of a row that a thread holds beside others: GPUs of gfx900 to gfx909 have half of others' registers, and
 * AMD's newer compilers keep rows of 16-bit floats and of their gradients as floats, for which all registers are too
 * few.
 */
export const heldVectors = ({ arch }: Pick<Target, 'arch'>, gradients = false): 4 | 8 =>
  /^gfx90\d$/.test(arch) || (gradients && arch.startsWith('gfx')) ? 4 : 8;

/**
 * Kernels that hold a row in registers, by name: elements are read as packs of 16 bytes or one by one; a thread holds
 * so many of them or, at 0, walks over the row in a loop; a group of lanes shares a row, or a whole block does.
 * `threads` is the largest block.
 */
export const ROW_WIDTHS = {
  singles_loop: { packed: false, count: 0, block: true, threads: 1024 },
  singles4: { packed: false, count: 4, block: false, threads: 256 },
  block_singles4: { packed: false, count: 4, block: true, threads: 512 },
  packs_loop: { packed: true, count: 0, block: true, threads: 1024 },
  one_pack: { packed: true, count: 1, block: false, threads: 256 },
  packs4: { packed: true, count: 4, block: false, threads: 256 },
  block_packs4: { packed: true, count: 4, block: true, threads: 512 },
  packs8: { packed: true, count: 8, block: true, threads: 512 },
} as const;
export type RowWidth = keyof typeof ROW_WIDTHS;
export const WIDTH_NAMES = Object.keys(ROW_WIDTHS) as readonly RowWidth[];
/** The template arguments of a width: elements of a vector, vectors a thread holds, whether a block shares the row. */
export function widthArguments(width: RowWidth, dtype: DType): string {
  const { packed, count, block } = ROW_WIDTHS[width];
  return `${packed ? `pack_size<${CTYPE[dtype]}>` : 1}, ${count}, ${block}`;
}

/** The kernel for rows of so many columns, and the threads a row; `aligned`: operands are 16-byte aligned. */
export function rowWidth(
  dtype: DType,
  cols: number,
  aligned: boolean,
  held: 4 | 8 = 8,
): { width: RowWidth; lanes: number } {
  const pack = packOf(dtype);
  if (!aligned || cols % pack !== 0) {
    const lanes = powerAbove(ceilDiv(cols, 4));
    return lanes <= 512
      ? { width: lanes > 32 ? 'block_singles4' : 'singles4', lanes }
      : { width: 'singles_loop', lanes: 1024 };
  }
  const vectors = cols / pack;
  if (vectors <= 1) return { width: 'one_pack', lanes: 1 };
  const four = powerAbove(ceilDiv(vectors, 4));
  if (four <= 256) return { width: four > 32 ? 'block_packs4' : 'packs4', lanes: four };
  const eight = powerAbove(ceilDiv(vectors, 8));
  return held === 8 && eight <= 512 ? { width: 'packs8', lanes: eight } : { width: 'packs_loop', lanes: 1024 };
}

/**
 * Long rows that pass through shared memory on their way (kernels/stream.h), where copies run beside arithmetic and
 * three rows have room:
 * threads, blocks and shared memory. Undefined where rows are few or do not fit.
 */
export function rowStream(
  dtype: DType,
  rows: number,
  cols: number,
  target: Target,
): { block: number; grid: number; shared: number } | undefined {
  // Hopper and the data-centre GPUs after it: 227 KiB a block.
  if (!/^sm_(90|100|103)$/.test(target.arch) || !['f32', 'f16', 'bf16'].includes(dtype)) return undefined;
  const vectors = dtype === 'f32' ? 8 : 4;
  const block = Math.max(128, powerAbove(ceilDiv(cols / packOf(dtype), vectors)));
  const shared = 3 * vectors * block * 16;
  // Registers let 512 threads be resident.
  const grid = target.multiprocessors * Math.min(512 / block, Math.floor((226 << 10) / (shared + 2048)));
  return block <= 512 && rows >= 4 * grid ? { block, grid, shared } : undefined;
}
