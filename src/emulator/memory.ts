// Device memory: one shared WebAssembly memory, an allocator with gaps between blocks, and the table that bounds checks
// ask.
import { ArgumentError, OutOfMemoryError } from '../base/errors.js';
import { MAX_PAGES } from './compile.js';
import { GLOBAL_BASE } from './layout.js';
import { Wasm, type WasmMemory } from '../base/webassembly.js';

const PAGE = 65536;
const ALIGN = 256;
/** Unused bytes after each block, so that a step past its end hits nothing. */
const GAP = 256;
/** Nothing lives near address 0. */
const FIRST = PAGE;

export class DeviceMemory {
  readonly memory: WasmMemory;
  readonly limit: number;
  /** Free ranges by start, merged. */
  private free: [number, number][];
  /** Live blocks: start -> bytes asked for. Internal ones are not visible to kernels. */
  private readonly live = new Map<number, { bytes: number; visible: boolean }>();
  private sorted: Int32Array | undefined;
  private cache: Uint8Array<SharedArrayBuffer> | undefined;
  used = 0;

  constructor(limit = 4 * 2 ** 30 - PAGE) {
    this.limit = Math.min(limit, 4 * 2 ** 30 - PAGE);
    this.memory = new Wasm.Memory({ initial: 64, maximum: MAX_PAGES, shared: true });
    this.free = [[FIRST, this.limit]];
  }

  /** All of memory; a new view after it has grown. */
  get bytes(): Uint8Array<SharedArrayBuffer> {
    if (this.cache?.length !== this.memory.buffer.byteLength)
      this.cache = new Uint8Array(this.memory.buffer as unknown as SharedArrayBuffer);
    return this.cache!;
  }

  alloc(bytes: number, visible = true): number {
    if (!Number.isSafeInteger(bytes) || bytes < 0)
      throw new ArgumentError(`alloc: ${bytes} bytes; a whole number from 0 is wanted`);
    const need = Math.ceil((bytes + GAP) / ALIGN) * ALIGN;
    const at = this.free.findIndex(([a, b]) => b - a >= need);
    if (at < 0)
      throw new OutOfMemoryError(
        `alloc(${bytes}): the emulated device has ${this.limit} bytes, ${this.used} are in use`,
      );
    const [a, b] = this.free[at];
    if (b - a === need) this.free.splice(at, 1);
    else this.free[at] = [a + need, b];
    const end = a + need;
    const have = this.memory.buffer.byteLength;
    // Growing in steps of an eighth keeps views from being remade for every block.
    if (end > have)
      this.memory.grow(Math.min(Math.ceil(Math.max(end - have, have / 8) / PAGE), MAX_PAGES - have / PAGE));
    this.live.set(a, { bytes, visible });
    this.sorted = undefined;
    this.used += need;
    return GLOBAL_BASE + a;
  }

  release(address: number): void {
    const at = address - GLOBAL_BASE;
    const block = this.live.get(at);
    if (!block) throw new ArgumentError(`free(0x${address.toString(16)}): no block starts there`);
    this.live.delete(at);
    this.sorted = undefined;
    const size = Math.ceil((block.bytes + GAP) / ALIGN) * ALIGN;
    this.used -= size;
    let k = this.free.findIndex(([a]) => a > at);
    if (k < 0) k = this.free.length;
    this.free.splice(k, 0, [at, at + size]);
    const merge = (n: number) => {
      if (n >= 0 && n + 1 < this.free.length && this.free[n][1] === this.free[n + 1][0]) {
        this.free[n][1] = this.free[n + 1][1];
        this.free.splice(n + 1, 1);
      }
    };
    merge(k);
    merge(k - 1);
  }

  /** Whether a visible block has these bytes. */
  holds(address: number, bytes: number): boolean {
    const at = address - GLOBAL_BASE;
    const hit = findBlock(this.table(), at);
    return hit !== undefined && at + bytes <= hit.end;
  }

  /** Bytes of a visible block from an address, checked; what a copy works on. */
  range(address: number, bytes: number, call: string): Uint8Array<SharedArrayBuffer> {
    const at = address - GLOBAL_BASE;
    const hit = findBlock(this.table(), at);
    if (bytes > 0 && (hit === undefined || at + bytes > hit.end)) {
      throw new ArgumentError(
        `${call}: ${bytes} bytes at 0x${address.toString(16)} are outside every allocation${
          hit ? `: the one there ends after ${hit.end - at}` : ''
        }`,
      );
    }
    return this.bytes.subarray(at, at + bytes);
  }

  /** Starts and ends of visible blocks, sorted, as pairs. */
  table(): Int32Array {
    if (!this.sorted) {
      const list = [...this.live].filter(([, b]) => b.visible).sort((x, y) => x[0] - y[0]);
      this.sorted = new Int32Array(list.length * 2);
      list.forEach(([at, b], k) => {
        this.sorted![2 * k] = at;
        this.sorted![2 * k + 1] = at + b.bytes;
      });
    }
    return this.sorted;
  }
}

/** The block an offset lies in, by binary search in such a table. */
export function findBlock(table: Int32Array, at: number): { start: number; end: number } | undefined {
  let lo = 0;
  let hi = table.length / 2;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (table[2 * mid] >>> 0 <= at) lo = mid + 1;
    else hi = mid;
  }
  if (lo === 0) return undefined;
  const start = table[2 * lo - 2] >>> 0;
  const end = table[2 * lo - 1] >>> 0;
  return at < end ? { start, end } : undefined;
}
