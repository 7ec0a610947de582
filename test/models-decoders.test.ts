// Decoders of every family against transformers, through the registry: folders, GGUF files, recorded decoding, and what
// is refused.
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { FormatError } from '../src/base/errors.js';
import { beamSearch } from '../src/engine/beam-search.js';
import { FusedStep } from '../src/engine/steps/fused-step.js';
import { GraphDecoder, PlainDecoder } from '../src/engine/index.js';
import { loadTensors } from '../src/io/index.js';
import type { Features } from '../src/models/decoder/features.js';
import { defaultsOf } from '../src/models/families/defaults.js';
import { type CausalLM, Llama, loadModel, MODELS, newDecoder } from '../src/models/index.js';
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
import { answerOf, blank, families, familyFolder, skipFamilies } from './models-support.js';

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

test('the text of a model that reads images is the plain model, under its other names', { skip: skipFamilies }, () => {
  for (const [name, type] of [
    ['qwen2', 'qwen2_5_vl'],
    ['qwen3', 'qwen3_vl'],
    ['qwen3_moe', 'qwen3_vl_moe'],
    ['glm4', 'glm4v'],
    ['glm4', 'glm_ocr'],
    ['glm4_moe', 'glm4v_moe'],
  ])
    scope(() => {
      const dir = familyFolder(name, ({ config, tensors }) => {
        const { tie_word_embeddings, rope_parameters: rope, ...rest } = config;
        const text_config = {
          ...{ ...rest, model_type: `${type}_text`, tie_word_embeddings: tie_word_embeddings !== true },
          rope_parameters: { ...(rope as object), mrope_section: [2, 2, 2], mrope_interleaved: true },
        };
        const moved = Object.entries(tensors).map(([k, v]) => [k.replace(/^model\./, 'model.language_model.'), v]);
        const eye = { 'model.visual.patch_embed.weight': [[4], 1, 1, 0] };
        return {
          config: { model_type: type, text_config, tie_word_embeddings, vision_config: { depth: 1 } },
          tensors: { ...Object.fromEntries(moved), ...eye },
        };
      });
      const model = load(dir);
      const error = relativeError(
        noGrad(() => model.forward(answerOf(name, 'input_ids'))),
        answerOf(name, 'logits'),
      );
      assert.ok(error <= MODEL_TOLERANCE, `${type}: logits are off by ${error}`);
      model.dispose();
    });
});

test('a model that reads images names the family of its text, which is served under its names', {
  skip: skipFamilies,
}, () => {
  const head = (k: string, prefix: string): string => (k === 'lm_head.weight' ? `${prefix}${k}` : k);
  for (const [name, type, said, prefix, beside] of [
    ['mistral', 'mistral3', 'mistral', 'language_model.model.', 'language_model.'],
    ['mistral', 'mistral3', undefined, 'model.language_model.', ''],
    ['ministral3', 'mistral3', 'ministral3', 'language_model.model.', 'language_model.'],
    ['llama', 'idefics3', 'llama', 'model.text_model.', ''],
    ['qwen3', 'internvl', 'qwen3', 'language_model.model.', 'language_model.'],
    ['llama', 'voxtral', 'llama', 'language_model.model.model.', 'language_model.'],
    ['cohere2', 'aya_vision', 'cohere2', 'language_model.model.', 'language_model.'],
    ['deepseek_v3', 'kimi_k25', undefined, 'language_model.model.', 'language_model.'],
    ['emu3_text_model', 'emu3', undefined, 'text_model.model.', 'text_model.'],
    ['mllama_text_model', 'mllama', undefined, 'language_model.model.', 'language_model.'],
    ['hyperclovax', 'hyperclovax_vision_v2', undefined, 'model.language_model.', 'model.language_model.'],
  ] as const)
    scope(() => {
      const dir = familyFolder(name, ({ config, tensors }) => {
        const { tie_word_embeddings, model_type: _, ...rest } = config;
        const moved = Object.entries(tensors).map(([k, v]) => [head(k.replace(/^model\./, prefix), beside), v]);
        return {
          config: {
            model_type: type,
            text_config: { ...rest, ...(said && { model_type: said }) },
            tie_word_embeddings,
          },
          tensors: { ...Object.fromEntries(moved), 'model.vision_model.patch.weight': [[4], 1, 1, 0] },
        };
      });
      const model = load(dir);
      // Cohere's leave out what their text model multiplies logits by.
      const factor = name === 'cohere2' ? Number(families[name].config.logit_scale) : 1;
      const error = relativeError(
        noGrad(() => model.forward(answerOf(name, 'input_ids')).affine(factor, 0)),
        answerOf(name, 'logits'),
      );
      assert.ok(error <= MODEL_TOLERANCE, `${type} with ${said}: logits are off by ${error}`);
      model.dispose();
    });
  const odd = familyFolder('llama', (f) => ({
    ...f,
    config: { model_type: 'llava', text_config: { ...f.config, model_type: 'opera' } },
  }));
  assert.throws(() => load(odd), /text_config.model_type is "opera", which no family serves/);
});

