// Mask2Former: maps of a backbone are mixed by attention to few places, and questions look only where the mask that
// they gave last shows something. Each question answers with a class and a mask.
import { ArgumentError, FormatError } from '../../base/errors.js';
import { type Conv2d, conv2d, type Embedding, type LayerNorm, layerNorm, Linear, linear } from '../../nn/layers.js';
import { Layer, Module } from '../../nn/module.js';
import { type GroupNorm, groupNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { chunks, type FeedForward, feedForward, MultiHead, multiHead, rowTable } from '../parts.js';
import { labelsOf } from '../vision/vision-model.js';
import type { Maps } from './deformable.js';
import { GroupedMap, middles, PlacesLayer } from './deformable-detr.js';
import { sinePlaces } from './detr.js';
import { DETR_NAMES } from './map-mixer.js';
import { type Masks, MaskingModel } from './scene-model.js';
import { type MapMaker, mapMakerAt } from './map-makers.js';

/** Maps that are mixed by attention; larger ones are made from these. */
const LEVELS = 3;
const GROUPS = 32;

/** A convolution without a bias and a norm of 32 groups, bent or not. */
export class BareMap extends Layer {
  readonly conv: Conv2d;
  readonly norm: GroupNorm;
  readonly #bent: boolean;
  constructor(vb: VarBuilder, [from, to]: readonly [number, number], kernel: 1 | 3, bent: boolean) {
    super();
    this.conv = conv2d(from, to, kernel, vb.pp(0), { padding: (kernel - 1) / 2, useBias: false });
    this.norm = groupNorm(GROUPS, to, vb.pp(1));
    this.#bent = bent;
  }
  forward(x: Tensor): Tensor {
    const y = this.norm.forward(this.conv.forward(x));
    return this.#bent ? y.relu() : y;
  }
}

export interface PixelConfig {
  readonly width: number;
  readonly masks: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  /** Of a picture's side, a place of the maps that are mixed and of the one that masks are read from. */
  readonly strides: readonly number[];
  readonly common: number;
}
/** Maps (b, width, h, w) of three sizes, the smallest first, and the largest one's vectors for masks. */
export class PixelMixer extends Module {
  readonly narrow: readonly GroupedMap[];
  readonly levels: Tensor;
  readonly layers: readonly PlacesLayer[];
  readonly sides: readonly BareMap[];
  readonly out: readonly BareMap[];
  readonly masks: Conv2d;
  readonly #width: number;
  constructor(vb: VarBuilder, c: PixelConfig, channels: readonly number[]) {
    super();
    const { width, heads } = c;
    this.#width = width;
    const deep = channels.slice(-LEVELS).reverse();
    this.narrow = deep.map((from, i) => new GroupedMap(vb.pp('input_projections', i), from, width, 1));
    this.levels = vb.get([LEVELS, width], 'level_embed');
    const layer = { width, heads, inner: c.inner, eps: 1e-5, activation: 'relu' };
    const looks = { width, heads, levels: LEVELS, points: 4, reach: 0.5 };
    this.layers = Array.from({ length: c.layers }, (_, i) => new PlacesLayer(vb.pp('encoder.layers', i), layer, looks));
    const more = Math.trunc(Math.log2(Math.min(...c.strides.slice(-LEVELS))) - Math.log2(c.common));
    const larger = Array.from({ length: Math.max(0, more) }, (_, i) => i);
    this.sides = larger.map((i) => new BareMap(vb.pp(`adapter_${i + 1}`), [channels[i], width], 1, false));
    this.out = larger.map((i) => new BareMap(vb.pp(`layer_${i + 1}`), [width, width], 3, true));
    this.masks = conv2d(width, c.masks, 1, vb.pp('mask_projection'));
  }
  forward(maps: readonly Tensor[]): { readonly levels: Tensor[]; readonly pixels: Tensor } {
    const width = this.#width;
    const narrow = maps
      .slice(-LEVELS)
      .reverse()
      .map((map, i) => this.narrow[i].forward(map));
    const sizes = narrow.map(({ shape }) => [shape[2], shape[3]] as const);
    const flat = narrow.map((map) => map.reshape([map.shape[0], width, -1]).transpose(1, 2));
    const at = sizes.map(([h, w], i) => sinePlaces(h, w, width, flat[0]).add(this.levels.narrow(0, i, 1).unsqueeze(0)));
    const told = at[0].cat(at.slice(1), 1);
    const around = middles(sizes, flat[0]);
    const whole: Maps = { sizes, places: flat[0].cat(flat.slice(1), 1).contiguous() };
    const mixed = this.layers.reduce((m, layer) => ({ sizes, places: layer.forward(m, told, around) }), whole).places;
    let from = 0;
    const levels = sizes.map(([h, w]) => {
      const places = mixed.narrow(1, from, h * w).transpose(1, 2);
      from += h * w;
      return places.reshape([mixed.shape[0], width, h, w]);
    });
    let last = levels[LEVELS - 1];
    for (let i = this.sides.length - 1; i >= 0; i--) {
      const side = this.sides[i].forward(maps[i]);
      const size = [side.shape[2], side.shape[3]];
      last = this.out[i].forward(side.add(last.interpolate({ size, mode: 'bilinear' })));
    }
    return { levels, pixels: this.masks.forward(last) };
  }
}

interface AskingConfig {
  readonly width: number;
  readonly heads: number;
  readonly inner: number;
  readonly activation: string;
}
/** Queries, keys and values in one stored product. */
export function joinedHead(vb: VarBuilder, width: number, heads: number): MultiHead {
  const joined = new Linear(vb.get([3 * width, width], 'in_proj_weight'), vb.get([3 * width], 'in_proj_bias'));
  const [q, k, v] = chunks(joined, 3);
  return new MultiHead({ q, k, v, out: linear(width, width, vb.pp('out_proj')) }, heads);
}
/** Questions look at a map, then at each other. */
class MaskedLayer extends Module {
  readonly asked: MultiHead;
  readonly askedNorm: LayerNorm;
  readonly own: MultiHead;
  readonly ownNorm: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, c: AskingConfig) {
    super();
    const { width, heads } = c;
    this.asked = joinedHead(vb.pp('cross_attn'), width, heads);
    this.askedNorm = layerNorm(width, vb.pp('cross_attn_layer_norm'));
    this.own = multiHead(vb.pp('self_attn'), DETR_NAMES, width, heads);
    this.ownNorm = layerNorm(width, vb.pp('self_attn_layer_norm'));
    this.mlp = feedForward(vb, ['fc1', 'fc2'], width, c.inner, c.activation);
    this.norm = layerNorm(width, vb.pp('final_layer_norm'));
  }
  forward(x: Tensor, at: Tensor, seen: { values: Tensor; context: Tensor }, mask: Tensor): Tensor {
    const y = this.askedNorm.forward(x.add(this.asked.forward(x.add(at), { ...seen, mask })));
    const z = this.ownNorm.forward(y.add(this.own.forward(y.add(at), { values: y })));
    return this.norm.forward(z.add(this.mlp.forward(z)));
  }
}
/** Products with a bend between each two, each inside a list of its own. */
export class MaskHead extends Layer {
  readonly layers: readonly Linear[];
  constructor(vb: VarBuilder, widths: readonly number[]) {
    super();
    this.layers = widths.slice(1).map((to, i) => linear(widths[i], to, vb.pp(i, 0)));
  }
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, layer, i) => layer.forward(i > 0 ? h.relu() : h), x);
  }
}
/** What questions show in a picture, from (b, q, width) and (b, width, h, w): (b, q, h, w). */
export function shown(questions: Tensor, pixels: Tensor): Tensor {
  const [b, width, h, w] = pixels.shape;
  return questions.matmul(pixels.reshape([b, width, h * w])).reshape([b, questions.shape[1], h, w]);
}

