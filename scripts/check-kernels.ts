// Compiles every kernel with the compilers at hand and holds the result against our launch code and Candle's list of
// symbols.
// Usage: npm run kernels:check -- [--arch gfx906,gfx1030] [--module unary,cast] [--sample] [--jobs 2]
//   [--json docs/kernels-amd.json]
// Compilers run in child processes: one that aborts costs its part only. Compiled code is kept in the kernel cache.
// --sample: every symbol of Candle's, and of our own each template on one of its dtypes; --json adds a record of each
// target to FILE.
// Targets whose compiler cannot be had are told and left out; private memory (spilled registers, arrays in memory) is a
// problem unless KNOWN has it.
import { spawnSync, fork, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { DTYPES, FLOATS } from '../src/base/dtype.js';
import { jobsFor } from '../src/backends/gpu/aot.js';
import { compilerFor } from '../src/kernels/compile.js';
import { castChain, copyChain, kernelDTypes, rowChain, symbolFor, variantsOf } from '../src/kernels/elementwise.js';
import { compareWithCandle, readManifest } from '../src/parity/manifest.js';
import { moduleNames } from '../src/backends/gpu/modules.js';
import { elementwiseRows } from '../src/ops/table.js';
import { compiledFrom, type CompiledModule, type CompiledTarget } from '../src/parity/compiled.js';
import type { Answer, Found, Part } from './check-kernels-worker.js';
import { hiprtc7Command } from './fetch-rocm.js';

const TOGETHER = 32;
const SECONDS = 1200;
const STREAMED = String.raw`^(weights_(experts_)?quick|decode_(product|gate))_`;
/** Kernels that are known to keep bytes of a thread in private memory: slower than they could be, and right. */
const KNOWN: readonly { arch: RegExp; symbol: RegExp; most: number; why: string }[] = [
  {
    arch: /^gfx906$/,
    symbol: new RegExp(STREAMED),
    most: 256,
    why: 'blocks of so many waves leave 128 registers a thread; newer targets have more, or accumulators for the rest',
  },
  {
    arch: /^gfx(942|1100|1201)$/,
    symbol: new RegExp(`${STREAMED}(q4_0|q5_0|q8_0|iq4_nl|mxfp4)_`),
    most: 40,
    why: "ROCm 7's compiler keeps one block of weights in memory where 5.2's takes it apart into registers",
  },
  {
    arch: /^gfx/,
    symbol: /_(erfinv|lgamma|polygamma)_/,
    most: 80,
    why: 'functions this long are not unrolled over a group of numbers, which then stay in memory',
  },
  {
    arch: /^gfx1030$/,
    symbol: /^layernorm_grads4_bf16$/,
    most: 48,
    why: 'six lists of 32 numbers a thread leave too few registers for what is being loaded',
  },
  {
    arch: /^gfx906$/,
    symbol: /^(reduce_rows_spread_|upsample_bilinear2d_)/,
    most: 64,
    why: 'planes and sums of doubles are more than its registers; newer targets have accumulators for the rest',
  },
  {
    arch: /^gfx906$/,
    symbol: /^fourier_\w+_f64$/,
    most: 128,
    why: 'a step of doubles is more than its registers; newer targets have accumulators for the rest',
  },
  {
    arch: /^gfx1100$/,
    symbol: /^attention_backward_matrix_key_b?f16_128$/,
    most: 16,
    why: 'looking for NaN in heads of 128 takes the registers that two numbers a thread would need',
  },
];
/**
 * Of the elementwise kernels, of which there are thousands: every row and cast once, two rows in all variants on all
 * dtypes, all copies. Each template is met with each type.
 */
function elementwiseSymbols(): Set<string> {
  const some = elementwiseRows.map((r, i) => {
    const c = rowChain(r, r.dtypes[i % r.dtypes.length]);
    return symbolFor(c, variantsOf(c)[i % variantsOf(c).length]);
  });
  const casts = FLOATS.flatMap((from) =>
    DTYPES.filter((to) => to !== from).map((to) => symbolFor(castChain(from, to), 'flat')),
  );
  const wide = elementwiseRows
    .filter((r) => r.name === 'add' || r.name === 'affine')
    .flatMap((r) => kernelDTypes(r).map((d) => rowChain(r, d)));
  return new Set([
    ...some,
    ...casts,
    ...[...wide, ...[1, 2, 4, 8].map(copyChain)].flatMap((c) => variantsOf(c).map((v) => symbolFor(c, v))),
  ]);
}

const DTYPE_IN_NAME = new RegExp(`_(${DTYPES.join('|')})(?=_|$)`, 'g');
/** Candle's symbols, and one dtype of each template of our own: the next template on its next dtype. */
function sampled(symbols: readonly string[], candle: ReadonlySet<string>): string[] {
  const templates = new Map<string, string[]>();
  for (const s of symbols) {
    const template = s.replace(DTYPE_IN_NAME, '_*');
    templates.set(template, [...(templates.get(template) ?? []), s]);
  }
  const chosen = new Set([...templates.values()].map((list, i) => list[i % list.length]));
  return symbols.filter((s) => candle.has(s) || chosen.has(s));
}

type Runner = { readonly command: string; readonly args: readonly string[] };
/** How Node is run for a target: as it is, or under hipRTC 7's own C library. */
function runner(arch: string): Runner | string {
  if (!arch.startsWith('gfx')) {
    if (typeof compilerFor(arch) !== 'string' || spawnSync('nvcc', ['--version']).status === 0)
      return { command: process.execPath, args: [] };
    return 'neither NVRTC nor nvcc was found';
  }
  const own = compilerFor(arch);
  if (typeof own !== 'string' && own.accepts(arch) === true) return { command: process.execPath, args: [] };
  const seven = hiprtc7Command();
  if (typeof seven !== 'string') return { command: seven[0], args: seven.slice(1) };
  return typeof own === 'string' ? own : `${own.accepts(arch)}; ${seven}`;
}

/** A child that serves parts of one kind of runner, started anew after a crash. */
class Worker {
  readonly #how: Runner;
  #child: ChildProcess | undefined;

  constructor(how: Runner) {
    this.#how = how;
  }

  ask(part: Part): Promise<Answer> {
    const child = (this.#child ??= fork(join(dirname(fileURLToPath(import.meta.url)), 'check-kernels-worker.js'), [], {
      execPath: this.#how.command,
      execArgv: [...this.#how.args],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: { ...process.env, AMD_COMGR_CACHE: '0' },
    }));
    return new Promise((resolve) => {
      let log = '';
      const note = (d: Buffer): void => void (log += d.toString());
      const timer = setTimeout(() => child.kill('SIGKILL'), SECONDS * 1000);
      const finish = (answer: Answer): void => {
        clearTimeout(timer);
        child.off('message', finish);
        child.off('exit', ended);
        child.stderr?.off('data', note);
        resolve(answer);
      };
      const ended = (code: number | null, signal: string | null): void => {
        this.#child = undefined;
        finish({
          error:
            signal === 'SIGKILL'
              ? `took more than ${SECONDS} s`
              : `the compiler's process ended with ${signal ?? code}: ${log.slice(-500)}`,
        });
      };
      child.on('message', finish);
      child.on('exit', ended);
      child.stderr?.on('data', note);
      child.send(part);
    });
  }

  close(): void {
    this.#child?.disconnect();
  }
}

