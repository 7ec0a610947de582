// DeBERTa, its second version and its third: BERT with attention that also compares tokens with distances, which have
// vectors of their own.
import { UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type Embedding, embedding, type LayerNorm, layerNorm, Linear, linear } from '../../nn/layers.js';
import { type Field, Module, storedName } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { arange, tensor } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import {
  ClassifierHead,
  classifies,
  type EncoderInput,
  type EncoderOutput,
  TASK_HEADS,
  TextEncoder,
} from './encoder.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, rowTable } from '../parts.js';
import type { ModelSource } from '../files/source.js';
import { tokenHead } from './token-head.js';

/** Which of the two looks at distances: a query at the distance of keys, a key at that of queries. */
type Looks = readonly ('c2p' | 'p2c')[];

interface DebertaConfig {
  /** The first version keeps queries, keys and values in one product, by head. */
  readonly first: boolean;
  readonly width: number;
  readonly heads: number;
  readonly headDim: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
  /** Distances up to this many have vectors; undefined: there are none. */
  readonly span?: number;
  readonly looks: Looks;
  /** What scores are divided by the root of, beside the head's width. */
  readonly parts: number;
  /** Distances go through the products of queries and keys. */
  readonly shared: boolean;
}

/** Rows of one of three parts that each head has one after another. */
const partOfHeads = (t: Tensor, heads: number, i: number): Tensor => {
  const [rows, ...rest] = t.shape;
  const each = rows / (3 * heads);
  return keep(
    scope(() =>
      t
        .reshape([heads, 3, each, ...rest])
        .narrow(1, i, 1)
        .reshape([heads * each, ...rest])
        .copy(),
    ),
  );
};
/** Queries, keys and values of the first version: biases stand apart, and keys have none. */
function together(vb: VarBuilder, { width, heads, headDim }: DebertaConfig): [Linear, Linear, Linear] {
  const across = heads * headDim;
  const stored = vb.get([3 * across, width], 'in_proj.weight');
  const part = (i: number, bias?: string): Linear =>
    new Linear(partOfHeads(stored, heads, i), bias === undefined ? undefined : vb.get([across], bias));
  const parts: [Linear, Linear, Linear] = [part(0, 'q_bias'), part(1), part(2, 'v_bias')];
  stored.dispose();
  return parts;
}

