// BiT (big transfer): a ResNet whose filters have mean 0 and spread 1 when they are used, with norms of groups.
import { activation } from '../../nn/activation.js';
import { Module } from '../../nn/module.js';
import { type GroupNorm, groupNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import type { Bend } from './normed-conv.js';
import { ConvNet, divisible, type Stage, within } from './staged-net.js';
import { ignoreStages, pictureHead } from './vision-model.js';

/** Zeros around a picture: half a filter's width, or those that a stride needs to end where it ends. */
type Rim = 'half' | 'needed';
/** How many zeros a picture needs before and behind, for a stride to end where it ends. */
function rimOf(n: number, kernel: number, stride: number): readonly [number, number] {
  const all = Math.max((Math.ceil(n / stride) - 1) * stride + kernel - n, 0);
  return [Math.floor(all / 2), all - Math.floor(all / 2)];
}
const filled = (x: Tensor, kernel: number, stride: number): Tensor => {
  const rims = [...rimOf(x.shape[3], kernel, stride), ...rimOf(x.shape[2], kernel, stride)];
  return rims.some((n) => n > 0) ? x.pad(rims) : x;
};

class StandardConv extends Module {
  readonly weight: Tensor;
  readonly #kernel: number;
  readonly #stride: number;
  readonly #dilation: number;
  readonly #padding: number | 'needed';
  constructor(
    vb: VarBuilder,
    [from, to]: readonly [number, number],
    o: { readonly kernel: number; readonly rim: Rim; readonly stride?: number; readonly dilation?: number },
  ) {
    super();
    const { kernel, rim, stride = 1, dilation = 1 } = o;
    this.weight = vb.get([to, from, kernel, kernel], 'weight');
    this.#kernel = kernel;
    this.#stride = stride;
    this.#dilation = dilation;
    const span = dilation * (kernel - 1);
    const needed = rim === 'needed' && (stride > 1 || span % 2 === 1);
    this.#padding = needed ? 'needed' : Math.floor((stride - 1 + span) / 2);
  }
  forward(x: Tensor): Tensor {
    const flat = this.weight.reshape([this.weight.shape[0], -1]);
    const centred = flat.sub(flat.mean([1], true));
    const spread = centred.sqr().mean([1], true).affine(1, 1e-8).sqrt();
    const weight = centred.div(spread).reshape([...this.weight.shape]);
    const options = { stride: this.#stride, dilation: this.#dilation };
    if (this.#padding !== 'needed') return x.conv2d(weight, { ...options, padding: this.#padding });
    return filled(x, this.#dilation * (this.#kernel - 1) + 1, this.#stride).conv2d(weight, options);
  }
}
class BentNorm extends Module {
  readonly norm: GroupNorm;
  readonly #bend: Bend | undefined;
  constructor(norm: GroupNorm, bend?: Bend) {
    super();
    this.norm = norm;
    this.#bend = bend;
  }
  forward(x: Tensor): Tensor {
    const y = this.norm.forward(x);
    return this.#bend ? this.#bend(y) : y;
  }
}
interface BitConfig {
  readonly groups: number;
  readonly bend: Bend;
  readonly rim: Rim;
  /** Norms stand before filters, not behind. */
  readonly before: boolean;
}
const normOf = (vb: VarBuilder, width: number, c: BitConfig, bends = true): BentNorm =>
  new BentNorm(groupNorm(c.groups, width, vb), bends ? c.bend : undefined);

class BitLayer extends Module {
  readonly shortcut: StandardConv | undefined;
  readonly shortcutNorm: BentNorm | undefined;
  readonly convs: readonly StandardConv[];
  readonly norms: readonly BentNorm[];
  readonly #config: BitConfig;
  constructor(
    vb: VarBuilder,
    c: BitConfig,
    [from, to]: readonly [number, number],
    o: { readonly stride: number; readonly dilation: number; readonly first: boolean },
  ) {
    super();
    this.#config = c;
    const { rim } = c;
    const inner = divisible(to * 0.25, 8);
    const at = vb.pp('downsample');
    this.shortcut = o.first
      ? new StandardConv(at.pp('conv'), [from, to], { kernel: 1, rim, stride: o.stride })
      : undefined;
    this.shortcutNorm = o.first && !c.before ? normOf(at.pp('norm'), to, c, false) : undefined;
    const middle = { kernel: 3, rim, stride: o.stride, ...(!c.before && { dilation: o.dilation }) };
    this.convs = [
      new StandardConv(vb.pp('conv1'), [from, inner], { kernel: 1, rim }),
      new StandardConv(vb.pp('conv2'), [inner, inner], middle),
      new StandardConv(vb.pp('conv3'), [inner, to], { kernel: 1, rim }),
    ];
    const widths = c.before ? [from, inner, inner] : [inner, inner, to];
    this.norms = widths.map((width, i) => normOf(vb.pp(`norm${i + 1}`), width, c, c.before || i < 2));
  }
  forward(x: Tensor): Tensor {
    const { before, bend } = this.#config;
    const given = before ? this.norms[0].forward(x) : x;
    let y = given;
    this.convs.forEach((conv, i) => {
      if (before) y = conv.forward(i > 0 ? this.norms[i].forward(y) : y);
      else y = this.norms[i].forward(conv.forward(y));
    });
    const short = this.shortcut ? this.shortcut.forward(given) : x;
    const sum = y.add(this.shortcutNorm ? this.shortcutNorm.forward(short) : short);
    return before ? sum : bend(sum);
  }
}
/** What makes a picture four times smaller. */
class BitStem extends Module {
  readonly conv: StandardConv;
  readonly norm: BentNorm | undefined;
  readonly #rim: Rim;
  readonly #fills: boolean;
  constructor(vb: VarBuilder, c: BitConfig, [from, to]: readonly [number, number], fills: boolean) {
    super();
    this.#rim = c.rim;
    this.#fills = fills;
    this.conv = new StandardConv(vb.pp('convolution'), [from, to], { kernel: 7, rim: c.rim, stride: 2 });
    this.norm = c.before ? undefined : normOf(vb.pp('norm'), to, c);
  }
  forward(x: Tensor): Tensor {
    const y = this.conv.forward(x);
    const around = this.#rim === 'needed' ? y : y.pad([1, 1, 1, 1]);
    const normed = this.norm ? this.norm.forward(around) : around;
    return (this.#fills ? filled(normed, 3, 2) : normed).maxPool2d(3, 2);
  }
}

function bit(c: Config, source: ModelSource): ConvNet {
  ignoreStages(c);
  c.only('layer_type', 'preactivation', 'bottleneck');
  // Without zeros what is added to a map would be smaller than the map.
  c.only('global_padding', 'same', 'SAME');
  const vb = within(source, 'bit');
  const config: BitConfig = {
    groups: c.count('num_groups', 32, 1),
    bend: activation(c.activation('hidden_act', 'relu')),
    rim: c.has('global_padding') ? 'needed' : 'half',
    before: c.text('layer_type', 'preactivation') === 'preactivation',
  };
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name) : fallback;
  const [sizes, depths] = [listed('hidden_sizes', [256, 512, 1024, 2048]), listed('depths', [3, 4, 6, 3])];
  const [channels, width] = [c.count('num_channels', 3, 1), c.count('embedding_size', 64, 1)];
  const [times, most] = [c.count('width_factor', 1, 1), c.count('output_stride', 32, 1)];
  const fills = c.flag('embedding_dynamic_padding', false);
  const stages: (Stage & Module)[] = [new BitStem(vb.pp('embedder'), config, [channels, width], fills)];
  // Once pictures are as small as they may become, filters widen instead.
  let [from, reached, dilation] = [width, 4, 1];
  sizes.forEach((size, i) => {
    const to = divisible(size * times, 8);
    const asked = i === 0 ? 1 : 2;
    const stride = reached >= most ? 1 : asked;
    if (reached >= most) dilation *= asked;
    for (let k = 0; k < depths[i]; k++) {
      const o = { stride: k === 0 ? stride : 1, dilation: k > 0 ? dilation : dilation > 2 ? 2 : 1, first: k === 0 };
      stages.push(new BitLayer(vb.pp('encoder.stages', i, 'layers', k), config, [from, to], o));
      from = to;
    }
    reached *= stride;
  });
  const last = sizes.at(-1) as number;
  if (config.before) stages.push(normOf(vb.pp('norm'), last, config));
  return new ConvNet(stages, channels, pictureHead(c, source, last, 'classifier.1'));
}
export const BIT_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['bit'], build: bit }];
