// Compares the prototypes, struct layouts and numbers of src/driver/ with the vendors' real headers, by compiling a C++
// probe against them.
// Usage: node dist/scripts/abi-probe.js [include folder ...]   (folders searched besides /usr/include, CUDA's and
// ROCm's)
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { COMGR_TABLE } from '../src/driver/comgr.js';
import { CUBLASLT_NUMBERS, CUBLASLT_TABLE } from '../src/driver/cublaslt.js';
import { CUDA_TABLE } from '../src/driver/cuda.js';
import { CUDNN_GRAPH_NUMBERS, CUDNN_GRAPH_TABLE } from '../src/driver/cudnn-graph.js';
import { CUDNN_NUMBERS, CUDNN_PERF, CUDNN_TABLE } from '../src/driver/cudnn.js';
import { symbolOf, type Table } from '../src/driver/ffi.js';
import { HIP_TABLE } from '../src/driver/hip.js';
import { HIPBLASLT_NUMBERS, HIPBLASLT_TABLE } from '../src/driver/hipblaslt.js';
import { HIPRTC_TABLE } from '../src/driver/hiprtc.js';
import { LT_TYPES, type LtNumbers } from '../src/driver/lt.js';
import { MIOPEN_NUMBERS, MIOPEN_SOLUTION, MIOPEN_TABLE } from '../src/driver/miopen.js';
import { NCCL_NUMBERS, NCCL_TABLE } from '../src/driver/nccl.js';
import { NVRTC_TABLE } from '../src/driver/nvrtc.js';
import { ROCBLAS_NUMBERS, ROCBLAS_TABLE } from '../src/driver/rocblas.js';
import { CUDA_NUMBERS, CUDA_STRUCTS, HIP_NUMBERS, HIP_PROPERTIES, type StructLayout } from '../src/driver/structs.js';

export interface ProbeTarget {
  readonly name: string;
  readonly headers: readonly string[];
  readonly prelude: string;
  readonly table: Table;
  readonly structs: Readonly<Record<string, StructLayout | readonly StructLayout[]>>;
  readonly numbers: Readonly<Record<string, number>>;
  /** Symbols with C++ overloads beside the C function: the type that picks it. */
  readonly overloaded?: Readonly<Record<string, string>>;
}

/** The shared numbers of the two Lt libraries under the names a vendor's header has. */
function ltNames(n: LtNumbers, p: 'CUBLASLT' | 'HIPBLASLT'): Record<string, number> {
  const blas = p.slice(0, -2);
  const data = p === 'CUBLASLT' ? 'CUDA' : 'HIP';
  const alignment = ['A', 'B', 'C', 'D'].flatMap((m, i) =>
    n.pref.minAlignment.length ? [[`${p}_MATMUL_PREF_MIN_ALIGNMENT_${m}_BYTES`, n.pref.minAlignment[i]] as const] : [],
  );
  return {
    [`${p}_MATRIX_LAYOUT_BATCH_COUNT`]: n.layout.batchCount,
    [`${p}_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET`]: n.layout.batchStride,
    [`${p}_MATMUL_DESC_TRANSA`]: n.desc.transA,
    [`${p}_MATMUL_DESC_TRANSB`]: n.desc.transB,
    [`${p}_MATMUL_DESC_EPILOGUE`]: n.desc.epilogue,
    [`${p}_MATMUL_DESC_BIAS_POINTER`]: n.desc.biasPointer,
    [`${p}_MATMUL_PREF_MAX_WORKSPACE_BYTES`]: n.pref.maxWorkspace,
    [`${p}_EPILOGUE_BIAS`]: n.epilogueBias,
    [`${blas}_OP_N`]: n.opN,
    [`${blas}_OP_T`]: n.opT,
    [`${blas}_COMPUTE_32F`]: n.compute.f32,
    [`${blas}_COMPUTE_32F_FAST_TF32`]: n.compute.tf32,
    [`${blas}_COMPUTE_64F`]: n.compute.f64,
    [`${data}_R_32F`]: LT_TYPES.f32,
    [`${data}_R_64F`]: LT_TYPES.f64,
    [`${data}_R_16F`]: LT_TYPES.f16,
    [`${data}_R_16BF`]: LT_TYPES.bf16,
    ...Object.fromEntries(alignment),
  };
}
const ltResult = (n: LtNumbers): StructLayout => ({
  size: n.result.size,
  fields: { algo: 0, workspaceSize: n.result.workspaceSize },
});
const AMD = '#define __HIP_PLATFORM_AMD__ 1\n#define __HIP_PLATFORM_HCC__ 1\n#define __HIP_DISABLE_CPP_FUNCTIONS__ 1\n';

