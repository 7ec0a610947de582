// AMD's HIP runtime (libamdhip64, ROCm 5.2 to 7): its symbols, its devices and the few places where it differs from
// CUDA.
import { env } from '../base/environment.js';
import { ArgumentError, DeviceError } from '../base/errors.js';
import { withFallback } from './blas.js';
import { Calls, type CallRules } from './checked-calls.js';
import type { Device, DeviceInfo, DeviceLibraries, Driver, Fn, Module } from './driver.js';
import { Cell, cText, nativeString, noteLibrary, openLibrary, type LibrarySpec } from './ffi.js';
import { HIP_NUMBERS as N, HIP_PROPERTIES } from './structs.js';
import { onFirstUse, orSentence, vendorDriver, type VendorRules, type VendorTable } from './vendor.js';
import { HIPBLASLT, openHipblasLt } from './hipblaslt.js';
import { MIOPEN, openMiopen } from './miopen.js';
import { HIPSOLVER, openHipsolver } from './solver.js';
import { openRocblas, ROCBLAS } from './rocblas.js';

export const LIBHIP: LibrarySpec = {
  name: 'libamdhip64',
  sonames: ['libamdhip64.so.7', 'libamdhip64.so.6', 'libamdhip64.so.5', 'libamdhip64.so'],
  vendor: 'rocm',
};

export const HIP_TABLE = {
  init: 'int hipInit(uint flags)',
  driverVersion: 'int hipDriverGetVersion(void *version)',
  runtimeVersion: 'int hipRuntimeGetVersion(void *version)',
  deviceCount: 'int hipGetDeviceCount(void *count)',
  deviceSet: 'int hipSetDevice(int ordinal)',
  deviceName: 'int hipDeviceGetName(void *name, int len, int device)',
  deviceTotalMem: 'int hipDeviceTotalMem(void *bytes, int device)',
  deviceAttribute: 'int hipDeviceGetAttribute(void *value, int attribute, int device)',
  properties5: 'int hipGetDeviceProperties(void *properties, int device)',
  properties6: {
    optional: 'int hipGetDevicePropertiesR0600(void *properties, int device)',
    since: 'it came with ROCm 6.0',
  },
  errorName: 'uintptr_t hipGetErrorName(int error)',
  memAlloc: 'int hipMalloc(void *address, size_t bytes)',
  memFree: 'int hipFree(uintptr_t address)',
  memAllocAsync: {
    optional: 'int hipMallocAsync(void *address, size_t bytes, uintptr_t stream)',
    since: 'it came with ROCm 5.1',
  },
  memFreeAsync: { optional: 'int hipFreeAsync(uintptr_t address, uintptr_t stream)', since: 'it came with ROCm 5.1' },
  memInfo: 'int hipMemGetInfo(void *free, void *total)',
  hostAlloc: 'int hipHostMalloc(void *address, size_t bytes, uint flags)',
  hostFree: 'int hipHostFree(uintptr_t address)',
  memset8: 'int hipMemsetD8Async(uintptr_t address, uint8_t value, size_t count, uintptr_t stream)',
  copyHtoD: 'int hipMemcpyHtoDAsync(uintptr_t dst, void *src, size_t bytes, uintptr_t stream)',
  copyDtoH: 'int hipMemcpyDtoHAsync(void *dst, uintptr_t src, size_t bytes, uintptr_t stream)',
  copyDtoD: 'int hipMemcpyDtoDAsync(uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t stream)',
  canAccessPeer: 'int hipDeviceCanAccessPeer(void *can, int device, int peer)',
  enablePeer: 'int hipDeviceEnablePeerAccess(int peer, uint flags)',
  copyPeer:
    'int hipMemcpyPeerAsync(uintptr_t dst, int dstDevice, uintptr_t src, int srcDevice, size_t bytes, uintptr_t ' +
    'stream)',
  streamCreate: 'int hipStreamCreateWithFlags(void *stream, uint flags)',
  streamDestroy: 'int hipStreamDestroy(uintptr_t stream)',
  streamSync: 'int hipStreamSynchronize(uintptr_t stream)',
  streamWaitEvent: 'int hipStreamWaitEvent(uintptr_t stream, uintptr_t event, uint flags)',
  eventCreate: 'int hipEventCreateWithFlags(void *event, uint flags)',
  eventDestroy: 'int hipEventDestroy(uintptr_t event)',
  eventRecord: 'int hipEventRecord(uintptr_t event, uintptr_t stream)',
  eventQuery: 'int hipEventQuery(uintptr_t event)',
  eventSync: 'int hipEventSynchronize(uintptr_t event)',
  eventElapsed: 'int hipEventElapsedTime(void *milliseconds, uintptr_t start, uintptr_t end)',
  moduleLoad: 'int hipModuleLoadData(void *module, void *image)',
  moduleFunction: 'int hipModuleGetFunction(void *function, uintptr_t module, const char *name)',
  launch:
    'int hipModuleLaunchKernel(uintptr_t f, uint gx, uint gy, uint gz, uint bx, uint by, uint bz, uint shared, ' +
    'uintptr_t stream, uintptr_t params, uintptr_t extra)',
  beginCapture: 'int hipStreamBeginCapture(uintptr_t stream, int mode)',
  endCapture: 'int hipStreamEndCapture(uintptr_t stream, void *graph)',
  instantiate: 'int hipGraphInstantiateWithFlags(void *exec, uintptr_t graph, uint64_t flags)',
  graphLaunch: 'int hipGraphLaunch(uintptr_t exec, uintptr_t stream)',
  graphDestroy: 'int hipGraphDestroy(uintptr_t graph)',
  execDestroy: 'int hipGraphExecDestroy(uintptr_t exec)',
} as const satisfies VendorTable;

