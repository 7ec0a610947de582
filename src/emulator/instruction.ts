// Parses one line of disassembly into a record: canonical name, operands, modifiers. Names of all generations become
// one spelling.
import { FormatError } from '../base/errors.js';
import type { Line } from './disassembler.js';

/** Scalar register numbers as this emulator keeps them, for every generation. */
export const SREG = { FLAT_SCRATCH: 102, XNACK: 104, VCC: 106, TTMP: 108, M0: 124, NULL: 125, EXEC: 126 } as const;
/** Accumulation registers follow the vector registers. */
const AGPR = 256;

export interface Operand {
  /** v: vector register, s: scalar register, c: constant, off: no register, x: word of its own (hwreg, msg, ...). */
  readonly kind: 'v' | 's' | 'c' | 'off' | 'x';
  readonly reg: number;
  /** Registers in the range. */
  readonly n: number;
  readonly text: string;
  readonly neg?: boolean;
  readonly abs?: boolean;
  readonly sext?: boolean;
  /** True16 half: 0 low, 1 high. */
  readonly half?: 0 | 1;
  /** Integer value of a constant. */
  readonly int?: bigint;
  /** Value of a float inline constant, whose bits depend on the operand's type. */
  readonly float?: number;
  /** A 32-bit literal rather than an inline constant. */
  readonly literal?: boolean;
  readonly special?: string;
}

export interface Instruction {
  readonly at: number;
  readonly bytes: number;
  readonly text: string;
  readonly name: string;
  readonly ops: readonly Operand[];
  readonly mods: Readonly<Record<string, string>>;
  readonly form: 'plain' | 'dpp' | 'sdwa';
  /** The second half of a dual-issue pair. */
  readonly dual?: Instruction;
}

const NAMED: Record<string, [number, number]> = {
  vcc_lo: [SREG.VCC, 1],
  vcc_hi: [SREG.VCC + 1, 1],
  vcc: [SREG.VCC, 2],
  m0: [SREG.M0, 1],
  null: [SREG.NULL, 1],
  exec_lo: [SREG.EXEC, 1],
  exec_hi: [SREG.EXEC + 1, 1],
  exec: [SREG.EXEC, 2],
  flat_scratch_lo: [SREG.FLAT_SCRATCH, 1],
  flat_scratch_hi: [SREG.FLAT_SCRATCH + 1, 1],
  flat_scratch: [SREG.FLAT_SCRATCH, 2],
  xnack_mask_lo: [SREG.XNACK, 1],
  xnack_mask_hi: [SREG.XNACK + 1, 1],
  xnack_mask: [SREG.XNACK, 2],
};

const SPECIAL = new Set([
  'src_shared_base',
  'src_shared_limit',
  'src_private_base',
  'src_private_limit',
  'src_scc',
  'src_vccz',
  'src_execz',
  'scc',
  'vccz',
  'execz',
  'shared_base',
  'private_base',
  'src_flat_scratch_base_lo',
  'src_flat_scratch_base_hi',
]);

