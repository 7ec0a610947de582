// BERT's layers under other rules: ESM (proteins; norms before, turned queries and keys), RoFormer (turned, too),
// LayoutLM (a page's places besides), BigBird (all tokens seen, as it does with texts that are not long), Longformer
// (a token sees its surroundings, and of texts to classify the first one sees and is seen by all),
// Jina's third embeddings.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { arange, tensor } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import {
  type Attention,
  BERT,
  bert,
  type BertConfig,
  bertConfig,
  type BertNames,
  inside,
  oldNorms,
  paddingOf,
  ROBERTA,
} from './bert.js';
import { architecturesOf, type Config } from '../files/config.js';
import { classifies } from './encoder.js';
import type { ModelRow } from '../model-row.js';
import { type AttendOptions, chunks, madeOf, MultiHead, multiHead } from '../parts.js';
import { readRope, requireTable, type RopeFeature, type RopeTable, wholeRope } from '../decoder/rope.js';
import type { ModelSource } from '../files/source.js';

const plainRope = (headDim: number, maxPositions: number, theta: number): RopeFeature => ({
  ...{ type: 'default', theta, headDim, rotated: headDim, maxPositions },
});

/** ESM's files hold the speeds of turning, as training rounded them: once, under either name, or with every layer. */
const SPEEDS = ['', 'encoder.layer.*.attention.self.', 'encoder.layer.0.attention.self.'].map(
  (at) => `${at}rotary_embeddings.inv_freq`,
);
function esmRope(vb: VarBuilder, rope: RopeFeature, like: Tensor): RopeTable {
  const { maxPositions: n, headDim } = rope;
  requireTable(n, headDim);
  const name = SPEEDS.find((at) => vb.has(at));
  if (name === undefined) return wholeRope(rope, like.dtype, like.device);
  const angles = madeOf(vb, (read) => {
    const at = arange(0, n, 1, { dtype: 'f32', device: like.device }).unsqueeze(1);
    return at.mul(read([headDim / 2], name).cast('f32'));
  });
  const turned = (f: 'cos' | 'sin'): Tensor => keep(scope(() => angles[f]().cast(like.dtype)));
  const table = { cos: turned('cos'), sin: turned('sin') };
  angles.dispose();
  return table;
}

const ESM: BertNames = {
  ...ROBERTA,
  ...{ norm1: 'attention.LayerNorm', norm2: 'LayerNorm', lastNorm: 'encoder.emb_layer_norm_after' },
  sumNorm: 'layer_norm',
};
function esm(c: Config, source: ModelSource) {
  c.only('is_folding_model', false);
  c.only('is_decoder', false);
  c.only('add_cross_attention', false);
  c.only('position_embedding_type', 'absolute', 'rotary');
  // Its feed-forward knows gelu alone, whatever a file says.
  c.ignore('esmfold_config', 'vocab_list', 'hidden_act', 'tie_word_embeddings', 'mask_token_id', 'rope_theta');
  source.ignore(/(^|\.)contact_head\.|\.inv_freq$/);
  const turned = c.get('position_embedding_type') === 'rotary';
  const [width, heads] = [c.count('hidden_size'), c.count('num_attention_heads', undefined, 1)];
  const positions = c.count('max_position_embeddings', 1026);
  const rope = plainRope(width / heads, positions, c.number('rope_theta', 10_000));
  const config: BertConfig = {
    vocabSize: c.count('vocab_size'),
    ...{ width, heads, positions },
    layers: c.count('num_hidden_layers'),
    inner: c.count('intermediate_size'),
    types: 0,
    eps: c.number('layer_norm_eps', 1e-12),
    activation: 'gelu',
    padded: turned ? c.count('pad_token_id') : paddingOf(c),
    ...(turned && { rope: (vb, like) => esmRope(vb, rope, like) }),
    ...(c.flag('token_dropout', false) && { dropped: c.count('mask_token_id') }),
  };
  const plainSum = !c.flag('emb_layer_norm_before', false);
  return bert(c, source, inside(source, oldNorms(source), 'esm'), config, { ...ESM, plainSum });
}

