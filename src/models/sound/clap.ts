// CLAP: a text (RoBERTa) and a sound (a spectrogram laid out as a picture, seen by Swin) each become one vector, and
// their product says how well they fit. Those with fusion see the whole of a sound and three parts of it.
import { ArgumentError, FormatError } from '../../base/errors.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, linear } from '../../nn/layers.js';
import { Layer, Module } from '../../nn/module.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Bert, bertConfig, ROBERTA } from '../encoders/bert.js';
import { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { FeedForward, reshaped } from '../parts.js';
import { ignoreBookkeeping } from '../vision/clip.js';
import { type SwinConfig, type SwinStage, swinStage } from '../vision/swin.js';
import { sideLengths } from '../vision/vit.js';

/** A narrow convolution of one place and back, with norms. */
class Weighing extends Layer {
  readonly down: Conv2d;
  readonly downNorm: BatchNorm;
  readonly up: Conv2d;
  readonly upNorm: BatchNorm;
  constructor(vb: VarBuilder, width: number, inner: number, first: number) {
    super();
    this.down = conv2d(width, inner, 1, vb.pp(first));
    this.downNorm = batchNorm(inner, vb.pp(first + 1));
    this.up = conv2d(inner, width, 1, vb.pp(first + 3));
    this.upNorm = batchNorm(width, vb.pp(first + 4));
  }
  forward(x: Tensor): Tensor {
    return this.upNorm.forward(this.up.forward(this.downNorm.forward(this.down.forward(x)).relu()));
  }
}
/** How the whole of a sound and its parts become one picture: by how much each counts, here and everywhere. */
class Fusion extends Module {
  readonly parts: Conv2d;
  readonly here: Weighing;
  readonly everywhere: Weighing;
  constructor(vb: VarBuilder, parts: Conv2d, width: number, inner: number) {
    super();
    this.parts = parts;
    this.here = new Weighing(vb.pp('local_att'), width, inner, 0);
    this.everywhere = new Weighing(vb.pp('global_att'), width, inner, 1);
  }
  /** The whole (b, width, h, w) and pictures of parts (b, 3, height, width). */
  forward(whole: Tensor, pictures: Tensor): Tensor {
    const [b, count, ...sides] = pictures.shape;
    const cut = this.parts.forward(pictures.reshape([b * count, 1, ...sides]));
    const [, width, h, w] = cut.shape;
    const side = cut
      .reshape([b, count, width, h, w])
      .permute([0, 2, 3, 1, 4])
      .reshape([b, width, h, count * w]);
    const filled = side.pad([0, whole.shape[3] - count * w, 0, 0]);
    const both = whole.add(filled);
    const share = this.here
      .forward(both)
      .add(this.everywhere.forward(both.mean([2, 3], true)))
      .sigmoid();
    return whole
      .mul(share)
      .add(filled.mul(share.affine(-1, 1)))
      .affine(2, 0);
  }
}

interface HearingConfig {
  readonly swin: SwinConfig;
  readonly bins: number;
  /** The sides of the picture that a spectrogram becomes. */
  readonly side: number;
  readonly patch: readonly [number, number];
  readonly stride: readonly [number, number];
  readonly width: number;
  readonly depths: readonly number[];
  readonly heads: readonly number[];
  readonly normed: boolean;
  /** How narrow the weighing of parts is; none without fusion. */
  readonly fused: number | undefined;
}
class Hearing extends Module {
  readonly even: BatchNorm;
  readonly patches: Conv2d;
  readonly patchNorm: LayerNorm | undefined;
  readonly fusion: Fusion | undefined;
  readonly stages: readonly SwinStage[];
  readonly norm: LayerNorm;
  readonly #c: HearingConfig;
  constructor(vb: VarBuilder, c: HearingConfig) {
    super();
    const { width, patch, stride, depths, heads } = c;
    this.#c = c;
    this.even = batchNorm(c.bins, vb.pp('batch_norm'));
    const at = vb.pp('patch_embed');
    const padding = [0, 1].map((i) => Math.floor((patch[i] - stride[i]) / 2)) as [number, number];
    this.patches = conv2d(1, width, [...patch], at.pp('proj'), { stride: [...stride], padding });
    this.patchNorm = c.normed ? layerNorm(width, at.pp('norm')) : undefined;
    if (c.fused !== undefined) {
      const parts = conv2d(1, width, [patch[0], 3 * patch[1]], at.pp('mel_conv2d'), {
        ...{ stride: [stride[0], 3 * stride[1]], padding },
      });
      this.fusion = new Fusion(at.pp('fusion_model'), parts, width, c.fused);
    }
    const shift = Math.floor(c.swin.window / 2);
    this.stages = depths.map((depth, i) => {
      const own = { width: width * 2 ** i, heads: heads[i], window: c.swin.window, shift, trained: 0 };
      return swinStage(vb.pp('layers', i), c.swin, own, depth, i === depths.length - 1);
    });
    this.norm = layerNorm(width * 2 ** (depths.length - 1), vb.pp('norm'));
  }
  get views(): number {
    return this.fusion ? 4 : 1;
  }
  get bins(): number {
    return this.#c.bins;
  }
  /** Spectrograms (b, views, frames, bins) as pictures (b, views, side, side): strips of time one below the other. */
  #pictures(mel: Tensor): Tensor {
    const { side, bins } = this.#c;
    const ratio = Math.floor(side / bins);
    const [b, views] = mel.shape;
    const [time, bands] = [side * ratio, Math.floor(side / ratio)];
    if (mel.shape[2] > time) throw new ArgumentError(`sound: ${mel.shape[2]} frames; the model hears ${time} at most`);
    let x = mel;
    const sized = (size: [number, number]): Tensor => x.interpolate({ size, mode: 'bicubic', alignCorners: true });
    if (x.shape[2] < time) x = sized([time, bins]);
    if (bins < bands) x = sized([time, bands]);
    return x
      .reshape([b, views * ratio, time / ratio, bands])
      .transpose(2, 3)
      .reshape([b, views, bands * ratio, time / ratio]);
  }
  /** Of spectrograms (b, views, frames, bins), (b, width). */
  forward(mel: Tensor): Tensor {
    const { bins } = this.#c;
    const { views } = this;
    if (mel.rank !== 4 || mel.shape[1] !== views || mel.shape[3] !== bins)
      throw new ArgumentError(
        `sound: spectrograms have shape [${mel.shape.join(', ')}]; the model takes (batch, ${views}, frames, ${bins})`,
      );
    const evened = this.even.forward(mel.transpose(1, 3).contiguous()).transpose(1, 3).contiguous();
    const pictures = this.#pictures(evened);
    let map = this.patches.forward(pictures.narrow(1, 0, 1).contiguous());
    if (this.fusion) map = this.fusion.forward(map, pictures.narrow(1, 1, views - 1).contiguous());
    const [b, width, h, w] = map.shape;
    let x = map
      .reshape([b, width, h * w])
      .transpose(1, 2)
      .contiguous();
    if (this.patchNorm) x = this.patchNorm.forward(x);
    let size: readonly [number, number] = [h, w];
    for (const stage of this.stages) ({ x, size } = stage.forward(x, size));
    return this.norm.forward(x).mean([1]);
  }
}

