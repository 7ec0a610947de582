// What one small op costs from JavaScript, in nanoseconds: `node dist/bench/per-op.js [--device D] [--json FILE]`.
// Warm: the best of many rounds. First: the mean of the first thousand calls, while the JIT still compiles.
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { table } from '../src/cli/table.js';
import { Device, randn, type Tensor } from '../src/index.js';
import { commitNow } from '../src/parity/provenance.js';

const option = { type: 'string' } as const;
const { values } = parseArgs({ options: { device: { ...option, default: 'cpu' }, json: option } });
const device = Device.get(values.device as string);
const make = (...shape: number[]): Tensor => randn(shape, { device });

/** Names are shared with bench/peers/pytorch-per-op.py. */
function works(): Readonly<Record<string, () => Tensor>> {
  const [a, b, grid, row, weight] = [make(4), make(4), make(16, 16), make(1, 256), make(256, 256)];
  const gain = make(256);
  return {
    'add of 4': () => a.add(b),
    'add of 4 and a number': () => a.add(2),
    'add of 16x16 and 16': () => grid.add(grid.narrow(0, 0, 1)),
    'transpose (a view)': () => grid.transpose(0, 1),
    'reshape (a view)': () => grid.reshape([256]),
    'sum of 16x16 along 1': () => grid.sum(1),
    'softmax of 16x16': () => grid.softmax(1),
    'rmsNorm of 256': () => row.rmsNorm(gain),
    'matmul 1x256x256': () => row.matmul(weight),
  };
}

const now = (): number => Number(process.hrtime.bigint());
/** Nanoseconds a call; results are freed at once, as scopes do. */
function time(f: () => Tensor, calls: number): number {
  const begin = now();
  for (let i = 0; i < calls; i++) f().dispose();
  return (now() - begin) / calls;
}

function pytorch(): Readonly<Record<string, number>> {
  const script = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'bench', 'peers', 'pytorch-per-op.py');
  const { status, stdout } = spawnSync('python3', [script], { encoding: 'utf8' });
  return status === 0 ? (JSON.parse(stdout) as Record<string, number>) : {};
}

const peers = device.name === 'cpu' ? pytorch() : {};
const results = Object.entries(works()).map(([name, f]) => {
  const first = time(f, 1000);
  time(f, 20_000);
  const warm = Math.min(...Array.from({ length: 20 }, () => time(f, 5000)));
  return { name, warm: Math.round(warm), first: Math.round(first), ...(peers[name] && { pytorch: peers[name] }) };
});
console.log(
  table(
    ['op', 'ns warm', 'ns, first 1000', 'PyTorch ns'],
    results.map((r) => [r.name, String(r.warm), String(r.first), 'pytorch' in r ? String(r.pytorch) : '']),
  ),
);
const record = { device: device.description, date: new Date().toISOString(), commit: commitNow(), results };
if (values.json) writeFileSync(values.json, `${JSON.stringify(record, null, 1)}\n`);
