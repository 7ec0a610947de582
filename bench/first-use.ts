// First use of a kernel: what compiling and loading it costs, over the kernels that common ops launch on this GPU.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type CodeSource, Functions } from '../src/backends/gpu/functions.js';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { type Device, noGrad, randint, randn, scope, type Tensor } from '../src/index.js';
import { KernelCache } from '../src/kernels/cache.js';
import { codeFor } from '../src/kernels/compile.js';
import type { Unit } from '../src/kernels/source.js';

export interface FirstUse {
  readonly kernels: number;
  readonly median: number;
  readonly p75: number;
  readonly worst: number;
  /** How many cost less than 150 ms. */
  readonly under150: number;
  /** With the code on disk from an earlier process. */
  readonly cachedMedian: number;
  readonly cachedWorst: number;
  /** Those that cost more, slowest first. */
  readonly above150: readonly { readonly symbol: string; readonly ms: number }[];
}

const DTYPES = ['f32', 'bf16'] as const;

/** Small work whose kernels are those of large work of the same kind. */
function* works(device: Device): Generator<() => unknown> {
  for (const dtype of DTYPES) {
    const make = (...shape: number[]): Tensor => randn(shape, { dtype, device, seed: 1 });
    const [x, y, w] = [make(64, 4096), make(64, 4096), make(4096)];
    yield* ['exp', 'gelu', 'silu', 'tanh', 'sigmoid', 'relu', 'sqrt', 'neg'].map(
      (name) => () => (x as unknown as Record<string, () => Tensor>)[name](),
    );
    yield* [
      () => x.add(y),
      () => x.mul(y),
      () => x.div(y),
      () => x.add(w),
      () => x.affine(2, 1),
      () => x.gt(y).where(x, y),
      () => x.castTo(dtype === 'f32' ? 'bf16' : 'f32'),
    ];
    yield* [() => x.t().copy(), () => x.narrow(1, 1, 4000).copy(), () => x.permute([1, 0]).add(y.t())];
    yield* [() => x.sum(-1), () => x.mean(-1), () => x.max(-1), () => x.argmax(-1), () => x.sum(0), () => x.cumsum(-1)];
    yield* [() => x.softmax(-1), () => x.logSoftmax(-1), () => x.layerNorm(w, w), () => x.rmsNorm(w)];
    yield* [() => x.argsort(-1), () => x.topk(8), () => make(64, 65536).argsort(-1)];
    const ids = randint(0, 64, [64], { dtype: 'u32', device, seed: 2 });
    yield* [
      () => x.indexSelect(0, ids),
      () => x.embedding(ids),
      () => x.scatterAdd(0, ids.unsqueeze(1).broadcastTo([64, 4096]).copy(), y),
      () => x.gather(0, ids.unsqueeze(1).broadcastTo([64, 4096]).copy()),
    ];
    const [image, filter] = [make(2, 16, 32, 32), make(16, 16, 3, 3)];
    yield* [
      () => image.conv2d(filter, { padding: 1 }),
      () => image.convTranspose2d(filter, { padding: 1 }),
      () => image.maxPool2d(2),
      () => image.upsampleNearest2d([64, 64]),
    ];
    yield* [() => x.matmul(y.t()), () => make(256, 256).matmul(make(256, 256))];
    const [cos, sin, heads] = [make(64, 64), make(64, 64), make(1, 8, 64, 128)];
    yield () => heads.rope(cos, sin);
    yield () => noGrad(() => heads.sdpa(heads, heads, { causal: true }));
    yield () => noGrad(() => heads.narrow(2, 0, 1).copy().sdpa(heads, heads));
    yield () => make(1, 8, 64, 128).requireGrad().sdpa(heads, heads, { causal: true }).sum().backward();
  }
}

const quantile = (sorted: readonly number[], q: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))];

/** A text no compiler has seen: NVRTC keeps what it compiled on disk, and would only look it up. */
const unseen = (unit: Unit): Unit => ({
  ...unit,
  whole: undefined,
  source: `${unit.source}static constexpr int wick_first_use_${randomBytes(8).toString('hex')} = 0;\n`,
});

/**
 * Every kernel those works launch, compiled and loaded as if for the first time; our own kernels serve where a library
 * would. To be called before other work, which would have them loaded.
 */
export function firstUse(device: Device): FirstUse {
  const gpu = (device.backend as GpuBackend).context;
  const dir = mkdtempSync(join(tmpdir(), 'wick-first-use-'));
  const cache = new KernelCache(dir);
  const first: { symbol: string; ms: number }[] = [];
  const cached: number[] = [];
  const load = (unit: Unit): { code: Uint8Array; ms: number } => {
    const start = performance.now();
    const code = codeFor(unit, gpu.device.info.arch, cache);
    const module = gpu.device.loadModule(code, unit.name);
    gpu.device.getFunction(module, unit.entries[0].symbol);
    const ms = performance.now() - start;
    return { code, ms };
  };
  const timed: CodeSource = (unit) => {
    const fresh = unseen(unit);
    const { code, ms } = load(fresh);
    first.push({ symbol: unit.entries[0].symbol, ms });
    cached.push(load(fresh).ms);
    return code;
  };
  const { functions, libraries } = gpu;
  const { enabled } = libraries;
  const open = gpu as { functions: Functions };
  libraries.enabled = false;
  open.functions = new Functions(gpu.device, timed);
  try {
    scope(() => {
      for (const work of works(device)) scope(() => void work());
    });
  } finally {
    open.functions = functions;
    libraries.enabled = enabled;
    rmSync(dir, { recursive: true, force: true });
  }
  first.sort((a, b) => a.ms - b.ms);
  cached.sort((a, b) => a - b);
  const times = first.map((f) => f.ms);
  return {
    kernels: first.length,
    median: quantile(times, 0.5),
    p75: quantile(times, 0.75),
    worst: times[times.length - 1],
    under150: times.filter((ms) => ms < 150).length,
    cachedMedian: quantile(cached, 0.5),
    cachedWorst: cached[cached.length - 1],
    above150: first.filter((f) => f.ms >= 150).reverse(),
  };
}
