// Folders written as GGUF: every family that has an architecture there answers from its file as it does from its
// folder, and what a file cannot say is refused by name.
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { UnsupportedError } from '../src/base/errors.js';
import { LanguageModel } from '../src/engine/index.js';
import { Gguf, type GgufValue, writeGguf } from '../src/io/index.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { quantizeGguf } from '../src/models/gguf/quantize-gguf.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { BYTE_CHARACTERS } from '../src/tokenizers/byte-level.js';
import { loadTokenizer, type Tokenizer, tokenizerFromGguf } from '../src/tokenizers/index.js';
import { PRE_TYPES } from '../src/tokenizers/pre-types.js';
import { ggufTokenizer, SAMPLES } from '../src/tokenizers/to-gguf.js';
import { scratch, wick } from './cli-support.js';
import { families, familyFolder, skipFamilies } from './models-support.js';

const dir = scratch();
const IDS = tensor(
  Int32Array.from({ length: 48 }, (_, i) => (i * 7919 + 11) % 61),
  { shape: [2, 24], device: 'cpu' },
);
function logitsOf(path: string): Tensor {
  const { model } = loadModel<CausalLM>(path, { kind: 'decoder' });
  const out = noGrad(() => model.forward(IDS));
  model.dispose();
  return out;
}
const distance = (a: Tensor, b: Tensor): number => a.sub(b).abs().max().item() / b.abs().max().item();

