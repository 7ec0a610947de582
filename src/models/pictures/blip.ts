// BLIP: captions of pictures (a decoder that looks at the picture in every layer), and how well a text fits one.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { KvCache } from '../../nn/kv-cache.js';
import { type Embedding, embedding, type LayerNorm, layerNorm, Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { BERT } from '../encoders/bert.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import {
  type AttendOptions,
  chunks,
  type FeedForward,
  feedForward,
  keysMask,
  MultiHead,
  multiHead,
  PreNormBlock,
  rowTable,
} from '../parts.js';
import { type WriteOptions, writeRows } from './picture-language.js';
import type { ModelSource } from '../files/source.js';
import { Patches, type TowerConfig } from '../vision/vit.js';

class BlipTower extends Module {
  readonly patches: Patches;
  readonly classToken: Tensor;
  readonly positions: Tensor;
  readonly blocks: PreNormBlock[];
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, c: TowerConfig, image: number, patch: number) {
    super();
    const e = vb.pp('embeddings');
    this.patches = new Patches(e.pp('patch_embedding'), 3, c.width, [image, image], [patch, patch], true);
    this.classToken = e.get([1, 1, c.width], 'class_embedding');
    this.positions = e.get([1, Math.floor(image / patch) ** 2 + 1, c.width], 'position_embedding');
    const norm = (at: VarBuilder): LayerNorm => layerNorm(c.width, at, { eps: c.eps });
    this.blocks = Array.from({ length: c.layers }, (_, i) => {
      const at = vb.pp('encoder.layers', i);
      const [q, k, v] = chunks(linear(c.width, 3 * c.width, at.pp('self_attn.qkv')), 3);
      const attention = new MultiHead(
        { q, k, v, out: linear(c.width, c.width, at.pp('self_attn.projection')) },
        c.heads,
      );
      const mlp = feedForward(at, ['mlp.fc1', 'mlp.fc2'], c.width, c.inner, c.activation);
      return new PreNormBlock(norm(at.pp('layer_norm1')), attention, norm(at.pp('layer_norm2')), mlp);
    });
    this.norm = norm(vb.pp('post_layernorm'));
  }
  /** Vectors of the class token and the patches, (b, places, width). */
  forward(pixels: Tensor): Tensor {
    const p = this.patches.forward(pixels);
    const first = this.classToken.broadcastTo([p.shape[0], 1, p.shape[2]]);
    const x = first.cat([p], 1).add(this.positions);
    return this.norm.forward(this.blocks.reduce((h, block) => block.forward(h), x));
  }
}

/** A layer of BERT that looks at something else, too, by default as wide as itself. */
export class CrossBertLayer extends Module {
  readonly self: MultiHead;
  readonly norm1: LayerNorm;
  readonly cross: MultiHead;
  readonly crossNorm: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm2: LayerNorm;
  constructor(vb: VarBuilder, c: TowerConfig, seen = c.width) {
    super();
    const norm = (name: string): LayerNorm => layerNorm(c.width, vb.pp(name), { eps: c.eps });
    this.self = multiHead(vb, BERT.attention, c.width, c.heads);
    this.norm1 = norm(BERT.norm1);
    const at = vb.pp('crossattention');
    const of = (name: string, from: number): Linear => linear(from, c.width, at.pp(name));
    const parts = {
      q: of('self.query', c.width),
      k: of('self.key', seen),
      v: of('self.value', seen),
      out: of('output.dense', c.width),
    };
    this.cross = new MultiHead(parts, c.heads);
    this.crossNorm = norm('crossattention.output.LayerNorm');
    this.mlp = feedForward(vb, BERT.mlp, c.width, c.inner, c.activation);
    this.norm2 = norm(BERT.norm2);
  }
  forward(x: Tensor, self: AttendOptions, across?: AttendOptions): Tensor {
    const y = this.norm1.forward(x.add(this.self.forward(x, self)));
    const z = across ? this.crossNorm.forward(y.add(this.cross.forward(y, across))) : y;
    return this.norm2.forward(z.add(this.mlp.forward(z)));
  }
}

