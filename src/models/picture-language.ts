// Models that read pictures and write text: a vision tower whose vectors stand in for tokens of a decoder. LLaVA,
// PaliGemma (whose prompt sees itself both ways) and Gemma 3 (whose pictures do).
import { ArgumentError, FormatError, UnsupportedError } from '../base/errors.js';
import { activation } from '../nn/activation.js';
import { type Linear, linear, RmsNorm } from '../nn/layers.js';
import { Layer, Module } from '../nn/module.js';
import type { VarBuilder } from '../nn/var-builder.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { keep, scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { towerOf, type VisionTower } from './clip.js';
import { Config, type Json } from './config.js';
import type { CausalLM } from './decoder.js';
import { DECODER_FAMILIES } from './families/index.js';
import type { ModelRow } from './model-row.js';
import type { ModelSource } from './source.js';
import { type AttendOptions, BatchStep, type DecoderCache } from './step.js';

/** Tokens of one group see each other both ways; those of none (-1) look back. */
type Groups = readonly (readonly number[])[];

/** A run in which some tokens see those of their group behind them, too. */
class GroupedStep extends BatchStep {
  readonly #groups: Groups;
  readonly #keys: DecoderCache | undefined;
  readonly #windowless: boolean;
  /** `windowless`: groups see past the windows of layers. */
  constructor(ids: Tensor, cache: DecoderCache | undefined, groups: Groups, windowless: boolean) {
    super(ids.device, ids.shape[1], cache, undefined);
    this.#groups = groups;
    this.#keys = cache;
    this.#windowless = windowless;
  }
  #seen(window: number | undefined, like: Tensor): Tensor {
    const t = this.#groups[0].length;
    const data = this.#groups.flatMap((row) =>
      Array.from({ length: t * t }, (_, i) => {
        const [from, to] = [Math.floor(i / t), i % t];
        const near = this.#windowless || window === undefined || to > from - window;
        return Number(near && (to <= from || (row[from] >= 0 && row[from] === row[to])));
      }),
    );
    return tensor(Uint8Array.from(data), { shape: [this.#groups.length, 1, t, t], device: like.device });
  }
  override attend(layer: number, q: Tensor, k: Tensor | undefined, v: Tensor | undefined, how: AttendOptions): Tensor {
    const { window, chunk, alibi, sinks, scale, softcap } = how;
    if (!k || !v || chunk !== undefined || alibi || sinks)
      throw new UnsupportedError('attention: chunks, sinks, alibi and lent keys are not served both ways');
    const turned = (x: Tensor): Tensor => x.permute([0, 2, 1, 3]);
    const cache = this.#keys?.kv(layer);
    const [keys, values] = cache ? cache.append(turned(k), turned(v)) : [turned(k), turned(v)];
    return turned(turned(q).sdpa(keys, values, { scale, mask: this.#seen(window, q), ...(softcap && { softcap }) }));
  }
}

export interface WriteOptions {
  /** The longest answer; default 64 tokens. */
  readonly maxTokens?: number;
  /** Tokens that end an answer; default none. */
  readonly end?: readonly number[];
}
/** Rows of tokens from their first ones on; `next` answers what follows the last ones. */
export function writeRows(
  first: readonly number[],
  { maxTokens = 64, end = [] }: WriteOptions,
  next: (tokens: readonly number[]) => readonly number[],
): number[][] {
  const rows = first.map((): number[] => []);
  const done = first.map(() => false);
  for (let step = 0, tokens = first; step < maxTokens && done.includes(false); step++) {
    if (step > 0) tokens = next(tokens);
    tokens = tokens.map((token, i) => (done[i] ? end[0] : token));
    tokens.forEach((token, i) => {
      rows[i].push(token);
      done[i] ||= end.includes(token);
    });
  }
  return rows;
}

/** What tells the families apart. */
interface Reading {
  /** A picture's vectors (b, places, width) of the tower's layers. */
  readonly select: (tower: VisionTower, pixels: Tensor) => Tensor;
  /** These as tokens of the text, (b, tokens, hidden). */
  readonly project: Layer;
  readonly imageToken: number;
  /** Which tokens see each other: all of a prompt, or those of one picture. */
  readonly bothWays?: 'prompt' | 'picture';
}

/** Pictures and text in, text out. */
export class PictureLanguage extends Module {
  /** The network that writes. */
  readonly text: CausalLM;
  /** The network that sees. */
  readonly tower: VisionTower;
  readonly project: Layer;
  readonly #reading: Reading;
  constructor(text: CausalLM, tower: VisionTower, reading: Reading) {
    super();
    this.text = text;
    this.tower = tower;
    this.project = reading.project;
    this.#reading = reading;
  }
  /** The token that stands for a place of a picture. */
  get imageToken(): number {
    return this.#reading.imageToken;
  }
  /** Pictures (n, channels, height, width) as tokens of the text, (n, tokens, hidden). */
  picture(pixels: Tensor): Tensor {
    return this.project.forward(this.#reading.select(this.tower, pixels));
  }
  #groups(rows: readonly (readonly number[])[]): Groups | undefined {
    const { bothWays, imageToken } = this.#reading;
    if (bothWays === undefined) return undefined;
    if (bothWays === 'prompt') return rows.map((row) => row.map(() => 0));
    // Tokens of a picture stand side by side; between two pictures stands something else.
    return rows.map((row) => {
      let at = -1;
      return row.map((id, i) => {
        if (id !== imageToken) return -1;
        if (row[i - 1] !== imageToken) at++;
        return at;
      });
    });
  }
  /** The words' vectors with the pictures' in the places of their tokens. */
  #joined(words: Tensor, rows: readonly (readonly number[])[], pictures: Tensor | undefined): Tensor {
    const wanted = rows.flat().filter((id) => id === this.imageToken).length;
    const [n, tokens] = pictures ? pictures.shape : [0, 0];
    if (wanted !== n * tokens)
      throw new ArgumentError(
        `pictures: the text has ${wanted} tokens for pictures (number ${this.imageToken}); ${n} of ${tokens} each were given`,
      );
    if (!pictures) return words;
    const [b, t, width] = words.shape;
    let next = b * t;
    const order = rows.flat().map((id, i) => (id === this.imageToken ? next++ : i));
    const all = words.reshape([b * t, width]).cat([pictures.reshape([n * tokens, width]).cast(words.dtype)], 0);
    return all.indexSelect(0, tensor(Uint32Array.from(order), { device: words.device })).reshape([b, t, width]);
  }
  #read(ids: Tensor, pixels: Tensor | undefined, cache: DecoderCache | undefined): Tensor {
    if (ids.rank !== 2)
      throw new ArgumentError(
        `pictures: token numbers have shape [${ids.shape.join(', ')}]; they must be (batch, time)`,
      );
    const rows = ids.toArray() as number[][];
    const groups = this.#groups(rows);
    const step = groups
      ? new GroupedStep(ids, cache, groups, this.#reading.bothWays === 'prompt')
      : new BatchStep(ids.device, ids.shape[1], cache, undefined);
    const pictures = pixels && this.picture(pixels);
    // A token for pictures may lie beyond the words' table.
    const known = tensor(Int32Array.from(rows.flat().map((id) => (id === this.imageToken ? 0 : id))), {
      shape: ids.shape,
      device: ids.device,
    });
    const x = this.text.hidden(known, step, (words) => this.#joined(words, rows, pictures));
    if (cache) cache.length += ids.shape[1];
    return x;
  }
  /** Logits (b, t, vocabulary) of token numbers (b, t) and the pictures they name, in order, (n, channels, h, w). */
  forward(ids: Tensor, pixels?: Tensor): Tensor {
    return this.text.logits(this.#read(ids, pixels, undefined));
  }
  /** The likeliest tokens behind prompts of one length; a row that has ended goes on with its end token. */
  answer(ids: Tensor, pixels: Tensor | undefined, options: WriteOptions = {}): number[][] {
    const likeliest = (logits: Tensor): number[] => logits.squeeze(1).argmax(-1).toArray() as number[];
    return noGrad(() => {
      const cache = this.text.newCache(undefined, true);
      try {
        const first = scope(() => {
          const x = this.#read(ids, pixels, cache);
          return likeliest(this.text.logits(x.narrow(1, x.shape[1] - 1, 1)));
        });
        return writeRows(first, options, (tokens) => {
          const last = tensor(Int32Array.from(tokens), { shape: [tokens.length, 1], device: ids.device });
          const next = scope(() => likeliest(this.text.forward(last, cache)));
          last.dispose();
          return next;
        });
      } finally {
        cache.dispose();
      }
    });
  }
}

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
type Sides = { readonly vb: VarBuilder; readonly seen: number; readonly written: number; readonly vision: Config };
const lastOf = (tower: VisionTower, pixels: Tensor): Tensor => tower.hidden(pixels);

/** LLaVA may read several layers, counted from behind, with or without the class token. */
function llava(c: Config, { vb, seen, written, vision }: Sides): Omit<Reading, 'imageToken'> {
  c.ignore('image_seq_length');
  c.only('vision_feature_select_strategy', 'default', 'full');
  const given = typeof c.get('vision_feature_layer') === 'number' ? [c.number('vision_feature_layer')] : undefined;
  const layers = given ?? (c.has('vision_feature_layer') ? c.numbers('vision_feature_layer') : [-2]);
  const plain = c.text('vision_feature_select_strategy', 'default') === 'default';
  const count = vision.count('num_hidden_layers', 12);
  if (layers.some((i) => !Number.isInteger(i) || i > count || i < -count - 1))
    throw new FormatError(`${c.where}: vision_feature_layer ${layers.join(', ')} is none of ${count} layers`);
  const bend = c.activation('projector_hidden_act', 'gelu');
  return {
    select: (tower, pixels) => {
      const all = tower.layers(pixels);
      const parts = layers.map((i) => all.at(i) as Tensor);
      const joined = parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 2);
      return plain ? joined.narrow(1, 1, joined.shape[1] - 1).contiguous() : joined;
    },
    project: new TwoProducts(vb, [layers.length * seen, written], c.flag('multimodal_projector_bias', true), bend),
  };
}
function paligemma(c: Config, { vb, seen, written, vision }: Sides): Omit<Reading, 'imageToken'> {
  c.ignore('hidden_size', 'ignore_index');
  c.only('projection_dim', written);
  vision.only('projection_dim', written);
  vision.ignore('vocab_size', 'num_image_tokens');
  return { select: lastOf, project: linear(seen, written, vb.pp('linear')), bothWays: 'prompt' };
}
function gemma3(c: Config, { vb, seen, written, vision }: Sides): Omit<Reading, 'imageToken'> {
  const side = Math.floor(vision.count('image_size', 224) / vision.count('patch_size', 16));
  const kernel = Math.floor(side / Math.floor(Math.sqrt(c.count('mm_tokens_per_image', 256, 1))));
  const project = new Pooled(vb, [seen, written], vision.number('layer_norm_eps', 1e-6), side, kernel);
  return { select: lastOf, project, bothWays: 'picture' };
}
const READINGS = { llava, paligemma, gemma3 } as const;
/** The token for pictures where a config does not say. */
const UNSAID: Readonly<Record<string, number>> = { llava: 32000, paligemma: 256000, gemma3: 262144 };

function pictureLanguage(c: Config, source: ModelSource): PictureLanguage {
  const type = c.text('model_type') as keyof typeof READINGS;
  const vision = c.inner('vision_config');
  const text = c.get('text_config') as Json | undefined;
  if (!vision || !text) throw new FormatError(`${c.where}: vision_config and text_config must both be given`);
  c.ignore('vocab_size', 'tie_word_embeddings');
  const imageToken = c.optional('image_token_index') ?? c.optional('image_token_id') ?? UNSAID[type];
  c.ignore('image_token_index', 'image_token_id', 'boi_token_id', 'eoi_token_id');
  // PaliGemma's text is Gemma without a cap on logits; that a prompt sees itself both ways is the run's business here.
  const { use_bidirectional_attention: _, num_image_tokens: __, ...plain } = text;
  const gemma = {
    model_type: 'gemma',
    ...plain,
    ...(plain.model_type === 'gemma2' && { final_logit_softcapping: null }),
  };
  const json = { ...c.json, ...(type === 'paligemma' && { model_type: 'llava', text_config: gemma }) };
  const row = DECODER_FAMILIES.find((r) => r.types.includes(String(json.model_type))) as ModelRow<CausalLM>;
  const decoder = row.build(new Config(json, c.where), source, {});
  const prefixes = ['model.vision_tower', 'vision_tower'].flatMap((p) => [`${p}.vision_model`, p]);
  const { tower, width } = towerOf(vision, within(source, prefixes));
  const vb = within(source, ['model.multi_modal_projector', 'multi_modal_projector']);
  const reading = READINGS[type](c, { vb, seen: width, written: decoder.config.hiddenSize, vision });
  return new PictureLanguage(decoder, tower, { ...reading, imageToken });
}
export const PICTURE_LANGUAGE_FAMILIES: readonly ModelRow[] = [
  { kind: 'image-text-to-text', types: Object.keys(READINGS), build: pictureLanguage },
];
