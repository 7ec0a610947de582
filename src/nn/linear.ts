// Products and tables: linear layers, embeddings and bags of them.
import { asDType, type DType, isFloat } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { requireOptions, requireWhole } from '../ops/kernel-row.js';
import type { ProductOptions } from '../ops/quantized.js';
import { noGrad } from '../tensor/autograd.js';
import { einsum } from '../tensor/einsum.js';
import { QTensor, type Weight } from '../tensor/qtensor.js';
import { Tensor } from '../tensor/tensor.js';
import { biasedProduct } from '../tensor/training.js';
import { builderOf, MAKE_OPTIONS, type MakeOptions } from './fresh.js';
import { type Init, kaiming, normal, uniform } from './init.js';
import { Layer, Module } from './module.js';
import type { VarBuilder } from './var-builder.js';

/** A weight that a layer wraps: a matrix, whatever it is stored in. */
function weightOf<W extends Weight>(layer: string, axes: string, weight: W): W {
  if (!((weight as Weight) instanceof Tensor || (weight as Weight) instanceof QTensor))
    throw new ArgumentError(`${layer}: takes two sizes, or a weight that is there, not ${nameOf(weight)}`);
  if (weight.shape.length !== 2)
    throw new ShapeError(`${layer}: its weight is ${axes}, not ${formatShape(weight.shape)}`);
  return weight;
}
/** One number an output: a bias of another shape would spread over the batch. */
function biasOf(layer: string, bias: unknown, outputs: number): Tensor | undefined {
  if (bias === undefined) return undefined;
  if (!(bias instanceof Tensor)) throw new ArgumentError(`${layer}: its bias is ${nameOf(bias)}, not a tensor`);
  if (!sameShape(bias.shape, [outputs]))
    throw new ShapeError(`${layer}: its bias is ${formatShape(bias.shape)}, and its outputs are ${outputs}`);
  return bias;
}
const nameOf = (value: unknown): string =>
  value === null ? 'null' : Array.isArray(value) ? 'a list' : typeof value === 'object' ? 'an object' : typeof value;

/** Options of a linear layer that is made by its sizes. */
export interface LinearOptions extends MakeOptions {
  /** Whether there is a bias; default true. */
  readonly bias?: boolean;
  /** How the weight begins; default PyTorch's: uniform within 1 / sqrt(inputs). */
  readonly init?: Init;
}
/**
 * y = x W' + b over the last dimension; the weight is (outputs, inputs).
 *
 * `new Linear(3, 4)` begins with new parameters, `new Linear(3, 4, { from: vb })` with those of a VarBuilder, and
 * `new Linear(weight, bias)` wraps tensors that are there.
 */
