// The kernels of attention, the struct they take, and which of them serves a problem: kernels/attention*.hip.
import { ArgumentError } from '../../base/errors.js';
import type { DeviceInfo } from '../../driver/driver.js';
import { CTYPE, type FieldValues, KernelModule, REAL_TYPES, Struct, typed } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import { hasMatrixUnits } from './matmul.js';
import { addressOf, at, ceilDiv, FAULT, type Launch, type Launches, launch, single } from './plan.js';

/** struct Attention of kernels/attention.h; strides in elements: batch, head, row. */
const FIELDS = {
  ...typed('pointer', 'q', 'k', 'v', 'out', 'lse', 'mask', 'slopes', 'sinks'),
  ...typed('pointer', 'qStarts', 'kStarts', 'lengths', 'pages'),
  ...typed('pointer', 'dout', 'delta', 'dq', 'dk', 'dv', 'partial', 'partialLse', 'fault'),
  qStrides: ['i64', 3],
  kStrides: ['i64', 3],
  vStrides: ['i64', 3],
  outStrides: ['i64', 3],
  doutStrides: ['i64', 3],
  dqStrides: ['i64', 3],
  dkStrides: ['i64', 3],
  dvStrides: ['i64', 3],
  lseStrides: ['i64', 2],
  maskStrides: ['i64', 4],
  scale: 'double',
  softcap: 'double',
  ...typed('i32', 'heads', 'kvHeads', 'tq', 'tk', 'dim', 'left', 'right'),
  /** 0 none, 1 u8 (nonzero is seen), 2 added, in the element type. */
  ...typed('i32', 'maskKind', 'pageRows', 'pageTable', 'splits', 'batch', 'qRows', 'kRows', 'pagesThere', 'unused'),
} as const;
const PROBLEM = new Struct('Attention', FIELDS);
/**
 * One problem. What is left out is 0 (null). A query at position x sees keys x-left .. x+right; -1 sets no bound,
 * causal is right = 0.
 */
export type AttentionCall = FieldValues<typeof FIELDS, View | typeof FAULT> & {
  readonly scale: number;
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly tq: number;
  readonly tk: number;
  readonly dim: number;
  readonly left: number;
  readonly right: number;
};
export type AttentionDType = (typeof REAL_TYPES)[number];
type Half = 'f16' | 'bf16';

// ---- kernels ----

export const ATTENTION = new KernelModule('attention');
export const ATTENTION_MATRIX = new KernelModule('attention-matrix');
export const ATTENTION_HOPPER = new KernelModule('attention-hopper', { needs: 'sm_90a' });
export const ATTENTION_DENSE_HOPPER = new KernelModule('attention-dense-hopper', { needs: 'sm_90a' });
export const ATTENTION_BACKWARD_HOPPER = new KernelModule('attention-backward-hopper', { needs: 'sm_90a' });
export const ATTENTION_BACKWARD = new KernelModule('attention-backward');
export const ATTENTION_BACKWARD_MATRIX = new KernelModule('attention-backward-matrix');
const params = { p: PROBLEM };
/** Large tiles want more shared memory than AMD's GPUs have; gfx950 has 160 KiB. */
const largeOn = (suffix: string, arch: string): boolean =>
  hasMatrixUnits({ arch }) && !(suffix.endsWith('_large') && arch.startsWith('gfx') && arch !== 'gfx950');
/** Four waves. */
const WAVES = { constant: 'ATTENTION_THREADS', threads: 256, byWaves: true } as const;
/** Head dimensions the kernels are made for; others are padded up. */
const DIMS = [64, 128, 256] as const;

const forward = ATTENTION.declare({
  each: { dtype: REAL_TYPES, dim: DIMS },
  symbol: ({ dtype, dim }) => `attention_${dtype}_${dim}`,
  body: ({ dtype, dim }) => ({ threads: 256, params, call: `attention_forward<${CTYPE[dtype]}, ${dim}>` }),
});
/**
 * Part of the keys a block, `heads` query heads of one key head together; 16-bit kernels have a bound of their own but
 * for eight heads.
 */
