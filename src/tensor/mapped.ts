// Functions of functions: derivatives of a function of tensors, and a function of one example over a whole batch.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import { enableGrad, gradEnabled, type Node } from './autograd.js';
import { backward, type BackwardOptions } from './backward.js';
import { Batched, isExample, wholeOf } from './batched.js';
import { eye } from './create.js';
import { type Level, mapping } from './levels.js';
import { Tensor } from './tensor.js';
import { mapTensors, type TensorTree } from './tree.js';

/** What jacobian and hessian take. */
export interface DerivativeOptions {
  /** Whether the result can be differentiated again; default false. */
  readonly createGraph?: boolean;
}

/** Derivatives are taken at a tensor: it is given with the function, where PyTorch answers another function. */
function requirePlace(op: string, f: unknown, x: unknown): void {
  if (typeof f !== 'function' || !(x instanceof Tensor))
    throw new ArgumentError(`${op}: takes a function and the tensor where it is differentiated: ${op}(f, x)`);
}

/** The gradient by x; 0 where y does not depend on it, as in PyTorch. */
const gradOrZero = (y: Tensor, x: Tensor, options: BackwardOptions): Tensor =>
  (y.requiresGrad ? backward(y, options).get(x) : undefined) ?? x.newZeros(x.shape, x.dtype);

/** Elements of gradients that one backward pass carries side by side. */
const SIDE_BY_SIDE = 2 ** 26;
/** The gradient of every element of y by x, many in one backward pass: (elements of y, ...shape of x). */
function rowsOf(y: Tensor, x: Tensor, createGraph: boolean): Tensor {
  if (y.size === 0) return x.newZeros([0, ...x.shape]);
  if (!y.requiresGrad) return x.newZeros([y.size, ...x.shape]);
  const each = vmap((grad: Tensor) => gradOrZero(y, x, { grad, retainGraph: true, createGraph }));
  const step = Math.max(1, Math.floor(SIDE_BY_SIDE / (x.size + y.size)));
  const basis = eye(y.size, { dtype: y.dtype, device: y.device }).reshape([y.size, ...y.shape]);
  const [first, ...rest] = (basis.split(step) as readonly Tensor[]).map((grads) => each(grads));
  return rest.length === 0 ? first : first.cat(rest, 0);
}

/**
 * All first derivatives of f at x, of shape (...shape of f(x), ...shape of x): one backward pass carries the gradients
 * of all elements of f(x).
 */
export function jacobian(f: (x: Tensor) => Tensor, x: Tensor, options: DerivativeOptions = {}): Tensor {
  requirePlace('jacobian', f, x);
  return enableGrad(() => {
    const createGraph = options.createGraph ?? false;
    const leaf = createGraph && x.requiresGrad ? x : x.detach().requireGrad();
    const y = f(leaf);
    if (!(y instanceof Tensor)) throw new ArgumentError('jacobian: the function must answer a tensor');
    return rowsOf(y, leaf, createGraph).reshape([...y.shape, ...x.shape]);
  });
}

/** All second derivatives of a function that answers one number, of shape (...shape of x, ...shape of x). */
export function hessian(f: (x: Tensor) => Tensor, x: Tensor, options: DerivativeOptions = {}): Tensor {
  requirePlace('hessian', f, x);
  const slope = (at: Tensor): Tensor => {
    const y = f(at);
    if (!(y instanceof Tensor) || y.size !== 1)
      throw new ShapeError(
        `hessian: the function must answer one number, not ${y instanceof Tensor ? formatShape(y.shape) : typeof y}`,
      );
    return rowsOf(y, at, true).reshape(at.shape);
  };
  return jacobian(slope, x, options);
}

/** What vmap takes. */
export interface VmapOptions {
  /**
   * The dimension of each argument that counts examples; null for one that all examples share. Default 0 for all. An
   * argument that is a list or record of tensors has one for all of them.
   */
  readonly inDims?: number | readonly (number | null)[];
  /** Where results have that dimension: a number for all, or a list beside a list of results. Default 0. */
  readonly outDims?: number | readonly number[];
  /**
   * What random numbers in the function are: refused ('error', the default), the same for all examples, or different.
   */
  readonly randomness?: 'error' | 'same' | 'different';
  /** What an op without a rule for batches does: a call for each example ('loop', the default), or an error. */
  readonly fallback?: 'loop' | 'error';
}

