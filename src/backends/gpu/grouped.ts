// Many rows times the matrices of the experts that they have chosen: sorted by expert, then tiles of rows of one expert
// through the matrix units, all experts in one launch. kernels/grouped.h.
import { CTYPE, REAL_TYPES, Struct, typed } from '../../kernels/declare.js';
import { GEMM, GEMM_HOPPER, hasMatrixUnits } from './matmul.js';
import { type Launch, ceilDiv, launch, type Target } from './plan.js';
import type { View } from '../backend.js';

const GROUPED = new Struct('Grouped', {
  ...typed('pointer', 'x', 'w', 'out', 'order', 'tiles'),
  ...typed('i64', 'share', 'experts', 'n', 'k'),
});
const byProducts = GEMM.forTypes(REAL_TYPES, 'grouped_fma', (T) => ({
  threads: 256,
  params: { p: GROUPED },
  call: `grouped_fma<${T}>`,
}));
const SMALL = ['f16', 'bf16'] as const;
const byCopies = GEMM.declare({
  each: { dtype: SMALL },
  symbol: ({ dtype }) => `grouped_async_${dtype}`,
  body: ({ dtype }) => ({
    threads: { constant: 'SMALL_THREADS', threads: 256, byWaves: true },
    params: { p: GROUPED },
    call: `grouped_async<${CTYPE[dtype]}>`,
  }),
  launchedOn: (_, arch) => hasMatrixUnits({ arch }),
});
const onHopper = GEMM_HOPPER.forTypes(SMALL, 'grouped_hopper', (T) => ({
  threads: 384,
  params: { p: GROUPED },
  call: `grouped_hopper<${T}>`,
}));

export interface GroupedProduct {
  readonly x: View;
  readonly w: View;
  readonly out: View;
  readonly order: View;
  readonly tiles: View;
  /** Rows of results that read the same row of x. */
  readonly share: number;
  readonly experts: number;
  readonly n: number;
  readonly k: number;
}
type Way = 'hopper' | 'copies' | 'products';
/**
 * The kernel that serves a product, and how many rows its tiles have; `aligned`: rows begin at multiples of 16 bytes.
 */
export function groupedWay(dtype: View['dtype'], aligned: boolean, target: Target): { way: Way; height: number } {
  if ((dtype === 'f16' || dtype === 'bf16') && aligned && hasMatrixUnits(target))
    return { way: target.arch === 'sm_90' ? 'hopper' : 'copies', height: 128 };
  return { way: 'products', height: dtype === 'f64' ? 64 : 128 };
}
/** `most`: tiles there is room for. */
export function groupedLaunch(p: GroupedProduct, way: Way, most: number, target: Target): Launch {
  const dtype = p.x.dtype as (typeof REAL_TYPES)[number];
  const blocks = (width: number): number => most * ceilDiv(p.n, width);
  if (way === 'products') return launch(byProducts, { dtype }, blocks(dtype === 'f64' ? 64 : 128), 256, { p });
  const small = dtype as (typeof SMALL)[number];
  if (way === 'hopper') return launch(onHopper, { dtype: small }, blocks(256), 384, { p }, 1024 + 4 * (48 << 10));
  const nvidia = /^(sm|compute)_/.test(target.arch);
  const [stages, waves] = nvidia ? [4, 8] : [2, 4];
  return launch(byCopies, { dtype: small }, blocks(128), waves * target.warp, { p }, stages * 2 * 128 * (32 + 8) * 2);
}
