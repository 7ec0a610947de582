// Files of users that appear whole or not at all. A link is followed, and a file that is there keeps its mode.
import { realpathSync, statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { FileError, WickError } from '../base/errors.js';
import { sweep, type Write, writeWhole } from '../base/whole-file.js';

export type { Write };

export function writeAtomic(given: string, fill: (write: Write) => void): void {
  try {
    const before = statSync(given, { throwIfNoEntry: false });
    const path = before ? realpathSync(given) : given;
    sweep(dirname(path), basename(path));
    writeWhole(path, before ? before.mode & 0o777 : 0o666, fill, before !== undefined);
  } catch (cause) {
    if (cause instanceof WickError) throw cause;
    throw new FileError(`${given}: cannot be written: ${(cause as Error).message}`, { cause });
  }
}

/** The same stream of bytes into memory. */
export function collect(fill: (write: Write) => void): Uint8Array {
  const parts: Uint8Array[] = [];
  fill((bytes) => parts.push(bytes.slice()));
  return new Uint8Array(Buffer.concat(parts));
}
