// A token of each of a few sequences through products whose weights are read once for all of them:
// kernels/decode-few.hip.
import type { DeviceInfo } from '../../driver/driver.js';
import { CTYPE, KernelModule, Struct } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import { gateNumber } from '../generation.js';
import { type NormKind, normName, NORMS, normType } from './decode-tiles.js';
import { addressOf, ceilDiv, type Launch, launch, type Target } from './plan.js';

export const DECODE_FEW = new KernelModule('decode-few');
const TYPES = ['f16', 'bf16'] as const;
type FewType = (typeof TYPES)[number];
/** Vectors of a product, at most, and steps of 32 columns that a wave has. */
const VECTORS = 8;
const STEPS = [4, 8, 14] as const;
const WAVES = 16;
/** Tiles of sixteen rows in a set, at most. */
const MOST_TILES = 28;
/** Blocks that share rows, and slots of 2 KB in a wave's ring. */
const clusterOf = ({ arch }: Pick<Target, 'arch'>) =>
  arch === 'sim' ? { parts: 1, stages: 1 } : { parts: 2, stages: 5 };
/** Columns of a row, at most. */
const reach = (target: Pick<Target, 'arch'>, steps: number): number => 32 * WAVES * clusterOf(target).parts * steps;
const FEW_PRODUCT = new Struct('FewProduct', {
  ...{ x: 'pointer', norm: 'pointer', w: 'pointer', bias: 'pointer', residual: 'pointer', out: 'pointer' },
  ...{ act: 'i32', vectors: 'i32', n: 'i32', k: 'i32', tiles: 'i32', eps: 'float' },
} as const);
/** Targets with clusters of blocks, whose matrix units have operands lie as mma has them. */
const suits = (arch: string): boolean => arch === 'sim' || Number(/^(sm|compute)_(\d+)/.exec(arch)?.[2] ?? 0) >= 90;
const rows = DECODE_FEW.declare({
  each: { dtype: TYPES, norm: NORMS, steps: STEPS, kind: ['product', 'gate'] },
  symbol: ({ dtype, norm, steps, kind }) => `decode_few_${kind}_${dtype}_${steps}${normName(norm)}`,
  body: ({ dtype, norm, steps, kind }) => ({
    threads: { constant: 'FEW_THREADS', threads: 32 * WAVES },
    beside: 1,
    params: { p: FEW_PRODUCT },
    call: `decode_few_rows<${CTYPE[dtype]}, ${normType(dtype, norm)}, ${steps}, ${kind === 'gate'}>`,
  }),
  launchedOn: (_, arch) => suits(arch),
});

/** Bytes of a block's ring and sums, which the launch gives, and of what it has beside them. */
const sharedOf = (target: Pick<Target, 'arch'>, tiles: number): number =>
  WAVES * clusterOf(target).stages * 2048 + tiles * 64 * VECTORS;
const BESIDE_RING = 2 * WAVES * 64 * VECTORS + WAVES * 4 * VECTORS;

/** Whether a product of so many vectors with a matrix is one of these. */
export function fewSuits(target: DeviceInfo, { dtype, layout }: View, vectors: number): boolean {
  const k = layout.shape[1];
  const room = sharedOf(target, MOST_TILES) + BESIDE_RING <= target.sharedPerBlockOptin;
  const known = (TYPES as readonly string[]).includes(dtype) && target.warp === 32 && suits(target.arch) && room;
  return known && vectors <= VECTORS && layout.isContiguous && k % 8 === 0 && k <= reach(target, STEPS[2]);
}

export interface FewProduct {
  /** (sequences, values) and (rows, values). */
  readonly x: View;
  readonly weight: View;
  readonly out: View;
  readonly norm: { readonly kind: NormKind; readonly norm: number; readonly eps: number };
  readonly bias?: View;
  readonly residual?: View;
  /** A gate's: the weight holds gate over up. */
  readonly activation?: string;
}
export function fewLaunch(target: Target, dtype: FewType, vectors: number, p: FewProduct): Launch {
  const [all, k] = p.weight.layout.shape;
  const gate = p.activation !== undefined;
  const { parts } = clusterOf(target);
  const steps = STEPS.find((s) => k <= reach(target, s)) ?? STEPS[2];
  // As many sets as work at a time, or several times as many.
  const count = ceilDiv(all, 16);
  const tiles = Math.min(MOST_TILES, ceilDiv(count, Math.max(1, Math.floor(target.multiprocessors / parts))));
  const address = (v: View | undefined): number => (v ? addressOf(v) : 0);
  const { norm, kind: normKind, eps } = p.norm;
  const args = {
    ...{ x: addressOf(p.x), norm, eps, w: addressOf(p.weight), out: addressOf(p.out) },
    ...{ bias: address(p.bias), residual: address(p.residual), act: gateNumber(p.activation ?? 'silu') },
    ...{ vectors, n: gate ? all / 2 : all, k, tiles },
  };
  const variant = { dtype, norm: normKind, steps, kind: gate ? 'gate' : 'product' } as const;
  return launch(rows, variant, parts * ceilDiv(count, tiles), 32 * WAVES, { p: args }, sharedOf(target, tiles));
}
