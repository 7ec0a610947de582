// The case list: op x dtype x layout x sample, enumerated from the table. One list serves tests, parity and benches.
import { DTYPE, type DType, isFloat, type Value } from '../base/dtype.js';
import type { Layout } from '../base/layout.js';
import { sizeOf, type Shape } from '../base/shape.js';
import type { CompositeRow, CompositeSample, InputSpec, Row, Sample } from '../ops/op.js';
import { opList } from '../ops/table.js';
import type { GradRow } from '../tensor/autograd.js';
import type { Device } from '../tensor/device.js';
import { apply } from '../tensor/dispatch.js';
import type { Tensor } from '../tensor/tensor.js';
import { LAYOUT_NAMES, LAYOUTS, type LayoutName, put, type Stored, stored } from './layouts.js';
import { EDGES, inputValues, randomizer, seedOf } from './values.js';

export interface Case {
  /** 'exp/f32/transposed/2': op, dtype, layout, sample. */
  readonly name: string;
  readonly row: Row;
  readonly dtype: DType;
  readonly layout: LayoutName | 'broadcast';
  readonly sample: Sample | CompositeSample;
  /** Values given instead of drawn: the edge cases. */
  readonly values?: readonly number[];
}

const DEFAULT_DOMAIN: readonly [number, number] = [-3, 3];
/** Shapes for elementwise rows: plain, rank 0, rank 5, empty, odd and larger than any vector or tile. */
const ELEMENTWISE_SHAPES: readonly Shape[] = [[3, 5], [], [2, 1, 3, 2, 2], [0, 3], [1031], [37, 65]];

function elementwiseSamples(row: Row & { family: 'elementwise' }): Sample[] {
  const params = row.samples?.()[0].params ?? {};
  const plain = ELEMENTWISE_SHAPES.map((shape) => ({ inputs: inputsOf(row, shape, shape), params }));
  const extra = row.samples?.().map((s: Sample) => ({ inputs: s.inputs, params: s.params })) ?? [];
  const mixed: readonly (readonly [Shape, Shape])[] =
    row.arity > 1
      ? [
          [
            [3, 1, 4],
            [2, 1],
          ],
          [[2, 3], []],
          [[5], [4, 5]],
        ]
      : [];
  return [...plain, ...extra, ...mixed.map(([a, b]) => ({ inputs: inputsOf(row, a, b), params }))];
}

function inputsOf(row: Row & { family: 'elementwise' }, a: Shape, b: Shape): InputSpec[] {
  return Array.from({ length: row.arity }, (_, i) => {
    const shape = i === 0 ? a : b;
    return row.masked && i === 0 ? { shape, dtype: 'bool' } : { shape };
  });
}

const samplesOf = (row: Row): readonly (Sample | CompositeSample)[] =>
  row.family === 'elementwise' ? elementwiseSamples(row) : row.samples();

/** Every case of a row, or of all rows; of one dtype where it is named. */
export function* casesOf(rows: readonly Row[] = opList, only?: DType): Generator<Case> {
  for (const row of rows) {
    for (const dtype of row.dtypes) {
      if (only && dtype !== only) continue;
      const samples = samplesOf(row);
      for (const [i, sample] of samples.entries()) {
        const layouts = sample.inputs.length === 0 ? (['contiguous'] as const) : LAYOUT_NAMES;
        for (const layout of layouts) {
          const fits = sample.inputs.length === 0 || sample.inputs.some((s) => LAYOUTS[layout](s.shape) !== undefined);
          if (fits) yield { name: `${row.name}/${dtype}/${layout}/${i}`, row, dtype, layout, sample };
        }
        if (sample.inputs.some((s) => sizeOf(s.shape) > 1))
          yield { name: `${row.name}/${dtype}/broadcast/${i}`, row, dtype, layout: 'broadcast', sample };
      }
      if (row.family === 'elementwise' && isFloat(dtype) && !row.noEdges) yield edgeCase(row, dtype);
    }
  }
}

