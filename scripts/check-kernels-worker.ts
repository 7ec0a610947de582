// The child process of check-kernels: compiles kernels for a target and holds the code against what the launch code
// packs.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waveSize } from '../src/driver/compiler.js';
import { type CodeObject, readCodeObject } from '../src/emulator/code-object.js';
import { jobsFor, type Job } from '../src/backends/gpu/aot.js';
import { compile, compilerFor } from '../src/kernels/compile.js';
import { codeTogether } from '../src/kernels/joined.js';
import { joinUnits, type Unit } from '../src/kernels/source.js';

export interface Part {
  readonly arch: string;
  readonly module: string;
  readonly symbols: readonly string[];
}
export interface Found {
  readonly symbol: string;
  readonly problems: readonly string[];
  /** Bytes of private memory a thread, registers kept there, bytes of shared memory, vector registers. */
  readonly scratch: number;
  readonly spilled: number;
  readonly lds: number;
  readonly vgprs: number;
}
export type Answer = { readonly compiler: string; readonly found: readonly Found[] } | { readonly error: string };

const LDS_LIMIT = 64 << 10;
/** The code object looked at last: it serves many units. */
let parsed: { readonly code: Uint8Array; readonly kernels: CodeObject['kernels'] } | undefined;
const NOTHING = { scratch: 0, spilled: 0, lds: 0, vgprs: 0 };

/** What the code object's metadata says of a kernel against what we pack. */
function checkAmd(code: Uint8Array, unit: Unit, arch: string): Found[] {
  const { kernels } = (parsed =
    parsed?.code === code ? parsed : { code, kernels: readCodeObject(code, unit.name).kernels });
  return unit.entries.map((e): Found => {
    const k = kernels.get(e.symbol);
    if (!k) return { symbol: e.symbol, problems: ['the code object lacks it'], ...NOTHING };
    const problems: string[] = [];
    const args = k.args.filter((a) => !a.kind.startsWith('hidden'));
    if (args.length !== e.params.length)
      problems.push(`${args.length} arguments in the code object, ${e.params.length} in the source`);
    e.params.forEach((p, i) => {
      const a = args[i];
      if (a && (a.offset !== p.offset || a.size !== p.size))
        problems.push(`argument ${p.name}: ${a.size} bytes at ${a.offset}, packed as ${p.size} at ${p.offset}`);
    });
    if (k.ldsBytes > LDS_LIMIT) problems.push(`${k.ldsBytes} bytes of shared memory; ${LDS_LIMIT} exist`);
    if (k.wave !== waveSize(arch)) problems.push(`compiled for waves of ${k.wave}, WICK_WAVE is ${waveSize(arch)}`);
    const threads = e.byWaves ? (e.threads / 64) * k.wave : e.threads;
    if (k.maxThreads < threads) problems.push(`takes blocks of ${k.maxThreads} threads, KERNEL says ${threads}`);
    return { symbol: e.symbol, problems, scratch: k.privateBytes, spilled: k.spilled, lds: k.ldsBytes, vgprs: k.vgprs };
  });
}

const PTX_BYTES: Readonly<Record<string, number>> = {
  b8: 1,
  u8: 1,
  b16: 2,
  u16: 2,
  s16: 2,
  b32: 4,
  u32: 4,
  s32: 4,
  f32: 4,
  b64: 8,
  u64: 8,
  s64: 8,
  f64: 8,
};
/** The same from PTX: entries and their .param declarations. */
function checkPtx(ptx: string, unit: Unit): Found[] {
  const entries = new Map([...ptx.matchAll(/\.entry\s+(\w+)\(([^)]*)\)/g)].map((m) => [m[1], m[2]]));
  return unit.entries.map((e): Found => {
    const list = entries.get(e.symbol);
    if (list === undefined) return { symbol: e.symbol, problems: ['the PTX lacks it'], ...NOTHING };
    const sizes = [
      ...list.matchAll(/\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr[\w\s.]*?)?\w+(?:\[(\d+)\])?/g),
    ].map((m) => PTX_BYTES[m[1]] * Number(m[2] ?? 1));
    const want = e.params.map((p) => p.size);
    return {
      symbol: e.symbol,
      problems:
        sizes.join() === want.join() ? [] : [`parameters of ${sizes.join(', ')} bytes, packed as ${want.join(', ')}`],
      ...NOTHING,
    };
  });
}

/** nvcc where NVRTC is not installed: the same source as PTX. */
function nvcc(unit: Unit, arch: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'wick-nvcc-'));
  try {
    writeFileSync(join(folder, 'k.cu'), unit.source);
    const r = spawnSync(
      'nvcc',
      ['-std=c++17', '-fmad=false', `-arch=${arch}`, '-ptx', '-o', join(folder, 'k.ptx'), join(folder, 'k.cu')],
      { encoding: 'utf8' },
    );
    if (r.status !== 0) throw new Error(`nvcc: ${(r.stderr || String(r.error)).slice(0, 2000)}`);
    return readFileSync(join(folder, 'k.ptx'), 'utf8');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const known = new Map<string, ReadonlyMap<string, Job>>();
function jobs(arch: string): ReadonlyMap<string, Job> {
  const list = known.get(arch) ?? new Map(jobsFor(arch).map((j) => [j.symbol, j]));
  known.set(arch, list);
  return list;
}

function check({ arch, symbols }: Part): Answer {
  const units = symbols.map((s) => jobs(arch).get(s)!.unit());
  const compiler = compilerFor(arch);
  const named = typeof compiler === 'string' ? compiler : `${compiler.name} ${compiler.version}`;
  // Through the cache that emulated GPUs use: what either compiled serves the other.
  if (arch.startsWith('gfx'))
    return {
      compiler: named,
      found: codeTogether(units, arch).flatMap((made) => made.units.flatMap((u) => checkAmd(made.code, u, arch))),
    };
  const [unit] = joinUnits(units, symbols.length);
  if (typeof compiler === 'string') return { compiler: 'nvcc', found: checkPtx(nvcc(unit, arch), unit) };
  return {
    compiler: named,
    found: checkPtx(Buffer.from(compile(unit.source, `${unit.name}.hip`, { arch })).toString(), unit),
  };
}

process.on('message', (part: Part) => {
  let answer: Answer;
  try {
    answer = check(part);
  } catch (e) {
    answer = { error: (e as Error).message };
  }
  process.send?.(answer);
});
process.on('disconnect', () => process.exit(0));
