// Many answers at once are the answers of each request alone: every family of decoders, prompts in pieces, pages that run
// out, cancelled neighbours.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { builtinModel, type GenerationRequest, LanguageModel, type Piece } from '../src/engine/index.js';
import { type EngineOptions, TextEngine } from '../src/engine/text-engine.js';
import { type CausalLM, Llama, loadModel } from '../src/models/index.js';
import { greedyRows } from '../src/parity/models.js';
import { VarBuilder, VarMap } from '../src/nn/index.js';
import { Generator } from '../src/tensor/random.js';
import type { Device } from '../src/tensor/device.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import { loadTokenizer } from '../src/tokenizers/index.js';
import { answerOf, families, familyFolder, skipFamilies } from './models-support.js';

const tokenizer = loadTokenizer(builtinModel);
const rows = (t: Tensor): number[][] => (t.toArray() as (number | bigint)[][]).map((r) => r.map(Number));

interface Told {
  readonly text: string;
  readonly tokens: number[];
  readonly finish: string | undefined;
  readonly pieces: readonly Piece[];
}
async function read(engine: TextEngine, request: GenerationRequest, choice = 0): Promise<Told> {
  const pieces: Piece[] = [];
  for await (const piece of engine.submit(request)) if (piece.choice === choice) pieces.push(piece);
  return {
    text: pieces.map((p) => p.text).join(''),
    tokens: pieces.flatMap((p) => p.tokens),
    finish: pieces.at(-1)?.finish,
    pieces,
  };
}
function checkEmpty(engine: TextEngine): void {
  const { running, waiting, pagesUsed } = engine.status();
  assert.deepEqual({ running, waiting, pagesUsed }, { running: 0, waiting: 0, pagesUsed: 0 });
}

for (const name of Object.keys(families))
  test(`family ${name}: answers in a batch, prompts in pieces, few pages, are those of transformers`, {
    skip: skipFamilies,
  }, async () => {
    const model = loadModel<CausalLM>(familyFolder(name), { device: 'cpu', kind: 'decoder' }).model;
    const pads = rows(answerOf(name, 'padded_mask')).map((r) => r.indexOf(1));
    const prompts = [
      ...rows(answerOf(name, 'prompt')),
      ...rows(answerOf(name, 'padded_ids')).map((r, i) => r.slice(pads[i])),
    ];
    // Prompts of other lengths than the golden ones: what the model answers to each alone.
    const golden = rows(answerOf(name, 'greedy'));
    const longest = Math.min(model.config.maxPositions, golden[0].length + 1);
    const want = prompts.map((p, i) =>
      i < golden.length
        ? golden[i].slice(0, longest)
        : greedyRows(model, [p], Math.min(longest, p.length + 6), true)[0],
    );
    const options: EngineOptions[] = [
      { pageTokens: 4, stepTokens: 7, contextTokens: longest },
      { pageTokens: 4, pages: Math.ceil(longest / 4) + 3, stepTokens: 64, contextTokens: longest, maxRecorded: 0 },
    ];
    // A variant of a family differs in layers, not in how they are scheduled: once is enough.
    for (const o of /-[a-z]$/.test(name) ? options.slice(1) : options) {
      const engine = new TextEngine(model, tokenizer, o);
      const got = await Promise.all(
        prompts.map((prompt, i) =>
          read(engine, { prompt, maxTokens: want[i].length - prompt.length, temperature: 0, ignoreEnd: true }),
        ),
      );
      got.forEach((g, i) => assert.deepEqual([...prompts[i], ...g.tokens], want[i], JSON.stringify(o)));
      checkEmpty(engine);
      await engine.dispose();
    }
    model.dispose();
  });

const TINY = {
  vocabSize: 64,
  hiddenSize: 32,
  intermediateSize: 48,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 8,
  maxPositions: 48,
  normEps: 1e-5,
  ropeTheta: 10000,
  tiedEmbeddings: false,
  eosTokenIds: [0],
};
for (const { name, device, missing } of testDevices('sim:32'))
  test(`on ${name} a batch of recorded steps gives the answers of each request alone`, { skip: missing }, async () => {
    const vb = VarBuilder.fromVarMap(new VarMap(), { device: device as Device, generator: new Generator(2) });
    const model = new Llama(TINY, vb).eval();
    const engine = new TextEngine(model, tokenizer, { pageTokens: 4, maxRunning: 4 });
    const ask = (seed: number, temperature: number): GenerationRequest => ({
      prompt: Array.from({ length: 3 + 2 * seed }, (_, i) => (7 * i + seed) % 64),
      maxTokens: 4,
      temperature,
      seed,
      ignoreEnd: true,
    });
    const requests = [ask(0, 0), ask(1, 0.9), ask(2, 0)];
    const alone: number[][] = [];
    for (const r of requests) alone.push((await read(engine, r)).tokens);
    const together = await Promise.all(requests.map((r) => read(engine, r)));
    assert.deepEqual(
      together.map((t) => t.tokens),
      alone,
    );
    checkEmpty(engine);
    await engine.dispose();
    model.dispose();
  });

test('the built-in model: seeds, penalties and filters give one text, alone and in any batch', async () => {
  const model = await LanguageModel.load();
  const engine = new TextEngine(model.model, model.tokenizer);
  const requests: GenerationRequest[] = [
    { seed: 1, temperature: 0.9 },
    { seed: 2, temperature: 1.2, topP: 0.9 },
    { seed: 3, topK: 20, minP: 0.02 },
    { seed: 4, typicalP: 0.8, repetitionPenalty: 1.3 },
    { seed: 5, presencePenalty: 0.5, frequencyPenalty: 0.4 },
    { temperature: 0, logprobs: 2 },
  ].map((o, i) => ({ prompt: model.encode(['ROMEO:', 'JULIET:\nO', 'KING HENRY'][i % 3]), maxTokens: 24, ...o }));
  const alone: string[] = [];
  for (const r of requests) alone.push((await read(engine, r)).text);
  const together = await Promise.all([...requests, ...requests].map((r) => read(engine, r)));
  assert.deepEqual(
    together.map((t) => t.text),
    [...alone, ...alone],
  );
  assert.equal(new Set(alone).size, alone.length, 'they differ from one another');
  checkEmpty(engine);
  await engine.dispose();
  model.dispose();
});
