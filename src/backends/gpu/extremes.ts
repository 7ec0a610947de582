// The largest or smallest of what goes to each place: kernels/extremes.hip.
import { bytesOf, kernelDType } from '../../base/dtype.js';
import { sameShape, sizeOf } from '../../base/shape.js';
import { CTYPE, INT_TYPES, KernelModule, typed } from '../../kernels/declare.js';
import { type Ids, type Plan, VALUE_TYPES, WALK, without } from './index-kinds.js';
import { at, ceilDiv, FAULT, launch, permuted, places, strideGrid, viewOf } from './plan.js';

export const EXTREMES = new KernelModule('extremes');
const FLAGS = { most: 'u32', self: 'u32' } as const;
const held = EXTREMES.declare({
  each: { ids: INT_TYPES, dtype: VALUE_TYPES },
  symbol: ({ ids, dtype }) => `extreme_held_${ids}_${dtype}`,
  body: ({ ids, dtype }) => ({
    threads: { constant: 'EXTREME_THREADS', threads: 512 },
    params: {
      ...{ ids: `const ${CTYPE[ids]}*`, x: `const ${CTYPE[dtype]}*`, src: `const ${CTYPE[dtype]}*` },
      ...{ dst: `${CTYPE[dtype]}*`, fault: 'u32*' },
      ...{ ...typed('u64', 'lanes', 'count', 'ids_lane', 'ids_step', 'dst_dim'), ...FLAGS },
    },
    call: 'extreme_held',
  }),
});
const MARKS = { named: 'u8*', spoilt: 'u32*' } as const;
const INFO = { info: 'const u64*', rank: 'u32' } as const;
const begin = EXTREMES.forTypes(VALUE_TYPES, 'extreme_begin', (T) => ({
  threads: 256,
  params: {
    ...{ dst: `const ${T}*`, keys: `raised_t<${T}>*`, ...MARKS, ...INFO },
    ...{ ...typed('u64', 'lanes', 'dst_dim', 'dst_step'), turned: 'u32', ...FLAGS },
  },
  call: 'extreme_begin',
}));
const join = EXTREMES.declare({
  each: { ids: INT_TYPES, dtype: VALUE_TYPES },
  symbol: ({ ids, dtype }) => `extreme_join_${ids}_${dtype}`,
  body: ({ ids, dtype }) => ({
    threads: 256,
    params: {
      ...{ ids: `const ${CTYPE[ids]}*`, src: `const ${CTYPE[dtype]}*`, keys: `raised_t<${CTYPE[dtype]}>*` },
      ...{ ...MARKS, ...WALK, ...typed('u64', 'lanes', 'count', 'ids_step', 'src_step', 'dst_dim') },
      ...typed('u32', 'turned', 'most'),
    },
    call: 'extreme_join',
  }),
});
const end = EXTREMES.forTypes(VALUE_TYPES, 'extreme_end', (T) => ({
  threads: 256,
  params: {
    ...{ dst: `${T}*`, keys: `const raised_t<${T}>*`, named: 'const u8*', spoilt: 'const u32*', ...INFO },
    ...{ ...typed('u64', 'lanes', 'dst_dim', 'dst_step'), ...typed('u32', 'turned', 'most') },
  },
  call: 'extreme_end',
}));

/** Places that a block holds (extreme_places), and parts of a lane that see all of its indices each. */
const [HELD, MOST_PARTS] = [4096, 4];
/** Lanes, and indices in each, from which on blocks that hold a lane's places are busy. */
const [HELD_LANES, HELD_COUNT] = [64, 256];

interface Params {
  readonly dim: number;
  readonly most?: boolean;
  readonly self?: boolean;
}
export const extreme: Plan = (p, _row, [x, ids, src], [out], params) => {
  const { dim, most = true, self = true } = params as Params;
  const { shape } = out.layout;
  const last = dim === shape.length - 1;
  const dims = without(ids.layout.shape, dim);
  const [dtype, flags] = [kernelDType(x.dtype), { most: most ? 1 : 0, self: self ? 1 : 0 }];
  const [lanes, count, dstDim] = [sizeOf(dims), ids.layout.shape[dim], shape[dim]];
  const parts = ceilDiv(dstDim, bytesOf(dtype) === 8 ? HELD / 2 : HELD);
  if (ids.layout.size === 0) return p.copy(x, out);
  if (
    sameShape(dims, without(shape, dim)) &&
    lanes * parts >= HELD_LANES &&
    count >= HELD_COUNT &&
    parts <= MOST_PARTS
  ) {
    const order = [...shape.keys()].filter((d) => d !== dim).concat(dim);
    const to = permuted(out, order);
    const dst = last ? viewOf(out) : p.make(to.layout.shape, out.dtype);
    const given = [ids, x, src].map((v) => p.dense(permuted(v, order)));
    const sizes = { lanes, count, ids_lane: count, ids_step: 1, dst_dim: dstDim };
    const args = { ...places('ids', 'x', 'src', 'dst', 'fault'), ...sizes, ...flags };
    const grid = Math.min(lanes * parts, 2 ** 22);
    const launches = [launch(held, { ids: ids.dtype as Ids, dtype }, grid, 512, args)];
    p.run({ launches, scratch: 0 }, { ids: given[0], x: given[1], src: given[2], dst, fault: FAULT });
    return last ? undefined : p.copy(dst, to);
  }
  p.copy(x, out);
  // A key for each place, whether it was named, and whether each lane has a bad index.
  const all = lanes * dstDim;
  const wide = bytesOf(dtype) === 8 ? 8 : 4;
  const namedAt = ceilDiv(all * wide, 16) * 16;
  const spoiltAt = namedAt + ceilDiv(all, 16) * 16;
  const [keys, named, spoilt] = [at('scratch'), at('scratch', namedAt), at('scratch', spoiltAt)];
  const upload = [...dims, ...[ids, src, out].flatMap((v) => without(v.layout.strides, dim))];
  const turned = last ? 0 : 1;
  const walk = { info: at('info'), rank: dims.length, lanes, dst_dim: dstDim, turned, most: flags.most };
  const steps = { ids_step: ids.layout.strides[dim], src_step: src.layout.strides[dim] };
  const target = { dst: at('dst'), dst_step: out.layout.strides[dim] };
  const marks = { keys, named, spoilt };
  const launches = [
    launch(begin, { dtype }, strideGrid(all), 256, { ...walk, ...target, ...marks, self: flags.self }),
    launch(join, { ids: ids.dtype as Ids, dtype }, strideGrid(lanes * count), 256, {
      ...{ ...walk, ...steps, ...marks, count },
      ...places('ids', 'src', 'fault'),
    }),
    launch(end, { dtype }, strideGrid(all), 256, { ...walk, ...target, ...marks }),
  ];
  p.run({ launches, scratch: spoiltAt + lanes * 4 }, { ids, src, dst: out, fault: FAULT, info: { upload } });
};
