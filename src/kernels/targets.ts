// Targets: what a unit is compiled for on a device, which code made ahead of time serves it, and how old a PTX version
// a text can carry.
import { CompileError } from '../base/errors.js';
import type { Unit } from './source.js';

/** Kind (sm: machine code, compute: PTX), number, and the suffix of features that one GPU alone has. */
const NVIDIA = /^(sm|compute)_(\d+)([af]?)$/;

/** A device's arch, or the narrower target a unit asks for (sm_90a). */
export function targetFor(unit: Pick<Unit, 'name' | 'needs'>, arch: string): string {
  if (unit.needs === undefined) return arch;
  const need = NVIDIA.exec(unit.needs);
  const have = NVIDIA.exec(arch);
  if (!need) throw new CompileError(`kernels/${unit.name}.hip: needs "${unit.needs}", which is no target like sm_90a`);
  if (have?.[2] !== need[2])
    throw new CompileError(`kernels/${unit.name}.hip is for ${unit.needs} alone, not for ${arch}`);
  return `${have[1]}_${need[2]}${need[3]}`;
}

/** Whether a unit belongs into a build for a target: special targets (sm_90a) hold only what needs them. */
export function belongs(unit: Pick<Unit, 'needs'>, arch: string): boolean {
  const [, , number, suffix] = NVIDIA.exec(arch) ?? [];
  if (unit.needs === undefined) return !suffix;
  const need = NVIDIA.exec(unit.needs);
  return number !== undefined && need?.[2] === number && suffix === need[3];
}

const numberOf = (target: string): number => Number(NVIDIA.exec(target)?.[2]);
const newestFirst = (a: string, b: string): number => numberOf(b) - numberOf(a);

/**
 * Machine code at hand that a device's target runs as it is: its own, then that of older GPUs of its generation (8.0
 * for 8.6), newest first.
 */
export function runsAsIs(target: string, atHand: readonly string[]): string[] {
  const generation = (t: string): number => Math.floor(numberOf(t) / 10);
  const plain = (t: string): boolean => /^sm_\d+$/.test(t);
  const older = plain(target)
    ? atHand.filter((t) => plain(t) && generation(t) === generation(target) && numberOf(t) < numberOf(target))
    : [];
  return [...atHand.filter((t) => t === target), ...older.sort(newestFirst)];
}

/**
 * Which of the targets at hand serve a device's target, best first: machine code, then PTX of the same or an older GPU.
 */
export function servedBy(target: string, atHand: readonly string[]): string[] {
  const want = NVIDIA.exec(target);
  const ptx = atHand.filter((t) => {
    const have = NVIDIA.exec(t);
    if (!want || t === target || have?.[1] !== 'compute') return false;
    return want[3] || have[3] ? want[3] === have[3] && want[2] === have[2] : Number(have[2]) <= Number(want[2]);
  });
  return [...runsAsIs(target, atHand), ...ptx.sort(newestFirst)];
}

/** The PTX version that brought each target; a driver refuses text of a version newer than itself. */
const TARGET_VERSION: Readonly<Record<string, string>> = {
  '50': '4.0',
  '52': '4.1',
  '53': '4.2',
  '60': '5.0',
  '61': '5.0',
  '62': '5.0',
  '70': '6.0',
  '72': '6.1',
  '75': '6.3',
  '80': '7.0',
  '86': '7.1',
  '87': '7.4',
  '88': '9.0',
  '89': '7.8',
  '90': '7.8',
  '90a': '8.0',
  '100': '8.6',
  '100a': '8.6',
  '103': '8.8',
  '103a': '8.8',
  '120': '8.7',
  '120a': '8.7',
};
/** Instructions our kernels use, or the compiler may choose, that came later than some target they run on. */
const FEATURE_VERSION: readonly (readonly [RegExp, string])[] = [
  [/\b(?:shfl|vote|match)\.sync\b|\bbar\.warp\.sync\b|\bbarrier\b|\bfence\b/, '6.0'],
  [/\bactivemask\b/, '6.2'],
  [/\bnanosleep\b/, '6.3'],
  [/\.noreturn\b/, '6.4'],
  [/\bldmatrix\b|\bcvt\.pack\b/, '6.5'],
  [/\.bf16|\.tf32|\bcp\.async\b|\bmbarrier\b|\bredux\b|\b(?:tanh|ex2)\.approx[.\w]*f16/, '7.0'],
  [/\bmov\.b\d+\s*\{[^}]*\b_\b/, '7.1'],
  [/\bL[12]::|\bcreatepolicy\b|\bevict_/, '7.4'],
  [/\bbmsk\b|\bszext\b/, '7.6'],
  [/::cta\b|::cluster\b|\bgriddepcontrol\b|\bstmatrix\b|\bcvt\.[\w.]*e4m3x2/, '7.8'],
  [/\bwgmma\b|\bsetmaxnreg\b|\bcp\.async\.bulk\b/, '8.0'],
  [/\.b128\b/, '8.3'],
  [/\btensormap\b/, '8.5'], // known since 8.3, with strides in another unit
];

/**
 * A hint of newer compilers about loads of which only some bytes count; it changes no result, and older drivers do not
 * know it.
 */
const HINT = /^[ \t]*\.pragma "used_bytes_mask [^\n]*\n/gm;

const newer = (a: string, b: string): string => {
  const [[a1, a2], [b1, b2]] = [a.split('.').map(Number), b.split('.').map(Number)];
  return a1 > b1 || (a1 === b1 && a2 >= b2) ? a : b;
};

/**
 * The same text in the lowest PTX version its target and instructions allow: compilers write their own version, which
 * older drivers refuse.
 */
export function lowerPtx(text: string): string {
  const own = /^\.version\s+(\d+\.\d+)\s*$/m.exec(text)?.[1];
  const target = /^\.target\s+sm_(\d+[af]?)/m.exec(text)?.[1];
  if (own === undefined || target === undefined)
    throw new CompileError('this is no PTX: it has no .version or no .target line');
  const floor = TARGET_VERSION[target];
  if (floor === undefined) return text; // a target newer than this table keeps what its compiler wrote
  const plain = text.replace(HINT, '');
  const lowest = FEATURE_VERSION.reduce((v, [pattern, since]) => (pattern.test(plain) ? newer(v, since) : v), floor);
  return newer(lowest, own) === lowest ? text : plain.replace(/^\.version\s+\S+/m, `.version ${lowest}`);
}
