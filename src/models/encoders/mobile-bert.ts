// MobileBERT: narrow layers between wide vectors, several feed-forwards each, and norms that are a product and a sum.
import { type Embedding, embedding, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import { inside, oldNorms } from './bert.js';
import type { Config } from '../files/config.js';
import { ClassifierHead, classifies, type EncoderInput, type EncoderOutput, TextEncoder } from './encoder.js';
import type { ModelRow } from '../model-row.js';
import { type FeedForward, feedForward, keysMask, MultiHead, rowTable } from '../parts.js';
import type { ModelSource } from '../files/source.js';
import { tokenHead } from './token-head.js';

interface MobileConfig {
  readonly vocabSize: number;
  readonly positions: number;
  readonly types: number;
  readonly embedWidth: number;
  readonly width: number;
  /** The layers' own width: narrower than the vectors between them, or the same. */
  readonly narrow: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly feeds: number;
  readonly activation: string;
  readonly eps: number;
  readonly plainNorms: boolean;
  readonly trigrams: boolean;
  readonly bottleneck: boolean;
  /** Attention reads the narrow vectors alone. */
  readonly narrowAttention: boolean;
  /** Queries and keys read narrow vectors of their own. */
  readonly narrowKeys: boolean;
  readonly pooled: boolean;
}

/** x * weight + bias: what is called a norm, and is none. */
class Scaled extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor;
  constructor(width: number, vb: VarBuilder) {
    super();
    this.weight = vb.get([width], 'weight');
    this.bias = vb.get([width], 'bias');
  }
  forward(x: Tensor): Tensor {
    return x.mul(this.weight).add(this.bias);
  }
}
type Norm = LayerNorm | Scaled;
const normOf = (c: MobileConfig, vb: VarBuilder, width: number, eps = c.eps): Norm =>
  c.plainNorms ? new Scaled(width, vb) : layerNorm(width, vb, { eps });

/** A product and its norm; with something to add, that comes between. */
class Normed extends Module {
  readonly dense: Linear;
  readonly norm: Norm;
  constructor(c: MobileConfig, vb: VarBuilder, from: number, to: number) {
    super();
    this.dense = linear(from, to, vb.pp('dense'));
    this.norm = normOf(c, vb.pp('LayerNorm'), to);
  }
  forward(x: Tensor, added?: Tensor): Tensor {
    const y = this.dense.forward(x);
    return this.norm.forward(added ? y.add(added) : y);
  }
}

/** Two products, what went in added, and a norm. */
class Feed extends Module {
  readonly mlp: FeedForward;
  readonly norm: Norm;
  constructor(mlp: FeedForward, norm: Norm) {
    super();
    this.mlp = mlp;
    this.norm = norm;
  }
  forward(x: Tensor): Tensor {
    return this.norm.forward(this.mlp.forward(x).add(x));
  }
}
class MobileBlock extends Module {
  readonly into: Normed | undefined;
  readonly keysInto: Normed | undefined;
  readonly attention: MultiHead;
  readonly norm1: Norm;
  readonly feeds: readonly Feed[];
  readonly back: Normed | undefined;
  readonly #narrowAttention: boolean;
  constructor(c: MobileConfig, vb: VarBuilder) {
    super();
    const { width, narrow, inner, heads } = c;
    this.#narrowAttention = c.narrowAttention;
    const bottleneck = (name: string): Normed => new Normed(c, vb.pp('bottleneck', name), width, narrow);
    this.into = c.bottleneck ? bottleneck('input') : undefined;
    this.keysInto = c.bottleneck && c.narrowKeys ? bottleneck('attention') : undefined;
    const part = (name: string, from: number): Linear => linear(from, narrow, vb.pp('attention.self', name));
    this.attention = new MultiHead(
      {
        ...{ q: part('query', narrow), k: part('key', narrow) },
        v: part('value', c.narrowAttention ? narrow : width),
        out: linear(narrow, narrow, vb.pp('attention.output.dense')),
      },
      heads,
    );
    this.norm1 = normOf(c, vb.pp('attention.output.LayerNorm'), narrow);
    const names = ['intermediate.dense', 'output.dense'] as const;
    // The last one's norm has PyTorch's own epsilon.
    const feed = (at: VarBuilder, eps?: number): Feed =>
      new Feed(feedForward(at, names, narrow, inner, c.activation), normOf(c, at.pp('output.LayerNorm'), narrow, eps));
    this.feeds = [...Array.from({ length: c.feeds - 1 }, (_, i) => feed(vb.pp('ffn', i))), feed(vb, 1e-5)];
    this.back = c.bottleneck ? new Normed(c, vb.pp('output.bottleneck'), narrow, width) : undefined;
  }
  forward(x: Tensor, mask: Tensor | undefined): Tensor {
    const own = this.into?.forward(x) ?? x;
    const [keys, values] = this.#narrowAttention ? [own, own] : [this.keysInto?.forward(x) ?? x, x];
    const attended = this.attention.forward(keys, { values, ...(mask && { mask }) });
    let y = this.norm1.forward(attended.add(own));
    for (const feed of this.feeds) y = feed.forward(y);
    return this.back?.forward(y, x) ?? y;
  }
}

