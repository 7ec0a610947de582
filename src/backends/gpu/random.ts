// Random numbers from a seed and an offset, the same on every device: kernels/random.hip.
import { CTYPE, KernelModule, REAL_TYPES } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import {
  type BesideParams,
  type NormalParams,
  normalQuantile,
  type UniformParams,
  uniformRange,
} from '../../ops/random.js';
import {
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  inTurns,
  type Launch,
  launch,
  MOST_BLOCKS,
  packOf,
  single,
  strideGrid,
  type Uploaded,
} from './plan.js';
import { bytesOf } from '../../base/dtype.js';

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
/** The same numbers by a table of cubics, where there are many; `standard`: mean 0 and standard deviation 1. */
const quick = RANDOM.declare({
  each: { kind: ['standard', 'scaled'], dtype: DTYPES.filter((d) => d !== 'f64') },
  symbol: ({ kind, dtype }) => `rand_quick_normal_${kind}_${dtype}`,
  body: ({ kind, dtype }) => ({
    threads: 512,
    params: { ...STREAM, words: 'const u64*', mean: 'double', std: 'double', out: `${CTYPE[dtype]}*` },
    call: `quick_normal<${kind === 'standard'}, ${CTYPE[dtype]}>`,
  }),
});
/** Numbers from which the table is worth reading, and those of a block at a time (QUICK_TILE). */
const QUICK_FROM = 2 ** 18;
const [QUICK_BLOCK, QUICK_TILE] = [512, 4096];
/** Octaves below 1/2 of |2u - 1|, and of 1 less that (TABLE_SMALL, TABLE_NEAR); intervals of one. */
const OCTAVES = { small: 8, near: 10, each: 128 } as const;

const bits = new DataView(new ArrayBuffer(4));
const wordOf = (x: number): number => {
  bits.setFloat32(0, x);
  return bits.getUint32(0);
};
/** The upper half of a float's word, rounded. */
const halfOf = (x: number): number => (wordOf(x) + 0x7fff + ((wordOf(x) >>> 16) & 1)) >>> 16;
/** The cubic through f at Chebyshev's points of middle - half .. middle + half, in powers of x - middle. */
function cubic(f: (x: number) => number, middle: number, half: number): number[] {
  const turns = [1, 3, 5, 7].map((k) => (k * Math.PI) / 8);
  const values = turns.map((t) => f(middle + half * Math.cos(t)));
  const a = [0, 1, 2, 3].map((j) => turns.reduce((sum, t, k) => sum + (values[k] * Math.cos(j * t)) / 2, 0));
  return [a[0] / 2 - a[2], (a[1] - 3 * a[3]) / half, (2 * a[2]) / half ** 2, (4 * a[3]) / half ** 3];
}
let table: Uploaded | undefined;
/** What quantile_between reads: four words an interval, of |2u - 1| 2^25 or of 2^25 less that. */
function quantileTable(): Uploaded {
  if (table) return table;
  const { each } = OCTAVES;
  const words: bigint[] = [];
  const small = (x: number): number => normalQuantile(0.5 + x * 2 ** -26);
  const near = (x: number): number => -normalQuantile(x * 2 ** -26);
  for (const [f, octaves] of [[small, OCTAVES.small] as const, [near, OCTAVES.near] as const])
    for (let at = (24 - octaves) * each; at < 24 * each; at++) {
      const half = 2 ** Math.floor(at / each) / (2 * each);
      const [c0, c1, c2, c3] = cubic(f, half * (2 * (each + (at % each)) + 1), half);
      const head = Math.fround(c0);
      const last = ((halfOf(c0 - head) << 16) | halfOf(c3)) >>> 0;
      for (const [low, high] of [
        [wordOf(head), wordOf(c1)],
        [wordOf(c2), last],
      ])
        words.push(BigInt.asIntN(64, (BigInt(high) << 32n) | BigInt(low)));
    }
  return (table = { upload: words, name: 'quantiles' });
}

const TOGETHER = { n: 'u64', seed: 'u64', offset: 'u64' } as const;
const dropped = RANDOM.declare({
  each: { dtype: REAL_TYPES },
  symbol: ({ dtype }) => `drop_out_${dtype}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: {
      ...STREAM,
      p: 'float',
      by: dtype === 'f64' ? 'double' : 'float',
      x: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
    },
    call: `drop_out<${CTYPE[dtype]}>`,
  }),
});
const happens = RANDOM.declare({
  each: { dtype: REAL_TYPES.filter((d) => d !== 'f64') },
  symbol: ({ dtype }) => `happen_${dtype}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: { ...TOGETHER, p: `const ${CTYPE[dtype]}*`, out: `${CTYPE[dtype]}*`, wrong: 'u32*' },
    call: `happen<${CTYPE[dtype]}>`,
  }),
});

