// The half of Whisper that hears: a log-mel spectrogram through two convolutions and blocks of attention. By itself,
// with a head behind it, it sorts sounds.
import { ArgumentError, FormatError } from '../../base/errors.js';
import { type Conv1d, conv1d, type Embedding, type LayerNorm, layerNorm, type Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import { rowTable } from '../parts.js';
import { CrossBlock } from '../seq2seq/bart.js';
import { classesOf, type SoundHead, soundHead } from './wav2vec2.js';

/** What both halves have in common. */
export interface WhisperSizes {
  readonly width: number;
  readonly bins: number;
  readonly sourcePositions: number;
  /** Of the blocks; the convolutions have gelu. */
  readonly activation: string;
}
/** Layers of a half, their heads and their feed-forward's width. */
export type WhisperSide = readonly [layers: number, heads: number, inner: number];
/** Keys have no bias. */
const BIASES = ['q', 'v', 'out'] as const;

export const whisperBlocks = (
  vb: VarBuilder,
  { width, activation }: WhisperSizes,
  [layers, heads, inner]: WhisperSide,
  decoder: boolean,
): CrossBlock[] =>
  Array.from(
    { length: layers },
    (_, i) =>
      new CrossBlock(vb.pp('layers', i), { width, heads, inner, activation, decoder, before: true, biases: BIASES }),
  );
export const whisperSizes = (c: Config): WhisperSizes => ({
  width: c.count('d_model'),
  bins: c.count('num_mel_bins'),
  sourcePositions: c.count('max_source_positions'),
  activation: c.activation('activation_function', 'gelu'),
});
export const whisperSide = (c: Config, name: 'encoder' | 'decoder'): WhisperSide => [
  c.count(`${name}_layers`),
  c.count(`${name}_attention_heads`, undefined, 1),
  c.count(`${name}_ffn_dim`),
];

export class WhisperEncoder extends Module {
  readonly conv1: Conv1d;
  readonly conv2: Conv1d;
  readonly positions: Embedding;
  readonly blocks: CrossBlock[];
  readonly norm: LayerNorm;
  readonly #sizes: WhisperSizes;
  constructor(vb: VarBuilder, sizes: WhisperSizes, side: WhisperSide) {
    super();
    const { bins, width, sourcePositions } = sizes;
    this.#sizes = sizes;
    this.conv1 = conv1d(bins, width, 3, vb.pp('conv1'), { padding: 1 });
    this.conv2 = conv1d(width, width, 3, vb.pp('conv2'), { padding: 1, stride: 2 });
    this.positions = rowTable(sourcePositions, width, vb.pp('embed_positions'));
    this.blocks = whisperBlocks(vb, sizes, side, false);
    this.norm = layerNorm(width, vb.pp('layer_norm'));
  }
  /** Bands of a spectrogram. */
  get bins(): number {
    return this.#sizes.bins;
  }
  /** Frames of a spectrogram. */
  get frames(): number {
    return 2 * this.#sizes.sourcePositions;
  }
  /** What goes into the first block and what comes out of each, (b, positions, width); the last is normed. */
  layers(features: Tensor): { readonly all: Tensor[]; readonly last: Tensor } {
    const [, bins, frames] = features.shape;
    if (features.rank !== 3 || bins !== this.bins || frames !== this.frames)
      throw new ArgumentError(
        `whisper: features have shape [${features.shape.join(', ')}]; the model takes (batch, ${this.bins}, ` +
          `${this.frames})`,
      );
    // Always gelu, whatever activation the blocks have.
    const heard = this.conv2.forward(this.conv1.forward(features).geluErf()).geluErf();
    const all = [heard.transpose(1, 2).add(this.positions.weight)];
    for (const block of this.blocks) all.push(block.forward(all.at(-1) as Tensor, {}));
    const last = this.norm.forward(all.pop() as Tensor);
    return { all: [...all, last], last };
  }
  /** Log-mel features (b, bins, frames) as vectors (b, positions, width). */
  forward(features: Tensor): Tensor {
    return this.layers(features).last;
  }
}

/** Log-mel spectrograms to classes. */
export class WhisperClassifier extends Module {
  readonly encoder: WhisperEncoder;
  readonly narrow: Linear;
  readonly classes: Linear;
  /** How much each layer's vectors count. */
  readonly shares: Tensor | undefined;
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  constructor(encoder: WhisperEncoder, head: Required<Pick<SoundHead, 'classes'>> & SoundHead) {
    super();
    this.encoder = encoder;
    this.narrow = head.classes.narrow;
    this.classes = head.classes.out;
    this.shares = head.classes.shares;
    this.labels = head.labels;
  }
  /** Logits of the classes, (b, classes), of features (b, bins, frames). */
  forward(features: Tensor): Tensor {
    const { narrow, classes: out, shares } = this;
    return classesOf({ narrow, out, ...(shares && { shares }) }, this.encoder.layers(features), undefined);
  }
}

/** Files of a classifier have a head behind the half that hears, and no half that writes. */
export const hearsClasses = (source: ModelSource): boolean => source.has('classifier.weight');
export function whisperClassifier(c: Config, source: ModelSource): WhisperClassifier {
  const unused = ['layers', 'attention_heads', 'ffn_dim'].map((name) => `decoder_${name}`);
  c.ignore(...unused, 'max_target_positions', 'tie_word_embeddings');
  const side = whisperSide(c, 'encoder');
  const { classes, labels } = soundHead(c, source, side[0]);
  if (!classes) throw new FormatError(`${source.path}: there is a classifier.weight and no projector.weight`);
  return new WhisperClassifier(new WhisperEncoder(source.builder.pp('encoder'), whisperSizes(c), side), {
    classes,
    labels,
  });
}
