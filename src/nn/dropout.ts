// Layers that leave things out while training: elements, or whole channels.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { requireShare } from '../ops/kernel-row.js';
import { rand } from '../tensor/create.js';
import { Generator } from '../tensor/random.js';
import type { Tensor } from '../tensor/tensor.js';
import { droppedOut } from '../tensor/training.js';
import { Layer } from './module.js';

/** Each element is 0 with probability p while training, and the others are divided by 1 - p. */
export class Dropout extends Layer {
  /** The share of elements that become zero while training. */
  readonly p: number;
  /** The stream that decides; undefined: the device's own. */
  readonly generator: Generator | undefined;
  constructor(p = 0.5, generator?: Generator) {
    super();
    requireShare('Dropout', 'probability', p);
    this.p = p;
    if (generator !== undefined && !(generator instanceof Generator))
      throw new ArgumentError(`Dropout: ${String(generator)} stands where a Generator does; nothing is done in place`);
    this.generator = generator;
  }
  override describe(): string {
    return String(this.p);
  }
  forward(x: Tensor): Tensor {
    return this.training ? dropout(x, this.p, this.generator) : x;
  }
}
/** x with each element left out with probability p, the others divided by 1 - p. */
export const dropout = (x: Tensor, p: number, generator?: Generator): Tensor =>
  p === 0
    ? x
    : (droppedOut(x, p, generator) ??
      x.dropout(p, rand(x.shape, { device: x.device, ...(generator && { generator }) })));

/** Whole channels of (batch, channels, ...) are left out together, as PyTorch's Dropout1d, 2d and 3d. */
export class ChannelDropout extends Dropout {
  override forward(x: Tensor): Tensor {
    if (!this.training || this.p === 0) return x;
    if (x.rank < 3)
      throw new ShapeError(`${this.constructor.name}: takes (batch, channels, ...), not ${formatShape(x.shape)}`);
    const [batch, channels, ...space] = x.shape;
    const { generator } = this;
    const drawn = rand([batch, channels, ...space.map(() => 1)], { device: x.device, ...(generator && { generator }) });
    return x.dropout(this.p, drawn.broadcastTo(x.shape));
  }
}
/** Channels of (batch, channels, length) are left out together. */
export class Dropout1d extends ChannelDropout {}
/** Channels of (batch, channels, height, width) are left out together. */
export class Dropout2d extends ChannelDropout {}
/** Channels of (batch, channels, depth, height, width) are left out together. */
export class Dropout3d extends ChannelDropout {}
