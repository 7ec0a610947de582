// The CPU engine as WebAssembly: its memory grows and comes back, errors are the engine's own, and a user without a
// compiler gets it with a line that says so. The op matrix runs on it with WICK_CPU_ISA=wasm (.ci/run).
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import type { Memory, Recorded, View } from '../src/backends/backend.js';
import { CpuBackend } from '../src/backends/cpu.js';
import { openWasm } from '../src/backends/cpu/wasm-engine.js';
import { findWasm, shippedWasm } from '../src/backends/wasm-build.js';
import type { DType } from '../src/base/dtype.js';
import { IndexError, NativeError, OutOfMemoryError } from '../src/base/errors.js';
import { Layout } from '../src/base/layout.js';
import type { RunRow } from '../src/ops/op.js';
import { OPS } from '../src/ops/table.js';

function built(): { path?: string; missing?: string } {
  try {
    return { path: findWasm() };
  } catch (e) {
    if (e instanceof NativeError) return { missing: e.message };
    throw e;
  }
}
const { path, missing } = built();
const here = { skip: missing ?? false };
const fresh = (): CpuBackend => new CpuBackend(openWasm(path!));
const row = (name: keyof typeof OPS): RunRow => OPS[name] as unknown as RunRow;

function view(engine: CpuBackend, dtype: DType, shape: number[], raw: ArrayBufferView): View {
  const memory = engine.alloc(raw.byteLength);
  engine.write(memory, 0, new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength));
  return { memory, layout: Layout.contiguous(shape), dtype };
}
const floats = (engine: CpuBackend, shape: number[], values: readonly number[]): View =>
  view(engine, 'f32', shape, Float32Array.from(values));
function read(engine: CpuBackend, v: View): number[] {
  const out = new Float32Array(v.layout.size);
  engine.readSync(v.memory, 0, new Uint8Array(out.buffer));
  return [...out];
}

test('the engine names itself, and a product is the sum of products', here, () => {
  const engine = fresh();
  assert.equal(engine.isa, 'wasm');
  assert.match(engine.description, /^C\+\+ engine as WebAssembly with SIMD, \d+ threads?$/);
  const [m, k, n] = [37, 53, 29];
  const a = Array.from({ length: m * k }, (_, i) => Math.fround(Math.sin(i)));
  const b = Array.from({ length: k * n }, (_, i) => Math.fround(Math.cos(i)));
  const out = floats(engine, [1, m, n], new Array<number>(m * n).fill(0));
  engine.run(row('bmm'), [floats(engine, [1, m, k], a), floats(engine, [1, k, n], b)], [out], {});
  read(engine, out).forEach((got, at) => {
    let want = 0;
    for (let i = 0; i < k; i++) want += a[Math.floor(at / n) * k + i] * b[i * n + (at % n)];
    assert.ok(Math.abs(got - want) <= 1e-5, `${at}: ${got} for ${want}`);
  });
});

/** Work until as many threads have come, each of which has its own turn of loops that are long enough to share. */
async function joinedBy(engine: CpuBackend, threads: number, x: View, out: View): Promise<void> {
  engine.threads = threads;
  for (let i = 0; i < 40; i++) {
    engine.run(row('exp'), [x], [out], {});
    await setTimeout(25);
  }
}

test('several threads give the bits of one, op after op', here, async () => {
  const engine = fresh();
  const n = 192;
  const numbers = Array.from({ length: n * n }, (_, i) => Math.fround(Math.sin(i * 0.37)));
  const [a, b, out] = [numbers, numbers, numbers].map((list) => floats(engine, [1, n, n], list));
  const all = (): number[][] =>
    [row('bmm'), row('add'), row('atan2')].map((op) => {
      engine.run(op, [a, b], [out], {});
      return read(engine, out);
    });
  engine.threads = 1;
  const alone = all();
  await joinedBy(engine, 4, a, out);
  for (let i = 0; i < 30; i++) assert.deepEqual(all(), alone, `round ${i}`);
});

