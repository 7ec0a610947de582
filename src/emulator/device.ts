// The emu driver: AMD code objects run by the emulator; each target is a device, and work is done when it is enqueued.
import { env } from '../base/environment.js';
import { DeviceError, DriverError } from '../base/errors.js';
import type { Kernel } from './code-object.js';
import { describe } from './executor.js';
import { EMULATED_TARGETS, EmulatedGpu, type GpuOptions, type LaunchReport, type LoadedModule } from './gpu.js';
import { waveSize } from '../driver/compiler.js';
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
} from '../driver/driver.js';
import { nativeBlock, nativeView } from '../driver/ffi.js';
import { ImmediateDevice } from '../driver/immediate-device.js';

const SHARED = 64 << 10;
interface LoadedKernel {
  readonly module: LoadedModule;
  readonly kernel: Kernel;
}
/**
 * Called after every launch: counts that do not depend on the machine, and what checks found. Without one, findings are
 * errors.
 */
export type LaunchListener = (symbol: string, report: LaunchReport) => void;

export class EmuDevice extends ImmediateDevice implements Device {
  readonly gpu: EmulatedGpu;
  readonly libraries: DeviceLibraries = {
    blas: 'the emulator has no BLAS library',
    dnn: 'the emulator has no convolution library',
  };
  onLaunch: LaunchListener | undefined;
  readonly #modules: LoadedModule[] = [];
  readonly #kernels: LoadedKernel[] = [];

  constructor(driver: Driver, ordinal: number, info: DeviceInfo, options: GpuOptions) {
    super(driver, ordinal, info);
    this.gpu = new EmulatedGpu(info.arch, options);
  }

  alloc(bytes: number): Address {
    this.checkBytes(bytes);
    const address = this.gpu.memory.alloc(bytes);
    this.gpu.memory.range(address, bytes, 'alloc').fill(0x7f); // a NaN pattern shows reads of what was never written
    return address;
  }
  free(address: Address): void {
    this.gpu.memory.release(address);
  }
  /** Whether these bytes lie in one block that alloc gave. */
  holds(address: Address, bytes: number): boolean {
    return this.gpu.memory.holds(address, bytes);
  }
  memory(): { free: number; total: number } {
    return { free: this.info.totalBytes - this.gpu.memory.used, total: this.info.totalBytes };
  }
  allocHost(bytes: number): HostBuffer {
    const { address, buffer } = nativeBlock(bytes);
    return { address, bytes: new Uint8Array(buffer) };
  }
  freeHost(): void {} // such blocks live as long as the process

  memset(address: Address, byte: number, bytes: number, stream: Stream): void {
    this.enqueue(stream, () => this.gpu.memory.range(address, bytes, 'memset').fill(byte));
  }
  copyIn(dst: Address, src: Uint8Array, stream: Stream): void {
    this.refuseWhileRecorded(stream, 'copyIn');
    this.gpu.memory.range(dst, src.byteLength, 'copyIn').set(src);
  }
  copyOut(target: Uint8Array, src: Address, stream: Stream): void {
    this.refuseWhileRecorded(stream, 'copyOut');
    target.set(this.gpu.memory.range(src, target.byteLength, 'copyOut'));
  }
  copyInAsync(dst: Address, host: Address, bytes: number, stream: Stream): void {
    this.enqueue(stream, () => this.gpu.memory.range(dst, bytes, 'copyInAsync').set(nativeView(host, bytes)));
  }
  copyOutAsync(host: Address, src: Address, bytes: number, stream: Stream): void {
    this.enqueue(stream, () => nativeView(host, bytes).set(this.gpu.memory.range(src, bytes, 'copyOutAsync')));
  }
  copy(dst: Address, src: Address, bytes: number, stream: Stream): void {
    this.enqueue(stream, () =>
      this.gpu.memory.range(dst, bytes, 'copy').set(this.gpu.memory.range(src, bytes, 'copy')),
    );
  }