/** Sines in the first half of a stored row, cosines in the second. */
function storedRope(vb: VarBuilder, positions: number, headDim: number, like: Tensor): RopeTable {
  const name = 'encoder.embed_positions.weight';
  if (!vb.has(name)) return wholeRope(plainRope(headDim, positions, 10_000), like.dtype, like.device);
  const table = vb.get([positions, headDim], name);
  const half = (from: number): Tensor =>
    keep(
      scope(() =>
        table
          .narrow(1, from, headDim / 2)
          .contiguous()
          .copy(),
      ),
    );
  const rope = { sin: half(0), cos: half(headDim / 2) };
  table.dispose();
  return rope;
}
function roformer(c: Config, source: ModelSource) {
  c.only('rotary_value', false);
  const plain = bertConfig(c, false);
  const { width, heads, positions, activation } = plain;
  const embedWidth = c.count('embedding_size', width, 1);
  const config: BertConfig = {
    ...plain,
    ...(embedWidth !== width && { embedWidth }),
    rope: (vb, like) => storedRope(vb, positions, width / heads, like),
    neighbours: true,
  };
  const head = { dense: ['classifier.dense', activation] as const, out: 'classifier.out_proj' };
  const names = { ...BERT, embedIn: 'embeddings_project', classifier: head };
  return bert(c, source, inside(source, oldNorms(source), 'roformer'), config, names);
}

/** A plain text has no places on a page: all its tokens are in the first corner. */
const PAGE = ['x', 'y', 'x', 'y', 'h', 'w'].map((side) => `${side}_position_embeddings.weight`);
function layoutLm(c: Config, source: ModelSource) {
  const places = { rows: c.count('max_2d_position_embeddings', 1024, 1), names: PAGE };
  return bert(c, source, inside(source, oldNorms(source), 'layoutlm'), { ...bertConfig(c, false), places }, BERT);
}

function bigBird(c: Config, source: ModelSource) {
  c.only('attention_type', 'block_sparse', 'original_full');
  c.only('use_bias', true);
  const sparse = c.text('attention_type', 'block_sparse') === 'block_sparse';
  const [block, random] = [c.count('block_size', 64, 1), c.count('num_random_blocks', 3)];
  const plain = { ...bertConfig(c, false), activation: c.activation('hidden_act', 'gelu_new') };
  const config: BertConfig = {
    ...plain,
    ...(c.flag('rescale_embeddings', false) && { scale: Math.sqrt(plain.width) }),
    ...(sparse && { densest: (5 + 2 * random) * block }),
  };
  const head = { dense: ['classifier.dense', plain.activation] as const, out: 'classifier.out_proj' };
  if (architecturesOf(c).some((a) => a.endsWith('ForQuestionAnswering')))
    throw new UnsupportedError(`${c.where}: heads of BigBird for questions have a layer of their own, not served`);
  const names = { ...BERT, pooler: 'pooler', classifier: head };
  return bert(c, source, inside(source, oldNorms(source), 'bert'), config, names);
}