export class Linear<W extends Weight = Tensor> extends Layer {
  /** (outputs, inputs): a tensor, or one in ggml's blocks. */
  weight: W;
  /** (outputs), if there is one. */
  bias: Tensor | undefined;
  /** How products with quantized weights are computed; see QTensor.matmul. */
  product: ProductOptions = {};
  constructor(inputs: number, outputs: number, options?: LinearOptions);
  constructor(weight: W, bias?: Tensor);
  constructor(first: number | W, second?: number | Tensor, options: LinearOptions = {}) {
    super();
    if (typeof first !== 'number') {
      this.weight = weightOf('Linear', '(outputs, inputs)', first);
      this.bias = biasOf('Linear', second, first.shape[0]);
      return;
    }
    requireOptions('Linear', options, ['bias', 'init', ...MAKE_OPTIONS], ['bias']);
    requireWhole('Linear', 'sizes', [first, second as number], 1);
    const vb = builderOf(options);
    const near = uniform(-1 / Math.sqrt(first), 1 / Math.sqrt(first));
    this.weight = vb.get([second as number, first], 'weight', options.init ?? near) as W;
    this.bias = (options.bias ?? true) ? vb.get([second as number], 'bias', near) : undefined;
    recordStored(this, [{ name: vb.prefix, rows: second as number }]);
  }
  override describe(): string {
    const [outputs, inputs] = this.weight.shape;
    return `${inputs}, ${outputs}${this.bias ? '' : ', no bias'}`;
  }
  forward(x: Tensor): Tensor {
    const weight: Weight = this.weight;
    if (!(x instanceof Tensor)) throw new ArgumentError(`Linear: takes a tensor, not ${nameOf(x)}`);
    if (x.shape.at(-1) !== weight.shape[1])
      throw new ShapeError(
        `Linear: the last dimension of ${formatShape(x.shape)} is not ${weight.shape[1]}, the inputs of a layer from ` +
          `${weight.shape[1]} to ${weight.shape[0]}`,
      );
    if (this.bias && !(weight instanceof QTensor)) {
      const y = biasedProduct(x, weight, this.bias);
      if (y) return y;
    }
    const y = weight instanceof QTensor ? weight.matmul(x, this.product) : x.matmul(weight.t());
    return this.bias ? y.add(this.bias) : y;
  }
}
/** The weight of a layer that is a product and nothing else. */
export const productWeight = (layer: Module): Tensor | undefined =>
  layer instanceof Linear && layer.constructor === Linear && layer.weight instanceof Tensor && !layer.bias
    ? layer.weight
    : undefined;
/** y_o = x' W_o z + b_o over the last dimensions of two inputs; the weight is (outputs, inputs of x, inputs of z). */
export class Bilinear extends Module {
  /** (outputs, first inputs, second inputs). */
  weight: Tensor;
  /** (outputs), if there is one. */
  bias: Tensor | undefined;
  constructor(first: number, second: number, outputs: number, options: LinearOptions = {}) {
    super();
    requireOptions('Bilinear', options, ['bias', 'init', ...MAKE_OPTIONS], ['bias']);
    requireWhole('Bilinear', 'sizes', [first, second, outputs], 1);
    const vb = builderOf(options);
    const near = uniform(-1 / Math.sqrt(first), 1 / Math.sqrt(first));
    this.weight = vb.get([outputs, first, second], 'weight', options.init ?? near);
    this.bias = (options.bias ?? true) ? vb.get([outputs], 'bias', near) : undefined;
  }
  override describe(): string {
    const [outputs, first, second] = this.weight.shape;
    return `${first}, ${second}, ${outputs}${this.bias ? '' : ', no bias'}`;
  }
  /** (..., outputs) from (..., first inputs) and (..., second inputs). */
  forward(x: Tensor, z: Tensor): Tensor {
    for (const t of [x, z] as unknown[])
      if (!(t instanceof Tensor)) throw new ArgumentError(`Bilinear: takes two tensors, and one is ${nameOf(t)}`);
    const [, first, second] = this.weight.shape;
    if (x.shape.at(-1) !== first || z.shape.at(-1) !== second || !sameShape(x.shape.slice(0, -1), z.shape.slice(0, -1)))
      throw new ShapeError(
        `Bilinear: takes (..., ${first}) and (..., ${second}) with equal dimensions before, not ` +
          `${formatShape(x.shape)} and ${formatShape(z.shape)}`,
      );
    const y = einsum('...i,oij,...j->...o', x, this.weight, z);
    return this.bias ? y.add(this.bias) : y;
  }
}
/** Products that a file keeps apart and a Linear holds as one: whose rows come from which. */
export interface StoredPart {
  /** The module's name in the file: 'model.layers.0.self_attn.q_proj'. */
  readonly name: string;
  /** How many rows of the weight it takes. */
  readonly rows: number;
  /** Within each run of so many rows, which stored row stands where. */
  readonly order?: readonly number[];
  /** The file keeps it as (inputs, outputs). */
  readonly turned?: boolean;
}
const STORED = new WeakMap<Layer, readonly StoredPart[]>();
/** Says where a Linear's rows are stored; adapters are found by these names. */
export function recordStored<L extends Layer>(layer: L, parts: readonly StoredPart[]): L {
  STORED.set(layer, parts);
  return layer;
}
/** The parts that a layer's weight was put together from, by their names in files; undefined where it is one. */
export const storedParts = (layer: Layer): readonly StoredPart[] | undefined => STORED.get(layer);

