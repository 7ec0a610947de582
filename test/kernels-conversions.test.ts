// Rounding in kernels against the exact conversions of src/base/float.ts, random numbers bit for bit, and kernel files
// as data.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { DTYPE, NUMBERS, type DType, FLOATS, type RawArray, type Value } from '../src/base/dtype.js';
import { sizeOf } from '../src/base/shape.js';
import { compareWithCandle } from '../src/parity/manifest.js';
import { expand, readMacros, splitArgs } from '../src/kernels/macros.js';
import { kernelModule, moduleNames, unitOf } from '../src/backends/gpu/modules.js';
import { type NormalParams, random, type UniformParams, uniformRange } from '../src/ops/random.js';
import { decode, encode, SimRunner, wholeModule } from './sim-support.js';

const suffix = (d: DType): string => (d === 'f8e4m3' ? 'f8_e4m3' : d);

function cast(run: SimRunner, from: DType, to: DType, raw: RawArray): RawArray {
  const out = run.buffer(raw.length * DTYPE[to].bytes);
  run.launch(wholeModule('candle/cast'), `cast_${suffix(from)}_${suffix(to)}`, 4, 256, [
    raw.length,
    1,
    0,
    run.buffer(raw),
    out,
  ]);
  const got = run.read(to, out, raw.length);
  run.free();
  return got;
}

test('every bit pattern of f16, bf16 and f8e4m3 widens exactly and comes back', () => {
  const run = new SimRunner(32);
  for (const d of ['f16', 'bf16', 'f8e4m3'] as const) {
    const all = new DTYPE[d].Raw(new ArrayBuffer(DTYPE[d].bytes === 1 ? 256 : 131072));
    for (let i = 0; i < all.length; i++) (all as Uint16Array)[i] = i;
    for (const wide of ['f32', 'f64'] as const) {
      const up = cast(run, d, wide, all);
      assert.deepEqual(decode(wide, up), decode(d, all), `${d} to ${wide}`);
      const back = cast(run, wide, d, up);
      assert.deepEqual(
        [...(back as Uint16Array)],
        [...(encode(d, decode(d, all)) as Uint16Array)],
        `${wide} back to ${d}`,
      );
    }
  }
});

test('f32 and f64 narrow to nearest even with one rounding: ties, neighbours of ties, overflow, denormals', () => {
  const run = new SimRunner(64);
  const values: number[] = [
    0,
    -0,
    NaN,
    Infinity,
    -Infinity,
    65504,
    65519.99,
    65520,
    447,
    448,
    464,
    465,
    1e300,
    5e-324,
    2 ** -24,
    2 ** -25,
    2 ** -9,
    2 ** -10,
    1e-8,
  ];
  for (const d of ['f16', 'bf16', 'f8e4m3'] as const) {
    for (let i = 1; i < 60; i++) {
      const [a, b] = [
        DTYPE[d].decode(i * (d === 'f8e4m3' ? 2 : 540)) as number,
        DTYPE[d].decode(i * (d === 'f8e4m3' ? 2 : 540) + 1) as number,
      ];
      const tie = (a + b) / 2;
      values.push(
        tie,
        -tie,
        tie * (1 + 2 ** -52),
        tie * (1 - 2 ** -52),
        tie * (1 + 2 ** -40),
        Math.fround(tie * (1 + 2 ** -22)),
      );
    }
    for (const wide of ['f64', 'f32'] as const) {
      const raw = encode(wide, values);
      assert.deepEqual(
        [...(cast(run, wide, d, raw) as Uint16Array)],
        [...(encode(d, decode(wide, raw)) as Uint16Array)],
        `${wide} to ${d}`,
      );
    }
  }
});

