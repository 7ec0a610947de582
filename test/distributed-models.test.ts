// Models shared out among ranks: the same logits as the whole model for every family, each rank with its bytes only,
// and what cannot be divided refused by its rule.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ggmlType } from '../src/base/blocks/types.js';
import { runLocal } from '../src/distributed/index.js';
import { builtinModel } from '../src/engine/index.js';
import { writeGguf } from '../src/io/gguf-write.js';
import { Gguf } from '../src/io/gguf.js';
import { toTensor } from '../src/io/load.js';
import { partRecord } from '../src/io/part-record.js';
import type { TensorRecord } from '../src/io/stored-dtype.js';
import { loadModel } from '../src/models/index.js';
import { Shard } from '../src/models/decoder/shard.js';
import { Stage } from '../src/models/decoder/stage.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { Device } from '../src/tensor/device.js';
import { QTensor } from '../src/tensor/qtensor.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import type { Shared } from './distributed-models-ranks.js';
import { answersOf, byMpi, programArgs, skipMpi } from './distributed-support.js';
import { families, familyFolder, skipFamilies } from './models-support.js';
import { float4Experts, float8Mixture } from './scaled-support.js';

const ranks = new URL('./distributed-models-ranks.js', import.meta.url);
const TOLERANCE = 2e-5;

/** Models whose sizes do not divide are refused; the rule is in the message. */
const RULE = /cannot be shared out among \d ranks: in layer \d+ .*(do not divide|does not divide|neither divide)/;
/** Runs models on ranks and holds every answer against the whole model's; answers how many were served. */
async function likeWhole(
  size: number,
  way: string,
  data: readonly { name: string; path: string }[],
  most: number,
): Promise<number> {
  const answers = (await runLocal(size, ranks, way, { data, timeoutMs: 120_000 })) as Shared[][];
  for (const { name, error, cachedError, held, refused } of answers.flat()) {
    if (refused !== undefined) {
      assert.match(refused, RULE, name);
      continue;
    }
    assert.ok(error <= TOLERANCE, `${name}: logits are off by ${error}`);
    assert.ok(cachedError <= TOLERANCE, `${name}: with a cache logits are off by ${cachedError}`);
    assert.ok(held < most, `${name}: a rank holds ${held} of the model`);
  }
  return answers[0].filter((s) => s.refused === undefined).length;
}
/** Some of the small models, others for each number of ranks: all were run once, and each takes its time. */
const sampleOf = (every: number, from: number): { name: string; path: string }[] =>
  Object.keys(families)
    .filter((_, i) => i % every === from)
    .map((name) => ({ name, path: familyFolder(name) }));
for (const [size, every, from, most] of [
  [2, 4, 0, 0.7],
  [4, 12, 2, 0.6],
])
  test(`families: ${size} ranks have the whole model's logits, with and without a cache`, {
    skip: skipFamilies,
  }, async () => {
    const data = sampleOf(every, from);
    const served = await likeWhole(size, 'sharedModels', data, most);
    assert.ok(served >= 0.75 * data.length, `${served} of ${data.length} were served, the others refused`);
  });
test('layers that remember a state are divided by their heads', {
  skip: skipFamilies,
}, async () => {
  const data = [
    'qwen3_next',
    'qwen3_5_text',
    'granitemoehybrid',
    'mamba2',
    'mamba',
    'falcon_h1',
    'nemotron_h',
    'jamba',
  ].map((name) => ({
    name,
    path: familyFolder(name),
  }));
  assert.equal(await likeWhole(2, 'sharedModels', data, 0.51), data.length);
  const convolved = ['lfm2', 'lfm2_moe'].map((name) => ({ name, path: familyFolder(name) }));
  assert.equal(await likeWhole(2, 'sharedModels', convolved, 0.52), convolved.length, 'short convolutions by channels');
});
test('mixtures with whole experts by rank: all fused, stacked and biased forms', { skip: skipFamilies }, async () => {
  const data = ['mixtral', 'qwen2_moe', 'gpt_oss', 'granitemoe', 'deepseek_v3', 'llama4_text', 'phimoe'].map(
    (name) => ({ name, path: familyFolder(name) }),
  );
  assert.equal(await likeWhole(2, 'wholeExperts', data, 0.56), data.length);
});
test('a vocabulary that does not divide is divided all the same, heads of states that do not are held whole', {
  skip: skipFamilies,
}, async () => {
  const entries = (families.llama.config.vocab_size as number) - 1;
  const data = ['llama', 'gpt2'].map((name) => ({
    name,
    path: familyFolder(name, ({ config, tensors }) => {
      const [before, after] = [config.vocab_size as number, (config.vocab_size as number) - 1];
      const cut = Object.entries(tensors).map(([key, [shape, ...rest]]) => [
        key,
        [shape[0] === before ? [after, ...shape.slice(1)] : shape, ...rest],
      ]);
      return { config: { ...config, vocab_size: after }, tensors: Object.fromEntries(cut) };
    }),
  }));
  assert.ok(entries % 2 === 1, `a vocabulary of ${entries} divides`);
  const states = ['qwen3_next', 'granitemoehybrid'].map((name) => ({ name, path: familyFolder(name) }));
  assert.equal(await likeWhole(4, 'sharedModels', [...data, ...states], 0.9), 4);
});

