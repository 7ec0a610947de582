// Routers that are nets, and that tell the next layer's what they read (ZAYA).
import { keepFloats } from '../../nn/kept-floats.js';
import { Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Experts } from './features.js';
import { Norm } from './mixers.js';
import type { Role } from './roles.js';
import type { Weights } from './weights.js';

/** What stands in front of a router's last product; always f32, as that is. */
export class DeepRouter extends Module {
  readonly input: Linear;
  /** What the vector of the layer before is multiplied by; undefined in the first. */
  readonly carry: Tensor | undefined;
  readonly norm: Norm;
  readonly first: Linear;
  readonly second: Linear;
  /** Whether the next layer is told. */
  readonly leaves: boolean;
  constructor(w: Weights, { width, eps, takes, leaves }: NonNullable<Experts['deepRouter']>, hidden: number) {
    super();
    const product = (role: Role, inputs: number): Linear =>
      keepFloats(
        new Linear(w.tensor(role, [width, inputs], undefined, 'weight', 'f32'), w.bias(role, [width], 'f32')),
        'experts are chosen in f32',
      );
    this.input = product('routerIn', hidden);
    if (takes) this.carry = w.tensor('routerCarry', [width], undefined, 'weight', 'f32');
    this.norm = new Norm({ kind: 'rms', eps }, w.normWeight('routerNorm', [width], 'f32'));
    this.first = product('routerFirst', width);
    this.second = product('routerSecond', width);
    this.leaves = leaves;
  }
  /** What the router is asked with, (b, t, width), of x (b, t, hidden) and of what the layer before was. */
  read(x: Tensor, before?: Tensor): Tensor {
    const own = this.input.forward(x.cast('f32'));
    return (before && this.carry ? own.add(before.cast('f32').mul(this.carry)) : own).cast(x.dtype);
  }
  /** What the last product reads, of rows (tokens, width). */
  forward(asked: Tensor): Tensor {
    const h = this.first.forward(this.norm.forward(asked.cast('f32'))).geluErf();
    return this.second.forward(h).geluErf();
  }
}
