// Matrix products and convolutions through the bindings, against libraries of plain loops (fake-libraries.c) on a
// driver in host memory.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { UnsupportedError } from '../src/base/errors.js';
import type { Blas, GemmSpec } from '../src/driver/blas.js';
import { openCuda } from '../src/driver/cuda.js';
import type { ConvSpec, Dnn } from '../src/driver/dnn.js';
import type { Device } from '../src/driver/driver.js';
import { openHip } from '../src/driver/hip.js';
import { openHipblasLt } from '../src/driver/hipblaslt.js';
import { openNccl } from '../src/driver/nccl.js';
import { openRocblas } from '../src/driver/rocblas.js';

const dir = mkdtempSync(join(tmpdir(), 'wick-fake-'));
after(() => rmSync(dir, { recursive: true, force: true }));
const build = (file: string, name: string, ...flags: string[]) =>
  spawnSync(
    'cc',
    [
      '-O1',
      '-shared',
      '-fPIC',
      ...flags,
      '-o',
      join(dir, name),
      fileURLToPath(new URL(`../../test/${file}`, import.meta.url)),
    ],
    { encoding: 'utf8' },
  );
const failed = [
  build('fake-gpu.c', 'libcuda.so.1', '-DCUDA'),
  build('fake-gpu.c', 'libamdhip64.so.7'),
  build('fake-libraries.c', 'libcublasLt.so.13', '-DCUDA'),
  build('fake-libraries.c', 'libhipblaslt.so.1', '-DHIP'),
  build('fake-libraries.c', 'librocblas.so.5', '-DROCBLAS'),
  build('fake-libraries.c', 'libcudnn.so.9', '-DCUDNN'),
  build('fake-libraries.c', 'libMIOpen.so.1', '-DMIOPEN'),
  build('fake-libraries.c', 'libnccl.so.2', '-DNCCL'),
  build('fake-libraries.c', 'librccl.so.1', '-DNCCL'),
].find((b) => b.status !== 0);
const skip = failed && (failed.error ? 'no C compiler here (cc)' : `a fake does not compile: ${failed.stderr}`);
process.env.WICK_LIBRARY_PATH = dir;

const bytes = (a: ArrayBufferView) => new Uint8Array(a.buffer, a.byteOffset, a.byteLength);
const upload = (d: Device, values: Float32Array): number => {
  const p = d.alloc(values.byteLength);
  d.copyIn(p, bytes(values), 0);
  return p;
};
const download = (d: Device, p: number, n: number): Float32Array => {
  const out = new Float32Array(n);
  d.copyOut(bytes(out), p, 0);
  return out;
};
/** Small whole numbers, so that sums are exact in any order. */
const numbers = (n: number, seed: number): Float32Array =>
  Float32Array.from({ length: n }, (_, i) => ((i * 7 + seed * 3) % 11) - 5);

