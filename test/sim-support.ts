// What kernel tests share: a device, modules by unit, typed buffers in and out.
// WICK_KERNELS_ON=emu runs them on emulated GPUs instead of the simulation: gfx1030 for waves of 32, gfx90a for waves
// of 64 (WICK_KERNELS_ON=gfx906,gfx942 names others).
// WICK_KERNELS_ON=cuda or hip runs them on the machine's GPU; WICK_LAUNCHED=FOLDER leaves there which kernels ran
// (scripts/run-kernels.ts).
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type DType, DTYPE, type RawArray, type Value } from '../src/base/dtype.js';
import { ArgBuffer } from '../src/driver/args.js';
import type { Device, Module } from '../src/driver/driver.js';
import { openDriver } from '../src/driver/drivers.js';
import { openEmulated } from '../src/emulator/device.js';
import { openSim } from '../src/driver/sim.js';
import { codeFor } from '../src/kernels/compile.js';
import { compileForSim } from '../src/kernels/host-unit.js';
import { type ArgValue, packEntry } from '../src/kernels/declare.js';
import { assemble, type Unit } from '../src/kernels/source.js';
import { triple } from '../src/backends/gpu/plan.js';
import { unitOf } from '../src/backends/gpu/modules.js';

const on = process.env.WICK_KERNELS_ON;
const onGpu = on === 'cuda' || on === 'hip';
const targets = on === 'emu' ? ['gfx1030', 'gfx90a'] : on?.split(',');
/**
 * Emulated targets and GPUs serve the wave size they have; a test of the other size runs on them all the same where
 * only one is named.
 */
function openFor(wave: 32 | 64): Device {
  if (onGpu) return openDriver(on).open(0);
  return targets ? openEmulated(targets[wave === 32 ? 0 : targets.length - 1]) : openSim().open(wave);
}
const launched = new Map<string, Set<string>>();
if (process.env.WICK_LAUNCHED) {
  const path = join(process.env.WICK_LAUNCHED, `${process.pid}.json`);
  process.on('exit', () =>
    writeFileSync(path, JSON.stringify([...launched].map(([device, symbols]) => ({ device, symbols: [...symbols] })))),
  );
}
/** Kernels that hipRTC gets at once: whole modules would take minutes. */
const TOGETHER = 16;

export class SimRunner {
  readonly device: Device;
  readonly #args = new ArgBuffer();
  readonly #loaded = new Map<Unit, Module>();
  readonly #parts = new Map<Unit, Unit[]>();
  readonly #blocks: number[] = [];

  constructor(wave: 32 | 64) {
    this.device = openFor(wave);
  }

  buffer(data: ArrayBufferView | number): number {
    const bytes = typeof data === 'number' ? data : data.byteLength;
    const address = this.device.alloc(Math.max(bytes, 1));
    this.#blocks.push(address);
    if (typeof data !== 'number' && bytes > 0)
      this.device.copyIn(address, new Uint8Array(data.buffer, data.byteOffset, bytes), 0);
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

  compile(unit: Unit): Uint8Array {
    return targets ? codeFor(unit, this.device.info.arch) : compileForSim(unit, this.device.info.warp);
  }
  /** The part of a unit that holds a symbol; the simulation takes units whole. */
  #part(unit: Unit, symbol: string): Unit {
    if (!targets || !unit.parts || unit.entries.length <= TOGETHER) return unit;
    let parts = this.#parts.get(unit);
    if (!parts) {
      const { shared, own } = unit.parts;
      parts = Array.from({ length: Math.ceil(unit.entries.length / TOGETHER) }, (_, k) =>
        assemble(unit.name, shared, unit.entries.slice(k * TOGETHER, (k + 1) * TOGETHER), { own }),
      );
      this.#parts.set(unit, parts);
    }
    return parts.find((p) => p.entries.some((e) => e.symbol === symbol)) ?? unit;
  }
  #module(whole: Unit, symbol: string): Module {
    const unit = this.#part(whole, symbol);
    let module = this.#loaded.get(unit);
    if (module === undefined) {
      module = this.device.loadModule(this.compile(unit), unit.name);
      this.#loaded.set(unit, module);
    }
    return module;
  }
  /** Offsets and sizes of a kernel's parameters as the C++ compiler has them. */
  describe(unit: Unit, symbol: string): string {
    const device = this.device as Device & { describe(fn: number): string };
    return device.describe(device.getFunction(this.#module(unit, symbol), symbol));
  }
  launch(
    unit: Unit,
    symbol: string,
    grid: number | readonly number[],
    block: number | readonly number[],
    values: readonly ArgValue[],
    shared = 0,
  ): void {
    const module = this.#module(unit, symbol);
    const entry = unit.entries.find((e) => e.symbol === symbol);
    if (!entry) throw new Error(`no ${symbol} in ${unit.name}`);
    const { info } = this.device;
    const place = on ? `${info.name} (${info.arch})` : `sim:${info.warp}`;
    launched.set(place, (launched.get(place) ?? new Set()).add(symbol));
    const fn = this.device.getFunction(module, symbol);
    if (shared > 0 && onGpu) this.device.setMaxDynamicShared(fn, shared); // GPUs want to be asked where static memory beside it passes 48 KiB
    this.device.launch(fn, triple(grid), triple(block), shared, 0, packEntry(this.#args, entry, values));
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
export const decode = (dtype: DType, raw: RawArray): Value[] =>
  Array.from(raw as Iterable<number | bigint>, (v) => DTYPE[dtype].decode(v));

const units = new Map<string, Unit>();
/** A whole module as one unit, made once. */
export function wholeModule(name: string): Unit {
  const unit = units.get(name) ?? unitOf(name);
  units.set(name, unit);
  return unit;
}
