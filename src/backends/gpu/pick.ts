// What flags choose: kernels/pick.hip.
import { bytesOf } from '../../base/dtype.js';
import { KernelModule, WORDS } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { PICK_TILE } from '../../ops/pick.js';
import { at, ceilDiv, type FamilyPlan, launch, places } from './plan.js';

export const PICK = new KernelModule('pick');
const count = PICK.declare({
  each: {},
  symbol: () => 'pick_count',
  body: () => ({ threads: 256, params: { flags: 'const u8*', counts: 'i64*', n: 'u64' }, call: 'count_flags' }),
});
const starts = PICK.declare({
  each: {},
  symbol: () => 'pick_starts',
  body: () => ({ threads: 1024, params: { counts: 'i64*', size: 'i64' }, call: 'tile_starts' }),
});
const FLAGS = { flags: 'const u8*', starts: 'const i64*' } as const;
const coordinates = PICK.declare({
  each: {},
  symbol: () => 'pick_places',
  body: () => ({
    threads: 256,
    params: { ...FLAGS, info: 'const u64*', rank: 'u32', dst: 'i64*', n: 'u64', count: 'i64' },
    call: 'set_places',
  }),
});
const BYTES = [1, 2, 4, 8] as const;
/** Elements as words: from the flags' places to a list, or back. */
const moved = (name: string, call: string) =>
  PICK.declare({
    each: { bytes: BYTES },
    symbol: ({ bytes }) => `${name}_b${bytes}`,
    body: ({ bytes }) => ({
      threads: 256,
      params: { src: `const ${WORDS[bytes]}*`, ...FLAGS, dst: `${WORDS[bytes]}*`, n: 'u64', count: 'i64' },
      call,
    }),
  });
const [values, put] = [moved('pick_values', 'take_set'), moved('pick_put', 'put_set')];

const runs = PICK.declare({
  each: {},
  symbol: () => 'pick_runs',
  body: () => ({
    threads: 256,
    params: { ...FLAGS, order: 'const u32*', dst: 'i64*', n: 'u64' },
    call: 'number_runs',
  }),
});

type Plan = FamilyPlan<RowOf<'pick'>, { readonly count: number }>;
/** Flags as the kernels read them, 16 at once, and a block a tile. */
const tiled = (p: Parameters<Plan>[0], mask: Parameters<Plan>[2][number]) => {
  const n = mask.layout.size;
  return { flags: p.dense(mask, 16), n, tiles: ceilDiv(n, PICK_TILE) };
};

const KINDS: Readonly<Record<RowOf<'pick'>['kernel']['kind'], Plan>> = {
  starts: (p, _row, [mask], [out]) => {
    const { flags, n, tiles } = tiled(p, mask);
    if (n === 0) return p.fill(out, 0);
    const counts = at('counts');
    const launches = [
      launch(count, {}, tiles, 256, { flags: at('flags'), counts, n }),
      launch(starts, {}, 1, 1024, { counts, size: tiles + 1 }),
    ];
    p.run({ launches, scratch: 0 }, { flags, counts: out });
  },
  places: (p, _row, [mask, before], [out], params) => {
    const { flags, n, tiles } = tiled(p, mask);
    const { shape, rank } = mask.layout;
    const args = { ...places('flags', 'starts', 'info', 'dst'), rank, n, count: params.count };
    const buffers = { flags, starts: p.dense(before), info: { upload: shape }, dst: out };
    p.run({ launches: [launch(coordinates, {}, tiles, 256, args)], scratch: 0 }, buffers);
  },
  take: (p, _row, [x, mask, before], [out], params) => {
    const { flags, n, tiles } = tiled(p, mask);
    const args = { ...places('src', 'flags', 'starts', 'dst'), n, count: params.count };
    const launches = [launch(values, { bytes: bytesOf(x.dtype) as 1 | 2 | 4 | 8 }, tiles, 256, args)];
    p.run({ launches, scratch: 0 }, { src: p.dense(x), flags, starts: p.dense(before), dst: out });
  },
  put: (p, _row, [x, mask, before], [out]) => {
    const { flags, n, tiles } = tiled(p, mask);
    const args = { ...places('src', 'flags', 'starts', 'dst'), n, count: x.layout.size };
    const launches = [launch(put, { bytes: bytesOf(x.dtype) as 1 | 2 | 4 | 8 }, tiles, 256, args)];
    p.run({ launches, scratch: 0 }, { src: p.dense(x), flags, starts: p.dense(before), dst: out });
  },
  runs: (p, _row, [mask, before, order], [out]) => {
    const { flags, n, tiles } = tiled(p, mask);
    const args = { ...places('flags', 'starts', 'order', 'dst'), n };
    const launches = [launch(runs, {}, tiles, 256, args)];
    p.run({ launches, scratch: 0 }, { flags, starts: p.dense(before), order: p.dense(order), dst: out });
  },
};
export const planPick: Plan = (p, row, inputs, outputs, params) =>
  KINDS[row.kernel.kind](p, row, inputs, outputs, params);
