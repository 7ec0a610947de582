// Finds the CPU engine's shared library: prebuilt in an optional package, built before, or built now with the C++
// compiler found.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { isatty } from 'node:tty';
import { env } from '../base/environment.js';
import { NativeError } from '../base/errors.js';
import { cacheFolder, isIntact, keepAsync, oneAtATimeAsync } from '../base/kept-files.js';
import { nativeDir, packageRoot } from '../base/paths.js';
import { sweep } from '../base/whole-file.js';
import {
  hostArch,
  hostInstructionSet,
  INSTRUCTION_SETS,
  type InstructionSet,
  type NativeArch,
} from './cpu/instruction-sets.js';
import { COMMON_FLAGS, generatedFiles, textsOf, type Unit, units } from './cpu/units.js';

const COMPILERS = ['g++', 'clang++', 'c++'];
/** The file descriptor by which a child says how far it is. */
const PROGRESS = 3;

export const hash = (...parts: readonly string[]): string => {
  const h = createHash('sha256');
  for (const p of parts) h.update(p).update('\0');
  return h.digest('hex').slice(0, 24);
};

/** The optional package that carries the engine prebuilt. */
export const enginePackage = (arch: NativeArch): string => `@wick-native/linux-${arch}`;

function compiler(): { path: string; version: string } | undefined {
  const named = env('CXX');
  for (const path of named ? [named] : COMPILERS) {
    const r = spawnSync(path, ['--version'], { encoding: 'utf8' });
    if (r.status === 0) return { path, version: r.stdout };
  }
  return undefined;
}

/**
 * Flags of the address sanitizer: checks are calls and nothing is made fast, so that it compiles within a minute. The
 * generated rows are left as they are: they run over stretches that sanitized code cuts for them.
 */
const SANITIZE = '-fsanitize=address';
const SANITIZED = [
  ...['-O1', '-fno-tree-vectorize', '-g1', '-fno-omit-frame-pointer', SANITIZE],
  ...['--param', 'asan-instrumentation-with-call-threshold=0'],
];
const sanitized = (unit: Unit): Unit =>
  unit.source.startsWith('generated/')
    ? unit
    : { ...unit, name: `${unit.name}-sanitized`, flags: [...unit.flags, ...SANITIZED] };

/** What is compiled, with what, and what becomes of it. */
export interface Plan {
  readonly library: string;
  readonly compiler: string;
  /** Of every object. */
  readonly flags: readonly string[];
  readonly objects: readonly { readonly file: string; readonly unit: Unit }[];
  /** Where the folder generated/ is written. */
  readonly work: string;
  /** Whether the compiler reads headers precompiled as g++ does. */
  readonly precompiles?: boolean;
}

function plan(
  sets: readonly InstructionSet[],
  cxx: { path: string; version: string },
  root: string,
  sanitize = false,
): Plan {
  const objects = units(sets).map((plain) => {
    const unit = sanitize ? sanitized(plain) : plain;
    const key = hash(cxx.version, ...COMMON_FLAGS, ...unit.flags, ...textsOf(unit.source).values());
    return { file: join(root, 'objects', `${unit.name}-${key}.o`), unit };
  });
  const work = join(root, hash(process.arch, ...objects.map((o) => o.file)));
  const precompiles = /Free Software Foundation/.test(cxx.version);
  return { library: join(work, 'libwick.so'), compiler: cxx.path, flags: COMMON_FLAGS, objects, work, precompiles };
}

/** What an engine is made from, whichever compiler makes it: said in a file beside the library. */
const sourcesOf = (sets: readonly InstructionSet[]): string =>
  hash(process.arch, ...units(sets).flatMap((unit) => [unit.name, ...unit.flags, ...textsOf(unit.source).values()]));
const SOURCES = 'sources';

