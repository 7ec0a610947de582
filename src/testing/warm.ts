// Kernels ahead of a long run on an emulated GPU: a dry run tells which are needed, and the compiler gets them in large
// units.
import type { GpuBackend } from '../backends/gpu/gpu.js';
import type { Unit } from '../kernels/source.js';
import { Device } from '../tensor/device.js';

/**
 * Runs `program` on the device's dry twin, which records kernels and computes nothing, then compiles all of them
 * together.
 * Started one by one, a run-time compiler takes half a second a kernel before it compiles anything. Returns the number
 * of kernels.
 */
export function warm(device: Device, program: (dry: Device) => void): number {
  const { gpu } = device.backend;
  if (!device.name.startsWith('emu:') || !gpu) return 0;
  const dry = Device.get(device.name.replace('emu:', 'dry:').replace(/\+.*/, ''));
  const { functions } = (dry.backend as GpuBackend).context;
  const units: Unit[] = [];
  functions.onUnit = (unit) => units.push(unit);
  try {
    program(dry);
  } finally {
    functions.onUnit = undefined;
  }
  gpu.context.functions.preload(units);
  return units.length;
}

/** One step of a dry run: what goes wrong in it goes wrong again, and is seen, in the run itself. */
export function attempt(step: () => void): void {
  try {
    step();
  } catch {
    return;
  }
}
