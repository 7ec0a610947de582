// The one file that imports the FFI library: finding and opening shared libraries, binding tables of C prototypes,
// native memory.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import koffi from 'koffi';
import { env, type VariableName } from '../base/environment.js';
import { DeviceError } from '../base/errors.js';
import type { LibraryReport } from './driver.js';
import { brokenLibrary } from './elf.js';

export { koffi };

// Compilers and BLAS libraries want megabytes of stack where the FFI library's default has less; it must be set before
// the first load.
const STACK = 16 << 20;
if ((koffi.config().sync_stack_size ?? 0) < STACK) koffi.config({ sync_stack_size: STACK, async_stack_size: STACK });

/** Pointers are declared `uintptr_t` (numbers in and out) or, where a typed array may be given, `void *`. */
export type NativeArg =
  | number
  | bigint
  | string
  | null
  | ArrayBufferView
  | ArrayBuffer
  | readonly (string | null)[]
  | StructArg;
/** A struct by value. */
export interface StructArg {
  readonly internal: Uint8Array;
}
export type Native = (...args: NativeArg[]) => number;

/** A C prototype; a symbol that older releases lack says since when it exists. */
export type Prototype = string | { readonly optional: string; readonly since: string };
export type Table = Readonly<Record<string, Prototype>>;
export type Bound<T extends Table> = { readonly [K in keyof T]: T[K] extends string ? Native : Native | undefined };

export interface LibrarySpec {
  /** For people: 'NVRTC'. */
  readonly name: string;
  /** File names in order of preference, newest first. */
  readonly sonames: readonly string[];
  readonly vendor: 'cuda' | 'rocm' | 'host';
  /** Files in the same folder that it loads by bare name, which fails outside the loader's path: opened first. */
  readonly beside?: RegExp;
}

/** What bindings ask of a library: one that was opened, or a stand-in of it. */
export type Bindable = Pick<Library, 'path' | 'bind' | 'note'>;
/** Finds a library: openLibrary, or what stands in for it. */
export type FindLibrary = (spec: LibrarySpec) => Bindable | string;

/** The loader's flags: symbols are bound when they are called; the library is never taken out of memory. */
const [RTLD_LAZY, RTLD_NODELETE] = [1, 0x1000];
let loader: ReturnType<ReturnType<typeof koffi.load>['func']> | undefined;
const dlopen = (): NonNullable<typeof loader> =>
  (loader ??= koffi.load(null).func('void *dlopen(const char *file, int mode)'));

/**
 * Opens a library for good. The FFI library closes what a thread of JavaScript opened when that thread ends, the main
 * one included, and the library's own threads (those of the CPU engine, of drivers) would go on in memory that is gone.
 */
export function loadForGood(path: string): ReturnType<typeof koffi.load> {
  const handle = koffi.load(path, { lazy: true });
  if (process.platform === 'linux') dlopen()(path, RTLD_LAZY | RTLD_NODELETE);
  return handle;
}

/** An opened library. It stays open: drivers do not survive being unloaded. */
export class Library {
  readonly name: string;
  readonly path: string;
  readonly #handle: ReturnType<typeof koffi.load>;

  constructor(name: string, path: string, handle: ReturnType<typeof koffi.load>) {
    this.name = name;
    this.path = path;
    this.#handle = handle;
  }

  has(symbol: string): boolean {
    try {
      this.#handle.symbol(symbol);
      return true;
    } catch {
      return false; // the FFI library says "not found" by throwing
    }
  }

