// RT-DETR's ResNet: three narrow convolutions at the beginning, and places that are averaged before a shortcut.
import { UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { type Bend, NormedConv, still } from '../vision/normed-conv.js';

const RELU: Bend = activation('relu');

class Layer extends Module {
  readonly shortcut: NormedConv | undefined;
  readonly convs: readonly NormedConv[];
  readonly #averages: boolean;
  readonly #bend: Bend;
  constructor(vb: VarBuilder, [from, to]: readonly [number, number], stride: number, o: LayerOptions) {
    super();
    const { narrow, early, bend, first } = o;
    this.#bend = bend;
    // A narrow layer averages where it shrinks, the other one where it widens.
    this.#averages = first && (narrow ? stride === 2 : from !== to);
    const needed = narrow ? from !== to || stride !== 1 : first;
    const at = vb.pp(this.#averages ? 'shortcut.1' : 'shortcut');
    const by = this.#averages ? 1 : stride;
    this.shortcut = needed ? new NormedConv(at, [from, to], { kernel: 1, stride: by }) : undefined;
    const conv = (i: number, sizes: readonly [number, number], kernel: number, step: number, f = RELU): NormedConv =>
      new NormedConv(vb.pp('layer', i), sizes, { kernel, stride: step, bend: f });
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
    const from = this.#averages ? x.avgPool2d(2) : x;
    return this.#bend(y.add(this.shortcut ? this.shortcut.forward(from) : from));
  }
}
interface LayerOptions {
  readonly narrow: boolean;
  readonly early: boolean;
  readonly bend: Bend;
  /** Of its stage. */
  readonly first: boolean;
}

/** Which stages a config lets out, by name or number. */
function stagesOut(c: Config, stages: number): readonly number[] {
  const named = c.has('out_features') ? c.texts('out_features') : undefined;
  const given = c.has('out_indices') ? c.numbers('out_indices') : undefined;
  const out = named?.map((name) => Number(/^stage(\d+)$/.exec(name)?.[1])) ?? given ?? [stages];
  if (out.length === 0 || out.some((n, i) => !Number.isInteger(n) || n < 1 || n > stages || n <= (out[i - 1] ?? 0)))
    throw new UnsupportedError(
      `${c.where}: backbone_config lets out ${JSON.stringify(named ?? given)}; served are stages from 1 to ${stages}`,
    );
  return out;
}

export class ResNetD extends Module {
  readonly first: readonly NormedConv[];
  readonly stages: readonly (readonly Layer[])[];
  /** Channels of the maps that it lets out. */
  readonly channels: readonly number[];
  readonly #out: readonly number[];
  constructor(vb: VarBuilder, c: Config) {
    super();
    c.only('layer_type', 'bottleneck', 'basic');
    c.ignore('stage_names');
    const [sizes, depths] = [c.numbers('hidden_sizes'), c.numbers('depths')];
    const bend = activation(c.activation('hidden_act', 'relu'));
    const narrow = c.text('layer_type', 'bottleneck') === 'bottleneck';
    const early = c.flag('downsample_in_bottleneck', false);
    const shrinks = c.flag('downsample_in_first_stage', false);
    const width = c.count('embedding_size', 64, 2);
    const half = Math.floor(width / 2);
    const widths = [c.count('num_channels', 3, 1), half, half, width];
    this.first = [0, 1, 2].map(
      (i) =>
        new NormedConv(vb.pp('embedder.embedder', i), [widths[i], widths[i + 1]], {
          ...{ kernel: 3, stride: i === 0 ? 2 : 1, bend },
        }),
    );
    this.stages = depths.map((depth, stage) =>
      Array.from({ length: depth }, (_, i) => {
        const from = i > 0 ? sizes[stage] : stage > 0 ? sizes[stage - 1] : width;
        const stride = i === 0 && (stage > 0 || shrinks) ? 2 : 1;
        const options = { narrow, early, bend, first: i === 0 };
        return new Layer(vb.pp('encoder.stages', stage, 'layers', i), [from, sizes[stage]], stride, options);
      }),
    );
    this.#out = stagesOut(c, depths.length);
    this.channels = this.#out.map((stage) => sizes[stage - 1]);
  }
  /** The maps that it lets out, the finest first. */
  maps(pixels: Tensor): Tensor[] {
    let x = this.first.reduce((h, conv) => conv.forward(h), pixels).maxPool2d(3, 2, { padding: 1 });
    const all = this.stages.map((layers) => (x = layers.reduce((h, layer) => layer.forward(h), x)));
    return this.#out.map((stage) => all[stage - 1]);
  }
}