export const PROBE_TARGETS: readonly ProbeTarget[] = [
  {
    name: 'CUDA driver',
    headers: ['cuda.h'],
    prelude: '',
    table: CUDA_TABLE,
    structs: CUDA_STRUCTS,
    numbers: CUDA_NUMBERS,
  },
  {
    name: 'NVRTC',
    headers: ['nvrtc.h'],
    prelude: '',
    table: NVRTC_TABLE,
    structs: {},
    numbers: { NVRTC_ERROR_OUT_OF_MEMORY: 1, NVRTC_ERROR_COMPILATION: 6 },
  },
  {
    name: 'cuBLASLt',
    headers: ['cublasLt.h'],
    prelude: '',
    table: CUBLASLT_TABLE,
    structs: { cublasLtMatmulHeuristicResult_t: ltResult(CUBLASLT_NUMBERS) },
    numbers: ltNames(CUBLASLT_NUMBERS, 'CUBLASLT'),
  },
  {
    name: 'cuDNN',
    headers: ['cudnn.h'],
    prelude: '',
    table: { ...CUDNN_TABLE, ...CUDNN_GRAPH_TABLE },
    numbers: { ...CUDNN_NUMBERS, ...CUDNN_GRAPH_NUMBERS },
    structs: {
      cudnnConvolutionFwdAlgoPerf_t: CUDNN_PERF,
      cudnnConvolutionBwdDataAlgoPerf_t: CUDNN_PERF,
      cudnnConvolutionBwdFilterAlgoPerf_t: CUDNN_PERF,
    },
  },
  { name: 'NCCL', headers: ['nccl.h'], prelude: '', table: NCCL_TABLE, structs: {}, numbers: NCCL_NUMBERS },
  {
    name: 'RCCL',
    headers: ['rccl/rccl.h', 'rccl.h'],
    prelude: AMD,
    table: NCCL_TABLE,
    structs: {},
    numbers: NCCL_NUMBERS,
  },
  {
    name: 'HIP',
    headers: ['hip/hip_runtime_api.h'],
    prelude: AMD,
    table: HIP_TABLE,
    structs: { hipDeviceProp_t: Object.values(HIP_PROPERTIES) },
    numbers: HIP_NUMBERS,
    overloaded: { hipMallocAsync: 'hipError_t(void **, size_t, hipStream_t)' },
  },
  {
    name: 'hipRTC',
    headers: ['hip/hiprtc.h'],
    prelude: AMD,
    table: HIPRTC_TABLE,
    structs: {},
    numbers: { HIPRTC_ERROR_OUT_OF_MEMORY: 1, HIPRTC_ERROR_COMPILATION: 6 },
  },
  {
    name: 'comgr',
    headers: ['amd_comgr/amd_comgr.h', 'amd_comgr.h'],
    prelude: '',
    table: COMGR_TABLE,
    structs: {},
    numbers: { AMD_COMGR_STATUS_ERROR_OUT_OF_RESOURCES: 3 },
  },
  {
    name: 'rocBLAS',
    headers: ['rocblas/rocblas.h'],
    prelude: AMD,
    table: ROCBLAS_TABLE,
    structs: {},
    numbers: ROCBLAS_NUMBERS,
  },
  {
    name: 'hipBLASLt',
    headers: ['hipblaslt/hipblaslt.h'],
    prelude: AMD,
    table: HIPBLASLT_TABLE,
    structs: { hipblasLtMatmulHeuristicResult_t: ltResult(HIPBLASLT_NUMBERS) },
    numbers: ltNames(HIPBLASLT_NUMBERS, 'HIPBLASLT'),
  },
  {
    name: 'MIOpen',
    headers: ['miopen/miopen.h'],
    prelude: AMD,
    table: MIOPEN_TABLE,
    structs: { miopenConvSolution_t: MIOPEN_SOLUTION },
    numbers: MIOPEN_NUMBERS,
  },
];

