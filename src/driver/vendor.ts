// What HIP and CUDA have in common, which is nearly all: one device class over a table of calls with equal signatures.
import { ArgumentError, DeviceError, DriverError } from '../base/errors.js';
import type {
  Address,
  Arguments,
  Device,
  DeviceInfo,
  DeviceLibraries,
  Driver,
  Event,
  Fn,
  Graph,
  GraphExec,
  HostBuffer,
  Module,
  Stream,
  Triple,
} from './driver.js';
import type { Calls } from './checked-calls.js';
import { Cell, nativeBlock, nativeView, type Native, type Table } from './ffi.js';

/** The calls both vendors have under names of their own; the tables in cuda.ts and hip.ts hold the symbols. */
type SharedCall =
  | `mem${'Alloc' | 'Free' | 'Info' | 'set8'}`
  | `host${'Alloc' | 'Free'}`
  | `copy${'HtoD' | 'DtoH' | 'DtoD'}`
  | 'canAccessPeer'
  | `stream${'Create' | 'Destroy' | 'Sync' | 'WaitEvent'}`
  | `event${'Create' | 'Destroy' | 'Record' | 'Query' | 'Sync' | 'Elapsed'}`
  | ('moduleFunction' | 'launch')
  | ('beginCapture' | 'endCapture' | 'instantiate' | 'graphLaunch' | 'graphDestroy' | 'execDestroy');
export type VendorTable = Table & { readonly [K in SharedCall]: string } & {
  readonly memAllocAsync: Table[string];
  readonly memFreeAsync: Table[string];
};

/**
 * `list` is the address of the list that names packed arguments, 0 for none; `early` is leave to begin before the
 * launch before has ended.
 */
export type LaunchCall = (
  fn: Fn,
  grid: Triple,
  block: Triple,
  shared: number,
  stream: Stream,
  list: number,
  early: boolean,
) => number;

/** What the vendors do differently. */
export interface VendorRules {
  /** Ends the launch list: 0 for CUDA, 3 for HIP. */
  readonly launchEnd: number;
  /** The statuses of "not ready yet" and "no such symbol". */
  readonly notReady: number;
  readonly notFound: number;
  /** Makes the device current on this thread. */
  readonly use: (ordinal: number) => void;
  /** Where there is a better way to launch than the shared call; answers the status. */
  readonly launch?: LaunchCall;
  readonly loadModule: (code: Uint8Array, name: string) => Module;
  readonly setMaxDynamicShared: (fn: Fn, bytes: number, info: DeviceInfo) => void;
  readonly libraries: (device: Device) => DeviceLibraries;
  /**
   * The number that the driver asks peers by, leave to reach one (once), and a copy between two: both answer statuses.
   */
  readonly peerNumber: (ordinal: number) => number;
  readonly enablePeer: (ordinal: number) => number;
  readonly alreadyEnabled: number;
  readonly copyPeer: (dst: Address, to: number, src: Address, from: number, bytes: number, stream: Stream) => number;
}

const NON_BLOCKING = 1;
const NO_TIMING = 2;
const PORTABLE = 1;
/** Relaxed: memory may be allocated while a stream is captured. */
const CAPTURE_RELAXED = 2;

class VendorDevice implements Device {
  readonly driver: Driver;
  readonly ordinal: number;
  readonly info: DeviceInfo;
  readonly #calls: Calls<VendorTable>;
  readonly #rules: VendorRules;
  readonly #launch: LaunchCall;
  readonly #cell = new Cell();
  readonly #cell2 = new Cell();
  /** { 1, arguments, 2, &size, end, size }: the form of launch that takes packed arguments. */
  readonly #extra: Uint32Array;
  readonly #extraAddress: number;
  #libraries: DeviceLibraries | undefined;
  /** By ordinal: whether a link leads there. */
  readonly #reach = new Map<number, boolean>();

  constructor(driver: Driver, ordinal: number, info: DeviceInfo, calls: Calls<VendorTable>, rules: VendorRules) {
    this.driver = driver;
    this.ordinal = ordinal;
    this.info = info;
    this.#calls = calls;
    this.#rules = rules;
    const plain = calls.raw.launch as Native;
    this.#launch =
      rules.launch ??
      ((fn, [gx, gy, gz], [bx, by, bz], shared, stream, list) =>
        plain(fn, gx, gy, gz, bx, by, bz, shared, stream, 0, list));
    const block = nativeBlock(48);
    this.#extraAddress = block.address;
    this.#extra = new Uint32Array(block.buffer);
    const sizeAt = block.address + 40;
    this.#extra.set([1, 0, 0, 0, 2, 0, sizeAt % 0x100000000, Math.floor(sizeAt / 0x100000000), rules.launchEnd, 0]);
  }

  makeCurrent(): void {
    this.#rules.use(this.ordinal);
  }
  get libraries(): DeviceLibraries {
    this.makeCurrent();
    return (this.#libraries ??= this.#rules.libraries(this));
  }

  #call(name: SharedCall, ...args: Parameters<Native>): void {
    this.#rules.use(this.ordinal);
    this.#calls.call(name, ...args);
  }

