// `wick emulate FILE KERNEL`: runs one kernel of an AMD code object, or of a HIP source, with no GPU and shows its
// buffers, counts and findings.
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { ArgumentError } from '../base/errors.js';
import { fromBf16Bits, fromF16Bits, toBf16Bits, toF16Bits } from '../base/float.js';
import { openHiprtc } from '../driver/hiprtc.js';
import { type CodeObject, readCodeObject } from '../emulator/code-object.js';
import { describe, random } from '../emulator/executor.js';
import { EmulatedGpu, type LaunchReport } from '../emulator/gpu.js';
import { wholeOf } from './options.js';
import { table } from './table.js';

const HELP = `wick emulate FILE [KERNEL] [--args "..."] [options]: runs a kernel on an emulated AMD GPU
FILE is a code object (hipcc --genco --offload-arch=gfx1030 -o k.co k.hip), or a source k.hip, which the installed
hipRTC compiles.
Without KERNEL: lists the kernels and their parameters.
Arguments, separated by blanks, in the kernel's order:
  i32:5 u32:5 i64:5 f32:1.5 f64:1.5 f16:1.5 bf16:1 i16:5 u8:5    a value
  f32[1024] i32[64] u8[100] ...                                  a buffer of zeros
  f32[1024]=random f32[8]=1,2,3 f32[8]=iota f32[64]=@FILE        a buffer with values: random in [-1, 1), a list,
                                                                 0 1 2 ..., raw bytes
  --grid X,Y,Z      blocks (1)
  --block X,Y,Z     threads of a block (1)
  --shared BYTES    dynamic shared memory (0)
  --show N          elements of every buffer to show after the run (8)
  --check           also reports races, uninitialised LDS, misaligned accesses, divergent barriers; exit status 1
                    if there are any
  --target NAME     what a source is compiled for (gfx1030)
  --seed N          orders the waves, fills random buffers (1)
  --threads N       threads that share the work-groups (the machine's cores)`;

interface Kind {
  readonly bytes: number;
  set(v: DataView, at: number, x: number): void;
  get(v: DataView, at: number): number | bigint;
}
const KINDS: Record<string, Kind> = {
  u8: { bytes: 1, set: (v, at, x) => v.setUint8(at, x), get: (v, at) => v.getUint8(at) },
  i8: { bytes: 1, set: (v, at, x) => v.setInt8(at, x), get: (v, at) => v.getInt8(at) },
  i16: { bytes: 2, set: (v, at, x) => v.setInt16(at, x, true), get: (v, at) => v.getInt16(at, true) },
  u16: { bytes: 2, set: (v, at, x) => v.setUint16(at, x, true), get: (v, at) => v.getUint16(at, true) },
  f16: {
    bytes: 2,
    set: (v, at, x) => v.setUint16(at, toF16Bits(x), true),
    get: (v, at) => fromF16Bits(v.getUint16(at, true)),
  },
  bf16: {
    bytes: 2,
    set: (v, at, x) => v.setUint16(at, toBf16Bits(x), true),
    get: (v, at) => fromBf16Bits(v.getUint16(at, true)),
  },
  i32: { bytes: 4, set: (v, at, x) => v.setInt32(at, x, true), get: (v, at) => v.getInt32(at, true) },
  u32: { bytes: 4, set: (v, at, x) => v.setUint32(at, x, true), get: (v, at) => v.getUint32(at, true) },
  f32: { bytes: 4, set: (v, at, x) => v.setFloat32(at, x, true), get: (v, at) => v.getFloat32(at, true) },
  i64: { bytes: 8, set: (v, at, x) => v.setBigInt64(at, BigInt(x), true), get: (v, at) => v.getBigInt64(at, true) },
  u64: { bytes: 8, set: (v, at, x) => v.setBigUint64(at, BigInt(x), true), get: (v, at) => v.getBigUint64(at, true) },
  f64: { bytes: 8, set: (v, at, x) => v.setFloat64(at, x, true), get: (v, at) => v.getFloat64(at, true) },
};

interface Buffer {
  readonly spec: string;
  readonly kind: Kind;
  readonly count: number;
  readonly address: number;
}

/** Bytes of a buffer by what follows the '='. */
function fill(kind: Kind, count: number, how: string, rnd: () => number): Uint8Array {
  const out = new Uint8Array(kind.bytes * count);
  const view = new DataView(out.buffer);
  if (how.startsWith('@')) out.set(readFileSync(how.slice(1)).subarray(0, out.length));
  else if (how === 'random') for (let k = 0; k < count; k++) kind.set(view, k * kind.bytes, rnd() * 2 - 1);
  else if (how === 'iota') for (let k = 0; k < count; k++) kind.set(view, k * kind.bytes, k);
  else if (how)
    how
      .split(',')
      .slice(0, count)
      .forEach((x, k) => kind.set(view, k * kind.bytes, Number(x)));
  return out;
}

