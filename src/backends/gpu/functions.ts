// Kernels by symbol: source, compiled code, loaded module and function, each made once.
import { env } from '../../base/environment.js';
import { compileForSim } from '../../kernels/host-unit.js';
import { comingCode, compilerFor } from '../../kernels/compile.js';
import { codeTogether } from '../../kernels/joined.js';
import type { Axes, Kernel, VariantOf } from '../../kernels/declare.js';
import { declaredUnit, type Unit } from '../../kernels/source.js';
import type { ComingCode } from '../../driver/compiler.js';
import type { Device, Fn, Module } from '../../driver/driver.js';
import { endThreads } from '../../driver/threads.js';

/** Where code comes from: a run-time compiler, the host compiler for the simulation, or files made ahead of time. */
export type CodeSource = (unit: Unit, device: Device) => Uint8Array | ComingCode;

const runtimeCompiler: CodeSource = (unit, { info }) => comingCode(unit, info.arch);
const hostCompiler: CodeSource = (unit, { info }) => compileForSim(unit, info.warp);
const nothing: CodeSource = () => new Uint8Array();
/** Drivers that belong to no vendor; a vendor's devices have its run-time compiler. */
const SOURCES: Readonly<Record<string, CodeSource>> = { sim: hostCompiler, dry: nothing };
const codeSourceOf = (device: Device): CodeSource => SOURCES[device.driver.name] ?? runtimeCompiler;
/** Kernels of the simulation that come late, as from another thread: for tests of the work that waits for them. */
export const lateCode: CodeSource = (unit, device) => {
  let asked = 0;
  return {
    get done() {
      return ++asked > 40;
    },
    wait: () => arrived(hostCompiler(unit, device)),
  };
};

/** A function whose code is not there yet: callers know it by a negative number. */
interface ComingFn {
  readonly symbol: string;
  readonly unit: Unit;
  readonly code: ComingCode;
  fn?: Fn;
}
const arrived = (code: Uint8Array | ComingCode): Uint8Array => (code instanceof Uint8Array ? code : code.wait());

export class Functions {
  readonly #device: Device;
  readonly #code: CodeSource;
  readonly #functions = new Map<string, Fn>();
  readonly #own = new Map<string, Fn>();
  /** By the negative of their number, from 1. */
  readonly #coming: ComingFn[] = [];
  #awaited = 0;
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
    if (this.#code !== runtimeCompiler) return true;
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
    const code = arrived(this.#code(unit, this.#device)); // who wrote it is told of errors at the call
    const fn = this.#device.getFunction(this.#device.loadModule(code, unit.name), symbol);
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

  /** Whether a function can be launched without waiting for its code. */
  ready(fn: Fn): boolean {
    if (fn >= 0) return true;
    const coming = this.#coming[-fn - 1];
    return coming.fn !== undefined || coming.code.done;
  }
  /** The driver's number of a function, which is waited for. */
  settled(fn: Fn): Fn {
    if (fn >= 0) return fn;
    const coming = this.#coming[-fn - 1];
    if (coming.fn === undefined) {
      const { symbol, unit, code } = coming;
      coming.fn = this.#device.getFunction(this.#device.loadModule(code.wait(), unit.name), symbol);
      this.moduleOf.set(coming.fn, unit.name);
      if (--this.#awaited === 0) endThreads();
    }
    return coming.fn;
  }

  #load(symbol: string, unit: Unit): Fn {
    this.onUnit?.(unit);
    const code = this.#code(unit, this.#device);
    if (code instanceof Uint8Array) {
      this.#keep(unit, this.#device.loadModule(code, unit.name));
      return this.#functions.get(symbol) as Fn;
    }
    this.#awaited++;
    const fn = -this.#coming.push({ symbol, unit, code });
    this.#functions.set(symbol, fn);
    this.moduleOf.set(fn, unit.name);
    return fn;
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
