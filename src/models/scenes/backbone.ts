// A ResNet inside a network for scenes, under the names of transformers or of timm.
import { UnsupportedError } from '../../base/errors.js';
import { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import { resnetAt, type ResNet } from '../vision/resnet.js';

/** Blocks in each stage, by timm's name; the smaller two have two filters in a block, the others three. */
const TIMM: Readonly<Record<string, readonly number[]>> = {
  ...{ resnet18: [2, 2, 2, 2], resnet34: [3, 4, 6, 3], resnet50: [3, 4, 6, 3] },
  ...{ resnet101: [3, 4, 23, 3], resnet152: [3, 8, 36, 3] },
};
/** What timm calls a tensor of ours. */
const timmName = (name: string): string =>
  name
    .replace('embedder.embedder.convolution.', 'conv1.')
    .replace('embedder.embedder.normalization.', 'bn1.')
    .replace(/encoder\.stages\.(\d+)\.layers\.(\d+)\./, (_, stage, layer) => `layer${Number(stage) + 1}.${layer}.`)
    .replace(/layer\.(\d+)\.convolution\./, (_, i) => `conv${Number(i) + 1}.`)
    .replace(/layer\.(\d+)\.normalization\./, (_, i) => `bn${Number(i) + 1}.`)
    .replace('shortcut.convolution.', 'downsample.0.')
    .replace('shortcut.normalization.', 'downsample.1.');
/** A ResNet of timm as a config of ours. */
function timmConfig(c: Config, name: unknown, channels: number): Config {
  const depths = typeof name === 'string' && Object.hasOwn(TIMM, name) ? TIMM[name] : undefined;
  if (!depths)
    throw new UnsupportedError(
      `${c.where}: backbone is ${JSON.stringify(name) ?? 'missing'}; served are ${Object.keys(TIMM).join(', ')}`,
    );
  const basic = name === 'resnet18' || name === 'resnet34';
  return new Config(
    {
      ...{ num_channels: channels, embedding_size: 64, depths, layer_type: basic ? 'basic' : 'bottleneck' },
      hidden_sizes: [64, 128, 256, 512].map((n) => n * (basic ? 1 : 4)),
    },
    `${c.where}: backbone`,
  );
}

/** A network, and which of its maps are read: 0 is what its stages begin with, 1 the first stage's. */
export interface Backbone {
  readonly body: ResNet;
  readonly taken: readonly number[];
}
/** `unsaid`: the maps of a network that a config names without a word on them. */
export function backboneMaps(c: Config, source: ModelSource, path: string, unsaid: readonly number[]): Backbone {
  c.only('dilation', false);
  c.ignore('use_timm_backbone', 'backbone', 'backbone_kwargs', 'use_pretrained_backbone');
  const inner = c.inner('backbone_config');
  const type = inner?.text('model_type');
  const channels = c.count('num_channels', 3, 1);
  const vb = source.builder.pp(path);
  if (inner && type === 'resnet') {
    inner.ignoreBooks();
    const stages = inner.numbers('hidden_sizes').length;
    return { body: resnetAt(inner, source, vb), taken: takenMaps(inner, stages, [stages]) };
  }
  if (inner && type !== 'timm_backbone')
    throw new UnsupportedError(
      `${c.where}: backbone_config.model_type is ${type}; served are resnet and timm_backbone`,
    );
  inner?.ignoreBooks();
  inner?.ignore('features_only', 'freeze_batch_norm_2d', 'use_pretrained_backbone', 'out_features', 'stage_names');
  inner?.only('num_channels', channels);
  inner?.only('output_stride', null, 32);
  const name = inner ? inner.get('backbone') : c.get('backbone');
  // transformers wraps timm's network once more.
  const at = source.names.some((n) => n.startsWith(`${path}._backbone.`)) ? vb.pp('_backbone') : vb;
  const own = at.rename((n) => {
    const [before, after] = [n.slice(0, n.indexOf(path)), n.slice(n.indexOf(path))];
    return before + after.slice(0, path.length) + timmName(after.slice(path.length));
  });
  const taken = inner ? takenMaps(inner, 4, unsaid) : unsaid;
  return { body: resnetAt(timmConfig(c, name, channels), source, own), taken };
}
/** Maps that a config names by stage or by number, or counts from the end. */
export function takenMaps(c: Config, stages: number, unsaid: readonly number[]): readonly number[] {
  const indices = c.has('out_indices') ? c.numbers('out_indices') : undefined;
  const features =
    c.get('model_type') !== 'timm_backbone' && c.has('out_features') ? c.texts('out_features') : undefined;
  const named = features?.map((n) => (n === 'stem' ? 0 : Number(/^stage(\d+)$/.exec(n)?.[1])));
  const taken = named ?? indices?.map((i) => (i < 0 ? i + stages + 1 : i)) ?? unsaid;
  const odd = taken.findIndex((i) => !(Number.isInteger(i) && i >= 0 && i <= stages));
  if (odd >= 0 || taken.length === 0)
    throw new UnsupportedError(
      `${c.where}: backbone_config.${features ? 'out_features' : 'out_indices'} is ` +
        `${JSON.stringify(features ?? indices)}; the network has ${stages} stages`,
    );
  return taken;
}

/** Whose last map is read. */
export function backboneAt(c: Config, source: ModelSource, path: string): ResNet {
  const { body, taken } = backboneMaps(c, source, path, [4]);
  const last = body.channels.length - 1;
  if (taken.at(-1) !== last)
    throw new UnsupportedError(
      `${c.where}: the maps that backbone_config lets out end with that of stage ${taken.at(-1)}, not ${last}`,
    );
  return body;
}
