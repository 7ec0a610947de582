// A decoder shared out among ranks: which part of which tensor a rank holds, what its layers look like then, and where
// the ranks' parts are put together. Heads (of attention and of states), channels of short convolutions, the inner rows
// of feed-forward branches and experts, or experts as a whole, and the vocabulary are divided; everything else is held
// whole by every rank.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import type { Part, Share } from '../../io/part-record.js';
import { Linear } from '../../nn/layers.js';
import { QTensor, type Weight } from '../../tensor/qtensor.js';
import type { Tensor } from '../../tensor/tensor.js';
import { EXPERT_DIVISIONS, type ExpertDivision } from './expert-divisions.js';
import {
  type Attention,
  type DeltaNet,
  type Experts,
  type Features,
  type HeadSizes,
  keepsKeys,
  keyed,
  type Layer,
  type Mamba1,
  type Mamba2,
  type Mixer,
  type Mlp,
} from './features.js';
import type { Role } from './roles.js';

/** What a model asks of the ranks it is shared out among; a Group of wick/distributed has it. */
export interface ShardGroup {
  /** This rank's number, from 0. */
  readonly rank: number;
  /** How many ranks there are. */
  readonly size: number;
  /** Whether its calls can be part of recorded work (Device.capture). */
  readonly recordable: boolean;
  /** The sum of everyone's x, on all ranks. */
  allReduce(x: Tensor): Tensor;
  /** Everyone's x one after another along a dimension, on all ranks. */
  allGather(x: Tensor, dim: number): Tensor;
}

/** The dimension of a part that is divided: [weight, bias]. Roles that are not here are held whole. */
const DIVIDED: { readonly [R in Role]?: readonly [weight: number, bias?: number] } = {
  // By heads.
  ...{ q: [0, 0], k: [0, 0], v: [0, 0], qB: [0, 0], kvB: [0, 0], sinks: [0], o: [1], qGate: [0, 0] },
  ...{ stateIn: [0, 0], stateConv: [0, 0], stateGate: [0, 0], stateRate: [0, 0], stateStep: [0, 0] },
  ...{ stateQuery: [0], stateKey: [0], stateValue: [0] },
  ...{ stateDecay: [0], stateShift: [0], stateSkip: [0], stateOut: [1], stateParts: [1], stateSteps: [0, 0] },
  // By channels.
  ...{ convIn: [0, 0], conv: [0, 0], convOut: [1] },
  // By inner rows; a product over what is divided is a sum over ranks, and its bias is added after it.
  ...{ gate: [0, 0], up: [0, 0], down: [1], sharedGate: [0, 0], sharedUp: [0, 0], sharedDown: [1] },
  ...{ expertGate: [1, 1], expertUp: [1, 1], expertDown: [2] },
  // By tokens.
  ...{ embed: [0], head: [0, 0] },
};
const BY_KEY_HEADS: readonly Role[] = ['k', 'v', 'kNorm'];
const CONVOLVED: readonly Role[] = ['convIn', 'conv', 'convOut'];
const ENDS: readonly Role[] = ['embed', 'head'];
const EXPERTS: readonly Role[] = ['expertGate', 'expertUp', 'expertDown'];
/** Products whose result is a sum over ranks. */
const SUMMED: readonly Role[] = ['o', 'down', 'sharedDown', 'stateOut', 'stateParts', 'convOut'];

/** y = (sum over ranks of x W') + b: each rank has some of the inputs. */
class SummedLinear extends Linear<Weight> {
  readonly #group: ShardGroup;
  constructor(weight: Weight, bias: Tensor | undefined, group: ShardGroup) {
    super(weight, bias);
    this.#group = group;
  }
  override forward(x: Tensor): Tensor {
    const weight: Weight = this.weight;
    const y = this.#group.allReduce(weight instanceof QTensor ? weight.matmul(x, this.product) : x.matmul(weight.t()));
    return this.bias ? y.add(this.bias) : y;
  }
}

type State = DeltaNet | Mamba2 | Mamba1;

/** Mixers whose parts read each other. */
const UNDIVIDED = [
  'recurrence',
  'fading',
  'shared',
  'channel delta',
  'fading mean',
  'fed back',
  'memory',
  'convolved',
  'compressed',
] as const;
type Undivided = Extract<Mixer, { readonly kind: (typeof UNDIVIDED)[number] }>;
const isUndivided = (m: Mixer): m is Undivided => (UNDIVIDED as readonly string[]).includes(m.kind);

