// Deformable DETR: maps of several sizes whose places look at few places around themselves, and things that do so
// around where they are thought to be; boxes that layers better, and first guesses from the maps, where a config asks.
import { ArgumentError, FormatError } from '../../base/errors.js';
import {
  type Conv2d,
  conv2d,
  type Embedding,
  type LayerNorm,
  layerNorm,
  type Linear,
  linear,
} from '../../nn/layers.js';
import { Layer, Module } from '../../nn/module.js';
import { type GroupNorm, groupNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, rowTable } from '../parts.js';
import { checkPixels, labelsOf } from '../vision/vision-model.js';
import { type Backbone, backboneMaps } from './backbone.js';
import { DeformableAttention, type DeformableConfig, type Maps } from './deformable.js';
import { DETR_TRAINING, LearntPlaces, sinePlaces } from './detr.js';
import { LayeredHead } from './layered-head.js';
import type { LayerConfig } from './map-mixer.js';
import { DetectionModel, type Detections } from './scene-model.js';
import { firstBoxes, ThingsLayer, unsigmoid } from './things-layer.js';

/** Places look at few places around themselves. */
export class PlacesLayer extends Module {
  readonly own: DeformableAttention;
  readonly ownNorm: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, c: LayerConfig, looks: DeformableConfig) {
    super();
    this.own = new DeformableAttention(vb.pp('self_attn'), looks);
    this.ownNorm = layerNorm(c.width, vb.pp('self_attn_layer_norm'), { eps: c.eps });
    this.mlp = feedForward(vb, ['fc1', 'fc2'], c.width, c.inner, c.activation);
    this.norm = layerNorm(c.width, vb.pp('final_layer_norm'), { eps: c.eps });
  }
  /** `at` tells places apart, `where` is each one's share of the picture across and down. */
  forward(maps: Maps, at: Tensor, where: Tensor): Tensor {
    const x = maps.places;
    const y = this.ownNorm.forward(x.add(this.own.forward(x.add(at), where, maps)));
    return this.norm.forward(y.add(this.mlp.forward(y)));
  }
}
/** The middle of every place of the maps, (1, places, 2), as shares of the picture. */
export function middles(sizes: Maps['sizes'], like: Tensor): Tensor {
  const rows = sizes.flatMap(([h, w]) =>
    Array.from({ length: h * w }, (_, i) => [((i % w) + 0.5) / w, (Math.floor(i / w) + 0.5) / h]).flat(),
  );
  const data = Float32Array.from(rows);
  return tensor(data, { shape: [1, rows.length / 2, 2], device: like.device }).cast(like.dtype);
}
/** A convolution and a norm of 32 groups. */
export class GroupedMap extends Layer {
  readonly conv: Conv2d;
  readonly norm: GroupNorm;
  constructor(vb: VarBuilder, from: number, to: number, kernel: 1 | 3) {
    super();
    const how = kernel === 3 ? { stride: 2, padding: 1 } : {};
    this.conv = conv2d(from, to, kernel, vb.pp(0), how);
    this.norm = groupNorm(32, to, vb.pp(1));
  }
  forward(x: Tensor): Tensor {
    return this.norm.forward(this.conv.forward(x));
  }
}
/** Sines and cosines of boxes (b, q, 4) from 0 to 1: of each number `width`, side by side. */
function sineBoxes(boxes: Tensor, width: number): Tensor {
  const speeds = Float32Array.from(
    { length: width },
    (_, i) => (2 * Math.PI) / 10000 ** ((2 * Math.floor(i / 2)) / width),
  );
  const turn = Float32Array.from({ length: width }, (_, i) => (i % 2 === 0 ? 0 : Math.PI / 2));
  const of = (data: Float32Array): Tensor => tensor(data, { device: boxes.device });
  const angles = boxes.cast('f32').unsqueeze(3).mul(of(speeds));
  const waves = angles.add(of(turn)).sin();
  return waves.reshape([boxes.shape[0], boxes.shape[1], 4 * width]).cast(boxes.dtype);
}

/** First guesses: what a place knows of a thing, and how its box becomes a question and what is asked with. */
class Guesses extends Module {
  readonly output: Linear;
  readonly outputNorm: LayerNorm;
  readonly asks: Linear;
  readonly asksNorm: LayerNorm;
  constructor(vb: VarBuilder, width: number) {
    super();
    this.output = linear(width, width, vb.pp('enc_output'));
    this.outputNorm = layerNorm(width, vb.pp('enc_output_norm'));
    this.asks = linear(2 * width, 2 * width, vb.pp('pos_trans'));
    this.asksNorm = layerNorm(2 * width, vb.pp('pos_trans_norm'));
  }
}

