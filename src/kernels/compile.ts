// From source text to code for a target: picks the compiler, adds the wave size, goes through the cache on disk.
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { env } from '../base/environment.js';
import { CompileError } from '../base/errors.js';
import { packageVersion } from '../base/paths.js';
import { type ComingCode, waveSize, type Compiler } from '../driver/compiler.js';
import { VENDORS } from '../driver/drivers.js';
import { cacheKey, KernelCache } from './cache.js';
import { findExact, findPrebuilt } from './prebuilt.js';
import type { Unit } from './source.js';
import { targetFor } from './targets.js';

export interface CompileOptions {
  /** 'sm_90' gives a cubin, 'compute_80' PTX, 'gfx1100' an AMD code object. */
  readonly arch: string;
  readonly defines?: Readonly<Record<string, string | number>>;
  /** The installed one for the target unless given. */
  readonly compiler?: Compiler;
  /** The default folder's unless given; false compiles anew and keeps nothing. */
  readonly cache?: KernelCache | false;
}

let shared: KernelCache | undefined;
/** The process's cache. */
export const kernelCache = (): KernelCache => (shared ??= new KernelCache());

/** The compiler for a target, or the sentence that says why there is none. */
export function compilerFor(arch: string): Compiler | string {
  if (env('WICK_NO_RTC') === '1') return 'run-time compilers are switched off (WICK_NO_RTC is 1)';
  for (const vendor of Object.values(VENDORS)) if (vendor.targets.test(arch)) return vendor.compiler();
  return `no compiler makes code for '${arch}': targets are named gfx…, sm_… or compute_…`;
}

/** Compiles, or takes what an earlier run compiled. Throws CompileError with the compiler's log. */
export function compile(source: string, name: string, options: CompileOptions): Uint8Array {
  const { arch } = options;
  const compiler = options.compiler ?? compilerFor(arch);
  if (typeof compiler === 'string') throw new CompileError(`compile ${name} for ${arch}: ${compiler}`);
  const defines = { WICK_WAVE: waveSize(arch), ...options.defines };
  const build = (): Uint8Array => compiler.compile({ source, name, arch, defines });
  if (options.cache === false) return build();
  const cache = options.cache ?? kernelCache();
  const key = cacheKey({
    source,
    options: compiler.options({ arch, defines }),
    arch,
    compiler: `${compiler.name} ${compiler.version}`,
  });
  return cache.getOrBuild(key, arch, build);
}

/**
 * A unit's code for a device: from the cache, else made ahead of time for it, else compiled now, else made ahead of
 * time for one it can stand in for.
 */
export function codeFor(unit: Unit, arch: string, cache: KernelCache = kernelCache(), by?: Compiler): Uint8Array {
  return found(unit, arch, cache, (compiler, request) => compiler.compile(request), by);
}
/** The same, where what must be compiled may still be on its way. */
export function comingCode(unit: Unit, arch: string, cache: KernelCache = kernelCache()): Uint8Array | ComingCode {
  return found<Uint8Array | ComingCode>(unit, arch, cache, (c, request) => (c.begin ?? c.compile)(request));
}

let build: string | undefined;
/**
 * Another one with every version, and whenever TypeScript is compiled anew. The modules of a release are joined, this
 * one among them, and its version says all.
 */
function thisBuild(): string {
  if (build === undefined) {
    const own = statSync(fileURLToPath(import.meta.url), { throwIfNoEntry: false });
    build = own ? `${packageVersion()} ${own.mtimeMs} ${own.size}` : packageVersion();
  }
  return build;
}
type Compile<T> = (compiler: Compiler, request: Parameters<Compiler['compile']>[0]) => T;
function found<T extends Uint8Array | ComingCode>(
  unit: Unit,
  arch: string,
  cache: KernelCache,
  compile: Compile<T>,
  by?: Compiler,
): Uint8Array | T {
  const target = targetFor(unit, arch);
  const compiler = by ?? compilerFor(target);
  let why: string;
  if (typeof compiler === 'string') why = compiler;
  else {
    const defines = { WICK_WAVE: waveSize(target) };
    const keyOf = (source: string): string =>
      cacheKey({
        source,
        options: compiler.options({ arch: target, defines }),
        arch: target,
        compiler: `${compiler.name} ${compiler.version}`,
      });
    // Texts are made as this build of wick makes them.
    const also = unit.whole === undefined ? undefined : keyOf(`whole ${thisBuild()} ${unit.whole}`);
    const made = also && cache.getAlso(also, target);
    if (made) return made;
    const key = keyOf(unit.source);
    if (also) cache.putAlso(also, key, target);
    // The compiler is asked about the target only on a miss: hipRTC loads a large library to answer.
    const known = cache.get(key, target);
    if (known) return known;
    const exact = findExact(unit, target);
    if (exact) return exact;
    const accepts = compiler.accepts(target);
    if (accepts === true) {
      const code = compile(compiler, { source: unit.source, name: unit.name, arch: target, defines });
      return keptIn(cache, key, target, code);
    }
    why = accepts;
  }
  const prebuilt = findPrebuilt(unit, target);
  if (typeof prebuilt !== 'string') return prebuilt;
  const symbols = unit.entries.map((e) => e.symbol).join(', ');
  throw new CompileError(
    `${symbols} for ${target}: it cannot be compiled here, and was not made ahead of time. ` +
      `Compiler: ${why}. Ahead of time: ${prebuilt}`,
  );
}
/** Puts code into the cache, as soon as it is there. */
function keptIn<T extends Uint8Array | ComingCode>(cache: KernelCache, key: string, target: string, code: T): T {
  if (code instanceof Uint8Array) {
    cache.put(key, target, code);
    return code;
  }
  let made: Uint8Array | undefined;
  const wait = (): Uint8Array => {
    if (!made) cache.put(key, target, (made = code.wait()));
    return made;
  };
  return {
    get done() {
      return code.done;
    },
    wait,
  } as T;
}