const PRODUCTS = {
  cuBLASLt: { open: openCuda, blas: (d: Device) => d.libraries.blas, name: 'cuBLASLt 13.1.1', bias: true },
  hipBLASLt: { open: openHip, blas: (d: Device) => openHipblasLt(d), name: 'hipBLASLt 1.2.2', bias: true },
  rocBLAS: { open: openHip, blas: (d: Device) => openRocblas(d), name: 'rocBLAS 5.2.0.fake', bias: false },
} as const;
for (const [library, { open, blas: find, name, bias: hasBias }] of Object.entries(PRODUCTS)) {
  describe(`${library} matrix products`, { skip }, () => {
    let device: Device;
    let blas: Blas;
    let stream: number;
    test('the library is found and named', () => {
      device = open().open(0);
      stream = device.createStream();
      const found = find(device);
      assert.ok(typeof found !== 'string', String(found));
      blas = found as Blas;
      assert.equal(blas.name, name);
    });

    for (const ao of ['row', 'col'] as const)
      for (const bo of ['row', 'col'] as const)
        for (const dO of ['row', 'col'] as const) {
          test(`${ao} times ${bo} into ${dO}, batched, with gaps, odd addresses and scales`, () => {
            const [batch, m, n, k] = [2, 3, 4, 5];
            const layout = (order: 'row' | 'col', rows: number, cols: number, gap: number) => {
              const ld = (order === 'row' ? cols : rows) + gap;
              return { order, ld, batchStride: ld * (order === 'row' ? rows : cols) + gap };
            };
            const bias = hasBias && dO === 'row';
            const spec: GemmSpec = {
              dtype: 'f32',
              batch,
              m,
              n,
              k,
              a: layout(ao, m, k, 1),
              b: layout(bo, k, n, 2),
              d: layout(dO, m, n, 3),
              bias,
              tf32: false,
            };
            const at = (l: GemmSpec['a'], z: number, i: number, j: number) =>
              z * l.batchStride + (l.order === 'row' ? i * l.ld + j : j * l.ld + i);
            const [A, B, D, C] = [numbers(100, 1), numbers(100, 2), numbers(100, 3), numbers(n, 4)];
            const [pa, pb, pd, pc] = [A, B, D, C].map((v) => upload(device, v));
            const plan = blas.plan(spec);
            assert.equal(blas.plan({ ...spec }), plan, 'plans are kept');
            const check = (shift: number, got: Float32Array, before: Float32Array) => {
              for (let z = 0; z < batch; z++)
                for (let i = 0; i < m; i++)
                  for (let j = 0; j < n; j++) {
                    let sum = 0;
                    for (let x = 0; x < k; x++) sum += A[shift + at(spec.a, z, i, x)] * B[at(spec.b, z, x, j)];
                    assert.equal(
                      got[at(spec.d, z, i, j)],
                      2 * sum + 3 * before[at(spec.d, z, i, j)] + (bias ? C[j] : 0),
                      `${z} ${i} ${j} at shift ${shift}`,
                    );
                  }
            };
            blas.run(plan, pa, pb, pd, pc, 2, 3, stream);
            const first = download(device, pd, 100);
            check(0, first, D);
            // Four bytes on: aligned to an element and no more, and another bias address.
            const pc2 = upload(device, C);
            blas.run(plan, pa + 4, pb, pd, pc2, 2, 3, stream);
            check(1, download(device, pd, 100), first);
            for (const p of [pa, pb, pd, pc, pc2]) device.free(p);
          });
        }

    test('what the library has no algorithm for is a sentence and an UnsupportedError', () => {
      const l = { order: 'row', ld: 8, batchStride: 0 } as const;
      const spec: GemmSpec = {
        dtype: 'f64',
        batch: 1,
        m: 8,
        n: 8,
        k: 8,
        a: l,
        b: l,
        d: l,
        bias: !hasBias,
        tf32: false,
      };
      assert.match(
        String(blas.supports(spec)),
        hasBias ? /has no algorithm for f64.* \(.*_STATUS_NOT_SUPPORTED\)/ : /no bias epilogue/,
      );
      assert.throws(() => blas.plan(spec), UnsupportedError);
      assert.match(String(blas.supports({ ...spec, dtype: 'f32', bias: false, m: 0 })), /m is 0/);
    });

    test('dispose gives workspaces back', () => {
      const before = device.memory().free;
      blas.dispose();
      assert.equal(device.memory().free - before, hasBias ? 32 << 20 : 0);
    });
  });
}

