// Files that appear whole or not at all: written beside their place, flushed, then renamed. What killed writers left
// behind is swept away.
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  fchmodSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';

export type Write = (bytes: Uint8Array) => void;

/**
 * A process by its number and the moment it began, for a number alone may have been given to another one since;
 * undefined when it is gone.
 */
export function processMark(pid: number): string | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ');
    return `${pid}-${fields?.[19]}`;
  } catch {
    return undefined;
  }
}
/** Whether the process of a mark still runs. */
export const isRunning = (mark: string): boolean => processMark(Number.parseInt(mark, 10)) === mark;

const DRAFT = /^\.(?<name>.*)\.(?<mark>\d+-\d+)\.[0-9a-f]{12}\.part$/;

/** A name beside `path` for something that is still being made. */
export const draftOf = (path: string): string =>
  join(
    dirname(path),
    `.${basename(path)}.${processMark(process.pid) ?? `${process.pid}-0`}.${randomBytes(6).toString('hex')}.part`,
  );

/** Removes drafts whose writers were killed: of one file, or of all in the folder. */
export function sweep(folder: string, name?: string): void {
  for (const entry of readdirSync(folder)) {
    const draft = DRAFT.exec(entry)?.groups;
    if (!draft || (name !== undefined && draft.name !== name) || isRunning(draft.mark)) continue;
    rmSync(join(folder, entry), { recursive: true, force: true });
  }
}

/** Gives a draft its name once its bytes are on the disk, so that a power cut leaves the whole file or none. */
export function settleDraft(draft: string, path: string): void {
  const fd = openSync(draft, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(draft, path);
}

/** A file that is being written beside its place. One of settle and abandon ends it. */
export interface Draft {
  readonly write: Write;
  /** The file appears, flushed to the disk. */
  settle(): void;
  /** Nothing is left of it. */
  abandon(): void;
}

export function openDraft(path: string, mode: number, exactMode = true): Draft {
  const draft = draftOf(path);
  const fd = openSync(draft, 'wx', mode);
  let open = true;
  const close = (): void => {
    if (open) closeSync(fd);
    open = false;
  };
  const abandon = (): void => {
    close();
    rmSync(draft, { force: true });
  };
  try {
    if (exactMode) fchmodSync(fd, mode); // whatever the umask says
  } catch (error) {
    abandon();
    throw error;
  }
  return {
    abandon,
    write: (bytes) => {
      for (let done = 0; done < bytes.length; )
        done += writeSync(fd, bytes, done, Math.min(2 ** 30, bytes.length - done));
    },
    settle: () => {
      fsyncSync(fd);
      close();
      renameSync(draft, path);
    },
  };
}

/** Writes a file; on any failure, a full disk included, nothing is left under either name. */
export function writeWhole(path: string, mode: number, fill: (write: Write) => void, exactMode = true): void {
  const draft = openDraft(path, mode, exactMode);
  try {
    fill(draft.write);
    draft.settle();
  } catch (error) {
    draft.abandon();
    throw error;
  }
}
