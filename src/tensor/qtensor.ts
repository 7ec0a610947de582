// A matrix of weights in ggml's blocks or in floats of 16 bits: rows stay in the bytes they were stored in, and products
// read them as they are.
import type { EncodeOptions } from '../base/blocks/encode.js';
import { F8_E4M3, ggmlType } from '../base/blocks/types.js';
import { bytesOf, type DType } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, type Shape, sizeOf } from '../base/shape.js';
import { type BlockType, blockType, F8_GROUP, type ProductOptions } from '../ops/quantized.js';
import { noGrad } from './autograd.js';
import { tensor } from './create.js';
import type { Device } from './device.js';
import { encodeBlocks } from './encode-blocks.js';
import {
  decodeFloat8,
  encodeFloat8,
  type Float8Rows,
  lookUpFloat8,
  multiplyFloat8,
  multiplyFloat8Experts,
} from './float8-blocks.js';
import { keep, scope } from './scope.js';
import {
  decodeFloats,
  floatType,
  isFloatType,
  lookUpFloats,
  multiplyFloatExperts,
  multiplyFloats,
} from './stored-floats.js';
import type { Tensor } from './tensor.js';

/** Rows of one type: bytes of shape [...leading, rows, bytes of a row]. */
export interface QPart {
  /** The format of the blocks. */
  readonly type: BlockType;
  /** The bytes, as a tensor of u8; floats of 16 bits as they are. */
  blocks: Tensor;
  /** Where there are any, `blocks` are values of f8e4m3 and these their scales: products are made of ordinary ops. */
  scales?: Tensor;
}
/** The name of parts with scales; kernels for blocks never see one. */
const FLOAT8 = F8_E4M3.name as BlockType;
const isFloat8 = (p: QPart): p is QPart & Float8Rows => p.scales !== undefined;
/** Whether a part's values are floats of 16 bits. */
const isFloats = ({ type }: QPart): boolean => isFloatType(type);

/** How parts of a kind are read. */
interface Kind<P extends QPart> {
  readonly decode: (p: P, dtype: DType) => Tensor;
  readonly multiply: (x: Tensor, p: P, options: ProductOptions) => Tensor;
  readonly multiplyExperts: (x: Tensor, p: P, experts: Tensor, options: ProductOptions) => Tensor;
  readonly lookUp: (p: P, ids: Tensor, dtype: DType) => Tensor;
}
const BLOCKS: Kind<QPart> = {
  decode: (p, dtype) => p.blocks.dequantize(p.type, dtype),
  multiply: (x, p, options) => x.qmatmul(p.blocks, p.type, options),
  multiplyExperts: (x, p, experts, options) => x.qmatmulExperts(p.blocks, experts, p.type, options),
  lookUp: (p, ids, dtype) => p.blocks.qrows(ids, p.type, dtype),
};
const FLOAT8S: Kind<QPart & Float8Rows> = {
  decode: decodeFloat8,
  multiply: multiplyFloat8,
  multiplyExperts: multiplyFloat8Experts,
  lookUp: lookUpFloat8,
};
const FLOATS: Kind<QPart> = {
  decode: decodeFloats,
  multiply: multiplyFloats,
  multiplyExperts: multiplyFloatExperts,
  lookUp: lookUpFloats,
};
const kindOf = (p: QPart): Kind<QPart> => (isFloat8(p) ? (FLOAT8S as Kind<QPart>) : isFloats(p) ? FLOATS : BLOCKS);

const valuesIn = (p: QPart): number => {
  const { type, blocks, scales } = p;
  if (scales || isFloats(p)) return blocks.shape.at(-1) as number;
  const { block, bytes } = ggmlType(type);
  return ((blocks.shape.at(-1) as number) / bytes) * block;
};

function checkFloat8({ blocks, scales }: Float8Rows): void {
  const [want, has] = [[...blocks.shape.slice(0, -1), (blocks.shape.at(-1) as number) / F8_GROUP], scales.shape];
  if (blocks.rank < 2 || blocks.dtype !== 'f8e4m3' || scales.dtype !== 'f32' || formatShape(want) !== formatShape(has))
    throw new ShapeError(
      `QTensor: 8-bit floats are f8e4m3 [..., rows, n] with f32 scales [..., rows, n / ${F8_GROUP}], not ` +
        `${blocks.dtype} ${formatShape(blocks.shape)} with ${scales.dtype} ${formatShape(scales.shape)}`,
    );
}

/**
 * Weights in ggml's blocks (Q4_0, Q8_0, Q4_K, ...), or in floats of 16 bits as they were stored: products and rows are
 * computed from them without decoding all.
 */
export class QTensor {
  /** Rows follow one another; parts differ in type (files mix types, and joined products keep them so). */
  readonly parts: readonly QPart[];
  /** Of the values: [..., rows, values of a row]. */
  readonly shape: Shape;