interface Mask2FormerConfig extends AskingConfig {
  readonly pixels: PixelConfig;
  readonly layers: number;
  readonly questions: number;
}
class Mask2Former extends MaskingModel {
  readonly body: MapMaker;
  readonly mixer: PixelMixer;
  readonly at: Embedding;
  readonly questions: Embedding;
  readonly levels: Embedding;
  readonly layers: readonly MaskedLayer[];
  readonly norm: LayerNorm;
  readonly masks: MaskHead;
  readonly classes: Linear;
  readonly labels: readonly string[];
  readonly scaled = 384;
  constructor(vb: VarBuilder, c: Mask2FormerConfig, body: MapMaker, labels: readonly string[]) {
    super();
    const { width } = c;
    const at = vb.pp('model');
    const t = at.pp('transformer_module');
    this.body = body;
    this.labels = labels;
    this.mixer = new PixelMixer(at.pp('pixel_level_module.decoder'), c.pixels, body.channels);
    this.at = rowTable(c.questions, width, t.pp('queries_embedder'));
    this.questions = rowTable(c.questions, width, t.pp('queries_features'));
    this.levels = rowTable(LEVELS, width, t.pp('level_embed'));
    this.layers = Array.from({ length: c.layers }, (_, i) => new MaskedLayer(t.pp('decoder.layers', i), c));
    this.norm = layerNorm(width, t.pp('decoder.layernorm'));
    this.masks = new MaskHead(t.pp('decoder.mask_predictor.mask_embedder'), [width, width, width, c.pixels.masks]);
    this.classes = linear(width, labels.length + 1, vb.pp('class_predictor'));
  }
  masked(pixels: Tensor): Masks {
    const { levels, pixels: places } = this.mixer.forward(this.body.maps(pixels));
    const seen = levels.map((map, i) => {
      const [b, width, h, w] = map.shape;
      const flat = map.reshape([b, width, h * w]).transpose(1, 2);
      const values = flat.add(this.levels.weight.narrow(0, i, 1).unsqueeze(0));
      return { size: [h, w], values, context: values.add(sinePlaces(h, w, width, map)) };
    });
    const [b] = places.shape;
    const rows = (table: Embedding): Tensor =>
      table.weight
        .unsqueeze(0)
        .broadcastTo([b, ...table.weight.shape])
        .contiguous();
    const at = rows(this.at);
    let x = rows(this.questions);
    let said = this.norm.forward(x);
    let masks = shown(this.masks.forward(said), places);
    this.layers.forEach((layer, i) => {
      const { size, values, context } = seen[i % LEVELS];
      x = layer.forward(x, at, { values, context }, lookedAt(masks, size));
      said = this.norm.forward(x);
      masks = shown(this.masks.forward(said), places);
    });
    return { classes: this.classes.forward(said), masks };
  }
}
/** Where questions look: where their masks show something in a map of this size; everywhere where they show nothing. */
function lookedAt(masks: Tensor, size: readonly number[]): Tensor {
  const [b, q] = masks.shape;
  const small = masks
    .detach()
    .interpolate({ size: [...size], mode: 'bilinear' })
    .reshape([b, q, -1]);
  const open = small.ge(0).cast('u8');
  const none = open.cast('f32').sum(-1, true).eq(0).cast('u8');
  return open.maximum(none).unsqueeze(1).contiguous();
}

