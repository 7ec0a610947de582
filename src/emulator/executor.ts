// Runs work-groups of one launch on one thread: wave start state, barriers, scheduling in a seeded order, and what
// checks report.
import { DriverError } from '../base/errors.js';
import { SITES_AT } from './address.js';
import { AccessChecker, type Finding } from './checker.js';
import type { Kernel } from './code-object.js';
import { IMAGE_AT } from './compile.js';
import { COUNTED, type Counted, type Counts } from './counts.js';
import { fma64, fmaDirected64, fmaScaled64, trigPreop } from './host.js';
import { SREG } from './instruction.js';
import { BARRIER, END, FAIL, GLOBAL_BASE, GLOBAL_HIGH, NO_BLOCK, SCRATCH_MARK, WAVE } from './layout.js';
import { runMatrix, type MatrixOp } from './matrix-ops.js';
import { findBlock } from './memory.js';
import { Wasm, type WasmGlobal, type WasmMemory, type WasmModule } from '../base/webassembly.js';

/** Everything a thread needs to run groups of a launch; sent to workers as is. */
export interface Launch {
  readonly program: number;
  readonly kernel: Kernel;
  readonly target: string;
  readonly generation: number;
  readonly grid: readonly [number, number, number];
  readonly block: readonly [number, number, number];
  readonly kernarg: number;
  readonly packet: number;
  readonly image: number;
  readonly ldsBytes: number;
  readonly privateBytes: number;
  readonly seed: number;
  readonly checked: boolean;
  readonly allocations: Int32Array;
  readonly poison: number;
  /** Blocks a wave may run before another gets its turn, and before the launch is called endless. */
  readonly fuel: number;
  readonly maxBlocks: number;
}

export interface Site {
  readonly text: string;
  readonly at: number;
  readonly name: string;
  readonly source?: string;
}
export interface LoadedProgram {
  readonly module: WasmModule;
  readonly entry: number;
  readonly blocks: ReadonlyMap<number, number>;
  readonly sites: readonly Site[];
  readonly vregs: number;
  readonly matrices: readonly MatrixOp[];
}

/** An error a kernel made: which kernel, instruction and work-item. */
export class EmulatorError extends DriverError {
  /** What was seen, in parts. */
  readonly finding: Finding;
  constructor(finding: Finding) {
    super(describe(finding));
    this.finding = finding;
  }
}
/** A finding as lines to read: kernel, place, instruction, source. */
export const describe = (f: Finding): string =>
  `${f.kernel}: ${f.what}${
    f.instruction ? ` by "${f.instruction}" at 0x${(f.at ?? 0).toString(16)}` : ''
  }${f.source ? `, line ${f.source}` : ''}${
    f.item
      ? `, work-item (${f.item.join(', ')}) of group (${f.group!.join(', ')})`
      : f.group
        ? `, group (${f.group.join(', ')})`
        : ''
  }`;

interface Instance {
  readonly run: (wave: number, block: number, fuel: number) => number;
  readonly counters: Record<Counted, WasmGlobal>;
}

/** What registers and LDS hold before they are written: a NaN, or an ordinary float and a large integer. */
export const POISONS = [0x7fc0dead, 0x3a5a5a5a] as const;