const NO_TREE =
  (op: string) =>
  (where: string, kind: string): never => {
    throw new ArgumentError(`${op}: ${where} is ${kind}, not a tensor or a list or record of them`);
  };
const eachTensor = <T>(op: string, tree: T, where: string, f: (t: Tensor) => Tensor): T =>
  mapTensors(tree, where, f, NO_TREE(op));

function choice<T extends string>(name: string, value: T, known: readonly T[]): T {
  if (!known.includes(value))
    throw new ArgumentError(`vmap: ${name} ${String(value)} is none of ${known.map((k) => `'${k}'`).join(', ')}`);
  return value;
}

/** The arguments with the dimension of examples in front, where there is one, and how many they are. */
function examplesOf<A extends readonly TensorTree[]>(
  args: A,
  inDims: VmapOptions['inDims'],
): [(level: Level) => A, number] {
  const given = typeof inDims === 'number' ? args.map(() => inDims) : (inDims ?? args.map(() => 0));
  if (given.length !== args.length)
    throw new ArgumentError(`vmap: inDims has ${given.length} entries for ${args.length} arguments`);
  const [shapes, sizes]: [string[], number[]] = [[], []];
  const fronts = args.map((arg, i) =>
    eachTensor('vmap', arg, `argument ${i}`, (t) => {
      shapes.push(formatShape(t.shape));
      const dim = given[i];
      if (dim === null) return t;
      const at = normalizeDim('vmap', dim, t.rank);
      sizes.push(t.shape[at]);
      return at === 0 ? t : t.movedim(at, 0);
    }),
  );
  if (sizes.length === 0) throw new ArgumentError('vmap: inDims names no argument that is taken apart');
  if (sizes.some((n) => n !== sizes[0] || n === 0))
    throw new ShapeError(
      `vmap: arguments ${shapes.join(', ')} have ${formatShape(sizes)} examples; all must have the same number, one ` +
        'at least',
    );
  const wrap = (level: Level) =>
    fronts.map((arg, i) =>
      given[i] === null ? arg : eachTensor('vmap', arg, '', (t) => new Batched(t, level)),
    ) as unknown as A;
  return [wrap, sizes[0]];
}

/**
 * A function of one example as a function of a batch. The function is called once, with tensors that have the shape of
 * one example, and every op in it runs once for all of them: elementwise ops, reductions, products, indexing, shapes,
 * convolutions, norms, attention without masks and linear algebra. What has no rule (quantized products, ops of one's
 * own) is called for each example, which `fallback: 'error'` refuses. The function cannot read numbers of an example.
 * Gradients flow through it and can be taken inside: `vmap(grad(loss))` gives one for each example.
 *
 * ```ts
 * const distances = vmap((a: Tensor, b: Tensor) => a.sub(b).norm());
 * distances(randn([8, 3]), randn([8, 3])).shape; // [8]
 * const perSample = vmap(grad(loss), { inDims: [null, 0, 0] })(weights, inputs, labels);
 * ```
 */
export function vmap<R extends TensorTree>(
  f: (...examples: Tensor[]) => R,
  options?: VmapOptions,
): (...inputs: Tensor[]) => R;
/** The same for arguments that are lists or records of tensors. */
export function vmap<A extends readonly TensorTree[], R extends TensorTree>(
  f: (...examples: A) => R,
  options?: VmapOptions,
): (...inputs: A) => R;
export function vmap<A extends readonly TensorTree[], R extends TensorTree>(
  f: (...examples: A) => R,
  options: VmapOptions = {},
): (...inputs: A) => R {
  requireOptions('vmap', options, ['inDims', 'outDims', 'randomness', 'fallback']);
  const { outDims = 0 } = options;
  const rules = {
    randomness: choice('randomness', options.randomness ?? 'error', ['error', 'same', 'different']),
    fallback: choice('fallback', options.fallback ?? 'loop', ['loop', 'error']),
  };
  return (...args) => {
    const [wrap, size] = examplesOf(args, options.inDims);
    return mapping(size, rules, (level) => {
      const answer = f(...wrap(level));
      const all = (dim: number) => (t: Tensor) => {
        const whole = wholeOf(t, level);
        const to = normalizeDim('vmap', dim, whole.rank);
        return to === 0 ? (isExample(t, level) ? whole : whole.contiguous()) : whole.movedim(0, to);
      };
      if (typeof outDims === 'number') return eachTensor('vmap', answer, 'the answer', all(outDims));
      if (!Array.isArray(answer) || answer.length !== outDims.length)
        throw new ArgumentError(`vmap: outDims has ${outDims.length} entries, and the function answers no such list`);
      return answer.map((part: TensorTree, i) =>
        eachTensor('vmap', part, `the answer[${i}]`, all(outDims[i])),
      ) as unknown as R;
    });
  };
}

