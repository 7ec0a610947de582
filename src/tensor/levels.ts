// Which vmaps are running: functions of examples know nothing of each other but this.
import { UnsupportedError } from '../base/errors.js';

/** What random numbers and ops without a rule do while a function is mapped. */
export interface MapRules {
  readonly randomness: 'error' | 'same' | 'different';
  readonly fallback: 'loop' | 'error';
}

/** One running vmap; inner ones are deeper. */
export class Level {
  readonly depth: number;
  readonly size: number;
  readonly rules: MapRules;
  constructor(depth: number, size: number, rules: MapRules) {
    this.depth = depth;
    this.size = size;
    this.rules = rules;
  }
}

const running: Level[] = [];
export const runningLevels = (): readonly Level[] => running;
export const runs = (level: Level): boolean => running.includes(level);
/** The innermost vmap that runs. (An element -1 is a property by name to V8, and each op would look for it.) */
export const innermost = (): Level | undefined => (running.length > 0 ? running[running.length - 1] : undefined);

/** Runs f within a vmap over `size` examples. */
export function mapping<T>(size: number, rules: MapRules, f: (level: Level) => T): T {
  const level = new Level(running.length + 1, size, rules);
  running.push(level);
  try {
    return f(level);
  } finally {
    running.pop();
  }
}

const PLAIN: MapRules = { randomness: 'same', fallback: 'loop' };
/** Runs a function of examples on tensors that have them in front. */
export const eachExample = <T>(size: number, f: (level: Level) => T): T => mapping(size, PLAIN, f);

/** Refuses what keeps gradients in a way of its own, which a graph outside of a vmap would not see. */
export function refuseInVmap(op: string, instead: string): void {
  if (innermost()) throw new UnsupportedError(`vmap: ${op} cannot be used in a function that is mapped; ${instead}`);
}
