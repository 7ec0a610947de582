// CvT: queries, keys and values are filtered maps, the keys' and values' smaller ones; a token joins the last stage.
import { UnsupportedError } from '../../base/errors.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, type MultiHead, multiHead } from '../parts.js';
import { NormedConv } from './normed-conv.js';
import { asPicture, asPlaces } from './seg-body.js';
import { within } from './staged-net.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';

interface StageConfig {
  readonly width: number;
  readonly heads: number;
  readonly kernel: number;
  /** Of queries, and of keys and values. */
  readonly paddings: readonly [number, number];
  readonly strides: readonly [number, number];
  readonly biases: boolean;
  readonly inner: number;
}
class CvtLayer extends Module {
  readonly norm1: LayerNorm;
  /** Of queries, keys and values. */
  readonly filters: readonly NormedConv[];
  readonly attention: MultiHead;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
  constructor(vb: VarBuilder, c: StageConfig) {
    super();
    const { width, heads, kernel } = c;
    const at = vb.pp('attention');
    const part = (name: string): string => `attention.projection_${name}`;
    const biases = c.biases ? (['q', 'k', 'v', 'out'] as const) : (['out'] as const);
    const names = { q: part('query'), k: part('key'), v: part('value'), out: 'output.dense', biases };
    this.norm1 = layerNorm(width, vb.pp('layernorm_before'));
    this.filters = ['query', 'key', 'value'].map((name, i) => {
      const [padding, stride] = [c.paddings[Number(i > 0)], c.strides[Number(i > 0)]];
      const own = at.pp(`attention.convolution_projection_${name}.convolution_projection`);
      return new NormedConv(own, [width, width], { kernel, padding, stride, groups: width });
    });
    // Scores are as small as heads as wide as all of them together would make them.
    this.attention = multiHead(at, names, width, heads, { scale: width ** -0.5 });
    this.norm2 = layerNorm(width, vb.pp('layernorm_after'));
    this.mlp = feedForward(vb, ['intermediate.dense', 'output.dense'], width, c.inner, 'gelu');
  }
  /** (b, places, width) of a map of h * w, with a token before them or not. */
  forward(x: Tensor, h: number, w: number): Tensor {
    const normed = this.norm1.forward(x);
    const first = x.shape[1] - h * w;
    const map = asPicture(normed.narrow(1, first, h * w), h, w);
    const [q, context, values] = this.filters.map((filter) => {
      const places = asPlaces(filter.forward(map));
      return first > 0 ? normed.narrow(1, 0, first).cat([places], 1) : places.contiguous();
    });
    const y = x.add(this.attention.forward(q, { context, values }));
    return y.add(this.mlp.forward(this.norm2.forward(y)));
  }
}
class CvtStage extends Module {
  readonly patches: Conv2d;
  readonly patchNorm: LayerNorm;
  readonly token: Tensor | undefined;
  readonly layers: readonly CvtLayer[];
  constructor(parts: Pick<CvtStage, 'patches' | 'patchNorm' | 'token' | 'layers'>) {
    super();
    this.patches = parts.patches;
    this.patchNorm = parts.patchNorm;
    this.token = parts.token;
    this.layers = parts.layers;
  }
  /** The map's places, with a token before them or not, and its size. */
  forward(x: Tensor): { readonly places: Tensor; readonly h: number; readonly w: number } {
    const cut = this.patches.forward(x);
    const [b, width, h, w] = cut.shape;
    const places = this.patchNorm.forward(asPlaces(cut).contiguous());
    const all = this.token ? this.token.broadcastTo([b, 1, width]).cat([places], 1) : places;
    return { places: this.layers.reduce((y, layer) => layer.forward(y, h, w), all), h, w };
  }
}
class Cvt extends VisionModel {
  readonly stages: readonly CvtStage[];
  /** A classifier's. */
  readonly norm: LayerNorm | undefined;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  constructor(stages: readonly CvtStage[], norm: LayerNorm | undefined, head: ReturnType<typeof pictureHead>) {
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
      map = asPicture(places.narrow(1, places.shape[1] - h * w, h * w), h, w);
    }
    return last;
  }
  pooled(hidden: Tensor): Tensor {
    const token = hidden.narrow(1, 0, 1).squeeze(1);
    return this.norm ? this.norm.forward(token) : token;
  }
}

