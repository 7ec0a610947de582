// Some 260 ops and layers beside PyTorch, one call after another: node dist/bench/breadth.js --device cuda:0
//   [--only NAME,NAME] [--seconds 0.05] [--warm-up 1] [--json docs/bench-h200-breadth.json] [--no-peers]
// A ratio is PyTorch's time through ours: above 1 we are faster.
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { DType } from '../src/base/dtype.js';
import { table } from '../src/cli/table.js';
import { Device, eye, gradOf, noGrad, rand, randint, randn, scope, type Tensor } from '../src/index.js';
import { commitNow } from '../src/parity/provenance.js';
import { type BreadthWork, breadthWorks, type Inputs } from './breadth-works.js';

const option = { type: 'string' } as const;
const { values: v } = parseArgs({
  options: {
    device: { ...option, default: 'cpu' },
    only: option,
    seconds: { ...option, default: '0.05' },
    'warm-up': { ...option, default: '1' },
    json: option,
    'no-peers': { type: 'boolean', default: false },
  },
});
const device = Device.get(v.device);
const each = Number(v.seconds);
/** Milliseconds after which a call is timed though its rounds do not agree. */
const LONGEST_WARM_UP = 1000 * Number(v['warm-up']);
const wanted = v.only?.split(',');
const works = breadthWorks().filter((w) => !wanted || wanted.some((part) => w.name.includes(part)));

const shapeOf = (text: string): number[] => text.split('x').map(Number);
/** The operand that a row of bench/breadth-works.ts describes. */
function operand(text: string, seed: number): Tensor {
  const [kind, dtype, sizes] = text.split(' ');
  const [shape, options] = [shapeOf(sizes), { device, seed }];
  if (kind.startsWith('ids<')) return randint(0, Number(kind.slice(4)), shape, options).cast(dtype as DType);
  const drawn: Readonly<Record<string, () => Tensor>> = {
    normal: () => randn(shape, options),
    unit: () => rand(shape, options),
    positive: () => rand(shape, options).add(0.5),
    truth: () => rand(shape, options).lt(0.5),
    sorted: () => randn(shape, options).sort(0)[0],
    definite: () => {
      const [x, n] = [randn(shape, options), shape[shape.length - 1]];
      return x.matmul(x.transpose(-1, -2)).div(n).add(eye(n, { device }));
    },
  };
  return drawn[kind]().cast(dtype as DType);
}

/**
 * Milliseconds of a call: the best of three rounds, each long enough to time. Chains of elementwise calls are compiled
 * in the background while calls go on one by one, so rounds before these run until two of them agree.
 */
async function best(step: () => void): Promise<number> {
  const run = async (n: number): Promise<number> => {
    const begin = performance.now();
    for (let i = 0; i < n; i++) step();
    await device.sync();
    return (performance.now() - begin) / n;
  };
  await run(2);
  const count = Math.max(1, Math.min(2000, Math.round((1000 * each) / Math.max(1e-3, await run(1)))));
  const until = performance.now() + LONGEST_WARM_UP;
  for (let before = Infinity, agreed = 0; agreed < 2 && performance.now() < until; ) {
    const now = await run(count);
    agreed = Math.abs(now - before) < 0.05 * before ? agreed + 1 : 0;
    before = now;
    // What was compiled meanwhile is taken up between turns of the event loop.
    await new Promise((go) => setTimeout(go, 5));
  }
  return Math.min(await run(count), await run(count), await run(count));
}

async function timeOf({ inputs, wick, grad = [] }: BreadthWork): Promise<number> {
  const names: Record<string, Tensor> = {};
  for (const [i, [name, text]] of Object.entries(inputs).entries()) {
    const x = scope(() => operand(text, i + 1));
    names[name] = grad.includes(name) ? x.requireGrad() : x;
  }
  const step = grad.length
    ? () =>
        void gradOf(
          (wick(names) as Tensor).sum(),
          grad.map((name) => names[name]),
        )
    : () => void noGrad(() => wick(names as Inputs));
  try {
    return await best(() => scope(step));
  } finally {
    for (const x of Object.values(names)) x.dispose();
    device.trim();
  }
}

type Times = Record<string, number | string>;
async function ours(): Promise<Times> {
  const times: Times = {};
  for (const [i, work] of works.entries()) {
    if (process.stderr.isTTY) process.stderr.write(`\r${i + 1} of ${works.length}: ${work.name}\u001b[K`);
    try {
      times[work.name] = await timeOf(work);
    } catch (e) {
      times[work.name] = (e as Error).message.split('\n')[0];
    }
  }
  if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
  return times;
}

function pytorch(): Times {
  if (v['no-peers']) return {};
  const script = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'bench', 'peers', 'pytorch-breadth.py');
  const onCpu = device.name === 'cpu';
  const input = JSON.stringify({
    device: onCpu ? 'cpu' : 'cuda',
    seconds: each,
    works,
    ...(onCpu && { threads: availableParallelism() }),
  });
  const { status, stdout } = spawnSync('python3', [script], { encoding: 'utf8', input, maxBuffer: 1 << 28 });
  return status === 0 ? (JSON.parse(stdout) as Times) : {};
}

const [mine, peers] = [await ours(), pytorch()];
const results = works.map(({ name }) => {
  const [ms, torch] = [mine[name], peers[name]];
  const ratio = typeof ms === 'number' && typeof torch === 'number' ? torch / ms : undefined;
  return { name, ms, ...(torch !== undefined && { torch }), ...(ratio && { ratio: Number(ratio.toPrecision(3)) }) };
});
const shown = (t: number | string | undefined): string => (typeof t === 'number' ? t.toPrecision(3) : (t ?? ''));
console.log(
  table(
    ['work', 'ms', 'PyTorch ms', 'PyTorch / ours'],
    [...results]
      .sort((a, b) => (a.ratio ?? 0) - (b.ratio ?? 0))
      .map((r) => [r.name, shown(r.ms), shown(r.torch), r.ratio?.toFixed(2) ?? '']),
  ),
);
const ratios = results.flatMap((r) => r.ratio ?? []);
if (ratios.length) {
  const mean = Math.exp(ratios.reduce((a, r) => a + Math.log(r), 0) / ratios.length);
  const behind = ratios.filter((r) => r < 0.9).length;
  console.log(`\n${ratios.length} works: ${mean.toFixed(2)} on (geometric) average, ${behind} below 0.9`);
}
if (v.json) {
  const record = {
    device: device.properties.product,
    date: new Date().toISOString().slice(0, 10),
    commit: commitNow(),
    results,
  };
  writeFileSync(v.json, `${JSON.stringify(record, null, 1)}\n`);
}
