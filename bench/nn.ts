// Attention, training, prefill and decoding at the sizes people quote: node dist/bench/nn.js --device cuda:0
//   [--only attention,decode,...]
// Numbers are of this machine in this run, PyTorch's beside them where it is installed; --json FILE keeps them all;
// --layers N shortens shapes of other families than Llama, to look into them; --decode measures nothing but decoding,
// --prefill nothing but prompts, and --contexts 2048,8192 decoding behind prompts of these lengths, too.
import { commitNow } from '../src/parity/provenance.js';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { bytesOf } from '../src/base/dtype.js';
import { table } from '../src/cli/table.js';
import { Device, type DType, Generator, noGrad, QTensor, randn, scope, tensor, type Tensor } from '../src/index.js';
import { GraphDecoder, PlainDecoder } from '../src/engine/index.js';
import { Sampler } from '../src/engine/sampler.js';
import { type CausalLM, Llama, type LlamaConfig, newDecoder } from '../src/models/index.js';
import type { AttentionMixer } from '../src/models/decoder/mixers.js';
import { type Dense, Mixture } from '../src/models/decoder/mlp.js';
import { AdamW, clipGradNorm, FlatParameters, initialise, normal, ONE, VarBuilder, VarMap } from '../src/nn/index.js';
import { setProducts } from '../src/nn/quantize.js';
import type { BlockType } from '../src/ops/quantized.js';
import type { QPart, Weight } from '../src/tensor/qtensor.js';

const { values: v } = parseArgs({
  options: {
    device: { type: 'string', default: 'cpu' },
    only: { type: 'string', default: 'copy,attention,attention-decode,train,1b,8b' },
    dtype: { type: 'string' },
    json: { type: 'string' },
    layers: { type: 'string' },
    decode: { type: 'boolean', default: false },
    prefill: { type: 'boolean', default: false },
    contexts: { type: 'string' },
    'no-peers': { type: 'boolean', default: false },
  },
});
const contexts = v.contexts?.split(',').map(Number) ?? [];
const device = Device.get(v.device);
const small = device.name === 'cpu' || device.name.startsWith('sim');
const dtype = (v.dtype ?? (small ? 'f32' : 'bf16')) as DType;
const results: { name: string; value: number; unit: string; torch?: number; ofTorch?: number }[] = [];
const report = (name: string, value: number, unit: string): void => {
  results.push({ name, value, unit });
  console.log(`${name.padEnd(64)} ${value.toPrecision(5)} ${unit}`);
};

/** Seconds of one call: the best of several rounds, each long enough to time. */
async function time(f: () => void, rounds = 5, seconds = 0.2): Promise<number> {
  f();
  await device.sync();
  let begin = performance.now();
  f();
  await device.sync();
  const once = Math.max(1e-6, (performance.now() - begin) / 1000);
  const count = Math.max(1, Math.round(seconds / once));
  let best = Infinity;
  for (let r = 0; r < rounds; r++) {
    begin = performance.now();
    for (let i = 0; i < count; i++) f();
    await device.sync();
    best = Math.min(best, (performance.now() - begin) / 1000 / count);
  }
  return best;
}
const random = (shape: number[], seed: number): Tensor => randn(shape, { seed, device }).cast(dtype);

