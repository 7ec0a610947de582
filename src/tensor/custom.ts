// Ops of one's own: a CPU function, GPU source and a gradient make a function that is used like a Tensor method.
import { addRow } from '../backends/custom-rows.js';
import { DTYPE, type DType, isFloat } from '../base/dtype.js';
import { ArgumentError, DTypeError } from '../base/errors.js';
import { formatShape, sizeOf } from '../base/shape.js';
import type { CustomKernel, ElementwiseRow, GradContext, Grads, KernelRow, Params, RefTensor, Sig } from '../ops/op.js';
import { OPS } from '../ops/table.js';
import type { GradRow } from './autograd.js';
import { apply } from './dispatch.js';
import { Tensor } from './tensor.js';

/** Elements of an operand on the CPU: doubles, and bigints where the dtype is i64. */
export type HostData = Float64Array | BigInt64Array;
/** An operand of a user's op on the CPU. */
export interface HostOperand extends Sig {
  /** Its elements in row-major order. */
  readonly data: HostData;
}

interface CommonDefinition {
  /** A name of its own, made of letters, digits and _: errors and kernels bear it. */
  readonly name: string;
  /** How many tensors it takes. */
  readonly inputs: number;
  /** What it takes; others are refused by name. */
  readonly dtypes: readonly DType[];
  /** One gradient per input, or the only one; without it the result is cut off from the graph. */
  readonly grad?: (ctx: GradContext) => Tensor | Grads;
}
/** out[i] = f(x[i], y[i], ...; a, b), broadcast like every elementwise op. */
export interface ElementwiseDefinition extends CommonDefinition {
  /** One element in double: operands, then scalars. */
  readonly cpu: (...values: number[]) => number;
  /** One element of an integer dtype, where the op takes such. */
  readonly int?: (...values: bigint[]) => bigint;
  /** The same as an expression of kernels/README.md: operands x, y, z; scalars a, b. */
  readonly gpu: string;
  /** Names of up to two numbers, given in an object after the tensors. */
  readonly scalars?: readonly string[];
}
/** Whole tensors in, whole tensors out. */
export interface KernelDefinition extends CommonDefinition {
  /** Shapes and dtypes of the results. */
  readonly infer: (inputs: readonly Sig[], params: Params) => readonly Sig[];
  /** Fills the outputs' data; inputs are contiguous. */
  readonly cpu: (inputs: readonly HostOperand[], outputs: readonly HostOperand[], params: Params) => void;
  /** Source and launch for GPUs; without it GPUs refuse the op with a sentence. */
  readonly gpu?: CustomKernel;
}

/** Tensors (after the first, numbers too), then the parameters where there are any. */
export type CustomArguments = readonly [Tensor, ...(Tensor | number | Params)[]];
/** What defineOp gives for a function of single elements. */
export type ElementwiseOp = (...args: CustomArguments) => Tensor;
/** What defineOp gives for an op with shapes and kernels of its own. */
export type KernelOp = (...args: CustomArguments) => Tensor[];

const names = new Set<string>();

/** Defines an op by a function of single elements; gradients, broadcasting and every device follow. */
export function defineOp(definition: ElementwiseDefinition): ElementwiseOp;
/** Defines an op with shapes of its own, a CPU function and, where it shall run there, GPU kernels. */
export function defineOp(definition: KernelDefinition): KernelOp;
export function defineOp(definition: ElementwiseDefinition | KernelDefinition): ElementwiseOp | KernelOp {
  check(definition);
  const elementwise = !('infer' in definition);
  const row: GradRow = elementwise ? elementwiseRow(definition) : kernelRow(definition);
  names.add(definition.name);
  if (!elementwise) return (...args) => run(row, definition, args);
  addRow(row as ElementwiseRow);
  return (...args) => run(row, definition, args)[0];
}

function check(d: ElementwiseDefinition | KernelDefinition): void {
  if (typeof d !== 'object' || d === null)
    throw new ArgumentError(`defineOp: takes an object with the op's name, inputs and functions, not a ${typeof d}`);
  const refuse = (why: string): never => {
    throw new ArgumentError(`defineOp ${JSON.stringify(d.name)}: ${why}`);
  };
  if (!/^[A-Za-z]\w*$/.test(d.name)) refuse('a name begins with a letter and is made of letters, digits and _');
  if (names.has(d.name) || Object.hasOwn(OPS, d.name)) refuse('there is already an op of this name');
  if (!Number.isInteger(d.inputs) || d.inputs < 1) refuse(`inputs is ${d.inputs}; an op takes one tensor or more`);
  const strange = d.dtypes.find((t) => !Object.hasOwn(DTYPE, t));
  if (d.dtypes.length === 0 || strange !== undefined)
    refuse(strange === undefined ? 'dtypes is empty' : `there is no dtype ${JSON.stringify(strange)}`);
  if ('infer' in d) return;
  if (typeof d.cpu !== 'function' || typeof d.gpu !== 'string')
    refuse('an elementwise op has `cpu`, its function of numbers, and `gpu`, the same as an expression in C');
  if (d.inputs > 3) refuse(`an elementwise op takes up to 3 tensors, not ${d.inputs}`);
  if ((d.scalars?.length ?? 0) > 2) refuse('an elementwise op takes up to 2 scalars');
  const whole = d.dtypes.find((t) => !isFloat(t));
  if (whole !== undefined && !d.int) refuse(`it takes ${whole}, so it needs \`int\`, its function on integers`);
}

