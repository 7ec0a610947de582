// Compiles every kernel with the compilers at hand and holds the result against our launch code and Candle's list of symbols.
// Usage: npm run kernels:check -- [--arch gfx906,gfx1030] [--module unary,cast] [--sample 8] [--jobs 2] [--json FILE]
// Each compiler runs in child processes: one that aborts costs its part only. Compiled code is kept in the kernel cache.
import { spawnSync, fork, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DTYPES, FLOATS } from '../src/base/dtype.js';
import { waveSize } from '../src/driver/compiler.js';
import { readCodeObject } from '../src/emulator/code-object.js';
import { compile, compilerFor } from '../src/kernels/compile.js';
import { castChain, type Chain, copyChain, elementwiseUnit, rowChain } from '../src/kernels/elementwise.js';
import type { Entry } from '../src/kernels/entries.js';
import { compareWithCandle } from '../src/kernels/manifest.js';
import { kernelModule, moduleNames, type Unit, unitOf } from '../src/kernels/source.js';
import { elementwiseRows } from '../src/ops/table.js';
import { hiprtc7Command } from './fetch-rocm.js';

interface Job {
  readonly arch: string;
  readonly module: string;
  /** Symbols of the module; chains by number for the fast elementwise kernels. */
  readonly part: readonly string[];
}
interface Found {
  readonly symbol: string;
  readonly problems: readonly string[];
  readonly scratch: number;
}
type Answer = { readonly job: Job; readonly found: readonly Found[] } | { readonly job: Job; readonly error: string };

const LDS_LIMIT = 64 << 10;
const PART = 16;
const SECONDS = 400;

/** Every row on one of its dtypes, every dtype on two rows, casts and copies: each template is met with each type. */
function chains(): Chain[] {
  const pick = elementwiseRows.map((r, i) => rowChain(r, r.dtypes[i % r.dtypes.length]));
  const wide = elementwiseRows.filter((r) => r.name === 'add' || r.name === 'affine').flatMap((r) => r.dtypes.map((d) => rowChain(r, d)));
  const casts = FLOATS.flatMap((from) => DTYPES.filter((to) => to !== from).map((to) => castChain(from, to)));
  return [...new Map([...pick, ...wide, ...casts, ...[1, 2, 4, 8].map(copyChain)].map((c) => [c.name, c])).values()];
}

function unitFor(job: Job): Unit {
  if (job.module !== 'elementwise') return unitOf(job.module, job.part);
  const wanted = new Set(job.part);
  return elementwiseUnit(chains().filter((c) => wanted.has(c.name)));
}

/** What the code object's metadata says of a kernel against what we pack. */
function checkAmd(code: Uint8Array, unit: Unit, arch: string): Found[] {
  const { kernels } = readCodeObject(code, unit.name);
  return unit.entries.map((e): Found => {
    const k = kernels.get(e.symbol);
    if (!k) return { symbol: e.symbol, problems: ['the code object lacks it'], scratch: 0 };
    const problems: string[] = [];
    const args = k.args.filter((a) => !a.kind.startsWith('hidden'));
    if (args.length !== e.params.length) problems.push(`${args.length} arguments in the code object, ${e.params.length} in the source`);
    e.params.forEach((p, i) => {
      const a = args[i];
      if (a && (a.offset !== p.offset || a.size !== p.size)) problems.push(`argument ${p.name}: ${a.size} bytes at ${a.offset}, packed as ${p.size} at ${p.offset}`);
    });
    if (k.ldsBytes > LDS_LIMIT) problems.push(`${k.ldsBytes} bytes of shared memory; ${LDS_LIMIT} exist`);
    if (k.wave !== waveSize(arch)) problems.push(`compiled for waves of ${k.wave}, WICK_WAVE is ${waveSize(arch)}`);
    if (k.maxThreads < e.threads) problems.push(`takes blocks of ${k.maxThreads} threads, KERNEL says ${e.threads}`);
    return { symbol: e.symbol, problems, scratch: k.privateBytes };
  });
}

