// What networks of stages are made of: maps that become smaller and wider, the mean of the last one's places, a product.
import type { Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { ModelSource } from '../files/source.js';
import type { Bend, NormedConv } from './normed-conv.js';
import { checkPixels, type pictureHead, VisionModel } from './vision-model.js';

export interface Stage {
  forward(x: Tensor): Tensor;
}
/** Stages one after the other, the mean of all places, a product. */
export class ConvNet extends VisionModel {
  readonly stages: readonly (Stage & Module)[];
  readonly channels: number;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  readonly #pool: 'mean' | 'max';
  constructor(
    stages: readonly (Stage & Module)[],
    channels: number,
    head: ReturnType<typeof pictureHead>,
    pool: 'mean' | 'max' = 'mean',
  ) {
    super();
    this.stages = stages;
    this.channels = channels;
    this.classifier = head.classifier;
    this.labels = head.labels;
    this.#pool = pool;
  }
  hidden(pixels: Tensor): Tensor {
    checkPixels(pixels, this.channels);
    return this.stages.reduce((x, stage) => stage.forward(x), pixels);
  }
  pooled(hidden: Tensor): Tensor {
    return this.#pool === 'max' ? hidden.max([2, 3]) : hidden.mean([2, 3]);
  }
}
/** What is made of x, added to x, or to what a shortcut makes of it; then an activation. */
export class Branch extends Module {
  readonly stages: readonly (Stage & Module)[];
  readonly shortcut: NormedConv | undefined;
  readonly #adds: boolean;
  readonly #bend: Bend | undefined;
  constructor(
    stages: readonly (Stage & Module)[],
    o: { readonly adds: boolean; readonly shortcut?: NormedConv | undefined; readonly bend?: Bend },
  ) {
    super();
    this.stages = stages;
    this.shortcut = o.shortcut;
    this.#adds = o.adds;
    this.#bend = o.bend;
  }
  forward(x: Tensor): Tensor {
    const y = this.stages.reduce((h, stage) => stage.forward(h), x);
    if (!this.#adds) return y;
    const sum = y.add(this.shortcut ? this.shortcut.forward(x) : x);
    return this.#bend ? this.#bend(sum) : sum;
  }
}
/** The network inside a classifier. */
export function within(source: ModelSource, prefix: string): VarBuilder {
  source.ignore(/\.num_batches_tracked$/);
  return source.names.some((n) => n.startsWith(`${prefix}.`)) ? source.builder.pp(prefix) : source.builder;
}

/** To the nearest multiple, but never more than a tenth less. */
export function divisible(n: number, by: number, least = by): number {
  const near = Math.max(least, Math.floor(Math.trunc(n + by / 2) / by) * by);
  return near < 0.9 * n ? near + by : near;
}
