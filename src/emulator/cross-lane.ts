// Instructions that see other lanes: DPP sources, lane reads and writes, permutes, swizzles, lane counts.
import type { Context } from './context.js';
import { modList, modNumber, SREG, type Instruction, type Operand } from './instruction.js';
import { scalarRead } from './operands.js';
import type { Handler } from './scalar-ops.js';
import { and, i32, i64, select, store, type I32, type I64 } from './wasm.js';

/** What a DPP source gives one lane: its value, and whether the lane it came from counts. */
export interface DppLane {
  readonly value: I32;
  readonly valid: I32;
}

const K = i32.const;
const inRow = (lane: I32, at: I32): I32 => i32.or(i32.and(lane, K(~15)), i32.and(at, K(15)));

/** Source lane and whether it is inside its row, by the control's name. */
const CONTROLS: Record<string, (lane: I32, n: number, wave: number) => { from: I32; ok?: I32 }> = {
  row_shl: (l, n) => ({ from: i32.add(l, K(n)), ok: i32.lt_u(i32.add(i32.and(l, K(15)), K(n)), K(16)) }),
  row_shr: (l, n) => ({ from: i32.sub(l, K(n)), ok: i32.ge_u(i32.and(l, K(15)), K(n)) }),
  row_ror: (l, n) => ({ from: inRow(l, i32.sub(l, K(n))) }),
  row_share: (l, n) => ({ from: i32.or(i32.and(l, K(~15)), K(n)) }),
  row_newbcast: (l, n) => ({ from: i32.or(i32.and(l, K(~15)), K(n)) }),
  row_xmask: (l, n) => ({ from: i32.xor(l, K(n)) }),
  row_mirror: (l) => ({ from: i32.xor(l, K(15)) }),
  row_half_mirror: (l) => ({ from: i32.xor(l, K(7)) }),
  wave_shl: (l, _, w) => ({ from: i32.add(l, K(1)), ok: i32.lt_u(l, K(w - 1)) }),
  wave_shr: (l) => ({ from: i32.sub(l, K(1)), ok: i32.gt_u(l, K(0)) }),
  wave_rol: (l, _, w) => ({ from: i32.and(i32.add(l, K(1)), K(w - 1)) }),
  wave_ror: (l, _, w) => ({ from: i32.and(i32.sub(l, K(1)), K(w - 1)) }),
  row_bcast: (l, n) =>
    n === 15
      ? { from: i32.sub(i32.and(l, K(~15)), K(1)), ok: i32.ge_u(l, K(16)) }
      : { from: K(31), ok: i32.ge_u(l, K(32)) },
};

/**
 * Prepares a DPP source before the lane loop; the function it gives reads it inside the loop. Undefined for other
 * encodings.
 */
export function dppSource(c: Context, i: Instruction, operand: number): (() => DppLane) | undefined {
  if (i.form !== 'dpp') return undefined;
  const o = i.ops[operand];
  if (o.kind !== 'v') c.unsupported(i, 'DPP source is not a vector register');
  const [row] = c.rows(o.reg);
  return () => {
    const lane = c.lane.get;
    let from: I32;
    let ok: I32 | undefined;
    if (i.mods.quad_perm || i.mods.dpp8) {
      const key = i.mods.quad_perm ? 'quad_perm' : 'dpp8';
      const list = modList(i, key, 0, 4);
      const bits = key === 'quad_perm' ? 2 : 3;
      const packed = list.reduce((p, v, n) => p | (v << (bits * n)), 0);
      const at = i32.and(lane, K(list.length - 1));
      const picked = i32.and(i32.shr_u(K(packed), i32.mul(at, K(bits))), K(list.length - 1));
      from = i32.or(i32.and(lane, K(~(list.length - 1))), picked);
    } else {
      const key = Object.keys(i.mods).find((m) => m in CONTROLS);
      if (!key) c.unsupported(i, 'unknown DPP control');
      ({ from, ok } = CONTROLS[key!](lane, modNumber(i, key!), c.target.wave));
    }
    const source = c.f.let(i32.and(from, K(c.target.wave - 1)));
    const active = i.mods.fi === '1' ? K(1) : c.bitOf(c.exec(), source);
    const valid = c.f.let(ok ? and(active, ok) : active);
    return { value: c.f.let(select(valid, c.rowAt(row, source), K(0))), valid };
  };
}

