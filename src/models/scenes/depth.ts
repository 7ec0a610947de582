// Distances of places: DPT and Depth Anything (a vision transformer's layers, fused from coarse to fine), GLPN (the
// maps of SegFormer's encoder, each weighed against the coarser ones).
import { UnsupportedError } from '../../base/errors.js';
import { type Conv2d, conv2d } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type SegBody, segBody, segMaps } from '../vision/seg-body.js';
import { type Vit, vitAt } from '../vision/vit.js';
import { FusedLayers, type FusedConfig } from './fused-layers.js';
import { DepthModel } from './scene-model.js';

interface DepthHeadConfig {
  /** The patch's sides, where the head makes the map as large as the picture. */
  readonly patch?: number;
  readonly bend: 'relu' | 'sigmoid';
  readonly farthest: number;
  /** Which of the fused maps is read. */
  readonly map: number;
  /** A convolution stands before the head's. */
  readonly projection?: number;
}
export class DepthFromLayers extends DepthModel {
  readonly body: Vit;
  readonly fused: FusedLayers;
  readonly projection: Conv2d | undefined;
  readonly convs: readonly [Conv2d, Conv2d, Conv2d];
  readonly #head: DepthHeadConfig;
  constructor(
    body: Vit,
    fused: FusedLayers,
    projection: Conv2d | undefined,
    convs: DepthFromLayers['convs'],
    head: DepthHeadConfig,
  ) {
    super();
    this.body = body;
    this.fused = fused;
    this.projection = projection;
    this.convs = convs;
    this.#head = head;
  }
  forward(pixels: Tensor): Tensor {
    const { patch, bend, farthest, map } = this.#head;
    const { maps, grid } = this.fused.forward(this.body, pixels);
    let x = maps.at(map) as Tensor;
    if (this.projection) x = this.projection.forward(x).relu();
    const narrow = this.convs[0].forward(x);
    const size = patch ? grid.map((n) => n * patch) : narrow.shape.slice(2).map((n) => 2 * n);
    const large = narrow.interpolate({ size, mode: 'bilinear', alignCorners: true });
    const y = this.convs[2].forward(this.convs[1].forward(large).relu()).squeeze(1);
    return (bend === 'relu' ? y.relu() : y.sigmoid()).affine(farthest, 0);
  }
}
export const mapAt = (c: Config, maps: number): number => {
  const at = c.number('head_in_index', -1);
  if (!Number.isInteger(at) || at < -maps || at >= maps)
    throw new UnsupportedError(`${c.where}: head_in_index is ${at}; there are ${maps} maps`);
  return at;
};
/** What both families say of how layers are fused. */
export function fusedConfig(c: Config, width: number, layers: readonly number[]): FusedConfig {
  const sizes = c.numbers('neck_hidden_sizes', layers.length);
  return {
    ...{ width, layers, sizes },
    factors: c.has('reassemble_factors') ? c.numbers('reassemble_factors', sizes.length) : [4, 2, 1, 0.5],
    fused: c.count('fusion_hidden_size', undefined, 2),
  };
}
/** Which layers a backbone lets out, from its config's numbers or names. */
function layersOut(inner: Config, layers: number): readonly number[] {
  const named = inner.has('out_features') ? inner.texts('out_features') : undefined;
  const from = named?.map((name) => (name === 'stem' ? 0 : Number(/^stage(\d+)$/.exec(name)?.[1])));
  const given = from ?? (inner.has('out_indices') ? inner.numbers('out_indices') : [layers]);
  const list = given.map((i) => (i < 0 ? layers + 1 + i : i));
  if (list.some((i) => !Number.isInteger(i) || i < 0 || i > layers))
    throw new UnsupportedError(`${inner.where}: backbone_config lets out ${JSON.stringify(given)} of ${layers} layers`);
  return list.sort((a, b) => a - b);
}
/** A DINOv2 inside, with which of its layers are read. */
export function backboneOf(
  c: Config,
  source: ModelSource,
): { readonly body: Vit; readonly inner: Config; readonly out: readonly number[] } {
  c.ignore('backbone', 'use_timm_backbone', 'use_pretrained_backbone', 'backbone_kwargs');
  const inner = c.inner('backbone_config');
  const type = inner?.get('model_type');
  if (!inner || type !== 'dinov2')
    throw new UnsupportedError(
      `${c.where}: backbone_config.model_type is ${JSON.stringify(type) ?? 'missing'}; served is dinov2`,
    );
  inner.ignoreBooks();
  inner.only('reshape_hidden_states', false);
  const out = layersOut(inner, inner.count('num_hidden_layers'));
  const normed = inner.flag('apply_layernorm', true);
  const body = vitAt(inner, source, source.builder.pp('backbone'), type);
  if (!normed)
    throw new UnsupportedError(`${c.where}: backbone_config.apply_layernorm is false; it is served with norms`);
  return { body, inner, out };
}
function depthAnything(c: Config, source: ModelSource): DepthFromLayers {
  const { body, inner, out } = backboneOf(c, source);
  const width = inner.count('hidden_size');
  c.only('reassemble_hidden_size', width);
  c.only('depth_estimation_type', 'relative', 'metric');
  const patch = c.count('patch_size', 14, 1);
  inner.only('patch_size', patch);
  const config = fusedConfig(c, width, out);
  const vb = source.builder;
  const fused = new FusedLayers(vb.pp('neck'), { ...config, patch, exact: true, normed: true });
  const [half, last] = [Math.floor(config.fused / 2), c.count('head_hidden_size', 32, 1)];
  const at = vb.pp('head');
  return new DepthFromLayers(
    ...([body, fused, undefined] as const),
    [
      conv2d(config.fused, half, 3, at.pp('conv1'), { padding: 1 }),
      conv2d(half, last, 3, at.pp('conv2'), { padding: 1 }),
      conv2d(last, 1, 1, at.pp('conv3')),
    ],
    {
      ...{ patch, map: mapAt(c, out.length), farthest: c.number('max_depth', 1) },
      bend: c.text('depth_estimation_type', 'relative') === 'metric' ? 'sigmoid' : 'relu',
    },
  );
}
/** How much of the finer and how much of the coarser map counts, place by place. */
class Weighed extends Module {
  readonly convs: readonly Conv2d[];
  readonly norms: readonly BatchNorm[];
  constructor(vb: VarBuilder, width: number) {
    super();
    const half = Math.floor(width / 2);
    const filter = (name: string, from: number, to: number): Conv2d => conv2d(from, to, 3, vb.pp(name), { padding: 1 });
    this.convs = [
      filter('convolutional_layer1.0', 2 * width, width),
      filter('convolutional_layer2.0', width, half),
      filter('convolutional_layer3', half, 2),
    ];
    this.norms = [batchNorm(width, vb.pp('convolutional_layer1.1')), batchNorm(half, vb.pp('convolutional_layer2.1'))];
  }
  forward(own: Tensor, coarser: Tensor): Tensor {
    const [one, two, three] = this.convs;
    const y = this.norms[0].forward(one.forward(own.cat([coarser], 1))).relu();
    const shares = three.forward(this.norms[1].forward(two.forward(y)).relu()).sigmoid();
    return own.mul(shares.narrow(1, 0, 1)).add(coarser.mul(shares.narrow(1, 1, 1)));
  }
}
class Glpn extends DepthModel {
  readonly levels: readonly (readonly Module[])[];
  readonly narrow: readonly (Conv2d | undefined)[];
  readonly weighed: readonly (Weighed | undefined)[];
  readonly convs: readonly [Conv2d, Conv2d];
  readonly #body: SegBody;
  readonly #farthest: number;
  constructor(vb: VarBuilder, body: SegBody, width: number, farthest: number) {
    super();
    this.#body = body;
    this.#farthest = farthest;
    this.levels = body.levels;
    const stage = (i: number): VarBuilder => vb.pp('decoder.stages', i);
    const sizes = [...body.sizes].reverse();
    this.narrow = sizes.map((from, i) =>
      from === width ? undefined : conv2d(from, width, 1, stage(i).pp('convolution')),
    );
    this.weighed = sizes.map((_, i) => (i === 0 ? undefined : new Weighed(stage(i).pp('fusion'), width)));
    const head = vb.pp('head.head');
    this.convs = [conv2d(width, width, 3, head.pp(0), { padding: 1 }), conv2d(width, 1, 3, head.pp(2), { padding: 1 })];
  }
  forward(pixels: Tensor): Tensor {
    const maps = segMaps(this.#body, pixels).reverse();
    const doubled = (x: Tensor): Tensor => x.interpolate({ scale: 2, mode: 'bilinear' });
    const x = maps.reduce<Tensor | undefined>((coarser, map, i) => {
      const own = this.narrow[i]?.forward(map) ?? map;
      return doubled(coarser ? (this.weighed[i] as Weighed).forward(own, coarser) : own);
    }, undefined) as Tensor;
    const y = this.convs[1].forward(this.convs[0].forward(doubled(x)).relu());
    return y.sigmoid().affine(this.#farthest, 0).squeeze(1);
  }
}
function glpn(c: Config, source: ModelSource): Glpn {
  c.only('head_in_index', -1);
  source.ignore(/\.num_batches_tracked$/);
  const body = segBody(c, source.builder.pp('glpn.encoder'));
  return new Glpn(source.builder, body, c.count('decoder_hidden_size', 64, 2), c.number('max_depth', 10));
}
export const DEPTH_FAMILIES: readonly ModelRow[] = [
  { kind: 'depth', types: ['depth_anything'], build: depthAnything },
  { kind: 'depth', types: ['glpn'], build: glpn },
];