/** What one rank holds of a model whose heads and inner rows are divided among ranks. */
export class Shard {
  /** The ranks that share the model. */
  readonly group: ShardGroup;
  /** The whole model's. */
  readonly whole: Features;
  /** This rank's: fewer heads, narrower branches. */
  readonly own: Features;
  /** Rows of embedding and head that each rank holds; the last ones may end with zeros. */
  readonly entries: number;
  readonly #division: ExpertDivision | undefined;

  constructor(group: ShardGroup, whole: Features, experts?: ExpertDivision) {
    if (experts !== undefined && !EXPERT_DIVISIONS.includes(experts))
      throw new ArgumentError(
        `experts: ${JSON.stringify(experts)} is no division; there are ${EXPERT_DIVISIONS.join(', ')}`,
      );
    if (experts !== undefined && !whole.layers.some((l) => l.mlp.kind === 'experts'))
      throw new ArgumentError(`experts: ${JSON.stringify(experts)} divides mixtures, and this ${whole.family} is none`);
    this.group = group;
    this.whole = whole;
    this.#division = experts;
    this.entries = Math.ceil(whole.vocabSize / group.size);
    this.own = { ...whole, layers: whole.layers.map((layer, i) => this.#layer(layer, i)) };
  }

  #refuse(layer: number, rule: string): never {
    throw new UnsupportedError(
      `${this.whole.family}: cannot be shared out among ${this.group.size} ranks: in layer ${layer} ${rule}`,
    );
  }
  #layer(layer: Layer, i: number): Layer {
    const { mixer: m, mlp } = layer;
    const { layerInputs, streams, embedWidth, cycles, hyper } = this.whole;
    if (layerInputs || streams || embedWidth || cycles || hyper)
      this.#refuse(i, "vectors beside the model's own do not divide");
    if (layer.late) this.#refuse(i, 'experts beside a feed-forward branch do not divide');
    if (mlp.kind === 'experts' && mlp.idle) this.#refuse(i, 'experts that compute nothing do not divide');
    if (m.kind === 'attention' && m.experts) this.#refuse(i, 'experts of attention do not divide');
    if (m.kind === 'attention' && m.weighedKeys) this.#refuse(i, 'weights of keys are made of all values');
    if (m.kind === 'attention' && m.differential) this.#refuse(i, 'heads that come in pairs do not divide');
    if (m.kind === 'attention' && m.outNorm) this.#refuse(i, 'a norm over all heads does not divide');
    if (mlp.kind === 'both' || (mlp.kind === 'dense' && (mlp.innerNorm || mlp.sparse !== undefined)))
      this.#refuse(i, 'what reads a whole feed-forward branch does not divide');
    return { ...layer, mixer: this.#mixer(layer.mixer, i), mlp: this.#mlp(layer.mlp, i) };
  }
  #mixer(m: Mixer, i: number): Mixer {
    const n = this.group.size;
    if (m.kind === 'none') return m;
    if (isUndivided(m)) return this.#refuse(i, `a mixer of kind ${m.kind} does not divide`);
    if (m.kind === 'conv') return m.channels % n === 0 ? { ...m, channels: m.channels / n } : m; // else held whole
    if (m.kind === 'beside')
      return { ...m, state: this.#state(m.state) as Mamba2, attention: this.#mixer(m.attention, i) as Attention };
    if (!keepsKeys(m)) return this.#state(m);
    if (m.heads % n !== 0) this.#refuse(i, `${m.heads} heads do not divide by ${n}`);
    if (m.kind === 'latent') return { ...m, heads: m.heads / n };
    const { count, index } = this.#keyPart(m, i);
    const heads = m.heads / n;
    const own: Attention = { ...m, heads, kvHeads: m.kvHeads / count };
    if ((index + 1) * own.kvHeads > m.kvHeads) this.#refuse(i, 'key heads run out');
    return m.alibi ? { ...own, alibi: m.alibi.slice(this.group.rank * heads, (this.group.rank + 1) * heads) } : own;
  }
  /** What a rank has of things that several ranks may have to share: undefined where they cannot. */
  #shareOf(things: number): Share | undefined {
    const { size, rank } = this.group;
    if (things % size === 0) return { index: rank, count: size };
    return size % things === 0 ? { index: Math.floor((rank * things) / size), count: things } : undefined;
  }
  /** Fewer key heads than ranks: several ranks hold the same one. */
  #keyPart(m: Attention, i: number): Share {
    const { size } = this.group;
    const share = this.#shareOf(m.kvHeads);
    return share ?? this.#refuse(i, `${m.kvHeads} key heads neither divide by ${size} nor divide it`);
  }
  /** A layer that remembers a state is divided by its heads or channels, or held whole where they do not divide. */
  #state(m: State): State {
    const n = this.group.size;
    if (!this.#dividesState(m)) return m;
    if (m.kind === 'mamba') return { ...m, inner: m.inner / n };
    if (m.kind === 'delta') return { ...m, keyHeads: m.keyHeads / n, valueHeads: m.valueHeads / n };
    return { ...m, heads: m.heads / n, groups: m.groups / (this.#shareOf(m.groups) as Share).count };
  }
  #dividesState(m: State): boolean {
    const n = this.group.size;
    if (m.kind === 'mamba') return m.inner % n === 0;
    return m.kind === 'delta' ? m.keyHeads % n === 0 : m.heads % n === 0 && this.#shareOf(m.groups) !== undefined;
  }
  /** What stands one after another in a state's first product and in its convolution. */
  #stateSections(m: State, role: Role): Part['sections'] {
    const each: Share = { index: this.group.rank, count: this.group.size };
    if (m.kind === 'mamba')
      return (role === 'stateConv' ? [m.inner] : [m.inner, m.inner]).map((size) => ({ size, ...each }));
    if (m.kind === 'delta') {
      const [keys, values] = [m.keyHeads * m.keyDim, m.valueHeads * m.valueDim];
      return [keys, keys, values].map((size) => ({ size, ...each }));
    }
    const values = { size: m.heads * m.headDim, ...each };
    const keys = { size: m.groups * m.stateDim, ...(this.#shareOf(m.groups) as Share) };
    const convolved = [values, keys, keys];
    return role === 'stateConv' ? convolved : [values, ...convolved, { size: m.heads, ...each }];
  }
  #mlp(m: Mlp, i: number): Mlp {
    if (m.kind === 'none' || m.kind === 'both') return m;
    const n = this.group.size;
    const divided = (inner: number, what: string): number =>
      inner % n === 0 ? inner / n : this.#refuse(i, `${what} of ${inner} rows does not divide by ${n}`);
    if (m.kind === 'dense') return { ...m, inner: divided(m.inner, 'a feed-forward branch') };
    const { rank } = this.group;
    const held = { first: (rank * m.count) / n, count: m.count / n };
    const own: Experts = this.#wholeExperts(m, i) ? { ...m, held } : { ...m, inner: divided(m.inner, 'an expert') };
    return m.shared ? { ...own, shared: { ...m.shared, inner: divided(m.shared.inner, 'the shared expert') } } : own;
  }

  /** By rows where they divide and nothing else was asked for. */
  #wholeExperts({ inner, count }: Experts, i: number): boolean {
    const n = this.group.size;
    if (this.#division === 'rows' || (this.#division === undefined && (inner % n === 0 || count % n !== 0)))
      return false;
    return count % n === 0 || this.#refuse(i, `${count} experts do not divide by ${n}`);
  }

  /** Sizes of the whole layer's heads, which slicing fused tensors needs. */
  sizes(layer: number | undefined, own: HeadSizes): HeadSizes {
    const mixer = layer === undefined ? undefined : keyed(this.whole.layers[layer].mixer);
    return mixer?.kind === 'attention' ? mixer : own;
  }
  /** The part of a tensor that this rank holds; undefined where it holds all of it. */
  part(role: Role, kind: 'weight' | 'bias', layer: number | undefined): Part | undefined {
    const { rank: index, size: count } = this.group;
    const { mixer, mlp } = layer === undefined ? {} : this.whole.layers[layer];
    const keys = mixer && keyed(mixer);
    const attention = keys?.kind === 'attention' ? keys : undefined;
    const state = mixer?.kind === 'beside' ? mixer.state : mixer;
    // Norms with weights for every head are divided as the heads are.
    const each = (role === 'qNorm' || role === 'kNorm') && attention?.qkNorm?.over === 'each';
    const dim = each ? 0 : DIVIDED[role]?.[kind === 'weight' ? 0 : 1];
    if (EXPERTS.includes(role) && mlp?.kind === 'experts' && this.#wholeExperts(mlp, layer as number))
      return { dim: 0, index, count };
    if (dim === undefined) return undefined;
    if (ENDS.includes(role)) return { dim, index, count, whole: this.whole.vocabSize };
    if (mixer?.kind === 'conv' && CONVOLVED.includes(role)) {
      const { channels: size } = mixer;
      if (size % count !== 0) return undefined;
      // Three products stand one after another in the first.
      return {
        dim,
        index,
        count,
        ...(role === 'convIn' && { sections: [0, 1, 2].map(() => ({ size, index, count })) }),
      };
    }
    if (state?.kind === 'delta' || state?.kind === 'mamba2' || state?.kind === 'mamba') {
      if (role.startsWith('state') && !this.#dividesState(state)) return undefined;
      if (role === 'stateIn' || role === 'stateConv')
        return { dim, index, count, sections: this.#stateSections(state, role) };
    }
    return attention && BY_KEY_HEADS.includes(role)
      ? { dim, ...this.#keyPart(attention, layer as number) }
      : { dim, index, count };
  }
  /** A bias that every rank would add before a sum over ranks: all but the first hold zeros. */
  dropsBias(role: Role, layer: number | undefined): boolean {
    return role === 'expertDown' && this.group.rank > 0 && this.part(role, 'weight', layer)?.dim !== 0;
  }
  /** The layer for parts whose products are sums over ranks; undefined where it is an ordinary one. */
  linear(role: Role, weight: Weight, bias: Tensor | undefined, layer: number | undefined): Linear<Weight> | undefined {
    const summed = SUMMED.includes(role) && this.part(role, 'weight', layer) !== undefined;
    return summed ? new SummedLinear(weight, bias, this.group) : undefined;
  }
  /** The width of all ranks' values in a layer that remembers a state; undefined where it is held whole. */
  stateWidth(layer: number): number | undefined {
    const { mixer } = this.whole.layers[layer];
    const m = mixer.kind === 'beside' ? mixer.state : mixer;
    if (m.kind !== 'mamba2' || !this.#dividesState(m)) return undefined;
    return m.heads * m.headDim;
  }
  /** How many heads all ranks have together. */
  wholeHeads(role: 'qNorm' | 'kNorm', layer: number): number {
    const mixer = keyed(this.whole.layers[layer].mixer) as Attention;
    return role === 'qNorm' ? mixer.heads : mixer.kvHeads;
  }
  /** A norm over a row (b, t, width) that ranks hold parts of: put together, normed, and the own part taken again. */
  overWhole(norm: (row: Tensor) => Tensor, own: Tensor, width: number): Tensor {
    const { rank, size } = this.group;
    const each = own.shape[2];
    const gathered = this.group.allGather(own, 2);
    // Where several ranks hold the same key heads, each part comes several times.
    const copies = (each * size) / width;
    const row =
      copies === 1
        ? gathered
        : gathered
            .reshape([...own.shape.slice(0, 2), size / copies, copies, each])
            .narrow(3, 0, 1)
            .reshape([...own.shape.slice(0, 2), width]);
    return norm(row).narrow(2, Math.floor(rank / copies) * each, each);
  }
  /** Rows of a divided vocabulary by number: those of other ranks come from them. */
  embed(rows: (ids: Tensor) => Tensor, ids: Tensor): Tensor {
    const n = this.entries;
    const local = ids.cast('i64').affine(1, -n * this.group.rank);
    const within = (t: Tensor, least: number, end: number): Tensor =>
      t.ge(least).cast('i64').mul(t.lt(end).cast('i64'));
    const mine = within(local, 0, n); // 1 where the token is this rank's
    // A number that is not a token's stays out of range, and is told of as without ranks.
    const wrong = within(ids.cast('i64'), 0, this.whole.vocabSize).affine(-1, 1);
    const x = rows(local.mul(mine).add(ids.cast('i64').mul(wrong)));
    return this.group.allReduce(x.mul(mine.cast(x.dtype).unsqueeze(-1)));
  }
  /** Logits of the whole vocabulary. */
  logits(y: Tensor): Tensor {
    const all = this.group.allGather(y, y.rank - 1);
    const { vocabSize } = this.whole;
    return all.shape[y.rank - 1] === vocabSize ? all : all.narrow(y.rank - 1, 0, vocabSize);
  }
}
