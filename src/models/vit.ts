// Vision transformers: an image in patches, a class token, blocks; ViT's classifier and the vision halves of CLIP and
// SigLIP share it.
import { ArgumentError } from '../base/errors.js';
import { activation } from '../nn/activation.js';
import { type Conv2d, conv2d, type LayerNorm, layerNorm, type Linear, linear } from '../nn/layers.js';
import { Module } from '../nn/module.js';
import type { VarBuilder } from '../nn/var-builder.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Config } from './config.js';
import type { ModelRow } from './model-row.js';
import { feedForward, multiHead, type MultiHeadNames, PreNormBlock } from './parts.js';
import type { ModelSource } from './source.js';

export interface TowerConfig {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
}
export interface TowerNames {
  readonly norm1: string;
  readonly attention: MultiHeadNames;
  readonly norm2: string;
  readonly mlp: readonly [up: string, down: string];
}
export const blocksOf = (vb: VarBuilder, c: TowerConfig, names: TowerNames): PreNormBlock[] =>
  Array.from({ length: c.layers }, (_, i) => {
    const at = vb.pp(i);
    const norm = (name: string): LayerNorm => layerNorm(c.width, at.pp(name), { eps: c.eps });
    return new PreNormBlock(
      norm(names.norm1),
      multiHead(at, names.attention, c.width, c.heads),
      norm(names.norm2),
      feedForward(at, names.mlp, c.width, c.inner, c.activation),
    );
  });

/** An image (b, channels, h, w) cut into patches, each a vector: (b, patches, width). */
export class Patches extends Module {
  readonly conv: Conv2d;
  readonly imageSize: readonly [height: number, width: number];
  constructor(
    vb: VarBuilder,
    channels: number,
    width: number,
    image: readonly [number, number],
    patch: readonly [number, number],
    bias: boolean,
  ) {
    super();
    this.conv = conv2d(channels, width, patch, vb, { stride: patch, useBias: bias });
    this.imageSize = image;
  }
  forward(pixels: Tensor): Tensor {
    const [h, w] = this.imageSize;
    const [b, channels, ...size] = pixels.shape;
    if (pixels.rank !== 4 || channels !== this.conv.weight.shape[1] || size[0] !== h || size[1] !== w)
      throw new ArgumentError(
        `vision: pixels have shape [${pixels.shape.join(', ')}]; the model takes (batch, ` +
          `${this.conv.weight.shape[1]}, ${h}, ${w})`,
      );
    const y = this.conv.forward(pixels);
    return y.reshape([b, y.shape[1], -1]).transpose(1, 2);
  }
}
/** A number for both sides, or one each. */
export function sideLengths(c: Config, name: string): readonly [number, number] {
  if (Array.isArray(c.get(name))) return c.numbers(name, 2) as unknown as readonly [number, number];
  const n = c.count(name, undefined, 1);
  return [n, n];
}

export class Vit extends Module {
  readonly patches: Patches;
  readonly classToken: Tensor;
  readonly positions: Tensor;
  readonly blocks: PreNormBlock[];
  readonly norm: LayerNorm;
  readonly pooler: Linear | undefined;
  readonly classifier: Linear | undefined;
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  readonly #poolerBend: (x: Tensor) => Tensor;
  constructor(
    vb: VarBuilder,
    c: TowerConfig & Record<'image' | 'patch', readonly [number, number]> & { readonly pooled: [number, string] },
    channels: number,
    head: { readonly classifier?: Linear; readonly labels: readonly string[] },
    qkvBias: boolean,
  ) {
    super();
    const e = vb.pp('embeddings');
    const count = Math.floor(c.image[0] / c.patch[0]) * Math.floor(c.image[1] / c.patch[1]);
    this.patches = new Patches(e.pp('patch_embeddings.projection'), channels, c.width, c.image, c.patch, true);
    this.classToken = e.get([1, 1, c.width], 'cls_token');
    this.positions = e.get([1, count + 1, c.width], 'position_embeddings');
    this.blocks = blocksOf(vb.pp('encoder.layer'), c, {
      norm1: 'layernorm_before',
      attention: {
        q: 'attention.attention.query',
        k: 'attention.attention.key',
        v: 'attention.attention.value',
        out: 'attention.output.dense',
        biases: qkvBias ? ['q', 'k', 'v', 'out'] : ['out'],
      },
      norm2: 'layernorm_after',
      mlp: ['intermediate.dense', 'output.dense'],
    });
    this.norm = layerNorm(c.width, vb.pp('layernorm'), { eps: c.eps });
    this.pooler = vb.has('pooler.dense.weight') ? linear(c.width, c.pooled[0], vb.pp('pooler.dense')) : undefined;
    this.#poolerBend = activation(c.pooled[1]);
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  /** Vectors of the class token and the patches, (b, 1 + patches, width). */
  hidden(pixels: Tensor): Tensor {
    const p = this.patches.forward(pixels);
    let x = this.classToken.broadcastTo([p.shape[0], 1, p.shape[2]]).cat([p], 1).add(this.positions);
    for (const block of this.blocks) x = block.forward(x);
    return this.norm.forward(x);
  }
  /**
   * Logits of the classes, (b, classes); without a classifier the class token's vector, pooled where there is a pooler.
   */
  forward(pixels: Tensor): Tensor {
    const first = this.hidden(pixels).narrow(1, 0, 1).squeeze(1);
    if (this.classifier) return this.classifier.forward(first);
    return this.pooler ? this.#poolerBend(this.pooler.forward(first)) : first;
  }
}

function vit(c: Config, source: ModelSource): Vit {
  c.ignore('encoder_stride');
  const width = c.count('hidden_size');
  const inside = source.has('vit.embeddings.cls_token');
  const labels = Object.values((c.get('id2label') ?? {}) as Record<string, string>);
  const classes = source.has('classifier.weight') ? source.shapeOf('classifier.weight')[0] : 0;
  const bias = c.flag('qkv_bias', true);
  const classifier = classes > 0 ? linear(width, classes, source.builder.pp('classifier')) : undefined;
  const config = {
    width,
    layers: c.count('num_hidden_layers'),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: c.count('intermediate_size'),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.activation('hidden_act', 'gelu'),
    image: sideLengths(c, 'image_size'),
    patch: sideLengths(c, 'patch_size'),
    pooled: [c.count('pooler_output_size', width), c.activation('pooler_act', 'tanh')] as [number, string],
  };
  const head = { labels, ...(classifier && { classifier }) };
  return new Vit(inside ? source.builder.pp('vit') : source.builder, config, c.count('num_channels', 3), head, bias);
}
export const VIT_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['vit'], build: vit }];
