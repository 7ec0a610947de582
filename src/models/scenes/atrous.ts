// DeepLab's head (MobileViT's folders for segments): filters that look at a map's surroundings near and far, and at the
// mean of the whole, side by side.
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d } from '../../nn/layers.js';
import type { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import { NormedConv } from '../vision/normed-conv.js';
import type { Stage } from '../vision/staged-net.js';
import { checkPixels, labelsOf } from '../vision/vision-model.js';
import { SegmentationModel } from './scene-model.js';

/** The network that makes the map, and how wide it is. */
interface Body {
  readonly stages: readonly (Stage & Module)[];
  readonly channels: number;
  readonly width: number;
}
class AtrousSegmenter extends SegmentationModel {
  readonly stages: readonly (Stage & Module)[];
  /** One place, then as far as the rates say. */
  readonly near: readonly NormedConv[];
  readonly whole: NormedConv;
  readonly project: NormedConv;
  readonly classifier: Conv2d;
  readonly labels: readonly string[];
  readonly #channels: number;
  constructor(vb: VarBuilder, body: Body, o: { width: number; rates: readonly number[]; labels: readonly string[] }) {
    super();
    const { width, rates, labels } = o;
    const bend = activation('relu');
    const at = vb.pp('aspp.convs');
    this.stages = body.stages;
    this.#channels = body.channels;
    this.labels = labels;
    this.near = [1, ...rates].map((dilation, i) => {
      const kernel = i === 0 ? 1 : 3;
      return new NormedConv(at.pp(i), [body.width, width], { kernel, dilation, bend });
    });
    this.whole = new NormedConv(at.pp(1 + rates.length, 'conv_1x1'), [body.width, width], { kernel: 1, bend });
    this.project = new NormedConv(vb.pp('aspp.project'), [(2 + rates.length) * width, width], { kernel: 1, bend });
    this.classifier = conv2d(width, labels.length, 1, vb.pp('classifier.convolution'));
  }
  forward(pixels: Tensor): Tensor {
    checkPixels(pixels, this.#channels);
    const map = this.stages.reduce((x, stage) => stage.forward(x), pixels);
    const [first, ...rest] = this.near.map((conv) => conv.forward(map));
    const mean = this.whole.forward(map.mean([2, 3], true)).broadcastTo([...first.shape]);
    return this.classifier.forward(this.project.forward(first.cat([...rest, mean], 1)));
  }
}
/** Of files that carry such a head under `segmentation_head`. */
export function atrousSegmenter(c: Config, source: ModelSource, body: Body): AtrousSegmenter {
  const width = c.count('aspp_out_channels', c.text('model_type') === 'mobilevitv2' ? 512 : 256, 1);
  const rates = c.has('atrous_rates') ? c.numbers('atrous_rates', 3) : [6, 12, 18];
  const [count] = source.shapeOf('segmentation_head.classifier.convolution.weight');
  return new AtrousSegmenter(source.builder.pp('segmentation_head'), body, {
    width,
    rates,
    labels: labelsOf(c, count),
  });
}