function cvt(c: Config, source: ModelSource): Cvt {
  ignoreStages(c);
  // Norms have their own; the others matter while training.
  c.ignore('layer_norm_eps', 'attention_drop_rate', 'drop_rate');
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name) : fallback;
  const flags = (name: string, fallback: readonly boolean[]): readonly boolean[] => {
    const given = c.get(name) ?? fallback;
    if (!Array.isArray(given) || !given.every((v) => typeof v === 'boolean'))
      throw new UnsupportedError(`${c.where}: ${name} is ${JSON.stringify(given)}; served is a list of true and false`);
    return given;
  };
  const [widths, depths] = [listed('embed_dim', [64, 192, 384]), listed('depth', [1, 2, 10])];
  const [sizes, strides] = [listed('patch_sizes', [7, 3, 3]), listed('patch_stride', [4, 2, 2])];
  const paddings = listed('patch_padding', [2, 1, 1]);
  const [heads, ratios] = [listed('num_heads', [1, 3, 6]), listed('mlp_ratio', [4, 4, 4])];
  const kernels = listed('kernel_qkv', [3, 3, 3]);
  const [paddingQ, paddingKv] = [listed('padding_q', [1, 1, 1]), listed('padding_kv', [1, 1, 1])];
  const [strideQ, strideKv] = [listed('stride_q', [1, 1, 1]), listed('stride_kv', [2, 2, 2])];
  const [biases, tokens] = [flags('qkv_bias', [true, true, true]), flags('cls_token', [false, false, true])];
  const methods = c.has('qkv_projection_method') ? c.texts('qkv_projection_method') : depths.map(() => 'dw_bn');
  c.onlyKinds('qkv_projection_method', methods, ['dw_bn'], depths.length);
  // A token is as wide as the last stage, and classes are told by it.
  if (tokens.some((on, i) => on !== (i === depths.length - 1)))
    throw new UnsupportedError(`${c.where}: cls_token is ${JSON.stringify(tokens)}; served is one of the last stage`);
  const step = strideQ.findIndex((n) => n !== 1);
  if (step >= 0)
    throw new UnsupportedError(`${c.where}: stride_q holds ${strideQ[step]}; queries are added to as many places`);
  const channels = c.count('num_channels', 3, 1);
  const vb = within(source, 'cvt').pp('encoder.stages');
  const stages = depths.map((depth, i) => {
    const at = vb.pp(i);
    const [from, width] = [i === 0 ? channels : widths[i - 1], widths[i]];
    const own = at.pp('embedding.convolution_embeddings');
    const config: StageConfig = {
      ...{ width, heads: heads[i], kernel: kernels[i], biases: biases[i], inner: Math.trunc(width * ratios[i]) },
      paddings: [paddingQ[i], paddingKv[i]],
      strides: [strideQ[i], strideKv[i]],
    };
    return new CvtStage({
      patches: conv2d(from, width, sizes[i], own.pp('projection'), { stride: strides[i], padding: paddings[i] }),
      patchNorm: layerNorm(width, own.pp('normalization')),
      token: tokens[i] ? at.get([1, 1, width], 'cls_token') : undefined,
      layers: Array.from({ length: depth }, (_, k) => new CvtLayer(at.pp('layers', k), config)),
    });
  });
  const width = widths.at(-1) as number;
  const norm = source.has('layernorm.weight') ? layerNorm(width, source.builder.pp('layernorm')) : undefined;
  return new Cvt(stages, norm, pictureHead(c, source, width));
}
export const CVT_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['cvt'], build: cvt }];
