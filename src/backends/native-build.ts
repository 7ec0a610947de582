// Finds the CPU engine's shared library: prebuilt in an optional package, built before, or built now with the C++ compiler found.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join, posix } from 'node:path';
import { env } from '../base/environment.js';
import { NativeError } from '../base/errors.js';
import { cacheFolder, isIntact, keepAsync, oneAtATimeAsync } from '../base/kept-files.js';
import { nativeDir, packageRoot } from '../base/paths.js';
import { sweep } from '../base/whole-file.js';
import { expressionTable, nativeRows } from '../kernels/expressions.js';
import { opList } from '../ops/table.js';

export type NativeArch = 'x64' | 'arm64';
interface Isa {
  readonly name: string;
  readonly flags: readonly string[];
}
export interface Unit {
  readonly name: string;
  readonly source: string;
  readonly flags: readonly string[];
}

/** Instruction sets compiled into one library; the engine picks one when it is loaded. */
export const ISAS: { readonly [A in NativeArch]: readonly Isa[] } = {
  arm64: [{ name: 'NEON', flags: ['-march=armv8-a'] }],
  x64: [
    { name: 'SSE2', flags: [] },
    { name: 'AVX2', flags: ['-mavx2', '-mfma', '-mf16c', '-mtune=haswell'] },
    {
      name: 'AVX512',
      flags: ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mfma', '-mf16c', '-mprefer-vector-width=512'],
    },
  ],
};
// No flag may change a value: products and sums are rounded one by one, infinities and NaN hold.
export const COMMON_FLAGS = [
  '-std=c++17',
  '-O2',
  '-ftree-vectorize',
  '-fPIC',
  '-fvisibility=hidden',
  '-fwrapv',
  '-fno-strict-aliasing',
  '-ffp-contract=off',
  '-fno-math-errno',
  '-fno-trapping-math',
  '-pthread',
  '-Wall',
  '-Wno-psabi',
  '-Wno-unused-function',
  '-Wno-ignored-attributes',
];
// Compiled once for every CPU, and once per instruction set; files of equal names in ops/ and vector/ are the two halves of a family.
const BASELINE = [
  ...['engine', 'threads', 'strided'].map((f) => `engine/${f}`),
  ...['attention', 'cast', 'conv', 'indexing', 'matmul', 'pool', 'quantized', 'random', 'reduce', 'rows', 'sort'].map(
    (f) => `ops/${f}`,
  ),
];
const PER_ISA = ['matmul', 'rows', 'reduce', 'cast', 'attention', 'quantized', 'peak'].map((f) => `vector/${f}`);
/** Products of whole numbers once more, for CPUs of the last instruction set that multiply and add four bytes at a time. */
const DOT: { readonly [A in NativeArch]: { readonly name: string; readonly flags: readonly string[] } } = {
  arm64: { name: 'dotprod', flags: ['-march=armv8.2-a+dotprod'] },
  x64: { name: 'vnni', flags: ['-mavx512vnni'] },
};
const objectName = (source: string): string => source.replace('/', '-');
const ELEMENTWISE_PARTS = 5;
const COMPILERS = ['g++', 'clang++', 'c++'];

/** What is compiled, largest first so that two jobs end together. */
export function units(arch: NativeArch): Unit[] {
  const isaUnits = ISAS[arch].flatMap(({ name, flags }) => [
    ...Array.from({ length: ELEMENTWISE_PARTS }, (_, part) => ({
      name: `vector-elementwise-${part}-${name}`,
      source: 'vector/elementwise.cpp',
      flags: [...flags, `-DWICK_ISA_${name}`, `-DWICK_PART=${part}`],
    })),
    ...PER_ISA.map((file) => ({
      name: `${objectName(file)}-${name}`,
      source: `${file}.cpp`,
      flags: [...flags, `-DWICK_ISA_${name}`],
    })),
  ]);
  const best = ISAS[arch][ISAS[arch].length - 1];
  const dot = {
    name: `vector-quantized-${DOT[arch].name}`,
    source: 'vector/quantized.cpp',
    flags: [...best.flags, ...DOT[arch].flags, `-DWICK_ISA_${best.name}`, `-DWICK_DOT=${DOT[arch].name}`],
  };
  return [...isaUnits, dot, ...BASELINE.map((file) => ({ name: objectName(file), source: `${file}.cpp`, flags: [] }))];
}

