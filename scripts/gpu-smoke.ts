// Exercises every driver call, matrix products and convolutions on a real GPU against plain loops, and prints one JSON
// of what it saw.
// Usage: node dist/scripts/gpu-smoke.js [cuda|hip] [ordinal]
import { DTYPE } from '../src/base/dtype.js';
import { UnsupportedError } from '../src/base/errors.js';
import { ArgBuffer } from '../src/driver/args.js';
import { GEMM_DTYPES, type GemmDType, type GemmSpec } from '../src/driver/blas.js';
import { type ConvSpec } from '../src/driver/dnn.js';
import type { Device, Stream } from '../src/driver/driver.js';
import { openDriver, type VendorName } from '../src/driver/drivers.js';
import { libraryReports } from '../src/driver/ffi.js';
import { compile, compilerFor } from '../src/kernels/compile.js';

const SOURCE = `
extern "C" __global__ void axpy(float *out, const float *x, float a, unsigned int n) {
  unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + out[i];
}
extern "C" __global__ void mixed(double *out, unsigned char u8, unsigned short u16, unsigned int u32, long long i64, float f32, double f64) {
  out[0] = u8; out[1] = u16; out[2] = u32; out[3] = (double)i64; out[4] = f32; out[5] = f64;
}
extern "C" __global__ void empty() {}
extern "C" __global__ void biggest(float *out) { extern __shared__ float s[]; s[threadIdx.x] = threadIdx.x; __syncthreads(); if (threadIdx.x == 0) out[0] = s[blockDim.x - 1]; }
`;

interface Result {
  ok: boolean;
  [key: string]: unknown;
}
type Check = (d: Device, s: Stream) => Record<string, unknown>;

const must = (condition: boolean, what: string): void => {
  if (!condition) throw new Error(what);
};
const bytesOf = (a: ArrayBufferView): Uint8Array => new Uint8Array(a.buffer, a.byteOffset, a.byteLength);
/** A repeatable stream of numbers in [-1, 1). */
const randoms = (seed: number) => (): number => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 31 - 1;
const upload = (d: Device, s: Stream, data: Uint8Array): number => {
  const p = d.alloc(Math.max(data.length, 1));
  d.copyIn(p, data, s);
  return p;
};
const encode = (values: Float64Array, dtype: GemmDType): Uint8Array => {
  const { Raw, bytes, encode: enc } = DTYPE[dtype];
  const raw = new Raw(new ArrayBuffer(values.length * bytes)) as Float64Array;
  values.forEach((v, i) => (raw[i] = enc(v) as number));
  return bytesOf(raw);
};
const decode = (data: Uint8Array, dtype: GemmDType): Float64Array => {
  const { Raw, bytes, decode: dec } = DTYPE[dtype];
  const raw = new Raw(data.buffer, data.byteOffset, data.length / bytes) as Float64Array;
  return Float64Array.from(raw, (v) => Number(dec(v)));
};
const time = (d: Device, s: Stream, runs: number, f: () => void): number => {
  const [a, b] = [d.createEvent(true), d.createEvent(true)];
  f();
  d.record(a, s);
  for (let i = 0; i < runs; i++) f();
  d.record(b, s);
  d.synchronizeEvent(b);
  const ms = d.elapsed(a, b) / runs;
  d.destroyEvent(a);
  d.destroyEvent(b);
  return ms;
};

