// The seam to run-time compilers: NVRTC and hipRTC turn one source text into code for one target.
import { CompileError } from '../base/errors.js';
import { Calls } from './checked-calls.js';
import { Cell, type Bound, type Native, type Table } from './ffi.js';
import { callElsewhere } from './threads.js';

export interface CompileRequest {
  readonly source: string;
  /** What the log calls the source: 'unary.hip'. */
  readonly name: string;
  /** 'sm_90', 'compute_80', 'gfx1100'. */
  readonly arch: string;
  /** WICK_WAVE and the like; a value of '' defines the name alone. */
  readonly defines: Readonly<Record<string, string | number>>;
}

export interface Compiler {
  /** For people: 'NVRTC'. */
  readonly name: string;
  /** Part of the cache's key: another version makes other code. */
  readonly version: string;
  /** true, or the sentence that says why the target cannot be compiled for. */
  accepts(arch: string): true | string;
  /** The options a request is compiled with, in order: the cache's key holds them. */
  options(request: Pick<CompileRequest, 'arch' | 'defines'>): string[];
  /** cubin (sm_), PTX (compute_) or an AMD code object (gfx). Throws CompileError with the compiler's log. */
  compile(request: CompileRequest): Uint8Array;
  /** The same on another thread; left out by compilers that know no threads. */
  begin?(request: CompileRequest): ComingCode;
}

/** Code that is being made on another thread. */
export interface ComingCode {
  readonly done: boolean;
  /** Waits for it; throws as `compile` does. */
  wait(): Uint8Array;
}

/** Threads in a wave: 64 on gfx9 (GCN and CDNA), 32 on gfx10 and later and on NVIDIA. */
export const waveSize = (arch: string): 32 | 64 => (/^gfx9/.test(arch) ? 64 : 32);

export const defineOptions = (defines: CompileRequest['defines']): string[] =>
  Object.entries(defines).map(([k, v]) => (v === '' ? `-D${k}` : `-D${k}=${v}`));

/** The calls both run-time compilers have, with equal parameters, under the vendor's prefix. */
export const rtcTable = (p: 'nvrtc' | 'hiprtc') =>
  ({
    version: `int ${p}Version(void *major, void *minor)`,
    errorString: `uintptr_t ${p}GetErrorString(int status)`,
    create:
      `int ${p}CreateProgram(void *program, void *source, const char *name, int headers, void *headerTexts, ` +
      `void *headerNames)`,
    compile: `int ${p}CompileProgram(uintptr_t program, int count, const char **options)`,
    logSize: `int ${p}GetProgramLogSize(uintptr_t program, void *bytes)`,
    log: `int ${p}GetProgramLog(uintptr_t program, void *text)`,
    destroy: `int ${p}DestroyProgram(void *program)`,
  }) as const satisfies Table;

/** The status of both compilers for "the source has errors". */
const COMPILATION = 6;

/** A program and how to end it: with its code, or with the error that the compiler's status tells of. */
interface Program {
  readonly handle: number;
  end(status: number): Uint8Array;
}
type RtcCalls = ReturnType<typeof rtcTable> & Table;
/** What is compiled: `code` fetches the code from a compiled program. */
interface Source<T extends RtcCalls> {
  readonly compiler: string;
  readonly calls: Calls<T>;
  readonly request: CompileRequest;
  readonly options: readonly string[];
  code(program: number): Uint8Array;
}
function createProgram<T extends RtcCalls>({ compiler, calls, request, options, code }: Source<T>): Program {
  const raw = calls.raw as unknown as Bound<ReturnType<typeof rtcTable>>;
  const program = new Cell();
  // As bytes: long texts do not fit the memory set aside for converted strings.
  const created = raw.create(program.raw, Buffer.from(`${request.source}\0`), request.name, 0, null, null);
  if (created !== 0) throw calls.error('create', [request.name], created);
  const failure = (status: number): CompileError => {
    const size = new Cell();
    raw.logSize(program.value, size.raw);
    const text = Buffer.alloc(Math.max(size.value, 1));
    if (size.value > 1) raw.log(program.value, text);
    const log = text.toString().replace(/\0+$/, '').trim();
    const what = status === COMPILATION ? 'the source does not compile' : calls.rules.errorName(status);
    return new CompileError(
      `${compiler} ${request.name} ` +
        `for ${request.arch}: ${what} (${status})\noptions: ${options.join(' ')}\n${log || 'no log'}`,
    );
  };
  const end = (status: number): Uint8Array => {
    try {
      if (status !== 0) throw failure(status);
      return code(program.value);
    } finally {
      raw.destroy(program.raw);
    }
  };
  return { handle: program.value, end };
}

/** Creates, compiles and destroys a program. */
export function compileProgram<T extends RtcCalls>(source: Source<T>): Uint8Array {
  const program = createProgram(source);
  const { calls, options } = source;
  return program.end((calls.raw.compile as Native)(program.handle, options.length, [...options]));
}
/** The same on another thread; `path` is the compiler's file. */
export function beginProgram<T extends RtcCalls>(source: Source<T>, path: string): ComingCode {
  const { calls, options } = source;
  const program = createProgram(source);
  const args = [program.handle, options.length, [...options]];
  const answer = callElsewhere(calls.raw.compile as Native, {
    ...{ library: path, prototype: calls.prototype('compile'), args },
  });
  let made: Uint8Array | undefined;
  return {
    get done() {
      return answer.done;
    },
    wait: () => (made ??= program.end(answer.wait())),
  };
}

/** Fetches a result whose size and bytes come by two calls. */
export function fetchBytes(size: (cell: Uint32Array) => void, bytes: (target: Uint8Array) => void): Uint8Array {
  const cell = new Cell();
  size(cell.raw);
  const out = new Uint8Array(cell.value);
  bytes(out);
  return out;
}
