// The vendors in one table: what each calls its driver, devices, compiler and libraries. A new vendor is a file and a
// row here. Files are read when they are asked for: a program on the CPU waits for none.
import { DeviceError } from '../base/errors.js';
import { requireFrom } from '../base/late.js';
import type { Compiler } from './compiler.js';
import type { Driver, Maybe } from './driver.js';
import type { LibrarySpec } from './ffi.js';

const require = requireFrom(import.meta.url);
const hip = () => require('./hip.js') as typeof import('./hip.js');
const hiprtc = () => require('./hiprtc.js') as typeof import('./hiprtc.js');
const cuda = () => require('./cuda.js') as typeof import('./cuda.js');
const nvrtc = () => require('./nvrtc.js') as typeof import('./nvrtc.js');

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
    open: () => hip().openHip(),
    targets: /^gfx/,
    compiler: () => hiprtc().openHiprtc(),
    libraries: () => hip().HIP_LIBRARY_SPECS,
  },
  cuda: {
    kind: 'cuda',
    open: () => cuda().openCuda(),
    targets: /^(sm|compute)_/,
    compiler: () => nvrtc().openNvrtc(),
    libraries: () => cuda().cudaLibrarySpecs(),
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
