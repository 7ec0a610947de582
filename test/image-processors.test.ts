// Image processors of vision models against those of transformers: three pictures of odd sizes, by what files say.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync } from 'node:zlib';
import { UnsupportedError } from '../src/base/errors.js';
import { packageRoot } from '../src/base/paths.js';
import { readPicture } from '../src/media/pictures.js';
import { Config } from '../src/models/files/config.js';
import { ImageClassifier } from '../src/models/index.js';
import { PictureProcessor } from '../src/models/vision/images.js';
import { findGolden } from '../src/parity/golden.js';
import { familyFolder, seeing } from './models-support.js';

interface Golden {
  readonly pictures: readonly string[];
  /** A preprocessor_config.json, and for each picture a shape and every so manyth of its numbers. */
  readonly processors: readonly (readonly [
    config: Readonly<Record<string, unknown>>,
    outs: readonly (readonly [shape: readonly number[], step: number, values: readonly number[]])[],
  ])[];
}
const file = join(packageRoot, 'test/golden/processors.json.br');
const golden = JSON.parse(brotliDecompressSync(readFileSync(file)).toString()) as Golden;
const pictures = golden.pictures.map((text) => readPicture(Buffer.from(text, 'base64')));
/** What a classifier of `seeing` sees in a picture, and what transformers saved of its processor. */
interface Seen {
  readonly file: object;
  readonly picture: string;
  readonly scores: readonly number[];
}
const seen = JSON.parse(readFileSync(findGolden('families/seen.json') as string, 'utf8')) as Record<string, Seen>;

const nameOf = (config: Readonly<Record<string, unknown>>): string =>
  String(config.image_processor_type ?? config.feature_extractor_type);
for (const name of new Set(golden.processors.map(([config]) => nameOf(config))))
  test(`${name}: the numbers of transformers`, () => {
    // PyTorch and SciPy add weighted numbers up in another order where numbers are resized; all else is bit for bit the same.
    const bound = name.startsWith('DINOv3') || name.startsWith('Owlv2') ? 1e-6 : 0;
    for (const [config, outs] of golden.processors.filter(([other]) => nameOf(other) === name)) {
      const c = new Config(config, JSON.stringify(config));
      const processor = new PictureProcessor(c);
      c.refuseUnread();
      outs.forEach(([shape, step, values], i) => {
        const { data, height, width } = processor.of(pictures[i]);
        assert.deepEqual([3, height, width], shape, c.where);
        const off = values.map((v, k) => Math.abs(Math.fround(v) - data[k * step]));
        assert.ok(Math.max(...off) <= bound, `${c.where}: picture ${i} is off by ${Math.max(...off)}`);
      });
    }
  });

for (const [name, { file: json, picture, scores }] of Object.entries(seen))
  test(`${name}: the classes of a picture`, async () => {
    // Where both files tell of pictures, the newer one counts.
    for (const files of [
      { 'preprocessor_config.json': json },
      { 'preprocessor_config.json': { do_resize: false }, 'processor_config.json': { image_processor: json } },
    ]) {
      const dir = familyFolder(name, (f) => f, seeing);
      for (const [to, written] of Object.entries(files)) writeFileSync(join(dir, to), JSON.stringify(written));
      const classifier = await ImageClassifier.load(dir, { device: 'cpu' });
      const classes = await classifier.classify(Buffer.from(picture, 'base64'));
      classifier.dispose();
      assert.equal(classes.length, scores.length);
      assert.deepEqual(
        classes.map((c) => c.score),
        classes.map((c) => c.score).sort((a, b) => b - a),
      );
      for (const { label, score } of classes)
        assert.ok(Math.abs(score - scores[Number(label.slice('LABEL_'.length))]) <= 1e-5, `${label}: ${score}`);
    }
  });

test('what image processors do not do is refused by name', () => {
  const refused: readonly [name: string, fields: object, message: RegExp][] = [
    ['Other', {}, /the image processor Other is not known; CLIP, .* are/],
    ['ViT', { do_flip_channel_order: true }, /do_flip_channel_order is true/],
    ['ViT', { do_center_crop: true }, /crop_size is missing; served are height and width/],
    ['CLIP', { crop_size: { shortest_edge: 9 } }, /crop_size is \{"shortest_edge":9\}/],
    ['CLIP', { size: { shortest_edge: 9, longest_edge: 20 } }, /size is .*; served is either height and width or/],
    ['CLIP', { size: { height: 9 } }, /size is \{"height":9\}/],
    ['ConvNext', { size: { height: 9, width: 9 } }, /size is .*; served is shortest_edge/],
    ['ConvNext', { crop_pct: 0 }, /crop_pct is 0, which asks for no pixel or more than 100 million/],
    ['ConvNext', { crop_pct: 1000 }, /crop_pct is 1000/],
    ['PoolFormer', { crop_pct: 1e-3 }, /crop_pct is 0.001/],
    ['PoolFormer', { do_resize_and_center_crop: false }, /do_resize_and_center_crop is false/],
    ['ViT', { crop_pct: 0.9 }, /crop_pct is 0.9; nothing here honours/],
    ['ViT', { rescale_offset: true }, /rescale_offset is true; nothing here honours/],
    ['DINOv3ViT', { resample: 1 }, /resample is 1; .* only 2 or 3/],
    ['DINOv3ViT', { do_center_crop: true }, /do_center_crop is true/],
    ['DINOv3ViT', { do_rescale: false }, /do_rescale is false/],
  ];
  for (const [name, fields, message] of refused)
    assert.throws(
      () => {
        const c = new Config({ image_processor_type: `${name}ImageProcessor`, ...fields });
        new PictureProcessor(c);
        c.refuseUnread();
      },
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
      `${name} ${JSON.stringify(fields)}`,
    );
  const thin = { width: 1, height: 10_000, rgb: new Uint8Array(30_000) };
  assert.throws(
    () => new PictureProcessor(new Config({ image_processor_type: 'BitImageProcessor' })).of(thin),
    /ArgumentError.*: image: 1 x 10000 pixels; with 224 on the shorter side they would be more than 100 million/,
  );
  assert.throws(() => new PictureProcessor(new Config({})), /image_processor_type is missing/);
});

test('a processor that files do not name is that of the type of model', () => {
  const of = (config: object, type?: string): Float32Array =>
    new PictureProcessor(new Config(config), type).of(pictures[0]).data;
  for (const [type, name] of [
    ['regnet', 'ConvNext'],
    ['dinov2', 'Bit'],
    ['swin', 'ViT'],
    ['dinov3_vit', 'DINOv3ViT'],
  ])
    assert.deepEqual(of({}, type), of({ image_processor_type: `${name}ImageProcessor` }));
});
