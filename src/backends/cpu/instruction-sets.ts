// The instruction sets that the CPU engine can be compiled for, and the best that this CPU has.
import { readFileSync } from 'node:fs';
import { env } from '../../base/environment.js';
import { NativeError } from '../../base/errors.js';

export type NativeArch = 'x64' | 'arm64';
export interface InstructionSet {
  /** As WICK_CPU_ISA and the engine spell it. */
  readonly name: string;
  readonly flags: readonly string[];
  /** What the CPU must have, as /proc/cpuinfo spells it; the engine asks the CPU itself when it is loaded. */
  readonly needs: readonly string[];
  /** Products of whole numbers for CPUs that multiply and add four bytes at a time, or more; best last. */
  readonly dots?: readonly DotProducts[];
}
export interface DotProducts {
  readonly name: string;
  readonly flags: readonly string[];
  readonly needs: readonly string[];
  /** The CPU is known to have it, so that nothing else is compiled; else all are, and the engine asks the CPU. */
  readonly alone?: true;
}

const AVX2 = ['avx2', 'fma', 'f16c'];
const AVX512 = ['avx512f', 'avx512bw', 'avx512dq', 'avx512vl'];

/** Best last. A release holds all of an architecture's, and the engine picks one when it is loaded. */
export const INSTRUCTION_SETS: { readonly [A in NativeArch]: readonly InstructionSet[] } = {
  arm64: [
    {
      name: 'neon',
      flags: ['-march=armv8-a'],
      needs: [],
      dots: [
        { name: 'dotprod', flags: ['-march=armv8.2-a+dotprod'], needs: ['asimddp'] },
        { name: 'i8mm', flags: ['-march=armv8.2-a+dotprod+i8mm'], needs: ['asimddp', 'i8mm'] },
      ],
    },
  ],
  x64: [
    { name: 'sse2', flags: [], needs: [] },
    { name: 'avx2', flags: ['-mavx2', '-mfma', '-mf16c', '-mtune=haswell'], needs: AVX2 },
    {
      name: 'avx512',
      flags: [...AVX512.map((f) => `-m${f}`), '-mfma', '-mf16c', '-mprefer-vector-width=512'],
      needs: [...AVX2, ...AVX512],
      dots: [{ name: 'vnni', flags: ['-mavx512vnni'], needs: ['avx512_vnni'] }],
    },
  ],
};

/** WebAssembly's vectors, which every processor's engine of JavaScript has. */
export const WASM_SET: InstructionSet = {
  name: 'wasm',
  flags: ['-msimd128', '-mbulk-memory', '-mnontrapping-fptoint', '-msign-ext'],
  needs: [],
};

/** Pages of 64 KiB that the module begins with, and the most that a memory of 32 bits has. */
export const WASM_MEMORY = { initial: 256, maximum: 65536 } as const;

/** Whether the engine can be a shared library on a machine like this one. */
export const nativePlatform = (): boolean =>
  process.platform === 'linux' && (process.arch === 'x64' || process.arch === 'arm64');

export const hostArch = (): NativeArch => {
  if (nativePlatform()) return process.arch as NativeArch;
  throw new NativeError(
    `the CPU engine's shared library is for Linux x64 and arm64, not for ${process.platform} ${process.arch}`,
  );
};

/** Flags of the first processor in /proc/cpuinfo's words; nothing where the file cannot be read. */
function cpuFlags(): ReadonlySet<string> {
  try {
    const text = readFileSync('/proc/cpuinfo', 'utf8');
    return new Set(/^(?:flags|Features)\s*:\s*(.*)$/m.exec(text)?.[1].split(/\s+/));
  } catch {
    return new Set(); // the baseline runs everywhere
  }
}

/**
 * The one that a build for this machine is for: what WICK_CPU_ISA names, else the best that the CPU has, with its dot
 * products alone or without them.
 */
export function hostInstructionSet(arch: NativeArch, flags: ReadonlySet<string> = cpuFlags()): InstructionSet {
  const has = ({ needs }: { readonly needs: readonly string[] }): boolean => needs.every((f) => flags.has(f));
  const onlyFor = ({ dots, ...set }: InstructionSet): InstructionSet => {
    const best = dots?.filter(has).at(-1);
    return best ? { ...set, dots: [{ ...best, alone: true }] } : set;
  };
  const known = INSTRUCTION_SETS[arch];
  const wanted = env('WICK_CPU_ISA');
  if (wanted === undefined) return onlyFor(known.filter(has).at(-1) ?? known[0]);
  const named = known.find((set) => set.name === wanted);
  if (!named)
    throw new NativeError(
      `WICK_CPU_ISA is ${JSON.stringify(wanted)}; known are ` +
        `${[...known, WASM_SET].map((set) => set.name).join(', ')}, reference`,
    );
  if (!has(named)) throw new NativeError(`WICK_CPU_ISA is ${wanted}, but this CPU lacks those instructions`);
  return onlyFor(named);
}
