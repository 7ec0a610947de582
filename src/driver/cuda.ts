// NVIDIA's driver API (libcuda): its symbols, its devices and the few places where it differs from HIP.
import { env } from '../base/environment.js';
import { DeviceError } from '../base/errors.js';
import { Calls, type CallRules } from './checked-calls.js';
import type { Device, DeviceInfo, DeviceLibraries, Driver, Fn, Module } from './driver.js';
import { cudaDriverVersion, cudaVersion, DRIVER_VERSION, forDriver, LIBCUDA } from './cuda-version.js';
import {
  Cell,
  cText,
  nativeBlock,
  nativeString,
  noteLibrary,
  openLibrary,
  type LibrarySpec,
  type Native,
} from './ffi.js';
import { CUDA_NUMBERS as N, CUDA_STRUCTS } from './structs.js';
import { type LaunchCall, onFirstUse, vendorDriver, type VendorRules, type VendorTable } from './vendor.js';
import { CUBLASLT, openCublasLt } from './cublaslt.js';
import { CUDNN, openCudnn } from './cudnn.js';
import { CUSOLVER, openCusolver } from './solver.js';
import { callElsewhere, type NativeCall } from './threads.js';

/** The oldest driver whose every call below exists. */
const OLDEST = 12000;

export const CUDA_TABLE = {
  init: 'int cuInit(uint flags)',
  driverVersion: DRIVER_VERSION,
  deviceCount: 'int cuDeviceGetCount(void *count)',
  deviceGet: 'int cuDeviceGet(void *device, int ordinal)',
  deviceName: 'int cuDeviceGetName(void *name, int len, int device)',
  deviceTotalMem: 'int cuDeviceTotalMem_v2(void *bytes, int device)',
  deviceAttribute: 'int cuDeviceGetAttribute(void *value, int attribute, int device)',
  contextRetain: 'int cuDevicePrimaryCtxRetain(void *context, int device)',
  contextSet: 'int cuCtxSetCurrent(uintptr_t context)',
  errorName: 'int cuGetErrorName(int error, void *name)',
  memAlloc: 'int cuMemAlloc_v2(void *address, size_t bytes)',
  memFree: 'int cuMemFree_v2(uintptr_t address)',
  memAllocAsync: 'int cuMemAllocAsync(void *address, size_t bytes, uintptr_t stream)',
  memFreeAsync: 'int cuMemFreeAsync(uintptr_t address, uintptr_t stream)',
  memInfo: 'int cuMemGetInfo_v2(void *free, void *total)',
  hostAlloc: 'int cuMemHostAlloc(void *address, size_t bytes, uint flags)',
  hostFree: 'int cuMemFreeHost(uintptr_t address)',
  memset8: 'int cuMemsetD8Async(uintptr_t address, uint8_t value, size_t count, uintptr_t stream)',
  copyHtoD: 'int cuMemcpyHtoDAsync_v2(uintptr_t dst, void *src, size_t bytes, uintptr_t stream)',
  copyDtoH: 'int cuMemcpyDtoHAsync_v2(void *dst, uintptr_t src, size_t bytes, uintptr_t stream)',
  copyDtoD: 'int cuMemcpyDtoDAsync_v2(uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t stream)',
  canAccessPeer: 'int cuDeviceCanAccessPeer(void *can, int device, int peer)',
  enablePeer: 'int cuCtxEnablePeerAccess(uintptr_t context, uint flags)',
  copyPeer:
    'int cuMemcpyPeerAsync(uintptr_t dst, uintptr_t dstContext, uintptr_t src, uintptr_t srcContext, size_t ' +
    'bytes, uintptr_t stream)',
  streamCreate: 'int cuStreamCreate(void *stream, uint flags)',
  streamDestroy: 'int cuStreamDestroy_v2(uintptr_t stream)',
  streamSync: 'int cuStreamSynchronize(uintptr_t stream)',
  streamWaitEvent: 'int cuStreamWaitEvent(uintptr_t stream, uintptr_t event, uint flags)',
  eventCreate: 'int cuEventCreate(void *event, uint flags)',
  eventDestroy: 'int cuEventDestroy_v2(uintptr_t event)',
  eventRecord: 'int cuEventRecord(uintptr_t event, uintptr_t stream)',
  eventQuery: 'int cuEventQuery(uintptr_t event)',
  eventSync: 'int cuEventSynchronize(uintptr_t event)',
  eventElapsed: 'int cuEventElapsedTime(void *milliseconds, uintptr_t start, uintptr_t end)',
  moduleLoad: 'int cuModuleLoadDataEx(void *module, void *image, uint options, void *keys, void *values)',
  moduleFunction: 'int cuModuleGetFunction(void *function, uintptr_t module, const char *name)',
  funcSetAttribute: 'int cuFuncSetAttribute(uintptr_t function, int attribute, int value)',
  launch:
    'int cuLaunchKernel(uintptr_t f, uint gx, uint gy, uint gz, uint bx, uint by, uint bz, uint shared, uintptr_t ' +
    'stream, uintptr_t params, uintptr_t extra)',
  launchEx: 'int cuLaunchKernelEx(uintptr_t config, uintptr_t f, uintptr_t params, uintptr_t extra)',
  beginCapture: 'int cuStreamBeginCapture_v2(uintptr_t stream, int mode)',
  endCapture: 'int cuStreamEndCapture(uintptr_t stream, void *graph)',
  instantiate: 'int cuGraphInstantiateWithFlags(void *exec, uintptr_t graph, uint64_t flags)',
  graphLaunch: 'int cuGraphLaunch(uintptr_t exec, uintptr_t stream)',
  graphDestroy: 'int cuGraphDestroy(uintptr_t graph)',
  execDestroy: 'int cuGraphExecDestroy(uintptr_t exec)',
} as const satisfies VendorTable;

