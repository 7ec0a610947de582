// Narrow vectors that tokens have for each layer beside the one that goes through all of them (Gemma 3n, Gemma 4): a
// table's row and a product of the embedding, together; behind a layer's branches they meet a gate.
import { activation } from '../../nn/activation.js';
import { type Init, normal } from '../../nn/init.js';
import { type AnyLinear as Linear, Embedding } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Weight } from '../../tensor/qtensor.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Features } from './features.js';
import { type MixerContext, type Norm, norm } from './mixers.js';
import type { Weights } from './weights.js';

type Feature = NonNullable<Features['layerInputs']>;

/** The vectors of all layers. */
export class LayerInputs extends Module {
  readonly table: Embedding<Weight>;
  readonly product: Linear;
  readonly norm: Norm;
  readonly #feature: Feature;
  readonly #layers: number;
  constructor(w: Weights, f: Feature, { hiddenSize, layers, norm: kind }: Features) {
    super();
    this.#feature = f;
    this.#layers = layers.length;
    const wide = f.width * this.#layers;
    this.table = new Embedding<Weight>(w.matrix('layerEmbed', [f.vocabSize, wide], normal(0, 0.02)), w.builder.dtype);
    this.product = w.linear([{ role: 'layerInputs', outputs: wide }], hiddenSize);
    this.norm = norm(w, 'layerInputNorm', kind, f.width);
  }
  /** Tokens (b, t) and their embedding (b, t, hidden) to (b, t, layers, width). */
  forward(ids: Tensor, x: Tensor): Tensor {
    const { width } = this.#feature;
    const [b, t, hidden] = x.shape;
    const byLayer = (y: Tensor): Tensor => y.reshape([b, t, this.#layers, width]);
    const made = this.norm.forward(byLayer(this.product.forward(x).affine(1 / Math.sqrt(hidden), 0)));
    const own = byLayer(this.table.forward(ids)).affine(Math.sqrt(width), 0);
    return made.add(own).affine(Math.SQRT1_2, 0);
  }
}

/** Where a layer takes up its own. */
export class LayerInput extends Module {
  readonly gate: Linear;
  readonly up: Linear;
  readonly norm: Norm;
  readonly #act: (x: Tensor) => Tensor;
  constructor(w: Weights, f: Feature, { hiddenSize, norm: kind }: Features, deep?: Init) {
    super();
    this.gate = w.linear([{ role: 'inputGate', outputs: f.width }], hiddenSize);
    this.up = w.linear([{ role: 'inputUp', outputs: hiddenSize }], f.width, deep);
    this.norm = norm(w, 'inputNorm', kind, hiddenSize);
    this.#act = activation(f.activation);
  }
  /** What it adds to x (b, t, hidden). */
  addition(x: Tensor, { inputs, layer }: MixerContext): Tensor {
    const own = (inputs as Tensor).narrow(2, layer, 1).squeeze([2]);
    return this.norm.forward(this.up.forward(this.#act(this.gate.forward(x)).mul(own)));
  }
  forward(x: Tensor, context: MixerContext): Tensor {
    return x.add(this.addition(x, context));
  }
}
