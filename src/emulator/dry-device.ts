// A device that takes kernels and runs none: what it is asked for tells which kernels a program needs on a target.
import { type Driver, type Fn, type Module } from '../driver/driver.js';
import { EmuDevice, openEmulated } from './device.js';

class DryDevice extends EmuDevice {
  #functions = 0;
  override loadModule(): Module {
    return 1;
  }
  override getFunction(): Fn {
    return ++this.#functions;
  }
  override setMaxDynamicShared(): void {}
  override launch(): void {}
}

const devices = new Map<string, DryDevice>();
/** The dry twin of an emulated device: same facts, same choices of kernels. */
export function openDry(target: string): EmuDevice {
  const { info } = openEmulated(target);
  const known = devices.get(info.arch);
  if (known) return known;
  const driver: Driver = { name: 'dry', version: 'runs nothing', deviceCount: 1, info: () => info, open: () => device };
  const device = new DryDevice(driver, 0, info, { threads: 1 });
  devices.set(info.arch, device);
  return device;
}
