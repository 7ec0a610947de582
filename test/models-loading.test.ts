// How models come into memory: tensors straight from their file to the device, each read once, and a GGUF file of the
// same tensors under llama.cpp's names.
import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { FormatError } from '../src/base/errors.js';
import { ggmlType } from '../src/base/blocks/types.js';
import type { GgufValue } from '../src/io/gguf-value.js';
import { writeGguf } from '../src/io/gguf-write.js';
import { builtinModel, LanguageModel } from '../src/engine/index.js';
import { loadTensors, saveTensors, writeTorch } from '../src/io/index.js';
import { SafeTensors } from '../src/io/safetensors.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { MODEL_TOLERANCE, relativeError } from '../src/parity/model-checks.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { scratch } from './io-support.js';
import { answerOf, familyFolder, skipFamilies, scenes } from './models-support.js';

test('a model is loaded tensor by tensor: nothing larger than its largest is in host memory, nothing is read twice', {
  skip: skipFamilies,
}, () => {
  const dir = familyFolder('llama');
  const file = SafeTensors.open(dir);
  const sizes = file.names.map((name) => file.record(name).byteLength);
  file.close();
  const { backend } = Device.of('cpu');
  const written: number[] = [];
  const { write } = backend;
  backend.write = function (this: typeof backend, ...args: Parameters<typeof write>) {
    written.push(args[2].length);
    return write.apply(this, args);
  };
  const told: [number, number][] = [];
  try {
    const options = { device: 'cpu', onProgress: (done: number, total: number) => void told.push([done, total]) };
    loadModel(dir, { ...options, kind: 'decoder' }).model.dispose();
  } finally {
    backend.write = write;
  }
  const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);
  assert.equal(sum(written), sum(sizes), 'bytes that went to the device');
  assert.ok(Math.max(...written) <= Math.max(...sizes), `${Math.max(...written)} bytes at once`);
  assert.deepEqual(told.at(-1), [sum(sizes), sum(sizes)], 'told of the end');
  assert.ok(
    told.every(([done], i) => i === 0 || done >= told[i - 1][0]),
    'told of every tensor, in order',
  );
});

/** Names that llama.cpp gives to the tensors of Seed-OSS, whose second norm it calls by what comes before it. */
const GGUF_NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens/, 'token_embd'],
  [/^model\.norm/, 'output_norm'],
  [/^lm_head/, 'output'],
  [/^model\.layers\./, 'blk.'],
  [/input_layernorm/, 'attn_norm'],
  [/post_attention_layernorm/, 'post_attention_norm'],
  [/self_attn\.([qkv])_proj/, 'attn_$1'],
  [/self_attn\.o_proj/, 'attn_output'],
  [/mlp\.(gate|up|down)_proj/, 'ffn_$1'],
];

/** A folder's tensors under llama.cpp's names, and what its file says of them. */
function seedOss(dir: string): { tensors: Parameters<typeof writeGguf>[2]; metadata: Map<string, GgufValue> } {
  const file = SafeTensors.open(dir);
  const tensors = file.names.map((name) => {
    const { shape } = file.record(name);
    const renamed = GGUF_NAMES.reduce((n, [from, to]) => n.replace(from, to), name);
    return { name: renamed, type: ggmlType('f32'), shape, bytes: file.record(name).read().slice() };
  });
  file.close();
  const u32 = (value: number): GgufValue => ({ type: 'u32', value });
  const f32 = (value: number): GgufValue => ({ type: 'f32', value });
  const metadata = new Map<string, GgufValue>([
    ['general.architecture', { type: 'string', value: 'seed_oss' }],
    ['seed_oss.block_count', u32(3)],
    ['seed_oss.context_length', u32(128)],
    ['seed_oss.embedding_length', u32(48)],
    ['seed_oss.feed_forward_length', u32(80)],
    ['seed_oss.attention.head_count', u32(4)],
    ['seed_oss.attention.head_count_kv', u32(2)],
    ['seed_oss.attention.key_length', u32(16)],
    ['seed_oss.attention.value_length', u32(16)],
    ['seed_oss.attention.layer_norm_rms_epsilon', f32(1e-6)],
    ['seed_oss.rope.freq_base', f32(10_000)],
  ]);
  return { tensors, metadata };
}

