// Turns a kernel's machine code into a WebAssembly module: one function a basic block, reached through a table.
import { FormatError, UnsupportedError } from '../base/errors.js';
import type { CodeObject, Kernel } from './code-object.js';
import { COUNTED, type Counted, unitsOf } from './counts.js';
import { Context, modeBits, modeFromBits, type Counters, type Mode, type Target } from './context.js';
import { crossLaneHandler } from './cross-lane.js';
import type { Line } from './disassembler.js';
import { parseInstruction, SREG, type Instruction } from './instruction.js';
import { BARRIER, END, FAIL, NO_BLOCK, OUT_OF_FUEL, PRIVATE_HIGH, SHARED_HIGH, WAVE } from './layout.js';
import { matrixHandler, type MatrixOp } from './matrix-ops.js';
import { memoryHandler } from './memory-ops.js';
import { Helpers } from './numeric.js';
import { scalarRead } from './operands.js';
import { packedHandlerOf } from './packed-ops.js';
import { scalarHandler, type Handler } from './scalar-ops.js';
import { vectorHandler } from './vector-ops.js';
import { callVoid, count, Func, i32, i64, ModuleBuilder, select, store, type I32, type I64 } from './wasm.js';

/** Functions larger than this are split: engines compile them faster. */
const MAX_BLOCK = 160;
export const MAX_PAGES = 65536;
/** Where the wave's block holds the image's device address. */
export const IMAGE_AT = 552;

export interface Program {
  readonly kernel: Kernel;
  readonly target: Target;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly entry: number;
  /** Instructions by site, for messages. */
  readonly sites: readonly Instruction[];
  /** First block at an image offset. */
  readonly blocks: ReadonlyMap<number, number>;
  /** Vector registers to keep, accumulators included. */
  readonly vregs: number;
  readonly matrices: readonly MatrixOp[];
  readonly hasCalls: boolean;
}

const NOPS =
  /^(s_nop|s_waitcnt\w*|s_wait_\w+|s_clause|s_delay_alu|s_inst_prefetch|s_set_inst_prefetch_distance|s_sleep|s_sleep_var|s_setprio|s_sendmsg|s_dcache_\w+|s_icache_inv|s_gl1_inv|buffer_gl[01]_inv|buffer_wbl2|buffer_wbinvl1\w*|buffer_inv\w*|global_inv|global_wb\w*|s_ttracedata\w*|s_barrier_signal|s_version|s_round_mode|s_denorm_mode|s_incperflevel|s_decperflevel|s_prefetch_\w+|v_nop|s_sethalt|s_endpgm_saved)$/;
const TERMINATORS = /^(s_branch|s_cbranch_\w+|s_endpgm|s_barrier|s_setpc_b64|s_swappc_b64|s_call_b64)$/;

const branchTarget = (i: Instruction, operand = 0): number => {
  const n = Number(i.ops[operand].int ?? NaN);
  if (!Number.isFinite(n)) throw new FormatError(`emulator: branch without a number: ${i.text}`);
  return i.at + i.bytes + ((n << 16) >> 16) * 4;
};

export function targetOf(name: string, wave: 32 | 64): Target {
  const m = /^gfx(9|10|11|12)(?=[0-9a-f]{2}$)/.exec(name);
  if (!m) throw new UnsupportedError(`emulator: target ${name}: generations 9, 10, 11 and 12 are modelled`);
  return { name, wave, generation: Number(m[1]) as 9 };
}

