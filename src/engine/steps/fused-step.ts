// One token, or one of each of a few sequences, through a decoder in few launches: products take norms, biases, gates
// and residuals along, attention takes norms of queries and keys, the rope and the cache, and a mixture reads its
// chosen experts alone. Which launches a layer has follows from its features.
import type { DecodeSteps, NewToken, Product } from '../../backends/gpu/decode.js';
import type { Choice } from '../../backends/gpu/decode-experts.js';
import {
  areTwo,
  choiceFits,
  decodes,
  type DecodeType,
  gpuOf,
  isGate,
  LATENT_PARTS,
  latentFits,
  type LatentSizes,
} from '../../backends/generation.js';
import { bytesOf } from '../../base/dtype.js';
import type { CausalLM } from '../../models/index.js';
import type { Attention, Features, LatentAttention, Mixer, Mlp, NormFeature } from '../../models/decoder/features.js';
import { type AttentionMixer, LatentMixer, type Norm } from '../../models/decoder/mixers.js';
import { type Dense, Mixture } from '../../models/decoder/mlp.js';
import type { RopeFeature, RopeTable } from '../../models/decoder/rope.js';
import type { AnyLinear } from '../../nn/layers.js';
import { tensor, zeros } from '../../tensor/create.js';
import { QTensor } from '../../tensor/qtensor.js';
import { keep, scope } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';

/** Vectors of a step; they keep their memory as long as the graph lives. */
interface Vectors {
  readonly x: Tensor;
  readonly qkv: Tensor;
  readonly y: Tensor;
  readonly h: Tensor;
  /** A branch that has a norm after it. */
  readonly branch: Tensor;
  readonly gated: Tensor;
  /** A router's logits. */
  readonly scores: Tensor;
  /** Attention's parts and their count. */
  readonly partial: Tensor;
  readonly arrived: Tensor;
  /** Of latent attention: queries in the latents' space, queries of narrow ones, scores of parts. */
  readonly lifted: Tensor;
  readonly queries: Tensor;
  readonly tops: Tensor;
  readonly sums: Tensor;
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
/** What attention reads and writes besides vectors. */
interface Around {
  readonly state: Tensor;
  readonly kept: KeysAndValues;
  readonly tables: (rope: RopeFeature) => RopeTable;
}
/** Where a branch goes, and what is added to it. */
interface Target {
  readonly out: Tensor;
  readonly residual?: Tensor;
}
type NormOf = NonNullable<Product['norm']>;

const normed = (norm: Norm | undefined): NormOf | undefined => norm && { weight: norm.weight as Tensor, eps: norm.eps };
const plainNorm = (f: NormFeature): boolean => f.kind === 'rms' && !f.weightless;

/** Attention that one launch does: everything but what stands here. */
export function attends(a: Attention, like: Attention): boolean {
  const { alibi, chunk, sinks, clip, temperature, gated, qkNorm, rope, valueNorm, keysOf, outNorm, experts } = a;
  const { valueDim, valueFactor, differential, weighedKeys } = a;
  const sizes = a.heads === like.heads && a.kvHeads === like.kvHeads && a.headDim === like.headDim;
  const extras = [
    ...[alibi, chunk, sinks, clip, temperature, gated, valueNorm, keysOf, outNorm, experts],
    ...[valueDim, valueFactor, differential, weighedKeys],
  ].every((x) => x === undefined || x === false);
  const norms = !qkNorm || (qkNorm.over === 'head' && !qkNorm.afterRope && plainNorm(qkNorm.norm));
  return sizes && extras && norms && rope !== undefined && a.headDim <= 256;
}
const latentSizes = (a: LatentAttention): LatentSizes => ({
  ...{ heads: a.heads, nope: a.nopeDim, turned: a.ropeDim, rank: a.rank, values: a.valueDim },
});
/** Latent attention of the same sizes in all layers. */
const attendsLatent = (a: LatentAttention, like: LatentAttention): boolean =>
  a.rope !== undefined &&
  !a.temperature &&
  a.queryRank === like.queryRank &&
  JSON.stringify(latentSizes(a)) === JSON.stringify(latentSizes(like));
const mixes = (m: Mixer, like: Mixer): boolean =>
  (m.kind === 'attention' && like.kind === 'attention' && attends(m, like)) ||
  (m.kind === 'latent' && like.kind === 'latent' && attendsLatent(m, like));
/** Feed-forward branches that a few launches do. */
function feeds(m: Mlp): boolean {
  if (m.kind === 'dense')
    return (
      m.gated &&
      isGate(m.activation) &&
      [m.gateFactor, m.outFactor, m.innerNorm, m.sparse, m.clamped].every((x) => x === undefined)
    );
  if (m.kind !== 'experts') return false;
  const { groups, sparseMixer, clamped, onInput, shared, ungated, latent, routerNorm, scaled, summed, cap } = m;
  if (groups && groups.count > 1) return false;
  const ofShared = [shared?.gated, shared?.factor];
  const extras = [sparseMixer, clamped, onInput, ungated, latent, ...ofShared, routerNorm, scaled, summed, cap].every(
    (x) => x === undefined || x === false,
  );
  return extras && isGate(m.activation) && choiceFits({ experts: m.count, chosen: m.chosen });
}
function featuresFit(f: Features): boolean {
  const first = f.layers[0].mixer;
  return (
    plainNorm(f.norm) &&
    !f.parallel &&
    !f.learntPositions &&
    !f.embedNorm &&
    ![f.layerInputs, f.layerFactors, f.normedSums, f.finalNorm, f.embedWidth, f.streams, f.headLayer].some(Boolean) &&
    f.branchFactor === undefined &&
    f.layers.every(({ mixer, mlp, ontoNormed }) => !ontoNormed && mixes(mixer, first) && feeds(mlp))
  );
}

export class FusedStep {
  readonly #model: CausalLM;
  readonly #steps: DecodeSteps;
  readonly #v: Vectors;
  /** Norms of queries and keys, and routers, in floats where they are kept in less. */
  readonly #wide = new Map<Tensor, Tensor>();
  readonly #embedFactor: number;

