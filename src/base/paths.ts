// Where things lie: the package's own folders, and the cache on disk. No other file works out a path of these.
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { env } from './environment.js';
import { ArgumentError } from './errors.js';

/** The package's folder, above the compiled files: kernels/ and native/ lie in it. */
export const packageRoot: string = (() => {
  for (let dir = dirname(fileURLToPath(import.meta.url)); ; dir = dirname(dir)) {
    if (existsSync(join(dir, 'kernels', 'portable.h'))) return dir;
    if (dir === dirname(dir))
      throw new ArgumentError(
        'kernels/portable.h was not found in any folder above this file; the package is incomplete',
      );
  }
})();

/** The version of this package. */
export const packageVersion = (): string =>
  (JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string }).version;

/** GPU kernels in HIP C++. */
export const kernelsDir: string = join(packageRoot, 'kernels');
/** The CPU engine's sources, and the simulation's. */
export const nativeDir: string = join(packageRoot, 'native');
export const simulationDir: string = join(nativeDir, 'simulation');
/** Documentation, and evidence that was measured. */
export const docsDir: string = join(packageRoot, 'docs');

/**
 * The cache on disk: WICK_CACHE_DIR, else wick in XDG_CACHE_HOME, else ~/.cache/wick. kept-files.ts says whether it may
 * be used.
 */
export const cacheDir = (): string =>
  env('WICK_CACHE_DIR') ?? join(env('XDG_CACHE_HOME') ?? join(homedir(), '.cache'), 'wick');