export function compileKernel(code: CodeObject, lines: readonly Line[], kernel: Kernel, checked: boolean): Program {
  const target = targetOf(code.target, kernel.wave);
  const flow = discover(code, lines, kernel);
  const module = new ModuleBuilder();
  const h = new Helpers(module);
  const counters = Object.fromEntries(COUNTED.map((k) => [k, module.counter(k)])) as Counters;
  const sites: Instruction[] = [];
  const matrices: MatrixOp[] = [];
  const ids = new Map([...flow.leaders.keys()].sort((a, b) => a - b).map((at, id) => [at, id]));
  let vregs = 4;
  const functions: number[] = [];
  for (const [at] of ids) {
    const { list, mode, next } = flow.leaders.get(at)!;
    const f = new Func(['i32'], ['i32']);
    const c = new Context(f, h, target, mode, counters, checked);
    f.emit(count(counters.waves, i64.const(list.length)));
    const units = new Map<Counted, number>();
    for (const i of list) for (const [unit, n] of unitsOf(i, target.wave)) units.set(unit, (units.get(unit) ?? 0) + n);
    for (const [unit, n] of units) f.emit(count(counters[unit], i64.const(n)));
    let ended = false;
    for (const i of list) {
      for (const o of [...i.ops, ...(i.dual?.ops ?? [])]) if (o.kind === 'v') vregs = Math.max(vregs, o.reg + o.n);
      c.site = sites.push(i) - 1;
      if (TERMINATORS.test(i.name)) {
        terminate(c, i, ids);
        ended = true;
      } else instruction(c, i, matrices);
    }
    if (!ended) {
      c.flush();
      f.ret(i32.const(ids.get(next) ?? NO_BLOCK));
    }
    f.emit([0x00]);
    functions.push(module.add(f));
  }
  module.add(dispatcher(module), 'run');
  module.setTable(functions);
  return {
    kernel,
    target,
    sites,
    matrices,
    vregs,
    bytes: module.encode(MAX_PAGES),
    blocks: ids,
    entry: ids.get(kernel.entry)!,
    hasCalls: sites.some((i) => i.name === 's_swappc_b64'),
  };
}

/** Runs blocks until the wave ends, waits or has used its fuel. */
function dispatcher(module: ModuleBuilder): Func {
  const f = new Func(['i32', 'i32', 'i32'], ['i32']);
  const [w, start, limit] = [f.param<'i32'>(0), f.param<'i32'>(1), f.param<'i32'>(2)];
  const id = f.local('i32');
  const fuel = f.local('i32');
  f.emit(id.set(start));
  f.emit(fuel.set(limit));
  f.repeat(() => {
    f.emit(id.set(module.callIndirect({ params: ['i32'], results: ['i32'] }, id.get, w) as I32));
    f.when(i32.lt_s(id.get, i32.const(0)), () => f.ret(id.get));
    f.emit(fuel.set(i32.sub(fuel.get, i32.const(1))));
    return i32.gt_s(fuel.get, i32.const(0));
  });
  f.emit(store(w, id.get, WAVE.PC));
  f.emit(i32.const(OUT_OF_FUEL).b);
  return f;
}

// ---- control flow graph ---------------------------------------------------------------------------

interface Block {
  readonly list: Instruction[];
  readonly mode: Mode;
  readonly next: number;
}

/** Where lines are by address, made once for the many kernels of a code object. */
const indexes = new WeakMap<readonly Line[], ReadonlyMap<number, number>>();
function addressIndex(lines: readonly Line[]): ReadonlyMap<number, number> {
  const index = indexes.get(lines) ?? new Map(lines.map((l, k) => [l.at, k]));
  indexes.set(lines, index);
  return index;
}

type InstructionAt = (address: number) => Instruction | undefined;
/** Instructions by address, each parsed once. */
function instructionsOf(lines: readonly Line[]): InstructionAt {
  const byAddress = addressIndex(lines);
  const parsed = new Map<number, Instruction>();
  return (address) => {
    const k = byAddress.get(address);
    if (k === undefined || !lines[k].text) return undefined;
    let i = parsed.get(address);
    if (!i) parsed.set(address, (i = parseInstruction(lines[k])));
    return i;
  };
}

