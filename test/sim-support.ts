// What sim tests share: a device, modules by unit, typed buffers in and out.
import { type DType, DTYPE, type RawArray, type Value } from '../src/base/dtype.js';
import { ArgBuffer } from '../src/driver/args.js';
import type { Device, Module } from '../src/driver/driver.js';
import { openSim } from '../src/driver/sim.js';
import { compileForSim } from '../src/kernels/host-unit.js';
import { type ArgValue, packEntry } from '../src/kernels/pack.js';
import { type Unit, unitOf } from '../src/kernels/source.js';

export class SimRunner {
  readonly device: Device;
  readonly #args = new ArgBuffer();
  readonly #loaded = new Map<Unit, Module>();
  readonly #blocks: number[] = [];

  constructor(wave: 32 | 64) {
    this.device = openSim().open(wave);
  }

  buffer(data: ArrayBufferView | number): number {
    const bytes = typeof data === 'number' ? data : data.byteLength;
    const address = this.device.alloc(Math.max(bytes, 1));
    this.#blocks.push(address);
    if (typeof data !== 'number' && bytes > 0) this.device.copyIn(address, new Uint8Array(data.buffer, data.byteOffset, bytes), 0);
    return address;
  }
  of(dtype: DType, values: readonly Value[]): number {
    return this.buffer(encode(dtype, values));
  }
  read(dtype: DType, address: number, count: number): RawArray {
    const bytes = new Uint8Array(count * DTYPE[dtype].bytes);
    if (count > 0) this.device.copyOut(bytes, address, 0);
    return new DTYPE[dtype].Raw(bytes.buffer, 0, count);
  }

  #module(unit: Unit): Module {
    let module = this.#loaded.get(unit);
    if (module === undefined) {
      module = this.device.loadModule(compileForSim(unit, this.device.info.warp), unit.name);
      this.#loaded.set(unit, module);
    }
    return module;
  }
  /** Offsets and sizes of a kernel's parameters as the C++ compiler has them. */
  describe(unit: Unit, symbol: string): string {
    const device = this.device as Device & { describe(fn: number): string };
    return device.describe(device.getFunction(this.#module(unit), symbol));
  }
  launch(unit: Unit, symbol: string, grid: number | readonly number[], block: number | readonly number[], values: readonly ArgValue[], shared = 0): void {
    const module = this.#module(unit);
    const entry = unit.entries.find((e) => e.symbol === symbol);
    if (!entry) throw new Error(`no ${symbol} in ${unit.name}`);
    const [gx, gy = 1, gz = 1] = [grid].flat();
    const [bx, by = 1, bz = 1] = [block].flat();
    this.device.launch(this.device.getFunction(module, symbol), gx, gy, gz, bx, by, bz, shared, 0, packEntry(this.#args, entry, values));
  }
  free(): void {
    for (const b of this.#blocks.splice(0)) this.device.free(b);
  }
}

export function encode(dtype: DType, values: readonly Value[]): RawArray {
  const raw = new DTYPE[dtype].Raw(new ArrayBuffer(values.length * DTYPE[dtype].bytes), 0, values.length);
  values.forEach((v, i) => ((raw as unknown as Value[])[i] = DTYPE[dtype].encode(v)));
  return raw;
}
export const decode = (dtype: DType, raw: RawArray): Value[] => Array.from(raw as Iterable<number | bigint>, (v) => DTYPE[dtype].decode(v));

const units = new Map<string, Unit>();
/** A whole module as one unit, made once. */
export function wholeModule(name: string): Unit {
  const unit = units.get(name) ?? unitOf(name);
  units.set(name, unit);
  return unit;
}