test('i64 and u32 round once on their way to small floats', () => {
  const run = new SimRunner(32);
  const big = [
    0n,
    1n,
    -1n,
    2049n,
    2051n,
    65519n,
    65520n,
    (1n << 62n) + 1n,
    -(1n << 62n) - 1n,
    (1n << 56n) + (1n << 48n) + 1n,
    (1n << 56n) + (1n << 48n),
    (1n << 63n) - 1n,
    -(1n << 63n),
  ];
  const exact = (d: DType, v: bigint): number => {
    // A double holds 53 bits: fold what is below into the last one, which then breaks ties as the whole number would.
    const magnitude = v < 0n ? -v : v;
    const shift = BigInt(Math.max(0, magnitude.toString(2).length - 50));
    const sticky = (magnitude >> shift) | ((magnitude & ((1n << shift) - 1n)) !== 0n ? 1n : 0n);
    return DTYPE[d].encode((v < 0n ? -1 : 1) * Number(sticky) * 2 ** Number(shift)) as number;
  };
  for (const d of ['f16', 'bf16', 'f8e4m3'] as const) {
    assert.deepEqual(
      [...(cast(run, 'i64', d, BigInt64Array.from(big)) as Uint16Array)],
      big.map((v) => exact(d, v)),
      `i64 to ${d}`,
    );
    const small = [0, 1, 2049, 2051, 65519, 65520, 4294967295, 16777217, 0x80800001];
    assert.deepEqual(
      [...(cast(run, 'u32', d, Uint32Array.from(small)) as Uint16Array)],
      small.map((v) => exact(d, BigInt(v))),
      `u32 to ${d}`,
    );
  }
});

test('all hundred casts agree with the rules on ordinary numbers', () => {
  const run = new SimRunner(64);
  const numbers = [0, 1, 2, 3, 7, 40, 100, 127];
  for (const from of NUMBERS) {
    const raw = encode(
      from,
      numbers.map((v): Value => (DTYPE[from].kind === 'float' ? v : BigInt(v))),
    );
    for (const to of NUMBERS) {
      const got = decode(to, cast(run, from, to, raw)).map(Number);
      assert.deepEqual(
        got,
        decode(
          to,
          encode(
            to,
            decode(from, raw).map((v) => (DTYPE[to].kind === 'float' ? Number(v) : BigInt(v))),
          ),
        ).map(Number),
        `${from} to ${to}`,
      );
    }
  }
});

for (const wave of [32, 64] as const) {
  test(`random numbers are those of the reference, bit for bit, wave ${wave}`, () => {
    const run = new SimRunner(wave);
    const unit = wholeModule('random');
    const name = (d: DType): string => (d === 'f8e4m3' ? 'f8e4m3' : d);
    for (const dtype of FLOATS) {
      for (const [seed, offset] of [
        [42n, 0n],
        [0x123456789abcdefn, 6n],
        [7n, 0xfffffffffffffffdn],
        [1n, 0x1fffffffdn],
      ] as const) {
        const shape = [1003];
        const n = sizeOf(shape);
        const reference = (
          row: typeof random.randUniform | typeof random.randNormal,
          params: UniformParams | NormalParams,
        ): RawArray => {
          const out = { shape, dtype, data: new Array<Value>(n) };
          row.reference([], [out], params as never);
          return encode(dtype, out.data);
        };
        const bits = (raw: RawArray): number[] => [...new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength)];
        const out = run.buffer(n * DTYPE[dtype].bytes);
        const [lo, up] = [-3, 5];
        const { bottom, top } = uniformRange(dtype, lo, up);
        run.launch(unit, `rand_uniform_${name(dtype)}`, 2, 128, [
          n,
          seed,
          BigInt.asIntN(64, offset),
          0, // fed by no recorded step
          lo,
          up - lo,
          bottom,
          top,
          out,
        ]);
        assert.deepEqual(
          bits(run.read(dtype, out, n)),
          bits(reference(random.randUniform, { shape, dtype, seed, offset, lo, up })),
          `uniform ${dtype} offset ${offset}`,
        );
        run.launch(unit, `rand_normal_${name(dtype)}`, 2, 256, [n, seed, BigInt.asIntN(64, offset), 0, 0.5, 2, out]);
        assert.deepEqual(
          bits(run.read(dtype, out, n)),
          bits(reference(random.randNormal, { shape, dtype, seed, offset, mean: 0.5, std: 2 })),
          `normal ${dtype} offset ${offset}`,
        );
        run.free();
      }
    }
  });
}

