// A GPU that does nothing and notes what is asked of it, a line a call, and that fails where it is told to.
import type { ArgBuffer } from '../src/driver/args.js';
import type { Address, Arguments, Device, DeviceInfo, Fn, HostBuffer, Stream, Triple } from '../src/driver/driver.js';
import { bytesOf, type DType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import type { View } from '../src/backends/backend.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { IdleGpu } from '../src/testing/idle-gpu.js';

/** Notes of every call what it enqueues, where, and what waits for what. */
export class WatchedGpu extends IdleGpu {
  override list: string[] = [];
  /** The next call whose line begins like that throws. */
  failing: { readonly at: string; readonly with: Error } | undefined;
  override note(what: string): void {
    const failing = this.failing?.at && what.startsWith(this.failing.at) ? this.failing : undefined;
    super.note(failing ? `${what} fails` : what);
    if (!failing) return;
    this.failing = undefined;
    throw failing.with;
  }
  /** What reads find in every byte. */
  content = 0;
  /** Looks at an event that find that it was not reached yet. */
  looks = 0;
  override alloc(bytes: number): Address {
    this.note(`alloc ${bytes}`);
    return super.alloc(bytes);
  }
  override allocAsync(bytes: number, stream?: Stream): Address {
    this.note(`alloc ${bytes} on ${stream}`);
    return super.alloc(bytes);
  }
  override freeAsync(address?: Address, stream?: Stream): void {
    this.note(`free ${address} on ${stream}`);
  }
  override allocHost(bytes: number): HostBuffer {
    this.note(`host memory of ${bytes}`);
    return { address: super.alloc(bytes), bytes: new Uint8Array(bytes) };
  }
  override freeHost(buffer?: HostBuffer): void {
    this.note(`host memory ${buffer?.address} ends`);
  }
  override copyOut(target: Uint8Array, src?: Address, stream?: Stream): void {
    this.note(`copyOut ${src} ${target.length} on ${stream}`);
    target.fill(this.content);
  }
  copyTo(other: Device, dst: Address, src: Address, bytes: number, stream: Stream): void {
    this.note(`copy to ${other.info.name} ${dst} from ${src} ${bytes} on ${stream}`);
  }
  override queryEvent(event?: number): boolean {
    this.note(`is ${event} reached?`);
    return this.looks-- <= 0;
  }
  override destroyStream(stream?: Stream): void {
    this.note(`stream ${stream} ends`);
  }
  override endCapture(stream?: Stream): number {
    this.note(`recorded up to here on ${stream}`);
    return super.endCapture();
  }
  override instantiate(graph?: number): number {
    this.note(`instantiate ${graph}`);
    return super.instantiate();
  }
  override destroyGraph(graph?: number): void {
    this.note(`recording ${graph} ends`);
  }
  override destroyGraphExec(exec?: number): void {
    this.note(`graph ${exec} ends`);
  }
  override loadModule(_code?: Uint8Array, name?: string): number {
    this.note(`module ${name}`);
    return super.loadModule();
  }
  override copyIn(dst: Address, src: Uint8Array, stream?: Stream): void {
    this.note(`copyIn ${dst} ${src.length} on ${stream}`);
  }
  override copyInAsync(dst: Address, host: Address, bytes: number, stream?: Stream): void {
    this.note(`copyInAsync ${dst} from ${host} ${bytes} on ${stream}`);
  }
  override copyOutAsync(host?: Address, src?: Address, bytes?: number, stream?: Stream): void {
    this.note(`copyOutAsync ${host} from ${src} ${bytes} on ${stream}`);
  }
  override copy(dst: Address, src: Address, bytes: number, stream?: Stream): void {
    this.note(`copy ${dst} from ${src} ${bytes} on ${stream}`);
  }
  override memset(address: Address, byte: number, bytes: number, stream?: Stream): void {
    this.note(`memset ${address} ${byte} ${bytes} on ${stream}`);
  }
  override record(event?: number, stream?: Stream): void {
    this.note(`record ${event} on ${stream}`);
  }
  override streamWait(stream?: Stream, event?: number): void {
    this.note(`${stream} waits for ${event}`);
  }
  override synchronizeStream(stream?: Stream): void {
    this.note(`the host waits for ${stream}`);
  }
  override synchronizeEvent(event?: number): void {
    this.note(`the host waits for event ${event}`);
  }
  override free(address?: Address): void {
    this.note(`free ${address}`);
  }
  override destroyEvent(event?: number): void {
    this.note(`event ${event} ends`);
  }
  override beginCapture(stream?: Stream): void {
    this.note(`recorded from here on ${stream}`);
  }
  override launchGraph(exec?: number, stream?: Stream): void {
    this.note(`graph ${exec} on ${stream}`);
  }
  readonly #names: string[] = [];
  override getFunction(module: number, symbol: string): Fn {
    const fn = super.getFunction(module, symbol);
    this.#names[fn] = symbol;
    return fn;
  }
  override launch(
    ...[fn, grid, block, shared, stream, args, early]: [Fn, Triple, Triple, number, Stream, Arguments, boolean?]
  ): void {
    const packed = Buffer.from((args as ArgBuffer).bytes()).toString('hex');
    this.note(`${this.#names[fn]}<${grid}|${block}|${shared}> on ${stream}${early ? ' early' : ''} ${packed}`);
  }
}

/** A backend on a GPU of an architecture, and views of memory of its own. */
export function machine(arch: string, warp = 32, multiprocessors = 132, sharedPerBlockOptin?: number) {
  const { info } = new IdleGpu();
  const room = sharedPerBlockOptin ?? (arch.startsWith('gfx') ? 65536 : undefined);
  const shared = room === undefined ? {} : { sharedPerBlockOptin: room };
  const gpu = new WatchedGpu({ ...info, arch, fullArch: arch, warp, multiprocessors, ...shared } as DeviceInfo);
  const backend = new GpuBackend('watched', gpu);
  const view = (dtype: DType, ...shape: number[]): View => {
    const layout = Layout.contiguous(shape);
    return { memory: backend.alloc(layout.size * bytesOf(dtype)), layout, dtype };
  };
  return { gpu, backend, view };
}
export type Machine = ReturnType<typeof machine>;
export type Program = (m: Machine) => void | Promise<void>;

/** Notes what a call is refused with. */
export async function refused({ gpu }: Machine, call: () => unknown): Promise<void> {
  try {
    await call();
    gpu.note('not refused');
  } catch (e) {
    gpu.note(`${(e as Error).name}: ${(e as Error).message}`);
  }
}
