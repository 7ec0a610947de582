// Files and folders read at once: what is not there is an error with its name, as of files that are opened.
import { readdirSync, readFileSync } from 'node:fs';
import { ArgumentError, FormatError } from './errors.js';

function opened<T>(path: string, read: (path: string) => T): T {
  if (typeof path !== 'string') throw new ArgumentError(`a path is text, not ${path === null ? 'null' : typeof path}`);
  try {
    return read(path);
  } catch (cause) {
    // What stands where a path should (a picture's bytes as text, say) would fill pages; the reason ends before it.
    const name = path.length > 200 ? `${path.slice(0, 200)}...` : path;
    throw new FormatError(`${name}: cannot be opened: ${(cause as Error).message.split(', ')[0]}`, { cause });
  }
}
/** The bytes of a file. */
export const readWhole = (path: string): Buffer => opened(path, (p) => readFileSync(p));
/** The names in a folder, in order. */
export const namesIn = (path: string): string[] => opened(path, (p) => readdirSync(p)).sort();
/** Bytes as text; another encoding than UTF-8 would turn letters into question marks without a word, and throws. */
export const textOf = (bytes: Uint8Array): string => new TextDecoder('utf-8', { fatal: true }).decode(bytes);
