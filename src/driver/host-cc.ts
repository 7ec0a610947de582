// The host C++ compiler: makes shared objects from source text and keeps them on disk by a hash of everything that went
// in.
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { env } from '../base/environment.js';
import { CompileError } from '../base/errors.js';
import { cacheFolder, keptOr, keptOrAsync } from '../base/kept-files.js';

export type Sanitizer = 'none' | 'address' | 'thread';
const SANITIZER_FLAGS: Readonly<Record<Sanitizer, readonly string[]>> = {
  none: ['-Og'], // kernels of tests run once or twice: compiling them is most of the time
  address: [
    '-O1',
    '-g1',
    '-fno-omit-frame-pointer',
    '-fsanitize=address,undefined',
    '-fsanitize-sections=gpushared',
    '-fno-sanitize-recover=undefined',
  ],
  thread: ['-O1', '-g1', '-fsanitize=thread'],
};
/** No contraction, wrapping integers: what the kernels are promised everywhere. */
const COMMON = ['-std=c++17', '-fPIC', '-ffp-contract=off', '-fwrapv', '-fno-strict-aliasing', '-w', '-x', 'c++', '-'];

let versionLine: string | undefined;
/** The compiler's command: CXX or g++. */
const command = (): string => env('CXX') ?? 'g++';

/** 'g++ (Debian 12.2.0) 12.2.0', or a CompileError that says what is missing. */
export function hostCompiler(): string {
  try {
    return (versionLine ??= execFileSync(command(), ['--version'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).split('\n')[0]);
  } catch (cause) {
    throw new CompileError(
      `no C++ compiler: "${command()}" does not run; the sim driver compiles kernels with g++ (or what CXX names)`,
      { cause },
    );
  }
}

function place(source: string, sanitizer: Sanitizer, executable: boolean): { path: string; flags: string[] } {
  const flags = [...SANITIZER_FLAGS[sanitizer], executable ? '-pie' : '-shared', ...COMMON];
  const key = createHash('sha256')
    .update(JSON.stringify([hostCompiler(), process.arch, flags]))
    .update(source)
    .digest('hex')
    .slice(0, 32);
  return { path: join(cacheFolder('sim', true), `${key}${executable ? '' : '.so'}`), flags };
}
const failure = (name: string, cause: unknown): CompileError => {
  const log = String((cause as { stderr?: string }).stderr ?? cause);
  return new CompileError(`${name}: the host compiler refused it:\n${log.slice(0, 4000)}`, { cause });
};

/** The path of the compiled object: from disk, or compiled now. */
export function buildHost(name: string, source: string, sanitizer: Sanitizer = 'none', executable = false): string {
  const { path, flags } = place(source, sanitizer, executable);
  return keptOr(path, (draft) => {
    try {
      execFileSync(command(), ['-o', draft, ...flags], {
        input: source,
        encoding: 'utf8',
        stdio: ['pipe', 'ignore', 'pipe'],
        maxBuffer: 64 << 20,
      });
    } catch (cause) {
      throw failure(name, cause);
    }
  });
}

/** The same without blocking, for building many ahead of use. */
export async function buildHostAsync(
  name: string,
  source: string,
  sanitizer: Sanitizer = 'none',
  executable = false,
): Promise<string> {
  const { path, flags } = place(source, sanitizer, executable);
  return keptOrAsync(path, async (draft) => {
    const text = `${draft.slice(0, -'.part'.length)}.cpp.part`;
    try {
      writeFileSync(text, source);
      await promisify(execFile)(command(), ['-o', draft, ...flags.slice(0, -3), '-x', 'c++', text], {
        maxBuffer: 64 << 20,
      });
    } catch (cause) {
      throw failure(name, cause);
    } finally {
      rmSync(text, { force: true });
    }
  });
}

export const readObject = (path: string): Uint8Array => readFileSync(path);
