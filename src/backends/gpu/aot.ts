// Compiling ahead of use: every kernel the backend may ask for, one by one, for a target, into the cache on disk or a
// folder to ship.
import { CompileError } from '../../base/errors.js';
import type { Compiler } from '../../driver/compiler.js';
import { elementwiseRows } from '../../ops/table.js';
import type { KernelCache } from '../../kernels/cache.js';
import { codeFor, compile, compilerFor } from '../../kernels/compile.js';
import { type Chain, elementwiseUnit, standardChains, symbolFor, variantsOf } from '../../kernels/elementwise.js';
import { codeTogether } from '../../kernels/joined.js';
import { type Made, withoutServed, writePrebuilt } from '../../kernels/prebuilt.js';
import type { KernelModule } from '../../kernels/declare.js';
import { declaredUnit, type Unit } from '../../kernels/source.js';
import { kernelModule, moduleNames } from './modules.js';
import { belongs, lowerPtx } from '../../kernels/targets.js';

/** Kernels given to a compiler at once where that is faster. */
const TOGETHER = 32;

/** A kernel to compile; its source is written when its turn comes. */
export interface Job {
  readonly symbol: string;
  /** What `ops` may call it: its module, or the rows it computes. */
  readonly names: readonly string[];
  readonly unit: () => Unit;
  readonly needs?: string;
  /** Whether the backend ever launches it on a target; it does unless said. */
  readonly launchedOn?: (arch: string) => boolean;
}

const rowNames = (c: Chain): string[] => c.steps.flatMap((s) => ('row' in s ? [s.row.name] : ['cast']));
const ofChain = (c: Chain): Job[] => {
  const names = ['elementwise', ...(c.steps.length === 0 ? ['copy'] : rowNames(c))];
  return variantsOf(c).map((v) => ({ symbol: symbolFor(c, v), names, unit: () => elementwiseUnit([c], [v]) }));
};
const ofModule = (module: KernelModule): Job[] =>
  module.kernels.flatMap((k) =>
    k.variants().map((v) => ({
      symbol: k.spec.symbol(v),
      names: [module.name],
      unit: () => declaredUnit(module, [k.entry(v)]),
      needs: module.needs,
      launchedOn: (arch: string) => k.spec.launchedOn?.(v, arch) ?? true,
    })),
  );

export interface Selection {
  /** Rows (tanh), modules (softmax, gemm) or beginnings of symbols (softmax_rows); all unless given. */
  readonly ops?: readonly string[];
  /** At most so many kernels of each module, spread over it. */
  readonly sample?: number;
  /** Every of-th kernel from the index-th on: one of several processes' share. */
  readonly share?: { readonly index: number; readonly of: number };
}

function spread(jobs: readonly Job[], sample: number | undefined): readonly Job[] {
  if (sample === undefined || jobs.length <= sample) return jobs;
  return Array.from({ length: sample }, (_, i) => jobs[Math.floor((i * jobs.length) / sample)]);
}

/** What a build for a target compiles, each unit exactly as the backend asks for it. */
export function jobsFor(arch: string, { ops, sample, share }: Selection = {}): Job[] {
  const groups = [
    ...moduleNames()
      .filter((m) => m !== 'elementwise')
      .map((m) => ofModule(kernelModule(m))),
    standardChains(elementwiseRows).flatMap(ofChain),
  ];
  const unknown = new Set(ops);
  const wanted = (j: Job): boolean => {
    const hits = ops?.filter((o) => j.names.includes(o) || j.symbol.startsWith(`${o}_`) || j.symbol === o) ?? [];
    for (const o of hits) unknown.delete(o);
    return ops === undefined || hits.length > 0;
  };
  const chosen = groups.map((g) => g.filter(wanted));
  if (unknown.size > 0)
    throw new CompileError(
      `no kernel belongs to ${[...unknown].join(', ')}; name rows (tanh), modules (${moduleNames().join(', ')}) or ` +
        'beginnings of symbols',
    );
  const all = chosen.flatMap((g) =>
    spread(
      g.filter((j) => belongs(j, arch) && (j.launchedOn?.(arch) ?? true)),
      sample,
    ),
  );
  return share ? all.filter((_, i) => i % share.of === share.index) : all;
}

