// Maps of several sizes from a Swin, a ConvNeXt or a ResNet inside a network for scenes.
import { UnsupportedError } from '../../base/errors.js';
import { type LayerNorm, layerNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import { ChannelNorm, type ConvNext, convNextMapsAt } from '../vision/convnext.js';
import type { ResNet } from '../vision/resnet.js';
import { type Swin, swinMapsAt } from '../vision/swin.js';
import { backboneMaps, takenMaps } from './backbone.js';

/** What makes maps (b, channels, h, w) of pictures, the largest first. */
export abstract class MapMaker extends Module {
  /** Of each map. */
  abstract readonly channels: readonly number[];
  abstract maps(pixels: Tensor): Tensor[];
}
class SwinMaps extends MapMaker {
  readonly body: Swin;
  readonly norms: readonly LayerNorm[];
  readonly channels: readonly number[];
  readonly #stages: readonly number[];
  constructor(
    vb: VarBuilder,
    body: Swin,
    first: number,
    stages: readonly number[],
    nameOf = (stage: number): string => `stage${stage}`,
  ) {
    super();
    this.body = body;
    this.#stages = stages;
    this.channels = stages.map((i) => first * 2 ** (i - 1));
    this.norms = stages.map((i, k) => layerNorm(this.channels[k], vb.pp('hidden_states_norms', nameOf(i))));
  }
  maps(pixels: Tensor): Tensor[] {
    const { seen } = this.body.walk(pixels);
    return this.#stages.map((stage, i) => {
      const { places, size } = seen[stage - 1];
      const [b] = places.shape;
      return this.norms[i]
        .forward(places)
        .transpose(1, 2)
        .reshape([b, this.channels[i], ...size]);
    });
  }
}
class ResNetMaps extends MapMaker {
  readonly body: ResNet;
  readonly channels: readonly number[];
  readonly #taken: readonly number[];
  constructor(body: ResNet, taken: readonly number[]) {
    super();
    this.body = body;
    this.#taken = taken;
    this.channels = taken.map((i) => body.channels[i]);
  }
  maps(pixels: Tensor): Tensor[] {
    const all = this.body.maps(pixels);
    return this.#taken.map((i) => all[i]);
  }
}

class ConvNextMaps extends MapMaker {
  readonly body: ConvNext;
  readonly norms: readonly ChannelNorm[];
  readonly channels: readonly number[];
  readonly #stages: readonly number[];
  constructor(vb: VarBuilder, body: ConvNext, sizes: readonly number[], stages: readonly number[]) {
    super();
    this.body = body;
    this.#stages = stages;
    this.channels = stages.map((i) => sizes[i - 1]);
    this.norms = stages.map((i, k) => new ChannelNorm(vb.pp(`hidden_states_norms.stage${i}`), this.channels[k]));
  }
  maps(pixels: Tensor): Tensor[] {
    const all = this.body.maps(pixels);
    return this.#stages.map((stage, i) => this.norms[i].forward(all[stage]));
  }
}

/** The network that a config's backbone_config tells of, under a name. */
export function mapMakerAt(c: Config, source: ModelSource, path: string): MapMaker {
  const inner = c.inner('backbone_config');
  const type = inner?.get('model_type');
  const swin = type === 'swin' || type === 'maskformer-swin';
  if (!inner || !(swin || type === 'convnext' || type === 'convnextv2')) {
    const { body, taken } = backboneMaps(c, source, path, [1, 2, 3, 4]);
    return new ResNetMaps(body, taken);
  }
  c.ignore('use_timm_backbone', 'backbone', 'backbone_kwargs', 'use_pretrained_backbone');
  inner.ignoreBooks();
  const at = source.builder.pp(path);
  const { length } = inner.numbers('depths');
  const stages = takenMaps(inner, length, [length]);
  if (stages.includes(0))
    throw new UnsupportedError(`${c.where}: backbone_config lets out what its stages begin with, which is not served`);
  if (!swin) return new ConvNextMaps(at, convNextMapsAt(inner, at, type), inner.numbers('hidden_sizes'), stages);
  const first = inner.count('embed_dim', 96, 1);
  source.ignore(new RegExp(`^${path.replaceAll('.', '\\.')}\\.((swin|model)\\.)?layernorm\\.`));
  const named = (part: string): boolean => source.names.some((n) => n.startsWith(`${path}.${part}.embeddings.`));
  // MaskFormer has a Swin of its own, all of whose maps are let out.
  if (named('model')) {
    const all = Array.from({ length }, (_, i) => i + 1);
    return new SwinMaps(at, swinMapsAt(inner, source, at.pp('model')), first, all, (stage) => String(stage - 1));
  }
  return new SwinMaps(at, swinMapsAt(inner, source, named('swin') ? at.pp('swin') : at), first, stages);
}