async function attentionForward(): Promise<void> {
  const sizes = small
    ? [
        [1, 8, 512, 64],
        [1, 4, 1024, 128],
      ]
    : [
        [4, 32, 4096, 128],
        [16, 16, 1024, 64],
        [4, 16, 4096, 256],
        [1, 16, 131072, 128],
      ];
  for (const [b, h, t, d] of sizes)
    for (const causal of [true, false]) {
      const [q, k, x] = [1, 2, 3].map((s) => random([b, h, t, d], s));
      const seconds = await time(() => scope(() => noGrad(() => void q.sdpa(k, x, { causal }))), 3);
      report(
        `attention forward ${dtype} ${b}x${h}x${t}x${d}${causal ? ' causal' : ''}`,
        (4 * b * h * t * t * d * (causal ? 0.5 : 1)) / seconds / 1e12,
        'TFLOP/s',
      );
      for (const y of [q, k, x]) y.dispose();
    }
  const [b, h, t, d] = small ? [1, 4, 256, 64] : [4, 16, 2048, 64];
  const [q, k, x] = [1, 2, 3].map((s) => random([b, h, t, d], s).requireGrad());
  const grad = random([b, h, t, d], 4);
  const seconds = await time(() => scope(() => void q.sdpa(k, x, { causal: true }).backward({ grad })), 3);
  report(
    `attention forward and backward ${dtype} ${b}x${h}x${t}x${d} causal`,
    (3.5 * 4 * b * h * t * t * d * 0.5) / seconds / 1e12,
    'TFLOP/s',
  );
}

async function attentionDecode(): Promise<void> {
  const [h, hk, t, d] = small ? [8, 8, 4096, 64] : [32, 32, 32768, 128];
  const q = random([1, h, 1, d], 1);
  const [k, x] = [2, 3].map((s) => random([1, hk, t, d], s));
  const seconds = await time(() => scope(() => noGrad(() => void q.sdpa(k, x))));
  report(
    `decode attention ${dtype} ${h} heads, ${t} keys of ${d}`,
    (2 * hk * t * d * (dtype === 'f32' ? 4 : 2)) / seconds / 1e9,
    'GB/s',
  );
}

async function trainingStep(): Promise<void> {
  const [hidden, layers, batch, context] = small ? [128, 2, 4, 64] : [512, 8, 32, 1024];
  const config: LlamaConfig = {
    vocabSize: 8192,
    hiddenSize: hidden,
    intermediateSize: Math.round((hidden * 8) / 3 / 64) * 64,
    layers,
    heads: hidden / 64,
    kvHeads: hidden / 64,
    headDim: 64,
    maxPositions: context,
    normEps: 1e-5,
    ropeTheta: 10000,
    tiedEmbeddings: true,
    eosTokenIds: [],
  };
  const model = new Llama(config, VarBuilder.fromVarMap(new VarMap(), { device, generator: new Generator(1) }));
  const flat = new FlatParameters(model, dtype);
  const optimizer = new AdamW([flat.master], { learningRate: 1e-4 });
  const ids = tensor(
    Int32Array.from({ length: batch * context }, (_, i) => (i * 7919) % 8192),
    { shape: [batch, context], device },
  );
  const seconds = await time(
    () =>
      scope(() => {
        const grads = model.forward(ids).cast('f32').crossEntropy(ids).backward();
        flat.step(optimizer, clipGradNorm([flat.gather(grads)], 1).grads[0]);
      }),
    3,
    0.5,
  );
  report(
    `training step of ${(flat.size / 1e6).toFixed(1)}M parameters ${dtype}, ${batch}x${context} tokens`,
    (batch * context) / seconds,
    'tokens/s',
  );
}