function common(
  d: CommonDefinition,
): Pick<KernelRow, 'name' | 'formula' | 'dtypes' | 'candle' | 'ulp' | 'args' | 'samples' | 'errors'> &
  Partial<KernelRow> {
  const { grad } = d;
  return {
    name: d.name,
    formula: 'defined by defineOp',
    dtypes: d.dtypes,
    candle: { none: 'a custom op' },
    ulp: 0,
    samples: () => [],
    errors: () => [],
    args: (x) => ({ inputs: [x], params: {} }),
    ...(grad && {
      grad: (ctx: GradContext): Grads => {
        const g = grad(ctx);
        return g instanceof Tensor ? [g] : g;
      },
    }),
  };
}

/** C's functions that have a name of their own here; C's abs takes integers and would cut fractions off. */
const OWN = /\b(exp2?|log|log1p|expm1|sin|cos|tan|tanh|erf|sqrt|abs|fabs|ceil|floor|trunc)f?\s*\(/;
function checkExpression({ name, gpu }: ElementwiseDefinition): string {
  const found = OWN.exec(gpu)?.[1];
  if (found)
    throw new ArgumentError(
      `defineOp: ${name}: the expression calls ${found}(); write ${found === 'fabs' ? 'abs' : found}g(), which ` +
        'is the same on every device',
    );
  return gpu;
}

const elementwiseRow = (d: ElementwiseDefinition): ElementwiseRow => ({
  ...(common(d) as unknown as Omit<ElementwiseRow, 'family'>),
  family: 'elementwise',
  arity: d.inputs as 1 | 2 | 3,
  result: 'same',
  scalars: d.scalars ?? [],
  exact: d.cpu,
  int: d.int,
  kernel: checkExpression(d),
  custom: {},
});

function kernelRow(d: KernelDefinition): KernelRow {
  const host = (t: RefTensor, fresh: boolean): HostOperand => {
    const size = sizeOf(t.shape);
    const data = t.dtype === 'i64' ? new BigInt64Array(size) : new Float64Array(size);
    if (!fresh) t.data.forEach((v, i) => (data[i] = (t.dtype === 'i64' ? v : Number(v)) as never));
    return { shape: t.shape, dtype: t.dtype, data };
  };
  return {
    ...common(d),
    family: 'custom',
    mixed: true,
    infer: d.infer,
    custom: { kernel: d.gpu },
    reference: (inputs, outputs, params) => {
      const outs = outputs.map((o) => host(o, true));
      d.cpu(
        inputs.map((t) => host(t, false)),
        outs,
        params,
      );
      outs.forEach((o, i) => {
        // Numbers become what the dtype holds when they are stored; integers are bigints until then.
        const whole = !isFloat(o.dtype) && o.data instanceof Float64Array;
        for (let k = 0; k < o.data.length; k++)
          outputs[i].data[k] = whole ? BigInt(Math.trunc(Number(o.data[k]))) : o.data[k];
      });
    },
  };
}

function run(row: GradRow, d: ElementwiseDefinition | KernelDefinition, args: CustomArguments): Tensor[] {
  const [first] = args;
  const given = args.slice(0, d.inputs);
  const rest = args.slice(d.inputs);
  const params = (rest[0] ?? {}) as Params;
  if (
    !(first instanceof Tensor) ||
    given.length !== d.inputs ||
    rest.length > 1 ||
    typeof params !== 'object' ||
    rest[0] instanceof Tensor
  ) {
    throw new ArgumentError(
      `${d.name}: takes ${d.inputs} tensor${d.inputs === 1 ? '' : 's'} and an object of parameters where it has any; ` +
        `got ${args.map(say).join(', ')}`,
    );
  }
  const inputs = given.map((x) => {
    if (x instanceof Tensor) return x;
    if (typeof x === 'number' && !('infer' in d)) return first.constant(x);
    throw new ArgumentError(`${d.name}: takes ${d.inputs} tensors; got ${args.map(say).join(', ')}`);
  });
  if (!('infer' in d)) {
    for (const name of d.scalars ?? [])
      if (typeof params[name] !== 'number')
        throw new ArgumentError(`${d.name}: the parameter ${name} is ${say(params[name])}, not a number`);
  }
  const wrong = 'infer' in d ? inputs.find((t) => !d.dtypes.includes(t.dtype)) : undefined;
  if (wrong) throw new DTypeError(`${d.name}: does not take ${wrong.dtype} (it takes ${d.dtypes.join(', ')})`);
  return apply(row, inputs, params);
}

const say = (v: unknown): string =>
  v instanceof Tensor
    ? `a tensor ${formatShape(v.shape)} of ${v.dtype}`
    : typeof v === 'object'
      ? JSON.stringify(v)
      : String(v);
