// `npm run bench`: the CPU engine's work as shares of what a plain copy and multiply-adds reach in the same run, with
// OpenBLAS, onnxruntime and PyTorch beside it.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import type { CpuBackend } from '../src/backends/cpu.js';
import type { DType } from '../src/base/dtype.js';
import { packageRoot } from '../src/base/paths.js';
import { openLibrary } from '../src/driver/ffi.js';
import { arange, type Device, randn, scope, type Tensor } from '../src/index.js';
import type { OneNode } from './peers/onnx-model.js';

export interface CpuTiming {
  readonly name: string;
  readonly ms: number;
  readonly gbPerSecond?: number;
  readonly gflops?: number;
  /** Share of the copy's bandwidth, or of the multiply-add peak, of this run. */
  readonly share?: number;
  /** The share asked for. */
  readonly target?: number;
  /**
   * Milliseconds no loop over such memory, or with such arithmetic, goes below here: reading or copying alone, or the
   * same op over data in the cache.
   */
  readonly floor?: number;
  /** A peer's time divided by ours. */
  readonly openblas?: number;
  readonly onnxruntime?: number;
  readonly pytorch?: number;
}
export interface CpuReport {
  readonly hardware: string;
  readonly engine: string;
  readonly threads: number;
  readonly copyGbPerSecond: number;
  readonly readGbPerSecond: number;
  readonly peakGflops: number;
  /** What the peers were, or why there are none. */
  readonly peers: readonly string[];
  readonly results: readonly CpuTiming[];
}
interface Work {
  readonly name: string;
  readonly bytes?: number;
  readonly flops?: number;
  readonly target?: number;
  readonly onnx?: OneNode;
  /** Rows, columns and depth of a product OpenBLAS does too. */
  readonly sgemm?: readonly [number, number, number];
  /** Only reads of this size count: results are small. */
  readonly reads?: boolean;
  readonly setup: (device: Device) => () => Tensor;
  /** The same work over a part of the rows that stays in the cache. */
  readonly cached?: (rows: number) => (device: Device) => () => Tensor;
}

const MIB64 = 2 ** 26;
const SIDE = 4096;
/**
 * Rows of 4096 that the second-level caches hold together with their result; the difference of two sizes leaves out
 * what a call costs by itself.
 */
const CACHED_ROWS = [16, 48] as const;
const make = (shape: readonly number[], device: Device, dtype: DType = 'f32'): Tensor =>
  randn(shape, { dtype, device, seed: 1 });

/** Work limited by memory, over 64 MiB of f32. */
function* streams(): Generator<Work> {
  const all = [SIDE, SIDE];
  const one = (
    name: string,
    target: number | undefined,
    f: (x: Tensor, w: Tensor) => Tensor,
    node?: Omit<OneNode, 'inputs'> & { inputs?: OneNode['inputs'] },
    bytes = 2 * MIB64,
  ): Work => {
    const over = (rows: number) => (d: Device) => {
      const [x, w] = [make([rows, SIDE], d), make([SIDE], d)];
      return () => f(x, w);
    };
    return {
      name,
      bytes,
      target,
      reads: bytes === MIB64,
      onnx: node && { ...node, inputs: node.inputs ?? [all] },
      setup: over(SIDE),
      ...(/columns|transposed/.test(name) ? {} : { cached: over }),
    };
  };
  const sums = (rows: number) => (d: Device) => {
    const [x, y] = [make([rows, SIDE], d), make([rows, SIDE], d)];
    return () => x.add(y);
  };
  yield {
    name: 'add',
    bytes: 3 * MIB64,
    target: 0.8,
    onnx: { op: 'Add', inputs: [all, all], output: all },
    setup: sums(SIDE),
    cached: sums,
  };
  yield one('relu', undefined, (x) => x.relu(), { op: 'Relu', output: all });
  yield one('exp', 0.6, (x) => x.exp(), { op: 'Exp', output: all });
  yield one('gelu', 0.6, (x) => x.gelu(), { op: 'Gelu', output: all, attributes: { approximate: 'tanh' } });
  yield one('silu', undefined, (x) => x.silu());
  yield one('tanh', undefined, (x) => x.tanh(), { op: 'Tanh', output: all });
  yield one('sum of all', 0.8, (x) => x.sum(), undefined, MIB64);
  yield one('sum of rows', 0.8, (x) => x.sum(-1), undefined, MIB64);
  yield one('sum of columns', undefined, (x) => x.sum(0), undefined, MIB64);
  yield one('max of rows', undefined, (x) => x.max(-1), undefined, MIB64);
  yield one('argmax of rows', undefined, (x) => x.argmax(-1), undefined, MIB64);
  yield one('softmax 4096x4096', 0.8, (x) => x.softmax(-1), { op: 'Softmax', output: all, attributes: { axis: 1 } });
  yield one('softmax 4096x4096, columns', undefined, (x) => x.softmax(0), {
    op: 'Softmax',
    output: all,
    attributes: { axis: 0 },
  });
  yield one('layerNorm', 0.8, (x, w) => x.layerNorm(w, w), {
    op: 'LayerNormalization',
    inputs: [all, [SIDE], [SIDE]],
    output: all,
    attributes: { axis: -1 },
  });
  yield one('rmsNorm', undefined, (x, w) => x.rmsNorm(w));
  yield one('transposed copy', 0.8, (x) => x.t().copy(), {
    op: 'Transpose',
    output: all,
    attributes: { perm: [1, 0] },
  });
  yield one('cast to bf16', undefined, (x) => x.castTo('bf16'), undefined, 1.5 * MIB64);
}