/** The same from PTX: entries and their .param declarations. */
function checkPtx(ptx: string, unit: Unit): Found[] {
  const entries = new Map([...ptx.matchAll(/\.entry\s+(\w+)\(([^)]*)\)/g)].map((m) => [m[1], m[2]]));
  const bytes: Readonly<Record<string, number>> = { b8: 1, u8: 1, b16: 2, u16: 2, s16: 2, b32: 4, u32: 4, s32: 4, f32: 4, b64: 8, u64: 8, s64: 8, f64: 8 };
  return unit.entries.map((e: Entry): Found => {
    const list = entries.get(e.symbol);
    if (list === undefined) return { symbol: e.symbol, problems: ['the PTX lacks it'], scratch: 0 };
    const sizes = [...list.matchAll(/\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr[\w\s.]*?)?\w+(?:\[(\d+)\])?/g)].map((m) => bytes[m[1]] * Number(m[2] ?? 1));
    const want = e.params.map((p) => p.size);
    return { symbol: e.symbol, problems: sizes.join() === want.join() ? [] : [`parameters of ${sizes.join(', ')} bytes, packed as ${want.join(', ')}`], scratch: 0 };
  });
}

/** nvcc where NVRTC is not installed: the same source as PTX. */
function nvcc(unit: Unit, arch: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'wick-nvcc-'));
  try {
    writeFileSync(join(folder, 'k.cu'), unit.source);
    const r = spawnSync('nvcc', ['-std=c++17', '-fmad=false', `-arch=${arch}`, '-ptx', '-o', join(folder, 'k.ptx'), join(folder, 'k.cu')], { encoding: 'utf8' });
    if (r.status !== 0) throw new Error(`nvcc: ${(r.stderr || String(r.error)).slice(0, 2000)}`);
    return readFileSync(join(folder, 'k.ptx'), 'utf8');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function runJob(job: Job): Found[] {
  const unit = unitFor(job);
  if (!job.arch.startsWith('gfx')) {
    const nvrtc = typeof compilerFor(job.arch) !== 'string';
    return checkPtx(nvrtc ? Buffer.from(compile(unit.source, `${unit.name}.hip`, { arch: job.arch })).toString() : nvcc(unit, job.arch), unit);
  }
  return checkAmd(compile(unit.source, `${unit.name}.hip`, { arch: job.arch }), unit, job.arch);
}

// ---- parent ----

/** How Node is run for a target: as it is, or under hipRTC 7's own C library. */
function runner(arch: string): { command: string; args: string[] } | string {
  if (!arch.startsWith('gfx')) {
    if (typeof compilerFor(arch) !== 'string' || spawnSync('nvcc', ['--version']).status === 0) return { command: process.execPath, args: [] };
    return 'neither NVRTC nor nvcc was found';
  }
  const own = compilerFor(arch);
  if (typeof own !== 'string' && own.accepts(arch) === true) return { command: process.execPath, args: [] };
  const seven = hiprtc7Command();
  if (typeof seven !== 'string') return { command: seven[0], args: seven.slice(1) };
  return typeof own === 'string' ? own : `${own.accepts(arch)}; ${seven}`;
}

function ask(job: Job, how: { command: string; args: string[] }): Promise<Answer> {
  return new Promise((resolve) => {
    const child: ChildProcess = fork(fileURLToPath(import.meta.url), ['--child'], {
      execPath: how.command, execArgv: how.args, silent: true, env: { ...process.env, AMD_COMGR_CACHE: '0' },
    });
    let log = '';
    let answer: Answer | undefined;
    const timer = setTimeout(() => child.kill('SIGKILL'), SECONDS * 1000);
    child.stderr?.on('data', (d: Buffer) => (log += d.toString()));
    child.on('message', (m) => (answer = m as Answer));
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      resolve(answer ?? { job, error: signal === 'SIGKILL' ? `took more than ${SECONDS} s` : `the compiler's process ended with ${signal ?? code}: ${log.slice(-500)}` });
    });
    child.send(job);
  });
}

