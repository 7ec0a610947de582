// One file from the hub into the cache: by ranges, from where a break left it, and checked against its checksum at the
// end.
import { createHash, type Hash } from 'node:crypto';
import {
  closeSync,
  createReadStream,
  existsSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { FormatError, UnsupportedError } from '../base/errors.js';

export interface RemoteFile {
  readonly name: string;
  readonly size: number;
  /** SHA-256 of large files, git's SHA-1 of small ones. */
  readonly checksum: string;
}
export interface DownloadOptions {
  readonly headers: Readonly<Record<string, string>>;
  /** Called with the number of bytes of the file that have arrived. */
  readonly onBytes: (done: number) => void;
  /** How often a broken connection is taken up again without getting a byte; default 5. */
  readonly patience?: number;
  readonly signal?: AbortSignal;
}

/** Why an answer is not a file. */
export function refusal(status: number, what: string): UnsupportedError {
  const why: Readonly<Record<number, string>> = {
    401: 'the hub wants a token that may read it: set HF_TOKEN',
    403: 'this token may not read it: its owner must grant access',
    404: 'there is no such model, file or revision',
    429: 'the hub asks for patience: too many requests',
  };
  return new UnsupportedError(`hub: ${what}: status ${status}${why[status] ? `; ${why[status]}` : ''}`);
}

const hashOf = ({ checksum, size }: RemoteFile): Hash =>
  checksum.length === 64 ? createHash('sha256') : createHash('sha1').update(`blob ${size}\0`);

async function checksumOf(path: string, file: RemoteFile): Promise<string> {
  const hash = hashOf(file);
  for await (const part of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(part as Uint8Array);
  return hash.digest('hex');
}

/** Takes the rest of a file; true when all of it came. */
async function takeRest(url: string, part: string, file: RemoteFile, o: DownloadOptions): Promise<boolean> {
  let have = existsSync(part) ? statSync(part).size : 0;
  if (have > file.size) {
    rmSync(part);
    have = 0;
  }
  if (have === file.size && existsSync(part)) return true;
  const answer = await fetch(url, {
    headers: { ...o.headers, ...(have > 0 && { range: `bytes=${have}-` }) },
    ...(o.signal && { signal: o.signal }),
  });
  // A server in trouble may answer the next time.
  if (answer.status >= 500 || answer.status === 429) throw new Error(`status ${answer.status}`);
  if (answer.status !== 200 && answer.status !== 206) throw refusal(answer.status, url);
  // A server that does not know ranges sends all of it again.
  if (answer.status === 200) have = 0;
  const fd = openSync(part, have > 0 ? 'r+' : 'w');
  try {
    for await (const bytes of answer.body as unknown as AsyncIterable<Uint8Array>) {
      if (have + bytes.length > file.size) throw new FormatError(`hub: ${url} goes on beyond its ${file.size} bytes`);
      writeSync(fd, bytes, 0, bytes.length, have);
      have += bytes.length;
      o.onBytes(have);
    }
  } finally {
    closeSync(fd);
  }
  return have === file.size;
}

/**
 * Fetches `url` to `path`; what a break leaves waits in `path.incomplete` for the next try, in this process or a later
 * one.
 */
export async function download(url: string, path: string, file: RemoteFile, o: DownloadOptions): Promise<void> {
  const part = `${path}.incomplete`;
  mkdirSync(dirname(path), { recursive: true });
  const patience = o.patience ?? 5;
  let before = existsSync(part) ? statSync(part).size : 0;
  for (let tries = 0; ; ) {
    let broken: unknown;
    try {
      if (await takeRest(url, part, file, o)) break;
      broken = new Error('the connection ended early');
    } catch (error) {
      if (error instanceof UnsupportedError || error instanceof FormatError || o.signal?.aborted) throw error;
      broken = error;
    }
    const now = existsSync(part) ? statSync(part).size : 0;
    tries = now > before ? 0 : tries + 1;
    before = now;
    if (tries >= patience)
      throw new UnsupportedError(
        `hub: ${url} broke off at ${now} of ${file.size} bytes and did not go on: ${reason(broken)}; what is there ` +
          'is kept for the next try',
        { cause: broken },
      );
    await pause(Math.min(4000, 50 * 4 ** tries));
  }
  if (file.size === 0 && !existsSync(part)) closeSync(openSync(part, 'w'));
  const got = await checksumOf(part, file);
  if (got !== file.checksum) {
    rmSync(part);
    throw new FormatError(`hub: ${url}: its checksum is ${got}, not ${file.checksum}; what came was thrown away`);
  }
  renameSync(part, path);
}

/** fetch hides what went wrong one level down. */
export function reason(error: unknown): string {
  const cause = (error as { cause?: { code?: string; message?: string } }).cause;
  return cause?.code ?? cause?.message ?? (error as Error).message;
}
