// How attention kernels are called: the struct they take by value, and which of them serves a problem, with its grid.
import { ArgumentError } from '../base/errors.js';
import type { DeviceInfo } from '../driver/driver.js';
import { hasMatrixUnits } from './launch-matrix.js';

const POINTERS = [
  'q',
  'k',
  'v',
  'out',
  'lse',
  'mask',
  'slopes',
  'sinks',
  'qStarts',
  'kStarts',
  'lengths',
  'pages',
  'dout',
  'delta',
  'dq',
  'dk',
  'dv',
  'partial',
  'partialLse',
  'fault',
] as const;
/** Batch, head, row. */
const STRIDES = [
  'qStrides',
  'kStrides',
  'vStrides',
  'outStrides',
  'doutStrides',
  'dqStrides',
  'dkStrides',
  'dvStrides',
] as const;
const SCALARS = [
  'heads',
  'kvHeads',
  'tq',
  'tk',
  'dim',
  'left',
  'right',
  'maskKind',
  'pageRows',
  'pageTable',
  'splits',
  'batch',
  'qRows',
  'kRows',
  'pagesThere',
  'unused',
] as const;
type Stride = readonly [number, number, number];

/** The struct Attention of kernels/attention.h; device addresses and strides in elements. What is left out is 0 (null), bounds are -1. */
export type AttentionCall = { readonly [P in (typeof POINTERS)[number]]?: number } & {
  readonly [S in (typeof STRIDES)[number]]?: Stride;
} & {
  readonly lseStrides?: readonly [number, number];
  readonly maskStrides?: readonly [number, number, number, number];
  readonly scale: number;
  readonly softcap?: number;
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly tq: number;
  readonly tk: number;
  readonly dim: number;
  /** A query at position x sees keys x-left .. x+right; causal is right = 0. */
  readonly left?: number;
  readonly right?: number;
  /** 0 none, 1 u8 (nonzero is seen), 2 added, in the element type. */
  readonly maskKind?: 0 | 1 | 2;
  readonly pageRows?: number;
  readonly pageTable?: number;
  readonly splits?: number;
  /** Rows of packed queries and keys, and pages: what starts and page numbers may reach. */
  readonly qRows?: number;
  readonly kRows?: number;
  readonly pagesThere?: number;
  readonly unused?: 0;
};

export const ATTENTION_BYTES = POINTERS.length * 8 + STRIDES.length * 24 + 2 * 8 + 4 * 8 + 2 * 8 + SCALARS.length * 4;

/** The struct's bytes, 8-byte aligned. */
export function packAttention(call: AttentionCall): Uint8Array {
  const view = new DataView(new ArrayBuffer(ATTENTION_BYTES));
  let at = 0;
  const put64 = (value: number): void => {
    view.setUint32(at, value, true);
    view.setInt32(at + 4, Math.floor(value / 0x100000000), true);
    at += 8;
  };
  for (const name of POINTERS) put64(call[name] ?? 0);
  for (const name of STRIDES) for (let i = 0; i < 3; i++) put64(call[name]?.[i] ?? 0);
  for (let i = 0; i < 2; i++) put64(call.lseStrides?.[i] ?? 0);
  for (let i = 0; i < 4; i++) put64(call.maskStrides?.[i] ?? 0);
  for (const value of [call.scale, call.softcap ?? 0]) {
    view.setFloat64(at, value, true);
    at += 8;
  }
  for (const name of SCALARS) {
    view.setInt32(at, call[name] ?? (name === 'left' || name === 'right' ? -1 : 0), true);
    at += 4;
  }
  return new Uint8Array(view.buffer);
}

export type AttentionDType = 'f32' | 'f64' | 'f16' | 'bf16';
export interface AttentionLaunch {
  readonly module: string;
  readonly symbol: string;
  readonly grid: readonly [number, number, number];
  readonly block: number;
  readonly shared: number;
}

const divUp = (n: number, by: number): number => Math.ceil(n / by);
/** Head dimensions the kernels are made for; others are padded up. */
function padded(dim: number): 64 | 128 | 256 {
  if (dim > 256) throw new ArgumentError(`attention: head dimension ${dim}; at most 256 is supported`);
  return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}
const MATRIX = [
  { dim: 64, suffix: '64', rows: 128, shared: 55296 },
  { dim: 128, suffix: '128_large', rows: 128, shared: 104448 },
  { dim: 128, suffix: '128', rows: 64, shared: 52224 },
  { dim: 256, suffix: '256_large', rows: 64, shared: 101376 },
  { dim: 256, suffix: '256', rows: 64, shared: 50688 },
] as const;

/** Computing warpgroups of a block by head dimension, 64 query rows each. */
const HOPPER = { 64: { teams: 2, rows: 128 }, 128: { teams: 2, rows: 128 } } as const;

/** Rows that 16-byte copies can read: whole multiples of 8 numbers everywhere. */
function copies16(c: AttentionCall): boolean {
  const even = (s?: Stride): boolean => (s ?? []).every((x) => x % 8 === 0);
  return (
    c.dim % 8 === 0 &&
    even(c.qStrides) &&
    even(c.kStrides) &&
    even(c.vStrides) &&
    [c.q, c.k, c.v].every((p) => (p ?? 0) % 16 === 0)
  );
}

const onlyScaled = (c: AttentionCall): boolean => !c.softcap && !c.slopes && !c.maskKind;

