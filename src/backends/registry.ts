// Device names to backends. GPU backends are opened on first use.
import { DeviceError } from '../base/errors.js';
import type { Backend } from './backend.js';
import { ReferenceBackend } from './reference.js';

type Open = (argument: string) => Backend;

const openers: Record<string, Open> = {
  reference: () => new ReferenceBackend('reference'),
};

export function registerBackend(kind: string, open: Open): void {
  openers[kind] = open;
}

export function openBackend(name: string): Backend {
  const [kind, argument = ''] = name.split(':', 2);
  const open = Object.hasOwn(openers, kind) ? openers[kind] : undefined;
  if (!open) throw new DeviceError(`unknown device ${JSON.stringify(name)}; known kinds are ${Object.keys(openers).join(', ')}`);
  return open(argument);
}
