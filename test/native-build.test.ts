// Getting the CPU engine onto a machine: a prebuilt package, a build shared by processes, and what is said where neither can be had.
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
import { enginePackage, hostArch, units } from '../src/backends/native-build.js';

const folder = mkdtempSync(join(tmpdir(), 'wick-native-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const href = (path: string): string => JSON.stringify(new URL(path, import.meta.url).href);
const ENSURE = `import(${href('../src/backends/native-build.js')}).then((m) => console.log(m.ensureNative()))`;
const COMPUTE = `import(${href('../src/index.js')}).then((w) => { const d = w.Device.get('cpu'); console.log(d.backend.constructor.name, String(w.Tensor.from([1, 2], { device: d }).exp().sum().item())); })`;
const NOWHERE = join(folder, 'nowhere');
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
  assert.equal(asked(log, '-c').length, units(hostArch()).length);
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

test('a cache that cannot be written gives way to a folder of the user among the temporary files, unless others may write there', () => {
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
});

test('without a compiler and without a package a sentence says so, and the reference engine serves', () => {
  const { status, stdout, stderr } = child(COMPUTE, {
    PATH: NOWHERE,
    CXX: undefined,
    WICK_CACHE_DIR: fresh(),
    WICK_CPU_ISA: undefined,
  });
  assert.equal(status, 0, stderr);
  assert.match(
    stderr,
    /the CPU engine is not built: no prebuilt package @wick-native\/linux-\w+ and no C\+\+ compiler \(g\+\+, clang\+\+, c\+\+\); install one/,
  );
  assert.match(stderr, /slow reference engine/);
  assert.match(stdout, /^ReferenceBackend 10\.1073/);
});

const host = spawnSync('c++', ['--version']).status === 0 ? false : 'no C++ compiler to make a package with';
test('the package that release:engine makes is found beside others and computes without a compiler; one of another version is not used', {
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
    new RegExp(`is version 0\\.0\\.1, but this is wick ${version.replaceAll('.', '\\.')} and no C\\+\\+ compiler`),
  );
});
