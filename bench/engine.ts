// The engine by itself: steady decoding at several sizes of batch, and time to the first token.
// node dist/bench/engine.js --device cuda:0 --shape llama-3-8b --batch 1,8,64,256 --context 512 --steps 64
// Without --shape the built-in model. Numbers are of this machine in this run; --json FILE keeps them.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { table } from '../src/cli/table.js';
import { Device } from '../src/index.js';
import { builtinModel, LanguageModel, TextEngine } from '../src/engine/index.js';
import { StepBreakdown } from './breakdown.js';
import { OpMarks } from './profile.js';
import { randomModel, SHAPES, wordTokenizer } from './random-model.js';

const { values: v } = parseArgs({
  options: {
    device: { type: 'string', default: 'cpu' },
    shape: { type: 'string', default: 'built-in' },
    batch: { type: 'string', default: '1,8' },
    context: { type: 'string', default: '64' },
    steps: { type: 'string', default: '64' },
    /** Sampled with these instead of greedily. */
    temperature: { type: 'string', default: '0' },
    /** Every step waits until the tokens of the one before are read. */
    'no-ahead': { type: 'boolean', default: false },
    /** Where the steps' time went is written to stderr. */
    breakdown: { type: 'boolean', default: false },
    /** Ops of a step in which prompts join the largest batch, with their times on the GPU. */
    ops: { type: 'boolean', default: false },
    json: { type: 'string' },
  },
});
/** Tokens a second that reading the weights and keys of a step allows on an H200, contexts of 512: the bounds. */
const BOUNDS: Readonly<Record<number, number>> = {
  1: 279,
  8: 2161,
  16: 4178,
  32: 7833,
  64: 13924,
  128: 22780,
  256: 27784,
};

const device = Device.get(v.device);
const model = SHAPES[v.shape]
  ? randomModel(v.shape, { device })
  : (await LanguageModel.load(v.shape === 'built-in' ? builtinModel : v.shape, { device })).model;
const tokenizer = wordTokenizer(model.config.vocabSize); // words do not matter: tokens are counted
const batches = v.batch.split(',').map(Number);
const steps = Number(v.steps);
const most = Math.max(...batches);
const context = Math.min(Number(v.context), model.config.maxPositions - 2 * steps - most - 16);
const breakdown = new StepBreakdown();
const engine = new TextEngine(model, tokenizer, {
  ...{ maxRunning: most, reuse: false, ahead: !v['no-ahead'] },
  ...(v.breakdown && { onStep: breakdown.add }),
});
const { vocabSize } = model.config;

interface Result {
  readonly batch: number;
  readonly msPerStep: number;
  readonly tokensPerSecond: number;
  readonly firstTokenMs: number;
  /** While prompts were read; answers that had begun were written meanwhile. */
  readonly promptTokensPerSecond: number;
}
/** From when all write to when they have written so many tokens each: steady decoding. */
async function measure(batch: number, tokens: number): Promise<Result> {
  const begin = performance.now();
  let [started, first, from, to, count] = [0, 0, 0, 0, 0];
  // Who was read first writes while the others are read.
  const maxTokens = tokens + Math.ceil((batch * context) / 1024) + 16;
  const under = Array.from({ length: batch }, (_, b) => {
    const prompt = Array.from({ length: context - (b % 8) }, (_, i) => (i * 7919 + b * 104729) % vocabSize);
    return engine.submit({ prompt, maxTokens, temperature: Number(v.temperature), seed: b, ignoreEnd: true });
  });
  await Promise.all(
    under.map(async (generation) => {
      let mine = 0;
      for await (const piece of generation) {
        const now = performance.now();
        if (mine === 0) first ||= now;
        if (mine === 0 && ++started === batch) from = now;
        else if (from > 0 && to === 0) count += piece.tokens.length;
        mine += piece.tokens.length;
        if (to > 0 || count < batch * tokens) continue;
        to = now;
        for (const other of under) other.cancel();
      }
    }),
  );
  const seconds = ((to || performance.now()) - from) / 1000;
  return {
    ...{ batch, msPerStep: (seconds * 1000 * batch) / count, tokensPerSecond: count / seconds },
    ...{ firstTokenMs: first - begin, promptTokensPerSecond: (batch * context * 1000) / (from - begin) },
  };
}

/** Four prompts join the largest batch while it writes. */
async function joined(): Promise<string> {
  const prompt = (b: number): number[] =>
    Array.from({ length: context }, (_, i) => (i * 7919 + b * 104729) % vocabSize);
  const others = Array.from({ length: most - 4 }, (_, b) =>
    engine.submit({ prompt: prompt(b), ignoreEnd: true, maxTokens: 400 }),
  );
  const begun = await Promise.all(others.map((g) => g[Symbol.asyncIterator]().next()));
  const marks = begun.length > 0 ? OpMarks.on(device) : undefined;
  const four = [1, 2, 3, 4].map((b) => engine.submit({ prompt: prompt(most + b), ignoreEnd: true, maxTokens: 4 }));
  await Promise.all(four.map((g) => g[Symbol.asyncIterator]().next()));
  marks?.off();
  const told = await marks?.tables(24);
  for (const g of [...others, ...four]) g.cancel();
  return told ?? `${device.name} has no events to measure by`;
}

const { weightBytes, pageBytes, scratchBytes, freeBytes } = engine.memory;
const gib = (n: number): string => `${(n / 2 ** 30).toFixed(2)} GiB`;
console.error(
  `weights ${gib(weightBytes)}, pages ${gib(pageBytes)}, planned for steps ${gib(scratchBytes)}, of ${gib(freeBytes)} free`,
);
console.log(`${engine.name} on ${device.backend.description}, context ${context}, ${engine.limits.pages} pages`);
const results: Result[] = [];
for (const batch of batches) {
  // Kernels are compiled and steps recorded, those with prompts the second time.
  for (let i = 0; i < 2; i++) await measure(batch, 4);
  breakdown.clear();
  const r = await measure(batch, steps);
  results.push(r);
  console.error(
    `batch ${batch}: ${r.msPerStep.toFixed(3)} ms a step, ${r.tokensPerSecond.toFixed(0)} tokens/s, prompts ${r.promptTokensPerSecond.toFixed(0)} tokens/s`,
  );
  if (v.breakdown) console.error(`${breakdown}`);
}
if (v.ops) console.error(await joined());
console.log(
  table(
    ['batch', 'ms a step', 'tokens/s', 'first token, ms', 'of the bound'],
    results.map((r) => [
      String(r.batch),
      r.msPerStep.toFixed(2),
      r.tokensPerSecond.toFixed(0),
      r.firstTokenMs.toFixed(1),
      v.shape === 'llama-3-8b' && BOUNDS[r.batch]
        ? `${((100 * r.tokensPerSecond) / BOUNDS[r.batch]).toFixed(0)} %`
        : '',
    ]),
  ),
);
if (v.json)
  writeFileSync(v.json, JSON.stringify({ device: device.name, shape: v.shape, context, steps, results }, undefined, 1));
await engine.dispose();
