// Kernels compiled together and found again one by one: a long run tells the compiler of many at once, and later runs
// of any part of them find what it made.
import { waveSize } from '../driver/compiler.js';
import { cacheKey, type KernelCache } from './cache.js';
import { codeFor, compilerFor, kernelCache } from './compile.js';
import { joinUnits, type Unit } from './source.js';

/** Kernels given to the compiler at once. */
const TOGETHER = 32;

/**
 * Code objects that hold the kernels of all units, each with the units it serves: from the cache where they were made
 * before, in whatever company.
 */
export function codeTogether(
  units: readonly Unit[],
  arch: string,
  cache: KernelCache = kernelCache(),
): { readonly units: readonly Unit[]; readonly code: Uint8Array }[] {
  const compiler = compilerFor(arch);
  if (typeof compiler === 'string') return units.map((u) => ({ units: [u], code: codeFor(u, arch, cache) }));
  const options = compiler.options({ arch, defines: { WICK_WAVE: waveSize(arch) } });
  const keyOf = (source: string): string =>
    cacheKey({ source, options, arch, compiler: `${compiler.name} ${compiler.version}` });
  /** Where the cache says in which unit's company a unit was compiled. */
  const placeOf = (u: Unit): string => keyOf(`joined ${u.source}`);
  const found = new Map<string, { units: Unit[]; code: Uint8Array }>();
  const missing = units.filter((u) => {
    const place = cache.get(placeOf(u), arch);
    const key = place && Buffer.from(place).toString();
    const code = key && (found.get(key)?.code ?? cache.get(key, arch));
    if (!key || !code) return true;
    const group = found.get(key) ?? { units: [], code };
    group.units.push(u);
    found.set(key, group);
    return false;
  });
  const made = joinUnits(missing, TOGETHER).map((joined) => {
    const code = codeFor(joined, arch, cache);
    const symbols = new Set(joined.entries.map((e) => e.symbol));
    const served = missing.filter((u) => u.entries.every((e) => symbols.has(e.symbol)));
    for (const u of served) cache.put(placeOf(u), arch, Buffer.from(keyOf(joined.source)));
    return { units: served, code };
  });
  return [...found.values(), ...made];
}
