// Where an op made of others begins and ends. The steps inside wait in waiting.ts, which needs tensors; this file needs
// none, so that tensors' own files can say that what they run is one op.

interface Steps {
  /** Runs what a result needs. */
  readonly read: (result: unknown) => void;
  /** Lets go of what nobody read. */
  readonly forget: () => void;
}
let steps: Steps | undefined;
let inside = false;
export const stepsWait = (of: Steps): void => void (steps = of);
export const composing = (): boolean => inside;

/** Runs what an op is made of. */
export function composed<T>(f: () => T): T {
  if (inside) return f();
  inside = true;
  try {
    const result = f();
    steps?.read(result);
    return result;
  } finally {
    inside = false;
    steps?.forget();
  }
}
