// What the emulator's tests share: hipRTC with options of their own, g++ for the host, random inputs, launches by
// argument list.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Calls } from '../src/driver/checked-calls.js';
import { compileProgram, fetchBytes } from '../src/driver/compiler.js';
import { koffi, nativeString, openLibrary } from '../src/driver/ffi.js';
import { LIBHIP } from '../src/driver/hip.js';
import { HIPRTC, HIPRTC_TABLE, openHiprtc } from '../src/driver/hiprtc.js';
import { EmulatedGpu, type GpuOptions, type LaunchReport } from '../src/emulator/gpu.js';
import { customUnit } from '../src/kernels/source.js';
import {
  BLOCK,
  GRID,
  HIP_PRELUDE,
  HOST_PRELUDE,
  INPUT_WORDS,
  OUTPUT_WORDS,
  SIM_PRELUDE,
  type GeneratedProgram,
} from './emulator-generator.js';
import { SimRunner } from './sim-support.js';

/** Why a target cannot be tested here, or undefined. */
export function missing(target: string): string | undefined {
  const rtc = openHiprtc();
  if (typeof rtc === 'string') return rtc;
  const ok = rtc.accepts(target);
  return ok === true ? undefined : ok;
}

/** A code object by the installed hipRTC, with the options given and no others. */
export function hiprtc(source: string, target: string, options: readonly string[]): Uint8Array {
  const own = openLibrary(HIPRTC);
  const library = typeof own === 'string' ? openLibrary(LIBHIP) : own;
  if (typeof library === 'string') throw new Error(library);
  const raw = library.bind(HIPRTC_TABLE);
  const calls = new Calls(HIPRTC_TABLE, raw, { errorName: (s) => nativeString(raw.errorString(s)), outOfMemory: [1] });
  return compileProgram({
    compiler: 'hipRTC',
    calls,
    request: { source, name: 'test.hip', arch: target, defines: {} },
    options: [`--offload-arch=${target}`, ...options],
    code: (p) =>
      fetchBytes(
        (c) => calls.call('codeSize', p, c),
        (t) => calls.call('code', p, t),
      ),
  });
}