/** Fields that mean something to losses while training. */
const TRAINING = `class_weight mask_weight dice_weight no_object_weight train_num_points oversample_ratio ignore_value
  importance_sample_ratio init_std init_xavier_std use_auxiliary_loss output_auxiliary_logits num_hidden_layers
  hidden_size`.split(/\s+/);
function mask2Former(c: Config, source: ModelSource): Mask2Former {
  c.ignore(...TRAINING);
  c.only('pre_norm', false);
  c.only('enforce_input_projection', false);
  // Its number alone, from which nothing is made.
  source.ignore(/^criterion\.|\.num_batches_tracked$/);
  const width = c.count('hidden_dim', 256, GROUPS);
  // Products of another width are made anew whenever transformers loads such a model.
  c.only('feature_size', width);
  if (width % GROUPS !== 0)
    throw new FormatError(`${c.where}: hidden_dim is ${width}, which does not divide into ${GROUPS} groups of norms`);
  const body = mapMakerAt(c, source, 'model.pixel_level_module.encoder');
  const strides = c.has('feature_strides') ? c.numbers('feature_strides') : [4, 8, 16, 32];
  if (body.channels.length < LEVELS || strides.length !== body.channels.length)
    throw new FormatError(
      `${c.where}: the backbone lets out ${body.channels.length} maps, and feature_strides has ${strides.length} ` +
        `entries; they are as many, and ${LEVELS} at least`,
    );
  const heads = c.count('num_attention_heads', 8, 1);
  const pixels: PixelConfig = {
    ...{ width, heads, strides, common: c.count('common_stride', 4, 1) },
    masks: c.count('mask_feature_size', 256, 1),
    layers: c.count('encoder_layers', 6),
    inner: c.count('encoder_feedforward_dim', 1024),
  };
  const config: Mask2FormerConfig = {
    ...{ width, heads, pixels },
    inner: c.count('dim_feedforward', 2048),
    activation: c.activation('activation_function', 'relu'),
    // The first of them is what is said before any layer.
    layers: c.count('decoder_layers', 10, 1) - 1,
    questions: c.count('num_queries', 100, 1),
  };
  const [count] = source.shapeOf('class_predictor.weight');
  if (count < 2) throw new ArgumentError(`${c.where}: class_predictor knows no class`);
  return new Mask2Former(source.builder, config, body, labelsOf(c, count - 1));
}
export const MASK2FORMER_FAMILIES: readonly ModelRow[] = [
  { kind: 'segmentation', types: ['mask2former'], build: mask2Former },
];
