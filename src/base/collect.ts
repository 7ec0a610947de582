// The garbage collector asked by name: for memory that it cannot see, and for finalisers that a busy loop never lets
// run.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

interface Hidden {
  readonly gc?: () => void;
  /** Runs the callbacks of a registry whose objects are gone, at once instead of in a later turn of the event loop. */
  readonly cleanupSome?: () => void;
}

let hidden: Hidden | undefined;
/**
 * V8 hands both out to contexts made after the flags were set. Only V8 11 (Node 20) is known to have the second; an
 * unknown flag is complained of.
 */
const CAN_FINALIZE = Number(process.versions.v8.split('.')[0]) <= 11;
function reach(): Hidden {
  if (hidden) return hidden;
  setFlagsFromString('--expose-gc');
  if (CAN_FINALIZE) setFlagsFromString('--harmony-weak-refs-with-cleanup-some');
  const found = runInNewContext(
    "({ gc: typeof gc === 'function' ? gc : undefined, cleanupSome: FinalizationRegistry.prototype.cleanupSome })",
  ) as Hidden;
  setFlagsFromString('--no-expose-gc');
  return (hidden = found);
}

/** Finds what nothing reaches any more. Takes some milliseconds. */
export const collectGarbage = (): void => reach().gc?.();

/** Runs the finalisers that are due, where V8 can do that at once; elsewhere they run in a later turn. */
export const finalizeNow = (registry: FinalizationRegistry<any>): void => {
  reach().cleanupSome?.call(registry);
};
