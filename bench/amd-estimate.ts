// From counts of the emulator to an estimate of time: each resource by itself, the slowest is the limit.
import type { Counts } from '../src/emulator/counts.js';
import { ATTAINED, type Rates } from './amd-rates.js';

/** Counts of one launch, and what decides how many of its waves are resident. */
export interface LaunchCounts extends Counts {
  readonly symbol: string;
  readonly vgprs: number;
  readonly groupLds: number;
  readonly items: number;
  readonly wave: number;
}
/**
 * The last is no rate: it is what waits would cost if no load were asked for before it is needed, and limits nothing by
 * itself.
 */
export const RESOURCES = ['memory', 'cache', 'vector', 'scalar', 'LDS', 'matrix', 'latency'] as const;
const RATED = RESOURCES.filter((r) => r !== 'latency');
export type Resource = (typeof RESOURCES)[number];
export interface Estimate {
  /** Microseconds by resource, all launches together. */
  readonly us: Readonly<Record<Resource, number>>;
  readonly limit: Resource;
  readonly total: number;
  /** The time that memory alone takes, over the estimate: 1 is bound by memory. */
  readonly ofMemory: number;
  /** Waves a SIMD holds, of the launch that takes longest. */
  readonly waves: number;
}

/** Registers are given in blocks of eight; a group lives on one compute unit. */
export function residentWaves(l: LaunchCounts, r: Rates): number {
  const byRegisters = Math.floor(r.registers / (Math.ceil(Math.max(l.vgprs, 8) / 8) * 8));
  const wavesOfGroup = Math.ceil(l.items / l.wave);
  const groups = l.groupLds > 0 ? Math.floor(r.lds / l.groupLds) : Infinity;
  const byLds = (groups * wavesOfGroup) / r.simds;
  return Math.max(1, Math.min(byRegisters, byLds, r.mostWaves));
}

/**
 * `bytes`: what must move at least, of all launches; `scale`: how many times the work of the counts the benchmark is.
 */
export function estimate(launches: readonly LaunchCounts[], bytes: number, scale: number, r: Rates): Estimate {
  const perUs = r.units * r.clock * 1e3;
  const sum = (f: (l: LaunchCounts) => number): number => scale * launches.reduce((n, l) => n + f(l), 0);
  const us: Record<Resource, number> = {
    memory: (scale * bytes) / (r.bandwidth * ATTAINED * 1e3),
    cache: sum((l) => l.read + l.written) / (r.cacheBytes * perUs),
    vector: sum((l) => l.vector + 4 * l.vectorSlow) / (r.vector * perUs),
    scalar: sum((l) => l.scalar) / (r.scalar * perUs),
    LDS: sum((l) => l.ldsBytes) / (r.ldsBytes * perUs),
    matrix: sum((l) => l.matrixFlops) / (r.matrix * 1e6),
    latency: sum((l) => (l.waits * r.latency * 1e-3) / (residentWaves(l, r) * r.simds * r.units)),
  };
  const limit = RATED.reduce<Resource>((a, b) => (us[b] > us[a] ? b : a), 'memory');
  const longest = launches.reduce((a, b) => (b.waves > a.waves ? b : a));
  return { us, limit, total: us[limit], ofMemory: us.memory / us[limit], waves: residentWaves(longest, r) };
}
