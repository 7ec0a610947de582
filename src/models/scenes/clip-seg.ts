// CLIPSeg: what a few layers of CLIP's seeing half made of a picture, and the vector of a text or of another picture,
// become a number for each pixel: whether it is what was asked for.
import { UnsupportedError } from '../../base/errors.js';
import {
  type Conv2d,
  conv2d,
  type ConvTranspose2d,
  convTranspose2d,
  type LayerNorm,
  layerNorm,
  type Linear,
  linear,
} from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, type MultiHead, multiHead } from '../parts.js';
import { type ImageText, imageText } from '../vision/clip.js';
import { asPicture } from '../vision/seg-body.js';

interface DecoderConfig {
  /** The picture's vectors, these as they are read, and the vector of what is asked for. */
  readonly widths: readonly [seen: number, read: number, asked: number];
  readonly heads: number;
  readonly inner: number;
  readonly eps: number;
  /** Layers of CLIP that are read. */
  readonly layers: readonly number[];
  /** In which of its own layers it learns what is asked for. */
  readonly asks: number;
  readonly patch: number;
  readonly stepped: boolean;
}
const PRODUCTS = { q: 'self_attn.q_proj', k: 'self_attn.k_proj', v: 'self_attn.v_proj', out: 'self_attn.out_proj' };
class PostNormLayer extends Module {
  readonly attention: MultiHead;
  readonly norm1: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm2: LayerNorm;
  constructor(vb: VarBuilder, { widths: [, width], heads, inner, eps }: DecoderConfig) {
    super();
    this.attention = multiHead(vb, PRODUCTS, width, heads);
    this.norm1 = layerNorm(width, vb.pp('layer_norm1'), { eps });
    this.mlp = feedForward(vb, ['mlp.fc1', 'mlp.fc2'], width, inner, 'relu');
    this.norm2 = layerNorm(width, vb.pp('layer_norm2'), { eps });
  }
  forward(x: Tensor): Tensor {
    const y = this.norm1.forward(x.add(this.attention.forward(x)));
    return this.norm2.forward(y.add(this.mlp.forward(y)));
  }
}

export class ClipSegmenter extends Module {
  readonly clip: ImageText;
  readonly times: Linear;
  readonly plus: Linear;
  readonly reduces: readonly Linear[];
  readonly layers: readonly PostNormLayer[];
  /** From places to pixels, in one step, or with bends between several. */
  readonly widen: readonly (Conv2d | ConvTranspose2d)[];
  readonly #config: DecoderConfig;
  constructor(vb: VarBuilder, clip: ImageText, c: DecoderConfig) {
    super();
    this.clip = clip;
    this.#config = c;
    const [seen, width, asked] = c.widths;
    this.times = linear(asked, width, vb.pp('film_mul'));
    this.plus = linear(asked, width, vb.pp('film_add'));
    this.reduces = c.layers.map((_, i) => linear(seen, width, vb.pp('reduces', i)));
    this.layers = c.layers.map((_, i) => new PostNormLayer(vb.pp('layers', i), c));
    const at = vb.pp('transposed_convolution');
    const [half, step] = [Math.floor(width / 2), Math.floor(c.patch / 4)];
    this.widen = c.stepped
      ? [
          conv2d(width, width, 3, at.pp(0), { padding: 1 }),
          convTranspose2d(width, half, step, at.pp(2), { stride: step }),
          convTranspose2d(half, 1, step, at.pp(4), { stride: step }),
        ]
      : [convTranspose2d(width, 1, c.patch, at, { stride: c.patch })];
  }
  /** Logits (things, height, width) of vectors (things, width) of texts or pictures, of one picture or as many. */
  forward(pixels: Tensor, asked: Tensor): Tensor {
    const { layers, asks, patch } = this.#config;
    const seen = this.clip.vision.layers(pixels);
    const [times, plus] = [this.times, this.plus].map((product) => product.forward(asked).unsqueeze(1));
    let x: Tensor | undefined;
    // The last of CLIP's layers is read first.
    [...layers].reverse().forEach((layer, i) => {
      const read = this.reduces[i].forward(seen[layer + 1]);
      const sum = x ? x.add(read) : read;
      x = this.layers[i].forward(i === asks ? sum.mul(times).add(plus) : sum);
    });
    const [h, w] = [2, 3].map((i) => Math.floor(pixels.shape[i] / patch));
    const map = asPicture((x as Tensor).narrow(1, 1, h * w), h, w);
    return this.widen.reduce((y, conv, i) => conv.forward(i > 0 ? y.relu() : y), map).squeeze(1);
  }
}

function clipSeg(c: Config, source: ModelSource): ClipSegmenter {
  // Layers bend as a plain rectifier does, whatever the field says.
  c.ignore('decoder_hidden_act', 'decoder_attention_dropout');
  const clip = imageText(c, source, { kind: 'clip', others: 'between' }, source.builder.pp('clip'));
  const layers = c.has('extract_layers') ? c.numbers('extract_layers') : [3, 6, 9];
  const most = clip.vision.blocks.length;
  const odd = layers.find((layer) => !(Number.isInteger(layer) && layer >= 0 && layer < most));
  const asks = c.count('conditional_layer', 0);
  if (layers.length === 0 || odd !== undefined || asks >= layers.length)
    throw new UnsupportedError(
      `${c.where}: extract_layers is ${JSON.stringify(layers)} and conditional_layer ${asks}; served are layers from 0 ` +
        `to ${most - 1}, and one of them by its place`,
    );
  const [, , ...patch] = clip.vision.patches.conv.weight.shape;
  if (patch[0] !== patch[1])
    throw new UnsupportedError(`${c.where}: vision_config.patch_size is ${JSON.stringify(patch)}; served are squares`);
  return new ClipSegmenter(source.builder.pp('decoder'), clip, {
    widths: [
      clip.vision.postNorm.weight?.shape[0] as number,
      c.count('reduce_dim', 64, 1),
      c.count('projection_dim', 512),
    ],
    heads: c.count('decoder_num_attention_heads', 4, 1),
    inner: c.count('decoder_intermediate_size', 2048),
    eps: clip.vision.postNorm.eps,
    ...{ layers, asks, patch: patch[0] },
    stepped: c.flag('use_complex_transposed_convolution', false),
  });
}
export const CLIP_SEG_FAMILIES: readonly ModelRow[] = [
  { kind: 'zero-shot-segmentation', types: ['clipseg'], build: clipSeg },
];
