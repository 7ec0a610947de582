// The ordinary Hugging Face cache: blobs by their checksums, snapshots of links to them, refs that name a snapshot.
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { env } from '../base/environment.js';
import { ArgumentError } from '../base/errors.js';

export interface RepoName {
  /** 'owner/name'. */
  readonly repo: string;
  readonly revision: string;
}

/** HF_HUB_CACHE, else hub in HF_HOME, else ~/.cache/huggingface/hub. */
export function cacheFolder(): string {
  const cache = env('XDG_CACHE_HOME') || join(homedir(), '.cache');
  return env('HF_HUB_CACHE') || join(env('HF_HOME') || join(cache, 'huggingface'), 'hub');
}

/** One repository's place in the cache. */
export class RepoCache {
  readonly folder: string;
  readonly #revision: string;
  constructor({ repo, revision }: RepoName, cache: string = cacheFolder()) {
    this.folder = join(cache, `models--${repo.replaceAll('/', '--')}`);
    this.#revision = revision;
  }
  get #ref(): string {
    return join(this.folder, 'refs', this.#revision);
  }
  /** The snapshot that the revision named when it was last fetched whole. */
  snapshot(): string | undefined {
    const commit = existsSync(this.#ref) ? readFileSync(this.#ref, 'utf8').trim() : this.#revision;
    const path = join(this.folder, 'snapshots', commit);
    return /^[\w.-]+$/.test(commit) && existsSync(path) ? path : undefined;
  }
  blob(checksum: string): string {
    return join(this.folder, 'blobs', checksum);
  }
  /** A file's place in a snapshot; a name that would leave it is refused. */
  file(commit: string, name: string): string {
    const root = join(this.folder, 'snapshots', commit);
    const path = join(root, name);
    if (relative(root, path).startsWith('..') || name.startsWith('/'))
      throw new ArgumentError(`hub: the file name ${JSON.stringify(name)} leaves its folder`);
    return path;
  }
  /** Puts a blob into a snapshot under its name. */
  link(commit: string, name: string, checksum: string): void {
    const path = this.file(commit, name);
    mkdirSync(dirname(path), { recursive: true });
    const target = relative(dirname(path), this.blob(checksum));
    rmSync(path, { force: true });
    symlinkSync(target, path);
  }
  /** Says which snapshot the revision is, once all of it is there. */
  remember(commit: string): void {
    mkdirSync(dirname(this.#ref), { recursive: true });
    writeFileSync(`${this.#ref}.new`, commit);
    renameSync(`${this.#ref}.new`, this.#ref);
  }
}
