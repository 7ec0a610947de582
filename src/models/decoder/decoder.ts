// A decoder-only transformer of any family: token numbers in, logits out. What it is made of is said by its features
// alone.
import type { DType } from '../../base/dtype.js';
import { ArgumentError, ShapeError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { normal, ONE } from '../../nn/init.js';
import { CACHE_TYPES, type CacheType } from '../../nn/kv-cache.js';
import { type AnyLinear, dropout, Embedding, Linear } from '../../nn/layers.js';
import { linearCrossEntropy, type LinearCrossEntropyOptions } from '../../nn/linear-cross-entropy.js';
import { Module } from '../../nn/module.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import { keep, scope } from '../../tensor/scope.js';
import { QTensor, type Weight } from '../../tensor/qtensor.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Block, Shift } from './block.js';
import { Cycles } from './cycles.js';
import { type Features, keyed } from './features.js';
import { HyperEnd, spread } from './hyper.js';
import { LayerInputs } from './layer-inputs.js';
import { type Norm, norm } from './mixers.js';
import { PositionTables, waves } from './position-tables.js';
import { type RopeFeature, ropeRegime, type RopeTable } from './rope.js';
import type { Shard } from './shard.js';
import { Stage, type StageGroup } from './stage.js';
import { Streams } from './streams.js';
import { BatchStep, DecoderCache, type Step } from './step.js';
import type { Weights } from './weights.js';

/** Options of a decoder's `forward`. */
export interface ForwardOptions {
  /** Logits of the last position only. */
  readonly last?: boolean;
  /** Tokens of padding in front of each sequence; with a cache, given once with the first tokens. */
  readonly pads?: readonly number[];
}

/** What models that read pictures do with a text's vectors on their way. */
export interface HiddenOptions {
  /** Is given the words' vectors and may put others in their places. */
  readonly join?: (words: Tensor) => Tensor;
  /** Is given what a layer made. */
  readonly behind?: (x: Tensor, layer: number) => Tensor;
}

function checkCacheType({ family, layers }: Features, type: CacheType): void {
  if (!CACHE_TYPES.includes(type))
    throw new ArgumentError(`cache type ${JSON.stringify(type)} is none of ${CACHE_TYPES.join(', ')}`);
  layers.forEach(({ mixer }, i) => {
    const m = keyed(mixer);
    if (m?.kind === 'latent')
      throw new UnsupportedError(`${family}: layer ${i} keeps latents, which are not kept as ${type}`);
    if (type === 'q8_0' && m?.kind === 'attention' && m.headDim % 32 !== 0)
      throw new UnsupportedError(`${family}: heads of ${m.headDim} numbers are not whole blocks of 32, as q8_0 needs`);
  });
}

/**
 * A decoder-only language model of any family, as its features describe it. `forward(ids)` answers logits (batch, time,
 * vocabulary).
 */
export class CausalLM extends Module {
  /** What the model is made of. */
  readonly config: Features;
  /** The table of token vectors, (vocabulary, hidden). */
  readonly embed: Embedding<Weight>;
  /** Learnt vectors of positions, where the family has them. */
  readonly positions: Tensor | undefined;
  /** A norm on the embedding, where the family has one. */
  readonly embedNorm: Norm | undefined;
  /** What is done to the embedding, where a family has it. */
  readonly embedShift: Shift | undefined;
  /** From the embedding's width to that of the layers, where they differ. */
  readonly embedIn: AnyLinear | undefined;
  /** From the layers' width back to the head's. */
  readonly embedOut: AnyLinear | undefined;
  /** Where a token has several vectors: what makes them, and one of them again. */
  readonly streams: Streams | undefined;
  /** Where branches read sums of a token's vectors: what the head reads of them. */
  readonly hyper: HyperEnd | undefined;
  /** Where two stacks of layers take turns: how they do. */
  readonly cycles: Cycles | undefined;
  /** Narrow vectors that tokens have for each layer, where the family has them. */
  readonly layerInputs: LayerInputs | undefined;
  /** All layers, or those of this rank's stage; such as have others' weights are not among them. */
  readonly blocks: Block[];
  /** The norm before the head. */
  readonly norm: Norm;
  /** What stands between that norm and the head, where the family has it. */
  readonly headLayer: AnyLinear | undefined;
  /** The norm behind it. */
  readonly headNorm: Norm | undefined;
  /** The embedding's own tensor where they are tied. */
  readonly head: AnyLinear;
  /** How it is shared out among ranks; undefined where it is whole. All ranks run it on the same tokens. */
  readonly shard: Shard | undefined;
  /** Which of its layers are this rank's; undefined where all are. */
  readonly stage: Stage | undefined;
  /** Share of the residual's additions dropped while training. */
  readonly dropout: number;
  readonly #tables = new PositionTables(this);
  readonly #rerun: RopeFeature | undefined;
  /** Which of the blocks each layer is. */
  readonly #blockOf: readonly number[];
  #cacheType: CacheType | undefined;

  constructor(
    features: Features,
    w: Weights,
    options: {
      /** Share of the residual's additions dropped while training; default 0. */
      readonly dropout?: number;
      /** The ranks that its layers are divided among; default: all layers are here. */
      readonly stages?: StageGroup;
    } = {},
  ) {
    super();
    const { stages } = options;
    this.stage = stages && stages.size > 1 ? new Stage(stages, features) : undefined;
    this.dropout = options.dropout ?? 0;
    this.config = features;
    const { vocabSize, hiddenSize, layers, learntPositions: learnt } = features;
    this.shard = w.shard;
    /** Rows of the vocabulary that this rank holds. */
    const entries = w.shard?.entries ?? vocabSize;
    const width = features.embedWidth ?? hiddenSize;
    this.embed = new Embedding<Weight>(w.matrix('embed', [entries, width], normal(0, 0.02)), w.builder.dtype);
    if (width !== hiddenSize) {
      this.embedIn = w.linear([{ role: 'embedIn', outputs: hiddenSize }], width);
      this.embedOut = w.linear([{ role: 'embedOut', outputs: width }], hiddenSize);
    }
    if (features.shifted)
      this.embedShift = new Shift(w.tensor('embedShift', [hiddenSize]), w.tensor('embedScale', [hiddenSize], ONE));
    if (features.streams) this.streams = new Streams(w, features.streams, hiddenSize);
    if (features.hyper) this.hyper = new HyperEnd(w, features);
    if (features.cycles) this.cycles = new Cycles(w, features.cycles, features);
    if (learnt) {
      const size = [learnt.count + learnt.offset, hiddenSize] as const;
      const { device, dtype } = w.builder;
      const stored = learnt.waves
        ? keep(scope(() => tensor(waves(...size, learnt.waves ?? {}), { shape: size, device }).cast(dtype)))
        : w.tensor('positions', size, normal(0, 0.02));
      this.positions =
        learnt.offset === 0 ? stored : keep(scope(() => stored.narrow(0, learnt.offset, learnt.count).copy()));
      if (this.positions !== stored) stored.dispose();
    }
    if (features.layerInputs) this.layerInputs = new LayerInputs(w, features.layerInputs, features);
    if (features.embedNorm) this.embedNorm = norm(w, 'embedNorm', features.norm, hiddenSize);
    const own = layers.flatMap(({ weightsOf }, i) => (weightsOf === undefined ? [i] : []));
    this.#blockOf = layers.map(({ weightsOf }, i) => own.indexOf(weightsOf ?? i));
    this.blocks = layers.flatMap((layer, i) => {
      if ((this.stage && !this.stage.holds(i)) || layer.weightsOf !== undefined) return [];
      const m = keyed(layer.mixer);
      const sizes = m?.kind === 'attention' ? m : { heads: 1, kvHeads: 1, headDim: hiddenSize };
      return [new Block(w.of(i, sizes, layer.biases), layer, features)];
    });
    this.norm = norm(w, 'finalNorm', features.finalNorm ?? features.norm, hiddenSize);
    if (features.headLayer) {
      this.headLayer = w.linear([{ role: 'headLayer', outputs: hiddenSize }], hiddenSize);
      this.headNorm = norm(w, 'headNorm', features.norm, hiddenSize);
    }
    this.head = new Linear<Weight>(
      features.tied ? this.embed.weight : w.matrix('head', [entries, width], normal(0, 0.02)),
      w.bias('head', [entries]),
    );
    const ropes = layers.map(({ mixer: m }) => keyed(m)?.rope);
    this.#rerun = ropes.find((r) => r?.type === 'longrope');
  }

  /**
   * Whether its ops talk to other ranks through the host: such work can be neither recorded nor run on another thread.
   */
  get talks(): boolean {
    return this.stage !== undefined || (this.shard !== undefined && !this.shard.group.recordable);
  }
  /** Where its weights are. */
  get device(): Device {
    return this.embed.weight.device;
  }
  /** The dtype it computes in. */
  get dtype(): DType {
    return this.embed.dtype;
  }
  /** What caches of this model keep keys and values in; undefined: the model's dtype. */
  get cacheType(): CacheType | undefined {
    return this.#cacheType;
  }
  set cacheType(type: CacheType | undefined) {
    if (type !== undefined) checkCacheType(this.config, type);
    this.#cacheType = type;
  }
  /** A cache for `forward`, with room for `capacity` tokens at first; `whole` keeps all keys of windows too. */
  newCache(capacity?: number, whole = false): DecoderCache {
    return new DecoderCache(this.config, capacity, whole, this.#cacheType);
  }
  /** Cosines and sines for at least `length` positions, in the regime of that length. */
  tables(rope: RopeFeature, length: number): RopeTable {
    return this.#tables.ropes(rope, length);
  }

  /** Logits (b, t, vocab) of token numbers (b, t); with a cache the tokens follow those already in it. */
  forward(ids: Tensor, cache?: DecoderCache, options: ForwardOptions = {}): Tensor {
    if (ids.rank !== 2)
      throw new ArgumentError(
        `${this.config.family}: token numbers have shape [${ids.shape.join(', ')}]; they must be (batch, time)`,
      );
    if (cache !== undefined && !(cache instanceof DecoderCache))
      throw new ArgumentError(
        `${this.config.family}: the second argument is a cache that newCache() made, or undefined`,
      );
    const [b, t] = ids.shape;
    const pads = this.#pads(b, t, cache, options.pads);
    const { mostKeys } = this.config;
    if (mostKeys !== undefined && (cache?.length ?? 0) + t > mostKeys)
      throw new UnsupportedError(
        `forward: ${(cache?.length ?? 0) + t} tokens; beyond ${mostKeys} (index_topk, ` +
          'index_topk_blocks, keep_window_size) this model chooses among its keys, and sparse attention is not served',
      );
    if (!this.#rerun || !cache) return this.#run(ids, cache, pads, options.last ? 1 : t);
    // Keys turned for short sequences are of no use past the border: everything runs again.
    const least = pads ? Math.min(...pads) : 0;
    const [before, after] = [cache.length - least, cache.length + t - least];
    const all = noGrad(() => keep(cache.ids ? cache.ids.cat([ids.cast(cache.ids.dtype)], 1) : ids.copy()));
    const crossed = cache.length > 0 && ropeRegime(this.#rerun, before) !== ropeRegime(this.#rerun, after);
    if (crossed) cache.reset();
    else cache.ids?.dispose();
    cache.ids = all;
    return this.#run(crossed ? all : ids, cache, pads, options.last ? 1 : t);
  }
  #pads(
    b: number,
    t: number,
    cache: DecoderCache | undefined,
    given: readonly number[] | undefined,
  ): readonly number[] | undefined {
    if (!given) return cache?.pads;
    if (cache && cache.length > 0)
      throw new ArgumentError(`${this.config.family}: padding is given with a cache's first tokens only`);
    if (given.length !== b || given.some((p) => !Number.isInteger(p) || p < 0 || p >= t))
      throw new ShapeError(
        `${this.config.family}: padding [${given.join(', ')}] must be ${b} whole numbers from 0 to ${t - 1}`,
      );
    const pads = given.some((p) => p > 0) ? [...given] : undefined;
    if (cache) cache.pads = pads;
    return pads;
  }
  /**
   * The mean cross-entropy of tokens (b, t) and what should follow each of them, class numbers (b, t). Logits of all
   * tokens are never there at once where the model's end is a plain product; gradients of gradients are not made then.
   */
  loss(ids: Tensor, targets: Tensor, options: LinearCrossEntropyOptions = {}): Tensor {
    const { weight, bias } = this.head;
    const { logitFactor, logitSoftcap } = this.config;
    const x = this.hidden(ids, new BatchStep(this.device, ids.shape[1], undefined, undefined, true));
    const extras = [logitFactor, logitSoftcap, this.shard, this.embedOut, this.headLayer];
    const plain = !bias && extras.every((p) => p === undefined);
    if (plain && !(weight instanceof QTensor))
      return linearCrossEntropy(this.norm.forward(x), weight, targets, options);
    const { rows: _, ...how } = options;
    return this.logits(x).cast('f32').crossEntropy(targets, how);
  }
  #run(ids: Tensor, cache: DecoderCache | undefined, pads: readonly number[] | undefined, wanted: number): Tensor {
    const step = new BatchStep(this.device, ids.shape[1], cache, pads);
    const x = this.hidden(ids, step);
    if (cache) {
      cache.length += ids.shape[1];
      cache.pads = pads;
    }
    const t = ids.shape[1];
    return this.logits(wanted === t ? x : x.narrow(1, t - wanted, wanted));
  }
  /**
   * The last layer's output before the final norm, (b, t, hidden), of tokens (b, t) that stand where the step says.
   */
  hidden(ids: Tensor, step: Step, { join, behind }: HiddenOptions = {}): Tensor {
    const { embedFactor, learntPositions, family } = this.config;
    if (learntPositions && step.length > learntPositions.count)
      throw new ArgumentError(
        `${family}: ${step.length} tokens; the model has learnt ${learntPositions.count} positions`,
      );
    const drop = this.training ? this.dropout : 0;
    const rows = (t: Tensor): Tensor => this.embed.forward(t);
    let x = this.shard ? this.shard.embed(rows, ids) : rows(ids); // (b, t, hidden)
    if (this.embedIn) x = this.embedIn.forward(x);
    if (embedFactor !== undefined) x = x.mul(this.#rounded(embedFactor));
    if (join) x = join(x);
    if (this.positions) x = x.add(step.rows(this.positions));
    if (this.embedNorm) x = this.embedNorm.forward(x);
    if (this.embedShift) x = this.embedShift.forward(x);
    x = dropout(x, drop);
    const tables = (r: RopeFeature): RopeTable => this.tables(r, step.length);
    const column = (key: object, at: (p: number) => number): Tensor => this.#tables.column(key, at, step.slots);
    const first = this.stage?.first ?? 0;
    const inputs = this.layerInputs?.forward(ids, x);
    const layer = (y: Tensor, i: number): Tensor => {
      const made = this.blocks[this.#blockOf[i]].forward(
        y,
        { layer: first + i, step, tables, column, ids, embedded: x, ...(inputs && { inputs }) },
        drop,
      );
      return behind ? behind(made, first + i) : made;
    };
    if (this.cycles) return this.cycles.through(x, (y, i) => (step.brief ? scope(() => layer(y, i)) : layer(y, i)));
    const run = (given: Tensor): Tensor =>
      this.blocks.reduce((y, _, i) => {
        if (!step.brief) return layer(y, i);
        const next = scope(() => layer(y, i));
        if (i > 0 && next !== y) y.dispose();
        return next;
      }, given);
    if (this.streams) return this.streams.end(run(this.streams.begin(x)));
    if (this.hyper) return this.hyper.forward(run(spread(x, this.hyper.count)));
    return this.stage ? this.stage.through(x, run) : run(x);
  }
  /** A factor as the weights' dtype holds it. */
  #rounded(factor: number): number {
    return this.dtype === 'f32' || this.dtype === 'f64'
      ? factor
      : tensor([factor], { device: 'cpu' }).cast(this.dtype).cast('f32').item();
  }
  /** What the head multiplies of the last layer's output: its norm and, where the family has them, what follows. */
  headInput(x: Tensor): Tensor {
    const { headLayer } = this.config;
    const normed = this.norm.forward(x);
    const made = headLayer
      ? (this.headNorm as Norm).forward(activation(headLayer.activation)((this.headLayer as AnyLinear).forward(normed)))
      : normed;
    return this.embedOut ? this.embedOut.forward(made) : made;
  }
  /** The head alone: (batch, time, hidden) to (batch, time, vocabulary), with the family's factor and softcap. */
  logits(x: Tensor): Tensor {
    const { logitFactor, logitSoftcap } = this.config;
    const own = this.head.forward(this.headInput(x));
    let y = this.shard ? this.shard.logits(own) : own;
    if (logitFactor !== undefined) y = y.affine(logitFactor, 0);
    if (logitSoftcap !== undefined)
      y = y
        .affine(1 / logitSoftcap, 0)
        .tanh()
        .affine(logitSoftcap, 0);
    return y;
  }
  protected override forget(): void {
    this.#tables.dispose();
  }
}
