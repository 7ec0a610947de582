// An emulated AMD GPU: memory, modules from code objects, launches over threads. What the driver and the command line
// use.
import { availableParallelism } from 'node:os';
import { ArgumentError, DeviceError } from '../base/errors.js';
import { readCodeObject, type CodeObject, type Kernel } from './code-object.js';
import { compileKernel, targetOf, type Program } from './compile.js';
import { disassemble, type Line } from './disassembler.js';
import { type Counts, noCounts } from './counts.js';
import { Executor, POISONS, type Launch, type LoadedProgram } from './executor.js';
import type { Finding } from './checker.js';
import { GLOBAL_BASE } from './layout.js';
import { DeviceMemory } from './memory.js';
import { ThreadPool } from './threads.js';
import { Wasm } from '../base/webassembly.js';

/** AMD's targets whose machine code is run. */
export const EMULATED_TARGETS = ['gfx906', 'gfx908', 'gfx90a', 'gfx942', 'gfx1030', 'gfx1100', 'gfx1201'] as const;

/** How an emulated GPU runs its launches. */
export interface GpuOptions {
  /** Threads that run work-groups, this one included; the machine's cores when absent. */
  readonly threads?: number;
  /** Orders of waves follow from it. */
  readonly seed?: number;
  /**
   * Watches every access for races, uninitialised LDS, misalignment and divergent barriers, and runs twice to see
   * undefined registers: slow, one thread.
   */
  readonly checked?: boolean;
  /** Its memory; default almost 4 GiB, taken as it is used. */
  readonly memoryBytes?: number;
  /** Compiled kernels kept ready; 512 when absent. */
  readonly programsKept?: number;
  /** Blocks a wave may run before the launch counts as endless. */
  readonly maxBlocks?: number;
}

/** A code object in a GPU's memory. */
export interface LoadedModule {
  /** What was loaded. */
  readonly code: CodeObject;
  /** Device address of the image. */
  readonly image: number;
  /** What errors call it. */
  readonly name: string;
}
/** What a launch did. */
export interface LaunchReport extends Counts {
  /** Time it took here, which says nothing about a GPU. */
  readonly milliseconds: number;
  /** What limits how many waves are resident: registers of a lane, LDS and work-items of a group. */
  readonly vgprs: number;
  /** Bytes of LDS of a group. */
  readonly groupLds: number;
  /** Work-items of a group. */
  readonly items: number;
  /** What a checked launch saw. */
  readonly findings: readonly Finding[];
}

interface Compiled {
  readonly id: number;
  readonly program: Program;
  readonly loaded: LoadedProgram;
}

/** Programs kept ready: one takes about a megabyte of compiled code. */
const PROGRAMS_KEPT = 512;
/** Below this many work-items a launch stays on one thread: waking others costs more. */
const THREADED_ITEMS = 4096;
const MAX_LDS = 65536;
/** Added to a kernel's private memory when its depth of calls is not known. */
const DYNAMIC_STACK = 16384;

function sourceOf({ code, name }: LoadedModule, at: number): { source?: string } {
  const s = code.lineOf(at);
  // hipRTC calls every program's text by one name; the module's says more.
  return s ? { source: `${s.file === 'CompileSource' ? name : s.file}:${s.line}${s.text ? `: "${s.text}"` : ''}` } : {};
}

/** An AMD GPU in this process: memory, modules of code objects, launches over threads. */
export class EmulatedGpu {
  /** Its target: 'gfx90a'. */
  readonly target: string;
  /** Its memory. */
  readonly memory: DeviceMemory;
  /** The options it was made with. */
  readonly options: GpuOptions;
  private readonly executor: Executor;
  private pool: ThreadPool | undefined;
  private readonly threads: number;
  private readonly modules = new Set<LoadedModule>();
  private readonly lines = new WeakMap<CodeObject, Line[]>();
  private readonly compiled = new Map<LoadedModule, Map<string, Compiled>>();
  /** Programs by their last use, each with what takes it out of `compiled`. */
  private readonly recent = new Map<Compiled, () => void>();
  private readonly arenas: { at: number; bytes: number }[] = [];
  private nextProgram = 1;
  private launches = 0;
  /** Totals over all launches. */
  readonly totals: Counts = noCounts();

  constructor(target: string, options: GpuOptions = {}) {
    targetOf(target, 32);
    this.target = target;
    this.options = options;
    this.memory = new DeviceMemory(options.memoryBytes);
    this.executor = new Executor(this.memory.memory);
    this.threads = options.checked ? 1 : (options.threads ?? availableParallelism());
  }

