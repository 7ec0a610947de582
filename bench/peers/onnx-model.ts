// ONNX models of one node, written as protocol buffers: what a benchmark of onnxruntime needs, and no more.

export interface OneNode {
  readonly op: string;
  /** Where the op is defined, if not by ONNX itself. */
  readonly domain?: string;
  readonly inputs: readonly (readonly number[])[];
  readonly output: readonly number[];
  /** Whole numbers, lists of them, and text. */
  readonly attributes?: Readonly<Record<string, number | readonly number[] | string>>;
}

type Field = readonly [id: number, value: number | Uint8Array | string];

function varint(n: number): number[] {
  const out: number[] = [];
  let v = BigInt.asUintN(64, BigInt(n));
  for (; v > 127n; v >>= 7n) out.push(Number(v & 127n) | 128);
  return [...out, Number(v)];
}

function message(...fields: readonly Field[]): Uint8Array {
  const parts = fields.map(([id, value]) => {
    if (typeof value === 'number') return Uint8Array.from([...varint(id << 3), ...varint(value)]);
    const body = typeof value === 'string' ? new TextEncoder().encode(value) : value;
    return Uint8Array.from([...varint((id << 3) | 2), ...varint(body.length), ...body]);
  });
  return Uint8Array.from(Buffer.concat(parts));
}

const FLOAT = 1;
const tensor = (name: string, shape: readonly number[]): Uint8Array =>
  message(
    [1, name],
    [2, message([1, message([1, FLOAT], [2, message(...shape.map((d): Field => [1, message([1, d])]))])])],
  );

function attribute(name: string, value: number | readonly number[] | string): Uint8Array {
  if (typeof value === 'number') return message([1, name], [3, value], [20, 2]);
  if (typeof value === 'string') return message([1, name], [4, value], [20, 3]);
  return message([1, name], ...value.map((v): Field => [8, v]), [20, 7]);
}

/** Inputs are x0, x1, ...; the output is y. */
export function oneNode({ op, domain, inputs, output, attributes = {} }: OneNode): Uint8Array {
  const names = inputs.map((_, i) => `x${i}`);
  const node = message(
    ...names.map((n): Field => [1, n]),
    [2, 'y'],
    [4, op],
    ...(domain ? [[7, domain] as Field] : []),
    ...Object.entries(attributes).map(([k, v]): Field => [5, attribute(k, v)]),
  );
  const graph = message([1, node], [2, 'bench'], ...inputs.map((shape, i): Field => [11, tensor(names[i], shape)]), [
    12,
    tensor('y', output),
  ]);
  return message(
    [1, 9],
    [8, message([1, ''], [2, 20])],
    ...(domain ? [[8, message([1, domain], [2, 1])] as Field] : []),
    [7, graph],
  );
}
