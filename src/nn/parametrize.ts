// Weights that are made of other tensors whenever they are asked for: weight and spectral norms, under PyTorch's names.
import { isFloat } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { requireOptions, requireWhole } from '../ops/kernel-row.js';
import { noGrad } from '../tensor/autograd.js';
import { randn } from '../tensor/create.js';
import { keep } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { ConvTranspose1d, ConvTranspose2d, ConvTranspose3d } from './conv.js';
import { type Layer, Module } from './module.js';

/** What stands in a weight's place: its own tensors, and the weight as they are now. */
abstract class Made extends Module {
  abstract value(): Tensor;
}
/** All parametrizations of a layer, by the field that each makes. */
class Parametrizations extends Module {
  override *fields(): Iterable<{ name: string; value: unknown; owner: Record<string, unknown>; key: string }> {
    const owner = this as unknown as Record<string, unknown>;
    for (const [key, value] of Object.entries(this)) yield { name: key, value, owner, key };
  }
}
type Holder = Record<string, unknown> & { parametrizations?: Record<string, unknown> };
const trained = (t: Tensor): Tensor => keep(t.detach().copy()).requireGrad();

/** Puts what is made in the place of a tensor field; who reads the field gets a weight made anew. */
function put<M extends Module>(op: string, layer: M, name: string, make: (weight: Tensor) => Made): M {
  const holder = layer as unknown as Holder;
  if (holder.parametrizations && Object.hasOwn(holder.parametrizations, name))
    throw new ArgumentError(`${op}: ${layer.constructor.name}'s ${name} is made of other tensors already`);
  const weight = holder[name];
  if (!(weight instanceof Tensor) || !isFloat(weight.dtype))
    throw new ArgumentError(`${op}: ${layer.constructor.name} has no tensor of floats named ${JSON.stringify(name)}`);
  const made = noGrad(() => make(weight));
  made.train(layer.training);
  holder.parametrizations ??= new Parametrizations() as unknown as Record<string, unknown>;
  holder.parametrizations[name] = made;
  Object.defineProperty(layer, name, {
    get: () => made.value(),
    set: (): never => {
      throw new ArgumentError(`${op}: ${name} is made of other tensors; removeParametrization(layer) comes first`);
    },
    enumerable: false,
    configurable: true,
  });
  return layer;
}