/** Vectors of length 1. */
const unit = (x: Tensor): Tensor => x.div(x.sqr().sum(-1, true).sqrt());
export class Clap extends Module {
  readonly text: Bert;
  readonly textProjection: FeedForward;
  readonly sound: Hearing;
  readonly soundProjection: FeedForward;
  /** Logarithms of what products become logits by: those of sounds, those of texts. */
  readonly soundScale: Tensor;
  readonly textScale: Tensor;
  constructor(vb: VarBuilder, text: Bert, sound: Hearing, size: number, widths: readonly number[], f: string) {
    super();
    const projection = (name: string, width: number): FeedForward =>
      new FeedForward(linear(width, size, vb.pp(name, 'linear1')), linear(size, size, vb.pp(name, 'linear2')), f);
    this.text = text;
    this.sound = sound;
    this.textProjection = projection('text_projection', widths[0]);
    this.soundProjection = projection('audio_projection', widths[1]);
    const scalar = (name: string): Tensor => reshaped(vb.get(undefined, name), [1]);
    this.soundScale = scalar('logit_scale_a');
    this.textScale = scalar('logit_scale_t');
  }
  /** Vectors of length 1, (texts, width). */
  embedText(ids: Tensor, mask?: Tensor): Tensor {
    const { pooled } = this.text.forward({ ids, ...(mask && { mask }) });
    return unit(this.textProjection.forward(pooled as Tensor));
  }
  /** Vectors of length 1 of spectrograms (sounds, views, frames, bins). */
  embedSound(mel: Tensor): Tensor {
    return unit(this.soundProjection.forward(this.sound.forward(mel)));
  }
  /** Logits (sounds, texts) of vectors of length 1. */
  logits(sounds: Tensor, texts: Tensor): Tensor {
    return sounds.matmul(texts.t()).mul(this.soundScale.exp());
  }
  /** The same as texts have them, (texts, sounds): their scale is trained by itself. */
  textLogits(texts: Tensor, sounds: Tensor): Tensor {
    return texts.matmul(sounds.t()).mul(this.textScale.exp());
  }
}
function pairOf(c: Config, name: string, fallback: number): readonly [number, number] {
  return c.has(name) ? sideLengths(c, name) : [fallback, fallback];
}
function hearing(a: Config, vb: VarBuilder): Hearing {
  ignoreBookkeeping(a);
  a.ignore('num_classes', 'drop_path_rate', 'num_hidden_layers', 'fusion_num_hidden_layers', 'projection_hidden_act');
  a.ignore('attention_probs_dropout_prob', 'hidden_dropout_prob', 'aff_block_r');
  a.only('flatten_patch_embeds', true);
  a.only('patch_embed_input_channels', 1);
  a.only('fusion_type', null, 'aff_2d');
  const list = (name: string, unsaid: readonly number[]): readonly number[] => (a.has(name) ? a.numbers(name) : unsaid);
  const [depths, heads] = [list('depths', [2, 2, 6, 2]), list('num_attention_heads', [4, 8, 16, 32])];
  const width = a.count('patch_embeds_hidden_size', 96, 1);
  a.only('hidden_size', width * 2 ** (depths.length - 1));
  const [bins, side] = [a.count('num_mel_bins', 64, 1), a.count('spec_size', 256, 1)];
  if (heads.length !== depths.length || side % bins !== 0)
    throw new FormatError(
      `${a.where}: audio_config has depths ${JSON.stringify(depths)} and num_attention_heads ${JSON.stringify(heads)}, ` +
        `spec_size ${side} and num_mel_bins ${bins}; the first two are of one length, and bins divide the size`,
    );
  return new Hearing(vb, {
    ...{ bins, side, width, depths, heads },
    patch: pairOf(a, 'patch_size', 4),
    stride: pairOf(a, 'patch_stride', 4),
    normed: a.flag('enable_patch_layer_norm', true),
    fused: a.flag('enable_fusion', false) ? Math.floor(width / a.count('aff_block_r', 4, 1)) : undefined,
    swin: {
      second: false,
      window: a.count('window_size', 8, 1),
      eps: a.number('layer_norm_eps', 1e-5),
      activation: a.activation('hidden_act', 'gelu'),
      ratio: a.number('mlp_ratio', 4),
      biases: a.flag('qkv_bias', true),
    },
  });
}
/** What a config of texts leaves out. */
const TEXT_UNSAID = {
  ...{ vocab_size: 50265, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, intermediate_size: 3072 },
  ...{ max_position_embeddings: 514, type_vocab_size: 1, pad_token_id: 1 },
};
function clap(c: Config, source: ModelSource): Clap {
  c.ignore('logit_scale_init_value', 'initializer_factor', 'hidden_size', 'num_hidden_layers', 'tie_encoder_decoder');
  // Buffers that are counted anew.
  source.ignore(/\.(position_ids|token_type_ids|relative_position_index|num_batches_tracked)$/);
  const inner = (name: string): Config => c.inner(name) ?? new Config({}, c.where);
  const [given, a] = [inner('text_config'), inner('audio_config')];
  const t = new Config(given.json, c.where, 'text_config.', TEXT_UNSAID, c.matters);
  ignoreBookkeeping(t);
  t.ignore('projection_hidden_act', 'fusion_num_hidden_layers', 'classifier_dropout', 'use_cache', 'vocab_size');
  t.ignore('attention_probs_dropout_prob', 'hidden_dropout_prob');
  const size = c.count('projection_dim', 512, 1);
  const f = c.activation('projection_hidden_act', 'relu');
  const config = bertConfig(t, true);
  t.refuseUnread();
  given.ignore(...Object.keys(given.json));
  const vb = source.builder;
  const text = new Bert(vb.pp('text_model'), config, ROBERTA);
  const sound = hearing(a, vb.pp('audio_model.audio_encoder'));
  const [width] = sound.norm.weight?.shape ?? [0];
  return new Clap(vb, text, sound, size, [config.width, width], f);
}
export const CLAP_FAMILIES: readonly ModelRow[] = [{ kind: 'sound-text', types: ['clap'], build: clap }];
