// Decoders of every family against transformers, through the registry: folders, GGUF files, recorded decoding.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { beamSearch } from '../src/engine/beam-search.js';
import { FusedStep } from '../src/engine/steps/fused-step.js';
import { GraphDecoder, PlainDecoder } from '../src/engine/index.js';
import { loadTensors } from '../src/io/index.js';
import { type CausalLM, loadModel, MODELS, newDecoder } from '../src/models/index.js';
import { initialise, KvCache, normal, ONE, VarBuilder } from '../src/nn/index.js';
import { findGolden, goldenFolder, missingGolden } from '../src/parity/golden.js';
import { MODEL_TOLERANCE, relativeError } from '../src/parity/model-checks.js';
import { checkModel, goldenModels, greedyRows } from '../src/parity/models.js';
import { noGrad } from '../src/tensor/autograd.js';
import { cat, tensor } from '../src/tensor/create.js';
import { Generator } from '../src/tensor/random.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import { answerOf, families, familyFolder, skipFamilies } from './models-support.js';

const DECODERS = [
  ...['llama', 'llama3-rope', 'qwen2', 'qwen3', 'gpt2', 'yarn-llama', 'gemma3', 'phi3-longrope', 'qwen3_moe-b'],
  ...['deepseek_v3', 'gpt_oss', 'olmo2-b', 'lfm2', 'qwen3_next'],
];

const rows = (t: Tensor): number[][] => (t.toArray() as (number | bigint)[][]).map((r) => r.map(Number));

const load = (dir: string, device: Device | string = 'cpu'): CausalLM =>
  loadModel<CausalLM>(dir, { device, kind: 'decoder' }).model;

for (const { name, device, missing } of testDevices('cpu'))
  for (const model of DECODERS)
    test(`${model} on ${name}: logits and greedy tokens, cached or not, padded or not`, {
      skip: missing ?? missingGolden(`hf/${model}`),
    }, () => {
      for (const c of checkModel(findGolden('hf', model) as string, device as Device, model))
        assert.ok(c.ok, `${c.what}${c.error === undefined ? '' : ` are off by ${c.error}`}`);
    });

test('every golden decoder is in the list above', { skip: goldenFolder() ? false : 'no golden folder' }, () => {
  const other = new Set(MODELS.filter((r) => r.kind !== 'decoder').flatMap((r) => r.types));
  const known = goldenModels(goldenFolder() as string).filter((n) => !DECODERS.includes(n));
  for (const n of known) {
    const at = findGolden('hf', n) as string;
    const type = (
      JSON.parse(readdirSync(at).includes('config.json') ? readFileSync(join(at, 'config.json'), 'utf8') : '{}') as {
        model_type: string;
      }
    ).model_type;
    assert.ok(other.has(type) || !MODELS.some((r) => r.types.includes(type)), `${n} is a decoder without a test`);
  }
});

for (const name of Object.keys(families))
  test(`family ${name}: logits, greedy tokens with and without a cache, a padded batch`, { skip: skipFamilies }, () =>
    scope(() => {
      const model = load(familyFolder(name));
      const of = (key: string): Tensor => answerOf(name, key);
      const got = noGrad(() => model.forward(of('input_ids')));
      const error = relativeError(got, of('logits'));
      assert.ok(error <= MODEL_TOLERANCE, `logits are off by ${error}`);
      const [prompt, want] = [rows(of('prompt')), rows(of('greedy'))];
      // Past the border of a dynamic rope, keys in a cache keep the turns they were given: transformers does so too.
      const dynamic = model.config.layers.some(
        ({ mixer: m }) => m.kind === 'attention' && m.rope?.type === 'dynamic' && !m.rope.alpha,
      );
      // So does a step of Mamba 2 that follows others: only those of a whole prompt are held within limits.
      const held = model.config.layers.some(
        ({ mixer: m }) => m.kind === 'mamba2' && m.limits?.[1] !== undefined && m.limits[1] < Infinity,
      );
      for (const cached of dynamic || held ? [true] : [true, false])
        assert.deepEqual(greedyRows(model, prompt, want[0].length, cached), want, cached ? 'with a cache' : 'without');
      const pads = rows(of('padded_mask')).map((r) => r.indexOf(1));
      const padded = noGrad(() => model.forward(of('padded_ids'), undefined, { pads }).narrow(1, 14, 2));
      const off = relativeError(padded, of('padded_last'));
      assert.ok(off <= MODEL_TOLERANCE, `logits of a padded batch are off by ${off}`);
      const tokens = rows(of('padded_greedy'));
      assert.deepEqual(greedyRows(model, rows(of('padded_ids')), tokens[0].length, true, pads), tokens, 'padded');
      model.dispose();
    }),
  );