  // Memory

  alloc(bytes: number): Address {
    checkBytes('alloc', bytes);
    this.#call('memAlloc', this.#cell.clear().raw, bytes);
    return this.#cell.value;
  }
  free(address: Address): void {
    this.#call('memFree', address);
  }
  allocAsync(bytes: number, stream: Stream): Address {
    if (!this.info.memoryPools) return this.alloc(bytes);
    checkBytes('allocAsync', bytes);
    this.#rules.use(this.ordinal);
    this.#calls.call('memAllocAsync', this.#cell.clear().raw, bytes, stream);
    return this.#cell.value;
  }
  freeAsync(address: Address, stream: Stream): void {
    if (!this.info.memoryPools) return this.free(address);
    this.#rules.use(this.ordinal);
    this.#calls.call('memFreeAsync', address, stream);
  }
  memory(): { free: number; total: number } {
    this.#call('memInfo', this.#cell.clear().raw, this.#cell2.clear().raw);
    return { free: this.#cell.value, total: this.#cell2.value };
  }
  allocHost(bytes: number): HostBuffer {
    checkBytes('allocHost', bytes);
    this.#call('hostAlloc', this.#cell.clear().raw, bytes, PORTABLE);
    const address = this.#cell.value;
    return { address, bytes: nativeView(address, bytes) };
  }
  freeHost(buffer: HostBuffer): void {
    this.#call('hostFree', buffer.address);
  }
  memset(address: Address, byte: number, bytes: number, stream: Stream): void {
    if (bytes > 0) this.#call('memset8', address, byte & 255, bytes, stream);
  }

  // Copies

  copyIn(dst: Address, src: Uint8Array, stream: Stream): void {
    if (src.length === 0) return;
    this.#call('copyHtoD', dst, src, src.length, stream);
    this.synchronizeStream(stream); // JavaScript may move or change the bytes as soon as we return
  }
  copyOut(target: Uint8Array, src: Address, stream: Stream): void {
    if (target.length === 0) return;
    this.#call('copyDtoH', target, src, target.length, stream);
    this.synchronizeStream(stream);
  }
  copyInAsync(dst: Address, host: Address, bytes: number, stream: Stream): void {
    if (bytes > 0) this.#call('copyHtoD', dst, host, bytes, stream);
  }
  copyOutAsync(host: Address, src: Address, bytes: number, stream: Stream): void {
    if (bytes > 0) this.#call('copyDtoH', host, src, bytes, stream);
  }
  copy(dst: Address, src: Address, bytes: number, stream: Stream): void {
    if (bytes > 0) this.#call('copyDtoD', dst, src, bytes, stream);
  }

  // Other devices

  canReach(other: Device): boolean {
    if (other === this || other.driver !== this.driver) return other === this;
    const known = this.#reach.get(other.ordinal);
    if (known !== undefined) return known;
    const { peerNumber, enablePeer, alreadyEnabled } = this.#rules;
    this.#call('canAccessPeer', this.#cell.clear().raw, peerNumber(this.ordinal), peerNumber(other.ordinal));
    const can = this.#cell.int !== 0;
    if (can) {
      const status = enablePeer(other.ordinal);
      if (status !== 0 && status !== alreadyEnabled) throw this.#calls.error('canAccessPeer', [other.ordinal], status);
    }
    this.#reach.set(other.ordinal, can);
    return can;
  }
  copyTo(other: Device, dst: Address, src: Address, bytes: number, stream: Stream): void {
    if (bytes === 0) return;
    this.canReach(other); // opens the link where there is one
    this.#rules.use(this.ordinal);
    const status = this.#rules.copyPeer(dst, other.ordinal, src, this.ordinal, bytes, stream);
    if (status !== 0) throw this.#calls.error('copyDtoD', [dst, src, bytes], status, `to device ${other.ordinal}`);
  }

  // Streams and events

  createStream(): Stream {
    this.#call('streamCreate', this.#cell.clear().raw, NON_BLOCKING);
    return this.#cell.value;
  }
  destroyStream(stream: Stream): void {
    this.#call('streamDestroy', stream);
  }
  synchronizeStream(stream: Stream): void {
    this.#call('streamSync', stream);
  }
  streamWait(stream: Stream, event: Event): void {
    this.#call('streamWaitEvent', stream, event, 0);
  }
  createEvent(timing: boolean): Event {
    this.#call('eventCreate', this.#cell.clear().raw, timing ? 0 : NO_TIMING);
    return this.#cell.value;
  }
  destroyEvent(event: Event): void {
    this.#call('eventDestroy', event);
  }
  record(event: Event, stream: Stream): void {
    this.#call('eventRecord', event, stream);
  }
  queryEvent(event: Event): boolean {
    this.#rules.use(this.ordinal);
    const status = this.#calls.status('eventQuery', event);
    if (status !== 0 && status !== this.#rules.notReady) throw this.#calls.error('eventQuery', [event], status);
    return status === 0;
  }
  synchronizeEvent(event: Event): void {
    this.#call('eventSync', event);
  }
  elapsed(start: Event, end: Event): number {
    this.#call('eventElapsed', this.#cell.clear().raw, start, end);
    return this.#cell.float;
  }

  // Modules and launches

  loadModule(code: Uint8Array, name: string): Module {
    this.#rules.use(this.ordinal);
    return this.#rules.loadModule(code, name);
  }
  getFunction(module: Module, symbol: string): Fn {
    this.#rules.use(this.ordinal);
    const status = this.#calls.status('moduleFunction', this.#cell.clear().raw, module, symbol);
    if (status === this.#rules.notFound) throw new DriverError(`getFunction: the module has no kernel '${symbol}'`);
    if (status !== 0) throw this.#calls.error('moduleFunction', [module, symbol], status);
    return this.#cell.value;
  }
  setMaxDynamicShared(fn: Fn, bytes: number): void {
    this.#rules.use(this.ordinal);
    this.#rules.setMaxDynamicShared(fn, bytes, this.info);
  }
  launch(fn: Fn, grid: Triple, block: Triple, shared: number, stream: Stream, args: Arguments, early = false): void {
    this.#rules.use(this.ordinal);
    const extra = this.#extra;
    extra[2] = args.address; // stored modulo 2^32
    extra[3] = args.address / 0x100000000;
    extra[10] = args.size;
    // An empty list is given as none: a buffer of no bytes is refused by some drivers.
    const list = args.size === 0 ? 0 : this.#extraAddress;
    const status = this.#launch(fn, grid, block, shared, stream, list, early);
    if (status === 0) return;
    const detail =
      `grid ${grid.join('x')}, block ${block.join('x')}, ${shared} bytes of shared memory, ${args.size} bytes of ` +
      'arguments';
    throw this.#calls.error('launch', [fn], status, detail);
  }

  // Graphs

  beginCapture(stream: Stream): void {
    this.#call('beginCapture', stream, CAPTURE_RELAXED);
  }
  endCapture(stream: Stream): Graph {
    this.#call('endCapture', stream, this.#cell.clear().raw);
    return this.#cell.value;
  }
  instantiate(graph: Graph): GraphExec {
    this.#call('instantiate', this.#cell.clear().raw, graph, 0);
    return this.#cell.value;
  }
  launchGraph(exec: GraphExec, stream: Stream): void {
    this.#call('graphLaunch', exec, stream);
  }
  destroyGraph(graph: Graph): void {
    this.#call('graphDestroy', graph);
  }
  destroyGraphExec(exec: GraphExec): void {
    this.#call('execDestroy', exec);
  }
}

/** More than any machine has: a driver that tells of more is broken, and asking it for each would take for ever. */
const MOST_DEVICES = 1024;

/** A driver from what a vendor's file knows: one device object per ordinal, ordinals checked. */
export function vendorDriver(
  head: Pick<Driver, 'name' | 'version' | 'deviceCount'>,
  info: (ordinal: number) => DeviceInfo,
  calls: Calls<VendorTable>,
  rules: VendorRules,
): Driver {
  if (head.deviceCount < 0 || head.deviceCount > MOST_DEVICES)
    throw new DeviceError(
      `${head.name}: ${head.version} tells of ${head.deviceCount} devices; at most ${MOST_DEVICES} are believed`,
    );
  const devices = new Map<number, Device>();
  const infos = new Map<number, DeviceInfo>();
  const driver: Driver = {
    ...head,
    info: (ordinal) => {
      if (!Number.isInteger(ordinal) || ordinal < 0 || ordinal >= head.deviceCount) {
        throw new DeviceError(
          `${head.name}:${ordinal}: there is no such device; ${head.version} sees ${head.deviceCount} (numbered from ` +
            '0)',
        );
      }
      const known = infos.get(ordinal) ?? info(ordinal);
      infos.set(ordinal, known);
      return known;
    },
    open: (ordinal) => {
      const known = devices.get(ordinal) ?? new VendorDevice(driver, ordinal, driver.info(ordinal), calls, rules);
      devices.set(ordinal, known);
      return known;
    },
  };
  return driver;
}

function checkBytes(call: string, bytes: number): void {
  if (!Number.isSafeInteger(bytes) || bytes <= 0)
    throw new ArgumentError(`${call}: ${bytes} bytes; a whole number from 1 is needed`);
}

/**
 * Each library is looked for at its first use, so that a program without convolutions never loads cuDNN. One that is
 * there but refuses to start is a sentence, too; the backend then uses its own kernels and says so.
 */
export function onFirstUse<L extends DeviceLibraries>(open: { readonly [K in keyof L]: () => L[K] }): L {
  const found = {} as L;
  for (const name of Object.keys(open) as (keyof L)[])
    Object.defineProperty(found, name, {
      configurable: true,
      get: () => {
        const value = orSentence(open[name]);
        Object.defineProperty(found, name, { value });
        return value;
      },
    });
  return found;
}
export function orSentence<T>(open: () => T): T | string {
  try {
    return open();
  } catch (e) {
    if (e instanceof DeviceError || e instanceof DriverError) return e.message;
    throw e;
  }
}
