// One layer of a decoder: which modules its features call for, and how their answers meet the residual.
import { type Init, normal, ONE } from '../../nn/init.js';
import { dropout } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import { CompressedMixer } from './compressed-attention.js';
import { ConvolvedAttentionMixer } from './convolved-attention.js';
import { DifferentialMixer } from './differential-attention.js';
import { ExpertAttentionMixer } from './expert-attention.js';
import type { Features, Layer, Mixer, Mlp } from './features.js';
import { HyperMix } from './hyper.js';
import { GatedMemoryMixer } from './gated-memory.js';
import { LayerInput } from './layer-inputs.js';
import { AttentionMixer, ConvMixer, GatedNorm, LatentMixer, type MixerContext, type Norm, norm } from './mixers.js';
import { Dense, dense, DenseWithExperts, Mixture } from './mlp.js';
import {
  BesideMixer,
  ChannelDeltaMixer,
  DeltaMixer,
  FadingMixer,
  Mamba1Mixer,
  MambaMixer,
  RecurrenceMixer,
} from './recurrent-mixers.js';
import { FadingMeanMixer, FedBackMixer } from './rwkv.js';
import { SharedMambaMixer } from './shared-branch.js';
import { Laurel, StreamBlock } from './streams.js';
import { WeighedKeysMixer } from './weighed-keys.js';
import type { Role } from './roles.js';
import type { Weights } from './weights.js';

export type MixerModule =
  | AttentionMixer
  | ExpertAttentionMixer
  | DifferentialMixer
  | WeighedKeysMixer
  | LatentMixer
  | ConvMixer
  | DeltaMixer
  | ChannelDeltaMixer
  | MambaMixer
  | Mamba1Mixer
  | RecurrenceMixer
  | FadingMixer
  | GatedMemoryMixer
  | FadingMeanMixer
  | FedBackMixer
  | BesideMixer
  | ConvolvedAttentionMixer
  | CompressedMixer
  | SharedMambaMixer;
export type MlpModule = Dense | Mixture | DenseWithExperts;

function mixer(w: Weights, f: Mixer, hidden: number, deep: Init): MixerModule | undefined {
  switch (f.kind) {
    case 'attention':
      if (f.weighedKeys) return new WeighedKeysMixer(w, f, hidden, deep);
      if (f.differential) return new DifferentialMixer(w, f, hidden, deep);
      return f.experts ? new ExpertAttentionMixer(w, f, hidden) : new AttentionMixer(w, f, hidden, deep);
    case 'latent':
      return new LatentMixer(w, f, hidden, deep);
    case 'conv':
      return new ConvMixer(w, f, hidden, deep);
    case 'delta':
      return new DeltaMixer(w, f, hidden, deep);
    case 'channel delta':
      return new ChannelDeltaMixer(w, f, hidden, deep);
    case 'mamba2':
      return new MambaMixer(w, f, hidden, deep);
    case 'mamba':
      return new Mamba1Mixer(w, f, hidden, deep);
    case 'recurrence':
      return new RecurrenceMixer(w, f, hidden, deep);
    case 'fading':
      return new FadingMixer(w, f, hidden, deep);
    case 'memory':
      return new GatedMemoryMixer(w, f, hidden, deep);
    case 'fading mean':
      return new FadingMeanMixer(w, f, hidden, deep);
    case 'fed back':
      return new FedBackMixer(w, f, hidden, deep);
    case 'shared':
      return new SharedMambaMixer(w, f, hidden, deep);
    case 'compressed':
      return new CompressedMixer(w, f, hidden, deep);
    case 'convolved':
      return new ConvolvedAttentionMixer(w, f, hidden, deep);
    case 'beside':
      return new BesideMixer(w, f, hidden, deep);
    case 'none':
      return undefined;
  }
}
function mlp(w: Weights, f: Mlp, { hiddenSize: n, norm }: Features, deep: Init): MlpModule | undefined {
  if (f.kind === 'none') return undefined;
  if (f.kind === 'both') return new DenseWithExperts(w, f, n, norm, deep);
  return f.kind === 'dense' ? dense(w, f, n, deep) : new Mixture(w, f, n);
}

