// WebNN graphs of the conformance data: values in and out of our tensors, one operator after another.
import { DTYPE, type DType, type Value } from '../../src/base/dtype.js';
import { Device } from '../../src/tensor/device.js';
import { full } from '../../src/tensor/create.js';
import { Tensor } from '../../src/tensor/tensor.js';
import { encodeValues } from '../../src/testing/values.js';
import { type Argument, OPERATORS } from './operators.js';

type Scalar = number | string | { $num: string } | { $bigint: string };
interface Operand {
  readonly data: Scalar | readonly Scalar[];
  readonly descriptor: { readonly shape: readonly number[]; readonly dataType: string };
}
export interface WebnnCase {
  readonly name: string;
  readonly graph: {
    readonly inputs: Readonly<Record<string, Operand>>;
    readonly operators: readonly {
      name: string;
      arguments: readonly Readonly<Record<string, unknown>>[];
      outputs: string | readonly string[];
    }[];
    readonly expectedOutputs: Readonly<Record<string, Operand>>;
  };
}

/** WebNN's types in ours: those we lack go to a wider one that holds every value. */
export const TYPES: Readonly<Record<string, DType>> = {
  float32: 'f32',
  float16: 'f16',
  int32: 'i32',
  uint32: 'u32',
  int64: 'i64',
  uint64: 'i64',
  int8: 'i16',
  uint8: 'u8',
  int4: 'i16',
  uint4: 'u8',
};

/** Numbers of the data: JSON holds no NaN, infinity, -0 or big integer. */
export function scalar(v: Scalar): Value {
  if (typeof v === 'number') return v;
  if (typeof v === 'string') return BigInt(v);
  if ('$bigint' in v) return BigInt(v.$bigint);
  return v.$num === '-0' ? -0 : Number(v.$num);
}

export const valuesOf = ({ data, descriptor: { shape } }: Operand): Value[] =>
  Array.isArray(data)
    ? (data as Scalar[]).map(scalar)
    : new Array<Value>(shape.reduce((a, b) => a * b, 1)).fill(scalar(data as Scalar));

/** One value over millions of elements: made and judged on the device. */
export const isHuge = ({ data, descriptor: { shape } }: Operand): boolean =>
  !Array.isArray(data) && shape.reduce((a, b) => a * b, 1) > 1e6;

function toTensor(o: Operand, device: Device): Tensor {
  const dtype = TYPES[o.descriptor.dataType];
  if (isHuge(o)) return full(o.descriptor.shape, Number(scalar(o.data as Scalar)), { dtype, device });
  const float = DTYPE[dtype].kind === 'float';
  return Tensor.fromBytes(
    encodeValues(
      valuesOf(o).map((v) => (float ? Number(v) : BigInt(v))),
      dtype,
    ),
    o.descriptor.shape,
    dtype,
    device,
  );
}

/** Why a case cannot be expressed here, or undefined. */
export function unsupported(c: WebnnCase, device: Device): string | undefined {
  const unknown = c.graph.operators.find((o) => !Object.hasOwn(OPERATORS, o.name));
  if (unknown) return `${unknown.name} is not in the interpreter's table`;
  const all = [...Object.values(c.graph.inputs), ...Object.values(c.graph.expectedOutputs)];
  if (device.name === 'reference' && all.some(isHuge))
    return 'millions of elements: not for the engine that counts them one by one';
  const wide = all.find(
    (o) => o.descriptor.dataType === 'uint64' && valuesOf(o).some((v) => BigInt(v) > 2n ** 63n - 1n),
  );
  return wide ? 'uint64 values beyond 2^63 have no dtype of ours' : undefined;
}

/** Runs a graph; results by name. */
export function runGraph(c: WebnnCase, device: Device): Map<string, Tensor> {
  const values = new Map<string, Tensor>();
  const types = new Map<string, string>();
  for (const [name, operand] of Object.entries(c.graph.inputs)) {
    values.set(name, toTensor(operand, device));
    types.set(name, operand.descriptor.dataType);
  }
  const resolve = (v: unknown): Argument => {
    if (typeof v === 'string') return values.get(v) ?? v;
    if (Array.isArray(v)) return v.map(resolve);
    return typeof v === 'object' && v !== null ? scalar(v as Scalar) : v;
  };
  for (const op of c.graph.operators) {
    const args: Argument[] = [];
    let options: Record<string, Argument> = {};
    // Names of inputs whose declared type matters (quantized types narrower than ours).
    const declared: (string | undefined)[] = [];
    for (const a of op.arguments)
      for (const [key, v] of Object.entries(a)) {
        if (key === 'options')
          options = Object.fromEntries(Object.entries(v as object).map(([k, o]) => [k, resolve(o)]));
        else {
          args.push(resolve(v));
          declared.push(typeof v === 'string' ? types.get(v) : undefined);
        }
      }
    const result = OPERATORS[op.name]({ args, options, declared, device });
    const outs = Array.isArray(result) ? (result as Tensor[]) : [result as Tensor];
    const names = typeof op.outputs === 'string' ? [op.outputs] : op.outputs;
    names.forEach((n, i) => {
      values.set(n, outs[i]);
      // Quantizing gives the zero point's type; everything else that is int8 here stays so by its input.
      types.set(n, (op.name === 'quantizeLinear' ? declared[2] : declared[0]) ?? '');
    });
  }
  return values;
}
