// DETR and Table Transformer: a ResNet's last map is read by an encoder, and learnt questions ask it for things.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import {
  type Conv2d,
  conv2d,
  type Embedding,
  type LayerNorm,
  layerNorm,
  type Linear,
  linear,
} from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, type MultiHead, multiHead, rowTable } from '../parts.js';
import type { ResNet } from '../vision/resnet.js';
import { labelsOf } from '../vision/vision-model.js';
import { backboneAt } from './backbone.js';
import { LayeredHead } from './layered-head.js';
import { DETR_NAMES } from './map-mixer.js';
import { DetectionModel, type Detections } from './scene-model.js';

export interface SideConfig {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly activation: string;
  /** Norms before attention and feed-forward. */
  readonly before: boolean;
}

/** Places look at each other; of a layer that asks, questions then look at places. */
export class DetrLayer extends Module {
  readonly own: MultiHead;
  readonly ownNorm: LayerNorm;
  readonly asked: MultiHead | undefined;
  readonly askedNorm: LayerNorm | undefined;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  readonly #before: boolean;
  constructor(vb: VarBuilder, c: SideConfig, asks: boolean) {
    super();
    this.#before = c.before;
    const attention = (name: string): MultiHead => multiHead(vb.pp(name), DETR_NAMES, c.width, c.heads);
    this.own = attention('self_attn');
    this.ownNorm = layerNorm(c.width, vb.pp('self_attn_layer_norm'));
    this.asked = asks ? attention('encoder_attn') : undefined;
    this.askedNorm = asks ? layerNorm(c.width, vb.pp('encoder_attn_layer_norm')) : undefined;
    this.mlp = feedForward(vb, ['fc1', 'fc2'], c.width, c.inner, c.activation);
    this.norm = layerNorm(c.width, vb.pp('final_layer_norm'));
  }
  /** `at`: what tells x's places apart; `seen`: what is asked, and where. */
  forward(x: Tensor, at: Tensor, seen?: { readonly values: Tensor; readonly context: Tensor }): Tensor {
    const added = (h: Tensor, norm: LayerNorm, make: (y: Tensor) => Tensor): Tensor =>
      this.#before ? h.add(make(norm.forward(h))) : norm.forward(h.add(make(h)));
    let y = added(x, this.ownNorm, (h) => this.own.forward(h.add(at), { values: h }));
    const { asked, askedNorm } = this;
    if (asked && askedNorm && seen) y = added(y, askedNorm, (h) => asked.forward(h.add(at), seen));
    return added(y, this.norm, (h) => this.mlp.forward(h));
  }
}

/**
 * Sines and cosines of places in a picture of h * w, (1, h * w, width): those down before those across. A place is its
 * far edge, or so much before it; the last pair of numbers turns so many times more slowly than the first, almost.
 */
export function sinePlaces(h: number, w: number, width: number, like: Tensor, before = 0, slowest = 10000): Tensor {
  const half = width / 2;
  const data = new Float32Array(h * w * width);
  const turn = (at: number, of: number, i: number): number => {
    const angle = ((at + 1 - before) / (of + 1e-6)) * 2 * Math.PI;
    const x = angle / slowest ** ((2 * Math.floor(i / 2)) / half);
    return i % 2 === 0 ? Math.sin(x) : Math.cos(x);
  };
  for (let y = 0; y < h; y++)
    for (let x = 0; x < w; x++)
      for (let i = 0; i < half; i++) {
        const at = (y * w + x) * width + i;
        [data[at], data[at + half]] = [turn(y, h, i), turn(x, w, i)];
      }
  return tensor(data, { shape: [1, h * w, width], device: like.device }).cast(like.dtype);
}
/** Learnt rows and columns: those across before those down. */
export class LearntPlaces extends Module {
  readonly rows: Embedding;
  readonly columns: Embedding;
  constructor(vb: VarBuilder, width: number) {
    super();
    this.rows = rowTable(50, width / 2, vb.pp('row_embeddings'));
    this.columns = rowTable(50, width / 2, vb.pp('column_embeddings'));
  }
  forward(h: number, w: number): Tensor {
    const [rows, columns] = [this.rows.weight, this.columns.weight];
    if (h > rows.shape[0] || w > columns.shape[0])
      throw new ArgumentError(`detection: ${h} x ${w} places; the model learnt ${rows.shape[0]} rows and columns`);
    const half = rows.shape[1];
    const across = columns.narrow(0, 0, w).unsqueeze(0).broadcastTo([h, w, half]);
    const down = rows.narrow(0, 0, h).unsqueeze(1).broadcastTo([h, w, half]);
    return across.cat([down], 2).reshape([1, h * w, 2 * half]);
  }
}