test("all 991 kernels of Candle's twelve files are there with its parameters", () => {
  const modules = compareWithCandle();
  assert.equal(
    modules.reduce((n, c) => n + c.total, 0),
    991,
  );
  assert.deepEqual(
    modules.flatMap((c) => c.missing),
    [],
  );
  assert.deepEqual(
    modules.flatMap((c) => c.different),
    [],
  );
});

test('a unit holds only the kernels and expressions asked for', () => {
  const { source, entries } = unitOf('candle/unary', ['uexp_f32']);
  assert.deepEqual(
    entries.map((e) => e.symbol),
    ['uexp_f32'],
  );
  assert.ok(source.includes('op_exp(') && !source.includes('op_log('));
  assert.deepEqual(
    entries[0].params.map((p) => [p.name, p.type, p.offset, p.size]),
    [
      ['numel', 'u64', 0, 8],
      ['num_dims', 'u64', 8, 8],
      ['info', 'u64*', 16, 8],
      ['inp', 'float*', 24, 8],
      ['out', 'float*', 32, 8],
    ],
  );
  assert.throws(() => unitOf('candle/unary', ['uexp_f99']), /kernels\/candle\/unary.hip has no kernel uexp_f99/);
});

test('parameter offsets are those the C++ compiler uses, for every kernel of the small modules', {
  skip: process.env.WICK_KERNELS_ON ? 'only the simulation tells its offsets' : false,
}, () => {
  const run = new SimRunner(32);
  for (const name of ['candle/unary', 'candle/affine', 'fill', 'candle/fill', 'random', 'candle/ternary']) {
    const unit = wholeModule(name);
    for (const e of unit.entries.filter((_, i) => i % 9 === 0)) {
      assert.equal(run.describe(unit, e.symbol), e.params.map((p) => `${p.offset}:${p.size}`).join(' '), e.symbol);
    }
  }
});

test('every kernel file parses, and no symbol is in two files', () => {
  const seen = new Map<string, string>();
  for (const m of moduleNames()) {
    for (const symbol of kernelModule(m).entries.keys()) {
      assert.equal(seen.get(symbol), undefined, `${symbol} is in ${seen.get(symbol)} and ${m}`);
      seen.set(symbol, m);
    }
  }
  assert.ok(seen.size >= 991);
});

test('macros expand as the C preprocessor does, as far as kernel files go', () => {
  const macros = readMacros(
    '#define ADD(A, B) A##_##B\n#define EACH(M, X, ...) M(X##1, ##__VA_ARGS__) \\\n  M(X##2, ' +
      '##__VA_ARGS__)\n#define P(X, ...) [X __VA_ARGS__]\n',
  );
  const all = (): boolean => true;
  assert.equal(expand('ADD(x, y)', macros, all), 'x_y');
  assert.equal(expand('EACH(P, a, q, r)', macros, all), '[a1 q, r] [a2 q, r]');
  assert.equal(expand('EACH(P, a)', macros, all), '[a1 ] [a2 ]');
  assert.deepEqual(splitArgs('a, f(b, c), d<e, f>', true), ['a', 'f(b, c)', 'd<e, f>']);
});

test('the fast kernels are clean under the address and undefined-behaviour sanitizers', (t) => {
  const asan = spawnSync(process.env.CXX ?? 'g++', ['-print-file-name=libasan.so'], { encoding: 'utf8' }).stdout.trim();
  if (!asan.startsWith('/')) return t.skip('libasan is not installed beside the compiler');
  const file = join(dirname(fileURLToPath(import.meta.url)), 'kernels-elementwise.test.js');
  const { NODE_TEST_CONTEXT: _, WICK_KERNELS_ON: __, ...env } = process.env; // the child is a test run of its own, on the simulation
  const r = spawnSync(
    process.execPath,
    [
      '--test-reporter',
      'tap',
      '--test-name-pattern',
      '(contiguous|off 16|broadcasts|strided outputs|transposed).*wave 64',
      file,
    ],
    {
      encoding: 'utf8',
      env: { ...env, LD_PRELOAD: asan, ASAN_OPTIONS: 'detect_leaks=0', WICK_SIM_SANITIZE: 'address' },
    },
  );
  assert.equal(r.status, 0, r.stdout.slice(-3000) + r.stderr.slice(-3000));
  assert.match(r.stdout, /# pass 5/);
});
