// Where numbers come from: the commit, the package's version, and hashes of what each op is computed by.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { forPlatform, type Platform, PLATFORMS } from './platform.js';
import { moduleNames } from '../backends/gpu/modules.js';
import { packageRoot } from '../base/paths.js';
import { moduleText } from '../kernels/source.js';
import type { ElementwiseRow, Row } from '../ops/op.js';
import { opList } from '../ops/table.js';

const git = (...args: string[]): string => {
  try {
    return execFileSync('git', args, {
      cwd: packageRoot,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  } catch {
    return ''; // an installed package has no history
  }
};
/** A bundle says its commit in a file, since it has no history and may lie in someone else's. */
export const COMMIT_FILE = 'COMMIT';
export const commitNow = (): string => {
  const told = join(packageRoot, COMMIT_FILE);
  if (existsSync(told)) return readFileSync(told, 'utf8').trim();
  const commit = git('rev-parse', '--short=12', 'HEAD');
  return commit && `${commit}${git('status', '--porcelain', '--', 'kernels', 'native', 'src') ? '+' : ''}`;
};
export const versionNow = (): string =>
  (JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string }).version;

/** Hashes of what numbers speak of; evidence whose hashes differ from today's is stale. */
export interface Sources {
  /** The CPU engine as a whole. */
  readonly native: string;
  /**
   * The code that packs arguments and launches, by backend, as it runs; evidence from before it was recorded has none.
   */
  readonly host?: Readonly<Record<HostPart, string>>;
  /** The same for GPUs file by file, since an op's launches go through few of them. */
  readonly launch?: Readonly<Record<string, string>>;
  /**
   * Kernel files by module, headers included, as each platform's compiler sees them: a branch for AMD does not age
   * NVIDIA's numbers.
   */
  readonly modules: Readonly<Record<Platform, Readonly<Record<string, string>>>>;
  /** What the op table says of each op: dtypes, bounds, expression. */
  readonly rows: Readonly<Record<string, string>>;
}
const sha = (parts: Iterable<string | Uint8Array>): string => {
  const h = createHash('sha256');
  for (const p of parts) h.update(p).update('\0');
  return h.digest('hex').slice(0, 12);
};
const nativeHash = (): string => {
  const dir = join(packageRoot, 'native');
  // The simulation's own files are no part of the CPU engine.
  return sha(
    readdirSync(dir, { recursive: true, encoding: 'utf8' })
      .filter((f) => /\.(cpp|h)$/.test(f) && !f.startsWith('simulation'))
      .sort()
      .flatMap((f) => [f, readFileSync(join(dir, f))]),
  );
};
/** What packs and launches on each backend, besides the kernels themselves. */
const HOST = {
  cpu: ['backends/cpu.js', 'backends/cpu'],
  gpu: ['backends/gpu', 'kernels', 'driver/args.js'],
} as const;
export type HostPart = keyof typeof HOST;
/** Files of these folders that choose, compile or cache, and never touch an argument. */
const NO_LAUNCH = /^(cache|compile|prebuilt|platform|targets|needed|aot|memory|units|instruction-sets)\.js$/;
const COMPILED = join(packageRoot, 'dist', 'src');
const readText = (file: string): string => readFileSync(file, 'utf8');
export const textOf = (file: string, read = readText): string => bare(read(join(COMPILED, file))).trim();
/** Compiled files, relative to src. */
export const hostFiles = (part: HostPart): string[] =>
  HOST[part].flatMap((place) =>
    place.endsWith('.js')
      ? [place]
      : readdirSync(join(COMPILED, place))
          .filter((f) => f.endsWith('.js') && !NO_LAUNCH.test(f))
          .sort()
          .map((f) => `${place}/${f}`),
  );
export const hostHash = (part: HostPart, read = readText): string =>
  sha(
    hostFiles(part).flatMap((f) =>
      HOST[part].some((place) => place === f) ? [textOf(f, read)] : [basename(f), textOf(f, read)],
    ),
  );
/** Each file that packs or launches on GPUs, by its path in the repository. */
export const launchHashes = (read = readText): Record<string, string> =>
  Object.fromEntries(hostFiles('gpu').map((f) => [sourceName(f), sha([textOf(f, read)])]));
export const sourceName = (compiled: string): string => `src/${compiled.replace(/\.js$/, '.ts')}`;

/** Comments and blank lines say nothing to a compiler. */
const bare = (text: string): string => text.replace(/\/\/[^\n]*|\/\*[\s\S]*?\*\//g, '').replace(/\s*\n\s*/g, '\n');
const rowHash = (r: Row): string =>
  sha([
    JSON.stringify([r.name, r.dtypes, r.ulp]),
    ...(r.family === 'elementwise' ? [(r as ElementwiseRow<any>).kernel, (r as ElementwiseRow<any>).small ?? ''] : []),
  ]);

let known: Sources | undefined;
export const sourcesNow = (): Sources =>
  (known ??= {
    native: nativeHash(),
    host: { cpu: hostHash('cpu'), gpu: hostHash('gpu') },
    launch: launchHashes(),
    modules: Object.fromEntries(
      PLATFORMS.map((p) => [
        p,
        Object.fromEntries(moduleNames().map((m) => [m, sha([bare(forPlatform(moduleText(`${m}.hip`), p))])])),
      ]),
    ) as Sources['modules'],
    rows: Object.fromEntries(opList.map((r) => [r.name, rowHash(r)])),
  });
