// A stand-in of rocBLAS: one call has all of a product.
import type { NativeArg } from '../driver/ffi.js';
import { ROCBLAS_NUMBERS as N, ROCBLAS_TYPES } from '../driver/rocblas.js';
import { Handles, hostMemory, type HostedDevice, Misuse, StandIn, textAddress, typeOf } from './library.js';
import { multiply, type Product } from './product.js';

interface Handle {
  stream: number;
  atomics: boolean;
  math: number;
}

/** What rocblas_gemm_strided_batched_ex takes behind its handle, in its order. */
const PARAMETERS = [
  ...(['transA', 'transB', 'm', 'n', 'k', 'alpha'] as const),
  ...(['a', 'aType', 'lda', 'strideA'] as const),
  ...(['b', 'bType', 'ldb', 'strideB'] as const),
  'beta',
  ...(['c', 'cType', 'ldc', 'strideC'] as const),
  ...(['d', 'dType', 'ldd', 'strideD'] as const),
  ...(['batch', 'compute', 'algorithm', 'solution', 'flags'] as const),
] as const;
type Call = Readonly<Record<(typeof PARAMETERS)[number], number>>;
const named = (args: readonly number[]): Call =>
  Object.fromEntries(PARAMETERS.map((name, i) => [name, args[i]])) as Call;

function checkCall(p: Call): void {
  if (p.cType !== p.dType || p.ldc !== p.ldd || p.strideC !== p.strideD) throw new Misuse('c and d differ');
  if (p.algorithm !== N.rocblas_gemm_algo_standard || p.solution !== 0 || p.flags !== N.rocblas_gemm_flags_none)
    throw new Misuse(`algorithm ${p.algorithm}, solution ${p.solution}, flags ${p.flags}`);
  for (const op of [p.transA, p.transB])
    if (op !== N.rocblas_operation_none && op !== N.rocblas_operation_transpose) throw new Misuse(`operation ${op}`);
  const type = typeOf(ROCBLAS_TYPES, p.aType);
  if (typeOf(ROCBLAS_TYPES, p.compute) !== (type === 'f64' ? 'f64' : 'f32'))
    throw new Misuse(`compute type ${p.compute} for ${type}`);
}

function productOf(p: Call, tf32: boolean): Product {
  const [transposedA, transposedB] = [p.transA, p.transB].map((op) => op === N.rocblas_operation_transpose);
  const wide = typeOf(ROCBLAS_TYPES, p.compute) === 'f64';
  const scalar = (at: number): number =>
    wide ? hostMemory(at, 8).getFloat64(0, true) : hostMemory(at, 4).getFloat32(0, true);
  const side = (name: 'a' | 'b' | 'd', [rows, cols]: readonly [number, number], ld: number, stride: number) => ({
    address: p[name],
    dtype: typeOf(ROCBLAS_TYPES, p[`${name}Type`]),
    rows,
    cols,
    ld,
    stride,
  });
  return {
    batch: p.batch,
    a: side('a', transposedA ? [p.k, p.m] : [p.m, p.k], p.lda, p.strideA),
    b: side('b', transposedB ? [p.n, p.k] : [p.k, p.n], p.ldb, p.strideB),
    d: side('d', [p.m, p.n], p.ldd, p.strideD),
    transposedA,
    transposedB,
    alpha: scalar(p.alpha),
    beta: scalar(p.beta),
    c: p.c,
    tf32,
  };
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
    rocblas_gemm_strided_batched_ex: (h: number, ...args: number[]) => {
      const handle = of(h);
      if (handle.stream === 0) throw new Misuse('no stream was set');
      if (handle.atomics) throw new Misuse('atomics are allowed: results would change from run to run');
      const call = named(args);
      checkCall(call);
      if (refused.includes(typeOf(ROCBLAS_TYPES, call.aType))) return N.rocblas_status_not_implemented;
      const product = productOf(call, handle.math === N.rocblas_xf32_xdl_math_op);
      device.enqueue(handle.stream, () => multiply(device, product));
      return 0;
    },
  });
}
