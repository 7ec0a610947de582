// The vendors' drivers by name, opened once; what is missing stays a sentence.
import { DeviceError } from '../base/errors.js';
import { openCuda } from './cuda.js';
import type { Driver } from './driver.js';
import { openHip } from './hip.js';

const OPENERS = { cuda: openCuda, hip: openHip } as const;
export type VendorName = keyof typeof OPENERS;
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
    return OPENERS[name]();
  } catch (e) {
    if (e instanceof DeviceError) return e;
    throw e;
  }
}