/** Whether DPP lets this lane write: row and bank masks, and a valid source unless bound_ctrl supplies 0. */
export function laneEnabled(c: Context, i: Instruction, lane: DppLane): I32 {
  const conditions: I32[] = [];
  const rows = i.mods.row_mask ? Number(i.mods.row_mask) : 15;
  const banks = i.mods.bank_mask ? Number(i.mods.bank_mask) : 15;
  if (rows !== 15) conditions.push(i32.and(i32.shr_u(K(rows), i32.shr_u(c.lane.get, K(4))), K(1)));
  if (banks !== 15) conditions.push(i32.and(i32.shr_u(K(banks), i32.and(i32.shr_u(c.lane.get, K(2)), K(3))), K(1)));
  if (i.mods.bound_ctrl === undefined && !i.mods.dpp8) conditions.push(lane.valid);
  return c.f.let(conditions.length ? and(...conditions) : K(1));
}

const vectorAt = (c: Context, reg: number, lane: I32): I32 => i32.load(i32.add(c.w, i32.shl(lane, K(2))), c.vreg(reg));
const laneIndex = (c: Context, o: Operand): I32 => i32.and(scalarRead(c, o, 'b32'), K(c.target.wave - 1));

const readLane: Handler = (c, i) => {
  c.commit(i.ops[1].reg);
  c.scalar(() => c.sset(i.ops[0].reg, vectorAt(c, i.ops[1].reg, laneIndex(c, i.ops[2]))));
};
const readFirstLane: Handler = (c, i) => {
  const [d, s] = i.ops;
  if (s.kind !== 'v') return c.scalar(() => c.sset(d.reg, scalarRead(c, s, 'b32')));
  c.commit(s.reg);
  c.scalar(() => {
    const e = c.f.let(c.getMask(SREG.EXEC));
    const first =
      e.t === 'i64'
        ? select(i64.eqz(e as I64), K(0), i32.wrap(i64.ctz(e as I64)))
        : select(i32.eqz(e as I32), K(0), i32.ctz(e as I32));
    c.sset(d.reg, vectorAt(c, s.reg, first));
  });
};
const writeLane: Handler = (c, i) => {
  c.forget(i.ops[0].reg);
  c.scalar(() =>
    c.f.emit(
      store(i32.add(c.w, i32.shl(laneIndex(c, i.ops[2]), K(2))), scalarRead(c, i.ops[1], 'b32'), c.vreg(i.ops[0].reg)),
    ),
  );
};

/** Lanes ask for the value of the lane whose number times 4 they hold; an inactive lane gives 0. */
const bpermute: Handler = (c, i) => {
  const [d, a, s] = i.ops;
  const [row] = c.rows(s.reg);
  c.lanes(i, () => {
    const at = i32.add(c.vget(a.reg), K(modNumber(i, 'offset')));
    const from = c.f.let(i32.and(i32.shr_u(at, K(2)), K(c.target.wave - 1)));
    // Generations 10 and later permute within halves of a 64-lane wave.
    const half =
      c.target.wave === 64 && c.target.generation >= 10
        ? c.f.let(i32.or(i32.and(from, K(31)), i32.and(c.lane.get, K(32))))
        : from;
    const active = i.name.includes('_fi_') ? K(1) : c.bitOf(c.exec(), half);
    c.vset(d.reg, select(active, c.rowAt(row, half), K(0)));
  });
};

/** Lanes push their value to the lane whose number times 4 they hold; the highest pushing lane wins, others get 0. */
const permute: Handler = (c, i) => {
  const [d, a, s] = i.ops;
  const [to, data] = c.rows(a.reg, s.reg);
  c.lanes(i, () => {
    const out = c.f.local('i32');
    const n = c.f.local('i32');
    const exec = c.exec();
    c.f.emit(out.set(K(0)));
    c.f.emit(n.set(K(0)));
    c.f.repeat(() => {
      const target = i32.and(
        i32.shr_u(i32.add(c.rowAt(to, n.get), K(modNumber(i, 'offset'))), K(2)),
        K(c.target.wave - 1),
      );
      const hit = and(i32.eq(target, c.lane.get), c.bitOf(exec, n.get));
      c.f.emit(out.set(select(hit, c.rowAt(data, n.get), out.get)));
      c.f.emit(n.set(i32.add(n.get, K(1))));
      return i32.lt_u(n.get, K(c.target.wave));
    });
    c.vset(d.reg, out.get);
  });
};