  /** Whether this step computes what the model's own ops do, for so many sequences. */
  static serves(model: CausalLM, sequences = 1): boolean {
    const f = model.config;
    if (sequences > 1 && !FusedStep.#servesFew(model, sequences)) return false;
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
    const dense = ({ gateUp, down }: Dense): boolean => fits(gateUp, true) && !gateUp.bias && fits(down);
    const mixture = (m: Mixture): boolean =>
      [m.gateUp, m.down].every((w) => w instanceof Tensor && w.dtype === model.dtype && w.shape[2] % pack === 0) &&
      !m.gateUpBias &&
      !m.downBias &&
      (!m.shared || (dense(m.shared) && [m.shared.gateUp, m.shared.down].every((l) => l.weight instanceof Tensor)));
    const latent = (m: LatentMixer): boolean =>
      latentFits(model.dtype as DecodeType, latentSizes(m.feature)) &&
      [m.keyUp, m.valueUp].every((w) => w.dtype === model.dtype) &&
      [m.input, m.qB, m.out].every((l) => !l || fits(l)) &&
      [m.qANorm, m.kvANorm].every((n) => !n?.bias);
    const mixer = (m: CausalLM['blocks'][number]['mixer']): boolean =>
      m instanceof LatentMixer ? latent(m) : fits((m as AttentionMixer).qkv) && fits((m as AttentionMixer).out);
    const layers = model.blocks.every((b) => {
      return mixer(b.mixer) && (b.mlp instanceof Mixture ? mixture(b.mlp) : dense(b.mlp as Dense));
    });
    const whole = [...norms, model.norm].every(
      (n) => !n || (!n.bias && (n.weight?.dtype === model.dtype || n.weight?.dtype === 'f32')),
    );
    const embedded = model.embed.weight instanceof QTensor || model.embed.weight.dtype === model.dtype;
    return layers && whole && embedded && fits(model.head, true);
  }

  /** Several sequences: experts are chosen for one alone, and no norm follows a branch. */
  static #servesFew(model: CausalLM, sequences: number): boolean {
    const linears = model.blocks.flatMap((b) => {
      const [{ qkv, out }, { gateUp, down }] = [b.mixer as AttentionMixer, b.mlp as Dense];
      return b.afterMixer || b.afterMlp ? [] : [qkv, out, gateUp, down];
    });
    const plain = model.config.layers.every(({ mixer, mlp }) => mixer.kind === 'attention' && mlp.kind === 'dense');
    const { device, dtype } = model;
    if (!decodes(device.backend, dtype)) return false;
    const steps = gpuOf(device.backend, 'decoding by graph').decodeSteps(dtype, sequences);
    const fits = ({ weight: w }: AnyLinear): boolean => w instanceof Tensor && steps.takes(w);
    return plain && linears.length > 0 && [...linears, model.head].every(fits);
  }