for (const model of ['llama', 'qwen3'])
  for (const kind of ['f32', 'q8_0', 'q4_k'])
    test(
      `${model} as ${kind}.gguf: logits and greedy tokens of its dequantized weights`,
      {
        skip: missingGolden(`gguf/${model}/${kind}.gguf`),
      },
      () =>
        scope(() => {
          const golden = loadTensors(findGolden('gguf', model, `golden-${kind}.safetensors`) as string, {
            device: 'cpu',
          });
          const m = load(findGolden('gguf', model, `${kind}.gguf`) as string);
          const of = (key: string): Tensor => golden.get(key) as Tensor;
          const error = relativeError(
            noGrad(() => m.forward(of('input_ids').cast('i32'))),
            of('logits'),
          );
          assert.ok(error <= MODEL_TOLERANCE, `off by ${error}`);
          const want = rows(of('greedy'));
          assert.deepEqual(greedyRows(m, rows(of('prompt')), want[0].length, true), want);
          m.dispose();
        }),
    );

for (const { name, device, missing } of testDevices('sim:32'))
  for (const model of ['qwen3', 'qwen3_moe-b', 'gemma3', 'gpt_oss', 'deepseek_v3', 'phi3-longrope', 'gpt2'])
    test(`${model} recorded on ${name}: greedy tokens, and logits as op by op`, {
      skip:
        missing ??
        (name === 'cpu' || name === 'reference' ? 'recording needs a GPU or its simulation' : undefined) ??
        missingGolden(`hf/${model}`),
    }, async () => {
      const dir = findGolden('hf', model) as string;
      const golden = loadTensors(join(dir, 'golden.safetensors'), { device: 'cpu' });
      const m = load(dir, device as Device);
      assert.ok(GraphDecoder.serves(m), 'is served');
      const [graph, plain] = [new GraphDecoder(m, 64), new PlainDecoder(m)];
      const [prompt, want] = ['prompt', 'greedy'].map((key) => rows(golden.get(key) as Tensor)[0]);
      const got = [...prompt];
      for (let i = 0; i < 6; i++) got.push(await graph.runGreedy(i === 0 ? prompt : got.slice(-1)));
      assert.deepEqual(got, want.slice(0, got.length));
      graph.reset();
      for (const tokens of [prompt, [want[prompt.length]], [want[prompt.length + 1]]]) {
        const [a, b] = [await graph.run(tokens), await plain.run(tokens)];
        const most = b.reduce((x, y) => Math.max(x, Math.abs(y)), 0);
        const worst = a.reduce((x, y, i) => Math.max(x, Math.abs(y - b[i])), 0);
        assert.ok(worst <= 1e-4 * most, `off by ${worst} of ${most}`);
      }
      graph.dispose();
      plain.dispose();
      m.dispose();
    });

for (const { name, device, missing } of testDevices('sim:32'))
  test(`mixtures on ${name} choose, weigh and add up their experts in few launches as op by op`, {
    skip:
      missing ??
      (name === 'cpu' || name === 'reference' ? 'recording needs a GPU or its simulation' : undefined) ??
      skipFamilies,
  }, async () => {
    // Scores by softmax and sigmoid, biases of the choice, kept and normalised weights, experts that all tokens go to;
    // latent attention with and without a narrow query.
    const routers = ['mixtral', 'qwen3_moe-d', 'glm4_moe', 'ernie4_5_moe', 'dots1'];
    for (const family of [...routers, 'deepseek_v2', 'deepseek_v3-b']) {
      const m = load(familyFolder(family), device as Device);
      assert.ok(FusedStep.serves(m), `${family} is served`);
      const [graph, plain] = [new GraphDecoder(m, 64), new PlainDecoder(m)];
      const prompt = Array.from({ length: 37 }, (_, i) => (i * 7) % 40);
      for (const tokens of [prompt, [20], [7]]) {
        const [a, b] = [await graph.run(tokens), await plain.run(tokens)];
        const most = b.reduce((x, y) => Math.max(x, Math.abs(y)), 0);
        const worst = a.reduce((x, y, i) => Math.max(x, Math.abs(y - b[i])), 0);
        assert.ok(worst <= 1e-4 * most, `${family} is off by ${worst} of ${most}`);
      }
      graph.dispose();
      plain.dispose();
      m.dispose();
    }
  });