const LLAMA: Readonly<Record<string, Partial<LlamaConfig>>> = {
  '1b': {
    hiddenSize: 2048,
    intermediateSize: 8192,
    layers: 16,
    heads: 32,
    kvHeads: 8,
    headDim: 64,
    tiedEmbeddings: true,
  },
  '8b': {
    hiddenSize: 4096,
    intermediateSize: 14336,
    layers: 32,
    heads: 32,
    kvHeads: 8,
    headDim: 128,
    tiedEmbeddings: false,
  },
  tiny: {
    hiddenSize: 256,
    intermediateSize: 768,
    layers: 4,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    tiedEmbeddings: true,
    vocabSize: 4096,
  },
};
/** Shapes of other families, as their config.json gives them; weights are random. */
const SHAPES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'qwen3-8b': {
    ...{ model_type: 'qwen3', vocab_size: 151936, hidden_size: 4096, intermediate_size: 12288, num_hidden_layers: 36 },
    ...{ num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, rms_norm_eps: 1e-6, rope_theta: 1e6 },
    ...{ max_position_embeddings: 40960, tie_word_embeddings: false },
  },
  'gemma3-4b': {
    ...{ model_type: 'gemma3_text', vocab_size: 262208, hidden_size: 2560, intermediate_size: 10240 },
    ...{ num_hidden_layers: 34, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 256, sliding_window: 1024 },
    ...{ query_pre_attn_scalar: 256, rms_norm_eps: 1e-6, rope_theta: 1e6, rope_local_base_freq: 1e4 },
    ...{ rope_scaling: { rope_type: 'linear', factor: 8 }, max_position_embeddings: 131072 },
  },
  'phi4-mini': {
    ...{ model_type: 'phi3', vocab_size: 200064, hidden_size: 3072, intermediate_size: 8192, num_hidden_layers: 32 },
    ...{ num_attention_heads: 24, num_key_value_heads: 8, rms_norm_eps: 1e-5, partial_rotary_factor: 0.75 },
    ...{ original_max_position_embeddings: 4096, max_position_embeddings: 131072, tie_word_embeddings: true },
    rope_scaling: { type: 'longrope', short_factor: new Array(48).fill(1), long_factor: new Array(48).fill(2) },
  },
  'qwen3-30b-a3b': {
    ...{ model_type: 'qwen3_moe', vocab_size: 151936, hidden_size: 2048, intermediate_size: 6144 },
    ...{ num_hidden_layers: 48, num_attention_heads: 32, num_key_value_heads: 4, head_dim: 128, rms_norm_eps: 1e-6 },
    ...{ num_experts: 128, num_experts_per_tok: 8, moe_intermediate_size: 768, norm_topk_prob: true },
    ...{ rope_theta: 1e6, max_position_embeddings: 40960, tie_word_embeddings: false },
  },
  'deepseek-v2-lite': {
    ...{ model_type: 'deepseek_v2', vocab_size: 102400, hidden_size: 2048, intermediate_size: 10944 },
    ...{ num_hidden_layers: 27, num_attention_heads: 16, kv_lora_rank: 512, qk_nope_head_dim: 128 },
    ...{ qk_rope_head_dim: 64, v_head_dim: 128, n_routed_experts: 64, n_shared_experts: 2, num_experts_per_tok: 6 },
    ...{ moe_intermediate_size: 1408, first_k_dense_replace: 1, routed_scaling_factor: 1, topk_method: 'greedy' },
    ...{ rms_norm_eps: 1e-6, rope_theta: 1e4, max_position_embeddings: 163840, tie_word_embeddings: false },
  },
  'tiny-moe': {
    ...{ model_type: 'qwen3_moe', vocab_size: 512, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2 },
    ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, num_experts: 8, num_experts_per_tok: 2 },
    ...{ moe_intermediate_size: 32, norm_topk_prob: true, max_position_embeddings: 4096 },
  },
};
/** Whether llama.cpp's mixtures give layer i of n more bits. */
const moreBits = (i: number, n: number): boolean => i < n / 8 || i >= (7 * n) / 8 || (i - Math.floor(n / 8)) % 3 === 2;
/** Types by role for layer i of n. */
const BLOCKS: Readonly<Record<string, (role: 'usual' | 'v' | 'down' | 'head', i: number, n: number) => BlockType>> = {
  q8_0: () => 'Q8_0',
  q4_k_m: (role, i, n) => (role === 'head' || (role !== 'usual' && moreBits(i, n)) ? 'Q6_K' : 'Q4_K'),
};
/** Puts blocks of random weights in the place of floats; a few rows are encoded and repeated. */
function putBlocks(model: CausalLM, kind: string): void {
  const known = new Map<string, Uint8Array>();
  const part = (type: BlockType, rows: number, width: number, distinct: boolean): QPart => {
    const key = `${type} ${width}`;
    if (!known.has(key))
      known.set(
        key,
        QTensor.quantize(randn([16, width], { seed: 1 }).affine(0.02, 0), type).parts[0].blocks.bytesSync(),
      );
    const few = known.get(key) as Uint8Array;
    const bytes = new Uint8Array((few.length / 16) * rows);
    const stretch = distinct ? ((few.length / 16) * 256) / width : few.length;
    // A head with equal rows would give equal logits, thousands of them, where a draw takes another way.
    for (let at = 0, i = 0; at < bytes.length; at += stretch, i++) {
      const from = distinct ? (Math.imul(i, 0x9e3779b1) >>> 16) % (few.length / stretch) : 0;
      bytes.set(few.subarray(from * stretch, Math.min((from + 1) * stretch, from * stretch + bytes.length - at)), at);
    }
    return QTensor.fromBytes(type, [rows, width], bytes, device).parts[0];
  };
  const put = (l: { weight: Weight }, parts: readonly (readonly [BlockType, number])[], distinct = false): void => {
    const width = l.weight.shape[1];
    l.weight.dispose();
    l.weight = new QTensor(parts.map(([type, rows]) => part(type, rows, width, distinct)));
  };
  const type = BLOCKS[kind];
  const n = model.blocks.length;
  const { vocabSize, hiddenSize } = model.config;
  model.blocks.forEach((b, i) => {
    const [a, mlp] = [b.mixer as AttentionMixer, b.mlp as Dense];
    const { heads, kvHeads, headDim } = a.feature;
    const [usual, v] = [type('usual', i, n), type('v', i, n)];
    const values = kvHeads * headDim;
    const keys = heads * headDim + values;
    put(
      a.qkv,
      usual === v
        ? [[usual, keys + values]]
        : [
            [usual, keys],
            [v, values],
          ],
    );
    put(a.out, [[usual, hiddenSize]]);
    put(mlp.gateUp, [[usual, 2 * mlp.feature.inner]]);
    put(mlp.down, [[type('down', i, n), hiddenSize]]);
  });
  put(model.embed, [[type('usual', 0, n), vocabSize]]);
  put(model.head, [[type('head', 0, n), vocabSize]], true);
  setProducts(model, { quick: true });
}
/** Bytes that one token must read: all weights but the embedding's rows, and of experts those that are chosen. */
function bytesRead(model: CausalLM): number {
  const size = (t: Weight): number =>
    t instanceof QTensor ? t.parts.reduce((n, p) => n + p.blocks.size, 0) : t.size * bytesOf(t.dtype);
  // An embedding that is the head, too, is read once.
  const all = new Map([...model.stateDict().values()].map((t) => [t.memory, t]));
  let bytes = [...all.values()].reduce((n, t) => n + size(t), 0);
  if (!model.config.tied) bytes -= size(model.embed.weight);
  for (const { mlp } of model.blocks)
    if (mlp instanceof Mixture)
      bytes -= (1 - mlp.feature.chosen / mlp.feature.count) * (size(mlp.gateUp) + size(mlp.down));
  return bytes;
}
/** Decoding behind a prompt of n tokens, whose keys and values are read, too. */
async function behind(model: CausalLM, label: string, n: number, weights: number): Promise<void> {
  const decoder = new GraphDecoder(model, n + 512);
  const prompt = Array.from({ length: n }, (_, i) => (i * 7919) % model.config.vocabSize);
  let token = await decoder.runGreedy(prompt);
  let rate = 0;
  for (let round = 0; round < 3; round++) {
    const begin = performance.now();
    for (let i = 0; i < 100; i++) token = await decoder.runGreedy([token]);
    rate = Math.max(rate, 100 / ((performance.now() - begin) / 1000));
  }
  const { kvHeads, headDim } = (model.blocks[0].mixer as AttentionMixer).feature;
  const bytes = weights + 2 * kvHeads * headDim * bytesOf(dtype) * model.blocks.length * (n + 150);
  report(`decode, ${label} ${dtype}, batch 1, behind ${n} tokens`, rate, 'tokens/s');
  report(
    `decode, ${label} ${dtype}, behind ${n} tokens, of the copy's rate`,
    (rate * bytes) / 1e9 / (await copyRate()),
    '',
  );
  decoder.dispose();
  device.trim();
}
async function language(name: string, blocks?: string): Promise<void> {
  const config = {
    vocabSize: 128256,
    maxPositions: Math.max(4096, ...contexts.map((n) => n + 1024)),
    normEps: 1e-5,
    ropeTheta: 500000,
    eosTokenIds: [],
    ...LLAMA[name],
  } as LlamaConfig;
  const label = `${SHAPES[name] ? name : `Llama ${name}`}${blocks ? ` ${blocks}` : ''}`;
  let seed = 1;
  const source = {
    has: (name: string) => !name.endsWith('.bias'),
    get: (tensor: string, shape: readonly number[] | undefined) =>
      initialise(tensor.includes('norm') ? ONE : normal(0, 0.02), shape ?? [], {
        dtype,
        device,
        generator: new Generator(seed++),
      }),
  };
  const builder = new VarBuilder(source, { dtype, device });
  const shape = SHAPES[name] && { ...SHAPES[name], ...(v.layers && { num_hidden_layers: Number(v.layers) }) };
  const model = noGrad(() => (shape ? newDecoder(shape, builder) : new Llama(config, builder)));
  model.requireGrad(false).eval();
  if (blocks) putBlocks(model as CausalLM, blocks);
  const prompt = Array.from({ length: small ? 64 : 2048 }, (_, i) => (i * 7919) % model.config.vocabSize);
  const ids = tensor(Int32Array.from(prompt), { shape: [1, prompt.length], device });
  if (!v.decode) {
    const forward = (): void => scope(() => noGrad(() => void model.forward(ids, undefined, { last: true })));
    const prefill = await time(forward, 3, 0.3);
    report(`prefill ${prompt.length} tokens, ${label} ${dtype}`, prompt.length / prefill, 'tokens/s');
  }
  if (v.prefill) {
    model.dispose();
    return device.trim();
  }
  const decoder = GraphDecoder.serves(model) ? new GraphDecoder(model, 4096) : new PlainDecoder(model);
  let token = await decoder.runGreedy(prompt.slice(0, 32));
  const run = async (n: number): Promise<number> => {
    const begin = performance.now();
    for (let i = 0; i < n; i++) token = await decoder.runGreedy([token]);
    return n / ((performance.now() - begin) / 1000);
  };
  await run(8);
  const rates = [await run(small ? 16 : 200), await run(small ? 16 : 200), await run(small ? 16 : 200)];
  report(
    `decode, ${label} ${dtype}, batch 1, ${decoder instanceof GraphDecoder ? 'by graph' : 'op by op'}`,
    Math.max(...rates),
    'tokens/s',
  );
  const bytes = bytesRead(model as CausalLM);
  report(`bytes read a token, ${label} ${dtype}`, bytes / 1e9, 'GB');
  report(`decode, ${label} ${dtype}, of the copy's rate`, (Math.max(...rates) * bytes) / 1e9 / (await copyRate()), '');
  for (const n of contexts) await behind(model as CausalLM, label, n, bytes);
  if (v.decode) {
    decoder.dispose();
    model.dispose();
    return device.trim();
  }
  const sampler = new Sampler({ temperature: 0.8, topK: 40, topP: 0.95, repetitionPenalty: 1.1, seed: 1 });
  const history = [token];
  const draw = async (n: number): Promise<number> => {
    const begin = performance.now();
    for (let i = 0; i < n; i++) history.push(await decoder.runSampled(history.slice(-1), sampler, history));
    return n / ((performance.now() - begin) / 1000);
  };
  await draw(8);
  report(
    `decode, ${label} ${dtype}, batch 1, drawn by top-k 40, top-p 0.95 and a penalty`,
    Math.max(await draw(small ? 16 : 200), await draw(small ? 16 : 200)),
    'tokens/s',
  );
  decoder.dispose();
  model.dispose();
  device.trim();
}

