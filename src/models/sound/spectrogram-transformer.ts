// The audio spectrogram transformer (AST): a spectrogram is a picture of one channel, cut into patches that overlap.
import { ArgumentError } from '../../base/errors.js';
import { type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import type { PreNormBlock } from '../parts.js';
import type { ModelSource } from '../files/source.js';
import { blocksOf, Patches, type TowerConfig, VIT_NAMES } from '../vision/vit.js';

interface SpectrogramConfig extends TowerConfig {
  /** Bins and frames of a spectrogram. */
  readonly size: readonly [bins: number, frames: number];
  readonly patch: number;
  readonly strides: readonly [across: number, along: number];
  readonly biases: boolean;
}

/** Spectrograms (b, frames, bins) to classes of sounds. */
export class SpectrogramTransformer extends Module {
  readonly patches: Patches;
  readonly tokens: readonly Tensor[];
  readonly positions: Tensor;
  readonly blocks: PreNormBlock[];
  readonly norm: LayerNorm;
  readonly classNorm: LayerNorm | undefined;
  readonly classifier: Linear | undefined;
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  readonly #size: readonly [number, number];
  constructor(
    vb: VarBuilder,
    c: SpectrogramConfig,
    head: { readonly norm: LayerNorm; readonly out: Linear } | undefined,
    labels: readonly string[],
  ) {
    super();
    this.#size = c.size;
    const e = vb.pp('embeddings');
    const at = e.pp('patch_embeddings.projection');
    this.patches = new Patches(at, 1, c.width, c.size, [c.patch, c.patch], true, c.strides);
    const counts = c.size.map((n, i) => Math.floor((n - c.patch) / c.strides[i]) + 1);
    this.tokens = ['cls_token', 'distillation_token'].map((name) => e.get([1, 1, c.width], name));
    this.positions = e.get([1, counts[0] * counts[1] + 2, c.width], 'position_embeddings');
    this.blocks = blocksOf(vb.pp('encoder.layer'), c, {
      ...VIT_NAMES,
      attention: { ...VIT_NAMES.attention, biases: c.biases ? ['q', 'k', 'v', 'out'] : ['out'] },
    });
    this.norm = layerNorm(c.width, vb.pp('layernorm'), { eps: c.eps });
    this.classNorm = head?.norm;
    this.classifier = head?.out;
    this.labels = labels;
  }
  /** Bands of a spectrogram's frame. */
  get bins(): number {
    return this.#size[0];
  }
  /** Frames of a spectrogram. */
  get frames(): number {
    return this.#size[1];
  }
  /** Vectors of two learnt tokens and of the patches, (b, places, width). */
  hidden(frames: Tensor): Tensor {
    const [b, t, bins] = frames.shape;
    if (frames.rank !== 3 || bins !== this.#size[0] || t !== this.#size[1])
      throw new ArgumentError(
        `spectrogram: it has shape [${frames.shape.join(', ')}]; the model takes (batch, ${this.#size[1]}, ` +
          `${this.#size[0]})`,
      );
    const p = this.patches.forward(frames.transpose(1, 2).contiguous().unsqueeze(1));
    const [first, second] = this.tokens.map((token) => token.broadcastTo([b, 1, p.shape[2]]));
    const x = first.cat([second, p], 1).add(this.positions);
    return this.norm.forward(this.blocks.reduce((h, block) => block.forward(h), x));
  }
  /** Logits of the classes, (b, classes); without a classifier the mean of both tokens' vectors. */
  forward(frames: Tensor): Tensor {
    const mean = this.hidden(frames).narrow(1, 0, 2).mean([1]);
    return this.classNorm && this.classifier ? this.classifier.forward(this.classNorm.forward(mean)) : mean;
  }
}

function spectrogramTransformer(c: Config, source: ModelSource): SpectrogramTransformer {
  const width = c.count('hidden_size');
  const config: SpectrogramConfig = {
    width,
    layers: c.count('num_hidden_layers'),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: c.count('intermediate_size'),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.activation('hidden_act', 'gelu'),
    size: [c.count('num_mel_bins', 128, 1), c.count('max_length', 1024, 1)],
    patch: c.count('patch_size', 16, 1),
    strides: [c.count('frequency_stride', 10, 1), c.count('time_stride', 10, 1)],
    biases: c.flag('qkv_bias', true),
  };
  const prefix = 'audio_spectrogram_transformer';
  const vb = source.builder;
  const head = source.has('classifier.dense.weight')
    ? {
        norm: layerNorm(width, vb.pp('classifier.layernorm'), { eps: config.eps }),
        out: linear(width, source.shapeOf('classifier.dense.weight')[0], vb.pp('classifier.dense')),
      }
    : undefined;
  const labels = Object.values((c.get('id2label') ?? {}) as Record<string, string>);
  const inside = source.names.some((n) => n.startsWith(`${prefix}.`));
  return new SpectrogramTransformer(inside ? vb.pp(prefix) : vb, config, head, labels);
}
export const SPECTROGRAM_FAMILIES: readonly ModelRow[] = [
  { kind: 'sound', types: ['audio-spectrogram-transformer'], build: spectrogramTransformer },
];
