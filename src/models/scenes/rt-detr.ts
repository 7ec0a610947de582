// RT-DETR (and its second version): maps of three sizes that are mixed up and down, and the likeliest places of all as
// the first guesses of things, which each layer betters.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { NormedConv, type NormedConvOptions } from '../vision/normed-conv.js';
import { checkPixels, labelsOf } from '../vision/vision-model.js';
import type { DeformableConfig, Maps } from './deformable.js';
import { LayeredHead } from './layered-head.js';
import { type LayerConfig, MapMixer, type MixerConfig } from './map-mixer.js';
import { ResNetD } from './resnet-d.js';
import { DetectionModel, type Detections } from './scene-model.js';
import { firstBoxes, ThingsLayer, unsigmoid } from './things-layer.js';

class RtDetr extends DetectionModel {
  readonly body: ResNetD;
  readonly narrow: readonly NormedConv[];
  readonly mixer: MapMixer;
  readonly given: readonly NormedConv[];
  /** What a place knows of a thing, and of which class it would be. */
  readonly guess: Linear;
  readonly guessNorm: LayerNorm;
  readonly guessClasses: Linear;
  readonly guessBoxes: LayeredHead;
  readonly at: LayeredHead;
  readonly layers: readonly ThingsLayer[];
  readonly boxes: readonly LayeredHead[];
  readonly classes: Linear;
  readonly labels: readonly string[];
  readonly scores = 'alone';
  readonly #things: number;
  readonly #step: number;
  constructor(vb: VarBuilder, c: RtDetrConfig, body: ResNetD, labels: readonly string[]) {
    super();
    const { width, mixer } = c;
    const at = vb.pp('model');
    const pair = (
      name: string,
      i: number,
      sizes: readonly [number, number],
      o: Partial<NormedConvOptions>,
    ): NormedConv => new NormedConv(at.pp(name, i), sizes, { kernel: 1, names: ['0', '1'], ...o });
    this.body = body;
    this.labels = labels;
    this.#things = c.things;
    this.#step = c.step;
    this.narrow = body.channels.map((from, i) => pair('encoder_input_proj', i, [from, mixer.width], {}));
    this.mixer = new MapMixer(at.pp('encoder'), mixer);
    const eps = mixer.normEps;
    this.given = Array.from({ length: c.looks.levels }, (_, i) =>
      i < mixer.maps
        ? pair('decoder_input_proj', i, [mixer.width, width], { eps })
        : pair('decoder_input_proj', i, [mixer.width, width], { kernel: 3, stride: 2, eps }),
    );
    const count = labels.length;
    this.guess = linear(width, width, at.pp('enc_output.0'));
    this.guessNorm = layerNorm(width, at.pp('enc_output.1'), { eps: c.eps });
    this.guessClasses = linear(width, count, at.pp('enc_score_head'));
    this.guessBoxes = new LayeredHead(at.pp('enc_bbox_head'), [width, width, width, 4]);
    const d = at.pp('decoder');
    const heads = c.apart ? vb : d;
    this.at = new LayeredHead(d.pp('query_pos_head'), [4, 2 * width, width]);
    const each = Array.from({ length: c.layers }, (_, i) => i);
    this.layers = each.map((i) => new ThingsLayer(d.pp('layers', i), c, c.looks));
    this.boxes = each.map((i) => new LayeredHead(heads.pp('bbox_embed', i), [width, width, width, 4]));
    this.classes = linear(width, count, heads.pp('class_embed', c.layers - 1));
  }
  /** Maps of one width, flat and one behind the other. */
  #maps(pixels: Tensor): Maps {
    const mixed = this.mixer.forward(this.body.maps(pixels).map((map, i) => this.narrow[i].forward(map)));
    const maps = this.given.map((conv, i) => conv.forward(mixed[Math.min(i, mixed.length - 1)]));
    const flat = maps.map((map) => map.reshape([map.shape[0], map.shape[1], -1]).transpose(1, 2));
    const sizes = maps.map(({ shape }) => [shape[2], shape[3]] as const);
    return { places: flat[0].cat(flat.slice(1), 1).contiguous(), sizes };
  }
  forward(pixels: Tensor): Detections {
    checkPixels(pixels, this.body.first[0].conv.weight.shape[1]);
    const [b, , ...sides] = pixels.shape;
    if (sides.some((n) => n % this.#step !== 0))
      throw new ArgumentError(`detection: pixels are ${sides.join(' x ')}; sides are whole multiples of ${this.#step}`);
    const maps = this.#maps(pixels);
    const count = maps.places.shape[1];
    if (count < this.#things)
      throw new ArgumentError(`detection: ${count} places are fewer than the ${this.#things} things of the model`);
    const [boxes, inside] = firstBoxes(maps.sizes, maps.places);
    const known = this.guessNorm.forward(this.guess.forward(maps.places.mul(inside)));
    const [, chosen] = this.guessClasses.forward(known).max(-1).topk(this.#things, 1);
    const picked = (x: Tensor): Tensor =>
      x.gather(1, chosen.unsqueeze(2).broadcastTo([b, this.#things, x.shape[2]]).contiguous());
    let at = picked(this.guessBoxes.forward(known).add(boxes)).sigmoid();
    let x = picked(known);
    this.layers.forEach((layer, i) => {
      x = layer.forward(x, this.at.forward(at), at, maps);
      at = this.boxes[i].forward(x).add(unsigmoid(at)).sigmoid();
    });
    return { logits: this.classes.forward(x), boxes: at };
  }
}
interface RtDetrConfig extends LayerConfig {
  readonly layers: number;
  readonly looks: DeformableConfig;
  readonly mixer: MixerConfig;
  readonly things: number;
  /** Of the coarsest map. */
  readonly step: number;
  /** Heads are stored beside the model, as transformers names them, too. */
  readonly apart: boolean;
}

/** Fields that mean something to losses while training. */
const TRAINING = `auxiliary_loss eos_coefficient focal_loss_alpha focal_loss_gamma use_focal_loss weight_loss_bbox
  weight_loss_giou weight_loss_vfl matcher_alpha matcher_bbox_cost matcher_class_cost matcher_gamma matcher_giou_cost
  num_denoising label_noise_ratio box_noise_scale initializer_bias_prior_prob is_encoder_decoder
  disable_custom_kernels freeze_backbone_batch_norms use_timm_backbone use_pretrained_backbone backbone_kwargs
  backbone num_hidden_layers hidden_size num_attention_heads tie_word_embeddings`.split(/\s+/);
function rtDetr(c: Config, source: ModelSource): RtDetr {
  c.ignore(...TRAINING);
  const second = c.text('model_type') === 'rt_detr_v2';
  const inner = c.inner('backbone_config');
  const type = inner?.get('model_type');
  if (!inner || type !== 'rt_detr_resnet')
    throw new UnsupportedError(
      `${c.where}: backbone_config.model_type is ${JSON.stringify(type) ?? 'missing'}; served is rt_detr_resnet`,
    );
  inner.ignoreBooks();
  const body = new ResNetD(source.builder.pp('model.backbone.model'), inner);
  const maps = body.channels.length;
  c.only('encoder_in_channels', body.channels);
  c.only('with_box_refine', true);
  c.only('learn_initial_query', false); // with them transformers' own program fails
  const mixed = c.count('encoder_hidden_dim', 256, 4);
  c.only('decoder_in_channels', Array<number>(maps).fill(mixed));
  const strides = c.has('feat_strides') ? c.numbers('feat_strides') : [8, 16, 32];
  const looking = c.has('encode_proj_layers') ? c.numbers('encode_proj_layers') : [2];
  if (strides.length !== maps || looking.some((i) => !Number.isInteger(i) || i < 0 || i >= maps))
    throw new UnsupportedError(
      `${c.where}: feat_strides is ${JSON.stringify(strides)} and encode_proj_layers ${JSON.stringify(looking)}; the ` +
        `backbone lets out ${maps} maps`,
    );
  // Boxes for pictures of one size are those of any.
  c.ignore('anchor_image_size');
  const eps = c.number('layer_norm_eps', 1e-5);
  const width = c.count('d_model', 256, 1);
  const mixer: MixerConfig = {
    ...{ width: mixed, eps, maps, looking, layers: c.count('encoder_layers', 1) },
    heads: c.count('encoder_attention_heads', 8, 1),
    inner: c.count('encoder_ffn_dim', 1024),
    activation: c.activation('encoder_activation_function', 'gelu'),
    before: c.flag('normalize_before', false),
    temperature: c.number('positional_encoding_temperature', 10000),
    unplaced: c.has('eval_size'),
    narrow: Math.trunc(mixed * c.number('hidden_expansion', 1)),
    bend: activation(c.activation('activation_function', 'silu')),
    normEps: c.number('batch_norm_eps', 1e-5),
  };
  const heads = c.count('decoder_attention_heads', 8, 1);
  const levels = c.count('num_feature_levels', 3, maps);
  if (second) {
    c.only('decoder_n_levels', levels);
    c.only('decoder_method', 'default');
  }
  const reach = second ? c.number('decoder_offset_scale', 0.5) : 0.5;
  const config: RtDetrConfig = {
    ...{ width, eps, heads, mixer, layers: c.count('decoder_layers', 6, 1), step: Math.max(...strides) },
    apart: !source.names.some((n) => n.startsWith('model.decoder.class_embed.')),
    inner: c.count('decoder_ffn_dim', 1024),
    activation: c.activation('decoder_activation_function', 'relu'),
    looks: { width, heads, levels, points: c.count('decoder_n_points', 4, 1), reach },
    things: c.count('num_queries', 300, 1),
  };
  const [last, above] = [config.layers - 1, config.apart ? '' : 'model.decoder.'];
  const [count] = source.shapeOf(`${above}class_embed.${last}.weight`);
  // What earlier layers say of classes, and what training begins with, changes no answer.
  const early = Array.from({ length: last }, (_, i) => `${above}class_embed.${i}.`);
  source.ignore(new Set(early.flatMap((name) => [`${name}weight`, `${name}bias`])));
  source.ignore(/\.num_batches_tracked$|\.denoising_class_embed\.|\.(n_points_scale|anchors|valid_mask)$/);
  if (!config.apart) source.ignore(/^(class|bbox)_embed\./);
  return new RtDetr(source.builder, config, body, labelsOf(c, count));
}
export const RT_DETR_FAMILIES: readonly ModelRow[] = [
  { kind: 'object-detection', types: ['rt_detr', 'rt_detr_v2'], build: rtDetr },
];