/** An argument as a leaf of a graph of its own; a graph that it is part of already goes on through it. */
function asLeaf(t: Tensor): Tensor {
  if (t instanceof Batched) return t.asLeaf();
  return t.requiresGrad ? t.unsqueeze(0).squeeze(0).retainGrad() : t.detach().requireGrad();
}

/** Whether y depends on anything but these leaves that requires a gradient, here or outside of a vmap. */
function dependsBeyond(y: Tensor, leaves: ReadonlySet<number>): boolean {
  const outside = (t: Tensor): boolean => t instanceof Batched && (t.whole.requiresGrad || outside(t.whole));
  const seen = new Set<Node>();
  const stack = [y];
  for (let t = stack.pop(); t; t = stack.pop()) {
    if (outside(t) || (t.requiresGrad && !t.node && !leaves.has(t.id))) return true;
    if (!t.node || seen.has(t.node)) continue;
    seen.add(t.node);
    stack.push(...t.node.inputs);
  }
  return false;
}

/** What grad and gradAndValue take. */
export interface GradOptions {
  /** The argument, or arguments, to differentiate by; default the first. */
  readonly argnums?: number | readonly number[];
}
type ByOne = GradOptions & { readonly argnums?: number };
type BySeveral = GradOptions & { readonly argnums: readonly number[] };

function differentiated<A extends readonly TensorTree[]>(
  op: string,
  f: (...args: A) => Tensor,
  { argnums = 0 }: GradOptions,
  args: A,
): [gradients: TensorTree, value: Tensor] {
  const wanted = typeof argnums === 'number' ? [argnums] : argnums;
  const bad = wanted.find((i) => !Number.isSafeInteger(i) || i < 0 || i >= args.length);
  if (bad !== undefined || wanted.length === 0)
    throw new ArgumentError(`${op}: argnums ${String(bad ?? '[]')} names none of ${args.length} arguments`);
  const outer = gradEnabled();
  return enableGrad(() => {
    const leaves = new Set<number>();
    const given = args.map((arg, i) =>
      wanted.includes(i)
        ? eachTensor(op, arg, `argument ${i}`, (t) => {
            const leaf = asLeaf(outer || t instanceof Batched ? t : t.detach());
            leaves.add(leaf.id);
            return leaf;
          })
        : arg,
    );
    const value = f(...(given as unknown as A));
    if (!(value instanceof Tensor) || value.size !== 1)
      throw new ShapeError(
        `${op}: the function must answer one number, not ` +
          (value instanceof Tensor ? formatShape(value.shape) : typeof value),
      );
    const createGraph = outer && dependsBeyond(value, leaves);
    const all = value.requiresGrad ? backward(value, { createGraph }) : undefined;
    const gradients = wanted.map((i) =>
      eachTensor(op, given[i], '', (t) => all?.get(t) ?? t.newZeros(t.shape, t.dtype)),
    );
    return [typeof argnums === 'number' ? gradients[0] : gradients, createGraph ? value : value.detach()];
  });
}

/**
 * The gradient of a function that answers one number, as a function: by its first argument, which may be a list or
 * record of tensors, or by those that `argnums` names (one number: that argument's form; a list: a list). Arguments
 * need no requireGrad(); what else requires a gradient can be differentiated through it.
 *
 * ```ts
 * grad((x: Tensor) => x.sqr().sum())(tensor([1, 2, 3])); // [2, 4, 6]
 * ```
 */
export function grad(f: (...args: Tensor[]) => Tensor, options?: ByOne): (...args: Tensor[]) => Tensor;
/** The same by several arguments. */
export function grad(f: (...args: Tensor[]) => Tensor, options: BySeveral): (...args: Tensor[]) => Tensor[];
/** The same for arguments that are lists or records of tensors. */
export function grad<A extends readonly TensorTree[], G = A[0]>(
  f: (...args: A) => Tensor,
  options?: GradOptions,
): (...args: A) => G;
export function grad<A extends readonly TensorTree[], G>(
  f: (...args: A) => Tensor,
  options: GradOptions = {},
): (...args: A) => G {
  requireOptions('grad', options, ['argnums']);
  return (...args) => differentiated('grad', f, options, args)[0] as G;
}