/** All blocks reachable from the entry, called functions included, each with the float mode it starts in. */
function discover(code: CodeObject, lines: readonly Line[], kernel: Kernel): { leaders: Map<number, Block> } {
  const at = instructionsOf(lines);
  return { leaders: blocksFrom(reachable(code, kernel, at), at) };
}
/** Addresses that something jumps to or falls into, and the float mode at each. */
function reachable(code: CodeObject, kernel: Kernel, at: InstructionAt): Map<number, Mode> {
  const modes = new Map<number, Mode>();
  const work: number[] = [];
  const visit = (address: number, mode: Mode, from: Instruction | undefined): void => {
    const known = modes.get(address);
    if (known && modeBits(known) !== modeBits(mode))
      throw new UnsupportedError(
        `emulator: ${kernel.name}: the float mode at 0x${address.toString(16)} depends on the path ` +
          `taken${from ? `, by ${from.text}` : ''}`,
      );
    if (known) return;
    if (!at(address)) return; // past the end: reported if it is ever reached
    modes.set(address, mode);
    work.push(address);
  };
  visit(kernel.entry, modeFromBits((kernel.rsrc1 >>> 12) & 255), undefined);
  let calls = false;
  while (work.length) {
    const start = work.pop()!;
    let mode = modes.get(start)!;
    for (let i = at(start); i; i = at(i.at + i.bytes)) {
      mode = modeAfter(i, mode, at);
      const after = i.at + i.bytes;
      if (i.name === 's_getpc_b64') {
        const to = pcTarget(i, at);
        if (to !== undefined && to >= code.text.start && to < code.text.end) visit(to, mode, i);
      }
      if (!TERMINATORS.test(i.name)) continue;
      if (i.name === 's_branch' || i.name.startsWith('s_cbranch')) visit(branchTarget(i), mode, i);
      if (i.name === 's_call_b64') visit(branchTarget(i, 1), mode, i);
      if (i.name === 's_swappc_b64' && !calls) {
        calls = true;
        for (const r of code.relocations)
          if (r.value >= code.text.start && r.value < code.text.end) visit(r.value, mode, i);
      }
      if (i.name !== 's_branch' && i.name !== 's_endpgm' && i.name !== 's_setpc_b64') visit(after, mode, i);
      break;
    }
  }
  return modes;
}
/** Instructions from each address up to the next; long lists and changes of the mode add addresses to `modes`. */
function blocksFrom(modes: Map<number, Mode>, at: InstructionAt): Map<number, Block> {
  const leaders = new Map<number, Block>();
  const queue = [...modes.keys()];
  for (let q = 0; q < queue.length; q++) {
    const start = queue[q];
    const list: Instruction[] = [];
    let next = start;
    let mode = modes.get(start)!;
    for (let i = at(start); i; i = at(next)) {
      list.push(i);
      mode = modeAfter(i, mode, at);
      next = i.at + i.bytes;
      if (TERMINATORS.test(i.name) || modes.has(next)) break;
      if (list.length >= MAX_BLOCK || setsMode(i)) {
        modes.set(next, mode);
        queue.push(next);
        break;
      }
    }
    leaders.set(start, { list, mode: modes.get(start)!, next });
  }
  return leaders;
}

/** Where s_getpc and the additions after it point. */
function pcTarget(i: Instruction, at: InstructionAt): number | undefined {
  const reg = i.ops[0].reg;
  let step = at(i.at + i.bytes);
  for (let k = 0; k < 8 && step; k++, step = at(step.at + step.bytes)) {
    if (step.name === 's_add_u32' && step.ops[0].reg === reg) {
      const constant = step.ops.slice(1).find((o) => o.kind === 'c');
      return constant?.int === undefined ? undefined : i.at + i.bytes + Number(BigInt.asIntN(32, constant.int));
    }
    if (step.name === 's_add_u64' && step.ops[0].reg === reg) {
      const constant = step.ops.slice(1).find((o) => o.kind === 'c');
      return constant?.int === undefined ? undefined : i.at + i.bytes + Number(BigInt.asIntN(64, constant.int));
    }
  }
  return undefined;
}

const hwreg = (text: string): { name: string; offset: number; size: number } | undefined => {
  const m = /hwreg\((\w+)(?:,\s*(\d+),\s*(\d+))?\)/.exec(text);
  return m ? { name: m[1], offset: Number(m[2] ?? 0), size: Number(m[3] ?? 32) } : undefined;
};
const setsMode = (i: Instruction): boolean =>
  i.name === 's_round_mode' ||
  i.name === 's_denorm_mode' ||
  (i.name.startsWith('s_setreg') && i.text.includes('HW_REG_MODE'));

