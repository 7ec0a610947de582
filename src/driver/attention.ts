// The seam to libraries that have attention in one piece (cuDNN): plan a problem once, run it with addresses.
import type { Address, Stream } from './driver.js';

export type AttentionHalf = 'f16' | 'bf16';
/** Strides in elements of batch, head and row; the numbers of a row lie side by side. */
export type RowStrides = readonly [batch: number, head: number, row: number];
/** Tensors of a call. A forward pass reads the first three; a backward one all but the last three, which it writes. */
const ATTENTION_ROWS = ['q', 'k', 'v', 'out', 'dout', 'dq', 'dk', 'dv'] as const;
export type AttentionRows = (typeof ATTENTION_ROWS)[number];

/**
 * Attention of q (batch, heads, tq, dim) over k and v (batch, kvHeads, tk, dim). The last query stands at the last key;
 * one at position x sees keys x - left .. x + right, where -1 is no bound.
 */
export interface AttentionSpec {
  readonly kind: 'forward' | 'backward';
  readonly dtype: AttentionHalf;
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly tq: number;
  readonly tk: number;
  readonly dim: number;
  readonly scale: number;
  readonly left: number;
  readonly right: number;
  readonly strides: { readonly [R in AttentionRows]?: RowStrides };
  /** Keys in use by batch entry, and queries, as i32 in device memory: `keyCounts` and `queryCounts`. Forward only. */
  readonly counted: boolean;
  /**
   * Keys and values lie in pages of so many rows, `pages` of them, found through `pageTable`, i32 (batch, columns);
   * needs `counted`. Strides of k and v are those of pages. Forward only.
   */
  readonly paged?: { readonly rows: number; readonly pages: number; readonly columns: number };
  /** Whether the gradient of the queries is added up in one order, the same in every run. */
  readonly deterministic: boolean;
}
/** Where a call's tensors lie; lse is f32 (batch, heads, tq), dense: written forward, read backward. */
export type AttentionAddresses = { readonly [R in AttentionRows]?: Address } & {
  readonly lse: Address;
  readonly keyCounts?: Address;
  readonly queryCounts?: Address;
  readonly pageTable?: Address;
};

export interface AttentionPlan {
  readonly spec: AttentionSpec;
  /** Whether another thread is still making it: whoever asks for its ways waits. */
  readonly pending?: boolean;
  /** The library's ways to run it, best first by its own judgement; none where it turned out to have none. */
  readonly ways: readonly { readonly workspaceBytes: number; readonly description: string }[];
}

export interface AttentionLibrary {
  /**
   * Ways that a plan has at most: each is compiled, which takes a second or so. The first is nearly always the best.
   */
  most: number;
  /** Cached by the spec's values; a sentence where the library does not take it. `tell` hears what is passed over. */
  plan(spec: AttentionSpec, tell?: (line: string) => void): AttentionPlan | string;
  /** Enqueues one of the plan's ways, with as much workspace (aligned to 256 bytes) as it wants. */
  run(plan: AttentionPlan, way: number, at: AttentionAddresses, workspace: Address, stream: Stream): void;
}

/** The spec's values as one string, the key plans are kept under; every call makes one, which JSON is too slow for. */
export function attentionKey(s: AttentionSpec): string {
  const { strides, paged } = s;
  const sizes = `${s.batch},${s.heads},${s.kvHeads},${s.tq},${s.tk},${s.dim}`;
  const rules = `${s.scale},${s.left},${s.right},${s.counted},${s.deterministic}`;
  let key = `${s.kind},${s.dtype},${sizes},${rules}`;
  for (let i = 0; i < ATTENTION_ROWS.length; i++) {
    const row = strides[ATTENTION_ROWS[i]];
    key += row ? `;${row[0]},${row[1]},${row[2]}` : ';';
  }
  return paged ? `${key};${paged.rows},${paged.pages},${paged.columns}` : key;
}

/** What addresses are multiples of, in bytes, and strides, in elements. */
export const ATTENTION_ALIGNMENT = 16;
const STRIDE_UNIT = 8;

/** The rules that hold for every such library. */
export function checkAttention(s: AttentionSpec): true | string {
  const sizes = [s.batch, s.heads, s.kvHeads, s.tq, s.tk, s.dim];
  if (sizes.some((n) => !Number.isInteger(n) || n < 1)) return `sizes ${sizes.join(', ')}; each must be 1 or more`;
  if (s.heads % s.kvHeads !== 0) return `${s.heads} query heads over ${s.kvHeads} key heads`;
  if (s.dim % 8 !== 0 || s.dim > 256) return `head dimension ${s.dim}; multiples of 8 up to 256 are taken`;
  if (!(s.scale > 0)) return `scale ${s.scale}; it must be positive`;
  if ((s.left >= 0 || s.right >= 0) && s.tq > s.tk && !s.counted)
    return `${s.tq} queries over ${s.tk} keys with bounds: some would see none`;
  if ((s.counted || s.paged) && s.kind === 'backward') return 'counted and paged keys have no backward pass';
  if (s.paged && !s.counted) return 'paged keys are counted';
  if (s.paged && s.paged.columns * s.paged.rows !== s.tk)
    return `${s.paged.columns} pages of ${s.paged.rows} rows where keys are ${s.tk}`;
  const { batch, heads, kvHeads, tq, tk } = s;
  const queries: readonly string[] = ['q', 'out', 'dout', 'dq'];
  for (const name of ATTENTION_ROWS) {
    const st = s.strides[name];
    const wanted = name === 'out' || s.kind === 'backward' || 'qkv'.includes(name);
    if (!wanted) continue;
    if (!st) return `no strides of ${name}`;
    const page = s.paged && 'kv'.includes(name) ? s.paged : undefined;
    const counts = queries.includes(name) ? [batch, heads, tq] : [page?.pages ?? batch, kvHeads, page?.rows ?? tk];
    if (st.some((x, i) => counts[i] > 1 && (x < 1 || x % STRIDE_UNIT !== 0)))
      return `strides ${st.join(', ')} of ${name}; multiples of ${STRIDE_UNIT} are taken`;
    const span = st.reduce((sum, x, i) => sum + x * (counts[i] - 1), s.dim);
    if (span > 0x7fffffff) return `${name} spans ${span} elements, 2^31 or more`;
  }
  return true;
}
