// One token, or one of each of a few sequences, through a decoder in few launches: products take norms, biases, gates
// and residuals along, attention takes norms of queries and keys, the rope and the cache, and a mixture reads its
// chosen experts alone. Which launches a layer has follows from its features.
import type { DecodeSteps, NewToken, Product } from '../../backends/gpu/decode.js';
import type { Choice } from '../../backends/gpu/decode-experts.js';
import { areTwo } from '../../backends/generation.js';
import type { CausalLM } from '../../models/index.js';
import { type AttentionMixer, LatentMixer, type Norm } from '../../models/decoder/mixers.js';
import { type Dense, Mixture } from '../../models/decoder/mlp.js';
import type { RopeFeature, RopeTable } from '../../models/decoder/rope.js';
import type { AnyLinear } from '../../nn/layers.js';
import { tensor } from '../../tensor/create.js';
import { QTensor } from '../../tensor/qtensor.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { fitsFewLaunches, latentSizes } from './fused-fit.js';
import { type StepVectors, vectorsOf } from './fused-vectors.js';

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

export class FusedStep {
  readonly #model: CausalLM;
  readonly #steps: DecodeSteps;
  readonly #v: StepVectors;
  /** Norms of queries and keys, and routers, in floats where they are kept in less. */
  readonly #wide = new Map<Tensor, Tensor>();
  readonly #embedFactor: number;

  /** Whether this step computes what the model's own ops do, for so many sequences. */
  static serves(model: CausalLM, sequences = 1): boolean {
    return fitsFewLaunches(model, sequences);
  }
  /** For so many tokens of each sequence at most. */
  constructor(model: CausalLM, steps: DecodeSteps, capacity: number) {
    this.#model = model;
    this.#steps = steps;
    this.#v = vectorsOf(model, steps, capacity);
    for (const { mixer, mlp } of model.blocks) {
      const norms =
        mixer instanceof LatentMixer
          ? [mixer.kvANorm.weight]
          : [(mixer as AttentionMixer).qNorm, (mixer as AttentionMixer).kNorm].map((n) => n?.inner.weight);
      const router = mlp instanceof Mixture ? [mlp.router.weight, mlp.router.bias, mlp.choiceBias] : [];
      for (const t of [...norms, ...router]) if (t && t.dtype !== 'f32') this.#wide.set(t, keep(t.cast('f32')));
    }
    const { embedFactor } = model.config;
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
    const choice: Choice = { experts: count, chosen, score: score as Choice['score'], weights, factor, sumGuard, bias };
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
