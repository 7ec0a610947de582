// The sim driver: kernels compiled as host C++ run in this process with waves of 32 or 64 lanes, and misuse of barriers
// is an error.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { env } from '../base/environment.js';
import { DeviceError, DriverError, OutOfMemoryError } from '../base/errors.js';
import { cacheFolder, keptOr } from '../base/kept-files.js';
import { simulationDir } from '../base/paths.js';
import type {
  Address,
  Arguments,
  Device,
  DeviceInfo,
  DeviceLibraries,
  Driver,
  Fn,
  HostBuffer,
  Module,
  Stream,
  Triple,
} from './driver.js';
import { cText, loadForGood, nativeBlock, nativeView } from './ffi.js';
import { buildHost, hostCompiler } from './host-cc.js';
import { ImmediateDevice } from './immediate-device.js';

/** How blocks are run: settings to find bugs that one order or one kind of garbage would hide. */
export interface SimOptions {
  reverse: boolean;
  /** The byte that fresh device memory and shared memory are filled with. */
  poison: number;
}
export const simOptions: SimOptions = {
  reverse: env('WICK_SIM_ORDER') === 'reverse',
  poison: Number(env('WICK_SIM_POISON') ?? 0x7f) & 0xff,
};

/**
 * The machine's own library, native/simulation/memory.cpp: memory, and modules of kernels, which run one launch at a
 * time in a process.
 */
const HOST = {
  alloc: 'uintptr_t sim_alloc(size_t bytes, int poison)',
  free: 'void sim_free(uintptr_t p)',
  copy: 'void sim_copy(uintptr_t dst, uintptr_t src, size_t bytes)',
  copyIn: 'void sim_copy(uintptr_t dst, void *src, size_t bytes)',
  copyOut: 'void sim_copy(void *dst, uintptr_t src, size_t bytes)',
  set8: 'void sim_set8(uintptr_t dst, int byte, size_t bytes)',
  load: 'uintptr_t sim_load(const char *path, void *error, int bytes)',
  find: 'int sim_find(uintptr_t module, const char *name)',
  describe: 'void sim_describe(uintptr_t module, int entry, void *out, int bytes)',
  launch: 'int sim_launch(uintptr_t module, int entry, void *geometry, uintptr_t args, void *error, int bytes)',
};
type Calls<T> = { readonly [K in keyof T]: (...args: (number | string | ArrayBufferView)[]) => number };

function bind<T extends Record<string, string>>(path: string, table: T): Calls<T> {
  const library = loadForGood(path);
  return Object.fromEntries(
    Object.entries(table).map(([k, prototype]) => [k, library.func(prototype)]),
  ) as unknown as Calls<T>;
}

interface Loaded {
  readonly name: string;
  readonly handle: number;
}
interface Kernel {
  readonly symbol: string;
  readonly entry: number;
  readonly module: Loaded;
}

const SHARED = 64 << 10;

class SimDevice extends ImmediateDevice implements Device {
  readonly libraries: DeviceLibraries = {
    blas: 'the sim driver has no BLAS library',
    dnn: 'the sim driver has no convolution library',
  };

  readonly #host: Calls<typeof HOST>;
  readonly #blocks = new Map<Address, number>();
  #liveBytes = 0;
  readonly #modules: Loaded[] = [];
  readonly #kernels: Kernel[] = [];
  readonly #geometry = new Uint32Array(9);
  readonly #error = new Uint8Array(512);

  constructor(driver: Driver, ordinal: number, info: DeviceInfo, memory: Calls<typeof HOST>) {
    super(driver, ordinal, info);
    this.#host = memory;
  }

