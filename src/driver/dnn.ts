// The seam to convolution libraries (cuDNN, MIOpen): plan a convolution once per shape, run it with addresses.
import type { AttentionLibrary } from './attention.js';
import type { Address, Stream } from './driver.js';

export const CONV_DTYPES = ['f16', 'bf16', 'f32', 'f64'] as const;
export type ConvDType = (typeof CONV_DTYPES)[number];

/** What addresses given to `tune` and `run` are multiples of. */
export const CONV_ALIGNMENT = 16;

/**
 * x [n, c, h, w] and y [n, k, oh, ow] convolved with w [k, c / groups, r, s], all contiguous NCHW. A 1-D convolution
 * has h = r = 1.
 */
export interface ConvSpec {
  /**
   * 'forward' gives y; 'backward-data' gives x from y and w (also convTranspose's forward); 'backward-filter' gives w
   * from x and y.
   */
  readonly kind: 'forward' | 'backward-data' | 'backward-filter';
  readonly dtype: ConvDType;
  readonly x: readonly [n: number, c: number, h: number, w: number];
  readonly filter: readonly [k: number, cPerGroup: number, r: number, s: number];
  readonly y: readonly [n: number, k: number, oh: number, ow: number];
  readonly padding: readonly [number, number];
  readonly stride: readonly [number, number];
  readonly dilation: readonly [number, number];
  readonly groups: number;
  /** Lets f32 inputs be rounded to TF32 for the matrix units. */
  readonly tf32: boolean;
}

export interface ConvPlan {
  readonly spec: ConvSpec;
  readonly workspaceBytes: number;
  readonly description: string;
}

export interface Dnn {
  readonly name: string;
  /** Attention in one piece, where the library has it. */
  readonly attention?: AttentionLibrary | undefined;
  /** true, or the sentence that says why this convolution cannot be run; an answer of true makes the plan. */
  supports(spec: ConvSpec): true | string;
  /** Cached by the spec's values. Throws UnsupportedError with the sentence of `supports`. */
  plan(spec: ConvSpec): ConvPlan;
  /**
   * Measures every algorithm with these buffers and keeps the fastest for the plan; what is in the written one is lost.
   */
  tune(plan: ConvPlan, x: Address, filter: Address, y: Address, stream: Stream): void;
  /** Enqueues: two of the three are read, the third, by the spec's kind, is written. */
  run(plan: ConvPlan, x: Address, filter: Address, y: Address, stream: Stream): void;
  dispose(): void;
}

export const convKey = (s: ConvSpec): string =>
  [s.kind, s.dtype, s.x, s.filter, s.y, s.padding, s.stride, s.dilation, s.groups, s.tf32 ? 1 : 0].join(';');

/** Operands in the order in which a call takes them, each with its descriptor first. */
export const withAddresses = <K extends 'x' | 'filter' | 'y'>(
  order: readonly K[],
  descriptors: Readonly<Record<K, number>>,
  data: Readonly<Record<K, Address>>,
): (readonly [number, Address])[] => order.map((o) => [descriptors[o], data[o]]);

const outSize = (size: number, filter: number, padding: number, stride: number, dilation: number): number =>
  Math.floor((size + 2 * padding - dilation * (filter - 1) - 1) / stride) + 1;

/** The rules of shape that hold for every library. */
export function checkConv(s: ConvSpec): true | string {
  const sizes = [...s.x, ...s.filter, ...s.y];
  if (sizes.some((d) => !Number.isInteger(d) || d < 1 || d > 0x7fffffff))
    return `sizes ${sizes.join(', ')}; each must be 1 to 2^31-1`;
  if ([s.x, s.filter, s.y].some((dims) => dims.reduce((a, b) => a * b, 1) > 0x7fffffff))
    return 'a tensor has 2^31 elements or more, which these libraries do not take';
  if (s.x[0] !== s.y[0]) return `batch of x is ${s.x[0]}, of y ${s.y[0]}`;
  if (s.x[1] !== s.filter[1] * s.groups)
    return `x has ${s.x[1]} channels, the filter ${s.filter[1]} in each of ${s.groups} groups`;
  if (s.y[1] !== s.filter[0] || s.filter[0] % s.groups !== 0)
    return `y has ${s.y[1]} channels, the filter ${s.filter[0]} in ${s.groups} groups`;
  for (const i of [0, 1] as const) {
    const want = outSize(s.x[2 + i], s.filter[2 + i], s.padding[i], s.stride[i], s.dilation[i]);
    if (s.y[2 + i] !== want) return `y is ${s.y[2 + i]} along spatial dimension ${i}, the formula gives ${want}`;
  }
  return true;
}
