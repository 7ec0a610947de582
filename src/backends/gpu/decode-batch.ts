// Launches of kernels/decode-batch.hip: a token of each of a few sequences, weights read once for all of them.
import type { DType } from '../../base/dtype.js';
import { CTYPE, KernelModule } from '../../kernels/declare.js';
import type { Backend, View } from '../backend.js';
import { BLOCK, gateNumber, NORMS, normName, normType } from './decode-tiles.js';
import { GpuBackend } from './gpu.js';
import { hasMatrixUnits } from './matmul.js';
import { addressOf, type Launch, launch } from './plan.js';

export const DECODE_BATCH = new KernelModule('decode-batch');
/** Vectors that a product takes at a time, by its kernel, and results of a block. */
const BATCHES = [8, 16] as const;
const BATCH_RESULTS = { product: 32, gate: 16 } as const;
/** Where waves have 32 lanes and units for products of 16 x 16 that share them out as kernels/decode-batch.hip does. */
const suits = (arch: string): boolean => hasMatrixUnits({ arch }) && !arch.startsWith('gfx');
const TYPES = ['f16', 'bf16'] as const;
type Type = (typeof TYPES)[number];
const embedding = DECODE_BATCH.declare({
  each: { dtype: TYPES },
  symbol: ({ dtype }) => `decode_batch_embed_${dtype}`,
  launchedOn: (_, arch) => suits(arch),
  body: ({ dtype: d }) => ({
    threads: { constant: 'BATCH_THREADS', threads: BLOCK },
    params: { table: `const ${CTYPE[d]}*`, tokens: 'const i32*', out: `${CTYPE[d]}*`, factor: 'float', n: 'i32' },
    call: `decode_batch_embed<${CTYPE[d]}>`,
  }),
});
const rows = DECODE_BATCH.declare({
  each: { dtype: TYPES, norm: NORMS, vectors: BATCHES, kind: ['product', 'gate'] },
  symbol: ({ dtype, norm, vectors, kind }) => `decode_batch_${kind}_${dtype}_${vectors}${normName(norm)}`,
  launchedOn: (_, arch) => suits(arch),
  body: ({ dtype, norm, vectors, kind }) => {
    const T = CTYPE[dtype];
    return {
      threads: { constant: 'BATCH_THREADS', threads: BLOCK },
      params: {
        x: `const ${T}*`,
        norm: `const ${normType(dtype, norm)}*`,
        eps: 'float',
        w: `const ${T}*`,
        bias: `const ${T}*`,
        residual: `const ${T}*`,
        out: `${T}*`,
        act: 'i32',
        vectors: 'i32',
        n: 'i32',
        k: 'i32',
      },
      call: `decode_batch_rows<${T}, ${normType(dtype, norm)}, ${vectors}, ${kind === 'gate'}>`,
    };
  },
});

/** Whether steps of so many sequences are made of these launches; weights are of the same dtype then. */
export function servesBatch(backend: Backend, dtype: DType, sequences: number): boolean {
  if (!(backend instanceof GpuBackend) || sequences > BATCHES[1]) return false;
  const { warp, arch } = backend.context.device.info;
  return warp === 32 && suits(arch) && (TYPES as readonly DType[]).includes(dtype);
}

/** Rows of the table by tokens, times a factor. */
export function batchEmbed(
  dtype: DType,
  sequences: number,
  {
    table,
    tokens,
    out,
    factor,
  }: { readonly table: View; readonly tokens: View; readonly out: View; readonly factor: number },
): Launch {
  const n = out.layout.size / sequences;
  const args = { table: addressOf(table), tokens: addressOf(tokens), out: addressOf(out), factor, n };
  return launch(embedding, { dtype: dtype as Type }, [Math.ceil(n / BLOCK), sequences], BLOCK, args);
}

export interface BatchProduct {
  /** (sequences, values) and (rows, values). */
  readonly x: View;
  readonly weight: View;
  readonly out: View;
  /** Where the norm's weight is, 0 for none, and what it is kept in. */
  readonly norm: number;
  readonly kind: (typeof NORMS)[number];
  readonly eps: number;
  readonly bias?: View | undefined;
  readonly residual?: View | undefined;
  /** A gate's: the weight holds gate over up. */
  readonly activation?: string | undefined;
}
export function batchProduct(dtype: DType, sequences: number, p: BatchProduct): Launch {
  const kind = p.activation === undefined ? 'product' : 'gate';
  const [all, k] = p.weight.layout.shape;
  const n = kind === 'gate' ? all / 2 : all;
  const vectors = sequences <= BATCHES[0] ? BATCHES[0] : BATCHES[1];
  const address = (v: View | undefined): number => (v ? addressOf(v) : 0);
  const args = {
    ...{ x: addressOf(p.x), norm: p.norm, eps: p.eps, w: addressOf(p.weight), out: addressOf(p.out) },
    ...{ bias: address(p.bias), residual: address(p.residual), act: gateNumber(p.activation ?? 'silu') },
    ...{ vectors: sequences, n, k },
  };
  const grid = Math.ceil(n / BATCH_RESULTS[kind]);
  return launch(rows, { dtype: dtype as Type, norm: p.kind, vectors, kind }, grid, BLOCK, args);
}