const rings = RANDOM.declare({
  each: { dtype: REAL_TYPES },
  symbol: ({ dtype }) => `first_ring_${dtype}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: {
      x: `const ${CTYPE[dtype]}*`,
      ...{ when: 'double*', who: 'i64*', wrong: 'u32*', n: 'u64', size: 'u64', seed: 'u64', offset: 'u64' },
    },
    call: `first_ring<${CTYPE[dtype]}>`,
  }),
});
const first = RANDOM.declare({
  each: {},
  symbol: () => 'first_of_rows',
  body: () => ({
    threads: 256,
    params: {
      ...{ when: 'const double*', who: 'const i64*', out: 'i64*', wrong: 'u32*', rows: 'u64', chunks: 'u64' },
    },
    call: 'join_rings',
  }),
});

type Params = UniformParams | NormalParams | BesideParams;
type Plan = FamilyPlan<RowOf<'random'>, Params>;
/** Numbers drawn beside a tensor, each used where it is made. */
const planBeside: Plan = (p, row, [given, fed], outputs, params) => {
  const [out, wrong] = outputs;
  const x = p.dense(given);
  const n = out.layout.size;
  const { seed, offset, p: share } = params as BesideParams;
  const dtype = out.dtype as Exclude<(typeof REAL_TYPES)[number], 'f64'>;
  const grid = clamp(ceilDiv(n, 2 * 256 * Math.max(4, packOf(dtype))), 1, 2 ** 20);
  const args = { n, seed, offset, out: at('out') };
  if (row.kernel.distribution === 'dropout') {
    const by = 1 / (1 - share);
    p.run(single(launch(dropped, { dtype }, grid, 256, { ...args, fed: at('fed'), p: share, by, x: at('x') })), {
      ...{ x, out, fed },
    });
  } else {
    p.fill(wrong, 0);
    const l = launch(happens, { dtype }, grid, 256, { ...args, p: at('x'), wrong: at('wrong') });
    p.run(single(l), { x, out, wrong });
  }
};

/** Elements of a chunk of a row at least. */
const RING_CHUNK = 2048;
/** A draw from each row of weights. */
const planRings: Plan = (p, _row, [given], [out, wrong], params) => {
  const x = p.dense(given);
  const [rows, n] = x.layout.shape;
  const { seed, offset } = params as BesideParams;
  const most = clamp(ceilDiv(8 * Math.max(1, p.device.multiprocessors), rows), 1, ceilDiv(n, RING_CHUNK));
  const size = ceilDiv(n, most);
  const chunks = ceilDiv(n, size);
  const [when, who] = [at('scratch'), at('scratch', 8 * rows * chunks)];
  p.fill(wrong, 0);
  // A grid takes 65535 rows: more are done in turns, each a stream further on.
  const launches: Launch[] = [];
  inTurns(rows, MOST_BLOCKS[1], (from, count) => {
    const bytes = 8 * from * chunks;
    launches.push(
      launch(rings, { dtype: x.dtype as (typeof REAL_TYPES)[number] }, [chunks, count], 256, {
        x: at('x', from * n * bytesOf(x.dtype)),
        when: at('scratch', when.offset + bytes),
        who: at('scratch', who.offset + bytes),
        wrong: at('wrong'),
        ...{ n, size, seed, offset: BigInt.asUintN(64, offset + BigInt(from * n)) },
      }),
    );
  });
  launches.push(
    launch(first, {}, strideGrid(rows), 256, { when, who, out: at('out'), wrong: at('wrong'), rows, chunks }),
  );
  p.run({ launches, scratch: 16 * rows * chunks }, { x, out, wrong });
};

export const planRandom: Plan = (p, row, inputs, outputs, params) => {
  const { distribution } = row.kernel;
  if (distribution === 'rings') return planRings(p, row, inputs, outputs, params);
  if (distribution === 'dropout' || distribution === 'bernoulli') return planBeside(p, row, inputs, outputs, params);
  const [[fed], [out]] = [inputs, outputs];
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
    if (n >= QUICK_FROM && dtype !== 'f64') {
      const kind = mean === 0 && std === 1 ? 'standard' : 'scaled';
      const blocks = clamp(ceilDiv(n, QUICK_TILE), 1, 4 * Math.max(1, p.device.multiprocessors));
      const args = { ...stream, words: at('words'), mean, std };
      return p.run(single(launch(quick, { kind, dtype }, blocks, QUICK_BLOCK, args)), {
        out,
        fed,
        words: quantileTable(),
      });
    }
    p.run(single(launch(normal, { dtype }, grid, 256, { ...stream, mean, std })), { out, fed });
  }
};
