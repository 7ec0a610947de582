// What a launch is before it meets a device: symbol, grid, block, shared memory and arguments, with buffers by name.
import { DTYPE, type DType } from '../base/dtype.js';

/** A place in a named buffer, in bytes; null pointers are the number 0. */
export interface Pointer {
  readonly buffer: string;
  readonly offset: number;
}
/** Numbers for scalars, bytes for structs. */
export type LaunchArg = number | Pointer | Uint8Array;
export type Triple = readonly [x: number, y: number, z: number];
export interface Launch {
  /** kernels/MODULE.hip. */
  readonly module: string;
  readonly symbol: string;
  readonly grid: Triple;
  readonly block: Triple;
  /** Bytes of dynamic shared memory. */
  readonly shared: number;
  readonly args: readonly LaunchArg[];
  /** The kernel waits by itself for the launch before (begin_in_turn), so that it may begin early. */
  readonly early?: boolean;
}
/** Launches in order, and bytes of the buffer 'scratch' they share; it needs no initial contents. */
export interface Plan {
  readonly launches: readonly Launch[];
  readonly scratch: number;
}
/** What a choice of kernel depends on: fields of the driver's DeviceInfo. */
export interface Target {
  readonly warp: number;
  readonly multiprocessors: number;
  readonly arch: string;
}

export const at = (buffer: string, offset = 0): Pointer => ({ buffer, offset });
export const launch = (
  module: string,
  symbol: string,
  grid: readonly number[],
  block: number | readonly number[],
  args: readonly LaunchArg[],
  shared = 0,
): Launch => {
  const three = ([x, y = 1, z = 1]: readonly number[]): Triple => [x, y, z];
  return { module, symbol, grid: three(grid), block: three(typeof block === 'number' ? [block] : block), shared, args };
};
export const single = (l: Launch): Plan => ({ launches: [l], scratch: 0 });

/** A dtype as Candle's symbols spell it. */
export const suffixOf = (dtype: DType): string => (dtype === 'f8e4m3' ? 'f8_e4m3' : dtype);
export const packOf = (dtype: DType): number => 16 / DTYPE[dtype].bytes;
export const ceilDiv = (a: number, b: number): number => Math.ceil(a / b);
/** The smallest power of two that is not below n. */
export const powerAbove = (n: number): number => 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, n))));
export const clamp = (x: number, low: number, high: number): number => Math.max(low, Math.min(high, x));

/** Blocks for a grid-stride loop over n elements: enough to fill any device, few enough to stay within every limit. */
export const strideGrid = (n: number, block = 256): number => clamp(ceilDiv(n, block), 1, 2 ** 20);

/** A struct's bytes from its members. */
export function structBytes(
  members: readonly { readonly i32?: readonly number[]; readonly i64?: readonly number[] }[],
): Uint8Array {
  const bytes = new Uint8Array(512);
  const view = new DataView(bytes.buffer);
  let end = 0;
  for (const m of members) {
    for (const v of m.i32 ?? []) {
      view.setInt32(end, v, true);
      end += 4;
    }
    if (m.i64) end = Math.ceil(end / 8) * 8;
    for (const v of m.i64 ?? []) {
      view.setBigInt64(end, BigInt(v), true);
      end += 8;
    }
  }
  return bytes.slice(0, end);
}

/** How rows are dealt to threads: `lanes` threads a row, several rows a block while a row needs no more than a wave. */
export function rowGrid(rows: number, lanes: number): { grid: number; block: number } {
  const block = lanes <= 32 ? 256 : lanes;
  return { grid: clamp(ceilDiv(rows, block / lanes), 1, 2 ** 22), block };
}

/**
 * Vectors of a row that a thread holds beside others: GPUs of gfx900 to gfx909 have half of others' registers, and AMD's newer compilers
 * keep rows of 16-bit floats and of their gradients as floats, for which all registers are too few.
 */
export const heldVectors = ({ arch }: Pick<Target, 'arch'>, gradients = false): 4 | 8 =>
  /^gfx90\d$/.test(arch) || (gradients && arch.startsWith('gfx')) ? 4 : 8;

/** Rows held in registers: the symbol's ending (16-byte accesses or not; p: groups of lanes, or b: a block a row; vectors a thread, at most `held`) and the threads a row. */
export function rowVariant(
  dtype: DType,
  cols: number,
  aligned: boolean,
  held: 4 | 8 = 8,
): { ending: string; lanes: number } {
  const pack = packOf(dtype);
  if (!aligned || cols % pack !== 0) {
    const lanes = powerAbove(ceilDiv(cols, 4));
    return lanes <= 512 ? { ending: lanes > 32 ? 'v1b4' : 'v1p4', lanes } : { ending: 'v1p0', lanes: 1024 };
  }
  const vectors = cols / pack;
  if (vectors <= 1) return { ending: 'vp1', lanes: 1 };
  const four = powerAbove(ceilDiv(vectors, 4));
  if (four <= 256) return { ending: four > 32 ? 'vb4' : 'vp4', lanes: four };
  const eight = powerAbove(ceilDiv(vectors, 8));
  return held === 8 && eight <= 512 ? { ending: 'vp8', lanes: eight } : { ending: 'vp0', lanes: 1024 };
}

/**
 * Long rows that pass through shared memory on their way (kernels/stream.h), where copies run beside arithmetic and three rows have room:
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