/** Renames applied in order; the newest generation's spelling wins, with _nc_, _co_ci_ and _num_ dropped. */
const RENAMES: readonly [RegExp, string][] = [
  [/^v_dual_/, 'v_'],
  [/_dwordx16\b/, '_b512'],
  [/_dwordx8\b/, '_b256'],
  [/_dwordx4\b/, '_b128'],
  [/_dwordx3\b/, '_b96'],
  [/_dwordx2\b/, '_b64'],
  [/_dword\b/, '_b32'],
  [/_load_ubyte_d16_hi$/, '_load_d16_hi_u8'],
  [/_load_sbyte_d16_hi$/, '_load_d16_hi_i8'],
  [/_load_short_d16_hi$/, '_load_d16_hi_b16'],
  [/_load_ubyte_d16$/, '_load_d16_u8'],
  [/_load_sbyte_d16$/, '_load_d16_i8'],
  [/_load_short_d16$/, '_load_d16_b16'],
  [/_load_ubyte$/, '_load_u8'],
  [/_load_sbyte$/, '_load_i8'],
  [/_load_ushort$/, '_load_u16'],
  [/_load_sshort$/, '_load_i16'],
  [/_store_byte_d16_hi$/, '_store_d16_hi_b8'],
  [/_store_short_d16_hi$/, '_store_d16_hi_b16'],
  [/_store_byte$/, '_store_b8'],
  [/_store_short$/, '_store_b16'],
  [/^ds_read2st64_/, 'ds_load_2addr_stride64_'],
  [/^ds_read2_/, 'ds_load_2addr_'],
  [/^ds_write2st64_/, 'ds_store_2addr_stride64_'],
  [/^ds_write2_/, 'ds_store_2addr_'],
  [/^ds_read_/, 'ds_load_'],
  [/^ds_write_/, 'ds_store_'],
  [/^ds_load_([ui]\d+)_d16(_hi)?$/, 'ds_load_d16$2_$1'],
  [/^ds_store_(b\d+)_d16_hi$/, 'ds_store_d16_hi_$1'],
  [/^ds_load_d16(_hi)?_u16$/, 'ds_load_d16$1_b16'],
  [/^ds_wrxchg_rtn_/, 'ds_storexchg_rtn_'],
  [/^ds_cmpst_/, 'ds_cmpstoreold_'],
  [/_atomic_(add|sub)_x2$/, '_atomic_$1_u64'],
  [/_atomic_(add|sub)$/, '_atomic_$1_u32'],
  [/_atomic_s(min|max)_x2$/, '_atomic_$1_i64'],
  [/_atomic_s(min|max)$/, '_atomic_$1_i32'],
  [/_atomic_u(min|max)_x2$/, '_atomic_$1_u64'],
  [/_atomic_u(min|max)$/, '_atomic_$1_u32'],
  [/_atomic_(and|or|xor|swap|cmpswap)_x2$/, '_atomic_$1_b64'],
  [/_atomic_(and|or|xor|swap|cmpswap)$/, '_atomic_$1_b32'],
  [/_atomic_(inc|dec)_x2$/, '_atomic_$1_u64'],
  [/_atomic_(inc|dec)$/, '_atomic_$1_u32'],
  [/_atomic_f(min|max)_x2$/, '_atomic_$1_f64'],
  [/_atomic_f(min|max)$/, '_atomic_$1_f32'],
  [/_atomic_(min|max)_num_f/, '_atomic_$1_f'],
  [/_andn2_/, '_and_not1_'],
  [/_orn2_/, '_or_not1_'],
  [/_andn1_/, '_and_not0_'],
  [/_orn1_/, '_or_not0_'],
  [/^s_ff1_/, 's_ctz_'],
  [/^s_flbit_i32_b/, 's_clz_i32_u'],
  [/^s_flbit_i32$/, 's_cls_i32'],
  [/^s_flbit_i32_i64$/, 's_cls_i32_i64'],
  [/^v_ffbl_b32/, 'v_ctz_i32_b32'],
  [/^v_ffbh_u32/, 'v_clz_i32_u32'],
  [/^v_ffbh_i32/, 'v_cls_i32'],
  [/^v_addc_co_u32/, 'v_add_co_ci_u32'],
  [/^v_subb_co_u32/, 'v_sub_co_ci_u32'],
  [/^v_subbrev_co_u32/, 'v_subrev_co_ci_u32'],
  [/^v_(add|sub|subrev)_nc_/, 'v_$1_'],
  [/_num_f(16|32|64)/, '_f$1'],
  [/^v_mad_co_/, 'v_mad_'],
  [/^s_(add|sub)_co_ci_u32/, 's_$1c_u32'],
  [/^s_subb_u32/, 's_subc_u32'],
  [/^s_(add|sub)_co_/, 's_$1_'],
  [/^v_cmp(x?)_lg_([iu])/, 'v_cmp$1_ne_$2'],
  [/^s_cmp_lg_([iu])/, 's_cmp_ne_$1'],
  [/^s_(add|sub|mul)_nc_/, 's_$1_'],
  [/^v_cvt_flr_i32_f32/, 'v_cvt_floor_i32_f32'],
  [/^v_cvt_rpi_i32_f32/, 'v_cvt_nearest_i32_f32'],
  [/^v_cvt_pkrtz_f16_f32/, 'v_cvt_pk_rtz_f16_f32'],
  [/^v_cvt_pknorm_/, 'v_cvt_pk_norm_'],
  [/^s_barrier_wait$/, 's_barrier'],
  [/^s_addk_co_i32$/, 's_addk_i32'],
];

const names = new Map<string, string>();
function canonicalName(raw: string): string {
  let name = names.get(raw);
  if (name === undefined) {
    name = RENAMES.reduce((n, [from, to]) => n.replace(from, to), raw.replace(/_e(32|64)$/, ''));
    names.set(raw, name);
  }
  return name;
}

function splitOperands(s: string): string[] {
  const out: string[] = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i < s.length; i++) {
    const c = s[i];
    if (c === '[' || c === '(') depth++;
    else if (c === ']' || c === ')') depth--;
    else if (c === ',' && depth === 0) {
      out.push(s.slice(from, i).trim());
      from = i + 1;
    }
  }
  const last = s.slice(from).trim();
  if (last) out.push(last);
  return out;
}