function* products(): Generator<Work> {
  for (const dtype of ['f32', 'f16', 'bf16'] as const) {
    for (const [m, n, k] of [
      [1024, 1024, 1024],
      [4096, 4096, 64],
      [4096, 64, 4096],
      [64, 4096, 4096],
      [1, 4096, 4096],
      ...(dtype === 'f32' ? ([[4096, 4096, 4096]] as const) : []),
    ] as const) {
      const f32 = dtype === 'f32';
      yield {
        name: `matmul ${m}x${k} by ${k}x${n} ${dtype}`,
        flops: 2 * m * n * k,
        ...(f32 && {
          target: 0.8,
          sgemm: [m, n, k] as const,
          onnx: {
            op: 'MatMul',
            inputs: [
              [m, k],
              [k, n],
            ],
            output: [m, n],
          },
        }),
        setup: (d) => {
          const [x, y] = [make([m, k], d, dtype), make([k, n], d, dtype)];
          return () => x.matmul(y);
        },
      };
    }
  }
  for (const dtype of ['f32', 'bf16'] as const)
    yield {
      name: `matmul of 32: 128x128 by 128x128 ${dtype}`,
      flops: 2 * 32 * 128 ** 3,
      setup: (d) => {
        const [x, y] = [make([32, 128, 128], d, dtype), make([32, 128, 128], d, dtype)];
        return () => x.matmul(y);
      },
    };
  yield {
    name: 'one row by 4096x4096 f32',
    bytes: MIB64,
    reads: true,
    setup: (d) => {
      const [x, y] = [make([1, SIDE], d), make([SIDE, SIDE], d)];
      return () => x.matmul(y.t());
    },
  };
}

/** Layers of ResNet-50 with a batch of 8: channels, side, filters, kernel, stride. */
function* convolutions(): Generator<Work> {
  for (const [channels, side, filters, kernel, stride] of [
    [3, 224, 64, 7, 2],
    [64, 56, 64, 1, 1],
    [64, 56, 64, 3, 1],
    [64, 56, 256, 1, 1],
    [128, 28, 128, 3, 1],
    [256, 14, 256, 3, 1],
    [512, 7, 512, 3, 1],
  ] as const) {
    const out = side / stride;
    yield {
      name: `conv2d 8x${channels}x${side}x${side} to ${filters}, kernel ${kernel}, stride ${stride}`,
      flops: 2 * 8 * out * out * filters * channels * kernel * kernel,
      setup: (d) => {
        const [x, w] = [make([8, channels, side, side], d), make([filters, channels, kernel, kernel], d)];
        return () => x.conv2d(w, { stride, padding: (kernel - 1) / 2 });
      },
    };
  }
}

