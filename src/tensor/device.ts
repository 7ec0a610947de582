// Devices by name: one cached object each, with its backend, its constants and its memory counters.
import { totalmem } from 'node:os';
import { env } from '../base/environment.js';
import type { Backend, MemoryStats } from '../backends/backend.js';
import type { DeviceInfo } from '../driver/driver.js';
import type { Replay } from '../backends/gpu/gpu.js';
import { listGpus, openBackend } from '../backends/registry.js';
import { checkValue, DTYPE, type DType, isFloat } from '../base/dtype.js';
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { noteConstant } from './constants.js';
import { keep } from './scope.js';
import { settle } from './storage.js';
import { Tensor } from './tensor.js';

const CONSTANTS_KEPT = 256;

/** Work that goes on beside other work. */
export interface StreamWork<T> {
  /** Whether it is done. */
  readonly done: boolean;
  /** What is enqueued from now on begins after it. Answers what the function answered; the host waits for nothing. */
  wait(): T;
}
/** A line of work beside the device's own. */
export interface WorkStream {
  /** Enqueues what `f` computes on this stream, beside the work of others. */
  run<T>(f: () => T): StreamWork<T>;
  /** Gives the stream back, after the work on it has ended. */
  dispose(): void;
}
const AT_ONCE: WorkStream = {
  run: (f) => {
    const result = f();
    return { done: true, wait: () => result };
  },
  dispose: () => {},
};

/** What a device is. Numbers are of GPUs; the CPU has its name and its memory. */
export interface DeviceProperties {
  /** What opens it: 'cuda:0'. */
  readonly name: string;
  /** 'gpu' for cuda, rocm, simulated and emulated devices. */
  readonly kind: 'cpu' | 'gpu';
  /** The product's name, or one line about the engine. */
  readonly product: string;
  /** What kernels are compiled for: 'sm_90', 'gfx1100'. */
  readonly arch?: string;
  /** Memory of the device in bytes; of a CPU that of the machine. */
  readonly totalBytes: number;
  /** Compute units (AMD) or multiprocessors (NVIDIA); undefined on the CPU. */
  readonly multiprocessors?: number;
  /** Threads that run in lockstep. */
  readonly warp?: number;
  /** The GPU shares memory with the host. */
  readonly integrated?: boolean;
}
const gpuProperties = (name: string, info: DeviceInfo): DeviceProperties => ({
  name,
  kind: 'gpu',
  product: info.name,
  arch: info.arch,
  totalBytes: info.totalBytes,
  multiprocessors: info.multiprocessors,
  warp: info.warp,
  integrated: info.integrated,
});

/** A place where tensors lie and ops run: the CPU, a GPU, or a simulation of one. One object for each name. */
export class Device {
  static readonly #open = new Map<string, Device>();
  static #default: Device | undefined;

  /** What runs the ops there. */
  readonly backend: Backend;
  /**
   * Cloning a tensor for another thread would leave its memory behind and give an object without numbers; a symbol
   * cannot be cloned, and what it says is the error.
   */
  protected readonly thread = Symbol('a tensor stays in its thread, and (await x.data()) goes: this device');
  readonly #constants = new Map<DType, Map<number, Tensor>>();
  #constantBytes = 0;

  private constructor(backend: Backend) {
    this.backend = backend;
  }

