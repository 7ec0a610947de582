// wav2vec 2.0, HuBERT, UniSpeech, WavLM, data2vec, SEW and wav2vec 2.0 with conformer layers: convolutions over the
// samples of a sound, an encoder, and a letter for each moment (CTC) or classes of the whole.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type Conv1d, conv1d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type GroupNorm, groupNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { ConformerBlock, type ConformerConfig, conformerConfig, conformerPlaces, storedSpeeds } from './conformer.js';
import { type DistanceKinds, distanceScores, GatedDistances } from './gated-distances.js';
import type { ModelRow } from '../model-row.js';
import { type AttendOptions, type FeedForward, feedForward, keysMask, type MultiHead, multiHead } from '../parts.js';
import type { ModelSource } from '../files/source.js';
import { SoundPlaces, type PlacesConfig } from './sound-places.js';

interface SoundConfig {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
  readonly soundActivation: string;
  /** Channels, kernel and stride of each convolution. */
  readonly convs: readonly (readonly [channels: number, kernel: number, stride: number])[];
  readonly convBias: boolean;
  /** The first convolution's channels are normed each by itself, or all convolutions' together. */
  readonly convNorm: 'group' | 'layer';
  /** Norms before attention and feed-forward. */
  readonly before: boolean;
  /** How convolutions tell places; conformer layers know them themselves. */
  readonly places: PlacesConfig | undefined;
  readonly conformer: ConformerConfig | undefined;
  /** Where the norm and the product behind the convolutions lie; without a product their channels are the width. */
  readonly projected: { readonly norm: string; readonly product: string | undefined };
  /** What the convolutions make is normed. */
  readonly normed: boolean;
  /** The width of adapters behind layers, where they have them (MMS). */
  readonly adapter: number | undefined;
  /** Scores have additions by distance (WavLM). */
  readonly distances: DistanceKinds | undefined;
}

