// LiLT: RoBERTa's layers over words, and beside them narrower ones over the words' boxes on a page. Each of the two
// looks where both together say.
import { type Embedding, embedding, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { type Layer, Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { FormatError } from '../../base/errors.js';
import { feedForward, keysMask, rowTable } from '../parts.js';
import { type BertConfig, bertConfig, countedPlaces, inside, oldNorms, ROBERTA } from './bert.js';
import { ClassifierHead, classifies, type EncoderInput, type EncoderOutput, TextEncoder } from './encoder.js';
import { onlyBoxes, pageRows } from './page-places.js';
import { tokenHead } from './token-head.js';

/** One of the two: what it asks, answers and becomes. */
class Stream extends Module {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly out: Linear;
  readonly norm1: LayerNorm;
  readonly mlp: Layer;
  readonly norm2: LayerNorm;
  readonly #heads: number;
  /** `layout`: what stands before the names of the narrower one. */
  constructor(vb: VarBuilder, layout: 'layout_' | '', width: number, c: BertConfig, inner: number) {
    super();
    this.#heads = c.heads;
    const part = (name: string): Linear => linear(width, width, vb.pp(`attention.self.${layout}${name}`));
    [this.q, this.k, this.v] = [part('query'), part('key'), part('value')];
    const out = vb.pp(`attention.${layout}output`);
    this.out = linear(width, width, out.pp('dense'));
    this.norm1 = layerNorm(width, out.pp('LayerNorm'), { eps: c.eps });
    const names = [`${layout}intermediate.dense`, `${layout}output.dense`] as const;
    this.mlp = feedForward(vb, names, width, inner, c.activation);
    this.norm2 = layerNorm(width, vb.pp(`${layout}output.LayerNorm`), { eps: c.eps });
  }
  #split(x: Tensor): Tensor {
    const [b, t, width] = x.shape;
    return x
      .reshape([b, t, this.#heads, width / this.#heads])
      .transpose(1, 2)
      .contiguous();
  }
  /** How well each place fits each other, (b, heads, t, t). */
  scores(x: Tensor): Tensor {
    const [q, k] = [this.#split(this.q.forward(x)), this.#split(this.k.forward(x))];
    return q.affine(1 / Math.sqrt(q.shape[3]), 0).matmul(k.transpose(2, 3).contiguous());
  }
  /** Where shares of places are given. */
  forward(x: Tensor, shares: Tensor): Tensor {
    const read = shares
      .matmul(this.#split(this.v.forward(x)))
      .transpose(1, 2)
      .reshape([...x.shape]);
    const y = this.norm1.forward(x.add(this.out.forward(read)));
    return this.norm2.forward(y.add(this.mlp.forward(y)));
  }
}
class LiltBlock extends Module {
  readonly words: Stream;
  readonly boxes: Stream;
  constructor(vb: VarBuilder, c: BertConfig, ratio: number) {
    super();
    this.words = new Stream(vb, '', c.width, c, c.inner);
    this.boxes = new Stream(vb, 'layout_', c.width / ratio, c, Math.floor(c.inner / ratio));
  }
  forward([x, y]: readonly [Tensor, Tensor], closed: Tensor | undefined): [Tensor, Tensor] {
    const scores = this.words.scores(x).add(this.boxes.scores(y));
    const shares = (closed ? scores.add(closed) : scores).softmax(-1);
    return [this.words.forward(x, shares), this.boxes.forward(y, shares)];
  }
}

class Lilt extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly words: Embedding;
  readonly positions: Embedding;
  readonly types: Embedding;
  readonly norm: LayerNorm;
  readonly places: readonly Tensor[];
  readonly boxPositions: Embedding;
  readonly boxIn: Linear;
  readonly boxNorm: LayerNorm;
  readonly blocks: LiltBlock[];
  readonly pooler: Linear | undefined;
  override readonly classifier: ClassifierHead | undefined;
  readonly #padded: number;
  constructor(
    vb: VarBuilder,
    c: BertConfig,
    { ratio, rows }: { readonly ratio: number; readonly rows: number },
    classifier: ClassifierHead | undefined,
  ) {
    super();
    this.width = c.width;
    this.classifier = classifier;
    this.#padded = c.padded as number;
    this.maxTokens = c.positions - this.#padded - 1;
    const [e, l] = [vb.pp('embeddings'), vb.pp('layout_embeddings')];
    this.words = embedding(c.vocabSize, c.width, e.pp('word_embeddings'));
    this.positions = embedding(c.positions, c.width, e.pp('position_embeddings'));
    this.types = rowTable(c.types, c.width, e.pp('token_type_embeddings'));
    this.norm = layerNorm(c.width, e.pp('LayerNorm'), { eps: c.eps });
    const [narrow, sixth] = [c.width / ratio, Math.floor(c.width / 6)];
    const table = (name: string): Tensor => l.get([rows, sixth], `${name}_position_embeddings.weight`);
    const [x, y, h, w] = ['x', 'y', 'h', 'w'].map(table);
    this.places = [x, y, x, y, h, w];
    this.boxPositions = embedding(c.positions, narrow, l.pp('box_position_embeddings'));
    this.boxIn = linear(c.width, narrow, l.pp('box_linear_embeddings'));
    this.boxNorm = layerNorm(narrow, l.pp('LayerNorm'), { eps: c.eps });
    this.blocks = Array.from({ length: c.layers }, (_, i) => new LiltBlock(vb.pp(ROBERTA.layer, i), c, ratio));
    this.pooler = vb.has('pooler.dense.weight') ? linear(c.width, c.width, vb.pp('pooler.dense')) : undefined;
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    onlyBoxes(input);
    const { ids, typeIds, mask, boxes } = input;
    const at = countedPlaces(ids, this.#padded);
    const types = typeIds ? this.types.forward(typeIds) : this.types.weight.narrow(0, 0, 1);
    const words = this.norm.forward(this.words.forward(ids).add(types).add(this.positions.forward(at)));
    const [first, ...rest] = pageRows(this.places, boxes);
    const laid = this.boxIn.forward(first.cat(rest, 2)).add(this.boxPositions.forward(at));
    const closed = keysMask(mask)?.cast(words.dtype).affine(1e9, -1e9);
    let both: [Tensor, Tensor] = [words, this.boxNorm.forward(laid)];
    for (const block of this.blocks) both = block.forward(both, closed);
    const [hidden] = both;
    const pooled = this.pooler?.forward(hidden.narrow(1, 0, 1).squeeze(1)).tanh();
    const out = { hidden, ...(pooled && { pooled }) };
    return this.classifier ? { ...out, logits: this.classifier.forward({ hidden }) } : out;
  }
}

function build(c: Config, source: ModelSource): Lilt {
  const config = bertConfig(c, true);
  const ratio = c.count('channel_shrink_ratio', 4, 1);
  if (config.width % (ratio * config.heads) !== 0 || config.width % 6 !== 0)
    throw new FormatError(
      `${c.where}: hidden_size is ${config.width}, which must divide by 6 and by ${config.heads} heads of a ` +
        `${ratio}th (channel_shrink_ratio)`,
    );
  const rows = c.count('max_2d_position_embeddings', 1024, 1);
  const vb = inside(source, oldNorms(source), 'lilt');
  const head = classifies(c) ? new ClassifierHead(c, source, config.width, ROBERTA.classifier) : undefined;
  const made = new Lilt(vb, config, { ratio, rows }, head);
  made.tokens = tokenHead(c, source, { eps: config.eps, activation: 'tanh', words: made.words.weight });
  return made;
}
export const LILT_FAMILIES: readonly ModelRow[] = [{ kind: 'encoder', types: ['lilt'], build }];
