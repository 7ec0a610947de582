// Reads an AMD code object: the ELF image with its relocations, the msgpack metadata note and the kernel descriptors.
import { FormatError } from '../base/errors.js';
import { readLineTable, type SourceLine } from './line-table.js';
import { decodeMsgpack, type MsgpackMap } from './msgpack.js';

export interface KernelArg {
  readonly name: string;
  readonly offset: number;
  readonly size: number;
  /** 'global_buffer', 'by_value', 'hidden_block_count_x', ... */
  readonly kind: string;
}

export interface Kernel {
  readonly name: string;
  readonly args: readonly KernelArg[];
  readonly kernargBytes: number;
  readonly ldsBytes: number;
  readonly privateBytes: number;
  readonly dynamicStack: boolean;
  readonly maxThreads: number;
  readonly wave: 32 | 64;
  readonly vgprs: number;
  readonly sgprs: number;
  /** Registers the compiler had to keep in memory for want of more. */
  readonly spilled: number;
  /** Offset of the first instruction in the image. */
  readonly entry: number;
  /** The three words of the descriptor that say how registers start. */
  readonly rsrc1: number;
  readonly rsrc2: number;
  readonly properties: number;
}

export interface CodeObject {
  /** 'gfx90a', without feature suffixes. */
  readonly target: string;
  readonly codeVersion: number;
  /** All loadable segments at their offsets. */
  readonly image: Uint8Array;
  /** Image offset and addend of each word that holds an address. */
  readonly relocations: readonly { readonly at: number; readonly value: number }[];
  readonly text: { readonly start: number; readonly end: number };
  /** Functions and variables by name: image offsets and sizes. */
  readonly symbols: ReadonlyMap<string, { readonly at: number; readonly size: number; readonly isFunction: boolean }>;
  readonly kernels: ReadonlyMap<string, Kernel>;
  /** The source line of an image offset, where the code object has line tables. */
  readonly lineOf: (at: number) => SourceLine | undefined;
}

const SHT_NOTE = 7;
const SHT_RELA = 4;
const SHT_DYNSYM = 11;
const SHT_SYMTAB = 2;
const SHF_EXEC = 4;
const PT_LOAD = 1;
const R_RELATIVE64 = 13;
const R_ABS64 = 3;
const EM_AMDGPU = 224;

