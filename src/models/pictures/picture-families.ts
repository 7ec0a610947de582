// Families that read pictures and write text, a row each: LLaVA, PaliGemma (whose prompt sees itself both ways), Gemma
// 3 (whose pictures do), Qwen-VL (whose tokens have places), Pixtral and Mistral 3 (whose pictures have any size),
// LLaVA-NeXT, LLaVA-OneVision, Idefics 3, SmolVLM and InternVL (whose pictures come in tiles), and Llama 3.2 (some of
// whose layers look at pictures).
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type LayerNorm, layerNorm, type Linear, linear, RmsNorm } from '../../nn/layers.js';
import { Layer } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { towerOf, type VisionTower } from '../vision/clip.js';
import { Config, isObject, type Json } from '../files/config.js';
import { CrossLayers } from './cross-layers.js';
import type { CausalLM } from '../decoder/decoder.js';
import { Eye, type Seen } from './eye.js';
import { DECODER_FAMILIES } from '../families/index.js';
import { keyed } from '../decoder/features.js';
import { internTower } from './intern-eye.js';
import { mllamaEye } from './mllama-eye.js';
import type { ModelRow } from '../model-row.js';
import { PictureLanguage, type Reading } from './picture-language.js';
import { PatchMerger, PixtralEye, type PixtralTower, pixtralTower } from './pixtral-eye.js';
import { qwenEye, type QwenKind } from './qwen-eye.js';
import type { ModelSource } from '../files/source.js';
import { mostTilesOf, ShuffledEye, TileEye, tileSizes } from './tile-eyes.js';