  /** `parts` agree in everything but the number of rows and the type. */
  constructor(parts: readonly QPart[]) {
    const [first] = parts;
    if (!first) throw new ArgumentError('QTensor: it has one part at least');
    const width = valuesIn(first);
    const leading = first.blocks.shape.slice(0, -2);
    for (const p of parts) {
      if (isFloat8(p)) checkFloat8(p);
      else if (p.blocks.rank < 2 || (isFloats(p) ? floatType(p.blocks.dtype) !== p.type : p.blocks.dtype !== 'u8'))
        throw new ShapeError(
          `QTensor: ${isFloats(p) ? `${p.type} is floats of [..., rows, values]` : 'blocks are bytes of [..., rows, bytes]'}, ` +
            `not ${p.blocks.dtype} ${formatShape(p.blocks.shape)}`,
        );
      if (!Number.isInteger(valuesIn(p)) || valuesIn(p) !== width)
        throw new ShapeError(`QTensor: rows of ${valuesIn(p)} and ${width} values do not join`);
      if (formatShape(p.blocks.shape.slice(0, -2)) !== formatShape(leading))
        throw new ShapeError(
          `QTensor: parts ${formatShape(first.blocks.shape)} and ${formatShape(p.blocks.shape)} do not join`,
        );
    }
    this.parts = parts;
    this.shape = Object.freeze([...leading, parts.reduce((n, p) => n + (p.blocks.shape.at(-2) as number), 0), width]);
  }

  /** Bytes of blocks as a file holds them, on a device. */
  static fromBytes(type: string, shape: Shape, bytes: Uint8Array, device?: Device | string): QTensor {
    const name = blockType('QTensor.fromBytes', type);
    const { block, bytes: size } = ggmlType(name);
    const width = shape.at(-1) ?? 0;
    const want = (sizeOf(shape) / block) * size;
    if (shape.length < 2 || width % block || bytes.length !== want)
      throw new ShapeError(
        `QTensor.fromBytes: ${name} of shape ${formatShape(shape)} takes ${want} bytes in rows of whole blocks of ` +
          `${block}; ${bytes.length} were given`,
      );
    const blocks = tensor(bytes, { shape: [...shape.slice(0, -1), (width / block) * size], dtype: 'u8', device });
    return new QTensor([{ type: name, blocks: keep(blocks) }]);
  }

  /** Values of f8e4m3 [..., rows, n] and what every 128 of a row are multiplied by, f32 [..., rows, n / 128]. */
  static fromFloat8(blocks: Tensor, scales: Tensor): QTensor {
    return new QTensor([{ type: FLOAT8, blocks: keep(blocks), scales: keep(scales) }]);
  }

  /** Values of f16 or bf16 [..., rows, n] as they are: products with activations of f32 widen them where they read. */
  static fromFloats(values: Tensor): QTensor {
    const type = floatType(values.dtype);
    if (!type) throw new DTypeError(`QTensor.fromFloats: it keeps f16 and bf16 as they are, not ${values.dtype}`);
    return new QTensor([{ type: type as BlockType, blocks: keep(values) }]);
  }

  /** Encodes a tensor of floats; the blocks are on its device. */
  static quantize(x: Tensor, type: string, options: Pick<EncodeOptions, 'importance'> = {}): QTensor {
    const float8 = ggmlType(type) === F8_E4M3;
    const name = float8 ? FLOAT8 : blockType('quantize', type);
    const { block } = ggmlType(name);
    const width = x.shape.at(-1);
    if (x.rank < 2 || width === undefined || width % block)
      throw new ShapeError(
        `quantize: ${formatShape(x.shape)} has no rows of whole blocks: ${name} takes ${block} values a block`,
      );
    if (float8) {
      if (options.importance)
        throw new ArgumentError('quantize: 8-bit floats take no importance: each is rounded alone');
      const { blocks, scales } = noGrad(() => scope(() => ({ ...encodeFloat8(x.detach()) })));
      return QTensor.fromFloat8(blocks, scales);
    }
    return new QTensor([{ type: name, blocks: keep(encodeBlocks(x, ggmlType(name), options)) }]);
  }

  /** The type, or those of the parts joined by '+'. */
  get type(): string {
    return [...new Set(this.parts.map((p) => p.type))].join('+');
  }
  /** Where the blocks lie. */
  get device(): Device {
    return this.parts[0].blocks.device;
  }
  /** The number of dimensions. */
  get rank(): number {
    return this.shape.length;
  }
  /** Bytes that the blocks take. */
  get bytes(): number {
    return this.parts.reduce(
      (n, { blocks, scales }) => n + blocks.size * bytesOf(blocks.dtype) + 4 * (scales?.size ?? 0),
      0,
    );
  }
  /** Whether its values are floats as they were stored: nothing was encoded, and nothing lost. */
  get isFloats(): boolean {
    return this.parts.every(isFloats);
  }