const split = ATTENTION.declare({
  each: { dtype: ['f32', 'f16', 'bf16'], dim: DIMS, heads: [1, 2, 4, 8] },
  symbol: ({ dtype, dim, heads }) => `attention_split_${dtype}_${dim}_${heads}`,
  body: ({ dtype, dim, heads }) => {
    const T = CTYPE[dtype];
    const ahead = {
      1: `sizeof(${T}) == 4 ? 4 : 8`,
      2: `sizeof(${T}) == 4 ? 4 : 8`,
      4: '4',
      8: `EIGHT_AHEAD<${T}, ${dim}>`,
    };
    return {
      threads: { constant: dtype === 'f32' || heads === 8 ? 'SPLIT_THREADS' : 'SPLIT_BOUND', threads: 128 },
      params,
      call: `attention_split<${T}, ${dim}, ${heads}, ${ahead[heads]}>`,
    };
  },
});
/** Keys and values in 8 bits: numbers of f8e4m3, or bytes of Q8_0's blocks. */
const STORED = { f8: 'fp8', q8: 'q8_byte' } as const;
export type Stored = keyof typeof STORED;
const splitStored = ATTENTION.declare({
  each: { stored: ['f8', 'q8'], dtype: ['f32', 'f16', 'bf16'], dim: DIMS, heads: [1, 2, 4, 8] },
  symbol: ({ stored, dtype, dim, heads }) => `attention_split_${stored}_${dtype}_${dim}_${heads}`,
  body: ({ stored, dtype, dim, heads }) => ({
    threads: { constant: 'SPLIT_THREADS', threads: 128 },
    params,
    call: `attention_split<${CTYPE[dtype]}, ${dim}, ${heads}, ${
      heads === 8 ? `EIGHT_AHEAD<${CTYPE[dtype]}, ${dim}>` : 4
    }, ${STORED[stored]}>`,
  }),
});
const combine = ATTENTION.forTypes(['f32', 'f16', 'bf16'], 'attention_combine', (T) => ({
  threads: { constant: 'COMBINE_THREADS', threads: 512 },
  params,
  call: `attention_combine<${T}>`,
}));
/** Tiles of the matrix kernels by name: rows of queries, shared memory, and template arguments after the type. */
const MATRIX = {
  '64': { dim: 64, rows: 128, shared: 55296, tile: '64, 2, 64, 2' },
  '128_large': { dim: 128, rows: 128, shared: 104448, tile: '128, 2, 64, 2' },
  '128': { dim: 128, rows: 64, shared: 52224, tile: '128, 1, 32, 2' },
  '256_large': { dim: 256, rows: 64, shared: 101376, tile: '256, 1, 32, 2' },
  '256': { dim: 256, rows: 64, shared: 50688, tile: '256, 1, 16, 1' },
} as const;
/** Larger tiles first. */
const MATRIX_TILES = ['64', '128_large', '128', '256_large', '256'] as const;
const byMatrixUnits = ATTENTION_MATRIX.declare({
  each: { dtype: ['f16', 'bf16'], tile: MATRIX_TILES },
  symbol: ({ dtype, tile }) => `attention_matrix_${dtype}_${tile}`,
  body: ({ dtype, tile }) => ({
    threads: WAVES,
    params,
    call: `attention_matrix<${CTYPE[dtype]}, ${MATRIX[tile].tile}>`,
  }),
  launchedOn: ({ tile }, arch) => largeOn(tile, arch),
});
/** What happens to scores beside their scale; `biased` by alibi, a mask or both. */
const CHANGES = { '': '0', capped: 'CAPPED', biased: 'BIASED', capped_biased: 'CAPPED | BIASED' } as const;
const HOPPER_CHANGES = ['', 'capped', 'biased', 'capped_biased'] as const;
const HOPPER_DIMS = [64, 128] as const;
/** Two computing warpgroups of 64 rows each, and one that copies. */
const HOPPER_ROWS = 128;
const HOPPER_THREADS = { constant: 'HOPPER_BOUND', threads: 384 } as const;
const onHopper = ATTENTION_HOPPER.declare({
  each: { dtype: ['f16', 'bf16'], dim: HOPPER_DIMS, changes: HOPPER_CHANGES },
  symbol: ({ dtype, dim, changes }) => `attention_hopper_${dtype}_${dim}${changes && `_${changes}`}`,
  body: ({ dtype, dim, changes }) => ({
    threads: HOPPER_THREADS,
    params,
    call: `attention_hopper${dim === 64 ? '' : '_joined'}<${CTYPE[dtype]}, ${dim}, ${CHANGES[changes]}>`,
  }),
});
/** Tiles of dense problems by name: computing warpgroups of 64 queries each, and whether they take turns. */
const DENSE = {
  '64': { dim: 64, teams: 3, threads: { constant: 'HOPPER_THREE_BOUND', threads: 512 }, turns: true },
  '64_short': { dim: 64, teams: 2, threads: HOPPER_THREADS, turns: false },
  '128': { dim: 128, teams: 2, threads: HOPPER_THREADS, turns: false },
} as const;
/** Bytes of a block's tensor maps: of queries, keys and values. */
const DENSE_MAPS = 3 * 128;
const denseOnHopper = ATTENTION_DENSE_HOPPER.declare({
  each: { dtype: ['f16', 'bf16'], tile: ['64', '64_short', '128'] },
  symbol: ({ dtype, tile }) => `attention_dense_hopper_${dtype}_${tile}`,
  body: ({ dtype, tile }) => {
    const { dim, teams, threads, turns } = DENSE[tile];
    return {
      threads,
      params: { p: PROBLEM, maps: 'u8*' },
      call: `attention_dense<${CTYPE[dtype]}, ${dim}, ${teams}, ${turns}>`,
    };
  },
});
const delta = ATTENTION_BACKWARD.forTypes(REAL_TYPES, 'attention_delta', (T) => ({
  threads: 256,
  params,
  call: `attention_delta<${T}>`,
}));
const deltaPacks = ATTENTION_BACKWARD.forTypes(['f16', 'bf16'], 'attention_delta_packs', (T) => ({
  threads: 256,
  params,
  call: `attention_delta_packs<${T}>`,
}));
const backward = ATTENTION_BACKWARD.declare({
  each: { side: ['query', 'key'], dtype: REAL_TYPES, dim: DIMS },
  symbol: ({ side, dtype, dim }) => `attention_backward_${side}_${dtype}_${dim}`,
  body: ({ side, dtype, dim }) => ({
    threads: 256,
    params,
    call: `attention_backward_${side}<${CTYPE[dtype]}, ${dim}>`,
  }),
});
/** `plain`: scores are scaled and nothing else. */
const BACKWARD = {
  '64': { dim: 64, plain: true, shared: 36864, tile: '64, 1, 32, 2' },
  '128_large': { dim: 128, plain: true, shared: 69632, tile: '128, 1, 32, 2' },
  '128': { dim: 128, plain: true, shared: 52224, tile: '128, 1, 32, 1' },
  '64_any': { dim: 64, plain: false, shared: 27648, tile: '64, 1, 16, 2' },
  '128_any': { dim: 128, plain: false, shared: 43520, tile: '128, 1, 16, 1' },
} as const;
const BACKWARD_TILES = ['64', '128_large', '128', '64_any', '128_any'] as const;
/** Rows of a tile. */
const BACKWARD_ROWS = 64;
const backwardByMatrixUnits = ATTENTION_BACKWARD_MATRIX.declare({
  each: { side: ['query', 'key'], dtype: ['f16', 'bf16'], tile: BACKWARD_TILES },
  symbol: ({ side, dtype, tile }) => `attention_backward_matrix_${side}_${dtype}_${tile}`,
  body: ({ side, dtype, tile }) => ({
    threads: WAVES,
    params,
    call: `attention_backward_matrix<${CTYPE[dtype]}, ${BACKWARD[tile].tile}, ${side === 'key'}, ${BACKWARD[tile].plain}>`,
  }),
  launchedOn: ({ tile }, arch) => largeOn(tile, arch),
});
const backwardOnHopper = ATTENTION_BACKWARD_HOPPER.declare({
  each: { side: ['query', 'key'], dtype: ['f16', 'bf16'], dim: HOPPER_DIMS, changes: HOPPER_CHANGES },
  symbol: ({ side, dtype, dim, changes }) =>
    `attention_backward_hopper_${side}_${dtype}_${dim}${changes && `_${changes}`}`,
  body: ({ side, dtype, dim, changes }) => ({
    threads: HOPPER_THREADS,
    params,
    call: `attention_backward_hopper<${CTYPE[dtype]}, ${dim}, ${side === 'key'}, ${CHANGES[changes]}>`,
  }),
});

