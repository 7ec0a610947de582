// Getting the CPU engine onto a machine: a prebuilt package, a build shared by processes, and what is said where
// neither can be had.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';
import { nativeDir } from '../src/base/paths.js';
import { hostArch, hostInstructionSet, INSTRUCTION_SETS } from '../src/backends/cpu/instruction-sets.js';
import { textsOf, units } from '../src/backends/cpu/units.js';
import { enginePackage } from '../src/backends/native-build.js';
import { shippedWasm } from '../src/backends/wasm-build.js';

const folder = mkdtempSync(join(tmpdir(), 'wick-native-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const href = (path: string): string => JSON.stringify(new URL(path, import.meta.url).href);
const ENSURE = `import(${href('../src/backends/native-build.js')}).then((m) => console.log(m.ensureNative()))`;
const COMPUTE =
  `import(${href('../src/index.js')}).then((w) => { const d = w.Device.get('cpu'); ` +
  'console.log(d.backend.constructor.name, String(w.Tensor.from([1, 2], { device: d }).exp().sum().item())); })';
const NOWHERE = join(folder, 'nowhere');
const host = spawnSync('c++', ['--version']).status === 0 ? false : 'no C++ compiler to make a package with';
let count = 0;
const fresh = (): string => join(folder, `cache-${count++}`);

/** A compiler that writes down what it was asked and makes empty files; sources named by BROKEN do not compile. */
function fakeCompiler(): { path: string; log: string } {
  const [path, log] = [join(folder, `cxx-${count}`), join(folder, `log-${count++}`)];
  writeFileSync(
    path,
    `#!/bin/sh
[ "$1" = --version ] && { echo 'compiler of a test 1.0'; exit 0; }
for a in "$@"; do [ "$before" = -o ] && out=$a; case $a in *.cpp) source=$a;; esac; before=$a; done
echo "$source $*" >> '${log}'
case $source in */"$BROKEN".cpp) echo "$source:1:1: error: broken on purpose" >&2; exit 1;; esac
echo > "$out"
`,
  );
  chmodSync(path, 0o755);
  return { path, log };
}
const child = (code: string, env: NodeJS.ProcessEnv) => {
  const { WICK_NATIVE: _, ...rest } = process.env;
  return spawnSync(process.execPath, ['-e', code], { encoding: 'utf8', env: { ...rest, ...env } });
};
const asked = (log: string, flag: string): string[] =>
  readFileSync(log, 'utf8')
    .split('\n')
    .filter((l) => l.includes(` ${flag} `));

test('a sanitized engine is built beside the usual one: all but the generated rows have the checks', () => {
  const { path, log } = fakeCompiler();
  const build =
    `import(${href('../src/backends/native-build.js')}).then((m) => m.buildNative({ sanitize: true ` +
    '})).then(console.log)';
  const made = child(build, { CXX: path, WICK_CACHE_DIR: fresh() });
  assert.equal(made.status, 0, made.stderr);
  const checked = asked(log, '-fsanitize=address').map((l) => l.split(' ')[0]);
  const all = asked(log, '-c').map((l) => l.split(' ')[0]);
  const rows = all.filter((f) => f.includes('/generated/'));
  assert.ok(rows.length > 0 && checked.length > 10);
  assert.deepEqual(
    all.filter((f) => !checked.includes(f)),
    rows,
  );
});

test('two processes that need the engine at once build it once, whole, and not beside its sources', async () => {
  const { path, log } = fakeCompiler();
  const cache = fresh();
  const before = readdirSync(nativeDir);
  const { WICK_NATIVE: _, ...rest } = process.env;
  const both = await Promise.all(
    [0, 1].map(
      () =>
        new Promise<string>((done) => {
          const p = spawn(process.execPath, ['-e', ENSURE], { env: { ...rest, CXX: path, WICK_CACHE_DIR: cache } });
          let out = '';
          p.stdout.on('data', (d) => (out += d));
          p.on('close', () => done(out.trim()));
        }),
    ),
  );
  assert.ok(both[0].startsWith(cache) && existsSync(both[0]), both[0]);
  assert.equal(both[0], both[1]);
  assert.equal(asked(log, '-c').length, units([hostInstructionSet(hostArch())]).length);
  assert.equal(asked(log, '-shared').length, 1);
  assert.deepEqual(
    readdirSync(join(cache, 'native', 'objects')).filter((f) => !/\.o(\.sha256)?$/.test(f)),
    [],
  );
  assert.deepEqual(
    readdirSync(join(cache, 'native')).filter((f) => f.endsWith('.lock')),
    [],
  );
  assert.deepEqual(readdirSync(nativeDir), before);
});

test('a builder that died leaves no one waiting', () => {
  const { path } = fakeCompiler();
  const env = { CXX: path, WICK_CACHE_DIR: fresh() };
  const library = child(ENSURE, env).stdout.trim();
  rmSync(library);
  const lock = `${dirname(library)}.lock`;
  mkdirSync(lock);
  writeFileSync(join(lock, 'owner'), String(spawnSync('true').pid));
  assert.equal(child(ENSURE, env).stdout.trim(), library);
});

test('a source that does not compile is named with its error, and the next try builds', () => {
  const { path, log } = fakeCompiler();
  const env = { CXX: path, WICK_CACHE_DIR: fresh() };
  const failed = child(ENSURE, { ...env, BROKEN: 'sort' });
  assert.notEqual(failed.status, 0);
  assert.match(failed.stderr, /the CPU engine could not be built with .*cxx.*sort\.cpp:1:1: error: broken on purpose/s);
  assert.equal(asked(log, '-shared').length, 0);
  assert.ok(existsSync(child(ENSURE, env).stdout.trim()));
});

test(
  'a cache that cannot be written gives way to a folder of the user among the temporary files, unless others ' +
    'may write there',
  () => {
    const { path } = fakeCompiler();
    const temporary = fresh();
    mkdirSync(temporary);
    const env = { CXX: path, WICK_CACHE_DIR: '/dev/null/cache', TMPDIR: temporary };
    const library = child(ENSURE, env).stdout.trim();
    const own = join(temporary, `wick-${process.getuid?.()}`);
    assert.ok(library.startsWith(own) && existsSync(library), library);
    rmSync(library);
    chmodSync(own, 0o777);
    assert.match(
      child(ENSURE, env).stderr,
      /the CPU engine cannot be built: nothing can be kept: .*\/dev\/null\/cache.* no folder of this user alone in .*; set WICK_CACHE_DIR/,
    );
  },
);

/** What serves where no shared library of the engine does. */
const wasm = existsSync(shippedWasm());
const INSTEAD = wasm ? /^CpuBackend 10\.1073/ : /^ReferenceBackend 10\.1073/;

test(
  'without a compiler and without a package a sentence says so, and WebAssembly or the reference engine ' + 'serves',
  () => {
    const { status, stdout, stderr } = child(COMPUTE, {
      PATH: NOWHERE,
      CXX: undefined,
      WICK_CACHE_DIR: fresh(),
      WICK_CPU_ISA: undefined,
    });
    assert.equal(status, 0, stderr);
    assert.match(
      stderr,
      /the CPU engine is not built: no prebuilt package @wick-native\/linux-\w+, none in the cache, and no C\+\+ compiler \(g\+\+, clang\+\+, c\+\+\); install one/,
    );
    assert.match(stderr, wasm ? /runs as WebAssembly/ : /slow reference engine/);
    assert.match(stdout, INSTEAD);
  },
);

test('the test runner ends with what the compiler says where the engine does not compile, or does not load', () => {
  const { WICK_NATIVE: _, WICK_CPU_ISA: __, ...rest } = process.env;
  const tests = (env: NodeJS.ProcessEnv) =>
    spawnSync(process.execPath, [new URL('../scripts/test.js', import.meta.url).pathname, 'rooms'], {
      encoding: 'utf8',
      env: { ...rest, CXX: fakeCompiler().path, WICK_CACHE_DIR: fresh(), ...env },
    });
  for (const [env, sentence] of [
    [{ BROKEN: 'strided' }, /strided\.cpp:1:1: error: broken on purpose/],
    [{}, /not loadable: .*libwick\.so: it is no ELF file/], // the fake compiler's library is empty
    [{ WICK_CPU_ISA: 'mmx' }, /WICK_CPU_ISA is "mmx"; known are .*wasm, reference/],
  ] as const) {
    const { status, stdout, stderr } = tests(env);
    assert.match(stderr, sentence);
    assert.match(stderr, /No test ran\. WICK_CPU_ISA=reference runs them/);
    assert.deepEqual([status, stdout], [2, '']);
  }
});
test('WICK_CPU_ISA=reference chooses the reference engine, without a word and without a compiler', () => {
  const { stdout, stderr } = child(COMPUTE, { PATH: NOWHERE, WICK_CACHE_DIR: fresh(), WICK_CPU_ISA: 'reference' });
  assert.match(stdout, /^ReferenceBackend 10\.1073/);
  assert.equal(stderr, '');
});

test('an engine built while there was a compiler serves without one, unless it is damaged', () => {
  const { path } = fakeCompiler();
  const cache = fresh();
  const built = child(ENSURE, { CXX: path, WICK_CACHE_DIR: cache }).stdout.trim();
  const without = { PATH: NOWHERE, CXX: undefined, WICK_CACHE_DIR: cache };
  assert.equal(child(ENSURE, without).stdout.trim(), built);
  writeFileSync(built, 'half');
  assert.match(child(ENSURE, without).stderr, /none in the cache/);
});

test('an engine is built for the best instruction set that the CPU has, or the one named', () => {
  const flags = (text: string): ReadonlySet<string> => new Set(text.split(' '));
  const avx2 = 'sse2 avx2 fma f16c';
  assert.equal(hostInstructionSet('x64', flags('sse2')).name, 'sse2');
  assert.equal(hostInstructionSet('x64', flags('sse2 avx2')).name, 'sse2', 'avx2 without fma is not enough');
  assert.equal(hostInstructionSet('x64', flags(avx2)).name, 'avx2');
  assert.equal(hostInstructionSet('x64', flags(`${avx2} avx512f avx512bw avx512dq avx512vl`)).name, 'avx512');
  assert.equal(hostInstructionSet('arm64', flags('')).name, 'neon');
  const quantized = (arch: 'x64' | 'arm64', has: string): string[] =>
    units([hostInstructionSet(arch, flags(has))]).flatMap((u) => (/^vector-quantized/.test(u.name) ? [u.name] : []));
  assert.deepEqual(quantized('arm64', ''), ['vector-quantized-neon']);
  assert.deepEqual(quantized('arm64', 'asimddp'), ['vector-quantized-dotprod'], 'and nothing that it does not need');
  assert.deepEqual(quantized('arm64', 'asimddp i8mm'), ['vector-quantized-i8mm'], 'the best alone');
  assert.deepEqual(quantized('arm64', 'i8mm'), ['vector-quantized-neon'], 'i8mm without dot products is not enough');
  const released = units(INSTRUCTION_SETS.arm64).filter((u) => /^vector-quantized/.test(u.name));
  assert.deepEqual(
    released.map(({ name, flags }) => [name.slice('vector-quantized-'.length), flags.at(-1)]),
    [
      ['neon', '-DWICK_ISA_NEON'],
      ['dotprod', '-DWICK_DOT=dotprod'],
      ['i8mm', '-DWICK_DOT=i8mm'],
    ],
    'a release',
  );
  const all = new Set(units(INSTRUCTION_SETS.x64).map((u) => u.name));
  for (const { name } of INSTRUCTION_SETS.x64) assert.ok(all.has(`vector-matmul-${name}`), name);
  assert.equal(units([INSTRUCTION_SETS.x64[1]]).filter((u) => /(sse2|avx512)$/.test(u.name)).length, 0);
});

test('an object depends on the files that its source includes, and a row on its own file alone', () => {
  const files = units([hostInstructionSet(hostArch())]).map((u) => [u.source, textsOf(u.source)] as const);
  const holders = files.filter(([, texts]) => [...texts.values()].some((t) => t.includes('op_silu(')));
  assert.equal(holders.length, 1);
  assert.match(holders[0][0], /^generated\/elementwise-\d+\.cpp$/);
  assert.ok(holders[0][1].has('vector/vec.h') && !holders[0][1].has('ops/ops.h'));
  const names = files.filter(([, texts]) => texts.has('generated/names.h')).map(([source]) => source);
  assert.deepEqual(names, ['engine/engine.cpp']);
});

test('an engine that holds no instruction set of this CPU is refused when it is loaded', { skip: host }, () => {
  const source = join(folder, 'foreign.cpp');
  writeFileSync(
    source,
    `extern "C" { int wick_select(const char*) { return 1; } ${['run(double', 'find(const char*', 'threads(int']
      .map((f) => `int wick_${f}) { return 0; }`)
      .join(' ')} double wick_address(void*) { return 0; } void wick_advise(double, double) {}
    const char* wick_isa() { return ""; } void wick_memcpy(double, double, double) {} void wick_read(double, double) {} double wick_peak(double) { return 0; } int wick_run_list(double) { return 0; } }`,
  );
  const library = join(folder, 'foreign.so');
  assert.equal(spawnSync('c++', ['-shared', '-fPIC', '-o', library, source]).status, 0);
  const { WICK_CPU_ISA: _, ...env } = process.env;
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', COMPUTE], {
    encoding: 'utf8',
    env: { ...env, WICK_NATIVE: library, WICK_CACHE_DIR: fresh() }, // the user's may hold WebAssembly
  });
  assert.match(stderr, /the CPU engine .*foreign\.so was built for instructions that this CPU lacks/);
  assert.match(stdout, INSTEAD);
});