class Target {
  readonly arch: string;
  readonly parts: Part[] = [];
  readonly record: Record<string, CompiledModule> = {};
  /** Why kernels keep private memory that are known to, and how many do. */
  readonly known = new Map<string, number>();
  seconds = 0;
  readonly #left = new Map<string, { parts: number; seconds: number }>();

  constructor(arch: string, modules: readonly string[], sample: boolean) {
    this.arch = arch;
    const candle = new Set(readManifest().map((c) => c.symbol));
    const elementwise = elementwiseSymbols();
    const jobs = jobsFor(arch).filter((j) => j.names[0] !== 'elementwise' || elementwise.has(j.symbol));
    for (const module of modules) {
      let symbols = jobs.filter((j) => j.names[0] === module).map((j) => j.symbol);
      const whole = symbols.length;
      if (sample) symbols = sampled(symbols, candle);
      if (symbols.length === 0) continue;
      this.record[module] = {
        date: new Date().toISOString().slice(0, 10),
        compiler: '',
        source: compiledFrom(module, 'amd'),
        kernels: symbols.length,
        ...(symbols.length < whole && { of: whole }),
        good: 0,
        lds: 0,
        vgprs: 0,
        problems: [],
      };
      for (let i = 0; i < symbols.length; i += TOGETHER)
        this.parts.push({ arch, module, symbols: symbols.slice(i, i + TOGETHER) });
      this.#left.set(module, { parts: Math.ceil(symbols.length / TOGETHER), seconds: 0 });
    }
  }

  take(part: Part, answer: Answer, seconds: number): void {
    const m = this.record[part.module];
    if ('error' in answer) m.problems.push(`${part.symbols[0]} ... ${part.symbols.at(-1)}: ${answer.error}`);
    else {
      m.compiler = answer.compiler;
      for (const f of answer.found) this.#one(m, f);
    }
    const left = this.#left.get(part.module)!;
    left.seconds += seconds;
    if (--left.parts === 0)
      console.log(`  ${part.module} ${this.arch}: ${m.good} of ${m.kernels}, ${left.seconds.toFixed(1)} s`);
  }