  /** 'cpu', 'reference', 'cuda:0', 'rocm:0', 'sim:32', 'sim:64', 'emu:gfx1030'; the same object for the same name. */
  static get(name: string): Device {
    let device = Device.#open.get(name);
    if (!device) {
      const backend = openBackend(name);
      device = Device.#open.get(backend.name) ?? new Device(backend);
      Device.#open.set(name, device).set(backend.name, device);
    }
    return device;
  }
  /** A device as callers name it: itself, its name, or nothing for the default. */
  static of(device: Device | string | undefined): Device {
    if (device === undefined) return Device.default;
    if (typeof device === 'string') return Device.get(device);
    if (device instanceof Device) return device;
    throw new ArgumentError(
      `device: expected a Device or a name such as 'cpu' or 'cuda:0', not ${device === null ? 'null' : typeof device}`,
    );
  }
  /** The CPU. */
  static cpu(): Device {
    return Device.get('cpu');
  }
  /** Plain TypeScript in double precision: slow, the oracle. */
  static reference(): Device {
    return Device.get('reference');
  }
  /** An NVIDIA GPU by its number. */
  static cuda(ordinal = 0): Device {
    return Device.get(`cuda:${ordinal}`);
  }
  /** An AMD GPU by its number. */
  static rocm(ordinal = 0): Device {
    return Device.get(`rocm:${ordinal}`);
  }
  /** The GPU kernels run on the host, with 32 or 64 lanes a wave. */
  static sim(wave: 32 | 64 = 32): Device {
    return Device.get(`sim:${wave}`);
  }
  /** An AMD GPU run instruction by instruction from real code objects: 'gfx1030', 'gfx90a', ... */
  static emulated(target = 'gfx1030'): Device {
    return Device.get(`emu:${target}`);
  }
  /** The CPU and every GPU that a vendor's driver sees, none of them opened. */
  static list(): DeviceProperties[] {
    return [Device.cpu().properties, ...listGpus().map(({ name, info }) => gpuProperties(name, info))];
  }
  /** A GPU if there is one, else the CPU. */
  static best(): Device {
    for (const name of ['cuda:0', 'rocm:0']) {
      try {
        return Device.get(name);
      } catch {
        // no such GPU here: the next one
      }
    }
    return Device.cpu();
  }
  /** Where tensors are made when nothing is said: the CPU, or what was set. */
  static get default(): Device {
    return (Device.#default ??= Device.get(env('WICK_DEVICE') ?? 'cpu'));
  }
  static set default(device: Device) {
    Device.#default = device;
  }

  /** The name that Device.get takes. */
  get name(): string {
    return this.backend.name;
  }
  /** What it is, for people: model, memory, versions. */
  get description(): string {
    return this.backend.description;
  }

  /** What f makes is there when it returns, though work is being recorded: for tensors that are kept for all. */
  now<T>(f: () => T): T {
    return this.backend.outside ? this.backend.outside(f) : f();
  }

  /** What this device is: product, architecture, memory. */
  get properties(): DeviceProperties {
    const { gpu } = this.backend;
    if (gpu) return gpuProperties(this.name, gpu.context.device.info);
    return { name: this.name, kind: 'cpu', product: this.description, totalBytes: totalmem() };
  }
  /** Whether tensors go from here to the other over a link between the two, without the host. */
  reaches(other: Device): boolean {
    const { gpu } = this.backend;
    if (!gpu?.reaches(other.backend)) return false;
    return gpu.context.device.canReach?.(other.backend.context.device) ?? false;
  }
  /**
   * Whether products and convolutions of f32 by the vendor's libraries may round their operands to TF32, which is
   * quicker and keeps ten bits; false unless it is set.
   */
  get tf32(): boolean {
    return this.backend.gpu?.context.libraries.tf32 ?? false;
  }
  set tf32(on: boolean) {
    if (typeof on !== 'boolean') throw new ArgumentError(`tf32: ${String(on)} is neither true nor false`);
    if (this.backend.gpu) this.backend.gpu.context.libraries.tf32 = on;
    else if (on) throw new UnsupportedError(`tf32: ${this.name} has no such units; only GPUs (cuda, rocm) do`);
  }

  /**
   * Whether gradients of attention are the same bits in every run; true unless it is set. Without it cuDNN, where it
   * serves, adds up those of queries in any order: 1.1 to 1.25 times as quick, in less memory (docs/decisions/0012).
   */
  get deterministic(): boolean {
    return this.backend.gpu?.context.libraries.deterministic ?? true;
  }
  set deterministic(on: boolean) {
    if (typeof on !== 'boolean') throw new ArgumentError(`deterministic: ${String(on)} is neither true nor false`);
    if (this.backend.gpu) this.backend.gpu.context.libraries.deterministic = on;
  }

  /** A 0-d tensor, kept for reuse so that numbers in a loop cost nothing. */
  constant(value: number, dtype: DType): Tensor {
    let byValue = this.#constants.get(dtype);
    if (!byValue) this.#constants.set(dtype, (byValue = new Map()));
    const known = Object.is(value, -0) ? undefined : byValue.get(value); // a Map takes -0 for 0
    if (known) return known;
    checkValue('constant', value, dtype);
    const info = DTYPE[dtype];
    const raw = new info.Raw(new ArrayBuffer(info.bytes));
    raw[0] = info.encode(isFloat(dtype) ? value : BigInt(value)) as never;
    const t = this.now(() => keep(Tensor.fromBytes(new Uint8Array(raw.buffer), [], dtype, this)));
    noteConstant(t.storage, info.decode(raw[0] as never), dtype);
    if (Object.is(value, -0)) return t;
    t.lend();
    if (byValue.size >= CONSTANTS_KEPT) {
      // Let the oldest go when nothing else reaches it: a graph may still hold it.
      const [oldest, gone] = byValue.entries().next().value as [number, Tensor];
      byValue.delete(oldest);
      gone.lend(false);
      this.#constantBytes -= info.bytes;
    }
    byValue.set(value, t);
    this.#constantBytes += info.bytes;
    return t;
  }

  /** Memory of tensors that are alive; constants kept for reuse do not count. */
  memory(): MemoryStats {
    settle(); // a loop without a pause runs no finalisers: what the collector freed long ago would count as alive
    const stats = this.backend.memory();
    return { ...stats, liveBytes: stats.liveBytes - this.#constantBytes };
  }
  /** Gives memory kept for reuse back to the system. */
  trim(): void {
    for (const byValue of this.#constants.values()) for (const t of byValue.values()) t.lend(false).dispose();
    this.#constants.clear();
    this.#constantBytes = 0;
    this.backend.trim();
  }
  /**
   * Records the work f enqueues on a GPU instead of running it; `launch` of what comes back runs it on the same memory,
   * as often as wanted.
   * Run f once before, so that kernels are compiled and constants are on the device; nothing may be read back inside.
   */
  capture(f: () => void): Replay {
    if (this.backend.gpu) return this.backend.gpu.capture(f);
    throw new UnsupportedError(
      `capture: ${this.name} runs everything at once and records nothing; GPUs (cuda, rocm) and their simulation ` +
        `(sim) do`,
    );
  }
  /**
   * A second line of work: `stream.run(f)` enqueues what f does beside what the device is given meanwhile, and
   * `wait()` of what comes back answers f's result once that may be used. The CPU does everything at once.
   */
  stream(): WorkStream {
    return this.backend.gpu?.stream() ?? AT_ONCE;
  }
  /** Waits until everything enqueued is done. */
  sync(): Promise<void> {
    return this.backend.sync();
  }
  /** The name. */
  toString(): string {
    return this.name;
  }
  /** What console.log shows. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return `Device ${this.name}`;
  }
}