/** Opens the runtime, or throws a DeviceError that says what was looked for and found. */
export function openHip(): Driver {
  const library = openLibrary(LIBHIP);
  if (typeof library === 'string') throw new DeviceError(`no AMD runtime: ${library}`);
  const raw = library.bind(HIP_TABLE);
  const rules: CallRules = {
    errorName: (status) => nativeString(raw.errorName(status)) || 'unknown HIP error',
    outOfMemory: [N.hipErrorOutOfMemory],
  };
  const calls = new Calls(HIP_TABLE, raw, rules);
  const cell = new Cell();
  // Answered without a GPU in some releases only; the version then stays unknown.
  const version = calls.status('runtimeVersion', cell.raw) === 0 ? hipVersion(cell.int) : 'of unknown version';
  noteLibrary({ name: LIBHIP.name, version });
  // 100 and 101 both mean "no device", by release; initialisation itself may already say so.
  const status = calls.status('init', 0) || calls.status('deviceCount', cell.clear().raw);
  const where = `${library.path} (HIP ${version})`;
  const visible = `HIP_VISIBLE_DEVICES is ${env('HIP_VISIBLE_DEVICES') ?? env('ROCR_VISIBLE_DEVICES') ?? 'not set'}`;
  if (status !== 0)
    throw new DeviceError(`no AMD GPU: ${where} says ${rules.errorName(status)} (${status}); ${visible}`);
  const deviceCount = cell.int;
  if (deviceCount === 0) throw new DeviceError(`no AMD GPU: ${where} sees none; ${visible}`);
  return vendorDriver(
    { name: 'hip', version: `HIP ${version}`, deviceCount },
    (o) => hipInfo(calls, o),
    calls,
    hipRules(calls),
  );
}

/** 50221153 is 5.2.21153. */
export const hipVersion = (v: number): string => `${Math.floor(v / 1e7)}.${Math.floor(v / 1e5) % 100}.${v % 1e5}`;

/** 'gfx90a:sramecc+:xnack-' is compiled for as 'gfx90a'. */
export const plainArch = (fullArch: string): string => fullArch.split(':')[0];