/** The float mode after an instruction: constants only, so that generated code knows it. */
function modeAfter(i: Instruction, mode: Mode, at: (a: number) => Instruction | undefined): Mode {
  if (!setsMode(i)) return mode;
  if (i.name === 's_round_mode')
    return { ...mode, round32: Number(i.ops[0].int!) & 3, round64: (Number(i.ops[0].int!) >> 2) & 3 };
  if (i.name === 's_denorm_mode')
    return { ...mode, denorm32: Number(i.ops[0].int!) & 3, denorm64: (Number(i.ops[0].int!) >> 2) & 3 };
  const field = hwreg(i.text)!;
  let value = i.ops[1].int;
  if (value === undefined) {
    // The value register is set by a constant shortly before.
    for (let back = 4; back <= 64 && value === undefined; back += 4) {
      const p = at(i.at - back);
      if (p && /^s_mov(k?)_[bi]32$/.test(p.name) && p.ops[0].reg === i.ops[1].reg) value = p.ops[1].int;
    }
  }
  if (value === undefined) throw new UnsupportedError(`emulator: the float mode is set from a register: ${i.text}`);
  const mask = (2 ** field.size - 1) << field.offset;
  return modeFromBits((modeBits(mode) & ~mask) | ((Number(BigInt.asUintN(32, value)) << field.offset) & mask & 255));
}

// ---- instructions ---------------------------------------------------------------------------------

const handlers = new Map<string, Handler | undefined>();
function handlerOf(name: string): Handler | undefined {
  if (!handlers.has(name)) {
    handlers.set(
      name,
      special(name) ??
        crossLaneHandler(name) ??
        (/^(s|v_s)_/.test(name)
          ? scalarHandler(name)
          : (memoryHandler(name) ?? packedHandlerOf(name) ?? vectorHandler(name))),
    );
  }
  return handlers.get(name);
}

/** Modelled with rounding to nearest alone. */
const NEAREST_ONLY = /^v_(pk_(add|mul|fma)|mad_mix|fma_mix|dot|dual_(add|sub|mul|fma)|mfma|wmma|smfmac|swmmac)/;

function instruction(c: Context, i: Instruction, matrices: MatrixOp[]): void {
  if (NOPS.test(i.name)) return;
  if ((c.mode.round32 !== 0 || c.mode.round64 !== 0) && NEAREST_ONLY.test(i.name))
    c.unsupported(i, 'rounding other than to nearest');
  const matrix = matrixHandler(i.name);
  if (matrix) {
    c.flush();
    const index = matrices.push(matrix(i, c.target.generation)) - 1;
    c.f.emit(callVoid(c.h.index('matrix'), i32.const(index), c.w));
    return;
  }
  const handler = handlerOf(i.name);
  if (handler) return handler(c, i);
  // Reached only if the program gets here; the message names the instruction.
  c.flush();
  c.f.emit(callVoid(c.h.index('fail'), i32.const(FAIL.UNDEFINED), i32.const(c.site), i32.const(-1), c.w, i32.const(0)));
}

