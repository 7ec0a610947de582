// Runs the tests that launch kernels one by one under Candle's names and ours, and adds to a record which of each
// module's kernels ran on a device.
// Usage: npm run kernels:run -- [--on sim | emu | gfx906,gfx942 | cuda | hip] [--jobs 2] [--json docs/kernels-run.json]
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ourSymbols, readManifest } from '../src/parity/manifest.js';
import type { Platform } from '../src/parity/platform.js';
import { compiledFrom, type RanDevice } from '../src/parity/compiled.js';
import { commitNow } from '../src/parity/provenance.js';

const { values } = parseArgs({
  options: {
    on: { type: 'string', default: 'sim' },
    jobs: { type: 'string', default: String(availableParallelism()) },
    json: { type: 'string' },
  },
});
const folder = join(dirname(fileURLToPath(import.meta.url)), '..', 'test');
const notes = mkdtempSync(join(tmpdir(), 'wick-launched-'));
const env = { ...process.env, WICK_LAUNCHED: notes, ...(values.on !== 'sim' && { WICK_KERNELS_ON: values.on }) };

/** A file's tests in a process of their own, and how they came out. */
function run(file: string): Promise<{ pass: number; fail: number }> {
  const child = spawn(process.execPath, ['--test', '--test-reporter=tap', join(folder, file)], { env });
  let text = '';
  child.stdout.on('data', (d: Buffer) => (text += d.toString()));
  child.stderr.on('data', (d: Buffer) => (text += d.toString()));
  const count = (what: string): number => Number(new RegExp(`^# ${what} (\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return new Promise((resolve) =>
    child.on('close', () => {
      const outcome = { pass: count('pass'), fail: count('fail') };
      console.log(`${file}: ${outcome.pass} passed, ${outcome.fail} failed`);
      if (outcome.fail > 0 || outcome.pass === 0)
        console.log(
          text
            .split('\n')
            .filter((l) => /^\s*not ok|error:|^\s+'/.test(l))
            .slice(0, 30)
            .join('\n') || text.slice(-2000),
        );
      resolve(outcome);
    }),
  );
}

const PLATFORM: Readonly<Record<string, Platform>> = { sim: 'host', cuda: 'nvidia' };
const platform = PLATFORM[values.on] ?? 'amd';

/** By device: which symbols of each module ran, as counts. */
function collect(fails: number, passes: number): Record<string, RanDevice> {
  const ran = new Map<string, Set<string>>();
  for (const file of readdirSync(notes)) {
    for (const { device, symbols } of JSON.parse(readFileSync(join(notes, file), 'utf8')) as {
      device: string;
      symbols: string[];
    }[]) {
      ran.set(device, new Set([...(ran.get(device) ?? []), ...symbols]));
    }
  }
  const ours = [...ourSymbols()];
  const candle = new Set(readManifest().map((c) => c.symbol));
  return Object.fromEntries(
    [...ran].map(([device, symbols]) => {
      const modules = [...new Set(ours.map(([, { module }]) => module))].flatMap((m) => {
        const all = ours.filter(([, { module }]) => module === m);
        const hit = all.filter(([s]) => symbols.has(s)).length;
        const missed = all.map(([s]) => s).filter((s) => candle.has(s) && !symbols.has(s));
        return hit > 0 ? [[m, { source: compiledFrom(m, platform), ran: hit, of: all.length, missed }] as const] : [];
      });
      return [
        device,
        {
          date: new Date().toISOString().slice(0, 10),
          commit: commitNow(),
          platform,
          pass: passes,
          fail: fails,
          modules: Object.fromEntries(modules),
        },
      ];
    }),
  );
}

const FILES = /^kernels-(attention|col2im|conversions|golden|quantized|rest|structured|structured-golden)\.test\.js$/;
const queue = readdirSync(folder).filter((f) => FILES.test(f));
const outcomes: { pass: number; fail: number }[] = [];
await Promise.all(
  Array.from({ length: Number(values.jobs) }, async () => {
    for (let file = queue.shift(); file; file = queue.shift()) outcomes.push(await run(file));
  }),
);
const sum = (key: 'pass' | 'fail'): number => outcomes.reduce((n, o) => n + o[key], 0);
const record = collect(sum('fail'), sum('pass'));
for (const [device, r] of Object.entries(record)) {
  console.log(
    `${device}: ${Object.entries(r.modules)
      .map(
        ([m, { ran, of, missed }]) =>
          `${m} ${ran} of ${of}${missed.length ? ` (of Candle's not ${missed.join(' ')})` : ''}`,
      )
      .join('\n  ')}`,
  );
}
if (values.json) {
  const kept = existsSync(values.json)
    ? (JSON.parse(readFileSync(values.json, 'utf8')) as Record<string, RanDevice>)
    : {};
  writeFileSync(values.json, `${JSON.stringify({ ...kept, ...record }, null, 1)}\n`);
}
rmSync(notes, { recursive: true, force: true });
process.exitCode = sum('fail') > 0 || sum('pass') === 0 ? 1 : 0;