function parseOperand(source: string): Operand {
  let text = source;
  let neg = false;
  let abs = false;
  let sext = false;
  for (let m: RegExpExecArray | null; ; ) {
    if ((m = /^-(?=[a-z|(])(.*)$/.exec(text))) neg = true;
    else if ((m = /^neg\((.*)\)$/.exec(text))) neg = true;
    else if ((m = /^\|(.*)\|$/.exec(text)) || (m = /^abs\((.*)\)$/.exec(text))) abs = true;
    else if ((m = /^sext\((.*)\)$/.exec(text))) sext = true;
    else break;
    text = m[1];
  }
  const flags = { text: source, ...(neg && { neg }), ...(abs && { abs }), ...(sext && { sext }) };
  let m = /^([vsa]|ttmp)(\d+)(\.[lh])?$/.exec(text) ?? /^([vsa]|ttmp)\[(\d+)(?::(\d+))?\]$/.exec(text);
  if (m) {
    const first = Number(m[2]);
    const base = m[1] === 'a' ? AGPR : m[1] === 'ttmp' ? SREG.TTMP : 0;
    const n = m[3] && m[3][0] !== '.' ? Number(m[3]) - first + 1 : 1;
    const half = m[3]?.[0] === '.' ? { half: m[3] === '.h' ? (1 as const) : (0 as const) } : {};
    return { kind: m[1] === 'v' || m[1] === 'a' ? 'v' : 's', reg: base + first, n, ...half, ...flags };
  }
  if (Object.hasOwn(NAMED, text)) return { kind: 's', reg: NAMED[text][0], n: NAMED[text][1], ...flags };
  if (text === 'off') return { kind: 'off', reg: 0, n: 0, ...flags };
  if (SPECIAL.has(text)) return { kind: 'c', reg: 0, n: 2, special: text.replace(/^src_/, ''), ...flags };
  if ((m = /^lit(?:64)?\((.*)\)$/.exec(text)))
    return { kind: 'c', reg: 0, n: 1, int: BigInt(m[1]), literal: true, ...flags };
  if (/^-?\d+\.\d+$/.test(text))
    return {
      kind: 'c',
      reg: 0,
      n: 1,
      float: text === '0.15915494' || text.startsWith('0.159154') ? 1 / (2 * Math.PI) : Number(text),
      ...flags,
    };
  if ((m = /^(-?)(0x[0-9a-f]+)$/i.exec(text)))
    return { kind: 'c', reg: 0, n: 1, int: m[1] ? -BigInt(m[2]) : BigInt(m[2]), literal: true, ...flags };
  if (/^-?\d+$/.test(text)) return { kind: 'c', reg: 0, n: 1, int: BigInt(text), ...flags };
  return { kind: 'x', reg: 0, n: 0, ...flags };
}

/** A modifier: word, word:value or word:[list], after the operands. */
const MODIFIER =
  /\s(clamp|glc|slc|dlc|scc|sc0|sc1|nt|offen|idxen|lds|gds|tfe|(?:offset[01]?|op_sel|op_sel_hi|neg_lo|neg_hi|scope|th|mul|div|quad_perm|row_\w+|wave_\w+|dpp8|row_mask|bank_mask|bound_ctrl|fi|dst_sel|dst_unused|src0_sel|src1_sel|cbsz|abid|blgp|wait_va_vdst|wait_vdst|wait_va_vsrc|wait_vm_vsrc|byte_sel|index_key|matrix_\w+):(?:\[[^\]]*\]|\S+)|row_mirror|row_half_mirror)(?=\s|,|$)/g;

export function parseInstruction(line: Line): Instruction {
  const [first, second] = line.text.split(' :: ');
  const one = parseHalf(line, first);
  return second ? { ...one, dual: parseHalf(line, second) } : one;
}

function parseHalf(line: Line, source: string): Instruction {
  const m = /^(\S+)\s*(.*)$/.exec(source.trim());
  if (!m) throw new FormatError(`emulator: no instruction at 0x${line.at.toString(16)}`);
  let raw = m[1];
  let form: Instruction['form'] = 'plain';
  raw = raw.replace(/_(?:e64_)?(dpp8|dpp|sdwa)$/, (_, f: string) => {
    form = f === 'sdwa' ? 'sdwa' : 'dpp';
    return '';
  });
  const mods: Record<string, string> = {};
  let rest = ` ${m[2]}`;
  rest = rest.replace(MODIFIER, (_, word: string) => {
    const colon = word.indexOf(':');
    if (colon < 0) mods[word] = '1';
    else mods[word.slice(0, colon)] = word.slice(colon + 1);
    return '';
  });
  if (Object.keys(mods).some((k) => /^(quad_perm|row_|wave_sh|wave_ro|dpp8)/.test(k)) && form === 'plain') form = 'dpp';
  return {
    at: line.at,
    bytes: line.bytes,
    text: line.text,
    name: canonicalName(raw),
    ops: splitOperands(rest).map(parseOperand),
    mods,
    form,
  };
}

export const modNumber = (i: Instruction, key: string): number => (key in i.mods ? Number(i.mods[key]) : 0);
/** A list modifier such as op_sel:[0,1], or the default where absent. */
export function modList(i: Instruction, key: string, fallback: number, n: number): number[] {
  const given = i.mods[key];
  if (given === undefined) return new Array<number>(n).fill(fallback);
  const list = given.replace(/[[\]]/g, '').split(',').map(Number);
  while (list.length < n) list.push(fallback);
  return list;
}
