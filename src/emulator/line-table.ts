// Source lines of machine code: reads DWARF 4 and 5 line programs (.debug_line), with the source text where the
// compiler embedded it.
import { FormatError } from '../base/errors.js';

export interface SourceLine {
  readonly file: string;
  readonly line: number;
  /** The line's text, where the code object holds the source (-gembed-source). */
  readonly text?: string;
}
export interface DebugSections {
  readonly line: Uint8Array;
  readonly lineStrings: Uint8Array;
  readonly strings: Uint8Array;
}

interface File {
  readonly name: string;
  readonly source?: string;
}
const baseName = (f: File): string => f.name.replace(/^.*\//, '');
interface Row {
  readonly at: number;
  readonly file: File | undefined;
  readonly line: number;
}

const FORM = {
  BLOCK: 0x09,
  DATA1: 0x0b,
  DATA2: 0x05,
  DATA4: 0x06,
  DATA8: 0x07,
  DATA16: 0x1e,
  STRING: 0x08,
  STRP: 0x0e,
  LINE_STRP: 0x1f,
  UDATA: 0x0f,
} as const;
const CONTENT = { PATH: 1, LLVM_SOURCE: 0x2001 } as const;
const OP = { COPY: 1, ADVANCE_PC: 2, ADVANCE_LINE: 3, SET_FILE: 4, CONST_ADD_PC: 8, FIXED_ADVANCE_PC: 9 } as const;
const EXTENDED = { END: 1, SET_ADDRESS: 2 } as const;

class Reader {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  at: number;
  constructor(bytes: Uint8Array, at = 0) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = at;
  }
  #step(n: number): number {
    this.at += n;
    return this.at - n;
  }
  u8 = (): number => this.view.getUint8(this.#step(1));
  i8 = (): number => this.view.getInt8(this.#step(1));
  u16 = (): number => this.view.getUint16(this.#step(2), true);
  u32 = (): number => this.view.getUint32(this.#step(4), true);
  u64 = (): number => Number(this.view.getBigUint64(this.#step(8), true));
  leb(signed = false): number {
    let [value, scale, byte] = [0, 1, 0x80];
    while (byte & 0x80) {
      byte = this.u8();
      value += (byte & 0x7f) * scale;
      scale *= 128;
    }
    return signed && byte & 0x40 ? value - scale : value;
  }
  text(): string {
    const end = this.bytes.indexOf(0, this.at);
    const from = this.#step(end - this.at + 1);
    return Buffer.from(this.bytes.subarray(from, end)).toString();
  }
}

/** A value of an entry in the tables of folders and files. */
function form(r: Reader, kind: number, s: DebugSections): string | number {
  switch (kind) {
    case FORM.STRING:
      return r.text();
    case FORM.LINE_STRP:
      return new Reader(s.lineStrings, r.u32()).text();
    case FORM.STRP:
      return new Reader(s.strings, r.u32()).text();
    case FORM.UDATA:
      return r.leb();
    case FORM.DATA1:
      return r.u8();
    case FORM.DATA2:
      return r.u16();
    case FORM.DATA4:
      return r.u32();
    case FORM.DATA8:
      return r.u64();
    case FORM.DATA16:
      return (r.at += 16);
    case FORM.BLOCK: {
      const n = r.leb();
      return (r.at += n);
    }
    default:
      throw new FormatError(`line table: form 0x${kind.toString(16)} is not one that DWARF 5 allows here`);
  }
}

function entries5(r: Reader, s: DebugSections): File[] {
  const formats = Array.from({ length: r.u8() }, () => [r.leb(), r.leb()] as const);
  return Array.from({ length: r.leb() }, () => {
    const values = new Map(formats.map(([content, kind]) => [content, form(r, kind, s)]));
    const source = values.get(CONTENT.LLVM_SOURCE);
    return {
      name: String(values.get(CONTENT.PATH) ?? ''),
      ...(typeof source === 'string' && source !== '' && { source }),
    };
  });
}

/** Files of version 4 count from 1. */
function files4(r: Reader): File[] {
  while (r.text() !== '') continue; // folders
  const files: File[] = [{ name: '' }];
  for (let name = r.text(); name !== ''; name = r.text()) {
    files.push({ name });
    for (let k = 0; k < 3; k++) r.leb();
  }
  return files;
}

function readUnit(r: Reader, s: DebugSections, rows: Row[]): void {
  const end = r.u32() + r.at;
  const version = r.u16();
  if (version < 4 || version > 5) {
    r.at = end;
    return;
  }
  if (version === 5) r.at += 2; // sizes of addresses and segments
  const program = r.u32() + r.at;
  const step = r.u8();
  r.at += 2; // operations an instruction, whether rows are statements
  const base = r.i8();
  const range = r.u8();
  const opcodes = r.u8();
  const lengths = Array.from({ length: opcodes - 1 }, () => r.u8());
  let files: File[];
  if (version === 5) {
    entries5(r, s);
    // Headers that were preprocessed before carry the numbers of files that are not here: only the main file's text is
    // what its lines say.
    files = entries5(r, s).map((f, _, all) => (baseName(f) === baseName(all[0]) ? f : { name: f.name }));
  } else files = files4(r);
  r.at = program;
  let [at, file, line] = [0, 1, 1];
  const row = (ended = false): void => void rows.push({ at, file: ended ? undefined : files[file], line });
  while (r.at < end) {
    const op = r.u8();
    if (op >= opcodes) {
      at += Math.floor((op - opcodes) / range) * step;
      line += base + ((op - opcodes) % range);
      row();
    } else if (op === 0) {
      const next = r.leb() + r.at;
      const kind = r.u8();
      if (kind === EXTENDED.SET_ADDRESS) at = r.u64();
      if (kind === EXTENDED.END) {
        row(true);
        [at, file, line] = [0, 1, 1];
      }
      r.at = next;
    } else if (op === OP.COPY) row();
    else if (op === OP.ADVANCE_PC) at += r.leb() * step;
    else if (op === OP.ADVANCE_LINE) line += r.leb(true);
    else if (op === OP.SET_FILE) file = r.leb();
    else if (op === OP.CONST_ADD_PC) at += Math.floor((255 - opcodes) / range) * step;
    else if (op === OP.FIXED_ADVANCE_PC) at += r.u16();
    else for (let k = 0; k < lengths[op - 1]; k++) r.leb();
  }
  r.at = end;
}

/** Answers which line an image offset came from; line 0 stands for code of no line, which belongs to the one before. */
export function readLineTable(s: DebugSections): (at: number) => SourceLine | undefined {
  const rows: Row[] = [];
  for (const r = new Reader(s.line); r.at < s.line.length; ) readUnit(r, s, rows);
  const sorted = rows
    .map((row, k) => ({ row, k }))
    .sort((a, b) => a.row.at - b.row.at || a.k - b.k)
    .map(({ row }) => row);
  const texts = new Map<File, string[]>();
  return (at) => {
    let [low, high] = [0, sorted.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (sorted[middle].at <= at) low = middle + 1;
      else high = middle;
    }
    let k = low - 1;
    while (k >= 0 && sorted[k].file && sorted[k].line === 0) k--;
    const found = sorted[k];
    if (!found?.file) return undefined;
    const { file, line } = found;
    let lines = texts.get(file);
    if (!lines && file.source !== undefined) texts.set(file, (lines = file.source.split('\n')));
    const text = lines?.[line - 1]?.trim();
    return { file: baseName(file), line, ...(text && { text }) };
  };
}