  /** The address of an exported object, for libraries whose handles are such. */
  address(symbol: string): number {
    try {
      return Number(this.#handle.symbol(symbol) as unknown as bigint);
    } catch (cause) {
      throw new DeviceError(`${this.name}: ${this.path} lacks the object ${symbol}`, { cause });
    }
  }

  /** Binds one prototype; a missing symbol is a DeviceError that names the library file. */
  func(prototype: string): Native {
    try {
      return this.#handle.func(prototype) as unknown as Native;
    } catch (cause) {
      throw new DeviceError(`${this.name}: ${this.path} lacks ${symbolOf(prototype)}; it is older than wick supports`, {
        cause,
      });
    }
  }

  /** Calls a function on another thread; what it is given must live until `then` is told its answer. */
  aside(prototype: string, args: readonly NativeArg[], then: (status: number) => void): void {
    const fn = this.#handle.func(prototype);
    fn.async(...args, (_: unknown, status: number) => then(status));
  }

  /** Its version as it tells it itself, for error messages and `wick devices`. */
  note(version: string): void {
    noteLibrary({ name: this.name, version });
  }

  bind<T extends Table>(table: T): Bound<T> {
    const out: Record<string, Native | undefined> = {};
    for (const [key, p] of Object.entries(table)) {
      const text = typeof p === 'string' ? p : p.optional;
      out[key] = typeof p === 'string' || this.has(symbolOf(text)) ? this.func(text) : undefined;
    }
    return out as Bound<T>;
  }
}

export const symbolOf = (prototype: string): string => /(\w+)\s*\(/.exec(prototype)?.[1] ?? prototype;

const opened = new Map<string, Library | string>();
/** A handle that is collected closes its library. */
const held: unknown[] = [];
const reports = new Map<string, LibraryReport>();

/** What was looked for so far and what came of it, for error messages and `wick devices`. */
export const libraryReports = (): LibraryReport[] => [...reports.values()];
export function noteLibrary(report: LibraryReport): void {
  reports.set(report.name, { ...reports.get(report.name), ...report });
}

/** Opens a library once, or answers the sentence that says what was looked for and where. */
export function openLibrary(spec: LibrarySpec): Library | string {
  const known = opened.get(spec.name);
  if (known !== undefined) return known;
  const result = search(spec);
  opened.set(spec.name, result);
  noteLibrary(
    typeof result === 'string' ? { name: spec.name, missing: result } : { name: spec.name, found: result.path },
  );
  return result;
}

function search(spec: LibrarySpec): Library | string {
  if (process.platform !== 'linux' && spec.vendor !== 'host') {
    const instead = process.platform === 'win32' ? '; Linux within it (WSL 2) reaches the GPU' : '';
    return `${spec.name} is looked for on Linux alone, and this is ${process.platform}${instead}`;
  }
  const dirs = libraryDirs(spec.vendor);
  const broken: string[] = [];
  for (const soname of spec.sonames)
    for (const path of candidates(soname, dirs)) {
      try {
        // A bare name is the loader's to find: it is looked up where the loader would take it from.
        const file = path === soname ? loaderFile(soname) : path;
        const broken = file && brokenLibrary(file);
        if (broken) throw new Error(broken);
        if (spec.beside && path !== soname) list(dirname(path), spec.beside).forEach((p) => held.push(loadForGood(p)));
        const handle = loadForGood(path);
        return new Library(spec.name, loadedFile(soname) ?? path, handle);
      } catch (e) {
        const why = (e as Error).message.replace(/^Failed to load shared library: /, '');
        if (
          !why.startsWith(`${soname}: cannot open`) &&
          !why.startsWith('cannot open shared object file: No such file')
        )
          broken.push(`${path}: ${why}`);
      }
    }
  const tail = broken.length > 0 ? `; not loadable: ${broken.join('; ')}` : '';
  return (
    `${spec.name} was not found: looked for ${spec.sonames.join(', ')} in the loader's path and ` +
    `${dirs.join(', ') || 'no other folder'}${tail}`
  );
}

/**
 * Where a file may be. A bare name lets the loader use LD_LIBRARY_PATH, its cache and the system's folders; only
 * WICK_LIBRARY_PATH comes before it.
 */
function candidates(soname: string, dirs: readonly string[]): string[] {
  const own = ownDirs().map((d) => join(d, soname));
  const others = dirs.map((d) => join(d, soname)).filter((p) => !own.includes(p));
  return [...own, soname, ...others].filter((p) => p === soname || existsSync(p));
}

/** Has the file that openLibrary will take read on another thread; whoever opens it then finds it there. */
export function openAside(spec: LibrarySpec): void {
  const dirs = libraryDirs(spec.vendor);
  const files = spec.sonames.flatMap((soname) =>
    candidates(soname, dirs).map((p) => (p === soname ? loaderFile(p) : p)),
  );
  const file = files.find((f) => f !== undefined && !brokenLibrary(f));
  if (file === undefined) return;
  dlopen().async(file, RTLD_LAZY | RTLD_NODELETE, () => {});
}

const SYSTEM_DIRS = ['/lib', '/usr/lib', '/usr/local/lib', '/lib64', '/usr/lib64'];
/**
 * The file the loader most likely takes for a bare name: LD_LIBRARY_PATH, then the system's folders and those of this
 * machine's kind.
 */
function loaderFile(soname: string): string | undefined {
  if (soname.includes('/')) return existsSync(soname) ? soname : undefined;
  const kind = process.arch === 'arm64' ? 'aarch64-linux-gnu' : 'x86_64-linux-gnu';
  const dirs = [...(env('LD_LIBRARY_PATH') ?? '').split(delimiter).filter(Boolean)];
  for (const d of SYSTEM_DIRS) dirs.push(join(d, kind), d);
  return dirs.map((d) => join(d, soname)).find((p) => existsSync(p));
}

/** The file behind a loaded name, links followed: its name holds the exact version. */
function loadedFile(soname: string): string | undefined {
  try {
    const maps = readFileSync('/proc/self/maps', 'utf8');
    const name = soname.replace(/[.+]/g, '\\$&');
    return new RegExp(`\\s(/\\S*/${name}[^/\\s]*)$`, 'm').exec(maps)?.[1];
  } catch {
    return undefined; // no /proc: the name it was asked for has to do
  }
}

const list = (dir: string, keep: RegExp): string[] => {
  try {
    return readdirSync(dir)
      .filter((n) => keep.test(n))
      .sort()
      .reverse()
      .map((n) => join(dir, n));
  } catch {
    return []; // a folder that is not there holds nothing
  }
};
const present = (dirs: (string | undefined)[]): string[] => [
  ...new Set(dirs.filter((d): d is string => d !== undefined && existsSync(d))),
];
const below = (name: VariableName, ...tail: string[]): string | undefined => {
  const dir = env(name);
  return dir && join(dir, ...tail);
};

const ownDirs = (): string[] => (env('WICK_LIBRARY_PATH') ?? '').split(delimiter).filter(Boolean);

/**
 * Folders besides the loader's own: WICK_LIBRARY_PATH first, then the vendors' usual places, then Python's NVIDIA
 * packages.
 */
function libraryDirs(vendor: LibrarySpec['vendor']): string[] {
  const own = ownDirs();
  if (vendor === 'host') return present(own);
  if (vendor === 'rocm') {
    return present([
      ...own,
      below('ROCM_PATH', 'lib'),
      '/opt/rocm/lib',
      ...list('/opt', /^rocm-/).map((d) => join(d, 'lib')),
    ]);
  }
  const onPath = (env('PATH') ?? '')
    .split(delimiter)
    .filter((d) => existsSync(join(d, 'python3')))
    .map((d) => join(dirname(d), 'lib'));
  const pythons = [
    ...new Set([
      below('VIRTUAL_ENV', 'lib'),
      below('CONDA_PREFIX', 'lib'),
      ...onPath,
      '/opt/conda/lib',
      '/usr/local/lib',
      join(homedir(), '.local/lib'),
      '/usr/lib',
    ]),
  ]
    .flatMap((d) => (d ? list(d, /^python3/) : []))
    .flatMap((d) => [join(d, 'site-packages/nvidia'), join(d, 'dist-packages/nvidia')])
    .flatMap((d) => list(d, /./).map((p) => join(p, 'lib')));
  return present([
    ...own,
    below('CUDA_HOME', 'lib64'),
    below('CUDA_PATH', 'lib64'),
    below('CONDA_PREFIX', 'lib'),
    '/usr/local/cuda/lib64',
    ...list('/usr/local', /^cuda-/).map((d) => join(d, 'lib64')),
    '/usr/lib/wsl/lib',
    ...pythons,
  ]);
}

/** A block of native memory that never moves, seen from JavaScript; freed never, so for long-lived buffers only. */
export interface NativeBlock {
  readonly address: number;
  readonly buffer: ArrayBuffer;
}
export function nativeBlock(bytes: number): NativeBlock {
  const pointer = koffi.alloc('uint8_t', bytes) as bigint;
  const buffer = koffi.view(pointer, bytes);
  new Uint8Array(buffer).fill(0);
  return { address: Number(pointer), buffer };
}

/** Bytes at a native address, valid as long as their owner keeps them. */
export const nativeView = (address: number, bytes: number): Uint8Array =>
  new Uint8Array(koffi.view(BigInt(address), bytes));
/** The text before the first NUL. */
export const cText = (bytes: Uint8Array): string =>
  Buffer.from(bytes.subarray(0, bytes.indexOf(0) < 0 ? bytes.length : bytes.indexOf(0))).toString();
/** The text at a native `const char *`; '' for null. */
export const nativeString = (address: number): string => (address === 0 ? '' : koffi.decode.string(BigInt(address)));

/** A slot that C writes a pointer, a size or an int into; declare the parameter `void *` and give `cell.raw`. */
export class Cell {
  readonly raw = new Uint32Array(2);
  readonly #int = new Int32Array(this.raw.buffer);
  readonly #float = new Float32Array(this.raw.buffer);

  /** Pointers and sizes below 2^53. */
  get value(): number {
    return this.raw[0] + this.raw[1] * 0x100000000;
  }
  get int(): number {
    return this.#int[0];
  }
  get float(): number {
    return this.#float[0];
  }
  clear(): this {
    this.raw.fill(0);
    return this;
  }
}
