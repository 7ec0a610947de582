// Weights of a trained module in ggml's blocks: layers built from them, and whole modules turned over in place.
import { ggmlType } from '../base/blocks/types.js';
import { ArgumentError } from '../base/errors.js';
import type { ProductOptions } from '../ops/quantized.js';
import { noGrad } from '../tensor/autograd.js';
import { QTensor, type Weight } from '../tensor/qtensor.js';
import type { Tensor } from '../tensor/tensor.js';
import { keptFloats } from './kept-floats.js';
import { Embedding, Linear } from './layers.js';
import type { Module } from './module.js';

/** A linear layer with quantized weights. */
export class QLinear extends Linear<QTensor> {
  constructor(weight: QTensor, bias?: Tensor, product: ProductOptions = {}) {
    super(weight, bias);
    this.product = product;
  }
  /** A quantized copy of a Linear layer; `product` says how activations are rounded. */
  static from(layer: Linear<Weight>, type: string, product: ProductOptions = {}): QLinear {
    return new QLinear(encoded(layer.weight, type), layer.bias, product);
  }
}

/** A table of rows in blocks. */
export class QEmbedding extends Embedding<QTensor> {
  /** A quantized copy of an embedding's table; rows are decoded when they are looked up. */
  static from(layer: Embedding<Weight>, type: string): QEmbedding {
    return new QEmbedding(encoded(layer.weight, type), layer.dtype);
  }
}

/** Floats are encoded, also those that are kept as they were stored; blocks stay as they are. */
function encoded(weight: Weight, type: string): QTensor {
  if (!(weight instanceof QTensor)) return QTensor.quantize(weight, type);
  if (!weight.isFloats) return weight;
  const wide = weight.dequantize();
  const q = QTensor.quantize(wide, type);
  wide.dispose();
  return q;
}

/** Which layers are quantized, and to what. */
export interface QuantizeOptions {
  /** Also tables of embeddings; default true. */
  readonly embeddings?: boolean;
  /** How products are computed afterwards. */
  readonly product?: ProductOptions;
  /** Layers by name that keep their weights. */
  readonly keep?: (name: string) => boolean;
}
/** What was quantized, and what was not and why. */
export interface QuantizeReport {
  /** What became blocks, and what kept its floats and why. */
  readonly changed: readonly string[];
  /** Layers that stay as they are. */
  readonly kept: readonly {
    /** The layer's name. */
    readonly name: string;
    /** The reason, in a sentence. */
    readonly why: string;
  }[];
}

function* layersOf(module: Module): Generator<{ layer: Linear<Weight> | Embedding<Weight>; name: string }> {
  for (const [name, layer] of module.namedModules())
    if (layer instanceof Linear || layer instanceof Embedding) yield { layer, name };
}

/** Whether there are products of whole numbers with a weight; those with floats are exact always. */
const hasQuick = (weight: Weight): boolean =>
  !(weight instanceof QTensor && (weight.isFloats || weight.parts.some((p) => p.scales)));

/** How products of all quantized linear layers of a module are computed from now on. */
export function setProducts(module: Module, product: ProductOptions): void {
  for (const { layer } of layersOf(module))
    if (layer instanceof Linear) layer.product = hasQuick(layer.weight) ? product : { ...product, quick: false };
}

/**
 * Turns the weights of all linear layers (and embeddings) of a module into blocks; a tensor with several names is
 * encoded once.
 */
export function quantize(module: Module, type: string, options: QuantizeOptions = {}): QuantizeReport {
  if (typeof type !== 'string')
    throw new ArgumentError("quantize: takes a module and the name of a type of blocks: quantize(model, 'q8_0')");
  const { block, name: typeName } = ggmlType(type);
  const done = new Map<Weight, QTensor>();
  const changed: string[] = [];
  const kept: { name: string; why: string }[] = [];
  const all = [...layersOf(module)];
  if (all.length === 0) throw new ArgumentError('quantize: the module has no linear layer and no embedding');
  for (const { layer, name } of all) {
    const { weight } = layer;
    if (weight instanceof QTensor && !weight.isFloats) continue;
    const width = weight.shape.at(-1) as number;
    const why = options.keep?.(name)
      ? 'asked to be kept'
      : (keptFloats(layer) ??
        (layer instanceof Embedding && options.embeddings === false
          ? 'an embedding'
          : width % block
            ? `rows of ${width} values are not whole blocks of ${typeName}, which have ${block}`
            : undefined));
    if (why) {
      kept.push({ name, why });
      continue;
    }
    const q = done.get(weight) ?? noGrad(() => encoded(weight, type));
    done.set(weight, q);
    layer.weight = q;
    if (layer instanceof Linear && options.product)
      layer.product = hasQuick(q) ? options.product : { ...options.product, quick: false };
    changed.push(name);
  }
  // A layer that keeps its weight may share it with one that does not.
  const held = new Set<Weight>([...layersOf(module)].map(({ layer }) => layer.weight));
  for (const p of module.parameters()) held.add(p);
  for (const w of done.keys()) if (!held.has(w)) w.dispose();
  return { changed, kept };
}