test('configs that say a thing twice or leave it to the type are read as transformers reads them', {
  skip: skipFamilies,
}, () => {
  // A config inside a config keeps books too.
  load(
    familyFolder('dbrx', (f) => ({
      ...f,
      config: { ...f.config, attn_config: { ...(f.config.attn_config as object), dtype: 'float32' } },
    })),
  ).dispose();
  const without = (name: string) => (config: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(Object.entries(config).filter(([k]) => k !== name));
  for (const [name, change] of [
    ['gpt_neo', (c) => ({ ...c, attention_types: [[['global'], 4]] })], // the list of layers counts
    ['glm', without('num_key_value_heads')],
    ['starcoder2', without('num_key_value_heads')],
  ] as [string, ReturnType<typeof without>][])
    scope(() => {
      const model = load(familyFolder(name, (f) => ({ ...f, config: change(f.config) })));
      const error = relativeError(
        noGrad(() => model.forward(answerOf(name, 'input_ids'))),
        answerOf(name, 'logits'),
      );
      assert.ok(error <= MODEL_TOLERANCE, `${name}: logits are off by ${error}`);
      model.dispose();
    });
  const changed = (name: string, more: object): string =>
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }));
  const rope_parameters = { rope_type: 'yarn', rope_theta: 1e4, factor: 4, partial_rotary_factor: 0.25 };
  assert.throws(() => load(changed('gpt_neox', { rope_parameters })), /a yarn rope that turns 3 numbers of a head/);
  assert.throws(
    () => load(changed('gpt_neox', { head_dim: 20 })),
    /query_key_value\.\w+: \[\d+(, \d+)?\] cannot be taken apart as the config's sizes say/,
  );
});

