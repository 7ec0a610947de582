// `npm run bench -- --device cuda:0`: the work that matters on a GPU, as a share of the copy bandwidth measured in the
// same run, with PyTorch beside it.
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import type { DType } from '../src/base/dtype.js';
import { bytesOf } from '../src/base/dtype.js';
import { type FirstUse, firstUse } from './first-use.js';
import { arange, type Device, randint, randn, scope, type Tensor } from '../src/index.js';

export interface Work {
  readonly name: string;
  /** Bytes that must move, or operations that must be done. */
  readonly bytes?: number;
  readonly flops?: number;
  /** Vendor libraries are switched off for it. */
  readonly own?: boolean;
  /** Makes the inputs and gives the step to time. */
  readonly setup: (device: Device) => () => Tensor | readonly Tensor[];
}
export interface Timing {
  readonly name: string;
  readonly ms: number;
  readonly gbPerSecond?: number;
  readonly tflops?: number;
  /** Share of the copy bandwidth of this run. */
  readonly ofCopy?: number;
  readonly torchMs?: number;
  /** With TF32 allowed, which ours is not: of f32 convolutions. */
  readonly torchTf32Ms?: number;
  /** PyTorch's time divided by ours, TF32 allowed to neither. */
  readonly speedup?: number;
  /** Of the first use of a kernel: `ms` is the median. */
  readonly firstUse?: FirstUse;
}

const GIB = 2 ** 30;
const FIRST_USE = 'first use of a kernel';
const SHAPES: readonly (readonly [number, number])[] = [
  [65536, 4096],
  [16384, 16384],
  [1048576, 128],
];
const make = (shape: readonly number[], dtype: DType, device: Device): Tensor =>
  randn(shape, { dtype, device, seed: 1 });

function* elementwise(): Generator<Work> {
  for (const dtype of ['f32', 'bf16'] as const) {
    const n = GIB / bytesOf(dtype);
    const one = (name: string, f: (x: Tensor) => Tensor, bytes = 2 * GIB): Work => ({
      name: `${name} 1 GiB ${dtype}`,
      bytes,
      setup: (d) => {
        const x = make([n], dtype, d);
        return () => f(x);
      },
    });
    yield one('exp', (x) => x.exp());
    yield one('gelu', (x) => x.gelu());
    yield one('affine', (x) => x.affine(2, 1));
    yield one('cast', (x) => x.castTo(dtype === 'f32' ? 'bf16' : 'f32'), dtype === 'f32' ? 1.5 * GIB : 3 * GIB);
    yield {
      name: `add 1 GiB ${dtype}`,
      bytes: 3 * GIB,
      setup: (d) => {
        const [x, y] = [make([n], dtype, d), make([n], dtype, d)];
        return () => x.add(y);
      },
    };
  }
}

function* rows(): Generator<Work> {
  for (const dtype of ['f32', 'bf16'] as const) {
    for (const [r, c] of SHAPES) {
      const size = r * c * bytesOf(dtype);
      const one = (name: string, bytes: number, f: (x: Tensor, w: Tensor) => Tensor): Work => ({
        name: `${name} ${r}x${c} ${dtype}`,
        bytes,
        setup: (d) => {
          const [x, w] = [make([r, c], dtype, d), make([c], dtype, d)];
          return () => f(x, w);
        },
      });
      yield one('sum', size, (x) => x.sum(-1));
      yield one('argmax', size, (x) => x.argmax(-1));
      yield one('softmax', 2 * size, (x) => x.softmax(-1));
      yield one('layerNorm', 2 * size, (x, w) => x.layerNorm(w, w));
      yield one('rmsNorm', 2 * size, (x, w) => x.rmsNorm(w));
    }
  }
}