export interface ProbeResult {
  readonly name: string;
  /** The folder the header was found in, or undefined with `skipped`. */
  readonly header?: string;
  readonly skipped?: string;
  readonly checked: { readonly prototypes: number; readonly structs: number; readonly numbers: number };
  readonly differences: readonly string[];
  /** Optional symbols this header does not have. */
  readonly absent: readonly string[];
}

/** A C type as the calling convention sees it: v, f or i with its size. */
function classOf(type: string): string {
  const t = type.replace(/\bconst\b/g, '').trim();
  if (t.includes('*')) return 'i8';
  const base = t.split(/\s+/)[0];
  const sizes: Record<string, string> = {
    void: 'v0',
    int: 'i4',
    uint: 'i4',
    int32_t: 'i4',
    uint32_t: 'i4',
    size_t: 'i8',
    uintptr_t: 'i8',
    int64_t: 'i8',
    uint64_t: 'i8',
    uint8_t: 'i1',
    ncclUniqueId: 's128',
    uint16_t: 'i2',
    float: 'f4',
    double: 'f8',
  };
  return sizes[base] ?? `?${base}`;
}

/** 'i4 i8 i8' of a prototype: the result, then the parameters. */
export function signatureOf(prototype: string): string {
  const [, result, params] = /^(.*?)\w+\s*\((.*)\)$/.exec(prototype) ?? [];
  return [classOf(result), ...(params.trim() === '' ? [] : params.split(',').map(classOf))].join(' ');
}

const CXX = process.env.CXX ?? 'g++';
const HELPERS = `
#include <cstddef>
#include <cstdio>
#include <type_traits>
template <class T> void one() {
  if constexpr (std::is_void_v<T>) std::printf(" v0");
  else if constexpr (std::is_floating_point_v<T>) std::printf(" f%zu", sizeof(T));
  else if constexpr (std::is_pointer_v<T> || std::is_integral_v<T> || std::is_enum_v<T>) std::printf(" i%zu", sizeof(T));
  else std::printf(" s%zu", sizeof(T));
}
template <class F> struct Signature;
template <class R, class... A> struct Signature<R(A...)> { static void show() { one<R>(); (one<A>(), ...); } };
template <class R, class... A> struct Signature<R(A...) noexcept> : Signature<R(A...)> {};
`;

const unique = (t: Table): [string, { text: string; optional: boolean }][] =>
  Object.values(t).map((p) => {
    const text = typeof p === 'string' ? p : p.optional;
    return [symbolOf(text), { text, optional: typeof p !== 'string' }];
  });