/** Attention of whole sequences; onnxruntime's runs on (batch, time, heads * dim). */
function* attention(): Generator<Work> {
  for (const [batch, heads, time, dim, causal] of [
    [1, 16, 1024, 64, false],
    [1, 16, 1024, 64, true],
    [8, 12, 128, 64, false],
    [1, 8, 2048, 128, false],
  ] as const) {
    const flat = [batch, time, heads * dim];
    yield {
      name: `attention ${batch}x${heads}x${time}x${dim}${causal ? ', causal' : ''}`,
      flops: (4 * batch * heads * time * time * dim) / (causal ? 2 : 1),
      onnx: {
        op: 'MultiHeadAttention',
        domain: 'com.microsoft',
        inputs: [flat, flat, flat],
        output: flat,
        attributes: { num_heads: heads, ...(causal && { unidirectional: 1 }) },
      },
      setup: (d) => {
        const [q, k, v] = [0, 1, 2].map(() => make([batch, time, heads, dim], d));
        return () => q.sdpa(k, v, { layout: 'bthd', causal });
      },
    };
  }
}

/** Milliseconds of a step: the best of several, since other programs can only add to it. */
function best(step: () => void, seconds = 0.4): number {
  step();
  let ms = Infinity;
  const end = performance.now() + seconds * 1000;
  for (let i = 0; i < 6 || performance.now() < end; i++) {
    const start = performance.now();
    step();
    ms = Math.min(ms, performance.now() - start);
  }
  return ms;
}
const run = (step: () => Tensor) => (): void => step().dispose();

/** Microseconds from the call to a result that was let go of, for four elements. */
function overhead(device: Device): number {
  const x = arange(0, 4, 1, { device });
  return (
    best(() => {
      for (let i = 0; i < 2000; i++) x.add(x).dispose();
    }) / 2
  );
}

type Sgemm = (
  order: number,
  ta: number,
  tb: number,
  m: number,
  n: number,
  k: number,
  alpha: number,
  a: number,
  lda: number,
  b: number,
  ldb: number,
  beta: number,
  c: number,
  ldc: number,
) => void;

function openblas(threads: number): Sgemm | string {
  const library = openLibrary({ name: 'OpenBLAS', sonames: ['libopenblas.so.0'], vendor: 'host' });
  if (typeof library === 'string') return library;
  library.func('void openblas_set_num_threads(int n)')(threads);
  return library.func(
    'void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, uintptr_t a, int lda, uintptr_t b, int ldb, float beta, uintptr_t c, int ldc)',
  ) as unknown as Sgemm;
}
const ROW_MAJOR = 101;
const NO_TURN = 111;

function timeSgemm(sgemm: Sgemm, device: Device, [m, n, k]: readonly [number, number, number]): number {
  const [x, y, out] = [make([m, k], device), make([k, n], device), make([m, n], device)];
  return best(() =>
    sgemm(ROW_MAJOR, NO_TURN, NO_TURN, m, n, k, 1, x.memory.address, k, y.memory.address, n, 0, out.memory.address, n),
  );
}

/** onnxruntime-node's times, from the folder where it was installed: `npm i --prefix .cache/peers onnxruntime-node`. */
function onnxTimes(work: readonly Work[], threads: number): Readonly<Record<string, number>> | string {
  const folder = process.env.WICK_PEERS ?? join(packageRoot, '.cache', 'peers');
  if (!existsSync(join(folder, 'node_modules', 'onnxruntime-node'))) return `no onnxruntime-node in ${folder}`;
  const nodes = Object.fromEntries(work.filter((w) => w.onnx).map((w) => [w.name, w.onnx]));
  const child = spawnSync(
    process.execPath,
    [join(packageRoot, 'dist', 'bench', 'peers', 'onnxruntime.js'), folder, String(threads), JSON.stringify(nodes)],
    { encoding: 'utf8', maxBuffer: 2 ** 24 },
  );
  if (child.status !== 0)
    return `onnxruntime-node: ${child.stderr.split('\n').find((l) => /Error/.test(l)) ?? 'failed'}`;
  return JSON.parse(child.stdout.trim().split('\n').at(-1) as string) as Record<string, number>;
}

/** PyTorch's times by name of the products, convolutions and attention here, where it is installed. */
function torchTimes(work: readonly Work[], threads: number): Readonly<Record<string, number>> | string {
  const script = join(packageRoot, 'bench', 'peers', 'pytorch-cpu.py');
  const names = work.map((w) => w.name).filter((n) => /^(matmul|conv2d|attention|one row)/.test(n));
  const child = spawnSync('python3', [script, String(threads), ...names], { encoding: 'utf8', maxBuffer: 2 ** 24 });
  if (child.status !== 0) return 'no PyTorch for python3';
  return JSON.parse(child.stdout) as Record<string, number>;
}