class BlipText extends Module {
  readonly words: Embedding;
  readonly positions: Embedding;
  readonly norm: LayerNorm;
  readonly layers: CrossBertLayer[];
  constructor(vb: VarBuilder, c: TowerConfig, sizes: { vocabulary: number; positions: number; seen: number }) {
    super();
    const e = vb.pp('embeddings');
    this.words = embedding(sizes.vocabulary, c.width, e.pp('word_embeddings'));
    this.positions = rowTable(sizes.positions, c.width, e.pp('position_embeddings'));
    this.norm = layerNorm(c.width, e.pp('LayerNorm'), { eps: c.eps });
    this.layers = Array.from(
      { length: c.layers },
      (_, i) => new CrossBertLayer(vb.pp('encoder.layer', i), c, sizes.seen),
    );
  }
  /** Words and their positions from `start` on, (b, t, width). */
  embed(ids: Tensor, start: number): Tensor {
    const [t, room] = [ids.shape[1], this.positions.weight.shape[0]];
    if (start + t > room) throw new ArgumentError(`blip: ${start + t} tokens, the model has ${room} positions`);
    return this.norm.forward(this.words.forward(ids).add(this.positions.weight.narrow(0, start, t)));
  }
}

/** What both kinds of BLIP share: what sees, and what reads. */
abstract class Blip extends Module {
  readonly vision: BlipTower;
  readonly text: BlipText;
  constructor(vision: BlipTower, text: BlipText) {
    super();
    this.vision = vision;
    this.text = text;
  }
}

