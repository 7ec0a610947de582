// Nodes of ONNX tests: what they are given, their attributes and inputs, and the shapes that most handlers have.
import type { DType } from '../../src/base/dtype.js';
import type { Tensor } from '../../src/index.js';

/** An attribute as scripts/golden-onnx.py writes it; tensors were resolved. */
export type Attribute = number | string | readonly number[] | readonly string[] | Tensor | undefined;

export interface Node {
  readonly op: string;
  readonly inputs: readonly (Tensor | undefined)[];
  readonly attributes: Readonly<Record<string, Attribute>>;
  readonly opset: number;
  /** How many results are asked for. */
  readonly results: number;
}

export type Handler = (n: Node) => Tensor | readonly (Tensor | undefined)[];

export class NotServed extends Error {}

const DTYPES: Readonly<Record<number, DType>> = {
  1: 'f32',
  2: 'u8',
  5: 'i16',
  6: 'i32',
  7: 'i64',
  9: 'bool',
  10: 'f16',
  11: 'f64',
  12: 'u32',
  16: 'bf16',
  17: 'f8e4m3',
  19: 'f8e5m2',
  3: 'i8',
};

export const dtypeOf = (code: number): DType => {
  const d = DTYPES[code];
  if (!d) throw new NotServed(`dtype number ${code}`);
  return d;
};

export const RANGES: Readonly<Partial<Record<DType, readonly [number, number]>>> = {
  u8: [0, 255],
  i8: [-128, 127],
  i16: [-32768, 32767],
};

/** A cast as ONNX has it: 8-bit floats take their largest value for what is beyond, unless a node says otherwise. */
export function saturating(x: Tensor, to: DType, n: Node): Tensor {
  if (to === 'bool') return x.dtype === 'bool' ? x : x.ne(0);
  // Beyond the middle between the largest value and the next there would be: NaN, where casts here saturate.
  if (to === 'f8e4m3' && int(n, 'saturate', 1) === 0) return x.abs().le(464).where(x, NaN).cast(to);
  const bounded = to === 'f8e5m2' && int(n, 'saturate', 1) === 1;
  return (bounded ? x.clamp(-57344, 57344) : x).cast(to);
}

export const has = (n: Node, i: number): boolean => n.inputs[i] !== undefined;

export const input = (n: Node, i: number): Tensor => {
  const t = n.inputs[i];
  if (!t) throw new NotServed(`${n.op} without input ${i}`);
  return t;
};

export const int = (n: Node, name: string, otherwise: number): number =>
  (n.attributes[name] as number | undefined) ?? otherwise;

export const text = (n: Node, name: string, otherwise: string): string =>
  (n.attributes[name] as string | undefined) ?? otherwise;

export const ints = (n: Node, name: string): number[] | undefined =>
  n.attributes[name] === undefined ? undefined : [...(n.attributes[name] as readonly number[])];

/** The numbers of a small tensor. */
export const list = (t: Tensor): number[] => Array.from(t.flatten().dataSync() as ArrayLike<number | bigint>, Number);

export const listAt = (n: Node, i: number): number[] | undefined => (has(n, i) ? list(input(n, i)) : undefined);

/** Axes by attribute, or by the input that newer versions have. */
export const axesOf = (n: Node, i = 1): number[] | undefined => listAt(n, i) ?? ints(n, 'axes');

export const whole = (x: Tensor): boolean => !/^(f|bf)/.test(x.dtype);

export const same = (x: Tensor, y: Tensor): Tensor => y.cast(x.dtype);

export const inFloat = (x: Tensor, f: (x: Tensor) => Tensor): Tensor =>
  x.dtype === 'f32' || x.dtype === 'f64' ? f(x) : f(x.cast('f32')).cast(x.dtype);

export const unary =
  (f: (x: Tensor, n: Node) => Tensor): Handler =>
  (n) =>
    f(input(n, 0), n);

export const binary =
  (f: (x: Tensor, y: Tensor, n: Node) => Tensor): Handler =>
  (n) =>
    f(input(n, 0), input(n, 1), n);

export const many =
  (f: (x: Tensor, y: Tensor) => Tensor): Handler =>
  (n) =>
    n.inputs.map((t) => t as Tensor).reduce(f);

export const reduce =
  (f: (x: Tensor, dims: number[], keep: boolean) => Tensor): Handler =>
  (n) => {
    const x = input(n, 0);
    const keep = int(n, 'keepdims', 1) === 1;
    const axes = axesOf(n);
    if ((axes === undefined || axes.length === 0) && int(n, 'noop_with_empty_axes', 0) === 1)
      return n.op === 'ReduceSumSquare'
        ? x.mul(x)
        : n.op.includes('Log') || /L[12]/.test(n.op)
          ? f(x.unsqueeze(-1), [x.rank], false)
          : x;
    return f(x, axes && axes.length > 0 ? axes : x.shape.map((_, i) => i), keep);
  };

export const windowed = (x: Tensor, n: Node, kernel: readonly number[]) => {
  const rank = x.rank - 2;
  const stride = ints(n, 'strides') ?? new Array<number>(rank).fill(1);
  const dilation = ints(n, 'dilations') ?? new Array<number>(rank).fill(1);
  const auto = text(n, 'auto_pad', 'NOTSET');
  let pads = ints(n, 'pads') ?? new Array<number>(2 * rank).fill(0);
  if (auto === 'VALID') pads = pads.map(() => 0);
  if (auto.startsWith('SAME')) {
    const total = kernel.map((k, i) => {
      const size = x.shape[i + 2];
      return Math.max(0, (Math.ceil(size / stride[i]) - 1) * stride[i] + (k - 1) * dilation[i] + 1 - size);
    });
    const less = total.map((t) => Math.floor(t / 2));
    const more = total.map((t, i) => t - less[i]);
    pads = auto === 'SAME_UPPER' ? [...less, ...more] : [...more, ...less];
  }
  return { rank, stride, dilation, begin: pads.slice(0, rank), end: pads.slice(rank) };
};

/** Padding of the last dimensions as `pad` takes it: last dimension first. */
export const padList = (begin: readonly number[], end: readonly number[]): number[] =>
  begin
    .map((b, i) => [b, end[i]])
    .reverse()
    .flat();

export const one = <T>(v: readonly T[]): T | readonly T[] => (v.length === 1 ? v[0] : v);
