// A decoder's tensors by the part they play: name maps say where each lies in a file and how fused ones are taken
// apart.
import { ggmlType } from '../base/blocks/types.js';
import type { DType } from '../base/dtype.js';
import { ShapeError, UnsupportedError } from '../base/errors.js';
import { formatShape, sameShape, type Shape } from '../base/shape.js';
import { type Part, wholeShape } from '../io/part-record.js';
import { type Init, normal, ONE, ZERO } from '../nn/init.js';
import { type AnyLinear, Linear, recordStored, type StoredPart } from '../nn/layers.js';
import { partOf } from '../nn/part-of.js';
import type { VarBuilder } from '../nn/var-builder.js';
import { tensor } from '../tensor/create.js';
import { keep, scope } from '../tensor/scope.js';
import { QTensor, type Weight } from '../tensor/qtensor.js';
import type { Tensor } from '../tensor/tensor.js';
import type { HeadSizes } from './features.js';
import type { Shard } from './shard.js';

/** Parts of the whole model. */
export const MODEL_ROLES = ['embed', 'positions', 'embedNorm', 'finalNorm', 'head'] as const;
/** Parts of a layer. */
export const LAYER_ROLES = [
  ...['beforeMixer', 'afterMixer', 'beforeMlp', 'afterMlp'],
  ...['q', 'k', 'v', 'o', 'qNorm', 'kNorm', 'sinks'],
  ...['qA', 'qANorm', 'qB', 'kvA', 'kvANorm', 'kvB'],
  ...['gate', 'up', 'down', 'activation'],
  ...['router', 'choiceBias', 'expertGate', 'expertUp', 'expertDown'],
  ...['sharedGate', 'sharedUp', 'sharedDown', 'sharedSwitch'],
  ...['convIn', 'conv', 'convOut'],
  ...['qGate', 'stateIn', 'stateGate', 'stateRate', 'stateStep', 'stateConv', 'stateDecay', 'stateShift', 'stateSkip'],
  ...['stateNorm', 'stateOut'],
] as const;
export type Role = (typeof MODEL_ROLES)[number] | (typeof LAYER_ROLES)[number];

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
}
/** A name, a place, or several of which the first that is stored counts. */
export type Where = string | Place | readonly (string | Place)[];
export type Names = { readonly [R in Role]?: Where } & {
  /** Layer names begin with this; '{i}' is the layer's number. */
  readonly layer: string;
};

export const placesOf = (where: Where): readonly Place[] =>
  (Array.isArray(where) ? where : [where]).map((p) => (typeof p === 'string' ? { name: p } : p) as Place);

/** The rows of every head in another order. */
export function reorderHeads(t: Tensor, order: readonly number[] | undefined): Tensor {
  if (!order) return t;
  const [rows, ...rest] = t.shape;
  const ids = tensor(Uint32Array.from(order), { device: t.device });
  return t
    .reshape([rows / order.length, order.length, ...rest])
    .indexSelect(1, ids)
    .reshape(t.shape);
}

/** One tensor of all experts'. */
function stacked(parts: readonly Tensor[], name: string): Tensor {
  const odd = parts.find((t) => !sameShape(t.shape, parts[0].shape));
  if (odd)
    throw new ShapeError(
      `${name}: experts are ${formatShape(parts[0].shape)} and ${formatShape(odd.shape)}; they must be alike`,
    );
  const rows = parts.map((t) => t.unsqueeze(0));
  return rows[0].cat(rows.slice(1), 0);
}

