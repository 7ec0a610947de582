// One rule for everything wick keeps on disk and runs later: the folder belongs to this user alone, a file's SHA-256
// stands beside it and is checked before every use, and files are made aside, flushed and renamed, by one process at a
// time.
import { createHash } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  constants,
  mkdirSync,
  readFileSync,
  lstatSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { env } from './environment.js';
import { FileError } from './errors.js';
import { cacheDir } from './paths.js';
import { draftOf, isRunning, processMark, settleDraft, sweep, writeWhole } from './whole-file.js';

const OTHERS_WRITE = 0o022;
const user = (): number => process.getuid?.() ?? 0;

/**
 * Why a folder is not to be trusted with code; undefined when it belongs to this user (or to root) and nobody else may
 * write it.
 */
export function unsafeFolder(dir: string, link = true): string | undefined {
  let stat: Stats | undefined;
  try {
    stat = (link ? statSync : lstatSync)(dir, { throwIfNoEntry: false });
  } catch (e) {
    return (e as Error).message; // a file where a folder of its path should be
  }
  if (!stat?.isDirectory()) return `${dir} is not a folder, and none can be made`;
  if (stat.uid !== user() && stat.uid !== 0) return `${dir} belongs to another user (${stat.uid})`;
  // Windows keeps permissions elsewhere: its modes say that everybody may write.
  if (process.platform !== 'win32' && (stat.mode & OTHERS_WRITE) !== 0)
    return `others may write ${dir} (mode ${(stat.mode & 0o777).toString(8)})`;
  return undefined;
}

/** Makes a folder of our own, 0700; one that is there and ours is closed to others. Answers why it cannot serve. */
function ownFolder(dir: string): string | undefined {
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    const { uid, mode } = statSync(dir);
    if (uid === user() && (mode & OTHERS_WRITE) !== 0) chmodSync(dir, 0o700);
  } catch {
    // A read-only disk, or someone else's: what is there is looked at next.
  }
  return unsafeFolder(dir);
}

const isWritable = (dir: string): boolean => {
  try {
    accessSync(dir, constants.W_OK);
    return true;
  } catch {
    return false;
  }
};

/** A folder of this user alone among the temporary files, for when the cache cannot serve. */
function temporaryFolder(): string | undefined {
  const dir = join(tmpdir(), `wick-${user()}`);
  try {
    mkdirSync(dir, { mode: 0o700 });
  } catch {
    // It may be there from an earlier run; what counts is looked at next.
  }
  return unsafeFolder(dir, false) === undefined && isWritable(dir) ? dir : undefined;
}

const known = new Map<string, string>();

/**
 * The folder that keeps one kind of thing ('native', 'sim', ... or '' for the cache itself). A cache that others may
 * write is not used: whoever can write it could have code run as this user. `writable` wants one that can be written.
 */
export function cacheFolder(part: string, writable = false): string {
  const root = cacheDir();
  const key = `${root}\0${part}\0${writable}`;
  const before = known.get(key);
  if (before !== undefined) return before;
  // The default place is ours to close; a folder that was named is taken as it is.
  const named = env('WICK_CACHE_DIR') !== undefined;
  if (named) makeNamed(root);
  const why = (named ? unsafeFolder(root) : ownFolder(root)) ?? (part === '' ? undefined : ownFolder(join(root, part)));
  let dir = join(root, part);
  if (why !== undefined || (writable && !isWritable(dir))) {
    const other = temporaryFolder();
    if (other === undefined || (part !== '' && ownFolder(join(other, part)) !== undefined))
      throw new FileError(
        `nothing can be kept: ${why ?? `${dir} cannot be ` + `written`}, and there is no folder of this user alone ` +
          `in ${tmpdir()}; set WICK_CACHE_DIR to a folder that only you may write`,
      );
    dir = join(other, part);
    if (why !== undefined)
      process.emitWarning(`the cache ${root} is not used: ${why}. Compiled code is kept in ${other}.`, 'WickWarning');
  }
  known.set(key, dir);
  return dir;
}
function makeNamed(root: string): void {
  try {
    mkdirSync(root, { recursive: true, mode: 0o700 });
  } catch {
    // unsafeFolder says what is there instead
  }
}

const digest = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const beside = (path: string): string => `${path}.sha256`;

/** Whether a file is there and holds what it held when it was kept. */
export function isIntact(path: string): boolean {
  try {
    return readFileSync(beside(path), 'utf8').trim() === digest(readFileSync(path));
  } catch {
    return false; // not there, or without its digest
  }
}

/** Keeps what `make` writes to the name it is given; nothing is left under the final name when it fails. */
export async function keepAsync(path: string, make: (draft: string) => Promise<void>): Promise<void> {
  const draft = draftOf(path);
  try {
    await make(draft);
    settle(draft, path);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
export function keep(path: string, make: (draft: string) => void): void {
  const draft = draftOf(path);
  try {
    make(draft);
    settle(draft, path);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
function settle(draft: string, path: string): void {
  writeWhole(beside(path), 0o600, (write) => write(Buffer.from(`${digest(readFileSync(draft))}\n`)));
  settleDraft(draft, path);
}

/** An abandoned lock: its process has ended, or never got as far as writing its name. */
function isStale(lock: string): boolean {
  try {
    return !isRunning(readFileSync(join(lock, 'owner'), 'utf8'));
  } catch {
    const stat = statSync(lock, { throwIfNoEntry: false });
    return stat !== undefined && Date.now() - stat.mtimeMs > 10_000;
  }
}
/** Takes a lock, which is a folder; undefined while another process holds it. */
function take(lock: string): (() => void) | undefined {
  try {
    mkdirSync(lock);
  } catch (e) {
    if ((e as NodeJS.ErrnoException).code !== 'EEXIST') throw e;
    if (isStale(lock)) rmSync(lock, { recursive: true, force: true });
    return undefined;
  }
  writeFileSync(join(lock, 'owner'), processMark(process.pid) ?? `${process.pid}-0`);
  return () => rmSync(lock, { recursive: true, force: true });
}

const WAIT_MS = 50;
/** Runs `work` while no other process runs work under this lock. */
export async function oneAtATimeAsync(lock: string, work: () => Promise<void>): Promise<void> {
  let release = take(lock);
  for (; !release; release = take(lock)) await new Promise((done) => setTimeout(done, WAIT_MS));
  try {
    await work();
  } finally {
    release();
  }
}
export function oneAtATime(lock: string, work: () => void): void {
  let release = take(lock);
  const cell = new Int32Array(new SharedArrayBuffer(4));
  for (; !release; release = take(lock)) Atomics.wait(cell, 0, 0, WAIT_MS);
  try {
    work();
  } finally {
    release();
  }
}

/** The path of a kept file, made first unless it is there and intact; processes that want it at once make it once. */
export function keptOr(path: string, make: (draft: string) => void): string {
  if (!isIntact(path))
    oneAtATime(`${path}.lock`, () => {
      if (isIntact(path)) return;
      sweep(join(path, '..'));
      keep(path, make);
    });
  return path;
}
export async function keptOrAsync(path: string, make: (draft: string) => Promise<void>): Promise<string> {
  if (!isIntact(path))
    await oneAtATimeAsync(`${path}.lock`, async () => {
      if (isIntact(path)) return;
      sweep(join(path, '..'));
      await keepAsync(path, make);
    });
  return path;
}
