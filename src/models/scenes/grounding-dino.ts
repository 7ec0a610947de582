// Grounding DINO: maps of a picture and the words of a text are fused layer by layer, and things ask both. How well a
// thing fits each word is the product of their vectors.
import { ArgumentError, FormatError } from '../../base/errors.js';
import { type Embedding, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import { BERT, Bert, bertConfig } from '../encoders/bert.js';
import { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, keysMask, type MultiHead, multiHead, rowTable } from '../parts.js';
import { ignoreBookkeeping } from '../vision/clip.js';
import { DeformableAttention, type DeformableConfig, type Maps } from './deformable.js';
import { GroupedMap, middles, PlacesLayer } from './deformable-detr.js';
import { DETR_TRAINING, LearntPlaces, sinePlaces } from './detr.js';
import { type Phrases, phrasesOf, sinesOf } from './grounded-text.js';
import { LayeredHead } from './layered-head.js';
import type { LayerConfig } from './map-mixer.js';
import type { Detections } from './scene-model.js';
import { type MapMaker, mapMakerAt } from './map-makers.js';
import { firstBoxes } from './things-layer.js';

const NAMES = { q: 'query', k: 'key', v: 'value', out: 'out_proj' };
const split = (x: Tensor, heads: number): Tensor => {
  const [b, t, width] = x.shape;
  return x.reshape([b, t, heads, width / heads]).transpose(1, 2);
};
const joined = (x: Tensor): Tensor => x.transpose(1, 2).reshape([x.shape[0], x.shape[2], -1]);
/** What a sigmoid made of it; nearer to 0 and 1 than this counts as this. */
const logit = (x: Tensor): Tensor => {
  const inside = x.clamp(1e-5, 1 - 1e-5);
  return inside.div(inside.affine(-1, 1)).log();
};

/** Places of a picture look at words, and words at places, by the same scores. */
class Fusion extends Module {
  readonly seenNorm: LayerNorm;
  readonly textNorm: LayerNorm;
  readonly seen: Linear;
  readonly text: Linear;
  readonly seenValues: Linear;
  readonly textValues: Linear;
  readonly seenOut: Linear;
  readonly textOut: Linear;
  /** What is found is multiplied by these. */
  readonly seenScale: Tensor;
  readonly textScale: Tensor;
  readonly #heads: number;
  constructor(vb: VarBuilder, c: LayerConfig) {
    super();
    const { width, inner, eps } = c;
    const into = (name: string): Linear => linear(width, inner, vb.pp('attn', name));
    const out = (name: string): Linear => linear(inner, width, vb.pp('attn', name));
    this.#heads = c.heads;
    this.seenNorm = layerNorm(width, vb.pp('layer_norm_vision'), { eps });
    this.textNorm = layerNorm(width, vb.pp('layer_norm_text'), { eps });
    [this.seen, this.text] = [into('vision_proj'), into('text_proj')];
    [this.seenValues, this.textValues] = [into('values_vision_proj'), into('values_text_proj')];
    [this.seenOut, this.textOut] = [out('out_vision_proj'), out('out_text_proj')];
    [this.seenScale, this.textScale] = [vb.get([width], 'vision_param'), vb.get([width], 'text_param')];
  }
  forward(places: Tensor, words: Tensor, mask: Tensor | undefined): readonly [places: Tensor, words: Tensor] {
    const [x, y] = [this.seenNorm.forward(places), this.textNorm.forward(words)];
    const of = (part: Linear, h: Tensor): Tensor => split(part.forward(h), this.#heads).contiguous();
    const [asks, told] = [of(this.seen, x), of(this.text, y)];
    const found = joined(asks.sdpa(told, of(this.textValues, y), mask ? { mask } : {}));
    const heard = joined(told.sdpa(asks, of(this.seenValues, x)));
    return [
      x.add(this.seenOut.forward(found).mul(this.seenScale)),
      y.add(this.textOut.forward(heard).mul(this.textScale)),
    ];
  }
}
/** Words look at those of their phrase. */
class WordsLayer extends Module {
  readonly own: MultiHead;
  readonly ownNorm: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, { width, heads, inner, activation, eps }: LayerConfig) {
    super();
    this.own = multiHead(vb.pp('self_attn'), NAMES, width, heads);
    this.ownNorm = layerNorm(width, vb.pp('layer_norm_before'), { eps });
    this.mlp = feedForward(vb, ['fc1', 'fc2'], width, inner, activation);
    this.norm = layerNorm(width, vb.pp('layer_norm_after'), { eps });
  }
  forward(x: Tensor, at: Tensor, mask: Tensor): Tensor {
    const y = this.ownNorm.forward(x.add(this.own.forward(x.add(at), { values: x, mask })));
    return this.norm.forward(y.add(this.mlp.forward(y)));
  }
}
class FusedLayer extends Module {
  readonly fusion: Fusion;
  readonly words: WordsLayer;
  readonly places: PlacesLayer;
  constructor(vb: VarBuilder, c: LayerConfig, looks: DeformableConfig) {
    super();
    // Of words and of what fuses both there is half as much.
    const half = { ...c, heads: Math.floor(c.heads / 2), inner: Math.floor(c.inner / 2) };
    this.fusion = new Fusion(vb.pp('fusion_layer'), half);
    this.words = new WordsLayer(vb.pp('text_enhancer_layer'), half);
    this.places = new PlacesLayer(vb.pp('deformable_layer'), c, looks);
  }
}
/** Things look at each other, at words, and at few places of the maps. */
class GroundedLayer extends Module {
  readonly own: MultiHead;
  readonly ownNorm: LayerNorm;
  readonly words: MultiHead;
  readonly wordsNorm: LayerNorm;
  readonly seen: DeformableAttention;
  readonly seenNorm: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, { width, heads, inner, activation, eps }: LayerConfig, looks: DeformableConfig) {
    super();
    const norm = (name: string): LayerNorm => layerNorm(width, vb.pp(name), { eps });
    this.own = multiHead(vb.pp('self_attn'), NAMES, width, heads);
    this.ownNorm = norm('self_attn_layer_norm');
    this.words = multiHead(vb.pp('encoder_attn_text'), NAMES, width, heads);
    this.wordsNorm = norm('encoder_attn_text_layer_norm');
    this.seen = new DeformableAttention(vb.pp('encoder_attn'), looks);
    this.seenNorm = norm('encoder_attn_layer_norm');
    this.mlp = feedForward(vb, ['fc1', 'fc2'], width, inner, activation);
    this.norm = norm('final_layer_norm');
  }
  forward(x: Tensor, at: Tensor, boxes: Tensor, maps: Maps, text: { words: Tensor; mask?: Tensor }): Tensor {
    const y = this.ownNorm.forward(x.add(this.own.forward(x.add(at), { values: x })));
    const asked = { context: text.words, ...(text.mask && { mask: text.mask }) };
    const z = this.wordsNorm.forward(y.add(this.words.forward(y.add(at), asked)));
    const seen = this.seenNorm.forward(z.add(this.seen.forward(z.add(at), boxes, maps)));
    return this.norm.forward(seen.add(this.mlp.forward(seen)));
  }
}

