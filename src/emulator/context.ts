// The code generator's state inside one basic block: scalar code runs at once, vector code gathers in a loop over the
// active lanes.
import { UnsupportedError } from '../base/errors.js';
import type { Counted } from './counts.js';
import { SREG, type Instruction } from './instruction.js';
import { MAX_ROWS, ROW_BYTES, WAVE } from './layout.js';
import type { Helpers } from './numeric.js';
import {
  copyBytes,
  count,
  type Code,
  f32,
  Func,
  i32,
  i64,
  Local,
  store,
  type Expr,
  type F32,
  type I32,
  type I64,
  callVoid,
} from './wasm.js';

/** Float behaviour, known when compiling: from the kernel descriptor and constant writes to the mode register. */
export interface Mode {
  /** 0 nearest even, 1 up, 2 down, 3 toward zero. */
  readonly round32: number;
  readonly round64: number;
  /** Bit 0 keeps denormal inputs, bit 1 denormal results. */
  readonly denorm32: number;
  readonly denorm64: number;
}
export const modeFromBits = (bits: number): Mode => ({
  round32: bits & 3,
  round64: (bits >> 2) & 3,
  denorm32: (bits >> 4) & 3,
  denorm64: (bits >> 6) & 3,
});
export const modeBits = (m: Mode): number => m.round32 | (m.round64 << 2) | (m.denorm32 << 4) | (m.denorm64 << 6);

export interface Target {
  readonly name: string;
  readonly generation: 9 | 10 | 11 | 12;
  readonly wave: 32 | 64;
}
/** The global of each count. */
export type Counters = Readonly<Record<Counted, number>>;

/** Where a vector register's value is inside the lane loop: any of its forms may be present. */
interface Held {
  i?: Expr<'i32'>;
  f?: Expr<'f32'>;
  wide?: { readonly q: Expr<'i64'>; readonly high: boolean };
  dirty: boolean;
}

class Segment {
  body: number[] = [];
  before: Code[] = [];
  readonly held = new Map<number, Held>();
  readonly hoisted = new Map<string, Expr>();
  readonly reads = new Set<number>();
  /** Lane masks made here: scalar register -> the lane's bit and the gathered mask. */
  readonly masks = new Map<number, { readonly bit: I32; readonly all: Local<'i32'> | Local<'i64'> }>();
  readonly writes = new Set<number>();
  rows = 0;
  loads = new Set<string>();
  stores = new Set<string>();
  instructions = 0;
  bytesRead = 0;
  bytesWritten = 0;
}

export class Context {
  readonly f: Func;
  readonly h: Helpers;
  readonly target: Target;
  readonly counters: Counters;
  readonly checked: boolean;
  mode: Mode;
  /** The wave's block. */
  readonly w: I32;
  /** Valid inside the lane loop. */
  readonly lane: Local<'i32'>;
  readonly p: Local<'i32'>;
  private readonly pending: Local<'i32'> | Local<'i64'>;
  private segment: Segment | undefined;
  private scalarReads = new Set<number>();
  private scalarWrites = new Set<number>();
  /** Index of the instruction being compiled, for messages. */
  site = 0;

  constructor(f: Func, h: Helpers, target: Target, mode: Mode, counters: Counters, checked: boolean) {
    this.f = f;
    this.h = h;
    this.target = target;
    this.mode = mode;
    this.counters = counters;
    this.checked = checked;
    this.w = f.param<'i32'>(0);
    this.lane = f.local('i32');
    this.p = f.local('i32');
    this.pending = target.wave === 64 ? f.local('i64') : f.local('i32');
  }

  // ---- scalar side ----------------------------------------------------------------------------

