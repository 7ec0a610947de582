// Jina's BERT (jina-embeddings-v2): tokens go by their distances both ways (ALiBi), feed-forwards have gates; that for
// code has norms on queries and keys, and a second sum and norm behind attention.
import { type Embedding, embedding, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { ClassifierHead, classifies, type EncoderInput, type EncoderOutput, TextEncoder } from './encoder.js';
import { alibiSlopes } from '../families/alibi-slopes.js';
import { chunks, GatedFeedForward, rowTable } from '../parts.js';
import type { ModelSource } from '../files/source.js';
import { tokenHead } from './token-head.js';

interface JinaConfig {
  readonly vocabSize: number;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly positions: number;
  readonly types: number;
  readonly eps: number;
  /** Of gates. */
  readonly activation: string;
}
/** What takes a key out of sight. */
const HIDDEN = 1e9;

/** The first of several names that is stored. */
const stored = (vb: VarBuilder, ...names: readonly string[]): VarBuilder =>
  vb.pp(names.find((n) => vb.has(`${n}.weight`)) ?? names[0]);

/** Gates and ups: apart, or as one tensor, in which gates come first but for the model for code. */
function gates(vb: VarBuilder, { width, inner }: JinaConfig, forCode: boolean): readonly [gate: Linear, up: Linear] {
  const bare = { bias: false };
  if (vb.has('gated_layers_w.weight'))
    return [
      linear(width, inner, vb.pp('gated_layers_w'), bare),
      linear(width, inner, stored(vb, 'gated_layers_v', 'gated_layers'), bare),
    ];
  const both = linear(width, 2 * inner, stored(vb, 'gated_layers', 'up_gated_layer'), bare);
  const [first, second] = chunks(both, 2);
  return forCode ? [second, first] : [first, second];
}

class JinaBlock extends Module {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly out: Linear;
  readonly qNorm: LayerNorm | undefined;
  readonly kNorm: LayerNorm | undefined;
  readonly norm1: LayerNorm;
  /** Of the sum of what the first norm made and the input. */
  readonly again: LayerNorm | undefined;
  readonly mlp: GatedFeedForward;
  readonly norm2: LayerNorm;
  readonly #heads: number;
  constructor(vb: VarBuilder, c: JinaConfig) {
    super();
    const { width, eps } = c;
    this.#heads = c.heads;
    const [self, output, mlp] = [vb.pp('attention.self'), vb.pp('attention.output'), vb.pp('mlp')];
    const norm = (at: VarBuilder): LayerNorm => layerNorm(width, at, { eps });
    const maybe = (at: VarBuilder, name: string): LayerNorm | undefined =>
      at.has(`${name}.weight`) ? norm(at.pp(name)) : undefined;
    this.q = linear(width, width, self.pp('query'));
    this.k = linear(width, width, self.pp('key'));
    this.v = linear(width, width, self.pp('value'));
    this.qNorm = maybe(self, 'layer_norm_q');
    this.kNorm = maybe(self, 'layer_norm_k');
    this.out = linear(width, width, output.pp('dense'));
    this.norm1 = norm(output.pp('LayerNorm'));
    this.again = maybe(vb, 'layer_norm_1');
    const [gate, up] = gates(mlp, c, this.qNorm !== undefined);
    this.mlp = new GatedFeedForward(gate, up, linear(c.inner, width, stored(mlp, 'wo', 'down_layer')), c.activation);
    this.norm2 = norm(stored(vb, 'mlp.layernorm', 'layer_norm_2'));
  }
  #attend(x: Tensor, mask: Tensor): Tensor {
    const [b, t, width] = x.shape;
    const split = (y: Tensor): Tensor => y.reshape([b, t, this.#heads, width / this.#heads]).transpose(1, 2);
    const normed = (part: Linear, norm: LayerNorm | undefined): Tensor => {
      const y = part.forward(x);
      return split(norm ? norm.forward(y) : y);
    };
    const y = normed(this.q, this.qNorm).sdpa(normed(this.k, this.kNorm), split(this.v.forward(x)), { mask });
    return this.out.forward(y.transpose(1, 2).reshape([b, t, width]));
  }
  forward(x: Tensor, mask: Tensor): Tensor {
    const first = this.norm1.forward(x.add(this.#attend(x, mask)));
    const y = this.again ? this.again.forward(x.add(first)) : first;
    return this.norm2.forward(y.add(this.mlp.forward(y)));
  }
}

class JinaBert extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly words: Embedding;
  readonly types: Embedding | undefined;
  readonly norm: LayerNorm;
  readonly blocks: JinaBlock[];
  readonly pooler: Linear | undefined;
  override readonly classifier: ClassifierHead | undefined;
  readonly #slopes: readonly number[];
  constructor(vb: VarBuilder, c: JinaConfig, classifier?: ClassifierHead) {
    super();
    this.classifier = classifier;
    this.width = c.width;
    this.maxTokens = c.positions;
    this.#slopes = alibiSlopes(c.heads);
    const e = vb.pp('embeddings');
    this.words = embedding(c.vocabSize, c.width, e.pp('word_embeddings'));
    this.types = c.types > 0 ? rowTable(c.types, c.width, e.pp('token_type_embeddings')) : undefined;
    this.norm = layerNorm(c.width, e.pp('LayerNorm'), { eps: c.eps });
    this.blocks = Array.from({ length: c.layers }, (_, i) => new JinaBlock(vb.pp('encoder.layer', i), c));
    this.pooler = vb.has('pooler.dense.weight') ? linear(c.width, c.width, vb.pp('pooler.dense')) : undefined;
  }
  /** What scores are added for distances and, where there is any, for padding: (b or 1, heads, t, t). */
  #distances(t: number, mask: Tensor | undefined, like: Tensor): Tensor {
    const added = new Float32Array(this.#slopes.length * t * t);
    this.#slopes.forEach((slope, h) => {
      for (let i = 0; i < t; i++) for (let j = 0; j < t; j++) added[(h * t + i) * t + j] = -slope * Math.abs(i - j);
    });
    const bias = tensor(added, { shape: [1, this.#slopes.length, t, t], device: like.device });
    const closed = mask?.ne(0).cast('f32').affine(HIDDEN, -HIDDEN).reshape([mask.shape[0], 1, 1, t]);
    const all = closed ? bias.add(closed) : bias;
    return (like.dtype === 'f16' ? all.clamp(-6e4, 0) : all).cast(like.dtype).contiguous();
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask, typeIds } = input;
    let x = this.words.forward(ids); // (b, t, width)
    if (this.types) x = x.add(typeIds ? this.types.forward(typeIds) : this.types.weight.narrow(0, 0, 1));
    x = this.norm.forward(x);
    const added = this.#distances(ids.shape[1], mask, x);
    for (const block of this.blocks) x = block.forward(x, added);
    const pooled = this.pooler?.forward(x.narrow(1, 0, 1).squeeze(1)).tanh();
    const out = { hidden: x, ...(pooled && { pooled }) };
    return this.classifier ? { ...out, logits: this.classifier.forward(out) } : out;
  }
}

/** The gate's activation by the kind that configs name. */
const GATES: Readonly<Record<string, string>> = { geglu: 'gelu', reglu: 'relu' };
/** BERT's config with distances for positions. */
export function jinaBert(c: Config, source: ModelSource, vb: VarBuilder): JinaBert {
  c.only('feed_forward_type', ...Object.keys(GATES));
  c.only('is_decoder', false);
  c.only('add_cross_attention', false);
  c.only('hidden_act', 'gelu'); // of a feed-forward without gates and of the head for words
  c.ignore('tie_word_embeddings', 'emb_pooler', 'attn_implementation', 'model_max_length', 'gradient_checkpointing');
  const config: JinaConfig = {
    vocabSize: c.count('vocab_size'),
    width: c.count('hidden_size'),
    layers: c.count('num_hidden_layers'),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: c.count('intermediate_size'),
    positions: c.count('max_position_embeddings'),
    types: c.count('type_vocab_size', 2),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: GATES[c.text('feed_forward_type')],
  };
  const head = classifies(c) ? new ClassifierHead(c, source, config.width, { out: 'classifier' }) : undefined;
  const made = new JinaBert(vb, config, head);
  made.tokens = tokenHead(c, source, { eps: config.eps, activation: 'gelu', words: made.words.weight });
  return made;
}