/** `grad` with the function's value: [gradient, value]. */
export function gradAndValue(
  f: (...args: Tensor[]) => Tensor,
  options?: ByOne,
): (...args: Tensor[]) => [gradient: Tensor, value: Tensor];
/** The same for arguments that are lists or records of tensors, or several of them. */
export function gradAndValue<A extends readonly TensorTree[], G = A[0]>(
  f: (...args: A) => Tensor,
  options?: GradOptions,
): (...args: A) => [gradient: G, value: Tensor];
export function gradAndValue<A extends readonly TensorTree[], G>(
  f: (...args: A) => Tensor,
  options: GradOptions = {},
): (...args: A) => [gradient: G, value: Tensor] {
  requireOptions('gradAndValue', options, ['argnums']);
  return (...args) => differentiated('gradAndValue', f, options, args) as [G, Tensor];
}

/** f at these tensors as [result, back]: back(v) gives v times the Jacobian, a gradient for each of them. */
export function vjp(
  f: (...xs: Tensor[]) => Tensor,
  ...primals: Tensor[]
): [result: Tensor, back: (cotangent: Tensor) => Tensor[]] {
  const outer = gradEnabled();
  const leaves = primals.map((t) => enableGrad(() => asLeaf(outer || t instanceof Batched ? t : t.detach())));
  const y = enableGrad(() => f(...leaves));
  if (!(y instanceof Tensor)) throw new ArgumentError('vjp: the function must answer a tensor');
  const createGraph = outer && dependsBeyond(y, new Set(leaves.map((t) => t.id)));
  const back = (cotangent: Tensor): Tensor[] => {
    const all = y.requiresGrad
      ? backward(y, { grad: cotangent, retainGraph: true, createGraph: createGraph && gradEnabled() })
      : undefined;
    return leaves.map((t) => all?.get(t) ?? t.newZeros(t.shape, t.dtype));
  };
  return [createGraph ? y : y.detach(), back];
}

/**
 * f at these tensors and its change along tangents of the same shapes, as [result, Jacobian times tangents]: the
 * derivative of a backward pass by what it begins with.
 */
export function jvp(
  f: (...xs: Tensor[]) => Tensor,
  primals: readonly Tensor[],
  tangents: readonly Tensor[],
): [result: Tensor, tangent: Tensor] {
  if (!Array.isArray(primals) || !Array.isArray(tangents))
    throw new ArgumentError('jvp: takes a function, a list of tensors and a list of tangents: jvp(f, [x], [v])');
  const fits = (t: Tensor, i: number): boolean => formatShape(t.shape) === formatShape(tangents[i].shape);
  if (primals.length !== tangents.length || !primals.every(fits))
    throw new ShapeError(
      `jvp: tangents ${tangents.map((t) => formatShape(t.shape)).join(', ')} must have the shapes of ` +
        primals.map((t) => formatShape(t.shape)).join(', '),
    );
  const outer = gradEnabled();
  return enableGrad(() => {
    const leaves = primals.map((t) => asLeaf(outer || t instanceof Batched ? t : t.detach()));
    const y = f(...leaves);
    if (!(y instanceof Tensor)) throw new ArgumentError('jvp: the function must answer a tensor');
    const v = y.newZeros(y.shape, y.dtype).requireGrad();
    const all = y.requiresGrad ? backward(y, { grad: v, createGraph: true }) : undefined;
    const dots = leaves.flatMap((t, i) => {
      const g = all?.get(t);
      return g?.requiresGrad ? [g.mul(tangents[i]).sum()] : [];
    });
    const createGraph = outer && dependsBeyond(y, new Set(leaves.map((t) => t.id)));
    const tangent =
      dots.length === 0
        ? y.newZeros(y.shape, y.dtype)
        : gradOrZero(
            dots.reduce((a, b) => a.add(b)),
            v,
            { createGraph },
          );
    return createGraph ? [y, tangent] : [y.detach(), tangent.detach()];
  });
}
