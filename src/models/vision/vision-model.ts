// What all vision models answer: vectors of places in a picture, and its classes or the vector of the whole.
import { ArgumentError } from '../../base/errors.js';
import { type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';

export abstract class VisionModel extends Module {
  /** From the picture's vector to a number a class, where the files are a classifier's. */
  abstract readonly classifier: Linear | undefined;
  /** The classes' names, by number. */
  abstract readonly labels: readonly string[];
  /** The last vectors, (b, places, width), or of networks of convolutions (b, width, height, width of the picture). */
  abstract hidden(pixels: Tensor): Tensor;
  /** The picture's vector, (b, width), of these. */
  abstract pooled(hidden: Tensor): Tensor;
  /** Logits of the classes, (b, classes); without a classifier the picture's vector. */
  forward(pixels: Tensor): Tensor {
    const vector = this.pooled(this.hidden(pixels));
    return this.classifier ? this.classifier.forward(vector) : vector;
  }
}

/** The names of so many classes, as a config tells them. */
export function labelsOf(c: Config, count: number): readonly string[] {
  const given = (c.get('id2label') ?? {}) as Record<string, string>;
  return Array.from({ length: count }, (_, i) => given[i] ?? `LABEL_${i}`);
}
/** A classifier's last product and its classes' names; none where files end with the picture's vector. */
export function pictureHead(
  c: Config,
  source: ModelSource,
  width: number,
  name = 'classifier',
): { readonly classifier: Linear | undefined; readonly labels: readonly string[] } {
  c.ignore('id2label');
  if (!source.has(`${name}.weight`)) return { classifier: undefined, labels: [] };
  const [count] = source.shapeOf(`${name}.weight`);
  return { classifier: linear(width, count, source.builder.pp(name)), labels: labelsOf(c, count) };
}
/** Fields of models that are cut up for other networks to look into, which change nothing here. */
export function ignoreStages(c: Config): void {
  c.ignore('out_features', 'out_indices', 'stage_names', 'reshape_hidden_states', 'apply_layernorm', 'drop_path_rate');
  c.ignore('encoder_stride', 'layerscale_value', 'layer_scale_init_value');
}
/** Refuses what is no batch of pictures with so many channels. */
export function checkPixels(pixels: Tensor, channels: number): void {
  if (pixels.rank !== 4 || pixels.shape[1] !== channels)
    throw new ArgumentError(
      `vision: pixels have shape [${pixels.shape.join(', ')}]; the model takes (batch, ${channels}, height, width)`,
    );
}
