// `wick env`: every variable with its meaning and value, where the cache is, and names that mean nothing.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { VARIABLES } from '../src/base/environment.js';

const main = join(fileURLToPath(new URL('.', import.meta.url)), '../src/cli/main.js');
const wick = (args: readonly string[], env: Record<string, string>): string => {
  const r = spawnSync(process.execPath, [main, ...args], { encoding: 'utf8', env: { ...process.env, ...env } });
  assert.equal(r.status, 0, r.stderr);
  return r.stdout;
};

test('every variable is printed with its meaning and the value it has here', () => {
  const out = wick(['env'], { WICK_CACHE_DIR: '/x/cache', ['WICK_' + 'CASHE']: '1' });
  for (const [name, { meaning }] of Object.entries(VARIABLES)) {
    assert.match(out, new RegExp(`^  ${name}( = |$)`, 'm'));
    assert.ok(out.replace(/\s+/g, ' ').includes(meaning), meaning);
  }
  assert.match(out, /^the cache: +\/x\/cache$/m);
  assert.match(out, /^ {2}WICK_CACHE_DIR = \/x\/cache$/m);
  assert.match(out, /not known to wick .*: WICK_CASHE$/m);
});

test('--json says the same to programs', () => {
  const { cache, variables, unknown } = JSON.parse(
    wick(['env', '--json'], { WICK_CACHE_DIR: '/x', ['WICK_' + 'NOPE']: '' }),
  ) as {
    cache: string;
    variables: { name: string; value?: string }[];
    unknown: string[];
  };
  assert.equal(cache, '/x');
  assert.deepEqual(
    variables.map((v) => v.name),
    Object.keys(VARIABLES),
  );
  assert.equal(variables.find((v) => v.name === 'WICK_CACHE_DIR')?.value, '/x');
  assert.ok(unknown.includes('WICK_NOPE'));
});