function* others(): Generator<Work> {
  yield {
    name: 'transposed copy 16384x16384 f32',
    bytes: 2 * GIB,
    setup: (d) => {
      const x = make([16384, 16384], 'f32', d);
      return () => x.t().copy();
    },
  };
  yield {
    name: 'indexSelect 65536 rows of 1024 bf16',
    bytes: 2 * 65536 * 1024 * 2,
    setup: (d) => {
      const [x, ids] = [
        make([65536, 1024], 'bf16', d),
        randint(0, 65536, [65536], { dtype: 'u32', device: d, seed: 2 }),
      ];
      return () => x.indexSelect(0, ids);
    },
  };
  yield {
    name: 'rope 4x32x4096x128 bf16',
    bytes: 2 * 4 * 32 * 4096 * 128 * 2,
    setup: (d) => {
      const x = make([4, 32, 4096, 128], 'bf16', d);
      const [cos, sin] = [make([4096, 64], 'bf16', d), make([4096, 64], 'bf16', d)];
      return () => x.rope(cos, sin);
    },
  };
  for (const [r, c] of [
    [16384, 1024],
    [64, 131072],
  ] as const) {
    yield {
      name: `argsort ${r}x${c} f32`,
      setup: (d) => {
        const x = make([r, c], 'f32', d);
        return () => x.argsort(-1);
      },
    };
  }
  for (const [n, dtype] of [
    [8192, 'bf16'],
    [8192, 'f16'],
    [4096, 'f32'],
  ] as const) {
    yield {
      name: `matmul ${n} ${dtype}`,
      flops: 2 * n ** 3,
      setup: (d) => {
        const [x, y] = [make([n, n], dtype, d), make([n, n], dtype, d)];
        return () => x.matmul(y);
      },
    };
  }
  for (const [n, dtype] of [
    [8192, 'bf16'],
    [4096, 'f16'],
    [4096, 'f32'],
  ] as const) {
    const product = (transposed: boolean) => (d: Device) => {
      const [x, y] = [make([n, n], dtype, d), make([n, n], dtype, d)];
      return () => x.matmul(transposed ? y.t() : y);
    };
    yield { name: `own matmul ${n} ${dtype}`, flops: 2 * n ** 3, own: true, setup: product(false) };
    yield { name: `own matmul ${n} ${dtype}, second transposed`, flops: 2 * n ** 3, own: true, setup: product(true) };
  }
  for (const dtype of ['f32', 'f16'] as const) {
    const flops = 2 * 32 * 64 * 64 * 9 * 56 * 56;
    yield {
      name: `conv2d 32x64x56x56 k3 ${dtype}`,
      flops,
      setup: (d) => {
        const [x, w] = [make([32, 64, 56, 56], dtype, d), make([64, 64, 3, 3], dtype, d)];
        return () => x.conv2d(w, { padding: 1 });
      },
    };
    yield {
      name: `convTranspose2d 32x64x56x56 k3 ${dtype}`,
      flops,
      setup: (d) => {
        const [x, w] = [make([32, 64, 56, 56], dtype, d), make([64, 64, 3, 3], dtype, d)];
        return () => x.convTranspose2d(w, { padding: 1 });
      },
    };
  }
  yield {
    name: 'cumsum 16384x4096 f32',
    bytes: 2 * 16384 * 4096 * 4,
    setup: (d) => {
      const x = make([16384, 4096], 'f32', d);
      return () => x.cumsum(-1);
    },
  };
}

/** Milliseconds a step takes on the device: the best of a few runs, each long enough for the clock. */
function time(gpu: GpuBackend, step: () => unknown): number {
  const { device, stream } = gpu.context;
  const run = (): void => {
    scope(() => {
      step();
    });
  };
  for (let i = 0; i < 3; i++) run();
  const [start, end] = [device.createEvent(true), device.createEvent(true)];
  const once = (times: number): number => {
    device.record(start, stream);
    for (let i = 0; i < times; i++) run();
    device.record(end, stream);
    device.synchronizeEvent(end);
    return device.elapsed(start, end) / times;
  };
  const times = Math.max(3, Math.min(50, Math.ceil(10 / once(2))));
  const best = Math.min(...Array.from({ length: 4 }, () => once(times)));
  device.destroyEvent(start);
  device.destroyEvent(end);
  return best;
}

