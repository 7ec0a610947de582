// DPT: the layers of a vision transformer, fused from coarse to fine, become distances or classes of places.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { type Conv2d, conv2d } from '../../nn/layers.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelKind, ModelRow } from '../model-row.js';
import { labelsOf } from '../vision/vision-model.js';
import { type Vit, vitAt } from '../vision/vit.js';
import { backboneOf, DepthFromLayers, fusedConfig, mapAt } from './depth.js';
import { FusedLayers } from './fused-layers.js';
import { SegmentationModel } from './scene-model.js';

interface DptBody {
  readonly body: Vit;
  readonly fused: FusedLayers;
  /** Channels of fused maps, and which of the maps is read. */
  readonly width: number;
  readonly map: number;
}
function dptBody(c: Config, source: ModelSource): DptBody {
  c.only('is_hybrid', false);
  c.ignore('backbone_featmap_shape', 'auxiliary_loss_weight', 'semantic_classifier_dropout', 'use_auxiliary_head');
  c.ignore('semantic_loss_ignore_index', 'pooler_act', 'pooler_output_size', 'backbone', 'backbone_kwargs');
  c.ignore('use_timm_backbone', 'use_pretrained_backbone', 'id2label');
  c.only('neck_ignore_stages', [], [0, 1]);
  c.only('readout_type', 'project', 'add', 'ignore');
  if (c.has('neck_ignore_stages') && c.numbers('neck_ignore_stages').length > 0)
    throw new UnsupportedError(
      `${c.where}: neck_ignore_stages is ${JSON.stringify(c.json.neck_ignore_stages)}; served is []`,
    );
  source.ignore(/^(auxiliary_head|dpt\.pooler|dpt\.layernorm)\.|\.num_batches_tracked$/);
  const outside = c.has('backbone_config') ? backboneOf(c, source) : undefined;
  if (outside) c.ignore('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size', 'image_size');
  if (outside) c.ignore('patch_size', 'num_channels', 'qkv_bias', 'layer_norm_eps', 'backbone_out_indices');
  const own = outside?.inner ?? c;
  const body = outside?.body ?? vitAt(c, source, source.builder.pp('dpt'), 'dpt');
  const out =
    outside?.out ??
    (c.has('backbone_out_indices') ? c.numbers('backbone_out_indices') : [2, 5, 8, 11])
      .map((i) => i + 1)
      .sort((a, b) => a - b);
  const layers = outside ? Infinity : own.count('num_hidden_layers', 12);
  if (out.some((i) => !Number.isInteger(i) || i < 0 || i > layers))
    throw new FormatError(`${c.where}: backbone_out_indices are ${out.map((i) => i - 1)} of ${layers} layers`);
  const config = fusedConfig(c, own.count('hidden_size'), out);
  const normed = c.flag('use_batch_norm_in_fusion_residual', false);
  const biased = c.json.use_bias_in_fusion_residual ?? !normed;
  c.ignore('use_bias_in_fusion_residual');
  const fused = new FusedLayers(source.builder.pp('neck'), {
    ...{ ...config, exact: false, normed: outside !== undefined, patch: own.count('patch_size', 16, 1) },
    ...{ batchNormed: normed, biased: biased === true },
    readout: c.text('readout_type', 'project') as 'project' | 'add' | 'ignore',
    activation: c.activation('hidden_act', 'gelu'),
  });
  return { body, fused, width: config.fused, map: mapAt(c, out.length) };
}
function depths(c: Config, source: ModelSource): DepthFromLayers {
  const { body, fused, width, map } = dptBody(c, source);
  const at = source.builder.pp('head');
  const projected = c.flag('add_projection', false);
  const projection = projected ? conv2d(256, 256, 3, at.pp('projection'), { padding: 1 }) : undefined;
  const half = Math.floor(width / 2);
  return new DepthFromLayers(
    ...([body, fused, projection] as const),
    [
      conv2d(width, half, 3, at.pp('head.0'), { padding: 1 }),
      conv2d(half, 32, 3, at.pp('head.2'), { padding: 1 }),
      conv2d(32, 1, 1, at.pp('head.4')),
    ],
    { bend: 'relu', farthest: 1, map },
  );
}

/** The first product of a head for classes of places. */
const CLASSES = 'head.head.4';
class ClassesFromLayers extends SegmentationModel {
  readonly body: Vit;
  readonly fused: FusedLayers;
  readonly filter: Conv2d;
  readonly norm: BatchNorm;
  readonly classifier: Conv2d;
  readonly labels: readonly string[];
  readonly #map: number;
  constructor(vb: VarBuilder, { body, fused, width, map }: DptBody, labels: readonly string[]) {
    super();
    this.body = body;
    this.fused = fused;
    this.labels = labels;
    this.#map = map;
    const at = vb.pp('head.head');
    this.filter = conv2d(width, width, 3, at.pp(0), { padding: 1, useBias: false });
    this.norm = batchNorm(width, at.pp(1));
    this.classifier = conv2d(width, labels.length, 1, vb.pp(CLASSES));
  }
  forward(pixels: Tensor): Tensor {
    const x = this.fused.forward(this.body, pixels).maps.at(this.#map) as Tensor;
    const y = this.classifier.forward(this.norm.forward(this.filter.forward(x)).relu());
    const size = y.shape.slice(2).map((n) => 2 * n);
    return y.interpolate({ size, mode: 'bilinear', alignCorners: true });
  }
}
function classes(c: Config, source: ModelSource): ClassesFromLayers {
  // What another network makes of a picture is not read by transformers here.
  c.only('backbone_config', null);
  c.ignore('add_projection');
  const body = dptBody(c, source);
  const [count] = source.shapeOf(`${CLASSES}.weight`);
  return new ClassesFromLayers(source.builder, body, labelsOf(c, count));
}

/** Both heads have their last product there; that of distances stands behind one of 32 channels without a norm. */
const sorts = (source: ModelSource): boolean => source.has('head.head.1.running_mean');
const kindOf = (_: Config, source: ModelSource): ModelKind => (sorts(source) ? 'segmentation' : 'depth');
const build = (c: Config, source: ModelSource): DepthFromLayers | ClassesFromLayers =>
  sorts(source) ? classes(c, source) : depths(c, source);
export const DPT_FAMILIES: readonly ModelRow[] = [
  { kind: 'depth', types: ['dpt'], kindOf, build },
  { kind: 'segmentation', types: ['dpt'], kindOf, build },
];
