// `wick certify` as users run it, on the simulation.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { hostCompiler } from '../src/driver/host-cc.js';
import { scratch, wick } from './cli-support.js';

const dir = scratch();

const compiler = (() => {
  try {
    return hostCompiler();
  } catch {
    return undefined; // the simulation compiles kernels as C++
  }
})();

test('a quick run on the simulation ends with a table and one file that wick parity reads', {
  skip: !compiler && 'no C++ compiler here',
}, () => {
  const file = join(dir, 'sim.json');
  const { status, stdout, stderr } = wick('certify', '--device', 'sim:32', '--quick', '--jobs', '1', '--out', file);
  assert.equal(status, 0, stderr);
  for (const line of ['device', 'against reference', 'against candle', 'against torch', 'against models'])
    assert.match(stdout, new RegExp(`^${line} +yes `, 'm'));
  assert.match(stdout, /Everything holds/);
  assert.match(stdout, /attach\s+the\s+file/);
  const text = readFileSync(file, 'utf8');
  const { certificate } = JSON.parse(text) as {
    certificate: { quick: boolean; steps: { ok: boolean }[]; machine: object };
  };
  assert.ok(certificate.quick && certificate.steps.every((s) => s.ok) && 'drivers' in certificate.machine);
  assert.ok(!JSON.stringify(certificate).includes(homedir()), 'the file names no folder of the user');
  const shown = wick('parity', '--from', file);
  assert.equal(shown.status, 0, shown.stderr);
  assert.match(shown.stdout, /^sim:32 +reference/m);
});

test('what is no GPU is refused with what to do instead', () => {
  const { status, stderr } = wick('certify', '--device', 'cpu');
  assert.equal(status, 1);
  assert.match(stderr, /cpu is no GPU; wick parity --device cpu measures it/);
  assert.match(wick('certify', '--jobs', '0', '--device', 'sim:32').stderr, /--jobs "0" is not a whole number from 1/);
});