/** Compiles and runs the probe for one library's headers, found in the first of the folders that has them. */
export function probe(target: ProbeTarget, folders: readonly string[]): ProbeResult {
  const none = { prototypes: 0, structs: 0, numbers: 0 };
  const hit = folders.flatMap((f) => target.headers.map((h) => ({ f, h }))).find(({ f, h }) => existsSync(join(f, h)));
  if (!hit)
    return {
      name: target.name,
      skipped: `${target.headers.join(' or ')} is in none of ${folders.join(', ')}`,
      checked: none,
      differences: [],
      absent: [],
    };
  const dir = mkdtempSync(join(tmpdir(), 'wick-abi-'));
  try {
    // The header's own folder first, the others for what it includes; CUDA's runtime headers may lie apart from the
    // library's.
    const includes = [hit.f, ...folders.filter((f) => f !== hit.f && f !== '/usr/include')].flatMap((f) => ['-I', f]);
    const head = `${target.prelude}#include <${hit.h}>\n`;
    const source = join(dir, 'probe.cpp');
    writeFileSync(source, head);
    const seen = spawnSync(CXX, ['-std=c++17', '-w', '-E', ...includes, source], {
      encoding: 'utf8',
      maxBuffer: 1 << 28,
    });
    if (seen.status !== 0)
      return {
        name: target.name,
        header: hit.f,
        skipped: `its headers do not compile alone: ${seen.stderr.slice(0, 400)}`,
        checked: none,
        differences: [],
        absent: [],
      };
    const declared = (symbol: string): boolean => new RegExp(`\\b${symbol}\\b`).test(seen.stdout);
    const prototypes = unique(target.table);
    const absent = prototypes.filter(([s, p]) => p.optional && !declared(s)).map(([s]) => s);
    const present = prototypes.filter(([s]) => !absent.includes(s));
    const structs = Object.entries(target.structs).map(
      ([n, l]) => [n, (Array.isArray(l) ? l : [l]) as StructLayout[]] as const,
    );
    const typeOf = (s: string): string => {
      const picked = target.overloaded?.[s];
      return picked
        ? `std::remove_pointer_t<decltype(static_cast<std::add_pointer_t<${picked}>>(&${s}))>`
        : `decltype(${s})`;
    };
    const body = [
      ...present.map(([s]) => `std::printf("F ${s}"); Signature<${typeOf(s)}>::show(); std::puts("");`),
      ...structs.map(
        ([n, l]) =>
          `std::printf("S ${n} %zu${' %zu'.repeat(Object.keys(l[0].fields).length)}\\n", sizeof(${n})${Object.keys(
            l[0].fields,
          )
            .map((f) => `, offsetof(${n}, ${f})`)
            .join('')});`,
      ),
      ...Object.keys(target.numbers).map((n) => `std::printf("N ${n} %lld\\n", (long long)(${n}));`),
    ];
    writeFileSync(source, `${head}${HELPERS}int main() {\n${body.join('\n')}\n}\n`);
    const built = spawnSync(CXX, ['-std=c++17', '-w', ...includes, '-o', join(dir, 'probe'), source], {
      encoding: 'utf8',
    });
    if (built.status !== 0)
      return {
        name: target.name,
        header: hit.f,
        checked: none,
        differences: [`the probe does not compile: ${built.stderr.slice(0, 2000)}`],
        absent,
      };
    const lines = execFileSync(join(dir, 'probe'), { encoding: 'utf8' }).trim().split('\n');
    const differences = lines.flatMap((line) => compare(line, target, present));
    return {
      name: target.name,
      header: hit.f,
      differences,
      absent,
      checked: { prototypes: present.length, structs: structs.length, numbers: Object.keys(target.numbers).length },
    };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** One line of the probe's output against what this repository says. */
function compare(line: string, target: ProbeTarget, present: readonly [string, { text: string }][]): string[] {
  const [kind, name, ...rest] = line.split(' ');
  const theirs = rest.join(' ');
  if (kind === 'F') {
    const ours = signatureOf(present.find(([s]) => s === name)?.[1].text ?? '');
    return ours === theirs ? [] : [`${name}: ours ${ours}, the header's ${theirs}`];
  }
  if (kind === 'N')
    return target.numbers[name] === Number(theirs)
      ? []
      : [`${name}: ours ${target.numbers[name]}, the header's ${theirs}`];
  const layouts = target.structs[name];
  const ours = (Array.isArray(layouts) ? (layouts as StructLayout[]) : [layouts as StructLayout]).map((l) =>
    [l.size, ...Object.values(l.fields)].join(' '),
  );
  return ours.includes(theirs) ? [] : [`${name}: ours ${ours.join(' or ')}, the header's ${theirs}`];
}

export const defaultFolders = (): string[] =>
  [
    ...(process.env.WICK_ABI_HEADERS ?? '').split(':'),
    process.env.CUDA_HOME && join(process.env.CUDA_HOME, 'include'),
    '/usr/local/cuda/include',
    '/opt/rocm/include',
    '/usr/include',
  ].filter((f): f is string => !!f && existsSync(f));

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const results = PROBE_TARGETS.map((t) => probe(t, [...process.argv.slice(2), ...defaultFolders()]));
  for (const r of results) {
    const c = r.checked;
    console.log(
      r.skipped
        ? `${r.name}: skipped, ${r.skipped}`
        : `${r.name}: ${c.prototypes} prototypes, ${c.structs} structs, ${c.numbers} numbers against ${r.header}: ` +
            `${r.differences.length} differences${r.absent.length ? `; not there: ${r.absent.join(', ')}` : ''}`,
    );
    for (const d of r.differences) console.log(`  ${d}`);
  }
  process.exitCode = results.some((r) => r.differences.length > 0) ? 1 : 0;
}
