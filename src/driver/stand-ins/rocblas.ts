// A stand-in of rocBLAS: one call has all of a product.
import type { NativeArg } from '../ffi.js';
import { ROCBLAS_NUMBERS as N, ROCBLAS_TYPES } from '../rocblas.js';
import { Handles, hostMemory, type HostedDevice, Misuse, StandIn, textAddress, typeOf } from './library.js';
import { multiply } from './product.js';

interface Handle {
  stream: number;
  atomics: boolean;
  math: number;
}

/** `refused`: dtypes it has no kernel for; `mathMode` false: a release before 5.7, without that call. */
export function rocblasStandIn(
  device: HostedDevice,
  { refused = [], mathMode = true }: { readonly refused?: readonly string[]; readonly mathMode?: boolean } = {},
): StandIn {
  const handles = new Handles();
  const of = (h: number): Handle => handles.get<Handle>(h, 'handle');
  const setMathMode = (h: number, mode: number): number => {
    if (mode !== N.rocblas_default_math && mode !== N.rocblas_xf32_xdl_math_op) throw new Misuse(`math mode ${mode}`);
    of(h).math = mode;
    return 0;
  };
  return new StandIn('rocBLAS', {
    rocblas_create_handle: (cell: NativeArg) =>
      handles.make(cell, 'handle', { stream: 0, atomics: true, math: N.rocblas_default_math } satisfies Handle),
    rocblas_destroy_handle: (h: number) => handles.destroy(h, 'handle'),
    rocblas_set_stream: (h: number, stream: number) => {
      of(h).stream = stream;
      return 0;
    },
    rocblas_set_atomics_mode: (h: number, mode: number) => {
      of(h).atomics = mode !== N.rocblas_atomics_not_allowed;
      return 0;
    },
    ...(mathMode && { rocblas_set_math_mode: setMathMode }),
    rocblas_status_to_string: (s: number) => textAddress(`rocblas_status_${s}`),
    rocblas_get_version_string: (text: NativeArg, bytes: number) => {
      const version = Buffer.from('5.2.0.stand-in\0');
      if (bytes < version.length) throw new Misuse(`room for ${bytes} bytes of ${version.length}`);
      const view = hostMemory(text, bytes);
      version.forEach((b, i) => view.setUint8(i, b));
      return 0;
    },
    rocblas_gemm_strided_batched_ex: (
      h: number,
      transA: number,
      transB: number,
      m: number,
      n: number,
      k: number,
      alpha: number,
      a: number,
      aType: number,
      lda: number,
      strideA: number,
      b: number,
      bType: number,
      ldb: number,
      strideB: number,
      beta: number,
      c: number,
      cType: number,
      ldc: number,
      strideC: number,
      d: number,
      dType: number,
      ldd: number,
      strideD: number,
      batch: number,
      compute: number,
      algorithm: number,
      solution: number,
      flags: number,
    ) => {
      const handle = of(h);
      if (handle.stream === 0) throw new Misuse('no stream was set');
      if (handle.atomics) throw new Misuse('atomics are allowed: results would change from run to run');
      if (c !== d || cType !== dType || ldc !== ldd || strideC !== strideD) throw new Misuse('c and d differ');
      if (algorithm !== N.rocblas_gemm_algo_standard || solution !== 0 || flags !== N.rocblas_gemm_flags_none)
        throw new Misuse(`algorithm ${algorithm}, solution ${solution}, flags ${flags}`);
      const transposed = (op: number): boolean => {
        if (op !== N.rocblas_operation_none && op !== N.rocblas_operation_transpose)
          throw new Misuse(`operation ${op}`);
        return op === N.rocblas_operation_transpose;
      };
      const [ta, tb] = [transposed(transA), transposed(transB)];
      const type = typeOf(ROCBLAS_TYPES, aType);
      const wide = type === 'f64';
      if (typeOf(ROCBLAS_TYPES, compute) !== (wide ? 'f64' : 'f32'))
        throw new Misuse(`compute type ${compute} for ${type}`);
      if (refused.includes(type)) return N.rocblas_status_not_implemented;
      const scalar = (at: number): number =>
        wide ? hostMemory(at, 8).getFloat64(0, true) : hostMemory(at, 4).getFloat32(0, true);
      const side = (address: number, number: number, rows: number, cols: number, ld: number, stride: number) => ({
        address,
        dtype: typeOf(ROCBLAS_TYPES, number),
        rows,
        cols,
        ld,
        stride,
      });
      const product = {
        batch,
        a: side(a, aType, ta ? k : m, ta ? m : k, lda, strideA),
        b: side(b, bType, tb ? n : k, tb ? k : n, ldb, strideB),
        d: side(d, dType, m, n, ldd, strideD),
        transposedA: ta,
        transposedB: tb,
        alpha: scalar(alpha),
        beta: scalar(beta),
        tf32: handle.math === N.rocblas_xf32_xdl_math_op,
      };
      device.enqueue(handle.stream, () => multiply(device, product));
      return 0;
    },
  });
}