const HF = [
  'llama',
  'qwen3',
  'gpt2',
  'gemma3',
  'qwen3_moe-b',
  'deepseek_v3',
  'gpt_oss',
  'olmo2-b',
  'phi3-longrope',
  'lfm2',
];
const missingHf = HF.map((m) => missingGolden(`hf/${m}`)).find((m) => m);
test('4 ranks, key heads shared where there are fewer: logits as the whole model', { skip: missingHf }, async () => {
  const data = HF.map((name) => ({ name, path: findGolden('hf', name) as string }));
  const [first] = (await runLocal(4, ranks, 'sharedModels', { data, timeoutMs: 120_000 })) as Shared[][];
  const served = first.filter((s) => !s.refused);
  for (const { name, error, cachedError } of served)
    assert.ok(error <= TOLERANCE && cachedError <= TOLERANCE, `${name}: off by ${error}, ${cachedError}`);
  for (const { refused } of first) if (refused) assert.match(refused, /cannot be shared out among 4 ranks: in layer/);
  for (const { name, held, read } of served)
    assert.ok(read <= held + 0.01, `${name}: holds ${held} and read ${read} of the model`);
  assert.ok(served.length >= 4, `only ${served.map((s) => s.name).join(', ')}`);
});
const STAGED = ['llama', 'gemma3', 'deepseek_v3', 'qwen3_moe-b'];
const staged = STAGED.map((name) => ({ name, path: missingHf ? '' : (findGolden('hf', name) as string) }));
test('stages: layers divided among ranks, alone and beside rows divided among them', { skip: missingHf }, async () => {
  for (const [size, way] of [
    [2, 'stagedModels'],
    [4, 'gridModels'],
  ] as const)
    for (const rank of (await runLocal(size, ranks, way, { data: staged })) as Shared[][])
      for (const { name, error, cachedError, held, refused } of rank) {
        assert.equal(refused, undefined);
        assert.ok(error <= TOLERANCE && cachedError <= TOLERANCE, `${name} by ${way}: off by ${error}, ${cachedError}`);
        assert.ok(held < 0.95, `${name}: a rank holds ${held}`);
      }
});
test('the same over MPI, 2 and 4 ranks', { skip: skipMpi || missingHf }, async () => {
  for (const [size, way] of [
    [2, 'sharedModels'],
    [4, 'gridModels'],
  ] as const)
    for (const rank of answersOf(await byMpi(size, programArgs(way, { data: staged }))) as Shared[][])
      for (const { name, error, cachedError, refused } of rank) {
        assert.equal(refused, undefined);
        assert.ok(error <= TOLERANCE && cachedError <= TOLERANCE, `${name} by ${way}: off by ${error}, ${cachedError}`);
      }
});

