// Sounds to texts and classes against transformers, with what folders say about samples and letters.
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { BandEnergies } from '../src/models/sound/audio.js';
import { Config } from '../src/models/files/config.js';
import { LetterSpeech, SoundClassifier } from '../src/models/index.js';
import { EvenedMel } from '../src/models/sound/evened-mel.js';
import { Parakeet } from '../src/models/sound/parakeet.js';
import type { ParakeetTransducer } from '../src/models/sound/transducer.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { tensor } from '../src/tensor/create.js';
import type { Device } from '../src/tensor/device.js';
import { testDevices } from '../src/testing/devices.js';
import { familyFolder, hearing } from './models-support.js';

interface Heard {
  readonly samples: readonly number[];
  /** Every 23rd of the numbers that the model is given. */
  readonly given: readonly number[];
  readonly files: Readonly<Record<string, Record<string, unknown>>>;
  readonly text?: string;
  /** Letters of moments, and what they spell. */
  readonly spelt?: readonly (readonly [ids: readonly number[], text: string])[];
  readonly scores?: readonly number[];
}
const GOLDEN = 'families/heard.json';
const skip = missingGolden(GOLDEN);
const heard = skip
  ? {}
  : (JSON.parse(readFileSync(findGolden(GOLDEN) as string, 'utf8')) as Readonly<Record<string, Heard>>);
const samplesOf = (name: string): Float32Array => Float32Array.from(heard[name].samples, (s) => s / 32768);

function folderOf(name: string, more: Readonly<Record<string, object>> = {}): string {
  const dir = familyFolder(name, (f) => f, hearing);
  for (const [file, json] of Object.entries({ ...heard[name].files, ...more }))
    writeFileSync(join(dir, file), JSON.stringify(json));
  return dir;
}

for (const [name, { text, scores, spelt = [] }] of Object.entries(heard))
  test(`sound ${name}: ${scores ? 'the scores of classes' : 'the text'} that transformers tells`, async () => {
    const dir = folderOf(name);
    if (scores) {
      const model = await SoundClassifier.load(dir, { device: 'cpu' });
      const got = await model.classify(samplesOf(name));
      const want = scores.map((score, i) => ({ label: `LABEL_${i}`, score })).sort((a, b) => b.score - a.score);
      assert.deepEqual(
        got.map((c) => c.label),
        want.map((c) => c.label),
      );
      got.forEach(({ score }, i) => assert.ok(Math.abs(score - want[i].score) <= 1e-4, `${score}: ${want[i].score}`));
      model.dispose();
    } else {
      const model = await LetterSpeech.load(dir, { device: 'cpu' });
      assert.equal(await model.transcribe(samplesOf(name)), text);
      const row = (id: number): number[] => Array.from({ length: 20 }, (_, i) => Number(i === id));
      for (const [ids, want] of spelt) {
        if (model.model instanceof Parakeet) model.model.pieces = () => [...ids];
        else model.model.forward = () => tensor([ids.map(row)], { device: 'cpu' });
        assert.equal(await model.transcribe(samplesOf(name)), want);
      }
      model.dispose();
    }
  });