/** A linear layer whatever its weights are stored in. */
export type AnyLinear = Linear<Weight>;
/** A linear layer of a builder, in Candle's order of arguments; new weights begin by Kaiming's normal, as Candle's. */
export const linear = (
  inputs: number,
  outputs: number,
  vb: VarBuilder,
  { bias = true, init = kaiming('normal') }: Pick<LinearOptions, 'bias' | 'init'> = {},
): Linear => new Linear(inputs, outputs, { bias, init, from: vb });

/** Options of a table that is made by its sizes. */
export interface EmbeddingOptions extends MakeOptions {
  /** How rows begin; default normal numbers, as PyTorch's. */
  readonly init?: Init;
  /** A row that is 0 at first and never trained: what fills up short sequences. */
  readonly paddingIdx?: number;
}
/** Options of a table that is there already. */
export interface WrappedTableOptions {
  /** The dtype of rows of a quantized table, which has none of its own; default f32. */
  readonly dtype?: DType;
  /** A row that is not trained from here on. */
  readonly paddingIdx?: number;
}
/** Rows of a table by number: integers of any shape in, (..., width) out. */
export class Embedding<W extends Weight = Tensor> extends Layer {
  /** (entries, width). */
  weight: W;
  /** Of the rows of quantized tables, which have none. */
  readonly #rows: DType;
  /** The row that is not trained, if any. */
  readonly paddingIdx: number | undefined;
  constructor(entries: number, width: number, options?: EmbeddingOptions);
  constructor(weight: W, options?: DType | WrappedTableOptions);
  constructor(first: number | W, second?: number | DType | WrappedTableOptions, options: EmbeddingOptions = {}) {
    super();
    if (typeof first !== 'number') {
      this.weight = weightOf('Embedding', '(entries, width)', first);
      const own = typeof second === 'string' ? { dtype: second } : ((second ?? {}) as WrappedTableOptions);
      requireOptions('Embedding (of a table that is there)', own, ['dtype', 'paddingIdx']);
      if (Object.keys(options).length > 0)
        throw new ArgumentError(
          'Embedding: of a table that is there, options come second: new Embedding(table, { ... })',
        );
      this.#rows = own.dtype
        ? asDType(own.dtype, 'Embedding')
        : first instanceof QTensor
          ? 'f32'
          : (first as Tensor).dtype;
      this.paddingIdx = paddingRow('Embedding', own.paddingIdx, first.shape[0]);
      return;
    }
    requireOptions('Embedding', options, ['init', 'paddingIdx', ...MAKE_OPTIONS]);
    requireWhole('Embedding', 'sizes', [first, second as number], 1);
    const vb = builderOf(options);
    const weight = vb.get([first, second as number], 'weight', options.init ?? normal());
    this.weight = weight as W;
    this.#rows = weight.dtype;
    this.paddingIdx = paddingRow('Embedding', options.paddingIdx, first);
    const pad = this.paddingIdx;
    if (pad !== undefined && !options.from)
      noGrad(() => weight.narrow(0, pad, 1).assign(weight.newFull([1, second as number], 0)));
  }
  /** Of the rows that come out: the table's own, wherever it has moved; quantized tables have none. */
  get dtype(): DType {
    return this.weight instanceof QTensor ? this.#rows : (this.weight as Tensor).dtype;
  }
  override describe(): string {
    return this.weight.shape.join(', ') + (this.paddingIdx === undefined ? '' : `, padding ${this.paddingIdx}`);
  }
  forward(ids: Tensor): Tensor {
    const weight: Weight = this.weight;
    if (!(ids instanceof Tensor)) throw new ArgumentError(`Embedding: takes a tensor of numbers, not ${nameOf(ids)}`);
    if (weight instanceof QTensor) return weight.rows(ids, this.dtype);
    const rows = weight.embedding(ids);
    return this.paddingIdx === undefined ? rows : withoutGradientAt(rows, ids, this.paddingIdx);
  }
}
/** A table of a builder, in Candle's order of arguments. */
export const embedding = (entries: number, width: number, vb: VarBuilder, init: Init = normal()): Embedding =>
  new Embedding(entries, width, { init, from: vb });