/** The forward kernel of a problem on a device. attention-hopper has to be compiled for sm_90a. */
export function forwardLaunch(c: AttentionCall, dtype: AttentionDType, device: DeviceInfo): AttentionLaunch {
  const dim = padded(c.dim);
  // The matrix kernels take the largest score before scaling, which needs a positive scale.
  const small = (dtype === 'f16' || dtype === 'bf16') && c.scale > 0;
  const outEven = (c.outStrides ?? []).every((x) => x % 2 === 0) && (c.out ?? 0) % 4 === 0;
  if (small && copies16(c) && onlyScaled(c) && outEven && device.arch === 'sm_90' && (c.dim === 64 || c.dim === 128)) {
    const { teams, rows } = HOPPER[c.dim];
    return {
      module: 'attention-hopper',
      symbol: `attention_hopper_${dtype}_${c.dim}`,
      grid: [Math.min(device.multiprocessors, divUp(c.tq, rows) * c.heads * c.batch), 1, 1],
      block: 128 * (1 + teams),
      shared: 1024 + 2 * c.dim * (2 * rows + 512),
    };
  }
  const unit = MATRIX.find((m) => m.dim === dim && m.shared <= device.sharedPerBlockOptin);
  if (small && copies16(c) && unit && hasMatrixUnits(device)) {
    return {
      module: 'attention-matrix',
      symbol: `attention_matrix_${dtype}_${unit.suffix}`,
      grid: [divUp(c.tq, unit.rows), c.heads, c.batch],
      block: 4 * device.warp,
      shared: unit.shared,
    };
  }
  const rows = dtype === 'f64' ? 32 : 64;
  return {
    module: 'attention',
    symbol: `attention_${dtype}_${dim}`,
    grid: [divUp(c.tq, rows), c.heads, c.batch],
    block: 256,
    shared: 0,
  };
}

/** Query heads a block of the split kernel takes together: those of one key head, up to 8. */
const together = (c: AttentionCall): number => [8, 4, 2].find((g) => (c.heads / c.kvHeads) % g === 0) ?? 1;

/** How many splits fill a device with a few blocks each. */
export function splitsFor(c: AttentionCall, device: DeviceInfo): number {
  const blocks = (c.heads / together(c)) * c.batch * c.tq;
  return Math.max(1, Math.min(divUp(c.tk, 128), divUp(device.multiprocessors * 8, blocks)));
}

/** The pair for decoding: partial is [batch, heads, tq, splits, dim] and partialLse [batch, heads, tq, splits], both float. */
export function splitLaunches(
  c: AttentionCall,
  dtype: Exclude<AttentionDType, 'f64'>,
): readonly [AttentionLaunch, AttentionLaunch] {
  const g = together(c);
  return [
    {
      module: 'attention',
      symbol: `attention_split_${dtype}_${padded(c.dim)}_${g}`,
      grid: [c.splits ?? 1, c.heads / g, c.batch * c.tq],
      block: 128,
      shared: 0,
    },
    {
      module: 'attention',
      symbol: `attention_combine_${dtype}`,
      grid: [c.tq, c.heads, c.batch],
      block: 512,
      shared: 0,
    },
  ];
}

const BACKWARD_MATRIX = [
  { dim: 64, plain: true, suffix: '64', rows: 64, shared: 36864 },
  { dim: 128, plain: true, suffix: '128_large', rows: 64, shared: 69632 },
  { dim: 128, plain: true, suffix: '128', rows: 64, shared: 52224 },
  { dim: 64, plain: false, suffix: '64_any', rows: 64, shared: 27648 },
  { dim: 128, plain: false, suffix: '128_any', rows: 64, shared: 43520 },
] as const;

/** Delta, then the gradient of the queries, then those of keys and values. */
export function backwardLaunches(
  c: AttentionCall,
  dtype: AttentionDType,
  device: DeviceInfo,
): readonly AttentionLaunch[] {
  const rows = dtype === 'f64' ? 32 : 64;
  const dim = padded(c.dim);
  const make = (symbol: string, grid: AttentionLaunch['grid']): AttentionLaunch => ({
    module: 'attention-backward',
    symbol,
    grid,
    block: 256,
    shared: 0,
  });
  const delta = make(`attention_delta_${dtype}`, [divUp(c.tq, 8), c.heads, c.batch]);
  const unit = BACKWARD_MATRIX.find(
    (m) => m.dim === dim && m.plain === onlyScaled(c) && m.shared <= device.sharedPerBlockOptin,
  );
  const even = (c.doutStrides ?? []).every((x) => x % 8 === 0) && (c.dout ?? 0) % 16 === 0;
  if ((dtype === 'f16' || dtype === 'bf16') && unit && copies16(c) && even && hasMatrixUnits(device)) {
    const on = (side: string, count: number, heads: number): AttentionLaunch => ({
      module: 'attention-backward-matrix',
      symbol: `attention_backward_matrix_${side}_${dtype}_${unit.suffix}`,
      grid: [divUp(count, unit.rows), heads, c.batch],
      block: 4 * device.warp,
      shared: unit.shared,
    });
    return [delta, on('query', c.tq, c.heads), on('key', c.tk, c.kvHeads)];
  }
  return [
    delta,
    make(`attention_backward_query_${dtype}_${dim}`, [divUp(c.tq, rows), c.heads, c.batch]),
    make(`attention_backward_key_${dtype}_${dim}`, [divUp(c.tk, rows), c.kvHeads, c.batch]),
  ];
}
