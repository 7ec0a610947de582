// Scratch memory of library calls: one block a stream, growing on demand.
import type { Address, Device, Stream } from './driver.js';

export class Workspaces {
  readonly #device: Device;
  readonly #blocks = new Map<Stream, { address: Address; bytes: number }>();
  /** Outgrown blocks stay until the end: a captured graph may still name them. */
  readonly #old: Address[] = [];

  constructor(device: Device) {
    this.#device = device;
  }

  /** At least so many bytes; 0 for none. Work on one stream is in order, so its calls can share a block. */
  get(stream: Stream, bytes: number): Address {
    if (bytes === 0) return 0;
    const known = this.#blocks.get(stream);
    if (known && known.bytes >= bytes) return known.address;
    const address = this.#device.alloc(bytes);
    if (known) this.#old.push(known.address);
    this.#blocks.set(stream, { address, bytes });
    return address;
  }

  dispose(): void {
    for (const address of this.#old) this.#device.free(address);
    for (const { address } of this.#blocks.values()) this.#device.free(address);
    this.#old.length = 0;
    this.#blocks.clear();
  }
}
