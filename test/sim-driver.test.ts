// The simulation itself: waves, barriers, shared memory, and the bugs it must find.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { buildHost, type Sanitizer } from '../src/driver/host-cc.js';
import { openSim, simOptions } from '../src/driver/sim.js';
import { hostSource } from '../src/kernels/host-unit.js';
import { simulationDir } from '../src/base/paths.js';
import { customUnit, type Unit } from '../src/kernels/source.js';
import { SimRunner } from './sim-support.js';

/** A unit from kernels written here. */
function unitFrom(name: string, kernels: string): Unit {
  return customUnit(name, kernels);
}

const good = unitFrom(
  'good',
  `
template <class T> WICK_FN T block_sum(T v) {
  __shared__ T part[32];
  for (u32 m = WICK_WAVE / 2; m; m >>= 1) v += shfl_xor(v, m, WICK_WAVE);
  if (lane_id() == 0) part[wave_id()] = v;
  __syncthreads();
  T sum = 0;
  for (u32 w = 0; w < (blockDim.x + WICK_WAVE - 1) / WICK_WAVE; w++) sum += part[w];
  __syncthreads();
  return sum;
}
KERNEL(256) row_sum(const float* x, float* y, u32 n) {
  float s = 0;
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) s += x[blockIdx.x * n + i];
  s = block_sum(s);
  if (threadIdx.x == 0) y[blockIdx.x] = s;
}
KERNEL(64) lanes(u32* out) {
  const u32 lane = lane_id();
  out[threadIdx.x * 6] = shfl(lane, 3, 8);
  out[threadIdx.x * 6 + 1] = shfl_xor(lane, 5, WICK_WAVE);
  out[threadIdx.x * 6 + 2] = shfl_up(lane, 2, 16);
  out[threadIdx.x * 6 + 3] = shfl_down(lane, 1, 4);
  out[threadIdx.x * 6 + 4] = popcount64(ballot64(lane % 3 == 0));
  out[threadIdx.x * 6 + 5] = popcount64(ballot64(true) & lanes_before());
}
KERNEL(256) reverse(const u32* x, u32* y) {
  DYNAMIC_SHARED(u32, tile);
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
KERNEL(256) adds(float* f, half* h, u8* b, i64* big) {
  atomic_add(f, 0.5f);
  atomic_add(h + 1, half{0x3c00});
  atomic_add(b + 3, (u8)1);
  atomic_add(big, (i64)-1);
  atomic_max(big + 1, (i64)threadIdx.x);
}
KERNEL(64) relay(u32* flags, u32* order) {
  if (threadIdx.x > 0) while (!load_acquire(flags + threadIdx.x - 1)) spin_wait();
  order[threadIdx.x] = threadIdx.x ? order[threadIdx.x - 1] + 1 : 100;
  store_release(flags + threadIdx.x, 1u);
}
template <class T> WICK_FN void peek_and_leave(T* out, T left) {
  __shared__ T tile[2];
  if (threadIdx.x == 0) out[blockIdx.x] = tile[1];
  __syncthreads();
  tile[threadIdx.x % 2] = left;
}
KERNEL(64) peek_template(u32* out) { peek_and_leave<u32>(out, 5); }
KERNEL(64) peek(u32* out) {
  __shared__ u32 never_set[4];
  if (threadIdx.x == 0) out[0] = never_set[2];
}
`,
);

const bad = unitFrom(
  'bad',
  `
KERNEL(64) half_barrier(float* y) { if (threadIdx.x < 16) __syncthreads(); y[threadIdx.x] = 1; }
KERNEL(64) two_barriers(float* y) {
  if (threadIdx.x < 16) { y[0] = 1;
    __syncthreads(); } else {
    __syncthreads(); }
}
KERNEL(64) lone_shuffle(float* y) { if (threadIdx.x < 5) y[threadIdx.x] = shfl_xor(y[0], 1, WICK_WAVE); else __syncthreads(); }
KERNEL(64) nobody(u32* flag) { while (!load_acquire(flag)) spin_wait(); }
KERNEL(64) early(float* y) { if (threadIdx.x == 3) return; y[threadIdx.x] = shfl_xor(y[0], 1, WICK_WAVE); }
`,
);

