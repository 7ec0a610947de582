// The vendors in one table: what each calls its driver, devices, compiler and libraries. A new vendor is a file and a
// row here.
import { DeviceError } from '../base/errors.js';
import type { Compiler } from './compiler.js';
import { CUBLASLT } from './cublaslt.js';
import { forDriver } from './cuda-version.js';
import { openCuda } from './cuda.js';
import { CUDNN } from './cudnn.js';
import type { Driver, Maybe } from './driver.js';
import type { LibrarySpec } from './ffi.js';
import { openHip } from './hip.js';
import { HIPBLASLT } from './hipblaslt.js';
import { openHiprtc } from './hiprtc.js';
import { MIOPEN } from './miopen.js';
import { openNvrtc } from './nvrtc.js';
import { ROCBLAS } from './rocblas.js';

export interface Vendor {
  /** What devices are called: 'rocm' in 'rocm:0'. */
  readonly kind: string;
  readonly open: () => Driver;
  /** Names of the targets that its run-time compiler makes code for. */
  readonly targets: RegExp;
  readonly compiler: () => Maybe<Compiler>;
  /** Libraries beside the driver, in the order they are preferred. */
  readonly libraries: () => readonly LibrarySpec[];
}

/** By the driver's name. */
export const VENDORS = {
  hip: {
    kind: 'rocm',
    open: openHip,
    targets: /^gfx/,
    compiler: openHiprtc,
    libraries: () => [HIPBLASLT, ROCBLAS, MIOPEN],
  },
  cuda: {
    kind: 'cuda',
    open: openCuda,
    targets: /^(sm|compute)_/,
    compiler: openNvrtc,
    libraries: () => [forDriver(CUBLASLT), CUDNN],
  },
} as const satisfies Readonly<Record<string, Vendor>>;
export type VendorName = keyof typeof VENDORS;
export const VENDOR_NAMES = Object.keys(VENDORS) as VendorName[];

const opened = new Map<VendorName, Driver | DeviceError>();

/** Opens a driver, or throws the DeviceError that says what was looked for and found. */
export function openDriver(name: VendorName): Driver {
  const known = opened.get(name) ?? attempt(name);
  opened.set(name, known);
  if (known instanceof DeviceError) throw known;
  return known;
}

/** The driver, or the sentence. */
export function driverOrSentence(name: VendorName): Driver | string {
  try {
    return openDriver(name);
  } catch (e) {
    if (e instanceof DeviceError) return e.message;
    throw e;
  }
}

function attempt(name: VendorName): Driver | DeviceError {
  try {
    return VENDORS[name].open();
  } catch (e) {
    if (e instanceof DeviceError) return e;
    throw e;
  }
}