// ---- the choice ----

/** The smallest head dimension the kernels are made for that holds one. */
function padded(dim: number): (typeof DIMS)[number] {
  const found = DIMS.find((d) => dim <= d);
  if (!found) throw new ArgumentError(`attention: head dimension ${dim}; at most 256 is supported`);
  return found;
}
const placeOf = (p: AttentionCall['q']): number =>
  p === undefined || typeof p === 'number' ? (p ?? 0) : 'layout' in p ? addressOf(p) : 0;
const multiples = (of: number, ...strides: readonly (readonly number[] | undefined)[]): boolean =>
  strides.every((s) => (s ?? []).every((x) => x % of === 0));
/** Rows that 16-byte copies can read: whole multiples of 8 numbers everywhere. */
const copies16 = (c: AttentionCall): boolean =>
  c.dim % 8 === 0 &&
  multiples(8, c.qStrides, c.kStrides, c.vStrides) &&
  [c.q, c.k, c.v].every((p) => placeOf(p) % 16 === 0);
const onlyScaled = (c: AttentionCall): boolean => changesOf(c) === '';
function changesOf(c: AttentionCall): keyof typeof CHANGES {
  const biased = c.slopes || c.maskKind;
  return c.softcap ? (biased ? 'capped_biased' : 'capped') : biased ? 'biased' : '';
}