function special(name: string): Handler | undefined {
  switch (name) {
    case 's_getpc_b64':
      return (c, i) =>
        c.scalar(() => c.sset(i.ops[0].reg, i64.add(i64.load(c.w, IMAGE_AT), i64.const(i.at + i.bytes))));
    case 's_getreg_b32':
      return (c, i) =>
        c.scalar(() => {
          const field = hwreg(i.text);
          const values: Record<string, number> = {
            HW_REG_SH_MEM_BASES: (PRIVATE_HIGH >>> 16) | (SHARED_HIGH & 0xffff0000),
            HW_REG_MODE: modeBits(c.mode),
            HW_REG_STATUS: 0,
            HW_REG_HW_ID: 0,
            HW_REG_HW_ID1: 0,
            HW_REG_HW_ID2: 0,
            HW_REG_XCC_ID: 0,
            HW_REG_IB_STS: 0,
            HW_REG_TRAPSTS: 0,
          };
          let v: I32;
          if (field?.name === 'HW_REG_SHADER_CYCLES' || field?.name === 'HW_REG_SHADER_CYCLES_LO')
            v = i32.wrap(c.h.import('clock') as I64);
          else if (field && field.name in values)
            v = i32.const((Math.floor((values[field.name] >>> 0) / 2 ** field.offset) % 2 ** field.size) | 0);
          else return c.unsupported(i, 'unknown hardware register');
          c.sset(i.ops[0].reg, v);
        });
    case 's_setreg_b32':
    case 's_setreg_imm32_b32':
      // The mode is followed when compiling; the scratch registers are not used, since private memory has its own path.
      return (c, i) => {
        const field = hwreg(i.text);
        if (!field || !/^HW_REG_(MODE|FLAT_SCR_LO|FLAT_SCR_HI|SCHED_MODE|WAVE_SCHED_MODE|WAVE_MODE)$/.test(field.name))
          c.unsupported(i, 'unknown hardware register');
      };
    case 's_memtime':
    case 's_memrealtime':
    case 's_sendmsg_rtn_b64':
      return (c, i) => c.scalar(() => c.sset(i.ops[0].reg, c.h.import('clock')));
    case 's_sendmsg_rtn_b32':
      return (c, i) => c.scalar(() => c.sset(i.ops[0].reg, i32.const(0)));
    case 's_trap':
      return (c, i) => {
        c.flush();
        c.f.emit(
          callVoid(
            c.h.index('fail'),
            i32.const(FAIL.TRAP),
            i32.const(c.site),
            i32.const(-1),
            c.w,
            i32.const(Number(i.ops[0]?.int ?? 0n)),
          ),
        );
      };
    default:
      return undefined;
  }
}

const CONDITIONS: Record<string, (c: Context) => I32> = {
  scc0: (c) => i32.eqz(c.scc),
  scc1: (c) => c.scc,
  vccz: (c) => c.maskIsZero(SREG.VCC),
  vccnz: (c) => i32.eqz(c.maskIsZero(SREG.VCC)),
  execz: (c) => c.maskIsZero(SREG.EXEC),
  execnz: (c) => i32.eqz(c.maskIsZero(SREG.EXEC)),
};

function terminate(c: Context, i: Instruction, ids: ReadonlyMap<number, number>): void {
  const { f } = c;
  c.flush();
  const block = (at: number): I32 => i32.const(ids.get(at) ?? NO_BLOCK);
  const after = i.at + i.bytes;
  if (i.name === 's_endpgm') return f.ret(i32.const(END));
  if (i.name === 's_branch') return f.ret(block(branchTarget(i)));
  if (i.name === 's_barrier') {
    f.emit(store(c.w, block(after), WAVE.PC));
    return f.ret(i32.const(BARRIER));
  }
  const jump = (target: I64): void => {
    const t = f.let(target);
    f.ret(c.h.import('jump', i32.wrap(t), i32.wrap(i64.shr_u(t, i64.const(32))), c.w));
  };
  if (i.name === 's_setpc_b64') return jump(scalarRead(c, i.ops[0], 'b64'));
  const link = i64.add(i64.load(c.w, IMAGE_AT), i64.const(after));
  if (i.name === 's_swappc_b64') {
    const to = f.let(scalarRead(c, i.ops[1], 'b64'));
    c.sset(i.ops[0].reg, link);
    return jump(to);
  }
  if (i.name === 's_call_b64') {
    c.sset(i.ops[0].reg, link);
    return f.ret(block(branchTarget(i, 1)));
  }
  const condition = CONDITIONS[i.name.replace('s_cbranch_', '')];
  if (!condition) c.unsupported(i, 'unknown branch');
  f.ret(select(condition(c), block(branchTarget(i)), block(after)));
}
