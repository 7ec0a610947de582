// C structs and numbers this room relies on, as data: scripts/abi-probe.ts compiles them against the vendors' headers
// and compares.

/** Byte size and field offsets on 64-bit Linux. */
export interface StructLayout {
  readonly size: number;
  readonly fields: Readonly<Record<string, number>>;
}

export const CUDA_STRUCTS = {
  CUlaunchConfig: {
    size: 56,
    fields: {
      gridDimX: 0,
      gridDimY: 4,
      gridDimZ: 8,
      blockDimX: 12,
      blockDimY: 16,
      blockDimZ: 20,
      sharedMemBytes: 24,
      hStream: 32,
      attrs: 40,
      numAttrs: 48,
    },
  },
  CUlaunchAttribute: { size: 72, fields: { id: 0, value: 8 } },
} as const satisfies Record<string, StructLayout>;

/** Attribute and status numbers of the CUDA driver. */
export const CUDA_NUMBERS = {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: 1,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: 8,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE: 10,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: 12,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: 16,
  CU_DEVICE_ATTRIBUTE_INTEGRATED: 18,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: 39,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: 97,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: 115,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: 8,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: 6,
  CU_STREAM_NON_BLOCKING: 1,
  CU_EVENT_DISABLE_TIMING: 2,
  CU_MEMHOSTALLOC_PORTABLE: 1,
  CU_STREAM_CAPTURE_MODE_RELAXED: 2,
  CU_JIT_ERROR_LOG_BUFFER: 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: 6,
  CUDA_ERROR_OUT_OF_MEMORY: 2,
  CUDA_ERROR_NO_DEVICE: 100,
  CUDA_ERROR_NOT_FOUND: 500,
  CUDA_ERROR_NOT_READY: 600,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: 704,
} as const;

/** The two layouts of hipDeviceProp_t: ROCm 5, and `hipGetDevicePropertiesR0600` from ROCm 6 on. */
export const HIP_PROPERTIES = {
  rocm5: { size: 792, fields: { name: 0, gcnArchName: 396 } },
  rocm6: { size: 1472, fields: { name: 0, gcnArchName: 1160 } },
} as const satisfies Record<string, StructLayout>;

export const HIP_NUMBERS = {
  hipDeviceAttributeMaxThreadsPerBlock: 56,
  hipDeviceAttributeMaxThreadsPerMultiProcessor: 57,
  hipDeviceAttributeMultiprocessorCount: 63,
  hipDeviceAttributeMaxRegistersPerBlock: 71,
  hipDeviceAttributeMaxSharedMemoryPerBlock: 74,
  hipDeviceAttributeWarpSize: 87,
  hipDeviceAttributeIntegrated: 16,
  hipDeviceAttributeL2CacheSize: 19,
  hipDeviceAttributeMemoryPoolsSupported: 88,
  hipStreamNonBlocking: 1,
  hipEventDisableTiming: 2,
  hipHostMallocPortable: 1,
  hipStreamCaptureModeRelaxed: 2,
  hipErrorOutOfMemory: 2,
  hipErrorNoDevice: 100,
  hipErrorInvalidDevice: 101,
  hipErrorNotFound: 500,
  hipErrorNotReady: 600,
  hipErrorPeerAccessAlreadyEnabled: 704,
} as const;
