// Conditional DETR: questions ask with what they look for and with where they look, side by side.
import { ArgumentError } from '../../base/errors.js';
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
import { type FeedForward, feedForward, rowTable } from '../parts.js';
import type { ResNet } from '../vision/resnet.js';
import { labelsOf } from '../vision/vision-model.js';
import { backboneAt } from './backbone.js';
import { DETR_TRAINING, DetrLayer, LearntPlaces, type SideConfig, sinePlaces } from './detr.js';
import { LayeredHead } from './layered-head.js';
import { DetectionModel, type Detections } from './scene-model.js';
import { unsigmoid } from './things-layer.js';

/** (b, t, heads * d) to (b, heads, t, d). */
function split(x: Tensor, heads: number): Tensor {
  const [b, t, width] = x.shape;
  return x.reshape([b, t, heads, width / heads]).transpose(1, 2);
}
const joined = (x: Tensor): Tensor => x.transpose(1, 2).reshape([x.shape[0], x.shape[2], -1]);

/** What is there to be seen, and where. */
interface Scene {
  readonly seen: Tensor;
  readonly places: Tensor;
}
/** Products of what is there, of where it is, and of what attention finds. */
class Products extends Module {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  /** Of where those are that ask, and those that are asked. */
  readonly qAt: Linear;
  readonly kAt: Linear;
  readonly out: Linear;
  constructor(vb: VarBuilder, width: number, of: 'sa' | 'ca') {
    super();
    const part = (name: string): Linear => linear(width, width, vb.pp(name));
    this.q = part(`${of}_qcontent_proj`);
    this.k = part(`${of}_kcontent_proj`);
    this.v = part(`${of}_v_proj`);
    this.qAt = part(of === 'sa' ? 'sa_qpos_proj' : 'ca_qpos_sine_proj');
    this.kAt = part(`${of}_kpos_proj`);
    this.out = part(of === 'sa' ? 'self_attn.out_proj' : 'encoder_attn.out_proj');
  }
}
class AskingLayer extends Module {
  readonly own: Products;
  readonly ownNorm: LayerNorm;
  readonly asked: Products;
  /** Of the first layer alone: what questions are adds to what they look for. */
  readonly first: Linear | undefined;
  readonly askedNorm: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  readonly #heads: number;
  constructor(vb: VarBuilder, c: SideConfig, first: boolean) {
    super();
    this.#heads = c.heads;
    this.own = new Products(vb, c.width, 'sa');
    this.ownNorm = layerNorm(c.width, vb.pp('self_attn_layer_norm'));
    this.asked = new Products(vb, c.width, 'ca');
    this.first = first ? linear(c.width, c.width, vb.pp('ca_qpos_proj')) : undefined;
    this.askedNorm = layerNorm(c.width, vb.pp('encoder_attn_layer_norm'));
    this.mlp = feedForward(vb, ['fc1', 'fc2'], c.width, c.inner, c.activation);
    this.norm = layerNorm(c.width, vb.pp('final_layer_norm'));
  }
  #look(x: Tensor, at: Tensor): Tensor {
    const { q, k, qAt, kAt, v, out } = this.own;
    const queries = split(q.forward(x).add(qAt.forward(at)), this.#heads);
    const keys = split(k.forward(x).add(kAt.forward(at)), this.#heads);
    return out.forward(joined(queries.sdpa(keys, split(v.forward(x), this.#heads))));
  }
  #ask(x: Tensor, at: Tensor, where: Tensor, { seen, places }: Scene): Tensor {
    const { q, k, qAt, kAt, v, out } = this.asked;
    const heads = this.#heads;
    const far = kAt.forward(places).broadcastTo(seen.shape);
    const [query, key] = this.first
      ? [q.forward(x).add(this.first.forward(at)), k.forward(seen).add(far)]
      : [q.forward(x), k.forward(seen)];
    const [queries, keys] = [
      [query, qAt.forward(where)],
      [key, far],
    ].map(([a, b]) => split(a, heads).cat([split(b.contiguous(), heads)], 3));
    const values = split(v.forward(seen), heads);
    // Keys are twice as wide as values; what is added to values' width is zeros.
    const wide = values.cat([values.zerosLike()], 3);
    const y = queries.contiguous().sdpa(keys.contiguous(), wide.contiguous());
    return out.forward(joined(y.narrow(3, 0, values.shape[3])));
  }
  forward(x: Tensor, at: Tensor, where: Tensor, scene: Scene): Tensor {
    const y = this.ownNorm.forward(x.add(this.#look(x, at)));
    const z = this.askedNorm.forward(y.add(this.#ask(y, at, where, scene)));
    return this.norm.forward(z.add(this.mlp.forward(z)));
  }
}
/** Sines and cosines of places (b, q, 2) from 0 to 1, across and down: those down before those across. */
function sinesOf(places: Tensor, width: number): Tensor {
  const half = width / 2;
  const of = (f: (i: number) => number): Tensor =>
    tensor(
      Float32Array.from({ length: half }, (_, i) => f(i)),
      { device: places.device },
    );
  const speeds = of((i) => (2 * Math.PI) / 10000 ** ((2 * Math.floor(i / 2)) / half));
  const angles = places.cast('f32').unsqueeze(3).mul(speeds);
  const waves = angles.add(of((i) => (i % 2 === 0 ? 0 : Math.PI / 2))).sin();
  const [across, down] = [0, 1].map((i) => waves.narrow(2, i, 1).squeeze(2));
  return down.cat([across], 2).cast(places.dtype);
}

class ConditionalDetr extends DetectionModel {
  readonly body: ResNet;
  readonly narrow: Conv2d;
  readonly places: LearntPlaces | undefined;
  readonly questions: Embedding;
  readonly encoder: readonly DetrLayer[];
  readonly decoder: readonly AskingLayer[];
  readonly decoderNorm: LayerNorm;
  readonly scale: LayeredHead;
  readonly where: LayeredHead;
  readonly classes: Linear;
  readonly boxes: LayeredHead;
  readonly labels: readonly string[];
  readonly scores = 'alone';
  override readonly most = 100;
  constructor(
    source: ModelSource,
    body: ResNet,
    sides: Record<'encoder' | 'decoder', SideConfig>,
    o: { readonly questions: number; readonly learnt: boolean; readonly labels: readonly string[] },
  ) {
    super();
    const { width } = sides.encoder;
    const vb = source.builder;
    const at = vb.pp('model');
    this.body = body;
    this.labels = o.labels;
    this.narrow = conv2d(body.channels.at(-1) as number, width, 1, at.pp('input_projection'));
    const learnt = ['model.position_embedding', 'model.backbone.position_embedding'];
    const placed = learnt.find((n) => source.has(`${n}.row_embeddings.weight`)) ?? learnt[0];
    this.places = o.learnt ? new LearntPlaces(vb.pp(placed), width) : undefined;
    this.questions = rowTable(o.questions, width, at.pp('query_position_embeddings'));
    this.encoder = Array.from(
      { length: sides.encoder.layers },
      (_, i) => new DetrLayer(at.pp('encoder.layers', i), sides.encoder, false),
    );
    const d = at.pp('decoder');
    this.decoder = Array.from(
      { length: sides.decoder.layers },
      (_, i) => new AskingLayer(d.pp('layers', i), sides.decoder, i === 0),
    );
    this.decoderNorm = layerNorm(width, d.pp('layernorm'));
    this.scale = new LayeredHead(d.pp('query_scale'), [width, width, width]);
    this.where = new LayeredHead(d.pp('ref_point_head'), [width, width, 2]);
    this.classes = linear(width, o.labels.length, vb.pp('class_labels_classifier'));
    this.boxes = new LayeredHead(vb.pp('bbox_predictor'), [width, width, width, 4]);
  }
  forward(pixels: Tensor): Detections {
    const map = this.narrow.forward(this.body.hidden(pixels));
    const [b, width, h, w] = map.shape;
    if (h * w === 0) throw new ArgumentError(`detection: pixels are ${pixels.shape.slice(2).join(' x ')}, too few`);
    const places = this.places ? this.places.forward(h, w) : sinePlaces(h, w, width, map);
    const flat = map
      .reshape([b, width, h * w])
      .transpose(1, 2)
      .contiguous();
    const scene = { places, seen: this.encoder.reduce((x, layer) => layer.forward(x, places), flat) };
    const [count] = this.questions.weight.shape;
    const at = this.questions.weight.unsqueeze(0).broadcastTo([b, count, width]).contiguous();
    const middle = this.where.forward(at).sigmoid();
    const sines = sinesOf(middle, width);
    let x = at.zerosLike();
    this.decoder.forEach((layer, i) => {
      x = layer.forward(x, at, i === 0 ? sines : sines.mul(this.scale.forward(x)), scene);
    });
    x = this.decoderNorm.forward(x);
    const moved = unsigmoid(middle);
    const boxes = this.boxes.forward(x).add(moved.cat([moved.zerosLike()], 2));
    return { logits: this.classes.forward(x), boxes: boxes.sigmoid() };
  }
}

function conditionalDetr(c: Config, source: ModelSource): ConditionalDetr {
  // With it transformers norms what goes from layer to layer once more.
  c.only('auxiliary_loss', false);
  c.ignore(...DETR_TRAINING, 'focal_alpha', 'cls_loss_coefficient', 'num_hidden_layers');
  c.only('position_embedding_type', 'sine', 'learned');
  const width = c.count('d_model', 256, 4);
  c.only('hidden_size', width);
  const activation = c.activation('activation_function', 'relu');
  const side = (name: 'encoder' | 'decoder'): SideConfig => ({
    ...{ width, before: false, activation },
    layers: c.count(`${name}_layers`, 6, name === 'decoder' ? 1 : 0),
    heads: c.count(`${name}_attention_heads`, 8, 1),
    inner: c.count(`${name}_ffn_dim`, 2048),
  });
  const body = backboneAt(c, source, 'model.backbone.conv_encoder.model');
  const [count] = source.shapeOf('class_labels_classifier.weight');
  return new ConditionalDetr(
    source,
    body,
    { encoder: side('encoder'), decoder: side('decoder') },
    {
      questions: c.count('num_queries', 300, 1),
      learnt: c.text('position_embedding_type', 'sine') === 'learned',
      labels: labelsOf(c, count),
    },
  );
}
export const CONDITIONAL_DETR_FAMILIES: readonly ModelRow[] = [
  { kind: 'object-detection', types: ['conditional_detr'], build: conditionalDetr },
];