  /** Loads a code object for this target; `name` is what errors call it. */
  load(file: Uint8Array, name = 'module'): LoadedModule {
    const code = readCodeObject(file, name);
    if (code.target !== this.target)
      throw new DeviceError(`load ${name}: the code object is for ${code.target}, the device is ${this.target}`);
    const image = this.memory.alloc(code.image.length);
    this.memory.bytes.set(code.image, image - GLOBAL_BASE);
    const view = new DataView(this.memory.bytes.buffer);
    for (const r of code.relocations) view.setBigUint64(image - GLOBAL_BASE + r.at, BigInt(image + r.value), true);
    const module = { code, image, name };
    this.modules.add(module);
    return module;
  }
  /** Gives a module's memory back. */
  unload(module: LoadedModule): void {
    if (!this.modules.delete(module)) throw new ArgumentError(`unload ${module.name}: not loaded here`);
    for (const c of this.compiled.get(module)?.values() ?? []) this.forget(c);
    this.compiled.delete(module);
    this.memory.release(module.image);
  }
  /** A kernel of a module by its symbol; undefined where there is none. */
  kernel(module: LoadedModule, name: string): Kernel | undefined {
    return module.code.kernels.get(name);
  }

  /** The program of a kernel, compiled at first use. */
  compile(module: LoadedModule, name: string): Compiled {
    let programs = this.compiled.get(module);
    if (!programs) this.compiled.set(module, (programs = new Map()));
    let c = programs.get(name);
    if (!c) {
      const kernel = module.code.kernels.get(name);
      if (!kernel)
        throw new ArgumentError(
          `launch ${name}: ${module.name} has no such kernel; it has ${[...module.code.kernels.keys()].join(', ')}`,
        );
      let lines = this.lines.get(module.code);
      if (!lines) this.lines.set(module.code, (lines = disassemble(module.code)));
      const program = compileKernel(module.code, lines, kernel, this.options.checked ?? false);
      const loaded: LoadedProgram = {
        module: new Wasm.Module(program.bytes),
        entry: program.entry,
        blocks: program.blocks,
        vregs: program.vregs,
        matrices: program.matrices,
        sites: program.sites.map(({ text, at, name: n }) => ({ text, at, name: n, ...sourceOf(module, at) })),
      };
      c = { id: this.nextProgram++, program, loaded };
      this.executor.addProgram(c.id, loaded);
      programs.set(name, c);
    }
    this.recent.delete(c);
    this.recent.set(c, () => programs.delete(name));
    for (const [old, drop] of this.recent) {
      if (this.recent.size <= (this.options.programsKept ?? PROGRAMS_KEPT)) break;
      drop();
      this.forget(old);
    }
    return c;
  }
  private forget(c: Compiled): void {
    this.recent.delete(c);
    this.executor.removeProgram(c.id);
    this.pool?.forget(c.id);
  }

  /** Runs a kernel to its end. `args` is the packed parameter list, as a C struct would hold it. */
  launch(
    module: LoadedModule,
    name: string,
    grid: readonly [number, number, number],
    block: readonly [number, number, number],
    args: Uint8Array,
    dynamicShared = 0,
  ): LaunchReport {
    const began = performance.now();
    const { id, program, loaded } = this.compile(module, name);
    const { kernel } = program;
    const items = block[0] * block[1] * block[2];
    const groups = grid[0] * grid[1] * grid[2];
    if (!(items >= 1 && groups >= 1))
      throw new ArgumentError(`launch ${name}: grid (${grid.join(', ')}) of blocks (${block.join(', ')}) is empty`);
    if (items > kernel.maxThreads)
      throw new ArgumentError(
        `launch ${name}: ${items} threads a block; it was compiled for at most ${kernel.maxThreads}`,
      );
    const ldsBytes = kernel.ldsBytes + dynamicShared;
    if (ldsBytes > MAX_LDS)
      throw new ArgumentError(`launch ${name}: ${ldsBytes} bytes of shared memory; a block has ${MAX_LDS}`);
    const kernarg = this.packArguments(kernel, grid, block, args, dynamicShared);
    const packet = this.dispatchPacket(kernel, grid, block, ldsBytes);
    const plain = Math.ceil(kernel.privateBytes / 16) * 16;
    const launch: Launch = {
      program: id,
      kernel,
      target: this.target,
      generation: program.target.generation,
      grid: [...grid],
      block: [...block],
      kernarg,
      packet,
      image: (module.image - GLOBAL_BASE) | 0,
      ldsBytes: Math.ceil(ldsBytes / 16) * 16,
      privateBytes: plain + (kernel.dynamicStack || program.hasCalls ? DYNAMIC_STACK : 0),
      seed: (this.options.seed ?? 1) + this.launches++,
      checked: this.options.checked ?? false,
      allocations: this.memory.table(),
      poison: POISONS[0],
      fuel: 1 << 16,
      maxBlocks: this.options.maxBlocks ?? 2 ** 34,
    };
    try {
      const threads = Math.min(this.threads, groups, items * groups >= THREADED_ITEMS ? Infinity : 1);
      const counts = launch.checked
        ? this.runTwice(launch, loaded, groups)
        : threads > 1
          ? this.runThreaded(launch, loaded, threads, groups)
          : this.runHere(launch, loaded, groups);
      for (const k of Object.keys(counts) as (keyof Counts)[]) this.totals[k] += counts[k];
      const findings = this.executor.findings.splice(0);
      const { vgprs } = kernel;
      return { ...counts, milliseconds: performance.now() - began, vgprs, groupLds: ldsBytes, items, findings };
    } finally {
      this.memory.release(kernarg);
      this.memory.release(packet);
    }
  }

