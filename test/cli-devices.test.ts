// `wick devices` and `wick kernels` as users run them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { wrap } from '../src/cli/table.js';

const main = fileURLToPath(new URL('../src/cli/main.js', import.meta.url));
const dir = mkdtempSync(join(tmpdir(), 'wick-cli-'));
after(() => rmSync(dir, { recursive: true, force: true }));
const wick = (args: string[], env: NodeJS.ProcessEnv = {}): { status: number | null; stdout: string; stderr: string } =>
  spawnSync(process.execPath, [main, ...args], { encoding: 'utf8', env: { ...process.env, ...env } });

test('devices lists every kind, and gives a reason for each that is missing', () => {
  const { status, stdout } = wick(['devices']);
  assert.equal(status, 0);
  for (const name of ['cpu', 'reference', 'cuda:0', 'rocm:0', 'sim:32', 'sim:64'])
    assert.match(stdout, new RegExp(`^${name} +(yes|no)`, 'm'));
  for (const [, name] of stdout.matchAll(/^(\S+:\d+) +no/gm)) assert.match(stdout, new RegExp(`^- ${name}: \\S`, 'm'));
  for (const library of ['NVRTC', 'hipRTC']) assert.match(stdout, new RegExp(`^${library} `, 'm'));
});

test('devices --json says the same to programs', () => {
  const { status, stdout } = wick(['devices', '--json']);
  assert.equal(status, 0);
  const report = JSON.parse(stdout) as {
    host: { device: string; here: boolean }[];
    drivers: { name: string; missing?: string; devices: unknown[] }[];
    libraries: { name: string }[];
  };
  assert.deepEqual(
    report.host.map((h) => h.device),
    ['cpu', 'reference', 'sim:32', 'sim:64'],
  );
  assert.deepEqual(report.drivers.map((d) => d.name).sort(), ['cuda', 'hip']);
  for (const d of report.drivers)
    assert.ok(d.devices.length > 0 || d.missing, `${d.name} has neither a device nor a reason`);
  assert.ok(report.libraries.some((l) => l.name === 'NVRTC'));
});

test('long sentences are wrapped with an indent', () => {
  assert.equal(wrap('- one two three four', '  ', 9), '- one two\n  three\n  four');
  assert.equal(wrap('short'), 'short');
});

test('kernels build refuses what it cannot do in one line', () => {
  const off = { WICK_NO_RTC: '1', WICK_CACHE_DIR: dir };
  const refused = wick(['kernels', 'build', '--arch', 'gfx1100'], off);
  assert.equal(refused.status, 1);
  assert.match(refused.stderr, /^wick kernels: building kernels for gfx1100: run-time compilers are switched off.*\n$/);
  assert.match(
    wick(['kernels', 'build', '--arch', 'sm_90', '--sample', '0'], off).stderr,
    /--sample "0" is not a whole number from 1/,
  );
  assert.equal(wick(['kernels', 'burn'], off).status, 1);
  assert.equal(wick(['kernels', 'build', '--archs', 'x'], off).status, 2);
});

test('kernels cache shows the folder and what it holds', () => {
  const { status, stdout } = wick(['kernels', 'cache'], { WICK_CACHE_DIR: dir });
  assert.equal(status, 0);
  assert.ok(stdout.includes(dir) && /ahead of time/.test(stdout));
});

const without = '--no-experimental-require-module'; // as older versions of Node are
const skip = !process.allowedNodeEnvironmentFlags.has(without) && 'this Node cannot be made like an older one';
test('a Node that is too old says which one is needed', { skip }, () => {
  const { status, stderr } = wick(['devices'], { NODE_OPTIONS: without });
  assert.equal(status, 1);
  assert.match(stderr, /^wick devices: wick needs Node 20\.19 or 22\.12 or later to open devices; this is v[\d.]+\n$/);
});
