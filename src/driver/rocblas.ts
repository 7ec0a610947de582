// rocBLAS: matrix products on every AMD GPU, ROCm 5.2 to 7, where hipBLASLt is absent or does not know the GPU.
import { UnsupportedError } from '../base/errors.js';
import {
  checkGemm,
  columnMajor,
  gemmKey,
  type Blas,
  type ColumnMajor,
  type GemmDType,
  type GemmPlan,
  type GemmSpec,
} from './blas.js';
import { Calls } from './checked-calls.js';
import type { Device, Maybe, Stream } from './driver.js';
import { type FindLibrary, nativeBlock, nativeString, openLibrary, type LibrarySpec, type Native } from './ffi.js';
import { made } from './lt.js';
import { Planned } from './library-plans.js';

export const ROCBLAS: LibrarySpec = {
  name: 'rocBLAS',
  sonames: ['librocblas.so.5', 'librocblas.so.4', 'librocblas.so.0', 'librocblas.so'],
  vendor: 'rocm',
};

export const ROCBLAS_TABLE = {
  create: 'int rocblas_create_handle(void *handle)',
  destroy: 'int rocblas_destroy_handle(uintptr_t handle)',
  setStream: 'int rocblas_set_stream(uintptr_t handle, uintptr_t stream)',
  setAtomics: 'int rocblas_set_atomics_mode(uintptr_t handle, int mode)',
  setMath: { optional: 'int rocblas_set_math_mode(uintptr_t handle, int mode)', since: 'it came with ROCm 5.7' },
  statusName: 'uintptr_t rocblas_status_to_string(int status)',
  version: 'int rocblas_get_version_string(void *text, size_t bytes)',
  gemm:
    'int rocblas_gemm_strided_batched_ex(uintptr_t handle, int transA, int transB, int m, int n, int k, uintptr_t ' +
    'alpha, uintptr_t a, int aType, int lda, int64_t strideA, uintptr_t b, int bType, int ldb, int64_t strideB, ' +
    'uintptr_t beta, uintptr_t c, int cType, int ldc, int64_t strideC, uintptr_t d, int dType, int ldd, int64_t ' +
    'strideD, int batch, int computeType, int algo, int32_t solution, uint32_t flags)',
} as const;

export const ROCBLAS_NUMBERS = {
  rocblas_datatype_f16_r: 150,
  rocblas_datatype_f32_r: 151,
  rocblas_datatype_f64_r: 152,
  rocblas_datatype_bf16_r: 168,
  rocblas_operation_none: 111,
  rocblas_operation_transpose: 112,
  rocblas_atomics_not_allowed: 0,
  rocblas_gemm_algo_standard: 0,
  rocblas_gemm_flags_none: 0,
  rocblas_default_math: 0,
  rocblas_xf32_xdl_math_op: 1,
  rocblas_status_not_implemented: 2,
  rocblas_status_memory_error: 5,
} as const;
const N = ROCBLAS_NUMBERS;
export const ROCBLAS_TYPES: { readonly [D in GemmDType]: number } = {
  f16: N.rocblas_datatype_f16_r,
  bf16: N.rocblas_datatype_bf16_r,
  f32: N.rocblas_datatype_f32_r,
  f64: N.rocblas_datatype_f64_r,
};

interface RocPlan extends GemmPlan {
  readonly cm: ColumnMajor;
}

export function openRocblas(device: Device, find: FindLibrary = openLibrary): Maybe<Blas> {
  const library = find(ROCBLAS);
  if (typeof library === 'string') return library;
  const raw = library.bind(ROCBLAS_TABLE);
  const calls = new Calls(ROCBLAS_TABLE, raw, {
    errorName: (s) => nativeString(raw.statusName(s)),
    outOfMemory: [N.rocblas_status_memory_error],
  });
  const text = new Uint8Array(128);
  calls.call('version', text, text.length);
  const version = Buffer.from(text.subarray(0, text.indexOf(0))).toString();
  library.note(version);
  return new RocBlas(`rocBLAS ${version}`, device, calls);
}

