// Seeded bugs: each must be reported with its instruction and work-item, and the same kernels without the bug must be
// clean.
import assert from 'node:assert/strict';
import { parseInstruction } from '../src/emulator/instruction.js';
import { test } from 'node:test';
import { EmulatorError } from '../src/emulator/executor.js';
import type { LaunchReport } from '../src/emulator/gpu.js';
import { Bench, hiprtc, missing } from './emulator-support.js';

const SOURCE = `
extern "C" __global__ void copy(const float* a, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = a[i]; }
extern "C" __global__ void gather(const int* at, float* o) { __shared__ float s[256]; s[threadIdx.x] = threadIdx.x; __syncthreads(); o[threadIdx.x] = s[at[threadIdx.x]]; }
extern "C" __global__ void reverse(float* o, int sync) { __shared__ float s[256]; s[threadIdx.x] = o[threadIdx.x]; if (sync) __syncthreads(); o[threadIdx.x] = s[255 - threadIdx.x]; }
extern "C" __global__ void unwritten(float* o, int n) { __shared__ float s[256]; if ((int)threadIdx.x < n) s[threadIdx.x] = 1; __syncthreads(); o[threadIdx.x] = s[threadIdx.x]; }
extern "C" __global__ void halfwave(float* o, int n) { if ((int)threadIdx.x < n) { o[threadIdx.x] = 1; __syncthreads(); } o[threadIdx.x] += 1; }
extern "C" __global__ void sum(int* o, int atomic) { if (atomic) atomicAdd(o, 1); else o[0] += 1; }
extern "C" __global__ void endless(volatile int* o) { while (o[0] == 0) o[1]++; }
extern "C" __global__ void odd(const char* p, int* o, int off) { o[threadIdx.x] = *(const int*)(p + off + 4 * threadIdx.x); }
extern "C" __global__ void last_block(float* part, unsigned* done, float* o) {
  __shared__ bool last;
  if (threadIdx.x == 0) { part[blockIdx.x] = blockIdx.x; __threadfence(); last = atomicAdd(done, 1) == gridDim.x - 1; }
  __syncthreads();
  if (last && threadIdx.x == 0) { __threadfence(); float s = 0; for (unsigned k = 0; k < gridDim.x; k++) s += part[k]; o[0] = s; }
}
extern "C" __global__ void undefined_register(float* o, int use) { float x; asm volatile("" : "=v"(x)); o[threadIdx.x] = use ? x : 1.0f; }
extern "C" __global__ void trap(int* o) { if (o[0]) __builtin_trap(); }
`;

const LINES = `extern "C" __global__ void turn(float* o) {
  __shared__ float s[256];
  s[threadIdx.x] = threadIdx.x;
  o[threadIdx.x] = s[255 - threadIdx.x];
}
`;

