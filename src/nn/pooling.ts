// Pools as layers: the largest or the mean of windows.
import type { Tensor } from '../tensor/tensor.js';
import { Layer } from './module.js';

type Axes = number | readonly [number, number];
/** How windows lie. */
export interface PoolLayerOptions<S> {
  /** Steps between windows; default their size. */
  readonly stride?: S;
  /** Elements added on both sides; default 0. */
  readonly padding?: S;
}
abstract class Pool<S extends Axes> extends Layer {
  readonly size: S;
  readonly stride: S;
  readonly padding: S | 0;
  constructor(size: S, options: PoolLayerOptions<S> = {}) {
    super();
    this.size = size;
    this.stride = options.stride ?? size;
    this.padding = options.padding ?? 0;
  }
  override describe(): string {
    const text = (s: Axes): string => (typeof s === 'number' ? String(s) : s.join('x'));
    return `${text(this.size)}, stride ${text(this.stride)}${this.padding === 0 ? '' : `, padding ${text(this.padding)}`}`;
  }
}
/** The largest of windows of (batch, channels, length). */
export class MaxPool1d extends Pool<number> {
  forward(x: Tensor): Tensor {
    return x.maxPool1d(this.size, this.stride, { padding: this.padding });
  }
}
/** The mean of windows of (batch, channels, length). */
export class AvgPool1d extends Pool<number> {
  forward(x: Tensor): Tensor {
    return x.avgPool1d(this.size, this.stride, { padding: this.padding });
  }
}
/** The largest of windows of (batch, channels, height, width). */
export class MaxPool2d extends Pool<Axes> {
  forward(x: Tensor): Tensor {
    return x.maxPool2d(this.size, this.stride, { padding: this.padding });
  }
}
/** The mean of windows of (batch, channels, height, width). */
export class AvgPool2d extends Pool<Axes> {
  forward(x: Tensor): Tensor {
    return x.avgPool2d(this.size, this.stride, { padding: this.padding });
  }
}
/** Means of as many windows as the output has places: (batch, channels, height, width) to (..., size). */
export class AdaptiveAvgPool2d extends Layer {
  readonly size: Axes;
  constructor(size: Axes) {
    super();
    this.size = size;
  }
  override describe(): string {
    return typeof this.size === 'number' ? String(this.size) : this.size.join('x');
  }
  forward(x: Tensor): Tensor {
    return x.adaptiveAvgPool2d(this.size);
  }
}
/** The same for (batch, channels, length). */
export class AdaptiveAvgPool1d extends Layer {
  readonly size: number;
  constructor(size: number) {
    super();
    this.size = size;
  }
  override describe(): string {
    return String(this.size);
  }
  forward(x: Tensor): Tensor {
    return x.unsqueeze(2).adaptiveAvgPool2d([1, this.size]).squeeze([2]);
  }
}
