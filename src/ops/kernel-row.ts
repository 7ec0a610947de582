// What rows with kernels of their own share: a typed declaration, argument checks, and loops along one dimension.
import { type DType, isFloat } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, kindOf, said, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import type {
  Call,
  CompositeErrorSample,
  CompositeRow,
  CompositeSample,
  KernelRow,
  Params,
  RefTensor,
  Sig,
} from './op.js';

/** A kernel row with the exact arguments of its method. */
export type Kernel<A extends readonly unknown[], P extends Params> = Omit<KernelRow<P>, 'name' | 'args'> & {
  readonly args: (x: Tensor, ...rest: A) => Call<P>;
};
/**
 * Checks a row against its contract; only arguments and parameters are inferred, so that Tensor's type does not depend
 * on itself.
 */
export const kernel = <A extends readonly unknown[], P extends Params>(row: Kernel<A, P>): Kernel<A, P> => row;

/** The same for rows made of other rows. */
export type Composite<A extends readonly unknown[], R> = Omit<CompositeRow, 'name' | 'compose'> & {
  readonly compose: (x: Tensor, ...rest: A) => R;
};
export const composite = <A extends readonly unknown[], R>(row: Omit<Composite<A, R>, 'family'>): Composite<A, R> => ({
  family: 'composite',
  ...row,
});

type CompositeFacts = Omit<CompositeRow, 'name' | 'family' | 'compose'>;
type OwnFacts = Partial<Pick<CompositeRow, 'dtypes' | 'ulp' | 'domain' | 'noGrad' | 'without' | 'differs'>>;
/** Composites that have most in common: what a row says of itself goes before what is said here of all. */
export const alike =
  (common: Omit<CompositeFacts, 'formula' | 'samples' | 'errors'>) =>
  (
    formula: string,
    samples: readonly CompositeSample[],
    { errors = [], ...own }: OwnFacts & { readonly errors?: readonly CompositeErrorSample[] } = {},
  ): CompositeFacts => ({ ...common, formula, ...own, samples: () => samples, errors: () => errors });

/** A contiguous shape seen as left x n x right around one dimension. */
export interface Lanes {
  readonly left: number;
  readonly n: number;
  readonly right: number;
}
export function lanes(shape: Shape, dim: number): Lanes {
  let left = 1;
  let right = 1;
  shape.forEach((d, i) => {
    if (i < dim) left *= d;
    else if (i > dim) right *= d;
  });
  return { left, n: shape[dim], right };
}

/** Calls visit with the start and step of every lane along `dim`. */
export function eachLane(shape: Shape, dim: number, visit: (start: number, step: number, n: number) => void): void {
  const { left, n, right } = lanes(shape, dim);
  for (let l = 0; l < left; l++) for (let r = 0; r < right; r++) visit(l * n * right + r, right, n);
}

/** Elements as numbers. Integer data are bigint underneath, which share + - * < with numbers: one loop serves both. */
export const numbers = (t: RefTensor): number[] => t.data as number[];
/** The zero to start such a loop from. */
export const zeroOf = (t: RefTensor): number => (isFloat(t.dtype) ? 0 : (0n as unknown as number));

export const replaceDim = (shape: Shape, dim: number, size: number): number[] =>
  shape.map((d, i) => (i === dim ? size : d));

export function requireRank(op: string, what: string, shape: Shape, rank: number, dims: string): void {
  if (shape.length === rank) return;
  throw new ShapeError(`${op}: ${what} ${formatShape(shape)} has rank ${shape.length}; it takes rank ${rank}: ${dims}`);
}

export function requireSameDType(op: string, inputs: readonly Sig[]): void {
  const other = inputs.find((s) => s.dtype !== inputs[0].dtype);
  if (other)
    throw new DTypeError(`${op}: operands are ${inputs.map((s) => s.dtype).join(', ')}; they must have one dtype`);
}

/** A composite's own check: rows with kernels have it from dispatch. */
export function requireDType(op: string, x: Sig, dtypes: readonly DType[], why?: string): void {
  if (dtypes.includes(x.dtype)) return;
  throw new DTypeError(`${op}: does not take ${x.dtype} (it takes ${dtypes.join(', ')})${why ? `: ${why}` : ''}`);
}

/** Whole numbers from `min`: strides, sizes, paddings. */
export function requireWhole(op: string, name: string, values: readonly number[], min: number): void {
  for (const v of values) {
    if (!Number.isSafeInteger(v) || v < min) {
      const given = values.length === 1 ? String(v) : formatShape(values);
      throw new ArgumentError(`${op}: ${name} ${given} is not made of whole numbers from ${min}`);
    }
  }
}

