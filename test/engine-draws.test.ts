// Tokens drawn on a GPU are those that the host draws: every option, alone and mixed, ties, extremes; on the simulation
// where there is no GPU.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { simOptions } from '../src/driver/sim.js';
import { DRAW_ROW, gpuOf } from '../src/backends/generation.js';
import { Chooser, rawLogprobs } from '../src/engine/choose.js';
import { DeviceDraws, DrawRows } from '../src/engine/steps/device-draws.js';
import type { GenerationRequest } from '../src/engine/request.js';
import { randomStream } from '../src/engine/sampler.js';
import { tensor } from '../src/tensor/create.js';
import type { Device } from '../src/tensor/device.js';
import { testDevices } from '../src/testing/devices.js';

type Options = Omit<GenerationRequest, 'prompt'>;
/** An answer in the middle of being written. */
interface Case {
  readonly name: string;
  readonly options: Options;
  readonly row: Float32Array;
  readonly tokens: number[];
  readonly promptLength: number;
  readonly seed: number;
}
const ENDS = [1, 2];

/** What the host chooses, and its log-probabilities. */
function onHost({ options, row, tokens, promptLength, seed }: Case): { token: number; told: number[] } {
  const chooser = new Chooser({ prompt: [0], ...options }, seed, ENDS, row.length);
  for (const t of tokens.slice(promptLength)) chooser.wrote(t);
  try {
    const token = chooser.choose(row, tokens, tokens.length - promptLength);
    if (options.logprobs === undefined) return { token, told: [] };
    const { own, top } = rawLogprobs(row, token, options.logprobs);
    return { token, told: [own, ...top.flatMap((t) => [t.token, t.logprob])] };
  } catch {
    return { token: -1, told: [] };
  }
}
/** The same on a device, all cases as rows of one step. */
async function onDevice(on: Device, cases: readonly Case[]): Promise<{ token: number; told: number[] }[]> {
  const vocabSize = cases[0].row.length;
  const n = cases.length;
  const draws = new DeviceDraws(gpuOf(on.backend, 'draws'), { rows: n, vocabSize, slots: n, context: 64 });
  const logits = tensor(Float32Array.from(cases.flatMap((c) => [...c.row])), { device: on });
  const bytes = new Int32Array((n * DRAW_ROW.bytes) / 4);
  const rows = new DrawRows(bytes.buffer, 0, n);
  cases.forEach(({ options, tokens, promptLength, seed }, i) => {
    rows.clear(i);
    const { rule } = new Chooser({ prompt: [0], ...options }, seed, ENDS, vocabSize);
    assert.ok(rule && DeviceDraws.serves(rule));
    draws.place(rows, i, { rule, sequence: { tokens, promptLength, state: 'running' }, length: tokens.length });
  });
  const put = tensor(bytes, { device: on });
  const { device } = draws;
  const results: { token: number; told: number[] }[][] = [];
  // Twice: what a draw leaves behind does not disturb the next one.
  for (let turn = 0; turn < 2; turn++) {
    device.draw(logits, put, n);
    const fetched = device.fetch(n, true);
    await device.arrived(fetched);
    const drawn = [...device.tokensOf(fetched)].map((token, i) => {
      const { logprobs } = cases[i].options;
      if (logprobs === undefined || token < 0) return { token, told: [] };
      const [own, ...top] = device.toldOf(fetched, i, logprobs);
      assert.equal(own.token, token);
      return { token, told: [own.logprob, ...top.flatMap((t) => [t.token, t.logprob])] };
    });
    if (turn === 1) assert.deepEqual(drawn, results[0]);
    results.push(drawn);
  }
  logits.dispose();
  put.dispose();
  draws.dispose();
  return results[0];
}
async function compare(on: Device, cases: readonly Case[]): Promise<void> {
  const got = await onDevice(on, cases);
  cases.forEach((c, i) => {
    const want = onHost(c);
    assert.equal(got[i].token, want.token, c.name);
    assert.equal(got[i].told.length, want.told.length, c.name);
    want.told.forEach((v, k) =>
      assert.ok(Math.abs(got[i].told[k] - v) < 1e-9, `${c.name}: ${got[i].told[k]}, not ${v}`),
    );
  });
}