/** A small model whose rows divide into whole blocks: golden tensors, feed-forward branches widened from 96 to 128. */
function inBlocks(path: string): void {
  const from = Gguf.open(findGolden('gguf', 'llama', 'f32.gguf') as string);
  const metadata = new Map(from.metadata);
  const width = metadata.get('llama.feed_forward_length') as { value: unknown };
  metadata.set('llama.feed_forward_length', { ...width, value: 128 } as never);
  const tensors = from.names.map((name) =>
    scope(() => {
      let t = toTensor(from.dequantize(name), Device.cpu()).cast('f32');
      const dim = name.includes('ffn_down') ? 1 : 0;
      if (/ffn_(gate|up|down)/.test(name)) t = t.cat([t.narrow(dim, 0, 32)], dim);
      const bytes = t.rank === 2 ? QTensor.quantize(t, 'q8_0').parts[0].blocks.bytesSync() : t.bytesSync();
      return { name, type: ggmlType(t.rank === 2 ? 'q8_0' : 'f32'), shape: t.shape, bytes };
    }),
  );
  from.close();
  writeGguf(path, metadata, tensors);
}
/** Ranks read what they hold and no byte besides: together hardly more than the files have. */
async function readOnce(size: number, way: string, data: readonly { name: string; path: string }[], most: number) {
  const answers = (await runLocal(size, ranks, way, { data, timeoutMs: 120_000 })) as Shared[][];
  data.forEach(({ name }, i) => {
    const all = answers.map((rank) => rank[i]);
    for (const { error, cachedError, fromDisk, held, refused } of all) {
      assert.equal(refused, undefined);
      assert.ok(error <= TOLERANCE && cachedError <= TOLERANCE, `${name}: off by ${error}, ${cachedError}`);
      assert.ok(fromDisk <= held + 0.002, `${name}: a rank of ${size} holds ${held} and read ${fromDisk} of the files`);
    }
    const sum = all.reduce((n, s) => n + s.fromDisk, 0);
    assert.ok(sum >= 1 && sum <= most, `${name}: ${size} ranks together read ${sum} times the files' bytes`);
  });
}
/**
 * Products of q, k and v in one tensor (by parts, by heads, turned round), gates beside ups, experts in one or
 * apart.
 */
const FUSED = ['phi3', 'gpt_neox', 'bloom', 'gpt2', 'qwen3_next', 'gpt_oss', 'llama4_text', 'qwen3_moe', 'granitemoe'];
test('fused and stacked tensors: each rank reads its own bytes, once', { skip: skipFamilies }, async () => {
  const data = FUSED.map((name) => ({ name, path: familyFolder(name) }));
  await readOnce(2, 'sharedModels', data, 1.1);
  const mixtures = data.filter(({ name }) => ['gpt_oss', 'llama4_text', 'qwen3_moe'].includes(name));
  await readOnce(2, 'wholeExperts', mixtures, 1.1);
});
test('blocks of GGUF files, 8-bit floats and 4-bit floats of folders: each rank reads its own bytes, once', {
  skip: missingGolden('gguf/llama/f32.gguf', 'hf/gpt_oss'),
}, async () => {
  const dir = mkdtempSync(join(tmpdir(), 'wick-blocks-'));
  const [eight, four] = [float8Mixture({ inner: 256, experts: 4, headDim: 128 }), float4Experts(64)];
  try {
    inBlocks(join(dir, 'wide.gguf'));
    const experts = [
      { name: '8-bit floats', path: eight.kept },
      { name: '4-bit floats', path: four.kept },
    ];
    await readOnce(2, 'sharedModels', [{ name: 'Q8_0', path: join(dir, 'wide.gguf') }, ...experts], 1.2);
    await readOnce(2, 'wholeExperts', experts, 1.2);
  } finally {
    for (const at of [dir, eight.kept, eight.plain, four.kept, four.plain])
      rmSync(at, { recursive: true, force: true });
  }
});
test('experts in blocks whose rows do not divide into whole ones are refused by name', async () => {
  const { kept, plain } = float8Mixture({ inner: 128, experts: 2, headDim: 128 });
  try {
    const data = [{ name: 'narrow', path: kept }];
    const [[narrow]] = (await runLocal(2, ranks, 'sharedModels', { data })) as Shared[][];
    assert.match(
      String(narrow.refused),
      /experts\.0\.down_proj\.weight: rows of 128 in F8_E4M3's blocks of 128 cannot be shared out among 2 ranks; { experts: 'whole' }/,
    );
    await readOnce(2, 'wholeExperts', data, 1.3);
  } finally {
    for (const at of [kept, plain]) rmSync(at, { recursive: true, force: true });
  }
});
test('GGUF files, in blocks too', { skip: missingGolden('gguf/llama/f32.gguf', 'gguf/qwen3/q8_0.gguf') }, async () => {
  const dir = mkdtempSync(join(tmpdir(), 'wick-blocks-'));
  inBlocks(join(dir, 'wide.gguf'));
  const data = [
    { name: 'wide', path: join(dir, 'wide.gguf') },
    { name: 'f32', path: findGolden('gguf', 'llama', 'f32.gguf') as string },
    { name: 'narrow', path: findGolden('gguf', 'qwen3', 'q8_0.gguf') as string },
  ];
  const [[wide, plain, narrow]] = (await runLocal(2, ranks, 'sharedModels', { data })) as Shared[][];
  rmSync(dir, { recursive: true, force: true });
  for (const { name, error, held } of [wide, plain]) {
    assert.ok(error <= TOLERANCE, `${name}: off by ${error}`);
    assert.ok(held < 0.6, `${name}: a rank holds ${held}`);
  }
  assert.match(
    String(narrow.refused),
    /ffn_down.weight: rows of 96 in Q8_0's blocks of 32 cannot be shared out among 2/,
  );
});

