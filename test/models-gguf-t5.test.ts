// T5 and its kin in GGUF files as llama.cpp's converter writes them, held against transformers' answers.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { ggmlType } from '../src/base/blocks/types.js';
import type { GgufValue } from '../src/io/gguf-value.js';
import { writeGguf } from '../src/io/gguf-write.js';
import { SafeTensors } from '../src/io/safetensors.js';
import type { TextEncoder } from '../src/models/encoders/encoder.js';
import { TextToText } from '../src/models/index.js';
import { loadModel } from '../src/models/load.js';
import type { Seq2Seq } from '../src/models/seq2seq/seq2seq.js';
import { relativeError } from '../src/parity/model-checks.js';
import { noGrad } from '../src/tensor/autograd.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import { answerOf, familyFolder, pairs } from './models-support.js';

const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^shared/, 'token_embd'],
  [/^(enc|dec)oder\.final_layer_norm/, '$1.output_norm'],
  [/^(enc|dec)oder\.block\.(\d+)\./, '$1.blk.$2.'],
  [/layer\.0\.SelfAttention\.relative_attention_bias/, 'attn_rel_b'],
  [/layer\.0\.SelfAttention\.([qkvo])/, 'attn_$1'],
  [/layer\.1\.EncDecAttention\.([qkvo])/, 'cross_attn_$1'],
  [/layer\.0\.layer_norm/, 'attn_norm'],
  [/(dec\.blk\.\d+\.)layer\.1\.layer_norm/, '$1cross_attn_norm'],
  [/layer\.\d\.layer_norm/, 'ffn_norm'],
  [/layer\.\d\.DenseReluDense\.wi_0/, 'ffn_gate'],
  [/layer\.\d\.DenseReluDense\.wi(_1)?/, 'ffn_up'],
  [/layer\.\d\.DenseReluDense\.wo/, 'ffn_down'],
];
const WORDS = ['<pad>', '</s>', '<unk>', ...Array.from({ length: 93 }, (_, i) => `\u2581w${i}`)];
const TOKENIZER: readonly (readonly [string, GgufValue])[] = [
  ['model', { type: 'string', value: 't5' }],
  ['tokens', { type: 'array', of: 'string', value: WORDS }],
  ['scores', { type: 'array', of: 'f32', value: Float32Array.from(WORDS, (_, i) => -i / 100) }],
  ['token_type', { type: 'array', of: 'i32', value: Int32Array.from(WORDS, (_, i) => [3, 3, 2][i] ?? 1) }],
  ['eos_token_id', { type: 'u32', value: 1 }],
  ['padding_token_id', { type: 'u32', value: 0 }],
];
/** The file of a small model; one whose head is its own has the words' table twice. */
function written(name: string, { architecture = 't5', change = {} as Readonly<Record<string, number>> } = {}): string {
  const { config } = pairs[name] as unknown as { config: Readonly<Record<string, number>> };
  const dir = familyFolder(name, undefined, pairs);
  using file = SafeTensors.open(dir);
  const half = architecture === 't5encoder';
  const tensors = file.names.flatMap((key) => {
    const to = NAMES.reduce((n, [from, by]) => n.replace(from, by), key);
    const { shape } = file.record(key);
    const stored = { name: to, type: ggmlType('f32'), shape, bytes: file.record(key).read().slice() };
    if (half && to.startsWith('dec.')) return [];
    const own = key === 'shared.weight' && !config.scale_decoder_outputs && config.model_type === ('t5' as unknown);
    return own && !half ? [stored, { ...stored, name: 'output.weight' }] : [stored];
  });
  const keys: Readonly<Record<string, number>> = {
    ...{ context_length: 512, embedding_length: config.d_model, feed_forward_length: config.d_ff },
    ...{ block_count: config.num_layers, 'attention.head_count': config.num_heads },
    ...(!half && { decoder_block_count: config.num_decoder_layers, decoder_start_token_id: 0 }),
    ...{ 'attention.key_length': config.d_kv, 'attention.value_length': config.d_kv },
    ...{ 'attention.layer_norm_epsilon': 1e-6, 'attention.layer_norm_rms_epsilon': 1e-6 },
    'attention.relative_buckets_count': config.relative_attention_num_buckets,
    ...change,
  };
  const told = Object.entries(keys).map(([k, value]): [string, GgufValue] => [
    `${architecture}.${k}`,
    { type: Number.isInteger(value) ? 'u32' : 'f32', value },
  ]);
  const path = join(dir, 'model.gguf');
  const tokenizer = TOKENIZER.map(([k, v]) => [`tokenizer.ggml.${k}`, v] as const);
  writeGguf(
    path,
    new Map<string, GgufValue>([
      ['general.architecture', { type: 'string', value: architecture }],
      ...told,
      ...tokenizer,
    ]),
    tensors,
  );
  return path;
}

