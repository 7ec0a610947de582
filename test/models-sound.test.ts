// Models of sounds against transformers: letters of moments, classes of the whole, vectors.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ArgumentError, UnsupportedError } from '../src/base/errors.js';
import { SpeechModel } from '../src/models/index.js';
import { loadModel } from '../src/models/load.js';
import type { ConformerEncoder } from '../src/models/sound/conformer-encoder.js';
import type { Moonshine } from '../src/models/sound/moonshine.js';
import type { Parakeet } from '../src/models/sound/parakeet.js';
import type { ParakeetTransducer } from '../src/models/sound/transducer.js';
import type { SpectrogramTransformer } from '../src/models/sound/spectrogram-transformer.js';
import type { SoundEncoder } from '../src/models/sound/wav2vec2.js';
import type { WhisperClassifier } from '../src/models/sound/whisper-encoder.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor, zeros } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, hearing, writers } from './models-support.js';

const open = (name: string, more: object = {}): SoundEncoder =>
  loadModel<SoundEncoder>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), hearing),
    { kind: 'sound', device: 'cpu' },
  ).model;

for (const name of Object.keys(hearing).filter((n) => !/^(ast|bands|whisper|parakeet|transducer)/.test(n)))
  test(`sound ${name}: the numbers of transformers, alone and padded behind`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'sound');
        const model = open(name);
        const off = (a: Tensor, b: Tensor): number => {
          assert.deepEqual(a.shape, b.shape);
          return a.sub(b).abs().max().item() / b.abs().max().item();
        };
        const samples = of('samples');
        assert.ok(off(model.forward(samples.narrow(0, 0, 1).contiguous()), of('plain')) <= 1e-4, 'plain');
        const [got, want] = [model.forward(samples, of('mask')), of('masked')];
        // Moments of padding mean nothing.
        const real = (x: Tensor): Tensor =>
          x.rank === 3 ? x.narrow(0, 1, 1).narrow(1, 0, model.moments(600)).contiguous() : x;
        assert.ok(off(real(got), real(want)) <= 1e-4, 'padded');
        model.dispose();
      }),
    ));

for (const name of Object.keys(hearing).filter((n) => n.startsWith('ast')))
  test(`sound ${name}: the numbers of transformers for spectrograms`, () =>
    scope(() =>
      noGrad(() => {
        const folder = familyFolder(name, (f) => f, hearing);
        const { model } = loadModel<SpectrogramTransformer>(folder, { kind: 'sound', device: 'cpu' });
        const [frames, want] = [answerOf(name, 'frames', 'sound'), answerOf(name, 'logits', 'sound')];
        const got = model.forward(frames);
        assert.deepEqual(got.shape, want.shape);
        assert.ok(got.sub(want).abs().max().item() / want.abs().max().item() <= 1e-4);
        assert.throws(() => model.forward(frames.narrow(1, 0, 9)), /the model takes \(batch, 20, 16\)/);
        model.dispose();
      }),
    ));

for (const name of Object.keys(hearing).filter((n) => n.startsWith('whisper')))
  test(`sound ${name}: the numbers of transformers for log-mel spectrograms`, () =>
    scope(() =>
      noGrad(() => {
        const folder = familyFolder(name, (f) => f, hearing);
        const { model } = loadModel<WhisperClassifier>(folder, { kind: 'sound', device: 'cpu' });
        const [frames, want] = [answerOf(name, 'frames', 'sound'), answerOf(name, 'logits', 'sound')];
        const got = model.forward(frames);
        assert.deepEqual(got.shape, want.shape);
        assert.ok(got.sub(want).abs().max().item() / want.abs().max().item() <= 1e-4);
        assert.throws(() => model.forward(frames.narrow(2, 0, 9)), /the model takes \(batch, 16, 100\)/);
        assert.throws(() => loadModel(folder, { kind: 'speech', device: 'cpu' }), /of kind sound, not speech/);
        model.dispose();
      }),
    ));

for (const name of Object.keys(hearing).filter((n) => n.startsWith('bands')))
  test(`sound ${name}: the numbers of transformers for energies of bands, padded behind`, () =>
    scope(() =>
      noGrad(() => {
        const folder = familyFolder(name, (f) => f, hearing);
        const { model } = loadModel<ConformerEncoder>(folder, { kind: 'sound', device: 'cpu' });
        const [frames, mask, want] = ['frames', 'mask', 'logits'].map((key) => answerOf(name, key, 'sound'));
        const got = model.forward(frames, mask);
        assert.deepEqual(got.shape, want.shape);
        const real = (x: Tensor): Tensor => (x.rank === 3 ? x.mul(mask.cast('f32').unsqueeze(2)) : x);
        assert.ok(real(got.sub(want)).abs().max().item() / real(want).abs().max().item() <= 1e-4);
        assert.throws(() => model.forward(frames.narrow(2, 0, 9)), /the model takes \(batch, moments, 16\)/);
        model.dispose();
      }),
    ));

