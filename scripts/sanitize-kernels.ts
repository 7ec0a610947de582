// The structured kernels on the simulation under sanitizers: every op runs under the address and undefined-behaviour
// sanitizers, in both thread orders and with two kinds of garbage, each tensor in memory of exactly its size; the
// launches are kept and run again under the thread sanitizer.
// Usage: node dist/scripts/sanitize-kernels.js [--ops softmax,argsort] [--waves 32,64] [--per 2] [--jobs 2]
// [--no-thread]
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import '../src/index.js';
import { GpuMemory, Pool } from '../src/backends/gpu/allocator.js';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { IndexError, UnsupportedError } from '../src/base/errors.js';
import { sizeOf } from '../src/base/shape.js';
import type { Address, Device as DriverDevice } from '../src/driver/driver.js';
import { nativeView } from '../src/driver/ffi.js';
import { buildHostAsync } from '../src/driver/host-cc.js';
import { simOptions } from '../src/driver/sim.js';
import { hostSource } from '../src/kernels/host-unit.js';
import { simulationDir } from '../src/base/paths.js';
import { findSymbol, unitOf } from '../src/backends/gpu/modules.js';
import { opList } from '../src/ops/table.js';
import { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import { buildInputs, type Case, casesOf, runCase } from '../src/testing/cases.js';

const PLAIN = new Set(['elementwise', 'view', 'composite', 'cast', 'copy', 'fill', 'random']);
const structured = opList.filter((r) => !PLAIN.has(r.family)).map((r) => r.name);

/** The thread sanitizer has room for so many threads of a block, and patience for so many in all. */
const THREADS_ONCE = 256;
const THREADS_ALL = 4096;

/** Rows of so many elements take blocks of several waves that the thread sanitizer can still follow. */
const ROW = 900;
const shortened = (c: Case): Case => ({
  ...c,
  sample: {
    ...c.sample,
    inputs: c.sample.inputs.map((i) => ({ ...i, shape: i.shape.map((n) => Math.min(n, ROW)) })),
  } as Case['sample'],
});

/** Inputs that a sample spells out, or places in their rows, belong together at the sizes they have. */
const spelledOut = ({ sample }: Case): boolean =>
  sample.inputs.some((i) => i.values !== undefined) || 'rank' in ((sample as { params?: object }).params ?? {});

/** Cases of each op: its largest sample, one with shorter rows, then others in other layouts, dtypes in turn. */
function casesFor(ops: readonly string[], per: number): Case[] {
  const elements = (c: Case): number => c.sample.inputs.reduce((n, i) => n + sizeOf(i.shape), 0);
  return ops.flatMap((op, turn) => {
    const all = [...casesOf(opList.filter((r) => r.name === op))];
    if (all.length === 0) throw new Error(`no op is called ${op}`);
    const dtypes = [...new Set(all.map((c) => c.dtype))];
    return Array.from({ length: per }, (_, k) => {
      const of = all
        .filter((c) => c.dtype === dtypes[turn % dtypes.length] && (c.layout === 'contiguous') === k < 2)
        .sort((a, b) => elements(b) - elements(a));
      const long = k === 1 && of.find((c) => !spelledOut(c));
      return long ? shortened(long) : of[k % of.length];
    }).filter((c) => c !== undefined);
  });
}

// ---- a child, which the address sanitizer may end at any time ----

/** A launch with the memory it works on, as native/simulation/main.cpp reads it. */
function encodeLaunch(
  symbol: string,
  geometry: readonly number[],
  args: Uint8Array,
  blocks: ReadonlyMap<Address, number>,
): Buffer {
  const u32 = (...values: number[]): Buffer => Buffer.from(Uint32Array.from(values).buffer);
  const u64 = (value: number): Buffer => Buffer.from(BigUint64Array.of(BigInt(value)).buffer);
  const padded = Buffer.alloc(Math.ceil(args.length / 8) * 8);
  padded.set(args);
  const used: [Address, number][] = [];
  const places: Buffer[] = [];
  for (let word = 0; word < padded.length / 8; word++) {
    const value = Number(padded.readBigUInt64LE(word * 8));
    const block = [...blocks].find(([at, bytes]) => value >= at && value < at + bytes);
    if (!block) continue;
    let index = used.findIndex(([at]) => at === block[0]);
    if (index < 0) index = used.push(block) - 1;
    places.push(u32(word, index), u64(value - block[0]));
  }
  return Buffer.concat([
    u32(symbol.length),
    Buffer.from(symbol),
    u32(...geometry),
    u32(padded.length),
    padded,
    u32(used.length),
    ...used.flatMap(([at, bytes]) => [u64(bytes), Buffer.from(nativeView(at, bytes))]),
    u32(places.length / 2),
    ...places,
  ]);
}

/**
 * Exact blocks instead of the caching allocator's, and of every kernel of a module the largest launch the thread
 * sanitizer can take kept in `folder`.
 */
function instrument(device: Device, folder: string, launched: Set<string>): () => void {
  const { context } = device.backend as GpuBackend;
  const raw = context.bare as DriverDevice & { launch: DriverDevice['launch'] };
  const blocks = new Map<Address, number>();
  const pending: Address[] = [];
  const pool = new Pool();
  context.allocator.alloc = (bytes) => {
    const address = raw.alloc(Math.max(bytes, 1));
    blocks.set(address, Math.max(bytes, 1));
    return new GpuMemory(address, bytes, bytes, pool);
  };
  context.allocator.free = (m) => void pending.push(m.address);
  const names = new Map<number, string>();
  const find = raw.getFunction.bind(raw);
  raw.getFunction = (module, symbol) => {
    const fn = find(module, symbol);
    names.set(fn, symbol);
    return fn;
  };
  const most = new Map<string, number>();
  const launch = raw.launch.bind(raw);
  raw.launch = (fn, grid, block, shared, stream, args) => {
    const symbol = names.get(fn) ?? '';
    const inBlock = sizeOf(block);
    const threads = sizeOf(grid) * inBlock;
    const kept = threads <= THREADS_ALL && inBlock <= THREADS_ONCE && threads > (most.get(symbol) ?? 0);
    const module = kept ? findSymbol(symbol)?.module : undefined;
    if (kept) most.set(symbol, threads);
    launched.add(symbol);
    // Before the launch: it may change what it reads.
    if (module)
      writeFileSync(
        join(folder, `${module}.${symbol}`),
        encodeLaunch(symbol, [...grid, ...block, shared], nativeView(args.address, args.size), blocks),
      );
    launch(fn, grid, block, shared, stream, args);
  };
  return () => {
    for (const address of pending.splice(0)) {
      blocks.delete(address);
      raw.free(address);
    }
  };
}

function child(wave: string, folder: string, ops: readonly string[], per: number, from: number): void {
  const device = Device.get(`sim:${wave}`);
  const { functions } = (device.backend as GpuBackend).context;
  (functions as { grouped: boolean }).grouped = false; // one kernel at a time: sanitized ones compile slowly
  const launched = new Set<string>();
  const release = instrument(device, folder, launched);
  for (const [i, c] of casesFor(ops, per).entries()) {
    if (i < from) continue;
    process.send?.({ i, name: c.name, launched: [...launched] });
    for (const [reverse, poison] of [
      [false, 0x7f],
      [true, 0xff],
    ] as const) {
      Object.assign(simOptions, { reverse, poison });
      try {
        scope(() => {
          // Inputs of the case list lie in larger memory; copies have exactly their size.
          const inputs = buildInputs(c, device).tensors.map((t) => (c.layout === 'contiguous' ? t.copy() : t));
          for (const t of runCase(c, inputs, device)) t.bytesSync();
        });
      } catch (e) {
        // Rows that were made shorter may lack a place that an index names.
        if (!(e instanceof UnsupportedError || e instanceof IndexError)) throw e;
      }
      release();
    }
  }
  process.send?.({ i: Number.MAX_SAFE_INTEGER, name: '', launched: [...launched] });
}

// ---- the parent ----

interface Progress {
  readonly i: number;
  readonly name: string;
  readonly launched: readonly string[];
}
interface Ran {
  readonly cases: number;
  readonly problems: string[];
}
const run = (
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  onMessage?: (m: Progress) => void,
): Promise<{ status: number | null; text: string }> =>
  new Promise((resolve) => {
    const p = spawn(command, args, {
      env,
      stdio: onMessage ? ['ignore', 'pipe', 'pipe', 'ipc'] : ['ignore', 'pipe', 'pipe'],
    });
    let text = '';
    p.stdout!.on('data', (d: Buffer) => (text += d.toString()));
    p.stderr!.on('data', (d: Buffer) => (text += d.toString()));
    if (onMessage) p.on('message', onMessage as never);
    p.on('close', (status) => resolve({ status, text }));
  });
/** The lines of a sanitizer's report that say what and where. */
const gist = (text: string): string =>
  text
    .split('\n')
    .filter((l) => /ERROR|runtime error|WARNING: Thread|#[0-4] |Error:|SUMMARY/.test(l))
    .slice(0, 9)
    .join('\n    ') || text.slice(-400);

async function underAddress(
  asan: string,
  wave: string,
  folder: string,
  ops: readonly string[],
  per: number,
  launched: Set<string>,
): Promise<Ran> {
  const total = casesFor(ops, per).length;
  const problems: string[] = [];
  for (let from = 0; from < total; ) {
    let last: Progress = { i: from, name: '', launched: [] };
    const env = { ...process.env, LD_PRELOAD: asan, ASAN_OPTIONS: 'detect_leaks=0', WICK_SIM_SANITIZE: 'address' };
    const { status, text } = await run(
      process.execPath,
      [fileURLToPath(import.meta.url), '--child', wave, folder, ops.join(), String(per), String(from)],
      env,
      (m) => (last = m),
    );
    for (const symbol of last.launched) launched.add(symbol);
    if (status === 0) break;
    problems.push(`${last.name} on sim:${wave}, address and undefined-behaviour sanitizers:\n    ${gist(text)}`);
    from = last.i + 1;
  }
  return { cases: total, problems };
}

/** All kept launches of a module in one program. */
async function underThread(module: string, wave: string, folder: string): Promise<Ran> {
  const files = readdirSync(folder)
    .filter((f) => f.startsWith(`${module}.`))
    .sort();
  const unit = unitOf(
    module,
    files.map((f) => f.slice(module.length + 1)),
  );
  const main = readFileSync(join(simulationDir, 'main.cpp'), 'utf8');
  const program = await buildHostAsync(module, `${hostSource(unit, Number(wave))}\n${main}`, 'thread', true);
  const record = join(folder, `${module}-all`);
  writeFileSync(
    record,
    Buffer.concat([
      Buffer.from(Uint32Array.of(files.length).buffer),
      ...files.map((f) => readFileSync(join(folder, f))),
    ]),
  );
  // The thread sanitizer's memory layout does not fit randomised addresses.
  const { status, text } = await run('setarch', ['-R', program, 'replay', record, '0', '0x7f'], {
    ...process.env,
    TSAN_OPTIONS: 'halt_on_error=1',
  });
  if (/unexpected memory mapping|CHECK failed/.test(text)) {
    console.log(
      `  ${module}: the thread sanitizer did not run: ${text.split('\n').find((l) => /unexpected|CHECK/.test(l))}`,
    );
    return { cases: 0, problems: [] };
  }
  return {
    cases: files.length,
    problems:
      status === 0
        ? []
        : [
            `${module} on sim:${wave}, thread sanitizer, after ${text
              .split('\n')
              .filter((l) => /^\w+$/.test(l))
              .at(-1)}:\n    ${gist(text)}`,
          ],
  };
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      ops: { type: 'string', default: structured.join() },
      waves: { type: 'string', default: '32,64' },
      per: { type: 'string', default: '2' },
      jobs: { type: 'string', default: String(Math.min(2, availableParallelism())) },
      'no-thread': { type: 'boolean', default: false },
    },
  });
  const asan = (await run(process.env.CXX ?? 'g++', ['-print-file-name=libasan.so'], process.env)).text.trim();
  if (!asan.startsWith('/')) {
    console.log('skipped: libasan is not installed beside the compiler');
    return 0;
  }
  const folder = mkdtempSync(join(tmpdir(), 'wick-sanitize-'));
  const ops = values.ops!.split(',');
  const jobs = Number(values.jobs);
  try {
    const problems: string[] = [];
    const inParallel = async <T>(items: readonly T[], each: (item: T) => Promise<Ran>): Promise<number> => {
      const queue = [...items];
      let cases = 0;
      await Promise.all(
        Array.from({ length: jobs }, async () => {
          for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
            const ran = await each(item);
            cases += ran.cases;
            problems.push(...ran.problems);
          }
        }),
      );
      return cases;
    };
    for (const wave of values.waves!.split(',')) {
      mkdirSync(join(folder, wave));
      const shares = Array.from({ length: jobs }, (_, j) => ops.filter((_op, i) => i % jobs === j)).filter(
        (s) => s.length > 0,
      );
      const symbols = new Set<string>();
      const cases = await inParallel(shares, (share) =>
        underAddress(asan, wave, join(folder, wave), share, Number(values.per), symbols),
      );
      const modules = [...new Set(readdirSync(join(folder, wave)).map((f) => f.slice(0, f.indexOf('.'))))];
      console.log(
        `sim:${wave}: ${cases} cases of ${ops.length} ops, ${symbols.size} kernels, forward and reverse, two ` +
          'kinds of garbage, under the address and undefined-behaviour sanitizers',
      );
      console.log(`  ${[...symbols].sort().join(' ')}`);
      if (values['no-thread'] || !existsSync('/usr/bin/setarch')) continue;
      const launches = await inParallel(modules, (m) => underThread(m, wave, join(folder, wave)));
      console.log(
        launches > 0
          ? `sim:${wave}: ${launches} launches under the thread sanitizer`
          : `sim:${wave}: the thread sanitizer does not run here`,
      );
    }
    for (const p of problems) console.log(p);
    console.log(`${problems.length} problems`);
    return problems.length === 0 ? 0 : 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const [, script, mode, wave, folder, ops, per, from] = process.argv;
if (mode === '--child') child(wave, folder, ops.split(','), Number(per), Number(from));
else if (basename(script) === 'sanitize-kernels.js') process.exitCode = await main();