  #one(m: CompiledModule, f: Found): void {
    const problems = [...f.problems];
    const known = KNOWN.find((k) => k.arch.test(this.arch) && k.symbol.test(f.symbol) && f.scratch <= k.most);
    if (f.scratch > 0 && known) this.known.set(known.why, (this.known.get(known.why) ?? 0) + 1);
    else if (f.scratch > 0) problems.push(`${f.scratch} bytes of private memory, ${f.spilled} registers spilled`);
    m.problems.push(...problems.map((p) => `${f.symbol}: ${p}`));
    if (problems.length === 0) m.good++;
    m.lds = Math.max(m.lds, f.lds);
    m.vgprs = Math.max(m.vgprs, f.vgprs);
  }
}

function report(targets: readonly Target[], modules: readonly string[]): void {
  const width = 18;
  console.log(
    '\nkernels that pass, of those compiled (most shared memory; most vector ' +
      `registers)\n${''.padEnd(26)}${targets.map((t) => t.arch.padEnd(width + 6)).join('')}`,
  );
  for (const module of modules) {
    const cells = targets.map((t) => {
      const m = t.record[module];
      return (m ? `${m.good}/${m.kernels} (${m.lds}; ${m.vgprs})` : '-').padEnd(width + 6);
    });
    console.log(`${module.padEnd(26)}${cells.join('')}`);
  }
  const sum = (t: Target, of: (m: CompiledModule) => number): number =>
    Object.values(t.record).reduce((n, m) => n + of(m), 0);
  console.log(
    `${'all'.padEnd(26)}${targets.map((t) => `${sum(t, (m) => m.good)}/${sum(t, (m) => m.kernels)}`.padEnd(width + 6)).join('')}`,
  );
  for (const t of targets)
    for (const [why, n] of t.known) console.log(`${t.arch}: ${n} of these with private memory, as is known: ${why}`);
  for (const t of targets)
    console.log(
      `${t.arch}: ${[...new Set(Object.values(t.record).map((m) => m.compiler))].join(', ')}, ${t.seconds} s`,
    );
  const candle = compareWithCandle();
  console.log("\nCandle's symbols: present of total, missing, different");
  for (const c of candle)
    console.log(
      `  ${c.file.padEnd(20)}${c.present} of ${c.total}, ${c.missing.length} missing, ${c.different.length} different`,
    );
  for (const d of candle.flatMap((c) => c.different)) console.log(`  different: ${d}`);
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      arch: { type: 'string', default: 'gfx906,gfx908,gfx90a,gfx1030,gfx942,gfx1100,gfx1201,compute_80' },
      module: { type: 'string' },
      sample: { type: 'boolean', default: false },
      jobs: { type: 'string', default: String(availableParallelism()) },
      json: { type: 'string' },
    },
  });
  const modules = values.module?.split(',') ?? moduleNames();
  const targets: Target[] = [];
  const skipped: string[] = [];
  for (const arch of values.arch!.split(',')) {
    const how = runner(arch);
    if (typeof how === 'string') {
      console.log(`skipped ${arch}: ${how}`);
      skipped.push(arch);
      continue;
    }
    const target = new Target(arch, modules, values.sample!);
    targets.push(target);
    const began = performance.now();
    const queue = [...target.parts];
    await Promise.all(
      Array.from({ length: Number(values.jobs) }, async () => {
        const worker = new Worker(how);
        for (let part = queue.shift(); part; part = queue.shift()) {
          const asked = performance.now();
          target.take(part, await worker.ask(part), (performance.now() - asked) / 1000);
        }
        worker.close();
      }),
    );
    target.seconds = Math.round((performance.now() - began) / 1000);
    if (values.json !== undefined) {
      const kept = existsSync(values.json)
        ? (JSON.parse(readFileSync(values.json, 'utf8')) as Record<string, CompiledTarget>)
        : {};
      writeFileSync(
        values.json,
        `${JSON.stringify({ ...kept, [arch]: { ...kept[arch], ...target.record } }, null, 1)}\n`,
      );
    }
  }
  if (targets.length === 0) {
    console.log('nothing was compiled');
    return 0;
  }
  report(targets, modules);
  const problems = targets.flatMap((t) =>
    Object.entries(t.record).flatMap(([module, m]) => m.problems.map((p) => `${t.arch} ${module} ${p}`)),
  );
  const count = problems.length === 0 ? 'no problems' : `${problems.length} problems`;
  console.log(`${count}${skipped.length === 0 ? '' : `; ${skipped.join(', ')} skipped`}`);
  for (const p of problems.slice(0, 60)) console.log(`  ${p}`);
  return problems.length === 0 ? 0 : 1;
}

process.exitCode = await main();