for (const name of Object.keys(hearing).filter((n) => n.startsWith('parakeet')))
  test(`sound ${name}: the numbers of transformers for frames, padded behind, and the pieces of one sound`, () =>
    scope(() =>
      noGrad(() => {
        const folder = familyFolder(name, (f) => f, hearing);
        const { model } = loadModel<Parakeet>(folder, { kind: 'sound', device: 'cpu' });
        const [frames, mask, want] = ['frames', 'mask', 'logits'].map((key) => answerOf(name, key, 'sound'));
        const got = model.forward(frames, mask);
        assert.deepEqual(got.shape, want.shape);
        const { real } = model.heard(frames, mask);
        assert.deepEqual(real, name === 'parakeet' ? [5, 4] : [10, 7]);
        real.forEach((n, i) => {
          const [a, b] = [got, want].map((x) => x.narrow(0, i, 1).narrow(1, 0, n));
          assert.ok(a.sub(b).abs().max().item() / want.abs().max().item() <= 1e-4, `row ${i}`);
        });
        const second = [frames, mask].map((x) => x.narrow(0, 1, 1)) as [Tensor, Tensor];
        const best = want.narrow(0, 1, 1).narrow(1, 0, real[1]).argmax(-1).toArray() as number[][];
        assert.deepEqual(model.pieces(...second), best[0]);
        assert.throws(() => model.forward(frames.narrow(2, 0, 9)), /the model takes \(batch, frames, 16\)/);
        model.dispose();
      }),
    ));

for (const name of Object.keys(hearing).filter((n) => n.startsWith('transducer')))
  test(`sound ${name}: transformers' numbers for moments and what was written, and the pieces of each sound`, () =>
    scope(() =>
      noGrad(() => {
        const folder = familyFolder(name, (f) => f, hearing);
        const { model } = loadModel<ParakeetTransducer>(folder, { kind: 'sound', device: 'cpu' });
        const of = (key: string): Tensor => answerOf(name, key, 'sound');
        const [frames, mask, want] = ['frames', 'mask', 'logits'].map(of);
        const got = model.forward(frames, mask, of('decoder_input_ids'));
        assert.deepEqual(got.shape, want.shape);
        model.heard(frames, mask).real.forEach((n, i) => {
          const [a, b] = [got, want].map((x) => x.narrow(0, i, 1).narrow(1, 0, n));
          assert.ok(a.sub(b).abs().max().item() / want.abs().max().item() <= 1e-4, `row ${i}`);
        });
        for (const [i, row] of ['first', 'second'].entries()) {
          const alone = [frames, mask].map((x) => x.narrow(0, i, 1)) as [Tensor, Tensor];
          assert.deepEqual(model.pieces(...alone), of(row).toArray(), row);
        }
        assert.throws(() => model.pieces(frames, mask), /pieces of one sound, not of 2/);
        model.dispose();
        const odd = familyFolder(name, (f) => ({ ...f, config: { ...f.config, durations: [1, 2] } }), hearing);
        if (name !== 'transducer-j')
          assert.throws(() => loadModel(odd, { device: 'cpu' }), /durations is \[1, 2\]; 0, 1, 2 and so on are served/);
      }),
    ));

test('sounds and configs that are not served are refused by name', () => {
  const short = zeros([1, 20], { device: 'cpu' });
  assert.throws(
    () => open('wav2vec2').forward(short),
    (e: Error) => e instanceof ArgumentError && /enough samples for a moment/.test(e.message),
  );
  const refused: [string, object, RegExp][] = [
    ['wav2vec2', { add_adapter: true }, /add_adapter is true/],
    ['wav2vec2-b', { adapter_attn_dim: 8 }, /adapter_attn_dim is 8 without do_stable_layer_norm/],
    ['hubert', { conv_pos_batch_norm: true }, /conv_pos_batch_norm is true/],
    ['wavlm', { adapter_attn_dim: 8 }, /adapter_attn_dim is 8/],
    ['conformer', { position_embeddings_type: 'relative_key' }, /position_embeddings_type is "relative_key"/],
    ['conformer', { conv_depthwise_kernel_size: 4 }, /conv_depthwise_kernel_size is 4/],
    ['bands', { add_adapter: true }, /add_adapter is true/],
    [
      'parakeet',
      { encoder_config: { subsampling_factor: 6 } },
      /subsampling_factor 6; an odd number and a power of two/,
    ],
    ['bands', { use_intermediate_ffn_before_adapter: true }, /use_intermediate_ffn_before_adapter is true/],
  ];
  for (const [name, more, message] of refused)
    assert.throws(
      () => open(name, more),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
});

const writer = (name: string, more: object = {}): Moonshine =>
  loadModel<Moonshine>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), writers),
    { kind: 'speech', device: 'cpu' },
  ).model;
