// PVT and its second version: stages that shrink a picture, whose places look at a smaller one of themselves; with
// learnt places, or with filters in the feed-forward.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type MultiHead, multiHead } from '../parts.js';
import { asPicture, asPlaces } from './seg-body.js';
import { within } from './staged-net.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';

interface PvtConfig {
  readonly second: boolean;
  readonly eps: number;
  readonly biases: boolean;
  readonly activation: string;
  /** The second version's attention to a map of seven by seven means. */
  readonly means: boolean;
}
interface LayerConfig extends PvtConfig {
  readonly width: number;
  readonly heads: number;
  readonly smaller: number;
  readonly inner: number;
}
/** The side of the map of means. */
const MEANS = 7;

class PvtLayer extends Module {
  readonly norm1: LayerNorm;
  readonly attention: MultiHead;
  readonly shrink: Conv2d | undefined;
  readonly shrunk: LayerNorm | undefined;
  readonly norm2: LayerNorm;
  readonly up: Linear;
  readonly filter: Conv2d | undefined;
  readonly down: Linear;
  readonly #means: boolean;
  readonly #f: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, c: LayerConfig) {
    super();
    const { width, heads, smaller, inner, eps, second } = c;
    this.#means = c.means;
    this.#f = activation(c.activation);
    const part = (name: string): string => (second ? name : `self.${name}`);
    const biases = c.biases ? (['q', 'k', 'v', 'out'] as const) : (['out'] as const);
    const names = { q: part('query'), k: part('key'), v: part('value'), out: second ? 'proj' : 'output.dense', biases };
    this.norm1 = layerNorm(width, vb.pp('layer_norm_1'), { eps });
    this.attention = multiHead(vb.pp('attention'), names, width, heads);
    const at = second ? vb.pp('attention') : vb.pp('attention.self');
    const kernel = c.means ? 1 : smaller;
    const shrinks = c.means || smaller > 1;
    this.shrink = shrinks
      ? conv2d(width, width, kernel, at.pp(second ? 'spatial_reduction' : 'sequence_reduction'), { stride: kernel })
      : undefined;
    this.shrunk = shrinks ? layerNorm(width, at.pp('layer_norm'), { eps }) : undefined;
    this.norm2 = layerNorm(width, vb.pp('layer_norm_2'), { eps });
    this.up = linear(width, inner, vb.pp('mlp.dense1'));
    this.filter = second
      ? conv2d(inner, inner, 3, vb.pp('mlp.dwconv.dwconv'), { padding: 1, groups: inner })
      : undefined;
    this.down = linear(inner, width, vb.pp('mlp.dense2'));
  }
  /** What places look at. */
  #context(x: Tensor, h: number, w: number): Tensor | undefined {
    if (!this.shrink || !this.shrunk) return undefined;
    const map = asPicture(x, h, w);
    const small = asPlaces(this.shrink.forward(this.#means ? map.adaptiveAvgPool2d([MEANS, MEANS]) : map));
    const normed = this.shrunk.forward(small);
    return this.#means ? normed.geluErf() : normed;
  }
  #fed(x: Tensor, h: number, w: number): Tensor {
    const up = this.up.forward(x);
    const wide = this.#means ? up.relu() : up;
    return this.down.forward(this.#f(this.filter ? asPlaces(this.filter.forward(asPicture(wide, h, w))) : wide));
  }
  /** (b, places, width) of a map of h * w, and a token before them where the layer shrinks nothing. */
  forward(x: Tensor, h: number, w: number): Tensor {
    const normed = this.norm1.forward(x);
    const context = this.#context(normed, h, w);
    const y = x.add(this.attention.forward(normed, context ? { context } : {}));
    return y.add(this.#fed(this.norm2.forward(y), h, w));
  }
}

class PvtStage extends Module {
  readonly patches: Conv2d;
  readonly patchNorm: LayerNorm;
  /** The first version's, and of its last stage a token that the class is told by. */
  readonly positions: Tensor | undefined;
  readonly token: Tensor | undefined;
  readonly layers: readonly PvtLayer[];
  /** The second version's. */
  readonly norm: LayerNorm | undefined;
  constructor(parts: Pick<PvtStage, 'patches' | 'patchNorm' | 'positions' | 'token' | 'layers' | 'norm'>) {
    super();
    this.patches = parts.patches;
    this.patchNorm = parts.patchNorm;
    this.positions = parts.positions;
    this.token = parts.token;
    this.layers = parts.layers;
    this.norm = parts.norm;
  }
  forward(map: Tensor): { readonly places: Tensor; readonly h: number; readonly w: number } {
    const cut = this.patches.forward(map);
    const [b, width, h, w] = cut.shape;
    let x = this.patchNorm.forward(asPlaces(cut).contiguous());
    if (this.token) x = this.token.broadcastTo([b, 1, width]).cat([x], 1);
    if (this.positions && this.positions.shape[1] !== x.shape[1])
      throw new ArgumentError(`vision: ${h} x ${w} places; the model has learnt another number of them`);
    if (this.positions) x = x.add(this.positions);
    const places = this.layers.reduce((y, layer) => layer.forward(y, h, w), x);
    return { places: this.norm ? this.norm.forward(places) : places, h, w };
  }
}

class Pvt extends VisionModel {
  readonly stages: readonly PvtStage[];
  readonly norm: LayerNorm | undefined;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  constructor(stages: readonly PvtStage[], norm: LayerNorm | undefined, head: ReturnType<typeof pictureHead>) {
    super();
    this.stages = stages;
    this.norm = norm;
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  hidden(pixels: Tensor): Tensor {
    checkPixels(pixels, this.stages[0].patches.weight.shape[1]);
    let [map, last] = [pixels, pixels];
    for (const stage of this.stages) {
      const { places, h, w } = stage.forward(map);
      last = places;
      if (!stage.token) map = asPicture(places, h, w);
    }
    return this.norm ? this.norm.forward(last) : map;
  }
  /** The first version's token, or the mean of the second one's map. */
  pooled(hidden: Tensor): Tensor {
    return this.norm ? hidden.narrow(1, 0, 1).squeeze(1) : hidden.mean([2, 3]);
  }
}

function pvt(c: Config, source: ModelSource): Pvt {
  const type = c.text('model_type');
  const second = type === 'pvt_v2';
  ignoreStages(c);
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name) : fallback;
  const [sizes, depths] = [
    listed('hidden_sizes', second ? [32, 64, 160, 256] : [64, 128, 320, 512]),
    listed('depths', [2, 2, 2, 2]),
  ];
  const smaller = listed(second ? 'sr_ratios' : 'sequence_reduction_ratios', [8, 4, 2, 1]);
  const patches = listed('patch_sizes', second ? [7, 3, 3, 3] : [4, 2, 2, 2]);
  const strides = listed('strides', [4, 2, 2, 2]);
  const [heads, ratios] = [listed('num_attention_heads', [1, 2, 5, 8]), listed('mlp_ratios', [8, 8, 4, 4])];
  const n = c.count('num_encoder_blocks', 4, 1);
  const config: PvtConfig = {
    second,
    eps: c.number('layer_norm_eps', 1e-6),
    biases: c.flag('qkv_bias', true),
    activation: c.activation('hidden_act', 'gelu'),
    means: second && c.flag('linear_attention', false),
  };
  if (!second && smaller[n - 1] > 1)
    throw new UnsupportedError(
      `${c.where}: sequence_reduction_ratios ends with ${smaller[n - 1]}; the last stage has a token that no map has`,
    );
  if (second) c.ignore('image_size');
  const side = second ? 0 : c.count('image_size', 224, 1);
  const channels = c.count('num_channels', 3, 1);
  const vb = within(source, type).pp('encoder');
  const stages = Array.from({ length: n }, (_, i) => {
    const [from, to, last] = [i === 0 ? channels : sizes[i - 1], sizes[i], i === n - 1];
    const at = second ? vb.pp('layers', i, 'patch_embedding') : vb.pp('patch_embeddings', i);
    const blocks = second ? vb.pp('layers', i, 'blocks') : vb.pp('block', i);
    // The first version calls the filter's size a stride and its stride a size.
    const [kernel, stride] = second ? [patches[i], strides[i]] : [strides[i], patches[i]];
    const around = second ? Math.floor(kernel / 2) : 0;
    const places = Math.floor((i === 0 ? side : Math.floor(side / 2 ** (i + 1))) / patches[i]) ** 2;
    const inner = Math.trunc(to * ratios[i]);
    const layer = { ...config, width: to, heads: heads[i], smaller: smaller[i], inner };
    return new PvtStage({
      patches: conv2d(from, to, kernel, at.pp(second ? 'proj' : 'projection'), { stride, padding: around }),
      patchNorm: layerNorm(to, at.pp('layer_norm'), { eps: config.eps }),
      positions: second ? undefined : at.get([1, places + Number(last), to], 'position_embeddings'),
      token: !second && last ? at.get([1, 1, to], 'cls_token') : undefined,
      layers: Array.from({ length: depths[i] }, (_, k) => new PvtLayer(blocks.pp(k), layer)),
      norm: second ? layerNorm(to, vb.pp('layers', i, 'layer_norm'), { eps: config.eps }) : undefined,
    });
  });
  const width = sizes[n - 1];
  const norm = second ? undefined : layerNorm(width, vb.pp('layer_norm'), { eps: config.eps });
  return new Pvt(stages, norm, pictureHead(c, source, width));
}
export const PVT_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['pvt', 'pvt_v2'], build: pvt }];