const CHECKS: Record<string, Check> = {
  memory: (d, s) => {
    const before = d.memory();
    const p = d.alloc(1 << 20);
    must(p % 256 === 0, 'alloc is not aligned to 256');
    d.memset(p, 0xab, 1 << 20, s);
    const out = new Uint8Array(1 << 20);
    d.copyOut(out, p, s);
    must(
      out.every((v) => v === 0xab),
      'memset',
    );
    d.free(p);
    const q = d.allocAsync(1 << 20, s);
    d.memset(q, 1, 1 << 20, s);
    d.freeAsync(q, s);
    d.synchronizeStream(s);
    let full = '';
    try {
      d.alloc(d.info.totalBytes * 2);
    } catch (e) {
      full = String(e);
    }
    must(full.includes('OutOfMemoryError'), `no out-of-memory error: ${full}`);
    return { ...before, full };
  },
  copies: (d, s) => {
    const rnd = randoms(1);
    const data = Uint8Array.from({ length: 65536 }, () => rnd() * 128);
    const p = upload(d, s, data);
    const q = d.alloc(65536);
    d.copy(q, p, 65536, s);
    const host = d.allocHost(65536);
    d.copyOutAsync(host.address, q, 65536, s);
    const e = d.createEvent(false);
    d.record(e, s);
    d.synchronizeEvent(e);
    must(d.queryEvent(e), 'event not done after synchronize');
    must(Buffer.compare(host.bytes, data) === 0, 'copyOutAsync');
    d.destroyEvent(e);
    d.freeHost(host);
    d.free(p);
    d.free(q);
    return {};
  },
  streams: (d) => {
    const other = d.createStream();
    const e = d.createEvent(false);
    d.record(e, other);
    d.synchronizeStream(other);
    must(d.queryEvent(e), 'stream not done');
    d.destroyEvent(e);
    d.destroyStream(other);
    return {};
  },
  launch: (d, s) => {
    const began = performance.now();
    const code = compile(SOURCE, 'smoke.hip', { arch: d.info.arch, cache: false });
    const compileMs = performance.now() - began;
    const m = d.loadModule(code, 'smoke.hip');
    let absent = '';
    try {
      d.getFunction(m, 'nope');
    } catch (e) {
      absent = String(e);
    }
    must(absent.includes('DriverError'), 'an absent kernel was found');
    const args = new ArgBuffer();
    const axpy = d.getFunction(m, 'axpy');
    const n = 100_003;
    const x = Float32Array.from({ length: n }, (_, i) => i);
    const px = upload(d, s, bytesOf(x));
    const po = upload(d, s, new Uint8Array(n * 4));
    d.launch(axpy, [Math.ceil(n / 256), 1, 1], [256, 1, 1], 0, s, args.reset().pointer(po).pointer(px).f32(0.5).u32(n));
    const out = new Float32Array(n);
    d.copyOut(bytesOf(out), po, s);
    must(
      out.every((v, i) => v === i * 0.5),
      'axpy',
    );
    args
      .reset()
      .pointer(po)
      .u8(200)
      .u16(60000)
      .u32(4e9)
      .i64(-(2 ** 40))
      .f32(1.5)
      .f64(Math.PI);
    d.launch(d.getFunction(m, 'mixed'), [1, 1, 1], [1, 1, 1], 0, s, args);
    const six = new Float64Array(6);
    d.copyOut(bytesOf(six), po, s);
    must(
      [200, 60000, 4e9, -(2 ** 40), 1.5, Math.PI].every((v, i) => six[i] === v),
      `mixed arguments: ${six}`,
    );
    const biggest = d.getFunction(m, 'biggest');
    d.setMaxDynamicShared(biggest, d.info.sharedPerBlockOptin);
    d.launch(biggest, [1, 1, 1], [512, 1, 1], d.info.sharedPerBlockOptin, s, args.reset().pointer(po));
    d.copyOut(bytesOf(out.subarray(0, 1)), po, s);
    must(out[0] === 511, 'largest shared memory');
    let refused = '';
    try {
      d.launch(axpy, [0, 1, 1], [256, 1, 1], 0, s, args);
    } catch (e) {
      refused = String(e);
    }
    must(refused.includes('DriverError'), 'an empty grid was not refused');
    // Time an enqueue alone (queue not full), then the whole of it.
    const empty = d.getFunction(m, 'empty');
    args.reset();
    const one = (): void => d.launch(empty, [1, 1, 1], [32, 1, 1], 0, s, args);
    const perLaunch = (f: () => void): number => {
      for (let i = 0; i < 2000; i++) f();
      d.synchronizeStream(s);
      const times: number[] = [];
      for (let r = 0; r < 20; r++) {
        const t = performance.now();
        for (let i = 0; i < 200; i++) f();
        times.push(((performance.now() - t) * 1000) / 200);
        d.synchronizeStream(s);
      }
      return times.sort((a, b) => a - b)[10];
    };
    const emptyUs = perLaunch(one);
    const packedUs = perLaunch(() =>
      d.launch(axpy, [1, 1, 1], [32, 1, 1], 0, s, args.reset().pointer(po).pointer(px).f32(0.5).u32(32)),
    );
    const result = {
      compileMs,
      codeBytes: code.length,
      emptyLaunchUs: emptyUs,
      packedLaunchUs: packedUs,
      refused,
    };
    // Graph: 100 launches captured, replayed.
    d.memset(po, 0, n * 4, s);
    const capture = (a: number): number => {
      d.beginCapture(s);
      for (let i = 0; i < 100; i++)
        d.launch(
          axpy,
          [Math.ceil(n / 256), 1, 1],
          [256, 1, 1],
          0,
          s,
          args.reset().pointer(po).pointer(px).f32(a).u32(n),
        );
      return d.endCapture(s);
    };
    const graph = capture(1);
    const exec = d.instantiate(graph);
    d.launchGraph(exec, s);
    d.copyOut(bytesOf(out), po, s);
    must(out[10] === 1000, `graph: ${out[10]}`);
    const graphUs = (time(d, s, 20, () => d.launchGraph(exec, s)) * 1000) / 100;
    d.destroyGraph(graph);
    d.destroyGraphExec(exec);
    d.free(px);
    d.free(po);
    return { ...result, graphUsPerNode: graphUs };
  },
  matmul: (d, s) => {
    const blas = d.libraries.blas;
    if (typeof blas === 'string') return { missing: blas };
    const worst: Record<string, number | string> = {};
    const bound = { f64: 1e-13, f32: 1e-5, f16: 2e-3, bf16: 1e-2 };
    for (const dtype of GEMM_DTYPES) {
      for (const [ao, bo, dO, bias] of [
        ['row', 'row', 'row', false],
        ['col', 'row', 'row', true],
        ['row', 'col', 'row', false],
        ['col', 'col', 'col', false],
        ['row', 'row', 'col', false],
      ] as const) {
        if (bias && dtype === 'f64') continue;
        const [batch, m, n, k] = [3, 48, 40, 56];
        const ld = (o: string, rows: number, cols: number) => (o === 'row' ? cols : rows) + 8; // gaps between rows
        const layout = (o: 'row' | 'col', rows: number, cols: number) => ({
          order: o,
          ld: ld(o, rows, cols),
          batchStride: ld(o, rows, cols) * (o === 'row' ? rows : cols),
        });
        const spec: GemmSpec = {
          dtype,
          batch,
          m,
          n,
          k,
          a: layout(ao, m, k),
          b: layout(bo, k, n),
          d: layout(dO, m, n),
          bias,
          tf32: false,
        };
        const rnd = randoms(7);
        const fill = (l: { batchStride: number }) =>
          decode(encode(Float64Array.from({ length: l.batchStride * batch }, rnd), dtype), dtype);
        const [A, B, D] = [fill(spec.a), fill(spec.b), fill(spec.d)];
        const C = decode(encode(Float64Array.from({ length: n }, rnd), dtype), dtype);
        const at = (l: GemmSpec['a'], b: number, i: number, j: number) =>
          b * l.batchStride + (l.order === 'row' ? i * l.ld + j : j * l.ld + i);
        const [pa, pb, pd, pc] = [A, B, D, C].map((v) => upload(d, s, encode(v, dtype)));
        const label = `${dtype} ${ao},${bo}->${dO}${bias ? '+bias' : ''}`;
        try {
          blas.run(blas.plan(spec), pa, pb, pd, pc, 0.5, 2, s);
        } catch (e) {
          if (!(e instanceof UnsupportedError)) throw e;
          worst[label] = e.message;
          continue;
        }
        const back = new Uint8Array(D.length * DTYPE[dtype].bytes);
        d.copyOut(back, pd, s);
        const got = decode(back, dtype);
        let error = 0;
        for (let b = 0; b < batch; b++) {
          for (let i = 0; i < m; i++) {
            for (let j = 0; j < n; j++) {
              let sum = 0;
              for (let x = 0; x < k; x++) sum += A[at(spec.a, b, i, x)] * B[at(spec.b, b, x, j)];
              const want = 0.5 * sum + 2 * D[at(spec.d, b, i, j)] + (bias ? C[j] : 0);
              error = Math.max(error, Math.abs(got[at(spec.d, b, i, j)] - want) / Math.max(1, Math.abs(want)));
            }
          }
        }
        worst[label] = error;
        must(error < bound[dtype], `${dtype} ${ao} ${bo} ${dO} bias ${bias}: error ${error}`);
        for (const p of [pa, pb, pd, pc]) d.free(p);
      }
    }
    const speed: Record<string, number> = {};
    for (const [dtype, n, tf32] of [
      ['bf16', 8192, false],
      ['f16', 8192, false],
      ['f32', 4096, false],
      ['f32', 4096, true],
      ['f64', 4096, false],
    ] as const) {
      const bytes = n * n * DTYPE[dtype].bytes;
      const [a, b, c] = [d.alloc(bytes), d.alloc(bytes), d.alloc(bytes)];
      const rnd = randoms(3);
      const values = encode(Float64Array.from({ length: n * 64 }, rnd), dtype);
      for (const p of [a, b]) for (let o = 0; o < bytes; o += values.length) d.copyIn(p + o, values, s);
      const l = { order: 'row', ld: n, batchStride: 0 } as const;
      const plan = blas.plan({ dtype, batch: 1, m: n, n, k: n, a: l, b: l, d: l, bias: false, tf32 });
      speed[`${dtype}${tf32 ? ' tf32' : ''} ${n} TFLOP/s`] =
        (2 * n ** 3) / (time(d, s, 10, () => blas.run(plan, a, b, c, 0, 1, 0, s)) * 1e9);
      for (const p of [a, b, c]) d.free(p);
    }
    const tiny = (() => {
      const p = d.alloc(1 << 16);
      const l = { order: 'row', ld: 32, batchStride: 0 } as const;
      const plan = blas.plan({
        dtype: 'f32',
        batch: 1,
        m: 32,
        n: 32,
        k: 32,
        a: l,
        b: l,
        d: l,
        bias: false,
        tf32: false,
      });
      for (let i = 0; i < 1000; i++) blas.run(plan, p, p + 4096, p + 8192, 0, 1, 0, s);
      d.synchronizeStream(s);
      const t = performance.now();
      for (let i = 0; i < 200; i++) blas.run(plan, p, p + 4096, p + 8192, 0, 1, 0, s);
      const us = ((performance.now() - t) * 1000) / 200;
      d.synchronizeStream(s);
      d.free(p);
      return us;
    })();
    return { library: blas.name, worst, speed, callUs: tiny };
  },
  convolution: (d, s) => {
    const dnn = d.libraries.dnn;
    if (typeof dnn === 'string') return { missing: dnn };
    const worst: Record<string, number | string> = {};
    const cases = [
      { x: [2, 6, 9, 11], filter: [8, 3, 3, 3], padding: [1, 2], stride: [2, 1], dilation: [1, 2], groups: 2 },
      { x: [1, 4, 1, 33], filter: [4, 4, 1, 5], padding: [0, 2], stride: [1, 2], dilation: [1, 1], groups: 1 },
    ] as const;
    for (const dtype of ['f32', 'f16', 'bf16'] as const) {
      for (const c of cases) {
        const out = (i: 0 | 1) =>
          Math.floor((c.x[2 + i] + 2 * c.padding[i] - c.dilation[i] * (c.filter[2 + i] - 1) - 1) / c.stride[i]) + 1;
        const y = [c.x[0], c.filter[0], out(0), out(1)] as const;
        for (const kind of ['forward', 'backward-data', 'backward-filter'] as const) {
          const spec: ConvSpec = { kind, dtype, ...c, y, tf32: false };
          const rnd = randoms(5);
          const make = (shape: readonly number[]) =>
            decode(encode(Float64Array.from({ length: shape.reduce((a, b) => a * b, 1) }, rnd), dtype), dtype);
          const host = { x: make(c.x), filter: make(c.filter), y: make(y) };
          const p = {
            x: upload(d, s, encode(host.x, dtype)),
            filter: upload(d, s, encode(host.filter, dtype)),
            y: upload(d, s, encode(host.y, dtype)),
          };
          try {
            dnn.run(dnn.plan(spec), p.x, p.filter, p.y, s);
          } catch (e) {
            if (!(e instanceof UnsupportedError)) throw e;
            worst[`${dtype} ${kind} ${c.x}`] = e.message;
            continue;
          }
          const target = kind === 'forward' ? 'y' : kind === 'backward-data' ? 'x' : 'filter';
          const want = naiveConv(spec, host);
          const back = new Uint8Array(want.length * DTYPE[dtype].bytes);
          d.copyOut(back, p[target], s);
          const got = decode(back, dtype);
          const error = want.reduce((e, w, i) => Math.max(e, Math.abs(got[i] - w) / Math.max(1, Math.abs(w))), 0);
          worst[`${dtype} ${kind} ${c.x}`] = error;
          must(error < (dtype === 'f32' ? 1e-5 : dtype === 'f16' ? 3e-3 : 2e-2), `${dtype} ${kind}: error ${error}`);
          for (const q of Object.values(p)) d.free(q);
        }
      }
    }
    const speed: Record<string, unknown> = {};
    for (const [dtype, tf32] of [
      ['f32', false],
      ['f32', true],
      ['f16', false],
      ['bf16', false],
    ] as const) {
      for (const kind of ['forward', 'backward-data'] as const) {
        const spec: ConvSpec = {
          kind,
          dtype,
          x: [32, 64, 56, 56],
          filter: [64, 64, 3, 3],
          y: [32, 64, 56, 56],
          padding: [1, 1],
          stride: [1, 1],
          dilation: [1, 1],
          groups: 1,
          tf32,
        };
        const bytes = 32 * 64 * 56 * 56 * DTYPE[dtype].bytes;
        const [x, w, y] = [d.alloc(bytes), d.alloc(64 * 64 * 9 * 4), d.alloc(bytes)];
        for (const p of [x, y]) d.memset(p, 0, bytes, s);
        d.memset(w, 0, 64 * 64 * 9 * 4, s);
        const plan = dnn.plan(spec);
        const guessed = time(d, s, 20, () => dnn.run(plan, x, w, y, s));
        const before = plan.description;
        dnn.tune(plan, x, w, y, s);
        speed[`${dtype}${tf32 ? ' tf32' : ''} ${kind} ms`] = {
          guessed,
          before,
          tuned: time(d, s, 20, () => dnn.run(plan, x, w, y, s)),
          after: plan.description,
        };
        for (const p of [x, w, y]) d.free(p);
      }
    }
    return { library: dnn.name, worst, speed };
  },
};

