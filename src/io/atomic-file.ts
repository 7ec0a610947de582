// Files of users that appear whole or not at all. A link is followed, and a file that is there keeps its mode.
import { realpathSync, statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { FileError, WickError } from '../base/errors.js';
import { type Draft, openDraft, sweep, type Write } from '../base/whole-file.js';

export type { Write };

/** What the file system refuses, as an error that names the file. */
function named<T>(given: string, act: () => T): T {
  try {
    return act();
  } catch (cause) {
    if (cause instanceof WickError) throw cause;
    throw new FileError(`${given}: cannot be written: ${(cause as Error).message}`, { cause });
  }
}

/** A file written bit by bit, over time: it appears when it is settled. */
export function openAtomic(given: string): Draft {
  const { write, settle, abandon } = named(given, () => {
    const before = statSync(given, { throwIfNoEntry: false });
    const path = before ? realpathSync(given) : given;
    sweep(dirname(path), basename(path));
    return openDraft(path, before ? before.mode & 0o777 : 0o666, before !== undefined);
  });
  return { write: (bytes) => named(given, () => write(bytes)), settle: () => named(given, settle), abandon };
}

export function writeAtomic(given: string, fill: (write: Write) => void): void {
  const draft = openAtomic(given);
  try {
    named(given, () => fill(draft.write));
    draft.settle();
  } catch (error) {
    draft.abandon();
    throw error;
  }
}

/** The same stream of bytes into memory. */
export function collect(fill: (write: Write) => void): Uint8Array {
  const parts: Uint8Array[] = [];
  fill((bytes) => parts.push(bytes.slice()));
  return new Uint8Array(Buffer.concat(parts));
}
