// Encoders, and decoders that make vectors, in GGUF files as llama.cpp's converters write them.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { ggmlType } from '../src/base/blocks/types.js';
import type { GgufValue } from '../src/io/gguf-value.js';
import { writeGguf } from '../src/io/gguf-write.js';
import { SafeTensors } from '../src/io/safetensors.js';
import type { TextEncoder } from '../src/models/encoders/encoder.js';
import { EmbeddingModel } from '../src/models/index.js';
import { loadModel } from '../src/models/load.js';
import { relativeError } from '../src/parity/model-checks.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, classifiers, encoders, familyFolder, skipEncoders } from './models-support.js';

type Keys = Readonly<Record<string, number | boolean | string>>;
interface Written {
  readonly architecture: string;
  readonly names: readonly (readonly [RegExp, string])[];
  readonly keys: Keys;
  /** Rows of the table of positions that the converter cuts off. */
  readonly cut?: number;
  /** The small model it is made from, where that has another name, and whether that is a classifier. */
  readonly of?: string;
  readonly sorts?: boolean;
  /** The answer that a file of it gives, where the converter loses something. */
  readonly answer?: string;
  /** The converter adds 1 to the weights of norms. */
  readonly oneAdded?: boolean;
}
const BERT_NAMES: Written['names'] = [
  [/^.*word_embeddings/, 'token_embd'],
  [/^.*position_embeddings/, 'position_embd'],
  [/^.*token_type_embeddings/, 'token_types'],
  [/^(roberta\.)?(embeddings\.LayerNorm|emb_ln)/, 'token_embd_norm'],
  [/^.*layers?\.(\d+)\./, 'blk.$1.'],
  [/attention\.self\.layer_norm_([qk])/, 'attn_$1_norm'],
  [/layer_norm_1/, 'attn_norm_2'],
  [/layer_norm_2|mlp\.layernorm/, 'layer_output_norm'],
  [/mlp\.(up_gated_layer|gated_layers)\./, 'ffn_up.'],
  [/mlp\.(wo|down_layer)\./, 'ffn_down.'],
  [/mlp\.router\.layer/, 'ffn_gate_inp'],
  [/mlp\.experts\.mlp\.w1/, 'ffn_up_exps.weight'],
  [/mlp\.experts\.mlp\.w2/, 'ffn_down_exps.weight'],
  [/attention\.(self\.)?(q|k|v)(uery|ey|alue|_lin)/, 'attn_$2'],
  [/attention\.output\.LayerNorm|sa_layer_norm|norm1/, 'attn_output_norm'],
  [/attention\.output\.dense|attention\.out_lin|attn\.out_proj/, 'attn_output'],
  [/intermediate\.dense|ffn\.lin1|mlp\.fc11/, 'ffn_up'],
  [/output\.LayerNorm|output_layer_norm|norm2/, 'layer_output_norm'],
  [/output\.dense|ffn\.lin2|mlp\.fc2/, 'ffn_down'],
  [/mlp\.fc12/, 'ffn_gate'],
  [/(attn|mixer)\.Wqkv/, 'attn_qkv'],
  [/mixer\.out_proj/, 'attn_output'],
  [/mlp\.fc1\./, 'ffn_up.'],
  [/^classifier\.dense/, 'cls'],
  [/^classifier\.out_proj/, 'cls.output'],
];
const DECODER_NAMES: Written['names'] = [
  [/^(model\.)?embed_tokens/, 'token_embd'],
  [/^(model\.)?norm\./, 'output_norm.'],
  [/^(model\.)?layers\.(\d+)\./, 'blk.$2.'],
  [/self_attn\.([qkv])_proj/, 'attn_$1'],
  [/self_attn\.o_proj/, 'attn_output'],
  [/self_attn\.([qk])_norm/, 'attn_$1_norm'],
  [/input_layernorm/, 'attn_norm'],
  [/post_attention_layernorm/, 'ffn_norm'],
  [/mlp\.(gate|up|down)_proj/, 'ffn_$1'],
  [/^score\./, 'cls.output.'],
];
const GEMMA_NAMES: Written['names'] = [
  [/post_attention_layernorm/, 'post_attention_norm'],
  [/post_feedforward_layernorm/, 'post_ffw_norm'],
  [/pre_feedforward_layernorm/, 'ffn_norm'],
  ...DECODER_NAMES,
];
const MODERN_NAMES: Written['names'] = [
  [/^(model\.)?embeddings\.tok_embeddings/, 'token_embd'],
  [/^(model\.)?embeddings\.norm/, 'token_embd_norm'],
  [/^(model\.)?final_norm/, 'output_norm'],
  [/^(model\.)?layers\.(\d+)\./, 'blk.$2.'],
  [/attn\.Wqkv/, 'attn_qkv'],
  [/attn\.Wo/, 'attn_output'],
  [/mlp_norm/, 'ffn_norm'],
  [/mlp\.Wi/, 'ffn_up'],
  [/mlp\.Wo/, 'ffn_down'],
  [/^head\.norm/, 'cls.norm'],
  [/^head\.dense/, 'cls'],
  [/^classifier/, 'cls.output'],
];
const SIZES = {
  ...{ block_count: 3, context_length: 128, embedding_length: 48, feed_forward_length: 64 },
  ...{ 'attention.head_count': 4, 'attention.causal': false, pooling_type: 1 },
};
const MODERN = {
  ...{ ...SIZES, 'attention.layer_norm_epsilon': 1e-5, 'attention.sliding_window': 8, 'rope.scaling.type': 'none' },
  ...{ 'attention.sliding_window_pattern': 3, 'rope.freq_base': 160_000, 'rope.freq_base_swa': 10_000 },
  hidden_activation: 'gelu',
};
const FILES: Readonly<Record<string, Written>> = {
  distilbert: {
    architecture: 'bert',
    names: BERT_NAMES,
    keys: { ...SIZES, 'attention.layer_norm_epsilon': 1e-12 },
  },
  'xlm-roberta': {
    ...{ architecture: 'bert', names: BERT_NAMES, cut: 2 },
    keys: { ...SIZES, context_length: 58, 'attention.layer_norm_epsilon': 1e-12, pooling_type: 2 },
  },
  'nomic_bert-b': {
    architecture: 'nomic-bert',
    names: BERT_NAMES,
    keys: {
      ...{ ...SIZES, 'attention.key_length': 8, 'attention.value_length': 8 },
      ...{ 'rope.freq_base': 1000, 'attention.layer_norm_epsilon': 1e-12 },
    },
  },
  'decoder-qwen3': {
    architecture: 'qwen3',
    names: DECODER_NAMES,
    keys: {
      ...{ block_count: 2, context_length: 128, embedding_length: 48, feed_forward_length: 64, pooling_type: 3 },
      ...{ 'attention.head_count': 4, 'attention.head_count_kv': 2, 'attention.key_length': 16 },
      ...{ 'attention.value_length': 16, 'attention.layer_norm_rms_epsilon': 1e-6, 'rope.freq_base': 10_000 },
    },
  },
  'decoder-gemma3-b': {
    ...{ architecture: 'gemma-embedding', names: GEMMA_NAMES, oneAdded: true },
    keys: {
      ...{ block_count: 2, context_length: 128, embedding_length: 48, feed_forward_length: 64, pooling_type: 1 },
      ...{ 'attention.head_count': 4, 'attention.head_count_kv': 2, 'attention.key_length': 16 },
      ...{ 'attention.value_length': 16, 'attention.layer_norm_rms_epsilon': 1e-6, 'rope.freq_base': 1_000_000 },
      ...{ 'attention.sliding_window': 8, 'attention.sliding_window_pattern': 2, 'rope.freq_base_swa': 10_000 },
    },
  },
  modernbert: { architecture: 'modern-bert', names: MODERN_NAMES, keys: MODERN },
  'modernbert-c': { ...{ architecture: 'modern-bert', names: MODERN_NAMES, sorts: true }, keys: MODERN },
  eurobert: {
    architecture: 'eurobert',
    names: DECODER_NAMES,
    keys: {
      ...{ ...SIZES, 'attention.layer_norm_rms_epsilon': 1e-5, 'rope.freq_base': 10_000, 'rope.scaling.type': 'none' },
      'attention.head_count_kv': 4,
    },
  },
  jina_embeddings_v3: {
    architecture: 'jina-bert-v3',
    names: BERT_NAMES,
    keys: { ...SIZES, 'attention.layer_norm_epsilon': 1e-5, 'rope.freq_base': 20_000 },
  },
  'jina-bert': {
    architecture: 'jina-bert-v2',
    names: BERT_NAMES,
    keys: { ...SIZES, 'attention.layer_norm_epsilon': 1e-12 },
  },
  'jina-bert-b': {
    architecture: 'jina-bert-v2',
    names: BERT_NAMES,
    keys: { ...SIZES, 'attention.layer_norm_epsilon': 1e-12 },
  },
  'nomic-moe': {
    ...{ architecture: 'nomic-bert-moe', names: BERT_NAMES, answer: 'unbiased' },
    keys: {
      ...{ ...SIZES, 'attention.layer_norm_epsilon': 1e-12, 'rope.freq_base': 10_000 },
      ...{ expert_count: 5, expert_used_count: 2, moe_every_n_layers: 2 },
    },
  },
  reranker: {
    ...{ architecture: 'bert', names: BERT_NAMES, cut: 2, of: 'xlm-roberta', sorts: true },
    keys: { ...SIZES, context_length: 58, 'attention.layer_norm_epsilon': 1e-12, pooling_type: 4 },
  },
  qwen3: {
    ...{ architecture: 'qwen3', names: DECODER_NAMES, sorts: true },
    keys: {
      ...{ block_count: 3, context_length: 128, embedding_length: 48, feed_forward_length: 64, pooling_type: 4 },
      ...{ 'attention.head_count': 4, 'attention.head_count_kv': 2, 'attention.key_length': 16 },
      ...{ 'attention.value_length': 16, 'attention.layer_norm_rms_epsilon': 1e-6, 'rope.freq_base': 10_000 },
    },
  },
};
const valueOf = (v: number | boolean | string): GgufValue =>
  typeof v === 'string'
    ? { type: 'string', value: v }
    : typeof v === 'boolean'
      ? { type: 'bool', value: v }
      : { type: Number.isInteger(v) ? 'u32' : 'f32', value: v };