/**
 * Microseconds of JavaScript, FFI and driver that one small op takes while the queue is not full, once V8 has compiled
 * the way to it, which takes thousands of calls.
 */
function overhead(device: Device): number {
  const x = arange(0, 4, 1, { device });
  const loop = (n: number): number => {
    const t = performance.now();
    for (let i = 0; i < n; i++) x.add(x).dispose();
    return ((performance.now() - t) * 1000) / n;
  };
  const once = (): number => {
    x.dataSync();
    return loop(400);
  };
  for (let i = 0; i < 100; i++) once();
  return Math.min(...Array.from({ length: 10 }, once));
}

/** PyTorch's times for the same names, where it is installed. */
function torchTimes(): Readonly<Record<string, number>> {
  const script = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'bench', 'peers', 'pytorch.py');
  const run = spawnSync('python3', [script], { encoding: 'utf8', maxBuffer: 2 ** 24 });
  return run.status === 0 ? (JSON.parse(run.stdout) as Record<string, number>) : {};
}

export function gpuBench(device: Device, only: string, say: (line: string) => void, peers: boolean): Timing[] {
  const gpu = device.backend as GpuBackend;
  const results: Timing[] = [];
  const wanted = only.split(',');
  if (wanted.some((part) => FIRST_USE.includes(part))) {
    const first = firstUse(device);
    results.push({ name: FIRST_USE, ms: first.median, firstUse: first });
    say(
      `${FIRST_USE}: ${first.kernels} kernels, median ${first.median.toFixed(0)} ms, p75 ${first.p75.toFixed(0)}, worst ${first.worst.toFixed(0)}, ${first.under150} under 150; from disk ${first.cachedMedian.toFixed(1)}, worst ${first.cachedWorst.toFixed(1)}; above: ${first.above150.map((s) => `${s.symbol} ${s.ms.toFixed(0)}`).join(', ')}`,
    );
    device.trim();
  }
  const copy = time(
    gpu,
    (() => {
      const x = make([GIB / 4], 'f32', device);
      return () => x.copy();
    })(),
  );
  const copyRate = (2 * GIB) / copy / 1e6;
  device.trim();
  say(`copy 1 GiB: ${copy.toFixed(3)} ms, ${copyRate.toFixed(0)} GB/s read and written`);
  results.push({ name: 'copy 1 GiB', ms: copy, gbPerSecond: copyRate, ofCopy: 1 });
  for (const work of [...elementwise(), ...rows(), ...others()].filter((w) =>
    wanted.some((part) => w.name.includes(part)),
  )) {
    gpu.context.libraries.enabled = !work.own;
    scope(() => {
      const ms = time(gpu, work.setup(device));
      const gb = work.bytes === undefined ? undefined : work.bytes / ms / 1e6;
      results.push({
        name: work.name,
        ms,
        ...(gb !== undefined && { gbPerSecond: gb, ofCopy: gb / copyRate }),
        ...(work.flops !== undefined && { tflops: work.flops / ms / 1e9 }),
      });
      say(
        `${work.name}: ${ms.toFixed(4)} ms${gb !== undefined ? `, ${(gb / copyRate).toFixed(2)} of copy` : ''}${work.flops ? `, ${(work.flops / ms / 1e9).toFixed(0)} TFLOP/s` : ''}`,
      );
    });
    device.trim();
  }
  gpu.context.libraries.enabled = true;
  const us = overhead(device);
  results.push({ name: 'one op from JavaScript', ms: us / 1000 });
  say(`one op from JavaScript: ${us.toFixed(2)} us`);
  const torch = peers ? torchTimes() : {};
  return results.map((r) =>
    torch[r.name]
      ? {
          ...r,
          torchMs: torch[r.name],
          speedup: torch[r.name] / r.ms,
          ...(torch[`${r.name} tf32`] && { torchTf32Ms: torch[`${r.name} tf32`] }),
        }
      : r,
  );
}