test('a folder of another family, fields and tensors that nobody honours, and missing ones are refused by name', {
  skip: skipFamilies || missingGolden('hf/qwen3'),
}, () => {
  assert.throws(() => Llama.load(findGolden('hf', 'qwen3') as string), /is of type "qwen3"; this class is for llama/);
  const changed = (config: object, tensors: object = {}): string =>
    familyFolder('llama', (f) => ({ config: { ...f.config, ...config }, tensors: { ...f.tensors, ...tensors } }));
  assert.throws(() => load(changed({ model_type: 'perceptron' })), /model_type is "perceptron"; served are .*llama/);
  assert.throws(() => load(changed({ attention_twist: 2 })), /attention_twist is 2; nothing here honours this field/);
  assert.throws(() => load(changed({ quantization_config: { bits: 4 } })), /quantization_config/);
  const grouped = (more: object): string =>
    familyFolder('deepseek_v3', (f) => ({ ...f, config: { ...f.config, n_routed_experts: 8, n_group: 4, ...more } }));
  const asked = { topk_group: 2, num_experts_per_tok: 5 };
  assert.throws(() => load(grouped(asked)), /num_experts_per_tok is 5, and 4 experts take part/);
  assert.throws(() => load(grouped({ n_group: 3 })), /8 experts cannot be chosen from 2 of 3 groups \(n_group/);
  assert.throws(() => load(changed({ hidden_act: 'swirl' })), /hidden_act is "swirl", an activation that is not known/);
  assert.throws(() => load(changed({ num_attention_heads: 5 })), /does not divide|query heads/);
  assert.throws(
    () => load(changed({}, { 'model.layers.0.extra.weight': [[2], 1, 1, 0] })),
    /nothing used the tensor model\.layers\.0\.extra\.weight/,
  );
  const without = familyFolder('llama', ({ config, tensors: { 'model.norm.weight': _, ...tensors } }) => ({
    config,
    tensors,
  }));
  assert.throws(() => load(without), /there is no tensor "model\.norm\.weight"/);
  assert.throws(
    () => load(changed({ intermediate_size: 64 })),
    /mlp\.gate_proj\.weight is \[80, 48\]; by the config it is \[64, 48\]/,
  );
  const empty = mkdtempSync(join(tmpdir(), 'wick-empty-'));
  writeFileSync(join(empty, 'config.json'), '[]');
  assert.throws(() => load(empty), /config\.json/);
  rmSync(empty, { recursive: true });
});

test('a text of more tokens than an indexer would choose among is refused by name', { skip: skipFamilies }, () =>
  scope(() => {
    const few = familyFolder('glm_moe_dsa', (f) => ({ ...f, config: { ...f.config, index_topk: 12 } }));
    const model = load(few);
    assert.equal(model.config.maxPositions, 12);
    const ids = answerOf('glm_moe_dsa', 'input_ids');
    const cache = model.newCache();
    noGrad(() => {
      model.forward(ids.narrow(1, 0, 12), cache);
      assert.throws(
        () => model.forward(ids.narrow(1, 12, 1), cache),
        /13 tokens; beyond 12 \(index_topk, index_topk_blocks, keep_window_size\)/,
      );
      assert.throws(
        () => model.forward(ids),
        /40 tokens; beyond 12 \(index_topk, index_topk_blocks, keep_window_size\) .* is not served/,
      );
    });
    model.dispose();
  }),
);

test('a bias that a model has and its file lacks, or that only the file has, is refused by name', {
  skip: skipFamilies,
}, () => {
  const seen = new Set<string>();
  const once = (key: string): boolean => !seen.has(key) && seen.add(key) !== undefined;
  for (const [name, whole] of Object.entries(families)) {
    const { config, tensors } = blank(whole);
    const type = String(config.model_type);
    // One of each kind a type: layers are alike. An indexer's are not read: where we serve it, it chooses all keys.
    const kind = (k: string): string => `${type} ${k.replace(/\.\d+\./, '.')}`;
    const biases = Object.keys(tensors).filter((k) => /bias$/.test(k) && !k.includes('.indexer.') && once(kind(k)));
    for (const key of biases) {
      const { [key]: _, ...rest } = tensors;
      const dir = familyFolder(name, () => ({ config, tensors: rest }));
      // A part that layers keep under two names is asked for by the one in use, or by its first.
      const asked = [key, key.replace('.mamba_decoder.', '.')];
      assert.throws(
        () => load(dir),
        (e: Error) => e instanceof FormatError && asked.some((n) => e.message.includes(`there is no tensor "${n}"`)),
        `${name} without ${key}`,
      );
    }
    const [weight] = Object.keys(tensors).filter(
      (k) => /(o_proj|out_proj|down_proj|norm\w*|gate)\.weight$/.test(k) && !(k.replace(/weight$/, 'bias') in tensors),
    );
    if (weight === undefined || !once(type)) continue;
    const extra = weight.replace(/weight$/, 'bias');
    const dir = familyFolder(name, () => ({ config, tensors: { ...tensors, [extra]: [[4], 1, 1, 0] } }));
    assert.throws(() => load(dir), new RegExp(`nothing used the tensor ${extra.replaceAll('.', '\\.')};`), name);
  }
  assert.ok(seen.size > 150, `${seen.size} kinds were tried`);
});

test('a bias that the config promises and no tensor brings is missing, and a promise taken back leaves one too many', {
  skip: skipFamilies,
}, () => {
  const changed = (name: string, more: object): string =>
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }));
  const missing: [string, object, RegExp][] = [
    ['llama', { attention_bias: true }, /no tensor "model\.layers\.0\.self_attn\.q_proj\.bias"/],
    ['llama', { mlp_bias: true }, /no tensor "model\.layers\.0\.mlp\.gate_proj\.bias"/],
    ['qwen3', { attention_bias: true }, /no tensor "model\.layers\.0\.self_attn\.q_proj\.bias"/],
    [
      'deepseek_v3',
      { attention_bias: true },
      /no tensor "model\.layers\.0\.self_attn\.(q_a_proj|kv_a_proj_with_mqa)\.bias"/,
    ],
    ['falcon', { bias: true }, /no tensor "transformer\.h\.0\.self_attention\.query_key_value\.bias"/],
    ['lfm2', { conv_bias: true }, /no tensor "model\.layers\.\d\.conv\.in_proj\.bias"/],
  ];
  for (const [name, more, rule] of missing) assert.throws(() => load(changed(name, more)), rule, name);
  const extra: [string, object][] = [
    ['gpt_neox', { attention_bias: false }],
    ['glm4', { attention_bias: false }],
    ['qwen2_moe', { qkv_bias: false }],
    ['starcoder2', { use_bias: false }],
    ['opt', { enable_bias: false }],
    ['seed_oss', { attention_bias: false }],
  ];
  for (const [name, more] of extra) assert.throws(() => load(changed(name, more)), /nothing used .*bias/, name);
});

