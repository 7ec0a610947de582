// What mixes tokens in a layer: attention with every switch of its features, latent attention, short convolutions.
import type { NormFeature, Attention, LatentAttention, QkNorm, QueryTemperature, ShortConv } from './features.js';
import type { Init } from '../../nn/init.js';
import type { AnyLinear as Linear } from '../../nn/layers.js';
import { productWeight } from '../../nn/linear.js';
import { Layer, Module } from '../../nn/module.js';
import { tensor } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { addedProduct, trainedNorm } from '../../tensor/training.js';
import { type RopeTable, rowOrder } from './rope.js';
import type { Step } from './step.js';
import type { Shard } from './shard.js';
import { reorderHeads } from '../files/stored-rows.js';
import type { Role } from './roles.js';
import type { LinearPart, Weights } from './weights.js';

/**
 * Root-mean-square or layer norm, by its feature. A weight stored as a difference from one is kept in f32 with the one
 * added.
 */
export class Norm extends Layer {
  weight: Tensor | undefined;
  bias: Tensor | undefined;
  readonly feature: NormFeature;
  constructor(feature: NormFeature, weight?: Tensor, bias?: Tensor) {
    super();
    this.feature = feature;
    this.weight = weight;
    this.bias = bias;
  }
  get eps(): number {
    return this.feature.eps;
  }
  forward(x: Tensor): Tensor {
    const { kind, eps } = this.feature;
    if (kind === 'none') return x;
    const wide = this.weight && this.weight.dtype !== x.dtype;
    const from = wide ? x.cast(this.weight?.dtype as 'f32') : x;
    const plain = this.weight && !wide && (kind === 'layer' || !this.bias);
    const own = plain ? trainedNorm(kind, x, this.weight as Tensor, this.bias, eps) : undefined;
    if (own) return own;
    const y =
      kind === 'layer'
        ? from.layerNorm(this.weight, wide ? this.bias?.cast('f32') : this.bias, { eps })
        : from.rmsNorm(this.weight, { eps });
    const shifted = kind === 'rms' && this.bias ? y.add(wide ? this.bias.cast('f32') : this.bias) : y;
    return wide ? shifted.cast(x.dtype) : shifted;
  }
}
export function norm(w: Weights, role: Role, f: NormFeature, size: number): Norm {
  if (f.weightless || f.kind === 'none') return new Norm(f);
  const weight = normWeight(w, role, f, [size]);
  return new Norm(f, weight, f.bias ? w.tensor(role, [size], undefined, 'bias') : undefined);
}
function normWeight(w: Weights, role: Role, f: NormFeature, shape: readonly number[]): Tensor {
  if (!f.plusOne) return w.normWeight(role, shape);
  const stored = w.normWeight(role, shape, 'f32');
  const whole = keep(stored.affine(1, 1));
  stored.dispose();
  return whole;
}