/** A token sees those at most so far away; the first one, where it is to see all, has products of its own. */
class Surroundings extends Module {
  readonly near: MultiHead;
  readonly all: MultiHead | undefined;
  readonly #half: number;
  constructor(near: MultiHead, all: MultiHead | undefined, half: number) {
    super();
    this.near = near;
    this.all = all;
    this.#half = half;
  }
  /** What each token sees: its surroundings and the first one, (1, 1, t, t). */
  #seen(t: number, like: Tensor): Tensor {
    const near = (i: number): boolean => i % t === 0 || Math.abs((i % t) - Math.floor(i / t)) <= this.#half;
    const data = Uint8Array.from({ length: t * t }, (_, i) => Number(near(i)));
    return tensor(data, { shape: [1, 1, t, t], device: like.device });
  }
  forward(x: Tensor, options: AttendOptions): Tensor {
    if (!this.all) return this.near.forward(x, { ...options, window: this.#half });
    const t = x.shape[1];
    const seen = this.#seen(t, x);
    const mask = options.mask ? seen.mul(options.mask) : seen;
    const rest = this.near.forward(x, { mask: mask.contiguous() });
    const first = this.all.forward(x.narrow(1, 0, 1), { ...options, context: x });
    return t === 1 ? first : first.cat([rest.narrow(1, 1, t - 1)], 1);
  }
}
function longformer(c: Config, source: ModelSource) {
  c.ignore('onnx_export', 'sep_token_id', 'ignore_attention_mask', 'attention_mode');
  if (architecturesOf(c).some((a) => /For(QuestionAnswering|MultipleChoice)$/.test(a)))
    throw new UnsupportedError(`${c.where}: Longformer for questions looks at all of a question, which is not served`);
  const given = c.get('attention_window');
  const layers = c.count('num_hidden_layers');
  const windows = typeof given === 'object' ? c.numbers('attention_window', layers) : undefined;
  const one = windows ? undefined : c.count('attention_window', 512, 2);
  const odd = (windows ?? [one]).find((w) => w === undefined || w < 2 || w % 2 !== 0);
  if (odd !== undefined)
    throw new FormatError(`${c.where}: attention_window holds ${odd}; windows are even numbers from 2`);
  const sorted = classifies(c);
  if (!sorted) source.ignore(/\.attention\.self\.(query|key|value)_global\./);
  const attend = (vb: VarBuilder, { width, heads }: BertConfig, layer: number): Attention => {
    const near = multiHead(vb, BERT.attention, width, heads);
    const of = (name: string): Linear => linear(width, width, vb.pp(`attention.self.${name}_global`));
    const all = sorted
      ? new MultiHead({ q: of('query'), k: of('key'), v: of('value'), out: near.out }, heads)
      : undefined;
    return new Surroundings(near, all, (windows?.[layer] ?? (one as number)) / 2);
  };
  const vb = inside(source, oldNorms(source), 'longformer');
  return bert(c, source, vb, bertConfig(c, true), { ...ROBERTA, attend });
}

/** Jina's third embeddings, as transformers has them: adapters of tasks come as folders of their own. */
const JINA: BertNames = {
  ...ROBERTA,
  ...{ layer: 'encoder.layers', norm1: 'norm1', mlp: ['mlp.fc1', 'mlp.fc2'], norm2: 'norm2' },
  attend: (vb, { width, heads }) => {
    const [q, k, v] = chunks(linear(width, 3 * width, vb.pp('mixer.Wqkv')), 3);
    return new MultiHead({ q, k, v, out: linear(width, width, vb.pp('mixer.out_proj')) }, heads);
  },
};
function jina(c: Config, source: ModelSource) {
  const plain = bertConfig(c, false);
  const { width, heads, positions: n } = plain;
  c.only('head_dim', width / heads);
  const rope = readRope(c, { headDim: width / heads, maxPositions: n, theta: 20_000 });
  const config: BertConfig = { ...plain, rope: (_, { dtype, device }) => wholeRope(rope, dtype, device) };
  const named = source.builder.rename((n) => n.replace('embeddings.LayerNorm.', 'emb_ln.'));
  return bert(c, source, inside(source, named, 'roberta'), config, JINA);
}

const BUILT = { esm, roformer, layoutlm: layoutLm, big_bird: bigBird, longformer, jina_embeddings_v3: jina };
export const OTHER_BERT_FAMILIES: readonly ModelRow[] = Object.entries(BUILT).map(([type, build]) => ({
  kind: 'encoder',
  types: [type],
  build,
}));
