// Scopes free in bulk: everything made inside goes at the end, except what is returned or kept.
import { ArgumentError } from '../base/errors.js';
import type { Tensor } from './tensor.js';

let current: Set<Tensor> | undefined;
/** What was made since the outermost `wholeOrNothing` that runs, or since an inner one, began. */
let attempt: Set<Tensor> | undefined;

/** Called for every new tensor handle. */
export function track(t: Tensor): void {
  current?.add(t);
  attempt?.add(t);
}

/** Takes tensors out of the running scope: they live on until disposed of or unreachable. */
export function keep<T extends Tensor>(t: T): T {
  current?.delete(t);
  return t;
}

/** Takes tensors, however deep inside they are made, to the scope that runs when it is asked for. */
export function keeper(): <T extends Tensor>(t: T) => T {
  const mine = current;
  return (t) => {
    if (current !== mine && current?.delete(t)) mine?.add(t);
    return t;
  };
}

/** Runs f and puts every tensor handle that it makes into `into`, and into no scope; whoever asked looks after them. */
export function collected<T>(into: Set<Tensor>, f: () => T): T {
  const outer = current;
  current = into;
  try {
    return f();
  } finally {
    current = outer;
  }
}

/**
 * Runs f; if it throws, every tensor made in it is given back, those too that were taken out of scopes to be kept.
 * Otherwise they belong to whom they would belong to without it.
 */
export function wholeOrNothing<T>(f: () => T): T {
  const outer = attempt;
  const made = new Set<Tensor>();
  attempt = made;
  try {
    return f();
  } catch (e) {
    for (const t of made) t.dispose();
    made.clear();
    throw e;
  } finally {
    attempt = outer;
    if (outer) for (const t of made) outer.add(t);
  }
}

type Held =
  | Tensor
  | undefined
  | null
  | string
  | number
  | boolean
  | bigint
  | readonly Held[]
  | { readonly [key: string]: unknown };

function collect(value: unknown, found: Set<Tensor>, seen: Set<unknown>): void {
  if (value === null || typeof value !== 'object' || seen.has(value)) return;
  seen.add(value);
  if (isTensor(value)) {
    found.add(value);
    return;
  }
  if (ArrayBuffer.isView(value)) return;
  const inner =
    value instanceof Map
      ? value.values()
      : Symbol.iterator in value
        ? (value as Iterable<unknown>)
        : Object.values(value);
  for (const v of inner) collect(v, found, seen);
}

const isTensor = (v: object): v is Tensor => 'layout' in v && 'dtype' in v && 'dispose' in v;

function close(made: Set<Tensor>, result: unknown, outer: Set<Tensor> | undefined): void {
  const returned = new Set<Tensor>();
  collect(result, returned, new Set());
  for (const t of made) {
    if (returned.has(t)) outer?.add(t);
    else t.dispose();
  }
}

/**
 * Runs f and disposes of every tensor made in it that its result does not hold (arrays, maps and plain objects are
 * searched).
 */
export function scope<T extends Held | void>(f: () => T): T {
  if (typeof f !== 'function') throw new ArgumentError('scope: takes a function, as in scope(() => model.forward(x))');
  const outer = current;
  const made = new Set<Tensor>();
  current = made;
  let result: T | undefined;
  try {
    result = f();
    if (typeof (result as { then?: unknown } | undefined)?.then === 'function') {
      (result as unknown as Promise<unknown>).then(undefined, () => {}); // refused here already
      throw new ArgumentError(
        'scope: the function is async; what it makes after its first await would be outside the scope. Await ' +
          'outside, or dispose() by hand',
      );
    }
    return result;
  } finally {
    current = outer;
    close(made, result, outer);
  }
}
