// Low-rank adapters: PEFT's numbers from PEFT's folder, there and back, merged and not, trained, and what is refused.
import assert from 'node:assert/strict';
import { cpSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { UnsupportedError, WickError } from '../src/base/errors.js';
import { loadTensors, saveTensors } from '../src/io/index.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { AdamW, addLora, hasLooseAdapters, Linear, loadLora, ReLU, Sequential, SGD } from '../src/nn/index.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { randn, tensor } from '../src/tensor/create.js';
import { manualSeed } from '../src/tensor/random.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { scratch } from './io-support.js';

const skip = missingGolden('hf/llama', 'lora/llama');
const base = (): CausalLM => loadModel<CausalLM>(findGolden('hf/llama') as string, { device: 'cpu' }).model;
const adapter = (): string => findGolden('lora/llama') as string;
const golden = (): { ids: Tensor; want: Tensor } => {
  const g = loadTensors(join(adapter(), 'golden.safetensors'), { device: 'cpu' });
  return { ids: g.get('input_ids') as Tensor, want: g.get('logits') as Tensor };
};
const difference = (model: CausalLM, ids: Tensor, want: Tensor): number =>
  scope(() => noGrad(() => model.forward(ids).sub(want).abs().max().item() / want.abs().max().item()));

test('an adapter of PEFT gives its logits, beside the weights and in them', { skip }, () => {
  const { ids, want } = golden();
  const model = base();
  assert.ok(difference(model, ids, want) > 0.1);
  const adapters = loadLora(model, adapter());
  assert.deepEqual(adapters.names.slice(0, 2), ['model.layers.0.self_attn.q_proj', 'model.layers.0.self_attn.v_proj']);
  assert.ok(difference(model, ids, want) < 1e-5);
  assert.ok(hasLooseAdapters(model));
  adapters.merge().merge();
  assert.ok(!hasLooseAdapters(model));
  assert.ok(difference(model, ids, want) < 1e-5);
  adapters.unmerge();
  assert.ok(difference(model, ids, want) < 1e-5);
  const dir = scratch();
  adapters.save(dir, { baseModel: 'some/model' });
  adapters.remove();
  assert.ok(difference(model, ids, want) > 0.1);
  const again = loadLora(model, dir);
  assert.ok(difference(model, ids, want) < 1e-5);
  assert.deepEqual(
    [...loadTensors(join(dir, 'adapter_model.safetensors')).keys()].sort(),
    [...loadTensors(join(adapter(), 'adapter_model.safetensors')).keys()].sort(),
  );
  assert.throws(() => addLora(model, { targets: ['q_proj'] }), /adapters already/);
  again.remove();
});

test('training moves the adapters alone, and the loss falls', { skip }, () => {
  const { ids } = golden();
  const model = base();
  const before = new Map([...model.stateDict()].map(([name, t]) => [name, t.toArray()]));
  const untouched = scope(() => ({ logits: noGrad(() => model.forward(ids).toArray()) })).logits;
  const adapters = addLora(model, { targets: 'all-linear', rank: 4, alpha: 8 });
  assert.equal(adapters.names.length, 14);
  assert.deepEqual(
    scope(() => ({ logits: noGrad(() => model.forward(ids).toArray()) })).logits,
    untouched,
    'it begins as it was',
  );
  const optimizer = new AdamW(adapters.parameters(), { learningRate: 1e-2, weightDecay: 0 });
  const target = tensor(ids.toArray() as number[][], { dtype: 'i32' });
  const losses = Array.from({ length: 12 }, () =>
    scope(() => {
      const loss = model.forward(ids).crossEntropy(target);
      optimizer.backwardStep(loss);
      return loss.item();
    }),
  );
  assert.ok(losses.at(-1)! < losses[0] * 0.9, losses.join(' '));
  adapters.remove();
  for (const [name, t] of model.stateDict()) assert.deepEqual(t.toArray(), before.get(name), name);
});

test('what an adapter asks for and is not honoured is refused by name', { skip }, () => {
  const refused = (change: Record<string, unknown>, message: RegExp): void => {
    const dir = scratch();
    cpSync(adapter(), dir, { recursive: true });
    const path = join(dir, 'adapter_config.json');
    writeFileSync(path, JSON.stringify({ ...(JSON.parse(readFileSync(path, 'utf8')) as object), ...change }));
    assert.throws(
      () => loadLora(base(), dir),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
  };
  refused({ use_dora: true }, /use_dora/);
  refused({ bias: 'all' }, /bias/);
  refused({ modules_to_save: ['lm_head'] }, /modules_to_save/);
  refused({ peft_type: 'IA3' }, /IA3/);
  assert.throws(() => addLora(base(), { targets: ['query'] }), /no layer is named query; there are .*q_proj/);
  const other = loadModel<CausalLM>(findGolden('hf/gpt2') as string, { device: 'cpu' }).model;
  assert.throws(() => loadLora(other, adapter()), /no layer of the model takes base_model/);
});

test('a folder that is not what its config says is refused, and the model stays as it was', { skip }, () => {
  const stored = loadTensors(join(adapter(), 'adapter_model.safetensors'), { device: 'cpu' });
  const config = JSON.parse(readFileSync(join(adapter(), 'adapter_config.json'), 'utf8')) as { r: number };
  const folder = (change: object, tensors: ReadonlyMap<string, Tensor> = stored): string => {
    const dir = scratch();
    writeFileSync(join(dir, 'adapter_config.json'), JSON.stringify({ ...config, ...change }));
    saveTensors(join(dir, 'adapter_model.safetensors'), tensors);
    return dir;
  };
  const names = [...stored.keys()];
  const [first] = names.filter((name) => name.includes('lora_A'));
  const layer = first.replace('.lora_A.weight', '');
  const without = (drop: (name: string) => boolean): Map<string, Tensor> =>
    new Map([...stored].filter(([name]) => !drop(name)));
  const cases: readonly (readonly [dir: string, message: RegExp])[] = [
    [folder({ r: config.r * 2 }), /has the rank \d+; r and rank_pattern say \d+/],
    [folder({ r: 0 }), /r is 0, not a whole number from 1/],
    [folder({ r: null }), /r is null/],
    [folder({ lora_alpha: '16' }), /lora_alpha is "16", not a number/],
    [folder({ lora_dropout: 1 }), /lora_dropout is 1, not a number from 0 to below 1/],
    [folder({ lora_dropout: '0.1' }), /lora_dropout is "0.1"/],
    [folder({ use_rslora: 'false' }), /use_rslora is "false", not true or false/],
    [folder({ rank_pattern: { q_proj: 'x' } }), /rank_pattern is .*, not an object of ranks/],
    [folder({ target_modules: [7] }), /target_modules is \[7\]/],
    [folder({ alpha_pattern: { q_proj: 4 } }), /alpha_pattern is .*; it is not honoured/],
    [folder({ toString: 1 }), /toString is 1; it is not honoured/],
    [
      folder(
        {},
        without((name) => name.startsWith(layer)),
      ),
      /is one of target_modules, and has no adapter in the file/,
    ],
    [
      folder(
        { target_modules: '.*' },
        without((name) => name === first),
      ),
      /no layer of the model takes .*lora_B/,
    ],
    [folder({ target_modules: '.*' }, new Map()), /holds no adapter/],
    [folder({}, new Map(stored).set(first, tensor([1, 2]))), /has A \[2\] and B/],
    [folder({}, new Map(stored).set(`${layer}.lora_magnitude_vector`, tensor([1]))), /takes .*lora_magnitude_vector/],
  ];
  const model = base();
  model.requireGrad();
  for (const [dir, message] of cases) {
    assert.throws(
      () => loadLora(model, dir),
      (e: Error) => e instanceof WickError && message.test(e.message),
      String(message),
    );
    assert.ok(!hasLooseAdapters(model), String(message));
    assert.ok(
      model.parameters().every((p) => p.requiresGrad),
      `${message}: the model was frozen`,
    );
  }
  const empty = scratch();
  writeFileSync(join(empty, 'adapter_config.json'), JSON.stringify(config));
  assert.throws(() => loadLora(model, empty), /holds neither adapter_model.safetensors nor adapter_model.bin/);
});

test('adapters with roots of ranks, of chosen layers and from a file of PyTorch count as PEFT has them', {
  skip,
}, () => {
  const { ids, want } = golden();
  const config = JSON.parse(readFileSync(join(adapter(), 'adapter_config.json'), 'utf8')) as {
    r: number;
    lora_alpha: number;
  };
  const dir = scratch();
  saveTensors(join(dir, 'adapter_model.pt'), loadTensors(join(adapter(), 'adapter_model.safetensors')));
  renameSync(join(dir, 'adapter_model.pt'), join(dir, 'adapter_model.bin'));
  const change = { use_rslora: true, lora_alpha: config.lora_alpha / Math.sqrt(config.r), layers_to_transform: [0, 1] };
  writeFileSync(join(dir, 'adapter_config.json'), JSON.stringify({ ...config, ...change }));
  const model = base();
  loadLora(model, dir);
  assert.ok(difference(model, ids, want) < 1e-5);
});

test('a net made here takes adapters by the names of its layers, and gives them back from a folder', () => {
  const net = (): Sequential => {
    manualSeed(3);
    return new Sequential(new Linear(6, 8), new ReLU(), new Linear(8, 2));
  };
  const [model, other] = [net(), net()];
  const x = randn([4, 6], { seed: 1 });
  const before = model.forward(x);
  const adapters = addLora(model, { targets: ['0', '2'], rank: 2 });
  assert.deepEqual([...adapters.names].sort(), ['0', '2']);
  assert.ok(model.forward(x).allclose(before));
  const optimizer = new SGD(adapters.parameters(), { learningRate: 0.5 });
  for (let i = 0; i < 3; i++) optimizer.backwardStep(model.forward(x).sqr().mean());
  const after = model.forward(x);
  assert.ok(after.sub(before).abs().max().item() > 1e-3);
  const folder = scratch();
  adapters.save(folder, { baseModel: 'own' });
  loadLora(other, folder);
  assert.ok(other.forward(x).allclose(after));
  assert.throws(
    () => addLora(net(), { targets: ['1'] }),
    (e: Error) => e instanceof WickError && /no layer is named 1; there are 0, 2/.test(e.message),
  );
});

test('adapters of a model without numbered blocks stand beside all its layers, and leave no memory behind', () => {
  const model = new Sequential(new Linear(16, 32), new ReLU(), new Linear(32, 8));
  const other = new Sequential(new Linear(16, 32), new ReLU(), new Linear(32, 9));
  const live = (): number => model.parameters()[0].device.memory().liveBytes;
  const dir = scratch();
  const before = live();
  const adapters = addLora(model, { targets: 'all-linear', rank: 2 });
  assert.deepEqual(adapters.names, ['0', '2']);
  adapters.save(dir);
  adapters.remove();
  assert.equal(live(), before, 'made and saved');
  loadLora(model, dir).remove();
  assert.equal(live(), before, 'loaded');
  assert.throws(() => loadLora(other, dir), /the layer is \[9, 32\]/);
  assert.equal(live(), before, 'refused');
});
