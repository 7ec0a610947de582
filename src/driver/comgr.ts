// AMD's code object manager (comgr): which targets the installed compiler knows. hipRTC up to ROCm 6.4 aborts the
// process on others.
import { Calls } from './checked-calls.js';
import type { Maybe } from './driver.js';
import { Cell, nativeString, noteLibrary, openLibrary, type LibrarySpec } from './ffi.js';

/** ROCm 5 and early 6 have version 2, later releases 3; taking the compiler's own keeps one LLVM in the process. */
const COMGR = (rocm: number): LibrarySpec => ({
  name: 'comgr',
  sonames:
    rocm < 6 ? ['libamd_comgr.so.2', 'libamd_comgr.so'] : ['libamd_comgr.so.3', 'libamd_comgr.so.2', 'libamd_comgr.so'],
  vendor: 'rocm',
});

export const COMGR_TABLE = {
  version: 'void amd_comgr_get_version(void *major, void *minor)',
  isaCount: 'int amd_comgr_get_isa_count(void *count)',
  isaName: 'int amd_comgr_get_isa_name(size_t index, void *name)',
} as const;

const PREFIX = 'amdgcn-amd-amdhsa--';
const OUT_OF_RESOURCES = 3;

/** Target names such as 'gfx1030', or why they cannot be asked for. */
export function comgrTargets(rocm: number): Maybe<ReadonlySet<string>> {
  const library = openLibrary(COMGR(rocm));
  if (typeof library === 'string') return library;
  const raw = library.bind(COMGR_TABLE);
  const calls = new Calls(COMGR_TABLE, raw, {
    errorName: () => 'AMD_COMGR_STATUS_ERROR',
    outOfMemory: [OUT_OF_RESOURCES],
  });
  const [a, b] = [new Cell(), new Cell()];
  raw.version(a.raw, b.raw);
  noteLibrary({ name: 'comgr', version: `${a.value}.${b.value}` });
  calls.call('isaCount', a.clear().raw);
  const targets = new Set<string>();
  for (let i = 0; i < a.value; i++) {
    calls.call('isaName', i, b.clear().raw);
    const name = nativeString(b.value);
    targets.add(name.startsWith(PREFIX) ? name.slice(PREFIX.length) : name);
  }
  return targets;
}
