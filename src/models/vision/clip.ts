// CLIP and SigLIP: a text and an image each become one vector, and their product says how well they fit.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { Conv2d, type Embedding, embedding, type LayerNorm, layerNorm, Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import { nearestPlaces, smoothPlaces, stretched } from './places.js';
import { chunks, type FeedForward, feedForward, keysMask, MultiHead, type PreNormBlock } from '../parts.js';
import { madeOf, reshaped, rowTable } from '../parts.js';
import { blocksOf, Patches, sideLengths, type TowerConfig, type TowerNames } from './vit.js';
import type { ModelSource } from '../files/source.js';

const NAMES: TowerNames = {
  norm1: 'layer_norm1',
  attention: { q: 'self_attn.q_proj', k: 'self_attn.k_proj', v: 'self_attn.v_proj', out: 'self_attn.out_proj' },
  norm2: 'layer_norm2',
  mlp: ['mlp.fc1', 'mlp.fc2'],
};
interface TextConfig extends TowerConfig {
  readonly vocabSize: number;
  readonly positions: number;
  readonly causal: boolean;
  /** Whose place gives the text's vector: a token, the largest number, or the last place. */
  readonly vectorAt: number | 'largest' | 'last';
}
interface VisionConfig extends TowerConfig {
  readonly image: readonly [number, number];
  readonly patch: readonly [number, number];
  readonly channels: number;
}

/** The half that reads. */
export abstract class TextHalf extends Module {
  /** The longest text. */
  abstract readonly maxTokens: number;
  /** Width of a token's vector. */
  abstract readonly width: number;
  /** Vectors of tokens, (b, time, width). */
  abstract hidden(ids: Tensor, mask?: Tensor): Tensor;
  /** The text's vector, (b, width), of these. */
  abstract vectorOf(ids: Tensor, hidden: Tensor): Tensor;
  /** The text's vector, (b, width). */
  forward(ids: Tensor, mask?: Tensor): Tensor {
    return this.vectorOf(ids, this.hidden(ids, mask));
  }
}

