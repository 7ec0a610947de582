// What the families of GPU ops work with: the device, its stream, packed arguments, kernels and scratch memory.
import { IndexError } from '../../base/errors.js';
import { ArgBuffer } from '../../driver/args.js';
import type { Address, Device, DeviceLibraries, Fn, Stream } from '../../driver/driver.js';
import type { View } from '../backend.js';
import { Allocator, type GpuMemory } from './allocator.js';
import { Functions } from './functions.js';
import { fillView } from './movement.js';

const NONE: DeviceLibraries = { blas: 'libraries are switched off', dnn: 'libraries are switched off' };

export class GpuContext {
  readonly device: Device;
  readonly stream: Stream;
  readonly allocator: Allocator;
  readonly functions: Functions;
  /** One buffer serves every launch: the driver takes the arguments before it returns. */
  readonly args = new ArgBuffer();
  /** f32 products may be rounded to TF32 only when asked for. */
  tf32 = false;
  /** Off: our own kernels serve where a vendor's library would, as on a machine without one. */
  useLibraries = true;
  /** Functions launched since someone asked to be told: evidence names the kernels it speaks of. */
  launched: Set<Fn> | undefined;
  readonly #libraries: DeviceLibraries | undefined;
  #fault: GpuMemory | undefined;
  #suspect: string | undefined;

  /** `libraries` in the place of the device's own. */
  constructor(device: Device, libraries?: DeviceLibraries) {
    this.#libraries = libraries;
    this.device = device;
    this.stream = device.createStream();
    this.allocator = new Allocator(device, this.stream);
    this.functions = new Functions(device);
  }

  /** The vendor's matrix products and convolutions, or the sentence that says why not. */
  get libraries(): DeviceLibraries {
    return this.useLibraries ? (this.#libraries ?? this.device.libraries) : NONE;
  }

  /** Enqueues a kernel whose arguments are packed in `args`. */
  launch(
    fn: Fn,
    gridX: number,
    gridY: number,
    gridZ: number,
    blockX: number,
    blockY = 1,
    blockZ = 1,
    shared = 0,
    early = false,
  ): void {
    this.launched?.add(fn);
    this.device.launch(fn, gridX, gridY, gridZ, blockX, blockY, blockZ, shared, this.stream, this.args, early);
  }

  /** One value in every element of a view. */
  fill(out: View, value: number): void {
    fillView(this, out, value);
  }

  /** Memory for the time of one op: reused by whatever comes later on the stream. */
  scratch<T>(bytes: number, use: (address: Address) => T): T {
    const memory = this.allocator.alloc(bytes);
    try {
      return use(memory.address);
    } finally {
      this.allocator.free(memory);
    }
  }

  /** A word that kernels set when an index is out of range; it is looked at when results are read. */
  fault(op: string): Address {
    if (!this.#fault) {
      this.#fault = this.allocator.alloc(4);
      this.device.memset(this.#fault.address, 0, 4, this.stream);
    }
    this.#suspect ??= op;
    return this.#fault.address;
  }

  /** Throws if an index was out of range in an op since the last look. */
  checkFaults(): void {
    if (!this.#fault || this.#suspect === undefined) return;
    const op = this.#suspect;
    this.#suspect = undefined;
    const word = new Uint8Array(4);
    this.device.copyOut(word, this.#fault.address, this.stream);
    if (word[0] === 0) return;
    this.device.memset(this.#fault.address, 0, 4, this.stream);
    throw new IndexError(
      `${op}, or an indexing op after it: an index was out of range for its dimension (found when results were read on ${this.device.info.name})`,
    );
  }
}