class RocBlas extends Planned<GemmSpec, RocPlan> implements Blas {
  readonly name: string;
  readonly refuses = true;
  readonly #device: Device;
  readonly #calls: Calls<typeof ROCBLAS_TABLE>;
  readonly #gemm: Native;
  readonly #handle: number;
  readonly #scalars = nativeBlock(16);
  readonly #view = new DataView(this.#scalars.buffer);
  #stream: Stream = 0;
  #math: number = N.rocblas_default_math;

  constructor(name: string, device: Device, calls: Calls<typeof ROCBLAS_TABLE>) {
    super('matmul', gemmKey);
    this.name = name;
    this.#device = device;
    this.#calls = calls;
    this.#gemm = calls.raw.gemm;
    this.#handle = made((cell) => calls.call('create', cell));
    // Allowed by default before ROCm 7: the same product would differ from run to run.
    calls.call('setAtomics', this.#handle, N.rocblas_atomics_not_allowed);
  }

  protected make(spec: GemmSpec, key: string): RocPlan | string {
    const rule = spec.bias ? 'no bias epilogue; add it in a kernel of its own' : checkGemm(spec);
    if (rule !== true) return `${this.name}: ${rule}`;
    return { spec, cm: columnMajor(spec), description: `${key}: standard algorithm` };
  }

  /** Sets stream and arithmetic where they differ from the last call's. */
  #turnTo(stream: Stream, { tf32, dtype }: GemmSpec): void {
    if (stream !== this.#stream) {
      this.#calls.call('setStream', this.#handle, stream);
      this.#stream = stream;
    }
    const math = tf32 && dtype === 'f32' ? N.rocblas_xf32_xdl_math_op : N.rocblas_default_math;
    if (math !== this.#math && this.#calls.has('setMath')) {
      this.#calls.call('setMath', this.#handle, math);
      this.#math = math;
    }
  }
  #setScalars(wide: boolean, alpha: number, beta: number): void {
    const view = this.#view;
    if (wide) {
      view.setFloat64(0, alpha, true);
      view.setFloat64(8, beta, true);
    } else {
      view.setFloat32(0, alpha, true);
      view.setFloat32(8, beta, true);
    }
  }

  readonly run: Blas['run'] = (plan, a, b, d, _bias, alpha, beta, stream, c = d) => {
    const { spec, cm } = plan as RocPlan;
    this.#device.makeCurrent();
    this.#turnTo(stream, spec);
    const wide = spec.dtype === 'f64';
    this.#setScalars(wide, alpha, beta);
    const op = (t: boolean) => (t ? N.rocblas_operation_transpose : N.rocblas_operation_none);
    const type = ROCBLAS_TYPES[spec.dtype];
    const outType = ROCBLAS_TYPES[spec.outDtype ?? spec.dtype];
    const at = this.#scalars.address;
    const status = this.#gemm(
      this.#handle,
      op(cm.a.transposed),
      op(cm.b.transposed),
      cm.m,
      cm.n,
      cm.k,
      at,
      cm.swap ? b : a,
      type,
      cm.a.ld,
      cm.a.batchStride,
      cm.swap ? a : b,
      type,
      cm.b.ld,
      cm.b.batchStride,
      at + 8,
      c,
      outType,
      cm.d.ld,
      cm.d.batchStride,
      d,
      outType,
      cm.d.ld,
      cm.d.batchStride,
      spec.batch,
      wide ? ROCBLAS_TYPES.f64 : ROCBLAS_TYPES.f32,
      N.rocblas_gemm_algo_standard,
      0,
      N.rocblas_gemm_flags_none,
    );
    // It has no call that asks beforehand.
    if (status === N.rocblas_status_not_implemented)
      throw new UnsupportedError(`matmul: ${this.name} has no kernel for ${gemmKey(spec)}`);
    if (status !== 0) throw this.#calls.error('gemm', [gemmKey(spec)], status);
  };

  dispose(): void {
    this.clearPlans();
    this.#calls.call('destroy', this.#handle);
  }
}