function packArguments(gpu: EmulatedGpu, text: string, seed: number): { bytes: Uint8Array; buffers: Buffer[] } {
  const view = new DataView(new ArrayBuffer(4096));
  const buffers: Buffer[] = [];
  const rnd = random(seed);
  let at = 0;
  for (const spec of text.split(/\s+/).filter(Boolean)) {
    const buffer = /^(\w+)\[(\d+)\](?:=(.*))?$/.exec(spec);
    const value = /^(\w+):(.+)$/.exec(spec);
    const kind = KINDS[(buffer ?? value)?.[1] ?? ''];
    if (!kind)
      throw new ArgumentError(
        `emulate: argument ${JSON.stringify(spec)} is neither TYPE:VALUE nor TYPE[COUNT]; types are ` +
          `${Object.keys(KINDS).join(', ')}`,
      );
    const bytes = buffer ? 8 : kind.bytes;
    at = Math.ceil(at / bytes) * bytes;
    if (buffer) {
      const data = fill(kind, Number(buffer[2]), buffer[3] ?? '', rnd);
      const address = gpu.memory.alloc(data.length);
      gpu.memory.range(address, data.length, 'emulate').set(data);
      buffers.push({ spec, kind, count: Number(buffer[2]), address });
      view.setBigUint64(at, BigInt(address), true);
    } else kind.set(view, at, Number(value![2]));
    at += bytes;
  }
  return { bytes: new Uint8Array(view.buffer, 0, at), buffers };
}

const triple = (text: string | undefined, name: string): [number, number, number] => {
  const list = (text ?? '1').split(',').map(Number);
  if (list.length > 3 || list.some((n) => !Number.isInteger(n) || n < 1))
    throw new ArgumentError(`emulate: --${name} ${text}: one to three whole numbers from 1 are wanted`);
  return [list[0], list[1] ?? 1, list[2] ?? 1];
};

/** The code object in a file, or one made from a source. */
function codeOf(file: string, target: string): Uint8Array {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (e) {
    throw new ArgumentError(`emulate: ${file} cannot be read: ${(e as Error).message}`);
  }
  if (!/\.(hip|cu|cpp|cc|c)$/.test(file)) return bytes;
  process.env.WICK_KERNEL_LINES = '1'; // reports quote the source
  const compiler = openHiprtc();
  if (typeof compiler === 'string')
    throw new ArgumentError(`emulate: ${file} is source, and there is no compiler for it: ${compiler}`);
  return compiler.compile({ source: Buffer.from(bytes).toString(), name: basename(file), arch: target, defines: {} });
}

function listKernels(code: CodeObject, file: string): void {
  const rows = [...code.kernels.values()].map((k) => [
    k.name,
    k.wave,
    k.vgprs,
    k.ldsBytes,
    k.privateBytes,
    k.args
      .filter((a) => !a.kind.startsWith('hidden_'))
      .map((a) => `${a.name || a.kind}@${a.offset}:${a.size}`)
      .join(' '),
  ]);
  const heads = ['kernel', 'wave', 'vgprs', 'lds', 'private', 'parameters (offset:size)'];
  console.log(`${file}: ${code.target}, code object version ${code.codeVersion}\n${table(heads, rows)}`);
}

/** The first numbers of each buffer, what the launch cost, and what checks found. */
function tell(gpu: EmulatedGpu, buffers: readonly Buffer[], report: LaunchReport, show: number): void {
  for (const b of buffers) {
    const raw = new Uint8Array(gpu.memory.range(b.address, b.count * b.kind.bytes, 'emulate'));
    const view = new DataView(raw.buffer);
    const shown = Array.from({ length: Math.min(show, b.count) }, (_, k) => b.kind.get(view, k * b.kind.bytes));
    console.log(`${b.spec}: ${shown.join(' ')}${b.count > show ? ' ...' : ''}`);
  }
  console.log(
    `${report.groups} groups, ${report.waves} wave instructions, ${report.lanes} lane instructions, ${report.read} ` +
      `bytes read, ${report.written} written, ${report.milliseconds.toFixed(1)} ms`,
  );
  for (const f of report.findings) console.log(describe(f));
}

export function run(argv: readonly string[]): number {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      args: { type: 'string' },
      grid: { type: 'string' },
      block: { type: 'string' },
      shared: { type: 'string' },
      show: { type: 'string' },
      target: { type: 'string' },
      check: { type: 'boolean' },
      seed: { type: 'string' },
      threads: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  const [file, name] = positionals;
  if (values.help || !file) {
    console.log(HELP);
    return values.help ? 0 : 2;
  }
  const bytes = codeOf(file, values.target ?? 'gfx1030');
  const code = readCodeObject(bytes, file);
  if (!name) {
    listKernels(code, file);
    return 0;
  }
  const whole = (name: 'seed' | 'threads' | 'shared' | 'show', least = 0): number | undefined =>
    wholeOf('emulate', name, values[name], least);
  const seed = whole('seed') ?? 1;
  const threads = whole('threads', 1);
  const gpu = new EmulatedGpu(code.target, {
    seed,
    checked: values.check ?? false,
    ...(threads && { threads }),
  });
  try {
    const module = gpu.load(bytes, basename(file));
    const { bytes: packed, buffers } = packArguments(gpu, values.args ?? '', seed);
    const report = gpu.launch(
      module,
      name,
      triple(values.grid, 'grid'),
      triple(values.block, 'block'),
      packed,
      whole('shared') ?? 0,
    );
    tell(gpu, buffers, report, whole('show') ?? 8);
    return report.findings.length ? 1 : 0;
  } finally {
    gpu.close();
  }
}