  /** For so many tokens of each sequence at most. */
  constructor(model: CausalLM, steps: DecodeSteps, capacity: number) {
    this.#model = model;
    this.#steps = steps;
    const { hiddenSize, layers, embedFactor } = model.config;
    const m = layers[0].mixer as Attention | LatentAttention;
    const { heads } = m;
    const size =
      m.kind === 'latent'
        ? {
            ...{ qkv: m.rank + m.ropeDim + (m.queryRank ?? heads * (m.nopeDim + m.ropeDim)), out: m.valueDim },
            ...{ lifted: heads * (m.rank + m.ropeDim), queries: heads * (m.nopeDim + m.ropeDim) },
            partial: LATENT_PARTS * heads * m.rank,
          }
        : {
            ...{ qkv: (heads + 2 * m.kvHeads) * m.headDim, out: m.headDim, lifted: 1, queries: 1 },
            // Keys in pages are read by more blocks than others, or as many.
            partial: steps.partialSize({ heads, kvHeads: m.kvHeads, dim: m.headDim, room: capacity, paged: true }),
          };
    const inner = ({ mlp: m }: Features['layers'][number]): number =>
      m.kind === 'experts' ? m.chosen * m.inner + (m.shared?.inner ?? 0) : m.kind === 'dense' ? m.inner : 0;
    const experts = ({ mlp: m }: Features['layers'][number]): number => (m.kind === 'experts' ? m.count : 1);
    const room = (shape: number[], dtype = model.dtype): Tensor => keep(Tensor.empty(shape, dtype, model.device));
    const n = steps.sequences;
    this.#v = {
      x: room([n * hiddenSize]),
      h: room([n * hiddenSize]),
      branch: room([hiddenSize]),
      qkv: room([n * size.qkv]),
      y: room([n, heads, 1, size.out]),
      lifted: room([size.lifted]),
      queries: room([size.queries]),
      tops: room([LATENT_PARTS * heads], 'f32'),
      sums: room([LATENT_PARTS * heads], 'f32'),
      gated: room([n * Math.max(...layers.map(inner))]),
      scores: room([Math.max(...layers.map(experts))], 'f32'),
      partial: room([size.partial], 'f32'),
      arrived: keep(zeros([n * heads], { dtype: 'i32', device: model.device })),
    };
    for (const { mixer, mlp } of model.blocks) {
      const norms =
        mixer instanceof LatentMixer
          ? [mixer.kvANorm.weight]
          : [(mixer as AttentionMixer).qNorm, (mixer as AttentionMixer).kNorm].map((n) => n?.inner.weight);
      const router = mlp instanceof Mixture ? [mlp.router.weight, mlp.router.bias, mlp.choiceBias] : [];
      for (const t of [...norms, ...router]) if (t && t.dtype !== 'f32') this.#wide.set(t, keep(t.cast('f32')));
    }
    this.#embedFactor =
      embedFactor === undefined || model.dtype === 'f32'
        ? (embedFactor ?? 1)
        : tensor([embedFactor], { device: model.device }).cast(model.dtype).cast('f32').item();
  }