/** An engine of these very sources in the cache, built while there was a compiler: by another container stage, say. */
function builtBefore(sets: readonly InstructionSet[], root: string): string | undefined {
  const wanted = sourcesOf(sets);
  const folders = existsSync(root) ? readdirSync(root).map((name) => join(root, name)) : [];
  return folders
    .filter((f) => existsSync(join(f, SOURCES)) && readFileSync(join(f, SOURCES), 'utf8') === wanted)
    .map((f) => join(f, 'libwick.so'))
    .find(isIntact);
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

export function engineFolder(writable: boolean): string {
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
  const sets = [hostInstructionSet(arch)];
  if (!cxx) {
    const before = builtBefore(sets, engineFolder(false));
    if (before) return before;
    const tried = unfit ?? `no prebuilt package ${enginePackage(arch)}`;
    throw new NativeError(
      `the CPU engine is not built: ${tried}, none in the cache, and no C++ compiler ` +
        `(${env('CXX') ?? COMPILERS.join(', ')}); install one, for instance with: apt install g++`,
    );
  }
  const before = plan(sets, cxx, engineFolder(false)).library;
  if (isIntact(before)) return before;
  const { library } = plan(sets, cxx, engineFolder(true));
  if (isIntact(library)) return library;
  // Compiling in parallel needs an event loop; the caller has none to give.
  const child = spawnSync(
    process.execPath,
    ['-e', `import(${JSON.stringify(import.meta.url)}).then((m) => m.buildNative({ progress: ${PROGRESS} }))`],
    {
      encoding: 'utf8',
      stdio: ['ignore', 'ignore', 'pipe', process.stderr.fd],
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

export function run(command: string, args: readonly string[]): Promise<void> {
  return new Promise((done, failed) => {
    const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let text = '';
    child.stderr.on('data', (d) => (text += d));
    child.on('error', failed);
    child.on('close', (code) => (code === 0 ? done() : failed(new NativeError(text))));
  });
}

const compile = (p: Plan, flags: readonly string[], file: string, to: string): Promise<void> =>
  run(p.compiler, [...p.flags, ...flags, `-I${nativeDir}`, `-I${p.work}`, '-c', file, '-o', to]);

/** Reading isa.h takes most of a second. Where this many files need it with the same flags, it is read once for all. */
const SHARING = 4;
const needsVectors = ({ source }: Unit): boolean => /^(vector|generated)\//.test(source);

/** What each unit's flags need in front, for the units given: a header that is precompiled at the first asking. */
function sharedHeaders(p: Plan, waiting: readonly Unit[]): (unit: Unit) => Promise<readonly string[]> {
  const made = new Map<string, Promise<readonly string[]>>();
  const keyOf = (unit: Unit): string => unit.flags.join(' ');
  const many = (key: string): boolean => waiting.filter((u) => needsVectors(u) && keyOf(u) === key).length >= SHARING;
  const make = async (flags: readonly string[]): Promise<readonly string[]> => {
    const header = join(p.work, 'generated', `vectors-${made.size}.h`);
    writeFileSync(header, '#include "vector/isa.h"\n');
    await compile(p, [...flags, '-x', 'c++-header'], header, `${header}.gch`);
    return ['-include', header];
  };
  return async (unit) => {
    const key = keyOf(unit);
    if (!p.precompiles || !needsVectors(unit) || !many(key)) return [];
    const header = made.get(key) ?? make(unit.flags);
    made.set(key, header);
    return header;
  };
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

/** Says how far a build is: on a terminal one line that is written over, elsewhere a line now and then. */
export function progressOn(fd: number, what: string): (done: number, of: number) => void {
  const [begin, live] = [Date.now(), isatty(fd)];
  let last = begin - EVERY_MS;
  return (done, of) => {
    const now = Date.now();
    if (!live && done < of && now - last < EVERY_MS) return;
    last = now;
    const line = `building the CPU engine for ${what}: ${done} of ${of} files, ${Math.round((now - begin) / 1000)} s`;
    writeSync(fd, live ? `\r${line}${done === of ? '\n' : ''}` : `${line}\n`);
  };
}
const EVERY_MS = 10_000;

export interface BuildOptions {
  /** For every instruction set of the architecture, as a release wants it; else for this machine's alone. */
  readonly everySet?: boolean;
  /** A library that needs no C++ run time is linked there too. */
  readonly copy?: string;
  /** Where to say how far it is: a file descriptor. */
  readonly progress?: number;
  /** With g++'s address sanitizer, for tests: the process that loads it must have been started with libasan. */
  readonly sanitize?: boolean;
}

/** Compiles what is missing of a plan's objects, several at a time. */
export async function compileObjects(p: Plan, say: (done: number, of: number) => void): Promise<void> {
  const waiting = p.objects.filter((o) => !isIntact(o.file));
  mkdirSync(dirname(p.objects[0].file), { recursive: true });
  for (const dir of [dirname(p.objects[0].file), p.work]) sweep(dir);
  mkdirSync(join(p.work, 'generated'), { recursive: true });
  for (const [name, text] of Object.entries(generatedFiles())) writeFileSync(join(p.work, 'generated', name), text);
  const of = waiting.length;
  let done = 0;
  say(done, of);
  const headerOf = sharedHeaders(
    p,
    waiting.map((o) => o.unit),
  );
  const job = async (): Promise<void> => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const { file, unit } = next;
      const source = join(unit.source.startsWith('generated/') ? p.work : nativeDir, unit.source);
      const flags = [...unit.flags, ...(await headerOf(unit))];
      await keepAsync(file, (part) => compile(p, flags, source, part));
      say(++done, of);
    }
  };
  await Promise.all(Array.from({ length: Math.max(2, Math.min(8, availableParallelism())) }, job));
  for (const name of readdirSync(join(p.work, 'generated')))
    if (name.endsWith('.gch')) rmSync(join(p.work, 'generated', name));
}

/** Builds the library into the cache unless it is there; answers its path. */
export async function buildNative({ everySet, copy, progress, sanitize }: BuildOptions = {}): Promise<string> {
  const cxx = compiler();
  if (!cxx) throw new NativeError('no C++ compiler');
  const arch = hostArch();
  const sets = everySet ? INSTRUCTION_SETS[arch] : [hostInstructionSet(arch)];
  const p = plan(sets, cxx, engineFolder(true), sanitize);
  mkdirSync(p.work, { recursive: true });
  await oneAtATimeAsync(`${p.work}.lock`, async () => {
    if (isIntact(p.library) && !(copy && p.objects.some((o) => !isIntact(o.file)))) return;
    const what = sets.map((set) => set.name).join(', ');
    await compileObjects(p, progress === undefined ? () => {} : progressOn(progress, what));
    if (!sanitize) writeFileSync(join(p.work, SOURCES), sourcesOf(sets));
    await keepAsync(p.library, (part) => link(p, sanitize ? [SANITIZE] : [], part));
  });
  if (copy) await link(p, ['-static-libstdc++', '-static-libgcc', '-s'], copy);
  return p.library;
}