function paddingRow(op: string, row: number | undefined, entries: number): number | undefined {
  if (row === undefined) return undefined;
  const at = row < 0 ? row + entries : row;
  if (!Number.isInteger(at) || at < 0 || at >= entries)
    throw new ArgumentError(`${op}: paddingIdx ${row} is not a row of a table of ${entries}`);
  return at;
}
/** Rows of one number pass their values on, but no gradient back. */
const withoutGradientAt = (rows: Tensor, ids: Tensor, at: number): Tensor =>
  rows.requiresGrad ? ids.eq(at).unsqueeze(-1).where(rows.detach(), rows) : rows;

/** Options of a bag of embeddings. */
export interface EmbeddingBagOptions extends EmbeddingOptions {
  /** How the rows of a bag become one; default 'mean'. */
  readonly mode?: 'sum' | 'mean' | 'max';
}
/** Options of bags over a table that is there already. */
export interface WrappedBagOptions extends Pick<WrappedTableOptions, 'paddingIdx'> {
  /** How the rows of a bag become one; default 'mean'. */
  readonly mode?: 'sum' | 'mean' | 'max';
}
/**
 * Rows of a table joined by bag: (bags, numbers of rows) in, (bags, width) out; or one list of numbers and where in it
 * each bag begins. Rows of `paddingIdx` do not count, and a bag in which none counts is 0.
 */
