// UperNet: maps of a backbone, the smallest seen in parts of several sizes, each added to the next larger one, and a
// class for each place of all of them side by side.
import { type Conv2d, conv2d } from '../../nn/layers.js';
import { activation } from '../../nn/activation.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { NormedConv } from '../vision/normed-conv.js';
import { labelsOf } from '../vision/vision-model.js';
import { type MapMaker, mapMakerAt } from './map-makers.js';
import { SegmentationModel } from './scene-model.js';

const RELU = activation('relu');
const bent = (vb: VarBuilder, sizes: readonly [number, number], kernel: 1 | 3): NormedConv =>
  new NormedConv(vb, sizes, { kernel, bend: RELU, names: ['conv', 'batch_norm'] });
const sized = (x: Tensor, like: Tensor): Tensor =>
  x.interpolate({ size: [like.shape[2], like.shape[3]], mode: 'bilinear' });

class UperNet extends SegmentationModel {
  readonly body: MapMaker;
  /** Of the smallest map, by how many parts a side. */
  readonly pooled: readonly NormedConv[];
  readonly whole: NormedConv;
  readonly sides: readonly NormedConv[];
  readonly out: readonly NormedConv[];
  readonly fuse: NormedConv;
  readonly classifier: Conv2d;
  readonly labels: readonly string[];
  readonly #parts: readonly number[];
  constructor(vb: VarBuilder, body: MapMaker, width: number, parts: readonly number[], labels: readonly string[]) {
    super();
    const { channels } = body;
    const last = channels.at(-1) as number;
    this.body = body;
    this.labels = labels;
    this.#parts = parts;
    this.pooled = parts.map((_, i) => bent(vb.pp('psp_modules', i, 1), [last, width], 1));
    this.whole = bent(vb.pp('bottleneck'), [last + parts.length * width, width], 3);
    const larger = channels.slice(0, -1);
    this.sides = larger.map((from, i) => bent(vb.pp('lateral_convs', i), [from, width], 1));
    this.out = larger.map((_, i) => bent(vb.pp('fpn_convs', i), [width, width], 3));
    this.fuse = bent(vb.pp('fpn_bottleneck'), [channels.length * width, width], 3);
    this.classifier = conv2d(width, labels.length, 1, vb.pp('classifier'));
  }
  forward(pixels: Tensor): Tensor {
    const maps = this.body.maps(pixels);
    const last = maps.at(-1) as Tensor;
    const parts = this.#parts.map((n, i) => sized(this.pooled[i].forward(last.adaptiveAvgPool2d([n, n])), last));
    const levels = [...this.sides.map((conv, i) => conv.forward(maps[i])), this.whole.forward(last.cat(parts, 1))];
    for (let i = levels.length - 1; i > 0; i--) levels[i - 1] = levels[i - 1].add(sized(levels[i], levels[i - 1]));
    const made = levels.map((level, i) => this.out[i]?.forward(level) ?? level);
    const [first, ...rest] = made.map((map, i) => (i > 0 ? sized(map, made[0]) : map));
    return sized(this.classifier.forward(this.fuse.forward(first.cat(rest, 1))), pixels);
  }
}
function uperNet(c: Config, source: ModelSource): UperNet {
  // A second head is for training.
  c.ignore('use_auxiliary_head', 'auxiliary_loss_weight', 'auxiliary_in_channels', 'auxiliary_channels');
  c.ignore('auxiliary_num_convs', 'auxiliary_concat_input', 'loss_ignore_index');
  source.ignore(/^auxiliary_head\.|\.num_batches_tracked$/);
  const body = mapMakerAt(c, source, 'backbone');
  const parts = c.has('pool_scales') ? c.numbers('pool_scales') : [1, 2, 3, 6];
  const [count] = source.shapeOf('decode_head.classifier.weight');
  const width = c.count('hidden_size', 512, 1);
  return new UperNet(source.builder.pp('decode_head'), body, width, parts, labelsOf(c, count));
}
export const UPER_NET_FAMILIES: readonly ModelRow[] = [{ kind: 'segmentation', types: ['upernet'], build: uperNet }];