test(
  'Seed-OSS as a GGUF file answers as its folder does, and a file without a bias is refused',
  {
    skip: skipFamilies,
  },
  () =>
    scope(() => {
      const dir = familyFolder('seed_oss');
      const { tensors, metadata } = seedOss(dir);
      const path = join(dir, 'model.gguf');
      writeGguf(path, metadata, tensors);
      const { model } = loadModel<CausalLM>(path, { device: 'cpu', kind: 'decoder' });
      const got = noGrad(() => model.forward(answerOf('seed_oss', 'input_ids')));
      const error = relativeError(got, answerOf('seed_oss', 'logits'));
      assert.ok(error <= MODEL_TOLERANCE, `off by ${error}`);
      model.dispose();
      const lacking = join(dir, 'lacking.gguf');
      writeGguf(
        lacking,
        metadata,
        tensors.filter((t) => t.name !== 'blk.1.attn_k.bias'),
      );
      assert.throws(() => loadModel(lacking, { device: 'cpu' }), /there is no tensor "blk\.1\.attn_k\.bias"/);
    }),
);

/** Nothing is stretched. */
const PLAIN_LINEAR = { rope_type: 'linear', factor: 1, rope_theta: 10_000 };
const OLMO_ROPE = { rope_type: 'default', rope_theta: 500_000 };
const BOTH_KINDS = { full_attention: OLMO_ROPE, sliding_attention: OLMO_ROPE };
/** What a config says beside what counts, in another family's words, or past reason, as transformers takes it. */
const CONFIG_WORDS: readonly (readonly [family: string, change: object, refused?: RegExp])[] = [
  // A head that is stored and differs from the embedding counts, though the config ties them.
  ['llama', { tie_word_embeddings: true }],
  ['gpt_neox', { tie_word_embeddings: true }],
  // Heads of these turn as a whole, whatever is said.
  ['llama', { partial_rotary_factor: 0.5 }],
  ['qwen3', { partial_rotary_factor: 0.5 }],
  ['gemma', { partial_rotary_factor: 0.5 }],
  ['llama', { rotary_pct: 0.5 }, /rotary_pct is 0\.5; nothing here honours/],
  ['llama', { rope_parameters: { rope_type: 'linear', factor: 2, partial_rotary_factor: 0.5 } }, /turn as a whole/],
  ['phi', { partial_rotary_factor: 0.25 }],
  // What stands within the rope's parameters counts.
  ['phi', { rope_parameters: { ...PLAIN_LINEAR, partial_rotary_factor: 0.5 }, partial_rotary_factor: 1 }],
  ['olmo3', { rope_parameters: { ...PLAIN_LINEAR, factor: 9, ...BOTH_KINDS } }],
  // GPT-NeoX and its Japanese kin have words of their own; GPT-J none.
  ['gpt_neox', { rope_theta: 300, partial_rotary_factor: 1 }],
  ['gpt_neox_japanese', { rope_theta: 300, partial_rotary_factor: 0.5 }],
  ['gptj', { rope_theta: 300 }, /rope_theta is 300; nothing here honours/],
  // All of Mistral's layers have its window, or none has.
  ['mistral', { layer_types: ['full_attention', 'sliding_attention', 'full_attention'] }],
  // Windows and ropes apart came with the third OLMo.
  ['olmo2', { layer_types: ['sliding_attention', 'sliding_attention', 'full_attention'], sliding_window: 5 }],
  ['gemma3_text', { rope_parameters: { rope_type: 'linear', factor: 8 } }, /rope_parameters\.(rope_type|factor)/],
  ['gemma3_text', { rope_parameters: null, rope_scaling: { type: 'linear', factor: 8 } }, /rope_scaling\.type/],
  // Words that no program of transformers reads change nothing, unless another program may read them.
  ['llama', { attention_twist: 2, use_mrope: false, my_notes: { run: 3 }, rope_interleaved: false }],
  ['qwen2', { use_mrope: false, output_past: true, attention_bias: true, transformers_version: '4.44.0' }],
  ['llama', { attention_twist: 2, transformers_version: '5.19.0.dev0' }, /attention_twist is 2; nothing here honours/],
  ['llama', { attention_twist: 2, transformers_version: '6.0.0' }, /attention_twist is 2; nothing here honours/],
  ['llama', { attention_twist: 2, auto_map: { AutoTokenizer: 'own.Tokenizer' } }],
  ['llama', { attention_twist: 2, auto_map: { AutoModel: 'own.Model' } }, /attention_twist is 2; nothing here honours/],
  ['phi3', { full_attn_mod: 1, interpolate_factor: 1, mlp_bias: false, auto_map: { AutoConfig: 'own.Config' } }],
  ['starcoder2', { norm_type: 'layer_norm', mlp_type: 'default', layer_norm_epsilon: 1e-5 }],
  ['starcoder2', { norm_type: 'rms' }, /norm_type is "rms"/],
  ['falcon', { n_head: 8 }, /n_head is 8; .* only 4 is served/],
  // No expert is left of no group.
  ['exaone_moe', { topk_group: 0 }, /topk_group is 0, not a whole number from 1/],
  ['deepseek_v3', { topk_group: 0 }, /topk_group is 0, not a whole number from 1/],
];
for (const [name, change, refused] of CONFIG_WORDS)
  test(
    `${name} with ${JSON.stringify(change)} ${refused ? 'is refused by name' : 'is the same model'}`,
    {
      skip: skipFamilies,
    },
    () =>
      scope(() => {
        const dir = familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...change } }));
        const load = (): CausalLM => loadModel<CausalLM>(dir, { kind: 'decoder', device: 'cpu' }).model;
        if (refused) return void assert.throws(load, refused);
        const model = load();
        const error = relativeError(
          noGrad(() => model.forward(answerOf(name, 'input_ids'))),
          answerOf(name, 'logits'),
        );
        assert.ok(error <= MODEL_TOLERANCE, `logits are off by ${error}`);
        model.dispose();
      }),
  );

