// How speed grows with the work: node dist/bench/growth.js --device cuda:0 [--only elementwise,prompt,decode,...]
//   [--json docs/bench-h200-growth.json] [--no-peers]
// Each curve is rates at sizes, with PyTorch's from the same run beside ours (bench/peers/pytorch-growth.py);
// training steps are those of bench/train.js. bench/curves.ts draws the record.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { table } from '../src/cli/table.js';
import { GraphDecoder, PlainDecoder, TextEngine } from '../src/engine/index.js';
import { Device, noGrad, randn, scope, tensor } from '../src/index.js';
import type { CausalLM } from '../src/models/index.js';
import { commitNow } from '../src/parity/provenance.js';
import type { Curve, CurveName, Point } from './curves.js';
import { randomModel, SHAPES, wordTokenizer } from './random-model.js';

const option = { type: 'string' } as const;
const { values: v } = parseArgs({
  options: {
    device: { ...option, default: 'cpu' },
    only: option,
    json: option,
    'no-peers': { type: 'boolean', default: false },
    /** A child's part: GFLOP/s of a product on as many threads as its environment says. */
    product: { type: 'boolean', default: false },
  },
});
const device = Device.get(v.device);
const small = device.name === 'cpu' || device.name.startsWith('sim');
const shape = small ? 'tiny' : 'llama-3-1b';
const here = dirname(fileURLToPath(import.meta.url));

/** Seconds of one call: the best of three rounds, each long enough to time. */
async function seconds(step: () => void, each = 0.1): Promise<number> {
  const run = async (n: number): Promise<number> => {
    await device.sync();
    const begin = performance.now();
    for (let i = 0; i < n; i++) step();
    await device.sync();
    return (performance.now() - begin) / 1000 / n;
  };
  await run(3);
  const count = Math.max(1, Math.round(each / (await run(1))));
  return Math.min(await run(count), await run(count), await run(count));
}

/** Bytes of an operand: GB/s read and written by a sum of two. */
async function elementwise(bytes: number): Promise<number> {
  const [a, b] = [1, 2].map((seed) => randn([bytes / 4], { seed, device }));
  const best = await seconds(() => scope(() => void a.add(b)));
  a.dispose();
  b.dispose();
  device.trim();
  return (3 * bytes) / best / 1e9;
}

let known: CausalLM | undefined;
/** A model for contexts up to 64K tokens, made when it is first asked for. */
const model = (): CausalLM => (known ??= randomModel(shape, { device, maxPositions: 65536 }));
const prompt = (tokens: number, seed = 0): number[] =>
  Array.from({ length: tokens }, (_, i) => (i * 7919 + seed * 104729) % SHAPES[shape].vocabSize);

/** Tokens of a prompt read in one piece: tokens a second. */
async function read(tokens: number): Promise<number> {
  const ids = tensor(Int32Array.from(prompt(tokens)), { shape: [1, tokens], device });
  const m = model();
  const best = await seconds(() => scope(() => noGrad(() => void m.forward(ids, undefined, { last: true }))), 0.2);
  ids.dispose();
  device.trim();
  return tokens / best;
}

/** Tokens behind which one answer is written: tokens a second. */
async function decode(context: number): Promise<number> {
  const [rounds, tokens] = small ? [1, 8] : [3, 100];
  const [m, capacity] = [model(), context + rounds * tokens + 64];
  const decoder = GraphDecoder.serves(m) ? new GraphDecoder(m, capacity) : new PlainDecoder(m);
  let token = await decoder.runGreedy(prompt(context));
  for (let i = 0; i < 8; i++) token = await decoder.runGreedy([token]);
  let best = 0;
  for (let round = 0; round < rounds; round++) {
    const begin = performance.now();
    for (let i = 0; i < tokens; i++) token = await decoder.runGreedy([token]);
    best = Math.max(best, (tokens * 1000) / (performance.now() - begin));
  }
  decoder.dispose();
  device.trim();
  return best;
}

/** Answers written side by side behind 512 tokens each: tokens a second of all. */
async function batch(requests: number): Promise<number> {
  const tokens = small ? 8 : 64;
  const tokenizer = wordTokenizer(SHAPES[shape].vocabSize);
  const engine = new TextEngine(model(), tokenizer, { maxRunning: requests, reuse: false });
  const run = async (): Promise<number> => {
    let [started, from, count] = [0, 0, 0];
    const maxTokens = tokens + Math.ceil(requests / 2) + 16;
    await Promise.all(
      Array.from({ length: requests }, async (_, b) => {
        const answer = engine.submit({ prompt: prompt(512, b), maxTokens, ignoreEnd: true });
        let mine = 0;
        for await (const piece of answer) {
          if (mine === 0 && ++started === requests) from = performance.now();
          else if (from > 0) count += piece.tokens.length;
          mine += piece.tokens.length;
          if (count >= requests * tokens) break;
        }
      }),
    );
    return (count * 1000) / (performance.now() - from);
  };
  await run();
  await run();
  const rate = await run();
  await engine.dispose();
  device.trim();
  return rate;
}

