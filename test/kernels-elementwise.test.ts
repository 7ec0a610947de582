// The fast elementwise kernels on the simulation: every variant, alignment and layout against plain arithmetic, and
// plans by shape.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DType, DTYPE, NUMBERS, type Value } from '../src/base/dtype.js';
import { castValue } from '../src/ops/movement.js';
import { Layout } from '../src/base/layout.js';
import { ArgBuffer } from '../src/driver/args.js';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Device, scope, Tensor, tensor } from '../src/index.js';
import { magicDivisor, packElementwise, planElementwise } from '../src/backends/gpu/elementwise.js';
import {
  castChain,
  chain,
  type Chain,
  copyChain,
  elementwiseUnit,
  kernelDTypes,
  rowChain,
  standardChains,
  VARIANTS,
} from '../src/kernels/elementwise.js';
import type { Unit } from '../src/kernels/source.js';
import type { ElementwiseRow } from '../src/ops/op.js';
import { elementwiseRows, OPS } from '../src/ops/table.js';
import { decode, encode, SimRunner } from './sim-support.js';

const row = (name: keyof typeof OPS): ElementwiseRow<any> => OPS[name] as unknown as ElementwiseRow<any>;
const args = new ArgBuffer();
const GUARD = 64;

const fused = chain(
  ['f16', 'f32', 'f16'],
  [
    { row: row('mul'), dtype: 'f16', args: [0, 2] },
    { cast: 'f32', args: [3] },
    { row: row('affine'), dtype: 'f32', args: [1] },
    { row: row('add'), dtype: 'f32', args: [4, 5] },
    { cast: 'bf16', args: [6] },
  ],
);
const CHAINS: Chain[] = [
  rowChain(row('add'), 'f32'),
  rowChain(row('add'), 'f16'),
  rowChain(row('mul'), 'u8'),
  rowChain(row('sub'), 'i64'),
  rowChain(row('lt'), 'f64'),
  rowChain(row('where'), 'bf16'),
  rowChain(row('neg'), 'f32'),
  rowChain(row('affine'), 'i16'),
  rowChain(row('clamp'), 'f8e4m3'),
  castChain('f32', 'f16'),
  castChain('f64', 'u8'),
  castChain('u8', 'f64'),
  castChain('bf16', 'f32'),
  copyChain(1),
  copyChain(2),
  copyChain(4),
  copyChain(8),
  fused,
];
const unit: Unit = elementwiseUnit(CHAINS);

/** Storage with a guard behind it, so that writes past the layout show. */
function storage(dtype: DType, layout: Layout, seed: number): Value[] {
  const int = DTYPE[dtype].kind !== 'float';
  return Array.from({ length: layout.end + GUARD }, (_, i) =>
    int ? BigInt((i * 7 + seed) % 100) : (((i * 37 + seed * 11) % 201) - 100) / 8,
  );
}

/** The chain in TypeScript: every step in double or bigint, rounded to its dtype. */
function expected(c: Chain, values: readonly Value[], scalars: readonly number[]): Value {
  let s = 0;
  const held = [...values];
  const dtypes = [...c.inputs];
  for (const step of c.steps) {
    const inputs = step.args.map((a) => held[a]);
    let d: DType;
    let v: Value;
    if ('cast' in step) {
      d = step.cast;
      const from = inputs[0];
      v = castValue(from, d);
    } else if ('constant' in step) {
      d = step.constant;
      v = scalars[s++];
    } else {
      d = step.row.result === 'same' ? step.dtype : step.row.result;
      const own = step.row.scalars.map(() => scalars[s++]);
      const int = DTYPE[step.dtype].kind !== 'float';
      v = int
        ? step.row.int!(...inputs.map(BigInt), ...own.map(BigInt))
        : step.row.exact(...inputs.map(Number), ...own);
    }
    const raw = encode(d, [v]);
    held.push(decode(d, raw)[0]);
    dtypes.push(d);
  }
  return held[held.length - 1];
}

