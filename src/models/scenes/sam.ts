// SAM: points, boxes and rough masks ask a picture for things, and the answer is a few masks of each with how good the
// model thinks they are.
import { ArgumentError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
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
import { Layer, Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, type MultiHead, multiHead } from '../parts.js';
import { ignoreBookkeeping } from '../vision/clip.js';
import { asPicture, asPlaces, PlaceNorm } from '../vision/seg-body.js';
import { SamEye, type SamEyeConfig } from './sam-eye.js';

/** What is asked for, in pixels of the picture that the model takes. */
export interface Asked {
  /** Each with 1 where it lies on the thing, 0 where it does not. */
  readonly points: readonly (readonly [x: number, y: number, on: 0 | 1])[];
  /** Left, top, right, bottom. */
  readonly box?: readonly number[] | undefined;
}
interface Masks {
  /** Logits (things, masks, height, width), a quarter of the picture's size as a rule. */
  readonly masks: Tensor;
  /** (things, masks): how much of the thing each covers, as the model thinks. */
  readonly scores: Tensor;
}

/** Kinds of what is asked: a point beside a thing, one on it, a box's two corners, nothing. */
const [BOX, NOTHING] = [2, 4];

interface PromptConfig {
  readonly width: number;
  readonly image: number;
  readonly maskWidth: number;
  readonly eps: number;
  readonly activation: string;
}
/** What is asked becomes tokens, and a rough mask a map. */
class Prompts extends Module {
  /** A row for each kind. */
  readonly kinds: readonly Tensor[];
  readonly noMask: Tensor;
  readonly maskConvs: readonly Conv2d[];
  readonly maskNorms: readonly PlaceNorm[];
  readonly #f: (x: Tensor) => Tensor;
  readonly #image: number;
  constructor(vb: VarBuilder, c: PromptConfig) {
    super();
    this.#image = c.image;
    this.#f = activation(c.activation);
    const row = (name: string): Tensor => vb.get([1, c.width], `${name}.weight`);
    this.kinds = [0, 1, 2, 3].map((i) => row(`point_embed.${i}`)).concat(row('not_a_point_embed'));
    this.noMask = row('no_mask_embed');
    const at = vb.pp('mask_embed');
    const widths = [1, Math.floor(c.maskWidth / 4), c.maskWidth];
    this.maskConvs = [
      conv2d(widths[0], widths[1], 2, at.pp('conv1'), { stride: 2 }),
      conv2d(widths[1], widths[2], 2, at.pp('conv2'), { stride: 2 }),
      conv2d(widths[2], c.width, 1, at.pp('conv3')),
    ];
    this.maskNorms = [1, 2].map((i) => {
      // The second one's width is four times the first's, whatever the config's width divides by.
      const width = i === 1 ? widths[1] : 4 * widths[1];
      return new PlaceNorm(layerNorm(width, at.pp(`layer_norm${i}`), { eps: c.eps }));
    });
  }
  /** Tokens (things, tokens, width) by sines of places, of things that are asked for by as many points each. */
  tokens(asked: readonly Asked[], sines: (places: Tensor) => Tensor): Tensor | undefined {
    const each = asked.map(({ points, box }) => [
      ...points.map(([x, y, on]) => ({ x, y, kind: on as number })),
      ...(box ? [0, 1].map((i) => ({ x: box[2 * i], y: box[2 * i + 1], kind: BOX + i })) : []),
      ...(points.length > 0 && !box ? [{ x: 0, y: 0, kind: NOTHING }] : []),
    ]);
    const count = each[0].length;
    if (count === 0) return undefined;
    const { dtype, device } = this.noMask;
    const all = each.flat();
    // The middle of a pixel, from -1 to 1.
    const place = (n: number): number => 2 * ((n + 0.5) / this.#image) - 1;
    const of = (data: readonly number[], shape: readonly number[]): Tensor =>
      tensor(Float32Array.from(data), { shape: [...shape], device }).cast(dtype);
    const places = of(
      all.flatMap(({ x, y }) => [place(x), place(y)]),
      [asked.length, count, 2],
    );
    const there = of(
      all.map(({ kind }) => Number(kind !== NOTHING)),
      [asked.length, count, 1],
    );
    const [first, ...rest] = this.kinds;
    const kinds = first.cat(rest, 0).indexSelect(
      0,
      tensor(
        Uint32Array.from(all, ({ kind }) => kind),
        { device },
      ),
    );
    return sines(places)
      .mul(there)
      .add(kinds.reshape([asked.length, count, -1]));
  }
  /** What is added to the picture's map, (things or 1, width, rows or 1, columns or 1). */
  map(rough: Tensor | undefined): Tensor {
    if (!rough) return this.noMask.reshape([1, -1, 1, 1]);
    const y = this.maskNorms.reduce((x, norm, i) => this.#f(norm.forward(this.maskConvs[i].forward(x))), rough);
    return this.maskConvs[2].forward(y);
  }
}

interface DecoderConfig {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  /** Heads that look from tokens to places at the end are so many times narrower. */
  readonly narrower: number;
  readonly eps: number;
  readonly activation: string;
  readonly masks: number;
  readonly scoreWidth: number;
  readonly scoreLayers: number;
}
const PRODUCTS = { q: 'q_proj', k: 'k_proj', v: 'v_proj', out: 'out_proj' };
const cross = (vb: VarBuilder, c: DecoderConfig, narrower: number): MultiHead =>
  multiHead(vb, PRODUCTS, c.width, c.heads, { inner: Math.floor(c.width / narrower) });
/** Within layers, whatever a config says of the attention behind them. */
const NARROWER = 2;

/** Tokens look at each other and at places, then places look at tokens. */
class TwoWayLayer extends Module {
  readonly own: MultiHead;
  readonly toPlaces: MultiHead;
  readonly mlp: FeedForward;
  readonly toTokens: MultiHead;
  readonly norms: readonly LayerNorm[];
  readonly #first: boolean;
  constructor(vb: VarBuilder, c: DecoderConfig, first: boolean) {
    super();
    this.#first = first;
    this.own = multiHead(vb.pp('self_attn'), PRODUCTS, c.width, c.heads);
    this.toPlaces = cross(vb.pp('cross_attn_token_to_image'), c, NARROWER);
    this.mlp = feedForward(vb, ['mlp.lin1', 'mlp.lin2'], c.width, c.inner, c.activation);
    this.toTokens = cross(vb.pp('cross_attn_image_to_token'), c, NARROWER);
    this.norms = [1, 2, 3, 4].map((i) => layerNorm(c.width, vb.pp(`layer_norm${i}`), { eps: c.eps }));
  }
  /** `at` and `where` tell tokens and places apart. */
  forward(x: Tensor, map: Tensor, at: Tensor, where: Tensor): readonly [tokens: Tensor, map: Tensor] {
    const [afterOwn, afterPlaces, afterMlp, afterTokens] = this.norms;
    const alone = this.#first ? this.own.forward(x) : x.add(this.own.forward(x.add(at), { values: x }));
    const own = afterOwn.forward(alone);
    const seen = this.toPlaces.forward(own.add(at), { context: map.add(where), values: map });
    const told = afterPlaces.forward(own.add(seen));
    const tokens = afterMlp.forward(told.add(this.mlp.forward(told)));
    const answer = this.toTokens.forward(map.add(where), { context: tokens.add(at), values: tokens });
    return [tokens, afterTokens.forward(map.add(answer))];
  }
}
/** Products with a bend between each two. */
class Head extends Layer {
  readonly layers: readonly Linear[];
  constructor(vb: VarBuilder, [from, inner, to]: readonly [number, number, number], depth: number) {
    super();
    const between = Array.from({ length: Math.max(0, depth - 2) }, (_, i) => linear(inner, inner, vb.pp('layers', i)));
    this.layers = [linear(from, inner, vb.pp('proj_in')), ...between, linear(inner, to, vb.pp('proj_out'))];
  }
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, layer, i) => layer.forward(i > 0 ? h.relu() : h), x);
  }
}

