// A decoder's tensors by the part they play: name maps say where each lies in a file and how fused ones are taken
// apart.
import { ggmlType } from '../../base/blocks/types.js';
import type { DType } from '../../base/dtype.js';
import { ShapeError, UnsupportedError } from '../../base/errors.js';
import { formatShape, sameShape, type Shape, sizeOf } from '../../base/shape.js';
import { renamed, stackedRecord } from '../../io/derived-records.js';
import { type Part, wholeShape } from '../../io/part-record.js';
import type { TensorRecord } from '../../io/stored-dtype.js';
import { type Init, normal, ONE, ZERO } from '../../nn/init.js';
import { type AnyLinear, Linear, recordStored, type StoredPart } from '../../nn/layers.js';
import { partOf } from '../../nn/part-of.js';
import type { StoredBlocks, VarBuilder } from '../../nn/var-builder.js';
import { arange } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import { QTensor, type Weight } from '../../tensor/qtensor.js';
import { isFloatType } from '../../tensor/stored-floats.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { HeadSizes } from './features.js';
import { madeOf } from '../parts.js';
import type { Role } from './roles.js';
import type { Shard } from './shard.js';
import { reorderHeads, take, type Taken } from '../files/stored-rows.js';

/** Takes a part out of a fused tensor; the first dimension is that of a weight's rows, a bias has no other. */
export type Rows = (t: Tensor, s: HeadSizes) => Tensor;
export interface Place {
  /** '{e}' stands for an expert's number: such tensors are stacked. */
  readonly name: string;
  readonly rows?: Rows;
  /** The last two dimensions are stored (in, out). */
  readonly transposed?: boolean;
  /** The tensor has this very name, its bias '_bias' after it; others are NAME.weight and NAME.bias. */
  readonly bare?: boolean;
  /** The name of its bias where it is another. */
  readonly bias?: string;
  /** So many matrices stand in it one below the other. */
  readonly matrices?: number;
}
/** A name, a place, or several of which the first that is stored counts. */
export type Where = string | Place | readonly (string | Place)[];
export type Names = { readonly [R in Role]?: Where } & {
  /**
   * Layer names begin with this. Here and in the names within '{i}' is the layer's number; where a stored block is two
   * layers, '{half}' is the block's, and '{nth}' 1 or 2, '{odd}' 0 or 1.
   */
  readonly layer: string;
  /** What each layer's names begin with, where no number says it. */
  readonly layers?: readonly string[];
};

/** A name with a layer's number. */
export const numbered = (name: string, layer: number): string =>
  name
    .replace('{i}', String(layer))
    .replace('{half}', String(Math.floor(layer / 2)))
    .replace('{nth}', String(1 + (layer % 2)))
    .replace('{odd}', String(layer % 2));

export const placesOf = (where: Where): readonly Place[] =>
  (Array.isArray(where) ? where : [where]).map((p) => (typeof p === 'string' ? { name: p } : p) as Place);

export interface LinearPart {
  readonly role: Role;
  readonly outputs: number;
  /** For queries and keys: how a head's rows are put in order for turning. */
  readonly order?: readonly number[];
}

/** The shape of matrices that stand one below the other, each on its own. */
const apart = ([rows, ...rest]: Shape, count: number): number[] => [count, rows / count, ...rest];

/** A part with the shape that this model or rank has of it. */
interface OwnPart {
  readonly role: Role;
  readonly shape: Shape;
  readonly order?: readonly number[];
}
/** The dimension of rows, along which parts are joined. */
const rowsDim = (shape: Shape, kind: 'weight' | 'bias'): number =>
  Math.max(0, shape.length - (kind === 'weight' ? 2 : 1));
/** Experts that stand apart in files as one tensor; what is stored as one, as it is. */
const stackedIf = (p: Place, names: readonly string[], records: readonly TensorRecord[]): TensorRecord =>
  p.name.includes('{e}') ? stackedRecord(names[0], records) : records[0];