  loadModule(code: Uint8Array, name: string): Module {
    return this.#modules.push(this.gpu.load(code, name));
  }
  protected findFunction(module: Module, symbol: string): Fn | undefined {
    const loaded = this.#modules[module - 1];
    const kernel = loaded && this.gpu.kernel(loaded, symbol);
    return kernel && this.#kernels.push({ module: loaded, kernel });
  }
  protected moduleName(module: Module): string {
    return this.#modules[module - 1]?.name ?? `number ${module}`;
  }
  /** Offsets and sizes of a kernel's parameters as its metadata has them. */
  describe(fn: Fn): string {
    return this.#kernels[fn - 1].kernel.args
      .filter((a) => !a.kind.startsWith('hidden_'))
      .map((a) => `${a.offset}:${a.size}`)
      .join(' ');
  }
  setMaxDynamicShared(fn: Fn, bytes: number): void {
    const { kernel } = this.#kernels[fn - 1];
    if (kernel.ldsBytes + bytes > SHARED)
      throw new DriverError(`setMaxDynamicShared(${kernel.name}, ${bytes}): at most ${SHARED - kernel.ldsBytes} bytes`);
  }
  launch(fn: Fn, grid: Triple, block: Triple, shared: number, stream: Stream, args: Arguments): void {
    const { module, kernel } = this.#kernels[fn - 1];
    const packed = nativeView(args.address, args.size).slice();
    this.enqueue(stream, () => {
      const report = this.gpu.launch(module, kernel.name, grid, block, packed, shared);
      if (this.onLaunch) this.onLaunch(kernel.name, report);
      else if (report.findings.length > 0)
        throw new DriverError(
          `${report.findings.length} findings in a checked launch:\n  ${report.findings.map(describe).join('\n  ')}`,
        );
    });
  }
}

/** 4 GiB is what one WebAssembly memory addresses. */
const info = (arch: string): DeviceInfo => ({
  name: `emulated ${arch}`,
  arch,
  fullArch: arch,
  warp: waveSize(arch),
  multiprocessors: 4,
  maxThreadsPerBlock: 1024,
  maxThreadsPerMultiprocessor: 2048,
  sharedPerBlock: SHARED,
  sharedPerBlockOptin: SHARED,
  registersPerBlock: 65536,
  l2Bytes: 4 << 20,
  totalBytes: 4 * 2 ** 30 - 65536,
  integrated: false,
  memoryPools: true,
});

let opened: Driver | undefined;
const devices = new Map<number, EmuDevice>();
/** Devices are numbered by the order of EMULATED_TARGETS. */
function openEmu(): Driver {
  const arch = (ordinal: number): string => {
    const found = EMULATED_TARGETS[ordinal];
    if (found === undefined)
      throw new DeviceError(
        `emu: there is no device ${ordinal}; emulated are ${EMULATED_TARGETS.map((t) => `emu:${t}`).join(', ')}`,
      );
    return found;
  };
  opened ??= {
    name: 'emu',
    version: 'emulated AMD GPU',
    deviceCount: EMULATED_TARGETS.length,
    info: (n) => info(arch(n)),
    open: (n) => {
      const known = devices.get(n);
      if (known) return known;
      const checked = env('WICK_EMU_CHECK') === '1';
      const seed = Number(env('WICK_EMU_SEED') ?? 1);
      const threads = Number(env('WICK_EMU_THREADS') ?? 0) || undefined;
      const device = new EmuDevice(opened!, n, info(arch(n)), { checked, seed, ...(threads && { threads }) });
      devices.set(n, device);
      return device;
    },
  };
  return opened;
}

/** The emulated device of a target: 'gfx1030'. */
export function openEmulated(target: string): EmuDevice {
  const n = (EMULATED_TARGETS as readonly string[]).indexOf(target || 'gfx1030');
  if (n < 0)
    throw new DeviceError(
      `emu:${target}: there is no such device; emulated are ${EMULATED_TARGETS.map((t) => `emu:${t}`).join(', ')}`,
    );
  return openEmu().open(n) as EmuDevice;
}
