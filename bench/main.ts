// `npm run bench`: speed as shares of what the machine can do, measured in the same run; a table for people and JSON for the record.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Device } from '../src/index.js';
import { table } from '../src/cli/table.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { gpuBench } from './gpu.js';

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'cpu' }, only: { type: 'string', default: '' }, json: { type: 'string' }, peers: { type: 'boolean', default: true }, 'no-peers': { type: 'boolean', default: false },
  },
});
const device = Device.get(values.device as string);
const say = (line: string): void => void process.stderr.write(`${line}\n`);
if (!(device.backend instanceof GpuBackend)) {
  say(`${device.name}: only GPU devices are timed by this command`);
  process.exit(2);
}
const results = gpuBench(device, values.only as string, say, !values['no-peers']);
const number = (v: number | undefined, digits: number): string => (v === undefined ? '' : v.toFixed(digits));
console.log(table(['work', 'ms', 'GB/s', 'of copy', 'TFLOP/s', 'PyTorch ms', 'PyTorch / ours'],
  results.map((r) => [r.name, number(r.ms, 4), number(r.gbPerSecond, 0), number(r.ofCopy, 2), number(r.tflops, 0), number(r.torchMs, 4), number(r.speedup, 2)])));
if (values.json) writeFileSync(values.json, `${JSON.stringify({ device: device.description, date: new Date().toISOString(), results }, null, 1)}\n`);
