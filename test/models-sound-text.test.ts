// Models of sounds beside texts against transformers: vectors, logits, and what extractors make of sounds.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { FormatError, UnsupportedError } from '../src/base/errors.js';
import { Config } from '../src/models/files/config.js';
import { loadModel, SoundTextModel } from '../src/models/index.js';
import type { Clap } from '../src/models/sound/clap.js';
import { ClapMel } from '../src/models/sound/clap-mel.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, listeners } from './models-support.js';

interface Heard {
  readonly file: Readonly<Record<string, unknown>>;
  readonly samples: readonly number[];
  readonly shape: readonly number[];
  /** Every eleventh of the numbers that the model is given. */
  readonly given: readonly number[];
}
const GOLDEN = 'families/sound-texts-heard.json';
const heard: Readonly<Record<string, Heard>> = missingGolden(GOLDEN)
  ? {}
  : JSON.parse(readFileSync(findGolden(GOLDEN) as string, 'utf8'));
const samplesOf = (name: string): Float32Array => Float32Array.from(heard[name].samples, (s) => s / 32768);
const changed = (name: string, change: (config: any) => object = (c) => c): string =>
  familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...change(f.config) } }), listeners);
const open = (name: string, change?: (config: any) => object): Clap =>
  loadModel<Clap>(changed(name, change), { kind: 'sound-text', device: 'cpu' }).model;