/** Ninety-six words, so that every number of the model's is one. */
const WORDS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', ...Array.from({ length: 92 }, (_, i) => `\u2581w${i}`)];
const VOCABULARY: readonly (readonly [string, GgufValue])[] = [
  ['model', { type: 'string', value: 'bert' }],
  ['tokens', { type: 'array', of: 'string', value: WORDS }],
  ['token_type', { type: 'array', of: 'i32', value: Int32Array.from(WORDS, (_, i) => (i < 4 ? 3 : 1)) }],
  ['padding_token_id', { type: 'u32', value: 0 }],
  ['unknown_token_id', { type: 'u32', value: 1 }],
  ['bos_token_id', { type: 'u32', value: 2 }],
  ['seperator_token_id', { type: 'u32', value: 3 }],
];
/** Five experts' rows of 64 by 48 as the converter stacks them, those of the second product turned round. */
function expertsOf(rows: Float32Array, turned: boolean): { shape: number[]; bytes: Uint8Array } {
  const [count, inner, width] = [5, 64, 48];
  const out = rows.slice();
  if (turned)
    for (let e = 0; e < count; e++)
      for (let i = 0; i < inner; i++)
        for (let j = 0; j < width; j++) out[(e * width + j) * inner + i] = rows[(e * inner + i) * width + j];
  return { shape: turned ? [count, width, inner] : [count, inner, width], bytes: new Uint8Array(out.buffer) };
}
/** The file of a small model, with matrices added or tensors left out. */
function written(
  name: string,
  change: Keys = {},
  added: readonly { readonly at: string; readonly numbers: Float32Array }[] = [],
  without = /^$/,
): string {
  const { architecture, names, keys, cut = 0, of = name, sorts, oneAdded } = FILES[name];
  const dir = familyFolder(of, undefined, sorts ? classifiers : encoders);
  using file = SafeTensors.open(dir);
  const tensors = file.names.flatMap((key) => {
    if (key.startsWith('pooler') || key.endsWith('experts.bias')) return [];
    const to = names.reduce((n, [from, by]) => n.replace(from, by), key);
    const { shape } = file.record(key);
    if (to.includes('_exps')) {
      const stacked = expertsOf(new Float32Array(file.record(key).read().slice().buffer), to.includes('down'));
      return [{ name: to, type: ggmlType('f32'), ...stacked }];
    }
    const rows = to.startsWith('position_embd') ? cut : 0;
    const numbers = new Float32Array(file.record(key).read().slice().buffer).subarray(rows * (shape[1] ?? 1));
    const shift = oneAdded && to.endsWith('norm.weight') ? 1 : 0;
    const bytes = new Uint8Array(numbers.map((x) => x + shift).buffer);
    return [{ name: to, type: ggmlType('f32'), shape: [shape[0] - rows, ...shape.slice(1)], bytes }];
  });
  const more = added.map(({ at, numbers }) => {
    const side = Math.sqrt(numbers.length);
    const bytes = new Uint8Array(numbers.buffer);
    return { name: `${at}.weight`, type: ggmlType('f32'), shape: [side, side], bytes };
  });
  const told = Object.entries({ ...keys, ...change }).map(([k, v]) => [`${architecture}.${k}`, valueOf(v)] as const);
  const path = join(dir, 'model.gguf');
  writeGguf(
    path,
    new Map<string, GgufValue>([
      ['general.architecture', { type: 'string', value: architecture }],
      ...told,
      ...VOCABULARY.map(([k, v]) => [`tokenizer.ggml.${k}`, v] as const),
    ]),
    [...tensors.filter((t) => !without.test(t.name)), ...more],
  );
  return path;
}

