// Importance matrices: how much the error of each column of a weight counts. GGUF files and the older .dat are read.
import { FormatError } from '../base/errors.js';
import { Cursor, openSource, readBytes } from './byte-source.js';
import { Gguf } from './gguf.js';

/** By tensor name: a number for each column, of one matrix after another where there are experts. */
export type Importance = ReadonlyMap<string, Float32Array>;

/** Bytes that an entry takes in memory besides its numbers. */
const ENTRY = 200;
const MAX_NAME = 4096;

function isGguf(path: string): boolean {
  const source = openSource(path);
  try {
    return source.size >= 4 && Buffer.from(readBytes(source, 0, 4)).toString('latin1') === 'GGUF';
  } finally {
    source.close();
  }
}

const floats = (file: Gguf, name: string): Float32Array => {
  const record = file.record(name);
  if (record.dtype !== 'f32') throw new FormatError(`importance matrix: ${name} is ${record.dtype}, not f32`);
  return new Float32Array(record.read().slice().buffer);
};

/** Sums of squares and how many were added, for each matrix of a tensor. */
function fromGguf(path: string): Map<string, Float32Array> {
  using file = Gguf.open(path);
  const out = new Map<string, Float32Array>();
  for (const sums of file.names.filter((n) => n.endsWith('.in_sum2'))) {
    const name = sums.slice(0, -'.in_sum2'.length);
    const counts = file.has(`${name}.counts`) ? floats(file, `${name}.counts`) : undefined;
    const values = floats(file, sums);
    if (!counts || counts.length === 0 || values.length % counts.length)
      throw new FormatError(
        `${path}: ${name}: ${values.length} sums and ${counts?.length ?? 'no'} counts do not match`,
      );
    const columns = values.length / counts.length;
    // An expert that was never asked says nothing: all its columns count the same.
    out.set(
      name,
      values.map((v, i) => {
        const n = counts[Math.floor(i / columns)];
        return n > 0 ? v / n : 1;
      }),
    );
  }
  return out;
}

function fromDat(path: string): Map<string, Float32Array> {
  const source = openSource(path);
  try {
    const cursor = new Cursor(source);
    const counted = (what: string, most: number): number => {
      const at = cursor.at;
      const n = cursor.i32(what);
      if (n < 0 || n > most) throw cursor.fail(`${what} is ${n}, from 0 to ${most} can be`, at);
      return n;
    };
    const entries = counted('number of entries', Math.floor(cursor.left / 12));
    const out = new Map<string, Float32Array>();
    for (let i = 0; i < entries; i++) {
      cursor.pay(ENTRY, 10);
      const name = cursor.text(counted('length of a name', Math.min(MAX_NAME, cursor.left)), 'name');
      const calls = counted('number of calls', 2 ** 31 - 1);
      const n = counted('number of values', Math.floor(cursor.left / 4));
      const values = new Float32Array(cursor.bytes(4 * n, name).slice().buffer);
      out.set(name, calls > 0 ? values.map((v) => v / calls) : values);
    }
    return out;
  } finally {
    source.close();
  }
}

export function readImportance(path: string): Importance {
  const out = isGguf(path) ? fromGguf(path) : fromDat(path);
  if (out.size === 0) throw new FormatError(`${path}: holds no importance matrix`);
  return out;
}