function check(run: SimRunner, c: Chain, out: Layout, inputs: readonly Layout[], want: string, wide = false): void {
  const data = inputs.map((l, i) => storage(c.inputs[i], l, i + 1));
  const scalars = c.scalars.map((_, i) => [3, 5][i]);
  const addresses = inputs.map((_, i) => run.of(c.inputs[i], data[i]));
  const before = storage(c.output, out, 9);
  const target = run.of(c.output, before);
  const plan = planElementwise(c, out, inputs, wide);
  assert.equal(plan.variant, want, `${c.name} ${out.shape.join('x')}`);
  packElementwise(args, c, plan, [target, ...addresses], scalars);
  const module = run.device.loadModule(run.compile(unit), 'elementwise');
  const fn = run.device.getFunction(module, plan.symbol);
  const entry = unit.entries.find((e) => e.symbol === plan.symbol)!;
  assert.equal(args.size, entry.size, `${plan.symbol}: packed bytes`);
  run.device.launch(fn, [plan.grid, 1, 1], [plan.block, 1, 1], 0, 0, args);
  const got = decode(c.output, run.read(c.output, target, before.length));
  const result = decode(c.output, encode(c.output, before));
  const at: number[][] = inputs.map(() => []);
  inputs.forEach((l, i) => l.forEach((_, index) => at[i].push(index)));
  out.forEach((i, index) => {
    const values = inputs.map((_, k) => decode(c.inputs[k], encode(c.inputs[k], [data[k][at[k][i]]]))[0]);
    result[index] = expected(c, values, scalars);
  });
  assert.deepEqual(
    got,
    result,
    `${plan.symbol} ${out.shape.join('x')} strides ${inputs.map((l) => l.strides.join()).join(' ')}`,
  );
  run.free();
}

for (const wave of [32, 64] as const) {
  test(`every chain is right when all is contiguous, whole tiles and tails, wave ${wave}`, () => {
    const run = new SimRunner(wave);
    for (const c of CHAINS)
      for (const n of [1, 7, 5000])
        check(
          run,
          c,
          Layout.contiguous([n]),
          c.inputs.map(() => Layout.contiguous([n])),
          'flat',
        );
  });
  test(`operands that start off 16 bytes and single elements for all are right, wave ${wave}`, () => {
    const run = new SimRunner(wave);
    for (const c of CHAINS) {
      check(
        run,
        c,
        Layout.contiguous([4200], 3),
        c.inputs.map((_, i) => Layout.contiguous([4200], i + 1)),
        'flat',
      );
      if (c.inputs.length > 1) {
        check(
          run,
          c,
          Layout.contiguous([4200]),
          c.inputs.map((_, i) => (i === 1 ? new Layout([4200], [0], 2) : Layout.contiguous([4200]))),
          'flat',
        );
      }
    }
  });
  test(`broadcasts along rows go in groups, others one by one, wave ${wave}`, () => {
    const run = new SimRunner(wave);
    for (const c of CHAINS.filter((x) => x.inputs.length === 2)) {
      check(run, c, Layout.contiguous([6, 64]), [Layout.contiguous([6, 64]), new Layout([6, 64], [0, 1])], 'groups');
      check(run, c, Layout.contiguous([6, 64]), [Layout.contiguous([6, 64]), new Layout([6, 64], [1, 0])], 'groups');
      check(run, c, Layout.contiguous([6, 7]), [Layout.contiguous([6, 7]), new Layout([6, 7], [0, 1])], 'strided');
    }
  });
  test(`strided outputs are written through their layout and nowhere else, wave ${wave}`, () => {
    const run = new SimRunner(wave);
    for (const c of CHAINS.filter((x) => x.inputs.length === 1)) {
      check(run, c, new Layout([5, 3, 7], [40, 9, 1], 4), [Layout.contiguous([5, 3, 7])], 'strided');
      check(run, c, new Layout([4, 32], [128, 1], 64), [Layout.contiguous([4, 32])], 'groups');
      check(
        run,
        c,
        Layout.contiguous([2, 3, 4, 5]).permute([3, 1, 0, 2]),
        [Layout.contiguous([5, 3, 2, 4])],
        'strided',
      );
    }
  });
  test(`transposed inputs go through tiles, whole and ragged, with batches, wave ${wave}`, () => {
    const run = new SimRunner(wave);
    for (const c of CHAINS.filter((x) => x.inputs.length === 1)) {
      check(run, c, Layout.contiguous([80, 96]), [Layout.contiguous([96, 80]).permute([1, 0])], 'transposeGroups');
      check(run, c, Layout.contiguous([19, 33]), [Layout.contiguous([33, 19]).permute([1, 0])], 'transpose');
      check(
        run,
        c,
        Layout.contiguous([3, 17, 2, 20]),
        [Layout.contiguous([2, 20, 3, 17]).permute([2, 3, 0, 1])],
        'transpose',
      );
    }
  });
}

test('a fused chain gives the bits of its ops run one after another', () => {
  const run = new SimRunner(32);
  check(
    run,
    fused,
    Layout.contiguous([3, 40]),
    [Layout.contiguous([3, 40]), new Layout([3, 40], [0, 1]), Layout.contiguous([40, 3]).permute([1, 0])],
    'strided',
  );
});

