// `npm run bench -- --device emu:gfx1030`: what kernels execute and move on an emulated GPU. No clock is read: the
// figures are the same on every machine.
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { bytesOf, type DType } from '../src/base/dtype.js';
import { EmuDevice } from '../src/emulator/device.js';
import { type Device, randint, randn, scope, type Tensor } from '../src/index.js';
import { warm } from '../src/testing/warm.js';

interface Work {
  readonly name: string;
  /** Elements of the result (or products summed): what instructions are counted against. */
  readonly elements: number;
  /** Bytes that must be read and written at least. */
  readonly bytes: number;
  readonly setup: (device: Device) => () => Tensor | readonly Tensor[];
}
export interface WorkCounts {
  readonly name: string;
  readonly launches: number;
  readonly waveInstructions: number;
  readonly laneInstructions: number;
  readonly read: number;
  readonly written: number;
  /** Lane instructions an element of the result, or a product. */
  readonly perElement: number;
  /** Bytes read and written by instructions, over those that must be. */
  readonly traffic: number;
}

const make = (shape: readonly number[], dtype: DType, device: Device): Tensor =>
  randn(shape, { dtype, device, seed: 1 });

function* works(): Generator<Work> {
  const n = 65536;
  for (const dtype of ['f32', 'f16', 'bf16'] as const) {
    const b = bytesOf(dtype);
    const one = (name: string, f: (x: Tensor) => Tensor): Work => ({
      name: `${name} ${n} ${dtype}`,
      elements: n,
      bytes: 2 * n * b,
      setup: (d) => {
        const x = make([n], dtype, d);
        return () => f(x);
      },
    });
    yield one('exp', (x) => x.exp());
    yield one('gelu', (x) => x.gelu());
    yield {
      name: `add ${n} ${dtype}`,
      elements: n,
      bytes: 3 * n * b,
      setup: (d) => {
        const [x, y] = [make([n], dtype, d), make([n], dtype, d)];
        return () => x.add(y);
      },
    };
    const [r, c] = [64, 1024];
    const rows = (name: string, bytes: number, f: (x: Tensor, w: Tensor) => Tensor): Work => ({
      name: `${name} ${r}x${c} ${dtype}`,
      elements: r * c,
      bytes,
      setup: (d) => {
        const [x, w] = [make([r, c], dtype, d), make([c], dtype, d)];
        return () => f(x, w);
      },
    });
    yield rows('sum', (r * c + r) * b, (x) => x.sum(-1));
    yield rows('softmax', 2 * r * c * b, (x) => x.softmax(-1));
    yield rows('rmsNorm', (2 * r * c + c) * b, (x, w) => x.rmsNorm(w));
    yield rows('layerNorm', (2 * r * c + 2 * c) * b, (x, w) => x.layerNorm(w, w));
    const m = 128;
    yield {
      name: `matmul ${m}x${m}x${m} ${dtype}`,
      elements: m ** 3,
      bytes: 3 * m * m * b,
      setup: (d) => {
        const [x, y] = [make([m, m], dtype, d), make([m, m], dtype, d)];
        return () => x.matmul(y);
      },
    };
  }
  yield {
    name: 'transposed copy 256x256 f32',
    elements: n,
    bytes: 8 * n,
    setup: (d) => {
      const x = make([256, 256], 'f32', d);
      return () => x.t().copy();
    },
  };
  yield {
    name: 'argsort 16x1024 f32',
    elements: 16384,
    bytes: 8 * 16384,
    setup: (d) => {
      const x = make([16, 1024], 'f32', d);
      return () => x.argsort(-1);
    },
  };
  yield {
    name: 'cumsum 16x4096 f32',
    elements: n,
    bytes: 8 * n,
    setup: (d) => {
      const x = make([16, 4096], 'f32', d);
      return () => x.cumsum(-1);
    },
  };
  yield {
    name: 'indexSelect 256 rows of 256 f32',
    elements: n,
    bytes: 8 * n + 1024,
    setup: (d) => {
      const [x, ids] = [make([256, 256], 'f32', d), randint(0, 256, [256], { dtype: 'u32', device: d, seed: 2 })];
      return () => x.indexSelect(0, ids);
    },
  };
}

/** Counts of one run of each work, its inputs already there. */
export function emulatedBench(device: Device, only: string, say: (line: string) => void): WorkCounts[] {
  const emu = (device.backend as GpuBackend).context.device as EmuDevice;
  const chosen = [...works()].filter((w) => w.name.includes(only));
  warm(device, (dry) => {
    for (const w of chosen) scope(() => void w.setup(dry)());
  });
  return chosen.map((work) => {
    const sum = { launches: 0, waveInstructions: 0, laneInstructions: 0, read: 0, written: 0 };
    scope(() => {
      const step = work.setup(device);
      emu.onLaunch = (_, r) => {
        sum.launches++;
        sum.waveInstructions += r.waves;
        sum.laneInstructions += r.lanes;
        sum.read += r.read;
        sum.written += r.written;
      };
      try {
        step();
      } finally {
        emu.onLaunch = undefined;
      }
    });
    say(
      `${work.name}: ${sum.laneInstructions} lane instructions in ${sum.launches} launches, ${sum.read} bytes read, ${sum.written} written`,
    );
    return {
      name: work.name,
      ...sum,
      perElement: sum.laneInstructions / work.elements,
      traffic: (sum.read + sum.written) / work.bytes,
    };
  });
}
export const isEmulated = (device: Device): boolean =>
  device.backend instanceof GpuBackend && device.backend.context.device instanceof EmuDevice;