  /** The values as an ordinary tensor. */
  dequantize(dtype: DType = 'f32'): Tensor {
    return this.#joined((p) => kindOf(p).decode(p, dtype), -2);
  }

  /** x times the transpose; gradients flow to x. */
  matmul(x: Tensor, options: ProductOptions = {}): Tensor {
    return this.#joined((p) => kindOf(p).multiply(x, p, options), -1);
  }

  /** For weights [experts, rows, values]: each token's activations times those of the experts chosen for it. */
  matmulExperts(x: Tensor, experts: Tensor, options: ProductOptions = {}): Tensor {
    return this.#joined((p) => kindOf(p).multiplyExperts(x, p, experts, options), -1);
  }

  /** Rows by number: an embedding. */
  rows(ids: Tensor, dtype: DType = 'f32'): Tensor {
    if (this.parts.length > 1)
      throw new ArgumentError(`QTensor.rows: rows of several types (${this.type}) cannot be looked up by number`);
    const [first] = this.parts;
    return kindOf(first).lookUp(first, ids, dtype);
  }

  /** Root mean square of what encoding lost, over that of the original. */
  error(original: Tensor): number {
    return noGrad(() =>
      scope(() => {
        const x = original.detach().cast('f64');
        const lost = this.dequantize('f32').cast('f64').sub(x);
        return Math.sqrt(lost.sqr().sum().item() / x.sqr().sum().item());
      }),
    );
  }

  /** Rows after rows; equal types become one part. */
  static cat(list: readonly QTensor[]): QTensor {
    return QTensor.#copied(list, -2, (t) => t);
  }
  /** Matrices of one type, one for each expert, as [experts, rows, values]. */
  static stack(list: readonly QTensor[]): QTensor {
    const odd = list.find((q) => q.parts.length > 1 || q.type !== list[0].type);
    if (odd) throw new ArgumentError(`QTensor.stack: ${list[0]} and ${odd} do not stand together: their types differ`);
    return QTensor.#copied(list, 0, (t) => t.unsqueeze(0));
  }
  static #copied(list: readonly QTensor[], dim: number, shaped: (t: Tensor) => Tensor): QTensor {
    const runs: QPart[][] = [];
    for (const p of list.flatMap((q) => q.parts)) {
      if (runs.at(-1)?.[0].type === p.type) runs.at(-1)?.push(p);
      else runs.push([p]);
    }
    const join = (parts: readonly Tensor[]): Tensor =>
      keep(
        scope(() => {
          const [first, ...rest] = parts.map(shaped);
          return (rest.length === 0 ? first : first.cat(rest, dim)).copy();
        }),
      );
    return new QTensor(
      runs.map((run) => ({
        type: run[0].type,
        blocks: join(run.map((p) => p.blocks)),
        ...(isFloat8(run[0]) && { scales: join(run.map((p) => p.scales as Tensor)) }),
      })),
    );
  }

  /** The same rows in another order or a part of them; `f` sees a tensor of the rows' bytes and may only move rows. */
  mapRows(f: (rows: Tensor) => Tensor): QTensor {
    if (this.parts.length > 1)
      throw new ArgumentError(`QTensor: rows of several types (${this.type}) stay where they are`);
    return this.#each((t) => keep(scope(() => f(t).copy())));
  }

  /** The same blocks on another device. */
  to(device: Device | string): QTensor {
    return this.#each((t) => keep(t.to(device)));
  }
  #each(f: (t: Tensor) => Tensor): QTensor {
    return new QTensor(
      this.parts.map(({ type, blocks, scales }) => ({ type, blocks: f(blocks), ...(scales && { scales: f(scales) }) })),
    );
  }
  /** Gives the memory of the blocks back. */
  dispose(): void {
    for (const { blocks, scales } of this.parts) {
      blocks.dispose();
      scales?.dispose();
    }
  }
  /** What `using` calls at the end of a block. */
  [Symbol.dispose](): void {
    this.dispose();
  }
  /** Type and shape, not the values. */
  toString(): string {
    return `QTensor ${this.type} ${formatShape(this.shape)} on ${this.device.name}, ${this.bytes} bytes`;
  }
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }

  #joined(each: (p: QPart) => Tensor, dim: number): Tensor {
    const list = this.parts.map(each);
    return list.length === 1 ? list[0] : list[0].cat(list.slice(1), dim);
  }
}

/** What a product's right-hand side may be. */
export type Weight = Tensor | QTensor;
/** The weight where only floats will do. */
export function floats(weight: Weight, what: string): Tensor {
  if (!(weight instanceof QTensor)) return weight;
  throw new ArgumentError(`${what}: the weight is quantized (${weight}); dequantize() gives its floats`);
}
