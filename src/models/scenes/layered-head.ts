// A head of a few products with a bend between each two: what tells a thing's box, and in YOLOS its class.
import { type Linear, linear } from '../../nn/layers.js';
import { Layer } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';

export class LayeredHead extends Layer {
  readonly layers: readonly Linear[];
  /** From each width to the next. */
  constructor(vb: VarBuilder, widths: readonly number[]) {
    super();
    this.layers = widths.slice(1).map((to, i) => linear(widths[i], to, vb.pp('layers', i)));
  }
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, layer, i) => layer.forward(i > 0 ? h.relu() : h), x);
  }
}