test('64-bit layouts give what 32-bit ones give', () => {
  const run = new SimRunner(64);
  for (const c of CHAINS.filter((x) => x.inputs.length === 1))
    check(run, c, new Layout([5, 3, 7], [40, 9, 1], 4), [Layout.contiguous([5, 3, 7])], 'strided64', true);
  for (const c of CHAINS.filter((x) => x.inputs.length === 2)) {
    check(
      run,
      c,
      Layout.contiguous([6, 64]),
      [Layout.contiguous([6, 64]), new Layout([6, 64], [0, 1])],
      'groups64',
      true,
    );
  }
});

test('plans of tensors beyond 2^31 elements use 64-bit layouts', () => {
  const big = new Layout([3, 2 ** 30], [2 ** 31, 1]);
  assert.equal(
    planElementwise(rowChain(row('add'), 'f32'), big, [big, new Layout([3, 2 ** 30], [0, 1])]).variant,
    'groups64',
  );
  assert.equal(
    planElementwise(rowChain(row('add'), 'f32'), big, [big, new Layout([3, 2 ** 30], [0, 2])]).variant,
    'strided64',
  );
  assert.equal(
    planElementwise(copyChain(1), Layout.contiguous([2 ** 33]), [Layout.contiguous([2 ** 33])]).grid,
    2 ** 33 / 4096,
  );
});

test('magic divisors divide exactly below 2^31', () => {
  for (const d of [1, 2, 3, 5, 7, 10, 63, 64, 65, 641, 65535, 65537, 1000003, 2 ** 30 - 1, 2 ** 30, 2 ** 31 - 1]) {
    const { magic, shift } = magicDivisor(d);
    for (const n of [0, 1, d - 1, d, d + 1, 2 * d - 1, 2 * d, 123456789, 2 ** 31 - 1].filter(
      (x) => x >= 0 && x < 2 ** 31,
    )) {
      const q = Number(((BigInt(n) * BigInt(magic)) >> 32n) + BigInt(n)) / 2 ** shift;
      assert.equal(Math.floor(q), Math.floor(n / d), `${n} / ${d}`);
    }
  }
});

test('every row, cast and copy has chains of its own name', () => {
  const all = standardChains(elementwiseRows);
  assert.equal(new Set(all.map((c) => c.name)).size, all.length);
  assert.equal(all.length, elementwiseRows.reduce((n, r) => n + kernelDTypes(r).length, 0) + 144 + 4);
});

test('every variant is generated for one input, and all but the transposes for more', () => {
  assert.deepEqual(
    elementwiseUnit([castChain('f32', 'i64')]).entries.map((e) => e.symbol.split('_')[0]),
    [...VARIANTS],
  );
  assert.equal(elementwiseUnit([rowChain(row('add'), 'f32')]).entries.length, VARIANTS.length - 2);
  assert.ok(NUMBERS.every((d) => elementwiseUnit([rowChain(row('add'), d)], ['flat']).entries.length === 1));
});

for (const name of ['sim:32', 'sim:64'])
  test(`large results are made by turns from their beginning and from their end, ${name}`, () => {
    const device = Device.get(name);
    const gpu = (device.backend as GpuBackend).context;
    const from: boolean[] = [];
    const { launch } = gpu;
    gpu.launch = function (...args: Parameters<typeof launch>) {
      from.push(new DataView(gpu.args.bytes().slice(8, 12).buffer).getUint32(0, true) >>> 31 === 1);
      return launch.apply(this, args);
    };
    try {
      scope(() => {
        const n = 2 ** 22 + 5;
        const host = Float32Array.from({ length: n }, (_, i) => (i % 1021) - 500);
        const x = Tensor.from(host, { device });
        from.length = 0;
        const results = [x.neg(), x.mul(x), x.narrow(0, 3, n - 3).neg(), x.maximum(tensor([0], { device }))];
        assert.equal(new Set(from.slice(0, 2)).size, 2, 'by turns');
        const wanted = [(v: number) => -v, (v: number) => v * v, (v: number) => -v, (v: number) => Math.max(v, 0)];
        for (const [k, t] of results.entries()) {
          const first = k === 2 ? 3 : 0;
          t.dataSync().forEach((v, i) => {
            if (Number(v) !== wanted[k](host[i + first])) assert.fail(`result ${k}, element ${i}: ${v}`);
          });
        }
        from.length = 0;
        for (const t of [x.narrow(0, 0, 4096), x.narrow(0, 8, 4096)]) t.neg();
        assert.deepEqual(from, [false, false], 'small ones from their beginning');
      });
    } finally {
      gpu.launch = launch;
    }
  });