/** Results whose numbers can be written two at a time. */
const pairsOf = (c: AttentionCall, ...names: readonly ('out' | 'dq' | 'dk' | 'dv')[]): boolean =>
  names.every((name) => multiples(2, c[`${name}Strides`]) && placeOf(c[name]) % 4 === 0);
const hopperDim = (c: AttentionCall, { arch }: DeviceInfo): (typeof HOPPER_DIMS)[number] | undefined =>
  arch === 'sm_90' ? HOPPER_DIMS.find((d) => d === c.dim) : undefined;

/** Strides as tensor maps take them: of what is there once any will do, as long as it is not 0. */
const mapped = (c: AttentionCall, name: 'q' | 'k' | 'v'): readonly number[] => {
  const counts = name === 'q' ? [c.batch, c.heads, c.tq] : [c.batch, c.kvHeads, c.tk];
  return (c[`${name}Strides`] ?? []).map((s, i) => (counts[i] === 1 ? c.dim : s));
};
/** Only scaled, every row at a place of its own, and results that can be written 16 bytes at a time. */
const isDense = (c: AttentionCall): boolean =>
  onlyScaled(c) &&
  !(c.qStarts || c.kStarts || c.lengths || c.pages) &&
  c.tk > 0 &&
  (['q', 'k', 'v'] as const).every((name) => mapped(c, name).every((s) => s > 0)) &&
  multiples(8, c.outStrides) &&
  placeOf(c.out) % 16 === 0;

