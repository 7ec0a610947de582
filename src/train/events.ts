// TensorBoard's event files: records with check sums around protocol buffers, scalars only, written by hand.
import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { ArgumentError, FileError } from '../base/errors.js';
import { said } from '../base/shape.js';

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
  return c >>> 0;
});
/** CRC-32C of bytes. */
export function crc32c(bytes: Uint8Array): number {
  let c = 0xffffffff;
  for (const b of bytes) c = CRC_TABLE[(c ^ b) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}
/** The check sum as records hold it: turned by 15 bits and shifted, so that sums of sums are none. */
const masked = (bytes: Uint8Array): number => {
  const c = crc32c(bytes);
  return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0;
};

/** Length, its check sum, the data, their check sum: little-endian. */
function eventRecord(data: Uint8Array): Uint8Array {
  const out = new Uint8Array(16 + data.length);
  const view = new DataView(out.buffer);
  view.setBigUint64(0, BigInt(data.length), true);
  view.setUint32(8, masked(out.subarray(0, 8)), true);
  out.set(data, 12);
  view.setUint32(12 + data.length, masked(data), true);
  return out;
}

function varint(value: number): number[] {
  const out: number[] = [];
  let v = BigInt(Math.trunc(value));
  do {
    out.push(Number(v & 127n) | (v > 127n ? 128 : 0));
    v >>= 7n;
  } while (v > 0n);
  return out;
}
const bytesOf = (n: number, write: (v: DataView) => void): number[] => {
  const v = new DataView(new ArrayBuffer(n));
  write(v);
  return [...new Uint8Array(v.buffer)];
};
const key = (field: number, wire: number): number[] => varint(field * 8 + wire);
const double = (field: number, v: number): number[] => [
  ...key(field, 1),
  ...bytesOf(8, (d) => d.setFloat64(0, v, true)),
];
const float = (field: number, v: number): number[] => [
  ...key(field, 5),
  ...bytesOf(4, (d) => d.setFloat32(0, v, true)),
];
const nested = (field: number, body: readonly number[]): number[] => [
  ...key(field, 2),
  ...varint(body.length),
  ...body,
];
const text = (field: number, v: string): number[] => nested(field, [...Buffer.from(v, 'utf8')]);

/** An Event with scalars: wall time (1), step (2), summary (5) of values (1) with tag (1) and number (2). */
const scalarEvent = (seconds: number, step: number, values: Readonly<Record<string, number>>): Uint8Array =>
  Uint8Array.from([
    ...double(1, seconds),
    ...key(2, 0),
    ...varint(step),
    ...nested(
      5,
      Object.entries(values).flatMap(([tag, v]) => nested(1, [...text(1, tag), ...float(2, v)])),
    ),
  ]);

/** A file that `tensorboard --logdir FOLDER` reads while it grows. */
export class EventWriter {
  /** The file that is written. */
  readonly path: string;
  readonly #file: number;
  #closed = false;
  constructor(folder: string) {
    const now = Date.now() / 1000;
    this.path = join(
      folder,
      `events.out.tfevents.${String(Math.floor(now)).padStart(10, '0')}.${hostname()}.${process.pid}`,
    );
    try {
      mkdirSync(folder, { recursive: true });
      this.#file = openSync(this.path, 'a');
    } catch (cause) {
      throw new FileError(`${this.path}: cannot be written: ${(cause as Error).message}`, { cause });
    }
    this.#write(Uint8Array.from([...double(1, now), ...text(3, 'brain.Event:2')]));
  }
  #write(event: Uint8Array): void {
    if (this.#closed) throw new FileError(`${this.path}: was closed`);
    writeSync(this.#file, eventRecord(event));
  }
  /** Numbers of a step by their names: 'loss/train'. */
  scalars(values: Readonly<Record<string, number>>, step: number): void {
    if (typeof values !== 'object' || values === null || Object.values(values).some((v) => typeof v !== 'number'))
      throw new ArgumentError(
        "EventWriter: scalars takes numbers by their names, as in scalars({ 'loss/train': 0.5 }, 1)",
      );
    if (!Number.isSafeInteger(step) || step < 0)
      throw new ArgumentError(`EventWriter: a step is a whole number from 0, not ${said(step)}`);
    this.#write(scalarEvent(Date.now() / 1000, step, values));
  }
  /** Writes what is left and closes the file. */
  close(): void {
    if (!this.#closed) closeSync(this.#file);
    this.#closed = true;
  }
  [Symbol.dispose](): void {
    this.close();
  }
}