test('a field that a config leaves out is what transformers takes; an explicit null is none', {
  skip: skipFamilies,
}, () => {
  const features = (name: string, change: (config: Readonly<Record<string, unknown>>) => object): Features => {
    const model = load(familyFolder(name, (f) => ({ ...f, config: { ...change(f.config) } })));
    const { config } = model;
    model.dispose();
    return config;
  };
  let dropped = 0;
  for (const name of ['llama', 'qwen3_moe', 'deepseek_v2', 'deepseek_v3', 'exaone_moe', 'glm4_moe', 'cohere', 'phi'])
    assert.deepEqual(
      features(name, (c) => {
        const unsaid = defaultsOf(c.model_type);
        const kept = Object.entries(c).filter(([key, value]) => !(key in unsaid && unsaid[key] === value));
        dropped += Object.keys(c).length - kept.length;
        return Object.fromEntries(kept);
      }),
      features(name, (c) => c),
      name,
    );
  assert.ok(dropped > 30, `${dropped} fields were left out`);
  const windows = (f: Features): unknown[] => f.layers.map(({ mixer: m }) => m.kind === 'attention' && m.window);
  const slides = { use_sliding_window: true, max_window_layers: 1 };
  const all = features('qwen3_moe', ({ layer_types: _, ...c }) => ({ ...c, ...slides, sliding_window: 5 }));
  assert.deepEqual(windows(all), windows(all).fill(5), 'mixtures of Qwen3 slide on every layer');
  const unsaid = features('mistral', ({ sliding_window: _, ...c }) => c);
  assert.deepEqual(windows(unsaid), windows(unsaid).fill(4096));
  const none = features('mistral', (c) => ({ ...c, sliding_window: null }));
  assert.deepEqual(windows(none), windows(none).fill(undefined));
  const kinds = ['full_attention', 'chunked_attention'];
  const llama4 = features('llama4_text', (c) => {
    const layer_types = Array.from({ length: c.num_hidden_layers as number }, (_, i) => kinds[i % 2]);
    return { ...c, layer_types, attention_chunk_size: 6 };
  });
  const chunks = llama4.layers.map(({ mixer: m }) => m.kind === 'attention' && m.chunk);
  assert.deepEqual(
    chunks,
    chunks.map((_, i) => (i % 2 ? 6 : undefined)),
    'chunks by layer, whichever layers turn',
  );
  const scaled = { logits_scaling: 4 };
  assert.equal(features('granite', (c) => ({ ...c, ...scaled })).logitFactor, 0.25);
  assert.equal(features('hyperclovax', (c) => ({ ...c, ...scaled })).logitFactor, 4, 'not a division as in Granite');
  const capped = features('gemma3_text', (c) => ({ ...c, attn_logit_softcapping: 3 })).layers[0].mixer;
  assert.ok(capped.kind === 'attention' && capped.softcap === undefined);
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
