// Networks of convolutions with batch norms: MobileNet (1 and 2), EfficientNet, RegNet.
import { activation } from '../../nn/activation.js';
import { conv2d } from '../../nn/layers.js';
import type { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import { Loudness, NormedConv, type NormedConvOptions, type Rims } from './normed-conv.js';
import type { ModelSource } from '../files/source.js';
import { rounded } from './picture-sizes.js';
import { Branch, ConvNet, divisible, type Stage, within } from './staged-net.js';
import { ignoreStages, pictureHead } from './vision-model.js';

// ---- MobileNet ----

/** What both versions say of every convolution. */
function mobileStyle(c: Config): Pick<NormedConvOptions, 'eps' | 'bend'> & { readonly padded: boolean } {
  c.ignore('image_size', 'semantic_loss_ignore_index');
  return {
    eps: c.number('layer_norm_eps', 0.001),
    bend: activation(c.activation('hidden_act', 'relu6')),
    padded: c.flag('tf_padding', true),
  };
}
const MOBILE_STRIDES = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1];
function mobileNet1(c: Config, source: ModelSource): ConvNet {
  const { padded, ...style } = mobileStyle(c);
  const [times, least] = [c.number('depth_multiplier', 1), c.count('min_depth', 8)];
  const vb = within(source, 'mobilenet_v1');
  const widthOf = (depth: number): number => Math.max(Math.trunc(depth * times), least);
  const channels = c.count('num_channels', 3, 1);
  const conv = (at: VarBuilder, sizes: readonly [number, number], o: NormedConvOptions): NormedConv =>
    new NormedConv(at, sizes, { ...style, ...(padded && { padding: 'tensorflow' }), ...o });
  let depth = 32;
  const stages = [conv(vb.pp('conv_stem'), [channels, widthOf(depth)], { kernel: 3, stride: 2 })];
  MOBILE_STRIDES.forEach((stride, i) => {
    const from = widthOf(depth);
    if (stride === 2 || i === 0) depth *= 2;
    stages.push(
      conv(vb.pp('layer', 2 * i), [from, from], { kernel: 3, stride, groups: from }),
      conv(vb.pp('layer', 2 * i + 1), [from, widthOf(depth)], { kernel: 1 }),
    );
  });
  return new ConvNet(stages, channels, pictureHead(c, source, widthOf(depth)));
}

const MOBILE2_WIDTHS = [16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160, 320];
const MOBILE2_STRIDES = [2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1];
function mobileNet2(c: Config, source: ModelSource): ConvNet {
  const { padded, ...style } = mobileStyle(c);
  const [times, by] = [c.number('depth_multiplier', 1), c.count('depth_divisible_by', 8, 1)];
  const [least, expands, most] = [
    c.count('min_depth', 8),
    c.number('expand_ratio', 6),
    c.count('output_stride', 32, 1),
  ];
  const vb = within(source, 'mobilenet_v2');
  const channels = c.count('num_channels', 3, 1);
  const width = (n: number): number => divisible(rounded(n * times), by, least);
  const conv = (at: VarBuilder, sizes: readonly [number, number], o: NormedConvOptions): NormedConv =>
    new NormedConv(at, sizes, { ...style, ...(padded && { padding: 'tensorflow' }), ...o });
  const plain = { kernel: 1, bend: (x: Tensor): Tensor => x };
  const widths = MOBILE2_WIDTHS.map(width);
  const [stem, first] = [vb.pp('conv_stem'), width(32)];
  const stages: (Stage & Module)[] = [conv(stem.pp('first_conv'), [channels, first], { kernel: 3, stride: 2 })];
  if (!c.flag('first_layer_is_expansion', true))
    stages.push(conv(stem.pp('expand_1x1'), [first, first], { kernel: 1 }));
  stages.push(
    conv(stem.pp('conv_3x3'), [first, first], { kernel: 3, groups: first }),
    conv(stem.pp('reduce_1x1'), [first, widths[0]], plain),
  );
  let [reached, dilation] = [2, 1];
  MOBILE2_STRIDES.forEach((asked, i) => {
    // Once pictures are as small as they may become, filters widen instead.
    const full = reached === most;
    const [stride, spread] = full ? [1, dilation] : [asked, 1];
    if (full) dilation *= asked;
    else reached *= stride;
    const [from, to] = [widths[i], widths[i + 1]];
    const inner = divisible(rounded(from * expands), by, least);
    const at = vb.pp('layer', i);
    const parts = [
      conv(at.pp('expand_1x1'), [from, inner], { kernel: 1 }),
      conv(at.pp('conv_3x3'), [inner, inner], { kernel: 3, stride, groups: inner, dilation: spread }),
      conv(at.pp('reduce_1x1'), [inner, to], plain),
    ];
    stages.push(new Branch(parts, { adds: stride === 1 && from === to }));
  });
  const last = c.flag('finegrained_output', true) && times < 1 ? 1280 : width(1280);
  stages.push(conv(vb.pp('conv_1x1'), [widths.at(-1) as number, last], { kernel: 1 }));
  return new ConvNet(stages, channels, pictureHead(c, source, last));
}

// ---- EfficientNet ----

