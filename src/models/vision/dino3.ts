// DINOv3: a vision transformer whose patches turn by their places in the picture, which may be of any size.
import { layerNorm, type LayerNorm, linear, type Linear } from '../../nn/layers.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import { FeedForward, GatedFeedForward, multiHead, PreNormBlock } from '../parts.js';
import type { RopeTable } from '../decoder/rope.js';
import type { ModelSource } from '../files/source.js';
import { Patches, sideLengths } from './vit.js';
import { ignoreStages, pictureHead, VisionModel } from './vision-model.js';

interface Dino3Config {
  readonly width: number;
  readonly heads: number;
  readonly patch: readonly [number, number];
  readonly theta: number;
}
class Dino3 extends VisionModel {
  readonly patches: Patches;
  /** The class token and the registers, (1, tokens, width). */
  readonly tokens: readonly Tensor[];
  readonly blocks: readonly PreNormBlock[];
  readonly norm: LayerNorm;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  readonly #config: Dino3Config;
  constructor(
    parts: Pick<Dino3, 'patches' | 'tokens' | 'blocks' | 'norm'>,
    config: Dino3Config,
    head: ReturnType<typeof pictureHead>,
  ) {
    super();
    this.patches = parts.patches;
    this.tokens = parts.tokens;
    this.blocks = parts.blocks;
    this.norm = parts.norm;
    this.classifier = head.classifier;
    this.labels = head.labels;
    this.#config = config;
  }
  /** Patches turn by their middles, between -1 and 1 down and across; the tokens before them do not. */
  #turns(h: number, w: number, still: number, like: Tensor): RopeTable {
    const { width, heads, theta } = this.#config;
    const quarter = width / heads / 4;
    const angle = (place: number, i: number): number => {
      const [n, at] = i < quarter ? [h, Math.floor(place / w)] : [w, place % w];
      return (2 * Math.PI * ((2 * (at + 0.5)) / n - 1)) / theta ** ((i % quarter) / quarter);
    };
    const shape = [still + h * w, 2 * quarter];
    const table = (f: (x: number) => number): Tensor => {
      const data = Float32Array.from({ length: shape[0] * shape[1] }, (_, k) => {
        const place = Math.floor(k / shape[1]) - still;
        return f(place < 0 ? 0 : angle(place, k % shape[1]));
      });
      return tensor(data, { shape, device: like.device }).cast(like.dtype);
    };
    return { cos: table(Math.cos), sin: table(Math.sin) };
  }
  hidden(pixels: Tensor): Tensor {
    const p = this.patches.ofAny(pixels);
    const [b, , width] = p.shape;
    const tokens = this.tokens.map((t) => t.broadcastTo([b, t.shape[1], width]));
    const x = tokens[0].cat([...tokens.slice(1), p], 1);
    const [h, w] = [2, 3].map((i) => Math.floor(pixels.shape[i] / this.#config.patch[i - 2]));
    const rope = this.#turns(h, w, x.shape[1] - h * w, x);
    return this.norm.forward(this.blocks.reduce((y, block) => block.forward(y, { rope }), x));
  }
  pooled(hidden: Tensor): Tensor {
    return hidden.narrow(1, 0, 1).squeeze(1);
  }
}

function dino3(c: Config, source: ModelSource): Dino3 {
  ignoreStages(c);
  // What is drawn in training alone.
  c.ignore('image_size', 'pos_embed_shift', 'pos_embed_jitter', 'pos_embed_rescale');
  source.ignore(/(^|\.)embeddings\.mask_token$/);
  const [width, heads] = [c.count('hidden_size', 384, 1), c.count('num_attention_heads', 6, 1)];
  const [inner, f] = [c.count('intermediate_size', 1536, 1), c.activation('hidden_act', 'gelu')];
  const patch = sideLengths(c, 'patch_size');
  const eps = c.number('layer_norm_eps', 1e-5);
  const bias = c.flag('mlp_bias', true);
  const gated = c.flag('use_gated_mlp', false);
  const flags = { q: 'query_bias', k: 'key_bias', v: 'value_bias', out: 'proj_bias' } as const;
  const biases = (['q', 'k', 'v', 'out'] as const).filter((part) => c.flag(flags[part], part !== 'k'));
  const names = { q: 'q_proj', k: 'k_proj', v: 'v_proj', out: 'o_proj', biases };
  const stem = ['', 'dinov3_vit.', 'model.'].find((p) => source.has(`${p}embeddings.cls_token`)) ?? '';
  const vb = stem === '' ? source.builder : source.builder.pp(stem.slice(0, -1));
  const layers = source.has(`${stem}model.layer.0.norm1.weight`) ? vb.pp('model.layer') : vb.pp('layer');
  const block = (at: VarBuilder): PreNormBlock => {
    const product = (name: string, from: number, to: number): Linear => linear(from, to, at.pp('mlp', name), { bias });
    const [up, down] = [product('up_proj', width, inner), product('down_proj', inner, width)];
    return new PreNormBlock(
      layerNorm(width, at.pp('norm1'), { eps }),
      multiHead(at.pp('attention'), names, width, heads),
      layerNorm(width, at.pp('norm2'), { eps }),
      gated ? new GatedFeedForward(product('gate_proj', width, inner), up, down, f) : new FeedForward(up, down, f),
      [at.get([width], 'layer_scale1.lambda1'), at.get([width], 'layer_scale2.lambda1')],
    );
  };
  const e = vb.pp('embeddings');
  const registers = c.count('num_register_tokens', 0);
  if (registers === 0) source.ignore(/(^|\.)embeddings\.register_tokens$/);
  const image = [patch[0], patch[1]] as const;
  const parts = {
    patches: new Patches(e.pp('patch_embeddings'), c.count('num_channels', 3), width, image, patch, true),
    tokens: [
      e.get([1, 1, width], 'cls_token'),
      ...(registers > 0 ? [e.get([1, registers, width], 'register_tokens')] : []),
    ],
    blocks: Array.from({ length: c.count('num_hidden_layers', 12) }, (_, i) => block(layers.pp(i))),
    norm: layerNorm(width, vb.pp('norm'), { eps }),
  };
  const config = { width, heads, patch, theta: c.number('rope_theta', 100) };
  return new Dino3(parts, config, pictureHead(c, source, width));
}
export const DINO3_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['dinov3_vit'], build: dino3 }];