test('configs inside others may say what older versions wrote into all of them; other values are refused', {
  skip: Object.keys(scenes).length === 0 && 'no golden models',
}, () => {
  const said = { add_cross_attention: false, is_decoder: false, use_cache: true, tie_word_embeddings: true };
  const name = Object.keys(scenes).find((n) => scenes[n].config.backbone_config) as string;
  const open = (more: object): void => {
    const within = (c: Readonly<Record<string, unknown>>): object => ({ ...(c.backbone_config as object), ...more });
    const dir = familyFolder(
      name,
      (f) => ({ ...f, config: { ...f.config, backbone_config: within(f.config) } }),
      scenes,
    );
    loadModel(dir, { device: 'cpu' }).model.dispose();
  };
  open(said);
  assert.throws(() => open({ is_decoder: true }), /backbone_config.is_decoder is true; nothing here honours/);
  assert.throws(() => open({ add_cross_attention: true }), /backbone_config.add_cross_attention is true/);
});

test(
  'names that all begin as a wrapper of PyTorch writes them are those behind it; where one does not, all stay',
  {
    skip: skipFamilies,
  },
  () =>
    scope(() => {
      const wrapped = (but?: string): string =>
        familyFolder('llama', (f) => ({
          ...f,
          tensors: Object.fromEntries(Object.entries(f.tensors).map(([k, v]) => [k === but ? k : `module.${k}`, v])),
        }));
      const model = loadModel<CausalLM>(wrapped(), { kind: 'decoder', device: 'cpu' }).model;
      const error = relativeError(
        noGrad(() => model.forward(answerOf('llama', 'input_ids'))),
        answerOf('llama', 'logits'),
      );
      assert.ok(error <= MODEL_TOLERANCE, `logits are off by ${error}`);
      model.dispose();
      assert.throws(() => loadModel(wrapped('lm_head.weight'), { device: 'cpu' }), /there are module\.model\.embed/);
    }),
);

test('answers end at the tokens of generation_config.json, which count before those of config.json', async () => {
  const dir = scratch();
  for (const name of ['config.json', 'tokenizer.json', 'model.safetensors'])
    cpSync(join(builtinModel, name), join(dir, name));
  const says = (json: object): void => writeFileSync(join(dir, 'generation_config.json'), JSON.stringify(json));
  const ends = async (): Promise<readonly number[]> => {
    const model = await LanguageModel.load(dir, { device: 'cpu' });
    const { eosTokenIds } = model.model.config;
    model.dispose();
    return eosTokenIds;
  };
  assert.deepEqual(await ends(), [0], 'of config.json');
  says({ temperature: 0.6, eos_token_id: null });
  assert.deepEqual(await ends(), [0], 'where it names none');
  says({ eos_token_id: 7 });
  assert.deepEqual(await ends(), [7]);
  says({ eos_token_id: [7, 0] });
  assert.deepEqual(await ends(), [7, 0]);
  says({ eos_token_id: [7, -1, 1024] });
  assert.deepEqual(await ends(), [7], 'without those that the vocabulary has not');
  for (const wrong of ['7', 2.5, {}, [0, null]]) {
    says({ eos_token_id: wrong });
    await assert.rejects(ends(), (e: Error) => e instanceof FormatError && e.message.includes('eos_token_id is'));
  }
});