interface GroundingConfig {
  readonly width: number;
  readonly levels: number;
  readonly eps: number;
  readonly sides: Record<
    'encoder' | 'decoder',
    LayerConfig & { readonly layers: number; readonly looks: DeformableConfig }
  >;
  readonly things: number;
  readonly most: number;
  readonly slowest: number;
  readonly learnt: boolean;
}
export class GroundingDino extends Module {
  readonly body: MapMaker;
  readonly text: Bert;
  readonly textIn: Linear;
  readonly narrow: readonly GroupedMap[];
  readonly levels: Tensor;
  readonly places: LearntPlaces | undefined;
  readonly encoder: readonly FusedLayer[];
  readonly guess: Linear;
  readonly guessNorm: LayerNorm;
  readonly guessBoxes: LayeredHead;
  readonly questions: Embedding;
  readonly at: LayeredHead;
  readonly layers: readonly GroundedLayer[];
  readonly norm: LayerNorm;
  readonly boxes: readonly LayeredHead[];
  /** How many tokens of a text are read. */
  readonly maxTokens: number;
  readonly #c: GroundingConfig;
  constructor(source: ModelSource, c: GroundingConfig, body: MapMaker, text: Bert) {
    super();
    const { width, levels, eps } = c;
    const at = source.builder.pp('model');
    this.#c = c;
    this.body = body;
    this.text = text;
    this.maxTokens = Math.min(c.most, text.maxTokens);
    this.textIn = linear(text.width, width, at.pp('text_projection'));
    const from = body.channels;
    this.narrow = Array.from({ length: levels }, (_, i) => {
      const vb = at.pp('input_proj_vision', i);
      if (i < from.length) return new GroupedMap(vb, from[i], width, 1);
      return new GroupedMap(vb, i === from.length ? (from.at(-1) as number) : width, width, 3);
    });
    this.levels = at.get([levels, width], 'level_embed');
    this.places = c.learnt ? new LearntPlaces(at.pp('backbone.position_embedding'), width) : undefined;
    const { encoder, decoder } = c.sides;
    const each = <T>(n: number, make: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => make(i));
    this.encoder = each(encoder.layers, (i) => new FusedLayer(at.pp('encoder.layers', i), encoder, encoder.looks));
    this.guess = linear(width, width, at.pp('enc_output'));
    this.guessNorm = layerNorm(width, at.pp('enc_output_norm'), { eps });
    this.guessBoxes = new LayeredHead(at.pp('encoder_output_bbox_embed'), [width, width, width, 4]);
    this.questions = rowTable(c.things, width, at.pp('query_position_embeddings'));
    const d = at.pp('decoder');
    this.at = new LayeredHead(d.pp('reference_points_head'), [2 * width, width, width]);
    this.layers = each(decoder.layers, (i) => new GroundedLayer(d.pp('layers', i), decoder, decoder.looks));
    this.norm = layerNorm(width, d.pp('layer_norm'), { eps });
    const heads = new Map<string, LayeredHead>();
    this.boxes = each(decoder.layers, (i) => {
      // Of heads that are one, files may hold the first alone.
      const names = [`bbox_embed.${i}`, `model.decoder.bbox_embed.${i}`, 'bbox_embed.0', 'model.decoder.bbox_embed.0'];
      const name = names.find((n) => source.has(`${n}.layers.0.weight`)) ?? names[0];
      const head = heads.get(name) ?? new LayeredHead(source.builder.pp(name), [width, width, width, 4]);
      heads.set(name, head);
      return head;
    });
  }
  /** Words (b, t, width) by phrases. */
  #words(ids: Tensor, { seen, at }: Phrases): Tensor {
    return this.textIn.forward(this.text.forward({ ids, seen, at }).hidden);
  }
  #maps(pixels: Tensor): readonly [maps: Maps, at: Tensor] {
    const { width, slowest } = this.#c;
    const seen = this.body.maps(pixels);
    const maps: Tensor[] = [];
    this.narrow.forEach((conv, i) =>
      maps.push(conv.forward(seen[i] ?? (i === seen.length ? seen[i - 1] : maps[i - 1]))),
    );
    const flat = maps.map((map) => map.reshape([map.shape[0], width, -1]).transpose(1, 2));
    const sizes = maps.map(({ shape }) => [shape[2], shape[3]] as const);
    const at = sizes.map(([h, w], level) => {
      const places = this.places?.forward(h, w) ?? sinePlaces(h, w, width, flat[0], 0, slowest);
      return places.add(this.levels.narrow(0, level, 1).unsqueeze(0));
    });
    return [{ sizes, places: flat[0].cat(flat.slice(1), 1).contiguous() }, at[0].cat(at.slice(1), 1)];
  }
  /** Logits (b, things, tokens) of a text's tokens (b, t), mask 1 where there is one, for pictures; and boxes. */
  forward(pixels: Tensor, ids: Tensor, mask?: Tensor): Detections {
    const { width, things } = this.#c;
    const [b, t] = ids.shape;
    if (t > this.maxTokens)
      throw new ArgumentError(`detection: ${t} tokens of a text, the model reads ${this.maxTokens}`);
    const phrases = phrasesOf(ids);
    const own = phrases.seen.unsqueeze(1);
    // Sines, as the models were trained with; transformers 5.18 rounds them to whole numbers.
    const within = sinesOf(phrases.at.cast('f32').unsqueeze(2), width);
    const real = keysMask(mask);
    let words = this.#words(ids, phrases);
    let [maps, places] = this.#maps(pixels);
    const { sizes } = maps;
    const around = middles(sizes, maps.places);
    for (const layer of this.encoder) {
      const [seen, told] = layer.fusion.forward(maps.places, words, real);
      words = layer.words.forward(told, within.cast(told.dtype), own);
      maps = { sizes, places: layer.places.forward({ sizes, places: seen }, places, around) };
    }
    const count = maps.places.shape[1];
    if (count < things)
      throw new ArgumentError(`detection: ${count} places are fewer than the ${things} things of the model`);
    /** Of padding there is nothing to fit. */
    const fits = (x: Tensor): Tensor => {
      const logits = x.matmul(words.transpose(1, 2));
      return real ? real.squeeze(1).broadcastTo(logits.shape).where(logits, -Infinity) : logits;
    };
    const [boxes, inside] = firstBoxes(sizes, maps.places);
    const known = this.guessNorm.forward(this.guess.forward(maps.places.mul(inside)));
    const [, chosen] = fits(known).max(-1).topk(things, 1);
    const guessed = this.guessBoxes.forward(known).add(boxes);
    let where = guessed
      .gather(1, chosen.unsqueeze(2).broadcastTo([b, things, 4]).contiguous())
      .sigmoid()
      .detach();
    let x = this.questions.weight.unsqueeze(0).broadcastTo([b, things, width]).contiguous();
    const text = { words, ...(real && { mask: real }) };
    let before = where;
    this.layers.forEach((layer, i) => {
      x = layer.forward(x, this.at.forward(sinesOf(where, width / 2).cast(x.dtype)), where, maps, text);
      before = where;
      where = this.boxes[i].forward(x).add(logit(where)).sigmoid().detach();
    });
    // Between layers boxes follow from things as they are, at the end from what the norm makes of them.
    const said = this.norm.forward(x);
    const last = this.boxes.at(-1) as LayeredHead;
    return { logits: fits(said), boxes: last.forward(said).add(logit(before)).sigmoid() };
  }
}