for (const wave of [32, 64] as const) {
  for (const reverse of [false, true]) {
    test(
      `barriers, shuffles, shared memory and atomics work, wave ${wave}, ${reverse ? 'reverse' : 'forward'} ` + 'order',
      (t) => {
        const before = { ...simOptions };
        t.after(() => Object.assign(simOptions, before));
        simOptions.reverse = reverse;
        const run = new SimRunner(wave);
        const x = Float32Array.from({ length: 3 * 500 }, (_, i) => (i % 7) + 1);
        const y = run.buffer(12);
        run.launch(good, 'row_sum', 3, 256, [run.buffer(x), y, 500]);
        const sums = [0, 1, 2].map((r) => x.slice(r * 500, r * 500 + 500).reduce((a, b) => a + b));
        assert.deepEqual([...run.read('f32', y, 3)], sums);

        const lanes = run.buffer(64 * 6 * 4);
        run.launch(good, 'lanes', 1, 64, [lanes]);
        const got = run.read('u32', lanes, 64 * 6) as Uint32Array;
        for (let i = 0; i < 64; i++) {
          const l = i % wave;
          const want = [(l & ~7) | 3, l ^ 5, l % 16 >= 2 ? l - 2 : l, l % 4 < 3 ? l + 1 : l, Math.ceil(wave / 3), l];
          assert.deepEqual([...got.slice(i * 6, i * 6 + 6)], want, `lane ${l}`);
        }

        const turned = run.buffer(1024);
        run.launch(good, 'reverse', 1, 256, [run.buffer(Uint32Array.from({ length: 256 }, (_, i) => i)), turned], 1024);
        assert.deepEqual(
          [...run.read('u32', turned, 256)],
          Array.from({ length: 256 }, (_, i) => 255 - i),
        );

        const [f, h, b, big] = [
          run.buffer(new Float32Array(1)),
          run.buffer(new Uint16Array(2)),
          run.buffer(new Uint8Array(4)),
          run.buffer(BigInt64Array.of(5n, -3n)),
        ];
        run.launch(good, 'adds', 2, 128, [f, h, b, big]);
        assert.equal(run.read('f32', f, 1)[0], 128);
        assert.deepEqual([...run.read('f16', h, 2)], [0, 0x5c00]);
        assert.deepEqual([...run.read('u8', b, 4)], [0, 0, 0, 0]); // 256 ones wrap
        assert.deepEqual([...run.read('i64', big, 2)], [-251n, 127n]);

        const order = run.buffer(256);
        run.launch(good, 'relay', 1, 64, [run.buffer(new Uint32Array(64)), order]);
        assert.deepEqual(
          [...run.read('u32', order, 64)],
          Array.from({ length: 64 }, (_, i) => 100 + i),
        );
        run.free();
      },
    );
  }

  test(`misused barriers and shuffles are errors that name the kernel, wave ${wave}`, () => {
    const run = new SimRunner(wave);
    const y = run.buffer(new Float32Array(64));
    const fails = (symbol: string, says: RegExp): void =>
      assert.throws(
        () => run.launch(bad, symbol, 1, 64, [run.buffer(new Float32Array(64))]),
        (e: Error & { code?: string }) => e.code === 'E_DRIVER' && e.message.includes(symbol) && says.test(e.message),
      );
    fails('half_barrier', /16 threads wait in __syncthreads and 48 of 64 have returned/);
    fails('two_barriers', /different __syncthreads/);
    fails('lone_shuffle', /some lanes are at a barrier/);
    fails('early', /some lanes returned while others are in a shuffle/);
    fails('nobody', /spin on a flag that nobody sets/);
    // And the device is usable afterwards.
    run.launch(good, 'row_sum', 1, 64, [run.buffer(new Float32Array(64).fill(2)), y, 64]);
    assert.equal(run.read('f32', y, 1)[0], 128);
    assert.throws(
      () => run.launch(good, 'row_sum', 1, 512, [y, y, 1]),
      /a block of 512 threads, where launch bounds allow 256/,
    );
    assert.throws(() => run.launch(good, 'row_sum', 0, 64, [y, y, 1]), /empty grids/);
    run.free();
  });
}

test('shared and device memory begin with the poison asked for', (t) => {
  const before = { ...simOptions };
  t.after(() => Object.assign(simOptions, before));
  const run = new SimRunner(32);
  for (const poison of [0x7f, 0xff, 0x00]) {
    simOptions.poison = poison;
    const out = run.buffer(8);
    assert.equal((run.read('u32', out, 2) as Uint32Array)[1], (poison * 0x01010101) >>> 0);
    run.launch(good, 'peek', 1, 64, [out]);
    assert.equal((run.read('u32', out, 1) as Uint32Array)[0], (poison * 0x01010101) >>> 0);
    // In templates too, and in every block: nothing is left of the block before.
    run.launch(good, 'peek_template', 2, 64, [out]);
    assert.deepEqual(Array.from(run.read('u32', out, 2) as Uint32Array), Array(2).fill((poison * 0x01010101) >>> 0));
  }
  run.free();
});

test('a bug that only waves of 64 have shows with waves of 64 only', () => {
  // Half a wave of 64 is never added up when the code counts on 32 lanes.
  const unit = unitFrom(
    'wave-bug',
    `
KERNEL(64) sum64(const float* x, float* y) {
  float v = x[threadIdx.x];
  __shared__ float part[2];
  for (u32 m = 16; m; m >>= 1) v += shfl_xor(v, m, 32);
  if (lane_id() == 0) part[wave_id()] = v;
  __syncthreads();
  if (threadIdx.x == 0) y[0] = part[0] + part[1];
}`,
  );
  const sums = ([32, 64] as const).map((wave) => {
    const run = new SimRunner(wave);
    const y = run.buffer(4);
    run.launch(unit, 'sum64', 1, 64, [run.buffer(new Float32Array(64).fill(1)), y]);
    const sum = (run.read('f32', y, 1) as Float32Array)[0];
    run.free();
    return sum;
  });
  assert.equal(sums[0], 64);
  assert.notEqual(sums[1], 64);
});

