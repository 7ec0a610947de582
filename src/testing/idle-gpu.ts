// A GPU with the facts of an H200 that takes all work and does none: what is left is the host's part of every call,
// and a list of what was asked for.
import type { ArgBuffer } from '../driver/args.js';
import type { AttentionPlan } from '../driver/attention.js';
import type {
  Address,
  Arguments,
  Device as Gpu,
  DeviceInfo,
  DeviceLibraries,
  Driver,
  Fn,
  HostBuffer,
  Stream,
  Triple,
} from '../driver/driver.js';

const H200: DeviceInfo = {
  name: 'idle H200',
  arch: 'sm_90',
  fullArch: 'sm_90',
  warp: 32,
  multiprocessors: 132,
  maxThreadsPerBlock: 1024,
  maxThreadsPerMultiprocessor: 2048,
  sharedPerBlock: 48 << 10,
  sharedPerBlockOptin: 227 << 10,
  registersPerBlock: 65536,
  l2Bytes: 50 << 20,
  totalBytes: 141e9,
  integrated: false,
  memoryPools: true,
  tensorMaps: true,
};
const driver = (info: DeviceInfo): Driver => ({
  // Kernels of this driver need no code.
  ...{ name: 'dry', version: 'runs nothing', deviceCount: 1, info: () => info },
  open: () => new IdleGpu(info),
});
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** Addresses go up from the same place in every one of them, so that equal programs make equal lists. */
export class IdleGpu implements Gpu {
  readonly driver: Driver;
  readonly ordinal = 0;
  readonly info: DeviceInfo;
  readonly libraries: DeviceLibraries;
  /** What was launched, by symbol, grid, block, shared memory and the bytes of its arguments, where it is wanted. */
  list: string[] | undefined;
  readonly #symbols: string[] = [];
  #next = 2 ** 32;
  #handles = 0;
  constructor(info = H200, libraries: readonly ('blas' | 'attention')[] = []) {
    this.info = info;
    this.driver = driver(info);
    this.libraries = this.#idleLibraries(libraries);
  }
  note(what: string): void {
    this.list?.push(what);
  }

  alloc(bytes: number): Address {
    const address = this.#next;
    this.#next += Math.ceil(bytes / 512) * 512;
    return address;
  }
  allocAsync(bytes: number): Address {
    return this.alloc(bytes);
  }
  free(): void {}
  freeAsync(): void {}
  memory(): { free: number; total: number } {
    return { free: this.info.totalBytes, total: this.info.totalBytes };
  }
  allocHost(bytes: number): HostBuffer {
    return { address: this.alloc(bytes), bytes: new Uint8Array(bytes) };
  }
  freeHost(): void {}
  memset(address: Address, byte: number, bytes: number): void {
    this.note(`memset ${address} ${byte} ${bytes}`);
  }
  copyIn(dst: Address, src: Uint8Array): void {
    this.note(`copyIn ${dst} ${hex(src)}`);
  }
  copyInAsync(dst: Address, _host: Address, bytes: number): void {
    this.note(`copyInAsync ${dst} ${bytes}`);
  }
  /** Nothing was computed: results are zeros. */
  copyOut(target: Uint8Array): void {
    target.fill(0);
  }
  copyOutAsync(): void {}
  copy(dst: Address, src: Address, bytes: number): void {
    this.note(`copy ${dst} ${src} ${bytes}`);
  }
  createStream(): Stream {
    return ++this.#handles;
  }
  destroyStream(): void {}
  synchronizeStream(): void {}
  createEvent(): number {
    return ++this.#handles;
  }
  destroyEvent(): void {}
  record(): void {}
  streamWait(): void {}
  queryEvent(): boolean {
    return true;
  }
  synchronizeEvent(): void {}
  elapsed(): number {
    return 1;
  }
  loadModule(): number {
    return ++this.#handles;
  }
  getFunction(_module: number, symbol: string): Fn {
    return this.#symbols.push(symbol);
  }
  setMaxDynamicShared(fn: Fn, bytes: number): void {
    this.note(`shared ${this.#symbols[fn - 1]} ${bytes}`);
  }
  launch(fn: Fn, grid: Triple, block: Triple, shared: number, _stream: Stream, args: Arguments, early = false): void {
    if (this.list === undefined) return;
    const packed = hex((args as ArgBuffer).bytes());
    this.note(`${this.#symbols[fn - 1]} ${grid.join('x')} ${block.join('x')} ${shared} ${early} ${packed}`);
  }
  beginCapture(): void {}
  endCapture(): number {
    return ++this.#handles;
  }
  instantiate(): number {
    return ++this.#handles;
  }
  launchGraph(): void {}
  destroyGraph(): void {}
  destroyGraphExec(): void {}
  makeCurrent(): void {}

  #idleLibraries(which: readonly ('blas' | 'attention')[]): DeviceLibraries {
    return {
      blas: which.includes('blas')
        ? {
            name: 'idle',
            supports: () => true,
            plan: (spec) => ({ spec, description: '' }),
            run: ({ spec }, ...at) => this.list && this.note(`product ${JSON.stringify(spec)} ${at.join()}`),
            dispose: () => {},
          }
        : 'no library',
      dnn: which.includes('attention')
        ? {
            name: 'idle',
            supports: () => 'no convolutions',
            plan: () => {
              throw new TypeError('no convolutions');
            },
            tune: () => {},
            run: () => {},
            dispose: () => {},
            attention: {
              most: 1,
              plan: (spec) => {
                const plan = { spec, ways: [{ workspaceBytes: 256, description: '' }] };
                this.onAttention?.(plan);
                return plan;
              },
              run: ({ spec }, way, at, room) =>
                this.list && this.note(`attention ${JSON.stringify([spec, way, at, room])}`),
            },
          }
        : 'no library',
    };
  }
  /** Hears of every shape of attention that a library is asked to serve. */
  onAttention: ((plan: AttentionPlan) => void) | undefined;
}
