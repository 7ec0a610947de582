// Reads an AMD code object: the ELF image with its relocations, the msgpack metadata note and the kernel descriptors.
import { FormatError } from '../base/errors.js';
import { readLineTable, type SourceLine } from './line-table.js';
import { decodeMsgpack, type MsgpackMap } from './msgpack.js';

/** An argument of a kernel. */
export interface KernelArg {
  /** Its name in the source; '' where the compiler kept none. */
  readonly name: string;
  /** Where it lies among the arguments, in bytes. */
  readonly offset: number;
  /** How many bytes it takes. */
  readonly size: number;
  /** 'global_buffer', 'by_value', 'hidden_block_count_x', ... */
  readonly kind: string;
}

/** A kernel as its descriptor and metadata say. */
export interface Kernel {
  /** Its symbol. */
  readonly name: string;
  /** Its arguments, hidden ones included. */
  readonly args: readonly KernelArg[];
  /** Bytes of all arguments. */
  readonly kernargBytes: number;
  /** Bytes of LDS (shared memory) of a group, as far as known when compiled. */
  readonly ldsBytes: number;
  /** Bytes of private memory of a work-item. */
  readonly privateBytes: number;
  /** The depth of calls is not known. */
  readonly dynamicStack: boolean;
  /** The largest group it was compiled for. */
  readonly maxThreads: number;
  /** Lanes of a wave. */
  readonly wave: 32 | 64;
  /** Vector registers of a lane. */
  readonly vgprs: number;
  /** Scalar registers of a wave. */
  readonly sgprs: number;
  /** Registers the compiler had to keep in memory for want of more. */
  readonly spilled: number;
  /** Offset of the first instruction in the image. */
  readonly entry: number;
  /** The three words of the descriptor that say how registers start. */
  readonly rsrc1: number;
  /** The second word: which numbers of the group come in scalar registers. */
  readonly rsrc2: number;
  /** The third word: which addresses come in scalar registers. */
  readonly properties: number;
}

/** What a compiler makes for an AMD GPU. */
export interface CodeObject {
  /** 'gfx90a', without feature suffixes. */
  readonly target: string;
  /** The code object's version: 4 or 5. */
  readonly codeVersion: number;
  /** All loadable segments at their offsets. */
  readonly image: Uint8Array;
  /** Image offset and addend of each word that holds an address. */
  readonly relocations: readonly {
    /** Offset of the word in the image. */
    readonly at: number;
    /** What is added to the image's address. */
    readonly value: number;
  }[];
  /** The instructions' part of the image. */
  readonly text: {
    /** Offset of the first instruction. */
    readonly start: number;
    /** Offset behind the last instruction. */
    readonly end: number;
  };
  /** Functions and variables by name: image offsets and sizes. */
  readonly symbols: ReadonlyMap<
    string,
    {
      /** Offset in the image. */
      readonly at: number;
      /** How many bytes. */
      readonly size: number;
      /** A function, not a variable. */
      readonly isFunction: boolean;
    }
  >;
  /** Kernels by name. */
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
const NT_AMDGPU_METADATA = 32;

/** Reads an AMD code object: its image, kernels and their arguments. `name` is what errors call it. */
export function readCodeObject(file: Uint8Array, name = 'code object'): CodeObject {
  const elf = new Elf(file, name);
  const { symbols, values } = elf.symbols();
  const metadata = elf.metadata();
  const text = elf.sections.find((s) => s.flags & SHF_EXEC);
  if (!metadata || !text) throw new FormatError(`${name}: no ${metadata ? 'executable section' : 'metadata note'}`);
  const image = elf.image();
  const view = new DataView(image.buffer);
  const described = (metadata['amdhsa.kernels'] ?? []) as MsgpackMap[];
  const kernels = described.map((k) => readKernel(k, view, symbols, name));
  let lineOf: CodeObject['lineOf'] | undefined;
  const readLines = (): CodeObject['lineOf'] =>
    readLineTable({
      line: elf.named('.debug_line'),
      lineStrings: elf.named('.debug_line_str'),
      strings: elf.named('.debug_str'),
    });
  return {
    target: String(metadata['amdhsa.target'] ?? '')
      .replace(/^.*--/, '')
      .replace(/:.*/, ''),
    codeVersion: file[8] + 2,
    image,
    relocations: elf.relocations(values),
    symbols,
    kernels: new Map(kernels.map((k) => [k.name, k])),
    text: { start: text.addr, end: text.addr + text.size },
    lineOf: (at) => (lineOf ??= readLines())(at),
  };
}

/** The parts of an ELF file that a code object uses; offsets are those of the 64-bit format. */
class Elf {
  readonly #file: Uint8Array;
  readonly #view: DataView;
  readonly #name: string;
  readonly sections: readonly ReturnType<Elf['section']>[];

