// What this machine has: drivers, devices and vendor libraries, with the reason for everything that is missing.
import { CUBLASLT } from './cublaslt.js';
import { forDriver } from './cuda-version.js';
import { CUDNN } from './cudnn.js';
import type { DeviceInfo, DriverName, LibraryReport } from './driver.js';
import { driverOrSentence, type VendorName } from './drivers.js';
import { libraryReports, openLibrary } from './ffi.js';
import { HIPBLASLT } from './hipblaslt.js';
import { openHiprtc } from './hiprtc.js';
import { MIOPEN } from './miopen.js';
import { openNvrtc } from './nvrtc.js';
import { ROCBLAS } from './rocblas.js';

export interface DriverReport {
  readonly name: DriverName;
  readonly version?: string;
  /** Why there is no device; undefined when there is. */
  readonly missing?: string;
  /** The matrix-product and convolution libraries that will be used, or why none. */
  readonly blas?: string;
  readonly dnn?: string;
  readonly devices: readonly { readonly ordinal: number; readonly info: DeviceInfo; readonly freeBytes: number }[];
}

function reportOf(name: VendorName): DriverReport {
  const driver = driverOrSentence(name);
  if (typeof driver === 'string') return { name, missing: driver, devices: [] };
  // Started, so that their versions are known.
  const { blas, dnn } = driver.open(0).libraries;
  const devices = Array.from({ length: driver.deviceCount }, (_, ordinal) => ({
    ordinal,
    info: driver.info(ordinal),
    freeBytes: driver.open(ordinal).memory().free,
  }));
  const say = (l: string | { readonly name: string }): string => (typeof l === 'string' ? l : l.name);
  return { name, version: driver.version, blas: say(blas), dnn: say(dnn), devices };
}

/** Opens what can be opened; libraries beside the drivers are looked for, and started only where a device is. */
export function machineReport(): {
  readonly drivers: readonly DriverReport[];
  readonly libraries: readonly LibraryReport[];
} {
  const drivers = (['hip', 'cuda'] as const).map(reportOf);
  openHiprtc();
  openNvrtc();
  for (const spec of [HIPBLASLT, ROCBLAS, MIOPEN, forDriver(CUBLASLT), CUDNN]) openLibrary(spec);
  return { drivers, libraries: libraryReports() };
}
