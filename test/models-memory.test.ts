// Models and memory: what was loaded goes with dispose(), and files that cannot be loaded leave nothing behind.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { LanguageModel } from '../src/engine/index.js';
import * as api from '../src/models/index.js';
import { loadModel } from '../src/models/index.js';
import { Device } from '../src/tensor/device.js';
import { wholeOrNothing } from '../src/tensor/scope.js';
import { zeros } from '../src/tensor/create.js';
import * as models from './models-support.js';
import { blank, familyFolder, skipFamilies } from './models-support.js';

const cpu = Device.get('cpu');
const live = (): number => cpu.memory().liveBytes;
type Families = typeof models.families;

const STEMS = {
  decoders: models.families,
  encoders: models.encoders,
  classifiers: models.classifiers,
  'encoders that answer for tokens': models.tokenHeads,
  'encoder-decoders': models.pairs,
  'models that see': models.seeing,
  'models of scenes': models.scenes,
  'models that answer with masks': models.maskers,
  'models asked by points or words': models.prompted,
  'models that find what texts name': models.grounders,
  'models that write captions': models.captions,
  'models of sounds beside texts': models.listeners,
  'models that hear': models.hearing,
  'models that write what they hear': models.writers,
  'models that read pictures': models.readers,
} as const;
const LEFT_OVER = 'nothing.reads.this';
/** A model with a tensor more than it reads: the last thing that loading finds out. */
const withMore = (f: Families[string]): Families[string] => ({
  ...blank(f),
  tensors: { ...blank(f).tensors, [LEFT_OVER]: [[3], 0, 0, 1] },
});

for (const [what, of] of Object.entries(STEMS)) {
  test(`${what}: dispose() gives all memory back`, { skip: skipFamilies }, () => {
    const left = Object.keys(of).flatMap((name) => {
      const dir = familyFolder(name, blank, of);
      const [before, sizes] = [live(), [] as number[]];
      try {
        // In half the bits, weights and tables pass through another dtype.
        for (const dtype of ['f32', 'bf16'] as const) {
          const { model } = loadModel(dir, { device: 'cpu', dtype });
          sizes.push(live() - before);
          model.dispose();
          if (live() !== before) return [`${name}, ${dtype}: ${live() - before} bytes`];
        }
        assert.ok(
          sizes.every((n) => n > 0),
          `${name} took no memory`,
        );
      } catch (e) {
        // Halves of models are there to be loaded by the class that serves them alone.
        if (!/there is no tensor|continues no texts/.test((e as Error).message)) throw e;
        if (live() !== before) return [`${name}, refused: ${live() - before} bytes`];
      }
      return [];
    });
    assert.deepEqual(left, []);
  });
  test(`${what}: files with a tensor that nothing reads leave no memory behind`, { skip: skipFamilies }, () => {
    const left = Object.keys(of).flatMap((name) => {
      const dir = familyFolder(name, withMore, of);
      const before = live();
      assert.throws(() => loadModel(dir, { device: 'cpu' }), { name: /Error$/ }, name);
      return live() === before ? [] : [`${name}: ${live() - before} bytes`];
    });
    assert.deepEqual(left, []);
  });
}

/** A model that each class serves. */
const SERVED: Readonly<Record<string, readonly [of: Families, name: string]>> = {
  DepthEstimator: [models.scenes, 'depth_anything'],
  EmbeddingModel: [models.encoders, 'mpnet'],
  ImageClassifier: [models.seeing, 'dinov2'],
  ImageSegmenter: [models.scenes, 'segformer-s'],
  ImageTextModel: [models.prompted, 'siglip2'],
  ImageToText: [models.captions, 'trocr'],
  LanguageModel: [models.families, 'llama'],
  LetterSpeech: [models.hearing, 'wav2vec2'],
  Llama: [models.families, 'mistral'],
  MaskedLanguageModel: [models.tokenHeads, 'bert'],
  ObjectDetector: [models.scenes, 'detr'],
  PictureChat: [models.readers, 'llava'],
  PromptedSegmenter: [models.prompted, 'sam'],
  QuestionAnswerer: [models.tokenHeads, 'roberta'],
  SoundClassifier: [models.hearing, 'hubert'],
  SoundTextModel: [models.listeners, 'clap'],
  SpeechModel: [models.writers, 'moonshine'],
  TextClassifier: [models.classifiers, 'bert'],
  TextToText: [models.pairs, 'bart'],
  TokenClassifier: [models.tokenHeads, 'roberta'],
  ZeroShotDetector: [models.prompted, 'owlvit'],
  ZeroShotSegmenter: [models.prompted, 'clipseg'],
};
type Loads = { load(dir: string, options: object): Promise<{ dispose(): void }> };
const classes = Object.entries({ ...api, LanguageModel }).filter(
  ([, made]) => typeof made === 'function' && 'load' in made,
) as unknown as [string, Loads][];
/** Files beside the network that cannot be read. */
const BROKEN = ['tokenizer.json', 'preprocessor_config.json', 'generation_config.json'];
for (const [name, served] of classes)
  test(`${name}: a folder whose other files are broken leaves no memory behind`, { skip: skipFamilies }, async () => {
    const [of, model] = SERVED[name];
    const dir = familyFolder(model, blank, of);
    for (const file of BROKEN) writeFileSync(join(dir, file), '{"');
    const before = live();
    await assert.rejects(async () => served.load(dir, { device: 'cpu' }), { name: /^[A-Z][A-Za-z]*Error$/ });
    assert.equal(live(), before);
  });

test('tensors of a failed attempt are given back, kept ones too, and those of one that succeeds live on', () => {
  const before = live();
  assert.throws(
    () =>
      wholeOrNothing(() => {
        zeros([100], { device: 'cpu' });
        wholeOrNothing(() => zeros([50], { device: 'cpu' }));
        throw new Error('out');
      }),
    /out/,
  );
  assert.equal(live(), before, 'after a failure');
  const made = wholeOrNothing(() => zeros([100], { device: 'cpu' }));
  assert.equal(live(), before + 400, 'after a success');
  made.dispose();
  assert.equal(live(), before);
});
