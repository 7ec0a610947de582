// The CPU engine as a WebAssembly module: found in the package or in the cache, and built by a release with a clang
// that knows WebAssembly.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { NativeError } from '../base/errors.js';
import { isIntact, keepAsync, oneAtATimeAsync } from '../base/kept-files.js';
import { nativeDir } from '../base/paths.js';
import { WASM_MEMORY, WASM_SET } from './cpu/instruction-sets.js';
import { COMMON_FLAGS, textsOf, units } from './cpu/units.js';
import { compileObjects, engineFolder, hash, type Plan, progressOn, run } from './native-build.js';

/** Newest first; Debian's carry their version in the name. */
const COMPILERS = ['clang++', ...[22, 21, 20, 19, 18, 17, 16, 15, 14].map((version) => `clang++-${version}`)];
/** What WebAssembly has no use for. */
const HOST_ONLY = ['-fPIC', '-pthread'];
const TARGET = '--target=wasm32-wasi';
const FLAGS = [
  TARGET,
  '-fno-exceptions',
  '-matomics',
  '-mbulk-memory',
  ...COMMON_FLAGS.filter((flag) => !HOST_ONLY.includes(flag)),
];
const STACK = 4 << 20;
const EXPORTS = 'select threads find run run_list alloc free memcpy read peak join serve fell recover'.split(' ');
/** What an instance of another thread needs to stand on a stack of its own, with its own thread-local variables. */
const THREAD_EXPORTS = ['__stack_pointer', '__wasm_init_tls', '__tls_size', '__tls_align'];
/** Functions of the C library's heap, which is of one thread: native/engine/threads.cpp has a lock around each. */
const HEAP = ['malloc', 'calloc', 'realloc', 'free', 'aligned_alloc', 'posix_memalign'];
/**
 * The C and C++ libraries that Debian has for WebAssembly are compiled without atomics, which the linker refuses
 * beside shared memory unless told not to look. What the engine takes of them holds no state but the heap, which is
 * locked, and errno, which nobody reads.
 */
const SHARED = [
  '--shared-memory',
  '--import-memory',
  `--initial-memory=${WASM_MEMORY.initial << 16}`,
  `--max-memory=${WASM_MEMORY.maximum * 2 ** 16}`,
  '--no-check-features',
  ...HEAP.map((name) => `--wrap=${name}`),
  ...THREAD_EXPORTS.map((name) => `--export=${name}`),
];
const LINK = [
  '-mexec-model=reactor',
  // The stack lies below everything: one that overflows leaves memory, and traps.
  ...['--gc-sections', '--strip-all', '--stack-first', `-z,stack-size=${STACK}`, ...SHARED].map(
    (flag) => `-Wl,${flag}`,
  ),
  ...EXPORTS.map((name) => `-Wl,--export=wick_${name}`),
];

/** The folder of the package where a release puts the module. */
export const wasmFolder: string = join(nativeDir, 'prebuilt');

/** The module's name tells the sources that it is made from, whichever compiler made it. */
const wasmName = (): string => {
  const made = units([WASM_SET]).flatMap((u) => [u.name, ...u.flags, ...textsOf(u.source).values()]);
  return `wick-${hash(...FLAGS, ...LINK, ...made)}.wasm`;
};

/** Where a module of these very sources lies in the package. */
export const shippedWasm = (): string => join(wasmFolder, wasmName());

/** The path of the module; a NativeError says that there is none. */
export function findWasm(): string {
  const shipped = shippedWasm();
  if (existsSync(shipped)) return shipped;
  const kept = join(engineFolder(false), wasmName());
  if (isIntact(kept)) return kept;
  throw new NativeError(
    `the CPU engine as WebAssembly is not here either (${shipped}; \`npm run release:wasm\` makes it in a clone)`,
  );
}

interface Toolchain {
  readonly path: string;
  readonly version: string;
  /** LLVM's folder, where Debian keeps the C++ library for WebAssembly. */
  readonly root: string;
}
const includesOf = (root: string): string => join(root, 'include/wasm32-wasi/c++/v1');
const librariesOf = (root: string): string => join(root, 'lib/wasm32-wasi');

/** A clang that compiles and links C++ for WebAssembly, or the sentence that says what to install. */
function wasmToolchain(): Toolchain | string {
  for (const path of COMPILERS) {
    const { status, stdout } = spawnSync(path, ['--version'], { encoding: 'utf8' });
    if (status !== 0) continue;
    const resources = spawnSync(path, ['-print-resource-dir'], { encoding: 'utf8' }).stdout.trim();
    const root = join(resources, '../../..');
    if (existsSync(includesOf(root)) && existsSync(join(librariesOf(root), 'libc++.a')))
      return { path, version: stdout, root };
  }
  return (
    'no clang with a C++ library for WebAssembly; on Debian: apt install clang-16 lld-16 wasi-libc ' +
    'libc++-16-dev-wasm32 libc++abi-16-dev-wasm32 libclang-rt-16-dev-wasm32'
  );
}

/** Builds the module into the cache unless it is there; answers its path. */
export async function buildWasm({ progress }: { readonly progress?: number } = {}): Promise<string> {
  const tools = wasmToolchain();
  if (typeof tools === 'string') throw new NativeError(tools);
  const { path, version, root } = tools;
  const flags = [...FLAGS, '-nostdinc++', '-isystem', includesOf(root)];
  const folder = engineFolder(true);
  const objects = units([WASM_SET]).map((unit) => {
    const key = hash(version, ...FLAGS, ...unit.flags, ...textsOf(unit.source).values());
    return { file: join(folder, 'objects', `wasm-${unit.name}-${key}.o`), unit };
  });
  const library = join(folder, wasmName());
  const work = join(folder, hash('wasm', ...objects.map((o) => o.file)));
  const plan: Plan = { library, compiler: path, flags, objects, work };
  mkdirSync(work, { recursive: true });
  await oneAtATimeAsync(`${work}.lock`, async () => {
    if (isIntact(library)) return;
    await compileObjects(plan, progress === undefined ? () => {} : progressOn(progress, 'WebAssembly'));
    const inputs = [...objects.map((o) => o.file), `-L${librariesOf(root)}`, '-nostdlib++', '-lc++', '-lc++abi'];
    await keepAsync(library, (part) => run(path, [TARGET, ...LINK, ...inputs, '-o', part]));
  });
  return library;
}
