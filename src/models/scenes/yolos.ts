// YOLOS: a vision transformer with tokens of their own for things, each of which answers with a class and a box.
import { type LayerNorm, layerNorm } from '../../nn/layers.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import type { PreNormBlock } from '../parts.js';
import { labelsOf } from '../vision/vision-model.js';
import { blocksOf, Patches, sideLengths, type TowerConfig, VIT_NAMES } from '../vision/vit.js';
import { LayeredHead } from './layered-head.js';
import { DetectionModel, type Detections } from './scene-model.js';

interface YolosConfig extends TowerConfig, Record<'image' | 'patch', readonly [number, number]> {
  readonly channels: number;
  readonly things: number;
  readonly qkvBias: boolean;
  /** Positions are added between the layers, too. */
  readonly between: boolean;
}
class Yolos extends DetectionModel {
  readonly patches: Patches;
  readonly first: Tensor;
  readonly things: Tensor;
  readonly positions: Tensor;
  readonly between: Tensor | undefined;
  readonly blocks: PreNormBlock[];
  readonly norm: LayerNorm;
  readonly classes: LayeredHead;
  readonly boxes: LayeredHead;
  readonly labels: readonly string[];
  readonly scores = 'shares';
  readonly #config: YolosConfig;
  constructor(vb: VarBuilder, c: YolosConfig, labels: readonly string[]) {
    super();
    this.#config = c;
    this.labels = labels;
    const e = vb.pp('vit.embeddings');
    const count = Math.floor(c.image[0] / c.patch[0]) * Math.floor(c.image[1] / c.patch[1]) + c.things + 1;
    this.patches = new Patches(e.pp('patch_embeddings.projection'), c.channels, c.width, c.image, c.patch, true);
    this.first = e.get([1, 1, c.width], 'cls_token');
    this.things = e.get([1, c.things, c.width], 'detection_tokens');
    this.positions = e.get([1, count, c.width], 'position_embeddings');
    this.between = c.between
      ? vb.get([c.layers - 1, 1, count, c.width], 'vit.encoder.mid_position_embeddings')
      : undefined;
    const biases = c.qkvBias ? (['q', 'k', 'v', 'out'] as const) : (['out'] as const);
    const attention = { ...VIT_NAMES.attention, biases };
    this.blocks = blocksOf(vb.pp('vit.encoder.layer'), c, { ...VIT_NAMES, attention });
    this.norm = layerNorm(c.width, vb.pp('vit.layernorm'), { eps: c.eps });
    this.classes = new LayeredHead(vb.pp('class_labels_classifier'), [c.width, c.width, c.width, labels.length + 1]);
    this.boxes = new LayeredHead(vb.pp('bbox_predictor'), [c.width, c.width, c.width, 4]);
  }
  /** Learnt positions (1, count, width) for a picture of h * w patches. */
  #stretched(positions: Tensor, h: number, w: number): Tensor {
    const { image, patch, things, width } = this.#config;
    const [rows, columns] = [0, 1].map((i) => Math.floor(image[i] / patch[i]));
    if (rows === h && columns === w) return positions;
    const grid = positions
      .narrow(1, 1, rows * columns)
      .reshape([1, rows, columns, width])
      .permute([0, 3, 1, 2])
      .contiguous();
    const sized = grid
      .interpolate({ size: [h, w], mode: 'bicubic' })
      .reshape([1, width, h * w])
      .transpose(1, 2);
    return positions.narrow(1, 0, 1).cat([sized, positions.narrow(1, 1 + rows * columns, things)], 1);
  }
  forward(pixels: Tensor): Detections {
    const { patch, things } = this.#config;
    const p = this.patches.ofAny(pixels);
    const [b, , width] = p.shape;
    const [h, w] = [0, 1].map((i) => Math.floor(pixels.shape[2 + i] / patch[i]));
    const all = this.first.broadcastTo([b, 1, width]).cat([p, this.things.broadcastTo([b, things, width])], 1);
    let x = all.add(this.#stretched(this.positions, h, w));
    this.blocks.forEach((block, i) => {
      x = block.forward(x);
      if (this.between && i < this.blocks.length - 1)
        x = x.add(this.#stretched(this.between.narrow(0, i, 1).squeeze(0), h, w));
    });
    const found = this.norm
      .forward(x)
      .narrow(1, x.shape[1] - things, things)
      .contiguous();
    return { logits: this.classes.forward(found), boxes: this.boxes.forward(found).sigmoid() };
  }
}

function yolos(c: Config, source: ModelSource): Yolos {
  c.ignore('auxiliary_loss', 'bbox_cost', 'bbox_loss_coefficient', 'class_cost', 'eos_coefficient', 'giou_cost');
  c.ignore('giou_loss_coefficient', 'pooler_act', 'pooler_output_size');
  source.ignore(/^vit\.pooler\./);
  const config: YolosConfig = {
    width: c.count('hidden_size'),
    layers: c.count('num_hidden_layers'),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: c.count('intermediate_size'),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.activation('hidden_act', 'gelu'),
    image: sideLengths(c, 'image_size'),
    patch: sideLengths(c, 'patch_size'),
    channels: c.count('num_channels', 3, 1),
    things: c.count('num_detection_tokens', 100, 1),
    qkvBias: c.flag('qkv_bias', true),
    between: c.flag('use_mid_position_embeddings', true),
  };
  const [count] = source.shapeOf('class_labels_classifier.layers.2.weight');
  return new Yolos(source.builder, config, labelsOf(c, count - 1));
}
export const YOLOS_FAMILIES: readonly ModelRow[] = [{ kind: 'object-detection', types: ['yolos'], build: yolos }];
