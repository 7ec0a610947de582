// MaskFormer: a backbone's smallest map answers DETR's questions, its maps from the smallest to the largest are added
// up, and each question shows its class in what comes of them.
import { FormatError } from '../../base/errors.js';
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
import type { Tensor } from '../../tensor/tensor.js';
import { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { rowTable } from '../parts.js';
import { labelsOf } from '../vision/vision-model.js';
import { DETR_TRAINING, DetrLayer, type SideConfig, sinePlaces } from './detr.js';
import { type MapMaker, mapMakerAt } from './map-makers.js';
import { BareMap, MaskHead, shown } from './mask2former.js';
import { type Masks, MaskingModel } from './scene-model.js';

/** A larger map, and what is made of it and the next smaller one. */
class LargerMap extends Module {
  readonly side: BareMap;
  readonly out: BareMap;
  constructor(vb: VarBuilder, from: number, width: number) {
    super();
    this.side = new BareMap(vb.pp('proj'), [from, width], 1, false);
    this.out = new BareMap(vb.pp('block'), [width, width], 3, true);
  }
  forward(smaller: Tensor, map: Tensor): Tensor {
    const side = this.side.forward(map);
    const size = [side.shape[2], side.shape[3]];
    return this.out.forward(smaller.interpolate({ size, mode: 'nearest' }).add(side));
  }
}

interface MaskFormerConfig extends SideConfig {
  readonly pyramid: number;
  readonly masks: number;
  readonly questions: number;
}
class MaskFormer extends MaskingModel {
  readonly body: MapMaker;
  readonly smallest: BareMap;
  readonly larger: readonly LargerMap[];
  readonly pixels: Conv2d;
  readonly narrow: Conv2d | undefined;
  readonly questions: Embedding;
  readonly layers: readonly DetrLayer[];
  readonly norm: LayerNorm;
  readonly masks: MaskHead;
  readonly classes: Linear;
  readonly labels: readonly string[];
  readonly scaled = undefined;
  constructor(vb: VarBuilder, c: MaskFormerConfig, body: MapMaker, labels: readonly string[]) {
    super();
    const { width, pyramid } = c;
    const p = vb.pp('model.pixel_level_module.decoder');
    const t = vb.pp('model.transformer_module');
    const last = body.channels.at(-1) as number;
    this.body = body;
    this.labels = labels;
    this.smallest = new BareMap(p.pp('fpn.stem'), [last, pyramid], 3, true);
    const before = body.channels.slice(0, -1).reverse();
    this.larger = before.map((from, i) => new LargerMap(p.pp('fpn.layers', i), from, pyramid));
    this.pixels = conv2d(pyramid, c.masks, 3, p.pp('mask_projection'), { padding: 1 });
    this.narrow = last === width ? undefined : conv2d(last, width, 1, t.pp('input_projection'));
    this.questions = rowTable(c.questions, width, t.pp('queries_embedder'));
    this.layers = Array.from({ length: c.layers }, (_, i) => new DetrLayer(t.pp('decoder.layers', i), c, true));
    this.norm = layerNorm(width, t.pp('decoder.layernorm'));
    this.masks = new MaskHead(vb.pp('mask_embedder'), [width, width, width, c.masks]);
    this.classes = linear(width, labels.length + 1, vb.pp('class_predictor'));
  }
  masked(pixels: Tensor): Masks {
    const maps = this.body.maps(pixels);
    const last = maps.at(-1) as Tensor;
    const larger = maps.slice(0, -1).reverse();
    const whole = this.larger.reduce((x, layer, i) => layer.forward(x, larger[i]), this.smallest.forward(last));
    const map = this.narrow?.forward(last) ?? last;
    const [b, width, h, w] = map.shape;
    const values = map
      .reshape([b, width, h * w])
      .transpose(1, 2)
      .contiguous();
    const seen = { values, context: values.add(sinePlaces(h, w, width, map)) };
    const [count] = this.questions.weight.shape;
    const at = this.questions.weight.unsqueeze(0).broadcastTo([b, count, width]).contiguous();
    const x = this.norm.forward(this.layers.reduce((y, layer) => layer.forward(y, at, seen), at.zerosLike()));
    return { classes: this.classes.forward(x), masks: shown(this.masks.forward(x), this.pixels.forward(whole)) };
  }
}

/** Fields of the part that asks which mean something to a detector, or to losses while training. */
const UNREAD =
  `model_type backbone backbone_config backbone_kwargs use_timm_backbone num_channels dilation encoder_layers
  encoder_attention_heads encoder_ffn_dim position_embedding_type num_hidden_layers hidden_size num_attention_heads
  activation_dropout attention_dropout dropout classifier_dropout`.split(/\s+/);
function maskFormer(c: Config, source: ModelSource): MaskFormer {
  c.ignore('cross_entropy_weight', 'dice_weight', 'mask_weight', 'no_object_weight', 'init_std', 'init_xavier_std');
  c.ignore('output_auxiliary_logits', 'num_hidden_layers', 'num_attention_heads', 'hidden_size');
  // With it, answers would be read before the last norm.
  c.only('use_auxiliary_loss', false);
  source.ignore(/^criterion\.|\.num_batches_tracked$/);
  const d = c.inner('decoder_config') ?? new Config({}, c.where, 'decoder_config.');
  d.only('model_type', 'detr');
  d.only('auxiliary_loss', false);
  d.ignoreBooks();
  d.ignore(...UNREAD, ...DETR_TRAINING);
  const body = mapMakerAt(c, source, 'model.pixel_level_module.encoder');
  const pyramid = c.count('fpn_feature_size', 256, 1);
  if (pyramid % 32 !== 0)
    throw new FormatError(
      `${c.where}: fpn_feature_size is ${pyramid}, which does not divide into the 32 groups of norms`,
    );
  const config: MaskFormerConfig = {
    ...{ pyramid, masks: c.count('mask_feature_size', 256, 1), questions: d.count('num_queries', 100, 1) },
    width: d.count('d_model', 256, 4),
    layers: d.count('decoder_layers', 6),
    heads: d.count('decoder_attention_heads', 8, 1),
    inner: d.count('decoder_ffn_dim', 2048),
    activation: d.activation('activation_function', 'relu'),
    before: false,
  };
  const [count] = source.shapeOf('class_predictor.weight');
  return new MaskFormer(source.builder, config, body, labelsOf(c, count - 1));
}
export const MASKFORMER_FAMILIES: readonly ModelRow[] = [
  { kind: 'segmentation', types: ['maskformer'], build: maskFormer },
];
