// hipRTC, AMD's run-time compiler: a library of its own from ROCm 5.3 on, part of libamdhip64 before. It needs no GPU.
import { env } from '../base/environment.js';
import { CompileError } from '../base/errors.js';
import { Calls } from './checked-calls.js';
import { comgrTargets } from './comgr.js';
import { compileProgram, defineOptions, fetchBytes, rtcTable, type CompileRequest, type Compiler } from './compiler.js';
import type { Maybe } from './driver.js';
import { Cell, Library, nativeString, noteLibrary, openLibrary, type LibrarySpec } from './ffi.js';
import { LIBHIP, plainArch } from './hip.js';

export const HIPRTC: LibrarySpec = {
  name: 'hipRTC',
  sonames: ['libhiprtc.so.7', 'libhiprtc.so.6', 'libhiprtc.so.5', 'libhiprtc.so'],
  vendor: 'rocm',
};

export const HIPRTC_TABLE = {
  ...rtcTable('hiprtc'),
  codeSize: 'int hiprtcGetCodeSize(uintptr_t program, void *bytes)',
  code: 'int hiprtcGetCode(uintptr_t program, void *bytes)',
} as const;

/** Line tables with the source in them, for the emulator's reports; the machine code stays the same. */
const wantsLines = (): boolean => env('WICK_EMU_CHECK') === '1' || env('WICK_KERNEL_LINES') === '1';

const OUT_OF_MEMORY = 1;
let opened: Maybe<Compiler> | undefined;
export const openHiprtc = (): Maybe<Compiler> => (opened ??= open());

function open(): Maybe<Compiler> {
  const library = find();
  if (typeof library === 'string') return library;
  const raw = library.bind(HIPRTC_TABLE);
  const calls = new Calls(HIPRTC_TABLE, raw, {
    errorName: (s) => nativeString(raw.errorString(s)),
    outOfMemory: [OUT_OF_MEMORY],
  });
  const [major, minor] = [new Cell(), new Cell()];
  calls.call('version', major.raw, minor.raw);
  // It calls itself 9.0 in every release; the file's name holds the release.
  const version = /\.so\.([\d.]+)$/.exec(library.path)?.[1] ?? `${major.int}.${minor.int}`;
  noteLibrary({ name: HIPRTC.name, found: library.path, version, missing: undefined });
  return hiprtcCompiler(calls, version);
}

/** In its own library, else inside the runtime. */
function find(): Library | string {
  const own = openLibrary(HIPRTC);
  if (typeof own !== 'string') return own;
  const runtime = openLibrary(LIBHIP);
  if (typeof runtime !== 'string' && runtime.has('hiprtcCompileProgram')) return runtime;
  return typeof runtime === 'string' ? `${own}; ${runtime}` : `${own}; ${runtime.path} holds no hipRTC`;
}

function hiprtcCompiler(calls: Calls<typeof HIPRTC_TABLE>, version: string): Compiler {
  // Asked for only when something is compiled: the library is large, and cached kernels do without it.
  let targets: ReturnType<typeof comgrTargets> | undefined;
  const options = ({ arch, defines }: Pick<CompileRequest, 'arch' | 'defines'>): string[] => [
    `--offload-arch=${arch}`,
    '-O3',
    '-std=c++17',
    '-ffp-contract=off', // contraction is off; kernels say fma where they mean it
    '-fwrapv', // integer tensors wrap
    // A block's waves on four units, not two: twice the registers a thread for blocks of 1024; newer releases do so by
    // themselves.
    ...(/^gfx10/.test(arch) ? ['-mno-cumode'] : []),
    ...(wantsLines() ? ['-gline-tables-only', '-gdwarf-5', '-gembed-source'] : []),
    ...defineOptions(defines),
  ];
  const accepts = (arch: string): true | string => {
    targets ??= comgrTargets(Number.parseInt(version, 10));
    if (typeof targets === 'string')
      return `hipRTC ${version} cannot be used safely: its targets are unknown, and it aborts on an unknown one: ${targets}`;
    return targets.has(plainArch(arch))
      ? true
      : `hipRTC ${version} does not know the target '${arch}'; it knows ${[...targets].join(', ')}`;
  };
  return {
    name: 'hipRTC',
    version,
    accepts,
    options,
    compile: (request) => {
      const ok = accepts(request.arch);
      if (ok !== true) throw new CompileError(`hipRTC ${request.name}: ${ok}`);
      const code = (program: number): Uint8Array =>
        fetchBytes(
          (c) => calls.call('codeSize', program, c),
          (t) => calls.call('code', program, t),
        );
      return compileProgram({ compiler: 'hipRTC', calls, request, options: options(request), code });
    },
  };
}
