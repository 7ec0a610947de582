// The code that talks to vendors' libraries, run without their hardware: stand-ins check every descriptor and compute
// on the host.
// The op matrix runs on them too: npm test -- matrix --case bmm/,matmul/,conv --devices
// sim:32+cublaslt+cudnn,sim:64+hipblaslt+rocblas+miopen
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import '../src/index.js';
import type { View } from '../src/backends/backend.js';
import { GpuContext } from '../src/backends/gpu/context.js';
import { planRow } from '../src/backends/gpu/families.js';
import { runPlan } from '../src/backends/gpu/run-plan.js';
import { bytesOf, type DType } from '../src/base/dtype.js';
import { UnsupportedError } from '../src/base/errors.js';
import { Layout } from '../src/base/layout.js';
import { sizeOf } from '../src/base/shape.js';
import { type Blas, type GemmSpec, withFallback } from '../src/driver/blas.js';
import { openCublasLt } from '../src/driver/cublaslt.js';
import { openCudnn } from '../src/driver/cudnn.js';
import type { ConvSpec, Dnn } from '../src/driver/dnn.js';
import type { NativeArg, Table } from '../src/driver/ffi.js';
import { openHipblasLt } from '../src/driver/hipblaslt.js';
import { openMiopen } from '../src/driver/miopen.js';
import { openRocblas } from '../src/driver/rocblas.js';
import { openSim } from '../src/driver/sim.js';
import { cudnnStandIn } from '../src/stand-ins/cudnn.js';
import { type HostedDevice, Misuse, StandIn, standInCalls } from '../src/stand-ins/library.js';
import { ltStandIn } from '../src/stand-ins/lt.js';
import { miopenStandIn } from '../src/stand-ins/miopen.js';
import { rocblasStandIn } from '../src/stand-ins/rocblas.js';
import type { Sample } from '../src/ops/op.js';
import { OPS } from '../src/ops/table.js';
import { buildInputs, type Case, casesOf, runCase } from '../src/testing/cases.js';
import { difference, judge } from '../src/testing/compare.js';
import { decodeValues } from '../src/testing/values.js';
import { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';

const device = openSim().open(32) as HostedDevice;
const calls = (...symbols: string[]): number => symbols.reduce((n, s) => n + (standInCalls.get(s) ?? 0), 0);

function check(c: Case, d: Device): void {
  const values = (on: Device) => {
    let out: ReturnType<typeof decodeValues> = [];
    scope(() => {
      const [t] = runCase(c, buildInputs(c, on).tensors, on);
      out = decodeValues(t.bytesSync(), t.dtype);
    });
    return out;
  };
  assert.equal(
    judge(difference(values(d), values(Device.reference()), c.dtype, true), c.row.ulp, c.dtype),
    undefined,
    c.name,
  );
}

const RUNS = {
  'sim:32+cublaslt+cudnn': ['cublasLtMatmul', ['cudnnConvolution', 'cudnnBackendExecute']],
  'sim:32+hipblaslt+rocblas+miopen': ['hipblasLtMatmul', ['miopenConvolution']],
  'sim:32+rocblas': ['rocblas_gemm_strided_batched_ex', []],
} as const;
describe('who is asked', () => {
  for (const [name, [product, convolution]] of Object.entries(RUNS)) {
    test(`${name}: dense f32 products go to the library, whatever their strides`, () => {
      const d = Device.get(name);
      for (const c of casesOf([OPS.bmm], 'f32')) {
        // An inner dimension of 0, matrices without a dense dimension and batches that do not merge are for our own
        // kernel.
        const own = c.layout === 'stepped' || ['2', '4', '6'].some((s) => c.name.endsWith(`/${s}`));
        if (own) continue;
        const before = calls(product);
        check(c, d);
        const broadcast = c.layout === 'broadcast' || c.layout === 'transposed';
        if (!broadcast) assert.equal(calls(product), before + 1, `${c.name} did not reach the library`);
      }
    });
    if (convolution.length === 0) continue;
    test(`${name}: every convolution of floats goes to the library`, () => {
      const d = Device.get(name);
      const made = (): number =>
        calls(...[...standInCalls.keys()].filter((s) => convolution.some((c) => s.startsWith(c))));
      for (const row of [OPS.conv1d, OPS.conv2d, OPS.convTranspose1d, OPS.convTranspose2d])
        for (const dtype of name.includes('cudnn') ? (['f32', 'f16', 'f64'] as const) : (['f32', 'f16'] as const))
          for (const c of casesOf([row], dtype)) {
            const p = (c.sample as Sample<{ stride: number[]; outputPadding?: number[] }>).params;
            // Results longer than any convolution's input are for our own kernel.
            const own = p.outputPadding?.some((o, i) => o >= p.stride[i]);
            if (own || c.sample.inputs.some((s) => sizeOf(s.shape) === 0)) continue;
            const before = made();
            check(c, d);
            assert.ok(made() > before, `${c.name} did not reach the library`);
          }
    });
  }
});

const matrix = { order: 'row', ld: 8, batchStride: 64 } as const;
const PRODUCT: GemmSpec = {
  dtype: 'f32',
  batch: 2,
  m: 8,
  n: 8,
  k: 8,
  a: matrix,
  b: matrix,
  d: matrix,
  bias: false,
  tf32: false,
};
const stream = device.createStream();
const memory = (bytes: number): number => device.alloc(bytes);

describe('hipBLASLt, then rocBLAS, then our own kernel', () => {
  const hipblaslt = openHipblasLt(device, () => ltStandIn('hipblasLt', device)) as Blas;
  const asked = (dtype: GemmSpec['dtype'], blas: Blas): string => {
    const spec = { ...PRODUCT, dtype };
    const plan = blas.plan(spec);
    const [a, b, d] = [0, 1, 2].map(() => memory(1024));
    const before = new Map(standInCalls);
    blas.run(plan, a, b, d, 0, 1, 0, stream);
    return [...standInCalls].filter(([s, n]) => n > (before.get(s) ?? 0) && /atmul$|gemm/.test(s)).map(([s]) => s)[0];
  };
  test('f64 is refused by hipBLASLt and served by rocBLAS, product by product', () => {
    let opened = 0;
    const blas = withFallback(hipblaslt, () => {
      opened++;
      return openRocblas(device, () => rocblasStandIn(device));
    }) as Blas;
    assert.match(String(hipblaslt.supports({ ...PRODUCT, dtype: 'f64' })), /no algorithm/);
    assert.equal(asked('f32', blas), 'hipblasLtMatmul');
    assert.equal(opened, 0, 'rocBLAS is opened only when it is needed');
    assert.equal(asked('f64', blas), 'rocblas_gemm_strided_batched_ex');
    assert.equal(asked('f16', blas), 'hipblasLtMatmul');
    assert.equal(opened, 1);
  });
  test('where rocBLAS is missing the sentence tells both reasons', () => {
    const blas = withFallback(hipblaslt, () => 'rocBLAS was not found') as Blas;
    assert.match(
      String(blas.supports({ ...PRODUCT, dtype: 'f64' })),
      /hipBLASLt .*no algorithm.*; rocBLAS was not found/,
    );
    assert.throws(() => blas.plan({ ...PRODUCT, dtype: 'f64' }), UnsupportedError);
    assert.equal(
      withFallback('no hipBLASLt', () => 'no rocBLAS'),
      'no hipBLASLt; no rocBLAS',
    );
  });
  test('a product that rocBLAS has no kernel for is ours, and the library is not asked again', () => {
    const blas = withFallback(hipblaslt, () => openRocblas(device, () => rocblasStandIn(device, { refused: ['f64'] })));
    const gpu = new GpuContext(device, { blas, dnn: 'none' });
    const view = (shape: number[], values: readonly number[], dtype: DType): View => {
      const block = gpu.allocator.alloc(sizeOf(shape) * bytesOf(dtype));
      device.copyIn(block.address, new Uint8Array(Float64Array.from(values).buffer), 0);
      return { memory: block, layout: Layout.contiguous(shape), dtype };
    };
    const [a, b, out] = [
      [1, 2, 3, 4],
      [5, 6, 7, 8],
      [0, 0, 0, 0],
    ].map((v) => view([2, 2], v, 'f64'));
    for (const round of [1, 2]) {
      const before = calls('rocblas_gemm_strided_batched_ex');
      runPlan(gpu, planRow(OPS.bmm, [a, b], [out], {}, device.info, gpu.libraries), 'matmul', [out]);
      const got = new Float64Array(4);
      device.copyOut(new Uint8Array(got.buffer), out.memory.address, gpu.stream);
      assert.deepEqual([...got], [19, 22, 43, 50]);
      assert.equal(calls('rocblas_gemm_strided_batched_ex') - before, round === 1 ? 1 : 0);
    }
  });
});

describe('what a product may be', () => {
  const LT = openCublasLt(device, () => ltStandIn('cublasLt', device)) as Blas;
  const ROC = openRocblas(device, () => rocblasStandIn(device)) as Blas;
  const HIP = openHipblasLt(device, () => ltStandIn('hipblasLt', device)) as Blas;
  /** One by one: x * 1 as the library computes it. */
  const times1 = (blas: Blas, more: Partial<GemmSpec>, x: number): number => {
    const one = { order: 'row', ld: 1, batchStride: 0 } as const;
    const spec: GemmSpec = { ...PRODUCT, batch: 1, m: 1, n: 1, k: 1, a: one, b: one, d: one, ...more };
    const half = spec.dtype === 'f16';
    const put = (v: number): number => {
      const p = memory(256);
      const raw = half ? Uint16Array.of(v === 1 ? 0x3c00 : 0x4200) : Float32Array.of(v);
      device.copyIn(p, new Uint8Array(raw.buffer), 0);
      return p;
    };
    const d = memory(256);
    blas.run(blas.plan(spec), put(x), put(1), d, 0, 1, 0, stream);
    const out = new Float32Array(1);
    device.copyOut(new Uint8Array(out.buffer), d, 0);
    return out[0];
  };
  const fine = 1 + 2 ** -12; // TF32 keeps ten bits of it
  for (const [name, blas] of Object.entries({ cuBLASLt: LT, hipBLASLt: HIP, rocBLAS: ROC })) {
    test(`${name} rounds f32 to TF32 when asked, and only then`, () => {
      assert.equal(times1(blas, {}, fine), fine);
      assert.equal(times1(blas, { tf32: true }, fine), 1);
      assert.equal(times1(blas, {}, fine), fine, 'the product after it is exact again');
    });
    test(`${name} gives f32 from f16, TF32 allowed or not, and nothing narrower than its inputs`, () => {
      for (const tf32 of [false, true]) assert.equal(times1(blas, { dtype: 'f16', outDtype: 'f32', tf32 }, 3), 3);
      assert.match(String(blas.supports({ ...PRODUCT, outDtype: 'f16' })), /no product of f32 gives f16/);
      assert.match(String(blas.supports({ ...PRODUCT, dtype: 'f64', outDtype: 'f32' })), /no product of f64 gives f32/);
    });
  }
  test('a rocBLAS without math modes computes in f32 what may be TF32', () => {
    const old = openRocblas(device, () => rocblasStandIn(device, { mathMode: false })) as Blas;
    assert.equal(times1(old, { tf32: true }, fine), fine);
  });
  test('hipBLASLt from 0.8 on is spoken to', () => {
    const at = (version: number) => openHipblasLt(device, () => ltStandIn('hipblasLt', device, { version }));
    assert.match(String(at(799)), /0\.7\.99 .*older than 0\.8/);
    assert.equal((at(800) as Blas).name, 'hipBLASLt 0.8.0');
  });
});

/** A library whose calls of one symbol arrive changed: what a mistake in the bindings would look like. */
const tampered = (inner: StandIn, symbol: string, change: (args: NativeArg[]) => NativeArg[]) => ({
  path: inner.path,
  note: () => undefined,
  bind: <T extends Table>(table: T) => {
    const bound = inner.bind(table);
    const entry = Object.entries(table).find(([, p]) =>
      (typeof p === 'string' ? p : p.optional).includes(` ${symbol}(`),
    );
    if (!entry) return bound;
    const [key] = entry;
    const real = bound[key] as (...args: NativeArg[]) => number;
    return { ...bound, [key]: (...args: NativeArg[]) => real(...change(args)) };
  },
});
const at =
  (i: number, f: (v: number) => number) =>
  (args: NativeArg[]): NativeArg[] =>
    args.map((a, k) => (k === i ? f(a as number) : a));

describe('a wrong descriptor is an error, not a wrong number', () => {
  const product = (
    open: (find: () => ReturnType<typeof tampered>) => unknown,
    find: () => ReturnType<typeof tampered>,
  ) => {
    const blas = open(find) as Blas;
    const [a, b, d] = [0, 1, 2].map(() => memory(512));
    blas.run(blas.plan(PRODUCT), a, b, d, 0, 1, 0, stream);
  };
  const LT: Readonly<Record<string, readonly [string, ReturnType<typeof at>, RegExp]>> = {
    'a leading dimension below the rows': ['MatrixLayoutCreate', at(4, (ld) => ld - 1), /leading dimension/],
    'rows and columns of another product': ['MatrixLayoutCreate', at(2, (rows) => rows + 1), /leading dimension|by/],
    'a type that is none': ['MatrixLayoutCreate', at(1, () => 99), /not a data type/],
    'an attribute of another size': ['MatrixLayoutSetAttribute', at(3, (n) => n * 2), /bytes/],
    'an attribute that is none': ['MatrixLayoutSetAttribute', at(1, () => 77), /attribute 77/],
    'scales of another type': ['MatmulDescCreate', at(2, () => 1), /scale type/],
    'sums of another type': ['MatmulDescCreate', at(1, () => 1000), /compute type/],
    'an attribute of no description': ['MatmulDescSetAttribute', at(1, () => 99), /attribute 99/],
    'no room for the workspace': ['Matmul', at(14, () => 16), /workspace/],
    'a workspace that is not there': ['Matmul', at(13, () => 256), /not in device memory/],
    'an operand that is not there': ['Matmul', at(3, () => 4096), /not in device memory/],
    'c is not d': ['Matmul', at(8, (c) => c + 256), /different addresses/],
    'an algorithm of nobody': ['Matmul', at(12, (algo) => algo + 8), /algorithm/],
    'the default stream': ['Matmul', at(15, () => 0), /stream/],
  };
  for (const prefix of ['cublasLt', 'hipblasLt'] as const) {
    const open = prefix === 'cublasLt' ? openCublasLt : openHipblasLt;
    test(`${prefix} takes what is right`, () =>
      product(
        (find) => open(device, find),
        () => ltStandIn(prefix, device) as never,
      ));
    for (const [what, [symbol, change, says]] of Object.entries(LT))
      test(`${prefix}: ${what}`, () => {
        const find = () => tampered(ltStandIn(prefix, device), prefix + symbol, change);
        assert.throws(
          () => product((f) => open(device, f), find),
          (e) => e instanceof Misuse && says.test(e.message),
        );
      });
  }

  const ROCBLAS: Readonly<Record<string, readonly [ReturnType<typeof at>, RegExp]>> = {
    'a leading dimension below the rows': [at(9, (ld) => ld - 1), /leading dimension/],
    'a batch stride that reaches out': [at(10, (s) => s * 1000), /not in device memory/],
    'results that overlap': [(args) => at(19, () => 8)(at(23, () => 8)(args)), /overlap/],
    'c is not d': [at(18, (ld) => ld + 1), /c and d differ/],
    'operands of two types': [at(12, () => 152), /a is f32, b f64/],
    'sums of another type': [at(25, () => 152), /compute type/],
    'an operation that is none': [at(1, () => 0), /operation 0/],
    'another algorithm': [at(26, () => 160), /algorithm 160/],
  };
  for (const [what, [change, says]] of Object.entries(ROCBLAS))
    test(`rocBLAS: ${what}`, () => {
      const find = () => tampered(rocblasStandIn(device), 'rocblas_gemm_strided_batched_ex', change);
      assert.throws(
        () => product((f) => openRocblas(device, f), find),
        (e) => e instanceof Misuse && says.test(e.message),
      );
    });
  test('rocBLAS: atomics allowed', () => {
    const find = () =>
      tampered(
        rocblasStandIn(device),
        'rocblas_set_atomics_mode',
        at(1, () => 1),
      );
    assert.throws(() => product((f) => openRocblas(device, f), find), /atomics/);
  });

  const CONV: ConvSpec = {
    kind: 'forward',
    dtype: 'f32',
    x: [1, 4, 7, 6],
    filter: [6, 2, 3, 2],
    y: [1, 6, 5, 8],
    padding: [0, 1],
    stride: [1, 1],
    dilation: [1, 1],
    groups: 2,
    tf32: false,
  };
  const convolve = (dnn: Dnn, dtype: ConvSpec['dtype']): void => {
    const spec = { ...CONV, y: [1, 6, 5, 7] as const, dtype };
    const [x, w, y] = [0, 1, 2].map(() => memory(4096));
    dnn.run(dnn.plan(spec), x, w, y, stream);
  };
  const pads = (i: number) => (args: NativeArg[]) =>
    args.map((a, k) => (k === i ? args[i + 1] : k === i + 1 ? args[i] : a));
  const CUDNN: Readonly<Record<string, readonly [string, (args: NativeArg[]) => NativeArg[], RegExp]>> = {
    'paddings swapped': ['cudnnSetConvolution2dDescriptor', pads(1), /spatial dimension/],
    'dilation for stride': ['cudnnSetConvolution2dDescriptor', at(3, () => 2), /spatial dimension/],
    'another group count': ['cudnnSetConvolutionGroupCount', at(1, () => 1), /groups/],
    'convolution for correlation': ['cudnnSetConvolution2dDescriptor', at(7, () => 0), /mode/],
    'sums of another type': ['cudnnSetConvolution2dDescriptor', at(8, () => 2), /compute type/],
    'TF32 that nobody asked for': ['cudnnSetConvolutionMathType', at(1, () => 1), /math type/],
    'channels last': ['cudnnSetTensor4dDescriptor', at(1, () => 1), /format/],
    'no workspace': ['cudnnConvolutionForward', at(9, () => 0), /workspace/],
    'beta for alpha': ['cudnnConvolutionForward', (a) => a.map((v, i) => (i === 1 ? a[10] : v)), /alpha 0/],
    'an operand that is not there': ['cudnnConvolutionForward', at(3, () => 4096), /not in device memory/],
  };
  for (const [what, [symbol, change, says]] of Object.entries(CUDNN))
    test(`cuDNN: ${what}`, () => {
      const dnn = openCudnn(device, () => tampered(cudnnStandIn(device), symbol, change)) as Dnn;
      assert.throws(
        () => convolve(dnn, 'f32'),
        (e) => e instanceof Misuse && says.test(e.message),
      );
    });
  const GRAPH: Readonly<Record<string, readonly [number, (v: bigint[]) => bigint[], RegExp]>> = {
    'paddings swapped': [105, ([a, b]) => [b, a], /paddings before and after differ/],
    'strides of another layout': [903, ([n, c, h, w]) => [n, h, c, w], /strides/],
    'an alignment nobody keeps': [900, () => [256n], /alignment/],
    'another count of dimensions': [106, () => [3n], /two spatial dimensions/],
  };
  for (const [what, [attribute, change, says]] of Object.entries(GRAPH))
    test(`cuDNN's graphs: ${what}`, () => {
      const alter = (args: NativeArg[]): NativeArg[] => {
        if (args[1] !== attribute) return args;
        const bytes = args[4] as Uint8Array;
        const values = [...new BigInt64Array(bytes.slice().buffer)];
        return [...args.slice(0, 4), new Uint8Array(BigInt64Array.from(change(values)).buffer)];
      };
      const dnn = openCudnn(device, () => tampered(cudnnStandIn(device), 'cudnnBackendSetAttribute', alter)) as Dnn;
      assert.throws(
        () => convolve(dnn, 'f16'),
        (e) => e instanceof Misuse && says.test(e.message),
      );
    });
  const MIOPEN: Readonly<Record<string, readonly [string, (args: NativeArg[]) => NativeArg[], RegExp]>> = {
    'paddings swapped': ['miopenInitConvolutionDescriptor', pads(2), /spatial dimension/],
    'another group count': ['miopenSetConvolutionGroupCount', at(1, () => 1), /groups/],
    'a solution that was not compiled': ['miopenConvolutionForwardCompileSolution', at(5, () => 11), /not compiled/],
    'a solution of nobody': ['miopenConvolutionForwardImmediate', at(10, () => 3), /not offered/],
    'no workspace': ['miopenConvolutionForwardImmediate', at(9, () => 0), /workspace/],
    'filter and input exchanged': [
      'miopenConvolutionForwardGetSolution',
      (a) => [a[0], a[2], a[1], ...a.slice(3)],
      /channels|batch/,
    ],
  };
  for (const [what, [symbol, change, says]] of Object.entries(MIOPEN))
    test(`MIOpen: ${what}`, () => {
      const find = () => tampered(miopenStandIn(device), symbol, change);
      assert.throws(
        () => convolve(openMiopen(device, find) as Dnn, 'f32'),
        (e) => e instanceof Misuse && says.test(e.message),
      );
    });
});

describe('products whose algorithms are measured', () => {
  const device = openSim().open(32) as HostedDevice;
  const blas = openCublasLt(device, () => ltStandIn('cublasLt', device)) as Blas;
  const stream = device.createStream();
  const [m, n, k] = [3, 4, 5];
  const one = { batchStride: 0 };
  const spec: GemmSpec = {
    ...{ dtype: 'f32', batch: 1, m, n, k, bias: false, tf32: false },
    ...{ a: { ...one, order: 'row', ld: k }, b: { ...one, order: 'col', ld: k }, d: { ...one, order: 'row', ld: n } },
  };
  const place = (values: Float32Array): number => {
    const at = device.alloc(values.byteLength);
    device.copyIn(at, new Uint8Array(values.buffer), stream);
    return at;
  };
  const ones = (count: number): number => place(new Float32Array(count).fill(1));
  const [a, b, room, d] = [ones(m * k), ones(n * k), ones(m * n), ones(m * n)];
  /** The algorithm that runs, by its place, where runs of those that divide sums alike take so long. */
  const kept = (...milliseconds: readonly [number, number]): number => {
    let asked = 0;
    device.elapsed = () => milliseconds[asked++ % milliseconds.length];
    const plan = blas.plan(spec);
    blas.measure?.(plan, a, b, room, stream);
    const counts = (): number[] => [0, 1, 2].map((place) => calls(`cublasLtMatmul by algorithm ${place}`));
    const before = counts();
    blas.run(plan, a, b, d, 0, 1, 1, stream);
    return counts().findIndex((n, place) => n > before[place]);
  };
  test('the quickest of those with the same bits is kept, the first where it is nearly as quick', () => {
    assert.equal(kept(1, 0.8), 1);
    assert.equal(kept(1, 0.99), 0);
    assert.equal(kept(1, 1.5), 0);
    assert.equal(calls('cublasLtMatmul by algorithm 2'), 0, 'sums divided otherwise');
  });
  test('results are those of the product, and nothing is added to them by measuring', () => {
    const before = new Float32Array(m * n);
    device.copyOut(new Uint8Array(before.buffer), d, stream);
    kept(1, 0.5);
    const after = new Float32Array(m * n);
    device.copyOut(new Uint8Array(after.buffer), d, stream);
    assert.deepEqual(
      after,
      before.map((x) => x + k),
    );
  });
});