class DebertaAttention extends Module {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly out: Linear;
  /** Of distances as keys and as queries. */
  readonly distanceKey: Linear | undefined;
  readonly distanceQuery: Linear | undefined;
  readonly #c: DebertaConfig;
  constructor(vb: VarBuilder, c: DebertaConfig) {
    super();
    this.#c = c;
    const { width, first, shared } = c;
    const across = c.heads * c.headDim;
    const own = vb.pp('self');
    const part = (name: string, bias = true): Linear => linear(width, across, own.pp(name), { bias });
    [this.q, this.k, this.v] = first ? together(own, c) : ['query_proj', 'key_proj', 'value_proj'].map((n) => part(n));
    this.out = linear(across, width, vb.pp('output.dense'));
    const looks = (which: Looks[number]): boolean => c.span !== undefined && c.looks.includes(which);
    if (looks('c2p')) this.distanceKey = shared ? this.k : part(first ? 'pos_proj' : 'pos_key_proj', !first);
    if (looks('p2c')) this.distanceQuery = shared ? this.q : part(first ? 'pos_q_proj' : 'pos_query_proj');
  }
  /** (b, t, heads * d) to (b, heads, t, d). */
  #split(x: Tensor): Tensor {
    const { heads, headDim } = this.#c;
    return x.reshape([x.shape[0], x.shape[1], heads, headDim]).transpose(1, 2);
  }
  /** Products (b, heads, t, 2 span) of x with all distances, at those of each pair: (b, heads, t, t). */
  #at(x: Tensor, by: Linear, distances: Tensor, index: Tensor): Tensor {
    const vectors = this.#split(by.forward(distances.unsqueeze(0))); // (1, heads, 2 span, d)
    const all = x.contiguous().matmul(vectors.t());
    const [b, heads, t] = x.shape;
    return all.gather(3, index.broadcastTo([b, heads, t, t]).contiguous());
  }
  /** `index` is the row of each pair's distance, query by key; `closed` is added to scores. */
  forward(x: Tensor, closed: Tensor | undefined, distances?: Tensor, index?: Tensor): Tensor {
    const { headDim, parts } = this.#c;
    const scale = 1 / Math.sqrt(headDim * parts);
    const [q, k, v] = [this.q, this.k, this.v].map((p) => this.#split(p.forward(x)));
    let bias: Tensor | undefined;
    const add = (y: Tensor): Tensor => (bias ? bias.add(y) : y);
    if (distances && index) {
      if (this.distanceKey) bias = add(this.#at(q, this.distanceKey, distances, index));
      // A key looks from its own side: pairs are turned around, before and after.
      if (this.distanceQuery) bias = add(this.#at(k, this.distanceQuery, distances, index.t()).t());
    }
    if (bias) bias = bias.affine(scale, 0);
    const [b, heads, t] = q.shape;
    if (closed) bias = bias ? bias.add(closed) : closed.broadcastTo([b, heads, t, t]);
    const y = q.sdpa(k, v, { scale, ...(bias && { mask: bias.contiguous() }) });
    return this.out.forward(y.transpose(1, 2).reshape([b, t, -1]));
  }
}

class DebertaBlock extends Module {
  readonly attention: DebertaAttention;
  readonly norm1: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm2: LayerNorm;
  constructor(vb: VarBuilder, c: DebertaConfig) {
    super();
    const norm = (name: string): LayerNorm => layerNorm(c.width, vb.pp(name), { eps: c.eps });
    this.attention = new DebertaAttention(vb.pp('attention'), c);
    this.norm1 = norm('attention.output.LayerNorm');
    this.mlp = feedForward(vb, ['intermediate.dense', 'output.dense'], c.width, c.inner, c.activation);
    this.norm2 = norm('output.LayerNorm');
  }
  forward(x: Tensor, closed: Tensor | undefined, distances?: Tensor, index?: Tensor): Tensor {
    const y = this.norm1.forward(x.add(this.attention.forward(x, closed, distances, index)));
    return this.norm2.forward(y.add(this.mlp.forward(y)));
  }
}

/** A convolution over the embedding, added behind the first layer. */
class Convolution extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor;
  readonly norm: LayerNorm;
  readonly groups: number;
  readonly #f: (x: Tensor) => Tensor;
  constructor(c: Config, vb: VarBuilder, width: number, eps: number) {
    super();
    const size = c.count('conv_kernel_size', 3, 1);
    if (size % 2 === 0) throw new UnsupportedError(`${c.where}: conv_kernel_size is ${size}; only odd ones are served`);
    this.groups = c.count('conv_groups', 1, 1);
    this.#f = activation(c.activation('conv_act', 'tanh'));
    this.weight = vb.get([width, width / this.groups, size], 'conv.weight');
    this.bias = vb.get([width], 'conv.bias');
    this.norm = layerNorm(width, vb.pp('LayerNorm'), { eps });
  }
  /** `real` is 1 for tokens, 0 for padding, (b, t, 1). */
  forward(embedded: Tensor, x: Tensor, real: Tensor | undefined): Tensor {
    const { groups, bias } = this;
    const padding = (this.weight.shape[2] - 1) / 2;
    const y = embedded.transpose(1, 2).contiguous().conv1d(this.weight, { groups, bias, padding }).transpose(1, 2);
    const sum = this.norm.forward(x.add(this.#f(real ? y.mul(real) : y)));
    return real ? sum.mul(real) : sum;
  }
}

/** The row of a distance: near ones each have their own, farther ones share rows that grow wider. */
function distanceRow(distance: number, span: number, buckets: number, farthest: number): number {
  const f = Math.fround;
  const mid = Math.floor(buckets / 2);
  const far = Math.abs(distance);
  let at = distance;
  if (buckets > 0 && far > mid) {
    const [own, most] = [f(Math.log(f(far / mid))), f(Math.log(f((farthest - 1) / mid)))];
    at = Math.sign(distance) * (Math.ceil(f(f(own / most) * (mid - 1))) + mid);
  }
  return Math.min(Math.max(at + span, 0), 2 * span - 1);
}

interface Parts {
  readonly positions: number;
  readonly words: Embedding;
  readonly places: Embedding | undefined;
  readonly types: Embedding | undefined;
  readonly embedIn: Linear | undefined;
  readonly norm: LayerNorm;
  readonly distances: Embedding | undefined;
  readonly distanceNorm: LayerNorm | undefined;
  readonly convolution: Convolution | undefined;
  readonly blocks: DebertaBlock[];
  readonly classifier: ClassifierHead | undefined;
  /** The row of a distance from a key to a query. */
  readonly rowOf: (distance: number) => number;
}

class Deberta extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly parts: Omit<Parts, 'rowOf' | 'positions' | 'classifier'>;
  override readonly classifier: ClassifierHead | undefined;
  readonly #rowOf: Parts['rowOf'];
  constructor({ rowOf, positions, classifier, ...parts }: Parts, width: number) {
    super();
    this.width = width;
    this.maxTokens = positions;
    this.parts = parts;
    this.classifier = classifier;
    this.#rowOf = rowOf;
  }
  /** What its parts hold is its own: trained, moved and given back with it. */
  override *fields(): Iterable<Field> {
    for (const field of super.fields()) if (field.key !== 'parts') yield field;
    const owner = this.parts as unknown as Record<string, unknown>;
    for (const [key, value] of Object.entries(owner)) yield { name: storedName(key), value, owner, key };
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask, typeIds } = input;
    const { words, places, types, embedIn, norm, distances, distanceNorm, convolution, blocks } = this.parts;
    const t = ids.shape[1];
    let x = words.forward(ids); // (b, t, width)
    if (places) x = x.add(places.forward(arange(0, t, 1, { dtype: 'u32', device: ids.device })));
    if (types) x = x.add(typeIds ? types.forward(typeIds) : types.weight.narrow(0, 0, 1));
    if (embedIn) x = embedIn.forward(x);
    x = norm.forward(x);
    const real = mask?.ne(0).cast(x.dtype);
    if (real) x = x.mul(real.unsqueeze(2));
    const closed = real?.affine(1e9, -1e9).reshape([ids.shape[0], 1, 1, t]);
    const rows = distances && (distanceNorm ? distanceNorm.forward(distances.weight) : distances.weight);
    const at = Uint32Array.from({ length: t * t }, (_, i) => this.#rowOf(Math.floor(i / t) - (i % t)));
    const index = rows && tensor(at, { shape: [t, t], device: x.device });
    const embedded = x;
    blocks.forEach((block, i) => {
      x = block.forward(x, closed, rows, index);
      if (i === 0 && convolution) x = convolution.forward(embedded, x, real?.unsqueeze(2));
    });
    return this.classifier ? { hidden: x, logits: this.classifier.forward({ hidden: x }) } : { hidden: x };
  }
}

/** Which way distances are looked at: a list, or words between bars. */
function looksOf(c: Config): Looks {
  const given = c.get('pos_att_type');
  const list =
    typeof given === 'string' ? given.toLowerCase().split('|') : given === undefined ? [] : c.texts('pos_att_type');
  const looks = list.map((x) => x.trim());
  const odd = looks.find((x) => x !== 'c2p' && x !== 'p2c');
  if (odd !== undefined)
    throw new UnsupportedError(`${c.where}: pos_att_type holds ${JSON.stringify(odd)}; c2p and p2c are served`);
  return looks as Looks;
}
/** How far apart places are told, and in how many buckets: 0 for none. */
function distancesOf(c: Config, first: boolean, positions: number) {
  const farthest = c.number('max_relative_positions', -1) < 1 ? positions : c.count('max_relative_positions');
  const given = first ? -1 : c.number('position_buckets', -1);
  const buckets = given > 0 ? given : 0;
  return { farthest, buckets, span: buckets > 0 ? buckets : farthest };
}
function configOf(c: Config, first: boolean, span: number | undefined): DebertaConfig {
  const [width, heads] = [c.count('hidden_size', undefined, 1), c.count('num_attention_heads', undefined, 1)];
  const looks = looksOf(c);
  return {
    first,
    width,
    heads,
    headDim: first ? width / heads : (c.optional('attention_head_size') ?? width / heads),
    inner: c.count('intermediate_size', undefined, 1),
    eps: c.number('layer_norm_eps', 1e-7),
    activation: c.activation('hidden_act', 'gelu'),
    ...(span !== undefined && { span }),
    looks,
    parts: 1 + (first ? looks.length : new Set(looks).size),
    shared: !first && c.flag('share_att_key', false),
  };
}
function deberta(c: Config, source: ModelSource): Deberta {
  const first = c.text('model_type') === 'deberta';
  c.ignore('tie_word_embeddings', 'legacy', 'pooler_dropout', 'cls_dropout', 'pooler_hidden_size');
  c.only('talking_head', false);
  if (first || (c.optional('conv_kernel_size') ?? 0) <= 0) c.ignore('conv_kernel_size', 'conv_act', 'conv_groups');
  source.ignore(TASK_HEADS);
  source.ignore(/^(lm_predictions|mask_predictions)\./);
  const vb = source.has('deberta.embeddings.word_embeddings.weight') ? source.builder.pp('deberta') : source.builder;
  const positions = c.count('max_position_embeddings', 512, 1);
  const { farthest, buckets, span } = distancesOf(c, first, positions);
  const relative = c.flag('relative_attention', false);
  const config = configOf(c, first, relative ? span : undefined);
  const { width, eps } = config;
  const narrow = c.count('embedding_size', width, 1);
  const types = c.count('type_vocab_size', 0);
  const normed = first ? [] : c.text('norm_rel_ebd', 'none').toLowerCase().split('|');
  const e = vb.pp('embeddings');
  // Heads for other tasks carry a pooler too.
  const act = c.activation('pooler_hidden_act', 'gelu');
  const head = { dense: ['pooler.dense', act] as const, out: 'classifier' };
  if (!classifies(c)) source.ignore(/^pooler\./);
  const words = embedding(c.count('vocab_size'), narrow, e.pp('word_embeddings'));
  const made = new Deberta(
    {
      positions,
      words,
      places: c.flag('position_biased_input', true)
        ? embedding(positions, narrow, e.pp('position_embeddings'))
        : undefined,
      types: types > 0 ? rowTable(types, narrow, e.pp('token_type_embeddings')) : undefined,
      embedIn: narrow === width ? undefined : linear(narrow, width, e.pp('embed_proj'), { bias: false }),
      norm: layerNorm(width, e.pp('LayerNorm'), { eps }),
      distances: relative ? rowTable(2 * span, width, vb.pp('encoder.rel_embeddings')) : undefined,
      distanceNorm: normed.some((x) => x.trim() === 'layer_norm')
        ? layerNorm(width, vb.pp('encoder.LayerNorm'), { eps })
        : undefined,
      convolution:
        !first && (c.optional('conv_kernel_size') ?? 0) > 0
          ? new Convolution(c, vb.pp('encoder.conv'), width, eps)
          : undefined,
      blocks: Array.from(
        { length: c.count('num_hidden_layers', undefined, 1) },
        (_, i) => new DebertaBlock(vb.pp('encoder.layer', i), config),
      ),
      classifier: classifies(c) ? new ClassifierHead(c, source, width, head) : undefined,
      rowOf: (distance) => distanceRow(distance, span, buckets, farthest),
    },
    width,
  );
  made.tokens = tokenHead(c, source, { eps, activation: config.activation, words: words.weight });
  return made;
}
export const DEBERTA_FAMILIES: readonly ModelRow[] = [
  { kind: 'encoder', types: ['deberta', 'deberta-v2'], build: deberta },
];
