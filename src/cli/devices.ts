// `wick devices`: what there is, and why anything is missing.
import '../index.js';
import { probe } from '../testing/devices.js';
import { table } from './table.js';

const NAMES = ['cpu', 'reference', 'cuda:0', 'rocm:0', 'sim:32', 'sim:64'];

export function run(argv: readonly string[]): number {
  if (argv.includes('--help')) {
    console.log('wick devices: lists the devices found, with their libraries, and why any is missing');
    return 0;
  }
  const rows = NAMES.map((name) => {
    const { device, missing } = probe(name);
    return [name, device ? 'yes' : 'no', device ? device.description : (missing ?? '')];
  });
  console.log(table(['device', 'here', 'what'], rows));
  return 0;
}