for (const name of Object.keys(writers))
  test(`speech ${name}: the numbers of transformers, padded behind, and its words`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'speech');
        const model = writer(name);
        const off = (a: Tensor, b: Tensor): number => {
          assert.deepEqual(a.shape, b.shape);
          return a.sub(b).abs().max().item() / b.abs().max().item();
        };
        const [samples, mask] = [of('input_features'), of('attention_mask')];
        const encoded = model.encode(samples, mask);
        const heard = (x: Tensor): Tensor => x.narrow(0, 1, 1).narrow(1, 0, model.moments(2600)).contiguous();
        assert.ok(off(heard(encoded), heard(of('encoded'))) <= 1e-4, 'encoded');
        const { crossed, mask: seen } = model.begin(encoded, mask);
        const logits = model.decode(of('decoder_input_ids'), { crossed, ...(seen && { mask: seen }) });
        assert.ok(off(logits, of('logits')) <= 1e-4, 'logits');
        const greedy = of('greedy').toArray() as number[][];
        const answer = model.answer(samples, { start: [1], end: [], maxTokens: 14 }, mask);
        assert.deepEqual(answer, greedy);
        model.dispose();
      }),
    ));

test('Moonshine writes what a folder says, window by window, and refuses what it has not', async () => {
  const refused: [object, RegExp][] = [
    [{ decoder_num_attention_heads: 2 }, /encoder_num_attention_heads is 4, decoder_num_attention_heads 2/],
    [{ encoder_num_key_value_heads: 2, decoder_num_key_value_heads: 2 }, /4 heads share keys of 2/],
    [{ rope_parameters: { rope_type: 'linear', rope_theta: 1e4, factor: 2 } }, /rope type "linear"/],
    [{ rotary_dim: 3 }, /rotary_dim is 3/],
  ];
  for (const [more, message] of refused)
    assert.throws(
      () => writer('moonshine', more),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
  const short = zeros([1, 20], { device: 'cpu' });
  assert.throws(() => writer('moonshine').encode(short), /with 895 samples at least/);
  const dir = familyFolder('moonshine', (f) => f, writers);
  const words = Object.fromEntries(
    ['<unk>', '<s>', '</s>', ...Array.from({ length: 57 }, (_, i) => `w${i}`)].map((w, i) => [w, i]),
  );
  const files = {
    'preprocessor_config.json': { feature_extractor_type: 'Wav2Vec2FeatureExtractor', do_normalize: false },
    'generation_config.json': { decoder_start_token_id: 1, eos_token_id: 2, max_length: 64 },
    'tokenizer.json': {
      ...{ version: '1.0', added_tokens: [], normalizer: null, pre_tokenizer: { type: 'WhitespaceSplit' } },
      model: { type: 'WordLevel', vocab: words, unk_token: '<unk>' },
    },
  };
  for (const [name, json] of Object.entries(files)) writeFileSync(join(dir, name), JSON.stringify(json));
  const speech = await SpeechModel.load(dir, { device: 'cpu' });
  const [row] = answerOf('moonshine', 'input_features', 'speech').toArray() as number[][];
  const text = await speech.transcribe(Float32Array.from(row), { maxTokens: 5 });
  const wanted = speech.model.answer(tensor([row], { device: 'cpu' }), { start: [1], end: [2], maxTokens: 5 });
  assert.equal(text, speech.tokenizer.decode(wanted[0].slice(1)).trim());
  await assert.rejects(speech.transcribe(Float32Array.from(row), { language: 'de' }), /knows one language/);
  const long = new Float32Array(30 * 16_000 + 10).fill(0.1);
  assert.ok((await speech.transcribe(long, { maxTokens: 3 })).split(/\s+/).length > 3, 'two windows');
  speech.dispose();
});