  alloc(bytes: number): Address {
    this.checkBytes(bytes);
    const address = this.#liveBytes + bytes > this.info.totalBytes ? 0 : this.#host.alloc(bytes, simOptions.poison);
    if (address === 0)
      throw new OutOfMemoryError(
        `${this.info.name}: alloc(${bytes}): ${this.#liveBytes} of ${this.info.totalBytes} bytes are in use`,
      );
    this.#blocks.set(address, bytes);
    this.#liveBytes += bytes;
    return address;
  }
  free(address: Address): void {
    const bytes = this.#blocks.get(address);
    if (bytes === undefined) throw new DriverError(`free(${address}): not an address that alloc gave, or freed before`);
    this.#blocks.delete(address);
    this.#liveBytes -= bytes;
    this.#host.free(address);
  }
  /** Whether these bytes lie in one block that alloc gave. */
  holds(address: Address, bytes: number): boolean {
    for (const [at, size] of this.#blocks) if (address >= at && address + bytes <= at + size) return true;
    return false;
  }
  memory(): { free: number; total: number } {
    return { free: this.info.totalBytes - this.#liveBytes, total: this.info.totalBytes };
  }
  allocHost(bytes: number): HostBuffer {
    const address = this.#host.alloc(bytes, 0);
    return { address, bytes: nativeView(address, bytes) };
  }
  freeHost(buffer: HostBuffer): void {
    this.#host.free(buffer.address);
  }

  memset(address: Address, byte: number, bytes: number, stream: Stream): void {
    this.enqueue(stream, () => this.#host.set8(address, byte, bytes));
  }
  copyIn(dst: Address, src: Uint8Array, stream: Stream): void {
    this.refuseWhileRecorded(stream, 'copyIn');
    this.#host.copyIn(dst, src, src.byteLength);
  }
  copyOut(target: Uint8Array, src: Address, stream: Stream): void {
    this.refuseWhileRecorded(stream, 'copyOut');
    this.#host.copyOut(target, src, target.byteLength);
  }
  copyInAsync(dst: Address, host: Address, bytes: number, stream: Stream): void {
    this.enqueue(stream, () => this.#host.copy(dst, host, bytes));
  }
  copyOutAsync(host: Address, src: Address, bytes: number, stream: Stream): void {
    this.enqueue(stream, () => this.#host.copy(host, src, bytes));
  }
  copy(dst: Address, src: Address, bytes: number, stream: Stream): void {
    this.enqueue(stream, () => this.#host.copy(dst, src, bytes));
  }

  /** All simulated devices are in this process's memory. */
  canReach(other: Device): boolean {
    return other.driver === this.driver;
  }
  copyTo(_other: Device, dst: Address, src: Address, bytes: number, stream: Stream): void {
    this.copy(dst, src, bytes, stream);
  }

  loadModule(code: Uint8Array, name: string): Module {
    // The loader takes files only; one file per content, whole when it gets its name.
    const key = createHash('sha256').update(code).digest('hex').slice(0, 32);
    const path = keptOr(join(cacheFolder('sim', true), `module-${key}.so`), (draft) => writeFileSync(draft, code));
    this.#error[0] = 0;
    const handle = this.#host.load(path, this.#error, this.#error.length);
    if (handle === 0) throw new DriverError(`loadModule(${name}): ${cText(this.#error)}`);
    return this.#modules.push({ name, handle });
  }
  protected findFunction(module: Module, symbol: string): Fn | undefined {
    const loaded = this.#modules[module - 1];
    const entry = this.#host.find(loaded.handle, symbol);
    return entry < 0 ? undefined : this.#kernels.push({ symbol, entry, module: loaded });
  }
  protected moduleName(module: Module): string {
    return this.#modules[module - 1].name;
  }
  /**
   * "offset:size ..." of a kernel's parameters as the C++ compiler lays them out: what packed arguments must agree
   * with.
   */
  describe(fn: Fn): string {
    const { entry, module } = this.#kernels[fn - 1];
    const out = new Uint8Array(1024);
    this.#host.describe(module.handle, entry, out, out.length);
    return cText(out).trim();
  }
  setMaxDynamicShared(fn: Fn, bytes: number): void {
    if (bytes > SHARED)
      throw new DriverError(`setMaxDynamicShared(${this.#kernels[fn - 1].symbol}, ${bytes}): at most ${SHARED} bytes`);
  }
  launch(fn: Fn, grid: Triple, block: Triple, shared: number, stream: Stream, args: Arguments): void {
    const kernel = this.#kernels[fn - 1];
    const what = `launch(${kernel.symbol}, grid ${grid.join('x')}, block ${block.join('x')})`;
    if (![...grid, ...block].every((n) => n > 0)) throw new DriverError(`${what}: empty grids and blocks are refused`);
    if (grid[1] > 65535 || grid[2] > 65535 || grid[0] > 2 ** 31 - 1)
      throw new DriverError(`${what}: the grid is too large; y and z end at 65535`);
    if (shared > SHARED) throw new DriverError(`${what}: ${shared} bytes of dynamic shared memory; at most ${SHARED}`);
    const run = (address: Address): void => {
      this.#geometry.set([...grid, ...block, shared, simOptions.reverse ? 1 : 0, simOptions.poison]);
      this.#error[0] = 0;
      const { module, entry } = kernel;
      if (this.#host.launch(module.handle, entry, this.#geometry, address, this.#error, this.#error.length) !== 0)
        throw new DriverError(`${what}: ${cText(this.#error)}`);
    };
    if (!this.isRecorded(stream)) return run(args.address);
    const kept = nativeBlock(Math.max(args.size, 1));
    new Uint8Array(kept.buffer).set(nativeView(args.address, args.size));
    this.enqueue(stream, () => run(kept.address));
  }
}

let opened: Driver | undefined;
/** Devices are numbered by their wave size, 32 and 64; 0 and 1 mean the same. */
export function openSim(): Driver {
  if (opened) return opened;
  const version = `host simulation, ${hostCompiler()}`;
  const sanitizer = env('WICK_SIM_SANITIZE') === 'address' ? 'address' : 'none';
  const memory = bind(
    buildHost('sim-memory', readFileSync(join(simulationDir, 'memory.cpp'), 'utf8'), sanitizer),
    HOST,
  );
  const devices = new Map<number, Device>();
  const wave = (ordinal: number): number => {
    const found = ({ 0: 32, 1: 64, 32: 32, 64: 64 } as Record<number, number>)[ordinal];
    if (found === undefined) throw new DeviceError(`sim:${ordinal}: there is no such device; sim:32 and sim:64 are`);
    return found;
  };
  const info = (ordinal: number): DeviceInfo => ({
    name: `simulated GPU with waves of ${wave(ordinal)}`,
    arch: 'sim',
    fullArch: `sim:${wave(ordinal)}`,
    warp: wave(ordinal),
    multiprocessors: 4,
    maxThreadsPerBlock: 1024,
    maxThreadsPerMultiprocessor: 2048,
    sharedPerBlock: SHARED,
    sharedPerBlockOptin: SHARED,
    registersPerBlock: 65536,
    l2Bytes: 4 << 20,
    totalBytes: 8 * 2 ** 30,
    integrated: true,
    memoryPools: true,
  });
  const driver: Driver = {
    name: 'sim',
    version,
    deviceCount: 2,
    info,
    open: (ordinal) => {
      const w = wave(ordinal);
      const device = devices.get(w) ?? new SimDevice(driver, w, info(w), memory);
      devices.set(w, device);
      return device;
    },
  };
  return (opened = driver);
}
