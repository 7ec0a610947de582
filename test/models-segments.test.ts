// Models that answer with masks against transformers: classes and masks, and what their processors make of a picture and
// of the answers: classes of places, things one by one, one segment for each place.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ArgumentError, FormatError, UnsupportedError } from '../src/base/errors.js';
import { readPicture } from '../src/media/pictures.js';
import { Config } from '../src/models/files/config.js';
import { ImageSegmenter, loadModel } from '../src/models/index.js';
import type { MaskingModel } from '../src/models/scenes/scene-model.js';
import { PictureProcessor } from '../src/models/vision/images.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { zeros } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, maskers, scenes } from './models-support.js';

const open = (name: string, change: (config: any) => object = () => ({})): MaskingModel =>
  loadModel<MaskingModel>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...change(f.config) } }), maskers),
    { kind: 'segmentation', device: 'cpu' },
  ).model;

for (const name of Object.keys(maskers)) {
  const of = (key: string): Tensor => answerOf(name, key, 'segments');
  test(`segments ${name}: the classes and masks of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const model = open(name);
        const made = model.masked(of('pixels'));
        for (const key of ['classes', 'masks'] as const) {
          assert.deepEqual(made[key].shape, of(key).shape, key);
          const off = made[key].sub(of(key)).abs().max().item() / of(key).abs().max().item();
          assert.ok(off <= 1e-4, `${key} are off by ${off}`);
        }
        model.dispose();
      }),
    ));
  test(`segments ${name}: training has a gradient for every weight`, () =>
    scope(() => {
      const model = open(name).requireGrad();
      const { classes, masks } = model.masked(of('pixels'));
      const sum = (y: Tensor): Tensor => y.mul(y.onesLike().flatten().cumsum(0).sin().reshape(y.shape)).sum();
      const grads = sum(classes).add(sum(masks)).backward();
      // MaskFormer's questions are zeros at first.
      const none = [...model.namedParameters()]
        .filter(([, p]) => !((grads.get(p)?.abs().max().item() as number) > 0))
        .map(([key]) => key)
        .filter((key) => !(name.startsWith('maskformer') && /^layers\.0\.own\.[qkv]\.weight$/.test(key)));
      assert.equal(none.join(', '), '');
      model.dispose();
    }));
}

interface Found {
  readonly map: readonly number[];
  readonly segments: readonly { readonly id: number; readonly label_id: number; readonly score: number }[];
}
interface Seen {
  readonly file: Readonly<Record<string, unknown>>;
  readonly picture: string;
  readonly shape: readonly number[];
  /** Every 37th number. */
  readonly pixels: readonly number[];
  readonly semantic: readonly number[];
  /** Of each mask how large it is, and the sum of its places' numbers. */
  readonly things: readonly { score: number; id: number; area: number; places: number }[];
  readonly plain: Found;
  readonly fused: Found;
}
const GOLDEN = 'families/segments-seen.json';
const seen: Readonly<Record<string, Seen>> = missingGolden(GOLDEN)
  ? {}
  : JSON.parse(readFileSync(findGolden(GOLDEN) as string, 'utf8'));
const bytesOf = (s: Seen): Buffer => Buffer.from(s.picture, 'base64');
function segmenterOf(name: string): Promise<ImageSegmenter> {
  const dir = familyFolder(name, (f) => f, maskers);
  writeFileSync(join(dir, 'preprocessor_config.json'), JSON.stringify(seen[name].file));
  return ImageSegmenter.load(dir, { device: 'cpu' });
}
/** Places that are rounded to another side. */
const few = (a: ArrayLike<number>, b: readonly number[], what: string): void => {
  assert.equal(a.length, b.length, what);
  const off = b.filter((id, i) => id !== a[i]).length;
  assert.ok(off <= 2, `${what}: ${off} places are another's`);
};

for (const [name, s] of Object.entries(seen))
  test(`segments ${name}: what is seen in a picture`, async () => {
    const c = new Config(s.file);
    const { data, height, width } = new PictureProcessor(c).of(readPicture(bytesOf(s)));
    c.refuseUnread();
    assert.deepEqual([1, 3, height, width], s.shape);
    s.pixels.forEach((v, i) => assert.equal(data[37 * i], Math.fround(v), `pixel ${37 * i}`));
    const segmenter = await segmenterOf(name);
    const { classes } = await segmenter.segment(bytesOf(s));
    few(classes, s.semantic, 'classes');
    const things = await segmenter.instances(bytesOf(s), { threshold: 0 });
    const wanted = [...s.things].sort((a, b) => b.score - a.score);
    assert.deepEqual(
      things.map(({ id, label }) => [id, label]),
      wanted.map(({ id }) => [id, `LABEL_${id}`]),
    );
    things.forEach(({ score, mask }, i) => {
      assert.ok(Math.abs(score - wanted[i].score) <= 1e-5);
      const area = mask.filter((v) => v === 255).length;
      const places = mask.reduce((sum, v, at) => sum + (v === 255 ? at : 0), 0);
      assert.ok(Math.abs(area - wanted[i].area) <= 1, `${area} places for ${wanted[i].area}`);
      assert.ok(Math.abs(places - wanted[i].places) <= mask.length, 'where they are');
    });
    const above = await segmenter.instances(bytesOf(s), { threshold: wanted[1].score - 1e-5 });
    assert.equal(above.length, 2);
    const rules = { threshold: 0.2, maskThreshold: 0.1, overlap: 0.05 };
    const plain = await segmenter.panoptic(bytesOf(s), rules);
    // Where nothing is, transformers writes -1 if there is nothing at all.
    few(
      plain.map,
      s.plain.map.map((id) => Math.max(id, 0)),
      'segments',
    );
    assert.deepEqual(
      plain.segments.map(({ number, id }) => [number, id]),
      s.plain.segments.map(({ id, label_id }) => [id, label_id]),
    );
    plain.segments.forEach(({ score }, i) => assert.ok(Math.abs(score - s.plain.segments[i].score) <= 1e-5));
    const fused = await segmenter.panoptic(bytesOf(s), { ...rules, fuse: [0, 1, 2] });
    few(
      fused.map,
      s.fused.map.map((id) => Math.max(id, 0)),
      'fused segments',
    );
    const ids = [...new Set(s.fused.segments.map(({ label_id }) => label_id))];
    assert.deepEqual(
      fused.segments.map(({ id }) => id),
      ids,
    );
    const none = await segmenter.panoptic(bytesOf(s), { threshold: 1 });
    assert.ok(none.segments.length === 0 && none.map.every((id) => id === 0));
    segmenter.dispose();
  });

test('what models of masks do not serve is refused by name', async () => {
  const inner = (more: object) => (c: any) => ({ backbone_config: { ...c.backbone_config, ...more } });
  const refused: [(c: any) => object, RegExp][] = [
    [() => ({ pre_norm: true }), /pre_norm is true/],
    [() => ({ enforce_input_projection: true }), /enforce_input_projection is true/],
    [() => ({ feature_size: 64 }), /feature_size is 64/],
    [inner({ out_features: ['stage5'] }), /out_features is \["stage5"\]; the network has 4 stages/],
    [inner({ out_features: ['stem', 'stage4'] }), /lets out what its stages begin with/],
    [inner({ model_type: 'beit' }), /backbone_config.model_type is beit/],
    [inner({ rotary_dim: 3 }), /backbone_config.rotary_dim is 3/],
  ];
  for (const [change, message] of refused)
    assert.throws(
      () => open('mask2former', change),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
      String(message),
    );
  const wrong: [(c: any) => object, RegExp][] = [
    [() => ({ hidden_dim: 40, feature_size: 40 }), /hidden_dim is 40, which does not divide into 32 groups/],
    [() => ({ feature_strides: [4, 8] }), /lets out 4 maps, and feature_strides has 2 entries/],
  ];
  for (const [change, message] of wrong)
    assert.throws(
      () => open('mask2former', change),
      (e: Error) => e instanceof FormatError && message.test(e.message),
      String(message),
    );
  const asked: [(c: any) => object, RegExp][] = [
    [() => ({ use_auxiliary_loss: true }), /use_auxiliary_loss is true/],
    [(c) => ({ decoder_config: { ...c.decoder_config, model_type: 'yolos' } }), /decoder_config.model_type is "yolos"/],
    [
      (c) => ({ decoder_config: { ...c.decoder_config, auxiliary_loss: true } }),
      /decoder_config.auxiliary_loss is true/,
    ],
    [(c) => ({ decoder_config: { ...c.decoder_config, rotary_dim: 3 } }), /decoder_config.rotary_dim is 3/],
  ];
  for (const [change, message] of asked)
    assert.throws(
      () => open('maskformer', change),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
      String(message),
    );
  assert.throws(() => open('maskformer', () => ({ fpn_feature_size: 40 })), /fpn_feature_size is 40/);
  const segmenter = await segmenterOf('mask2former');
  const picture = bytesOf(seen.mask2former);
  await assert.rejects(segmenter.instances(picture, { threshold: 2 }), /instances: threshold is 2/);
  await assert.rejects(segmenter.panoptic(picture, { overlap: -1 }), /panoptic: overlap is -1/);
  segmenter.dispose();
  const plain = await ImageSegmenter.load(
    familyFolder('segformer-s', (f) => f, scenes),
    { device: 'cpu' },
  );
  await assert.rejects(
    plain.instances(zeros([3, 32, 32], { device: 'cpu' })),
    (e: Error) => e instanceof ArgumentError && /knows classes of places, not things one by one/.test(e.message),
  );
  plain.dispose();
});
