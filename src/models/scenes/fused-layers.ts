// Layers of a vision transformer as maps of several sizes, fused from the coarsest to the finest (DPT's neck).
import { activation } from '../../nn/activation.js';
import { type Conv2d, conv2d, type ConvTranspose2d, convTranspose2d, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Vit } from '../vision/vit.js';

export interface FusedConfig {
  /** Width of the transformer's vectors. */
  readonly width: number;
  /** Which of its layers are read; 0 is what goes into the first. */
  readonly layers: readonly number[];
  /** Channels of each layer's map, how much larger it becomes than the patches, and channels of fused maps. */
  readonly sizes: readonly number[];
  readonly factors: readonly number[];
  readonly fused: number;
}
interface NeckConfig extends FusedConfig {
  readonly patch: number;
  /** Layers are normed by the transformer's last norm. */
  readonly normed: boolean;
  /** A fused map becomes as large as the next one, not twice as large as it was. */
  readonly exact: boolean;
  readonly batchNormed?: boolean;
  readonly biased?: boolean;
  /** What becomes of the first token: nothing, or it is added to each place or read with it. */
  readonly readout?: 'project' | 'add' | 'ignore';
  readonly activation?: string;
}

class Residual extends Module {
  readonly convs: readonly Conv2d[];
  readonly norms: readonly BatchNorm[];
  constructor(vb: VarBuilder, c: NeckConfig) {
    super();
    const { fused, batchNormed = false, biased = true } = c;
    this.convs = [1, 2].map((i) => conv2d(fused, fused, 3, vb.pp(`convolution${i}`), { padding: 1, useBias: biased }));
    this.norms = batchNormed ? [1, 2].map((i) => batchNorm(fused, vb.pp(`batch_norm${i}`))) : [];
  }
  forward(x: Tensor): Tensor {
    return this.convs
      .reduce((h, conv, i) => {
        const y = conv.forward(h.relu());
        return this.norms[i]?.forward(y) ?? y;
      }, x)
      .add(x);
  }
}
class Fusion extends Module {
  readonly beside: Residual;
  readonly own: Residual;
  readonly projection: Conv2d;
  constructor(vb: VarBuilder, c: NeckConfig) {
    super();
    this.beside = new Residual(vb.pp('residual_layer1'), c);
    this.own = new Residual(vb.pp('residual_layer2'), c);
    this.projection = conv2d(c.fused, c.fused, 1, vb.pp('projection'));
  }
  forward(x: Tensor, beside: Tensor | undefined, size: readonly number[] | undefined): Tensor {
    const [h, w] = x.shape.slice(2);
    const fits = beside?.shape[2] === h && beside.shape[3] === w;
    const sized = beside && !fits ? beside.interpolate({ size: [h, w], mode: 'bilinear' }) : beside;
    const y = this.own.forward(sized ? x.add(this.beside.forward(sized)) : x);
    const to = size ?? [2 * h, 2 * w];
    return this.projection.forward(y.interpolate({ size: [...to], mode: 'bilinear', alignCorners: true }));
  }
}

export class FusedLayers extends Module {
  readonly projections: readonly Conv2d[];
  readonly resizes: readonly (Conv2d | ConvTranspose2d | undefined)[];
  readonly readouts: readonly Linear[];
  readonly convs: readonly Conv2d[];
  readonly fusions: readonly Fusion[];
  readonly #config: NeckConfig;
  readonly #bend: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, c: NeckConfig) {
    super();
    this.#config = c;
    this.#bend = activation(c.activation ?? 'identity');
    const at = vb.pp('reassemble_stage');
    this.projections = c.sizes.map((to, i) => conv2d(c.width, to, 1, at.pp('layers', i, 'projection')));
    this.resizes = c.sizes.map((n, i) => {
      const [factor, own] = [c.factors[i], at.pp('layers', i, 'resize')];
      if (factor === 1) return undefined;
      return factor > 1
        ? convTranspose2d(n, n, factor, own, { stride: factor })
        : conv2d(n, n, 3, own, { stride: Math.trunc(1 / factor), padding: 1 });
    });
    this.readouts =
      c.readout === 'project'
        ? c.sizes.map((_, i) => linear(2 * c.width, c.width, at.pp('readout_projects', i, 0)))
        : [];
    this.convs = c.sizes.map((from, i) => conv2d(from, c.fused, 3, vb.pp('convs', i), { padding: 1, useBias: false }));
    this.fusions = c.sizes.map((_, i) => new Fusion(vb.pp('fusion_stage.layers', i), c));
  }
  /** Places (b, h * w, width) with the first token's vector (b, 1, width) read. */
  #read(places: Tensor, first: Tensor, i: number): Tensor {
    const { readout = 'ignore' } = this.#config;
    if (readout === 'ignore') return places;
    if (readout === 'add') return places.add(first);
    return this.#bend(this.readouts[i].forward(places.cat([first.broadcastTo(places.shape)], 2)));
  }
  /** Fused maps, the finest last, and how many patches the picture has down and across. */
  forward(body: Vit, pixels: Tensor): { readonly maps: Tensor[]; readonly grid: readonly number[] } {
    const { layers, normed, patch, exact } = this.#config;
    const grid = pixels.shape.slice(2).map((n) => Math.floor(n / patch));
    const all = body.layers(pixels);
    const before = 1 + (body.registers?.shape[1] ?? 0);
    const read = layers.map((layer, i) => {
      const x = normed && body.norm ? body.norm.forward(all[layer]) : all[layer];
      const places = x.narrow(1, before, x.shape[1] - before);
      const y = this.#read(places.contiguous(), x.narrow(1, 0, 1), i);
      const map = y
        .transpose(1, 2)
        .reshape([y.shape[0], y.shape[2], ...grid])
        .contiguous();
      const narrow = this.projections[i].forward(map);
      return this.convs[i].forward(this.resizes[i]?.forward(narrow) ?? narrow);
    });
    const maps: Tensor[] = [];
    read.reverse().forEach((map, i) => {
      const next = exact ? read[i + 1]?.shape.slice(2) : undefined;
      const last = maps.at(-1);
      maps.push(this.fusions[i].forward(last ?? map, last && map, next));
    });
    return { maps, grid };
  }
}
