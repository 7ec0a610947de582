// Unpacks hipRTC 7 (Debian's experimental and unstable suites) into .cache/hiprtc7 with an apt state of its own; the system stays as it is.
// Usage: node dist/scripts/fetch-hiprtc7.js   prints how to run Node beside it, or why it could not be had (exit status 0 either way)
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** The repository's root, from dist/scripts/ as from scripts/. */
const here = dirname(fileURLToPath(import.meta.url));
export const REPOSITORY = resolve(here, existsSync(join(here, '../package.json')) ? '..' : '../..');
const ROOT = join(REPOSITORY, '.cache/hiprtc7');
const TRIPLES: Record<string, { triple: string; loader: string }> = {
  amd64: { triple: 'x86_64-linux-gnu', loader: 'ld-linux-x86-64.so.2' },
  arm64: { triple: 'aarch64-linux-gnu', loader: 'ld-linux-aarch64.so.1' },
};
const PACKAGES = ['libhiprtc7', 'libhiprtc-builtins7', 'libamd-comgr3'];
const ARCHIVE_KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg';

function output(command: string, ...args: string[]): string | undefined {
  const r = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 26 });
  return r.status === 0 ? r.stdout.trim() : undefined;
}

/** What to put before a script so that Node runs with hipRTC 7's own C library, or why that is not possible. */
export function hiprtc7Command(root = ROOT): string[] | string {
  const found = TRIPLES[output('dpkg', '--print-architecture') ?? ''];
  if (!found) return 'hipRTC 7 is unpacked from Debian packages, which this system does not have';
  const libraries = join(root, 'usr/lib', found.triple);
  const loader = ['usr/lib64', 'usr/lib', `usr/lib/${found.triple}`].map((d) => join(root, d, found.loader)).find((p) => existsSync(p));
  if (!loader || !existsSync(join(libraries, 'libhiprtc.so.7'))) return `hipRTC 7 is not in ${root}: run node dist/scripts/fetch-hiprtc7.js`;
  return [loader, '--library-path', libraries, process.execPath];
}

/** Downloads and unpacks, or answers the sentence that says what was out of reach. */
export function fetchHiprtc7(root = ROOT): string[] | string {
  const ready = hiprtc7Command(root);
  if (typeof ready !== 'string') return ready;
  const architecture = output('dpkg', '--print-architecture');
  if (!architecture || !TRIPLES[architecture]) return ready;
  // The mirror this system's apt already uses.
  const mirror = output('apt-get', 'indextargets', '--format', '$(REPO_URI)', 'Created-By: Packages')?.split('\n').find((u) => /\/debian\/?$/.test(u));
  if (!mirror) return 'apt knows no Debian mirror';
  const work = `${root}.work`;
  rmSync(work, { recursive: true, force: true });
  for (const d of ['state/lists/partial', 'cache/archives/partial', 'root']) mkdirSync(join(work, d), { recursive: true });
  writeFileSync(join(work, 'status'), '');
  const signed = existsSync(ARCHIVE_KEYS) ? `[signed-by=${ARCHIVE_KEYS}] ` : '';
  writeFileSync(join(work, 'sources.list'), ['sid', 'experimental'].map((s) => `deb ${signed}${mirror} ${s} main\n`).join(''));
  const apt = (...args: string[]) => spawnSync('apt-get', [
    '-o', `Dir::State=${join(work, 'state')}`, '-o', `Dir::State::status=${join(work, 'status')}`, '-o', `Dir::Cache=${join(work, 'cache')}`,
    '-o', `Dir::Etc::sourcelist=${join(work, 'sources.list')}`, '-o', 'Dir::Etc::sourceparts=/dev/null', '-o', `APT::Architecture=${architecture}`,
    '-o', 'APT::Sandbox::User=root', '-o', 'Acquire::Retries=2', '-q', ...args,
  ], { encoding: 'utf8', maxBuffer: 1 << 26, timeout: 300_000 });
  try {
    for (const step of [['update'], ['install', '-y', '-t', 'experimental', '--download-only', '--no-install-recommends', ...PACKAGES]]) {
      const r = apt(...step);
      if (r.status !== 0) return `hipRTC 7 is out of reach: apt-get ${step[0]} failed: ${(r.stderr || r.error?.message || '').trim().split('\n').slice(-3).join(' ')}`;
    }
    const archives = join(work, 'cache/archives');
    for (const f of readdirSync(archives).filter((n) => n.endsWith('.deb'))) execFileSync('dpkg-deb', ['-x', join(archives, f), join(work, 'root')]);
    rmSync(root, { recursive: true, force: true });
    renameSync(join(work, 'root'), root);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return hiprtc7Command(root);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const got = fetchHiprtc7();
  console.log(typeof got === 'string' ? `skipped: ${got}` : got.join(' '));
}