test('recorded work runs on replay only, with the arguments of its time', () => {
  const run = new SimRunner(32);
  const { device } = run;
  const stream = device.createStream();
  const [a, b] = [run.buffer(Uint32Array.of(7)), run.buffer(Uint32Array.of(0))];
  device.beginCapture(stream);
  device.copy(b, a, 4, stream);
  device.memset(a, 9, 4, stream);
  const exec = device.instantiate(device.endCapture(stream));
  assert.equal(run.read('u32', b, 1)[0], 0);
  device.launchGraph(exec, stream);
  device.launchGraph(exec, stream);
  assert.deepEqual([run.read('u32', a, 1)[0], run.read('u32', b, 1)[0]], [0x09090909, 0x09090909]);
  run.free();
});

test('a stream that is recorded allocates nothing, frees nothing and waits for nothing', () => {
  const device = openSim().open(32);
  const [stream, beside] = [device.createStream(), device.createStream()];
  const block = device.allocAsync(64, stream);
  device.beginCapture(stream);
  assert.throws(() => device.allocAsync(64, stream), /allocAsync: .* while the stream is recorded/);
  assert.throws(() => device.freeAsync(block, stream), /freeAsync: .* while the stream is recorded/);
  assert.throws(() => device.synchronizeStream(stream), /synchronizeStream: .* while the stream is recorded/);
  device.freeAsync(block, beside);
  device.destroyGraph(device.endCapture(stream));
  assert.throws(() => device.freeAsync(block, stream), /freed before/);
});

test('the driver knows its two devices and refuses others', () => {
  const driver = openSim();
  assert.equal(driver.open(64), driver.open(1));
  assert.equal(driver.info(32).warp, 32);
  assert.throws(() => driver.open(7), /sim:7: there is no such device/);
  const device = driver.open(32);
  assert.throws(() => device.free(12345), /not an address that alloc gave/);
  assert.throws(() => device.alloc(2 ** 40), { code: 'E_MEMORY' });
});

// ---- sanitizers, in processes of their own ----

const racy = unitFrom(
  'racy',
  `
KERNEL(64) turned(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
KERNEL(64) turned_without(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
KERNEL(64) beyond_global(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x + 1]; }
KERNEL(64) beyond_shared(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x + 1] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}
KERNEL(64) beyond_dynamic(const float* x, float* y) {
  DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x + 1] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}
`,
);

function runUnder(sanitizer: Sanitizer, symbol: string, wave: number): { status: number | null; text: string } {
  const source = `${hostSource(racy, wave)}\n${readFileSync(join(simulationDir, 'main.cpp'), 'utf8')}`;
  const program = buildHost('racy', source, sanitizer, true);
  const args = [symbol, '1', '1', '1', '64', '1', '1', '256', '0', '0x7f', 'p:256', 'p:256'];
  // ThreadSanitizer's memory layout does not fit randomised addresses.
  const [command, ...rest] = sanitizer === 'thread' ? ['setarch', '-R', program, ...args] : [program, ...args];
  const r = spawnSync(command, rest, {
    encoding: 'utf8',
    env: { ...process.env, ASAN_OPTIONS: 'detect_leaks=0', LD_PRELOAD: '' },
  });
  return { status: r.status, text: r.stdout + r.stderr };
}

for (const wave of [32, 64]) {
  test(`the address sanitizer sees accesses beyond global, shared and dynamic shared memory, wave ${wave}`, () => {
    assert.match(runUnder('address', 'turned', wave).text, /^done/);
    assert.match(runUnder('address', 'beyond_global', wave).text, /AddressSanitizer: heap-buffer-overflow/);
    assert.match(
      runUnder('address', 'beyond_shared', wave).text,
      /AddressSanitizer: global-buffer-overflow|index 64 out of bounds for type 'float \[64\]'/,
    );
    assert.match(runUnder('address', 'beyond_dynamic', wave).text, /AddressSanitizer: heap-buffer-overflow/);
  });
  test(`the thread sanitizer sees a removed barrier, wave ${wave}`, {
    skip: existsSync('/usr/bin/setarch') ? false : 'setarch is not installed',
  }, (t) => {
    const clean = runUnder('thread', 'turned', wave);
    if (/unexpected memory mapping|CHECK failed/.test(clean.text))
      return t.skip(`ThreadSanitizer does not run here: ${clean.text.slice(0, 200)}`);
    assert.equal(clean.text, 'done\n');
    assert.match(runUnder('thread', 'turned_without', wave).text, /ThreadSanitizer: data race/);
  });
}
