// LayoutLMv3: RoBERTa's layers over words with their boxes on a page and, where it is given, the page itself in
// patches. Scores are added something for the distance in the text and on the page.
import { ArgumentError } from '../../base/errors.js';
import { type Conv2d, conv2d, type Embedding, embedding, type LayerNorm, layerNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { rowTable } from '../parts.js';
import { distanceBucket } from '../seq2seq/t5.js';
import { BertBlock, bertConfig, type BertConfig, countedPlaces, inside, oldNorms, ROBERTA } from './bert.js';
import { ClassifierHead, classifies, type EncoderInput, type EncoderOutput, TextEncoder } from './encoder.js';
import { checkBoxes, pageRows } from './page-places.js';
import { tokenHead } from './token-head.js';

/** Numbers of a page from side to side. */
const PAGE = 1000;
/** The widest and highest that a box counts as. */
const MOST = 1023;

/** What scores are added for how far two places are apart, by kinds of distances. */
class Distances extends Module {
  /** (heads, kinds). */
  readonly weight: Tensor;
  readonly #most: number;
  constructor(vb: VarBuilder, heads: number, kinds: number, most: number) {
    super();
    this.weight = vb.get([heads, kinds], 'weight');
    this.#most = most;
  }
  /** Of places (b, t) by their numbers: (b, heads, t, t). */
  forward(places: readonly (readonly number[])[]): Tensor {
    const [heads, kinds] = this.weight.shape;
    const [b, t] = [places.length, places[0].length];
    const of = (row: readonly number[], i: number): number =>
      distanceBucket(row[i % t] - row[Math.floor(i / t)], true, kinds, this.#most);
    const each = Uint32Array.from({ length: b * t * t }, (_, i) => of(places[Math.floor(i / (t * t))], i % (t * t)));
    const ids = tensor(each, { device: this.weight.device });
    const rows = this.weight.t().contiguous().indexSelect(0, ids);
    return rows.reshape([b, t, t, heads]).permute([0, 3, 1, 2]).contiguous();
  }
}

interface PageConfig extends BertConfig {
  readonly rows: number;
  readonly edge: number;
  readonly side: number;
  readonly channels: number;
  readonly patch: number;
  /** Pictures' height and width. */
  readonly image: number;
  readonly text: { readonly kinds: number; readonly most: number } | undefined;
  readonly page: { readonly kinds: number; readonly most: number } | undefined;
}

/** A page in patches, behind a token for the whole. */
class PageEye extends Module {
  readonly conv: Conv2d;
  readonly first: Tensor;
  readonly positions: Tensor;
  readonly norm: LayerNorm;
  readonly #config: PageConfig;
  constructor(vb: VarBuilder, c: PageConfig) {
    super();
    this.#config = c;
    this.conv = conv2d(c.channels, c.width, c.patch, vb.pp('patch_embed.proj'), { stride: c.patch });
    this.first = vb.get([1, 1, c.width], 'cls_token');
    this.positions = vb.get([1, this.across ** 2 + 1, c.width], 'pos_embed');
    this.norm = layerNorm(c.width, vb.pp('norm'), { eps: 1e-6 });
  }
  get across(): number {
    return Math.floor(this.#config.image / this.#config.patch);
  }
  forward(pixels: Tensor): Tensor {
    const { channels, image } = this.#config;
    if (pixels.rank !== 4 || [channels, image, image].some((n, i) => pixels.shape[i + 1] !== n))
      throw new ArgumentError(
        `encoder: pixels have shape [${pixels.shape.join(', ')}]; ` +
          `the model takes (batch, ${channels}, ${image}, ${image})`,
      );
    const patches = this.conv.forward(pixels).flatten(2).transpose(1, 2);
    const [b, , width] = patches.shape;
    const all = this.first.broadcastTo([b, 1, width]).cat([patches], 1);
    return this.norm.forward(all.add(this.positions));
  }
  /** Left and lower edges of the patches, behind those of the whole. */
  edges(): readonly [left: readonly number[], lower: readonly number[]] {
    const n = this.across;
    const at = (k: number): number => Math.trunc((PAGE * k) / n);
    const each = Array.from({ length: n * n }, (_, i) => i);
    return [
      [1, ...each.map((i) => at(i % n))],
      [PAGE - 1, ...each.map((i) => at(Math.floor(i / n) + 1))],
    ];
  }
}

class LayoutLm3 extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly words: Embedding;
  readonly positions: Embedding;
  readonly types: Embedding;
  /** Of edges, heights and widths of boxes. */
  readonly places: readonly Tensor[];
  readonly norm: LayerNorm;
  readonly eye: PageEye;
  /** Of words and patches together. */
  readonly bothNorm: LayerNorm;
  readonly apart: Distances | undefined;
  readonly across: Distances | undefined;
  readonly down: Distances | undefined;
  readonly blocks: BertBlock[];
  override readonly classifier: ClassifierHead | undefined;
  readonly #config: PageConfig;
  constructor(vb: VarBuilder, c: PageConfig, classifier: ClassifierHead | undefined) {
    super();
    this.#config = c;
    this.width = c.width;
    this.classifier = classifier;
    this.maxTokens = c.positions - (c.padded as number) - 1;
    const e = vb.pp('embeddings');
    this.words = embedding(c.vocabSize, c.width, e.pp('word_embeddings'));
    this.positions = embedding(c.positions, c.width, e.pp('position_embeddings'));
    this.types = rowTable(c.types, c.width, e.pp('token_type_embeddings'));
    const table = (name: string, width: number): Tensor => e.get([c.rows, width], `${name}_position_embeddings.weight`);
    const [x, y, h, w] = [table('x', c.edge), table('y', c.edge), table('h', c.side), table('w', c.side)];
    this.places = [x, y, x, y, h, w];
    this.norm = layerNorm(c.width, e.pp('LayerNorm'), { eps: c.eps });
    this.eye = new PageEye(vb, c);
    this.bothNorm = layerNorm(c.width, vb.pp('LayerNorm'), { eps: c.eps });
    const distances = (name: string, how: PageConfig['text']): Distances | undefined =>
      how && new Distances(vb.pp('encoder', name), c.heads, how.kinds, how.most);
    this.apart = distances('rel_pos_bias', c.text);
    this.across = distances('rel_pos_x_bias', c.page);
    this.down = distances('rel_pos_y_bias', c.page);
    this.blocks = Array.from({ length: c.layers }, (_, i) => new BertBlock(vb.pp(ROBERTA.layer, i), ROBERTA, c, i));
  }
  #wordsOf(input: EncoderInput): Tensor {
    const { ids, typeIds, boxes } = input;
    const types = typeIds ? this.types.forward(typeIds) : this.types.weight.narrow(0, 0, 1);
    const [first, ...rest] = pageRows(this.places, boxes, MOST);
    const x = this.words
      .forward(ids)
      .add(types)
      .add(this.positions.forward(countedPlaces(ids, this.#config.padded as number)));
    return this.norm.forward(x.add(first.cat(rest, 2)));
  }
  /** What scores are added for distances, (b, heads, places, places). */
  #bias({ ids, boxes, pixels }: EncoderInput): Tensor | undefined {
    const [b, t] = ids.shape;
    const counted = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
    const patches = pixels ? this.eye.across ** 2 + 1 : 0;
    const text = this.apart?.forward([[...counted(t), ...counted(patches)]]);
    const { across, down } = this;
    if (!across || !down) return text;
    const given = boxes?.cast('f32').toArray() as number[][][] | undefined;
    const rows = given ?? [Array.from({ length: t }, () => [0, 0, 0, 0])];
    const [left, lower] = pixels ? this.eye.edges() : [[], []];
    const page = across
      .forward(rows.map((row) => [...row.map((box) => box[0]), ...left]))
      .add(down.forward(rows.map((row) => [...row.map((box) => box[3]), ...lower])));
    const both = text ? page.add(text) : page;
    return both.shape[0] === b ? both : both.broadcastTo([b, ...both.shape.slice(1)]);
  }
  #mask(input: EncoderInput): Tensor | undefined {
    const { mask, ids, pixels } = input;
    const [b, t] = ids.shape;
    const { width, heads } = this.#config;
    const scaled = this.#bias(input)?.affine(Math.sqrt(heads / width), 0);
    const patches = pixels ? this.eye.across ** 2 + 1 : 0;
    if (!mask) return scaled?.contiguous();
    const seen = mask.ne(0).cast(scaled?.dtype ?? 'f32');
    const all = patches > 0 ? seen.cat([seen.narrow(1, 0, 1).onesLike().broadcastTo([b, patches])], 1) : seen;
    if (!scaled) return all.cast('u8').reshape([b, 1, 1, t + patches]);
    return scaled.add(all.affine(1e9, -1e9).reshape([b, 1, 1, t + patches])).contiguous();
  }
  /** Vectors of tokens and, where a page is given, of the whole page and its patches behind them. */
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    checkBoxes(input);
    const words = this.#wordsOf(input);
    const { pixels } = input;
    const all = pixels ? this.bothNorm.forward(words.cat([this.eye.forward(pixels)], 1)) : words;
    const mask = this.#mask(input);
    const hidden = this.blocks.reduce((x, block) => block.forward(x, mask ? { mask } : {}), all);
    return this.classifier ? { hidden, logits: this.classifier.forward({ hidden }) } : { hidden };
  }
  override tokenLogits(input: EncoderInput): Tensor {
    const logits = super.tokenLogits(input);
    return logits.narrow(1, 0, input.ids.shape[1]);
  }
}

function build(c: Config, source: ModelSource): LayoutLm3 {
  c.only('text_embed', true);
  c.only('visual_embed', true);
  const plain = bertConfig(c, true);
  const kinds = (flag: string, bins: string, most: string, unsaid: readonly [number, number]): PageConfig['text'] => {
    const how = { kinds: c.count(bins, unsaid[0], 4), most: c.count(most, unsaid[1], 2) };
    return c.flag(flag, true) ? how : undefined;
  };
  const config: PageConfig = {
    ...plain,
    eps: c.number('layer_norm_eps', 1e-5),
    rows: c.count('max_2d_position_embeddings', 1024, 1),
    edge: c.count('coordinate_size', 128, 1),
    side: c.count('shape_size', 128, 1),
    channels: c.count('num_channels', 3, 1),
    patch: c.count('patch_size', 16, 1),
    image: c.count('input_size', 224, 1),
    text: kinds('has_relative_attention_bias', 'rel_pos_bins', 'max_rel_pos', [32, 128]),
    page: kinds('has_spatial_attention_bias', 'rel_2d_pos_bins', 'max_rel_2d_pos', [64, 256]),
  };
  source.ignore(/(^|\.)(visual_bbox|embeddings\.position_ids)$/);
  const vb = inside(source, oldNorms(source), 'layoutlmv3');
  const head = classifies(c) ? new ClassifierHead(c, source, config.width, ROBERTA.classifier) : undefined;
  const made = new LayoutLm3(vb, config, head);
  made.tokens = tokenHead(c, source, { eps: config.eps, activation: 'tanh', words: made.words.weight });
  return made;
}
export const LAYOUT_LM3_FAMILIES: readonly ModelRow[] = [{ kind: 'encoder', types: ['layoutlmv3'], build }];