/** Pictures to captions. */
export class BlipCaptioner extends Blip {
  readonly dense: Linear;
  readonly headNorm: LayerNorm;
  readonly head: Linear;
  readonly #bend: (x: Tensor) => Tensor;
  constructor(
    vision: BlipTower,
    text: BlipText,
    head: { readonly dense: Linear; readonly norm: LayerNorm; readonly out: Linear; readonly bend: string },
  ) {
    super(vision, text);
    this.dense = head.dense;
    this.headNorm = head.norm;
    this.head = head.out;
    this.#bend = activation(head.bend);
  }
  #decode(ids: Tensor, seen: readonly (readonly [Tensor, Tensor])[], caches?: readonly KvCache[]): Tensor {
    const x = this.text.layers.reduce(
      (h, layer, i) => layer.forward(h, { causal: true, ...(caches && { cache: caches[i] }) }, { ready: seen[i] }),
      this.text.embed(ids, caches?.[0]?.length ?? 0),
    );
    return this.head.forward(this.headNorm.forward(this.#bend(this.dense.forward(x))));
  }
  #seen(pixels: Tensor): (readonly [Tensor, Tensor])[] {
    const picture = this.vision.forward(pixels);
    return this.text.layers.map((layer) => layer.cross.keysAndValues(picture));
  }
  /** Logits (b, t, vocabulary) of captions (b, t) of pictures (b, 3, height, width). */
  forward(ids: Tensor, pixels: Tensor): Tensor {
    return this.#decode(ids, this.#seen(pixels));
  }
  /** The likeliest tokens behind beginnings of one length. */
  answer(ids: Tensor, pixels: Tensor, options: WriteOptions = {}): number[][] {
    return noGrad(() => {
      const seen = scope(() => this.#seen(pixels).map((kv) => kv.map((t) => keep(t)) as [Tensor, Tensor]));
      const caches = this.text.layers.map(() => new KvCache());
      const last = (given: Tensor): number[] =>
        scope(() => {
          const logits = this.#decode(given, seen, caches);
          return logits
            .narrow(1, given.shape[1] - 1, 1)
            .squeeze(1)
            .argmax(-1)
            .toArray() as number[];
        });
      try {
        return writeRows(last(ids), options, (tokens) =>
          scope(() => last(tensor(Int32Array.from(tokens), { shape: [tokens.length, 1], device: ids.device }))),
        );
      } finally {
        for (const c of caches) c.dispose();
        for (const t of seen.flat()) t.dispose();
      }
    });
  }
}

/** How well texts fit pictures. */
export class BlipMatcher extends Blip {
  readonly imageProjection: Linear;
  readonly textProjection: Linear;
  readonly head: Linear;
  constructor(
    vision: BlipTower,
    text: BlipText,
    parts: { readonly image: Linear; readonly text: Linear; readonly head: Linear },
  ) {
    super(vision, text);
    this.imageProjection = parts.image;
    this.textProjection = parts.text;
    this.head = parts.head;
  }
  #first(ids: Tensor, mask: Tensor | undefined, context?: Tensor): Tensor {
    const seen = keysMask(mask);
    const x = this.text.layers.reduce(
      (h, layer) => layer.forward(h, seen ? { mask: seen } : {}, context && { context }),
      this.text.embed(ids, 0),
    );
    return x.narrow(1, 0, 1).squeeze(1);
  }
  /** Logits (b, 2) of pairs of texts (b, t) and pictures (b, 3, height, width): they do not fit, and they do. */
  forward(ids: Tensor, pixels: Tensor, mask?: Tensor): Tensor {
    return this.head.forward(this.#first(ids, mask, this.vision.forward(pixels)));
  }
  /** Vectors of length 1, (texts, width). */
  embedText(ids: Tensor, mask?: Tensor): Tensor {
    return unit(this.textProjection.forward(this.#first(ids, mask)));
  }
  /** Vectors of length 1, (pictures, width). */
  embedImage(pixels: Tensor): Tensor {
    return unit(this.imageProjection.forward(this.vision.forward(pixels).narrow(1, 0, 1).squeeze(1)));
  }
}
const unit = (x: Tensor): Tensor => x.div(x.sqr().sum(-1, true).sqrt().maximum(1e-12));

function side(c: Config | undefined, where: string, eps: number): TowerConfig & { readonly c: Config } {
  if (!c) throw new UnsupportedError(`${where}: text_config and vision_config must both be given`);
  c.ignoreBooks();
  c.ignore('projection_dim', 'label_smoothing', 'tie_word_embeddings');
  return {
    c,
    width: c.count('hidden_size', 768),
    layers: c.count('num_hidden_layers', 12),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: c.count('intermediate_size', 3072),
    eps: c.number('layer_norm_eps', eps),
    activation: c.activation('hidden_act', 'gelu'),
  };
}

function blip(c: Config, source: ModelSource): BlipCaptioner | BlipMatcher {
  c.ignore(
    'image_text_hidden_size',
    'logit_scale_init_value',
    'projection_dim',
    'label_smoothing',
    'tie_word_embeddings',
  );
  c.ignore('text_config_dict', 'vision_config_dict', 'logit_scale');
  const [t, v] = [side(c.inner('text_config'), c.where, 1e-12), side(c.inner('vision_config'), c.where, 1e-5)];
  v.c.only('num_channels', 3);
  t.c.only('is_decoder', true);
  const vb = source.builder;
  const [writes, matches] = [source.has('text_decoder.cls.predictions.bias'), source.has('itm_head.weight')];
  if (writes === matches || (writes && source.names.some((n) => n.startsWith('text_encoder.'))))
    throw new UnsupportedError(
      `${source.path}: BLIP that writes captions (text_decoder) or matches (text_encoder, itm_head) is served; this ` +
        'is another',
    );
  source.ignore(/(^|\.)position_ids$/);
  const vision = new BlipTower(
    vb.pp('vision_model'),
    v,
    v.c.count('image_size', 384, 1),
    v.c.count('patch_size', 16, 1),
  );
  const sizes = {
    vocabulary: t.c.count('vocab_size', 30524),
    positions: t.c.count('max_position_embeddings', 512),
    seen: t.c.count('encoder_hidden_size', 768),
  };
  const product = (name: string): Linear => {
    const [to, from] = source.shapeOf(`${name}.weight`);
    return linear(from, to, vb.pp(name));
  };
  if (matches) {
    const text = new BlipText(vb.pp('text_encoder'), t, sizes);
    const parts = { image: product('vision_proj'), text: product('text_proj'), head: product('itm_head') };
    return new BlipMatcher(vision, text, parts);
  }
  const text = new BlipText(vb.pp('text_decoder.bert'), t, sizes);
  const at = vb.pp('text_decoder.cls.predictions');
  const [own, words] = [
    'text_decoder.cls.predictions.decoder.weight',
    'text_decoder.bert.embeddings.word_embeddings.weight',
  ];
  const tied = source.isTied(own, words);
  source.ignore(new Set([...(tied ? [own] : []), 'text_decoder.cls.predictions.decoder.bias']));
  const weight = tied ? text.words.weight : vb.get([sizes.vocabulary, t.width], own);
  return new BlipCaptioner(vision, text, {
    dense: linear(t.width, t.width, at.pp('transform.dense')),
    norm: layerNorm(t.width, at.pp('transform.LayerNorm'), { eps: t.eps }),
    out: new Linear(weight, at.get([sizes.vocabulary], 'bias')),
    bend: t.activation,
  });
}
export const BLIP_FAMILIES: readonly ModelRow[] = [{ kind: 'image-text-to-text', types: ['blip'], build: blip }];