test('a thread without memory ends its op in an OutOfMemoryError, and the pool goes on', here, async () => {
  const engine = fresh();
  const n = 320;
  const numbers = Array.from({ length: n * n }, (_, i) => (i % 7) - 3);
  const [a, b, out] = [numbers, numbers, numbers].map((list) => floats(engine, [1, n, n], list));
  await joinedBy(engine, 4, a, out); // products take scratch memory of their own, for which nothing is left
  // Found by name, with memory.
  for (const op of [row('bmm'), row('add')]) assert.equal(engine.supports(op, 'f32'), true);
  const blocks: Memory[] = [];
  for (let size = 1 << 30; size >= 64; ) {
    try {
      blocks.push(engine.alloc(size));
    } catch {
      size >>= 1;
    }
  }
  const product = (): void => engine.run(row('bmm'), [a, b], [out], {});
  for (let i = 0; i < 3; i++) assert.throws(product, OutOfMemoryError);
  engine.run(row('add'), [a, a], [out], {});
  assert.deepEqual(read(engine, out).slice(0, 4), [-6, -4, -2, 0]);
  for (const block of blocks) engine.free(block);
  product();
  const want = numbers.slice(0, n).reduce((sum, v, i) => sum + v * numbers[i * n], 0);
  assert.equal(read(engine, out)[0], want);
});

test('a program ends while its threads sleep and while they work', here, () => {
  const at = (part: string): string => JSON.stringify(new URL(`../src/${part}`, import.meta.url).href);
  const code = `
    const { randn } = await import(${at('index.js')});
    const x = randn([256, 256], { seed: 1 });
    for (let i = 0; i < 20; i++) { x.matmul(x); await new Promise((done) => setTimeout(done, 10)); }
    console.log('done');`;
  const env = { ...process.env, WICK_CPU_ISA: 'wasm', WICK_THREADS: '4' };
  const args = ['--input-type=module', '-e', code];
  const { stdout, status } = spawnSync(process.execPath, args, { encoding: 'utf8', env, timeout: 120_000 });
  assert.deepEqual([stdout, status], ['done\n', 0]);
});

test('tensors keep their values while the memory grows, and freed memory comes back', here, () => {
  const engine = fresh();
  const x = floats(engine, [3], [1, -2, 3]);
  const before = engine.memory();
  const large = Array.from({ length: 8 }, () => engine.alloc(32 << 20));
  assert.deepEqual(read(engine, x), [1, -2, 3]);
  const y = floats(engine, [3], [0, 0, 0]);
  engine.run(row('abs'), [x], [y], {});
  assert.deepEqual(read(engine, y), [1, 2, 3]);
  const places = new Set(large.map((block) => block.address));
  for (const block of large) {
    assert.equal(block.address % 64, 0);
    engine.free(block);
  }
  engine.free(y.memory);
  assert.equal(engine.memory().liveBytes, before.liveBytes);
  assert.ok(places.has(engine.alloc(32 << 20).address), 'the same memory is given out again');
});

test('a finaliser gives a block back by its token, once', here, () => {
  const engine = fresh();
  const block = engine.alloc(100);
  engine.free(block.token!);
  engine.free(block.token!);
  assert.deepEqual([engine.memory().liveBytes, engine.memory().liveBlocks], [0, 0]);
});

test('an index out of range and memory that cannot be had are typed errors, and the engine goes on', here, () => {
  const engine = fresh();
  const x = floats(engine, [3, 2], [1, 2, 3, 4, 5, 6]);
  const ids = view(engine, 'u32', [2], Uint32Array.from([1, 7]));
  const out = floats(engine, [2, 2], [0, 0, 0, 0]);
  assert.throws(
    () => engine.run(row('indexSelect'), [x, ids], [out], { dim: 0 }),
    (e: unknown) => e instanceof IndexError && /indexSelect: index 7 at position 1/.test(e.message),
  );
  assert.throws(
    () => engine.alloc(5 * 2 ** 30),
    (e: unknown) => e instanceof OutOfMemoryError && /at most 4 GiB/.test(e.message),
  );
  engine.run(row('abs'), [x], [x], {});
  assert.deepEqual(read(engine, x), [1, 2, 3, 4, 5, 6]);
});

test('recorded work runs when it is launched, as often as it is, and says which op failed', here, async () => {
  const engine = fresh();
  const x = floats(engine, [2], [1, 2]);
  const ids = view(engine, 'u32', [1], Uint32Array.from([0]));
  const out = floats(engine, [1], [0]);
  const work = engine.capture(() => {
    engine.run(row('add'), [x, x], [x], {});
    engine.run(row('indexSelect'), [x, ids], [out], { dim: 0 });
  }) as Recorded;
  await work.launch();
  await work.launch();
  assert.deepEqual(read(engine, out), [4]);
  engine.write(ids.memory, 0, Uint8Array.of(9, 0, 0, 0));
  await assert.rejects(async () => work.launch(), /indexSelect: index 9 at position 0/);
  work.dispose();
});