test('the built-in model: each rank reads and holds about its part, and writes the same tokens', async () => {
  const data = [{ name: 'builtin', path: builtinModel }];
  for (const [{ error, held, read }] of (await runLocal(4, ranks, 'sharedModels', { data })) as Shared[][]) {
    assert.ok(error <= TOLERANCE, `off by ${error}`);
    assert.ok(held < 0.32, `a rank of 4 holds ${held}`); // two ranks each hold one key head
    assert.ok(read < 0.32, `a rank of 4 read ${read}`);
  }
  const tokens = { path: builtinModel, prompt: [0, 17, 250, 31], count: 12 };
  const [one] = await runLocal(1, ranks, 'sharedTokens', { data: tokens });
  for (const got of await runLocal(2, ranks, 'sharedTokens', { data: tokens })) assert.deepEqual(got, one);
  for (const said of await runLocal(2, ranks, 'wrongToken', { data: builtinModel }))
    assert.match(String(said), /IndexError/);
});

test('a recorded step with collectives inside chooses the tokens of the whole model', { skip: missingHf }, async () => {
  const data = { path: findGolden('hf', 'llama') as string, prompt: [5, 17, 50, 31], count: 5 };
  const [one] = await runLocal(1, ranks, 'sharedTokens', { data });
  for (const got of await runLocal(2, ranks, 'recordedTokens', { data, timeoutMs: 120_000 }))
    assert.deepEqual(got, one);
});
test('whole experts by rank inside a recorded step', { skip: missingHf }, async () => {
  const data = { path: findGolden('hf', 'qwen3_moe-b') as string, prompt: [5, 17, 50, 31], count: 3, experts: 'whole' };
  const [one] = await runLocal(1, ranks, 'sharedTokens', { data });
  for (const got of await runLocal(2, ranks, 'recordedTokens', { data, timeoutMs: 120_000 }))
    assert.deepEqual(got, one);
});

