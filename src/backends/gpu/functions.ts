// Kernels by symbol: source, compiled code, loaded module and function, each made once.
import { env } from '../../base/environment.js';
import { compileForSim } from '../../kernels/host-unit.js';
import { codeFor, compilerFor } from '../../kernels/compile.js';
import { codeTogether } from '../../kernels/joined.js';
import type { Axes, Kernel, VariantOf } from '../../kernels/declare.js';
import { declaredUnit, type Unit } from '../../kernels/source.js';
import type { Device, Fn, Module } from '../../driver/driver.js';

/** Where code comes from: a run-time compiler, the host compiler for the simulation, or files made ahead of time. */
export type CodeSource = (unit: Unit, device: Device) => Uint8Array;

const runtimeCompiler: CodeSource = (unit, { info }) => codeFor(unit, info.arch);
const hostCompiler: CodeSource = (unit, { info }) => compileForSim(unit, info.warp);
const nothing: CodeSource = () => new Uint8Array();
/** Drivers that belong to no vendor; a vendor's devices have its run-time compiler. */
const SOURCES: Readonly<Record<string, CodeSource>> = { sim: hostCompiler, dry: nothing };
const codeSourceOf = (device: Device): CodeSource => SOURCES[device.driver.name] ?? runtimeCompiler;

export class Functions {
  readonly #device: Device;
  readonly #code: CodeSource;
  readonly #functions = new Map<string, Fn>();
  readonly #own = new Map<string, Fn>();
  /** The module each function came from. */
  readonly moduleOf = new Map<Fn, string>();
  /** Called with every unit of the package's own kernels before it is compiled. */
  onUnit: ((unit: Unit) => void) | undefined;
  /**
   * Compiling one kernel at a time is right for GPUs; the simulation's compiler is slow to start, so it is given whole
   * groups (WICK_SIM_UNITS=one where few kernels are wanted).
   */
  readonly grouped: boolean;

  constructor(device: Device, code: CodeSource = codeSourceOf(device)) {
    this.#device = device;
    this.#code = code;
    this.grouped = device.driver.name === 'sim' && env('WICK_SIM_UNITS') !== 'one';
  }

  /** Whether a run-time compiler for this device is here, or why not. */
  compiles(): true | string {
    const compiler = compilerFor(this.#device.info.arch);
    return typeof compiler === 'string' ? compiler : compiler.accepts(this.#device.info.arch);
  }

  /** The function of a symbol; `make` gives the unit that holds it, and is called on first use only. */
  get(symbol: string, make: () => Unit): Fn {
    return this.#functions.get(symbol) ?? this.#load(symbol, make());
  }

  /** One variant of a declared kernel. */
  ofKernel(kernel: Kernel, variant: VariantOf<Axes>): Fn {
    const { symbol } = kernel.entry(variant);
    return (
      this.#functions.get(symbol) ??
      this.#load(
        symbol,
        declaredUnit(
          kernel.module,
          (this.grouped ? kernel.alike(variant) : [variant]).map((v) => kernel.entry(v)),
        ),
      )
    );
  }

  /** A kernel of a unit of its own, whose names may repeat names used elsewhere: found again by `key`. */
  own(key: string, symbol: string, make: () => Unit): Fn {
    const known = this.#own.get(key);
    if (known !== undefined) return known;
    const unit = make();
    const fn = this.#device.getFunction(this.#device.loadModule(this.#code(unit, this.#device), unit.name), symbol);
    this.#own.set(key, fn);
    this.moduleOf.set(fn, unit.name);
    return fn;
  }

  /** Makes the kernels of many units ready in few compilations; those already there are left alone. */
  preload(units: readonly Unit[]): void {
    const missing = units.filter((u) => u.entries.some((e) => !this.#functions.has(e.symbol)));
    for (const { units: served, code } of codeTogether(missing, this.#device.info.arch)) {
      const module = this.#device.loadModule(code, served[0].name);
      for (const u of served) this.#keep(u, module);
    }
  }

  #load(symbol: string, unit: Unit): Fn {
    this.onUnit?.(unit);
    const module = this.#device.loadModule(this.#code(unit, this.#device), unit.name);
    this.#keep(unit, module);
    return this.#functions.get(symbol) ?? this.#device.getFunction(module, symbol);
  }

  #keep(unit: Unit, module: Module): void {
    for (const { symbol } of unit.entries) {
      if (this.#functions.has(symbol)) continue;
      const fn = this.#device.getFunction(module, symbol);
      this.#functions.set(symbol, fn);
      this.moduleOf.set(fn, unit.name);
    }
  }
}