export class EmbeddingBag extends Embedding {
  /** How the rows of a bag become one. */
  readonly mode: 'sum' | 'mean' | 'max';
  constructor(entries: number, width: number, options?: EmbeddingBagOptions);
  constructor(weight: Tensor, options?: WrappedBagOptions);
  constructor(
    first: number | Tensor,
    second?: number | WrappedBagOptions,
    third: EmbeddingBagOptions | WrappedBagOptions = {},
  ) {
    const options = typeof first === 'number' ? third : ((second ?? {}) as WrappedBagOptions);
    if (typeof first !== 'number') requireOptions('EmbeddingBag (of a table that is there)', options, WRAPPED_BAG);
    else requireOptions('EmbeddingBag', options, ['mode', 'init', 'paddingIdx', ...MAKE_OPTIONS]);
    const { mode = 'mean', ...rest } = options;
    if (typeof first === 'number') super(first, second as number, rest);
    else super(first, rest);
    if (!['sum', 'mean', 'max'].includes(mode))
      throw new ArgumentError(`EmbeddingBag: mode ${JSON.stringify(mode)}; known are sum, mean, max`);
    this.mode = mode;
  }
  override describe(): string {
    return `${super.describe()}, ${this.mode}`;
  }
  /**
   * Weights by row count only when summing. Of one list of numbers the second argument is where bags begin, and weights
   * come third.
   */
  override forward(ids: Tensor, second?: Tensor, third?: Tensor): Tensor {
    for (const t of [ids, second, third].slice(
      0,
      third === undefined ? (second === undefined ? 1 : 2) : 3,
    ) as unknown[])
      if (!(t instanceof Tensor)) throw new ArgumentError(`EmbeddingBag: takes tensors, not ${nameOf(t)}`);
    const listed = ids.rank === 1 && second !== undefined && !isFloat(second.dtype);
    if (!listed && (ids.rank !== 2 || third))
      throw new ShapeError(
        `EmbeddingBag: takes (bags, rows) of numbers and weights, or a list of numbers, whole numbers that say where ` +
          'bags begin, and weights, not ' +
          `${[ids, second, third].flatMap((t) => (t ? formatShape(t.shape) : [])).join(', ')}`,
      );
    const weights = this.#checkedWeights(ids, listed ? third : second);
    return listed ? this.#listed(ids, second, weights) : this.#table(ids, weights);
  }
  #checkedWeights(ids: Tensor, weights: Tensor | undefined): Tensor | undefined {
    if (!weights) return undefined;
    if (this.mode !== 'sum')
      throw new ArgumentError(`EmbeddingBag: weights are for mode 'sum', this one is '${this.mode}'`);
    if (!sameShape(weights.shape, ids.shape))
      throw new ShapeError(
        `EmbeddingBag: weights ${formatShape(weights.shape)} have not the shape of the numbers, ` +
          formatShape(ids.shape),
      );
    return weights;
  }
  #table(ids: Tensor, weights: Tensor | undefined): Tensor {
    const rows = super.forward(ids); // (bags, rows, width)
    if (ids.shape[1] === 0) return rows.newZeros([ids.shape[0], rows.shape[2]]);
    const pad = this.paddingIdx;
    const counted = pad === undefined ? undefined : ids.ne(pad).unsqueeze(-1);
    if (this.mode === 'max') {
      if (!counted) return rows.max([1], false);
      const most = counted.where(rows, rows.constant(-Infinity)).max([1], false);
      return counted.any([1], false).where(most, most.constant(0));
    }
    const weighed = weights ? rows.mul(weights.unsqueeze(-1)) : rows;
    const sum = (counted ? counted.where(weighed, weighed.constant(0)) : weighed).sum([1], false);
    if (this.mode === 'sum') return sum;
    if (!counted) return sum.affine(1 / ids.shape[1], 0);
    return sum.div(counted.cast(sum.dtype).sum([1], false).clamp(1, Infinity));
  }
  /** Bags of any lengths, one after another; an empty one is 0. */
  #listed(ids: Tensor, offsets: Tensor, weights: Tensor | undefined): Tensor {
    const begins = offsets.cast('i64').toArray<number[]>();
    if (offsets.rank !== 1 || begins[0] !== 0 || begins.some((b, i) => b > ids.size || (i > 0 && b < begins[i - 1])))
      throw new ArgumentError(
        `EmbeddingBag: bags begin at ${formatShape(begins)}; the first at 0, the others not before the one before ` +
          `it, none beyond the ${ids.size} numbers`,
      );
    const given = ids.cast('i64').toArray<number[]>();
    const places: number[] = [];
    const bags: number[] = [];
    const counts = begins.map((begin, bag) => {
      const before = places.length;
      for (let k = begin; k < (begins[bag + 1] ?? given.length); k++)
        if (given[k] !== this.paddingIdx) {
          places.push(k);
          bags.push(bag);
        }
      return Math.max(1, places.length - before);
    });
    const list = (values: readonly number[]): Tensor => ids.newTensor([...values], { dtype: 'i64' });
    const kept = list(places);
    const all = super.forward(list(places.map((k) => given[k])));
    const rows = weights ? all.mul(weights.indexSelect(0, kept).unsqueeze(1)) : all;
    const none = rows.newZeros([begins.length, rows.shape[1]]);
    const of = list(bags);
    if (this.mode === 'max')
      return none.scatterReduce(0, of.unsqueeze(1).broadcastTo(rows.shape), rows, 'amax', { includeSelf: false });
    const sum = none.indexAdd(0, of, rows);
    return this.mode === 'sum' ? sum : sum.div(rows.newTensor(counts).unsqueeze(1));
  }
}
const WRAPPED_BAG = ['mode', 'paddingIdx'] as const;