const CONVOLUTIONS = {
  cuDNN: {
    open: openCuda,
    name: 'cuDNN 9.24.0',
    guessed: /^algorithm 1, math 3, workspace 4096$/,
    tuned: /^algorithm 2, math 3, workspace 8192, 1\.500 ms$/,
    refused: /has no algorithm for .*bf16.* \(CUDNN_STATUS_NOT_SUPPORTED\)/,
  },
  MIOpen: {
    open: openHip,
    name: 'MIOpen 3.5.1',
    guessed: /^solution 2, workspace 8192$/,
    tuned: /^solution 2, workspace 8192$/,
    refused: /has no solution for .*bf16.* \(miopenStatusUnsupportedOp\)/,
  },
} as const;
for (const [library, says] of Object.entries(CONVOLUTIONS))
  describe(`${library} convolutions`, { skip }, () => {
    let device: Device;
    let dnn: Dnn;
    let stream: number;
    const base = {
      dtype: 'f32',
      x: [2, 4, 7, 6],
      filter: [6, 2, 3, 2],
      y: [2, 6, 4, 6],
      padding: [1, 1],
      stride: [2, 1],
      dilation: [1, 2],
      groups: 2,
      tf32: false,
    } as const;
    const size = (s: readonly number[]) => s.reduce((a, b) => a * b, 1);

    test('the library is found and named', () => {
      device = says.open().open(0);
      stream = device.createStream();
      assert.ok(typeof device.libraries.dnn !== 'string', String(device.libraries.dnn));
      dnn = device.libraries.dnn as Dnn;
      assert.equal(dnn.name, says.name);
    });

    // 16-bit floats go through cuDNN's graphs; the fake reads f32 under either name.
    const dtypes = library === 'cuDNN' ? (['f32', 'f16'] as const) : (['f32'] as const);
    for (const kind of ['forward', 'backward-data', 'backward-filter'] as const)
      for (const dtype of dtypes) {
        test(`${kind} of ${dtype} reads and writes the right operands`, () => {
          const spec: ConvSpec = { ...base, kind, dtype };
          const host = {
            x: numbers(size(spec.x), 1),
            filter: numbers(size(spec.filter), 2),
            y: numbers(size(spec.y), 3),
          };
          const target = kind === 'forward' ? 'y' : kind === 'backward-data' ? 'x' : 'filter';
          const want = new Float32Array(host[target].length);
          const [k, cg, r, s] = spec.filter;
          for (let b = 0; b < 2; b++)
            for (let o = 0; o < k; o++)
              for (let q = 0; q < cg; q++)
                for (let i = 0; i < spec.y[2]; i++)
                  for (let j = 0; j < spec.y[3]; j++) {
                    for (let u = 0; u < r; u++)
                      for (let v = 0; v < s; v++) {
                        const ci = Math.floor(o / (k / spec.groups)) * cg + q;
                        const [yy, xx] = [i * 2 + u - 1, j + v * 2 - 1];
                        if (yy < 0 || yy >= spec.x[2] || xx < 0 || xx >= spec.x[3]) continue;
                        const at = {
                          y: ((b * k + o) * spec.y[2] + i) * spec.y[3] + j,
                          x: ((b * 4 + ci) * spec.x[2] + yy) * spec.x[3] + xx,
                          filter: ((o * cg + q) * r + u) * s + v,
                        };
                        const [p, q2] = (['x', 'filter', 'y'] as const).filter((n) => n !== target);
                        want[at[target]] += host[p][at[p]] * host[q2][at[q2]];
                      }
                  }
          const p = { x: upload(device, host.x), filter: upload(device, host.filter), y: upload(device, host.y) };
          const plan = dnn.plan(spec);
          dnn.run(plan, p.x, p.filter, p.y, stream);
          assert.deepEqual(download(device, p[target], want.length), want);
          const guessed = plan.description;
          dnn.tune(plan, p.x, p.filter, p.y, stream);
          assert.match(guessed, dtype === 'f16' ? /^engine 2, workspace 12288$/ : says.guessed);
          assert.match(
            plan.description,
            dtype === 'f16' ? /^engine [23], workspace (12288|16384), \d+\.\d{3} ms$/ : says.tuned,
          );
          dnn.run(plan, p.x, p.filter, p.y, stream);
          assert.deepEqual(download(device, p[target], want.length), want);
        });
      }

    test('what the library has no algorithm for is a sentence and an UnsupportedError', () => {
      const spec: ConvSpec = { ...base, kind: 'forward', dtype: 'bf16' };
      assert.match(String(dnn.supports(spec)), says.refused);
      assert.throws(() => dnn.plan(spec), UnsupportedError);
      assert.match(String(dnn.supports({ ...base, kind: 'forward', groups: 3 })), /channels/);
      dnn.dispose();
    });
  });

for (const [name, open] of Object.entries({ NCCL: openCuda, RCCL: openHip }))
  test(`${name}: an id by value, calls on a stream, failures by name`, { skip }, () => {
    const device = open().open(0);
    const stream = device.createStream();
    const nccl = openNccl(device);
    assert.ok(typeof nccl !== 'string', String(nccl));
    assert.equal(nccl.name, `${name} 2.28.3`);
    const id = nccl.uniqueId();
    assert.deepEqual([id.length, id[0], id[127]], [128, 1, 128]);
    const comm = nccl.join(id, 0, 1);
    const [src, dst] = [upload(device, numbers(12, 1)), upload(device, numbers(12, 2))];
    const b = { src, dst, count: 12, type: 'f32' } as const;
    comm.allReduce(b, 'sum', stream);
    assert.deepEqual(download(device, dst, 12), numbers(12, 1));
    assert.equal(comm.failure(), '');
    assert.throws(() => comm.send(b, 0, stream), /ncclSend\(.*\): invalid usage \(5\)\nthe fake says why/);
    assert.throws(() => comm.allGather(b, 0), /ncclAllGather\(.*\): invalid argument \(4\)/);
    assert.throws(
      () => nccl.join(new Uint8Array(128), 0, 1),
      /ncclCommInitRank\(1, \[128 bytes by value\], 0\): invalid argument \(4\)/,
    );
    comm.destroy();
  });

for (const [platform, more] of [
  ['win32', '; Linux within it (WSL 2) reaches the GPU'],
  ['darwin', ''],
])
  test(`a GPU asked for on ${platform} is refused in one sentence`, () => {
    const index = JSON.stringify(new URL('../src/index.js', import.meta.url).href);
    const code = `
      await import('koffi');
      Object.defineProperty(process, 'platform', { value: ${JSON.stringify(platform)} });
      const { Device } = await import(${index});
      for (const name of ['cuda:0', 'rocm:0'])
        try { Device.get(name); } catch (e) { console.log(e.message); }`;
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8' });
    assert.deepEqual(
      stdout.trim().split('\n'),
      [
        `no NVIDIA driver: libcuda is looked for on Linux alone, and this is ${platform}${more}`,
        `no AMD runtime: libamdhip64 is looked for on Linux alone, and this is ${platform}${more}`,
      ],
      stderr,
    );
  });