/** A norm of queries or keys: over each head, over all of them together, or with weights for every head. */
export class HeadNorm extends Module {
  readonly inner: Norm;
  readonly weights: Tensor | undefined;
  readonly over: QkNorm['over'];
  readonly #shard: Shard | undefined;
  /** Heads of all ranks. */
  readonly #all: number;
  constructor(w: Weights, role: 'qNorm' | 'kNorm', f: QkNorm, heads: number, dim: number, order?: readonly number[]) {
    super();
    this.over = f.over;
    this.#shard = w.shard;
    const all = w.shard && f.over === 'whole' ? w.shard.wholeHeads(role, w.layer as number) : heads;
    this.#all = all;
    const shape = f.over === 'head' ? [dim] : f.over === 'whole' ? [all * dim] : [heads, dim];
    const load = (kind: 'weight' | 'bias'): Tensor | undefined => {
      if (f.norm.weightless || (kind === 'bias' && !f.norm.bias)) return undefined;
      const stored = kind === 'weight' ? normWeight(w, role, f.norm, shape) : w.tensor(role, shape, undefined, 'bias');
      if (!order) return stored;
      const moved = keep(
        scope(() =>
          reorderHeads(stored.reshape([-1]), order)
            .reshape(shape)
            .copy(),
        ),
      );
      stored.dispose();
      return moved;
    };
    const [weight, bias] = [load('weight'), load('bias')];
    this.inner = f.over === 'each' ? new Norm({ ...f.norm, weightless: true }) : new Norm(f.norm, weight, bias);
    this.weights = f.over === 'each' ? weight : undefined;
  }
  /** x is (b, t, heads, dim). */
  forward(x: Tensor): Tensor {
    if (this.over === 'whole') {
      const [b, t, h, d] = x.shape;
      const flat = x.reshape([b, t, h * d]);
      const norm = (row: Tensor): Tensor => this.inner.forward(row);
      return (this.#shard ? this.#shard.overWhole(norm, flat, this.#all * d) : norm(flat)).reshape(x.shape);
    }
    const y = this.inner.forward(x);
    return this.weights ? y.mul(this.weights) : y;
  }
}

export interface MixerContext {
  readonly layer: number;
  readonly step: Step;
  /** The tables that hold for this run. */
  readonly tables: (rope: NonNullable<Attention['rope']>) => RopeTable;
  /** A table of one number a position, made once. */
  readonly column: (key: object, at: (position: number) => number) => Tensor;
  /** What tokens bring along for all layers, (b, t, layers, width). */
  readonly inputs?: Tensor;
  /** The tokens' numbers, (b, t). */
  readonly ids?: Tensor;
  /** Tokens' vectors before the first layer, (b, t, hidden). */
  readonly embedded?: Tensor;
}

/** What a layer makes of x, added to a sum where there is one: in the sum's place where nobody needs it again. */
export function addedTo(sum: Tensor | undefined, x: Tensor, layer: Linear, step?: Step): Tensor {
  if (!sum) return layer.forward(x);
  const weight = productWeight(layer);
  const trained = weight && addedProduct(sum, x, weight);
  return trained ?? step?.addTo?.(sum, x, layer) ?? sum.add(layer.forward(x));
}

export class AttentionMixer extends Module {
  readonly feature: Attention;
  /** Queries, keys, values and the output's gate in one product. */
  readonly qkv: Linear;
  readonly out: Linear;
  readonly qNorm: HeadNorm | undefined;
  readonly kNorm: HeadNorm | undefined;
  readonly valueNorm: Norm | undefined;
  readonly outNorm: Norm | undefined;
  readonly sinks: Tensor | undefined;
  #slopes: Tensor | undefined;
  protected override forget(): void {
    this.#slopes?.dispose();
    this.#slopes = undefined;
  }
  constructor(w: Weights, f: Attention, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { heads, kvHeads, headDim, valueDim = headDim } = f;
    const order = rowOrder(f.rope);
    const keys = [
      { role: 'k' as const, outputs: kvHeads * headDim, order },
      { role: 'v' as const, outputs: kvHeads * valueDim },
    ];
    this.qkv = w.linear(
      [
        { role: 'q', outputs: heads * headDim, order },
        ...(f.keysOf === undefined ? keys : []),
        ...(f.gated ? [{ role: 'qGate' as const, outputs: gateWidth(f) }] : []),
      ],
      hidden,
    );
    this.out = w.linear([{ role: 'o', outputs: hidden }], heads * valueDim, deep);
    if (f.qkNorm) {
      this.qNorm = new HeadNorm(w, 'qNorm', f.qkNorm, heads, headDim, order);
      if (f.keysOf === undefined) this.kNorm = new HeadNorm(w, 'kNorm', f.qkNorm, kvHeads, headDim, order);
    }
    if (f.valueNorm) this.valueNorm = new Norm(f.valueNorm);
    if (f.outNorm) this.outNorm = norm(w, 'outNorm', f.outNorm, heads * headDim);
    if (f.sinks) this.sinks = w.tensor('sinks', [heads], undefined, 'weight', 'f32');
  }
  /** The mixer's answer, added to a sum where there is one. */
  forward(x: Tensor, context: MixerContext, sum?: Tensor): Tensor {
    const { heads, kvHeads, headDim, rope, clip, qkNorm, temperature, alibi, gated, keysOf, ...how } = this.feature;
    const { scale, window, chunk, softcap, lends, valueDim = headDim, valueFactor } = how;
    const { step, layer } = context;
    const answer = (y: Tensor): Tensor => addedTo(sum, y, this.out, step);
    const b = x.shape[0];
    const product = this.qkv.forward(x); // (b, t, (heads + 2 kvHeads) headDim)
    const whole = rope && step.attendWhole?.(layer, product, this, context.tables(rope));
    const rest = (x: Tensor): Tensor => (whole ? x.narrow(1, whole.count, x.shape[1] - whole.count) : x);
    if (whole && whole.count === product.shape[1]) return answer(whole.all);
    const made = rest(product);
    const t = made.shape[1];
    const all = clip === undefined || qkNorm ? made : made.clamp(-clip, clip);
    const part = (from: number, n: number, width = headDim): Tensor =>
      all.narrow(2, from * headDim, n * width).reshape([b, t, n, width]);
    const own = keysOf === undefined;
    let q = part(0, heads);
    let k = own ? part(heads, kvHeads) : undefined;
    let v = own ? part(heads + kvHeads, kvHeads, valueDim) : undefined;
    if (v && valueFactor !== undefined) v = v.affine(valueFactor, 0);
    if (v && valueDim < headDim) v = v.cat([v.newZeros([b, t, kvHeads, headDim - valueDim], v.dtype)], 3);
    const normed = (): void => {
      if (this.qNorm) q = this.qNorm.forward(q);
      if (this.kNorm) k = k && this.kNorm.forward(k);
    };
    if (!qkNorm?.afterRope) normed();
    if (this.valueNorm) v = v && this.valueNorm.forward(v);
    if (qkNorm && clip !== undefined)
      [q, k, v] = [q, k, v].map((x) => x?.clamp(-clip, clip)) as [Tensor, Tensor, Tensor];
    if (rope) {
      const { cos, sin } = context.tables(rope);
      const [c, s] = [step.rows(cos), step.rows(sin)];
      [q, k] = [q.ropeThd(c, s), k?.ropeThd(c, s)];
    }
    if (qkNorm?.afterRope) normed();
    if (temperature) q = tempered(q, temperature, context);
    if (alibi) this.#slopes ??= x.device.now(() => keep(tensor(Float32Array.from(alibi), { device: x.device })));
    const { sinks } = this;
    const y = step.attend(keysOf ?? layer, q, k, v, {
      ...{ scale, window, chunk, softcap, lends, sinks },
      alibi: this.#slopes,
      ...(whole && { into: rest(whole.all) }),
    });
    if (whole) return answer(whole.all);
    const narrow = valueDim < headDim ? y.narrow(3, 0, valueDim) : y;
    const answers = narrow.reshape([b, t, heads * valueDim]);
    const flat = this.outNorm ? this.outNorm.forward(answers) : answers;
    const gate = (heads + (own ? 2 * kvHeads : 0)) * headDim;
    return answer(gated ? openedBy(gated, flat, made.narrow(2, gate, gateWidth(this.feature))) : flat);
  }
}
const gateWidth = ({ gated, heads, headDim }: Attention): number =>
  gated === 'softplus by head' ? heads : heads * headDim;
/** Answers (b, t, heads headDim) times what gates let through. */
function openedBy(how: NonNullable<Attention['gated']>, answers: Tensor, gates: Tensor): Tensor {
  if (how === 'sigmoid') return answers.mul(gates.sigmoid());
  const open = gates.cast('f32').softplus().cast(answers.dtype);
  if (how === 'softplus') return answers.mul(open);
  const [b, t, heads] = gates.shape;
  return answers.reshape([b, t, heads, -1]).mul(open.unsqueeze(3)).reshape(answers.shape);
}

/** Queries (b, t, heads, width) louder the later they come. */
function tempered(q: Tensor, how: QueryTemperature, { column, step }: MixerContext): Tensor {
  const { beta, scale, offset, withPads } = how;
  const table = column(how, (p) => 1 + beta * Math.log(1 + Math.floor((p + offset) / scale)));
  return q.mul(step.rows(table, withPads).reshape([-1, q.shape[1], 1, 1]));
}

/** Runs of fewer new tokens multiply by the latents themselves; longer ones make keys and values of them first. */
const ABSORBED = 8;

/** A norm whose answer a narrow net over it opens. */
export class GatedNorm extends Norm {
  readonly down: Linear;
  readonly up: Linear;
  constructor(w: Weights, role: 'beforeMixer' | 'beforeMlp', f: NormFeature, size: number, rank: number) {
    super(f, w.normWeight(role, [size]));
    this.down = w.linear([{ role: `${role}In`, outputs: rank }], size);
    this.up = w.linear([{ role: `${role}Out`, outputs: size }], rank);
  }
  override forward(x: Tensor): Tensor {
    const y = super.forward(x);
    return y.mul(this.up.forward(this.down.forward(y).silu()).sigmoid());
  }
}

export class LatentMixer extends Module {
  readonly feature: LatentAttention;
  /** What is read of the layer's input: the latent and its key, over queries or narrow ones. */
  readonly input: Linear;
  readonly kvANorm: Norm;
  /** Of narrow queries: their norm, and the product that widens them. */
  readonly qANorm: Norm | undefined;
  readonly qB: Linear | undefined;
  /** From a latent to keys (heads, nope, rank) and values (heads, value, rank). */
  readonly keyUp: Tensor;
  readonly valueUp: Tensor;
  /** What opens answers, where it is a product of its own. */
  readonly gate: Linear | undefined;
  readonly sinks: Tensor | undefined;
  readonly out: Linear;
  constructor(w: Weights, f: LatentAttention, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { heads, rank, nopeDim, ropeDim, valueDim, queryRank } = f;
    const turned = rowOrder(f.rope);
    const numbers = (n: number, from = 0): number[] => Array.from({ length: n }, (_, i) => from + i);
    const after = (n: number, more = 0): number[] | undefined =>
      turned && [...numbers(n), ...turned.map((i) => n + i), ...numbers(more, n + ropeDim)];
    // Behind a head's query may stand its gate.
    const behind = f.gated === 'by queries' ? valueDim : 0;
    const queries = { outputs: heads * (nopeDim + ropeDim + behind), order: after(nopeDim, behind) };
    const rms: NormFeature = { kind: 'rms', eps: f.normEps };
    const read: LinearPart = queryRank === undefined ? { role: 'q', ...queries } : { role: 'qA', outputs: queryRank };
    this.input = w.linear([{ role: 'kvA', outputs: rank + ropeDim, order: after(rank) }, read], hidden);
    if (queryRank !== undefined) {
      this.qANorm = norm(w, 'qANorm', rms, queryRank);
      this.qB = w.linear([{ role: 'qB', ...queries }], behind > 0 ? 2 * queryRank : queryRank);
    }
    if (f.gated === 'by input') this.gate = w.linear([{ role: 'qGate', outputs: heads * valueDim }], hidden);
    if (f.sinks) this.sinks = w.tensor('sinks', [heads], undefined, 'weight', 'f32');
    this.kvANorm = norm(w, 'kvANorm', rms, rank);
    // Older files keep both parts in one matrix, per head keys over values.
    if (w.has('kvB')) {
      const both = w.tensor('kvB', [heads * (nopeDim + valueDim), rank]);
      const part = (from: number, n: number): Tensor =>
        keep(
          scope(() =>
            both
              .reshape([heads, nopeDim + valueDim, rank])
              .narrow(1, from, n)
              .copy(),
          ),
        );
      [this.keyUp, this.valueUp] = [part(0, nopeDim), part(nopeDim, valueDim)];
      both.dispose();
    } else {
      this.keyUp = w.tensor('k', [heads, nopeDim, rank]);
      this.valueUp = w.tensor('v', [heads, valueDim, rank]);
    }
    this.out = w.linear([{ role: 'o', outputs: hidden }], heads * valueDim, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { layer, step, tables } = context;
    const { heads, rank, nopeDim, ropeDim, valueDim, rope, temperature, latentFactor } = this.feature;
    const [b, t] = x.shape;
    const read = this.input.forward(x); // (b, t, rank + rope + queries)
    const [kv, narrow] = [read.slice(2, 0, rank + ropeDim), read.slice(2, rank + ropeDim)];
    const behind = this.feature.gated === 'by queries' ? valueDim : 0;
    const normedQ = this.qANorm ? this.qANorm.forward(narrow) : narrow;
    const queries = this.qB ? this.qB.forward(behind > 0 ? normedQ.cat([narrow], 2) : normedQ) : narrow;
    const made = queries.reshape([b, t, heads, nopeDim + ropeDim + behind]);
    const plain = behind > 0 ? made.narrow(3, 0, nopeDim + ropeDim) : made;
    const q = temperature ? tempered(plain, temperature, context) : plain;
    const table = rope && tables(rope);
    const [c, s] = table ? [step.rows(table.cos), step.rows(table.sin)] : [];
    const turn = (x: Tensor): Tensor => (c && s ? x.ropeThd(c, s) : x);
    const qNope = q.narrow(3, 0, nopeDim).permute([0, 2, 1, 3]); // (b, heads, t, nope)
    const qRope = turn(q.narrow(3, nopeDim, ropeDim)).permute([0, 2, 1, 3]);
    const normed = this.kvANorm.forward(kv.narrow(2, 0, rank));
    const latent = (latentFactor === undefined ? normed : normed.affine(latentFactor, 0)).unsqueeze(1); // (b, 1, t, rank)
    const turned = turn(kv.narrow(2, rank, ropeDim).unsqueeze(2)).permute([0, 2, 1, 3]); // (b, 1, t, rope)
    const parts = step.keepLatent(layer, latent, turned).map(({ from, count, latents, keys }) => {
      const [nope, turnedQ] = [qNope, qRope].map((x) => (count === t ? x : x.narrow(2, from, count)));
      return count < ABSORBED
        ? this.#absorbed(nope, turnedQ, latents, keys, step)
        : this.#expanded(nope, turnedQ, latents, keys, step);
    });
    const y = parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 2);
    const answers = y.permute([0, 2, 1, 3]).reshape([b, t, heads * valueDim]);
    const gate = this.gate
      ? this.gate.forward(x)
      : behind > 0
        ? made.narrow(3, nopeDim + ropeDim, behind).reshape(answers.shape)
        : undefined;
    return this.out.forward(gate ? answers.mul(gate.sigmoid()) : answers);
  }
  #absorbed(qNope: Tensor, qRope: Tensor, latents: Tensor, keys: Tensor, step: Step): Tensor {
    const { scale } = this.feature;
    const [, , t] = qNope.shape;
    const toLatent = qNope.matmul(this.keyUp.unsqueeze(0)); // (b, heads, t, rank)
    const logits = toLatent.matmul(latents.t()).add(qRope.matmul(keys.t())).affine(scale, 0); // (b, heads, t, all)
    const n = latents.shape[2];
    const open =
      t === 1 && !step.padded && !step.open ? undefined : step.mask(t, n, qNope.device).ne(0).broadcastTo(logits.shape);
    const masked = open ? open.where(logits, logits.constant(-1e30)) : logits;
    const wide = masked.cast('f32');
    const weights = this.#shares(wide).cast(qNope.dtype);
    return weights.matmul(latents).matmul(this.valueUp.t().unsqueeze(0)); // (b, heads, t, value)
  }
  /** Scores (b, heads, t, all) as shares, of which sinks take some. */
  #shares(scores: Tensor): Tensor {
    if (!this.sinks) return scores.softmax(-1);
    const [b, heads, t, n] = scores.shape;
    const sinks = this.sinks.cast('f32').reshape([1, heads, 1, 1]).broadcastTo([b, heads, t, 1]);
    return scores.cat([sinks], 3).softmax(-1).narrow(3, 0, n);
  }
  #expanded(qNope: Tensor, qRope: Tensor, latents: Tensor, keys: Tensor, step: Step): Tensor {
    const { heads, nopeDim, ropeDim, valueDim, scale } = this.feature;
    const [b, , t] = qNope.shape;
    const n = latents.shape[2];
    const width = Math.max(nopeDim + ropeDim, valueDim);
    const wide = (x: Tensor): Tensor =>
      x.shape[3] === width ? x : x.cat([x.newZeros([...x.shape.slice(0, 3), width - x.shape[3]], x.dtype)], 3);
    const k = latents.matmul(this.keyUp.t().unsqueeze(0)).cat([keys.broadcastTo([b, heads, n, ropeDim])], 3);
    const v = latents.matmul(this.valueUp.t().unsqueeze(0));
    const mask = step.padded ? { mask: step.mask(t, n, qNope.device) } : {};
    const sinks = this.sinks && { sinks: this.sinks };
    const y = wide(qNope.cat([qRope], 3)).sdpa(wide(k), wide(v), { causal: true, scale, ...mask, ...sinks });
    return y.narrow(3, 0, valueDim);
  }
}