/** A target, and the special one beside it (sm_90a with sm_90) where some of the chosen kernels need it. */
export function targetsOf(arch: string, selection: Selection = {}): string[] {
  const special = moduleNames().flatMap((m) => {
    const { needs } = kernelModule(m);
    const target = `${arch}${needs?.at(-1)}`;
    return needs !== undefined && belongs({ needs }, target) && jobsFor(target, selection).length > 0 ? [target] : [];
  });
  return [...new Set([arch, ...special])];
}

export interface BuildOptions extends Selection {
  readonly arch: string;
  /** The folder to write; into the cache unless given. */
  readonly out?: string;
  /** Where compiled code is kept and found; with `out` none unless given. */
  readonly cache?: KernelCache;
  /** Called after each kernel. */
  readonly onKernel?: (done: number, of: number, symbol: string) => void;
}
export interface BuildSummary {
  readonly arch: string;
  readonly compiler: string;
  readonly kernels: number;
  /** Pieces of code written: PTX that an older target's in the same folder equals is not written again. */
  readonly written: number;
  /** Bytes of code, and of the folder's files. */
  readonly bytes: number;
  readonly packed: number;
  readonly seconds: number;
  /** 'symbol: why' */
  readonly failed: readonly string[];
}

/** PTX in the lowest version that holds it; machine code as it is. */
function portable(code: Uint8Array, arch: string): Uint8Array {
  return arch.startsWith('compute_') ? new TextEncoder().encode(lowerPtx(new TextDecoder().decode(code))) : code;
}

function requireCompiler(arch: string): Compiler {
  const compiler = compilerFor(arch);
  const accepts = typeof compiler === 'string' ? compiler : compiler.accepts(arch);
  if (accepts !== true) throw new CompileError(`building kernels for ${arch}: ${accepts}`);
  return compiler as Compiler;
}

/**
 * The code of jobs: AMD's compiler is slow to start and gets many at once, unless one of them fails; NVIDIA's one by
 * one, as they are loaded.
 */
function* codeOf(
  jobs: readonly Job[],
  arch: string,
  options: BuildOptions,
  fail: (job: Job, e: CompileError) => void,
): Generator<Made> {
  const one = (unit: Unit): Uint8Array => {
    if (options.out === undefined) return codeFor(unit, arch, options.cache);
    return portable(compile(unit.source, unit.name, { arch, cache: options.cache ?? false }), arch);
  };
  const step = arch.startsWith('gfx') ? TOGETHER : 1;
  for (let i = 0; i < jobs.length; i += step) {
    const some = jobs.slice(i, i + step);
    if (some.length > 1) {
      try {
        yield* codeTogether(
          some.map((j) => j.unit()),
          arch,
          options.cache,
        );
        continue;
      } catch (e) {
        if (!(e instanceof CompileError)) throw e;
      }
    }
    for (const job of some) {
      try {
        const unit = job.unit();
        yield { units: [unit], code: one(unit) };
      } catch (e) {
        if (!(e instanceof CompileError)) throw e;
        fail(job, e);
      }
    }
  }
}

/** Compiles all jobs; a kernel that fails is reported and does not stop the others. */
export async function buildKernels(options: BuildOptions): Promise<BuildSummary> {
  const { arch, out } = options;
  const compiler = requireCompiler(arch);
  const jobs = jobsFor(arch, options);
  if (jobs.length === 0) throw new CompileError(`building kernels for ${arch}: nothing chosen runs on it`);
  const started = performance.now();
  const made: Made[] = [];
  const failed: string[] = [];
  let [bytes, kernels] = [0, 0];
  for (const m of codeOf(jobs, arch, options, (job, e) => failed.push(`${job.symbol}: ${e.message}`))) {
    bytes += m.code.length;
    kernels += m.units.length;
    if (out !== undefined) made.push(m);
    options.onKernel?.(kernels + failed.length, jobs.length, m.units.at(-1)!.entries[0].symbol);
  }
  const own = out !== undefined && arch.startsWith('compute_') ? withoutServed(out, arch, made) : made;
  const packed = out === undefined ? 0 : await writePrebuilt(out, arch, `${compiler.name} ${compiler.version}`, own);
  return {
    arch,
    compiler: `${compiler.name} ${compiler.version}`,
    kernels,
    written: own.length,
    bytes,
    packed,
    seconds: (performance.now() - started) / 1000,
    failed,
  };
}
