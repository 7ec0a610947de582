// The one check in front of every call into a backend: native code believes whatever it is told.
import type { Backend, ChainStep, View } from '../backends/backend.js';
import { bytesOf, type DType, kernelDType } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import type { Params, RunRow } from '../ops/op.js';

/** The name that errors bear. */
interface Named {
  readonly name: string;
  readonly serves?: string;
}
const nameOf = (row: Named): string => row.serves ?? row.name;

function checkView(row: Named, view: View): void {
  const { memory, layout, dtype } = view;
  if (layout.fits(memory.bytes / bytesOf(dtype))) return;
  throw new ShapeError(
    `${nameOf(row)}: an operand of shape ${formatShape(layout.shape)} with strides ${formatShape(layout.strides)} ` +
      `from ${layout.offset} does not lie within its ${memory.bytes} bytes of ${dtype}`,
  );
}

/**
 * Parameters are numbers, strings and lists of them. An object could run code, or turn into another number, while a
 * call is made ready.
 */
export function checkParams(row: Named, params: Params): void {
  for (const name in params) {
    const value = params[name];
    if (typeof value === 'object' ? !isPlain(value) : typeof value === 'function' || typeof value === 'symbol')
      throw new ArgumentError(`${nameOf(row)}: ${name} is ${kindOf(value)}, not plain data`);
  }
}
function isPlain(value: unknown): boolean {
  if (value === null) return true;
  if (typeof value !== 'object') return typeof value !== 'function' && typeof value !== 'symbol';
  return Array.isArray(value) && value.every(isPlain);
}
const kindOf = (v: unknown): string =>
  Array.isArray(v)
    ? 'a list of objects'
    : typeof v === 'object'
      ? `an object (${v?.constructor?.name})`
      : `a ${typeof v}`;

interface Typed {
  readonly dtype: DType;
  readonly shape: readonly number[];
}
/** Operands have one dtype unless the row says that it mixes them and checks each itself. */
export function checkDTypes(row: Named & { readonly mixed?: true }, inputs: readonly Typed[]): void {
  if (row.mixed) return;
  for (let i = 1; i < inputs.length; i++) if (inputs[i].dtype !== inputs[0].dtype) differ(row, inputs[0], inputs[i]);
}
export function differ(row: Named, a: Typed, b: Typed): never {
  throw new DTypeError(
    `${nameOf(row)}: operands have different dtypes, ${a.dtype} ${formatShape(a.shape)} and ${b.dtype} ` +
      `${formatShape(b.shape)}; cast one`,
  );
}

/** An operand as engines take it: truth values are u8 to them. */
const kernelView = (v: View): View =>
  v.dtype === 'bool' ? { memory: v.memory, layout: v.layout, dtype: kernelDType(v.dtype) } : v;
function kernelViews(views: readonly View[]): readonly View[] {
  for (let i = 0; i < views.length; i++) if (views[i].dtype === 'bool') return views.map(kernelView);
  return views;
}

/** Runs a row on operands that lie within their memory. */
export function launch(
  backend: Backend,
  row: RunRow,
  inputs: readonly View[],
  outputs: readonly View[],
  params: Params,
): void {
  for (let i = 0; i < inputs.length; i++) checkView(row, inputs[i]);
  for (let i = 0; i < outputs.length; i++) checkView(row, outputs[i]);
  backend.run(row, kernelViews(inputs), kernelViews(outputs), params);
}

const FUSE: Named = { name: 'fuse' };
/** The same for a chain of rows. */
export function launchChain(backend: Backend, steps: readonly ChainStep[], inputs: readonly View[], out: View): void {
  for (const view of inputs) checkView(FUSE, view);
  checkView(FUSE, out);
  backend.runChain?.(steps, kernelViews(inputs), kernelView(out));
}