for (const name of Object.keys(FILES).filter((n) => FILES[n].sorts))
  test(`${name} as a GGUF file with a head gives the scores of transformers`, { skip: skipEncoders }, () =>
    scope(() => {
      const { model } = loadModel<TextEncoder>(written(name), { device: 'cpu', kind: 'encoder' });
      const of = (key: string): Tensor => answerOf(FILES[name].of ?? name, key, 'classifiers');
      const typeIds = of('token_type_ids');
      const input = { ids: of('input_ids'), mask: of('attention_mask'), ...(typeIds && { typeIds }) };
      const error = relativeError(noGrad(() => model.forward(input)).logits as Tensor, of('logits'));
      assert.ok(error <= 1e-4, `off by ${error}`);
      model.dispose();
    }),
  );
for (const name of Object.keys(FILES).filter((n) => !FILES[n].sorts && !n.startsWith('decoder')))
  test(`${name} as a GGUF file gives the vectors of transformers`, { skip: skipEncoders }, () =>
    scope(() => {
      const { model } = loadModel<TextEncoder>(written(name), { device: 'cpu', kind: 'encoder' });
      const of = (key: string): Tensor => answerOf(name, key, 'encoders');
      const mask = of('attention_mask');
      const { hidden } = noGrad(() => model.forward({ ids: of('input_ids'), mask }));
      const real = mask.unsqueeze(-1).cast('f32');
      const error = relativeError(hidden.mul(real), of(FILES[name].answer ?? 'hidden').mul(real));
      assert.ok(error <= 1e-4, `off by ${error}`);
      model.dispose();
    }),
  );

