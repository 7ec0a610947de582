// wav2vec 2.0 BERT: conformer layers over the energies of bands, and a letter for each moment or classes of the whole.
import { ArgumentError } from '../../base/errors.js';
import { type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { ConformerBlock, type ConformerConfig, conformerConfig, conformerPlaces, storedSpeeds } from './conformer.js';
import { classesOf, type SoundHead, soundHead, TRAINING } from './wav2vec2.js';

/** Energies of bands (b, t, bands) to vectors of moments, to letters or to classes. */
export class ConformerEncoder extends Module {
  readonly projectionNorm: LayerNorm;
  readonly projection: Linear;
  readonly blocks: ConformerBlock[];
  readonly letters: Linear | undefined;
  readonly narrow: Linear | undefined;
  readonly classes: Linear | undefined;
  /** How much each layer's vectors count for the classes. */
  readonly shares: Tensor | undefined;
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  /** Bands of a moment. */
  readonly bands: number;
  readonly #config: ConformerConfig;
  constructor(vb: VarBuilder, c: ConformerConfig, bands: number, head: SoundHead) {
    super();
    this.#config = c;
    this.bands = bands;
    this.projectionNorm = layerNorm(bands, vb.pp('feature_projection.layer_norm'), { eps: c.eps });
    this.projection = linear(bands, c.width, vb.pp('feature_projection.projection'));
    this.blocks = Array.from({ length: c.layers }, (_, i) => new ConformerBlock(vb.pp('encoder.layers', i), c));
    this.letters = head.letters;
    this.narrow = head.classes?.narrow;
    this.classes = head.classes?.out;
    this.shares = head.classes?.shares;
    this.labels = head.labels;
  }
  /** What goes into the first layer and what comes out of each, (b, t, width). */
  #layers(features: Tensor, mask: Tensor | undefined): Tensor[] {
    const [b, t, bands] = features.shape;
    if (features.rank !== 3 || bands !== this.bands || (mask && mask.shape.join() !== [b, t].join()))
      throw new ArgumentError(
        `sound: features have shape [${features.shape.join(', ')}]` +
          `${mask ? `, the mask [${mask.shape.join(', ')}]` : ''}; the model takes (batch, moments, ${this.bands}) and a mask (batch, moments)`,
      );
    const real = mask?.ne(0);
    let x = this.projection.forward(this.projectionNorm.forward(features));
    if (real) x = x.mul(real.cast(x.dtype).unsqueeze(2));
    const places = conformerPlaces(this.#config, x);
    return [x, ...this.blocks.map((block) => (x = block.forward(x, places, real)))];
  }
  /** Vectors of moments (b, t, width); the mask (b, t) is 1 for moments and 0 for padding. */
  hidden(features: Tensor, mask?: Tensor): Tensor {
    return this.#layers(features, mask).at(-1) as Tensor;
  }
  /** Logits of letters (b, t, letters) or of classes (b, classes); vectors of moments where there is no head. */
  forward(features: Tensor, mask?: Tensor): Tensor {
    const all = this.#layers(features, mask);
    const { narrow, classes, shares, letters } = this;
    const last = all.at(-1) as Tensor;
    if (!narrow || !classes) return letters ? letters.forward(last) : last;
    return classesOf({ narrow, out: classes, ...(shares && { shares }) }, { all, last }, mask?.ne(0));
  }
}

function conformerEncoder(c: Config, source: ModelSource): ConformerEncoder {
  c.ignore(...TRAINING, 'adapter_act', 'adapter_kernel_size', 'adapter_stride', 'num_adapter_layers');
  c.only('add_adapter', false);
  c.only('use_intermediate_ffn_before_adapter', false);
  source.ignore(/(^|\.)masked_spec_embed$/);
  const inside = source.names.some((n) => n.startsWith('wav2vec2_bert.'));
  const config = conformerConfig(c, true, storedSpeeds(source, inside ? 'wav2vec2_bert.' : ''));
  const vb = inside ? source.builder.pp('wav2vec2_bert') : source.builder;
  const bands = c.count('feature_projection_input_dim', 160, 1);
  return new ConformerEncoder(vb, config, bands, soundHead(c, source, config.layers));
}
export const CONFORMER_FAMILIES: readonly ModelRow[] = [
  { kind: 'sound', types: ['wav2vec2-bert'], build: conformerEncoder },
];