interface DeformableDetrConfig {
  readonly width: number;
  readonly levels: number;
  readonly sides: Record<
    'encoder' | 'decoder',
    LayerConfig & { readonly layers: number; readonly looks: DeformableConfig }
  >;
  readonly things: number;
  /** Layers better boxes; things begin with what places of the maps guess. */
  readonly betters: boolean;
  readonly guesses: boolean;
  readonly learnt: boolean;
}
class DeformableDetr extends DetectionModel {
  readonly body: Backbone['body'];
  readonly narrow: readonly GroupedMap[];
  readonly levels: Tensor;
  readonly places: LearntPlaces | undefined;
  readonly encoder: readonly PlacesLayer[];
  readonly layers: readonly ThingsLayer[];
  readonly questions: Embedding | undefined;
  readonly where: Linear | undefined;
  readonly guesses: Guesses | undefined;
  readonly classes: readonly Linear[];
  readonly boxes: readonly LayeredHead[];
  readonly labels: readonly string[];
  readonly scores = 'alone';
  override readonly most = 100;
  readonly #c: DeformableDetrConfig;
  readonly #taken: readonly number[];
  constructor(source: ModelSource, c: DeformableDetrConfig, { body, taken }: Backbone, labels: readonly string[]) {
    super();
    const { width, levels } = c;
    const at = source.builder.pp('model');
    this.#c = c;
    this.#taken = taken;
    this.body = body;
    this.labels = labels;
    const from = taken.map((i) => body.channels[i]);
    this.narrow = Array.from({ length: levels }, (_, i) => {
      const vb = at.pp('input_proj', i);
      if (i < from.length) return new GroupedMap(vb, from[i], width, 1);
      return new GroupedMap(vb, i === from.length ? (from.at(-1) as number) : width, width, 3);
    });
    this.levels = at.get([levels, width], 'level_embed');
    const learnt = ['model.position_embedding', 'model.backbone.position_embedding'];
    const placed = learnt.find((n) => source.has(`${n}.row_embeddings.weight`)) ?? learnt[0];
    this.places = c.learnt ? new LearntPlaces(source.builder.pp(placed), width) : undefined;
    const { encoder, decoder } = c.sides;
    this.encoder = Array.from(
      { length: encoder.layers },
      (_, i) => new PlacesLayer(at.pp('encoder.layers', i), encoder, encoder.looks),
    );
    this.layers = Array.from(
      { length: decoder.layers },
      (_, i) => new ThingsLayer(at.pp('decoder.layers', i), decoder, decoder.looks),
    );
    this.questions = c.guesses ? undefined : rowTable(c.things, 2 * width, at.pp('query_position_embeddings'));
    this.where = c.guesses ? undefined : linear(width, 2, at.pp('reference_points'));
    this.guesses = c.guesses ? new Guesses(at, width) : undefined;
    const heads = headsOf(source, c, labels.length);
    this.classes = heads.classes;
    this.boxes = heads.boxes;
  }
  #maps(pixels: Tensor): readonly [maps: Maps, at: Tensor] {
    const all = this.body.maps(pixels);
    const taken = this.#taken.map((i) => all[i]);
    const maps: Tensor[] = [];
    this.narrow.forEach((conv, i) => {
      const from = taken[i] ?? (i === taken.length ? taken[i - 1] : maps[i - 1]);
      maps.push(conv.forward(from));
    });
    const { width } = this.#c;
    const flat = maps.map((map) => map.reshape([map.shape[0], width, -1]).transpose(1, 2));
    const sizes = maps.map(({ shape }) => [shape[2], shape[3]] as const);
    const at = sizes.map(([h, w], level) => {
      const places = this.places?.forward(h, w) ?? sinePlaces(h, w, width, flat[0], 0.5);
      return places.add(this.levels.narrow(0, level, 1).unsqueeze(0));
    });
    return [{ places: flat[0].cat(flat.slice(1), 1).contiguous(), sizes }, at[0].cat(at.slice(1), 1)];
  }
  /** What things are at first, how they ask, and where they are. */
  #begin(maps: Maps): readonly [x: Tensor, at: Tensor, where: Tensor] {
    const { width, things } = this.#c;
    const [b, count] = maps.places.shape;
    const halves = (both: Tensor): readonly [x: Tensor, at: Tensor] => [
      both.narrow(2, width, width).contiguous(),
      both.narrow(2, 0, width).contiguous(),
    ];
    const { guesses, questions, where } = this;
    if (!guesses) {
      const [x, at] = halves((questions as Embedding).weight.unsqueeze(0).broadcastTo([b, things, 2 * width]));
      return [x, at, (where as Linear).forward(at).sigmoid()];
    }
    if (count < things)
      throw new ArgumentError(`detection: ${count} places are fewer than the ${things} things of the model`);
    const [boxes, inside] = firstBoxes(maps.sizes, maps.places);
    const known = guesses.outputNorm.forward(guesses.output.forward(maps.places.mul(inside)));
    const likely = (this.classes.at(-1) as Linear).forward(known).narrow(2, 0, 1).squeeze(2);
    const [, chosen] = likely.contiguous().topk(things, 1);
    const guessed = (this.boxes.at(-1) as LayeredHead).forward(known).add(boxes);
    const first = guessed
      .gather(1, chosen.unsqueeze(2).broadcastTo([b, things, 4]).contiguous())
      .sigmoid()
      .detach();
    const asked = guesses.asksNorm.forward(guesses.asks.forward(sineBoxes(first, width / 2)));
    return [...halves(asked), first];
  }
  forward(pixels: Tensor): Detections {
    checkPixels(pixels, this.body.first.conv.weight.shape[1]);
    const [flat, places] = this.#maps(pixels);
    const { sizes } = flat;
    const around = middles(sizes, flat.places);
    const maps = this.encoder.reduce((m, layer) => ({ sizes, places: layer.forward(m, places, around) }), flat);
    const [begun, at, first] = this.#begin(maps);
    let [x, where] = [begun, first];
    const better = (i: number): Tensor => {
      const moved = unsigmoid(where);
      const whole = moved.shape[2] === 4 ? moved : moved.cat([moved.zerosLike()], 2);
      return this.boxes[i].forward(x).add(whole).sigmoid();
    };
    let boxes = first;
    this.layers.forEach((layer, i) => {
      x = layer.forward(x, at, where, maps);
      const last = i === this.layers.length - 1;
      if (this.#c.betters || last) boxes = better(i);
      if (this.#c.betters) where = boxes.detach();
    });
    return { logits: this.classes[this.layers.length - 1].forward(x), boxes };
  }
}
/** A head a layer, and one for guesses; files may hold the first alone, which all of them are then. */
function headsOf(
  source: ModelSource,
  c: DeformableDetrConfig,
  classes: number,
): { readonly classes: readonly Linear[]; readonly boxes: readonly LayeredHead[] } {
  const { width } = c;
  const count = c.sides.decoder.layers + (c.guesses ? 1 : 0);
  const placed = (kind: string, i: number, inner: string): string | undefined =>
    [`${kind}.${i}`, `model.decoder.${kind}.${i}`].find((n) => source.has(`${n}.${inner}weight`));
  const each = <T>(kind: string, inner: string, make: (name: string) => T): T[] => {
    const made = new Map<string, T>();
    return Array.from({ length: count }, (_, i) => {
      const name = placed(kind, i, inner) ?? placed(kind, 0, inner) ?? `${kind}.${i}`;
      const head = made.get(name) ?? make(name);
      made.set(name, head);
      return head;
    });
  };
  // The same heads under two names.
  source.ignore(/^(model\.decoder\.)?(class|bbox)_embed\./);
  return {
    classes: each('class_embed', '', (name) => linear(width, classes, source.builder.pp(name))),
    boxes: each(
      'bbox_embed',
      'layers.0.',
      (name) => new LayeredHead(source.builder.pp(name), [width, width, width, 4]),
    ),
  };
}

function deformableDetr(c: Config, source: ModelSource): DeformableDetr {
  c.ignore(...DETR_TRAINING, 'focal_alpha', 'disable_custom_kernels', 'return_intermediate', 'tie_word_embeddings');
  c.only('position_embedding_type', 'sine', 'learned');
  source.ignore(/\.num_batches_tracked$/);
  const width = c.count('d_model', 256, 4);
  c.only('hidden_size', width);
  c.only('num_attention_heads', c.count('encoder_attention_heads', 8, 1));
  if (width % 32 !== 0)
    throw new FormatError(`${c.where}: d_model is ${width}, which does not divide into the 32 groups of its norms`);
  const levels = c.count('num_feature_levels', 4, 1);
  const backbone = backboneMaps(c, source, 'model.backbone.conv_encoder.model', levels > 1 ? [2, 3, 4] : [4]);
  if (backbone.taken.length > levels)
    throw new FormatError(
      `${c.where}: num_feature_levels is ${levels}, and the backbone lets out ${backbone.taken.length} maps`,
    );
  const activation = c.activation('activation_function', 'relu');
  const side = (name: 'encoder' | 'decoder'): DeformableDetrConfig['sides']['encoder'] => {
    const heads = c.count(`${name}_attention_heads`, 8, 1);
    return {
      ...{ width, heads, activation, eps: 1e-5 },
      layers: c.count(`${name}_layers`, 6, name === 'decoder' ? 1 : 0),
      inner: c.count(`${name}_ffn_dim`, 1024),
      looks: { width, heads, levels, points: c.count(`${name}_n_points`, 4, 1), reach: 0.5 },
    };
  };
  const [guesses, betters] = [c.flag('two_stage', false), c.flag('with_box_refine', false)];
  if (guesses && !betters)
    throw new FormatError(`${c.where}: two_stage is true and with_box_refine is not, which transformers refuses, too`);
  const asked = c.count('num_queries', 300, 1);
  const proposed = c.count('two_stage_num_proposals', 300, 1);
  const config: DeformableDetrConfig = {
    ...{ width, levels, betters, guesses, things: guesses ? proposed : asked },
    sides: { encoder: side('encoder'), decoder: side('decoder') },
    learnt: c.text('position_embedding_type', 'sine') === 'learned',
  };
  const stored = ['class_embed.0.weight', 'model.decoder.class_embed.0.weight'].find((n) => source.has(n));
  const [count] = source.shapeOf(stored ?? 'class_embed.0.weight');
  return new DeformableDetr(source, config, backbone, labelsOf(c, count));
}
export const DEFORMABLE_DETR_FAMILIES: readonly ModelRow[] = [
  { kind: 'object-detection', types: ['deformable_detr'], build: deformableDetr },
];
