// Attention forward and backward at the sizes people quote: node dist/bench/attention.js --device cuda:0
//   [--only PATTERN] [--any-order] [--json FILE] [--no-peers]
// Rates count operations on keys that are seen. PyTorch's scaled_dot_product_attention stands beside it where it has
// the case (bench/peers/pytorch-attention.py); --any-order lets gradients be added up in any order, as PyTorch's are
// unless it is told otherwise (torch.use_deterministic_algorithms): without --any-order both stand beside ours.
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { table } from '../src/cli/table.js';
import { Device, type DType, noGrad, randn, scope, tensor, type Tensor } from '../src/index.js';
import type { SdpaOptions } from '../src/nn/index.js';
import { commitNow } from '../src/parity/provenance.js';

const { values: v } = parseArgs({
  options: {
    device: { type: 'string', default: 'cpu' },
    only: { type: 'string', default: '' },
    'any-order': { type: 'boolean', default: false },
    json: { type: 'string' },
    'no-peers': { type: 'boolean', default: false },
  },
});
const device = Device.get(v.device);
device.deterministic = !v['any-order'];
/** Seconds that a case runs before it is timed. */
const WARM = device.name.startsWith('cuda') || device.name.startsWith('rocm') ? 0.1 : 0;
// Libraries are tried with the first call: what comes again in practice comes again here.
if (device.backend instanceof GpuBackend) device.backend.context.libraries.attentionPatience = 0;

interface Case {
  readonly name: string;
  readonly dtype: DType;
  /** batch, query heads, key heads, tokens, numbers of a head */
  readonly sizes: readonly [number, number, number, number, number];
  readonly causal: boolean;
  readonly window?: number;
  readonly kind?: 'varlen' | 'paged';
  /** What scores get beside the plain product. */
  readonly more?: keyof typeof MORE;
  readonly backward: boolean;
}
/** Changes of scores, each for so many heads and tokens; the rate counts no operation of theirs. */
const MORE = {
  softcap: () => ({ softcap: 30 }),
  alibi: (heads: number) => ({ alibi: perHead(heads, (i) => 2 ** (-(8 * (i + 1)) / heads)) }),
  sinks: (heads: number) => ({ sinks: perHead(heads, (i) => i / heads) }),
  mask: (_: number, t: number) => ({ mask: randn([1, 1, t, t], { seed: 7, device }).gt(-1) }),
  'added mask': (_: number, t: number) => ({ mask: randn([1, 1, t, t], { seed: 7, device }).cast('bf16') }),
} satisfies Readonly<Record<string, (heads: number, tokens: number) => SdpaOptions>>;
const perHead = (heads: number, of: (i: number) => number): Tensor =>
  tensor(
    Float32Array.from({ length: heads }, (_, i) => of(i)),
    { device },
  );
type Sizes = readonly [batch: number, heads: number, tokens: number, dim: number];
const LARGE: readonly (readonly [Sizes, readonly boolean[]])[] = [
  [[4, 32, 4096, 64], [true]],
  [[4, 16, 4096, 96], [true]],
  [
    [4, 32, 4096, 128],
    [true, false],
  ],
  [[4, 16, 4096, 192], [true]],
  [
    [4, 16, 4096, 256],
    [true, false],
  ],
  // Those that take 0.1 ms come last: by then the host is warm.
  [
    [4, 16, 2048, 64],
    [true, false],
  ],
  [
    [16, 16, 1024, 64],
    [true, false],
  ],
];
const SMALL: typeof LARGE = [[[1, 2, 64, 16], [true]]];
const onGpu = WARM > 0;
function cases(): Case[] {
  const list: Case[] = [];
  const add = (c: Omit<Case, 'name'>): void => {
    const [b, h, hk, t, d] = c.sizes;
    const how = c.kind ?? c.more ?? (c.window ? `window ${c.window}` : c.causal ? 'causal' : 'full');
    const heads = hk === h ? h : `${h}/${hk}`;
    list.push({ ...c, name: `${c.backward ? 'backward' : 'forward'} ${c.dtype} ${b}x${heads}x${t}x${d} ${how}` });
  };
  for (const backward of [false, true]) {
    for (const [[b, h, t, d], ways] of onGpu ? LARGE : SMALL)
      for (const causal of ways) add({ dtype: 'bf16', sizes: [b, h, h, t, d], causal, backward });
    const [b, h, t, d]: Sizes = onGpu ? [4, 32, 4096, 128] : [1, 4, 64, 16];
    const usual = { sizes: [b, h, h, t, d] as const, causal: true, backward };
    add({ ...usual, dtype: 'f16' });
    add({ ...usual, dtype: 'bf16', sizes: [b, h, h / 4, t, d] });
    add({ ...usual, dtype: 'bf16', window: t / 4 });
    add({ ...usual, dtype: 'bf16', kind: 'varlen' });
    if (!backward) add({ ...usual, dtype: 'bf16', kind: 'paged' });
    for (const more of Object.keys(MORE) as (keyof typeof MORE)[]) add({ ...usual, dtype: 'bf16', more });
  }
  return list.filter((c) => new RegExp(v.only).test(c.name));
}

/** Keys that a query sees, all queries of a head together. */
function seen({ sizes: [, , , t], causal, window }: Case): number {
  if (window) return t * (window + 1) - (window * (window + 1)) / 2;
  return causal ? (t * (t + 1)) / 2 : t * t;
}