/** A share of a whole, such as the probability of being left out: 0 is one, all of it is not. */
export function requireShare(op: string, name: string, value: unknown): void {
  if (typeof value === 'number' && value >= 0 && value < 1) return;
  throw new ArgumentError(`${op}: ${name} ${said(value)} is not a number in [0, 1)`);
}

/** A tensor as such, where one may be left out: a number there would count as left out, or fail far from the call. */
export function requireTensor(op: string, what: string, value: Tensor | undefined): void {
  if (value === undefined || (typeof value === 'object' && value !== null && 'dtype' in value)) return;
  throw new ArgumentError(`${op}: ${what} is ${kindOf(value)}, not a tensor`);
}

/** Numbers as such: what is nearly one (a string, a tensor) is not asked to become one. */
export function requireNumbers(op: string, values: Readonly<Record<string, unknown>>): void {
  for (const [name, v] of Object.entries(values)) {
    if (typeof v !== 'number') throw new ArgumentError(`${op}: ${name} is ${kindOf(v)}, not a number`);
  }
}

/** True or false as such: options in the place of a flag would count as true, and be ignored. */
export function requireFlag(op: string, name: string, value: unknown): void {
  if (typeof value !== 'boolean')
    throw new ArgumentError(`${op}: ${name} is ${value === null ? 'null' : typeof value}, not true or false`);
}

/** Options by their names in PyTorch; more than a word is said wherever the name comes up. */
const OTHER_OPTIONS: Readonly<Record<string, string>> = {
  lr: 'learningRate',
  betas: '{ beta1, beta2 }',
  clipNorm: 'backwardStep(loss, { clipNorm })',
  clipValue: 'backwardStep(loss, { clipValue })',
  batchSize: 'batch',
  numWorkers: 'DataLoader.inWorkers(url, { workers })',
  pinMemory: '{ device }, to which batches are sent ahead',
  collateFn: 'collate',
  numLayers: 'layers',
  batchFirst: 'always so',
  dimFeedforward: 'feedforward',
  layerNormEps: 'eps',
  isCausal: 'causal',
  attnMask: 'mask',
  scaleFactor: 'scale',
  kernelSize: 'the first number',
  p: 'dropout',
  r: 'rank',
  loraAlpha: 'alpha',
  loraDropout: 'dropout',
  targetModules: 'targets',
  keyPaddingMask: 'keyPadding',
  srcKeyPaddingMask: 'keyPadding',
  srcMask: 'mask',
  tgtMask: 'mask',
  historySize: 'history',
  lineSearchFn: 'lineSearch',
  maxIter: 'maxIterations',
  maxEval: 'maxEvaluations',
  tau: 'temperature',
  needWeights: 'attend(query, key, value, options), which answers { output, weights }',
  lrDecay: 'learningRateDecay',
};
/** Options that are true or false wherever they are known: anything else would count as one of the two. */
const FLAGS: ReadonlySet<string> = new Set([
  ...['affine', 'alignCorners', 'bidirectional', 'causal', 'ceilMode', 'center', 'countIncludePad'],
  ...['createGraph', 'equalNan', 'full', 'hard', 'includeSelf', 'keepdim', 'logInput', 'logTarget', 'normFirst'],
  ...['normalized', 'onesided', 'rankStabilized', 'removeMean', 'replacement', 'restoreBest', 'retainGraph', 'right'],
  ...['sparing', 'strict', 'swap', 'warmup', 'zeroInfinity'],
]);
const camel = (name: string): string => name.replace(/_([a-z])/g, (_, c: string) => c.toUpperCase());

/**
 * Refuses a misspelt option, or a number or tensor in the place of the options, instead of ignoring it; and of options
 * that are true or false (`flags`: of this op alone) what is neither.
 */
export function requireOptions(
  op: string,
  options: object,
  known: readonly string[],
  flags: readonly string[] = [],
): void {
  const proto: unknown = typeof options === 'object' && options !== null ? Object.getPrototypeOf(options) : undefined;
  if (proto !== Object.prototype && proto !== null) {
    const given = typeof options === 'object' && options !== null ? options.constructor.name : String(options);
    throw new ArgumentError(`${op}: ${given} stands where options do; they are an object of ${known.join(', ')}`);
  }
  for (const [name, value] of Object.entries(options)) {
    if (known.includes(name)) {
      if (value !== undefined && (FLAGS.has(name) || flags.includes(name))) requireFlag(op, name, value);
      continue;
    }
    const ours = known.includes(camel(name)) ? camel(name) : (OTHER_OPTIONS[name] ?? OTHER_OPTIONS[camel(name)]);
    const here = ours !== undefined && (/\W/.test(ours) || known.includes(ours)) ? `here it is ${ours}; ` : '';
    throw new ArgumentError(`${op}: unknown option ${JSON.stringify(name)}; ${here}known are ${known.join(', ')}`);
  }
}
