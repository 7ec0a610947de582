// Vision models against transformers: vectors of places, and classes or the vector of the whole picture.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError, UnsupportedError } from '../src/base/errors.js';
import { Config } from '../src/models/files/config.js';
import { PictureProcessor } from '../src/models/vision/images.js';
import { loadModel } from '../src/models/load.js';
import type { VisionModel } from '../src/models/vision/vision-model.js';
import { noGrad } from '../src/tensor/autograd.js';
import { zeros } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, seeing } from './models-support.js';

const open = (name: string, more: object = {}): VisionModel =>
  loadModel<VisionModel>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), seeing),
    { kind: 'vision', device: 'cpu' },
  ).model;

for (const name of Object.keys(seeing))
  test(`vision ${name}: the numbers of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor | undefined => answerOf(name, key, 'vision');
        const model = open(name);
        const off = (a: Tensor, b: Tensor): number => {
          assert.deepEqual(a.shape, b.shape);
          return a.sub(b).abs().max().item() / b.abs().max().item();
        };
        const [pixels, hidden] = [of('pixels') as Tensor, of('hidden')];
        if (hidden) assert.ok(off(model.hidden(pixels), hidden) <= 1e-4, 'hidden');
        assert.ok(off(model.forward(pixels), of('logits') as Tensor) <= 1e-4, 'logits');
        assert.equal(model.classifier !== undefined, hidden === undefined);
        model.dispose();
      }),
    ));

test('transformers writes the layers of vision models by other names, too', () =>
  scope(() =>
    noGrad(() => {
      const inside = (name: string): string =>
        name
          .replace(/attention\.attention\.(query|key|value)/, (_, part: string) => `attention.${part[0]}_proj`)
          .replace('attention.output.dense', 'attention.o_proj')
          .replace('intermediate.dense', 'mlp.fc1')
          .replace(/(\d)\.output\.dense/, '$1.mlp.fc2');
      const stacked = (name: string): string => inside(name).replace('encoder.layer.', 'layers.');
      const ways: [string, (name: string) => string][] = [
        ['beit-c', stacked],
        ['dinov2-c', inside],
        [
          'swin-c',
          (name) =>
            inside(name)
              .replace(/attention\.self\.(query|key|value)/, (_, part) => `attention.${part[0]}_proj`)
              .replace('attention.self.relative', 'attention.relative_position_bias.relative'),
        ],
        ['vit_msn-c', (name) => name.replace(/^vit\.encoder\./, 'encoder.')],
      ];
      for (const [name, to] of ways) {
        const renamed = (tensors: object): object =>
          Object.fromEntries(Object.entries(tensors).map(([key, t]) => [to(key), t]));
        const more = name === 'swin-c' ? { path_norm: true, patch_norm: true } : {};
        const folder = familyFolder(
          name,
          (f) => ({ config: { ...f.config, ...more }, tensors: renamed(f.tensors) as typeof f.tensors }),
          seeing,
        );
        const { model } = loadModel<VisionModel>(folder, { kind: 'vision', device: 'cpu' });
        const [pixels, want] = ['pixels', 'logits'].map((key) => answerOf(name, key, 'vision'));
        const off = model.forward(pixels).sub(want).abs().max().item() / want.abs().max().item();
        assert.ok(off <= 1e-4, `${name}: ${off}`);
        model.dispose();
      }
    }),
  ));

test("a masked autoencoder's folder is read without the half that draws", () =>
  scope(() =>
    noGrad(() => {
      const drawing = { 'decoder.mask_token': [[1, 1, 24], 1, 1, 0], 'decoder.decoder_pred.bias': [[75], 2, 1, 0] };
      const folder = familyFolder(
        'vit_mae',
        ({ config, tensors }) => ({
          config: { ...config, mask_ratio: 0.75, decoder_hidden_size: 24, architectures: ['ViTMAEForPreTraining'] },
          tensors: {
            ...Object.fromEntries(Object.entries(tensors).map(([key, t]) => [`vit.${key}`, t])),
            ...(drawing as unknown as typeof tensors),
          },
        }),
        seeing,
      );
      const { model } = loadModel<VisionModel>(folder, { kind: 'vision', device: 'cpu' });
      const [pixels, want] = ['pixels', 'hidden'].map((key) => answerOf('vit_mae', key, 'vision'));
      assert.ok(model.hidden(pixels).sub(want).abs().max().item() <= 1e-4 * want.abs().max().item());
      model.dispose();
    }),
  ));

test('pictures and configs that vision models do not serve are refused by name', () => {
  const pixels = zeros([1, 1, 20, 20], { device: 'cpu' });
  assert.throws(
    () => open('resnet').forward(pixels),
    (e: Error) => e instanceof ArgumentError && /the model takes \(batch, 3, height, width\)/.test(e.message),
  );
  const refused: [string, object, RegExp][] = [
    ['resnet', { layer_type: 'wide' }, /layer_type is "wide"/],
    ['beit-c', { use_shared_relative_position_bias: true }, /use_shared_relative_position_bias are both true/],
    ['convnext', { num_stages: 4 }, /num_stages is 4/],
    ['swinv2', { use_absolute_embeddings: true }, /use_absolute_embeddings is true/],
    ['swin', { rotary_dim: 2 }, /rotary_dim is 2/],
    ['bit', { layer_type: 'wide' }, /layer_type is "wide"/],
    ['bit', { global_padding: 'valid' }, /global_padding is "valid"/],
    ['cvt-c', { cls_token: [false, true, true] }, /cls_token is \[false,true,true\]; served is one of the last/],
    ['cvt-c', { stride_q: [1, 2, 1] }, /stride_q holds 2/],
    ['cvt-c', { qkv_projection_method: ['dw_bn', 'avg', 'dw_bn'] }, /qkv_projection_method holds "avg"/],
    ['pvt-c', { sequence_reduction_ratios: [4, 2] }, /sequence_reduction_ratios ends with 2/],
    ['focalnet', { rotary_dim: 3 }, /rotary_dim is 3/],
    ['swiftformer-c', { mlp_ratios: 3 }, /mlp_ratios is 3/],
    ['swin', { pretrained_window_sizes: [5, 5] }, /pretrained_window_sizes is \[5,5\]/],
  ];
  for (const [name, more, message] of refused)
    assert.throws(
      () => open(name, more),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
  const of = (side: number): Tensor => zeros([1, 3, side, side], { device: 'cpu' });
  assert.throws(() => open('levit').forward(of(32)), /4 places; the model has learnt 4 x 4 of them/);
  assert.throws(() => open('hiera').forward(of(20)), /10 x 10 places; the model has learnt 16 x 16 of them/);
  assert.throws(() => open('hiera', { image_size: [20, 20] }), /10 x 10 places .* do not divide into squares/);
  assert.throws(() => open('hiera', { masked_unit_attention: [true] }), /masked_unit_attention is \[true\], not/);
  assert.throws(() => open('pvt-c').forward(of(20)), /5 x 5 places; the model has learnt another number/);
  assert.throws(() => open('mobilevitv2-c').forward(of(32)), /a map of 1 x 1 places holds no patch of 2 x 2/);
  assert.throws(() => open('levit', { down_ops: [['Subsample', 8]] }), /down_ops holds \["Subsample",8\], not/);
  const small = zeros([1, 3, 6, 6], { device: 'cpu' });
  assert.throws(() => open('swin').forward(small), /3 x 3 places are fewer than window_size 5/);
});

test("ConvNeXt's processor keeps the middle of small pictures and all of large ones", () => {
  const picture = { width: 30, height: 20, rgb: new Uint8Array(1800).map((_, i) => Math.floor(i / 3) % 30) };
  const made = (size: number): { data: Float32Array; width: number; height: number } =>
    new PictureProcessor(
      new Config({
        ...{ image_processor_type: 'ConvNextImageProcessor', size: { shortest_edge: size }, crop_pct: 0.8 },
        ...{ do_normalize: false, do_rescale: false, resample: 0 },
      }),
    ).of(picture);
  const small = made(16);
  assert.deepEqual([small.width, small.height], [16, 16]);
  assert.deepEqual([...small.data.subarray(0, 3), small.data[15]], [7, 8, 9, 22]);
  assert.deepEqual([made(384).width, made(384).height, made(384).data[383]], [384, 384, 29]);
});
