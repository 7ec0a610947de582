// What the configs and files of decoders say: read as transformers reads it, or refused by name.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { FormatError } from '../src/base/errors.js';
import type { Features } from '../src/models/decoder/features.js';
import { defaultsOf } from '../src/models/families/defaults.js';
import { type CausalLM, Llama, loadModel } from '../src/models/index.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { MODEL_TOLERANCE, relativeError } from '../src/parity/model-checks.js';
import { noGrad } from '../src/tensor/autograd.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import { answerOf, blank, families, familyFolder, skipFamilies } from './models-support.js';

const load = (dir: string, device: Device | string = 'cpu'): CausalLM =>
  loadModel<CausalLM>(dir, { device, kind: 'decoder' }).model;

test('sizes that the class of a type does not have change nothing, and those that it has do', {
  skip: skipFamilies,
}, () => {
  for (const [name, more] of [
    ['gpt_neox', { num_key_value_heads: 1 }],
    ['gpt2', { intermediate_size: 40, num_key_value_heads: 2 }],
    ['mamba2', { num_attention_heads: 3, max_position_embeddings: 64 }],
    ['deepseek_v3', { num_key_value_heads: 2 }],
  ] as const)
    scope(() => {
      const model = load(familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } })));
      const error = relativeError(
        noGrad(() => model.forward(answerOf(name, 'input_ids'))),
        answerOf(name, 'logits'),
      );
      assert.ok(error <= MODEL_TOLERANCE, `${name}: logits are off by ${error}`);
      model.dispose();
    });
  const wide = familyFolder('mamba', (f) => ({ ...f, config: { ...f.config, intermediate_size: 64 } }));
  assert.throws(() => load(wide), /in_proj\.weight/);
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
  assert.throws(() => load(changed({ use_qk_norm: true })), /use_qk_norm is true; nothing here honours this field/);
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