class MaskDecoder extends Module {
  readonly scoreToken: Tensor;
  readonly maskTokens: Tensor;
  readonly layers: TwoWayLayer[];
  readonly last: MultiHead;
  readonly lastNorm: LayerNorm;
  readonly widen: readonly ConvTranspose2d[];
  readonly widenNorm: PlaceNorm;
  readonly heads: Head[];
  readonly scoreHead: Head;
  constructor(vb: VarBuilder, c: DecoderConfig) {
    super();
    const { width, masks } = c;
    this.scoreToken = vb.get([1, width], 'iou_token.weight');
    this.maskTokens = vb.get([masks, width], 'mask_tokens.weight');
    const at = vb.pp('transformer');
    this.layers = Array.from({ length: c.layers }, (_, i) => new TwoWayLayer(at.pp('layers', i), c, i === 0));
    this.last = cross(at.pp('final_attn_token_to_image'), c, c.narrower);
    this.lastNorm = layerNorm(width, at.pp('layer_norm_final_attn'));
    const [half, quarter] = [Math.floor(width / 4), Math.floor(width / 8)];
    this.widen = [
      convTranspose2d(width, half, 2, vb.pp('upscale_conv1'), { stride: 2 }),
      convTranspose2d(half, quarter, 2, vb.pp('upscale_conv2'), { stride: 2 }),
    ];
    this.widenNorm = new PlaceNorm(layerNorm(half, vb.pp('upscale_layer_norm'), { eps: 1e-6 }));
    this.heads = Array.from(
      { length: masks },
      (_, i) => new Head(vb.pp('output_hypernetworks_mlps', i), [width, width, quarter], 3),
    );
    this.scoreHead = new Head(vb.pp('iou_prediction_head'), [width, c.scoreWidth, masks], c.scoreLayers);
  }
  /** All masks of each thing, the first of which is the one to ask for where one alone is wanted. */
  forward(map: Tensor, where: Tensor, asked: Tensor | undefined, things: number): Masks {
    const [, width, h, w] = map.shape;
    const own = this.scoreToken.cat([this.maskTokens], 0).unsqueeze(0);
    const learnt = own.broadcastTo([things, own.shape[1], width]);
    const at = asked ? learnt.cat([asked], 1) : learnt.contiguous();
    let [x, places] = [
      at,
      asPlaces(map)
        .broadcastTo([things, h * w, width])
        .contiguous(),
    ];
    for (const layer of this.layers) [x, places] = layer.forward(x, places, at, where);
    const seen = this.last.forward(x.add(at), { context: places.add(where), values: places });
    const tokens = this.lastNorm.forward(x.add(seen));
    const [first, second] = this.widen;
    const wide = second.forward(this.widenNorm.forward(first.forward(asPicture(places, h, w))).geluErf()).geluErf();
    const factors = this.heads.map((head, i) => head.forward(tokens.narrow(1, 1 + i, 1)));
    const [, quarter, tall, across] = wide.shape;
    const made = factors[0].cat(factors.slice(1), 1).matmul(wide.reshape([things, quarter, tall * across]));
    return {
      masks: made.reshape([things, this.heads.length, tall, across]),
      scores: this.scoreHead.forward(tokens.narrow(1, 0, 1).squeeze(1)),
    };
  }
}

