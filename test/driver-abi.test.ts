// Prototypes, struct layouts and numbers against the vendors' headers, where they are installed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { defaultFolders, PROBE_TARGETS, probe, signatureOf } from '../scripts/abi-probe.js';
import { HEADERS7 } from '../scripts/fetch-rocm.js';

const compiler = spawnSync(process.env.CXX ?? 'g++', ['--version']).status === 0;

test('prototypes are read as the calling convention sees them', () => {
  assert.equal(signatureOf('int f(void *p, size_t n, uint8_t b, const char **names)'), 'i4 i8 i8 i1 i8');
  assert.equal(signatureOf('void g()'), 'v0');
});

test('a wrong number, struct and prototype are each found', { skip: !compiler && 'no C++ compiler' }, (t) => {
  const hip = PROBE_TARGETS.find((p) => p.name === 'HIP')!;
  const r = probe(
    {
      ...hip,
      table: { memAlloc: 'int hipMalloc(void *address, int bytes)' },
      structs: { dim3: { size: 16, fields: { x: 0 } } },
      numbers: { hipErrorOutOfMemory: 3 },
    },
    defaultFolders(),
  );
  if (r.skipped) return t.skip(r.skipped);
  assert.deepEqual(r.differences, [
    "hipMalloc: ours i4 i8 i4, the header's i4 i8 i8",
    "dim3: ours 16 0, the header's 12 0",
    "hipErrorOutOfMemory: ours 3, the header's 2",
  ]);
});

const SETS = { 'the installed': defaultFolders(), "ROCm 7's": [join(HEADERS7, 'usr/include')] };
for (const target of PROBE_TARGETS)
  for (const [whose, folders] of Object.entries(SETS)) {
    if (folders !== SETS['the installed'] && /^(CUDA|NV|cu)/.test(target.name)) continue;
    test(`${target.name} agrees with ${whose} headers`, { skip: !compiler && 'no C++ compiler' }, (t) => {
      const r = probe(target, folders);
      if (r.skipped) return t.skip(r.skipped);
      assert.deepEqual(r.differences, []);
      assert.ok(r.checked.prototypes + r.absent.length === Object.keys(target.table).length);
    });
  }
