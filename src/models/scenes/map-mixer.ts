// Maps of several sizes that are mixed up and down: places of the coarsest look at each other, then each map is joined
// with the next coarser one, and with the next finer one on the way back (RT-DETR's encoder).
import { type LayerNorm, layerNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type FeedForward, feedForward, type MultiHead, multiHead } from '../parts.js';
import { type Bend, NormedConv, type NormedConvOptions } from '../vision/normed-conv.js';

export const DETR_NAMES = { q: 'q_proj', k: 'k_proj', v: 'v_proj', out: 'out_proj' };
export interface LayerConfig {
  readonly width: number;
  readonly heads: number;
  readonly inner: number;
  readonly activation: string;
  readonly eps: number;
}

/** Places of the coarsest map look at each other. */
class PlacesLayer extends Module {
  readonly own: MultiHead;
  readonly ownNorm: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  readonly #before: boolean;
  constructor(vb: VarBuilder, c: LayerConfig, before: boolean) {
    super();
    const norm = (name: string): LayerNorm => layerNorm(c.width, vb.pp(name), { eps: c.eps });
    this.#before = before;
    this.own = multiHead(vb.pp('self_attn'), DETR_NAMES, c.width, c.heads);
    this.ownNorm = norm('self_attn_layer_norm');
    this.mlp = feedForward(vb, ['fc1', 'fc2'], c.width, c.inner, c.activation);
    this.norm = norm('final_layer_norm');
  }
  forward(x: Tensor, at: Tensor | undefined): Tensor {
    const attended = (h: Tensor): Tensor => this.own.forward(at ? h.add(at) : h, { values: h });
    const y = this.#before ? x.add(attended(this.ownNorm.forward(x))) : this.ownNorm.forward(x.add(attended(x)));
    // Where norms stand before, what is added to has gone through the second of them, too.
    const z = this.#before ? this.norm.forward(y) : y;
    const sum = z.add(this.mlp.forward(z));
    return this.#before ? sum : this.norm.forward(sum);
  }
}
/** Two maps beside each other become one: half of it through three pairs of filters. */
class MixedMaps extends Module {
  readonly convs: readonly NormedConv[];
  readonly pairs: readonly (readonly [NormedConv, NormedConv])[];
  readonly last: NormedConv | undefined;
  readonly #bend: Bend;
  constructor(
    vb: VarBuilder,
    width: number,
    inner: number,
    { bend, eps }: { readonly bend: Bend; readonly eps: number },
  ) {
    super();
    this.#bend = bend;
    const conv = (name: string, sizes: readonly [number, number], o: Partial<NormedConvOptions>): NormedConv =>
      new NormedConv(vb.pp(name), sizes, { kernel: 1, eps, names: ['conv', 'norm'], ...o });
    this.convs = ['conv1', 'conv2'].map((name) => conv(name, [2 * width, inner], { bend }));
    this.pairs = [0, 1, 2].map((i) => [
      conv(`bottlenecks.${i}.conv1`, [inner, inner], { kernel: 3 }),
      conv(`bottlenecks.${i}.conv2`, [inner, inner], {}),
    ]);
    this.last = inner === width ? undefined : conv('conv3', [inner, width], { bend });
  }
  forward(a: Tensor, b: Tensor): Tensor {
    const both = a.cat([b], 1);
    const half = this.pairs.reduce(
      (x, [wide, narrow]) => this.#bend(wide.forward(x).add(narrow.forward(x))),
      this.convs[0].forward(both),
    );
    const sum = half.add(this.convs[1].forward(both));
    return this.last?.forward(sum) ?? sum;
  }
}
/** Sines and cosines of places in a map: down, then across, (1, h * w, width). */
function mapPlaces([h, w]: readonly [number, number], width: number, temperature: number, like: Tensor): Tensor {
  const quarter = width / 4;
  const data = Float32Array.from({ length: h * w * width }, (_, i) => {
    const [place, at] = [Math.floor(i / width), i % width];
    const part = Math.floor(at / quarter);
    const angle = (part < 2 ? Math.floor(place / w) : place % w) / temperature ** ((at % quarter) / quarter);
    return part % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
  });
  return tensor(data, { shape: [1, h * w, width], device: like.device }).cast(like.dtype);
}

export interface MixerConfig extends LayerConfig {
  readonly layers: number;
  readonly before: boolean;
  /** Which maps' places look at each other. */
  readonly looking: readonly number[];
  readonly temperature: number;
  /** Places have no positions: the model was made for pictures of one size. */
  readonly unplaced: boolean;
  readonly narrow: number;
  readonly bend: Bend;
  readonly normEps: number;
  readonly maps: number;
}
/** Maps are mixed from coarse to fine, and back. */
export class MapMixer extends Module {
  readonly looking: readonly (readonly PlacesLayer[])[];
  readonly lateral: readonly NormedConv[];
  readonly down: readonly MixedMaps[];
  readonly shrinking: readonly NormedConv[];
  readonly up: readonly MixedMaps[];
  readonly #c: MixerConfig;
  constructor(vb: VarBuilder, c: MixerConfig) {
    super();
    this.#c = c;
    const [how, steps] = [{ bend: c.bend, eps: c.normEps }, Array.from({ length: c.maps - 1 }, (_, i) => i)];
    const conv = (name: string, i: number, kernel: number): NormedConv =>
      new NormedConv(vb.pp(name, i), [c.width, c.width], {
        ...{ ...how, kernel, stride: kernel === 3 ? 2 : 1, names: ['conv', 'norm'] },
      });
    const mixed = (name: string, i: number): MixedMaps => new MixedMaps(vb.pp(name, i), c.width, c.narrow, how);
    this.looking = c.looking.map((_, i) =>
      Array.from({ length: c.layers }, (_, k) => new PlacesLayer(vb.pp('encoder', i, 'layers', k), c, c.before)),
    );
    this.lateral = steps.map((i) => conv('lateral_convs', i, 1));
    this.down = steps.map((i) => mixed('fpn_blocks', i));
    this.shrinking = steps.map((i) => conv('downsample_convs', i, 3));
    this.up = steps.map((i) => mixed('pan_blocks', i));
  }
  forward(given: readonly Tensor[]): Tensor[] {
    const { width, temperature, looking, unplaced } = this.#c;
    const maps = [...given];
    this.looking.forEach((layers, i) => {
      const [b, , h, w] = maps[looking[i]].shape;
      const x = maps[looking[i]]
        .reshape([b, width, h * w])
        .transpose(1, 2)
        .contiguous();
      const at = unplaced ? undefined : mapPlaces([h, w], width, temperature, x);
      const y = layers.reduce((z, layer) => layer.forward(z, at), x);
      if (layers.length > 0) maps[looking[i]] = y.transpose(1, 2).reshape([b, width, h, w]);
    });
    const found = [maps.at(-1) as Tensor];
    this.lateral.forEach((lateral, i) => {
      const coarse = (found[0] = lateral.forward(found[0]));
      const large = coarse.interpolate({ scale: 2, mode: 'nearest' });
      found.unshift(this.down[i].forward(large, maps[maps.length - 2 - i]));
    });
    const out = [found[0]];
    this.shrinking.forEach((shrink, i) => {
      out.push(this.up[i].forward(shrink.forward(out[i]), found[i + 1]));
    });
    return out;
  }
}
