// Whisper: a log-mel spectrogram through two convolutions and an encoder; a decoder that writes what was said.
import { ArgumentError } from '../../base/errors.js';
import {
  type Conv1d,
  conv1d,
  type Embedding,
  embedding,
  type LayerNorm,
  layerNorm,
  Linear,
  linear,
} from '../../nn/layers.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import { CrossBlock } from '../seq2seq/bart.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import { type MultiHead, rowTable } from '../parts.js';
import { freshAnswer, Seq2Seq, type Seq2SeqState } from '../seq2seq/seq2seq.js';
import type { ModelSource } from '../files/source.js';

export interface WhisperConfig {
  readonly vocabSize: number;
  readonly width: number;
  readonly bins: number;
  readonly sourcePositions: number;
  readonly targetPositions: number;
  readonly activation: string;
}
/** Keys have no bias. */
const BIASES = ['q', 'v', 'out'] as const;

export class Whisper extends Seq2Seq {
  readonly config: WhisperConfig;
  readonly conv1: Conv1d;
  readonly conv2: Conv1d;
  readonly sourcePositions: Embedding;
  readonly encoderBlocks: CrossBlock[];
  readonly encoderNorm: LayerNorm;
  readonly words: Embedding;
  readonly targetPositions: Embedding;
  readonly decoderBlocks: CrossBlock[];
  readonly decoderNorm: LayerNorm;
  readonly head: Linear;

  constructor(
    vb: VarBuilder,
    c: WhisperConfig,
    encoder: readonly [layers: number, heads: number, inner: number],
    decoder: readonly [layers: number, heads: number, inner: number],
    tied: boolean,
  ) {
    super();
    this.config = c;
    const blocks = (at: VarBuilder, [layers, heads, inner]: typeof encoder, isDecoder: boolean): CrossBlock[] =>
      Array.from(
        { length: layers },
        (_, i) =>
          new CrossBlock(at.pp('layers', i), {
            ...{ width: c.width, heads, inner, activation: c.activation },
            ...{ decoder: isDecoder, before: true, biases: BIASES },
          }),
      );
    const [e, d] = [vb.pp('model.encoder'), vb.pp('model.decoder')];
    this.conv1 = conv1d(c.bins, c.width, 3, e.pp('conv1'), { padding: 1 });
    this.conv2 = conv1d(c.width, c.width, 3, e.pp('conv2'), { padding: 1, stride: 2 });
    this.sourcePositions = rowTable(c.sourcePositions, c.width, e.pp('embed_positions'));
    this.encoderBlocks = blocks(e, encoder, false);
    this.encoderNorm = layerNorm(c.width, e.pp('layer_norm'));
    this.words = embedding(c.vocabSize, c.width, d.pp('embed_tokens'));
    this.targetPositions = rowTable(c.targetPositions, c.width, d.pp('embed_positions'));
    this.decoderBlocks = blocks(d, decoder, true);
    this.decoderNorm = layerNorm(c.width, d.pp('layer_norm'));
    this.head = tied ? new Linear(this.words.weight) : linear(c.width, c.vocabSize, vb.pp('proj_out'), { bias: false });
  }
  /** Log-mel features (b, bins, 2 * positions) as vectors (b, positions, width). */
  encode(features: Tensor): Tensor {
    const [, bins, frames] = features.shape;
    const { sourcePositions, bins: wanted } = this.config;
    if (features.rank !== 3 || bins !== wanted || frames !== 2 * sourcePositions)
      throw new ArgumentError(
        `whisper: features have shape [${features.shape.join(', ')}]; the model takes (batch, ${wanted}, ` +
          `${2 * sourcePositions})`,
      );
    // Always gelu, whatever activation the blocks have.
    const heard = this.conv2.forward(this.conv1.forward(features).geluErf()).geluErf();
    let x = heard.transpose(1, 2).add(this.sourcePositions.weight); // (b, t, width)
    for (const block of this.encoderBlocks) x = block.forward(x, {});
    return this.encoderNorm.forward(x);
  }
  begin(encoded: Tensor): Seq2SeqState {
    const crosses = this.decoderBlocks.map((b) => b.cross as MultiHead);
    return freshAnswer(crosses, encoded);
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    const start = state.caches?.[0]?.length ?? 0;
    const t = ids.shape[1];
    if (start + t > this.config.targetPositions)
      throw new ArgumentError(`whisper: ${start + t} tokens, the model has ${this.config.targetPositions} positions`);
    let x = this.words.forward(ids).add(this.targetPositions.weight.narrow(0, start, t));
    this.decoderBlocks.forEach((block, i) => {
      const cache = state.caches?.[i];
      x = block.forward(x, { causal: true, ...(cache && { cache }) }, { ready: state.crossed[i] });
    });
    return this.head.forward(this.decoderNorm.forward(x));
  }
}

function whisper(c: Config, source: ModelSource): Whisper {
  c.ignore(
    'apply_spec_augment',
    'mask_feature_length',
    'mask_feature_min_masks',
    'mask_feature_prob',
    'mask_time_length',
  );
  c.ignore(
    'mask_time_min_masks',
    'mask_time_prob',
    'median_filter_width',
    'classifier_proj_size',
    'use_weighted_layer_sum',
  );
  c.ignore('encoder_layerdrop', 'decoder_layerdrop', 'init_std', 'forced_decoder_ids', 'num_hidden_layers');
  c.ignore('scale_embedding'); // written, and read by no program
  const words = 'model.decoder.embed_tokens.weight';
  const tied = c.flag('tie_word_embeddings', true) && source.isTied('proj_out.weight', words);
  const side = (name: string): readonly [number, number, number] => [
    c.count(`${name}_layers`),
    c.count(`${name}_attention_heads`, undefined, 1),
    c.count(`${name}_ffn_dim`),
  ];
  const width = c.count('d_model');
  if (tied) source.ignore(/^proj_out\.weight$/);
  const config: WhisperConfig = {
    vocabSize: c.count('vocab_size'),
    width,
    bins: c.count('num_mel_bins'),
    sourcePositions: c.count('max_source_positions'),
    targetPositions: c.count('max_target_positions'),
    activation: c.activation('activation_function', 'gelu'),
  };
  return new Whisper(source.builder, config, side('encoder'), side('decoder'), tied);
}
export const WHISPER_FAMILIES: readonly ModelRow[] = [{ kind: 'speech', types: ['whisper'], build: whisper }];