for (const name of Object.keys(listeners)) {
  const of = (key: string): Tensor => answerOf(name, key, 'sound-text');
  test(`sound and text ${name}: the vectors and logits of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const model = open(name);
        const near = (a: Tensor, key: string): void => {
          assert.deepEqual(a.shape, of(key).shape, key);
          const off = a.sub(of(key)).abs().max().item() / of(key).abs().max().item();
          assert.ok(off <= 1e-4, `${key} is off by ${off}`);
        };
        const texts = model.embedText(of('input_ids'), of('attention_mask'));
        const sounds = model.embedSound(of('mel'));
        near(texts, 'texts');
        near(sounds, 'sounds');
        near(model.logits(sounds, texts), 'logits');
        near(model.textLogits(texts, sounds), 'text_logits');
        assert.throws(() => model.embedSound(of('mel').narrow(3, 0, 9)), /the model takes \(batch, \d, frames, \d+\)/);
        model.dispose();
      }),
    ));
  test(`sound and text ${name}: training has a gradient for every weight`, () =>
    scope(() => {
      const model = open(name).requireGrad();
      const [texts, sounds] = [model.embedText(of('input_ids'), of('attention_mask')), model.embedSound(of('mel'))];
      const sum = (y: Tensor): Tensor => y.mul(y.onesLike().cumsum(1).sin()).sum();
      const grads = sum(model.logits(sounds, texts))
        .add(sum(model.textLogits(texts, sounds)))
        .backward();
      const none = [...model.namedParameters()]
        .filter(([, p]) => !((grads.get(p)?.abs().max().item() as number) > 0))
        .map(([key]) => key);
      assert.equal(none.join(', '), '');
      model.dispose();
    }));
}

for (const [name, { file, shape, given }] of Object.entries(heard))
  test(`spectrograms "${name}": the numbers of transformers, of parts those in the middle`, () => {
    const c = new Config(file);
    const mel = new ClapMel(c);
    c.refuseUnread();
    const data = mel.of(samplesOf(name));
    assert.deepEqual([mel.views, mel.frames, mel.bins], shape);
    assert.equal(data.length, shape[0] * shape[1] * shape[2]);
    given.forEach((v, i) => assert.ok(Math.abs(data[11 * i] - v) <= 2e-3, `${11 * i}: ${data[11 * i]} ${v}`));
  });

const WORDS = ['<s>', '<pad>', '</s>', '<unk>', ...'a the dog cat barks sings in rain'.split(' ')];
function folder(name: string, file: object): string {
  const dir = changed(name);
  const special = [0, 1, 2].map((id) => ({ id, content: WORDS[id], special: true, normalized: false }));
  const files = {
    'preprocessor_config.json': file,
    'tokenizer.json': {
      ...{ version: '1.0', added_tokens: special, pre_tokenizer: { type: 'WhitespaceSplit' } },
      model: { type: 'WordLevel', vocab: Object.fromEntries(WORDS.map((w, i) => [w, i])), unk_token: '<unk>' },
      post_processor: { type: 'BertProcessing', sep: ['</s>', 2], cls: ['<s>', 0] },
    },
    'tokenizer_config.json': { pad_token: '<pad>' },
  };
  for (const [to, json] of Object.entries(files)) writeFileSync(join(dir, to), JSON.stringify(json));
  return dir;
}
/** 64 frames at most, which the model hears. */
const SHORT = { max_length_s: 1, hop_length: 70 };

test('sounds fit texts by shares that sum to 1, alone as in a batch', async () => {
  const file = { ...heard.one.file, ...SHORT };
  const both = await SoundTextModel.load(folder('clap', file), { device: 'cpu' });
  const sounds = [samplesOf('one'), samplesOf('repeat').map((s) => s * s), samplesOf('middle')];
  const texts = ['a dog barks', 'the cat sings in the rain'];
  const scores = await both.scores(sounds, texts);
  scores.forEach((row) => assert.ok(Math.abs(row[0] + row[1] - 1) <= 1e-6));
  const [alone] = await both.scores([sounds[1]], texts);
  alone.forEach((score, i) => assert.ok(Math.abs(score - scores[1][i]) <= 1e-5));
  assert.ok(Math.abs(scores[0][0] - scores[1][0]) > 1e-6, 'sounds differ');
  const [vectors, words] = [await both.embedSounds(sounds), await both.embedTexts(texts)];
  const dot = (a: Float32Array, b: Float32Array): number => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const [first] = vectors;
  assert.ok(Math.abs(dot(first, first) - 1) <= 1e-5 && first.length === 12);
  const scale = Math.exp(both.model.soundScale.item());
  const [a, b] = words.map((w) => Math.exp(scale * dot(first, w)));
  assert.ok(Math.abs(a / (a + b) - scores[0][0]) <= 1e-5);
  await assert.rejects(both.scores([], texts), /sounds: the list is empty/);
  await assert.rejects(both.embedTexts([]), /texts: the list is empty/);
  await assert.rejects(both.embedSounds([new Float32Array(0)]), /there are no samples/);
  both.dispose();
  const four = folder('clap', heard.all.file);
  await assert.rejects(SoundTextModel.load(four), /makes 4 spectrograms of 16 bands; the model hears 1 of 16/);
});

test('what models of sounds beside texts do not serve is refused by name', () => {
  const inner = (more: object) => (c: any) => ({ audio_config: { ...c.audio_config, ...more } });
  const refused: [(c: any) => object, RegExp][] = [
    [inner({ fusion_type: 'channel_map' }), /audio_config.fusion_type is "channel_map"/],
    [inner({ flatten_patch_embeds: false }), /audio_config.flatten_patch_embeds is false/],
    [inner({ patch_embed_input_channels: 2 }), /audio_config.patch_embed_input_channels is 2/],
    [inner({ rotary_dim: 3 }), /audio_config.rotary_dim is 3/],
    [inner({ hidden_size: 20 }), /audio_config.hidden_size is 20/],
    [(c) => ({ text_config: { ...c.text_config, rotary_dim: 3 } }), /text_config.rotary_dim is 3/],
    [(c) => ({ text_config: { ...c.text_config, is_decoder: true } }), /text_config.is_decoder is true/],
  ];
  for (const [change, message] of refused)
    assert.throws(
      () => open('clap', change),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
      String(message),
    );
  assert.throws(
    () => open('clap', inner({ num_attention_heads: [2] })),
    (e: Error) => e instanceof FormatError && /are of one length, and bins divide the size/.test(e.message),
  );
  const mel = (more: object): ClapMel => new ClapMel(new Config({ ...heard.one.file, ...more }));
  assert.throws(() => mel({ truncation: 'cut' }), /truncation is "cut"/);
  assert.throws(() => mel({ padding: 'mirror' }), /padding is "mirror"/);
  assert.throws(() => mel({ frequency_min: 3000 }), /frequency_min is 3000 and frequency_max 1800/);
  assert.throws(() => mel({ fft_window_size: 127 }), /fft_window_size 127/);
  const model = open('clap');
  const long = tensor(new Float32Array(70 * 16), { shape: [1, 1, 70, 16], device: 'cpu' });
  assert.throws(() => model.embedSound(long), /70 frames; the model hears 64 at most/);
  model.dispose();
});
