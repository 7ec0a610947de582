// T5Gemma: Gemma 2's layers as an encoder that looks both ways, and as a decoder that looks at what was read, too.
import type { DType } from '../../base/dtype.js';
import { FormatError } from '../../base/errors.js';
import { type Embedding, embedding, Linear, linear, RmsNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Device } from '../../tensor/device.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { refuseHeads } from '../encoders/encoder.js';
import type { ModelRow } from '../model-row.js';
import { GatedFeedForward, keysMask, MultiHead } from '../parts.js';
import { PositionTables } from '../decoder/position-tables.js';
import { readRope, type RopeFeature, type RopeTable } from '../decoder/rope.js';
import { freshAnswer, Seq2Seq, type Seq2SeqState } from './seq2seq.js';
import type { ModelSource } from '../files/source.js';

interface SideConfig {
  readonly vocabSize: number;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
  readonly biases: boolean;
  readonly scale: number;
  /** Scores are kept within this. */
  readonly softcap: number | undefined;
  /** How far a layer's tokens see; undefined: all there are. */
  readonly windows: readonly (number | undefined)[];
  readonly rope: RopeFeature;
  readonly maxPositions: number;
}

/** Norms hold what their weights are more than one. */
function norm(width: number, vb: VarBuilder, eps: number): RmsNorm {
  const stored = vb.get([width], 'weight');
  const made = new RmsNorm(keep(scope(() => stored.affine(1, 1))), eps);
  stored.dispose();
  return made;
}
const attention = (vb: VarBuilder, c: SideConfig, from = c.width): MultiHead => {
  const into = (name: string, width: number, heads: number): Linear =>
    linear(width, heads * c.headDim, vb.pp(name), { bias: c.biases });
  const parts = {
    q: into('q_proj', c.width, c.heads),
    k: into('k_proj', from, c.kvHeads),
    v: into('v_proj', from, c.kvHeads),
    out: linear(c.heads * c.headDim, c.width, vb.pp('o_proj'), { bias: c.biases }),
  };
  return new MultiHead(parts, c.heads, c.scale, c.kvHeads, c.softcap);
};

class T5GemmaBlock extends Module {
  readonly self: MultiHead;
  readonly selfNorms: readonly RmsNorm[];
  readonly cross: MultiHead | undefined;
  readonly crossNorms: readonly RmsNorm[];
  readonly mlp: GatedFeedForward;
  readonly mlpNorms: readonly RmsNorm[];
  constructor(vb: VarBuilder, c: SideConfig, read: number | undefined) {
    super();
    const norms = (name: string): RmsNorm[] =>
      ['pre', 'post'].map((side) => norm(c.width, vb.pp(`${side}_${name}_layernorm`), c.eps));
    this.self = attention(vb.pp('self_attn'), c);
    this.selfNorms = norms('self_attn');
    this.cross = read === undefined ? undefined : attention(vb.pp('cross_attn'), c, read);
    this.crossNorms = read === undefined ? [] : norms('cross_attn');
    const up = (name: string): Linear => linear(c.width, c.inner, vb.pp('mlp', name), { bias: false });
    const down = linear(c.inner, c.width, vb.pp('mlp.down_proj'), { bias: false });
    this.mlp = new GatedFeedForward(up('gate_proj'), up('up_proj'), down, c.activation);
    this.mlpNorms = norms('feedforward');
  }
}
/** x + a norm of what f makes of a norm of x. */
const around = (x: Tensor, [before, after]: readonly RmsNorm[], f: (x: Tensor) => Tensor): Tensor =>
  x.add(after.forward(f(before.forward(x))));

class T5GemmaSide extends Module {
  readonly words: Embedding;
  readonly blocks: T5GemmaBlock[];
  readonly norm: RmsNorm;
  readonly config: SideConfig;
  readonly #tables = new PositionTables(this);
  constructor(vb: VarBuilder, c: SideConfig, read?: number) {
    super();
    this.config = c;
    this.words = embedding(c.vocabSize, c.width, vb.pp('embed_tokens'));
    this.blocks = Array.from({ length: c.layers }, (_, i) => new T5GemmaBlock(vb.pp('layers', i), c, read));
    this.norm = norm(c.width, vb.pp('norm'), c.eps);
  }
  get dtype(): DType {
    return this.norm.weight.dtype;
  }
  get device(): Device {
    return this.norm.weight.device;
  }
  protected override forget(): void {
    this.#tables.dispose();
  }
  /** Words as vectors (b, t, width), and how their positions turn. */
  begin(ids: Tensor, start: number): { x: Tensor; rope: RopeTable } {
    const t = ids.shape[1];
    const rows = (table: Tensor): Tensor => table.narrow(0, start, t).contiguous();
    const x = this.words.forward(ids).affine(Math.sqrt(this.config.width), 0);
    const { cos, sin } = this.#tables.ropes(this.config.rope, start + t);
    return { x, rope: { cos: rows(cos), sin: rows(sin) } };
  }
}

