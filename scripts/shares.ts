// Which part of the matrix on emulated AMD targets is a day's.

/** Targets that CI runs in shares; gfx1030 and gfx90a run whole each time. */
export const TARGETS = [
  { target: 'gfx906', rocm7: false },
  { target: 'gfx1100', rocm7: true },
  { target: 'gfx908', rocm7: false },
  { target: 'gfx942', rocm7: true },
  { target: 'gfx1201', rocm7: true },
] as const;
export const PARTS = 5;

export interface Share {
  readonly target: string;
  /** Compiled by ROCm 7, the older one does not know it. */
  readonly rocm7: boolean;
  /** From 1. */
  readonly part: number;
  readonly parts: number;
  readonly ops: readonly string[];
  readonly models: readonly string[];
}

/** Days count from 1970 on: the target changes daily, the part when all targets had theirs. */
export function shareOf(day: string, ops: readonly string[], models: readonly string[]): Share {
  const at = Date.parse(`${day}T00:00:00Z`) / 86_400_000;
  if (!/^\d{4}-\d\d-\d\d$/.test(day) || !Number.isInteger(at))
    throw new Error(`${day} is not a day such as 2026-11-16`);
  const part = Math.floor(at / TARGETS.length) % PARTS;
  const mine = (all: readonly string[]): string[] => all.filter((_, i) => i % PARTS === part);
  return { ...TARGETS[at % TARGETS.length], part: part + 1, parts: PARTS, ops: mine(ops), models: mine(models) };
}
