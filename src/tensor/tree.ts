// Tensors in lists and records of any depth.
import { Tensor } from './tensor.js';

/** A tensor, or lists and records of tensors, of any depth. */
export type TensorTree = Tensor | readonly TensorTree[] | { readonly [key: string]: TensorTree };

/** The same form with every tensor changed; what is neither is told to `refuse` by its place and kind. */
export function mapTensors<T>(
  value: T,
  where: string,
  change: (t: Tensor) => Tensor,
  refuse: (where: string, kind: string) => never,
): T {
  const each = (v: unknown, at: string): unknown => {
    if (v === undefined || v === null) return undefined;
    if (v instanceof Tensor) return change(v);
    if (Array.isArray(v)) return v.map((inner, i) => each(inner, `${at}[${i}]`));
    if (typeof v === 'object' && Object.getPrototypeOf(v) === Object.prototype)
      return Object.fromEntries(Object.entries(v).map(([k, inner]) => [k, each(inner, `${at}.${k}`)]));
    return refuse(at, typeof v === 'object' ? `a ${v.constructor?.name}` : `a ${typeof v}`);
  };
  return each(value, where) as T;
}