/** LFM2's short convolution: C * conv(B * x). */
export class ConvMixer extends Module {
  readonly feature: ShortConv;
  readonly input: Linear;
  /** (channels, 1, width) */
  readonly weight: Tensor;
  readonly bias: Tensor | undefined;
  readonly out: Linear;
  constructor(w: Weights, f: ShortConv, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { channels, width } = f;
    this.input = w.linear([{ role: 'convIn', outputs: 3 * channels }], hidden);
    this.weight = w.tensor('conv', [channels, 1, width]);
    this.bias = w.bias('conv', [channels]);
    this.out = w.linear([{ role: 'convOut', outputs: hidden }], channels, deep);
  }
  forward(x: Tensor, { layer, step }: MixerContext): Tensor {
    const { channels, width } = this.feature;
    const all = this.input.forward(step.withoutPads(x)).permute([0, 2, 1]); // (b, 3 channels, t)
    const part = (i: number): Tensor => all.narrow(1, i * channels, channels);
    const y = step.overColumns(layer, part(0).mul(part(2)), width - 1, (columns) =>
      columns.conv1d(this.weight, { groups: channels, ...(this.bias && { bias: this.bias }) }),
    );
    return this.out.forward(part(1).mul(y).permute([0, 2, 1]));
  }
}