function hipInfo(calls: Calls<typeof HIP_TABLE>, ordinal: number): DeviceInfo {
  const cell = new Cell();
  const attribute = (n: number): number => {
    calls.call('deviceAttribute', cell.clear().raw, n, ordinal);
    return cell.int;
  };
  // The struct changed in ROCm 6 and the old name kept the old one: ask for the new by its new name.
  const properties = new Uint8Array(4096);
  const layout = calls.has('properties6') ? HIP_PROPERTIES.rocm6 : HIP_PROPERTIES.rocm5;
  calls.call(calls.has('properties6') ? 'properties6' : 'properties5', properties, ordinal);
  const fullArch = cText(properties.subarray(layout.fields.gcnArchName, layout.fields.gcnArchName + 256));
  const name = new Uint8Array(256);
  calls.call('deviceName', name, name.length, ordinal);
  calls.call('deviceTotalMem', cell.clear().raw, ordinal);
  const totalBytes = cell.value;
  const shared = attribute(N.hipDeviceAttributeMaxSharedMemoryPerBlock);
  const pools =
    calls.status('deviceAttribute', cell.clear().raw, N.hipDeviceAttributeMemoryPoolsSupported, ordinal) === 0 &&
    cell.int !== 0;
  return {
    name: cText(name),
    arch: plainArch(fullArch),
    fullArch,
    warp: attribute(N.hipDeviceAttributeWarpSize),
    multiprocessors: attribute(N.hipDeviceAttributeMultiprocessorCount),
    maxThreadsPerBlock: attribute(N.hipDeviceAttributeMaxThreadsPerBlock),
    maxThreadsPerMultiprocessor: attribute(N.hipDeviceAttributeMaxThreadsPerMultiProcessor),
    sharedPerBlock: shared,
    sharedPerBlockOptin: shared, // AMD has no second limit
    registersPerBlock: attribute(N.hipDeviceAttributeMaxRegistersPerBlock),
    l2Bytes: attribute(N.hipDeviceAttributeL2CacheSize),
    totalBytes,
    integrated: attribute(N.hipDeviceAttributeIntegrated) !== 0,
    memoryPools: pools && calls.has('memAllocAsync'),
  };
}

/** The current device is per thread, and so is this module: it outlives any one driver object. */
let current = -1;

function hipRules(calls: Calls<typeof HIP_TABLE>): VendorRules {
  return {
    launchEnd: 3,
    notReady: N.hipErrorNotReady,
    notFound: N.hipErrorNotFound,
    use: (ordinal) => {
      if (current === ordinal) return;
      calls.call('deviceSet', ordinal);
      current = ordinal;
    },
    loadModule: (code: Uint8Array, name: string): Module => {
      const cell = new Cell();
      const status = calls.status('moduleLoad', cell.raw, code);
      if (status !== 0) throw calls.error('moduleLoad', [name, code], status);
      return cell.value;
    },
    // hipFuncSetAttribute takes host functions only, and AMD has no limit to raise.
    setMaxDynamicShared: (_fn: Fn, bytes: number, info: DeviceInfo) => {
      if (bytes > info.sharedPerBlock)
        throw new ArgumentError(`setMaxDynamicShared: ${bytes} bytes; ${info.name} has ${info.sharedPerBlock} a block`);
    },
    libraries: hipLibraries,
    peerNumber: (ordinal) => ordinal,
    enablePeer: (ordinal) => calls.status('enablePeer', ordinal, 0),
    alreadyEnabled: N.hipErrorPeerAccessAlreadyEnabled,
    copyPeer: (dst, to, src, from, bytes, stream) => calls.status('copyPeer', dst, to, src, from, bytes, stream),
  };
}

export const HIP_LIBRARY_SPECS = [HIPBLASLT, ROCBLAS, MIOPEN, HIPSOLVER];
/** hipBLASLt where it knows the GPU and has the product, else rocBLAS, which knows them all. */
const hipLibraries = (device: Device): DeviceLibraries =>
  onFirstUse({
    blas: () =>
      withFallback(
        orSentence(() => openHipblasLt(device)),
        () => orSentence(() => openRocblas(device)),
      ),
    dnn: () => openMiopen(device),
    solver: () => openHipsolver(device),
  });
