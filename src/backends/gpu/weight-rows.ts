// One row of activations by weights in ggml's blocks that come as whole rows: kernels/weight-rows.h.
import { ggmlType } from '../../base/blocks/types.js';
import type { DType } from '../../base/dtype.js';
import type { DeviceInfo } from '../../driver/driver.js';
import { CTYPE } from '../../kernels/declare.js';
import type { BlockType } from '../../ops/quantized.js';
import { ceilDiv } from './plan.js';

/** Types whose values a lane can own 128 of. */
export const ROW_TYPES = ['Q6_K'] as const satisfies readonly BlockType[];
export type RowType = (typeof ROW_TYPES)[number];
/** Of a block: warps that multiply, and threads, with a warp more that asks for rows. */
const WARPS = 16;
export const ROW_THREADS = 32 * (WARPS + 1);
/** Of a lane: its values, and bytes of its activations in shared memory. Slots of a ring at most. */
const LANE = { values: 128, record: 144 } as const;
const MOST_SLOTS = 64;
/** Slots on their way at a time. */
const UNDER_WAY = 4;
/** Bytes of shared memory that kernels declare by themselves, rounded up. */
const OWN = 1280;

/** Targets where memory copies whole rows by itself; the simulation reads them where they lie. */
export const hasLongCopies = (arch: string): boolean =>
  arch === 'sim' || Number(/^(?:sm|compute)_(\d+)/.exec(arch)?.[1] ?? 0) >= 90;

/** Parameters and body of a kernel. */
export const rowsBody = (type: RowType, dtype: DType, norm: DType) => {
  const [T, N] = [CTYPE[dtype], CTYPE[norm]];
  return {
    threads: ROW_THREADS,
    params: {
      x: `const ${T}*`,
      norm: `const ${N}*`,
      eps: 'float',
      w: 'const u8*',
      bias: `const ${T}*`,
      residual: `const ${T}*`,
      out: `${T}*`,
      best: 'u64*',
      rows: 'i64',
      rowBytes: 'i64',
      n: 'i64',
      slots: 'i32',
      each: 'i32',
      underWay: 'i32',
    },
    call: `weight_rows<${type}>`,
    given: 'x, norm, eps, w, bias, residual, out, best, rows, rowBytes, n, RowRing{slots, each, underWay}',
  } as const;
};

/** The block for so many rows of n values; undefined where rows do not suit, or are so few that warps have none. */
export function rowsBlock(device: DeviceInfo, type: BlockType, rows: number, n: number) {
  const { block, bytes } = ggmlType(type);
  const rowBytes = (n / block) * bytes;
  const slices = ceilDiv(n, 32 * LANE.values);
  const many = rows >= WARPS * device.multiprocessors;
  const suits = many && n % LANE.values === 0 && n >= 8 * LANE.values && rowBytes % 16 === 0 && slices <= WARPS;
  if (!(ROW_TYPES as readonly BlockType[]).includes(type) || !suits) return undefined;
  if (!hasLongCopies(device.arch) || device.warp !== 32) return undefined;
  const teams = Math.floor(WARPS / slices);
  const blocks = Math.min(rows, device.multiprocessors);
  const mine = ceilDiv(rows, blocks);
  const fixed = 16 + (n / LANE.values) * LANE.record + 4 * mine * slices;
  const room = device.sharedPerBlockOptin - OWN - fixed;
  // Copies of 7 to 14 KB; teams that follow one another have the rows of a slot.
  let each = 1;
  while (teams % (2 * each) === 0 && 2 * each * rowBytes <= 14336) each *= 2;
  const slot = each * rowBytes;
  const all = ceilDiv(mine, each);
  // A team finds its rows in the same slots in each turn of the ring.
  const turn = teams / each;
  const fit = Math.min(MOST_SLOTS, Math.floor(room / slot));
  const slots = all <= fit ? all : Math.floor(fit / turn) * turn;
  if (slots < 1) return undefined;
  const threads = device.arch === 'sim' ? 32 * WARPS : ROW_THREADS;
  return { blocks, threads, shared: fixed + slots * slot, slots, each, underWay: Math.min(slots, UNDER_WAY) };
}