/** y with a vector added, times another. */
export class Shift extends Module {
  readonly shift: Tensor;
  readonly scale: Tensor;
  constructor(shift: Tensor, scale: Tensor) {
    super();
    this.shift = shift;
    this.scale = scale;
  }
  forward(y: Tensor): Tensor {
    return y.add(this.shift).mul(this.scale);
  }
}

/** One layer of a decoder: a mixer over tokens (attention or another) and a feed-forward branch, with their norms. */
export class Block extends Module {
  /** The norm in front of the mixer; undefined where there is none. */
  readonly beforeMixer: Norm | undefined;
  /** The norm behind the mixer, before its result is added. */
  readonly afterMixer: Norm | undefined;
  /** The norm in front of the feed-forward branch. */
  readonly beforeMlp: Norm | undefined;
  /** The norm behind the feed-forward branch, before its result is added. */
  readonly afterMlp: Norm | undefined;
  /** Attention or what serves in its place; none where the feed-forward branch is all there is. */
  readonly mixer: MixerModule | undefined;
  /** None where the mixer is all there is. */
  readonly mlp: MlpModule | undefined;
  /** Experts beside that branch, whose answer goes along to the end of the next layer. */
  readonly late: Mixture | undefined;
  /** What tokens bring along for this layer alone, where the family has it. */
  readonly input: LayerInput | undefined;
  /** What the layer's answer is multiplied by, where that is stored. */
  readonly factor: Tensor | undefined;
  /** Where a token has several vectors: how the layer's answer reaches all of them. */
  readonly streams: StreamBlock | undefined;
  /** Where branches read sums of a token's vectors: how, of the mixer's and the feed-forward branch's. */
  readonly hyper: readonly [mixer: HyperMix, mlp: HyperMix] | undefined;
  /** The narrow branch beside attention, where a token has several vectors. */
  readonly laurel: Laurel | undefined;
  /** What both branches are added to is multiplied by these, where a family has them. */
  readonly residuals: readonly [mixer: Tensor, mlp: Tensor] | undefined;
  /** What is done to a branch's answer and to what it is added to, likewise. */
  readonly shifts: readonly Shift[];
  readonly #parallel: Features['parallel'];
  readonly #normedSums: boolean;
  readonly #ontoNormed: Layer['ontoNormed'];
  /** How many numbers a token brings along from the layer before. */
  readonly #taken: number;
  readonly #late: boolean;
  readonly #factor: number;

