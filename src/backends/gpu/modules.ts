// All kernel modules by name: what builds ahead of time, the signature check and tests go through.
import { ArgumentError } from '../../base/errors.js';
import type { Entry, KernelModule } from '../../kernels/declare.js';
import { CANDLE_MODULES } from '../../kernels/candle.js';
import { declaredUnit, type Unit } from '../../kernels/source.js';
import { DECODE, DECODE_ATTENTION } from './decode.js';
import { DECODE_WEIGHTS } from './decode-blocks.js';
import { DECODE_EXPERTS } from './decode-experts.js';
import { DECODE_FEW } from './decode-few.js';
import { DECODE_LATENT } from './decode-latent.js';
import { DECODE_SAMPLE } from './decode-sample.js';
import { FAMILY_MODULES } from './families.js';
import { SAMPLE_MODULE } from './sample.js';

const MODULES: ReadonlyMap<string, KernelModule> = new Map(
  [
    ...FAMILY_MODULES,
    DECODE,
    DECODE_ATTENTION,
    DECODE_SAMPLE,
    DECODE_WEIGHTS,
    DECODE_EXPERTS,
    DECODE_FEW,
    DECODE_LATENT,
    SAMPLE_MODULE,
    ...CANDLE_MODULES,
  ].map((m) => [m.name, m]),
);

/** Names of all modules: kernels/NAME.hip. */
export const moduleNames = (): string[] => [...MODULES.keys()].sort();
export function kernelModule(name: string): KernelModule {
  const module = MODULES.get(name);
  if (!module) throw new ArgumentError(`there is no kernel module ${name}; modules are ${moduleNames().join(', ')}`);
  return module;
}

/** The source that defines some kernels of a module, or all of them. */
export function unitOf(name: string, symbols?: readonly string[]): Unit {
  const module = kernelModule(name);
  const wanted = (symbols ?? [...module.entries.keys()]).map((s) => {
    const entry = module.entries.get(s);
    if (!entry) throw new ArgumentError(`kernels/${name}.hip has no kernel ${s}`);
    return entry;
  });
  return declaredUnit(module, wanted);
}

/** Where a symbol lives. */
export function findSymbol(symbol: string): { module: string; entry: Entry } | undefined {
  for (const module of moduleNames()) {
    const entry = kernelModule(module).entries.get(symbol);
    if (entry) return { module, entry };
  }
  return undefined;
}
