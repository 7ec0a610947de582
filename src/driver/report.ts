// What this machine has: drivers, devices and vendor libraries, with the reason for everything that is missing.
import type { DeviceInfo, LibraryReport } from './driver.js';
import { driverOrSentence, VENDOR_NAMES, type VendorName, VENDORS } from './drivers.js';
import { libraryReports, openLibrary } from './ffi.js';

export interface DriverReport {
  /** The driver's name, and what its devices are called. */
  readonly name: VendorName;
  readonly kind: string;
  readonly version?: string;
  /** Why there is no device; undefined when there is. */
  readonly missing?: string;
  /** The matrix-product and convolution libraries that will be used, or why none. */
  readonly blas?: string;
  readonly dnn?: string;
  readonly devices: readonly { readonly ordinal: number; readonly info: DeviceInfo; readonly freeBytes: number }[];
}

function reportOf(name: VendorName): DriverReport {
  const { kind } = VENDORS[name];
  const driver = driverOrSentence(name);
  if (typeof driver === 'string') return { name, kind, missing: driver, devices: [] };
  // Started, so that their versions are known.
  const { blas, dnn } = driver.open(0).libraries;
  const devices = Array.from({ length: driver.deviceCount }, (_, ordinal) => ({
    ordinal,
    info: driver.info(ordinal),
    freeBytes: driver.open(ordinal).memory().free,
  }));
  const say = (l: string | { readonly name: string }): string => (typeof l === 'string' ? l : l.name);
  return { name, kind, version: driver.version, blas: say(blas), dnn: say(dnn), devices };
}

/** Opens what can be opened; libraries beside the drivers are looked for, and started only where a device is. */
export function machineReport(): {
  readonly drivers: readonly DriverReport[];
  readonly libraries: readonly LibraryReport[];
} {
  const drivers = VENDOR_NAMES.map(reportOf);
  for (const name of VENDOR_NAMES) VENDORS[name].compiler();
  for (const name of VENDOR_NAMES) for (const spec of VENDORS[name].libraries()) openLibrary(spec);
  return { drivers, libraries: libraryReports() };
}
