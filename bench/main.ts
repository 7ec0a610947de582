// `npm run bench`: speed as shares of what the machine can do, measured in the same run; a table for people and JSON
// for the record.
import { commitNow } from '../src/parity/provenance.js';
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { CpuBackend } from '../src/backends/cpu.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { table } from '../src/cli/table.js';
import { Device } from '../src/index.js';
import { cpuBench } from './cpu.js';
import { emulatedBench, isEmulated } from './emulated.js';
import { gpuBench } from './gpu.js';

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'cpu' },
    only: { type: 'string', default: '' },
    json: { type: 'string' },
    peers: { type: 'boolean', default: true },
    'no-peers': { type: 'boolean', default: false },
  },
});
const device = Device.get(values.device as string);
const say = (line: string): void => void process.stderr.write(`${line}\n`);
const number = (v: number | undefined, digits: number): string => (v === undefined ? '' : v.toFixed(digits));
const date = new Date().toISOString();
const commit = commitNow();
const write = (record: object): void =>
  void (values.json && writeFileSync(values.json, `${JSON.stringify(record, null, 1)}\n`));

if (isEmulated(device)) {
  const results = emulatedBench(device, values.only as string, say);
  console.log(
    table(
      [
        'work',
        'launches',
        'wave instructions',
        'lane instructions',
        'an element',
        'bytes read',
        'bytes written',
        'of needed',
      ],
      results.map((r) => [
        r.name,
        r.launches,
        r.waveInstructions,
        r.laneInstructions,
        number(r.perElement, 1),
        r.read,
        r.written,
        number(r.traffic, 2),
      ]),
    ),
  );
  write({ device: device.description, date, commit, results });
} else if (device.backend instanceof GpuBackend) {
  const results = gpuBench(device, values.only as string, say, !values['no-peers']);
  console.log(
    table(
      ['work', 'ms', 'GB/s', 'of copy', 'TFLOP/s', 'PyTorch ms', 'PyTorch / ours', 'PyTorch TF32 ms'],
      results.map((r) => [
        r.name,
        number(r.ms, 4),
        number(r.gbPerSecond, 0),
        number(r.ofCopy, 2),
        number(r.tflops, 0),
        number(r.torchMs, 4),
        number(r.speedup, 2),
        number(r.torchTf32Ms, 4),
      ]),
    ),
  );
  write({ device: device.description, date, commit, results });
} else if (device.backend instanceof CpuBackend) {
  const report = cpuBench(device, values.only as string, say, !values['no-peers']);
  console.log(
    `${report.hardware}; ${report.engine}; copy ${report.copyGbPerSecond.toFixed(1)} GB/s, reading ${report.readGbPerSecond.toFixed(1)} GB/s, multiply-adds ${report.peakGflops.toFixed(1)} GFLOP/s; peers: ${report.peers.join('; ')}`,
  );
  console.log(
    table(
      [
        ...['work', 'ms', 'GB/s', 'GFLOP/s', 'share', 'target', 'floor ms'],
        ...['OpenBLAS / ours', 'onnxruntime / ours', 'PyTorch / ours'],
      ],
      report.results.map((r) => [
        r.name,
        number(r.ms, 4),
        number(r.gbPerSecond, 1),
        number(r.gflops, 1),
        number(r.share, 2),
        number(r.target, 2),
        number(r.floor, 3),
        number(r.openblas, 2),
        number(r.onnxruntime, 2),
        number(r.pytorch, 2),
      ]),
    ),
  );
  write({ date, commit, ...report });
} else {
  say(`${device.name}: only GPU devices and the CPU engine are timed by this command`);
  process.exit(2);
}