  #float(t: Tensor | undefined): Tensor | undefined {
    return t && (this.#wide.get(t) ?? t);
  }
  /** Rows of several types follow one another, a launch each where there is none for both. */
  #product(
    l: AnyLinear,
    p: Omit<Product, 'weight' | 'type' | 'bias'> & { readonly out: Tensor; readonly residual?: Tensor },
  ): void {
    const { weight, bias } = l;
    if (!(weight instanceof QTensor)) return this.#steps.product({ ...p, weight, ...(bias && { bias }) });
    if (areTwo(weight.parts) && !p.residual && !p.best)
      return this.#steps.two({ ...p, parts: weight.parts, ...(bias && { bias }) });
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
    const { sequences } = this.#steps;
    if (sequences === 1 && !(embed.weight instanceof QTensor))
      return this.#steps.embed(embed.weight, state, x, this.#embedFactor);
    const rows = embed.forward(state.narrow(0, 0, sequences)).reshape([-1]);
    x.assign(this.#embedFactor === 1 ? rows : rows.mul(this.#embedFactor));
  }
  /** out = residual + the branch, through a norm where there is one after it. */
  #add(after: Norm | undefined, residual: Tensor, out: Tensor, run: (to: Target) => void): void {
    const norm = normed(after);
    if (!norm) return run({ residual, out });
    const { branch } = this.#v;
    run({ out: branch });
    this.#steps.join({ x: branch, norm, residual, out });
  }
  /** A feed-forward branch of the vector h. */
  #dense({ feature, gateUp, down }: Dense, before: Norm | undefined, to: Target): void {
    const { h, gated } = this.#v;
    const [w] = gateUp.weight instanceof QTensor ? gateUp.weight.parts : [{ blocks: gateUp.weight, type: undefined }];
    const used = this.#steps.sequences * feature.inner;
    const out = used === gated.size ? gated : gated.narrow(0, 0, used);
    const { activation } = feature;
    const weight = { weight: w.blocks, type: w.type };
    this.#steps.gate({ x: h, ...weight, out, norm: normed(before), activation, hurry: true });
    // What comes next, a product or the norm after the branch, reads nothing but weights ahead of its turn.
    this.#product(down, { x: out, hurry: true, ...to });
  }
  #mixture(m: Mixture, before: Norm | undefined, to: Target): void {
    const { h: x, gated, scores: logits } = this.#v;
    const { count, chosen, score, weights, factor, sumGuard, inner, activation } = m.feature;
    const norm = normed(before);
    const bias = this.#float(m.choiceBias);
    const choice: Choice = { experts: count, chosen, score, weights, factor, sumGuard, bias };
    const router = { weight: this.#float(m.router.weight) as Tensor, bias: this.#float(m.router.bias) };
    this.#steps.router({ ...router, x, norm, logits });
    const [gateUp, down] = [m.shared?.gateUp, m.shared?.down].map((l) => l?.weight as Tensor | undefined);
    const out = gated.narrow(0, 0, chosen * inner + (m.shared?.feature.inner ?? 0));
    const from = { choice, logits };
    this.#steps.chosenGate({ ...from, x, weight: m.gateUp as Tensor, shared: gateUp, out, norm, activation });
    this.#steps.chosenSum({ ...from, x: out, weight: m.down as Tensor, shared: down, ...to });
  }
  #attention(a: AttentionMixer, before: Norm | undefined, { state, kept, tables }: Around): void {
    const { x, qkv, y, partial, arrived } = this.#v;
    const { rope, scale, window, softcap, qkNorm } = a.feature;
    this.#product(a.qkv, { x, out: qkv, norm: normed(before) });
    const [qNorm, kNorm] = [a.qNorm, a.kNorm].map((n) => this.#float(n?.inner.weight));
    this.#steps.attend({
      ...{ qkv, ...tables(rope as RopeFeature), state, ...kept, out: y, partial, arrived, scale, window, softcap },
      ...{ qNorm, kNorm, eps: qkNorm?.norm.eps },
    });
  }
  #latent(a: LatentMixer, before: Norm | undefined, { state, kept, tables }: Around): void {
    const { x, qkv, y, partial, queries: wide, lifted, tops, sums } = this.#v;
    const { scale, rope, rank, ropeDim } = a.feature;
    this.#product(a.input, { x, out: qkv, norm: normed(before) });
    const [latent, read] = [qkv.slice(0, 0, rank + ropeDim), qkv.slice(0, rank + ropeDim)];
    if (a.qB) this.#product(a.qB, { x: read, out: wide, norm: normed(a.qANorm) });
    this.#steps.attendLatent({
      ...{
        ...latentSizes(a.feature),
        ...tables(rope as RopeFeature),
        state,
        latents: kept.keys,
        keys: kept.values,
        scale,
      },
      ...{ queries: a.qB ? wide : read, latent, norm: this.#float(a.kvANorm.weight) as Tensor, eps: a.kvANorm.eps },
      ...{ keyUp: a.keyUp, valueUp: a.valueUp, lifted, partial, tops, sums, out: y },
    });
  }
  /** One token of each sequence; the largest logit is remembered in `best` where it is given. */
  run({ state, logits, kept }: StepBuffers, best: Tensor | undefined, tables: (rope: RopeFeature) => RopeTable): void {
    const { x, h, y } = this.#v;
    const m = this.#model;
    scope(() => {
      this.#embed(state);
      m.blocks.forEach((block, i) => {
        const { mixer, beforeMixer } = block;
        const around = { state, kept: kept(i), tables };
        if (mixer instanceof LatentMixer) this.#latent(mixer, beforeMixer, around);
        else this.#attention(mixer as AttentionMixer, beforeMixer, around);
        const { out } = mixer as AttentionMixer | LatentMixer;
        this.#add(block.afterMixer, x, h, (to) => {
          const routerNext = to.residual !== undefined && block.mlp instanceof Mixture;
          this.#product(out, { x: y, hurry: !routerNext, ...to });
        });
        const { mlp, beforeMlp } = block;
        this.#add(block.afterMlp, h, x, (to) =>
          mlp instanceof Mixture ? this.#mixture(mlp, beforeMlp, to) : this.#dense(mlp as Dense, beforeMlp, to),
        );
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