class SoundConv extends Module {
  readonly conv: Conv1d;
  readonly norm: LayerNorm | GroupNorm | undefined;
  readonly #bend: (x: Tensor) => Tensor;
  readonly #last: boolean;
  constructor(vb: VarBuilder, c: SoundConfig, i: number) {
    super();
    const [channels, kernel, stride] = c.convs[i];
    const from = i > 0 ? c.convs[i - 1][0] : 1;
    this.conv = conv1d(from, channels, kernel, vb.pp('conv'), { stride, useBias: c.convBias });
    const at = vb.pp('layer_norm');
    this.#last = c.convNorm === 'layer';
    if (this.#last) this.norm = layerNorm(channels, at);
    else if (i === 0) this.norm = groupNorm(channels, channels, at);
    this.#bend = activation(c.soundActivation);
  }
  forward(x: Tensor): Tensor {
    const y = this.conv.forward(x);
    if (!this.norm) return this.#bend(y);
    const turned = (t: Tensor): Tensor => (this.#last ? t.transpose(1, 2).contiguous() : t);
    return this.#bend(turned(this.norm.forward(turned(y))));
  }
}

const NAMES = { q: 'q_proj', k: 'k_proj', v: 'v_proj', out: 'out_proj' };
class SoundBlock extends Module {
  readonly attention: MultiHead | GatedDistances;
  readonly norm1: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm2: LayerNorm;
  readonly adapterNorm: LayerNorm | undefined;
  readonly adapter: FeedForward | undefined;
  readonly #before: boolean;
  constructor(vb: VarBuilder, c: SoundConfig, first: boolean) {
    super();
    this.#before = c.before;
    const at = vb.pp('attention');
    this.attention = c.distances
      ? new GatedDistances(at, NAMES, c.width, c.heads, first ? c.distances.buckets : undefined)
      : multiHead(at, NAMES, c.width, c.heads);
    this.norm1 = layerNorm(c.width, vb.pp('layer_norm'), { eps: c.eps });
    const names = ['intermediate_dense', 'output_dense'] as const;
    this.mlp = feedForward(vb.pp('feed_forward'), names, c.width, c.inner, c.activation);
    this.norm2 = layerNorm(c.width, vb.pp('final_layer_norm'), { eps: c.eps });
    if (c.adapter === undefined) return;
    this.adapterNorm = layerNorm(c.width, vb.pp('adapter_layer.norm'));
    this.adapter = feedForward(vb.pp('adapter_layer'), ['linear_1', 'linear_2'], c.width, c.adapter, 'relu');
  }
  forward(x: Tensor, o: AttendOptions, scores: Tensor | undefined): Tensor {
    const attend = (h: Tensor): Tensor =>
      this.attention instanceof GatedDistances
        ? this.attention.forward(h, { ...o, scores: scores as Tensor })
        : this.attention.forward(h, o);
    if (!this.#before) {
      const y = this.norm1.forward(x.add(attend(x)));
      return this.norm2.forward(y.add(this.mlp.forward(y)));
    }
    const y = x.add(attend(this.norm1.forward(x)));
    const z = y.add(this.mlp.forward(this.norm2.forward(y)));
    return this.adapter && this.adapterNorm ? z.add(this.adapter.forward(this.adapterNorm.forward(z))) : z;
  }
}

/** What stands behind the encoder. */
export interface SoundHead {
  /** A number a letter for each moment. */
  readonly letters?: Linear;
  /** From the mean of what `narrow` makes of moments to a number a class. */
  readonly classes?: { readonly narrow: Linear; readonly out: Linear; readonly shares?: Tensor };
  readonly labels: readonly string[];
}

/** A sound's samples to vectors of its moments, to letters or to classes. */
export class SoundEncoder extends Module {
  readonly convs: SoundConv[];
  readonly projectionNorm: LayerNorm | undefined;
  readonly projection: Linear | undefined;
  readonly places: SoundPlaces | undefined;
  readonly norm: LayerNorm;
  readonly blocks: (SoundBlock | ConformerBlock)[];
  /** From moments that were made one to as many as they were. */
  readonly spread: Linear | undefined;
  readonly letters: Linear | undefined;
  readonly narrow: Linear | undefined;
  readonly classes: Linear | undefined;
  /** How much each layer's vectors count for the classes. */
  readonly shares: Tensor | undefined;
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  readonly #config: SoundConfig;
  constructor(vb: VarBuilder, c: SoundConfig, head: SoundHead) {
    super();
    this.#config = c;
    this.convs = c.convs.map((_, i) => new SoundConv(vb.pp('feature_extractor.conv_layers', i), c, i));
    const last = (c.convs.at(-1) as readonly number[])[0];
    const { norm, product } = c.projected;
    this.projectionNorm = c.normed ? layerNorm(last, vb.pp(norm), { eps: c.eps }) : undefined;
    this.projection = product === undefined ? undefined : linear(last, c.width, vb.pp(product));
    const e = vb.pp('encoder');
    this.places = c.places && new SoundPlaces(e.pp('pos_conv_embed'), c.width, c.places);
    const fold = c.places?.fold;
    this.spread = fold === undefined ? undefined : linear(c.width, c.width * fold, e.pp('upsample.projection'));
    this.norm = layerNorm(c.width, e.pp('layer_norm'), { eps: c.eps });
    this.blocks = Array.from({ length: c.layers }, (_, i) =>
      c.conformer ? new ConformerBlock(e.pp('layers', i), c.conformer) : new SoundBlock(e.pp('layers', i), c, i === 0),
    );
    this.letters = head.letters;
    this.narrow = head.classes?.narrow;
    this.classes = head.classes?.out;
    this.shares = head.classes?.shares;
    this.labels = head.labels;
  }
  /** Moments that come of so many samples. */
  moments(samples: number): number {
    return this.#config.convs.reduce((n, [, kernel, stride]) => Math.floor((n - kernel) / stride) + 1, samples);
  }
  /** Which moments are real, u8 (b, t), of which samples are. */
  #mask(mask: Tensor): Tensor {
    const [b, n] = mask.shape;
    const t = this.moments(n);
    const lengths = (mask.ne(0).cast('f32').sum(1).toArray() as number[]).map((k) => this.moments(k));
    const data = Uint8Array.from({ length: b * t }, (_, i) => Number(i % t < lengths[Math.floor(i / t)]));
    return tensor(data, { shape: [b, t], device: mask.device });
  }
  /** Vectors of moments (b, t, width) of samples, those of padding zero. */
  #heard(samples: Tensor, real: Tensor | undefined): Tensor {
    const heard = this.convs
      .reduce((x, conv) => conv.forward(x), samples.unsqueeze(1))
      .transpose(1, 2)
      .contiguous();
    const normed = this.projectionNorm ? this.projectionNorm.forward(heard) : heard;
    const x = this.projection ? this.projection.forward(normed) : normed;
    return real ? x.mul(real.cast(x.dtype).unsqueeze(2)) : x;
  }
  /** Each layer's vectors (b, t, width), those before the first one first; the last are normed. */
  #layers(samples: Tensor, real: Tensor | undefined): { all: Tensor[]; last: Tensor } {
    const { before, distances, conformer } = this.#config;
    let x = this.#heard(samples, real);
    const count = x.shape[1];
    if (this.places) x = this.places.forward(x);
    if (!before) x = this.norm.forward(x);
    const folded = this.places && real ? this.places.folded(real) : real;
    const seen = keysMask(folded);
    const all = [x];
    const [{ attention: first }] = this.blocks;
    const table = first instanceof GatedDistances ? first.table : undefined;
    const scores = table && distances && distanceScores(table, distances, x.shape[1]);
    const around = conformer && conformerPlaces(conformer, x);
    for (const block of this.blocks) {
      x =
        block instanceof ConformerBlock
          ? block.forward(x, around ?? {}, folded)
          : block.forward(x, seen ? { mask: seen } : {}, scores);
      all.push(x);
    }
    return { all, last: this.#spread(before ? this.norm.forward(x) : x, count) };
  }
  /** As many moments as there were, the last ones zero where some were left over. */
  #spread(x: Tensor, count: number): Tensor {
    if (!this.spread) return x;
    const [b, t, width] = x.shape;
    const made = activation(this.#config.soundActivation)(this.spread.forward(x));
    const y = made.reshape([b, (t * made.shape[2]) / width, width]);
    const left = count - y.shape[1];
    return left > 0 ? y.cat([y.narrow(1, 0, 1).zerosLike().broadcastTo([b, left, width])], 1) : y;
  }
  #check(samples: Tensor, mask: Tensor | undefined): void {
    if (
      samples.rank !== 2 ||
      (mask && mask.shape.join() !== samples.shape.join()) ||
      this.moments(samples.shape[1]) < 1
    )
      throw new ArgumentError(
        `sound: samples have shape [${samples.shape.join(', ')}]${mask ? `, the mask [${mask.shape.join(', ')}]` : ''}` +
          '; both must be (batch, samples), with enough samples for a moment',
      );
  }
  /** Vectors of moments (b, t, width) of samples (b, n); the mask (b, n) is 1 for samples and 0 for padding. */
  hidden(samples: Tensor, mask?: Tensor): Tensor {
    this.#check(samples, mask);
    return this.#layers(samples, mask && this.#mask(mask)).last;
  }
  /** Logits of letters (b, t, letters) or of classes (b, classes); vectors of moments where there is no head. */
  forward(samples: Tensor, mask?: Tensor): Tensor {
    const { narrow, classes, shares } = this;
    if (!narrow || !classes) {
      const hidden = this.hidden(samples, mask);
      return this.letters ? this.letters.forward(hidden) : hidden;
    }
    this.#check(samples, mask);
    const real = mask && this.#mask(mask);
    return classesOf({ narrow, out: classes, ...(shares && { shares }) }, this.#layers(samples, real), real);
  }
}
/** Numbers of classes (b, classes) from vectors of moments, of which those that are real count. */
export function classesOf(
  { narrow, out, shares }: NonNullable<SoundHead['classes']>,
  { all, last }: { readonly all: readonly Tensor[]; readonly last: Tensor },
  real: Tensor | undefined,
): Tensor {
  const parts = shares?.softmax(-1);
  const mixed = parts ? all.map((x, i) => x.mul(parts.narrow(0, i, 1))).reduce((a, b) => a.add(b)) : last;
  const y = narrow.forward(mixed);
  if (!real) return out.forward(y.mean([1]));
  const counted = real.cast(y.dtype).unsqueeze(2);
  return out.forward(
    y
      .mul(counted)
      .sum([1])
      .div(counted.sum([1])),
  );
}

