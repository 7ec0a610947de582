// One token through a decoder in few launches: products take norms, biases, gates and residuals along, attention takes
// norms of queries and keys, the rope and the cache. Which launches a layer has follows from its features.
import { DecodeSteps, isGate, type NewToken, type Product } from '../backends/gpu/decode.js';
import { bytesOf } from '../base/dtype.js';
import type { CausalLM } from '../models/index.js';
import type { Attention, Features, NormFeature } from '../models/features.js';
import type { AttentionMixer, Norm } from '../models/mixers.js';
import type { Dense } from '../models/mlp.js';
import type { RopeFeature, RopeTable } from '../models/rope.js';
import type { AnyLinear } from '../nn/layers.js';
import { tensor, zeros } from '../tensor/create.js';
import { QTensor } from '../tensor/qtensor.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';

/** Vectors of a step; they keep their memory as long as the graph lives. */
interface Vectors {
  readonly x: Tensor;
  readonly qkv: Tensor;
  readonly y: Tensor;
  readonly h: Tensor;
  /** A branch that has a norm after it. */
  readonly branch: Tensor;
  readonly gated: Tensor;
  /** Attention's parts and their count. */
  readonly partial: Tensor;
  readonly arrived: Tensor;
}
/** What a step reads and writes outside. */
export interface StepBuffers {
  /** token, position, length; where keys stand in pages: token, position, row of the new key, length */
  readonly state: Tensor;
  readonly logits: Tensor;
  readonly kept: (layer: number) => KeysAndValues;
}
/** Where a layer's keys and values are kept. */
export type KeysAndValues = Pick<NewToken, 'keys' | 'values' | 'paged'>;
type NormOf = NonNullable<Product['norm']>;

const normed = (norm: Norm | undefined): NormOf | undefined => norm && { weight: norm.weight as Tensor, eps: norm.eps };
const plainNorm = (f: NormFeature): boolean => f.kind === 'rms' && !f.weightless;

/** Attention that one launch does: everything but what stands here. */
function attends(a: Attention, like: Attention): boolean {
  const { alibi, chunk, sinks, clip, temperature, gated, qkNorm, rope } = a;
  const sizes = a.heads === like.heads && a.kvHeads === like.kvHeads && a.headDim === like.headDim;
  const extras = [alibi, chunk, sinks, clip, temperature, gated].every((x) => x === undefined || x === false);
  const norms = !qkNorm || (qkNorm.over === 'head' && !qkNorm.afterRope && plainNorm(qkNorm.norm));
  return sizes && extras && norms && rope !== undefined && a.headDim <= 256;
}
function featuresFit(f: Features): boolean {
  const first = f.layers[0].mixer;
  return (
    plainNorm(f.norm) &&
    !f.parallel &&
    !f.learntPositions &&
    !f.embedNorm &&
    f.branchFactor === undefined &&
    first.kind === 'attention' &&
    f.layers.every(({ mixer, mlp }) => mixer.kind === 'attention' && attends(mixer, first) && mlp.kind === 'dense') &&
    f.layers.every(({ mlp }) => mlp.kind === 'dense' && mlp.gated && isGate(mlp.activation))
  );
}

export class FusedStep {
  readonly #model: CausalLM;
  readonly #steps: DecodeSteps;
  readonly #v: Vectors;
  /** Norms of queries and keys in floats, by layer, where they are kept in less. */
  readonly #wide = new Map<Tensor, Tensor>();
  readonly #embedFactor: number;

  /** Whether this step computes what the model's own ops do. */
  static serves(model: CausalLM): boolean {
    const f = model.config;
    // Ranks add up their branches between the launches that this step joins.
    // Its attention reads keys and values of the model's dtype.
    if (!featuresFit(f) || model.shard || model.cacheType) return false;
    const pack = 16 / bytesOf(model.dtype);
    // Blocks are multiplied with rounded activations; whoever wants exact products gets them op by op.
    const fits = (l: AnyLinear, oneType = false): boolean =>
      l.weight instanceof QTensor
        ? l.product.quick === true && (!oneType || l.weight.parts.length === 1)
        : l.weight.dtype === model.dtype && l.weight.shape[1] % pack === 0;
    const norms = model.blocks.flatMap((b) => [b.beforeMixer, b.afterMixer, b.beforeMlp, b.afterMlp]);
    const layers = model.blocks.every((b) => {
      const [{ qkv, out }, { gateUp, down }] = [b.mixer as AttentionMixer, b.mlp as Dense];
      return fits(qkv) && fits(out) && fits(gateUp, true) && !gateUp.bias && fits(down);
    });
    const whole = [...norms, model.norm].every(
      (n) => !n || (!n.bias && (n.weight?.dtype === model.dtype || n.weight?.dtype === 'f32')),
    );
    const embedded = model.embed.weight instanceof QTensor || model.embed.weight.dtype === model.dtype;
    return layers && whole && embedded && fits(model.head, true);
  }

