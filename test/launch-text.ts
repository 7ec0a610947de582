// Plans as text, a line a step, of operands at addresses that tell whose they are.
import { createHash } from 'node:crypto';
import { bytesOf, type DType, kernelDType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import type { View } from '../src/backends/backend.js';
import { chainLaunch } from '../src/backends/gpu/elementwise.js';
import { planRow } from '../src/backends/gpu/families.js';
import type { Served } from '../src/backends/gpu/libraries.js';
import { FAULT, type Launch, type Step, Temporary } from '../src/backends/gpu/plan.js';
import type { DeviceInfo } from '../src/driver/driver.js';
import type { KernelRow, RunRow } from '../src/ops/op.js';
import { LAYOUTS } from '../src/testing/layouts.js';

/** Operands stand a power of two apart, so that an address tells whose it is and how far in. */
export const SLOT = 2 ** 44;
const nameOf = (address: number): string => {
  const [slot, offset] = [Math.floor(address / SLOT), address % SLOT];
  return `${slot === 0 ? 'temporary' : slot >= 100 ? `out${slot - 100}` : `in${slot - 1}`}+${offset}`;
};
const isView = (v: object): v is View => 'memory' in v && 'layout' in v;
const short = (text: string | Uint8Array): string => createHash('sha256').update(text).digest('hex').slice(0, 12);
const viewText = (v: View): string =>
  `${v.memory instanceof Temporary ? `temporary of ${v.memory.bytes}` : nameOf(v.memory.address)} ` +
  `${v.dtype}[${v.layout.shape}]/${v.layout.strides}@${v.layout.offset}`;
/** A value of an argument, or of anything that a step holds. */
function text(v: unknown): string {
  if (typeof v === 'function') return 'our own kernels';
  if (typeof v !== 'object' || v === null) return String(v);
  if (isView(v)) return viewText(v);
  if (Array.isArray(v)) return `[${v.map(text)}]`;
  if (v === FAULT) return 'fault';
  if ('buffer' in v && 'offset' in v) return `${v.buffer}+${v.offset}`;
  return `{${Object.entries(v)
    .filter(([, x]) => x !== undefined)
    .map(([k, x]) => `${k}:${text(x)}`)
    .join(' ')}}`;
}
export const launchText = (l: Launch): string =>
  `${l.symbol}<${l.grid}|${l.block}|${l.shared}>${l.early ? ' early' : ''} ${text(l.args)}`;
export function stepText(step: Step): string {
  if ('launches' in step)
    return `${step.launches.map(launchText).join(' ; ')} scratch ${step.scratch} with ${text(step.buffers)}`;
  if ('chain' in step) {
    const { chain, out, inputs, scalars } = step;
    const p = chainLaunch(
      chain,
      out.layout,
      inputs.map((v) => v.layout),
    );
    return `${p.symbol}<${p.grid}|${p.block}> ${p.offsets} ${short(p.head)} ${text([out, inputs, scalars])}`;
  }
  return text(step);
}

export interface Signature {
  readonly shape: readonly number[];
  readonly dtype: DType;
}
export type Place = 'contiguous' | 'offset' | 'transposed' | 'repeated' | 'second' | 'turned';
const PLACES: Readonly<Record<Place, (shape: readonly number[], i: number) => Layout | undefined>> = {
  contiguous: LAYOUTS.contiguous,
  offset: LAYOUTS.offset,
  transposed: LAYOUTS.transposed,
  /** Every row is the first one. */
  repeated: (shape) =>
    shape.length < 2 ? undefined : Layout.contiguous([1, ...shape.slice(1)]).broadcastTo('repeated', shape),
  /** What is asked of one operand must not be taken from another. */
  second: (shape, i) => (i % 2 === 1 ? LAYOUTS.offset : LAYOUTS.contiguous)(shape),
  /** Weights lie as layers keep them. */
  turned: (shape, i) => (i % 2 === 1 ? LAYOUTS.transposed : LAYOUTS.contiguous)(shape),
};
export const placesOf = (inputs: readonly unknown[]): readonly Place[] =>
  (['contiguous', 'offset', 'transposed', 'repeated', 'second'] as const).filter(
    (p) => p !== 'second' || inputs.length > 1,
  );
function views(sigs: readonly Signature[], from: number, place: Place): View[] {
  return sigs.map(({ shape, dtype }, i) => {
    const layout = PLACES[place](shape, i) ?? Layout.contiguous(shape);
    const memory = { bytes: layout.end * bytesOf(dtype), address: (from + i) * SLOT };
    return { memory, layout, dtype: kernelDType(dtype) };
  });
}
/** A step of operands that lie as the line above says: without them. */
export const briefText = (step: Step): string =>
  'launches' in step ? `${step.launches.map(launchText).join(' ; ')} scratch ${step.scratch}` : stepText(step);
interface Call {
  readonly row: KernelRow<any>;
  readonly dtype: DType;
  readonly inputs: readonly { readonly shape: readonly number[]; readonly dtype?: DType }[];
  readonly params: object;
  readonly on: DeviceInfo;
}
/** The plan of a call under a line that says which call it is. */
export function callText(
  { row, dtype, inputs: given, params, on }: Call,
  { place = 'contiguous' as Place, plan = planRow, served = undefined as Served | undefined, text = stepText } = {},
): string[] {
  const inputs = given.map((s): Signature => ({ shape: s.shape, dtype: s.dtype ?? dtype }));
  const outputs = views(row.infer(inputs, params), 100, 'contiguous');
  if (outputs.every((v) => v.layout.size === 0)) return []; // nobody asks a device for them
  return [
    `# ${row.name} ${dtype} ${place} ${inputs.map((s) => `[${s.shape}]`).join(' ')}`,
    ...plan(row as unknown as RunRow, views(inputs, 1, place), outputs, params as never, on, served).map(text),
  ];
}