  /** Emits scalar code, before the open lane loop where nothing in the loop minds. */
  scalar(emit: () => void): void {
    const main = this.f.body;
    this.scalarReads = new Set();
    this.scalarWrites = new Set();
    this.f.body = [];
    emit();
    const code = this.f.body;
    this.f.body = main;
    const s = this.segment;
    const clash =
      s &&
      ([...this.scalarReads].some((r) => s.writes.has(r)) ||
        [...this.scalarWrites].some((r) => s.reads.has(r) || s.writes.has(r)));
    if (clash) this.flush();
    this.f.emit(code);
  }
  sget(reg: number): I32 {
    this.scalarReads.add(reg);
    return reg === SREG.NULL ? i32.const(0) : i32.load(this.w, WAVE.SREGS + reg * 4);
  }
  sget64(reg: number): I64 {
    this.scalarReads.add(reg).add(reg + 1);
    return reg === SREG.NULL ? i64.const(0) : i64.load(this.w, WAVE.SREGS + reg * 4);
  }
  sset(reg: number, v: Expr): void {
    if (reg === SREG.NULL) {
      this.f.emit([v.b, 0x1a]); // the value may have effects
      return;
    }
    this.scalarWrites.add(reg);
    if (v.t === 'i64') this.scalarWrites.add(reg + 1);
    this.f.emit(store(this.w, v, WAVE.SREGS + reg * 4));
  }
  get scc(): I32 {
    return i32.load(this.w, WAVE.SCC);
  }
  setScc(v: I32): void {
    this.f.emit(store(this.w, v, WAVE.SCC));
  }
  /** A lane mask: 32 or 64 bits by wave size. */
  getMask(reg: number): I32 | I64 {
    return this.target.wave === 64 ? this.sget64(reg) : this.sget(reg);
  }
  maskIsZero(reg: number): I32 {
    const m = this.getMask(reg);
    return m.t === 'i64' ? i64.eqz(m) : i32.eqz(m);
  }

  // ---- lane loop ------------------------------------------------------------------------------

  private open(): Segment {
    if (!this.segment) {
      this.segment = new Segment();
      this.segment.reads.add(SREG.EXEC).add(SREG.EXEC + 1);
    }
    return this.segment;
  }

  /** Emits code that runs once per active lane. */
  lanes(i: Instruction, emit: () => void, maskOperands: readonly number[] = []): void {
    for (const half of i.dual ? [i, i.dual] : [i]) {
      half.ops.forEach((o, k) => {
        if (o.kind !== 's' || !this.segment) return;
        const touched = Array.from({ length: o.n }, (_, n) => o.reg + n).some((r) => this.segment!.writes.has(r));
        if (touched && !(maskOperands.includes(k) && this.segment.masks.has(o.reg))) this.flush();
      });
    }
    const s = this.open();
    s.instructions++;
    const main = this.f.body;
    this.f.body = s.body;
    emit();
    this.f.body = main;
  }

  /** Ends the loop when a register's value for all lanes must be in memory. */
  commit(...regs: number[]): void {
    if (this.segment && regs.some((r) => this.segment!.held.get(r)?.dirty)) this.flush();
  }
  /** Ends the loop when it knows these registers at all: they are about to be written from outside. */
  forget(...regs: number[]): void {
    if (this.segment && regs.some((r) => this.segment!.held.has(r))) this.flush();
  }
  /** Orders memory accesses of a space: all lanes of one before any lane of the next, where a write is involved. */
  order(space: string, writes: boolean): void {
    const s = this.segment;
    if (s) {
      const spaces = space === 'flat' ? ['lds', 'global', 'flat'] : [space, 'flat'];
      if (spaces.some((x) => s.stores.has(x) || (writes && s.loads.has(x)))) this.flush();
    }
    (writes ? this.open().stores : this.open().loads).add(space);
  }
  traffic(read: number, written: number): void {
    const s = this.open();
    s.bytesRead += read;
    s.bytesWritten += written;
  }

