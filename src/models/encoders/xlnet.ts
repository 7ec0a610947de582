// XLNet: attention that knows distances by their sines and tells whether two tokens belong to the same text. As an
// encoder all tokens see each other; texts have no longest length.
import { activation } from '../../nn/activation.js';
import { type Embedding, embedding, type LayerNorm, layerNorm, Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { arange, tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { FeedForward, madeOf } from '../parts.js';
import {
  classifies,
  ClassifierHead,
  type EncoderInput,
  type EncoderOutput,
  refuseHeads,
  TextEncoder,
} from './encoder.js';
import { tokenHead } from './token-head.js';

interface XlnetConfig {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
  /** Distances beyond this count as this. */
  readonly farthest: number;
}
/** What all layers read. */
interface Surroundings {
  /** Sines of distances, the farthest before first, (1, 2 t, width). */
  readonly distances: Tensor;
  /** 1 where two tokens belong to different texts, (b, 1, t, t). */
  readonly strange?: Tensor;
  /** Added to the scores of what is hidden, (b, 1, 1, t). */
  readonly hidden?: Tensor;
}
/** What takes a key out of sight; as far as f16 goes. */
const HIDDEN = 3e4;

/** A product that files hold as (from, heads, d). */
const headed = (vb: VarBuilder, { width, heads }: XlnetConfig, name: string): Linear =>
  new Linear(
    madeOf(vb, (read) =>
      read([width, heads, width / heads], name)
        .reshape([width, width])
        .t()
        .contiguous(),
    ),
  );

class XlnetAttention extends Module {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly out: Linear;
  readonly distance: Linear;
  /** What queries are added for contents, distances and texts, (heads, 1, d). */
  readonly biases: readonly Tensor[];
  /** What tokens of the same text and of another one are asked for, (2, heads, d). */
  readonly texts: Tensor;
  readonly norm: LayerNorm;
  readonly #config: XlnetConfig;
  constructor(vb: VarBuilder, c: XlnetConfig) {
    super();
    this.#config = c;
    const { width, heads } = c;
    const d = width / heads;
    [this.q, this.k, this.v, this.distance] = ['q', 'k', 'v', 'r'].map((name) => headed(vb, c, name));
    this.out = new Linear(madeOf(vb, (read) => read([width, heads, d], 'o').reshape([width, width]).contiguous()));
    this.biases = ['w', 'r', 's'].map((name) => vb.get([heads, d], `r_${name}_bias`));
    this.texts = vb.get([2, heads, d], 'seg_embed');
    this.norm = layerNorm(width, vb.pp('layer_norm'), { eps: c.eps });
  }
  /** (b, t, width) to (b, heads, t, d). */
  #split(x: Tensor): Tensor {
    const { heads, width } = this.#config;
    return x.reshape([x.shape[0], x.shape[1], heads, width / heads]).transpose(1, 2);
  }
  /** Scores of distances, (b, heads, t, t): each row of all distances begins a place earlier than the one before it. */
  #distant(q: Tensor, distances: Tensor): Tensor {
    const [b, heads, t] = q.shape;
    const rows = this.#split(this.distance.forward(distances)).transpose(2, 3);
    return q
      .matmul(rows.contiguous())
      .reshape([b, heads, 2 * t, t])
      .narrow(2, 1, 2 * t - 1)
      .contiguous()
      .reshape([b, heads, t, 2 * t - 1])
      .narrow(3, 0, t);
  }
  /** Scores of texts, (b, heads, t, t). */
  #textual(q: Tensor, strange: Tensor): Tensor {
    const asked = q.matmul(this.texts.permute([1, 2, 0]).contiguous()); // (b, heads, t, 2)
    const [same, other] = [0, 1].map((i) => asked.narrow(3, i, 1));
    return same.add(strange.mul(other.sub(same)));
  }
  forward(x: Tensor, { distances, strange, hidden }: Surroundings): Tensor {
    const { width, heads } = this.#config;
    const [q, k, v] = [this.q, this.k, this.v].map((product) => this.#split(product.forward(x)));
    const [content, far, text] = this.biases.map((bias) => q.add(bias.unsqueeze(1)));
    const added = this.#distant(far, distances);
    const scores = (strange ? added.add(this.#textual(text, strange)) : added).affine((width / heads) ** -0.5, 0);
    const y = content.sdpa(k, v, { mask: (hidden ? scores.add(hidden) : scores).contiguous() });
    return this.norm.forward(x.add(this.out.forward(y.transpose(1, 2).reshape(x.shape))));
  }
}

class XlnetBlock extends Module {
  readonly attention: XlnetAttention;
  readonly mlp: FeedForward;
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, c: XlnetConfig) {
    super();
    this.attention = new XlnetAttention(vb.pp('rel_attn'), c);
    const at = vb.pp('ff');
    const [up, down] = [linear(c.width, c.inner, at.pp('layer_1')), linear(c.inner, c.width, at.pp('layer_2'))];
    this.mlp = new FeedForward(up, down, c.activation);
    this.norm = layerNorm(c.width, at.pp('layer_norm'), { eps: c.eps });
  }
  forward(x: Tensor, around: Surroundings): Tensor {
    const y = this.attention.forward(x, around);
    return this.norm.forward(y.add(this.mlp.forward(y)));
  }
}

/** What a classifier makes of the last token before its last product. */
interface Summary {
  readonly product: Linear;
  readonly bend: string;
}
class Xlnet extends TextEncoder {
  readonly width: number;
  readonly maxTokens = Infinity;
  readonly words: Embedding;
  readonly blocks: readonly XlnetBlock[];
  override readonly classifier: ClassifierHead | undefined;
  readonly summary: Linear | undefined;
  readonly #bend: (x: Tensor) => Tensor;
  readonly #config: XlnetConfig;
  constructor(vb: VarBuilder, c: XlnetConfig, words: number, head?: { summary: Summary; classifier: ClassifierHead }) {
    super();
    this.#config = c;
    this.width = c.width;
    this.words = embedding(words, c.width, vb.pp('word_embedding'));
    this.blocks = Array.from({ length: c.layers }, (_, i) => new XlnetBlock(vb.pp('layer', i), c));
    this.classifier = head?.classifier;
    this.summary = head?.summary.product;
    this.#bend = activation(head?.summary.bend ?? 'identity');
  }
  #around(x: Tensor, { mask, typeIds }: EncoderInput): Surroundings {
    const { width, farthest } = this.#config;
    const t = x.shape[1];
    const half = width / 2;
    const data = Float32Array.from({ length: 2 * t * width }, (_, i) => {
      const away = t - Math.floor(i / width);
      const k = i % width;
      const angle = Math.max(-farthest, Math.min(farthest, away)) * 10_000 ** (-(2 * (k % half)) / width);
      return k < half ? Math.sin(angle) : Math.cos(angle);
    });
    const [kinds, seen] = [typeIds?.cast('f32'), mask?.ne(0).cast(x.dtype).unsqueeze(1).unsqueeze(1)];
    return {
      distances: tensor(data, { shape: [1, 2 * t, width], device: x.device }).cast(x.dtype),
      ...(kinds && { strange: kinds.unsqueeze(2).ne(kinds.unsqueeze(1)).cast(x.dtype).unsqueeze(1) }),
      ...(seen && { hidden: seen.affine(HIDDEN, -HIDDEN) }),
    };
  }
  /** The vector of each text's last token, (b, width). */
  #last(hidden: Tensor, mask: Tensor | undefined): Tensor {
    const [b, t, width] = hidden.shape;
    if (!mask) return hidden.narrow(1, t - 1, 1).squeeze(1);
    const counted = mask
      .ne(0)
      .cast('f32')
      .mul(arange(1, t + 1, 1, { dtype: 'f32', device: hidden.device }));
    const place = counted.argmax(1).cast('u32').reshape([b, 1, 1]);
    return hidden.gather(1, place.broadcastTo([b, 1, width]).contiguous()).squeeze(1);
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const words = this.words.forward(input.ids);
    const around = this.#around(words, input);
    const hidden = this.blocks.reduce((x, block) => block.forward(x, around), words);
    if (!this.classifier || !this.summary) return { hidden };
    const pooled = this.#bend(this.summary.forward(this.#last(hidden, input.mask)));
    return { hidden, pooled, logits: this.classifier.forward({ hidden, pooled }) };
  }
}

