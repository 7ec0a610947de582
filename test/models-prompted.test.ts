// Models that are asked about pictures against transformers: masks of what is pointed at, things and pixels that words
// name, and what processors make of a picture and of the answers.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ArgumentError, UnsupportedError } from '../src/base/errors.js';
import { readPicture } from '../src/media/pictures.js';
import { Config } from '../src/models/files/config.js';
import {
  ImageTextModel,
  loadModel,
  type MaskPrompt,
  PromptedSegmenter,
  ZeroShotDetector,
  ZeroShotSegmenter,
} from '../src/models/index.js';
import type { ClipSegmenter } from '../src/models/scenes/clip-seg.js';
import type { OwlDetector } from '../src/models/scenes/owl.js';
import type { Asked, Sam } from '../src/models/scenes/sam.js';
import type { ImageText } from '../src/models/vision/clip.js';
import { PictureProcessor } from '../src/models/vision/images.js';
import { findGolden } from '../src/parity/golden.js';
import { enableGrad, noGrad } from '../src/tensor/autograd.js';
import { zeros } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, prompted } from './models-support.js';

const named = (type: string): string[] =>
  Object.keys(prompted).filter((name) => prompted[name].config.model_type === type);
const folder = (name: string, more: object = {}): string =>
  familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), prompted);
function near(a: Tensor, b: Tensor, what: string): void {
  assert.deepEqual(a.shape, b.shape, what);
  const off = a.sub(b).abs().max().item() / b.abs().max().item();
  assert.ok(off <= 1e-4, `${what} is off by ${off}`);
}

// As the script that made the answers asks.
const POINTS: Asked['points'][] = [
  [
    [3, 20.5, 1],
    [17, 9, 0],
  ],
  [
    [30, 1, 1],
    [12.5, 12.5, 1],
  ],
];
const BOXES = [
  [4, 2, 20, 30],
  [0, 11, 31, 13.5],
];
const ASKED: Readonly<Record<string, readonly Asked[]>> = {
  points: POINTS.map((points) => ({ points })),
  boxes: BOXES.map((box) => ({ points: [], box })),
  both: POINTS.map((points, i) => ({ points, box: BOXES[i] })),
  nothing: [{ points: [] }],
  rough: [{ points: POINTS[0] }],
};