/** Rows of queries that the busiest block takes, by tiles of so many, in pairs where there are more than blocks. */
function rowsOfBlock(c: AttentionCall, rows: number, { multiprocessors }: DeviceInfo): number {
  const tiles = ceilDiv(c.tq, rows);
  const pair = tiles * c.heads * c.batch > multiprocessors ? 2 : 1;
  return ceilDiv(ceilDiv(tiles, pair) * c.heads * c.batch, multiprocessors) * pair * (c.tq / tiles);
}
/** Scores of a block of heads of 64, below which maps take longer to make than whole tiles save. */
const WORTH_MAPS = 1 << 18;
/** Tiles of 192 queries are a tenth quicker, but their blocks may end later. */
function denseTile(c: AttentionCall, dim: (typeof HOPPER_DIMS)[number], device: DeviceInfo) {
  if (dim === 128) return '128';
  const causal = c.right === 0;
  const short = rowsOfBlock(c, 128, device);
  if (short * c.tk < WORTH_MAPS * (causal ? 2 : 1)) return undefined;
  return c.tq <= (causal ? 1024 : 256) || rowsOfBlock(c, 192, device) > 1.1 * short ? '64_short' : '64';
}

/** The forward pass of a problem on a device. */
export function forwardLaunches(c: AttentionCall, dtype: AttentionDType, device: DeviceInfo): Launches {
  const dim = hopperDim(c, device);
  const small = (dtype === 'f16' || dtype === 'bf16') && c.scale > 0 && copies16(c);
  const tile = small && dim && device.tensorMaps && isDense(c) ? denseTile(c, dim, device) : undefined;
  if (!small || !tile) return single(forwardLaunch(c, dtype, device));
  const { teams, threads } = DENSE[tile];
  const blocks = Math.min(device.multiprocessors, ceilDiv(c.tq, 64 * teams) * c.heads * c.batch);
  const shared = 1024 + 2 * c.dim * (2 * 64 * teams + 512);
  const [qStrides, kStrides, vStrides] = (['q', 'k', 'v'] as const).map((name) => mapped(c, name));
  const args = { p: { ...c, qStrides, kStrides, vStrides }, maps: at('scratch') };
  return {
    launches: [launch(denseOnHopper, { dtype, tile }, blocks, threads.threads, args, shared)],
    scratch: DENSE_MAPS * blocks,
  };
}

/** The forward kernel of a problem that need not be dense. */
export function forwardLaunch(c: AttentionCall, dtype: AttentionDType, device: DeviceInfo): Launch {
  const args = { p: c };
  const dim = padded(c.dim);
  // The matrix kernels take the largest score before scaling, which needs a positive scale.
  const small = (dtype === 'f16' || dtype === 'bf16') && c.scale > 0 && copies16(c);
  const ofHopper = small && pairsOf(c, 'out') && hopperDim(c, device);
  if (ofHopper) {
    const blocks = Math.min(device.multiprocessors, ceilDiv(c.tq, HOPPER_ROWS) * c.heads * c.batch);
    const variant = { dtype, dim: ofHopper, changes: changesOf(c) };
    const shared = 1024 + 2 * c.dim * (2 * HOPPER_ROWS + 512) + (c.maskKind ? 2 * HOPPER_ROWS * 128 : 0);
    return launch(onHopper, variant, blocks, HOPPER_THREADS.threads, args, shared);
  }
  const tile = MATRIX_TILES.find((t) => MATRIX[t].dim === dim && MATRIX[t].shared <= device.sharedPerBlockOptin);
  if (small && tile && hasMatrixUnits(device)) {
    const { rows, shared } = MATRIX[tile];
    const grid = [ceilDiv(c.tq, rows), c.heads, c.batch];
    return launch(byMatrixUnits, { dtype: dtype as Half, tile }, grid, 4 * device.warp, args, shared);
  }
  const grid = [ceilDiv(c.tq, dtype === 'f64' ? 32 : 64), c.heads, c.batch];
  return launch(forward, { dtype, dim }, grid, 256, args);
}

/** Query heads a block of the split kernel takes together: those of one key head, up to 8. */
export const together = (heads: number, kvHeads: number): 1 | 2 | 4 | 8 =>
  ([8, 4, 2] as const).find((g) => (heads / kvHeads) % g === 0) ?? 1;