/** The generated headers by file name. */
export const generatedHeaders = (): Record<string, string> => ({
  'table.h': expressionTable(opList),
  'rows.h': nativeRows(opList),
});

const hash = (...parts: readonly string[]): string => {
  const h = createHash('sha256');
  for (const p of parts) h.update(p).update('\0');
  return h.digest('hex').slice(0, 24);
};

/** The optional package that carries the engine prebuilt. */
export const enginePackage = (arch: NativeArch): string => `@wick-native/linux-${arch}`;

export const hostArch = (): NativeArch => {
  if (process.platform === 'linux' && (process.arch === 'x64' || process.arch === 'arm64')) return process.arch;
  throw new NativeError(`the CPU engine runs on Linux x64 and arm64, not on ${process.platform} ${process.arch}`);
};

function compiler(): { path: string; version: string } | undefined {
  const named = env('CXX');
  for (const path of named ? [named] : COMPILERS) {
    const r = spawnSync(path, ['--version'], { encoding: 'utf8' });
    if (r.status === 0) return { path, version: r.stdout };
  }
  return undefined;
}

interface Plan {
  readonly library: string;
  readonly compiler: string;
  readonly objects: readonly { readonly file: string; readonly unit: Unit }[];
  readonly headers: string;
  readonly generated: Record<string, string>;
}

const INCLUDE = /^#include "([^"]+)"/gm;

/** A source and every file of ours that it includes, by path: what its object depends on. */
function textsOf(
  path: string,
  read: (path: string) => string,
  generated: Record<string, string>,
  seen = new Map<string, string>(),
): Map<string, string> {
  if (seen.has(path)) return seen;
  const text = path.startsWith('generated/') ? generated[path.slice('generated/'.length)] : read(path);
  seen.set(path, text);
  for (const [, name] of text.matchAll(INCLUDE))
    textsOf(name.includes('/') ? name : `${posix.dirname(path)}/${name}`, read, generated, seen);
  return seen;
}

function plan(arch: NativeArch, cxx: { path: string; version: string }, root: string): Plan {
  if (!existsSync(nativeDir))
    throw new NativeError('the CPU engine: the folder native/ with its sources is not part of this installation');
  const read = (name: string): string => readFileSync(join(nativeDir, name), 'utf8');
  const generated = generatedHeaders();
  const objects = units(arch).map((unit) => {
    const key = hash(cxx.version, ...COMMON_FLAGS, ...unit.flags, ...textsOf(unit.source, read, generated).values());
    return { file: join(root, 'objects', `${unit.name}-${key}.o`), unit };
  });
  const key = hash(arch, ...objects.map((o) => o.file));
  return { library: join(root, key, 'libwick.so'), compiler: cxx.path, objects, headers: join(root, key), generated };
}

interface Prebuilt {
  readonly library?: string;
  /** Why a package that is there does not serve. */
  readonly unfit?: string;
}

