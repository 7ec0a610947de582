// A short look at a GPU's speed: a dozen kinds of work as shares of the copy bandwidth measured in the same run.
import { GpuBackend } from '../backends/gpu/gpu.js';
import type { DType } from '../base/dtype.js';
import { bytesOf } from '../base/dtype.js';
import { randn } from '../index.js';
import type { Device } from '../tensor/device.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';

export interface Speed {
  readonly work: string;
  readonly ms: number;
  readonly gbPerSecond?: number;
  readonly ofCopy?: number;
  readonly tflops?: number;
}
interface Work {
  readonly name: string;
  readonly bytes?: number;
  readonly flops?: number;
  readonly setup: (device: Device) => () => Tensor;
}

const MIB = 2 ** 20;
const SIZE = 256 * MIB;
const make = (shape: readonly number[], dtype: DType, device: Device): Tensor =>
  randn(shape, { dtype, device, seed: 1 });
const moving = (name: string, dtype: DType, f: (x: Tensor, w: Tensor) => Tensor, reads = 1, writes = 1): Work => ({
  name: `${name}, 256 MiB of ${dtype}`,
  bytes: (reads + writes) * SIZE,
  setup: (device) => {
    const columns = 4096;
    const x = make([SIZE / bytesOf(dtype) / columns, columns], dtype, device);
    const w = make([columns], dtype, device);
    return () => f(x, w);
  },
});
const product = (n: number, dtype: DType): Work => ({
  name: `matmul of ${n} in ${dtype}`,
  flops: 2 * n ** 3,
  setup: (device) => {
    const [x, y] = [make([n, n], dtype, device), make([n, n], dtype, device)];
    return () => x.matmul(y);
  },
});

const WORK: readonly Work[] = [
  moving('copy', 'f32', (x) => x.copy()),
  moving('exp', 'f32', (x) => x.exp()),
  moving('gelu', 'bf16', (x) => x.gelu()),
  moving('add', 'bf16', (x) => x.add(x), 1),
  moving('sum of rows', 'f32', (x) => x.sum(-1), 1, 0),
  moving('softmax', 'f32', (x) => x.softmax(-1)),
  moving('layerNorm', 'bf16', (x, w) => x.layerNorm(w, w)),
  moving('rmsNorm', 'bf16', (x, w) => x.rmsNorm(w)),
  moving('transposed copy', 'f32', (x) => x.t().copy()),
  product(4096, 'bf16'),
  product(2048, 'f32'),
  {
    name: 'attention 4x16x2048x128 in bf16, causal',
    flops: 2 * 4 * 16 * 2048 * 2048 * 128,
    setup: (device) => {
      const [q, k, v] = [0, 1, 2].map(() => make([4, 16, 2048, 128], 'bf16', device));
      return () => q.sdpa(k, v, { causal: true });
    },
  },
  {
    name: 'conv2d 32x64x56x56 by 3x3 in f16',
    flops: 2 * 32 * 64 * 64 * 9 * 56 * 56,
    setup: (device) => {
      const [x, w] = [make([32, 64, 56, 56], 'f16', device), make([64, 64, 3, 3], 'f16', device)];
      return () => x.conv2d(w, { padding: 1 });
    },
  },
];

/** Milliseconds of a step: the best of a few rounds, each long enough for the clock. */
function time(gpu: GpuBackend, step: () => unknown): number {
  const { device, stream } = gpu.context;
  const [start, end] = [device.createEvent(true), device.createEvent(true)];
  const round = (times: number): number => {
    device.record(start, stream);
    for (let i = 0; i < times; i++) scope(() => void step());
    device.record(end, stream);
    device.synchronizeEvent(end);
    return device.elapsed(start, end) / times;
  };
  round(2);
  const times = Math.max(3, Math.min(50, Math.ceil(10 / round(2))));
  const best = Math.min(...Array.from({ length: 4 }, () => round(times)));
  device.destroyEvent(start);
  device.destroyEvent(end);
  return best;
}

export function measureSpeed(device: Device, progress: (done: number, all: number, what: string) => void): Speed[] {
  const gpu = device.backend as GpuBackend;
  let copy: number | undefined;
  return WORK.map((work, i) => {
    progress(i + 1, WORK.length, work.name);
    let ms = 0;
    scope(() => {
      ms = time(gpu, work.setup(device));
    });
    gpu.trim();
    const gbPerSecond = work.bytes && work.bytes / ms / 1e6;
    copy ??= gbPerSecond;
    return {
      work: work.name,
      ms: Number(ms.toPrecision(4)),
      ...(gbPerSecond && {
        gbPerSecond: Math.round(gbPerSecond),
        ofCopy: Number((gbPerSecond / (copy ?? 1)).toFixed(2)),
      }),
      ...(work.flops && { tflops: Number((work.flops / ms / 1e9).toFixed(1)) }),
    };
  });
}