class MobileBert extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly words: Embedding;
  readonly positions: Embedding;
  readonly types: Embedding;
  readonly embedIn: Linear | undefined;
  readonly norm: Norm;
  readonly blocks: MobileBlock[];
  readonly pooler: Linear | undefined;
  override readonly classifier: ClassifierHead | undefined;
  readonly #trigrams: boolean;
  readonly #pools: boolean;
  constructor(c: MobileConfig, vb: VarBuilder, classifier: ClassifierHead | undefined, pools: boolean) {
    super();
    this.width = c.width;
    this.maxTokens = c.positions;
    this.classifier = classifier;
    this.#trigrams = c.trigrams;
    this.#pools = pools;
    const e = vb.pp('embeddings');
    const from = c.embedWidth * (c.trigrams ? 3 : 1);
    this.words = embedding(c.vocabSize, c.embedWidth, e.pp('word_embeddings'));
    this.positions = rowTable(c.positions, c.width, e.pp('position_embeddings'));
    this.types = rowTable(c.types, c.width, e.pp('token_type_embeddings'));
    const used = c.trigrams || c.embedWidth !== c.width;
    this.embedIn = used ? linear(from, c.width, e.pp('embedding_transformation')) : undefined;
    this.norm = normOf(c, e.pp('LayerNorm'), c.width, 1e-5);
    this.blocks = Array.from({ length: c.layers }, (_, i) => new MobileBlock(c, vb.pp('encoder.layer', i)));
    this.pooler = c.pooled && pools ? linear(c.width, c.width, vb.pp('pooler.dense')) : undefined;
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask, typeIds } = input;
    const [b, t] = ids.shape;
    let x = this.words.forward(ids); // (b, t, embedding)
    if (this.#trigrams) {
      // A token beside the one behind it and the one before.
      const none = x.narrow(1, 0, 1).zerosLike();
      const behind = t > 1 ? x.narrow(1, 1, t - 1).cat([none], 1) : none;
      x = behind.cat([x, t > 1 ? none.cat([x.narrow(1, 0, t - 1)], 1) : none], 2);
    }
    x = (this.embedIn?.forward(x) ?? x).add(this.positions.weight.narrow(0, 0, t));
    x = this.norm.forward(x.add(typeIds ? this.types.forward(typeIds) : this.types.weight.narrow(0, 0, 1)));
    const seen = keysMask(mask);
    for (const block of this.blocks) x = block.forward(x, seen);
    if (!this.#pools) return { hidden: x };
    const first = x.narrow(1, 0, 1).reshape([b, this.width]);
    const out = { hidden: x, pooled: this.pooler?.forward(first).tanh() ?? first };
    return this.classifier ? { ...out, logits: this.classifier.forward(out) } : out;
  }
}

function mobileBert(c: Config, source: ModelSource): MobileBert {
  c.only('normalization_type', 'no_norm', 'layer_norm');
  c.only('is_decoder', false);
  c.ignore('tie_word_embeddings', 'intra_bottleneck_size', 'true_hidden_size', 'classifier_activation');
  const vb = inside(source, oldNorms(source), 'mobilebert');
  const width = c.count('hidden_size');
  const bottleneck = c.flag('use_bottleneck', true);
  const config: MobileConfig = {
    ...{ width, bottleneck },
    vocabSize: c.count('vocab_size'),
    positions: c.count('max_position_embeddings'),
    types: c.count('type_vocab_size', 2, 1),
    embedWidth: c.count('embedding_size', 128, 1),
    narrow: bottleneck ? c.count('intra_bottleneck_size', 128, 1) : width,
    layers: c.count('num_hidden_layers'),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: c.count('intermediate_size'),
    feeds: c.count('num_feedforward_networks', 4, 1),
    activation: c.activation('hidden_act', 'relu'),
    eps: c.number('layer_norm_eps', 1e-12),
    plainNorms: c.text('normalization_type', 'no_norm') === 'no_norm',
    trigrams: c.flag('trigram_input', true),
    narrowAttention: c.flag('use_bottleneck_attention', false),
    narrowKeys: c.flag('key_query_shared_bottleneck', true),
    pooled: c.flag('classifier_activation', true),
  };
  // Without a product the pooler has no tensors, and only a plain model or a head for texts has one.
  const pools = vb.has('pooler.dense.weight') || (!config.pooled && !hasTokenHead(source)) || classifies(c);
  source.ignore(/(^|\.)embeddings\.embedding_transformation\./); // stored where nothing reads it, too
  const head = classifies(c) ? new ClassifierHead(c, source, width, { out: 'classifier' }) : undefined;
  const made = new MobileBert(config, vb, head, pools);
  const far = 'cls.predictions.dense.weight';
  const stored = source.has(far) ? source.builder.get([width - config.embedWidth, config.vocabSize], far) : undefined;
  const columns = stored?.t();
  made.tokens = tokenHead(c, source, {
    ...{ eps: config.eps, activation: config.activation, words: made.words.weight, builder: oldNorms(source) },
    ...(columns && { columns }),
  });
  for (const t of [stored, columns]) t?.dispose(); // the head has copied them
  return made;
}
const hasTokenHead = (source: ModelSource): boolean =>
  source.names.some((n) => /^(cls|classifier|qa_outputs)\./.test(n));

export const MOBILE_BERT_FAMILIES: readonly ModelRow[] = [
  { kind: 'encoder', types: ['mobilebert'], build: mobileBert },
];