/** The three convolutions by their definition. */
function naiveConv(s: ConvSpec, h: { x: Float64Array; filter: Float64Array; y: Float64Array }): Float64Array {
  const [n, c, ih, iw] = s.x;
  const [k, cg, r, t] = s.filter;
  const [, , oh, ow] = s.y;
  const out = new Float64Array(
    s.kind === 'forward' ? h.y.length : s.kind === 'backward-data' ? h.x.length : h.filter.length,
  );
  for (let b = 0; b < n; b++) {
    for (let o = 0; o < k; o++) {
      for (let q = 0; q < cg; q++) {
        const ci = Math.floor(o / (k / s.groups)) * cg + q;
        for (let y = 0; y < oh; y++) {
          for (let x = 0; x < ow; x++) {
            for (let u = 0; u < r; u++) {
              for (let v = 0; v < t; v++) {
                const yy = y * s.stride[0] + u * s.dilation[0] - s.padding[0];
                const xx = x * s.stride[1] + v * s.dilation[1] - s.padding[1];
                if (yy < 0 || yy >= ih || xx < 0 || xx >= iw) continue;
                const iy = ((b * k + o) * oh + y) * ow + x;
                const ix = ((b * c + ci) * ih + yy) * iw + xx;
                const iF = ((o * cg + q) * r + u) * t + v;
                if (s.kind === 'forward') out[iy] += h.x[ix] * h.filter[iF];
                else if (s.kind === 'backward-data') out[ix] += h.y[iy] * h.filter[iF];
                else out[iF] += h.x[ix] * h.y[iy];
              }
            }
          }
        }
      }
    }
  }
  return out;
}

function main(): void {
  const vendor = (process.argv[2] ?? 'cuda') as VendorName;
  const driver = openDriver(vendor);
  const device = driver.open(Number(process.argv[3] ?? 0));
  const stream = device.createStream();
  const compiler = compilerFor(device.info.arch);
  const results: Record<string, Result> = {};
  for (const [name, check] of Object.entries(CHECKS)) {
    try {
      results[name] = { ok: true, ...check(device, stream) };
    } catch (e) {
      results[name] = { ok: false, error: String(e), stack: (e as Error).stack?.split('\n').slice(1, 4) };
    }
  }
  const report = {
    date: new Date().toISOString(),
    driver: driver.version,
    devices: driver.deviceCount,
    device: device.info,
    compiler: typeof compiler === 'string' ? compiler : `${compiler.name} ${compiler.version}`,
    libraries: libraryReports(),
    results,
  };
  console.log(JSON.stringify(report, null, 1));
  process.exitCode = Object.values(results).every((r) => r.ok) ? 0 : 1;
}

main();
