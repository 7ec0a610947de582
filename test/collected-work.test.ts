// Work that is collected for later and then never run must leave nothing behind that later launches rely on.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Device, randn } from '../src/index.js';

test('shared memory that collected work would have allowed is asked for again', () => {
  const device = Device.get('sim:32');
  const { context } = device.backend as GpuBackend;
  const x = randn([1, 2, 64, 128], { seed: 1, device }).cast('bf16');
  const asked: number[] = [];
  const { bare } = context;
  const usual = bare.setMaxDynamicShared;
  bare.setMaxDynamicShared = (fn, bytes) => {
    asked.push(bytes);
    usual.call(bare, fn, bytes);
  };
  try {
    context.turn.collect(() => void x.sdpa(x, x, { causal: true })); // thrown away
    assert.deepEqual(asked, [], 'collected work has run');
    const before = asked.length;
    x.sdpa(x, x, { causal: true }).toArray();
    assert.ok(asked.length > before, 'the launch relies on what never ran');
    const after = asked.length;
    x.sdpa(x, x, { causal: true }).toArray();
    assert.equal(asked.length, after, 'what is allowed is asked for once');
  } finally {
    bare.setMaxDynamicShared = usual;
  }
});
