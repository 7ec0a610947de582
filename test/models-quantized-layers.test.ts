// Models of every kind with all their layers quantized: whatever a model reads of a layer, it takes blocks as well as
// floats, or `quantize` leaves that layer alone and says why.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { sizeOf } from '../src/base/shape.js';
import type { ImageText } from '../src/models/vision/clip.js';
import { loadModel, newDecoder } from '../src/models/index.js';
import type { VisionModel } from '../src/models/vision/vision-model.js';
import { initialise, normal, ONE, quantize, Sequential, VarBuilder } from '../src/nn/index.js';
import { keptFloats } from '../src/nn/kept-floats.js';
import { Embedding, Linear } from '../src/nn/layers.js';
import type { Module } from '../src/nn/module.js';
import { loadTensors } from '../src/io/index.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import { Device } from '../src/tensor/device.js';
import { QTensor, type Weight } from '../src/tensor/qtensor.js';
import { Generator } from '../src/tensor/random.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answered, KINDS, opened, type Run } from './models-kinds.js';
import { answerOf } from './models-support.js';

/** Stands for blocks of the small models' widths, which no type has: it answers what blocks answer, exactly. */
function blocksOf(weight: Tensor): QTensor {
  const value = <T>(v: T): PropertyDescriptor => ({ value: v });
  return Object.create(QTensor.prototype, {
    ...{ shape: value(weight.shape), device: value(weight.device), parts: value([]) },
    matmul: value((x: Tensor) => x.matmul(weight.t())),
    rows: value((ids: Tensor) => weight.embedding(ids)),
  }) as QTensor;
}
function stored(model: Module): void {
  for (const [, layer] of model.namedModules())
    if ((layer instanceof Linear || layer instanceof Embedding) && keptFloats(layer) === undefined) {
      const own = layer as Linear<Weight>;
      if (!(own.weight instanceof QTensor)) own.weight = blocksOf(own.weight); // some layers have several names
    }
}

function same(name: string, model: Module, run: () => Tensor): void {
  const before = run();
  stored(model);
  const after = run();
  assert.ok(after.sub(before).abs().max().item() <= 1e-5 * before.abs().max().item(), name);
  model.dispose();
}
/** Models with tensors that an answer to a text alone does not take, or that are added to others. */
const LESS =
  /^(zamba2|deepseek_v32|glm_moe_dsa|longcat_flash|axk2|hy_v4|mllama_text|longformer|led|mbart-b|ibert|luke|conformer|xmod)/;
for (const row of KINDS) {
  const [stem, models, , run] = row;
  test(`${stem}: what a model has read is among its parameters, which are trained, saved and given back`, () => {
    for (const name of Object.keys(models).filter((n) => !LESS.test(n)))
      scope(() => {
        const model = opened(name, row);
        const found = [...new Set(model.stateDict().values())].reduce((n, t) => n + t.size, 0);
        const stored = Object.values(models[name].tensors).reduce((n, [shape]) => n + sizeOf(shape), 0);
        assert.ok(found >= 0.97 * stored, `${name}: ${found} of ${stored} numbers`);
        model.dispose();
      });
  });
  test(`${stem}: every model answers the same from layers in blocks`, () => {
    for (const name of Object.keys(models))
      scope(() =>
        noGrad(() => {
          const model = opened(name, row);
          same(name, model, () => run(model as never, (key) => answerOf(name, key, stem)));
        }),
      );
  });
}

for (const [name, run] of [
  ['whisper', answered],
  ['clip', (model: ImageText, of) => model.embedImage(of('pixel_values')).matmul(model.embedText(of('input_ids')).t())],
  ['vit', (model: VisionModel, of) => model.forward(of('pixel_values'))],
] as const satisfies readonly (readonly [string, Run])[])
  test(`${name}: it answers the same from layers in blocks`, { skip: missingGolden(`hf/${name}`) }, () =>
    scope(() =>
      noGrad(() => {
        const dir = findGolden(`hf/${name}`) as string;
        const golden = loadTensors(join(dir, 'golden.safetensors'), { device: 'cpu' });
        const { model } = loadModel(dir, { device: 'cpu' });
        same(name, model, () => (run as Run)(model as never, (key) => golden.get(key) as Tensor));
      }),
    ),
  );

test('a mixture of 8 bits chooses its experts in floats, and says so', () =>
  scope(() => {
    const at = { dtype: 'f32', device: Device.cpu() } as const;
    const generator = new Generator(7);
    const builder = new VarBuilder(
      {
        has: (key: string) => !key.endsWith('.bias'),
        get: (key: string, shape: readonly number[] | undefined) =>
          initialise(key.includes('norm') ? ONE : normal(0, 0.2), shape ?? [], { ...at, generator }),
      },
      at,
    );
    const model = noGrad(() =>
      newDecoder(
        {
          ...{ model_type: 'qwen3_moe', vocab_size: 64, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 2 },
          ...{ num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16, num_experts: 6, num_experts_per_tok: 2 },
          ...{ moe_intermediate_size: 32, norm_topk_prob: true, max_position_embeddings: 64 },
        },
        builder,
      ),
    ).eval();
    const ids = tensor(Int32Array.of(3, 1, 4, 1, 5, 9, 2, 6), { shape: [1, 8], device: 'cpu' });
    const before = noGrad(() => model.forward(ids));
    const { changed, kept } = quantize(model, 'q8_0');
    assert.deepEqual(
      kept.map(({ name, why }) => `${name}: ${why}`),
      [0, 1].map((i) => `blocks.${i}.mlp.router: experts are chosen in f32`),
    );
    assert.ok(changed.includes('embed') && changed.length > 4, changed.join());
    const after = noGrad(() => model.forward(ids));
    const off = after.sub(before).abs().max().item() / before.abs().max().item();
    assert.ok(off > 0 && off < 0.05, `${off}`);
  }));

test('a table whose tied head alone is quantized stays', () =>
  scope(() =>
    noGrad(() => {
      const words = new Embedding(10, 32);
      const [net, ids] = [new Sequential(words, new Linear(words.weight)), tensor([1, 2], { dtype: 'i32' })];
      const before = net.forward(ids);
      const { changed, kept } = quantize(net, 'q8_0', { embeddings: false });
      assert.deepEqual([changed, kept.map(({ name }) => name)], [['1'], ['0']]);
      assert.ok(net.forward(ids).sub(before).abs().max().item() < 0.05 * before.abs().max().item());
    }),
  ));