/** What a script of bench/peers prints, where PyTorch is installed. */
function peer(script: string, args: readonly string[], input = ''): Readonly<Record<string, number>> {
  const path = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'bench', 'peers', script);
  const run = spawnSync('python3', [path, ...args], { encoding: 'utf8', maxBuffer: 2 ** 24, input });
  if (run.status === 0) return JSON.parse(run.stdout.trim().split('\n').at(-1) ?? '{}') as Record<string, number>;
  console.error(`${script} gave no numbers: ${(run.error?.message ?? run.stderr).trim().split('\n').at(-1)}`);
  return {};
}
/** PyTorch's and transformers' numbers for the same names. */
function torchValues(): Readonly<Record<string, number>> {
  const only = v.only.split(',');
  const parts = [
    ['attention', 'attention'],
    ['train', 'train'],
    ['1b', 'prefill'],
    ['8b', 'prefill'],
  ].flatMap(([ours, theirs]) => (only.includes(ours) ? [theirs] : []));
  const shapes = Object.fromEntries(Object.entries(SHAPES).filter(([name]) => only.includes(name) && !v.layers));
  return {
    ...(parts.length > 0 && peer('pytorch-nn.py', [[...new Set(parts)].join(',')])),
    ...(Object.keys(shapes).length > 0 && peer('transformers-prefill.py', [], JSON.stringify(shapes))),
  };
}

