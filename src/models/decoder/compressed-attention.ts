// DeepSeek V4's attention: one key head whose keys are values, too, those of a window and sums of whole runs of tokens.
import type { Init } from '../../nn/init.js';
import type { AnyLinear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { arange } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { CompressedAttention } from './features.js';
import { type MixerContext, norm, type Norm } from './mixers.js';
import type { RopeFeature, RopeTable } from './rope.js';
import { Summary, turnEnd } from './run-sums.js';
import type { Weights } from './weights.js';

/** What nobody sees. */
const HIDDEN = -1e30;

/** Where new tokens and keys stand: positions (b, 1, t, 1) of queries, (b, 1, 1, n) of keys, below 0 in padding. */
interface Places {
  readonly queries: Tensor;
  readonly keys: Tensor;
  /** 1 where a query sees a key at all, in f32. */
  readonly seen: Tensor;
}

export class CompressedMixer extends Module {
  readonly feature: CompressedAttention;
  /** Narrow queries, and the key that is a value. */
  readonly input: AnyLinear;
  readonly qANorm: Norm;
  readonly qB: AnyLinear;
  readonly kvNorm: Norm;
  readonly sinks: Tensor;
  readonly sums: Summary | undefined;
  readonly indexSums: Summary | undefined;
  readonly indexQuery: AnyLinear | undefined;
  readonly indexWeights: AnyLinear | undefined;
  /** Narrow products of groups of heads one below the other, (groups rank, width of a group). */
  readonly outA: Tensor;
  readonly outB: AnyLinear;
  readonly #queryRank: number;
  readonly #dim: number;
  constructor(w: Weights, f: CompressedAttention, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const { keys, groups, groupRank, eps, sums } = f;
    const rank = (this.#queryRank = keys.queryRank as number);
    const dim = (this.#dim = keys.nopeDim + keys.ropeDim);
    const rms = { kind: 'rms', eps } as const;
    this.input = w.linear(
      [
        { role: 'qA', outputs: rank },
        { role: 'kv', outputs: dim },
      ],
      hidden,
    );
    this.qANorm = norm(w, 'qANorm', rms, rank);
    this.qB = w.linear([{ role: 'qB', outputs: keys.heads * dim }], rank);
    this.kvNorm = norm(w, 'kvNorm', rms, dim);
    this.sinks = w.tensor('sinks', [keys.heads], undefined, 'weight', 'f32');
    if (sums) this.sums = new Summary(w, sums, dim, hidden, eps, 'sum');
    if (sums?.index) {
      this.indexSums = new Summary(w, sums, sums.index.dim, hidden, eps, 'index');
      this.indexQuery = w.linear([{ role: 'indexQuery', outputs: sums.index.heads * sums.index.dim }], rank);
      this.indexWeights = w.linear([{ role: 'indexWeights', outputs: sums.index.heads }], hidden);
    }
    this.outA = w.tensor('oA', [groups * groupRank, (keys.heads * dim) / groups]);
    this.outB = w.linear([{ role: 'oB', outputs: hidden }], groups * groupRank, deep);
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    const { keys, eps } = this.feature;
    const { layer, step, tables } = context;
    const [b, t] = x.shape;
    const table = tables(keys.rope as RopeFeature);
    const [cos, sin] = [step.rows(table.cos), step.rows(table.sin)];
    const read = this.input.forward(x);
    const narrow = this.qANorm.forward(read.narrow(2, 0, this.#queryRank));
    const heads = this.qB.forward(narrow).reshape([b, t, keys.heads, this.#dim]);
    const q = turnEnd(heads.rmsNorm(undefined, { eps }).permute([0, 2, 1, 3]), cos, sin); // (b, heads, t, dim)
    const key = this.kvNorm.forward(read.narrow(2, this.#queryRank, this.#dim)).unsqueeze(1);
    const turned = turnEnd(key, cos, sin);
    const brought = [this.sums, this.indexSums].flatMap((s) => (s ? [s.input.forward(x).unsqueeze(1)] : []));
    const still = turned.narrow(3, 0, keys.nopeDim);
    const kept = brought.length === 0 ? still : still.cat(brought, 3);
    const parts = step
      .keepLatent(layer, kept, turned.narrow(3, keys.nopeDim, keys.ropeDim))
      .map(({ from, count, latents, keys: ends }) => {
        const of = (y: Tensor, dim: number): Tensor => (count === t ? y : y.narrow(dim, from, count));
        const places = this.#places(count, latents.shape[2], context);
        return this.#attend(of(q, 2), latents, ends, places, { x: of(x, 1), narrow: of(narrow, 1) }, context, from);
      });
    const y = parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 2);
    return this.#out(turnEnd(y, cos, sin.neg()));
  }
  /** Positions are told by how much a query sees. */
  #places(t: number, n: number, { step }: MixerContext): Places {
    const device = this.sinks.device;
    const seen = step.mask(t, n, device).cast('f32'); // (b or 1, 1, t, n)
    const slots = arange(0, n, 1, { dtype: 'f32', device }).reshape([1, 1, 1, n]);
    const queries = seen.sum([3], true).affine(1, -1);
    // The last query's slot is the last that it sees; what lies in front of a text is padding.
    const last = seen
      .narrow(2, t - 1, 1)
      .mul(slots)
      .max([3], true);
    const pads = last.sub(queries.narrow(2, t - 1, 1));
    return { queries, keys: slots.sub(pads), seen };
  }
  #attend(
    q: Tensor,
    latents: Tensor,
    ends: Tensor,
    places: Places,
    given: { readonly x: Tensor; readonly narrow: Tensor },
    context: MixerContext,
    from: number,
  ): Tensor {
    const { keys, window } = this.feature;
    const [b, heads, t] = q.shape;
    const own = latents.narrow(3, 0, keys.nopeDim).cat([ends], 3); // (b, 1, n, dim)
    const near = places.seen.mul(places.queries.sub(places.keys).lt(window).cast('f32'));
    const scored = (k: Tensor, open: Tensor): Tensor => {
      const scores = q.matmul(k.t()).cast('f32').affine(keys.scale, 0);
      return open.ne(0).broadcastTo(scores.shape).where(scores, scores.constant(HIDDEN));
    };
    const sums = this.#sums(latents, given, places, context, from);
    const sinks = this.sinks.cast('f32').reshape([1, heads, 1, 1]).broadcastTo([b, heads, t, 1]);
    const logits = scored(own, near).cat([...(sums ? [scored(sums.keys, sums.open)] : []), sinks], 3);
    const all = sums ? own.cat([sums.keys], 2) : own;
    const weights = logits.softmax(-1).narrow(3, 0, all.shape[2]).cast(q.dtype);
    return weights.matmul(all);
  }
  /** What runs are summed up to, (b, 1, runs, dim), and which of them a query sees, (b, 1, t, runs). */
  #sums(
    latents: Tensor,
    { x, narrow }: { readonly x: Tensor; readonly narrow: Tensor },
    { queries, keys }: Places,
    { step, tables }: MixerContext,
    from: number,
  ): { readonly keys: Tensor; readonly open: Tensor } | undefined {
    const { sums: f, keys: shape } = this.feature;
    if (!f || !this.sums) return undefined;
    const table = tables(f.rope);
    const tokens = Math.min(latents.shape[2], table.cos.shape[0]);
    if (tokens < f.run) return undefined;
    const rows = this.#aligned(latents, keys, step.padded).narrow(1, 0, tokens);
    const made = this.sums.forward(rows.narrow(2, shape.nopeDim, this.sums.width), table);
    const runs = made.shape[2];
    const numbers = arange(0, runs, 1, { dtype: 'f32', device: x.device }).reshape([1, 1, 1, runs]);
    // A run is there once its last token is.
    const ready = numbers
      .affine(f.run, f.run - 1)
      .le(queries)
      .cast('f32'); // (b, 1, t, runs)
    if (!f.index || runs <= f.index.kept) return { keys: made, open: ready };
    const brought = rows.narrow(2, shape.nopeDim + this.sums.width, (this.indexSums as Summary).width);
    const index = (this.indexSums as Summary).forward(brought, table);
    const worth = this.#worth(index, x, narrow, table, step, from);
    const [, best] = ready.ne(0).where(worth, worth.constant(HIDDEN)).topk(f.index.kept, -1);
    const chosen = worth.zerosLike().scatter(3, best, worth.onesLike().narrow(3, 0, f.index.kept));
    return { keys: made, open: ready.mul(chosen) };
  }
  /** How much of it each sum is worth to a query, (b, 1, t, runs). */
  #worth(index: Tensor, x: Tensor, narrow: Tensor, table: RopeTable, step: MixerContext['step'], from: number): Tensor {
    const { heads, dim } = this.feature.sums?.index as { heads: number; dim: number };
    const [b, t] = x.shape;
    const own = (y: Tensor): Tensor => {
      const rows = step.rows(y);
      return rows.shape[rows.rank - 2] === t ? rows : rows.narrow(rows.rank - 2, from, t);
    };
    const plain = (this.indexQuery as AnyLinear).forward(narrow).reshape([b, t, heads, dim]).permute([0, 2, 1, 3]);
    const q = turnEnd(plain, own(table.cos), own(table.sin));
    const scores = q
      .matmul(index.t())
      .cast('f32')
      .relu()
      .affine(1 / Math.sqrt(dim), 0); // (b, heads, t, runs)
    const weights = (this.indexWeights as AnyLinear)
      .forward(x)
      .cast('f32')
      .affine(1 / Math.sqrt(heads), 0)
      .permute([0, 2, 1])
      .unsqueeze(3);
    return scores.mul(weights).sum([1], true);
  }
  /** What tokens brought (b, 1, n, width) as (b, n, width), each text's first in front. */
  #aligned(latents: Tensor, keys: Tensor, padded: boolean): Tensor {
    const rows = latents.squeeze([1]);
    if (!padded) return rows;
    const [b, n, width] = rows.shape;
    const slots = arange(0, n, 1, { dtype: 'f32', device: rows.device }).reshape([1, n]);
    const pads = slots.sub(keys.reshape([-1, n])); // (b, n)
    const starts = arange(0, b, 1, { dtype: 'f32', device: rows.device }).reshape([b, 1]).affine(n, 0);
    const at = slots
      .add(pads)
      .clamp(0, n - 1)
      .add(starts);
    return rows
      .reshape([b * n, width])
      .indexSelect(0, at.reshape([b * n]).cast('u32'))
      .reshape([b, n, width]);
  }
  /** Answers (b, heads, t, dim) through the narrow products of their groups. */
  #out(y: Tensor): Tensor {
    const { groups, groupRank } = this.feature;
    const [b, heads, t, dim] = y.shape;
    const width = (heads * dim) / groups;
    const rows = y
      .permute([0, 2, 1, 3])
      .reshape([b * t, groups, width])
      .permute([1, 0, 2]);
    const narrow = rows.matmul(this.outA.reshape([groups, groupRank, width]).t());
    return this.outB.forward(narrow.permute([1, 0, 2]).reshape([b, t, groups * groupRank]));
  }
}
