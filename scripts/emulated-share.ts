// A share of the whole matrix on the emulated AMD targets that CI does not run in full: a target a day and a fifth of
// the
// ops and models, so that 25 days have been everywhere. docs/parity holds whole runs.
// Usage: node dist/scripts/emulated-share.js   today's share (UTC); WICK_EMU_DAY=2026-11-16 takes another day's, --list
// names it and runs nothing
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { env } from '../src/base/environment.js';
import { opList } from '../src/ops/table.js';
import { goldenFolder } from '../src/parity/golden.js';
import { goldenModels } from '../src/parity/models.js';
import { shareOf } from './shares.js';

const { values } = parseArgs({ options: { list: { type: 'boolean' } } });
const day = env('WICK_EMU_DAY') ?? new Date().toISOString().slice(0, 10);
const golden = goldenFolder();
const { target, rocm7, part, parts, ops, models } = shareOf(
  day,
  opList.map((r) => r.name),
  golden ? goldenModels(golden) : [],
);
console.log(
  `${day}: ${target}, part ${part} of ${parts}: ${ops.length} ops (${ops.join(' ')}), ${models.length} models ` +
    `(${models.join(' ') || 'none'})`,
);
const here = dirname(fileURLToPath(import.meta.url));
const command = join(here, rocm7 ? 'rocm7.js' : '../src/cli/main.js');
const names = (option: string, list: readonly string[]): string[] => list.flatMap((n) => [option, n]);
// Node beside ROCm 7's C library cannot start further processes, so it has one with two threads.
const [jobs, threads] = rocm7 ? ['1', '2'] : ['2', '1'];
const parity = (what: readonly string[]): number =>
  spawnSync(process.execPath, [command, 'parity', '--device', `emu:${target}`, '--jobs', jobs, ...what], {
    stdio: 'inherit',
    env: { ...process.env, WICK_EMU_THREADS: threads },
  }).status ?? 1;
if (!values.list) {
  const runs = [names('--op', ops), ...(models.length > 0 ? [names('--model', models)] : [])];
  process.exitCode = Math.max(...runs.map(parity));
}