/** What a config of texts leaves out. */
const TEXT_UNSAID = {
  ...{ vocab_size: 30522, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, intermediate_size: 3072 },
  ...{ max_position_embeddings: 512, type_vocab_size: 2 },
};
function textOf(c: Config, vb: VarBuilder): Bert {
  const given = c.inner('text_config') ?? new Config({}, c.where);
  const t = new Config(given.json, c.where, 'text_config.', TEXT_UNSAID, c.matters);
  ignoreBookkeeping(t);
  t.ignore('attention_probs_dropout_prob', 'hidden_dropout_prob', 'classifier_dropout', 'use_cache');
  t.only('model_type', 'bert');
  const config = bertConfig(t, false);
  t.refuseUnread();
  given.ignore(...Object.keys(given.json));
  return new Bert(vb, config, BERT);
}
function groundingDino(c: Config, source: ModelSource): GroundingDino {
  c.ignore(...DETR_TRAINING, 'focal_alpha', 'disable_custom_kernels', 'tie_word_embeddings', 'text_enhancer_dropout');
  c.ignore('fusion_droppath', 'fusion_dropout', 'decoder_bbox_embed_share', 'num_hidden_layers');
  c.only('two_stage', true);
  c.only('two_stage_bbox_embed_share', false);
  c.only('query_dim', 4);
  c.only('embedding_init_target', true); // without it transformers' own program fails
  c.only('position_embedding_type', 'sine', 'learned');
  source.ignore(
    /^(model\.decoder\.)?bbox_embed\.|\.position_ids$|\.relative_position_index$|^model\.text_backbone\.pooler\./,
  );
  const width = c.count('d_model', 256, 4);
  c.only('hidden_size', width);
  c.only('num_attention_heads', c.count('encoder_attention_heads', 8, 1));
  if (width % 32 !== 0)
    throw new FormatError(`${c.where}: d_model is ${width}, which does not divide into the 32 groups of its norms`);
  const body = mapMakerAt(c, source, 'model.backbone.conv_encoder.model');
  const levels = c.count('num_feature_levels', 4, 1);
  if (body.channels.length > levels)
    throw new FormatError(
      `${c.where}: num_feature_levels is ${levels}, and the backbone lets out ${body.channels.length} maps`,
    );
  const [eps, activation] = [c.number('layer_norm_eps', 1e-5), c.activation('activation_function', 'relu')];
  const side = (name: 'encoder' | 'decoder'): GroundingConfig['sides']['encoder'] => {
    const heads = c.count(`${name}_attention_heads`, 8, 1);
    return {
      ...{ width, heads, activation, eps },
      layers: c.count(`${name}_layers`, 6, name === 'decoder' ? 1 : 0),
      inner: c.count(`${name}_ffn_dim`, 2048),
      looks: { width, heads, levels, points: c.count(`${name}_n_points`, 4, 1), reach: 0.5 },
    };
  };
  const config: GroundingConfig = {
    ...{ width, levels, eps },
    sides: { encoder: side('encoder'), decoder: side('decoder') },
    things: c.count('num_queries', 900, 1),
    most: c.count('max_text_len', 256, 1),
    slowest: c.number('positional_embedding_temperature', 20),
    learnt: c.text('position_embedding_type', 'sine') === 'learned',
  };
  if (config.sides.encoder.heads % 2 !== 0)
    throw new FormatError(`${c.where}: encoder_attention_heads is ${config.sides.encoder.heads}, an odd number`);
  return new GroundingDino(source, config, body, textOf(c, source.builder.pp('model.text_backbone')));
}
export const GROUNDING_DINO_FAMILIES: readonly ModelRow[] = [
  { kind: 'zero-shot-detection', types: ['grounding-dino'], build: groundingDino },
];
