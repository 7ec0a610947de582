// Models that are asked about pictures against transformers: masks of what is pointed at, and what processors make of a
// picture and of the answers.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ArgumentError, UnsupportedError } from '../src/base/errors.js';
import { readPicture } from '../src/media/pictures.js';
import { Config } from '../src/models/files/config.js';
import { loadModel, type MaskPrompt, PromptedSegmenter } from '../src/models/index.js';
import type { Asked, Sam } from '../src/models/scenes/sam.js';
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

/** A picture, what a processor makes of it, and what it makes of a model's answers. */
interface Seen {
  readonly file: object;
  readonly picture: string;
  readonly shape: readonly number[];
  readonly pixels: readonly number[];
  readonly answer: readonly { readonly scores: readonly number[]; readonly masks: readonly string[] }[];
}
const seen = JSON.parse(readFileSync(findGolden('families/prompted-seen.json') as string, 'utf8')) as Record<
  string,
  Seen
>;
function seenFolder(name: string): string {
  const dir = folder(name);
  writeFileSync(join(dir, 'preprocessor_config.json'), JSON.stringify(seen[name].file));
  return dir;
}
const bytesOf = (s: Seen): Buffer => Buffer.from(s.picture, 'base64');

test('sam: masks of what is pointed at in a picture', async () => {
  const s = seen.sam;
  const c = new Config(s.file as Record<string, unknown>);
  const processor = new PictureProcessor(c);
  c.refuseUnread();
  const { data, height, width } = processor.of(readPicture(bytesOf(s)));
  assert.deepEqual([1, 3, height, width], s.shape);
  s.pixels.forEach((v, i) => assert.equal(data[37 * i], Math.fround(v), `pixel ${37 * i}`));
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
  const picture = await sam.see(bytesOf(s));
  assert.deepEqual([picture.width, picture.height, picture.given, picture.shown], [53, 37, [32, 32], [21, 30]]);
  const found = await sam.segment(picture, prompts);
  found.forEach((masks, i) => {
    const { scores, masks: wanted } = s.answer[i];
    const order = scores.map((_, k) => k).sort((a, b) => scores[b] - scores[a]);
    assert.equal(masks.length, scores.length);
    masks.forEach(({ score, mask }, k) => {
      assert.ok(Math.abs(score - scores[order[k]]) <= 1e-5);
      const off = [...wanted[order[k]]].filter((on, at) => mask[at] !== 255 * Number(on)).length;
      assert.ok(mask.length === 53 * 37 && off <= 2, `${off} places differ`);
    });
  });
  // A picture that was not looked at before gives the same, and a mask that came before changes the answer.
  const [[again]] = await sam.segment(bytesOf(s), [prompts[0]]);
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

test('what models that are asked about pictures do not serve is refused by name', () => {
  const refused: [string, object, RegExp][] = [
    ['sam', { prompt_encoder_config: { num_point_embeddings: 3 } }, /num_point_embeddings is 3/],
    ['sam', { vision_config: { ...(prompted.sam.config.vision_config as object), shift: 2 } }, /shift is 2/],
    ['sam', { prompt_encoder_config: { image_size: 64 } }, /prompt_encoder_config.image_size is 64/],
  ];
  for (const [name, more, message] of refused)
    assert.throws(
      () => loadModel(folder(name, more), { device: 'cpu' }),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
      JSON.stringify(more),
    );
  const processor = (fields: object): PictureProcessor =>
    new PictureProcessor(new Config({ image_processor_type: 'SamImageProcessor', ...fields }));
  assert.throws(() => processor({ size: 20 }), /size is 20; served is longest_edge/);
  const small = processor({ size: { longest_edge: 20 }, pad_size: { height: 10, width: 20 } });
  assert.throws(() => small.of({ width: 2, height: 2, rgb: new Uint8Array(12) }), /20 x 20 pixels do not fit into/);
});