  private arena(thread: number, launch: Launch, loaded: LoadedProgram): { at: number; bytes: number } {
    const need = Executor.arenaBytes(launch, loaded);
    const have = this.arenas[thread];
    if (have && have.bytes >= need) return have;
    if (have) this.memory.release(have.at + GLOBAL_BASE);
    const bytes = Math.ceil(need * 1.25);
    return (this.arenas[thread] = { at: this.memory.alloc(bytes, false) - GLOBAL_BASE, bytes });
  }
  private runHere(launch: Launch, loaded: LoadedProgram, groups: number): Counts {
    let g = 0;
    return this.executor.run(launch, this.arena(0, launch, loaded), () => (g < groups ? g++ : -1));
  }
  /** Runs with two contents of registers and LDS never written: where results differ, they depend on them. */
  private runTwice(launch: Launch, loaded: LoadedProgram, groups: number): Counts {
    const blocks = Array.from(
      { length: launch.allocations.length / 2 },
      (_, k) => [launch.allocations[2 * k] >>> 0, launch.allocations[2 * k + 1] >>> 0] as const,
    );
    const save = () => blocks.map(([from, to]) => this.memory.bytes.slice(from, to));
    const before = save();
    this.runHere({ ...launch, poison: POISONS[1] }, loaded, groups);
    const first = save();
    blocks.forEach(([from], k) => this.memory.bytes.set(before[k], from));
    this.executor.findings.length = 0;
    const counts = this.runHere(launch, loaded, groups);
    blocks.forEach(([from, to], k) => {
      const now = this.memory.bytes.subarray(from, to);
      const at = first[k].findIndex((b, n) => b !== now[n]);
      if (at >= 0)
        this.executor.findings.push({
          kernel: launch.kernel.name,
          what:
            `undefined: byte ${at} of the allocation of ${to - from} at 0x${(GLOBAL_BASE + from).toString(16)} ` +
            'depends on registers or LDS that were never written',
        });
    });
    return counts;
  }
  private runThreaded(launch: Launch, loaded: LoadedProgram, threads: number, groups: number): Counts {
    this.pool ??= new ThreadPool(this.memory.memory, this.threads - 1);
    const arenas = Array.from({ length: threads }, (_, k) => this.arena(k, launch, loaded));
    return this.pool.run(this.executor, launch, loaded, arenas, groups);
  }
  /** Ends the worker threads. */
  close(): void {
    this.pool?.close();
    this.pool = undefined;
  }

  // ---- what the runtime hands a kernel ----------------------------------------------------------

  private packArguments(
    kernel: Kernel,
    grid: readonly number[],
    block: readonly number[],
    args: Uint8Array,
    dynamicShared: number,
  ): number {
    const explicit = kernel.args.filter((a) => !a.kind.startsWith('hidden_'));
    const end = explicit.reduce((e, a) => Math.max(e, a.offset + a.size), 0);
    if (args.length < end)
      throw new ArgumentError(
        `launch ${kernel.name}: ${args.length} bytes of arguments; the kernel takes ${end}: ` +
          `${explicit.map((a) => `${a.size} at ${a.offset}`).join(', ')}`,
      );
    const address = this.memory.alloc(Math.max(kernel.kernargBytes, args.length, 16));
    const at = address - GLOBAL_BASE;
    const { bytes } = this.memory;
    bytes.fill(0, at, at + Math.max(kernel.kernargBytes, 16));
    bytes.set(args.subarray(0, end), at);
    const view = new DataView(bytes.buffer);
    const axis = (kind: string): number => 'xyz'.indexOf(kind.at(-1)!);
    for (const a of kernel.args) {
      const p = at + a.offset;
      if (a.kind.startsWith('hidden_block_count_')) view.setUint32(p, grid[axis(a.kind)], true);
      else if (a.kind.startsWith('hidden_group_size_')) view.setUint16(p, block[axis(a.kind)], true);
      else if (a.kind === 'hidden_grid_dims')
        view.setUint16(p, grid[2] * block[2] > 1 ? 3 : grid[1] * block[1] > 1 ? 2 : 1, true);
      else if (a.kind === 'hidden_dynamic_lds_size') view.setUint32(p, dynamicShared, true);
      // Remainders are 0, since grids are whole blocks; offsets, queues and buffers of the runtime are absent.
    }
    return address;
  }
  private dispatchPacket(kernel: Kernel, grid: readonly number[], block: readonly number[], ldsBytes: number): number {
    const address = this.memory.alloc(64);
    const at = address - GLOBAL_BASE;
    this.memory.bytes.fill(0, at, at + 64);
    const view = new DataView(this.memory.bytes.buffer);
    view.setUint16(at + 2, 3, true);
    block.forEach((v, k) => view.setUint16(at + 4 + 2 * k, v, true));
    block.forEach((v, k) => view.setUint32(at + 12 + 4 * k, v * grid[k], true));
    view.setUint32(at + 24, kernel.privateBytes, true);
    view.setUint32(at + 28, ldsBytes, true);
    return address;
  }
}
