// The configurations that cudnn-attention-check tries.
import type { AttentionHalf, AttentionSpec, RowStrides } from '../src/driver/attention.js';

export interface AttentionCase {
  readonly name: string;
  readonly kind: AttentionSpec['kind'];
  readonly dtype: AttentionHalf;
  readonly layout: 'bhtd' | 'bthd';
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly tq: number;
  readonly tk: number;
  readonly dim: number;
  readonly left: number;
  readonly right: number;
  /** Keys in use by batch entry. */
  readonly counts?: readonly number[];
  /** Rows of a page. */
  readonly page?: number;
  readonly deterministic: boolean;
}
type Sizes = readonly [batch: number, heads: number, kvHeads: number, tq: number, tk: number, dim: number];

const make = (what: string, sizes: Sizes, more: Partial<AttentionCase> = {}): AttentionCase => {
  const [batch, heads, kvHeads, tq, tk, dim] = sizes;
  const c: AttentionCase = {
    name: '',
    kind: 'forward',
    dtype: 'bf16',
    layout: 'bhtd',
    batch,
    heads,
    kvHeads,
    tq,
    tk,
    dim,
    left: -1,
    right: -1,
    deterministic: true,
    ...more,
  };
  const size = `${batch}x${heads === kvHeads ? heads : `${heads}/${kvHeads}`}x${tq === tk ? tq : `${tq}/${tk}`}x${dim}`;
  const order = c.kind === 'backward' ? (c.deterministic ? ' in one order' : ' in any order') : '';
  return { ...c, name: `${c.kind}${order} ${what} ${size} ${c.dtype}${c.layout === 'bthd' ? ' bthd' : ''}` };
};

/** Small ones first: they say what is right; the rest say what is fast. */
export function attentionCases(quick: boolean): AttentionCase[] {
  const causal = { right: 0 } as const;
  const small: readonly (readonly [string, Sizes, Partial<AttentionCase>])[] = [
    ['full', [2, 4, 4, 128, 128, 64], {}],
    ['causal', [2, 4, 4, 128, 128, 64], causal],
    ['causal', [2, 4, 4, 256, 256, 128], { ...causal, dtype: 'f16' }],
    ['causal', [2, 4, 2, 200, 200, 128], { ...causal, layout: 'bthd' }],
    ['odd', [3, 5, 5, 77, 77, 96], causal],
    ['fewer queries', [2, 4, 4, 37, 300, 128], causal],
    ['more queries', [2, 4, 4, 300, 37, 128], {}],
    ['window', [2, 4, 4, 300, 300, 64], { left: 50, right: 0 }],
    ['window to both sides', [2, 4, 4, 300, 300, 64], { left: 50, right: 20 }],
    ['left bound alone', [2, 4, 4, 300, 300, 64], { left: 50 }],
    ['window, fewer queries', [2, 4, 4, 100, 300, 64], { left: 50, right: 0 }],
    ['wide', [1, 2, 2, 130, 130, 192], causal],
    ['widest', [1, 2, 2, 130, 130, 256], causal],
  ];
  const gradients = (what: string, sizes: Sizes, more: Partial<AttentionCase>): AttentionCase[] =>
    [true, false].map((deterministic) => make(what, sizes, { ...more, kind: 'backward', deterministic }));
  const counted: AttentionCase[] = [
    make('counted', [3, 4, 2, 64, 512, 128], { counts: [512, 300, 65] }),
    make('counted causal', [3, 4, 2, 64, 512, 128], { ...causal, counts: [512, 300, 65] }),
    make('counted causal window', [3, 4, 2, 64, 512, 128], { left: 100, right: 0, counts: [512, 300, 65] }),
    make('queries that see nothing', [3, 4, 2, 64, 512, 128], { ...causal, counts: [512, 30, 0] }),
    make('paged causal', [3, 4, 2, 64, 512, 128], { ...causal, counts: [512, 300, 65], page: 16 }),
    make('paged, one query', [3, 8, 2, 1, 512, 128], { ...causal, counts: [512, 300, 65], page: 16 }),
  ];
  const shapes: readonly (readonly [Sizes, Partial<AttentionCase>])[] = [
    [[4, 16, 16, 2048, 2048, 64], causal],
    [[4, 16, 16, 2048, 2048, 64], {}],
    [[16, 16, 16, 1024, 1024, 64], causal],
    [[16, 16, 16, 1024, 1024, 64], {}],
    [[4, 32, 32, 4096, 4096, 64], causal],
    [[4, 16, 16, 4096, 4096, 96], causal],
    [[4, 32, 32, 4096, 4096, 128], causal],
    [[4, 32, 32, 4096, 4096, 128], {}],
    [[4, 32, 8, 4096, 4096, 128], causal],
    [[4, 16, 16, 4096, 4096, 192], causal],
    [[4, 16, 16, 4096, 4096, 256], causal],
    [[4, 16, 16, 4096, 4096, 256], {}],
    [[4, 32, 32, 4096, 4096, 128], { left: 1024, right: 0 }],
    [[4, 32, 8, 4096, 4096, 128], { ...causal, layout: 'bthd' }],
    [[16, 12, 12, 1024, 1024, 64], { ...causal, layout: 'bthd' }],
  ];
  const name = (m: Partial<AttentionCase>): string =>
    m.left !== undefined ? 'window' : m.right === 0 ? 'causal' : 'full';
  const large = quick ? [] : shapes;
  const prefill: AttentionCase[] = quick
    ? []
    : [
        make('prefill onto a cache', [1, 32, 8, 512, 8704, 64], causal),
        make('prefill onto counted keys', [1, 32, 8, 512, 16384, 64], { ...causal, counts: [8704] }),
        make('prefill onto pages', [1, 32, 8, 512, 16384, 64], { ...causal, counts: [8704], page: 16 }),
      ];
  return [
    ...small.map(([what, sizes, more]) => make(what, sizes, more)),
    ...small.flatMap(([what, sizes, more]) => gradients(what, sizes, more)),
    ...counted,
    ...large.map(([sizes, more]) => make(name(more), sizes, more)),
    ...prefill,
    ...large.flatMap(([sizes, more]) => gradients(name(more), sizes, more)),
  ];
}