export class Weights {
  readonly builder: VarBuilder;
  readonly #names: Names;
  readonly #sizes: HeadSizes;
  readonly #biases: readonly Role[];
  readonly #prefix: string;
  readonly layer: number | undefined;
  /** The tensors come from files: one that is not there is an error, not a variable to make. */
  readonly stored: boolean;
  /** This rank's share, where the model is shared out among several. */
  readonly shard: Shard | undefined;

  /** `biases` are the parts that have one. */
  constructor(
    builder: VarBuilder,
    names: Names,
    sizes: HeadSizes,
    biases: readonly Role[],
    stored = false,
    shard?: Shard,
    layer?: number,
  ) {
    this.shard = shard;
    this.builder = builder;
    this.stored = stored;
    this.#names = names;
    this.#sizes = shard ? shard.sizes(layer, sizes) : sizes;
    this.#biases = biases;
    this.layer = layer;
    this.#prefix = layer === undefined ? '' : `${numbered(names.layers?.[layer] ?? names.layer, layer)}.`;
  }
  /** Those of one layer, whose heads may have sizes and whose parts biases of their own. */
  of(layer: number, sizes: HeadSizes = this.#sizes, biases = this.#biases): Weights {
    return new Weights(this.builder, this.#names, sizes, biases, this.stored, this.shard, layer);
  }
  #full(p: Place, kind: 'weight' | 'bias', expert = 0): string {
    if (kind === 'bias' && p.bias !== undefined) return `${this.#prefix}${p.bias}`;
    const name = numbered(p.name.replace('{e}', String(expert)), this.layer ?? 0);
    return `${this.#prefix}${name}${p.bare ? (kind === 'bias' ? '_bias' : '') : `.${kind}`}`;
  }
  #place(role: Role, kind: 'weight' | 'bias'): Place | undefined {
    const places = this.#names[role] === undefined ? [] : placesOf(this.#names[role]);
    const stored = (as: 'weight' | 'bias'): Place | undefined =>
      places.find((p) => this.builder.has(this.#full(p, as)));
    // A bias stands beside its weight: another place's would be another part's.
    return stored('weight') ?? stored(kind) ?? places[0];
  }
  /** Where a part lies in the files and the names of its tensors, one for each expert that stands apart. */
  find(role: Role, kind: 'weight' | 'bias'): { readonly place: Place; readonly names: readonly string[] } | undefined {
    const place = this.#place(role, kind);
    if (!place || !this.builder.has(this.#full(place, kind))) return undefined;
    const names = [this.#full(place, kind)];
    if (place.name.includes('{e}'))
      while (this.builder.has(this.#full(place, kind, names.length))) names.push(this.#full(place, kind, names.length));
    return { place, names };
  }
  has(role: Role): boolean {
    const p = this.#place(role, 'weight');
    return p !== undefined && this.builder.has(this.#full(p, 'weight'));
  }
  /** A part's bias, if this model's part has one: the features say so, not the file. */
  bias(role: Role, shape: Shape, dtype = this.builder.dtype): Tensor | undefined {
    if (!this.#biases.includes(role)) return undefined;
    const bias = this.tensor(role, shape, ZERO, 'bias', dtype);
    if (!this.shard?.dropsBias(role, this.layer)) return bias;
    const none = keep(bias.zerosLike());
    bias.dispose();
    return none;
  }
  /** The name under which a part is (or would be) stored. */
  nameOf(role: Role, kind: 'weight' | 'bias' = 'weight'): string {
    const p = this.#place(role, kind);
    return p ? this.#full(p, kind) : `${this.#prefix}${role}`;
  }
  /** A part as it is meant, fused or not; made by `init` where a map of variables is filled. */
  tensor(
    role: Role,
    shape: Shape,
    init: Init = ZERO,
    kind: 'weight' | 'bias' = 'weight',
    dtype = this.builder.dtype,
  ): Tensor {
    const p = this.#place(role, kind);
    if (!p) throw new ShapeError(`weights: this family has no name for ${role} ${kind}`);
    if (p.rows || p.transposed || p.matrices || p.name.includes('{e}'))
      return this.#read([{ role, shape }], kind, dtype);
    const name = this.#full(p, kind);
    const part = this.shard?.part(role, kind, this.layer);
    if (!part) return this.builder.get(shape, name, init, dtype);
    return this.builder.part(wholeShape(shape, part), name, part, dtype);
  }

  /**
   * A part whose stored pieces stand one below the other, each of as many rows as it has; '{p}' in the name stands for
   * a piece's own.
   */
  pieces(role: Role, pieces: readonly string[], shape: Shape): Tensor {
    const p = placesOf(this.#names[role] as Where).find((x) => x.name.includes('{p}'));
    const names = p ? pieces.map((piece) => this.#full(p, 'weight').replace('{p}', piece)) : [];
    if (!p || !this.builder.has(names[0])) return this.tensor(role, shape);
    const part = this.shard?.part(role, 'weight', this.layer);
    const made = madeOf(this.builder, (read) => {
      const [first, ...rest] = names.map((name) => {
        const piece = read(undefined, name);
        return p.rows ? p.rows(piece, this.#sizes) : piece;
      });
      const whole = first.cat(rest, 0);
      return (part ? partOf(whole, part, names[0]) : whole).copy();
    });
    return this.#checked(made, [{ role, shape }], 'weight', names[0]);
  }

  /** What of stored tensors makes parts that lie in the same ones: a model's, or this rank's. */
  #wanted(parts: readonly OwnPart[], kind: 'weight' | 'bias') {
    const [{ role, shape }] = parts;
    const p = this.#place(role, kind) as Place;
    const ownPart = (role: Role): Part | undefined => this.shard?.part(role, kind, this.layer);
    const own = ownPart(role);
    const [experts] = own ? wholeShape(shape, own) : shape;
    const names = p.name.includes('{e}')
      ? Array.from({ length: experts }, (_, e) => this.#full(p, kind, e))
      : [this.#full(p, kind)];
    const wanted = parts.map(({ role, order }) => {
      const { rows } = this.#place(role, kind) as Place;
      const part = ownPart(role);
      const of = rows && ((t: Tensor): Tensor => rows(t, this.#sizes));
      return { ...(of && { rows: of }), ...(part && { part }), ...(order && { order }) };
    });
    const of = (file: TensorRecord): Taken => {
      const stored = p.matrices ? renamed(file, file.name, apart(file.shape, p.matrices)) : file;
      const rows = shape.length > 1 && stored.shape.length > 1 && kind === 'weight';
      return take(stored, wanted, { turned: p.transposed === true && kind === 'weight', rows }, this.builder.device);
    };
    return { p, names, of };
  }
  /** Parts of the same stored tensors as floats, rows after rows. */
  #read(parts: readonly OwnPart[], kind: 'weight' | 'bias', dtype: DType): Tensor {
    const { p, names, of } = this.#wanted(parts, kind);
    const records = names.map((name) => this.builder.record(name));
    if (records.some((r) => !r)) return this.#fromMemory(p, names, parts, kind, dtype);
    const { record, finish } = of(stackedIf(p, names, records as TensorRecord[]));
    const read = this.builder.load(record, dtype);
    const own = finish ? keep(scope(() => finish(read).copy())) : read;
    if (own !== read) read.dispose();
    return this.#checked(own, parts, kind, names[0]);
  }
  /** Throws where what a stored tensor gave is not what the config says. */
  #checked<T extends Weight>(own: T, parts: readonly OwnPart[], kind: 'weight' | 'bias', name: string): T {
    const [{ shape }] = parts;
    const at = rowsDim(shape, kind);
    const rows = parts.reduce((n, x) => n + x.shape[at], 0);
    const want = shape.map((n, i) => (i === at ? rows : n));
    if (sameShape(own.shape, want)) return own;
    throw new ShapeError(
      `${name}: its part for ${parts.map((x) => x.role).join(', ')} is ${formatShape(own.shape)}; by the config ` +
        `it is ` +
        `${formatShape(want)}`,
    );
  }
  /** The same from tensors that are there already, whole: a trained map's. */
  #fromMemory(
    p: Place,
    names: readonly string[],
    parts: readonly OwnPart[],
    kind: 'weight' | 'bias',
    dtype: DType,
  ): Tensor {
    const made = scope(() => {
      const all = names.map((name) => {
        const whole = this.builder.get(undefined, name, ZERO, dtype);
        const t = p.matrices ? whole.reshape(apart(whole.shape, p.matrices)) : whole;
        return p.transposed && kind === 'weight' ? t.t() : t;
      });
      const [first, ...rest] = p.name.includes('{e}') ? all.map((t) => t.unsqueeze(0)) : all;
      const whole = rest.length > 0 ? first.cat(rest, 0) : first;
      const list = parts.map(({ role, order }) => {
        const { rows } = this.#place(role, kind) as Place;
        const part = this.shard?.part(role, kind, this.layer);
        const of = rows ? rows(whole, this.#sizes) : whole;
        return reorderHeads(part ? partOf(of, part, names[0]) : of, order);
      });
      return (list.length === 1 ? list[0] : list[0].cat(list.slice(1), rowsDim(parts[0].shape, kind))).copy();
    });
    return this.#checked(keep(made), parts, kind, names[0]);
  }

  /**
   * A matrix as it is stored: in blocks where the file has them and its rows can be taken apart in them, else in
   * floats.
   */
  matrix(role: Role, shape: Shape, init: Init = ZERO): Weight {
    return this.#blocks([{ role, shape }]) ?? this.tensor(role, shape, init);
  }
  /** Parts of the same stored tensors in their blocks, rows after rows; undefined where they are floats. */
  #blocks(parts: readonly OwnPart[]): QTensor | undefined {
    if (!this.#inBlocks(...parts.map((x) => x.role))) return undefined;
    const { p, names, of } = this.#wanted(parts, 'weight');
    const stored = names.map((name) => {
      const blocks = this.builder.blocks(name);
      if (!blocks) throw new UnsupportedError(`${name}: is not in blocks as the experts before it are`);
      return blocks;
    });
    const [first] = stored;
    const odd = stored.findIndex((s) => s.type !== first.type);
    if (odd >= 0)
      throw new UnsupportedError(`${names[odd]}: is in ${stored[odd].type}, the experts before it in ${first.type}`);
    for (const x of parts) this.#mustDivide(x.role, first);
    const taken = of(
      stackedIf(
        p,
        names,
        stored.map((s) => s.blocks),
      ),
    );
    const scales =
      first.scales &&
      of(
        stackedIf(
          p,
          names,
          stored.map((s) => s.scales as TensorRecord),
        ),
      );
    const values = (taken.record.byteLength / first.blocks.byteLength) * sizeOf(first.shape);
    const q = this.builder.loadBlocks({
      type: first.type,
      shape: [values],
      blocks: taken.record,
      ...(scales && { scales: scales.record }),
    });
    if (!taken.finish) return this.#checked(q, parts, 'weight', names[0]);
    const finished = (t: Tensor, { finish }: Taken): Tensor => keep(scope(() => (finish ? finish(t) : t).copy()));
    const [read] = q.parts;
    const own = new QTensor([
      {
        type: first.type,
        blocks: finished(read.blocks, taken),
        ...(scales && { scales: finished(read.scales as Tensor, scales) }),
      },
    ]);
    q.dispose();
    return this.#checked(own, parts, 'weight', names[0]);
  }
  /** Along a row a part must be made of whole blocks. */
  #mustDivide(role: Role, { type, shape }: StoredBlocks): void {
    const part = this.shard?.part(role, 'weight', this.layer);
    const rank = shape.length + ((this.#place(role, 'weight') as Place).name.includes('{e}') ? 1 : 0);
    const [{ block }, width] = [ggmlType(type), shape.at(-1) as number];
    if (part?.dim !== rank - 1 || (width / part.count) % block === 0) return;
    throw new UnsupportedError(
      `${this.nameOf(role)}: rows of ${width} in ${type}'s blocks of ${block} cannot be shared out among ` +
        `${part.count} ranks; ` +
        `${role === 'expertDown' ? "{ experts: 'whole' } gives each rank some of the experts, " : ''}{ quantized: ` +
        `false } decodes them`,
    );
  }
  /** Whether all of these parts are stored in blocks that rows can be taken from. */
  #inBlocks(...roles: readonly Role[]): boolean {
    return roles.every((role) => {
      const p = this.#place(role, 'weight');
      return p && !p.transposed && !p.matrices && this.#areBlocks(this.find(role, 'weight')?.names ?? []);
    });
  }
  /** Experts that stand apart are blocks where the first is; as floats they stay stored where all are of one type. */
  #areBlocks([first, ...others]: readonly string[]): boolean {
    const type = first && this.builder.blocks(first)?.type;
    if (!type) return false;
    return !isFloatType(type) || others.every((name) => this.builder.blocks(name)?.type === type);
  }

  /** Parts joined row after row; those that lie in the same stored tensors are read at once. */
  #joined(parts: readonly OwnPart[], kind: 'weight' | 'bias', init: Init): Weight {
    const inBlocks = kind === 'weight' && this.#inBlocks(...parts.map((x) => x.role));
    const at = (x: OwnPart): Place | undefined => this.#place(x.role, kind);
    // Biases may stand apart where weights are one.
    const lies = (p: Place | undefined): string | undefined => (kind === 'bias' && p?.bias) || p?.name;
    const together = at(parts[0])?.rows && parts.every((x) => at(x)?.rows && lies(at(x)) === lies(at(parts[0])));
    if (together) return (inBlocks && this.#blocks(parts)) || this.#read(parts, kind, this.builder.dtype);
    if (inBlocks) {
      const list = parts.map((x) => this.#blocks([x]) as QTensor);
      if (list.length === 1) return list[0];
      const joined = QTensor.cat(list);
      for (const q of list) q.dispose();
      return joined;
    }
    const list = parts.map((x) => {
      const t = this.tensor(x.role, x.shape, init, kind);
      if (!x.order) return t;
      const moved = keep(scope(() => reorderHeads(t, x.order).copy()));
      t.dispose();
      return moved;
    });
    if (list.length === 1) return list[0];
    const whole = keep(list[0].cat(list.slice(1), rowsDim(parts[0].shape, kind)));
    for (const t of list) t.dispose();
    return whole;
  }
  /** The same for matrices of all experts, (experts, rows, inputs). */
  expertRows(roles: readonly Role[], shape: Shape): Weight {
    return this.#joined(
      roles.map((role) => ({ role, shape })),
      'weight',
      ZERO,
    );
  }
  /** Their biases, where these parts have any. */
  expertBias(roles: readonly Role[], shape: Shape): Tensor | undefined {
    if (!roles.every((role) => this.#biases.includes(role))) return undefined;
    return this.#joined(
      roles.map((role) => ({ role, shape })),
      'bias',
      ZERO,
    ) as Tensor;
  }

  /** One product for several stored ones that share an input. */
  linear(parts: readonly LinearPart[], inputs: number, init: Init = normal(0, 0.02)): AnyLinear {
    const layer = this.#linear(parts, inputs, init);
    const fused = this.#fused(parts);
    if (fused) return recordStored(layer, [fused]);
    const stored = parts.map((x): StoredPart | undefined => {
      const p = this.#place(x.role, 'weight');
      // Rows that a file keeps in another form have no name of their own.
      if (!p || p.rows || p.bare || p.name.includes('{e}')) return undefined;
      return { ...this.#storedAt(p), rows: x.outputs, ...(x.order && { order: x.order }) };
    });
    return stored.every((x) => x !== undefined) ? recordStored(layer, stored as StoredPart[]) : layer;
  }
  #storedAt(p: Place): Pick<StoredPart, 'name' | 'turned'> {
    return { name: this.#full(p, 'weight').replace(/\.weight$/, ''), ...(p.transposed && { turned: true }) };
  }
  /** A product that is one whole stored tensor, its rows in another order: queries, keys and values, gates and ups. */
  #fused(parts: readonly LinearPart[]): StoredPart | undefined {
    const places = parts.map((x) => this.#place(x.role, 'weight'));
    const [p] = places;
    if (!p || p.bare || p.matrices || this.shard || places.some((x) => !x?.rows || x.name !== p.name)) return undefined;
    const rows = parts.reduce((n, x) => n + x.outputs, 0);
    const shape = this.builder.record(this.#full(p, 'weight'))?.shape;
    if (shape?.length !== 2 || shape[p.transposed ? 1 : 0] !== rows) return undefined;
    const order = scope(() => {
      const numbers = arange(0, rows, 1, { dtype: 'i32', device: 'cpu' }).reshape([rows, 1]);
      return parts.flatMap(({ order: turns }, i) => {
        const own = reorderHeads((places[i]?.rows as Rows)(numbers, this.#sizes), turns);
        return own.flatten().toArray() as number[];
      });
    });
    return new Set(order).size === rows ? { ...this.#storedAt(p), rows, order } : undefined;
  }
  #linear(parts: readonly LinearPart[], inputs: number, init: Init = normal(0, 0.02)): AnyLinear {
    const [first] = parts;
    const biased = this.#biases.includes(first.role);
    const alike = parts.every((x) => this.#biases.includes(x.role) === biased);
    if (!alike && !biased)
      throw new ShapeError(`weights: of ${parts.map((x) => x.role).join(', ')} the first has no bias, and others do`);
    if (!this.has(first.role)) {
      const [p] = placesOf(this.#names[first.role] as Where);
      if (parts.length === 1)
        return new Linear(
          this.builder.get([first.outputs, inputs], this.#full(p, 'weight'), init),
          this.bias(first.role, [first.outputs]),
        );
      // A map of trained tensors keeps what belongs together as one; files hold the first by its own name or lack it.
      if (this.stored) this.builder.get([first.outputs, inputs], this.#full(p, 'weight'));
      const together = parts.map(({ role }) =>
        (placesOf(this.#names[role] as Where)[0] as Place).name.split('.').at(-1),
      );
      const at = p.name.includes('.') ? p.name.slice(0, p.name.lastIndexOf('.') + 1) : '';
      const outputs = parts.reduce((n, x) => n + x.outputs, 0);
      const name = `${this.#prefix}${at}${together.join('+')}`;
      return new Linear(
        this.builder.get([outputs, inputs], `${name}.weight`, init),
        biased ? this.builder.get([outputs], `${name}.bias`, ZERO) : undefined,
      );
    }
    const joined = (kind: 'weight' | 'bias', of = parts): Weight =>
      this.#joined(
        of.map(({ role, outputs: n, order }) => ({
          role,
          shape: kind === 'weight' ? [n, inputs] : [n],
          ...(order && { order }),
        })),
        kind,
        init,
      );
    const bias = !biased
      ? undefined
      : alike
        ? (joined('bias') as Tensor)
        : this.#withZeros(parts, (own) => joined('bias', own) as Tensor);
    const weight = joined('weight');
    return this.shard?.linear(first.role, weight, bias, this.layer) ?? new Linear<Weight>(weight, bias);
  }
  /** Biases of parts side by side, of which some have none. */
  #withZeros(parts: readonly LinearPart[], biasOf: (own: readonly LinearPart[]) => Tensor): Tensor {
    const like = biasOf([parts[0]]);
    const rest = parts
      .slice(1)
      .map((x) => (this.#biases.includes(x.role) ? biasOf([x]) : like.newZeros([x.outputs], like.dtype)));
    const whole = keep(like.cat(rest, 0));
    for (const t of [like, ...rest]) t.dispose();
    return whole;
  }
  /** A vector that norms multiply by. */
  normWeight(role: Role, shape: Shape, dtype = this.builder.dtype): Tensor {
    return this.tensor(role, shape, ONE, 'weight', dtype);
  }
}