test('the package that release:engine makes is found beside others and computes without a compiler; one of ' +
  'another version is not used', {
  skip: host,
}, () => {
  const modules = join(folder, 'installed', 'node_modules');
  const script = new URL('../scripts/release-engine.js', import.meta.url).pathname;
  const made = spawnSync(process.execPath, [script, '--out', modules], { encoding: 'utf8' });
  assert.equal(made.status, 0, made.stderr);
  const manifest = join(modules, enginePackage(hostArch()), 'package.json');
  const { os, cpu, version } = JSON.parse(readFileSync(manifest, 'utf8')) as {
    os: string[];
    cpu: string[];
    version: string;
  };
  assert.deepEqual([os, cpu], [['linux'], [process.arch]]);
  const env = { NODE_PATH: modules, PATH: NOWHERE, CXX: undefined, WICK_CACHE_DIR: fresh() };
  assert.equal(child(ENSURE, env).stdout.trim(), join(dirname(manifest), 'libwick.so'));
  const { stdout, stderr } = child(COMPUTE, env);
  assert.match(stdout, /^CpuBackend 10\.1073/, stderr);

  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(`"version": "${version}"`, '"version": "0.0.1"'));
  assert.match(
    child(ENSURE, env).stderr,
    new RegExp(
      `is version 0\\.0\\.1, but this is wick ${version.replaceAll('.', '\\.')}, none in the cache, and no ` +
        'C\\+\\+ compiler',
    ),
  );
});
