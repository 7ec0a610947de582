// Models of every kind beyond the CPU's f32: on other devices, in halves, moved, trained, and gone without a trace.
// WICK_TEST_DEVICES names other devices than the simulation.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DType, isFloat } from '../src/base/dtype.js';
import type { Module } from '../src/nn/module.js';
import { AdamW } from '../src/nn/optim.js';
import { noGrad } from '../src/tensor/autograd.js';
import { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import { KINDS, type KindRow, opened } from './models-kinds.js';
import { answerOf } from './models-support.js';

const cpu = Device.cpu();
/** What a model answers to what its golden files ask, with the inputs on its device, floats in its dtype. */
function answerOn(model: Module, name: string, [stem, , , run]: KindRow, device: Device, dtype: DType): Tensor {
  const of = (key: string): Tensor => {
    const there = (answerOf(name, key, stem) as Tensor | undefined)?.to(device) as Tensor;
    return there && isFloat(there.dtype) ? there.cast(dtype) : there;
  };
  return run(model as never, of);
}
const off = (a: Tensor, b: Tensor): number => a.sub(b).abs().max().item() / b.abs().max().item();
/** The first of each family, variants aside. */
const typesOf = (models: KindRow[1]): string[] => [
  ...new Map(
    Object.entries(models)
      .toReversed()
      .map(([name, { config }]) => [config.model_type, name]),
  ).values(),
];
/** Heads that decoders have, and families of decoders whose mixers are their own. */
const FURTHER: Readonly<Record<string, readonly string[]>> = {
  classifiers: ['llama', 'gemma2', 'ctrl'],
  tokens: ['qwen2-c', 'gpt2-c'],
  families: ['diffllama', 'doge', 'rwkv', 'zamba'],
};
const LATE = ['seq2seq', 'vision', 'sound', 'speech', 'pictures'];

for (const { name: on, device, missing } of testDevices('sim:32'))
  for (const row of KINDS) {
    const [stem, models] = row;
    for (const name of LATE.includes(stem) ? typesOf(models) : (FURTHER[stem] ?? []))
      test(`${stem} ${name} on ${on}: the CPU's numbers`, { skip: missing }, () =>
        scope(() =>
          noGrad(() => {
            const here = opened(name, row);
            const there = opened(name, row, { device: device as Device });
            const want = answerOn(here, name, row, cpu, 'f32');
            const error = off(answerOn(there, name, row, device as Device, 'f32').to(cpu), want);
            assert.ok(error <= 1e-4, `off by ${error}`);
            for (const model of [here, there]) model.dispose();
          }),
        ),
      );
  }

for (const row of KINDS) {
  const [stem, models] = row;
  test(`${stem}: models that are gone have left no tensor`, () => {
    for (const name of Object.keys(models)) {
      answerOf(name, 'logits', stem); // what is stored is read once, and stays
      const before = cpu.memory().liveBytes;
      scope(() =>
        noGrad(() => {
          const model = opened(name, row);
          answerOn(model, name, row, cpu, 'f32');
          model.dispose();
        }),
      );
      const left = cpu.memory().liveBytes - before;
      assert.ok(left <= 0, `${name}: ${left} bytes stayed`);
    }
  });
}

/**
 * How far answers in halves may lie from those in f32. Scores of T5 and its kin are not divided by anything, and those
 * of random weights are large, as LeViT's and SwiftFormer's numbers are, tens of thousands: PyTorch's answers lie as far. Of one token of
 * the mixture two experts lie 0.0003 apart.
 */
const HALVES: readonly (readonly [DType, usual: number, loose: number])[] = [
  ['bf16', 0.1, 0.6],
  ['f16', 0.015, 0.3],
];
const LOOSE = /^(t5-|switch|longt5|qwen3_vl_moe|levit|focalnet$|swiftformer)/;
/** Sums of these random models pass the largest number of f16, in PyTorch, too. */
const BEYOND = /^resnet(-c)?$/;
for (const row of KINDS.filter(([stem]) => LATE.includes(stem)))
  for (const [dtype, usual, loose] of HALVES)
    test(`${row[0]} in ${dtype}, loaded so or moved there, lie near those in f32`, () => {
      for (const name of Object.keys(row[1]).filter((n) => dtype !== 'f16' || !BEYOND.test(n)))
        scope(() =>
          noGrad(() => {
            const plain = opened(name, row);
            const want = answerOn(plain, name, row, cpu, 'f32');
            const weights = new Set(plain.stateDict().values());
            for (const model of [opened(name, row, { dtype }), plain.to(undefined, dtype)]) {
              const got = answerOn(model, name, row, cpu, dtype);
              assert.equal(got.dtype, dtype, name);
              const error = off(got.cast('f32'), want);
              assert.ok(error <= (LOOSE.test(name) ? loose : usual), `${name}: off by ${error}`);
              model.dispose();
            }
            for (const t of weights) t.dispose();
          }),
        );
    });

/** How far the answer to the token in the middle lies from that in f32, of all tokens by how far theirs do. */
function middle(got: Tensor, want: Tensor): number {
  const rows = got
    .sub(want)
    .abs()
    .reshape([-1, want.shape[want.rank - 1]])
    .max(-1)
    .toArray() as number[];
  return rows.sort((a, b) => a - b)[rows.length >> 1] / want.abs().max().item();
}
/**
 * In bf16 a token whose experts or states lie close together may go another way, as PyTorch's do: so the middle one
 * counts. Numbers of these random weights grow from layer to layer: PyTorch's answers lie as far.
 */
const HALF_TOKENS = { bf16: 0.06, f16: 0.01 } as const;
const GROWING = /^(zamba|gpt_oss$|distilbert$)/;
for (const row of KINDS.filter(([stem]) => !LATE.includes(stem)))
  for (const [dtype, most] of Object.entries(HALF_TOKENS))
    test(`${row[0]} in ${dtype} lie near those in f32`, () => {
      for (const name of Object.keys(row[1]))
        scope(() =>
          noGrad(() => {
            const [plain, half] = [opened(name, row), opened(name, row, { dtype: dtype as DType })];
            const want = answerOn(plain, name, row, cpu, 'f32');
            const got = answerOn(half, name, row, cpu, dtype as DType);
            assert.equal(got.dtype, dtype, name);
            const error = middle(got.cast('f32'), want);
            assert.ok(error <= (GROWING.test(name) ? 4 : 1) * most, `${name}: off by ${error}`);
            for (const model of [plain, half]) model.dispose();
          }),
        );
    });

/** What an answer does not depend on: experts that no token chose, other heads. */
const UNMOVED: Readonly<Record<string, RegExp>> = {
  'blip-b': /^(image|text)_projection\./,
  'hubert-c': /^norm\./,
  'wavlm-b': /^norm\./,
  switch: /^decoder\.blocks\.1\.mlp\.experts\.1\./,
  // Classes are those of the patches' mean, behind neither.
  'clip-c': /^tower\.post_norm\./,
  'metaclip_2-c': /^tower\.post_norm\./,
  'siglip-c': /^tower\.pool\./,
  // A softmax over one number.
  'swiftformer-c': /^stages\.\d\.weights$/,
  'swiftformer-d': /^stages\.\d\.weights$/,
  // Only the class's token asks in the last layer, and its query goes around the filter.
  'cvt-c': /^stages\.2\.layers\.2\.filters\.0\./,
  'cvt-d': /^stages\.2\.layers\.2\.filters\.0\./,
  // Two narrow channels that are negative for every picture.
  'regnet-c': /^stages\.1\.stages\.2\./,
};
/** Of a tower of three layers one before the last may be read: the layers behind it and the last norm are not. */
function unread({ vision_feature_layer: read }: Readonly<Record<string, unknown>>, key: string): boolean {
  if (read === undefined) return false;
  const last = [read].flat().some((layer) => layer === -1 || layer === 3);
  return (last ? /^eye\.tower\.(post_)?norm\./ : /^eye\.tower\.(blocks\.2|(post_)?norm)\./).test(key);
}
for (const row of KINDS) {
  const [stem, models] = row;
  const names = LATE.includes(stem) ? Object.keys(models) : (FURTHER[stem] ?? []);
  if (names.length > 0)
    test(`${stem}: a step of training has a gradient for every weight and makes the loss smaller`, () => {
      for (const name of names)
        scope(() => {
          const model = opened(name, row).requireGrad();
          /** A sum of answers with weights that no norm evens out. */
          const loss = (): Tensor => {
            const y = answerOn(model, name, row, cpu, 'f32');
            const by = y.onesLike().flatten().cumsum(0).affine(0.7, 0).sin().reshape(y.shape);
            return y.mul(by).mean();
          };
          const first = loss();
          const grads = first.backward();
          const none = [...model.namedParameters()]
            .filter(([, p]) => !((grads.get(p)?.abs().max().item() as number) > 0))
            .map(([key]) => key);
          const wanting = none.filter((key) => !UNMOVED[name]?.test(key) && !unread(models[name].config, key));
          assert.equal(wanting.join(', '), '', name);
          const moved = model.parameters().filter((p) => grads.get(p));
          const learningRate = name.startsWith('levit') ? 1e-6 : 1e-4; // its large numbers move far
          new AdamW(moved, { learningRate, weightDecay: 0 }).step(grads);
          const [before, after] = [first.item(), noGrad(loss).item()];
          assert.ok(after < before, `${name}: ${before} became ${after}`);
          model.dispose();
        });
    });
}
