// SegFormer's segments: maps of all sizes, each made as large as the largest, and a class for each of its places.
import { type Conv2d, conv2d, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import { asPicture, asPlaces, type SegBody, segBody, segMaps } from '../vision/seg-body.js';
import { labelsOf } from '../vision/vision-model.js';
import { SegmentationModel } from './scene-model.js';

class Segmenter extends SegmentationModel {
  readonly levels: readonly (readonly Module[])[];
  readonly narrow: readonly Linear[];
  readonly fuse: Conv2d;
  readonly norm: BatchNorm;
  readonly classifier: Conv2d;
  readonly labels: readonly string[];
  readonly #body: SegBody;
  constructor(vb: VarBuilder, body: SegBody, width: number, labels: readonly string[]) {
    super();
    this.#body = body;
    this.levels = body.levels;
    this.labels = labels;
    this.narrow = body.sizes.map((from, i) => linear(from, width, vb.pp('linear_c', i, 'proj')));
    this.fuse = conv2d(width * body.sizes.length, width, 1, vb.pp('linear_fuse'), { useBias: false });
    this.norm = batchNorm(width, vb.pp('batch_norm'));
    this.classifier = conv2d(width, labels.length, 1, vb.pp('classifier'));
  }
  forward(pixels: Tensor): Tensor {
    const maps = segMaps(this.#body, pixels);
    const [, , h, w] = maps[0].shape;
    const wide = maps.map((map, i) => {
      const y = asPicture(this.narrow[i].forward(asPlaces(map)), map.shape[2], map.shape[3]);
      return y.interpolate({ size: [h, w], mode: 'bilinear' });
    });
    const [last, ...rest] = wide.reverse();
    return this.classifier.forward(this.norm.forward(this.fuse.forward(last.cat(rest, 1))).relu());
  }
}
/** Of files that carry such a head. */
export function segmenter(c: Config, source: ModelSource): Segmenter {
  c.ignore('semantic_loss_ignore_index', 'classifier_dropout_prob');
  source.ignore(/\.num_batches_tracked$/);
  const body = segBody(c, source.builder.pp('segformer.encoder'));
  const [count] = source.shapeOf('decode_head.classifier.weight');
  const width = c.count('decoder_hidden_size', 256, 1);
  return new Segmenter(source.builder.pp('decode_head'), body, width, labelsOf(c, count));
}
