// `npm run test:gpu [-- --device cuda:0 --jobs 16 --json FILE]`: the matrix, gradients and golden cases on a GPU, in
// several processes at once, with a record of the run.
import { commitNow } from '../src/parity/provenance.js';
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Device } from '../src/index.js';

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'cuda:0' },
    jobs: { type: 'string', default: String(Math.min(16, availableParallelism())) },
    json: { type: 'string' },
    only: { type: 'string', default: 'matrix,golden-candle,golden-torch,gradients,large' },
  },
});
const name = values.device as string;
const device = Device.get(name); // throws its sentence where there is none
const folder = join(dirname(fileURLToPath(import.meta.url)), '..', 'test');
const jobs = Number(values.jobs);

interface Outcome {
  readonly file: string;
  readonly shard: string;
  readonly pass: number;
  readonly fail: number;
  readonly skipped: number;
  readonly notes: string[];
  readonly failures: string[];
}

function run(file: string, shard: string): Promise<Outcome> {
  const child = spawn(process.execPath, ['--test', join(folder, file)], {
    env: { ...process.env, WICK_TEST_DEVICES: name, WICK_SHARD: shard },
  });
  let text = '';
  child.stdout.on('data', (d: Buffer) => (text += d.toString()));
  child.stderr.on('data', (d: Buffer) => (text += d.toString()));
  return new Promise((resolve) =>
    child.on('close', () => {
      const count = (what: string): number => Number(new RegExp(`^# ${what} (\\d+)`, 'm').exec(text)?.[1] ?? 0);
      const lines = text.split('\n');
      resolve({
        file,
        shard,
        pass: count('pass'),
        fail: count('fail'),
        skipped: count('skipped'),
        notes: lines.filter((l) => /^# \w[\w -]*: \d/.test(l)).map((l) => l.slice(2)),
        failures: lines
          .filter((l) => / on \S+: /.test(l) && !/^(#|ok|not ok)/.test(l.trim()))
          .map((l) => l.trim())
          .slice(0, 40),
      });
    }),
  );
}

const wanted = (values.only as string).split(',');
const files = readdirSync(folder).filter((f) => wanted.some((w) => f === `${w}.test.js`));
const queue = files.flatMap((f) =>
  /^(matrix|gradients)/.test(f)
    ? Array.from({ length: jobs }, (_, i) => [f, `${i}/${jobs}`] as const)
    : [[f, '0/1'] as const],
);
const outcomes: Outcome[] = [];
const started = Date.now();
await Promise.all(
  Array.from({ length: jobs }, async () => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const outcome = await run(...next);
      outcomes.push(outcome);
      console.log(
        `${outcome.file} ${outcome.shard}: ${outcome.pass} passed, ${outcome.fail} ` +
          `failed${outcome.notes.length ? `; ${outcome.notes.join('; ')}` : ''}`,
      );
      for (const f of outcome.failures) console.log(`  ${f}`);
    }
  }),
);
const sum = (key: 'pass' | 'fail' | 'skipped'): number => outcomes.reduce((n, o) => n + o[key], 0);
console.log(`${sum('pass')} passed, ${sum('fail')} failed, ${sum('skipped')} skipped`);
if (values.json && (existsSync(dirname(values.json)) || dirname(values.json) === '.')) {
  writeFileSync(
    values.json,
    `${JSON.stringify({ device: device.description, date: new Date().toISOString(), commit: commitNow(), seconds: (Date.now() - started) / 1000, outcomes }, null, 1)}\n`,
  );
}
process.exit(sum('fail') > 0 ? 1 : 0);