  constructor(w: Weights, layer: Layer, f: Features) {
    super();
    const { hiddenSize: n } = f;
    const norms = layer.norms ?? f.norms;
    // What adds to the residual begins smaller in deep models.
    const deep = normal(0, 0.02 / Math.sqrt(2 * f.layers.length));
    const branches = { Mixer: layer.mixer.kind !== 'none', Mlp: layer.mlp.kind !== 'none' };
    const { normGates } = layer;
    const place = (role: keyof Features['norms']): Norm | undefined => {
      if (!norms[role] || !branches[role.endsWith('Mixer') ? 'Mixer' : 'Mlp']) return undefined;
      const opened = normGates?.of.find((own) => own === role);
      if (normGates && opened) return new GatedNorm(w, opened, layer.norm ?? f.norm, n, normGates.rank);
      return norm(w, role, layer.norm ?? f.norm, n);
    };
    this.beforeMixer = place('beforeMixer');
    this.afterMixer = place('afterMixer');
    this.beforeMlp = f.parallel === 'shared' ? undefined : place('beforeMlp');
    this.afterMlp = place('afterMlp');
    this.mixer = mixer(w, layer.mixer, n, deep);
    this.mlp = mlp(w, layer.mlp, f, deep);
    if (layer.late) this.late = new Mixture(w, layer.late, n);
    if (f.layerInputs) this.input = new LayerInput(w, f.layerInputs, f, deep);
    if (f.streams) {
      this.streams = new StreamBlock(w, f.streams, f);
      this.laurel = new Laurel(w, f.streams, f);
    }
    if (f.hyper) this.hyper = [new HyperMix(w, 'mixer', f), new HyperMix(w, 'mlp', f)];
    if (f.residualFactors) this.residuals = [w.tensor('mixerResidual', [n], ONE), w.tensor('mlpResidual', [n], ONE)];
    const shift = (of: Role, scale: Role): Shift => new Shift(w.tensor(of, [n]), w.tensor(scale, [n], ONE));
    this.shifts = f.shifted
      ? [
          ...[shift('mixerShift', 'mixerScale'), shift('mixerResidualShift', 'mixerResidual')],
          ...[shift('mlpShift', 'mlpScale'), shift('mlpResidualShift', 'mlpResidual')],
        ]
      : [];
    if (f.layerFactors) this.factor = w.tensor('layerFactor', [1]);
    this.#parallel = f.parallel;
    this.#normedSums = f.normedSums ?? false;
    this.#ontoNormed = layer.ontoNormed;
    const deepRouter = layer.mlp.kind === 'experts' ? layer.mlp.deepRouter : undefined;
    this.#late = layer.takesLate ?? false;
    this.#taken = this.#late ? n : deepRouter?.takes ? deepRouter.width : 0;
    this.#factor = f.branchFactor ?? 1;
  }
  /**
   * x (batch, time, hidden) to the same shape; the context holds positions and caches, `drop` is the share dropped
   * while training. What a layer leaves for the next one stands behind x, (batch, time, hidden and more).
   */
  forward(x: Tensor, context: MixerContext, drop = 0): Tensor {
    if (this.#taken === 0) return this.#forward(x, context, drop);
    const hidden = x.shape[2] - this.#taken;
    const [own, more] = [x.narrow(2, 0, hidden), x.narrow(2, hidden, this.#taken)];
    return this.#late ? this.#forward(own, context, drop).add(more) : this.#forward(own, context, drop, more);
  }
  #forward(x: Tensor, context: MixerContext, drop: number, more?: Tensor): Tensor {
    if (this.streams) return this.#inStreams(this.streams, x, context);
    if (this.hyper) return this.#mixed(this.hyper, x, context, drop);
    if (this.#normedSums) return this.#sums(x, context, drop);
    if (this.#ontoNormed) return this.#onto(this.#ontoNormed, x, context, drop);
    const branch = (y: Tensor, after: Norm | undefined): Tensor => {
      const z = after ? after.forward(y) : y;
      return dropout(this.#factor === 1 ? z : z.affine(this.#factor, 0), drop);
    };
    const first = this.beforeMixer ? this.beforeMixer.forward(x) : x;
    if (this.#adds(drop)) {
      const h = this.mixer.forward(first, context, x);
      return this.mlp.forward(this.beforeMlp ? this.beforeMlp.forward(h) : h, h, context.step);
    }
    const shifted = (y: Tensor, i: number): Tensor => (this.shifts.length > 0 ? this.shifts[i].forward(y) : y);
    const mixed = this.mixer && shifted(branch(this.mixer.forward(first, context), this.afterMixer), 0);
    const kept = (y: Tensor, i: 0 | 1): Tensor => (this.residuals ? y.mul(this.residuals[i]) : shifted(y, 2 * i + 1));
    const h = this.#parallel || !mixed ? x : kept(x, 0).add(mixed);
    if (!this.mlp) return h;
    const second = this.#parallel === 'shared' ? first : this.beforeMlp ? this.beforeMlp.forward(h) : h;
    const { mlp } = this;
    const deep = mlp instanceof Mixture ? mlp.deep : undefined;
    const asked = deep?.read(second, more);
    const made =
      mlp instanceof DenseWithExperts
        ? mlp.forward(second, h)
        : mlp instanceof Mixture
          ? mlp.forward(second, asked, context.ids)
          : mlp.forward(second);
    const fed = shifted(branch(made, this.afterMlp), 2);
    const y = this.#parallel && mixed ? x.add(mixed).add(fed) : kept(h, 1).add(fed);
    const joined = this.input ? this.input.forward(y, context) : y;
    const whole = this.factor ? joined.mul(this.factor) : joined;
    const left = this.late ? this.late.forward(second) : deep?.leaves ? asked : undefined;
    return left ? whole.cat([left], 2) : whole;
  }
  /** Whether both branches are added as they are. */
  #adds(drop: number): this is { readonly mixer: AttentionMixer; readonly mlp: Dense } {
    const { mixer, mlp, afterMixer, afterMlp, input, factor, residuals, late } = this;
    const plain =
      drop === 0 &&
      this.#factor === 1 &&
      !this.#parallel &&
      ![afterMixer, afterMlp, input, factor, residuals, late, this.shifts.length].some(Boolean);
    return plain && mixer instanceof AttentionMixer && mlp instanceof Dense;
  }
  /** With norms of the sums. */
  #sums(x: Tensor, context: MixerContext, drop: number): Tensor {
    const add = (to: Tensor, y: Tensor, norm: Norm | undefined): Tensor => {
      const sum = to.add(dropout(y, drop));
      return norm ? norm.forward(sum) : sum;
    };
    const h = this.mixer ? add(x, this.mixer.forward(x, context), this.afterMixer) : x;
    return this.mlp ? add(h, this.mlp.forward(h), this.afterMlp) : h;
  }
  /** With branches added to what their norms made. */
  #onto(factors: NonNullable<Layer['ontoNormed']>, x: Tensor, context: MixerContext, drop: number): Tensor {
    const joined = (y: Tensor, branch: Tensor, [own, added]: readonly [number, number]): Tensor =>
      y.affine(own, 0).add(dropout(branch.affine(added, 0), drop));
    const first = (this.beforeMixer as Norm).forward(x);
    const h = joined(first, (this.mixer as MixerModule).forward(first, context), factors.mixer);
    const second = (this.beforeMlp as Norm).forward(h);
    return joined(second, (this.mlp as MlpModule).forward(second), factors.mlp);
  }
  /** Over all of a token's vectors side by side, (b, t, count hidden). */
  #mixed([mixer, mlp]: NonNullable<Block['hyper']>, x: Tensor, context: MixerContext, drop: number): Tensor {
    const through = (norm: Norm | undefined, y: Tensor): Tensor => (norm ? norm.forward(y) : y);
    const h = mixer.around(x, (y) =>
      dropout((this.mixer as MixerModule).forward(through(this.beforeMixer, y), context), drop),
    );
    const feed = (y: Tensor): Tensor =>
      this.mlp instanceof Mixture ? this.mlp.forward(y, undefined, context.ids) : (this.mlp as Dense).forward(y);
    return mlp.around(h, (y) => dropout(feed(through(this.beforeMlp, y)), drop));
  }
  /** Over several vectors a token, (streams, b, t, hidden). */
  #inStreams(streams: StreamBlock, all: Tensor, context: MixerContext): Tensor {
    const through = (norm: Norm | undefined, y: Tensor): Tensor => (norm ? norm.forward(y) : y);
    const predicted = streams.predict(all);
    const active = streams.active(predicted);
    const first = through(this.beforeMixer, active);
    const mixed = active.add(through(this.afterMixer, (this.mixer as MixerModule).forward(first, context)));
    const h = mixed.add((this.laurel as Laurel).forward(first)).affine(Math.SQRT1_2, 0);
    const fed = through(this.afterMlp, (this.mlp as Dense).forward(through(this.beforeMlp, h)));
    const corrected = streams.correct(predicted, h.add(fed));
    const own = (this.input as LayerInput).addition(streams.scaled(streams.active(corrected)), context);
    return streams.addBehindFirst(corrected, own);
  }
}