/** What a GGUF file says of its special tokens, and where answers end then. */
const GGUF_ENDS: readonly (readonly [
  said: string,
  special: readonly string[],
  ids: object,
  ends: readonly number[],
])[] = [
  ['names the end of texts alone', ['</s>', '<|im_end|>'], { eos: 0 }, [0, 1]],
  ['names the end of turns', ['</s>', '<|im_end|>', '<|eot_id|>'], { eos: 0, eot: 2 }, [0, 2]],
  ['names the end of turns as that of texts', ['</s>', '<end_of_turn>'], { eos: 1 }, [1]],
  ['has messages inside of answers', ['<|endoftext|>', '<|end|>', '<|return|>', '<|call|>'], { eos: 2 }, [2, 3]],
  ['names nothing', ['<s>', 'x'], {}, []],
];
for (const [said, special, ids, ends] of GGUF_ENDS)
  test(`answers of a GGUF file that ${said} end where its model means them to`, { skip: skipFamilies }, () => {
    const dir = familyFolder('seed_oss');
    const path = join(dir, 'ends.gguf');
    const { tensors, metadata } = seedOss(dir);
    const vocab = Array.from({ length: 160 }, (_, i) => special[i] ?? `<|im_end|>${i}`);
    const kinds = vocab.map((_, i) => (i < special.length ? 3 : 1));
    metadata.set('tokenizer.ggml.tokens', { type: 'array', of: 'string', value: vocab });
    metadata.set('tokenizer.ggml.token_type', { type: 'array', of: 'i32', value: Int32Array.from(kinds) });
    for (const [name, value] of Object.entries(ids))
      metadata.set(`tokenizer.ggml.${name}_token_id`, { type: 'u32', value });
    writeGguf(path, metadata, tensors);
    const { model } = loadModel<CausalLM>(path, { device: 'cpu', kind: 'decoder' });
    assert.deepEqual(model.config.eosTokenIds, ends);
    model.dispose();
  });

test(
  'tables of what heads fade to count as a file has them, for whole prompts and token by token',
  {
    skip: skipFamilies,
  },
  () =>
    scope(() => {
      const block = 16;
      /** The folder of a MiniMax with tables whose heads fade `times` as fast as its config says. */
      const withTables = (times: number): string => {
        const dir = familyFolder('minimax', (f) => ({ ...f, config: { ...f.config, block_size: block } }));
        const tensors = loadTensors(join(dir, 'model.safetensors'), { device: 'cpu' });
        for (const key of [...tensors.keys()].filter((k) => k.endsWith('self_attn.qkv_proj.weight'))) {
          const at = key.replace('qkv_proj.weight', '');
          const layer = Number(at.split('.')[2]);
          const [heads, layers] = [4, 3];
          const deep = 1 - layer / (layers - 1 + 1e-5) + 1e-5;
          const table = (name: string, shape: number[], of: (rate: number, i: number) => number): void => {
            const each = shape.reduce((a, b) => a * b, 1) / heads;
            const rate = (i: number): number => times * deep * 2 ** ((-8 / heads) * (Math.floor(i / each) + 1));
            const data = Float32Array.from({ length: heads * each }, (_, i) => of(rate(i), i % each));
            tensors.set(`${at}${name}`, tensor(data, { shape, device: 'cpu' }));
          };
          table('slope_rate', [heads, 1, 1], (r) => r);
          table('query_decay', [heads, block, 1], (r, i) => Math.exp(-r * (i + 1)));
          table('key_decay', [heads, block, 1], (r, i) => Math.exp(-r * (block - i - 1)));
          table('diagonal_decay', [1, heads, block, block], (r, i) => {
            const past = Math.floor(i / block) - (i % block);
            return past >= 0 ? Math.exp(-r * past) : 0;
          });
        }
        saveTensors(join(dir, 'model.safetensors'), tensors);
        return dir;
      };
      const ids = answerOf('minimax', 'input_ids');
      const answers = (times: number): { whole: Tensor; stepwise: Tensor } => {
        const { model } = loadModel<CausalLM>(withTables(times), { device: 'cpu', kind: 'decoder' });
        return noGrad(() => {
          const cache = model.newCache();
          const [first, ...rest] = Array.from({ length: ids.shape[1] }, (_, i) =>
            model.forward(ids.narrow(1, i, 1), cache),
          );
          return { whole: model.forward(ids), stepwise: first.cat(rest, 1) };
        });
      };
      const want = answerOf('minimax', 'logits');
      const same = answers(1);
      assert.ok(relativeError(same.whole, want) <= MODEL_TOLERANCE, 'the tables that the config makes');
      assert.ok(relativeError(same.stepwise, want) <= MODEL_TOLERANCE, 'the same, token by token');
      const other = answers(1.5);
      assert.ok(relativeError(other.whole, want) > 100 * MODEL_TOLERANCE, 'other tables give other answers');
      assert.ok(relativeError(other.stepwise, other.whole) <= MODEL_TOLERANCE, 'and the same ones token by token');
    }),
);