  flush(): void {
    const s = this.segment;
    if (!s) return;
    this.segment = undefined;
    const { f, target } = this;
    const wide = target.wave === 64;
    f.emit(s.before);
    for (const m of s.masks.values())
      f.emit(m.all.t === 'i64' ? (m.all as Local<'i64'>).set(i64.const(0)) : (m.all as Local<'i32'>).set(i32.const(0)));
    if (s.instructions > 0) {
      const exec = this.getMask(SREG.EXEC);
      f.emit((this.pending as Local<'i32'>).set(exec as I32));
      const active = wide ? i64.popcnt(this.pending.get as I64) : i64.extend_u(i32.popcnt(this.pending.get as I32));
      const tally = (counter: number, per: number) => per && f.emit(count(counter, i64.mul(active, i64.const(per))));
      tally(this.counters.lanes, s.instructions);
      tally(this.counters.read, s.bytesRead);
      tally(this.counters.written, s.bytesWritten);
      const some = wide ? i64.ne(this.pending.get as I64, i64.const(0)) : (this.pending.get as I32);
      f.when(some, () =>
        f.repeat(() => {
          const e = this.pending.get;
          f.emit(this.lane.set(e.t === 'i64' ? i32.wrap(i64.ctz(e)) : i32.ctz(e as I32)));
          f.emit(this.p.set(i32.add(this.w, i32.shl(this.lane.get, i32.const(2)))));
          f.emit(s.body);
          for (const [reg, held] of s.held)
            if (held.dirty) f.emit(store(this.p.get, this.current(held), this.vreg(reg)));
          for (const m of s.masks.values()) {
            if (m.all.t === 'i64')
              f.emit(
                (m.all as Local<'i64'>).set(
                  i64.or(m.all.get as I64, i64.shl(i64.extend_u(m.bit), i64.extend_u(this.lane.get))),
                ),
              );
            else f.emit((m.all as Local<'i32'>).set(i32.or(m.all.get as I32, i32.shl(m.bit, this.lane.get))));
          }
          if (e.t === 'i64') {
            f.emit((this.pending as Local<'i64'>).set(i64.and(e as I64, i64.sub(e as I64, i64.const(1)))));
            return i64.ne(e as I64, i64.const(0));
          }
          f.emit((this.pending as Local<'i32'>).set(i32.and(e as I32, i32.sub(e as I32, i32.const(1)))));
          return e as I32;
        }),
      );
    }
    for (const [reg, m] of s.masks) if (reg !== SREG.NULL) f.emit(store(this.w, m.all.get, WAVE.SREGS + reg * 4));
  }
  private current(h: Held): Expr {
    if (h.i) return h.i;
    if (h.f) return h.f;
    return i32.wrap(h.wide!.high ? i64.shr_u(h.wide!.q, i64.const(32)) : h.wide!.q);
  }

  // ---- vector registers, inside the lane loop ---------------------------------------------------