for (const name of named('sam')) {
  test(`${name}: the masks of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'prompted');
        const { model } = loadModel<Sam>(folder(name), { kind: 'mask-generation', device: 'cpu' });
        const map = model.see(of('pixels'));
        for (const [key, asked] of Object.entries(ASKED)) {
          const rough = key === 'rough' ? { rough: of('rough'), several: false } : {};
          const { masks, scores } = model.forward(map, asked, rough);
          near(masks, of(`${key}/masks`), `masks by ${key}`);
          near(scores, of(`${key}/scores`), `scores by ${key}`);
        }
        model.dispose();
      }),
    ));
  test(`${name}: gradients of all parameters`, () =>
    scope(() => {
      const { model } = loadModel<Sam>(folder(name), { kind: 'mask-generation', device: 'cpu' });
      model.requireGrad();
      const grads = enableGrad(() => {
        const map = model.see(answerOf(name, 'pixels', 'prompted'));
        const rough = answerOf(name, 'rough', 'prompted');
        const of = (asked: readonly Asked[], o: object = {}): Tensor => {
          const { masks, scores } = model.forward(map, asked, o);
          return masks.sqr().sum().add(scores.sqr().sum());
        };
        const all = [of(ASKED.points), of(ASKED.boxes), of(ASKED.points, { rough, several: false })];
        return all[0].add(all[1]).add(all[2]);
      }).backward();
      const without = [...model.namedParameters()].filter(([, p]) => !grads.get(p)).map(([key]) => key);
      assert.deepEqual(without, []);
      model.dispose();
    }));
}

for (const name of [...named('owlvit'), ...named('owlv2')])
  test(`${name}: things that words name, as transformers finds them`, () =>
    scope(() => {
      const of = (key: string): Tensor => answerOf(name, key, 'prompted');
      const { model } = loadModel<OwlDetector>(folder(name), { kind: 'zero-shot-detection', device: 'cpu' });
      model.requireGrad();
      const out = enableGrad(() => model.forward(of('pixels'), model.clip.embedText(of('ids'), of('mask'))));
      near(out.logits, of('logits'), 'logits');
      near(out.boxes, of('boxes'), 'boxes');
      assert.equal(out.things !== undefined, name === 'owlv2');
      if (out.things) near(out.things, of('things'), 'things');
      const all = [out.logits, out.boxes, ...(out.things ? [out.things] : [])].map((t) => t.sqr().sum());
      const grads = enableGrad(() => all.reduce((a, b) => a.add(b))).backward();
      // A picture's one vector, and how far texts are told apart from it, are of the model that it was made of.
      const without = [...model.namedParameters()].filter(([, p]) => !grads.get(p)).map(([key]) => key);
      assert.deepEqual(without.sort(), ['clip.image_projection.weight', 'clip.logit_scale']);
      model.dispose();
    }));

for (const name of named('clipseg'))
  test(`${name}: pixels that words name, as transformers finds them`, () =>
    scope(() => {
      const of = (key: string): Tensor => answerOf(name, key, 'prompted');
      const { model } = loadModel<ClipSegmenter>(folder(name), { kind: 'zero-shot-segmentation', device: 'cpu' });
      model.requireGrad();
      const { clip } = model;
      const logits = enableGrad(() => model.forward(of('pixels'), clip.textVectors(of('ids'), of('mask'))));
      near(logits, of('logits'), 'logits by words');
      near(
        noGrad(() => model.forward(of('pixels'), clip.imageVectors(of('other')))),
        of('like'),
        'logits by a picture',
      );
      const grads = enableGrad(() => logits.sqr().sum()).backward();
      const without = [...model.namedParameters()].filter(([, p]) => !grads.get(p)).map(([key]) => key);
      // What makes one vector of a picture, layers behind the last that is read, and how far texts are told apart.
      const idle = /^clip\.(image_projection|logit_scale|vision\.(post_norm|blocks\.3))/;
      assert.deepEqual(
        without.filter(
          (key) => !(name === 'clipseg-b' ? idle : /^clip\.(image_projection|logit_scale|vision\.post_norm)/).test(key),
        ),
        [],
      );
      model.dispose();
    }));

test('siglip2: texts and pictures of any size, as transformers compares them', () =>
  scope(() => {
    const of = (key: string): Tensor => answerOf('siglip2', key, 'prompted');
    const { model } = loadModel<ImageText>(folder('siglip2'), { kind: 'image-text', device: 'cpu' });
    model.requireGrad();
    const all = ['wide', 'tall', 'learnt'].map((name) =>
      enableGrad(() => {
        const texts = model.embedText(of('ids'));
        near(texts, of('texts'), 'texts');
        const logits = model.logits(model.embedImage(of(`${name}/pixels`)), texts);
        near(logits, of(`${name}/logits`), name);
        return logits.sqr().sum();
      }),
    );
    const grads = enableGrad(() => all.reduce((a, b) => a.add(b))).backward();
    const without = [...model.namedParameters()].filter(([, p]) => !grads.get(p)).map(([key]) => key);
    assert.deepEqual(without, []);
    model.dispose();
  }));

const LIKENED = {
  metaclip_2: 'texts end where their end is, though other numbers are larger',
  chinese_clip: 'BERT reads',
};
for (const [name, how] of Object.entries(LIKENED))
  test(`${name}: texts and pictures as transformers compares them; ${how}`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'prompted');
        const { model } = loadModel<ImageText>(folder(name), { kind: 'image-text', device: 'cpu' });
        const logits = model.logits(model.embedImage(of('pixels')), model.embedText(of('ids'), of('mask')));
        near(logits, of('logits'), 'logits');
        assert.throws(() => loadModel(folder(name), { kind: 'vision', device: 'cpu' }), /of kind image-text, not/);
        model.dispose();
      }),
    ));

/** A picture, what a processor makes of it, and what it makes of a model's answers. */
interface Seen {
  readonly file: object;
  readonly picture: string;
  readonly shape: readonly number[];
  readonly pixels: readonly number[];
  /** Words of a vocabulary, by number. */
  readonly words: readonly string[];
  readonly texts: readonly string[];
  readonly answer: unknown;
}
const seen = JSON.parse(readFileSync(findGolden('families/prompted-seen.json') as string, 'utf8')) as Record<
  string,
  Seen
>;
function seenFolder(name: string): string {
  const dir = folder(name);
  const { file, words } = seen[name];
  writeFileSync(join(dir, 'preprocessor_config.json'), JSON.stringify(file));
  if (words) writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(wordTokenizer(words)));
  return dir;
}
/** Whole words between a beginning and an end, the last two of the vocabulary. */
function wordTokenizer(words: readonly string[]): object {
  const [begin, end] = [words.length - 2, words.length - 1];
  return {
    model: { type: 'WordLevel', vocab: Object.fromEntries(words.map((w, i) => [w, i])), unk_token: words[0] },
    added_tokens: [0, begin, end].map((id) => ({ id, content: words[id], special: true, normalized: false })),
    pre_tokenizer: { type: 'WhitespaceSplit' },
    post_processor: { type: 'BertProcessing', sep: [words[end], end], cls: [words[begin], begin] },
  };
}
/** What the processor of a folder makes of its picture, as transformers does within so much. */
function sees(name: string, bound = 0): Buffer {
  const s = seen[name];
  const c = new Config(s.file as Record<string, unknown>);
  const processor = new PictureProcessor(c);
  c.refuseUnread();
  const bytes = Buffer.from(s.picture, 'base64');
  const { data, height, width } = processor.of(readPicture(bytes));
  assert.deepEqual([1, 3, height, width], s.shape);
  s.pixels.forEach((v, i) => assert.ok(Math.abs(data[37 * i] - Math.fround(v)) <= bound, `pixel ${37 * i}`));
  return bytes;
}
test('sam: masks of what is pointed at in a picture', async () => {
  const bytes = sees('sam');
  const answer = seen.sam.answer as { scores: number[]; masks: string[] }[];
  const sam = await PromptedSegmenter.load(seenFolder('sam'), { device: 'cpu' });
  const prompts: MaskPrompt[] = [
    {
      points: [
        { x: 11, y: 30 },
        { x: 40, y: 8, on: false },
      ],
    },
    { box: { xmin: 5, ymin: 3.5, xmax: 33, ymax: 29 } },
  ];
  const picture = await sam.see(bytes);
  assert.deepEqual([picture.width, picture.height, picture.given, picture.shown], [53, 37, [32, 32], [21, 30]]);
  const found = await sam.segment(picture, prompts);
  found.forEach((masks, i) => {
    const { scores, masks: wanted } = answer[i];
    const order = scores.map((_, k) => k).sort((a, b) => scores[b] - scores[a]);
    assert.equal(masks.length, scores.length);
    masks.forEach(({ score, mask }, k) => {
      assert.ok(Math.abs(score - scores[order[k]]) <= 1e-5);
      const off = [...wanted[order[k]]].filter((on, at) => mask[at] !== 255 * Number(on)).length;
      assert.ok(mask.length === 53 * 37 && off <= 2, `${off} places differ`);
    });
  });
  // A picture that was not looked at before gives the same, and a mask that came before changes the answer.
  const [[again]] = await sam.segment(bytes, [prompts[0]]);
  assert.deepEqual(again, found[0][0]);
  const [[better, ...rest]] = await sam.segment(picture, [{ ...prompts[0], rough: again.rough }], { several: false });
  assert.ok(rest.length === 0 && better.score !== again.score);
  await assert.rejects(sam.segment(picture, []), /the list of prompts is empty/);
  await assert.rejects(sam.segment(picture, [{ rough: new Float32Array(4) }]), /rough has 4 numbers; .* 32 x 32/);
  await assert.rejects(sam.segment(picture, [{ points: [{ x: Number.NaN, y: 2 }] }]), /x is NaN, not a number/);
  await assert.rejects(sam.see(zeros([1, 3, 16, 32], { device: 'cpu' })), /the model takes \(batch, 3, 32, 32\)/);
  await assert.rejects(sam.see(zeros([2, 3, 32, 32], { device: 'cpu' })), ArgumentError);
  picture.dispose();
  sam.dispose();
});

for (const name of ['owlvit', 'owlv2'])
  test(`${name}: things in a picture that words name`, async () => {
    const bytes = sees(name, name === 'owlv2' ? 1e-6 : 0);
    const { scores, labels, boxes } = seen[name].answer as { scores: number[]; labels: number[]; boxes: number[][] };
    const detector = await ZeroShotDetector.load(seenFolder(name), { device: 'cpu' });
    const { texts } = seen[name];
    const found = await detector.detect(bytes, texts, { threshold: 0 });
    const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]);
    assert.equal(found.length, scores.length);
    found.forEach(({ label, score, box }, i) => {
      assert.equal(label, texts[labels[order[i]]]);
      assert.ok(Math.abs(score - scores[order[i]]) <= 1e-5);
      const corners = [box.xmin, box.ymin, box.xmax, box.ymax];
      boxes[order[i]].forEach((v, k) => assert.ok(Math.abs(v - corners[k]) <= 1e-3, `${v} ${corners[k]}`));
    });
    assert.deepEqual(await detector.detect(bytes, texts, { threshold: found[1].score }), found.slice(0, 1));
    await assert.rejects(detector.detect(bytes, []), /detect: texts: the list is empty/);
    await assert.rejects(detector.detect(bytes, texts, { threshold: 2 }), /threshold is 2/);
    await assert.rejects(detector.detect(zeros([3, 16, 32], { device: 'cpu' }), texts), /takes \(batch, 3, 32, 32\)/);
    detector.dispose();
  });

test('clipseg: pixels of a picture that words name', async () => {
  const bytes = sees('clipseg');
  const answer = seen.clipseg.answer as number[][];
  const segmenter = await ZeroShotSegmenter.load(seenFolder('clipseg'), { device: 'cpu' });
  const { texts } = seen.clipseg;
  const found = await segmenter.segment(bytes, texts, { threshold: 0.4 });
  assert.equal(found.length, texts.length);
  found.forEach(({ shares, mask }, k) => {
    assert.equal(shares.length, 53 * 37);
    answer[k].forEach((v, i) => assert.ok(Math.abs(v - shares[37 * i]) <= 1e-5, `${v} ${shares[37 * i]}`));
    shares.forEach((v, i) => assert.equal(mask[i], v > 0.4 ? 255 : 0));
  });
  // A picture may be asked for, too, beside words.
  const [word, like] = await segmenter.segment(bytes, [texts[1], { image: bytes }]);
  assert.deepEqual(word.shares, found[1].shares);
  assert.notDeepEqual(like.shares, word.shares);
  await assert.rejects(segmenter.segment(bytes, []), /the list is empty/);
  await assert.rejects(segmenter.segment(bytes, texts, { threshold: -1 }), /threshold is -1/);
  segmenter.dispose();
});

test('siglip2: how well words fit a picture', async () => {
  const bytes = sees('siglip2');
  const answer = seen.siglip2.answer as number[];
  const model = await ImageTextModel.load(seenFolder('siglip2'), { device: 'cpu' });
  // Letters become small before they are looked up.
  const texts = seen.siglip2.texts.map((text) => text.toUpperCase());
  const small = { width: 9, height: 30, rgb: new Uint8Array(810).fill(90) };
  const [first, second] = await model.scores([bytes, small], texts);
  answer.forEach((v, i) => assert.ok(Math.abs(v - first[i]) <= 1e-5, `${v} ${first[i]}`));
  assert.notDeepEqual(first, second);
  model.dispose();
});

test('what models that are asked about pictures do not serve is refused by name', () => {
  const refused: [string, object, RegExp][] = [
    ['sam', { prompt_encoder_config: { num_point_embeddings: 3 } }, /num_point_embeddings is 3/],
    ['sam', { vision_config: { ...(prompted.sam.config.vision_config as object), rotary_dim: 2 } }, /rotary_dim is 2/],
    ['sam', { prompt_encoder_config: { image_size: 64 } }, /prompt_encoder_config.image_size is 64/],
    ['clipseg', { extract_layers: [1, 4] }, /extract_layers is \[1,4\] .*; served are layers from 0 to 3/],
    ['clipseg', { conditional_layer: 2 }, /conditional_layer 2; served are/],
    ['siglip2', { vision_config: { num_patches: 20 } }, /vision_config.num_patches is 20; served are squares/],
    ['owlvit', { rotary_dim: 2 }, /rotary_dim is 2/],
  ];
  for (const [name, more, message] of refused)
    assert.throws(
      () => loadModel(folder(name, more), { device: 'cpu' }),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
      JSON.stringify(more),
    );
  // Patches that are no squares, with tensors to match.
  const eye = 'clip.vision_model.embeddings';
  const oblong = familyFolder(
    'clipseg',
    ({ config, tensors }) => ({
      config: { ...config, vision_config: { ...(config.vision_config as object), patch_size: [8, 4] } },
      tensors: {
        ...tensors,
        [`${eye}.patch_embedding.weight`]: [[32, 3, 8, 4], 1, 1, 0],
        [`${eye}.position_embedding.weight`]: [[33, 32], 1, 1, 0],
      },
    }),
    prompted,
  );
  assert.throws(() => loadModel(oblong, { device: 'cpu' }), /vision_config.patch_size is \[8,4\]; served are squares/);
  const processor = (fields: object): PictureProcessor =>
    new PictureProcessor(new Config({ image_processor_type: 'SamImageProcessor', ...fields }));
  const owl = (fields: object): PictureProcessor =>
    new PictureProcessor(new Config({ image_processor_type: 'Owlv2ImageProcessor', ...fields }));
  assert.throws(() => owl({ do_rescale: false }), /do_rescale is false/);
  assert.throws(() => owl({ size: { shortest_edge: 9 } }), /size is .*; served are height and width/);
  assert.throws(() => processor({ size: 20 }), /size is 20; served is longest_edge/);
  const small = processor({ size: { longest_edge: 20 }, pad_size: { height: 10, width: 20 } });
  assert.throws(() => small.of({ width: 2, height: 2, rgb: new Uint8Array(12) }), /20 x 20 pixels do not fit into/);
});