/** Opens the driver, or throws a DeviceError that says what was looked for and found. */
export function openCuda(): Driver {
  const library = openLibrary(LIBCUDA);
  if (typeof library === 'string') throw new DeviceError(`no NVIDIA driver: ${library}`);
  // Asked before the rest is bound, since an old driver lacks some of it.
  const found = cudaDriverVersion() ?? OLDEST;
  if (found < OLDEST)
    throw new DeviceError(
      `the NVIDIA driver ${library.path} is too old: it is of CUDA ${cudaVersion(found)}; ${cudaVersion(OLDEST)} or ` +
        'newer is needed',
    );
  const cell = new Cell();
  const raw = library.bind(CUDA_TABLE);
  const rules: CallRules = {
    errorName: (status) => errorName(raw.errorName, status),
    outOfMemory: [N.CUDA_ERROR_OUT_OF_MEMORY],
  };
  const calls = new Calls(CUDA_TABLE, raw, rules);
  const ready = calls.status('init', 0);
  if (ready !== 0)
    throw new DeviceError(`no NVIDIA GPU: cuInit of ${library.path} says ${rules.errorName(ready)} (${ready})`);
  calls.call('driverVersion', cell.clear().raw);
  const version = cudaVersion(cell.int);
  noteLibrary({ name: LIBCUDA.name, version });
  calls.call('deviceCount', cell.clear().raw);
  const deviceCount = cell.int;
  if (deviceCount === 0)
    throw new DeviceError(
      `no NVIDIA GPU: the driver ${library.path} (CUDA ${version}) sees none; CUDA_VISIBLE_DEVICES is ` +
        `${env('CUDA_VISIBLE_DEVICES') ?? 'not set'}`,
    );
  return vendorDriver(
    { name: 'cuda', version: `CUDA driver ${version}`, deviceCount },
    (o) => cudaInfo(calls, o, found),
    calls,
    cudaRules(calls),
  );
}

function errorName(call: Native, status: number): string {
  const cell = new Cell();
  return call(status, cell.raw) === 0 ? nativeString(cell.value) : 'unknown CUDA error';
}

