// Models of sounds against transformers: letters of moments, classes of the whole, vectors.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError, UnsupportedError } from '../src/base/errors.js';
import { loadModel } from '../src/models/load.js';
import type { SpectrogramTransformer } from '../src/models/spectrogram-transformer.js';
import type { SoundEncoder } from '../src/models/wav2vec2.js';
import { noGrad } from '../src/tensor/autograd.js';
import { zeros } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, hearing } from './models-support.js';

const open = (name: string, more: object = {}): SoundEncoder =>
  loadModel<SoundEncoder>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), hearing),
    { kind: 'sound', device: 'cpu' },
  ).model;

for (const name of Object.keys(hearing).filter((n) => !n.startsWith('ast')))
  test(`sound ${name}: the numbers of transformers, alone and padded behind`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'sound');
        const model = open(name);
        const off = (a: Tensor, b: Tensor): number => {
          assert.deepEqual(a.shape, b.shape);
          return a.sub(b).abs().max().item() / b.abs().max().item();
        };
        const samples = of('samples');
        assert.ok(off(model.forward(samples.narrow(0, 0, 1).contiguous()), of('plain')) <= 1e-4, 'plain');
        const [got, want] = [model.forward(samples, of('mask')), of('masked')];
        // Moments of padding mean nothing.
        const real = (x: Tensor): Tensor =>
          x.rank === 3 ? x.narrow(0, 1, 1).narrow(1, 0, model.moments(600)).contiguous() : x;
        assert.ok(off(real(got), real(want)) <= 1e-4, 'padded');
        model.dispose();
      }),
    ));

for (const name of Object.keys(hearing).filter((n) => n.startsWith('ast')))
  test(`sound ${name}: the numbers of transformers for spectrograms`, () =>
    scope(() =>
      noGrad(() => {
        const folder = familyFolder(name, (f) => f, hearing);
        const { model } = loadModel<SpectrogramTransformer>(folder, { kind: 'sound', device: 'cpu' });
        const [frames, want] = [answerOf(name, 'frames', 'sound'), answerOf(name, 'logits', 'sound')];
        const got = model.forward(frames);
        assert.deepEqual(got.shape, want.shape);
        assert.ok(got.sub(want).abs().max().item() / want.abs().max().item() <= 1e-4);
        assert.throws(() => model.forward(frames.narrow(1, 0, 9)), /the model takes \(batch, 20, 16\)/);
        model.dispose();
      }),
    ));

test('sounds and configs that are not served are refused by name', () => {
  const short = zeros([1, 20], { device: 'cpu' });
  assert.throws(
    () => open('wav2vec2').forward(short),
    (e: Error) => e instanceof ArgumentError && /enough samples for a moment/.test(e.message),
  );
  const refused: [string, object, RegExp][] = [
    ['wav2vec2', { add_adapter: true }, /add_adapter is true/],
    ['wav2vec2-b', { adapter_attn_dim: 8 }, /adapter_attn_dim is 8 without do_stable_layer_norm/],
    ['hubert', { conv_pos_batch_norm: true }, /conv_pos_batch_norm is true/],
  ];
  for (const [name, more, message] of refused)
    assert.throws(
      () => open(name, more),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
});