/** What a text's tokens become, pooled here by hand. */
function pooled(model: EmbeddingModel, text: string, pool: (rows: number[][]) => number[]): number[] {
  const ids = tensor([model.tokenizer.encode(text)], { device: 'cpu', dtype: 'u32' });
  const [rows] = noGrad(() => model.encoder.forward({ ids }).hidden.toArray()) as number[][][];
  const v = pool(rows);
  const length = Math.hypot(...v);
  return v.map((x) => x / length);
}
const POOLS: Readonly<Record<string, (rows: number[][]) => number[]>> = {
  distilbert: (rows) => rows[0].map((_, j) => rows.reduce((a, r) => a + r[j], 0) / rows.length),
  'xlm-roberta': (rows) => rows[0],
  'decoder-qwen3': (rows) => rows[rows.length - 1],
  'decoder-gemma3-b': (rows) => rows[0].map((_, j) => rows.reduce((a, r) => a + r[j], 0) / rows.length),
};
for (const [name, pool] of Object.entries(POOLS))
  test(`vectors of texts from ${name} as a GGUF file are pooled as it says, and of length 1`, {
    skip: skipEncoders,
  }, async () => {
    const model = await EmbeddingModel.load(written(name), { device: 'cpu' });
    const texts = ['w5 w7 w9', 'w1', 'w60 w2 w3 w4 w8'];
    assert.deepEqual(model.tokenizer.encode(texts[0]), [2, 9, 11, 13, 3]);
    const got = await model.embed(texts);
    texts.forEach((text, i) => {
      const want = scope(() => pooled(model, text, pool));
      const gap = Math.max(...want.map((x, j) => Math.abs(x - got[i][j])));
      assert.ok(gap < 1e-5, `${text} is off by ${gap}`);
    });
    model.dispose();
  });