/** Types that no architecture of the table stands for. */
const WITHOUT = new Set(
  `cohere_compass_text minimax_m3_vl_text aria_text axk1 ctrl deepseek_v32 glm_moe_dsa gpt_neox_japanese
  kimi_linear modernbert-decoder olmo_hybrid biogpt bitnet codegen cwm dbrx flex_olmo gpt_neo gptj helium
  hyperclovax jetmoe minicpm3 minimax nanochat openai-gpt opt persimmon recurrent_gemma rwkv solar_open vaultgemma
  xglm youtu zamba zamba2 diffllama doge mllama_text_model longcat_flash
  hrm_text xlstm zaya deepseek_v4 axk2 hy_v4`.split(/\s+/),
);
/** Models that a file of their architecture would not be, by the folder's name: what is said of them. */
const REFUSED: Readonly<Record<string, RegExp>> = {
  ...{ 'lfm2-b': /no bias on convIn, this model has one/, 'lfm2_moe-b': /weights is "kept", there "normalised"/ },
  ...{ 'dots1-b': /window is 8/, 'mistral-b': /window is 9/, 'qwen2-b': /window is 8/, 'qwen2_moe-c': /window is 8/ },
  ...{ 'qwen3-b': /window is 7/, 'qwen3_moe-c': /window is 8/, 'qwen3_moe-d': /window is 5/ },
  ...{ 'gpt_oss-b': /window is nothing, there 6/, 'smollm3-b': /layers\[1\]\.mixer\.rope is nothing/ },
  ...{ 'falcon-c': /parallel is nothing, there "shared"/, 'falcon-d': /alibi is \[/ },
  ...{ 'falcon-f': /activation is "relu"/, 'gpt2-c': /activation is "relu"/, 'gpt_neox-c': /activation is "gelu_new"/ },
  ...{ 'phi-c': /activation is "gelu"/, 'phi-b': /qkNorm is /, 'llama4_text-b': /qkNorm is nothing/ },
  ...{
    'llama-c': /activation is "gelu"/,
    gemma2: /scale is 0\.204/,
    'gemma2-b': /window is nothing, there 6/,
    gemma3_text: /scale is 0\.204/,
  },
  ...{ 'gpt2-b': /scale is 1,/, 'gpt_bigcode-b': /kvHeads is 4, there 1/, 'olmoe-b': /clip is 0\.8/ },
  ...{
    gpt_neox: /rope\.tables\[0\]\.inv/,
    'llama-d': /rope\.tables\[1\]\.inv/,
    llama4_text: /temperature\.beta is 0\.3/,
  },
  ...{ 'gpt_neox-b': /a bias on q, this model has none/, 'qwen2_moe-b': /a bias on q, this model has none/ },
  ...{ 'qwen3_next-b': /weights is "kept", there "normalised"/, 'granitemoehybrid-b': /embedFactor is 3, there 1/ },
  ...{ 'falcon_h1-b': /embedFactor is 1\.5, there 1/, 'falcon_h1-c': /state\.gating is "norm first"/ },
  ...{ nemotron_h: /feed_forward_length differs by layer/, 'nemotron_h-b': /feed_forward_length differs by layer/ },
  ...{ falcon_mamba: /mixer\.norms\.eps is 0\.01/, granite_swa: /layers\[2\]\.mixer\.rope\.tables/ },
  ...{ granitemoe_swa: /layers\[2\]\.mixer\.rope\.tables/, 'laguna-b': /layers\[0\]\.mixer\.rope\.tables/ },
  ...{ ministral: /window is 9/, 'ministral-b': /window is 16/, afmoe: /embedFactor is 1, there 6\.9/ },
  ...{ 'bamba-b': /mixer\.limits is \[0\.3,0\.9\]/, 'cohere2_moe-b': /mlp\.shared\.factor is nothing, there 0\.5/ },
  ...{ 'phimoe-c': /rope\.tables\[1\]\.factor/, 'gemma3n_text-b': /streams\.scaled is false/ },
  ...{ 'bloom-b': /layers\[0\]\.ontoNormed is \{/ },
  ...{ 'seed_oss-b': /no bias on gate, this model has one/, qwen3_moe: /weights is "kept", there "normalised"/ },
};

test('what a folder of transformers says and a file cannot is refused by name', {
  skip: missingGolden('hf/gemma3', 'hf/bert'),
}, async () => {
  const refused = async (name: string, reason: RegExp): Promise<void> =>
    assert.rejects(
      quantizeGguf(findGolden('hf', name) as string, join(dir, 'none.gguf'), { type: 'f32' }),
      (e: Error) => e instanceof UnsupportedError && reason.test(e.message),
    );
  await refused('gemma3', /architecture gemma3 cannot say .* layers\[0\]\.mixer\.scale is 0\.2236/);
  await refused('bert', /a model of kind encoder; only decoders are written as GGUF/);
});

for (const [name, { config }] of Object.entries(families))
  test(`family ${name} as GGUF in f32: the folder's logits, or a refusal by name`, { skip: skipFamilies }, async () => {
    const folder = familyFolder(name);
    const to = join(dir, `${name}.gguf`);
    const type = String(config.model_type);
    const reason = WITHOUT.has(type) ? new RegExp(`models of type ${type} have no GGUF form here`) : REFUSED[name];
    const made = quantizeGguf(folder, to, { type: 'f32' });
    if (reason) {
      await assert.rejects(made, (e: Error) => e instanceof UnsupportedError && reason.test(e.message));
      return assert.equal(existsSync(to), false);
    }
    await made;
    scope(() => {
      const off = distance(logitsOf(to), logitsOf(folder));
      assert.ok(off <= 1e-5, `off by ${off}`);
    });
    rmSync(to);
  });

test('an activation under its other name has a GGUF form, too', { skip: skipFamilies }, async () => {
  const folder = familyFolder('llama', (f) => ({ ...f, config: { ...f.config, hidden_act: 'swish' } }));
  const to = join(dir, 'swish.gguf');
  await quantizeGguf(folder, to, { type: 'f32' });
  scope(() => assert.ok(distance(logitsOf(to), logitsOf(folder)) <= 1e-5));
});

test('files that hold the model of another architecture under their own name are read as that', {
  skip: skipFamilies,
}, async () => {
  for (const [name, plain, own] of [
    ['qwen2', 'qwen2', 'qwen2vl'],
    ['qwen3', 'qwen3', 'qwen3vl'],
    ['qwen3_moe', 'qwen3moe', 'qwen3vlmoe'],
    ['llama', 'llama', 'internlm2'],
    ['llama', 'llama', 'xverse'],
    ['granite', 'granite', 'minicpm'],
  ]) {
    const [from, to] = [join(dir, `${plain}.gguf`), join(dir, `${own}.gguf`)];
    const folder = familyFolder(name, (f) => ({
      ...f,
      config: {
        ...f.config,
        ...(name === 'qwen3_moe' && { norm_topk_prob: true }),
        // MiniCPM's scores have no factor of their own.
        ...(name === 'granite' && { attention_multiplier: 1 / Math.sqrt(12) }),
      },
    }));
    await quantizeGguf(folder, from, { type: 'f32' });
    const file = Gguf.open(from);
    const metadata = new Map<string, GgufValue>(
      [...file.metadata].map(([key, v]) => [key.replace(`${plain}.`, `${own}.`), v]),
    );
    metadata.set('general.architecture', { type: 'string', value: own });
    if (own === 'minicpm') metadata.delete('minicpm.attention.scale');
    if (own.startsWith('qwen'))
      metadata.set(`${own}.rope.dimension_sections`, { type: 'array', of: 'i32', value: Int32Array.of(2, 2, 2, 0) });
    if (own.startsWith('qwen3')) metadata.set(`${own}.n_deepstack_layers`, { type: 'u32', value: 3 });
    const tensors = file.names.map((name) => {
      const { type, shape } = file.info(name);
      return { name, type, shape, bytes: file.raw(name) };
    });
    writeGguf(to, metadata, tensors);
    scope(() => assert.ok(distance(logitsOf(to), logitsOf(folder)) <= 1e-5, own));
  }
});

test('a Nemotron-H whose blocks are mixtures or none answers from its file as from its folder', {
  skip: skipFamilies,
}, async () => {
  const folder = familyFolder('nemotron_h', ({ config, tensors }) => ({
    config: { ...config, layers_block_type: (config.layers_block_type as string[]).slice(0, 3) },
    tensors: Object.fromEntries(Object.entries(tensors).filter(([name]) => !name.startsWith('backbone.layers.3.'))),
  }));
  const to = join(dir, 'nemotron.gguf');
  await quantizeGguf(folder, to, { type: 'f32' });
  scope(() => assert.ok(distance(logitsOf(to), logitsOf(folder)) <= 1e-5));
});

const GOLDEN = [
  ...['llama', 'llama3-rope', 'yarn-llama', 'qwen2', 'qwen3', 'qwen3_moe-b', 'gpt2', 'phi3-longrope'],
  ...['deepseek_v3', 'gpt_oss', 'olmo2-b', 'qwen3_next'],
];
const MIXTURES = ['qwen3_moe-b', 'deepseek_v3', 'gpt_oss', 'qwen3_next'];
for (const name of GOLDEN)
  test(`${name} of transformers as GGUF in f32 and q8_0`, { skip: missingGolden(`hf/${name}`) }, async () => {
    const folder = findGolden('hf', name) as string;
    const [plain, small] = ['f32', 'q8_0'].map((type) => join(dir, `${name}-${type}.gguf`));
    await quantizeGguf(folder, plain, { type: 'f32' });
    const { tensors } = await quantizeGguf(folder, small, { type: 'q8_0' });
    scope(() => {
      const want = logitsOf(folder);
      const [off, lost] = [distance(logitsOf(plain), want), distance(logitsOf(small), want)];
      assert.ok(off <= 1e-5, `f32 is off by ${off}`);
      // A router of random weights sends tokens elsewhere for less than 8 bits leave out.
      assert.ok(lost <= (MIXTURES.includes(name) ? 1 : 0.05), `q8_0 is off by ${lost}`);
    });
    const worst = Math.max(...tensors.map((t) => (t.to === 'Q8_0' ? (t.error ?? 0) : 0)));
    assert.ok(worst > 0 && worst < 0.02, `errors of tensors up to ${worst}`);
  });

/** Where a file's keys are asked for as a file's are. */
const tokensOf = (entries: ReadonlyMap<string, GgufValue>) =>
  tokenizerFromGguf({ get: (key) => entries.get(key)?.value });

/**
 * Tokens of one byte each, then what is merged of them, then two special ones, the first of which begins every text.
 */
function byteLevelFolder(pattern: string, more: object = {}): string {
  const merges = ['h e', 'l l', 'he ll', 'Ġ w', 'o r', '1 2', 'Ċ Ċ', '3 4', '12 34', "' s"].map((m) => m.split(' '));
  const tokens = [...BYTE_CHARACTERS, ...merges.map((m) => m.join(''))];
  const special = ['<|begin|>', '<|end|>'];
  const added = special.map((content, i) => ({ id: tokens.length + i, content, special: true }));
  const level = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  const cut = { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false };
  const parts = [{ SpecialToken: { id: special[0], type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }];
  const special_tokens = { [special[0]]: { id: special[0], ids: [tokens.length], tokens: [special[0]] } };
  const folder = mkdtempSync(join(dir, 'bytes-'));
  const put = (name: string, json: object): void => writeFileSync(join(folder, name), JSON.stringify(json));
  put('tokenizer.json', {
    added_tokens: added,
    pre_tokenizer: { type: 'Sequence', pretokenizers: [cut, level] },
    post_processor: { type: 'TemplateProcessing', single: parts, pair: parts, special_tokens },
    decoder: level,
    model: { type: 'BPE', vocab: Object.fromEntries(tokens.map((t, i) => [t, i])), merges, ...more },
  });
  const chat_template = '{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}';
  put('tokenizer_config.json', { bos_token: special[0], eos_token: special[1], chat_template });
  return folder;
}

test('byte-level tokenizers get the name of the pre-tokenizer that cuts as theirs, and give the same tokens', () => {
  for (const [name, { patterns, ignoreMerges }] of PRE_TYPES) {
    if (!['llama3', 'dbrx', 'qwen2', 'gpt-4o', 'gpt-2', 'tekken', 'bloom'].includes(name)) continue;
    const folder = byteLevelFolder(patterns[0], { ignore_merges: ignoreMerges === true });
    const { entries, notes } = ggufTokenizer(folder, 'mine', 300);
    assert.deepEqual(notes, []);
    const pre = entries.get('tokenizer.ggml.pre')?.value as string;
    assert.deepEqual(PRE_TYPES.get(pre)?.patterns, patterns, `${name} is written as ${pre}`);
    const [own, file] = [loadTokenizer(folder), tokensOf(entries)];
    for (const text of [...SAMPLES, 'hello 1234 world<|end|>\n\nhe', 'x<|begin|>'])
      assert.deepEqual(file.encode(text), own.encode(text), text);
    assert.equal(file.encode('a')[0], own.roleId('bos'), 'the beginning is kept');
    assert.deepEqual([file.roleId('bos'), file.roleId('eos')], [266, 267]);
    const chat = (t: Tokenizer): string | undefined => t.chatTemplates?.render([{ role: 'user', content: 'hello' }]);
    assert.equal(chat(file), '<|begin|>hello');
    assert.equal(file.token(299), '[PAD299]');
  }
  const named = ggufTokenizer(byteLevelFolder(PRE_TYPES.get('gpt-2')!.patterns[0]), 'mpt', 300).entries;
  assert.equal(
    named.get('tokenizer.ggml.pre')?.value,
    'mpt',
    'of names that mean the same, the architecture has its own',
  );
  assert.throws(
    () => ggufTokenizer(byteLevelFolder('[aeiou]+'), 'mine', 300),
    /no pre-tokenizer that GGUF files name cuts/,
  );
  assert.throws(() => ggufTokenizer(byteLevelFolder('x'), 'mine', 200), /268 tokens, the model's embedding 200 rows/);
});

/** The tokenizer.json of pieces with scores: every way to make a piece of two others, the best pieces first. */
function mergesOf(pieces: readonly { text: string; score: number; type: number }[]): string[][] {
  const known = new Set(pieces.map((p) => p.text));
  return pieces
    .filter((p) => p.type === 1)
    .sort((a, b) => b.score - a.score)
    .flatMap(({ text }) =>
      Array.from({ length: text.length - 1 }, (_, i) => [text.slice(0, i + 1), text.slice(i + 1)]).filter((pair) =>
        pair.every((part) => known.has(part)),
      ),
    );
}
/** A folder as Llama's are: pieces, bytes for what is none, a space before the text. */
function pieceFolder(pieces: readonly { text: string; score: number; type: number }[]): string {
  const folder = mkdtempSync(join(dir, 'pieces-'));
  const put = (name: string, json: object): void => writeFileSync(join(folder, name), JSON.stringify(json));
  const added = pieces.flatMap(({ text, type }, id) =>
    type === 2 || type === 3 ? [{ id, content: text, special: true }] : [],
  );
  put('tokenizer.json', {
    added_tokens: added,
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'Prepend', prepend: '\u2581' },
        { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' },
      ],
    },
    model: {
      ...{ type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true, merges: mergesOf(pieces) },
      vocab: Object.fromEntries(pieces.map((p, i) => [p.text, i])),
    },
  });
  put('tokenizer_config.json', { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>' });
  return folder;
}

test('pieces: the scores of merges without a tokenizer.model, and the numbers of the file are those of the folder', {
  skip: missingGolden('gguf/llama/f32.gguf'),
}, () => {
  using file = Gguf.open(findGolden('gguf/llama/f32.gguf') as string);
  const [texts, scores, types] = ['tokens', 'scores', 'token_type'].map((k) =>
    Array.from(file.get(`tokenizer.ggml.${k}`) as ArrayLike<unknown>),
  );
  const pieces = texts.map((text, i) => ({ text: String(text), score: Number(scores[i]), type: Number(types[i]) }));
  const folder = pieceFolder(pieces);
  const { entries } = ggufTokenizer(folder, 'llama', pieces.length);
  assert.equal(entries.get('tokenizer.ggml.add_space_prefix')?.value, true);
  assert.deepEqual(Array.from(entries.get('tokenizer.ggml.token_type')?.value as Int32Array), types);
  const [own, made, stored] = [loadTokenizer(folder), tokensOf(entries), tokenizerFromGguf(file)];
  for (const text of [...SAMPLES, 'the cat sat on the mat', 'once upon a time'])
    for (const [what, t] of Object.entries({ folder: own, stored }))
      assert.deepEqual(made.encode(text, { special: false }), t.encode(text, { special: false }), `${what}: ${text}`);
});

test('stories260K from its folder to a file: the tokenizer is in the file, and the story is the one it tells', {
  skip: missingGolden('stories260K'),
}, async () => {
  using stored = Gguf.open(findGolden('stories260K', 'gguf', 'stories260K.gguf') as string);
  const list = (k: string): unknown[] => Array.from(stored.get(`tokenizer.ggml.${k}`) as ArrayLike<unknown>);
  const [texts, scores, types] = [list('tokens'), list('scores'), list('token_type')];
  const folder = pieceFolder(
    texts.map((text, i) => ({ text: String(text), score: Number(scores[i]), type: Number(types[i]) })),
  );
  for (const name of ['config.json', 'model.safetensors'])
    copyFileSync(findGolden('stories260K', 'hf', name) as string, join(folder, name));
  const to = join(dir, 'stories.gguf');
  const { status, stdout, stderr } = wick('quantize', folder, to, '--type', 'f32');
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^blk\.0\.attn_q\.weight +F32 +F32/m);
  const model = await LanguageModel.load(to);
  let story = '';
  for await (const piece of model.generate('', { maxTokens: 60, temperature: 0 })) story += piece;
  const want = readFileSync(findGolden('stories260K', 'expected_greedy_200.txt') as string, 'utf8');
  assert.ok(story.length > 80 && want.trim().startsWith(story.trim()), story);
});