const random = randomStream(17);
const whole = (n: number): number => Math.floor(random() * n);
const chance = (p: number): boolean => random() < p;
/** Rows as models make them and as they never do. */
const ROWS: Readonly<Record<string, (i: number) => number>> = {
  sharp: () => -3 * Math.log(random()) + random(),
  flat: () => random() * 0.01,
  equal: () => 2.5,
  steps: () => whole(4),
  zeros: () => (chance(0.5) ? 0 : -0),
  far: () => (chance(0.01) ? 0 : -1e30),
  huge: () => (random() - 0.5) * 6e38,
  gaps: () => (chance(0.3) ? -Infinity : 4 * random()),
};
function options(vocabSize: number): Options {
  const some = (n: number): number[] => Array.from({ length: n }, () => whole(vocabSize));
  return {
    temperature: chance(0.15) ? 0 : [1, 0.7, 1.4, 0.05, 20][whole(5)],
    ...(chance(0.4) && { topK: [1, 3, 40, 10_000][whole(4)] }),
    ...(chance(0.4) && { topP: [0.9, 0.5, 0.001, 0.999][whole(4)] }),
    ...(chance(0.3) && { minP: [0.05, 0.5, 1, 1e-9][whole(4)] }),
    ...(chance(0.3) && { typicalP: [0.9, 0.2, 0.01][whole(3)] }),
    ...(chance(0.4) && { repetitionPenalty: [1.3, 0.8][whole(2)] }),
    ...(chance(0.3) && { repetitionWindow: whole(12) }),
    ...(chance(0.3) && { presencePenalty: random() - 0.2 }),
    ...(chance(0.3) && { frequencyPenalty: random() - 0.2 }),
    ...(chance(0.3) && {
      logitBias: new Map(some(6).map((t) => [t, chance(0.2) ? -Infinity : 8 * random() - 4])),
    }),
    ...(chance(0.2) && { allowedTokens: [...new Set([...some(5), 1])] }),
    ...(chance(0.3) && { minTokens: whole(12) }),
    ...(chance(0.4) && { logprobs: [0, 1, 5, 20][whole(4)] }),
  };
}
function cases(count: number, vocabSize: number, kinds = Object.keys(ROWS)): Case[] {
  return Array.from({ length: count }, (_, i) => {
    const kind = kinds[i % kinds.length];
    const o = options(vocabSize);
    const promptLength = 1 + whole(6);
    const tokens = Array.from({ length: promptLength + whole(10) }, () => whole(Math.min(vocabSize, 12)));
    const row = Float32Array.from({ length: vocabSize }, (_, k) => ROWS[kind](k));
    const biases = o.logitBias && [...o.logitBias];
    const name = `${kind}, ${vocabSize} tokens, ${JSON.stringify({ ...o, logitBias: biases })}, case ${i}`;
    return { name, options: o, row, tokens, promptLength, seed: whole(2 ** 40) };
  });
}

for (const { name, device, missing } of testDevices('sim:32'))
  for (const reverse of name.startsWith('sim') ? [false, true] : [false])
    test(`random options on ${name} draw what the host draws${reverse ? ', last thread first' : ''}`, {
      skip: missing,
    }, async (t) => {
      const before = simOptions.reverse;
      simOptions.reverse = reverse;
      t.after(() => (simOptions.reverse = before));
      const on = device as Device;
      await compare(on, cases(reverse ? 32 : 96, 61));
      await compare(on, cases(reverse ? 8 : 24, 2100)); // three stretches
      // More tokens than the list has room for.
      if (!reverse) await compare(on, cases(4, 9000, ['flat', 'equal', 'steps']));
    });