const swizzle: Handler = (c, i) => {
  const [d, s] = i.ops;
  const [row] = c.rows(s.reg);
  const m =
    /^swizzle\((\w+)(?:,\s*(.*))?\)$/.exec(i.mods.offset ?? '') ?? /offset:swizzle\((\w+)(?:,\s*(.*))?\)/.exec(i.text);
  let from: (lane: I32) => I32;
  if (m) {
    const [, kind, list = ''] = m;
    const args = list.split(',').map((x) => x.trim().replace(/"/g, ''));
    const n = Number(args[0]);
    if (kind === 'SWAP') from = (l) => i32.xor(l, K(n));
    else if (kind === 'REVERSE') from = (l) => i32.xor(l, K(n - 1));
    else if (kind === 'BROADCAST') from = (l) => i32.or(i32.and(l, K(~(n - 1))), K(Number(args[1])));
    else if (kind === 'QUAD_PERM') {
      const packed = args.map(Number).reduce((p, v, k) => p | (v << (2 * k)), 0);
      from = (l) => i32.or(i32.and(l, K(~3)), i32.and(i32.shr_u(K(packed), i32.shl(i32.and(l, K(3)), K(1))), K(3)));
    } else if (kind === 'BITMASK_PERM') {
      // From the highest bit: 0 and 1 set it, p keeps it, i inverts it.
      const bits = [...args[0]].reverse();
      const mask = (chars: string) => bits.reduce((v, ch, k) => (chars.includes(ch) ? v | (1 << k) : v), 0);
      from = (l) => i32.or(i32.and(l, K(32)), i32.xor(i32.or(i32.and(l, K(mask('pi'))), K(mask('1'))), K(mask('i'))));
    } else return c.unsupported(i, 'unknown swizzle');
  } else {
    const offset = modNumber(i, 'offset');
    if (offset & 0x8000)
      from = (l) =>
        i32.or(i32.and(l, K(~3)), i32.and(i32.shr_u(K(offset & 255), i32.shl(i32.and(l, K(3)), K(1))), K(3)));
    else
      from = (l) =>
        i32.or(
          i32.and(l, K(32)),
          i32.xor(i32.or(i32.and(l, K(offset & 31)), K((offset >> 5) & 31)), K((offset >> 10) & 31)),
        );
  }
  c.lanes(i, () => {
    const at = c.f.let(from(c.lane.get));
    c.vset(d.reg, select(c.bitOf(c.exec(), at), c.rowAt(row, at), K(0)));
  });
};

/** Lanes of a row of 16 pick by nibbles of two scalars, from their own row or the one beside it. */
const permlane =
  (crossRow: boolean): Handler =>
  (c, i) => {
    const [d, s, lo, hi] = i.ops;
    const [row] = c.rows(s.reg);
    const opSel = modList(i, 'op_sel', 0, 2);
    c.lanes(i, () => {
      const scalar = (o: Operand): I32 =>
        o.kind === 's' ? (c.uniform(o.reg, 'i32') as I32) : K(Number(BigInt.asIntN(32, o.int ?? 0n)));
      const n = c.f.let(i32.and(c.lane.get, K(15)));
      const word = select(i32.lt_u(n, K(8)), scalar(lo), scalar(hi));
      const nibble = i32.and(i32.shr_u(word, i32.shl(i32.and(n, K(7)), K(2))), K(15));
      const base = i32.and(crossRow ? i32.xor(c.lane.get, K(16)) : c.lane.get, K(~15));
      const from = c.f.let(i32.or(base, nibble));
      const fi = opSel[0] === 1;
      const active = fi ? K(1) : c.bitOf(c.exec(), from);
      const other = opSel[1] === 1 ? K(0) : c.vget(d.reg);
      c.vset(d.reg, select(active, c.rowAt(row, from), other));
    });
  };

const permlane64: Handler = (c, i) => {
  const [row] = c.rows(i.ops[1].reg);
  c.lanes(i, () => c.vset(i.ops[0].reg, c.rowAt(row, i32.and(i32.xor(c.lane.get, K(32)), K(c.target.wave - 1)))));
};

/** Bits of a mask below this lane, plus a base. */
const mbcnt =
  (high: boolean): Handler =>
  (c, i) =>
    c.lanes(i, () => {
      const value = (o: Operand): I32 =>
        o.kind === 'v'
          ? c.vget(o.reg)
          : o.kind === 's'
            ? (c.uniform(o.reg, 'i32') as I32)
            : K(Number(BigInt.asIntN(32, o.int!)));
      const below = i64.sub(i64.shl(i64.const(1), i64.extend_u(c.lane.get)), i64.const(1));
      const mask = i32.wrap(high ? i64.shr_u(below, i64.const(32)) : below);
      c.vset(i.ops[0].reg, i32.add(i32.popcnt(i32.and(value(i.ops[1]), mask)), value(i.ops[2])));
    });

const HANDLERS: Record<string, Handler> = {
  v_readlane_b32: readLane,
  v_readfirstlane_b32: readFirstLane,
  v_writelane_b32: writeLane,
  ds_bpermute_b32: bpermute,
  ds_bpermute_fi_b32: bpermute,
  ds_permute_b32: permute,
  ds_swizzle_b32: swizzle,
  v_permlane16_b32: permlane(false),
  v_permlanex16_b32: permlane(true),
  v_permlane64_b32: permlane64,
  v_mbcnt_lo_u32_b32: mbcnt(false),
  v_mbcnt_hi_u32_b32: mbcnt(true),
};
export const crossLaneHandler = (name: string): Handler | undefined => HANDLERS[name];