function efficientNet(c: Config, source: ModelSource): ConvNet {
  c.ignore('image_size', 'batch_norm_momentum', 'drop_connect_rate', 'num_hidden_layers');
  const vb = within(source, 'efficientnet');
  const f = activation(c.activation('hidden_act', 'swish'));
  const [wider, deeper, by] = [
    c.number('width_coefficient', 2),
    c.number('depth_coefficient', 3.1),
    c.count('depth_divisor', 8, 1),
  ];
  const width = (n: number): number => divisible(n * wider, by);
  const eps = c.number('batch_norm_eps', 0.001);
  const channels = c.count('num_channels', 3, 1);
  const lists = ['in_channels', 'out_channels', 'strides', 'kernel_sizes', 'expand_ratios', 'num_block_repeats'];
  const count = c.numbers('in_channels').length;
  const [ins, outs, strides, kernels, expands, repeats] = lists.map((name) => c.numbers(name, count));
  const symmetric = c.has('depthwise_padding') ? c.numbers('depthwise_padding') : [];
  const narrower = c.number('squeeze_expansion_ratio', 0.25);
  const normed = (at: VarBuilder, sizes: readonly [number, number], o: NormedConvOptions): NormedConv =>
    new NormedConv(at, sizes, { eps, ...o });
  const stages: (Stage & Module)[] = [
    normed(vb.pp('embeddings'), [channels, width(32)], {
      ...{ kernel: 3, stride: 2, bend: f, padding: [0, 1, 0, 1] },
      names: ['convolution', 'batchnorm'],
    }),
  ];
  const encoder = vb.pp('encoder');
  let block = 0;
  for (let i = 0; i < count; i++)
    for (let j = 0; j < Math.ceil(deeper * repeats[i]); j++, block++) {
      const [from, to] = [width(j > 0 ? outs[i] : ins[i]), width(outs[i])];
      const [kernel, stride, inner] = [kernels[i], j > 0 ? 1 : strides[i], from * expands[i]];
      const half = Math.floor(kernel / 2);
      const front = symmetric.includes(block) ? half : half - 1;
      const rims: Rims = [front, half, front, half];
      const at = encoder.pp('blocks', block);
      const names = (name: string): readonly [string, string] => [`${name}_conv`, `${name}_bn`];
      const narrow = Math.max(1, Math.trunc(from * narrower));
      const loud = at.pp('squeeze_excite');
      const parts = [
        ...(expands[i] === 1
          ? []
          : [normed(at.pp('expansion'), [from, inner], { kernel: 1, bend: f, names: names('expand') })]),
        normed(at.pp('depthwise_conv'), [inner, inner], {
          ...{ kernel, stride, groups: inner, bend: f, names: ['depthwise_conv', 'depthwise_norm'] },
          ...(stride === 2 && { padding: rims }),
        }),
        new Loudness(conv2d(inner, narrow, 1, loud.pp('reduce')), conv2d(narrow, inner, 1, loud.pp('expand')), f),
        normed(at.pp('projection'), [inner, to], { kernel: 1, names: names('project') }),
      ];
      stages.push(new Branch(parts, { adds: stride === 1 && j > 0 }));
    }
  const wide = width(1280);
  c.only('hidden_dim', wide);
  stages.push(normed(encoder, [width(outs[count - 1]), wide], { kernel: 1, bend: f, names: ['top_conv', 'top_bn'] }));
  c.only('pooling_type', 'mean', 'max');
  const pool = c.text('pooling_type', 'mean') === 'max' ? 'max' : 'mean';
  return new ConvNet(stages, channels, pictureHead(c, source, wide), pool);
}

// ---- RegNet ----

function regNet(c: Config, source: ModelSource): ConvNet {
  ignoreStages(c);
  c.only('layer_type', 'x', 'y');
  const loud = c.text('layer_type', 'y') === 'y';
  const vb = within(source, 'regnet');
  const bend = activation(c.activation('hidden_act', 'relu'));
  const [sizes, depths] = [c.numbers('hidden_sizes'), c.numbers('depths')];
  const [channels, width] = [c.count('num_channels', 3, 1), c.count('embedding_size', 32, 1)];
  const each = c.count('groups_width', 64, 1);
  const shrinks = c.flag('downsample_in_first_stage', true);
  const stages: (Stage & Module)[] = [
    new NormedConv(vb.pp('embedder.embedder'), [channels, width], { kernel: 3, stride: 2, bend }),
  ];
  sizes.forEach((to, stage) => {
    for (let i = 0; i < depths[stage]; i++) {
      const from = i > 0 ? to : stage > 0 ? sizes[stage - 1] : width;
      const stride = i === 0 && (stage > 0 || shrinks) ? 2 : 1;
      const at = vb.pp('encoder.stages', stage, 'layers', i);
      const [groups, narrow] = [Math.max(1, Math.floor(to / each)), rounded(from / 4)];
      const squeeze = at.pp('layer.2.attention');
      const parts = [
        new NormedConv(at.pp('layer.0'), [from, to], { kernel: 1, bend }),
        new NormedConv(at.pp('layer.1'), [to, to], { kernel: 3, stride, groups, bend }),
        ...(loud
          ? [
              new Loudness(
                conv2d(to, narrow, 1, squeeze.pp(0)),
                conv2d(narrow, to, 1, squeeze.pp(2)),
                activation('relu'),
              ),
            ]
          : []),
        new NormedConv(at.pp('layer', loud ? 3 : 2), [to, to], { kernel: 1 }),
      ];
      const moved = from !== to || stride !== 1;
      const shortcut = moved ? new NormedConv(at.pp('shortcut'), [from, to], { kernel: 1, stride }) : undefined;
      stages.push(new Branch(parts, { adds: true, shortcut, bend }));
    }
  });
  return new ConvNet(stages, channels, pictureHead(c, source, sizes.at(-1) as number, 'classifier.1'));
}

const BUILT = { mobilenet_v1: mobileNet1, mobilenet_v2: mobileNet2, efficientnet: efficientNet, regnet: regNet };
export const CONV_NET_FAMILIES: readonly ModelRow[] = Object.entries(BUILT).map(([type, build]) => ({
  kind: 'vision',
  types: [type],
  build,
}));