  constructor(file: Uint8Array, name: string) {
    this.#file = file;
    this.#view = new DataView(file.buffer, file.byteOffset, file.byteLength);
    this.#name = name;
    if (file.length < 64 || this.u32(0) !== 0x464c457f || this.u16(18) !== EM_AMDGPU)
      throw new FormatError(`${name}: not an AMD GPU code object: the ELF header says otherwise in its first 20 bytes`);
    this.sections = Array.from({ length: this.u16(60) }, (_, i) => this.section(this.u64(40) + i * 64));
  }

  u16(at: number): number {
    return this.#view.getUint16(at, true);
  }
  u32(at: number): number {
    return this.#view.getUint32(at, true);
  }
  u64(at: number): number {
    return Number(this.#view.getBigUint64(at, true));
  }

  section(at: number) {
    return {
      label: this.u32(at),
      type: this.u32(at + 4),
      flags: this.u64(at + 8),
      addr: this.u64(at + 16),
      offset: this.u64(at + 24),
      size: this.u64(at + 32),
      link: this.u32(at + 40),
    };
  }

  text(at: number): string {
    let end = at;
    while (this.#file[end]) end++;
    return Buffer.from(this.#file.subarray(at, end)).toString();
  }

  /** A section's bytes by its name; none where there is no such section. */
  named(label: string): Uint8Array {
    const labels = this.sections[this.u16(62)];
    const s = this.sections.find((x) => this.text(labels.offset + x.label) === label);
    return s ? this.#file.subarray(s.offset, s.offset + s.size) : new Uint8Array();
  }

  /** The loaded segments as they lie in memory. */
  image(): Uint8Array<ArrayBuffer> {
    const segments = Array.from({ length: this.u16(56) }, (_, i) => this.u64(32) + i * 56)
      .filter((at) => this.u32(at) === PT_LOAD)
      .map((at) => ({
        offset: this.u64(at + 8),
        addr: this.u64(at + 16),
        fileSize: this.u64(at + 32),
        size: this.u64(at + 40),
      }));
    const image = new Uint8Array(Math.max(...segments.map((s) => s.addr + s.size)));
    for (const s of segments) image.set(this.#file.subarray(s.offset, s.offset + s.fileSize), s.addr);
    return image;
  }

  /** All symbols by name, and the values of the dynamic ones in their order, which relocations count by. */
  symbols(): { symbols: CodeObject['symbols']; values: number[] } {
    const symbols = new Map<string, { at: number; size: number; isFunction: boolean }>();
    const values: number[] = [];
    for (const s of this.sections.filter(({ type }) => type === SHT_DYNSYM || type === SHT_SYMTAB))
      for (let p = s.offset; p < s.offset + s.size; p += 24) {
        const at = this.u64(p + 8);
        if (s.type === SHT_DYNSYM) values.push(at);
        const label = this.text(this.sections[s.link].offset + this.u32(p));
        if (label) symbols.set(label, { at, size: this.u64(p + 16), isFunction: (this.#file[p + 4] & 15) === 2 });
      }
    return { symbols, values };
  }

  metadata(): MsgpackMap | undefined {
    const note = this.sections.findLast((s) => s.type === SHT_NOTE && this.u32(s.offset + 8) === NT_AMDGPU_METADATA);
    if (!note) return undefined;
    const body = note.offset + 12 + ((this.u32(note.offset) + 3) & ~3);
    return decodeMsgpack(this.#file.subarray(body, body + this.u32(note.offset + 4)));
  }

  relocations(symbolValues: readonly number[]): { at: number; value: number }[] {
    const found: { at: number; value: number }[] = [];
    for (const s of this.sections.filter(({ type }) => type === SHT_RELA))
      for (let p = s.offset; p < s.offset + s.size; p += 24) {
        const type = this.u32(p + 8);
        if (type !== R_RELATIVE64 && type !== R_ABS64)
          throw new FormatError(`${this.#name}: relocation type ${type} is not one a linked code object has`);
        const base = type === R_ABS64 ? symbolValues[this.u32(p + 12)] : 0;
        found.push({ at: this.u64(p), value: this.u64(p + 16) + base });
      }
    return found;
  }
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