for (const name of ['t5-d', 't5-e', 't5-f'])
  test(`${name} as a GGUF file: the numbers of transformers, the half that reads alone, too`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'seq2seq');
        const [ids, mask] = [of('input_ids'), of('attention_mask')];
        const { model } = loadModel<Seq2Seq>(written(name), { device: 'cpu', kind: 'seq2seq' });
        const encoded = model.encode(ids, mask);
        const { caches: _, ...state } = model.begin(encoded, mask);
        const logits = relativeError(model.decode(of('decoder_input_ids'), state), of('logits'));
        assert.ok(logits <= 1e-4, `logits are off by ${logits}`);
        const path = written(name, { architecture: 't5encoder' });
        const half = loadModel<TextEncoder>(path, { device: 'cpu', kind: 'encoder' }).model;
        const real = mask.cast('f32').unsqueeze(-1);
        const error = relativeError(half.forward({ ids, mask }).hidden.mul(real), of('encoded').mul(real));
        assert.ok(error <= 1e-4, `vectors are off by ${error}`);
        model.dispose();
        half.dispose();
      }),
    ));

for (const { name: on, device, missing } of testDevices('cpu,sim:32'))
  test(`a GGUF file of T5 on ${on}: the numbers of transformers, f16 near them, and no tensor is left`, {
    skip: missing,
  }, () => {
    const path = written('t5-e');
    const at = device as Device;
    const off = (dtype: 'f32' | 'f16'): number =>
      scope(() =>
        noGrad(() => {
          const of = (key: string): Tensor => answerOf('t5-e', key, 'seq2seq').to(at);
          const { model } = loadModel<Seq2Seq>(path, { device: at, dtype, kind: 'seq2seq' });
          const encoded = model.encode(of('input_ids'), of('attention_mask'));
          const { caches: _, ...state } = model.begin(encoded, of('attention_mask'));
          const logits = model.decode(of('decoder_input_ids'), state);
          assert.equal(logits.dtype, dtype);
          const error = relativeError(logits.cast('f32'), of('logits'));
          model.dispose();
          return error;
        }),
      );
    for (const [dtype, bound] of [['f32', 1e-4] as const, ['f16', 0.05] as const]) {
      assert.ok(off(dtype) <= bound, `${dtype}: off by ${off(dtype)}`);
      const before = at.memory().liveBytes; // numbers that a device keeps are there now
      off(dtype);
      assert.ok(at.memory().liveBytes <= before, dtype);
    }
  });

test('a GGUF file of T5 answers texts by the tokenizer and the tokens that it names', async () => {
  const model = await TextToText.load(written('t5-f'), { device: 'cpu' });
  const texts = ['w5 w9 w20 w31', 'w7'];
  const answers = await model.generate(texts, { maxTokens: 6 });
  assert.deepEqual(model.tokenizer.encode(texts[1]), [10, 1]);
  assert.ok(answers.every((text) => /^(w\d+ ?)*$/.test(text)) && answers.some((text) => text !== ''), answers.join());
  model.model.dispose();
});

test('a GGUF file of T5 with more blocks than tensors, or keys that nobody knows, is refused by name', () => {
  const load = (change: Readonly<Record<string, number>>): unknown =>
    loadModel(written('t5-e', { change }), { device: 'cpu' });
  assert.throws(() => load({ decoder_block_count: 3 }), /decoder_block_count is 3: there is no dec\.blk\.2/);
  assert.throws(() => load({ block_count: 1e6 }), /block_count is 1000000/);
  assert.throws(() => load({ 'rope.freq_base': 7 }), /honours t5\.rope\.freq_base/);
  assert.throws(() => load({ block_count: 1 }), /nothing used .*enc\.blk\.1/);
});
