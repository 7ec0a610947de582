// What is recorded for differentiation, and when; backward.ts walks it.
import { ArgumentError, callerFrames, GradError } from '../base/errors.js';
import { isFloat } from '../base/dtype.js';
import type { AssembleRow, ElementwiseRow, GradContext, KernelRow, Params, ViewRow } from '../ops/op.js';
import { refuseInVmap } from './levels.js';
import type { Tensor } from './tensor.js';

export type GradRow = ElementwiseRow<any> | KernelRow<any> | ViewRow<any> | AssembleRow<any>;

/** One recorded op. It holds handles of its own, so that disposing of a tensor does not break a graph that needs it. */
export interface Node {
  readonly row: GradRow;
  readonly params: Params;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly versions: readonly number[];
  /** Whether a backward pass has let go of what it held. */
  released?: true | undefined;
  /** Where it was called, while anomalies are looked for. */
  readonly called?: string | undefined;
  /** Makes the result again, where its row is cheap and it was recorded for that. */
  readonly remake?: (() => Tensor) | undefined;
  /** Inputs that are not kept and are made again for the rule. */
  readonly remade?: ReadonlySet<number> | undefined;
}
/** The version of a tensor that a node does not keep: it may change. */
export const NOT_KEPT = -1;

let sparing = false;
export const isRemaking = (): boolean => sparing;
/**
 * Runs f; what norms and gated activations in it make is not kept for the backward pass but made again there, from what
 * they were made of. Less memory, and a little more time.
 */
export function remaking<T>(f: () => T): T {
  const before = sparing;
  sparing = true;
  try {
    return f();
  } finally {
    sparing = before;
  }
}

let enabled = true;
/** Whether operations are being recorded. */
export const gradEnabled = (): boolean => enabled;

/** Runs f recording what it does, or not. */
export function withGrad<T>(on: boolean, f: () => T): T {
  if (typeof f !== 'function')
    throw new ArgumentError(`${on ? 'enableGrad' : 'noGrad'}: takes a function, as in noGrad(() => model.forward(x))`);
  const before = enabled;
  enabled = on;
  try {
    return f();
  } finally {
    enabled = before;
  }
}
/** Runs f without recording anything; of an async function, what comes before its first await. */
export const noGrad = <T>(f: () => T): T => withGrad(false, f);
/** Runs f recording again, inside noGrad. */
export const enableGrad = <T>(f: () => T): T => withGrad(true, f);

let watching = false;
/** Where an op was called; undefined unless anomalies are looked for. */
export const calledHere = (): string | undefined => (watching ? callerFrames() : undefined);
/** Refuses a result that is NaN, while anomalies are looked for. */
export function refuseNaN(
  results: readonly (Tensor | undefined)[],
  what: () => string,
  called: string | undefined,
): void {
  if (!watching) return;
  for (const t of results) {
    if (!t || !isFloat(t.dtype) || t.size === 0) continue;
    const found = noGrad(() => withoutWatching(() => t.detach().isNan().any().item() !== 0));
    if (found) throw new GradError(`${what()} gave NaN${called ? `; it was called\n${called}\n` : ''}`);
  }
}
function withoutWatching<T>(f: () => T): T {
  const before = watching;
  watching = false;
  try {
    return f();
  } finally {
    watching = before;
  }
}
/**
 * Runs f and throws at the first recorded op, or the first gradient, that gives NaN, with the line that called the op.
 * Every result is read back: for finding faults, not for training.
 */
export function detectAnomaly<T>(f: () => T): T {
  const before = watching;
  watching = true;
  try {
    return f();
  } finally {
    watching = before;
  }
}

/** The same values; in a backward pass their gradient goes through `f`, and what it returns travels on. */
export function gradHook(t: Tensor, f: (gradient: Tensor) => Tensor | void): Tensor {
  const out = t.detach();
  if (!enabled || !t.requiresGrad) return out;
  refuseInVmap('gradHook', 'change the gradient outside of it');
  out.requiresGrad = true;
  const row = { ...HOOK, grad: ({ grad }: GradContext) => [f(grad as Tensor) ?? grad] } as unknown as GradRow;
  const [inputs, outputs] = [[t.alias()], [out.alias()]];
  const versions = [...inputs, ...outputs].map((x) => x.storage.version);
  out.node = outputs[0].node = { row, params: {}, inputs, outputs, versions };
  return out;
}
/** Only named in graphs and errors: nothing runs. */
const HOOK = { name: 'gradHook', family: 'view', formula: 'x', layout: (l: unknown) => l };