for (const { name, device, missing } of testDevices('sim:32'))
  test(`a choice on ${name} among more experts than lanes keep, some of them equal, is the op's`, {
    skip: missing ?? (name === 'cpu' || name === 'reference' ? 'recording needs a GPU or its simulation' : undefined),
  }, async () => {
    const at = { dtype: 'f32', device: device as Device } as const;
    const generator = new Generator(1);
    const builder = new VarBuilder(
      {
        has: (key: string) => !key.endsWith('.bias'),
        get: (key: string, shape: readonly number[] | undefined) => {
          if (key.includes('norm')) return initialise(ONE, shape ?? [], at);
          const w = initialise(normal(0, 0.5), shape ?? [], { ...at, generator });
          // The second half of the routers' rows repeats the first: every choice has equals.
          if (shape?.length !== 2 || shape[0] !== 150) return w;
          const half = w.narrow(0, 0, w.shape[0] / 2);
          return cat([half, half], 0);
        },
      },
      at,
    );
    const m = noGrad(() =>
      newDecoder(
        {
          ...{ model_type: 'qwen3_moe', vocab_size: 32, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 2 },
          ...{ num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16, num_experts: 150, num_experts_per_tok: 7 },
          ...{ moe_intermediate_size: 16, norm_topk_prob: true, max_position_embeddings: 64 },
        },
        builder,
      ),
    ).eval();
    assert.ok(FusedStep.serves(m), 'is served');
    const [graph, plain] = [new GraphDecoder(m, 64), new PlainDecoder(m)];
    for (const tokens of [[3, 1, 4], [1], [5], [9]]) {
      const [a, b] = [await graph.run(tokens), await plain.run(tokens)];
      const most = b.reduce((x, y) => Math.max(x, Math.abs(y)), 0);
      const worst = a.reduce((x, y, i) => Math.max(x, Math.abs(y - b[i])), 0);
      assert.ok(worst <= 1e-4 * most, `off by ${worst} of ${most}`);
    }
    graph.dispose();
    plain.dispose();
    m.dispose();
  });

for (const name of Object.keys(families))
  if (['jamba', 'granite_swa', 'qwen3_next'].includes(name))
    test(`family ${name}: the answers that beams find`, { skip: skipFamilies }, () => {
      const model = load(
        familyFolder(name, (f) => ({ ...f, config: { ...f.config, eos_token_id: [5, 9, 20, 33, 41, 60, 77] } })),
      );
      const [prompt, want] = [rows(answerOf(name, 'prompt'))[0], rows(answerOf(name, 'beams'))];
      const got = beamSearch(model, prompt, { beams: 4 }, 12);
      assert.deepEqual(
        got.map((h) => [...h.row]),
        // Shorter ones are filled behind with the first end, as transformers fills them where padding's number is 0.
        want.map((row, i) => row.slice(0, got[i].row.length)),
      );
      want.forEach((row, i) => assert.ok(row.slice(got[i].row.length).every((id) => id === 5)));
      model.dispose();
    });

test('a cache with a window holds what later tokens can see, in order, and no more', () => {
  const cache = new KvCache(4, 5);
  const part = (from: number, n: number): Tensor =>
    tensor(
      Float32Array.from({ length: n }, (_, i) => from + i),
      { shape: [1, 1, n, 1], device: 'cpu' },
    );
  let seen = 0;
  for (const n of [3, 1, 1, 7, 1, 1, 1, 2, 300, 1, 1]) {
    const [k] = cache.append(part(seen, n), part(seen, n));
    seen += n;
    const held = Array.from(k.dataSync() as Float32Array);
    assert.equal(held.at(-1), seen - 1);
    assert.equal(held[0], cache.first);
    held.forEach((x, i) => assert.equal(x, held[0] + i, 'in order'));
    assert.ok(held.length >= Math.min(seen, 4 + n), `${held.length} keys for ${n} new ones`);
  }
  assert.equal(cache.length, seen);
  assert.ok(cache.buffers()[0].shape[2] < 320, 'room for the window and the longest run');
  assert.throws(() => cache.truncate(3), /of a window of 5/);
  cache.dispose();
});
