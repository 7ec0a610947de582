// VideoMAE: a vision transformer over cubes of a film, some frames deep. All cubes are seen: hiding some is a matter of
// training, and so is what draws them again.
import { ArgumentError } from '../../base/errors.js';
import { Conv2d, type LayerNorm, layerNorm } from '../../nn/layers.js';
import type { Linear } from '../../nn/layers.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { madeOf, type PreNormBlock } from '../parts.js';
import { ignoreStages, pictureHead, VisionModel } from './vision-model.js';
import { blocksOf, sideLengths, type TowerConfig, VIT_NAMES } from './vit.js';

interface FilmConfig extends TowerConfig, Record<'image' | 'patch', readonly [number, number]> {
  readonly channels: number;
  readonly frames: number;
  /** How many frames a cube is deep. */
  readonly depth: number;
}
type Parts = Pick<VideoMae, 'cubes' | 'blocks' | 'norm' | 'headNorm'>;

class VideoMae extends VisionModel {
  /** A cube's frames are channels of one picture. */
  readonly cubes: Conv2d;
  readonly blocks: PreNormBlock[];
  /** None where the mean of all places is read. */
  readonly norm: LayerNorm | undefined;
  /** Of the mean, before the classes. */
  readonly headNorm: LayerNorm | undefined;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  readonly #config: FilmConfig;
  constructor(parts: Parts, config: FilmConfig, head: ReturnType<typeof pictureHead>) {
    super();
    this.cubes = parts.cubes;
    this.blocks = parts.blocks;
    this.norm = parts.norm;
    this.headNorm = parts.headNorm;
    this.classifier = head.classifier;
    this.labels = head.labels;
    this.#config = config;
  }
  /** Sines and cosines of places, (1, places, width). */
  #places(count: number, like: Tensor): Tensor {
    const { width } = this.#config;
    const data = Float32Array.from({ length: count * width }, (_, i) => {
      const [at, j] = [Math.floor(i / width), i % width];
      const angle = at / 10_000 ** ((2 * Math.floor(j / 2)) / width);
      return j % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
    });
    return tensor(data, { shape: [1, count, width], device: like.device }).cast(like.dtype);
  }
  /** Of films (b, frames, channels, height, width). */
  hidden(films: Tensor): Tensor {
    const { channels, frames, depth, image } = this.#config;
    const want = [frames, channels, ...image];
    if (films.rank !== 5 || want.some((n, i) => films.shape[i + 1] !== n))
      throw new ArgumentError(
        `vision: films have shape [${films.shape.join(', ')}]; the model takes (batch, ${want.join(', ')})`,
      );
    const [b, deep] = [films.shape[0], Math.floor(frames / depth)];
    const whole = films.narrow(1, 0, deep * depth).reshape([b * deep, depth * channels, ...image]);
    const y = this.cubes.forward(whole); // (b * deep, width, down, across)
    const width = y.shape[1];
    const cubes = y.reshape([b, deep, width, -1]).permute([0, 1, 3, 2]).reshape([b, -1, width]);
    const x = this.blocks.reduce((h, block) => block.forward(h), cubes.add(this.#places(cubes.shape[1], cubes)));
    return this.norm?.forward(x) ?? x;
  }
  pooled(hidden: Tensor): Tensor {
    if (this.norm) return hidden.narrow(1, 0, 1).squeeze(1);
    const mean = hidden.mean([1]);
    return this.headNorm?.forward(mean) ?? mean;
  }
}

/** Filters (width, channels, depth, h, w) over pictures whose channels are those of a cube's frames, one by one. */
function cubesOf(vb: VarBuilder, { width, channels, depth, patch }: FilmConfig): Conv2d {
  const weight = madeOf(vb, (read) =>
    read([width, channels, depth, ...patch], 'weight')
      .transpose(1, 2)
      .reshape([width, depth * channels, ...patch])
      .copy(),
  );
  return new Conv2d(weight, vb.get([width], 'bias'), { stride: patch });
}

function videoMae(c: Config, source: ModelSource): VideoMae {
  ignoreStages(c);
  c.ignore('decoder_hidden_size', 'decoder_intermediate_size', 'decoder_num_attention_heads', 'norm_pix_loss');
  c.ignore('decoder_num_hidden_layers');
  source.ignore(/^(decoder\.|encoder_to_decoder\.|mask_token$)/);
  const config: FilmConfig = {
    width: c.count('hidden_size', 768, 1),
    layers: c.count('num_hidden_layers', 12),
    heads: c.count('num_attention_heads', 12, 1),
    inner: c.count('intermediate_size', 3072),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.activation('hidden_act', 'gelu'),
    image: c.has('image_size') ? sideLengths(c, 'image_size') : [224, 224],
    patch: c.has('patch_size') ? sideLengths(c, 'patch_size') : [16, 16],
    channels: c.count('num_channels', 3),
    frames: c.count('num_frames', 16, 1),
    depth: c.count('tubelet_size', 2, 1),
  };
  const whole = source.builder.rename((n) =>
    n.replace(/attention\.(q)uery\.bias$|attention\.(v)alue\.bias$/, biasName),
  );
  const vb = source.has('videomae.embeddings.patch_embeddings.projection.weight') ? whole.pp('videomae') : whole;
  const biased = c.flag('qkv_bias', c.flag('qv_bias', true));
  const biases = biased ? (['q', 'v', 'out'] as const) : (['out'] as const);
  const mean = c.flag('use_mean_pooling', true);
  const head = pictureHead(c, source, config.width);
  const parts: Parts = {
    cubes: cubesOf(vb.pp('embeddings.patch_embeddings.projection'), config),
    blocks: blocksOf(vb.pp('encoder.layer'), config, {
      ...VIT_NAMES,
      attention: { ...VIT_NAMES.attention, biases },
    }),
    norm: mean ? undefined : layerNorm(config.width, vb.pp('layernorm'), { eps: config.eps }),
    headNorm:
      mean && head.classifier ? layerNorm(config.width, source.builder.pp('fc_norm'), { eps: 1e-5 }) : undefined,
  };
  return new VideoMae(parts, config, head);
}
/** Biases of queries and values lie beside their products. */
const biasName = (_: string, q?: string, v?: string): string => `attention.${q ?? v}_bias`;
export const VIDEO_MAE_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['videomae'], build: videoMae }];
