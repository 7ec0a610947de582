// What the IO tests share: where golden files lie, random records, and files broken at random.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import assert from 'node:assert/strict';
import { after } from 'node:test';
import fc from 'fast-check';
import { DTYPES, bytesOf, type DType } from '../src/base/dtype.js';
import { WickError } from '../src/base/errors.js';
import { findGolden } from '../src/parity/golden.js';
import { memoryRecord, type TensorRecord } from '../src/io/stored-dtype.js';

export const ROOT = resolve(import.meta.dirname, '../..');
/** A golden file or folder that is there; tests ask missingGolden first. */
export const golden = (...parts: string[]): string => findGolden(...parts) as string;

/** A directory of its own that goes when the test file ends. */
export function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), 'wick-io-'));
  after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

const shapes = fc.array(fc.nat(5), { maxLength: 4 });

export const anyRecord = (dtypes: readonly DType[] = DTYPES): fc.Arbitrary<TensorRecord> =>
  fc
    .tuple(fc.constantFrom(...dtypes), shapes, fc.string({ minLength: 1, maxLength: 12, unit: 'grapheme' }))
    .chain(([dtype, shape, name]) => {
      const length = shape.reduce((n, d) => n * d, 1) * bytesOf(dtype);
      return fc
        .uint8Array({ minLength: length, maxLength: length })
        .map((bytes) => memoryRecord(name, dtype, shape, bytes));
    });

export const anyRecords = (dtypes?: readonly DType[]): fc.Arbitrary<TensorRecord[]> =>
  fc
    .uniqueArray(anyRecord(dtypes), { maxLength: 6, selector: (r) => r.name })
    .filter((rs) => rs.every((r) => r.name !== '__metadata__'));

export function sameRecord(got: TensorRecord, want: TensorRecord): void {
  assert.equal(got.dtype, want.dtype);
  assert.deepEqual([...got.shape], [...want.shape]);
  assert.deepEqual(Buffer.from(got.read()), Buffer.from(want.read()));
}

/** A valid file cut short, or with bits flipped (headers more often than data), or with bytes overwritten. */
export function broken(from: Uint8Array): fc.Arbitrary<Uint8Array> {
  const file = new Uint8Array(from); // a Buffer's slice would share its memory
  const at = fc.oneof(fc.nat(Math.max(0, file.length - 1)), fc.nat(Math.min(200, Math.max(0, file.length - 1))));
  const flips = fc.array(fc.tuple(at, fc.nat(7)), { minLength: 1, maxLength: 4 }).map((list) => {
    const out = file.slice();
    for (const [i, bit] of list) out[i] ^= 1 << bit;
    return out;
  });
  const cuts = at.map((n) => file.slice(0, n));
  const patches = fc.tuple(at, fc.uint8Array({ minLength: 1, maxLength: 8 })).map(([i, bytes]) => {
    const out = file.slice();
    out.set(bytes.subarray(0, out.length - i), i);
    return out;
  });
  const huge = at.map((i) => {
    const out = file.slice();
    out.fill(0xff, i, i + 8);
    return out;
  });
  return fc.oneof(flips, cuts, patches, huge);
}

/** Runs a reader on a damaged file: it must end, with a result or a typed error. */
export function survives(read: () => void): boolean {
  try {
    read();
    return true;
  } catch (error) {
    if (error instanceof WickError) return false;
    throw error;
  }
}

/** Bytes of array buffers that a call leaves behind or holds at its end. */
export function heldBytes(run: () => void): number {
  const before = process.memoryUsage().arrayBuffers;
  run();
  return process.memoryUsage().arrayBuffers - before;
}
