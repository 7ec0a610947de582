// Shapes: sizes, broadcasting, dimension arguments, and the sentences said when they do not fit.
import { ArgumentError, ShapeError } from './errors.js';

/** Sizes of the dimensions, outermost first. */
export type Shape = readonly number[];

export const formatShape = (s: Shape): string => `[${s.join(', ')}]`;
export const sizeOf = (s: Shape): number => s.reduce((a, b) => a * b, 1);
export function sameShape(a: Shape, b: Shape): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

export function contiguousStrides(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  for (let i = shape.length - 1, s = 1; i >= 0; i--) {
    strides[i] = s;
    s *= shape[i];
  }
  return strides;
}

export function checkShape(op: string, shape: Shape): void {
  if (!Array.isArray(shape)) {
    const kind = shape === null ? 'null' : typeof shape;
    throw new ShapeError(`${op}: the shape is ${kind}, not an array of whole numbers`);
  }
  let size = 1;
  for (let i = 0; i < shape.length; i++) {
    const d = shape[i];
    if (!Number.isSafeInteger(d) || d < 0) {
      throw new ShapeError(
        `${op}: shape [${shape.map(said).join(', ')}] holds ${said(d)}; dimensions are whole numbers from 0`,
      );
    }
    size *= d;
  }
  // Sizes in bytes are numbers too, and an element has up to eight.
  if (size > MOST_ELEMENTS) throw new ShapeError(`${op}: shape ${formatShape(shape)} has more than 2^50 elements`);
}
const MOST_ELEMENTS = 2 ** 50;
/** What stands where a number should, without asking it to turn itself into one. */
export const said = (v: unknown): string =>
  typeof v === 'number' ? String(v) : typeof v === 'string' ? JSON.stringify(v) : kindOf(v);
/** What stands where a tensor or a number should: most mistakes are known by it. */
export function kindOf(v: unknown): string {
  if (v === null) return 'null';
  if (Array.isArray(v)) return 'a list (tensor(list) makes one of it)';
  if (typeof v !== 'object') return typeof v;
  if (typeof (v as { then?: unknown }).then === 'function') return 'a promise (await it first)';
  return 'dtype' in v && 'layout' in v ? 'a tensor' : 'object';
}

/** A dimension argument, negative from the end; `extra` 1 allows the place after the last (unsqueeze, stack). */
export function normalizeDim(op: string, dim: number, rank: number, extra = 0): number {
  if (typeof dim !== 'number') throw new ShapeError(`${op}: a dimension is a whole number, not ${said(dim)}`);
  const n = rank + extra;
  const d = dim < 0 ? dim + n : dim;
  if (!Number.isInteger(dim) || d < 0 || d >= n) {
    throw new ShapeError(
      n === 0
        ? `${op}: dimension ${dim} of a rank-0 tensor, which has none`
        : `${op}: dimension ${dim} is out of range for rank ${rank} (allowed: ${-n} to ${n - 1})`,
    );
  }
  return d;
}

/** Several dimensions, all when undefined, sorted and distinct. */
export function normalizeDims(op: string, dims: number | readonly number[] | undefined, rank: number): number[] {
  if (dims === undefined) return Array.from({ length: rank }, (_, i) => i);
  const given = typeof dims === 'number' ? [dims] : dims;
  if (!Array.isArray(given))
    throw new ArgumentError(`${op}: dimensions are a whole number or a list of them, not ${said(given)}`);
  const list = given.map((d) => normalizeDim(op, d, rank));
  if (new Set(list).size !== list.length) {
    throw new ShapeError(`${op}: dimensions ${formatShape(list)} name one twice`);
  }
  return list.sort((a, b) => a - b);
}

export function broadcastShapes(op: string, ...shapes: Shape[]): Shape {
  const first = shapes[0];
  if (shapes.every((s) => s === first || sameShape(s, first))) return first;
  const rank = Math.max(...shapes.map((s) => s.length));
  const out = new Array<number>(rank).fill(1);
  for (const s of shapes) {
    for (let i = 0; i < s.length; i++) {
      const at = rank - s.length + i;
      if (s[i] === out[at] || s[i] === 1) continue;
      if (out[at] !== 1) {
        throw new ShapeError(
          `${op}: shapes ${shapes.map(formatShape).join(' and ')} do not broadcast: ` +
            `dimension ${at - rank} is ${out[at]} and ${s[i]}; they must be equal or 1`,
        );
      }
      out[at] = s[i];
    }
  }
  return out;
}

/** Fills a single -1 in a reshape target and checks the element count. One pass: it is half of what a view costs. */
export function resolveReshape(op: string, from: Shape, to: Shape): number[] {
  const out = to.slice();
  let known = 1;
  let hole = -1;
  let whole = true;
  for (let i = 0; i < out.length; i++) {
    const d = out[i];
    if (d !== -1) known *= d;
    else if (hole >= 0) throw new ShapeError(`${op}: ${formatShape(to)} has more than one -1`);
    else hole = i;
    whole &&= d >= -1 && Number.isInteger(d);
  }
  let size = 1;
  for (let i = 0; i < from.length; i++) size *= from[i];
  if (hole >= 0) out[hole] = size / known;
  if (!whole || (hole < 0 ? known !== size : !Number.isInteger(out[hole]) || known * out[hole] !== size))
    throw new ShapeError(
      `${op}: ${formatShape(from)} has ${size} elements, ${formatShape(to)} ${
        hole >= 0 ? `needs a multiple of ${known}` : `has ${known}`
      }`,
    );
  return out;
}

/** A pair from a number or a pair: stride, padding and dilation arguments. */
export function pair(op: string, name: string, v: number | readonly number[]): [number, number] {
  const p = typeof v === 'number' ? [v, v] : v;
  if (!Array.isArray(p) || p.length !== 2)
    throw new ArgumentError(
      `${op}: ${name} takes a number or a pair, not ${Array.isArray(p) ? formatShape(p) : said(p)}`,
    );
  return [p[0], p[1]];
}
