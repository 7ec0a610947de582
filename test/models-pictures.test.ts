// Models that read pictures and write text against transformers: logits and greedy answers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError, UnsupportedError } from '../src/base/errors.js';
import type { BlipMatcher } from '../src/models/blip.js';
import type { CausalLM } from '../src/models/decoder.js';
import { loadModel } from '../src/models/load.js';
import type { PictureLanguage } from '../src/models/picture-language.js';
import { noGrad } from '../src/tensor/autograd.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, readers } from './models-support.js';

const open = (name: string, more: object = {}): PictureLanguage =>
  loadModel<PictureLanguage>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), readers),
    { kind: 'image-text-to-text', device: 'cpu' },
  ).model;

for (const name of Object.keys(readers).filter((n) => n !== 'blip-b'))
  test(`pictures ${name}: the logits and the answers of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'pictures');
        const model = open(name);
        const [ids, pixels, want] = [of('ids'), of('pixels'), of('logits')];
        const got = model.forward(ids, pixels);
        assert.deepEqual(got.shape, want.shape);
        assert.ok(got.sub(want).abs().max().item() / want.abs().max().item() <= 1e-4, 'logits');
        const greedy = of('greedy').toArray() as number[][];
        assert.deepEqual(model.answer(ids, pixels, { maxTokens: 8 }), greedy);
        // A row that has ended goes on with its end.
        const [[first]] = greedy;
        const ended = model.answer(ids, pixels, { maxTokens: 3, end: [first] });
        assert.deepEqual(
          ended[0],
          ended[0].map(() => first),
        );
        model.dispose();
      }),
    ));

test('pictures blip-b: how well texts fit pictures, as transformers says', () =>
  scope(() =>
    noGrad(() => {
      const folder = familyFolder('blip-b', (f) => f, readers);
      const { model } = loadModel<BlipMatcher>(folder, { kind: 'image-text-to-text', device: 'cpu' });
      const of = (key: string): Tensor => answerOf('blip-b', key, 'pictures');
      const off = (a: Tensor, b: Tensor): number => a.sub(b).abs().max().item() / b.abs().max().item();
      const [ids, mask, pixels] = [of('ids'), of('mask'), of('pixels')];
      assert.ok(off(model.forward(ids, pixels, mask), of('logits')) <= 1e-4, 'logits');
      const cosines = model.embedImage(pixels).matmul(model.embedText(ids, mask).t());
      assert.ok(off(cosines, of('cosines')) <= 1e-4, 'cosines');
      model.dispose();
      const bare = familyFolder(
        'blip-b',
        (f) => ({
          ...f,
          tensors: Object.fromEntries(Object.entries(f.tensors).filter(([key]) => !key.startsWith('itm_head'))),
        }),
        readers,
      );
      assert.throws(
        () => loadModel(bare, { device: 'cpu' }),
        (e: Error) => e instanceof UnsupportedError && /this is another/.test(e.message),
      );
    }),
  ));

test('pictures that a text does not name, and towers that are not served, are refused by name', () => {
  const [ids, pixels] = [answerOf('llava', 'ids', 'pictures'), answerOf('llava', 'pixels', 'pictures')];
  const model = open('llava');
  const message = /32 tokens for pictures \(number 70\); 1 of 16 each were given/;
  assert.throws(
    () => model.forward(ids, pixels.narrow(0, 0, 1).contiguous()),
    (e: Error) => e instanceof ArgumentError && message.test(e.message),
  );
  const tower = { ...(readers.llava.config.vision_config as object), model_type: 'pixtral' };
  assert.throws(
    () => open('llava', { vision_config: tower }),
    (e: Error) => e instanceof UnsupportedError && /vision_config.model_type is "pixtral"/.test(e.message),
  );
  model.dispose();
});

test('without a word of pictures the folder of such a model is its text', () => {
  const folder = familyFolder('llava', (f) => f, readers);
  const { row, model } = loadModel<CausalLM>(folder, { device: 'cpu' });
  assert.equal(row.kind, 'decoder');
  model.dispose();
});