/** How many splits fill a device with a few blocks each. */
export function splitsFor(c: AttentionCall, device: DeviceInfo): number {
  const blocks = (c.heads / together(c.heads, c.kvHeads)) * c.batch * c.tq;
  return Math.max(1, Math.min(ceilDiv(c.tk, 128), ceilDiv(device.multiprocessors * 8, blocks)));
}

/**
 * The pair for decoding: partial is [batch, heads, tq, splits, dim] and partialLse [batch, heads, tq, splits], both
 * float.
 */
export function splitLaunches(
  c: AttentionCall,
  dtype: Exclude<AttentionDType, 'f64'>,
  stored?: Stored,
): readonly Launch[] {
  const heads = together(c.heads, c.kvHeads);
  const grid = [c.splits ?? 1, c.heads / heads, c.batch * c.tq];
  const variant = { dtype, dim: padded(c.dim), heads };
  return [
    stored
      ? launch(splitStored, { stored, ...variant }, grid, 128, { p: c })
      : launch(split, variant, grid, 128, { p: c }),
    launch(combine, { dtype }, [c.tq, c.heads, c.batch], 512, { p: c }),
  ];
}

/** The sum of out times dout over the head dimension, which the backward pass needs. */
export function deltaLaunch(c: AttentionCall, dtype: AttentionDType): Launch {
  const packed =
    c.dim % 8 === 0 && multiples(8, c.outStrides, c.doutStrides) && [c.out, c.dout].every((p) => placeOf(p) % 16 === 0);
  if ((dtype === 'f16' || dtype === 'bf16') && packed)
    return launch(deltaPacks, { dtype }, [ceilDiv(c.tq, 32), c.heads, c.batch], 256, { p: c });
  return launch(delta, { dtype }, [ceilDiv(c.tq, 8), c.heads, c.batch], 256, { p: c });
}

/** The gradient of the queries, then those of keys and values; delta is there. */
export function backwardLaunches(c: AttentionCall, dtype: AttentionDType, device: DeviceInfo): readonly Launch[] {
  const dim = padded(c.dim);
  const plain = onlyScaled(c);
  const tile = BACKWARD_TILES.find(
    (t) => BACKWARD[t].dim === dim && BACKWARD[t].plain === plain && BACKWARD[t].shared <= device.sharedPerBlockOptin,
  );
  const even = multiples(8, c.doutStrides) && placeOf(c.dout) % 16 === 0;
  const half = (dtype === 'f16' || dtype === 'bf16') && copies16(c) && even ? dtype : undefined;
  const ofHopper = half && pairsOf(c, 'dq', 'dk', 'dv') && hopperDim(c, device);
  const on = (side: 'query' | 'key', count: number, heads: number): Launch => {
    if (ofHopper) {
      const grid = [ceilDiv(count, HOPPER_ROWS), heads, c.batch];
      const variant = { side, dtype: half, dim: ofHopper, changes: changesOf(c) };
      const shared = 1024 + 4 * c.dim * (HOPPER_ROWS + 3 * 64) + 1536 + (c.maskKind ? 3 * 2 * HOPPER_ROWS * 64 : 0);
      return launch(backwardOnHopper, variant, grid, HOPPER_THREADS.threads, { p: c }, shared);
    }
    if (half && tile && hasMatrixUnits(device)) {
      const grid = [ceilDiv(count, BACKWARD_ROWS), heads, c.batch];
      const variant = { side, dtype: half, tile };
      return launch(backwardByMatrixUnits, variant, grid, 4 * device.warp, { p: c }, BACKWARD[tile].shared);
    }
    const grid = [ceilDiv(count, dtype === 'f64' ? 32 : 64), heads, c.batch];
    return launch(backward, { side, dtype, dim }, grid, 256, { p: c });
  };
  return [on('query', c.tq, c.heads), on('key', c.tk, c.kvHeads)];
}
