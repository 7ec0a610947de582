// Instruction text from the compiler's own disassembler (amd_comgr), one instruction at a time, kept on disk per code
// section.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DeviceError } from '../base/errors.js';
import { cacheFolder, isIntact, keep } from '../base/kept-files.js';
import { koffi, openLibrary } from '../driver/ffi.js';
import type { CodeObject } from './code-object.js';

export interface Line {
  /** Offset in the image. */
  readonly at: number;
  readonly bytes: number;
  readonly text: string;
}

const COMGR = {
  name: 'comgr',
  sonames: ['libamd_comgr.so.3', 'libamd_comgr.so.2', 'libamd_comgr.so'],
  vendor: 'rocm',
} as const;

type Disassemble = (image: Uint8Array, at: number) => { text: string; bytes: number } | undefined;
const open = new Map<string, Disassemble>();

/** The disassembler of one target, or a DeviceError that says what is missing. */
function disassembler(target: string): Disassemble {
  const known = open.get(target);
  if (known) return known;
  const lib = openLibrary(COMGR);
  if (typeof lib === 'string') throw new DeviceError(`emulator: ${lib}; its disassembler reads code objects`);
  const name = (s: string) => `wick_${s}_${target}`;
  const readMemory = koffi.proto(`uint64_t ${name('read')}(uint64_t from, void *to, uint64_t size, void *user)`);
  const print = koffi.proto(`void ${name('print')}(const char *text, void *user)`);
  const address = koffi.proto(`void ${name('address')}(uint64_t at, void *user)`);
  const create = lib.func(
    `int amd_comgr_create_disassembly_info(const char *isa, void *read, void *print, void *address, void *out)`,
  );
  const step = lib.func('int amd_comgr_disassemble_instruction(uint64_t info, uint64_t at, void *user, void *size)');
  let image = new Uint8Array();
  let text = '';
  const read = koffi.register((from: number | bigint, to: unknown, size: number | bigint) => {
    const n = Math.min(Number(size), image.length - Number(from));
    if (n <= 0) return 0;
    koffi.encode(to as never, koffi.array('uint8_t', n), image.subarray(Number(from), Number(from) + n));
    return n;
  }, koffi.pointer(readMemory));
  const onText = koffi.register((s: string) => {
    text = s;
  }, koffi.pointer(print));
  const onAddress = koffi.register(() => undefined, koffi.pointer(address));
  const handle = new BigUint64Array(1);
  const status = (create as unknown as (...a: unknown[]) => number)(
    `amdgcn-amd-amdhsa--${target}`,
    read,
    onText,
    onAddress,
    handle,
  );
  if (status !== 0)
    throw new DeviceError(
      `emulator: amd_comgr_create_disassembly_info(${target}): status ${status}; this comgr does not know the target`,
    );
  const size = new BigUint64Array(1);
  const run: Disassemble = (bytes, at) => {
    image = bytes as Uint8Array<ArrayBuffer>;
    if (step(handle[0], at, null, size as unknown as ArrayBufferView) !== 0) return undefined;
    return { text: text.trim(), bytes: Number(size[0]) };
  };
  open.set(target, run);
  return run;
}

/** The whole code section, from the disk cache where it was read before. */
export function disassemble(code: CodeObject): Line[] {
  const { start, end } = code.text;
  const key = createHash('sha256')
    .update(code.target)
    .update(`${start}`)
    .update(code.image.subarray(start, end))
    .digest('hex')
    .slice(0, 32);
  const file = join(cacheFolder('sim/disassembly', true), `${key}.txt`);
  const cached = readCache(file);
  if (cached) return cached;
  const step = disassembler(code.target);
  const lines: Line[] = [];
  for (let at = start; at < end; ) {
    const one = step(code.image, at);
    // Data and padding between functions do not decode.
    lines.push({ at, bytes: one?.bytes ?? 4, text: one?.text ?? '' });
    at += one?.bytes ?? 4;
  }
  keep(file, (draft) => writeFileSync(draft, lines.map((l) => `${l.at.toString(16)} ${l.bytes} ${l.text}\n`).join('')));
  return lines;
}

function readCache(file: string): Line[] | undefined {
  if (!isIntact(file)) return undefined;
  return readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((l) => {
      const a = l.indexOf(' ');
      const b = l.indexOf(' ', a + 1);
      return { at: parseInt(l.slice(0, a), 16), bytes: Number(l.slice(a + 1, b)), text: l.slice(b + 1) };
    });
}