class Detr extends DetectionModel {
  readonly body: ResNet;
  readonly narrow: Conv2d;
  readonly places: LearntPlaces | undefined;
  readonly questions: Embedding;
  readonly encoder: DetrLayer[];
  readonly encoderNorm: LayerNorm | undefined;
  readonly decoder: DetrLayer[];
  readonly decoderNorm: LayerNorm;
  readonly classes: Linear;
  readonly boxes: LayeredHead;
  readonly labels: readonly string[];
  readonly scores = 'shares';
  constructor(
    vb: VarBuilder,
    body: ResNet,
    sides: Record<'encoder' | 'decoder', SideConfig>,
    o: { readonly questions: number; readonly learnt: boolean; readonly labels: readonly string[] },
  ) {
    super();
    const { width, before } = sides.encoder;
    const at = vb.pp('model');
    this.body = body;
    this.labels = o.labels;
    this.narrow = conv2d(body.channels.at(-1) as number, width, 1, at.pp('input_projection'));
    const learnt = at.pp(before ? 'backbone.position_embedding' : 'position_embedding');
    this.places = o.learnt ? new LearntPlaces(learnt, width) : undefined;
    this.questions = rowTable(o.questions, width, at.pp('query_position_embeddings'));
    const layers = (side: 'encoder' | 'decoder'): DetrLayer[] =>
      Array.from(
        { length: sides[side].layers },
        (_, i) => new DetrLayer(at.pp(side, 'layers', i), sides[side], side === 'decoder'),
      );
    this.encoder = layers('encoder');
    this.encoderNorm = before ? layerNorm(width, at.pp('encoder.layernorm')) : undefined;
    this.decoder = layers('decoder');
    this.decoderNorm = layerNorm(width, at.pp('decoder.layernorm'));
    this.classes = linear(width, o.labels.length + 1, vb.pp('class_labels_classifier'));
    this.boxes = new LayeredHead(vb.pp('bbox_predictor'), [width, width, width, 4]);
  }
  forward(pixels: Tensor): Detections {
    const map = this.narrow.forward(this.body.hidden(pixels));
    const [b, width, h, w] = map.shape;
    const places = this.places ? this.places.forward(h, w) : sinePlaces(h, w, width, map);
    let x = map
      .reshape([b, width, h * w])
      .transpose(1, 2)
      .contiguous();
    for (const layer of this.encoder) x = layer.forward(x, places);
    if (this.encoderNorm) x = this.encoderNorm.forward(x);
    const at = this.questions.weight
      .unsqueeze(0)
      .broadcastTo([b, ...this.questions.weight.shape])
      .contiguous();
    const seen = { values: x, context: x.add(places) };
    let y = at.zerosLike();
    for (const layer of this.decoder) y = layer.forward(y, at, seen);
    y = this.decoderNorm.forward(y);
    return { logits: this.classes.forward(y), boxes: this.boxes.forward(y).sigmoid() };
  }
}

/** Fields that mean something to losses while training. */
export const DETR_TRAINING =
  `auxiliary_loss bbox_cost bbox_loss_coefficient class_cost dice_loss_coefficient eos_coefficient
  giou_cost giou_loss_coefficient mask_loss_coefficient init_std init_xavier_std encoder_layerdrop decoder_layerdrop
  is_encoder_decoder use_pretrained_backbone scale_embedding classifier_dropout max_position_embeddings`.split(/\s+/);
function detr(c: Config, source: ModelSource): Detr {
  c.ignore(...DETR_TRAINING);
  if (source.names.some((n) => n.startsWith('mask_head.')))
    throw new UnsupportedError(`${c.where}: the files hold a head for the shapes of things, which is not served`);
  c.only('position_embedding_type', 'sine', 'learned');
  const width = c.count('d_model', 256, 2);
  c.only('hidden_size', width);
  const before = c.text('model_type') === 'table-transformer';
  const activation = c.activation('activation_function', 'relu');
  const side = (name: 'encoder' | 'decoder'): SideConfig => ({
    ...{ width, before, activation },
    layers: c.count(`${name}_layers`, 6),
    heads: c.count(`${name}_attention_heads`, 8, 1),
    inner: c.count(`${name}_ffn_dim`, 2048),
  });
  c.ignore('num_hidden_layers');
  const body = backboneAt(c, source, 'model.backbone.conv_encoder.model');
  const [count] = source.shapeOf('class_labels_classifier.weight');
  return new Detr(
    source.builder,
    body,
    { encoder: side('encoder'), decoder: side('decoder') },
    {
      questions: c.count('num_queries', 100, 1),
      learnt: c.text('position_embedding_type', 'sine') === 'learned',
      labels: labelsOf(c, count - 1),
    },
  );
}
export const DETR_FAMILIES: readonly ModelRow[] = [
  { kind: 'object-detection', types: ['detr', 'table-transformer'], build: detr },
];