function edgeCase(row: Row & { family: 'elementwise' }, dtype: DType): Case {
  const n = EDGES.length;
  const shape = row.arity === 1 ? [n] : [n * n];
  const sample: Sample = { inputs: inputsOf(row, shape, shape), params: row.samples?.()[0].params ?? {} };
  return { name: `${row.name}/${dtype}/contiguous/edges`, row, dtype, layout: 'contiguous', sample, values: EDGES };
}

/** Dimensions a broadcast input repeats: the first larger than one, stride 0. */
function broadcastLayout(shape: Shape): { layout: Layout; small: number[] } | undefined {
  const d = shape.findIndex((n) => n > 1);
  if (d < 0) return undefined;
  const small = shape.map((n, i) => (i === d ? 1 : n));
  return { layout: LAYOUTS.contiguous(small).broadcastTo('test', shape), small };
}

/** The inputs of a case as they lie in memory, with the values they hold in logical order. */
export function storedInputs(c: Case): { inputs: Stored[]; values: Value[][] } {
  const random = randomizer(seedOf(c.name));
  const domain = c.row.domain ?? DEFAULT_DOMAIN;
  const inputs: Stored[] = [];
  const all: Value[][] = [];
  c.sample.inputs.forEach((spec, i) => {
    const dtype = spec.dtype ?? c.dtype;
    let values =
      c.values && !spec.ints && !spec.values ? edgeValues(c, i, dtype) : inputValues(spec, dtype, domain, random);
    // Index operands and distinct values must not be thinned out by a broadcast.
    const spread = c.layout === 'broadcast' && !spec.distinct && !spec.values ? broadcastLayout(spec.shape) : undefined;
    if (spread) {
      const few = values.slice(0, sizeOf(spread.small));
      values = [];
      spread.layout.forEach((at, index) => (values[at] = few[index]));
      inputs.push({ ...stored(few, LAYOUTS.contiguous(spread.small), dtype), layout: spread.layout });
    } else {
      const layout = c.layout === 'broadcast' ? undefined : LAYOUTS[c.layout](spec.shape);
      inputs.push(stored(values, layout ?? LAYOUTS.contiguous(spec.shape), dtype));
    }
    all.push(values);
  });
  return { inputs, values: all };
}

/** The inputs of a case on a device. */
export function buildInputs(c: Case, device: Device): { tensors: Tensor[]; values: Value[][] } {
  const { inputs, values } = storedInputs(c);
  return { tensors: inputs.map((i) => put(i, device)), values };
}

function edgeValues(c: Case, input: number, dtype: DType): Value[] {
  const n = EDGES.length;
  const { encode, decode, Raw } = DTYPE[dtype];
  const cell = new Raw(new ArrayBuffer(8), 0, 1);
  const round = (v: number): Value => {
    cell[0] = encode(v) as never;
    return decode(cell[0]);
  };
  if (c.sample.inputs.length === 1) return EDGES.map(round);
  // All pairs: the first value operand changes slowly, the second fast.
  return Array.from({ length: n * n }, (_, i) =>
    round(EDGES[input === c.sample.inputs.length - 1 ? i % n : Math.floor(i / n)]),
  );
}

/** Runs a case's op on inputs. */
export function runCase(
  c: { readonly row: Row; readonly sample: Sample | CompositeSample; readonly dtype: DType },
  inputs: readonly Tensor[],
  device: Device,
): Tensor[] {
  if (c.row.family === 'composite') {
    const args = (c.sample as CompositeSample).args.map((a) => fill(a, inputs));
    const result = (c.row as CompositeRow).compose(inputs[0], ...(args as never[]));
    return Array.isArray(result) ? [...(result as Tensor[])] : [result as Tensor];
  }
  const { params } = c.sample as Sample;
  const own = inputs.length === 0 && 'dtype' in params ? { ...params, dtype: c.dtype } : params;
  return apply(c.row as GradRow, inputs, own, device);
}

function fill(arg: unknown, inputs: readonly Tensor[]): unknown {
  if (Array.isArray(arg)) return arg.map((a) => fill(a, inputs));
  if (typeof arg !== 'object' || arg === null) return arg;
  return 'input' in arg
    ? inputs[(arg as { input: number }).input]
    : Object.fromEntries(Object.entries(arg).map(([name, a]) => [name, fill(a, inputs)]));
}
