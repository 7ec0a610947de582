// FocalNet: instead of attention, filters that see further and further, each as much as a place lets it in, and the mean
// of all; what comes of them multiplies the place.
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward } from '../parts.js';
import { PlaceNorm } from './seg-body.js';
import { type Stage, within } from './staged-net.js';
import { checkPixels, ignoreStages, pictureHead, VisionModel } from './vision-model.js';
import { sideLengths } from './vit.js';

const last = (x: Tensor): Tensor => x.permute([0, 2, 3, 1]).contiguous();
const first = (x: Tensor): Tensor => x.permute([0, 3, 1, 2]).contiguous();

interface FocalConfig {
  readonly eps: number;
  readonly ratio: number;
  readonly activation: string;
  /** Norms stand behind what is added. */
  readonly after: boolean;
  /** What multiplies is normed, too. */
  readonly normed: boolean;
  /** What is let in is divided by how many let in. */
  readonly mean: boolean;
  readonly scaled: boolean;
}
class Modulation extends Module {
  readonly into: Linear;
  readonly filters: readonly Conv2d[];
  readonly context: Conv2d;
  readonly norm: LayerNorm | undefined;
  readonly out: Linear;
  readonly #mean: boolean;
  constructor(vb: VarBuilder, width: number, [levels, window]: readonly [number, number], c: FocalConfig) {
    super();
    this.#mean = c.mean;
    this.into = linear(width, 2 * width + levels + 1, vb.pp('projection_in'));
    this.filters = Array.from({ length: levels }, (_, k) => {
      const kernel = 2 * k + window;
      const options = { padding: Math.floor(kernel / 2), groups: width, useBias: false };
      return conv2d(width, width, kernel, vb.pp('focal_layers', k, 0), options);
    });
    this.context = conv2d(width, width, 1, vb.pp('projection_context'));
    this.norm = c.normed ? layerNorm(width, vb.pp('layernorm'), { eps: c.eps }) : undefined;
    this.out = linear(width, width, vb.pp('projection_out'));
  }
  /** (b, h, w, width). */
  forward(x: Tensor): Tensor {
    const [width, levels] = [x.shape[3], this.filters.length];
    const joined = first(this.into.forward(x));
    const gate = (level: number): Tensor => joined.narrow(1, 2 * width + level, 1);
    let seen = joined.narrow(1, width, width).contiguous();
    const parts = this.filters.map((filter, level) => (seen = filter.forward(seen).geluErf()).mul(gate(level)));
    parts.push(seen.mean([2, 3], true).geluErf().mul(gate(levels)));
    const sum = parts.reduce((a, b) => a.add(b));
    const context = this.context.forward(this.#mean ? sum.affine(1 / (levels + 1), 0) : sum);
    const made = last(joined.narrow(1, 0, width).mul(context));
    return this.out.forward(this.norm ? this.norm.forward(made) : made);
  }
}
class FocalLayer extends Module {
  readonly norm1: LayerNorm;
  readonly modulation: Modulation;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
  readonly scales: readonly Tensor[];
  readonly #after: boolean;
  constructor(vb: VarBuilder, width: number, focus: readonly [number, number], c: FocalConfig) {
    super();
    this.#after = c.after;
    this.norm1 = layerNorm(width, vb.pp('norm1'), { eps: c.eps });
    this.modulation = new Modulation(vb.pp('modulation'), width, focus, c);
    this.norm2 = layerNorm(width, vb.pp('norm2'), { eps: c.eps });
    this.mlp = feedForward(vb, ['mlp.fc1', 'mlp.fc2'], width, Math.trunc(width * c.ratio), c.activation);
    this.scales = c.scaled ? [1, 2].map((i) => vb.get([width], `gamma_${i}`)) : [];
  }
  /** Maps (b, width, h, w). */
  forward(map: Tensor): Tensor {
    const added = (x: Tensor, i: number, norm: LayerNorm, make: (y: Tensor) => Tensor): Tensor => {
      const y = this.#after ? norm.forward(make(x)) : make(norm.forward(x));
      return x.add(this.scales.length > 0 ? y.mul(this.scales[i]) : y);
    };
    const x = added(last(map), 0, this.norm1, (y) => this.modulation.forward(y));
    return first(added(x, 1, this.norm2, (y) => this.mlp.forward(y)));
  }
}
/** Cuts a map into patches; black fills those that are not whole. */
class FocalPatches extends Module {
  readonly conv: Conv2d;
  readonly norm: PlaceNorm;
  readonly #patch: readonly [number, number];
  constructor(conv: Conv2d, norm: PlaceNorm, patch: readonly [number, number]) {
    super();
    this.conv = conv;
    this.norm = norm;
    this.#patch = patch;
  }
  forward(x: Tensor): Tensor {
    const [down, across] = this.#patch.map((n, i) => (n - (x.shape[2 + i] % n)) % n);
    return this.norm.forward(this.conv.forward(down + across > 0 ? x.pad([0, across, 0, down]) : x));
  }
}
class FocalNet extends VisionModel {
  readonly stages: readonly (Stage & Module)[];
  readonly norm: PlaceNorm;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  readonly #channels: number;
  constructor(
    stages: readonly (Stage & Module)[],
    norm: PlaceNorm,
    channels: number,
    head: ReturnType<typeof pictureHead>,
  ) {
    super();
    this.stages = stages;
    this.norm = norm;
    this.#channels = channels;
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  hidden(pixels: Tensor): Tensor {
    checkPixels(pixels, this.#channels);
    const map = this.norm.forward(this.stages.reduce((x, stage) => stage.forward(x), pixels));
    return map.reshape([map.shape[0], map.shape[1], -1]).transpose(1, 2);
  }
  pooled(hidden: Tensor): Tensor {
    return hidden.mean([1]);
  }
}

function focalNet(c: Config, source: ModelSource): FocalNet {
  ignoreStages(c);
  c.ignore('image_size', 'hidden_sizes');
  source.ignore(/(^|\.)embeddings\.mask_token$/);
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name) : fallback;
  const depths = listed('depths', [2, 2, 6, 2]);
  const [levels, windows] = [listed('focal_levels', [2, 2, 2, 2]), listed('focal_windows', [3, 3, 3, 3])];
  const [width, channels] = [c.count('embed_dim', 96, 1), c.count('num_channels', 3, 1)];
  const wide = c.flag('use_conv_embed', false);
  const patch = c.has('patch_size') ? sideLengths(c, 'patch_size') : ([4, 4] as const);
  const config: FocalConfig = {
    eps: c.number('layer_norm_eps', 1e-5),
    ratio: c.number('mlp_ratio', 4),
    activation: c.activation('hidden_act', 'gelu'),
    after: c.flag('use_post_layernorm', false),
    normed: c.flag('use_post_layernorm_in_modulation', false),
    mean: c.flag('normalize_modulator', false),
    scaled: c.flag('use_layerscale', false),
  };
  const vb = within(source, 'focalnet');
  const norm = (at: VarBuilder, n: number): PlaceNorm => new PlaceNorm(layerNorm(n, at, { eps: config.eps }));
  const e = vb.pp('embeddings');
  const stem = wide
    ? conv2d(channels, width, 7, e.pp('patch_embeddings.projection'), { stride: 4, padding: 2 })
    : conv2d(channels, width, patch, e.pp('patch_embeddings.projection'), { stride: patch });
  const stages: (Stage & Module)[] = [new FocalPatches(stem, norm(e.pp('norm'), width), patch)];
  depths.forEach((depth, i) => {
    const [at, from] = [vb.pp('encoder.stages', i), width * 2 ** i];
    for (let k = 0; k < depth; k++)
      stages.push(new FocalLayer(at.pp('layers', k), from, [levels[i], windows[i]], config));
    if (i === depths.length - 1) return;
    const own = at.pp('downsample');
    const options = wide ? { stride: 2, padding: 1 } : { stride: 2 };
    const conv = conv2d(from, 2 * from, wide ? 3 : 2, own.pp('projection'), options);
    stages.push(new FocalPatches(conv, norm(own.pp('norm'), 2 * from), [2, 2]));
  });
  const widest = width * 2 ** (depths.length - 1);
  return new FocalNet(stages, norm(vb.pp('layernorm'), widest), channels, pictureHead(c, source, widest));
}
export const FOCALNET_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['focalnet'], build: focalNet }];
