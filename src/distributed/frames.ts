// Messages on a socket: a length, a line of JSON and the bytes it speaks of.
import type { Socket } from 'node:net';
import { FormatError } from '../base/errors.js';

/** More than any message has; a stranger's bytes are no reason to take memory. */
const MOST_JSON = 1 << 20;
const MOST_BYTES = 2 ** 32;

export interface Frame {
  readonly head: Readonly<Record<string, unknown>>;
  readonly parts: readonly Uint8Array[];
}

export function writeFrame(socket: Socket, head: Record<string, unknown>, parts: readonly Uint8Array[] = []): void {
  const json = Buffer.from(JSON.stringify({ ...head, lengths: parts.map((p) => p.length) }));
  const lead = Buffer.alloc(4);
  lead.writeUInt32LE(json.length);
  socket.cork();
  socket.write(lead);
  socket.write(json);
  for (const p of parts) if (p.length > 0) socket.write(p);
  socket.uncork();
}

/** Cuts a stream into frames; bytes that are none throw. */
export class FrameReader {
  readonly #take: (frame: Frame) => void;
  #chunks: Buffer[] = [];
  #length = 0;
  #head: { readonly json: Record<string, unknown>; readonly lengths: number[]; readonly total: number } | undefined;

  constructor(take: (frame: Frame) => void) {
    this.#take = take;
  }
  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    while (this.#step());
  }
  #step(): boolean {
    if (!this.#head) {
      if (this.#length < 4) return false;
      const all = this.#joined();
      const n = all.readUInt32LE(0);
      if (n > MOST_JSON) throw new FormatError(`a message of ${n} bytes is none of wick's`);
      if (all.length < 4 + n) return false;
      const json = JSON.parse(all.toString('utf8', 4, 4 + n)) as Record<string, unknown>;
      const lengths = json.lengths as number[];
      if (!Array.isArray(lengths) || !lengths.every((l) => Number.isSafeInteger(l) && l >= 0))
        throw new FormatError("a message without its parts' lengths is none of wick's");
      const total = lengths.reduce((a, b) => a + b, 0);
      if (total > MOST_BYTES) throw new FormatError(`a message of ${total} bytes; at most ${MOST_BYTES} are taken`);
      this.#head = { json, lengths, total };
      this.#rest(all, 4 + n);
    }
    const { json, lengths, total } = this.#head;
    if (this.#length < total) return false;
    const all = this.#joined();
    let at = 0;
    const parts = lengths.map((l) => Uint8Array.from(all.subarray(at, (at += l))));
    this.#head = undefined;
    this.#rest(all, total);
    this.#take({ head: json, parts });
    return true;
  }
  #joined(): Buffer {
    if (this.#chunks.length !== 1) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0];
  }
  #rest(all: Buffer, from: number): void {
    this.#chunks = from < all.length ? [all.subarray(from)] : [];
    this.#length = all.length - from;
  }
}
