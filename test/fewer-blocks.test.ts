// Kernels that go round take any grid: one block gives the bits that many give. Plans end their grids somewhere, and
// larger operands than tests have are left to the rounds.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import type { Device as DriverDevice } from '../src/driver/driver.js';
import { arange, type Device, rand, randn, scope, type Tensor } from '../src/index.js';
import { testDevices } from '../src/testing/devices.js';

type Calls = { -readonly [K in 'getFunction' | 'launch']: DriverDevice[K] };
/** By the symbols' beginnings: the kernels that are asked for one block, and what launches them. */
const GO_ROUND: Readonly<Record<string, (d: Device) => Tensor>> = {
  row_distances: (d) => randn([3, 70, 5], { device: d, seed: 1 }).cdist(randn([3, 80, 5], { device: d, seed: 2 })),
  search_sorted: (d) => arange(900, { device: d }).searchsorted(randn([1300], { device: d, seed: 1 }).affine(300, 400)),
  scatter_held: (d) =>
    randn([3, 9000], { device: d, seed: 1 }).scatter(
      1,
      places(d, [3, 700], 9000),
      randn([3, 700], { device: d, seed: 2 }),
    ),
  scatter_add_held: (d) =>
    randn([9000, 2], { device: d, seed: 1 }).scatterAdd(
      0,
      places(d, [700, 2], 9000),
      randn([700, 2], { device: d, seed: 2 }),
    ),
  scatter_any: (d) =>
    randn([9, 700], { device: d, seed: 1 }).scatter(0, places(d, [3, 700], 9), randn([3, 700], { device: d, seed: 2 })),
  scatter_add_sorted: (d) =>
    randn([3, 40000], { device: d, seed: 1 }).scatterAdd(
      1,
      places(d, [3, 700], 40000),
      randn([3, 700], { device: d, seed: 2 }),
    ),
  scatter_keys: (d) =>
    randn([3, 40000], { device: d, seed: 1 }).scatter(
      1,
      places(d, [3, 700], 40000),
      randn([3, 700], { device: d, seed: 2 }),
    ),
  index_keys: (d) =>
    randn([9, 5], { device: d, seed: 1 }).indexAdd(0, places(d, [700], 9), randn([700, 5], { device: d, seed: 2 })),
  scatter_claim: (d) =>
    randn([3, 9000], { device: d, seed: 1 }).scatter(
      1,
      places(d, [2, 700], 9000),
      randn([2, 700], { device: d, seed: 2 }),
    ),
  scatter_clear: (d) =>
    randn([3, 9000], { device: d, seed: 1 }).scatter(
      1,
      places(d, [2, 700], 9000),
      randn([2, 700], { device: d, seed: 2 }),
    ),
  fourier_parted: (d) => randn([2, 36000], { device: d, seed: 1 }).rfft()[1],
  fourier_symmetric: (d) => {
    const x = randn([2, 18001], { device: d, seed: 1 });
    return x.irfft(x);
  },
  row_distances_backward: (d) => {
    const x = randn([40, 70], { device: d, seed: 1 }).requireGrad();
    return x
      .cdist(randn([9, 70], { device: d, seed: 2 }))
      .sum()
      .backward()
      .of(x);
  },
  gather_any: (d) => randn([9, 900], { device: d, seed: 1 }).gather(1, places(d, [9, 100], 900)),
  gather_lanes: (d) => randn([3, 900], { device: d, seed: 1 }).gather(1, places(d, [3, 1500], 900)),
  select_rows: (d) => randn([30, 50], { device: d, seed: 1 }).indexSelect(0, places(d, [400], 30)),
  take_sorted: (d) => randn([2, 9000], { device: d, seed: 1 }).topk(600)[1],
  take_front: (d) => randn([9000], { device: d, seed: 1 }).topk(2300)[1],
  choose_clear: (d) => randn([3, 9000], { device: d, seed: 1 }).topk(2)[1],
  rand_uniform: (d) => rand([5000], { device: d, seed: 1 }),
  rand_normal: (d) => randn([5000], { device: d, seed: 1 }),
  fill: (d) => arange(3, { device: d }).newFull([5000], 7),
  arange: (d) => arange(5000, { device: d }),
  upsample_bilinear2d: (d) => picture(d).upsampleBilinear2d([37, 41]),
  bilinear_grad: (d) => {
    const x = picture(d).requireGrad();
    return x.upsampleBilinear2d([40, 30]).sum().backward().of(x);
  },
  taps_lines: (d) => picture(d).interpolate({ size: [37, 41], mode: 'bicubic' }),
  taps_one: (d) => randn([40, 3, 50], { device: d, seed: 1 }).interpolate({ size: 77, mode: 'linear' }),
  placed: (d) => picture(d).interpolate({ size: [57, 61] }),
  pool_max: (d) => picture(d).maxPool2d(2, 1),
  pool_spread: (d) => {
    const x = randn([1, 5, 130, 130], { device: d, seed: 1 }).requireGrad();
    return x.maxPool2d(3, 2).sqr().sum().backward().of(x);
  },
  pool_back: (d) => {
    const x = picture(d).requireGrad();
    return x.maxPool2d(3, 2).sqr().sum().backward().of(x);
  },
  plane_stats: (d) => picture(d).batchNorm(),
  plane_scale: (d) => picture(d).batchNorm(),
  plane_back: (d) => {
    const x = picture(d).requireGrad();
    return x.groupNorm(3).powf(3).sum().backward().of(x);
  },
  grid_each: (d) => picture(d).gridSample(rand([2, 12, 12, 2], { device: d, seed: 2 })),
  grid_moved: (d) => {
    const grid = rand([2, 20, 20, 2], { device: d, seed: 2 }).requireGrad();
    return picture(d).gridSample(grid).sqr().sum().backward().of(grid);
  },
};
const picture = (d: Device): Tensor => randn([2, 3, 20, 20], { device: d, seed: 1 });
/** Indices below n in no order. */
const places = (d: Device, shape: readonly number[], n: number): Tensor =>
  arange(
    shape.reduce((a, b) => a * b, 1),
    { dtype: 'i64', device: d },
  )
    .affine(7919, 5)
    .remainder(n)
    .reshape(shape);

for (const { name, device: found, missing } of testDevices('sim:32,sim:64')) {
  if (!found) {
    test(`kernels that go round on ${name}`, { skip: missing }, () => {});
    continue;
  }
  const device: Device = found;
  const { bare } = (device.backend as GpuBackend).context;
  const calls = bare as Calls;
  const symbols = new Map<unknown, string>();
  const [find, launch] = [bare.getFunction.bind(bare), bare.launch.bind(bare)];
  calls.getFunction = (module, symbol) => {
    const fn = find(module, symbol);
    symbols.set(fn, symbol);
    return fn;
  };
  for (const [kernel, f] of Object.entries(GO_ROUND))
    test(`${kernel} of one block on ${name}`, () => {
      /** The result, with one block for that kernel or the plan's; how many blocks were left out. */
      const run = (one: boolean): { bytes: Uint8Array; left: number } =>
        scope(() => {
          let left = 0;
          calls.launch = (fn, grid, ...rest) => {
            const few = symbols.get(fn)?.startsWith(kernel) ?? false;
            if (few) left += grid[0] - 1;
            launch(fn, few && one ? [1, 1, 1] : grid, ...rest);
          };
          return { bytes: f(device).bytesSync(), left };
        });
      const [want, got] = [run(false), run(true)];
      assert.ok(want.left > 0, `${kernel} is launched with more than a block`);
      assert.deepEqual(got.bytes, want.bytes);
    });
}