class WeightNorm extends Made {
  /** The lengths, trained. */
  original0: Tensor;
  /** The directions, trained; only their direction counts. */
  original1: Tensor;
  readonly #dims: number[];
  constructor(weight: Tensor, dim: number | null) {
    super();
    this.#dims = weight.shape.map((_, d) => d).filter((d) => d !== dim);
    this.original1 = trained(weight);
    this.original0 = trained(this.#length(weight, dim !== null));
  }
  #length(v: Tensor, keepdim = this.original0.rank > 0): Tensor {
    return this.#dims.length === 0 ? v.abs() : v.norm(2, this.#dims, keepdim);
  }
  value(): Tensor {
    return this.original1.mul(this.original0.div(this.#length(this.original1)));
  }
}
/** Options of weightNorm. */
export interface WeightNormOptions {
  /** The field that holds the weight; default 'weight'. */
  readonly name?: string;
  /** The dimension whose entries have a length each, or null for one length of all; default 0. */
  readonly dim?: number | null;
}
/**
 * Trains a weight's lengths and directions apart: w = g v / |v|. The layer is changed and answered; its parameters are
 * `parametrizations.weight.original0` (g) and `original1` (v), so an optimizer is made afterwards.
 */
export function weightNorm<M extends Module>(layer: M, options: WeightNormOptions = {}): M {
  requireOptions('weightNorm', options, ['name', 'dim']);
  const { name = 'weight', dim = 0 } = options;
  return put('weightNorm', layer, name, (weight) => {
    const d = dim !== null && dim < 0 ? dim + weight.rank : dim;
    if (d !== null && !(Number.isInteger(d) && d >= 0 && d < weight.rank))
      throw new ArgumentError(`weightNorm: a weight of rank ${weight.rank} has no dimension ${dim}`);
    return new WeightNorm(weight, d);
  });
}

/** Options of spectralNorm. */
export interface SpectralNormOptions {
  /** The field that holds the weight; default 'weight'. */
  readonly name?: string;
  /** Steps towards the largest singular value at every use in training; default 1. */
  readonly iterations?: number;
  /** The least length of a vector that is divided by it; default 1e-12. */
  readonly eps?: number;
  /** The dimension that counts as a matrix's rows; default 0, of transposed convolutions 1. */
  readonly dim?: number;
}
const unit = (t: Tensor, eps: number): Tensor => t.div(t.norm().clamp(eps, Infinity));
class SpectralVectors extends Module {
  _u: Tensor;
  _v: Tensor;
  constructor(rows: number, columns: number, like: Tensor, eps: number) {
    super();
    const drawn = (n: number): Tensor => keep(unit(randn([n], { device: like.device }).cast(like.dtype), eps));
    [this._u, this._v] = [drawn(rows), drawn(columns)];
  }
  protected override buffers(): readonly string[] {
    return ['_u', '_v'];
  }
}
class SpectralNorm extends Made {
  /** The weight before it is divided, trained. */
  original: Tensor;
  /** The first and only step from `original` to the weight; PyTorch numbers them. */
  0: SpectralVectors;
  readonly #options: Required<Omit<SpectralNormOptions, 'name'>>;
  constructor(weight: Tensor, options: Required<Omit<SpectralNormOptions, 'name'>>) {
    super();
    this.#options = options;
    this.original = trained(weight);
    const [rows, columns] = this.#matrix().shape;
    this[0] = new SpectralVectors(rows, columns, weight, options.eps);
    this.#iterate(15);
  }
  #matrix(): Tensor {
    const { dim } = this.#options;
    return this.original.movedim(dim, 0).reshape([this.original.shape[dim], -1]);
  }
  #iterate(count: number): void {
    const { eps } = this.#options;
    const vectors = this[0];
    noGrad(() => {
      const w = this.#matrix().detach();
      for (let k = 0; k < count; k++) {
        vectors._u.assign(unit(w.matmul(vectors._v), eps));
        vectors._v.assign(unit(w.t().matmul(vectors._u), eps));
      }
    });
  }
  value(): Tensor {
    if (this.training) this.#iterate(this.#options.iterations);
    // Copies: another use in the same pass moves the vectors on, which this one's gradient needs as they are.
    const [u, v] = [this[0]._u, this[0]._v].map((t) => noGrad(() => t.copy()));
    return this.original.div(u.dot(this.#matrix().matmul(v)));
  }
}
/**
 * Divides a weight by its largest singular value, which is followed by power iteration while training. The layer is
 * changed and answered; its parameter is `parametrizations.weight.original`, so an optimizer is made afterwards.
 */
export function spectralNorm<M extends Module>(layer: M, options: SpectralNormOptions = {}): M {
  requireOptions('spectralNorm', options, ['name', 'iterations', 'eps', 'dim']);
  const turned = [ConvTranspose1d, ConvTranspose2d, ConvTranspose3d].some((kind) => layer instanceof kind);
  const { name = 'weight', iterations = 1, eps = 1e-12, dim = turned ? 1 : 0 } = options;
  requireWhole('spectralNorm', 'iterations', [iterations], 1);
  return put('spectralNorm', layer, name, (weight) => {
    if (weight.rank < 2 || !(Number.isInteger(dim) && dim >= 0 && dim < weight.rank))
      throw new ArgumentError(
        `spectralNorm: takes weights of rank 2 and more and one of their dimensions, not rank ${weight.rank} and ` +
          `${dim}`,
      );
    return new SpectralNorm(weight, { iterations, eps, dim });
  });
}

/** A function of tensors, or a layer whose own tensors are trained beside. */
export type Making = ((original: Tensor) => Tensor) | Layer;
class MadeBy extends Made {
  /** What the weight is made of, trained. */
  original: Tensor;
  /** The layer that makes it, where it is one; PyTorch numbers them. */
  0: Layer | undefined;
  readonly #making: (original: Tensor) => Tensor;
  constructor(weight: Tensor, making: Making) {
    super();
    this.original = trained(weight);
    this[0] = making instanceof Module ? making : undefined;
    this.#making = making instanceof Module ? (original) => making.forward(original) : making;
  }
  value(): Tensor {
    return this.#making(this.original);
  }
}
/**
 * Makes a weight of another tensor whenever it is asked for: symmetric, positive, pruned by a mask. The layer is
 * changed and answered; its parameter is `parametrizations.weight.original`, so an optimizer is made afterwards.
 *
 * ```ts
 * parametrize(layer, 'weight', (w) => w.triu().add(w.triu(1).t()));
 * ```
 */
export function parametrize<M extends Module>(layer: M, name: string, making: Making): M {
  if (typeof making !== 'function' && typeof (making as Partial<Layer> | undefined)?.forward !== 'function')
    throw new ArgumentError(
      "parametrize: takes a layer, the name of a weight and what makes it, as in parametrize(layer, 'weight', (w) => " +
        'w.abs())',
    );
  return put('parametrize', layer, name, (weight) => {
    const made = new MadeBy(weight, making);
    const { shape } = made.value();
    if (!sameShape(shape, weight.shape))
      throw new ShapeError(
        `parametrize: ${layer.constructor.name}'s ${name} is ${formatShape(weight.shape)}, and what is made for it ` +
          formatShape(shape),
      );
    return made;
  });
}

/** Puts the weight as it is now back as a parameter of its own, after weightNorm or spectralNorm. */
export function removeParametrization<M extends Module>(layer: M, name = 'weight'): M {
  const holder = layer as unknown as Holder;
  const all = holder.parametrizations;
  const made = all && Object.hasOwn(all, name) ? all[name] : undefined;
  if (!all || !(made instanceof Made))
    throw new ArgumentError(
      `removeParametrization: ${layer.constructor.name}'s ${JSON.stringify(name)} is made of no other tensors`,
    );
  const weight = trained(noGrad(() => made.value()));
  made.dispose();
  delete all[name];
  if (Object.values(all).every((v) => !(v instanceof Made))) delete holder.parametrizations;
  Object.defineProperty(layer, name, { value: weight, writable: true, enumerable: true, configurable: true });
  return layer;
}