test('EmbeddingGemma as a GGUF file gives the vectors of transformers, and its products follow the mean', {
  skip: skipEncoders,
}, async () => {
  const name = 'decoder-gemma3-b';
  const made = await EmbeddingModel.load(written(name), { device: 'cpu' });
  scope(() => {
    const of = (key: string): Tensor => answerOf(name, key, 'encoders');
    const mask = of('attention_mask');
    const { hidden } = noGrad(() => made.encoder.forward({ ids: of('input_ids'), mask }));
    const real = mask.unsqueeze(-1).cast('f32');
    const error = relativeError(hidden.mul(real), of('hidden').mul(real));
    assert.ok(error <= 1e-4, `off by ${error}`);
  });
  const [plain] = await made.embed(['w5 w7 w9']);
  made.dispose();
  // Twice a vector turned round: of length 1 it is the vector turned round.
  const turned = (n: number): Float32Array =>
    Float32Array.from({ length: n * n }, (_, i) => (Math.floor(i / n) === n - 1 - (i % n) ? 2 : 0));
  const more = ['dense_2', 'dense_3'].map((at) => ({ at, numbers: turned(48) }));
  const once = await EmbeddingModel.load(written(name, {}, more.slice(0, 1)), { device: 'cpu' });
  const twice = await EmbeddingModel.load(written(name, {}, more), { device: 'cpu' });
  const near = (a: Float32Array, b: Float32Array): boolean => a.every((x, i) => Math.abs(x - b[i]) < 1e-5);
  assert.ok(near((await once.embed(['w5 w7 w9']))[0], plain.toReversed()));
  assert.ok(near((await twice.embed(['w5 w7 w9']))[0], plain));
  once.dispose();
  twice.dispose();
});

test('a head whose other half a GGUF file lacks is refused, and a model that looks both ways continues no text', {
  skip: skipEncoders,
}, () => {
  const load = (path: string): unknown => loadModel(path, { device: 'cpu' });
  assert.throws(() => load(written('reranker', {}, [], /^cls\.(weight|bias)/)), /not its pooler/);
  assert.throws(() => load(written('decoder-qwen3', { 'attention.causal': false })), /use_bidirectional|continues no/);
});

test('a GGUF file that does not say how vectors are pooled, or looks back alone, is refused by name', {
  skip: skipEncoders,
}, async () => {
  const load = (path: string): Promise<EmbeddingModel> => EmbeddingModel.load(path, { device: 'cpu' });
  await assert.rejects(load(written('distilbert', { pooling_type: 0 })), /bert\.pooling_type is 0; vectors of texts/);
  await assert.rejects(load(written('distilbert', { 'attention.causal': true })), /attention\.causal is true/);
  await assert.rejects(load(written('distilbert', { 'rope.freq_base': 7 })), /honours bert\.rope\.freq_base/);
});
