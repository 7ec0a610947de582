// A convolution, its batch norm and an activation: what networks of convolutions are made of.
import { type Conv2d, conv2d } from '../../nn/layers.js';
import { Layer } from '../../nn/module.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';

export type Bend = (x: Tensor) => Tensor;
/** No activation. */
export const still: Bend = (x) => x;

/** Zeros around a picture: left, right, top, bottom. */
export type Rims = readonly [number, number, number, number];
/** As many on each side, as TensorFlow has them (the odd one behind, by the picture's size), or named ones. */
export type Padding = number | 'tensorflow' | Rims;

export interface NormedConvOptions {
  readonly kernel: number;
  readonly stride?: number;
  readonly groups?: number;
  readonly dilation?: number;
  readonly eps?: number;
  readonly bend?: Bend;
  /** Half the kernel's width unless it is told. */
  readonly padding?: Padding;
  /** The convolution has a bias of its own. */
  readonly bias?: boolean;
  /** What the two are called. */
  readonly names?: readonly [conv: string, norm: string];
}

export class NormedConv extends Layer {
  readonly conv: Conv2d;
  readonly norm: BatchNorm;
  readonly #bend: Bend;
  readonly #rims: (x: Tensor) => Rims | undefined;
  constructor(vb: VarBuilder, [from, to]: readonly [number, number], o: NormedConvOptions) {
    super();
    const { kernel, stride = 1, groups = 1, dilation = 1, bend = still, names = ['convolution', 'normalization'] } = o;
    const padding = o.padding ?? Math.floor(kernel / 2) * dilation;
    const even = typeof padding === 'number' ? padding : 0;
    this.conv = conv2d(from, to, kernel, vb.pp(names[0]), {
      stride,
      groups,
      dilation,
      padding: even,
      useBias: o.bias ?? false,
    });
    this.norm = batchNorm(to, vb.pp(names[1]), o.eps === undefined ? {} : { eps: o.eps });
    this.#bend = bend;
    const along = (n: number): readonly [number, number] => {
      const all = Math.max(kernel - (n % stride === 0 ? stride : n % stride), 0);
      return [Math.floor(all / 2) * dilation, Math.ceil(all / 2) * dilation];
    };
    this.#rims = (x) =>
      typeof padding === 'number'
        ? undefined
        : padding === 'tensorflow'
          ? [...along(x.shape[3]), ...along(x.shape[2])]
          : padding;
  }
  forward(x: Tensor): Tensor {
    const rims = this.#rims(x);
    const padded = rims?.some((n) => n > 0) ? x.pad(rims) : x;
    return this.#bend(this.norm.forward(this.conv.forward(padded)));
  }
}

/** How loud each channel is, by what all of them are in the mean: two narrow convolutions of one place. */
export class Loudness extends Layer {
  readonly reduce: Conv2d;
  readonly expand: Conv2d;
  readonly #bend: Bend;
  constructor(reduce: Conv2d, expand: Conv2d, bend: Bend) {
    super();
    this.reduce = reduce;
    this.expand = expand;
    this.#bend = bend;
  }
  forward(x: Tensor): Tensor {
    const narrow = this.#bend(this.reduce.forward(x.mean([2, 3], true)));
    return x.mul(this.expand.forward(narrow).sigmoid());
  }
}