interface Times {
  /** Of one call in the best of three rounds. */
  readonly seconds: number;
  /**
   * Of them until the host had enqueued it, in the round where that was least: what calls that the GPU is done with
   * sooner take.
   */
  readonly hostUs: number;
}
async function time(f: () => void): Promise<Times> {
  const begin = performance.now();
  do {
    f();
    await device.sync();
  } while (performance.now() - begin < 1000 * WARM);
  const once = performance.now();
  f();
  await device.sync();
  const count = Math.max(1, Math.round((WARM * 1000) / Math.max(0.01, performance.now() - once)));
  let [best, host] = [Infinity, Infinity];
  for (let round = 0; round < 3; round++) {
    const start = performance.now();
    for (let i = 0; i < count; i++) f();
    host = Math.min(host, (performance.now() - start) / count);
    await device.sync();
    best = Math.min(best, (performance.now() - start) / 1000 / count);
  }
  return { seconds: best, hostUs: 1000 * host };
}
const random = (shape: number[], seed: number, dtype: DType): Tensor => randn(shape, { seed, device }).cast(dtype);
const PAGE = 64;
/** A call of a case, without and with a graph. */
function attention(c: Case): { readonly inputs: readonly Tensor[]; readonly run: () => Tensor } {
  const [b, h, hk, t, d] = c.sizes;
  const options = {
    causal: c.causal,
    ...(c.window && { window: [c.window, 0] as [number, number] }),
    ...(c.more && MORE[c.more](h, t)),
  };
  if (c.kind === 'varlen') {
    const inputs = [h, hk, hk].map((n, i) => random([b * t, n, d], i + 1, c.dtype));
    const starts = tensor(
      Int32Array.from({ length: b + 1 }, (_, i) => i * t),
      { device },
    );
    const [q, k, x] = inputs;
    return { inputs, run: () => q.sdpaVarlen(k, x, starts, starts, { ...options, maxQueries: t, maxKeys: t }) };
  }
  const q = random([b, h, t, d], 1, c.dtype);
  if (c.kind === 'paged') {
    const page = Math.min(PAGE, t);
    const [k, x] = [2, 3].map((seed) => random([(b * t) / page, hk, page, d], seed, c.dtype));
    const pages = tensor(
      Int32Array.from({ length: (b * t) / page }, (_, i) => i),
      { shape: [b, t / page], device },
    );
    const lengths = tensor(new Int32Array(b).fill(t), { device });
    return { inputs: [q, k, x], run: () => q.sdpaPaged(k, x, pages, { ...options, lengths }) };
  }
  const [k, x] = [2, 3].map((seed) => random([b, hk, t, d], seed, c.dtype));
  return { inputs: [q, k, x], run: () => q.sdpa(k, x, options) };
}

interface Result {
  readonly name: string;
  readonly value: number;
  readonly unit: 'TFLOP/s';
  readonly hostUs: number;
  torch?: number;
  ofTorch?: number;
  /** PyTorch's where its gradients, too, are added up in one order. */
  torchInOneOrder?: number;
  ofTorchInOneOrder?: number;
}
const results: Result[] = [];
console.log(`${device.name}: ${device.description}${v['any-order'] ? ', gradients in any order' : ''}`);
for (const c of cases()) {
  const { inputs, run } = attention(c);
  let times: Times;
  if (c.backward) {
    for (const t of inputs) t.requireGrad();
    const out = run();
    const grad = random([...out.shape], 4, c.dtype);
    times = await time(() => scope(() => void out.backward({ grad, retainGraph: true })));
    for (const t of [out, grad]) t.dispose();
  } else times = await time(() => scope(() => noGrad(() => void run())));
  for (const t of inputs) t.dispose();
  const [b, h, , , d] = c.sizes;
  const value = (4 * b * h * d * seen(c) * (c.backward ? 2.5 : 1)) / times.seconds / 1e12;
  results.push({ name: c.name, value, unit: 'TFLOP/s', hostUs: times.hostUs });
  console.log(
    `${c.name.padEnd(48)} ${value.toPrecision(4)} TFLOP/s, ${(1e6 * times.seconds).toFixed(0)} us, host ` +
      `${times.hostUs.toFixed(0)}`,
  );
}
if (onGpu && !v['no-peers']) {
  device.trim();
  const script = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'bench', 'peers', 'pytorch-attention.py');
  const names = results.map((r) => r.name).join('\n');
  const orders = v['any-order'] ? [] : ['--one-order'];
  const ran = spawnSync('python3', [script, ...orders], { input: names, encoding: 'utf8', maxBuffer: 2 ** 24 });
  if (ran.stderr) console.error(ran.stderr.trimEnd());
  const torch = ran.status === 0 ? (JSON.parse(ran.stdout) as Record<string, number>) : {};
  for (const r of results) {
    const [usual, ordered] = [torch[r.name], torch[`${r.name} in one order`]];
    if (usual) Object.assign(r, { torch: usual, ofTorch: r.value / usual });
    if (ordered) Object.assign(r, { torchInOneOrder: ordered, ofTorchInOneOrder: r.value / ordered });
  }
  const told = (n: number | undefined, digits: number): string => n?.toFixed(digits) ?? '';
  console.log(
    table(
      ['attention', 'wick', 'PyTorch', 'wick / PyTorch', 'PyTorch in one order', 'wick / that'],
      results.map((r) => [
        ...[r.name, told(r.value, 0), told(r.torch, 0), told(r.ofTorch, 2)],
        ...[told(r.torchInOneOrder, 0), told(r.ofTorchInOneOrder, 2)],
      ]),
    ),
  );
}
if (v.json)
  writeFileSync(
    v.json,
    `${JSON.stringify({ device: device.description, date: new Date().toISOString(), commit: commitNow(), anyOrder: v['any-order'], results }, null, 1)}\n`,
  );
