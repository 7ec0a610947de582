// Small uploads that nobody waits for: bytes are copied to page-locked memory at once and from there by the device when
// its stream gets there. A ring of pieces, each with an event that says when the device has read all of it.
import type { Address, Device, Event, HostBuffer, Stream } from '../../driver/driver.js';

/** Bytes of a piece: larger uploads go the way that waits. */
const PIECE_BYTES = 1 << 20;
const PIECES = 8;
const ALIGNMENT = 64;

interface Piece {
  readonly host: HostBuffer;
  /** Recorded behind the last copy from it, when the ring moves on. */
  readonly read: Event;
}

export class Uploads {
  readonly #device: Device;
  /** All copies go to this stream: one event then speaks for a whole piece. */
  readonly #stream: Stream;
  readonly #pieces: Piece[] = [];
  #current = 0;
  #used = 0;

  constructor(device: Device, stream: Stream) {
    this.#device = device;
    this.#stream = stream;
  }
  static takes(bytes: number): boolean {
    return bytes <= PIECE_BYTES;
  }
  /** The source may change as soon as this returns. */
  write(to: Address, data: Uint8Array): void {
    if (data.length === 0) return;
    if (this.#used + data.length > PIECE_BYTES) this.#moveOn();
    const { host } = (this.#pieces[this.#current] ??= this.#make());
    host.bytes.set(data, this.#used);
    this.#device.copyInAsync(to, host.address + this.#used, data.length, this.#stream);
    this.#used = Math.ceil((this.#used + data.length) / ALIGNMENT) * ALIGNMENT;
  }
  /** The next piece, once the device has read what it held. */
  #moveOn(): void {
    this.#device.record(this.#pieces[this.#current].read, this.#stream);
    this.#current = (this.#current + 1) % PIECES;
    this.#used = 0;
    const next = this.#pieces[this.#current];
    if (next) this.#device.synchronizeEvent(next.read);
  }
  #make(): Piece {
    return { host: this.#device.allocHost(PIECE_BYTES), read: this.#device.createEvent(false) };
  }
}