/** Runs programs as host C++; the results by name. */
export function runOnHost(programs: readonly GeneratedProgram[], input: Uint32Array): Map<string, Uint32Array> {
  const dir = mkdtempSync(join(tmpdir(), 'wick-emulator-'));
  try {
    writeFileSync(join(dir, 'p.cpp'), HOST_PRELUDE + programs.map((p) => p.host).join('\n'));
    execFileSync(
      'g++',
      [
        '-O1',
        '-w',
        '-std=c++17',
        '-ffp-contract=off',
        '-fwrapv',
        '-fno-strict-aliasing',
        '-shared',
        '-fPIC',
        '-o',
        join(dir, 'p.so'),
        join(dir, 'p.cpp'),
      ],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    const lib = koffi.load(join(dir, 'p.so'));
    return new Map(
      programs.map((p) => {
        const out = new Uint32Array(GRID * BLOCK * OUTPUT_WORDS);
        (lib.func(`void ${p.name}(void *in, void *out)`) as unknown as (a: Uint32Array, b: Uint32Array) => void)(
          input,
          out,
        );
        return [p.name, out];
      }),
    );
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
export const hipSource = (programs: readonly GeneratedProgram[]): string =>
  HIP_PRELUDE + programs.map((p) => p.hip).join('\n');

/** Bits that reach every class of number: small integers, floats near 1, denormals, infinities, NaN, noise. */
export function randomInput(rnd: () => number): Uint32Array {
  const out = new Uint32Array(GRID * INPUT_WORDS);
  const f = new Float32Array(1);
  const u = new Uint32Array(f.buffer);
  for (let k = 0; k < out.length; k++) {
    const kind = rnd();
    f[0] = (rnd() - 0.5) * 2 ** Math.floor(rnd() * 40 - 20);
    if (kind < 0.5) out[k] = u[0];
    else if (kind < 0.7) out[k] = rnd() * 64;
    else if (kind < 0.95) out[k] = rnd() * 2 ** 32;
    else out[k] = [0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 1, 0x007fffff, 0xffffffff][Math.floor(rnd() * 8)];
  }
  return out;
}

/** A GPU with helpers for typed buffers; `launch` packs pointers and 32-bit numbers. */
export class Bench {
  readonly gpu: EmulatedGpu;
  constructor(target: string, options: GpuOptions = {}) {
    this.gpu = new EmulatedGpu(target, { threads: 1, ...options });
  }
  buffer(data: ArrayBufferView | number): number {
    const bytes = typeof data === 'number' ? data : data.byteLength;
    const at = this.gpu.memory.alloc(bytes);
    if (typeof data !== 'number')
      this.gpu.memory.range(at, bytes, 'test').set(new Uint8Array(data.buffer, data.byteOffset, bytes));
    return at;
  }
  read<A>(Type: new (b: ArrayBuffer) => A, at: number, bytes: number): A {
    return new Type(new Uint8Array(this.gpu.memory.range(at, bytes, 'test')).buffer);
  }
  /** Runs a kernel of a code object; arguments: { p: address }, { f: float }, { d: double }, or an integer. */
  launch(
    code: Uint8Array,
    kernel: string,
    grid: number,
    block: number,
    args: readonly (number | { p: number } | { f: number } | { d: number })[],
    shared = 0,
  ): LaunchReport {
    const view = new DataView(new ArrayBuffer(256));
    let at = 0;
    for (const a of args) {
      const size = typeof a === 'object' && !('f' in a) ? 8 : 4;
      at = Math.ceil(at / size) * size;
      if (typeof a === 'number') view.setInt32(at, a, true);
      else if ('p' in a) view.setBigUint64(at, BigInt(a.p), true);
      else if ('d' in a) view.setFloat64(at, a.d, true);
      else view.setFloat32(at, a.f, true);
      at += size;
    }
    const module = this.gpu.load(code, 'test');
    try {
      return this.gpu.launch(module, kernel, [grid, 1, 1], [block, 1, 1], new Uint8Array(view.buffer, 0, at), shared);
    } finally {
      this.gpu.unload(module);
    }
  }
}

/** All programs of a code object on the emulator; the results by name. */
export function runOnEmulator(
  code: Uint8Array,
  target: string,
  programs: readonly GeneratedProgram[],
  input: Uint32Array,
  options: GpuOptions = {},
): Map<string, Uint32Array | Error> {
  const bench = new Bench(target, options);
  const a = bench.buffer(input);
  const bytes = GRID * BLOCK * OUTPUT_WORDS * 4;
  const o = bench.buffer(bytes);
  const module = bench.gpu.load(code, 'generated');
  return new Map(
    programs.map((p): [string, Uint32Array | Error] => {
      bench.gpu.memory.range(o, bytes, 'test').fill(0);
      const args = new Uint8Array(new BigUint64Array([BigInt(a), BigInt(o)]).buffer);
      try {
        bench.gpu.launch(module, p.name, [GRID, 1, 1], [BLOCK, 1, 1], args);
        return [p.name, bench.read(Uint32Array, o, bytes)];
      } catch (e) {
        return [p.name, e as Error];
      }
    }),
  );
}

/** All programs on the simulated GPU; the results by name. */
export function runOnSim(
  wave: 32 | 64,
  programs: readonly GeneratedProgram[],
  input: Uint32Array,
): Map<string, Uint32Array> {
  const run = new SimRunner(wave);
  const unit = customUnit('generated', SIM_PRELUDE + programs.map((p) => p.hip).join('\n'));
  const from = run.buffer(input);
  const words = GRID * BLOCK * OUTPUT_WORDS;
  const results = programs.map((p): [string, Uint32Array] => {
    const to = run.buffer(new Uint32Array(words));
    run.launch(unit, p.name, GRID, BLOCK, [from, to]);
    return [p.name, new Uint32Array(run.read('u32', to, words) as Uint32Array)];
  });
  run.free();
  return new Map(results);
}
