// Run-time compilation with the compilers this machine has: code for several targets, logs on errors, no crash on
// unknown targets.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { hiprtc7Command } from '../scripts/fetch-rocm.js';
import { CompileError } from '../src/base/errors.js';
import type { Compiler } from '../src/driver/compiler.js';
import { KernelCache } from '../src/kernels/cache.js';
import { compile, compilerFor } from '../src/kernels/compile.js';

const SOURCE = `extern "C" __global__ void scale(float *out, const float *x, float a, unsigned int n) {
  unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + (float)WICK_WAVE + (float)EXTRA;
}`;
const isElf = (c: Uint8Array): boolean => Buffer.from(c.subarray(1, 4)).toString() === 'ELF';
const dir = mkdtempSync(join(tmpdir(), 'wick-compile-'));
after(() => rmSync(dir, { recursive: true, force: true }));

const FAMILIES = {
  hipRTC: { targets: ['gfx906', 'gfx908', 'gfx90a', 'gfx1030'], any: 'gfx1030', unknown: 'gfx9999' },
  NVRTC: { targets: ['sm_80', 'sm_90'], any: 'sm_80', unknown: 'sm_10' },
} as const;
for (const [name, family] of Object.entries(FAMILIES)) {
  const compiler = compilerFor(family.any);
  describe(name, { skip: typeof compiler === 'string' && compiler }, () => {
    for (const arch of family.targets) {
      test(`compiles for ${arch}`, () => {
        const code = compile(SOURCE, 'scale.hip', { arch, defines: { EXTRA: 1 }, cache: false });
        assert.ok(isElf(code));
        assert.ok(Buffer.from(code).includes('scale'), 'the symbol is in the code');
      });
    }
    test('errors in the source come with the log', () => {
      assert.throws(
        () => compile('extern "C" __global__ void f() { oops; }', 'bad.hip', { arch: family.any, cache: false }),
        (e) =>
          e instanceof CompileError &&
          /bad\.hip/.test(e.message) &&
          /oops/.test(e.message) &&
          e.message.includes(family.any),
      );
    });
    test('an unknown target is an error, not a crash', () => {
      assert.throws(
        () => compile(SOURCE, 'scale.hip', { arch: family.unknown, cache: false }),
        (e) => e instanceof CompileError && e.message.includes(family.unknown),
      );
    });
    test('contraction is off', () => {
      const source = 'extern "C" __global__ void f(float *o, float a, float b) { o[0] = a * b + o[1]; }';
      const options = (compiler as Compiler).options({ arch: family.any, defines: {} });
      assert.ok(options.some((o) => o === '-ffp-contract=off' || o === '--fmad=false'));
      assert.ok(compile(source, 'f.hip', { arch: family.any, cache: false }).length > 0);
    });
    test('the second time it comes from the cache', () => {
      const cache = new KernelCache(join(dir, name));
      const options = { arch: family.any, defines: { EXTRA: 2 }, cache };
      const first = compile(SOURCE, 'scale.hip', options);
      const second = compile(SOURCE, 'scale.hip', options);
      assert.deepEqual(Buffer.from(second), Buffer.from(first));
      compile(SOURCE, 'scale.hip', { ...options, defines: { EXTRA: 3 } });
      const { hits, misses, entries } = cache.stats();
      assert.deepEqual({ hits, misses, entries }, { hits: 1, misses: 2, entries: 2 });
    });
    if (name === 'NVRTC') {
      test('compute targets give PTX text', () => {
        const ptx = Buffer.from(
          compile(SOURCE, 'scale.hip', { arch: 'compute_80', defines: { EXTRA: 1 }, cache: false }),
        ).toString();
        assert.match(ptx, /\.target sm_80/);
        assert.ok(!ptx.includes('\0'));
        assert.ok(!/fma\.rn\.f32/.test(ptx), 'no contraction');
      });
      test('a GPU newer than the compiler gets PTX', () => {
        const code = compile(SOURCE, 'scale.hip', { arch: 'sm_999', defines: { EXTRA: 1 }, cache: false });
        assert.match(Buffer.from(code).toString(), /\.target sm_/);
      });
    }
  });
}

test('targets of no vendor are refused', () => {
  assert.throws(
    () => compile(SOURCE, 'scale.hip', { arch: 'avx2' }),
    (e) => e instanceof CompileError && /no compiler makes code for 'avx2'/.test(e.message),
  );
});

test('without libraries the sentence says what was looked for', () => {
  const script = join(dir, 'absent.mjs');
  const at = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
  writeFileSync(
    script,
    `
    import { LIBCUDA } from ${at('../src/driver/cuda-version.js')};
    import { openLibrary, libraryReports } from ${at('../src/driver/ffi.js')};
    const said = openLibrary({ ...LIBCUDA, name: 'libabsent', sonames: ['libabsent-wick.so.9', 'libabsent-wick.so'] });
    console.log(JSON.stringify({ said, reports: libraryReports() }));`,
  );
  const r = spawnSync(process.execPath, [script], {
    encoding: 'utf8',
    env: { ...process.env, WICK_LIBRARY_PATH: dir },
  });
  const { said, reports } = JSON.parse(r.stdout) as { said: string; reports: { name: string; missing: string }[] };
  assert.match(
    said,
    /libabsent was not found: looked for libabsent-wick\.so\.9, libabsent-wick\.so in the loader's path and /,
  );
  assert.ok(said.includes(dir), 'WICK_LIBRARY_PATH is among the places');
  assert.equal(reports[0].missing, said);
});

test('a file that is not a library is named with the reason', () => {
  writeFileSync(join(dir, 'libbroken-wick.so.1'), 'not an ELF file');
  const script = join(dir, 'broken.mjs');
  writeFileSync(
    script,
    `
    import { openLibrary } from ${JSON.stringify(new URL('../src/driver/ffi.js', import.meta.url).href)};
    console.log(openLibrary({ name: 'libbroken', sonames: ['libbroken-wick.so.1'], vendor: 'host' }));`,
  );
  const r = spawnSync(process.execPath, [script], {
    encoding: 'utf8',
    env: { ...process.env, WICK_LIBRARY_PATH: dir },
  });
  assert.match(r.stdout, /libbroken was not found: .*; not loadable: .*libbroken-wick\.so\.1: /);
});

const seven = hiprtc7Command();
test('hipRTC 7 compiles for gfx942, gfx1100 and gfx1201', { skip: typeof seven === 'string' && seven }, () => {
  const script = join(dir, 'seven.mjs');
  writeFileSync(
    script,
    `
    import { compile, compilerFor } from ${JSON.stringify(new URL('../src/kernels/compile.js', import.meta.url).href)};
    const sizes = ['gfx942', 'gfx1100', 'gfx1201'].map((arch) => compile(${JSON.stringify(SOURCE)}, 'scale.hip', { arch, defines: { EXTRA: 1 }, cache: false }).length);
    console.log(JSON.stringify({ version: compilerFor('gfx942').version, sizes }));`,
  );
  const [command, ...args] = seven as string[];
  const r = spawnSync(command, [...args, script], { encoding: 'utf8', env: { ...process.env, AMD_COMGR_CACHE: '0' } });
  assert.equal(r.status, 0, r.stderr);
  const { version, sizes } = JSON.parse(r.stdout) as { version: string; sizes: number[] };
  assert.match(version, /^7\./);
  assert.ok(sizes.every((s) => s > 1000));
});
