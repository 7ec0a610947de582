// Compiled kernels on disk: keyed by all that shapes the code, safe under concurrent processes, checked on every read,
// bounded in size.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { cacheFolder } from '../base/kept-files.js';
import { cacheDir } from '../base/paths.js';
import { sweep, writeWhole } from '../base/whole-file.js';

/** Changing the file format or the meaning of a key makes old entries unreachable. */
const FORMAT = 'wick-kernel-1';
const MAGIC = Buffer.from('WICKKERN');
const SUFFIX = '.kernel';
const DEFAULT_BYTES = 512 * 2 ** 20;
/** A hit renews the entry's age at most this often, so that reading writes little. */
const RENEW_MS = 3600_000;
/**
 * Looking at every entry takes long when there are many: done at a process's first write, and again after this share of
 * the bound.
 */
const PRUNE_SHARE = 1 / 16;

export interface KeyParts {
  readonly source: string;
  readonly options: readonly string[];
  readonly arch: string;
  /** Name and version. */
  readonly compiler: string;
}

export function cacheKey(parts: KeyParts): string {
  // JSON keeps the borders between parts: no two lists of parts give one text.
  return createHash('sha256')
    .update(JSON.stringify([FORMAT, parts.compiler, parts.arch, parts.options, parts.source]))
    .digest('hex');
}

/** An entry: magic, SHA-256 of all that follows, arch, code. */
export function encodeEntry(arch: string, code: Uint8Array): Buffer {
  const name = Buffer.from(arch);
  const body = Buffer.concat([Buffer.of(name.length), name, code]);
  return Buffer.concat([MAGIC, createHash('sha256').update(body).digest(), body]);
}

/** The code, or why the entry is not to be trusted. */
export function decodeEntry(entry: Uint8Array, arch: string): Uint8Array | string {
  const head = MAGIC.length + 32;
  if (entry.length < head + 1 || !MAGIC.equals(entry.subarray(0, MAGIC.length))) return 'not a kernel entry';
  const body = entry.subarray(head);
  if (!createHash('sha256').update(body).digest().equals(entry.subarray(MAGIC.length, head)))
    return 'its checksum is wrong';
  const name = Buffer.from(body.subarray(1, 1 + body[0])).toString();
  if (name !== arch) return `it is for ${name}, not ${arch}`;
  return body.subarray(1 + body[0]);
}

export interface CacheStats {
  readonly dir: string;
  readonly entries: number;
  readonly bytes: number;
  readonly maxBytes: number;
  /** Since this process began. */
  readonly hits: number;
  readonly misses: number;
  readonly dropped: number;
  /** Why nothing is kept, where the folder cannot be written. */
  readonly disabled?: string;
}

export class KernelCache {
  readonly dir: string;
  readonly maxBytes: number;
  #hits = 0;
  #misses = 0;
  #dropped = 0;
  #unchecked = Infinity;
  #disabled: string | undefined;

  constructor(dir?: string, maxBytes = DEFAULT_BYTES) {
    this.maxBytes = maxBytes;
    try {
      this.dir = dir ?? cacheFolder('');
    } catch (e) {
      this.dir = cacheDir();
      this.#disabled = (e as Error).message;
    }
  }

  path(key: string): string {
    return join(this.dir, key + SUFFIX);
  }

  /** The code of an entry; a damaged or foreign one is dropped and counts as a miss. */
  get(key: string, arch: string): Uint8Array | undefined {
    const code = this.#read(key, arch);
    if (code) this.#hits++;
    else this.#misses++;
    return code;
  }
  #read(key: string, arch: string): Uint8Array | undefined {
    if (this.#disabled !== undefined) return undefined;
    const path = this.path(key);
    let entry: Buffer;
    try {
      entry = readFileSync(path);
    } catch {
      return undefined; // absent, or removed by another process meanwhile
    }
    const code = decodeEntry(entry, arch);
    if (typeof code === 'string') {
      this.#dropped++;
      rmSync(path, { force: true });
      return undefined;
    }
    this.#renew(path);
    return code;
  }
  /** Code that is also known by another key, which is quicker to make. */
  getAlso(also: string, arch: string): Uint8Array | undefined {
    const key = this.#read(also, arch);
    const code = key && this.#read(Buffer.from(key).toString(), arch);
    if (code) this.#hits++;
    return code;
  }
  putAlso(also: string, key: string, arch: string): void {
    this.put(also, arch, Buffer.from(key));
  }

  /**
   * Writes beside and renames: readers see the whole entry or none. A folder that cannot be written only costs time.
   */
  put(key: string, arch: string, code: Uint8Array): void {
    if (this.#disabled !== undefined) return;
    try {
      mkdirSync(this.dir, { recursive: true, mode: 0o700 });
      writeWhole(this.path(key), 0o600, (write) => write(encodeEntry(arch, code)));
      this.#unchecked += code.length;
      if (this.#unchecked > this.maxBytes * PRUNE_SHARE) this.prune();
    } catch (e) {
      this.#disabled = `kernels are not kept in ${this.dir}: ${(e as Error).message}`;
    }
  }

  /** From the cache, or built and kept. */
  getOrBuild(key: string, arch: string, build: () => Uint8Array): Uint8Array {
    const known = this.get(key, arch);
    if (known) return known;
    const code = build();
    this.put(key, arch, code);
    return code;
  }

  /** Removes what was not used longest until four fifths of the bound are left, and what dead writers left behind. */
  prune(): void {
    this.#unchecked = 0;
    sweep(this.dir);
    const kept = this.#list()
      .filter((e) => e.path.endsWith(SUFFIX))
      .sort((a, b) => a.time - b.time);
    let bytes = kept.reduce((n, e) => n + e.bytes, 0);
    if (bytes <= this.maxBytes) return;
    for (const e of kept) {
      if (bytes <= this.maxBytes * 0.8) break;
      rmSync(e.path, { force: true });
      bytes -= e.bytes;
    }
  }

  clear(): void {
    for (const e of this.#list()) rmSync(e.path, { force: true });
  }

  stats(): CacheStats {
    const kept = this.#list().filter((e) => e.path.endsWith(SUFFIX));
    return {
      dir: this.dir,
      entries: kept.length,
      bytes: kept.reduce((n, e) => n + e.bytes, 0),
      maxBytes: this.maxBytes,
      hits: this.#hits,
      misses: this.#misses,
      dropped: this.#dropped,
      disabled: this.#disabled,
    };
  }

  #list(): { path: string; bytes: number; time: number }[] {
    let names: string[];
    try {
      names = readdirSync(this.dir);
    } catch {
      return []; // nothing was ever kept
    }
    return names
      .filter((n) => n.includes(SUFFIX))
      .flatMap((n) => {
        const path = join(this.dir, n);
        const s = statSync(path, { throwIfNoEntry: false }); // another process may have removed it
        return s ? [{ path, bytes: s.size, time: s.mtimeMs }] : [];
      });
  }

  #renew(path: string): void {
    const s = statSync(path, { throwIfNoEntry: false });
    if (!s || Date.now() - s.mtimeMs < RENEW_MS) return;
    try {
      utimesSync(path, new Date(), new Date());
    } catch {
      // a read-only cache serves as well; its entries just keep their age
    }
  }
}