/** Fields that mean something while training, or to heads that compare sounds. */
export const TRAINING =
  `apply_spec_augment mask_feature_length mask_feature_min_masks mask_feature_prob mask_time_length
  mask_time_min_masks mask_time_prob codevector_dim contrastive_logits_temperature ctc_loss_reduction ctc_zero_infinity
  diversity_loss_weight feat_proj_dropout feat_quantizer_dropout final_dropout num_codevector_groups
  num_codevectors_per_group num_negatives proj_codevector_dim tdnn_dilation tdnn_dim tdnn_kernel xvector_output_dim
  feat_extract_dropout num_ctc_classes replace_prob num_clusters adapter_kernel_size adapter_stride num_adapter_layers
  output_hidden_size mask_channel_length mask_channel_min_space mask_channel_other mask_channel_prob
  mask_channel_selection mask_time_min_space mask_time_other mask_time_selection`.split(/\s+/);

/** How convolutions of a family tell places. */
function placesOf(c: Config, type: string, bend: string): PlacesConfig {
  const stack = type === 'data2vec-audio';
  const count = c.count('num_conv_pos_embeddings', stack ? 5 : 128, 1);
  const groups = c.count('num_conv_pos_embedding_groups', 16, 1);
  if (stack) return { kernel: c.count('conv_pos_kernel_size', 19, 1), groups, bend, layers: count };
  return { kernel: count, groups, bend, ...(type === 'sew' && { fold: c.count('squeeze_factor', 2, 1) }) };
}
function soundConfig(c: Config, source: ModelSource, type: string, at: string): SoundConfig {
  c.only('add_adapter', false);
  c.only('conv_pos_batch_norm', false);
  c.only('feat_extract_norm', 'group', 'layer');
  const width = c.count('hidden_size');
  const dims = c.numbers('conv_dim');
  const [kernels, strides] = [c.numbers('conv_kernel', dims.length), c.numbers('conv_stride', dims.length)];
  c.only('num_feat_extract_layers', dims.length);
  const conformer = type === 'wav2vec2-conformer' ? conformerConfig(c, false, storedSpeeds(source, at)) : undefined;
  const stable = c.flag('do_stable_layer_norm', false);
  const gated = type === 'wavlm';
  if (gated) c.only('adapter_attn_dim', null);
  const adapter = c.optional('adapter_attn_dim');
  const distances = gated
    ? { buckets: c.count('num_buckets', 320, 4), farthest: c.count('max_bucket_distance', 800, 1) }
    : undefined;
  if (adapter !== undefined && !stable)
    throw new UnsupportedError(
      `${c.where}: adapter_attn_dim is ${adapter} without do_stable_layer_norm, where no layer reads it`,
    );
  const soundActivation = c.activation('feat_extract_activation', 'gelu');
  const places = placesOf(c, type, soundActivation);
  if (conformer) source.ignore(/\.pos_conv_embed\.|\.num_batches_tracked$/);
  const bare = type === 'sew';
  const product = bare ? 'feature_projection' : 'feature_projection.projection';
  return {
    ...{ width, adapter, distances, conformer, soundActivation },
    before: stable || conformer !== undefined,
    places: conformer ? undefined : places,
    layers: c.count('num_hidden_layers', undefined, 1),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: c.count('intermediate_size'),
    eps: c.number('layer_norm_eps', 1e-5),
    activation: c.activation('hidden_act', 'gelu'),
    convs: dims.map((channels, i) => [channels, kernels[i], strides[i]]),
    convBias: c.flag('conv_bias', false),
    convNorm: type === 'data2vec-audio' ? 'layer' : (c.text('feat_extract_norm', 'group') as 'group' | 'layer'),
    normed: type !== 'hubert' || c.flag('feat_proj_layer_norm', true),
    projected: {
      norm: bare ? 'layer_norm' : 'feature_projection.layer_norm',
      product: bare && !source.has(`${at}${product}.weight`) ? undefined : product,
    },
  };
}
/** What stands behind an encoder, as the files have it. */
export function soundHead(c: Config, source: ModelSource, layers: number): SoundHead {
  const vb = source.builder;
  const product = (name: string): Linear => {
    const [to, from] = source.shapeOf(`${name}.weight`);
    return linear(from, to, vb.pp(name));
  };
  const weighted = c.flag('use_weighted_layer_sum', false);
  c.ignore('classifier_proj_size');
  const classifies = source.has('classifier.weight') && source.has('projector.weight');
  const shares = weighted && classifies ? vb.get([layers + 1], 'layer_weights') : undefined;
  return {
    ...(source.has('lm_head.weight') && { letters: product('lm_head') }),
    ...(classifies && {
      classes: { narrow: product('projector'), out: product('classifier'), ...(shares && { shares }) },
    }),
    labels: Object.values((c.get('id2label') ?? {}) as Record<string, string>),
  };
}
function sound(c: Config, source: ModelSource): SoundEncoder {
  c.ignore(...TRAINING);
  const type = c.text('model_type');
  source.ignore(/(^|\.)masked_spec_embed$|^(quantizer|project_q|project_hid)\./);
  const prefix = type.replaceAll('-', '_');
  const inside = source.names.some((n) => n.startsWith(`${prefix}.`));
  const vb = source.builder;
  const config = soundConfig(c, source, type, inside ? `${prefix}.` : '');
  return new SoundEncoder(inside ? vb.pp(prefix) : vb, config, soundHead(c, source, config.layers));
}
const TYPES = [
  'wav2vec2',
  'hubert',
  'unispeech',
  'unispeech-sat',
  'wavlm',
  'data2vec-audio',
  'sew',
  'wav2vec2-conformer',
];
export const SOUND_FAMILIES: readonly ModelRow[] = [{ kind: 'sound', types: TYPES, build: sound }];
