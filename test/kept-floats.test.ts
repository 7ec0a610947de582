// Models whose matrices stay in the 16 bits they are stored in: half the memory, and bit for bit the answers of those
// that were cast when they were loaded.
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf } from '../src/base/dtype.js';
import { builtinModel } from '../src/engine/builtin-model.js';
import { LanguageModel } from '../src/engine/index.js';
import { loadTensors, saveTensors } from '../src/io/index.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { addLora, type Module, quantize } from '../src/nn/index.js';
import { Device, noGrad, QTensor, randn, scope, type Tensor, tensor } from '../src/index.js';
import { families, familyFolder, skipFamilies, answerOf } from './models-support.js';

const device = Device.cpu();
const load = (dir: string, keepFloats: boolean): CausalLM =>
  loadModel<CausalLM>(dir, { device, kind: 'decoder', keepFloats }).model;
const bytes = (m: Module): number =>
  [...new Set(m.stateDict().values())].reduce((n, t) => n + t.size * bytesOf(t.dtype), 0);
const kept = (m: Module): QTensor[] =>
  [...m.namedModules()].flatMap(([, part]) =>
    [...part.fields()].flatMap(({ value }) => (value instanceof QTensor && value.isFloats ? [value] : [])),
  );
const same = (a: Tensor, b: Tensor): boolean =>
  Buffer.compare(a.contiguous().bytesSync(), b.contiguous().bytesSync()) === 0;

/** A copy of a folder whose tensors are of another dtype. */
function inType(from: string, dtype: 'bf16' | 'f16'): string {
  const dir = mkdtempSync(join(tmpdir(), 'wick-kept-'));
  for (const name of readdirSync(from)) {
    if (!name.endsWith('.safetensors')) copyFileSync(join(from, name), join(dir, name));
    else
      scope(() => {
        const all = [...loadTensors(join(from, name), { device })];
        saveTensors(join(dir, name), new Map(all.map(([k, t]) => [k, t.dtype === 'f32' ? t.cast(dtype) : t])));
      });
  }
  return dir;
}

/** Families whose files keep matrices turned or one below the other: those are cast as before. */
let without = 0;
for (const [i, name] of Object.keys(families).entries())
  test(
    `family ${name} with its matrices as they are stored: the bits of one with matrices in f32`,
    {
      skip: skipFamilies,
    },
    () =>
      scope(() => {
        const dir = inType(familyFolder(name), i % 2 ? 'f16' : 'bf16');
        const [wide, narrow] = [false, true].map((keep) => load(dir, keep));
        rmSync(dir, { recursive: true });
        if (kept(narrow).length === 0) without++;
        else assert.ok(bytes(narrow) < bytes(wide), 'no memory is saved');
        const ids = answerOf(name, 'input_ids');
        for (const part of [ids, ids.narrow(0, 0, 1).narrow(1, 0, 1)]) {
          const [want, got] = noGrad(() => [wide, narrow].map((m) => m.forward(part)));
          assert.ok(same(got, want), `${part.shape}`);
        }
        wide.dispose();
        narrow.dispose();
      }),
  );
test('most families have matrices that stay as they are stored', { skip: skipFamilies }, () =>
  assert.ok(without < Object.keys(families).length / 6, `${without} have none`),
);

test('the engine keeps them on the CPU, and widens them where f32 is asked for', async () => {
  const [narrow, wide] = [
    await LanguageModel.load(undefined, { device }),
    await LanguageModel.load(undefined, { device, dtype: 'f32' }),
  ];
  assert.equal(kept(wide.model).length, 0);
  assert.equal(bytes(wide.model), 2 * bytes(narrow.model) - 9 * 256 * 4);
  assert.equal(narrow.model.weightCount(), wide.model.weightCount());
  assert.equal(narrow.model.dtype, 'f32');
  const told = await Promise.all(
    [narrow, wide].map((m) => m.reply('ROMEO:', { maxTokens: 40, temperature: 0.8, seed: 3, logprobs: 1 }).done),
  );
  assert.equal(told[0].text, told[1].text);
  assert.deepEqual(told[0].logprobs, told[1].logprobs);
  // The names are those of a model in f32, and a file of them holds what was stored.
  assert.deepEqual([...narrow.model.stateDict().keys()], [...wide.model.stateDict().keys()]);
  for (const m of [narrow, wide]) m.dispose();
});

test('kept floats are encoded and looked up, and refuse what would change them', () => {
  const model = load(builtinModel, true);
  const [first] = kept(model);
  assert.equal(first.type, 'BF16');
  const { changed } = quantize(model, 'q8_0');
  assert.equal(changed.length, 18);
  assert.equal(kept(model).length, 0);
  model.dispose();

  const values = randn([6, 8], { device, seed: 1 }).cast('f16');
  const q = QTensor.fromFloats(values);
  assert.equal(q.bytes, 96);
  assert.ok(
    same(
      q.rows(tensor([3, 3], { dtype: 'i32', device })),
      values.cast('f32').indexSelect(0, tensor([3, 3], { dtype: 'i32', device })),
    ),
  );
  for (const x of [randn([2, 8], { device }), randn([2, 8], { device, dtype: 'f64' })])
    assert.ok(same(q.matmul(x), x.matmul(values.cast(x.dtype).t())), x.dtype);
  const both = QTensor.cat([q, QTensor.fromFloats(values.cast('bf16'))]);
  assert.equal(both.type, 'F16+BF16');
  assert.ok(same(both.dequantize(), values.cast('f32').cat([values.cast('bf16').cast('f32')], 0)));
  assert.throws(() => QTensor.fromFloats(randn([2, 2], { device })), /it keeps f16 and bf16 as they are, not f32/);
  const adapted = load(builtinModel, true);
  const adapters = addLora(adapted, { targets: ['o_proj'], rank: 2 });
  assert.throws(() => adapters.merge(), /dtype: 'f32'/);
  adapted.dispose();
});

test('a model that is given a dtype has parameters of it alone, trained where all others are', {
  skip: skipFamilies,
}, () => {
  const dir = inType(familyFolder('mixtral'), 'bf16');
  for (const folder of [builtinModel, dir])
    for (const dtype of ['f32', 'f16'] as const)
      scope(() => {
        const [wide, narrow] = [false, true].map((keep) => load(folder, keep));
        assert.ok(kept(narrow).length > 0);
        const trained = dtype === 'f32';
        for (const m of [wide, narrow]) m.requireGrad(trained).to(undefined, dtype);
        assert.equal(kept(narrow).length, 0);
        assert.equal(narrow.dtype, dtype);
        assert.deepEqual([...narrow.namedParameters().keys()], [...wide.namedParameters().keys()]);
        assert.ok(narrow.parameters().every((p) => p.dtype === dtype && p.requiresGrad === trained));
        const ids = tensor([[1, 5, 9]], { dtype: 'i64', device });
        const [want, got] = noGrad(() => [wide, narrow].map((m) => m.forward(ids)));
        assert.ok(same(got, want), folder);
        for (const m of [wide, narrow]) m.dispose();
      });
  rmSync(dir, { recursive: true });
  const adapted = load(builtinModel, true);
  addLora(adapted, { targets: ['o_proj'], rank: 2 });
  const trained = adapted.parameters().filter((p) => p.requiresGrad).length;
  adapted.to(undefined, 'f32');
  assert.equal(adapted.parameters().filter((p) => p.requiresGrad).length, trained);
  adapted.dispose();
});
