// What a launch is counted by: instructions of a wave by the unit that executes them, and what they move.
import type { Instruction } from './instruction.js';

/** Wave instructions by unit; of matrix units operations are counted, of LDS bytes of a full wave. */
const UNITS = ['vector', 'vectorSlow', 'scalar', 'memory', 'lds', 'ldsBytes', 'matrixFlops', 'waits'] as const;
export const COUNTED = ['waves', 'lanes', 'read', 'written', ...UNITS] as const;
export type Counted = (typeof COUNTED)[number];
/** Counts of a launch, and its work-groups. */
export type Counts = Record<Counted | 'groups', number>;
export const noCounts = (): Counts =>
  Object.fromEntries([...COUNTED, 'groups'].map((k) => [k, 0])) as Record<Counted | 'groups', number>;

/** A quarter of the rate of others: transcendentals, doubles, 32-bit integer products. */
const SLOW = /^v_(exp|log|rcp|rsq|sqrt|sin|cos)_|_f64|^v_mul_(lo|hi)_[iu]32|^v_mad_[iu]64/;
const MATRIX = /^v_(?:mfma|wmma|swmmac)_\w*?_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?/;

/** Bytes of a lane of an LDS instruction: ds_read2_b64 moves sixteen. */
function ldsWidth(name: string): number {
  const bits = Number(/_[biuf](\d+)/.exec(name)?.[1] ?? 32);
  return (bits / 8) * (/^ds_(read|write|load|store)_?2/.test(name) ? 2 : 1);
}

/** What one instruction adds: to which unit, and how much. */
export function unitsOf(i: Instruction, wave: number): readonly (readonly [(typeof UNITS)[number], number])[] {
  const { name } = i;
  const matrix = MATRIX.exec(name);
  if (matrix) {
    const [, m, n, k, blocks = '1'] = matrix;
    return [['matrixFlops', 2 * Number(m) * Number(n) * Number(k) * Number(blocks)]];
  }
  if (/^v_/.test(name)) return [[SLOW.test(name) ? 'vectorSlow' : 'vector', 1]];
  if (/^ds_/.test(name)) {
    return [
      ['lds', 1],
      ['ldsBytes', wave * ldsWidth(name)],
    ];
  }
  if (/^(global|flat|buffer|scratch)_(load|store|atomic)/.test(name)) return [['memory', 1]];
  // A wait for loads; what waits for LDS or scalar loads alone is short.
  if (/^s_waitcnt$/.test(name)) return /vmcnt/.test(i.text) ? [['waits', 1]] : [];
  if (/^s_wait_loadcnt/.test(name)) return [['waits', 1]];
  return [['scalar', 1]];
}