export function readCodeObject(file: Uint8Array, name = 'code object'): CodeObject {
  const dv = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const u16 = (at: number) => dv.getUint16(at, true);
  const u32 = (at: number) => dv.getUint32(at, true);
  const u64 = (at: number) => Number(dv.getBigUint64(at, true));
  if (file.length < 64 || u32(0) !== 0x464c457f || u16(18) !== EM_AMDGPU) {
    throw new FormatError(`${name}: not an AMD GPU code object: the ELF header says otherwise in its first 20 bytes`);
  }
  const cstr = (at: number): string => {
    let end = at;
    while (file[end]) end++;
    return Buffer.from(file.subarray(at, end)).toString();
  };
  const sections = Array.from({ length: u16(60) }, (_, i) => {
    const at = u64(40) + i * 64;
    return {
      label: u32(at),
      type: u32(at + 4),
      flags: u64(at + 8),
      addr: u64(at + 16),
      offset: u64(at + 24),
      size: u64(at + 32),
      link: u32(at + 40),
    };
  });
  const segments = Array.from({ length: u16(56) }, (_, i) => {
    const at = u64(32) + i * 56;
    return { type: u32(at), offset: u64(at + 8), addr: u64(at + 16), fileSize: u64(at + 32), size: u64(at + 40) };
  }).filter((s) => s.type === PT_LOAD);
  const image = new Uint8Array(Math.max(...segments.map((s) => s.addr + s.size)));
  for (const s of segments) image.set(file.subarray(s.offset, s.offset + s.fileSize), s.addr);

  const symbols = new Map<string, { at: number; size: number; isFunction: boolean }>();
  const dynsym: number[] = [];
  const relocations: { at: number; value: number }[] = [];
  let metadata: MsgpackMap | undefined;
  for (const s of sections) {
    if (s.type === SHT_DYNSYM || s.type === SHT_SYMTAB) {
      for (let p = s.offset; p < s.offset + s.size; p += 24) {
        if (s.type === SHT_DYNSYM) dynsym.push(u64(p + 8));
        const label = cstr(sections[s.link].offset + u32(p));
        if (label) symbols.set(label, { at: u64(p + 8), size: u64(p + 16), isFunction: (file[p + 4] & 15) === 2 });
      }
    } else if (s.type === SHT_NOTE) {
      const body = s.offset + 12 + ((u32(s.offset) + 3) & ~3);
      if (u32(s.offset + 8) === 32) metadata = decodeMsgpack(file.subarray(body, body + u32(s.offset + 4)));
    }
  }
  for (const s of sections) {
    if (s.type !== SHT_RELA) continue;
    for (let p = s.offset; p < s.offset + s.size; p += 24) {
      const type = u32(p + 8);
      if (type !== R_RELATIVE64 && type !== R_ABS64)
        throw new FormatError(`${name}: relocation type ${type} is not one a linked code object has`);
      relocations.push({ at: u64(p), value: u64(p + 16) + (type === R_ABS64 ? dynsym[u32(p + 12)] : 0) });
    }
  }
  const text = sections.find((s) => s.flags & SHF_EXEC);
  if (!metadata || !text) throw new FormatError(`${name}: no ${metadata ? 'executable section' : 'metadata note'}`);

  const imageView = new DataView(image.buffer);
  const kernels = new Map<string, Kernel>();
  for (const k of (metadata['amdhsa.kernels'] ?? []) as MsgpackMap[]) {
    const kernel = readKernel(k, imageView, symbols, name);
    kernels.set(kernel.name, kernel);
  }
  const labels = sections[u16(62)];
  const named = (label: string): Uint8Array => {
    const s = sections.find((x) => cstr(labels.offset + x.label) === label);
    return s ? file.subarray(s.offset, s.offset + s.size) : new Uint8Array();
  };
  let lineOf: CodeObject['lineOf'] | undefined;
  const target = String(metadata['amdhsa.target'] ?? '')
    .replace(/^.*--/, '')
    .replace(/:.*/, '');
  return {
    target,
    codeVersion: file[8] + 2,
    image,
    relocations,
    symbols,
    kernels,
    text: { start: text.addr, end: text.addr + text.size },
    lineOf: (at) =>
      (lineOf ??= readLineTable({
        line: named('.debug_line'),
        lineStrings: named('.debug_line_str'),
        strings: named('.debug_str'),
      }))(at),
  };
}

function readKernel(k: MsgpackMap, image: DataView, symbols: CodeObject['symbols'], file: string): Kernel {
  const name = String(k['.name']);
  const num = (key: string): number => Number(k[key] ?? 0);
  const descriptor = symbols.get(String(k['.symbol']));
  if (!descriptor) throw new FormatError(`${file}: kernel ${name} has no descriptor symbol ${k['.symbol']}`);
  const at = descriptor.at;
  const wave = num('.wavefront_size');
  if (wave !== 32 && wave !== 64)
    throw new FormatError(`${file}: kernel ${name} has wave size ${wave}; 32 and 64 exist`);
  return {
    name,
    wave,
    args: ((k['.args'] ?? []) as MsgpackMap[]).map((a) => ({
      name: String(a['.name'] ?? ''),
      offset: Number(a['.offset']),
      size: Number(a['.size']),
      kind: String(a['.value_kind']),
    })),
    kernargBytes: num('.kernarg_segment_size'),
    ldsBytes: num('.group_segment_fixed_size'),
    privateBytes: num('.private_segment_fixed_size'),
    dynamicStack: Boolean(k['.uses_dynamic_stack']),
    maxThreads: num('.max_flat_workgroup_size') || 1024,
    vgprs: num('.vgpr_count'),
    sgprs: num('.sgpr_count'),
    spilled: num('.vgpr_spill_count') + num('.sgpr_spill_count'),
    entry: at + Number(image.getBigInt64(at + 16, true)),
    rsrc1: image.getUint32(at + 48, true),
    rsrc2: image.getUint32(at + 52, true),
    properties: image.getUint16(at + 56, true),
  };
}
