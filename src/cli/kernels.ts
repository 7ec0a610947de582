// `wick kernels`: compiles kernels ahead of use, and shows what the cache on disk holds.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ArgumentError } from '../base/errors.js';
import { buildKernels, type BuildSummary, type Selection, targetsOf } from '../backends/gpu/aot.js';
import { driverOrSentence, VENDOR_NAMES } from '../driver/drivers.js';
import { KernelCache } from '../kernels/cache.js';
import { kernelCache } from '../kernels/compile.js';
import { prebuiltDirs, prebuiltTargets } from '../kernels/prebuilt.js';
import { wholeOf } from './options.js';
import { bytes, table } from './table.js';

const HELP = `wick kernels build   compiles kernels ahead of use: their first use then costs nothing
  --arch A,B         targets: gfx1100 (AMD), sm_90 (NVIDIA machine code), compute_80 (PTX for that GPU and newer);
                     the GPUs found here unless given
  --out DIR          writes DIR/TARGET.pack and .json to ship or to name in WICK_PREBUILT_DIR; into the cache on disk
                     unless given; of several compute_ targets, oldest first, a newer one gets only the
                     kernels whose PTX differs
  --ops a,b          only these: rows (tanh), modules (softmax, gemm), beginnings of symbols (softmax_rows)
  --sample N         at most N kernels of each module
  --jobs N           compiles in N processes (as many as there are cores unless given)
wick kernels cache   what the cache on disk and the folders of kernels made ahead of time hold
  --clear            empties the cache`;

export async function run(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      help: { type: 'boolean', short: 'h' },
      arch: { type: 'string', multiple: true },
      out: { type: 'string' },
      ops: { type: 'string', multiple: true },
      sample: { type: 'string' },
      clear: { type: 'boolean' },
      jobs: { type: 'string' },
      share: { type: 'string' },
    },
  });
  const [command] = positionals;
  if (values.help || command === undefined) {
    console.log(HELP);
    return 0;
  }
  const list = (v: readonly string[] | undefined): string[] | undefined =>
    v
      ?.flatMap((s) => s.split(','))
      .map((s) => s.trim())
      .filter(Boolean);
  if (command === 'cache') return cache(values.clear ?? false);
  if (command !== 'build')
    throw new ArgumentError(`wick kernels: there is no command ${JSON.stringify(command)}; build and cache are`);
  const whole = (name: 'sample' | 'jobs'): number | undefined => wholeOf('kernels build', name, values[name], 1);
  const archs = list(values.arch) ?? gpusHere();
  const options = { out: values.out, ops: list(values.ops), sample: whole('sample') };
  if (values.share !== undefined) {
    // One of the processes started below: what fails here fails again where all are put together, and is told there.
    const [index, of] = values.share.split('/').map(Number);
    return build(archs, { ...options, share: { index, of } }).then(
      () => 0,
      () => 1,
    );
  }
  return show(await inProcesses(whole('jobs') ?? availableParallelism(), argv, archs, options), options);
}

type Options = Selection & { readonly out?: string; readonly cache?: KernelCache };

/** Shares the kernels out to processes that compile into a cache, then takes them all from there. */
async function inProcesses(
  jobs: number,
  argv: readonly string[],
  archs: readonly string[],
  options: Options,
): Promise<BuildSummary[]> {
  if (jobs === 1) return build(archs, options);
  const dir = options.out === undefined ? kernelCache().dir : mkdtempSync(join(tmpdir(), 'wick-build-'));
  try {
    // A share goes into the cache whatever the whole is for; what fails there fails again, and is told, below.
    const shared = argv.filter(
      (a, i) =>
        a !== '--out' &&
        argv[i - 1] !== '--out' &&
        !a.startsWith('--out=') &&
        !a.startsWith('--arch') &&
        argv[i - 1] !== '--arch',
    );
    await Promise.all(
      Array.from(
        { length: jobs },
        (_, i) =>
          new Promise((resolve) => {
            const args = [process.argv[1], 'kernels', ...shared, '--arch', archs.join(), '--share', `${i}/${jobs}`];
            spawn(process.execPath, args, {
              stdio: ['ignore', 'ignore', i === 0 ? 'inherit' : 'ignore'],
              env: { ...process.env, WICK_CACHE_DIR: dir },
            }).on('close', resolve);
          }),
      ),
    );
    return await build(archs, { ...options, cache: new KernelCache(dir, Infinity) });
  } finally {
    if (options.out !== undefined) rmSync(dir, { recursive: true, force: true });
  }
}

function gpusHere(): string[] {
  const found = VENDOR_NAMES.map(driverOrSentence);
  const archs = found.flatMap((d) =>
    typeof d === 'string' ? [] : Array.from({ length: d.deviceCount }, (_, i) => d.info(i).arch),
  );
  if (archs.length === 0)
    throw new ArgumentError(
      `wick kernels build: there is no GPU here to build for; name targets with --arch. ${found.join('; ')}`,
    );
  return [...new Set(archs)];
}

async function build(archs: readonly string[], options: Options): Promise<BuildSummary[]> {
  const live = process.stderr.isTTY;
  const summaries: BuildSummary[] = [];
  for (const arch of archs.flatMap((a) => targetsOf(a, options))) {
    const onKernel = (done: number, of: number, symbol: string): void => {
      const line = `${arch} ${done}/${of} ${symbol}`;
      // On a terminal one line is written over; in a log a line now and then says that it goes on.
      if (live) process.stderr.write(`\r${line.slice(0, 100).padEnd(100)}${done === of ? '\n' : ''}`);
      else if (done % 100 === 0 || done === of) process.stderr.write(`${line}\n`);
    };
    // In turn: PTX of a newer target leaves out what an older one's folder holds.
    summaries.push(await buildKernels({ arch, ...options, onKernel }));
  }
  return summaries;
}

/** Every kernel for a target, or some of each module, into the cache on disk. */
export const compileAll = (arch: string, jobs: number, sample?: number): Promise<BuildSummary[]> =>
  inProcesses(jobs, ['build', ...(sample ? ['--sample', `${sample}`] : [])], [arch], { sample });

function show(summaries: readonly BuildSummary[], options: Options): number {
  const { dir } = kernelCache();
  console.log(
    table(
      [
        'target',
        'compiler',
        'kernels',
        'failed',
        'code',
        ...(options.out === undefined ? ['kept in'] : ['written', 'files']),
        'seconds',
      ],
      summaries.map((s) => [
        s.arch,
        s.compiler,
        s.kernels,
        s.failed.length,
        bytes(s.bytes),
        ...(options.out === undefined ? [dir] : [s.written, bytes(s.packed)]),
        s.seconds.toFixed(1),
      ]),
    ),
  );
  const failed = summaries.flatMap((s) => s.failed.map((f) => `${s.arch} ${f}`));
  for (const f of failed) console.error(f);
  return failed.length > 0 ? 1 : 0;
}

function cache(clear: boolean): number {
  const store = kernelCache();
  if (clear) store.clear();
  const s = store.stats();
  const rows: (string | number)[][] = [
    [s.dir, 'cache', s.entries, `${bytes(s.bytes)} of at most ${bytes(s.maxBytes)}`],
  ];
  for (const dir of prebuiltDirs()) {
    const targets = prebuiltTargets(dir);
    rows.push([dir, 'ahead of time', targets.length, targets.length > 0 ? targets.join(', ') : 'nothing']);
  }
  console.log(table(['folder', 'what', 'entries', 'holds'], rows));
  return 0;
}
