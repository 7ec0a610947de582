// What the CPU engine is compiled from: one object per file of native/ops and native/engine, one per file and
// instruction set of native/vector and of the generated rows. An object depends on the files that its source includes,
// and on nothing else.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join, posix } from 'node:path';
import { NativeError } from '../../base/errors.js';
import { nativeDir } from '../../base/paths.js';
import { elementwiseRows } from '../../ops/table.js';
import type { InstructionSet } from './instruction-sets.js';
import { rowSources } from './row-sources.js';

export interface Unit {
  readonly name: string;
  /** Below native/, or generated/NAME. */
  readonly source: string;
  readonly flags: readonly string[];
}

// No flag may change a value: products and sums are rounded one by one, infinities and NaN hold.
export const COMMON_FLAGS = [
  '-std=c++17',
  '-O2',
  '-ftree-vectorize',
  '-fPIC',
  '-fvisibility=hidden',
  '-fwrapv',
  '-fno-strict-aliasing',
  '-ffp-contract=off',
  '-fno-math-errno',
  '-fno-trapping-math',
  '-pthread',
  '-w', // thousands of lines about the compiler's own headers, which take time to write and which nobody reads
];

let generated: Readonly<Record<string, string>> | undefined;
/** The generated files by name. */
export const generatedFiles = (): Readonly<Record<string, string>> =>
  (generated ??= rowSources(
    elementwiseRows,
    sourcesIn('ops').map((f) => basename(f, '.cpp')),
  ));
/** The C++ files of a folder of native/, from there. */
const sourcesIn = (folder: string): string[] =>
  readdirSync(join(nativeDir, folder))
    .filter((f) => f.endsWith('.cpp'))
    .sort()
    .map((f) => `${folder}/${f}`);

/** Long ones first, so that parallel jobs end together. */
export function units(sets: readonly InstructionSet[]): Unit[] {
  if (!existsSync(nativeDir))
    throw new NativeError('the CPU engine: the folder native/ with its sources is not part of this installation');
  const nameOf = (source: string): string => source.replaceAll('/', '-').replace(/\.cpp$/, '');
  const rows = Object.keys(generatedFiles()).filter((f) => f.endsWith('.cpp'));
  const perSet = [...sourcesIn('vector'), ...rows.map((f) => `generated/${f}`)];
  const everywhere = ['ops', 'ops/factors', 'engine'].flatMap(sourcesIn);
  // engine.cpp alone knows which instruction sets there are.
  const known = sets.flatMap(({ name, dots = [] }) => [
    `-DWICK_WITH_${name.toUpperCase()}`,
    ...dots.map((dot) => `-DWICK_${dot.alone ? 'ONLY' : 'WITH'}_${dot.name.toUpperCase()}`),
  ]);
  const compiledFor = (set: InstructionSet, source: string): Unit[] => {
    const flags = [...set.flags, `-DWICK_ISA_${set.name.toUpperCase()}`];
    const plain: Unit = { name: `${nameOf(source)}-${set.name}`, source, flags };
    if (!set.dots || source !== 'vector/quantized.cpp') return [plain];
    const dots = set.dots.map(({ name, flags: more, alone }) => ({
      name: `${nameOf(source)}-${name}`,
      source,
      flags: [...flags, ...more, ...(alone ? [] : [`-DWICK_DOT=${name}`])],
    }));
    return set.dots.some((dot) => dot.alone) ? dots : [plain, ...dots];
  };
  return [
    ...sets.flatMap((set) => perSet.flatMap((source) => compiledFor(set, source))),
    ...everywhere.map((source) => ({
      name: nameOf(source),
      source,
      flags: source === 'engine/engine.cpp' ? known : [],
    })),
  ];
}

const INCLUDE = /^#include "([^"]+)"/gm;

/** The text of a source and of every file of ours that it includes, by path: what its object depends on. */
export function textsOf(path: string, seen = new Map<string, string>()): ReadonlyMap<string, string> {
  if (seen.has(path)) return seen;
  const text = path.startsWith('generated/')
    ? generatedFiles()[path.slice('generated/'.length)]
    : readFileSync(join(nativeDir, path), 'utf8');
  seen.set(path, text);
  // A bare name lies in the same room.
  for (const [, name] of text.matchAll(INCLUDE))
    textsOf(name.includes('/') ? name : posix.join(posix.dirname(path), name), seen);
  return seen;
}
