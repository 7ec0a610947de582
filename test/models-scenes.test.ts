// Models of scenes against transformers: things with boxes, segments, distances, and what their processors make of a
// picture and of the answers.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ArgumentError, FormatError, UnsupportedError } from '../src/base/errors.js';
import { readPicture } from '../src/media/pictures.js';
import { Config } from '../src/models/files/config.js';
import { DepthEstimator, ImageSegmenter, loadModel, ObjectDetector } from '../src/models/index.js';
import type { DepthModel, DetectionModel, SegmentationModel } from '../src/models/scenes/scene-model.js';
import { PictureProcessor } from '../src/models/vision/images.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { zeros } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, scenes } from './models-support.js';

type Scene = DetectionModel | SegmentationModel | DepthModel;
const open = (name: string, more: object = {}): Scene =>
  loadModel<Scene>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), scenes),
    { device: 'cpu' },
  ).model;

for (const name of Object.keys(scenes))
  test(`scenes ${name}: the numbers of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'scenes');
        const near = (a: Tensor, b: Tensor, what: string): void => {
          assert.deepEqual(a.shape, b.shape, what);
          const off = a.sub(b).abs().max().item() / b.abs().max().item();
          assert.ok(off <= 1e-4, `${what} is off by ${off}`);
        };
        const model = open(name);
        const out = model.forward(of('pixels'));
        if ('boxes' in out) near(out.boxes, of('boxes'), 'boxes');
        near('boxes' in out ? out.logits : out, of('logits'), 'logits');
        model.dispose();
      }),
    ));

/**
 * What no answer depends on while training: questions are zeros at first, a norm of one place evens all out, boxes go
 * from layer to layer without a slope, and of heads the last one tells.
 */
const [ZEROS, ONE_PLACE] = [
  /^decoder\.0\.own\.[qkv]\.weight$/,
  'narrow\\.(2\\.conv\\.bias|3\\.(conv\\.|norm\\.weight))',
];
const UNMOVED: Readonly<Record<string, RegExp>> = {
  conditional_detr: ZEROS,
  'conditional_detr-b': new RegExp(`${ZEROS.source}|^scale\\.`),
  deformable_detr: new RegExp(`^(classes\\.0|boxes\\.0|${ONE_PLACE})`),
  'deformable_detr-b': new RegExp(`^(classes\\.0|boxes\\.0|${ONE_PLACE})`),
  'deformable_detr-c': new RegExp(`^(classes\\.[02]|boxes\\.[02]|guesses\\.output|${ONE_PLACE})`),
};
for (const name of Object.keys(scenes).filter((n) => /^(conditional|deformable|upernet)/.test(n)))
  test(`scenes ${name}: training has a gradient for every weight`, () =>
    scope(() => {
      const model = open(name).requireGrad();
      const out = model.forward(answerOf(name, 'pixels', 'scenes'));
      const sum = (y: Tensor): Tensor => {
        const by = y.onesLike().flatten().cumsum(0).affine(0.7, 0).sin().reshape(y.shape);
        return y.mul(by).sum();
      };
      const grads = ('boxes' in out ? sum(out.logits).add(sum(out.boxes)) : sum(out)).backward();
      const none = [...model.namedParameters()]
        .filter(([key, p]) => !((grads.get(p)?.abs().max().item() as number) > 0) && !UNMOVED[name]?.test(key))
        .map(([key]) => key);
      assert.equal(none.join(', '), '');
      model.dispose();
    }));

test('heads of RT-DETR that are stored beside the model are the same', () =>
  scope(() =>
    noGrad(() => {
      const beside = (key: string): string => key.replace(/^model\.decoder\.(class|bbox)_embed/, '$1_embed');
      const dir = familyFolder(
        'rt_detr',
        (f) => ({ ...f, tensors: Object.fromEntries(Object.entries(f.tensors).map(([k, t]) => [beside(k), t])) }),
        scenes,
      );
      const { model } = loadModel<DetectionModel>(dir, { device: 'cpu' });
      const { logits } = model.forward(answerOf('rt_detr', 'pixels', 'scenes'));
      const wanted = answerOf('rt_detr', 'logits', 'scenes');
      assert.ok(logits.sub(wanted).abs().max().item() <= 1e-4 * wanted.abs().max().item());
      model.dispose();
    }),
  ));

/** A picture, what a processor makes of it, and what it makes of a model's answers. */
interface Seen {
  readonly file: Readonly<Record<string, unknown>>;
  readonly picture: string;
  readonly shape: readonly number[];
  readonly pixels: readonly number[];
  readonly answer: readonly number[] | { scores: number[]; labels: number[]; boxes: number[][] };
}
const seen: Readonly<Record<string, Seen>> = missingGolden('families/scenes-seen.json')
  ? {}
  : (JSON.parse(readFileSync(findGolden('families/scenes-seen.json') as string, 'utf8')) as Record<string, Seen>);
const bytesOf = (s: Seen): Buffer => Buffer.from(s.picture, 'base64');
function folder(name: string, file: object | undefined = seen[name].file): string {
  const dir = familyFolder(name, (f) => f, scenes);
  if (file) writeFileSync(join(dir, 'preprocessor_config.json'), JSON.stringify(file));
  return dir;
}

for (const [name, s] of Object.entries(seen))
  test(`scenes ${name}: what is seen in a picture`, async () => {
    const c = new Config(s.file);
    const { data, height, width } = new PictureProcessor(c).of(readPicture(bytesOf(s)));
    c.refuseUnread();
    assert.deepEqual([1, 3, height, width], s.shape);
    s.pixels.forEach((v, i) => assert.equal(data[37 * i], Math.fround(v), `pixel ${37 * i}`));
    const dir = folder(name);
    if (!Array.isArray(s.answer)) {
      const { scores, labels, boxes } = s.answer as Exclude<Seen['answer'], readonly number[]>;
      const detector = await ObjectDetector.load(dir, { device: 'cpu' });
      const found = await detector.detect(bytesOf(s), { threshold: 0 });
      const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]);
      assert.equal(found.length, scores.length);
      found.forEach(({ label, score, box }, i) => {
        assert.equal(label, `LABEL_${labels[order[i]]}`);
        assert.ok(Math.abs(score - scores[order[i]]) <= 1e-5);
        const corners = [box.xmin, box.ymin, box.xmax, box.ymax];
        boxes[order[i]].forEach((v, k) => assert.ok(Math.abs(v - corners[k]) <= 1e-3, `${v} ${corners[k]}`));
      });
      const [first] = await detector.detect(bytesOf(s), { threshold: found[1].score });
      assert.deepEqual(first, found[0]);
      detector.dispose();
      return;
    }
    const answer = s.answer as readonly number[];
    if (/^(segformer|mobilevit|upernet)/.test(name)) {
      const segmenter = await ImageSegmenter.load(dir, { device: 'cpu' });
      const { classes, segments, width: w, height: h } = await segmenter.segment(bytesOf(s));
      assert.equal(classes.length, w * h);
      const off = answer.filter((id, i) => id !== classes[i]).length;
      assert.ok(off <= 1, `${off} places are of another class`);
      assert.ok(Math.abs(segments.reduce((sum, { share }) => sum + share, 0) - 1) <= 1e-12);
      for (const { id, mask } of segments) classes.forEach((at, i) => assert.equal(mask[i], at === id ? 255 : 0));
      segmenter.dispose();
      return;
    }
    const estimator = await DepthEstimator.load(dir, { device: 'cpu' });
    const { depth, width: w, height: h } = await estimator.estimate(bytesOf(s));
    assert.equal(depth.length, w * h);
    const most = Math.max(...answer.map(Math.abs));
    answer.forEach((v, i) => assert.ok(Math.abs(v - depth[i]) <= 1e-4 * most, `${i}: ${v} ${depth[i]}`));
    estimator.dispose();
  });

test('what models of scenes do not serve is refused by name', async () => {
  const refused: [string, object, RegExp][] = [
    ['detr', { position_embedding_type: 'rotary' }, /position_embedding_type is "rotary"/],
    ['detr', { dilation: true }, /dilation is true/],
    ['detr', { backbone_config: { model_type: 'swin' } }, /backbone_config.model_type is swin/],
    ['detr', { backbone_config: null, backbone: 'resnet26' }, /backbone is "resnet26"; served are resnet18/],
    ['upernet', { backbone_config: { model_type: 'beit' } }, /backbone_config.model_type is beit/],
    ['upernet', { rotary_dim: 1 }, /rotary_dim is 1/],
    ['conditional_detr', { auxiliary_loss: true }, /auxiliary_loss is true/],
    ['deformable_detr', { position_embedding_type: 'rotary' }, /position_embedding_type is "rotary"/],
    ['deformable_detr', { backbone_config: { model_type: 'swin' } }, /backbone_config.model_type is swin/],
    ['rt_detr', { backbone_config: { model_type: 'hgnet_v2' } }, /backbone_config.model_type is "hgnet_v2"/],
    ['rt_detr', { learn_initial_query: true }, /learn_initial_query is true/],
    ['rt_detr', { with_box_refine: false }, /with_box_refine is false/],
    ['rt_detr', { encode_proj_layers: [3] }, /encode_proj_layers \[3\]; the backbone lets out 3 maps/],
    ['rt_detr', { decoder_in_channels: [16, 16, 20] }, /decoder_in_channels is \[16,16,20\]/],
    ['rt_detr_v2', { decoder_method: 'discrete' }, /decoder_method is "discrete"/],
    ['depth_anything', { depth_estimation_type: 'other' }, /depth_estimation_type is "other"/],
    ['depth_anything', { head_in_index: 4 }, /head_in_index is 4; there are 4 maps/],
    ['depth_anything', { backbone_config: { model_type: 'vit' } }, /backbone_config.model_type is "vit"/],
    ['dpt', { is_hybrid: true }, /is_hybrid is true/],
    ['dpt', { neck_ignore_stages: [0, 1] }, /neck_ignore_stages is \[0,1\]/],
    ['glpn', { head_in_index: 0 }, /head_in_index is 0/],
    ['dpt-s', { backbone_config: { model_type: 'dinov2' } }, /backbone_config is {"model_type":"dinov2"}/],
  ];
  for (const [name, more, message] of refused)
    assert.throws(
      () => open(name, more),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
      `${name} ${JSON.stringify(more)}`,
    );
  const wrong: [string, object, RegExp][] = [
    ['deformable_detr-c', { with_box_refine: false }, /two_stage is true and with_box_refine is not/],
    ['deformable_detr', { num_feature_levels: 1 }, /num_feature_levels is 1, and the backbone lets out 2 maps/],
    ['deformable_detr', { d_model: 40 }, /d_model is 40, which does not divide into the 32 groups/],
  ];
  for (const [name, more, message] of wrong)
    assert.throws(
      () => open(name, more),
      (e: Error) => e instanceof FormatError && message.test(e.message),
      `${name} ${JSON.stringify(more)}`,
    );
  const crowd = open('deformable_detr-c') as DetectionModel;
  assert.throws(() => crowd.forward(zeros([1, 3, 8, 8], { device: 'cpu' })), /3 places are fewer than the 6 things/);
  crowd.dispose();
  const detector = await ObjectDetector.load(folder('yolos'), { device: 'cpu' });
  await assert.rejects(detector.detect(bytesOf(seen.yolos), { threshold: 2 }), /threshold is 2/);
  await assert.rejects(detector.detect({ width: 2, height: 2, rgb: new Uint8Array(3) }), ArgumentError);
  await assert.rejects(detector.detect(zeros([4, 20, 30], { device: 'cpu' })), /the model takes \(batch, 3/);
  // One pixel becomes as large as the processor asks for.
  const [one] = await detector.detect({ width: 1, height: 1, rgb: new Uint8Array(3) }, { threshold: 0 });
  assert.ok(Number.isFinite(one.score));
  detector.dispose();
  const things = open('rt_detr') as DetectionModel;
  const of = (tall: number, wide: number): Tensor => zeros([1, 3, tall, wide], { device: 'cpu' });
  assert.throws(() => things.forward(of(64, 48)), /sides are whole multiples of 32/);
  assert.throws(() => (open('rt_detr', { num_queries: 400 }) as DetectionModel).forward(of(32, 32)), /21 places are/);
  things.dispose();
  await assert.rejects(DepthEstimator.load(folder('dpt-s', {})), /a model of kind segmentation, not depth/);
  await assert.rejects(DepthEstimator.load(folder('yolos')), /a model of kind object-detection, not depth/);
  const silent = await DepthEstimator.load(folder('glpn'), { device: 'cpu' });
  await assert.rejects(silent.estimate({ width: 5, height: 5, rgb: new Uint8Array(75) }), /would become 0 x 0/);
  silent.dispose();
});