for (const target of ['gfx90a', 'gfx1030']) {
  const skip = missing(target);
  const code = skip ? new Uint8Array() : hiprtc(SOURCE, target, ['-O2']);
  const fails = (f: () => unknown, pattern: RegExp): void =>
    assert.throws(
      f,
      (e: unknown) =>
        e instanceof EmulatorError && pattern.test(e.message) && assert.ok(e.finding.instruction) === undefined,
    );
  const words = (r: LaunchReport): string[] => r.findings.map((f) => f.what.split(':')[0]);

  test(`${target}: an access past an allocation names the work-item`, { skip }, () => {
    const b = new Bench(target);
    const [a, o] = [b.buffer(1000 * 4), b.buffer(1000 * 4)];
    b.launch(code, 'copy', 4, 256, [{ p: a }, { p: o }, 1000]);
    fails(
      () => b.launch(code, 'copy', 4, 256, [{ p: a }, { p: o }, 1001]),
      /out of bounds: 4 bytes.*work-item \(232, 0, 0\) of group \(3, 0, 0\)/,
    );
  });
  test(`${target}: freed memory and null are out of bounds`, { skip }, () => {
    const b = new Bench(target);
    const [a, o] = [b.buffer(4096), b.buffer(4096)];
    b.gpu.memory.release(a);
    fails(() => b.launch(code, 'copy', 1, 64, [{ p: a }, { p: o }, 64]), /out of bounds/);
    fails(() => b.launch(code, 'copy', 1, 64, [{ p: 0 }, { p: o }, 64]), /the null page/);
  });
  test(`${target}: an LDS index past the array`, { skip }, () => {
    const b = new Bench(target);
    const at = new Int32Array(256).map((_, i) => i);
    const o = b.buffer(1024);
    b.launch(code, 'gather', 1, 256, [{ p: b.buffer(at) }, { p: o }]);
    at[77] = 256;
    fails(
      () => b.launch(code, 'gather', 1, 256, [{ p: b.buffer(at) }, { p: o }]),
      /LDS offset 1024 of 1024 bytes.*work-item \(77, 0, 0\)/,
    );
  });
  test(`${target}: a removed barrier is a race, with it there is none`, { skip }, () => {
    const b = new Bench(target, { checked: true });
    const o = b.buffer(new Float32Array(256));
    assert.deepEqual(b.launch(code, 'reverse', 1, 256, [{ p: o }, 1]).findings, []);
    assert.ok(
      words(b.launch(code, 'reverse', 1, 256, [{ p: o }, 0])).some((w) => w === 'race' || w === 'uninitialised LDS'),
    );
  });
  test(`${target}: LDS that was never written`, { skip }, () => {
    const b = new Bench(target, { checked: true });
    const o = b.buffer(1024);
    assert.deepEqual(b.launch(code, 'unwritten', 1, 256, [{ p: o }, 256]).findings, []);
    const r = b.launch(code, 'unwritten', 1, 256, [{ p: o }, 200]);
    assert.deepEqual(words(r), ['uninitialised LDS', 'undefined']); // and the result shows it
    assert.deepEqual(r.findings[0].item, [200, 0, 0]);
  });
  test(`${target}: a barrier that part of a group does not reach`, { skip }, () => {
    const b = new Bench(target, { checked: true });
    const o = b.buffer(1024);
    assert.deepEqual(words(b.launch(code, 'halfwave', 1, 256, [{ p: o }, 256])), []);
    assert.ok(words(b.launch(code, 'halfwave', 1, 256, [{ p: o }, 100])).includes('divergent barrier'));
    assert.ok(words(b.launch(code, 'halfwave', 1, 256, [{ p: o }, 128])).includes('divergent barrier'));
  });
  test(`${target}: groups that write one word race, by atomics they do not`, { skip }, () => {
    const b = new Bench(target, { checked: true });
    const o = b.buffer(new Int32Array(1));
    assert.deepEqual(b.launch(code, 'sum', 4, 64, [{ p: o }, 1]).findings, []);
    assert.deepEqual(b.read(Int32Array, o, 4)[0], 256);
    assert.ok(words(b.launch(code, 'sum', 4, 64, [{ p: o }, 0])).includes('race'));
  });
  test(`${target}: data handed from group to group by an atomic counter is not a race`, { skip }, () => {
    const b = new Bench(target, { checked: true });
    const [part, done, o] = [b.buffer(256), b.buffer(new Uint32Array(1)), b.buffer(4)];
    assert.deepEqual(b.launch(code, 'last_block', 8, 64, [{ p: part }, { p: done }, { p: o }]).findings, []);
    assert.equal(b.read(Float32Array, o, 4)[0], 28);
  });
  test(`${target}: a result that depends on a register never written`, { skip }, () => {
    const b = new Bench(target, { checked: true });
    const o = b.buffer(new Float32Array(64));
    assert.deepEqual(b.launch(code, 'undefined_register', 1, 64, [{ p: o }, 0]).findings, []);
    assert.deepEqual(words(b.launch(code, 'undefined_register', 1, 64, [{ p: o }, 1])), ['undefined']);
  });
  test(`${target}: misaligned words`, { skip }, () => {
    const b = new Bench(target, { checked: true });
    const [p, o] = [b.buffer(new Uint8Array(1024)), b.buffer(1024)];
    assert.deepEqual(b.launch(code, 'odd', 1, 64, [{ p }, { p: o }, 4]).findings, []);
    assert.deepEqual(words(b.launch(code, 'odd', 1, 64, [{ p }, { p: o }, 2])), ['misaligned']);
  });
  test(`${target}: an endless loop ends with an error`, { skip }, () => {
    const b = new Bench(target, { maxBlocks: 200_000 });
    assert.throws(
      () => b.launch(code, 'endless', 1, 64, [{ p: b.buffer(new Int32Array(2)) }]),
      /endless: still running after 200000 blocks/,
    );
  });
  test(`${target}: a trap names its instruction`, { skip }, () => {
    const b = new Bench(target);
    b.launch(code, 'trap', 1, 64, [{ p: b.buffer(new Int32Array(1)) }]);
    assert.throws(
      () => b.launch(code, 'trap', 1, 64, [{ p: b.buffer(new Int32Array([1])) }]),
      /trap: trap 2 by "s_trap 2"/,
    );
  });
  test(`${target}: with line tables, errors and races quote the source line`, { skip }, () => {
    const lines = hiprtc(LINES, target, ['-O2', '-gline-tables-only', '-gdwarf-5', '-gembed-source']);
    const b = new Bench(target, { checked: true });
    const o = b.buffer(1024);
    const found = b
      .launch(lines, 'turn', 1, 256, [{ p: o }])
      .findings.find((f) => f.what.startsWith('race') || f.what.startsWith('uninitialised'));
    // Later compilers add the ending to the source's name.
    assert.equal(found?.source?.replace('test.hip', 'test'), 'test:4: "o[threadIdx.x] = s[255 - threadIdx.x];"');
    fails(
      () => b.launch(lines, 'turn', 1, 256, [{ p: b.buffer(1020) }]),
      /out of bounds.*line test(?:\.hip)?:4: "o\[threadIdx\.x\] = s\[255 - threadIdx\.x\];", work-item \(255, 0, 0\)/,
    );
    const plain = hiprtc(LINES, target, ['-O2', '-gline-tables-only']); // version 4 or 5 of the tables, no text
    fails(
      () => b.launch(plain, 'turn', 1, 256, [{ p: b.buffer(1020) }]),
      /out of bounds.*line test(?:\.hip)?:4, work-item/,
    );
  });
  test(`${target}: kernels dropped from the programs kept run again when asked for`, { skip }, () => {
    const b = new Bench(target, { programsKept: 1 });
    const module = b.gpu.load(code, 'kept');
    const data = new Float32Array([1, 2, 3]);
    const [a, o, n] = [b.buffer(data), b.buffer(12), b.buffer(new Int32Array(1))];
    const args = (...words: bigint[]): Uint8Array => new Uint8Array(new BigUint64Array(words).buffer);
    for (let k = 0; k < 3; k++) {
      b.gpu.launch(module, 'copy', [1, 1, 1], [64, 1, 1], args(BigInt(a), BigInt(o), 3n));
      b.gpu.launch(module, 'sum', [1, 1, 1], [64, 1, 1], args(BigInt(n), 1n));
    }
    assert.deepEqual(b.read(Float32Array, o, 12), data);
    assert.equal(b.read(Int32Array, n, 4)[0], 192);
  });
  test(`${target}: counts do not depend on seed or threads`, { skip }, () => {
    const counts = [{ seed: 1 }, { seed: 9 }, { threads: 2 }].map((options) => {
      const b = new Bench(target, options);
      const [a, o] = [b.buffer(new Float32Array(65536)), b.buffer(65536 * 4)];
      const r = b.launch(code, 'copy', 256, 256, [{ p: a }, { p: o }, 65536]);
      b.gpu.close();
      return [r.groups, r.waves, r.lanes, r.read, r.written];
    });
    assert.deepEqual(counts[1], counts[0]);
    assert.deepEqual(counts[2], counts[0]);
    assert.equal(counts[0][3], 65536 * 4);
    assert.equal(counts[0][4], 65536 * 4);
  });
}

test('offsets of scalar loads are read with their sign, and what is not an offset is not a number', () => {
  const offset = (text: string) =>
    parseInstruction({ at: 0, text: `s_load_dword s4, s[4:5], ${text}` } as never).ops[2];
  assert.deepEqual(
    ['0x20', '-0x4', '-0x1c', '8'].map((t) => offset(t).int),
    [32n, -4n, -28n, 8n],
  );
  assert.equal(offset('-4x').kind, 'x');
});