/** A small generator for orders that a seed repeats. */
export function random(seed: number): () => number {
  let s = (seed ^ 0x9e3779b9) | 0;
  return () => {
    s = (s + 0x6d2b79f5) | 0;
    let t = Math.imul(s ^ (s >>> 15), 1 | s);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export class Executor {
  private readonly memory: WasmMemory;
  private readonly instances = new Map<number, Instance>();
  private readonly programs = new Map<number, LoadedProgram>();
  private launch!: Launch;
  private program!: LoadedProgram;
  private group: [number, number, number] = [0, 0, 0];
  private waveBytes = 0;
  private waves = 0;
  private base = 0;
  private table: Int32Array = new Int32Array();
  private sites = 0;
  private u32!: Uint32Array;
  private checker: AccessChecker | undefined;
  readonly findings: Finding[] = [];

  constructor(memory: WasmMemory) {
    this.memory = memory;
  }
  addProgram(id: number, p: LoadedProgram): void {
    this.programs.set(id, p);
  }
  removeProgram(id: number): void {
    this.programs.delete(id);
    this.instances.delete(id);
  }

  /** Bytes of thread-local memory a launch needs. */
  static arenaBytes(l: Launch, p: { vregs: number; sites: { length: number } }): number {
    const wave = l.kernel.wave;
    const waves = Math.ceil((l.block[0] * l.block[1] * l.block[2]) / wave);
    return waves * (Executor.waveBytes(wave, p.vregs) + wave * l.privateBytes) + l.ldsBytes + p.sites.length * 8 + 4096;
  }
  private static waveBytes(wave: number, vregs: number): number {
    return Math.ceil((WAVE.VREGS + vregs * wave * 4) / 256) * 256;
  }

  /** Runs the groups `next` names until it answers -1. */
  run(l: Launch, arena: { at: number; bytes: number }, next: () => number): Counts {
    const p = this.programs.get(l.program)!;
    this.launch = l;
    this.program = p;
    this.table = l.allocations;
    this.u32 = new Uint32Array(this.memory.buffer);
    const instance = this.instance(l.program, p);
    const { wave } = l.kernel;
    const threads = l.block[0] * l.block[1] * l.block[2];
    this.waves = Math.ceil(threads / wave);
    this.waveBytes = Executor.waveBytes(wave, p.vregs);
    let at = Math.ceil(arena.at / 256) * 256;
    this.base = at;
    at += this.waves * this.waveBytes;
    const lds = at;
    at += Math.ceil(l.ldsBytes / 16) * 16;
    const priv = Math.ceil(at / 16) * 16;
    at = priv + this.waves * wave * l.privateBytes;
    this.sites = Math.ceil(at / 8) * 8;
    this.u32.fill(0, this.sites / 4, this.sites / 4 + p.sites.length * 2);
    this.checker = l.checked ? new AccessChecker(lds, l.ldsBytes, (f) => this.note(f)) : undefined;
    for (const k of COUNTED) instance.counters[k].value = 0n;
    let groups = 0;
    const perX = l.grid[0];
    const perXY = perX * l.grid[1];
    for (let g = next(); g >= 0; g = next()) {
      this.group = [g % perX, Math.floor(g / perX) % l.grid[1], Math.floor(g / perXY)];
      this.start(threads, lds, priv);
      this.checker?.startGroup(g, this.waves);
      this.schedule(instance, g);
      groups++;
    }
    const counted = COUNTED.map((k) => [k, Number(instance.counters[k].value)] as const);
    return { ...(Object.fromEntries(counted) as Record<Counted, number>), groups };
  }

  // ---- start state ----------------------------------------------------------------------------

  private start(threads: number, lds: number, priv: number): void {
    const { launch: l, program: p, u32 } = this;
    const { wave } = l.kernel;
    u32.fill(l.poison, lds / 4, lds / 4 + Math.ceil(l.ldsBytes / 4));
    for (let n = 0; n < this.waves; n++) {
      const at = (this.base + n * this.waveBytes) / 4;
      u32.fill(0, at, at + WAVE.ROWS / 4);
      u32.fill(l.poison, at, at + 106);
      u32.fill(l.poison, at + WAVE.VREGS / 4, at + WAVE.VREGS / 4 + p.vregs * wave);
      this.userRegisters(at);
      this.groupRegisters(at);
      const active = Math.min(wave, threads - n * wave);
      u32[at + SREG.EXEC] = active >= 32 ? 0xffffffff : 2 ** active - 1;
      u32[at + SREG.EXEC + 1] = active > 32 ? (active >= 64 ? 0xffffffff : 2 ** (active - 32) - 1) : 0;
      u32[at + WAVE.SCC / 4] = 0;
      u32[at + WAVE.PC / 4] = p.entry;
      u32[at + WAVE.LDS_BASE / 4] = lds;
      u32[at + WAVE.LDS_BYTES / 4] = l.ldsBytes;
      u32[at + WAVE.PRIVATE_BASE / 4] = priv + n * wave * l.privateBytes;
      u32[at + WAVE.PRIVATE_BYTES / 4] = l.privateBytes;
      u32[at + WAVE.INDEX / 4] = n;
      u32[at + SITES_AT / 4] = this.sites;
      u32[at + IMAGE_AT / 4] = l.image;
      u32[at + IMAGE_AT / 4 + 1] = GLOBAL_HIGH;
      this.threadNumbers(at + WAVE.VREGS / 4, n * wave, active);
    }
  }

  /** The scalar registers that the kernel's descriptor asks for, in the order of its bits. */
  private userRegisters(at: number): void {
    const { launch: l, u32 } = this;
    const { properties } = l.kernel;
    let s = 0;
    if (properties & 1) {
      u32[at] = 0;
      u32[at + 1] = 0;
      u32[at + 2] = 0xffffffff;
      u32[at + 3] = SCRATCH_MARK;
      s += 4;
    }
    for (const [bit, value] of [
      [2, l.packet],
      [4, 0],
      [8, l.kernarg],
      [16, 0],
      [32, 0],
    ] as const) {
      if (!(properties & bit)) continue;
      u32[at + s] = value;
      u32[at + s + 1] = value / 2 ** 32;
      s += 2;
    }
    if (properties & 64) u32[at + s] = l.privateBytes;
  }

  /** The group's place in the grid, behind the user registers. */
  private groupRegisters(at: number): void {
    const { launch: l, u32 } = this;
    const { rsrc2 } = l.kernel;
    const [gx, gy, gz] = this.group;
    if (l.generation >= 12) {
      u32[at + SREG.TTMP + 9] = gx;
      u32[at + SREG.TTMP + 7] = gy | (gz << 16);
      return;
    }
    let s = (rsrc2 >>> 1) & 31;
    for (const [bit, v] of [
      [7, gx],
      [8, gy],
      [9, gz],
    ] as const)
      if ((rsrc2 >>> bit) & 1) u32[at + s++] = v;
    if ((rsrc2 >>> 10) & 1) u32[at + s++] = 0;
    if (rsrc2 & 1) u32[at + s] = 0; // the wave's scratch offset: each has memory of its own here
  }

  /** Each lane's place in its group, in one register or in up to three. */
  private threadNumbers(v: number, first: number, active: number): void {
    const { launch: l, u32 } = this;
    const { wave, rsrc2 } = l.kernel;
    const packed = l.generation >= 11 || l.target === 'gfx90a' || l.target === 'gfx942' || l.target === 'gfx950';
    const dims = (rsrc2 >>> 11) & 3;
    const [bx, by] = l.block;
    for (let lane = 0; lane < active; lane++) {
      const t = first + lane;
      const x = t % bx;
      const y = Math.floor(t / bx) % by;
      const z = Math.floor(t / (bx * by));
      if (packed) u32[v + lane] = x | (y << 10) | (z << 20);
      else {
        u32[v + lane] = x;
        if (dims >= 1) u32[v + wave + lane] = y;
        if (dims >= 2) u32[v + 2 * wave + lane] = z;
      }
    }
  }

  // ---- scheduling -----------------------------------------------------------------------------

  private schedule(instance: Instance, group: number): void {
    const { launch: l, u32 } = this;
    const next = random(l.seed + group * 7919);
    const order = Array.from({ length: this.waves }, (_, k) => k);
    for (let k = order.length - 1; k > 0; k--) {
      const j = Math.floor(next() * (k + 1));
      [order[k], order[j]] = [order[j], order[k]];
    }
    const state = new Array<'ready' | 'barrier' | 'done'>(this.waves).fill('ready');
    let turns = 0;
    for (let left = this.waves; left > 0; ) {
      let moved = false;
      for (const n of order) {
        if (state[n] !== 'ready') continue;
        moved = true;
        const w = this.base + n * this.waveBytes;
        const result = instance.run(w, u32[(w + WAVE.PC) / 4], l.fuel);
        if (result === END) {
          state[n] = 'done';
          left--;
        } else if (result === BARRIER) state[n] = 'barrier';
        else if (result === NO_BLOCK) this.raise({ what: 'control left the code', w });
        else if (++turns * l.fuel > l.maxBlocks)
          this.raise({ what: `still running after ${l.maxBlocks} blocks: an endless loop?`, w });
      }
      if (moved) continue;
      this.checker?.barrier(() => this.checkBarrier(state));
      for (let n = 0; n < this.waves; n++) if (state[n] === 'barrier') state[n] = 'ready';
    }
  }

  /** In checked mode all waves must wait at one barrier, with every work-item they started with. */
  private checkBarrier(state: readonly string[]): void {
    const { u32, launch: l } = this;
    const threads = l.block[0] * l.block[1] * l.block[2];
    const waiting = state
      .map((s, n) => ({ s, n, w: (this.base + n * this.waveBytes) / 4 }))
      .filter((x) => x.s === 'barrier');
    const first = waiting[0];
    for (const x of waiting) {
      const active = Math.min(l.kernel.wave, threads - x.n * l.kernel.wave);
      const lo = active >= 32 ? 0xffffffff : 2 ** active - 1;
      const hi = l.kernel.wave === 64 && active > 32 ? (active >= 64 ? 0xffffffff : 2 ** (active - 32) - 1) : 0;
      if (u32[x.w + SREG.EXEC] !== lo || (l.kernel.wave === 64 && u32[x.w + SREG.EXEC + 1] !== hi))
        this.note({ what: 'divergent barrier: part of a wave does not reach it', w: x.w * 4 });
      if (u32[x.w + WAVE.PC / 4] !== u32[first.w + WAVE.PC / 4])
        this.note({ what: 'divergent barrier: waves wait at different barriers', w: x.w * 4 });
    }
    if (state.includes('done'))
      this.note({ what: 'divergent barrier: some waves ended without reaching it', w: first.w * 4 });
  }

  // ---- errors ---------------------------------------------------------------------------------

  private finding(f: { what: string; w: number; site?: number; lane?: number }): Finding {
    const { launch: l } = this;
    const site = f.site === undefined ? undefined : this.program.sites[f.site];
    const wave = Math.floor((f.w - this.base) / this.waveBytes);
    const out: Finding = { kernel: l.kernel.name, what: f.what, group: [...this.group] };
    if (site) Object.assign(out, { instruction: site.text, at: site.at, ...(site.source && { source: site.source }) });
    if (f.lane !== undefined && f.lane >= 0) {
      const t = wave * l.kernel.wave + f.lane;
      out.item = [t % l.block[0], Math.floor(t / l.block[0]) % l.block[1], Math.floor(t / (l.block[0] * l.block[1]))];
    }
    return out;
  }
  private raise(f: { what: string; w: number; site?: number; lane?: number }): never {
    throw new EmulatorError(this.finding(f));
  }
  /** Something a check saw; the launch goes on. One report an instruction and kind. */
  private note(f: { what: string; w: number; site?: number; lane?: number }): void {
    const found = this.finding(f);
    const same = (o: Finding) => o.what.split(':')[0] === found.what.split(':')[0] && o.at === found.at;
    if (this.findings.length < 100 && !this.findings.some(same)) this.findings.push(found);
  }

  // ---- what generated code calls ----------------------------------------------------------------

  private instance(id: number, p: LoadedProgram): Instance {
    const known = this.instances.get(id);
    if (known) return known;
    const env: Record<string, unknown> = {
      memory: this.memory,
      resolve: (low: number, high: number, bytes: number, site: number, lane: number, w: number) =>
        this.resolve(low >>> 0, high >>> 0, bytes, site, lane, w),
      jump: (low: number, high: number, w: number) => {
        const at = (high >>> 0) * 2 ** 32 + (low >>> 0) - GLOBAL_BASE - (this.launch.image >>> 0);
        const block = this.program.blocks.get(at);
        if (block === undefined)
          this.raise({
            what: `jump to 0x${((high >>> 0) * 2 ** 32 + (low >>> 0)).toString(16)}, where no code was found`,
            w,
          });
        return block;
      },
      fail: (reason: number, site: number, lane: number, w: number, detail: number) =>
        this.fail(reason, site, lane, w, detail >>> 0),
      access: (kind: number, at: number, bytes: number, site: number, lane: number, w: number) => {
        const wave = Math.floor((w - this.base) / this.waveBytes);
        this.checker?.access(kind, at >>> 0, bytes, {
          site,
          lane,
          w,
          wave,
          text: (s) =>
            `${this.program.sites[s].text}"${this.program.sites[s].source ? `, line ${this.program.sites[s].source}` : ''}`,
        });
      },
      exp2: (x: number) => 2 ** x,
      log2: Math.log2,
      sin: Math.sin,
      cos: Math.cos,
      fma64,
      fmaScaled64,
      fmaDirected64,
      trigPreop,
      matrix: (index: number, w: number) =>
        runMatrix(this.program.matrices[index], this.memory.buffer, w, this.launch.kernel.wave),
      clock: () => process.hrtime.bigint(),
    };
    const exports = new Wasm.Instance(p.module, { env }).exports;
    const counters = Object.fromEntries(COUNTED.map((k) => [k, exports[k]])) as Instance['counters'];
    const made = { run: exports.run as Instance['run'], counters };
    this.instances.set(id, made);
    return made;
  }

  private resolve(low: number, high: number, bytes: number, site: number, lane: number, w: number): number {
    const hit = high === GLOBAL_HIGH ? findBlock(this.table, low) : undefined;
    // Scalar loads fetch whole groups of words: padding after the kernel arguments may be read.
    const slack = lane < 0 ? 64 : 0;
    if (!hit || low + bytes > hit.end + slack) {
      const where = hit
        ? `${low - hit.start} of an allocation of ${hit.end - hit.start}`
        : high === 0 && low < 65536
          ? 'the null page'
          : 'no allocation';
      this.raise({
        what: `out of bounds: ${bytes} bytes at 0x${(high * 2 ** 32 + low).toString(16)}, ${where}`,
        w,
        site,
        lane,
      });
    }
    const entry = (this.sites + site * 8) / 4;
    this.u32[entry] = hit.start;
    this.u32[entry + 1] = hit.end - hit.start;
    return low | 0;
  }

  private fail(reason: number, site: number, lane: number, w: number, detail: number): never {
    const text: Record<number, string> = {
      [FAIL.LDS_BOUNDS]: `out of bounds: LDS offset ${detail} of ${this.launch.ldsBytes} bytes`,
      [FAIL.PRIVATE_BOUNDS]: `out of bounds: private offset ${detail} of ${this.launch.privateBytes} bytes`,
      [FAIL.MISALIGNED]: `misaligned atomic at offset 0x${detail.toString(16)}`,
      [FAIL.TRAP]: `trap ${detail}`,
      [FAIL.BUFFER]: 'buffer resource other than scratch, which is not modelled',
      [FAIL.UNDEFINED]: 'unknown instruction',
    };
    this.raise({ what: text[reason] ?? `failure ${reason}`, w, site, lane });
  }
}