/** A few that tell the most in the least time. */
const BRIEF = [
  /^forward (full|causal) 2x4x128x64/,
  /^forward causal 2x4.2x200x128 bf16 bthd/,
  /^forward (window to both sides|widest|fewer queries) /,
  /^backward in (one|any) order (causal 2x4.2x200x128 bf16 bthd|odd|window 2x4x300)/,
  /^forward (counted causal|queries that see nothing|paged causal) 3x/,
  /^forward causal (4x16x2048x64|4x32x4096x128|4x16x4096x256) /,
  /^backward in (one|any) order causal (4x16x2048x64|4x32x4096x128) /,
  /^backward in any order causal 4x16x4096x256 /,
];
export const isBrief = ({ name }: AttentionCase): boolean => BRIEF.some((r) => r.test(name));

/** Strides of (batch, heads, rows, dim) in the layout of the case. */
export const strideOf = (c: AttentionCase, heads: number, rows: number): RowStrides =>
  c.layout === 'bhtd' ? [heads * rows * c.dim, rows * c.dim, c.dim] : [heads * rows * c.dim, c.dim, heads * c.dim];

export function specOf(c: AttentionCase): AttentionSpec {
  const queries = strideOf(c, c.heads, c.tq);
  const keys = strideOf(c, c.kvHeads, c.page ?? c.tk);
  const { kind, dtype, batch, heads, kvHeads, tq, tk, dim, left, right, deterministic } = c;
  const pages = c.page && { rows: c.page, pages: batch * (tk / c.page), columns: tk / c.page };
  return {
    kind,
    dtype,
    batch,
    heads,
    kvHeads,
    tq,
    tk,
    dim,
    left,
    right,
    scale: 1 / Math.sqrt(dim),
    strides: { q: queries, k: keys, v: keys, out: queries, dout: queries, dq: queries, dk: keys, dv: keys },
    counted: c.counts !== undefined,
    ...(pages && { paged: pages }),
    deterministic,
  };
}