  vreg(reg: number): number {
    return WAVE.VREGS + reg * this.target.wave * 4;
  }
  private hold(reg: number): Held {
    const s = this.open();
    let h = s.held.get(reg);
    if (!h) s.held.set(reg, (h = { dirty: false }));
    return h;
  }
  vget(reg: number): I32 {
    const h = this.hold(reg);
    if (!h.i)
      h.i = this.f.let(
        h.f ? i32.fromBits(h.f) : h.wide ? (this.current(h) as I32) : i32.load(this.p.get, this.vreg(reg)),
      );
    return h.i;
  }
  vgetF(reg: number): F32 {
    const h = this.hold(reg);
    if (!h.f)
      h.f = this.f.let(h.i || h.wide ? f32.fromBits(this.current(h) as I32) : f32.load(this.p.get, this.vreg(reg)));
    return h.f;
  }
  vget64(reg: number): I64 {
    const lo = this.hold(reg);
    const hi = this.hold(reg + 1);
    if (lo.wide && !lo.wide.high && hi.wide?.high && lo.wide.q === hi.wide.q) return lo.wide.q;
    const q = this.f.let(
      i64.or(i64.extend_u(this.vget(reg)), i64.shl(i64.extend_u(this.vget(reg + 1)), i64.const(32))),
    );
    lo.wide = { q, high: false };
    hi.wide = { q, high: true };
    return q;
  }
  /** The new value goes to a fresh local: expressions made before still see the old one. */
  vset(reg: number, v: Expr): void {
    const held = this.open().held;
    if (v.t === 'i64') {
      const q = this.f.let(v as I64);
      held.set(reg, { wide: { q, high: false }, dirty: true });
      held.set(reg + 1, { wide: { q, high: true }, dirty: true });
    } else if (v.t === 'f32') held.set(reg, { f: this.f.let(v as F32), dirty: true });
    else if (v.t === 'i32') held.set(reg, { i: this.f.let(v as I32), dirty: true });
    else this.vset(reg, i64.fromBits(v as Expr<'f64'>));
  }
  /** A scalar register's value inside the loop, read once before it. */
  uniform(reg: number, t: 'i32' | 'f32' | 'i64'): Expr {
    const s = this.open();
    const key = `${t}${reg}`;
    let e = s.hoisted.get(key);
    if (!e) {
      s.reads.add(reg);
      if (t === 'i64') s.reads.add(reg + 1);
      const l = this.f.local(t);
      const at = WAVE.SREGS + reg * 4;
      const value =
        reg === SREG.NULL
          ? t === 'i64'
            ? i64.const(0)
            : t === 'f32'
              ? f32.const(0)
              : i32.const(0)
          : t === 'i64'
            ? i64.load(this.w, at)
            : t === 'f32'
              ? f32.load(this.w, at)
              : i32.load(this.w, at);
      s.before.push(l.set(value as never));
      s.hoisted.set(key, (e = l.get));
    }
    return e;
  }
  /** Code before the loop whose value the lanes use. */
  before(e: Expr): Expr {
    const l = this.f.local(e.t);
    this.open().before.push(l.set(e as never));
    return l.get;
  }
  /** This lane's bit of a mask register, 0 or 1. */
  maskBit(reg: number): I32 {
    const own = this.open().masks.get(reg);
    if (own) return own.bit;
    return this.bitOf(
      this.target.wave === 64 ? (this.uniform(reg, 'i64') as I64) : (this.uniform(reg, 'i32') as I32),
      this.lane.get,
    );
  }
  bitOf(mask: I32 | I64, lane: I32): I32 {
    return mask.t === 'i64'
      ? i32.and(i32.wrap(i64.shr_u(mask, i64.extend_u(lane))), i32.const(1))
      : i32.and(i32.shr_u(mask as I32, lane), i32.const(1));
  }
  /** Gives this lane's bit of a mask register that is complete after the loop. */
  setMaskBit(reg: number, bit: I32): void {
    const s = this.open();
    const all = this.target.wave === 64 ? this.f.local('i64') : this.f.local('i32');
    s.masks.set(reg, { bit: this.f.let(bit), all });
    s.writes.add(reg);
    if (this.target.wave === 64) s.writes.add(reg + 1);
  }
  exec(): I32 | I64 {
    return this.target.wave === 64 ? (this.uniform(SREG.EXEC, 'i64') as I64) : (this.uniform(SREG.EXEC, 'i32') as I32);
  }
  /** Whole registers as they are before this instruction, for reads across lanes. Call before lanes(). */
  rows(...regs: number[]): number[] {
    this.commit(...regs);
    if (this.segment && this.segment.rows + regs.length > MAX_ROWS) this.flush();
    const s = this.open();
    return regs.map((reg) => {
      const at = WAVE.ROWS + s.rows++ * ROW_BYTES;
      s.before.push(
        copyBytes(i32.add(this.w, i32.const(at)), i32.add(this.w, i32.const(this.vreg(reg))), this.target.wave * 4),
      );
      return at;
    });
  }
  /** Another lane's value in such a copy. */
  rowAt(row: number, lane: I32): I32 {
    return i32.load(i32.add(this.w, i32.shl(lane, i32.const(2))), row);
  }
  fail(reason: number, detail: I32): void {
    this.f.emit(callVoid(this.h.index('fail'), i32.const(reason), i32.const(this.site), this.lane.get, this.w, detail));
  }

  unsupported(i: Instruction, why: string): never {
    throw new UnsupportedError(`emulator: ${why}: ${i.text}`);
  }
}