test('whole experts by rank are refused where their number does not divide, and other words by name', () => {
  const config = { kind: 'experts', count: 6, inner: 8, chosen: 2 };
  const features = { family: 'm', vocabSize: 8, layers: [{ mixer: { kind: 'conv' }, mlp: config }] } as never;
  const group = { rank: 1, size: 4, recordable: false, allReduce: (x: Tensor) => x, allGather: (x: Tensor) => x };
  assert.throws(() => new Shard(group, features, 'whole'), /in layer 0 6 experts do not divide by 4/);
  assert.throws(
    () => new Shard(group, features, 'half' as never),
    /experts: "half" is no division; there are rows, whole/,
  );
  const dense = { ...(features as object), layers: [{ mixer: { kind: 'conv' }, mlp: { kind: 'none' } }] } as never;
  assert.throws(() => new Shard(group, dense, 'whole'), /experts: "whole" divides mixtures, and this m is none/);
  const held = (size: number, how?: 'whole'): unknown =>
    (new Shard({ ...group, size }, features, how).own.layers[0].mlp as { held?: unknown }).held;
  assert.equal(held(2), undefined);
  assert.deepEqual(held(2, 'whole'), { first: 3, count: 3 });
  assert.deepEqual(held(3), { first: 2, count: 2 }, 'rows do not divide by 3, experts do');
});
test('what does not divide is refused by family, layer and rule', () => {
  const { model } = loadModel(builtinModel, { kind: 'decoder' });
  const features = (model as unknown as { config: ConstructorParameters<typeof Shard>[1] }).config;
  const x = features as never;
  const group = (size: number) => ({
    rank: 0,
    size,
    recordable: false,
    allReduce: (x: Tensor) => x,
    allGather: (x: Tensor) => x,
  });
  assert.throws(
    () => new Shard(group(3), features),
    /llama: cannot be shared out among 3 ranks: in layer 0 \d+ heads do not divide by 3/,
  );
  assert.throws(
    () => new Stage({ ...group(9), send() {}, recv: () => x, broadcast: () => x }, features),
    /llama: \d layers cannot be divided among 9 stages/,
  );
  const odd = { ...features, layers: features.layers.map((l) => ({ ...l, mlp: { ...l.mlp, inner: 33 } })) };
  assert.throws(() => new Shard(group(2), odd as never), /a feed-forward branch of 33 rows does not divide by 2/);
  const keys = {
    ...features,
    layers: features.layers.map((l) => ({ ...l, mixer: { ...l.mixer, heads: 12, kvHeads: 3 } })),
  };
  assert.throws(() => new Shard(group(2), keys as never), /3 key heads neither divide by 2 nor divide it/);
});

test('a part of a stored tensor is read as it is, and no byte besides', () => {
  const bytes = Uint8Array.from({ length: 48 }, (_, i) => i);
  let read = 0;
  const record: TensorRecord = {
    ...{ name: 'w', dtype: 'u8', shape: [4, 6, 2], byteLength: 48 },
    read: (start = 0, end = 48) => {
      read += end - start;
      return bytes.subarray(start, end);
    },
  };
  for (const [dim, count] of [
    [0, 2],
    [1, 3],
    [2, 2],
  ] as const)
    for (let index = 0; index < count; index++) {
      read = 0;
      const part = partRecord(record, { dim, index, count });
      const want = Array.from(bytes).filter((_, i) => {
        const at = [Math.floor(i / 12), Math.floor(i / 2) % 6, i % 2][dim];
        const n = record.shape[dim] / count;
        return at >= index * n && at < (index + 1) * n;
      });
      assert.deepEqual([...part.read()], want);
      assert.equal(read, want.length);
      assert.deepEqual([...part.read(3, 7)], want.slice(3, 7));
      assert.equal(part.byteLength, want.length);
    }
  // Sections that are divided each for itself, one of them by other shares; and a size that is rounded up.
  const dim1 = (rows: readonly number[]): number[] =>
    [0, 1, 2, 3].flatMap((i) => rows.flatMap((r) => [0, 1].map((k) => 12 * i + 2 * r + k)));
  const sections = [
    { size: 2, index: 1, count: 2 },
    { size: 4, index: 0, count: 1 },
  ];
  read = 0;
  assert.deepEqual([...partRecord(record, { dim: 1, index: 1, count: 2, sections }).read()], dim1([1, 2, 3, 4, 5]));
  assert.equal(read, 40);
  const rounded = partRecord(record, { dim: 1, index: 1, count: 4, whole: 6 });
  assert.deepEqual([rounded.shape, [...rounded.read()]], [[4, 2, 2], dim1([2, 3])]);
  const past = partRecord(record, { dim: 1, index: 3, count: 4, whole: 6 });
  assert.deepEqual([past.shape, past.read().every((b) => b === 0)], [[4, 2, 2], true]);
  assert.throws(
    () => partRecord(record, { dim: 1, index: 0, count: 4, whole: 7 }),
    /w: dimension 1 of \[4, 6, 2\]; by the config it is 7/,
  );
  assert.throws(
    () => partRecord(record, { dim: 1, index: 0, count: 4 }),
    /w: dimension 1 of \[4, 6, 2\] does not divide into 4 parts/,
  );
});