export class Sam extends Module {
  readonly eye: SamEye;
  /** Turns places into angles, (2, half the width). */
  readonly angles: Tensor;
  readonly prompts: Prompts;
  readonly decoder: MaskDecoder;
  constructor(parts: Pick<Sam, 'eye' | 'angles' | 'prompts' | 'decoder'>) {
    super();
    this.eye = parts.eye;
    this.angles = parts.angles;
    this.prompts = parts.prompts;
    this.decoder = parts.decoder;
  }
  /** Of places from -1 to 1, (..., 2). */
  #sines(places: Tensor): Tensor {
    const turned = places.matmul(this.angles).affine(2 * Math.PI, 0);
    return turned.sin().cat([turned.cos()], -1);
  }
  /** Where the places of a map lie, (1, places, width). */
  #where(h: number, w: number): Tensor {
    const { dtype, device } = this.angles;
    const middle = (at: number, of: number): number => (2 * (at + 0.5)) / of - 1;
    const data = Float32Array.from({ length: 2 * h * w }, (_, i) => {
      const place = i >> 1;
      return i % 2 === 0 ? middle(place % w, w) : middle(Math.floor(place / w), h);
    });
    return this.#sines(tensor(data, { shape: [1, h * w, 2], device }).cast(dtype));
  }
  /** A picture's map, (1, width, rows, columns), which many questions may be asked. */
  see(pixels: Tensor): Tensor {
    return this.eye.forward(pixels);
  }
  /**
   * Masks of the things that are asked for, each by as many points and with a box or without; `rough` are logits
   * (things or 1, 1, height, width) of masks that came before. One mask a thing, or the several after it.
   */
  forward(
    map: Tensor,
    asked: readonly Asked[],
    o: { readonly rough?: Tensor; readonly several?: boolean } = {},
  ): Masks {
    const shapes = new Set(asked.map(({ points, box }) => `${points.length} ${box !== undefined}`));
    if (shapes.size !== 1)
      throw new ArgumentError(
        'masks: things that are asked for together have as many points each, and all or no boxes',
      );
    const [, , h, w] = map.shape;
    const tokens = this.prompts.tokens(asked, (places) => this.#sines(places));
    const all = this.decoder.forward(map.add(this.prompts.map(o.rough)), this.#where(h, w), tokens, asked.length);
    const count = all.scores.shape[1];
    const [from, n] = (o.several ?? true) ? [1, count - 1] : [0, 1];
    return { masks: all.masks.narrow(1, from, n), scores: all.scores.narrow(1, from, n) };
  }
}

function sam(c: Config, source: ModelSource): Sam {
  c.ignore('tie_word_embeddings');
  const inner = (name: string): Config => {
    const found = c.inner(name) ?? new Config({}, c.where);
    ignoreBookkeeping(found);
    return found;
  };
  const [v, p, d] = ['vision_config', 'prompt_encoder_config', 'mask_decoder_config'].map(inner);
  // `scale` spreads the angles before they are learnt; the width of layers is mlp_dim's.
  v.ignore('scale', 'intermediate_size', 'image_embedding_size');
  const width = v.count('hidden_size', 768, 1);
  const ratio = v.number('mlp_ratio', 4);
  const eye: SamEyeConfig = {
    width,
    layers: v.count('num_hidden_layers', 12),
    heads: v.count('num_attention_heads', 12, 1),
    inner: v.count('mlp_dim', Math.trunc(width * ratio)),
    eps: v.number('layer_norm_eps', 1e-6),
    activation: v.activation('hidden_act', 'gelu'),
    image: v.count('image_size', 1024, 1),
    patch: v.count('patch_size', 16, 1),
    channels: v.count('num_channels', 3, 1),
    out: v.count('output_channels', 256, 1),
    window: v.count('window_size', 14),
    whole: v.has('global_attn_indexes') ? v.numbers('global_attn_indexes') : [2, 5, 8, 11],
    qkvBias: v.flag('qkv_bias', true),
    positions: v.flag('use_abs_pos', true),
    distances: v.flag('use_rel_pos', true),
  };
  p.ignore('image_embedding_size');
  p.only('num_point_embeddings', 4);
  p.only('patch_size', eye.patch);
  p.only('image_size', eye.image);
  const prompts: PromptConfig = {
    width: p.count('hidden_size', 256, 1),
    image: eye.image,
    maskWidth: p.count('mask_input_channels', 16, 1),
    eps: p.number('layer_norm_eps', 1e-6),
    activation: p.activation('hidden_act', 'gelu'),
  };
  const decoder: DecoderConfig = {
    width: d.count('hidden_size', 256, 1),
    layers: d.count('num_hidden_layers', 2),
    heads: d.count('num_attention_heads', 8, 1),
    inner: d.count('mlp_dim', 2048),
    narrower: d.count('attention_downsample_rate', 2, 1),
    eps: d.number('layer_norm_eps', 1e-6),
    activation: d.activation('hidden_act', 'relu'),
    masks: d.count('num_multimask_outputs', 3) + 1,
    scoreWidth: d.count('iou_head_hidden_dim', 256, 1),
    scoreLayers: d.count('iou_head_depth', 3, 2),
  };
  const vb = source.builder;
  // The same tensor, stored twice in older files.
  source.ignore(/^prompt_encoder\.shared_embedding\.positional_embedding$/);
  return new Sam({
    eye: new SamEye(vb.pp('vision_encoder'), eye),
    angles: vb.get([2, v.count('num_pos_feats', 128, 1)], 'shared_image_embedding.positional_embedding'),
    prompts: new Prompts(vb.pp('prompt_encoder'), prompts),
    decoder: new MaskDecoder(vb.pp('mask_decoder'), decoder),
  });
}
export const SAM_FAMILIES: readonly ModelRow[] = [{ kind: 'mask-generation', types: ['sam'], build: sam }];