/** A tower for pictures of one size, and what makes tokens of its vectors. */
class TowerEye extends Eye {
  readonly tower: VisionTower;
  readonly project: Layer;
  readonly #select: Select;
  readonly #tokens: number;
  /** `tokens`: how many a picture becomes. */
  constructor(tower: VisionTower, project: Layer, select: Select, tokens = patchesOf(tower)) {
    super();
    this.#tokens = tokens;
    this.tower = tower;
    this.project = project;
    this.#select = select;
  }
  tokensOf(): number {
    return this.#tokens;
  }
  /** Of pictures (n, channels, height, width). */
  forward(pixels: Tensor): Seen {
    const all = this.project.forward(this.#select(this.tower, pixels));
    return { tokens: all.reshape([-1, all.shape[2]]) };
  }
}
const patchesOf = ({ grid: [rows, columns] }: VisionTower): number => rows * columns;
/** A picture's vectors (b, places, width) of the tower's layers. */
type Select = (tower: VisionTower, pixels: Tensor) => Tensor;

/** LLaVA's: two products. */
class TwoProducts extends Layer {
  readonly first: Linear;
  readonly second: Linear;
  readonly #bend: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, [from, to]: readonly [number, number], bias: boolean, f: string) {
    super();
    this.first = linear(from, to, vb.pp('linear_1'), { bias });
    this.second = linear(to, to, vb.pp('linear_2'), { bias });
    this.#bend = activation(f);
  }
  forward(x: Tensor): Tensor {
    return this.second.forward(this.#bend(this.first.forward(x)));
  }
}
/** Gemma 3's: means of squares of patches, a norm and a product. */
class Pooled extends Layer {
  readonly norm: RmsNorm;
  readonly weight: Tensor;
  readonly #side: number;
  readonly #kernel: number;
  constructor(vb: VarBuilder, [from, to]: readonly [number, number], eps: number, side: number, kernel: number) {
    super();
    const stored = vb.get([from], 'mm_soft_emb_norm.weight');
    this.norm = new RmsNorm(keep(scope(() => stored.affine(1, 1))), eps);
    stored.dispose();
    this.weight = vb.get([from, to], 'mm_input_projection_weight');
    this.#side = side;
    this.#kernel = kernel;
  }
  forward(x: Tensor): Tensor {
    const [b, , width] = x.shape;
    const k = this.#kernel;
    const picture = x.transpose(1, 2).reshape([b, width, this.#side, this.#side]);
    const means = picture.contiguous().avgPool2d(k, k).reshape([b, width, -1]).transpose(1, 2).contiguous();
    return this.norm.forward(means).matmul(this.weight);
  }
}

/** Tensors that begin with the first of these that there are. */
function within(source: ModelSource, names: readonly string[]): VarBuilder {
  const found = names.find((p) => source.names.some((n) => n.startsWith(`${p}.`)));
  if (found === undefined) throw new FormatError(`${source.path}: there are no tensors of ${names.join(' or ')}`);
  return source.builder.pp(found);
}
interface Sides {
  readonly source: ModelSource;
  readonly vision: Config;
  readonly text: CausalLM;
}
const lastOf: Select = (tower, pixels) => tower.hidden(pixels);
const TOWERS = ['model.vision_tower', 'vision_tower'].flatMap((p) => [`${p}.vision_model`, p]);
const towerIn = ({ source, vision }: Sides): ReturnType<typeof towerOf> => towerOf(vision, within(source, TOWERS));
const projector = (source: ModelSource): VarBuilder =>
  within(source, ['model.multi_modal_projector', 'multi_modal_projector']);

/** The tower's layers whose vectors are read, counted from behind or from what goes into the first. */
function layersRead(c: Config, vision: Config, unsaid: number, layersUnsaid = 12): readonly number[] {
  const given = typeof c.get('vision_feature_layer') === 'number' ? [c.number('vision_feature_layer')] : undefined;
  const layers = given ?? (c.has('vision_feature_layer') ? c.numbers('vision_feature_layer') : [unsaid]);
  const count = vision.count('num_hidden_layers', layersUnsaid);
  if (layers.length === 0 || layers.some((i) => !Number.isInteger(i) || i > count || i < -count - 1))
    throw new FormatError(`${c.where}: vision_feature_layer ${layers.join(', ')} is none of ${count} layers`);
  return layers;
}
/** Two products to the text's width. */
function twoProducts(c: Config, { source, text }: Pick<Sides, 'source' | 'text'>, from: number, bias: boolean): Layer {
  const bend = c.activation('projector_hidden_act', 'gelu');
  const sizes = [from, text.config.hiddenSize] as const;
  return new TwoProducts(projector(source), sizes, c.flag('multimodal_projector_bias', bias), bend);
}
/** LLaVA may read several layers, with or without the class token. */
function llavaParts(
  c: Config,
  sides: Sides,
  unsaid: { readonly layer: number; readonly strategy: string } = { layer: -2, strategy: 'default' },
): { readonly tower: VisionTower; readonly select: Select; readonly project: Layer; readonly tokens: number } {
  c.ignore('image_seq_length');
  c.only('vision_feature_select_strategy', 'default', 'full');
  const layers = layersRead(c, sides.vision, unsaid.layer);
  const plain = c.text('vision_feature_select_strategy', unsaid.strategy) === 'default';
  const { tower, width } = towerIn(sides);
  const select: Select = (tower, pixels) => {
    const all = tower.layers(pixels);
    const parts = layers.map((i) => all.at(i) as Tensor);
    const joined = parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 2);
    return plain ? joined.narrow(1, 1, joined.shape[1] - 1).contiguous() : joined;
  };
  const project = twoProducts(c, sides, layers.length * width, true);
  const tokens = patchesOf(tower) + Number(tower.classToken !== undefined) - Number(plain);
  return { tower, select, project, tokens };
}
/** Pixtral's tower has no class token to leave out, and 24 layers where a config does not say. */
function pixtralParts(
  c: Config,
  { source, vision }: Sides,
  unsaid: number,
): { readonly tower: PixtralTower; readonly layers: readonly number[]; readonly width: number } {
  const layers = layersRead(c, vision, unsaid, 24);
  return { ...pixtralTower(vision, within(source, ['model.vision_tower', 'vision_tower'])), layers };
}
function llavaPixtral(c: Config, sides: Sides): Omit<Reading, 'imageToken'> {
  c.ignore('image_seq_length');
  const strategy = c.text('vision_feature_select_strategy', 'default');
  if (strategy !== 'full')
    throw new UnsupportedError(
      `${c.where}: vision_feature_select_strategy is "${strategy}"; Pixtral's pictures have no token to leave out and ` +
        'only "full" is served',
    );
  const { tower, layers, width } = pixtralParts(c, sides, -2);
  const project = twoProducts(c, sides, layers.length * width, true);
  return { eye: new PixtralEye({ tower, merger: undefined, project }, layers) };
}
function mistral3(c: Config, sides: Sides): Omit<Reading, 'imageToken'> {
  c.only('vision_feature_select_strategy', 'full');
  const { tower, layers, width } = pixtralParts(c, sides, -1);
  if (layers.length > 1)
    throw new UnsupportedError(`${c.where}: vision_feature_layer is [${layers.join(', ')}]; one layer is served`);
  const side = c.count('spatial_merge_size', 2, 1);
  const merger = new PatchMerger(projector(sides.source), width, sides.text.config.norm.eps, side);
  return { eye: new PixtralEye({ tower, merger, project: twoProducts(c, sides, width, false) }, layers) };
}
function llava(c: Config, sides: Sides): Omit<Reading, 'imageToken'> {
  if (sides.vision.get('model_type') === 'pixtral') return llavaPixtral(c, sides);
  const { tower, select, project, tokens } = llavaParts(c, sides);
  return { eye: new TowerEye(tower, project, select, tokens) };
}
/** LLaVA-NeXT's tiles make one of a few sizes; OneVision's make one of many, and what is too large is made smaller. */
const tiled =
  (unsaid: { readonly layer: number; readonly strategy: string }, pinpoints: readonly Pair[], shrinks: boolean) =>
  (c: Config, sides: Sides): Omit<Reading, 'imageToken'> => {
    const { tower, select, project, tokens } = llavaParts(c, sides, unsaid);
    c.ignore('use_image_newline_parameter', 'video_token_index', 'video_token_id');
    const [side, [rows, columns]] = [sides.vision.count('image_size', 224), tower.grid];
    if (rows !== columns || tokens !== rows * columns)
      throw new UnsupportedError(
        `${c.where}: a tile of ${rows} x ${columns} patches becomes ${tokens} tokens, which make no picture again`,
      );
    const sizes = tileSizes(c.where, 'image_grid_pinpoints', c.get('image_grid_pinpoints') ?? pinpoints);
    const { source, text } = sides;
    const name = ['model.image_newline', 'image_newline'].find((n) => source.has(n)) ?? 'model.image_newline';
    const newline = source.builder.get([text.config.hiddenSize], name);
    const most = shrinks && mostTilesOf(c.where, c.text('vision_aspect_ratio', 'anyres_max_9'));
    const config = { side, patches: rows, sizes, ...(most && { mostTiles: most }) };
    return { eye: new TileEye({ tower, project, newline }, config, select) };
  };
type Pair = readonly [number, number];
const NEXT_SIZES: readonly Pair[] = [
  [336, 672],
  [672, 336],
  [672, 672],
  [1008, 336],
  [336, 1008],
];
const SIXTHS = [1, 2, 3, 4, 5, 6].map((n) => n * 384);
const ONE_SIZES = SIXTHS.flatMap((h) => SIXTHS.map((w): Pair => [h, w]));

function idefics3(c: Config, { source, vision, text }: Sides): Omit<Reading, 'imageToken'> {
  c.ignore('image_seq_len', 'use_reentrant_checkpoint', 'transformers.js_config', 'freeze_config', 'qk_layer_norms');
  // What the first folders' towers carry beside their sizes is the processor's.
  vision.ignore('max_image_size', 'size', 'use_base_siglip', '_attn_implementation_autoset', '_flash_attn_2_enabled');
  const { tower, width } = towerOf(vision, within(source, ['model.vision_model', 'vision_model']), 'idefics3_vision');
  const vb = within(source, ['model.connector', 'connector']);
  const side = c.count('scale_factor', 2, 1);
  const project = linear(width * side ** 2, text.config.hiddenSize, vb.pp('modality_projection.proj'), { bias: false });
  return { eye: new ShuffledEye(tower, project, side) };
}

/** InternVL's: a norm, and two products. */
class NormedProducts extends Layer {
  readonly norm: LayerNorm;
  readonly products: TwoProducts;
  constructor(vb: VarBuilder, sizes: readonly [number, number], f: string) {
    super();
    this.norm = layerNorm(sizes[0], vb.pp('layer_norm'));
    this.products = new TwoProducts(vb, sizes, true, f);
  }
  forward(x: Tensor): Tensor {
    return this.products.forward(this.norm.forward(x));
  }
}
function internvl(c: Config, { source, vision, text }: Sides): Omit<Reading, 'imageToken'> {
  c.ignore('image_seq_length');
  c.only('vision_feature_select_strategy', 'default');
  const side = 1 / c.number('downsample_ratio', 0.5);
  if (!Number.isInteger(side) || side < 1)
    throw new UnsupportedError(
      `${c.where}: downsample_ratio is ${c.get('downsample_ratio')}; one over a whole number is served`,
    );
  const layers = layersRead(c, vision, -1, 24);
  if (layers.length > 1 || Array.isArray(c.get('vision_feature_layer')))
    throw new UnsupportedError(`${c.where}: vision_feature_layer is [${layers.join(', ')}]; a number is served`);
  source.ignore(/(^|\.)embeddings\.mask_token$/);
  const { tower, width } = internTower(vision, within(source, ['model.vision_tower', 'vision_tower']), layers[0]);
  const [rows, columns] = tower.grid;
  if (rows % side !== 0)
    throw new FormatError(`${c.where}: ${rows} x ${columns} patches do not divide into squares of ${side} x ${side}`);
  const sizes = [width * side ** 2, text.config.hiddenSize] as const;
  const project = new NormedProducts(projector(source), sizes, c.activation('projector_hidden_act', 'gelu'));
  return { eye: new ShuffledEye(tower, project, side) };
}

function paligemma(c: Config, sides: Sides): Omit<Reading, 'imageToken'> {
  const { vision, text } = sides;
  const written = text.config.hiddenSize;
  c.ignore('hidden_size');
  c.only('projection_dim', written);
  vision.only('projection_dim', written);
  vision.ignore('num_image_tokens');
  const { tower, width } = towerIn(sides);
  const project = linear(width, written, projector(sides.source).pp('linear'));
  return { eye: new TowerEye(tower, project, lastOf), bothWays: 'prompt' };
}
function gemma3(c: Config, sides: Sides): Omit<Reading, 'imageToken'> {
  const { vision, text } = sides;
  const side = Math.floor(vision.count('image_size', 224) / vision.count('patch_size', 16));
  const tokens = c.count('mm_tokens_per_image', 256, 1);
  const kernel = Math.floor(side / Math.floor(Math.sqrt(tokens)));
  if (kernel < 1)
    throw new FormatError(`${c.where}: mm_tokens_per_image is ${tokens}, and a picture has ${side * side} patches`);
  const { tower, width } = towerIn(sides);
  const sizes = [width, text.config.hiddenSize] as const;
  const project = new Pooled(projector(sides.source), sizes, vision.number('layer_norm_eps', 1e-6), side, kernel);
  return { eye: new TowerEye(tower, project, lastOf, Math.floor(side / kernel) ** 2), bothWays: 'picture' };
}

/** Llama 3.2's: layers of the text that look at pictures; the token for these has a row behind the words' own. */
function mllama(c: Config, { source, vision, text }: Sides): Omit<Reading, 'imageToken'> {
  const inner = new Config(c.json.text_config as Json, c.where, 'text_config.');
  const { hiddenSize: width, vocabSize, norm, layers } = text.config;
  const at = inner.has('cross_attention_layers') ? inner.numbers('cross_attention_layers') : LOOKING;
  if (at.some((i) => !layers[i]) || new Set(at).size !== at.length)
    throw new FormatError(
      `${c.where}: text_config.cross_attention_layers [${at.join(', ')}] of ${layers.length} layers`,
    );
  const extra = (c.optional('image_token_index') ?? c.optional('image_token_id') ?? 128256) - vocabSize;
  if (!(extra >= 0 && extra < EXTRA_ROWS))
    throw new UnsupportedError(
      `${c.where}: image_token_index is none of the ${EXTRA_ROWS} tokens behind the vocabulary of ${vocabSize}`,
    );
  const heads = inner.count('num_attention_heads', 32, 1);
  const own = within(source, ['model.language_model', 'language_model.model']);
  const table = own.get([vocabSize + EXTRA_ROWS, width], 'embed_tokens.weight');
  const token = keep(
    scope(() =>
      table
        .narrow(0, vocabSize + extra, 1)
        .squeeze(0)
        .copy(),
    ),
  );
  table.dispose();
  const config = {
    ...{ width, heads, eps: norm.eps },
    kvHeads: inner.count('num_key_value_heads', 8, 1),
    inner: inner.count('intermediate_size', 14_336, 1),
    activation: inner.activation('hidden_act', 'silu'),
  };
  const eye = mllamaEye(vision, within(source, ['model.vision_model', 'vision_model']), projector(source), token);
  return { eye, cross: new CrossLayers(own, config, at) };
}
const LOOKING = [3, 8, 13, 18, 23, 28, 33, 38];
const EXTRA_ROWS = 8;

/** By which of time, row and column each pair of a head turns: runs of pairs (2, 2.5), or in turns (3). */
function axesOf(c: Config, text: CausalLM, inTurns: boolean): number[] {
  const { json, where } = c;
  const inner = (isObject(json.text_config) ? json.text_config : json) as Json;
  const said = (inner.rope_parameters ?? inner.rope_scaling ?? {}) as Json;
  const sections: unknown = said.mrope_section ?? (inTurns ? [24, 20, 20] : [16, 24, 24]);
  const pairs = (keyed(text.config.layers[0].mixer)?.rope?.headDim ?? 0) / 2;
  const list = Array.isArray(sections) ? (sections as number[]) : [];
  if (list.length !== 3 || list.some((n) => !(n >= 0)) || list[0] + list[1] + list[2] !== pairs)
    throw new FormatError(`${where}: mrope_section is ${JSON.stringify(sections)}; a head has ${pairs} pairs to turn`);
  if (!inTurns) return list.flatMap((n, axis) => Array<number>(n).fill(axis));
  return Array.from({ length: pairs }, (_, i) => (i % 3 > 0 && i < 3 * list[i % 3] ? i % 3 : 0));
}
const qwen =
  (kind: QwenKind) =>
  (c: Config, { source, vision, text }: Sides): Omit<Reading, 'imageToken'> => {
    c.ignore('video_token_id', 'vision_start_token_id', 'vision_end_token_id', 'vision_token_id');
    const eye = qwenEye(vision, within(source, ['model.visual', 'visual']), kind, text.config.hiddenSize);
    return { eye, places: { axes: axesOf(c, text, kind === 'qwen3_vl'), merge: eye.merge } };
  };

interface ReadingRow {
  /** How it sees. */
  readonly read: (c: Config, sides: Sides) => Omit<Reading, 'imageToken'>;
  /** The token for pictures where a config does not say. */
  readonly token: number;
  /** The config as the text's own reader takes it. */
  readonly text?: (json: Json) => Json;
}
/** PaliGemma's text is Gemma without a cap on logits; that a prompt sees itself both ways is the run's business. */
function gemmaText({ text_config, ...json }: Json): Json {
  const { use_bidirectional_attention: _, num_image_tokens: __, ...plain } = text_config as Json;
  const capless = plain.model_type === 'gemma2' && { final_logit_softcapping: null };
  return { ...json, model_type: 'llava', text_config: { model_type: 'gemma', ...plain, ...capless } };
}
/** OneVision's head is the embedding where either config says so. */
const tiedByEither = (json: Json): Json => ({
  ...json,
  tie_word_embeddings: json.tie_word_embeddings === true || (json.text_config as Json).tie_word_embeddings === true,
});
/** What the first folders say beside their text's fields, which transformers does not read either. */
const UNREAD = [
  ...['_flash_attn_2_enabled', '_attn_implementation_autoset', 'neftune_noise_alpha', 'perceiver_config'],
  ...['pixel_shuffle_factor', 'qk_layer_norms', 'rope_interleaved', 'use_resampler', 'transformers.js_config'],
  'is_composition',
];
const plainText = ({ text_config, ...json }: Json): Json => ({
  ...json,
  text_config: Object.fromEntries(Object.entries(text_config as Json).filter(([name]) => !UNREAD.includes(name))),
});
const READINGS: Readonly<Record<string, ReadingRow>> = {
  llava: { read: llava, token: 32000, text: plainText },
  mistral3: { read: mistral3, token: 10, text: plainText },
  llava_next: { read: tiled({ layer: -2, strategy: 'default' }, NEXT_SIZES, false), token: 32000 },
  llava_onevision: {
    read: tiled({ layer: -1, strategy: 'full' }, ONE_SIZES, true),
    token: 151646,
    text: tiedByEither,
  },
  idefics3: { read: idefics3, token: 128257, text: plainText },
  smolvlm: { read: idefics3, token: 128257, text: plainText },
  internvl: { read: internvl, token: 151667, text: plainText },
  mllama: { read: mllama, token: 128256 },
  paligemma: { read: paligemma, token: 256000, text: gemmaText },
  gemma3: { read: gemma3, token: 262144 },
  qwen2_vl: { read: qwen('qwen2_vl'), token: 151655 },
  qwen2_5_vl: { read: qwen('qwen2_5_vl'), token: 151655 },
  qwen3_vl: { read: qwen('qwen3_vl'), token: 151655 },
  qwen3_vl_moe: { read: qwen('qwen3_vl'), token: 151655 },
};

function pictureLanguage(c: Config, source: ModelSource): PictureLanguage {
  const type = c.text('model_type');
  const vision = c.inner('vision_config');
  if (!vision) throw new FormatError(`${c.where}: vision_config must be given`);
  c.ignore('vocab_size', 'tie_word_embeddings', 'text_config');
  // Old configs keep the text's fields beside the pictures': the text's own reader answers for them.
  const beside = Object.keys(c.json).filter((name) => !/^(vision|image|video)_/.test(name));
  if (c.json.text_config === undefined && type.startsWith('qwen')) c.ignore(...beside);
  else if (!isObject(c.json.text_config)) throw new FormatError(`${c.where}: text_config must be given`);
  const { read, token, text: adapted } = READINGS[type];
  const imageToken = c.optional('image_token_index') ?? c.optional('image_token_id') ?? token;
  c.ignore('image_token_index', 'image_token_id', 'boi_token_id', 'eoi_token_id', 'ignore_index');
  vision.ignore('vocab_size');
  const json = adapted ? adapted(c.json) : c.json;
  const row = DECODER_FAMILIES.find((r) => r.types.includes(String(json.model_type))) as ModelRow<CausalLM>;
  const text = row.build(new Config(json, c.where, '', {}, c.matters), source, {});
  return new PictureLanguage(text, { ...read(c, { source, vision, text }), imageToken });
}
export const PICTURE_LANGUAGE_FAMILIES: readonly ModelRow[] = [
  { kind: 'image-text-to-text', types: Object.keys(READINGS), build: pictureLanguage },
];
