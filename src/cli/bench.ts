// `wick bench model`: how fast a language model reads and writes, alone and with others.
import { parseArgs } from 'node:util';
import { ArgumentError } from '../base/errors.js';
import type { Engine } from '../engine/request.js';
import { ENGINE_HELP, ENGINE_OPTIONS, openEngine } from './open-engine.js';
import { parameterSize } from './open-model.js';
import { wholeOf } from './options.js';
import { table } from './table.js';

const HELP = `wick bench model [options]

${ENGINE_HELP}
  --prompt N       tokens of each prompt (default 128, or half of the context)
  --tokens N       tokens of each answer (default 64, or a quarter of the context)
  --batch LIST     requests at once (default 1,2,4,8)
  --json           for programs

Prompts are random tokens, none of them shared; answers are greedy and do not end early. Times are the engine's own,
after one round that is not counted.`;

export interface BenchRow {
  readonly batch: number;
  readonly promptTokensPerSecond: number;
  readonly tokensPerSecond: number;
  readonly tokensPerSecondEach: number;
  readonly firstTokenMs: number;
}

/** Random token numbers, others for every request. */
function randomPrompt(length: number, vocabSize: number, seed: number): number[] {
  let state = (seed * 2654435761 + 12345) >>> 0;
  return Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * vocabSize);
  });
}

let seeds = 0;
async function round(engine: Engine, batch: number, prompt: number, tokens: number): Promise<BenchRow> {
  const begin = performance.now();
  const { vocabSize } = engine.tokenizer;
  const each = await Promise.all(
    Array.from({ length: batch }, async () => {
      const generation = engine.submit({
        prompt: randomPrompt(prompt, vocabSize, ++seeds),
        maxTokens: tokens,
        temperature: 0,
        ignoreEnd: true,
      });
      let first = 0;
      for await (const piece of generation) if (piece.tokens.length > 0) first ||= performance.now();
      await generation.usage;
      return { first: (first - begin) / 1000, end: (performance.now() - begin) / 1000 };
    }),
  );
  const lastFirst = Math.max(...each.map((e) => e.first));
  const end = Math.max(...each.map((e) => e.end));
  const rate = (batch * (tokens - 1)) / Math.max(1e-9, end - lastFirst);
  return {
    batch,
    promptTokensPerSecond: (batch * prompt) / lastFirst,
    tokensPerSecond: rate,
    tokensPerSecondEach: rate / batch,
    firstTokenMs: (each.reduce((sum, e) => sum + e.first, 0) / batch) * 1000,
  };
}

interface About {
  readonly model: string;
  readonly parameters: number;
  readonly dtype: string;
  readonly device: string;
  readonly prompt: number;
  readonly tokens: number;
}
/** For people: what was measured, and a line a batch. */
function described({ model, parameters, dtype, device, prompt, tokens }: About, rows: readonly BenchRow[]): string {
  const what = `${model} (${parameterSize(parameters)} in ${dtype}) on ${device}`;
  const numbers = (r: BenchRow): string[] =>
    [r.promptTokensPerSecond, r.tokensPerSecond, r.tokensPerSecondEach, r.firstTokenMs].map((n) => n.toFixed(1));
  const lines = table(
    ['requests', 'prompt tokens/s', 'tokens/s', 'each', 'first token ms'],
    rows.map((r) => [r.batch, ...numbers(r)]),
  );
  return `${what}: prompts of ${prompt} tokens, answers of ${tokens}\n\n${lines}`;
}

export async function run([what, ...argv]: readonly string[]): Promise<number> {
  if (what === '--help' || what === '-h' || argv.includes('--help') || argv.includes('-h')) {
    console.log(HELP);
    return 0;
  }
  if (what !== 'model') throw new ArgumentError('bench: what is measured? wick bench model');
  const option = { type: 'string' } as const;
  const { values: v } = parseArgs({
    args: [...argv],
    options: { ...ENGINE_OPTIONS, prompt: option, tokens: option, batch: option, json: { type: 'boolean' } },
  });
  const batches = (v.batch ?? '1,2,4,8').split(',').map((b) => wholeOf('bench', 'batch', b, 1) ?? 1);
  const open = await openEngine('bench', v);
  try {
    const { engine } = open;
    const { contextTokens } = engine.limits;
    const prompt = wholeOf('bench', 'prompt', v.prompt) ?? Math.min(128, contextTokens >> 1);
    const tokens = wholeOf('bench', 'tokens', v.tokens) ?? Math.min(64, contextTokens >> 2);
    if (prompt < 1 || tokens < 2 || prompt + tokens > contextTokens)
      throw new ArgumentError(
        `bench: a prompt of ${prompt} and ${tokens} tokens; there must be 1 and 2 at least, and ${contextTokens} ` +
          'at most together',
      );
    const rows: BenchRow[] = [];
    for (const batch of batches) {
      await round(engine, batch, prompt, Math.min(tokens, 8));
      rows.push(await round(engine, batch, prompt, tokens));
    }
    const { parameters, dtype, device } = open;
    const about = { model: engine.name, parameters, dtype, device: device.name, prompt, tokens };
    console.log(v.json ? JSON.stringify({ ...about, rows }, null, 2) : described(about, rows));
    return 0;
  } finally {
    await open.dispose();
  }
}