test('recorded work keeps the memory that was freed in it to itself', here, async () => {
  const engine = fresh();
  const x = floats(engine, [64], new Array<number>(64).fill(1));
  const out = floats(engine, [64], new Array<number>(64).fill(0));
  const work = engine.capture(() => {
    const half = engine.alloc(256);
    const between: View = { memory: half, layout: Layout.contiguous([64]), dtype: 'f32' };
    engine.run(row('add'), [x, x], [between], {});
    engine.run(row('add'), [between, between], [out], {});
    engine.free(half);
  }) as Recorded;
  // What others hold from now on is not what the recorded work writes into.
  const others = Array.from({ length: 16 }, () => floats(engine, [64], new Array<number>(64).fill(7)));
  await work.launch();
  assert.deepEqual(new Set(read(engine, out)), new Set([4]));
  for (const other of others) assert.deepEqual(new Set(read(engine, other)), new Set([7]));
  const live = engine.memory().liveBytes;
  work.dispose();
  await new Promise((done) => setImmediate(done));
  assert.deepEqual([engine.memory().liveBytes, engine.memory().cachedBytes], [live, 0]);
});

const folder = mkdtempSync(join(tmpdir(), 'wick-wasm-'));
after(() => rmSync(folder, { recursive: true, force: true }));

test('without a compiler and without a package it serves, with one line that says so', {
  skip: missing ?? (existsSync(shippedWasm()) ? false : `${shippedWasm()} is not there: npm run release:wasm makes it`),
}, () => {
  const index = JSON.stringify(new URL('../src/index.js', import.meta.url).href);
  const code =
    `import(${index}).then(({ Tensor, Device }) => console.log(Device.get('cpu').description, ` +
    'Tensor.from([1, 2]).exp().sum().item()))';
  const { WICK_NATIVE: _, WICK_CPU_ISA: __, CXX: ___, ...rest } = process.env;
  const env = { ...rest, PATH: folder, WICK_CACHE_DIR: join(folder, 'cache'), WICK_THREADS: '3' };
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', code], { encoding: 'utf8', env });
  assert.match(stdout, /^C\+\+ engine as WebAssembly with SIMD, 3 threads 10\.1073/, stderr);
  assert.match(stderr, /no C\+\+ compiler .*The CPU engine runs as WebAssembly, with at most 4 GiB of tensors\./);
});

for (const platform of ['darwin', 'win32'])
  test(`a program that sees ${platform} trains, saves and generates with it, without a word on stderr`, {
    skip:
      missing ?? (existsSync(shippedWasm()) ? false : `${shippedWasm()} is not there: npm run release:wasm makes it`),
  }, () => {
    const at = (part: string): string => JSON.stringify(new URL(`../src/${part}/index.js`, import.meta.url).href);
    const file = JSON.stringify(join(folder, `${platform}.safetensors`));
    // The FFI library's own binary is this machine's: it is loaded before the platform is another.
    const code = `
      await import('koffi');
      Object.defineProperty(process, 'platform', { value: ${JSON.stringify(platform)} });
      const { Device, randn } = await import(${at('.')});
      const nn = await import(${at('nn')});
      const { LanguageModel } = await import(${at('engine')});
      const net = new nn.Linear(2, 1);
      const optimizer = new nn.AdamW(net.parameters(), { learningRate: 0.1 });
      const x = randn([64, 2], { seed: 2 });
      const want = x.sum(1, true);
      let loss = 0;
      for (let i = 0; i < 100; i++) {
        const error = net.forward(x).sub(want).sqr().mean();
        optimizer.step(error.backward());
        loss = error.item();
      }
      net.save(${file});
      const model = await LanguageModel.load();
      let text = '';
      for await (const piece of model.generate('ROMEO:', { maxTokens: 8, temperature: 0 })) text += piece;
      model.dispose();
      console.log(Device.default.description, loss < 0.01, text.length > 8);`;
    const { WICK_NATIVE: _, WICK_CPU_ISA: __, ...rest } = process.env;
    const env = { ...rest, WICK_CACHE_DIR: join(folder, 'cache'), WICK_THREADS: '2' };
    const args = ['--input-type=module', '-e', code];
    const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', env });
    assert.equal(stdout, 'C++ engine as WebAssembly with SIMD, 2 threads true true\n', stderr);
    assert.equal(stderr, '');
  });