test('counts beyond any model are refused by their name before lists are made of them', () => {
  const dir = join(scratch(), 'many');
  cpSync(builtinModel, dir, { recursive: true });
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8'));
  for (const name of ['num_hidden_layers', 'head_dim', 'vocab_size', 'intermediate_size']) {
    writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...config, [name]: 1e8 }));
    assert.throws(
      () => loadModel(dir, { device: 'cpu' }),
      (e: unknown) => e instanceof FormatError && e.message.includes(`${name} is 100000000, and no model has more`),
      name,
    );
  }
  // A base and positions are no counts of what a model has.
  const long = { ...config, max_position_embeddings: 10_485_760, rope_theta: 1e8 };
  writeFileSync(join(dir, 'config.json'), JSON.stringify(long));
  loadModel(dir, { device: 'cpu' }).model.dispose();
});

for (const parts of [1, 3])
  test(`a folder of PyTorch's files, ${parts === 1 ? 'one' : 'several'}, is the model that its safetensors are`, () => {
    const dir = join(scratch(), 'torch');
    cpSync(builtinModel, dir, { recursive: true });
    const ids = tensor(Int32Array.of(5, 60, 7, 33), { shape: [1, 4], device: 'cpu' });
    const answer = (): unknown => {
      const { model } = loadModel<CausalLM>(dir, { device: 'cpu' });
      const out = scope(() => noGrad(() => model.forward(ids)).toArray());
      model.dispose();
      return out;
    };
    const want = answer();
    const stored = SafeTensors.open(dir);
    const shards = Array.from({ length: parts }, (_, i) => stored.names.filter((_, k) => k % parts === i));
    const file = (i: number): string => (parts === 1 ? 'pytorch_model.bin' : `pytorch_model-0000${i}-of-00003.bin`);
    shards.forEach((names, i) =>
      writeTorch(
        join(dir, file(i)),
        names.map((name) => stored.record(name)),
      ),
    );
    stored.close();
    for (const name of readdirSync(dir)) if (name.includes('safetensors')) rmSync(join(dir, name));
    const index = (map: [string, string][]): void =>
      writeFileSync(join(dir, 'pytorch_model.bin.index.json'), JSON.stringify({ weight_map: Object.fromEntries(map) }));
    const map = shards.flatMap((names, i) => names.map((name): [string, string] => [name, file(i)]));
    if (parts > 1) index(map);
    // Safetensors of another name are not the model's.
    const other = new Map([['x', tensor(Float32Array.of(1), { shape: [1], device: 'cpu' })]]);
    saveTensors(join(dir, 'answers.safetensors'), other);
    assert.deepEqual(answer(), want);
    rmSync(join(dir, 'answers.safetensors'));
    const refused = (message: RegExp): void =>
      assert.throws(answer, (e: unknown) => e instanceof FormatError && message.test(e.message));
    if (parts > 1) {
      index([...map, ['more', file(0)]]);
      refused(/weight_map: tensor "more" is not in pytorch_model-00000-of-00003\.bin/);
      index([...map, ['more', '../elsewhere.bin']]);
      refused(/"more" names "\.\.\/elsewhere\.bin", which is no \*\.bin file beside it/);
    }
    for (const name of readdirSync(dir)) if (name.includes('pytorch_model')) rmSync(join(dir, name));
    refused(/holds no \*\.safetensors file, no pytorch_model\.bin and no pytorch_model\.bin\.index\.json/);
  });