class T5Gemma extends Seq2Seq {
  readonly encoder: T5GemmaSide;
  readonly decoder: T5GemmaSide;
  readonly head: Linear;
  readonly #softcap: number | undefined;
  constructor(encoder: T5GemmaSide, decoder: T5GemmaSide, head: Linear, softcap: number | undefined) {
    super();
    this.encoder = encoder;
    this.decoder = decoder;
    this.head = head;
    this.#softcap = softcap;
  }
  encode(ids: Tensor, mask?: Tensor): Tensor {
    const seen = keysMask(mask);
    const { windows } = this.encoder.config;
    const { x, rope } = this.encoder.begin(ids, 0);
    const last = this.encoder.blocks.reduce((h, block, i) => {
      const window = windows[i];
      const options = { rope, ...(seen && { mask: seen }), ...(window !== undefined && { window }) };
      const y = around(h, block.selfNorms, (n) => block.self.forward(n, options));
      return around(y, block.mlpNorms, (n) => block.mlp.forward(n));
    }, x);
    return this.encoder.norm.forward(last);
  }
  begin(encoded: Tensor, mask?: Tensor): Seq2SeqState {
    const crosses = this.decoder.blocks.map((b) => b.cross as MultiHead);
    return freshAnswer(crosses, encoded, keysMask(mask));
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    const start = state.caches?.[0]?.length ?? 0;
    const { x, rope } = this.decoder.begin(ids, start);
    const { windows } = this.decoder.config;
    const last = this.decoder.blocks.reduce((h, block, i) => {
      const [cache, window] = [state.caches?.[i], windows[i]];
      // Here a window counts the token itself.
      const near = window === undefined ? {} : { window: [window - 1, 0] as const };
      const how = { rope, causal: true, ...near, ...(cache && { cache }) };
      const y = around(h, block.selfNorms, (n) => block.self.forward(n, how));
      const across = { ready: state.crossed[i], ...(state.mask && { mask: state.mask }) };
      const z = around(y, block.crossNorms, (n) => (block.cross as MultiHead).forward(n, across));
      return around(z, block.mlpNorms, (n) => block.mlp.forward(n));
    }, x);
    const logits = this.head.forward(this.decoder.norm.forward(last));
    const cap = this.#softcap;
    return cap === undefined
      ? logits
      : logits
          .affine(1 / cap, 0)
          .tanh()
          .affine(cap, 0);
  }
}

function side(c: Config, read: number | undefined): SideConfig {
  c.ignoreBooks();
  c.only('is_decoder', read !== undefined);
  c.only('cross_attention_hidden_size', ...(read === undefined ? [] : [read]));
  const [width, heads, layers] = [
    c.count('hidden_size'),
    c.count('num_attention_heads', 8, 1),
    c.count('num_hidden_layers'),
  ];
  const headDim = c.count('head_dim', 256, 1);
  const types = c.has('layer_types')
    ? c.texts('layer_types')
    : Array.from({ length: layers }, (_, i) => (i % 2 === 0 ? 'sliding_attention' : 'full_attention'));
  const window = c.optional('sliding_window') ?? 4096;
  const maxPositions = c.count('max_position_embeddings', 8192, 1);
  c.ignore('tie_word_embeddings', 'final_logit_softcapping');
  return {
    ...{ width, heads, layers, headDim, maxPositions },
    vocabSize: c.count('vocab_size', 256_000),
    kvHeads: c.count('num_key_value_heads', 4, 1),
    inner: c.count('intermediate_size'),
    eps: c.number('rms_norm_eps', 1e-6),
    activation: c.activation('hidden_activation', 'gelu_pytorch_tanh'),
    biases: c.flag('attention_bias', false),
    scale: 1 / Math.sqrt(c.number('query_pre_attn_scalar', 256)),
    softcap: c.optional('attn_logit_softcapping'),
    windows: types.map((type) => (type === 'sliding_attention' ? window : undefined)),
    rope: readRope(c, { headDim, maxPositions }),
  };
}

function t5Gemma(c: Config, source: ModelSource): T5Gemma {
  refuseHeads(c, 'TokenClassification', 'SequenceClassification');
  c.ignore('classifier_dropout_rate');
  const [e, d] = [c.inner('encoder'), c.inner('decoder')];
  if (!e || !d) throw new FormatError(`${c.where}: encoder and decoder must both be given`);
  const read = side(e, undefined);
  const written = side(d, read.width);
  const softcap = d.optional('final_logit_softcapping');
  const vb = source.builder.pp('model');
  const encoder = new T5GemmaSide(vb.pp('encoder'), read);
  const decoder = new T5GemmaSide(vb.pp('decoder'), written, read.width);
  const name = 'lm_head.out_proj.weight';
  const tied = c.flag('tie_word_embeddings', true) && source.isTied(name, 'model.decoder.embed_tokens.weight');
  if (tied) source.ignore(new Set([name]));
  const head = tied
    ? new Linear(decoder.words.weight)
    : linear(written.width, written.vocabSize, source.builder.pp('lm_head.out_proj'), { bias: false });
  return new T5Gemma(encoder, decoder, head, softcap);
}
export const T5_GEMMA_FAMILIES: readonly ModelRow[] = [{ kind: 'seq2seq', types: ['t5gemma'], build: t5Gemma }];