/** Training steps, by bench/train.js in a process of its own: every point at once, with PyTorch's beside it. */
function training(): Pick<Curve, 'ours' | 'torch'> {
  const folder = mkdtempSync(join(tmpdir(), 'wick-growth-'));
  const file = join(folder, 'train.json');
  const only = small ? 'tiny' : '30m,124m,350m,774m';
  const args = ['--device', v.device, '--only', only, '--ways', 'eager', '--json', file];
  const ran = spawnSync(process.execPath, [join(here, 'train.js'), ...args, ...(v['no-peers'] ? ['--no-peers'] : [])], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  if (ran.status !== 0) throw new Error('bench/train.js failed');
  interface Trained {
    readonly parameters: number;
    readonly tokens: number;
    readonly torch?: { readonly eager?: number };
  }
  const { results } = JSON.parse(readFileSync(file, 'utf8')) as { results: readonly Trained[] };
  rmSync(folder, { recursive: true });
  return {
    ours: results.map((r): Point => [r.parameters, r.tokens]),
    torch: results.flatMap((r): Point[] => (r.torch?.eager ? [[r.parameters, r.torch.eager]] : [])),
  };
}

const productRate = async (): Promise<number> => {
  const [a, b] = [1, 2].map((seed) => randn([1024, 1024], { seed, device }));
  return (2 * 1024 ** 3) / (await seconds(() => scope(() => void a.matmul(b)))) / 1e9;
};
/** Threads of the CPU engine: GFLOP/s of a product of 1024 x 1024 numbers. */
function threads(count: number): number {
  const ran = spawnSync(process.execPath, [fileURLToPath(import.meta.url), '--device', 'cpu', '--product'], {
    env: { ...process.env, WICK_THREADS: String(count) },
    encoding: 'utf8',
  });
  if (ran.status !== 0) throw new Error(`the product on ${count} threads failed: ${ran.stderr}`);
  return Number(ran.stdout);
}

interface Measured {
  readonly sizes: readonly number[];
  readonly rate: (size: number) => number | Promise<number>;
}
const powers = (from: number, to: number, step: number): number[] =>
  Array.from({ length: (to - from) / step + 1 }, (_, i) => 2 ** (from + i * step));
const CURVES: Readonly<Record<Exclude<CurveName, 'training'>, Measured>> = {
  elementwise: { sizes: powers(10, small ? 20 : 32, 2), rate: elementwise },
  prompt: { sizes: small ? [64, 128] : powers(7, 15, 2), rate: read },
  decode: { sizes: small ? [32, 64] : [32, 512, 2048, 8192, 32768], rate: decode },
  batch: { sizes: small ? [1, 2] : [1, 4, 16, 64, 256], rate: batch },
  threads: { sizes: small ? [1, 2] : [1, 2, 4, 8, 16], rate: threads },
};

function torchCurves(names: readonly string[]): Readonly<Record<string, readonly Point[]>> {
  const script = join(here, '..', '..', 'bench', 'peers', 'pytorch-growth.py');
  const asked = Object.fromEntries(names.map((name) => [name, CURVES[name as keyof typeof CURVES].sizes]));
  const ran = spawnSync('python3', [script, JSON.stringify(asked)], { encoding: 'utf8', maxBuffer: 2 ** 24 });
  if (ran.status === 0) return JSON.parse(ran.stdout.trim().split('\n').at(-1) ?? '{}');
  console.error(`PyTorch gave no numbers: ${(ran.error?.message ?? ran.stderr).trim().split('\n').at(-1)}`);
  return {};
}

async function main(): Promise<void> {
  const names = (v.only?.split(',') ?? [...Object.keys(CURVES), 'training']) as CurveName[];
  const curves: { -readonly [K in CurveName]?: Curve } = {};
  for (const name of names) {
    if (name === 'training') curves[name] = training();
    else {
      const ours: Point[] = [];
      await CURVES[name].rate(CURVES[name].sizes[0]); // the host's code is compiled by then
      for (const size of CURVES[name].sizes) {
        ours.push([size, await CURVES[name].rate(size)]);
        console.error(`${name} ${size}: ${ours.at(-1)?.[1].toPrecision(4)}`);
      }
      curves[name] = { ours };
    }
  }
  known?.dispose();
  device.trim();
  const torch = v['no-peers'] || small ? {} : torchCurves(names.filter((n) => n !== 'training'));
  for (const name of names) if (torch[name]) curves[name] = { ...(curves[name] as Curve), torch: torch[name] };
  const rows = names.flatMap((name) => {
    const { ours, torch = [] } = curves[name] as Curve;
    return ours.map(([size, rate]) => {
      const theirs = torch.find(([x]) => x === size)?.[1];
      return [
        name,
        String(size),
        rate.toPrecision(4),
        theirs?.toPrecision(4) ?? '',
        theirs ? (rate / theirs).toFixed(2) : '',
      ];
    });
  });
  console.log(table(['curve', 'size', 'wick', 'PyTorch', 'wick / PyTorch'], rows));
  const record = { device: device.description, date: new Date().toISOString(), commit: commitNow(), curves };
  if (v.json) writeFileSync(v.json, `${JSON.stringify(record, undefined, 1)}\n`);
}
if (v.product) console.log(await productRate());
else await main();