function cudaInfo(calls: Calls<typeof CUDA_TABLE>, ordinal: number, version: number): DeviceInfo {
  const cell = new Cell();
  calls.call('deviceGet', cell.raw, ordinal);
  const device = cell.int;
  const attribute = (n: number): number => {
    calls.call('deviceAttribute', cell.clear().raw, n, device);
    return cell.int;
  };
  const name = new Uint8Array(256);
  calls.call('deviceName', name, name.length, device);
  calls.call('deviceTotalMem', cell.clear().raw, device);
  const totalBytes = cell.value;
  const arch = `sm_${attribute(N.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)}${attribute(N.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)}`;
  return {
    name: cText(name),
    arch,
    fullArch: arch,
    warp: attribute(N.CU_DEVICE_ATTRIBUTE_WARP_SIZE),
    multiprocessors: attribute(N.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    maxThreadsPerBlock: attribute(N.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    maxThreadsPerMultiprocessor: attribute(N.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
    sharedPerBlock: attribute(N.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
    sharedPerBlockOptin: attribute(N.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    registersPerBlock: attribute(N.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
    l2Bytes: attribute(N.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    totalBytes,
    integrated: attribute(N.CU_DEVICE_ATTRIBUTE_INTEGRATED) !== 0,
    memoryPools: attribute(N.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) !== 0,
    tensorMaps: version >= 12050,
  };
}

/** The current device is per thread, and so is this module: it outlives any one driver object. */
let current = -1;
const contexts = new Map<number, number>();

function cudaRules(calls: Calls<typeof CUDA_TABLE>): VendorRules {
  const context = (ordinal: number): number => {
    let c = contexts.get(ordinal);
    if (c === undefined) {
      const cell = new Cell();
      calls.call('deviceGet', cell.raw, ordinal);
      const device = cell.int;
      calls.call('contextRetain', cell.clear().raw, device);
      contexts.set(ordinal, (c = cell.value));
    }
    return c;
  };
  const use = (ordinal: number): void => {
    if (current === ordinal) return;
    calls.call('contextSet', context(ordinal));
    current = ordinal;
  };
  const log = nativeBlock(8192);
  return {
    launchEnd: 0,
    notReady: N.CUDA_ERROR_NOT_READY,
    notFound: N.CUDA_ERROR_NOT_FOUND,
    use,
    loadModule: (code: Uint8Array, name: string): Module => {
      // PTX is text and ends with NUL; its translation may fail with a log worth reading.
      const image = code[0] === 0x7f ? code : Buffer.concat([code, Buffer.of(0)]);
      new Uint8Array(log.buffer).fill(0);
      const keys = new Int32Array([N.CU_JIT_ERROR_LOG_BUFFER, N.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]);
      const values = new BigUint64Array([BigInt(log.address), 8192n]);
      const cell = new Cell();
      const status = calls.status('moduleLoad', cell.raw, image, 2, keys, values);
      if (status !== 0) throw calls.error('moduleLoad', [name, image], status, cText(new Uint8Array(log.buffer)));
      return cell.value;
    },
    setMaxDynamicShared: (fn: Fn, bytes: number) =>
      calls.call('funcSetAttribute', fn, N.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes),
    launch: configuredLaunch(calls.raw.launchEx as Native),
    libraries: (device) => cudaLibraries(device, () => contextCall(context(device.ordinal))),
    peerNumber: (ordinal) => {
      const cell = new Cell();
      calls.call('deviceGet', cell.raw, ordinal);
      return cell.int;
    },
    enablePeer: (ordinal) => calls.status('enablePeer', context(ordinal), 0),
    alreadyEnabled: N.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    copyPeer: (dst, to, src, from, bytes, stream) =>
      calls.status('copyPeer', dst, context(to), src, context(from), bytes, stream),
  };
}

/**
 * Launches by cuLaunchKernelEx, which the driver is quicker with: fewer arguments to convert. `early` gives leave to
 * begin while the launch before it ends: the kernel says itself what it waits for.
 */
function configuredLaunch(launchEx: Native): LaunchCall {
  const { CUlaunchConfig: config, CUlaunchAttribute: attribute } = CUDA_STRUCTS;
  const { address, buffer } = nativeBlock(config.size + attribute.size);
  const words = new Uint32Array(buffer);
  const [streamAt, countAt] = [config.fields.hStream / 4, config.fields.numAttrs / 4];
  const put64 = (at: number, value: number): void => {
    words[at] = value; // stored modulo 2^32
    words[at + 1] = value / 0x100000000;
  };
  put64(config.fields.attrs / 4, address + config.size);
  words[(config.size + attribute.fields.id) / 4] = N.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  words[(config.size + attribute.fields.value) / 4] = 1;
  return (fn, grid, block, shared, stream, list, early) => {
    words.set(grid, 0);
    words.set(block, 3);
    words[6] = shared;
    put64(streamAt, stream);
    words[countAt] = early ? 1 : 0;
    return launchEx(address, fn, 0, list);
  };
}

export const cudaLibrarySpecs = (): LibrarySpec[] => [forDriver(CUBLASLT), CUDNN, forDriver(CUSOLVER)];
/** What makes a device another thread's. */
function contextCall(context: number): NativeCall | undefined {
  const library = openLibrary(LIBCUDA);
  return typeof library === 'string'
    ? undefined
    : { library: library.path, prototype: CUDA_TABLE.contextSet, args: [context] };
}
const cudaLibraries = (device: Device, current: () => NativeCall | undefined): DeviceLibraries =>
  onFirstUse({
    blas: () => openCublasLt(device),
    dnn: () =>
      openCudnn(device, openLibrary, (fn, library, prototype, args) =>
        callElsewhere(fn, { library, prototype, args }, current()),
      ),
    solver: () => openCusolver(device),
  });
