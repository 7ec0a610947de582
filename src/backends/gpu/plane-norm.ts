// Batch norms and group norms over planes: kernels/plane-norm.hip.
import type { DType } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { CTYPE, KernelModule, Struct, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { PLANE_DTYPES, PlaneNormParams } from '../../ops/plane-norm.js';
import type { View } from '../backend.js';
import { aligned16, at, ceilDiv, clamp, type FamilyPlan, launch, packOf, places, powerAbove, single } from './plan.js';

export const PLANE_NORM = new KernelModule('plane-norm');
const SIZES = new Struct('PlaneNorm', {
  ...typed('i64', 'n', 'c', 'groups', 'space', 'piece', 'pieces'),
  eps: 'double',
});
type Small = (typeof PLANE_DTYPES)[number];
const DTYPES = ['f32', 'f16', 'bf16'] as const;
const WIDTHS = ['one', 'packs'] as const;
const BLOCK = { constant: 'PLANE_BLOCK', threads: 256 } as const;
const widthOf = (width: (typeof WIDTHS)[number], d: DType): number => (width === 'packs' ? packOf(d) : 1);
const each = { width: WIDTHS, dtype: DTYPES } as const;
const statistics = typed('const float*', 'mean', 'variance');

const stats = PLANE_NORM.declare({
  each,
  symbol: ({ width, dtype }) => `plane_stats_${dtype}_${width}`,
  body: ({ width, dtype: d }) => ({
    threads: BLOCK,
    params: { src: `const ${CTYPE[d]}*`, out: 'Pieces*', s: SIZES },
    call: `plane_stats<${widthOf(width, d)}>`,
  }),
});
const join = PLANE_NORM.declare({
  each: {},
  symbol: () => 'plane_join_pieces',
  body: () => ({
    threads: BLOCK,
    params: { pieces: 'const Pieces*', ...typed('float*', 'mean', 'variance'), s: SIZES },
    call: 'plane_join',
  }),
});
const scale = PLANE_NORM.declare({
  each,
  symbol: ({ width, dtype }) => `plane_scale_${dtype}_${width}`,
  body: ({ width, dtype: d }) => ({
    threads: BLOCK,
    params: {
      ...{ src: `const ${CTYPE[d]}*`, ...statistics, ...typed('const float*', 'weight', 'bias') },
      ...{ dst: `${CTYPE[d]}*`, s: SIZES },
    },
    call: `plane_scale<${widthOf(width, d)}>`,
  }),
});
const slopes = PLANE_NORM.declare({
  each,
  symbol: ({ width, dtype }) => `plane_slopes_${dtype}_${width}`,
  body: ({ width, dtype: d }) => ({
    threads: BLOCK,
    params: { ...typed(`const ${CTYPE[d]}*`, 'src', 'grad'), ...statistics, out: 'Pieces*', s: SIZES },
    call: `plane_slopes<${widthOf(width, d)}>`,
  }),
});
const channels = PLANE_NORM.declare({
  each: {},
  symbol: () => 'plane_channel_sums',
  body: () => ({
    threads: BLOCK,
    params: { pieces: 'const Pieces*', ...typed('float*', 'dweight', 'dbias'), s: SIZES },
    call: 'plane_channels',
  }),
});
const means = PLANE_NORM.declare({
  each: {},
  symbol: () => 'plane_slope_means',
  body: () => ({
    threads: BLOCK,
    params: { pieces: 'const Pieces*', weight: 'const float*', means: 'Pieces*', s: SIZES },
    call: 'plane_means',
  }),
});
const back = PLANE_NORM.declare({
  each,
  symbol: ({ width, dtype }) => `plane_back_${dtype}_${width}`,
  body: ({ width, dtype: d }) => ({
    threads: BLOCK,
    params: {
      ...{ ...typed(`const ${CTYPE[d]}*`, 'src', 'grad'), ...statistics },
      ...{ weight: 'const float*', means: 'const Pieces*', dst: `${CTYPE[d]}*`, s: SIZES },
    },
    call: `plane_back<${widthOf(width, d)}>`,
  }),
});

/** Elements of a plane that a block takes at a time at most. */
const PIECE = 16384;
const MOST_BLOCKS = 2 ** 20;

export const planPlaneNorm: FamilyPlan<RowOf<'planes'>, PlaneNormParams> = (p, row, inputs, outputs, params) => {
  const [n, c, ...rest] = inputs[0].layout.shape;
  if (outputs[0].layout.size === 0) return;
  const { backward } = row.kernel;
  const dtype = inputs[0].dtype as Small;
  const space = sizeOf(rest);
  const pack = packOf(dtype);
  const [src, ...others] = inputs.map((v) => p.dense(v));
  const [y] = outputs;
  const grad = backward ? others.shift() : undefined;
  const packs = space % pack === 0 && aligned16(...[src, y, grad].filter((v): v is View => v !== undefined));
  const pieces = ceilDiv(space, PIECE);
  const piece = ceilDiv(ceilDiv(space, pieces), pack) * pack;
  const s = { n, c, groups: params.groups, space, piece, pieces, eps: params.eps };
  const variant = { width: packs ? 'packs' : 'one', dtype } as const;
  const block = clamp(powerAbove(ceilDiv(piece, packs ? 4 * pack : 4)), 64, BLOCK.threads);
  const blocks = Math.min(n * c * pieces, MOST_BLOCKS);
  const statCount = params.groups === 0 ? c : n * params.groups;
  /** Threads that join pieces: of a statistic, or a channel. */
  const joining = (planes: number): number => clamp(powerAbove(planes * pieces), 64, BLOCK.threads);
  const perStat = joining(params.groups === 0 ? n : c / params.groups);
  const parts = p.make([2 * n * c * pieces], 'f32');
  if (!backward) {
    const [, mean, variance] = outputs;
    const weight = params.weight ? others.shift() : undefined;
    const bias = params.bias ? others.shift() : undefined;
    p.run(single(launch(stats, variant, blocks, block, { ...places('src', 'out'), s })), { src, out: parts });
    const args = { ...places('pieces', 'mean', 'variance'), s };
    p.run(single(launch(join, {}, statCount, perStat, args)), { pieces: parts, mean, variance });
    const given = { weight: weight ? at('weight') : 0, bias: bias ? at('bias') : 0 };
    const scaled = launch(scale, variant, blocks, block, { ...places('src', 'mean', 'variance', 'dst'), ...given, s });
    return p.run(single(scaled), { src, mean, variance, weight, bias, dst: y });
  }
  const [mean, variance, weight] = others;
  const [, dweight, dbias] = outputs;
  const of = p.make([2 * statCount], 'f32');
  const first = launch(slopes, variant, blocks, block, { ...places('src', 'grad', 'mean', 'variance', 'out'), s });
  p.run(single(first), { src, grad, mean, variance, out: parts });
  const sums = launch(channels, {}, c, joining(n), { ...places('pieces', 'dweight', 'dbias'), s });
  p.run(single(sums), { pieces: parts, dweight, dbias });
  const given = { weight: weight ? at('weight') : 0 };
  const meaning = launch(means, {}, statCount, perStat, { ...places('pieces', 'means'), ...given, s });
  p.run(single(meaning), { pieces: parts, weight, means: of });
  const args = { ...places('src', 'grad', 'mean', 'variance', 'means', 'dst'), ...given, s };
  p.run(single(launch(back, variant, blocks, block, args)), { src, grad, mean, variance, weight, means: of, dst: y });
};