  /** For so many tokens at most. */
  constructor(model: CausalLM, steps: DecodeSteps, capacity: number) {
    this.#model = model;
    this.#steps = steps;
    const { hiddenSize, layers, embedFactor } = model.config;
    const { heads, kvHeads, headDim } = layers[0].mixer as Attention;
    const inner = Math.max(...layers.map(({ mlp }) => (mlp.kind === 'dense' ? mlp.inner : 0)));
    const room = (shape: number[], dtype = model.dtype): Tensor => keep(Tensor.empty(shape, dtype, model.device));
    this.#v = {
      x: room([hiddenSize]),
      h: room([hiddenSize]),
      branch: room([hiddenSize]),
      qkv: room([(heads + 2 * kvHeads) * headDim]),
      y: room([1, heads, 1, headDim]),
      gated: room([inner]),
      partial: room([heads * steps.splits(heads, kvHeads, capacity) * (headDim + 1)], 'f32'),
      arrived: keep(zeros([heads], { dtype: 'i32', device: model.device })),
    };
    for (const { mixer } of model.blocks)
      for (const { weight } of [mixer as AttentionMixer]
        .flatMap((m) => (m.qNorm && m.kNorm ? [m.qNorm, m.kNorm] : []))
        .map((n) => n.inner))
        if (weight && weight.dtype !== 'f32') this.#wide.set(weight, keep(weight.cast('f32')));
    this.#embedFactor =
      embedFactor === undefined || model.dtype === 'f32'
        ? (embedFactor ?? 1)
        : tensor([embedFactor], { device: 'cpu' }).cast(model.dtype).cast('f32').item();
  }

  /** Rows of several types follow one another, a launch each. */
  #product(
    l: AnyLinear,
    p: Omit<Product, 'weight' | 'type' | 'bias'> & { readonly out: Tensor; readonly residual?: Tensor },
  ): void {
    const { weight, bias } = l;
    if (!(weight instanceof QTensor)) return this.#steps.product({ ...p, weight, ...(bias && { bias }) });
    let from = 0;
    for (const { type, blocks } of weight.parts) {
      const rows = blocks.shape[0];
      const part = (t: Tensor): Tensor => (weight.parts.length === 1 ? t : t.narrow(0, from, rows));
      const sides = { ...(bias && { bias: part(bias) }), ...(p.residual && { residual: part(p.residual) }) };
      this.#steps.product({ ...p, ...sides, out: part(p.out), weight: blocks, type });
      from += rows;
    }
  }
  #embed(state: Tensor): void {
    const { embed } = this.#model;
    const { x } = this.#v;
    if (!(embed.weight instanceof QTensor)) return this.#steps.embed(embed.weight, state, x, this.#embedFactor);
    const row = embed.forward(state.narrow(0, 0, 1)).reshape([-1]);
    x.assign(this.#embedFactor === 1 ? row : row.mul(this.#embedFactor));
  }
  /** One token; the largest logit is remembered in `best` where it is given. */
  run({ state, logits, kept }: StepBuffers, best: Tensor | undefined, tables: (rope: RopeFeature) => RopeTable): void {
    const { x, h, branch, qkv, y, gated, partial, arrived } = this.#v;
    const [s, m] = [this.#steps, this.#model];
    const wide = (t: Tensor | undefined): Tensor | undefined => t && (this.#wide.get(t) ?? t);
    /** out = residual + the branch, through a norm where there is one. */
    const add = (l: AnyLinear, from: Tensor, after: Norm | undefined, residual: Tensor, out: Tensor): void => {
      const norm = normed(after);
      if (!norm) return this.#product(l, { x: from, out, residual });
      this.#product(l, { x: from, out: branch });
      s.join({ x: branch, norm, residual, out });
    };
    scope(() => {
      this.#embed(state);
      m.blocks.forEach((block, i) => {
        const [attention, mlp] = [block.mixer as AttentionMixer, block.mlp as Dense];
        const { rope, scale, window, softcap, qkNorm } = attention.feature;
        this.#product(attention.qkv, { x, out: qkv, norm: normed(block.beforeMixer) });
        s.attend({
          ...{
            qkv,
            ...tables(rope as RopeFeature),
            state,
            ...kept(i),
            out: y,
            partial,
            arrived,
            scale,
            window,
            softcap,
          },
          ...{
            qNorm: wide(attention.qNorm?.inner.weight),
            kNorm: wide(attention.kNorm?.inner.weight),
            eps: qkNorm?.norm.eps,
          },
        });
        add(attention.out, y, block.afterMixer, x, h);
        const { activation, inner } = mlp.feature;
        const [w] =
          mlp.gateUp.weight instanceof QTensor
            ? mlp.gateUp.weight.parts
            : [{ blocks: mlp.gateUp.weight, type: undefined }];
        const out = inner === gated.size ? gated : gated.narrow(0, 0, inner);
        s.gate({ x: h, weight: w.blocks, type: w.type, out, norm: normed(block.beforeMlp), activation });
        add(mlp.down, out, block.afterMlp, h, x);
      });
      this.#product(m.head, { x, out: logits, norm: normed(m.norm), best });
      const { logitFactor = 1, logitSoftcap: cap } = m.config;
      // The largest logit stays the largest under a cap and a positive factor.
      if (best || (logitFactor === 1 && cap === undefined)) return;
      const scaled = logits.affine(logitFactor, 0);
      logits.assign(
        cap === undefined
          ? scaled
          : scaled
              .affine(1 / cap, 0)
              .tanh()
              .affine(cap, 0),
      );
    });
  }
  dispose(): void {
    for (const t of [...(Object.values(this.#v) as Tensor[]), ...this.#wide.values()]) t.dispose();
  }
}
