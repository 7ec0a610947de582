// Files that appear whole or not at all: written beside their place, flushed, then renamed.
import { closeSync, fsyncSync, openSync, renameSync, unlinkSync, writeSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { basename, dirname, join } from 'node:path';
import { FileError, WickError } from '../base/errors.js';

export type Write = (bytes: Uint8Array) => void;

export function writeAtomic(path: string, fill: (write: Write) => void): void {
  try {
    writeAside(path, fill);
  } catch (cause) {
    if (cause instanceof WickError) throw cause;
    throw new FileError(`${path}: cannot be written: ${(cause as Error).message}`, { cause });
  }
}

function writeAside(path: string, fill: (write: Write) => void): void {
  const draft = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.part`);
  const fd = openSync(draft, 'wx');
  let open = true;
  try {
    fill((bytes) => {
      for (let done = 0; done < bytes.length; )
        done += writeSync(fd, bytes, done, Math.min(2 ** 30, bytes.length - done));
    });
    fsyncSync(fd);
    closeSync(fd);
    open = false;
    renameSync(draft, path);
  } catch (error) {
    if (open) closeSync(fd);
    unlinkSync(draft);
    throw error;
  }
}

/** The same stream of bytes into memory. */
export function collect(fill: (write: Write) => void): Uint8Array {
  const parts: Uint8Array[] = [];
  fill((bytes) => parts.push(bytes.slice()));
  return new Uint8Array(Buffer.concat(parts));
}
