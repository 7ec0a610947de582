// Work that is collected for later and then never run must leave nothing behind that later launches rely on.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Device, QTensor, randn, type Tensor } from '../src/index.js';

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

test('a launch that waits takes back no shared memory from one before it that needs more', () => {
  const device = Device.get('sim:32');
  const { bare, turn } = (device.backend as GpuBackend).context;
  const pairs = [8192, 6144].map((n) => [
    QTensor.quantize(randn([16, n], { seed: 1 }), 'Q8_0').to(device),
    randn([2, n], { seed: 2, device }),
  ]) as [QTensor, Tensor][];
  const asked: number[] = [];
  const usual = bare.setMaxDynamicShared;
  bare.setMaxDynamicShared = (fn, bytes) => {
    asked.push(bytes);
    usual.call(bare, fn, bytes);
  };
  try {
    turn.collect(() => pairs.map(([w, x]) => w.matmul(x, { quick: true })))();
    assert.equal(asked.length, 1, `asked for ${asked.join(', then ')} bytes`);
  } finally {
    bare.setMaxDynamicShared = usual;
  }
});
