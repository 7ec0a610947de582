// ResNet: convolutions with batch norms, each few of them added to what they were given.
import { activation } from '../../nn/activation.js';
import type { Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import { type Bend, NormedConv, still } from './normed-conv.js';
import type { ModelSource } from '../files/source.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';

/** Between convolutions of a layer, whatever a config's activation is. */
const RELU: Bend = activation('relu');

interface LayerConfig {
  readonly from: number;
  readonly to: number;
  readonly stride: number;
  readonly bend: Bend;
  /** Three convolutions of which the middle ones are narrow, not two; the first of them takes the stride, or not. */
  readonly narrow: boolean;
  readonly early: boolean;
}
class ResNetLayer extends Module {
  readonly shortcut: NormedConv | undefined;
  readonly convs: NormedConv[];
  readonly #bend: Bend;
  constructor(vb: VarBuilder, { from, to, stride, bend, narrow, early }: LayerConfig) {
    super();
    this.#bend = bend;
    this.shortcut =
      from === to && stride === 1 ? undefined : new NormedConv(vb.pp('shortcut'), [from, to], { kernel: 1, stride });
    const conv = (i: number, sizes: readonly [number, number], kernel: number, by: number, f = RELU): NormedConv =>
      new NormedConv(vb.pp('layer', i), sizes, { kernel, stride: by, bend: f });
    const inner = Math.floor(to / 4);
    this.convs = narrow
      ? [
          conv(0, [from, inner], 1, early ? stride : 1),
          conv(1, [inner, inner], 3, early ? 1 : stride),
          conv(2, [inner, to], 1, 1, still),
        ]
      : [conv(0, [from, to], 3, stride), conv(1, [to, to], 3, 1, still)];
  }
  forward(x: Tensor): Tensor {
    const y = this.convs.reduce((h, conv) => conv.forward(h), x);
    return this.#bend(y.add(this.shortcut ? this.shortcut.forward(x) : x));
  }
}

export class ResNet extends VisionModel {
  readonly first: NormedConv;
  readonly layers: ResNetLayer[];
  /** Channels behind the first convolution and behind each stage. */
  readonly channels: readonly number[];
  readonly #depths: readonly number[];
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  constructor({ first, layers, channels, depths }: ResNetBody, head: ReturnType<typeof pictureHead>) {
    super();
    this.channels = channels;
    this.#depths = depths;
    this.first = first;
    this.layers = layers;
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  /** What comes out of the first convolution and of each stage. */
  maps(pixels: Tensor): Tensor[] {
    checkPixels(pixels, this.first.conv.weight.shape[1]);
    const maps = [this.first.forward(pixels).maxPool2d(3, 2, { padding: 1 })];
    let at = 0;
    for (const depth of this.#depths) {
      const stage = this.layers.slice(at, (at += depth));
      maps.push(stage.reduce((h, layer) => layer.forward(h), maps.at(-1) as Tensor));
    }
    return maps;
  }
  hidden(pixels: Tensor): Tensor {
    return this.maps(pixels).at(-1) as Tensor;
  }
  pooled(hidden: Tensor): Tensor {
    return hidden.mean([2, 3]);
  }
}

interface ResNetBody {
  readonly first: NormedConv;
  readonly layers: ResNetLayer[];
  readonly channels: readonly number[];
  readonly depths: readonly number[];
}
function resnetBody(c: Config, source: ModelSource, vb: VarBuilder): ResNetBody {
  ignoreStages(c);
  c.only('layer_type', 'bottleneck', 'basic');
  source.ignore(/\.num_batches_tracked$/);
  const [sizes, depths] = [c.numbers('hidden_sizes'), c.numbers('depths')];
  const narrow = c.text('layer_type', 'bottleneck') === 'bottleneck';
  const early = c.flag('downsample_in_bottleneck', false);
  const bend = activation(c.activation('hidden_act', 'relu'));
  const width = c.count('embedding_size', 64, 1);
  const at = vb.pp('embedder.embedder');
  const first = new NormedConv(at, [c.count('num_channels', 3), width], { kernel: 7, stride: 2, bend });
  const shrinks = c.flag('downsample_in_first_stage', false);
  const layers = depths.flatMap((depth, stage) =>
    Array.from({ length: depth }, (_, i) => {
      const from = i > 0 ? sizes[stage] : stage > 0 ? sizes[stage - 1] : width;
      const stride = i === 0 && (stage > 0 || shrinks) ? 2 : 1;
      const config = { from, to: sizes[stage], stride, bend, narrow, early };
      return new ResNetLayer(vb.pp('encoder.stages', stage, 'layers', i), config);
    }),
  );
  return { first, layers, channels: [width, ...sizes], depths };
}
/** The network alone, under a name that another model gives it. */
export const resnetAt = (c: Config, source: ModelSource, vb: VarBuilder): ResNet =>
  new ResNet(resnetBody(c, source, vb), { classifier: undefined, labels: [] });
function resnet(c: Config, source: ModelSource): ResNet {
  const inside = source.names.some((n) => n.startsWith('resnet.'));
  const body = resnetBody(c, source, inside ? source.builder.pp('resnet') : source.builder);
  return new ResNet(body, pictureHead(c, source, body.channels.at(-1) as number, 'classifier.1'));
}
export const RESNET_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['resnet'], build: resnet }];