export interface LinearPart {
  readonly role: Role;
  readonly outputs: number;
  /** For queries and keys: how a head's rows are put in order for turning. */
  readonly order?: readonly number[];
}

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
    this.#prefix = layer === undefined ? '' : `${names.layer.replace('{i}', String(layer))}.`;
  }
  /** Those of one layer, whose heads may have sizes of their own. */
  of(layer: number, sizes: HeadSizes = this.#sizes): Weights {
    return new Weights(this.builder, this.#names, sizes, this.#biases, this.stored, this.shard, layer);
  }
  #full(p: Place, kind: 'weight' | 'bias', expert = 0): string {
    if (kind === 'bias' && p.bias !== undefined) return `${this.#prefix}${p.bias}`;
    const name = p.name.replace('{e}', String(expert));
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
    const name = this.#full(p, kind);
    const plain = !p.rows && !p.transposed && !p.name.includes('{e}');
    const part = this.shard?.part(role, kind, this.layer);
    if (plain) {
      if (!part) return this.builder.get(shape, name, init, dtype);
      return this.builder.part(wholeShape(shape, part), name, part, dtype);
    }
    // Turned and stacked tensors are read in part, fused ones whole.
    if (!part || !p.rows) return this.#unfused(p, role, shape, kind, dtype, part);
    const whole = this.#unfused(p, role, wholeShape(shape, part), kind, dtype);
    const own = keep(scope(() => partOf(whole, part, name).copy()));
    whole.dispose();
    return own;
  }
  /** One of the tensors that are fused, turned or stacked in files; whole, or a rank's part of it. */
  #unfused(p: Place, role: Role, shape: Shape, kind: 'weight' | 'bias', dtype: DType, own?: Part): Tensor {
    const name = this.#full(p, kind);
    const read: Tensor[] = [];
    const turns = p.transposed === true && kind === 'weight';
    // Where the divided dimension lies in what is stored: experts stand apart there, turned matrices the other way round.
    const rank = shape.length - (p.name.includes('{e}') ? 1 : 0);
    const dim = (own?.dim ?? 0) - (shape.length - rank);
    const ownStored = own && dim >= 0 && { ...own, dim: turns && dim >= rank - 2 ? 2 * rank - 3 - dim : dim };
    const part = scope(() => {
      const stored = p.name.includes('{e}') ? this.#experts(p, kind, shape[0], dim < 0 ? own : undefined) : [0];
      const turned = stored.map((e) => {
        const at = this.#full(p, kind, e);
        const t = ownStored
          ? this.builder.part(undefined, at, ownStored, dtype)
          : this.builder.get(undefined, at, ZERO, dtype);
        read.push(t);
        return turns ? t.t() : t;
      });
      const whole = p.name.includes('{e}') ? stacked(turned, name) : turned[0];
      const t = p.rows ? p.rows(whole, this.#sizes) : whole;
      if (!sameShape(t.shape, shape))
        throw new ShapeError(
          `${name}: its part for ${role} is ${formatShape(t.shape)}; by the config it is ${formatShape(shape)}`,
        );
      return t.copy();
    });
    for (const t of read) t.dispose();
    return keep(part);
  }

  /**
   * Numbers of the experts that a stack is made of: all, or those of this rank; the others' tensors are theirs to use.
   */
  #experts(p: Place, kind: 'weight' | 'bias', held: number, own: Part | undefined): number[] {
    const first = own ? held * own.index : 0;
    for (let e = 0; own && e < held * own.count; e++)
      if (e < first || e >= first + held) this.shard?.elsewhere.add(this.#full(p, kind, e));
    return Array.from({ length: held }, (_, i) => first + i);
  }

  /**
   * A matrix as it is stored: in blocks where the file has them and its rows can be taken apart in them, else in
   * floats.
   */
  matrix(role: Role, shape: Shape, init: Init = ZERO): Weight {
    return this.#blocks(role, shape) ?? this.tensor(role, shape, init);
  }
  #blocks(role: Role, shape: Shape, order?: readonly number[]): QTensor | undefined {
    const p = this.#place(role, 'weight');
    if (!p || p.transposed) return undefined;
    const stored = p.name.includes('{e}')
      ? this.#stackedBlocks(p, shape)
      : this.builder.quantized(this.#full(p, 'weight'));
    if (!stored) return undefined;
    const part = this.shard?.part(role, 'weight', this.layer);
    const moved =
      p.rows || order || part
        ? stored.mapRows((rows) => {
            const unfused = p.rows ? p.rows(rows, this.#sizes) : rows;
            return reorderHeads(part ? this.#ownBlocks(unfused, part, stored, role) : unfused, order);
          })
        : stored;
    if (moved !== stored) stored.dispose();
    if (!sameShape(moved.shape, shape))
      throw new ShapeError(
        `${this.#full(p, 'weight')}: its part for ${role} is ${formatShape(moved.shape)}; by the config it is ` +
          `${formatShape(shape)}`,
      );
    return moved;
  }
  /** Experts that stand apart are kept in blocks where the model is whole: ranks read theirs as floats. */
  #holdsBlocks(p: Place): boolean {
    return !p.name.includes('{e}') || !this.shard;
  }
  /** Experts that stand apart in files, as one. */
  #stackedBlocks(p: Place, [count]: Shape): QTensor | undefined {
    if (!this.#holdsBlocks(p)) return undefined;
    const list: QTensor[] = [];
    for (let e = 0; e < count; e++) {
      const q =
        this.builder.hasBlocks(this.#full(p, 'weight', e)) && this.builder.quantized(this.#full(p, 'weight', e));
      if (q) list.push(q);
      else if (list.length > 0)
        throw new UnsupportedError(`${this.#full(p, 'weight', e)}: is not in blocks as the experts before it are`);
      else return undefined;
    }
    const stacked = QTensor.stack(list);
    for (const q of list) q.dispose();
    return stacked;
  }
  /** A part of rows in blocks; along a row it must be made of whole blocks. */
  #ownBlocks(rows: Tensor, part: Part, stored: QTensor, role: Role): Tensor {
    const { block } = ggmlType(stored.type);
    const width = stored.shape.at(-1) as number;
    if (part.dim === rows.rank - 1 && (width / part.count) % block !== 0)
      throw new UnsupportedError(
        `${this.nameOf(role)}: rows of ${width} in ${stored.type}'s blocks of ${block} cannot be shared out among ${part.count} ranks; ` +
          `${role === 'expertDown' ? "{ experts: 'whole' } gives each rank some of the experts, " : ''}{ quantized: false } decodes them`,
      );
    return partOf(rows, part, this.nameOf(role));
  }
  /** Whether all of these parts are stored in blocks that rows can be taken from. */
  inBlocks(...roles: readonly Role[]): boolean {
    return roles.every((role) => {
      const p = this.#place(role, 'weight');
      return p && !p.transposed && this.#holdsBlocks(p) && this.builder.hasBlocks(this.#full(p, 'weight'));
    });
  }
  /** Parts that are all stored in blocks, joined row after row. */
  #joinedBlocks(parts: readonly LinearPart[], inputs: number): QTensor | undefined {
    const list: QTensor[] = [];
    for (const x of parts) {
      const q = this.#blocks(x.role, [x.outputs, inputs], x.order);
      if (!q) {
        for (const other of list) other.dispose();
        return undefined;
      }
      list.push(q);
    }
    if (list.length === 1) return list[0];
    const joined = QTensor.cat(list);
    for (const q of list) q.dispose();
    return joined;
  }

  /** One product for several stored ones that share an input. */
  linear(parts: readonly LinearPart[], inputs: number, init: Init = normal(0, 0.02)): AnyLinear {
    const layer = this.#linear(parts, inputs, init);
    const stored = parts.map((x): StoredPart | undefined => {
      const p = this.#place(x.role, 'weight');
      // Rows that a file keeps in another form have no name of their own.
      if (!p || p.rows || p.transposed || p.bare || p.name.includes('{e}')) return undefined;
      const name = this.#full(p, 'weight').replace(/\.weight$/, '');
      return { name, rows: x.outputs, ...(x.order && { order: x.order }) };
    });
    return stored.every((x) => x !== undefined) ? recordStored(layer, stored as StoredPart[]) : layer;
  }
  #linear(parts: readonly LinearPart[], inputs: number, init: Init = normal(0, 0.02)): AnyLinear {
    const [first] = parts;
    const biased = this.#biases.includes(first.role);
    if (parts.some((x) => this.#biases.includes(x.role) !== biased))
      throw new ShapeError(`weights: of ${parts.map((x) => x.role).join(', ')} all have a bias or none`);
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
    const joined = (kind: 'weight' | 'bias'): Tensor => {
      const shape = (n: number): number[] => (kind === 'weight' ? [n, inputs] : [n]);
      const stored = parts.map((x) => {
        const t = this.tensor(x.role, shape(x.outputs), init, kind);
        if (!x.order) return t;
        const moved = keep(scope(() => reorderHeads(t, x.order).copy()));
        t.dispose();
        return moved;
      });
      if (stored.length === 1) return stored[0];
      const whole = keep(stored[0].cat(stored.slice(1), 0));
      for (const t of stored) t.dispose();
      return whole;
    };
    const bias = biased ? joined('bias') : undefined;
    const weight = this.#joinedBlocks(parts, inputs) ?? joined('weight');
    return this.shard?.linear(first.role, weight, bias, this.layer) ?? new Linear<Weight>(weight, bias);
  }
  /** A vector that norms multiply by. */
  normWeight(role: Role, shape: Shape, dtype = this.builder.dtype): Tensor {
    return this.tensor(role, shape, ONE, 'weight', dtype);
  }
}
