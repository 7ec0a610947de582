// Many answers at once are the answers of each request alone: every family of decoders, prompts in pieces, pages that
// run out, cancelled neighbours.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { builtinModel, type GenerationRequest, LanguageModel, type Piece } from '../src/engine/index.js';
import type { EngineOptions } from '../src/engine/engine-options.js';
import { TextEngine } from '../src/engine/text-engine.js';
import { type CausalLM, Llama, loadModel } from '../src/models/index.js';
import { greedyRows } from '../src/parity/models.js';
import { VarBuilder, VarMap } from '../src/nn/index.js';
import { Generator } from '../src/tensor/random.js';
import { Device } from '../src/tensor/device.js';
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
/** Requests of every kind, with prompts of several lengths. */
const ASKED: readonly Omit<GenerationRequest, 'prompt'>[] = [
  { temperature: 0 },
  { temperature: 0.9, seed: 1, logprobs: 2 },
  { temperature: 1.3, seed: 2, topK: 20, topP: 0.9, repetitionPenalty: 1.4 },
  { temperature: 1, seed: 3, typicalP: 0.7, presencePenalty: 0.6, frequencyPenalty: 0.3, maxTokens: 6 },
  { temperature: 1.5, seed: 4, minP: 0.05, logitBias: new Map([[5, 3]]), minTokens: 5, ignoreEnd: false },
  { temperature: 1, seed: 5, allowedTokens: [4, 8, 15, 16, 23, 42], stopTokens: [23] },
];
const asked = ASKED.map((o, i) => ({
  prompt: Array.from({ length: 3 + 2 * i }, (_, k) => (7 * k + i) % 64),
  maxTokens: 9,
  ignoreEnd: true,
  ...o,
}));
/** How many steps with prompts are recorded on the way, alone and among others. */
async function recordings(model: CausalLM, answer: (o: EngineOptions) => Promise<void>): Promise<number> {
  const { backend } = model.device;
  const { capture } = backend;
  let count = 0;
  backend.capture = (...args) => {
    count++;
    return (capture as NonNullable<typeof capture>).apply(backend, args);
  };
  try {
    await answer({ pageTokens: 4, maxRunning: 6, reuse: false, stepTokens: 9 });
    // One at a time: each prompt is a step of its own, and the others are of one sequence, which is one recording.
    count = 0;
    await answer({ pageTokens: 4, maxRunning: 1, reuse: false });
    return count - 1;
  } finally {
    backend.capture = capture;
  }
}
/** Tokens of an answer and its log-probabilities: numbers last, which other kernels round in another way. */
const plainly = ({ tokens, finish, pieces }: Told) => {
  const told = pieces.flatMap((p) => p.logprobs ?? []).flatMap((l) => [l, ...l.top]);
  return { tokens, finish, told: told.map((t) => t.token), numbers: told.map((t) => t.logprob) };
};
for (const { name, device, missing } of testDevices('sim:32'))
  test(`on ${name} answers drawn on the device, a step ahead or not, in batches or with few pages, are the host's`, {
    skip: missing,
  }, async () => {
    const make = (on: Device): CausalLM =>
      new Llama(TINY, VarBuilder.fromVarMap(new VarMap(), { device: on, generator: new Generator(2) })).eval();
    const model = make(device as Device);
    const copy = make(Device.get('cpu'));
    copy.loadStateDict(new Map([...model.stateDict()].map(([k, t]) => [k, t.to('cpu')])));
    const host = new TextEngine(copy, tokenizer, { pageTokens: 4 });
    const want: ReturnType<typeof plainly>[] = [];
    for (const r of asked) want.push(plainly(await read(host, r)));
    await host.dispose();
    const options: EngineOptions[] = [
      { pageTokens: 4, maxRunning: 6, ahead: false },
      { pageTokens: 4, maxRunning: 6 },
      { pageTokens: 4, maxRunning: 6, stepTokens: 7 },
      { pageTokens: 4, maxRunning: 6, pages: 14, contextTokens: 48 },
    ];
    const check = (got: readonly Told[], o: EngineOptions): void =>
      got.map(plainly).forEach(({ numbers, ...plain }, i) => {
        const { numbers: wanted, ...rest } = want[i];
        assert.deepEqual(plain, rest, JSON.stringify(o));
        assert.ok(numbers.every((v, k) => Math.abs(v - wanted[k]) < 1e-5));
      });
    for (const o of options) {
      const engine = new TextEngine(model, tokenizer, o);
      check(await Promise.all(asked.map((r) => read(engine, r))), o);
      if (o.pages) assert.ok(engine.status().preemptions > 0, 'there were too few pages');
      checkEmpty(engine);
      await engine.dispose();
    }
    // Steps with prompts are recorded when they come a second time, and repeated from then on.
    const recorded = await recordings(model, async (o) => {
      const engine = new TextEngine(model, tokenizer, o);
      for (let turn = 0; turn < 3; turn++) check(await Promise.all(asked.map((r) => read(engine, r))), o);
      checkEmpty(engine);
      await engine.dispose();
    });
    assert.ok(recorded > 0, 'no step with prompts was recorded');
    model.dispose();
    copy.dispose();
  });

for (const { name, device, missing } of testDevices('sim:32'))
  test(`on ${name} requests that are cancelled between steps leave their neighbours alone`, {
    skip: missing,
  }, async () => {
    const vb = VarBuilder.fromVarMap(new VarMap(), { device: device as Device, generator: new Generator(2) });
    const model = new Llama(TINY, vb).eval();
    const engine = new TextEngine(model, tokenizer, { pageTokens: 4, maxRunning: 4, pages: 24, contextTokens: 48 });
    const want = (await read(engine, asked[2])).tokens;
    const leave = async (after: number): Promise<void> => {
      let seen = 0;
      for await (const piece of engine.submit({ ...asked[1], maxTokens: 30 })) {
        assert.ok(piece.tokens.every((t) => t >= 0 && t < 64));
        if ((seen += piece.tokens.length) >= after) return;
      }
    };
    const [kept] = await Promise.all([read(engine, asked[2]), leave(1), leave(3)]);
    assert.deepEqual(kept.tokens, want);
    // Nothing is left to draw: the error is the request's own.
    await assert.rejects(
      read(engine, { ...asked[0], allowedTokens: [5], logitBias: new Map([[5, -Infinity]]) }),
      /no token is left/,
    );
    assert.deepEqual((await read(engine, asked[2])).tokens, want);
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
