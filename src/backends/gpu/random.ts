// Random numbers from a seed and an offset, the same on every device: kernels/random.hip.
import { CTYPE, KernelModule, REAL_TYPES } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { type NormalParams, type UniformParams, uniformRange } from '../../ops/random.js';
import { at, ceilDiv, clamp, type FamilyPlan, launch, packOf, single } from './plan.js';

export const RANDOM = new KernelModule('random');
const DTYPES = [...REAL_TYPES, 'f8e4m3'] as const;
const STREAM = { n: 'u64', seed: 'u64', offset: 'u64', fed: 'const u64*' } as const;
const uniform = RANDOM.declare({
  each: { dtype: DTYPES },
  symbol: ({ dtype }) => `rand_uniform_${dtype}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: { ...STREAM, lo: 'double', span: 'double', bottom: 'double', top: 'double', out: `${CTYPE[dtype]}*` },
    call: `uniform<${CTYPE[dtype]}>`,
  }),
});
const normal = RANDOM.declare({
  each: { dtype: DTYPES },
  symbol: ({ dtype }) => `rand_normal_${dtype}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: { ...STREAM, mean: 'double', std: 'double', out: `${CTYPE[dtype]}*` },
    call: `normal<${CTYPE[dtype]}>`,
  }),
});

export const planRandom: FamilyPlan<RowOf<'random'>, UniformParams | NormalParams> = (p, row, [fed], [out], params) => {
  const dtype = out.dtype as (typeof DTYPES)[number];
  const n = out.layout.size;
  // A thread of one fills 16 bytes, a block of the other a tile (NORMAL_TILE).
  const tile = row.kernel.distribution === 'uniform' ? 256 * packOf(dtype) : 1024;
  const grid = clamp(ceilDiv(n, tile), 1, 65536);
  const stream = { n, seed: params.seed, offset: params.offset, fed: at('fed'), out: at('out') };
  if (row.kernel.distribution === 'uniform') {
    const { lo, up } = params as UniformParams;
    const { bottom, top } = uniformRange(dtype, lo, up);
    p.run(single(launch(uniform, { dtype }, grid, 256, { ...stream, lo, span: up - lo, bottom, top })), { out, fed });
  } else {
    const { mean, std } = params as NormalParams;
    p.run(single(launch(normal, { dtype }, grid, 256, { ...stream, mean, std })), { out, fed });
  }
};
