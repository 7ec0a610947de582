// The host files that an op's answers on a GPU depend on: what every launch goes through, and its family's plan.
import { posix } from 'node:path';
import type { Row } from '../ops/op.js';
import { hostFiles, sourceName, textOf } from './provenance.js';

/**
 * What every launch goes through, whatever the op: the backend, copies of operands, plans' steps, sources, arguments.
 */
const EVERY_LAUNCH = [
  ...'gpu context turn allocator touched uploads functions libraries plan plan-memo run-plan elementwise movement'
    .split(' ')
    .map((f) => `backends/gpu/${f}.js`),
  ...'declare source expressions macros user-kernels host-unit joined elementwise'
    .split(' ')
    .map((f) => `kernels/${f}.js`),
  'driver/args.js',
];
/** The file of a family's or a kernel module's plan, where the name does not begin with the file's. */
const PLAN_FILE: Readonly<Record<string, string>> = {
  cast: 'movement',
  copy: 'movement',
  fill: 'movement',
  index: 'indexing',
  gemm: 'matmul',
  plane: 'plane-norm',
  planes: 'plane-norm',
  reflections: 'spectra',
  rotations: 'spectra',
  weights: 'quantized',
};
export const planFile = (name: string): string => {
  const [first] = name.split('-');
  return `backends/gpu/${PLAN_FILE[first] ?? first}.js`;
};
/** What decides for a plan without being imported by it. */
const DECIDES: Readonly<Record<string, string>> = { [planFile('attention')]: 'backends/gpu/attention-trial.js' };
/** Plans that may leave their work to a vendor's library, of which no launched module tells. */
const SERVED = ['matmul', 'conv', 'attention', 'factor'];

/** A plan's file and those it imports, less what every launch goes through. */
function reach(file: string, seen: Set<string>): void {
  if (seen.has(file) || EVERY_LAUNCH.includes(file) || !launching.includes(file)) return;
  seen.add(file);
  for (const [, to] of textOf(file).matchAll(/from '(\.[^']+)'/g)) reach(posix.join(posix.dirname(file), to), seen);
  if (DECIDES[file]) reach(DECIDES[file], seen);
}
const launching = hostFiles('gpu');
const reached = new Map<string, readonly string[]>();
function planFiles(name: string): readonly string[] {
  const file = planFile(name);
  if (!reached.has(file)) {
    const seen = new Set<string>();
    reach(file, seen);
    reached.set(file, [...seen]);
  }
  return reached.get(file) as readonly string[];
}

/**
 * The files whose change makes an op's answers old, with the kernel modules that its measurement launched: they tell
 * which plans an op that is made of others went through. `libraries` says that a vendor's may have served some.
 */
export function launchFiles(row: Row, modules: readonly string[], libraries: boolean): string[] {
  const made = row.family === 'composite' || row.family === 'assemble' || row.family === 'view';
  const plans = [...modules, ...(made ? (libraries ? SERVED : []) : [row.family])];
  return [...new Set([...EVERY_LAUNCH, ...plans.flatMap(planFiles)])].map(sourceName);
}
