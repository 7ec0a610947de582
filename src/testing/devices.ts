// Which devices a test run covers: named by WICK_TEST_DEVICES, else the CPU engines that can be had here.
import { env } from '../base/environment.js';
import { ReferenceBackend } from '../backends/reference.js';
import { WickError } from '../base/errors.js';
import { Device } from '../tensor/device.js';

export interface Probe {
  readonly name: string;
  readonly device?: Device;
  /** Why it is not there. */
  readonly missing?: string;
}

export function probe(name: string): Probe {
  try {
    const device = Device.get(name);
    // The reference engine may serve under the name of an engine that could not be opened: that proves nothing about
    // it.
    if (name !== 'reference' && device.backend instanceof ReferenceBackend)
      return { name, missing: `there is no engine for ${name} here; the reference engine serves in its place, slowly` };
    // The emulator itself needs nothing; what it runs comes from hipRTC.
    const compiles = name.startsWith('emu:') ? device.backend.gpu?.context.functions.compiles() : true;
    if (typeof compiles === 'string')
      return { name, missing: `${name}: no kernels can be compiled for it: ${compiles}` };
    return device.name === name ? { name, device } : { name, missing: `${name} is served by ${device.name} here` };
  } catch (e) {
    if (e instanceof WickError) return { name, missing: e.message };
    throw e;
  }
}

export const testDevices = (fallback = 'cpu'): Probe[] =>
  (env('WICK_TEST_DEVICES') ?? fallback).split(',').map((s) => probe(s.trim()));

/** WICK_SHARD=i/n runs every n-th part from the i-th (0 first), so that several processes share a run. */
export function inShard(index: number): boolean {
  const [i, n] = (env('WICK_SHARD') ?? '0/1').split('/').map(Number);
  return index % n === i;
}
