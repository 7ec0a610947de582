// The benchmarks whose time on AMD GPUs is estimated: a small run for the emulator, and how many times its work the
// benchmark is.
import { bytesOf, type DType } from '../src/base/dtype.js';
import { type Device, randint, randn, type Tensor } from '../src/index.js';

export interface AmdWork {
  readonly name: string;
  /** Bytes that the benchmark must move at least, and its floating-point operations. */
  readonly bytes: number;
  readonly flops?: number;
  /** The benchmark's work over the small run's. */
  readonly scale: number;
  readonly setup: (device: Device) => () => Tensor;
}

const GIB = 2 ** 30;
const SMALL = 2 ** 18;
const make = (shape: readonly number[], dtype: DType, device: Device): Tensor =>
  randn(shape, { dtype, device, seed: 1 });

function elementwise(dtype: DType): AmdWork[] {
  const one = (name: string, moved: number, f: (x: Tensor, y: Tensor) => Tensor): AmdWork => ({
    name: `${name} 1 GiB ${dtype}`,
    bytes: moved * GIB,
    scale: GIB / bytesOf(dtype) / SMALL,
    setup: (d) => {
      const [x, y] = [make([SMALL], dtype, d), make([SMALL], dtype, d)];
      return () => f(x, y);
    },
  });
  return [
    one('exp', 2, (x) => x.exp()),
    one('gelu', 2, (x) => x.gelu()),
    one('affine', 2, (x) => x.affine(2, 1)),
    one('add', 3, (x, y) => x.add(y)),
  ];
}

function rows(dtype: DType, r: number, c: number, few: number): AmdWork[] {
  const size = r * c * bytesOf(dtype);
  const one = (name: string, moved: number, f: (x: Tensor, w: Tensor) => Tensor): AmdWork => ({
    name: `${name} ${r}x${c} ${dtype}`,
    bytes: moved * size,
    scale: r / few,
    setup: (d) => {
      const [x, w] = [make([few, c], dtype, d), make([c], dtype, d)];
      return () => f(x, w);
    },
  });
  return [
    one('sum', 1, (x) => x.sum(-1)),
    one('argmax', 1, (x) => x.argmax(-1)),
    one('softmax', 2, (x) => x.softmax(-1)),
    one('layerNorm', 2, (x, w) => x.layerNorm(w, w)),
    one('rmsNorm', 2, (x, w) => x.rmsNorm(w)),
  ];
}

const product = (dtype: DType): AmdWork => {
  const [n, few] = [4096, 256];
  return {
    name: `own matmul ${n} ${dtype}`,
    bytes: 3 * n * n * bytesOf(dtype),
    flops: 2 * n ** 3,
    scale: (n / few) ** 3,
    setup: (d) => {
      const [x, y] = [make([few, few], dtype, d), make([few, few], dtype, d)];
      return () => x.matmul(y);
    },
  };
};

export const amdWorks = (): AmdWork[] => [
  ...elementwise('f32'),
  ...elementwise('bf16'),
  ...rows('f32', 65536, 4096, 64),
  ...rows('bf16', 65536, 4096, 64),
  ...rows('f32', 1048576, 128, 2048),
  {
    name: 'transposed copy 16384x16384 f32',
    bytes: 2 * GIB,
    scale: (16384 / 512) ** 2,
    setup: (d) => {
      const x = make([512, 512], 'f32', d);
      return () => x.t().copy();
    },
  },
  {
    name: 'indexSelect 65536 rows of 1024 bf16',
    bytes: 2 * 65536 * 1024 * 2,
    scale: 256,
    setup: (d) => {
      const ids = randint(0, 256, [256], { dtype: 'u32', device: d, seed: 2 });
      const x = make([256, 1024], 'bf16', d);
      return () => x.indexSelect(0, ids);
    },
  },
  {
    name: 'rope 4x32x4096x128 bf16',
    bytes: 2 * 4 * 32 * 4096 * 128 * 2,
    scale: 1024,
    setup: (d) => {
      const x = make([1, 4, 128, 128], 'bf16', d);
      const [cos, sin] = [make([128, 64], 'bf16', d), make([128, 64], 'bf16', d)];
      return () => x.rope(cos, sin);
    },
  },
  {
    name: 'cumsum 16384x4096 f32',
    bytes: 2 * 16384 * 4096 * 4,
    scale: 1024,
    setup: (d) => {
      const x = make([16, 4096], 'f32', d);
      return () => x.cumsum(-1);
    },
  },
  product('bf16'),
  product('f32'),
  {
    name: 'attention 4x32x4096x128 bf16, causal',
    bytes: 4 * 4 * 32 * 4096 * 128 * 2,
    flops: 2 * 4 * 32 * 4096 * 4096 * 128,
    scale: 4 * 32 * (4096 / 256) ** 2,
    setup: (d) => {
      const [q, k, v] = [0, 1, 2].map(() => make([1, 1, 256, 128], 'bf16', d));
      return () => q.sdpa(k, v, { causal: true });
    },
  },
];