function prebuilt(arch: NativeArch): Prebuilt {
  const require = createRequire(import.meta.url);
  const versionOf = (file: string): string => (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
  const name = enginePackage(arch);
  let manifest: string;
  try {
    manifest = require.resolve(`${name}/package.json`);
  } catch {
    return {}; // the optional package is not installed
  }
  const [theirs, ours] = [versionOf(manifest), versionOf(join(packageRoot, 'package.json'))];
  const library = join(dirname(manifest), 'libwick.so');
  if (theirs !== ours) return { unfit: `${name} is version ${theirs}, but this is wick ${ours}` };
  return existsSync(library) ? { library } : { unfit: `${library} is missing` };
}

function engineFolder(writable: boolean): string {
  try {
    return cacheFolder('native', writable);
  } catch (cause) {
    throw new NativeError(`the CPU engine cannot be built: ${(cause as Error).message}`, { cause });
  }
}

/** The path of the shared library; a NativeError says what is missing. Blocks while it builds. */
export function ensureNative(): string {
  const arch = hostArch();
  const named = env('WICK_NATIVE');
  if (named) return named;
  const { library: ready, unfit } = prebuilt(arch);
  if (ready) return ready;
  const cxx = compiler();
  if (!cxx) {
    throw new NativeError(
      `the CPU engine is not built: ${unfit ?? `no prebuilt package ${enginePackage(arch)}`} and no C++ compiler (${env('CXX') ?? COMPILERS.join(', ')}); install one, for instance with: apt install g++`,
    );
  }
  const before = plan(arch, cxx, engineFolder(false)).library;
  if (isIntact(before)) return before;
  const { library } = plan(arch, cxx, engineFolder(true));
  if (isIntact(library)) return library;
  // Compiling in parallel needs an event loop; the caller has none to give.
  const child = spawnSync(
    process.execPath,
    ['-e', `import(${JSON.stringify(import.meta.url)}).then((m) => m.buildNative())`],
    {
      encoding: 'utf8',
      stdio: ['ignore', 'ignore', 'pipe'],
      maxBuffer: 1 << 26,
    },
  );
  if (child.status !== 0 || !isIntact(library)) {
    throw new NativeError(`the CPU engine could not be built with ${cxx.path}: ${firstErrors(child.stderr)}`);
  }
  return library;
}

const firstErrors = (text: string): string => {
  const lines = text.split('\n').filter((l) => /error|Error/.test(l));
  return (lines.length > 0 ? lines : text.split('\n')).slice(0, 5).join('\n');
};

function run(command: string, args: readonly string[]): Promise<void> {
  return new Promise((done, failed) => {
    const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let text = '';
    child.stderr.on('data', (d) => (text += d));
    child.on('error', failed);
    child.on('close', (code) => (code === 0 ? done() : failed(new NativeError(text))));
  });
}

const link = (p: Plan, flags: readonly string[], to: string): Promise<void> =>
  run(p.compiler, [
    '-shared',
    '-pthread',
    ...flags,
    '-Wl,--no-undefined',
    '-o',
    to,
    ...p.objects.map((o) => o.file),
    '-lm',
  ]);

/** Builds the library into the cache unless it is there; answers its path. With `copy`, one that needs no C++ run time is linked there too. */
export async function buildNative(copy?: string): Promise<string> {
  const cxx = compiler();
  if (!cxx) throw new NativeError('no C++ compiler');
  const p = plan(hostArch(), cxx, engineFolder(true));
  mkdirSync(dirname(p.library), { recursive: true });
  await oneAtATimeAsync(`${dirname(p.library)}.lock`, async () => {
    const waiting = p.objects.filter((o) => !isIntact(o.file));
    if (isIntact(p.library) && !(copy && waiting.length > 0)) return;
    mkdirSync(dirname(p.objects[0].file), { recursive: true });
    for (const dir of [dirname(p.objects[0].file), dirname(p.library)]) sweep(dir);
    mkdirSync(join(p.headers, 'generated'), { recursive: true });
    for (const [name, text] of Object.entries(p.generated)) writeFileSync(join(p.headers, 'generated', name), text);
    const job = async (): Promise<void> => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const { file, unit } = next;
        await keepAsync(file, (part) =>
          run(p.compiler, [
            ...COMMON_FLAGS,
            ...unit.flags,
            `-I${nativeDir}`,
            `-I${p.headers}`,
            '-c',
            join(nativeDir, unit.source),
            '-o',
            part,
          ]),
        );
      }
    };
    await Promise.all(Array.from({ length: Math.max(2, Math.min(8, availableParallelism())) }, job));
    await keepAsync(p.library, (part) => link(p, [], part));
  });
  if (copy) await link(p, ['-static-libstdc++', '-static-libgcc', '-s'], copy);
  return p.library;
}
