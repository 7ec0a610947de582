// NVRTC, NVIDIA's run-time compiler, CUDA 11.2 to 13.
import { CompileError } from '../base/errors.js';
import { Calls } from './checked-calls.js';
import {
  beginProgram,
  compileProgram,
  defineOptions,
  fetchBytes,
  rtcTable,
  type CompileRequest,
  type Compiler,
} from './compiler.js';
import { forDriver } from './cuda-version.js';
import type { Maybe } from './driver.js';
import { Cell, nativeString, noteLibrary, openLibrary, type LibrarySpec } from './ffi.js';

export const NVRTC: LibrarySpec = {
  name: 'NVRTC',
  sonames: ['libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so.11.2', 'libnvrtc.so'],
  vendor: 'cuda',
  beside: /^libnvrtc-builtins\.so\.[\d.]+$/,
};

export const NVRTC_TABLE = {
  ...rtcTable('nvrtc'),
  archCount: 'int nvrtcGetNumSupportedArchs(void *count)',
  archs: 'int nvrtcGetSupportedArchs(void *archs)',
  ptxSize: 'int nvrtcGetPTXSize(uintptr_t program, void *bytes)',
  ptx: 'int nvrtcGetPTX(uintptr_t program, void *text)',
  cubinSize: 'int nvrtcGetCUBINSize(uintptr_t program, void *bytes)',
  cubin: 'int nvrtcGetCUBIN(uintptr_t program, void *bytes)',
} as const;

const OUT_OF_MEMORY = 1;
let opened: Maybe<Compiler> | undefined;
export const openNvrtc = (): Maybe<Compiler> => (opened ??= open());

function open(): Maybe<Compiler> {
  const library = openLibrary(forDriver(NVRTC));
  if (typeof library === 'string') return library;
  const raw = library.bind(NVRTC_TABLE);
  const calls = new Calls(NVRTC_TABLE, raw, {
    errorName: (s) => nativeString(raw.errorString(s)),
    outOfMemory: [OUT_OF_MEMORY],
  });
  const [major, minor] = [new Cell(), new Cell()];
  calls.call('version', major.raw, minor.raw);
  const version = `${major.int}.${minor.int}`;
  noteLibrary({ name: NVRTC.name, version });
  calls.call('archCount', major.clear().raw);
  const archs = new Int32Array(major.int);
  calls.call('archs', archs);
  const sorted = [...archs].sort((a, b) => a - b);
  return nvrtcCompiler(calls, version, sorted, library.path);
}

function nvrtcCompiler(
  calls: Calls<typeof NVRTC_TABLE>,
  version: string,
  archs: readonly number[],
  path: string,
): Compiler {
  const number = (arch: string): number => Number(/^(?:sm|compute)_(\d+)[af]?$/.exec(arch)?.[1] ?? NaN);
  const oldest = archs[0];
  const newest = archs[archs.length - 1];
  /** A GPU newer than the compiler gets PTX of the newest target it knows, which the driver translates. */
  const target = (arch: string): string => (number(arch) > newest ? `compute_${newest}` : arch);
  const options = ({ arch, defines }: Pick<CompileRequest, 'arch' | 'defines'>): string[] => [
    `--gpu-architecture=${target(arch)}`,
    '-std=c++17',
    '--fmad=false', // contraction is off; kernels say fma where they mean it
    '-default-device',
    ...(Number.parseInt(version, 10) >= 13 ? ['--minimal'] : []), // no textures, no device-side runtime: a tenth sooner
    ...defineOptions(defines),
  ];
  const accepts = (arch: string): true | string => {
    const n = number(arch);
    if (Number.isNaN(n)) return `'${arch}' is no NVIDIA target (sm_90 for machine code, compute_90 for PTX)`;
    if (n < oldest) return `NVRTC ${version} compiles for sm_${oldest} and newer, not ${arch}`;
    return true;
  };
  const codeOf = (ptx: boolean, program: number): Uint8Array => {
    if (!ptx)
      return fetchBytes(
        (c) => calls.call('cubinSize', program, c),
        (t) => calls.call('cubin', program, t),
      );
    const text = fetchBytes(
      (c) => calls.call('ptxSize', program, c),
      (t) => calls.call('ptx', program, t),
    );
    return text[text.length - 1] === 0 ? text.subarray(0, -1) : text;
  };
  const sourceOf = (request: CompileRequest) => {
    const ok = accepts(request.arch);
    if (ok !== true) throw new CompileError(`NVRTC ${request.name}: ${ok}`);
    const ptx = target(request.arch).startsWith('compute_');
    const code = (program: number): Uint8Array => codeOf(ptx, program);
    return { compiler: 'NVRTC', calls, request, options: options(request), code };
  };
  return {
    name: 'NVRTC',
    version,
    accepts,
    options,
    compile: (request) => compileProgram(sourceOf(request)),
    begin: (request) => beginProgram(sourceOf(request), path),
  };
}
