// All kernel modules by name: what builds ahead of time, the signature check and tests go through.
import { ArgumentError } from '../../base/errors.js';
import type { Entry, KernelModule } from '../../kernels/declare.js';
import { declaredUnit, type Unit } from '../../kernels/source.js';
import { ELEMENTWISE } from '../../kernels/elementwise.js';
import { WEIGHTS } from './quantized.js';
import {
  ATTENTION,
  ATTENTION_BACKWARD,
  ATTENTION_BACKWARD_MATRIX,
  ATTENTION_HOPPER,
  ATTENTION_MATRIX,
} from './attention-kernels.js';
import { CONV } from './conv.js';
import { DECODE, DECODE_ATTENTION, DECODE_SAMPLE } from './decode.js';
import { INDEXING } from './indexing.js';
import { GEMM, GEMM_HOPPER } from './matmul.js';
import { FILL } from './movement.js';
import { NORM } from './norm.js';
import { POOL } from './pool.js';
import { RANDOM } from './random.js';
import { REDUCE } from './reduce.js';
import { RESAMPLE } from './resample.js';
import { ROPE } from './rope.js';
import { SCAN } from './scan.js';
import { SOFTMAX } from './softmax.js';
import { SORT } from './sort.js';
import { CANDLE_MODULES } from '../../kernels/candle.js';

const MODULES: ReadonlyMap<string, KernelModule> = new Map(
  [
    ATTENTION,
    ATTENTION_BACKWARD,
    ATTENTION_BACKWARD_MATRIX,
    ATTENTION_HOPPER,
    ATTENTION_MATRIX,
    CONV,
    DECODE,
    DECODE_ATTENTION,
    DECODE_SAMPLE,
    FILL,
    GEMM,
    GEMM_HOPPER,
    POOL,
    RESAMPLE,
    INDEXING,
    NORM,
    RANDOM,
    REDUCE,
    ROPE,
    SCAN,
    SOFTMAX,
    SORT,
    WEIGHTS,
    ELEMENTWISE,
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
