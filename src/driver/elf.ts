// Shared libraries looked at before they are loaded: one that was cut off kills the process by a signal when its pages
// are touched.
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

/** Why a file is not a whole shared library of 64 bits; undefined when nothing speaks against it. */
export function brokenLibrary(path: string): string | undefined {
  const fd = openSync(path, 'r');
  try {
    const { size } = fstatSync(fd);
    const at = (offset: number, length: number): Buffer | undefined => {
      const bytes = Buffer.alloc(length);
      return readSync(fd, bytes, 0, length, offset) === length ? bytes : undefined;
    };
    const head = at(0, 64);
    if (!head || head.toString('latin1', 0, 4) !== '\x7fELF') return 'it is no ELF file';
    if (head[4] !== 2 || head[5] !== 1) return 'it is no 64-bit little-endian ELF file';
    const [table, entry, count] = [Number(head.readBigUInt64LE(32)), head.readUInt16LE(54), head.readUInt16LE(56)];
    const headers = entry >= 56 ? at(table, entry * count) : undefined;
    if (!headers) return `it is cut off: its program headers lie beyond its ${size} bytes`;
    for (let i = 0; i < count; i++) {
      const end = Number(headers.readBigUInt64LE(i * entry + 8)) + Number(headers.readBigUInt64LE(i * entry + 32));
      if (end > size) return `it is cut off: it has ${size} bytes, and a segment ends at ${end}`;
    }
    return undefined;
  } finally {
    closeSync(fd);
  }
}
