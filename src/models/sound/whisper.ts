// Whisper: a half that hears a log-mel spectrogram, and a decoder that writes what was said.
import { ArgumentError } from '../../base/errors.js';
import { type Embedding, embedding, type LayerNorm, layerNorm, Linear, linear } from '../../nn/layers.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { CrossBlock } from '../seq2seq/bart.js';
import type { Config } from '../files/config.js';
import type { ModelKind, ModelRow } from '../model-row.js';
import { type MultiHead, rowTable } from '../parts.js';
import { freshAnswer, Seq2Seq, type Seq2SeqState } from '../seq2seq/seq2seq.js';
import type { ModelSource } from '../files/source.js';
import {
  hearsClasses,
  type WhisperClassifier,
  whisperClassifier,
  WhisperEncoder,
  type WhisperSide,
  whisperSide,
  type WhisperSizes,
  whisperSizes,
  whisperBlocks,
} from './whisper-encoder.js';

export interface WhisperConfig extends WhisperSizes {
  readonly vocabSize: number;
  readonly targetPositions: number;
}

export class Whisper extends Seq2Seq {
  readonly config: WhisperConfig;
  readonly encoder: WhisperEncoder;
  readonly words: Embedding;
  readonly targetPositions: Embedding;
  readonly decoderBlocks: CrossBlock[];
  readonly decoderNorm: LayerNorm;
  readonly head: Linear;

  constructor(vb: VarBuilder, c: WhisperConfig, encoder: WhisperSide, decoder: WhisperSide, tied: boolean) {
    super();
    this.config = c;
    const d = vb.pp('model.decoder');
    this.encoder = new WhisperEncoder(vb.pp('model.encoder'), c, encoder);
    this.words = embedding(c.vocabSize, c.width, d.pp('embed_tokens'));
    this.targetPositions = rowTable(c.targetPositions, c.width, d.pp('embed_positions'));
    this.decoderBlocks = whisperBlocks(d, c, decoder, true);
    this.decoderNorm = layerNorm(c.width, d.pp('layer_norm'));
    this.head = tied ? new Linear(this.words.weight) : linear(c.width, c.vocabSize, vb.pp('proj_out'), { bias: false });
  }
  /** Log-mel features (b, bins, 2 * positions) as vectors (b, positions, width). */
  encode(features: Tensor): Tensor {
    return this.encoder.forward(features);
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

function whisper(c: Config, source: ModelSource): Whisper | WhisperClassifier {
  c.ignore('apply_spec_augment', 'mask_feature_length', 'mask_feature_min_masks', 'mask_feature_prob');
  c.ignore('mask_time_length', 'mask_time_min_masks', 'mask_time_prob', 'median_filter_width', 'num_hidden_layers');
  c.ignore('encoder_layerdrop', 'decoder_layerdrop', 'init_std', 'forced_decoder_ids');
  c.ignore('scale_embedding'); // written, and read by no program
  if (hearsClasses(source)) return whisperClassifier(c, source);
  c.ignore('classifier_proj_size', 'use_weighted_layer_sum');
  const words = 'model.decoder.embed_tokens.weight';
  const tied = c.flag('tie_word_embeddings', true) && source.isTied('proj_out.weight', words);
  if (tied) source.ignore(/^proj_out\.weight$/);
  const config: WhisperConfig = {
    ...whisperSizes(c),
    vocabSize: c.count('vocab_size'),
    targetPositions: c.count('max_target_positions'),
  };
  return new Whisper(source.builder, config, whisperSide(c, 'encoder'), whisperSide(c, 'decoder'), tied);
}
const hears = (_: Config, source: ModelSource): ModelKind => (hearsClasses(source) ? 'sound' : 'speech');
export const WHISPER_FAMILIES: readonly ModelRow[] = [
  { kind: 'speech', types: ['whisper'], kindOf: hears, build: whisper },
];
