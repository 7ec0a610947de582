// Device names to backends, each opened on first use.
import { dtypeCalled } from '../base/dtype.js';
import { ArgumentError, DeviceError } from '../base/errors.js';
import { requireFrom } from '../base/late.js';
import type { Device, DeviceInfo } from '../driver/driver.js';
import { driverOrSentence, openDriver, VENDOR_NAMES, type VendorName, VENDORS } from '../driver/drivers.js';
import type { HostedDevice } from '../stand-ins/library.js';
import type { Backend } from './backend.js';
import { openCpu } from './cpu.js';
import type { GpuBackend } from './gpu/gpu.js';
import { ReferenceBackend } from './reference.js';

/**
 * What only some devices need: read when the first of them is opened, so that a program on the CPU does not wait for
 * the code of GPUs and of the emulator. By `require`, since opening a device answers at once.
 */
const require = requireFrom(import.meta.url);
const later = {
  gpu: () => require('./gpu/gpu.js') as typeof import('./gpu/gpu.js'),
  lateCode: () => require('./gpu/functions.js') as typeof import('./gpu/functions.js'),
  sim: () => require('../driver/sim.js') as typeof import('../driver/sim.js'),
  emulator: () => require('../emulator/device.js') as typeof import('../emulator/device.js'),
  dryRun: () => require('../emulator/dry-device.js') as typeof import('../emulator/dry-device.js'),
  standIns: () => require('../stand-ins/index.js') as typeof import('../stand-ins/index.js'),
};
const gpuBackend = (...args: ConstructorParameters<typeof GpuBackend>): GpuBackend =>
  new (later.gpu().GpuBackend)(...args);

type Open = (argument: string) => Backend;

function ordinal(kind: string, argument: string): number {
  const n = argument === '' ? 0 : Number(argument);
  if (!Number.isInteger(n) || n < 0)
    throw new ArgumentError(`device "${kind}:${argument}": the part after the colon is a number from 0`);
  return n;
}

const vendorOpener =
  (name: VendorName): Open =>
  (argument) => {
    const { kind } = VENDORS[name];
    const [number, own, ...more] = argument.split('+');
    const n = ordinal(kind, number);
    if (own === undefined) return gpuBackend(`${kind}:${n}`, openDriver(name).open(n));
    if (own !== 'own' || more.length > 0)
      throw new ArgumentError(
        `device "${kind}:${argument}": what may follow is +own, our own kernels in libraries' place`,
      );
    const backend = gpuBackend(`${kind}:${n}+own`, openDriver(name).open(n));
    backend.context.libraries.enabled = false;
    return backend;
  };
const withStandIns = (libraries: readonly string[]): string =>
  libraries.length > 0 ? `, with stand-ins of ${libraries.join(', ')}` : '';

/** The simulation of a wave size: whether it can be had is known without the code that drives GPUs. */
export const openSimulated = (wave: number): Device => later.sim().openSim().open(wave);
export const describeSimulated = (wave: number, late = false): string =>
  `GPU kernels run on the host, waves of ${wave}${late ? ', and come late' : ''} (for tests; slow)`;

const openers: Record<string, Open> = {
  cpu: () => openCpu(),
  reference: () => new ReferenceBackend('reference'),
  ...Object.fromEntries(VENDOR_NAMES.map((name) => [VENDORS[name].kind, vendorOpener(name)])),
  emu: (argument) => {
    const [target, ...libraries] = argument.split('+');
    const device = later.emulator().openEmulated(target);
    return gpuBackend(
      [`emu:${device.info.arch}`, ...libraries].join('+'),
      device,
      `${device.info.arch} code objects run by the emulator (for tests; slow)${withStandIns(libraries)}`,
      libraries.length > 0 ? later.standIns().standIns(device, libraries) : undefined,
    );
  },
  dry: (target) => {
    const device = later.dryRun().openDry(target);
    return gpuBackend(
      `dry:${device.info.arch}`,
      device,
      `takes the kernels of ${device.info.arch} and runs none: tells which are needed`,
    );
  },
  sim: (argument) => {
    const [wave, ...more] = argument.split('+');
    const libraries = more.filter((name) => name !== 'late');
    const late = libraries.length < more.length;
    const device = openSimulated(ordinal('sim', wave || '32'));
    return gpuBackend(
      [`sim:${device.info.warp}`, ...more].join('+'),
      device,
      describeSimulated(device.info.warp, late) + withStandIns(libraries),
      libraries.length > 0 ? later.standIns().standIns(device as HostedDevice, libraries) : undefined,
      late ? later.lateCode().lateCode : undefined,
    );
  },
};

const deviceKinds = (): string[] => Object.keys(openers);

export function openBackend(name: string): Backend {
  const [kind, argument = ''] = name.split(':', 2);
  const open = Object.hasOwn(openers, kind) ? openers[kind] : undefined;
  if (!open) {
    const dtype = dtypeCalled(name);
    throw new DeviceError(
      `unknown device ${JSON.stringify(name)}; known kinds are ${deviceKinds().join(', ')}` +
        (dtype ? `; a dtype is x.cast('${dtype}') of a tensor, model.to(undefined, '${dtype}') of a module` : ''),
    );
  }
  return open(argument);
}

/** What a GPU is, as its driver tells it. */
export interface ListedGpu {
  readonly name: string;
  readonly info: DeviceInfo;
}
/** Every GPU that the vendors' drivers see, by the name that opens it. */
export const listGpus = (): ListedGpu[] =>
  VENDOR_NAMES.flatMap((vendor) => {
    const driver = driverOrSentence(vendor);
    if (typeof driver === 'string') return [];
    return Array.from({ length: driver.deviceCount }, (_, i) => ({
      name: `${VENDORS[vendor].kind}:${i}`,
      info: driver.info(i),
    }));
  });