async function main(argv: readonly string[]): Promise<number> {
  const option = (name: string): string | undefined => {
    const i = argv.indexOf(`--${name}`);
    return i < 0 ? undefined : argv[i + 1];
  };
  const targets = (option('arch') ?? 'gfx906,gfx908,gfx90a,gfx1030,gfx942,gfx1100,gfx1201,compute_80').split(',');
  const modules = (option('module') ?? moduleNames().join()).split(',');
  const sample = Number(option('sample') ?? 0);

  const jobs: Job[] = [];
  const how = new Map<string, { command: string; args: string[] }>();
  for (const arch of targets) {
    const r = runner(arch);
    if (typeof r === 'string') {
      console.log(`skipped ${arch}: ${r}`);
      continue;
    }
    how.set(arch, r);
    for (const module of modules) {
      let parts = module === 'elementwise' ? chains().map((c) => c.name) : [...kernelModule(module).entries.keys()];
      if (sample > 0) parts = parts.filter((_, i) => i % Math.max(1, Math.floor(parts.length / sample)) === 0);
      for (let i = 0; i < parts.length; i += PART) jobs.push({ arch, module, part: parts.slice(i, i + PART) });
    }
  }

  const problems: string[] = [];
  const scratch: string[] = [];
  const counts = new Map<string, number>();
  const queue = [...jobs];
  const left = new Map<string, number>();
  for (const j of jobs) left.set(`${j.module} ${j.arch}`, (left.get(`${j.module} ${j.arch}`) ?? 0) + 1);
  /** A line as soon as a module is through for a target: the whole takes minutes. */
  const finish = (key: string): void => {
    left.set(key, left.get(key)! - 1);
    if (left.get(key) === 0) console.log(`  ${key}: ${counts.get(key) ?? 0} kernels`);
  };
  const worker = async (): Promise<void> => {
    for (let job = queue.shift(); job; job = queue.shift()) {
      const a = await ask(job, how.get(job.arch)!);
      const key = `${job.module} ${job.arch}`;
      if ('error' in a) {
        problems.push(`${job.arch} ${job.module} (${job.part[0]} ... ${job.part.at(-1)}): ${a.error}`);
        finish(key);
        continue;
      }
      for (const f of a.found) {
        for (const p of f.problems) problems.push(`${job.arch} ${job.module} ${f.symbol}: ${p}`);
        if (f.scratch > 0) scratch.push(`${job.arch} ${f.symbol}: ${f.scratch} bytes`);
        if (f.problems.length === 0) counts.set(key, (counts.get(key) ?? 0) + 1);
      }
      finish(key);
    }
  };
  await Promise.all(Array.from({ length: Number(option('jobs') ?? 2) }, worker));

  console.log('kernels compiled and checked, by module and target');
  for (const module of modules) console.log(`  ${module.padEnd(20)}${[...how.keys()].map((a) => `${a} ${counts.get(`${module} ${a}`) ?? 0}`).join('  ')}`);
  const candle = compareWithCandle();
  console.log("Candle's symbols: present of total, missing, different");
  for (const c of candle) console.log(`  ${c.file.padEnd(20)}${c.present} of ${c.total}, ${c.missing.length} missing, ${c.different.length} different`);
  for (const d of candle.flatMap((c) => c.different)) console.log(`  different: ${d}`);
  console.log(`kernels with scratch memory (spills or local arrays): ${scratch.length}`);
  for (const s of scratch.slice(0, 20)) console.log(`  ${s}`);
  console.log(problems.length === 0 ? 'no problems' : `${problems.length} problems`);
  for (const p of problems.slice(0, 50)) console.log(`  ${p}`);
  const file = option('json');
  if (file) writeFileSync(file, JSON.stringify({ targets: [...how.keys()], counts: Object.fromEntries(counts), candle, scratch, problems }, null, 1));
  return problems.length === 0 ? 0 : 1;
}

if (process.argv.includes('--child')) {
  process.on('message', (job: Job) => {
    let answer: Answer;
    try {
      answer = { job, found: runJob(job) };
    } catch (e) {
      answer = { job, error: (e as Error).message };
    }
    process.send?.(answer, undefined, undefined, () => process.exit(0));
  });
} else if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
