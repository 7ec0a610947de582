// What AMD's compilers made of every kernel, as scripts/check-kernels recorded it in docs/kernels-amd.json, and which
// of it is older than the kernels.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { jobsFor } from '../backends/gpu/aot.js';
import type { Platform } from './platform.js';
import { packageRoot } from '../base/paths.js';
import { moduleText } from '../kernels/source.js';
import { sourcesNow } from './provenance.js';

const COMPILED = 'docs/kernels-amd.json';
/** The targets a record is kept of: GCN and CDNA, then RDNA. */
export const AMD_TARGETS = ['gfx906', 'gfx908', 'gfx90a', 'gfx942', 'gfx1030', 'gfx1100', 'gfx1201'] as const;

export interface CompiledModule {
  readonly date: string;
  compiler: string;
  /** What it was compiled from. */
  readonly source: string;
  /** Kernels compiled, and how many there are where that is more. */
  readonly kernels: number;
  readonly of?: number;
  /** Symbol, arguments, block size and shared memory as the launch code has them, and no private memory. */
  good: number;
  /** The most shared memory and vector registers of any kernel. */
  lds: number;
  vgprs: number;
  /** 'symbol: what' */
  readonly problems: string[];
}
/** By module; a later run of some modules replaces theirs alone. */
export type CompiledTarget = Readonly<Record<string, CompiledModule>>;
export type Compiled = Readonly<Record<string, CompiledTarget>>;

/** A module's text as a platform sees it, and where expressions of the op table go into it, those. */
export function compiledFrom(module: string, platform: Platform): string {
  const { modules: all, rows } = sourcesNow();
  const modules = all[platform];
  if (modules[module] === undefined) return ''; // a record may name a module that is no more
  const table =
    module === 'elementwise' || moduleText(`${module}.hip`).includes('//@table') ? Object.values(rows).join() : '';
  return table
    ? createHash('sha256').update(`${modules[module]} ${table}`).digest('hex').slice(0, 12)
    : modules[module];
}

export function readCompiled(file = join(packageRoot, COMPILED)): Compiled {
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Compiled) : {};
}

const modulesOf = (target: string): string[] => [...new Set(jobsFor(target).map((j) => j.names[0]))];

/** Sentences about targets whose record is of other kernels than the present ones, or of a part of them. */
export function staleCompiled(compiled: Compiled = readCompiled()): string[] {
  const redo = 'npm run kernels:check -- --json docs/kernels-amd.json --arch';
  return AMD_TARGETS.flatMap((target) => {
    const record = compiled[target] ?? {};
    const old = modulesOf(target).filter(
      (m) => record[m]?.source !== compiledFrom(m, 'amd') || record[m].of !== undefined,
    );
    return old.length > 0
      ? [
          `${COMPILED}: ${target}: compiled before these changed, or never whole: ${old.join(' ')} (${redo} ` +
            `${target} --module ${old.join()})`,
        ]
      : [];
  });
}

/** Which kernels the tests that launch them one by one ran on a device: docs/kernels-run.json, by device. */
export interface RanDevice {
  readonly date: string;
  readonly commit: string;
  readonly platform: Platform;
  /** Tests. */
  readonly pass: number;
  readonly fail: number;
  /**
   * Symbols that ran, of those the module has, and those of Candle's that did not; generated elementwise kernels are
   * the op matrix's.
   */
  readonly modules: Readonly<
    Record<
      string,
      { readonly source: string; readonly ran: number; readonly of: number; readonly missed: readonly string[] }
    >
  >;
}
const RAN = 'docs/kernels-run.json';
export function readRan(file = join(packageRoot, RAN)): Readonly<Record<string, RanDevice>> {
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Record<string, RanDevice>) : {};
}
/** Sentences about devices that ran other kernels than the present ones. */
export function staleRan(ran: Readonly<Record<string, RanDevice>> = readRan()): string[] {
  return Object.entries(ran).flatMap(([device, r]) => {
    const old = Object.entries(r.modules)
      .filter(([m, { source }]) => source !== compiledFrom(m, r.platform))
      .map(([m]) => m);
    return old.length > 0
      ? [`${RAN}: ${device}: ran before these changed: ${old.join(' ')} (npm run kernels:run -- --json ${RAN})`]
      : [];
  });
}
