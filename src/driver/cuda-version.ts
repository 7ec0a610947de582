// Which CUDA the NVIDIA driver is of, and the order in which toolkit libraries are tried for it: a newer major than the
// driver's does not run.
import { Cell, openLibrary, type LibrarySpec } from './ffi.js';

export const LIBCUDA: LibrarySpec = { name: 'libcuda', sonames: ['libcuda.so.1', 'libcuda.so'], vendor: 'cuda' };
export const DRIVER_VERSION = 'int cuDriverGetVersion(void *version)';

/** 13000 is 13.0. */
export const cudaVersion = (v: number): string => `${Math.floor(v / 1000)}.${Math.floor((v % 1000) / 10)}`;

/** 13000 and the like; undefined without a driver. */
export function cudaDriverVersion(): number | undefined {
  const library = openLibrary(LIBCUDA);
  if (typeof library === 'string') return undefined;
  const cell = new Cell();
  return library.func(DRIVER_VERSION)(cell.raw) === 0 ? cell.int : undefined;
}

/**
 * File names of majors the driver can run first; the others stay as a last resort (and are fine where there is no
 * driver).
 */
export function forDriver(spec: LibrarySpec): LibrarySpec {
  const version = cudaDriverVersion();
  if (version === undefined) return spec;
  const fits = (soname: string): boolean => Number(/\.so\.(\d+)/.exec(soname)?.[1] ?? 0) <= Math.floor(version / 1000);
  return { ...spec, sonames: [...spec.sonames.filter(fits), ...spec.sonames.filter((s) => !fits(s))] };
}
