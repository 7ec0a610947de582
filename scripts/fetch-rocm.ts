// Unpacks parts of ROCm 7 (Debian's experimental and unstable suites) into .cache/ with an apt state of its own; the
// system stays as it is:
// hipRTC 7 with all it needs into .cache/hiprtc7, and the headers the ABI probe reads into .cache/rocm7-headers.
// Usage: node dist/scripts/fetch-rocm.js   prints what is there afterwards, or why it could not be had (exit status 0
// either way)
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** The repository's root, from dist/scripts/ as from scripts/. */
const here = dirname(fileURLToPath(import.meta.url));
const REPOSITORY = resolve(here, existsSync(join(here, '../package.json')) ? '..' : '../..');
export const HIPRTC7 = join(REPOSITORY, '.cache/hiprtc7');
export const HEADERS7 = join(REPOSITORY, '.cache/rocm7-headers');

const TRIPLES: Record<string, { triple: string; loader: string }> = {
  amd64: { triple: 'x86_64-linux-gnu', loader: 'ld-linux-x86-64.so.2' },
  arm64: { triple: 'aarch64-linux-gnu', loader: 'ld-linux-aarch64.so.1' },
};
const RUNTIME = ['libhiprtc7', 'libhiprtc-builtins7', 'libamd-comgr3'];
const HEADERS = [
  'libamdhip64-dev',
  'librocblas-dev',
  'libhipblaslt-dev',
  'libhipblas-common-dev',
  'libmiopen-dev',
  'libamd-comgr-dev',
];
const ARCHIVE_KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg';

function output(command: string, ...args: string[]): string | undefined {
  const r = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 26 });
  return r.status === 0 ? r.stdout.trim() : undefined;
}

/** What to put before a script so that Node runs with hipRTC 7's own C library, or why that is not possible. */
export function hiprtc7Command(root = HIPRTC7): string[] | string {
  const found = TRIPLES[output('dpkg', '--print-architecture') ?? ''];
  if (!found) return 'hipRTC 7 is unpacked from Debian packages, which this system does not have';
  const libraries = join(root, 'usr/lib', found.triple);
  const loader = ['usr/lib64', 'usr/lib', `usr/lib/${found.triple}`]
    .map((d) => join(root, d, found.loader))
    .find((p) => existsSync(p));
  if (!loader || !existsSync(join(libraries, 'libhiprtc.so.7')))
    return `hipRTC 7 is not in ${root}: run node dist/scripts/fetch-rocm.js`;
  return [loader, '--library-path', libraries, process.execPath];
}

/** An apt with lists of its own, in a folder that is removed afterwards; or why there is none. */
function privateApt(work: string): ((...args: string[]) => string | undefined) | string {
  const architecture = output('dpkg', '--print-architecture');
  if (!architecture || !TRIPLES[architecture]) return 'this is no Debian system on amd64 or arm64';
  // The mirror this system's apt already uses.
  const mirror = output('apt-get', 'indextargets', '--format', '$(REPO_URI)', 'Created-By: Packages')
    ?.split('\n')
    .find((u) => /\/debian\/?$/.test(u));
  if (!mirror) return 'apt knows no Debian mirror';
  rmSync(work, { recursive: true, force: true });
  for (const d of ['state/lists/partial', 'cache/archives/partial']) mkdirSync(join(work, d), { recursive: true });
  writeFileSync(join(work, 'status'), '');
  const signed = existsSync(ARCHIVE_KEYS) ? `[signed-by=${ARCHIVE_KEYS}] ` : '';
  writeFileSync(
    join(work, 'sources.list'),
    ['sid', 'experimental'].map((s) => `deb ${signed}${mirror} ${s} main\n`).join(''),
  );
  return (...args) => {
    const r = spawnSync(
      'apt-get',
      [
        '-o',
        `Dir::State=${join(work, 'state')}`,
        '-o',
        `Dir::State::status=${join(work, 'status')}`,
        '-o',
        `Dir::Cache=${join(work, 'cache')}`,
        '-o',
        `Dir::Etc::sourcelist=${join(work, 'sources.list')}`,
        '-o',
        'Dir::Etc::sourceparts=/dev/null',
        '-o',
        `APT::Architecture=${architecture}`,
        '-o',
        'APT::Sandbox::User=root',
        '-o',
        'Acquire::Retries=2',
        '-q',
        ...args,
      ],
      { encoding: 'utf8', cwd: join(work, 'cache/archives'), maxBuffer: 1 << 26, timeout: 300_000 },
    );
    return r.status === 0
      ? undefined
      : `apt-get ${args[0]} failed: ${(r.stderr || r.error?.message || '').trim().split('\n').slice(-3).join(' ')}`;
  };
}

/** Fetches packages with an apt and unpacks them into `root`, whole or not at all. */
function unpack(
  apt: (...args: string[]) => string | undefined,
  work: string,
  root: string,
  step: readonly string[],
): string | undefined {
  const archives = join(work, 'cache/archives');
  const failed = apt(...step);
  if (failed) return failed;
  const target = join(work, 'root');
  for (const f of readdirSync(archives).filter((n) => n.endsWith('.deb'))) {
    execFileSync('dpkg-deb', ['-x', join(archives, f), target]);
    rmSync(join(archives, f));
  }
  rmSync(root, { recursive: true, force: true });
  renameSync(target, root);
  return undefined;
}

/** What could not be had, in sentences; nothing is fetched that is already there. */
export function fetchRocm(): string[] {
  const wanted = [
    {
      root: HIPRTC7,
      step: ['install', '-y', '-t', 'experimental', '--download-only', '--no-install-recommends', ...RUNTIME],
    },
    { root: HEADERS7, step: ['download', ...HEADERS.map((p) => `${p}/experimental`)] },
  ].filter((w) => !existsSync(w.root));
  if (wanted.length === 0) return [];
  const work = join(REPOSITORY, '.cache/apt');
  const apt = privateApt(work);
  if (typeof apt === 'string') return [apt];
  try {
    const stale = apt('update');
    if (stale) return [stale];
    return wanted.flatMap(({ root, step }) => unpack(apt, work, root, step) ?? []);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  for (const sentence of fetchRocm()) console.log(`skipped: ${sentence}`);
  const command = hiprtc7Command();
  console.log(typeof command === 'string' ? command : `node beside hipRTC 7: ${command.join(' ')}`);
  console.log(existsSync(HEADERS7) ? `headers: ${join(HEADERS7, 'usr/include')}` : 'headers: none');
}