function xlnet(c: Config, source: ModelSource): Xlnet {
  refuseHeads(c, 'QuestionAnswering', 'MultipleChoice');
  c.only('attn_type', 'bi');
  c.only('bi_data', false);
  // What is remembered of texts before matters to those that write.
  c.ignore('mem_len', 'reuse_len', 'use_mems_eval', 'use_mems_train', 'same_length', 'mems', 'untie_r');
  c.ignore('start_n_top', 'end_n_top', 'summary_last_dropout', 'tie_word_embeddings', 'init', 'init_range', 'init_std');
  source.ignore(/^(transformer\.)?mask_emb$|^lm_loss\./);
  const [width, heads] = [c.count('d_model', undefined, 2), c.count('n_head', undefined, 1)];
  c.only('d_head', width / heads);
  const clamp = c.number('clamp_len', -1);
  const config: XlnetConfig = {
    ...{ width, heads },
    layers: c.count('n_layer'),
    inner: c.count('d_inner'),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.activation('ff_activation', 'gelu'),
    farthest: clamp > 0 ? clamp : Infinity,
  };
  const vb = source.builder;
  const inside = source.names.some((n) => n.startsWith('transformer.'));
  const made = new Xlnet(
    inside ? vb.pp('transformer') : vb,
    config,
    c.count('vocab_size', 32_000),
    classifies(c) ? sorting(c, source, width) : undefined,
  );
  made.tokens = tokenHead(c, source, { eps: 0, activation: 'identity' });
  return made;
}
function sorting(c: Config, source: ModelSource, width: number): { summary: Summary; classifier: ClassifierHead } {
  c.only('summary_type', 'last');
  c.only('summary_use_proj', true);
  c.only('summary_proj_to_labels', false);
  const bend = c.json.summary_activation === null ? 'identity' : c.activation('summary_activation', 'tanh');
  const product = linear(width, width, source.builder.pp('sequence_summary.summary'));
  return { summary: { product, bend }, classifier: new ClassifierHead(c, source, width, { out: 'logits_proj' }) };
}
export const XLNET_FAMILIES: readonly ModelRow[] = [{ kind: 'encoder', types: ['xlnet'], build: xlnet }];