let copied: number | undefined;
/** Bytes read and written a second by a copy, in GB. */
async function copyRate(): Promise<number> {
  if (copied !== undefined) return copied;
  const x = random([small ? 2 ** 22 : 2 ** 29], 1);
  const seconds = await time(() => scope(() => void x.copy()), 3);
  copied = (2 * x.size * bytesOf(dtype)) / seconds / 1e9;
  x.dispose();
  report(`copy ${dtype}, read and written`, copied, 'GB/s');
  return copied;
}

const JOBS: Readonly<Record<string, () => Promise<unknown>>> = {
  copy: copyRate,
  attention: attentionForward,
  'attention-decode': attentionDecode,
  train: trainingStep,
  '1b': () => language('1b'),
  '8b': () => language('8b'),
  tiny: () => language('tiny'),
  ...Object.fromEntries(
    ['8b', '1b', 'tiny'].flatMap((name) => Object.keys(BLOCKS).map((b) => [`${name}-${b}`, () => language(name, b)])),
  ),
  ...Object.fromEntries(Object.keys(SHAPES).map((name) => [name, () => language(name)])),
};
console.log(`${device.name}: ${device.description}`);
for (const name of v.only.split(',')) {
  if (!Object.hasOwn(JOBS, name))
    throw new Error(`bench: unknown part ${JSON.stringify(name)}; known are ${Object.keys(JOBS).join(', ')}`);
  await JOBS[name]();
}
if (!small && !v['no-peers']) {
  device.trim();
  const torch = torchValues();
  for (const r of results)
    if (torch[r.name] !== undefined) Object.assign(r, { torch: torch[r.name], ofTorch: r.value / torch[r.name] });
  console.log(
    table(
      ['work', 'wick', 'unit', 'PyTorch', 'wick / PyTorch'],
      results.map((r) => [
        r.name,
        r.value.toPrecision(4),
        r.unit,
        r.torch?.toPrecision(4) ?? '',
        r.ofTorch?.toFixed(2) ?? '',
      ]),
    ),
  );
}
if (v.json)
  writeFileSync(
    v.json,
    `${JSON.stringify({ device: device.description, date: new Date().toISOString(), commit: commitNow(), results }, null, 1)}\n`,
  );