test('of a transducer the same piece twice is two pieces, and neither nothing nor padding is spelt', {
  skip,
}, async () => {
  const dir = familyFolder('transducer', (f) => f, hearing);
  for (const [file, json] of Object.entries(heard.parakeet.files)) writeFileSync(join(dir, file), JSON.stringify(json));
  const model = await LetterSpeech.load(dir, { device: 'cpu' });
  assert.match(await model.transcribe(samplesOf('parakeet')), /^[a-z'., ]+$/);
  (model.model as ParakeetTransducer).pieces = () => [0, 3, 3, 19, 2, 2, 0];
  assert.equal(await model.transcribe(samplesOf('parakeet')), 'thettss the');
  model.dispose();
});

for (const { name: on, device, missing } of testDevices('cpu,sim:32'))
  test(`letters and classes of sounds in f16 on ${on} are those of f32, and no tensor is left`, {
    skip: missing ?? skip,
  }, async () => {
    const options = { device: device as Device, dtype: 'f16' } as const;
    const hear = async (name: string): Promise<void> => {
      const { text, scores = [] } = heard[name];
      if (text !== undefined) {
        const model = await LetterSpeech.load(folderOf(name), options);
        assert.equal(await model.transcribe(samplesOf(name)), text, name);
        model.dispose();
        return;
      }
      const model = await SoundClassifier.load(folderOf(name), options);
      for (const { label, score } of await model.classify(samplesOf(name)))
        assert.ok(Math.abs(score - scores[Number(label.slice('LABEL_'.length))]) <= 5e-3, `${name}: ${label} ${score}`);
      model.dispose();
    };
    for (const name of ['wav2vec2', 'hubert-c', 'ast-b']) {
      await hear(name);
      const before = (device as Device).memory().liveBytes; // numbers that a device keeps are there now
      await hear(name);
      assert.ok((device as Device).memory().liveBytes <= before, name);
    }
  });

test("bands are Kaldi's, as the audio spectrogram transformer's extractor takes them", { skip }, () => {
  const { files, given } = heard['ast-b'];
  const c = new Config(files['preprocessor_config.json']);
  const bands = new BandEnergies(c);
  c.refuseUnread();
  const got = bands.of(samplesOf('ast-b')).filter((_, i) => i % 23 === 0);
  assert.equal(got.length, given.length);
  got.forEach((v, i) => assert.ok(Math.abs(v - given[i]) <= 1e-4, `${i}: ${v} is not ${given[i]}`));
  assert.throws(() => bands.of(new Float32Array(399)), /399 samples; a frame has 400/);
});

test("evened spectrograms are those of Parakeet's extractor", { skip }, () => {
  const { files, given } = heard.parakeet;
  const c = new Config(files['preprocessor_config.json']);
  const mel = new EvenedMel(c);
  c.refuseUnread();
  const { data, frames, heard: count } = mel.of(samplesOf('parakeet'));
  assert.deepEqual([frames, count], [34, 33]);
  const got = data.filter((_, i) => i % 23 === 0);
  assert.equal(got.length, given.length);
  got.forEach((v, i) => assert.ok(Math.abs(v - given[i]) <= 1e-3, `${i}: ${v} is not ${given[i]}`));
  assert.throws(() => mel.of(new Float32Array(239)), /239 samples; two frames of 120/);
});

test('sounds, folders and letters that are not served are refused by name', { skip }, async () => {
  const file = heard.wav2vec2.files['preprocessor_config.json'];
  const refused: [string, Record<string, object>, RegExp][] = [
    ['wav2vec2', { 'preprocessor_config.json': { ...file, echo: 2 } }, /echo is 2/],
    ['wav2vec2', { 'vocab.json': { eng: { a: 0 }, deu: { a: 0 } } }, /target_lang .* is missing, none of eng, deu/],
    ['wav2vec2', { 'vocab.json': { a: 'x' } }, /"a" is "x", not a number/],
    ['wav2vec2-c', { 'vocab.json': { a: 0 } }, /no head for letters/],
  ];
  for (const [name, more, message] of refused)
    await assert.rejects(LetterSpeech.load(folderOf(name, more), { device: 'cpu' }), message);
  const bare = folderOf('wav2vec2');
  rmSync(join(bare, 'vocab.json'));
  await assert.rejects(LetterSpeech.load(bare, { device: 'cpu' }), /vocab.json is not there/);
  await assert.rejects(SoundClassifier.load(bare, { device: 'cpu' }), /no classifier/);
  const other = { ...heard['ast-b'].files['preprocessor_config.json'], max_length: 30 };
  await assert.rejects(
    SoundClassifier.load(folderOf('ast-b', { 'preprocessor_config.json': other }), { device: 'cpu' }),
    /makes \(30, 16\) spectrograms; the model hears \(20, 16\)/,
  );
  const nested = { eng: heard.wav2vec2.files['vocab.json'], deu: { x: 0 } };
  const spoken = { ...heard.wav2vec2.files['tokenizer_config.json'], target_lang: 'eng' };
  const files = { 'vocab.json': nested, 'tokenizer_config.json': spoken };
  const model = await LetterSpeech.load(folderOf('wav2vec2', files), { device: 'cpu' });
  assert.equal(await model.transcribe(samplesOf('wav2vec2')), heard.wav2vec2.text);
  model.dispose();
});
