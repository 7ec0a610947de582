// Models that read pictures and write text against transformers: logits and greedy answers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError, FormatError, UnsupportedError } from '../src/base/errors.js';
import type { BlipMatcher } from '../src/models/pictures/blip.js';
import type { CausalLM } from '../src/models/decoder/decoder.js';
import { loadModel } from '../src/models/load.js';
import type { PictureLanguage } from '../src/models/pictures/picture-language.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor, zeros } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, readers } from './models-support.js';

const open = (name: string, more: object = {}): PictureLanguage =>
  loadModel<PictureLanguage>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), readers),
    { kind: 'image-text-to-text', device: 'cpu' },
  ).model;

/** A folder in another form gives the logits of the one it was made from. */
function answersAlike(folder: string, of: (key: string) => Tensor): void {
  const { model } = loadModel<PictureLanguage>(folder, { kind: 'image-text-to-text', device: 'cpu' });
  const got = model.forward(of('ids'), of('pixels'), of('places').toArray() as number[][]);
  assert.ok(got.sub(of('logits')).abs().max().item() / of('logits').abs().max().item() <= 1e-4);
  model.dispose();
}

for (const name of Object.keys(readers).filter((n) => n !== 'blip-b'))
  test(`pictures ${name}: the logits and the answers of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'pictures');
        const model = open(name);
        const [ids, pixels, want] = [of('ids'), of('pixels'), of('logits')];
        const places = (of('places')?.toArray() ?? []) as number[][];
        const got = model.forward(ids, pixels, places);
        assert.deepEqual(got.shape, want.shape);
        assert.ok(got.sub(want).abs().max().item() / want.abs().max().item() <= 1e-4, 'logits');
        if (name !== 'blip') {
          const wanted = (ids.toArray() as number[][]).flat().filter((id) => id === model.imageToken).length;
          const each = places.length > 0 ? places : Array.from({ length: pixels.shape[0] }, () => []);
          assert.equal(
            each.reduce((n, place) => n + model.eye.tokensOf(place), 0),
            wanted,
          );
        }
        const greedy = of('greedy').toArray() as number[][];
        assert.deepEqual(model.answer(ids, pixels, { maxTokens: 8, places }), greedy);
        // A row that has ended goes on with its end.
        const [[first]] = greedy;
        const ended = model.answer(ids, pixels, { maxTokens: 3, end: [first], places });
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
  const message = /32 tokens for pictures \(number 70\); 16 were given/;
  assert.throws(
    () => model.forward(ids, pixels.narrow(0, 0, 1).contiguous()),
    (e: Error) => e instanceof ArgumentError && message.test(e.message),
  );
  const tower = { ...(readers.llava.config.vision_config as object), model_type: 'vit' };
  assert.throws(
    () => open('llava', { vision_config: tower }),
    (e: Error) => e instanceof UnsupportedError && /vision_config.model_type is "vit"/.test(e.message),
  );
  model.dispose();
});

test('without a word of pictures the folder of such a model is its text', () => {
  const folder = familyFolder('llava', (f) => f, readers);
  const { row, model } = loadModel<CausalLM>(folder, { device: 'cpu' });
  assert.equal(row.kind, 'decoder');
  model.dispose();
});

test("Qwen2-VL's first folders keep the text's fields beside the pictures', and other names", () =>
  scope(() =>
    noGrad(() => {
      const of = (key: string): Tensor => answerOf('qwen2_vl', key, 'pictures');
      const folder = familyFolder(
        'qwen2_vl',
        (f) => {
          const { text_config: text, vision_config: vision, ...rest } = f.config as Record<string, any>;
          const { rope_parameters: rope, model_type: _, ...plain } = text;
          const { rope_parameters: __, model_type: ___, ...tower } = vision;
          const config = {
            ...{ ...plain, ...rest, rope_theta: rope.rope_theta },
            rope_scaling: { type: 'mrope', mrope_section: rope.mrope_section },
            vision_config: { ...tower, in_chans: 3, spatial_patch_size: tower.patch_size },
          };
          const old = (name: string): string => name.replace('model.visual.', 'visual.').replace('language_model.', '');
          return { config, tensors: Object.fromEntries(Object.entries(f.tensors).map(([k, v]) => [old(k), v])) };
        },
        readers,
      );
      answersAlike(folder, of);
    }),
  ));

test('what Qwen-VL does not see is refused by name', () => {
  const model = open('qwen2_5_vl');
  const of = (key: string): Tensor => answerOf('qwen2_5_vl', key, 'pictures');
  const places = of('places').toArray() as number[][];
  const refused: [number[][], RegExp][] = [
    [[[1, 5, 12], ...places.slice(1)], /a grid is \[1, 5, 12\]; it must be frames, rows and columns/],
    [places.slice(1), /patches have shape \[128, 24\]; by their grids they are \(68, 24\)/],
  ];
  for (const [grids, message] of refused)
    assert.throws(
      () => model.forward(of('ids'), of('pixels'), grids),
      (e: Error) => e instanceof ArgumentError && message.test(e.message),
    );
  model.dispose();
  const { text_config: text, vision_config: tower } = readers.qwen2_5_vl.config as Record<string, object>;
  const changed: [object, RegExp][] = [
    [{ vision_config: { ...tower, rotary_dim: 1 } }, /vision_config.rotary_dim is 1/],
    [{ vision_config: { ...tower, out_hidden_size: 16 } }, /tokens of 16 numbers; those of the text have 32/],
    [{ text_config: { ...text, rope_parameters: { rope_theta: 10, mrope_section: [2, 2, 2] } } }, /mrope_section is/],
  ];
  for (const [more, message] of changed) assert.throws(() => open('qwen2_5_vl', more), message);
});

test("Pixtral's first folders keep other names, and fields that mean nothing", () =>
  scope(() =>
    noGrad(() => {
      const of = (key: string): Tensor => answerOf('llava-c', key, 'pictures');
      const folder = familyFolder(
        'llava-c',
        (f) => {
          const { text_config: text, vision_config: vision, ...rest } = f.config as Record<string, any>;
          const { rope_parameters: rope, ...tower } = vision;
          const config = {
            ...{ ...rest, ignore_index: -100, image_seq_length: 1 },
            text_config: { ...text, is_composition: true },
            vision_config: { ...tower, is_composition: true, head_dim: 12, rope_theta: rope.rope_theta },
          };
          const old = (name: string): string =>
            name.replace('model.language_model.', 'language_model.model.').replace(/^model\.(vision|multi)/, '$1');
          return { config, tensors: Object.fromEntries(Object.entries(f.tensors).map(([k, v]) => [old(k), v])) };
        },
        readers,
      );
      answersAlike(folder, of);
    }),
  ));

test('what Pixtral does not see is refused by name', () => {
  const model = open('mistral3');
  const of = (key: string): Tensor => answerOf('mistral3', key, 'pictures');
  const places = of('places').toArray() as number[][];
  const refused: [number[][], RegExp][] = [
    [[[1, 8], ...places.slice(1)], /a grid is \[1, 8\]; it must be rows and columns of patches, both a multiple of 2/],
    [[[1, 2, 4], ...places.slice(1)], /a grid is \[1, 2, 4\]; it must be rows and columns/],
    [places.slice(1), /patches have shape \[32, 48\]; by their grids they are \(24, 48\)/],
    [[], /by their grids they are \(0, 48\)/],
  ];
  for (const [grids, message] of refused)
    assert.throws(
      () => model.forward(of('ids'), of('pixels'), grids),
      (e: Error) => e instanceof ArgumentError && message.test(e.message),
    );
  model.dispose();
  const tower = readers.mistral3.config.vision_config as object;
  const changed: [string, object, RegExp][] = [
    ['mistral3', { vision_config: { ...tower, rotary_dim: 1 } }, /vision_config.rotary_dim is 1/],
    ['mistral3', { vision_config: { ...tower, head_dim: 8 } }, /vision_config.head_dim is 8; 24 numbers of 2 heads/],
    ['mistral3', { vision_config: { ...tower, model_type: 'vit' } }, /vision_config.model_type is "vit"/],
    ['mistral3', { vision_config: { ...tower, patch_size: [4, 2] } }, /patch_size is \[4, 2\]; squares are served/],
    ['mistral3', { vision_config: { ...tower, rope_parameters: { rope_type: 'yarn' } } }, /rope_type is "yarn"/],
    ['mistral3', { vision_feature_layer: [-1, -2] }, /vision_feature_layer is \[-1, -2\]; one layer is served/],
    ['mistral3', { vision_feature_layer: 4 }, /vision_feature_layer 4 is none of 3 layers/],
    ['llava-c', { vision_feature_select_strategy: 'default' }, /vision_feature_select_strategy is "default"/],
    ['llava-c', { vision_feature_select_strategy: null }, /vision_feature_select_strategy is "default"/],
  ];
  for (const [name, more, message] of changed)
    assert.throws(
      () => open(name, more),
      (e: Error) => (e instanceof UnsupportedError || e instanceof FormatError) && message.test(e.message),
    );
});

test('what InternVL does not see is refused by name', () => {
  const model = open('internvl');
  assert.throws(
    () => model.eye.forward(zeros([1, 3, 24, 24], { device: 'cpu' })),
    (e: Error) => e instanceof ArgumentError && /the model takes \(batch, 3, 16, 16\)/.test(e.message),
  );
  model.dispose();
  const tower = readers.internvl.config.vision_config as object;
  const changed: [object, RegExp][] = [
    [{ vision_config: { ...tower, rotary_dim: 1 } }, /vision_config.rotary_dim is 1/],
    [{ vision_config: { ...tower, norm_type: 'none' } }, /vision_config.norm_type is "none"/],
    [{ vision_config: { ...tower, model_type: 'vit' } }, /vision_config.model_type is "vit"/],
    [{ vision_config: { ...tower, num_attention_heads: 5 } }, /24 numbers do not divide by 5 heads/],
    [{ vision_config: { ...tower, image_size: [32, 8], use_absolute_position_embeddings: false } }, /8 x 2 patches/],
    [{ vision_feature_select_strategy: 'full' }, /vision_feature_select_strategy is "full"/],
    [{ vision_feature_layer: [-1, -2] }, /vision_feature_layer is \[-1, -2\]; a number is served/],
    [{ vision_feature_layer: -9 }, /vision_feature_layer -9 is none of 3 layers/],
    [{ downsample_ratio: 0.4 }, /downsample_ratio is 0.4; one over a whole number/],
    [{ downsample_ratio: 1 / 3 }, /4 x 4 patches do not divide into squares of 3 x 3/],
  ];
  for (const [more, message] of changed)
    assert.throws(
      () => open('internvl', more),
      (e: Error) => (e instanceof UnsupportedError || e instanceof FormatError) && message.test(e.message),
    );
});

test('answers about the pictures that layers of Llama 3.2 look at leave no memory behind', () => {
  const model = open('mllama');
  const of = (key: string): Tensor => answerOf('mllama', key, 'pictures');
  const [ids, pixels, places] = [of('ids'), of('pixels'), of('places').toArray() as number[][]];
  const { device } = model.text;
  model.answer(ids, pixels, { maxTokens: 3, places });
  const before = device.memory().liveBytes;
  for (let i = 0; i < 3; i++) model.answer(ids, pixels, { maxTokens: 3, places });
  assert.ok(device.memory().liveBytes <= before);
  model.dispose();
});

test('what Llama 3.2 does not see is refused by name', () => {
  const model = open('mllama');
  const of = (key: string): Tensor => answerOf('mllama', key, 'pictures');
  const [ids, pixels, places] = [of('ids'), of('pixels'), of('places').toArray() as number[][]];
  const other = tensor(Int32Array.from((ids.toArray() as number[][]).flat().with(4, 80)), { shape: ids.shape });
  const refused: [Tensor, number[][], RegExp][] = [
    [ids, [[9, 1], ...places.slice(1)], /one is \[9, 1\]; it must be the number of a shape, from 1 to 8/],
    [ids, [[2, 3], ...places.slice(1)], /one is \[2, 3\]; it must be/],
    [ids, places.slice(1), /tiles have shape \[16, 3, 16, 16\]; those of 3 pictures are \(12, 3, 16, 16\)/],
    [other, places, /the text has 5 tokens for pictures \(number 80\); 4 were given/],
    [other, [...places, [1, 1]], /texts have 3, 2 pictures; each must have as many/],
  ];
  for (const [tokens, pictures, message] of refused)
    assert.throws(
      () => {
        const tiles = pictures.length > 4 ? pixels.cat([pixels.narrow(0, 0, 4)], 0) : pixels;
        model.forward(tokens, tiles, pictures);
      },
      (e: Error) => e instanceof ArgumentError && message.test(e.message),
    );
  model.dispose();
  const { text_config: text, vision_config: tower } = readers.mllama.config as Record<string, object>;
  const changed: [object, RegExp][] = [
    [{ vision_config: { ...tower, rotary_dim: 1 } }, /vision_config.rotary_dim is 1/],
    [{ vision_config: { ...tower, vision_output_dim: 48 } }, /vision_output_dim is 48; 3 layers of 24 numbers/],
    [{ vision_config: { ...tower, intermediate_layers_indices: [0, 3] } }, /\[0, 3\] are none of 3 layers/],
    [{ vision_config: { ...tower, supported_aspect_ratios: [[1, 1]] } }, /supported_aspect_ratios is/],
    [{ vision_config: { ...tower, model_type: 'vit' } }, /vision_config.model_type is "vit"/],
    [{ image_token_index: 70 }, /image_token_index is none of the 8 tokens behind the vocabulary of 80/],
    [{ text_config: { ...text, cross_attention_layers: [1, 3, 9] } }, /cross_attention_layers \[1, 3, 9\] of 4 layers/],
  ];
  for (const [more, message] of changed) assert.throws(() => open('mllama', more), message);
});

test('Idefics 3 sees tiles of other sizes, and LLaVA-OneVision a picture without its tiles', () =>
  scope(() =>
    noGrad(() => {
      const off = (a: Tensor, b: Tensor): number => a.sub(b).abs().max().item() / b.abs().max().item();
      const small = open('idefics3');
      const got = small.eye.forward(answerOf('idefics3', 'small', 'pictures'));
      assert.ok(off(got.tokens, answerOf('idefics3', 'seen', 'pictures')) <= 1e-4);
      assert.throws(() => small.eye.forward(zeros([1, 3, 16, 16], { device: 'cpu' })), /no square that divides/);
      const { eye } = open('llava_onevision');
      const [pixels, places] = ['pixels', 'places'].map((key) => answerOf('llava_onevision', key, 'pictures'));
      const [first] = places.toArray() as number[][];
      const tiles = pixels.narrow(0, 0, first[2]).contiguous();
      const all = eye.forward(tiles, [first]).tokens;
      const whole = eye.forward(pixels.narrow(0, 0, 1).contiguous(), [[...first.slice(0, 2), 1]]).tokens;
      const base = whole.shape[0] - 1;
      assert.ok(off(whole.narrow(0, 0, base), all.narrow(0, 0, base)) <= 1e-5);
      assert.deepEqual(
        whole.narrow(0, base, 1).squeeze(0).toArray(),
        all
          .narrow(0, all.shape[0] - 1, 1)
          .squeeze(0)
          .toArray(),
      );
      assert.throws(() => eye.forward(tiles, [[...first.slice(0, 2), 2]]), /5 tiles, and \[\[30, 19, 2\]\]/);
    }),
  ));