export function cpuBench(device: Device, only: string, say: (line: string) => void, withPeers: boolean): CpuReport {
  const cpu = device.backend as CpuBackend;
  const { threads } = cpu;
  const blocks = [cpu.alloc(MIB64), cpu.alloc(MIB64)];
  for (const b of blocks) cpu.write(b, 0, new Uint8Array(MIB64).fill(1)); // untouched pages would all be one page of zeros
  const copy = best(() => cpu.copyBytes(blocks[0], blocks[1], MIB64), 2);
  const read = best(() => cpu.readBytes(blocks[0], MIB64));
  for (const b of blocks) cpu.free(b);
  const copyRate = (2 * MIB64) / copy / 1e6;
  let operations = 0;
  const peak = best(() => (operations = cpu.multiplyAdds(1_000_000)));
  const peakRate = operations / peak / 1e6;
  say(
    `copy of 64 MiB: ${copyRate.toFixed(1)} GB/s read and written; reading alone: ${(MIB64 / read / 1e6).toFixed(1)} GB/s; multiply-adds: ${peakRate.toFixed(1)} GFLOP/s; ${threads} threads`,
  );

  const work = [...streams(), ...products(), ...convolutions(), ...attention()].filter((w) =>
    only.split(',').some((part) => w.name.includes(part)),
  );
  const blas = withPeers ? openblas(threads) : 'peers were left out';
  const results: CpuTiming[] = [];
  for (const w of work) {
    scope(() => {
      const ms = best(run(w.setup(device)));
      const rate = (w.bytes ?? w.flops ?? 0) / ms / 1e6;
      const memory = w.reads ? read : ((w.bytes ?? 0) / (2 * MIB64)) * copy;
      const [few, more] = w.cached
        ? CACHED_ROWS.map((rows) => best(run((w.cached as NonNullable<typeof w.cached>)(rows)(device)), 0.25))
        : [0, 0];
      const floor = Math.max(memory, ((more - few) / (CACHED_ROWS[1] - CACHED_ROWS[0])) * SIDE);
      const blasMs = w.sgemm && typeof blas !== 'string' ? timeSgemm(blas, device, w.sgemm) : undefined;
      const r: CpuTiming = {
        name: w.name,
        ms,
        ...(w.bytes !== undefined
          ? { gbPerSecond: rate, share: rate / copyRate }
          : { gflops: rate, share: rate / peakRate }),
        ...(w.target !== undefined && { target: w.target }),
        ...(w.bytes !== undefined && { floor }),
        ...(blasMs !== undefined && { openblas: blasMs / ms }),
      };
      results.push(r);
      say(
        `${r.name}: ${r.ms.toFixed(3)} ms, ${(100 * (r.share as number)).toFixed(0)}%${r.floor ? `, ${((100 * r.floor) / r.ms).toFixed(0)}% of the floor's speed` : ''}${r.openblas ? `, OpenBLAS / ours ${r.openblas.toFixed(2)}` : ''}`,
      );
    });
    device.trim();
  }
  const us = overhead(device);
  say(`one op from JavaScript: ${us.toFixed(2)} us`);
  results.push({ name: 'one op on 4 elements from JavaScript', ms: us / 1000 });

  const onnx = withPeers ? onnxTimes(work, threads) : 'peers were left out';
  const torch = withPeers ? torchTimes(work, threads) : 'peers were left out';
  const peers = [
    typeof blas === 'string' ? blas : 'OpenBLAS (libopenblas.so.0)',
    typeof onnx === 'string' ? onnx : 'onnxruntime-node',
    typeof torch === 'string' ? torch : 'PyTorch',
  ];
  const ratio = (times: Readonly<Record<string, number>> | string, r: CpuTiming): number | undefined =>
    typeof times === 'string' || times[r.name] === undefined ? undefined : times[r.name] / r.ms;
  const compared = results.map((r) => {
    const [onnxruntime, pytorch] = [ratio(onnx, r), ratio(torch, r)];
    return { ...r, ...(onnxruntime && { onnxruntime }), ...(pytorch && { pytorch }) };
  });
  const hardware = `${cpus()[0]?.model.trim() || process.arch}, ${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GiB`;
  return {
    hardware,
    engine: cpu.description,
    threads,
    copyGbPerSecond: copyRate,
    readGbPerSecond: MIB64 / read / 1e6,
    peakGflops: peakRate,
    peers,
    results: compared,
  };
}