class TextTower extends TextHalf {
  readonly words: Embedding;
  readonly positions: Embedding;
  readonly blocks: PreNormBlock[];
  readonly norm: LayerNorm;
  readonly #config: TextConfig;
  constructor(vb: VarBuilder, c: TextConfig) {
    super();
    this.#config = c;
    this.words = embedding(c.vocabSize, c.width, vb.pp('embeddings.token_embedding'));
    this.positions = rowTable(c.positions, c.width, vb.pp('embeddings.position_embedding'));
    this.blocks = blocksOf(vb.pp('encoder.layers'), c, NAMES);
    this.norm = layerNorm(c.width, vb.pp('final_layer_norm'), { eps: c.eps });
  }
  get maxTokens(): number {
    return this.#config.positions;
  }
  get width(): number {
    return this.#config.width;
  }
  hidden(ids: Tensor, mask?: Tensor): Tensor {
    let x = this.words.forward(ids).add(this.positions.weight.narrow(0, 0, ids.shape[1]));
    const seen = keysMask(mask);
    const options = { ...(this.#config.causal && { causal: true }), ...(seen && { mask: seen }) };
    for (const block of this.blocks) x = block.forward(x, options);
    return this.norm.forward(x);
  }
  vectorOf(ids: Tensor, x: Tensor): Tensor {
    const [b, t, width] = x.shape;
    const at = this.#config.vectorAt;
    if (at === 'last') return x.narrow(1, t - 1, 1).squeeze(1);
    const place = (at === 'largest' ? ids.cast('f32') : ids.eq(at).cast('f32')).argmax(1); // the first where it is
    return x.gather(1, place.cast('u32').reshape([b, 1, 1]).broadcastTo([b, 1, width]).contiguous()).squeeze(1);
  }
}

/**
 * Patches of pictures of other sizes have the learnt position that is nearest, or one between those learnt; 'flat': one
 * in the mean of those around it, and patches are lists of numbers, place by place.
 */
type OtherSizes = 'nearest' | 'between' | 'flat';

/** A learnt question to all patches, SigLIP's pooling. */
class AttentionPool extends Module {
  readonly probe: Tensor;
  readonly attention: MultiHead;
  readonly norm: LayerNorm;
  readonly mlp: FeedForward;
  constructor(vb: VarBuilder, c: TowerConfig) {
    super();
    this.probe = vb.get([1, 1, c.width], 'probe');
    const at = vb.pp('attention');
    const joined = new Linear(at.get([3 * c.width, c.width], 'in_proj_weight'), at.get([3 * c.width], 'in_proj_bias'));
    const [q, k, v] = chunks(joined, 3);
    this.attention = new MultiHead({ q, k, v, out: linear(c.width, c.width, at.pp('out_proj')) }, c.heads);
    this.norm = layerNorm(c.width, vb.pp('layernorm'), { eps: c.eps });
    this.mlp = feedForward(vb, ['mlp.fc1', 'mlp.fc2'], c.width, c.inner, c.activation);
  }
  forward(x: Tensor): Tensor {
    const [b, , width] = x.shape;
    const y = this.attention.forward(this.probe.broadcastTo([b, 1, width]).contiguous(), { context: x });
    return y.add(this.mlp.forward(this.norm.forward(y))).squeeze(1);
  }
}

/** A product of patches whose numbers lie place by place, as a convolution. */
function flatConv(vb: VarBuilder, { channels, width, patch }: VisionConfig): Conv2d {
  const weight = madeOf(vb, (read) =>
    read([width, channels * patch[0] * patch[1]], 'weight')
      .reshape([width, ...patch, channels])
      .permute([0, 3, 1, 2])
      .copy(),
  );
  return new Conv2d(weight, vb.get([width], 'bias'), { stride: patch });
}

export class VisionTower extends Module {
  readonly patches: Patches;
  /** CLIP's; SigLIP has none. */
  readonly classToken: Tensor | undefined;
  readonly positions: Embedding;
  readonly preNorm: LayerNorm | undefined;
  readonly blocks: PreNormBlock[];
  readonly postNorm: LayerNorm;
  readonly pool: AttentionPool | undefined;
  /** Rows and columns of patches of a picture of the size that was learnt. */
  readonly grid: readonly [rows: number, columns: number];
  readonly #others: OtherSizes | undefined;
  readonly #patch: readonly [number, number];
  constructor(vb: VarBuilder, c: VisionConfig, siglip: boolean, others?: OtherSizes) {
    super();
    this.grid = [Math.floor(c.image[0] / c.patch[0]), Math.floor(c.image[1] / c.patch[1])];
    this.#others = others;
    this.#patch = c.patch;
    const e = vb.pp('embeddings');
    const count = this.grid[0] * this.grid[1];
    const made = others === 'flat' ? flatConv(e.pp('patch_embedding'), c) : undefined;
    this.patches = new Patches(e.pp('patch_embedding'), c.channels, c.width, c.image, c.patch, siglip, c.patch, made);
    this.classToken = siglip ? undefined : e.get([c.width], 'class_embedding');
    this.positions = rowTable(count + (siglip ? 0 : 1), c.width, e.pp('position_embedding'));
    // OWL-ViT has it without the first one's slip.
    const preNorm = vb.has('pre_layernorm.weight') ? 'pre_layernorm' : 'pre_layrnorm';
    this.preNorm = siglip ? undefined : layerNorm(c.width, vb.pp(preNorm), { eps: c.eps });
    this.blocks = blocksOf(vb.pp('encoder.layers'), c, NAMES);
    this.postNorm = layerNorm(c.width, vb.pp('post_layernorm'), { eps: c.eps });
    this.pool = vb.has('head.probe') ? new AttentionPool(vb.pp('head'), c) : undefined;
  }
  #positions(pixels: Tensor): Tensor {
    const { weight } = this.positions;
    const grid = this.#patch.map((side, i) => Math.floor(pixels.shape[2 + i] / side));
    if (this.#others === 'nearest') return nearestPlaces(weight, grid);
    if (this.#others === 'flat') return smoothPlaces(weight, grid);
    const learnt = grid[0] === grid[1] && grid[0] * grid[1] === this.grid[0] * this.grid[1];
    return this.#others && !learnt ? stretched(weight.unsqueeze(0), grid, 'cubic') : weight;
  }
  /** What goes into the first block and what comes out of each, (b, places, width). */
  layers(pixels: Tensor): Tensor[] {
    let x = this.#others ? this.patches.ofAny(pixels) : this.patches.forward(pixels);
    if (this.classToken) x = this.classToken.reshape([1, 1, -1]).broadcastTo([x.shape[0], 1, x.shape[2]]).cat([x], 1);
    x = x.add(this.#positions(pixels));
    if (this.preNorm) x = this.preNorm.forward(x);
    const all = [x];
    for (const block of this.blocks) all.push((x = block.forward(x)));
    return all;
  }
  /** Whether pictures may be of any size. */
  get anySize(): boolean {
    return this.#others !== undefined;
  }
  /** What comes out of the last block; SigLIP's is normed. */
  hidden(pixels: Tensor): Tensor {
    const x = this.layers(pixels).at(-1) as Tensor;
    return this.classToken ? x : this.postNorm.forward(x);
  }
  /** The image's vector, (b, width). */
  forward(pixels: Tensor): Tensor {
    return this.vectorOf(this.hidden(pixels));
  }
  /** The image's vector of what comes out of the last block. */
  vectorOf(x: Tensor): Tensor {
    if (this.pool) return this.pool.forward(x);
    if (!this.classToken) throw new ArgumentError('vision: this tower has no head that makes one vector of a picture');
    return this.postNorm.forward(x.narrow(1, 0, 1).squeeze(1));
  }
}

const unit = (x: Tensor): Tensor => x.div(x.sqr().sum(-1, true).sqrt());

/** Texts and images in one space. */
export class ImageText extends Module {
  readonly text: TextHalf;
  readonly vision: VisionTower;
  /** CLIP's text_projection, SigLIP's head with its bias. */
  readonly textProjection: Linear;
  readonly imageProjection: Linear | undefined;
  readonly logitScale: Tensor;
  readonly logitBias: Tensor | undefined;
  /** SigLIP judges every pair by itself, CLIP shares out among the texts. */
  readonly pairwise: boolean;
  /** Texts are read in small letters (SigLIP 2). */
  readonly lowers: boolean;
  constructor(
    parts: Pick<
      ImageText,
      'text' | 'vision' | 'textProjection' | 'imageProjection' | 'logitScale' | 'logitBias' | 'pairwise' | 'lowers'
    >,
  ) {
    super();
    this.text = parts.text;
    this.vision = parts.vision;
    this.textProjection = parts.textProjection;
    this.imageProjection = parts.imageProjection;
    this.logitScale = parts.logitScale;
    this.logitBias = parts.logitBias;
    this.pairwise = parts.pairwise;
    this.lowers = parts.lowers;
  }
  /** Vectors of any length, (texts, width). SigLIP looks at padding too: give it no mask. */
  textVectors(ids: Tensor, mask?: Tensor): Tensor {
    return this.textProjection.forward(this.text.forward(ids, this.pairwise ? undefined : mask));
  }
  /** Vectors of any length, (pictures, width). */
  imageVectors(pixels: Tensor): Tensor {
    const x = this.vision.forward(pixels);
    return this.imageProjection ? this.imageProjection.forward(x) : x;
  }
  /** Vectors of length 1, (texts, width). */
  embedText(ids: Tensor, mask?: Tensor): Tensor {
    return unit(this.textVectors(ids, mask));
  }
  /** Vectors of length 1, (pictures, width). */
  embedImage(pixels: Tensor): Tensor {
    return unit(this.imageVectors(pixels));
  }
  /** Logits (images, texts) of vectors of length 1. */
  logits(images: Tensor, texts: Tensor): Tensor {
    const scaled = images.matmul(texts.t()).mul(this.logitScale.exp());
    return this.logitBias ? scaled.add(this.logitBias) : scaled;
  }
  /** Probabilities (images, texts). */
  scores(images: Tensor, texts: Tensor): Tensor {
    const logits = this.logits(images, texts);
    return this.pairwise ? logits.sigmoid() : logits.softmax(-1);
  }
}

const TOWER_DEFAULTS = {
  clip: { activation: 'quick_gelu', eps: 1e-5 },
  siglip: { activation: 'gelu_pytorch_tanh', eps: 1e-6 },
};

/** Fields of the inner configs that mean nothing here. */
export function ignoreBookkeeping(c: Config): void {
  c.ignore('model_type', 'attention_dropout', 'dropout', 'initializer_factor', 'initializer_range', 'projection_dim');
  c.ignore(
    'bos_token_id',
    'pad_token_id',
    'eos_token_id',
    'architectures',
    'torch_dtype',
    'dtype',
    'transformers_version',
  );
  for (const name of Object.keys(c.json)) if (GENERATION.test(name)) c.ignore(name);
}
const GENERATION =
  /^(add_cross_attention|bad_words_ids|begin_suppress_tokens|chunk_size_feed_forward|cross_attention_hidden_size|decoder_start_token_id|diversity_penalty|do_sample|early_stopping|encoder_no_repeat_ngram_size|exponential_decay_length_penalty|finetuning_task|forced_\w+|id2label|is_decoder|is_encoder_decoder|label2id|length_penalty|max_length|min_length|no_repeat_ngram_size|num_beam\w*|num_return_sequences|output_\w+|_name_or_path|prefix|problem_type|pruned_heads|remove_invalid_values|repetition_penalty|return_dict\w*|sep_token_id|suppress_tokens|task_specific_params|temperature|tf_legacy_loss|tie_encoder_decoder|tie_word_embeddings|tokenizer_class|top_k|top_p|torchscript|typical_p|use_bfloat16)$/;

/** Sizes of a tower. */
function tower(c: Config, kind: 'clip' | 'siglip', sizes: Readonly<Record<string, number>>): TowerConfig {
  ignoreBookkeeping(c);
  return {
    width: c.count('hidden_size', sizes.width),
    layers: c.count('num_hidden_layers', 12),
    heads: c.count('num_attention_heads', sizes.heads, 1),
    inner: c.count('intermediate_size', sizes.inner),
    eps: c.number('layer_norm_eps', TOWER_DEFAULTS[kind].eps),
    activation: c.activation('hidden_act', TOWER_DEFAULTS[kind].activation),
  };
}

/** Where a config does not say. */
const VISION_SIZES = { width: 768, heads: 12, inner: 3072 };
export function visionConfig(
  v: Config,
  kind: 'clip' | 'siglip',
  sizes = VISION_SIZES,
  patch = kind === 'siglip' ? 16 : 32,
  image = 224,
): VisionConfig {
  return {
    ...tower(v, kind, sizes),
    image: v.has('image_size') ? sideLengths(v, 'image_size') : [image, image],
    patch: v.has('patch_size') ? sideLengths(v, 'patch_size') : [patch, patch],
    channels: v.count('num_channels', 3),
  };
}
interface TowerKind {
  readonly kind: 'clip' | 'siglip';
  /** Patches of pictures of other sizes have the learnt position that is nearest. */
  readonly nearest?: true;
  readonly sizes?: typeof VISION_SIZES;
  readonly patch?: number;
}
const IDEFICS: TowerKind = { kind: 'siglip', nearest: true, sizes: { width: 1152, heads: 16, inner: 3072 }, patch: 32 };
/** Towers by the names that configs give them; Idefics' first folders name the whole model. */
const TOWERS: Readonly<Record<string, TowerKind>> = {
  clip_vision_model: { kind: 'clip' },
  siglip_vision_model: { kind: 'siglip' },
  idefics3_vision: IDEFICS,
  idefics3: IDEFICS,
  smolvlm_vision: IDEFICS,
};
/** The half that sees by itself, as a part of another model; a type that is not named is told by its tensors. */
export function towerOf(
  v: Config,
  vb: VarBuilder,
  unsaid = vb.has('embeddings.class_embedding') ? 'clip_vision_model' : 'siglip_vision_model',
): { readonly tower: VisionTower; readonly width: number } {
  const type = v.text('model_type', unsaid);
  if (!Object.hasOwn(TOWERS, type))
    throw new UnsupportedError(
      `${v.where}: vision_config.model_type is ${JSON.stringify(type)}; served are ${Object.keys(TOWERS).join(', ')}`,
    );
  const { kind, nearest, sizes, patch } = TOWERS[type];
  v.ignore('vision_use_head');
  const config = visionConfig(v, kind, sizes, patch);
  return { tower: new VisionTower(vb, config, kind === 'siglip', nearest && 'nearest'), width: config.width };
}

/** What tells CLIP's kin apart. */
export interface ImageTextStyle {
  readonly kind: 'clip' | 'siglip';
  /** Pictures may be of other sizes than the one that was learnt. */
  readonly others?: OtherSizes;
  /** A text's vector is where its largest number is, whatever a config says of ends. */
  readonly largest?: true;
  /** It is where its end is, whatever the end's number. */
  readonly exact?: true;
  /** Where a config does not say: the longest text, a picture's side, a patch's. */
  readonly unsaid?: { readonly positions: number; readonly image: number; readonly patch: number };
}
function textConfig(
  t: Config,
  kind: 'clip' | 'siglip',
  positions: number,
  { largest, exact }: Pick<ImageTextStyle, 'largest' | 'exact'> = {},
): TextConfig {
  const siglip = kind === 'siglip';
  // Files leave out what equals the defaults of transformers.
  const sizes = siglip ? { width: 768, heads: 12, inner: 3072 } : { width: 512, heads: 8, inner: 2048 };
  const eos = t.optional('eos_token_id') ?? 49407;
  return {
    ...tower(t, kind, sizes),
    vocabSize: t.count('vocab_size', siglip ? 32000 : 49408),
    positions: t.count('max_position_embeddings', positions),
    causal: !siglip,
    // Old configs of CLIP say 2 where the end token is the largest number.
    vectorAt: siglip ? 'last' : largest || (eos === 2 && !exact) ? 'largest' : eos,
  };
}
/** CLIP's half that reads, by itself. */
export const clipText = (c: Config, vb: VarBuilder): TextHalf => new TextTower(vb, textConfig(c, 'clip', 77));
/** Both halves, by what a config says, under a name that another model gives them. */
export function imageText(c: Config, source: ModelSource, style: ImageTextStyle, vb = source.builder): ImageText {
  const { kind, others, largest, exact } = style;
  const siglip = kind === 'siglip';
  const unsaid = style.unsaid ?? { positions: siglip ? 64 : 77, image: 224, patch: siglip ? 16 : 32 };
  c.ignore(
    'logit_scale_init_value',
    'initializer_factor',
    'text_config_dict',
    'vision_config_dict',
    'tie_word_embeddings',
  );
  source.ignore(/\.position_ids$/);
  const inner = (name: string): Config => c.inner(name) ?? new Config({}, c.where);
  const [t, v] = [inner('text_config'), inner('vision_config')];
  if (siglip) v.only('vision_use_head', true); // without it an image has no vector of its own
  const text = textConfig(t, kind, unsaid.positions, { ...(largest && { largest }), ...(exact && { exact }) });
  // SigLIP 2 says how many patches were learnt, not of what picture.
  const learnt = others === 'flat' ? Math.sqrt(v.count('num_patches', 256, 1)) : 0;
  if (!Number.isInteger(learnt))
    throw new UnsupportedError(`${c.where}: vision_config.num_patches is ${v.json.num_patches}; served are squares`);
  const patch = others === 'flat' ? v.count('patch_size', 16, 1) : unsaid.patch;
  const vision = visionConfig(v, kind, VISION_SIZES, patch, learnt > 0 ? learnt * patch : unsaid.image);
  const size = siglip ? t.count('projection_size', text.width) : c.count('projection_dim', 512);
  const [reads, sees] = [
    new TextTower(vb.pp('text_model'), text),
    new VisionTower(vb.pp('vision_model'), vision, siglip, others),
  ];
  if (!siglip) return new ImageText(imageTextParts(vb, reads, sees, vision.width, size));
  return new ImageText({
    text: reads,
    vision: sees,
    textProjection: linear(text.width, size, vb.pp('text_model.head')),
    imageProjection: undefined,
    logitScale: scalar(vb, 'logit_scale'),
    logitBias: scalar(vb, 'logit_bias'),
    pairwise: true,
    lowers: others === 'flat',
  });
}
const scalar = (vb: VarBuilder, name: string): Tensor => reshaped(vb.get(undefined, name), [1]);
/** CLIP of two halves: products lead from each into one space. */
export const imageTextParts = (
  vb: VarBuilder,
  text: TextHalf,
  vision: VisionTower,
  seen: number,
  size: number,
): ConstructorParameters<typeof ImageText>[0] => ({
  text,
  vision,
  textProjection: linear(text.width, size, vb.pp('text_projection'), { bias: false }),
  imageProjection: linear(seen, size, vb.pp('visual_projection'), { bias: false }),
  logitScale: scalar(vb, 'logit_scale'),
  logitBias: undefined,
  pairwise: false,
  lowers: false,
});
/** What files of these types are for: some are classifiers, the others compare pictures with texts. */
export const towerKind = (_: Config, source: ModelSource): 'vision' | 'image-text' =>
  source.has('classifier.weight') ? 'vision' : 'image-text';
const rowOf = (type: string, style: ImageTextStyle): ModelRow => ({
  kind: 'image-text',
  types: [type],
  kindOf: towerKind,
  build: (c, source) => imageText(c, source, style),
});
export const IMAGE_TEXT_FAMILIES: readonly ModelRow[] = [
  rowOf('clip', { kind: 'clip' }),
  rowOf('metaclip_2', { kind: 'clip', exact: true }),
  rowOf('siglip', { kind: 'siglip' }),
  rowOf('siglip2', { kind: 'siglip', others: 'flat' }),
];
